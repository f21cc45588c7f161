package correlator

import (
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas/faults/propagation"
)

type link struct {
	to    *suspect
	class int
}

// suspect is a fault that a resource may have.
type suspect struct {
	seq     int
	key     suspectKey
	fault   *propagation.Fault
	prior   float64
	lo, hi  time.Time // when the fault may have begun, given its signs
	onset   time.Time
	since   time.Time // its first sign, of those that tell no more than that it is there by then
	again   time.Time // when a sign of its own was last raised again
	jobsAt  time.Time // when its workloads were looked up
	classes []reach
	inc     *incident
	within  *incident // of which it is a piece

	base    float64       // score over all signs
	weighed time.Time     // when; zero: a sign has changed since
	laid    time.Duration // when it was last weighed against others, as [Engine.span] has it
	group   int           // how much they were
	folded  []*suspect
	lift    float64       // what speaks for it only because it explains the folded
	calm    *calm         // once its parts are counted
	mutes   uint64        // version of contact that mute was counted in
	mutedAt time.Duration // when

	node     node
	mark     uint32 // scratch of the solver: met
	whole    uint32 // with all its signs
	tied     uint32 // with the states that it could stand behind
	round    uint32 // met by around
	askedIn  uint32 // pass in which it was asked whether it conducts
	at       int32  // in a group, from 1
	laidOut  int32  // in Engine.laid, from 1
	shown    bool   // by a sign of its own, which gave the onset
	dead     bool
	causes   bool // a state, beside the one that it is
	needed   bool // as a whole
	counted  bool // the parts of the classes
	accepted bool
	muted    bool // some could be
	dark     bool // some parts are silent only if they have no power
	conducts bool // could be blamed, or was
}

// reach is one class of a suspect's fault: how many parts could show the sign, and which do.
type reach struct {
	n     int           // once it is counted
	mute  int           // of them say nothing and could not
	dark  []solver.Dark // nor could these, without power
	signs []*sign
}

// lag is what a lag from the onset costs.
type lag struct {
	of    time.Duration
	costs float64
}

// calm is what of a suspect stays from one decision to the next: which classes have signs,
// what those cost that are silent, and how long that stays so.
type calm struct {
	known       bool
	onset       time.Time
	from, until time.Time // while no more becomes due
	live        []int     // classes with signs, or with parts that may have no power
	silent      []float64 // by class: the log-likelihood that nothing is heard, 0 where that says nothing
	lags        [][]lag   // by class and sign, of large classes
	of          uint64    // the inventory in which these are the devices on which its signs could be heard
	devices     []node
	far         bool // they are many
}

// still returns what is calm of a suspect, known or not.
func (h *suspect) still() *calm {
	if h.calm == nil {
		h.calm = &calm{silent: make([]float64, len(h.classes))}
	}
	return h.calm
}

// stir notes that what was calm of a suspect has changed.
func (h *suspect) stir() {
	if h.calm != nil {
		h.calm.known = false
	}
}

type suspectKey struct {
	node  node
	fault int32
}

type rule struct {
	fault, class int
	kinds        []uint8
}

type jobLink struct {
	to    *suspect
	class int
}

// relate links a sign with every suspect that could show it, and makes suspects.
func (e *Engine) relate(s *sign) {
	if s.kind >= len(e.model.Signs) {
		return
	}
	e.ranAt = e.ranAt[:0]
	for _, r := range e.rules[s.kind] {
		fault := &e.model.Faults[r.fault]
		if fault.Window != propagation.NoWindow && len(e.windows.at) == 0 {
			continue
		}
		class := &fault.Classes[r.class]
		roots := e.walk.backward(e.g, s.node, e.g.ways[class.Way], r.kinds)
		if len(roots) == 0 {
			continue
		}
		roots = append(e.roots[:0], roots...) // making a suspect walks too
		e.roots = nil
		for _, n := range roots {
			key := suspectKey{n, int32(r.fault)}
			h := e.suspects[key]
			if h != nil && h.inc != nil && !h.inc.repaired.IsZero() && s.at.After(h.inc.repaired) {
				h = nil // that fault is over
			}
			if h == nil {
				if !class.Later && s.said {
					e.suspect(key, s)
				}
				continue
			}
			if e.link(h, r.class, s) || class.Later || !s.said {
				continue
			}
			if !h.decided() {
				e.bury(h)
			}
			e.suspect(key, s)
		}
		e.roots = roots
	}
	if e.model.Signs[s.kind].Job {
		e.relateJob(s)
	}
	for _, l := range e.byJob[s.node] {
		if !l.to.dead && l.to.fault.Classes[l.class].Sign == s.kind {
			e.link(l.to, l.class, s)
		}
	}
}

