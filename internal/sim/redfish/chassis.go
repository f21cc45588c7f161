package redfish

import (
	"math"
	"strconv"
	"strings"

	"auspex/internal/sim/device"
)

// Bits of a power supply's discrete sensor (IPMI 2.0, table 42-3, type 08h).
const (
	supplyPresent    = 1 << 0
	supplyFailed     = 1 << 1
	supplyPredictive = 1 << 2
	supplyInputLost  = 1<<3 | 1<<4
)

// supplyStatus says state, health and line input status of a power supply.
func supplyStatus(s *device.Sensor) (state, health, line string) {
	bits := uint(s.Value)
	switch {
	case bits&supplyPresent == 0:
		return "Absent", "OK", ""
	case bits&supplyInputLost != 0:
		return "Enabled", "Critical", "LossOfInput"
	case bits&supplyFailed != 0:
		return "Enabled", "Critical", "Normal"
	case bits&supplyPredictive != 0:
		return "Enabled", "Warning", "Normal"
	}
	return "Enabled", "OK", "Normal"
}

// sensorHealth compares a reading with its thresholds; NaN is never crossed.
func sensorHealth(s *device.Sensor) string {
	switch x := s.Value; {
	case !s.Present:
		return "OK"
	case x <= s.LC, x <= s.LNR, x >= s.UC, x >= s.UNR:
		return "Critical"
	case x <= s.LNC, x >= s.UNC:
		return "Warning"
	}
	return "OK"
}

func sensorID(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, name)
}

var readings = map[device.SensorKind][2]string{
	device.SensorTemperature: {"Temperature", "Cel"},
	device.SensorFan:         {"Rotational", "RPM"},
	device.SensorPower:       {"Power", "W"},
	device.SensorVoltage:     {"Voltage", "V"},
	device.SensorCurrent:     {"Current", "A"},
	device.SensorDuty:        {"Percent", "%"},
}

func physicalContext(s *device.Sensor) string {
	switch strings.TrimRight(s.Part, "0123456789") {
	case "fan":
		return "Fan"
	case "psu":
		return "PowerSupply"
	case "cpu":
		return "CPU"
	case "dimm":
		return "Memory"
	case "gpu":
		return "GPU"
	case "disk":
		return "StorageDevice"
	}
	switch name := strings.ToLower(s.Name); {
	case strings.Contains(name, "inlet"), strings.Contains(name, "intake"):
		return "Intake"
	case strings.Contains(name, "outlet"), strings.Contains(name, "exhaust"):
		return "Exhaust"
	}
	return "SystemBoard"
}

// onBoard tells whether a sensor is shown below the board: analogue ones are, but
// the GPUs' readings stand with the modules.
func onBoard(s *device.Sensor) bool {
	_, analogue := readings[s.Kind]
	return analogue && !strings.HasPrefix(s.Part, "gpu")
}

// find returns the first sensor of a part and kind, or nil.
func (v *view) find(part string, kind device.SensorKind) *device.Sensor {
	for i := range v.sensors {
		if v.sensors[i].Part == part && v.sensors[i].Kind == kind {
			return &v.sensors[i]
		}
	}
	return nil
}

func boardSensor(s *device.Sensor) string { return boardPath + "/Sensors/" + sensorID(s.Name) }

func reading(s *device.Sensor) any {
	if s == nil || !s.Present {
		return nil
	}
	return number(s.Value)
}

// excerpt is a reading with its source, as subsystem resources show it.
func excerpt(s *device.Sensor) any {
	if s == nil {
		return nil
	}
	return object{"DataSourceUri": boardSensor(s), "Reading": reading(s)}
}

func sensorState(s *device.Sensor) object {
	if !s.Present {
		return object{"State": "UnavailableOffline"}
	}
	h := sensorHealth(s)
	return object{"State": "Enabled", "Health": h}
}

