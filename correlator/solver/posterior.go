package solver

import (
	"cmp"
	"math"
	"slices"

	"auspex/schemas/faults/propagation"
)

// few are compared one by one sooner than hashed.
const few = 16

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
// by Spread, but where the root has one sign. A rival that is blamed for other signs already need not come to be for these,
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
	spread := Spread
	if alone(owner, root) {
		spread = 1
	}
	p := func(score float64) float64 { return math.Exp((score - top) / spread) }
	type equal struct {
		fault  *propagation.Fault
		parent int32
		score  int64
	}
	alike := func(r rival) equal {
		return equal{g.Causes[r.h].Fault, g.Causes[r.h].Parent, int64(math.Round(r.score * scoreUnits))}
	}
	likes := make([]equal, len(rivals))
	for i, r := range rivals {
		likes[i] = alike(r)
	}
	var counts map[equal]int
	if len(rivals) > few {
		counts = make(map[equal]int, len(rivals))
		for _, l := range likes {
			counts[l]++
		}
	}
	equals := func(l equal) (n int) {
		if counts != nil {
			return counts[l]
		}
		for _, o := range likes {
			if o == l {
				n++
			}
		}
		return n
	}
	sum := p(0)
	var out Posterior
	out.Shares = make([]Share, 0, len(rivals))
	for i, r := range rivals {
		x := Share{r.h, p(r.score) / float64(equals(likes[i])), r.h != root && likes[i] == likes[0]}
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

// alone says whether a root has one sign: it hangs together with no other.
func alone(owner []int32, root int32) bool {
	n := 0
	for _, o := range owner {
		if o == root {
			n++
		}
	}
	return n == 1
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
	s.told(root)
	own := s.score(root, s.left)
	s.settle(root)
	return own + s.through(root, of.Folded)
}

// told sets out from the signs of an owner, of which nothing is explained.
func (s *cover) told(owner int32) {
	s.open = s.open[:0]
	for _, o := range s.owner {
		s.open = append(s.open, o == owner)
	}
}

// left is true for what nothing explains yet.
func (s *cover) left(ev *Evidence) bool { return ev.Sign != None && s.open[ev.Sign] }

// settle notes that the classes that a cause was found to explain are explained.
func (s *cover) settle(h int32) {
	x := &s.Causes[h]
	for _, c := range x.Asked() {
		if !s.state[h].classes[c].claimed {
			continue
		}
		for i := range x.Classes[c].Evidence {
			if n := x.Classes[c].Evidence[i].Sign; n != None {
				s.open[n] = false
			}
		}
	}
}

// more is what a cause explains of what is left beside what it has: signs that are blamed on it,
// or on by. Those are not silent. It also says how many these are.
func (s *cover) more(h, by int32) (gain float64, has int) {
	x := &s.Causes[h]
	for _, c := range x.Asked() {
		t := &s.state[h].classes[c]
		if t.claimed = false; x.Fault.Classes[c].Derived {
			continue
		}
		had := 0
		for _, ev := range x.Classes[c].Evidence {
			if outside(ev) || ev.Said && ev.Sign != None && !s.open[ev.Sign] && (s.owner[ev.Sign] == h || s.owner[ev.Sign] == by) {
				had++
			}
		}
		has += had
		if k, w := x.Classes[c].sum(s.left); k > 0 {
			if v := s.fit(h, c, had+k, w) - s.fit(h, c, had, 0); v > 0 {
				gain += v
				t.claimed = true
			}
		}
	}
	return gain, has
}

// through is what states of h's making explain of what is left: more than they do already, or all.
func (s *cover) through(h int32, states []int32) (total float64) {
	for _, y := range states {
		x := &s.Causes[y]
		if y == h || !slices.ContainsFunc(x.Asked(), func(c int) bool { k, _ := x.Classes[c].sum(s.left); return k > 0 }) {
			continue
		}
		given, ok := s.given(h, y)
		if !ok {
			continue
		}
		v, has := s.more(y, h)
		if has == 0 {
			v = s.score(y, s.left) - x.kept() + given
		}
		if v > 0 {
			total += v
			s.settle(y)
		}
	}
	return total
}

// given is what a state is likelier by as one of the making of h, and whether it can be one.
func (s *cover) given(h, y int32) (gain float64, ok bool) {
	x, state := &s.Causes[h], &s.Causes[y]
	if x.Effects == nil {
		return 0, false
	}
	for i := range x.Fault.Effects {
		f := &x.Fault.Effects[i]
		if f.State != state.Fault.Is || !state.Timed || !x.before(state, i) {
			continue
		}
		part := find(x.Effects[i], state.Node)
		if part == nil {
			continue
		}
		alone := f.SharedShows == 0 || s.without(state.Device, h)
		p := s.brings(h, i, part, alone)
		v := math.Log(p/(1-p)) - state.Prior
		if !alone {
			v -= s.parted(y, h, f)
		}
		if !part.ready(f, state) {
			v -= x.unready(f)
		}
		if !ok || v > gain {
			gain, ok = v, true
		}
	}
	return gain, ok
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
// not come to be, and what it shows elsewhere is not silent. States of its making explain what
// is left, but for the other one itself: that it is none was decided. It also says whether all
// is explained so.
func (s *cover) beside(h, root int32) (score float64, all bool) {
	s.told(root)
	score, _ = s.more(h, h)
	s.settle(h)
	if len(s.Causes[h].Effects) > 0 {
		score += s.through(h, s.states(root))
	}
	for n := range s.open {
		if s.open[n] && s.Signs[n].Said {
			return score, false
		}
	}
	return score, true
}

// brings is how probable it is that an effect of h brings a part into its state, given which of
// the others show it.
func (s *cover) brings(h int32, effect int, part *Part, alone bool) float64 {
	x := &s.Causes[h]
	f, all, which := &x.Fault.Effects[effect], s.hanging(h, effect), 0
	if alone {
		which = 1
	}
	n, k := float64(all.n[which]), float64(all.show[which])
	if part.ready(f, nil) {
		if n--; part.Shows {
			k--
		}
	}
	o := oddsOf(f, alone)
	a, b := betaOf(o.share, o.c)
	rest := (n - k) * float64(Late(s.Now-x.Onset, max(effectSoon, f.Delay/4))) / LateSteps
	k, rest = max(0, k), max(0, rest)
	p := (a + k) / (a + b + k + rest)
	if k == 0 { // it may show on none
		q := o.shows * math.Exp(logBeta(a, rest+b)-logBeta(a, b))
		p *= q / (q + 1 - o.shows)
	}
	return min(p, certainty)
}

// states returns the states that show a sign of an owner.
func (s *cover) states(owner int32) (list []int32) {
	for n := range s.Signs {
		if s.Signs[n].Said && s.owner[n] == owner {
			for _, l := range s.Signs[n].Of {
				if l.Cause != owner && s.Causes[l.Cause].Fault.Is != "" && !slices.Contains(list, l.Cause) {
					list = append(list, l.Cause)
				}
			}
		}
	}
	return list
}
