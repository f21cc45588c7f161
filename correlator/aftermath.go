package correlator

import (
	"slices"
	"time"

	"auspex/schemas/faults/propagation"
)

// aftermath is what may still come of a fault whose incident is closed: a job notices after half an
// hour that a peer was lost, which has long been back.
type aftermath struct {
	kind     int // of the sign
	job      node
	from, to time.Time
}

// remember notes which jobs may still stop of the cause of an incident that closes, and of the states that it brought about.
func (e *ledger) remember(inc *incident) {
	if inc.root == nil {
		return
	}
	for _, h := range append([]*suspect{inc.root}, inc.root.folded...) {
		if h.fault.Window != propagation.NoWindow || h.fault.Harmless {
			continue
		}
		began := e.onset(h)
		for c := range h.fault.Classes {
			cl := &h.fault.Classes[c]
			last := began
			if h.again != 0 {
				last = later(began, h.again.time())
			}
			if last = last.Add(cl.Within); !cl.Jobs || !last.After(e.now) {
				continue
			}
			for _, job := range e.jobsOn(h.node, cl.Way, began) {
				e.aftermaths = append(e.aftermaths, aftermath{cl.Sign, job, began, last})
			}
		}
	}
}

// belated says whether all that speaks for a cause which was not told yet may be of faults whose incidents are
// closed: then it is nothing new. What an open incident holds stays with it.
func (e *ledger) belated(h *suspect, signs []*sign) bool {
	if len(e.aftermaths) == 0 || h.inc != nil {
		return false
	}
	for _, s := range signs {
		if s.inc != nil || !slices.ContainsFunc(e.aftermaths, func(a aftermath) bool {
			return a.kind == s.kind && a.job == s.node && !s.at.Before(a.from) && !s.at.After(a.to)
		}) {
			return false
		}
	}
	return true
}
