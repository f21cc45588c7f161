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

// loadStates reads the state of every series.
func loadStates(ctx context.Context, db *sqldb.DB) (map[string][]byte, error) {
	rows, err := db.QueryContext(ctx, `SELECT id, state FROM predictor_series`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := map[string][]byte{}
	for rows.Next() {
		var id, state string
		if err := rows.Scan(&id, &state); err != nil {
			return nil, err
		}
		if b, err := base64.StdEncoding.DecodeString(state); err == nil { // else it is learnt anew
			out[id] = b
		}
	}
	return out, rows.Err()
}

// saveStates writes states in transactions of a bounded size, and drops those
// that nobody has written for long.
func saveStates(ctx context.Context, db *sqldb.DB, states []savedState, now time.Time) error {
	const chunk = 500
	for len(states) > 0 {
		part := states[:min(chunk, len(states))]
		states = states[len(part):]
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
	_, err := db.ExecContext(ctx, `DELETE FROM predictor_series WHERE updated_ns < $1`, now.Add(-keepStates).UnixNano())
	return err
}
