package correlator

import (
	"slices"

	"auspex/correlator/solver"
	"auspex/schemas/faults/propagation"
)

// A sign that joins a large group that is decided mostly changes nothing but itself: it is one more of what a
// told cause shows, or it has not lasted and goes with nothing. What is sure without the others is found by a glance
// at those that could show it, and the whole group is weighed when that is due anyway.
const (
	glanceFrom  = 2 * solveSmall // signs in a group, from which on a glance costs much less than a decision
	glanceLikes = 3              // signs that a cause owns of a class, from which on one more is a like
	glanceSure  = 0.5            // nats by which a cause must explain it so much better than any other that it keeps it
)

// glance decides on a sign that is new to a large group, where it is sure what a decision would say of it. It
// reports whether it did.
func (e *Engine) glance(s *sign) bool {
	if s.owner != nil || s.inc != nil || !s.said || s.kind >= len(e.model.Signs) || len(s.links) == 0 || len(e.windows.at) > 0 || !e.glances {
		return false
	}
	if size := slices.MaxFunc(s.links, func(a, b link) int { return int(a.to.group - b.to.group) }).to.group; size < glanceFrom {
		return false
	}
	passing := e.momentary(s) && !e.model.Signs[s.kind].Job
	e.pass++
	var best link
	value, second, most := 0.0, 0.0, 0.0
	for _, l := range s.links {
		h := l.to
		switch {
		case h.dead:
			continue
		case h.fault.Window != propagation.NoWindow, h.needed:
			return false
		case !h.accepted:
			was := h.base
			conducts := e.conducts(h)
			if h.inc != nil || conducts && (h.base <= 0 || h.fault.Is != "") {
				return false
			}
			if h.base > 0 {
				most = max(most, min(h.base, h.base-was))
			}
			continue
		}
		if passing && h.fault.Classes[l.class].Derived { // it goes with others of its class alone, and none is owned as such
			continue
		}
		v, likes, ok := e.like(l, s)
		switch {
		case !ok:
			return false
		case passing && likes > 0, likes < glanceLikes && v > 0:
			return false
		case v > value:
			best, value, second = l, v, value
		default:
			second = max(second, v)
		}
	}
	switch {
	case best.to == nil:
		if !passing || most > 0 || !e.lonely(s) {
			return false
		}
	case value < max(second, most-solver.StealGain)+glanceSure || best.to.fault.Harmless || !e.joins(best.to, s):
		return false
	default:
		s.owner, s.class = best.to, int32(best.class) //nolint:gosec // an index
	}
	s.weighed, s.turned = e.evidenceOf(s), e.span(e.now)
	return true
}

// like is what a sign adds to what a blamed cause explains of its class, and how many it has of it; it is not ok
// where that is not sure.
func (e *hypotheses) like(l link, s *sign) (gain float64, likes int, ok bool) {
	h, cl, r := l.to, &l.to.fault.Classes[l.class], &l.to.classes[l.class]
	if cl.Derived {
		return 0, 0, false
	}
	own, w, more := 0, 0.0, 0.0
	for i, o := range r.signs {
		switch {
		case o == s:
			more = e.gain(h, l.class, i)
		case o.said && o.owner == h && o.class == int32(l.class): //nolint:gosec // an index
			own++
			w += e.gain(h, l.class, i)
		}
	}
	if len(cl.After) > 0 {
		var first firsts
		if first.find(e, h, cl.After); first.untimely(e, s) > 0 {
			return 0, 0, false
		}
	}
	return e.fit(h, l.class, own+1, w+more) - e.fit(h, l.class, own, w), own, true
}

// joins has an open incident hold a sign of its root.
func (e *ledger) joins(h *suspect, s *sign) bool {
	inc := h.inc
	if inc == nil || inc.root != h || inc.gone || !inc.closed.IsZero() || !inc.repaired.IsZero() {
		return false
	}
	inc.gain(s)
	s.inc, s.excused = inc, nil
	if s.heard.After(inc.heard) {
		inc.heard = s.heard
	}
	if s.at.Before(inc.opened) {
		inc.began(s.at)
	}
	inc.unsure = true
	e.change(inc)
	return true
}
