// Package score holds incidents against the truth of a storm. The definitions:
//
// Final state: an incident's last line; one without events, or with merged_into,
// is gone. Match: a fault is judged by the final incident that holds most of its
// events. Top-1: that incident names the true resource, or one that is accepted,
// and a fault that is not unknown; top-3: or one of its first two alternatives
// does. Class: of the hits, those whose fault is accepted too. Grouping: B-cubed
// over events (Bagga and Baldwin 1998), where events of two faults do not count
// and a fault and its repeat are neutral to one another. False: an incident of a
// known fault of whose events less than half belong to a fault. Delays are from
// the first event of severity error or critical: to the first line of a known
// fault that holds an event of it, and until the root is right and stays so.
// Calibration: over final incidents of known faults, the confidence against
// whether the resource is right, in ten bins, and its Brier score. Incidents of kind
// unknown stand apart: one is right where most of it is of a fault that no record has,
// at a resource that is accepted.
package score

import (
	"math"
	"slices"
	"time"

	"auspex/internal/stormgen"
	"auspex/schemas"
)

// Sum adds up what was counted over storms.
type Sum struct {
	Faults, Scored, Hit, Hit3, Class, Detected int
	Unknown, UnknownHit, UnknownRoot           int // faults whose answer is unknown; told as unknown; at the right resource too
	Strange                                    int // final incidents of kind unknown
	strangeSaid, strangeRight                  float64
	b3p, b3r                                   float64
	covered, events                            int
	tp, pp, pairs                              int
	Merges, Splits, Touched                    int // Touched: final incidents with an event of a fault
	Incidents, False, Noise                    int
	detect, root                               []float64 // seconds
	bins                                       [10]bin
	brier                                      float64
	calibrated                                 int
	Lines                                      int
	CPU                                        time.Duration
	Rows                                       []Row
}

type bin struct{ n, said, right float64 }

// Row is what became of one fault.
type Row struct {
	ID                 string // of the fault in its storm
	Fault, Scenario    string
	Profile            string // of the storm
	Resource           string
	Named              string // the fault that its incident names; "" is none
	NamedResource      string
	Scored, Hit, Class bool
	Start              time.Time
	Confidence         float64
	Pieces             int     // incidents that hold events of it
	Stable             float64 // where it is hit: seconds until the root was right and stayed so
}

// Add counts another sum in.
func (s *Sum) Add(o *Sum) {
	s.Faults, s.Scored, s.Detected = s.Faults+o.Faults, s.Scored+o.Scored, s.Detected+o.Detected
	s.Hit, s.Hit3, s.Class = s.Hit+o.Hit, s.Hit3+o.Hit3, s.Class+o.Class
	s.Unknown, s.UnknownHit, s.UnknownRoot = s.Unknown+o.Unknown, s.UnknownHit+o.UnknownHit, s.UnknownRoot+o.UnknownRoot
	s.Strange, s.strangeSaid, s.strangeRight = s.Strange+o.Strange, s.strangeSaid+o.strangeSaid, s.strangeRight+o.strangeRight
	s.b3p, s.b3r, s.covered, s.events = s.b3p+o.b3p, s.b3r+o.b3r, s.covered+o.covered, s.events+o.events
	s.tp, s.pp, s.pairs = s.tp+o.tp, s.pp+o.pp, s.pairs+o.pairs
	s.Merges, s.Splits, s.Touched = s.Merges+o.Merges, s.Splits+o.Splits, s.Touched+o.Touched
	s.Incidents, s.False, s.Noise = s.Incidents+o.Incidents, s.False+o.False, s.Noise+o.Noise
	s.detect, s.root = append(s.detect, o.detect...), append(s.root, o.root...)
	for i := range s.bins {
		s.bins[i] = bin{s.bins[i].n + o.bins[i].n, s.bins[i].said + o.bins[i].said, s.bins[i].right + o.bins[i].right}
	}
	s.brier, s.calibrated = s.brier+o.brier, s.calibrated+o.calibrated
	s.Lines, s.CPU = s.Lines+o.Lines, s.CPU+o.CPU
	s.Rows = append(s.Rows, o.Rows...)
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

func f1(p, r float64) float64 {
	if p+r == 0 {
		return 0
	}
	return 2 * p * r / (p + r)
}

// Figures are the sums as shares; NaN where there is nothing to divide by.
type Figures struct {
	Top1, Top3, FaultClass, B3F1, PairF1, FalsePerK, Fragments float64
	DetectP50, RootP50, RootP95, ECE, Brier                    float64
	Unknown                                                    float64 // share of unknown faults that were told so
	UnknownRoot                                                float64 // share of them at the right resource too
	// StrangeSaid is the mean confidence of incidents of kind unknown, StrangeRight the share of
	// them that is right, StrangeGap how far apart these are.
	StrangeSaid, StrangeRight, StrangeGap float64

	CPUPerM float64 // CPU seconds a million lines
}

// Figures divides.
func (s *Sum) Figures() Figures {
	ece := 0.0
	for _, b := range s.bins {
		ece += math.Abs(b.said - b.right)
	}
	return Figures{
		Top1: ratio(float64(s.Hit), float64(s.Scored)), Top3: ratio(float64(s.Hit3), float64(s.Scored)),
		FaultClass: ratio(float64(s.Class), float64(s.Hit)),
		B3F1:       f1(ratio(s.b3p, float64(s.covered)), ratio(s.b3r, float64(s.events))),
		PairF1:     f1(ratio(float64(s.tp), float64(s.pp)), ratio(float64(s.tp), float64(s.pairs))),
		FalsePerK:  ratio(1000*float64(s.False), float64(s.Noise)), Fragments: ratio(float64(s.Touched), float64(s.Faults)),
		DetectP50: Quantile(s.detect, 0.5), RootP50: Quantile(s.root, 0.5), RootP95: Quantile(s.root, 0.95),
		ECE: ratio(ece, float64(s.calibrated)), Brier: ratio(s.brier, float64(s.calibrated)),
		Unknown: ratio(float64(s.UnknownHit), float64(s.Unknown)), UnknownRoot: ratio(float64(s.UnknownRoot), float64(s.Unknown)),
		StrangeSaid: ratio(s.strangeSaid, float64(s.Strange)), StrangeRight: ratio(s.strangeRight, float64(s.Strange)),
		StrangeGap: ratio(math.Abs(s.strangeSaid-s.strangeRight), float64(s.Strange)), CPUPerM: ratio(s.CPU.Seconds()*1e6, float64(s.Lines)),
	}
}

// Quantile interpolates between the neighbours.
func Quantile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	k := float64(len(v)-1) * p
	i := int(k)
	return v[i] + (v[min(i+1, len(v)-1)]-v[i])*(k-float64(i))
}

