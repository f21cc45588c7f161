package correlator

import (
	"math"
	"slices"
	"time"

	"auspex/schemas"
)

// A sign is hardly ever there by itself from a leak of 1 in 1000 down; the tenth
// above is for rounding.
const surelyLeak = 0.001 * 1.1

const suspectMin = 0.005 // half a per cent: less is shown as none

const (
	unknownConfidence = 0.1 // no cause is named: low, and not computed
	unknownNear       = 5 * time.Minute

	effectSoon = time.Minute // mean delay of the signs of a state, for which the model gives none

	confidenceSteps = 50.0 // in which confidence is published
)

// incident is an open incident of the engine.
type incident struct {
	id           string
	seq          int
	opened       time.Time
	heard        time.Time
	root         *suspect // nil: unknown
	where        node     // of an unknown one
	signs        []*sign
	confidence   float64
	unsure       bool // the confidence is that of an earlier state
	alternatives []schemas.Cause
	emitted      time.Time
	told         told
	revision     int
	queued       bool
	mergedInto   string
	closed       time.Time
	before       int       // events that were counted and forgotten before a restart
	judged       time.Time // when its confidence was last weighed
	repaired     time.Time // what comes later is new
	gone         bool
	claim        int // scratch
}

// told is what the last emitted state said.
type told struct {
	resource, fault string
	severity        schemas.Severity
	confidence      float64
	signs, facts    int
	mute            int // witnesses that cannot report, of whom the sentences speak
	closed, gone    bool
}

// same says whether a state is not worth publishing after another.
func (t told) same(o told) bool {
	return t.facts == o.facts && t.signs == o.signs && !t.turned(o)
}

// turned says whether more than the number of signs and events has changed.
func (t told) turned(o told) bool {
	d := math.Abs(t.confidence - o.confidence)
	t.confidence, t.signs, t.facts = o.confidence, o.signs, o.facts
	return t != o || d >= 1.5/confidenceSteps // more than one step, whatever the rounding
}

// due says whether a state is due to be published so long after another. Each
// state lists all events, so one that only grows is published in proportion to what it has
// become, once a second while it is small, and parts that join sooner than
// events more of the same. Lists that are published whenever they have grown by a
// sixteenth are 17 times the last one in all; the waits between are chosen by hand.
func (t told) due(o told, since time.Duration) bool {
	if since < emitEvery || t.turned(o) || 16*(t.facts-o.facts) >= o.facts {
		return since >= emitEvery
	}
	wait := emitEvery * time.Duration(o.facts/64+1)
	if t.signs == o.signs {
		wait *= wait / emitEvery
	}
	return since >= wait
}

// solve weighs the signs that changed, with all that hangs together with them:
// the smallest set of faults that explains what came and what did not come.
func (e *Engine) solve() {
	e.stats.Solved++
	e.epoch++
	e.lastSolve = e.now
	dirty := e.dirty
	e.dirty = nil
	for _, s := range dirty {
		for _, l := range s.links {
			l.to.weighed = time.Time{}
		}
	}
	for _, s := range dirty {
		for !s.gone && s.mark != e.epoch {
			signs, suspects := e.component(s)
			e.lastCost = len(signs) + len(suspects)/4
			if accepted, ok := e.weigh(signs, suspects); ok {
				e.settle(signs, accepted, suspects)
			} else {
				e.epoch++ // one is blamed that was not looked at as a whole: again, with all of it
			}
		}
	}
}

// component returns what hangs together with a sign: through incidents, through
// suspects that could be blamed, and through those that could stand behind states
// that could be. A suspect of a few weak signs ties nothing together, however many
// parts hang on it.
func (e *Engine) component(from *sign) ([]*sign, []*suspect) {
	from.mark = e.epoch
	signs := []*sign{from}
	var suspects []*suspect
	add := func(s *sign) {
		if s.mark != e.epoch {
			s.mark = e.epoch
			signs = append(signs, s)
		}
	}
	meet := func(h *suspect) {
		if h.mark != e.epoch && !h.dead {
			h.mark = e.epoch
			suspects = append(suspects, h)
		}
	}
	met := 0
	for i := 0; i < len(signs); i++ {
		for _, l := range signs[i].links {
			meet(l.to)
		}
		for ; met < len(suspects); met++ {
			h := suspects[met]
			if !e.conducts(h) {
				continue
			}
			h.whole = e.epoch
			for c := range h.classes {
				for _, s := range h.classes[c].signs {
					add(s)
					if h.fault.Is == "" {
						continue
					}
					for _, l := range s.links { // who could stand behind this state ties it to others
						if g := l.to; g.tied != e.epoch && g.causes && !g.dead {
							g.tied = e.epoch
							e.states(g, add)
						}
					}
				}
			}
		}
		if inc := signs[i].inc; inc != nil {
			for _, s := range inc.signs {
				add(s)
			}
		}
	}
	slices.SortFunc(signs, func(a, b *sign) int { return a.seq - b.seq })
	bySeq(suspects)
	return signs, suspects
}

