package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/schemas"
)

func topology() schemas.Topology {
	t := schemas.Topology{Resources: []schemas.Resource{
		{ID: "dc1", Kind: schemas.KindSite},
		{ID: "row1", Kind: schemas.KindRow, Parent: "dc1"},
		{ID: "r1", Kind: schemas.KindRack, Parent: "row1"},
		{ID: "leaf", Kind: schemas.KindSwitch, Parent: "r1"},
		{ID: "leaf/Ethernet1", Kind: schemas.KindPort, Parent: "leaf"},
		{ID: "pdu-b", Kind: schemas.KindPDU, Parent: "r1", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrFeed: "B"})},
		{ID: "pdu-a", Kind: schemas.KindPDU, Parent: "r1"},
		{ID: "loose", Kind: schemas.KindServer},
	}}
	for _, s := range []string{"s1", "s2"} {
		t.Resources = append(
			t.Resources, schemas.Resource{ID: s, Kind: schemas.KindServer, Parent: "r1", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrSerial: "SN-" + s})},
		)
		for g := range 11 {
			t.Resources = append(t.Resources, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", s, 10-g), Kind: schemas.KindGPU, Parent: s})
		}
		t.Resources = append(t.Resources, schemas.Resource{ID: s + "/fan1", Kind: schemas.KindFan, Parent: s})
	}
	return t
}

func incident(severity schemas.Severity, root, fault string, affected ...string) schemas.Incident {
	return schemas.Incident{ID: "i", Severity: severity, RootCause: schemas.Cause{Resource: root, Fault: fault}, Affected: affected}
}

func index(t testing.TB, top schemas.Topology) *fleet.Index {
	t.Helper()
	inv, problems := cmdb.FromTopology(top)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return fleet.NewIndex(inv.Snapshot())
}

func TestStates(t *testing.T) {
	x := index(t, topology())
	action := func(kind, state, mode string) schemas.Action {
		return schemas.Action{Server: "s1", Kind: kind, State: state, Mode: mode, Incident: "i"}
	}
	for _, tc := range []struct {
		name  string
		facts fleet.Facts
		state fleet.State
		gpus  string
	}{
		{"nothing", fleet.Facts{}, fleet.OK, "00000000000"},
		{
			"one GPU is the cause",
			fleet.Facts{Incidents: []schemas.Incident{incident("critical", "s1/gpu2", "gpu.fallen_off_bus", "s1")}},
			fleet.Critical, "00200000000",
		},
		{
			"it hangs on the cause",
			fleet.Facts{Incidents: []schemas.Incident{incident("critical", "pdu-a", "power.feed_loss", "s1", "s2")}},
			fleet.Affected, "33333333333",
		},
		{
			"single GPUs are hit",
			fleet.Facts{Incidents: []schemas.Incident{incident("critical", "pdu-a", "power.feed_loss", "s1", "s1/gpu10")}},
			fleet.Affected, "00000000003",
		},
		{
			"a mild cause",
			fleet.Facts{Incidents: []schemas.Incident{incident("warning", "s1/fan1", "cooling.fan_failure")}},
			fleet.Warning,
			"00000000000",
		},
		{
			"a job is to blame",
			fleet.Facts{Incidents: []schemas.Incident{incident("error", "job-1", "workload.error", "s1")}},
			fleet.OK,
			"00000000000",
		},
		{
			"a part fails next",
			fleet.Facts{Predictions: []schemas.Prediction{{Resource: "s1/fan1", Probability: 0.7}}},
			fleet.Predicted,
			"00000000000",
		},
		{"no contact", fleet.Facts{Silent: map[string]string{"s1": "host"}}, fleet.Unknown, "77777777777"},
		{"no contact with its BMC", fleet.Facts{Silent: map[string]string{"s1": "bmc"}}, fleet.Warning, "00000000000"},
		{
			"in repair",
			fleet.Facts{
				Incidents: []schemas.Incident{incident("critical", "s1/gpu2", "gpu.gsp_hang")},
				Actions:   []schemas.Action{action("reboot", schemas.ActionRunning, schemas.ModeEnforce)},
			},
			fleet.Acting, "55555555555",
		},
		{
			"a repair is only planned",
			fleet.Facts{Actions: []schemas.Action{action("reboot", schemas.ActionRunning, schemas.ModeDryRun)}},
			fleet.OK, "00000000000",
		},
		{
			"taken out",
			fleet.Facts{Actions: []schemas.Action{action("quarantine", schemas.ActionDone, schemas.ModeEnforce)}},
			fleet.Out,
			"66666666666",
		},
		{
			"taken in again",
			fleet.Facts{Actions: []schemas.Action{
				action("resume", schemas.ActionDone, schemas.ModeEnforce), action("quarantine", schemas.ActionDone, schemas.ModeEnforce),
			}},
			fleet.OK, "00000000000",
		},
	} {
		s := x.States(tc.facts)
		states, gpus := s.Servers(x)
		at := slices.IndexFunc(x.Servers, func(s fleet.Server) bool { return s.ID == "s1" })
		if states[at] != tc.state || gpus[at] != tc.gpus {
			t.Errorf("%s: %d %s, want %d %s", tc.name, states[at], gpus[at], tc.state, tc.gpus)
		}
		if one, digits := s.Server(x, x.Servers[at]); one != states[at] || digits != gpus[at] {
			t.Errorf("%s: one server alone is %d %s", tc.name, one, digits)
		}
	}
	port := x.States(fleet.Facts{Incidents: []schemas.Incident{incident("error", "leaf/Ethernet1", "network.link_failure")}})
	if st := port.Device(x, "leaf"); st != fleet.Critical {
		t.Errorf("the switch of a failed port: %d", st)
	}
}

