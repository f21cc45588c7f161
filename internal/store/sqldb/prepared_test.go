package sqldb

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
)

// one opens a store of one connection, so that what one asks meets what was asked before.
func one(t testing.TB) *sql.DB {
	t.Helper()
	db, err := openSQLite("file:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE a (n INTEGER UNIQUE); INSERT INTO a VALUES (1), (2), (3)`); err != nil {
		t.Fatal(err)
	}
	return db
}

// TestAStatementIsAskedWhileItsRowsAreRead holds that rows that are being read are not begun anew, which
// would have no end.
func TestAStatementIsAskedWhileItsRowsAreRead(t *testing.T) {
	tx, err := one(t).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	const text, want, numbers = `SELECT n FROM a ORDER BY n`, "[1 1 2 3 2 1 2 3 3 1 2 3]", 12
	read := func(depth int) (got []int) {
		var next func(depth int)
		next = func(depth int) {
			rows, err := tx.QueryContext(t.Context(), text)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var n int
				if err := rows.Scan(&n); err != nil {
					t.Fatal(err)
				}
				if got = append(got, n); len(got) > numbers {
					t.Fatalf("rows that were being read are begun anew: %v", got)
				}
				if depth > 1 {
					next(depth - 1)
				}
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
		}
		next(depth)
		return got
	}
	for range 3 {
		if got := fmt.Sprint(read(2)); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}

// TestKeptStatements holds what becomes of them: errors leave them usable, another schema is seen,
// and there are not more of them than may be.
func TestKeptStatements(t *testing.T) {
	db := one(t)
	add := func(n int) error { _, err := db.ExecContext(t.Context(), `INSERT INTO a VALUES ($1)`, n); return err }
	for n := 4; n < 10; n++ {
		if err := add(n); err != nil {
			t.Fatal(err)
		}
		if err := add(1); err == nil {
			t.Fatal("the same again was taken")
		}
	}
	const all = `SELECT * FROM a`
	columns := func() int {
		rows, err := db.QueryContext(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		names, err := rows.Columns()
		if err != nil || rows.Err() != nil {
			t.Fatal(err, rows.Err())
		}
		return len(names)
	}
	before := columns()
	if _, err := db.ExecContext(t.Context(), `ALTER TABLE a ADD COLUMN m INTEGER`); err != nil {
		t.Fatal(err)
	}
	if after := columns(); before != 1 || after != 2 {
		t.Errorf("%d columns, and one more are %d", before, after)
	}
	for n := range 3 * keptStatements {
		var got int
		if err := db.QueryRowContext(t.Context(), fmt.Sprintf(`SELECT %d FROM a`, n)).Scan(&got); err != nil || got != n {
			t.Fatal(got, err)
		}
	}
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Raw(func(c any) error {
		if n := len(c.(*keepingConn).kept); n == 0 || n > keptStatements {
			return fmt.Errorf("%d statements are kept", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func BenchmarkQuery(b *testing.B) {
	db := one(b)
	for b.Loop() {
		var n int
		if err := db.QueryRowContext(b.Context(), `SELECT count(*) FROM a AS x JOIN a AS y ON x.n=y.n WHERE x.n>$1`, 1).Scan(&n); err != nil {
			b.Fatal(err)
		}
	}
}
