package redfish

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"auspex/collectors"
	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// catalog holds the series of a service. A series belongs to what it was first read of: the
// path of a sensor, or of a property of an older resource. Other places that repeat it are
// led to it, so that one reading is one series however often it is shown.
type catalog struct {
	byID   map[string]*series    // path of a sensor or property
	byName map[[3]string]*series // metric, part and the device's name
	byPart map[[2]string]*series // metric and part
	byLeaf map[[3]string]*series // metric, part and the sensor's id in its chassis
	called map[string]*series    // the device's name of what has a quantity
	total  *series               // the power of the server as a whole
	owners map[string]string     // paths of processors and memory modules, by part
	free   int                   // series without a meaning that were given
	dirty  bool
}

func newCatalog() catalog {
	return catalog{
		byID: make(map[string]*series), byName: make(map[[3]string]*series), byPart: make(map[[2]string]*series),
		byLeaf: make(map[[3]string]*series), called: make(map[string]*series),
		owners: make(map[string]string),
	}
}

// series is one reading of the device.
type series struct {
	ref     collectors.Ref
	from    map[family]bool // those that have it
	apart   string          // the equipment that it is of, or ""
	excerpt bool            // made of an excerpt, whose sensor was not to be had
	sole    bool
	scale   float64
	celsius bool
	bounds  []collectors.Threshold
	at      time.Time // the device's, of the last value from a report
	own     float64   // the last value that is not from a report, in the device's unit
	suspect bool      // a report gave it in what may be another unit
	doubted bool      // reports give it in another unit

	kind, part string
	labels     []string
	ill        bool      // its health was not OK at some time
	health     time.Time // ours, of the last that was told

	// Of a value of a report that no metric of ours is for; its texts are states.
	metric string
	text   map[string]collectors.Ref
	read   time.Time // ours, of the last sample
}

// unique returns the name of a part that no other resource has: where two modules are both
// called the first, what their ids have before the number tells them apart. Its words end in
// numbers, as those of ProcessorModule_1_Memory_0 do; where they do not, the names stay.
func (cat *catalog) unique(kind, part, path string) string {
	if part == "" || cat.owners[part] == path {
		return part
	}
	if cat.owners[part] == "" {
		cat.owners[part] = path
		return part
	}
	id := strings.TrimRight(lastPart(path), "0123456789")
	id = strings.TrimRight(strings.TrimRightFunc(strings.TrimRight(id, " ._-"), unicode.IsLetter), " ._-")
	full := strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			return unicode.ToLower(c)
		}
		return -1
	}, id) + part
	if k, p := sensor.Part(full); k != kind || p != full || cat.owners[full] != "" && cat.owners[full] != path {
		return part
	}
	cat.owners[full] = path
	return full
}

// family is whose readings are distinct from one another: a rank, and in it an array.
type family struct {
	rank  rank
	array string
}

// reading is what a source says of one thing that is measured.
type reading struct {
	id     string // path of the sensor or property that it is
	same   string // path of the sensor that it repeats (DSP0268, DataSourceUri), or ""
	name   string // the device's
	alt    string // another one, where a series has that already
	health string // what the device says of it, "" where that is nothing or it is absent
	place  string // what else speaks of where it is
	q      sensor.Quantity
	metric *sensor.Series // in place of what name and quantity say, or nil
	array  string         // where it stands among others of its kind, or ""
	sole   bool           // its part has one of its metric, whatever it is called
	value  float64
	ok     bool // there is a value
	bounds []collectors.Threshold
}

// implausible is the magnitude of a temperature, in degrees Celsius, that no
// part of a server survives; firmware is seen that reports thousandths.
const implausible = 250

// put takes a reading of a source: it finds or makes the series, and adds the value where no
// other source has given one in this round.
func (r *reader) put(src *source, x *reading, now time.Time) {
	s := r.resolve(src, x)
	if s == nil {
		return
	}
	src.give(r.found, s)
	for i := range x.bounds {
		x.bounds[i].Value *= s.scale
	}
	if len(x.bounds) > 0 { // another place may repeat the value alone
		s.bounds = x.bounds
	}
	r.tellHealth(s, x.health, now)
	if x.ok {
		s.own = x.value
	}
	if !x.ok || s.read.Equal(now) {
		return
	}
	if s.celsius && math.Abs(x.value) > implausible {
		r.bad.Inc()
		return
	}
	s.read = now
	r.batch.Sample(s.ref, now, x.value*s.scale)
	r.batch.Thresholds(s.ref, now, s.bounds...)
}

