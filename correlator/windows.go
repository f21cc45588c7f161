package correlator

import (
	"container/heap"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// windowBase is more than what a window can score over the signs of a group, which is
// computed when it is asked for.
const windowBase = 1e9

// windowsAt bounds how many windows of one resource are remembered.
const windowsAt = 256

// window is declared maintenance of one resource. The harmless fault of its kind of work
// stands for all windows of that kind on the resource; what it explains goes by their
// times.
type window struct {
	schemas.Maintenance

	event string // that told of it
	node  node
	fault int32 // -1: the inventory does not know the resource, or no record the work
	over  bool  // and what has outlasted it is told
}

func (w *window) due() time.Time { return w.End().Add(time.Duration(w.GraceSeconds) * time.Second) }

// windows are those that are known, by the resource that they were declared for.
type windows struct {
	at   map[node][]*window
	sign int // of the model: that one was declared
	back int // that something is not back
}

// workFault returns the fault that stands for a kind of work on a resource, or -1.
func (e *hypotheses) workFault(work string, n node) int32 {
	for f := range e.model.Faults {
		fault := &e.model.Faults[f]
		if fault.Window == propagation.During && fault.Name == propagation.Planned(work) && slices.Contains(fault.Kinds, e.g.kindOf(n)) {
			return int32(f) //nolint:gosec // an index
		}
	}
	return -1
}

// declare takes in that a window was declared or ended early. It reports whether the
// event says anything.
func (e *hypotheses) declare(ev *schemas.Event) bool {
	m, err := schemas.MaintenanceOf(ev)
	if err != nil {
		return false
	}
	n := e.g.ensure(ev.Resource)
	if ev.Type == schemas.EventMaintenanceEnded {
		for _, w := range e.windows.at[n] {
			if w.ID != m.ID || w.over || !m.Ended.Before(w.End()) {
				continue
			}
			w.Ended, w.EndedBy = m.Ended, m.EndedBy
			s := e.signs.get(n, e.windows.sign)
			if s == nil {
				return false
			}
			s.facts = append(s.facts, fact{id: ev.ID, at: *m.Ended, lane: e.lane(ev), about: n, sev: gravityOf(ev.Severity), source: e.sourceOf(ev.Source), n: 1})
			e.watch(w, s)
			return true
		}
		return false
	}
	if len(e.windows.at[n]) >= windowsAt || slices.ContainsFunc(e.windows.at[n], func(w *window) bool { return w.ID == m.ID }) {
		return false
	}
	if e.windows.at == nil {
		e.windows.at = map[node][]*window{}
	}
	e.windows.at[n] = append(e.windows.at[n], &window{Maintenance: m, event: ev.ID, node: n, fault: e.workFault(m.Work, n)})
	return true
}

// watch wakes the engine when a window is over.
func (e *hypotheses) watch(w *window, s *sign) { heap.Push(&e.timers, timer{stampOf(w.due()), s}) }

// openWindow makes the suspect that stands for a window that was declared just now.
func (e *ledger) openWindow(s *sign, event string) {
	for _, w := range e.windows.at[s.node] {
		if w.event != event {
			continue
		}
		if w.fault < 0 { // an inventory that is read later may have it
			continue
		}
		e.watch(w, s)
		key := suspectKey{s.node, w.fault}
		if e.suspectOf(key) == nil { // else there is another window, and it may explain more now
			e.suspect(key, s, -1)
		}
		if h := e.suspectOf(key); h != nil {
			e.meet(h)
		}
		for _, inc := range e.open { // what was told without it
			if e.windowAround(inc) == w {
				e.change(inc)
			}
		}
	}
}

// findWindows has the windows explain of which the resource is known only now.
func (e *ledger) findWindows() {
	if len(e.windows.at) == 0 {
		return
	}
	for _, s := range slices.Clone(e.signs.all) {
		if s.kind != e.windows.sign {
			continue
		}
		for _, w := range e.windows.at[s.node] {
			if w.fault >= 0 {
				continue
			}
			if w.fault = e.workFault(w.Work, s.node); w.fault >= 0 {
				e.openWindow(s, w.event)
				e.dirty = append(e.dirty, s)
			}
		}
	}
}

// meet links what a window explains and is there already.
func (e *hypotheses) meet(h *suspect) {
	for c := range h.fault.Classes {
		cl := &h.fault.Classes[c]
		if cl.Jobs {
			continue
		}
		for _, n := range slices.Clone(e.walk.reach(e.g, h.node, cl).nodes) {
			if s := e.signs.get(n, cl.Sign); s != nil {
				e.link(h, c, s)
			}
		}
	}
	for _, s := range e.signs.all {
		if s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Job {
			e.relateJob(s)
		}
	}
	if !e.restoring {
		for c := range h.classes {
			e.dirty = append(e.dirty, h.classes[c].signs...)
		}
	}
}

// within lays out the signs of a window that are in a group.
func (e *hypotheses) within(signs []*sign, ev []solver.Evidence, index func(*sign) int32) []solver.Evidence {
	for _, s := range signs {
		if n := index(s); n != solver.None {
			x := solver.Evidence{Sign: n, Said: s.said}
			if s.said {
				x.Gain = e.weight(s)
			}
			ev = append(ev, x)
		}
	}
	return ev
}

// linkWindow ties a sign to a suspect that stands for windows, when their times agree.
func (e *hypotheses) linkWindow(h *suspect, class int, s *sign) bool {
	cl := &h.fault.Classes[class]
	switch {
	case s.kind == e.windows.sign || s.kind == e.windows.back:
	case h.fault.Window == propagation.Overdue:
		if s.outlasted == nil {
			return true // it is not to blame for that, and nothing better is
		}
	case !e.explains(h, cl, s, s.at):
		return true
	}
	if h.lo.IsZero() {
		h.lo, h.hi = s.at, s.at
	}
	h.counted = true // silence says nothing
	h.stir()
	h.classes[class].signs = append(h.classes[class].signs, s)
	s.links = append(s.links, link{h, class})
	return true
}

// explains says whether a sign that began at t is of a kind of work that was declared for then.
func (e *hypotheses) explains(h *suspect, cl *propagation.Class, s *sign, t time.Time) bool {
	return slices.ContainsFunc(e.windows.at[h.node], func(w *window) bool {
		if w.over || w.fault != h.key.fault {
			return false
		}
		began := !t.Before(w.From.Add(-cl.Before)) && !t.After(w.End().Add(cl.Within))
		if o := s.outlasted; o != nil { // one window takes over from another
			began = !w.From.After(o.due()) && w.due().After(o.due())
		}
		return began && (!cl.Alone || e.unpowered(s.node, t))
	})
}

// unpowered says whether all that feeds a part's device, or that at the other end of its
// links, is worked on at t.
func (e *hypotheses) unpowered(n node, t time.Time) bool {
	l := &e.g.links[linkNet]
	for _, end := range slices.Concat([]node{n}, l.out[n], l.in[n]) {
		if dev := e.g.server(end); dev != none && e.offWork(dev, t) {
			return true
		}
	}
	return false
}

// offWork says whether all that feeds a device is worked on at t.
func (e *hypotheses) offWork(dev node, t time.Time) bool {
	at := func(p node) bool {
		for ; p != none; p = e.g.parent[p] {
			if slices.ContainsFunc(e.windows.at[p], func(w *window) bool { return !t.Before(w.From.Add(-lateRead)) && !t.After(w.due()) }) {
				return true
			}
		}
		return false
	}
	e.feed(dev)
	return e.supply.Dead(dev, at)
}

// relateJob links what a job reports with the windows of the servers that it ran on: jobs
// come and go while a window lasts.
func (e *hypotheses) relateJob(s *sign) {
	j := e.g.jobs[s.node]
	if j == nil || len(e.windows.at) == 0 {
		return
	}
	met := map[node]bool{}
	for _, n := range j.resources {
		host := e.g.server(n)
		if host == none || met[host] {
			continue
		}
		met[host] = true
		for p := host; p != none; p = e.g.parent[p] {
			e.relateTo(p, s)
		}
		for _, l := range [2][][]node{e.g.links[linkNet].out, e.g.links[linkNet].in} {
			for _, part := range e.g.children[host] {
				for _, port := range l[part] {
					if sw := e.g.server(port); sw != none {
						e.relateTo(sw, s)
					}
				}
			}
		}
	}
}

func (e *hypotheses) relateTo(n node, s *sign) {
	for _, w := range e.windows.at[n] {
		h := e.suspectOf(suspectKey{n, w.fault})
		if h == nil {
			continue
		}
		for c := range h.fault.Classes {
			if cl := &h.fault.Classes[c]; cl.Jobs && cl.Sign == s.kind {
				e.link(h, c, s)
				break
			}
		}
	}
}

// crosses says whether a condition that is reported anew begins on the other side of a
// window's edge: then it is another one.
func (e *ledger) crosses(s *sign, state uint8, t time.Time) bool {
	if s.up || s.inc != nil || state == cleared || len(e.windows.at) == 0 {
		return false
	}
	covers := func(at time.Time) bool {
		for n := e.whole(s.node); n != none; n = e.g.parent[n] {
			for _, w := range e.windows.at[n] {
				if !at.Before(w.From.Add(-lateRead)) && !at.After(w.End().Add(lateRead)) {
					return true
				}
			}
		}
		return false
	}
	if s.excused != nil && s.excused.fault.Window == propagation.During {
		return !covers(t)
	}
	return s.excused == nil && !covers(s.at) && covers(t)
}

// kept says whether a sign is remembered because a window that is not over explains it.
func (e *hypotheses) kept(s *sign) bool {
	n := s.node
	if h := s.excused; h != nil && h.fault.Window == propagation.During {
		n = h.node
	} else if s.kind != e.windows.sign {
		return false
	}
	return len(e.windows.at[n]) > 0
}

// endWindows tells what has outlasted windows of a resource that are over at t: servers and
// switches that are not back are one fault, and all else is judged as if there had been
// no window.
func (e *ledger) endWindows(declared *sign, t time.Time) {
	all := e.windows.at[declared.node]
	for _, w := range all {
		if w.over || w.due().After(t) {
			continue
		}
		w.over = true
		e.outlast(w)
	}
	left := slices.DeleteFunc(slices.Clone(all), func(w *window) bool { return w.over && t.Sub(w.due()) > forget })
	if len(left) == len(all) {
		if slices.ContainsFunc(all, func(w *window) bool { return w.over }) {
			heap.Push(&e.timers, timer{stampOf(t.Add(forget + time.Second)), declared})
		}
		return
	}
	if e.windows.at[declared.node] = left; len(left) == 0 {
		delete(e.windows.at, declared.node)
	}
	gone := map[string]bool{}
	for _, w := range all {
		if !slices.Contains(left, w) {
			gone[w.event] = true
			gone[schemas.EventID("maintenance", w.ID, e.g.name[w.node], schemas.EventMaintenanceEnded)] = true
		}
	}
	declared.facts = slices.DeleteFunc(declared.facts, func(f fact) bool { return gone[f.id] })
}

func (e *ledger) outlast(w *window) {
	h := e.suspectOf(suspectKey{w.node, w.fault})
	if h == nil {
		return
	}
	out := map[node][]*sign{} // by server or switch
	var lost []node
	var late []*sign
	for c := range h.classes {
		for _, s := range slices.Clone(h.classes[c].signs) {
			cl := &h.fault.Classes[c]
			if !s.up || s.kind == e.windows.sign || e.explains(h, cl, s, s.at) {
				continue
			}
			s.outlasted = w
			e.unlink(h, c, s)
			if late = append(late, s); e.takenOver(s) {
				continue
			}
			dev := e.whole(s.node)
			if m := &e.model.Signs[s.kind]; m.Contact&propagation.Host != 0 && m.Long > 0 && !slices.Contains(lost, dev) {
				lost = append(lost, dev)
			}
			out[dev] = append(out[dev], s)
		}
	}
	e.dirty = append(e.dirty, late...)
	for _, dev := range lost {
		b := e.signs.get(dev, e.windows.back)
		if b != nil {
			continue
		}
		e.seq++
		b = &sign{seq: e.seq, kind: e.windows.back, node: dev, at: out[dev][0].at, said: true, raisedAt: e.now, heard: e.now, outlasted: w}
		for _, s := range out[dev] {
			if s.at.Before(b.at) {
				b.at = s.at
			}
		}
		e.signs.add(b)
		e.relate(b)
		e.dirty = append(e.dirty, b)
	}
	for _, s := range late {
		e.relate(s)
	}
}

// takenOver says whether another window explains what has outlasted one.
func (e *hypotheses) takenOver(s *sign) bool {
	e.relate(s)
	return slices.ContainsFunc(s.links, func(l link) bool { return l.to.fault.Window == propagation.During && l.to.inc == nil && !l.to.dead })
}

func (e *hypotheses) unlink(h *suspect, class int, s *sign) {
	h.stir()
	r := &h.classes[class]
	r.signs = slices.DeleteFunc(r.signs, func(o *sign) bool { return o == s })
	s.links = slices.DeleteFunc(s.links, func(l link) bool { return l.to == h })
	h.unweigh()
}

// restoreWindows ends the windows that were over when the state was stored that is read back.
func (e *ledger) restoreWindows(stored time.Time) {
	for _, s := range slices.Clone(e.signs.all) {
		if s.kind == e.windows.sign {
			e.endWindows(s, stored)
		}
	}
}

// windowOf returns the window in which something began on a part, or which it outlasted.
func (e *ledger) windowOf(n node, at time.Time) *window {
	look := func(n node) *window {
		for ; n != none; n = e.g.parent[n] {
			for _, w := range e.windows.at[n] {
				if !at.Before(w.From) && !at.After(w.due()) {
					return w
				}
			}
		}
		return nil
	}
	if w := look(n); w != nil {
		return w
	}
	for _, p := range e.g.suppliers(e.whole(n)) {
		if w := look(p); w != nil {
			return w
		}
	}
	return nil
}

// windowAround returns the window in which the cause of an incident began.
func (e *ledger) windowAround(inc *incident) *window {
	switch {
	case len(e.windows.at) == 0 || inc.gone:
		return nil
	case inc.root == nil:
		return e.windowOf(inc.where, inc.opened)
	}
	return e.windowOf(inc.root.node, e.onset(inc.root))
}

// viewWindow fills in what an incident has to do with declared maintenance.
func (e *ledger) viewWindow(v *view, inc *incident) {
	if len(e.windows.at) == 0 {
		return
	}
	for _, s := range inc.signs {
		if s.outlasted != nil {
			v.window, v.outlasted = s.outlasted, true
			return
		}
	}
	if v.window = e.windowOf(v.node, v.onset); v.window != nil && !v.window.over {
		v.inWindow = true
	}
}

// windowTime is how sentences show when a window ended.
const windowTime = "2006-01-02 15:04 UTC"

func (w *window) fact(name string) string {
	switch {
	case w == nil:
		return ""
	case name == "window":
		return w.Window()
	case name == "window_by":
		return w.By
	}
	return w.End().UTC().Format(windowTime)
}
