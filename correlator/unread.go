package correlator

import (
	"slices"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// unread are servers that nobody reads from inside: no agent, no kernel log, no readings of their GPUs.
// What only their own systems would tell is never told, so its silence is no evidence.
type unread map[node]struct{}

func (u unread) is(dev node) bool {
	_, ok := u[dev]
	return ok
}

// SetUnread says which servers, by id, no collector reads from inside. One that is heard from inside all the same is read
// from then on. Signs that are known already are weighed anew.
func (e *Engine) SetUnread(servers []string) {
	if slices.Equal(servers, e.unreadIDs) {
		return
	}
	e.unreadIDs = slices.Clone(servers)
	e.findUnread()
	for _, s := range e.signs.all {
		e.wake(s)
	}
}

// findUnread finds the servers in the inventory.
func (e *Engine) findUnread() {
	e.unread = unread{}
	for _, id := range e.unreadIDs {
		if n, ok := e.g.number[id]; ok && e.g.kindOf(n) == schemas.KindServer {
			e.unread[n] = struct{}{}
		}
	}
	e.contact.version++
	e.contact.whole = e.contact.version
}

// hearInside notes that a server was heard from inside.
func (e *Engine) hearInside(ev *schemas.Event) {
	if len(e.unread) == 0 {
		return
	}
	switch ev.Source {
	case schemas.SourceKmsg, schemas.SourceAgent, schemas.SourceDCGM, schemas.SourceNVML:
	default:
		return
	}
	if n, ok := e.g.number[ev.Resource]; ok && e.unread.is(e.g.server(n)) {
		delete(e.unread, e.g.server(n))
		e.contact.version++
		e.contact.whole = e.contact.version
	}
}

// unreadOf counts the parts of a class that say nothing since nobody reads their servers from inside.
func (e *hypotheses) unreadOf(h *suspect, class int) (parts int) {
	cl := &h.fault.Classes[class]
	if len(e.unread) == 0 || h.classes[class].mute == 0 || e.model.Signs[cl.Sign].By != propagation.Host {
		return 0
	}
	to := e.walk.reach(e.g, h.node, cl)
	if len(to.nodes) <= few {
		for _, n := range to.nodes {
			if e.unread.is(e.g.server(n)) {
				parts++
			}
		}
	} else {
		to.lay(e.g)
		for i, dev := range to.devices {
			if e.unread.is(dev) {
				parts += int(to.parts[i])
			}
		}
	}
	for _, s := range h.classes[class].signs {
		if s.said && e.unread.is(e.g.server(s.node)) {
			parts--
		}
	}
	return parts
}

// someMute says whether anything may be silent because it cannot speak.
func (e *hypotheses) someMute() bool { return len(e.contact.all) > 0 || len(e.unread) > 0 }
