package redfish

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/device"
)

const (
	root          = "/redfish/v1"
	systemPath    = root + "/Systems/System_0"
	managerPath   = root + "/Managers/BMC_0"
	boardPath     = root + "/Chassis/Chassis_0"
	selPath       = systemPath + "/LogServices/SEL"
	resetTarget   = systemPath + "/Actions/ComputerSystem.Reset"
	clearTarget   = selPath + "/Actions/LogService.ClearLog"
	reportsPath   = root + "/TelemetryService/MetricReports"
	environmentID = "HGX_PlatformEnvironmentMetrics_0"
	processorsID  = "HGX_ProcessorMetrics_0"

	metadata = `<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		`<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0"><edmx:DataServices/></edmx:Edmx>` + "\n"
)

var (
	resetTypes = []string{
		string(device.ResetOn), string(device.ResetForceOff), string(device.ResetGracefulShutdown), string(device.ResetGracefulRestart),
		string(device.ResetForceRestart), string(device.ResetPowerCycle), string(device.ResetNmi),
	}
	bootEnabled = []string{"Disabled", "Once", "Continuous"}
	bootTargets = []string{"None", "Pxe", "Hdd", "Cd", "Usb", "Diags", "BiosSetup", "UefiHttp"}
	bootModes   = []string{"UEFI", "Legacy"}
)

// view answers one request from one look at the controller.
type view struct {
	h       *handler
	info    device.Info
	sensors []device.Sensor
	gpus    []device.GPU
}

