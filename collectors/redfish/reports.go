package redfish

import (
	"cmp"
	"context"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// smallReports is up to how many bytes all reports are asked for at once.
const smallReports = 512 << 10

// readTelemetry follows the telemetry service to its reports.
func (r *reader) readTelemetry(ctx context.Context, src *source, _ time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil || o == nil {
		return err
	}
	// Without $expand: a day of history in each report is more than an answer may have.
	list, err := r.get(ctx, o.Link("MetricReports"))
	if err != nil || list == nil {
		return err
	}
	for page, pages := list, 0; page != nil && pages < maxPages; pages++ {
		for _, m := range page.Objects("Members") {
			r.child(src, m.ID(), rankReports, (*reader).readReport)
		}
		if page, err = r.get(ctx, page.Next()); err != nil {
			return err
		}
	}
	r.child(src, o.Link("MetricDefinitions"), rankDefinitions, (*reader).readDefinitions)
	r.child(src, o.Link("MetricReports"), rankAllReports, (*reader).readAllReports)
	return nil
}

// readDefinitions reads what the metrics of reports are (DSP0268, MetricDefinition). Where the
// service does not expand them, those that a report asks for are read one by one.
func (r *reader) readDefinitions(ctx context.Context, src *source, _ time.Time) error {
	list, err := r.list(ctx, src.path)
	for _, o := range list {
		if id := cmp.Or(o.String("Id"), lastPart(o.ID())); r.found.metrics[id] == nil || !o.IsLink() {
			r.found.metrics[id] = o
		}
	}
	return err
}

func (r *reader) readDefinition(ctx context.Context, src *source, _ time.Time) error {
	o, err := r.get(ctx, src.path)
	if o == nil {
		o = redfish.Object{}
	}
	r.found.metrics[lastPart(src.path)] = o
	return err
}

// extreme reports whether a metric is not a reading but made of several.
func extreme(def redfish.Object) bool {
	switch def.String("CalculationAlgorithm") {
	case "Maximum", "Minimum", "Summation":
		return true
	}
	return false
}

// readReport reads one metric report.
func (r *reader) readReport(ctx context.Context, src *source, now time.Time) error {
	if r.waits(src.path, now) {
		return nil
	}
	o, err := r.c.GetChanged(ctx, src.path)
	if err != nil {
		return r.tolerate(src.path, err)
	}
	r.heal(src.path)
	r.good++
	given := make(map[*series]bool)
	if o != nil {
		r.report(src, o, given, now)
	}
	src.idle(r.found, given)
	return nil
}

// readAllReports reads all reports with one request, where they are small and the service
// expands them.
func (r *reader) readAllReports(ctx context.Context, src *source, now time.Time) error {
	root, err := r.c.Root(ctx)
	if err != nil || !root.Expand {
		return err
	}
	size := int64(0)
	for _, s := range r.found.sources {
		if s.rank == rankReports && s != src {
			size += s.size
		}
	}
	if size > smallReports {
		return nil
	}
	list, err := r.list(ctx, src.path)
	if err != nil {
		return err
	}
	given := make(map[*series]bool)
	for _, o := range list {
		if !o.IsLink() {
			r.report(src, o, given, now)
		}
	}
	src.idle(r.found, given)
	return nil
}

// value is one value of a report.
type value struct {
	number float64
	text   string // a state, whose number is 1
	at     time.Time
}

// report takes the values of a report that are newer than those taken before: services
// keep a day of history in one. What a value is, its metric and its property say
// together; the first reading of a service takes the newest of each.
func (r *reader) report(src *source, o redfish.Object, given map[*series]bool, now time.Time) {
	stamp, _ := o.Time("Timestamp")
	values := make(map[[2]string][]value)
	var order [][2]string
	properties := make(map[string]string) // to the metric, "*" where there are several
	for _, v := range o.Objects("MetricValues") {
		if staleMark(v) {
			r.stale.Inc()
			continue
		}
		id, prop := v.String("MetricId"), r.c.Canonical(v.String("MetricProperty"))
		number, text, ok := metricValue(v["MetricValue"])
		if id == "" && prop == "" || !ok {
			if s := v.String("MetricValue"); comma(s) {
				r.reportComma(src.path, cmp.Or(id, prop), s)
			}
			r.bad.Inc()
			continue
		}
		at, ok := v.Time("Timestamp")
		if !ok {
			at = stamp
		}
		key := [2]string{id, prop}
		if values[key] == nil {
			order = append(order, key)
		}
		values[key] = append(values[key], value{number, text, at})
		if other, ok := properties[prop]; ok && other != id {
			id = "*"
		}
		properties[prop] = id
	}
	skew := r.skew
	for _, key := range order {
		list := values[key]
		slices.SortStableFunc(list, func(a, b value) int { return a.at.Compare(b.at) })
		// Its clock is at least as late as the newest thing that it has measured.
		if ahead := list[len(list)-1].at.Sub(now.Add(r.skew)); ahead < 24*time.Hour {
			skew = max(skew, r.skew+ahead)
		}
	}
	for _, key := range order {
		list := values[key]
		s := r.reportSeries(src, key, properties[key[1]] == "*", list)
		if s == nil || r.doubts(s, key[1], list[len(list)-1].number) {
			continue
		}
		src.give(r.found, s)
		r.take(s, list, skew, given, now)
	}
}

// otherUnit is a ratio that no change of a reading explains as well as a unit of
// thousandths does: halfway, in powers.
const otherUnit = 31.6

// doubts reports whether a report gives a sensor's reading in another unit than the
// sensor does: some have milliwatts and millijoules. A report names no unit, so that
// the sensor's counts and the sensor is read instead. What was read of it before may be
// of another load, so that it is read again first: a supply whose power goes is no other unit.
func (r *reader) doubts(s *series, property string, v float64) bool {
	ratio := math.Abs(v / s.own)
	switch {
	case s.doubted:
	case s.suspect && s.own == 0:
		return true // until the sensor is read
	case s.text != nil || s.own == 0 || v == 0 || ratio <= otherUnit && ratio >= 1/otherUnit:
		s.suspect = false
	case !s.suspect:
		s.suspect, s.own = true, 0
		return true
	default:
		s.doubted = true
		r.conflicts.Inc()
		r.s.Log.Warn("a report's value is not in the sensor's unit, the sensor counts", "property", property, "sensor", s.own, "report", v)
	}
	return s.doubted
}

// staleMark reports whether a service says of a value that it is not current, in whatever
// Oem object.
func staleMark(v redfish.Object) bool {
	for vendor := range v.Object("Oem") {
		if v.Object("Oem").Object(vendor).Bool("MetricValueStale") {
			return true
		}
	}
	return false
}

// recent is how far back values are taken one by one; the hot window keeps the device's
// times as far.
const recent = time.Minute

// take adds the values that are newer than the last one taken: the newest, and those of the
// last minute before it. Times are brought to our clock.
func (r *reader) take(s *series, list []value, skew time.Duration, given map[*series]bool, now time.Time) {
	newest := list[len(list)-1]
	if newest.at.IsZero() {
		given[s] = true
		if !s.read.Equal(now) {
			s.read = now
			r.sampleOf(s, newest, now)
		}
		return
	}
	since := s.at
	if s.read.Equal(now) && newest.at.After(since) && s.text == nil { // another source has said it in this round
		given[s], s.at = true, newest.at
		return
	}
	for _, v := range list {
		if !v.at.After(since) || v.at.Before(newest.at) && (s.at.IsZero() || newest.at.Sub(v.at) > recent) {
			continue
		}
		at := v.at.Add(-skew)
		if at.After(now) {
			at = now
		}
		if now.Sub(at) > max(r.cfg.Backlog, time.Hour) {
			r.stale.Inc()
			continue
		}
		given[s] = true
		r.sampleOf(s, v, at)
	}
	s.at = newest.at
	if given[s] {
		s.read = now
	}
}

func (r *reader) sampleOf(s *series, v value, at time.Time) {
	switch {
	case s.celsius && math.Abs(v.number*s.scale) > implausible:
		r.bad.Inc()
	case s.text != nil:
		for text, ref := range s.text {
			r.batch.Sample(ref, at, truth(text == v.text))
		}
	default:
		r.batch.Sample(s.ref, at, v.number*s.scale)
	}
}

// statistic is in the names of metrics that are made of readings over time.
var statistic = regexp.MustCompile(`(?i)av(era)?g|min|max|sum|peak|total|mean`)

// reportSeries finds the series of a metric and property. A value that is the reading of a
// sensor, or of a property that is read elsewhere, belongs to that; a mean or an extreme of
// it does not. A value under a name that says no property, and that several share, is
// nobody's: services are seen that leave the property's name out.
func (r *reader) reportSeries(src *source, key [2]string, several bool, list []value) *series {
	id, prop := key[0], key[1]
	cat := &r.found.catalog
	path, fragment, _ := strings.Cut(prop, "#")
	text := list[len(list)-1].text
	if s := cat.byID[prop]; s != nil {
		return s.unless(text != "" && s.text == nil)
	}
	if text == "" && (id == "" || !several && !statistic.MatchString(id)) {
		steps := strings.Split(strings.Trim(fragment, "/"), "/")
		same := []string{path + "#/" + strings.Join(steps, "/"), path}
		if steps[0] += "s"; len(steps) > 1 { // Temperature/0 is seen for Temperatures/0
			same = append(same, path+"#/"+strings.Join(steps, "/"))
		}
		for _, p := range same {
			if s := cat.byID[p]; s != nil && (p != path || fragment == "" || strings.Trim(fragment, "/") == "Reading") {
				return s
			}
		}
	}
	if clash(list, id != "" || fragment != "") {
		r.unnamed.Add(float64(len(list)))
		return nil
	}
	own := "metric " + id + " " + prop
	if s := cat.byID[own]; s != nil {
		return s.inState(r, text)
	}
	kind, part := ownerOf(path)
	owner := cmp.Or(kind, schemas.KindServer)
	name := strings.TrimPrefix(prop, "/redfish/v1/")
	if p, ok := properties[lastPart(path)+"#/"+strings.Trim(fragment, "/")]; ok && text == "" {
		return r.resolve(src, &reading{
			id: own, name: strings.TrimPrefix(path, "/redfish/v1/"), sole: !statistic.MatchString(id), q: p.q,
			metric: &sensor.Series{Metric: "auspex_" + owner + "_" + p.metric, Kind: kind, Part: part, Scale: p.scale},
		})
	}
	if def := r.found.metrics[id]; def != nil && def.IsLink() {
		if r.child(src, def.ID(), rankDefinitions, (*reader).readDefinition); !r.waits(def.ID(), r.s.Now()) {
			src.again = true
			r.c.Forget(src.path)
			return nil
		}
	}
	if def := r.found.metrics[id]; def != nil && text == "" && !statistic.MatchString(id) && !extreme(def) {
		// The definition says its unit, and its name or the property's what part it is of. Of
		// the server as a whole that is not enough: a power cap has watts as well.
		q, scale, offset := sensor.Unit(def.String("Units"))
		c := sensor.Classify(id, strings.ReplaceAll(path, "/", " ")+" "+def.String("PhysicalContext"), q)
		if c.Scale *= scale; offset == 0 && c.Part != "" {
			return r.resolve(src, &reading{id: own, name: strings.TrimSpace(id + " " + name), sole: true, q: q, metric: &c})
		}
	}
	if !r.room() {
		return nil
	}
	var labels []string
	if id != "" {
		labels = append(labels, "metric", id)
	}
	if name != "" {
		labels = append(labels, "property", name)
	}
	s := &series{scale: 1, metric: "auspex_" + owner + "_report_value", kind: kind, part: part, labels: labels}
	cat.byID[own], cat.dirty = s, true
	if text == "" {
		s.ref = r.batch.Series(s.metric, kind, part, labels...)
		return s
	}
	s.text = make(map[string]collectors.Ref)
	return s.inState(r, text)
}

// unless returns the series unless a condition holds.
func (s *series) unless(no bool) *series {
	if no {
		return nil
	}
	return s
}

// mostStates bounds the states of one value: text that is none, such as a time, has many.
const mostStates = 8

// inState returns the series of a state, which has one of its own; nil where the value has shown too many.
func (s *series) inState(r *reader, text string) *series {
	if (s.text == nil) != (text == "") {
		return nil
	}
	if text != "" {
		if _, ok := s.text[text]; !ok {
			if len(s.text) >= mostStates {
				r.unmapped.Inc()
				return nil
			}
			s.text[text] = r.batch.Series(s.metric, s.kind, s.part, append(slices.Clone(s.labels), "state", text)...)
		}
	}
	return s
}

// clash reports whether values under one name cannot be the history of one thing: two of
// one time differ. Where the name says no property, they must come at about equal distances
// as well, or they are taken for those of several.
func clash(list []value, named bool) bool {
	shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
	for i := range list[1:] {
		a, b := list[i], list[i+1]
		gap := b.at.Sub(a.at)
		if gap == 0 && (a.number != b.number || a.text != b.text) {
			return true
		}
		shortest, longest = min(shortest, gap), max(longest, gap)
	}
	return !named && len(list) > 1 && (len(list) < 4 || 2*longest > 3*shortest)
}

// ownerOf names the part that a path speaks of.
func ownerOf(path string) (kind, part string) {
	seg := strings.Split(strings.Trim(path, "/"), "/")
	for i, s := range seg[:max(0, len(seg)-1)] {
		next := seg[i+1]
		switch s {
		case "Processors":
			if k, p := sensor.Part(next); k != "" {
				return k, p
			}
			if p := partOf(schemas.KindCPU, next); p != "" {
				return schemas.KindCPU, p
			}
		case "Memory":
			if k, p := sensor.Part(next); k != "" {
				return k, p
			}
			if p := partOf(schemas.KindDIMM, next); p != "" {
				return schemas.KindDIMM, p
			}
		}
	}
	return sensor.Part(strings.Join(seg, " "))
}

// property is a metric of a value that has a place of its own.
type property struct {
	metric string
	scale  float64
	q      sensor.Quantity
}

// properties names the metrics of values that have a place of their own, by the
// property's path (DSP0268, ProcessorMetrics, MemoryMetrics).
var properties = map[string]property{
	"ProcessorMetrics#/TemperatureCelsius":                                    {"temperature_celsius", 1, sensor.Celsius},
	"ProcessorMetrics#/ConsumedPowerWatt":                                     {"power_watts", 1, sensor.Watts},
	"ProcessorMetrics#/OperatingSpeedMHz":                                     {"clock_hertz", 1e6, ""},
	"ProcessorMetrics#/BandwidthPercent":                                      {"utilization_ratio", 0.01, ""},
	"ProcessorMetrics#/CacheMetricsTotal/LifeTime/CorrectableECCErrorCount":   {"cache_ecc_correctable_errors_total", 1, ""},
	"ProcessorMetrics#/CacheMetricsTotal/LifeTime/UncorrectableECCErrorCount": {"cache_ecc_uncorrectable_errors_total", 1, ""},
	"ProcessorMetrics#/PCIeErrors/CorrectableErrorCount":                      {"pcie_correctable_errors_total", 1, ""},
	"ProcessorMetrics#/PCIeErrors/NonFatalErrorCount":                         {"pcie_nonfatal_errors_total", 1, ""},
	"ProcessorMetrics#/PCIeErrors/FatalErrorCount":                            {"pcie_fatal_errors_total", 1, ""},
	"ProcessorMetrics#/PCIeErrors/ReplayCount":                                {"pcie_replays_total", 1, ""},
	"ProcessorMetrics#/PCIeErrors/L0ToRecoveryCount":                          {"pcie_recoveries_total", 1, ""},
	"MemoryMetrics#/OperatingSpeedMHz":                                        {"memory_clock_hertz", 1e6, ""},
	"MemoryMetrics#/BandwidthPercent":                                         {"memory_utilization_ratio", 0.01, ""},
	"MemoryMetrics#/LifeTime/CorrectableECCErrorCount":                        {"memory_ecc_correctable_errors_total", 1, ""},
	"MemoryMetrics#/LifeTime/UncorrectableECCErrorCount":                      {"memory_ecc_uncorrectable_errors_total", 1, ""},
	"MemoryMetrics#/Oem/Nvidia/RowRemapping/CorrectableRowRemappingCount":     {"remapped_rows_total", 1, ""},
	"MemoryMetrics#/Oem/Nvidia/RowRemapping/UncorrectableRowRemappingCount":   {"uncorrectable_remapped_rows_total", 1, ""},
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
		if f, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
			return f, "", !math.IsNaN(f) && !math.IsInf(f, 0)
		}
		switch strings.ToLower(v) {
		case "true":
			return 1, "", true
		case "false":
			return 0, "", true
		case "", "nan", "null", "n/a", "na", "none", "unknown":
			return 0, "", false
		}
		if d, ok := duration(v); ok {
			return d, "", true
		}
		if comma(v) {
			return 0, "", false
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
