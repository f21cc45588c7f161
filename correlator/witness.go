package correlator

import (
	"math"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// blame accepts a suspect, or no longer. A supplier that is blamed leaves what
// hangs on it alone without power, and without a voice.
func (e *hypotheses) blame(h *suspect, yes bool) {
	h.accepted = yes
	if h.fault.Together == 0 {
		return
	}
	switch was := e.unfed[h.node]; {
	case yes && was == nil:
		e.unfed[h.node], e.unfedAll = h, append(e.unfedAll, h)
		e.mix(h)
	case yes:
		e.unfed[h.node], e.unfedAll[slices.Index(e.unfedAll, was)] = h, h
		e.unfedSum -= was.mixed
		e.mix(h)
	case was == h:
		e.unfedSum -= h.mixed
		delete(e.unfed, h.node)
		at, last := slices.Index(e.unfedAll, h), len(e.unfedAll)-1
		e.unfedAll[at], e.unfedAll[last], e.unfedAll = e.unfedAll[last], nil, e.unfedAll[:last]
	}
}

// mix adds a supplier to the sum that tells apart which are blamed, and since when.
func (e *hypotheses) mix(h *suspect) {
	x := (uint64(h.seq)<<32 ^ uint64(stampOf(e.onset(h)))) * 0x9e3779b97f4a7c15 //nolint:gosec // a hash
	h.mixed = x ^ x>>29
	e.unfedSum += h.mixed
}

// powerless says whether a device has no power left once also is lost beside
// all suppliers that are blamed.
func (e *hypotheses) powerless(dev, also node) bool {
	if len(e.unfed) == 0 && also == none {
		return false
	}
	e.feed(dev)
	return e.supply.Dead(dev, func(p node) bool { return p == also || e.unfed[p] != nil })
}

// without says whether a part has no power once g is lost: the last of its
// suppliers takes it along.
func (e *hypotheses) without(n node, g *suspect) bool {
	dev := e.g.server(n)
	if dev == none || !e.powerless(dev, g.node) {
		return false
	}
	return !slices.ContainsFunc(e.supply.Of(dev), func(p node) bool {
		o := e.unfed[p]
		return o != nil && o != g && !g.onset.IsZero() && o.onset.After(g.onset)
	})
}

// contact is since when a device was not heard, and when it was again: through
// its own system and through its board controller.
type contact struct {
	dev  node
	ways [2]outage
	open bool   // in contacts.open
	gone bool   // forgotten
	mark uint32 // scratch of contacts.since
}

type outage struct{ from, to time.Time }

// contactTurns is of how many changes it is remembered whose they were.
const contactTurns = 256

// contacts are the devices that are lost or were, so that those that matter at a
// time are found without the others.
type contacts struct {
	at      []*contact // by device
	turns   []uint64   // by device: version of its last change; 0: it is not known
	all     []*contact
	open    []*contact // one way is lost, or was when this was last looked through
	back    []comeback
	version uint64             // changes with each change
	last    [contactTurns]node // whose the last changes were, by version
	whole   uint64             // version in which more than one device changed
	hubs    uint64             // version of the last change of a switch, which cuts others off
	round   uint32
	list    []node // scratch
}

// comeback is a device that was heard again; at is the time of the engine.
type comeback struct {
	*contact
	at time.Time
}

// of returns what is known of a device, or nil.
func (c *contacts) of(dev node) *contact {
	if dev < 0 || int(dev) >= len(c.at) {
		return nil
	}
	return c.at[dev]
}

// note takes in that ways to a device are lost, or are there again, since obs.
func (c *contacts) note(dev node, ways propagation.Contact, obs, now time.Time, back bool) {
	d := c.of(dev)
	if d == nil {
		d = &contact{dev: dev}
		if more := int(dev) + 1 - len(c.at); more > 0 {
			c.at, c.turns = append(c.at, make([]*contact, more)...), append(c.turns, make([]uint64, more)...)
		}
		c.at[dev] = d
		c.all = append(c.all, d)
	}
	c.version++
	c.turns[dev], c.last[c.version%contactTurns] = c.version, dev
	for i := range d.ways {
		switch o := &d.ways[i]; {
		case ways&(1<<i) == 0:
		case back:
			o.to = obs
			c.back = append(c.back, comeback{d, now})
		case o.from.IsZero() || !o.to.IsZero():
			*o = outage{from: obs}
			if !d.open {
				d.open = true
				c.open = append(c.open, d)
			}
		}
	}
}

// since returns the devices to which a way is lost now, or was after t or within
// the last backAgain, in no order. The result is valid until the next call.
func (c *contacts) since(t, now time.Time) []node {
	c.round++
	out := c.list[:0]
	add := func(d *contact) {
		if d.mark != c.round && d.since(t, now) {
			d.mark = c.round
			out = append(out, d.dev)
		}
	}
	open := c.open[:0]
	for _, d := range c.open {
		if d.open = !d.gone && d.lost(); d.open {
			open = append(open, d)
			add(d)
		}
	}
	clear(c.open[len(open):])
	c.open = open
	oldest := now.Add(-backAgain)
	if t.Before(oldest) {
		oldest = t
	}
	for i := len(c.back) - 1; i >= 0 && c.back[i].at.After(oldest); i-- {
		if d := c.back[i]; !d.gone {
			add(d.contact)
		}
	}
	c.list = out
	return out
}

// since says whether a way is lost now, or was after t or within the last backAgain.
func (d *contact) since(t, now time.Time) bool {
	for i := range d.ways {
		o := &d.ways[i]
		if !o.from.IsZero() && (o.to.IsZero() || apart(now, o.to) < backAgain || o.to.After(t)) {
			return true
		}
	}
	return false
}

// lost says whether one of the ways is lost now.
func (d *contact) lost() bool {
	return !d.ways[0].from.IsZero() && d.ways[0].to.IsZero() || !d.ways[1].from.IsZero() && d.ways[1].to.IsZero()
}

// forget drops the devices that are heard again since before t.
func (c *contacts) forget(t time.Time) {
	some := false
	c.all = slices.DeleteFunc(c.all, func(d *contact) bool {
		d.gone = !slices.ContainsFunc(d.ways[:], func(o outage) bool { return !o.from.IsZero() && (o.to.IsZero() || !o.to.Before(t)) })
		if d.gone {
			c.at[d.dev], c.turns[d.dev] = nil, 0
			some = true
		}
		return d.gone
	})
	if some {
		c.version++
		c.whole = c.version
	}
	c.back = slices.DeleteFunc(c.back, func(b comeback) bool { return b.gone })
}

// lost says whether a way to a device was closed when its word was due, and is.
func (e *hypotheses) lost(dev node, way int, due time.Time) bool {
	c := e.contact.of(dev)
	if c == nil || c.ways[way].from.IsZero() || c.ways[way].from.Add(-lossTold).After(due) {
		return false
	}
	to := c.ways[way].to
	if way == 0 { // what a system would have said while it was down is never said
		return to.IsZero() || to.After(due)
	}
	return to.IsZero() || e.now.Sub(to) < backAgain // an event log is read later
}

// mute says whether a device could not have told of a sign by the time it was
// due, were h the cause: without power, without contact, or cut off.
func (e *hypotheses) mute(dev node, by propagation.Contact, due time.Time, h *suspect) bool {
	if len(e.contact.all) == 0 {
		return false
	}
	return e.closed(dev, by, due) || (e.lost(dev, 0, due) || e.lost(dev, 1, due)) && e.powerless(dev, alone(h))
}

// closed says whether a device could not have told of a sign, whether or not it has power.
func (e *hypotheses) closed(dev node, by propagation.Contact, due time.Time) bool {
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
func (e *hypotheses) cutOff(dev node, due time.Time) bool {
	if e.contact.hubs == 0 {
		return false
	}
	some, bmc := false, e.g.kinds.of(schemas.KindBMC)
	for _, c := range e.g.children[dev] {
		if e.g.kind[c] != bmc {
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
// could not have said anything: their silence is no evidence. It reports whether
// these are others than before.
func (e *hypotheses) witness(h *suspect) (others bool) {
	if !e.someMute() && h.mutes == 0 || !e.unheard(h) {
		return false
	}
	h.mutes, h.mutedTo, h.restated = e.contact.version, math.MaxInt64, false
	was := h.muted
	if h.muted = e.lossy(h); !h.muted && !was {
		return false
	}
	e.heardIn = h.witnesses(e.heardIn[:0])
	own := none // a device that the fault itself puts to silence: its probabilities hold that
	if e.silences[h.key.fault] {
		own = e.g.server(h.node)
	}
	onset := e.onset(h)
	h.dark = false
	q := h.still()
	for c := range q.darks {
		q.darks[c] = q.darks[c][:0]
	}
	var lost []node // once they are asked for
	for c := range h.classes {
		r, cl := &h.classes[c], &h.fault.Classes[c]
		r.mute = 0
		m := &e.model.Signs[cl.Sign]
		inner := m.By == propagation.Host
		if cl.Jobs || cl.Derived || m.Contact != 0 || r.n == 0 {
			continue
		}
		due := onset.Add(cl.Soon)
		if cl.Before > cl.Within { // it comes first
			due = onset.Add(-cl.Before)
		}
		count := func(dev node, n int) { // n parts of dev more that are silent
			if inner && e.unread.is(dev) {
				r.mute += int32(n) //nolint:gosec // a number of parts
				return
			}
			if dev == none || dev == own {
				return
			}
			d := e.contact.of(dev)
			if d == nil || !d.since(onset, e.now) {
				return
			}
			for i := range d.ways { // what is just back is so for a while
				if to := d.ways[i].to; !to.IsZero() && e.now.Sub(to) < backAgain {
					h.mutedTo = min(h.mutedTo, e.span(to.Add(backAgain)))
				}
			}
			if e.closed(dev, m.By, due) {
				r.mute += int32(n) //nolint:gosec // a number of parts
				return
			}
			if !e.lost(dev, 0, due) && !e.lost(dev, 1, due) {
				return
			}
			if q.darks == nil {
				q.darks = make([][]solver.Dark, len(h.classes))
			}
			i := slices.IndexFunc(q.darks[c], func(d solver.Dark) bool { return d.Device == dev })
			if i < 0 {
				e.feed(dev)
				i = len(q.darks[c])
				q.darks[c], h.dark = append(q.darks[c], solver.Dark{Device: dev}), true
			}
			q.darks[c][i].Parts += n
		}
		to := e.walk.reach(e.g, h.node, cl)
		if len(to.nodes) <= few {
			for _, n := range to.nodes {
				count(e.g.server(n), 1)
			}
		} else {
			to.lay(e.g)
			if inner && len(e.unread) > 0 || len(to.devices) <= len(e.contact.open)+len(e.contact.back) {
				for i, dev := range to.devices {
					count(dev, int(to.parts[i]))
				}
			} else {
				if lost == nil {
					lost = e.contact.since(onset, e.now)
				}
				for _, dev := range lost {
					if n := to.of(e.g, dev); n > 0 {
						count(dev, n)
					}
				}
			}
		}
		if r.mute == 0 && len(h.darkIn(c)) == 0 {
			continue
		}
		for _, s := range r.signs { // who speaks all the same is no silent witness
			if s.said {
				count(e.g.server(s.node), -1)
			}
		}
	}
	n := len(e.heardIn)
	e.heardIn = h.witnesses(e.heardIn)
	if others = !slices.Equal(e.heardIn[:n], e.heardIn[n:]); others {
		h.stir()
		h.restated, h.unmuted = false, true
	}
	return others
}

// witnesses appends how many parts of each class are mute, and the devices without power.
func (h *suspect) witnesses(to []int32) []int32 {
	for c := range h.classes {
		darks := h.darkIn(c)
		to = append(to, h.classes[c].mute, int32(len(darks))) //nolint:gosec // a number of devices
		for _, d := range darks {
			to = append(to, d.Device, int32(d.Parts)) //nolint:gosec // a number of parts
		}
	}
	return to
}

// unheard says whether other parts of a suspect may be silent witnesses than when they were counted: its signs
// have changed, or the contact to a device on which they could be heard, or the time is over.
func (e *hypotheses) unheard(h *suspect) bool {
	c := &e.contact
	switch {
	case h.restated || h.mutes < c.whole || e.span(e.now) >= h.mutedTo:
		return true
	case h.mutes == c.version:
		return false
	case h.calm == nil || h.calm.of != e.inventory || h.muted && h.mutes < c.hubs:
		return true
	case c.version-h.mutes < min(contactTurns, uint64(len(h.calm.devices))):
		for v := h.mutes + 1; v <= c.version; v++ {
			if contains(h.calm.devices, c.last[v%contactTurns]) {
				return true
			}
		}
	case slices.ContainsFunc(h.calm.devices, func(dev node) bool { return int(dev) < len(c.turns) && c.turns[dev] > h.mutes }):
		return true
	}
	h.mutes = c.version
	return false
}

// lossy says whether one of the devices on which a suspect's signs could be heard was lost. Which these are is known
// of a suspect.
func (e *hypotheses) lossy(h *suspect) bool {
	q := h.still()
	if q.of != e.inventory {
		q.of, q.devices = e.inventory, nil
		all := e.walked[:0]
		for c := range h.classes {
			cl := &h.fault.Classes[c]
			if cl.Jobs || cl.Derived || e.model.Signs[cl.Sign].Contact != 0 {
				continue
			}
			to := e.walk.reach(e.g, h.node, cl)
			if len(to.nodes) > few {
				to.lay(e.g)
				all = append(all, to.devices...)
				continue
			}
			for _, n := range to.nodes {
				if dev := e.g.server(n); len(all) == 0 || all[len(all)-1] != dev {
					all = append(all, dev)
				}
			}
		}
		e.walked = all
		slices.Sort(all)
		all = slices.Compact(all)
		if len(all) > 0 && all[0] == none {
			all = all[1:]
		}
		q.devices = slices.Clone(all)
	}
	return slices.ContainsFunc(q.devices, func(dev node) bool { return e.contact.of(dev) != nil || e.unread.is(dev) })
}

// onset is when a suspect's fault began, as well as can be told. What follows a fault slowly
// comes from many parts soon all the same, and nothing is overdue before the first of them;
// what comes before a fault rather than after it leaves the earliest time that it may have begun.
func (e *hypotheses) onset(h *suspect) time.Time {
	switch {
	case !h.onset.IsZero():
		return h.onset
	case h.since != 0:
		return h.since.time()
	}
	return h.lo
}

// silences says whether a fault takes its own device out of contact.
func silences(f *propagation.Fault, showing map[string][]int) bool {
	return slices.ContainsFunc(f.Effects, func(x propagation.Effect) bool {
		return len(showing[x.State]) > 0 && (len(x.Path) == 0 || len(x.Path) == 1 && x.Path[0].Op == propagation.Up)
	})
}

func contains(sorted []node, n node) bool {
	_, ok := slices.BinarySearch(sorted, n)
	return ok
}
