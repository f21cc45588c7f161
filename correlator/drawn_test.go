package correlator

import (
	"testing"
	"time"

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

// The bounds are a little under what is reached. The storms are drawn from how
// machines fail, each with probabilities and delays of its own.
func TestDrawnStorms(t *testing.T) {
	if testing.Short() {
		t.Skip("figures of one goroutine, which the race detector has nothing to say of")
	}
	for _, c := range []struct {
		profile     stormgen.Profile
		top1, b3    float64
		falses, ece float64
	}{
		{stormgen.Easy, 0.95, 0.97, 3, 0.12},
		{stormgen.Big, 0.9, 0.94, 3, 0.15},
		{stormgen.Overlap, 0.81, 0.89, 3, 0.25},
		{stormgen.Dirty, 0.7, 0.84, 3, 0.25},
		{stormgen.Jobs, 0.86, 0.97, 3, 0.12},
		{stormgen.Chain, 0.82, 0.82, 3, 0.15},
		{stormgen.Quiet, 0, 0, 2, 1},
	} {
		t.Run(string(c.profile), func(t *testing.T) {
			t.Parallel()
			var sum score.Sum
			for _, sh := range shapes {
				_, one := drawStorm(t, sh, stormgen.Options{Seed: 1, Profile: c.profile, Faults: 4})
				sum.Add(one)
			}
			f := sum.Figures()
			t.Logf("%d faults: root %.3f, B-cubed F1 %.3f, false incidents per 1000 noise events %.1f, calibration error %.3f, Brier %.3f",
				sum.Faults, f.Top1, f.B3F1, f.FalsePerK, f.ECE, f.Brier)
			if f.Top1 < c.top1 || f.B3F1 < c.b3 || f.FalsePerK > c.falses || f.ECE > c.ece {
				t.Errorf("root %.3f, B-cubed F1 %.3f, false %.1f, calibration error %.3f; the bounds are %+v", f.Top1, f.B3F1, f.FalsePerK, f.ECE, c)
			}
		})
	}
}

// Each class of mistake that was once seen, on every shape; the share of faults
// whose root is found.
func TestClassesOfMistakes(t *testing.T) {
	if testing.Short() {
		t.Skip("figures of one goroutine, which the race detector has nothing to say of")
	}
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
