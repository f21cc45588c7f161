package redfish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

type doc = map[string]any

// device is a service whose clock the test moves.
type device struct {
	t    *testing.T
	tree *redfishtest.Tree
	r    *reader
	now  time.Time
	got  map[string][]float64 // by series, all values so far
	at   map[string][]time.Time
	evs  []schemas.Event
}

// Emit implements [collectors.Emitter].
func (d *device) Emit(_ context.Context, b *auspexv1.Batch) error {
	c := b.GetSamples()
	for i, ref := range c.GetRef() {
		s := c.GetSeries()[ref]
		name := c.GetSymbols()[s.GetMetric()]
		if p := c.GetSymbols()[s.GetPart()]; p != "" {
			name += " " + p
		}
		var nameSb46 strings.Builder
		for j := 0; j+1 < len(s.GetLabels()); j += 2 {
			nameSb46.WriteString(fmt.Sprintf(" %s=%s", c.GetSymbols()[s.GetLabels()[j]], c.GetSymbols()[s.GetLabels()[j+1]]))
		}
		name += nameSb46.String()
		d.got[name] = append(d.got[name], c.GetValue()[i])
		d.at[name] = append(d.at[name], time.Unix(0, c.GetBaseTime()+c.GetDelta()[i]).UTC())
	}
	for _, w := range b.GetEvents() {
		d.evs = append(d.evs, schemas.EventFromWire(w))
	}
	return nil
}

func newDevice(t *testing.T, tree *redfishtest.Tree, with ...func(*Config)) *device {
	t.Helper()
	d := &device{t: t, tree: tree, now: collectortest.Now, got: make(map[string][]float64), at: make(map[string][]time.Time)}
	cfg := DefaultConfig()
	cfg.Backlog, cfg.Timeout = 0, time.Minute
	for _, f := range with {
		f(cfg)
	}
	s := collectortest.Settings()
	s.Now = func() time.Time { return d.now }
	c, err := cfg.New(target(serve(t, tree)), s)
	if err != nil {
		t.Fatal(err)
	}
	d.r = c.(*reader)
	if err := d.r.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := d.r.c
	t.Cleanup(func() { client.Close(t.Context()) })
	return d
}

// poll polls, lets a round pass, and returns the requests of the poll.
func (d *device) poll() int64 {
	d.t.Helper()
	before := d.tree.Requests.Load()
	if err := d.r.poll(d.t.Context(), d); err != nil {
		d.t.Fatal(err)
	}
	d.now = d.now.Add(30 * time.Second)
	return d.tree.Requests.Load() - before
}

// readings returns the last value of each series that was read, without thresholds and the
// power state.
func (d *device) readings(prefixes ...string) map[string]float64 {
	out := make(map[string]float64)
	for k, v := range d.got {
		bound := strings.Contains(k, "_threshold ") || strings.HasPrefix(k, "auspex_server_power_on") || strings.HasPrefix(k, schemas.MetricConsoles)
		if len(prefixes) == 0 && !bound || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(k, p) }) {
			out[k] = v[len(v)-1]
		}
	}
	return out
}

func (d *device) want(want map[string]float64, prefixes ...string) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.readings(prefixes...)); diff != "" {
		d.t.Errorf("readings (-want +got):\n%s", diff)
	}
}

// service makes a service of one chassis with what it links to, and documents beside it.
func service(chassis doc, more map[string]doc) *redfishtest.Tree {
	docs := map[string]map[string]any{
		"/redfish/v1": {
			"Chassis": link("/redfish/v1/Chassis"), "Managers": link("/redfish/v1/Managers"),
			"TelemetryService":          link("/redfish/v1/TelemetryService"),
			"ProtocolFeaturesSupported": doc{"ExpandQuery": doc{"NoLinks": true}},
		},
		"/redfish/v1/Chassis":    {"Members": []any{link("/redfish/v1/Chassis/1")}},
		"/redfish/v1/Managers":   {"Members": []any{link("/redfish/v1/Managers/1")}},
		"/redfish/v1/Managers/1": {"@odata.id": "/redfish/v1/Managers/1", "DateTime": collectortest.Now.Format(time.RFC3339)},
	}
	c := doc{"@odata.id": "/redfish/v1/Chassis/1", "Id": "1"}
	maps.Copy(c, chassis)
	docs["/redfish/v1/Chassis/1"] = c
	for p, d := range more {
		d["@odata.id"] = p
		docs[p] = d
		// A collection gets what lies right below it.
	}
	for p, d := range docs {
		if _, ok := d["Members"]; ok || !strings.HasSuffix(p, "s") && !strings.HasSuffix(p, "Memory") || strings.HasSuffix(p,
			"Metrics") || strings.HasSuffix(p, "v1") {
			continue
		}
		var members []any
		for _, q := range slices.Sorted(maps.Keys(docs)) {
			if rest, ok := strings.CutPrefix(q, p+"/"); ok && !strings.Contains(rest, "/") {
				members = append(members, link(q))
			}
		}
		d["Members"] = members
	}
	return redfishtest.New(docs)
}

const board = "/redfish/v1/Chassis/1"

