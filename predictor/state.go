package predictor

import (
	"context"
	"database/sql"
	"encoding/base64"
	"time"

	"github.com/auspex-dev/auspex/internal/store/sqldb"
)

// keepStates is how long the state of a series that sends no more is kept.
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
			for _, s := range part {
				_, err := tx.ExecContext(ctx, `INSERT INTO predictor_series (id, updated_ns, state) VALUES ($1,$2,$3)
ON CONFLICT (id) DO UPDATE SET updated_ns=excluded.updated_ns, state=excluded.state`, s.id, now.UnixNano(), base64.StdEncoding.EncodeToString(s.state))
				if err != nil {
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
