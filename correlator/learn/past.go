package learn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"auspex/correlator"
	"auspex/internal/hindsight"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// The window of an incident, of which events are replayed: what led up to it, and what
// had not come when its last change was decided.
const (
	before = 30 * time.Minute
	after  = 5 * time.Minute
)

// Case is an incident of the past: one that has closed, one on which a verdict stands,
// or both.
type Case struct {
	Incident   schemas.Incident
	Correction *schemas.Correction // nil: nobody has judged it
}

// Judged reports whether a person has said what the cause was.
func (c *Case) Judged() bool { return c.Correction != nil }

// Truth returns the cause as far as it is known: a person's word, else the incident's
// own. No incident has no resource.
func (c *Case) Truth() (resource, fault string) {
	if c.Correction != nil {
		return c.Correction.Resource, c.Correction.Fault
	}
	return c.Incident.RootCause.Resource, c.Incident.RootCause.Fault
}

// Past is what a site has been through: its cases, in windows that hang together, with
// the events of those windows.
type Past struct {
	topology *schemas.Topology
	models   map[string]string // of a resource, or of the whole that it is part of
	windows  []*window
	stood    []Standing
	Events   int // kept
}

// Standing is which edges people had accepted from a time on, until the next.
type Standing struct {
	From  time.Time    `json:"from"`
	Edges []EdgeCounts `json:"edges"`
}

// SetStanding says which edges stood when.
func (p *Past) SetStanding(list []Standing) {
	p.stood = slices.Clone(list)
	slices.SortStableFunc(p.stood, func(a, b Standing) int { return a.From.Compare(b.From) })
}

// accepted returns by which of the standings a case may be judged, from 1: the last one before it
// opened. 0 is none.
func (p *Past) accepted(c *Case) int {
	n, _ := slices.BinarySearchFunc(p.stood, c.Incident.Opened, func(s Standing, t time.Time) int { return s.From.Compare(t) })
	return n
}

// window is a stretch of time with the cases in it. Cases whose windows overlap are
// replayed together, as they were.
type window struct {
	from, to time.Time
	cases    []*Case
	events   []schemas.Event
}

// NewPast returns the past of incidents, with the verdicts that stand on them: of
// several states of an incident or verdicts on it the last counts. Open incidents count
// where somebody has judged them, absorbed and unexplained ones never.
func NewPast(t *schemas.Topology, incidents []schemas.Incident, corrections []schemas.Correction) *Past {
	p := &Past{topology: t, models: models(t)}
	last := map[string]schemas.Incident{}
	for _, i := range incidents {
		if l, ok := last[i.ID]; !ok || i.Revision >= l.Revision {
			last[i.ID] = i
		}
	}
	judged := map[string]schemas.Correction{}
	for _, c := range corrections {
		if c.Revision >= judged[c.Incident].Revision {
			judged[c.Incident] = c
		}
	}
	var all []*window
	for _, i := range last {
		c := &Case{Incident: i}
		if v, ok := judged[i.ID]; ok && v.Judges() {
			c.Correction = &v
		}
		switch {
		case i.MergedInto != "" || len(i.Events) == 0:
			continue
		case c.Correction == nil && (i.Closed == nil || i.RootCause.Fault == schemas.FaultUnknown):
			continue
		}
		all = append(all, &window{from: i.Opened.Add(-before), to: ended(&i).Add(after), cases: []*Case{c}})
	}
	slices.SortFunc(all, func(a, b *window) int {
		return cmp.Or(a.from.Compare(b.from), cmp.Compare(a.cases[0].Incident.ID, b.cases[0].Incident.ID))
	})
	for _, w := range all {
		if n := len(p.windows); n > 0 && !w.from.After(p.windows[n-1].to) {
			l := p.windows[n-1]
			l.to, l.cases = later(l.to, w.to), append(l.cases, w.cases...)
			continue
		}
		p.windows = append(p.windows, w)
	}
	return p
}

