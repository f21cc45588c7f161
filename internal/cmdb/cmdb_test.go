package cmdb_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"auspex/internal/cmdb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }

func fleet() schemas.Topology {
	attr := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	return schemas.Topology{
		Version: 1,
		Resources: []schemas.Resource{
			{ID: "dc1", Kind: "site"},
			{ID: "crac-1", Kind: "crac"},
			{ID: "r01", Kind: "rack", Parent: "dc1"},
			{ID: "pdu-a", Kind: "pdu", Parent: "r01"},
			{ID: "s1", Kind: "server", Parent: "r01", Attrs: schemas.AttrsOf(attr("serial", "S123", "model", "DGX H100"))},
			{ID: "s1/gpu0", Kind: "gpu", Parent: "s1", Attrs: schemas.AttrsOf(attr("pci", "0000:1b:00.0", "uuid", "GPU-Aa", "aliases", "GPU_SXM_1"))},
			{ID: "s1/gpu1", Kind: "gpu", Parent: "s1", Attrs: schemas.AttrsOf(attr("pci", "00000000:3D:00.0", "model", "H200", "aliases", "GPU_SXM_2"))},
			{ID: "s1/psu0", Kind: "psu", Parent: "s1"},
			{ID: "s1/psu1", Kind: "psu", Parent: "s1"},
			{ID: "s1/fan3", Kind: "fan", Parent: "s1"},
			{ID: "s1/nvswitch0", Kind: "nvswitch", Parent: "s1"},
			{ID: "s1/dimm4", Kind: "dimm", Parent: "s1"},
			{ID: "s1/cpu1", Kind: "cpu", Parent: "s1"},
			{ID: "s1/bmc", Kind: "bmc", Parent: "s1"},
			{ID: "s1/nic0", Kind: "nic", Parent: "s1", Attrs: schemas.AttrsOf(attr("mac", "AA:bb:cc:00:11:22"))},
			{ID: "s2", Kind: "server", Parent: "r01"},
			{ID: "s2/gpu0", Kind: "gpu", Parent: "s2", Attrs: schemas.AttrsOf(attr("pci", "0000:1b:00.0"))},
			{ID: "leaf", Kind: "switch", Parent: "r01"},
			{ID: "leaf/Ethernet1", Kind: "port", Parent: "leaf"},
			{ID: "leaf/Ethernet11", Kind: "port", Parent: "leaf"},
			{ID: "leaf/Ethernet1/1", Kind: "port", Parent: "leaf"},
			{ID: "leaf/psu1", Kind: "psu", Parent: "leaf"},
		},
		Links: []schemas.Link{
			{From: "pdu-a", To: "s1/psu0", Kind: "powers"},
			{From: "crac-1", To: "r01", Kind: "cools"},
			{From: "leaf/Ethernet1", To: "s1/nic0", Kind: "network"},
		},
		Workloads: []schemas.Workload{
			{ID: "job-1", Resources: []string{"s1/gpu0"}, Start: at(1), End: at(3)},
			{ID: "job-2", Resources: []string{"s1", "s2"}, Start: at(2)},
		},
	}
}

func snapshot(t testing.TB) *cmdb.Snapshot {
	t.Helper()
	i, problems := cmdb.FromTopology(fleet())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return i.Snapshot()
}