// healths are the values of Status.Health (DSP0268).
var healths = map[string]float64{"OK": 0, "Warning": 1, "Critical": 2}

// healthOf is what the device says of a part that it has.
func healthOf(o redfish.Object) string {
	if silent(o) {
		return ""
	}
	return o.Object("Status").String("Health")
}

// tellHealth gives the state of what is measured, from the first time on that it is not OK: most never are, and a series that
// says so of each would double them.
func (r *reader) tellHealth(s *series, health string, now time.Time) {
	v, ok := healths[health]
	if s.ill = s.ill || v > 0; !ok || !s.ill || s.health.Equal(now) {
		return
	}
	s.health = now
	metric := "auspex_" + cmp.Or(s.kind, schemas.KindServer) + "_sensor_health"
	r.batch.Sample(r.batch.Series(metric, s.kind, s.part, s.labels...), now, v)
}

// resolve finds the series of a reading, or makes it.
func (r *reader) resolve(src *source, x *reading) *series {
	cat := &r.found.catalog
	if s := cat.byID[x.id]; s != nil {
		return s
	}
	if s := cat.byID[x.same]; s != nil && x.same != "" {
		cat.byID[x.id] = s
		return s
	}
	c := x.metric
	if c == nil {
		about := x.name
		if k, _ := sensor.Part(about); k == "" {
			if id := lastPart(strings.TrimSuffix(x.id, "/Reading")); !strings.Contains(x.id, "#") && id != "" {
				if k, _ := sensor.Part(id); k != "" {
					about = id // vendors put the part into one of the two
				}
			}
		}
		v := sensor.Classify(about, x.place, x.q)
		c = &v
	}
	// The same name, or the only one of its part, in another family of sources is the same
	// reading; of each family one is.
	name, own, part := x.name, family{src.rank.family(), x.array}, [2]string{c.Metric, c.Part}
	key := [3]string{c.Metric, c.Part, strings.ToLower(name)}
	one := cat.byName[key]
	if other := cat.byPart[part]; one == nil && other != nil && c.Part != "" && (x.sole || other.sole) {
		one = other
	}
	leaf := [3]string{c.Metric, c.Part, lastPart(cmp.Or(x.same, x.id))}
	if s := cat.byLeaf[leaf]; s != nil && s.apart == src.apart && c.Part != "" && (x.same != "" || s.excerpt && own.rank == rankSensors) {
		// One of them is the excerpt of a sensor that cannot be read, shown in another chassis.
		cat.byID[x.id], s.excerpt = s, s.excerpt && x.same != ""
		return s
	}
	whole := c.Metric == "auspex_server_power_watts" && x.q == sensor.Watts && (x.array == "PowerControl" || sensor.Total(x.name))
	if one == nil && whole {
		one = cat.total
	}
	if one != nil && one.apart == src.apart && !one.from[own] {
		one.from[own], cat.byID[x.id] = true, one
		return one
	}
	// Names need not be unique, ids are within a chassis.
	for _, alt := range []string{x.alt, lastPart(x.id), src.chassis + " " + lastPart(x.id), x.id} {
		if cat.byName[key] == nil {
			break
		}
		if alt == "" {
			continue
		}
		name = alt
		key[2] = strings.ToLower(name)
	}
	s := &series{
		from: map[family]bool{own: true}, apart: src.apart, excerpt: x.same != "", sole: x.sole, scale: c.Scale, celsius: x.q == sensor.Celsius,
		ref: r.batch.Series(c.Metric, c.Kind, c.Part, "sensor", name), kind: c.Kind, part: c.Part, labels: []string{"sensor", name},
	}
	cat.byID[x.id], cat.byName[key], cat.byLeaf[leaf] = s, s, s
	if x.same != "" {
		cat.byID[x.same] = s
	}
	if whole && cat.total == nil {
		cat.total = s
	}
	if cat.byPart[part] == nil {
		cat.byPart[part] = s
	}
	if x.q != "" && x.q != sensor.State {
		cat.called[strings.ToLower(x.name)] = s
	}
	cat.dirty = true
	return s
}

