package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/collectors/gnmi"
	"auspex/internal/cabling"
	"auspex/internal/cmdb"
	"auspex/internal/secrets"
	"auspex/internal/sim"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// TestACableThatLLDPContradictsIsAConflict reads the switches of a simulated fleet of which the
// inventory has two cables the other way round, and corrects the inventory then.
func TestACableThatLLDPContradictsIsAConflict(t *testing.T) {
	cfg := sim.DefaultConfig()
	cfg.Dir, cfg.Script, cfg.Miscabled = t.TempDir(), nil, 1
	cfg.Fleet.Racks, cfg.Fleet.ServersPerRack = 2, 2
	cfg.Log = slog.New(slog.DiscardHandler)
	ready := make(chan struct{})
	cfg.Ready = func(sim.Endpoints) { close(ready) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sim.Run(ctx, cfg) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal("the fleet ended before it was ready")
	}
	var topology schemas.Topology
	b, err := os.ReadFile(filepath.Join(cfg.Dir, sim.TopologyFile))
	if err == nil {
		err = json.Unmarshal(b, &topology)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := secrets.Read(filepath.Join(cfg.Dir, sim.SecretsFile))
	if err != nil {
		t.Fatal(err)
	}
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := inv.Open(ctx); err != nil {
		t.Fatal(err)
	}
	put := func() {
		t.Helper()
		if _, err := inv.Import(ctx, cmdb.Draft{Topology: topology}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	reg := prometheus.NewRegistry()
	cables := cabling.New(db, inv, cfg.Log, reg)
	running := make(chan struct{})
	go func() { defer close(running); cables.Run(ctx) }()
	defer func() { cancel(); <-running }()
	read := gnmi.Default()
	read.SampleInterval, read.TLS.CAFile = time.Second, filepath.Join(cfg.Dir, sim.CAFile)
	for _, target := range read.Targets(inv.Snapshot().Resources()) {
		c, err := read.New(target, collectors.Settings{Secrets: file, Metrics: reg, Cabling: cables})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx, collectortest.NewRecorder()) }()
		defer func() { cancel(); <-done }()
	}
	list := func(status string) []schemas.Conflict {
		t.Helper()
		found, _, err := conflicts.New(db).List(ctx, conflicts.Filter{Status: status, Kind: schemas.ConflictCable, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	links := 0
	for _, l := range topology.Links {
		if l.Kind == schemas.LinkNetwork {
			links++
		}
	}
	verdicts := func() map[string]float64 {
		out := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "auspex_cabling_ports" {
				continue
			}
			for _, m := range f.GetMetric() {
				out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
		return out
	}
	waittest.Until(t, func() error {
		if got := verdicts(); got["contradicts"] != 2 || got["agrees"] < float64(links-2) {
			return fmt.Errorf("%v of %d cables", got, links)
		}
		return nil
	})
	open := list(schemas.ConflictOpen)
	if len(open) != 2 {
		t.Fatalf("%+v", open)
	}
	for _, c := range open {
		at := -1
		for i, l := range topology.Links {
			if l.From == c.Resource && l.Kind == schemas.LinkNetwork {
				at = i
			}
		}
		if at < 0 || c.Left.Value != topology.Links[at].To || c.Right.Value == c.Left.Value {
			t.Fatalf("%+v", c)
		}
		topology.Links[at].To = c.Right.Value
	}
	put()
	waittest.Until(t, func() error {
		if is := list(schemas.ConflictOpen); len(is) > 0 || len(list(schemas.ConflictSettled)) != 2 {
			return fmt.Errorf("%+v", is)
		}
		if got := verdicts(); got["contradicts"] > 0 || got["unknown_port"]+got["unknown_neighbor"]+got["ambiguous"]+got["unlisted"] > 0 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}
