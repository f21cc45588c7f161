package slurm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/slurm/slurmtest"
	"auspex/schemas"
)

// What slurmctld has forgotten is told as a real slurmdbd has it, through each version of REST: how a job ended that
// was seen to run, one that came and went, tasks of an array, a job that was requeued, and the step that failed.
func TestARealSlurmdbdTellsTheEndsThatNobodySaw(t *testing.T) {
	for _, c := range slurmtest.Accounted(t) {
		t.Run(c.Release, func(t *testing.T) { testAccounted(t, c) })
	}
}

func testAccounted(t *testing.T, c slurmtest.Cluster) {
	site := schemas.Resource{ID: "dc1", Kind: "site"}
	type reader struct {
		p       *poller
		rec     *collectortest.Recorder
		cursors *collectortest.Cursors
	}
	open := func(version string, cursors *collectortest.Cursors) *reader {
		cfg := Default()
		cfg.URL, cfg.TokenFile, cfg.Timeout, cfg.Version = c.REST, c.TokenOf(t, "root"), time.Minute, version
		made, err := cfg.New(site, collectors.Settings{Cursors: cursors})
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{made.(*collector).p, collectortest.NewRecorder(), cursors}
		t.Cleanup(r.p.client.Close)
		return r
	}
	until := func(what string, ready func() bool) {
		t.Helper()
		for deadline := time.Now().Add(4 * time.Minute); !ready(); time.Sleep(time.Second) { // of a cluster that purges once a minute
			if time.Now().After(deadline) {
				t.Fatalf("never %s", what)
			}
		}
	}
	told := func(r *reader, what string) *schemas.Event {
		evs := r.rec.Events()
		if i := slices.IndexFunc(evs, func(ev schemas.Event) bool { return strings.TrimSpace(ev.Resource+" "+ev.Type+" "+ev.Code) == what }); i >= 0 {
			return &evs[i]
		}
		return nil
	}
	batch := func(args ...string) string {
		return c.Run(t, append([]string{"sbatch", "--parsable", "-D", "/tmp", "-o", "/dev/null"}, args...)...)
	}
	seen := batch("-w", "gpu1", "--wrap=sleep 6; srun true; srun sh -c 'exit 7'")
	again := batch("-w", "gpu2", "--requeue", "--wrap=sleep 20")
	var all []*reader
	for _, v := range c.Versions {
		r := open(v, collectortest.NewCursors())
		until("running", func() bool {
			if err := r.p.poll(t.Context(), r.rec); err != nil {
				t.Fatal(err)
			}
			return told(r, "job-"+seen+" workload.state RUNNING") != nil && told(r, "job-"+again+" workload.state RUNNING") != nil
		})
		all = append(all, r)
	}
	since := time.Now()
	c.Run(t, "scontrol", "requeue", again)
	c.Run(t, "scontrol", "hold", again)
	c.Run(t, "scancel", again)
	array := batch("-w", "gpu3", "--array=0-2", "--wrap=exit $SLURM_ARRAY_TASK_ID")
	killed := batch("-w", "gpu4", "--wrap=kill -9 $$")
	until("purged", func() bool {
		jobs := c.Run(t, "squeue", "-h", "-t", "all", "-o", "%A")
		for _, id := range []string{seen, again, array, killed} {
			if slices.Contains(strings.Fields(jobs), id) {
				return false
			}
		}
		return time.Since(since) > gap+5*time.Second
	})
	for i, r := range all {
		r = open(c.Versions[i], r.cursors)
		if err := r.p.poll(t.Context(), r.rec); err != nil {
			t.Fatal(err)
		}
		code, signal := "7", "137"
		if c.Versions[i] == "v0.0.38" { // which tells signals, and no exit codes
			code = ""
		}
		if ev := told(r, strings.TrimSpace("job-"+seen+" workload.failed "+code)); ev == nil || ev.Attr("step_name") != "sh" || ev.Attr("nodes") != "gpu1" || !strings.Contains(ev.Message, "by accounting") && ev.Attr("end") == "" {
			t.Errorf("%s: job %s: %+v of %q", c.Versions[i], seen, ev, events(r.rec))
		}
		if ev := told(r, "job-"+killed+" workload.failed "+signal); ev == nil {
			t.Errorf("%s: job %s, which was killed: %q", c.Versions[i], killed, events(r.rec))
		}
		tasks := map[string]string{}
		for _, ev := range r.rec.Events() {
			if ev.Type == schemas.EventWorkloadState && ev.Attr("array_job") == "job-"+array {
				tasks[ev.Attr("array_task")] = ev.Code
			}
		}
		if fmt.Sprint(tasks) != "map[0:COMPLETED 1:FAILED 2:FAILED]" {
			t.Errorf("%s: tasks of job %s: %v", c.Versions[i], array, tasks)
		}
		ends := 0
		for _, ev := range r.rec.Events() {
			if ev.Resource == "job-"+again {
				ends++
			}
		}
		if ends != 1 { // its run; it was cancelled while it waited to be started again
			t.Errorf("%s: job %s, which was requeued, ended %d times: %q", c.Versions[i], again, ends, events(r.rec))
		}
		before := len(r.rec.Events())
		if err := r.p.poll(context.WithoutCancel(t.Context()), r.rec); err != nil || len(r.rec.Events()) != before {
			t.Errorf("%s: told again: %q, error %v", c.Versions[i], events(r.rec)[before:], err)
		}
	}
}