func (h *handler) view() *view {
	return &view{h: h, info: h.b.Info(), sensors: h.b.Sensors(), gpus: h.b.GPUs()}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000+00:00") }

func link(path string) object { return object{"@odata.id": path} }

func number(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return math.Round(v*1e6) / 1e6
}

func enabled(health string) object {
	return object{"State": "Enabled", "Health": health, "HealthRollup": health}
}

// collection is a collection of members below a path.
func collection(path, kind, name string, ids []string) object {
	members := make([]object, 0, len(ids))
	for _, id := range ids {
		members = append(members, link(path+"/"+id))
	}
	return object{
		"@odata.id": path, "@odata.type": "#" + kind + "." + kind, "Name": name, "Members": members, "Members@odata.count": len(members),
	}
}

// resource returns the document at a path, or nil. Every call makes a new one.
func (v *view) resource(path string, q query) object {
	if i := strings.IndexByte(path, '#'); i >= 0 {
		path = path[:i]
	}
	path = cleanPath(path)
	if doc := v.boardPart(path); doc != nil {
		return doc
	}
	switch path {
	case "/redfish":
		return object{"v1": root + "/"}
	case root:
		return v.root()
	case root + "/odata":
		return object{"@odata.context": root + "/$metadata", "value": []object{
			{"name": "Service", "kind": "Singleton", "url": root + "/"},
			{"name": "Systems", "kind": "Singleton", "url": root + "/Systems"},
			{"name": "Chassis", "kind": "Singleton", "url": root + "/Chassis"},
			{"name": "Managers", "kind": "Singleton", "url": root + "/Managers"},
		}}
	case root + "/SessionService":
		return object{
			"@odata.id": path, "@odata.type": "#SessionService.v1_1_9.SessionService", "Id": "SessionService", "Name": "Session Service",
			"ServiceEnabled": true, "SessionTimeout": int(SessionTimeout.Seconds()), "Status": enabled("OK"), "Sessions": link(sessionsPath),
		}
	case sessionsPath:
		var ids []string
		for _, x := range v.h.sessions.list() {
			ids = append(ids, x.id)
		}
		return collection(path, "SessionCollection", "Sessions", ids)
	case root + "/Systems":
		return collection(path, "ComputerSystemCollection", "Systems", []string{"System_0"})
	case systemPath:
		return v.system()
	case root + "/Chassis":
		ids := []string{"Chassis_0"}
		for i := range v.gpus {
			ids = append(ids, "HGX_GPU_"+strconv.Itoa(v.gpus[i].Index))
		}
		return collection(path, "ChassisCollection", "Chassis", ids)
	case root + "/Managers":
		return collection(path, "ManagerCollection", "Managers", []string{"BMC_0"})
	case managerPath:
		return v.manager()
	case root + "/UpdateService":
		return object{
			"@odata.id": path, "@odata.type": "#UpdateService.v1_14_0.UpdateService", "Id": "UpdateService", "Name": "Update Service",
			"ServiceEnabled": true, "Status": enabled("OK"), "FirmwareInventory": link(path + "/FirmwareInventory"),
			"Actions": object{}, // some clients insist on it
		}
	case root + "/UpdateService/FirmwareInventory":
		return collection(path, "SoftwareInventoryCollection", "Firmware", []string{"FW_BMC_0"})
	case root + "/UpdateService/FirmwareInventory/FW_BMC_0":
		return object{
			"@odata.id": path, "@odata.type": "#SoftwareInventory.v1_10_0.SoftwareInventory", "Id": "FW_BMC_0", "Name": "BMC firmware",
			"Version": v.info.Firmware, "Updateable": false, "Status": enabled("OK"), "RelatedItem": []object{link(managerPath)},
		}
	case root + "/EventService":
		return eventService()
	case root + "/TelemetryService":
		return object{
			"@odata.id": path, "@odata.type": "#TelemetryService.v1_3_3.TelemetryService", "Id": "TelemetryService", "Name": "Telemetry Service",
			"ServiceEnabled": true, "Status": enabled("OK"), "MetricReports": link(reportsPath),
		}
	case reportsPath:
		return collection(path, "MetricReportCollection", "Metric Reports", []string{environmentID, processorsID})
	case reportsPath + "/" + environmentID:
		return v.environmentReport(path)
	case reportsPath + "/" + processorsID:
		return v.processorReport(path)
	}
	if path == subscriptionsPath || strings.HasPrefix(path, subscriptionsPath+"/") {
		return v.h.subscribed(path)
	}
	if id, ok := strings.CutPrefix(path, sessionsPath+"/"); ok {
		for _, x := range v.h.sessions.list() {
			if x.id == id {
				return sessionDoc(x)
			}
		}
		return nil
	}
	if rest, ok := strings.CutPrefix(path, systemPath+"/"); ok {
		return v.systemPart(path, rest, q)
	}
	if rest, ok := strings.CutPrefix(path, root+"/Chassis/"); ok {
		name, rest, _ := strings.Cut(rest, "/")
		if name == "Chassis_0" {
			return v.board(path, rest)
		}
		if g := v.gpu(name, "HGX_GPU_"); g != nil {
			return v.module(path, rest, g)
		}
	}
	return nil
}

func (v *view) root() object {
	doc := object{
		"@odata.id": root, "@odata.type": "#ServiceRoot.v1_17_0.ServiceRoot", "Id": "RootService", "Name": "Root Service",
		"RedfishVersion": "1.20.0", "UUID": v.info.UUID, "Vendor": v.info.Manufacturer, "Product": v.info.Model,
		"ProtocolFeaturesSupported": object{
			"DeepOperations": object{"DeepPATCH": false, "DeepPOST": false},
			"ExcerptQuery":   false, "FilterQuery": true, "OnlyMemberQuery": false, "SelectQuery": false, "TopSkipQuery": true,
			"ExpandQuery": object{"ExpandAll": true, "Levels": true, "Links": true, "NoLinks": true, "MaxLevels": MaxExpand},
		},
		"Systems": link(root + "/Systems"), "Chassis": link(root + "/Chassis"), "Managers": link(root + "/Managers"),
		"SessionService": link(root + "/SessionService"), "TelemetryService": link(root + "/TelemetryService"),
		"EventService":  link(root + "/EventService"),
		"UpdateService": link(root + "/UpdateService"), "TaskService": link(root + "/TaskService"), "Registries": link(root + "/Registries"),
		"Links": object{"Sessions": link(sessionsPath), "ManagerProvidingService": link(managerPath)},
	}
	if v.h.board == nil {
		delete(doc, "TaskService")
		delete(doc, "Registries")
	}
	return doc
}

// health rolls up what the sensors, power supplies and GPUs say.
func (v *view) health() string {
	worst := "OK"
	worse := func(h string) {
		if h == "Critical" || h == "Warning" && worst == "OK" {
			worst = h
		}
	}
	for i := range v.sensors {
		s := &v.sensors[i]
		if s.Kind == device.SensorPSU {
			_, h, _ := supplyStatus(s)
			worse(h)
			continue
		}
		worse(sensorHealth(s))
	}
	for i := range v.gpus {
		if !v.gpus[i].Present {
			worse("Critical")
		}
	}
	return worst
}

func (v *view) system() object {
	boot := v.h.b.Boot()
	cpus := len(v.parts("cpu"))
	doc := object{
		"@odata.id": systemPath, "@odata.type": "#ComputerSystem.v1_22_1.ComputerSystem", "Id": "System_0", "Name": v.info.Name,
		"SystemType": "Physical", "Manufacturer": v.info.Manufacturer, "Model": v.info.Model, "SerialNumber": v.info.Serial, "UUID": v.info.UUID,
		"HostName": v.info.Name, "PowerState": string(v.h.b.Power()), "LastResetTime": stamp(v.h.b.LastReset()), "Status": enabled(v.health()),
		"ProcessorSummary": object{"Count": cpus, "Status": enabled("OK")},
		"Boot": object{
			"BootSourceOverrideEnabled": boot.Enabled, "BootSourceOverrideEnabled@Redfish.AllowableValues": bootEnabled,
			"BootSourceOverrideTarget": boot.Target, "BootSourceOverrideTarget@Redfish.AllowableValues": bootTargets,
			"BootSourceOverrideMode": boot.Mode, "BootSourceOverrideMode@Redfish.AllowableValues": bootModes,
		},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target": resetTarget, "ResetType@Redfish.AllowableValues": resetTypes,
		}},
		"Processors": link(systemPath + "/Processors"), "EthernetInterfaces": link(systemPath + "/EthernetInterfaces"),
		"LogServices": link(systemPath + "/LogServices"),
		"Links":       object{"Chassis": []object{link(boardPath)}, "ManagedBy": []object{link(managerPath)}},
		// Offered as most controllers do; nobody listens there.
		"SerialConsole": object{
			"MaxConcurrentSessions": 2, "SSH": object{"ServiceEnabled": true, "Port": 2200}, "IPMI": object{"ServiceEnabled": true}, "Telnet": object{"ServiceEnabled": false},
		},
		"GraphicalConsole": object{"ServiceEnabled": true, "MaxConcurrentSessions": 4, "ConnectTypesSupported": []string{"KVMIP"}},
	}
	if v.h.board != nil {
		doc["Bios"] = link(biosPath)
	}
	return doc
}

