package redfish

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// readSensors reads a collection of sensors. Where the service does not expand it, its
// members become sources of their own, which the plan takes or leaves.
func (r *reader) readSensors(ctx context.Context, src *source, now time.Time) error {
	list, err := r.list(ctx, src.path)
	if err != nil {
		return err
	}
	src.list = true
	for _, o := range list {
		if o.IsLink() {
			r.child(src, o.ID(), rankSensor, (*reader).readSensor)
			continue
		}
		r.sensor(src, o, now)
	}
	return nil
}

// readSensor reads one sensor.
func (r *reader) readSensor(ctx context.Context, src *source, now time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil || o == nil {
		return err
	}
	if o.ID() == "" {
		o["@odata.id"] = src.path
	}
	r.sensor(src, o, now)
	return nil
}

func (r *reader) sensor(src *source, o redfish.Object, now time.Time) {
	id, name := o.ID(), nameOf(o)
	if id == "" {
		r.bad.Inc() // an error in place of a member
		return
	}
	m := measureOf(o, name)
	if m.conflict && !r.reported[id] {
		r.reported[id] = true
		r.conflicts.Inc()
		if !r.reported["conflict"] { // the others are counted
			r.reported["conflict"] = true
			r.s.Log.Warn("unit of a sensor contradicts its type; using the unit",
				"sensor", id, "type", o.String("ReadingType"), "unit", o.String("ReadingUnits"))
		}
	}
	place := strings.ReplaceAll(src.chassis, "_", " ") + " " + o.String("PhysicalContext")
	x := &reading{id: id, name: name, place: place, q: m.q, health: healthOf(o)}
	if v, ok := o.Number("Reading"); ok && !silent(o) {
		x.value, x.ok = v*m.scale+m.offset, true
	}
	if m.q == "" && !r.known(id) {
		// Nothing says what it measures. Another place may, under the same name, which may
		// still have to be read.
		switch {
		case r.found.called[strings.ToLower(name)] != nil:
			return
		case !r.reported[id]:
			r.reported[id], src.again = true, true
			return
		case !x.ok || !r.room():
			return
		}
	}
	if m.q != "" {
		x.bounds = bounds(o, m.scale, m.offset)
	}
	if src.rank == rankSensor { // at the cost of a request each
		src.every = 0
		switch {
		case !x.ok, m.q == sensor.State, m.q == "":
			src.every = 10 * r.cfg.SensorInterval
		case m.q == sensor.Percent:
			src.every = 4 * r.cfg.SensorInterval
		}
	}
	r.put(src, x, now)
	if src.rank == rankSensors && !silent(o) && m.q == sensor.RPM {
		r.health(src, o, id, name, place, now)
	}
}

// known reports whether something has a series.
func (r *reader) known(id string) bool { return r.found.byID[id] != nil }

// room reports whether the device may have one more series without a meaning.
func (r *reader) room() bool {
	if r.found.free >= r.cfg.MaxUnmapped {
		r.unmapped.Inc()
		return false
	}
	r.found.free++
	return true
}

// health says of a fan whether it works.
func (r *reader) health(src *source, o redfish.Object, id, name, place string, now time.Time) {
	kind, part := sensor.Part(name)
	if kind == "" {
		kind, part = sensor.Part(lastPart(id))
	}
	if h := o.Object("Status").String("Health"); kind == schemas.KindFan && h != "" {
		r.put(src, &reading{
			id: id + " Health", name: name, place: place, sole: true, value: truth(h != "Critical"), ok: true,
			metric: &sensor.Series{Metric: "auspex_fan_healthy", Kind: kind, Part: part, Scale: 1},
		}, now)
	}
}

