package ipmi

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/device"
)

// repository is the sensor data records as they were last built.
type repository struct {
	records     [][]byte
	reservation uint16
	changed     time.Time
}

// Sensor types (table 42-3), base units (table 43-15) and entity ids (table 43-13).
const (
	typeTemperature = 0x01
	typeVoltage     = 0x02
	typeCurrent     = 0x03
	typeFan         = 0x04
	typeSupply      = 0x08
	typeOther       = 0x0b // other units-based sensor

	unitCelsius = 1
	unitVolts   = 4
	unitAmperes = 5
	unitWatts   = 6
	unitRPM     = 18

	readingThreshold = 0x01
	readingSpecific  = 0x6f
)

var entities = map[string]byte{"cpu": 0x03, "disk": 0x04, "psu": 0x0a, "gpu": 0x0b, "fan": 0x1d, "dimm": 0x20}

// entity is the id and instance of the part that a sensor belongs to.
func entity(s *device.Sensor) (id, instance byte) {
	kind := strings.TrimRight(s.Part, "0123456789")
	if e, ok := entities[kind]; ok {
		n, err := strconv.Atoi(s.Part[len(kind):])
		if err == nil && n < 0x5f {
			return e, byte(n + 1)
		}
	}
	if strings.Contains(strings.ToLower(s.Name), "inlet") {
		return 0x37, 1
	}
	return 0x07, 1 // system board
}

// factors are M, B and their exponents: a reading is (M·raw + B·10^k)·10^r
// (section 36.3).
type factors struct {
	m, b int
	k, r int
}

// linear finds factors that map 0 to 255 onto a range, with round steps where that
// costs at most 2 % of the resolution.
func linear(lo, hi float64) factors {
	if hi <= lo || math.IsNaN(lo) || math.IsNaN(hi) {
		lo, hi = 0, 255
	}
	step := (hi - lo) / 255
	f := factors{m: 1}
	for r := 7; r >= -8; r-- {
		m := math.Ceil(step/math.Pow10(r) - 1e-9)
		if m > 511 {
			break
		}
		f.m, f.r = int(m), r
		if m*math.Pow10(r) <= step*1.02 {
			break
		}
	}
	b := lo / math.Pow10(f.r)
	for f.k = 0; math.Abs(b) > 511 && f.k < 7; f.k++ {
		b /= 10
	}
	f.b = int(math.Round(max(-512, min(511, b))))
	return f
}

func (f factors) value(raw byte) float64 {
	return (float64(f.m)*float64(raw) + float64(f.b)*math.Pow10(f.k)) * math.Pow10(f.r)
}

// raw is the byte nearest to a value.
func (f factors) raw(v float64) byte {
	if math.IsNaN(v) {
		return 0
	}
	x := (v/math.Pow10(f.r) - float64(f.b)*math.Pow10(f.k)) / float64(f.m)
	return byte(max(0, min(255, math.Round(x))))
}

func units(k device.SensorKind) (sensorType, units1, base byte) {
	switch k {
	case device.SensorTemperature:
		return typeTemperature, 0, unitCelsius
	case device.SensorFan:
		return typeFan, 0, unitRPM
	case device.SensorPower:
		return typeOther, 0, unitWatts
	case device.SensorVoltage:
		return typeVoltage, 0, unitVolts
	case device.SensorCurrent:
		return typeCurrent, 0, unitAmperes
	case device.SensorDuty:
		return typeFan, 1, 0 // percent
	}
	return typeSupply, 0xc0, 0 // no analogue reading
}

// thresholds in the order of Get Sensor Thresholds, and the mask of those there
// are. One that a byte cannot hold is left out rather than told wrongly.
func thresholds(s *device.Sensor, f factors) (mask byte, raw [6]byte) {
	lo, hi := f.value(0), f.value(255)
	for i, v := range [6]float64{s.LNC, s.LC, s.LNR, s.UNC, s.UC, s.UNR} {
		if v >= lo && v <= hi { // not NaN
			mask |= 1 << i
			raw[i] = f.raw(v)
		}
	}
	return mask, raw
}

// name is an ID string: at most 16 bytes of ASCII (section 43.1).
func name(s string) []byte {
	s = strings.TrimSpace(s[:min(len(s), 16)])
	return append([]byte{0xc0 | byte(len(s))}, s...)
}

// header fills id, version, type and length of a record.
func header(id uint16, kind byte, record []byte) []byte {
	binary.LittleEndian.PutUint16(record, id)
	record[2], record[3], record[4] = 0x51, kind, byte(len(record)-5)
	return record
}

// locator is the management controller's device locator record (section 43.9).
func locator(id uint16) []byte {
	r := make([]byte, 15)
	r[5], r[8], r[12], r[13] = 0x20, 0x87, 0x06, 1
	return header(id, 0x12, append(r, name("BMC")...))
}

