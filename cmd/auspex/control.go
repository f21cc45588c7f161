package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/control"
	_ "auspex/control/all" // registers every driver
	"auspex/control/keeper"
	"auspex/control/life"
	"auspex/internal/cmdb"
	"auspex/internal/foreign"
	"auspex/internal/provision"
	"auspex/internal/run"
	"auspex/internal/store/caps"
	"auspex/internal/store/configs"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/validations"
	"auspex/internal/store/wipes"
	"auspex/schemas"
)

// control climbs ladders; what has no driver here says "cannot".
func (s *stack) control() []run.Component {
	if !s.cfg.has(RoleControl) {
		return nil
	}
	return []run.Component{s.lasting("control", func(reg prometheus.Registerer) (run.Component, error) {
		resource := func(id string) (schemas.Resource, bool) { return s.inv.Snapshot().Resource(id) }
		remediators, err := s.remediators(reg)
		if err != nil {
			return nil, err
		}
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		shared := &groups{inv: s.inv, db: s.db}
		return control.New(s.cfg.Control.Config, control.Deps{
			Log: s.log, Metrics: reg, Now: time.Now, DB: s.db, Records: s.records, Bus: s.bus, Inventory: place{s.inv}, Remediators: remediators,
			Life: life.Bus{Bus: s.bus, Placer: s.enrich}, View: collectors.ViewOf, Holder: host, Faults: s.faults.Load(),
			Maintenance: windows{s.inv, maintenance.New(s.db), shared}, Groups: shared, Freezes: windows{s.inv, maintenance.New(s.db), shared},
			Costs: costs{s.inv, s.db}, Resource: resource, Console: s.cfg.Notify.ExternalURL,
		})
	}), s.lasting("configurations", func(reg prometheus.Registerer) (run.Component, error) {
		remediators, err := s.remediators(nil)
		if err != nil {
			return nil, err
		}
		asks, shared := s.askControl(), &groups{inv: s.inv, db: s.db}
		mode, err := control.Modes(s.cfg.Control.Config, shared)
		if err != nil {
			return nil, err
		}
		return keeper.New(s.cfg.Control.Configuration, keeper.Deps{
			Log: s.log, Metrics: reg, Now: time.Now, Store: configs.New(s.db), Bus: s.bus, Remediators: remediators, CallTime: s.cfg.Control.CallTime,
			Mode: mode, Maintenance: windows{s.inv, maintenance.New(s.db), shared}, Ask: asks.Ask, Action: asks.Action,
		})
	})}
}

