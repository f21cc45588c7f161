package propagation

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"auspex/schemas"
)

// The faults that an incident may name (formats, section 3), each with the
// kinds of resources that it blames.
var blamed = map[string]string{
	"power.feed_loss": "pdu", "power.psu_failure": "psu", "cooling.air_supply": "crac rack", "cooling.fan_failure": "fan",
	"network.switch_failure": "switch", "network.link_failure": "port nic", "network.link_flap": "port nic",
	"network.optics_degraded": "port nic",
	"network.nic_failure":     "nic", "gpu.fallen_off_bus": "gpu", "gpu.memory_uncorrectable": "gpu", "gpu.memory_degrading": "gpu",
	"gpu.gsp_hang": "gpu", "gpu.nvlink_failure": "gpu", "gpu.overheating": "gpu", "nvswitch.failure": "nvswitch",
	"host.memory_uncorrectable": "dimm", "host.cpu_failure": "cpu", "host.pcie_fault": "pcie_switch server", "host.disk_failure": "disk",
	"host.crash": "server", "service.fabric_manager": "server", "service.imex": "server", "bmc.failure": "bmc server", "workload.error": "workload",
	"planned.overdue": "server switch rack row site",
}

func TestBuiltInKnowledgeCoversEveryFault(t *testing.T) {
	m := Default()
	seen := map[string]bool{}
	for _, f := range m.Faults {
		if f.Harmless {
			continue
		}
		seen[f.Name] = true
		for _, k := range f.Kinds {
			if !strings.Contains(" "+blamed[f.Name]+" ", " "+k+" ") {
				t.Errorf("%s blames a %s", f.Name, k)
			}
		}
		if f.Action == "" || f.Target == "" {
			t.Errorf("%s recommends nothing", f.Name)
		}
		suspects := false
		for _, c := range f.Classes {
			suspects = suspects || !c.Later
		}
		if !suspects {
			t.Errorf("%s can never become a suspect", f.Name)
		}
	}
	for name := range blamed {
		if !seen[name] {
			t.Errorf("nothing is known about %s", name)
		}
	}
}

// Each type of event is a sign, with whatever code, or is known not to be one alone.
func TestEachTypeOfEventIsASign(t *testing.T) {
	m := Default()
	none := map[string]string{
		schemas.EventHostOOM:            "a program took more memory than there was, which no part is to blame for",
		schemas.EventBMCClockSkew:       "a clock that is off harms nothing but the times of a log",
		schemas.EventWorkloadState:      "news",
		schemas.EventNodeState:          "news",
		schemas.EventWorkloadDevices:    "news",
		schemas.EventDiskWear:           "nothing fails yet",
		schemas.EventMaintenanceEnded:   "it ends a window",
		schemas.EventConfigDrift:        "what is set otherwise has not failed",
		schemas.EventConfigFailed:       "no part is to blame for it",
		schemas.EventHardwareConflict:   "what is written otherwise has not failed",
		schemas.EventHardwareDiscovered: "news",
		schemas.EventTenantReport:       "what is meant is in the sentence, for people to read",
	}
	for _, typ := range schemas.EventTypes() {
		if seen, why := len(m.byType[typ]) > 0, none[typ]; seen == (why != "") {
			t.Errorf("%s: a sign %t, %q", typ, seen, why)
		}
	}
}

func TestMatch(t *testing.T) {
	m := Default()
	cases := []struct {
		typ, code string
		severity  schemas.Severity
		want      string
	}{
		{"gpu.xid", "79", schemas.SeverityCritical, "gpu_off_bus"},
		{"gpu.missing", "STALE", schemas.SeverityError, "gpu_stalled"},
		{"gpu.missing", "FALLEN_OFF_BUS", schemas.SeverityCritical, "gpu_off_bus"},
		{"gpu.xid", "149", schemas.SeverityInfo, ""},
		{"gpu.xid", "149", schemas.SeverityCritical, "gpu_nvlink"},
		{"nvswitch.sxid", "20034", schemas.SeverityCritical, "sxid_link"},
		{"nvswitch.sxid", "10003", schemas.SeverityCritical, "sxid_device"},
		{"bmc.event", "Platform.1.0.PCIeFatalError", schemas.SeverityCritical, "sel_pcie"},
		{"nvswitch.missing", "LOST", schemas.SeverityCritical, "sxid_device"},
		{"gpu.recovery_action", "wanted", schemas.SeverityError, "gpu_recovery"},
		{"gpu.fabric", "NOT_REGISTERED", schemas.SeverityError, "gpu_unregistered"},
		{"gpu.fabric", "DEGRADED_BANDWIDTH", schemas.SeverityWarning, "gpu_fabric"},
		{"gpu.health", "CORRUPT_INFOROM", schemas.SeverityError, "gpu_health"},
		{"gpu.health", "CORRUPT_INFOROM", schemas.SeverityWarning, ""},
		{"disk.missing", "LOST", schemas.SeverityError, "disk_missing"},
		{"service.failed", "nvidia-imex", schemas.SeverityError, "imex_failed"},
		{"service.failed", "nvidia-fabricmanager", schemas.SeverityError, "fabric_manager"},
		{"imex.domain", "peer_lost", schemas.SeverityWarning, "imex_domain"},
		{"temp.high", "inlet", schemas.SeverityWarning, "inlet_hot"},
		{"workload.failed", "143", schemas.SeverityInfo, ""},
		{"port.down", "", schemas.SeverityError, "port_down"},
		{"acme.thing", "", schemas.SeverityCritical, ""},
	}
	for _, c := range cases {
		got := ""
		if i := m.Match(c.typ, c.code, c.severity); i >= 0 {
			got = m.Signs[i].Name
		}
		if got != c.want {
			t.Errorf("%s/%s %s is %q, want %q", c.typ, c.code, c.severity, got, c.want)
		}
	}
}

