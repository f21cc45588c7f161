package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

// TestManyRowsAreInserted holds that rows are put whole, however many fit in a statement, and that what
// follows them is obeyed.
func TestManyRowsAreInserted(t *testing.T) {
	db := sqltest.Open(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE put (name TEXT PRIMARY KEY, n BIGINT NOT NULL, of_one TEXT NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context, from, to int) error {
		var rows [][]any
		for k := from; k < to; k++ {
			rows = append(rows, []any{fmt.Sprint("Row ", k), k})
		}
		return db.InLargeTx(ctx, func(tx *sql.Tx) error {
			return db.Insert(ctx, tx, `INSERT INTO put (name, n, of_one)`, `(lower(CAST(? AS TEXT)),?,'x')`, rows, `ON CONFLICT (name) DO UPDATE SET n=-excluded.n`)
		})
	}
	for _, upTo := range []int{0, 1, 100, 499, 500, 1000, 1357} {
		if err := put(t.Context(), 0, upTo); err != nil {
			t.Fatal(err)
		}
		var n, sum int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*), COALESCE(sum(abs(n)), 0) FROM put WHERE name='row ' || abs(n) AND of_one='x'`).Scan(&n, &sum); err != nil {
			t.Fatal(err)
		}
		if n != upTo || sum != upTo*(upTo-1)/2 {
			t.Errorf("%d rows of %d, which sum up to %d", n, upTo, sum)
		}
	}
	var negative int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM put WHERE n<0`).Scan(&negative); err != nil || negative != 999 {
		t.Errorf("%d rows met one that was there, want 999: %v", negative, err)
	}
	if db.Dialect == "sqlite3" {
		return
	}
	var known int // PostgreSQL plans by what it knows of a table
	if err := db.QueryRowContext(t.Context(), `SELECT reltuples FROM pg_class WHERE oid=to_regclass('put')`).Scan(&known); err != nil || known != 1357 {
		t.Errorf("the server takes the table for one of %d rows, want 1357: %v", known, err)
	}
}

// TestALargeTransactionLeavesNothing holds that one that fails changes nothing, neither rows nor how its
// connection works.
func TestALargeTransactionLeavesNothing(t *testing.T) {
	db := sqltest.Open(t)
	db.SetMaxOpenConns(1)
	settings := func() (out [2]int) {
		if db.Dialect != "sqlite3" {
			return out
		}
		for i, pragma := range []string{"cache_size", "temp_store"} {
			if err := db.QueryRowContext(t.Context(), `PRAGMA `+pragma).Scan(&out[i]); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	before, stop := settings(), errors.New("stop")
	err := db.InLargeTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO teams (id, name, created_ns, updated_ns) VALUES ('1', 'red', 1, 1)`)
		return errors.Join(err, stop)
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	teams, err := sqldb.Rows(t.Context(), db, func(rows *sql.Rows) (n int, err error) { return n, rows.Scan(&n) }, `SELECT count(*) FROM teams`)
	if err != nil || teams[0] != 0 || settings() != before {
		t.Errorf("%v teams, %v; %v, was %v", teams, err, settings(), before)
	}
}
