package control

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"auspex/internal/run"
)

// leadership is the subject of the lease that one controller of a store has: it alone decides, since the budgets count
// what it holds in memory. No resource is named so.
const leadership = "leadership of control"

// errDeposed: another controller of this store has come to lead; nothing may be written or sent any more.
var errDeposed = errors.New("another controller leads")

// errTwice: the side effect of an action was decided before.
var errTwice = errors.New("the step was decided before")

// lead takes the leadership where nobody has it. At the first attempt of a process it takes it from the process of the
// same name before it, which has ended, or is fenced off.
func (s *store) lead(ctx context.Context, first bool) (ok bool, err error) {
	now := s.now()
	var token int64
	err = s.db.QueryRowContext(ctx, `INSERT INTO control_leases (subject, holder, token, expires_ns) VALUES ($1,$2,1,$3)
ON CONFLICT (subject) DO UPDATE SET token=control_leases.token+1, holder=excluded.holder, expires_ns=excluded.expires_ns
WHERE control_leases.expires_ns < $4 OR $5 = 1 AND control_leases.holder = excluded.holder
RETURNING token`, leadership, s.holder, now.Add(s.ttl).UnixNano(), now.UnixNano(), one(first)).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("take the leadership: %w", err)
	}
	s.term.Store(token)
	return true, nil
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fence makes sure, in the transaction of a write, that this controller still leads, and keeps others from it until the
// transaction ends. It renews the lease. One that has never led is fenced off only by somebody who does.
func (s *store) fence(ctx context.Context, tx *sql.Tx) error {
	r, err := tx.ExecContext(ctx, `UPDATE control_leases SET expires_ns=$4 WHERE subject=$1 AND holder=$2 AND token=$3`,
		leadership, s.holder, s.term.Load(), s.now().Add(s.ttl).UnixNano())
	if err != nil {
		return fmt.Errorf("renew the leadership: %w", err)
	}
	n, err := r.RowsAffected()
	if err != nil || n == 1 {
		return err
	}
	if s.term.Load() == 0 {
		err = tx.QueryRowContext(ctx, `SELECT count(*) FROM control_leases WHERE subject=$1 AND expires_ns>0`, leadership).Scan(&n)
		if err != nil || n == 0 {
			return err
		}
	}
	return errDeposed
}

// leads reports whether this controller still leads: nil, or [errDeposed].
func (s *store) leads(ctx context.Context) error {
	return s.db.InTx(ctx, func(tx *sql.Tx) error { return s.fence(ctx, tx) })
}

// resign gives the leadership up, so that nobody has to wait for its end.
func (s *store) resign(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, `UPDATE control_leases SET expires_ns=0 WHERE subject=$1 AND holder=$2 AND token=$3`, leadership, s.holder, s.term.Load())
	s.term.Store(-1)
	return err
}

// fenced writes as long as this controller leads.
func (s *store) fenced(ctx context.Context, write func(tx *sql.Tx) error) error {
	return s.db.InTx(ctx, func(tx *sql.Tx) error {
		if err := s.fence(ctx, tx); err != nil {
			return err
		}
		return write(tx)
	})
}

// standBy bounds the wait between two attempts to lead.
const standBy = 5 * time.Second

// Run leads as soon as no other controller of this store does: it takes up what was open, then follows incidents and
// intents until ctx is done. One that stands by is ready too.
func (c *Controller) Run(ctx context.Context, ready func()) error {
	ready = sync.OnceFunc(ready)
	for first := true; ; first = false {
		ok, err := c.store.lead(ctx, first)
		for err == nil && !ok {
			ready()
			if run.Sleep(ctx, min(standBy, c.cfg.LeaseTTL/4)) != nil {
				return nil
			}
			ok, err = c.store.lead(ctx, false)
		}
		if err == nil {
			err = c.serve(ctx, ready)
			c.resign(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, errDeposed) {
			return err
		}
		c.d.Log.Warn("another controller leads; this one stands by")
		c.forget()
	}
}

// resignWithin bounds how long a process that ends waits for its store.
const resignWithin = 2 * time.Second

func (c *Controller) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
	defer cancel()
	if err := c.store.resign(ctx); err != nil {
		c.d.Log.Warn("cannot give up the leadership; it ends by itself", "after", c.cfg.LeaseTTL, "error", err)
	}
}

// keepLeading renews the leadership where nothing is written for long.
func (c *Controller) keepLeading(ctx context.Context) error {
	for run.Sleep(ctx, c.cfg.LeaseTTL/3) == nil {
		switch err := c.store.leads(ctx); {
		case errors.Is(err, errDeposed):
			return err
		case err != nil && ctx.Err() == nil:
			c.d.Log.Warn("cannot renew the leadership", "error", err)
		}
	}
	return nil
}

// forget drops what was known while this controller led: it is read anew.
func (c *Controller) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.incidents)
	clear(c.open)
	clear(c.out)
	clear(c.wake)
	clear(c.withdrawn)
	c.taken, c.asked = nil, nil
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.told = nil // another has told since
}
