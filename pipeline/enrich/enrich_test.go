package enrich_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/cmdb"
	"auspex/pipeline/enrich"
	"auspex/schemas"
)

func inventory(t testing.TB) *cmdb.Inventory {
	t.Helper()
	i, problems := cmdb.FromTopology(schemas.Topology{Resources: []schemas.Resource{
		{ID: "dc1", Kind: "site"},
		{ID: "r1", Kind: "rack", Parent: "dc1"},
		{ID: "pdu-a", Kind: "pdu", Parent: "r1"},
		{ID: "s1", Kind: "server", Parent: "r1", Attrs: schemas.AttrsOf(map[string]string{"model": "DGX H100"})},
		{ID: "s1/gpu0", Kind: "gpu", Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:1b:00.0", "uuid": "GPU-aa"})},
		{ID: "s1/gpu1", Kind: "gpu", Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:3d:00.0", "uuid": "GPU-bb"})},
		{ID: "s1/psu1", Kind: "psu", Parent: "s1"},
		{ID: "s1/fan3", Kind: "fan", Parent: "s1"},
		{ID: "s1/nvswitch2", Kind: "nvswitch", Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:c1:00.0"})},
		{ID: "s1/bmc", Kind: "bmc", Parent: "s1"},
		{ID: "s1/disk0", Kind: "disk", Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{"aliases": "nvme0", "serial": "D0"})},
		{ID: "s1/disk1", Kind: "disk", Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{"aliases": "sda"})},
		{ID: "s2", Kind: "server", Parent: "r1"},
		{ID: "s2/gpu0", Kind: "gpu", Parent: "s2", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:1b:00.0", "uuid": "GPU-cc"})},
		{ID: "leaf", Kind: "switch", Parent: "r1"},
		{ID: "leaf/Ethernet1", Kind: "port", Parent: "leaf"},
		{ID: "leaf/psu1", Kind: "psu", Parent: "leaf"},
	}, Workloads: []schemas.Workload{{ID: "job-1", Resources: []string{"s1"}}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return i
}

func TestEventsFindTheirPart(t *testing.T) {
	e := enrich.New(inventory(t), prometheus.NewRegistry())
	attrs := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name string
		ev   schemas.Event
		want string
	}{
		{"by PCI address", schemas.Event{Resource: "s1", Type: "gpu.xid", Attrs: attrs("pci", "PCI:0000:3d:00")}, "s1/gpu1"},
		{"by a disk's partition", schemas.Event{Resource: "s1", Type: "host.fs_error", Attrs: attrs("disk", "sda2")}, "s1/disk1"},
		{"by an NVMe disk's partition", schemas.Event{Resource: "s1", Type: "host.fs_error", Attrs: attrs("disk", "nvme0n1p2")}, "s1/disk0"},
		{"by a disk that nobody knows", schemas.Event{Resource: "s1", Type: "host.fs_error", Attrs: attrs("disk", "sdb1")}, "s1"},
		{"by UUID", schemas.Event{Resource: "s1", Type: "gpu.xid", Attrs: attrs("uuid", "GPU-AA")}, "s1/gpu0"},
		{
			"a UUID of another server is not believed",
			schemas.Event{Resource: "s1", Type: "gpu.xid", Attrs: attrs("uuid", "GPU-cc", "gpu", "1")},
			"s1/gpu1",
		},
		{"by index", schemas.Event{Resource: "s1", Type: "gpu.missing", Attrs: attrs("gpu", "0")}, "s1/gpu0"},
		{"an unknown index stays at the server", schemas.Event{Resource: "s1", Type: "gpu.missing", Attrs: attrs("gpu", "5")}, "s1"},
		{"NVSwitch", schemas.Event{Resource: "s1", Type: "nvswitch.sxid", Attrs: attrs("pci", "0000:c1:00.0")}, "s1/nvswitch2"},
		{"supply by sensor", schemas.Event{Resource: "s1", Type: "psu.input_lost", Attrs: attrs("sensor", "PSU1 Input")}, "s1/psu1"},
		{"a fan inside a supply", schemas.Event{Resource: "s1", Type: "fan.failure", Attrs: attrs("sensor", "PSU1 Fan")}, "s1/psu1"},
		{"SEL by sensor", schemas.Event{Resource: "s1", Type: "bmc.sel", Attrs: attrs("sensor", "FAN_3")}, "s1/fan3"},
		{"temperature of a GPU", schemas.Event{Resource: "s1", Type: "temp.high", Attrs: attrs("sensor", "GPU1 Temp")}, "s1/gpu1"},
		{"inlet is the server's", schemas.Event{Resource: "s1", Type: "temp.inlet_high", Attrs: attrs("sensor", "Inlet Temp")}, "s1"},
		{"port", schemas.Event{Resource: "leaf", Type: "port.down", Attrs: attrs("port", "Ethernet1")}, "leaf/Ethernet1"},
		{"supply of a switch", schemas.Event{Resource: "leaf", Type: "switch.psu", Attrs: attrs("part", "PSU1")}, "leaf/psu1"},
		{"PCIe error of a GPU", schemas.Event{Resource: "s1", Type: "host.pcie_aer", Attrs: attrs("pci", "0000:1b:00.0")}, "s1/gpu0"},
		{"host", schemas.Event{Resource: "s1.example.com", Type: "host.oom"}, "s1"},
		{"BMC", schemas.Event{Resource: "s1", Type: "bmc.unreachable"}, "s1/bmc"},
		{"a BMC that is not in the inventory", schemas.Event{Resource: "s2", Type: "bmc.unreachable"}, "s2"},
		{"a part that is named already", schemas.Event{Resource: "s1/gpu1", Type: "gpu.xid", Attrs: attrs("pci", "0000:1b:00.0")}, "s1/gpu1"},
		{"workload", schemas.Event{Resource: "job-1", Type: "workload.failed"}, "job-1"},
		{"symptom of a workload", schemas.Event{Resource: "s1", Type: "workload.comm_timeout"}, "s1"},
		{"unknown device", schemas.Event{Resource: "who", Type: "gpu.xid", Attrs: attrs("gpu", "0")}, "who"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := e.Event(&c.ev); got.Resource != c.want {
				t.Errorf("got %+v, want %s", got, c.want)
			}
		})
	}
	if d := cmp.Diff(cmdb.Placement{Resource: "s1/gpu0", Kind: "gpu", Server: "s1", Rack: "r1", Site: "dc1", Model: "DGX H100"},
		e.Event(&schemas.Event{Resource: "s1", Type: "gpu.xid", Attrs: attrs("gpu", "0")})); d != "" {
		t.Error(d)
	}
	if got := e.Event(&schemas.Event{Resource: "job-1", Type: "workload.failed"}); got.Kind != cmdb.KindWorkload || got.Site != "dc1" {
		t.Errorf("workload: %+v", got)
	}
}

func TestSeriesFindTheirPartUntilTheInventoryChanges(t *testing.T) {
	inv := inventory(t)
	e := enrich.New(inv, nil)
	for _, c := range []struct{ device, kind, part, want string }{
		{"s1", "", "", "s1"},
		{"s1", "fan", "fan3", "s1/fan3"},
		{"s1", "fan", "FAN3", "s1/fan3"},
		{"s1", "sensor", "PSU1 Input", "s1/psu1"},
		{"s1", "fan", "fan9", "s1"},
		{"leaf", "port", "Ethernet1", "leaf/Ethernet1"},
		{"leaf", "port", "Ethernet7", "leaf/Ethernet7"},
		{"s1", "gpu", "6", "s1/gpu6"},
		{"s1", "gpu", "0000:1b:00.0", "s1/gpu0"},
		{"s1", "gpu", "GPU-cc", "s1"},
		{"who", "fan", "1", "who"},
	} {
		for range 2 {
			if got := e.Part(c.device, c.kind, c.part); got.Resource != c.want {
				t.Errorf("Part(%s, %s, %s) = %+v, want %s", c.device, c.kind, c.part, got, c.want)
			}
		}
	}
	if got := e.GPU("s1", 0, "", "0000:3D:00.0"); got.Resource != "s1/gpu1" {
		t.Errorf("PCI address does not go before the index: %+v", got)
	}
	if got := e.GPU("s1", 7, "", ""); got.Resource != "s1/gpu7" || got.Kind != "gpu" || got.Rack != "r1" {
		t.Errorf("unknown GPU: %+v", got)
	}
	before := e.Generation()
	topo := inv.Snapshot().Topology()
	topo.Resources = append(topo.Resources, schemas.Resource{ID: "s1/fan9", Kind: "fan", Parent: "s1"})
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: topo}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := e.Part("s1", "fan", "fan9"); got.Resource != "s1/fan9" || e.Generation() == before {
		t.Errorf("a new part is not found: %+v", got)
	}
}

func TestNormalizeBringsEventsIntoForm(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := enrich.New(inventory(t), nil)
	for _, c := range []struct{ in, want schemas.Event }{
		{
			schemas.Event{ID: "x", Time: now, Observed: now, Type: " GPU.XID ", Severity: "Fatal", State: "Asserted"},
			schemas.Event{ID: "x", Time: now, Observed: now, Type: "gpu.xid", Severity: "critical", State: "raised"},
		},
		{
			schemas.Event{ID: "x", Type: "a.b", Severity: "WARNING", State: "odd"},
			schemas.Event{ID: "x", Time: now, Observed: now, Type: "a.b", Severity: "warning"},
		},
		{
			schemas.Event{ID: "x", Time: now, Observed: now, Type: "a.b", Severity: "purple"},
			schemas.Event{ID: "x", Time: now, Observed: now, Type: "a.b", Severity: "error"},
		},
	} {
		e.Normalize(&c.in, now)
		if d := cmp.Diff(c.want, c.in); d != "" {
			t.Error(d)
		}
	}
	a := schemas.Event{Time: now, Observed: now, Type: "a.b", Severity: "info", Message: "m"}
	b := a
	e.Normalize(&a, now)
	e.Normalize(&b, now)
	if a.ID == "" || a.ID != b.ID {
		t.Errorf("ids of equal events: %q, %q", a.ID, b.ID)
	}
}

func TestSkewIsEstimatedAndBothTimesKept(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	e := enrich.New(inventory(t), nil)
	event := func(off, delay time.Duration) schemas.Event {
		now = now.Add(time.Second)
		return schemas.Event{Time: now.Add(off - delay), Observed: now, Source: "ipmi"}
	}
	for range 3 {
		late := event(0, 10*time.Minute)
		if got := e.Skew("s1", &late); got != 0 || late.Attrs != nil {
			t.Errorf("records that were read late speak against the clock: %s", got)
		}
	}
	live := event(0, 100*time.Millisecond)
	if got := e.Skew("s1", &live); got.Abs() > time.Second {
		t.Errorf("a good clock is off by %s", got)
	}
	ahead := event(20*time.Second, 0)
	when := ahead.Time
	if got := e.Skew("s2", &ahead); got != 20*time.Second || ahead.Attrs[schemas.AttrClockSkew] != "20" || !ahead.Time.Equal(when) {
		t.Errorf("a clock 20 s ahead: %s, %+v", got, ahead)
	}
	epoch := schemas.Event{Time: time.Unix(100, 0), Observed: now, Source: "ipmi"}
	if got := e.Skew("s3", &epoch); got > -24*time.Hour || epoch.Attrs[schemas.AttrClockSkew] == "" {
		t.Errorf("a clock in 1970: %s", got)
	}
}

func BenchmarkPart(b *testing.B) {
	e := enrich.New(inventory(b), nil)
	b.ReportAllocs()
	for b.Loop() {
		if e.Part("s1", "fan", "fan3").Resource == "" {
			b.Fatal("not placed")
		}
	}
}

func BenchmarkGPU(b *testing.B) {
	e := enrich.New(inventory(b), nil)
	b.ReportAllocs()
	for b.Loop() {
		if e.GPU("s1", 1, "GPU-bb", "0000:3d:00.0").Resource == "" {
			b.Fatal("not placed")
		}
	}
}
