package cmdb_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// fleetOf is the inventory of a site, with identities as they are found in the field.
func fleetOf(t *testing.T, site string, more ...schemas.Resource) *cmdb.Snapshot {
	t.Helper()
	cfg := cmdb.DefaultConfig()
	cfg.Site = site
	top := fleet()
	top.Resources = append(top.Resources, more...)
	inv := cmdb.New(cfg, nil, nil, nil)
	if r, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{}); err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r.Problems)
	}
	return inv.Snapshot()
}

func TestEveryNameOfAResourceFindsIt(t *testing.T) {
	s := fleetOf(t, "dc1",
		schemas.Resource{
			ID: "s3", Kind: "server", Parent: "r01", Attrs: schemas.AttrsOf(map[string]string{"serial": "TWIN", "uuid": "4C4C4544-0042-3510-8052-B4C04F4E4D32"}),
		},
		schemas.Resource{ID: "s4", Kind: "server", Parent: "r01", Attrs: schemas.AttrsOf(map[string]string{"serial": "twin"})},
		schemas.Resource{ID: "s4/gpu0", Kind: "gpu", Parent: "s4", Attrs: schemas.AttrsOf(map[string]string{"uuid": "GPU-5e2f1b3a-0c4d-4e5f-8a9b-0c1d2e3f4a5b"})},
		schemas.Resource{ID: "S123", Kind: "server", Parent: "r01"},
	)
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"s1", []string{"s1"}},
		{"s1/gpu0", []string{"s1/gpu0"}},
		{"S123", []string{"S123"}}, // a name, and the serial number of s1: the name counts
		{"s123", []string{"s1"}},
		{s.ID("s1"), []string{"s1"}},
		{"{" + s.ID("s1/gpu1") + "}", []string{"s1/gpu1"}},
		{"urn:uuid:" + s.ID("leaf"), []string{"leaf"}},
		{"GPU-5e2f1b3a-0c4d-4e5f-8a9b-0c1d2e3f4a5b", []string{"s4/gpu0"}},
		{"5E2F1B3A0C4D4E5F8A9B0C1D2E3F4A5B", []string{"s4/gpu0"}},
		{"4c4c4544-0042-3510-8052-b4c04f4e4d32", []string{"s3"}},
		{"aa:bb:cc:00:11:22", []string{"s1/nic0"}},
		{"AA-BB-CC-00-11-22", []string{"s1/nic0"}},
		{"aabb.cc00.1122", []string{"s1/nic0"}},
		{"AABBCC001122", []string{"s1/nic0"}},
		{"0000:1b:00.0", []string{"s1/gpu0", "s2/gpu0"}},
		{"3d:00", []string{"s1/gpu1"}},
		{"s2/00000000:1B:00.0", []string{"s2/gpu0"}},
		{"s123/1b:00.0", []string{"s1/gpu0"}},
		{s.ID("s1") + "/GPU1", []string{"s1/gpu1"}},
		{"twin", []string{"s3", "s4"}},
		{"TWIN/gpu0", []string{"s4/gpu0"}},
		{"leaf/Ethernet1/1", []string{"leaf/Ethernet1/1"}},
		{"s1/GPU2 Temp", nil}, // a sensor's name is no name of a part
		{"", nil},
		{"/", nil},
		{"nothing", nil},
	} {
		if d := cmp.Diff(tc.want, s.Find(tc.text)); d != "" {
			t.Errorf("%q: %s", tc.text, d)
		}
	}
	for text, want := range map[string][]string{
		"s1/gpu9": {"s1/gpu0", "s1/gpu1"}, "leag": {"leaf"}, "pdu-b": {"pdu-a"}, "nothing like it": {},
	} {
		if d := cmp.Diff(want, s.Nearest(text, 2)); d != "" {
			t.Errorf("nearest to %q: %s", text, d)
		}
	}
}

func TestIDsStayOverRestartsImportsAndHosts(t *testing.T) {
	db := sqltest.OpenFile(t)
	cfg := cmdb.DefaultConfig()
	cfg.Site = "dc1"
	first := cmdb.New(cfg, db, nil, nil)
	small := fleet()
	small.Resources, small.Links, small.Workloads = small.Resources[:1], nil, nil
	for _, top := range []schemas.Topology{fleet(), small, fleet()} { // removed and added again
		if _, err := first.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
			t.Fatal(err)
		}
	}
	again := cmdb.New(cfg, db, nil, nil)
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	elsewhere, other := fleetOf(t, "dc1"), fleetOf(t, "dc2")
	seen := map[string]string{}
	for _, r := range elsewhere.Resources() {
		id := elsewhere.ID(r.ID)
		if a, b := first.Snapshot().ID(r.ID), again.Snapshot().ID(r.ID); a != id || b != id {
			t.Errorf("ids of %s: %s, after a restart %s, on another host %s", r.ID, a, b, id)
		}
		if found := again.Snapshot().Find(id); len(found) != 1 || found[0] != r.ID {
			t.Errorf("%s of %s finds %v", id, r.ID, found)
		}
		if other.ID(r.ID) == id {
			t.Errorf("%s has the same id at two sites", r.ID)
		}
		if seen[id] != "" {
			t.Errorf("%s and %s share an id", r.ID, seen[id])
		}
		seen[id] = r.ID
	}
}
