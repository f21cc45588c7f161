// Package sel decodes records of an IPMI system event log, from their 16 bytes
// or from the text that `ipmitool sel elist` prints, into events.
package sel

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// typeMemory and typeFirmware are sensor types (IPMI 2.0, table 42-3); preInit is
// the last timestamp that counts seconds since the controller's start and not
// since 1970 (IPMI 2.0, section 37.1).
const (
	preInit      = 0x20000000
	typeMemory   = 0x0c
	typeFirmware = 0x0f
	noTime       = 0xffffffff // the controller does not know the time
	typePanic    = 0xf0       // record type of the Linux driver; the text of a panic follows
)

// Record is an entry of the log (IPMI 2.0, table 32-1).
type Record struct {
	ID           uint16
	Type         byte      // 0x02 is a system event; 0xc0 and above are the vendor's own
	Time         time.Time // the controller's clock
	PreInit      bool      // the clock was not set; Time counts from 1970
	Generator    uint16
	SensorType   byte
	SensorNumber byte
	EventType    byte // event/reading type, without the direction
	Deasserted   bool
	Data         [3]byte
	OEM          []byte // data of a vendor's record
	// Sensor and Text are what ipmitool has printed; empty for raw records. Detail
	// is what a vendor has added, such as the name of a memory module.
	Sensor, Text, Detail string
	Reading              string
	// Manufacturer is that of the controller, by its IANA number; 0 where it is not known.
	Manufacturer uint32
}

// ParseRaw decodes the 16 bytes of a record.
func ParseRaw(b []byte) (Record, error) {
	if len(b) != 16 {
		return Record{}, fmt.Errorf("SEL record has %d bytes, not 16", len(b))
	}
	r := Record{ID: binary.LittleEndian.Uint16(b), Type: b[2]}
	if r.ID == 0 || r.ID == 0xffff {
		return Record{}, fmt.Errorf("SEL record id %#04x is reserved", r.ID)
	}
	switch {
	case r.Type >= 0xe0: // without a timestamp
		r.OEM = append([]byte(nil), b[3:]...)
		if r.Type == typePanic {
			r.Text = "Linux kernel panic: " + strings.ToValidUTF8(strings.TrimRight(string(b[5:]), "\x00 "), "?")
		}
		return r, nil
	case r.Type >= 0xc0:
		r.setTime(binary.LittleEndian.Uint32(b[3:]))
		r.OEM = append([]byte(nil), b[7:]...)
		return r, nil
	case r.Type != 0x02:
		return Record{}, fmt.Errorf("SEL record type %#02x is not known", r.Type)
	}
	r.setTime(binary.LittleEndian.Uint32(b[3:]))
	r.Generator = binary.LittleEndian.Uint16(b[7:])
	r.SensorType, r.SensorNumber = b[10], b[11]
	r.EventType, r.Deasserted = b[12]&0x7f, b[12]&0x80 != 0
	copy(r.Data[:], b[13:16])
	return r, nil
}

// Unset reports whether a time of a controller's clock counts from its start and not from 1970.
func Unset(t time.Time) bool { return t.Unix() <= preInit || t.Unix() == noTime }

func (r *Record) setTime(sec uint32) {
	if r.PreInit = sec <= preInit || sec == noTime; sec != noTime {
		r.Time = time.Unix(int64(sec), 0).UTC()
	}
}

// ParseHex decodes a line with a record in hexadecimal digits; blanks, commas,
// colons and 0x between the bytes are allowed.
func ParseHex(line string) (Record, error) {
	s := strings.NewReplacer("0x", "", "0X", "", " ", "", "\t", "", ",", "", ":", "").Replace(strings.TrimSpace(line))
	b, err := hex.DecodeString(s)
	if err != nil {
		return Record{}, fmt.Errorf("SEL record is not hexadecimal: %w", err)
	}
	return ParseRaw(b)
}

