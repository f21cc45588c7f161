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
	"time"
)

// ErrState is returned for a state that this version did not write.
var ErrState = errors.New("unknown state of a series")

// The constants are chosen, not derived, and none is fitted to one set. Behind each stands
// what doubling it does to VUS-PR (Paparrizos et al., PVLDB 15, 2022) on two public sets,
// ASD (.591) and SMD (.442); where nothing stands, less than .01 on both.

// Weights of the exponential averages: of the level that is normal (17 h of readings
// each 12 s, 17 days at 5 min), of the one that is now, of the levels by the time of day
// (eight days at 5 min), and of how unusual readings usually are.
const (
	slow  = 1.0 / 5000  // a twelfth of usual: what is odd is rarer than what is new
	quick = 1.0 / 20    // ASD .558, SMD .433; half of it ASD .608, SMD .438: shorter anomalies are met by the reading itself
	daily = 1.0 / 200   // of the readings of that part of the day
	usual = 1.0 / 60000 // slower than slow, so that a device that is odd for a day does not become usual
)

const (
	parts  = 12            // of a day, each with a usual level: two hours, the shortest usual shift of load
	part   = 24 / parts    // hours
	tested = 48            // hours before the time of day counts: each part was met twice
	gain   = 0.8           // share of the deviation that must be left when it does; two errors of a deviation below 1 (as trend.quieter)
	span   = 3600.0 * part // seconds
)

// What one series says of a reading.
const (
	normal  = 1.25 // standard deviation of a normal distribution in mean absolute deviations, sqrt(pi/2)
	fine    = 1e-3 // of the level: the accuracy of good sensors; less is no change
	grain   = 0.01 // of the range so far: the same for readings around zero
	shifts  = 1.6  // weight of a shift of the newest level, which noise moves by sqrt(quick/(2-quick)) = .16 only. ASD .496, SMD .458
	jumps   = 0.5  // weight of a jump: a difference has the noise of two readings. ASD .612, SMD .429
	records = 0.3  // weight of a reading beyond all before
	overrun = 0.05 // of the range so far, the unit of how far it lies beyond
	calm    = 0.15 // least deviation of a raw score, of log(1+deviations): a seventh of a deviation. SMD .451
	clip    = 3.0  // deviations by which one reading counts at most when it teaches (Huber). SMD .427
)

// Of gaps: one is long from gapLeast readings on, plus gapTimes its usual length.
const (
	gapAvg   = 0.01
	gapLeast = 3.0
	gapTimes = 6.0
)

// What the series of a device say together.
const (
	rank  = 0.7 // weight of each series as against the next stronger: eight count .94 of all. 1.4: ASD .469, SMD .335; .35: ASD .542
	even  = 0.3 // least deviation of the joint score
	carry = 0.2 // weight of the newest in the mean of the newest joint scores, of which
	blend = 0.1 // this share goes into the score, so that it does not fall between two odd readings
	burst = 6.0 // deviations of the joint score that are 1-1/e, and by which one counts at most when it teaches
)

// How many readings it takes for a mean deviation to be known to a quarter, a seventh and a thirteenth.
const (
	few  = 10
	some = 30
	many = 100
)

// Series is the state of one series, 128 bytes. Its zero value has read nothing.
type Series struct {
	level     float64 // robust level
	now       float64 // level of the newest readings
	last      float64
	low, high float64 // range so far
	scale     float32 // absolute deviation from the level
	diff      float32 // absolute change between readings
	rest      float32 // level of the newest readings, less that of the time of day
	restDev   float32 // absolute deviation from the level of the time of day
	tail      float32 // the usual size of the raw score
	tailDev   float32 // and its deviation
	gaps      float32
	day       [parts]float32 // usual level by the time of day
	known     uint16         // which of them
	gap       uint16         // readings missing in a row
	first     uint32         // when the series began, in hours
	n         uint32
}

// Score takes a reading and tells how unusual it is: 0 is usual, each unit is as
// rare as the next deviation. NaN is a reading that is missing.
func (s *Series) Score(at time.Time, x float64) float64 {
	if !(math.Abs(x) < 1e30) { // no measurement is
		s.gap = min(s.gap+1, 1<<15)
		long := float64(s.gap) / (gapLeast + gapTimes*float64(s.gaps))
		return min(8, max(0, long-1))
	}
	toward(&s.gaps, float64(s.gap), gapAvg)
	// What has changed while nothing was read has changed over all of that time.
	steps := float64(s.gap) + 1
	s.gap = 0
	if s.n == 0 {
		s.level, s.now, s.last, s.low, s.high = x, x, x, x, x
		s.first = uint32(at.Unix() / 3600)
		s.n = 1
		return 0
	}
	// While little is known, averages weigh all readings alike.
	a := max(slow, 1/float64(s.n+1))
	b := max(usual, 1/float64(s.n+1))
	floor := fine*math.Abs(s.level) + 1e-9 + grain*(s.high-s.low)
	scale := max(float64(s.scale)*normal, floor)
	s.now += quick * (x - s.now)
	dev, shift := (x-s.level)/scale, (s.now-s.level)/scale
	if d, r, ok := s.season(at, x, a, floor); ok {
		dev, shift = d, r
	}
	change := (x - s.last) / steps
	jump := jumps * change / max(float64(s.diff)*normal, floor)
	raw := math.Log1p(max(math.Abs(dev), shifts*math.Abs(shift), math.Abs(jump)))
	if beyond := max(x-s.high, s.low-x, 0); beyond > 0 && s.n > many {
		raw += records * math.Log1p(beyond/max(floor, overrun*(s.high-s.low)))
	}
	score := 0.0
	if s.n > few {
		score = max(0, (raw-float64(s.tail))/max(float64(s.tailDev)*normal, calm))
	}
	// What is odd teaches little, unless it stays.
	bound := clip * scale
	if s.n < some {
		bound = math.Inf(1)
	}
	e := min(bound, max(-bound, x-s.level))
	s.level += a * e
	toward(&s.scale, math.Abs(e), a)
	toward(&s.diff, min(math.Abs(change), 10*max(float64(s.diff), floor)), a)
	off := min(math.Abs(raw-float64(s.tail)-b*(raw-float64(s.tail))), 4)
	toward(&s.tail, raw, b)
	toward(&s.tailDev, off, b)
	s.low, s.high = min(s.low, x), max(s.high, x)
	s.last = x
	s.n = min(s.n+1, 1<<30)
	return score
}

