package correlator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// scene writes down events, seconds after t0.
type scene struct {
	n      int
	events []schemas.Event
	truth  map[string]string // cause of an event by its id
}

func (s *scene) at(sec float64, source, resource, what string, sev schemas.Severity, opts ...string) {
	s.n++
	typ, code, _ := strings.Cut(what, "/")
	when := t0.Add(time.Duration(sec * float64(time.Second)))
	ev := schemas.Event{
		ID: fmt.Sprintf("e%d", s.n), Time: when, Observed: when, Source: source, Resource: resource,
		Type: typ, Code: code, Severity: sev,
	}
	for _, o := range opts {
		if k, v, ok := strings.Cut(o, "="); ok {
			ev.SetAttr(k, v)
		} else {
			ev.State = o
		}
	}
	s.events = append(s.events, ev)
}

// final replays a scene and returns the last state of every incident that is left.
func final(topology *schemas.Topology, s *scene, wait time.Duration) []schemas.Incident {
	e := NewEngine(propagation.Default(), topology, nil)
	for i := range s.events {
		e.Add(&s.events[i])
	}
	e.Advance(e.Now().Add(wait))
	e.Flush()
	return last(e.Drain())
}

func last(all []schemas.Incident) []schemas.Incident {
	var out []schemas.Incident
	at := map[string]int{}
	for _, inc := range all {
		if i, ok := at[inc.ID]; ok {
			out[i] = inc
			continue
		}
		at[inc.ID] = len(out)
		out = append(out, inc)
	}
	left := out[:0]
	for _, inc := range out {
		if len(inc.Events) > 0 {
			left = append(left, inc)
		}
	}
	return left
}

func feedLoss(s *scene, sec float64, rack int) {
	for h := 1; h <= 8; h++ {
		for p := range 3 {
			s.at(
				sec+0.1*float64(h), "redfish", fmt.Sprintf("gpu-r%02d-%02d/psu%d", rack, h, p), "psu.input_lost", schemas.SeverityError,
				schemas.StateRaised,
			)
		}
	}
	s.at(sec+1, "gnmi", fmt.Sprintf("leaf-r%02d", rack), "switch.psu/PowerSupply1", schemas.SeverityWarning, schemas.StateRaised)
}

