package ipmi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/sensor"
	"github.com/bougou/go-ipmi/pkg/types"

	"auspex/schemas"
)

// Unit is what an analog sensor measures in (table 43-15).
type Unit string

// The units that have a place in our metrics; every other unit is "".
const (
	UnitCelsius Unit = "celsius"
	UnitVolts   Unit = "volts"
	UnitAmperes Unit = "amperes"
	UnitWatts   Unit = "watts"
	UnitRPM     Unit = "rpm"
	UnitPercent Unit = "percent"
	UnitNone    Unit = ""
)

// Sensor is a sensor of a data record of type 01h, 02h or 03h (sections 43.1 to 43.3).
type Sensor struct {
	Owner    uint8 // slave address of its controller, or software id; bit 0 tells which
	LUN      uint8
	Number   uint8 // of an owner and a LUN
	Name     string
	Type     uint8 // table 42-3
	Reading  uint8 // event/reading type, table 42-1; 01h is threshold
	Entity   uint8 // table 43-13
	Instance uint8
	Unit     Unit
	Analog   bool

	// Thresholds are those of the record, in the sensor's unit; where they are settable, they
	// are what they were once, and [Conn.Thresholds] has them as they are.
	Thresholds []schemas.Threshold
	Settable   bool

	// EventOnly is of one that has no state to read.
	EventOnly bool

	full *types.SDRFull
}

// Value converts a raw reading (section 36.3).
func (s *Sensor) Value(raw uint8) float64 {
	if s.full == nil {
		return float64(raw)
	}
	return s.full.ConvertReading(raw)
}

// SDRStamp names a state of the sensor records: while it does not change, they
// do not have to be read again (section 33.9).
type SDRStamp struct {
	Records      int
	Add, Erase   time.Time
	FromDevice   bool // there is no repository; the sensors are the controller's own
	DeviceChange uint32
}

// SDRStamp reads the state of the sensor record repository.
func (c *Conn) SDRStamp(ctx context.Context) (SDRStamp, error) {
	var out SDRStamp
	err := c.do(ctx, "read SDR repository info", func(cl *client.Client) error {
		r, err := cl.GetSDRRepoInfo(ctx)
		if err == nil {
			out = SDRStamp{Records: int(r.RecordCount), Add: r.MostRecentAdditionTime, Erase: r.MostRecentEraseTime}
		}
		return err
	})
	return out, err
}

// maxSensorRecords bounds a walk, for controllers whose records go in circles.
const maxSensorRecords = 4096

// SensorRecords reads all sensor data records; it costs one command a record or more. What it returns, each record behind
// its length, is the same for the same records; [ParseSensors] takes it apart.
func (c *Conn) SensorRecords(ctx context.Context) ([]byte, error) {
	var out []byte
	id, seen := uint16(0), 0
	for {
		var next uint16
		err := c.do(ctx, fmt.Sprintf("read SDR %#04x", id), func(cl *client.Client) error {
			r, err := cl.GetSDR(ctx, id)
			if err != nil {
				return err
			}
			next = r.NextRecordID
			out = binary.AppendUvarint(out, uint64(len(r.RecordData)))
			out = append(out, r.RecordData...)
			return nil
		})
		if errors.Is(err, ErrNoRecord) && seen == 0 {
			return nil, nil // an empty repository
		}
		if err != nil {
			return nil, err
		}
		seen++
		if next == LastRecord || next == id || seen >= maxSensorRecords {
			return out, nil
		}
		id = next
	}
}

// each are the records of [Conn.SensorRecords].
func each(records []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(records) > 0 {
			n, at := binary.Uvarint(records)
			if at <= 0 || n > uint64(len(records)-at) {
				return
			}
			raw := records[at : at+int(n)] //nolint:gosec // within it
			records = records[at+len(raw):]
			if !yield(raw) {
				return
			}
		}
	}
}

// ParseSensors returns the sensors of [Conn.SensorRecords]. A record that cannot be parsed is left out and counted in bad.
func ParseSensors(records []byte) (out []Sensor, bad int) {
	for raw := range each(records) {
		sdr, err := parseSDR(raw, LastRecord)
		if err != nil {
			bad++
			continue
		}
		out = append(out, sensorsOf(sdr, raw)...)
	}
	return out, bad
}

// parseSDR keeps a panic of the parser on a malformed record from the caller.
func parseSDR(raw []byte, next uint16) (sdr *types.SDR, err error) {
	defer func() {
		if p := recover(); p != nil {
			sdr, err = nil, fmt.Errorf("parse SDR: %v", p)
		}
	}()
	return types.ParseSDR(raw, next)
}

