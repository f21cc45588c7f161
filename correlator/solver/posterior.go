package solver

import (
	"cmp"
	"math"
	"slices"
)

// Share is how probable a cause is.
type Share struct {
	Cause int32
	P     float64
	Equal bool // to the root: nothing that is known tells them apart
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
// by Spread. A rival that is blamed for other signs already need not come to be for these,
// and where it could have shown them all, the root is a coincidence. Equals of which nothing
// is known but that there are as many share what one of them would have: how many there
// are says nothing.
func (m *Cover) Posterior(g *Group, root int32, owner []int32, of State) Posterior {
	s := cover{Cover: m, Group: g, owner: owner, state: m.blank(g, whichever)}
	m.suppliers(g)
	mine := s.mine(root)
	own := s.explains(root, of)
	kept := s.Causes[root].kept() // it speaks for a fault, for this one no more than for another
	follows := false
	type rival struct {
		h     int32
		score float64
	}
	rivals := []rival{{root, own}}
	if of.Lift > 0 { // or they are faults of their own and the root is none
		rivals = append(rivals, rival{of.Folded[0], own - of.Lift})
	}
	for h := range int32(len(g.Causes)) { //nolint:gosec // an index
		switch {
		case h == root || slices.Contains(of.Folded, h):
		case g.elsewhere(h):
			x, all := s.beside(h, root)
			rivals = append(rivals, rival{h, x})
			follows = follows || all
		case m.fits.Bound(&g.Causes[h], mine) >= own-hopeless:
			rivals = append(rivals, rival{h, s.score(h, mine) - s.Causes[h].kept() + kept})
		}
	}
	if follows {
		rivals[0].score -= coincidence
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
		like := alike(r)
		x := Share{r.h, p(r.score) / float64(equals[like]), r.h != root && like == alike(rivals[0])}
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

// shared is the posterior where each cause has a weight, and nothing known has some of their sum.
func shared(by []float64, root int32, none, sum float64) Posterior {
	out := Posterior{Unknown: 1 - certainty + certainty*none/sum}
	for h, p := range by {
		if p > 0 || int32(h) == root { //nolint:gosec // an index
			out.Shares = append(out.Shares, Share{Cause: int32(h), P: certainty * p / sum}) //nolint:gosec // an index
		}
	}
	slices.SortStableFunc(out.Shares, func(a, b Share) int {
		if c := cmp.Compare(b.P, a.P); c != 0 {
			return c
		}
		return int(boolOf(b.Cause == root) - boolOf(a.Cause == root))
	})
	return out
}

// explains is what a root explains, with its states.
func (s *cover) explains(root int32, of State) float64 {
	mine := s.mine(root)
	own := s.score(root, mine)
	for _, f := range of.Folded { // what the states explain, the cause of the states explains
		own += max(s.score(f, mine), 0)
	}
	return own
}

// Least is the bound below which a cause that is blamed for nothing else is no rival of a root.
func (m *Cover) Least(g *Group, root int32, owner []int32, of State) float64 {
	s := cover{Cover: m, Group: g, owner: owner, state: m.blank(g, whichever)}
	m.suppliers(g)
	return s.explains(root, of) - hopeless
}

// elsewhere says whether a cause is blamed for signs that are not in the group.
func (g *Group) elsewhere(h int32) bool {
	x := &g.Causes[h]
	return x.Kept != 0 && slices.ContainsFunc(x.Asked(), func(c int) bool { return slices.ContainsFunc(x.Classes[c].Evidence, outside) })
}

func outside(ev Evidence) bool { return ev.Sign == None && ev.Taken && ev.Said }

// beside weighs a cause that is blamed already for the signs of another one too: it need
// not come to be, what it shows elsewhere is not silent, and signs that its states show
// are its own. It also says whether it could have shown all of them.
func (s *cover) beside(h, root int32) (score float64, all bool) {
	mine := s.mine(root)
	x := &s.Causes[h]
	linked, some := 0, 0
	for _, c := range x.Asked() {
		k, w := x.Classes[c].sum(mine)
		if linked += k; k == 0 {
			continue
		}
		has := 0
		for _, ev := range x.Classes[c].Evidence {
			if outside(ev) || ev.Said && ev.Sign != None && s.owner[ev.Sign] == h {
				has++
			}
		}
		before := 0.0
		if has > 0 || !x.Fault.Classes[c].Derived {
			before = s.fit(h, c, has, 0)
		}
		score += max(0, s.fit(h, c, has+k, w)-before)
	}
	for n := range s.Signs {
		if s.Signs[n].Said && s.owner[n] == root {
			some++
		}
	}
	return score, linked == some
}
