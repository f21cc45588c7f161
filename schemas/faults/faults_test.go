package faults

import (
	"encoding/csv"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

func TestCatalogueIsComplete(t *testing.T) {
	if XIDs() != 172 || SXIDs() != 421 || len(load().nvlink) != 95 {
		t.Fatalf("catalogue holds %d XIDs, %d SXids, %d rules", XIDs(), SXIDs(), len(load().nvlink))
	}
	for code, e := range load().xid {
		if e.Action == "" || e.Meaning == "" {
			t.Errorf("XID %d has no action or meaning", code)
		}
	}
}

func TestXIDCarriesTheVendorsAction(t *testing.T) {
	for _, tc := range []struct {
		code     int
		action   string
		severity schemas.Severity
	}{
		{79, "RESTART_BM", schemas.SeverityCritical},
		{13, "RESTART_APP", schemas.SeverityWarning},
		{45, "WORKFLOW_XID_45", schemas.SeverityWarning},
		{48, "WORKFLOW_XID_48", schemas.SeverityCritical},
		{63, "IGNORE", schemas.SeverityWarning},
		{94, "RESTART_APP", schemas.SeverityError},
		{95, "RESET_GPU", schemas.SeverityCritical},
		{119, "RESET_GPU", schemas.SeverityCritical},
		{999, "CONTACT_SUPPORT", schemas.SeverityError},
	} {
		e := XID(tc.code)
		if e.Action != tc.action || e.Severity != tc.severity {
			t.Errorf("XID %d: %s %s, want %s %s", tc.code, e.Action, e.Severity, tc.action, tc.severity)
		}
	}
}

func TestRecoveryActionComesFromTheMessage(t *testing.T) {
	for msg, want := range map[string][2]string{
		"GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)":   {"RESET_GPU", "GPU Reset Required"},
		"GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)": {"RESTART_BM", "Node Reboot Required"},
		"GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)":            {"RESTART_BM", "OS Reboot"},
		"GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)":      {"RESET_GPU", "Drain and Reset"},
		"GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)":            {"DRAIN_P2P", "Drain P2P"},
		"GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)":   {"IGNORE", "None"},
		"GPU recovery action changed from 0x0 to 0x2":                               {"RESTART_BM", ""},
		"GPU recovery action changed from 0x0 (None) to 0x9 (Something New)":        {"CONTACT_SUPPORT", "Something New"},
		"nothing": {"", ""},
	} {
		action, verdict, _ := RecoveryAction(msg)
		if d := cmp.Diff(want, [2]string{action, verdict}); d != "" {
			t.Errorf("%s: %s", msg, d)
		}
	}
}

func TestNVLinkRulesDecodeBothLayouts(t *testing.T) {
	for _, tc := range []struct {
		name         string
		xid          int
		unit         string
		intr, status uint32
		action       string
		ok           bool
	}{
		{"remap, old layout", 145, "RLW_REMAP", 0x00000082, 0x40, "RESET_GPU", true},
		{"remap, new layout", 145, "RLW_REMAP", 0x00000004, 0x40, "RESET_GPU", true},
		{"link event of the peer", 149, "NETIR_LINK_EVT", 0x025001c6, 0, "RESET_GPU", true},
		{"bit errors", 149, "NETIR_BER_EVENT", 0x00082226, 1, "IGNORE", true},
		{"receive pipe, fatal by the second pattern", 145, "RLW_RXPIPE", 0x00000086, 1, "RESET_GPU", true},
		{"a whole status goes before its bits", 149, "NETIR_MFDE_EVENT", 0x00000014, 3, "IGNORE", true},
		{"a unit of two words", 150, "MSE", 0, 0, "RESET_GPU", true},
		{"no such unit", 145, "NOPE", 0, 0, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, ok := NVLink(tc.xid, tc.unit, tc.intr, tc.status)
			if ok != tc.ok || r.Action != tc.action {
				t.Fatalf("got %+v %v, want %s", r, ok, tc.action)
			}
		})
	}
}

func TestSELMeaning(t *testing.T) {
	for _, tc := range []struct {
		sensor, event, offset byte
		typ                   string
		severity              schemas.Severity
	}{
		{0x08, 0x6f, 3, "psu.input_lost", schemas.SeverityError},
		{0x08, 0x6f, 1, "psu.failure", schemas.SeverityError},
		{0x04, 0x01, 0, "fan.slow", schemas.SeverityWarning},
		{0x04, 0x01, 2, "fan.failure", schemas.SeverityError},
		{0x01, 0x01, 9, "temp.high", schemas.SeverityCritical},
		{0x01, 0x01, 8, "bmc.sel", schemas.SeverityInfo},
		{0x0c, 0x6f, 1, "dimm.ecc_ue", schemas.SeverityCritical},
		{0xc0, 0x6f, 1, "bmc.sel", schemas.SeverityWarning},
	} {
		e := SEL(tc.sensor, tc.event, tc.offset)
		if e.EventType != tc.typ || e.Severity != tc.severity {
			t.Errorf("%02x/%02x/%x: %s %s, want %s %s", tc.sensor, tc.event, tc.offset, e.EventType, e.Severity, tc.typ, tc.severity)
		}
	}
}

func TestRedfishMessageIgnoresTheRegistry(t *testing.T) {
	for _, id := range []string{"PowerSupply.1.0.InputLost", "InputLost", "PSU0003", "IDRAC.2.7.PSU0003"} {
		if e := RedfishMessage(id); e.EventType != "psu.input_lost" || e.State != schemas.StateRaised {
			t.Errorf("%s: %+v", id, e)
		}
	}
	for id, want := range map[string]string{ // as the registry of iDRAC says
		"IDRAC.2.7.TMP0110": "temp.high", "IDRAC.2.7.TMP0119": "bmc.event", "IDRAC.2.7.TMP0121": "temp.inlet_high", "IDRAC.2.8.MEM0004": "dimm.ecc_ue",
		"MEM0701": "dimm.ecc_ce", "PSU0001": "psu.failure", "PSU0019": "psu.input_lost", "FAN0002": "bmc.event", "FAN0005": "fan.failure", "CPU0011": "host.mce",
		"PCI1318": "host.pcie_aer", "VLT0204": "voltage.out_of_range", "PDR1002": "disk.predicted_failure", "OpenBMC.0.4.MemoryECCUncorrectable": "dimm.ecc_ue",
		"NetworkDevice.1.0.ConnectionDropped": "nic.down", "Environmental.1.1.LeakDetectedCritical": "bmc.event",
	} {
		if e := RedfishMessage(id); !e.Known || e.EventType != want {
			t.Errorf("%s: %+v, want %s", id, e, want)
		}
	}
	if e := RedfishMessage("IDRAC.2.7.USR0030"); e.Known || e.EventType != "bmc.event" {
		t.Errorf("unknown id: %+v", e)
	}
}

// TestCataloguesNameKnownEvents: a type that the contract does not know would be
// read by nobody.
func TestCataloguesNameKnownEvents(t *testing.T) {
	known := schemas.EventTypes()
	for name, column := range map[string]int{"data/sel.csv": 5, "data/redfish.csv": 1} {
		f, err := files.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if rows[0][column] != "event" {
			t.Fatalf("%s: column %q", name, rows[0][column])
		}
		for i, r := range rows[1:] {
			if typ := r[column]; typ != "" && !slices.Contains(known, typ) {
				t.Errorf("%s:%d: the contract has no type %q", name, i+2, typ)
			}
		}
	}
}