func bySeq(list []*suspect) { slices.SortFunc(list, func(a, b *suspect) int { return a.seq - b.seq }) }

// states visits the signs of g's effects that belong to states which could be blamed.
func (e *Engine) states(g *suspect, visit func(*sign)) {
	for c := g.fault.Own(); c < len(g.classes); c++ {
		for _, s := range g.classes[c].signs {
			for _, l := range s.links {
				if h := l.to; h.fault.Is != "" && !h.dead && e.conducts(h) {
					visit(s)
					break
				}
			}
		}
	}
}

// momentary says whether a sign has not lasted, or not yet.
func (e *Engine) momentary(s *sign) bool {
	return s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Hold > 0 && e.leak(s) == e.model.Signs[s.kind].Young
}

// weight is -log of the leak, the log-likelihood ratio of a sign that a fault shows
// for sure. Reports that come again are independent but for a factor: each
// multiplies the leak by Again, down to Rare.
func (e *Engine) weight(s *sign) float64 {
	if !s.said || s.kind >= len(e.model.Signs) {
		return 0
	}
	if e.lasting(s) {
		return e.weights[s.kind][2]
	}
	m := &e.model.Signs[s.kind]
	if e.leak(s) != m.Leak {
		return e.weights[s.kind][1]
	}
	w := e.weights[s.kind][0]
	if s.often > 1 {
		w = max(w, min(w-float64(s.often-1)*math.Log(m.Again), e.weights[s.kind][2]))
	}
	return w
}

// surely says whether a sign is hardly ever there by itself.
func (e *Engine) surely(s *sign) bool {
	return s.kind >= len(e.model.Signs) || e.weight(s) >= -math.Log(surelyLeak)
}

