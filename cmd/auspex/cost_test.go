package main

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"auspex/internal/cmdb"
	"auspex/internal/store/estate"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// TestAStepCostsWhatItsJobsHaveComputed counts all GPUs of a job on two servers when one of them is restarted, and says
// which job it knows too little of.
func TestAStepCostsWhatItsJobsHaveComputed(t *testing.T) {
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(estate.New(db))
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	top := schemas.Topology{Resources: []schemas.Resource{{ID: "dc", Kind: schemas.KindSite}, {ID: "r1", Kind: schemas.KindRack, Parent: "dc"}}}
	for _, s := range []string{"s1", "s2"} {
		top.Resources = append(top.Resources, schemas.Resource{ID: s, Kind: schemas.KindServer, Parent: "r1"},
			schemas.Resource{ID: s + "/gpu0", Kind: schemas.KindGPU, Parent: s}, schemas.Resource{ID: s + "/gpu1", Kind: schemas.KindGPU, Parent: s})
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if err := inv.PutWorkloads(t.Context(),
		schemas.Workload{ID: "job-1", Resources: []string{"s1", "s2"}, Start: now.Add(-3 * time.Hour), Attrs: map[string]string{"owner": "ann", "name": "llm"}},
		schemas.Workload{ID: "job-2", Resources: []string{"s1/gpu1"}, Start: now.Add(-time.Hour), Attrs: map[string]string{"owner": "bo"}},
		schemas.Workload{ID: "job-3", Resources: []string{"s1/gpu1"}},
		schemas.Workload{ID: "job-4", Resources: []string{"s2/gpu0"}, Start: now.Add(-time.Hour)},
		schemas.Workload{ID: "allocation-9", Resources: []string{"s1"}, Start: now.Add(-time.Hour)},
	); err != nil {
		t.Fatal(err)
	}
	c := costs{inv, db}
	about := cmpopts.EquateApprox(0, 0.1)
	when := cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Time" || p.String() == "Jobs.Since" }, cmp.Ignore())
	sorted := cmpopts.SortSlices(func(a, b schemas.JobAtRisk) bool { return a.ID < b.ID })
	names := cmpopts.SortSlices(func(a, b string) bool { return a < b })
	got, err := c.Of(t.Context(), "s1", "s1")
	if err != nil {
		t.Fatal(err)
	}
	want := schemas.BlastRadius{
		Servers: []string{"s1"}, GPUs: 2, Owners: []string{"ann", "bo"}, GPUHours: 13, Unknown: 1,
		Jobs: []schemas.JobAtRisk{
			{ID: "job-1", Name: "llm", Owner: "ann", GPUs: 4, GPUHours: 12}, {ID: "job-2", Owner: "bo", GPUs: 1, GPUHours: 1}, {ID: "job-3", GPUs: 1},
		},
	}
	if d := cmp.Diff(want, got, about, when, sorted, names); d != "" {
		t.Error(d)
	}
	if got, err = c.Of(t.Context(), "s1", "s1/gpu0"); err != nil || got.GPUs != 1 || len(got.Jobs) != 1 || math.Abs(got.GPUHours-12) > 0.1 {
		t.Errorf("of one GPU: %+v %v", got, err)
	}
}

// TestAFreezeHoldsForItsPlacesAndPools, is no maintenance, and maintenance is no freeze.
func TestAFreezeHoldsForItsPlacesAndPools(t *testing.T) {
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(estate.New(db))
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	top := schemas.Topology{Resources: []schemas.Resource{
		{ID: "dc", Kind: schemas.KindSite},
		{ID: "r1", Kind: schemas.KindRack, Parent: "dc"},
		{ID: "r2", Kind: schemas.KindRack, Parent: "dc"},
		{ID: "s1", Kind: schemas.KindServer, Parent: "r1"},
		{ID: "s2", Kind: schemas.KindServer, Parent: "r2"},
	}}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	store, now := maintenance.New(db), time.Now().UTC()
	w := windows{inv, store, &groups{inv: inv, db: db}}
	for id, m := range map[string]schemas.Maintenance{
		"mw-1": {Resources: []string{"r1"}, Work: schemas.WorkFreeze},
		"mw-2": {Resources: []string{"r2"}, Work: schemas.WorkMaintenance},
		"mw-3": {Pools: []string{"default"}, Work: schemas.WorkFreeze, From: now.Add(time.Hour)},
		"mw-4": {Pools: []string{"other"}, Work: schemas.WorkFreeze},
	} {
		m.ID, m.Declared, m.By, m.Until = id, now, "li", now.Add(2*time.Hour)
		if m.From.IsZero() {
			m.From = now.Add(-time.Hour)
		}
		if _, err := store.Declare(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		at             time.Duration
		server         string
		frozen, worked bool
	}{{0, "s1", true, false}, {0, "s2", false, true}, {90 * time.Minute, "s2", true, true}, {3 * time.Hour, "s1", false, false}} {
		_, frozen, err := w.Frozen(t.Context(), now.Add(c.at), c.server)
		if err != nil {
			t.Fatal(err)
		}
		_, worked, err := w.Covering(t.Context(), now.Add(c.at), c.server)
		if err != nil || frozen != c.frozen || worked != c.worked {
			t.Errorf("%s in %s: frozen %v, worked on %v, %v", c.server, c.at, frozen, worked, err)
		}
	}
}
