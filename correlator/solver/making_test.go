package solver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"auspex/schemas/faults/propagation"
)

// fleetDown is a group of feeds and of servers that are down, some of them twice.
func fleetDown(rng *rand.Rand, m *propagation.Model, feeds, servers, down int) (g *Group, could, states []int32) {
	var feed, crash *propagation.Fault
	for i := range m.Faults {
		switch f := &m.Faults[i]; f.Name {
		case "feed":
			feed = f
		case "crash":
			crash = f
		}
	}
	g = &Group{Now: time.Hour}
	for range feeds {
		x := Cause{Fault: feed, Node: int32(servers + len(g.Causes)), Timed: rng.IntN(4) > 0, Onset: time.Duration(rng.Int64N(int64(10 * time.Minute)))} //nolint:gosec // few
		x.Latest = x.Onset
		var parts []Part
		for n := range servers {
			if rng.IntN(feeds) == 0 {
				parts = append(parts, Part{Node: int32(n), Device: int32(n)}) //nolint:gosec // few
			}
		}
		x.Effects = make([][]Part, len(feed.Effects))
		x.Effects[0] = parts
		could = append(could, int32(len(g.Causes))) //nolint:gosec // few
		g.Causes = append(g.Causes, x)
	}
	for range down {
		x := Cause{Fault: crash, Node: int32(rng.IntN(servers)), Timed: rng.IntN(8) > 0, Onset: time.Duration(rng.Int64N(int64(10 * time.Minute)))} //nolint:gosec // few
		x.Effects = make([][]Part, len(crash.Effects))
		states = append(states, int32(len(g.Causes))) //nolint:gosec // few
		g.Causes = append(g.Causes, x)
	}
	return g, could, states
}

func known(tb testing.TB) *propagation.Model {
	tb.Helper()
	m, err := propagation.Parse("knowledge.yaml", []byte(knowledge))
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// Whether parts or states are gone over, the same states are found, in their order.
func TestWhatACauseCouldHaveBroughtAboutIsFound(t *testing.T) {
	m := known(t)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	var made making
	some := 0
	for range 300 {
		g, could, states := fleetDown(rng, m, 1+rng.IntN(8), 1+rng.IntN(60), 1+rng.IntN(40))
		could = append(could, states[0])
		made.find(g, could, states)
		for at, o := range could {
			x, all := &g.Causes[o], []int32{}
			for i := range x.Fault.Effects {
				want := []int32{}
				for _, h := range states {
					y := &g.Causes[h]
					if h != o && y.Timed && y.Fault.Is == x.Fault.Effects[i].State && x.Fault.Is != y.Fault.Is && x.before(y, i) && find(x.Effects[i], y.Node) != nil {
						want = append(want, h)
					}
				}
				if got := made.of(at, i); !slices.Equal(got, want) {
					t.Fatalf("cause %d of %d, effect %d: %v, want %v", at, len(could), i, got, want)
				}
				all = append(all, want...)
			}
			if got := made.all(at); !slices.Equal(got, all) {
				t.Fatalf("cause %d of %d: %v, want %v", at, len(could), got, all)
			}
			some += len(all)
		}
		if i := slices.IndexFunc(made.at, func(n int32) bool { return n != 0 }); i >= 0 {
			t.Fatalf("node %d is noted still", i)
		}
	}
	if some < 1000 {
		t.Errorf("only %d states were found", some)
	}
}

// What is gone over for a feed depends on what hangs on it, not on what is down elsewhere.
func BenchmarkMaking(b *testing.B) {
	m := known(b)
	for _, feeds := range []int{4, 400} {
		b.Run(fmt.Sprint(feeds, " feeds"), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // no secret
			g, could, states := fleetDown(rng, m, feeds, 8*feeds, 4*feeds)
			var made making
			for b.Loop() {
				made.find(g, could, states)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(feeds), "ns/feed")
		})
	}
}
