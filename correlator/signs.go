package correlator

import (
	"container/heap"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// A sign is hardly ever there by itself from a leak of 1 in 1000 down; the tenth
// above is for rounding.
const surelyLeak = 0.001 * 1.1

// fact is one event, as an incident remembers it.
type fact struct {
	id     string
	at     time.Time // when it happened, as well as can be told
	lane   int32
	about  node
	n      int32 // events that it stands for
	sev    gravity
	source uint8 // as [intake.sourceOf] has it
	state  uint8
}

// gravity is a severity by its rank, from 1; 0 is none.
type gravity uint8

func gravityOf(s schemas.Severity) gravity { return gravity(s.Rank() + 1) } //nolint:gosec // few

func (r gravity) severity() schemas.Severity {
	return [...]schemas.Severity{"", schemas.SeverityInfo, schemas.SeverityWarning, schemas.SeverityError, schemas.SeverityCritical}[r]
}

const (
	moment uint8 = iota
	raised
	cleared
)

// intake is what was heard: the signs, who can be heard at all, the clock, and what has to be
// weighed now. It knows nothing of causes and incidents.
type intake struct {
	model     *propagation.Model
	g         *graph
	keep      int // events of one sign; 0 is all
	now       time.Time
	moment    uint64 // changes with the time, with each event and with the inventory
	inventory uint64 // how many there were
	restoring bool   // events are taken in, nothing is decided
	signs     signTable
	unknown   map[laneKey]int // pseudo kinds of signs that the model does not know
	dirty     []*sign         // to be weighed now
	waiting   timers          // to be weighed soon, since they are of large groups
	timers    timers
	seq       int
	seen      seen
	ends      ends
	judging   bool     // how sure it is is asked, not what is decided
	contact   contacts // of servers and switches
	unread    unread   // servers that tell nothing from inside
	unreadIDs []string // as they were set
	tells     []bool   // by sign: that it is up says something of other parts
	lanes     []laneKey
	laneIndex map[laneKey]int32
	sources   []string   // by number
	laneIDs   []string   // of lanes
	laneAs    []int32    // by lane: the first that has its id
	laneKinds [][5]int32 // by lane and gravity: the sign, once it was asked for
	began     time.Time  // of the solver's time
	fits      *solver.Fits
	losses    int          // times that fits have changed
	weights   [][3]float64 // of a sign that has settled, of a young one, and of one that lasts
	again     []float64    // by sign: by how much each report more changes the logarithm of its leak
	stats     Stats
}

// sign is one sign on one part: all events that say the same.
type sign struct {
	// What every decision asks of a sign lies together.
	at       time.Time // of the first event
	owner    *suspect  // scratch of the solver, as mark and at0
	worth    float64   // its weight, in a moment of the engine
	worthIn  uint64
	mark     uint32
	at0      int32  // in a group, from 1
	statedIn uint32 // pass in which it was asked whether it is stated
	said     bool   // something other than an all-clear was heard
	up       bool   // raised and not cleared
	gone     bool
	off      bool // no longer in signTable
	entered  bool // in spots
	brief    bool // every episode ended before it counted
	lasted   bool // one episode went on for long
	loose    bool // a record that may have been read long after it was written
	spoken   bool // by something other than the event log of a board controller
	stated   bool // part of a state that could be blamed
	waits    bool // to be weighed

	stateful  bool // has been raised
	kind      int  // index of propagation.Model.Signs; from their number on what the model does not know
	node      node // part
	class     int32
	often     int32     // most reports within half an hour
	room      int32     // facts before they are thinned
	soon      float32   // how much less likely by itself since it came again so soon, in nats
	raisedAt  time.Time // engine time of the last raise or moment
	links     []link
	inc       *incident
	seq       int
	heard     time.Time // engine time of the last event
	clearedAt time.Time
	raisedBy  int64 // time of the event that raised it, in nanoseconds
	spells    []spell
	worst     schemas.Severity
	raises    []raise
	reports   []report // of the last half an hour
	facts     []fact
	count     int           // of events
	excused   *suspect      // the harmless explanation
	outlasted *window       // the maintenance window that it has outlasted
	next      *sign         // on the same part
	slot      int32         // in signTable.all
	kindSlot  int32         // in signTable.by
	weighed   evidence      // as what it was last weighed
	turned    time.Duration // when it was last weighed as something else than before, as [hypotheses.span] has it
}

// evidence is what of a sign has a say in what is decided.
type evidence struct {
	of      *graph        // nil: it was not weighed yet
	at      time.Duration // as [hypotheses.span] has it
	weight  float64
	said    bool
	up      bool // where others depend on it
	passing bool
}

func (e *hypotheses) evidenceOf(s *sign) evidence {
	return evidence{
		of: e.g, at: e.span(s.at), weight: e.weight(s), said: s.said, up: s.up && s.kind < len(e.tells) && e.tells[s.kind], passing: e.momentary(s),
	}
}

// matters says whether what is known of a sign now could change a decision: it is other
// evidence than when it was last weighed, nobody explained it then, or more of what one
// of its suspects makes visible has become due since.
func (e *hypotheses) matters(s *sign) bool {
	if s.owner == nil || s.owner.dead || s.inc == nil && s.excused != s.owner || s.weighed != e.evidenceOf(s) {
		return true
	}
	if s.stateful && !s.up && s.owner.fault.Together > 0 && len(s.owner.folded) > 0 { // what goes with a supplier comes back with it
		return true
	}
	for _, l := range s.links {
		h := l.to
		if s.class < 0 && h.fault.Reset { // that it is heard of again may say that it is a fault of its own
			return true
		}
		if (h.accepted || h.base > 0) && e.dueSince(h, e.began.Add(h.laid)) {
			return true
		}
	}
	return false
}

// heeded says whether it has a say which parts of a class are silent.
func heeded(cl *propagation.Class, r *reach) bool {
	return !cl.Derived && (!cl.Learned || len(r.signs) > 0)
}

// dueSince says whether more is due of what a suspect makes visible than was at t.
func (e *hypotheses) dueSince(h *suspect, t time.Time) bool {
	if h.counted && !t.Before(e.calm(h).from) {
		return false
	}
	onset := e.onset(h)
	was, now := apart(t, onset), apart(e.now, onset)
	for c := range h.classes {
		cl := &h.fault.Classes[c]
		if heeded(cl, &h.classes[c]) && h.classes[c].n > h.classes[c].mute && solver.Late(was, cl.Soon) != solver.Late(now, cl.Soon) {
			return true
		}
	}
	return false
}

// raise is when a source told that a condition began.
type raise struct {
	at     time.Time
	source uint8
}

// report is one of those that count when a sign comes again and again.
type report struct {
	typ string
	at  time.Time
}

// signTable holds the signs that are remembered: by their parts, of which each has
// few, and all.
type signTable struct {
	of      []*sign // by node, the first of a list
	all     []*sign
	by      [][]*sign // by kind, in no order
	kinds   []int     // how many there are, by kind
	removed int       // since spots were cleared
	turns   []uint64  // how often one came, went, or was raised or cleared, by kind
	tells   []bool    // by kind: it shows a state, or is the like
	heard   uint64    // how often one that tells came or went, or something was heard of it
	lately  [heardTurns]node
}

// heardTurns is of how many times it is remembered of which parts something was heard.
const heardTurns = 256

// hear notes that something was heard of a sign.
func (t *signTable) hear(s *sign) {
	if s.kind < len(t.tells) && t.tells[s.kind] {
		t.lately[t.heard%heardTurns] = s.node
		t.heard++
	}
}

func (t *signTable) get(n node, kind int) *sign {
	if int(n) >= len(t.of) {
		return nil
	}
	for s := t.of[n]; s != nil; s = s.next {
		if s.kind == kind {
			return s
		}
	}
	return nil
}

func (t *signTable) add(s *sign) {
	if more := int(s.node) + 1 - len(t.of); more > 0 {
		t.of = append(t.of, make([]*sign, more)...)
	}
	s.next, t.of[s.node] = t.of[s.node], s
	if more := s.kind + 1 - len(t.kinds); more > 0 {
		t.kinds = append(t.kinds, make([]int, more)...)
		t.turns = append(t.turns, make([]uint64, more)...)
	}
	if more := s.kind + 1 - len(t.by); more > 0 {
		t.by = append(t.by, make([][]*sign, more)...)
	}
	s.kindSlot = int32(len(t.by[s.kind])) //nolint:gosec // a number of signs
	t.by[s.kind] = append(t.by[s.kind], s)
	t.turns[s.kind]++
	t.hear(s)
	t.kinds[s.kind]++
	s.slot = int32(len(t.all)) //nolint:gosec // a number of signs
	t.all = append(t.all, s)
}

// remove drops a sign, if it is there.
func (t *signTable) remove(s *sign) {
	for p := &t.of[s.node]; *p != nil; p = &(*p).next {
		if *p != s {
			continue
		}
		*p, s.next, s.off = s.next, nil, true
		t.removed++
		t.kinds[s.kind]--
		t.turns[s.kind]++
		t.hear(s)
		by := t.by[s.kind]
		end := len(by) - 1
		by[s.kindSlot], by[end].kindSlot = by[end], s.kindSlot
		by[end], t.by[s.kind] = nil, by[:end]
		last := len(t.all) - 1
		t.all[s.slot], t.all[last].slot = t.all[last], s.slot
		t.all[last], t.all = nil, t.all[:last]
		return
	}
}

// one returns the only sign of a kind on some parts but for another, or nil; where there are
// several, or where it is quicker to go over the parts, it says that it does not know.
func (t *signTable) one(kind int, on *reached, but *sign) (found *sign, known bool) {
	if len(on.nodes) <= few || lookUp*len(t.by[kind]) > len(on.nodes) {
		return nil, false
	}
	for _, s := range t.by[kind] {
		if s == but || !on.has(s.node) {
			continue
		}
		if found != nil {
			return nil, false
		}
		found = s
	}
	return found, true
}

// lookUp is how many parts are gone over in the time in which one is looked up among them.
const lookUp = 8

type laneKey struct{ typ, code string }

// seen remembers by their hashes the ids of the last million events, at least.
type seen struct {
	now, before hashSet
	seed        maphash.Seed
}

// again notes an id. It reports whether it was noted before.
func (s *seen) again(id string) bool {
	h := maphash.String(s.seed, id)
	if s.before.has(h) {
		return true
	}
	if s.now.n >= 1<<20 && !s.now.has(h) {
		s.now, s.before = hashSet{}, s.now
	}
	return !s.now.add(h)
}

// hashSet is a set of numbers that are as good as random: each lies at the first free place from the one that its
// first bits name. The zero value is empty.
type hashSet struct {
	at []uint64 // 0: free
	n  int
}

// place returns where a number is or would be; there is always a free place.
func (s *hashSet) place(h uint64) int {
	i := int(h >> (65 - uint(bits.Len(uint(len(s.at)))))) //nolint:gosec // fewer bits than an int has
	for s.at[i] != h && s.at[i] != 0 {
		i = (i + 1) & (len(s.at) - 1)
	}
	return i
}

func (s *hashSet) has(h uint64) bool {
	return s.n > 0 && s.at[s.place(max(h, 1))] != 0
}

// add reports whether a number is new.
func (s *hashSet) add(h uint64) bool {
	h = max(h, 1)
	if 4*s.n >= 3*len(s.at) {
		old := s.at
		s.at = make([]uint64, max(256, 2*len(old)))
		for _, x := range old {
			if x != 0 {
				s.at[s.place(x)] = x
			}
		}
	}
	i := s.place(h)
	if s.at[i] != 0 {
		return false
	}
	s.at[i] = h
	s.n++
	return true
}

// take folds an event into its sign and links the sign with its suspects.
// It returns nil for what speaks for nothing.
func (e *Engine) take(ev *schemas.Event, obs time.Time) *sign {
	if ev.Type == schemas.EventMaintenanceDeclared || ev.Type == schemas.EventMaintenanceEnded {
		if !e.declare(ev) {
			e.stats.Harmless++
			return nil
		}
		if ev.Type == schemas.EventMaintenanceEnded {
			return e.signs.get(e.g.number[ev.Resource], e.windows.sign)
		}
	}
	state := moment
	severity := ev.Severity
	e.ends.note(ev, obs)
	e.hearInside(ev)
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
	kind := e.match(ev, severity)
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
			e.enterAt(n)
		}
	} else {
		kind = e.unknownKind(ev)
	}
	s := e.signs.get(n, kind)
	if s != nil && s.inc != nil {
		s.inc.lasts = time.Time{}
	}
	if s != nil && kind != e.windows.sign && (e.stale(s, ev.ID, state) || e.crosses(s, state, at)) {
		if s.inc == nil {
			e.drop(s)
		} else { // the incident keeps the old one, which has ended unheard
			s.up = false
			e.signs.remove(s)
			for _, l := range s.links {
				l.to.unweigh()
			}
		}
		s = nil
	}
	own := at // by a clock that the network sets
	switch late := apart(obs, ev.Time); ev.Source {
	case schemas.SourceIPMI, schemas.SourceRedfish, schemas.SourceSNMP:
	default:
		if late >= 0 && late <= forget {
			own = ev.Time
		}
	}
	isNew := s == nil
	if isNew {
		if state == cleared && kind >= len(e.model.Signs) {
			return nil
		}
		e.seq++
		s = &sign{seq: e.seq, kind: kind, node: n, at: at, brief: true, loose: loose}
		e.signs.add(s)
	}
	if at.Before(s.at) {
		s.at = at
	}
	s.heard = e.now
	e.signs.hear(s)
	s.facts = append(s.facts, fact{ev.ID, at, e.lane(ev), about, 1, gravityOf(ev.Severity), e.sourceOf(ev.Source), state})
	s.count++
	if s.inc != nil {
		s.inc.reports++
	}
	s.spoken = s.spoken || ev.Type != schemas.EventBMCSEL && ev.Type != schemas.EventBMCEvent
	if e.keep > 0 && len(s.facts) > max(e.keep, int(s.room)) && kind != e.windows.sign {
		s.facts = thinned(s.facts)
		s.room = int32(len(s.facts) * 3 / 2) //nolint:gosec // bounded by what is kept
	}
	if ev.Severity.Rank() > s.worst.Rank() && state != cleared {
		s.worst = ev.Severity
	}
	fresh := false
	spoke, stood := s.said, s.up
	switch state {
	case cleared:
		if obs.After(s.clearedAt) {
			s.clearedAt = obs
		}
		lasted := s.clearedAt.Sub(s.raisedAt)
		if own, ok := e.order(s, ev, about, obs); ok { // the all-clear may be late
			lasted = min(lasted, own)
		}
		if s.up && !obs.Before(s.raisedAt) {
			s.up = false
			e.ended(s, lasted)
			if s.class < 0 && s.owner != nil && s.owner.fault.Together > 0 {
				heap.Push(&e.timers, timer{stampOf(e.now.Add(backWithin)), s})
			}
		}
	default:
		fresh = !s.said
		s.said = true
		if state == raised {
			lasted, over := e.order(s, ev, about, obs)
			if !s.up {
				s.raisedAt, s.raisedBy = obs, nanoseconds(own)
				if !over {
					s.raises = append(s.raises, raise{obs, e.sourceOf(ev.Source)})
				}
			}
			s.stateful = true
			switch { // the all-clear may have overtaken it
			case !over && s.clearedAt.Before(obs):
				s.up = true
			case !over:
				s.up = false
				e.ended(s, s.clearedAt.Sub(s.raisedAt))
			case !s.up:
				e.ended(s, lasted)
			}
		} else if fresh {
			s.raisedAt, s.raisedBy = obs, nanoseconds(own)
		}
		if fresh || state == raised {
			if hold := e.hold(s); hold > 0 {
				heap.Push(&e.timers, timer{stampOf(s.raisedAt.Add(hold)), s})
			} else if e.strange(kind) || s.worst == schemas.SeverityCritical {
				heap.Push(&e.timers, timer{stampOf(e.now.Add(unknownHold)), s})
			}
			if kind < len(e.model.Signs) && e.model.Signs[kind].Long > 0 && s.up {
				heap.Push(&e.timers, timer{stampOf(s.raisedAt.Add(e.model.Signs[kind].Long)), s})
			}
		}
		e.bounce(s, e.sourceOf(ev.Source), at)
		if e.repeat(s, ev.Type, at) {
			heap.Push(&e.timers, timer{stampOf(e.now.Add(unknownHold)), s})
		}
	}
	if s.up && !stood && !fresh {
		for _, l := range s.links { // what else it shows then goes with it, however long ago it began
			if cl := &l.to.fault.Classes[l.class]; !cl.Later && l.class < l.to.fault.Own() {
				l.to.again = stampOf(at)
			}
		}
	}
	if s.said != spoke || s.up != stood {
		e.signs.turns[kind]++
	}
	if fresh {
		for _, l := range s.links {
			l.to.restated = true
		}
	}
	if kind == e.windows.sign {
		e.openWindow(s, ev.ID)
	} else if isNew || fresh {
		e.relate(s)
	}
	return s
}