// decided says whether a suspect has a part in what was decided of signs that are still
// open: as a root, as a state that another brought about, or as what they are not.
func (h *suspect) decided() bool {
	for c := range h.classes {
		if slices.ContainsFunc(h.classes[c].signs, func(s *sign) bool { return s.inc != nil }) {
			return true
		}
	}
	return h.inc != nil
}

// suspect makes one and links it with the signs that are there.
func (e *Engine) suspect(key suspectKey, because *sign) {
	fault := &e.model.Faults[key.fault]
	e.seq++
	h := &suspect{seq: e.seq, key: key, fault: fault, node: key.node, classes: make([]reach, len(fault.Classes))}
	h.prior = e.priorOf(fault, key.node)
	for i, k := range fault.Kinds {
		if k == e.g.kindOf(key.node) {
			h.prior -= kindStep * float64(i)
		}
	}
	h.causes = !fault.Harmless && slices.ContainsFunc(fault.Effects, func(f propagation.Effect) bool { return f.State != fault.Is })
	e.suspects[key] = h
	// The sign that made it comes first: it fixes the time.
	for pass := range 2 {
		for c := range fault.Classes {
			cl := &fault.Classes[c]
			at := because.at
			if !cl.Jobs {
				left := e.signs.kinds[cl.Sign]
				if because.kind == cl.Sign {
					if left--; pass == 0 && e.walk.reach(e.g, key.node, cl).has(because.node) {
						e.link(h, c, because)
					}
				}
				if pass == 0 || left == 0 {
					continue
				}
				on := e.walk.reach(e.g, key.node, cl)
				if s, known := e.signs.one(cl.Sign, on, because); known {
					if s != nil {
						e.link(h, c, s)
					}
					continue
				}
				for _, n := range on.nodes {
					if s := e.signs.get(n, cl.Sign); s != nil && s != because {
						e.link(h, c, s)
					}
				}
				continue
			}
			if fault.Window != propagation.NoWindow {
				continue
			}
			if pass == 0 && because.kind != cl.Sign {
				continue
			}
			nodes := e.jobsOn(key.node, cl.Way, at)
			h.classes[c].n = len(nodes)
			if pass == 1 {
				for _, n := range nodes {
					e.byJob[n] = append(e.byJob[n], jobLink{h, c})
				}
				h.jobsAt = at
			}
			if e.signs.kinds[cl.Sign] == 0 {
				continue
			}
			for _, n := range nodes {
				s := e.signs.get(n, cl.Sign)
				if s == nil || (s == because) != (pass == 0) {
					continue
				}
				e.link(h, c, s)
			}
		}
	}
}

// jobsOn returns the workloads that a way reaches from a node at t. They are the same for
// all faults that a sign brings to mind there. The result is valid until the next relate.
func (e *Engine) jobsOn(n node, way int, t time.Time) []node {
	for i := range e.ranAt {
		if r := &e.ranAt[i]; r.node == n && r.way == way && r.at.Equal(t) {
			return r.jobs
		}
	}
	jobs := slices.Clone(e.walk.forward(e.g, n, e.g.ways[way], t))
	e.ranAt = append(e.ranAt, ran{n, way, t, jobs})
	return jobs
}

// ran is which workloads a way reached at a time.
type ran struct {
	node node
	way  int
	at   time.Time
	jobs []node
}

