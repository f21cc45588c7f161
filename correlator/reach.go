package correlator

import (
	"slices"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Ways answers where the signs of events are and where ways through an inventory lead, as
// the engine has it. It is not safe for concurrent use.
type Ways struct{ e *Engine }

// NewWays returns the ways through an inventory, by a model.
func NewWays(m *propagation.Model, t *schemas.Topology) *Ways { return &Ways{NewEngine(m, t, nil)} }

// Sign returns which sign of the model an event is, -1 where it is none, and of which part.
func (w *Ways) Sign(ev *schemas.Event, at time.Time) (sign int, part string) {
	n := w.e.g.ensure(ev.Resource)
	if sign = w.e.model.Match(ev.Type, ev.Code, ev.Severity); sign >= 0 {
		n = w.e.place(ev, n, sign, at)
	}
	return sign, w.e.g.name[n]
}

// Kind returns the kind of a part; "" is none that the inventory knows.
func (w *Ways) Kind(part string) string { return w.e.g.kindOf(w.e.g.ensure(part)) }

// Count returns how many parts of a kind the inventory has, one at least.
func (w *Ways) Count(kind string) int {
	k, n := w.e.g.kinds.of(kind), 0
	for _, o := range w.e.g.kind {
		if o == k {
			n++
		}
	}
	return max(1, n)
}

// Suspects returns the parts of some kinds from which a way leads to a part.
func (w *Ways) Suspects(part string, way []propagation.Step, kinds []string) []string {
	of := make([]uint8, len(kinds))
	for i, k := range kinds {
		of[i] = w.e.g.kinds.of(k)
	}
	return w.names(w.e.walk.backward(w.e.g, w.e.g.ensure(part), w.e.g.compile(way), of))
}

// Reach returns the parts to which a way leads from one, at a time.
func (w *Ways) Reach(part string, way []propagation.Step, at time.Time) []string {
	return w.names(w.e.walk.forward(w.e.g, w.e.g.ensure(part), w.e.g.compile(way), at))
}

func (w *Ways) names(list []node) []string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = w.e.g.name[n]
	}
	slices.Sort(out)
	return slices.Compact(out)
}
