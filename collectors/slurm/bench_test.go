package slurm

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"auspex/collectors/collectortest"
	"auspex/schemas"
)

// large is a slurmrestd of 24.11 with 50,000 jobs, of which 5,000 run, and 10,000 nodes: each as a real one was recorded.
type large struct {
	job, node [3]string // before the id, between it and the state, after it
	running   int
	busy      bool // the answers say that something has changed
	states    bool
}

const (
	largeJobs  = 50_000
	largeNodes = 10_000
)

func newLarge(tb testing.TB) *large {
	tb.Helper()
	read := func(file, id, state string) (parts [3]string) {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			tb.Fatal(err)
		}
		var ok, ok2 bool
		var rest string
		parts[0], rest, ok = strings.Cut(strings.TrimSpace(string(b)), id)
		if parts[1], parts[2], ok2 = strings.Cut(rest, state); !ok || !ok2 {
			tb.Fatalf("%s is not as it was recorded", file)
		}
		return parts
	}
	l := &large{job: read("job-24.11.json", `"job_id": 4,`, `"RUNNING"`), running: 5000, states: true}
	l.node = read("node-24.11.json", `"name": "gpu1",`, `"MIXED"`)
	return l
}

func (l *large) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := bufio.NewWriterSize(w, 1<<16)
	defer func() { _ = out.Flush() }()
	list := func(key string, n int, each func(i int)) {
		fmt.Fprintf(out, "{\n  %q: [\n", key)
		for i := range n {
			if i > 0 {
				_, _ = out.WriteString(",\n")
			}
			each(i)
		}
		fmt.Fprint(out, "\n  ],\n  \"last_update\": {\"set\": true, \"infinite\": false, \"number\": 1767268200},\n  \"errors\": []\n}")
	}
	since := r.URL.Query().Get("update_time") != ""
	path := strings.TrimPrefix(r.URL.Path, "/slurm/v0.0.42/")
	state := func(i int) string {
		if i < l.running {
			return "RUNNING"
		}
		return "PENDING"
	}
	switch {
	case path == "/openapi/v3":
		fmt.Fprint(out, `{"paths":{"/slurm/v0.0.42/jobs/":{}}}`)
	case since && !l.busy && path == "nodes":
		w.WriteHeader(http.StatusNotModified)
	case since && !l.busy:
		fmt.Fprint(out, `{"jobs":[],"last_update":{"set":true,"infinite":false,"number":0},"errors":[]}`)
	case path == "jobs":
		list("jobs", largeJobs, func(i int) {
			fmt.Fprintf(out, "%s\"job_id\": %d,%s%q%s", l.job[0], i+1, l.job[1], state(i), l.job[2])
		})
	case path == "jobs/state" && l.states:
		list("jobs", largeJobs, func(i int) {
			fmt.Fprintf(out, "    {\n      \"job_id\": \"%d_0\",\n      \"state\": [\n        %q\n      ]\n    }", i+1, state(i))
		})
	case strings.HasPrefix(path, "job/"):
		id := strings.TrimPrefix(path, "job/")
		list("jobs", 1, func(int) { fmt.Fprintf(out, "%s\"job_id\": %s,%s%q%s", l.job[0], id, l.job[1], "RUNNING", l.job[2]) })
	case path == "nodes":
		list("nodes", largeNodes, func(i int) {
			fmt.Fprintf(out, "%s\"name\": \"gpu%d\",%s%q%s", l.node[0], i, l.node[1], "MIXED", l.node[2])
		})
	default:
		http.NotFound(w, r)
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTick is the CPU of one reading of 50,000 jobs (9.6 KB each, as 24.11 writes them) and 10,000 nodes, with what it costs
// to make and send the answers on the same machine: all of it, against what is read where ten jobs have started and nodes
// have changed, and where nothing has, by states and by the time of the last change.
func BenchmarkTick(b *testing.B) {
	if testing.Short() {
		b.Skip("it reads half a gigabyte each time")
	}
	var full time.Duration
	for _, c := range []struct {
		name    string
		full    bool
		busy    bool
		states  bool
		started int
	}{{"full", true, true, true, 0}, {"ten_jobs_started", false, true, true, 10}, {"unchanged", false, false, true, 0}, {"unchanged_without_states", false, false, false, 0}} {
		b.Run(c.name, func(b *testing.B) {
			l := newLarge(b)
			srv := httptest.NewServer(l)
			defer srv.Close()
			cfg := Default()
			cfg.URL, cfg.Timeout, cfg.Version = srv.URL, 10*time.Minute, "v0.0.42"
			now := collectortest.Now
			s := collectortest.Settings()
			s.Now = func() time.Time { return now }
			made, err := cfg.New(siteOf(), s)
			if err != nil {
				b.Fatal(err)
			}
			p := made.(*collector).p
			defer p.client.Close()
			rec := collectortest.NewRecorder()
			if err := p.poll(b.Context(), rec); err != nil {
				b.Fatal(err)
			}
			l.busy = c.busy
			if l.states = c.states; !c.states {
				p.stateless = now.Add(time.Hour)
			}
			var used time.Duration
			for b.Loop() {
				if c.full {
					p.jobList.full, p.nodeList.full = time.Time{}, time.Time{}
				}
				l.running += c.started
				before := cpu()
				if err := p.poll(b.Context(), rec); err != nil {
					b.Fatal(err)
				}
				used += cpu() - before
			}
			each := used / time.Duration(b.N)
			if c.full {
				full = each
			}
			b.ReportMetric(float64(each.Microseconds())/1000, "cpu-ms/tick")
			if full > 0 {
				b.ReportMetric(float64(each)/float64(full), "ratio")
			}
		})
	}
}

func siteOf() schemas.Resource { return schemas.Resource{ID: "dc1", Kind: schemas.KindSite} }
