package sqldb_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

// openDSN names the store that a child of these tests opens.
const openDSN = "AUSPEX_TEST_OPEN_DSN"

func TestMain(m *testing.M) {
	dsn := os.Getenv(openDSN)
	if dsn == "" {
		os.Exit(m.Run())
	}
	db, err := sqldb.Open(context.Background(), dsn)
	if err == nil {
		_, err = db.Exec(`UPDATE inventory_version SET workloads=workloads+1 WHERE id=1`)
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	_ = db.Close()
}

// Where POSTGRES_DSN names a server this is about PostgreSQL, else about a file.
func TestProcessesThatStartAtOnceOnAnEmptyStoreTakeTurnsToMigrate(t *testing.T) {
	const n = 8
	dsn := sqltest.DSN(t)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), openDSN+"="+dsn)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	wg.Wait()
	db, err := sqldb.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var opened int
	if err := db.QueryRow(`SELECT workloads FROM inventory_version WHERE id=1`).Scan(&opened); err != nil || opened != n {
		t.Errorf("%d of %d processes have opened the store: %v", opened, n, err)
	}
}

func TestConnectionsThatOpenAnEmptyStoreAtOnceTakeTurns(t *testing.T) {
	for range 3 {
		dsn := sqltest.DSN(t)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				db, err := sqldb.Open(t.Context(), dsn)
				if err != nil {
					t.Error(err)
					return
				}
				_ = db.Close()
			})
		}
		wg.Wait()
	}
}

func TestWhoWaitsForAMigrationEndsWithItsContext(t *testing.T) {
	if os.Getenv("POSTGRES_DSN") == "" {
		t.Skip("POSTGRES_DSN names no server (test/peers/postgres.sh starts one)")
	}
	dsn := sqltest.DSN(t)
	db, err := sqldb.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	session, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.ExecContext(t.Context(), `SELECT pg_advisory_lock(107157075813752)`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := sqldb.Open(ctx, dsn); !errors.Is(err, context.DeadlineExceeded) &&
		(err == nil || !strings.Contains(err.Error(), "deadline")) {
		t.Errorf("opened while another migrates: %v", err)
	}
	if err := session.Close(); err != nil { // back to the pool, with its lock
		t.Fatal(err)
	}
	_ = db.Close() // the session ends, and the lock with it
	again, err := sqldb.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
}