func (v *view) sensor(path string, s *device.Sensor) object {
	kind := readings[s.Kind]
	doc := object{
		"@odata.id": path, "@odata.type": "#Sensor.v1_9_0.Sensor", "Id": sensorID(s.Name), "Name": s.Name,
		"Reading": reading(s), "ReadingType": kind[0], "ReadingUnits": kind[1], "PhysicalContext": physicalContext(s), "Status": sensorState(s),
	}
	if s.MaxRange > s.MinRange {
		doc["ReadingRangeMin"], doc["ReadingRangeMax"] = number(s.MinRange), number(s.MaxRange)
	}
	limits := object{}
	for name, x := range map[string]float64{
		"LowerCaution": s.LNC, "LowerCritical": s.LC, "LowerFatal": s.LNR, "UpperCaution": s.UNC, "UpperCritical": s.UC, "UpperFatal": s.UNR,
	} {
		if !math.IsNaN(x) {
			limits[name] = object{"Reading": number(x)}
		}
	}
	if len(limits) > 0 {
		doc["Thresholds"] = limits
	}
	if p := v.partPath(s.Part); p != "" {
		doc["RelatedItem"] = []object{link(p)}
	}
	return doc
}

// board is the server's own chassis.
func (v *view) board(path, rest string) object {
	seg := strings.Split(rest, "/")
	switch seg[0] {
	case "":
		var contains []object
		for i := range v.gpus {
			contains = append(contains, link(root+"/Chassis/HGX_GPU_"+strconv.Itoa(v.gpus[i].Index)))
		}
		power := "Off"
		if v.h.b.Power() != device.PowerOff {
			power = "On"
		}
		return object{
			"@odata.id": path, "@odata.type": "#Chassis.v1_25_1.Chassis", "Id": "Chassis_0", "Name": v.info.Name, "ChassisType": "RackMount",
			"Manufacturer": v.info.Manufacturer, "Model": v.info.Model, "SerialNumber": v.info.Serial, "UUID": v.info.UUID,
			"PowerState": power, "Status": enabled(v.health()),
			"Sensors": link(path + "/Sensors"), "ThermalSubsystem": link(path + "/ThermalSubsystem"),
			"PowerSubsystem": link(path + "/PowerSubsystem"),
			"Thermal":        link(path + "/Thermal"), "Power": link(path + "/Power"),
			"Links": object{"ComputerSystems": []object{link(systemPath)}, "ManagedBy": []object{link(managerPath)}, "Contains": contains},
		}
	case "Sensors":
		var ids []string
		for i := range v.sensors {
			s := &v.sensors[i]
			if !onBoard(s) {
				continue
			}
			id := sensorID(s.Name)
			if len(seg) == 2 && seg[1] == id {
				return v.sensor(path, s)
			}
			ids = append(ids, id)
		}
		if len(seg) == 1 {
			return collection(path, "SensorCollection", "Sensors", ids)
		}
	case "ThermalSubsystem":
		return v.thermalSubsystem(path, seg[1:])
	case "PowerSubsystem":
		return v.powerSubsystem(path, seg[1:])
	case "Thermal":
		if len(seg) == 1 {
			return v.thermal(path)
		}
	case "Power":
		if len(seg) == 1 {
			return v.power(path)
		}
	}
	return nil
}

