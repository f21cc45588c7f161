package control

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/reasons"
	"auspex/internal/store/requests"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Scheduler is what the remediator of drain may know besides: which jobs end with a server.
type Scheduler interface {
	// Jobs names the jobs that run on a server; an error that wraps ErrCannot for a server on which
	// the scheduler runs none.
	Jobs(ctx context.Context, server string) ([]string, error)
}

// Settler is a remediator of what can be so already: where it is, nothing is done, and what was
// read back is the proof. It changes nothing, in any mode.
type Settler interface {
	Settled(ctx context.Context, s Step) (bool, schemas.Sentence, error)
}

// policyOf is the ladder of a case: of its fault, or the one step that was asked for.
func (c *Controller) policyOf(k *climb) (policy.Policy, bool) {
	if k.Request != nil {
		return policy.Asked(k.Request.Kind, k.Request.With), true
	}
	p, ok := c.policies.For(k.Fault)
	if k.Foretold {
		p, ok = c.policies.Before(k.Fault)
	}
	if !ok || k.Ladder == nil {
		return p, ok
	}
	return p.As(k.Ladder)
}

// complete reports whether a request says what an action needs.
func complete(in schemas.Intent) bool {
	return in.ID != "" && in.Server != "" && in.Kind != "" && in.Actor != ""
}

