package correlator

import (
	"testing"
	"time"

	"auspex/schemas/faults/propagation"
)

// A burst is told whole within half a second of its end, and its states stay few: together they list a small
// multiple of its events.
func TestABurstIsToldWholeSoon(t *testing.T) {
	for _, w := range []*site{hall.Build(), demo.Build(), four.Build()} {
		t.Run(w.Name, func(t *testing.T) {
			s := &scene{}
			n := 0
			for r := range w.Racks {
				for h := range w.Servers {
					for range 4 {
						s.at(0.001*float64(n), "kmsg", w.ID("s%d.%d/gpu%d", r, h, n%w.GPUs), "gpu.xid/79", critical)
						n++
					}
				}
			}
			e := NewEngine(propagation.Default(), w.Topology, nil)
			held := map[string]bool{}
			listed, states := 0, 0
			note := func() {
				for _, inc := range e.Drain() {
					states++
					listed += len(inc.Events)
					for _, id := range inc.Events {
						held[id] = true
					}
				}
			}
			events := s.sorted().events
			var last time.Time
			tick := func(until time.Time) { // as the running correlator does while nothing comes
				for at := last.Add(DefaultConfig().Tick); !at.After(until); at = at.Add(DefaultConfig().Tick) {
					e.Advance(at)
					note()
				}
			}
			for i := range events {
				e.Add(&events[i])
				note()
				last = events[i].Observed
			}
			tick(last.Add(500 * time.Millisecond))
			if len(held) != n {
				t.Errorf("half a second after the last of %d events %d are told", n, len(held))
			}
			t.Logf("%d events, %d states, %d listed", n, states, listed)
			if listed > (listMost+1)*n {
				t.Errorf("%d states list %d events for %d", states, listed, n)
			}
		})
	}
}