const leak = `fault: cooling.coolant_leak
title: {en: Coolant leak, zh: 冷却液泄漏}
summary: {en: "Coolant leaks in {server}.", zh: "{server} 漏液。"}
kinds: [server]
prior: -5
do: {action: power_cycle, target: self}
signs:
  leak:
    {events: ["bmc.event/*LeakDetected*"], min: warning, leak: 0.0001, by: bmc,
     title: {en: leaking coolant, zh: 冷却液泄漏}}
shows:
  - {sign: leak, p: 0.9, m: 0.9, within: 5m, before: 60s}
`

func TestARecordOfTheSiteStandsBesideTheBuiltInOnes(t *testing.T) {
	m, err := Parse("leak.yaml", []byte(leak))
	if err != nil {
		t.Fatal(err)
	}
	builtin := Default()
	if len(m.Faults) != len(builtin.Faults)+1 || len(m.Signs) != len(builtin.Signs)+1 {
		t.Fatalf("%d faults and %d signs", len(m.Faults), len(m.Signs))
	}
	if i := m.Match("bmc.event", "Environmental.1.0.LeakDetectedCritical", schemas.SeverityCritical); i < 0 || m.Signs[i].Name != "leak" {
		t.Errorf("the sign is %d", i)
	}
	s := m.Sentence("sum.cooling.coolant_leak", map[string]any{"server": "s1"})
	if s.Text["en"] != "Coolant leaks in s1." || s.Text["zh"] != "s1 漏液。" {
		t.Errorf("in words: %v", s.Text)
	}
}

func TestAMistakeIsNamedWithFileLineAndKey(t *testing.T) {
	for _, c := range []struct{ old, text, want string }{
		{"kinds: [server]", "kinds: [sever]", `x.yaml:4: kinds: no kind of resource "sever"; did you mean "server"?`},
		{"kinds: [server]", "kinds: []", "x.yaml:4: kinds: which kinds"},
		{"kinds: [server]", "knds: [server]", `x.yaml:4: knds: unknown key; did you mean "kinds"?`},
		{"prior: -5", "prior: -5\nprior: -6", "x.yaml:6: prior: is there twice"},
		{"prior: -5", "prior: low", `x.yaml:5: prior: want a number, got "low"`},
		{"prior: -5", "prior: 500", "prior: 500 is no log-odds"},
		{"power_cycle", "power_cicle", `do.action: no action "power_cicle"; did you mean "power_cycle"?`},
		{"target: self", "target: rack", "do.target: want self or server"},
		{"bmc.event/", "bmc.evnt/", `x.yaml:9: signs.leak.events: no type of event "bmc.evnt"; did you mean "bmc.event"?`},
		{`"bmc.event/*LeakDetected*"`, "psu.input_lost", "psu.input_lost is the sign psu_input already"},
		{"leak: 0.0001", "leak: 2", "x.yaml:9: signs.leak.leak: 2 is no probability"},
		{"by: bmc", "by: phone", `signs.leak.by: no way "phone"`},
		{"min: warning", "min: bad", `no severity "bad"`},
		{"min: warning", "bounce: b", `no sign "b"`},
		{"{sign: leak,", "{sign: leek,", `x.yaml:12: shows[0].sign: no sign "leek"; did you mean "leak"?`},
		{"p: 0.9", "p: 0.9, each: rak", "x.yaml:12: shows[0].each: no kind of resource \"rak\"; did you mean \"rack\"?"},
		{"p: 0.9", "p: 1.5", "x.yaml:12: shows[0]: a probability is outside of [0,1]"},
		{"within: 5m", "within: soon", `x.yaml:12: shows[0].within: want a duration such as 30s, got "soon"`},
		{"within: 5m", "within: -5m", "x.yaml:12: shows[0]: a time is negative"},
		{"within: 5m", "at: \"left:gpu\"", `x.yaml:12: shows[0].at: no step "left:gpu"`},
		{"within: 5m", "at: \"up:rack in\"", `x.yaml:12: shows[0].at: no kind of resource "rack in"; did you mean "rack"?`},
		{"within: 5m", "at: \"up:rack not\"", `x.yaml:12: shows[0].at: no step "up:rack not"`},
		{"within: 5m", "at: \"down:psu not in shwitch\"", `x.yaml:12: shows[0].at: no kind of resource "shwitch"; did you mean "switch"?`},
		{"within: 5m", "later: true", "nothing points to the fault"},
		{"{server}.", "{sever}.", "x.yaml:3: summary: en: no fact {sever} here"},
		{"{en: Coolant leak, zh: 冷却液泄漏}", "{en: Coolant leak}", `title: no words for "zh"`},
		{"{en: Coolant leak,", "{de: Leck, en: Coolant leak,", `title: no language "de"`},
		{"prior: -5", "sentences: [{id: a, when: leak.parts >, en: x, zh: x}]", "x.yaml:5: sentences[0].when: the condition ends too early"},
		{"prior: -5", "sentences: [{id: a, of: leek, en: x, zh: x}]", `sentences[0].of: no sign "leek"`},
		{"prior: -5", "sentences: [nothing]", `x.yaml:5: sentences[0]: no shared sentence "nothing"`},
		{"prior: -5", "sentences: [{id: a, en: x, zh: x, whenn: y}]", `sentences[0].whenn: unknown key; did you mean "when"?`},
		{"prior: -5", "effects: [{effect: server_dwn}]", `effects[0].effect: no effect "server_dwn"; did you mean "server_down"?`},
		{"cooling.coolant_leak", "power.feed_loss", "x.yaml:1: fault: fault power.feed_loss is already in records/power.feed_loss.yaml"},
		{"prior: -5", "replaces: true", "there is no fault cooling.coolant_leak that it could replace"},
		{"fault: cooling.coolant_leak", "harmless: false", "x.yaml:1: fault: the record has no name"},
		{"prior: -5", "prior: [", "x.yaml:4: "},
		{"prior: -5", "declares: {events: [leak]}", `declares.events: "leak" is no type of event`},
	} {
		doc := strings.Replace(leak, c.old, c.text, 1)
		if doc == leak {
			t.Fatalf("nothing was changed at %q", c.old)
		}
		if _, err := Parse("x.yaml", []byte(doc)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v does not say %q", c.text, err, c.want)
		}
	}
	if _, err := Parse("x.yaml", []byte(strings.Replace(leak, "prior: -5", "prior: low\nheals: 7", 1))); err == nil ||
		!strings.Contains(err.Error(), "prior") || !strings.Contains(err.Error(), "heals") {
		t.Errorf("two mistakes are told as %v", err)
	}
}

