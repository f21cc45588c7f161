package solver

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampled explains a group by the likeliest joint state that a random search meets, and
// weighs causes over the states that it met. A state says which causes are there, which
// of them were brought about by another, and who owns each sign. Its score is
//
//	sum over causes: log-odds of being there, or of being brought about
//	               + sum over classes of [fit + gain of what it owns]
//
// over the same fits, leaks and lags as those of [Cover]; all signs left to themselves
// score 0. In one point it differs: a part that shows a sign which another cause owns
// is not silent, since two causes of one sign do not contradict each other.
//
// The search changes a state by adding a cause, dropping one, folding states into what
// may have brought them about or parting with them, and by giving single signs to
// another owner; each change is followed by the nearest improvement and accepted as
// Metropolis et al. (1953) do, from nothing while the temperature falls (Kirkpatrick et
// al., 1983) and from the cover. Since the improvements make the chain no reversible
// one, how often a state was met says little. The states are weighted by their scores
// instead, as in Bayesian model averaging over the models that a search finds (Madigan
// and Raftery, 1994).
type Sampled struct{ *Cover }

// NewSampled returns the method over the fits and states of a cover.
func NewSampled(m *Cover) *Sampled { return &Sampled{m} }

// The search is bounded by what it looks at, and by its changes.
const (
	sampleMost  = 200   // changes of a chain
	sampleLeast = 24    // the same for one sign
	samplePer   = 4     // more for each sign
	sampleWork  = 20000 // signs, classes and parts that are looked at for one group
	sampleHot   = 8.0   // temperature at first
	sampleKeep  = 64    // states that the posterior is taken over
)

// chain is a state, and what changed it.
type chain struct {
	cover
	refs   [][]choice
	said   [][]int32 // by cause and class: parts that show it, whoever owns that
	takers [][]int32 // by cause: what could have brought it about
	takes  [][]taken // by cause: what it could bring about
	out    [][]int32 // by cause and class: parts whose signs are not in the group, and which it is blamed for elsewhere
	able   []bool    // by cause: it may be blamed
	there  []bool
	parent []int32
	score  []float64 // by cause: what it adds while it is there
	joint  float64
	stale  []int32
	marked []bool
	log    []change
	undoes bool
	rng    *rand.Rand
}

// choice is a cause that may own a sign.
type choice struct {
	Ref
	gain float64
}

type taken struct {
	h, effect int32
	alone     bool
	unready   float64 // what it costs that it was not heard to show what comes before
}

// change is what a part of the state was before.
type change struct {
	what   uint8
	at, is int32
}

const (
	changeOwner uint8 = iota
	changeThere
	changeParent
)

// chain returns one over a group, with nothing blamed. With a root, only what explains
// its signs matters, and what is blamed elsewhere is there in any case.
func (m *Sampled) chain(g *Group, root int32) *chain {
	n := len(g.Causes)
	s := &chain{
		cover: m.run(g), refs: make([][]choice, len(g.Signs)), said: make([][]int32, n), out: make([][]int32, n),
		takers: make([][]int32, n), takes: make([][]taken, n), able: make([]bool, n), there: make([]bool, n),
		parent: make([]int32, n), score: make([]float64, n), marked: make([]bool, n),
		rng: rand.New(rand.NewPCG(uint64(n), uint64(len(g.Signs)))), //nolint:gosec // the same group has the same answer
	}
	for h := range g.Causes {
		x := &g.Causes[h]
		s.parent[h] = None
		s.able[h] = root != None || x.Whole && x.Base > 0
		s.said[h], s.out[h] = make([]int32, len(x.Classes)), make([]int32, len(x.Classes))
		for c := range x.Classes {
			for i := range x.Classes[c].Evidence {
				ev := &x.Classes[c].Evidence[i]
				if !ev.Said {
					continue
				}
				s.said[h][c]++
				if ev.Taken && root != None && x.Kept != 0 && int32(h) != root { //nolint:gosec // an index
					s.out[h][c]++
				}
				if ev.Sign != None {
					s.refs[ev.Sign] = append(s.refs[ev.Sign], choice{Ref{int32(h), int32(c)}, ev.Gain}) //nolint:gosec // indexes
				}
			}
		}
	}
	for by := range g.Causes {
		s.link(int32(by))                        //nolint:gosec // an index
		s.set(int32(by), s.elsewhere(int32(by))) //nolint:gosec // an index
	}
	s.settle()
	return s
}

