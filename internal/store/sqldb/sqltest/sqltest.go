// Package sqltest gives tests a relational store of their own: a SQLite file, or,
// where POSTGRES_DSN names a server, a schema on it.
package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"auspex/internal/store/sqldb"
)

// DSN names an empty store that lasts as long as the test.
func DSN(t testing.TB) string {
	t.Helper()
	server := os.Getenv("POSTGRES_DSN")
	if server == "" {
		return filepath.Join(t.TempDir(), "auspex.db")
	}
	schema := fmt.Sprintf("test_%016x", rand.Uint64())
	do := func(ctx context.Context, statement string) {
		t.Helper()
		db, err := sql.Open("pgx", server)
		if err == nil {
			_, err = db.ExecContext(ctx, statement)
			_ = db.Close()
		}
		if err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	do(t.Context(), "CREATE SCHEMA "+schema)
	t.Cleanup(func() { do(context.WithoutCancel(t.Context()), "DROP SCHEMA "+schema+" CASCADE") })
	return server + " search_path=" + schema
}

// Open opens an empty store and closes it with the test.
func Open(t testing.TB) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Open(t.Context(), DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
