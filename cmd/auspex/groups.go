package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"auspex/control"
	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/internal/store/allocations"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// groups tells control what servers share: by the inventory, by the pools and states that the API keeps, by what runs on them
// and by who has them.
type groups struct {
	inv *cmdb.Inventory
	db  *sqldb.DB

	mu      sync.Mutex
	version uint64 // of the inventory that places are of
	places  map[string]fleet.Place
	sharing map[control.Group][]string // servers, by what the inventory says
	read    time.Time                  // when estate was
	estate  map[string]enlisted
}

// enlisted is what the API keeps of a server.
type enlisted struct {
	name, pool, model string
	ready, free       bool
}

// freshFor is how old the states of servers may be.
const freshFor = time.Second

var _ control.Groups = (*groups)(nil)

// refresh brings what is kept up to date; g.mu is held.
func (g *groups) refresh(ctx context.Context) error {
	if snap := g.inv.Snapshot(); g.places == nil || g.version != snap.Version {
		g.places, g.version, g.sharing = fleet.NewIndex(snap).Places(), snap.Version, map[control.Group][]string{}
		for server, p := range g.places {
			for _, of := range shared(&p) {
				g.sharing[of] = append(g.sharing[of], server)
			}
		}
	}
	if g.estate != nil && time.Since(g.read) < freshFor {
		return nil
	}
	began := time.Now()
	all, err := sqldb.Rows(ctx, g.db, func(r *sql.Rows) (e enlisted, err error) {
		return e, r.Scan(&e.name, &e.pool, &e.model, &e.ready, &e.free)
	},
		`SELECT s.name, p.name, s.model, s.status='ready' AND s.present AND s.hold='',
  NOT EXISTS (SELECT 1 FROM allocation_claims c WHERE c.server_id=s.id AND c.state<>'released') FROM servers s JOIN pools p ON p.id=s.pool_id`)
	if err != nil {
		return fmt.Errorf("read servers: %w", err)
	}
	g.estate, g.read = make(map[string]enlisted, len(all)), began
	for _, e := range all {
		g.estate[e.name] = e
	}
	return nil
}

// shared are the groups of a place.
func shared(p *fleet.Place) (out []control.Group) {
	add := func(scope string, names ...string) {
		for _, name := range names {
			if name != "" {
				out = append(out, control.Group{Scope: scope, Name: name})
			}
		}
	}
	add(schemas.ScopeSite, p.Site)
	add(schemas.ScopeRow, p.Row)
	add(schemas.ScopeRack, p.Rack)
	add(schemas.ScopeFeed, p.Feeds...)
	add(schemas.ScopeLeaf, p.Leaves...)
	add(schemas.ScopeNVLink, p.NVLink)
	return out
}

// Of implements control.Groups.
func (g *groups) Of(ctx context.Context, server string) ([]control.Group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refresh(ctx); err != nil {
		return nil, err
	}
	p := g.places[server]
	out := shared(&p)
	if e, known := g.estate[server]; known {
		out = append(out, control.Group{Scope: schemas.ScopePool, Name: e.pool})
		if e.model != "" {
			out = append(out, control.Group{Scope: schemas.ScopeModel, Name: e.model})
		}
	}
	for _, w := range g.inv.Snapshot().WorkloadsAt(server, time.Time{}) {
		out = append(out, control.Group{Scope: schemas.ScopeJob, Name: w.ID})
	}
	held, err := allocations.On(ctx, g.db, server)
	if err != nil {
		return nil, fmt.Errorf("read who has %s: %w", server, err)
	}
	for i := range held {
		out = append(out, control.Group{Scope: schemas.ScopeTenant, Name: tenant(&held[i])})
	}
	return out, nil
}

// tenant is who has an allocation.
func tenant(a *schemas.Allocation) string {
	if a.Team != "" {
		return a.Team
	}
	return a.User
}

// Members implements control.Groups.
func (g *groups) Members(ctx context.Context, of control.Group) (m control.Members, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.refresh(ctx); err != nil {
		return m, err
	}
	switch of.Scope {
	case schemas.ScopePool, schemas.ScopeModel:
		for name, e := range g.estate {
			if of.Scope == schemas.ScopePool && e.pool == of.Name || of.Scope == schemas.ScopeModel && e.model == of.Name {
				m.All = append(m.All, name)
			}
		}
	case schemas.ScopeJob:
		snap := g.inv.Snapshot()
		w, _ := snap.Workload(of.Name)
		seen := map[string]bool{}
		for _, r := range w.Resources {
			if server := snap.Server(r); server != "" && !seen[server] {
				seen[server], m.All = true, append(m.All, server)
			}
		}
	case schemas.ScopeTenant:
		m.All, err = sqldb.Rows(ctx, g.db, func(r *sql.Rows) (name string, err error) { return name, r.Scan(&name) },
			`SELECT DISTINCT s.name FROM allocation_claims c JOIN servers s ON s.id=c.server_id JOIN allocations a ON a.id=c.allocation_id
JOIN users u ON u.id=a.user_id LEFT JOIN teams t ON t.id=a.team_id WHERE c.state='held' AND COALESCE(t.name, u.username)=$1`, of.Name)
		if err != nil {
			return m, fmt.Errorf("read what %s has: %w", of.Name, err)
		}
	default:
		m.All = g.sharing[of]
	}
	for _, name := range m.All {
		if e := g.estate[name]; e.ready {
			m.InService = append(m.InService, name)
			if e.free {
				m.Free = append(m.Free, name)
			}
		}
	}
	return m, nil
}
