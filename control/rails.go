package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/store/allocations"
	"auspex/schemas"
)

// Names of rails. Those of waits hold a step back until they hold again; the
// others refuse it.
const (
	railConfidence = "confidence"
	railEvidence   = "evidence_age_seconds"
	railNeeds      = "rungs_before_done"
	railFleet      = "fleet_budget"
	railRack       = "rack_budget"
	railRate       = "destructive_per_hour"
	railCoolDown   = "cool_down_seconds"
	railLease      = "lease"
	railBreaker    = "storm_breaker"
	railDrained    = "still_drained"
	railHolds      = "quiet_seconds"
	railSeen       = "own_evidence"
	railWindow     = "maintenance_window"
	railJobs       = "jobs"
	railOwner      = "allocation"
	railUpdate     = "firmware_update"
	railFreeze     = "change_freeze"
	railQuorum     = "quorum"
	railMode       = "mode"
	railProbable   = "probability"
	railIdle       = "idle"
	railForetold   = "foretold"
	railFed        = "feed_back_seconds"
)

var waits = []string{railProbable, railIdle, railForetold, railMode, railFreeze, railQuorum, railUpdate, railWindow, railSeen, railOwner, railDrained, railHolds, railLoad, railFed, railFleet, railRate, railCoolDown, railLease, railBreaker}

// waitsFor reports whether a step waits until a rail holds again.
func waitsFor(rail string) bool {
	return slices.Contains(waits, rail) || slices.ContainsFunc([]string{railHeldIn, railRateIn, railKeepIn, railFreeIn}, func(of string) bool { return strings.HasSuffix(rail, of) })
}

