package control

import (
	"context"
	"database/sql"
	"errors"
	"sync"
)

// writes are the changes that wait for a commit. Those that come while another is under way share the next: a storm of
// cases costs the disk no more than a few of them do.
type writes struct {
	mu      sync.Mutex
	waiting []*write
	commit  sync.Mutex // held by who commits
}

// write is one of them.
type write struct {
	do   func(tx *sql.Tx) error
	over bool
	err  error
}

// sharedWrites is how many changes are in one transaction, at most.
const sharedWrites = 128

// take returns the changes of the next transaction.
func (w *writes) take() []*write {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.waiting), sharedWrites)
	some := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	return some
}

// together writes as long as this controller leads, in one transaction with what others write meanwhile. One that fails
// takes none of the others with it; where the transaction does not end, each of them is told.
func (s *store) together(ctx context.Context, do func(tx *sql.Tx) error) error {
	w := &write{do: do}
	s.writes.mu.Lock()
	s.writes.waiting = append(s.writes.waiting, w)
	s.writes.mu.Unlock()
	s.writes.commit.Lock()
	defer s.writes.commit.Unlock()
	for !w.over { // by who committed before
		s.commit(ctx)
	}
	return w.err
}

// errUnfinished is of changes whose transaction ended in a panic.
var errUnfinished = errors.New("what is written with others did not end")

// commit writes what waits.
func (s *store) commit(ctx context.Context) {
	var some []*write
	err := errUnfinished
	defer func() {
		if some == nil { // nobody could begin
			some = s.writes.take()
		}
		for _, w := range some {
			if w.over = true; w.err == nil {
				w.err = err
			}
		}
	}()
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		some = s.writes.take() // after the wait for the turn: more have come
		if err := s.fence(ctx, tx); err != nil {
			return err
		}
		if len(some) == 1 {
			return some[0].do(tx)
		}
		for _, w := range some {
			if err := apart(ctx, tx, w); err != nil {
				return err
			}
		}
		return nil
	})
}

// apart does one change of several: it is undone alone where it fails.
func apart(ctx context.Context, tx *sql.Tx, w *write) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT one`); err != nil {
		return err
	}
	if w.err = w.do(tx); w.err != nil {
		if _, err := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT one`); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT one`)
	return err
}
