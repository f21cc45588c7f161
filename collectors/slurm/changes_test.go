package slurm

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/collectors"
	"auspex/collectors/collectortest"
)

// daemon is a slurmrestd that tells what has changed, as that of 24.11 does (recorded in test/peers/slurm24.sh's cluster).
type daemon struct {
	mu      sync.Mutex
	now     int64            // of the controller, Unix s
	jobs    map[int64]string // v0.0.42, by id
	nodes   map[string]string
	changed map[string]int64 // when jobs and nodes were
	past    []string         // of accounting
	states  bool             // jobs/state is offered
	refuses bool             // update_time is not understood
	noDB    bool
	cut     string // a path whose answer is cut off
	asked   []string
}

func newDaemon(now time.Time) *daemon {
	return &daemon{now: now.Unix(), jobs: map[int64]string{}, nodes: map[string]string{"n1": "IDLE"}, changed: map[string]int64{}}
}

func (d *daemon) do(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now++
	d.changed["jobs"], d.changed["nodes"] = d.now, d.now
	f()
}

func set(n int64) string { return fmt.Sprintf(`{"set": true, "infinite": false, "number": %d}`, n) }

// rendered is a job, with the spaces that slurmrestd writes.
func rendered(id int64, state string, start, end int64, more string) string {
	return fmt.Sprintf("{\n      \"account\": \"ml\",\n      \"job_id\": %d,\n      \"name\": \"train\",\n      \"user_name\": \"ann\",\n      \"job_state\": [\n        %q\n      ],\n      \"nodes\": \"n1\",\n      \"submit_time\": %s,\n      \"start_time\": %s,\n      \"end_time\": %s%s\n    }",
		id, state, set(100), set(start), set(end), more)
}