func TestBadRecordsAreReportedAndLeftOut(t *testing.T) {
	in := `{"version": 1, "resources": [
  {"id": "dc1", "kind": "site"},
  {"id": "", "kind": "site"},
  {"id": "dc1", "kind": "rack"},
  {"id": "x"},
  {"id": 7, "kind": "rack"},
  {"id": "a", "kind": "server", "parent": "nowhere"},
  {"id": "a/gpu0", "kind": "gpu", "parent": "a"},
  {"id": "b", "kind": "server", "parent": "c"},
  {"id": "c", "kind": "rack", "parent": "b"},
  {"id": "s1", "kind": "server", "parent": "dc1", "unknown": true}],
 "links": [{"from": "dc1", "to": "s1", "kind": "powers"}, {"from": "dc1", "to": "s1", "kind": "powers"},
  {"from": "gone", "to": "s1", "kind": "powers"}, {"from": "s1", "to": "a", "kind": "powers"},
  {"from": "s1", "to": "dc1", "kind": "love"}, {"from": "s1", "to": "s1", "kind": "pcie"}],
 "workloads": [{"id": "j", "resources": ["s1", "gone"]}, {"id": ""}, {"id": "j"},
  {"id": "k", "start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}]}`
	got, problems, err := cmdb.Read([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	want := schemas.Topology{
		Version:   1,
		Resources: []schemas.Resource{{ID: "dc1", Kind: "site"}, {ID: "s1", Kind: "server", Parent: "dc1"}},
		Links:     []schemas.Link{{From: "dc1", To: "s1", Kind: "powers"}},
		Workloads: []schemas.Workload{{ID: "j", Resources: []string{"s1"}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	var text strings.Builder
	for _, p := range problems {
		text.WriteString(p.String() + "\n")
	}
	for _, s := range []string{
		"line 6: resources[4]: id: want string, got number", `resources[1]: id is missing`, `resource "dc1": duplicate id`,
		`line 5: resource "x": kind is missing`,
		`line 7: resource "a": parent "nowhere" does not exist`, `resource "a/gpu0": parent "a" is a bad record`, `its parents form a loop`,
		`from "gone"`, `resource "a" does not exist`, `line 14: links[4] love from "s1" to "dc1": unknown kind "love"`,
		"links a resource to itself", "duplicate link",
		`workload "j": resource "gone" does not exist`, "workloads[1]: id is missing", `workload "j": duplicate id`,
		"ends before it starts",
	} {
		if !strings.Contains(text.String(), s) {
			t.Errorf("no problem says %q in\n%s", s, text.String())
		}
	}
	if err := cmdb.Err(problems); !errors.Is(err, cmdb.ErrProblems) || !strings.Contains(err.Error(), "more") {
		t.Errorf("as an error: %v", err)
	}
}

func TestUnreadableFilesNameTheLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                           "1: the file is empty",
		"{\n\"version\": 1,\n oops}": "3: ",
		`{"version": 9}`:             "version 9",
		`{"resources": 3}`:           "1: resources is not an array",
	} {
		if _, _, err := cmdb.Read([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
	if _, _, err := cmdb.ReadFile(filepath.Join(t.TempDir(), "none.json"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestReadsGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write([]byte(`{"version":1,"resources":[{"id":"dc1","kind":"site"}]}`))
	_ = z.Close()
	got, _, err := cmdb.ReadFile("-", &b)
	if err != nil || len(got.Resources) != 1 {
		t.Fatal(got, err)
	}
}

func TestPlaces(t *testing.T) {
	s := snapshot(t)
	type place struct{ Server, Rack, Site, Model string }
	for id, want := range map[string]place{
		"s1/gpu0":        {"s1", "r01", "dc1", "DGX H100"},
		"s1/gpu1":        {"s1", "r01", "dc1", "H200"},
		"s1":             {"s1", "r01", "dc1", "DGX H100"},
		"leaf/Ethernet1": {"leaf", "r01", "dc1", ""},
		"pdu-a":          {"", "r01", "dc1", ""},
		"crac-1":         {"", "", "dc1", ""},
		"nothing":        {},
	} {
		if d := cmp.Diff(want, place{s.Server(id), s.Rack(id), s.Site(id), s.Model(id)}); d != "" {
			t.Errorf("%s: %s", id, d)
		}
	}
}

func TestResolvesWhatDevicesSay(t *testing.T) {
	s := snapshot(t)
	for _, c := range []struct{ device, kind, name, want string }{
		{"s1", "gpu", "0", "s1/gpu0"},
		{"s1", "gpu", "7", ""},
		{"s1", "", "0", ""},
		{"s1", "", "gpu1", "s1/gpu1"},
		{"s1", "", "s1/gpu1", "s1/gpu1"},
		{"s1", "psu", "gpu1", ""},
		{"s1", "", "PSU1 Input", "s1/psu1"},
		{"s1", "", "PS1 Status", "s1/psu1"},
		{"s1", "", "Power Supply 0", "s1/psu0"},
		{"s1", "", "Temp_PSU0", "s1/psu0"},
		{"s1", "", "FAN_3", "s1/fan3"},
		{"s1", "", "Fan3 Tach", "s1/fan3"},
		{"s1", "", "FAN_9", ""},
		{"s1", "", "GPU1 Temp", "s1/gpu1"},
		{"s1", "", "GPU1 Memory Temp", "s1/gpu1"},
		{"s1", "", "GPU_SXM_1", "s1/gpu0"},
		{"s1", "", "NVSwitch 0 Temp", "s1/nvswitch0"},
		{"s1", "", "CPU1_DIMM_4", "s1/dimm4"},
		{"s1", "", "CPU1 DIMM A3", ""},
		{"s1", "", "CPU1 Temp", "s1/cpu1"},
		{"s1", "", "Inlet Temp", ""},
		{"s1", "", "Psychrometer 1", ""},
		{"s1", "bmc", "BMC", "s1/bmc"},
		{"leaf", "port", "Ethernet1", "leaf/Ethernet1"},
		{"leaf", "port", "ethernet11", "leaf/Ethernet11"},
		{"leaf", "port", "Ethernet1/1", "leaf/Ethernet1/1"},
		{"leaf", "psu", "PSU1", "leaf/psu1"},
		{"nothing", "gpu", "0", ""},
	} {
		got, ok := s.Resolve(c.device, c.kind, c.name)
		if got != c.want && (ok || c.want != "") || ok != (c.want != "") {
			t.Errorf("Resolve(%q, %q, %q) = %q, %v; want %q", c.device, c.kind, c.name, got, ok, c.want)
		}
	}
}

// On a server of several processors the number of a module counts anew on each: a guess
// would blame the module of another one.
func TestAModuleOfAProcessorIsNotAnyModuleOfTheServer(t *testing.T) {
	resources := []schemas.Resource{{ID: "s1", Kind: schemas.KindServer}}
	for _, part := range []string{"cpu1", "cpu2", "dimm1", "dimm2", "proc2dimm2"} {
		kind := strings.TrimRight(part, "0123456789")
		if strings.HasPrefix(part, "proc") {
			kind = schemas.KindDIMM
		}
		resources = append(resources, schemas.Resource{ID: "s1/" + part, Kind: kind, Parent: "s1"})
	}
	i, problems := cmdb.FromTopology(schemas.Topology{Version: 1, Resources: resources})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	s := i.Snapshot()
	for name, want := range map[string]string{
		"DIMM 1": "s1/dimm1", "proc1dimm1": "", "PROC 1 DIMM 1": "", "P2-DIMM-1 Temp": "", "PROC 2 DIMM 2": "s1/proc2dimm2",
		"proc2dimm2": "s1/proc2dimm2", "HGX DIMM 2": "s1/dimm2",
	} {
		if got, _ := s.Resolve("s1", "", name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestFindsByIdentity(t *testing.T) {
	s := snapshot(t)
	for _, c := range []struct{ device, value, want string }{
		{"s1", "0000:1b:00.0", "s1/gpu0"},
		{"s1", "PCI:0000:1b:00", "s1/gpu0"},
		{"s1", "00000000:1B:00.0", "s1/gpu0"},
		{"s1", "(PCI:0000:3d:00)", "s1/gpu1"},
		{"s2", "1b:00.0", "s2/gpu0"},
		{"", "0000:1b:00.0", ""},
		{"", "GPU-aA", "s1/gpu0"},
		{"", "s123", "s1"},
		{"", "aabb.cc00.1122", "s1/nic0"},
		{"s1", "AA-BB-CC-00-11-22", "s1/nic0"},
		{"s1", "", ""},
	} {
		if got, ok := s.ByIdentity(c.device, c.value); got != c.want || ok != (c.want != "") {
			t.Errorf("ByIdentity(%q, %q) = %q, %v; want %q", c.device, c.value, got, ok, c.want)
		}
	}
}

func TestWorkloadsAsOfATime(t *testing.T) {
	s := snapshot(t)
	for _, c := range []struct {
		resource string
		t        time.Time
		want     []string
	}{
		{"s1/gpu0", at(2), []string{"job-2", "job-1"}},
		{"s1/gpu1", at(2), []string{"job-2"}},
		{"s1", at(1), []string{"job-1"}},
		{"s1/gpu0", at(3), []string{"job-2"}},
		{"r01", at(2), []string{"job-2", "job-1"}},
		{"s2/gpu0", time.Time{}, []string{"job-2"}},
		{"leaf", at(2), nil},
	} {
		var got []string
		for _, w := range s.WorkloadsAt(c.resource, c.t) {
			got = append(got, w.ID)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s at %s: %s", c.resource, c.t, d)
		}
	}
}

var sorted = cmp.Options{
	cmpopts.SortSlices(func(a, b schemas.Resource) bool { return a.ID < b.ID }),
	cmpopts.SortSlices(func(a, b schemas.Link) bool { return a.From+a.To < b.From+b.To }),
}

func TestInventorySurvivesAndIsSharedBetweenProcesses(t *testing.T) {
	db := sqltest.Open(t)
	first := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := first.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := first.Import(t.Context(), cmdb.Draft{Topology: fleet()}, cmdb.ImportOptions{})
	if err != nil || r.Added != len(fleet().Resources) {
		t.Fatal(r, err)
	}
	cfg := cmdb.DefaultConfig()
	cfg.Poll = 10 * time.Millisecond
	second := cmdb.New(cfg, db, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- second.Run(ctx, func() { close(ready) }) }()
	<-ready
	if d := cmp.Diff(fleet(), second.Snapshot().Topology(), sorted); d != "" {
		t.Fatal(d)
	}
	changed, generation := second.Changed(), second.Snapshot().Generation
	now := time.Now().UTC()
	if err := first.PutWorkloads(
		t.Context(), schemas.Workload{ID: "job-3", Resources: []string{"s2"}, Start: now, Attrs: map[string]string{"owner": "ada"}},
	); err != nil {
		t.Fatal(err)
	}
	<-changed
	if w, ok := second.Snapshot().Workload("job-3"); !ok || !w.Start.Equal(now) || w.Attrs["owner"] != "ada" {
		t.Errorf("workload of another process: %v %v", w, ok)
	}
	if second.Snapshot().Generation != generation {
		t.Error("a workload has changed the generation of the graph")
	}
	changed = second.Changed()
	smaller := fleet()
	smaller.Resources = smaller.Resources[:len(smaller.Resources)-1]
	smaller.Resources[4].Attrs = schemas.AttrsOf(map[string]string{"serial": "S124"})
	smaller.Links = smaller.Links[1:]
	r, err = first.Import(t.Context(), cmdb.Draft{Topology: smaller}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()})
	if err != nil || r.Removed != 1 || r.Changed != 1 || r.Added != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	<-changed
	if id, _ := second.Snapshot().ByIdentity("", "S124"); id != "s1" || second.Snapshot().Generation == generation {
		t.Errorf("change by another process was not seen: %q", id)
	}
	version := first.Snapshot().Version
	if _, err := first.Import(t.Context(), cmdb.Draft{Topology: smaller}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil ||
		first.Snapshot().Version != version {
		t.Errorf("an equal import changed something: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestOldWorkloadsAreForgotten(t *testing.T) {
	db := sqltest.Open(t)
	i := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	long := time.Now().Add(-30 * 24 * time.Hour)
	for range 2 {
		if err := i.PutWorkloads(
			t.Context(), schemas.Workload{ID: "old", Start: long, End: long.Add(time.Hour)}, schemas.Workload{ID: "runs", Start: long},
		); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := i.Snapshot().Workload("old"); ok {
		t.Error("a workload of last month is remembered")
	}
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(i.Snapshot().Topology().Workloads); n != 1 {
		t.Errorf("%d workloads are stored", n)
	}
}

func FuzzPCI(f *testing.F) {
	for _, s := range []string{"0000:1b:00.0", "PCI:0000:1b:00", "00000000:1B:00.0", "1b:00.0", "10000:01:00.0", "x", ":::"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := cmdb.PCI(s)
		if p != "" && cmdb.PCI(p) != p {
			t.Errorf("%q gives %q, which gives %q", s, p, cmdb.PCI(p))
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":1,"resources":[{"id":"a","kind":"rack","parent":"a"}],"links":[{}],"workloads":[{"id":"w"}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, _, err := cmdb.Read(in)
		if err != nil {
			return
		}
		if again, problems := cmdb.Validate(got); len(problems) > 0 || !cmp.Equal(got, again, cmpopts.EquateEmpty()) {
			t.Errorf("what was good is not: %v", problems)
		}
	})
}

func TestKindsToComeAreKept(t *testing.T) {
	got, problems := cmdb.FromTopology(schemas.Topology{Resources: []schemas.Resource{
		{ID: "r1", Kind: schemas.KindRack},
		{ID: "r1/chassis1", Kind: "chassis", Parent: "r1"},
		{ID: "s1", Kind: schemas.KindServer, Parent: "r1/chassis1"},
	}})
	s := got.Snapshot()
	if len(problems) > 0 || s.Rack("s1") != "r1" || s.Server("s1") != "s1" {
		t.Errorf("%v; s1 stands in rack %q", problems, s.Rack("s1"))
	}
	if r, ok := s.Resource("r1/chassis1"); !ok || r.Kind != "chassis" {
		t.Errorf("%+v", r)
	}
}
