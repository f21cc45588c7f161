package control

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
)

const actor = "auspex"

// kindUncordon gives the server back to the scheduler: only what we cordoned.
const (
	kindDrain    = "drain"
	kindCordon   = "cordon"
	kindUncordon = policy.KindUncordon
	kindTicket   = "ticket"
	kindUpdate   = "update_firmware"
	kindValidate = "validate"
)

// work climbs the ladder of a case from where it stands.
func (c *Controller) work(ctx context.Context, k *climb) error {
	p, ok := c.policyOf(k)
	if !ok {
		return c.close(ctx, k, caseCancelled)
	}
	if k.Request != nil {
		return c.fulfil(ctx, k, p)
	}
	if k.Mode == schemas.ModeObserve || k.Mode == schemas.ModeDryRun {
		return c.propose(ctx, k, p)
	}
	cured, last := false, 0 // the last rung that was climbed
	for i := range p.Ladder {
		r := &p.Ladder[i]
		if cured && (r.Repairs() || r.Kind == kindQuarantine) {
			continue // the part is back: no stronger repair is needed
		}
		switch skipped, err := c.skip(ctx, k, p, i); {
		case err != nil:
			return err
		case skipped && r.Repairs() && !repairsAfter(p, i): // nothing is left that might cure it
			return c.fail(ctx, k, p, last, i, true)
		case skipped:
			continue
		}
		last = i
		a, done, err := c.rung(ctx, k, p, i)
		if err != nil {
			return err
		}
		switch {
		case done && r.Repairs():
			cured = true
			if k.vigil == nil { // verified before a restart: what holds is seen anew
				since := a.EffectAt
				if since.IsZero() {
					since = a.Time // of an earlier version
				}
				v := c.attend(ctx, k)
				v.restarts(restarted(r, a), r.Silences())
				v.repaired(since, r.Quiet)
			}
		case done, c.climbsOn(p, i, a):
		case r.Kind == policy.KindCap && k.Touched && (a.State == schemas.ActionFailed || a.State == schemas.ActionUnknown):
			// Some of it may be in force, and is taken back all the same; what was not done a person is told.
			if err := c.ticket(ctx, k, p, i); err != nil {
				return err
			}
		case lapses(k, &a):
			k.Lapsed = true
			if err := c.close(ctx, k, caseCancelled); err != nil {
				return err
			}
			c.lapsed(k)
			return nil
		default:
			// What was installed and does not pass its validation is not cured.
			return c.fail(ctx, k, p, i, i, a.State != schemas.ActionCancelled && (!cured || r.Kind == kindValidate))
		}
	}
	if k.Quarantined { // it is not repaired, and counts as out of the pool by us until somebody gives it back
		return c.close(ctx, k, caseFailed)
	}
	return c.close(ctx, k, caseDone)
}

// climbsOn reports whether a rung that did not repair leaves the next one to try:
// it failed for certain, or there is no way to do it here.
func (c *Controller) climbsOn(p policy.Policy, i int, a schemas.Action) bool {
	if !p.Ladder[i].Repairs() || a.State != schemas.ActionFailed && c.d.Remediators[a.Kind] != nil {
		return false
	}
	return repairsAfter(p, i)
}

// repairsAfter reports whether a ladder has a repair after a rung.
func repairsAfter(p policy.Policy, i int) bool {
	return slices.ContainsFunc(p.Ladder[i+1:], func(r policy.Rung) bool { return r.Repairs() })
}

// fail ends a ladder that ended at a rung; the rungs up to after have had their turn.
func (c *Controller) fail(ctx context.Context, k *climb, p policy.Policy, at, after int, keepOut bool) error {
	if !k.Touched {
		return c.close(ctx, k, caseCancelled)
	}
	if err := c.ticket(ctx, k, p, at); err != nil { // before the quarantine, which may wait for a person
		return err
	}
	if keepOut && p.Ladder[at].Kind != kindQuarantine {
		if err := c.quarantine(ctx, k, p, after); err != nil {
			return err
		}
	}
	return c.close(ctx, k, caseFailed)
}

