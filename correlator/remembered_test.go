package correlator

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"auspex/correlator/solver"
	"auspex/internal/stormgen"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// What is remembered to save work is forgotten as soon as something changes it: an engine that
// remembers none of it publishes the same lines.
func TestWhatIsRememberedChangesNoLine(t *testing.T) {
	forget := func(t *testing.T, e *Engine) {
		for _, inc := range e.open {
			inc.lasts = time.Time{}
		}
		clear(e.composer.said)
		clear(e.lags[:])
		for _, list := range e.spots.lists {
			for _, p := range list {
				if p.suspect != nil {
					p.suspect.stir()
				}
			}
		}
		for _, p := range e.g.parts {
			p.heard = e.signs.heard - heardTurns
		}
		for i := range e.g.tops {
			e.g.tops[i] = unset
		}
		kept := e.unfedSum
		e.unfedSum = 0
		for _, h := range e.unfedAll {
			e.mix(h)
		}
		if e.unfedSum != kept {
			t.Errorf("the sum of blamed suppliers is %x, want %x", kept, e.unfedSum)
		}
	}
	for _, name := range []string{"tiny", "unfed", "rails"} {
		for _, o := range []stormgen.Options{
			{Seed: 1, Profile: stormgen.Big, Faults: 5},
			{Seed: 2, Profile: stormgen.Dirty, Faults: 5, Noise: 40},
			{Seed: 3, Profile: stormgen.Quiet, Noise: 100},
			{Seed: 4, Profile: stormgen.Overlap, Faults: 5, Noise: 40},
			{Seed: 5, Profile: stormgen.Chain, Faults: 4, Noise: 40},
		} {
			t.Run(name+" "+string(o.Profile), func(t *testing.T) {
				t.Parallel()
				st, _ := drawStorm(t, shapeNamed(name), o)
				lines := func(before func(*Engine)) (out [][]byte) {
					e := NewEngine(propagation.Default(), st.Topology, nil)
					drain := func() {
						for _, inc := range e.Drain() {
							line, err := json.Marshal(&inc)
							if err != nil {
								t.Fatal(err)
							}
							out = append(out, line)
						}
					}
					for i := range st.Events {
						before(e)
						e.Add(&st.Events[i])
						if i%40 == 39 && len(e.open) > 0 { // somebody repairs the oldest
							e.Repaired(e.open[0].id, e.now)
						}
						drain()
					}
					for range 26 * 60 {
						before(e)
						e.Advance(e.now.Add(time.Minute))
						drain()
					}
					return out
				}
				want, got := lines(func(e *Engine) { forget(t, e) }), lines(func(*Engine) {})
				for i := range min(len(want), len(got)) {
					if string(want[i]) != string(got[i]) {
						t.Fatalf("line %d is\n%s\nwithout what is remembered\n%s", i, got[i], want[i])
					}
				}
				if len(want) != len(got) {
					t.Errorf("%d lines, without what is remembered %d", len(got), len(want))
				}
			})
		}
	}
}

// An incident of which it was found that it stays open for long closes all the same once it is repaired.
func TestARepairEndsAnIncidentThatWasToStayOpen(t *testing.T) {
	for name, repair := range map[string]func(e *Engine, s *scene){
		"a boot": func(e *Engine, s *scene) {
			s.at(1800, "agent", "gpu-r01-01", schemas.EventHostReboot, schemas.SeverityWarning)
			e.Add(&s.events[len(s.events)-1])
		},
		"control": func(e *Engine, _ *scene) { e.Repaired(e.open[0].id, e.now) },
		"what it held went elsewhere": func(e *Engine, _ *scene) {
			inc := e.open[0]
			inc.heard, inc.signs = e.now.Add(-2*time.Hour), nil
			e.change(inc)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := NewEngine(propagation.Default(), fleet(1), nil)
			s := &scene{}
			s.at(0, "dcgm", "gpu-r01-01/gpu3", schemas.EventGPUXID+"/79", schemas.SeverityCritical)
			e.Add(&s.events[0])
			e.Flush()
			for range 30 {
				e.Advance(e.now.Add(time.Minute))
			}
			if len(e.open) != 1 {
				t.Fatalf("%d incidents are open", len(e.open))
			}
			repair(e, s)
			for range 6 {
				e.Advance(e.now.Add(time.Minute))
			}
			if len(e.open) != 0 {
				t.Error("it is open still")
			}
		})
	}
}

