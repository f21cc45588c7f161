// Package cursors keeps how far collectors have read their devices: a SEL record,
// a kernel sequence, in words that only the collector understands.
package cursors

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"auspex/internal/store/sqldb"
)

// Store keeps the positions of collectors in the relational store.
type Store struct{ db *sqldb.DB }

// New returns the positions that a database keeps.
func New(db *sqldb.DB) Store { return Store{db} }

// Cursor implements collectors.Cursors; "" is a position that was never kept.
func (c Store) Cursor(ctx context.Context, collector, device string) (string, error) {
	var pos string
	err := c.db.QueryRowContext(ctx, `SELECT position FROM cursors WHERE collector=$1 AND device=$2`, collector, device).Scan(&pos)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return pos, err
}

// SetCursor implements collectors.Cursors.
func (c Store) SetCursor(ctx context.Context, collector, device, position string) error {
	_, err := c.db.ExecContext(ctx, `INSERT INTO cursors (collector, device, position, updated_ns) VALUES ($1,$2,$3,$4)
ON CONFLICT (collector, device) DO UPDATE SET position=excluded.position, updated_ns=excluded.updated_ns`, collector, device, position, time.Now().UnixNano())
	if err != nil {
		return fmt.Errorf("store cursor of %s on %s: %w", collector, device, err)
	}
	return nil
}
