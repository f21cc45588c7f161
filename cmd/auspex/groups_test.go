package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/control"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func TestWhatServersShare(t *testing.T) {
	ctx, db := t.Context(), sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(estate.New(db))
	if err := inv.Open(ctx); err != nil {
		t.Fatal(err)
	}
	top := schemas.Topology{Version: 1, Resources: []schemas.Resource{
		{ID: "dc", Kind: schemas.KindSite},
		{ID: "row", Kind: schemas.KindRow, Parent: "dc"},
		{ID: "r0", Kind: schemas.KindRack, Parent: "row"},
		{ID: "pa", Kind: schemas.KindPDU, Parent: "r0"},
		{ID: "pb", Kind: schemas.KindPDU, Parent: "r0"},
		{ID: "leaf", Kind: schemas.KindSwitch, Parent: "r0"},
	}}
	for i := range 3 {
		s, port := fmt.Sprint("s", i), fmt.Sprint("leaf/p", i)
		top.Resources = append(top.Resources, schemas.Resource{ID: s, Kind: schemas.KindServer, Parent: "r0", Attrs: schemas.AttrsOf(map[string]string{"model": "HGX"})},
			schemas.Resource{ID: s + "/psu0", Kind: schemas.KindPSU, Parent: s}, schemas.Resource{ID: s + "/psu1", Kind: schemas.KindPSU, Parent: s},
			schemas.Resource{ID: s + "/nic0", Kind: schemas.KindNIC, Parent: s}, schemas.Resource{ID: port, Kind: schemas.KindPort, Parent: "leaf"})
		top.Links = append(top.Links, schemas.Link{From: "pa", To: s + "/psu0", Kind: schemas.LinkPowers}, schemas.Link{From: port, To: s + "/nic0", Kind: schemas.LinkNetwork})
		if i > 0 {
			top.Links = append(top.Links, schemas.Link{From: "pb", To: s + "/psu1", Kind: schemas.LinkPowers})
		}
	}
	put := func() {
		t.Helper()
		if _, err := inv.Import(ctx, cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	if err := inv.PutWorkloads(ctx, schemas.Workload{ID: "job-7", Start: time.Now().Add(-time.Hour), Resources: []string{"s0", "s1/gpu0", "s1"}}); err != nil {
		t.Fatal(err)
	}
	u, err := people.New(db).CreateUser(ctx, "root", schemas.User{Username: "li", Email: "li@example.com", Role: "engineer", Status: "active"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := allocations.New(db).Take(ctx, "li", allocations.Draft{User: u.ID, Exclusive: true, Parts: []allocations.Part{{Server: inv.Snapshot().ID("s2")}}}); err != nil {
		t.Fatal(err)
	}
	g := &groups{inv: inv, db: db}
	of := func(server string) (out []string) {
		t.Helper()
		all, err := g.Of(ctx, server)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			out = append(out, one.Scope+" "+one.Name)
		}
		slices.Sort(out)
		return out
	}
	place := []string{"feed pa", "feed pb", "leaf leaf", "model HGX", "pool default", "rack r0", "row row", "site dc"}
	for server, want := range map[string][]string{
		"s0": {"feed pa", "job job-7", "leaf leaf", "model HGX", "pool default", "rack r0", "row row", "site dc"},
		"s1": slices.Insert(slices.Clone(place), 2, "job job-7"),
		"s2": append(slices.Clone(place), "tenant li"),
		"s9": nil,
	} {
		if d := cmp.Diff(want, of(server)); d != "" {
			t.Error(server, d)
		}
	}
	members := func(scope, name string) (out [3][]string) {
		t.Helper()
		m, err := g.Members(ctx, control.Group{Scope: scope, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		for i, list := range [][]string{m.All, m.InService, m.Free} {
			out[i] = slices.Sorted(slices.Values(list))
		}
		return out
	}
	all := []string{"s0", "s1", "s2"}
	for what, want := range map[[2]string][3][]string{
		{"rack", "r0"}:      {all, all, {"s0", "s1"}},
		{"feed", "pb"}:      {{"s1", "s2"}, {"s1", "s2"}, {"s1"}},
		{"pool", "default"}: {all, all, {"s0", "s1"}},
		{"model", "HGX"}:    {all, all, {"s0", "s1"}},
		{"job", "job-7"}:    {{"s0", "s1"}, {"s0", "s1"}, {"s0", "s1"}},
		{"tenant", "li"}:    {{"s2"}, {"s2"}, nil},
		{"pool", "other"}:   {},
	} {
		if d := cmp.Diff(want, members(what[0], what[1])); d != "" {
			t.Error(what, d)
		}
	}
	// What changes is seen: a cable of the inventory at once, the state of a server within a second.
	top.Links = slices.DeleteFunc(top.Links, func(l schemas.Link) bool { return l.From == "pb" })
	put()
	if got := of("s1"); slices.Contains(got, "feed pb") {
		t.Error(got)
	}
	if _, err := db.ExecContext(ctx, `UPDATE servers SET status='error' WHERE name='s0'`); err != nil {
		t.Fatal(err)
	}
	g.read = g.read.Add(-freshFor)
	if got := members("rack", "r0"); !slices.Equal(got[1], []string{"s1", "s2"}) || len(got[0]) != 3 {
		t.Error(got)
	}
}
