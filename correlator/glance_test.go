package correlator

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"auspex/internal/stormgen"
	"auspex/schemas/faults/propagation"
)

// rows are sites of one large row each, which one air unit cools.
func rows() (out []shape) {
	for _, sh := range []shape{demo, hall, lean} {
		sh.Racks, sh.Row, sh.Servers = 16, 16, 12
		out = append(out, sh)
	}
	return out
}

// One GPU more that is hot where hundreds are is told with them, and does not have all of them weighed.
func TestOneMoreOfALargeGroupIsSeenAtAGlance(t *testing.T) {
	for _, sh := range rows() {
		t.Run(sh.Name, func(t *testing.T) {
			w := sh.Build()
			s := &scene{}
			s.hotAir(w, 10, 0, true)
			const more = 40
			for i := range more {
				s.at(1500+5*float64(i), "dcgm", w.ID("s%d.%d/gpu%d", i%w.Racks, i%w.Servers, 1+i/w.Servers), "gpu.thermal/HW_THERMAL", warned, up)
			}
			s.sorted()
			e := NewEngine(propagation.Default(), w.Topology, nil)
			var solved uint64
			for i := range s.events {
				if i == len(s.events)-more {
					solved = e.Stats().Solved
				}
				e.Add(&s.events[i])
			}
			solved = e.Stats().Solved - solved
			e.Advance(e.Now().Add(toldWait * patience))
			e.Flush()
			got := last(e.Drain())
			if len(got) != 1 || causes(got)[0] != w.ID("air0")+" cooling.air_supply" || len(got[0].Events) != len(s.events) {
				t.Errorf("of %d events\n%s", len(s.events), verdict(got))
			}
			if solved > more {
				t.Errorf("%d signs were weighed with all others %d times", more, solved)
			}
		})
	}
}

// Contact that is lost and found elsewhere has nothing weighed again of what it could not have told of.
func TestContactElsewhereIsNoWork(t *testing.T) {
	for _, sh := range []shape{demo, hall, lean} {
		t.Run(sh.Name, func(t *testing.T) {
			sh.Racks, sh.Row, sh.Servers = 8, 4, 12
			w := sh.Build()
			weighed := func(hot, blips bool) uint64 {
				s := &scene{}
				if hot {
					s.hotAir(w, 10, 0, true)
				}
				for i := range 40 {
					at := 1500 + 30*float64(i)
					if hot {
						s.at(at, "dcgm", w.ID("s%d.%d/gpu1", i%4, i/4), "gpu.thermal/HW_THERMAL", warned, up)
					}
					if blips {
						s.at(at-8, "agent", w.Host(7, i%12), "agent.unreachable", failed, up)
						s.at(at-4, "agent", w.Host(7, i%12), "agent.unreachable", "info", "cleared")
					}
				}
				s.sorted()
				e := NewEngine(propagation.Default(), w.Topology, nil)
				for i := range s.events {
					e.Add(&s.events[i])
				}
				e.Flush()
				return e.Stats().Weighed
			}
			if apart, together := weighed(true, false)+weighed(false, true), weighed(true, true); together > apart+40 {
				t.Errorf("%d suspects were weighed apart, %d together", apart, together)
			}
		})
	}
}

// Which parts are silent witnesses is the same as if they were counted again with each event.
func TestWitnessesAreThoseThatWouldBeCountedNow(t *testing.T) {
	for _, sh := range shapes {
		for _, profile := range []stormgen.Profile{stormgen.Big, stormgen.Overlap} {
			t.Run(sh.Name+"/"+string(profile), func(t *testing.T) {
				t.Parallel()
				st, _ := drawStorm(t, sh, stormgen.Options{Seed: 5, Profile: profile, Faults: 4})
				run := func(always bool) (out []string) {
					e := NewEngine(propagation.Default(), st.Topology, nil)
					for i := range st.Events {
						if always {
							e.contact.version++
							e.contact.whole = e.contact.version
						}
						e.Add(&st.Events[i])
						for _, inc := range e.Drain() {
							doc, err := json.Marshal(&inc)
							if err != nil {
								t.Fatal(err)
							}
							out = append(out, string(doc))
						}
					}
					e.Advance(e.Now().Add(2 * time.Minute))
					e.Flush()
					return out
				}
				if got, want := run(false), run(true); len(want) == 0 || !slices.Equal(got, want) {
					t.Errorf("%d revisions, %d where all is counted each time, and not the same", len(got), len(want))
				}
			})
		}
	}
}
