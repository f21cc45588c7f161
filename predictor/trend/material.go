package trend

import (
	"math"
	"time"
)

// Alarm is the probability from which on a crossing is expected: it is then likelier than not.
const Alarm = 0.5

// release is the probability below which an alarm ends: lower than [Alarm] by nearly a bit of
// log-odds, so that a forecast near it does not flap.
const release = 0.35

// step is how far the log-odds of a crossing move before that is worth telling: a bit, the
// unit of the weight of evidence (Good, Probability and the Weighing of Evidence, 1950), by
// which odds double. What stands is then off by at most step/4 = .17 in probability where it
// is undecided, and by less the surer it is, since dp = p(1-p) d(log-odds); in expected
// log score it costs at most step²/8 = .06 nats.
const step = math.Ln2

// rare is the probability below which nothing is said of a part: about that of a failure within
// a week of a part of which a quarter fails within a year, 1-.75^(1/52).
const rare = 0.005

// logOdds of a probability; all that are rare are one, and so are all that are sure.
func logOdds(p float64) float64 {
	p = min(1-rare, max(rare, p))
	return math.Log(p / (1 - p))
}

// Reporter decides which forecasts are worth a report: the first alarm, its end,
// and what changes the picture. Its zero value has reported nothing.
type Reporter struct {
	reported bool
	alarm    bool
	last     Forecast
}

// Alarmed tells whether a crossing is expected now.
func (r *Reporter) Alarmed() bool { return r.alarm }

// Report returns the forecast as it should stand, and whether it differs
// materially from what was reported last. While an alarm stands, its probability is
// at least [Alarm].
func (r *Reporter) Report(f Forecast) (Forecast, bool) {
	was := r.alarm
	switch {
	case f.Probability >= Alarm:
		r.alarm = true
	case f.Probability < release:
		r.alarm = false
	}
	if r.alarm {
		f.Probability = max(f.Probability, Alarm)
	} else {
		f.Probability = min(f.Probability, Alarm-0.01)
	}
	switch {
	case !r.reported, r.alarm != was, f.Crossed != r.last.Crossed:
	case math.Abs(logOdds(f.Probability)-logOdds(r.last.Probability)) >= step:
	case f.Probability <= rare && r.last.Probability > rare: // its end
	case r.alarm && !f.Crossed && moved(r.last, f):
	default:
		return f, false
	}
	r.reported, r.last = true, f
	return f, true
}

// moved tells whether the crossing time has moved by a good part of its interval.
func moved(a, b Forecast) bool {
	at := func(f Forecast, d time.Duration) time.Time { return f.At.Add(d) }
	// Of a normal distribution, a third of that interval is .85 of its deviation, and half 1.3.
	width := min(a.P90-a.P10, b.P90-b.P10)
	shift := func(x, y time.Duration) time.Duration { return at(a, x).Sub(at(b, y)).Abs() }
	return shift(a.P50, b.P50) > width/3 || max(shift(a.P10, b.P10), shift(a.P90, b.P90)) > width/2
}

// AppendBinary appends the state of the reporter to b.
func (r *Reporter) AppendBinary(b []byte) []byte {
	flags := byte(0)
	for i, f := range []bool{r.reported, r.alarm} {
		if f {
			flags |= 1 << i
		}
	}
	return r.last.appendBinary(append(b, flags))
}

// DecodeBinary reads a state that AppendBinary wrote and returns what follows
// it. After an error the reporter is as it was.
func (r *Reporter) DecodeBinary(b []byte) ([]byte, error) {
	if len(b) == 0 || b[0] > 3 {
		return b, ErrState
	}
	next := Reporter{reported: b[0]&1 != 0, alarm: b[0]&2 != 0}
	rest, err := next.last.decodeBinary(b[1:])
	if err != nil {
		return b, err
	}
	*r = next
	return rest, nil
}