// remediators does the steps of control, by kind. Only those of control itself follow the world, count, and keep what
// others have there.
func (s *stack) remediators(reg prometheus.Registerer) (map[string]control.Remediator, error) {
	var others control.Foreign
	if reg != nil {
		others = foreign.New(s.db, s.inv, s.bus, s.log, reg)
	}
	return s.cfg.Control.Drivers.Remediators(control.Settings{
		Foreign: others, Metrics: reg,
		Log: s.log, Now: time.Now, Resource: func(id string) (schemas.Resource, bool) { return s.inv.Snapshot().Resource(id) },
		Secrets: &s.secrets, Gate: s.gate, Tunnels: s.controlling(), Outlets: outlets(s.inv),
		Installs: s.hardware(), Validations: kept{s, s.hot, validations.New(s.db)},
		Caps: caps.New(s.db), Feeds: feeds(s.inv),
		Wipes: wiped{wipes.New(s.db, time.Now)},
	})
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

// feeds finds what is left where a PDU gives no power, in the inventory of the moment.
func feeds(inv *cmdb.Inventory) func(pdu string) (control.Feed, bool) {
	return func(pdu string) (f control.Feed, ok bool) {
		names := inv.Snapshot()
		if r, known := names.Resource(pdu); !known || r.Kind != schemas.KindPDU {
			return f, false
		}
		of, seen := outlets(inv), map[string]bool{pdu: true}
		for _, server := range fedBy(names, pdu) {
			for _, o := range of(server) {
				if o.PDU.ID == "" || seen[o.PDU.ID] {
					continue
				}
				seen[o.PDU.ID] = true
				u := control.Unit{PDU: o.PDU, Servers: map[string]float64{}}
				for _, other := range fedBy(names, o.PDU.ID) {
					here, left := 0, 0
					for _, o := range of(other) {
						if o.PDU.ID == u.PDU.ID {
							here++
						}
						if o.PDU.ID != pdu {
							left++
						}
					}
					u.Servers[other] = float64(here) / float64(left)
				}
				f.Units = append(f.Units, u)
			}
		}
		slices.SortFunc(f.Units, func(a, b control.Unit) int { return strings.Compare(a.PDU.ID, b.PDU.ID) })
		return f, true
	}
}

// fedBy are the servers with a power supply on a PDU.
func fedBy(names *cmdb.Snapshot, pdu string) (out []string) {
	for _, l := range names.Links(pdu) {
		if l.Kind != schemas.LinkPowers || l.From != pdu {
			continue
		}
		supply, _ := names.Resource(l.To)
		if owner, ok := names.Resource(supply.Parent); ok && owner.Kind == schemas.KindServer && !slices.Contains(out, owner.ID) {
			out = append(out, owner.ID)
		}
	}
	return out
}

// installs is what servers are installed with, over an inventory and what people say beside it.
type installs struct {
	inv          *cmdb.Inventory
	estate       *estate.Store
	provisioning *provisioning.Store
}

// Hardware implements control.Installs.
func (i installs) Hardware(ctx context.Context, server string) (r schemas.HardwareRecord, err error) {
	v, err := i.estate.Server(ctx, server)
	if err != nil {
		return r, unknown(err)
	}
	if !v.Present {
		return r, fmt.Errorf("%w: %s has left the inventory", control.ErrCannot, server)
	}
	said, err := i.provisioning.Overrides(ctx, []string{v.ID})
	if err != nil {
		return r, err
	}
	o := said[v.ID]
	return provision.Derive(i.inv.Snapshot(), &v, &o.HardwareOverrides), nil
}

// Template implements control.Installs.
func (i installs) Template(ctx context.Context, name string, version int64) (t schemas.Template, err error) {
	if t, err = i.provisioning.Template(ctx, name); err != nil || version == 0 || version == t.Version {
		return t, unknown(err)
	}
	t.TemplateVersion, err = i.provisioning.Version(ctx, t.ID, version)
	return t, unknown(err)
}

// unknown says of what there is none of that nothing can be done with it.
func unknown(err error) error {
	if errors.Is(err, entity.ErrNone) {
		return fmt.Errorf("%w: %w", control.ErrCannot, err)
	}
	return err
}

// windows is the work that was declared, over an inventory.
type windows struct {
	inv    *cmdb.Inventory
	store  *maintenance.Store
	groups control.Groups
}

// Covering implements control.Maintenance.
func (w windows) Covering(ctx context.Context, t time.Time, resources ...string) (schemas.Maintenance, bool, error) {
	all, err := w.store.Open(ctx, t)
	if err != nil {
		return schemas.Maintenance{}, false, err
	}
	names := w.inv.Snapshot()
	for _, m := range all {
		if !m.Covers(t) || m.Work == schemas.WorkFreeze {
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

// Frozen implements control.Freezes.
func (w windows) Frozen(ctx context.Context, t time.Time, server string) (schemas.Maintenance, bool, error) {
	all, err := w.store.Open(ctx, t)
	if err != nil {
		return schemas.Maintenance{}, false, err
	}
	all = slices.DeleteFunc(all, func(m schemas.Maintenance) bool { return m.Work != schemas.WorkFreeze || !m.Covers(t) })
	if len(all) == 0 {
		return schemas.Maintenance{}, false, nil
	}
	names := w.inv.Snapshot()
	groups, err := w.groups.Of(ctx, server)
	if err != nil {
		return schemas.Maintenance{}, false, err
	}
	for _, m := range all {
		if slices.ContainsFunc(m.Resources, func(place string) bool { return names.Covers(place, server) }) ||
			slices.ContainsFunc(m.Pools, func(pool string) bool {
				return slices.Contains(groups, control.Group{Scope: schemas.ScopePool, Name: pool})
			}) {
			return m, true, nil
		}
	}
	return schemas.Maintenance{}, false, nil
}