// oem reads a vendor's record from its columns after the time: "OEM record c0 |
// 000137 | 050880000000", or what Linux writes when it panics.
func (r *Record) oem(f []string) bool {
	switch n, ok := strings.CutPrefix(f[0], "OEM record "); {
	case ok:
		r.Type = 0xc0
		if v, err := strconv.ParseUint(n, 16, 8); err == nil && v >= 0xc0 {
			r.Type = byte(v)
		}
	case strings.HasPrefix(f[0], "Linux kernel panic"):
		r.Type = typePanic
	default:
		return false
	}
	r.Text = strings.Join(f, " ")
	return true
}

// Offset is the event's offset within its type (low half of event data 1).
func (r *Record) Offset() byte { return r.Data[0] & 0x0f }

// Code is the sensor type and the offset in hexadecimal, such as "08/03".
func (r *Record) Code() string { return fmt.Sprintf("%02x/%02x", r.SensorType, r.Offset()) }

// ErrNothing marks a line that holds no record, such as ipmitool's "SEL has no entries".
var ErrNothing = errors.New("no record")

// ParseElist decodes a line of `ipmitool sel elist` (or `sel list`): " 1a |
// 04/12/2026 | 19:48:09 | Power Supply PS1 Status | Power Supply AC lost |
// Asserted". Times are taken as UTC.
func ParseElist(line string) (Record, error) {
	if s := strings.TrimSpace(line); s == "" || strings.HasPrefix(s, "SEL has no entries") || strings.HasPrefix(s, "SEL Information") {
		return Record{}, ErrNothing
	}
	f := strings.Split(line, "|")
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	if len(f) < 2 {
		return Record{}, fmt.Errorf("SEL line has %d column, not at least 2", len(f))
	}
	id, err := strconv.ParseUint(f[0], 16, 16)
	if err != nil {
		return Record{}, fmt.Errorf("SEL record id %.20q is not hexadecimal", f[0])
	}
	r := Record{ID: uint16(id), Type: 0x02}
	if r.oem(f[1:]) { // without a time
		return r, nil
	}
	if len(f) < 4 {
		return Record{}, fmt.Errorf("SEL line has %d columns, not at least 4", len(f))
	}
	if err := r.elistTime(f[1], f[2]); err != nil {
		return Record{}, err
	}
	f = f[3:]
	if r.oem(f) {
		return r, nil
	}
	if len(f) < 2 {
		return Record{}, errors.New("SEL line names no event")
	}
	for _, s := range f[2:] { // direction, readings, the vendor's details
		switch {
		case strings.EqualFold(s, "Asserted"):
		case strings.EqualFold(s, "Deasserted"):
			r.Deasserted = true
		case strings.HasPrefix(s, "Reading "):
			r.Reading = s
		case s != "":
			r.Detail = strings.TrimSpace(r.Detail + " " + s)
		}
	}
	t, sensor, ok := faults.SensorTypeNamed(f[0])
	if !ok {
		t, sensor = 0xc0, f[0]
	}
	r.SensorType, r.Sensor, r.Text = t, sensor, f[1]
	if n, ok := strings.CutPrefix(sensor, "#0x"); ok { // `sel list` gives the number only
		if v, err := strconv.ParseUint(n, 16, 8); err == nil {
			r.SensorNumber, r.Sensor = byte(v), ""
		}
	}
	text := f[1]
	if i := strings.Index(text, " ("); i > 0 {
		text, r.Detail = text[:i], strings.TrimSuffix(strings.TrimPrefix(text[i+2:], "@"), ")")
	}
	et, offs, found := faults.SELText(t, text)
	if !found {
		et, offs, found = faults.SELText(t, trimType(text, t))
	}
	if !found && t == typeFirmware { // the text is that of event data 2; the offset stands in the type's name
		for i, name := range []string{"System Firmware Error", "System Firmware Hang", "System Firmware Progress"} {
			if strings.HasPrefix(f[0], name) {
				et, offs, found, r.Detail = faults.SELSensorSpecific, byte(i), true, text
			} else if text == "Unknown "+name[len("System Firmware "):] {
				et, offs, found = faults.SELSensorSpecific, byte(i), true
			}
		}
	}
	if !found {
		r.EventType, r.Data[0] = 0, 0
		return r, nil
	}
	r.EventType, r.Data[0] = et, offs
	return r, nil
}

