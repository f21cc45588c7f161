package rootcause

import (
	"math"
	"slices"
)

// shape says which rows of a window are held against which: both lists of weights sum
// to one, or before is empty and the usual level takes its place.
type shape struct {
	during, other []float64
}

func (s *shape) rows() int { return len(s.during) }

// level is the mean of the values at the other rows, weighted by the requests behind
// them; usual where there is none.
func (s *shape) level(values, requests []float64, off int, usual float64) float64 {
	var sum, weight float64
	for k, w := range s.other {
		v := values[off+k]
		if w *= at(requests, off+k); w > 0 && !math.IsNaN(v) {
			sum, weight = sum+w*v, weight+w
		}
	}
	if weight == 0 {
		return usual
	}
	return sum / weight
}

// excess is what a value lies above its level, a row, summed over the requests: seconds
// where the value is a latency, failed requests where it is the share of failed ones.
// NaN says that nothing is known.
func (s *shape) excess(values, requests []float64, off int, usual float64) float64 {
	if values == nil {
		return math.NaN()
	}
	level := s.level(values, requests, off, usual)
	sum, known := 0.0, false
	for k, w := range s.during {
		v, r := values[off+k], at(requests, off+k)
		if w > 0 && r > 0 && !math.IsNaN(v) {
			sum, known = sum+w*r*(v-level), true
		}
	}
	if !known {
		return math.NaN()
	}
	return sum
}

// mean is the mean of the values in the anomalous rows.
func (s *shape) mean(values, requests []float64, off int) float64 {
	var sum, weight float64
	for k, w := range s.during {
		v := values[off+k]
		if w *= at(requests, off+k); w > 0 && !math.IsNaN(v) {
			sum, weight = sum+w*v, weight+w
		}
	}
	return sum / weight
}

// at is the number of requests of a row; without such a metric each row counts alike.
func at(requests []float64, i int) float64 {
	switch {
	case requests == nil:
		return 1
	case math.IsNaN(requests[i]):
		return 0
	}
	return requests[i]
}

// usual is the mean of all values, weighted by requests: the level where a window has no
// row to compare with.
func usual(values, requests []float64) float64 {
	var all []float64
	for i, v := range values {
		if !math.IsNaN(v) && at(requests, i) > 0 {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// grain is the smallest difference between two readings.
func grain(values []float64) float64 {
	all := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(all)
	out := math.Inf(1)
	for i := 1; i < len(all); i++ {
		if d := all[i] - all[i-1]; d > 0 {
			out = min(out, d)
		}
	}
	if math.IsInf(out, 1) {
		return 0
	}
	return out
}

// cut divides a window at its target: the run of rows that stands out most from the
// others and touches the time of the report, and how much each of its rows does.
func cut(values, times []float64, report, step, sign float64) (shape, bool) {
	n := len(values)
	sum, count := make([]float64, n+1), make([]float64, n+1)
	for k, v := range values {
		sum[k+1], count[k+1] = sum[k], count[k]
		if !math.IsNaN(v) {
			sum[k+1], count[k+1] = sum[k]+v, count[k]+1
		}
	}
	var most, level float64
	var first, end int
	for a := range n {
		for b := a + 1; b <= n; b++ {
			// A row may stand for the step before its time or behind it, and what is
			// reported at the end of a row may have begun with it.
			if times[b-1] < report-step || times[a] > report+2*step {
				continue
			}
			in, na := sum[b]-sum[a], count[b]-count[a]
			out, nb := sum[n]-in, count[n]-na
			if na == 0 || nb == 0 {
				continue
			}
			if d := sign * (in/na - out/nb) / math.Sqrt(1/na+1/nb); d > most {
				most, level, first, end = d, out/nb, a, b
			}
		}
	}
	if most == 0 {
		return shape{}, false
	}
	return weigh(values, first, end, level, sign), true
}

func mean(values []float64) float64 {
	var sum, n float64
	for _, v := range values {
		if !math.IsNaN(v) {
			sum, n = sum+v, n+1
		}
	}
	return sum / n
}

// weigh gives each anomalous row the weight of its distance from the level.
func weigh(values []float64, a, b int, level, sign float64) shape {
	s := shape{during: make([]float64, len(values))}
	var sum float64
	for k := a; k < b; k++ {
		if d := sign * (values[k] - level); d > 0 {
			s.during[k] = d
			sum += d
		}
	}
	for k := range s.during {
		s.during[k] /= sum
	}
	if b-a < len(values) {
		s.other = make([]float64, len(values))
		for k := range values {
			if k < a || k >= b {
				s.other[k] = 1 / float64(len(values)-b+a)
			}
		}
	}
	return s
}
