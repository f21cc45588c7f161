package correlator

import (
	"cmp"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas/faults/propagation"
)

type link struct {
	to    *suspect
	class int
}

// hypotheses is what could explain the signs, and lays it out for the solver. It knows nothing of
// incidents.
type hypotheses struct {
	intake

	rules     [][]rule // by sign
	walk      walker
	spots     spotTable
	held      int                // suspects in spots
	widest    []widest           // by fault and sign
	byJob     map[node][]jobLink // in the order in which they were found
	unhired   []unhired
	longest   time.Duration // between two signs of a fault that agree
	windows   windows
	unfed     map[node]*suspect // suppliers that are blamed
	unfedAll  []*suspect        // the same, in no order
	unfedSum  uint64            // tells apart which these are, and since when
	roots     []node            // scratch
	kindMet   []uint32          // scratch of others: the round in which a kind was met
	kindRound uint32
	showing   map[string][]int // signs by which a part shows that it is in a state
	silences  []bool           // by fault: it takes its own device out of contact

	silentMost []float64 // by fault: what its classes without signs can add to a score at most
	hanging    struct {  // scratch of component
		signs    []*sign
		suspects []*suspect
	}
	signOrder    order[*sign]
	suspectOrder order[*suspect]
	epoch        uint32
	pass         uint32 // over a component
	cover        *solver.Cover
	method       solver.Method // the cover, unless another was set
	supply       solver.Supply
	classes      arena[solver.Class]
	evidence     arena[solver.Evidence]
	refs         arena[solver.Ref]
	partsOf      arena[[]solver.Part]
	ready        arena[solver.Part] // with when what comes before was shown
	roomsMet     nodeSet            // scratch of places
	inGroup      []string           // states of the faults of a question
	laid         []solver.Cause     // a root with its states, for the next question
	one          [1]solver.Cause
	lags         [1 << lagBits]lag // each lag has a place, which it may lose to another; none costs nothing
	asked        question          // scratch, and of its slices
	round        uint32
	ranAt        []ran // scratch
	// scratch of what was shown when, by device and by what holds the devices
	shownFrom, heldFrom times
	leads               []time.Duration   // scratch of [firsts.charge]
	walked              []node            // scratch of lossy
	heardIn             []int32           // scratch of witness
	lostNow             []solver.Supplier // scratch of blamed
	rivalling           []*suspect        // scratch of around
	endedAt             []time.Time       // scratch of back
	ending              bool              // it is asked when what suspects show has ended: some share what they supply
}

// suspect is a fault that a resource may have.
type suspect struct {
	// What every decision asks of a suspect lies together.
	seq      int
	mark     uint32 // scratch of the solver: met
	whole    uint32 // with all its signs
	tied     uint32 // with the states that it could stand behind
	askedIn  uint32 // pass in which it was asked whether it conducts
	conducts bool   // could be blamed, or was
	dead     bool
	causes   bool // a state, beside the one that it is
	needed   bool // as a whole
	counted  bool // the parts of the classes
	accepted bool
	restated bool  // its signs are others than when mute was counted, or say other things
	muted    bool  // some could be
	unmuted  bool  // these are others than when it was weighed
	at       int32 // in a group, from 1
	laidOut  int32 // in Engine.laid, from 1
	fault    *propagation.Fault
	base     float64 // score over all signs
	weighed  stamp   // when; zero: a sign has changed since
	classes  []reach
	calm     *calm         // once its parts are counted
	mutes    uint64        // version of contact that mute was counted in
	mutedTo  time.Duration // how long that holds, if nothing changes
	inc      *incident
	onset    time.Time
	node     node
	round    uint32        // met by around
	laid     time.Duration // when it was last weighed against others, as [hypotheses.span] has it
	group    int32         // how much they were
	fresh    int32         // signs since then
	folded   []*suspect
	lift     float64 // what speaks for it only because it explains the folded
	prior    float64
	mixed    uint64 // of a supplier that is blamed: its part of unfedSum

	key    suspectKey
	lo, hi time.Time // when the fault may have begun, given its signs
	since  stamp     // its first sign, of those that tell no more than that it is there by then
	again  stamp     // when a sign of its own was last raised again
	jobsAt stamp     // when its workloads were looked up
	within *incident // of which it is a piece
	shown  bool      // by a sign of its own, which gave the onset
	vague  bool      // by one that comes late by nature
	hired  bool      // its workloads are known
	dark   bool      // some parts are silent only if they have no power
}

