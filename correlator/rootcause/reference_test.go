package rootcause

import (
	"cmp"
	"math"
	"slices"
)

// traversal is the reference that the PetShop paper (Hardt et al., CLeaR 2024) calls
// robust z with traversal: a node is anomalous where the target's metric is more than
// three robust deviations off in any row since the report; suspects are anomalous nodes
// that are reached through anomalous ones and have no anomalous callee, by their score.
func traversal(s *Site, table *Table, t Target) []string {
	score := make([]float64, len(s.Graph.Nodes))
	for i, n := range s.Graph.Nodes {
		c := Column{n, t.Metric, t.Statistic}
		now, then := table.Columns[c], slices.DeleteFunc(slices.Clone(s.normal.Columns[c]), math.IsNaN)
		if now == nil || len(then) == 0 {
			continue
		}
		slices.Sort(then)
		middle := then[len(then)/2]
		iqr := then[len(then)*3/4] - then[len(then)/4]
		for k, v := range now {
			if table.Times[k] >= t.Time-s.normal.step() && v == v && v != middle {
				score[i] = max(score[i], math.Abs(v-middle)/max(iqr, 1e-9))
			}
		}
	}
	const anomalous = 3
	target, _ := s.Graph.Index(t.Node)
	var suspects []int
	seen := map[int]bool{target: true}
	for queue := []int{target}; len(queue) > 0; queue = queue[1:] {
		last := true
		for _, j := range s.Graph.Callees[queue[0]] {
			if score[j] > anomalous {
				last = false
				if !seen[j] {
					seen[j] = true
					queue = append(queue, j)
				}
			}
		}
		if last {
			suspects = append(suspects, queue[0])
		}
	}
	slices.SortStableFunc(suspects, func(a, b int) int { return cmp.Compare(score[b], score[a]) })
	var out []string
	for _, i := range suspects {
		out = append(out, s.Graph.Nodes[i])
	}
	return out
}
