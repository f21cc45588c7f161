package correlator

import (
	"math"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// question is what the solver is asked, with whose it is.
type question struct {
	solver.Group
	suspects []*suspect // of the causes
	// of a decision that is weighed again:
	root  int32
	owner []int32
	state solver.State
}

// lateSteps is how finely lateness counts.
const lateSteps = solver.LateSteps

// span is a time as the solver has it.
func (e *hypotheses) span(t time.Time) time.Duration {
	return apart(t, e.began)
}

// apart is a.Sub(b), which takes long since it looks out for times that lie centuries apart.
func apart(a, b time.Time) time.Duration {
	if s := a.Unix() - b.Unix(); -centuries < s && s < centuries {
		return time.Duration(s)*time.Second + time.Duration(a.Nanosecond()-b.Nanosecond())
	}
	return a.Sub(b)
}

// centuries are seconds of which a duration holds as many for sure.
const centuries = 1 << 33

// late says how much of what has not come since onset is due, in lateSteps.
func (e *hypotheses) late(onset time.Time, soon time.Duration) uint8 {
	return solver.Late(apart(e.now, onset), soon)
}

// fit returns the log-likelihood of k signs that are worth w in class c of h.
func (e *hypotheses) fit(h *suspect, c, k int, w float64) float64 {
	cl := &h.fault.Classes[c]
	return e.fits.FitIn(cl, e.places(h, c), k, e.silent(h, c), e.late(e.onset(h), cl.Soon)) + w
}

// places says where class c of h could be heard, and in how many rooms it is.
func (e *hypotheses) places(h *suspect, c int) solver.Places {
	cl, r := &h.fault.Classes[c], &h.classes[c]
	p := solver.Places{Parts: int(r.n)}
	if cl.Each == "" || r.n == 0 {
		return p
	}
	to := e.walk.reach(e.g, h.node, cl)
	to.furnish(e.g, e.g.kinds.of(cl.Each))
	if len(to.rooms) == int(r.n) {
		return p
	}
	p.Rooms = len(to.rooms)
	e.roomsMet.reset()
	for _, s := range r.signs {
		if !s.said {
			continue
		}
		if room := e.g.within(s.node, to.hold); e.roomsMet.add(room) {
			p.Heard++
			p.There += int(to.rooms[room])
		}
	}
	return p
}

// silent counts the parts of a class that could not speak, with the suppliers that are blamed now.
func (e *hypotheses) silent(h *suspect, c int) int {
	n := int(h.classes[c].mute)
	for _, d := range h.darkIn(c) {
		if e.powerless(d.Device, alone(h)) {
			n += d.Parts
		}
	}
	return n
}

// alone is what is lost when h is to blame, where that is a supplier.
func alone(h *suspect) node {
	if h.fault.Together > 0 {
		return h.node
	}
	return none
}

// lag is what the lag of the sign with number i of a class costs; logarithms are remembered.
func (e *hypotheses) lag(h *suspect, c, i int) float64 {
	d := apart(h.classes[c].signs[i].at, h.onset)
	if d < 0 && h.fault.Classes[c].Jobs && !h.vague {
		return solver.Lead(-d)
	}
	p := &e.lags[uint64(d)*0x9e3779b97f4a7c15>>(64-lagBits)] //nolint:gosec // a hash
	if p.of != d {
		*p = lag{d, solver.Lag(d)}
	}
	return p.costs
}

const lagBits = 11

// calm brings what stays of a suspect up to date, whose parts are counted.
func (e *hypotheses) calm(h *suspect) *calm {
	q, onset := h.still(), e.onset(h)
	if q.known && q.lost == e.losses && q.onset.Equal(onset) && e.now.Before(q.until) {
		return q
	}
	q.lost = e.losses
	q.known, q.onset, q.from, q.live = true, onset, e.now, q.live[:0]
	since, until := apart(e.now, onset), time.Duration(math.MaxInt64)
	for c := range h.classes {
		cl, r := &h.fault.Classes[c], &h.classes[c]
		q.silent[c] = 0
		if len(r.signs) > 0 || len(h.darkIn(c)) > 0 {
			q.live = append(q.live, c)
		} else if !cl.Derived && r.n > 0 {
			q.silent[c] = e.fits.FitIn(cl, e.places(h, c), 0, int(r.mute), solver.Late(since, cl.Soon))
		}
		if heeded(cl, r) && r.n > r.mute {
			until = min(until, solver.LateUntil(since, cl.Soon))
		}
	}
	q.until = onset.Add(until)
	return q
}

// layout lays a suspect out for the solver, whose parts are counted. Signs are named by their index, where index
// knows one. Only the cover is content with the classes that are live.
func (e *hypotheses) layout(x *solver.Cause, h *suspect, index func(*sign) int32) {
	*x = solver.Cause{
		Fault: h.fault, Node: h.node, Device: e.g.server(h.node), Parent: e.g.parent[h.node], Prior: h.prior,
		Onset: e.span(e.onset(h)), Timed: !h.onset.IsZero(), Base: h.base, Whole: h.whole == e.epoch, Classes: e.classes.take(len(h.classes)),
	}
	if h.again != 0 {
		x.Again = e.span(h.again.time())
	}
	if x.Latest = x.Onset; !x.Timed {
		x.Latest = e.span(h.hi)
	}
	if h.kept() {
		x.Kept = h.inc.seq
	}
	x.Missed = e.missed(h)
	if e.ending {
		x.Back, x.Out = e.back(h)
	}
	if e.method == e.cover {
		calm := e.calm(h)
		x.Live, x.Silent = calm.live, calm.silent
	}
	if x.Live != nil && h.fault.Is != "" { // of a state it is asked, too, who does not show what it would
		for c := h.fault.Own(); c < len(h.classes); c++ {
			x.Classes[c] = solver.Class{Places: solver.Places{Parts: int(h.classes[c].n)}, Mute: int(h.classes[c].mute)}
		}
	}
	var first firsts
	for _, c := range x.Asked() {
		r := &h.classes[c]
		cl := &x.Classes[c]
		cl.Places, cl.Mute, cl.Dark, cl.Evidence = e.places(h, c), int(r.mute), h.darkIn(c), nil
		if len(r.signs) == 0 {
			continue
		}
		ev := e.evidence.take(len(r.signs))
		if h.fault.Window == propagation.During { // what it explains elsewhere says nothing here
			cl.Evidence = e.within(r.signs, ev[:0], index)
			continue
		}
		for i, s := range r.signs {
			ev[i] = solver.Evidence{Sign: index(s), Said: s.said}
			if s.said {
				ev[i].Gain = e.gain(h, c, i)
			}
			ev[i].Taken = ev[i].Sign == solver.None && s.owner != nil
		}
		if after := h.fault.Classes[c].After; len(after) > 0 {
			first.find(e, h, after)
			first.charge(e, r.signs, ev)
		}
		cl.Evidence = ev
	}
}

// outside names no sign.
func outside(*sign) int32 { return solver.None }

// index names a sign of a group.
func index(s *sign) int32 { return s.at0 - 1 }

// bound is what the score of a suspect can be at most, as [solver.Fits.Bound] has it. It
// takes no layout, and no count of the parts: most noise goes no further.
func (e *hypotheses) bound(h *suspect) float64 {
	return e.boundOf(h, func(*sign) bool { return true })
}

// boundOf is bound over some of the signs.
func (e *hypotheses) boundOf(h *suspect, pick func(*sign) bool) float64 {
	total := h.prior
	if h.kept() {
		total += solver.KeepBonus
	}
	for c := range h.classes {
		cl, signs := &h.fault.Classes[c], h.classes[c].signs
		if cl.Derived || len(signs) == 0 && h.counted && h.classes[c].n == 0 {
			continue
		}
		k, w := 0, 0.0
		for i, s := range signs {
			if s.said && pick(s) {
				k++
				w += e.gain(h, c, i)
			}
		}
		total += e.fits.Most(cl, k, w)
	}
	return total
}

// gain is what the sign with number i of a class is worth.
func (e *hypotheses) gain(h *suspect, c, i int) float64 {
	w := e.weightNow(h.classes[c].signs[i])
	if e.judging {
		w -= e.outlived(h.classes[c].signs[i])
	}
	if !h.onset.IsZero() {
		w -= e.lag(h, c, i)
	}
	if h.fault.Is != "" && e.model.Signs[h.fault.Classes[c].Sign].Twin {
		w += e.endsTogether(h, c, i)
	}
	return w
}

// endsTogether is what it is worth that a link of a device which went down came back as its system started.
// A link that is broken by itself ends at any other time. All links of a class share it: they come back
// for one reason.
func (e *hypotheses) endsTogether(h *suspect, c, i int) float64 {
	s := h.classes[c].signs[i]
	if s.up || !s.stateful {
		return 0
	}
	for k := range h.classes {
		if !e.model.Signs[h.fault.Classes[k].Sign].Boot {
			continue
		}
		for _, boot := range h.classes[k].signs {
			if boot.said && boot.node == h.node {
				return solver.EndsWith(apart(s.clearedAt, boot.at), apart(s.clearedAt, s.at)) / float64(len(h.classes[c].signs))
			}
		}
	}
	return 0
}

// conducts says whether a suspect could be blamed, or was. It stays so while a component is
// gathered, in which it is asked of a state again and again.
func (e *hypotheses) conducts(h *suspect) bool {
	if h.askedIn != e.pass {
		h.askedIn, h.conducts = e.pass, e.couldBe(h)
	}
	return h.conducts
}

func (e *hypotheses) couldBe(h *suspect) bool {
	e.stats.Asked++
	if h.fault.Window == propagation.During {
		h.base = windowBase
		return true
	}
	if h.weighed == 0 || h.base > 0 && apart(e.now, h.weighed.time()) >= settle && e.otherwise(h) {
		e.stats.Weighed++
		credible := h.base > 0 // then it is so still, most likely, and the bound would say no more
		if !credible {
			h.base = e.bound(h)
		}
		if h.base > 0 {
			e.count(h)
			e.witness(h)
			e.classes.reset()
			e.evidence.reset()
			e.layout(&e.one[0], h, outside)
			g := solver.Group{Now: e.span(e.now), Causes: e.one[:], Supply: e.supply}
			if h.dark {
				g.Lost = e.blamed(h)
			}
			h.base = e.cover.Score(&g, 0)
			h.still().unfed, h.still().fits = e.unfedSum, e.losses
		}
		if credible && h.base <= 0 {
			if b := e.bound(h); b <= 0 {
				h.base = b
			}
		}
		h.weighed, h.unmuted = stampOf(e.now), false
	}
	return h.base > 0 || h.accepted || h.inc != nil || h.needed || h.fault.Is != "" && e.expected(h)
}

// kept says whether a suspect was decided before.
func (h *suspect) kept() bool { return h.inc != nil && !h.inc.gone }

// expected says whether a blamed cause could have brought about the state that a
// suspect is, of which its own signs are too weak to say so.
func (e *hypotheses) expected(h *suspect) bool {
	if h.base+solver.Expectable-h.prior <= 0 {
		return false
	}
	for c := range h.classes {
		for _, s := range h.classes[c].signs {
			for _, l := range s.links {
				if g := l.to; s.said && g.causes && g.accepted && g != h && l.class >= g.fault.Own() {
					return true
				}
			}
		}
	}
	return false
}

// otherwise says whether a suspect whose signs are the same may weigh otherwise than it did.
func (e *hypotheses) otherwise(h *suspect) bool {
	return h.unmuted || (e.someMute() || h.mutes != 0) && (h.restated || e.witness(h)) || h.dark && h.still().unfed != e.unfedSum ||
		h.calm != nil && h.calm.fits != e.losses || e.dueSince(h, h.weighed.time())
}

// blamed returns the suppliers that are blamed, but for those that stand in the group
// that is decided, or but for one suspect. The result is valid until the next call.
func (e *hypotheses) blamed(but *suspect) []solver.Supplier {
	out := e.lostNow[:0]
	for _, h := range e.unfedAll {
		if h == but || but == nil && h.at != 0 {
			continue
		}
		back, over := e.back(h)
		out = append(out, solver.Supplier{
			Node: h.node, Parent: e.g.parent[h.node], Fault: h.fault, Onset: e.span(e.onset(h)), Timed: !h.onset.IsZero(), Back: back, Out: over,
		})
	}
	e.lostNow = out
	return out // the order does not matter: it is a set
}

// question lays out signs and those of the suspects that have a say, with what they
// bring about where effects count. The result is valid until the next one.
func (e *hypotheses) question(signs []*sign, suspects []*suspect, say func(*suspect) bool, effects bool) *question {
	if len(e.laid) == 0 {
		e.classes.reset()
		e.evidence.reset()
	}
	e.refs.reset()
	e.partsOf.reset()
	e.ready.reset()
	g := &e.asked
	*g = question{Group: solver.Group{
		Now: e.span(e.now), Signs: g.Signs[:0], Causes: g.Causes[:0],
	}, suspects: g.suspects[:0], owner: g.owner[:0]}
	for i, s := range signs {
		s.at0 = int32(i + 1) //nolint:gosec // an index
	}
	powered := len(e.unfed) > 0
	states := e.inGroup[:0]
	e.ending = false
	for _, h := range suspects {
		if say(h) {
			e.ending = e.ending || slices.ContainsFunc(h.fault.Effects, func(f propagation.Effect) bool { return f.SharedShows > 0 })
			g.suspects = append(g.suspects, h)
			h.at = int32(len(g.suspects)) //nolint:gosec // an index
			powered = powered || h.fault.Together > 0
			if h.fault.Is != "" && (h.whole == e.epoch || e.judging) && !slices.Contains(states, h.fault.Is) {
				states = append(states, h.fault.Is)
			}
		}
	}
	e.inGroup = states
	lost := false // it matters which suppliers are blamed elsewhere: a fleet has many
	g.Causes = slices.Grow(g.Causes, len(g.suspects))[:len(g.suspects)]
	for i, h := range g.suspects {
		x := &g.Causes[i]
		if h.laidOut > 0 {
			*x, h.laidOut = e.laid[h.laidOut-1], 0
			if e.ending {
				x.Back, x.Out = e.back(h)
			}
		} else {
			e.count(h)
			e.witness(h)
			e.layout(x, h, index)
		}
		if effects && h.causes && (h.tied == e.epoch || e.judging && h.inc != nil && len(states) > 0) { // of those that stand alone it is asked how sure they are
			x.Effects, x.Over = e.effects(h, states, powered)
		}
		lost = lost || x.Effects != nil || h.dark
	}
	for _, s := range signs {
		x := solver.Sign{Node: s.node, Device: e.g.server(s.node), Heard: e.span(s.heard), Said: s.said}
		x.Own = s.said && s.kind < len(e.model.Signs) && e.model.Signs[s.kind].By&propagation.Host != 0 && e.g.kindOf(x.Device) == schemas.KindServer
		x.At, x.Runs = e.span(s.at), s.said && e.runs(s.kind, x.Device)
		x.Passing = e.momentary(s) && !e.model.Signs[s.kind].Job
		x.Of = e.refs.take(len(s.links))[:0]
		for _, l := range s.links {
			if l.to.at != 0 && !l.to.dead {
				x.Of = append(x.Of, solver.Ref{Cause: l.to.at - 1, Class: int32(l.class)}) //nolint:gosec // an index
			}
		}
		if powered {
			e.feed(x.Device)
		}
		g.Signs = append(g.Signs, x)
	}
	e.ending = false
	clear(e.laid)
	e.laid = e.laid[:0]
	if lost {
		g.Lost = e.blamed(nil)
	}
	g.Supply = e.supply // with what was noted meanwhile
	for _, s := range signs {
		s.at0 = 0
	}
	for _, h := range g.suspects {
		h.at = 0
	}
	return g
}

// effects returns the parts that h may bring into the states that are in a group, and when what comes
// before that was over.
func (e *hypotheses) effects(h *suspect, states []string, powered bool) (out [][]solver.Part, over []time.Duration) {
	out = e.partsOf.take(len(h.fault.Effects))
	clear(out)
	var after []int // what comes before the last of them, and when most of that was over
	var ended time.Duration
	for i := range h.fault.Effects {
		f := &h.fault.Effects[i]
		if f.SharedShows == 0 && !slices.Contains(states, f.State) || f.State == h.fault.Is {
			continue
		}
		out[i] = e.parts(h, i, powered)
		if len(f.After) == 0 {
			continue
		}
		if !slices.Equal(after, f.After) { // they come one after the other
			e.before(h, f.After, false, &e.shownFrom)
			after, ended = f.After, e.shownFrom.over()
		}
		if !e.shownFrom.some {
			continue
		}
		if over == nil {
			over = make([]time.Duration, len(out))
		}
		over[i] = ended
		all := e.ready.take(len(out[i]))
		copy(all, out[i])
		out[i] = all
		for k := range out[i] {
			if w, ok := e.shownFrom.of(out[i][k].Device); ok {
				out[i][k].Since, out[i][k].Until = w.from, w.to
			}
		}
	}
	return out, over
}

// parts returns the parts that an effect of h may bring into its state. They are the same
// for all faults of a node, but for those that a workload uses, and are remembered.
func (e *hypotheses) parts(h *suspect, effect int, powered bool) []solver.Part {
	f := &h.fault.Effects[effect]
	key := partsKey{h.node, h.key.fault, effect}
	p := e.g.parts[key]
	if p == nil {
		p = &parts{}
		for _, n := range e.walk.forward(e.g, h.node, e.g.compile(f.Path), e.onset(h)) {
			p.list = append(p.list, solver.Part{Node: n, Device: e.g.server(n)})
		}
		slices.SortFunc(p.list, func(a, b solver.Part) int { return int(a.Node) - int(b.Node) })
		if !slices.ContainsFunc(f.Path, func(s propagation.Step) bool { return s.Op == propagation.Jobs }) {
			if e.g.held > maxReached {
				e.g.forgetReached()
			}
			e.g.held += 8*len(p.list) + 16
			e.g.parts[key] = p
		}
	}
	told := uint64(0)
	for _, kind := range e.showing[f.State] {
		told += e.signs.turns[kind]
	}
	if since := e.onset(h); !p.fresh || p.told != told || !p.since.Equal(since) {
		news := e.signs.heard - p.heard
		same := p.fresh && p.since.Equal(since) && news < min(heardTurns, uint64(len(p.list)))
		p.fresh, p.told, p.since = true, told, since
		for i := range p.list {
			if same {
				break
			}
			p.list[i].Shows = e.shows(p.list[i].Node, f, since)
		}
		for ; same && p.heard < e.signs.heard; p.heard++ { // the others show what they did
			n := e.signs.lately[p.heard%heardTurns]
			if i, ok := slices.BinarySearchFunc(p.list, n, func(x solver.Part, n node) int { return int(x.Node) - int(n) }); ok {
				p.list[i].Shows = e.shows(n, f, since)
			}
		}
		p.heard = e.signs.heard
	}
	if powered && !p.fed {
		p.fed = true
		for i := range p.list {
			e.feed(p.list[i].Device)
		}
	}
	return p.list
}

// feed notes what feeds a device.
func (e *hypotheses) feed(dev node) {
	if dev == none || e.supply.Known(dev) {
		return
	}
	in := e.g.suppliers(dev)
	e.supply.Note(dev, in)
	for depth := 0; len(in) > 0 && depth < maxChain; depth++ {
		var behind []node
		for _, p := range in {
			if _, ok := e.supply.Behind(p); !ok {
				e.supply.NoteBehind(p, e.g.links[linkPowers].in[p])
				behind = append(behind, e.g.links[linkPowers].in[p]...)
			}
		}
		in = behind
	}
}

// weigh decides which suspects explain a component. It reports whether it could: no
// when it would blame a suspect that was not taken for one, of which the component
// lacks signs.
func (e *hypotheses) weigh(signs []*sign, suspects []*suspect) (accepted []*suspect, ok bool) {
	var g *question
	var x solver.Explanation
	for _, h := range suspects {
		if h.whole == e.epoch {
			g = e.question(signs, suspects, func(h *suspect) bool { return h.whole == e.epoch || h.tied == e.epoch }, true)
			x = e.method.Explain(&g.Group)
			e.stats.Steps += uint64(x.Work) //nolint:gosec // a count
			break
		}
	}
	for _, n := range x.Partial {
		g.suspects[n].needed, ok = true, true
	}
	if ok {
		return nil, false
	}
	for _, s := range signs {
		s.owner, s.waits = nil, false
		if x := e.evidenceOf(s); x != s.weighed {
			s.weighed, s.turned = x, e.span(e.now)
		}
	}
	size := int32(len(signs) + len(suspects)/4) //nolint:gosec // a number of signs
	for _, h := range suspects {
		h.folded, h.lift, h.needed = nil, 0, false
		if h.laid, h.group, h.fresh = e.span(e.now), 0, 0; h.whole == e.epoch || h.tied == e.epoch {
			h.group = size
		}
		e.blame(h, false)
	}
	for n, owner := range x.Owner {
		if owner != solver.None {
			signs[n].owner, signs[n].class = g.suspects[owner], x.Class[n]
		}
	}
	accepted = make([]*suspect, 0, len(x.Blamed))
	for i, n := range x.Blamed {
		h := g.suspects[n]
		h.lift = x.States[i].Lift
		for _, f := range x.States[i].Folded {
			h.folded = append(h.folded, g.suspects[f])
		}
		e.blame(h, true)
		accepted = append(accepted, h)
	}
	return accepted, true
}

// around lays out what an incident's root explains, with all that could explain it too.
func (e *hypotheses) around(root *suspect, signs []*sign) *question {
	e.round++
	suspects := append(e.rivalling[:0], root)
	root.round = e.round
	meet := func(h *suspect) {
		if h.round != e.round && !h.dead {
			h.round = e.round
			suspects = append(suspects, h)
		}
	}
	for _, h := range root.folded {
		meet(h)
	}
	for _, s := range signs {
		for _, l := range s.links {
			meet(l.to)
		}
	}
	e.suspectOrder.sort(suspects, func(h *suspect) int { return h.seq })
	e.rivalling = suspects
	if e.method == e.cover {
		suspects = e.rivals(root, signs, suspects)
	}
	states := func(h *suspect) bool { return h != root && h.fault.Is != "" }
	g := e.question(signs, suspects, func(*suspect) bool { return true }, e.method != e.cover || slices.ContainsFunc(suspects, states))
	g.owner = append(g.owner, make([]int32, len(signs))...)
	index := func(h *suspect) int32 {
		for i, o := range g.suspects {
			if o == h {
				return int32(i) //nolint:gosec // an index
			}
		}
		return solver.None
	}
	g.root = index(root)
	for i, s := range signs {
		if g.owner[i] = solver.None; s.owner == root {
			g.owner[i] = g.root
		}
	}
	g.state.Lift = root.lift
	for _, h := range root.folded {
		if i := index(h); i != solver.None {
			g.state.Folded = append(g.state.Folded, i)
		}
	}
	return g
}

// rivals leaves out the suspects that are hopeless beside a root, most of those of a large
// incident: the cover would look at none of them. It does look at a state, however hopeless by itself, that a
// cause with an incident of its own could have brought about.
func (e *hypotheses) rivals(root *suspect, signs []*sign, suspects []*suspect) []*suspect {
	first := func(h *suspect) bool { return h == root || h.fault.Together > 0 || slices.Contains(root.folded, h) }
	if len(suspects) <= few {
		return suspects
	}
	made := e.inGroup[:0] // states
	for _, h := range suspects {
		if h == root || !h.causes || !h.kept() {
			continue
		}
		for i := range h.fault.Effects {
			if f := h.fault.Effects[i].State; !slices.Contains(made, f) {
				made = append(made, f)
			}
		}
	}
	e.inGroup = made
	stays := func(h *suspect) bool {
		return first(h) || h.inc != nil || h.fault.Window != propagation.NoWindow || h.fault.Is != "" && slices.Contains(made, h.fault.Is)
	}
	least := e.least(root, signs, suspects, first)
	for _, s := range signs {
		if s.owner == root {
			s.at0 = 1
		}
	}
	out := suspects[:0]
	for _, h := range suspects {
		stays := stays(h)
		if !stays && e.most(h) < least {
			continue
		}
		e.count(h)
		e.witness(h)
		if stays || e.boundOf(h, func(s *sign) bool { return s.at0 != 0 }) >= least {
			out = append(out, h)
		}
	}
	for _, s := range signs {
		s.at0 = 0
	}
	return out
}

// most is what the bound of a suspect can be at most, whenever its signs came.
func (e *hypotheses) most(h *suspect) float64 {
	total := h.prior + solver.KeepBonus + e.silentMost[h.key.fault] + 1e-6 // for rounding
	for c := range h.classes {
		if n := len(h.classes[c].signs); n > 0 && !h.fault.Classes[c].Derived {
			total += float64(n) * slices.Max(e.weights[h.fault.Classes[c].Sign][:])
		}
	}
	return total
}

// least lays out a root alone and returns below which bound another suspect is no rival of it, whatever its states
// explain beside: that only adds to its score. stands says which suspects are in the group in any case. What is laid
// out is kept for the next question.
func (e *hypotheses) least(root *suspect, signs []*sign, suspects []*suspect, stands func(*suspect) bool) float64 {
	e.classes.reset()
	e.evidence.reset()
	g := solver.Group{Now: e.span(e.now), Causes: append(e.laid[:0], solver.Cause{})}
	owner := make([]int32, len(signs))
	for i, s := range signs {
		s.at0 = int32(i + 1) //nolint:gosec // an index
		if owner[i] = solver.None; s.owner == root {
			owner[i] = 0
		}
	}
	e.count(root)
	e.witness(root)
	e.layout(&g.Causes[0], root, index)
	root.laidOut = 1
	if root.dark {
		for _, h := range suspects {
			if stands(h) {
				h.at = -1
			}
		}
		g.Lost = e.blamed(nil)
		for _, h := range suspects {
			h.at = 0
		}
	}
	g.Supply, e.laid = e.supply, g.Causes
	least := e.cover.Least(&g, 0, owner, solver.State{})
	for _, s := range signs {
		s.at0 = 0
	}
	return least
}

// arena hands out slices that are all given back at once.
type arena[T any] struct {
	buf  []T
	used int
}

func (a *arena[T]) reset() { a.used = 0 }

func (a *arena[T]) take(n int) []T {
	if a.used+n > len(a.buf) {
		a.buf, a.used = make([]T, max(2*len(a.buf), n, 64)), 0
	}
	out := a.buf[a.used : a.used+n : a.used+n]
	a.used += n
	return out
}

// runs says whether a device runs when it shows a kind of sign: what its system alone could
// notice, which is neither a loss of contact nor a link that its far end may have told of.
func (e *hypotheses) runs(kind int, dev node) bool {
	if kind >= len(e.model.Signs) || e.model.Signs[kind].Contact != 0 || e.model.Signs[kind].Twin {
		return false
	}
	return e.g.kindOf(dev) == schemas.KindSwitch || e.model.Signs[kind].By == propagation.Host
}

// missed is how long a state may have gone unnoticed before its first sign, if that is a loss
// of contact: it is told after rounds without an answer.
func (e *hypotheses) missed(h *suspect) (out time.Duration) {
	if h.fault.Is == "" || h.onset.IsZero() {
		return 0
	}
	for c := range h.classes {
		cl := &h.fault.Classes[c]
		for _, s := range h.classes[c].signs {
			if !s.said || !s.at.Equal(h.onset) {
				continue
			}
			if e.model.Signs[cl.Sign].Contact == 0 {
				return 0
			}
			out = max(out, cl.Soon)
		}
	}
	return out
}

// back is when most of what a suspect shows had ended, of a supplier what it shows itself, or 0; and whether
// nothing of it has.
func (e *hypotheses) back(h *suspect) (at time.Duration, out bool) {
	if h.fault.Is == "" && h.fault.Together == 0 {
		return 0, false
	}
	n, ends := len(h.classes), e.endedAt[:0]
	if h.fault.Together > 0 {
		n = h.fault.Own()
	}
	on := 0
	for c := range n {
		for _, s := range h.classes[c].signs {
			switch {
			case !s.said || !s.stateful, !s.up && h.again != 0 && s.clearedAt.Before(h.again.time()): // of the time before
			case s.up:
				on++
			default:
				ends = append(ends, s.clearedAt)
			}
		}
	}
	if e.endedAt = ends; len(ends) <= on {
		return 0, on > 0 && len(ends) == 0
	}
	slices.SortFunc(ends, time.Time.Compare)
	return e.span(ends[len(ends)/2]), false
}

// times is from when to when something was shown, by node, or by none; [times.clear] gives it to the next who asks.
type times struct {
	at    []moments // by node, after that of none
	round uint32
	some  bool
	ends  []time.Duration // of what is over
	on    int             // is not
}

type moments struct {
	from, to time.Duration
	round    uint32
}

func (t *times) clear(nodes int) {
	if more := nodes + 1 - len(t.at); more > 0 {
		t.at = append(t.at, make([]moments, more)...)
	}
	t.round++
	t.some, t.ends, t.on = false, t.ends[:0], 0
}

// of returns the times of a node, if there are any.
func (t *times) of(n node) (w moments, ok bool) {
	w = t.at[n+1]
	return w, w.round == t.round
}

// over is when most of it was over, or 0 where it is not.
func (t *times) over() time.Duration {
	if len(t.ends) <= t.on {
		return 0
	}
	slices.Sort(t.ends)
	return t.ends[len(t.ends)/2]
}

// add widens the times of a node.
func (t *times) add(n node, from, to time.Duration) {
	t.some = true
	if w := &t.at[n+1]; w.round != t.round {
		*w = moments{from, to, t.round}
	} else {
		w.from, w.to = min(w.from, from), max(w.to, to)
	}
}

// before returns from when to when the devices around a suspect, or parts in them, showed some
// of its signs; by what holds the devices, if need be. It is valid until the next call with the same times.
func (e *hypotheses) before(h *suspect, kinds []int, held bool, out *times) {
	out.clear(len(e.g.parent))
	now := e.span(e.now.Add(readyFor))
	for c := range h.classes {
		if !slices.Contains(kinds, h.fault.Classes[c].Sign) {
			continue
		}
		for _, s := range h.classes[c].signs {
			if !s.said {
				continue
			}
			until := now
			switch {
			case s.up && !s.unsaid():
			case s.stateful && !s.up: // it was heard to be over
				until = e.span(s.clearedAt) + readEarly
			case s.stateful: // one that was raised anew has ended unheard
				until = e.span(later(s.clearedAt, s.heard)) + readyFor
			default:
				until = e.span(s.heard) + readyFor
			}
			dev := e.g.server(s.node)
			if held {
				dev = e.holder(dev)
			}
			if out.add(dev, e.span(s.at), until); until == now {
				out.on++
			} else {
				out.ends = append(out.ends, until)
			}
		}
	}
}

// firsts is from when to when what comes before other signs of a suspect was shown around it, by what
// holds the devices: of those that stand together one may not be heard.
type firsts struct {
	of    []int // signs
	known bool
	in    *times
}

// find finds it for some signs, unless it was found.
func (f *firsts) find(e *hypotheses, h *suspect, kinds []int) {
	if f.known && slices.Equal(f.of, kinds) {
		return
	}
	*f = firsts{kinds, true, &e.heldFrom}
	e.before(h, kinds, true, f.in)
}

// holder is what holds a device, and the device where nothing does.
func (e *hypotheses) holder(dev node) node {
	if dev == none || e.g.parent[dev] == none {
		return dev
	}
	return e.g.parent[dev]
}

// untimely is by how much a sign came before what comes first was shown around it, or after that was over.
func (f *firsts) untimely(e *hypotheses, s *sign) time.Duration {
	w, ok := f.in.of(e.holder(e.g.server(s.node)))
	if !ok || !s.said {
		return 0
	}
	return max(0, w.from-readEarly-e.span(s.raisedAt), e.span(s.at)-w.to)
}

// charge takes from what the signs of a class are worth what it costs that they are untimely. Those
// around one holder are so for one reason, and bear it together: of many, the sensors that were to come
// first were late, or are those of another time.
func (f *firsts) charge(e *hypotheses, signs []*sign, ev []solver.Evidence) {
	by, some := e.leads[:0], false
	for _, s := range signs {
		d := f.untimely(e, s)
		by, some = append(by, d), some || d > 0
	}
	if e.leads = by; !some {
		return
	}
	untimely := map[node]int{}
	for i, s := range signs {
		if by[i] > 0 {
			untimely[e.holder(e.g.server(s.node))]++
		}
	}
	for i, s := range signs {
		if by[i] > 0 {
			ev[i].Gain -= solver.Lead(by[i]) / float64(untimely[e.holder(e.g.server(s.node))])
		}
	}
}

// shows says whether a part shows one of the signs of a state, or has as an effect of what began then.
func (e *hypotheses) shows(n node, f *propagation.Effect, since time.Time) bool {
	for _, kind := range e.showing[f.State] {
		s := e.signs.get(n, kind)
		if s == nil || !s.said {
			continue
		}
		if lag := s.at.Sub(since); s.up || f.SharedShows == 0 && s.stateful && lag >= 0 && lag <= f.Delay+effectSoon {
			return true
		}
	}
	return false
}
