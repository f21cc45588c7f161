package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/auspex-dev/auspex/control/policy"
	"github.com/auspex-dev/auspex/schemas"
)

const actor = "auspex"

// kindUncordon gives the server back to the scheduler: only what we cordoned.
const (
	kindDrain    = "drain"
	kindCordon   = "cordon"
	kindUncordon = "uncordon"
	kindTicket   = "ticket"
)

// work climbs the ladder of a case from where it stands.
func (c *Controller) work(ctx context.Context, k *climb) error {
	p, ok := c.policies.For(k.Fault)
	if !ok {
		return c.close(ctx, k, caseCancelled)
	}
	if k.Mode == schemas.ModeObserve || k.Mode == schemas.ModeDryRun {
		return c.propose(ctx, k, p)
	}
	for i := range p.Ladder {
		done, err := c.rung(ctx, k, p, i)
		if err != nil {
			return err
		}
		if !done {
			state := caseCancelled
			if k.Touched {
				state = caseFailed
				if err := c.ticket(ctx, k, p, i); err != nil {
					return err
				}
			}
			return c.close(ctx, k, state)
		}
	}
	return c.close(ctx, k, caseDone)
}

// propose shows the whole ladder with its rails; in dry-run each driver also
// says what it would do. Nothing is sent.
func (c *Controller) propose(ctx context.Context, k *climb, p policy.Policy) error {
	for i, r := range p.Ladder {
		a, found, err := c.store.action(ctx, k.ID, i, 1)
		if err != nil {
			return err
		}
		if found {
			continue
		}
		a = c.newAction(k, i, 1, r)
		if a.Rails, err = c.check(ctx, k, p, i, true); err != nil {
			return err
		}
		goes, waits := verdict(a.Rails)
		switch {
		case r.Person:
			a.State, a.Detail = schemas.ActionProposed, "for a person"
		case !goes && !waits:
			a.State, a.Detail = schemas.ActionRefused, blockedBy(a.Rails)
		case k.Mode == schemas.ModeObserve:
			a.State, a.Detail = schemas.ActionProposed, "observed only"
		default:
			plan, err := c.plan(ctx, k, a)
			if err != nil {
				a.State, a.Detail = schemas.ActionRefused, err.Error()
			} else {
				a.State, a.Detail = schemas.ActionProposed, plan
			}
		}
		if err := c.save(ctx, k, &a, r, time.Time{}, "propose"); err != nil {
			return err
		}
	}
	return c.close(ctx, k, caseProposed)
}