// readThermal reads temperatures and fans of the resource Thermal (DSP0268, deprecated
// there; the only one of older services, and of some the only one that has the fans).
func (r *reader) readThermal(ctx context.Context, src *source, now time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil {
		return err
	}
	for i, m := range o.Objects("Temperatures") {
		r.member(src, m, nameOf(m), i, "Temperatures", "ReadingCelsius", "Cel", now)
	}
	fans := o.Objects("Fans")
	names := r.apart(fans)
	r.holdsMembers(src, schemas.KindFan, fans, r.numbered(schemas.KindFan, fans))
	for i, m := range fans {
		unit := m.String("ReadingUnits")
		if q, _, _ := sensor.Unit(unit); q == "" {
			unit = "RPM"
		}
		key := "Reading"
		if _, ok := m.Number(key); !ok {
			key = "ReadingRPM" // of the first version of the schema
		}
		r.member(src, m, names[i], i, "Fans", key, unit, now)
		if !silent(m) {
			r.health(src, m, src.path+"#/Fans/"+memberID(m, i), names[i], "", now)
		}
	}
	return nil
}

// readOlderPower reads the resource Power (DSP0268, deprecated there).
func (r *reader) readOlderPower(ctx context.Context, src *source, now time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil {
		return err
	}
	supplies := o.Objects("PowerSupplies")
	parts := r.numbered(schemas.KindPSU, supplies)
	r.holdsMembers(src, schemas.KindPSU, supplies, parts)
	for i, m := range supplies {
		r.supply(src, m, parts[i], src.path+"#/PowerSupplies/"+memberID(m, i), now)
	}
	for i, m := range o.Objects("Voltages") {
		r.member(src, m, nameOf(m), i, "Voltages", "ReadingVolts", "V", now)
	}
	for i, m := range o.Objects("PowerControl") {
		r.member(src, m, nameOf(m), i, "PowerControl", "PowerConsumedWatts", "W", now)
	}
	return nil
}

// memberID is the place of a member in its array: what its id says, or where it stands.
func memberID(o redfish.Object, i int) string {
	if _, fragment, ok := strings.Cut(o.ID(), "#"); ok {
		return lastPart(fragment)
	}
	return strconv.Itoa(i)
}

// apart names the fans of a list: those of one name by the number of the part, else by
// their place.
func (r *reader) apart(list []redfish.Object) []string {
	names, times := make([]string, len(list)), make(map[string]int)
	for i, o := range list {
		names[i] = nameOf(o)
		times[names[i]]++
	}
	parts := r.numbered(schemas.KindFan, list)
	for i, o := range list {
		if times[names[i]] == 1 {
			continue
		}
		full := names[i] + " " + strings.TrimPrefix(parts[i], schemas.KindFan)
		if parts[i] == "" || times[full] > 0 {
			full = names[i] + " " + memberID(o, i)
		}
		times[full]++
		names[i] = full
	}
	return names
}

// member puts one number of a member of an array.
func (r *reader) member(src *source, o redfish.Object, name string, i int, array, key, unit string, now time.Time) {
	q, scale, offset := sensor.Unit(unit)
	if _, err := strconv.Atoi(name); err == nil {
		name = array + " " + name
	}
	if q == sensor.Celsius && margin(o, name, unit) || q == sensor.Celsius && olderMargin(o) {
		q, offset = sensor.Margin, 0
	}
	x := &reading{
		id: src.path + "#/" + array + "/" + memberID(o, i) + "/" + key, name: name, array: array,
		place: src.chassis + " " + o.String("PhysicalContext"),
		q:     q, sole: q == sensor.RPM || q == sensor.Percent, bounds: bounds(o, scale, offset),
		health: healthOf(o),
	}
	if v, ok := o.Number(key); ok && !silent(o) {
		x.value, x.ok = v*scale+offset, true
	}
	if _, there := o[key]; there {
		r.put(src, x, now)
	}
}

// olderMargin reports whether a temperature of Thermal has a range that ends at 0.
func olderMargin(o redfish.Object) bool {
	low, okLow := o.Number("MinReadingRangeTemp")
	high, okHigh := o.Number("MaxReadingRangeTemp")
	return okLow && okHigh && low < 0 && high <= 0
}

// supplyNumbers are the numbers of a power supply in Power (DSP0268).
var supplyNumbers = []struct {
	key, unit, metric string
	q                 sensor.Quantity
}{
	{"PowerInputWatts", "W", "auspex_psu_input_power_watts", sensor.Watts},
	{"PowerOutputWatts", "W", "auspex_psu_output_power_watts", sensor.Watts},
	{"LastPowerOutputWatts", "W", "auspex_psu_output_power_watts", sensor.Watts},
	{"LineInputVoltage", "V", "auspex_psu_input_voltage_volts", sensor.Volts},
	{"InputCurrentAmps", "A", "auspex_psu_input_current_amperes", sensor.Amperes},
}