// skip passes over a rung that is optional and cannot be climbed here, with the reason told in an action; one that was
// begun goes on.
func (c *Controller) skip(ctx context.Context, k *climb, p policy.Policy, i int) (skipped bool, err error) {
	r := p.Ladder[i]
	if !r.Optional {
		return false, nil
	}
	a, found, err := c.store.action(ctx, k.ID, i, 1)
	if err != nil || found {
		return found && a.DetailSentence != nil && a.DetailSentence.ID == messages.Skipped, err
	}
	if alone, err := c.without(ctx, k, p, r, schemas.ActionDone); err != nil || alone {
		return alone, err
	}
	a = c.newAction(k, p, i, 1, r)
	why := c.cannot(ctx, k, a)
	if why.ID == "" {
		return false, nil
	}
	become(&a, schemas.ActionRefused, messages.New(messages.Skipped, messages.Args{"why": why}))
	return true, c.save(ctx, k, &a, r, time.Time{}, "skip")
}

// without reports whether a rung that an optional one needs has not come to a state itself.
func (c *Controller) without(ctx context.Context, k *climb, p policy.Policy, r policy.Rung, state string) (bool, error) {
	for i := range p.Ladder {
		if slices.Contains(r.Needs, p.Ladder[i].Kind) {
			if is, err := c.rungDone(ctx, k, i, &p.Ladder[i]); err != nil || is != state {
				return true, err
			}
		}
	}
	return false, nil
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
		if r.Optional {
			if alone, err := c.without(ctx, k, p, r, schemas.ActionProposed); err != nil {
				return err
			} else if alone {
				continue
			}
		}
		a = c.newAction(k, p, i, 1, r)
		c.cost(ctx, k, &a, r)
		if a.Rails, err = c.check(ctx, k, p, i, true); err != nil {
			return err
		}
		if r.Kind == policy.KindCap {
			a.Rails = append(a.Rails, c.examined(ctx, k, r)...)
		}
		goes, waits := verdict(a.Rails)
		switch {
		case r.Person:
			become(&a, schemas.ActionProposed, messages.New(messages.ForPerson, nil))
		case !goes && !waits:
			become(&a, schemas.ActionRefused, blockedBy(a.Rails))
		case r.Optional && c.d.Remediators[r.Kind] == nil:
			become(&a, schemas.ActionRefused, messages.New(messages.Skipped, messages.Args{"why": noDriver(r.Kind)}))
		case k.Mode == schemas.ModeObserve:
			become(&a, schemas.ActionProposed, messages.New(messages.ObservedOnly, nil))
		default:
			state, sentence := c.plan(ctx, k, a)
			if r.Optional && state == schemas.ActionRefused {
				sentence = messages.New(messages.Skipped, messages.Args{"why": sentence})
			}
			become(&a, state, sentence)
		}
		if err := c.save(ctx, k, &a, r, time.Time{}, "propose"); err != nil {
			return err
		}
	}
	if err := c.close(ctx, k, caseProposed); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := c.incidentOf(k); { // what went while it was proposed, no tick has withdrawn
	case n == nil:
		c.withdrawn[k.Incident] = ""
	case n.inc.RootCause.Resource != k.Target:
		c.withdrawn[k.Incident] = n.inc.RootCause.Resource
	}
	return nil
}

// plan asks the driver what it would do; state is proposed, or refused where it cannot.
func (c *Controller) plan(ctx context.Context, k *climb, a schemas.Action) (state string, sentence schemas.Sentence) {
	rem, ok := c.d.Remediators[a.Kind]
	if !ok {
		return schemas.ActionRefused, noDriver(a.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	defer cancel()
	sentence, err := rem.Plan(ctx, step(k, a, c.d.Now()))
	if err != nil {
		return schemas.ActionRefused, messages.Error(err)
	}
	return schemas.ActionProposed, sentence
}

func noDriver(kind string) schemas.Sentence {
	return messages.New(messages.NoDriver, messages.Args{"kind": kind})
}

// become sets the state of an action and what it says of it.
func become(a *schemas.Action, state string, sentence schemas.Sentence) {
	a.State, a.Detail, a.DetailSentence = state, messages.Text(sentence), nil
	if sentence.ID != "" {
		a.DetailSentence = &sentence
	}
}

// verified ends an action that did what it should, with the proof.
func verified(a *schemas.Action, observed schemas.Sentence) {
	become(a, schemas.ActionDone, schemas.Sentence{})
	a.VerifiedBy, a.VerifiedSentence = messages.Text(observed), &observed
}

// rung does one rung, with its attempts, and returns the last of them; done is
// false where it did not do what it should.
func (c *Controller) rung(ctx context.Context, k *climb, p policy.Policy, i int) (a schemas.Action, done bool, err error) {
	r := p.Ladder[i]
	for attempt := 1; attempt <= max(1, r.Attempts); attempt++ {
		var found bool
		if a, found, err = c.store.action(ctx, k.ID, i, attempt); err != nil {
			return a, false, err
		}
		if !found {
			a = c.newAction(k, p, i, attempt, r)
		}
		if err := c.advance(ctx, k, p, &a, r); err != nil {
			return a, false, err
		}
		if r.Person { // it is theirs to do or to cancel; later rungs may not need it
			return a, true, nil
		}
		switch a.State {
		case schemas.ActionDone:
			return a, true, nil
		case schemas.ActionFailed, schemas.ActionUnknown:
			if a.State == schemas.ActionUnknown && r.Destructive {
				return a, false, nil
			}
			if attempt < r.Attempts {
				if err := c.pause(ctx, time.Duration(attempt)*retryAfter); err != nil {
					return a, false, err
				}
			}
		default: // refused, cancelled
			return a, false, nil
		}
	}
	return a, false, nil
}

// atEase is how many steps may wait, each looking every second whether it may go: where more do, all of them look less
// often. A person's decision wakes its step at once.
const atEase, seldom = 50, 2 * time.Minute

// between is the wait between two looks at whether a step may go.
func (c *Controller) between() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	every := max(c.cfg.Poll, time.Second)
	wait := max(every, min(every*time.Duration(len(c.wake))/atEase, seldom))
	return wait*3/4 + rand.N(wait/2) // what came at once looks at its own time
}

// retryAfter is the wait before a second attempt; a third waits twice as long.
const retryAfter = 5 * time.Second

func (c *Controller) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.after(d):
		return nil
	}
}

