// Package correlator turns alerts into incidents, each with one root cause. It
// lays the inventory out as a graph, takes for a suspect every fault that could
// explain what was seen, and blames the smallest set of faults that explains
// best what came and what did not come. What a fault makes visible is data
// (schemas/faults/propagation). Everything is in event time, incremental, and
// revised as evidence comes.
package correlator

import (
	"container/heap"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Times of the engine, in event time. They are chosen, not derived: a minute is some
// rounds of the collectors and what clocks may differ by, ten to thirty minutes are
// what operators call the same trouble.
const (
	settle      = 500 * time.Millisecond // a group of signs is weighed again at most so often while it grows fast
	emitEvery   = time.Second            // an incident whose cause stays is published again at most so often
	forgetEvery = 10 * time.Minute
	forget      = 2 * time.Hour    // a sign that no fault explains; longer than any precursor
	quietClear  = 15 * time.Minute // a condition that began so long after another is not one with it
	quietMoment = time.Hour        // a sign without an end speaks for so long
	quietRaised = 24 * time.Hour   // an incident closes when so long nothing was heard of a condition that never ended
	episode     = 30 * time.Minute // a condition raised again after so long is another one
	bounceSpan  = 10 * time.Minute
	bounceCount = 3
	lateRead    = 2 * time.Minute // a record whose clock is older was read late, or the clock is wrong
	unknownHold = time.Minute     // a critical sign that nothing explains is shown after
	againWithin = 30 * time.Minute
	againApart  = time.Minute // reports of one type that are nearer say the same
	lossTold    = time.Minute // a device is told to be out of contact so long after it was lost, at most
	backAgain   = 2 * time.Minute
	clockOff    = 5 * time.Minute  // by which the clock of a board controller may be off
	drained     = 10 * time.Minute // after it is back, what a device wrote while it was lost has been read
	precursor   = time.Minute      // what may come longer before a fault does not say when it began
	contactKept = 30 * time.Minute // longer than any sign of a fault is waited for
)

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

// kindStep is by how many nats each further kind in the list of a fault is the less
// likely one to have it. It breaks ties: a fifth, less than any sign is worth.
const kindStep = 0.2

// A group of at most solveSmall signs is weighed with every event, a larger one when a
// solveShare of it is new: what all weighings cost then grows with the events alone.
const (
	solveSmall = 128
	solveShare = 4 // 1/4
)

// fact is one event, as an incident remembers it.
type fact struct {
	id     string
	at     time.Time // when it happened, as well as can be told
	lane   int32
	about  node
	sev    schemas.Severity
	source string
	state  uint8
	n      int32 // events that it stands for
}

const (
	moment uint8 = iota
	raised
	cleared
)

// sign is one sign on one part: all events that say the same.
type sign struct {
	seq       int
	kind      int // index of propagation.Model.Signs; -1 for what the model does not know
	node      node
	at        time.Time // of the first event
	heard     time.Time // engine time of the last event
	raisedAt  time.Time // engine time of the last raise or moment
	clearedAt time.Time
	stateful  bool // has been raised
	up        bool // raised and not cleared
	said      bool // something other than an all-clear was heard
	brief     bool // every episode ended before it counted
	lasted    bool // one episode went on for long
	loose     bool // a record that may have been read long after it was written
	worst     schemas.Severity
	raises    []time.Time
	reports   []report // of the last half an hour
	often     int      // most reports within half an hour
	facts     []fact
	room      int  // facts before they are thinned
	count     int  // of events
	spoken    bool // by something other than the event log of a board controller
	links     []link
	inc       *incident
	excused   *suspect // the harmless explanation
	gone      bool

	// scratch of the solver
	mark  uint32
	owner *suspect
	class int
}

// report is one of those that count when a sign comes again and again.
type report struct {
	typ string
	at  time.Time
}

type link struct {
	to    *suspect
	class int
}

// suspect is a fault that a resource may have.
type suspect struct {
	seq     int
	key     suspectKey
	fault   *propagation.Fault
	node    node
	prior   float64
	lo, hi  time.Time // when the fault may have begun, given its signs
	onset   time.Time
	jobsAt  time.Time // when its workloads were looked up
	classes []reach
	inc     *incident
	dead    bool

	mark     uint32
	base     float64   // score over all signs
	weighed  time.Time // when; zero: a sign has changed since
	score    float64
	accepted bool
	folded   []*suspect
	lift     float64   // what speaks for it only because it explains the folded
	mutes    [2]uint64 // state of contact and supply that mute was counted in
	mutedAt  time.Time // when
}

// reach is one class of a suspect's fault: how many parts could show the sign, and which do.
type reach struct {
	n     int
	mute  int // of them say nothing and could not
	signs []*sign
	// scratch of the solver: signs assigned and their weight
	k       int
	w       float64
	claimed bool
}

type signKey struct {
	node node
	kind int32
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

// Engine turns events into incidents, in event time. It is deterministic: the
// same events in the same order give the same incidents, whatever the
// resources are called and whenever they happened. It is not safe for
// concurrent use.
type Engine struct {
	model *propagation.Model
	g     *graph
	ids   func(first string) string
	wait  CloseAfter
	keep  int // events of one sign; 0 is all

	rules     [][]rule // by sign
	walk      walker
	now       time.Time
	started   bool
	restoring bool                 // events are taken in, nothing is decided
	owner     map[string]*incident // of an event, while restoring

	signs    map[signKey]*sign
	ofKind   [][]*sign       // the same by kind, and some that are gone
	unknown  map[laneKey]int // pseudo kinds of signs that the model does not know
	suspects map[suspectKey]*suspect
	byJob    map[node][]jobLink
	dirty    []*sign
	timers   timers
	seq      int

	seen, seenOld map[uint64]struct{}
	seed          maphash.Seed

	contact  map[node]contact  // of servers and switches that are or were lost
	unfed    map[node]*suspect // suppliers that are blamed
	contacts uint64            // changes with contact
	cuts     uint64            // the suppliers that are blamed, in one number
	devices  []node            // scratch
	backing  map[node][]node   // suppliers of a server or switch
	showing  map[string][]int  // signs by which a part shows that it is in a state

	lanes     []laneKey
	laneIndex map[laneKey]int32

	open      []*incident
	incSeq    int
	changed   []*incident
	out       []schemas.Incident
	lastSolve time.Time
	lastCost  int
	epoch     uint32
	swept     time.Time
	forgot    time.Time

	fits    map[outcome]float64 // memory of fit
	weights [][3]float64        // of a sign that has settled, of a young one, and of one that lasts
	stats   Stats
}

// Stats counts what an engine did since it was made.
type Stats struct {
	Events     uint64 // taken in
	Duplicates uint64 // dropped, since an event with the id was taken in before
	Harmless   uint64 // severity info without an end: they speak for nothing
	Solved     uint64 // groups of signs that were weighed
	Opened     uint64 // incidents
	Signs      int    // that are remembered
	Suspects   int
	Open       int // incidents
}

type laneKey struct{ typ, code string }

// contact is since when a device was not heard, and when it was again: through
// its own system and through its board controller.
type contact [2]outage

type outage struct{ from, to time.Time }

// NewEngine returns an engine over an inventory. ids names a new incident from
// the id of its first event; with nil they are i1, i2 and so on.
func NewEngine(model *propagation.Model, topology *schemas.Topology, ids func(first string) string) *Engine {
	e := &Engine{
		model: model, ids: ids, wait: DefaultCloseAfter(), signs: map[signKey]*sign{}, unknown: map[laneKey]int{},
		suspects: map[suspectKey]*suspect{},
		byJob:    map[node][]jobLink{}, seen: map[uint64]struct{}{}, seed: maphash.MakeSeed(), contact: map[node]contact{},
		laneIndex: map[laneKey]int32{}, fits: map[outcome]float64{}, unfed: map[node]*suspect{}, backing: map[node][]node{},
		showing: map[string][]int{}, contacts: 1, ofKind: make([][]*sign, len(model.Signs)),
	}
	for f := range model.Faults {
		fault := &model.Faults[f]
		for c := fault.Own(); fault.Is != "" && c < len(fault.Classes); c++ {
			if len(fault.Classes[c].Path) == 0 {
				e.showing[fault.Is] = append(e.showing[fault.Is], fault.Classes[c].Sign)
			}
		}
	}
	for _, s := range model.Signs {
		e.weights = append(e.weights, [3]float64{-math.Log(s.Leak), -math.Log(s.Young), -math.Log(s.Rare)})
	}
	e.SetTopology(topology)
	return e
}

// SetCloseAfter replaces the waits before an incident closes.
func (e *Engine) SetCloseAfter(w CloseAfter) { e.wait = w }

// SetEvidence bounds how many events of one sign are remembered and listed; of
// more, every second one is forgotten, but for the first and the last of a kind.
// All are counted. 0 is no bound.
func (e *Engine) SetEvidence(keep int) { e.keep = keep }

// SetTopology replaces the inventory. What is known of open incidents stays.
func (e *Engine) SetTopology(t *schemas.Topology) {
	var keep *names
	if e.g != nil {
		keep = e.g.names
	}
	e.g = newGraph(t, keep)
	e.g.grow()
	clear(e.backing)
	e.contacts++
	e.rules = make([][]rule, len(e.model.Signs))
	for f := range e.model.Faults {
		fault := &e.model.Faults[f]
		kinds := make([]uint8, len(fault.Kinds))
		for i, k := range fault.Kinds {
			kinds[i] = e.g.kinds.of(k)
		}
		for c := range fault.Classes {
			cl := &fault.Classes[c]
			if !cl.Jobs {
				e.rules[cl.Sign] = append(e.rules[cl.Sign], rule{f, c, kinds})
			}
		}
	}
}

// SetWorkloads replaces the workloads of the inventory.
func (e *Engine) SetWorkloads(ws []schemas.Workload) { e.g.setWorkloads(ws) }

// Now returns the engine's clock: the latest time that it was told.
func (e *Engine) Now() time.Time { return e.now }

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Signs, s.Suspects, s.Open = len(e.signs), len(e.suspects), len(e.open)
	return s
}

// Advance moves the engine's clock forward to t and decides what was only
// waiting for time to pass. An earlier t changes nothing.
func (e *Engine) Advance(t time.Time) {
	if !e.started || !t.After(e.now) {
		return
	}
	if e.restoring {
		e.now = t
		return
	}
	for {
		next := t
		if len(e.dirty) > 0 {
			if at := e.lastSolve.Add(settle); at.Before(next) {
				next = at
			}
		}
		if len(e.timers) > 0 && e.timers[0].at.Before(next) {
			next = e.timers[0].at
		}
		if next.After(e.now) {
			e.now = next
		}
		fired := false
		for len(e.timers) > 0 && !e.timers[0].at.After(e.now) {
			d := heap.Pop(&e.timers).(timer)
			if !d.sign.gone {
				e.dirty = append(e.dirty, d.sign)
				fired = true
			}
		}
		if fired || len(e.dirty) > 0 && !e.now.Before(e.lastSolve.Add(settle)) {
			e.solve()
			e.emitDue(false)
		}
		if !e.now.Before(t) {
			break
		}
	}
	e.emitDue(false)
	e.sweep()
}

// Flush decides on everything that was taken in, without waiting.
func (e *Engine) Flush() {
	if len(e.dirty) > 0 {
		e.solve()
	}
	e.emitDue(true)
}

// Drain returns the incidents that have changed since the last call, each with
// its full state, in the order of the decisions.
func (e *Engine) Drain() []schemas.Incident {
	out := e.out
	e.out = nil
	return out
}

// Add takes in an event. The clock follows the latest `observed`; events may
// come late, twice and in any order. It reports whether the event speaks for
// or against anything.
func (e *Engine) Add(ev *schemas.Event) bool {
	obs := ev.Observed
	if obs.IsZero() {
		obs = ev.Time
	}
	if !e.started {
		e.started, e.now, e.swept, e.forgot = true, obs, obs, obs
	}
	if obs.After(e.now) {
		e.Advance(obs)
	}
	if e.duplicate(ev.ID) {
		e.stats.Duplicates++
		return false
	}
	e.stats.Events++
	s := e.take(ev, obs)
	if s == nil {
		return false
	}
	if e.restoring {
		return true
	}
	e.dirty = append(e.dirty, s)
	if e.lastCost < solveSmall || len(e.dirty)*solveShare > e.lastCost {
		e.solve()
	}
	e.emitDue(false)
	return true
}

func (e *Engine) duplicate(id string) bool {
	h := maphash.String(e.seed, id)
	if _, ok := e.seen[h]; ok {
		return true
	}
	if _, ok := e.seenOld[h]; ok {
		return true
	}
	if len(e.seen) >= 1<<20 {
		e.seen, e.seenOld = make(map[uint64]struct{}, 1<<16), e.seen
	}
	e.seen[h] = struct{}{}
	return false
}

// take folds an event into its sign and links the sign with its suspects.
// It returns nil for what speaks for nothing.
func (e *Engine) take(ev *schemas.Event, obs time.Time) *sign {
	state := moment
	severity := ev.Severity
	switch ev.State {
	case schemas.StateRaised:
		state = raised
	case schemas.StateCleared:
		state, severity = cleared, schemas.SeverityCritical // whatever was raised is what ends
	}
	if ev.Type == schemas.EventHostReboot && ev.Code != "planned" && state != cleared && e.booted(ev.Resource, obs) {
		e.stats.Harmless++ // somebody did what the incident asked for
		return nil
	}
	kind := e.model.Match(ev.Type, ev.Code, severity)
	if ev.Severity == schemas.SeverityInfo && state != cleared && (kind < 0 || !e.model.Signs[kind].Info) {
		e.stats.Harmless++
		return nil
	}
	n := e.g.ensure(ev.Resource)
	about := n
	at, loose := e.happened(ev, n, obs)
	if kind >= 0 {
		e.trackContact(e.model.Signs[kind].Contact, n, obs, state)
		n = e.place(ev, n, kind, at)
		if e.g.kind[n] == 0 { // what the inventory does not know is what only such a part can say
			e.g.setKind(n, e.model.Signs[kind].On)
		}
	} else {
		kind = e.unknownKind(ev)
	}
	key := signKey{n, int32(kind)}
	s := e.signs[key]
	if s != nil && e.stale(s, ev.ID, state) {
		if s.inc == nil {
			e.drop(s)
		} else { // the incident keeps the old one, which has ended unheard
			s.up = false
			delete(e.signs, key)
		}
		s = nil
	}
	isNew := s == nil
	if isNew {
		if state == cleared && kind >= len(e.model.Signs) {
			return nil
		}
		e.seq++
		s = &sign{seq: e.seq, kind: kind, node: n, at: at, brief: true, loose: loose}
		e.remember(s)
	}
	if at.Before(s.at) {
		s.at = at
	}
	s.heard = e.now
	s.facts = append(s.facts, fact{ev.ID, at, e.lane(ev), about, ev.Severity, ev.Source, state, 1})
	s.count++
	s.spoken = s.spoken || ev.Type != schemas.EventBMCSEL && ev.Type != schemas.EventBMCEvent
	if e.keep > 0 && len(s.facts) > max(e.keep, s.room) {
		s.facts = thinned(s.facts)
		s.room = len(s.facts) * 3 / 2
	}
	if ev.Severity.Rank() > s.worst.Rank() && state != cleared {
		s.worst = ev.Severity
	}
	fresh := false
	switch state {
	case cleared:
		if obs.After(s.clearedAt) {
			s.clearedAt = obs
		}
		if s.up && !obs.Before(s.raisedAt) {
			s.up = false
			e.ended(s)
		}
	default:
		fresh = !s.said
		s.said = true
		if state == raised {
			if !s.up {
				s.raisedAt = obs
				s.raises = append(s.raises, obs)
			}
			s.stateful = true
			if s.up = s.clearedAt.Before(obs); !s.up { // the all-clear overtook it
				e.ended(s)
			}
		} else if fresh {
			s.raisedAt = obs
		}
		if fresh || state == raised {
			if hold := e.hold(s); hold > 0 {
				heap.Push(&e.timers, timer{s.raisedAt.Add(hold), s})
			} else if kind >= len(e.model.Signs) || s.worst == schemas.SeverityCritical {
				heap.Push(&e.timers, timer{e.now.Add(unknownHold), s})
			}
			if kind < len(e.model.Signs) && e.model.Signs[kind].Long > 0 && s.up {
				heap.Push(&e.timers, timer{s.raisedAt.Add(e.model.Signs[kind].Long), s})
			}
		}
		e.bounce(s, at)
		if e.repeat(s, ev.Type, at) {
			heap.Push(&e.timers, timer{e.now.Add(unknownHold), s})
		}
	}
	if isNew || fresh {
		e.relate(s)
	}
	return s
}

// booted ends the faults of a server that a boot repairs. It reports whether
// there was one and the host did not crash, so that the boot was the repair.
func (e *Engine) booted(server string, at time.Time) bool {
	n, ok := e.g.number[server]
	if !ok {
		return false
	}
	repair := false
	for _, inc := range e.open {
		if inc.root != nil && inc.root.fault.Reset && e.g.server(inc.root.node) == n && at.After(inc.heard) {
			inc.repaired = at
			repair = true
		}
	}
	return repair && !e.crashed(n, at)
}

// crashed says whether a server has told of a crash of its own before a boot.
func (e *Engine) crashed(server node, boot time.Time) bool {
	for kind := range e.model.Signs {
		switch e.model.Signs[kind].Name {
		case "host_panic", "watchdog", "mce_memory", "mce_cpu", "ierr", "dimm_ue":
		default:
			continue
		}
		if s := e.signs[signKey{server, int32(kind)}]; s != nil && s.said && boot.Sub(s.heard) < forget {
			return true
		}
	}
	return false
}

// Repaired says that what an incident speaks of has been repaired at t: it
// closes when nothing is heard of it any more, and what is heard later is new.
func (e *Engine) Repaired(id string, t time.Time) {
	for _, inc := range e.open {
		if inc.id == id {
			inc.repaired = t
		}
	}
}

// ended notes whether an episode that is over has lasted.
func (e *Engine) ended(s *sign) {
	lasted := s.clearedAt.Sub(s.raisedAt)
	if hold := e.hold(s); hold == 0 || lasted >= hold {
		s.brief = false
	}
	if s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Long > 0 && lasted >= e.model.Signs[s.kind].Long {
		s.lasted = true
	}
}

// repeat counts the reports of a sign that comes again and again, and reports
// whether this one counts beside others.
func (e *Engine) repeat(s *sign, typ string, at time.Time) bool {
	if s.kind >= len(e.model.Signs) || e.model.Signs[s.kind].Again == 1 {
		return false
	}
	s.reports = slices.DeleteFunc(s.reports, func(r report) bool { return at.Sub(r.at) > againWithin })
	if slices.ContainsFunc(s.reports, func(r report) bool { return r.typ == typ && at.Sub(r.at).Abs() < againApart }) {
		return false
	}
	s.reports = append(s.reports, report{typ, at})
	s.often = max(s.often, len(s.reports))
	return s.often > 1
}

// stale says whether an event opens a new sign in place of an old one.
func (e *Engine) stale(s *sign, id string, state uint8) bool {
	if state == cleared {
		return false
	}
	if inc := e.owner[id]; inc != nil && len(s.facts) > 0 && inc == e.owner[s.facts[0].id] {
		return false // it was not; what came between may be forgotten
	}
	gap := e.now.Sub(s.heard)
	if s.inc != nil {
		if !s.inc.repaired.IsZero() && !s.up {
			return true
		}
		return gap > quietMoment || s.stateful && gap > episode
	}
	return s.stateful && !s.up && gap > bounceSpan || gap > forget
}

func (e *Engine) hold(s *sign) time.Duration {
	if s.kind >= len(e.model.Signs) {
		return unknownHold
	}
	return e.model.Signs[s.kind].Hold
}

// leak is the chance that the sign is there by itself, now.
func (e *Engine) leak(s *sign) float64 {
	m := &e.model.Signs[s.kind]
	if e.lasting(s) {
		return m.Rare
	}
	if m.Hold == 0 {
		return m.Leak
	}
	if s.stateful {
		if m.Twin && s.up && e.twinUp(s) {
			return m.Young
		}
		if !s.brief || s.up && e.now.Sub(s.raisedAt) >= m.Hold {
			return m.Leak
		}
		return m.Young
	}
	if e.now.Sub(s.raisedAt) >= m.Hold {
		return m.Leak
	}
	return m.Young
}

// lasting says whether a condition is there for so long that it hardly ever is by itself.
func (e *Engine) lasting(s *sign) bool {
	if s.kind >= len(e.model.Signs) || !s.up {
		return s.lasted
	}
	long := e.model.Signs[s.kind].Long
	return s.lasted || long > 0 && e.now.Sub(s.raisedAt) >= long
}

// twinUp says whether the other end of a link has lost the sign at once,
// so that this end's all-clear was lost.
func (e *Engine) twinUp(s *sign) bool {
	for _, l := range [2][][]node{e.g.links[linkNet].out, e.g.links[linkNet].in} {
		for _, n := range l[s.node] {
			t := e.signs[signKey{n, int32(s.kind)}]
			if t == nil || t.up || t.clearedAt.Before(s.raisedAt) {
				continue
			}
			if t.clearedAt.Sub(s.raisedAt) < e.model.Signs[s.kind].Hold {
				return true
			}
		}
	}
	return false
}

// bounce derives the sign of a condition that comes and goes.
func (e *Engine) bounce(s *sign, at time.Time) {
	if s.kind >= len(e.model.Signs) {
		return
	}
	to := e.model.Signs[s.kind].Bounce
	for len(s.raises) > 0 && e.now.Sub(s.raises[0]) > bounceSpan {
		s.raises = s.raises[1:]
	}
	if to < 0 || len(s.raises) < bounceCount {
		return
	}
	key := signKey{s.node, int32(to)}
	b := e.signs[key]
	if b == nil {
		e.seq++
		b = &sign{seq: e.seq, kind: to, node: s.node, at: s.at, said: true, raisedAt: e.now}
		e.remember(b)
		e.relate(b)
	}
	b.heard = e.now
	if at.Before(b.at) {
		b.at = at
	}
	if !e.restoring {
		e.dirty = append(e.dirty, b)
	}
}

// happened says when an event happened. Collectors' clocks are right; a
// device's own time counts only for a record that was read late: one of a
// device that was out of contact, or of a host, whose clock is disciplined.
func (e *Engine) happened(ev *schemas.Event, n node, obs time.Time) (at time.Time, loose bool) {
	late := obs.Sub(ev.Time)
	switch ev.Source {
	case schemas.SourceIPMI, schemas.SourceRedfish, schemas.SourceSNMP:
		lost := false
		for _, c := range e.contact[e.g.server(n)] {
			if c.from.IsZero() || !c.to.IsZero() && obs.Sub(c.to) >= drained {
				continue
			}
			if lost = true; late >= lateRead && late < forget && !ev.Time.Before(c.from.Add(-clockOff)) {
				return ev.Time, false
			}
		}
		return obs, lost
	}
	if late < lateRead || late > forget {
		return obs, false
	}
	return ev.Time, false
}

// trackContact notes which ways to a device are lost.
func (e *Engine) trackContact(ways propagation.Contact, n node, obs time.Time, state uint8) {
	if ways == 0 {
		return
	}
	dev := e.g.server(n)
	if dev == none {
		dev = n
	}
	c := e.contact[dev]
	for i := range c {
		switch o := &c[i]; {
		case ways&(1<<i) == 0:
		case state == cleared:
			o.to = obs
		case o.from.IsZero() || !o.to.IsZero():
			*o = outage{from: obs}
		}
	}
	e.contact[dev] = c
	e.contacts++
}

// place moves a sign to where the model expects it: a report about a job to
// the job, a session to the port that it runs over.
func (e *Engine) place(ev *schemas.Event, n node, kind int, at time.Time) node {
	if e.model.Signs[kind].Job {
		if id := ev.Attr("workload"); id != "" {
			return e.job(id)
		}
		if e.g.kindOf(n) == propagation.KindWorkload {
			return n
		}
		if ev.Type == schemas.EventWorkloadFailed {
			return e.job(ev.Resource)
		}
		if w := e.g.jobAt(n, at); w != nil {
			return w.id
		}
		return n
	}
	if e.g.kindOf(n) == schemas.KindBMC && ev.Type != schemas.EventBMCUnreachable && e.g.parent[n] != none {
		return e.g.parent[n] // the controller speaks of its server
	}
	if p := ev.Attr("port"); p != "" {
		if k, ok := e.g.number[p]; ok && e.g.kindOf(k) == schemas.KindPort {
			return k
		}
		if k, ok := e.g.number[ev.Resource+"/"+p]; ok && e.g.kindOf(k) == schemas.KindPort {
			return k
		}
	}
	return n
}

func (e *Engine) job(id string) node {
	n := e.g.ensure(id)
	if e.g.kind[n] == 0 {
		e.g.setKind(n, propagation.KindWorkload)
	}
	return n
}

func (e *Engine) unknownKind(ev *schemas.Event) int {
	k := laneKey{ev.Type, ev.Code}
	v, ok := e.unknown[k]
	if !ok {
		v = len(e.model.Signs) + len(e.unknown)
		e.unknown[k] = v
	}
	return v
}

func (e *Engine) lane(ev *schemas.Event) int32 {
	k := laneKey{ev.Type, ev.Code}
	v, ok := e.laneIndex[k]
	if !ok {
		v = int32(len(e.lanes))
		e.laneIndex[k] = v
		e.lanes = append(e.lanes, k)
	}
	return v
}

// relate links a sign with every suspect that could show it, and makes suspects.
func (e *Engine) relate(s *sign) {
	if s.kind >= len(e.model.Signs) {
		return
	}
	for _, r := range e.rules[s.kind] {
		fault := &e.model.Faults[r.fault]
		class := &fault.Classes[r.class]
		roots := e.walk.backward(e.g, s.node, class.Path, r.kinds)
		if len(roots) > 1 {
			roots = slices.Clone(roots) // making a suspect walks too
		}
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
			if h.inc == nil {
				e.bury(h)
			}
			e.suspect(key, s)
		}
	}
	for _, l := range e.byJob[s.node] {
		if !l.to.dead && l.to.fault.Classes[l.class].Sign == s.kind {
			e.link(l.to, l.class, s)
		}
	}
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
	e.suspects[key] = h
	// The sign that made it comes first: it fixes the time.
	for pass := range 2 {
		for c := range fault.Classes {
			cl := &fault.Classes[c]
			at := because.at
			if !cl.Jobs {
				r := e.walk.reach(e.g, key.node, cl)
				h.classes[c].n = len(r.nodes)
				if pass == 0 {
					if because.kind == cl.Sign && r.has(because.node) {
						e.link(h, c, because)
					}
					continue
				}
				e.there(r, cl.Sign, func(s *sign) {
					if s != because {
						e.link(h, c, s)
					}
				})
				continue
			}
			nodes := e.walk.forward(e.g, key.node, cl.Path, at)
			h.classes[c].n = len(nodes)
			if pass == 1 {
				for _, n := range nodes {
					e.byJob[n] = append(e.byJob[n], jobLink{h, c})
				}
				h.jobsAt = at
			}
			for _, n := range nodes {
				s := e.signs[signKey{n, int32(cl.Sign)}]
				if s == nil || (s == because) != (pass == 0) {
					continue
				}
				e.link(h, c, s)
			}
		}
	}
}