// Who is silent is not gone over at each look for what is over.
func TestAnOpenIncidentWithoutNewsCostsNothing(t *testing.T) {
	e := NewEngine(propagation.Default(), fleet(8), nil)
	s := &scene{}
	for i := range 64 {
		s.at(600*float64(i), "redfish", fmt.Sprintf("gpu-r%02d-%02d", 1+i/8, 1+i%8)+"/psu1", schemas.EventPSUFailure, schemas.SeverityCritical, schemas.StateRaised)
	}
	for i := range s.events {
		e.Add(&s.events[i])
	}
	for range 10 * 60 {
		e.Advance(e.now.Add(time.Minute))
	}
	st := e.Stats()
	if st.Open < 32 {
		t.Fatalf("%d incidents are open", st.Open)
	}
	if most := uint64(4 * st.Signs); st.Swept > most {
		t.Errorf("%d signs were gone over in ten hours, want at most %d", st.Swept, most)
	}
}

// What a suspect was found to weigh is what it weighs, unless it is known to have changed: whatever has
// a say in it, of signs that ended unheard, of contact, and of what is lost on the way.
func TestWhatASuspectWeighedIsWhatItWeighs(t *testing.T) {
	for _, name := range []string{"tiny", "unfed", "rails"} {
		for _, o := range []stormgen.Options{
			{Seed: 5, Profile: stormgen.Chain, Faults: 4, Noise: 40},
			{Seed: 2, Profile: stormgen.Dirty, Faults: 5, Noise: 40},
		} {
			t.Run(name+" "+string(o.Profile), func(t *testing.T) {
				t.Parallel()
				st, _ := drawStorm(t, shapeNamed(name), o)
				e := NewEngine(propagation.Default(), st.Topology, nil)
				asked := 0
				for i := range st.Events {
					e.Add(&st.Events[i])
					if i%20 != 19 {
						continue
					}
					for _, list := range e.spots.lists {
						for _, p := range list {
							h := p.suspect
							if h == nil || h.base <= 0 || h.weighed == 0 || apart(e.now, h.weighed.time()) < settle || e.otherwise(h) {
								continue
							}
							was := h.base
							h.unweigh()
							e.couldBe(h)
							if asked++; h.base != was && math.Abs(math.Abs(h.base-was)-solver.KeepBonus) > 1e-9 { // that it was decided is no evidence
								t.Fatalf("event %d: %s of %s weighs %.3f, not %.3f", i, h.fault.Name, e.g.name[h.node], h.base, was)
							}
						}
					}
				}
				if asked < 5 {
					t.Errorf("only %d were asked", asked)
				}
			})
		}
	}
}

// Of the parts that a fault may bring into a state, those are asked again of which something was heard, and what is known
// of the others is what they show.
func TestWhatPartsShowIsWhatWasHeardOfThem(t *testing.T) {
	for _, name := range []string{"rails", "hall"} {
		for _, o := range []stormgen.Options{
			{Seed: 1, Profile: stormgen.Big, Faults: 5},
			{Seed: 2, Profile: stormgen.Dirty, Faults: 5, Noise: 40},
		} {
			t.Run(name+" "+string(o.Profile), func(t *testing.T) {
				t.Parallel()
				st, _ := drawStorm(t, shapeNamed(name), o)
				e := NewEngine(propagation.Default(), st.Topology, nil)
				asked := 0
				for i := range st.Events {
					e.Add(&st.Events[i])
					for _, list := range e.spots.lists {
						for _, spot := range list {
							h := spot.suspect
							for k := 0; h != nil && h.causes && k < len(h.fault.Effects); k++ {
								p := e.g.parts[partsKey{h.node, h.key.fault, k}]
								if p == nil || !p.fresh {
									continue
								}
								was, heard := p.told, p.heard
								if e.parts(h, k, false); p.told == was {
									continue
								}
								if n := len(p.list); e.signs.heard-heard < uint64(n) { //nolint:gosec // a length
									asked++
								}
								for _, x := range p.list {
									if x.Shows != e.shows(x.Node, &h.fault.Effects[k], p.since) {
										t.Fatalf("event %d: %s shows %v for %s of %s", i, e.g.name[x.Node], x.Shows, h.fault.Name, e.g.name[h.node])
									}
								}
							}
						}
					}
				}
				if asked < 20 {
					t.Errorf("only %d were brought up to date", asked)
				}
			})
		}
	}
}
