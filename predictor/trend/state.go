package trend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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