// supply reads a power supply: of Power, or a resource of its own.
func (r *reader) supply(src *source, o redfish.Object, part, id string, now time.Time) {
	name := nameOf(o)
	if part == "" || o.Object("Status").String("State") == "Absent" {
		return
	}
	put := func(key, metric string, q sensor.Quantity, v float64, bounds ...collectors.Threshold) {
		r.put(src, &reading{
			id: id + "/" + key, name: name, alt: strings.TrimSpace(src.chassis + " " + name), array: "PowerSupplies " + key, q: q, sole: true, value: v, ok: true, bounds: bounds,
			metric: &sensor.Series{Metric: metric, Kind: schemas.KindPSU, Part: part, Scale: 1},
		}, now)
	}
	had := make(map[string]bool)
	for _, n := range supplyNumbers {
		if v, ok := o.Number(n.key); ok && !had[n.metric] && !silent(o) {
			had[n.metric] = true
			put(n.key, n.metric, n.q, v, nominal(o, n.q, n.metric)...)
		}
	}
	if line := o.String("LineInputStatus"); line != "" {
		put("LineInputStatus", "auspex_psu_input_present", "", truth(line != "LossOfInput"))
	}
	if health := o.Object("Status").String("Health"); health != "" {
		put("Health", "auspex_psu_healthy", "", truth(health != "Critical"))
	}
}

// nominal reads what a power supply is made for (DSP0268, InputRanges): the range of its
// input voltage, where it has one only, and its capacity.
func nominal(o redfish.Object, q sensor.Quantity, metric string) []collectors.Threshold {
	switch {
	case q == sensor.Volts:
		list := o.Objects("InputRanges")
		if len(list) != 1 {
			return nil
		}
		low, okLow := list[0].Number("MinimumVoltage")
		high, okHigh := list[0].Number("MaximumVoltage")
		if okLow && okHigh && low < high {
			return []collectors.Threshold{{Bound: schemas.RangeMin, Value: low}, {Bound: schemas.RangeMax, Value: high}}
		}
	case strings.Contains(metric, "output_power"):
		if v, ok := o.Number("PowerCapacityWatts"); ok && v > 0 {
			return []collectors.Threshold{{Bound: schemas.RangeMax, Value: v}}
		}
	}
	return nil
}

// readSubsystem follows ThermalSubsystem and PowerSubsystem to what has the readings.
func (r *reader) readSubsystem(ctx context.Context, src *source, _ time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil {
		return err
	}
	r.child(src, o.Link("ThermalMetrics"), rankExcerpts, (*reader).readExcerpts)
	r.child(src, o.Link("Fans"), rankExcerpts, (*reader).readFans)
	r.child(src, o.Link("PowerSupplies"), rankExcerpts, (*reader).readSupplies)
	r.child(src, o.Link("LeakDetection"), rankWalk, (*reader).readLeakDetection)
	return nil
}

// readFans reads the fans of a ThermalSubsystem.
func (r *reader) readFans(ctx context.Context, src *source, now time.Time) error {
	list, err := r.members(ctx, src.path)
	parts := r.numbered(schemas.KindFan, list)
	r.holdsMembers(src, schemas.KindFan, list, parts)
	for i, o := range list {
		speed := o.Object("SpeedPercent")
		name, part := nameOf(o), parts[i]
		if part == "" {
			continue
		}
		for _, n := range []struct {
			key, metric string
			q           sensor.Quantity
			scale       float64
		}{
			{"Reading", "auspex_fan_duty_ratio", sensor.Percent, 0.01}, {"SpeedRPM", "auspex_fan_speed_rpm", sensor.RPM, 1},
		} {
			v, ok := speed.Number(n.key)
			if !ok || silent(o) {
				continue
			}
			same := ""
			if n.key == "SpeedRPM" || speed["SpeedRPM"] == nil {
				same = speed.String("DataSourceUri")
			}
			r.put(src, &reading{
				id: o.ID() + "#/SpeedPercent/" + n.key, same: same, name: name, q: n.q, sole: true, value: v, ok: true,
				metric: &sensor.Series{Metric: n.metric, Kind: schemas.KindFan, Part: part, Scale: n.scale},
			}, now)
		}
		if health := o.Object("Status").String("Health"); health != "" && !silent(o) {
			r.put(src, &reading{
				id: o.ID() + " Health", name: name, sole: true, value: truth(health != "Critical"), ok: true,
				metric: &sensor.Series{Metric: "auspex_fan_healthy", Kind: schemas.KindFan, Part: part, Scale: 1},
			}, now)
		}
	}
	return err
}

