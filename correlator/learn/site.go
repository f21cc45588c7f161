package learn

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"auspex/correlator"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Relations of the inventory over which trouble is looked for, in the order of
// [Found.Relations].
var Relations = []string{"self", "supplier", "supplied", "network", "nvlink", "job"}

const (
	relSupplier = iota // what powers or cools the place
	relSupplied        // what it powers or cools
	relNetwork
	relNVLink
	relJob // of a workload: what it runs on
)

// Proposal is an edge of a site, for a person to accept.
type Proposal = schemas.EdgeProposal

const (
	leastShare = 0.05 // of an edge is named with its relation
	leastTimes = 3    // once is chance, twice may be
)

// Site collects what has been seen on a site.
type Site struct {
	device map[string]string
	number map[string]int32 // of places
	places Places
	kinds  map[string]int32
	names  []string
	events []Occurrence
	heard  []heard // by event
	origin time.Time
	last   time.Time
	model  *propagation.Model
	ways   *correlator.Ways
}

// heard is which sign of which part an event is.
type heard struct {
	id, part, typ, code string
	sign                int
}

// NewSite lays out an inventory: a place is a server, a switch or a resource that is
// part of neither. The model says which faults could be the causes.
func NewSite(t *schemas.Topology, m *propagation.Model) *Site {
	s := &Site{
		device: map[string]string{}, number: map[string]int32{}, kinds: map[string]int32{}, model: m, ways: correlator.NewWays(m, t),
	}
	parent, kind := map[string]string{}, map[string]string{}
	children := map[string][]string{}
	for _, r := range t.Resources {
		parent[r.ID], kind[r.ID] = r.Parent, r.Kind
		children[r.Parent] = append(children[r.Parent], r.ID)
	}
	for _, r := range t.Resources {
		s.device[r.ID] = r.ID
		for id, n := r.ID, 0; id != "" && n < maxDepth; id, n = parent[id], n+1 {
			if k := kind[id]; k == schemas.KindServer || k == schemas.KindSwitch {
				s.device[r.ID] = id
				break
			}
		}
	}
	// within visits the devices in a place such as a rack, else the place itself.
	var within func(id string, depth int, visit func(string))
	within = func(id string, depth int, visit func(string)) {
		if d := s.device[id]; kind[d] == schemas.KindServer || kind[d] == schemas.KindSwitch || len(children[id]) == 0 {
			visit(cmp.Or(d, id))
			return
		}
		visit(id)
		for _, c := range children[id] {
			if depth < maxDepth {
				within(c, depth+1, visit)
			}
		}
	}
	for _, l := range t.Links {
		switch l.Kind {
		case schemas.LinkPowers, schemas.LinkCools:
			from := s.place(l.From)
			within(l.To, 0, func(to string) {
				s.join(s.place(to), relSupplier, from)
				s.join(from, relSupplied, s.place(to))
			})
		case schemas.LinkNetwork, schemas.LinkNVLink:
			r := relNetwork
			if l.Kind == schemas.LinkNVLink {
				r = relNVLink
			}
			a, b := s.place(l.From), s.place(l.To)
			s.join(a, r, b)
			s.join(b, r, a)
		}
	}
	for _, w := range t.Workloads {
		job := s.place(w.ID)
		for _, r := range w.Resources {
			s.join(job, relJob, s.place(r))
		}
	}
	for _, p := range s.places {
		for r := range p {
			slices.Sort(p[r])
			p[r] = slices.Compact(p[r])
		}
	}
	return s
}

// maxDepth is how deep an inventory may be; it may run in circles.
const maxDepth = 32

func (s *Site) place(resource string) int32 {
	id := cmp.Or(s.device[resource], resource)
	n, ok := s.number[id]
	if !ok {
		n = int32(len(s.places))
		s.number[id] = n
		s.places = append(s.places, make([][]int32, len(Relations)-1))
	}
	return n
}

func (s *Site) join(to int32, relation int, from int32) {
	if to != from {
		s.places[to][relation] = append(s.places[to][relation], from)
	}
}

