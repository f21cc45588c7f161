// Package correlator turns alerts into incidents, each with one root cause. It
// lays the inventory out as a graph, takes for a suspect every fault that could
// explain what was seen, and blames the smallest set of faults that explains
// best what came and what did not come. What a fault makes visible is data
// (schemas/faults/propagation). Everything is in event time, incremental, and
// revised as evidence comes.
package correlator

import (
	"container/heap"
	"hash/maphash"
	"math"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Times of the engine, in event time. They are chosen, not derived: a minute is some
// rounds of the collectors and what clocks may differ by, ten to thirty minutes are
// what operators call the same trouble.
const (
	backWithin  = 3 * time.Minute        // supplies are polled so often: that one is back is heard by then
	settle      = 500 * time.Millisecond // a group of signs is weighed again so soon while it grows fast
	emitEvery   = time.Second            // an incident whose cause stays is published again at most so often
	emitSoon    = 100 * time.Millisecond // or so often, while all that its states have listed is
	listMost    = 4                      // times its events
	forgetEvery = 10 * time.Minute
	forget      = 2 * time.Hour    // a sign that no fault explains; longer than any precursor
	quietClear  = 15 * time.Minute // a condition that began so long after another is not one with it
	quietMoment = time.Hour        // a sign without an end speaks for so long
	quietRaised = 24 * time.Hour   // an incident closes when so long nothing was heard of a condition that never ended
	episode     = 30 * time.Minute // a condition raised again after so long is another one
	bounceSpan  = 10 * time.Minute
	lateRead    = 2 * time.Minute  // a record whose clock is older was read late, or the clock is wrong
	rejudge     = 10 * time.Second // a confidence is weighed again after, whatever has changed around the incident
	unknownHold = time.Minute      // a critical sign that nothing explains is shown after
	againWithin = 30 * time.Minute
	againApart  = time.Minute     // reports of one type that are nearer say the same
	lossTold    = time.Minute     // a device is told to be out of contact so long after it was lost, at most
	bootSpan    = 2 * time.Minute // a server is out of contact for so long, at least, while it starts
	backAgain   = 2 * time.Minute
	clockOff    = 5 * time.Minute  // by which the clock of a board controller may be off
	drained     = 10 * time.Minute // after it is back, what a device wrote while it was lost has been read
	precursor   = time.Minute      // what may come longer before a fault does not say when it began
	promptly    = time.Minute      // what comes later after a fault, on average, says less of when it began than what it brings about
	readEarly   = time.Minute      // what follows is heard of at most so long before what comes first: sensors are polled
	readyFor    = 10 * time.Minute // what comes before a state was shown so long ago, at most
	contactKept = 30 * time.Minute // longer than any sign of a fault is waited for
)

// kindStep is by how many nats each further kind in the list of a fault is the less
// likely one to have it. It breaks ties: a fifth, less than any sign is worth.
const kindStep = 0.2

// A group of at most solveSmall signs is weighed with every event. A larger one is
// weighed when a solveShare of it is new, else after a wait in proportion to its size:
// a settle for each solveTold signs where its cause explains what is new, for each
// solveLarge where it does not, and patience at most. What all weighings cost then grows
// with the events, and no decision is later than that. What is plain is told by [Engine.glance] meanwhile.
const (
	solveSmall = 64
	solveTold  = 32
	solveLarge = 1024
	solveShare = 4 // 1/4
	toldWait   = 8 // times that waits of which more was decided already than it can change
	patience   = 20 * settle
)

// Engine turns events into incidents, in event time. It is deterministic: the
// same events in the same order give the same incidents, whatever the
// resources are called and whenever they happened. It is not safe for
// concurrent use.
//
// It is built in layers, each of which knows only those below it: intake (what was heard),
// hypotheses (what could explain it, laid out for the solver), ledger (the incidents); what is
// left here is when what is done.
type Engine struct {
	ledger

	started   bool
	glances   bool // by what the cover would decide
	swept     time.Time
	forgot    time.Time
	strangers int // names from which on those that nobody uses are forgotten
}

// Stats counts what an engine did since it was made.
type Stats struct {
	Events     uint64 // taken in
	Duplicates uint64 // dropped, since an event with the id was taken in before
	Harmless   uint64 // severity info without an end: they speak for nothing
	Solved     uint64 // times that what had changed was weighed
	Asked      uint64 // suspects and signs of which it was found out whether they tie others together
	Weighed    uint64 // suspects, one by one
	Met        uint64 // parts, workloads and signs that were gone over for new suspects
	Steps      uint64 // signs, classes and parts that the solver looked at
	Swept      uint64 // signs that were gone over for incidents that may be over
	Opened     uint64 // incidents
	Signs      int    // that are remembered
	Suspects   int
	Open       int // incidents
	Windows    int // of maintenance that are open or to come, by resource
}

// NewEngine returns an engine over an inventory. ids names a new incident from
// the id of its first event; with nil they are i1, i2 and so on.
func NewEngine(model *propagation.Model, topology *schemas.Topology, ids func(first string) string) *Engine {
	e := &Engine{ledger: ledger{
		hypotheses: hypotheses{
			intake: intake{
				model: model, fits: &solver.Fits{}, unknown: map[laneKey]int{}, laneIndex: map[laneKey]int32{},
				seen: seen{seed: maphash.MakeSeed()}, contact: contacts{version: 1},
				signs: signTable{kinds: make([]int, len(model.Signs)), turns: make([]uint64, len(model.Signs))},
			},
			byJob: map[node][]jobLink{}, unfed: map[node]*suspect{}, showing: solver.Showing(model),
			windows: windows{sign: model.SignNamed(propagation.SignWork), back: model.SignNamed(propagation.SignNotBack)},
		},
		ids: ids, wait: DefaultCloseAfter(), alike: map[string]*peers{}, warm: map[causeKey]*incident{}, strays: map[strayKey]*stray{}, composer: composer{m: model, said: wordings{}}, inputLost: model.SignNamed("psu_input"),
	}}
	most := widest{}
	e.kindMet = make([]uint32, len(model.Signs))
	e.widest = make([]widest, len(model.Faults)*len(model.Signs))
	for f := range model.Faults {
		for c := range model.Faults[f].Classes {
			cl := &model.Faults[f].Classes[c]
			w := &e.widest[f*len(model.Signs)+cl.Sign]
			w.within, w.before = max(w.within, cl.Within), max(w.before, cl.Before)
			most.within, most.before = max(most.within, w.within), max(most.before, w.before)
		}
	}
	e.longest = most.within + most.before
	e.cover = solver.NewCover(model, e.fits)
	e.method, e.glances = e.cover, true
	for f := range model.Faults {
		e.silences, e.silentMost = append(e.silences, silences(&model.Faults[f], e.showing)), append(e.silentMost, 0)
		for c := range model.Faults[f].Classes {
			if !model.Faults[f].Classes[c].Derived {
				e.silentMost[f] += e.fits.Most(&model.Faults[f].Classes[c], 0, 0)
			}
			if cl := &model.Faults[f].Classes[c]; cl.Jobs && model.Faults[f].Window == propagation.NoWindow {
				e.stalls = max(e.stalls, cl.Within)
			}
		}
	}
	for _, s := range model.Signs {
		e.weights = append(e.weights, [3]float64{-math.Log(s.Leak), -math.Log(s.Young), -math.Log(s.Rare)})
		e.again = append(e.again, math.Log(s.Again))
	}
	e.tells = make([]bool, len(model.Signs))
	for k := range model.Signs {
		e.tells[k] = model.Signs[k].Twin
	}
	for _, kinds := range e.showing {
		for _, k := range kinds {
			e.tells[k] = true
		}
	}
	e.signs.tells = e.tells
	e.SetTopology(topology)
	return e
}

// SetCloseAfter replaces the waits before an incident closes.
func (e *Engine) SetCloseAfter(w CloseAfter) { e.wait = w }

// SetMethod replaces the method by which causes are found by one of [solver.Methods].
func (e *Engine) SetMethod(name string) (err error) {
	e.method, err = solver.Named(name, e.cover)
	e.glances = e.method == e.cover
	return err
}

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
	e.g.learn(e.model)
	e.findUnread()
	e.supply, e.ranAt = solver.Supply{}, e.ranAt[:0]
	e.contact.version++
	e.contact.whole = e.contact.version
	if len(e.contact.all) > 0 {
		e.contact.hubs = e.contact.version // some may be switches now
	}
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
	e.moment++
	e.inventory++
	e.clearSpots()
	for _, list := range e.spots.lists {
		for _, p := range list {
			clear(p.signs)
			p.signs = p.signs[:0]
		}
	}
	for _, s := range e.signs.all {
		e.enterAll(s)
	}
	e.findWindows()
}

