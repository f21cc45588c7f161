package clickhouse

import (
	"context"
	"fmt"
	"time"

	"auspex/schemas"
)

const eventColumns = `id, time, observed, source, resource, type, code, severity, state, message, attrs`

// Events returns events of a device, newest first; an empty device is all.
func (db *DB) Events(ctx context.Context, device string, since, until time.Time, limit int) ([]schemas.Event, error) {
	if until.IsZero() {
		until = time.Now().AddDate(1, 0, 0)
	}
	return db.events(ctx, `observed >= ? AND observed <= ? AND (? = '' OR server = ? OR resource = ?) ORDER BY observed DESC LIMIT ?`, since, until, device, device, device, limit)
}

// Event returns the event with an id, and whether there is one.
func (db *DB) Event(ctx context.Context, id string) (schemas.Event, bool, error) {
	found, err := db.events(ctx, `id = ? LIMIT 1`, id)
	if err != nil || len(found) == 0 {
		return schemas.Event{}, false, err
	}
	return found[0], true, nil
}

func (db *DB) events(ctx context.Context, where string, args ...any) ([]schemas.Event, error) {
	rows, err := db.Conn().Query(ctx, `SELECT `+eventColumns+` FROM events WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []schemas.Event
	for rows.Next() {
		var e schemas.Event
		var severity string
		if err := rows.Scan(&e.ID, &e.Time, &e.Observed, &e.Source, &e.Resource, &e.Type, &e.Code, &severity, &e.State, &e.Message, &e.Attrs); err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		e.Severity = schemas.Severity(severity)
		out = append(out, e)
	}
	return out, rows.Err()
}
