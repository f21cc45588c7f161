package anomaly

import (
	"math"
	"testing"
	"unsafe"
)

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
				if x := s.Score(noise(i)); i > 200 {
					usual = max(usual, x)
				}
			}
			most := 0.0
			for i := 2000; i < 2020; i++ {
				most = max(most, s.Score(tc.value(i)))
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
		x, y := a.Score(10+v), b.Score(10000+1000*v)
		if math.Abs(x-y) > 0.05*(1+x) {
			t.Fatalf("reading %d: %.3f, in another unit %.3f", i, x, y)
		}
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
			d.Learn(row)
			continue
		}
		d.Score(row)
	}
	row[2] = 15
	score, top := d.Score(row)
	if score < 0.5 || score > 1 || len(top) == 0 || top[0] != 2 {
		t.Errorf("score %.2f, named %v", score, top)
	}
}

func TestScoresAreFinite(t *testing.T) {
	d := NewDevice(2)
	for _, x := range []float64{0, 0, 0, 1e300, -1e300, math.Inf(1), math.NaN(), 5e-324, 1} {
		for range 20 {
			if s, _ := d.Score([]float64{x, -x}); math.IsNaN(s) || s < 0 || s > 1 {
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
		s.Score(noise(i))
		i++
	}
}