// link ties a sign to a suspect, when the times agree.
func (e *Engine) link(h *suspect, class int, s *sign) bool {
	for _, l := range s.links {
		if l.to == h {
			return true
		}
	}
	if h.fault.Window != propagation.NoWindow {
		return e.linkWindow(h, class, s)
	}
	cl := &h.fault.Classes[class]
	lo, hi := s.at.Add(-cl.Within), s.at.Add(cl.Before)
	if s.loose {
		lo = lo.Add(-quietMoment)
	}
	switch {
	case h.lo.IsZero():
		h.lo, h.hi = lo, hi
	case !s.said: // an all-clear has no say about the beginning
	default:
		if lo.Before(h.lo) {
			lo = h.lo
		}
		if hi.After(h.hi) {
			hi = h.hi
		}
		if lo.After(hi) {
			inc := h.inc
			if inc == nil && h.within != nil && !h.within.gone && h.within.closed.IsZero() {
				inc = h.within
			}
			goesOn := inc != nil && (lo.Sub(hi) <= quietClear || s.node == h.node && s.at.Sub(inc.heard) <= quietClear ||
				!h.again.IsZero() && !h.again.Before(s.at.Add(-cl.Within)) && !h.again.After(s.at.Add(cl.Before)))
			if !goesOn {
				return false
			}
		} else {
			h.lo, h.hi = lo, hi
		}
	}
	// What it shows itself, and at once, says when it began; what shows the states that it brings about only where nothing else does.
	if own := class < h.fault.Own() && cl.Soon <= promptly; s.said && !cl.Later && cl.Before <= precursor && (own || !h.shown) &&
		(h.onset.IsZero() || own && !h.shown || s.at.Before(h.onset)) {
		h.onset, h.shown = s.at, own
	}
	if s.said && !cl.Later && cl.Before <= cl.Soon && (h.since.IsZero() || s.at.Before(h.since)) {
		h.since = s.at
	}
	h.stir()
	h.classes[class].signs = append(h.classes[class].signs, s)
	s.links = append(s.links, link{h, class})
	if d := s.at.Sub(h.jobsAt); s.said && !cl.Later && !h.jobsAt.IsZero() && d.Abs() > precursor {
		e.rehire(h, s.at)
	}
	return true
}

// rehire looks up the workloads of a suspect again: a precursor may be older
// than the jobs that the fault stops.
func (e *Engine) rehire(h *suspect, at time.Time) {
	h.jobsAt = at
	for c := range h.fault.Classes {
		cl := &h.fault.Classes[c]
		if !cl.Jobs {
			continue
		}
		nodes := slices.Clone(e.walk.forward(e.g, h.node, e.g.ways[cl.Way], at))
		h.stir()
		h.classes[c].n = max(h.classes[c].n, len(nodes))
		for _, n := range nodes {
			if !slices.ContainsFunc(e.byJob[n], func(l jobLink) bool { return l.to == h && l.class == c }) {
				e.byJob[n] = append(e.byJob[n], jobLink{h, c})
			}
			if s := e.signs.get(n, cl.Sign); s != nil {
				e.link(h, c, s)
			}
		}
	}
}

// count says of how many parts each class of a suspect could be heard, once that matters.
func (e *Engine) count(h *suspect) {
	if h.counted {
		return
	}
	h.counted = true
	h.stir()
	for c := range h.classes {
		if cl := &h.fault.Classes[c]; !cl.Jobs {
			h.classes[c].n = len(e.walk.reach(e.g, h.node, cl).nodes)
		}
	}
}

func (e *Engine) bury(h *suspect) {
	h.dead = true
	e.blame(h, false)
	if e.suspects[h.key] == h {
		delete(e.suspects, h.key)
	}
	for c := range h.classes {
		for _, s := range h.classes[c].signs {
			if s.owner == h {
				s.owner = nil
			}
			s.links = slices.DeleteFunc(s.links, func(l link) bool { return l.to == h })
		}
		h.classes[c].signs = nil
	}
}