// readSupplies reads the power supplies of a PowerSubsystem.
func (r *reader) readSupplies(ctx context.Context, src *source, now time.Time) error {
	list, err := r.members(ctx, src.path)
	parts := r.numbered(schemas.KindPSU, list)
	r.holdsMembers(src, schemas.KindPSU, list, parts)
	for i, o := range list {
		r.supply(src, o, parts[i], o.ID(), now)
		if c := r.child(src, o.Link("Metrics"), rankExcerpts, (*reader).readExcerpts); c != nil && parts[i] != "" && !silent(o) {
			c.chassis = parts[i]
		}
	}
	return err
}

// excerptUnits are the excerpts of EnvironmentMetrics, ThermalMetrics, PowerSupplyMetrics and
// ProcessorMetrics (DSP0268), with the unit of each.
var excerptUnits = [][2]string{
	{"TemperatureCelsius", "Cel"},
	{"PowerWatts", "W"},
	{"EnergyJoules", "J"},
	{"EnergykWh", "kW.h"},
	{"HumidityPercent", "%"},
	{"CoreVoltage", "V"},
	{"InputPowerWatts", "W"},
	{"OutputPowerWatts", "W"},
	{"InputVoltage", "V"},
	{"InputCurrentAmps", "A"},
	{"FrequencyHz", "Hz"},
	{"FanSpeedPercent", "%"},
	{"TemperatureReadingsCelsius", "Cel"},
	{"FanSpeedsPercent", "%"},
}

// readExcerpts reads a resource of excerpts: readings of sensors, each with the sensor's
// path where it has one.
func (r *reader) readExcerpts(ctx context.Context, src *source, now time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil {
		return err
	}
	r.excerpts(src, o, "", "#", now)
	summary := o.Object("TemperatureSummaryCelsius")
	for _, k := range []string{"Intake", "Exhaust"} {
		r.excerpt(src, summary.Object(k), k, "Cel", "", "#/TemperatureSummaryCelsius/"+k, now)
	}
	return nil
}

// excerpts puts the excerpts of an object; owner is the part that it speaks of.
func (r *reader) excerpts(src *source, o redfish.Object, owner, at string, now time.Time) {
	if owner == "" && sensorKind(src.chassis) != "" {
		owner = src.chassis
	}
	for _, x := range excerptUnits {
		key, unit := x[0], x[1]
		if key == "EnergykWh" && o.Object("EnergyJoules") != nil {
			continue // the same, rounded
		}
		if e := o.Object(key); e != nil {
			name := strings.TrimSpace(owner + " " + key)
			if o["TemperatureReadingsCelsius"] != nil && key == "PowerWatts" {
				name = "Fans " + key // DSP0268, ThermalMetrics: of the whole thermal subsystem
			}
			r.excerpt(src, e, name, unit, owner, at+"/"+key, now)
		}
		for i, e := range o.Objects(key) {
			name := e.String("DeviceName")
			if name == "" {
				name = lastPart(e.String("DataSourceUri"))
			}
			if name != "" {
				r.excerpt(src, e, name, unit, "", at+"/"+key+"/"+memberID(e, i), now)
			}
		}
	}
}

func sensorKind(text string) string {
	kind, _ := sensor.Part(text)
	return kind
}

