package collectors

import (
	"math"
	"slices"
	"time"

	"auspex/schemas"
)

// Threshold is a bound that a device gives for one of its readings, in the reading's unit.
type Threshold = schemas.Threshold

// thresholdEvery is how often a threshold that stays the same is sent again: often enough
// that the look-back of PromQL, 5 minutes, still sees it when one poll in between is lost.
const thresholdEvery = 2 * time.Minute

// boundKey is a bound of a series of a batch.
type boundKey struct {
	reading Ref
	bound   schemas.Bound
}

// namedBound is a bound of readings that are no series of the batch.
type namedBound struct {
	metric, kind, part string
	bound              schemas.Bound
}

// given is a threshold as it was last sent.
type given struct {
	value float64
	at    int64 // Unix nanoseconds; 0 is never
}

// ungiven is a threshold that waits for Emit.
type ungiven struct {
	threshold int
	given
}

// Thresholds says which bounds the device gives for the readings of a series. Collectors
// call it beside [Batch.Sample] at every poll: a threshold is sent with the first reading,
// when it changes, and every two minutes, as a series of its own that has the reading's
// labels and the label bound. Values that are no finite number, and bounds of one call that
// contradict each other, are left out: a device's "none" may be passed as NaN, and firmware is
// seen that has zeros for all that it does not know.
func (b *Batch) Thresholds(reading Ref, at time.Time, bounds ...Threshold) {
	if int(reading) >= len(b.names.list) {
		return
	}
	for _, t := range coherent(bounds) {
		key := boundKey{reading, t.Bound}
		ref, ok := b.names.bounds[key]
		if !ok {
			sym, s := b.names.symbols, b.names.list[reading]
			labels := make([]string, 0, len(s.Labels)+2)
			for _, l := range s.Labels {
				labels = append(labels, sym[l])
			}
			ref = b.thresholdSeries(sym[s.Metric], sym[s.PartKind], sym[s.Part], t.Bound, labels...)
			b.own().bounds[key] = ref
		}
		b.threshold(ref, at, t.Value)
	}
}

// ThresholdsOf is [Batch.Thresholds] for readings that are no series of the batch, as those
// in columns ([Batch.Gpus]), or that are several, as the lanes of a port: metric, kind and
// part are those of the readings.
func (b *Batch) ThresholdsOf(metric, kind, part string, at time.Time, bounds ...Threshold) {
	for _, t := range coherent(bounds) {
		key := namedBound{metric, kind, part, t.Bound}
		ref, ok := b.names.named[key]
		if !ok {
			ref = b.thresholdSeries(metric, kind, part, t.Bound)
			b.own().named[key] = ref
		}
		b.threshold(ref, at, t.Value)
	}
}

// coherent returns the bounds without an upper one that does not lie above a lower one, and
// without that lower one: nobody knows which of them is wrong.
func coherent(bounds []Threshold) []Threshold {
	clash := func(t Threshold) bool {
		return slices.ContainsFunc(bounds, func(o Threshold) bool {
			return t.Bound.Upper() && !o.Bound.Upper() && t.Value <= o.Value || !t.Bound.Upper() && o.Bound.Upper() && t.Value >= o.Value
		})
	}
	if !slices.ContainsFunc(bounds, clash) {
		return bounds
	}
	return slices.DeleteFunc(slices.Clone(bounds), clash)
}

func (b *Batch) thresholdSeries(metric, kind, part string, bound schemas.Bound, labels ...string) Ref {
	return b.Series(schemas.ThresholdMetric(metric), kind, part, append(labels, schemas.LabelBound, string(bound))...)
}

func (b *Batch) threshold(ref Ref, at time.Time, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) || ref == Refused {
		return
	}
	i, ok := b.names.thresholds[ref]
	if !ok {
		i = len(b.names.thresholds)
		b.own().thresholds[ref] = i
	}
	if i >= len(b.given) {
		b.given = append(b.given, make([]given, len(b.names.thresholds)-len(b.given))...)
	}
	g, ns := b.given[i], at.UnixNano()
	if since := time.Duration(ns - g.at); g.at != 0 && v == g.value && since >= 0 && since < thresholdEvery {
		return
	}
	b.waiting = append(b.waiting, ungiven{i, given{v, ns}})
	b.Sample(ref, at, v)
}

// settle marks the thresholds that wait as sent; those of a poll that failed come again.
func (b *Batch) settle(sent bool) {
	if sent {
		for _, w := range b.waiting {
			b.given[w.threshold] = w.given
		}
	}
	b.waiting = nil // the next are minutes away
}