func (v *view) thermalSubsystem(path string, seg []string) object {
	switch {
	case len(seg) == 0:
		return object{
			"@odata.id": path, "@odata.type": "#ThermalSubsystem.v1_3_3.ThermalSubsystem", "Id": "ThermalSubsystem", "Name": "Thermal Subsystem",
			"Status": enabled("OK"), "Fans": link(path + "/Fans"), "ThermalMetrics": link(path + "/ThermalMetrics"),
		}
	case seg[0] == "ThermalMetrics" && len(seg) == 1:
		temps := []object{}
		for i := range v.sensors {
			if s := &v.sensors[i]; s.Kind == device.SensorTemperature && onBoard(s) {
				temps = append(temps, object{
					"DeviceName": s.Name, "DataSourceUri": boardSensor(s), "Reading": reading(s), "PhysicalContext": physicalContext(s),
				})
			}
		}
		return object{
			"@odata.id": path, "@odata.type": "#ThermalMetrics.v1_3_2.ThermalMetrics", "Id": "ThermalMetrics", "Name": "Thermal Metrics",
			"TemperatureReadingsCelsius": temps,
		}
	case seg[0] == "Fans" && len(seg) <= 2:
		var ids []string
		for i := range v.sensors {
			s := &v.sensors[i]
			n, ok := strings.CutPrefix(s.Part, "fan")
			if s.Kind != device.SensorFan || !ok {
				continue
			}
			if len(seg) == 2 && seg[1] == "FAN_"+n {
				return v.fan(path, n, s)
			}
			ids = append(ids, "FAN_"+n)
		}
		if len(seg) == 1 {
			return collection(path, "FanCollection", "Fans", ids)
		}
	}
	return nil
}

func (v *view) fan(path, n string, s *device.Sensor) object {
	speed := object{"DataSourceUri": boardSensor(s), "SpeedRPM": reading(s), "Reading": nil}
	// One duty may drive all fans.
	for _, part := range []string{"", s.Part} {
		if d := v.find(part, device.SensorDuty); d != nil {
			speed["Reading"] = reading(d)
		}
	}
	return object{
		"@odata.id": path, "@odata.type": "#Fan.v1_5_2.Fan", "Id": "FAN_" + n, "Name": s.Name, "PhysicalContext": "Chassis",
		"SpeedPercent": speed, "Status": sensorState(s),
		"Location": object{"PartLocation": object{"LocationType": "Bay", "ServiceLabel": s.Part}},
	}
}

func (v *view) powerSubsystem(path string, seg []string) object {
	if len(seg) == 0 {
		return object{
			"@odata.id": path, "@odata.type": "#PowerSubsystem.v1_1_2.PowerSubsystem", "Id": "PowerSubsystem", "Name": "Power Subsystem",
			"Status": enabled("OK"), "PowerSupplies": link(path + "/PowerSupplies"),
		}
	}
	if seg[0] != "PowerSupplies" {
		return nil
	}
	supplies := v.parts("psu")
	if len(seg) == 1 {
		var ids []string
		for _, part := range supplies {
			ids = append(ids, "PSU_"+strings.TrimPrefix(part, "psu"))
		}
		return collection(path, "PowerSupplyCollection", "Power Supplies", ids)
	}
	for _, part := range supplies {
		n := strings.TrimPrefix(part, "psu")
		if seg[1] != "PSU_"+n {
			continue
		}
		state, health, line := v.supply(part)
		switch {
		case len(seg) == 2:
			doc := object{
				"@odata.id": path, "@odata.type": "#PowerSupply.v1_6_0.PowerSupply", "Id": seg[1], "Name": "Power Supply " + n,
				"PowerSupplyType": "AC", "Status": object{"State": state, "Health": health}, "Metrics": link(path + "/Metrics"),
				"Location": object{"PartLocation": object{"LocationType": "Bay", "ServiceLabel": part}},
			}
			if line != "" {
				doc["LineInputStatus"] = line
			}
			return doc
		case len(seg) == 3 && seg[2] == "Metrics":
			return object{
				"@odata.id": path, "@odata.type": "#PowerSupplyMetrics.v1_1_2.PowerSupplyMetrics", "Id": "Metrics",
				"Name":            "Power Supply " + n + " Metrics",
				"InputPowerWatts": excerpt(v.find(part, device.SensorPower)), "InputVoltage": excerpt(v.find(part, device.SensorVoltage)),
				"InputCurrentAmps": excerpt(v.find(part, device.SensorCurrent)), "TemperatureCelsius": excerpt(v.find(part, device.SensorTemperature)),
			}
		}
	}
	return nil
}

func (v *view) supply(part string) (state, health, line string) {
	if s := v.find(part, device.SensorPSU); s != nil {
		return supplyStatus(s)
	}
	return "Enabled", "OK", ""
}