// booted ends the faults of a server that a boot repairs. It reports whether
// there was one and the host did not crash, so that the boot was the repair.
func (e *ledger) booted(server string, at time.Time) bool {
	n, ok := e.g.number[server]
	if !ok {
		return false
	}
	repair := false
	for _, inc := range e.open {
		if inc.root != nil && inc.root.fault.Reset && e.g.server(inc.root.node) == n && at.After(inc.heard) {
			inc.repaired, inc.lasts = at, time.Time{}
			repair = true
		}
	}
	return repair && !e.crashed(n, at)
}

// crashed says whether a server has told of a crash of its own before a boot.
func (e *intake) crashed(server node, boot time.Time) bool {
	for kind := range e.model.Signs {
		if !e.model.Signs[kind].Crash {
			continue
		}
		if s := e.signs.get(server, kind); s != nil && s.said && boot.Sub(s.heard) < forget {
			return true
		}
	}
	return false
}

// spell is when one source last raised and cleared a sign of one part, by its own clock, in
// nanoseconds, 0 for not, and how late the latter came.
type spell struct {
	about           node
	source          uint8
	open            bool // it was raised since it was last cleared
	raised, cleared int64
	late            time.Duration
}

// order takes in a change of state by the clock of who tells of it, which says in which order its
// reports were made, however they arrive. Once the state has ended, it returns how long it lasted.
func (e *intake) order(s *sign, ev *schemas.Event, about node, obs time.Time) (lasted time.Duration, over bool) {
	if ev.Time.IsZero() {
		return 0, false
	}
	source := e.sourceOf(ev.Source)
	i := slices.IndexFunc(s.spells, func(t spell) bool { return t.source == source && t.about == about })
	if i < 0 {
		i = len(s.spells)
		s.spells = append(s.spells, spell{source: source, about: about})
	}
	t, at, late := &s.spells[i], nanoseconds(ev.Time), obs.Sub(ev.Time)
	if ev.State == schemas.StateCleared {
		t.open = false
		t.cleared, t.late = at, late
		return time.Duration(at - t.raised), t.raised != 0 && at >= t.raised
	}
	// Where a clock was set back, what it says is later than it was by more than events are late.
	if t.cleared > at && late > t.late && late-t.late < 2*lateRead {
		return time.Duration(t.cleared - at), true
	}
	t.raised, t.open = at, true
	return 0, false
}

