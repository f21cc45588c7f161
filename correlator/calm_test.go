package correlator

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"auspex/correlator/solver"
	"auspex/internal/stormgen"
	"auspex/schemas/faults/propagation"
)

// whole is the cover under another name, for which every class is laid out anew each time.
type whole struct{ *solver.Cover }

// What is remembered from one decision to the next, and what is left out, changes nothing.
func TestWhatIsRememberedIsWhatWouldBeWorkedOut(t *testing.T) {
	for _, sh := range shapes {
		for _, profile := range []stormgen.Profile{stormgen.Overlap, stormgen.Chain} {
			for _, seed := range []uint64{3, 4, 5, 6, 7, 11, 30} {
				t.Run(fmt.Sprint(sh.Name, "/", profile, "/", seed), func(t *testing.T) {
					t.Parallel()
					st, _ := drawStorm(t, sh, stormgen.Options{Seed: seed, Profile: profile, Faults: 3})
					run := func(full bool) (out []string) {
						e := NewEngine(propagation.Default(), st.Topology, nil)
						if full {
							e.method = whole{e.cover}
						}
						drain := func() {
							for _, inc := range e.Drain() {
								doc, err := json.Marshal(&inc)
								if err != nil {
									t.Fatal(err)
								}
								out = append(out, string(doc))
							}
						}
						for i := range st.Events {
							e.Add(&st.Events[i])
							drain()
						}
						e.Advance(e.Now().Add(2 * time.Minute))
						e.Flush()
						drain()
						return out
					}
					got, want := run(false), run(true)
					if len(want) == 0 {
						t.Error("nothing was decided")
					}
					if !slices.Equal(got, want) {
						t.Errorf("%d revisions, %d where all is worked out, and not the same", len(got), len(want))
					}
				})
			}
		}
	}
}
