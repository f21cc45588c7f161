package estate_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// site is servers with two GPUs each.
func site(servers ...string) schemas.Topology {
	t := schemas.Topology{Resources: []schemas.Resource{{ID: "r1", Kind: schemas.KindRack}}}
	for _, name := range servers {
		t.Resources = append(t.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer, Parent: "r1", Attrs: schemas.AttrsOf(map[string]string{
			"model": "DGX", "serial": "SN-" + name, "ipmi_ip": "10.0.0.1", "redfish_url": "https://10.0.0.1", "management_ip": "10.1.0.1",
		})})
		t.Resources = append(t.Resources, schemas.Resource{ID: name + "/board", Kind: "pcie_switch", Parent: name})
		for g := range 2 {
			t.Resources = append(t.Resources, schemas.Resource{
				ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name + "/board", Attrs: schemas.AttrsOf(map[string]string{"model": "H100 80GB HBM3"}),
			})
		}
	}
	return t
}

func inventory(t *testing.T, db *sqldb.DB) (*cmdb.Inventory, *estate.Store) {
	t.Helper()
	inv, s := cmdb.New(cmdb.DefaultConfig(), db, nil, nil), estate.New(db)
	inv.Follow(s)
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return inv, s
}

func bring(t *testing.T, inv *cmdb.Inventory, source string, top schemas.Topology) cmdb.Report {
	t.Helper()
	r, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Source: source, Bounds: cmdb.NoBounds()})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func server(t *testing.T, s *estate.Store, ref string) schemas.Server {
	t.Helper()
	v, err := s.Server(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestRecordsFollowTheInventory(t *testing.T) {
	db := sqltest.Open(t)
	inv, s := inventory(t, db)
	top := site("a", "b")
	top.Resources[1].Attrs = top.Resources[1].Attrs.With("status", schemas.ServerDiscovered).With("pool", "no such pool")
	bring(t, inv, "", top)
	a, b := server(t, s, "a"), server(t, s, "b")
	if a.Status != schemas.ServerDiscovered || b.Status != schemas.ServerReady || a.Pool != schemas.DefaultPool || !a.Present || a.Revision != 1 ||
		a.Model != "DGX" || a.SerialNumber != "SN-a" || a.IPMIIP != "10.0.0.1" || a.RedfishURL != "https://10.0.0.1" || a.ManagementIP != "10.1.0.1" {
		t.Errorf("%+v\n%+v", a, b)
	}
	if a.ID != inv.Snapshot().ID("a") || server(t, s, a.ID).Name != "a" {
		t.Errorf("id %s, want that of the resource, %s", a.ID, inv.Snapshot().ID("a"))
	}
	g, err := s.GPU(t.Context(), "a/gpu1")
	if err != nil || g.ServerID != a.ID || g.Server != "a" || g.Status != schemas.GPUAvailable || g.MemoryGB == nil || *g.MemoryGB != 80 {
		t.Errorf("%+v %v", g, err)
	}
	// What it is changes with the inventory, and its life does not.
	top = site("a", "b")
	top.Resources[1].Attrs = top.Resources[1].Attrs.With("model", "HGX").With("status", schemas.ServerReady)
	bring(t, inv, "", top)
	if v := server(t, s, "a"); v.Model != "HGX" || v.Status != schemas.ServerDiscovered || v.Revision != 2 {
		t.Errorf("%+v", v)
	}
	if v := server(t, s, "b"); v.Revision != 1 {
		t.Errorf("nothing of it was changed: %+v", v)
	}
	bring(t, inv, cmdb.SourceDiscovery, site("c"))
	if v := server(t, s, "c"); v.Status != schemas.ServerDiscovered {
		t.Errorf("what was found is %s", v.Status)
	}
	bring(t, inv, cmdb.SourceDiscovery, site())
	if v := server(t, s, "c"); v.Present {
		t.Errorf("%+v", v)
	}
	if all, _, err := s.GPUs(t.Context(), estate.Filter{Limit: 10}); err != nil || len(all) != 4 {
		t.Errorf("%d GPUs, %v", len(all), err)
	}
	all, next, err := s.Servers(t.Context(), estate.Filter{Limit: 1, Gone: true})
	if err != nil || len(all) != 1 || next == "" {
		t.Errorf("%v %q %v", all, next, err)
	}
	if all, _, err = s.Servers(t.Context(), estate.Filter{Limit: 1, Gone: true, After: next}); err != nil || len(all) != 1 || all[0].Name != "b" {
		t.Errorf("%v %v", all, err)
	}
	bring(t, inv, cmdb.SourceDiscovery, site("c"))
	if v := server(t, s, "c"); !v.Present || v.Status != schemas.ServerDiscovered {
		t.Errorf("it is back: %+v", v)
	}
}

// TestAnInventoryOfBefore gets its records when it is opened by a version that has them.
func TestAnInventoryOfBefore(t *testing.T) {
	db := sqltest.Open(t)
	before := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := before.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	bring(t, before, "", site("a", "b"))
	_, s := inventory(t, db)
	if all, _, err := s.GPUs(t.Context(), estate.Filter{Limit: 10}); err != nil || len(all) != 4 || server(t, s, "b").Status != schemas.ServerReady {
		t.Errorf("%v %v", all, err)
	}
}

// claim gives a server to somebody, by what the store of allocations writes.
func claim(t *testing.T, db *sqldb.DB, v schemas.Server) {
	t.Helper()
	u, err := people.New(db).CreateUser(t.Context(), "root", schemas.User{Username: "li", Email: "li@example.com", Role: "engineer", Status: "active"})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO allocations
(id, group_id, user_id, status, purpose, start_ns, end_ns, wish, exclusive, revision, created_ns, updated_ns) VALUES ('al','',$1,'active','',1,$2,'{}',TRUE,1,1,1)`,
			u.ID, int64(math.MaxInt64))
		if err == nil {
			_, err = tx.ExecContext(t.Context(), `INSERT INTO allocation_claims (allocation_id, server_id, unit, state, from_ns, until_ns, changed_ns)
VALUES ('al',$1,$1,'held',1,$2,1)`, v.ID, int64(math.MaxInt64))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAnImportKeepsWhatIsAllocatedOrLeased(t *testing.T) {
	db := sqltest.Open(t)
	inv, s := inventory(t, db)
	bring(t, inv, "", site("a", "b", "c"))
	claim(t, db, server(t, s, "a"))
	if _, err := db.ExecContext(t.Context(), `INSERT INTO control_leases (subject, holder, token, expires_ns) VALUES ('b','control',1,$1)`, int64(math.MaxInt64)); err != nil {
		t.Fatal(err)
	}
	r := bring(t, inv, "", site("d"))
	if r.Kept["a"] != "allocation al" || r.Kept["b"] != "leased by control" || len(r.Kept) != 2 {
		t.Errorf("kept: %v", r.Kept)
	}
	for name, there := range map[string]bool{"a": true, "a/gpu1": true, "b": true, "c": false, "c/gpu0": false, "d": true} {
		if _, ok := inv.Snapshot().Resource(name); ok != there {
			t.Errorf("%s is there: %t", name, ok)
		}
	}
	if v := server(t, s, "a"); !v.Present {
		t.Errorf("%+v", v)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE allocation_claims SET state='released'`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE control_leases SET expires_ns=0`); err != nil {
		t.Fatal(err)
	}
	top := site("d", "e")
	if r := bring(t, inv, "", top); len(r.Kept) != 0 || server(t, s, "a").Present {
		t.Errorf("kept: %v", r.Kept)
	}
}

func TestAServerIsMovedAlongItsLife(t *testing.T) {
	db := sqltest.Open(t)
	inv, s := inventory(t, db)
	bring(t, inv, "", site("a"))
	to := func(state string) error {
		_, err := s.UpdateServer(t.Context(), "root", "a", 0, func(v *schemas.Server) { v.Status = state })
		return err
	}
	var move *schemas.MoveError
	if err := to(schemas.ServerDiscovered); !errors.As(err, &move) || !slices.Equal(move.Legal, []string{schemas.ServerProvisioning, schemas.ServerRetired}) {
		t.Errorf("%v", err)
	}
	for _, state := range []string{schemas.ServerProvisioning, schemas.ServerError, schemas.ServerProvisioning, schemas.ServerReady} {
		if err := to(state); err != nil {
			t.Error(err)
		}
	}
	claim(t, db, server(t, s, "a"))
	if err := to(schemas.ServerRetired); !errors.Is(err, estate.ErrAllocated) {
		t.Errorf("%v", err)
	}
	v, err := s.UpdateServer(t.Context(), "root", "a", server(t, s, "a").Revision, func(v *schemas.Server) {
		v.Labels, v.Hold = map[string]string{"tier": "gold"}, "burn-in"
	})
	if err != nil || v.Labels["tier"] != "gold" || v.HoldBy != "root" {
		t.Errorf("%+v %v", v, err)
	}
	if _, err := s.UpdateServer(t.Context(), "root", "a", v.Revision-1, func(v *schemas.Server) { v.Hold = "" }); !errors.Is(err, entity.ErrChanged) {
		t.Errorf("%v", err)
	}
	field := (*entity.FieldError)(nil)
	if _, err := s.UpdateServer(t.Context(), "root", "a", 0, func(v *schemas.Server) { v.Pool = "none" }); !errors.As(err, &field) || field.Field != "pool" {
		t.Errorf("%v", err)
	}
}

// The audit has a change as it was made: the row of a move tells nothing of it that came after, and the
// reason of the new state is not that of the old.
func TestTheAuditHasWhatItWasAndIs(t *testing.T) {
	db := sqltest.Open(t)
	inv, s := inventory(t, db)
	bring(t, inv, "", site("a"))
	if _, err := s.UpdateServer(t.Context(), "li", "a", 0, func(v *schemas.Server) {
		v.Status, v.Reason, v.Hold = schemas.ServerProvisioning, "new disks", "burn-in"
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 2) // the last first
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	type state struct{ Status, Reason, Hold string }
	for k, want := range [][2]state{
		{{schemas.ServerProvisioning, "new disks", ""}, {schemas.ServerProvisioning, "new disks", "burn-in"}},
		{{schemas.ServerReady, "", ""}, {schemas.ServerProvisioning, "new disks", ""}},
	} {
		var change struct{ Before, After schemas.Server }
		if err := json.Unmarshal([]byte(rows[k].Detail), &change); err != nil {
			t.Fatal(err)
		}
		of := func(v *schemas.Server) state { return state{v.Status, v.Reason, v.Hold} }
		if got := [2]state{of(&change.Before), of(&change.After)}; got != want || rows[k].Actor != "li" {
			t.Errorf("row %d: %+v, want %+v", k, got, want)
		}
	}
}

func TestPoolsAreKept(t *testing.T) {
	db := sqltest.Open(t)
	inv, s := inventory(t, db)
	p, err := s.CreatePool(t.Context(), "root", schemas.Pool{Name: "Research"})
	if err != nil {
		t.Fatal(err)
	}
	top := site("a")
	top.Resources[1].Attrs = top.Resources[1].Attrs.With("pool", "research")
	bring(t, inv, "", top)
	if v := server(t, s, "a"); v.Pool != "Research" {
		t.Errorf("%+v", v)
	}
	field := (*entity.FieldError)(nil)
	if _, err := s.CreatePool(t.Context(), "root", schemas.Pool{Name: "RESEARCH"}); !errors.As(err, &field) || !field.Taken {
		t.Errorf("%v", err)
	}
	if err := s.DeletePool(t.Context(), "root", "research", 0); !errors.Is(err, entity.ErrInUse) {
		t.Errorf("%v", err)
	}
	for _, err := range []error{
		s.DeletePool(t.Context(), "root", schemas.DefaultPool, 0),
		func() error {
			_, err := s.UpdatePool(t.Context(), "root", schemas.DefaultPool, 0, func(p *schemas.Pool) { p.Name = "other" })
			return err
		}(),
	} {
		if !errors.Is(err, estate.ErrDefault) {
			t.Errorf("%v", err)
		}
	}
	if _, err := s.UpdateServer(t.Context(), "root", "a", 0, func(v *schemas.Server) { v.Pool = schemas.DefaultPool }); err != nil {
		t.Error(err)
	}
	if err := s.DeletePool(t.Context(), "root", p.ID, 1); err != nil {
		t.Error(err)
	}
	if all, _, err := s.Pools(t.Context(), "", "", 10); err != nil || len(all) != 1 || all[0].Servers != 1 {
		t.Errorf("%+v %v", all, err)
	}
}

// TestTheDatabaseRefuses holds what must be so without the code that asks first.
func TestTheDatabaseRefuses(t *testing.T) {
	db := sqltest.Open(t)
	inv, _ := inventory(t, db)
	bring(t, inv, "", site("a"))
	for _, tc := range []struct {
		statement, table, field string
		rule                    sqldb.Rule
	}{
		{`UPDATE servers SET status='well'`, "servers", "status", sqldb.Check},
		{`UPDATE gpus SET status='well'`, "gpus", "status", sqldb.Check},
		{`UPDATE gpus SET memory_gb=0`, "gpus", "memory_gb", sqldb.Check},
		{`UPDATE gpus SET name='a/gpu0'`, "gpus", "name", sqldb.Unique},
		{`UPDATE gpus SET server_id='none'`, "gpus", "server_id", sqldb.Foreign},
		{`DELETE FROM servers`, "gpus", "server_id", sqldb.Foreign},
		{`UPDATE servers SET updated_ns=created_ns-1`, "servers", "updated_at", sqldb.Check},
	} {
		err := db.InTx(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(context.WithoutCancel(t.Context()), tc.statement)
			return err
		})
		r, ok := sqldb.Refused(err)
		if !ok || r.Rule != tc.rule || r.Constraint != "" && r.Field(tc.table) != tc.field {
			t.Errorf("%s: %v (%+v)", tc.statement, err, r)
		}
	}
}

// TestALargeInventoryIsFollowed holds that each of very many records becomes its row, that one which
// says something else is written again, and no other, and that a GPU of no server has none.
func TestALargeInventoryIsFollowed(t *testing.T) {
	db := sqltest.Open(t)
	inv, s := inventory(t, db)
	if _, err := s.CreatePool(t.Context(), "test", schemas.Pool{Name: "Train"}); err != nil {
		t.Fatal(err)
	}
	names := make([]string, 1234)
	for k := range names {
		names[k] = fmt.Sprintf("s%04d", k)
	}
	top := site(names...)
	for k := range top.Resources {
		if r := &top.Resources[k]; r.Kind == schemas.KindServer && r.ID >= "s1000" {
			r.Attrs = r.Attrs.With("pool", "train")
		}
	}
	top.Resources = append(top.Resources, schemas.Resource{ID: "leaf", Kind: schemas.KindSwitch, Parent: "r1"},
		schemas.Resource{ID: "leaf/gpu", Kind: schemas.KindGPU, Parent: "leaf"})
	bring(t, inv, "", top)
	count := func(want int, query string) {
		t.Helper()
		var n int
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil || n != want {
			t.Errorf("%d, %v; want %d: %s", n, err, want, query)
		}
	}
	count(1234, `SELECT count(*) FROM servers WHERE present AND revision=1`)
	count(234, `SELECT count(*) FROM servers s JOIN pools p ON p.id=s.pool_id WHERE p.name='Train'`)
	count(2468, `SELECT count(*) FROM gpus g JOIN servers s ON s.id=g.server_id WHERE g.name LIKE s.name || '/gpu%' AND g.memory_gb=80`)
	count(2468, `SELECT count(*) FROM gpus`)
	top.Resources[1].Attrs = top.Resources[1].Attrs.With("model", "HGX")
	bring(t, inv, "", top)
	count(1, `SELECT count(*) FROM servers WHERE revision=2 AND name='s0000'`)
	count(1233, `SELECT count(*) FROM servers WHERE revision=1`)
}