// check evaluates the rails of a rung. planned says that rungs before it were
// planned, not done: observe and dry-run examine the whole ladder at once.
func (c *Controller) check(ctx context.Context, k *climb, p policy.Policy, rung int, planned bool) ([]schemas.Rail, error) {
	r := p.Ladder[rung]
	defer prometheus.NewTimer(c.checks).ObserveDuration()
	now := c.store.now()
	var out []schemas.Rail
	add := func(name string, value, limit float64, ok bool, id string, args messages.Args) {
		sentence := messages.New(id, args)
		out = append(out, schemas.Rail{Name: name, Value: value, Limit: limit, OK: ok, Detail: messages.Text(sentence), Sentence: &sentence})
	}
	needs := func() error {
		if len(r.Needs) == 0 {
			return nil
		}
		done := 0
		for _, n := range r.Needs {
			ok, err := c.needDone(ctx, k, p, n, planned)
			if err != nil {
				return err
			}
			if ok {
				done++
			}
		}
		id := messages.RungsDone
		if planned {
			id = messages.RungsPlanned
		}
		add(railNeeds, float64(done), float64(len(r.Needs)), done == len(r.Needs), id, messages.Args{"done": done, "of": len(r.Needs)})
		return nil
	}
	lease := func() error {
		if planned || k.State == caseReading {
			return nil
		}
		token, ok, err := c.store.lease(ctx, k.Subject, c.cfg.LeaseTTL)
		if err != nil {
			return fmt.Errorf("take lease of %s: %w", k.Subject, err)
		}
		id := messages.LeaseOurs
		if !ok {
			id = messages.LeaseOthers
		}
		add(railLease, float64(token), 0, ok, id, messages.Args{"server": k.Subject})
		return nil
	}
	if !planned && !r.Person {
		held, err := c.moded(ctx, k, &p, &r)
		if err != nil {
			return nil, err
		}
		out = append(out, held...)
	}
	if releases(r.Kind) { // it gives capacity back: only what makes it safe holds it
		if err := errors.Join(needs(), lease()); err != nil {
			return nil, err
		}
		if k.Foretold && !planned {
			out = append(out, c.averted(k))
		}
		if k.vigil != nil && !planned {
			f, err := c.examine(ctx, k)
			if err != nil {
				return nil, fmt.Errorf("check %s: %w", k.Target, err)
			}
			out = append(out, schemas.Rail{
				Name: railHolds, Value: f.quiet.Seconds(), Limit: k.vigil.quiet.Seconds(), OK: f.cured,
				Detail: messages.Text(f.observed), Sentence: &f.observed,
			})
		}
		return out, nil
	}
	if r.Kind == policy.KindUncap && k.Request == nil { // as what gives capacity back
		if err := errors.Join(needs(), lease()); err != nil || planned {
			return out, err
		}
		back, err := c.fed(ctx, k, r.Quiet, now)
		if err != nil {
			return nil, fmt.Errorf("read whether %s gives power: %w", k.Target, err)
		}
		return append(out, back), nil
	}
	if k.Request == nil {
		name, id := railConfidence, messages.Confidence
		if k.Foretold {
			name, id = railProbable, messages.Probability
		}
		add(
			name, k.Confidence, p.MinConfidence, k.Confidence >= p.MinConfidence, id,
			messages.Args{"value": math.Round(k.Confidence * 100), "limit": math.Round(p.MinConfidence * 100)},
		)
	}
	if r.Person {
		return out, nil
	}
	if c.d.Maintenance != nil && k.State != caseReading {
		m, open, err := c.d.Maintenance.Covering(ctx, now, k.Subject, k.Target)
		if err != nil {
			return nil, fmt.Errorf("read maintenance windows: %w", err)
		}
		if open {
			until := m.End().UTC().Format(time.RFC3339)
			add(railWindow, 1, 0, false, messages.InWindow, messages.Args{"window": m.ID, "by": m.By, "server": k.Subject, "until": until})
		} else {
			add(railWindow, 0, 0, true, messages.NoWindow, messages.Args{"server": k.Subject})
		}
	}
	if c.d.Freezes != nil && k.State != caseReading && r.EndsWhatRuns() {
		frozen, err := c.frozen(ctx, k, now)
		if err != nil {
			return nil, err
		}
		out = append(out, frozen)
	}
	if p.MaxEvidenceAge > 0 && (r.Kind != kindQuarantine || !k.Cordoned) { // what is out already is only kept so
		age := now.Sub(k.Evidence)
		add(railEvidence, age.Seconds(), p.MaxEvidenceAge.Seconds(), age <= p.MaxEvidenceAge, messages.EvidenceAge, messages.Age(age))
	}
	if err := needs(); err != nil {
		return nil, err
	}
	if k.Request == nil && r.Kind == policy.KindCap {
		lost, err := c.unfed(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("read whether %s gives power: %w", k.Target, err)
		}
		out = append(out, lost)
	}
	if k.Request == nil && (r.EndsWhatRuns() || takesOut(r.Kind)) {
		source, err := c.witness(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("read the evidence against %s: %w", k.Target, err)
		}
		seen, id, args := 1.0, messages.SeenBy, messages.Args{"part": k.Target, "source": source}
		switch {
		case source != "":
		case k.vouched != "":
			id, args = messages.VouchedFor, messages.Args{"part": k.Target, "who": k.vouched}
		default:
			seen, id = 0, messages.SeenByNobody
		}
		add(railSeen, seen, 1, seen == 1, id, args)
		if n := r.Signs(c.outside(k, &r)); n > 1 && seen == 1 {
			agree, err := c.quorum(ctx, k, n)
			if err != nil {
				return nil, fmt.Errorf("read the evidence against %s: %w", k.Target, err)
			}
			out = append(out, agree)
		}
		held, err := allocations.On(ctx, c.store.db, k.Subject)
		if err != nil {
			return nil, fmt.Errorf("read who has %s: %w", k.Subject, err)
		}
		switch args := (messages.Args{"server": k.Subject, "who": k.vouched, "user": users(held)}); {
		case len(held) == 0:
			add(railOwner, 0, 0, true, messages.NobodyHas, args)
		case k.vouched != "":
			add(railOwner, float64(len(held)), 0, true, messages.OwnerAgreed, args)
		default:
			add(railOwner, float64(len(held)), 0, false, messages.OwnerAsked, args)
		}
	}
	if k.State == caseReading { // nothing is taken from anybody
		return out, nil
	}
	if policy.Limits(r.Kind) { // nobody is taken out, so all servers of a feed may be limited at once
		return out, lease()
	}
	held, inRack := c.held(k)
	b := c.policies.Budgets
	add(railFleet, float64(held), float64(b.Fleet), held <= b.Fleet, messages.FleetBudget, messages.Args{"held": held, "limit": b.Fleet})
	if k.Rack != "" {
		add(
			railRack, float64(inRack), float64(b.Rack), inRack <= b.Rack, messages.RackBudget,
			messages.Args{"held": inRack, "limit": b.Rack, "rack": k.Rack},
		)
	}
	shared, err := c.limits(ctx, k, r, now)
	if err != nil {
		return nil, err
	}
	out = append(out, shared...)
	if r.Destructive {
		n, last, err := c.destructive(ctx, now, k.Subject)
		if err != nil {
			return nil, fmt.Errorf("read budgets: %w", err)
		}
		add(railRate, float64(n+1), float64(b.PerHour), n+1 <= b.PerHour, messages.HourlyRate, messages.Args{"n": n})
		if r.CoolDown > 0 {
			since, id := r.CoolDown, messages.FirstSuch
			if !last.IsZero() {
				since, id = now.Sub(last), messages.CoolDown
			}
			args := messages.Age(since)
			args["server"] = k.Subject
			add(railCoolDown, since.Seconds(), r.CoolDown.Seconds(), since >= r.CoolDown, id, args)
		}
	}
	n := c.recentCases(now)
	args := messages.Age(c.policies.Breaker.Window)
	args["n"] = n
	add(railBreaker, float64(n), float64(c.policies.Breaker.Cases), n <= c.policies.Breaker.Cases, messages.Breaker, args)
	if err := lease(); err != nil {
		return nil, err
	}
	return out, nil
}

