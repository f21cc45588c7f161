package solver

import (
	"cmp"
	"math"
	"slices"
	"time"

	"auspex/schemas/faults/propagation"
)

// Cover explains a group by a small set of causes: the best first, as long as one
// explains more than it costs; then the set is improved, as signs change hands, sets
// replace one cause, and one cause replaces many that are states of its making.
type Cover struct {
	fits    *Fits
	showing map[string][]int     // signs by which a part shows that it is in a state
	sure    map[string][]float64 // how surely, one by one

	// buffers of one run
	worth    []float64
	state    []state
	tally    []tally
	lost     []supplier
	out      []int32 // by supplier: its place in lost, from 1
	hangs    []hangs
	twin     []int32 // by cause: the next of the same fault of the same part; itself where there is none
	order    []int64 // of causes, by part
	ranks    ranking
	slots    []slot
	heirs    []Ref
	list     []int32
	most     []float64
	credible []int32 // causes of which the group has all signs, and that their signs make likely
	open     []bool  // by sign: that it is of an owner, and not explained yet
	begun    []int32 // in fold: causes that are blamed and no states, and are known to have begun
	were     []int32 // in split: those that were blamed before it
	held     []holding
	seen     []bool // in split: by cause
	rivals   []int32
	inState  []int32 // in foldable
	making   making
}

// blank returns the states of the causes of a group; only those of which tallied is
// true have room to count in. They are valid until the next call.
func (m *Cover) blank(g *Group, tallied func(h int) bool) []state {
	n := len(g.Causes)
	m.state = slices.Grow(m.state[:0], n)[:n]
	clear(m.state)
	need := 0
	for h := range g.Causes {
		if tallied(h) {
			need += len(g.Causes[h].Classes)
		}
	}
	m.tally = slices.Grow(m.tally[:0], need)[:need]
	all := m.tally
	for h := range g.Causes {
		if x := &g.Causes[h]; tallied(h) {
			k := len(x.Classes)
			m.state[h].classes, all = all[:k:k], all[k:]
			for _, c := range x.Asked() { // nobody asks after the others
				m.state[h].classes[c] = tally{}
			}
		}
	}
	return m.state
}

// suppliers sets out from those that are blamed elsewhere.
func (m *Cover) suppliers(g *Group) {
	m.change(func() {
		m.lost = m.lost[:0]
		for i := range g.Lost {
			m.lost = append(m.lost, supplier{g.Lost[i], None})
		}
	})
	m.hangs = m.hangs[:0]
}

// change changes which suppliers are blamed; each is one once.
func (m *Cover) change(of func()) {
	for i := range m.lost {
		m.out[m.lost[i].Node] = 0
	}
	of()
	for i := range m.lost {
		n := int(m.lost[i].Node)
		if more := n + 1 - len(m.out); more > 0 {
			m.out = append(m.out, make([]int32, more)...)
		}
		m.out[n] = int32(i + 1) //nolint:gosec // an index
	}
}

// gone returns a supplier that is blamed, or nil.
func (m *Cover) gone(node int32) *supplier {
	if int(node) >= len(m.out) || m.out[node] == 0 {
		return nil
	}
	return &m.lost[m.out[node]-1]
}

func whichever(int) bool { return true }

// NewCover returns the method over a model's states. It is not safe for concurrent use.
func NewCover(m *propagation.Model, fits *Fits) *Cover {
	c := &Cover{fits: fits, showing: map[string][]int{}, sure: map[string][]float64{}}
	shown(m, func(state string, cl *propagation.Class) {
		c.showing[state], c.sure[state] = append(c.showing[state], cl.Sign), append(c.sure[state], min(cl.Shows*cl.Share, certainty))
	})
	return c
}

// Showing returns by which signs a part shows that it is in a state.
func Showing(m *propagation.Model) map[string][]int {
	out := map[string][]int{}
	shown(m, func(state string, cl *propagation.Class) { out[state] = append(out[state], cl.Sign) })
	return out
}

// shown visits the signs by which a part itself shows that it is in a state.
func shown(m *propagation.Model, visit func(state string, cl *propagation.Class)) {
	for f := range m.Faults {
		fault := &m.Faults[f]
		for c := fault.Own(); fault.Is != "" && c < len(fault.Classes); c++ {
			if len(fault.Classes[c].Path) == 0 {
				visit(fault.Is, &fault.Classes[c])
			}
		}
	}
}

// tally is what a cause has of a class: signs owned and what they are worth.
type tally struct {
	k       int
	w       float64
	claimed bool
}

// holding is a sign with what it was to its owner.
type holding struct {
	sign, class int32
	worth       float64
}

type state struct {
	State
	classes  []tally
	accepted bool
	given    float64 // log-odds that come with a blamed cause, of whose making it is
	hangs    int     // where those of its effects begin, from 1
}

// hangs counts the parts that an effect could bring into its state: those that something
// else feeds, and those that nothing does.
type hangs struct {
	when    int // number of changes of who is blamed, from 1; 0: not counted
	n, show [2]int
}

// cover is one run of the method.
type cover struct {
	*Cover
	*Group
	owner, class []int32   // by sign
	worth        []float64 // by sign, to its owner
	state        []state
	blames       int // changes of which suppliers are blamed
	work         int
	paired       bool // twins is done
}

type supplier struct {
	Supplier
	cause int32 // None: it is none of the group
}

// run returns a run over a group, with nothing blamed. It is valid until the next one.
func (m *Cover) run(g *Group) cover {
	n := len(g.Signs)
	m.worth = slices.Grow(m.worth[:0], n)[:n]
	clear(m.worth)
	s := cover{
		Cover: m, Group: g, owner: make([]int32, n), class: make([]int32, n), worth: m.worth, state: m.blank(g, whichever),
	}
	m.suppliers(g)
	for i := range s.owner {
		s.owner[i], s.class[i] = None, None
	}
	return s
}

// Explain implements [Method].
func (m *Cover) Explain(g *Group) Explanation {
	s := m.run(g)
	return s.explanation(s.explain())
}

// explanation is what a run says that blames some.
func (s *cover) explanation(accepted []int32) Explanation {
	x := Explanation{Owner: s.owner, Class: s.class, Blamed: accepted, States: make([]State, len(accepted)), Work: s.work}
	for i, h := range accepted {
		x.States[i] = s.state[h].State
		if !s.Causes[h].Whole {
			x.Partial = append(x.Partial, h)
		}
	}
	return x
}

