package correlator

import (
	"math"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas/faults/propagation"
)

// Faults of their own come one by one. Several alike at once are more likely pieces of
// something that the records do not know, and none of them may say that it is sure. Of m
// others that began within crowdSpan of one, with mean(m) expected by chance,
//
//	by chance:  (1-t) mean^m/m! exp(-mean) + t 2^-(m+1)
//	in a crowd: 1/((m+1)(m+2))
//
// where t is the share of failures that take an equal along (Together, the beta factor
// of IEC 61508-6), and a crowd may be of any size, small ones rather: that is the
// prior of Laplace's rule for the size of what was never seen before. A fault alone has
// the odds solver.Certainty against the unknown; the ratio of the two, against that of
// m = 0, is what the others change.
const (
	crowdSpan = unknownNear
	// Two alike are a pair: servers that work together, the two ends of a trouble. Neither
	// is doubted, and control may mend both.
	crowdLeast = 2
	crowdMost  = 4 // of more, nothing is judged again: they say the same
	// A part fails less than once a year, a job less than once a day: the mean of chance
	// is overstated, and a crowd is doubted rather than seen.
	partFails = 365 * 24 * time.Hour
	jobFails  = 24 * time.Hour
)

// alike is how likely a fault is one of its own with m others like it near it, against
// what it would be without them.
func alike(m int, mean, together float64) float64 {
	if m == 0 {
		return 1
	}
	chance := func(m int) float64 {
		lg, _ := math.Lgamma(float64(m + 1))
		return (1-together)*math.Exp(float64(m)*math.Log(mean)-lg-mean) + together*math.Pow(2, -float64(m+1))
	}
	crowd := func(m int) float64 { return 1 / (float64(m+1) * float64(m+2)) }
	odds := crowd(m) / crowd(0) * chance(0) / chance(m)
	return 1 / (solver.Certainty + (1-solver.Certainty)*max(1, odds))
}

// crowd counts the other parts on which incidents of the same fault began near one. A part
// whose incident was closed and came again is one.
func (e *Engine) crowd(inc *incident) int {
	e.hostsOf.reset()
	for _, o := range e.alike[inc.root.fault.Name] {
		if e.beside(inc, o) {
			e.hostsOf.add(o.root.node)
		}
	}
	return e.hostsOf.n
}

// beside says whether two incidents are of the same fault on other parts of a site, and began near one another.
func (e *Engine) beside(a, b *incident) bool {
	return a != b && a.opened.Sub(b.opened).Abs() <= crowdSpan && !a.gone && !b.gone && a.root != nil && b.root != nil &&
		a.root.fault.Name == b.root.fault.Name && a.root.node != b.root.node && e.site(a) == e.site(b)
}

// site returns where the root of an incident is; that of a job is where it was heard of.
func (e *Engine) site(inc *incident) node {
	if e.g.kindOf(inc.root.node) != propagation.KindWorkload {
		return e.g.top(inc.root.node)
	}
	for _, s := range inc.signs {
		if d := e.deviceOf(s); d != none {
			return e.g.top(d)
		}
	}
	return none
}

// crowded notes an incident among those of its fault, and has those judged again that it stands beside.
func (e *Engine) crowded(inc *incident) {
	name := inc.root.fault.Name
	list := slices.DeleteFunc(e.alike[name], func(o *incident) bool {
		return o.gone || o.root == nil || o.root.fault.Name != name || !o.closed.IsZero() && e.now.Sub(o.opened) > 2*crowdSpan
	})
	if !slices.Contains(list, inc) {
		list = append(list, inc)
	}
	e.alike[name] = list
	if e.pieces(inc, list) {
		return
	}
	for _, o := range list {
		if o.closed.IsZero() && !o.unsure && o.crowd < crowdMost && e.beside(o, inc) && o.crowd != e.crowd(o) {
			o.unsure = true
			e.change(o)
		}
	}
}

// ownFault is how likely an incident is a fault of its own, given those that began beside it.
func (e *Engine) ownFault(inc *incident) float64 {
	if inc.crowd = e.crowd(inc); inc.crowd < crowdLeast {
		return 1
	}
	mean := 0.0
	for _, kind := range inc.root.fault.Kinds {
		every := partFails
		if kind == propagation.KindWorkload {
			every = jobFails
		}
		mean += float64(max(1, e.g.count(kind, e.site(inc)))) * float64(2*crowdSpan) / float64(every)
	}
	return alike(inc.crowd, mean, inc.root.fault.Together)
}
