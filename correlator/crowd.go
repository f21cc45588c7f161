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
func (e *ledger) crowd(inc *incident) int {
	e.hostsOf.reset()
	if p := e.alike[inc.root.fault.Name]; p != nil {
		site := unset // once it is asked for: most stand alone
		for _, o := range p.near(inc) {
			if p.forgotten(o) || !inc.like(o) {
				continue
			}
			if site == unset {
				site = e.site(inc)
			}
			if e.site(o) == site {
				e.hostsOf.add(o.root.node)
			}
		}
	}
	return e.hostsOf.n
}

// peers are the incidents of a fault that are open, or were a moment ago, by when they began:
// who began beside whom is found without a look at the others of a fleet.
type peers struct {
	list  []*incident
	last  int       // place that was given last
	turn  uint64    // when they were last gone over, in Engine.crowds
	at    time.Time // the same, in time of the engine
	limit int       // length from which on those that are over are dropped
}

// turn is a place among peers, and when it was left.
type turn struct {
	nth  int
	left uint64
}

// from returns where those begin that began at t or later.
func (p *peers) from(t time.Time) int {
	i, _ := slices.BinarySearchFunc(p.list, t, func(o *incident, t time.Time) int { return o.opened.Compare(t) })
	return i
}

func (p *peers) insert(inc *incident) { p.list = slices.Insert(p.list, p.from(inc.opened), inc) }

func (p *peers) remove(inc *incident) {
	for i := p.from(inc.opened); i < len(p.list); i++ {
		if p.list[i] == inc {
			p.list = slices.Delete(p.list, i, i+1)
			return
		}
	}
}

// near returns those that began within crowdSpan of an incident.
func (p *peers) near(inc *incident) []*incident {
	from, to := p.from(inc.opened.Add(-crowdSpan)), p.from(inc.opened.Add(crowdSpan+1))
	return p.list[from:to]
}

// forgotten says whether an incident had been closed for long when its peers were last gone over.
func (p *peers) forgotten(o *incident) bool {
	return !o.closed.IsZero() && o.ended < p.turn && p.at.Sub(o.opened) > 2*crowdSpan
}

// join gives an incident its place among peers: that which it had, unless they were gone over
// while it was of another fault.
func (p *peers) join(inc *incident) {
	was := turn{inc.nth, inc.left}
	if inc.peers != p {
		if inc.peers != nil {
			inc.peers.remove(inc)
			if inc.turns == nil {
				inc.turns = map[*peers]turn{}
			}
			inc.turns[inc.peers] = was
		}
		was = inc.turns[p]
		p.insert(inc)
	}
	if was.nth == 0 || was.left != 0 && p.turn >= was.left {
		p.last++
		was.nth = p.last
	}
	inc.peers, inc.nth, inc.left = p, was.nth, 0
}

// tidy drops those that are over, once they are as many as the others.
func (p *peers) tidy() {
	if len(p.list) < p.limit {
		return
	}
	p.list = slices.DeleteFunc(p.list, func(o *incident) bool {
		over := o.gone || p.forgotten(o) || o.left != 0 && o.left <= p.turn
		if over {
			o.peers, o.turns, o.nth = nil, nil, 0
		}
		return over
	})
	p.limit = 2*len(p.list) + 16
}

// began moves the beginning of an incident.
func (inc *incident) began(t time.Time) {
	if inc.peers != nil {
		inc.peers.remove(inc)
	}
	if inc.opened = t; inc.peers != nil {
		inc.peers.insert(inc)
	}
}

// beside says whether two incidents are of the same fault on other parts of a site, and began near one another.
func (e *ledger) beside(a, b *incident) bool { return a.like(b) && e.site(a) == e.site(b) }

// like says whether they are, wherever they stand.
func (inc *incident) like(o *incident) bool {
	return inc != o && apart(inc.opened, o.opened).Abs() <= crowdSpan && !inc.gone && !o.gone && inc.root != nil && o.root != nil &&
		inc.root.fault.Name == o.root.fault.Name && inc.root.node != o.root.node
}

// site returns where the root of an incident is; that of a job is where it was heard of, or runs.
func (e *ledger) site(inc *incident) node {
	if e.g.kindOf(inc.root.node) != propagation.KindWorkload {
		return e.g.top(inc.root.node)
	}
	for _, s := range inc.signs {
		if d := e.deviceOf(s); d != none {
			return e.g.top(d)
		}
	}
	if w := e.g.jobs[inc.root.node]; w != nil && len(w.resources) > 0 {
		return e.g.top(w.resources[0])
	}
	return none
}

// crowded notes an incident among those of its fault, and has those judged again that it stands beside.
func (e *ledger) crowded(inc *incident) {
	name := inc.root.fault.Name
	p := e.alike[name]
	if p == nil {
		p = &peers{}
		e.alike[name] = p
	}
	e.crowds++
	p.join(inc)
	p.turn, p.at = e.crowds, e.now
	p.tidy()
	list := append(e.nearby[:0], p.near(inc)...)
	list = slices.DeleteFunc(list, p.forgotten)
	slices.SortFunc(list, func(a, b *incident) int { return a.nth - b.nth })
	e.nearby = list
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
func (e *ledger) ownFault(inc *incident) float64 {
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