func TestARecordReplacesABuiltInOneWhereItSaysSo(t *testing.T) {
	doc := strings.NewReplacer("fault: cooling.coolant_leak", "fault: gpu.overheating\nreplaces: true").Replace(leak)
	m, err := Parse("x.yaml", []byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	if m.Title("gpu.overheating")["en"] != "Coolant leak" || len(m.Faults) != len(Default().Faults) {
		t.Errorf("it is called %v", m.Title("gpu.overheating"))
	}
}

func TestASiteDeclaresItsOwnTypesAndKinds(t *testing.T) {
	doc := strings.NewReplacer(`"bmc.event/*LeakDetected*"`, "leak.detected", "kinds: [server]",
		"declares: {events: [leak.detected], kinds: [cdu]}\nkinds: [cdu]").Replace(leak)
	if m, err := Parse("x.yaml", []byte(doc)); err != nil || m.Match("leak.detected", "", schemas.SeverityError) < 0 {
		t.Errorf("error %v", err)
	}
}

func TestFoldersAreBounded(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "no file *.yaml") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there is no error")
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("# filler\n"), maxFile/8), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "larger than 256 KiB") {
		t.Errorf("a large file: %v", err)
	}
	if err := os.WriteFile(big, []byte(leak), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := Load(dir); err != nil || m.Records["cooling.coolant_leak"] == nil {
		t.Errorf("a folder with a record: %v", err)
	}
}

// TestTheReadmeHasEveryKeyAndFact holds the description of the form against the form.
func TestTheReadmeHasEveryKeyAndFact(t *testing.T) {
	doc, err := os.ReadFile("../records/README.md")
	if err != nil {
		t.Fatal(err)
	}
	incident, sign := Facts()
	names := append(keysOf(incident), keysOf(sign)...)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[fileRecord]()) {
		if key, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); key != "" {
			names = append(names, key)
		}
	}
	for _, n := range names {
		if !strings.Contains(string(doc), "`"+n+"`") {
			t.Errorf("README.md says nothing of %s", n)
		}
	}
}

// TestBuiltInRecordsAreNamedAfterTheirFiles holds "one record a fault".
func TestBuiltInRecordsAreNamedAfterTheirFiles(t *testing.T) {
	for _, s := range builtin() {
		want := "fault: " + strings.TrimSuffix(filepath.Base(s.name), ".yaml") + "\n"
		if n := strings.Count("\n"+string(s.doc), "\nfault: "); n != 1 || !strings.Contains("\n"+string(s.doc), "\n"+want) {
			t.Errorf("%s has %d records and not %q", s.name, n, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(leak))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if m, err := Parse("x.yaml", doc); err == nil {
			m.Match("x", "1", schemas.SeverityError)
		}
	})
}