// advance brings an action to a final state, from wherever it was left.
func (c *Controller) advance(ctx context.Context, k *climb, p policy.Policy, a *schemas.Action, r policy.Rung) error {
	if r.Person {
		if a.State == "" {
			become(a, schemas.ActionProposed, messages.New(messages.ForPerson, nil))
			rails, err := c.check(ctx, k, p, a.Rung, false)
			if err != nil {
				return err
			}
			a.Rails = rails
			return c.save(ctx, k, a, r, time.Time{}, verbPropose)
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
		become(a, schemas.ActionVerifying, messages.New(messages.Resumed, nil))
		if err := c.save(ctx, k, a, r, time.Time{}, "observe"); err != nil {
			return err
		}
		return c.verify(ctx, k, a, r, true)
	case schemas.ActionVerifying:
		return c.verify(ctx, k, a, r, a.SentAt.IsZero())
	default:
		return nil // it is final
	}
	return c.verify(ctx, k, a, r, a.SentAt.IsZero())
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
		k.asks, k.asksToDestroy = false, false
		c.mu.Unlock()
		k.vouched, k.override = "", nil // the next step needs its own
	}()
	before := a.State == schemas.ActionApproved && k.Request == nil // by an earlier version
	end := func(state string, sentence schemas.Sentence, verb string) (bool, error) {
		become(a, state, sentence)
		return false, c.save(ctx, k, a, r, time.Time{}, verb)
	}
	deadline := a.Created.Add(c.cfg.ApproveWithin)
	rem, ok := c.d.Remediators[a.Kind]
	if !ok {
		return end(schemas.ActionRefused, noDriver(a.Kind), "refuse")
	}
	cordoned := k.Cordoned // by an earlier step, which a refusal of this one does not undo
	shown, tried := "", (*schemas.Sentence)(nil)
	kept := messages.New(messages.NotOurs, nil)
	if k.Request == nil && (a.Kind == kindDrain || a.Kind == kindUncordon && (k.Theirs || !k.Cordoned)) {
		how, empty, err := c.keptOut(ctx, k)
		if err != nil {
			return false, err
		}
		switch {
		case how.ID == "":
		case a.Kind == kindUncordon:
			kept, k.Cordoned = how, k.Cordoned && !k.Theirs
		case empty:
			verified(a, how)
			return false, c.save(ctx, k, a, r, time.Time{}, "skip")
		default:
			k.Theirs = true
		}
	}
	var asked time.Time // when the step was first free to go
	refreshed := c.d.Now()
	looked, lost := refreshed, (*schemas.Sentence)(nil) // what was seen of a limit that is to hold
	for {
		verb, who, err := c.store.intent(ctx, a.ID)
		if err != nil {
			return false, err
		}
		switch verb {
		case verbApprove:
			if k.Request != nil { // it is theirs who asked
				verb = ""
				break
			}
			a.Actor = who
		case verbCancel:
			a.Actor = who
			return end(schemas.ActionCancelled, messages.New(messages.CancelledBy, messages.Args{"who": who}), verb)
		case verbDryRun:
			sentence := c.tried(ctx, k, *a)
			shown, tried = "", &sentence
		}
		q, err := c.asking(ctx, k, &p, a, &r)
		if err != nil {
			return false, err
		}
		q.approvedBefore = before
		if k.Request == nil && q.vouched {
			k.vouched = names(q.votes)
		}
		if told, err := c.heed(ctx, k, a, r, &q); err != nil {
			return false, err
		} else if told && verb == verbApprove {
			verb = ""
		}
		approved := q.approved(k)
		c.cost(ctx, k, a, r)
		if !c.stands(k) && !k.Touched {
			return end(schemas.ActionCancelled, c.outdated(k), "cancel")
		}
		if a.Kind == kindUncordon && !k.Cordoned && k.Request == nil {
			verified(a, kept)
			return false, c.save(ctx, k, a, r, time.Time{}, "skip")
		}
		if approved && asked.IsZero() {
			asked = c.d.Now()
		}
		rechecked := !rechecks(k, r)
		var seen []schemas.Rail
		// A call to a peer, so not while others wait for the decision. Who is to approve a limit sees what it is.
		if !rechecked && (approved || r.Kind == policy.KindCap) {
			rails, err := c.check(ctx, k, p, a.Rung, false)
			if err != nil {
				return false, err
			}
			if rechecked, _ = verdict(rails); rechecked {
				seen = c.seen(ctx, k, r)
			}
		}
		heard := !approved || k.Request != nil || c.listens(ctx, k, r, asked)
		goes, wait, err := c.decideAndCommit(ctx, k, p, a, r, approved && rechecked && heard, seen)
		if err != nil {
			return false, err
		}
		if goes {
			break
		}
		// What a person asks for is for now, and not for when the work of others ends, nor an update.
		if !wait || k.Request != nil && (inWindow(a.Rails) || lacking(a.Rails, railUpdate)) {
			return end(schemas.ActionRefused, blockedBy(a.Rails), "refuse")
		}
		lacks := func(rail string) bool { return lacking(a.Rails, rail) }
		unseen, asksFor := lacks(railSeen), lacks(railSeen) || lacks(railOwner) || lacks(railQuorum)
		if asksFor {
			a.ApprovalsNeeded = q.asked
		}
		sentence := blockedBy(a.Rails)
		switch {
		case !approved:
			sentence = messages.New(messages.WaitsApproval, nil)
			if left := q.left(k); left != 1 || len(q.votes) > 0 {
				sentence = messages.New(messages.WaitsApprovals, messages.Args{"left": left, "of": left + len(q.votes), "who": names(q.votes)})
			}
			switch {
			case lacks(railFreeze):
				sentence = messages.New(messages.Both, messages.Args{"first": sentence, "second": blockedBy(a.Rails)})
			case unseen:
				why := messages.New(messages.SeenByNobody, messages.Args{"part": k.Target})
				sentence = messages.New(messages.Both, messages.Args{"first": sentence, "second": why})
			}
		case !heard && rechecked:
			sentence = messages.New(messages.Listens, messages.Args{"server": k.Subject})
		}
		if c.d.Now().Sub(looked) > holdEvery {
			looked = c.d.Now()
			if saw := c.hold(ctx, k, a); saw.ID != "" && (lost == nil || said(*lost) != said(saw)) {
				shown, lost = "", &saw
			}
		}
		if now := fmt.Sprint(gist(sentence), len(q.votes), q.mode); now != shown { // publish once, not at each check with another age
			shown = now
			c.asks(k, !approved || asksFor, r.Destructive)
			for _, more := range []*schemas.Sentence{lost, tried} {
				if more != nil {
					sentence = messages.New(messages.Both, messages.Args{"first": sentence, "second": *more})
				}
			}
			become(a, schemas.ActionWaiting, sentence)
			if err := c.save(ctx, k, a, r, time.Time{}, cmp.Or(verb, "wait")); err != nil {
				return false, err
			}
			refreshed = c.d.Now()
		}
		if c.d.Now().Sub(refreshed) > reportEvery { // the numbers, for who reads them
			refreshed = c.d.Now()
			if err := c.d.Records.PutAction(ctx, *a); err != nil {
				return false, err
			}
		}
		if inWindow(a.Rails) || lacks(railIdle) || lacks(railLoad) || lacks(railFed) || k.Request == nil && lacks(railFreeze) { // it is nobody's fault that nothing is done meanwhile
			deadline = c.d.Now().Add(c.cfg.ApproveWithin)
		}
		if c.d.Now().After(deadline) {
			return end(schemas.ActionCancelled, messages.New(messages.NobodyCame, messages.Age(c.cfg.ApproveWithin)), "expire")
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-wake:
		case <-c.after(c.between()):
		}
	}
	c.afterStep("intent " + a.Kind)
	if slices.ContainsFunc(p.Ladder, func(r policy.Rung) bool { return r.Repairs() }) {
		c.attend(ctx, k) // how the part is read before its repair tells what is of after it
	}
	lasts := c.cfg.CallTime
	if l, ok := rem.(Lasting); ok {
		lasts = max(lasts, l.Lasts())
	}
	if err := c.awake(ctx, k); err != nil {
		return false, err
	}
	call, cancel := context.WithTimeout(ctx, lasts)
	err = rem.Apply(call, step(k, *a, k.Decided))
	cancel()
	c.afterStep("applied " + a.Kind)
	if ctx.Err() != nil {
		return false, ctx.Err() // the next start observes
	}
	if errors.Is(err, ErrRejected) || errors.Is(err, ErrCannot) {
		if takesOut(a.Kind) {
			k.Cordoned = cordoned
		}
		return end(schemas.ActionFailed, messages.Error(err), "fail")
	}
	sentence := messages.New(messages.Sent, nil)
	switch {
	case errors.Is(err, ErrAlready):
		k.Cordoned = false
		a.SentAt = c.d.Now().UTC()
	case err != nil:
		sentence = messages.New(messages.SentUnanswered, messages.Args{"error": err.Error()})
	default:
		a.SentAt = c.d.Now().UTC()
	}
	become(a, schemas.ActionVerifying, sentence)
	return true, c.save(ctx, k, a, r, time.Time{}, "sent")
}