// stamp is a time in eight bytes: nanoseconds since 1970; 0 is none.
type stamp int64

func stampOf(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	return stamp(cmp.Or(nanoseconds(t), 1))
}

func (s stamp) time() time.Time { return time.Unix(0, int64(s)).UTC() }

// reach is one class of a suspect's fault: how many parts could show the sign, and which do.
type reach struct {
	n     int32 // once it is counted
	mute  int32 // of them say nothing and could not
	signs []*sign
}

// darkIn returns the devices without power on which signs of a class could be heard otherwise.
func (h *suspect) darkIn(class int) []solver.Dark {
	if h.calm == nil || h.calm.darks == nil {
		return nil
	}
	return h.calm.darks[class]
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
	lost        int // of how many changes of the fits it is
	onset       time.Time
	from, until time.Time       // while no more becomes due
	live        []int           // classes with signs, or with parts that may have no power
	silent      []float64       // by class: the log-likelihood that nothing is heard, 0 where that says nothing
	of          uint64          // the inventory in which these are the devices on which its signs could be heard
	devices     []node          // sorted
	darks       [][]solver.Dark // by class, of parts that could not speak without power; nil: there were none
	unfed       uint64          // the suppliers that were blamed when it was weighed, where that matters
	fits        int             // of how many changes of the fits its weight is
}

// still returns what is calm of a suspect, known or not.
func (h *suspect) still() *calm {
	if h.calm == nil {
		h.calm = &calm{silent: make([]float64, len(h.classes))}
	}
	return h.calm
}

// unweigh notes that what is known of a suspect is other than when it was weighed.
func (h *suspect) unweigh() { h.weighed = 0 }