func (c *Controller) plan(ctx context.Context, k *climb, a schemas.Action) (string, error) {
	rem, ok := c.d.Remediators[a.Kind]
	if !ok {
		return "", fmt.Errorf("%w: no driver for %s", ErrCannot, a.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	defer cancel()
	return rem.Plan(ctx, step(k, a, c.d.Now()))
}

// rung does one rung, with its attempts; done is false when the ladder ends here.
func (c *Controller) rung(ctx context.Context, k *climb, p policy.Policy, i int) (done bool, err error) {
	r := p.Ladder[i]
	for attempt := 1; attempt <= max(1, r.Attempts); attempt++ {
		a, found, err := c.store.action(ctx, k.ID, i, attempt)
		if err != nil {
			return false, err
		}
		if !found {
			a = c.newAction(k, i, attempt, r)
		}
		if err := c.advance(ctx, k, p, &a, r); err != nil {
			return false, err
		}
		if r.Person { // it is theirs to do or to cancel; later rungs may not need it
			return true, nil
		}
		switch a.State {
		case schemas.ActionDone:
			return true, nil
		case schemas.ActionFailed, schemas.ActionUnknown:
			if a.State == schemas.ActionUnknown && r.Destructive {
				return false, nil
			}
			if attempt < r.Attempts {
				if err := c.pause(ctx, time.Duration(attempt)*retryAfter); err != nil {
					return false, err
				}
			}
		default: // refused, cancelled
			return false, nil
		}
	}
	return false, nil
}

// retryAfter is the wait before a second attempt; a third waits twice as long.
const retryAfter = 5 * time.Second

func (c *Controller) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// advance brings an action to a final state, from wherever it was left.
func (c *Controller) advance(ctx context.Context, k *climb, p policy.Policy, a *schemas.Action, r policy.Rung) error {
	if r.Person {
		if a.State == "" {
			a.State, a.Detail = schemas.ActionProposed, "for a person"
			rails, err := c.check(ctx, k, p, a.Rung, false)
			if err != nil {
				return err
			}
			a.Rails = rails
			return c.save(ctx, k, a, r, time.Time{}, "propose")
		}
		return nil
	}
	switch a.State {
	case "", schemas.ActionProposed, schemas.ActionWaiting, schemas.ActionApproved:
		if sent, err := c.send(ctx, k, p, a, r); err != nil || !sent {
			return err
		}
	case schemas.ActionRunning:
		// The process ended between the decision and the answer: look, do not send.
		a.State, a.Detail = schemas.ActionVerifying, "taken up after a restart; not sent again"
		if err := c.save(ctx, k, a, r, time.Time{}, "observe"); err != nil {
			return err
		}
		return c.verify(ctx, k, a, r, true)
	case schemas.ActionVerifying:
		return c.verify(ctx, k, a, r, a.Detail != "sent")
	default:
		return nil // it is final
	}
	return c.verify(ctx, k, a, r, a.Detail != "sent")
}

// send holds the step until its rails hold and, in approve, a person agrees; then
// it commits the intent and calls the driver.
func (c *Controller) send(ctx context.Context, k *climb, p policy.Policy, a *schemas.Action, r policy.Rung) (sent bool, err error) {
	wake := make(chan struct{}, 1)
	c.mu.Lock()
	c.wake[a.ID] = wake
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.wake, a.ID)
		c.mu.Unlock()
	}()
	approved := k.Mode == schemas.ModeEnforce || a.State == schemas.ActionApproved
	end := func(state, detail, verb string) (bool, error) {
		a.State, a.Detail = state, detail
		return false, c.save(ctx, k, a, r, time.Time{}, verb)
	}
	deadline := a.Created.Add(c.cfg.ApproveWithin)
	rem, ok := c.d.Remediators[a.Kind]
	if !ok {
		return end(schemas.ActionRefused, fmt.Sprintf("%s: no driver for %s", ErrCannot, a.Kind), "refuse")
	}
	shown, tried := "", ""
	for {
		verb, who, err := c.store.intent(ctx, a.ID)
		if err != nil {
			return false, err
		}
		switch verb {
		case verbApprove:
			approved, a.Actor = true, who
		case verbCancel:
			a.Actor = who
			return end(schemas.ActionCancelled, "cancelled by "+who, verb)
		case verbDryRun:
			shown, tried = "", "; "+c.tried(ctx, k, *a)
		}
		if !c.stands(k) && !k.Touched {
			return end(schemas.ActionCancelled, "the incident closed or names another cause now", "cancel")
		}
		if a.Kind == kindUncordon && !k.Cordoned {
			a.VerifiedBy = "left out of the pool: it was not cordoned by us"
			return end(schemas.ActionDone, "", "skip")
		}
		goes, wait, err := c.decideAndCommit(ctx, k, p, a, r, approved)
		if err != nil {
			return false, err
		}
		if goes {
			break
		}
		if !wait {
			return end(schemas.ActionRefused, blockedBy(a.Rails), "refuse")
		}
		detail := "waits for approval"
		if approved {
			detail = blockedBy(a.Rails)
		}
		if detail != shown { // tell once, not at each look
			shown = detail
			a.State, a.Detail = schemas.ActionWaiting, detail+tried
			if err := c.save(ctx, k, a, r, time.Time{}, cmp.Or(verb, "wait")); err != nil {
				return false, err
			}
		}
		if c.d.Now().After(deadline) {
			return end(schemas.ActionCancelled, "nobody approved, or no budget freed, within "+c.cfg.ApproveWithin.String(), "expire")
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-wake:
		case <-time.After(max(c.cfg.Poll, time.Second)):
		}
	}
	c.afterStep("intent " + a.Kind)
	call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	err = rem.Apply(call, step(k, *a, k.Decided))
	cancel()
	c.afterStep("applied " + a.Kind)
	if ctx.Err() != nil {
		return false, ctx.Err() // the next start observes
	}
	if errors.Is(err, ErrRejected) || errors.Is(err, ErrCannot) {
		if a.Kind == kindDrain || a.Kind == kindCordon {
			k.Cordoned = false
		}
		return end(schemas.ActionFailed, err.Error(), "fail")
	}
	a.State, a.Detail = schemas.ActionVerifying, "sent"
	switch {
	case errors.Is(err, ErrAlready):
		k.Cordoned = false
	case err != nil:
		a.Detail = "sent, the answer is not known: " + err.Error()
	}
	return true, c.save(ctx, k, a, r, time.Time{}, "sent")
}

// decideAndCommit checks the rails and, when the step may go, commits its intent:
// no other case can take the same budget in between.
func (c *Controller) decideAndCommit(ctx context.Context, k *climb, p policy.Policy, a *schemas.Action, r policy.Rung, approved bool) (goes, wait bool, err error) {
	c.decide.Lock()
	defer c.decide.Unlock()
	if a.Rails, err = c.check(ctx, k, p, a.Rung, false); err != nil {
		return false, false, err
	}
	goes, wait = verdict(a.Rails)
	if !goes {
		return false, wait, nil
	}
	if !approved {
		return false, true, nil
	}
	touched := k.Touched
	c.mu.Lock()
	k.Touched = true
	c.mu.Unlock()
	// A drain may reach the scheduler though its answer never comes: from here on
	// the server counts as cordoned by us.
	if a.Kind == kindDrain || a.Kind == kindCordon {
		k.Cordoned = true
	}
	k.Decided = c.d.Now().UTC()
	a.State, a.Detail = schemas.ActionRunning, "decided"
	if err := c.save(ctx, k, a, r, k.Decided, "intend"); err != nil {
		k.Touched = touched
		return false, false, err
	}
	return true, false, nil
}

