package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/control"
	_ "auspex/control/all" // registers every driver
	"auspex/control/life"
	"auspex/internal/cmdb"
	"auspex/internal/run"
	"auspex/internal/store/maintenance"
	"auspex/schemas"
)

// control climbs ladders; what has no driver here says "cannot".
func (s *stack) control() []run.Component {
	if !s.cfg.has(RoleControl) {
		return nil
	}
	return []run.Component{s.lasting("control", func(reg prometheus.Registerer) (run.Component, error) {
		resource := func(id string) (schemas.Resource, bool) { return s.inv.Snapshot().Resource(id) }
		remediators, err := s.cfg.Control.Drivers.Remediators(control.Settings{
			Log: s.log, Now: time.Now, Resource: resource,
			Secrets: &s.secrets, Gate: s.gate, Tunnels: s.controlling(), Outlets: outlets(s.inv),
		})
		if err != nil {
			return nil, err
		}
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		return control.New(s.cfg.Control.Config, control.Deps{
			Log: s.log, Metrics: reg, Now: time.Now, DB: s.db, Records: s.records, Bus: s.bus, Inventory: place{s.inv}, Remediators: remediators,
			Life: life.Bus{Bus: s.bus, Placer: s.enrich}, View: collectors.ViewOf, Holder: host, Faults: s.faults.Load(),
			Maintenance: windows{s.inv, maintenance.New(s.db)}, Groups: &groups{inv: s.inv, db: s.db}, Resource: resource, Console: s.cfg.Notify.ExternalURL,
		})
	})}
}

// outlets finds what feeds the power supplies of servers, in the inventory of the moment.
func outlets(inv *cmdb.Inventory) func(server string) []control.Outlet {
	return func(server string) (out []control.Outlet) {
		names := inv.Snapshot()
		for _, id := range names.Children(server) {
			supply, ok := names.Resource(id)
			if !ok || supply.Kind != schemas.KindPSU {
				continue
			}
			o := control.Outlet{Supply: id, ID: supply.Attrs.Get(schemas.AttrOutlet)}
			for _, l := range names.Links(id) {
				if l.Kind == schemas.LinkPowers && l.To == id {
					o.PDU, _ = names.Resource(l.From)
				}
			}
			out = append(out, o)
		}
		return out
	}
}

// windows is the work that was declared, over an inventory.
type windows struct {
	inv   *cmdb.Inventory
	store *maintenance.Store
}

// Covering implements control.Maintenance.
func (w windows) Covering(ctx context.Context, t time.Time, resources ...string) (schemas.Maintenance, bool, error) {
	all, err := w.store.Open(ctx, t)
	if err != nil {
		return schemas.Maintenance{}, false, err
	}
	names := w.inv.Snapshot()
	for _, m := range all {
		if !m.Covers(t) {
			continue
		}
		for _, place := range m.Resources {
			for _, r := range resources {
				if names.Covers(place, r) {
					return m, true, nil
				}
			}
		}
	}
	return schemas.Maintenance{}, false, nil
}
