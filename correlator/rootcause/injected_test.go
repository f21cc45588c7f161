package rootcause

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"auspex/internal/racetest"
)

// TestInjectedIntoRealNoise adds trouble to the recorded normal operation of a real site
// (the first rows teach, windows of the others are the issues), at each service in turn
// and, by the amount, at all that wait for it. Where one between says nothing of it, as
// one that answers late but counts no failure, less is found.
func TestInjectedIntoRealNoise(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range []struct {
		metric     string
		calm       bool // the caller of the faulty service shows nothing
		top1, top3 float64
	}{
		{"latency", false, 0.96, 0.98},
		{"availability", false, 0.96, 0.98},
		{"latency", true, 0.8, 0.93},
		{"availability", true, 0.95, 0.98},
	} {
		var all tally
		for _, scenario := range []string{"low_traffic", "high_traffic"} {
			r := &Reading{}
			dir := filepath.Join("testdata", "petshop", scenario)
			g, err := r.Graph(t.Context(), filepath.Join(dir, "graph.csv"))
			if err != nil {
				t.Fatal(err)
			}
			recorded, err := r.Table(t.Context(), filepath.Join(dir, "noissue"))
			if err != nil {
				t.Fatal(err)
			}
			site, err := NewSite(g, part(recorded, 0, 230), DefaultRoles())
			if err != nil {
				t.Fatal(err)
			}
			for off := 230; off+6 <= len(recorded.Times); off += 19 {
				inject(t, site, recorded, off, c.metric, c.calm, &all)
			}
		}
		t.Logf("%s, calm %v: %s", c.metric, c.calm, &all)
		if all.top1 < c.top1*all.n || all.top3 < c.top3*all.n {
			t.Errorf("%s, calm %v: %s, want %.2f and %.2f", c.metric, c.calm, &all, c.top1, c.top3)
		}
	}
}

func part(t *Table, from, to int) *Table {
	out := &Table{Path: t.Path, Times: t.Times[from:to], Columns: map[Column][]float64{}}
	for c, v := range t.Columns {
		out.Columns[c] = slices.Clone(v[from:to])
	}
	return out
}

// asynchronous is started, and nobody waits for it.
const asynchronous = "AWS::StepFunctions::StateMachine"

// inject plays each service once: a fifth more seconds at the target, or a twenty-fifth
// of its requests failed.
func inject(t *testing.T, s *Site, recorded *Table, off int, metric string, calm bool, all *tally) {
	const front = "PetSite"
	target, _ := s.Graph.Index(front)
	from := map[int]int{target: -1}
	for queue := []int{target}; len(queue) > 0; queue = queue[1:] {
		for _, j := range s.Graph.Callees[queue[0]] {
			if _, ok := from[j]; !ok && s.Graph.Nodes[j] != asynchronous {
				from[j] = queue[0]
				queue = append(queue, j)
			}
		}
	}
	for _, x := range slices.Sorted(maps.Keys(from)) {
		name := s.Graph.Nodes[x]
		if calls := recorded.Columns[Column{name, "requests", "Sum"}]; calls == nil || !(usual(calls, nil) >= 20) || calm && from[x] == target {
			continue
		}
		issue := part(recorded, off, off+6)
		ok := !calm || x != target
		for k := 2; k < 5; k++ {
			calls := issue.Columns[Column{front, "requests", "Sum"}][k]
			seconds := 0.2 * calls * issue.Columns[Column{front, "latency", "Average"}][k]
			for i := x; i >= 0; i = from[i] {
				if calm && i == from[x] {
					continue
				}
				n := s.Graph.Nodes[i]
				own := issue.Columns[Column{n, "requests", "Sum"}][k]
				ok = ok && own > 0
				if v := issue.Columns[Column{n, metric, "Average"}]; metric == "latency" {
					v[k] += seconds / own
				} else {
					v[k] = math.Max(0, v[k]-100*math.Round(calls/25)/own)
				}
			}
		}
		if !ok {
			continue
		}
		at := Target{front, metric, "Average", issue.Times[2] + 60}
		v, err := s.Rank(issue, at)
		if err != nil {
			t.Fatal(err)
		}
		all.add(v, traversal(s, issue, at), name)
	}
}
