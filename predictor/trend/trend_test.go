package trend

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// feed adds a reading each step for a while and returns the last forecast.
func feed(
	s *Series, from, length, step time.Duration, limit float64, horizon time.Duration, value func(time.Duration) float64,
) (Forecast, bool) {
	var f Forecast
	var ok bool
	for d := from; d < from+length; d += step {
		if s.Add(start.Add(d), value(d)) {
			f, ok = s.Forecast(limit, horizon)
		}
	}
	return f, ok
}

func TestForecastsOfPlainSeries(t *testing.T) {
	hours := func(d time.Duration) float64 { return d.Hours() }
	rng := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct {
		name         string
		length, step time.Duration
		below        bool
		limit        float64
		horizon      time.Duration
		value        func(time.Duration) float64
		least, most  float64       // probability
		eta          time.Duration // since start; 0 is not asked
	}{
		{
			"steady fall over minutes", 3 * time.Minute, 10 * time.Second, true, 6000, 24 * time.Hour,
			func(d time.Duration) float64 { return 9000 - 5*d.Seconds() + 15*rng.NormFloat64() }, 0.9, 1, 10 * time.Minute,
		},
		{
			"steady rise over days", 6 * 24 * time.Hour, 15 * time.Minute, false, 80, 168 * time.Hour,
			// noise takes the readings there before their mean
			func(d time.Duration) float64 { return 40 + hours(d)/6 + 0.5*rng.NormFloat64() }, 0.9, 1, 235 * time.Hour,
		},
		{
			"noise", 6 * 24 * time.Hour, 15 * time.Minute, false, 80, 168 * time.Hour,
			func(time.Duration) float64 { return 40 + 3*rng.NormFloat64() }, 0, 0.1, 0,
		},
		{
			"days and nights", 4 * 24 * time.Hour, 15 * time.Minute, false, 80, 168 * time.Hour,
			func(d time.Duration) float64 { return 50 + 10*math.Sin(hours(d)/24*2*math.Pi) + rng.NormFloat64() }, 0, 0.4, 0,
		},
		{
			"rises so slowly that the horizon ends before", 10 * 24 * time.Hour, 15 * time.Minute, false, 80, 48 * time.Hour,
			func(d time.Duration) float64 { return 40 + hours(d)/24 + 0.1*rng.NormFloat64() }, 0, 0.1, 0,
		},
		{
			"does not change", 6 * 24 * time.Hour, 15 * time.Minute, false, 80, 168 * time.Hour,
			func(time.Duration) float64 { return 55 }, 0, 0.1, 0,
		},
		{
			"was exchanged", 12 * 24 * time.Hour, 15 * time.Minute, false, 80, 168 * time.Hour,
			func(d time.Duration) float64 {
				if d > 9*24*time.Hour {
					return 30 + rng.NormFloat64()
				}
				return 30 + hours(d)/5 + rng.NormFloat64()
			}, 0, 0.3, 0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := New(Config{MaxWidth: 6 * time.Hour, Below: tc.below})
			f, ok := feed(s, 0, tc.length, tc.step, tc.limit, tc.horizon, tc.value)
			if !ok {
				t.Fatal("no forecast")
			}
			if f.Probability < tc.least || f.Probability > tc.most {
				t.Errorf("probability %.3f, want %.2f to %.2f", f.Probability, tc.least, tc.most)
			}
			if tc.eta == 0 {
				return
			}
			left := start.Add(tc.eta).Sub(f.At)
			if f.P10 > left || f.P90 < left {
				t.Errorf("crossing in %s, said %s to %s", left, f.P10, f.P90)
			}
			if off := math.Abs(f.P50.Hours()/left.Hours() - 1); off > 0.3 {
				t.Errorf("crossing in %s, said %s", left, f.P50)
			}
		})
	}
}

func TestCrossedSeriesSaysSo(t *testing.T) {
	s := New(Config{MaxWidth: time.Hour})
	f, ok := feed(s, 0, 10*time.Minute, 10*time.Second, 50, time.Hour, func(time.Duration) float64 { return 60 })
	if !ok || !f.Crossed || f.Probability != 1 {
		t.Errorf("crossed %v with probability %.2f", f.Crossed, f.Probability)
	}
}

func TestTooLittleToTellFrom(t *testing.T) {
	s := New(Config{MaxWidth: time.Hour})
	for i := range 5 {
		s.Add(start.Add(time.Duration(i)*time.Second), float64(i))
	}
	if _, ok := s.Forecast(10, time.Hour); ok {
		t.Error("a forecast from five readings")
	}
}

func TestBadReadingsAreLeftOut(t *testing.T) {
	s := New(Config{MaxWidth: time.Hour})
	s.Add(start, 1)
	for _, tc := range []struct {
		at time.Time
		v  float64
	}{{start, 2}, {start.Add(-time.Second), 2}, {start.Add(time.Second), math.NaN()}, {start.Add(time.Second), math.Inf(1)}} {
		if s.Add(tc.at, tc.v); s.Len() != 1 {
			t.Fatalf("took %v at %v", tc.v, tc.at)
		}
	}
}