// users names whose allocations they are.
func users(held []schemas.Allocation) string {
	var names []string
	for i := range held {
		if name := cmp.Or(held[i].Team, held[i].User); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// witness returns the source of an alert by which our own collectors saw the fault:
// on the part, on its server as a whole, or, where a server is to blame, on any part of
// it. Empty is none: then there is nothing but what somebody posted, and whoever can
// post must not decide what is destroyed.
func (c *Controller) witness(ctx context.Context, k *climb) (source string, err error) {
	c.mu.Lock()
	var events []string
	if n := c.incidentOf(k); n != nil {
		events = n.inc.Events
		if n.prediction != nil { // of what our own collectors read
			source = n.prediction.Metric
		}
	}
	c.mu.Unlock()
	if source != "" {
		return source, nil
	}
	if source, ok := k.witnesses[k.witness]; ok && slices.Contains(events, k.witness) {
		return source, nil
	}
	if k.witnesses == nil {
		k.witnesses = map[string]string{}
	}
	for _, id := range events {
		source, read := k.witnesses[id]
		if !read {
			a, found, err := c.d.Records.Alert(ctx, id)
			if err != nil {
				return "", err
			}
			if !found { // its record is on its way
				continue
			}
			if c.testifies(k, &a) {
				source = a.Source
			}
			k.witnesses[id] = source
		}
		if source != "" {
			k.witness = id
			return source, nil
		}
	}
	return "", nil
}

// testifies reports whether an alert is a sign that our collectors saw of what a case
// treats. A rule saw what the collector that it names saw, and the readings of all of
// ours where it names none: it judges nothing else.
func (c *Controller) testifies(k *climb, a *schemas.Alert) bool {
	if a.External() || a.Type == schemas.EventAccessRefused || a.Severity.Rank() < schemas.SeverityWarning.Rank() {
		return false
	}
	anonymous := a.Source == schemas.SourceRule && a.Attrs["collector"] == ""
	if !anonymous && views(c.d.View).ofAlert(a) == schemas.ViewNone {
		return false
	}
	if a.Resource == k.Target || a.Resource == k.Subject {
		return true
	}
	server, _, _, ok := c.d.Inventory.Place(a.Resource)
	return ok && k.Target == k.Subject && server == k.Subject
}

// rechecks reports whether the world is read again before a rung: a server that was
// drained an hour ago may have been given back since, and one that somebody asks for
// may be at work.
func rechecks(k *climb, r policy.Rung) bool {
	if r.Idle || k.Request == nil && r.Kind == policy.KindCap {
		return true
	}
	if k.Request != nil || cutsPower(r) {
		return cutsPower(r) || r.Destructive
	}
	return r.Destructive && slices.ContainsFunc(r.Needs, takesOut)
}

func takesOut(kind string) bool {
	return kind == kindDrain || kind == kindCordon || kind == kindQuarantine
}

// releases says whether a rung gives capacity back.
func releases(kind string) bool { return kind == kindUncordon }

// cutsPower reports whether a rung may end an update of firmware in the middle: all that turns the
// power, resets, or starts another update.
func cutsPower(r policy.Rung) bool { return r.EndsWhatRuns() || r.Kind == "power_on" }

// seen reads what the world itself says against a rung.
func (c *Controller) seen(ctx context.Context, k *climb, r policy.Rung) (out []schemas.Rail) {
	if cutsPower(r) {
		out = c.updating(ctx, k)
	}
	switch {
	case r.Kind == policy.KindCap:
		out = append(out, c.examined(ctx, k, r)...)
	case r.Idle:
		out = append(out, c.unused(ctx, k))
	case k.Request == nil:
		out = append(out, c.recheck(ctx, k, r)...)
	case r.EndsWhatRuns():
		out = append(out, c.occupied(ctx, k)...)
	}
	return out
}

// longestUpdate is for how long an update that was not seen to end holds the power of a server whose
// controller does not answer.
const longestUpdate = 2 * time.Hour

// updating asks whether firmware is being installed on the server, whoever began it: what is written
// half may never start again. Neither force nor approval lets a step through.
func (c *Controller) updating(ctx context.Context, k *climb) []schemas.Rail {
	u, ok := c.d.Remediators[kindUpdate].(Updater)
	if !ok {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
	what, err := u.Updating(call, k.Subject)
	cancel()
	sentence, holds := messages.New(messages.NoUpdate, messages.Args{"server": k.Subject}), true
	switch {
	case errors.Is(err, ErrCannot):
		return nil
	case err != nil:
		left, read := c.store.updateLeft(ctx, c.store.now().Add(-longestUpdate), k.Subject)
		if !left && read == nil {
			return nil // nobody began one that we know of; a controller that is away is often why it is repaired
		}
		sentence, holds = messages.New(messages.UpdateUnread, messages.Args{"server": k.Subject, "error": err.Error()}), false
	case what != "":
		sentence, holds = messages.New(messages.UpdateHolds, messages.Args{"server": k.Subject, "task": what}), false
	}
	value := 1.0
	if holds {
		value = 0
	}
	return []schemas.Rail{{Name: railUpdate, Value: value, OK: holds, Detail: messages.Text(sentence), Sentence: &sentence}}
}

// recheck asks the scheduler whether no job runs on the server and none will start.
func (c *Controller) recheck(ctx context.Context, k *climb, r policy.Rung) []schemas.Rail {
	var out []schemas.Rail
	for _, kind := range r.Needs {
		rem := c.d.Remediators[kind]
		if !takesOut(kind) || rem == nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, c.cfg.CallTime)
		v, sentence, err := rem.Verify(call, Step{Kind: kind, Server: k.Subject, Target: k.Target, Since: k.Decided})
		cancel()
		if err != nil {
			sentence = messages.Error(err)
		}
		ok := err == nil && v == Verified
		value := 0.0
		if ok {
			value = 1
		}
		out = append(out, schemas.Rail{Name: railDrained, Value: value, Limit: 1, OK: ok, Detail: messages.Text(sentence), Sentence: &sentence})
	}
	return out
}

// needDone reports whether a rung of this ladder, by kind, is done (or planned). A
// repair that was verified stands for every other: the part is back.
func (c *Controller) needDone(ctx context.Context, k *climb, p policy.Policy, kind string, planned bool) (bool, error) {
	if k.needs[kind] { // what is done stays so
		return true, nil
	}
	need := slices.IndexFunc(p.Ladder, func(r policy.Rung) bool { return r.Kind == kind })
	for i, r := range p.Ladder {
		if i != need && (!r.Repairs() || !p.Ladder[need].Repairs()) {
			continue
		}
		switch state, err := c.rungDone(ctx, k, i, &r); {
		case err != nil:
			return false, err
		case state == schemas.ActionDone:
			if k.needs == nil {
				k.needs = map[string]bool{}
			}
			k.needs[kind] = true
			return true, nil
		case planned && state == schemas.ActionProposed:
			return true, nil
		}
	}
	return false, nil
}

// rungDone is done or proposed where a rung of a case is, of whichever attempt, else empty.
func (c *Controller) rungDone(ctx context.Context, k *climb, i int, r *policy.Rung) (state string, err error) {
	for attempt := 1; attempt <= max(1, r.Attempts); attempt++ {
		a, found, err := c.store.action(ctx, k.ID, i, attempt)
		if err != nil {
			return "", err
		}
		if found && (a.State == schemas.ActionDone || a.State == schemas.ActionProposed) {
			return a.State, nil
		}
	}
	return "", nil
}

// verdict tells whether a step may go, must wait, or is refused for good.
func verdict(rails []schemas.Rail) (goes, wait bool) {
	goes, wait = true, true
	for _, r := range rails {
		if !r.OK {
			goes = false
			if !waitsFor(r.Name) {
				wait = false
			}
		}
	}
	return goes, wait && !goes
}

// held counts the servers that we keep out of the pool, the asking one included:
// all of them, and those in its rack.
func (c *Controller) held(k *climb) (fleet, rack int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fleet, rack = 1, 1
	for _, o := range c.out {
		if o.Subject != k.Subject {
			fleet++
			if o.Rack == k.Rack {
				rack++
			}
		}
	}
	return fleet, rack
}

// recentCases counts the ladders with destructive steps that were asked for within
// the breaker's window.
func (c *Controller) recentCases(now time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = slices.DeleteFunc(c.asked, func(t time.Time) bool { return now.Sub(t) > c.policies.Breaker.Window })
	return len(c.asked)
}

// inWindow says whether declared maintenance holds a step back.
func inWindow(rails []schemas.Rail) bool { return lacking(rails, railWindow) }

// lacking reports whether a rail does not hold.
func lacking(rails []schemas.Rail, name string) bool {
	return slices.ContainsFunc(rails, func(r schemas.Rail) bool { return r.Name == name && !r.OK })
}