// stir notes that what was calm of a suspect has changed.
func (h *suspect) stir() {
	h.restated = true
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

// jobLink is a suspect that one of its classes leads to a workload.
type jobLink struct {
	to    *suspect
	class int
	seq   int // Engine.seq when it was found there
}

// relate links a sign with every suspect that could show it, and makes suspects.
func (e *hypotheses) relate(s *sign) {
	if s.kind >= len(e.model.Signs) {
		return
	}
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
			p := e.enter(key, s)
			h := p.suspect
			if h != nil && h.inc != nil && !h.inc.repaired.IsZero() && s.at.After(h.inc.repaired) {
				h = nil // that fault is over
			}
			if h == nil {
				if !class.Later && s.said {
					e.suspect(key, s, r.class)
				}
				continue
			}
			if e.link(h, r.class, s) || class.Later || !s.said {
				continue
			}
			if !h.decided() {
				e.bury(h)
			}
			e.suspect(key, s, r.class)
		}
		e.roots = roots
	}
	s.entered = true
	if e.model.Signs[s.kind].Job {
		e.relateJob(s)
	}
	if e.g.jobs[s.node] != nil {
		e.hireFor(s)
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

// spot is a fault that a part may have: the suspect, if one is held, and what was heard of the fault, whether or
// not the suspect is tied to it. Most of what is heard stays alone, and then nothing else is gone over.
type spot struct {
	suspect *suspect
	signs   []*sign // in no order; some may be forgotten
}

// spotTable holds spots by node, of which each has few, and most none.
type spotTable struct {
	at    []int32 // by node: where its list is, from 1
	lists [][]spotOf
	n     int
}

type spotOf struct {
	fault int32
	*spot
}

func (t *spotTable) get(key suspectKey) *spot {
	if int(key.node) < len(t.at) && t.at[key.node] != 0 {
		for _, p := range t.lists[t.at[key.node]-1] {
			if p.fault == key.fault {
				return p.spot
			}
		}
	}
	return nil
}

func (t *spotTable) add(key suspectKey) *spot {
	if more := int(key.node) + 1 - len(t.at); more > 0 {
		t.at = append(t.at, make([]int32, more)...)
	}
	if t.at[key.node] == 0 {
		t.lists = append(t.lists, nil)
		t.at[key.node] = int32(len(t.lists)) //nolint:gosec // a number of nodes
	}
	list := &t.lists[t.at[key.node]-1]
	*list = append(*list, spotOf{key.fault, &spot{}})
	t.n++
	return (*list)[len(*list)-1].spot
}

// enter notes a sign where a fault could show it.
func (e *hypotheses) enter(key suspectKey, s *sign) *spot {
	p := e.spots.get(key)
	if p == nil {
		p = e.spots.add(key)
	}
	if n := len(p.signs); n > 0 && p.signs[n-1] == s || s.entered && slices.Contains(p.signs, s) {
		return p // by another class
	}
	p.signs = append(p.signs, s)
	return p
}

// widest is the longest that a sign of a fault may come after it began, and before.
type widest struct{ within, before time.Duration }

// enterAll notes a sign wherever a fault could show it, once the inventory says otherwise where that is.
func (e *hypotheses) enterAll(s *sign) {
	if s.kind >= len(e.rules) {
		return
	}
	for _, r := range e.rules[s.kind] {
		if e.model.Faults[r.fault].Window != propagation.NoWindow {
			continue
		}
		for _, n := range e.walk.backward(e.g, s.node, e.g.ways[e.model.Faults[r.fault].Classes[r.class].Way], r.kinds) {
			e.enter(suspectKey{n, int32(r.fault)}, s)
		}
	}
}

// enterAt notes what was heard of a node of which it is known only now what it is.
func (e *hypotheses) enterAt(n node) {
	if int(n) < len(e.signs.of) {
		for s := e.signs.of[n]; s != nil; s = s.next {
			e.enterAll(s)
		}
	}
}

// suspectOf returns the fault of a part that is held possible, or nil.
func (e *hypotheses) suspectOf(key suspectKey) *suspect {
	if p := e.spots.get(key); p != nil {
		return p.suspect
	}
	return nil
}

// occupy has a spot hold another suspect, or none.
func (e *hypotheses) occupy(p *spot, h *suspect) {
	if p.suspect != nil {
		e.held--
	}
	if p.suspect = h; h != nil {
		e.held++
	}
}

// clearSpots forgets spots of which nothing is heard any more.
func (e *hypotheses) clearSpots() {
	for i, list := range e.spots.lists {
		left := slices.DeleteFunc(list, func(p spotOf) bool {
			p.signs = slices.DeleteFunc(p.signs, func(s *sign) bool { return s.off })
			return len(p.signs) == 0 && p.suspect == nil
		})
		if e.spots.n -= len(list) - len(left); len(left) == 0 {
			left = nil
		}
		e.spots.lists[i] = left
	}
	e.signs.removed = 0
}

// others finds of which kinds more was heard that a suspect may be tied to, all else the same.
func (e *hypotheses) others(h *suspect, p *spot, because *sign) (some bool) {
	e.kindRound++
	e.stats.Met += uint64(len(p.signs))
	left := p.signs[:0]
	for _, s := range p.signs {
		if s.off {
			continue
		}
		left = append(left, s)
		if w := &e.widest[int(h.key.fault)*len(e.model.Signs)+s.kind]; s != because && h.agrees(w.within, w.before, s) {
			e.kindMet[s.kind], some = e.kindRound, true
		}
	}
	clear(p.signs[len(left):])
	p.signs = left
	return some
}

// suspect makes one and links it with the signs that are there. The way of a class leads to the one that it is made for.
func (e *hypotheses) suspect(key suspectKey, because *sign, class int) {
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
	p := e.enter(key, because)
	e.occupy(p, h)
	window := fault.Window != propagation.NoWindow
	// The sign that made it comes first: it fixes the time.
	some := true
	for pass := range 2 {
		if pass == 1 && !window {
			some = e.others(h, p, because)
		}
		for c := range fault.Classes {
			cl := &fault.Classes[c]
			if !cl.Jobs {
				// Classes before that one would have made it, but for those that make none.
				if pass == 0 && because.kind == cl.Sign && (c == class || class < 0 || c < class && cl.Later) && (c == class || e.walk.reach(e.g, key.node, cl).has(because.node)) {
					e.link(h, c, because)
				}
				if pass == 0 || !some || !window && e.kindMet[cl.Sign] != e.kindRound {
					continue
				}
				on := e.walk.reach(e.g, key.node, cl)
				if s, known := e.signs.one(cl.Sign, on, because); known {
					if s != nil {
						e.link(h, c, s)
					}
					continue
				}
				e.stats.Met += uint64(len(on.nodes))
				for _, n := range on.nodes {
					if s := e.signs.get(n, cl.Sign); s != nil && s != because {
						e.link(h, c, s)
					}
				}
				continue
			}
			if window {
				continue
			}
			if pass == 1 {
				h.jobsAt = stampOf(because.at)
			}
			if pass == 0 && because.kind == cl.Sign || pass == 1 && e.jobsMay(h, cl) {
				if pass == 1 {
					e.hire(h)
				}
				for _, n := range e.jobsOn(key.node, cl.Way, because.at) {
					if s := e.signs.get(n, cl.Sign); s != nil && (s == because) == (pass == 0) {
						e.link(h, c, s)
					}
				}
				if pass == 1 && h.vague && !cl.Derived {
					e.hireEnded(h, c, because.at)
				}
			}
		}
	}
	if !h.hired && h.jobsAt != 0 {
		e.unhired = append(e.unhired, unhired{e.span(because.at), h})
	}
}

// unhired is a suspect that may not know its workloads yet, and when the sign came that it was made for.
type unhired struct {
	at time.Duration // as [hypotheses.span] has it
	of *suspect
}

// jobsMay says whether some workload has shown a sign of a class at a time that agrees with a suspect's.
func (e *hypotheses) jobsMay(h *suspect, cl *propagation.Class) bool {
	return e.signs.kinds[cl.Sign] > 0 && slices.ContainsFunc(e.signs.by[cl.Sign], func(s *sign) bool { return h.agrees(cl.Within, cl.Before, s) })
}

// hire looks up the workloads of a suspect, as they were when it was made. Most suspects end before that matters.
func (e *hypotheses) hire(h *suspect) {
	if h.hired || h.jobsAt == 0 {
		return
	}
	h.hired = true
	for c := range h.classes {
		cl := &h.fault.Classes[c]
		if !cl.Jobs {
			continue
		}
		nodes := e.jobsOn(h.node, cl.Way, h.jobsAt.time())
		e.stats.Met += uint64(len(nodes))
		h.classes[c].n = int32(len(nodes)) //nolint:gosec // a number of parts
		for _, n := range nodes {
			e.employ(n, jobLink{h, c, h.seq})
		}
	}
}

// hireEnded ties a suspect that is heard of late by nature to the workloads that had ended by then, and that ran
// there as they stopped: a driver is asked of its card when the job has given up.
func (e *hypotheses) hireEnded(h *suspect, c int, at time.Time) {
	cl := &h.fault.Classes[c]
	for _, s := range e.signs.by[cl.Sign] {
		if at.Sub(s.at) <= jobTrail || !h.agrees(cl.Within, cl.Before, s) || !slices.Contains(e.jobsOn(h.node, cl.Way, s.at), s.node) {
			continue
		}
		if !slices.ContainsFunc(e.byJob[s.node], func(l jobLink) bool { return l.to == h && l.class == c }) && e.link(h, c, s) {
			h.classes[c].n++
			e.employ(s.node, jobLink{h, c, h.seq})
		}
	}
}

// employ notes a suspect of a workload, in the order of making.
func (e *hypotheses) employ(n node, l jobLink) {
	all := e.byJob[n]
	at, _ := slices.BinarySearchFunc(all, l.seq, func(o jobLink, seq int) int {
		if o.seq <= seq {
			return -1
		}
		return 1
	})
	e.byJob[n] = slices.Insert(all, at, l)
}

// hireFor has the suspects know their workloads to which what one of these shows could matter.
func (e *hypotheses) hireFor(s *sign) {
	left := e.unhired[:0]
	for _, u := range e.unhired {
		h := u.of
		if d := (u.at - e.span(s.at)).Abs(); d > e.longest+quietMoment {
			left = append(left, u)
			continue
		}
		if h.dead || h.hired {
			continue
		}
		for c := range h.fault.Classes {
			if cl := &h.fault.Classes[c]; cl.Jobs && cl.Sign == s.kind && h.agrees(cl.Within, cl.Before, s) {
				e.hire(h)
				break
			}
		}
		if !h.hired {
			left = append(left, u)
		}
	}
	clear(e.unhired[len(left):])
	e.unhired = left
}

// jobsOn returns the workloads that a way reaches from a node at t. They are the same for
// all faults that a sign brings to mind there.
func (e *hypotheses) jobsOn(n node, way int, t time.Time) []node {
	if len(e.ranAt) > few {
		e.ranAt = e.ranAt[:0]
	}
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
func (e *hypotheses) link(h *suspect, class int, s *sign) bool {
	for _, l := range s.links {
		if l.to == h {
			return true
		}
	}
	if h.fault.Window != propagation.NoWindow {
		return e.linkWindow(h, class, s)
	}
	cl := &h.fault.Classes[class]
	lo, hi := s.began(cl.Within, cl.Before)
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
				h.again != 0 && h.again >= stampOf(s.at.Add(-cl.Within)) && h.again <= stampOf(s.at.Add(cl.Before)))
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
		h.onset, h.shown, h.vague = s.at, own, class < h.fault.Own() && !own
	}
	if s.said && !cl.Later && cl.Before <= cl.Soon && (h.since == 0 || stampOf(s.at) < h.since) {
		h.since = stampOf(s.at)
	}
	if h.accepted && e.unfed[h.node] == h {
		e.unfedSum -= h.mixed
		e.mix(h)
	}
	h.stir()
	h.classes[class].signs = append(h.classes[class].signs, s)
	s.links = append(s.links, link{h, class})
	if d := s.at.Sub(h.jobsAt.time()); s.said && !cl.Later && h.jobsAt != 0 && d.Abs() > precursor {
		e.rehire(h, s.at)
	}
	return true
}

