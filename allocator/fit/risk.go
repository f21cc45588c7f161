package fit

import "time"

// by is the probability that what a prediction foretells happens before a time. Within its
// horizon it is the prediction's probability times the distribution of the time, taken as
// straight between the percentiles that it gives. Beyond the horizon the prediction knows
// nothing: the probability stays what it is there, and beyond is true.
func (r *Risk) by(until time.Time) (p float64, beyond bool) {
	if until.IsZero() || !until.Before(r.Horizon) {
		return r.Probability, until.IsZero() || until.After(r.Horizon)
	}
	at, share := r.Made, 0.0
	if !until.After(at) {
		return 0, false
	}
	for _, next := range [...]struct {
		t     time.Time
		share float64
	}{{r.P10, .1}, {r.P50, .5}, {r.P90, .9}, {r.Horizon, 1}} {
		// Percentiles past the horizon, or out of order, say nothing of the time before it.
		if next.t.IsZero() || !next.t.After(at) || next.t.After(r.Horizon) {
			continue
		}
		if until.Before(next.t) {
			return r.Probability * (share + (next.share-share)*float64(until.Sub(at))/float64(next.t.Sub(at))), false
		}
		at, share = next.t, next.share
	}
	return r.Probability, false
}

// risk is the probability that at least one part fails before a time, and which is the most
// likely. Several predictions of one part are one failure: the likeliest counts. Parts fail
// independently of one another. Nothing is known of parts without a prediction.
func risk(risks []Risk, until time.Time) (p float64, worst *Risk, beyond bool) {
	none, top := 1.0, -1.0
	for i := range risks {
		r := &risks[i]
		q, far := r.by(until)
		dominated := false
		for j := range risks {
			if i == j || risks[j].Part != r.Part {
				continue
			}
			if o, _ := risks[j].by(until); o > q || o == q && j < i {
				dominated = true
			}
		}
		if dominated {
			continue
		}
		none *= 1 - q
		if q > top {
			top, worst, beyond = q, r, far
		}
	}
	return 1 - none, worst, beyond
}