func (v *view) manager() object {
	doc := object{
		"@odata.id": managerPath, "@odata.type": "#Manager.v1_19_1.Manager", "Id": "BMC_0", "Name": "BMC", "ManagerType": "BMC",
		"FirmwareVersion": v.info.Firmware, "Model": "BMC", "DateTime": stamp(v.h.b.Now()), "DateTimeLocalOffset": "+00:00",
		"PowerState": "On", "Status": enabled("OK"),
		"Links": object{"ManagerForServers": []object{link(systemPath)}, "ManagerForChassis": []object{link(boardPath)}},
	}
	if v.h.board != nil {
		doc["LastResetTime"] = stamp(v.h.board.Started())
		doc["Actions"] = object{"#Manager.Reset": object{"target": managerTarget, "ResetType@Redfish.AllowableValues": managerResets}}
	}
	return doc
}

// parts lists the names of a kind of part that sensors know, such as psu0, psu1.
func (v *view) parts(kind string) []string {
	var out []string
	for i := range v.sensors {
		p := v.sensors[i].Part
		n, ok := strings.CutPrefix(p, kind)
		if _, err := strconv.Atoi(n); ok && err == nil && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func (v *view) gpu(name, prefix string) *device.GPU {
	n, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return nil
	}
	for i := range v.gpus {
		if strconv.Itoa(v.gpus[i].Index) == n {
			return &v.gpus[i]
		}
	}
	return nil
}

func (v *view) systemPart(path, rest string, q query) object {
	seg := strings.Split(rest, "/")
	switch seg[0] {
	case "Processors":
		return v.processors(path, seg[1:])
	case "EthernetInterfaces":
		return v.interfaces(path, seg[1:])
	case "LogServices":
		return v.logs(path, seg[1:], q)
	}
	return nil
}

func (v *view) processors(path string, seg []string) object {
	cpus := v.parts("cpu")
	if len(seg) == 0 {
		var ids []string
		for i := range cpus {
			ids = append(ids, "CPU_"+strings.TrimPrefix(cpus[i], "cpu"))
		}
		for i := range v.gpus {
			ids = append(ids, "GPU_"+strconv.Itoa(v.gpus[i].Index))
		}
		return collection(path, "ProcessorCollection", "Processors", ids)
	}
	if n, ok := strings.CutPrefix(seg[0], "CPU_"); ok && len(seg) == 1 && slices.Contains(cpus, "cpu"+n) {
		return object{
			"@odata.id": path, "@odata.type": "#Processor.v1_20_0.Processor", "Id": seg[0], "Name": "CPU " + n, "ProcessorType": "CPU", "ProcessorArchitecture": "x86", "InstructionSet": "x86-64",
			"Socket": "CPU" + n, "Status": enabled("OK"), "Links": object{"Chassis": link(boardPath)},
		}
	}
	g := v.gpu(seg[0], "GPU_")
	if g == nil || len(seg) > 2 {
		return nil
	}
	status := gpuStatus(g)
	base := systemPath + "/Processors/" + seg[0]
	if len(seg) == 1 {
		return object{
			"@odata.id": path, "@odata.type": "#Processor.v1_20_0.Processor", "Id": seg[0], "Name": "GPU " + strconv.Itoa(g.Index),
			"ProcessorType": "GPU", "Manufacturer": "NVIDIA", "Model": g.Model, "SerialNumber": g.Serial, "UUID": strings.TrimPrefix(g.UUID, "GPU-"),
			"Status": status, "OperatingSpeedMHz": gpuReading(g, math.Round(g.ClockMHz)),
			"Location": object{"PartLocation": object{"LocationType": "Embedded", "ServiceLabel": g.Name}},
			"Metrics":  link(base + "/ProcessorMetrics"), "EnvironmentMetrics": link(base + "/EnvironmentMetrics"),
			"Links": object{"Chassis": link(root + "/Chassis/HGX_GPU_" + strconv.Itoa(g.Index))},
		}
	}
	sensor := v.gpuSensorPath(g)
	switch seg[1] {
	case "ProcessorMetrics":
		return object{
			"@odata.id": path, "@odata.type": "#ProcessorMetrics.v1_6_4.ProcessorMetrics", "Id": "ProcessorMetrics",
			"Name": seg[0] + " Processor Metrics", "OperatingSpeedMHz": gpuReading(g, math.Round(g.ClockMHz)),
		}
	case "EnvironmentMetrics":
		return object{
			"@odata.id": path, "@odata.type": "#EnvironmentMetrics.v1_3_2.EnvironmentMetrics", "Id": "EnvironmentMetrics",
			"Name":               seg[0] + " Environment Metrics",
			"TemperatureCelsius": object{"DataSourceUri": sensor + "Temp_0", "Reading": gpuReading(g, g.Temperature)},
			"PowerWatts":         object{"DataSourceUri": sensor + "Power_0", "Reading": gpuReading(g, g.PowerWatts)},
		}
	}
	return nil
}

func gpuStatus(g *device.GPU) object {
	if g.Present {
		return enabled("OK")
	}
	return object{"State": "UnavailableOffline", "Health": "Critical", "HealthRollup": "Critical"}
}

func gpuReading(g *device.GPU, x float64) any {
	if !g.Present {
		return nil
	}
	return number(x)
}

func (v *view) interfaces(path string, seg []string) object {
	if len(seg) == 0 {
		var ids []string
		for i := range v.info.MACs {
			ids = append(ids, "NIC_"+strconv.Itoa(i))
		}
		return collection(path, "EthernetInterfaceCollection", "Ethernet Interfaces", ids)
	}
	for i, mac := range v.info.MACs {
		if len(seg) == 1 && seg[0] == "NIC_"+strconv.Itoa(i) {
			return object{
				"@odata.id": path, "@odata.type": "#EthernetInterface.v1_12_1.EthernetInterface", "Id": seg[0], "Name": "NIC " + strconv.Itoa(i),
				"MACAddress": mac, "PermanentMACAddress": mac, "Status": enabled("OK"),
			}
		}
	}
	return nil
}

func (v *view) logs(path string, seg []string, q query) object {
	switch {
	case len(seg) == 0:
		return collection(path, "LogServiceCollection", "Log Services", []string{"SEL"})
	case seg[0] != "SEL":
		return nil
	case len(seg) == 1:
		_, erased := v.h.b.Log()
		return object{
			"@odata.id": path, "@odata.type": "#LogService.v1_7_0.LogService", "Id": "SEL", "Name": "SEL Log Service",
			"Description":  "System event log",
			"LogEntryType": "SEL", "OverWritePolicy": "NeverOverWrites", "MaxNumberOfRecords": 65534, "ServiceEnabled": true,
			"Status":   enabled("OK"),
			"DateTime": stamp(v.h.b.Now()), "DateTimeLocalOffset": "+00:00", "Entries": link(selPath + "/Entries"),
			"Actions": object{"#LogService.ClearLog": object{"target": clearTarget}},
			"Oem":     object{"Auspex": object{"ErasedTime": stamp(erased)}},
		}
	case seg[1] != "Entries" || len(seg) > 3:
		return nil
	}
	records, _ := v.h.b.Log()
	if len(seg) == 3 {
		for i := range records {
			if strconv.Itoa(int(records[i].ID)) == seg[2] {
				return v.entry(&records[i])
			}
		}
		return nil
	}
	members := make([]object, 0, len(records))
	for i := range records {
		if e := v.entry(&records[i]); q.filter.matches(e) {
			members = append(members, e)
		}
	}
	doc := object{
		"@odata.id": path, "@odata.type": "#LogEntryCollection.LogEntryCollection", "Name": "SEL Log Entries",
		"Members": members, "Members@odata.count": len(members),
	}
	if to := q.skip + PageSize; to < len(members) && q.top < 0 {
		members = members[:to]
		doc["Members@odata.nextLink"] = path + "?" + q.after(to)
	}
	doc["Members"] = members
	return doc
}

func (v *view) entry(r *device.LogRecord) object {
	id := strconv.Itoa(int(r.ID))
	doc := object{
		"@odata.id": selPath + "/Entries/" + id, "@odata.type": "#LogEntry.v1_16_1.LogEntry", "Id": id, "Name": "System Event Log Entry",
		"EntryType": "SEL", "Created": stamp(r.Time), "Severity": r.Severity, "Message": r.Message, "MessageId": r.MessageID,
		"MessageArgs": append([]string{}, r.Args...), "SensorNumber": int(r.SensorNumber), "Resolved": false,
	}
	if p := v.partPath(r.Part); p != "" {
		doc["Links"] = object{"OriginOfCondition": link(p)}
	}
	return doc
}

// partPath is the resource of a part such as psu0, fan3 or gpu2.
func (v *view) partPath(part string) string {
	kind := strings.TrimRight(part, "0123456789")
	n := part[len(kind):]
	switch kind {
	case "":
		return systemPath
	case "psu":
		return boardPath + "/PowerSubsystem/PowerSupplies/PSU_" + n
	case "fan":
		return boardPath + "/ThermalSubsystem/Fans/FAN_" + n
	case "gpu":
		return systemPath + "/Processors/GPU_" + n
	case "cpu":
		return systemPath + "/Processors/CPU_" + n
	}
	return ""
}
