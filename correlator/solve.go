package correlator

import (
	"slices"

	"auspex/schemas/faults/propagation"
)

// solve weighs the signs that changed, with all that hangs together with them:
// the smallest set of faults that explains what came and what did not come.
func (e *ledger) solve() {
	e.stats.Solved++
	if e.fits.Lose(e.ends.lost()) {
		e.losses++
	}
	e.epoch++
	first := e.epoch // marks from here on are of this round
	dirty := e.dirty
	e.dirty = nil
	for _, s := range dirty {
		for _, l := range s.links {
			l.to.unweigh()
		}
	}
	for _, s := range dirty {
		for !s.gone && s.mark < first {
			if len(e.windows.at) > 0 {
				e.epoch++ // a window may stand in several components
			}
			signs, suspects := e.component(s)
			if accepted, ok := e.weigh(signs, suspects); ok {
				e.settle(signs, accepted, suspects)
			} else {
				e.epoch++ // one is blamed that was not looked at as a whole: again, with all of it
				first = e.epoch
			}
		}
	}
}

// component returns what hangs together with a sign: through incidents, through
// suspects that could be blamed, and through those that could stand behind states
// that could be. A suspect of a few weak signs ties nothing together, however many
// parts hang on it. The result is valid until the next call.
func (e *hypotheses) component(from *sign) ([]*sign, []*suspect) {
	e.pass++
	from.mark = e.epoch
	signs, suspects := append(e.hanging.signs[:0], from), e.hanging.suspects[:0]
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
			if h.fault.Window == propagation.During { // it ties nothing together: it explains each sign by itself
				if d := e.signs.get(h.node, e.windows.sign); d != nil {
					add(d)
				}
				continue
			}
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
		if inc := signs[i].inc; inc != nil && inc.outbreak == nil && inc.met != e.pass {
			inc.met = e.pass
			for _, s := range inc.signs {
				add(s)
			}
		}
	}
	e.signOrder.sort(signs, func(s *sign) int { return s.seq })
	e.suspectOrder.sort(suspects, func(h *suspect) int { return h.seq })
	// What a larger group has left behind the end is not kept alive.
	clear(e.hanging.signs[min(len(signs), len(e.hanging.signs)):])
	clear(e.hanging.suspects[min(len(suspects), len(e.hanging.suspects)):])
	e.hanging.signs, e.hanging.suspects = signs, suspects
	return signs, suspects
}

// order sorts by numbers that what is sorted has: of many, the numbers with their places.
type order[T any] struct {
	keys []int
	was  []T
}

const orderBits = 20

func (o *order[T]) sort(list []T, seq func(T) int) {
	if len(list) <= few || len(list) >= 1<<orderBits {
		slices.SortFunc(list, func(a, b T) int { return seq(a) - seq(b) })
		return
	}
	o.keys = o.keys[:0]
	for i, x := range list {
		o.keys = append(o.keys, seq(x)<<orderBits|i)
	}
	slices.Sort(o.keys)
	o.was = append(o.was[:0], list...)
	for i, k := range o.keys {
		list[i] = o.was[k&(1<<orderBits-1)]
	}
	clear(o.was) // what is forgotten is not kept alive
}

// states visits the signs of g's effects that belong to states which could be blamed, but
// for those that were met.
func (e *hypotheses) states(g *suspect, visit func(*sign)) {
	for c := g.fault.Own(); c < len(g.classes); c++ {
		for _, s := range g.classes[c].signs {
			if s.mark != e.epoch && e.inState(s) {
				visit(s)
			}
		}
	}
}

// inState says whether a sign belongs to a state that could be blamed. It is asked for each
// cause that could stand behind the state.
func (e *hypotheses) inState(s *sign) bool {
	if s.statedIn != e.pass {
		s.statedIn = e.pass
		e.stats.Asked++
		s.stated = slices.ContainsFunc(s.links, func(l link) bool { return l.to.fault.Is != "" && !l.to.dead && e.conducts(l.to) })
	}
	return s.stated
}