// there visits the signs of a kind on what a way reaches: by the parts where
// they are few, else by the signs.
func (e *Engine) there(r *reached, kind int, visit func(*sign)) {
	if len(r.nodes) <= 8 || len(r.nodes) <= len(e.ofKind[kind]) {
		for _, n := range r.nodes {
			if s := e.signs[signKey{n, int32(kind)}]; s != nil {
				visit(s)
			}
		}
		return
	}
	for _, s := range e.ofKind[kind] {
		if !s.gone && e.signs[signKey{s.node, int32(kind)}] == s && r.has(s.node) {
			visit(s)
		}
	}
}

// remember adds a sign to those that are there.
func (e *Engine) remember(s *sign) {
	e.signs[signKey{s.node, int32(s.kind)}] = s
	if s.kind >= len(e.ofKind) {
		return // nothing is reached by what the model does not know
	}
	l := e.ofKind[s.kind]
	if len(l) == cap(l) { // before it grows
		l = slices.DeleteFunc(l, func(o *sign) bool { return o.gone })
	}
	e.ofKind[s.kind] = append(l, s)
}

// link ties a sign to a suspect, when the times agree.
func (e *Engine) link(h *suspect, class int, s *sign) bool {
	for _, l := range s.links {
		if l.to == h {
			return true
		}
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
			goesOn := h.inc != nil && (lo.Sub(hi) <= quietClear || s.node == h.node && s.at.Sub(h.inc.heard) <= quietClear)
			if !goesOn {
				return false
			}
		} else {
			h.lo, h.hi = lo, hi
		}
	}
	if s.said && !cl.Later && cl.Before <= precursor && (h.onset.IsZero() || s.at.Before(h.onset)) {
		h.onset = s.at
	}
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
		nodes := slices.Clone(e.walk.forward(e.g, h.node, cl.Path, at))
		h.classes[c].n = max(h.classes[c].n, len(nodes))
		for _, n := range nodes {
			if !slices.ContainsFunc(e.byJob[n], func(l jobLink) bool { return l.to == h && l.class == c }) {
				e.byJob[n] = append(e.byJob[n], jobLink{h, c})
			}
			if s := e.signs[signKey{n, int32(cl.Sign)}]; s != nil {
				e.link(h, c, s)
			}
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
			s.links = slices.DeleteFunc(s.links, func(l link) bool { return l.to == h })
		}
		h.classes[c].signs = nil
	}
}

