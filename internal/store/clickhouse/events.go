package clickhouse

import (
	"context"
	"fmt"
	"time"

	"auspex/schemas"
)

// Events returns events of a device, newest first; an empty device is all.
func (db *DB) Events(ctx context.Context, device string, since time.Time, limit int) ([]schemas.Event, error) {
	rows, err := db.Conn().Query(ctx, `SELECT id, time, observed, source, resource, type, code, severity, state, message FROM events
WHERE observed >= ? AND (? = '' OR server = ? OR resource = ?) ORDER BY observed DESC LIMIT ?`, since, device, device, device, limit)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []schemas.Event
	for rows.Next() {
		var e schemas.Event
		var severity string
		if err := rows.Scan(&e.ID, &e.Time, &e.Observed, &e.Source, &e.Resource, &e.Type, &e.Code, &severity, &e.State, &e.Message); err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		e.Severity = schemas.Severity(severity)
		out = append(out, e)
	}
	return out, rows.Err()
}
