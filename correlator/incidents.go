package correlator

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"auspex/schemas"
)

const suspectMin = 0.005 // half a per cent: less is shown as none

// CloseAfter says how long an incident about which nothing new is heard stays
// open. A condition that is still raised keeps it open for a day.
type CloseAfter struct {
	// Cleared is the wait after every condition of the incident has ended.
	Cleared time.Duration `yaml:"cleared"`
	// Repaired is the wait after a repair or a boot has ended what was wrong.
	Repaired time.Duration `yaml:"repaired"`
	// Silent is the wait where no sign of the incident has an end, as those of a
	// program that crashed.
	Silent time.Duration `yaml:"silent"`
}

// DefaultCloseAfter returns waits that suit people who come to look.
func DefaultCloseAfter() CloseAfter {
	return CloseAfter{Cleared: 15 * time.Minute, Repaired: 2 * time.Minute, Silent: time.Hour}
}

// Validate names the key at fault.
func (c CloseAfter) Validate() error {
	for _, v := range []struct {
		key string
		d   time.Duration
	}{{"cleared", c.Cleared}, {"repaired", c.Repaired}, {"silent", c.Silent}} {
		if v.d < time.Second || v.d > quietRaised {
			return fmt.Errorf("%s: %s is not between 1s and %s", v.key, v.d, quietRaised)
		}
	}
	return nil
}

// sweep is how often to look for what is over.
func (c CloseAfter) sweep() time.Duration {
	return min(time.Minute, min(c.Cleared, c.Repaired, c.Silent)/2)
}

// Repaired says that what an incident speaks of has been repaired at t: it
// closes when nothing is heard of it any more, and what is heard later is new. It
// reports whether the incident is open.
func (e *ledger) Repaired(id string, t time.Time) bool {
	for _, inc := range e.open {
		if inc.id == id {
			inc.repaired, inc.lasts = t, time.Time{}
			return true
		}
	}
	return false
}

// sweep closes incidents that have been quiet and forgets old signs.
func (e *Engine) sweep() {
	if e.now.Sub(e.swept) < e.wait.sweep() {
		return
	}
	e.swept = e.now
	for i := 0; i < len(e.open); {
		if inc := e.open[i]; e.over(inc) {
			e.close(inc) // which takes it out of the list
		} else {
			i++
		}
	}
	maps.DeleteFunc(e.warm, func(_ causeKey, inc *incident) bool { return e.cold(inc) })
	e.aftermaths = slices.DeleteFunc(e.aftermaths, func(a aftermath) bool { return e.now.Sub(a.to) > lateRead })
	e.forgetOld()
}

// over says whether an incident is to be closed. It notes until when not, if nothing more is
// heard of it: a fleet has thousands that stay open for a day.
func (e *ledger) over(inc *incident) bool {
	if !e.now.After(inc.lasts) {
		return false
	}
	quiet := apart(e.now, inc.heard)
	if quiet <= min(e.wait.Cleared, e.wait.Repaired, e.wait.Silent) {
		return false
	}
	if inc.repaired.IsZero() && quiet <= min(e.wait.Cleared, e.wait.Silent) {
		return false
	}
	inc.lasts = e.lasts(inc)
	return e.now.After(inc.lasts)
}

