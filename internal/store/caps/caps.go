// Package caps keeps what power limits control has set on servers and what was set before, so that only what is ours is undone.
package caps

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Store reads and writes the table of migration 0125.
type Store struct{ db *sqldb.DB }

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db} }

// Put keeps the limit of a server, instead of what was kept of it before.
func (s *Store) Put(ctx context.Context, c schemas.PowerCap) error {
	doc, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("keep the power limit of %s: %w", c.Server, err)
	}
	released := int64(0)
	if !c.Released.IsZero() {
		released = c.Released.UnixNano()
	}
	if _, err := s.db.ExecContext(ctx, `INSERT INTO power_caps (server, feed, action, doc, released_ns) VALUES ($1,$2,$3,$4,$5)
  ON CONFLICT (server) DO UPDATE SET feed=excluded.feed, action=excluded.action, doc=excluded.doc, released_ns=excluded.released_ns`,
		c.Server, c.Feed, c.Action, string(doc), released); err != nil {
		return fmt.Errorf("keep the power limit of %s: %w", c.Server, err)
	}
	return nil
}

func scan(rows *sql.Rows) (c schemas.PowerCap, err error) {
	var doc string
	if err := rows.Scan(&doc); err != nil {
		return c, err
	}
	return c, json.Unmarshal([]byte(doc), &c)
}

// Of returns what is kept of a server, also where the limit was taken away.
func (s *Store) Of(ctx context.Context, server string) (c schemas.PowerCap, found bool, err error) {
	all, err := sqldb.Rows(ctx, s.db, scan, `SELECT doc FROM power_caps WHERE server=$1`, server)
	if err != nil {
		return c, false, fmt.Errorf("read the power limit of %s: %w", server, err)
	}
	if len(all) == 0 {
		return c, false, nil
	}
	return all[0], true, nil
}

// OfFeed returns what was limited for a feed that was lost, by server.
func (s *Store) OfFeed(ctx context.Context, feed string) ([]schemas.PowerCap, error) {
	all, err := sqldb.Rows(ctx, s.db, scan, `SELECT doc FROM power_caps WHERE feed=$1 ORDER BY server`, feed)
	if err != nil {
		return nil, fmt.Errorf("read the power limits for %s: %w", feed, err)
	}
	return all, nil
}
