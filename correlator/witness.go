package correlator

import (
	"slices"
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
	// 2^64 over the golden ratio spreads neighbours (Knuth, TAOCP 3, 6.4).
	e.cuts ^= (uint64(h.node) + 1) * 0x9e3779b97f4a7c15 //nolint:gosec // the same set gives the same number
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
	if len(e.contact) == 0 && h.mutes == [2]uint64{} {
		return
	}
	state := [2]uint64{e.contacts, e.cuts}
	if h.mutes == state && (len(e.contact) == 0 || e.now.Sub(h.mutedAt) < backAgain) {
		return
	}
	h.mutes, h.mutedAt = state, e.now
	own := none // a device that the fault itself puts to silence: its probabilities hold that
	if e.silences(h.fault) {
		own = e.g.server(h.node)
	}
	onset := e.onset(h)
	lost := e.devices[:0]
	for dev, c := range e.contact {
		for _, o := range c {
			if dev != own && !o.from.IsZero() && (o.to.IsZero() || e.now.Sub(o.to) < backAgain || o.to.After(onset)) {
				lost = append(lost, dev)
				break
			}
		}
	}
	slices.Sort(lost) // not in the order of a map
	e.devices = lost
	for c := range h.classes {
		r, cl := &h.classes[c], &h.fault.Classes[c]
		r.mute = 0
		m := &e.model.Signs[cl.Sign]
		if len(lost) == 0 || cl.Jobs || cl.Derived || m.Contact != 0 || r.n == 0 {
			continue
		}
		due := onset.Add(cl.Soon)
		if cl.Before > cl.Within { // it comes first
			due = onset.Add(-cl.Before)
		}
		to := e.walk.reach(e.g, h.node, cl)
		for _, dev := range lost {
			if n := to.of(e.g, dev); n > 0 && e.mute(dev, m.By, due, h) {
				r.mute += n
			}
		}
		if r.mute == 0 {
			continue
		}
		for _, s := range r.signs { // who speaks all the same is no silent witness
			if dev := e.g.server(s.node); s.said && dev != none && contains(lost, dev) && e.mute(dev, m.By, due, h) {
				r.mute--
			}
		}
	}
}

func contains(sorted []node, n node) bool {
	_, ok := slices.BinarySearch(sorted, n)
	return ok
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
