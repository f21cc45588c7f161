package rootcause

import (
	"math"
	"slices"
)

// tail tells how rarely normal operation exceeds a value: by counting where it has,
// and beyond the largest by a power law, whose exponent the largest tenth gives (Hill's
// estimator, Annals of Statistics 3, 1975). No distribution is assumed in between.
type tail struct {
	sorted []float64
	middle float64
	unit   float64 // what counts as a difference at all, > 0
	alpha  float64
}

// newTail takes values of normal operation; unit is the smallest difference that the
// reading can show, 0 where that is unknown.
func newTail(values []float64, unit float64) tail {
	t := tail{alpha: gaussLike}
	for _, v := range values {
		if !math.IsNaN(v) {
			t.sorted = append(t.sorted, v)
		}
	}
	slices.Sort(t.sorted)
	n := len(t.sorted)
	if n == 0 {
		t.unit = unit
		return t
	}
	t.middle = t.sorted[n/2]
	t.unit = max(unit, (t.sorted[n*3/4]-t.sorted[n/4])/quartiles, math.SmallestNonzeroFloat32)
	if k := n / 10; k >= 2 {
		base := t.sorted[n-1-k] - t.middle + t.unit
		var sum float64
		for _, v := range t.sorted[n-k:] {
			sum += math.Log((v - t.middle + t.unit) / base)
		}
		t.alpha = heavy
		if sum > 0 {
			t.alpha = min(max(float64(k)/sum, heavy), gaussLike)
		}
	}
	return t
}

const (
	// quartiles is the distance of the quartiles of a Gaussian in standard deviations.
	quartiles = 1.349
	// heavy and gaussLike bound the exponent of a tail: a variance that exists, and what
	// the tenth of a Gaussian sample shows.
	heavy, gaussLike = 2, 8
)

// p is the chance that normal operation shows at least x; 1 without any experience.
func (t *tail) p(x float64) float64 {
	n := len(t.sorted)
	if n == 0 || math.IsNaN(x) {
		return 1
	}
	top := t.sorted[n-1]
	if x <= top {
		i, _ := slices.BinarySearch(t.sorted, x)
		return float64(n-i+1) / float64(n+1)
	}
	return math.Pow((x-t.middle+t.unit)/(top-t.middle+t.unit), -t.alpha) / float64(n+1)
}

// credence is the probability that something that normal operation shows with chance p is
// no chance: the largest Bayes factor that a p-value can stand for (Sellke, Bayarri and
// Berger, The American Statistician 55, 2001) times the odds before.
func credence(p, prior float64) float64 {
	if p >= 1/math.E {
		return 0
	}
	odds := prior / (1 - prior) / (-math.E * p * math.Log(p))
	return odds / (1 + odds)
}