// ended is when an incident heard of its last sign, as far as it says so: a condition
// without an end is waited for long after.
func ended(i *schemas.Incident) time.Time {
	last := 0.0
	for _, l := range i.Lanes {
		for _, o := range l.Offsets {
			last = max(last, o)
		}
	}
	end := later(i.Updated, i.Opened)
	if at := i.Opened.Add(time.Duration(last * float64(time.Second))); len(i.Lanes) > 0 && at.Before(end) {
		return at
	}
	return end
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// models finds the model of each resource; a part without one has that of its whole.
func models(t *schemas.Topology) map[string]string {
	parent, own := map[string]string{}, map[string]string{}
	for _, r := range t.Resources {
		parent[r.ID], own[r.ID] = r.Parent, r.Attrs.Get(schemas.AttrModel)
	}
	out := map[string]string{}
	for id := range own {
		for at, n := id, 0; at != "" && n < 64; at, n = parent[at], n+1 { // an inventory may have circles
			if own[at] != "" {
				out[id] = own[at]
				break
			}
		}
	}
	return out
}

// Cases counts the cases, and those of them that a person has judged.
func (p *Past) Cases() (all, judged int) {
	for _, w := range p.windows {
		for _, c := range w.cases {
			all++
			if c.Judged() {
				judged++
			}
		}
	}
	return all, judged
}

// Span returns from when to when events are wanted; zero without a case.
func (p *Past) Span() (from, to time.Time) {
	if len(p.windows) == 0 {
		return from, to
	}
	return p.windows[0].from, p.windows[len(p.windows)-1].to
}

// Add takes in an event, in the order of arrival; one outside of every window is
// dropped.
func (p *Past) Add(ev *schemas.Event) {
	if w := p.at(observed(ev)); w != nil {
		w.events = append(w.events, *ev)
		p.Events++
	}
}

func (p *Past) wants(ev *schemas.Event) bool { return p.at(observed(ev)) != nil }

// at returns the window that a time is in, or nil.
func (p *Past) at(t time.Time) *window {
	k, _ := slices.BinarySearchFunc(p.windows, t, func(w *window, t time.Time) int { return w.to.Compare(t) })
	if k == len(p.windows) || t.Before(p.windows[k].from) {
		return nil
	}
	return p.windows[k]
}

// outcome is what a replay made of a case.
type outcome struct {
	c     *Case
	found bool // an event of it was there to be replayed
	hindsight.Case
	said []schemas.Cause // what was named at the end, with alternatives
	seen []sighting
}

// sighting is how a class of signs of the true fault came.
type sighting struct {
	fault, class int
	correlator.Observed
}

// replay runs all windows by a model, and judges the cases that pick lets through.
func (p *Past) replay(ctx context.Context, m *propagation.Model, pick func(*Case) bool) ([]outcome, error) {
	var out []outcome
	for _, w := range p.windows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(w.cases, pick) {
			out = append(out, slices.DeleteFunc(p.run(w, m), func(o outcome) bool { return !pick(o.c) })...)
		}
	}
	return out, nil
}

func every(*Case) bool { return true }

// run replays one window.
func (p *Past) run(w *window, m *propagation.Model) []outcome {
	e := correlator.NewEngine(m, p.topology, nil)
	lines := map[string][]schemas.Incident{} // of each incident, without what is not needed
	final := map[string]schemas.Incident{}
	take := func() {
		for _, i := range e.Drain() {
			final[i.ID] = i
			lines[i.ID] = append(lines[i.ID], schemas.Incident{At: i.At, RootCause: i.RootCause})
		}
	}
	first := map[string]time.Time{} // when each event was observed
	for i := range w.events {
		ev := &w.events[i]
		if _, ok := first[ev.ID]; !ok {
			first[ev.ID] = observed(ev)
		}
	}
	type due struct {
		at  time.Time
		out *outcome
	}
	outs := make([]outcome, len(w.cases))
	var ends []due
	for k, c := range w.cases {
		outs[k] = outcome{c: c, Case: hindsight.Case{Took: -1}}
		var end time.Time
		for _, id := range c.Incident.Events {
			if at, ok := first[id]; ok {
				outs[k].found = true
				end = later(end, at)
			}
		}
		if outs[k].found { // what waits for something to come back is decided by then
			ends = append(ends, due{end.Add(2 * time.Minute), &outs[k]})
		}
	}
	slices.SortStableFunc(ends, func(a, b due) int { return a.at.Compare(b.at) })
	settle := func(until time.Time) {
		for len(ends) > 0 && !ends[0].at.After(until) {
			e.Advance(ends[0].at)
			e.Flush()
			take()
			p.judge(ends[0].out, e, m, final, lines, first)
			ends = ends[1:]
		}
	}
	for i := range w.events {
		settle(observed(&w.events[i]))
		e.Add(&w.events[i])
		take()
	}
	if len(ends) > 0 {
		settle(ends[len(ends)-1].at)
	}
	return outs
}

func observed(ev *schemas.Event) time.Time {
	if ev.Observed.IsZero() {
		return ev.Time
	}
	return ev.Observed
}