// drop forgets a sign and the suspects that nothing else speaks for.
func (e *Engine) drop(s *sign) {
	s.gone = true
	if e.signs[signKey{s.node, int32(s.kind)}] == s {
		delete(e.signs, signKey{s.node, int32(s.kind)})
	}
	links := s.links
	s.links = nil
	for _, l := range links {
		c := &l.to.classes[l.class]
		c.signs = slices.DeleteFunc(c.signs, func(o *sign) bool { return o == s })
		empty := true
		for i := range l.to.classes {
			if len(l.to.classes[i].signs) > 0 {
				empty = false
				break
			}
		}
		if empty && !l.to.dead {
			e.bury(l.to)
		}
	}
}

// sweep closes incidents that have been quiet and forgets old signs.
func (e *Engine) sweep() {
	if e.now.Sub(e.swept) < e.wait.sweep() {
		return
	}
	e.swept = e.now
	for _, inc := range slices.Clone(e.open) {
		if e.over(inc) {
			e.close(inc)
		}
	}
	e.forgetOld()
}

// forgetOld drops what is too old to matter.
func (e *Engine) forgetOld() {
	if e.now.Sub(e.forgot) < forgetEvery {
		return
	}
	e.forgot = e.now
	var old []*sign
	for _, s := range e.signs {
		if s.inc == nil && e.now.Sub(s.heard) > forget {
			old = append(old, s)
		}
	}
	for _, s := range old { // order does not matter: nothing is decided here
		if h := s.excused; h != nil { // what was excused together goes together
			for c := range h.classes {
				for _, o := range slices.Clone(h.classes[c].signs) {
					if o.excused == h && o.inc == nil {
						e.drop(o)
					}
				}
			}
		}
		if !s.gone {
			e.drop(s)
		}
	}
	for n, l := range e.byJob {
		l = slices.DeleteFunc(l, func(j jobLink) bool { return j.to.dead })
		if len(l) == 0 {
			delete(e.byJob, n)
		} else {
			e.byJob[n] = l
		}
	}
	for n, c := range e.contact {
		over := true
		for _, o := range c {
			over = over && (o.from.IsZero() || !o.to.IsZero() && e.now.Sub(o.to) > contactKept)
		}
		if over {
			delete(e.contact, n)
		}
	}
	e.dirty = slices.DeleteFunc(e.dirty, func(s *sign) bool { return s.gone })
}