// sensors makes a service with a collection of sensors.
func sensors(list ...doc) *redfishtest.Tree {
	more := map[string]doc{board + "/Sensors": {}}
	for i, s := range list {
		id := fmt.Sprint("S", i)
		if x, ok := s["Id"].(string); ok {
			id = x
		}
		s["Id"] = id
		more[board+"/Sensors/"+id] = s
	}
	return service(doc{"Sensors": link(board + "/Sensors")}, more)
}

func TestWhatASensorMeasures(t *testing.T) {
	range0 := func(low, high float64) doc { return doc{"ReadingRangeMin": low, "ReadingRangeMax": high} }
	for name, c := range map[string]struct {
		o        doc
		q        sensor.Quantity
		value    float64
		conflict bool
	}{
		"the unit wins over the type": {
			doc{"ReadingType": "Current", "ReadingUnits": "Watts", "Reading": 110.0},
			sensor.Watts, 110, true,
		},
		"also for a fan that says air flow": {
			doc{"ReadingType": "AirFlow", "ReadingUnits": "RPM", "Reading": 4602.0},
			sensor.RPM, 4602, true,
		},
		"the type where no unit is said": {doc{"ReadingType": "Temperature", "Reading": 40.0}, sensor.Celsius, 40, false},
		"the type where the unit is unknown": {
			doc{"ReadingType": "Temperature", "ReadingUnits": "Degree", "Reading": 40.0},
			sensor.Celsius, 40, false,
		},
		"the unit where no type is said": {doc{"ReadingUnits": "CFM", "Reading": 100.0}, sensor.AirFlow, 0.0471947443, false},
		"a state has no unit and no range": {
			doc{"ReadingType": "Power", "ReadingUnits": "", "Reading": 0.0, "Name": "PSU1 IN Failure"},
			sensor.State, 0, false,
		},
		"a state by its name": {
			doc{"ReadingType": "Temperature", "Reading": 0.0, "Name": "CPU 1 Overtemp"},
			sensor.State, 0, false,
		},
		"a margin ends at 0 and has no unit": {
			with(range0(-51, 0), doc{"ReadingType": "Temperature", "ReadingUnits": "", "Reading": -51.0}),
			sensor.Margin, -51, false,
		},
		"a margin says so": {
			doc{"ReadingType": "Temperature", "ReadingUnits": "Cel", "ReadingBasis": "Headroom", "Reading": 12.0},
			sensor.Margin, 12, false,
		},
		"a margin by its name": {
			doc{"ReadingType": "Temperature", "ReadingUnits": "Cel", "Name": "CPU0 Thermal Margin", "Reading": 12.0},
			sensor.Margin, 12, false,
		},
		"a margin by its thresholds": {
			doc{
				"ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 54.0,
				"Thresholds": doc{"LowerCaution": doc{"Reading": 0.0}, "LowerFatal": doc{"Reading": -8.0}},
			},
			sensor.Margin, 54, false,
		},
		"cold air is no margin": {
			doc{
				"ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 25.0,
				"Thresholds": doc{"LowerCritical": doc{"Reading": -7.0}, "UpperCritical": doc{"Reading": 42.0}},
			},
			sensor.Celsius, 25, false,
		},
		"a range makes a number without a unit": {
			with(range0(0, 255), doc{"ReadingType": "Temperature", "ReadingUnits": "", "Reading": 40.0}),
			sensor.Celsius, 40, false,
		},
		"degrees of Fahrenheit": {
			doc{"ReadingType": "Temperature", "ReadingUnits": "[degF]", "Reading": 212.0},
			sensor.Celsius, 100, false,
		},
		"kilowatts": {
			doc{"ReadingType": "Power", "ReadingUnits": "kW", "Reading": 1.5},
			sensor.Watts, 1500, false,
		},
		"millivolts": {
			doc{"ReadingType": "Voltage", "ReadingUnits": "mV", "Reading": 12050.0},
			sensor.Volts, 12.05, false,
		},
		"kilowatt-hours by their type": {doc{"ReadingType": "EnergykWh", "Reading": 2.0}, sensor.Joules, 7.2e6, false},
		"humidity is a percentage": {
			doc{"ReadingType": "Humidity", "ReadingUnits": "%", "Reading": 40.0},
			sensor.Humidity, 40, false,
		},
		"altitude in metres is no pressure":        {doc{"ReadingType": "Altitude", "ReadingUnits": "m", "Reading": 120.0}, "", 0, false},
		"nothing is guessed where nothing is said": {doc{"Reading": 24.0}, "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := redfish.Object(c.o)
			m := measureOf(o, o.String("Name"))
			v, _ := o.Number("Reading")
			got := v*m.scale + m.offset
			if m.q == "" {
				got = 0
			}
			if m.q != c.q || m.conflict != c.conflict || got-c.value > 1e-6 || c.value-got > 1e-6 {
				t.Errorf("%v of %q, conflict %v; want %v of %q, conflict %v", got, m.q, m.conflict, c.value, c.q, c.conflict)
			}
		})
	}
}

func with(a, b doc) doc {
	maps.Copy(a, b)
	return a
}