// link notes which causes of the group are states that one could bring about, by node and time.
func (s *chain) link(by int32) {
	x := &s.Causes[by]
	for i := range x.Effects {
		f := &x.Fault.Effects[i]
		if f.State == x.Fault.Is || len(x.Effects[i]) == 0 {
			continue
		}
		for h := range s.Causes {
			y := &s.Causes[h]
			if int32(h) == by || y.Fault.Is != f.State || !y.Timed { //nolint:gosec // an index
				continue
			}
			part := find(x.Effects[i], y.Node)
			if part == nil || !x.before(y, i) {
				continue
			}
			if slices.Contains(s.takers[h], by) {
				continue
			}
			s.takers[h] = append(s.takers[h], by)
			unready := 0.0
			if !part.ready(f, y) {
				unready = x.unready(f)
			}
			s.takes[by] = append(s.takes[by], taken{int32(h), int32(i), f.SharedShows == 0 || s.without(y.Device, by), unready}) //nolint:gosec // an index
		}
	}
}

// elsewhere says whether a cause is blamed for other signs than those of the group.
func (s *chain) elsewhere(h int32) bool {
	return slices.ContainsFunc(s.out[h], func(k int32) bool { return k > 0 })
}

// stands says whether something speaks for a cause beside what its states show.
func (s *chain) stands(h int32) bool {
	for c := range s.state[h].classes {
		if s.state[h].classes[c].k > 0 && !s.Causes[h].Fault.Classes[c].Derived {
			return true
		}
	}
	return s.elsewhere(h)
}

// value is the likelihood of k signs that are worth w in class c of h, as it stands.
func (s *chain) value(h int32, c, k int, w float64) float64 {
	x := &s.Causes[h]
	cl, m := &x.Classes[c], &x.Fault.Classes[c]
	if m.Derived && k == 0 || cl.Parts == 0 && len(cl.Evidence) == 0 {
		return 0 // what shows no state is no state
	}
	k += int(s.out[h][c])
	if by := s.parent[h]; by != None {
		if c < x.Fault.Own() && k == 0 {
			return 0
		}
		if len(m.Path) > 0 && k > 0 && s.surelyShows(by, m.Sign, x.Device) > 0 {
			return w
		}
	}
	return s.fitBeside(h, c, k, max(0, int(s.said[h][c])-k), w)
}

// weighs is what h adds to the joint score while it is there.
func (s *chain) weighs(h int32) float64 {
	x := &s.Causes[h]
	total := 0.0
	if s.parent[h] == None {
		if total = x.start(); s.elsewhere(h) {
			total = 0 // it is there in any case
		}
		if s.follows(h) {
			total -= coincidence
		}
	}
	for c := range x.Classes {
		s.work++
		t := &s.state[h].classes[c]
		total += s.value(h, c, t.k, t.w)
	}
	return total + s.brings(h)
}

// follows says whether another cause that is there could have shown all that h does, or
// brought it about: that h came so soon after it by chance is the less likely.
func (s *chain) follows(h int32) bool {
	if slices.ContainsFunc(s.takers[h], func(by int32) bool { return s.there[by] }) {
		return true
	}
	var could []int32
	some := false
	s.owned(h, func(n int32) {
		if s.work++; some && len(could) == 0 {
			return
		}
		if some {
			could = slices.DeleteFunc(could, func(o int32) bool {
				return !slices.ContainsFunc(s.refs[n], func(r choice) bool { return r.Cause == o })
			})
			return
		}
		some = true
		for _, r := range s.refs[n] {
			if r.Cause != h && s.there[r.Cause] && s.parent[r.Cause] == None && s.stands(r.Cause) {
				could = append(could, r.Cause)
			}
		}
	})
	return len(could) > 0
}

// brings weighs which parts a cause brought into its states, and which not.
func (s *chain) brings(by int32) (total float64) {
	x := &s.Causes[by]
	for i := range x.Effects {
		f := &x.Fault.Effects[i]
		if len(x.Effects[i]) == 0 || f.State == x.Fault.Is {
			continue
		}
		parts := s.hanging(by, i)
		for which, alone := range [2]bool{false, true} {
			k, n, unready := 0, parts.n[which], 0.0
			onset, timed := x.Onset, x.Timed
			for _, t := range s.takes[by] {
				if int(t.effect) != i || t.alone != alone || s.parent[t.h] != by {
					continue
				}
				k++
				if unready += t.unready; t.unready > 0 {
					n++
				}
				if !x.Timed && (!timed || s.Causes[t.h].Onset < onset) {
					onset, timed = s.Causes[t.h].Onset, true
				}
			}
			if n == 0 {
				continue
			}
			late := uint8(LateSteps)
			if timed {
				late = Late(s.Now-onset, max(effectSoon, f.Delay/4))
			}
			rest := float64(max(0, n-max(k, parts.show[which]))) * float64(late) / LateSteps
			if s.elsewhere(by) { // that is weighed already
				if rest = 0; k == 0 {
					continue
				}
			}
			total += oddsOf(f, alone).brought(k, rest) - unready
		}
	}
	return total
}

