package redfish

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"
	"go.uber.org/goleak"

	"auspex/internal/sim/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fakeBMC struct {
	mu     sync.Mutex
	power  device.PowerState
	boot   device.Boot
	log    []device.LogRecord
	clock  time.Time
	resets []string
	fault  device.Fault
	lost   bool // PSU 0 has no input, GPU 1 is gone
}

func newFake(records int) *fakeBMC {
	f := &fakeBMC{
		power: device.PowerOn, boot: device.Boot{Enabled: "Disabled", Target: "None", Mode: "UEFI"},
		clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	for i := range records {
		f.log = append(f.log, device.LogRecord{
			ID: uint16(i + 1), Time: f.clock, SensorNumber: 0x40, Severity: "Critical", Part: "psu0",
			MessageID: "PowerSupply.1.0.InputLost", Message: fmt.Sprintf("record %d", i+1), Args: []string{"PSU0"},
		})
	}
	return f
}

func (f *fakeBMC) lock() func() { f.mu.Lock(); return f.mu.Unlock }

func (f *fakeBMC) Info() device.Info {
	return device.Info{
		Name: "gpu-r01-01", Manufacturer: "Example", Model: "HGX", Serial: "S1", UUID: "21ec4218-bd70-4a73-a476-990523953642", Firmware: "1.0",
		MACs: []string{"02:00:00:00:00:01"},
	}
}

func (f *fakeBMC) Password(u string) (string, bool) { return "secret", u == "admin" }
func (f *fakeBMC) Power() device.PowerState         { defer f.lock()(); return f.power }
func (f *fakeBMC) LastReset() time.Time             { return time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC) }

func (f *fakeBMC) Reset(t device.ResetType, via, id string) error {
	defer f.lock()()
	switch t {
	case device.ResetNmi:
		return fmt.Errorf("reset: %w", device.ErrUnsupported)
	case device.ResetGracefulShutdown:
		return errors.New("host does not answer")
	case device.ResetOn:
		f.power = device.PowerOn
	case device.ResetForceOff:
		f.power = device.PowerOff
	}
	f.resets = append(f.resets, string(t)+" "+via+" "+id)
	return nil
}

func (f *fakeBMC) Boot() device.Boot { defer f.lock()(); return f.boot }

func (f *fakeBMC) SetBoot(b device.Boot) error {
	defer f.lock()()
	f.boot = b
	return nil
}

func (f *fakeBMC) Sensors() []device.Sensor {
	defer f.lock()()
	n := math.NaN()
	bits := 1.0
	if f.lost {
		bits = 9
	}
	return []device.Sensor{
		{
			Number: 1, Name: "Inlet Temp", Kind: device.SensorTemperature, Value: 24.5, Present: true, MaxRange: 100, LNC: n, LC: n, LNR: n,
			UNC: 40, UC: 45, UNR: 50,
		},
		{
			Number: 2, Name: "FAN1", Part: "fan1", Kind: device.SensorFan, Value: 5000.4, Present: true, MaxRange: 20000, LNC: 6500, LC: 6000,
			LNR: n, UNC: n, UC: n, UNR: n,
		},
		{
			Number: 3, Name: "FAN1 Duty", Part: "fan1", Kind: device.SensorDuty, Value: 60, Present: true, MaxRange: 100, LNC: n, LC: n, LNR: n,
			UNC: n, UC: n, UNR: n,
		},
		{
			Number: 4, Name: "PSU0 Input", Part: "psu0", Kind: device.SensorPower, Value: 812, Present: true, MaxRange: 4000, LNC: n, LC: n, LNR: n,
			UNC: n, UC: n, UNR: n,
		},
		{Number: 5, Name: "PSU0 Status", Part: "psu0", Kind: device.SensorPSU, Value: bits, Present: true},
		{
			Number: 6, Name: "CPU0 Temp", Part: "cpu0", Kind: device.SensorTemperature, Present: false, LNC: n, LC: n, LNR: n, UNC: n, UC: 95,
			UNR: n,
		},
		{Number: 7, Name: "GPU0 Temp", Part: "gpu0", Kind: device.SensorTemperature, Value: 51, Present: true},
	}
}

