package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// The table of conformance: what a tree has, read from its documents without any code of the collector, against what the
// collector has told of it. It knows no vendor: the recorded trees and those that are drawn stand before the same rules.

// item is one thing that a tree has.
type item struct {
	kind   string // row of the table
	family string // within it two items are two things, so that each has a series of its own
	path   string
	name   string
	suffix []string // of the metrics that it may be
	value  float64  // in base units
	bounds map[schemas.Bound]float64
	ill    bool // its health is not OK
	labels map[string]string
	event  string
	prop   string // of a value of a report
	nobody string // why it is not to be told
}

// series is one that the collector has told.
type heardSeries struct {
	metric, kind, part string
	labels             map[string]string
	values             []float64
	times              []int64
}

func (s *heardSeries) String() string { return fmt.Sprint(s.metric, " ", s.part, " ", s.labels) }

// listener takes what the collector tells.
type listener struct {
	series map[string]*heardSeries
	events map[string]int
	evs    []schemas.Event
}

// Emit implements [collectors.Emitter].
func (l *listener) Emit(_ context.Context, b *auspexv1.Batch) error {
	c := b.GetSamples()
	sym := c.GetSymbols()
	for i, ref := range c.GetRef() {
		s := c.GetSeries()[ref]
		h := &heardSeries{metric: sym[s.GetMetric()], kind: sym[s.GetPartKind()], part: sym[s.GetPart()], labels: make(map[string]string)}
		for j := 0; j+1 < len(s.GetLabels()); j += 2 {
			h.labels[sym[s.GetLabels()[j]]] = sym[s.GetLabels()[j+1]]
		}
		key := h.String()
		if l.series[key] == nil {
			l.series[key] = h
		}
		h = l.series[key]
		h.values, h.times = append(h.values, c.GetValue()[i]), append(h.times, c.GetBaseTime()+c.GetDelta()[i])
	}
	for _, w := range b.GetEvents() {
		ev := schemas.EventFromWire(w)
		l.evs = append(l.evs, ev)
		l.events[ev.Attr("record")+" "+ev.Message]++
		l.events[ev.Attr("record")+" "+ev.Code+" "+ev.Attr("log")]++ // of those that say nothing
	}
	return nil
}

// walker reads the documents of a tree.
type walker struct {
	tree  *redfishtest.Tree
	items []*item
	log   func(id string) bool // which logs are read
	seen  map[string]bool
}

func (w *walker) doc(path string) doc {
	d := w.tree.Doc(path)
	return doc(d)
}

func ref(d doc, key string) string {
	m, _ := d[key].(map[string]any)
	s, _ := m["@odata.id"].(string)
	return s
}

func str(d doc, key string) string { s, _ := d[key].(string); return s }

func obj(d doc, key string) doc { m, _ := d[key].(map[string]any); return m }