// sourceOf gives a number to a source; those of which there are too many share the last.
func (e *intake) sourceOf(name string) uint8 {
	i := slices.Index(e.sources, name)
	if i < 0 {
		if i = len(e.sources); i < math.MaxUint8 {
			e.sources = append(e.sources, name)
		}
	}
	return uint8(i) //nolint:gosec // bounded above
}

// sourceNamed returns the name of a source by its number.
func (e *intake) sourceNamed(n uint8) string {
	if int(n) < len(e.sources) {
		return e.sources[n]
	}
	return "another source"
}

// ended notes whether an episode that is over has lasted.
func (e *intake) ended(s *sign, lasted time.Duration) {
	if hold := e.hold(s); hold == 0 || lasted >= hold {
		s.brief = false
	}
	if s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Long > 0 && lasted >= e.model.Signs[s.kind].Long {
		s.lasted = true
	}
}

// repeat counts the reports of a sign that comes again and again, and reports
// whether this one counts beside others.
func (e *intake) repeat(s *sign, typ string, at time.Time) bool {
	if s.kind >= len(e.model.Signs) || e.model.Signs[s.kind].Again == 1 {
		return false
	}
	s.reports = slices.DeleteFunc(s.reports, func(r report) bool { return at.Sub(r.at) > againWithin })
	if slices.ContainsFunc(s.reports, func(r report) bool { return r.typ == typ && at.Sub(r.at).Abs() < againApart }) {
		return false
	}
	s.reports = append(s.reports, report{typ, at})
	s.often = max(s.often, int32(len(s.reports))) //nolint:gosec // of half an hour
	return s.often > 1
}