func pairsOf(n int) int { return n * (n - 1) / 2 }

// verdict is a line's answer: what scoring needs of an incident's history.
type verdict struct {
	at              time.Time
	resource, fault string
}

// Scorer takes an incident's lines in order and holds them against the truth.
type Scorer struct {
	truth  *stormgen.Truth
	owner  map[string]int
	shared map[string]bool
	group  []int
	size   []int
	first  []time.Time // by fault: when a known fault held an event of it
	last   map[string]schemas.Incident
	hist   map[string][]verdict
	order  []string
}

// New returns a scorer for a storm.
func New(t *stormgen.Truth) *Scorer {
	n := len(t.Incidents)
	s := &Scorer{
		truth: t, owner: map[string]int{}, shared: map[string]bool{}, group: make([]int, n), size: make([]int, n),
		first: make([]time.Time, n), last: map[string]schemas.Incident{}, hist: map[string][]verdict{},
	}
	for _, id := range t.SharedEvents {
		s.shared[id] = true
	}
	at := map[string]int{}
	for k, f := range t.Incidents {
		at[f.ID], s.group[k] = k, k
		for _, id := range f.Events {
			if !s.shared[id] {
				s.owner[id] = k
			}
		}
		for _, id := range f.Events {
			if !s.shared[id] {
				s.size[k]++
			}
		}
	}
	root := func(x int) int {
		for s.group[x] != x {
			x = s.group[x]
		}
		return x
	}
	for k, f := range t.Incidents {
		if r, ok := at[f.RepeatOf]; ok && f.RepeatOf != "" {
			s.group[root(k)] = root(r)
		}
	}
	for k := range s.group {
		s.group[k] = root(k)
	}
	return s
}

// Line takes one line of incidents.jsonl.
func (s *Scorer) Line(inc *schemas.Incident) {
	at := inc.At
	if at.IsZero() {
		at = inc.Updated
	}
	if _, ok := s.last[inc.ID]; !ok {
		s.order = append(s.order, inc.ID)
	}
	known := inc.RootCause.Fault != stormgen.Unknown && inc.RootCause.Fault != ""
	for _, id := range inc.Events {
		if k, ok := s.owner[id]; ok && known && (s.first[k].IsZero() || at.Before(s.first[k])) {
			s.first[k] = at
		}
	}
	s.hist[inc.ID] = append(s.hist[inc.ID], verdict{at, inc.RootCause.Resource, inc.RootCause.Fault})
	s.last[inc.ID] = *inc
}

// final is an incident that is left at the end.
type final struct {
	inc      schemas.Incident
	count    map[int]int
	n, noise int
}

func (f *final) known() bool {
	return f.inc.RootCause.Fault != stormgen.Unknown && f.inc.RootCause.Fault != ""
}

func (f *final) mostlyNoise() bool { return 2*f.n < f.n+f.noise }

// Sum returns what was reached.
func (s *Scorer) Sum() *Sum {
	out := &Sum{Faults: len(s.truth.Incidents), Noise: s.truth.NoiseEvents}
	fin := s.finals()
	best := make([]*final, out.Faults)
	most := make([]int, out.Faults)
	place := make([]int, out.Faults)
	told := make([]bool, out.Faults)
	for _, d := range fin {
		out.Incidents++
		s.grouping(out, d)
		if d.n > 0 {
			out.Touched++
		}
		if d.known() && d.mostlyNoise() {
			out.False++
		}
		for k, v := range d.count {
			place[k]++
			told[k] = told[k] || d.known()
			if v > most[k] {
				best[k], most[k] = d, v
			}
		}
		s.calibrate(out, d)
	}
	for k := range s.truth.Incidents {
		out.events += s.size[k]
		out.pairs += pairsOf(s.size[k])
		out.Splits += max(0, place[k]-1)
		s.fault(out, k, best[k], told[k], place[k])
	}
	return out
}

