package sensor

import (
	"regexp"
	"strings"
)

// Unit says what a unit's text measures, and how a value in it becomes one in base
// units: value × scale + offset. Services write units as UCUM codes, as DSP0268 asks
// (Sensor, ReadingUnits), as IPMI names them, or in words. It returns "" for a text that
// it does not know.
func Unit(text string) (q Quantity, scale, offset float64) {
	t := strings.TrimSpace(text)
	switch strings.ToLower(strings.NewReplacer(" ", "", "_", "").Replace(t)) {
	case "cel", "c", "°c", "degc", "degreesc", "degreec", "celsius", "degreescelsius":
		return Celsius, 1, 0
	case "[degf]", "f", "°f", "degf", "degreesf", "fahrenheit":
		return Celsius, 5.0 / 9, -160.0 / 9
	case "k", "kelvin":
		return Celsius, 1, -273.15
	case "rpm", "{rev}/min", "rev/min", "r/min", "revolutionsperminute":
		return RPM, 1, 0
	case "%", "percent", "pct":
		return Percent, 1, 0
	case "cfm", "[cft_i]/min", "[cfti]/min", "ft3/min":
		return AirFlow, 0.028316846592 / 60, 0
	case "cmm", "m3/min":
		return AirFlow, 1.0 / 60, 0
	case "m3/h":
		return AirFlow, 1.0 / 3600, 0
	case "lpm", "l/min":
		return LiquidFlow, 0.001 / 60, 0
	case "[psi]", "psi":
		return Pascals, 6894.757293168, 0
	case "bar":
		return Pascals, 1e5, 0
	case "mbar", "hpa":
		return Pascals, 100, 0
	case "mm[hg]", "mmhg":
		return Pascals, 133.322387415, 0
	}
	for word, q := range unitWords {
		if strings.EqualFold(t, word) || strings.EqualFold(t, word+"s") {
			return q, 1, 0
		}
	}
	base, scale := t, 1.0
	if _, whole := unitCodes[t]; !whole && len(t) > 1 {
		if f, ok := prefixes[t[:1]]; ok {
			base, scale = t[1:], f
		}
	}
	if u, ok := unitCodes[base]; ok {
		return u.q, scale * u.factor, 0
	}
	return "", 1, 0
}

var unitWords = map[string]Quantity{
	"watt": Watts, "volt": Volts, "amp": Amperes, "ampere": Amperes, "joule": Joules, "hertz": Hertz, "pascal": Pascals,
}

// unitCodes are UCUM's codes, which prefixes may go before (The Unified Code for Units
// of Measure, section 3).
var unitCodes = map[string]struct {
	q      Quantity
	factor float64
}{
	"W": {Watts, 1}, "V": {Volts, 1}, "A": {Amperes, 1}, "J": {Joules, 1}, "Hz": {Hertz, 1}, "Pa": {Pascals, 1},
	"Wh": {Joules, 3600}, "W.h": {Joules, 3600}, "WH": {Joules, 3600},
}

var prefixes = map[string]float64{"u": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}

// stateWords are in the names of sensors that say a state and no quantity.
var stateWords = regexp.MustCompile(`(?i)fail|fault|\bstatus\b|\bstate\b|presen(t|ce)\b|mismatch|over ?temp|therm ?trip|` +
	`\berr(or)?\b|redundan|detect|\blost\b|proc ?hot`)

// StateName reports whether a name speaks of a state, such as "PSU1 IN Failure".
func StateName(name string) bool { return stateWords.MatchString(strings.ReplaceAll(name, "_", " ")) }

var marginWords = regexp.MustCompile(`(?i)margin|headroom|\bdts\b|t[ .-]?limit|temp(erature)? ?limit`)

// MarginName reports whether the name of a temperature speaks of a distance to a limit.
func MarginName(name string) bool {
	return marginWords.MatchString(strings.ReplaceAll(name, "_", " "))
}
