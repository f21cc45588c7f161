package control

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"auspex/internal/store/sqldb"
)

// counts is what the budgets are counted by, held in memory while this controller leads: then nobody else writes it.
type counts struct {
	term  int64                // in which it was read; 0 is never
	ended map[string]time.Time // when something was last ended on a server
	hour  []time.Time          // of such steps, by time
}

// destructive counts steps that ended something within the last hour, in the whole fleet, and tells when the last on a
// server was.
func (c *Controller) destructive(ctx context.Context, now time.Time, subject string) (fleet int, last time.Time, err error) {
	term := c.store.term.Load()
	if term <= 0 { // somebody else may write
		return c.store.destructiveSince(ctx, now.Add(-time.Hour), subject)
	}
	c.counting.Lock()
	defer c.counting.Unlock()
	if c.counts.term != term {
		steps, err := c.store.destructiveSteps(ctx)
		if err != nil {
			return 0, last, err
		}
		c.counts = counts{term: term, ended: map[string]time.Time{}}
		for _, s := range steps {
			c.counts.add(s.subject, s.at)
		}
	}
	old, _ := slices.BinarySearchFunc(c.counts.hour, now.Add(-time.Hour), time.Time.Compare)
	c.counts.hour = slices.Delete(c.counts.hour, 0, old)
	return len(c.counts.hour), c.counts.ended[subject], nil
}

// ends notes a step that ends something, before it is written: one whose write fails may have been kept.
func (c *Controller) ends(subject string, at time.Time) {
	c.counting.Lock()
	defer c.counting.Unlock()
	if c.counts.term != 0 {
		c.counts.add(subject, at)
	}
}

func (n *counts) add(subject string, at time.Time) {
	n.ended[subject] = at
	n.hour = append(n.hour, at)
}

type ending struct {
	subject string
	at      time.Time
}

// destructiveSteps are all steps that ended something, the oldest first.
func (s *store) destructiveSteps(ctx context.Context) ([]ending, error) {
	out, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (e ending, err error) {
		var ns int64
		err = rows.Scan(&e.subject, &ns)
		e.at = time.Unix(0, ns)
		return e, err
	}, `SELECT c.subject, a.intent_ns FROM control_actions a JOIN control_cases c ON c.id = a.case_id
WHERE a.destructive = TRUE AND a.intent_ns > 0 ORDER BY a.intent_ns`)
	if err != nil {
		return nil, fmt.Errorf("list destructive steps: %w", err)
	}
	return out, nil
}

// notes keeps apart, of the ladders that stand, those that keep a server out of the pool; c.mu is held.
func (c *Controller) notes(k *climb) {
	if c.open[k.key()] == k && k.Touched && !k.limits() {
		c.out[k.key()] = k
	} else if o := c.out[k.key()]; o == k || c.open[k.key()] != o {
		delete(c.out, k.key())
	}
}