func TestCauses(t *testing.T) {
	jobbed := fleet(4)
	var gpus []string
	for h := 1; h <= 8; h++ {
		for g := range 8 {
			gpus = append(gpus, fmt.Sprintf("gpu-r02-%02d/gpu%d", h, g))
		}
	}
	jobbed.Workloads = []schemas.Workload{{ID: "job-140", Resources: gpus, Start: t0.Add(-time.Hour)}}
	cases := []struct {
		name   string
		play   func(s *scene)
		want   []string // resource fault
		events int      // of the first incident, 0 is any
	}{
		{"a feed's supplies blame the feed", func(s *scene) { feedLoss(s, 0, 1) }, []string{"pdu-r01-a power.feed_loss"}, 25},
		{"one supply blames itself", func(s *scene) {
			s.at(0, "ipmi", "gpu-r01-01/psu2", "psu.failure/PS3", schemas.SeverityError, schemas.StateRaised)
		}, []string{"gpu-r01-01/psu2 power.psu_failure"}, 1},
		{"a feed that comes back and drops again is one incident, with the supply of the switch", func(s *scene) {
			for _, from := range []float64{0, 100} {
				feedLoss(s, from, 1)
				s.at(from+1, "gnmi", "leaf-r01/psu1", "switch.psu/PSU1", schemas.SeverityWarning, schemas.StateRaised)
				for h := 1; h <= 8; h++ {
					host := fmt.Sprintf("gpu-r01-%02d", h)
					s.at(from+2, "ipmi", host, "bmc.sel/09/01", schemas.SeverityWarning, schemas.StateRaised)
					if from > 0 {
						continue
					}
					for p := range 3 {
						s.at(80, "redfish", fmt.Sprintf("%s/psu%d", host, p), "psu.input_lost", schemas.SeverityInfo, schemas.StateCleared)
					}
				}
				if from == 0 {
					s.at(80, "gnmi", "leaf-r01/psu1", "switch.psu/PSU1", schemas.SeverityInfo, schemas.StateCleared)
				}
			}
		}, []string{"pdu-r01-a power.feed_loss"}, 0},
		{
			"two racks' feeds are two incidents", func(s *scene) { feedLoss(s, 0, 1); feedLoss(s, 0.05, 3) },
			[]string{"pdu-r01-a power.feed_loss", "pdu-r03-a power.feed_loss"},
			25,
		},
		{"servers without power are not crashed servers", func(s *scene) {
			feedLoss(s, 0, 1)
			for h := 1; h <= 3; h++ {
				host := fmt.Sprintf("gpu-r01-%02d", h)
				s.at(15, "collector", host, "agent.unreachable", schemas.SeverityError, schemas.StateRaised)
				s.at(25, "collector", host, "host.unreachable", schemas.SeverityCritical, schemas.StateRaised)
				s.at(1, "gnmi", fmt.Sprintf("leaf-r01/Ethernet%d", h*2-1), "port.down", schemas.SeverityError, schemas.StateRaised)
				s.at(1, "gnmi", fmt.Sprintf("leaf-r01/Ethernet%d", h*2), "port.down", schemas.SeverityError, schemas.StateRaised)
			}
		}, []string{"pdu-r01-a power.feed_loss"}, 37},
		{"a GPU off the bus takes its job's timeouts", func(s *scene) {
			s.at(0, "kmsg", "gpu-r02-01/gpu3", "gpu.xid/79", schemas.SeverityCritical)
			s.at(1, "kmsg", "gpu-r02-01/gpu3", "gpu.xid/154", schemas.SeverityError)
			for h := 2; h <= 8; h++ {
				s.at(12, "agent", fmt.Sprintf("gpu-r02-%02d", h), "workload.comm_timeout", schemas.SeverityError, "workload=job-140")
			}
			s.at(20, "scheduler", "job-140", "workload.failed/134", schemas.SeverityError)
		}, []string{"gpu-r02-01/gpu3 gpu.fallen_off_bus"}, 10},
		{"program errors on every node blame the job", func(s *scene) {
			for i, g := range gpus {
				s.at(float64(i)/50, "kmsg", g, "gpu.xid/31", schemas.SeverityWarning)
				s.at(3+float64(i)/50, "kmsg", g, "gpu.xid/45", schemas.SeverityWarning)
			}
		}, []string{"job-140 workload.error"}, 128},
		{"job-wide symptoms without hardware blame the job after a while", func(s *scene) {
			for i, g := range gpus {
				s.at(float64(i)/50, "kmsg", g, "gpu.xid/45", schemas.SeverityWarning)
			}
		}, []string{"job-140 workload.error"}, 64},
		{"two faults at once stay apart", func(s *scene) {
			feedLoss(s, 0, 2)
			s.at(0.3, "kmsg", "gpu-r02-04/gpu1", "gpu.xid/79", schemas.SeverityCritical)
		}, []string{"gpu-r02-04/gpu1 gpu.fallen_off_bus", "pdu-r02-a power.feed_loss"}, 0},
		{"a switch blames itself, not its links", func(s *scene) {
			for h := 1; h <= 8; h++ {
				for k := range 2 {
					s.at(0.2*float64(h), "gnmi", fmt.Sprintf("gpu-r03-%02d/nic%d", h, k), "port.down", schemas.SeverityError, schemas.StateRaised)
				}
			}
			s.at(1, "gnmi", "spine-01/Ethernet3", "port.down", schemas.SeverityError, schemas.StateRaised)
			s.at(30, "collector", "leaf-r03", "switch.unreachable", schemas.SeverityCritical, schemas.StateRaised)
		}, []string{"leaf-r03 network.switch_failure"}, 18},
		{"a single flap is noise", func(s *scene) {
			s.at(0, "gnmi", "leaf-r01/Ethernet1", "port.down", schemas.SeverityError, schemas.StateRaised)
			s.at(0.2, "gnmi", "gpu-r01-01/nic0", "port.down", schemas.SeverityError, schemas.StateRaised)
			s.at(3, "gnmi", "leaf-r01/Ethernet1", "port.down", schemas.SeverityInfo, schemas.StateCleared)
			s.at(3.2, "gnmi", "gpu-r01-01/nic0", "port.down", schemas.SeverityInfo, schemas.StateCleared)
		}, nil, 0},
		{"a link that stays down is one incident of both ends", func(s *scene) {
			s.at(0, "gnmi", "leaf-r01/Ethernet1", "port.down", schemas.SeverityError, schemas.StateRaised)
			s.at(0.2, "gnmi", "gpu-r01-01/nic0", "port.down", schemas.SeverityError, schemas.StateRaised)
		}, []string{"leaf-r01/Ethernet1 network.link_failure"}, 2},
		{"a planned reboot is no crash", func(s *scene) {
			s.at(0, "kmsg", "gpu-r01-01", "host.reboot/planned", schemas.SeverityInfo)
			s.at(8, "gnmi", "leaf-r01/Ethernet1", "port.down", schemas.SeverityError, schemas.StateRaised)
			s.at(8, "gnmi", "leaf-r01/Ethernet2", "port.down", schemas.SeverityError, schemas.StateRaised)
			s.at(20, "collector", "gpu-r01-01", "agent.unreachable", schemas.SeverityError, schemas.StateRaised)
			s.at(30, "collector", "gpu-r01-01", "host.unreachable", schemas.SeverityCritical, schemas.StateRaised)
			s.at(300, "kmsg", "gpu-r01-01", "host.reboot/clean", schemas.SeverityInfo)
		}, nil, 0},
		{"a critical event that nothing explains goes with a fault of its server", func(s *scene) {
			s.at(0, "kmsg", "gpu-r01-01/gpu2", "gpu.xid/79", schemas.SeverityCritical)
			s.at(3, "redfish", "gpu-r01-01/gpu2", "bmc.event/Platform.1.0.PCIeFatalError", schemas.SeverityCritical)
			s.at(4, "redfish", "gpu-r01-01", "bmc.event/ACME0001", schemas.SeverityCritical)
		}, []string{"gpu-r01-01/gpu2 gpu.fallen_off_bus"}, 3},
		{"a critical event that nothing explains is unknown", func(s *scene) {
			s.at(0, "redfish", "gpu-r01-01", "bmc.event/ACME0001", schemas.SeverityCritical)
		}, []string{"gpu-r01-01 unknown"}, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := &scene{}
			c.play(s)
			got := final(jobbed, s, 5*time.Minute)
			var names []string
			for _, inc := range got {
				names = append(names, inc.RootCause.Resource+" "+inc.RootCause.Fault)
			}
			if !sameSet(names, c.want) {
				t.Fatalf("causes\n got %q\nwant %q", names, c.want)
			}
			if c.events > 0 && len(got[0].Events) != c.events {
				t.Errorf("%d events in the incident, want %d", len(got[0].Events), c.events)
			}
		})
	}
}

