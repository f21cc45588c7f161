package correlator

import (
	"math"
	"slices"
	"time"

	"auspex/correlator/solver"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// An outbreak is the same thing on several devices at once that no cause explains: a
// firmware that was rolled out, a storage that is out, a disease without a record. It
// consists of signs that nothing explains, and of faults that are hardly ones of their
// own since there are so many of them. One such sign is noise; for m+1 devices within
// crowdSpan, where mean are to be expected from how often it has come before, [alike]
// weighs chance against a common cause.
//
// It is told as one incident of fault unknown, at the smallest resource that holds the
// devices, and takes along what else they say that nothing explains. A cause that is
// found later takes its signs from it.
type outbreak struct {
	sure    float64      // that it is no chance
	kinds   map[int]int  // signs of a kind
	devices map[node]int // signs of a device
	next    time.Time    // when it is published again at the earliest
	placed  bool         // by a sign that is not of a job
	grew    time.Time    // when the last sign joined that is not of a job
	rose    time.Time    // when the last one joined of a kind that comes more often than it has
}

func newOutbreak() *outbreak {
	return &outbreak{kinds: map[int]int{}, devices: map[node]int{}}
}

// strayKey is a kind of sign of a site.
type strayKey struct {
	site node
	kind int
}

// stray is what is remembered of a kind of sign that nothing explained.
type stray struct {
	seen   int         // signs, ever
	recent []*sign     // of them, those of the last crowdSpan that are in no incident
	lately []time.Time // when those of the last crowdSpan came, wherever they are now
}

const (
	outbreakLeast = 3                // devices; two are a coincidence, or a pair that works together
	outbreakSure  = 0.9              // that they have a cause in common
	outbreakWait  = 30 * time.Second // in which a cause that the model knows shows more of itself
	outbreakSpan  = 2 * crowdSpan    // without news, after which what comes is another
	strayMost     = 128              // of a kind: a kind that comes so often is not rare
	// How often a device says something of a kind of which nothing is known yet: once in so long.
	// It is chosen by hand, weighs as much as an hour of watching, and a sign of the records
	// has its leak beside.
	strayEvery = 10 * 24 * time.Hour
)

// unexplained takes in a sign that nothing explains and that is in no incident.
func (e *ledger) unexplained(s *sign) {
	if s.inc != nil || s.owner != nil || s.excused != nil || !s.said || e.momentary(s) || s.stateful && !s.up {
		return
	}
	key := strayKey{e.g.top(e.deviceOf(s)), s.kind}
	o := e.strays[key]
	if o == nil {
		o = &stray{}
		e.strays[key] = o
	}
	o.recent = slices.DeleteFunc(o.recent, func(r *sign) bool {
		return r.gone || r.inc != nil || r.owner != nil || e.now.Sub(r.heard) > crowdSpan
	})
	if !slices.Contains(o.recent, s) {
		o.note(s.heard)
		if len(o.recent) == strayMost {
			o.recent = slices.Delete(o.recent, 0, strayMost/2)
		}
		o.recent = append(o.recent, s)
	}
	more := e.excessive(key, o)
	if inc := e.outbreakOf([]*sign{s}, nil, none); inc != nil && (more || inc.outbreak.devices[e.deviceOf(s)] > 0) {
		grew := inc.outbreak.grew
		e.spread(inc, s)
		switch {
		case more:
			inc.outbreak.rose = s.heard
		case s.heard.Sub(inc.outbreak.rose) > e.stalls: // what else its devices say goes on for ever
			inc.outbreak.grew = grew
		}
		e.gains(inc)
		return
	}
	var signs []*sign
	for _, r := range o.recent {
		if len(r.links) == 0 || e.now.Sub(r.raisedAt) >= outbreakWait {
			signs = append(signs, r)
		}
	}
	devices := e.devices(signs)
	if len(devices) < outbreakLeast {
		return
	}
	mean := e.ordinary(key, o.seen-len(o.recent)+1)
	if s.kind < len(e.model.Signs) { // so many parts show it by themselves in any case
		mean += e.model.Signs[s.kind].Leak * float64(e.g.count(e.g.kindOf(s.node), e.deviceOf(s)))
	}
	if sure := 1 - alike(len(devices)-1, mean, 0); sure >= outbreakSure {
		e.breakOut(signs, devices, sure)
	}
}

// note counts a sign of a kind.
func (o *stray) note(at time.Time) {
	o.seen++
	old := 0
	for old < len(o.lately) && at.Sub(o.lately[old]) > crowdSpan {
		old++
	}
	if o.lately = slices.Delete(o.lately, 0, old); len(o.lately) == strayMost {
		o.lately = slices.Delete(o.lately, 0, strayMost/2)
	}
	o.lately = append(o.lately, at)
}

// ordinary is how many signs of a kind are to be expected within crowdSpan, of which so many have come.
func (e *ledger) ordinary(key strayKey, seen int) float64 {
	before := float64(e.g.devices(key.site)) * float64(time.Hour) / float64(strayEvery)
	return (float64(seen) + before) * float64(crowdSpan) / float64(e.now.Sub(e.began)+time.Hour)
}

// excessive says whether a kind of sign comes more often than it has come: by the likelihood
// ratio of its rate now to its rate of old, both of a Poisson process. What only goes
// on as ever is what the site is like.
func (e *ledger) excessive(key strayKey, o *stray) bool {
	n := float64(len(o.lately))
	mean := e.ordinary(key, o.seen-len(o.lately)+1)
	return n > mean && n*math.Log(n/mean)-(n-mean) > -math.Log(1-outbreakSure)
}

// pieces makes one of an incident and those of the same fault that began beside it, where
// they are hardly faults of their own, and says whether it did: a part of the incident
// whose cause could show what they show, if there is one, or an outbreak.
func (e *ledger) pieces(inc *incident, list []*incident) bool {
	site := e.site(inc)
	for _, o := range slices.Backward(e.gathered()) { // the nearest in time
		if o == inc || e.siteOf(o) != site {
			continue
		}
		same := o.pieces[inc.root.fault.Name] && (o.root == nil || could(o, inc)) && inc.opened.Sub(o.news()).Abs() <= crowdSpan
		if same || o.outbreak != nil && e.inTime(o, inc) && e.follows(o, inc) {
			e.absorb(o, inc)
			return true
		}
	}
	sure := 1 - e.ownFault(inc)
	if inc.crowd < outbreakLeast-1 || sure < outbreakSure {
		return false
	}
	members := []*incident{inc}
	var signs []*sign
	for _, o := range list {
		if o.closed.IsZero() && e.beside(o, inc) {
			members = append(members, o)
		}
	}
	if whole := e.behind(members); whole != nil {
		for _, o := range members {
			e.absorb(whole, o)
		}
		return true
	}
	for _, o := range members {
		signs = append(signs, o.signs...)
	}
	devices := e.devices(signs)
	if len(devices) < 2 {
		return false
	}
	whole := e.breakOut(nil, devices, sure)
	if whole == nil {
		return false
	}
	for _, o := range members {
		e.absorb(whole, o)
	}
	return true
}

// behind returns the open incident whose cause could show what most of some others show.
func (e *ledger) behind(members []*incident) (best *incident) {
	most := 0
	for _, o := range e.open {
		if o.root == nil || !o.root.accepted || slices.Contains(members, o) || e.site(o) != e.site(members[0]) {
			continue
		}
		n := 0
		for _, m := range members {
			if could(o, m) {
				n++
			}
		}
		if n > most {
			best, most = o, n
		}
	}
	if 3*most < 2*len(members) {
		return nil
	}
	return best
}

// could says whether the cause of an incident could show something of another.
func could(o, other *incident) bool {
	return slices.ContainsFunc(other.signs, func(s *sign) bool {
		return slices.ContainsFunc(s.links, func(l link) bool { return l.to == o.root })
	})
}

// gather notes an incident that is an outbreak or has pieces: a fleet has few.
func (e *ledger) gather(inc *incident) {
	if inc.gathers {
		return
	}
	inc.gathers = true
	e.gatherings = append(e.gatherings, inc)
	slices.SortFunc(e.gatherings, func(a, b *incident) int { return a.seq - b.seq })
}

// gathered returns the open incidents that are outbreaks or have pieces, the oldest first.
func (e *ledger) gathered() []*incident {
	e.gatherings = slices.DeleteFunc(e.gatherings, func(o *incident) bool { return o.gone || !o.closed.IsZero() })
	return e.gatherings
}

// absorb makes an incident a piece of another.
func (e *ledger) absorb(whole, o *incident) {
	if whole.pieces == nil {
		whole.pieces = map[string]bool{}
		e.gather(whole)
	}
	whole.pieces[o.root.fault.Name] = true
	o.root.inc, o.root.within = nil, whole
	for _, s := range o.signs {
		e.spread(whole, s)
	}
	o.gone, o.signs, o.mergedInto = true, nil, whole.id
	e.keepWarm(o, whole)
	e.open = slices.DeleteFunc(e.open, func(x *incident) bool { return x == o })
	e.change(o)
}

// rejoin finds out which of the blamed were pieces of an incident of a store.
func (e *ledger) rejoin(signs []*sign, blamed []*suspect) {
	for _, s := range signs {
		h, o := s.owner, s.inc
		if h == nil || o == nil || h.within != nil || o.told.fault == h.fault.Name {
			continue
		}
		for _, root := range blamed {
			if root.fault.Name == o.told.fault && e.g.name[root.node] == o.told.resource {
				h.within, o.root = o, root
				if o.pieces == nil {
					o.pieces = map[string]bool{}
					e.gather(o)
				}
				o.pieces[h.fault.Name] = true
			}
		}
	}
}

// lead returns whose incident takes what one of the blamed explains: it may be no more than a piece of another's.
func (h *suspect) lead(blamed []*suspect) *suspect {
	if o := h.within; o != nil && o.root != nil && !o.gone && o.closed.IsZero() && slices.Contains(blamed, o.root) {
		return o.root
	}
	return h
}

// breakOut opens an outbreak, or finds the one that goes on there, where a resource holds
// all devices.
func (e *ledger) breakOut(signs []*sign, devices []node, sure float64) *incident {
	where := e.g.common(devices)
	if where == none {
		return nil
	}
	inc := e.outbreakOf(signs, devices, where)
	if inc == nil {
		inc = e.openIncident(signs)
		inc.where, inc.outbreak = where, newOutbreak()
		inc.outbreak.sure = min(sure, solver.Certainty)
		e.gather(inc)
	}
	for _, s := range signs {
		e.spread(inc, s)
	}
	inc.outbreak.rose = e.now
	e.gains(inc)
	return inc
}

// news is when an incident last took in what was not part of it: an outbreak that only goes on is not growing.
func (inc *incident) news() time.Time {
	if inc.outbreak == nil {
		return inc.heard
	}
	return inc.outbreak.grew
}

// siteOf returns the site of an incident that is an outbreak or has pieces.
func (e *ledger) siteOf(inc *incident) node {
	if inc.root == nil {
		return e.g.top(inc.where)
	}
	return e.site(inc)
}

// extent is how likely an outbreak is one of its own, of just what it is told at. Had it a
// larger resource, of N devices, then k of them would be found in one of n with
// probability (n/N)^(k-1); before that, each size is as likely. Where a fault began at
// the same time in the same site, it may as well be more of that one.
func (e *ledger) extent(inc *incident) float64 {
	n, others, k := float64(max(1, e.g.devices(inc.where))), 1.0, 0
	for d := range inc.outbreak.devices { // jobs may have stopped elsewhere, too
		if e.g.common([]node{inc.where, d}) == inc.where {
			k++
		}
	}
	for p, i := e.g.parent[inc.where], 0; p != none && i < maxChain*maxChain; p, i = e.g.parent[p], i+1 {
		others += math.Pow(n/float64(max(1, e.g.devices(p))), float64(max(0, k-1)))
	}
	p := inc.outbreak.sure / others
	if slices.ContainsFunc(e.open, func(o *incident) bool {
		return o.root != nil && o.opened.Sub(inc.opened).Abs() <= crowdSpan && e.site(o) == e.g.top(inc.where)
	}) {
		p /= 2
	}
	return p
}

// follows says whether an incident is a piece of an outbreak rather than a fault of its own: a job that
// failed on one of its devices, since nothing says less about its cause than a job that fails, or one of
// them that came into a state in which other faults bring it, too.
func (e *ledger) follows(whole, inc *incident) bool {
	hit := func(n node) bool {
		d := e.g.server(n)
		return d != none && whole.outbreak.devices[d] > 0
	}
	if inc.root.fault.Is != "" {
		return hit(inc.root.node)
	}
	if e.g.kindOf(inc.root.node) != propagation.KindWorkload {
		return false
	}
	for d := range whole.outbreak.devices { // the order does not matter
		if slices.ContainsFunc(e.g.jobsOf(d, inc.opened), func(w *workload) bool { return w.id == inc.root.node }) {
			return true
		}
	}
	return slices.ContainsFunc(inc.signs, func(s *sign) bool {
		return slices.ContainsFunc(s.facts, func(f fact) bool { return hit(f.about) })
	})
}

// inTime says whether an incident began when one that has pieces could have brought it about: a job
// may fail as long after as the records say of the faults that stop jobs.
func (e *ledger) inTime(whole, inc *incident) bool {
	d := inc.opened.Sub(whole.news())
	return d.Abs() <= crowdSpan || d > 0 && d <= e.stalls && e.g.kindOf(inc.root.node) == propagation.KindWorkload
}

// gains takes up the incidents that are pieces of an outbreak.
func (e *ledger) gains(whole *incident) {
	for _, o := range slices.Clone(e.open) {
		if o.root != nil && e.inTime(whole, o) && e.follows(whole, o) {
			e.absorb(whole, o)
		}
	}
}

// outbreakOf returns the open outbreak that has one of the kinds or devices of signs, or one of
// some devices, or stands at a resource.
func (e *ledger) outbreakOf(signs []*sign, devices []node, where node) *incident {
	for _, inc := range e.gathered() {
		if inc.outbreak == nil || e.now.Sub(inc.news()) > outbreakSpan {
			continue
		}
		if where != none && inc.where == where || slices.ContainsFunc(devices, func(d node) bool {
			return inc.outbreak.devices[d] > 0
		}) || slices.ContainsFunc(signs, func(s *sign) bool {
			d := e.deviceOf(s)
			return inc.outbreak.kinds[s.kind] > 0 && (d == none || e.g.top(d) == e.g.top(inc.where)) || inc.outbreak.devices[d] > 0
		}) {
			return inc
		}
	}
	return nil
}

// spread adds a sign to an incident, or to an outbreak.
func (e *ledger) spread(inc *incident, s *sign) {
	if inc.outbreak != nil {
		d := e.deviceOf(s)
		job := e.g.kindOf(s.node) == propagation.KindWorkload
		if w := e.g.common([]node{inc.where, d}); d != none && w != none && !(job && inc.outbreak.placed) {
			inc.where = w
		}
		inc.outbreak.kinds[s.kind]++
		if d != none {
			inc.outbreak.devices[d]++
		}
		if !job { // jobs stop long after, and wherever they run
			inc.outbreak.placed = true
			if s.heard.After(inc.outbreak.grew) {
				inc.outbreak.grew = s.heard
			}
		}
		inc.unsure = true
	}
	inc.gain(s)
	s.inc = inc
	if s.heard.After(inc.heard) {
		inc.heard = s.heard
	}
	if inc.opened.After(s.at) {
		inc.began(s.at)
	}
	e.change(inc)
}

// release takes from outbreaks what a cause explains now, adds what their pieces own, and
// returns those that have lost something.
func (e *ledger) release(signs []*sign) (left []*incident) {
	for _, s := range signs {
		h, o := s.owner, s.inc
		switch {
		case o != nil && o.outbreak != nil:
			if h != nil && h.within == nil && e.resuming {
				h.within = o
			}
			if h == nil || h.within == o {
				if s.heard.After(o.heard) {
					o.heard = s.heard
				}
				e.change(o)
				continue
			}
			o.outbreak.kinds[s.kind]--
			d := e.deviceOf(s)
			if o.outbreak.devices[d]--; o.outbreak.devices[d] <= 0 {
				delete(o.outbreak.devices, d)
			}
			o.lose(s)
			if s.inc = nil; !slices.Contains(left, o) {
				left = append(left, o)
			}
		case h != nil && h.within != nil && h.within.outbreak != nil && !h.within.gone && h.within.closed.IsZero():
			if o != nil {
				e.leave(o, s, h.within)
			}
			e.spread(h.within, s)
		}
	}
	return left
}

// leave takes a sign from an incident that becomes part of another one where nothing of it is left.
func (e *ledger) leave(o *incident, s *sign, to *incident) {
	o.lose(s)
	e.change(o)
	if len(o.signs) > 0 || o.gone {
		return
	}
	if o.root != nil && o.root.inc == o {
		o.root.inc = nil
	}
	o.gone, o.mergedInto = true, to.id
	e.keepWarm(o, to)
	e.open = slices.DeleteFunc(e.open, func(x *incident) bool { return x == o })
}

// dissolve ends the outbreaks of which too little is left.
func (e *ledger) dissolve(left []*incident, signs []*sign) {
	for _, o := range left {
		e.change(o)
		if len(o.outbreak.devices) >= outbreakLeast || len(o.pieces) > 0 && len(o.outbreak.devices) > 1 {
			continue
		}
		for _, s := range signs {
			if s.inc != nil && s.inc.outbreak == nil {
				o.mergedInto = s.inc.id
				break
			}
		}
		for _, s := range o.signs {
			s.inc = nil
		}
		o.gone = true
		o.hold(nil)
		e.open = slices.DeleteFunc(e.open, func(x *incident) bool { return x == o })
	}
}

// resume finds out which incidents of a store are outbreaks.
func (e *ledger) resume(inc *incident) {
	if n := len(e.devices(inc.signs)); inc.told.fault != schemas.FaultUnknown || n < 2 || n < outbreakLeast && e.g.server(inc.where) != none {
		return
	}
	signs := inc.signs
	inc.outbreak = newOutbreak()
	inc.hold(nil)
	inc.outbreak.sure = solver.Certainty
	e.gather(inc)
	for _, s := range signs {
		e.spread(inc, s)
	}
}

// devices returns those that show signs.
func (e *ledger) devices(signs []*sign) (out []node) {
	for _, s := range signs {
		if d := e.deviceOf(s); d != none && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// deviceOf returns the device of a sign, or none; that of a job is where it was heard of.
func (e *ledger) deviceOf(s *sign) node {
	if e.g.kindOf(s.node) != propagation.KindWorkload {
		return e.whole(s.node)
	}
	for i := range s.facts {
		if d := e.g.server(s.facts[i].about); d != none {
			return d
		}
	}
	return none
}

// common returns the smallest resource that holds all nodes, or none.
func (g *graph) common(nodes []node) node {
	holds := func(p, n node) bool {
		for i := 0; n != none && i < maxChain*maxChain; n, i = g.parent[n], i+1 {
			if n == p {
				return true
			}
		}
		return false
	}
	for p, i := nodes[0], 0; p != none && i < maxChain*maxChain; p, i = g.parent[p], i+1 {
		if !slices.ContainsFunc(nodes, func(n node) bool { return !holds(p, n) }) {
			return p
		}
	}
	return none
}