// errAsleep: this process was stopped after a step was decided; what was checked may not hold any more.
var errAsleep = errors.New("asleep since the step was decided")

// awake makes sure, before a step is sent, that it was decided just now and that no other controller leads since. What is
// not sent then stays an intent whose outcome whoever leads has to find out.
func (c *Controller) awake(ctx context.Context, k *climb) error {
	if c.d.Now().Round(0).Sub(k.Decided.Round(0)) > c.cfg.CallTime { // by the clock on the wall, which goes on while a machine sleeps
		return errAsleep
	}
	return c.store.leads(ctx)
}

// gist is what a sentence says, but for its numbers: the check that holds a step.
func gist(s schemas.Sentence) string {
	rail, _ := s.Args["rail"].(string)
	why, _ := s.Args["why"].(schemas.Sentence)
	return s.ID + " " + rail + " " + why.ID
}

// decideAndCommit checks the rails, beside those that were seen in the world, and,
// when the step may go, commits its intent: no other case can take the same budget
// in between.
func (c *Controller) decideAndCommit(
	ctx context.Context, k *climb, p policy.Policy, a *schemas.Action, r policy.Rung, approved bool, seen []schemas.Rail,
) (goes, wait bool, err error) {
	c.afterStep("decide " + a.Kind)
	c.decide.Lock()
	defer c.decide.Unlock()
	if a.Rails, err = c.check(ctx, k, p, a.Rung, false); err != nil {
		return false, false, err
	}
	a.Rails = append(a.Rails, seen...)
	goes, wait = verdict(a.Rails)
	if !goes {
		return false, wait, nil
	}
	if !approved {
		return false, true, nil
	}
	c.mu.Lock()
	k.Touched, k.asks, k.asksToDestroy = k.State != caseReading, false, false
	c.notes(k)
	c.mu.Unlock()
	// A drain may reach the scheduler though its answer never comes: from here on
	// the server counts as cordoned by us.
	if takesOut(a.Kind) {
		k.Cordoned = true
	}
	c.afterStep("checked " + a.Kind)
	k.Decided = c.d.Now().UTC()
	if r.Destructive {
		c.ends(k.Subject, k.Decided)
	}
	become(a, schemas.ActionRunning, messages.New(messages.Decided, nil))
	// A store that fails here may have kept it: until it is read again, it counts.
	if err := c.save(ctx, k, a, r, k.Decided, "intend"); err != nil {
		return false, false, err
	}
	return true, false, nil
}