// verify reads the world back until the effect is seen or its time is over.
func (c *Controller) verify(ctx context.Context, k *climb, a *schemas.Action, r policy.Rung, blind bool) error {
	rem := c.d.Remediators[a.Kind]
	if rem == nil {
		a.State, a.Detail = schemas.ActionUnknown, "no driver to look with"
		return c.save(ctx, k, a, r, time.Time{}, "unknown")
	}
	s := step(k, *a, k.Decided)
	deadline := c.d.Now().Add(max(r.Verify, c.cfg.Poll))
	last := "nothing was seen"
	for {
		call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
		v, saw, err := rem.Verify(call, s)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			last = err.Error()
		} else if saw != "" {
			last = saw
		}
		switch {
		case err == nil && v == Verified:
			a.State, a.VerifiedBy, a.Detail = schemas.ActionDone, saw, ""
			if a.Kind == kindUncordon {
				k.Cordoned = false
			}
			c.afterStep("verified " + a.Kind)
			return c.save(ctx, k, a, r, time.Time{}, "done")
		case err == nil && v == Failed && !blind:
			a.State, a.Detail = schemas.ActionFailed, saw
			return c.save(ctx, k, a, r, time.Time{}, "fail")
		case c.d.Now().After(deadline):
			a.State, a.Detail = schemas.ActionFailed, "no effect within "+r.Verify.String()+": "+last
			if blind {
				a.State, a.Detail = schemas.ActionUnknown, "the outcome is not known: "+last
			}
			return c.save(ctx, k, a, r, time.Time{}, "fail")
		}
		if token, ok, err := c.store.lease(ctx, k.Subject, c.cfg.LeaseTTL); err == nil && !ok {
			c.d.Log.Warn("lease was lost while a step is verified", "server", k.Subject, "token", token)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(c.cfg.Poll):
		}
	}
}

// ticket hands over to a person what the ladder could not repair. The server
// stays out of the pool.
func (c *Controller) ticket(ctx context.Context, k *climb, p policy.Policy, at int) error {
	r := policy.Rung{Kind: kindTicket, Person: true}
	a, found, err := c.store.action(ctx, k.ID, len(p.Ladder), 1)
	if err != nil || found {
		return err
	}
	a = c.newAction(k, len(p.Ladder), 1, r)
	a.State, a.Detail = schemas.ActionProposed, fmt.Sprintf("for a person: %s did not work; %s stays out of the pool", p.Ladder[at].Kind, k.Subject)
	return c.save(ctx, k, &a, r, time.Time{}, "escalate")
}

func (c *Controller) close(ctx context.Context, k *climb, state string) error {
	k.State = state
	if err := c.store.saveCase(ctx, c.store.db, k); err != nil {
		return err
	}
	c.mu.Lock()
	if state != caseFailed || !k.Cordoned {
		delete(c.open, k.Subject)
	}
	c.mu.Unlock()
	return c.store.release(ctx, k.Subject)
}

func (c *Controller) save(ctx context.Context, k *climb, a *schemas.Action, r policy.Rung, intent time.Time, verb string) error {
	if err := c.store.saveAction(ctx, k, a, r.Destructive, intent, cmp.Or(a.Actor, actor), verb); err != nil {
		return err
	}
	c.saved(a)
	return nil
}

// saveDecision saves an action that no climb holds, and leaves its case alone.
func (c *Controller) saveDecision(ctx context.Context, caseID string, a *schemas.Action, verb string) error {
	if err := c.store.saveDecision(ctx, caseID, a, cmp.Or(a.Actor, actor), verb); err != nil {
		return err
	}
	c.saved(a)
	return nil
}

// saved counts a change, and wakes what publishes it.
func (c *Controller) saved(a *schemas.Action) {
	c.actions.WithLabelValues(a.Kind, a.Mode, a.State).Inc()
	select {
	case c.dirty <- struct{}{}:
	default:
	}
	c.afterStep(a.State + " " + a.Kind)
}

func (c *Controller) newAction(k *climb, rung, attempt int, r policy.Rung) schemas.Action {
	server := ""
	if k.Subject != k.Target || k.Rack != "" {
		server = k.Subject
	}
	return schemas.Action{
		ID: "act-" + schemas.EventID(k.ID, strconv.Itoa(rung), strconv.Itoa(attempt)), Created: c.d.Now().UTC(), Site: k.Site, Server: server, Target: k.Target,
		Kind: r.Kind, Reason: k.Incident, Incident: k.Incident, Why: k.Why, Mode: k.Mode, Rung: rung, Attempt: attempt,
	}
}

func step(k *climb, a schemas.Action, since time.Time) Step {
	return Step{ID: a.ID, Kind: a.Kind, Server: k.Subject, Target: k.Target, Reason: k.Fault + " on " + k.Target, Since: since}
}

func blockedBy(rails []schemas.Rail) string {
	for _, r := range rails {
		if !r.OK {
			return "held by " + r.Name + ": " + r.Detail
		}
	}
	return ""
}
