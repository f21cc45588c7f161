// Package sensor says what a board controller's sensors stand for: which part
// of the server, and which metric. Sensor names are the vendors' own, so that
// this is a reading of names, kept in one place for all protocols.
package sensor

import (
	"regexp"
	"slices"
	"strings"

	"auspex/schemas"
)

// Quantity is what a sensor measures, in base units.
type Quantity string

// The quantities; Percent becomes a ratio.
const (
	Celsius Quantity = "celsius"
	RPM     Quantity = "rpm"
	Watts   Quantity = "watts"
	Volts   Quantity = "volts"
	Amperes Quantity = "amperes"
	Percent Quantity = "percent"
	Joules  Quantity = "joules"
	Hertz   Quantity = "hertz"
	Pascals Quantity = "pascals"

	AirFlow    Quantity = "air_flow"    // in cubic metres a second
	LiquidFlow Quantity = "liquid_flow" // in cubic metres a second
	Humidity   Quantity = "humidity"    // relative, in percent; becomes a ratio
	// Margin is a temperature's distance to a limit, in °C; negative or falling is hotter.
	Margin Quantity = "margin"
	// State is what a discrete sensor says: a number that measures nothing.
	State Quantity = "state"
)

// Series says where a reading belongs.
type Series struct {
	Metric string // as FORMATS, section 8, names it
	Kind   string // of the part, "" is the server
	Part   string // such as "fan3", "" is the server
	Scale  float64
}

var partName = regexp.MustCompile(
	`(?i)(psu|gpu|fan|dimm|nvswitch)(?:[ .#-]*slot)?[ .#-]*([a-p]?[0-9]+[a-z]?)\b|\b(ps|p/s|cpu|nic|disk|drive|nvme|nv switch|power supply|powersupply)[ #-]*([0-9]+)`,
)

// group is what stands behind the first number of several, as in "DIMM 1-6".
var group = regexp.MustCompile(`^ ?- ?[0-9]+\b`)

var kinds = map[string]string{
	"psu": schemas.KindPSU, "ps": schemas.KindPSU, "p/s": schemas.KindPSU, "power supply": schemas.KindPSU, "powersupply": schemas.KindPSU,
	"gpu": schemas.KindGPU, "fan": schemas.KindFan,
	"dimm": schemas.KindDIMM, "nvswitch": schemas.KindNVSwitch, "nv switch": schemas.KindNVSwitch, "cpu": schemas.KindCPU,
	"nic":  schemas.KindNIC,
	"disk": schemas.KindDisk, "drive": schemas.KindDisk, "nvme": schemas.KindDisk,
}

// sums are names of what all parts of a kind draw together.
var sums = []struct {
	words *regexp.Regexp
	kind  string
}{
	{regexp.MustCompile(`(?i)\bcpus?\b|\bprocessors?\b`), schemas.KindCPU},
	{regexp.MustCompile(`(?i)\bmem(ory)?\b|\bdimms?\b|\bdram\b`), schemas.KindDIMM},
	{regexp.MustCompile(`(?i)\bfans?\b`), schemas.KindFan},
}

// owner is what stands before the number of a part that counts anew on each of several
// owners: "PROC 1" of "PROC 1 DIMM 3", "processormodule0" of "processormodule0dimm3".
var owner = regexp.MustCompile(
	`(?i)(?:^|[^a-z0-9])((?:[a-z]+[0-9]+)+|(?:cpu|processor|proc|socket|node|board|riser|p)[ .#-]*[0-9]+[ .#-]*)$`,
)

// Part finds the part that a name speaks of: kind and the kind with its number,
// such as "psu" and "psu0" for "PSU0 Input" or "PS0 Status". Both are "" when
// the name speaks of the server, of several parts at once ("DIMM 1-6"), or of a part that
// has no kind of its own. Memory modules count anew on each processor on many a board: their
// processor stays in the name ("proc1dimm3"), so that two modules are never one.
func Part(name string) (kind, part string) {
	name = strings.ReplaceAll(name, "_", " ")
	all := partName.FindAllStringSubmatchIndex(name, -1)
	var at []int
	for _, m := range all { // "CPU1 DIMM A3" is a module
		if at == nil || m[2] >= 0 && strings.EqualFold(name[m[2]:m[3]], schemas.KindDIMM) {
			at = m
		}
	}
	if at == nil || at[4] > 0 && name[at[4]-1] == ' ' && group.MatchString(name[at[1]:]) {
		return "", ""
	}
	sub := func(i int) string {
		if at[2*i] < 0 {
			return ""
		}
		return name[at[2*i]:at[2*i+1]]
	}
	word, num := sub(1)+sub(3), sub(2)+sub(4)
	kind = kinds[strings.ToLower(word)]
	part = kind + strings.ToLower(num)
	if kind == schemas.KindDIMM {
		part = Owner(name[:at[0]]) + part
	}
	return kind, part
}

