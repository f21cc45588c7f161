package ipmi

import (
	"context"
	"math"
	"slices"

	"github.com/bougou/go-ipmi/pkg/client"

	"auspex/schemas"
)

// Threshold access support, bits 3:2 of the sensor capabilities (table 43-1, byte 12).
const (
	accessNone     = 0
	accessSettable = 2
	accessFixed    = 3 // they cannot be read from the sensor: the record has them
)

// Places in a full sensor record, its header included (table 43-1, less one).
const (
	atCapabilities = 11
	atLowerMask    = 15 // bits 6:4: which lower thresholds a fixed sensor is held against
	atUpperMask    = 17 // and the upper ones
	atReadable     = 18
	atUNR          = 36 // UNR, UCR, UNC, LNR, LCR, LNC
	atLNC          = 41
	fullSensor     = 0x01
	thresholdBased = 0x01
)

// bounds are the thresholds in the order of the masks and of Get Sensor Thresholds (section 35.9).
var bounds = [6]schemas.Bound{
	schemas.LowerCaution, schemas.LowerCritical, schemas.LowerFatal, schemas.UpperCaution, schemas.UpperCritical, schemas.UpperFatal,
}

// learnThresholds takes the thresholds of a sensor's record as it is on the wire; the parser
// of the library mixes up the bytes of the masks.
func (s *Sensor) learnThresholds(raw []byte) {
	if s.full == nil || s.Reading != thresholdBased || len(raw) <= atLNC || raw[3] != fullSensor {
		return
	}
	access, mask := raw[atCapabilities]>>2&3, raw[atReadable]
	switch access {
	case accessNone:
		mask = 0
	case accessFixed:
		mask = raw[atLowerMask]>>4&7 | raw[atUpperMask]>>4&7<<3
	}
	var values [6]uint8
	copy(values[:], raw[atUNR:atLNC+1])
	slices.Reverse(values[:])
	s.Settable = access == accessSettable && mask&0x3f != 0
	s.Thresholds = s.thresholds(mask, values)
}

// thresholds are those that the mask names, in the sensor's unit and the order of bounds.
// Those at or beyond either end of what the sensor can say, which tell no reading from
// another, are left out: firmware is seen that fills what it does not know with zeros or
// ones and sets the mask all the same.
func (s *Sensor) thresholds(mask uint8, raw [6]uint8) []schemas.Threshold {
	low, high := s.Value(s.full.SensorMinReadingRaw), s.Value(s.full.SensorMaxReadingRaw)
	if low > high {
		low, high = high, low
	}
	if low == high {
		low, high = math.Inf(-1), math.Inf(1)
	}
	var out []schemas.Threshold
	for i, b := range bounds {
		v := s.Value(raw[i])
		if mask&(1<<i) == 0 || math.IsNaN(v) || math.IsInf(v, 0) || v <= low || v >= high {
			continue
		}
		out = append(out, schemas.Threshold{Bound: b, Value: v})
	}
	return out
}

// Thresholds reads a sensor's thresholds as they are now (section 35.9); one that does not
// know the command has those of its record.
func (c *Conn) Thresholds(ctx context.Context, s *Sensor) ([]schemas.Threshold, error) {
	if s.full == nil {
		return nil, nil
	}
	out := s.Thresholds
	ctx = s.address().context(ctx)
	err := c.do(ctx, "read thresholds of "+s.Name, func(cl *client.Client) error {
		r, err := cl.GetSensorThresholds(ctx, s.Number)
		if _, refused := completion(err); refused {
			return nil
		}
		if err != nil {
			return err
		}
		var mask uint8
		for i, readable := range []bool{r.LNC_Readable, r.LCR_Readable, r.LNR_Readable, r.UNC_Readable, r.UCR_Readable, r.UNR_Readable} {
			if readable {
				mask |= 1 << i
			}
		}
		out = s.thresholds(mask, [6]uint8{r.LNC_Raw, r.LCR_Raw, r.LNR_Raw, r.UNC_Raw, r.UCR_Raw, r.UNR_Raw})
		return nil
	})
	return out, err
}

// address is that of the controller which owns the sensor.
func (s *Sensor) address() address { return address{s.Owner, s.LUN} }