func (e *Engine) over(inc *incident) bool {
	quiet := e.now.Sub(inc.heard)
	if quiet <= min(e.wait.Cleared, e.wait.Repaired, e.wait.Silent) {
		return false
	}
	stateful := false
	for _, s := range inc.signs {
		stateful = stateful || s.stateful
		// Many board controllers never write that a condition has ended.
		if s.up && (s.spoken || !inc.repaired.After(s.raisedAt)) {
			return quiet > quietRaised
		}
	}
	switch {
	case !inc.repaired.IsZero():
		return quiet > e.wait.Repaired && e.now.Sub(inc.repaired) > e.wait.Repaired
	case stateful:
		return quiet > e.wait.Cleared && e.now.Sub(inc.opened) > e.wait.Cleared
	}
	return quiet > e.wait.Silent
}

// thinned forgets every second of the facts that say the same, but for the last;
// the one before stands for it.
func thinned(facts []fact) []fact {
	type same struct {
		lane   int32
		about  node
		source string
		state  uint8
	}
	of := func(f *fact) same { return same{f.lane, f.about, f.source, f.state} }
	left, seen, before := map[same]int{}, map[same]int{}, map[same]int{}
	for i := range facts {
		left[of(&facts[i])]++
	}
	out := facts[:0]
	for _, f := range facts {
		k := of(&f)
		left[k]--
		seen[k]++
		if seen[k]%2 == 0 && left[k] > 0 {
			out[before[k]].n += f.n
			continue
		}
		before[k] = len(out)
		out = append(out, f)
	}
	clear(facts[len(out):])
	return out
}

type timer struct {
	at   time.Time
	sign *sign
}

type timers []timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	if !t[i].at.Equal(t[j].at) {
		return t[i].at.Before(t[j].at)
	}
	return t[i].sign.seq < t[j].sign.seq
}
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	old := *t
	x := old[len(old)-1]
	*t = old[:len(old)-1]
	return x
}