// stale says whether an event opens a new sign in place of an old one.
func (e *ledger) stale(s *sign, id string, state uint8) bool {
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
		return gap > quietMoment || s.stateful && (gap > episode || !s.up && gap > bounceSpan && s.kind < len(e.tells) && e.tells[s.kind])
	}
	return s.stateful && !s.up && gap > bounceSpan || gap > forget
}

func (e *intake) hold(s *sign) time.Duration {
	if e.strange(s.kind) {
		return unknownHold
	}
	return e.model.Signs[s.kind].Hold
}

// leak is the chance that the sign is there by itself, now.
func (e *intake) leak(s *sign) float64 {
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
		if !s.brief || s.up && apart(e.now, s.raisedAt) >= m.Hold {
			return m.Leak
		}
		return m.Young
	}
	if apart(e.now, s.raisedAt) >= m.Hold {
		return m.Leak
	}
	return m.Young
}

// lasting says whether a condition is there for so long that it hardly ever is by itself.
func (e *intake) lasting(s *sign) bool {
	if s.kind >= len(e.model.Signs) || !s.up {
		return s.lasted
	}
	long := e.model.Signs[s.kind].Long
	return s.lasted || long > 0 && apart(e.now, s.raisedAt) >= long
}

// twinUp says whether the other end of a link has lost the sign at once,
// so that this end's all-clear was lost.
func (e *intake) twinUp(s *sign) bool {
	for _, l := range [2][][]node{e.g.links[linkNet].out, e.g.links[linkNet].in} {
		for _, n := range l[s.node] {
			t := e.signs.get(n, s.kind)
			raised := s.raisedAt
			if by := time.Unix(0, s.raisedBy); by.Before(raised) {
				raised = by
			}
			if t == nil || t.up || t.clearedAt.Before(raised) {
				continue
			}
			if t.clearedAt.Sub(raised) < e.model.Signs[s.kind].Hold {
				return true
			}
		}
	}
	return false
}

