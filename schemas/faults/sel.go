package faults

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"auspex/schemas"
)

// Classes of IPMI events by event/reading type code (IPMI 2.0, table 42-1).
const (
	SELThreshold      = 0x01
	SELSensorSpecific = 0x6f
)

type selKey struct {
	eventType    byte // SELSensorSpecific or a generic type
	sensor, offs byte // sensor is 0 for a generic type
}

// SELEntry is what an offset of an IPMI event means (IPMI 2.0, tables 42-1 to 42-3).
type SELEntry struct {
	Sensor    string // the sensor type's name
	Text      string
	Severity  schemas.Severity
	EventType string // type of the event (formats, section 2), or schemas.EventBMCSEL
	Known     bool
}

func (c *catalogue) addSEL(r []string) error {
	code, err := strconv.ParseUint(r[1], 16, 8)
	if err != nil {
		return err
	}
	switch r[0] {
	case "type":
		c.types[byte(code)] = r[3]
		c.names[strings.ToLower(r[3])] = byte(code)
		return nil
	case "alias":
		c.names[strings.ToLower(r[3])] = byte(code)
		return nil
	}
	offs, err := strconv.ParseUint(r[2], 16, 8)
	if err != nil {
		return err
	}
	e := SELEntry{Text: r[3], Severity: schemas.Severity(r[4]), EventType: r[5], Known: true}
	if e.Severity.Rank() < 0 {
		return fmt.Errorf("severity %q", r[4])
	}
	k := selKey{eventType: byte(code), offs: byte(offs)}
	if r[0] == "sensor" {
		k = selKey{eventType: SELSensorSpecific, sensor: byte(code), offs: byte(offs)}
	}
	c.sel[k] = e
	return nil
}

// SensorType returns the name of an IPMI sensor type, or "OEM" and the number.
func SensorType(t byte) string {
	if s, ok := load().types[t]; ok {
		return s
	}
	return fmt.Sprintf("OEM %02xh", t)
}

// SensorTypeNamed finds the sensor type whose name the text begins with, as
// `ipmitool sel elist` prints it before the sensor's own name.
func SensorTypeNamed(text string) (t byte, rest string, ok bool) {
	low, best := strings.ToLower(text), 0
	for name, code := range load().names {
		if len(name) > best && strings.HasPrefix(low, name) && (len(low) == len(name) || low[len(name)] == ' ') {
			best, t, ok = len(name), code, true
		}
	}
	return t, strings.TrimSpace(text[best:]), ok
}

// SEL returns what an event of a sensor means. EventType is the event/reading
// type without its direction bit, offset the lower half of event data 1.
func SEL(sensorType, eventType, offset byte) SELEntry {
	c := load()
	k := selKey{eventType: eventType, offs: offset}
	if eventType == SELSensorSpecific {
		k.sensor = sensorType
	}
	e, ok := c.sel[k]
	if !ok {
		e = SELEntry{Text: fmt.Sprintf("event type %02xh offset %02xh", eventType, offset), Severity: schemas.SeverityWarning}
	}
	e.Sensor = SensorType(sensorType)
	if eventType == SELThreshold {
		e.EventType, e.Severity = thresholdEvent(sensorType, offset, e.Severity)
	}
	if e.EventType == "" {
		e.EventType = schemas.EventBMCSEL
	}
	return e
}

// thresholdEvent names what it means that a reading crossed a limit. Even
// offsets are "going low", odd ones "going high"; 0 to 5 are lower limits.
func thresholdEvent(sensorType, offset byte, s schemas.Severity) (string, schemas.Severity) {
	lower := offset < 6
	if goingHigh := offset&1 == 1; lower == goingHigh {
		return "", schemas.SeverityInfo // back across the limit: an assertion that is good news
	}
	switch {
	case sensorType == 0x01 && !lower:
		if s == schemas.SeverityError {
			s = schemas.SeverityCritical
		}
		return schemas.EventTempHigh, s
	case sensorType == 0x02:
		return schemas.EventVoltageOutOfRange, s
	case sensorType == 0x04 && lower && s == schemas.SeverityWarning:
		return schemas.EventFanSlow, s
	case sensorType == 0x04 && lower:
		return schemas.EventFanFailure, schemas.SeverityError
	}
	return "", s
}

// SELRow is a row of the tables of offsets.
type SELRow struct {
	EventType, Sensor, Offset byte // Sensor is 0 for a generic type
}

// SELRows returns all that the tables have, in order.
func SELRows() []SELRow {
	var out []SELRow
	for k := range load().sel {
		out = append(out, SELRow{k.eventType, k.sensor, k.offs})
	}
	slices.SortFunc(out, func(a, b SELRow) int {
		return bytes.Compare([]byte{a.EventType, a.Sensor, a.Offset}, []byte{b.EventType, b.Sensor, b.Offset})
	})
	return out
}

// SELText finds the offset whose text `ipmitool` prints for a sensor type.
func SELText(sensorType byte, text string) (eventType, offset byte, ok bool) {
	c := load()
	for i := range 16 {
		if e, found := c.sel[selKey{eventType: SELSensorSpecific, sensor: sensorType, offs: byte(i)}]; found && strings.EqualFold(e.Text, text) {
			return SELSensorSpecific, byte(i), true
		}
	}
	for t := byte(1); t <= 0x0c; t++ {
		for i := range 16 {
			if e, found := c.sel[selKey{eventType: t, offs: byte(i)}]; found && strings.EqualFold(e.Text, text) {
				return t, byte(i), true
			}
		}
	}
	return 0, 0, false
}

// RedfishEntry is what a Redfish MessageId means.
type RedfishEntry struct {
	EventType string // type of the event (formats, section 2), or schemas.EventBMCEvent
	Severity  schemas.Severity
	State     string // raised, cleared or ""
	Meaning   string
	Known     bool
}

func (c *catalogue) addRedfish(r []string) error {
	e := RedfishEntry{EventType: r[1], Severity: schemas.Severity(r[2]), State: r[3], Meaning: r[4], Known: true}
	if e.EventType == "" {
		e.EventType = schemas.EventBMCEvent
	}
	if e.Severity.Rank() < 0 {
		return fmt.Errorf("severity %q", r[2])
	}
	c.redfish[strings.ToLower(r[0])] = e
	return nil
}

// RedfishMessage returns what a MessageId means. Registry and version are left
// aside: "PowerSupply.1.0.InputLost" and "InputLost" are the same (DSP0266,
// section MessageId). An unknown id is a bmc.event that carries the severity
// of its sender.
func RedfishMessage(id string) RedfishEntry {
	key := strings.ToLower(id[strings.LastIndexByte(id, '.')+1:])
	if e, ok := load().redfish[key]; ok {
		return e
	}
	return RedfishEntry{EventType: schemas.EventBMCEvent, Severity: schemas.SeverityWarning}
}
