package redfish

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"auspex/collectors/collectortest"
	"auspex/internal/bmc/redfish/redfishtest"
)

// forest draws services that nobody has seen. What it draws varies in how things are said, not in what is said: each number is
// there once, so that the table finds each reading by its value.
type forest struct {
	rng  *rand.Rand
	docs map[string]map[string]any
	next float64 // the next number, of which none comes twice
}

const rootPath = "/redfish/v1"

func (f *forest) put(path string, d doc) string {
	if f.rng.IntN(8) != 0 { // old firmware leaves it out
		d["@odata.type"] = "#Thing.v1_0_0.Thing"
	}
	d["@odata.id"] = path
	f.docs[path] = d
	return path
}

func (f *forest) collection(path string, members ...string) any {
	list := make([]any, len(members))
	for i, m := range members {
		list[i] = link(m)
	}
	d := doc{"Members": list}
	if f.rng.IntN(3) != 0 {
		d["Members@odata.count"] = float64(len(list))
	}
	f.put(path, d)
	return link(path)
}

// id is how a service calls a thing in its path.
func (f *forest) id(kind string, n int) string {
	switch f.rng.IntN(4) {
	case 0:
		return fmt.Sprintf("%08x", f.rng.Uint32()) // says nothing
	case 1:
		return fmt.Sprintf("%s.%d", kind, n)
	}
	return fmt.Sprintf("%s_%d", kind, n)
}

// number is a reading, which some services write as text.
func (f *forest) number(from, step float64) any {
	f.next++
	v := from + f.next*step
	if f.rng.IntN(6) == 0 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return v
}

func (f *forest) status() doc {
	switch f.rng.IntN(12) {
	case 0:
		return doc{"State": "Absent"}
	case 1:
		return doc{"State": "Enabled", "Health": "Warning"}
	case 2:
		return doc{"State": "Enabled", "Health": "Critical"}
	case 3:
		return doc{}
	}
	return doc{"State": "Enabled", "Health": "OK"}
}

// spoil makes one property of a thing what no schema allows, which must cost that property alone.
func (f *forest) spoil(d doc) doc {
	for _, k := range []string{"Oem", "Links", "RelatedItem", "Description", "Location", "Precision", "PhysicalContext", "SensorGroup"} {
		switch f.rng.IntN(10) {
		case 0:
			d[k] = nil
		case 1:
			d[k] = []any{7.0, "seven", nil}
		case 2:
			d[k] = "text"
		}
	}
	return d
}

func (f *forest) sensor(base, kind string, n int) string {
	name := fmt.Sprintf("%s %d Temp %d", kind, n, len(f.docs))
	d := doc{"Id": strconv.Itoa(len(f.docs)), "Name": name, "Reading": f.number(10, 0.01), "Status": f.status()}
	d["ReadingUnits"], d["ReadingType"] = "Cel", "Temperature"
	switch f.rng.IntN(4) {
	case 0:
		d["Name"], d["ReadingUnits"], d["ReadingType"], d["Reading"] = name+" Power", "W", "Power", f.number(100, 0.5)
	case 1:
		d["Name"], d["ReadingUnits"], d["ReadingType"], d["Reading"] = name+" Voltage", "V", "Voltage", f.number(0.5, 0.003)
	case 2:
		delete(d, []string{"ReadingUnits", "ReadingType"}[f.rng.IntN(2)])
	}
	if f.rng.IntN(3) == 0 {
		d["Thresholds"] = doc{"UpperCaution": doc{"Reading": 1e6}, "UpperCritical": doc{"Reading": "2000000"}, "LowerCritical": doc{"Reading": nil}}
	}
	switch f.rng.IntN(15) {
	case 0:
		d["Reading"] = nil
	case 1:
		d["Reading"] = "n/a"
	case 2:
		d["Reading"] = doc{"Value": 7.0}
	}
	id := f.id(kind, n)
	return f.put(fmt.Sprint(base, "/Sensors/", id, "x", len(f.docs)), f.spoil(d))
}