func TestStatesAndMarginsOverwriteNoReading(t *testing.T) {
	d := newDevice(t, sensors(
		doc{"Name": "CPU 1 Temp", "ReadingType": "Temperature", "ReadingUnits": "C", "Reading": 40},
		doc{"Name": "CPU 1 Overtemp", "ReadingType": "Temperature", "ReadingUnits": "", "Reading": 0},
		doc{"Name": "CPU 1 DTS", "ReadingType": "Temperature", "ReadingUnits": "", "Reading": -51, "ReadingRangeMin": -51, "ReadingRangeMax": 0},
		doc{"Name": "PSU1 AC In Pwr", "ReadingType": "Current", "ReadingUnits": "Watts", "Reading": 115},
		doc{"Name": "PSU1 IN Failure", "ReadingType": "Power", "ReadingUnits": "", "Reading": 0},
		doc{"Name": "Fan 1A Tach", "ReadingType": "AirFlow", "ReadingUnits": "RPM", "Reading": 4602},
		doc{"Name": "Fan 1B Tach", "ReadingType": "Rotational", "ReadingUnits": "RPM", "Reading": "NaN"},
		doc{"Name": "PCIe 1 Temp", "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 0, "Status": doc{"State": "Absent"}},
		doc{"Name": "PCIe 2 Temp", "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": nil},
		doc{"Name": "VR Temp", "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 49969},
	))
	d.poll()
	d.want(map[string]float64{
		"auspex_cpu_temperature_celsius cpu1 sensor=CPU 1 Temp":       40,
		"auspex_cpu_sensor_state cpu1 sensor=CPU 1 Overtemp":          0,
		"auspex_cpu_temperature_margin_celsius cpu1 sensor=CPU 1 DTS": -51,
		"auspex_psu_input_power_watts psu1 sensor=PSU1 AC In Pwr":     115,
		"auspex_psu_sensor_state psu1 sensor=PSU1 IN Failure":         0,
		"auspex_fan_speed_rpm fan1a sensor=Fan 1A Tach":               4602,
	})
	if n := testutil.ToFloat64(d.r.conflicts); n != 2 {
		t.Errorf("%v contradictions counted, want 2", n)
	}
	d.poll()
	if n := testutil.ToFloat64(d.r.conflicts); n != 2 {
		t.Errorf("%v contradictions counted after a second poll, want each once", n)
	}
}

func TestSensorsOfOneNameAreToldApartWhateverTheirOrder(t *testing.T) {
	var first map[string]float64
	for _, reverse := range []bool{false, true} {
		tree := sensors(
			doc{"Id": "A", "Name": "InputPower", "ReadingType": "Power", "ReadingUnits": "W", "Reading": 1},
			doc{"Id": "B", "Name": "InputPower", "ReadingType": "Power", "ReadingUnits": "W", "Reading": 2},
			doc{"Id": "C", "Name": "InputPower", "ReadingType": "Power", "ReadingUnits": "W", "Reading": 3},
		)
		tree.Rewrite = func(_ string, o map[string]any) {
			if m, ok := o["Members"].([]any); ok && reverse {
				slices.Reverse(m)
			}
		}
		d := newDevice(t, tree)
		d.poll()
		if len(d.readings()) != 3 {
			t.Errorf("readings %v, want three", d.readings())
		}
		if first == nil {
			first = d.readings()
		} else if diff := cmp.Diff(first, d.readings()); diff != "" {
			t.Errorf("in another order:\n%s", diff)
		}
	}
}

func TestFansOfOneNameAreToldApart(t *testing.T) {
	fan := func(id string, rpm int, label string) doc {
		f := doc{"MemberId": id, "Name": "Fan", "Reading": rpm, "ReadingUnits": "RPM", "Status": doc{"State": "Enabled", "Health": "OK"}}
		if label != "" {
			f["Location"] = doc{"PartLocation": doc{"ServiceLabel": label}}
		}
		return f
	}
	for name, tc := range map[string]struct {
		fans []any
		want map[string]float64
	}{
		"by place": {[]any{fan("0", 5000, ""), fan("1", 5100, "")}, map[string]float64{
			"auspex_fan_speed_rpm fan0 sensor=Fan 0": 5000, "auspex_fan_speed_rpm fan1 sensor=Fan 1": 5100,
			"auspex_fan_healthy fan0 sensor=Fan 0": 1, "auspex_fan_healthy fan1 sensor=Fan 1": 1,
		}},
		"by what stands on the case": {[]any{fan("0", 5000, "Fan 3A"), fan("1", 5100, "Fan 3B")}, map[string]float64{
			"auspex_fan_speed_rpm fan3a sensor=Fan 3a": 5000, "auspex_fan_speed_rpm fan3b sensor=Fan 3b": 5100,
			"auspex_fan_healthy fan3a sensor=Fan 3a": 1, "auspex_fan_healthy fan3b sensor=Fan 3b": 1,
		}},
		"with one label on all": {[]any{fan("0", 5000, "Fan 3"), fan("1", 5100, "Fan 3")}, map[string]float64{
			"auspex_fan_speed_rpm fan3 sensor=Fan 3": 5000, "auspex_fan_speed_rpm fan1 sensor=Fan 1": 5100,
			"auspex_fan_healthy fan3 sensor=Fan 3": 1, "auspex_fan_healthy fan1 sensor=Fan 1": 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t, service(doc{"Thermal": link(board + "/Thermal")}, map[string]doc{board + "/Thermal": {"Fans": tc.fans}}))
			d.poll()
			d.want(tc.want)
		})
	}
}

func TestOneReadingShownAtSeveralPlacesIsOneSeries(t *testing.T) {
	fans := board + "/ThermalSubsystem/Fans"
	tree := service(doc{
		"Sensors": link(board + "/Sensors"), "Thermal": link(board + "/Thermal"), "Power": link(board + "/Power"),
		"ThermalSubsystem": link(board + "/ThermalSubsystem"), "PowerSubsystem": link(board + "/PowerSubsystem"),
		"EnvironmentMetrics": link(board + "/EnvironmentMetrics"),
	}, map[string]doc{
		board + "/Sensors":    {},
		board + "/Sensors/F1": {"Id": "F1", "Name": "Fan1 Speed", "ReadingType": "Rotational", "ReadingUnits": "RPM", "Reading": 9000},
		board + "/Sensors/T1": {"Id": "T1", "Name": "Inlet Temp", "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 22},
		board + "/Sensors/P1": {"Id": "P1", "Name": "PSU1 Input", "ReadingType": "Power", "ReadingUnits": "W", "Reading": 300},
		board + "/Thermal": {
			"Fans": []any{doc{"MemberId": "0", "Name": "Fan 1", "Reading": 9000, "ReadingUnits": "RPM"}},
			"Temperatures": []any{doc{"MemberId": "0", "Name": "Inlet Temp", "ReadingCelsius": 22}, doc{
				"MemberId": "1",
				"Name":     "Only Here", "ReadingCelsius": 33,
			}},
		},
		board + "/Power": {"PowerSupplies": []any{doc{"MemberId": "0", "Name": "PSU1", "PowerInputWatts": 300, "LineInputVoltage": 230}}},
		board + "/ThermalSubsystem": {
			"Fans": link(fans), "ThermalMetrics": link(board + "/ThermalSubsystem/ThermalMetrics"),
		},
		fans:        {},
		fans + "/1": {"Id": "1", "Name": "Fan 1", "SpeedPercent": doc{"DataSourceUri": board + "/Sensors/F1", "SpeedRPM": 9000}},
		board + "/ThermalSubsystem/ThermalMetrics": {
			"TemperatureReadingsCelsius": []any{
				doc{"DeviceName": "Front air", "DataSourceUri": board + "/Sensors/T1", "Reading": 22},
				doc{"DeviceName": "gone", "Reading": 0},
			},
		},
		board + "/PowerSubsystem":               {"PowerSupplies": link(board + "/PowerSubsystem/PowerSupplies")},
		board + "/PowerSubsystem/PowerSupplies": {},
		board + "/PowerSubsystem/PowerSupplies/Bay1": {
			"Id": "Bay1", "Name": "Power Supply Bay 1",
			"Metrics": link(board + "/PowerSubsystem/PowerSupplies/Bay1/Metrics"),
		},
		board + "/PowerSubsystem/PowerSupplies/Bay1/Metrics": {"InputPowerWatts": doc{"Reading": 300}},
		board + "/EnvironmentMetrics": {"FanSpeedsPercent": []any{doc{
			"DeviceName":    "F1",
			"DataSourceUri": board + "/Sensors/F1", "SpeedRPM": 9000,
		}}},
	})
	delete(tree.Doc(board+"/PowerSubsystem/PowerSupplies"), "Members")
	tree.Doc(board + "/PowerSubsystem/PowerSupplies")["Members"] = []any{link(board + "/PowerSubsystem/PowerSupplies/Bay1")}
	want := map[string]float64{
		"auspex_fan_speed_rpm fan1 sensor=Fan1 Speed":               9000,
		"auspex_server_inlet_temperature_celsius sensor=Inlet Temp": 22,
		"auspex_server_temperature_celsius sensor=Only Here":        33,
		"auspex_psu_input_power_watts psu1 sensor=PSU1 Input":       300,
		"auspex_psu_input_voltage_volts psu1 sensor=PSU1":           230,
	}
	d := newDevice(t, tree)
	d.poll()
	d.want(want)
	if n := d.poll(); n > 3 {
		t.Errorf("%d requests in a round, want those for sensors, Thermal and Power", n)
	}
	d.want(want)
	for k, v := range d.got {
		if len(v) != 2 && !strings.Contains(k, "threshold") {
			t.Errorf("%s has %d samples of 2 rounds", k, len(v))
		}
	}
}

func TestPartsThatOnlyTheOlderResourcesHaveAreRead(t *testing.T) {
	d := newDevice(t, service(doc{
		"Sensors": link(board + "/Sensors"), "Thermal": link(board + "/Thermal"),
		"Power": link(board + "/Power"),
	}, map[string]doc{
		board + "/Sensors":    {},
		board + "/Sensors/T0": {"Id": "T0", "Name": "02-CPU 1 PkgTmp", "PhysicalContext": "CPU", "Reading": 61}, // neither type nor unit
		board + "/Sensors/T1": {"Id": "T1", "Name": "Nobody knows", "Reading": 7},
		board + "/Thermal": {
			"Fans": []any{doc{"MemberId": "0", "FanName": "Fan 1", "Reading": 23, "ReadingUnits": "Percent"}, doc{
				"MemberId": "1",
				"FanName":  "Fan 2", "Reading": 5000,
			}},
			"Temperatures": []any{doc{"MemberId": "0", "Name": "02-CPU 1 PkgTmp", "ReadingCelsius": 61}, doc{
				"MemberId": "1",
				"Name":     "22-P/S 2", "ReadingCelsius": 41,
			}, doc{"MemberId": "2", "Name": "04-P1 DIMM 1-6", "ReadingCelsius": 42}},
		},
		board + "/Power": {
			"PowerControl": []any{doc{"MemberId": "0", "PowerConsumedWatts": 565}},
			"PowerSupplies": []any{doc{"MemberId": "0", "Name": "Supply", "LastPowerOutputWatts": 222}, doc{
				"MemberId": "1",
				"Name":     "Supply", "LastPowerOutputWatts": 200, "Status": doc{"State": "UnavailableOffline", "Health": "Critical"},
			}},
			"Voltages": []any{doc{"MemberId": "0", "Name": "12V", "ReadingVolts": "12.1"}},
		},
	}))
	d.poll()
	d.want(map[string]float64{
		"auspex_fan_duty_ratio fan1 sensor=Fan 1":                    .23,
		"auspex_fan_speed_rpm fan2 sensor=Fan 2":                     5000,
		"auspex_cpu_temperature_celsius cpu1 sensor=02-CPU 1 PkgTmp": 61,
		"auspex_psu_temperature_celsius psu2 sensor=22-P/S 2":        41,
		"auspex_server_temperature_celsius sensor=04-P1 DIMM 1-6":    42,
		"auspex_server_power_watts sensor=PowerControl 0":            565,
		"auspex_psu_output_power_watts psu1 sensor=Supply":           222,
		"auspex_psu_healthy psu2 sensor=Supply":                      0,
		"auspex_server_voltage_volts sensor=12V":                     12.1,
		"auspex_server_sensor_value sensor=Nobody knows":             7,
	})
}

func TestThresholdsComeWithTheReadings(t *testing.T) {
	d := newDevice(t, service(doc{
		"Sensors": link(board + "/Sensors"), "Thermal": link(board + "/Thermal"),
		"Power": link(board + "/Power"),
	}, map[string]doc{
		board + "/Sensors": {},
		board + "/Sensors/F": {
			"Id": "F", "Name": "Fan 1 Duty", "ReadingUnits": "%", "Reading": 30, "ReadingRangeMin": 0,
			"ReadingRangeMax": 100, "Thresholds": doc{
				"LowerCritical": doc{"Reading": 10, "Activation": "Decreasing"}, "UpperCaution": doc{"Reading": nil}, "UpperFatal": doc{},
			},
		},
		board + "/Sensors/E": {
			"Id": "E", "Name": "Exhaust Temp", "ReadingUnits": "C", "Reading": 79, "ReadingRangeMin": 255,
			"ReadingRangeMax": 255,
		},
		board + "/Thermal": {"Temperatures": []any{doc{
			"MemberId": "0", "Name": "Board", "ReadingCelsius": 30,
			"UpperThresholdNonCritical": 60, "UpperThresholdCritical": 70, "LowerThresholdFatal": -5,
		}}},
		board + "/Power": {"PowerSupplies": []any{doc{
			"MemberId": "1", "Name": "PSU1", "LineInputVoltage": 230, "PowerOutputWatts": 500, "PowerCapacityWatts": 2400,
			"InputRanges": []any{doc{"MinimumVoltage": 200, "MaximumVoltage": 240}},
		}}},
	}))
	d.poll()
	d.want(map[string]float64{
		"auspex_fan_duty_ratio_threshold fan1 sensor=Fan 1 Duty bound=lower_critical":   .1,
		"auspex_fan_duty_ratio_threshold fan1 sensor=Fan 1 Duty bound=range_min":        0,
		"auspex_fan_duty_ratio_threshold fan1 sensor=Fan 1 Duty bound=range_max":        1,
		"auspex_server_temperature_celsius_threshold sensor=Board bound=upper_caution":  60,
		"auspex_server_temperature_celsius_threshold sensor=Board bound=upper_critical": 70,
		"auspex_server_temperature_celsius_threshold sensor=Board bound=lower_fatal":    -5,
		"auspex_psu_input_voltage_volts_threshold psu1 sensor=PSU1 bound=range_min":     200,
		"auspex_psu_input_voltage_volts_threshold psu1 sensor=PSU1 bound=range_max":     240,
		"auspex_psu_output_power_watts_threshold psu1 sensor=PSU1 bound=range_max":      2400,
	}, "auspex_fan_duty_ratio_threshold", "auspex_server_temperature_celsius_threshold", "auspex_psu_input_voltage_volts_threshold",
		"auspex_psu_output_power_watts_threshold")
}

// report makes a service with sensors and one report.
func reportOf(values []any, list ...doc) *redfishtest.Tree {
	t := sensors(list...)
	t.Set("/redfish/v1/TelemetryService", doc{
		"@odata.id":     "/redfish/v1/TelemetryService",
		"MetricReports": link("/redfish/v1/TelemetryService/MetricReports"),
	})
	t.Set("/redfish/v1/TelemetryService/MetricReports", doc{
		"@odata.id": "/redfish/v1/TelemetryService/MetricReports",
		"Members":   []any{link(oneReport)},
	})
	t.Set(oneReport, doc{"@odata.id": oneReport, "Id": "R", "MetricValues": values})
	return t
}

const oneReport = "/redfish/v1/TelemetryService/MetricReports/R"

func valueAt(id, prop string, v any, at time.Time) any {
	o := doc{"MetricValue": v, "Timestamp": at.Format(time.RFC3339)}
	if id != "" {
		o["MetricId"] = id
	}
	if prop != "" {
		o["MetricProperty"] = prop
	}
	return o
}

func TestOfTheHistoryInAReportOnlyWhatIsNewIsTaken(t *testing.T) {
	var values []any
	add := func(at time.Time, v float64) {
		values = append(values, valueAt("CPUUtil", "", fmt.Sprint(v), at), valueAt("",
			"/redfish/v1/Systems/1/Processors/2/ProcessorMetrics#/TemperatureCelsius", fmt.Sprint(v+20), at))
	}
	for at := collectortest.Now.Add(-24 * time.Hour); !at.After(collectortest.Now); at = at.Add(30 * time.Second) {
		add(at, 1)
	}
	d := newDevice(t, reportOf(values), func(c *Config) { c.Backlog = 48 * time.Hour })
	d.poll()
	const util, temp = "auspex_server_report_value metric=CPUUtil",
		"auspex_cpu_temperature_celsius cpu2 sensor=Systems/1/Processors/2/ProcessorMetrics"
	if len(d.got) != 2 || len(d.got[util]) != 1 || len(d.got[temp]) != 1 {
		t.Fatalf("%d series, %d and %d samples of a day of history, want 2 series of one sample", len(d.got), len(d.got[util]), len(d.got[temp]))
	}
	d.now = d.now.Add(time.Hour) // a large report is not read at each round
	for i := range 3 {
		add(d.now.Add(time.Duration(i-2)*20*time.Second), float64(i))
	}
	slices.Reverse(values) // services differ in the order
	d.tree.Set(oneReport, doc{"@odata.id": oneReport, "Id": "R", "MetricValues": values})
	now := d.now
	d.poll()
	if diff := cmp.Diff([]float64{1, 0, 1, 2}, d.got[util]); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if got := d.at[util][1]; !got.Equal(now.Add(-40 * time.Second)) {
		t.Errorf("the first new value is of %s, want the device's time", got)
	}
	d.now = d.now.Add(time.Hour)
	d.poll()
	if len(d.got[util]) != 4 {
		t.Errorf("an unchanged report gave %v", d.got[util][4:])
	}
	add(now.Add(20*time.Second), 3) // the three before it stand beside it
	d.tree.Set(oneReport, doc{"@odata.id": oneReport, "Id": "R", "MetricValues": values})
	d.now = d.now.Add(time.Hour)
	d.poll()
	if diff := cmp.Diff([]float64{1, 0, 1, 2, 3}, d.got[util]); diff != "" {
		t.Errorf("values after one more (-want +got):\n%s", diff)
	}
}

func TestValuesUnderANameThatSaysNoPropertyAreNobodys(t *testing.T) {
	at := collectortest.Now
	d := newDevice(t, reportOf([]any{
		valueAt("", "/redfish/v1/Systems/1/Processors/GPU_0/ProcessorMetrics", "345", at.Add(-3*time.Second)),
		valueAt("", "/redfish/v1/Systems/1/Processors/GPU_0/ProcessorMetrics", "0", at.Add(-2*time.Second)),
		valueAt("", "/redfish/v1/Systems/1/Processors/GPU_0/ProcessorMetrics", "14011289", at),
		valueAt("Same", "", "1", at), valueAt("Same", "", "2", at),
	}))
	d.poll()
	d.want(map[string]float64{})
	if n := testutil.ToFloat64(d.r.unnamed); n == 0 || int(n)%5 != 0 {
		t.Errorf("%v values counted, want 5 a reading", n)
	}
}

func TestAReportHidesNoSensor(t *testing.T) {
	path := board + "/Sensors/T0"
	sensorDoc := doc{"Id": "T0", "Name": "CPU1 Temp", "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 50}
	own := valueAt("AvgCPU0Freq", "", "22", collectortest.Now)
	for name, values := range map[string][]any{
		"that it does not carry": {own}, "that it carries but never renews": {own, valueAt("", path+"#/Reading", "49", collectortest.Now)},
		"whose average it carries": {own, valueAt("AverageTemp", path+"#/Reading", "12", collectortest.Now)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t, reportOf(values, maps.Clone(sensorDoc)))
			for range 6 {
				d.poll()
			}
			key := "auspex_cpu_temperature_celsius cpu1 sensor=CPU1 Temp"
			if got := d.got[key]; len(got) < 4 || got[len(got)-1] != 50 {
				t.Errorf("readings %v of the sensor", got)
			}
			if got := d.got["auspex_server_report_value metric=AvgCPU0Freq"]; len(got) != 1 {
				t.Errorf("values %v of the report, want one", got)
			}
		})
	}
}

// Some services give in reports thousandths of what their sensors say.
func TestAReportInAnotherUnitStandsForNoSensor(t *testing.T) {
	sensor := func(id string, reading float64) doc {
		return doc{"Id": id, "Name": "CPU1 " + id, "ReadingType": "Power", "ReadingUnits": "W", "Reading": reading}
	}
	tree := reportOf(nil, sensor("Milli", 49.2), sensor("Same", 50), sensor("Idle", 0))
	tree.Ignores = []string{"$expand"}
	d := newDevice(t, tree)
	for i := range 6 {
		var values []any
		for id, v := range map[string]string{"Milli": strconv.Itoa(49049 + i), "Same": strconv.Itoa(55 + i), "Idle": strconv.Itoa(i)} {
			values = append(values, valueAt("", board+"/Sensors/"+id, v, d.now))
		}
		tree.Set(oneReport, doc{"@odata.id": oneReport, "Id": "R", "MetricValues": values})
		d.poll()
	}
	for series, values := range d.got {
		for _, v := range values {
			if v > 100 {
				t.Errorf("%s: %v", series, values)
				break
			}
		}
	}
	if got := d.got["auspex_cpu_power_watts cpu1 sensor=CPU1 Milli"]; len(got) < 5 {
		t.Errorf("readings %v, want one a round: the sensor's own", got)
	}
	if got := d.got["auspex_cpu_power_watts cpu1 sensor=CPU1 Same"]; got[len(got)-1] != 60 {
		t.Errorf("readings %v, want the report's", got)
	}
	if n := testutil.ToFloat64(d.r.conflicts); n != 1 {
		t.Errorf("%v contradictions counted, want 1", n)
	}
}

// A reading that changes between the sensor and the report is no other unit.
func TestAPowerThatGoesIsNoOtherUnit(t *testing.T) {
	sensor := func(i int, reading float64) doc {
		return doc{
			"@odata.id": fmt.Sprint(board, "/Sensors/In", i), "Id": fmt.Sprint("In", i), "Name": fmt.Sprintf("PSU%d In", i), "ReadingType": "Power",
			"ReadingUnits": "W", "Reading": reading,
		}
	}
	var list []doc
	for i := range 8 {
		list = append(list, sensor(i, 1190))
	}
	tree := reportOf(nil, list...)
	tree.Ignores = []string{"$expand"}
	d := newDevice(t, tree)
	for _, watts := range []float64{1190, 1190, 9, 9, 9, 1190, 1191, 1192, 9, 1190, 1191, 1192} {
		var values []any
		for i := range 8 {
			s := sensor(i, watts)
			tree.Set(s["@odata.id"].(string), s)
			values = append(values, valueAt("", s["@odata.id"].(string), fmt.Sprint(watts), d.now))
		}
		tree.Set(oneReport, doc{"@odata.id": oneReport, "Id": "R", "MetricValues": values})
		d.poll()
	}
	if n := testutil.ToFloat64(d.r.conflicts); n != 0 {
		t.Errorf("%v contradictions counted, want none", n)
	}
	got := d.got["auspex_psu_input_power_watts psu1 sensor=PSU1 In"]
	if len(got) == 0 || got[len(got)-1] != 1192 {
		t.Errorf("read %v", got)
	}
}

func TestAReportThatIsRenewedStandsForItsSensors(t *testing.T) {
	var list []doc
	for i := range 3 {
		list = append(list, doc{
			"Id": fmt.Sprint("T", i), "Name": fmt.Sprintf("CPU%d Temp", i), "ReadingType": "Temperature",
			"ReadingUnits": "Cel", "Reading": 50,
		})
	}
	tree := reportOf(nil, list...)
	tree.Ignores = []string{"$expand"}
	d := newDevice(t, tree)
	var last int64
	for i := range 6 {
		var values []any
		for n := range 3 {
			values = append(values, valueAt("", fmt.Sprint(board, "/Sensors/T", n), strconv.Itoa(50+i), d.now))
		}
		tree.Set(oneReport, doc{"@odata.id": oneReport, "Id": "R", "MetricValues": values})
		last = d.poll()
	}
	got := d.got["auspex_cpu_temperature_celsius cpu1 sensor=CPU1 Temp"]
	if len(got) != 6 || got[5] != 55 || last != 1 {
		t.Errorf("readings %v, want six, the last of the report; %d requests, want that for the report", got, last)
	}
}

func TestWhatNothingSaysTheMeaningOfIsBounded(t *testing.T) {
	var values []any
	for i := range 5000 {
		values = append(values, valueAt("", fmt.Sprintf("/redfish/v1/Oem/Thing%d#/Value", i), "1", collectortest.Now))
	}
	values = append(values, valueAt("Clock", "", collectortest.Now.String(), collectortest.Now))
	d := newDevice(t, reportOf(values), func(c *Config) { c.MaxUnmapped = 100 })
	d.poll()
	if n := len(d.got); n != 100 {
		t.Errorf("%d series, want 100", n)
	}
	if n := testutil.ToFloat64(d.r.unmapped); n != 4901 {
		t.Errorf("%v values counted as left out, want 4901", n)
	}
}

func TestWhatIsAbsentIsAskedForSeldomAndNamed(t *testing.T) {
	tree := service(doc{"Sensors": link(board + "/Sensors"), "Thermal": link(board + "/Thermal"), "Power": link(board + "/Power")},
		map[string]doc{
			board + "/Thermal": {"Temperatures": []any{doc{"MemberId": "0", "Name": "Inlet", "ReadingCelsius": 20}}},
		})
	d := newDevice(t, tree)
	d.poll()
	count := func(rounds int) (n int64) {
		for range rounds {
			n += d.poll()
		}
		return n
	}
	if n := count(10); n != 10 { // Thermal alone
		t.Errorf("%d requests in ten rounds, want one each", n)
	}
	for _, path := range []string{board + "/Sensors", board + "/Power"} {
		if v := testutil.ToFloat64(d.r.badNow.WithLabelValues("gpu-r01-01", path)); v != 1 {
			t.Errorf("%s is not named", path)
		}
	}
	tree.Set(board+"/Power", doc{"@odata.id": board + "/Power", "Voltages": []any{doc{"MemberId": "0", "Name": "12V", "ReadingVolts": 12}}})
	count(60) // half an hour
	if d.got["auspex_server_voltage_volts sensor=12V"] == nil {
		t.Error("what came back was not read")
	}
	if n := testutil.CollectAndCount(d.r.badNow); n != 2 {
		t.Errorf("%d resources are named as bad, want Sensors and the telemetry service", n)
	}
}

func TestARoundIsBoundedWhereExpandIsPromisedAndIgnored(t *testing.T) {
	var list []doc
	var temps []any
	for i := range 230 {
		name := fmt.Sprintf("Spot %d Temp", i)
		list = append(list, doc{"Id": fmt.Sprint("S", i), "Name": name, "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": i})
		if i < 200 {
			temps = append(temps, doc{"MemberId": strconv.Itoa(i), "Name": name, "ReadingCelsius": i})
		}
	}
	tree := sensors(list...)
	tree.Doc(board)["Thermal"] = link(board + "/Thermal")
	tree.Set(board+"/Thermal", doc{"@odata.id": board + "/Thermal", "Temperatures": temps})
	tree.Ignores = []string{"$expand"}
	d := newDevice(t, tree)
	var most, last int64
	for range 15 {
		last = d.poll()
		most = max(most, last)
	}
	if limit := int64(d.r.cfg.MaxRequests) + 10; most > limit {
		t.Errorf("%d requests in a round, want at most %d", most, limit)
	}
	if last != 31 {
		t.Errorf("%d requests in a steady round, want one for Thermal and one for each of 30 sensors that it has not", last)
	}
	if n := len(d.readings()); n != 230 {
		t.Errorf("%d readings, want 230", n)
	}
}

func TestManySingleSensorsTakeTurns(t *testing.T) {
	var list []doc
	for i := range 100 {
		list = append(list, doc{
			"Id": fmt.Sprint("S", i), "Name": fmt.Sprintf("Spot %d Temp", i), "ReadingType": "Temperature",
			"ReadingUnits": "Cel", "Reading": i,
		})
	}
	tree := sensors(list...)
	tree.Ignores = []string{"$expand"}
	d := newDevice(t, tree, func(c *Config) { c.MaxRequests = 40 })
	for range 20 {
		if n := d.poll(); n > 50 {
			t.Errorf("%d requests in a round", n)
		}
	}
	for k, v := range d.got {
		if len(v) < 6 {
			t.Errorf("%s was read %d times in 20 rounds", k, len(v))
		}
	}
	if testutil.ToFloat64(d.r.deferred) == 0 {
		t.Error("what waits is not counted")
	}
}

func TestOneResourceThatNeverComesIsNoLossOfContact(t *testing.T) {
	var _ collectors.Emitter = (*device)(nil)
	tree := sensors(doc{"Name": "Inlet Temp", "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 20})
	tree.Doc(board)["Power"] = link(board + "/Power")
	tree.Set(board+"/Power", doc{"@odata.id": board + "/Power"})
	d := newDevice(t, tree, func(c *Config) { c.Timeout = 300 * time.Millisecond })
	tree.Hang = func(path string) bool { return path == board+"/Power" }
	d.poll()
	d.poll()
	if n := len(d.got["auspex_server_inlet_temperature_celsius sensor=Inlet Temp"]); n != 2 {
		t.Errorf("%d readings beside a resource that hangs, want 2", n)
	}
}
