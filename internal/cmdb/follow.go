package cmdb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Follower keeps records of some kinds of resources beside the inventory, in step with it: what
// an import changes of both is one transaction.
type Follower interface {
	// Kinds are the kinds of resources that it has records of.
	Kinds() []string
	// Count is how many records it has of resources that are there.
	Count(ctx context.Context, q sqldb.Queryer) (int, error)
	// Keep names the resources that no import may remove, and why.
	Keep(ctx context.Context, q sqldb.Queryer) (map[string]string, error)
	// Follow is told what an import puts, of these kinds, and what it removes, of any.
	Follow(ctx context.Context, tx *sql.Tx, f Following) error
}

// Following is what an import changes.
type Following struct {
	// Listed tells what somebody's list of machines brings from what is found or reported.
	Listed  bool
	Put     []Placed
	Removed []string
	UUID    func(name string) string // that the API knows a resource by
}

// Placed is a resource with the server or switch that it is, or is part of.
type Placed struct {
	schemas.Resource
	Server string
}

// Sources of what is found or reported, and not of a list of machines that somebody keeps.
const (
	SourceAgent     = "agent"     // machines say it of themselves
	SourceAPI       = "api"       // callers register it
	SourceDiscovery = "discovery" // sweeps of board controllers
)

func listed(source string) bool {
	return !slices.Contains([]string{SourceAgent, SourceAPI, SourceDiscovery}, source)
}

// Follow sets who follows the inventory, before it is opened.
func (i *Inventory) Follow(f Follower) { i.follower = f }

// keep returns the resources that an import must leave, with why: what the follower names and
// its parts.
func (i *Inventory) keep(ctx context.Context, old *Snapshot, sc *scope) (map[string]string, error) {
	if i.follower == nil || i.db == nil || sc != nil && !sc.loose {
		return nil, nil
	}
	named, err := i.follower.Keep(ctx, i.db)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(named))
	var whole func(n number, why string)
	whole = func(n number, why string) {
		if n == none || sc != nil && !sc.ids[old.at(n).ID] || out[old.at(n).ID] != "" {
			return
		}
		out[old.at(n).ID] = why
		for part := range old.parts(n) {
			whole(part, why)
		}
	}
	for id, why := range named {
		whole(old.find(id), why)
	}
	return out, nil
}

func (i *Inventory) following(source string, t schemas.Topology, put []schemas.Resource, removed []string) Following {
	at := make(map[string]*schemas.Resource, len(t.Resources))
	for n := range t.Resources {
		at[t.Resources[n].ID] = &t.Resources[n]
	}
	space := schemas.SpaceOf(i.cfg.Site)
	f := Following{Listed: listed(source), Removed: removed, UUID: func(name string) string { return space.ID(name).String() }}
	kinds := i.follower.Kinds()
	for _, r := range put {
		if !slices.Contains(kinds, r.Kind) {
			continue
		}
		p := Placed{Resource: r}
		for up, steps := at[r.ID], 0; up != nil && steps < len(t.Resources); up, steps = at[up.Parent], steps+1 {
			if isDevice(up.Kind) {
				p.Server = up.ID
				break
			}
		}
		f.Put = append(f.Put, p)
	}
	return f
}

// followed makes records of what was in the inventory before anybody followed it.
func (i *Inventory) followed(ctx context.Context) error {
	if i.follower == nil {
		return nil
	}
	n, kinds := 0, i.follower.Kinds()
	all := i.Snapshot().Resources()
	for _, r := range all {
		if slices.Contains(kinds, r.Kind) && (r.Kind == schemas.KindServer || i.Snapshot().Server(r.ID) != "") {
			n++
		}
	}
	if have, err := i.follower.Count(ctx, i.db); err != nil || have == n {
		return err
	}
	err := i.db.InTx(ctx, func(tx *sql.Tx) error {
		return i.follower.Follow(ctx, tx, i.following(DefaultSource, schemas.Topology{Resources: all}, all, nil))
	})
	if err != nil {
		return fmt.Errorf("make records of the inventory: %w", err)
	}
	return nil
}