// chassis is one of a rack: with sensors, or with the older resources alone.
func (f *forest) chassis(kind string, n int, thin bool) string {
	base := rootPath + "/Chassis/" + f.id(kind, n) + fmt.Sprint("c", len(f.docs))
	d := f.spoil(doc{"Id": base[len(rootPath+"/Chassis/"):], "Name": fmt.Sprint(kind, " ", n)})
	if thin {
		f.thin(base, d)
		return f.put(base, d)
	}
	var sensors []string
	for range 2 + f.rng.IntN(5) {
		sensors = append(sensors, f.sensor(base, kind, n))
	}
	d["Sensors"] = f.collection(base+"/Sensors", sensors...)
	if f.rng.IntN(2) == 0 {
		ts := base + "/ThermalSubsystem"
		var leaks []string
		for i := range f.rng.IntN(4) {
			state := []any{"OK", "OK", "Warning", "Critical", nil, 7.0}[f.rng.IntN(6)]
			leaks = append(leaks, f.put(fmt.Sprint(ts, "/LeakDetection/LeakDetectors/", i), f.spoil(doc{
				"Id": strconv.Itoa(i), "Name": fmt.Sprint("Leak ", kind, " ", n, " ", i), "DetectorState": state, "Status": f.status(),
			})))
		}
		d["ThermalSubsystem"] = link(f.put(ts, doc{"LeakDetection": link(f.put(ts+"/LeakDetection", doc{
			"LeakDetectors": f.collection(ts+"/LeakDetection/LeakDetectors", leaks...),
		}))}))
	}
	if f.rng.IntN(2) == 0 {
		var nics []string
		for i := range f.rng.IntN(3) {
			nics = append(nics, f.put(fmt.Sprint(base, "/NetworkAdapters/", i), f.spoil(doc{
				"Id": strconv.Itoa(i), "Model": "N", "SerialNumber": fmt.Sprint("NIC", len(f.docs)),
			})))
		}
		d["NetworkAdapters"] = f.collection(base+"/NetworkAdapters", nics...)
	}
	return f.put(base, d)
}

// thin is firmware that has Thermal and Power alone, in the first versions of the schemas.
func (f *forest) thin(base string, d doc) {
	var temps, fans, volts, supplies []any
	for i := range 2 + f.rng.IntN(4) {
		temps = append(temps, f.spoil(doc{
			"MemberId": strconv.Itoa(i), "Name": fmt.Sprint("Zone ", len(f.docs), " ", i, " Temp"), "ReadingCelsius": f.number(10, 0.01), "Status": f.status(),
			"UpperThresholdCritical": 1e6, "LowerThresholdCritical": nil,
		}))
	}
	for i := range 2 + f.rng.IntN(4) {
		key := []string{"Reading", "ReadingRPM"}[f.rng.IntN(2)]
		fans = append(fans, f.spoil(doc{"MemberId": strconv.Itoa(i), "FanName": fmt.Sprint("Fan ", i+1, " of ", len(f.docs)), key: f.number(2000, 7), "Status": f.status()}))
	}
	for i := range 1 + f.rng.IntN(3) {
		volts = append(volts, f.spoil(doc{"MemberId": strconv.Itoa(i), "Name": fmt.Sprint("Rail ", len(f.docs), " ", i), "ReadingVolts": f.number(0.5, 0.003), "Status": f.status()}))
	}
	for i := range f.rng.IntN(3) {
		supplies = append(supplies, f.spoil(doc{
			"MemberId": strconv.Itoa(i), "Name": fmt.Sprint("Power Supply ", i+1), "SerialNumber": fmt.Sprint("P", len(f.docs), i), "LineInputVoltage": f.number(200, 0.01),
			"LastPowerOutputWatts": f.number(100, 0.5), "Status": doc{"State": "Enabled", "Health": "OK"},
		}))
	}
	d["Thermal"] = link(f.put(base+"/Thermal", doc{"Temperatures": temps, "Fans": fans}))
	d["Power"] = link(f.put(base+"/Power", doc{"Voltages": volts, "PowerSupplies": supplies, "PowerControl": "none"}))
}

// shelves are power shelves, whose supplies are each in a bay of the same name.
func (f *forest) shelves(n int) any {
	var list []string
	for i := range n {
		base := fmt.Sprint(rootPath, "/PowerEquipment/PowerShelves/", i+1)
		var supplies []string
		for j := range 2 + f.rng.IntN(5) {
			at := fmt.Sprint(base, "/PowerSupplies/", j+1)
			supplies = append(supplies, f.put(at, f.spoil(doc{
				"Id": strconv.Itoa(j + 1), "Name": fmt.Sprint("Power Supply ", j+1), "SerialNumber": fmt.Sprint("PS", len(f.docs)), "Status": doc{"State": "Enabled", "Health": "OK"},
				"Metrics": link(f.put(at+"/Metrics", doc{
					"InputPowerWatts": doc{"Reading": f.number(3000, 1)}, "OutputPowerWatts": doc{"Reading": f.number(3000, 1)},
					"InputVoltage": doc{"Reading": f.number(200, 0.01)}, "TemperatureCelsius": doc{"Reading": f.number(10, 0.01)},
				})),
			})))
		}
		list = append(list, f.put(base, doc{"Id": strconv.Itoa(i + 1), "PowerSupplies": f.collection(base+"/PowerSupplies", supplies...)}))
	}
	return link(f.put(rootPath+"/PowerEquipment", doc{"PowerShelves": f.collection(rootPath+"/PowerEquipment/PowerShelves", list...)}))
}

