package correlator

import (
	"fmt"
	"testing"

	"auspex/internal/racetest"
	"auspex/internal/stormgen"
	"auspex/schemas/faults/propagation"
)

// Units that cool the same are equals: which of them is named does not go to and fro as what they cool goes
// down, some of which could as well be crashes of their own.
func TestEqualsKeepTheirName(t *testing.T) {
	racetest.OneGoroutine(t)
	for name, seeds := range map[string][]uint64{"fleet": {3}, "pods": {3, 4}, "rails": {3, 4}, "hall": {3, 4}, "tiny": {3, 4}} {
		for _, seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				sh := shapeNamed(name).Sized(64)
				sh.Air = 2
				st, err := stormgen.Draw(sh.Build().Topology, stormgen.Options{
					Seed: seed, Profile: stormgen.Chain, Half: stormgen.Tuned, Faults: 5,
				})
				if err != nil {
					t.Fatal(err)
				}
				for one := range st.Alone() {
					e := NewEngine(propagation.Default(), one.Topology, nil)
					at, turns := map[string]string{}, map[string]int{}
					for i := range one.Events {
						e.Add(&one.Events[i])
						for _, inc := range e.Drain() {
							if on := inc.RootCause.Resource; inc.RootCause.Fault == "cooling.air_supply" && at[inc.ID] != on {
								at[inc.ID] = on
								turns[inc.ID]++
							}
						}
					}
					for id, n := range turns {
						if n > 3 { // a rack, a unit, and another that has an alarm
							t.Errorf("%s of %s was named in %d ways, one after another", id, one.Truth.Incidents[0].ID, n)
						}
					}
				}
			})
		}
	}
}