func (s *Scorer) finals() (fin []*final) {
	for _, id := range s.order {
		inc := s.last[id]
		if len(inc.Events) == 0 || inc.MergedInto != "" {
			continue
		}
		d := &final{inc: inc, count: map[int]int{}}
		seen := map[string]bool{}
		for _, ev := range inc.Events {
			if seen[ev] {
				continue
			}
			seen[ev] = true
			if k, ok := s.owner[ev]; ok {
				d.count[k]++
				d.n++
			} else if !s.shared[ev] {
				d.noise++
			}
		}
		fin = append(fin, d)
	}
	return fin
}

func (s *Scorer) grouping(out *Sum, d *final) {
	neutral := 0
	families := map[int]bool{}
	for k, v := range d.count {
		siblings := 0
		for o, u := range d.count {
			if o != k && s.group[o] == s.group[k] {
				siblings += u
			}
		}
		out.b3p += float64(v*v) / float64(max(1, d.n+d.noise-siblings))
		out.b3r += float64(v*v) / float64(max(1, s.size[k]))
		out.covered += v
		out.tp += pairsOf(v)
		neutral += v * siblings
		if 10*v >= s.size[k] && (v >= 2 || v == s.size[k]) {
			families[s.group[k]] = true
		}
	}
	out.pp += pairsOf(d.n) - neutral/2 + d.n*d.noise
	out.Merges += max(0, len(families)-1)
}

func (s *Scorer) calibrate(out *Sum, d *final) {
	right := 0.0
	if d.n > 0 && !d.mostlyNoise() {
		lead := -1
		for k, v := range d.count {
			if lead < 0 || v > d.count[lead] || v == d.count[lead] && k < lead {
				lead = k
			}
		}
		f := &s.truth.Incidents[lead]
		if d.known() && !f.RootScored {
			return
		}
		if (d.known() || f.Unknown) && accepts(f, d.inc.RootCause.Resource) {
			right = 1
		}
	}
	p := min(1, max(0, d.inc.RootCause.Confidence))
	if !d.known() {
		out.Strange++
		out.strangeSaid, out.strangeRight = out.strangeSaid+p, out.strangeRight+right
		return
	}
	b := &out.bins[min(9, int(p*10))]
	b.n, b.said, b.right = b.n+1, b.said+p, b.right+right
	out.brier += (p - right) * (p - right)
	out.calibrated++
}

func accepts(f *stormgen.Fault, resource string) bool {
	return slices.ContainsFunc(f.Accept, func(b stormgen.Blame) bool { return b.Resource == resource })
}

func (s *Scorer) fault(out *Sum, k int, d *final, told bool, pieces int) {
	f := &s.truth.Incidents[k]
	row := Row{
		ID: f.ID, Fault: f.Fault, Scenario: f.Scenario, Profile: s.truth.Profile, Resource: f.Resource,
		Scored: f.RootScored || f.Unknown, Pieces: pieces, Start: f.Start,
	}
	defer func() { out.Rows = append(out.Rows, row) }()
	if f.RootScored {
		out.Scored++
	}
	if f.Unknown {
		out.Unknown++
	}
	if d == nil {
		return
	}
	rc := d.inc.RootCause
	row.Named, row.NamedResource, row.Confidence = rc.Fault, rc.Resource, rc.Confidence
	if told {
		out.Detected++
		if t := s.first[k]; !t.IsZero() {
			out.detect = append(out.detect, max(0, t.Sub(f.SymptomArrival).Seconds()))
		}
	}
	if f.Unknown {
		if !d.known() {
			out.UnknownHit++
			row.Hit = true
			if accepts(f, rc.Resource) {
				out.UnknownRoot++
				row.Class = true
			}
		}
		return
	}
	if !d.known() {
		return
	}
	hit := accepts(f, rc.Resource)
	third := hit
	for i, a := range d.inc.Alternatives {
		third = third || i < 2 && accepts(f, a.Resource)
	}
	class := hit && slices.Contains(f.Accept, stormgen.Blame{Resource: rc.Resource, Fault: rc.Fault})
	row.Hit, row.Class = hit, class
	if f.RootScored {
		count(&out.Hit, hit)
		count(&out.Hit3, third)
		count(&out.Class, class)
	}
	if hit {
		h := s.hist[d.inc.ID]
		i := len(h)
		for i > 0 && h[i-1].resource == rc.Resource && h[i-1].fault != stormgen.Unknown {
			i--
		}
		row.Stable = max(0, h[i].at.Sub(f.SymptomArrival).Seconds())
		out.root = append(out.root, row.Stable)
	}
}

func count(n *int, yes bool) {
	if yes {
		*n++
	}
}