// Where a record says for how many sensors it is, less one (tables 43-2 and 43-3).
const (
	atCompactSharing   = 23
	atEventOnlySharing = 12
)

// sensorsOf returns the sensors that a record, as it is on the wire, describes; of another record there are none.
func sensorsOf(sdr *types.SDR, raw []byte) []Sensor {
	if sdr == nil || sdr.RecordHeader == nil {
		return nil
	}
	switch {
	case sdr.Full != nil:
		f := sdr.Full
		s := Sensor{
			Number: uint8(f.SensorNumber), Name: clean(f.IDStringBytes), Type: uint8(f.SensorType), Reading: uint8(f.SensorEventReadingType),
			Entity: uint8(f.SensorEntityID), Instance: uint8(f.SensorEntityInstance), Owner: uint8(f.GeneratorID.OwnerID()),
			LUN:  uint8(f.GeneratorID.LUN()),
			full: f, Analog: f.HasAnalogReading(),
		}
		if s.Analog {
			s.Unit = unitOf(f.SensorUnit)
		}
		s.learnThresholds(raw)
		return []Sensor{s}
	case sdr.Compact != nil:
		f := sdr.Compact
		return shared(Sensor{
			Number: uint8(f.SensorNumber), Name: clean(f.IDStringBytes), Type: uint8(f.SensorType), Reading: uint8(f.SensorEventReadingType),
			Entity: uint8(f.SensorEntityID), Instance: uint8(f.SensorEntityInstance), Owner: uint8(f.GeneratorID.OwnerID()),
			LUN: uint8(f.GeneratorID.LUN()),
		}, raw, atCompactSharing)
	case sdr.EventOnly != nil:
		f := sdr.EventOnly
		return shared(Sensor{
			Number: uint8(f.SensorNumber), Name: clean(f.IDStringBytes), Type: uint8(f.SensorType), Reading: uint8(f.SensorEventReadingType),
			Entity: uint8(f.SensorEntityID), Instance: uint8(f.SensorEntityInstance), Owner: uint8(f.GeneratorID.OwnerID()),
			LUN: uint8(f.GeneratorID.LUN()), EventOnly: true,
		}, raw, atEventOnlySharing)
	}
	return nil
}

// shared returns all sensors of a record that may be for several: their numbers follow each other, and so do the
// digits or letters after their names.
func shared(s Sensor, raw []byte, at int) []Sensor {
	if len(raw) <= at+1 {
		return []Sensor{s}
	}
	count, letters, from, instances := int(raw[at]&0x0f), raw[at]>>4&3 == 1, int(raw[at+1]&0x7f), raw[at+1]&0x80 != 0
	if count <= 1 {
		return []Sensor{s}
	}
	out := make([]Sensor, count)
	for i := range out {
		x := s
		x.Number += uint8(i) //nolint:gosec // at most 15
		if instances {
			x.Instance += uint8(i) //nolint:gosec // at most 15
		}
		n := from + i
		switch {
		case !letters:
			x.Name += strconv.Itoa(n)
		case n < 26:
			x.Name += string(rune('A' + n))
		default:
			x.Name += string([]rune{rune('A' + n/26 - 1), rune('A' + n%26)})
		}
		out[i] = x
	}
	return out
}

func clean(b []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(b)))
}

func unitOf(u types.SensorUnit) Unit {
	if u.Percentage {
		return UnitPercent
	}
	switch uint8(u.BaseUnit) {
	case 1:
		return UnitCelsius
	case 4:
		return UnitVolts
	case 5:
		return UnitAmperes
	case 6:
		return UnitWatts
	case 18:
		return UnitRPM
	}
	return UnitNone
}

// Reading is what a sensor says now (section 35.14).
type Reading struct {
	OK     bool  // false: not present, scanning disabled, or being updated
	Raw    uint8 // of an analog sensor
	States uint16
}

// Read reads a sensor; one that is not there gives OK false and no error.
func (c *Conn) Read(ctx context.Context, s *Sensor) (Reading, error) {
	var out Reading
	err := c.do(ctx, "read sensor "+s.Name, func(*client.Client) error {
		var r sensor.GetSensorReadingResponse
		if err := c.exchange(ctx, s.address(), &sensor.GetSensorReadingRequest{SensorNumber: s.Number}, &r); err != nil {
			return err
		}
		out = Reading{OK: !r.ReadingUnavailable && !r.SensorScanningDisabled, Raw: r.Reading}
		out.States = uint16(r.OptionalData1) | uint16(r.OptionalData2&0x7f)<<8
		return nil
	})
	if errors.Is(err, ErrNoRecord) {
		return Reading{}, nil
	}
	return out, err
}
