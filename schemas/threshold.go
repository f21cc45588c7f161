package schemas

import "strings"

// Bound names a threshold that a device gives for one of its readings.
type Bound string

// The bounds of a reading, the gravest first on either side. IPMI 2.0 (section 35.8) calls
// fatal non-recoverable and caution non-critical; Redfish (DSP0268, Sensor) has these words;
// the alarms of an optical module are critical and its warnings caution. The ends of the
// range are what a sensor can measure or a part can do, and mean no failure.
const (
	UpperFatal    Bound = "upper_fatal"
	UpperCritical Bound = "upper_critical"
	UpperCaution  Bound = "upper_caution"
	LowerCaution  Bound = "lower_caution"
	LowerCritical Bound = "lower_critical"
	LowerFatal    Bound = "lower_fatal"
	RangeMax      Bound = "range_max"
	RangeMin      Bound = "range_min"
)

// Threshold is a bound that a device gives for one of its readings, in the reading's unit.
type Threshold struct {
	Bound Bound
	Value float64
}

// LabelBound is the label of a threshold's series that holds its [Bound].
const LabelBound = "bound"

// thresholdSuffix is what a threshold's metric has behind that of its reading.
const thresholdSuffix = "_threshold"

// ThresholdMetric names the metric of the thresholds of a reading: its own with
// "_threshold" behind it. Unit and labels are those of the reading, and [LabelBound].
func ThresholdMetric(reading string) string { return reading + thresholdSuffix }

// ThresholdOf returns the metric of the reading that a metric holds thresholds of; false
// where it holds none.
func ThresholdOf(metric string) (reading string, ok bool) {
	reading, ok = strings.CutSuffix(metric, thresholdSuffix)
	return reading, ok && reading != ""
}

// Upper reports whether a bound is crossed upwards.
func (b Bound) Upper() bool { return b == RangeMax || strings.HasPrefix(string(b), "upper_") }