// readingTypes maps ReadingType (DSP0268, Sensor) to what it measures and its unit there.
var readingTypes = map[string]struct {
	q     sensor.Quantity
	scale float64
}{
	"Temperature": {sensor.Celsius, 1}, "Rotational": {sensor.RPM, 1}, "Power": {sensor.Watts, 1}, "Voltage": {sensor.Volts, 1},
	"Current": {sensor.Amperes, 1}, "Percent": {sensor.Percent, 1}, "Frequency": {sensor.Hertz, 1}, "Humidity": {sensor.Humidity, 1},
	"EnergyJoules": {sensor.Joules, 1}, "EnergyWh": {sensor.Joules, 3600}, "EnergykWh": {sensor.Joules, 3.6e6},
	"PressurePa": {sensor.Pascals, 1}, "PressurekPa": {sensor.Pascals, 1000}, "Barometric": {sensor.Pascals, 133.322387415},
	"AirFlow": {sensor.AirFlow, 0.028316846592 / 60}, "AirFlowCMM": {sensor.AirFlow, 1.0 / 60},
	"LiquidFlow": {sensor.LiquidFlow, 0.001}, "LiquidFlowLPM": {sensor.LiquidFlow, 0.001 / 60},
}

// measure is how a sensor's numbers become a quantity in base units.
type measure struct {
	q             sensor.Quantity
	scale, offset float64
	conflict      bool // unit and type contradict each other
}

// measureOf tells what a sensor measures. The unit decides: it says what the number is,
// while the type is often that of the sensor's family. A sensor that says expressly to have
// no unit, and has no range, is a discrete one; its number is a state. Nothing is guessed
// where neither is said.
func measureOf(o redfish.Object, name string) measure {
	typ := readingTypes[o.String("ReadingType")]
	text, given := o["ReadingUnits"].(string)
	text = strings.TrimSpace(text)
	q, scale, offset := sensor.Unit(text)
	m := measure{q: q, scale: scale, offset: offset}
	switch {
	case q == sensor.Percent && typ.q == sensor.Humidity:
		m.q = sensor.Humidity
	case q != "":
		m.conflict = typ.q != "" && typ.q != q
	case given && text == "" && !ranged(o), text == "" && sensor.StateName(name):
		return measure{q: sensor.State, scale: 1}
	default:
		m.q, m.scale = typ.q, cmp.Or(typ.scale, 1)
	}
	if m.q == sensor.Celsius && margin(o, name, text) {
		m.q, m.offset = sensor.Margin, 0
	}
	return m
}

// ranged reports whether a sensor has a range or a threshold, as an analog one has.
func ranged(o redfish.Object) bool {
	for _, k := range []string{"ReadingRangeMin", "ReadingRangeMax", "MinAllowableOperatingValue", "MaxAllowableOperatingValue"} {
		if _, ok := o.Number(k); ok {
			return true
		}
	}
	return len(bounds(o, 1, 0)) > 0
}

// margin reports whether a temperature is a distance to a limit: it says so (DSP0268,
// ReadingBasis), or its name does, or it has no unit and ends at 0, or its thresholds all
// lie at or below 0 and none is an upper one.
func margin(o redfish.Object, name, unit string) bool {
	switch o.String("ReadingBasis") {
	case "Delta", "Headroom":
		return true
	case "Zero":
		return false
	}
	if sensor.MarginName(name) {
		return true
	}
	low, okLow := o.Number("ReadingRangeMin")
	if high, ok := o.Number("ReadingRangeMax"); unit == "" && ok && okLow && high <= 0 && low < 0 {
		return true
	}
	var below, other bool
	for _, t := range bounds(o, 1, 0) {
		switch {
		case t.Bound == schemas.RangeMax || t.Bound == schemas.RangeMin:
		case !t.Bound.Upper() && t.Value <= 0:
			below = true
		default:
			other = true
		}
	}
	return below && !other
}

// silent are the states in which a part measures nothing, whatever number it shows
// (DSP0268, Status.State).
func silent(o redfish.Object) bool {
	switch o.Object("Status").String("State") {
	case "Absent", "Disabled", "UnavailableOffline", "StandbyOffline", "Deferring":
		return true
	}
	return false
}

