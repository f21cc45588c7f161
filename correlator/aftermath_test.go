package correlator

import (
	"slices"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
)

// TestJobsThatNoticeLate: a server crashes and is back, its incident closes, and only then the other ranks of its job give up.
// That is nothing new; what says more, or comes of another job, is.
func TestJobsThatNoticeLate(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range []shape{small, demo, hall, four, lean, oneFeed} {
		w := sh.Build()
		for _, c := range []struct {
			name string
			job  string
			late float64
			more bool
			told bool
		}{
			{"its job", "job-1", 1900, false, false},
			{"its job, later than jobs wait", "job-1", 2700, false, true},
			{"its job, of which the program fails", "job-1", 1900, true, true},
			{"another job", "job-2", 1900, false, true},
		} {
			t.Run(w.Name+"/"+c.name, func(t *testing.T) {
				topology := *w.Topology
				it := &scenery{&site{}, &scene{}}
				*it.site = *w
				it.Topology = &topology
				topology.Workloads = slices.Clone(topology.Workloads)
				it.job("job-1", 1, 2)
				it.job("job-2", 0, 3)
				it.at(0, "kmsg", w.Host(0, 1), "host.panic", critical)
				it.at(15, "collector", w.Host(0, 1), "agent.unreachable", failed, up)
				it.at(22, "collector", w.Host(0, 1), "host.unreachable", failed, up)
				it.at(300, "collector", w.Host(0, 1), "agent.unreachable", schemas.SeverityInfo, down)
				it.at(302, "collector", w.Host(0, 1), "host.unreachable", schemas.SeverityInfo, down)
				on := 2
				if c.job == "job-2" {
					on = 3
				}
				if c.more {
					it.at(c.late-2, "kmsg", w.ID("s0.%d/gpu1", on), "gpu.xid/13", warned, "workload="+c.job)
				}
				it.at(c.late, "agent", w.Host(0, on), "workload.comm_timeout", failed, "workload="+c.job)
				it.at(c.late+20, "scheduler", c.job, "workload.failed/134", failed)
				got := final(&topology, it.sorted(), 10*time.Minute)
				want := []string{w.ID("s0.1") + " host.crash"}
				if c.told {
					want = append(want, c.job+" workload.error")
				}
				if !sameSet(causes(got), want) {
					t.Errorf("got\n%swant %q", verdict(got), want)
				}
			})
		}
	}
}