// request makes an action of what was asked for, and its case, before the bus is told that it was
// read. What will not be done is an action that is refused.
func (c *Controller) request(ctx context.Context, in schemas.Intent) error {
	k := c.caseOf(in)
	p, _ := c.policyOf(k)
	var err error
	if k.Mode, err = c.modeFor(ctx, k, &p); err != nil {
		return err
	}
	a := c.newAction(k, p, 0, 1, p.Ladder[0])
	a.ID, a.Server, a.With, a.Actor, a.Reason = in.ID, in.Server, in.With, in.Actor, in.Reason
	if why := c.against(in, k); why.ID != "" {
		k.State = caseDone
		become(&a, schemas.ActionRefused, why)
	} else if k.Mode == schemas.ModeDryRun {
		become(&a, schemas.ActionProposed, *k.Summary)
	} else {
		become(&a, schemas.ActionApproved, *k.Summary)
	}
	var known bool
	if known, err = c.store.openRequest(ctx, k, &a, p.Ladder[0].Destructive); err != nil {
		return err
	}
	if !known {
		c.saved(&a)
	} else {
		// One that is known stands already, or its answer was lost when it was stored. A case that closes is stored before it
		// is forgotten: one that does not stand is read as it ended.
		c.mu.Lock()
		stands := c.open[k.key()] != nil
		c.mu.Unlock()
		if stands {
			return nil
		}
		if k, err = c.store.caseOf(ctx, in.ID); err != nil || k == nil {
			return err // of a ladder: whoever asked took the id of an action
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.open() && c.open[k.key()] == nil {
		c.open[k.key()] = k
		c.taken = append(c.taken, k)
		select {
		case c.taking <- struct{}{}:
		default:
		}
	}
	return nil
}

// begin starts the cases of requests that were taken.
func (c *Controller) begin(ctx context.Context) {
	c.mu.Lock()
	todo := c.taken
	c.taken = nil
	c.mu.Unlock()
	for _, k := range todo {
		c.start(ctx, k)
	}
}

// reader reads why something was asked for.
var reader = reasons.NewReader(nil, nil)

// caseOf is the case of a request.
func (c *Controller) caseOf(in schemas.Intent) *climb {
	in.Reason = cmp.Or(in.Reason, verbRequest)
	_, rack, site, _ := c.d.Inventory.Place(in.Server)
	args := messages.Args{"who": in.Actor, "kind": in.Kind, "reason": in.Reason}
	if said := reader.Of(in.Reason); said != nil {
		args["said"] = *said
	}
	asked := messages.New(messages.Asked, args)
	k := &climb{
		ID: "case-" + schemas.EventID("control", "request", in.ID), Subject: in.Server, Target: cmp.Or(in.Target, in.Server), Why: messages.Text(asked),
		Summary: &asked, Policy: "request", Mode: c.cfg.Mode, Rack: rack, Site: site, Opened: c.d.Now().UTC(), State: caseOpen, Request: &in,
	}
	if policy.Reads(in.Kind) {
		k.State = caseReading
	}
	return k
}

// against says why a request is refused, whatever the state of its server.
func (c *Controller) against(in schemas.Intent, k *climb) schemas.Sentence {
	if _, settles := c.d.Remediators[in.Kind].(Settler); k.Mode == schemas.ModeObserve && !settles {
		return messages.New(messages.ObservesOnly, nil)
	}
	// Who asked may have gone home since.
	if age := c.d.Now().Sub(in.Time); !in.Time.IsZero() && age > c.cfg.ApproveWithin {
		return messages.New(messages.TooOld, messages.Age(age))
	}
	if server, _, _, ok := c.d.Inventory.Place(in.Server); !ok || server != in.Server {
		return messages.New(messages.NoServer, messages.Args{"server": in.Server})
	}
	if server, _, _, ok := c.d.Inventory.Place(k.Target); !ok || server != in.Server {
		return messages.New(messages.NoPart, messages.Args{"part": in.Target, "server": in.Server})
	}
	if c.d.Remediators[in.Kind] == nil && !optional(&in) {
		return noDriver(in.Kind)
	}
	if err := policy.CheckAsked(in.Kind, in.With); err != nil {
		return messages.New(messages.BadWith, messages.Args{"kind": in.Kind, "error": err.Error()})
	}
	return schemas.Sentence{}
}

// optional reports whether a request is fulfilled where there is no way to do it.
func optional(in *schemas.Intent) bool { return in.With[policy.Optional] == "true" }

// busy says who has the server of a request.
func busy(k *climb) schemas.Sentence {
	if k.Request != nil {
		return messages.New(messages.BusyRequest, messages.Args{"kind": k.Request.Kind, "who": k.Request.Actor, "server": k.Subject})
	}
	return messages.New(messages.BusyRepair, messages.Args{"incident": k.Incident, "server": k.Subject})
}

// openRequest writes the case of a request and its action in one transaction. While another case is
// open on the server the action is refused. One whose id is known changes nothing.
func (s *store) openRequest(ctx context.Context, k *climb, a *schemas.Action, destructive bool) (known bool, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if err := s.fence(ctx, tx); err != nil {
			return err
		}
		known = true
		var one int
		if err := tx.QueryRowContext(ctx, `SELECT 1 FROM control_actions WHERE id=$1`, a.ID).Scan(&one); !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		ok, err := s.openCase(ctx, tx, k)
		if err != nil {
			return err
		}
		if !ok && k.State == caseOpen {
			var doc string
			err := tx.QueryRowContext(ctx, `SELECT doc FROM control_cases WHERE subject=$1 AND state=$2`, k.Subject, caseOpen).Scan(&doc)
			if errors.Is(err, sql.ErrNoRows) {
				return fmt.Errorf("open case for request %s: another ended meanwhile", a.ID) // it is read again
			}
			other := &climb{}
			if err == nil {
				err = json.Unmarshal([]byte(doc), other)
			}
			if err != nil {
				return fmt.Errorf("read the case that holds %s: %w", k.Subject, err)
			}
			if over, err := s.over(ctx, tx, other); err != nil {
				return err
			} else if over {
				return fmt.Errorf("open case for request %s: %s has just ended", a.ID, other.ID) // it is read again
			}
			become(a, schemas.ActionRefused, busy(other))
			k.State = caseDone
			if ok, err = s.openCase(ctx, tx, k); err != nil {
				return err
			}
		}
		if !ok {
			return nil // another process takes it at this moment
		}
		known = false
		if err := requests.Take(ctx, tx, asked(k, a)); err != nil {
			return err
		}
		return s.putAction(ctx, tx, k.ID, a, destructive, time.Time{}, k.Request.Actor, verbRequest)
	})
	if err != nil {
		return false, fmt.Errorf("take request %s: %w", a.ID, err)
	}
	return known, nil
}

// over reports whether the case of a request has ended but for its closing: its action has.
func (s *store) over(ctx context.Context, tx *sql.Tx, k *climb) (bool, error) {
	if k.Request == nil {
		return false, nil
	}
	var state string
	if err := tx.QueryRowContext(ctx, `SELECT state FROM control_actions WHERE case_id=$1`, k.ID).Scan(&state); err != nil {
		return false, fmt.Errorf("read the action of case %s: %w", k.ID, err)
	}
	return slices.Contains([]string{schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionCancelled, schemas.ActionRefused}, state), nil
}

// asked is a request as the list of them has it, where nobody noted it before.
func asked(k *climb, a *schemas.Action) schemas.Intent {
	in := *k.Request
	if in.Time.IsZero() {
		in.Time = a.Created
	}
	return in
}

// caseOf returns the case of a request, or nil where its id is that of something else.
func (s *store) caseOf(ctx context.Context, id string) (*climb, error) {
	k, err := s.caseByID(ctx, "case-"+schemas.EventID("control", "request", id))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return k, err
}

