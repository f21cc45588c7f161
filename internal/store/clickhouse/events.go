package clickhouse

import (
	"context"
	"fmt"
	"strings"

	"auspex/internal/store/records"
	"auspex/schemas"
)

const eventColumns = `id, time, observed, source, resource, type, code, severity, state, message, attrs`

// Events returns a page of the events of a history, those observed last first where no other order is asked
// for, and the cursor of the page that follows, or "" where nothing does.
func (db *DB) Events(ctx context.Context, f records.EventFilter) (page []schemas.Event, next string, err error) {
	where, args := []string{"1"}, []any{}
	also := func(condition string, values ...any) { where, args = append(where, condition), append(args, values...) }
	// Times are given as numbers: as texts they would lose what is below a second.
	if !f.Since.IsZero() {
		also(`observed >= fromUnixTimestamp64Nano(?)`, f.Since.UnixNano())
	}
	if !f.Until.IsZero() {
		also(`observed <= fromUnixTimestamp64Nano(?)`, f.Until.UnixNano())
	}
	if f.Device != "" {
		also(`(server = ? OR resource = ?)`, f.Device, f.Device)
	}
	for _, c := range []struct{ column, value string }{{"type", f.Type}, {"source", f.Source}, {"severity", f.Severity}} {
		if c.value != "" {
			also(c.column+` = ?`, c.value)
		}
	}
	than, way := "<", " DESC"
	if f.Oldest {
		than, way = ">", ""
	}
	if f.After != "" {
		c, err := f.Behind()
		if err != nil {
			return nil, "", fmt.Errorf("list events: %w", err)
		}
		// The first spares partitions.
		also(`observed `+than+`= fromUnixTimestamp64Nano(?) AND (observed, id) `+than+` (fromUnixTimestamp64Nano(?), ?)`, c.Time, c.Time, c.ID)
	}
	found, err := db.events(ctx, strings.Join(where, " AND ")+` ORDER BY observed`+way+`, id`+way+` LIMIT ?`, append(args, f.Limit+1)...)
	if err != nil {
		return nil, "", err
	}
	page, next = f.Page(found)
	return page, next, nil
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
	out := []schemas.Event{}
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
