package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	rest "auspex/internal/slurm"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "header.payload.signature"

func guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-SLURM-USER-TOKEN") != token {
			w.WriteHeader(http.StatusNetworkAuthenticationRequired)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func tokenFile(t testing.TB, s string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(f, []byte(s+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestConformance(t *testing.T) {
	site := schemas.Resource{ID: "dc1", Kind: schemas.KindSite}
	var handler atomic.Pointer[http.Handler]
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load()).ServeHTTP(w, r) }))
	defer srv.Close()
	url := srv.URL
	serve := func(_ testing.TB, h http.Handler) schemas.Resource {
		handler.Store(&h)
		url = srv.URL
		return site
	}
	tok := tokenFile(t, token)
	collectortest.Run(t, collectortest.Harness{
		Name: Name,
		Serve: func(t testing.TB, input string) schemas.Resource {
			return serve(t, guard(http.FileServer(http.Dir(input))))
		},
		Garbage: func(t testing.TB) schemas.Resource {
			return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.Contains(r.URL.Path, "openapi"):
					fmt.Fprint(w, `{"/slurm/v0.0.42/jobs/":1}`)
				case strings.Contains(r.URL.Path, "jobs"):
					fmt.Fprint(w, `{"jobs":[1,{"job_id":"x","job_state":7},{"job_id":{"number":1,"set":true},"job_state":["FAILED"],"nodes":"a[1-"}]}`)
				default:
					fmt.Fprint(w, `{"nodes":[[],{"name":"n","state":{}}]}`)
				}
			}))
		},
		Prepare: func(_ testing.TB, cfg collectors.Config) {
			c := cfg.(*Config)
			c.URL, c.TokenFile = url, tok
		},
		At: func(addr string) schemas.Resource {
			url = "http://" + addr
			return site
		},
	})
}

// cluster answers with the present lists.
type cluster struct{ jobs, nodes, reservations atomic.Pointer[string] }