func (s *cover) explain() []int32 {
	contenders := s.credible[:0]
	for h := range s.Causes {
		if c := &s.Causes[h]; c.Whole && c.Base > 0 {
			s.state[h].Score = c.Base
			contenders = append(contenders, int32(h)) //nolint:gosec // an index
		}
	}
	s.credible = contenders
	accepted := s.pick(contenders, func(h int32) { s.blame(h, true) })
	if len(accepted) == 0 {
		return nil
	}
	for _, h := range s.anticipate(accepted) {
		if !slices.Contains(contenders, h) {
			contenders = append(contenders, h)
		}
	}
	accepted = s.contest(s.split(accepted, contenders), contenders)
	accepted = s.yield(s.fold(s.expect(accepted)))
	s.attach()
	return accepted
}

// yield hands what a cause owns to another that is blamed, where that one explains it better,
// with all that its states show: the cable of a server that shut down hot is no fault of its own.
func (s *cover) yield(accepted []int32) []int32 {
	for _, h := range slices.Backward(accepted) {
		var heirs []int32
		s.owned(h, func(n int32) {
			for _, l := range s.Signs[n].Of {
				if l.Cause != h && s.state[l.Cause].accepted && !slices.Contains(heirs, l.Cause) {
					heirs = append(heirs, l.Cause)
				}
			}
		})
		if len(heirs) == 0 {
			continue
		}
		best, value := None, s.explains(h, s.state[h].State)+stealGain-coincidence
		for _, o := range heirs {
			x := s.Causes[o].Fault
			if y := &s.Causes[h]; x.Together > 0 && len(s.state[h].Folded) > 0 && s.Causes[o].Parent != y.Parent { // by what it took along it has to explain them better; an equal was weighed with it
				s.blame(h, false) // what is fed by both has power left then
				x, all := s.beside(o, h)
				if s.blame(h, true); all && x > value+coincidence {
					best, value = o, x
				}
				continue
			}
			if x.Together > 0 || slices.ContainsFunc(x.Effects, func(f propagation.Effect) bool { return f.State == s.Causes[h].Fault.Is }) {
				continue // where it brings the state about was weighed before; most that hangs on a supplier has another
			}
			if x, all := s.taking(o, h); all && x > value {
				best, value = o, x
			}
		}
		if best == None {
			continue
		}
		s.blame(h, false)
		s.owned(h, func(n int32) {
			s.owner[n] = None
			for _, l := range s.Signs[n].Of {
				if l.Cause == best {
					s.owner[n], s.class[n] = best, l.Class
				}
			}
		})
	}
	return slices.DeleteFunc(accepted, func(h int32) bool { return !s.state[h].accepted })
}

// taking is what a cause that is blamed gains by all signs of another one, with those that only
// follow from it, whether or not the state between is told of. It also says whether it could have
// shown all of them.
func (s *cover) taking(h, from int32) (gain float64, all bool) {
	mine := s.mine(from)
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
		gain += max(0, s.fit(h, c, has+k, w)-before)
	}
	for n := range s.Signs {
		if s.Signs[n].Said && s.owner[n] == from {
			some++
		}
	}
	return gain + s.unshown(h, from), linked == some
}

// unshown is what speaks against the signs of a cause coming of states of h's making: that the rest of what
// such a state shows stays away. A server that answers, and lost one port of four, did not go down. What others
// show that h took into the state says how much of it is heard here.
func (s *cover) unshown(h, of int32) (total float64) {
	x := &s.Causes[h]
	var asked []int32
	s.owned(of, func(n int32) {
		for _, l := range s.Signs[n].Of {
			y := &s.Causes[l.Cause]
			if y.Fault.Is == "" || y.Fault.Is == x.Fault.Is || int(l.Class) < y.Fault.Own() || slices.Contains(asked, l.Cause) {
				continue
			}
			if asked = append(asked, l.Cause); !x.makes(y) {
				continue
			}
			fit := 0.0
			for c := y.Fault.Own(); c < len(y.Classes); c++ {
				m := &y.Fault.Classes[c]
				k, n := y.heard(c)
				if m.Derived || n == 0 {
					continue
				}
				a, b := betaOf(m.Share, concentration)
				for _, f := range s.state[h].Folded {
					if z := &s.Causes[f]; z.Fault == y.Fault {
						k, n := z.heard(c)
						a, b = a+float64(k), b+float64(n-k)
					}
				}
				rest := float64(n-k) * float64(Late(s.Now-y.Onset, m.Soon)) / LateSteps
				fit += logBeta(float64(k)+a, rest+b) - logBeta(a, b)
			}
			total += min(0, fit)
		}
	})
	return total
}

// heard returns how many parts of a class show it, and how many could; those that nobody showed are counted
// where it is the part itself that would.
func (h *Cause) heard(c int) (k, n int) {
	cl := &h.Classes[c]
	if k, _ = cl.sum(nil); len(h.Fault.Classes[c].Path) > 0 {
		return k, max(k, cl.Parts-cl.Mute)
	}
	return k, 1
}

// makes says whether a cause could bring about the state that another is, where that is.
func (h *Cause) makes(state *Cause) bool {
	for i := range h.Effects {
		if h.Fault.Effects[i].State == state.Fault.Is && find(h.Effects[i], state.Node) != nil {
			return true
		}
	}
	return false
}

// pick takes the best of causes, again and again, as long as one explains more than
// it costs of what nobody owns.
func (s *cover) pick(causes []int32, take func(h int32)) (taken []int32) {
	q := s.ranks[:0]
	for _, h := range causes {
		q = append(q, rank{s.state[h].Score, h})
	}
	s.ranks = q
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.sink(i)
	}
	for len(q) > 0 {
		h := q[0].h
		score := s.score(h, s.unowned)
		s.state[h].Score, q[0].score = score, score
		if score > 0 {
			if len(q) > 1 && q[1].score > score || len(q) > 2 && q[2].score > score {
				q.sink(0)
				continue
			}
			take(h)
			taken = append(taken, h)
			s.claim(h, s.unowned)
		}
		last := len(q) - 1
		q[0], q = q[last], q[:last]
		q.sink(0)
	}
	return taken
}

// Score weighs a cause of a group over all its signs.
func (m *Cover) Score(g *Group, h int32) float64 {
	s := cover{Cover: m, Group: g, state: m.blank(g, func(o int) bool { return o == int(h) })}
	m.suppliers(g)
	return s.score(h, nil)
}

// ranking is a heap of causes, the best first; of equals the one that came to mind first.
type ranking []rank