// trimType removes a repeated sensor type, as in "Power Unit Redundancy: Fully Redundant".
func trimType(text string, _ byte) string {
	if i := strings.LastIndex(text, ": "); i > 0 {
		return text[i+2:]
	}
	return text
}

// elistTime reads date and time in the forms of ipmitool's releases: of several
// locales, with the zone's name, before the controller's clock was set
// ("Pre-Init | 0000000012", "S+ 70/001 | 00:00:12 UTC"), and "Unspecified".
func (r *Record) elistTime(date, clock string) error {
	clock, zone := clockZone(clock)
	switch {
	case strings.EqualFold(date, "Pre-Init"):
		r.PreInit, r.Time = true, time.Unix(0, 0).UTC()
		if s, err := strconv.ParseInt(strings.Trim(clock, "s "), 10, 32); err == nil && s >= 0 {
			r.Time = time.Unix(s, 0).UTC()
		}
		return nil
	case strings.HasPrefix(date, "S+"):
		r.PreInit, r.Time = true, time.Unix(0, 0).UTC()
		if t, err := time.Parse("06/002 15:04:05", strings.TrimSpace(date[2:])+" "+clock); err == nil {
			r.Time = t
		}
		return nil
	case strings.EqualFold(date, "Unspecified"), strings.EqualFold(date, "Unknown"):
		r.PreInit = true
		return nil
	}
	for _, layout := range []string{
		"01/02/2006 15:04:05", "01/02/06 15:04:05", "01/02/2006 03:04:05 PM", "01/02/06 03:04:05 PM", "2006-01-02 15:04:05",
		"02.01.2006 15:04:05",
	} {
		if t, err := time.Parse(layout, date+" "+clock); err == nil {
			r.Time = t.Add(-zone).UTC()
			r.PreInit = r.Time.Unix() <= preInit
			return nil
		}
	}
	return fmt.Errorf("SEL time %.20q %.20q", date, clock)
}

// clockZone splits a zone from a time of day and returns its offset; names say
// nothing certain and are taken as UTC.
func clockZone(s string) (clock string, offset time.Duration) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 || s[i+1:] == "AM" || s[i+1:] == "PM" {
		return s, 0
	}
	for _, layout := range []string{"-07", "-0700"} {
		if t, err := time.Parse(layout, s[i+1:]); err == nil {
			_, sec := t.Zone()
			return s[:i], time.Duration(sec) * time.Second
		}
	}
	return s[:i], 0
}

