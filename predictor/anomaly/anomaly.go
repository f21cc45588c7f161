// Package anomaly scores how unusual a device's readings are, from the readings
// so far: one pass, a constant state for each series, no look at what comes
// later. Scores lie in [0,1] and mean the same for every device: how rare such
// readings have been, not how large.
package anomaly

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// ErrState is returned for a state that this version did not write.
var ErrState = errors.New("unknown state of a series")

// Weights of the exponential averages: of the level that is normal, of the one
// that is now, and of how unusual readings usually are.
const (
	slow  = 1.0 / 20000
	quick = 1.0 / 5
	usual = 1.0 / 20000
)

// Series is the state of one series. Its zero value has read nothing.
type Series struct {
	level, scale  float64 // robust level and absolute deviation
	now           float64 // level of the newest readings
	diff          float64 // absolute change between readings
	last          float64
	low, high     float64 // range so far
	tail, tailDev float64 // the usual size of the raw score, and its deviation
	n             uint32
	gap           uint32 // readings missing in a row
	gaps          float32
}

// Score takes a reading and tells how unusual it is: 0 is usual, each unit is as
// rare as the next deviation. NaN is a reading that is missing.
func (s *Series) Score(x float64) float64 {
	if !(math.Abs(x) < 1e100) { // no measurement is
		s.gap = min(s.gap+1, 1<<30)
		long := float64(s.gap) / (3 + 6*float64(s.gaps))
		return min(8, max(0, long-1))
	}
	s.gaps += (float32(s.gap) - s.gaps) * 0.01
	s.gap = 0
	if s.n == 0 {
		s.level, s.now, s.last, s.low, s.high = x, x, x, x, x
		s.n = 1
		return 0
	}
	// While little is known, averages weigh all readings alike.
	a := max(slow, 1/float64(s.n+1))
	b := max(usual, 1/float64(s.n+1))
	floor := 1e-3*math.Abs(s.level) + 1e-9 + 0.01*(s.high-s.low)
	scale := max(s.scale*1.25, floor)
	s.now += quick * (x - s.now)
	dev := (x - s.level) / scale
	shift := (s.now - s.level) / scale * 1.6
	jump := (x - s.last) / max(s.diff*1.25, floor) * 0.5
	raw := math.Log1p(max(math.Abs(dev), math.Abs(shift), math.Abs(jump)))
	if beyond := max(x-s.high, s.low-x, 0); beyond > 0 && s.n > 100 {
		raw += 0.3 * math.Log1p(beyond/max(floor, 0.05*(s.high-s.low)))
	}
	score := 0.0
	if s.n > 10 {
		score = max(0, (raw-s.tail)/max(s.tailDev*1.25, 0.15))
	}
	// What is odd teaches little, unless it stays.
	clip := 3 * scale
	if s.n < 30 {
		clip = math.Inf(1)
	}
	e := min(clip, max(-clip, x-s.level))
	s.level += a * e
	s.scale += a * (math.Abs(e) - s.scale)
	s.diff += a * (min(math.Abs(x-s.last), 10*max(s.diff, floor)) - s.diff)
	s.tail += b * (raw - s.tail)
	s.tailDev += b * (min(math.Abs(raw-s.tail), 4) - s.tailDev)
	s.low, s.high = min(s.low, x), max(s.high, x)
	s.last = x
	s.n = min(s.n+1, 1<<30)
	return score
}

// numbers are the state of a series as it is written.
func (s *Series) numbers() []*float64 {
	return []*float64{&s.level, &s.scale, &s.now, &s.diff, &s.last, &s.low, &s.high, &s.tail, &s.tailDev}
}

// AppendBinary appends the state of the series to b.
func (s *Series) AppendBinary(b []byte) []byte {
	for _, v := range s.numbers() {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(*v))
	}
	b = binary.LittleEndian.AppendUint32(b, s.n)
	b = binary.LittleEndian.AppendUint32(b, s.gap)
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(s.gaps))
}

// DecodeBinary reads a state that AppendBinary wrote and returns what follows
// it. After an error the series is as it was.
func (s *Series) DecodeBinary(b []byte) ([]byte, error) {
	var t Series
	numbers := t.numbers()
	if len(b) < 8*len(numbers)+12 {
		return b, ErrState
	}
	for _, v := range numbers {
		if *v = math.Float64frombits(binary.LittleEndian.Uint64(b)); *v-*v != 0 {
			return b, ErrState
		}
		b = b[8:]
	}
	t.n, t.gap, t.gaps = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), math.Float32frombits(binary.LittleEndian.Uint32(b[8:]))
	if !(t.gaps >= 0) {
		return b, ErrState
	}
	*s = t
	return b[12:], nil
}

// Device scores the series of one device together. It must not be used by two
// goroutines at once.
type Device struct {
	series []Series
	scores []float64
	order  []int
	mean   float64 // the usual size of the joint score
	dev    float64
	n      float64
	recent float64 // of the newest joint scores
}

// NewDevice returns the state of a device with n series.
func NewDevice(n int) *Device {
	return &Device{series: make([]Series, n), scores: make([]float64, n), order: make([]int, n)}
}

// Learn takes a row of readings without scoring it.
func (d *Device) Learn(row []float64) { d.score(row) }

// Score takes a row of readings, NaN where one is missing, and tells how unusual
// it is, in [0,1], and the series that speak for it, at most five, the first one
// most. The slice is valid until the next call.
func (d *Device) Score(row []float64) (float64, []int) {
	joint := d.score(row)
	k := 0
	for i, s := range d.scores {
		if s > 1 {
			d.order[k] = i
			k++
		}
	}
	top := d.order[:k]
	slices.SortFunc(top, func(a, b int) int {
		switch {
		case d.scores[a] > d.scores[b]:
			return -1
		case d.scores[a] < d.scores[b]:
			return 1
		}
		return a - b
	})
	return 1 - math.Exp(-joint/6), top[:min(5, len(top))]
}

func (d *Device) score(row []float64) float64 {
	// The strongest series count most; many a little make some.
	var best [8]float64
	for i := range d.series {
		s := d.series[i].Score(row[i])
		d.scores[i] = s
		for k := range best {
			if s > best[k] {
				best[k], s = s, best[k]
			}
		}
	}
	joint, w := 0.0, 1.0
	for _, b := range best {
		joint += w * b
		w *= 0.8
	}
	out := 0.0
	if d.n > 10 {
		out = max(0, (joint-d.mean)/max(1.25*d.dev, 0.3))
	}
	d.recent += quick * (out - d.recent)
	out = 0.75*out + 0.25*d.recent
	d.n++
	a := max(usual, 1/d.n)
	d.mean += a * (min(joint, d.mean+6*max(d.dev, 0.3)) - d.mean)
	d.dev += a * (min(math.Abs(joint-d.mean), 6*max(d.dev, 0.3)) - d.dev)
	return out
}