type rank struct {
	score float64
	h     int32
}

// sink brings the cause at a place to where it belongs below that.
func (q ranking) sink(i int) {
	before := func(a, b rank) bool { return a.score > b.score || a.score == b.score && a.h < b.h }
	for {
		next := 2*i + 1
		if next >= len(q) {
			return
		}
		if next+1 < len(q) && before(q[next+1], q[next]) {
			next++
		}
		if !before(q[next], q[i]) {
			return
		}
		q[i], q[next], i = q[next], q[i], next
	}
}

func (s *cover) unowned(ev *Evidence) bool {
	if ev.Sign == None {
		return !ev.Taken
	}
	return s.owner[ev.Sign] == None
}

// blame accepts a cause, or no longer. A supplier that is blamed leaves what hangs on
// it alone without power, and without a voice.
func (s *cover) blame(h int32, yes bool) {
	c := &s.Causes[h]
	s.state[h].accepted = yes
	if c.Fault.Together == 0 {
		return
	}
	s.blames++
	s.change(func() {
		s.lost = slices.DeleteFunc(s.lost, func(o supplier) bool { return o.cause == h || yes && o.Node == c.Node })
		if yes {
			s.lost = append(s.lost, supplier{Supplier{c.Node, c.Parent, c.Fault, c.Onset, c.Timed, c.Back, c.Out}, h})
		}
	})
}

// weighed says whether class c of h has a say.
func (s *cover) weighed(h int32, c int) bool {
	x := &s.Causes[h]
	return !x.Fault.Classes[c].Derived && (x.Classes[c].Parts > 0 || len(x.Classes[c].Evidence) > 0)
}

// score weighs a cause by the evidence that pick lets through (nil: all) and notes
// which of its classes it explains.
func (s *cover) score(h int32, pick func(*Evidence) bool) float64 {
	x := &s.Causes[h]
	total, at := x.start()+s.state[h].given, 0
	for _, c := range x.Asked() {
		total, at = x.quiet(total, at, c), c+1
		t := &s.state[h].classes[c]
		t.claimed = false
		if !s.weighed(h, c) {
			continue
		}
		s.work += 1 + len(x.Classes[c].Evidence)
		k, w := x.Classes[c].sum(pick)
		absent := s.fit(h, c, 0, 0)
		if k > 0 {
			if present := s.fit(h, c, k, w); present > absent {
				t.claimed = true
				total += present
				continue
			}
		}
		total += absent
	}
	return x.quiet(total, at, len(x.Classes))
}

// claim gives h the signs of the classes that it explains.
func (s *cover) claim(h int32, pick func(*Evidence) bool) {
	x := &s.Causes[h]
	for _, c := range x.Asked() {
		t := &s.state[h].classes[c]
		t.k, t.w = 0, 0
		if !t.claimed {
			continue
		}
		for i := range x.Classes[c].Evidence {
			ev := &x.Classes[c].Evidence[i]
			if ev.Said && ev.Sign != None && (pick == nil || pick(ev)) {
				s.own(h, c, ev)
				t.k++
				t.w += ev.Gain
			}
		}
	}
}

func (s *cover) own(h int32, c int, ev *Evidence) {
	s.owner[ev.Sign], s.class[ev.Sign], s.worth[ev.Sign] = h, int32(c), ev.Gain //nolint:gosec // an index
}

// mine is true for what h owns.
func (s *cover) mine(h int32) func(*Evidence) bool {
	return func(ev *Evidence) bool { return ev.Sign != None && s.owner[ev.Sign] == h }
}

// others is true for what another than h owns.
func (s *cover) others(h int32) func(*Evidence) bool {
	return func(ev *Evidence) bool { return ev.Sign != None && s.owner[ev.Sign] != None && s.owner[ev.Sign] != h }
}

// recount brings the sums of a cause up to date and returns its score over what it owns.
func (s *cover) recount(h int32) float64 {
	x := &s.Causes[h]
	total, at := x.start()+s.state[h].given, 0
	mine := s.mine(h)
	for _, c := range x.Asked() {
		total, at = x.quiet(total, at, c), c+1
		t := &s.state[h].classes[c]
		s.work += 1 + len(x.Classes[c].Evidence)
		t.k, t.w = x.Classes[c].sum(mine)
		if !x.Fault.Classes[c].Derived && (x.Classes[c].Parts > 0 || t.k > 0) {
			total += s.fit(h, c, t.k, t.w)
		}
	}
	return x.quiet(total, at, len(x.Classes))
}

// owns says whether a cause owns a sign.
func (s *cover) owns(h int32) (some bool) {
	s.owned(h, func(int32) { some = true })
	return some
}

// owned visits the evidence of the signs that h owns.
func (s *cover) owned(h int32, visit func(sign int32)) {
	for _, c := range s.Causes[h].Asked() {
		for i := range s.Causes[h].Classes[c].Evidence {
			if n := s.Causes[h].Classes[c].Evidence[i].Sign; n != None && s.owner[n] == h {
				visit(n)
			}
		}
	}
}