// SetWorkloads replaces the workloads of the inventory.
func (e *Engine) SetWorkloads(ws []schemas.Workload) {
	e.ranAt = e.ranAt[:0]
	for _, n := range e.g.setWorkloads(ws) {
		e.enterAt(n)
	}
}

// Now returns the engine's clock: the latest time that it was told.
func (e *Engine) Now() time.Time { return e.now }

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Signs, s.Suspects, s.Open = len(e.signs.all), e.held, len(e.open)
	for _, list := range e.windows.at {
		for _, w := range list {
			if !w.over {
				s.Windows++
			}
		}
	}
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
		for _, q := range [2]timers{e.waiting, e.timers} {
			if len(q) > 0 && q[0].at < stampOf(next) {
				next = q[0].at.time()
			}
		}
		if next.After(e.now) {
			e.now = next
			e.moment++
		}
		for len(e.timers) > 0 && e.timers[0].at <= stampOf(e.now) {
			d := heap.Pop(&e.timers).(timer)
			switch {
			case d.sign.gone:
			case d.sign.kind == e.windows.sign:
				e.endWindows(d.sign, e.now)
				e.dirty = append(e.dirty, d.sign)
			case e.matters(d.sign):
				e.wake(d.sign)
			}
		}
		e.rouse(false)
		if len(e.dirty) > 0 {
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
	e.rouse(true)
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
		e.started, e.began, e.now, e.swept, e.forgot = true, obs, obs, obs, obs
	}
	if obs.After(e.now) {
		e.Advance(obs)
	}
	if e.seen.again(ev.ID) {
		e.stats.Duplicates++
		return false
	}
	e.stats.Events++
	s := e.take(ev, obs)
	e.moment++
	if s == nil {
		return false
	}
	if e.restoring {
		return true
	}
	if !e.matters(s) {
		if s.inc != nil {
			s.inc.heard = e.now
			e.change(s.inc)
		}
		e.emitDue(false)
		return true
	}
	e.wake(s)
	e.rouse(false)
	if len(e.dirty) > 0 {
		e.solve()
	}
	e.emitDue(false)
	return true
}