// bounce derives the sign of a condition that comes and goes: the more often and the sooner, the
// less likely by itself. What two sources tell of one time is no second one.
func (e *Engine) bounce(s *sign, source uint8, at time.Time) {
	if s.kind >= len(e.model.Signs) {
		return
	}
	to := e.model.Signs[s.kind].Bounce
	for len(s.raises) > 0 && e.now.Sub(s.raises[0].at) > bounceSpan {
		s.raises = s.raises[1:]
	}
	if to < 0 {
		return
	}
	again, first := int32(-1), time.Time{}
	for _, r := range s.raises {
		if r.source == source {
			if again++; again == 0 {
				first = r.at
			}
		}
	}
	if again < 1 {
		return
	}
	b := e.signs.get(s.node, to)
	if b == nil {
		e.seq++
		b = &sign{seq: e.seq, kind: to, node: s.node, at: s.at, said: true, raisedAt: e.now}
		e.signs.add(b)
		e.relate(b)
	}
	b.heard = e.now
	e.signs.hear(b)
	if at.Before(b.at) {
		b.at = at
	}
	// By chance, the time to the next one is as likely to be any within the span.
	if soon := float32(math.Log(float64(bounceSpan) / float64(max(e.now.Sub(first), time.Second)))); again > b.often || soon > b.soon && again == b.often {
		b.often, b.soon = again, soon
	}
	if !e.restoring {
		e.wake(b)
	}
}