// split replaces a cause that fits badly by several that fit better together: three
// servers that crashed are no switch of which thirteen ports are still up.
func (s *cover) split(accepted, contenders []int32) []int32 {
	s.most = slices.Grow(s.most[:0], len(s.Causes))[:len(s.Causes)]
	most := s.most // what others could make of its signs at most
	clear(most)
	for _, o := range contenders {
		if s.state[o].accepted {
			continue
		}
		last := None
		for _, c := range s.Causes[o].Asked() {
			for i := range s.Causes[o].Classes[c].Evidence {
				n := s.Causes[o].Classes[c].Evidence[i].Sign
				if n != None && s.owner[n] != None && s.owner[n] != last && !s.Causes[o].Fault.Classes[c].Derived {
					last = s.owner[n]
					most[last] += s.Causes[o].Base + s.state[o].given
				}
			}
		}
	}
	s.were = append(s.were[:0], accepted...)
	for _, h := range s.were {
		if most[h] == 0 {
			continue
		}
		whole, bad := s.recount(h), 0.0
		if most[h] <= whole {
			continue
		}
		owned := s.held[:0]
		s.owned(h, func(n int32) { owned = append(owned, holding{n, s.class[n], s.worth[n]}) })
		s.held = owned
		for _, c := range s.Causes[h].Asked() {
			if t := &s.state[h].classes[c]; t.k > 0 && !s.Causes[h].Fault.Classes[c].Derived {
				bad += s.fit(h, c, t.k, 0)
			}
		}
		if bad > badFit || len(owned) < 2 {
			continue
		}
		for i := range owned {
			s.owner[owned[i].sign] = None
		}
		s.seen = slices.Grow(s.seen[:0], len(s.Causes))[:len(s.Causes)]
		others, seen, itself := s.rivals[:0], s.seen, false
		clear(seen)
		for i := range owned {
			for _, l := range s.Signs[owned[i].sign].Of {
				if o := l.Cause; o != h && !seen[o] && !s.state[o].accepted && s.Causes[o].Whole {
					seen[o] = true
					s.state[o].Score = s.score(o, s.unowned)
					if s.equal(o, h, whole) { // it could be one of several as h could: names do not go to and fro
						o, seen[h] = h, true
						s.state[h].Score = s.score(h, s.unowned)
					}
					if s.state[o].Score > 0 && (o != h || !itself) {
						others, itself = append(others, o), itself || o == h
					}
				}
			}
		}
		s.rivals = others
		sum := 0.0
		parts := s.pick(others, func(o int32) { sum += s.state[o].Score })
		if sum > whole {
			s.blame(h, false)
			for _, o := range parts {
				s.blame(o, true)
			}
			accepted = append(slices.DeleteFunc(accepted, func(o int32) bool { return o == h }), parts...)
			continue
		}
		for _, o := range parts {
			s.owned(o, func(n int32) { s.owner[n] = None })
		}
		for _, x := range owned {
			s.owner[x.sign], s.class[x.sign], s.worth[x.sign] = h, x.class, x.worth
		}
		s.recount(h)
	}
	return accepted
}

// equal says whether o has the fault of h, of which whole is the score, and explains what h does, by itself no better.
func (s *cover) equal(o, h int32, whole float64) bool {
	x, y := &s.Causes[o], &s.Causes[h]
	return x.Fault == y.Fault && math.Abs(s.state[o].Score-x.kept()-whole+y.kept()) < 1/scoreUnits
}

// contest lets causes that were not needed take over signs that they explain better,
// and moves signs between the causes that were.
func (s *cover) contest(accepted, contenders []int32) []int32 {
	for _, h := range contenders {
		if s.state[h].accepted {
			continue
		}
		full := s.score(h, nil)
		if full <= stealGain {
			continue
		}
		loss, follows := s.loss(h, false)
		if follows {
			loss += coincidence
		}
		if full-loss <= stealGain {
			continue
		}
		if o := s.better(h, full); o != None {
			s.score(o, nil)
			s.claim(o, nil)
			s.recount(o)
			continue
		}
		s.score(h, nil)
		s.blame(h, true)
		s.claim(h, nil)
		accepted = append(accepted, h)
	}
	accepted = slices.DeleteFunc(accepted, func(h int32) bool { // who has lost all of it takes nothing back
		if s.owns(h) {
			return false
		}
		s.blame(h, false)
		return true
	})
	for _, h := range accepted {
		for _, c := range s.Causes[h].Asked() {
			s.move(h, c)
		}
	}
	for _, h := range accepted {
		s.spare(h)
	}
	// Who has lost what made it credible is not to blame after all.
	kept := accepted[:0]
	for _, h := range accepted {
		if s.state[h].Score = s.recount(h); s.state[h].Score > 0 {
			kept = append(kept, h)
			continue
		}
		s.blame(h, false)
		s.owned(h, func(n int32) { s.owner[n] = None })
	}
	for _, h := range kept {
		for _, c := range s.Causes[h].Asked() { // what was set free may fit another
			if s.state[h].classes[c].k == 0 {
				continue
			}
			for i := range s.Causes[h].Classes[c].Evidence {
				if ev := &s.Causes[h].Classes[c].Evidence[i]; ev.Said && ev.Sign != None && s.owner[ev.Sign] == None {
					s.own(h, c, ev)
				}
			}
		}
		s.state[h].Score = s.recount(h)
	}
	slices.SortStableFunc(kept, func(a, b int32) int { return cmp.Compare(s.state[b].Score, s.state[a].Score) })
	return kept
}

// better returns a cause that is blamed for some of what h, by full, would take from others, and would
// explain as much if it were given all: it came when the best of it was another's already.
func (s *cover) better(h int32, full float64) int32 {
	var asked []int32
	for _, c := range s.Causes[h].Asked() {
		for i := range s.Causes[h].Classes[c].Evidence {
			n := s.Causes[h].Classes[c].Evidence[i].Sign
			if n == None || s.owner[n] == None || slices.Contains(asked, s.owner[n]) {
				continue
			}
			o := s.owner[n]
			if asked = append(asked, o); s.Causes[o].Node == s.Causes[h].Node && s.Causes[o].Fault != s.Causes[h].Fault && s.score(o, nil) >= full {
				return o
			}
		}
	}
	return None
}

// move gives h all signs of its class c, where that gains.
func (s *cover) move(h int32, c int) {
	ev := s.Causes[h].Classes[c].Evidence
	if len(ev) == 0 || s.Causes[h].Fault.Classes[c].Derived {
		return
	}
	others := s.others(h)
	k, w := s.Causes[h].Classes[c].sum(others)
	s.work += len(ev)
	if k == 0 {
		return
	}
	t := &s.state[h].classes[c]
	gain := s.fit(h, c, t.k+k, t.w+w) - s.fit(h, c, t.k, t.w)
	if gain-s.classLoss(h, c) <= moveGain {
		return
	}
	for i := range ev {
		if ev[i].Said && others(&ev[i]) {
			o := s.owner[ev[i].Sign]
			s.own(h, c, &ev[i])
			s.recount(o)
		}
	}
	s.recount(h)
}