// lasts returns when an incident is over at the latest, as things are.
func (e *ledger) lasts(inc *incident) time.Time {
	stateful := false
	for _, s := range inc.signs {
		e.stats.Swept++
		stateful = stateful || s.stateful
		// Many board controllers never write that a condition has ended.
		if s.up && (s.spoken || !inc.repaired.After(s.raisedAt)) {
			return inc.heard.Add(quietRaised)
		}
	}
	switch {
	case !inc.repaired.IsZero():
		return later(inc.heard, inc.repaired).Add(e.wait.Repaired)
	case stateful:
		return later(inc.heard, inc.opened).Add(e.wait.Cleared)
	}
	return inc.heard.Add(e.wait.Silent)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

const (
	unknownConfidence = 0.1 // no cause is named: low, and not computed
	unknownNear       = 5 * time.Minute

	effectSoon = time.Minute // mean delay of the signs of a state, for which the model gives none

	confidenceSteps = 50.0 // in which confidence is published
)

// ledger is the incidents: what was decided, and who is told of it when.
type ledger struct {
	hypotheses

	ids        func(first string) string
	wait       CloseAfter
	resuming   bool                 // what is decided goes on where it was
	owner      map[string]*incident // of an event, while restoring
	stalls     time.Duration        // how long after a fault a job may stop
	heardOf    nodeSet              // scratch
	hostsOf    nodeSet              // scratch
	met        [3]nodeSet           // scratch of one description
	composer   composer
	viewed     view      // scratch of one description
	inputLost  int       // the sign of a power supply without input, or -1
	sorting    sorting   // scratch
	sizes      []int32   // scratch
	drawn      numbering // scratch: lanes
	folds      []fold    // scratch of one drawing
	open       []*incident
	alike      map[string]*peers // by fault
	crowds     uint64            // times that peers were gone over
	nearby     []*incident       // scratch
	gatherings []*incident
	aftermaths []aftermath
	warm       map[causeKey]*incident // what was taken back or merged not long ago
	strays     map[strayKey]*stray
	incSeq     int
	changed    queue
	out        []schemas.Incident
}

// incident is an open incident of the engine.
type incident struct {
	id           string
	seq          int
	opened       time.Time
	heard        time.Time
	root         *suspect // nil: unknown
	where        node     // of an unknown one
	signs        []*sign  // as hold, gain and lose have it
	reports      int      // events of the signs
	confidence   float64
	unsure       bool // the confidence is that of an earlier state
	alternatives []schemas.Cause
	oneOf        []string // the root among parts that nothing tells apart
	emitted      time.Time
	looked       time.Time // when its events were last counted
	listed       int       // events, in all its states
	told         told
	revision     int
	queued       bool
	touched      bool
	place        int // in the queue
	mergedInto   string
	closed       time.Time
	before       int             // events that were counted and forgotten before a restart
	judged       time.Time       // when its confidence was last weighed
	lift         float64         // then, of the root
	folded       int             // then, by the root
	repaired     time.Time       // what comes later is new
	lasts        time.Time       // until when it surely stays open, unless it changes
	outbreak     *outbreak       // nil: it is none
	pieces       map[string]bool // faults of which others were taken for parts of this one
	crowd        int             // others of the same fault that began near it, when it was judged
	gone         bool
	doubted      time.Time // since when its cause has not paid
	withdrawn    time.Time // when it was taken back or merged
	into         *incident // into which; nil: it was taken back
	warmAs       []causeKey
	reopened     int    // times that it went on after that
	claim        int    // scratch
	met          uint32 // pass over a component in which its signs were met

	peers   *peers // among which it is, of its fault
	nth     int    // its place there, from 1; in the order in which they came
	left    uint64 // when its cause became another one, in Engine.crowds from 1; 0: it did not
	turns   map[*peers]turn
	ended   uint64 // when it was closed, in Engine.crowds
	gathers bool   // it is in Engine.gatherings
}

// told is what the last emitted state said.
type told struct {
	resource, fault string
	severity        schemas.Severity
	confidence      float64
	signs, facts    int
	equals          int    // of the root
	mute            int    // witnesses that cannot report, of whom the sentences speak
	window          string // of maintenance, in which it began
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

// affords says whether an incident may be published again soon: so long as all that it has
// listed comes to a few times its events. The first to be told of a burst holds little of it.
func (inc *incident) affords(facts int) bool { return inc.listed <= (listMost-1)*facts }

// due returns how long after its last state an open incident is to be published again. Each
// state lists all events, so one that only grows is published in proportion to what it has
// become, once a second while it is small, and parts that join sooner than
// events more of the same. Lists that are published whenever they have grown by a
// sixteenth are 17 times the last one in all; the waits between are chosen by hand.
func (inc *incident) due(t told) time.Duration {
	o := inc.told
	if t.signs > o.signs && inc.affords(t.facts) {
		return emitSoon
	}
	if t.turned(o) || 16*(t.facts-o.facts) >= o.facts {
		return emitEvery
	}
	wait := emitEvery * time.Duration(o.facts/64+1)
	if t.signs == o.signs {
		wait *= wait / emitEvery
	}
	return wait
}

// settle turns what was decided into incidents: old ones keep their name
// where most of what they held stays together.
func (e *ledger) settle(signs []*sign, accepted, suspects []*suspect) {
	if len(accepted) == 0 && len(signs) == 1 && e.lonely(signs[0]) {
		e.unexplained(signs[0])
		return
	}
	left := e.release(signs)
	all := signs
	if of := func(s *sign) bool { return s.inc != nil && s.inc.outbreak != nil }; slices.ContainsFunc(signs, of) {
		signs = slices.DeleteFunc(slices.Clone(signs), of)
	}
	defer func() {
		e.dissolve(left, signs)
		for _, s := range all {
			e.unexplained(s)
		}
	}()
	if e.resuming {
		e.rejoin(signs, accepted)
	}
	groups := e.shared(signs, accepted)
	var before []*incident
	for _, s := range signs {
		if s.inc != nil && s.inc.claim != int(e.epoch) && !s.inc.gone {
			s.inc.claim = int(e.epoch)
			before = append(before, s.inc)
		}
	}
	slices.SortFunc(before, func(a, b *incident) int { return a.seq - b.seq })
	var took []*incident
	type group struct {
		root  *suspect
		where node
		signs []*sign
	}
	var list []group
	var joined []*sign
	var old []*suspect // of whom only faults that are over speak
	for i, h := range accepted {
		if own := groups[i]; len(own) > 0 && e.belated(h, own) {
			old = append(old, h)
		} else if !h.fault.Harmless && len(own) > 0 {
			list = append(list, group{h, h.node, own})
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
				return o.claim != int(e.epoch) &&
					(o.root != nil && e.near(o.root, where, s) || o.root == nil && o.outbreak == nil && e.whole(o.where) == where)
			}); o >= 0 {
				if e.open[o].root == nil && e.open[o].where != s.node {
					e.open[o].where = where
				}
				e.open[o].gain(s)
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
	for i, g := range list { // what a cause was told as is its own, wherever most of the events go
		if g.root == nil {
			continue
		}
		named := func(is func(*incident) bool) bool {
			k := slices.IndexFunc(before, func(inc *incident) bool { return is(inc) && !slices.Contains(took, inc) })
			if k >= 0 {
				took, names[i] = append(took, before[k]), before[k]
			}
			return k >= 0
		}
		cause := causeKey{e.g.name[g.root.node], g.root.fault.Name}
		if named(func(inc *incident) bool { return inc.root == g.root }) ||
			named(func(inc *incident) bool { return causeKey{inc.told.resource, inc.told.fault} == cause }) {
			continue
		}
		if inc := e.goesOn(cause, took); inc != nil {
			took, names[i] = append(took, inc), inc
		}
	}
	for i, g := range list {
		if names[i] != nil {
			continue
		}
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
			if inc.doubtful() && 2*count[inc] <= inc.reports { // most of it goes elsewhere, or nowhere
				continue
			}
			if count[inc] > 0 && !slices.Contains(took, inc) && (best == nil || count[inc] > count[best]) {
				best = inc
			}
		}
		if best != nil {
			took = append(took, best)
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
			if s.inc != nil && s.inc != inc && !slices.Contains(took, s.inc) && len(g.signs) > size[s.inc] {
				successor[s.inc], size[s.inc] = inc, len(g.signs)
			}
		}
	}
	for _, s := range signs {
		if s.excused = nil; slices.Contains(joined, s) {
			continue
		}
		s.inc = nil
		if s.owner != nil && (s.owner.fault.Harmless || slices.Contains(old, s.owner.lead(accepted))) {
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
		inc.unsure = inc.unsure || e.unlike(inc, g.root, g.signs)
		if inc.peers != nil && inc.left == 0 && (g.root == nil || g.root.fault.Name != inc.root.fault.Name) {
			inc.left = e.crowds + 1
		}
		if inc.doubtful() {
			inc.doubted = time.Time{}
			e.cool(inc)
		}
		inc.root, inc.where = g.root, g.where
		inc.hold(g.signs)
		if g.root != nil {
			g.root.inc = inc
			delete(e.warm, causeKey{e.g.name[g.root.node], g.root.fault.Name})
		}
		for _, s := range g.signs {
			s.inc = inc
			if s.heard.After(inc.heard) {
				inc.heard = s.heard
			}
			if s.at.Before(inc.opened) {
				inc.began(s.at)
			}
		}
		e.change(inc)
	}
	for i, g := range list {
		if g.root != nil {
			e.crowded(names[i])
		}
	}
	for _, inc := range before {
		if slices.Contains(took, inc) || e.doubt(inc) {
			continue
		}
		inc.gone = true
		inc.hold(nil)
		if s := successor[inc]; s != nil {
			inc.mergedInto = s.id
			e.keepWarm(inc, s)
		} else {
			e.keepWarm(inc, nil)
		}
		e.open = slices.DeleteFunc(e.open, func(o *incident) bool { return o == inc })
		e.change(inc)
	}
}

// shared returns the signs of each that is blamed, with those of what are pieces of its incident.
func (e *ledger) shared(signs []*sign, blamed []*suspect) [][]*sign {
	out := make([][]*sign, len(blamed))
	for i, h := range blamed {
		h.at = int32(i + 1) //nolint:gosec // an index
	}
	sizes := append(e.sizes[:0], make([]int32, len(blamed)+1)...)
	for _, s := range signs {
		if s.owner != nil {
			sizes[s.owner.lead(blamed).at]++
		}
	}
	for i := range out {
		out[i] = make([]*sign, 0, sizes[i+1])
	}
	for _, s := range signs {
		if s.owner == nil {
			continue
		}
		if at := s.owner.lead(blamed).at; at > 0 {
			out[at-1] = append(out[at-1], s)
		}
	}
	for _, h := range blamed {
		h.at = 0
	}
	e.sizes = sizes
	return out
}

// lonely says whether a sign that nothing explains is in no incident and opens none: most
// noise is like that.
func (e *ledger) lonely(s *sign) bool {
	if s.inc != nil || s.owner != nil || s.worst == schemas.SeverityCritical || s.often > 1 || e.lasting(s) {
		return false
	}
	s.excused = nil
	return true
}

// unlike says whether the confidence of an incident rests on something else than when
// it was last weighed.
func (e *ledger) unlike(inc *incident, root *suspect, signs []*sign) bool {
	if inc.root != root || len(inc.signs) != len(signs) || e.now.Sub(inc.judged) >= rejudge {
		return true
	}
	if root != nil && (inc.lift != root.lift || inc.folded != len(root.folded) || e.dueSince(root, inc.judged)) {
		return true
	}
	for i, s := range signs {
		if s != inc.signs[i] || s.turned > e.span(inc.judged) {
			return true
		}
	}
	return false
}

// whole returns the server or switch of a part, or what is part of none.
func (e *ledger) whole(n node) node {
	if d := e.g.server(n); d != none {
		return d
	}
	return n
}

// near says whether a sign that nothing explains goes with a fault on the same server.
func (e *ledger) near(h *suspect, server node, s *sign) bool {
	return !h.onset.IsZero() && s.at.Sub(h.onset).Abs() <= unknownNear && e.g.server(h.node) == server
}

func (e *ledger) openIncident(signs []*sign) *incident {
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

func (e *ledger) close(inc *incident) {
	inc.closed, inc.ended = e.now, e.crowds
	e.change(inc)
	e.remember(inc)
	e.open = slices.DeleteFunc(e.open, func(o *incident) bool { return o == inc })
	for _, s := range inc.signs {
		s.inc = nil
		e.drop(s)
	}
	if inc.root != nil && !inc.root.dead {
		e.bury(inc.root)
	}
}

// confidence is the probability that the root is the right resource or one of its equals in
// its machine, which of them, and what else it could be.
func (e *ledger) confidence(inc *incident) (_ float64, oneOf []string, alternatives []schemas.Cause) {
	h := inc.root
	defer inc.lend()()
	e.judging = true
	g := e.around(h, inc.signs)
	e.judging = false
	own := e.ownFault(inc)
	var right float64
	enough := false
	for _, x := range e.method.Posterior(&g.Group, g.root, g.owner, g.state).Shares {
		o := g.suspects[x.Cause]
		if d := e.g.server(h.node); x.Equal && d != none && d != h.node && d == e.g.server(o.node) {
			right += x.P
			oneOf = append(oneOf, e.g.name[o.node])
			continue
		}
		if x.Cause == g.root || o.node == h.node && !o.fault.Harmless || h.fault.End && e.joined(h.node, o.node) {
			right += x.P
		}
		if x.Cause == g.root {
			continue
		}
		if enough = enough || own*x.P < suspectMin || len(alternatives) == 3; enough {
			continue
		}
		if o.fault.Harmless || o.node == h.node && o.fault.Name == h.fault.Name {
			continue
		}
		alternatives = append(alternatives, schemas.Cause{Resource: e.g.name[o.node], Fault: o.fault.Name, Confidence: round(own * x.P)})
	}
	if len(oneOf) > 0 {
		oneOf = slices.Insert(oneOf, 0, e.g.name[h.node])
	}
	return own * right, oneOf, alternatives
}

func (e *ledger) joined(a, b node) bool {
	l := &e.g.links[linkNet]
	return slices.Contains(l.out[a], b) || slices.Contains(l.in[a], b)
}

// queue holds the incidents that may have to be published again, in the order in which
// they came to change, and which of them have to be looked at now: the others wait.
type queue struct {
	all     []*incident
	touched []*incident // since they were last looked at
	due     time.Time   // when the first of the others is
	places  int
}

// change notes that an incident may have to be published again.
func (e *ledger) change(inc *incident) {
	inc.lasts = time.Time{}
	q := &e.changed
	if !inc.queued {
		q.places++
		inc.queued, inc.place = true, q.places
		q.all = append(q.all, inc)
	}
	if !inc.touched {
		inc.touched = true
		q.touched = append(q.touched, inc)
	}
}

// emitDue publishes the incidents that changed: at once where the cause or the
// life of the incident did, else at most once a second.
func (e *ledger) emitDue(now bool) {
	q := &e.changed
	if now || len(q.all) > 0 && !e.now.Before(q.due) {
		q.due = e.now.Add(forget)
		rest := q.all[:0]
		for _, inc := range q.all {
			if inc.queued {
				e.consider(inc, now)
			}
			if inc.queued {
				rest = append(rest, inc)
			}
		}
		clear(q.all[len(rest):])
		q.all = rest
	} else if len(q.touched) > 0 {
		slices.SortFunc(q.touched, func(a, b *incident) int { return a.place - b.place })
		gone := false
		for _, inc := range q.touched {
			e.consider(inc, false)
			gone = gone || !inc.queued
		}
		if gone {
			q.all = slices.DeleteFunc(q.all, func(inc *incident) bool { return !inc.queued })
		}
	}
	for _, inc := range q.touched {
		inc.touched = false
	}
	clear(q.touched)
	q.touched = q.touched[:0]
}

// rests returns until when an open incident is left alone.
func (e *ledger) rests(inc *incident) time.Time {
	next := inc.emitted
	if inc.judged.After(next) {
		next = inc.judged
	}
	next = next.Add(emitEvery)
	if o := inc.outbreak; o != nil {
		next = o.next
	} else if r, f := e.cause(inc); r != inc.told.resource || f != inc.told.fault {
		return e.now
	}
	if !e.now.Before(next) {
		return next
	}
	if soon := inc.looked.Add(emitSoon); e.now.Before(soon) { // it may be large: its events are not even counted
		return soon
	}
	inc.looked = e.now
	if inc.affords(inc.facts()) {
		return e.now
	}
	return e.now.Add(emitSoon)
}

// consider publishes an incident, or leaves it in the queue.
func (e *ledger) consider(inc *incident, now bool) {
	wait := func(until time.Time) {
		if until.Before(e.changed.due) {
			e.changed.due = until
		}
	}
	if !now && !inc.gone && inc.closed.IsZero() {
		if until := e.rests(inc); e.now.Before(until) {
			wait(until)
			return
		}
	}
	if inc.unsure && !inc.gone {
		inc.unsure, inc.judged, inc.lift, inc.folded = false, e.now, 0, 0
		if inc.root != nil {
			inc.lift, inc.folded = inc.root.lift, len(inc.root.folded)
		}
		switch inc.oneOf, inc.alternatives = nil, nil; {
		case inc.root != nil:
			inc.confidence, inc.oneOf, inc.alternatives = e.confidence(inc)
		case inc.outbreak != nil:
			inc.confidence = e.extent(inc)
		default:
			inc.confidence = unknownConfidence
		}
	}
	t := e.state(inc)
	until := inc.emitted.Add(inc.due(t))
	switch {
	case t.same(inc.told) || inc.gone && inc.told == (told{}):
		inc.queued = false
	case now, inc.told == (told{}), inc.gone, t.closed != inc.told.closed,
		t.resource != inc.told.resource, t.fault != inc.told.fault, !e.now.Before(until):
		inc.queued = false
		e.emit(inc, t)
	default: // who can report beside a supplier may change without a word about the incident
		if inc.root != nil && inc.root.fault.Together > 0 && until.After(e.now.Add(emitEvery)) {
			until = e.now.Add(emitEvery)
		}
		wait(until)
	}
	if inc.outbreak != nil {
		inc.outbreak.next = e.now.Add(emitEvery)
		if inc.queued && until.After(inc.outbreak.next) {
			inc.outbreak.next = until
		}
	}
}

func (e *ledger) state(inc *incident) told {
	t := told{closed: !inc.closed.IsZero(), gone: inc.gone, confidence: steps(inc.confidence)}
	t.resource, t.fault = e.cause(inc)
	t.equals = len(inc.oneOf)
	t.signs, t.facts, t.severity = len(inc.signs), inc.facts(), schemas.SeverityWarning
	if inc.gone {
		t.severity = inc.told.severity
	}
	if inc.root != nil && inc.root.fault.Together > 0 && !inc.gone {
		_, others := e.feedOf(inc.root.node)
		_, _, t.mute = e.supplies(others, inc.root)
	}
	if w := e.windowAround(inc); w != nil {
		t.window = w.ID
	}
	for _, s := range inc.signs {
		if s.worst.Rank() > t.severity.Rank() {
			t.severity = s.worst
		}
	}
	return t
}

// facts returns how many events an incident holds.
func (inc *incident) facts() int { return inc.before + inc.reports }

// hold replaces the signs of an incident.
func (inc *incident) hold(signs []*sign) {
	inc.signs, inc.reports = signs, 0
	for _, s := range signs {
		inc.reports += s.count
	}
}

// gain adds a sign that the incident does not hold.
func (inc *incident) gain(s *sign) {
	inc.signs = append(inc.signs, s)
	inc.reports += s.count
}

// lose takes a sign away that the incident holds.
func (inc *incident) lose(s *sign) {
	inc.signs = slices.DeleteFunc(inc.signs, func(x *sign) bool { return x == s })
	inc.reports -= s.count
}

func (e *ledger) cause(inc *incident) (resource, fault string) {
	if inc.root == nil {
		return e.g.name[inc.where], "unknown"
	}
	return e.g.name[inc.root.node], inc.root.fault.Name
}

// emit publishes a state of an incident.
func (e *ledger) emit(inc *incident, t told) {
	inc.told = t
	inc.emitted = e.now
	inc.listed += inc.told.facts
	inc.revision++
	e.out = append(e.out, e.describe(inc))
}

// steps rounds a confidence to what is worth publishing again.
func steps(p float64) float64 { return math.Round(p*confidenceSteps) / confidenceSteps }

func round(p float64) float64 { return math.Round(p*1000) / 1000 }
