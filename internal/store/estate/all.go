package estate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// All returns the servers that are in the inventory, and their GPUs.
func (s *Store) All(ctx context.Context) ([]schemas.Server, []schemas.GPU, error) {
	some, err := servers(ctx, s.db, `s.present AND s.status<>'retired' ORDER BY s.name`)
	if err != nil {
		return nil, nil, fmt.Errorf("read servers: %w", err)
	}
	parts, err := gpus(ctx, s.db, `g.present AND s.present AND s.status<>'retired' ORDER BY g.name`)
	if err != nil {
		return nil, nil, fmt.Errorf("read GPUs: %w", err)
	}
	return some, parts, nil
}

// Some returns servers with their GPUs, by id; those that have left the inventory among them.
func (s *Store) Some(ctx context.Context, ids []string) ([]schemas.Server, []schemas.GPU, error) {
	in, args := sqldb.In(1, ids)
	some, err := servers(ctx, s.db, `s.id IN (`+in+`)`, args...)
	if err != nil {
		return nil, nil, fmt.Errorf("read servers: %w", err)
	}
	parts, err := gpus(ctx, s.db, `g.present AND g.server_id IN (`+in+`) ORDER BY g.name`, args...)
	if err != nil {
		return nil, nil, fmt.Errorf("read GPUs: %w", err)
	}
	return some, parts, nil
}

// Change is that something about a server was changed: the server, a GPU, or a claim.
type Change struct {
	Server, Of string // ids
	At         int64  // ns
}

// Changes returns what was changed since a time; the same thing changed again is another.
func (s *Store) Changes(ctx context.Context, since time.Time) ([]Change, error) {
	return sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (c Change, err error) { return c, rows.Scan(&c.Server, &c.Of, &c.At) },
		`SELECT id, id, updated_ns FROM servers WHERE updated_ns>=$1 UNION ALL SELECT server_id, id, updated_ns FROM gpus WHERE updated_ns>=$1
UNION ALL SELECT server_id, allocation_id || '/' || unit, changed_ns FROM allocation_claims WHERE changed_ns>=$1`, since.UnixNano())
}

// Cases names the servers on which control has a case open.
func (s *Store) Cases(ctx context.Context) (map[string]string, error) {
	pairs, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (p [2]string, err error) { return p, rows.Scan(&p[0], &p[1]) },
		`SELECT subject, id FROM control_cases WHERE state='open'`)
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		out[p[0]] = p[1]
	}
	return out, err
}