// spare hands all that h owns to others that are blamed, where they explain it for less
// than h costs.
func (s *cover) spare(h int32) {
	slots, heirs, list := s.slots[:0], s.heirs[:0], s.list[:0]
	defer func() { s.slots, s.heirs, s.list = slots, heirs, list }()
	s.owned(h, func(n int32) {
		best, value, gain := Ref{None, None}, 0.0, 0.0
		for _, l := range s.Signs[n].Of {
			if l.Cause == h || !s.state[l.Cause].accepted || s.Causes[l.Cause].Fault.Classes[l.Class].Derived {
				continue
			}
			for i := range s.Causes[l.Cause].Classes[l.Class].Evidence {
				ev := &s.Causes[l.Cause].Classes[l.Class].Evidence[i]
				if ev.Sign != n || !ev.Said {
					continue
				}
				t := &s.state[l.Cause].classes[l.Class]
				v := s.fit(l.Cause, int(l.Class), t.k+1, t.w+ev.Gain) - s.fit(l.Cause, int(l.Class), t.k, t.w)
				if best.Cause == None || v > value {
					best, value, gain = l, v, ev.Gain
				}
			}
		}
		list, heirs = append(list, n), append(heirs, best)
		if best.Cause == None {
			return
		}
		i := slices.IndexFunc(slots, func(x slot) bool { return x.h == best.Cause && x.c == best.Class })
		if i < 0 {
			i = len(slots)
			slots = append(slots, slot{h: best.Cause, c: best.Class})
		}
		slots[i].k++
		slots[i].gain += gain
	})
	if len(slots) == 0 {
		return
	}
	total := -s.recount(h)
	for _, x := range slots {
		t := &s.state[x.h].classes[x.c]
		total += max(0, s.fit(x.h, int(x.c), t.k+x.k, t.w+x.gain)-s.fit(x.h, int(x.c), t.k, t.w))
	}
	if total <= moveGain {
		return
	}
	for i, n := range list {
		s.owner[n] = None
		if l := heirs[i]; l.Cause != None {
			for j := range s.Causes[l.Cause].Classes[l.Class].Evidence {
				if ev := &s.Causes[l.Cause].Classes[l.Class].Evidence[j]; ev.Sign == n {
					s.own(l.Cause, int(l.Class), ev)
				}
			}
		}
	}
	s.recount(h)
	for _, x := range slots {
		s.recount(x.h)
	}
}

// slot is what one owner would lose of one class.
type slot struct {
	h    int32
	c    int32
	k    int
	gain float64
}

func (s *cover) take(slots []slot, n int32) []slot {
	h, c := s.owner[n], s.class[n]
	i := slices.IndexFunc(slots, func(x slot) bool { return x.h == h && x.c == c })
	if i < 0 {
		i = len(slots)
		slots = append(slots, slot{h: h, c: c})
	}
	slots[i].k++
	slots[i].gain += s.worth[n]
	return slots
}

// loss is what the present owners would lose to h, capped as lossOf says, and whether all
// of it is what follows from them in any case: not what came before what comes first.
func (s *cover) loss(h int32, capped bool) (loss float64, follows bool) {
	follows = true
	slots := s.slots[:0]
	others := s.others(h)
	for _, c := range s.Causes[h].Asked() {
		if !s.state[h].classes[c].claimed {
			continue
		}
		for i := range s.Causes[h].Classes[c].Evidence {
			if ev := &s.Causes[h].Classes[c].Evidence[i]; ev.Said && others(ev) {
				slots = s.take(slots, ev.Sign)
				o := s.class[ev.Sign]
				if follows = follows && o != None; follows {
					cl := &s.Causes[s.owner[ev.Sign]].Fault.Classes[o]
					follows = cl.Later && (len(cl.After) == 0 || s.worth[ev.Sign]+coincidence > ev.Gain)
				}
			}
		}
	}
	s.slots = slots
	return s.lossOf(slots, capped), follows && len(slots) > 0
}

func (s *cover) classLoss(h int32, c int) float64 {
	slots := s.slots[:0]
	others := s.others(h)
	for i := range s.Causes[h].Classes[c].Evidence {
		if ev := &s.Causes[h].Classes[c].Evidence[i]; ev.Said && others(ev) {
			slots = s.take(slots, ev.Sign)
		}
	}
	s.slots = slots
	return s.lossOf(slots, false)
}

// lossOf is what owners lose of their classes. One that is not to blame any more loses
// no more than all that it gained.
func (s *cover) lossOf(slots []slot, capped bool) (total float64) {
	slices.SortStableFunc(slots, func(a, b slot) int { return int(a.h) - int(b.h) })
	for i := 0; i < len(slots); {
		h, loss := slots[i].h, 0.0
		for ; i < len(slots) && slots[i].h == h; i++ {
			x := slots[i]
			if x.c == None {
				continue
			}
			t := &s.state[h].classes[x.c]
			loss += s.fit(h, int(x.c), t.k, t.w) - s.fit(h, int(x.c), t.k-x.k, t.w-x.gain)
		}
		if capped {
			loss = min(loss, max(0, s.recount(h)))
		}
		total += loss
	}
	return total
}

// attach gives what nobody had to explain to the cause that fits best.
func (s *cover) attach() {
	for n := range s.Signs {
		if s.owner[n] != None {
			continue
		}
		best, class, value := None, None, 0.0
		for _, l := range s.Signs[n].Of {
			if !s.state[l.Cause].accepted {
				continue
			}
			if s.Signs[n].Said && s.Signs[n].Passing && s.state[l.Cause].classes[l.Class].k == 0 {
				continue // it only happens to be near
			}
			m := &s.Causes[l.Cause].Fault.Classes[l.Class]
			if v := m.Share * m.Shows; best == None || v > value {
				best, class, value = l.Cause, l.Class, v
			}
		}
		if best != None {
			s.owner[n], s.class[n] = best, class
		}
	}
}

// anticipate notes what the blamed causes bring about: the states that are not blamed,
// with how likely it makes each.
func (s *cover) anticipate(accepted []int32) (states []int32) {
	for h := range s.Causes {
		h, x := int32(h), &s.Causes[h] //nolint:gosec // an index
		if s.state[h].given = 0; x.Fault.Is == "" || s.state[h].accepted || !x.Whole || !x.Timed {
			continue
		}
		for _, g := range accepted {
			y := &s.Causes[g]
			for i := range y.Effects {
				f := &y.Fault.Effects[i]
				if f.State != x.Fault.Is || !y.before(x, i) {
					continue
				}
				if p := find(y.Effects[i], x.Node); p != nil && p.ready(f, x) && !s.again(g, x, accepted) {
					p := s.likely(f, y.Effects[i], f.SharedShows == 0 || s.without(x.Device, g))
					s.state[h].given = max(s.state[h].given, math.Log(p/(1-p))-x.Prior)
				}
			}
		}
		if s.state[h].given > 0 {
			states = append(states, h)
		}
	}
	return states
}