// wake has a sign weighed: now, or when its group is due.
func (e *Engine) wake(s *sign) {
	size, at, step := int32(0), time.Time{}, int32(solveLarge)
	for _, l := range s.links {
		if h := l.to; h.group > size {
			size, at = h.group, e.began.Add(h.laid)
		}
		if l.to.accepted {
			step = solveTold
		}
	}
	if size < solveSmall {
		e.dirty = append(e.dirty, s)
		return
	}
	longest := patience
	if e.answered(s) {
		step, longest = solveTold/toldWait, toldWait*patience
	}
	at = at.Add(max(settle, min(settle*time.Duration(size/step), longest)))
	for _, l := range s.links {
		l.to.unweigh() // it may be weighed with others before that
		if l.to.group == size && !s.waits {
			if l.to.fresh++; l.to.fresh*solveShare > size {
				at = e.now
			}
		}
	}
	s.waits = true
	heap.Push(&e.waiting, timer{stampOf(at), s})
}

// answered says whether what is new of a sign makes a decision surer, or less so, rather than another one: it is
// told, or has a harmless cause, or was left alone and says no more than it did.
func (e *Engine) answered(s *sign) bool {
	if s.owner == nil {
		return s.weighed == e.evidenceOf(s) && e.lonely(s)
	}
	return !s.owner.dead && (s.inc != nil || s.excused == s.owner)
}

// rouse has those weighed that wait and whose groups are due, and that were not weighed with others.
func (e *Engine) rouse(now bool) {
	for len(e.waiting) > 0 && (now || e.waiting[0].at <= stampOf(e.now)) {
		if s := heap.Pop(&e.waiting).(timer).sign; s.waits && !s.gone {
			if s.waits = false; now || !e.glance(s) {
				e.dirty = append(e.dirty, s)
			} else if s.owner != nil {
				e.wake(s) // with the others
			}
		}
	}
	if len(e.waiting) == 0 {
		e.waiting = nil // of a burst
	}
}