func (r *reader) excerpt(src *source, e redfish.Object, name, unit, owner, at string, now time.Time) {
	if e == nil || silent(e) {
		return
	}
	key := "Reading"
	if _, ok := e.Number("SpeedRPM"); ok && e["Reading"] == nil {
		key, unit = "SpeedRPM", "RPM"
	}
	v, ok := e.Number(key)
	if !ok {
		return
	}
	q, scale, offset := sensor.Unit(unit)
	if strings.HasSuffix(at, "HumidityPercent") {
		q = sensor.Humidity
	}
	same := e.String("DataSourceUri")
	if s := r.found.sources[same]; s != nil && !r.known(same) && s.at.IsZero() && !r.waits(same, now) {
		s.wanted, src.again = true, true // it has a better name for itself
		return
	}
	if q == sensor.Celsius && sensor.MarginName(name) {
		q = sensor.Margin
	}
	if same == "" && v == 0 && q == sensor.Celsius {
		return // an excerpt has no status: services are seen that show absent parts as 0 °C
	}
	r.put(src, &reading{
		id: src.path + at, same: same, name: name, alt: strings.TrimSpace(src.apart + " " + name), place: src.chassis + " " + owner + " " + e.String("PhysicalContext"), q: q, sole: owner != "",
		value: v*scale + offset, ok: true,
	}, now)
}

// readComponents follows a collection of processors or memory modules to their metrics.
func (r *reader) readComponents(ctx context.Context, src *source, _ time.Time) error {
	list, err := r.list(ctx, src.path)
	src.list = true
	var parts []part
	defer func() { r.holds(src, parts...) }()
	for _, o := range list {
		if o.IsLink() {
			if o, err = r.get(ctx, o.ID()); err != nil {
				return err
			}
		}
		if o == nil || o.Object("Status").String("State") == "Absent" {
			continue
		}
		kind := schemas.KindDIMM
		if strings.HasSuffix(src.path, "Processors") {
			if kind = schemas.KindCPU; o.String("ProcessorType") == "GPU" {
				kind = schemas.KindGPU
			}
		}
		_, part := sensor.Part(o.String("Id")) // the memory of a GPU is the GPU's
		if part == "" {
			part = partOf(kind, o.String("Id"), label(o), o.String("Name"), lastPart(o.ID()))
		}
		part = r.found.unique(kind, part, o.ID())
		if p, ok := partFrom(o, kind, part); ok {
			if k := sensorKind(part); k != "" {
				p.kind = k
			}
			parts = append(parts, p)
		}
		if silent(o) {
			continue
		}
		for _, link := range []string{"Metrics", "EnvironmentMetrics"} {
			if c := r.child(src, o.Link(link), rankMetrics, (*reader).readMetrics); c != nil {
				c.chassis = part
				c.every = max(c.every, 10*r.cfg.SensorInterval)
			}
		}
	}
	return err
}

// readMetrics reads the metrics of a processor or a memory module: counters of errors,
// clocks, and excerpts.
func (r *reader) readMetrics(ctx context.Context, src *source, now time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil || o == nil {
		return err
	}
	part := src.chassis
	kind := sensorKind(part)
	if kind == "" {
		return nil
	}
	for fragment, p := range properties {
		resource, fragment, _ := strings.Cut(fragment, "#")
		of := cmp.Or(o.String("@odata.type"), "#ProcessorMetrics.")
		if kind == schemas.KindDIMM {
			of = cmp.Or(o.String("@odata.type"), "#MemoryMetrics.") // old firmware leaves the type out
		}
		if !strings.HasPrefix(of, "#"+resource+".") {
			continue
		}
		at := o
		steps := strings.Split(strings.TrimPrefix(fragment, "/"), "/")
		for _, s := range steps[:len(steps)-1] {
			at = at.Object(s)
		}
		if v, ok := at.Number(steps[len(steps)-1]); ok {
			name := strings.TrimPrefix(src.path, "/redfish/v1/")
			r.put(src, &reading{
				id: src.path + "#" + fragment, name: name, sole: true, value: v, ok: true,
				metric: &sensor.Series{Metric: "auspex_" + kind + "_" + p.metric, Kind: kind, Part: part, Scale: p.scale},
			}, now)
		}
	}
	r.excerpts(src, o, part, "#", now)
	return nil
}
