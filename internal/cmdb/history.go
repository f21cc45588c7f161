package cmdb

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// KeepStates is how many states of a resource are kept, the latest.
const KeepStates = 50

// Kinds of changes of a resource.
const (
	Added   = "added"
	Changed = "changed"
	Removed = "removed"
)

// State is a resource as an import left it: who changed it, when, and from which source.
type State struct {
	Resource schemas.Resource // of what was removed, as it was
	Version  int64            // from 1, by one with each change
	Time     time.Time        // zero is not known
	Change   string           // Added, Changed or Removed
	Source   string
	Origin   string // file or request
	Actor    string // "" is not known
}

const stateColumns = `resource, version, time_ns, change, source, origin, actor, kind, parent, attrs`

// writeHistory keeps what an import does to each resource. The first import of all is one row:
// what it brings has no other state to tell it from, until it changes.
func writeHistory(ctx context.Context, tx *sql.Tx, diff difference, old *Snapshot, o ImportOptions) error {
	now := State{Time: time.Now(), Change: Added, Source: o.Source, Origin: o.Origin, Actor: cmp.Or(o.Actor, "auspex")}
	all, err := sqldb.Rows(ctx, tx, scanState, `SELECT `+stateColumns+` FROM inventory_resource_versions WHERE resource=''`)
	if err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO inventory_resource_versions (`+stateColumns+`) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)`)
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	put := func(s State, r schemas.Resource, version int64) error {
		attrs, err := marshal(r.Attrs)
		if err == nil {
			_, err = insert.ExecContext(ctx, r.ID, version, toNano(s.Time), s.Change, s.Source, s.Origin, s.Actor, r.Kind, r.Parent, attrs)
		}
		if err != nil {
			return fmt.Errorf("keep what %s was: %w", r.ID, err)
		}
		return nil
	}
	if len(all) == 0 && old.Len() == 0 {
		return put(now, schemas.Resource{}, 1)
	}
	write := func(s State, r schemas.Resource, was *schemas.Resource, kept int64) error {
		if kept == 0 && was != nil {
			if len(all) > 0 { // as the first import brought it
				if err := put(all[0], *was, 1); err != nil {
					return err
				}
			}
			kept = 1
		}
		if kept >= KeepStates {
			if _, err := tx.ExecContext(ctx, `DELETE FROM inventory_resource_versions WHERE resource=$1 AND version<=$2`, r.ID, kept+1-KeepStates); err != nil {
				return err
			}
		}
		return put(s, r, kept+1)
	}
	for some := range slices.Chunk(diff.put, 500) {
		kept, err := versions(ctx, tx, some)
		if err != nil {
			return err
		}
		for _, r := range some {
			s, was := now, old.resource(r.ID)
			if was != nil {
				s.Change = Changed
			}
			if err := write(s, r, was, kept[r.ID]); err != nil {
				return err
			}
		}
	}
	now.Change = Removed
	for some := range slices.Chunk(diff.remove, 500) {
		gone := make([]schemas.Resource, len(some))
		for i, id := range some {
			gone[i] = *old.resource(id)
		}
		kept, err := versions(ctx, tx, gone)
		if err != nil {
			return err
		}
		for _, r := range gone {
			if err := write(now, r, &r, kept[r.ID]); err != nil {
				return err
			}
		}
	}
	return nil
}

// versions are the latest that are kept of resources, by name.
func versions(ctx context.Context, tx *sql.Tx, of []schemas.Resource) (map[string]int64, error) {
	names := make([]string, len(of))
	for i := range of {
		names[i] = of[i].ID
	}
	list, args := sqldb.In(1, names)
	out := make(map[string]int64, len(of))
	_, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (struct{}, error) {
		var name string
		var version int64
		err := rows.Scan(&name, &version)
		out[name] = version
		return struct{}{}, err
	}, `SELECT resource, MAX(version) FROM inventory_resource_versions WHERE resource IN (`+list+`) GROUP BY resource`, args...)
	return out, err
}

func scanState(rows *sql.Rows) (s State, err error) {
	var ns int64
	var attrs []byte
	if err := rows.Scan(&s.Resource.ID, &s.Version, &ns, &s.Change, &s.Source, &s.Origin, &s.Actor, &s.Resource.Kind, &s.Resource.Parent, &attrs); err != nil {
		return s, err
	}
	s.Time = fromNano(ns)
	return s, json.Unmarshal(attrs, &s.Resource.Attrs)
}

// History returns the states of a resource that are kept, the latest first, those before a
// version where that is not 0. It is empty for what there never was.
func (i *Inventory) History(ctx context.Context, name string, before int64, limit int) ([]State, error) {
	if i.db == nil || name == "" {
		return nil, nil
	}
	found, err := sqldb.Rows(ctx, i.db, scanState, `SELECT `+stateColumns+` FROM inventory_resource_versions
WHERE resource=$1 AND ($2=0 OR version<$2) ORDER BY version DESC LIMIT $3`, name, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read what %s was: %w", name, err)
	}
	if len(found) == 0 && before == 0 {
		latest, err := i.Latest(ctx, []string{name})
		if s, ok := latest[name]; ok {
			found = append(found, s)
		}
		return found, err
	}
	return found, nil
}

// Latest returns the latest states of resources, by name; it knows those that are there, and
// those that were and of which something is kept.
func (i *Inventory) Latest(ctx context.Context, names []string) (map[string]State, error) {
	out := make(map[string]State, len(names))
	if i.db == nil || len(names) == 0 {
		return out, nil
	}
	list, args := sqldb.In(1, names)
	found, err := sqldb.Rows(ctx, i.db, scanState, `SELECT `+stateColumns+` FROM inventory_resource_versions v WHERE resource IN ('',`+list+`)
AND version=(SELECT MAX(version) FROM inventory_resource_versions WHERE resource=v.resource)`, args...)
	if err != nil {
		return nil, fmt.Errorf("read the latest states of resources: %w", err)
	}
	for _, s := range found {
		out[s.Resource.ID] = s
	}
	snap, all := i.Snapshot(), out[""]
	delete(out, "")
	for _, name := range names {
		if r, there := snap.Resource(name); there && out[name].Version == 0 {
			s := all
			s.Resource, s.Version, s.Change = r, 1, Added
			out[name] = s
		}
	}
	return out, nil
}
