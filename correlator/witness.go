package correlator

import (
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// blame accepts a suspect, or no longer. A supplier that is blamed leaves what
// hangs on it alone without power, and without a voice.
func (e *Engine) blame(h *suspect, yes bool) {
	h.accepted = yes
	if h.fault.Together == 0 {
		return
	}
	switch was := e.unfed[h.node]; {
	case yes && was != h:
		e.unfed[h.node] = h
	case !yes && was == h:
		delete(e.unfed, h.node)
	default:
		return
	}
	e.contacts++
}

// powerless says whether a device has no power left once also is lost beside
// all suppliers that are blamed. What the inventory puts on no supplier has power.
func (e *Engine) powerless(dev, also node) bool {
	if len(e.unfed) == 0 && also == none {
		return false
	}
	in, ok := e.backing[dev]
	if !ok {
		in = e.g.suppliers(dev)
		e.backing[dev] = in
	}
	for _, p := range in {
		if !e.cut(p, also, 0) {
			return false
		}
	}
	return len(in) > 0
}

// cut says whether a supplier is lost, or all that stand behind it are.
func (e *Engine) cut(p, also node, depth int) bool {
	if p == also || e.unfed[p] != nil {
		return true
	}
	in := e.g.links[linkPowers].in[p]
	if len(in) == 0 || depth > maxChain {
		return false
	}
	for _, q := range in {
		if !e.cut(q, also, depth+1) {
			return false
		}
	}
	return true
}

// lost says whether a way to a device was closed when its word was due, and is.
func (e *Engine) lost(dev node, way int, due time.Time) bool {
	c, ok := e.contact[dev]
	if !ok || c[way].from.IsZero() || c[way].from.Add(-lossTold).After(due) {
		return false
	}
	to := c[way].to
	if way == 0 { // what a system would have said while it was down is never said
		return to.IsZero() || to.After(due)
	}
	return to.IsZero() || e.now.Sub(to) < backAgain // an event log is read later
}

// mute says whether a device could not have told of a sign by the time it was
// due, were h the cause: without power, without contact, or cut off.
func (e *Engine) mute(dev node, by propagation.Contact, due time.Time, h *suspect) bool {
	also := none
	if h.fault.Together > 0 {
		also = h.node
	}
	if (e.lost(dev, 0, due) || e.lost(dev, 1, due)) && e.powerless(dev, also) {
		return true
	}
	if e.g.kindOf(dev) == schemas.KindSwitch {
		return e.lost(dev, 0, due)
	}
	if by == 0 {
		return false
	}
	if by&propagation.Host != 0 && !e.lost(dev, 0, due) {
		return false
	}
	return by&propagation.BMC == 0 || e.lost(dev, 1, due) || e.cutOff(dev, due)
}

// cutOff says whether every switch that leads to the board controller of a server is lost.
func (e *Engine) cutOff(dev node, due time.Time) bool {
	some := false
	for _, c := range e.g.children[dev] {
		if e.g.kindOf(c) != schemas.KindBMC {
			continue
		}
		for _, l := range [2][][]node{e.g.links[linkNet].out, e.g.links[linkNet].in} {
			for _, p := range l[c] {
				if sw := e.g.server(p); sw != none && sw != dev {
					if !e.lost(sw, 0, due) {
						return false
					}
					some = true
				}
			}
		}
	}
	return some
}

// witness counts for each class of a suspect the parts that say nothing and
// could not have said anything: their silence is no evidence.
func (e *Engine) witness(h *suspect) {
	if h.mutes == e.contacts && (len(e.contact) == 0 || e.now.Sub(h.mutedAt) < backAgain) {
		return
	}
	h.mutes, h.mutedAt = e.contacts, e.now
	var own node = none // a device that the fault itself puts to silence: its probabilities hold that
	if e.silences(h.fault) {
		own = e.g.server(h.node)
	}
	quiet := len(e.contact) == 0 && len(e.unfed) == 0 && h.fault.Together == 0
	for c := range h.classes {
		r, cl := &h.classes[c], &h.fault.Classes[c]
		r.mute = 0
		m := &e.model.Signs[cl.Sign]
		if quiet || cl.Jobs || cl.Derived || m.Contact != 0 || r.n == 0 {
			continue
		}
		due := e.onset(h).Add(cl.Soon)
		if cl.Before > cl.Within { // it comes first
			due = e.onset(h).Add(-cl.Before)
		}
		dev, mute := none, false
		for _, n := range e.walk.reach(e.g, h.node, cl) {
			d := e.g.server(n)
			if d == none || d == own {
				continue
			}
			if d != dev {
				dev, mute = d, e.mute(d, m.By, due, h)
			}
			if mute {
				if s := e.signs[signKey{n, int32(cl.Sign)}]; s == nil || !s.said {
					r.mute++
				}
			}
		}
	}
}

// onset is when a suspect's fault began, as well as can be told.
func (e *Engine) onset(h *suspect) time.Time {
	if h.onset.IsZero() {
		return h.lo
	}
	return h.onset
}

// silences says whether a fault takes its own device out of contact.
func (e *Engine) silences(f *propagation.Fault) bool {
	for i := range f.Effects {
		p := f.Effects[i].Path
		if len(e.showing[f.Effects[i].State]) > 0 && (len(p) == 0 || len(p) == 1 && p[0].Op == propagation.Up) {
			return true
		}
	}
	return false
}