// fulfil does what was asked for. What came of it is in the action; nobody else is told.
func (c *Controller) fulfil(ctx context.Context, k *climb, p policy.Policy) error {
	a, found, err := c.store.action(ctx, k.ID, 0, 1)
	if err != nil {
		return err
	}
	if !found { // they are written together
		return c.close(ctx, k, caseCancelled)
	}
	r := p.Ladder[0]
	if a.SentAt.IsZero() && (a.State == schemas.ActionApproved || a.State == schemas.ActionProposed) {
		if so, how := c.settled(ctx, k, a); so {
			verified(&a, how)
			if err := c.save(ctx, k, &a, r, time.Time{}, "done"); err != nil {
				return err
			}
			return c.close(ctx, k, caseDone)
		}
	}
	switch {
	case k.Mode == schemas.ModeObserve:
		become(&a, schemas.ActionRefused, messages.New(messages.ObservesOnly, nil))
		if err := c.save(ctx, k, &a, r, time.Time{}, "refuse"); err != nil {
			return err
		}
		return c.close(ctx, k, caseDone)
	case k.Mode == schemas.ModeDryRun:
		if err := c.rehearse(ctx, k, p, &a); err != nil {
			return err
		}
		return c.close(ctx, k, caseProposed)
	case a.State == schemas.ActionApproved: // nothing was sent
		why, verb := c.cannot(ctx, k, a), "refuse"
		if why.ID == "" && optional(k.Request) && releases(r.Kind) {
			why = c.stranded(k.Subject)
		}
		if why.ID != "" {
			if become(&a, schemas.ActionRefused, why); optional(k.Request) {
				verb = "skip"
				verified(&a, messages.New(messages.Skipped, messages.Args{"why": why}))
			}
			if err := c.save(ctx, k, &a, r, time.Time{}, verb); err != nil {
				return err
			}
			return c.close(ctx, k, caseDone)
		}
	}
	_, done, err := c.rung(ctx, k, p, 0)
	if err != nil {
		return err
	}
	if done && releases(r.Kind) {
		if err := c.freed(ctx, k.Subject); err != nil {
			return err
		}
	}
	return c.close(ctx, k, caseDone)
}

