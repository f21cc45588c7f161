package anomaly

import (
	"errors"
	"math"
	"testing"
	"time"
	"unsafe"
)

// at is the time of a reading, one a minute.
func at(i int) time.Time { return time.Unix(1_767_225_600+60*int64(i), 0).UTC() }

// noise is a repeatable series without a pattern.
func noise(i int) float64 { return float64((i*7919+i*i*31)%97) / 97 }

func TestSeriesStaysSmall(t *testing.T) {
	if n := unsafe.Sizeof(Series{}); n > 128 {
		t.Errorf("the state of a series has %d bytes", n)
	}
}

func TestScoresOfSpikesShiftsAndSilence(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value func(i int) float64
		least float64
	}{
		{"spike", func(i int) float64 { return 20 }, 4},
		{"shift", func(i int) float64 { return 3 + noise(i) }, 2},
		{"silence", func(int) float64 { return math.NaN() }, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Series
			usual := 0.0
			for i := range 2000 {
				if x := s.Score(at(i), noise(i)); i > 200 {
					usual = max(usual, x)
				}
			}
			most := 0.0
			for i := 2000; i < 2020; i++ {
				most = max(most, s.Score(at(i), tc.value(i)))
			}
			if most < tc.least || most < usual {
				t.Errorf("score %.2f, usual scores reach %.2f", most, usual)
			}
		})
	}
}

func TestScoresDoNotDependOnTheUnit(t *testing.T) {
	var a, b Series
	for i := range 3000 {
		v := noise(i)
		if i > 2500 {
			v += 2
		}
		x, y := a.Score(at(i), 10+v), b.Score(at(i), 10000+1000*v)
		if math.Abs(x-y) > 0.05*(1+x) {
			t.Fatalf("reading %d: %.3f, in another unit %.3f", i, x, y)
		}
	}
}

// TestDayIsToldFromNight feeds days that are busy and nights that are not, and
// then a night that is as busy as a day: no reading that the range has not seen.
func TestDayIsToldFromNight(t *testing.T) {
	var s Series
	const minutes, days = 5, 14
	busy := func(i int) float64 {
		if h := i * minutes / 60 % 24; h >= 8 && h < 20 {
			return 60 + 3*noise(i)
		}
		return 20 + 3*noise(i)
	}
	usual := 0.0
	for i := range days * 24 * 60 / minutes {
		if x := s.Score(at(i*minutes), busy(i)); i > 4*24*60/minutes && i*minutes/60%24 > 20 {
			usual = max(usual, x)
		}
	}
	least := math.Inf(1)
	for k := range 24 { // two hours from midnight on
		i := days*24*60/minutes + k
		if x := s.Score(at(i*minutes), busy(i+12*60/minutes)); k > 0 {
			least = min(least, x)
		}
	}
	if least < 2 || least < 2*usual {
		t.Errorf("a busy night scores %.2f, usual nights up to %.2f", least, usual)
	}
}

func TestStateOfASeriesIsWhatItWas(t *testing.T) {
	var s, r Series
	for i := range 5000 {
		s.Score(at(i), noise(i))
	}
	b := s.AppendBinary(nil)
	for n := range len(b) {
		if _, err := r.DecodeBinary(b[:n]); !errors.Is(err, ErrState) || r != (Series{}) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if rest, err := r.DecodeBinary(b); err != nil || len(rest) != 0 || r != s {
		t.Errorf("%d bytes left, %v", len(rest), err)
	}
}

func TestDeviceNamesTheCulprit(t *testing.T) {
	d := NewDevice(4)
	row := make([]float64, 4)
	for i := range 2000 {
		for k := range row {
			row[k] = noise(i + 101*k)
		}
		if i < 300 {
			d.Learn(at(i), row)
			continue
		}
		d.Score(at(i), row)
	}
	row[2] = 15
	score, top := d.Score(at(2000), row)
	if score < 0.5 || score > 1 || len(top) == 0 || top[0] != 2 {
		t.Errorf("score %.2f, named %v", score, top)
	}
}

func TestScoresAreFinite(t *testing.T) {
	d := NewDevice(2)
	i := 0
	for _, x := range []float64{0, 0, 0, 1e300, 1e29, -1e29, -1e300, math.Inf(1), math.NaN(), 5e-324, 1} {
		for range 20 {
			i++
			if s, _ := d.Score(at(i), []float64{x, -x}); math.IsNaN(s) || s < 0 || s > 1 {
				t.Fatalf("score %v of %v", s, x)
			}
		}
	}
}

func BenchmarkScore(b *testing.B) {
	var s Series
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Score(at(i), noise(i))
		i++
	}
}

// TestWhatWentOnDuringAnOutageIsNoJump takes readings of days and nights away: what has changed
// meanwhile did not change in one step.
func TestWhatWentOnDuringAnOutageIsNoJump(t *testing.T) {
	const from = 6000
	after := func(outage int) float64 {
		var s Series
		for i := range from + outage + 1 {
			x := 50 + 20*math.Sin(float64(i)/1440*2*math.Pi) + 0.01*float64(i%7)
			if i >= from && i < from+outage {
				x = math.NaN()
			}
			if score := s.Score(time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC), x); i == from+outage {
				return score
			}
		}
		return 0
	}
	usual := after(0)
	for _, outage := range []int{3, 30, 120, 300} {
		if got := after(outage); got > usual+1 {
			t.Errorf("score %.1f after an outage of %d readings, %.1f without one", got, outage, usual)
		}
	}
}
