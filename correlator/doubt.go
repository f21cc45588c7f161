package correlator

import (
	"container/heap"
	"slices"

	"auspex/schemas/faults/propagation"
)

// A cause is told once it is likelier than none, so that at even odds the next report may turn it
// either way; and most of what turns it is silence, which is no evidence while what would break it is under way.
// An incident whose cause no longer pays, and whose signs go on and have no other cause, is in doubt: it stays
// open and says how likely it still is. It is taken back once its signs have ended or something explains them,
// or when what may be late has had its time. For as long as it would have stayed open, what was taken back or
// merged goes on if its cause comes back: an operator hears of one cause as one incident.

// causeKey is a cause as an operator was told of it.
type causeKey struct{ resource, fault string }

// doubtful says whether an incident is in doubt.
func (inc *incident) doubtful() bool { return !inc.doubted.IsZero() }

// doubt keeps an incident that nothing was decided of any more, and says whether it did. It
// holds the signs of before still.
func (e *ledger) doubt(inc *incident) bool {
	if inc.told == (told{}) || inc.outbreak != nil || !inc.repaired.IsZero() || inc.root == nil || inc.root.dead ||
		inc.root.fault.Window != propagation.NoWindow || inc.doubtful() && e.now.Sub(inc.doubted) >= lateRead {
		return false
	}
	signs := make([]*sign, 0, len(inc.signs))
	reports, on := 0, false
	for _, s := range inc.signs {
		if s.owner == nil && s.excused == nil && s.inc == nil && !s.gone && classOf(s, inc.root) >= 0 {
			signs = append(signs, s)
			reports += s.count
			on = on || s.said && (s.up || !s.stateful)
		}
	}
	if !on || 2*reports <= inc.reports { // most of it goes elsewhere
		return false
	}
	if !inc.doubtful() {
		inc.doubted = e.now
		heap.Push(&e.timers, timer{stampOf(e.now.Add(lateRead)), signs[0]})
	}
	inc.unsure = inc.unsure || e.unlike(inc, inc.root, signs)
	inc.hold(signs)
	for _, s := range signs {
		s.inc = inc
	}
	inc.root.inc = inc
	e.warmUp(inc)
	e.change(inc)
	return true
}

// lend has the cause of an incident in doubt own its signs while it is asked how likely it is.
func (inc *incident) lend() (back func()) {
	var lent []*sign
	if inc.doubtful() {
		for _, s := range inc.signs {
			if s.owner == nil {
				s.owner, lent = inc.root, append(lent, s)
			}
		}
	}
	return func() {
		for _, s := range lent {
			s.owner = nil
		}
	}
}

// keepWarm remembers an incident that was taken back, or merged into another.
func (e *ledger) keepWarm(inc, into *incident) {
	if inc.told == (told{}) || inc.outbreak != nil || !inc.repaired.IsZero() {
		e.cool(inc)
		return
	}
	inc.into = into
	e.warmUp(inc)
}

// warmUp notes as what causes an incident could go on.
func (e *ledger) warmUp(inc *incident) {
	e.cool(inc)
	inc.withdrawn = e.now
	resource, fault := e.cause(inc)
	inc.warmAs = append(inc.warmAs[:0], causeKey{inc.told.resource, inc.told.fault}, causeKey{resource, fault})
	for _, r := range inc.oneOf { // the root among parts that nothing told apart
		inc.warmAs = append(inc.warmAs, causeKey{r, inc.told.fault})
	}
	for _, k := range inc.warmAs {
		e.warm[k] = inc
	}
}

// goesOn returns the incident of a cause that goes on: one in doubt, which other signs spoke for so far, or one that was
// taken back or merged and is opened again while it is warm. It returns nil where there is none; what comes after a repair is new.
func (e *ledger) goesOn(cause causeKey, took []*incident) *incident {
	inc := e.warm[cause]
	if inc == nil || e.cold(inc) || slices.Contains(took, inc) {
		return nil
	}
	e.cool(inc)
	if inc.unsure = true; !inc.gone {
		for _, s := range inc.signs {
			s.inc = nil
		}
		if inc.root.inc == inc {
			inc.root.inc = nil
		}
		return inc
	}
	if inc.told.gone {
		inc.reopened++
	}
	inc.gone, inc.mergedInto, inc.into = false, "", nil
	e.open = append(e.open, inc)
	return inc
}

// cold says whether what comes of the cause of an incident is new.
func (e *ledger) cold(inc *incident) bool {
	return !inc.repaired.IsZero() || !inc.closed.IsZero() || e.now.Sub(inc.withdrawn) > e.wait.Cleared || inc.into != nil && (!inc.into.repaired.IsZero() || !inc.into.closed.IsZero())
}

// cool forgets as what causes an incident could go on.
func (e *ledger) cool(inc *incident) {
	for _, k := range inc.warmAs {
		if e.warm[k] == inc {
			delete(e.warm, k)
		}
	}
	inc.warmAs = inc.warmAs[:0]
}