func TestBucketsWidenAndKeepTheExtremes(t *testing.T) {
	s := New(Config{MaxWidth: 6 * time.Hour})
	for i := range 20000 {
		v := 1.0
		if i == 19000 || i == 19001 {
			v = 7
		}
		s.Add(start.Add(time.Duration(i)*10*time.Second), v)
	}
	if s.n > Buckets || s.width > int64(6*time.Hour) {
		t.Fatalf("%d buckets of %s", s.n, time.Duration(s.width))
	}
	high := 0
	for i := range s.n {
		if s.at(i).value() == 7 {
			high++
		}
	}
	if high != 1 {
		t.Errorf("%d buckets hold the extreme, want 1", high)
	}
}

func TestGapsLongerThanTheRing(t *testing.T) {
	s := New(Config{MaxWidth: time.Minute})
	feed(s, 0, time.Hour, 10*time.Second, 50, time.Hour, func(time.Duration) float64 { return 10 })
	f, ok := feed(s, 1000*time.Hour, time.Hour, 10*time.Second, 50, time.Hour, func(time.Duration) float64 { return 10 })
	if !ok || f.Probability > 0.1 {
		t.Errorf("after a gap: %v, probability %.2f", ok, f.Probability)
	}
}

func TestReporterReportsWhatMatters(t *testing.T) {
	var reporter Reporter
	f := Forecast{At: start, Probability: 0.2, P10: time.Hour, P50: 2 * time.Hour, P90: 3 * time.Hour}
	steps := []struct {
		name  string
		prob  float64
		later time.Duration
		want  bool
		alarm bool
	}{
		{"the first", 0.2, 0, true, false},
		{"nothing new", 0.21, 0, false, false},
		{"an alarm", 0.7, 0, true, true},
		{"time passes as was said", 0.7, 0, false, true},
		{"falls, but not far", 0.45, 0, true, true},
		{"the crossing moves", 0.5, 2 * time.Hour, true, true},
		{"the end", 0.1, 2 * time.Hour, true, false},
	}
	for i, x := range steps {
		g := f
		at := time.Duration(i) * time.Minute
		g.At, g.Probability = f.At.Add(at), x.prob
		g.P10, g.P50, g.P90 = f.P10+x.later-at, f.P50+x.later-at, f.P90+x.later-at
		_, got := reporter.Report(g)
		if got != x.want || reporter.Alarmed() != x.alarm {
			t.Errorf("%s: told %v, alarm %v", x.name, got, reporter.Alarmed())
		}
	}
}

func TestStateSurvives(t *testing.T) {
	s := New(Config{MaxWidth: 6 * time.Hour, Below: true})
	want, _ := feed(s, 0, 30*time.Minute, 10*time.Second, 10, time.Hour, func(d time.Duration) float64 { return 40 - d.Minutes() })
	b, err := s.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	var r Series
	rest, err := r.DecodeBinary(append(b, 1, 2))
	if err != nil || len(rest) != 2 {
		t.Fatalf("%d bytes left, %v", len(rest), err)
	}
	got, ok := r.Forecast(10, time.Hour)
	if !ok || math.Abs(got.Probability-want.Probability) > 0.05 || r.Len() != s.Len() {
		t.Errorf("after: %+v, before: %+v", got, want)
	}
	if _, err := r.DecodeBinary(b[:20]); !errors.Is(err, ErrState) {
		t.Errorf("half a state: %v", err)
	}
}

func FuzzDecodeBinary(f *testing.F) {
	s := New(Config{MaxWidth: time.Hour})
	feed(s, 0, time.Hour, 10*time.Second, 50, time.Hour, func(d time.Duration) float64 { return d.Minutes() })
	b, _ := s.AppendBinary(nil)
	f.Add(b, int64(1e9), 3.0)
	f.Fuzz(func(t *testing.T, b []byte, after int64, v float64) {
		var s Series
		if _, err := s.DecodeBinary(b); err != nil {
			return
		}
		last, _ := s.Last()
		for i := range 4 {
			s.Add(last.Add(time.Duration(int64(i+1)*(after%1e15))), v)
		}
		if fc, ok := s.Forecast(5, time.Hour); ok && (fc.Probability < 0 || fc.Probability > 1 || fc.P10 > fc.P90) {
			t.Errorf("%+v", fc)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	s := New(Config{MaxWidth: 6 * time.Hour})
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Add(start.Add(time.Duration(i)*10*time.Second), float64(i%7))
		i++
	}
}

func BenchmarkForecast(b *testing.B) {
	s := New(Config{MaxWidth: 6 * time.Hour})
	feed(s, 0, 12*24*time.Hour, 15*time.Minute, 80, 168*time.Hour, func(d time.Duration) float64 { return 40 + d.Hours()/12 })
	b.ReportAllocs()
	for b.Loop() {
		s.Forecast(80, 168*time.Hour)
	}
}

// TestSmallProbabilitiesEnd lets what is said of a series that has become quiet fall to
// nothing: it must not stand at a few percent for ever.
func TestSmallProbabilitiesEnd(t *testing.T) {
	var reporter Reporter
	published := -1.0
	reported := 0
	for i := range 400 {
		p := 0.07 * math.Exp(-float64(i)/40)
		if f, material := reporter.Report(Forecast{At: start.Add(time.Duration(i) * time.Hour), Probability: p}); material {
			published = f.Probability
			reported++
		}
		if off := math.Abs(logOdds(published) - logOdds(p)); off > step {
			t.Fatalf("%.4f stands while it is %.4f", published, p)
		}
	}
	if published > rare || reported > 6 {
		t.Errorf("%.4f stands after %d changes", published, reported)
	}
}
