// Package hindsight reckons how right causes were, once somebody has said what they
// had been.
package hindsight

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"auspex/schemas"
)

// Enough is how many judged incidents make a share mean something: with fewer its
// standard error is above a tenth even where four of five are right.
const Enough = 20

// Bins is how many bins of confidence a calibration curve has.
const Bins = 10

// Case is one incident whose true cause is known, and what was said of it.
type Case struct {
	Fault      string  // that it was; empty: it was no incident
	Named      bool    // a cause was named at all
	Right      bool    // and it was the right one: the resource, or none where there was none
	Confidence float64 // of the cause that was named
	// Took is how long it was from the first sign until the right cause was named and
	// stayed; below 0: never, or not known.
	Took time.Duration
}

// Summary says how right causes were.
type Summary struct {
	Judged     int     `json:"judged"`
	Right      int     `json:"right"`
	Wrong      int     `json:"wrong"`       // another cause was named, or none
	NoIncident int     `json:"no_incident"` // of the judged: nothing had been wrong
	HitRate    float64 `json:"hit_rate"`    // right of the judged
	Enough     bool    `json:"enough"`      // are judged for the figures to mean something
	// CalibrationError is the mean over all causes that were named of the distance of
	// the confidence from the share that was right, by bins; Brier is the mean square of
	// the confidence less 1 or 0.
	CalibrationError float64  `json:"calibration_error"`
	Brier            float64  `json:"brier"`
	SecondsP50       *float64 `json:"seconds_p50"` // until the right cause stayed; null where it never did
	SecondsP95       *float64 `json:"seconds_p95"`
	Bins             []Bin    `json:"bins"`
	Faults           []Fault  `json:"faults"`
}

// Bin is a tenth of the confidences.
type Bin struct {
	From       float64 `json:"from"`
	To         float64 `json:"to"`
	N          int     `json:"n"`
	Right      int     `json:"right"`
	Confidence float64 `json:"confidence"` // mean of those in the bin
}

// Fault is the part of the cases that one fault was behind.
type Fault struct {
	Fault      string   `json:"fault"` // empty: no incident
	N          int      `json:"n"`
	Right      int      `json:"right"`
	SecondsP50 *float64 `json:"seconds_p50"`
	SecondsP95 *float64 `json:"seconds_p95"`
}

// Sum reckons cases up; their order makes no difference.
func Sum(cases []Case) Summary {
	s := Summary{Judged: len(cases), Enough: len(cases) >= Enough, Bins: make([]Bin, Bins)}
	var took []time.Duration
	byFault := map[string]*Fault{}
	tookBy := map[string][]time.Duration{}
	confidence := make([][]float64, Bins)
	var square []float64
	for _, c := range cases {
		f := byFault[c.Fault]
		if f == nil {
			f = &Fault{Fault: c.Fault}
			byFault[c.Fault] = f
		}
		f.N++
		right := 0.0
		switch {
		case c.Right:
			right = 1
			s.Right++
			f.Right++
		default:
			s.Wrong++
		}
		if c.Fault == "" {
			s.NoIncident++
		}
		if c.Right && c.Took >= 0 && c.Fault != "" {
			took = append(took, c.Took)
			tookBy[c.Fault] = append(tookBy[c.Fault], c.Took)
		}
		if !c.Named {
			continue
		}
		k := min(Bins-1, int(c.Confidence*Bins))
		s.Bins[k].N++
		s.Bins[k].Right += int(right)
		confidence[k] = append(confidence[k], c.Confidence)
		square = append(square, (c.Confidence-right)*(c.Confidence-right))
	}
	if s.Judged > 0 {
		s.HitRate = float64(s.Right) / float64(s.Judged)
	}
	for k := range s.Bins {
		b := &s.Bins[k]
		b.From, b.To = float64(k)/Bins, float64(k+1)/Bins
		if b.N > 0 {
			all := Total(confidence[k])
			b.Confidence = all / float64(b.N)
			s.CalibrationError += math.Abs(all-float64(b.Right)) / float64(len(square))
		}
	}
	if len(square) > 0 {
		s.Brier = Total(square) / float64(len(square))
	}
	s.SecondsP50, s.SecondsP95 = quantiles(took)
	for _, name := range slices.Sorted(maps.Keys(byFault)) {
		f := byFault[name]
		f.SecondsP50, f.SecondsP95 = quantiles(tookBy[name])
		s.Faults = append(s.Faults, *f)
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(b.N, a.N) })
	return s
}

// Total adds numbers up in their order of size, so that the order in which they come
// makes no difference to the last bit. It sorts v.
func Total(v []float64) (sum float64) {
	slices.Sort(v)
	for _, x := range v {
		sum += x
	}
	return sum
}

// quantiles returns the median and the 95th percentile in seconds, by nearest rank.
func quantiles(d []time.Duration) (p50, p95 *float64) {
	if len(d) == 0 {
		return nil, nil
	}
	slices.Sort(d)
	at := func(q float64) *float64 {
		v := d[max(0, int(math.Ceil(q*float64(len(d))))-1)].Seconds()
		return &v
	}
	return at(0.5), at(0.95)
}

// Of is the case of an incident on which a verdict stands: what it said when it was
// judged against what the person says.
func Of(c *schemas.Correction) Case {
	out := Case{Named: c.Said.Fault != "" && c.Said.Fault != schemas.FaultUnknown, Confidence: c.Said.Confidence, Took: -1}
	switch c.Verdict {
	case schemas.VerdictRight:
		out.Fault, out.Right = c.Fault, true
	case schemas.VerdictCause:
		out.Fault, out.Right = c.Fault, out.Named && (c.Resource == c.Said.Resource || slices.Contains(c.Said.OneOf, c.Resource))
	case schemas.VerdictNoIncident:
		out.Right = !out.Named
	}
	return out
}
