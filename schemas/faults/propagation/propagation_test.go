package propagation

import (
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
	"host.crash": "server", "service.fabric_manager": "server", "bmc.failure": "bmc server", "workload.error": "workload",
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

func TestParseNamesWhatIsWrong(t *testing.T) {
	const sign = "signs:\n  a: {events: [x], leak: 0.1}\n"
	cases := map[string]string{
		"signs:\n  a: {events: [x], leak: 2}":              "line 2: sign a: leak",
		"signs:\n  a: {evnts: [x], leak: 0.1}":             "evnts",
		"signs:\n  a: {events: [x], leak: 0.1, bounce: b}": `no sign "b"`,
		"signs:\n  a: {events: [x], leak: 0.1, min: bad}":  `no severity "bad"`,
		"signs: []": "mapping",
		sign + "faults:\n  f: {kinds: [gpu], shows: [{sign: b}]}":                                 `line 4: fault f: no sign "b"`,
		sign + "faults:\n  f: {shows: [{sign: a}]}":                                               "no kinds",
		sign + "faults:\n  f: {kinds: [gpu], shows: [{sign: a, at: \"left:gpu\"}]}":               `no step "left:gpu"`,
		sign + "faults:\n  f: {kinds: [gpu], shows: [{sign: a, p: 1.5}]}":                         "outside of [0,1]",
		sign + "faults:\n  f: {kinds: [gpu], effects: [{effect: e}]}":                             `no effect "e"`,
		sign + "faults:\n  f: {kinds: [gpu], shows: [{sign: a, within: soon}]}":                   "soon",
		sign + "effects:\n  e: [{sign: c}]\nfaults:\n  f: {kinds: [gpu], effects: [{effect: e}]}": `no sign "c"`,
	}
	for doc, want := range cases {
		if _, err := Parse([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v does not say %q", doc, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("signs:\n  a: {events: [x/1*], leak: 0.1}\nfaults:\n  f: {kinds: [gpu], shows: [{sign: a, at: \"up:server > down:gpu\"}]}"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if m, err := Parse(doc); err == nil {
			m.Match("x", "1", schemas.SeverityError)
		}
	})
}
