package trend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrState is returned for a state that this version did not write.
var ErrState = errors.New("unknown state of a series")

const stateVersion = 1

// AppendBinary appends the state of the series to b.
func (s *Series) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, stateVersion, byte(s.n))
	for _, v := range []int64{s.maxWidth, s.width, s.origin, s.first, s.last, s.total} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range []float32{s.sign, s.lastV, s.quantum} {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	for i := range s.n {
		k := s.at(i)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(k.first))
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(k.second))
		b = binary.LittleEndian.AppendUint32(b, uint32(k.n))
	}
	return b, nil
}

// Bounds of a state, within which no difference of times and no sum of widths
// overflows: some 146 years around 1970, and buckets of a year.
const (
	earliest = -1 << 62
	widest   = 1 << 55
)

// DecodeBinary reads a state that AppendBinary wrote and returns what follows
// it. After an error the series is as it was.
func (s *Series) DecodeBinary(b []byte) ([]byte, error) {
	const head = 2 + 6*8 + 3*4
	if len(b) < head || b[0] != stateVersion {
		return b, ErrState
	}
	n := int(b[1])
	if n > Buckets || len(b) < head+12*n {
		return b, fmt.Errorf("%w: %d buckets in %d bytes", ErrState, n, len(b))
	}
	var t Series
	t.n = n
	for i, p := range []*int64{&t.maxWidth, &t.width, &t.origin, &t.first, &t.last, &t.total} {
		*p = int64(binary.LittleEndian.Uint64(b[2+8*i:]))
	}
	for i, p := range []*float32{&t.sign, &t.lastV, &t.quantum} {
		*p = math.Float32frombits(binary.LittleEndian.Uint32(b[50+4*i:]))
	}
	if t.width < 0 || t.maxWidth <= 0 || t.maxWidth > widest || t.width > t.maxWidth || t.total < 0 || (t.total > 0) != (n > 0) ||
		t.origin < earliest || t.origin > t.last || t.first > t.last || t.last > -earliest || t.sign != 1 && t.sign != -1 {
		return b, fmt.Errorf("%w: fields contradict each other", ErrState)
	}
	rest := b[head:]
	for i := range n {
		k := &t.ring[i]
		k.first = math.Float32frombits(binary.LittleEndian.Uint32(rest[12*i:]))
		k.second = math.Float32frombits(binary.LittleEndian.Uint32(rest[12*i+4:]))
		k.n = int32(binary.LittleEndian.Uint32(rest[12*i+8:]))
		if k.n < 0 || k.n > 0 && (k.first-k.first != 0 || k.second-k.second != 0) {
			return b, fmt.Errorf("%w: bucket %d", ErrState, i)
		}
	}
	*s = t
	return rest[12*n:], nil
}

// The state of a follower is that of its parts, one after another, each of a
// fixed size but for the summaries.
const followerVersion = 1

// AppendBinary appends the state of the follower to b.
func (f *Follower) AppendBinary(b []byte) []byte {
	b = append(b, followerVersion)
	b, _ = binary.Append(b, binary.LittleEndian, &f.standing) // cannot fail, as the others below
	b = f.reporter.AppendBinary(b)
	b = f.long.appendBinary(b)
	b, _ = f.slow.AppendBinary(b)
	b, _ = f.quick.AppendBinary(b)
	b = append(b, byte(len(f.holds)))
	b, _ = binary.Append(b, binary.LittleEndian, f.holds)
	if f.drivers != nil {
		b, _ = binary.Append(b, binary.LittleEndian, &f.drivers.relation)
		for _, s := range []*Series{f.drivers.rest, f.drivers.load} {
			if s != nil {
				b, _ = s.AppendBinary(b)
			}
		}
	}
	return b
}

// DecodeBinary reads the whole of a state that AppendBinary wrote of a follower
// of the same target. After an error the follower is as it was.
func (f *Follower) DecodeBinary(b []byte) error {
	if len(b) == 0 || b[0] != followerVersion {
		return ErrState
	}
	next := NewFollower(f.target)
	next.limit, next.share = f.limit, f.share
	n, err := binary.Decode(b[1:], binary.LittleEndian, &next.standing)
	if err != nil {
		return ErrState
	}
	rest := b[1+n:]
	for _, decode := range []func([]byte) ([]byte, error){
		next.reporter.DecodeBinary, next.long.decodeBinary, next.slow.DecodeBinary, next.quick.DecodeBinary,
	} {
		if rest, err = decode(rest); err != nil {
			return err
		}
	}
	if len(rest) == 0 || next.slow.maxWidth != int64(slowest) || next.quick.maxWidth != int64(quickest) {
		return ErrState
	}
	next.holds = make([]hold, rest[0])
	if n, err = binary.Decode(rest[1:], binary.LittleEndian, next.holds); err != nil {
		return ErrState
	}
	rest = rest[1+n:]
	if d := next.drivers; d != nil {
		if n, err = binary.Decode(rest, binary.LittleEndian, &d.relation); err != nil {
			return ErrState
		}
		if rest = rest[n:]; len(rest) > 0 {
			d.rest, d.load = New(d.cfg), New(d.cfg)
			for _, s := range []*Series{d.rest, d.load} {
				if rest, err = s.DecodeBinary(rest); err != nil {
					return err
				}
			}
		}
		for _, v := range append(d.Mean[:], d.Cov[:]...) {
			if v-v != 0 {
				return fmt.Errorf("%w: a relation is not a number", ErrState)
			}
		}
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: %d bytes too many", ErrState, len(rest))
	}
	for len(next.holds) < len(f.others) {
		next.holds = append(next.holds, hold{})
	}
	next.others = f.others
	*f = *next
	return nil
}

// forecastSize is how long the state of a forecast is.
const forecastSize = 1 + 10*8

// appendBinary appends the forecast to b.
func (f *Forecast) appendBinary(b []byte) []byte {
	flags := byte(0)
	if f.Crossed {
		flags = 1
	}
	b = append(b, flags)
	var at int64
	if !f.At.IsZero() {
		at = f.At.UnixNano()
	}
	for _, v := range []int64{at, int64(f.Horizon), int64(f.P10), int64(f.P50), int64(f.P90)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	for _, v := range []float64{f.Probability, f.Level, f.Slope, f.Noise, f.Trend} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// decodeBinary reads a forecast that appendBinary wrote and returns what follows it.
func (f *Forecast) decodeBinary(b []byte) ([]byte, error) {
	if len(b) < forecastSize || b[0] > 1 {
		return b, ErrState
	}
	n := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[1+8*i:])) }
	x := func(i int) float64 { return math.Float64frombits(uint64(n(i))) }
	*f = Forecast{
		Crossed: b[0] == 1, Horizon: time.Duration(n(1)), P10: time.Duration(n(2)), P50: time.Duration(n(3)), P90: time.Duration(n(4)),
		Probability: x(5), Level: x(6), Slope: x(7), Noise: x(8), Trend: x(9),
	}
	if at := n(0); at != 0 {
		f.At = time.Unix(0, at).UTC()
	}
	if !(f.Probability >= 0 && f.Probability <= 1) {
		return b, ErrState
	}
	return b[forecastSize:], nil
}