var thresholds = map[string]schemas.Bound{
	"UpperFatal": schemas.UpperFatal, "UpperCritical": schemas.UpperCritical, "UpperCaution": schemas.UpperCaution,
	"LowerCaution": schemas.LowerCaution, "LowerCritical": schemas.LowerCritical, "LowerFatal": schemas.LowerFatal,
}

// olderThresholds are the same in Thermal and Power (DSP0268, deprecated there).
var olderThresholds = map[string]schemas.Bound{
	"UpperThresholdFatal": schemas.UpperFatal, "UpperThresholdCritical": schemas.UpperCritical,
	"UpperThresholdNonCritical": schemas.UpperCaution, "LowerThresholdNonCritical": schemas.LowerCaution,
	"LowerThresholdCritical": schemas.LowerCritical, "LowerThresholdFatal": schemas.LowerFatal,
}

// bounds reads the thresholds and the range of a sensor or of a member of Thermal and
// Power, as reading × scale + offset. Activation, the way in which one is crossed, is left
// to whoever uses them. A range of no width, as firmware fills in, is none.
func bounds(o redfish.Object, scale, offset float64) (out []collectors.Threshold) {
	put := func(b schemas.Bound, v float64, ok bool) {
		if ok {
			out = append(out, collectors.Threshold{Bound: b, Value: v*scale + offset})
		}
	}
	t := o.Object("Thresholds")
	for k, b := range thresholds {
		v, ok := t.Object(k).Number("Reading")
		put(b, v, ok)
	}
	for k, b := range olderThresholds {
		v, ok := o.Number(k)
		put(b, v, ok)
	}
	for _, k := range [][2]string{
		{"ReadingRangeMin", "ReadingRangeMax"}, {"MinReadingRange", "MaxReadingRange"}, {"MinReadingRangeTemp", "MaxReadingRangeTemp"},
	} {
		low, okLow := o.Number(k[0])
		high, okHigh := o.Number(k[1])
		if !okLow || !okHigh || low < high {
			put(schemas.RangeMin, low, okLow)
			put(schemas.RangeMax, high, okHigh)
		}
	}
	return out
}

var ordinal = regexp.MustCompile(`^[A-Za-z]?[0-9]+[A-Za-z]?$`)

// partOf names a part of a known kind by the first of the texts that has a number for it:
// "PSU.Slot.2", "Bay 2", "2", "A3".
func partOf(kind string, texts ...string) string {
	for _, t := range texts {
		if k, part := sensor.Part(t); k == kind {
			return part
		}
	}
	for _, t := range texts {
		words := strings.FieldsFunc(t, func(c rune) bool { return strings.ContainsRune(" ._:/#", c) })
		if n := len(words); n > 0 && ordinal.MatchString(words[n-1]) {
			return kind + strings.ToLower(words[n-1])
		}
	}
	return ""
}

// nameOf is what a member calls itself.
func nameOf(o redfish.Object) string {
	for _, k := range []string{"Name", "FanName", "DeviceName", "Id", "MemberId"} {
		if s := o.String(k); s != "" {
			return s
		}
	}
	return lastPart(o.ID())
}

// numbered names the parts of a list by what they are called, and by their place where they
// are called nothing. Places are counted from 0, and parts on many a case from 1: from
// which, other parts of the kind show that the service has named.
func (r *reader) numbered(kind string, list []redfish.Object) []string {
	out, first, named := make([]string, len(list)), 0, make(map[string]bool)
	for k := range r.found.byPart {
		named[k[1]] = true
	}
	if last := kind + strconv.Itoa(len(list)); named[last] && !named[kind+"0"] {
		first = 1
	}
	for i, o := range list {
		id := o.String("Id")
		if id == "" {
			id = o.String("MemberId")
		}
		n, err := strconv.Atoi(id)
		switch {
		case err != nil:
			out[i] = partOf(kind, label(o), nameOf(o), id, lastPart(o.ID()))
		default:
			if out[i] = partOf(kind, label(o), o.String("Name")); out[i] == "" {
				out[i] = kind + strconv.Itoa(n+first)
			}
		}
	}
	return out
}

// label is what stands on the case beside a part.
func label(o redfish.Object) string {
	at := o.Object("Location").Object("PartLocation")
	if s := at.String("ServiceLabel"); s != "" {
		return s
	}
	if n, ok := at.Number("LocationOrdinalValue"); ok {
		return strconv.Itoa(int(n))
	}
	return ""
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