// settled reports whether what was asked for is so already, by what can be read back, and how. A
// server that does not answer is not settled.
func (c *Controller) settled(ctx context.Context, k *climb, a schemas.Action) (bool, schemas.Sentence) {
	rem, ok := c.d.Remediators[a.Kind].(Settler)
	if !ok {
		return false, schemas.Sentence{}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	defer cancel()
	so, how, err := rem.Settled(ctx, step(k, a, c.d.Now()))
	return so && err == nil, how
}

// rehearse says what would be done, and which checks hold.
func (c *Controller) rehearse(ctx context.Context, k *climb, p policy.Policy, a *schemas.Action) (err error) {
	r := p.Ladder[0]
	c.cost(ctx, k, a, r)
	if a.Rails, err = c.check(ctx, k, p, 0, true); err != nil {
		return err
	}
	if cutsPower(r) {
		a.Rails = append(a.Rails, c.seen(ctx, k, r)...)
	}
	if goes, waits := verdict(a.Rails); !goes && (!waits || inWindow(a.Rails)) {
		become(a, schemas.ActionRefused, blockedBy(a.Rails))
	} else {
		state, sentence := c.plan(ctx, k, *a)
		become(a, state, sentence)
	}
	return c.save(ctx, k, a, r, time.Time{}, "propose")
}

// cannot says why a step cannot be done here at all; another error may pass.
func (c *Controller) cannot(ctx context.Context, k *climb, a schemas.Action) schemas.Sentence {
	rem := c.d.Remediators[a.Kind]
	if rem == nil {
		return noDriver(a.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	defer cancel()
	if _, err := rem.Plan(ctx, step(k, a, c.d.Now())); errors.Is(err, ErrCannot) {
		return messages.Error(err)
	}
	return schemas.Sentence{}
}

// stranded says that a repair which failed keeps a server out of the pool.
func (c *Controller) stranded(server string) schemas.Sentence {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.open[server]; k != nil && k.State == caseFailed && k.Cordoned {
		return messages.New(messages.RepairKeeps, messages.Args{"incident": k.Incident})
	}
	return schemas.Sentence{}
}

// keptOut says who asked for a server to be out of the pool, where that still holds: a ladder takes it out no second time and
// does not give it back. Where jobs were still there when the time of what was asked for was over, empty is false: the ladder
// has to see that they end, and leaves the server out all the same.
func (c *Controller) keptOut(ctx context.Context, k *climb) (how schemas.Sentence, empty bool, err error) {
	asked, err := c.store.takenOut(ctx, k.Subject)
	rem := c.d.Remediators[kindDrain]
	if err != nil || len(asked) == 0 || rem == nil {
		return how, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	defer cancel()
	// What somebody else gave back since, or nobody can tell of, is taken out anew.
	s := Step{Kind: kindDrain, Server: k.Subject, Target: k.Target, Since: k.Opened}
	v, _, err := rem.Verify(ctx, s)
	if empty = err == nil && v == Verified; !empty && (err != nil || !c.busyOut(ctx, s)) {
		return how, false, nil
	}
	last := slices.MaxFunc(asked, func(a, b *climb) int { return a.Opened.Compare(b.Opened) }) // by hand it may have come back between
	return messages.New(messages.KeptOut, messages.Args{"who": last.Request.Actor}), empty, nil
}

// busyOut reports whether a server gets no new work, and has some.
func (c *Controller) busyOut(ctx context.Context, s Step) bool {
	scheduler, ok := c.d.Remediators[kindDrain].(Scheduler)
	back := c.d.Remediators[kindUncordon]
	if !ok || back == nil {
		return false
	}
	jobs, err := scheduler.Jobs(ctx, s.Server)
	if err != nil || len(jobs) == 0 {
		return false
	}
	s.Kind = kindUncordon
	v, _, err := back.Verify(ctx, s)
	return err == nil && v != Verified
}

// takenOut are the requests that took a server out of the pool, and were not followed by its return.
func (s *store) takenOut(ctx context.Context, subject string) ([]*climb, error) {
	all, err := sqldb.Docs[*climb](ctx, s.db, `SELECT doc FROM control_cases WHERE subject=$1 AND state=$2`, subject, caseDone)
	if err != nil {
		return nil, fmt.Errorf("read who asked for %s to be out: %w", subject, err)
	}
	return slices.DeleteFunc(all, func(k *climb) bool { return k.Request == nil || !k.Cordoned }), nil
}

// freed ends what requests and a ladder that failed still hold: somebody gave their server back.
func (c *Controller) freed(ctx context.Context, subject string) error {
	asked, err := c.store.takenOut(ctx, subject)
	if err != nil {
		return err
	}
	for _, k := range asked {
		k.Cordoned = false
		if err := c.store.together(ctx, func(tx *sql.Tx) error { return c.store.saveCase(ctx, tx, k) }); err != nil {
			return err
		}
	}
	c.mu.Lock()
	k := c.open[subject]
	c.mu.Unlock()
	if k == nil || k.State != caseFailed {
		return nil
	}
	k.Cordoned, k.Quarantined = false, false
	if err := c.store.together(ctx, func(tx *sql.Tx) error { return c.store.saveCase(ctx, tx, k) }); err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.open, subject)
	c.notes(k)
	c.mu.Unlock()
	left, err := c.store.proposed(ctx, k.ID)
	for i := range left {
		if err == nil && left[i].Person {
			become(&left[i], schemas.ActionCancelled, messages.New(messages.GivenBack, messages.Args{"server": subject}))
			err = c.saveDecision(ctx, k, &left[i], "withdraw")
		}
	}
	return err
}

// occupied asks the scheduler which jobs would end with a step that somebody asks for. Where there
// is no scheduler, nobody knows of any.
func (c *Controller) occupied(ctx context.Context, k *climb) []schemas.Rail {
	scheduler, ok := c.d.Remediators[kindDrain].(Scheduler)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	defer cancel()
	jobs, err := scheduler.Jobs(ctx, k.Subject)
	force := k.Request.With[policy.Force] == "true"
	args := messages.Args{"server": k.Subject, "n": len(jobs), "jobs": some(jobs)}
	var sentence schemas.Sentence
	holds := true
	switch {
	case errors.Is(err, ErrCannot):
		sentence = messages.Error(err)
	case err != nil:
		sentence, holds = messages.Error(err), force
	case len(jobs) == 0:
		sentence = messages.New(messages.JobsNone, messages.Args{"server": k.Subject})
	case force:
		sentence = messages.New(messages.JobsForced, args)
	default:
		sentence, holds = messages.New(messages.JobsRun, args), false
	}
	return []schemas.Rail{{Name: railJobs, Value: float64(len(jobs)), OK: holds, Detail: messages.Text(sentence), Sentence: &sentence}}
}

// some names the first of many.
func some(names []string) string {
	const most = 8
	if len(names) > most {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}