// num is a number of a property; text that is one counts.
func num(d doc, key string) (float64, bool) {
	switch v := d[key].(type) {
	case float64:
		return v, true
	case string:
		f, err := strconv.ParseFloat(v, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return 0, false
}

func (w *walker) members(path string) (out []doc) {
	for _, m := range array(w.doc(path), "Members") {
		if d := w.doc(str(m, "@odata.id")); d != nil {
			d = maps.Clone(d)
			d["@odata.id"] = str(m, "@odata.id")
			out = append(out, d)
		}
	}
	return out
}

func array(d doc, key string) (out []doc) {
	list, _ := d[key].([]any)
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func called(d doc) string {
	for _, k := range []string{"Name", "FanName", "Id", "MemberId"} {
		if s := str(d, k); s != "" {
			return s
		}
	}
	return ""
}

var unitsOfTheTable = map[string]struct {
	suffix []string
	scale  float64
}{
	"Cel": {[]string{"temperature_celsius", "margin_celsius"}, 1}, "C": {[]string{"temperature_celsius", "margin_celsius"}, 1},
	"RPM": {[]string{"speed_rpm"}, 1}, "W": {[]string{"power_watts"}, 1}, "Watts": {[]string{"power_watts"}, 1}, "V": {[]string{"voltage_volts"}, 1},
	"Volts": {[]string{"voltage_volts"}, 1}, "A": {[]string{"current_amperes"}, 1}, "Amps": {[]string{"current_amperes"}, 1},
	"%": {[]string{"_ratio"}, 0.01}, "Percent": {[]string{"_ratio"}, 0.01}, "J": {[]string{"energy_joules_total"}, 1}, "kW.h": {[]string{"energy_joules_total"}, 3.6e6},
	"Hz": {[]string{"frequency_hertz"}, 1}, "Pa": {[]string{"pressure_pascals"}, 1}, "kPa": {[]string{"pressure_pascals"}, 1000},
	"?": {[]string{""}, 1}, "l/min": {[]string{"liquid_flow_cubic_meters_per_second"}, 0.001 / 60}, "CFM": {[]string{"air_flow_cubic_meters_per_second"}, 0.028316846592 / 60},
}

var typesOfTheTable = map[string]string{
	"Temperature": "Cel", "Rotational": "RPM", "Power": "W", "Voltage": "V", "Current": "A", "Percent": "%", "Humidity": "%", "EnergyJoules": "J",
	"EnergykWh": "kW.h", "Frequency": "Hz", "PressurePa": "Pa", "PressurekPa": "kPa", "LiquidFlowLPM": "l/min", "AirFlow": "CFM",
}

var boundsOfTheTable = map[string]schemas.Bound{
	"UpperFatal": schemas.UpperFatal, "UpperCritical": schemas.UpperCritical, "UpperCaution": schemas.UpperCaution,
	"LowerFatal": schemas.LowerFatal, "LowerCritical": schemas.LowerCritical, "LowerCaution": schemas.LowerCaution,
	"UpperThresholdFatal": schemas.UpperFatal, "UpperThresholdCritical": schemas.UpperCritical, "UpperThresholdNonCritical": schemas.UpperCaution,
	"LowerThresholdFatal": schemas.LowerFatal, "LowerThresholdCritical": schemas.LowerCritical, "LowerThresholdNonCritical": schemas.LowerCaution,
}

// thresholds are those that a member gives. Those that contradict one another are nobody's.
func thresholdsOf(d doc, scale float64) map[schemas.Bound]float64 {
	out := make(map[schemas.Bound]float64)
	for k, b := range boundsOfTheTable {
		if v, ok := num(obj(obj(d, "Thresholds"), k), "Reading"); ok {
			out[b] = v * scale
		}
		if v, ok := num(d, k); ok {
			out[b] = v * scale
		}
	}
	for a, x := range out {
		for b, y := range out {
			if strings.HasPrefix(string(a), "upper") && strings.HasPrefix(string(b), "lower") && x <= y {
				out[a], out[b] = math.NaN(), math.NaN()
			}
		}
	}
	maps.DeleteFunc(out, func(_ schemas.Bound, v float64) bool { return math.IsNaN(v) })
	return out
}

var noReading = []string{"Absent", "Disabled", "UnavailableOffline", "StandbyOffline", "Deferring"}

// reading adds one number of a member.
func (w *walker) reading(kind, family, path, name, unit string, d doc, key string) {
	u, ok := unitsOfTheTable[unit]
	if !ok {
		u.suffix, u.scale = []string{"sensor_state", "sensor_value"}, 1
	}
	if _, there := d[key]; !there {
		return
	}
	x := &item{kind: kind, family: family, path: path + "#" + key, name: name, suffix: u.suffix}
	w.items = append(w.items, x)
	v, ok := num(d, key)
	switch state := str(obj(d, "Status"), "State"); {
	case slices.Contains(noReading, state):
		x.nobody = "is " + state
	case !ok && d[key] == nil:
		x.nobody = "null"
	case !ok:
		x.nobody = "not a number"
	case slices.Contains(u.suffix, "temperature_celsius") && math.Abs(v) > 250:
		x.nobody = "no part of a server is as warm"
	}
	x.value = v * u.scale
	if ok && unit != "" {
		x.bounds = thresholdsOf(d, u.scale)
	}
	health := str(obj(d, "Status"), "Health")
	x.ill = health == "Warning" || health == "Critical"
}

// walk reads what there is.
func (w *walker) walk() {
	root := w.doc("/redfish/v1")
	for _, c := range w.members(ref(root, "Chassis")) {
		w.chassis(c)
	}
	equipment := w.doc(ref(root, "PowerEquipment"))
	for _, k := range []string{"PowerShelves"} {
		for _, shelf := range w.members(ref(equipment, k)) {
			w.supplies(ref(shelf, "PowerSupplies"))
			w.excerpts("excerpt", ref(shelf, "Metrics"))
		}
	}
	for _, unit := range w.members(ref(w.doc(ref(root, "ThermalEquipment")), "CDUs")) {
		w.leaks(ref(unit, "LeakDetection"))
	}
	owners := map[string]doc{}
	for _, k := range []string{"Systems", "Managers", "Chassis"} {
		for _, o := range w.members(ref(root, k)) {
			owners[str(o, "@odata.id")] = o
			if k == "Systems" {
				w.system(o)
			}
		}
	}
	entries := make(map[string]bool)
	for _, id := range slices.Sorted(maps.Keys(owners)) {
		for _, l := range w.members(ref(owners[id], "LogServices")) {
			if e := ref(l, "Entries"); e != "" && !entries[e] && w.log(str(l, "Id")) {
				entries[e] = true
				for _, x := range w.members(e) {
					w.entry(x)
				}
			}
		}
	}
	for _, x := range w.members(ref(w.doc(ref(root, "UpdateService")), "FirmwareInventory")) {
		y := &item{
			kind: "firmware", family: "firmware", path: str(x, "@odata.id"), name: str(x, "Id"),
			labels: map[string]string{"component": str(x, "Id"), "version": strings.TrimSpace(str(x, "Version"))},
		}
		switch {
		case words(y.labels["version"]) == "":
			y.nobody = "has no version"
		case regexp.MustCompile(`^(Previous|Available|Rollback)-`).MatchString(str(x, "Id")):
			y.nobody = "does not run"
		}
		w.items = append(w.items, y)
	}
	w.reports(ref(w.doc(ref(root, "TelemetryService")), "MetricReports"))
}

func (w *walker) chassis(c doc) {
	for _, s := range w.members(ref(c, "Sensors")) {
		unit := str(s, "ReadingUnits")
		if _, ok := unitsOfTheTable[unit]; !ok {
			unit = typesOfTheTable[str(s, "ReadingType")]
			// A sensor that says to have no unit, and that has no range, is a discrete one.
			given, said := s["ReadingUnits"].(string)
			_, ranged := num(s, "ReadingRangeMax")
			switch {
			case said && given == "" && !ranged && len(thresholdsOf(s, 1)) == 0:
				unit = ""
			case !said && str(s, "ReadingType") == "":
				unit = "?" // another place under the same name says it, if any
			}
		}
		w.reading("sensor", "sensors", str(s, "@odata.id"), called(s), unit, s, "Reading")
	}
	thermal := ref(c, "Thermal")
	t := w.doc(thermal)
	for i, m := range array(t, "Temperatures") {
		w.reading("thermal", "temperatures", fmt.Sprint(thermal, "#Temperatures/", i), called(m), "Cel", m, "ReadingCelsius")
	}
	for i, m := range array(t, "Fans") {
		unit, key := str(m, "ReadingUnits"), "Reading"
		if _, ok := unitsOfTheTable[unit]; !ok {
			unit = "RPM"
		}
		if _, ok := num(m, key); !ok && m["ReadingRPM"] != nil {
			key = "ReadingRPM"
		}
		w.reading("thermal", "fans", fmt.Sprint(thermal, "#Fans/", i), called(m), unit, m, key)
		w.part(schemas.KindFan, fmt.Sprint(thermal, "#Fans/", i), m)
	}
	power := ref(c, "Power")
	p := w.doc(power)
	for i, m := range array(p, "Voltages") {
		w.reading("power", "voltages", fmt.Sprint(power, "#Voltages/", i), called(m), "V", m, "ReadingVolts")
	}
	for i, m := range array(p, "PowerControl") {
		w.reading("power", "control", fmt.Sprint(power, "#PowerControl/", i), called(m), "W", m, "PowerConsumedWatts")
	}
	for i, m := range array(p, "PowerSupplies") {
		at := fmt.Sprint(power, "#PowerSupplies/", i)
		w.supply(at, m)
		w.part(schemas.KindPSU, at, m)
	}
	ts := w.doc(ref(c, "ThermalSubsystem"))
	w.excerpts("excerpt", ref(ts, "ThermalMetrics"))
	for _, f := range w.members(ref(ts, "Fans")) {
		at := str(f, "@odata.id")
		speed := maps.Clone(obj(f, "SpeedPercent"))
		if speed == nil {
			speed = doc{}
		}
		speed["Status"] = f["Status"]
		w.reading("fan", "fan duty", at, called(f), "%", speed, "Reading")
		w.reading("fan", "fan speed", at, called(f), "RPM", speed, "SpeedRPM")
		w.part(schemas.KindFan, at, f)
	}
	w.leaks(ref(ts, "LeakDetection"))
	ps := w.doc(ref(c, "PowerSubsystem"))
	w.supplies(ref(ps, "PowerSupplies"))
	w.excerpts("excerpt", ref(c, "EnvironmentMetrics"))
	for _, a := range w.members(ref(c, "NetworkAdapters")) {
		w.part(schemas.KindNIC, str(a, "@odata.id"), a)
	}
}

func (w *walker) leaks(path string) {
	for _, d := range w.members(ref(w.doc(path), "LeakDetectors")) {
		x := &item{
			kind: "leak detector", family: "leaks", path: str(d, "@odata.id"), name: called(d), suffix: []string{"auspex_server_leak_detected"},
		}
		switch state := str(d, "DetectorState"); {
		case slices.Contains(noReading, str(obj(d, "Status"), "State")):
			x.nobody = "is " + str(obj(d, "Status"), "State")
		case state == "Warning" || state == "Critical":
			x.value = 1
		case state != "OK":
			x.nobody = "no state"
		}
		w.items = append(w.items, x)
	}
}

func (w *walker) supplies(path string) {
	for _, p := range w.members(path) {
		at := str(p, "@odata.id")
		w.supply(at, p)
		w.part(schemas.KindPSU, at, p)
		if !slices.Contains(noReading, str(obj(p, "Status"), "State")) {
			w.excerpts("excerpt", ref(p, "Metrics"))
		}
	}
}

func (w *walker) supply(at string, d doc) {
	for _, k := range [][2]string{{"PowerInputWatts", "W"}, {"LineInputVoltage", "V"}, {"InputCurrentAmps", "A"}} {
		w.reading("power", "supplies "+k[0], at, called(d), k[1], d, k[0])
	}
	out := "LastPowerOutputWatts"
	if _, ok := num(d, "PowerOutputWatts"); ok {
		out = "PowerOutputWatts"
	}
	w.reading("power", "supplies output", at, called(d), "W", d, out)
}

var excerptsOfTheTable = map[string]string{
	"TemperatureCelsius": "Cel", "PowerWatts": "W", "EnergyJoules": "J", "EnergykWh": "kW.h", "InputPowerWatts": "W", "OutputPowerWatts": "W",
	"InputVoltage": "V", "InputCurrentAmps": "A", "CoreVoltage": "V", "FrequencyHz": "Hz", "HumidityPercent": "%",
}

func (w *walker) excerpts(kind, path string) {
	d := w.doc(path)
	one := func(key, unit string, e doc) {
		if e == nil {
			return
		}
		if _, both := d["EnergyJoules"]; both && key == "EnergykWh" {
			return // the same, rounded
		}
		w.reading(kind, kind+" "+path+key, path+"#"+key, key, unit, e, "Reading")
		x := w.items[len(w.items)-1]
		x.prop = str(e, "DataSourceUri")
		if v, ok := num(e, "Reading"); ok && x.path == path+"#"+key+"#Reading" && v == 0 && unit == "Cel" && str(e, "DataSourceUri") == "" {
			x.nobody = "0 °C without a sensor: services show absent parts so"
		}
	}
	for key, unit := range excerptsOfTheTable {
		one(key, unit, obj(d, key))
	}
	for _, k := range []string{"Intake", "Exhaust"} {
		one(k, "Cel", obj(obj(d, "TemperatureSummaryCelsius"), k))
	}
	for i, e := range array(d, "TemperatureReadingsCelsius") {
		if str(e, "DeviceName") != "" || str(e, "DataSourceUri") != "" {
			one(fmt.Sprint("TemperatureReadingsCelsius/", i), "Cel", e)
		}
	}
}

func (w *walker) system(s doc) {
	for _, k := range []string{"Processors", "Memory"} {
		for _, m := range w.members(ref(s, k)) {
			kind := schemas.KindDIMM
			if k == "Processors" {
				if kind = schemas.KindCPU; str(m, "ProcessorType") == "GPU" {
					kind = schemas.KindGPU
				}
			}
			w.part(kind, str(m, "@odata.id"), m)
			if slices.Contains(noReading, str(obj(m, "Status"), "State")) {
				continue
			}
			w.excerpts("excerpt", ref(m, "EnvironmentMetrics"))
			w.excerpts("excerpt", ref(m, "Metrics"))
		}
	}
	for _, st := range w.members(ref(s, "Storage")) {
		for _, l := range array(st, "Drives") {
			if d := w.doc(str(l, "@odata.id")); d != nil {
				w.part(schemas.KindDisk, str(l, "@odata.id"), d)
			}
		}
	}
}

// words is a text, or "" where makers say nothing with it.
func words(s string) string {
	s = strings.TrimSpace(s)
	if s == "N/A" || strings.Trim(s, "0 .-") == "" {
		return ""
	}
	return s
}

func (w *walker) part(kind, path string, d doc) {
	serial := words(str(d, "SerialNumber"))
	if serial == "" || w.seen[kind+serial] {
		return // it is of the table by its serial number, wherever it is shown
	}
	w.seen[kind+serial] = true
	x := &item{kind: kind + " with serial", family: "part", path: path, name: called(d), suffix: []string{"auspex_" + kind + "_info"}, labels: map[string]string{"serial": serial}}
	if str(obj(d, "Status"), "State") == "Absent" {
		x.nobody = "is Absent"
	}
	w.items = append(w.items, x)
}

func (w *walker) entry(e doc) {
	id := str(e, "Id")
	if id == "" {
		if n, ok := num(e, "Id"); ok {
			id = strconv.Itoa(int(n))
		}
	}
	key := id + " " + str(e, "Message")
	if str(e, "Message") == "" {
		at := str(e, "@odata.id")
		key = id + " " + str(e, "MessageId") + " " + at[:strings.LastIndexByte(at, '/')]
	}
	if w.seen["entry "+key+str(e, "Created")] {
		return // another log shows it too
	}
	w.seen["entry "+key+str(e, "Created")] = true
	w.items = append(w.items, &item{kind: "log entry", family: "log", path: str(e, "@odata.id"), event: key})
}

func (w *walker) reports(path string) {
	for _, rep := range w.members(path) {
		type key struct{ id, prop string }
		newest, at := map[key]any{}, map[key]string{}
		clash, n := map[key]bool{}, map[key]int{}
		for _, v := range array(rep, "MetricValues") {
			k := key{str(v, "MetricId"), str(v, "MetricProperty")}
			t := str(v, "Timestamp")
			n[k]++
			if _, ok := newest[k]; ok && t == at[k] && newest[k] != v["MetricValue"] {
				clash[k] = true
			}
			if raw, _ := json.Marshal(v["Oem"]); strings.Contains(string(raw), `"MetricValueStale":true`) {
				continue
			}
			if t >= at[k] {
				newest[k], at[k] = v["MetricValue"], t
			}
		}
		for k, v := range newest {
			x := &item{kind: "report value", family: str(rep, "@odata.id"), path: str(rep, "@odata.id") + " " + k.id + " " + k.prop, name: k.id, prop: k.prop, labels: map[string]string{}}
			if k.id != "" {
				x.labels["metric"] = k.id
			}
			if k.prop != "" {
				x.labels["property"] = strings.TrimPrefix(k.prop, "/redfish/v1/")
			}
			f, err := strconv.ParseFloat(fmt.Sprint(v), 64)
			x.value = f
			switch s, _ := v.(string); {
			case v == nil || s == "" && err != nil || strings.EqualFold(s, "nan") || strings.EqualFold(s, "null"):
				x.nobody = "no value"
			case err != nil:
				x.value = math.NaN()
			}
			if clash[k] || n[k] > 1 && k.id == "" && !strings.Contains(k.prop, "#") && !strings.Contains(k.prop, "/Sensors/") {
				x.nobody = "several share one name"
			}
			w.items = append(w.items, x)
		}
	}
}

// verdict is a row of the table.
type verdict struct {
	has, none, told, other int
	bounds, boundsTold     int
	ill, illTold           int
}

// conforms reads a tree with the collector and prints the table. What is missing is an error.
// Of two places that show one reading, values may be apart by a share of them.
func conforms(t *testing.T, tree *redfishtest.Tree, apart float64, with ...func(*Config)) map[string]*verdict {
	t.Helper()
	d := newDevice(t, tree, with...)
	w := &walker{tree: tree, seen: make(map[string]bool), log: func(id string) bool { return !slices.Contains(d.r.cfg.ExcludeLogs, id) }}
	w.walk()
	l := &listener{series: make(map[string]*heardSeries), events: make(map[string]int)}
	polls := 0
	for steady := 0; steady < 6; polls++ {
		if err := d.r.poll(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		d.now = d.now.Add(30 * time.Second)
		if d.r.unknown(d.now) == nil {
			steady++
		}
		if polls > 200 {
			t.Fatalf("after %d polls it still does not know %s", polls, d.r.unknown(d.now).path)
		}
	}
	table := judge(t, w.items, l, polls, apart)
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 4, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "what\tin the tree\tno value\ttold\tby another name\tthresholds\ttold\tnot OK\ttold\t")
	for _, kind := range slices.Sorted(maps.Keys(table)) {
		v := table[kind]
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", kind, v.has, v.none, v.told, v.other, v.bounds, v.boundsTold, v.ill, v.illTold)
	}
	_ = tw.Flush()
	t.Logf("after %d polls:\n%s", polls, text.String())
	return table
}

func alike(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(a), math.Abs(b)) }

// may reports whether a series has a metric that the item may be.
func (x *item) may(s *heardSeries) bool {
	return slices.ContainsFunc(x.suffix, func(suffix string) bool { return strings.HasSuffix(s.metric, suffix) })
}

func near(a, b, share float64) bool { return math.Abs(a-b) <= share*math.Abs(a) }

// partOfTheTable is the part of which an item speaks, by its name or by its path.
func partOfTheTable(x *item) string {
	_, part := sensor.Part(x.name)
	if part != "" {
		return part
	}
	path, _, _ := strings.Cut(cmp.Or(x.prop, x.path), "#")
	steps := strings.Split(path, "/")
	for i, seg := range steps {
		if i > 0 && steps[i-1] == "Processors" && strings.Trim(seg, "0123456789") == "" {
			part = "cpu" + seg
		}
		if _, p := sensor.Part(seg); p != "" {
			part = p
		}
	}
	return part
}

func judge(t *testing.T, items []*item, l *listener, polls int, apart float64) map[string]*verdict {
	t.Helper()
	table, none := make(map[string]*verdict), make(map[string]int)
	taken := make(map[string]map[*heardSeries]bool)
	keys := slices.Sorted(maps.Keys(l.series))
	miss := func(x *item, what string) {
		t.Errorf("%s %s %q (%g): %s", x.kind, x.path, x.name, x.value, what)
	}
	find := func(x *item, fits func(*heardSeries) bool) *heardSeries {
		for _, k := range keys {
			if s := l.series[k]; !taken[x.family][s] && fits(s) {
				return s
			}
		}
		return nil
	}
	bounds := make(map[[4]string]float64)
	for _, o := range l.series {
		if b := o.labels[schemas.LabelBound]; b != "" {
			bounds[[4]string{o.metric, o.part, o.labels["sensor"], b}] = o.values[len(o.values)-1]
		}
	}
	bound := func(s *heardSeries, b schemas.Bound) (float64, bool) {
		v, ok := bounds[[4]string{schemas.ThresholdMetric(s.metric), s.part, s.labels["sensor"], string(b)}]
		return v, ok
	}
	measured := func(x *item, s *heardSeries) bool {
		return x.may(s) && alike(x.value, s.values[len(s.values)-1])
	}
	take := func(x *item, s *heardSeries, v *verdict) {
		if taken[x.family] == nil {
			taken[x.family] = make(map[*heardSeries]bool)
		}
		taken[x.family][s] = true
		v.told++
		for b, want := range x.bounds {
			v.bounds++
			if got, ok := bound(s, b); ok && near(got, want, 5e-3) { // Thermal and Power round
				v.boundsTold++
			} else {
				miss(x, fmt.Sprintf("threshold %s %g told as %g (%v)", b, want, got, ok))
			}
		}
		if !x.ill {
			return
		}
		v.ill++
		if i := slices.IndexFunc(keys, func(k string) bool {
			o := l.series[k]
			return strings.HasSuffix(o.metric, "_sensor_health") && o.part == s.part && o.labels["sensor"] == s.labels["sensor"] && o.values[len(o.values)-1] > 0
		}); i >= 0 {
			v.illTold++
		} else {
			miss(x, "its health is not OK, and nothing says so")
		}
	}
	var later []*item
	for _, x := range items {
		v := table[x.kind]
		if v == nil {
			v = &verdict{}
			table[x.kind] = v
		}
		v.has++
		switch {
		case x.nobody != "":
			v.none++
			none[x.kind+": "+x.nobody]++
		case x.event != "":
			if n := l.events[x.event]; n == 1 {
				v.told++
			} else {
				miss(x, fmt.Sprintf("told %d times", n))
			}
		case x.kind == "firmware" || strings.HasSuffix(x.kind, "with serial"):
			if find(x, func(s *heardSeries) bool {
				for k, want := range x.labels {
					if s.labels[k] != want {
						return false
					}
				}
				return (x.suffix == nil || s.metric == x.suffix[0]) && strings.HasSuffix(s.metric, "_info")
			}) == nil {
				miss(x, "not in the inventory")
			} else {
				v.told++
			}
		case x.kind == "report value":
			if s := find(x, func(s *heardSeries) bool {
				for k, want := range x.labels {
					if s.labels[k] != want {
						return false
					}
				}
				return true
			}); s == nil {
				later = append(later, x)
			} else {
				take(x, s, v)
			}
		default:
			if s := find(x, func(s *heardSeries) bool { return measured(x, s) && strings.EqualFold(s.labels["sensor"], x.name) }); s != nil {
				take(x, s, v)
			} else {
				later = append(later, x)
			}
		}
	}
	toldAt := make(map[string]bool) // what has a series, by its path
	place := func(path string) string {
		return strings.ToLower(strings.NewReplacer("Temperature/", "Temperatures/", "/", "", "#", "").Replace(path))
	}
	order := map[string]int{"excerpt": 1, "report value": 2} // after what they repeat
	slices.SortStableFunc(later, func(a, b *item) int { return cmp.Compare(order[a.kind], order[b.kind]) })
	for _, x := range items {
		if x.nobody == "" && !slices.Contains(later, x) {
			toldAt[place(x.path)], toldAt[place(strings.TrimSuffix(x.path, "#Reading"))] = true, true
		}
	}
	for _, x := range later {
		if x.kind == "report value" {
			at := place(x.prop)
			ok := toldAt[at]
			if !ok {
				part := partOfTheTable(x)
				ok = find(x, func(s *heardSeries) bool {
					if strings.HasSuffix(x.prop, "#/TemperatureCelsius") && part == s.part && strings.HasSuffix(s.metric, "temperature_celsius") && near(x.value, s.values[len(s.values)-1], apart) {
						return true // the processor's sensor
					}
					return slices.ContainsFunc([]float64{1, 0.01, 0.001, 1e6}, func(f float64) bool { return alike(x.value*f, s.values[len(s.values)-1]) })
				}) != nil
			}
			if v := table[x.kind]; ok {
				v.told++
				v.other++
			} else {
				miss(x, "is no series")
			}
			continue
		}
		part := partOfTheTable(x)
		own := func(s *heardSeries) bool { return part != "" && part == s.part }
		fits := func(s *heardSeries) bool { return measured(x, s) }
		exact := func(s *heardSeries) bool {
			for b, want := range x.bounds {
				if got, ok := bound(s, b); !ok || !near(got, want, 5e-3) {
					return false
				}
			}
			return fits(s)
		}
		// In a recording two places that show one reading were read at two times.
		about := func(s *heardSeries) bool {
			return near(x.value, s.values[len(s.values)-1], apart) && x.may(s) &&
				(strings.EqualFold(s.labels["sensor"], x.name) || own(s) || strings.HasSuffix(s.metric, "server_power_watts"))
		}
		s := cmp.Or(
			find(x, func(s *heardSeries) bool { return own(s) && exact(s) }), find(x, func(s *heardSeries) bool { return own(s) && fits(s) }),
			find(x, about), find(x, exact), find(x, fits),
		)
		if s == nil && toldAt[place(x.prop)] {
			table[x.kind].told++
			table[x.kind].other++
			continue
		}
		toldAt[place(x.path)], toldAt[place(strings.TrimSuffix(x.path, "#Reading"))] = s != nil, s != nil
		if s == nil {
			miss(x, "is no series")
			continue
		}
		take(x, s, table[x.kind])
		table[x.kind].other++
	}
	for _, k := range keys {
		if s := l.series[k]; len(s.values) > polls || len(slices.Compact(slices.Sorted(slices.Values(s.times)))) != len(s.times) {
			t.Errorf("%s: %d samples in %d polls: history, or one time twice", k, len(s.values), polls)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(none)) {
		t.Logf("%d × %s", none[k], k)
	}
	return table
}

// Each recorded machine is told in full: what is in the tree, what of it has no value, and the bounds. The rest has been told.
func TestRecordedMachinesAreToldInFull(t *testing.T) {
	type row struct{ Has, None, Bounds int }
	for machine, want := range map[string]map[string]row{
		"r750": {
			"sensor": {33, 0, 30}, "thermal": {11, 0, 24}, "power": {56, 41, 0}, "fan": {6, 0, 0}, "excerpt": {16, 0, 0}, "log entry": {10, 0, 0},
			"firmware": {29, 2, 0}, "dimm with serial": {16, 0, 0}, "disk with serial": {3, 0, 0}, "gpu with serial": {1, 0, 0},
			"nic with serial": {2, 0, 0}, "psu with serial": {2, 0, 0},
		},
		"sr670": {
			"sensor": {230, 15, 21}, "thermal": {31, 13, 13}, "power": {19, 0, 8}, "report value": {22, 0, 0}, "log entry": {90, 0, 0},
			"firmware": {12, 0, 0}, "dimm with serial": {16, 0, 0}, "disk with serial": {2, 0, 0}, "gpu with serial": {2, 0, 0}, "psu with serial": {4, 0, 0},
		},
		"dl380a": {
			"sensor": {53, 24, 27}, "thermal": {59, 24, 27}, "power": {9, 0, 0}, "fan": {6, 0, 0}, "excerpt": {54, 24, 0}, "report value": {50, 0, 0},
			"log entry": {120, 0, 0}, "firmware": {34, 0, 0}, "dimm with serial": {16, 0, 0}, "disk with serial": {7, 0, 0},
			"gpu with serial": {2, 0, 0}, "nic with serial": {1, 0, 0}, "psu with serial": {4, 0, 0},
		},
		"gh200": {
			"sensor": {247, 1, 59}, "excerpt": {72, 1, 0}, "report value": {162, 116, 0}, "log entry": {15, 0, 0}, "firmware": {20, 1, 0},
			"cpu with serial": {2, 0, 0}, "dimm with serial": {2, 0, 0}, "gpu with serial": {2, 0, 0},
		},
	} {
		for _, expands := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s expands=%v", machine, expands), func(t *testing.T) {
				tree := openTree(t, "testdata/"+machine+"/input")
				if !expands {
					tree.Ignores = []string{"$expand"}
				}
				got := make(map[string]row)
				for kind, v := range conforms(t, tree, 0.3) {
					got[kind] = row{v.has, v.none, v.bounds}
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("the table (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Entries of recorded logs get types where the catalogue knows them, and those that it does not know keep their code.
func TestRecordedLogsHaveTypesAndCodes(t *testing.T) {
	for machine, want := range map[string]map[string]int{
		"r750": {"bmc.event": 10}, "sr670": {"bmc.event": 90}, "dl380a": {"bmc.event": 118, "nic.down": 2},
		"gh200": {"bmc.event": 15},
	} {
		tree := openTree(t, "testdata/"+machine+"/input")
		d := newDevice(t, tree)
		d.poll()
		got := make(map[string]int)
		for _, ev := range d.evs {
			got[ev.Type]++
			e := tree.Doc(ev.Attr("log") + "/" + ev.Attr("record"))
			lenovo := obj(obj(e, "Oem"), "Lenovo")
			if code := cmp.Or(str(e, "MessageId"), str(lenovo, "CommonEventID")); e != nil && ev.Code != code {
				t.Errorf("%s: code %q of %s, want %q", machine, ev.Code, ev.Attr("record"), code)
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: types (-want +got):\n%s", machine, diff)
		}
	}
}