func (f *fakeBMC) GPUs() []device.GPU {
	defer f.lock()()
	return []device.GPU{
		{
			Index: 0, Name: "gpu0", Model: "H100", Serial: "G0", UUID: "GPU-a0ec4218-bd70-4a73-a476-990523953642", Present: true, Temperature: 51,
			MemoryTemp: 60, PowerWatts: 400.25, ClockMHz: 1980,
		},
		{Index: 1, Name: "gpu1", Model: "H100", Serial: "G1", Present: !f.lost, Temperature: 52, MemoryTemp: 61, PowerWatts: 401, ClockMHz: 1980},
	}
}

func (f *fakeBMC) Log() ([]device.LogRecord, time.Time) {
	defer f.lock()()
	return slices.Clone(f.log), f.clock
}

func (f *fakeBMC) ClearLog()             { defer f.lock()(); f.log = nil }
func (f *fakeBMC) resetLog() []string    { defer f.lock()(); return slices.Clone(f.resets) }
func (f *fakeBMC) Now() time.Time        { defer f.lock()(); return f.clock }
func (f *fakeBMC) SetClock(t time.Time)  { defer f.lock()(); f.clock = t }
func (f *fakeBMC) Fault() device.Fault   { defer f.lock()(); return f.fault }
func (f *fakeBMC) set(do func(*fakeBMC)) { defer f.lock()(); do(f) }

