package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"auspex/internal/run"
)

const (
	// migrationKey names the lock among the advisory locks of a PostgreSQL database.
	migrationKey = 0x617573706578 // "auspex"
	// migrationWait is how long another process may take to migrate.
	migrationWait = 5 * time.Minute
	// lockPoll is how often a lock that is taken is tried again.
	lockPoll = 100 * time.Millisecond
)

// errMigrating says that the turn to migrate did not come.
var errMigrating = fmt.Errorf("another process has been migrating the relational store for %s", migrationWait)

// exclusively runs f while no other process migrates the same store: processes that
// start at once on an empty store would each create what the others create.
// PostgreSQL's lock belongs to a session and ends with it, a file's with the process.
func exclusively(ctx context.Context, try func(context.Context) (bool, error), f func() error) error {
	for began := time.Now(); ; {
		switch ok, err := try(ctx); {
		case err != nil:
			return fmt.Errorf("open relational store: %w", err)
		case ok:
			return f()
		case time.Since(began) >= migrationWait:
			return errMigrating
		}
		if err := run.Sleep(ctx, lockPoll); err != nil {
			return err
		}
	}
}

// lockedPostgres takes an advisory lock in a session of its own: goose works in others.
func lockedPostgres(ctx context.Context, db *sql.DB, f func() error) error {
	session, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open relational store: %w", err)
	}
	held := false
	err = exclusively(ctx, func(ctx context.Context) (bool, error) {
		err := session.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, int64(migrationKey)).Scan(&held)
		return held, err
	}, f)
	if held { // also when ctx is done: the session goes back to the pool
		_, unlock := session.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(migrationKey))
		err = errors.Join(err, unlock)
	}
	return errors.Join(err, session.Close())
}

// lockedFile locks a file beside the store. It is left there: whoever waits for it
// has it open.
func lockedFile(ctx context.Context, store string, f func() error) error {
	lock, err := os.OpenFile(store+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open relational store: %w", err)
	}
	defer func() { _ = lock.Close() }()
	return exclusively(ctx, func(context.Context) (bool, error) {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	}, f)
}
