package redfish

import (
	"context"
	"strconv"
	"strings"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// series is where a sensor's readings go. Reported marks a sensor that a metric
// report carries, so that it need not be read by itself.
type series struct {
	ref      collectors.Ref
	scale    float64
	reported bool
	celsius  bool
}

// implausible is the magnitude of a temperature, in degrees Celsius, that no
// part of a server survives; firmware is seen that reports thousandths.
const implausible = 250

func (s series) plausible(v float64) bool {
	return !s.celsius || v <= implausible && v >= -implausible
}

// quantities maps ReadingType (DSP0268, Sensor) to what it measures.
var quantities = map[string]sensor.Quantity{
	"Temperature": sensor.Celsius, "Rotational": sensor.RPM, "Power": sensor.Watts, "Voltage": sensor.Volts, "Current": sensor.Amperes,
	"Percent": sensor.Percent, "EnergyJoules": sensor.Joules, "Frequency": sensor.Hertz, "Altitude": sensor.Pascals, "PressurePa": sensor.Pascals,
}

// sensorSeries finds or makes the series of a sensor resource.
func (r *reader) sensorSeries(ch string, o redfish.Object) (series, bool) {
	path := o.ID()
	if s, ok := r.found.sensors[path]; ok {
		return s, true
	}
	kind := o.String("ReadingType")
	q, ok := quantities[kind]
	if !ok {
		return series{}, false
	}
	name := o.String("Name")
	if name == "" {
		name = o.String("Id")
	}
	about := name
	if k, _ := sensor.Part(about); k == "" {
		about = o.String("Id") // vendors put the part into one of the two
	}
	c := sensor.Classify(about, strings.ReplaceAll(ch, "_", " ")+" "+o.String("PhysicalContext"), q)
	// Names need not be unique, ids are within a chassis.
	for _, alt := range []string{o.String("Id"), ch + " " + o.String("Id")} {
		if owner, taken := r.found.names[[3]string{c.Metric, c.Part, name}]; taken && owner != path {
			name = alt
		}
	}
	r.found.names[[3]string{c.Metric, c.Part, name}] = path
	s := series{celsius: q == sensor.Celsius, ref: r.batch.Series(c.Metric, c.Kind, c.Part, "sensor", name), scale: c.Scale}
	if q == sensor.Pascals && o.String("ReadingUnits") == "kPa" {
		s.scale = 1000
	}
	r.found.sensors[path] = s
	return s, true
}

func (r *reader) readSensors(ctx context.Context, now time.Time) error {
	for i := range r.found.chassis {
		ch := &r.found.chassis[i]
		if ch.sensors == "" {
			if err := r.readLegacy(ctx, ch, now); err != nil {
				return err
			}
			continue
		}
		if r.allReported(ch) {
			continue
		}
		list, bad, err := r.c.Members(ctx, ch.sensors)
		r.bad.Add(float64(bad))
		if err := r.tolerate(err); err != nil {
			return err
		}
		ch.paths = ch.paths[:0]
		for _, o := range list {
			s, ok := r.sensorSeries(ch.id, o)
			if !ok {
				continue
			}
			ch.paths = append(ch.paths, o.ID())
			switch v, ok := o.Number("Reading"); {
			case !ok || s.reported:
			case !s.plausible(v):
				r.bad.Inc()
			default:
				r.batch.Sample(s.ref, now, v*s.scale)
			}
		}
	}
	return nil
}

func (r *reader) allReported(ch *chassis) bool {
	for _, p := range ch.paths {
		if !r.found.sensors[p].reported {
			return false
		}
	}
	return len(ch.paths) > 0
}

// readLegacy reads the resources Thermal and Power of services older than the
// sensor model (DSP0268, deprecated there).
func (r *reader) readLegacy(ctx context.Context, ch *chassis, now time.Time) error {
	get := func(path string) (redfish.Object, error) {
		if path == "" {
			return nil, nil
		}
		o, err := r.c.Get(ctx, path)
		return o, r.tolerate(err)
	}
	put := func(o redfish.Object, key string, q sensor.Quantity, suffix string) {
		v, ok := o.Number(key)
		if !ok {
			return
		}
		name := o.String("Name")
		if name == "" {
			name = o.String("MemberId")
		}
		c := sensor.Classify(name+suffix, ch.id+" "+o.String("PhysicalContext"), q)
		r.batch.Sample(r.batch.Series(c.Metric, c.Kind, c.Part, "sensor", name), now, v*c.Scale)
	}
	t, err := get(ch.thermal)
	if err != nil {
		return err
	}
	for _, o := range t.Objects("Temperatures") {
		put(o, "ReadingCelsius", sensor.Celsius, "")
	}
	for _, o := range t.Objects("Fans") {
		q := sensor.RPM
		if o.String("ReadingUnits") == "Percent" {
			q = sensor.Percent
		}
		put(o, "Reading", q, "")
	}
	p, err := get(ch.power)
	if err != nil {
		return err
	}
	for _, o := range p.Objects("PowerSupplies") {
		put(o, "PowerInputWatts", sensor.Watts, " Input")
		put(o, "PowerOutputWatts", sensor.Watts, " Output")
		put(o, "LineInputVoltage", sensor.Volts, " Input")
		r.supply(o, now)
	}
	for _, o := range p.Objects("Voltages") {
		put(o, "ReadingVolts", sensor.Volts, "")
	}
	for _, o := range p.Objects("PowerControl") {
		put(o, "PowerConsumedWatts", sensor.Watts, "")
	}
	return nil
}

// readSupplies reads what is not a number at a power supply: whether it has
// input and works.
func (r *reader) readSupplies(ctx context.Context, now time.Time) error {
	for _, path := range r.found.supplies {
		list, bad, err := r.c.Members(ctx, path)
		r.bad.Add(float64(bad))
		if err := r.tolerate(err); err != nil {
			return err
		}
		for _, o := range list {
			r.supply(o, now)
		}
	}
	return nil
}

func (r *reader) supply(o redfish.Object, now time.Time) {
	if o.Object("Status").String("State") == "Absent" {
		return
	}
	name := o.String("Name")
	kind, part := sensor.Part(name)
	if kind != schemas.KindPSU {
		kind, part = sensor.Part(o.String("Id"))
	}
	if kind != schemas.KindPSU {
		if kind, part = sensor.Part(o.String("MemberId")); kind != schemas.KindPSU {
			return
		}
	}
	if line := o.String("LineInputStatus"); line != "" {
		r.batch.Sample(r.batch.Series("auspex_psu_input_present", kind, part, "sensor", name), now, truth(line == "Normal"))
	}
	if health := o.Object("Status").String("Health"); health != "" {
		r.batch.Sample(r.batch.Series("auspex_psu_healthy", kind, part, "sensor", name), now, truth(health != "Critical"))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// readReports reads every value of every metric report. A value that is the
// reading of a sensor goes to the sensor's series; any other goes to a series
// that its property names. Services are seen that leave the fragment of a
// property out, so that several values have one name: those are told apart by
// their order, which such services keep.
func (r *reader) readReports(ctx context.Context, now time.Time) error {
	if r.found.reports == "" {
		return nil
	}
	if len(r.found.sensors) == 0 {
		if err := r.learnSensors(ctx); err != nil {
			return err
		}
	}
	list, bad, err := r.c.Members(ctx, r.found.reports)
	r.bad.Add(float64(bad))
	if err := r.tolerate(err); err != nil {
		return err
	}
	seen := make(map[string]int)
	for _, report := range list {
		clear(seen)
		id := report.String("Id")
		for _, v := range report.Objects("MetricValues") {
			if v.Object("Oem").Object("Nvidia").Bool("MetricValueStale") {
				r.stale.Inc()
				continue
			}
			prop := v.String("MetricProperty")
			if prop == "" {
				prop = v.String("MetricId")
			}
			value, text, ok := metricValue(v["MetricValue"])
			if prop == "" || !ok {
				r.bad.Inc()
				continue
			}
			seen[prop]++
			path, fragment, _ := strings.Cut(prop, "#")
			if s, ok := r.found.sensors[path]; ok && (fragment == "" || fragment == "/Reading") && text == "" {
				if !s.reported {
					s.reported = true
					r.found.sensors[path] = s
				}
				if s.plausible(value) {
					r.batch.Sample(s.ref, now, value*s.scale)
					continue
				}
				r.bad.Inc() // kept under the property's name, without a unit
			}
			ref, scale := r.reportSeries(id, prop, seen[prop], text)
			r.batch.Sample(ref, now, value*scale)
		}
	}
	return nil
}

// learnSensors reads the sensors once for their names, so that reports can be
// joined with them.
func (r *reader) learnSensors(ctx context.Context) error {
	for i := range r.found.chassis {
		ch := &r.found.chassis[i]
		if ch.sensors == "" {
			continue
		}
		list, bad, err := r.c.Members(ctx, ch.sensors)
		r.bad.Add(float64(bad))
		if err := r.tolerate(err); err != nil {
			return err
		}
		for _, o := range list {
			if _, ok := r.sensorSeries(ch.id, o); ok {
				ch.paths = append(ch.paths, o.ID())
			}
		}
	}
	return nil
}

// properties names the metrics of report values that have a place of their own,
// by the property's path (DSP0268, ProcessorMetrics, MemoryMetrics, PortMetrics).
var properties = map[string]struct {
	metric string
	scale  float64
}{
	"ProcessorMetrics#/OperatingSpeedMHz":                                     {"clock_hertz", 1e6},
	"ProcessorMetrics#/BandwidthPercent":                                      {"utilization_ratio", 0.01},
	"ProcessorMetrics#/CacheMetricsTotal/LifeTime/CorrectableECCErrorCount":   {"cache_ecc_correctable_errors_total", 1},
	"ProcessorMetrics#/CacheMetricsTotal/LifeTime/UncorrectableECCErrorCount": {"cache_ecc_uncorrectable_errors_total", 1},
	"ProcessorMetrics#/PCIeErrors/CorrectableErrorCount":                      {"pcie_correctable_errors_total", 1},
	"ProcessorMetrics#/PCIeErrors/NonFatalErrorCount":                         {"pcie_nonfatal_errors_total", 1},
	"ProcessorMetrics#/PCIeErrors/FatalErrorCount":                            {"pcie_fatal_errors_total", 1},
	"ProcessorMetrics#/PCIeErrors/ReplayCount":                                {"pcie_replays_total", 1},
	"ProcessorMetrics#/PCIeErrors/L0ToRecoveryCount":                          {"pcie_recoveries_total", 1},
	"MemoryMetrics#/OperatingSpeedMHz":                                        {"memory_clock_hertz", 1e6},
	"MemoryMetrics#/BandwidthPercent":                                         {"memory_utilization_ratio", 0.01},
	"MemoryMetrics#/LifeTime/CorrectableECCErrorCount":                        {"memory_ecc_correctable_errors_total", 1},
	"MemoryMetrics#/LifeTime/UncorrectableECCErrorCount":                      {"memory_ecc_uncorrectable_errors_total", 1},
	"MemoryMetrics#/Oem/Nvidia/RowRemapping/CorrectableRowRemappingCount":     {"remapped_rows_total", 1},
	"MemoryMetrics#/Oem/Nvidia/RowRemapping/UncorrectableRowRemappingCount":   {"uncorrectable_remapped_rows_total", 1},
}

// reportSeries finds the series of a report value that is not a sensor's, and
// its factor.
func (r *reader) reportSeries(report, prop string, nth int, text string) (ref collectors.Ref, scale float64) {
	name := strings.TrimPrefix(prop, "/redfish/v1/")
	kind, part := sensor.Part(strings.ReplaceAll(name, "/", " "))
	owner := kind
	if owner == "" {
		owner = schemas.KindServer
	}
	path, fragment, _ := strings.Cut(name, "#")
	if p, ok := properties[lastPart(path)+"#"+fragment]; ok && text == "" && nth == 1 {
		return r.batch.Series("auspex_"+owner+"_"+p.metric, kind, part, "sensor", path), p.scale
	}
	labels := []string{"report", report, "property", name}
	if nth > 1 {
		labels = append(labels, "occurrence", strconv.Itoa(nth))
	}
	if text != "" {
		labels = append(labels, "state", text)
	}
	return r.batch.Series("auspex_"+owner+"_report_value", kind, part, labels...), 1
}

// metricValue reads a MetricValue, which is text (DSP0268, MetricReport): a
// number, a boolean, a duration in seconds, or a state, whose value is 1.
func metricValue(v any) (value float64, text string, ok bool) {
	switch v := v.(type) {
	case float64:
		return v, "", true
	case bool:
		return truth(v), "", true
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			return f, "", true
		}
		switch strings.ToLower(v) {
		case "true":
			return 1, "", true
		case "false":
			return 0, "", true
		case "", "nan", "null":
			return 0, "", false
		}
		if d, ok := duration(v); ok {
			return d, "", true
		}
		return 1, v, true
	}
	return 0, "", false
}

// duration reads an ISO 8601 duration of days and smaller, in seconds.
func duration(s string) (float64, bool) {
	rest, ok := strings.CutPrefix(s, "P")
	if !ok || rest == "" {
		return 0, false
	}
	var total float64
	inTime := false
	for rest != "" {
		if rest[0] == 'T' && !inTime {
			inTime, rest = true, rest[1:]
			continue
		}
		i := strings.IndexFunc(rest, func(c rune) bool { return c != '.' && (c < '0' || c > '9') })
		if i <= 0 {
			return 0, false
		}
		n, err := strconv.ParseFloat(rest[:i], 64)
		if err != nil {
			return 0, false
		}
		switch {
		case rest[i] == 'D' && !inTime:
			n *= 86400
		case rest[i] == 'H' && inTime:
			n *= 3600
		case rest[i] == 'M' && inTime:
			n *= 60
		case rest[i] == 'S' && inTime:
		default:
			return 0, false
		}
		total, rest = total+n, rest[i+1:]
	}
	return total, true
}