// touch has a cause weighed again.
func (s *chain) touch(h int32) {
	if !s.marked[h] {
		s.marked[h] = true
		s.stale = append(s.stale, h)
	}
}

// settle brings the joint score up to date.
func (s *chain) settle() float64 {
	for _, h := range s.stale {
		s.marked[h] = false
		was := s.score[h]
		if s.score[h] = 0; s.there[h] {
			s.score[h] = s.weighs(h)
		}
		s.joint += s.score[h] - was
	}
	s.stale = s.stale[:0]
	return s.joint
}

func (s *chain) note(what uint8, at, is int32) {
	if !s.undoes {
		s.log = append(s.log, change{what, at, is})
	}
}

// give gives a sign to an owner, or to none.
func (s *chain) give(n, to int32) {
	from := s.owner[n]
	if from == to {
		return
	}
	s.note(changeOwner, n, from)
	if from != None {
		t := &s.state[from].classes[s.class[n]]
		t.k--
		if t.w -= s.worth[n]; t.k == 0 {
			t.w = 0
			s.stir(from)
		}
		s.touch(from)
	}
	s.owner[n], s.class[n] = None, None
	for _, r := range s.refs[n] {
		if to != None && r.Cause == to {
			s.owner[n], s.class[n], s.worth[n] = to, r.Class, r.gain
			t := &s.state[to].classes[r.Class]
			if t.k++; t.k == 1 {
				s.stir(to)
			}
			t.w += r.gain
			s.touch(to)
			break
		}
	}
}

// stir has those weighed again who own what a cause could have shown.
func (s *chain) stir(h int32) {
	for c := range s.Causes[h].Classes {
		for i := range s.Causes[h].Classes[c].Evidence {
			if n := s.Causes[h].Classes[c].Evidence[i].Sign; n != None && s.owner[n] != None {
				s.touch(s.owner[n])
			}
		}
	}
}

// set says whether a cause is there.
func (s *chain) set(h int32, there bool) {
	if s.there[h] == there {
		return
	}
	s.note(changeThere, h, boolOf(s.there[h]))
	s.there[h] = there
	s.blame(h, there)
	s.touch(h)
	for _, t := range s.takes[h] {
		s.touch(t.h)
	}
	s.stir(h)
	if s.Causes[h].Fault.Together > 0 { // who has power, and can speak, has changed
		for o := range s.there {
			if s.there[o] {
				s.touch(int32(o)) //nolint:gosec // an index
			}
		}
	}
}