// fullSensor is a full sensor record (table 43-1).
func fullSensor(id uint16, s *device.Sensor) []byte {
	f := linear(s.MinRange, s.MaxRange)
	r := make([]byte, 47)
	r[5], r[7] = 0x20, s.Number
	r[8], r[9] = entity(s)
	r[10] = 0x7f
	r[11] = 0x40
	r[12], r[20], r[21] = units(s.Kind)
	if s.Kind == device.SensorPSU {
		r[13] = readingSpecific
		for _, i := range []int{14, 16, 18} {
			r[i] = 0x7f // offsets 0 to 6
		}
		return header(id, 0x01, append(r, name(s.Name)...))
	}
	mask, raw := thresholds(s, f)
	if mask != 0 {
		r[11] |= 0x04 // thresholds can be read
	}
	r[13] = readingThreshold
	// Events: going low below lower limits, going high above upper ones; and which
	// limits a reading is compared with.
	var events uint16
	for i := range 6 {
		if mask&(1<<i) == 0 {
			continue
		}
		if i < 3 {
			events |= 1 << (2 * i)
		} else {
			events |= 2 << (2 * i)
		}
	}
	binary.LittleEndian.PutUint16(r[14:], events|uint16(mask&7)<<12)
	binary.LittleEndian.PutUint16(r[16:], events|uint16(mask>>3)<<12)
	r[18] = mask
	r[24], r[25] = byte(f.m), byte(f.m>>8)<<6
	r[26], r[27] = byte(f.b), byte(f.b>>8)<<6
	r[29] = byte(f.r)<<4 | byte(f.k)&0x0f
	r[34], r[35] = 0xff, 0x00
	for i, at := range [6]int{41, 40, 39, 38, 37, 36} {
		r[at] = raw[i]
	}
	return header(id, 0x01, append(r, name(s.Name)...))
}

// refreshSDR rebuilds the records and notes when they differ from the last ones.
func (s *Server) refreshSDR() {
	sensors := s.b.Sensors()
	records := make([][]byte, 0, len(sensors)+1)
	records = append(records, locator(1))
	for i := range sensors {
		records = append(records, fullSensor(uint16(i+2), &sensors[i]))
	}
	if !slices.EqualFunc(records, s.sdr.records, slices.Equal[[]byte]) {
		s.sdr.records, s.sdr.changed = records, s.b.Now()
		s.sdr.reservation++
	}
}

// sdrInfo is Get SDR Repository Info (section 33.9).
func (s *Server) sdrInfo(request) ([]byte, byte) {
	s.refreshSDR()
	out := []byte{0x51}
	out = binary.LittleEndian.AppendUint16(out, uint16(len(s.sdr.records)))
	out = binary.LittleEndian.AppendUint16(out, 0xffff)
	out = binary.LittleEndian.AppendUint32(out, unixTime(s.sdr.changed))
	out = binary.LittleEndian.AppendUint32(out, unixTime(s.sdr.changed))
	return append(out, 0x02), ccOK // Reserve SDR Repository is supported
}

func (s *Server) sdrReserve(request) ([]byte, byte) {
	s.refreshSDR()
	if s.sdr.reservation++; s.sdr.reservation == 0 {
		s.sdr.reservation = 1
	}
	return binary.LittleEndian.AppendUint16(nil, s.sdr.reservation), ccOK
}

// sdrGet is Get SDR (section 33.12). Record ids count from 1.
func (s *Server) sdrGet(r request) ([]byte, byte) {
	if s.sdr.records == nil {
		s.refreshSDR()
	}
	id := binary.LittleEndian.Uint16(r.data[2:])
	offset, count := int(r.data[4]), int(r.data[5])
	if offset > 0 && binary.LittleEndian.Uint16(r.data) != s.sdr.reservation {
		return nil, ccReservation
	}
	switch id {
	case 0:
		id = 1
	case 0xffff:
		id = uint16(len(s.sdr.records))
	}
	if int(id) > len(s.sdr.records) {
		return nil, ccNotPresent
	}
	next := id + 1
	if int(id) == len(s.sdr.records) {
		next = 0xffff
	}
	part, cc := slice(s.sdr.records[id-1], offset, count)
	return append(binary.LittleEndian.AppendUint16(nil, next), part...), cc
}

func (s *Server) sensor(number byte) *device.Sensor {
	sensors := s.b.Sensors()
	for i := range sensors {
		if sensors[i].Number == number {
			return &sensors[i]
		}
	}
	return nil
}

// sensorReading is Get Sensor Reading (section 35.14).
func (s *Server) sensorReading(r request) ([]byte, byte) {
	x := s.sensor(r.data[0])
	if x == nil {
		return nil, ccNotPresent
	}
	flags := byte(0xc0) // events and scanning on
	if !x.Present {
		return []byte{0, flags | 0x20, 0, 0}, ccOK
	}
	if x.Kind == device.SensorPSU {
		bits := uint16(x.Value)
		return []byte{0, flags, byte(bits), 0x80 | byte(bits>>8)}, ccOK
	}
	state := byte(0xc0)
	for i, v := range [6]float64{x.LNC, x.LC, x.LNR, x.UNC, x.UC, x.UNR} {
		if i < 3 && x.Value <= v || i >= 3 && x.Value >= v {
			state |= 1 << i
		}
	}
	return []byte{linear(x.MinRange, x.MaxRange).raw(x.Value), flags, state}, ccOK
}

// sensorThresholds is Get Sensor Thresholds (section 35.9).
func (s *Server) sensorThresholds(r request) ([]byte, byte) {
	x := s.sensor(r.data[0])
	if x == nil {
		return nil, ccNotPresent
	}
	if x.Kind == device.SensorPSU {
		return nil, ccInvalid
	}
	mask, raw := thresholds(x, linear(x.MinRange, x.MaxRange))
	return append([]byte{mask}, raw[:]...), ccOK
}

func (s *Server) sensorHysteresis(r request) ([]byte, byte) {
	if s.sensor(r.data[0]) == nil {
		return nil, ccNotPresent
	}
	return []byte{0, 0}, ccOK
}

// sensorType is Get Sensor Type (section 35.16).
func (s *Server) sensorType(r request) ([]byte, byte) {
	x := s.sensor(r.data[0])
	if x == nil {
		return nil, ccNotPresent
	}
	kind, _, _ := units(x.Kind)
	if x.Kind == device.SensorPSU {
		return []byte{kind, readingSpecific}, ccOK
	}
	return []byte{kind, readingThreshold}, ccOK
}
