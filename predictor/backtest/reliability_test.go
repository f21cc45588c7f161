package backtest

import (
	"strings"
	"testing"
	"time"
)

// TestReliabilityCountsWhatCame holds a forecast that stands for two days against
// one series that crosses then and one that never does; of a third nothing is ever said.
func TestReliabilityCountsWhatCame(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := newReliability(72 * time.Hour)
	worn, well, mute := watched{metric: "worn"}, watched{metric: "well"}, watched{metric: "mute"}
	for at := time.Duration(0); at < 120*time.Hour; at += time.Hour {
		now := stand{at: start.Add(at), p10: start.Add(40 * time.Hour), p90: start.Add(60 * time.Hour), probability: 0.9, alarm: true, predicted: true}
		if at < 48*time.Hour {
			r.observe(&worn, now)
		}
		if at == 48*time.Hour {
			r.crossed(&worn, now.at)
		}
		now.probability, now.alarm = 0.1, false
		r.observe(&well, now)
		r.observe(&mute, stand{at: now.at})
	}
	var out strings.Builder
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	// A look every six hours, the first after six; those of the last 72 hours of the
	// well one are not decided yet.
	const want = `metric,measure,from,to,looks,said,came
well,probability,0,0.2,7,0.100,0.000
worn,probability,0.8,1,7,0.900,1.000
worn,interval,0,12,2,0.800,1.000
worn,interval,12,24,2,0.800,1.000
worn,interval,24,48,3,0.800,1.000
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
