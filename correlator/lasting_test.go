package correlator

import (
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// A condition that lasts is the less likely to be there by itself the longer it does, not only from Long on: it is told
// when that says it. One that ends as what means nothing does is not told, then or later.
func TestWhatLastsIsToldInTime(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build()} {
		for _, c := range []struct{ source, part, what, fault string }{
			{"dcgm", w.ID("s0.1/gpu0"), "gpu.thermal/HW_THERMAL", "gpu.overheating"},
			{"ipmi", w.ID("s0.2/fan1"), "fan.slow/FAN", "cooling.fan_failure"},
		} {
			told := func(ends float64) float64 {
				s := &scene{}
				s.at(0, c.source, c.part, c.what, warned, up)
				if ends > 0 {
					s.at(ends, c.source, c.part, c.what, schemas.SeverityInfo, down)
				}
				e, first := NewEngine(propagation.Default(), w.Topology, nil), -1.0
				for i := range s.events {
					e.Add(&s.events[i])
				}
				for range 20 {
					e.Advance(e.Now().Add(time.Minute))
				}
				for _, inc := range e.Drain() {
					if first < 0 && inc.RootCause.Fault == c.fault && inc.RootCause.Resource == c.part {
						first = inc.At.Sub(s.events[0].Observed).Seconds()
					}
				}
				return first
			}
			if at := told(0); at < 100 || at > 300 {
				t.Errorf("%s: %s is told after %.0f s", w.Name, c.fault, at)
			}
			if at := told(90); at >= 0 {
				t.Errorf("%s: %s was over after 90 s, and is told after %.0f s", w.Name, c.fault, at)
			}
		}
	}
}
