// Package evidence turns recorded metrics into the events that the default
// rules would have raised, so that a replay can reason over both.
package evidence

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// Sample is one line of OpenMetrics text that carries a time stamp.
type Sample struct {
	Metric   string
	Resource string // the label resource
	Time     time.Time
	Value    float64
}

// ErrNoResource is returned for a sample that does not say whose it is.
var ErrNoResource = errors.New("no label resource")

// Parse reads a line of OpenMetrics text, such as
// `metric{resource="gpu-r01-01/gpu0"} 42 1767225600.5`. ok is false for blank
// lines and comments.
func Parse(line string) (s Sample, ok bool, err error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return s, false, nil
	}
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 {
		return s, false, errors.New("no metric name")
	}
	s.Metric = line[:end]
	rest := line[end:]
	if rest[0] == '{' {
		if s.Resource, rest, err = labels(rest[1:]); err != nil {
			return s, false, err
		}
	}
	f := strings.Fields(rest)
	if len(f) < 2 {
		return s, false, errors.New("no value and time stamp")
	}
	if s.Value, err = strconv.ParseFloat(f[0], 64); err != nil {
		return s, false, fmt.Errorf("value %q is no number", f[0])
	}
	at, err := strconv.ParseFloat(f[1], 64)
	if err != nil || math.IsNaN(at) || math.Abs(at) > 1e11 {
		return s, false, fmt.Errorf("time stamp %q is no number of seconds", f[1])
	}
	sec, frac := math.Modf(at)
	s.Time = time.Unix(int64(sec), int64(math.Round(frac*1e6))*1000).UTC()
	if s.Resource == "" {
		return s, false, ErrNoResource
	}
	return s, true, nil
}

// labels reads `a="b",c="d"} rest` and returns the value of resource.
func labels(in string) (resource, rest string, err error) {
	for {
		in = strings.TrimLeft(in, ", \t")
		if in == "" {
			return "", "", errors.New("labels do not end")
		}
		if in[0] == '}' {
			return resource, in[1:], nil
		}
		name, value, found := strings.Cut(in, "=\"")
		if !found {
			return "", "", errors.New("label without a quoted value")
		}
		var b strings.Builder
		i := 0
		for ; i < len(value) && value[i] != '"'; i++ {
			if value[i] == '\\' && i+1 < len(value) {
				if i++; value[i] == 'n' {
					b.WriteByte('\n')
					continue
				}
			}
			b.WriteByte(value[i])
		}
		if i == len(value) {
			return "", "", errors.New("label value does not end")
		}
		if strings.TrimSpace(name) == "resource" {
			resource = b.String()
		}
		in = value[i+1:]
	}
}

// rule judges one metric. A level rule holds from one limit until the other.
type rule struct {
	typ, code string
	severity  schemas.Severity
	below     bool    // bad below the limit instead of above
	raise     float64 // limit that raises
	clear     float64 // limit that clears
	seen      bool    // must have been good before: a part that was never there is not lost
	mask      uint64  // of a value that is a set of bits
	increase  float64 // of a counter within window that is an event of its own
	window    time.Duration
	codes     bool // the value is an XID
}

// rules follow the defaults of the running system: DCGM's field names, and
// base units for the rest.
var rules = map[string][]rule{
	"DCGM_FI_DEV_GPU_TEMP": {{typ: schemas.EventGPUThermal, code: "temperature", severity: schemas.SeverityWarning, raise: 90, clear: 85}},
	"DCGM_FI_DEV_CLOCKS_EVENT_REASONS": {
		{typ: schemas.EventGPUClocksThrottled, code: "HW_THERMAL_SLOWDOWN", severity: schemas.SeverityWarning, mask: 0x40},
		{typ: schemas.EventGPUClocksThrottled, code: "HW_POWER_BRAKE", severity: schemas.SeverityWarning, mask: 0x80},
	},
	"DCGM_FI_DEV_XID_ERRORS": {{typ: schemas.EventGPUXID, codes: true}},
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": {{
		typ: schemas.EventGPUECCUE, code: "DRAM", severity: schemas.SeverityCritical, increase: 1, window: time.Hour,
	}},
	"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": {{
		typ: schemas.EventGPUECCCERate, code: "HBM", severity: schemas.SeverityWarning, increase: 10, window: 5 * time.Minute,
	}},
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": {{
		typ: schemas.EventGPURowRemap, code: "uncorrectable", severity: schemas.SeverityWarning, increase: 1, window: time.Hour,
	}},
	"DCGM_FI_DEV_ROW_REMAP_FAILURE": {{
		typ: schemas.EventGPURowRemap, code: "failure", severity: schemas.SeverityError, raise: 0.5, clear: 0.5,
	}},
	"auspex_server_inlet_temperature_celsius": {{
		typ: schemas.EventTempInletHigh, code: "inlet", severity: schemas.SeverityWarning, raise: 35, clear: 33,
	}},
	"auspex_fan_speed_rpm": {{
		typ: schemas.EventFanFailure, code: "speed", severity: schemas.SeverityError, below: true, raise: 100, clear: 500, seen: true,
	}},
	"auspex_psu_input_power_watts": {{
		typ: schemas.EventPSUInputLost, code: "input", severity: schemas.SeverityError, below: true, raise: 1, clear: 5, seen: true,
	}},
	"auspex_port_rx_power_dbm": {{
		typ: schemas.EventPortOpticsDegraded, code: "rx-power", severity: schemas.SeverityWarning, below: true, raise: -10, clear: -8,
		seen: true,
	}},
	"auspex_port_pre_fec_ber_ratio": {{
		typ: schemas.EventPortOpticsDegraded, code: "ber", severity: schemas.SeverityWarning, raise: 1e-5, clear: 1e-6,
	}},
}

