// Package trend says when a series crosses a limit. A [Series] keeps a bounded
// summary of what it has read, whose buckets widen as time passes, so that the
// same code serves readings of seconds over minutes and readings of a quarter of
// an hour over weeks. A [Forecast] weighs several explanations of that summary
// (standing still, wandering, a steady trend, one that changes) by how well each
// foretold the readings so far, and gives the distribution of the crossing time.
// A [Follower] puts them together for a series with a limit: minutes and weeks,
// what load explains ([Drivers]) or a controller hides, and what is worth telling.
package trend

import (
	"math"
	"time"
)

// Buckets is how many buckets a series keeps.
const Buckets = 64

// bucket is the extreme toward the limit and the one before it: one odd reading
// does not make a bucket's value.
type bucket struct {
	first, second float32
	n             int32
}

func (b *bucket) add(v float32) {
	switch {
	case b.n == 0:
		b.first, b.second = v, v
	case b.n == 1 && v > b.first:
		b.first, b.second = v, b.first
	case b.n == 1:
		b.second = v
	case v > b.first:
		b.first, b.second = v, b.first
	case v > b.second:
		b.second = v
	}
	b.n++
}

func (b *bucket) merge(o bucket) {
	switch {
	case o.n == 0:
		return
	case b.n == 0:
		*b = o
		return
	}
	n := b.n + o.n
	hi, lo := b.first, o.first
	if lo > hi {
		hi, lo = lo, hi
	}
	if b.n > 1 && b.first == hi && b.second > lo {
		lo = b.second
	}
	if o.n > 1 && o.first == hi && o.second > lo {
		lo = o.second
	}
	b.first, b.second, b.n = hi, lo, n
}

// value is what stands for the bucket: the second extreme where there are
// enough readings to have one that means the same.
func (b *bucket) value() float64 {
	if b.n >= 3 {
		return float64(b.second)
	}
	return float64(b.first)
}

// Config says how a series is summarised.
type Config struct {
	// MaxWidth is the widest bucket. A day has four of six hours.
	MaxWidth time.Duration
	// Below is set where the limit is crossed downwards.
	Below bool
}

// Series is the summary of one series. Its zero value is not ready; see [New].
// It must not be used by two goroutines at once.
type Series struct {
	sign     float32
	maxWidth int64
	width    int64 // ns; 0 before the second reading
	origin   int64 // start of bucket 0 of the ring, ns
	n        int   // buckets in use; the last one is still being filled
	head     int   // index of bucket 0 in ring
	first    int64 // time of the first reading since the last reset, ns
	last     int64 // time of the last reading, ns
	lastV    float32
	quantum  float32 // smallest step seen between two readings
	total    int64   // readings
	closed   int     // buckets closed since the last forecast
	ring     [Buckets]bucket
}

// New returns an empty series.
func New(cfg Config) *Series {
	s := &Series{sign: 1, maxWidth: int64(cfg.MaxWidth)}
	if cfg.Below {
		s.sign = -1
	}
	if s.maxWidth <= 0 {
		s.maxWidth = int64(6 * time.Hour)
	}
	return s
}

// Reset forgets all readings, as after an exchange of the part.
func (s *Series) Reset() {
	*s = Series{sign: s.sign, maxWidth: s.maxWidth}
}

// Restart forgets all but the newest readings, whose bucket is still filling.
func (s *Series) Restart() {
	if s.n == 0 {
		return
	}
	b, keep := *s.at(s.n - 1), *s
	s.Reset()
	s.width, s.quantum, s.last, s.lastV = keep.width, keep.quantum, keep.last, keep.lastV
	s.origin = keep.origin + int64(keep.n-1)*keep.width
	s.first, s.n, s.total = s.origin, 1, keep.total
	s.ring[0] = b
}

// dense tells whether readings come about as often as buckets close.
func (s *Series) dense() bool {
	used := 0
	for i := range s.n {
		if s.at(i).n > 0 {
			used++
		}
	}
	return 3*used >= s.n
}

