package cmdb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// states says what a resource was, the latest first.
func states(t *testing.T, i *cmdb.Inventory, name string) (out []string) {
	t.Helper()
	found, err := i.History(t.Context(), name, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		out = append(out, fmt.Sprintf("%d %s by %s from %s %s: %s", s.Version, s.Change, s.Actor, s.Source, s.Origin, s.Resource.Attrs.Get("model")))
	}
	return out
}

func TestEachResourceKeepsWhatItWas(t *testing.T) {
	i := opened(t)
	server := func(model string) schemas.Topology {
		return schemas.Topology{Resources: []schemas.Resource{
			{ID: "a", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"model": model})}, {ID: "b", Kind: schemas.KindServer},
		}}
	}
	as := func(who, origin string) cmdb.ImportOptions {
		return cmdb.ImportOptions{Source: "dcim", Actor: who, Origin: origin, Bounds: cmdb.NoBounds()}
	}
	bring(t, i, as("ana", "one.json"), server("M1"))
	if d := cmp.Diff([]string{"1 added by ana from dcim one.json: M1"}, states(t, i, "a")); d != "" {
		t.Error(d)
	}
	bring(t, i, as("bo", "two.json"), server("M2"))
	bring(t, i, as("", "three.json"), schemas.Topology{Resources: server("").Resources[1:]})
	bring(t, i, as("kim", "four.json"), server("M4"))
	if d := cmp.Diff([]string{
		"4 added by kim from dcim four.json: M4", "3 removed by auspex from dcim three.json: M2", "2 changed by bo from dcim two.json: M2",
		"1 added by ana from dcim one.json: M1",
	}, states(t, i, "a")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"1 added by ana from dcim one.json: "}, states(t, i, "b")); d != "" {
		t.Error(d)
	}
	latest, err := i.Latest(t.Context(), []string{"a", "b", "none"})
	if err != nil || len(latest) != 2 || latest["a"].Version != 4 || latest["b"].Version != 1 {
		t.Errorf("%+v %v", latest, err)
	}
	if s := states(t, i, "none"); s != nil {
		t.Error(s)
	}
	for n := range 60 {
		bring(t, i, as("bo", "more"), server(fmt.Sprint("N", n)))
	}
	if s := states(t, i, "a"); len(s) != cmdb.KeepStates || s[0] != "64 changed by bo from dcim more: N59" || s[49] != "15 changed by bo from dcim more: N10" {
		t.Errorf("%d: %q", len(s), s)
	}
	page, err := i.History(t.Context(), "a", 20, 2)
	if err != nil || len(page) != 2 || page[0].Version != 19 || page[1].Version != 18 {
		t.Errorf("%+v %v", page, err)
	}
}

// What a caller takes away is what they brought, and no more; what is refused beside an import
// leaves the inventory as it is, in memory and in the store.
func TestWhatIsDroppedIsOneSourcesAlone(t *testing.T) {
	i := opened(t)
	bring(t, i, cmdb.ImportOptions{Source: "dcim", Bounds: cmdb.NoBounds()}, racks(2))
	add := cmdb.ImportOptions{Source: cmdb.SourceAPI, Add: true, Bounds: cmdb.NoBounds()}
	bring(t, i, add, schemas.Topology{Resources: []schemas.Resource{
		{ID: "new", Kind: schemas.KindServer, Parent: "dc1"},
		{ID: "new/gpu0", Kind: schemas.KindGPU, Parent: "new"},
		{ID: "kept", Kind: schemas.KindServer, Parent: "dc1"},
		{ID: "s000", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"model": "M"})},
	}})
	no := errors.New("no")
	drop := add
	drop.Drop = []string{"new", "s000"}
	for _, where := range []string{"check", "first", "with"} {
		o := drop
		switch where {
		case "check":
			o.Check = func(*cmdb.Snapshot) error { return no }
		case "first":
			o.First = func(context.Context, *sql.Tx) error { return no }
		case "with":
			o.With = func(context.Context, *sql.Tx) error { return no }
		}
		if _, err := i.Import(t.Context(), cmdb.Draft{}, o); !errors.Is(err, no) {
			t.Errorf("%s: %v", where, err)
		}
		if _, there := i.Snapshot().Resource("new"); !there {
			t.Errorf("%s: it is gone", where)
		}
	}
	bring(t, i, drop, schemas.Topology{})
	for name, want := range map[string]bool{"new": false, "new/gpu0": false, "kept": true, "s000": true, "s001": true} {
		if _, there := i.Snapshot().Resource(name); there != want {
			t.Errorf("%s is there: %v", name, there)
		}
	}
	if r, _ := i.Snapshot().Resource("s000"); r.Attrs.Get("model") != "" {
		t.Errorf("what the source said of it stays: %+v", r)
	}
	done := 0
	both := func(context.Context, *sql.Tx) error { done++; return nil }
	drop.First, drop.With = both, both
	if r := bring(t, i, drop, schemas.Topology{}); r.Version != 0 || done != 2 {
		t.Errorf("where nothing changes: %+v, %d", r, done)
	}
}

// BenchmarkFirstImport brings 400,000 resources into an empty SQLite file; each of them changes
// in the second import.
func BenchmarkFirstImport(b *testing.B) {
	top := schemas.Topology{Resources: []schemas.Resource{{ID: "dc1", Kind: schemas.KindSite}}}
	for s := range 10_000 {
		name := fmt.Sprintf("gpu-%05d", s)
		top.Resources = append(top.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer, Parent: "dc1", Attrs: schemas.AttrsOf(map[string]string{
			"serial": fmt.Sprint("S", s), "model": "DGX H100", "redfish_url": "https://10.0.0.1", "ipmi_ip": "10.0.0.1", "management_ip": "10.1.0.1",
		})})
		for p := range 39 {
			top.Resources = append(top.Resources, schemas.Resource{ID: fmt.Sprintf("%s/disk%d", name, p), Kind: schemas.KindDisk, Parent: name, Attrs: schemas.AttrsOf(map[string]string{
				"serial": fmt.Sprint("D", s, "-", p), "model": "KCD61VUL3T20",
			})})
		}
	}
	changed := schemas.Topology{}
	for _, r := range top.Resources {
		r.Attrs = schemas.AttrsOf(map[string]string{"model": "another"})
		changed.Resources = append(changed.Resources, r)
	}
	run := func(b *testing.B, changes bool) {
		for b.Loop() {
			b.StopTimer()
			db, err := sqldb.Open(b.Context(), filepath.Join(b.TempDir(), "auspex.db"))
			if err != nil {
				b.Fatal(err)
			}
			i := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
			if err := i.Open(b.Context()); err != nil {
				b.Fatal(err)
			}
			o := cmdb.ImportOptions{Bounds: cmdb.NoBounds()}
			all := []schemas.Topology{top}
			if changes {
				if _, err := i.Import(b.Context(), cmdb.Draft{Topology: top}, o); err != nil {
					b.Fatal(err)
				}
				all = []schemas.Topology{changed}
			}
			b.StartTimer()
			for _, t := range all {
				if _, err := i.Import(b.Context(), cmdb.Draft{Topology: t}, o); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			_ = db.Close()
			b.StartTimer()
		}
	}
	b.Run("first", func(b *testing.B) { run(b, false) })
	b.Run("all-change", func(b *testing.B) { run(b, true) })
}
