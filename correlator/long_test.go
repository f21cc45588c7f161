package correlator

import (
	"slices"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// flapping is a port that goes down and up again for hours.
func flapping(n int) []schemas.Event {
	s := &scene{}
	for i := range n {
		if i%2 == 0 {
			s.at(float64(3*i), "gnmi", "leaf-r01/Ethernet1", "port.down", schemas.SeverityError, schemas.StateRaised)
		} else {
			s.at(float64(3*i), "gnmi", "leaf-r01/Ethernet1", "port.down", schemas.SeverityInfo, schemas.StateCleared)
		}
	}
	return s.events
}

// Each state lists all events, so that what is written stays in proportion to
// what was read only if growth alone is told ever more rarely.
func TestAnIncidentThatNeverEndsIsWrittenInProportion(t *testing.T) {
	const n = 10_000
	e := NewEngine(propagation.Default(), fleet(1), nil)
	listed, states := 0, 0
	var now schemas.Incident
	take := func() {
		for _, now = range e.Drain() {
			listed += len(now.Events)
			states++
		}
	}
	events := flapping(n)
	for i := range events {
		e.Add(&events[i])
		take()
		if i == 60 && len(now.Events) != i+1 {
			t.Errorf("while it is small %d of %d events are told", len(now.Events), i+1)
		}
		if late := i - len(now.Events); late > 5+i/8 {
			t.Fatalf("after %d events %d are not told", i, late)
		}
	}
	if listed > 40*n {
		t.Errorf("%d states list %d events, of %d", states, listed, n)
	}
	// What else is heard of the port, hours later, goes with it.
	s := &scene{n: n}
	s.at(3*n, "gnmi", "leaf-r01/Ethernet1", "port.flap", schemas.SeverityCritical)
	s.at(3*n+1, "gnmi", "leaf-r01/Ethernet1", "port.flap", schemas.SeverityCritical)
	for i := range s.events {
		e.Add(&s.events[i])
	}
	e.Advance(e.Now().Add(time.Second))
	take()
	if now.Severity != schemas.SeverityCritical {
		t.Error("that it got worse is not told at once")
	}
	e.Flush()
	take()
	slices.Sort(now.Events)
	if got := len(slices.Compact(now.Events)); got != n+2 || now.EventCount != n+2 {
		t.Errorf("the last state lists %d events and counts %d, of %d", got, now.EventCount, n+2)
	}
}

func TestARunningSystemKeepsASampleAndCountsAll(t *testing.T) {
	const n, keep = 5_000, 64
	topology, events := fleet(1), flapping(n)
	run := func(e *Engine, events []schemas.Event) (now schemas.Incident, kept []schemas.Event) {
		for i := range events {
			e.Add(&events[i])
		}
		e.Flush()
		for _, now = range e.Drain() {
			if len(now.Events) > 4*keep {
				t.Fatalf("%d of %d events are listed", len(now.Events), now.EventCount)
			}
		}
		live := e.Live()
		for _, ev := range events {
			if live[ev.ID] {
				kept = append(kept, ev)
			}
		}
		return now, kept
	}
	check := func(now schemas.Incident, want int) {
		t.Helper()
		if now.EventCount != want || now.Count() != want {
			t.Errorf("%d events are counted, want %d", now.EventCount, want)
		}
		for _, id := range []string{events[0].ID, events[1].ID, events[want-2].ID, events[want-1].ID} {
			if !slices.Contains(now.Events, id) {
				t.Errorf("the sample has not %s", id)
			}
		}
	}
	e := NewEngine(propagation.Default(), topology, nil)
	e.SetEvidence(keep)
	now, kept := run(e, events[:n-2])
	check(now, n-2)
	if len(kept) > 4*keep {
		t.Errorf("a restart would read %d events", len(kept))
	}
	down := 0
	for _, l := range now.Lanes {
		down += l.Count
	}
	if down != (n-2)/2 {
		t.Errorf("the lanes count %d times down, want %d", down, (n-2)/2)
	}
	r := NewEngine(propagation.Default(), topology, nil)
	r.SetEvidence(keep)
	r.Restore(kept, []schemas.Incident{now})
	if again := r.Drain(); len(again) > 0 {
		t.Errorf("after a restart %d states are told again", len(again))
	}
	now, _ = run(r, events[n-2:])
	check(now, n)
}