// fellBack tells whether the newest closed bucket lies in the lower half of what
// the buckets have held.
func (s *Series) fellBack() bool {
	if s.n < 2 {
		return false
	}
	low, high := math.Inf(1), math.Inf(-1)
	for i := range s.n - 1 {
		if b := s.at(i); b.n > 0 {
			low, high = min(low, b.value()), max(high, b.value())
		}
	}
	b := s.at(s.n - 2)
	return b.n > 0 && b.value() < (low+high)/2
}

// Span returns how much time the readings cover.
func (s *Series) Span() time.Duration { return time.Duration(s.last - s.first) }

// Resolution returns how much time a bucket covers.
func (s *Series) Resolution() time.Duration { return time.Duration(s.width) }

// Len returns how many readings the series has taken.
func (s *Series) Len() int64 { return s.total }

// Last returns the last reading and its time.
func (s *Series) Last() (time.Time, float64) {
	return time.Unix(0, s.last), float64(s.lastV * s.sign)
}

// at returns bucket i, oldest first.
func (s *Series) at(i int) *bucket { return &s.ring[(s.head+i)%Buckets] }

// Add takes a reading. Times must not fall; an earlier reading is left out. It
// returns whether enough has come since the last forecast that another is worth
// its while.
func (s *Series) Add(at time.Time, v float64) bool {
	t := at.UnixNano()
	if !(math.Abs(v) < math.MaxFloat32) || s.total > 0 && t <= s.last {
		return false
	}
	x := float32(v) * s.sign
	if s.total > 0 {
		if d := float32(math.Abs(float64(x - s.lastV))); d > 0 && (s.quantum == 0 || d < s.quantum) {
			s.quantum = d
		}
	}
	switch {
	case s.total == 0:
		s.first, s.origin = t, t
		s.n = 1
		s.ring[0].add(x)
	case s.width == 0:
		s.width = max(1e6, min(t-s.last, s.maxWidth))
		s.put(t, x)
	case t-s.last < s.width/2 && s.n <= 8 && s.total < 16:
		// The first readings lay further apart than readings do: begin again.
		s.width = max(1e6, t-s.last)
		s.head, s.n, s.origin, s.first = 0, 1, t, t
		s.ring = [Buckets]bucket{}
		s.ring[0].add(x)
	default:
		s.put(t, x)
	}
	s.last, s.lastV = t, x
	s.total++
	if s.closed > 0 {
		s.closed = 0
		return true
	}
	return false
}

func (s *Series) put(t int64, x float32) {
	i := (t - s.origin) / s.width
	for i >= Buckets && s.width < s.maxWidth {
		s.widen()
		i = (t - s.origin) / s.width
	}
	for i >= Buckets { // the oldest bucket goes
		drop := i - Buckets + 1
		if drop >= Buckets {
			s.head, s.n, s.origin = 0, 0, t-t%s.width
			s.ring = [Buckets]bucket{}
			i = 0
			break
		}
		s.ring[s.head] = bucket{}
		s.head = (s.head + 1) % Buckets
		s.n = max(0, s.n-1)
		s.origin += s.width
		i--
	}
	if int(i) >= s.n {
		s.closed++
		for s.n <= int(i) {
			*s.at(s.n) = bucket{}
			s.n++
		}
	}
	s.at(int(i)).add(x)
}

// widen doubles the width of the buckets.
func (s *Series) widen() {
	if s.width*2 > s.maxWidth {
		s.rescale(s.maxWidth)
		return
	}
	var next [Buckets]bucket
	for i := range s.n {
		next[i/2].merge(*s.at(i))
	}
	s.ring, s.head, s.n = next, 0, (s.n+1)/2
	s.width *= 2
}

// rescale sets a width that is not twice the one before.
func (s *Series) rescale(width int64) {
	var next [Buckets]bucket
	n := 0
	for i := range s.n {
		j := int((int64(i)*s.width + s.width/2) / width)
		next[j].merge(*s.at(i))
		n = j + 1
	}
	s.ring, s.head, s.n, s.width = next, 0, n, width
}