// expect takes up anticipated states of which less speaks than a cause of its own would
// need: a hot server of which one port is down and the agent is silent has gone down,
// like its neighbours.
func (s *cover) expect(accepted []int32) []int32 {
	var taken bool
	for _, h := range s.anticipate(accepted) {
		full := s.score(h, nil)
		if full <= stealGain {
			continue
		}
		loss, _ := s.loss(h, true)
		if loss > 0 { // what would lose is a fault of its own, here and now
			loss -= coincidence + stealGain
		}
		if full-loss > stealGain {
			s.blame(h, true)
			s.claim(h, nil)
			accepted, taken = append(accepted, h), true
		}
	}
	if !taken {
		return accepted
	}
	return s.contest(accepted, nil)
}

// twins links the causes that are the same fault of the same part, come again, in circles.
func (s *cover) twins() {
	s.paired = true
	s.twin = slices.Grow(s.twin[:0], len(s.Causes))[:len(s.Causes)]
	s.order = s.order[:0]
	for h := range s.Causes {
		if s.twin[h] = int32(h); len(s.Causes[h].Fault.Effects) > 0 { //nolint:gosec // an index
			s.order = append(s.order, int64(s.Causes[h].Node)<<32|int64(h))
		}
	}
	slices.Sort(s.order)
	for i, x := range s.order {
		for k := i - 1; k >= 0 && s.order[k]>>32 == x>>32; k-- {
			if a, b := int32(s.order[k]), int32(x); s.Causes[a].Fault == s.Causes[b].Fault { //nolint:gosec // an index
				s.twin[a], s.twin[b] = s.twin[b], s.twin[a]
				break
			}
		}
	}
}

// again says whether the fault of g, among others, has come again before the state h
// began.
func (s *cover) again(g int32, h *Cause, among []int32) bool {
	if !s.paired {
		s.twins()
	}
	x := &s.Causes[g]
	later := func(o int32) bool {
		y := &s.Causes[o]
		return s.state[o].accepted && y.Onset > x.Latest && y.Onset-foldEarly <= h.Onset && slices.Contains(among, o)
	}
	for o := s.twin[g]; o != g; o = s.twin[o] {
		if later(o) {
			return true
		}
	}
	return false
}

// fold lets a cause that brings parts into a state take over the causes that are no
// more than this state: servers without power are not crashed servers, unless
// something says so that the state does not.
func (s *cover) fold(accepted []int32) []int32 {
	var states []int32
	for _, h := range accepted {
		if s.Causes[h].Fault.Is != "" {
			states = append(states, h)
		}
	}
	if len(states) == 0 {
		return accepted
	}
	// Who could bring a state about is linked with what the state shows.
	met, most := make([]bool, len(s.Causes)), 0
	for _, h := range states {
		for _, c := range s.Causes[h].Asked() {
			for _, ev := range s.Causes[h].Classes[c].Evidence {
				for _, l := range s.Signs[ev.Sign].Of {
					if !met[l.Cause] && s.Causes[l.Cause].Effects != nil {
						met[l.Cause], most = true, most+1
					}
				}
			}
		}
	}
	could := make([]int32, 0, most)
	for h := range met {
		if met[h] {
			could = append(could, int32(h)) //nolint:gosec // an index
		}
	}
	s.making.find(s.Group, could, states)
	gone := func(h int32) bool { return !s.state[h].accepted }
	for {
		states = slices.DeleteFunc(states, gone)
		best, value := None, 0.0
		var parts []int32
		s.begun = s.begun[:0]
		for _, o := range could {
			if x := &s.Causes[o]; s.state[o].accepted && x.Timed && x.Fault.Is == "" {
				s.begun = append(s.begun, o)
			}
		}
		for at, g := range could {
			if slices.IndexFunc(s.making.all(at), func(h int32) bool { return s.state[h].accepted }) < 0 {
				continue
			}
			if folds, gain := s.foldable(at, g, states, could); gain > value {
				best, parts, value = g, folds, gain
			}
		}
		if best == None {
			return slices.DeleteFunc(accepted, gone)
		}
		x := &s.state[best]
		if !x.accepted {
			x.Lift = value
			accepted = slices.DeleteFunc(accepted, gone) // it may have been one that was folded
			s.blame(best, true)
			s.score(best, s.unowned)
			s.claim(best, s.unowned)
			accepted = append(accepted, best)
		}
		parts = append(parts, s.shadowed(best, parts, accepted)...)
		for _, h := range parts {
			s.handOver(h, best)
		}
		x.Folded = append(x.Folded, parts...)
		x.Score += value
	}
}

// making holds which states each of some causes could have brought about, by its effects, as far as nothing that is
// blamed has a say.
type making struct {
	states []int32 // of all, in their order
	ends   []int32 // of the effects in states, with where the first one begins
	first  []int32 // by cause: its place in ends
	at     []int32 // by node: the last state of it, from 1
	before []int32 // by state: the one before it of the same node, from 1
	places []int32
}

// of returns the states of an effect of the cause at a place.
func (m *making) of(at, effect int) []int32 {
	i := int(m.first[at]) + effect
	return m.states[m.ends[i]:m.ends[i+1]]
}

// all returns those of all effects.
func (m *making) all(at int) []int32 {
	to := len(m.states)
	if at+1 < len(m.first) {
		to = int(m.ends[m.first[at+1]])
	}
	return m.states[m.ends[m.first[at]]:to]
}

// find goes over the parts of an effect or over the states, whichever are fewer.
func (m *making) find(g *Group, could, states []int32) {
	m.states, m.ends, m.first, m.before = m.states[:0], m.ends[:0], m.first[:0], m.before[:0]
	for i, h := range states {
		n := int(g.Causes[h].Node)
		if more := n + 1 - len(m.at); more > 0 {
			m.at = append(m.at, make([]int32, more)...)
		}
		m.before = append(m.before, m.at[n])
		m.at[n] = int32(i + 1) //nolint:gosec // an index
	}
	for _, o := range could {
		x := &g.Causes[o]
		m.first = append(m.first, int32(len(m.ends))) //nolint:gosec // an index
		m.ends = append(m.ends, int32(len(m.states))) //nolint:gosec // an index
		for i := range x.Fault.Effects {
			if state := x.Fault.Effects[i].State; len(x.Effects[i]) > 0 && state != x.Fault.Is {
				makes := func(h int32) bool {
					y := &g.Causes[h]
					return h != o && y.Timed && y.Fault.Is == state && x.before(y, i)
				}
				m.add(g, x.Effects[i], states, makes)
			}
			m.ends = append(m.ends, int32(len(m.states))) //nolint:gosec // an index
		}
	}
	for _, h := range states {
		m.at[g.Causes[h].Node] = 0
	}
}