// began returns when a fault began that a sign came so long after, or before, at most.
func (s *sign) began(within, before time.Duration) (lo, hi time.Time) {
	lo, hi = s.at.Add(-within), s.at.Add(before)
	if s.loose {
		lo = lo.Add(-quietMoment)
	}
	return lo, hi
}

// agrees says whether the time of a sign lets link tie it to a suspect; where more than times has a say it says yes.
func (h *suspect) agrees(within, before time.Duration, s *sign) bool {
	lo, hi := s.began(within, before)
	return h.lo.IsZero() || !s.said || h.inc != nil || !lo.After(h.hi) && !h.lo.After(hi)
}

// rehire looks up the workloads of a suspect again: a precursor may be older
// than the jobs that the fault stops.
func (e *hypotheses) rehire(h *suspect, at time.Time) {
	e.hire(h)
	h.jobsAt = stampOf(at)
	for c := range h.fault.Classes {
		cl := &h.fault.Classes[c]
		if !cl.Jobs {
			continue
		}
		nodes := slices.Clone(e.walk.forward(e.g, h.node, e.g.ways[cl.Way], at))
		h.stir()
		h.classes[c].n = max(h.classes[c].n, int32(len(nodes))) //nolint:gosec // a number of parts
		for _, n := range nodes {
			if !slices.ContainsFunc(e.byJob[n], func(l jobLink) bool { return l.to == h && l.class == c }) {
				e.byJob[n] = append(e.byJob[n], jobLink{h, c, e.seq})
			}
			if s := e.signs.get(n, cl.Sign); s != nil {
				e.link(h, c, s)
			}
		}
	}
}

// count says of how many parts each class of a suspect could be heard, once that matters.
func (e *hypotheses) count(h *suspect) {
	if h.counted {
		return
	}
	h.counted = true
	h.stir()
	e.hire(h)
	for c := range h.classes {
		if cl := &h.fault.Classes[c]; !cl.Jobs {
			h.classes[c].n = int32(len(e.walk.reach(e.g, h.node, cl).nodes)) //nolint:gosec // a number of parts
		}
	}
}

func (e *hypotheses) bury(h *suspect) {
	h.dead = true
	e.blame(h, false)
	if p := e.spots.get(h.key); p != nil && p.suspect == h {
		e.occupy(p, nil)
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
