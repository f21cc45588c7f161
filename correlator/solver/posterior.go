package solver

import (
	"math"
	"slices"
)

// Share is how probable a cause is.
type Share struct {
	Cause int32
	P     float64
}

// Posterior is what could be the cause of the signs that one cause owns. All of its
// probabilities, that of something unknown among them, add up to 1.
type Posterior struct {
	Shares  []Share // the root and its rivals, the likeliest first; among equals the root, then in their order
	Unknown float64
}

// Posterior weighs the owner of signs against its rivals, by how well each explains the
// same signs: scores are log-odds against "no fault", whose score is 0, so that the
// probabilities of the root, its rivals and none are in the ratio exp(score), tempered
// by Spread. Equals of which nothing is known but that there are as many share what one
// of them would have: how many there are says nothing.
func (m *Cover) Posterior(g *Group, root int32, owner []int32, of State) Posterior {
	s := cover{Cover: m, Group: g, owner: owner, state: m.blank(g, every), lost: m.suppliers(g)}
	mine := s.mine(root)
	own := s.score(root, mine)
	for _, f := range of.Folded { // what the states explain, the cause of the states explains
		own += max(s.score(f, mine), 0)
	}
	type rival struct {
		h     int32
		score float64
	}
	rivals := []rival{{root, own}}
	if of.Lift > 0 { // or they are faults of their own and the root is none
		rivals = append(rivals, rival{of.Folded[0], own - of.Lift})
	}
	for h := range g.Causes {
		if h := int32(h); h == root || slices.Contains(of.Folded, h) || m.fits.Bound(&g.Causes[h], mine) < own-hopeless { //nolint:gosec // an index
			continue
		}
		rivals = append(rivals, rival{int32(h), s.score(int32(h), mine)}) //nolint:gosec // an index
	}
	top := 0.0
	for _, r := range rivals {
		top = max(top, r.score)
	}
	p := func(score float64) float64 { return math.Exp((score - top) / Spread) }
	type equal struct {
		fault  any
		parent int32
		score  int64
	}
	alike := func(r rival) equal {
		return equal{g.Causes[r.h].Fault, g.Causes[r.h].Parent, int64(math.Round(r.score * scoreUnits))}
	}
	equals := map[equal]int{}
	for _, r := range rivals {
		equals[alike(r)]++
	}
	sum := p(0)
	var out Posterior
	for _, r := range rivals {
		x := Share{r.h, p(r.score) / float64(equals[alike(r)])}
		sum += x.P
		out.Shares = append(out.Shares, x)
	}
	rank := make([]int, len(out.Shares))
	for i := range rank {
		rank[i] = i
		out.Shares[i].P *= certainty / sum
	}
	slices.SortStableFunc(rank, func(a, b int) int {
		switch x, y := rivals[a].score, rivals[b].score; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	sorted := make([]Share, len(rank))
	for i, at := range rank {
		sorted[i] = out.Shares[at]
	}
	out.Shares = sorted
	out.Unknown = 1 - certainty + certainty*p(0)/sum
	return out
}