func TestABootEndsAFaultOfTheGPUAndTheNextOneIsNew(t *testing.T) {
	s := &scene{}
	s.at(0, "kmsg", "gpu-r01-01/gpu2", "gpu.xid/79", schemas.SeverityCritical)
	s.at(120, "kmsg", "gpu-r01-01", "host.reboot/clean", schemas.SeverityInfo)
	s.at(160, "kmsg", "gpu-r01-01/gpu2", "gpu.xid/79", schemas.SeverityCritical)
	s.at(600, "kmsg", "gpu-r02-01", "host.oom/cgroup", schemas.SeverityWarning)
	got := final(fleet(2), s, time.Minute)
	if len(got) != 2 {
		t.Fatalf("%d incidents, want 2", len(got))
	}
	if got[0].Closed == nil || got[1].Closed != nil || got[1].RootCause.Fault != "gpu.fallen_off_bus" {
		t.Errorf("closed %v and %v, the second is %s", got[0].Closed, got[1].Closed, got[1].RootCause.Fault)
	}
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		found := false
		for _, y := range b {
			found = found || x == y
		}
		if !found {
			return false
		}
	}
	return true
}

func BenchmarkStorm(b *testing.B) {
	topology := fleet(64)
	s := &scene{}
	for r := 1; r <= 64; r++ {
		feedLoss(s, float64(r)*0.05, r)
		for h := 1; h <= 8; h++ {
			for k := range 2 {
				s.at(4+float64(r)*0.05, "gnmi", fmt.Sprintf("gpu-r%02d-%02d/nic%d", r, h, k), "port.down", schemas.SeverityError, schemas.StateRaised)
				s.at(
					4+float64(r)*0.05, "gnmi", fmt.Sprintf("leaf-r%02d/Ethernet%d", r, (h-1)*2+1+k), "port.down", schemas.SeverityError,
					schemas.StateRaised,
				)
			}
			for g := range 8 {
				s.at(
					6+float64(r)*0.05, "dcgm", fmt.Sprintf("gpu-r%02d-%02d/gpu%d", r, h, g), "gpu.clocks_throttled/HW_POWER_BRAKE",
					schemas.SeverityWarning, schemas.StateRaised,
				)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		e := NewEngine(propagation.Default(), topology, nil)
		for i := range s.events {
			e.Add(&s.events[i])
			e.Drain()
		}
		e.Flush()
	}
	b.ReportMetric(float64(len(s.events)*b.N)/b.Elapsed().Seconds(), "events/s")
}

func TestIncidentsCloseAfterTheirWaits(t *testing.T) {
	wait := CloseAfter{Cleared: 10 * time.Second, Repaired: 15 * time.Second, Silent: 90 * time.Second}
	lost := func(s *scene) {
		s.at(0, "kmsg", "gpu-r02-01/gpu3", "gpu.xid/79", schemas.SeverityCritical)
		s.at(1, "kmsg", "gpu-r02-01/gpu3", "gpu.xid/154", schemas.SeverityError)
		s.at(2, "ipmi", "gpu-r02-01/gpu3", "bmc.sel/13/0a", schemas.SeverityError, schemas.StateRaised)
		s.at(3, "dcgm", "gpu-r02-01/gpu3", "gpu.missing/STALE", schemas.SeverityError, schemas.StateRaised)
	}
	cases := []struct {
		name   string
		play   func(s *scene)
		open   []int // seconds at which one incident is open
		closed int   // second at which none is; 0 is never
	}{
		{"a condition that has ended", func(s *scene) {
			s.at(0, "ipmi", "gpu-r01-01/psu2", "psu.failure/PS3", schemas.SeverityError, schemas.StateRaised)
			s.at(30, "ipmi", "gpu-r01-01/psu2", "psu.failure/PS3", schemas.SeverityError, schemas.StateCleared)
		}, []int{29, 35}, 50},
		{"a condition that has not", func(s *scene) {
			s.at(0, "ipmi", "gpu-r01-01/psu2", "psu.failure/PS3", schemas.SeverityError, schemas.StateRaised)
		}, []int{30, 600}, 0},
		{"signs without an end", func(s *scene) {
			s.at(0, "kmsg", "gpu-r02-01/gpu3", "gpu.xid/79", schemas.SeverityCritical)
		}, []int{30, 80}, 140},
		{"a boot that brings the GPU back, and a controller that never says so", func(s *scene) {
			lost(s)
			s.at(60, "kmsg", "gpu-r02-01", "host.reboot/unclean", schemas.SeverityError)
			s.at(62, "dcgm", "gpu-r02-01/gpu3", "gpu.missing/STALE", schemas.SeverityError, schemas.StateCleared)
		}, []int{59, 70}, 95},
		{"a boot that does not bring it back", func(s *scene) {
			lost(s)
			s.at(60, "kmsg", "gpu-r02-01", "host.reboot/unclean", schemas.SeverityError)
		}, []int{59, 200}, 0},
		{"a repair within a minute of the job that the fault stopped", func(s *scene) {
			lost(s)
			s.at(4, "scheduler", "job-144", "workload.failed/134", schemas.SeverityError, "workload=job-144")
			s.at(30, "kmsg", "gpu-r02-01", "host.reboot/unclean", schemas.SeverityError)
			s.at(32, "dcgm", "gpu-r02-01/gpu3", "gpu.missing/STALE", schemas.SeverityError, schemas.StateCleared)
		}, []int{29, 40}, 62},
	}
	topology := fleet(4)
	topology.Workloads = []schemas.Workload{{ID: "job-144", Resources: []string{"gpu-r02-01", "gpu-r02-02"}, Start: t0.Add(-time.Hour)}}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var s scene
			tc.play(&s)
			e := NewEngine(propagation.Default(), topology, nil)
			e.SetCloseAfter(wait)
			at := func(sec, want int) {
				t.Helper()
				now := t0.Add(time.Duration(sec) * time.Second)
				for len(s.events) > 0 && !s.events[0].Observed.After(now) {
					e.Add(&s.events[0])
					s.events = s.events[1:]
				}
				for e.Now().Before(now) { // as a clock that ticks
					e.Advance(e.Now().Add(time.Second))
				}
				if n := e.Stats().Open; n != want {
					t.Errorf("after %d s %d incidents are open, want %d", sec, n, want)
				}
			}
			for _, sec := range tc.open {
				at(sec, 1)
			}
			if tc.closed > 0 {
				at(tc.closed, 0)
				at(tc.closed+60, 0)
			}
			if n := e.Stats().Opened; n != 1 {
				t.Errorf("%d incidents were opened, want 1: what is left of it was blamed on something else", n)
			}
		})
	}
}

func TestABootAfterACrashIsACrash(t *testing.T) {
	var s scene
	s.at(0, "kmsg", "gpu-r02-01/gpu3", "gpu.xid/79", schemas.SeverityCritical)
	s.at(1, "kmsg", "gpu-r02-01/gpu3", "gpu.xid/154", schemas.SeverityError)
	s.at(100, "kmsg", "gpu-r02-01", "host.panic", schemas.SeverityCritical)
	s.at(160, "kmsg", "gpu-r02-01", "host.reboot/unclean", schemas.SeverityError)
	var faults []string
	for _, inc := range final(fleet(4), &s, time.Minute) {
		faults = append(faults, inc.RootCause.Resource+" "+inc.RootCause.Fault)
	}
	if got := strings.Join(faults, ", "); got != "gpu-r02-01/gpu3 gpu.fallen_off_bus, gpu-r02-01 host.crash" {
		t.Error(got)
	}
}

func TestWaitsAreChecked(t *testing.T) {
	c := DefaultConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.CloseAfter.Silent = 0
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "close_after.silent") {
		t.Error(err)
	}
}