func (m *making) add(g *Group, in []Part, states []int32, makes func(h int32) bool) {
	if len(states) <= len(in) {
		for _, h := range states {
			if makes(h) && find(in, g.Causes[h].Node) != nil {
				m.states = append(m.states, h)
			}
		}
		return
	}
	m.places = m.places[:0]
	for i := range in {
		if n := int(in[i].Node); n < len(m.at) {
			for at := m.at[n]; at != 0; at = m.before[at-1] {
				if makes(states[at-1]) {
					m.places = append(m.places, at-1)
				}
			}
		}
	}
	slices.Sort(m.places)
	for _, at := range m.places {
		m.states = append(m.states, states[at])
	}
}

// foldable returns the causes that are states which g, at a place of making, brings about, and what is
// gained when g alone is blamed.
func (s *cover) foldable(at int, g int32, states, could []int32) (folds []int32, gain float64) {
	x, accepted := &s.Causes[g], s.state[g].accepted
	alive := s.alive(g, states)
	var silent float64 // what it costs that g's other effects do not show
	for i := range x.Fault.Effects {
		f := &x.Fault.Effects[i]
		if f.State == x.Fault.Is {
			continue
		}
		free := func(h int32) bool {
			return s.state[h].accepted && !slices.Contains(folds, h) && !s.again(g, &s.Causes[h], could) && !s.nearer(h, g, f)
		}
		came := func(h int32) bool { // as a state that some part of g's could have come into
			y := &s.Causes[h]
			return y.Timed && h != g && y.Fault.Is == f.State && x.before(y, i) && free(h)
		}
		list := s.inState[:0]
		for _, h := range s.making.of(at, i) {
			if free(h) {
				list = append(list, h)
			}
		}
		if s.inState = list; len(list) == 0 && (accepted || f.SharedShows == 0 && !slices.ContainsFunc(states, came)) {
			continue
		}
		onset, timed := x.Onset, x.Timed
		if accepted && !timed {
			for _, h := range states {
				if y := &s.Causes[h]; (!timed || y.Onset < onset) && came(h) {
					onset, timed = y.Onset, true
				}
			}
		}
		in := x.Effects[i]
		parts := s.hanging(g, i)
		// Parts that nothing else feeds, and those that something does.
		for _, alone := range [2]bool{true, false} {
			if !alone && f.SharedShows == 0 {
				break
			}
			o := oddsOf(f, alone)
			mine := func(device int32) bool { return f.SharedShows == 0 || alone == s.without(device, g) }
			which := 0
			if alone {
				which = 1
			}
			n, pending, up := parts.n[which], parts.show[which], 0
			if alone && len(alive) > 0 {
				for _, p := range in {
					if !slices.Contains(alive, p.Device) || !mine(p.Device) {
						continue
					}
					if up++; p.ready(f, nil) {
						if n--; p.Shows {
							pending--
						}
					}
				}
			}
			k, sum, from := 0, 0.0, len(folds)
			for _, h := range list {
				if !mine(s.Causes[h].Device) || alone && slices.Contains(alive, s.Causes[h].Device) {
					continue
				}
				w := s.asEffect(h, g)
				if !alone {
					w -= s.parted(h, g, f)
				}
				if !find(in, s.Causes[h].Node).ready(f, &s.Causes[h]) {
					w -= x.unready(f)
					if accepted { // it is on the way only as likely as others are seen to be
						p := float64(1+parts.n[0]+parts.n[1]) / float64(2+len(in))
						w += math.Log(p) - (1-p)*coincidence
					}
					n++
				}
				if w > 0 {
					sum += w
					k++
					folds = append(folds, h)
				}
			}
			if up > 0 { // who spoke is up, whatever else is heard or missed
				silent += o.none(up)
			}
			if n == 0 {
				continue
			}
			rest := float64(max(0, n-max(k, pending)))
			if accepted { // else nothing speaks for it but what shows already
				late := uint8(LateSteps)
				if timed {
					late = Late(s.Now-onset, max(effectSoon, f.Delay/4))
				}
				rest *= float64(late) / LateSteps
			}
			if k == 0 {
				if !accepted {
					silent += o.brought(0, rest)
				}
				continue
			}
			v := o.brought(k, rest) + sum
			if accepted {
				v -= o.brought(0, rest+float64(k))
			}
			if v > 0 {
				gain += v
			} else {
				folds = folds[:from]
			}
		}
	}
	var left []int // what was decided earlier has a bonus
	for _, h := range folds {
		if k := s.Causes[h].Kept; k != 0 && k != x.Kept && !slices.Contains(left, k) {
			left = append(left, k)
			gain -= KeepBonus
		}
	}
	if len(folds) > 0 && !accepted {
		gain += s.score(g, s.unowned) + silent + s.together(g)
	}
	return folds, gain
}

// nearer says whether a fault of the device of h, blamed and just begun, brings its state about
// sooner than g does: a hot server whose memory fails goes down with its memory.
func (s *cover) nearer(h, g int32, f *propagation.Effect) bool {
	y := &s.Causes[h]
	for _, o := range s.begun {
		x := &s.Causes[o]
		if o == g || x.Device != y.Device {
			continue
		}
		for i := range x.Effects {
			e := &x.Fault.Effects[i]
			if e.State == f.State && e.Delay < f.Delay && (y.Onset-x.Onset).Abs() <= effectSoon+e.Delay+y.Missed && find(x.Effects[i], y.Node) != nil {
				return true
			}
		}
	}
	return false
}

// parted is what it costs that h, a state of a part to which another supplier is left, began as
// it did, if it is of the making of g: at once, or late, and not without its server; and that it ended as it did.
func (s *cover) parted(h, g int32, f *propagation.Effect) float64 {
	x, y := &s.Causes[g], &s.Causes[h]
	lag, p := y.Onset-x.began(y), 0.0
	if lag < 0 { // it may have gone still sooner than it was noticed, and under no load that was left to it
		lag = -lag
	} else {
		lag = max(0, lag-y.Missed)
		p = f.SharedLate / math.Pow(1+lag.Seconds()/max(f.Delay, effectSoon).Seconds(), 2)
	}
	if !s.outlived(h, g) {
		p += (1 - f.SharedLate) / math.Pow(1+lag.Seconds()/onceScale, 2)
	}
	cost := -math.Log(p+tiny) - math.Log(f.SharedBack+(1-f.SharedBack)*s.returned(h, g))
	if f.SharedWith != "" && !s.shows(f.SharedWith, y.Device) {
		cost -= math.Log(unheard)
	}
	return cost
}