// thermal is the older form of the same readings, for clients that know no other.
func (v *view) thermal(path string) object {
	temps, fans := []object{}, []object{}
	for i := range v.sensors {
		s := &v.sensors[i]
		switch {
		case !onBoard(s):
		case s.Kind == device.SensorTemperature:
			id := strconv.Itoa(len(temps))
			temps = append(temps, object{
				"@odata.id": path + "#/Temperatures/" + id, "MemberId": id, "Name": s.Name, "SensorNumber": int(s.Number), "ReadingCelsius": reading(s),
				"UpperThresholdNonCritical": number(s.UNC), "UpperThresholdCritical": number(s.UC), "UpperThresholdFatal": number(s.UNR),
				"PhysicalContext": physicalContext(s), "Status": sensorState(s),
			})
		case s.Kind == device.SensorFan:
			id := strconv.Itoa(len(fans))
			fans = append(fans, object{
				"@odata.id": path + "#/Fans/" + id, "MemberId": id, "Name": s.Name, "Reading": roundReading(s), "ReadingUnits": "RPM",
				"LowerThresholdCritical": number(math.Round(s.LC)), "LowerThresholdNonCritical": number(math.Round(s.LNC)),
				"PhysicalContext": "Fan", "Status": sensorState(s),
			})
		}
	}
	return object{
		"@odata.id": path, "@odata.type": "#Thermal.v1_7_3.Thermal", "Id": "Thermal", "Name": "Thermal", "Temperatures": temps, "Fans": fans,
	}
}

// roundReading is a reading where the schema wants an integer.
func roundReading(s *device.Sensor) any {
	if !s.Present {
		return nil
	}
	return number(math.Round(s.Value))
}

// power is the older form of the power readings.
func (v *view) power(path string) object {
	supplies, control := []object{}, []object{}
	for i, part := range v.parts("psu") {
		state, health, _ := v.supply(part)
		id := strconv.Itoa(i)
		doc := object{
			"@odata.id": path + "#/PowerSupplies/" + id, "MemberId": id, "Name": "Power Supply " + strings.TrimPrefix(part, "psu"),
			"PowerSupplyType": "AC",
			"Status":          object{"State": state, "Health": health}, "PowerInputWatts": nil, "LineInputVoltage": nil,
		}
		if s := v.find(part, device.SensorPower); s != nil {
			doc["PowerInputWatts"] = reading(s)
		}
		if s := v.find(part, device.SensorVoltage); s != nil {
			doc["LineInputVoltage"] = reading(s)
		}
		supplies = append(supplies, doc)
	}
	for i := range v.sensors {
		if s := &v.sensors[i]; s.Part == "" && s.Kind == device.SensorPower {
			id := strconv.Itoa(len(control))
			one := object{
				"@odata.id": path + "#/PowerControl/" + id, "MemberId": id, "Name": s.Name, "PowerConsumedWatts": reading(s), "Status": sensorState(s),
			}
			if v.h.limiter != nil && len(control) == 0 {
				if watts, active, ok := v.h.limiter.PowerLimit(); ok {
					limit := object{"LimitInWatts": nil, "LimitException": "NoAction", "CorrectionInMs": 6000}
					if active {
						limit["LimitInWatts"] = number(watts)
					}
					one["PowerLimit"] = limit
				}
			}
			control = append(control, one)
		}
	}
	return object{
		"@odata.id": path, "@odata.type": "#Power.v1_7_3.Power", "Id": "Power", "Name": "Power", "PowerControl": control,
		"PowerSupplies": supplies,
	}
}

func (v *view) gpuSensorPath(g *device.GPU) string {
	id := "HGX_GPU_" + strconv.Itoa(g.Index)
	return root + "/Chassis/" + id + "/Sensors/" + id + "_"
}

// gpuSensor is a reading of a module.
type gpuSensor struct {
	suffix, name, kind, units string
	value                     float64
}

