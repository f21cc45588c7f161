package correlator

import (
	"slices"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Of servers that nobody reads from inside, what the board controller says is enough: that their own systems say nothing is
// no evidence. Of one that is read, or was heard from inside, it is.
func TestServersThatNobodyReadsFromInsideAreNoSilentWitnesses(t *testing.T) {
	for _, sh := range shapes {
		w := sh.Build()
		gpu := w.ID("s0.1/gpu2")
		var others []string
		for h := 2; h < w.Servers; h++ {
			others = append(others, w.Host(0, h))
		}
		for _, tc := range []struct {
			name   string
			unread []string
			later  bool // it is said after the engine has begun
			spoke  bool // an agent speaks of the server before
			fault  string
		}{
			{"all are read", nil, false, false, "unknown"},
			{"only others are not", others, false, false, "unknown"},
			{"nobody reads it", append([]string{w.Host(0, 1)}, others...), false, false, "gpu.fallen_off_bus"},
			{"nobody reads it, as is said later", []string{w.Host(0, 1)}, true, false, "gpu.fallen_off_bus"},
			{"it was heard all the same", []string{w.Host(0, 1)}, false, true, "unknown"},
		} {
			for _, source := range []string{schemas.SourceIPMI, schemas.SourceRedfish} {
				e := NewEngine(propagation.Default(), w.Topology, nil)
				if !tc.later {
					e.SetUnread(tc.unread)
				}
				s := &scene{}
				if tc.spoke {
					s.at(0, "agent", w.ID("s0.1/gpu0"), "gpu.clocks_throttled/SW_POWER_CAP", schemas.SeverityInfo)
				}
				s.at(20, source, gpu, "bmc.sel/13/0a", schemas.SeverityCritical)
				for i := range s.events {
					e.Add(&s.events[i])
				}
				if tc.later {
					e.SetUnread(tc.unread)
				}
				e.Advance(e.Now().Add(3 * time.Minute))
				e.Flush()
				got := last(e.Drain())
				if want := []string{gpu + " " + tc.fault}; !slices.Equal(causes(got), want) {
					t.Errorf("%s, %s, %s: want %v, got\n%s", sh.Name, tc.name, source, want, verdict(got))
				} else if told := slices.ContainsFunc(got[0].WouldChange, func(s schemas.Sentence) bool { return s.ID == "say.unread" }); told != (tc.fault != "unknown") && !tc.later {
					t.Errorf("%s, %s: would change its mind: %v", sh.Name, tc.name, got[0].WouldChange)
				}
			}
		}
	}
}

// Where nobody reads any server, what a fault of a whole row shows is weighed at once, as where all are read.
func TestManyUnreadServersAreCounted(t *testing.T) {
	w := hall.Sized(64).Build()
	var all []string
	for _, r := range w.Topology.Resources {
		if r.Kind == schemas.KindServer {
			all = append(all, r.ID)
		}
	}
	e := NewEngine(propagation.Default(), w.Topology, nil)
	e.SetUnread(all)
	s := &scene{}
	for h := range w.Servers {
		s.at(float64(h), "ipmi", w.Host(0, h), "temp.inlet_high/inlet", schemas.SeverityError, schemas.StateRaised)
	}
	for i := range s.events {
		e.Add(&s.events[i])
	}
	e.Advance(e.Now().Add(3 * time.Minute))
	got := last(e.Drain())
	if len(got) != 1 || got[0].RootCause.Fault != "cooling.air_supply" {
		t.Error(verdict(got))
	}
	for _, list := range e.spots.lists {
		for _, p := range list {
			h := p.suspect
			if h == nil || !h.counted || h.mutes == 0 {
				continue
			}
			for c := range h.classes {
				r, cl := &h.classes[c], &h.fault.Classes[c]
				if sign := &e.model.Signs[cl.Sign]; !cl.Jobs && !cl.Derived && sign.Contact == 0 && sign.By == propagation.Host && r.mute != r.n {
					t.Errorf("%s: %d of %d parts that could show %s are mute", h.fault.Name, r.mute, r.n, sign.Name)
				}
			}
		}
	}
}