// toward moves an average by a share of the way.
func toward(mean *float32, x, share float64) { *mean += float32(share * (x - float64(*mean))) }

// season holds a reading against the usual level at that time of day, learns it,
// and tells whether that level says more than the one of all hours. It returns
// how far the reading and the newest ones lie from it, in deviations.
func (s *Series) season(at time.Time, x, a, floor float64) (dev, shift float64, ok bool) {
	now := at.Unix()
	second := float64((now%86400 + 86400) % 86400)
	h := int(second / span)
	if s.known&(1<<h) != 0 {
		// Between the middles of two parts the level lies between theirs.
		near, far := h+1, second/span-float64(h)-0.5
		if far < 0 {
			near, far = h+parts-1, -far
		}
		base := float64(s.day[h])
		if near %= parts; s.known&(1<<near) != 0 {
			base += far * (float64(s.day[near]) - base)
		}
		e := x - base
		scale := max(float64(s.restDev)*normal, floor)
		toward(&s.rest, e, quick)
		ok = s.n > many && now/3600-int64(s.first) >= tested && s.restDev < gain*s.scale
		dev, shift = e/scale, float64(s.rest)/scale
		if e = math.Abs(e); s.n >= many {
			e = min(e, clip*scale)
		}
		toward(&s.restDev, e, a)
	} else {
		s.day[h] = float32(x)
		s.known |= 1 << h
	}
	d := x - float64(s.day[h])
	if s.n > 20*parts {
		bound := clip * max(float64(s.restDev)*normal, floor)
		d = min(bound, max(-bound, d))
	}
	s.day[h] += float32(max(daily, parts/float64(s.n+parts)) * d)
	return dev, shift, ok
}

// AppendBinary appends the state of the series to b.
func (s *Series) AppendBinary(b []byte) []byte {
	for _, v := range s.wide() {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(*v))
	}
	for _, v := range s.narrow() {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(*v))
	}
	b = binary.LittleEndian.AppendUint16(b, s.known)
	b = binary.LittleEndian.AppendUint16(b, s.gap)
	b = binary.LittleEndian.AppendUint32(b, s.first)
	return binary.LittleEndian.AppendUint32(b, s.n)
}

func (s *Series) wide() [5]*float64 { return [...]*float64{&s.level, &s.now, &s.last, &s.low, &s.high} }

func (s *Series) narrow() []*float32 {
	out := []*float32{&s.scale, &s.diff, &s.rest, &s.restDev, &s.tail, &s.tailDev, &s.gaps}
	for i := range s.day {
		out = append(out, &s.day[i])
	}
	return out
}

// DecodeBinary reads a state that AppendBinary wrote and returns what follows
// it. After an error the series is as it was.
func (s *Series) DecodeBinary(b []byte) ([]byte, error) {
	var t Series
	wide, narrow := t.wide(), t.narrow()
	if len(b) < 8*len(wide)+4*len(narrow)+12 {
		return b, ErrState
	}
	rest := b
	for _, v := range wide {
		if *v = math.Float64frombits(binary.LittleEndian.Uint64(rest)); *v-*v != 0 {
			return b, ErrState
		}
		rest = rest[8:]
	}
	for _, v := range narrow {
		if *v = math.Float32frombits(binary.LittleEndian.Uint32(rest)); *v-*v != 0 {
			return b, ErrState
		}
		rest = rest[4:]
	}
	t.known, t.gap = binary.LittleEndian.Uint16(rest), binary.LittleEndian.Uint16(rest[2:])
	t.first, t.n = binary.LittleEndian.Uint32(rest[4:]), binary.LittleEndian.Uint32(rest[8:])
	*s = t
	return rest[12:], nil
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

// Learn takes the readings of one time without scoring them.
func (d *Device) Learn(at time.Time, row []float64) { d.score(at, row) }

// Score takes the readings of one time, NaN where one is missing, and tells how unusual
// it is, in [0,1], and the series that speak for it, at most five, the first one
// most. The slice is valid until the next call.
func (d *Device) Score(at time.Time, row []float64) (float64, []int) {
	joint := d.score(at, row)
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
	return 1 - math.Exp(-joint/burst), top[:min(5, len(top))]
}

func (d *Device) score(at time.Time, row []float64) float64 {
	// The strongest series count most; many a little make some.
	var best [8]float64
	for i := range d.series {
		s := d.series[i].Score(at, row[i])
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
		w *= rank
	}
	out := 0.0
	if d.n > few {
		out = max(0, (joint-d.mean)/max(normal*d.dev, even))
	}
	d.recent += carry * (out - d.recent)
	out += blend * (d.recent - out)
	d.n++
	a := max(usual, 1/d.n)
	most := burst * max(d.dev, even)
	d.mean += a * (min(joint, d.mean+most) - d.mean)
	d.dev += a * (min(math.Abs(joint-d.mean), most) - d.dev)
	return out
}