func (c *cluster) set(jobs, nodes string) { c.jobs.Store(&jobs); c.nodes.Store(&nodes) }

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/openapi/v3":
		fmt.Fprint(w, `{"paths":{"/slurm/v0.0.40/jobs/":{},"/slurm/v0.0.42/jobs/":{},"/slurm/v0.0.41/jobs/":{}}}`)
	case "/slurm/v0.0.42/jobs":
		fmt.Fprintf(w, `{"jobs":[%s],"errors":[]}`, *c.jobs.Load())
	case "/slurm/v0.0.42/nodes":
		fmt.Fprintf(w, `{"nodes":[%s],"errors":[]}`, *c.nodes.Load())
	case "/slurm/v0.0.42/reservations":
		if c.reservations.Load() == nil {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"reservations":[%s],"errors":[]}`, *c.reservations.Load())
	default:
		http.NotFound(w, r)
	}
}

func newPoller(t *testing.T, url string, s collectors.Settings, tok string) *poller {
	t.Helper()
	cfg := Default()
	cfg.URL, cfg.TokenFile, cfg.Timeout = url, tokenFile(t, tok), time.Minute
	c, err := cfg.New(schemas.Resource{ID: "dc1", Kind: "site"}, s)
	if err != nil {
		t.Fatal(err)
	}
	p := c.(*collector).p
	t.Cleanup(p.client.Close)
	return p
}

func events(rec *collectortest.Recorder) []string {
	var out []string
	for _, ev := range rec.Events() {
		out = append(out, strings.TrimSpace(ev.Resource+" "+ev.Type+" "+ev.Code))
	}
	return out
}

func TestOnlyChangesAreToldAlsoAfterARestart(t *testing.T) {
	c := &cluster{}
	srv := httptest.NewServer(guard(c))
	defer srv.Close()
	s, rec := collectortest.Settings(), collectortest.NewRecorder()
	p := newPoller(t, srv.URL, s, token)
	poll := func() {
		t.Helper()
		if err := p.poll(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
	}
	start := collectortest.Now.Add(-time.Hour).Unix()
	running := fmt.Sprintf(
		`{"job_id":7,"name":"train","user_name":"ann","job_state":["RUNNING"],"nodes":"n[1-2]","start_time":{"set":true,"number":%d}}`, start,
	)
	c.set(running, `{"name":"n1","state":["ALLOCATED"]}`)
	poll()
	poll()
	p = newPoller(t, srv.URL, s, token)
	poll()
	c.set(fmt.Sprintf(`{"job_id":7,"name":"train","user_name":"ann","job_state":["FAILED"],"nodes":"n[1-2]","start_time":{"set":true,"number":%d},"end_time":{"set":true,"number":%d},"exit_code":{"return_code":{"set":true,"number":0},"signal":{"id":{"set":true,"number":6}}}}`,
		start, start+60), `{"name":"n1","state":["IDLE","DRAIN"],"reason":"auspex: x"}`)
	poll()
	c.set(``, `{"name":"n1","state":["IDLE"],"reason":"auspex: x"}`)
	poll()
	poll()
	want := []string{
		"job-7 workload.state RUNNING", "n1 node.state ALLOCATED", "job-7 workload.state FAILED", "job-7 workload.failed 134",
		"n1 node.state DRAIN", "n1 node.state IDLE",
	}
	if d := cmp.Diff(want, events(rec)); d != "" {
		t.Error(d)
	}
}

// A job that a killed process told of has its end told by the next, though that never saw it run.
func TestAJobOfAKilledProcessIsClosed(t *testing.T) {
	for _, mute := range []bool{false, true} {
		c := &cluster{}
		srv := httptest.NewServer(guard(c))
		defer srv.Close()
		s, rec := collectortest.Settings(), collectortest.NewRecorder()
		killed := &collectortest.Mortal{Cursors: s.Cursors, Emitter: rec, Mute: mute}
		dying := s
		dying.Cursors = killed
		c.set(`{"job_id":7,"job_state":"RUNNING","nodes":"n1","start_time":1000}`, ``)
		_ = newPoller(t, srv.URL, dying, token).poll(t.Context(), killed)
		c.set(``, ``)
		for p, n := newPoller(t, srv.URL, s, token), 0; n < 2; n++ {
			if err := p.poll(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
		}
		if d := cmp.Diff([]string{"job-7 workload.state RUNNING", "job-7 workload.state UNKNOWN"}, slices.Compact(events(rec))); d != "" || !killed.Dead() {
			t.Error(mute, d)
		}
	}
}

func TestVanishedJobIsClosed(t *testing.T) {
	c := &cluster{}
	srv := httptest.NewServer(guard(c))
	defer srv.Close()
	rec := collectortest.NewRecorder()
	p := newPoller(t, srv.URL, collectortest.Settings(), token)
	c.set(`{"job_id":7,"job_state":"RUNNING","nodes":"n1","start_time":1000}`, ``)
	_ = p.poll(context.Background(), rec)
	c.set(``, ``)
	_ = p.poll(context.Background(), rec)
	if d := cmp.Diff([]string{"job-7 workload.state RUNNING", "job-7 workload.state UNKNOWN"}, events(rec)); d != "" {
		t.Error(d)
	}
}

func TestBadTokenIsAnAuthError(t *testing.T) {
	c := &cluster{}
	c.set(``, ``)
	srv := httptest.NewServer(guard(c))
	defer srv.Close()
	p := newPoller(t, srv.URL, collectortest.Settings(), "wrong")
	if err := p.poll(context.Background(), collectortest.NewRecorder()); !errors.Is(err, collectors.ErrAuth) {
		t.Errorf("got %v", err)
	}
}

func TestNodeCodes(t *testing.T) {
	for in, want := range map[string]string{
		"IDLE": "IDLE", "idle*": "IDLE", "IDLE+DRAIN": "DRAIN", "DOWN+DRAIN": "DOWN", "ALLOCATED DRAIN": "DRAIN", "IDLE+NOT_RESPONDING": "IDLE",
		"drained": "DRAIN", "": "UNKNOWN",
	} {
		n := rest.Node{State: rest.Names{in}}
		if got := code(n.States()); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestHostLists(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"n1":                           "n1",
		"gpu-r01-[01-03,07],login1":    "gpu-r01-01 gpu-r01-02 gpu-r01-03 gpu-r01-07 login1",
		"r[1-2]n[08-09]":               "r1n08 r1n09 r2n08 r2n09",
		"a[1-":                         "error",
		"a[1-99999999]":                "error",
		"a[2-1]":                       "error",
		"a]":                           "error",
		"x[1-300]y[1-300]z[1-300]":     "error",
		"gpu-r01-[01-02],gpu-r02-[04]": "gpu-r01-01 gpu-r01-02 gpu-r02-04",
	} {
		hosts, err := rest.Hosts(in)
		got := strings.Join(hosts, " ")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if d := cmp.Diff(
		[]string{"a/gpu0", "a/gpu1", "a/gpu7", "b/gpu2"}, gpus([]string{"a", "b"}, []string{"gpu:h100:3(IDX:0-1,7)", "gpu:1(IDX:2)"}),
	); d != "" {
		t.Error(d)
	}
}

func FuzzModel(f *testing.F) {
	f.Add(`{"job_id":1,"job_state":"RUNNING","nodes":"a[1-3]","exit_code":256,"gres_detail":["gpu:1(IDX:0)"]}`)
	f.Add(`{"name":"n","state":["IDLE","DRAIN"]}`)
	f.Fuzz(func(t *testing.T, s string) {
		var j job
		if json.Unmarshal([]byte(s), &j) == nil {
			hosts, err := rest.Hosts(j.Nodes)
			if err == nil && len(hosts) > rest.MaxHosts {
				t.Error("too many hosts")
			}
			gpus(hosts, j.Gres)
			_ = j.Start.Time()
		}
		var n rest.Node
		if json.Unmarshal([]byte(s), &n) == nil {
			code(n.States())
		}
		_, _ = rest.Hosts(s)
	})
}

// A reservation for maintenance is a window of its nodes, told once, also after a restart, and
// told anew when it changes; one that goes ends its window.
func TestAReservationForMaintenanceIsAWindow(t *testing.T) {
	c := &cluster{}
	c.set("", "")
	now := time.Now().UTC().Truncate(time.Second)
	list := func(items ...string) { s := strings.Join(items, ","); c.reservations.Store(&s) }
	item := func(name, flags, nodes string, from, until time.Time) string {
		return fmt.Sprintf(`{"name":%q,"flags":%s,"node_list":%q,"start_time":{"set":true,"number":%d},"end_time":{"set":true,"number":%d},"users":"root"}`,
			name, flags, nodes, from.Unix(), until.Unix())
	}
	srv := httptest.NewServer(guard(c))
	defer srv.Close()
	rec, cursors := collectortest.NewRecorder(), collectortest.NewCursors()
	p := newPoller(t, srv.URL, collectors.Settings{Cursors: cursors}, token)
	var told []string
	poll := func(want ...string) {
		t.Helper()
		if err := p.poll(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		all := events(rec)
		if d := cmp.Diff(append(told, want...), all); d != "" {
			t.Fatal(d)
		}
		told = all
	}
	poll() // a controller that lists none
	work := item("racks", `["MAINT","IGNORE_JOBS"]`, "gpu-r01-[01-02]", now.Add(time.Hour), now.Add(3*time.Hour))
	old := item("racks2", `"MAINT,FLEX"`, "gpu-r02-01", now.Add(-time.Hour), now.Add(time.Hour)) // as older versions write flags
	list(work, old, item("class", `["DAILY"]`, "gpu-r01-03", now, now.Add(time.Hour)),
		item("past", `["MAINT"]`, "gpu-r01-04", now.Add(-2*time.Hour), now.Add(-time.Hour)),
		item("for ever", `["MAINT"]`, "gpu-r01-05", now, now.Add(9000*time.Hour)), `{"name":7}`)
	poll("gpu-r01-01 maintenance.declared maintenance", "gpu-r01-02 maintenance.declared maintenance", "gpu-r02-01 maintenance.declared maintenance")
	m, err := schemas.MaintenanceOf(&rec.Events()[0])
	if err != nil || !m.From.Equal(now.Add(time.Hour)) || !m.Until.Equal(now.Add(3*time.Hour)) || m.By != "root" || m.Reason != "Slurm reservation racks" {
		t.Errorf("%+v, %v", m, err)
	}
	poll()
	p = newPoller(t, srv.URL, collectors.Settings{Cursors: cursors}, token)
	poll()
	list(item("racks", `["MAINT"]`, "gpu-r01-01", now.Add(time.Hour), now.Add(4*time.Hour)), old)
	poll("gpu-r01-01 maintenance.declared maintenance", "gpu-r01-01 maintenance.ended maintenance", "gpu-r01-02 maintenance.ended maintenance")
	list()
	if err := p.poll(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if all := events(rec)[len(told):]; len(all) != 2 {
		t.Errorf("reservations that are gone: %q", all)
	}
}

// With status 200 an answer may say that it could not ask the controller: then no job has ended, and no window either.
func TestAListWithAnErrorEndsNothing(t *testing.T) {
	var fails, gone atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		errs := `[]`
		if fails.Load() {
			errs = `[{"description":"Unable to query","error_number":5004,"error":"Socket timed out on send/recv operation","source":"slurm_load_jobs()"}]`
		}
		job := `{"job_id":7,"user_name":"ann","job_state":["RUNNING"],"nodes":"n1","start_time":{"set":true,"number":1767268200}}`
		if fails.Load() || gone.Load() {
			job = ""
		}
		switch r.URL.Path {
		case "/openapi/v3":
			fmt.Fprint(w, `{"paths":{"\/slurm\/v0.0.43\/jobs\/":{}}}`)
		case "/slurm/v0.0.43/jobs":
			fmt.Fprintf(w, `{"jobs":[%s],"errors":%s}`, job, errs)
		case "/slurm/v0.0.43/nodes":
			fmt.Fprint(w, `{"nodes":[{"name":"n1","state":["ALLOCATED"]}],"errors":[]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	rec := collectortest.NewRecorder()
	p := newPoller(t, srv.URL, collectors.Settings{Cursors: collectortest.NewCursors()}, token)
	if err := p.poll(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	before := len(rec.Events())
	fails.Store(true)
	if err := p.poll(t.Context(), rec); !errors.Is(err, collectors.ErrProtocol) || len(rec.Events()) != before {
		t.Errorf("%v %q", err, events(rec)[before:])
	}
	fails.Store(false)
	gone.Store(true)
	if err := p.poll(t.Context(), rec); err != nil || len(rec.Events()) != before+1 {
		t.Errorf("%v %q", err, events(rec)[before:])
	}
}