// returned is how well the end of h agrees with that of g, if its power went with g: it comes back
// as g does, or as another of its suppliers that were out by then, and not while all are still out.
func (s *cover) returned(h, g int32) float64 {
	x, y := &s.Causes[g], &s.Causes[h]
	if x.Again > y.Back { // in between, the supplier was there
		return 1
	}
	best := s.backWith(y, x.Back, x.Out)
	for _, p := range s.Supply.Of(y.Device) {
		if o := s.gone(p); o != nil && o.cause != g && p != x.Node && (!o.Timed || o.Onset <= y.Onset+foldEarly) {
			if o.Back != 0 || o.Out {
				best = max(best, s.backWith(y, o.Back, o.Out))
			}
		}
	}
	return best
}

// backWith is how well the end of a state agrees with that of a supplier.
func (s *cover) backWith(y *Cause, back time.Duration, out bool) float64 {
	if out {
		back = s.Now
	}
	if y.Back == 0 || back == 0 {
		return 1
	}
	lag, scale := (y.Back - back).Seconds(), startScale
	if lag < 0 {
		lag, scale = -lag, onceScale
	}
	return math.Pow(1+lag/scale, -2)
}

// outlived says whether the device of h told, since g began, of what g shows on it, and went down later.
func (s *cover) outlived(h, g int32) bool {
	x, y := &s.Causes[g], &s.Causes[h]
	for _, c := range x.Asked() {
		for _, ev := range x.Classes[c].Evidence {
			if c >= x.Fault.Own() || ev.Sign == None || !ev.Said || s.owner[ev.Sign] != g && s.owner[ev.Sign] != None {
				continue
			}
			if n := &s.Signs[ev.Sign]; n.Runs && n.Device == y.Device && n.At >= x.began(y) && n.At+gasp < y.Onset-y.Missed {
				return true
			}
		}
	}
	return false
}

// shows says whether something was said of a device that is in a state.
func (s *cover) shows(state string, device int32) bool {
	for h := range s.Causes {
		x := &s.Causes[h]
		if x.Fault.Is != state || x.Device != device {
			continue
		}
		for _, c := range x.Asked() {
			if c >= x.Fault.Own() && !x.Fault.Classes[c].Derived && slices.ContainsFunc(x.Classes[c].Evidence, func(ev Evidence) bool { return ev.Said }) {
				return true
			}
		}
	}
	return false
}

// alive returns the devices that told of links which they lost as others went into a state of
// g's making. Of a link tells one of its ends, so they were up.
func (s *cover) alive(g int32, states []int32) (out []int32) {
	x := &s.Causes[g]
	if x.Fault.Together == 0 {
		return nil
	}
	for k := range len(states) + len(s.state[g].Folded) {
		var h int32
		if k < len(states) {
			h = states[k]
		} else {
			h = s.state[g].Folded[k-len(states)]
		}
		y := &s.Causes[h]
		for i := range x.Effects {
			if f := &x.Fault.Effects[i]; f.State != y.Fault.Is || find(x.Effects[i], y.Node) == nil {
				continue
			}
			for _, c := range y.Asked() {
				for _, ev := range y.Classes[c].Evidence {
					if ev.Sign == None || !ev.Said || s.owner[ev.Sign] != h && s.owner[ev.Sign] != g {
						continue
					}
					if d := s.Signs[ev.Sign].Device; s.Signs[ev.Sign].Own && d != y.Device && !slices.Contains(out, d) {
						out = append(out, d)
					}
				}
			}
			break
		}
	}
	return out
}

// asEffect is what is saved when h is no fault of its own but brought about by g.
func (s *cover) asEffect(h, g int32) float64 {
	x := &s.Causes[h]
	w := -x.Prior
	if s.state[g].accepted || s.together(g) > 0 {
		w += coincidence
	}
	for _, c := range x.Asked() {
		t := &s.state[h].classes[c]
		if t.k == 0 {
			continue
		}
		ev := x.Classes[c].Evidence
		if c < x.Fault.Own() { // what g does not explain
			if !slices.ContainsFunc(ev, func(ev Evidence) bool { return ev.Sign != None && s.owner[ev.Sign] == h && s.linked(ev.Sign, g) }) {
				w -= s.fit(h, c, t.k, t.w) - s.fit(h, c, 0, 0)
			}
			continue
		}
		// What h had to explain by luck, and g explains in any case, as well as its states show it.
		if m := &x.Fault.Classes[c]; len(m.Path) > 0 && ev[0].Sign != None {
			if p := s.surelyShows(g, m.Sign, s.Signs[ev[0].Sign].Device); p > 0 {
				luck := s.fit(h, c, t.k, 0)
				if s.together(g) == 0 { // where an equal is lost already, these have been without power for its sake too
					rest := float64(max(0, x.Classes[c].Parts-x.Classes[c].Mute-t.k)) * float64(Late(s.Now-x.Onset, m.Soon)) / LateSteps
					luck = min(0, luck-float64(t.k)*math.Log(p)-rest*math.Log(1-p))
				}
				w -= luck
			}
		}
	}
	return w
}

// shadowed returns the causes whose signs g may show too and that came as their server
// went into one of the states: power that goes takes the GPUs with it. One that is
// heard of again when its server is back is a fault of its own.
func (s *cover) shadowed(g int32, states, accepted []int32) (out []int32) {
	for _, a := range accepted {
		x := &s.Causes[a]
		if a == g || !s.state[a].accepted || !x.Fault.Reset || !x.Timed {
			continue
		}
		i := slices.IndexFunc(states, func(h int32) bool { return s.Causes[h].Node == x.Device })
		if i < 0 || !s.Causes[states[i]].Timed || (x.Onset-s.Causes[states[i]].Onset).Abs() > shadow {
			continue
		}
		silent := s.Causes[states[i]].Onset + 2*shadow // what came within the shadow, and its delay, is over
		tied, again := false, false
		s.owned(a, func(n int32) {
			tied = tied || s.linked(n, g)
			again = again || s.Signs[n].Heard > silent
		})
		if tied && !again {
			out = append(out, a)
		}
	}
	return out
}

func (s *cover) linked(n, h int32) bool {
	return slices.ContainsFunc(s.Signs[n].Of, func(l Ref) bool { return l.Cause == h })
}

func (s *cover) handOver(h, to int32) {
	s.blame(h, false)
	s.owned(h, func(n int32) { s.owner[n], s.class[n] = to, None })
}

var _ Method = (*Cover)(nil)