// verify reads the world back until the effect is seen, and for a repair until the
// part itself has shown for the rung's quiet time that it works, or its time is over.
func (c *Controller) verify(ctx context.Context, k *climb, a *schemas.Action, r policy.Rung, uncertain bool) error {
	rem := c.d.Remediators[a.Kind]
	if rem == nil {
		become(a, schemas.ActionUnknown, messages.New(messages.NoReader, nil))
		return c.save(ctx, k, a, r, time.Time{}, "unknown")
	}
	ender, _ := rem.(Ender)
	uncertain = uncertain && ender == nil
	if r.Repairs() {
		c.attend(ctx, k).restarts(restarted(&r, *a), r.Silences())
	}
	if !a.EffectAt.IsZero() { // seen before a restart: the quiet time begins anew
		k.vigil.repaired(a.EffectAt, r.Quiet)
	}
	deadline := c.d.Now().Add(max(r.Verify, c.cfg.Poll) + r.Quiet)
	var believed time.Time // what nobody has answered for may still come, on top of what another did: the next step waits for it
	if uncertain {
		believed = k.Decided.Add(c.lateness)
		if t := believed.Add(c.cfg.Poll); deadline.Before(t) {
			deadline = t
		}
	}
	last := messages.New(messages.NothingSeen, nil)
	told, shown := c.d.Now(), ""
	for {
		var f finding
		v, observed, gaveUp, moved, err := Pending, schemas.Sentence{}, false, false, error(nil)
		if a.EffectAt.IsZero() {
			call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
			if p, ok := rem.(Pursuer); ok {
				err = p.Pursue(call, step(k, *a, k.Decided))
				gaveUp = errors.Is(err, ErrRejected)
			}
			if err == nil {
				v, observed, err = rem.Verify(call, step(k, *a, k.Decided))
			}
			moved = staged(call, rem, k, a)
			cancel()
		} else if f, err = c.examine(ctx, k); err == nil {
			observed = f.observed
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if v == Verified && c.d.Now().Before(believed) {
			v = Pending
		}
		if err != nil {
			last = messages.Error(err)
		} else if observed.ID != "" {
			last = observed
		}
		if ender != nil && v == Pending && a.EffectAt.IsZero() {
			ended, err := c.ended(ctx, ender, k, a, r, &last)
			if ended || err != nil {
				return err
			}
		}
		late := c.d.Now().After(deadline)
		if (late || gaveUp) && ender != nil && v == Pending && a.EffectAt.IsZero() {
			call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
			left := ender.End(call, step(k, *a, k.Decided))
			cancel()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if left != nil { // it may go on
				c.d.Log.Warn("cannot end a step that is out of time", "action", a.ID, "server", k.Subject, "error", left)
				uncertain, gaveUp = true, false
				last = messages.New(messages.Both, messages.Args{"first": last, "second": messages.Error(left)})
			}
		}
		switch {
		case err == nil && v == Verified && r.Repairs():
			a.EffectAt = c.d.Now().UTC()
			k.vigil.repaired(a.EffectAt, r.Quiet)
			args := messages.Age(r.Quiet)
			args["saw"], args["part"] = observed, k.Target
			become(a, schemas.ActionVerifying, messages.New(messages.EffectSeen, args))
			if err := c.save(ctx, k, a, r, time.Time{}, "effect"); err != nil {
				return err
			}
			deadline, told, shown = c.d.Now().Add(max(r.Verify, c.cfg.Poll)+r.Quiet), c.d.Now(), ""
		case err == nil && (v == Verified || f.cured):
			verified(a, observed)
			if releases(a.Kind) {
				k.Cordoned = false
			}
			k.Quarantined = k.Quarantined || a.Kind == kindQuarantine
			c.afterStep("verified " + a.Kind)
			return c.save(ctx, k, a, r, time.Time{}, "done")
		case gaveUp:
			become(a, schemas.ActionFailed, last)
			return c.save(ctx, k, a, r, time.Time{}, "fail")
		case err == nil && v == Unseen:
			become(a, schemas.ActionUnknown, messages.New(messages.OutcomeUnknown, messages.Args{"saw": last}))
			return c.save(ctx, k, a, r, time.Time{}, "unknown")
		case err == nil && v == Failed && !uncertain:
			become(a, schemas.ActionFailed, observed)
			return c.save(ctx, k, a, r, time.Time{}, "fail")
		case late && f.sick:
			// That the fault is still there is the newest evidence of it.
			k.Evidence = c.d.Now().UTC()
			become(a, schemas.ActionFailed, messages.New(messages.NotCured, messages.Args{"saw": last}))
			return c.save(ctx, k, a, r, time.Time{}, "fail")
		case late && (uncertain || !a.EffectAt.IsZero()):
			become(a, schemas.ActionUnknown, messages.New(messages.OutcomeUnknown, messages.Args{"saw": last}))
			return c.save(ctx, k, a, r, time.Time{}, "fail")
		case late:
			args := messages.Age(r.Verify)
			args["saw"] = last
			become(a, schemas.ActionFailed, messages.New(messages.NoEffect, args))
			return c.save(ctx, k, a, r, time.Time{}, "fail")
		case a.EffectAt.IsZero() && (moved || progressed(c.d.Now().Sub(told), shown, last)):
			told, shown = c.d.Now(), said(last)
			at := a.SentAt
			if at.IsZero() {
				at = k.Decided
			}
			become(a, schemas.ActionVerifying, messages.New(messages.Progress, messages.Args{"time": at.UTC().Format(time.TimeOnly), "saw": last}))
			if err := c.save(ctx, k, a, r, time.Time{}, "observe"); err != nil {
				return err
			}
		case f.observed.ID != "" && c.d.Now().Sub(told) > r.Quiet+min(tellAfter, r.Verify/4) && held(last) != shown:
			told, shown = c.d.Now(), held(last)
			become(a, schemas.ActionVerifying, messages.New(messages.Watched, messages.Args{"time": a.EffectAt.UTC().Format(time.TimeOnly), "saw": last}))
			if err := c.save(ctx, k, a, r, time.Time{}, "observe"); err != nil {
				return err
			}
		}
		if k.State != caseReading { // which needs no lease
			if token, ok, err := c.store.lease(ctx, k.Subject, c.cfg.LeaseTTL); err == nil && !ok {
				c.d.Log.Warn("lost the lease while verifying a step", "server", k.Subject, "token", token)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.after(c.cfg.Poll):
		}
	}
}

// staged reads the stages of a step, and reports whether they have changed. What cannot be read stays as it was.
func staged(ctx context.Context, rem Remediator, k *climb, a *schemas.Action) bool {
	s, ok := rem.(Staged)
	if !ok {
		return false
	}
	stages, err := s.Stages(ctx, step(k, *a, k.Decided))
	if err != nil || len(stages) == 0 || slices.Equal(stages, a.Stages) {
		return false
	}
	a.Stages = stages
	return true
}

// ended ends a step that goes on where somebody has cancelled it, and then it is cancelled: nil of the driver is that nothing of it is
// left in the world. Until then it is tried again.
func (c *Controller) ended(ctx context.Context, ender Ender, k *climb, a *schemas.Action, r policy.Rung, last *schemas.Sentence) (bool, error) {
	verb, who, err := c.store.intent(ctx, a.ID)
	if err != nil || verb != verbCancel {
		return false, err
	}
	call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	left := ender.End(call, step(k, *a, k.Decided))
	cancel()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if left != nil {
		c.d.Log.Warn("cannot end a step that was cancelled", "action", a.ID, "server", k.Subject, "error", left)
		*last = messages.New(messages.CannotEnd, messages.Args{"who": who, "error": left.Error()})
		return false, nil
	}
	a.Actor = who
	become(a, schemas.ActionCancelled, messages.New(messages.EndedBy, messages.Args{"who": who, "saw": *last}))
	return true, c.save(ctx, k, a, r, time.Time{}, verbCancel)
}

// tellAfter is the time, over the quiet time, after which it is told what keeps a repair from counting, or that this is
// another thing now.
const tellAfter = 10 * time.Second

// progressEvery is the least time between two things that are told of a step whose effect is not there yet, where
// numbers alone differ; of another thing it is tellAfter.
const progressEvery = 30 * time.Second

// progressed reports whether what was seen of a step is told: it is another thing, or told long ago.
func progressed(ago time.Duration, shown string, saw schemas.Sentence) bool {
	if saw.ID == messages.NothingSeen || said(saw) == shown {
		return false
	}
	kind, _, _ := strings.Cut(shown, " ")
	return ago >= progressEvery || ago >= tellAfter && kind != saw.ID
}

// said is a sentence to compare, numbers and all.
func said(s schemas.Sentence) string { return s.ID + " " + messages.Text(s) }

// names are those who approved.
func names(votes []schemas.Approval) string {
	var out []string
	for _, v := range votes {
		out = append(out, v.By)
	}
	return strings.Join(out, ", ")
}

// held tells what keeps a repair from counting from another such thing.
func held(s schemas.Sentence) string { return fmt.Sprint(s.ID, s.Args["part"], s.Args["type"]) }

// restarted is when a rung that restarts a server, or its drivers, was sent; zero for
// others.
func restarted(r *policy.Rung, a schemas.Action) time.Time {
	switch {
	case !r.Restarts():
		return time.Time{}
	case a.SentAt.IsZero():
		return a.Created
	}
	return a.SentAt
}

// ticket hands over to a person what the ladder could not repair. The server
// stays out of the pool.
func (c *Controller) ticket(ctx context.Context, k *climb, p policy.Policy, at int) error {
	r := policy.Rung{Kind: kindTicket, Person: true}
	a, found, err := c.store.action(ctx, k.ID, len(p.Ladder), 1)
	if err != nil || found {
		return err
	}
	a = c.newAction(k, p, len(p.Ladder), 1, r)
	become(&a, schemas.ActionProposed, messages.New(messages.ForPersonAfter, messages.Args{"kind": p.Ladder[at].Kind, "server": k.Subject}))
	return c.save(ctx, k, &a, r, time.Time{}, verbEscalate)
}

func (c *Controller) close(ctx context.Context, k *climb, state string) error {
	dismiss(k)
	held := k.State != caseReading
	k.State = state
	if err := c.store.together(ctx, func(tx *sql.Tx) error { return c.store.saveCase(ctx, tx, k) }); err != nil {
		return err
	}
	c.mu.Lock()
	c.endedCase(k.Incident, k.Target, state)
	if state != caseFailed || !k.Cordoned {
		delete(c.open, k.key())
	}
	c.notes(k)
	c.mu.Unlock()
	c.changed()
	c.afterStep("closed " + state)
	if !held {
		return nil
	}
	return c.store.release(ctx, k.Subject)
}

func (c *Controller) save(ctx context.Context, k *climb, a *schemas.Action, r policy.Rung, intent time.Time, verb string) error {
	// What a person decided is theirs; what follows from it is done and seen by us.
	who := actor
	if a.Actor != "" && slices.Contains([]string{verbApprove, verbOverride, verbCancel, verbDryRun, verbRequest, "intend"}, verb) {
		who = a.Actor
	}
	tell, err := c.ticketOf(ctx, k, a, verb)
	if err != nil {
		return err
	}
	if err := c.store.saveAction(ctx, k, a, r.Destructive, intent, who, verb, tell); err != nil {
		return err
	}
	c.saved(a)
	return nil
}

// saveDecision saves an action that no climb holds, and leaves its case alone.
func (c *Controller) saveDecision(ctx context.Context, k *climb, a *schemas.Action, verb string) error {
	tell, err := c.ticketOf(ctx, k, a, verb)
	if err != nil {
		return err
	}
	if err := c.store.saveDecision(ctx, k.ID, a, cmp.Or(a.Actor, actor), verb, tell); err != nil {
		return err
	}
	c.saved(a)
	return nil
}

// saved counts a change, and wakes what publishes it.
func (c *Controller) saved(a *schemas.Action) {
	c.actions.WithLabelValues(a.Kind, a.Mode, a.State).Inc()
	c.changed()
	c.afterStep(a.State + " " + a.Kind)
}

// changed wakes what counts the budgets and publishes.
func (c *Controller) changed() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

func (c *Controller) newAction(k *climb, p policy.Policy, rung, attempt int, r policy.Rung) schemas.Action {
	server := ""
	if k.Subject != k.Target || k.Rack != "" {
		server = k.Subject
	}
	incident, prediction := k.Incident, ""
	if k.Foretold {
		incident, prediction = "", k.Incident
	}
	return schemas.Action{
		ID: "act-" + schemas.EventID(k.ID, strconv.Itoa(rung), strconv.Itoa(attempt)), Created: c.d.Now().UTC(), Site: k.Site,
		Server: server, Target: k.Target, Kind: r.Kind, Reason: k.Incident, Incident: incident, Prediction: prediction, Why: k.Why, Sentence: k.Summary,
		Mode: k.Mode, Requester: requester(k), Rung: rung, Ladder: p.Kinds(), Attempt: attempt, With: r.With.Values(), Person: r.Person,
	}
}

func step(k *climb, a schemas.Action, since time.Time) Step {
	reason := k.Fault + " on " + k.Target
	if k.Request != nil {
		reason = k.Request.Reason + " of " + k.Request.Actor
	}
	return Step{ID: a.ID, Kind: a.Kind, Server: k.Subject, Target: k.Target, Reason: reason, Since: since, With: a.With}
}

// blockedBy says which check holds a step back.
func blockedBy(rails []schemas.Rail) schemas.Sentence {
	for _, r := range rails {
		if !r.OK {
			return messages.New(messages.Held, messages.Args{"rail": r.Name, "why": *r.Sentence})
		}
	}
	return schemas.Sentence{}
}