type seriesKey struct {
	resource, metric string
	rule             int
}

type series struct {
	raised   bool
	good     bool
	any      bool
	since    time.Time // start of the window
	base     float64
	last     float64
	lastTime time.Time
}

// Reader judges samples as they come. Its memory grows with the number of
// series and of events, not of samples.
type Reader struct {
	series map[seriesKey]*series
	events []schemas.Event
}

// NewReader returns a reader that has seen nothing.
func NewReader() *Reader { return &Reader{series: map[seriesKey]*series{}} }

// Add judges a sample. Samples of one series come in the order of their times;
// one that does not is an error.
func (r *Reader) Add(s Sample) error {
	for i := range rules[s.Metric] {
		ru := &rules[s.Metric][i]
		key := seriesKey{s.Resource, s.Metric, i}
		st := r.series[key]
		if st == nil {
			st = &series{}
			r.series[key] = st
		}
		if st.any && s.Time.Before(st.lastTime) {
			return fmt.Errorf("sample of %s at %s is older than the one before", s.Metric, s.Time.Format(time.RFC3339Nano))
		}
		if !math.IsNaN(s.Value) {
			r.judge(ru, st, s)
			st.any, st.last, st.lastTime = true, s.Value, s.Time
		}
	}
	return nil
}

func (r *Reader) judge(ru *rule, st *series, s Sample) {
	switch {
	case ru.codes:
		if code := int(s.Value); st.any && s.Value != st.last && s.Value > 0 && s.Value < 1e6 {
			r.event(s, ru.typ, strconv.Itoa(code), faults.XID(code).Severity, "")
		}
	case ru.increase > 0:
		if !st.any || s.Value < st.last || s.Time.Sub(st.since) > ru.window {
			st.since, st.base = s.Time, s.Value
			if st.any && s.Value > st.last && s.Time.Sub(st.lastTime) <= ru.window {
				st.base = st.last
			}
		}
		if s.Value-st.base >= ru.increase {
			r.event(s, ru.typ, ru.code, ru.severity, "")
			st.since, st.base = s.Time, s.Value
		}
	default:
		bad, good := s.Value > ru.raise, s.Value <= ru.clear
		if ru.below {
			bad, good = s.Value < ru.raise, s.Value >= ru.clear
		}
		if ru.mask != 0 {
			bad = s.Value >= 0 && s.Value < 1<<53 && uint64(s.Value)&ru.mask != 0
			good = !bad
		}
		switch {
		case bad && !st.raised && (st.good || !ru.seen):
			st.raised = true
			r.event(s, ru.typ, ru.code, ru.severity, schemas.StateRaised)
		case good && st.raised:
			st.raised = false
			r.event(s, ru.typ, ru.code, schemas.SeverityInfo, schemas.StateCleared)
		}
		st.good = st.good || good
	}
}

func (r *Reader) event(s Sample, typ, code string, severity schemas.Severity, state string) {
	r.events = append(r.events, schemas.Event{
		ID:   schemas.EventID(s.Resource, s.Metric, strconv.FormatInt(s.Time.UnixNano(), 10), typ, code, state),
		Time: s.Time, Observed: s.Time, Source: schemas.SourceRule, Resource: s.Resource, Type: typ, Code: code,
		Severity: severity, State: state,
		Message: s.Metric + " = " + strconv.FormatFloat(s.Value, 'g', -1, 64),
	})
}

// Events returns the events of all samples so far, by their times.
func (r *Reader) Events() []schemas.Event {
	slices.SortStableFunc(r.events, func(a, b schemas.Event) int {
		return a.Time.Compare(b.Time)
	})
	return r.events
}