func pastOf(id int64, state string, start, end int64, more string) string {
	return fmt.Sprintf(`{"job_id":%d,"name":"train","user":"ann","account":"ml","partition":"gpu","nodes":"n1","state":{"current":[%q],"reason":"None"},"time":{"submission":100,"start":%d,"end":%d}%s}`,
		id, state, start, end, more)
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r.URL.RequestURI())
	if r.URL.Path == "/openapi/v3" {
		fmt.Fprint(w, `{"paths":{"\/slurm\/v0.0.42\/jobs\/":{}}}`)
		return
	}
	path, isDB := strings.CutPrefix(r.URL.Path, "/slurmdb/v0.0.42/")
	if !isDB {
		path = strings.TrimPrefix(r.URL.Path, "/slurm/v0.0.42/")
	}
	answer := func(key string, items []string) {
		text := fmt.Sprintf("{\n  %q: [\n    %s\n  ],\n  \"last_update\": %s,\n  \"meta\": {},\n  \"errors\": [],\n  \"warnings\": []\n}", key, strings.Join(items, ",\n    "), set(d.now))
		if d.cut == path {
			text = text[:len(text)/2]
		}
		fmt.Fprint(w, text)
	}
	since := r.URL.Query().Get("update_time")
	if since != "" {
		n, err := strconv.ParseInt(strings.TrimPrefix(since, "uts"), 10, 64)
		switch {
		case d.refuses || err != nil || !strings.HasPrefix(since, "uts"):
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"errors":[{"description":"Parsing of 1 for timestamp failed","error_number":9202,"error":"Unable to convert Data type","source":"#/update_time/"}]}`)
			return
		case n-1 < d.changed[path]:
		case path == "nodes":
			w.WriteHeader(http.StatusNotModified)
			return
		default:
			fmt.Fprint(w, `{"jobs":[],"last_update":{"set":true,"infinite":false,"number":0},"errors":[],"warnings":[{"description":"No job changes since update_time","source":"op_handler_jobs"}]}`)
			return
		}
	}
	id, _ := strconv.ParseInt(strings.TrimPrefix(path, "job/"), 10, 64)
	var items []string
	switch {
	case isDB && d.noDB, path == "jobs/state" && !d.states, path == "reservations":
		http.NotFound(w, r)
	case isDB && id > 0:
		for _, p := range d.past {
			if strings.HasPrefix(p, fmt.Sprintf(`{"job_id":%d,`, id)) {
				items = append(items, p)
			}
		}
		answer("jobs", items)
	case isDB:
		answer("jobs", d.past)
	case path == "jobs/state":
		for _, id := range slices.Sorted(maps.Keys(d.jobs)) {
			g := glimpse([]byte(d.jobs[id]))
			items = append(items, fmt.Sprintf("{\n      \"job_id\": \"%d_0\",\n      \"state\": [\n        %q\n      ]\n    }", id, g.state))
		}
		answer("jobs", items)
	case id > 0:
		answer("jobs", []string{d.jobs[id]})
	case path == "jobs":
		for _, id := range slices.Sorted(maps.Keys(d.jobs)) {
			items = append(items, d.jobs[id])
		}
		answer("jobs", items)
	case path == "nodes":
		for _, n := range slices.Sorted(maps.Keys(d.nodes)) {
			items = append(items, fmt.Sprintf(`{"name": %q, "state": [%q], "partitions": ["gpu"]}`, n, d.nodes[n]))
		}
		answer("nodes", items)
	}
}

// bed is a poller of a daemon whose time is ours.
type bed struct {
	t    *testing.T
	d    *daemon
	srv  *httptest.Server
	s    collectors.Settings
	rec  *collectortest.Recorder
	p    *poller
	now  time.Time
	logs *strings.Builder
	told int
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, now: collectortest.Now, rec: collectortest.NewRecorder(), logs: &strings.Builder{}}
	b.d = newDaemon(b.now)
	b.srv = httptest.NewServer(b.d)
	t.Cleanup(b.srv.Close)
	b.s = collectortest.Settings()
	b.s.Now = func() time.Time { return b.now }
	b.s.Log = slog.New(slog.NewTextHandler(b.logs, nil))
	b.restart()
	return b
}

func (b *bed) restart() { b.p = newPoller(b.t, b.srv.URL, b.s, token) }

// poll reads once, and wants to be told so much.
func (b *bed) poll(want ...string) {
	b.t.Helper()
	b.now = b.now.Add(5 * time.Second)
	b.d.mu.Lock()
	b.d.asked = nil
	b.d.now = max(b.d.now, b.now.Unix())
	b.d.mu.Unlock()
	if err := b.p.poll(b.t.Context(), b.rec); err != nil {
		b.t.Fatal(err)
	}
	all := events(b.rec)
	got := append([]string{}, all[b.told:]...)
	b.told = len(all)
	if d := cmp.Diff(append([]string{}, want...), got); d != "" {
		b.t.Fatal(d)
	}
}

func (b *bed) asked(want ...string) {
	b.t.Helper()
	var got []string
	for _, a := range b.d.asked {
		if a = strings.TrimPrefix(a, "/slurm/v0.0.42/"); a != "reservations" && a != "/openapi/v3" {
			a, _, _ = strings.Cut(a, "=")
			got = append(got, a)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		b.t.Fatal(d)
	}
}

func (b *bed) start(d time.Duration) int64 { return b.now.Add(d).Unix() }

func TestAListIsReadIfSomethingInItHasChanged(t *testing.T) {
	b := newBed(t)
	start := b.start(0)
	b.d.do(func() { b.d.jobs[7] = rendered(7, "RUNNING", start, 0, "") })
	b.poll("job-7 workload.state RUNNING", "n1 node.state IDLE")
	b.asked("jobs", "nodes")
	b.poll()
	b.asked("jobs?update_time", "nodes?update_time")
	b.d.do(func() { b.d.nodes["n1"] = "DRAIN" })
	b.poll("n1 node.state DRAIN")
	b.d.do(func() { b.d.jobs[7] = rendered(7, "COMPLETED", start, start+5, "") })
	b.poll("job-7 workload.state COMPLETED")
	b.now = b.now.Add(b.p.cfg.Reconcile)
	b.poll()
	b.asked("jobs", "nodes")
	b.d.refuses = true // as 23.02 may
	b.poll()
	b.asked("jobs?update_time", "jobs", "nodes?update_time", "nodes")
	b.poll()
	b.asked("jobs", "nodes")
}

// What came while the bus was away is told, though the controller has not changed since.
func TestWhatWasNotTakenIsReadAgain(t *testing.T) {
	b := newBed(t)
	b.poll("n1 node.state IDLE")
	b.d.do(func() { b.d.jobs[7] = rendered(7, "RUNNING", b.start(0), 0, "") })
	b.d.cut = "nodes"
	if err := b.p.poll(t.Context(), b.rec); err == nil {
		t.Fatal("half a list was taken")
	}
	b.d.cut = ""
	b.poll("job-7 workload.state RUNNING")
}

func TestOfManyJobsTheStatesAreRead(t *testing.T) {
	b := newBed(t)
	b.d.states = true
	start := b.start(0)
	b.d.do(func() {
		for id := range int64(manyJobs) {
			b.d.jobs[100+id] = rendered(100+id, "PENDING", 0, 0, "")
		}
		b.d.jobs[7] = rendered(7, "RUNNING", start, 0, "")
	})
	b.poll("job-7 workload.state RUNNING", "n1 node.state IDLE")
	b.d.do(func() {
		b.d.jobs[100] = rendered(100, "RUNNING", start, 0, `,"array_job_id":{"set":true,"number":99},"array_task_id":{"set":true,"number":3}`)
		b.d.jobs[7] = rendered(7, "FAILED", start, start+9, `,"exit_code":{"return_code":{"set":true,"number":2}}`)
		b.d.past = []string{pastOf(7, "FAILED", start, start+9, `,"steps":[{"step":{"id":"7.batch","name":"batch"},"exit_code":{"return_code":{"set":true,"number":2}}},{"step":{"id":"7.0","name":"train.py"},"exit_code":{"return_code":{"set":true,"number":1}}}]`)}
	})
	b.poll("job-7 workload.state FAILED", "job-7 workload.failed 2", "job-100 workload.state RUNNING")
	b.asked("jobs/state", "job/7", "job/100", "nodes?update_time", "/slurmdb/v0.0.42/job/7")
	all := b.rec.Events()
	if f, a := all[len(all)-2], all[len(all)-1]; f.Attrs["step"] != "7.0" || f.Attrs["step_name"] != "train.py" || a.Attrs["array_job"] != "job-99" || a.Attrs["array_task"] != "3" {
		t.Errorf("%+v %+v", f.Attrs, a.Attrs)
	}
	b.d.do(func() { delete(b.d.jobs, 100) }) // gone between two looks
	b.poll("job-100 workload.state UNKNOWN")
	b.asked("jobs/state", "jobs", "nodes?update_time", "/slurmdb/v0.0.42/job/100")
	b.d.states = false // such as a daemon that was put back
	b.poll()
	b.asked("jobs/state", "jobs", "nodes?update_time")
	b.poll()
	b.asked("jobs?update_time", "nodes?update_time")
}

// What ended while nobody looked is told once by accounting, over restarts of ours and jobs that slurmctld forgot.
func TestEndsThatNobodySawAreToldByAccounting(t *testing.T) {
	b := newBed(t)
	start := b.start(0)
	b.d.do(func() {
		for id := range int64(3) {
			b.d.jobs[7+id] = rendered(7+id, "RUNNING", start, 0, "")
		}
	})
	b.poll("job-7 workload.state RUNNING", "job-8 workload.state RUNNING", "job-9 workload.state RUNNING", "n1 node.state IDLE")
	b.d.do(func() {
		clear(b.d.jobs)
		b.d.jobs[9] = rendered(9, "RUNNING", start, 0, "")
		b.d.jobs[11] = rendered(11, "PENDING", 0, 0, "")
		b.d.past = []string{
			pastOf(7, "FAILED", start, start+60, `,"exit_code":{"return_code":{"set":true,"number":9}},"array":{"job_id":6,"task_id":{"set":true,"number":1}}`),
			pastOf(8, "RUNNING", start, 0, ""),                // slurmdbd was not told
			pastOf(9, "COMPLETED", start-500, start-400, ""),  // an earlier run
			pastOf(10, "COMPLETED", start+10, start+400, ""),  // came and went
			pastOf(11, "NODE_FAIL", start+10, start+400, ""),  // and is back in the queue
			pastOf(12, "COMPLETED", start-900, start-800, ""), // told long ago
			`{"job_id":"x"}`, `7`,
		}
	})
	b.now = b.now.Add(10 * time.Minute)
	b.restart()
	b.poll("job-7 workload.state FAILED", "job-7 workload.failed 9", "job-10 workload.state COMPLETED", "job-8 workload.state UNKNOWN")
	if ev := b.rec.Events()[5]; ev.Attrs["array_job"] != "job-6" || ev.Attrs["end"] != time.Unix(start+60, 0).UTC().Format(time.RFC3339) {
		t.Errorf("%+v", ev.Attrs)
	}
	b.poll()
	b.restart()
	b.poll()
	b.d.do(func() { delete(b.d.jobs, 9); b.d.noDB = true })
	b.poll("job-9 workload.state UNKNOWN")
	if ev := b.rec.Events()[b.told-1]; !strings.Contains(ev.Message, "job-9 is not listed any more: it ended unseen, and accounting is not read") {
		t.Error(ev.Message)
	}
}

// A number that comes again is another run: the one before is told to be over, and its end is told again.
func TestAJobThatBeginsAnewIsAnotherRun(t *testing.T) {
	b := newBed(t)
	start := b.start(0)
	put := func(state string, start, end int64) {
		b.d.do(func() { b.d.jobs[7] = rendered(7, state, start, end, "") })
	}
	put("RUNNING", start, 0)
	b.poll("job-7 workload.state RUNNING", "n1 node.state IDLE")
	put("PENDING", 0, 0)
	b.poll("job-7 workload.state UNKNOWN")
	put("RUNNING", start+20, 0)
	b.poll("job-7 workload.state RUNNING")
	put("RUNNING", start+30, 0)
	b.poll("job-7 workload.state UNKNOWN", "job-7 workload.state RUNNING")
	put("COMPLETED", start+30, start+31)
	b.poll("job-7 workload.state COMPLETED")
	put("COMPLETED", start+40, start+41)
	b.poll("job-7 workload.state COMPLETED")
	b.poll()
}

func TestBadInputCostsItselfAndIsNamed(t *testing.T) {
	b := newBed(t)
	start := b.start(0)
	b.d.do(func() {
		b.d.jobs[1] = rendered(1, "RUNNING", 12, 0, "") // a clock of 1970
		b.d.jobs[2] = `{"job_id":2,"job_state":["RUNNING"],"nodes":7}`
		b.d.jobs[3] = `{"job_id":3,"job_state":{}}`
		b.d.jobs[4] = strings.Replace(rendered(4, "RUNNING", start, 0, ""), `"n1"`, `"a[1-"`, 1)
		b.d.jobs[5] = rendered(5, "RUNNING", start, 0, "")
		b.d.nodes = map[string]string{"n1": "IDLE", "n2": "IDLE"}
	})
	b.poll("job-1 workload.state RUNNING", "job-4 workload.state RUNNING", "job-5 workload.state RUNNING", "n1 node.state IDLE", "n2 node.state IDLE")
	if ev := b.rec.Events()[0]; !ev.Time.Equal(b.now) || ev.Attrs["start"] != "" {
		t.Errorf("%v %+v", ev.Time, ev.Attrs)
	}
	for _, says := range []string{"object=job-1", "before the year 2000", "object=job-2", "object=job-3", "no state", "object=job-4", "malformed host list"} {
		if !strings.Contains(b.logs.String(), says) {
			t.Errorf("the log does not say %q:\n%s", says, b.logs)
		}
	}
	said := b.logs.Len()
	b.d.do(func() { b.d.nodes = map[string]string{"n1": "IDLE", "n3": "IDLE"} })
	b.poll("n3 node.state IDLE", "n2 node.state UNKNOWN")
	if ev := b.rec.Events()[b.told-1]; !strings.Contains(ev.Message, "n2 is not listed any more") || b.logs.Len() != said {
		t.Errorf("%s\n%s", ev.Message, b.logs)
	}
	// While one cannot be told who it is, nobody is gone.
	b.d.do(func() { b.d.jobs = map[int64]string{5: `{"job_id":"?","job_state":["RUNNING"]}`} })
	b.poll()
}
