package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A position on the bus is an offset with the number of times that the log was
// found to have been begun anew above it, so that positions of the new log are
// higher than those of the old one. It is what bus_offset holds.
const generationShift = 40

// Position joins a generation of a partition's log and an offset in it.
func Position(generation, offset int64) int64 { return generation<<generationShift | offset }

// Generation returns the generation of a position.
func Generation(position int64) int64 { return position >> generationShift }

// Offset returns the offset of a position.
func Offset(position int64) int64 { return position & (1<<generationShift - 1) }

// Resume says where a reader of one partition of the bus goes on.
type Resume struct {
	// Start is the position to read from.
	Start int64
	// Next is, for each table, the position after the last one that it holds:
	// what comes before it has been written.
	Next map[string]int64
}

// Resume reads from the tables how far a reader of a topic has come, for each
// partition of the bus. A partition that is not there begins at 0.
func (db *DB) Resume(ctx context.Context, reader, topic string, tables []string) (map[int]Resume, error) {
	out := map[int]Resume{}
	at := func(p uint32) Resume {
		r, ok := out[int(p)]
		if !ok {
			r = Resume{Next: map[string]int64{}}
		}
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	read := func(each func(p uint32, next int64), query string, args ...any) error {
		rows, err := db.conn.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var p uint32
			var next int64
			if err := rows.Scan(&p, &next); err != nil {
				return err
			}
			each(p, next)
		}
		return rows.Err()
	}
	err := read(func(p uint32, next int64) {
		r := at(p)
		r.Start = next
		out[int(p)] = r
	}, "SELECT bus_partition, max(next_offset) FROM bus_positions WHERE reader = ? AND topic = ? GROUP BY bus_partition", reader, topic)
	if err != nil {
		return nil, fmt.Errorf("read positions of %s: %w", reader, err)
	}
	for _, t := range tables {
		err := read(func(p uint32, next int64) {
			r := at(p)
			r.Next[t] = next
			r.Start = max(r.Start, Position(Generation(next), 0))
			out[int(p)] = r
		}, "SELECT bus_partition, max(bus_offset) + 1 FROM "+t+" GROUP BY bus_partition")
		if err != nil {
			return nil, fmt.Errorf("read positions of %s from %s: %w", reader, t, err)
		}
	}
	return out, nil
}

// SavePositions notes that everything before the given positions has been
// written. It only saves reading again; losing it loses nothing.
func (db *DB) SavePositions(ctx context.Context, reader, topic string, next map[int]int64) error {
	if len(next) == 0 {
		return nil
	}
	var readers, topics []string
	var parts []uint32
	var offsets []int64
	var written []time.Time
	now := time.Now().UTC()
	for p, n := range next {
		readers, topics, written = append(readers, reader), append(topics, topic), append(written, now)
		parts, offsets = append(parts, uint32(p)), append(offsets, n)
	}
	return db.Insert(ctx, "bus_positions", fmt.Sprintf("%s/%s/%d", reader, topic, now.UnixNano()), []Column{
		{"reader", readers}, {"topic", topics}, {"bus_partition", parts}, {"next_offset", offsets}, {"written", written},
	})
}

// RecentEventIDs returns the ids of the newest events, at most limit, newest
// last, and whether they are all that there are.
func (db *DB) RecentEventIDs(ctx context.Context, limit int) (ids []string, all bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	rows, err := db.conn.Query(
		ctx, fmt.Sprintf("SELECT id FROM (SELECT id, observed FROM events ORDER BY observed DESC LIMIT %d) ORDER BY observed", limit+1),
	)
	if err != nil {
		return nil, false, fmt.Errorf("read ids of events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, false, fmt.Errorf("read ids of events: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("read ids of events: %w", err)
	}
	if len(ids) > limit {
		return ids[len(ids)-limit:], false, nil
	}
	return ids, true, nil
}

// idsAQuery keeps a look-up below ClickHouse's max_query_size of 256 KiB.
const idsAQuery = 4000

// KnownEventIDs returns those of the ids that the table of events holds.
func (db *DB) KnownEventIDs(ctx context.Context, ids []string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	known := map[string]bool{}
	for chunk := range slices.Chunk(ids, idsAQuery) {
		var found []string
		if err := db.conn.QueryRow(ctx, "SELECT groupUniqArray(id) FROM events WHERE id IN (?)", chunk).Scan(&found); err != nil {
			return nil, fmt.Errorf("look up ids of events: %w", err)
		}
		for _, id := range found {
			known[id] = true
		}
	}
	return known, nil
}