// Event says what a record means. Sensor is the sensor's name from the SDR, ""
// where it is not known; then the one that ipmitool printed is used. Resource,
// ID and Observed are the caller's to set.
func (r *Record) Event(sensor string) schemas.Event {
	if sensor == "" {
		sensor = r.Sensor
	}
	ev := schemas.Event{Time: r.Time, Source: schemas.SourceIPMI, Type: schemas.EventBMCSEL}
	ev.SetAttr("record", strconv.Itoa(int(r.ID)))
	if r.PreInit {
		ev.SetAttr("clock", "unset")
	}
	if r.Type >= 0xc0 {
		ev.Code, ev.Severity = fmt.Sprintf("oem/%02x", r.Type), schemas.SeverityInfo
		if r.Type == typePanic {
			ev.Severity = schemas.SeverityCritical
		}
		ev.Message = r.Text
		number, maker, ok := r.Maker()
		if ok {
			ev.SetAttr("manufacturer_id", strconv.FormatUint(uint64(number), 10))
			if maker != "" {
				ev.SetAttr("manufacturer", maker)
				maker = " of " + maker
			}
		}
		switch {
		case ev.Message != "":
		case ok:
			ev.Message = fmt.Sprintf("OEM record %02xh%s: %s", r.Type, maker, hex.EncodeToString(r.OEM[3:]))
		default:
			ev.Message = fmt.Sprintf("OEM record %02xh: %s", r.Type, hex.EncodeToString(r.OEM))
		}
		ev.SetAttr("action", action(&ev))
		return ev
	}
	e := faults.SEL(r.SensorType, r.EventType, r.Offset())
	if r.EventType == 0 {
		e = faults.SELEntry{
			Sensor: faults.SensorType(r.SensorType), Text: r.Text, Severity: schemas.SeverityWarning, EventType: schemas.EventBMCSEL,
		}
	}
	ev.Type, ev.Code, ev.Severity = e.EventType, r.Code(), e.Severity
	if ev.Type == schemas.EventTempHigh && Inlet(sensor) {
		ev.Type = schemas.EventTempInletHigh
	}
	ev.SetAttr("sel", r.Code())
	if sensor != "" {
		ev.SetAttr("sensor", sensor)
	}
	if r.Type == 0x02 && r.SensorNumber != 0 {
		ev.SetAttr("sensor_number", fmt.Sprintf("0x%02x", r.SensorNumber))
	}
	if ev.Type != schemas.EventBMCSEL && sensor != "" {
		ev.Code = sensor
	}
	told := r.vendor()
	if r.Detail == "" {
		r.Detail = cmp.Or(told, r.detail())
	}
	if r.Detail != "" && r.SensorType == typeMemory {
		ev.SetAttr("slot", r.Detail)
	}
	// Event data 3 of a memory sensor numbers the module where event data 1 says
	// that it does (IPMI 2.0, tables 29-6 and 42-3, sensor type 0Ch).
	if told == "" && r.SensorType == typeMemory && r.EventType == faults.SELSensorSpecific && r.Data[0]&0x30 == 0x20 {
		ev.SetAttr("part_kind", schemas.KindDIMM)
		ev.SetAttr("part", fmt.Sprintf("dimm%d", r.Data[2]))
	}
	direction := "Asserted"
	switch {
	case r.Deasserted:
		direction = "Deasserted"
		if ev.Severity != schemas.SeverityInfo {
			ev.Severity, ev.State = schemas.SeverityInfo, schemas.StateCleared
		}
	case ev.Severity != schemas.SeverityInfo:
		ev.State = schemas.StateRaised
	}
	if ev.Type == schemas.EventDIMMECCCE {
		ev.State = ""
	}
	parts := []string{strings.TrimSpace(e.Sensor + " " + sensor), e.Text}
	if r.Detail != "" {
		parts = append(parts, r.Detail)
	}
	// What the tables do not have, or the vendor has put into event data, is told as it is.
	if r.Type == 0x02 && r.EventType != 0 && told == "" && (!e.Known || r.Data[0]&used2 == oemCode2 || r.Data[0]&used3 == oemCode3 && r.SensorType != typeMemory) {
		ev.SetAttr("event_data", hex.EncodeToString(r.Data[:]))
		parts = append(parts, "event data "+ev.Attr("event_data"))
	}
	switch {
	case r.Reading != "":
		parts = append(parts, r.Reading)
	case r.EventType == faults.SELThreshold && r.Data[0]&0xc0 == 0x40:
		parts = append(parts, fmt.Sprintf("raw reading %d", r.Data[1]))
		ev.SetAttr("raw_reading", strconv.Itoa(int(r.Data[1])))
		if r.Data[0]&0x30 == 0x10 {
			ev.SetAttr("raw_threshold", strconv.Itoa(int(r.Data[2])))
		}
	}
	ev.Message = strings.Join(append(parts, direction), " | ")
	ev.SetAttr("action", action(&ev))
	return ev
}

func action(ev *schemas.Event) string {
	switch {
	case ev.Severity == schemas.SeverityInfo:
		return faults.ActionIgnore
	case ev.Type == schemas.EventPSUInputLost:
		return faults.ActionCheckMechanicals
	}
	return faults.ActionContactSupport
}

// Inlet reports whether a sensor's name says that it measures the air that
// enters the device.
func Inlet(sensor string) bool {
	s := strings.ToLower(sensor)
	for _, w := range []string{"inlet", "ambient", "intake", "front panel temp", "fpb temp"} {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
