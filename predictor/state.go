package predictor

import (
	"context"
	"database/sql"
	"encoding/base64"
	"fmt"
	"strings"
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

// saveStates writes states in transactions of a bounded size, then the positions
// up to which they have read: what a crash leaves half written is read again, and
// each series passes over what it has had. It drops states that nobody has
// written for long.
func saveStates(ctx context.Context, db *sqldb.DB, states []savedState, next map[int]int64, now time.Time) error {
	// Few long statements: the last ones are written within the grace of a stop, and
	// the store may be a network away.
	const chunk = 200
	newest := make(map[string][]byte, len(states))
	for _, st := range states {
		newest[st.id] = st.state
	}
	var q strings.Builder
	var args []any
	flush := func() error {
		if len(args) == 0 {
			return nil
		}
		q.WriteString(` ON CONFLICT (id) DO UPDATE SET updated_ns=excluded.updated_ns, state=excluded.state`)
		_, err := db.ExecContext(ctx, q.String(), args...)
		q.Reset()
		args = args[:0]
		return err
	}
	for id, state := range newest {
		if len(args) == 0 {
			q.WriteString(`INSERT INTO predictor_series (id, updated_ns, state) VALUES `)
		} else {
			q.WriteByte(',')
		}
		n := len(args)
		fmt.Fprintf(&q, "($%d,$%d,$%d)", n+1, n+2, n+3)
		if args = append(args, id, now.UnixNano(), base64.StdEncoding.EncodeToString(state)); len(args) == 3*chunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
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
