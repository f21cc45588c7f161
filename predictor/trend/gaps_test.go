package trend

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestOutageAfterAStepIsNoCrossing lets a counter be reset, then its collector be away: empty
// buckets are no readings, and none of them lies at the limit.
func TestOutageAfterAStepIsNoCrossing(t *testing.T) {
	for _, below := range []bool{false, true} {
		for _, outage := range []time.Duration{18 * time.Hour, 24 * time.Hour, 30 * time.Hour, 72 * time.Hour} {
			s := New(Config{MaxWidth: 6 * time.Hour, Below: below})
			limit, before := 20.0, 12.0
			if below {
				limit, before = -20, -12
			}
			const step = 8 * 24 * time.Hour
			for at := time.Duration(0); at < step+4*24*time.Hour; at += quarter {
				v := before + 0.01*float64(at/quarter%3)
				if at > step {
					v = 0
				}
				if at > step+13*time.Hour && at < step+13*time.Hour+outage {
					continue
				}
				if !s.Add(start.Add(at), v) {
					continue
				}
				if f, ok := s.Forecast(limit, week); ok && (f.Crossed || f.Probability > 0.5 || math.Abs(f.Level) > 13) {
					t.Fatalf("outage of %s, %s after: %+v", outage, at-step, f)
				}
			}
		}
	}
}

// life is what a part reads that never comes to its limit: 100, crossed upwards.
type life struct {
	name  string
	value func(at time.Duration, rng *rand.Rand) float64
}

func lives() []life {
	hours := func(at time.Duration) float64 { return at.Hours() }
	return []life{
		{"a counter at zero", func(time.Duration, *rand.Rand) float64 { return 0 }},
		{"a counter that is reset each five days", func(at time.Duration, _ *rand.Rand) float64 {
			return math.Floor(math.Mod(hours(at), 120) / 2)
		}},
		{"days and nights", func(at time.Duration, rng *rand.Rand) float64 {
			return 50 + 20*math.Sin(hours(at)/24*2*math.Pi) + rng.NormFloat64()
		}},
		{"jobs", func(at time.Duration, rng *rand.Rand) float64 {
			return 30 + 40*math.Mod(math.Floor(hours(at)/7)*0.37, 1) + 2*rng.NormFloat64()
		}},
		{"a drift that ends", func(at time.Duration, rng *rand.Rand) float64 {
			return 20 + 60*(1-math.Exp(-hours(at)/80)) + rng.NormFloat64()
		}},
		{"an exchange each week", func(at time.Duration, rng *rand.Rand) float64 {
			return 20 + 0.35*math.Mod(hours(at), 168) + rng.NormFloat64()
		}},
	}
}

// keep says which readings come: outages, single losses, and sparse times.
func keep(rng *rand.Rand, n int) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = true
	}
	for range rng.IntN(8) {
		from, long := rng.IntN(n), 1+rng.IntN(n/6)
		for i := from; i < min(n, from+long); i++ {
			out[i] = false
		}
	}
	if loss := rng.Float64() * 0.9; rng.IntN(2) == 0 {
		from := rng.IntN(n)
		for i := from; i < n; i++ {
			out[i] = out[i] && rng.Float64() > loss
		}
	}
	return out
}

// TestRemovingReadingsCreatesNoCrossing takes readings away from series that never cross: no
// summary may say that one has crossed, and no follower that it came true.
func TestRemovingReadingsCreatesNoCrossing(t *testing.T) {
	const n = 14 * 24 * 4
	for _, below := range []bool{false, true} {
		for _, l := range lives() {
			t.Run(l.name, func(t *testing.T) {
				for seed := range uint64(5) {
					rng := rand.New(rand.NewPCG(seed, 9))
					target := &Target{Limit: 100, Below: below, Horizon: week}
					if below {
						target.Limit = -100
					}
					f := NewFollower(target)
					for i, kept := range keep(rng, n) {
						at := time.Duration(i) * quarter
						v := min(99, l.value(at, rng))
						if below {
							v = -v
						}
						if !kept {
							continue
						}
						if now, change := f.Add(Reading{At: start.Add(at), V: v}); change == CameTrue || now.Crossed {
							t.Fatalf("seed %d, %s: crossed at %.1f: %+v", seed, at, v, now)
						}
					}
				}
			})
		}
	}
}

// TestQuietSeriesIsQuietAfterAnOutage holds what is said of a counter that stands still before
// an outage against what is said right after it.
func TestQuietSeriesIsQuietAfterAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{
		time.Hour, 7 * time.Hour, 20 * time.Hour, 4 * 24 * time.Hour, 9 * 24 * time.Hour, 15 * 24 * time.Hour,
	} {
		s := New(Config{MaxWidth: slowest})
		const from = 12 * 24 * time.Hour
		worst := 0.0
		for at := time.Duration(0); at < from+outage+5*24*time.Hour; at += quarter {
			if at > from && at < from+outage {
				continue
			}
			if s.Add(start.Add(at), 0) && at > from {
				if f, ok := s.Forecast(20, week); ok {
					worst = max(worst, f.Probability)
				}
			}
		}
		if worst > 0.01 {
			t.Errorf("probability %.3f after an outage of %s", worst, outage)
		}
	}
}