// settle turns what was decided into incidents: old ones keep their name
// where most of what they held stays together.
func (e *Engine) settle(signs []*sign, accepted, suspects []*suspect) {
	groups := make(map[*suspect][]*sign, len(accepted))
	var before []*incident
	for _, s := range signs {
		if s.owner != nil {
			groups[s.owner] = append(groups[s.owner], s)
		}
		if s.inc != nil && s.inc.claim != int(e.epoch) && !s.inc.gone {
			s.inc.claim = int(e.epoch)
			before = append(before, s.inc)
		}
	}
	slices.SortFunc(before, func(a, b *incident) int { return a.seq - b.seq })
	took := make(map[*incident]bool, len(before))
	type group struct {
		root  *suspect
		where node
		signs []*sign
	}
	var list []group
	var joined []*sign
	for _, h := range accepted {
		if !h.fault.Harmless && len(groups[h]) > 0 {
			list = append(list, group{h, h.node, groups[h]})
		}
	}
	// Critical signs that nothing explains are reported as unknown, and contact that does not come back.
	for _, s := range signs {
		again := s.often > 1 && e.surely(s)
		if s.owner != nil || !s.said || s.worst != schemas.SeverityCritical && !e.lasting(s) && !again || !e.surely(s) {
			continue
		}
		if e.now.Sub(s.raisedAt) < unknownHold || s.stateful && !s.up && s.brief && !again {
			continue
		}
		where := e.whole(s.node)
		// What comes with a fault of the same server most likely belongs to it.
		i := slices.IndexFunc(list, func(g group) bool { return g.root != nil && e.near(g.root, where, s) })
		if i < 0 {
			if o := slices.IndexFunc(e.open, func(o *incident) bool {
				return o.claim != int(e.epoch) && (o.root != nil && e.near(o.root, where, s) || o.root == nil && e.whole(o.where) == where)
			}); o >= 0 {
				if e.open[o].root == nil && e.open[o].where != s.node {
					e.open[o].where = where
				}
				e.open[o].signs = append(e.open[o].signs, s)
				s.inc, s.mark = e.open[o], 0
				joined = append(joined, s)
				e.change(e.open[o])
				continue
			}
			i = slices.IndexFunc(list, func(g group) bool { return g.root == nil && e.whole(g.where) == where })
		}
		if i < 0 {
			i = len(list)
			list = append(list, group{nil, s.node, nil})
		} else if list[i].root == nil && list[i].where != s.node {
			list[i].where = where
		}
		list[i].signs = append(list[i].signs, s)
	}
	names := make([]*incident, len(list))
	for i, g := range list {
		count := map[*incident]int{}
		for _, s := range g.signs {
			if s.inc != nil && !s.inc.gone {
				count[s.inc] += s.count
			}
		}
		if len(count) == 0 {
			continue
		}
		var best *incident
		for _, inc := range before {
			if count[inc] > 0 && !took[inc] && (best == nil || count[inc] > count[best]) {
				best = inc
			}
		}
		if best != nil {
			took[best] = true
			names[i] = best
		}
	}
	successor := map[*incident]*incident{}
	size := map[*incident]int{}
	for i, g := range list {
		inc := names[i]
		if inc == nil {
			inc = e.openIncident(g.signs)
			names[i] = inc
		}
		for _, s := range g.signs {
			if s.inc != nil && s.inc != inc && !took[s.inc] && len(g.signs) > size[s.inc] {
				successor[s.inc], size[s.inc] = inc, len(g.signs)
			}
		}
	}
	for _, s := range signs {
		if s.excused = nil; slices.Contains(joined, s) {
			continue
		}
		s.inc = nil
		if s.owner != nil && s.owner.fault.Harmless {
			s.excused = s.owner
		}
	}
	for _, h := range suspects {
		if h.inc != nil && h.inc.claim == int(e.epoch) {
			h.inc = nil
		}
	}
	for i, g := range list {
		inc := names[i]
		inc.root, inc.where, inc.signs = g.root, g.where, g.signs
		if g.root != nil {
			g.root.inc = inc
		}
		inc.unsure = true
		for _, s := range g.signs {
			s.inc = inc
			if s.heard.After(inc.heard) {
				inc.heard = s.heard
			}
			if s.at.Before(inc.opened) {
				inc.opened = s.at
			}
		}
		e.change(inc)
	}
	for _, inc := range before {
		if took[inc] {
			continue
		}
		inc.gone, inc.signs = true, nil
		if s := successor[inc]; s != nil {
			inc.mergedInto = s.id
		}
		e.open = slices.DeleteFunc(e.open, func(o *incident) bool { return o == inc })
		e.change(inc)
	}
}

// whole returns the server or switch of a part, or what is part of none.
func (e *Engine) whole(n node) node {
	if d := e.g.server(n); d != none {
		return d
	}
	return n
}

// near says whether a sign that nothing explains goes with a fault on the same server.
func (e *Engine) near(h *suspect, server node, s *sign) bool {
	return !h.onset.IsZero() && s.at.Sub(h.onset).Abs() <= unknownNear && e.g.server(h.node) == server
}

func (e *Engine) openIncident(signs []*sign) *incident {
	e.incSeq++
	e.stats.Opened++
	first, at := "", time.Time{}
	for _, s := range signs {
		for _, f := range s.facts {
			if at.IsZero() || f.at.Before(at) {
				first, at = f.id, f.at
			}
		}
	}
	inc := &incident{seq: e.incSeq, opened: e.now}
	if e.ids != nil {
		inc.id = e.ids(first)
	} else {
		inc.id = "i" + itoa(e.incSeq)
	}
	e.open = append(e.open, inc)
	return inc
}

func (e *Engine) close(inc *incident) {
	inc.closed = e.now
	e.change(inc)
	e.open = slices.DeleteFunc(e.open, func(o *incident) bool { return o == inc })
	for _, s := range inc.signs {
		s.inc = nil
		e.drop(s)
	}
	if inc.root != nil && !inc.root.dead {
		e.bury(inc.root)
	}
}

