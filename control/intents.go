package control

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/schemas"
)

// Verbs of intents.
const (
	verbApprove = "approve"
	// verbOverride lets a step through a change freeze.
	verbOverride = "override"
	verbCancel   = schemas.IntentCancel
	verbDryRun   = "dry-run"
	verbResolve  = "resolve"
	verbRequest  = schemas.IntentRequest
)

// Verbs of ours by which a step becomes a person's.
const (
	verbPropose  = "propose"
	verbEscalate = "escalate"
)

// onIntents stores what people decided before the bus is told that it was read.
// The climb of a waiting action takes it from there, the tick that of a proposal.
func (c *Controller) onIntents(ctx context.Context, msgs []bus.Message) error {
	for _, m := range msgs {
		var in schemas.Intent
		err := json.Unmarshal(m.Value, &in)
		asked := in.Verb == verbRequest
		if err != nil || asked && !complete(in) || !asked && in.Action == "" {
			c.ignored.WithLabelValues(schemas.TopicIntents).Inc()
			c.d.Log.Warn("cannot read intent", "partition", m.Partition, "offset", m.Offset)
			continue
		}
		if asked {
			if err := c.request(ctx, in); err != nil {
				return err
			}
			continue
		}
		kept, err := c.store.putIntent(ctx, in)
		if err != nil {
			return err
		}
		if !kept {
			c.ignored.WithLabelValues(schemas.TopicIntents).Inc()
			c.d.Log.Info("intent came too late", "action", in.Action, "verb", in.Verb)
			continue
		}
		c.mu.Lock()
		w := c.wake[in.Action]
		c.mu.Unlock()
		select {
		case w <- struct{}{}:
		default:
		}
	}
	return nil
}

// decided takes up what people said of proposals: nobody climbs those.
func (c *Controller) decided(ctx context.Context) error {
	todo, err := c.store.decisions(ctx)
	if err != nil {
		return err
	}
	for _, d := range todo {
		a := &d.action
		switch d.verb {
		case verbCancel:
			a.Actor = d.actor
			become(a, schemas.ActionCancelled, messages.New(messages.CancelledBy, messages.Args{"who": d.actor}))
		case verbResolve:
			a.Actor = d.actor
			verified(a, resolved(d.actor, d.note))
		case verbDryRun:
			p, _ := c.policyOf(&d.climb)
			if a.Rung < len(p.Ladder) {
				c.cost(ctx, &d.climb, a, p.Ladder[a.Rung])
				if a.Rails, err = c.check(ctx, &d.climb, p, a.Rung, true); err != nil {
					return err
				}
			}
			become(a, a.State, c.tried(ctx, &d.climb, *a))
		}
		if err := c.saveDecision(ctx, &d.climb, a, d.verb); err != nil {
			return err
		}
	}
	return nil
}

// tried says what a step would do now, or why it cannot be done.
func (c *Controller) tried(ctx context.Context, k *climb, a schemas.Action) schemas.Sentence {
	_, sentence := c.plan(ctx, k, a)
	return messages.New(messages.Tried, messages.Args{"what": sentence})
}

// putIntent keeps a decision about an action that is still open to it; the last
// one counts, but a trial replaces nothing. A proposal cannot be approved. What persons said for a step is
// kept of each of them.
func (s *store) putIntent(ctx context.Context, in schemas.Intent) (kept bool, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if in.Verb == verbOverride {
			var state string
			if err := tx.QueryRowContext(ctx, `SELECT state FROM control_actions WHERE id=$1`, in.Action).Scan(&state); errors.Is(err, sql.ErrNoRows) {
				return nil
			} else if err != nil {
				return err
			}
			if kept = state == schemas.ActionWaiting; !kept {
				return nil
			}
			return vote(ctx, tx, in, s.now())
		}
		if in.Verb == verbCancel {
			if kept, err = s.endable(ctx, tx, in); kept || err != nil {
				return err
			}
		}
		if in.Verb == verbResolve {
			if ok, err := resolvable(ctx, tx, in.Action); err != nil || !ok {
				return err
			}
		}
		if kept, err = decide(ctx, tx, in); err != nil || !kept || in.Verb != verbApprove {
			return err
		}
		return vote(ctx, tx, in, s.now())
	})
	if err != nil {
		return false, fmt.Errorf("store intent for %s: %w", in.Action, err)
	}
	return kept, nil
}

// endable keeps that a step which was sent is to be ended, where its driver can do that and its effect is not there yet.
func (s *store) endable(ctx context.Context, tx *sql.Tx, in schemas.Intent) (kept bool, err error) {
	var doc string
	var a schemas.Action
	err = tx.QueryRowContext(ctx, `SELECT doc FROM control_actions WHERE id=$1 AND state IN ($2,$3)`, in.Action, schemas.ActionRunning, schemas.ActionVerifying).Scan(&doc)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(doc), &a)
	}
	if err != nil || !slices.Contains(s.ends, a.Kind) || !a.EffectAt.IsZero() {
		return false, err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO control_intents (action, verb, actor, note) VALUES ($1,$2,$3,$4)
ON CONFLICT (action) DO UPDATE SET verb=excluded.verb, actor=excluded.actor, note=excluded.note`, in.Action, in.Verb, in.Actor, in.Note)
	return err == nil, err
}

func decide(ctx context.Context, tx *sql.Tx, in schemas.Intent) (kept bool, err error) {
	r, err := tx.ExecContext(ctx, `INSERT INTO control_intents (action, verb, actor, note)
SELECT id, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($8 AS TEXT) FROM control_actions WHERE id=$1 AND (state=$4 OR state=$5 AND $2 <> $6)
ON CONFLICT (action) DO UPDATE SET verb=excluded.verb, actor=excluded.actor, note=excluded.note WHERE excluded.verb <> $7`,
		in.Action, in.Verb, in.Actor, schemas.ActionWaiting, schemas.ActionProposed, verbApprove, verbDryRun, in.Note)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// intent returns what was decided about an action, or nothing.
func (s *store) intent(ctx context.Context, action string) (verb, actor string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT verb, actor FROM control_intents WHERE action=$1`, action).Scan(&verb, &actor)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", nil
	}
	return verb, actor, err
}

// decision is what a person said of a proposal.
type decision struct {
	verb, actor string
	note        string
	action      schemas.Action
	climb       climb
}

func (s *store) decisions(ctx context.Context) ([]decision, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT i.verb, i.actor, i.note, a.doc, c.doc FROM control_intents i
JOIN control_actions a ON a.id = i.action JOIN control_cases c ON c.id = a.case_id WHERE a.state=$1 ORDER BY i.action`, schemas.ActionProposed)
	if err != nil {
		return nil, fmt.Errorf("list decisions: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []decision
	for rows.Next() {
		var d decision
		var ad, cd string
		if err := rows.Scan(&d.verb, &d.actor, &d.note, &ad, &cd); err != nil {
			return nil, err
		}
		if err := errors.Join(json.Unmarshal([]byte(ad), &d.action), json.Unmarshal([]byte(cd), &d.climb)); err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, rows.Err()
}