func serve(t *testing.T, b device.BMC) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(NewHandler(b))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func connect(t *testing.T, s *httptest.Server, basic bool) *gofish.APIClient {
	t.Helper()
	c, err := gofish.Connect(gofish.ClientConfig{
		Endpoint: s.URL, Username: "admin", Password: "secret", BasicAuth: basic,
		HTTPClient: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Logout)
	return c
}

func TestGofishWalksTheService(t *testing.T) {
	b := newFake(120)
	b.lost = true
	c := connect(t, serve(t, b), false)
	var got []string
	describe := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	systems, err := c.Service.Systems()
	must(err)
	for _, s := range systems {
		describe("system %s %s %s %s %s", s.ID, s.SerialNumber, s.PowerState, s.Status.Health, s.Boot.BootSourceOverrideEnabled)
		if g, c := s.GraphicalConsole, s.SerialConsole; !g.ServiceEnabled || g.MaxConcurrentSessions != 4 || c.SSH.Port == nil || *c.SSH.Port != 2200 || !c.IPMI.ServiceEnabled || c.Telnet.ServiceEnabled {
			t.Errorf("consoles %+v, %+v", g, c)
		}
		ps, err := s.Processors()
		must(err)
		for _, p := range ps {
			describe("processor %s %s %s %s", p.ID, p.ProcessorType, p.SerialNumber, p.Status.State)
			if p.ProcessorType == schemas.GPUProcessorType {
				m, err := p.Metrics()
				must(err)
				if p.ID == "GPU_0" {
					describe("clock %d", *m.OperatingSpeedMHz)
				}
			}
		}
		nics, err := s.EthernetInterfaces()
		must(err)
		describe("nic %s", nics[0].MACAddress)
		logs, err := s.LogServices()
		must(err)
		entries, err := logs[0].Entries()
		must(err)
		// gofish reads pages side by side: their order is not that of the log.
		i := slices.IndexFunc(entries, func(e *schemas.LogEntry) bool { return e.ID == "120" })
		describe("log %d, last %s %s %s", len(entries), entries[i].ID, entries[i].MessageID, entries[i].Severity)
	}
	chassis, err := c.Service.Chassis()
	must(err)
	slices.SortFunc(chassis, func(a, b *schemas.Chassis) int { return strings.Compare(a.ID, b.ID) })
	for _, x := range chassis {
		sensors, err := x.Sensors()
		must(err)
		for _, s := range sensors {
			if s.Reading == nil {
				describe("sensor %s nil %s", s.Name, s.Status.State)
				continue
			}
			describe("sensor %s %g %s", s.Name, *s.Reading, s.Status.Health)
		}
	}
	power, err := chassis[0].PowerSubsystem()
	must(err)
	supplies, err := power.PowerSupplies()
	must(err)
	describe("supply %s %s %s", supplies[0].ID, supplies[0].Status.State, supplies[0].Status.Health)
	cooling, err := chassis[0].ThermalSubsystem()
	must(err)
	fans, err := cooling.Fans()
	must(err)
	describe("fan %s %s", fans[0].ID, fans[0].Status.Health)
	thermal, err := chassis[0].Thermal()
	must(err)
	oldPower, err := chassis[0].Power()
	must(err)
	describe("legacy %d temperatures %d fans %d supplies", len(thermal.Temperatures), len(thermal.Fans), len(oldPower.PowerSupplies))
	managers, err := c.Service.Managers()
	must(err)
	describe("manager %s %s", managers[0].FirmwareVersion, managers[0].DateTime)
	ts, err := c.Service.TelemetryService()
	must(err)
	reports, err := ts.MetricReports()
	must(err)
	for _, r := range reports {
		describe("report %s %d, first %s", r.ID, len(r.MetricValues), r.MetricValues[0].MetricValue)
	}
	us, err := c.Service.UpdateService()
	must(err)
	fw, err := us.FirmwareInventory()
	must(err)
	describe("firmware %s", fw[0].Version)
	slices.Sort(got)
	want := []string{
		"clock 1980",
		"fan FAN_1 Critical",
		"firmware 1.0",
		"legacy 2 temperatures 1 fans 1 supplies",
		"log 120, last 120 PowerSupply.1.0.InputLost Critical",
		"manager 1.0 2026-01-02T03:04:05.000+00:00",
		"nic 02:00:00:00:00:01",
		"processor CPU_0 CPU  Enabled",
		"processor GPU_0 GPU G0 Enabled",
		"processor GPU_1 GPU G1 UnavailableOffline",
		"report HGX_PlatformEnvironmentMetrics_0 7, first 51.000000",
		"report HGX_ProcessorMetrics_0 1, first 1980.000000",
		"sensor CPU0 Temp nil UnavailableOffline",
		"sensor FAN1 5000.4 Critical",
		"sensor FAN1 Duty 60 OK",
		"sensor HGX GPU 0 DRAM 0 Temp 0 60 OK",
		"sensor HGX GPU 0 Power 0 400.25 OK",
		"sensor HGX GPU 0 Temp 0 51 OK",
		"sensor HGX GPU 1 DRAM 0 Temp 0 nil UnavailableOffline",
		"sensor HGX GPU 1 Power 0 nil UnavailableOffline",
		"sensor HGX GPU 1 Temp 0 nil UnavailableOffline",
		"sensor Inlet Temp 24.5 OK",
		"sensor PSU0 Input 812 OK",
		"supply PSU_0 Enabled Critical",
		"system System_0 S1 On Critical Disabled",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestGofishResetsBootsAndClears(t *testing.T) {
	b := newFake(3)
	c := connect(t, serve(t, b), true)
	systems, err := c.Service.Systems()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := systems[0].Reset(schemas.ForceOffResetType); err != nil {
		t.Error(err)
	}
	if err := systems[0].SetBoot(&schemas.Boot{
		BootSourceOverrideEnabled: schemas.OnceBootSourceOverrideEnabled, BootSourceOverrideTarget: schemas.PxeBootSource,
	}); err != nil {
		t.Error(err)
	}
	logs, err := systems[0].LogServices()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := logs[0].ClearLog(""); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"ForceOff redfish "}, b.resetLog()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(device.Boot{Enabled: "Once", Target: "Pxe", Mode: "UEFI"}, b.Boot()); d != "" {
		t.Error(d)
	}
	if records, _ := b.Log(); len(records) != 0 || b.Power() != device.PowerOff {
		t.Errorf("%d records, power %s", len(records), b.Power())
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func call(t *testing.T, s *httptest.Server, method, path, body string, header ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("admin", "secret")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "X-Auth-Token" {
			req.Header.Del("Authorization")
		}
	}
	r, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{r.StatusCode, r.Header, string(data)}
}

func TestErrorsNameTheirMessage(t *testing.T) {
	s := serve(t, newFake(1))
	tests := []struct {
		name, method, path, body string
		header                   []string
		status                   int
		id                       string
	}{
		{"no credentials", "GET", "/redfish/v1/Systems", "", []string{"Authorization", ""}, 401, "NoValidSession"},
		{"unknown token", "GET", "/redfish/v1/Systems", "", []string{"X-Auth-Token", "x"}, 401, "NoValidSession"},
		{"unknown resource", "GET", "/redfish/v1/Systems/9", "", nil, 404, "ResourceMissingAtURI"},
		{"wrong login", "POST", sessionsPath, `{"UserName":"admin","Password":"guess"}`, nil, 401, "ResourceAtUriUnauthorized"},
		{"login without a name", "POST", sessionsPath, `{"Password":"secret"}`, nil, 400, "PropertyMissing"},
		{"broken JSON", "POST", resetTarget, `{"ResetType":`, nil, 400, "MalformedJSON"},
		{"null", "POST", resetTarget, `null`, nil, 400, "MalformedJSON"},
		{"no reset type", "POST", resetTarget, `{}`, nil, 400, "ActionParameterMissing"},
		{"unknown reset type", "POST", resetTarget, `{"ResetType":"Hard"}`, nil, 400, "ActionParameterValueNotInList"},
		{"unsupported reset type", "POST", resetTarget, `{"ResetType":"Nmi"}`, nil, 400, "ActionParameterValueNotInList"},
		{"failed reset", "POST", resetTarget, `{"ResetType":"GracefulShutdown"}`, nil, 500, "InternalError"},
		{"post to a resource", "POST", systemPath, `{}`, nil, 405, "OperationNotAllowed"},
		{"get of an action", "GET", resetTarget, "", nil, 405, "OperationNotAllowed"},
		{"unknown boot target", "PATCH", systemPath, `{"Boot":{"BootSourceOverrideTarget":"Floppy"}}`, nil, 400, "PropertyValueNotInList"},
		{"read-only property", "PATCH", systemPath, `{"PowerState":"Off"}`, nil, 400, "PropertyNotWritable"},
		{"old entity tag", "PATCH", systemPath, `{"Boot":{}}`, []string{"If-Match", `W/"0"`}, 412, "PreconditionFailed"},
		{"bad clock", "PATCH", managerPath, `{"DateTime":"noon"}`, nil, 400, "PropertyValueFormatError"},
		{"select", "GET", "/redfish/v1/Systems?$select=Id", "", nil, 501, "QueryNotSupported"},
		{"bad skip", "GET", "/redfish/v1/Systems?$skip=-1", "", nil, 400, "QueryParameterValueFormatError"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			a := call(t, s, tc.method, tc.path, tc.body, tc.header...)
			var doc struct {
				Error struct {
					Info []struct{ MessageID string } `json:"@Message.ExtendedInfo"`
				}
			}
			if err := json.Unmarshal([]byte(a.body), &doc); err != nil || len(doc.Error.Info) != 1 {
				t.Fatalf("%d %s: %v", a.status, a.body, err)
			}
			if want := "Base.1.18." + tc.id; a.status != tc.status || doc.Error.Info[0].MessageID != want {
				t.Errorf("got %d %s, want %d %s", a.status, doc.Error.Info[0].MessageID, tc.status, want)
			}
		})
	}
}

func TestSessionLivesUntilItIsDeleted(t *testing.T) {
	s := serve(t, newFake(0))
	a := call(t, s, "POST", sessionsPath, `{"UserName":"admin","Password":"secret"}`)
	token, where := a.header.Get("X-Auth-Token"), a.header.Get("Location")
	if a.status != 201 || token == "" || where != sessionsPath+"/1" {
		t.Fatalf("login: %d %v", a.status, a.header)
	}
	for _, step := range []struct {
		method, path string
		status       int
	}{{"GET", where, 200}, {"GET", systemPath, 200}, {"DELETE", where, 204}, {"GET", systemPath, 401}} {
		if a := call(t, s, step.method, step.path, "", "X-Auth-Token", token); a.status != step.status {
			t.Errorf("%s %s: %d, want %d", step.method, step.path, a.status, step.status)
		}
	}
}

func TestEntityTagFollowsTheState(t *testing.T) {
	b := newFake(0)
	s := serve(t, b)
	tag := call(t, s, "GET", systemPath, "").header.Get("ETag")
	if a := call(t, s, "GET", systemPath, "", "If-None-Match", tag); a.status != 304 || a.body != "" {
		t.Errorf("unchanged: %d %q", a.status, a.body)
	}
	if a := call(t, s, "PATCH", systemPath, `{"Boot":{"BootSourceOverrideTarget":"Pxe"}}`, "If-Match", tag); a.status != 204 {
		t.Errorf("patch: %d %s", a.status, a.body)
	}
	if a := call(t, s, "GET", systemPath, "", "If-None-Match", tag); a.status != 200 {
		t.Errorf("changed: %d", a.status)
	}
}

func TestExpandInlinesSubordinates(t *testing.T) {
	s := serve(t, newFake(2))
	var doc struct {
		Members []struct {
			ID      string
			Sensors struct{ Members []struct{ Reading *float64 } }
			Links   struct{ ComputerSystems []map[string]any }
		}
	}
	a := call(t, s, "GET", "/redfish/v1/Chassis?$expand=.($levels=3)", "")
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Members) != 3 || len(doc.Members[0].Sensors.Members) != 5 || *doc.Members[0].Sensors.Members[0].Reading != 24.5 {
		t.Errorf("%s", a.body)
	}
	if n := len(doc.Members[0].Links.ComputerSystems[0]); n != 1 {
		t.Errorf("a link in Links grew to %d properties", n)
	}
	// A document with everything expanded stays finite.
	if a := call(t, s, "GET", "/redfish/v1?$expand=*($levels=6)", ""); a.status != 200 || len(a.body) > 32<<20 {
		t.Errorf("%d, %d bytes", a.status, len(a.body))
	}
}

func TestLogPages(t *testing.T) {
	s := serve(t, newFake(120))
	type page struct {
		Members []struct{ ID string }
		Count   int    `json:"Members@odata.count"`
		Next    string `json:"Members@odata.nextLink"`
	}
	var ids []string
	for path := selPath + "/Entries"; path != ""; {
		var p page
		if err := json.Unmarshal([]byte(call(t, s, "GET", path, "").body), &p); err != nil {
			t.Fatal(err)
		}
		if p.Count != 120 || len(p.Members) > PageSize {
			t.Errorf("%s: %d of %d", path, len(p.Members), p.Count)
		}
		for _, m := range p.Members {
			ids = append(ids, m.ID)
		}
		path = p.Next
	}
	if len(ids) != 120 || ids[0] != "1" || ids[119] != "120" {
		t.Errorf("%d entries", len(ids))
	}
	var p page
	if err := json.Unmarshal([]byte(call(t, s, "GET", selPath+"/Entries?$skip=118&$top=1", "").body), &p); err != nil || len(p.Members) != 1 ||
		p.Members[0].ID != "119" {
		t.Errorf("%v %v", p, err)
	}
}

// What a reader of long logs asks for: the last ones, those after a time, and pages of
// both; and collections of links are paged as well.
func TestTopSkipAndFilter(t *testing.T) {
	b := newFake(120)
	for i := range b.log {
		b.log[i].Time = b.log[0].Time.Add(time.Duration(i) * time.Second)
	}
	s := serve(t, b)
	type page struct {
		Count   int    `json:"Members@odata.count"`
		Next    string `json:"Members@odata.nextLink"`
		Members []struct {
			ID      string `json:"Id"`
			Link    string `json:"@odata.id"`
			Created string
		}
	}
	get := func(path string) (p page, status int) {
		t.Helper()
		a := call(t, s, "GET", path, "")
		if err := json.Unmarshal([]byte(a.body), &p); err != nil {
			t.Fatal(err)
		}
		return p, a.status
	}
	all, _ := get(selPath + "/Entries?$skip=0&$top=120")
	if len(all.Members) != 120 {
		t.Fatalf("%d of 120 records", len(all.Members))
	}
	at := url.QueryEscape(all.Members[60].Created)
	for _, tc := range []struct {
		query          string
		count, members int
		first          string
		status         int
		more           bool
	}{
		{"$skip=118", 120, 2, "119", 200, false},
		{"$skip=500", 120, 0, "", 200, false},
		{"$top=0", 120, 0, "", 200, false},
		{"$top=3&$skip=7", 120, 3, "8", 200, false},
		{"$filter=Created%20ge%20'" + at + "'&$top=5", 60, 5, "61", 200, false},
		{"$filter=Created%20gt%20" + at, 59, PageSize, "62", 200, true},
		{"$filter=Created%20ge%20'" + at + "'%20and%20Id%20lt%20'70'", 9, 9, "61", 200, false},
		{"$filter=Id%20eq%20'7'", 1, 1, "7", 200, false},
		{"$filter=Created%20lt%20'1999-01-01T00:00:00Z'", 0, 0, "", 200, false},
		{"$filter=nonsense", 0, 0, "", 400, false},
	} {
		p, status := get(selPath + "/Entries?" + tc.query)
		first := ""
		if len(p.Members) > 0 {
			first = p.Members[0].ID
		}
		if status != tc.status || p.Count != tc.count || len(p.Members) != tc.members || first != tc.first || (p.Next != "") != tc.more {
			t.Errorf("%s: status %d, %d of %d from %q, next %q", tc.query, status, len(p.Members), p.Count, first, p.Next)
		}
		if tc.more {
			if p, _ = get(p.Next); len(p.Members) != tc.count-tc.members || p.Count != tc.count {
				t.Errorf("%s: the next page has %d of %d", tc.query, len(p.Members), p.Count)
			}
		}
	}
	if p, _ := get("/redfish/v1/Chassis/Chassis_0/Sensors?$top=2&$skip=1"); len(p.Members) != 2 || p.Count <= 3 {
		t.Errorf("sensors: %d of %d", len(p.Members), p.Count)
	}
	if _, status := get("/redfish/v1/Chassis?$filter=Id%20eq%20'x'"); status != 501 {
		t.Errorf("a filter on links is answered with %d", status)
	}
}

func TestResetKeepsTheRequestID(t *testing.T) {
	b := newFake(0)
	s := serve(t, b)
	if a := call(t, s, "POST", resetTarget, `{"ResetType":"PowerCycle"}`, "X-Request-Id", "act-7"); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if d := cmp.Diff([]string{"PowerCycle redfish act-7"}, b.resetLog()); d != "" {
		t.Error(d)
	}
}

func TestFaultsSpoilTheAnswers(t *testing.T) {
	b := newFake(0)
	s := serve(t, b)
	b.set(func(f *fakeBMC) { f.fault.Status = 503 })
	if a := call(t, s, "GET", systemPath, ""); a.status != 503 {
		t.Errorf("status: %d", a.status)
	}
	b.set(func(f *fakeBMC) { f.fault = device.Fault{Garble: true} })
	if a := call(t, s, "GET", systemPath, ""); a.status != 200 || json.Valid([]byte(a.body)) {
		t.Errorf("garbled: %d %s", a.status, a.body)
	}
	b.set(func(f *fakeBMC) { f.fault = device.Fault{Mute: true} })
	c := http.Client{Timeout: 100 * time.Millisecond}
	if r, err := c.Get(s.URL + "/redfish/v1"); err == nil {
		r.Body.Close()
		t.Error("mute controller answered")
	}
}

func TestGofishExpandsInFewRequests(t *testing.T) {
	h := NewHandler(newFake(3))
	var mu sync.Mutex
	requests := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests++
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	c, err := gofish.Connect(gofish.ClientConfig{
		Endpoint: s.URL, Username: "admin", Password: "secret", BasicAuth: true, AutoExpand: true,
		HTTPClient: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	chassis, err := c.Service.Chassis()
	if err != nil {
		t.Fatal(err)
	}
	sensors := 0
	for _, x := range chassis {
		all, err := x.Sensors()
		if err != nil {
			t.Fatal(err)
		}
		sensors += len(all)
	}
	if sensors != 11 || requests > 10 {
		t.Errorf("%d sensors in %d requests", sensors, requests)
	}
}

// TestSushyDrivesTheController needs a Python with the package sushy.
func TestSushyDrivesTheController(t *testing.T) {
	python := os.Getenv("SUSHY_PYTHON")
	if python == "" {
		t.Skip("SUSHY_PYTHON is not set: set it to a Python interpreter that has the package sushy to run this test")
	}
	s := serve(t, newFake(3))
	out, err := exec.CommandContext(t.Context(), python, "testdata/drive_sushy.py", s.URL, "admin", "secret").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add("GET", "/redfish/v1/Chassis?$expand=*", "")
	f.Add("PATCH", systemPath, `{"Boot":{"BootSourceOverrideTarget":"Pxe"}}`)
	f.Add("POST", resetTarget, `{"ResetType":"On"}`)
	f.Add("GET", selPath+"/Entries/1", "")
	h := NewHandler(newFake(3))
	f.Fuzz(func(t *testing.T, method, target, body string) {
		req, err := http.NewRequest(method, "http://bmc"+target, strings.NewReader(body))
		if err != nil {
			return
		}
		req.SetBasicAuth("admin", "secret")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code < 200 || w.Code > 599 {
			t.Errorf("status %d", w.Code)
		}
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("not JSON: %s", w.Body)
		}
	})
}
