// Package sqltest gives tests a relational store of their own: a SQLite file, or,
// where POSTGRES_DSN names a server, a schema or a database on it.
package sqltest

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"auspex/internal/store/sqldb"
	schemasql "auspex/schemas/sql"
)

// DSN names an empty store, without any table, that lasts as long as the test.
func DSN(t testing.TB) string {
	t.Helper()
	server := os.Getenv("POSTGRES_DSN")
	if server == "" {
		return filepath.Join(t.TempDir(), "auspex.db")
	}
	schema := fmt.Sprintf("test_%016x", rand.Uint64())
	do(t, server, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { do(t, server, "DROP SCHEMA "+schema+" CASCADE") })
	return server + " search_path=" + schema
}

// Open opens a store without rows and closes it with the test. It is a copy of one
// that was migrated once: the migrations take longer than most tests.
func Open(t testing.TB) *sqldb.DB {
	t.Helper()
	return connect(t, Migrated(t))
}

// Migrated names a store as [Open] opens it, for those who open it several times.
func Migrated(t testing.TB) string {
	t.Helper()
	if server := os.Getenv("POSTGRES_DSN"); server != "" {
		return copyDatabase(t, server)
	}
	return File(t)
}

// OpenFile is [Open] of a SQLite file, whatever POSTGRES_DSN says: for what is about SQLite.
func OpenFile(t testing.TB) *sqldb.DB {
	t.Helper()
	return connect(t, File(t))
}

func connect(t testing.TB, dsn string) *sqldb.DB {
	t.Helper()
	db, err := sqldb.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// migrated returns a file with all tables; closing it has left nothing beside it.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "sqltest")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "auspex.db")
	if err := migrate(file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

func migrate(dsn string) error {
	db, err := sqldb.Open(context.Background(), dsn)
	if err != nil {
		return err
	}
	return db.Close()
}

// File names a SQLite file with all tables and without rows, that lasts as long as the test.
func File(t testing.TB) string {
	t.Helper()
	b, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "auspex.db")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// copyDatabase makes a database from the server's template, which the first test
// of all processes makes and which stays, named after what the migrations say.
func copyDatabase(t testing.TB, server string) string {
	t.Helper()
	template, err := templateOf(server)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("test_%016x", rand.Uint64())
	do(t, server, "CREATE DATABASE "+name+" TEMPLATE "+template)
	t.Cleanup(func() { do(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	return server + " dbname=" + name
}

var (
	templates sync.Mutex
	template  = make(map[string]string) // by server
)

func templateOf(server string) (name string, err error) {
	templates.Lock()
	defer templates.Unlock()
	if name = template[server]; name != "" {
		return name, nil
	}
	h := fnv.New64a()
	err = fs.WalkDir(schemasql.Relational, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(schemasql.Relational, path)
		_, _ = fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	if err != nil {
		return "", err
	}
	name = fmt.Sprintf("template_%016x", h.Sum64())
	if err := makeTemplate(context.Background(), server, name); err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	template[server] = name
	return name, nil
}

// makeTemplate makes a migrated database, unless there is one. One process does;
// it has its name when it is complete, so that nobody copies half of it.
func makeTemplate(ctx context.Context, server, name string) error {
	db, err := sql.Open("pgx", server)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // and with the session its lock
	session, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err := session.ExecContext(ctx, `SELECT pg_advisory_lock(hashtext('sqltest'))`); err != nil {
		return err
	}
	var made bool
	if err := session.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname=$1)`, name).Scan(&made); err != nil || made {
		return err
	}
	half := "half_" + name
	for _, statement := range []string{"DROP DATABASE IF EXISTS " + half + " WITH (FORCE)", "CREATE DATABASE " + half} {
		if _, err := session.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := migrate(server + " dbname=" + half); err != nil {
		return err
	}
	_, err = session.ExecContext(ctx, "ALTER DATABASE "+half+" RENAME TO "+name)
	return err
}

// do says a statement to the server; also when the test is over.
func do(t testing.TB, server, statement string) {
	t.Helper()
	db, err := sql.Open("pgx", server)
	if err == nil {
		_, err = db.ExecContext(context.WithoutCancel(t.Context()), statement)
		_ = db.Close()
	}
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