func boolOf(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

// hang says by what a state was brought about.
func (s *chain) hang(h, by int32) {
	if s.parent[h] == by {
		return
	}
	s.note(changeParent, h, s.parent[h])
	for _, o := range [2]int32{s.parent[h], by} {
		if o != None {
			s.touch(o)
		}
	}
	s.parent[h] = by
	s.touch(h)
	s.stir(h)
}

// undo takes back all changes since a mark.
func (s *chain) undo(mark int) {
	s.undoes = true
	for i := len(s.log) - 1; i >= mark; i-- {
		switch c := s.log[i]; c.what {
		case changeOwner:
			s.give(c.at, c.is)
		case changeThere:
			s.set(c.at, c.is == 1)
		case changeParent:
			s.hang(c.at, c.is)
		}
	}
	s.undoes = false
	s.log = s.log[:mark]
	s.settle()
}

// best gives a sign to who gains most by it, of those that are there.
func (s *chain) best(n int32) {
	from, most, value := s.owner[n], None, 0.0
	if from != None {
		t := &s.state[from].classes[s.class[n]]
		value = s.value(from, int(s.class[n]), t.k, t.w) - s.value(from, int(s.class[n]), t.k-1, t.w-s.worth[n])
		if most = from; value < 0 {
			most, value = None, 0
		}
	}
	for _, r := range s.refs[n] {
		fault := s.Causes[r.Cause].Fault
		if s.work++; r.Cause == from || !s.there[r.Cause] || fault.Classes[r.Class].Derived && !s.stands(r.Cause) ||
			s.parent[r.Cause] != None && int(r.Class) < fault.Own() {
			continue
		}
		t := &s.state[r.Cause].classes[r.Class]
		if v := s.value(r.Cause, int(r.Class), t.k+1, t.w+r.gain) - s.value(r.Cause, int(r.Class), t.k, t.w); v > value {
			most, value = r.Cause, v
		}
	}
	s.give(n, most)
}

// add has a cause there, with the signs that it explains best.
func (s *chain) add(h int32) {
	s.set(h, true)
	x := &s.Causes[h]
	for c := range x.Classes {
		if x.Fault.Classes[c].Derived && !s.stands(h) {
			continue
		}
		ev := x.Classes[c].Evidence
		var slots []slot
		free := slot{h: None}
		for i := range ev {
			n := ev[i].Sign
			switch s.work++; {
			case !ev[i].Said || n == None || s.owner[n] == h:
			case s.owner[n] == None:
				free.k++
				free.gain += ev[i].Gain
			default:
				slots = s.take(slots, n)
			}
		}
		for i, from := range append([]slot{free}, slots...) {
			k, w := 0, 0.0
			for j := range ev {
				if n := ev[j].Sign; ev[j].Said && n != None && s.owner[n] == from.h && (i == 0 || s.class[n] == from.c) {
					k++
					w += ev[j].Gain
				}
			}
			if k == 0 {
				continue
			}
			t := &s.state[h].classes[c]
			v := s.value(h, c, t.k+k, t.w+w) - s.value(h, c, t.k, t.w)
			if i > 0 {
				o := &s.state[from.h].classes[from.c]
				v -= s.value(from.h, int(from.c), o.k, o.w) - s.value(from.h, int(from.c), o.k-from.k, o.w-from.gain)
			}
			if v <= 0 {
				continue
			}
			for j := range ev {
				if n := ev[j].Sign; ev[j].Said && n != None && s.owner[n] == from.h && (i == 0 || s.class[n] == from.c) {
					s.give(n, h)
				}
			}
		}
		for _, from := range slots { // who has lost too much goes
			if s.settle(); s.there[from.h] && s.score[from.h] < 0 && s.parent[from.h] == None && !s.elsewhere(from.h) {
				s.drop(from.h)
			}
		}
	}
}

// drop has a cause no longer there; its signs go to whom they fit best.
func (s *chain) drop(h int32) {
	for _, t := range s.takes[h] {
		if s.parent[t.h] == h {
			s.hang(t.h, None)
		}
	}
	s.hang(h, None)
	var had []int32
	s.owned(h, func(n int32) { had = append(had, n) })
	for _, n := range had {
		s.give(n, None)
	}
	s.set(h, s.elsewhere(h))
	for _, n := range had {
		s.best(n)
	}
}

// refill adds causes but one for signs that nobody owns, while that gains.
func (s *chain) refill(n, but int32) {
	for range 4 {
		best, value := None, 0.0
		for _, r := range s.refs[n] {
			if h := r.Cause; h != but && s.able[h] && !s.there[h] && s.owner[n] == None {
				mark := len(s.log)
				was := s.settle()
				s.add(h)
				if v := s.settle() - was; v > value {
					best, value = h, v
				}
				s.undo(mark)
			}
		}
		if best == None {
			return
		}
		s.add(best)
	}
}

// fold hangs all states on what could have brought them about, where that gains.
func (s *chain) fold(by int32) {
	if !s.there[by] {
		s.add(by)
	}
	for _, alone := range [2]bool{true, false} {
		was, mark := s.settle(), len(s.log)
		for _, t := range s.takes[by] {
			h := t.h
			if t.alone != alone || !s.there[h] || s.parent[h] != None || s.parent[by] != None {
				continue
			}
			s.hang(h, by)
			var lose []int32
			s.owned(h, func(n int32) {
				if int(s.class[n]) < s.Causes[h].Fault.Own() && !s.linked(n, by) {
					lose = append(lose, n)
				}
			})
			for _, n := range lose {
				s.give(n, None)
				s.best(n)
			}
		}
		if s.settle() < was && alone {
			s.undo(mark)
		}
	}
}

// step changes the state at random, and keeps that as the temperature allows.
func (s *chain) step(heat float64, said, folds []int32) {
	was := s.settle()
	s.log = s.log[:0]
	n := said[s.rng.IntN(len(said))]
	switch at := s.rng.IntN(8); {
	case at == 0 && len(folds) > 0:
		by := folds[s.rng.IntN(len(folds))]
		if !slices.ContainsFunc(s.takes[by], func(t taken) bool { return s.parent[t.h] == by }) {
			s.fold(by)
			break
		}
		for _, t := range s.takes[by] {
			if s.parent[t.h] == by {
				s.hang(t.h, None)
			}
		}
	case at < 3:
		s.best(n)
	default:
		var list []int32
		for _, r := range s.refs[n] {
			if s.able[r.Cause] {
				list = append(list, r.Cause)
			}
		}
		if len(list) == 0 {
			return
		}
		h := list[s.rng.IntN(len(list))]
		if s.there[h] {
			var had []int32
			s.owned(h, func(n int32) { had = append(had, n) })
			s.drop(h)
			for _, n := range had {
				s.refill(n, h)
			}
			break
		}
		s.add(h)
	}
	if d := s.settle() - was; d < 0 && s.rng.Float64() >= math.Exp(d/heat) {
		s.undo(0)
	}
}

// met is a state that was met.
type met struct {
	joint  float64
	owner  []int32
	parent []int32
	there  []bool
}

func (s *chain) met() met {
	return met{joint: s.settle(), owner: slices.Clone(s.owner), parent: slices.Clone(s.parent), there: slices.Clone(s.there)}
}

// become brings the chain into another state.
func (s *chain) become(there []bool, parent, owner []int32) {
	for h := range s.there {
		s.set(int32(h), there[h])   //nolint:gosec // an index
		s.hang(int32(h), parent[h]) //nolint:gosec // an index
	}
	for n := range s.owner {
		s.give(int32(n), owner[n]) //nolint:gosec // an index
	}
	s.settle()
	s.log = s.log[:0]
}

// search runs the chains and returns the states that it met, the best first.
func (s *chain) search(from *met) []met {
	var said, folds []int32
	for n := range s.Signs {
		if s.Signs[n].Said && len(s.refs[n]) > 0 {
			said = append(said, int32(n)) //nolint:gosec // an index
		}
	}
	for h := range s.takes {
		if len(s.takes[h]) > 0 {
			folds = append(folds, int32(h)) //nolint:gosec // an index
		}
	}
	list := []met{s.met()}
	keep := func() {
		if i := slices.IndexFunc(list, func(m met) bool { return s.same(&m) }); i >= 0 {
			if s.joint > list[i].joint {
				list[i] = s.met()
			}
			return
		}
		if len(list) == sampleKeep {
			if worst := &list[len(list)-1]; s.joint > worst.joint {
				*worst = s.met()
			}
		} else {
			list = append(list, s.met())
		}
		slices.SortStableFunc(list, func(a, b met) int { return cmp.Compare(b.joint, a.joint) })
	}
	if len(said) == 0 {
		return list
	}
	steps := min(sampleMost, sampleLeast+samplePer*len(said))
	run := func(hot float64) {
		for i, budget := 0, s.work+sampleWork; i < steps && s.work < budget; i++ {
			s.step(1+(hot-1)*max(0, 1-2*float64(i)/float64(steps)), said, folds)
			s.settle()
			keep()
		}
	}
	run(sampleHot)
	if from != nil {
		s.become(from.there, from.parent, from.owner)
		keep()
		run(1)
	}
	return list
}

// same says whether the chain stands where the same causes are there of themselves.
func (s *chain) same(m *met) bool {
	if !slices.Equal(s.there, m.there) {
		return false
	}
	for h := range s.parent {
		if (s.parent[h] == None) != (m.parent[h] == None) {
			return false
		}
	}
	return true
}

// Explain implements [Method].
func (m *Sampled) Explain(g *Group) Explanation {
	x := m.Cover.Explain(g)
	s := m.chain(g, None)
	from := &met{there: make([]bool, len(g.Causes)), parent: slices.Clone(s.parent), owner: make([]int32, len(g.Signs))}
	for n := range from.owner {
		if from.owner[n] = None; x.Class[n] != None && x.Owner[n] != None && !g.Causes[x.Owner[n]].Fault.Classes[x.Class[n]].Derived {
			from.owner[n] = x.Owner[n]
		}
	}
	for i, h := range x.Blamed {
		from.there[h] = true
		for _, f := range x.States[i].Folded {
			if slices.Contains(s.takers[f], h) {
				from.there[f], from.parent[f] = true, h
			}
		}
	}
	for n := range from.owner { // what was handed over is the states' again
		if o := x.Owner[n]; o != None && from.owner[n] == None {
			for _, r := range s.refs[n] {
				if from.parent[r.Cause] == o && (int(r.Class) >= g.Causes[r.Cause].Fault.Own() || s.linked(int32(n), o)) { //nolint:gosec // an index
					from.owner[n] = r.Cause
					break
				}
			}
		}
	}
	list := s.search(from)
	s.become(list[0].there, list[0].parent, list[0].owner)
	return s.explanation()
}

// explanation tells the state as the cover would.
func (s *chain) explanation() Explanation {
	var accepted []int32
	for h := range s.there {
		h := int32(h) //nolint:gosec // an index
		if !s.there[h] || s.parent[h] != None {
			continue
		}
		x := &s.state[h]
		x.Score = s.score[h]
		for _, t := range s.takes[h] {
			if s.parent[t.h] == h {
				x.Folded = append(x.Folded, t.h)
				x.Score += s.score[t.h]
			}
		}
		if len(x.Folded) > 0 && !slices.ContainsFunc(x.classes, func(t tally) bool { return t.k > 0 }) {
			for _, f := range x.Folded {
				x.Lift += s.score[f] - s.Causes[f].start()
			}
			x.Lift = max(0, x.Lift)
		}
		accepted = append(accepted, h)
	}
	for _, h := range accepted {
		if len(s.state[h].Folded) > 0 {
			s.state[h].Folded = append(s.state[h].Folded, s.shadowed(h, s.state[h].Folded, accepted)...)
		}
		for _, f := range s.state[h].Folded {
			s.handOver(f, h)
		}
	}
	accepted = slices.DeleteFunc(accepted, func(h int32) bool { return !s.state[h].accepted })
	slices.SortStableFunc(accepted, func(a, b int32) int { return cmp.Compare(s.state[b].Score, s.state[a].Score) })
	s.attach()
	return s.cover.explanation(accepted)
}

// Posterior implements [Method]: the share of a cause is the weight of the states in which
// it owns most of what the signs of the root are worth.
func (m *Sampled) Posterior(g *Group, root int32, owner []int32, of State) Posterior {
	s := m.chain(g, root)
	for n := range s.refs {
		if owner[n] != root {
			s.refs[n] = nil // it is explained
		}
	}
	from := &met{there: make([]bool, len(g.Causes)), parent: slices.Clone(s.parent), owner: make([]int32, len(g.Signs))}
	copy(from.there, s.there)
	from.there[root] = true
	for n := range from.owner {
		if from.owner[n] = None; owner[n] == root {
			for _, r := range s.refs[n] {
				if r.Cause == root {
					from.owner[n] = root
				}
			}
		}
	}
	for _, f := range of.Folded {
		if slices.Contains(s.takers[f], root) {
			from.there[f], from.parent[f] = true, root
			for n := range from.owner {
				if from.owner[n] != None || owner[n] != root {
					continue
				}
				for _, r := range s.refs[n] {
					if r.Cause == f && (int(r.Class) >= g.Causes[f].Fault.Own() || s.linked(int32(n), root)) { //nolint:gosec // an index
						from.owner[n] = f
					}
				}
			}
		}
	}
	list := s.search(from)
	worth := make([]float64, len(g.Signs))
	for n := range worth {
		for _, r := range s.refs[n] {
			worth[n] = max(worth[n], r.gain)
		}
	}
	by := make([]float64, len(g.Causes))
	none, sum := 0.0, 0.0
	for i := range list {
		x := &list[i]
		p := math.Exp((x.joint - list[0].joint) / Spread)
		sum += p
		has := make([]float64, len(g.Causes))
		free, most := 0.0, None
		for n, o := range x.owner {
			if len(s.refs[n]) == 0 {
				continue
			}
			if o == None {
				free += worth[n]
				continue
			}
			if x.parent[o] != None {
				o = x.parent[o]
			}
			if has[o] += worth[n]; most == None || has[o] > has[most] {
				most = o
			}
		}
		if most == None || free > has[most] {
			none += p
		} else {
			by[most] += p
		}
	}
	return shared(by, root, none, sum)
}

var _ Method = (*Sampled)(nil)
