package correlator

import (
	"testing"
	"time"

	"auspex/internal/racetest"
	"auspex/internal/stormgen"
	"auspex/internal/stormgen/score"
	"auspex/schemas/faults/propagation"
)

// drawStorm plays a storm over a site that may be tuned with, and holds the
// engine's incidents against what really happened.
func drawStorm(tb testing.TB, sh shape, o stormgen.Options) (*stormgen.Storm, *score.Sum) {
	tb.Helper()
	if sh.Racks*sh.Servers > 24 {
		sh = sh.Sized(24)
	}
	o.Half = stormgen.Tuned
	st, err := stormgen.Draw(sh.Build().Topology, o)
	if err != nil {
		tb.Fatal(err)
	}
	return st, judgeStorm(st)
}

func judgeStorm(st *stormgen.Storm) *score.Sum {
	sc := score.New(&st.Truth)
	e := NewEngine(propagation.Default(), st.Topology, nil)
	drain := func() {
		for _, inc := range e.Drain() {
			sc.Line(&inc)
		}
	}
	for i := range st.Events {
		e.Add(&st.Events[i])
		drain()
	}
	e.Advance(e.Now().Add(2 * time.Minute))
	e.Flush()
	drain()
	return sc.Sum()
}

// Each class of mistake that was once seen, on every shape; the share of faults
// whose root is found.
func TestClassesOfMistakes(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range stormgen.Classes() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			var sum score.Sum
			sites := 0
			for _, sh := range shapes {
				_, one := drawStorm(t, sh, stormgen.Options{Seed: 2, Profile: c.Profile, Only: c.Of(stormgen.Tuned), Faults: 4})
				sum.Add(one)
				if one.Scored > 0 {
					sites++
				}
			}
			if sites < 3 {
				t.Fatalf("it happened on %d sites only", sites)
			}
			f := sum.Figures()
			t.Logf("%d faults on %d sites: root %.3f, B-cubed F1 %.3f, %.2f incidents a fault, calibration error %.3f",
				sum.Faults, sites, f.Top1, f.B3F1, f.Fragments, f.ECE)
			if f.Top1 < 0.8 {
				t.Errorf("the root cause is right in %.3f of the faults", f.Top1)
			}
		})
	}
}

func BenchmarkLargeSite(b *testing.B) {
	sh := shapeNamed("fleet")
	st, err := stormgen.Draw(sh.Build().Topology, stormgen.Options{Seed: 1, Profile: stormgen.Easy, Faults: 20, Noise: 10})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		judgeStorm(st)
	}
	b.ReportMetric(float64(len(st.Events)*b.N)/b.Elapsed().Seconds(), "events/s")
}