// Owner returns the squeezed designation of what owns a part, from the text that stands
// before the part's own, or "".
func Owner(before string) string {
	m := owner.FindStringSubmatch(before)
	if m == nil {
		return ""
	}
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(" .#-", c) {
			return -1
		}
		return c
	}, strings.ToLower(m[1]))
}

// totals are the words of names that speak of a server's power as a whole.
var totals = strings.Fields(
	"system sys server node chassis platform board total input power pwr watts consumption consumed usage reading meter control",
)

// Total reports whether the name of a power reading speaks of the whole server.
func Total(name string) bool {
	words := strings.FieldsFunc(strings.ToLower(name), func(c rune) bool { return strings.ContainsRune(" _-./", c) })
	for _, w := range words {
		if !slices.Contains(totals, w) {
			return false
		}
	}
	return len(words) > 0
}

// Inlet reports whether a temperature's name speaks of the air that comes in.
func Inlet(name string) bool {
	n := strings.ToLower(name)
	return strings.Contains(n, "inlet") || strings.Contains(n, "intake") || strings.Contains(n, "ambient") ||
		strings.Contains(n, "front panel")
}

// Classify names the metric of a sensor. Context is what else is known of its
// place: a chassis' name, a PhysicalContext of Redfish, or "".
func Classify(name, context string, q Quantity) Series {
	s := Series{Scale: 1}
	s.Kind, s.Part = Part(name)
	if s.Kind == "" {
		s.Kind, s.Part = Part(context)
	}
	lower := strings.ToLower(name + " " + context)
	kind := s.Kind
	if kind == "" {
		kind = schemas.KindServer
	}
	side := ""
	if s.Kind == schemas.KindPSU {
		side = "input_"
		if strings.Contains(strings.ToLower(name), "out") {
			side = "output_"
		}
	}
	switch q {
	case Celsius:
		s.Metric = "temperature_celsius"
		switch {
		case s.Kind == "" && Inlet(lower):
			s.Metric = "inlet_temperature_celsius"
		case s.Kind == "" && (strings.Contains(lower, "exhaust") || strings.Contains(lower, "outlet")):
			s.Metric = "exhaust_temperature_celsius"
		case s.Kind == schemas.KindGPU && (strings.Contains(lower, "mem") || strings.Contains(lower, "hbm") || strings.Contains(lower, "dram")):
			s.Metric = "memory_temperature_celsius"
		}
	case RPM:
		s.Metric = "speed_rpm"
		if s.Kind == "" {
			kind, s.Kind, s.Part = schemas.KindFan, schemas.KindFan, name
		}
		if s.Kind == schemas.KindPSU {
			s.Metric = "fan_speed_rpm"
		}
	case Percent:
		s.Scale, s.Metric = 0.01, "utilization_ratio"
		if s.Kind == schemas.KindFan || s.Kind == "" && (strings.Contains(lower, "fan") || strings.Contains(lower, "pwm")) {
			kind, s.Metric = schemas.KindFan, "duty_ratio" // without a part: one duty for all fans
		}
	case Watts:
		s.Metric = side + "power_watts"
		if s.Kind == "" { // of all parts of a kind together
			for _, k := range sums {
				if k.words.MatchString(name) {
					kind = k.kind
					break
				}
			}
		}
	case Volts:
		s.Metric = side + "voltage_volts"
	case Amperes:
		s.Metric = side + "current_amperes"
	case Joules:
		s.Metric = "energy_joules_total"
	case Hertz:
		s.Metric = "frequency_hertz"
	case Pascals:
		s.Metric = "air_pressure_pascals"
	case AirFlow:
		s.Metric = "air_flow_cubic_meters_per_second"
	case LiquidFlow:
		s.Metric = "liquid_flow_cubic_meters_per_second"
	case Humidity:
		s.Scale, s.Metric = 0.01, "humidity_ratio"
	case Margin:
		s.Metric = "temperature_margin_celsius"
	case State:
		s.Metric = "sensor_state"
	default:
		s.Metric = "sensor_value"
	}
	s.Metric = "auspex_" + kind + "_" + s.Metric
	return s
}
