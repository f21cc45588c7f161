package correlator

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Work is counted, not timed: a bound on time speaks of the machine, too.
const (
	mostAllocations = 30   // an event
	mostOfNoise     = 26   // allocations of an event that means nothing
	mostSteps       = 80   // of the solver, an event
	mostBytes       = 2000 // that are held for an active alert
	sizesApart      = 1.3  // what an event costs on a fleet of another size
)

// alerts are conditions that are raised within a minute on all servers of some racks, and stay.
func alerts(n, racks int) []schemas.Event {
	s := &scene{}
	for i := range n {
		server := fmt.Sprintf("gpu-r%02d-%02d", 1+i/8%racks, 1+i%8)
		part, k := i/(8*racks), float64(i)*60/float64(n)
		if part < 6 {
			s.at(k, "redfish", fmt.Sprintf("%s/psu%d", server, part), schemas.EventPSUInputLost, schemas.SeverityError, schemas.StateRaised)
		} else {
			s.at(k, "dcgm", fmt.Sprintf("%s/gpu%d", server, part-6), schemas.EventGPUThermal, schemas.SeverityWarning, schemas.StateRaised)
		}
	}
	return s.events
}

// spent is what a run took for each event.
type spent struct{ allocations, steps, bytes float64 }

func spend(t *testing.T, topology *schemas.Topology, events []schemas.Event) spent {
	t.Helper()
	e := NewEngine(propagation.Default(), topology, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range events {
		e.Add(&events[i])
		e.Drain()
	}
	e.Flush()
	e.Drain()
	runtime.GC()
	runtime.ReadMemStats(&after)
	n := float64(len(events))
	out := spent{float64(after.Mallocs-before.Mallocs) / n, float64(e.Stats().Steps) / n, (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / n}
	t.Logf("%d resources, %d events: %.1f allocations, %.1f steps, %.0f bytes an event", len(topology.Resources), len(events), out.allocations, out.steps, out.bytes)
	if e.Stats().Open == 0 {
		t.Error("nothing was decided")
	}
	runtime.KeepAlive(events)
	runtime.KeepAlive(e)
	return out
}

// A hundred thousand alerts within a minute: what each costs and holds is bounded.
func TestAnActiveAlertIsBoundedInWorkAndMemory(t *testing.T) {
	n, racks := 100_000, 1250
	if testing.Short() {
		n, racks = n/10, racks/10
	}
	got := spend(t, fleet(racks), alerts(n, racks))
	if got.allocations > mostAllocations || got.steps > mostSteps || got.bytes > mostBytes {
		t.Errorf("%+v an alert, want at most %d allocations, %d steps and %d bytes", got, mostAllocations, mostSteps, mostBytes)
	}
}

// The same alerts cost the same on a fleet of any size.
func TestAnEventCostsTheSameOnAnyFleet(t *testing.T) {
	racetest.OneGoroutine(t)
	events := alerts(4000, 64)
	small, large := spend(t, fleet(64), events), spend(t, fleet(1250), events)
	if large.steps > sizesApart*small.steps || large.allocations > sizesApart*small.allocations {
		t.Errorf("on 512 servers %+v, on 10,000 %+v: more than %v times as much", small, large, sizesApart)
	}
}

// blips are ports that go down for seconds and agents that miss some rounds, all over the fleet.
func blips(n, racks int) []schemas.Event {
	s := &scene{}
	for i := range n {
		rack, k := 1+i*7%racks, 20*float64(i)
		part, what, source := fmt.Sprintf("leaf-r%02d/Ethernet%d", rack, 1+i%16), schemas.EventPortDown, "gnmi"
		if i%3 == 0 {
			part, what, source = fmt.Sprintf("gpu-r%02d-%02d", rack, 1+i%8), schemas.EventAgentUnreachable, "agent"
		}
		s.at(k, source, part, what, schemas.SeverityError, schemas.StateRaised)
		s.at(k+4, source, part, what, schemas.SeverityInfo, schemas.StateCleared)
	}
	return s.events
}

// What means nothing is most of what comes.
func TestNoiseIsCheap(t *testing.T) {
	e := NewEngine(propagation.Default(), fleet(64), nil)
	events := blips(4000, 64)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range events {
		e.Add(&events[i])
		e.Drain()
	}
	runtime.ReadMemStats(&after)
	got := float64(after.Mallocs-before.Mallocs) / float64(len(events))
	t.Logf("%.1f allocations an event; %+v", got, e.Stats())
	if got > mostOfNoise {
		t.Errorf("%.1f allocations an event, want at most %d", got, mostOfNoise)
	}
}

// unreachable takes all servers of some racks out of reach, one after the other within a minute.
func unreachable(racks int) []schemas.Event {
	s := &scene{}
	for i := range 8 * racks {
		rack, n, k := 1+i/8, 1+i%8, 60*float64(i)/float64(8*racks)
		server := fmt.Sprintf("gpu-r%02d-%02d", rack, n)
		s.at(k, "agent", server, schemas.EventHostUnreachable, schemas.SeverityCritical, schemas.StateRaised)
		s.at(k+1, "agent", server, schemas.EventAgentUnreachable, schemas.SeverityError, schemas.StateRaised)
		s.at(k+2, "ipmi", server+"/bmc", schemas.EventBMCUnreachable, schemas.SeverityError, schemas.StateRaised)
		for port := range 2 {
			s.at(k+3, "gnmi", fmt.Sprintf("leaf-r%02d/Ethernet%d", rack, 2*n-1+port), schemas.EventPortDown, schemas.SeverityError, schemas.StateRaised)
		}
	}
	slices.SortStableFunc(s.events, func(a, b schemas.Event) int { return a.Observed.Compare(b.Observed) })
	return s.events
}

// Where everything hangs together, each is asked once whether it ties others to itself, not once
// for each other that could stand behind it.
func TestEachIsAskedOnceInAGroup(t *testing.T) {
	const racks, most = 16, 86
	e := NewEngine(propagation.Default(), fleet(racks), nil)
	events := unreachable(racks)
	for i := range events {
		e.Add(&events[i])
	}
	e.Flush()
	got := float64(e.Stats().Asked) / float64(len(events))
	t.Logf("%.1f were asked an event, in %d rounds", got, e.Stats().Solved)
	if got > most {
		t.Errorf("%.1f were asked an event, want at most %d", got, most)
	}
}

// What is said again of a large group, and changes nothing, is not weighed.
func TestAReportThatSaysTheSameIsNotWeighed(t *testing.T) {
	e := NewEngine(propagation.Default(), fleet(1), nil)
	s := &scene{}
	for i := range 24 {
		s.at(float64(i)/100, "redfish", fmt.Sprintf("gpu-r01-%02d/psu%d", 1+i/3, i%3), schemas.EventPSUInputLost, schemas.SeverityError, schemas.StateRaised)
	}
	for i := range 400 { // after some hours all is due that the loss makes visible
		s.at(60*float64(i+1), "redfish", "gpu-r01-01/psu0", schemas.EventPSUInputLost, schemas.SeverityError, schemas.StateRaised)
	}
	var steps uint64
	for i := range s.events {
		e.Add(&s.events[i])
		if i == len(s.events)-100 {
			steps = e.Stats().Steps
		}
	}
	if more := e.Stats().Steps - steps; more != 0 {
		t.Errorf("%d steps for 99 reports of what is known", more)
	}
	e.Flush()
	if out := e.Drain(); len(out) == 0 || out[len(out)-1].EventCount != len(s.events) {
		t.Errorf("the %d events are not counted", len(s.events))
	}
}

// What stays alone costs no more in a fleet in which much else stays alone: the parts and workloads that its
// suspects could be seen on are not gone over.
func TestWhatStaysAloneIsNotLookedForElsewhere(t *testing.T) {
	const racks, events, most = 32, 4000, 12
	topology := fleet(racks)
	for r := range racks {
		for h := range 8 {
			topology.Workloads = append(topology.Workloads, schemas.Workload{
				ID: fmt.Sprintf("job-%d-%d", r, h), Start: t0.Add(-time.Hour), Resources: []string{fmt.Sprintf("gpu-r%02d-%02d", 1+r, 1+h)},
			})
		}
	}
	s := &scene{}
	for i := range events / 2 { // links that lose their light for seconds, each in another place than the last
		port := fmt.Sprintf("leaf-r%02d/Ethernet%d", 1+i*7%racks, 1+i*5%16)
		s.at(60*float64(i), "gnmi", port, schemas.EventPortDown, schemas.SeverityError, schemas.StateRaised)
		s.at(60*float64(i)+4, "gnmi", port, schemas.EventPortDown, schemas.SeverityInfo, schemas.StateCleared)
	}
	e := NewEngine(propagation.Default(), topology, nil)
	for i := range s.events {
		e.Add(&s.events[i])
	}
	got := float64(e.Stats().Met) / events
	t.Logf("%.1f were gone over and %.1f asked an event, %d suspects are held", got, float64(e.Stats().Asked)/events, e.Stats().Suspects)
	if e.Stats().Opened != 0 || e.Stats().Suspects == 0 {
		t.Errorf("%d incidents and %d suspects of what stays alone", e.Stats().Opened, e.Stats().Suspects)
	}
	if got > most {
		t.Errorf("%.1f were gone over an event, want at most %d", got, most)
	}
}
