package correlator

import (
	"slices"

	"auspex/schemas"
)

// Restore brings a new engine to where another was: events that it had taken
// in, in their order, and the incidents that were open. The incidents keep
// their ids; one that no event speaks for any more is closed.
func (e *Engine) Restore(events []schemas.Event, open []schemas.Incident) {
	owner := map[string]*incident{}
	slices.SortStableFunc(open, func(a, b schemas.Incident) int { return a.Opened.Compare(b.Opened) })
	for i := range open {
		o := &open[i]
		e.incSeq++
		inc := &incident{
			id: o.ID, seq: e.incSeq, opened: o.Opened, heard: o.Updated, confidence: o.RootCause.Confidence,
			oneOf: o.RootCause.OneOf, alternatives: o.Alternatives, revision: o.Revision, emitted: o.At, where: e.g.ensure(o.RootCause.Resource),
		}
		inc.told = told{
			resource: o.RootCause.Resource, fault: o.RootCause.Fault, severity: o.Severity, facts: o.Count(),
			confidence: steps(o.RootCause.Confidence), equals: len(o.RootCause.OneOf),
		}
		e.open = append(e.open, inc)
		for _, id := range o.Events {
			owner[id] = inc
		}
	}
	e.restoring, e.owner = true, owner
	for i := range events {
		e.Add(&events[i])
	}
	e.restoring, e.owner = false, nil
	var all []*sign
	all = append(all, e.signs.all...)
	slices.SortFunc(all, func(a, b *sign) int { return a.seq - b.seq })
	for _, s := range all {
		votes := map[*incident]int{}
		for i := range s.facts {
			if inc := owner[s.facts[i].id]; inc != nil {
				votes[inc]++
				if s.inc == nil || votes[inc] > votes[s.inc] {
					s.inc = inc
				}
			}
		}
		if s.inc != nil {
			s.inc.gain(s)
		}
	}
	for _, inc := range e.open {
		e.resume(inc)
	}
	for _, inc := range e.open { // what was counted and is no longer known
		inc.before = max(0, inc.told.facts-inc.facts())
	}
	if !e.started && len(e.open) > 0 {
		e.started = true
		for _, inc := range e.open {
			if inc.heard.After(e.now) {
				e.now = inc.heard
			}
		}
		e.began, e.swept = e.now, e.now
	}
	for _, inc := range slices.Clone(e.open) {
		if len(inc.signs) == 0 {
			inc.closed = e.now
			e.open = slices.DeleteFunc(e.open, func(o *incident) bool { return o == inc })
			e.change(inc)
		}
	}
	stored := e.now
	for i := range open {
		if open[i].At.After(stored) {
			stored = open[i].At
		}
	}
	e.restoreWindows(stored)
	e.dirty = append(e.dirty, all...)
	e.resuming = true
	e.solve()
	e.resuming = false
	for _, inc := range e.open {
		now := e.state(inc)
		inc.told.signs, inc.told.mute, inc.told.window = len(inc.signs), now.mute, now.window
	}
	e.emitDue(false)
}

// Live returns the ids of the events that what the engine knows rests on.
func (e *Engine) Live() map[string]bool {
	live := map[string]bool{}
	keep := func(s *sign) {
		for i := range s.facts {
			live[s.facts[i].id] = true
		}
	}
	for _, s := range e.signs.all {
		keep(s)
	}
	for _, inc := range e.open {
		for _, s := range inc.signs {
			keep(s)
		}
	}
	return live
}