func TestIndexKnowsWhereThingsAre(t *testing.T) {
	x := index(t, topology())
	if len(x.Racks) != 2 || x.Racks[0].Row != "row1" || x.Racks[0].Site != "dc1" || x.Racks[0].Leaf != "leaf" ||
		x.Racks[0].Feeds != [2]string{"pdu-a", "pdu-b"} {
		t.Errorf("racks: %+v", x.Racks)
	}
	if d := cmp.Diff(
		[]string{"s1/gpu0", "s1/gpu1", "s1/gpu2", "s1/gpu3", "s1/gpu4", "s1/gpu5", "s1/gpu6", "s1/gpu7", "s1/gpu8", "s1/gpu9", "s1/gpu10"},
		x.Parts("s1", schemas.KindGPU),
	); d != "" {
		t.Error(d)
	}
	for id, want := range map[string]string{
		"s1": "s1", "s1/gpu3": "s1", "leaf/Ethernet1": "leaf", "s1/unlisted": "s1", "r1": "", "nothing": "",
	} {
		if got := x.Device(id); got != want {
			t.Errorf("device of %s: %q", id, got)
		}
	}
}

func TestNewestJobRunsOnAServer(t *testing.T) {
	now := time.Unix(1e9, 0)
	top := topology()
	top.Workloads = []schemas.Workload{
		{ID: "over", Resources: []string{"s1"}, Start: now.Add(-time.Hour), End: now.Add(-time.Minute)},
		{ID: "old", Resources: []string{"s1/gpu0", "s2"}, Start: now.Add(-time.Hour)},
		{ID: "new", Resources: []string{"s1/gpu1"}, Start: now.Add(-time.Minute), Attrs: map[string]string{"owner": "ada"}},
		{ID: "later", Resources: []string{"s1"}, Start: now.Add(time.Minute)},
	}
	running := index(t, top).Running(now)
	if running["s1"].ID != "new" || running["s2"].ID != "old" || len(running) != 2 || fleet.Tenant(running["s1"]) != "ada" {
		t.Errorf("%+v", running)
	}
}

func TestBinsForgetWhatIsOld(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	b := fleet.NewBins(10*time.Second, time.Minute)
	b.Add(now, now)
	b.Add(now.Add(-30*time.Second), now)
	b.Add(now.Add(-2*time.Minute), now) // too old
	b.Add(now.Add(time.Hour), now)      // not yet
	start, counts := b.Counts(now)
	if d := cmp.Diff([]int{0, 0, 1, 0, 0, 1}, counts); d != "" || !start.Equal(now.Add(-50*time.Second)) {
		t.Errorf("from %s: %s", start, d)
	}
	if _, counts := b.Counts(now.Add(40 * time.Second)); counts[1] != 1 || counts[5] != 0 {
		t.Errorf("40 s later: %v", counts)
	}
	if _, counts := b.Counts(now.Add(24 * time.Hour)); slices.Max(counts) != 0 {
		t.Errorf("a day later: %v", counts)
	}
}

func BenchmarkStates(b *testing.B) {
	t := schemas.Topology{}
	for s := range 12_500 {
		id := fmt.Sprintf("s%d", s)
		t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: schemas.KindServer})
		for g := range 8 {
			t.Resources = append(t.Resources, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", id, g), Kind: schemas.KindGPU, Parent: id})
		}
	}
	x := index(b, t)
	facts := fleet.Facts{Incidents: []schemas.Incident{incident("critical", "s7/gpu1", "gpu.gsp_hang", strings.Fields("s7 s8 s9")...)}}
	for b.Loop() {
		x.States(facts).Servers(x)
	}
}