// happened says when an event happened. Collectors' clocks are right; a
// device's own time counts only for a record that was read late: one of a
// device that was out of contact, or of a host, whose clock is disciplined.
func (e *intake) happened(ev *schemas.Event, n node, obs time.Time) (at time.Time, loose bool) {
	late := apart(obs, ev.Time)
	switch ev.Source {
	case schemas.SourceIPMI, schemas.SourceRedfish, schemas.SourceSNMP:
		lost := false
		for _, c := range e.outages(e.g.server(n)) {
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
func (e *intake) trackContact(ways propagation.Contact, n node, obs time.Time, state uint8) {
	if ways == 0 {
		return
	}
	dev := e.g.server(n)
	if dev == none {
		dev = n
	}
	lost := e.outages(dev)[0].from
	e.contact.note(dev, ways, obs, e.now, state == cleared)
	if state == cleared && ways&propagation.Host != 0 && !lost.IsZero() && obs.Sub(lost) >= bootSpan {
		e.unsay(dev, lost)
	}
	if e.g.kindOf(dev) == schemas.KindSwitch {
		e.contact.hubs = e.contact.version
	}
}

// unsaid says whether a condition that nothing has ended was not told again since its system was lost, at
// clearedAt, and started anew.
func (s *sign) unsaid() bool { return s.up && !s.clearedAt.Before(s.heard) }

// unsay notes what a system said before it was lost at t, and has to say again.
func (e *intake) unsay(part node, t time.Time) {
	if int(part) < len(e.signs.of) {
		for s := e.signs.of[part]; s != nil; s = s.next {
			if s.up && !s.unsaid() && s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Starts && s.heard.Sub(t) < lossTold {
				if s.clearedAt = t; t.Before(s.heard) {
					s.clearedAt = s.heard
				}
			}
		}
	}
	for _, p := range e.g.children[part] {
		e.unsay(p, t)
	}
}

// outages returns the last ones of a device.
func (e *intake) outages(dev node) (out [2]outage) {
	if c := e.contact.of(dev); c != nil {
		out = c.ways
	}
	return out
}

// place moves a sign to where the model expects it: a report about a job to
// the job, a session to the port that it runs over.
func (e *hypotheses) place(ev *schemas.Event, n node, kind int, at time.Time) node {
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

func (e *hypotheses) job(id string) node {
	n := e.g.ensure(id)
	if e.g.kind[n] == 0 {
		e.g.setKind(n, propagation.KindWorkload)
		e.enterAt(n)
	}
	return n
}

// maxUnknown is how many types and codes that the model does not know are told apart.
// Some devices put numbers into codes, and each would be a kind for good.
const maxUnknown = 4096

// unknownKind returns a pseudo kind for what the model does not know: by type and code,
// and where those are too many by type alone, and then as one.
func (e *intake) unknownKind(ev *schemas.Event) int {
	for i, k := range [3]laneKey{{ev.Type, ev.Code}, {typ: ev.Type}, {}} {
		v, ok := e.unknown[k]
		if !ok && len(e.unknown) < (i+1)*maxUnknown {
			v, ok = len(e.model.Signs)+len(e.unknown), true
			e.unknown[k] = v
		}
		if ok {
			return v
		}
	}
	return len(e.model.Signs) // not reached: the last has room
}

// match is [propagation.Model.Match], remembered of the lanes that there are.
func (e *intake) match(ev *schemas.Event, severity schemas.Severity) int {
	lane, ok := e.laneIndex[laneKey{ev.Type, ev.Code}]
	if !ok {
		return e.model.Match(ev.Type, ev.Code, severity)
	}
	kind := &e.laneKinds[lane][gravityOf(severity)]
	if *kind == unmatched {
		*kind = int32(e.model.Match(ev.Type, ev.Code, severity)) //nolint:gosec // a number of signs
	}
	return int(*kind)
}

// unmatched is no kind, and not none.
const unmatched = -2

func (e *intake) lane(ev *schemas.Event) int32 {
	k := laneKey{ev.Type, ev.Code}
	v, ok := e.laneIndex[k]
	if !ok && len(e.lanes) >= 4*maxUnknown {
		k.code = "" // of so many, codes do not say anything
		v, ok = e.laneIndex[k]
	}
	if !ok {
		v = int32(len(e.lanes))
		e.laneIndex[k] = v
		e.lanes = append(e.lanes, k)
		e.laneIDs = append(e.laneIDs, k.id())
		e.laneKinds = append(e.laneKinds, [5]int32{unmatched, unmatched, unmatched, unmatched, unmatched})
		e.laneAs = append(e.laneAs, int32(slices.Index(e.laneIDs, k.id()))) //nolint:gosec // a number of lanes
	}
	return v
}

// forgetNames frees what was kept of resources that the inventory does not know, and of
// which nothing is heard any more: some devices make up names.
func (e *Engine) forgetNames() {
	if len(e.g.number) < e.strangers {
		return
	}
	used := map[node]bool{}
	keep := func(s *sign) {
		used[s.node] = true
		for i := range s.facts {
			used[s.facts[i].about] = true
		}
	}
	for _, s := range e.signs.all {
		keep(s)
	}
	for _, inc := range slices.Concat(e.open, e.changed.all) {
		used[inc.where] = true
		for _, s := range inc.signs {
			keep(s)
		}
		if inc.root != nil {
			used[inc.root.node] = true
		}
	}
	for n, i := range e.spots.at {
		if i != 0 && slices.ContainsFunc(e.spots.lists[i-1], func(p spotOf) bool { return p.suspect != nil }) {
			used[node(n)] = true //nolint:gosec // a node
		}
	}
	for n := range e.byJob {
		used[n] = true
	}
	for _, c := range e.contact.all {
		used[c.dev] = true
	}
	e.g.forget(func(n node) bool { return used[n] })
	e.strangers = 2*len(e.g.number) + maxUnknown
}

// drop forgets a sign and the suspects that nothing else speaks for.
func (e *hypotheses) drop(s *sign) {
	s.gone = true
	e.signs.remove(s)
	links := s.links
	s.links = nil
	for _, l := range links {
		c := &l.to.classes[l.class]
		c.signs = slices.DeleteFunc(c.signs, func(o *sign) bool { return o == s })
		l.to.stir()
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

// forgetOld drops what is too old to matter.
func (e *Engine) forgetOld() {
	if e.now.Sub(e.forgot) < forgetEvery {
		return
	}
	e.forgot = e.now
	var old []*sign
	for _, s := range e.signs.all {
		if s.inc == nil && e.now.Sub(s.heard) > forget && !e.kept(s) {
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
	for _, o := range e.strays {
		o.recent = slices.DeleteFunc(o.recent, func(s *sign) bool { return s.gone })
	}
	for n, l := range e.byJob {
		l = slices.DeleteFunc(l, func(j jobLink) bool { return j.to.dead })
		if len(l) == 0 {
			delete(e.byJob, n)
		} else {
			e.byJob[n] = l
		}
	}
	e.unhired = slices.DeleteFunc(e.unhired, func(u unhired) bool { return u.of.dead || u.of.hired })
	if e.signs.removed > max(maxUnknown/4, len(e.signs.all), e.spots.n/4) {
		e.clearSpots()
	}
	e.contact.forget(e.now.Add(-contactKept))
	e.forgetNames()
	e.dirty = slices.DeleteFunc(e.dirty, func(s *sign) bool { return s.gone })
}

// thinned forgets every second of the facts that say the same, but for the last;
// the one before stands for it.
func thinned(facts []fact) []fact {
	type same struct {
		lane   int32
		about  node
		source uint8
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
	at   stamp
	sign *sign
}

type timers []timer

func (t timers) Len() int { return len(t) }
func (t timers) Less(i, j int) bool {
	if t[i].at != t[j].at {
		return t[i].at < t[j].at
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

// momentary says whether a sign has not lasted, or not yet.
func (e *intake) momentary(s *sign) bool {
	return s.kind < len(e.model.Signs) && e.model.Signs[s.kind].Hold > 0 && e.leak(s) == e.model.Signs[s.kind].Young
}

// weight is -log of the leak, the log-likelihood ratio of a sign that a fault shows
// for sure. Reports that come again are independent but for a factor: each
// multiplies the leak by Again, down to Rare.
func (e *intake) weight(s *sign) float64 {
	if !s.said || s.kind >= len(e.model.Signs) {
		return 0
	}
	if e.lasting(s) {
		return e.weights[s.kind][2]
	}
	m := &e.model.Signs[s.kind]
	if e.leak(s) != m.Leak {
		return e.weights[s.kind][1]
	}
	w := e.weights[s.kind][0]
	return max(w, min(w-float64(max(0, s.often-1))*e.again[s.kind]+float64(s.soon), e.weights[s.kind][2]))
}

// weightNow is weight, which no event changes while something is decided, remembered for as
// long.
func (e *intake) weightNow(s *sign) float64 {
	if s.worthIn != e.moment {
		s.worth, s.worthIn = e.weight(s), e.moment
	}
	return s.worth
}

// surely says whether a sign is hardly ever there by itself.
func (e *intake) surely(s *sign) bool {
	return e.strange(s.kind) || e.weight(s) >= -math.Log(surelyLeak)
}

// strange says whether the records have no sign of a kind.
func (e *intake) strange(kind int) bool {
	return kind >= len(e.model.Signs) || e.model.Signs[kind].Learned
}
