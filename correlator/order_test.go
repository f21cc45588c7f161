package correlator

import (
	"testing"
	"time"

	"auspex/schemas"
)

// late makes the last event of a scene arrive so many seconds late.
func (s *scene) late(sec float64) {
	ev := &s.events[len(s.events)-1]
	ev.Observed = ev.Observed.Add(time.Duration(sec * float64(time.Second)))
}

// What ended soon was nothing, in whichever order it is heard of: the clock of who tells says how
// long it lasted.
func TestWhatEndedSoonIsToldLate(t *testing.T) {
	for _, w := range []*site{small.Build(), demo.Build(), hall.Build(), four.Build(), lean.Build(), unfed.Build()} {
		port, nic := w.PortOf(0, 1, 0), w.ID("s0.1/nic0")
		for name, play := range map[string]func(s *scene){
			"the all-clear comes late": func(s *scene) {
				s.at(0, "gnmi", port, "port.down", failed, up)
				s.at(5, "gnmi", port, "port.down", schemas.SeverityInfo, down)
				s.late(90)
			},
			"the all-clear comes first": func(s *scene) {
				s.at(5, "gnmi", port, "port.down", schemas.SeverityInfo, down)
				s.at(0, "gnmi", port, "port.down", failed, up)
				s.late(60)
			},
			"it is told again after the all-clear": func(s *scene) {
				s.at(0, "gnmi", port, "port.down", failed, up)
				s.at(5, "gnmi", port, "port.down", schemas.SeverityInfo, down)
				s.at(0, "gnmi", port, "port.down", failed, up)
				s.late(60)
			},
			"the far end tells of it after the near end's all-clear": func(s *scene) {
				s.at(0, "gnmi", port, "port.down", failed, up)
				s.at(5, "gnmi", port, "port.down", schemas.SeverityInfo, down)
				s.at(0.1, "kmsg", nic, "nic.down", failed, up)
				s.late(100)
			},
			"a slow fan, and the all-clear first": func(s *scene) {
				s.at(60, "ipmi", w.ID("s0.1/fan1"), "fan.slow/FAN", schemas.SeverityInfo, down)
				s.at(0, "ipmi", w.ID("s0.1/fan1"), "fan.slow/FAN", warned, up)
				s.late(80)
			},
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				play(s)
				s.arrive(inOrder)
				if got := final(w.Topology, s, 40*time.Minute); len(got) > 0 {
					t.Errorf("got\n%s", verdict(got))
				}
			})
		}
	}
}

// A clock that was set back does not silence what is said by it.
func TestAClockThatWasSetBackIsHeard(t *testing.T) {
	for _, w := range []*site{small.Build(), hall.Build(), four.Build()} {
		s, fan := &scene{}, w.ID("s0.1/fan1")
		s.at(0, "ipmi", fan, "fan.slow/FAN", warned, up)
		s.at(20, "ipmi", fan, "fan.slow/FAN", schemas.SeverityInfo, down)
		s.at(900, "ipmi", fan, "fan.slow/FAN", warned, up)
		s.events[2].Time = t0.AddDate(-56, 0, 0)
		got := final(w.Topology, s, 40*time.Minute)
		if len(got) != 1 || got[0].RootCause.Resource != fan {
			t.Errorf("%s: got\n%s", w.Name, verdict(got))
		}
	}
}