// judge holds what the engine says now against what the cause was.
func (p *Past) judge(
	o *outcome, e *correlator.Engine, m *propagation.Model, final map[string]schemas.Incident, lines map[string][]schemas.Incident,
	first map[string]time.Time,
) {
	mine := map[string]bool{}
	var began time.Time
	for _, id := range o.c.Incident.Events {
		mine[id] = true
		if at, ok := first[id]; ok && (began.IsZero() || at.Before(began)) {
			began = at
		}
	}
	var best *schemas.Incident
	most := 0
	for _, i := range final {
		if i.MergedInto != "" {
			continue
		}
		n := 0
		for _, id := range i.Events {
			if mine[id] {
				n++
			}
		}
		if n > most || n == most && n > 0 && i.ID < best.ID {
			best, most = &i, n
		}
	}
	resource, fault := o.c.Truth()
	o.Fault = fault
	o.Named = best != nil && best.RootCause.Fault != schemas.FaultUnknown
	if o.Named {
		o.Confidence = best.RootCause.Confidence
		o.said = append([]schemas.Cause{best.RootCause}, best.Alternatives...)
	}
	o.Right = o.Named && best.RootCause.Resource == resource
	if fault == "" {
		o.Right = !o.Named
		return
	}
	if o.Right {
		l := lines[best.ID]
		k := len(l)
		for k > 0 && l[k-1].RootCause.Resource == resource && l[k-1].RootCause.Fault != schemas.FaultUnknown {
			k--
		}
		o.Took = max(0, l[k].At.Sub(began))
	}
	// Of faults that go by one name it was the one that shows most.
	shown := 0
	for f := range m.Faults {
		if m.Faults[f].Name != fault || m.Faults[f].Harmless {
			continue
		}
		seen, ok := e.Observed(resource, f)
		n := 0
		for _, s := range seen {
			n += s.Shown
		}
		if !ok || n <= shown {
			continue
		}
		shown, o.seen = n, nil
		for _, s := range seen {
			o.seen = append(o.seen, sighting{f, s.Class, s})
		}
	}
}

// folds is into how many parts the past is cut, each of which is judged by what was
// learned from the others.
const folds = 5

// fold is the part that a case belongs to: by the day on which it opened, so that what
// hangs together stays together, and what else is there makes no difference.
func (c *Case) fold() int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.Incident.Opened.UTC().Format(time.DateOnly)))
	return int(h.Sum32() % folds)
}

// Report holds the correlator against a site's past.
type Report struct {
	Cases      int `json:"cases"`      // incidents that closed, or that somebody has judged
	Judged     int `json:"judged"`     // of them, by a person
	NoEvents   int `json:"no_events"`  // of the judged, those of whose events none is kept
	Events     int `json:"events"`     // that were replayed
	Parameters any `json:"parameters"` // where the learned ones come from: a version, a file, or held_out
	// Records is by the numbers of the fault records alone, Learned with what was
	// learned.
	Records hindsight.Summary  `json:"records"`
	Learned *hindsight.Summary `json:"learned"`
}

// HeldOut says that each part of the past was judged by what was learned from the
// others, so that no case speaks for itself.
const HeldOut = "held_out"

// errNothing is returned where nobody has judged an incident whose events are kept.
var errNothing = errors.New("no judged incident has events to replay: say on incidents whether their cause was right, and keep their events")

// Backtest replays the past twice, by the fault records alone and with learned
// parameters: those given, or where they are nil, those learned from the other parts of
// the past, with the edges that had been accepted before an incident opened.
func (p *Past) Backtest(ctx context.Context, m *propagation.Model, given *Parameters) (Report, error) {
	r := Report{Events: p.Events, Parameters: HeldOut}
	r.Cases, r.Judged = p.Cases()
	base, err := p.replay(ctx, m, every)
	if err != nil {
		return r, err
	}
	cases := judgedOf(base)
	r.NoEvents = r.Judged - len(cases)
	if len(cases) == 0 {
		return r, errNothing
	}
	r.Records = hindsight.Sum(cases)
	var learned []outcome
	if given != nil {
		if learned, err = p.replay(ctx, Apply(m, given), every); err != nil {
			return r, err
		}
	}
	for f := 0; given == nil && f < folds; f++ {
		others := slices.DeleteFunc(slices.Clone(base), func(o outcome) bool { return !o.found || o.c.fold() == f })
		taught, err := p.learn(ctx, m, others)
		if err != nil {
			return r, err
		}
		for n := range len(p.stood) + 1 {
			if taught.Edges = nil; n > 0 {
				taught.Edges = p.stood[n-1].Edges
			}
			part, err := p.replay(ctx, Apply(m, taught), func(c *Case) bool { return c.Judged() && c.fold() == f && p.accepted(c) == n })
			if err != nil {
				return r, err
			}
			learned = append(learned, part...)
		}
	}
	s := hindsight.Sum(judgedOf(learned))
	r.Learned = &s
	return r, nil
}

func judgedOf(outs []outcome) []hindsight.Case {
	var out []hindsight.Case
	for i := range outs {
		if outs[i].found && outs[i].c.Judged() {
			out = append(out, outs[i].Case)
		}
	}
	return out
}

// Learn returns what the past says about the parameters of a model.
func (p *Past) Learn(ctx context.Context, m *propagation.Model) (*Parameters, error) {
	base, err := p.replay(ctx, m, every)
	if err != nil {
		return nil, err
	}
	base = slices.DeleteFunc(base, func(o outcome) bool { return !o.found })
	if len(base) == 0 {
		return nil, fmt.Errorf("learn parameters: %w", errNothing)
	}
	return p.learn(ctx, m, base)
}
