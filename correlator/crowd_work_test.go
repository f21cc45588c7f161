package correlator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Whoever began near an incident is found, in the order in which they came, whatever became of
// the others: as by going through all of them.
func TestPeersAreThoseThatAScanFinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	type entry struct {
		inc *incident
		nth int
	}
	start := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	p, now, turn := &peers{}, start, uint64(0)
	var scan []entry // in the order in which they came
	var all []*incident
	for range 3000 {
		now = now.Add(time.Duration(rng.IntN(40)) * time.Second)
		switch rng.IntN(4) {
		case 0: // one closes
			if len(all) > 0 {
				if o := all[rng.IntN(len(all))]; o.closed.IsZero() {
					o.closed, o.ended = now, turn
				}
			}
			continue
		case 1: // one began earlier than was thought
			if len(all) > 0 {
				o := all[rng.IntN(len(all))]
				o.began(o.opened.Add(-time.Duration(rng.IntN(60)) * time.Second))
			}
			continue
		}
		inc := &incident{opened: now.Add(-time.Duration(rng.IntN(600)) * time.Second)}
		all = append(all, inc)
		turn++
		p.join(inc)
		p.turn, p.at = turn, now
		p.tidy()
		scan = slices.DeleteFunc(scan, func(o entry) bool { return !o.inc.closed.IsZero() && now.Sub(o.inc.opened) > 2*crowdSpan })
		scan = append(scan, entry{inc, len(all)})
		var want []*incident
		for _, o := range scan {
			if o.inc.opened.Sub(inc.opened).Abs() <= crowdSpan {
				want = append(want, o.inc)
			}
		}
		got := slices.DeleteFunc(slices.Clone(p.near(inc)), p.forgotten)
		slices.SortFunc(got, func(a, b *incident) int { return a.nth - b.nth })
		if !slices.Equal(got, want) {
			t.Fatalf("after %d incidents %d are near one, a scan finds %d", len(all), len(got), len(want))
		}
	}
	if len(p.list) > 4*len(scan)+64 {
		t.Errorf("%d are kept of %d", len(p.list), len(scan))
	}
}

// What the parts of a site are counted as follows each node that comes, and looks at no other.
func TestCountsFollowWhatIsNew(t *testing.T) {
	top := fleet(4)
	g := newGraph(top, nil)
	gpus, servers := g.count(schemas.KindGPU, 0), g.devices(g.number["dc1"])
	if gpus != 4*8*8 || servers != 4*9+2 {
		t.Fatalf("%d GPUs, %d servers and switches", gpus, servers)
	}
	for i := range 50 {
		n := g.ensure(fmt.Sprintf("job-%d", i))
		g.setKind(n, propagation.KindWorkload)
		stranger := g.ensure(fmt.Sprintf("stranger-%d", i))
		g.setKind(stranger, schemas.KindServer)
		if len(g.counted.news) > 4 || len(g.holds.news) > 4 {
			t.Fatalf("%d and %d nodes wait to be counted", len(g.counted.news), len(g.holds.news))
		}
		if jobs := g.count(propagation.KindWorkload, n); jobs != i+1 {
			t.Fatalf("%d jobs after %d came", jobs, i+1)
		}
		if d := g.devices(stranger); d != 1 {
			t.Fatalf("a server that the inventory does not know holds %d", d)
		}
	}
	if g.count(schemas.KindGPU, 0) != gpus || g.devices(g.number["dc1"]) != servers {
		t.Error("what came changed the count of others")
	}
}

// Whatever comes, turns out to be something else, and is forgotten: the counts are those of a scan.
func TestCountsAreThoseOfAScan(t *testing.T) {
	for seed, sh := range []shape{small, demo, four, unfed} {
		g := newGraph(sh.Build().Topology, nil)
		rng := rand.New(rand.NewPCG(3, uint64(seed))) //nolint:gosec // no secret
		kinds := []string{"", schemas.KindServer, schemas.KindSwitch, schemas.KindPSU, propagation.KindWorkload}
		check := func(step int, what string) {
			t.Helper()
			type part struct {
				kind string
				of   node
			}
			want, devices := map[part]int{}, map[node]int{}
			for n := range node(len(g.kind)) { //nolint:gosec // a number of nodes
				top := g.top(n)
				if want[part{g.kindOf(n), top}]++; g.kindOf(n) == propagation.KindWorkload {
					want[part{g.kindOf(n), none}]++
				}
				if g.server(n) == n {
					devices[top]++
				}
			}
			for n := range node(len(g.kind)) { //nolint:gosec // a number of nodes
				if g.parent[n] != none {
					continue
				}
				for _, kind := range kinds {
					of := n
					if kind == propagation.KindWorkload {
						of = none
					}
					if got, want := g.count(kind, n), want[part{kind, of}]; got != want {
						t.Fatalf("%s, %s in step %d: %d of kind %q in %q, a scan finds %d", sh.Name, what, step, got, kind, g.name[n], want)
					}
				}
				if got := g.devices(n); got != devices[n] {
					t.Fatalf("%s, %s in step %d: %d devices in %q, a scan finds %d", sh.Name, what, step, got, g.name[n], devices[n])
				}
			}
		}
		check(0, "nothing")
		some := func() node { return g.ensure(fmt.Sprint("stranger-", rng.IntN(12))) }
		for step := range 400 {
			switch rng.IntN(4) {
			case 0:
				some()
				check(step, "a stranger")
			case 1:
				if n := some(); g.kindOf(n) == "" {
					g.setKind(n, kinds[1+rng.IntN(len(kinds)-1)])
					check(step, "another kind")
				}
			case 2:
				var jobs []schemas.Workload
				for i := range rng.IntN(3) {
					jobs = append(jobs, schemas.Workload{ID: fmt.Sprint("stranger-", rng.IntN(12)), Resources: []string{g.name[i]}})
				}
				g.setWorkloads(jobs)
				check(step, "jobs")
			case 3:
				g.forget(func(node) bool { return rng.IntN(2) == 0 })
				check(step, "oblivion")
			}
		}
	}
}
