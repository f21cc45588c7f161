package correlator

import (
	"strings"
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/internal/stormgen"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// firstTold returns after how many seconds of a scene an incident first named a cause, or -1.
func firstTold(topology *schemas.Topology, s *scene, cause string) float64 {
	e := NewEngine(propagation.Default(), topology, nil)
	events := s.sorted().events
	told := -1.0
	note := func() {
		for _, inc := range e.Drain() {
			if told < 0 && inc.RootCause.Resource+" "+inc.RootCause.Fault == cause {
				told = inc.At.Sub(events[0].Observed).Seconds()
			}
		}
	}
	for i := range events {
		e.Add(&events[i])
		note()
	}
	e.Advance(e.Now().Add(time.Minute))
	note()
	return told
}

// Racks warm slowly, one server after the other: that most are not hot yet says little a minute
// after the first, whatever the fault shows on average.
func TestRacksThatWarmSlowlyAreToldByTheFourthServer(t *testing.T) {
	for _, w := range []*site{demo.Build(), hall.Build(), lean.Build(), unfed.Build(), shapeNamed("rails").Build()} {
		s := &scene{}
		for i := range 4 {
			s.at(18*float64(i), "ipmi", w.Host(i%2, i/2), "temp.inlet_high/Inlet Temp", warned, up)
		}
		if told := firstTold(w.Topology, s, w.ID("air0")+" cooling.air_supply"); told < 0 || told > 60 {
			t.Errorf("%s: told after %.0f s", w.Name, told)
		}
	}
}

// TestALinkThatIsDownAgainSoon is told as one that flaps, at its second time; one that is down
// again much later, or of which two sources tell, is not.
func TestALinkThatIsDownAgainSoon(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), lean.Build(), unfed.Build()} {
		port, nic := w.ID("leaf0.0/e0.1.0"), w.ID("s0.1/nic0")
		for name, c := range map[string]struct {
			play func(s *scene)
			told bool
		}{
			"after 40 s": {func(s *scene) {
				for _, at := range []float64{0, 40} {
					s.at(at, "gnmi", port, "port.down", failed, up)
					s.at(at+0.2, "agent", nic, "nic.down", failed, up)
					s.at(at+4, "gnmi", port, "port.down", schemas.SeverityInfo, down)
					s.at(at+4.2, "agent", nic, "nic.down", schemas.SeverityInfo, down)
				}
			}, true},
			"after nine minutes": {func(s *scene) {
				for _, at := range []float64{0, 540} {
					s.at(at, "gnmi", port, "port.down", failed, up)
					s.at(at+4, "gnmi", port, "port.down", schemas.SeverityInfo, down)
				}
			}, false},
			"told by two": {func(s *scene) {
				for at, source := range map[float64]string{0: "gnmi", 30: "snmp"} {
					s.at(at, source, port, "port.down", failed, up)
					s.at(at+0.2, source, nic, "nic.down", failed, up)
					s.at(at+4, source, port, "port.down", schemas.SeverityInfo, down)
					s.at(at+4.2, source, nic, "nic.down", schemas.SeverityInfo, down)
				}
			}, false},
		} {
			s := &scene{}
			c.play(s)
			told := max(firstTold(w.Topology, s, port+" network.link_flap"), firstTold(w.Topology, s, nic+" network.link_flap"))
			if (told >= 0) != c.told || told > 45 {
				t.Errorf("%s, %s: told after %.0f s", w.Name, name, told)
			}
		}
	}
}

// TestASignIsInOneIncident, whatever becomes part of what.
func TestASignIsInOneIncident(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, name := range []string{"tiny", "unfed", "lean"} {
		for _, p := range []stormgen.Profile{stormgen.Big, stormgen.Strange, stormgen.Overlap} {
			st, _ := drawStorm(t, shapeNamed(name), stormgen.Options{Seed: 1, Profile: p, Faults: 5})
			e := NewEngine(propagation.Default(), st.Topology, nil)
			var wrong []string
			for i := range st.Events {
				e.Add(&st.Events[i])
				for _, inc := range e.open {
					for _, s := range inc.signs {
						if s.inc != inc && len(wrong) < 3 {
							wrong = append(wrong, inc.id+" holds a sign of another: "+e.g.name[s.node])
						}
					}
				}
			}
			if len(wrong) > 0 {
				t.Errorf("%s %s: %s", name, p, strings.Join(wrong, "; "))
			}
		}
	}
}