// confidence is the probability that the root is the right resource, and what
// else it could be.
func (e *Engine) confidence(h *suspect, signs []*sign) (float64, []schemas.Cause) {
	g := e.around(h, signs)
	var right float64
	var alternatives []schemas.Cause
	enough := false
	for _, x := range e.method.Posterior(&g.Group, g.root, g.owner, g.state).Shares {
		o := g.suspects[x.Cause]
		if x.Cause == g.root || o.node == h.node && !o.fault.Harmless || h.fault.End && e.joined(h.node, o.node) {
			right += x.P
		}
		if x.Cause == g.root {
			continue
		}
		if enough = enough || x.P < suspectMin || len(alternatives) == 3; enough {
			continue
		}
		if o.fault.Harmless || o.node == h.node && o.fault.Name == h.fault.Name {
			continue
		}
		alternatives = append(alternatives, schemas.Cause{Resource: e.g.name[o.node], Fault: o.fault.Name, Confidence: round(x.P)})
	}
	return right, alternatives
}

func (e *Engine) joined(a, b node) bool {
	l := &e.g.links[linkNet]
	return slices.Contains(l.out[a], b) || slices.Contains(l.in[a], b)
}

// change notes that an incident may have to be published again.
func (e *Engine) change(inc *incident) {
	if !inc.queued {
		inc.queued = true
		e.changed = append(e.changed, inc)
	}
}

// emitDue publishes the incidents that changed: at once where the cause or the
// life of the incident did, else at most once a second.
func (e *Engine) emitDue(now bool) {
	if len(e.changed) == 0 {
		return
	}
	rest := e.changed[:0]
	for _, inc := range e.changed {
		if !now && !inc.gone && inc.closed.IsZero() && min(e.now.Sub(inc.emitted), e.now.Sub(inc.judged)) < emitEvery {
			if r, f := e.cause(inc); r == inc.told.resource && f == inc.told.fault {
				rest = append(rest, inc)
				continue
			}
		}
		if inc.unsure && !inc.gone {
			inc.unsure, inc.judged = false, e.now
			if inc.confidence, inc.alternatives = unknownConfidence, nil; inc.root != nil {
				inc.confidence, inc.alternatives = e.confidence(inc.root, inc.signs)
			}
		}
		t := e.state(inc)
		switch {
		case t.same(inc.told) || inc.gone && inc.told == (told{}):
			inc.queued = false
		case now, inc.told == (told{}), inc.gone, t.closed != inc.told.closed,
			t.resource != inc.told.resource, t.fault != inc.told.fault, t.due(inc.told, e.now.Sub(inc.emitted)):
			inc.queued = false
			e.emit(inc)
		default:
			rest = append(rest, inc)
		}
	}
	clear(e.changed[len(rest):])
	e.changed = rest
}

func (e *Engine) state(inc *incident) told {
	t := told{closed: !inc.closed.IsZero(), gone: inc.gone, confidence: steps(inc.confidence)}
	t.resource, t.fault = e.cause(inc)
	t.signs, t.facts, t.severity = len(inc.signs), e.facts(inc), schemas.SeverityWarning
	if inc.gone {
		t.severity = inc.told.severity
	}
	if inc.root != nil && inc.root.fault.Together > 0 && !inc.gone {
		_, _, others := e.feedOf(inc.root.node)
		_, _, t.mute = e.supplies(others, inc.root)
	}
	for _, s := range inc.signs {
		if s.worst.Rank() > t.severity.Rank() {
			t.severity = s.worst
		}
	}
	return t
}

// facts returns how many events an incident holds.
func (e *Engine) facts(inc *incident) int {
	n := inc.before
	for _, s := range inc.signs {
		n += s.count
	}
	return n
}

func (e *Engine) cause(inc *incident) (resource, fault string) {
	if inc.root == nil {
		return e.g.name[inc.where], "unknown"
	}
	return e.g.name[inc.root.node], inc.root.fault.Name
}

func (e *Engine) emit(inc *incident) {
	inc.told = e.state(inc)
	inc.emitted = e.now
	inc.revision++
	e.out = append(e.out, e.describe(inc))
}

// steps rounds a confidence to what is worth publishing again.
func steps(p float64) float64 { return math.Round(p*confidenceSteps) / confidenceSteps }

func round(p float64) float64 { return math.Round(p*1000) / 1000 }
