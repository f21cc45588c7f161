package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"auspex/control"
	"auspex/control/tinkerbell"
	"auspex/internal/cmdb"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// What a server is installed with is what the inventory and people say, and what there is none of is
// final, so that nobody waits for it.
func TestWhatServersAreInstalledWith(t *testing.T) {
	ctx, db := t.Context(), sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(estate.New(db))
	if err := inv.Open(ctx); err != nil {
		t.Fatal(err)
	}
	top := schemas.Topology{Version: 1, Resources: []schemas.Resource{
		{ID: "s1", Kind: schemas.KindServer},
		{ID: "s1/nic0", Kind: schemas.KindNIC, Parent: "s1", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrMAC: "02-00-00-00-00-0A"})},
	}}
	if _, err := inv.Import(ctx, cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	store := provisioning.New(db)
	made, err := store.Create(ctx, "ann", "linux", schemas.TemplateBody{OSFamily: "other", Architectures: []string{schemas.ArchX86}, Text: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Update(ctx, "ann", made.ID, 0, func(v *schemas.Template) { v.Text = "two" }); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Override(ctx, "ann", inv.Snapshot().ID("s1"), 0, schemas.HardwareOverrides{Template: "linux", TemplateVersion: 1}); err != nil {
		t.Fatal(err)
	}
	i := installs{inv, estate.New(db), store}
	r, err := i.Hardware(ctx, "s1")
	if err != nil || r.Overrides.Template != "linux" || r.Overrides.TemplateVersion != 1 || r.Fact(schemas.FactBootMAC) != "02:00:00:00:00:0a" {
		t.Errorf("%+v, %v", r, err)
	}
	for version, want := range map[int64]string{0: "two", 1: "one", 2: "two"} {
		if v, err := i.Template(ctx, "linux", version); err != nil || v.Text != want || v.Name != "linux" {
			t.Errorf("version %d: %+v, %v", version, v, err)
		}
	}
	_, server := i.Hardware(ctx, "s2")
	_, template := i.Template(ctx, "windows", 0)
	_, version := i.Template(ctx, "linux", 3)
	for name, err := range map[string]error{"server": server, "template": template, "version": version} {
		if !errors.Is(err, control.ErrCannot) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOnlyWhereControlActsIsInstalled: what is pinned to a server counts only where the mode as a whole and the rules for its
// pool let control act.
func TestOnlyWhereControlActsIsInstalled(t *testing.T) {
	inv, db := racked(t, map[string][]string{"s1": nil})
	for name, tc := range map[string]struct {
		mode, rules string
		whole, here bool
	}{
		"it observes":               {schemas.ModeObserve, "", false, false},
		"it acts":                   {schemas.ModeEnforce, "", true, true},
		"a person is asked":         {schemas.ModeApprove, "", true, true},
		"a rule for all":            {schemas.ModeEnforce, "{mode: dry-run}", false, false},
		"a rule for its pool":       {schemas.ModeEnforce, "{pool: def*, mode: observe}", true, false},
		"a rule for another":        {schemas.ModeEnforce, "{pool: other, mode: observe}", true, true},
		"a rule for what is broken": {schemas.ModeEnforce, "{fault: gpu.*, mode: observe}", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "policy.yaml")
			text := "rules: [" + tc.rules + "]\npolicies: [{name: p, faults: [gpu.fallen_off_bus], ladder: [{kind: inspect_feed, person: true}]}]\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg := DefaultConfig()
			cfg.Control.Mode, cfg.Control.Policies = tc.mode, file
			cfg.Control.Drivers[tinkerbell.Name].(*tinkerbell.Config).InCluster = true
			s := &stack{cfg: cfg, inv: inv, db: db}
			whole, err := s.installing(t.Context(), "")
			here, err2 := s.installing(t.Context(), inv.Snapshot().ID("s1"))
			if err := errors.Join(err, err2); err != nil || whole != tc.whole || here != tc.here {
				t.Errorf("%t as a whole, %t of s1, %v", whole, here, err)
			}
		})
	}
}