// grow draws a service.
func grow(seed uint64) *redfishtest.Tree {
	f := &forest{rng: rand.New(rand.NewPCG(seed, 12)), docs: make(map[string]map[string]any)}
	root := doc{"@odata.type": "#ServiceRoot.v1_5_0.ServiceRoot"}
	if f.rng.IntN(2) == 0 {
		root["ProtocolFeaturesSupported"] = doc{"ExpandQuery": doc{"NoLinks": true, "Levels": f.rng.IntN(2) == 0, "MaxLevels": 4.0}}
	}
	kinds := []string{"GPU", "NVSwitch", "CPU", "Board", "Tray"}
	var chassis []string
	rack := f.rng.IntN(3) == 0
	for i := range 2 + f.rng.IntN(6) + 40*truthy(rack) {
		chassis = append(chassis, f.chassis(kinds[f.rng.IntN(len(kinds))], i, !rack && f.rng.IntN(2) == 0))
	}
	for i := range chassis[1:] { // each in the one before it
		d := f.docs[chassis[i+1]]
		if _, spoiled := d["Links"]; !spoiled {
			d["Links"] = doc{"ContainedBy": link(chassis[i])}
		}
	}
	root["Chassis"] = f.collection(rootPath+"/Chassis", chassis...)
	if f.rng.IntN(2) == 0 {
		root["PowerEquipment"] = f.shelves(1 + f.rng.IntN(3))
	}
	if f.rng.IntN(2) == 0 {
		var firmware []string
		for i := range 1 + f.rng.IntN(5) {
			version := []any{"1.2." + strconv.Itoa(i), nil, "", 7.5}[f.rng.IntN(4)]
			id := fmt.Sprint("FW", i)
			firmware = append(firmware, f.put(rootPath+"/UpdateService/FirmwareInventory/"+id, f.spoil(doc{"Id": id, "Name": "Firmware", "Version": version})))
		}
		root["UpdateService"] = link(f.put(rootPath+"/UpdateService", doc{
			"FirmwareInventory": f.collection(rootPath+"/UpdateService/FirmwareInventory", firmware...),
		}))
	}
	var entries []string
	for i := range f.rng.IntN(20) {
		e := doc{
			"Id": strconv.Itoa(i + 1), "Created": collectortest.Now.Format("2006-01-02T15:04:") + fmt.Sprintf("%02dZ", i), "Message": fmt.Sprint("entry ", i), "Severity": []any{"OK", "Critical", 7.0, nil}[f.rng.IntN(4)],
			"MessageId": []any{"IDRAC.2.8.PSU0003", "Vendor.1.0.Unheard", nil}[f.rng.IntN(3)], "MessageArgs": []any{[]any{"1", nil, 7.0}, "one", nil}[f.rng.IntN(3)],
		}
		entries = append(entries, f.put(fmt.Sprint(rootPath, "/Managers/1/LogServices/Log/Entries/", i+1), e))
	}
	f.put(rootPath+"/Managers/1/LogServices/Log", doc{"Id": "Log", "Entries": f.collection(rootPath+"/Managers/1/LogServices/Log/Entries", entries...)})
	f.put(rootPath+"/Managers/1", doc{"Id": "1", "DateTime": collectortest.Now.Format("2006-01-02T15:04:05Z07:00"), "LogServices": f.collection(
		rootPath+"/Managers/1/LogServices", rootPath+"/Managers/1/LogServices/Log",
	)})
	root["Managers"] = f.collection(rootPath+"/Managers", rootPath+"/Managers/1")
	f.docs[rootPath] = root
	tree := redfishtest.New(f.docs)
	if f.rng.IntN(3) == 0 {
		tree.PageSize = 3 + f.rng.IntN(20)
	}
	return tree
}

func truthy(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The table holds for services that nobody has seen: racks of many chassis, firmware with the oldest resources alone, power
// shelves, leak detectors, ids that say nothing, properties of other types, numbers as text.
func TestUnseenServicesAreToldInFull(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 6
	}
	seen := make(map[string]int)
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			for kind, v := range conforms(t, grow(seed), 0, func(c *Config) { c.MaxRequests = 500 }) {
				seen[kind] += v.told
			}
		})
	}
	for _, kind := range []string{"sensor", "thermal", "power", "excerpt", "leak detector", "log entry", "firmware", "nic with serial", "psu with serial"} {
		if seen[kind] == 0 {
			t.Errorf("nothing was drawn of the kind %q", kind)
		}
	}
	kinds := make([]string, 0, len(seen))
	for k, n := range seen {
		kinds = append(kinds, fmt.Sprint(n, " × ", k))
	}
	slices.Sort(kinds)
	t.Logf("told of %d services: %v", seeds, kinds)
}