func gpuSensors(g *device.GPU) []gpuSensor {
	return []gpuSensor{
		{"Temp_0", "Temp 0", "Temperature", "Cel", g.Temperature},
		{"DRAM_0_Temp_0", "DRAM 0 Temp 0", "Temperature", "Cel", g.MemoryTemp},
		{"Power_0", "Power 0", "Power", "W", g.PowerWatts},
	}
}

// module is the chassis of a GPU.
func (v *view) module(path, rest string, g *device.GPU) object {
	id := "HGX_GPU_" + strconv.Itoa(g.Index)
	processor := systemPath + "/Processors/GPU_" + strconv.Itoa(g.Index)
	if rest == "" {
		return object{
			"@odata.id": path, "@odata.type": "#Chassis.v1_25_1.Chassis", "Id": id, "Name": id, "ChassisType": "Module", "Manufacturer": "NVIDIA",
			"Model": g.Model, "SerialNumber": g.Serial, "UUID": strings.TrimPrefix(g.UUID, "GPU-"), "Status": gpuStatus(g),
			"Sensors": link(path + "/Sensors"),
			"Links": object{
				"ComputerSystems": []object{link(systemPath)}, "ManagedBy": []object{link(managerPath)}, "ContainedBy": link(boardPath),
				"Processors": []object{link(processor)},
			},
		}
	}
	seg := strings.Split(rest, "/")
	if seg[0] != "Sensors" || len(seg) > 2 {
		return nil
	}
	var ids []string
	for _, s := range gpuSensors(g) {
		if len(seg) == 1 {
			ids = append(ids, id+"_"+s.suffix)
			continue
		}
		if seg[1] != id+"_"+s.suffix {
			continue
		}
		status := object{"State": "Enabled", "Health": "OK"}
		if !g.Present {
			status = object{"State": "UnavailableOffline"}
		}
		return object{
			"@odata.id": path, "@odata.type": "#Sensor.v1_9_0.Sensor", "Id": seg[1], "Name": "HGX GPU " + strconv.Itoa(g.Index) + " " + s.name,
			"Reading": gpuReading(g, s.value), "ReadingType": s.kind, "ReadingUnits": s.units, "PhysicalContext": "GPU", "Status": status,
			"RelatedItem": []object{link(processor)},
		}
	}
	if len(seg) == 1 {
		return collection(path, "SensorCollection", "Sensors", ids)
	}
	return nil
}

func (v *view) report(path, id string, values []object) object {
	now := stamp(v.h.b.Now())
	for _, x := range values {
		x["Timestamp"] = now
	}
	return object{
		"@odata.id": path, "@odata.type": "#MetricReport.v1_5_1.MetricReport", "Id": id, "Name": id, "Timestamp": now,
		"ReportSequence": "1", "MetricValues": values,
	}
}

func metric(property string, x float64) object {
	return object{"MetricProperty": property, "MetricValue": strconv.FormatFloat(x, 'f', 6, 64)}
}

// environmentReport holds the readings of all sensors, one value each.
func (v *view) environmentReport(path string) object {
	values := []object{}
	for i := range v.gpus {
		g := &v.gpus[i]
		if !g.Present {
			continue
		}
		for _, s := range gpuSensors(g) {
			values = append(values, metric(v.gpuSensorPath(g)+s.suffix, s.value))
		}
	}
	for i := range v.sensors {
		if s := &v.sensors[i]; onBoard(s) && s.Present && reading(s) != nil {
			values = append(values, metric(boardSensor(s), s.Value))
		}
	}
	return v.report(path, environmentID, values)
}

// processorReport holds the clocks of the GPUs.
func (v *view) processorReport(path string) object {
	values := []object{}
	for i := range v.gpus {
		if g := &v.gpus[i]; g.Present {
			values = append(
				values, metric(systemPath+"/Processors/GPU_"+strconv.Itoa(g.Index)+"/ProcessorMetrics#/OperatingSpeedMHz", math.Round(g.ClockMHz)),
			)
		}
	}
	return v.report(path, processorsID, values)
}
