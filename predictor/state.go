package predictor

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/internal/store/sqldb"
)

// keepStates is how long the state of a series that sends no more is kept: twice the sixteen days that
// a summary covers, after which nothing in it says anything of the part.
const keepStates = 30 * 24 * time.Hour

// loadStates reads the state of every series, and where in each partition it ends.
func loadStates(ctx context.Context, db *sqldb.DB) (states map[string][]byte, next map[int]int64, err error) {
	states, next = map[string][]byte{}, map[int]int64{}
	err = scan(ctx, db, `SELECT id, state FROM predictor_series`, func(rows *sql.Rows) error {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			return err
		}
		if b, err := base64.StdEncoding.DecodeString(state); err == nil { // else it is learnt anew
			states[id] = b
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = scan(ctx, db, `SELECT part, next_offset FROM predictor_positions`, func(rows *sql.Rows) error {
		var part int
		var offset int64
		if err := rows.Scan(&part, &offset); err != nil {
			return err
		}
		next[part] = offset
		return nil
	})
	return states, next, err
}

func scan(ctx context.Context, db *sqldb.DB, query string, row func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// saveStates writes states in transactions of a bounded size, those of a device in
// one since they look at each other, then the positions up to which they have
// read: what a crash leaves half written is read again, and each series passes
// over what it has had. It drops states that nobody has written for long.
func saveStates(ctx context.Context, db *sqldb.DB, states []savedState, next map[int]int64, now time.Time) error {
	const chunk = 500
	for len(states) > 0 {
		n := min(chunk, len(states))
		for n < len(states) && states[n].device == states[n-1].device {
			n++
		}
		part := states[:n]
		states = states[n:]
		err := db.InTx(ctx, func(tx *sql.Tx) error {
			for rows := range slices.Chunk(part, 200) {
				if err := upsert(ctx, tx, rows, now); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return db.InTx(ctx, func(tx *sql.Tx) error {
		for part, offset := range next {
			_, err := tx.ExecContext(ctx, `INSERT INTO predictor_positions (part, next_offset) VALUES ($1,$2)
ON CONFLICT (part) DO UPDATE SET next_offset=excluded.next_offset`, part, offset)
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM predictor_series WHERE updated_ns < $1`, now.Add(-keepStates).UnixNano())
		return err
	})
}

// upsert writes states in one statement: the last ones are written within the grace
// of a stop, and the store may be a network away. Of two with one id the later counts.
func upsert(ctx context.Context, tx *sql.Tx, states []savedState, now time.Time) error {
	newest := make(map[string][]byte, len(states))
	for _, s := range states {
		newest[s.id] = s.state
	}
	var values []string
	var args []any
	for id, state := range newest {
		n := len(args)
		values = append(values, fmt.Sprintf("($%d,$%d,$%d)", n+1, n+2, n+3))
		args = append(args, id, now.UnixNano(), base64.StdEncoding.EncodeToString(state))
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO predictor_series (id, updated_ns, state) VALUES `+strings.Join(values, ",")+
		` ON CONFLICT (id) DO UPDATE SET updated_ns=excluded.updated_ns, state=excluded.state`, args...)
	return err
}