// Add takes in an event that says that something is wrong; all-clears and
// information are left out.
func (s *Site) Add(e *schemas.Event) {
	if e.State == schemas.StateCleared || e.Severity.Rank() < schemas.SeverityWarning.Rank() {
		return
	}
	at := e.Observed
	if at.IsZero() {
		at = e.Time
	}
	if s.origin.IsZero() {
		s.origin = at
	}
	s.last = later(s.last, at)
	h := heard{id: e.ID, typ: e.Type}
	switch e.Type {
	case schemas.EventGPUXID, schemas.EventNVSwitchSXid, schemas.EventBMCSEL:
		h.code = e.Code
	}
	h.sign, h.part = s.ways.Sign(e, at)
	name := strings.TrimSuffix(h.typ+"/"+h.code, "/")
	k, ok := s.kinds[name]
	if !ok {
		k = int32(len(s.names))
		s.kinds[name] = k
		s.names = append(s.names, name)
	}
	s.events = append(s.events, Occurrence{k, s.place(e.Resource), at.Sub(s.origin).Seconds()})
	s.heard = append(s.heard, h)
}

// Events is how many events were taken in.
func (s *Site) Events() int { return len(s.events) }

// mostPairs bounds what is looked at in all: pairs of an event and an earlier one that may
// have brought it about, each of which takes 16 bytes and a tenth of a microsecond a round.
const mostPairs = 1 << 22

// bound keeps the newest events, as many as have so many pairs, and returns how many are left out.
func (s *Site) bound(most int) (dropped int) {
	order := make([]int, len(s.events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.events[a].At, s.events[b].At) })
	span := kernelSpan * scales[len(scales)-1]
	before, pairs := make([][]float64, len(s.places)), make([]int, len(order)) // times by place; pairs of each event
	for i, n := range order {
		e := &s.events[n]
		visit := func(place int32) {
			from, _ := slices.BinarySearch(before[place], e.At-span)
			pairs[i] += len(before[place]) - from
		}
		visit(e.Place)
		for _, list := range s.places[e.Place] {
			for _, p := range list {
				visit(p)
			}
		}
		before[e.Place] = append(before[e.Place], e.At)
	}
	for i, sum := len(order)-1, 0; i >= 0; i-- {
		if sum += pairs[i]; sum > most {
			dropped = i + 1
			break
		}
	}
	if dropped == 0 {
		return 0
	}
	events, all, from := make([]Occurrence, 0, len(order)-dropped), make([]heard, 0, len(order)-dropped), 0.0
	for k, n := range order[dropped:] {
		e := s.events[n]
		if k == 0 {
			from = e.At
		}
		e.At -= from
		events, all = append(events, e), append(all, s.heard[n])
	}
	s.events, s.heard = events, all
	s.origin = s.origin.Add(time.Duration(from * float64(time.Second)))
	return dropped
}

// Propose returns the edges between the kinds of events that the site has seen, the
// surest first. Only the end of ctx is an error.
func (s *Site) Propose(ctx context.Context) ([]Proposal, error) {
	found, err := Edges(ctx, s.events, len(s.names), s.places)
	if err != nil {
		return nil, err
	}
	out := []Proposal{}
	for _, e := range found.Edges {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if e.Occasions < leastTimes {
			continue
		}
		p := Proposal{
			ID: proposalID(s.names[e.Cause], s.names[e.Effect]), Cause: s.names[e.Cause], Effect: s.names[e.Effect],
			LagS: e.Lag, Share: e.Share, Effects: e.Effects, Times: e.Occasions, Gain: e.Gain,
			Events: len(s.events), From: s.origin, To: s.last, State: schemas.EdgeOpen,
		}
		for r, share := range e.Over {
			if share >= leastShare {
				p.Over = append(p.Over, schemas.EdgeShare{Relation: Relations[r], Share: share})
			}
		}
		slices.SortStableFunc(p.Over, func(a, b schemas.EdgeShare) int { return cmp.Compare(b.Share, a.Share) })
		s.ground(&p, e)
		out = append(out, p)
	}
	return out, nil
}
