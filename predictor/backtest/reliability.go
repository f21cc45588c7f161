package backtest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// observeEvery is how often what stands is held against what comes.
const observeEvery = 6 * time.Hour

// probabilityBins is into how many parts probabilities are sorted.
const probabilityBins = 5

// leads are the times before a crossing by which intervals are sorted.
var leads = [...]time.Duration{0, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 96 * time.Hour, 168 * time.Hour}

// outcomes counts looks at what was said: the sum of the shares that were promised,
// and how often it came.
type outcomes struct {
	readings, came int
	predicted      float64
}

func (t *outcomes) add(predicted float64, came bool) {
	t.readings++
	t.predicted += predicted
	if came {
		t.came++
	}
}

// reliability says how often what was forecast came, by metric: probabilities
// (a crossing within the horizon) and the interval from p10 to p90.
type reliability struct {
	horizon       time.Duration
	probabilities map[string]*[probabilityBins]outcomes
	intervals     map[string]*[len(leads) - 1]outcomes
}

func newReliability(horizon time.Duration) *reliability {
	return &reliability{horizon, map[string]*[probabilityBins]outcomes{}, map[string]*[len(leads) - 1]outcomes{}}
}

// stand is what stood at a time.
type stand struct {
	at, p10, p90     time.Time
	probability      float64
	alarm, predicted bool
}

// watched is a series whose forecasts are held against what came; it keeps those
// of one horizon.
type watched struct {
	metric string
	next   time.Time
	past   []stand
}

// observe takes what stands now, before the readings of that time are known.
func (r *reliability) observe(w *watched, now stand) {
	for len(w.past) > 0 && now.at.Sub(w.past[0].at) > r.horizon {
		r.probability(w.metric, w.past[0], false)
		w.past = w.past[1:]
	}
	// Before the first forecast nothing stands, which is not a forecast of nothing.
	if now.at.Before(w.next) || !now.predicted {
		return
	}
	if !w.next.IsZero() { // nothing is said of the first reading
		w.past = append(w.past, now)
	}
	w.next = now.at.Add(observeEvery)
}

// crossed takes the time of a crossing.
func (r *reliability) crossed(w *watched, at time.Time) {
	for _, s := range w.past {
		r.probability(w.metric, s, true)
		if lead := at.Sub(s.at); s.alarm {
			for i := range leads[1:] {
				if lead > leads[i] && lead <= leads[i+1] {
					r.interval(w.metric, i, !at.Before(s.p10) && !at.After(s.p90))
				}
			}
		}
	}
	w.past = nil
}

func (r *reliability) probability(metric string, s stand, came bool) {
	of(r.probabilities, metric)[min(probabilityBins-1, int(s.probability*probabilityBins))].add(s.probability, came)
}

func (r *reliability) interval(metric string, lead int, came bool) {
	of(r.intervals, metric)[lead].add(0.8, came)
}

func of[T any](m map[string]*T, metric string) *T {
	if m[metric] == nil {
		m[metric] = new(T)
	}
	return m[metric]
}

// write writes a table: what was said, and how often it came.
func (r *reliability) write(out io.Writer) error {
	w := bufio.NewWriter(out)
	fmt.Fprintln(w, "metric,measure,from,to,looks,said,came")
	row := func(metric, measure string, from, to float64, t outcomes) {
		if t.readings > 0 {
			n := float64(t.readings)
			fmt.Fprintf(w, "%s,%s,%g,%g,%d,%.3f,%.3f\n", appendCell(nil, metric), measure, from, to, t.readings, t.predicted/n, float64(t.came)/n)
		}
	}
	for _, metric := range slices.Sorted(maps.Keys(r.probabilities)) {
		for i, t := range r.probabilities[metric] {
			row(metric, "probability", float64(i)/probabilityBins, float64(i+1)/probabilityBins, t)
		}
		if r.intervals[metric] == nil {
			continue
		}
		for i, t := range r.intervals[metric] {
			row(metric, "interval", leads[i].Hours(), leads[i+1].Hours(), t)
		}
	}
	return w.Flush()
}
