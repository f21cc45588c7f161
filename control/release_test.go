package control

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
	"auspex/schemas/sql"
)

// Each rail in turn does not hold. What takes a server out waits or is refused;
// what gives it back goes, unless the rail is about the repair itself.
func TestNoRailAboutCapacityHoldsBackARelease(t *testing.T) {
	t.Parallel()
	breaks := map[string]func(b *bench, c *Controller, k *climb, p *policy.Policy){
		railConfidence: func(_ *bench, _ *Controller, k *climb, _ *policy.Policy) { k.Confidence = 0.1 },
		railEvidence: func(_ *bench, _ *Controller, k *climb, _ *policy.Policy) {
			k.Evidence = time.Now().Add(-48 * time.Hour)
		},
		railFleet: func(_ *bench, c *Controller, _ *climb, _ *policy.Policy) { c.policies.Budgets.Fleet = 0 },
		railRack:  func(_ *bench, c *Controller, _ *climb, _ *policy.Policy) { c.policies.Budgets.Rack = 0 },
		railBreaker: func(_ *bench, c *Controller, _ *climb, _ *policy.Policy) {
			for range 20 {
				c.asked = append(c.asked, time.Now())
			}
		},
		railRate:     func(_ *bench, c *Controller, _ *climb, _ *policy.Policy) { c.policies.Budgets.PerHour = 0 },
		railCoolDown: func(_ *bench, _ *Controller, _ *climb, p *policy.Policy) { p.Ladder[1].CoolDown = 24 * time.Hour },
		railLease: func(b *bench, _ *Controller, k *climb, _ *policy.Policy) {
			other := &store{db: b.db, holder: "other", now: time.Now}
			if _, ok, err := other.lease(b.t.Context(), k.Subject, time.Hour); err != nil || !ok {
				b.t.Fatal(ok, err)
			}
		},
		railNeeds: func(b *bench, _ *Controller, _ *climb, _ *policy.Policy) {
			if _, err := b.db.ExecContext(b.t.Context(), `DELETE FROM control_actions WHERE rung=1`); err != nil {
				b.t.Fatal(err)
			}
		},
		railWindow: func(_ *bench, c *Controller, k *climb, _ *policy.Policy) { c.d.Maintenance = work{k.Subject: "w1"} },
		railSeen:   func(_ *bench, c *Controller, _ *climb, _ *policy.Policy) { clear(c.incidents) },
		railHolds:  func(_ *bench, _ *Controller, k *climb, _ *policy.Policy) { k.vigil.deaf() },
		railOwner:  func(*bench, *Controller, *climb, *policy.Policy) {}, // before there was a case
		railMode:   func(_ *bench, c *Controller, _ *climb, _ *policy.Policy) { c.cfg.Mode = schemas.ModeObserve },
		railFreeze: func(_ *bench, c *Controller, k *climb, _ *policy.Policy) { c.d.Freezes = frost{k.Subject: true} },
		railQuorum: func(_ *bench, _ *Controller, _ *climb, p *policy.Policy) { p.Ladder[1].Quorum = 3 },
		railProbable: func(_ *bench, _ *Controller, k *climb, _ *policy.Policy) {
			k.Foretold, k.Incident, k.Confidence = true, "p1", 0.1
		},
		railForetold: func(_ *bench, _ *Controller, k *climb, _ *policy.Policy) { k.Foretold = true },
	}
	holdsRelease := []string{railLease, railNeeds, railHolds, railMode, railForetold}
	for name, spoil := range breaks {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			c := b.controller()
			if name == railOwner {
				b.allocated(server)
			}
			k := b.climbedTo(c, "power_cycle")
			p, _ := c.policies.For(k.Fault)
			p.Ladder = slices.Clone(p.Ladder)
			spoil(b, c, k, &p)
			blocked := func(rung int) bool {
				rails, err := c.check(t.Context(), k, p, rung, false)
				if err != nil {
					t.Fatal(err)
				}
				goes, _ := verdict(rails)
				return !goes
			}
			if got, want := blocked(2), slices.Contains(holdsRelease, name); got != want {
				t.Errorf("%s broken: uncordon blocked %v, want %v", name, got, want)
			}
			if name != railHolds && name != railNeeds && name != railForetold && !blocked(1) {
				t.Errorf("%s broken: the power cycle goes", name)
			}
		})
	}
	for _, name := range append(slices.Clone(waits), railConfidence, railEvidence, railNeeds) {
		if breaks[name] == nil && !slices.Contains([]string{railDrained, railUpdate, railIdle, railLoad, railFed}, name) { // which are read in the world right before a step
			t.Errorf("nothing breaks %s here", name)
		}
	}
}

// climbedTo gives a case whose rungs up to one are done and verified, and whose
// part is well.
func (b *bench) climbedTo(c *Controller, last string) *climb {
	b.t.Helper()
	k := &climb{
		ID: "case-1", Incident: "i1", Subject: server, Target: part, Fault: "gpu.fallen_off_bus", Confidence: 0.9, Mode: schemas.ModeEnforce,
		Rack: "r01", Evidence: time.Now(), Cordoned: true, Touched: true, Opened: time.Now(), State: caseOpen,
	}
	inc := incident(k.Incident, k.Target, k.Fault)
	b.keep(inc)
	c.consider(inc)
	if ok, err := c.store.openCase(b.t.Context(), c.store.db, k); err != nil || !ok {
		b.t.Fatal(ok, err)
	}
	p, _ := c.policies.For(k.Fault)
	for i, r := range p.Ladder {
		a := c.newAction(k, p, i, 1, r)
		verified(&a, messages.New(messages.PowerBack, nil))
		if err := c.store.saveAction(b.t.Context(), k, &a, r.Destructive, time.Now(), actor, "done"); err != nil {
			b.t.Fatal(err)
		}
		if r.Kind == last {
			break
		}
	}
	v := newVigil(server, part, schemas.KindGPU, eyes)
	v.stop = func() {}
	v.repaired(time.Now().Add(-time.Minute), 10*time.Second)
	for s := 50; s >= 0; s -= 5 {
		now := time.Now().Add(-time.Duration(s) * time.Second)
		v.observe(Observation{Resource: part, Kind: schemas.KindGPU, Collector: "dcgmexporter", Time: now, Observed: now, Values: power(now)})
	}
	k.vigil = v
	return k
}

// A storm trips the breaker while servers are being repaired: those come back, and
// no other is taken.
func TestAStormTakesNoServerAndGivesBackTheRepaired(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	c.afterStep = func(name string) {
		if name == "verified power_cycle" {
			c.mu.Lock()
			for range 50 {
				c.asked = append(c.asked, time.Now())
			}
			c.mu.Unlock()
		}
	}
	as := b.until(
		c, func(as []schemas.Action) bool { return states(as)["uncordon"] == schemas.ActionDone }, incident("i1", part, "gpu.fallen_off_bus"),
	)
	if len(b.w.drained) != 1 || b.w.drained[server] {
		t.Errorf("%v: %s", b.w.drained, show(as))
	}
	b.until(c, func(as []schemas.Action) bool {
		return slices.ContainsFunc(as, func(a schemas.Action) bool {
			return a.Incident == "i2" && a.State == schemas.ActionWaiting && strings.Contains(a.Detail, railBreaker)
		})
	}, incident("i2", "gpu-r02-01/gpu0", "gpu.fallen_off_bus"))
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.w.drained["gpu-r02-01"] {
		t.Error("the storm breaker let a server be drained")
	}
}

const escalation = `
budgets: {fleet: 2, rack: 1, per_hour: 4}
breaker: {cases: 5, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    max_evidence_age: 4s # less than a rung may take
    ladder:
      - {kind: drain, verify: 2s}
      - {kind: reset_gpu, needs: [drain], destructive: true, verify: 5s, quiet: 100ms}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 5s, quiet: 100ms}
      - {kind: uncordon, needs: [power_cycle], verify: 2s}
`

// resetStep brings nothing back, or all.
type resetStep struct {
	worldStep
	cures bool
}

func (r resetStep) Apply(_ context.Context, s Step) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.applied[s.ID]++
	r.w.dead[s.Server] = !r.cures
	return nil
}

func (r resetStep) Verify(context.Context, Step) (Verdict, schemas.Sentence, error) {
	return Verified, messages.New(messages.PowerBack, nil), nil
}

type cyclesBack struct {
	worldStep
	cures bool
}

func (r cyclesBack) Apply(ctx context.Context, s Step) error {
	r.w.mu.Lock()
	r.w.dead[s.Server] = !r.cures
	r.w.mu.Unlock()
	return r.worldStep.Apply(ctx, s)
}

func TestARungThatDidNotCureLeavesTheNextAndThenAPerson(t *testing.T) {
	for _, tc := range []struct {
		driver, reset, cycle bool
		want                 map[string]string
	}{
		{true, true, true, map[string]string{"drain": "done", "reset_gpu": "done", "uncordon": "done"}},
		{true, false, true, map[string]string{"drain": "done", "reset_gpu": "failed", "power_cycle": "done", "uncordon": "done"}},
		{true, false, false, map[string]string{"drain": "done", "reset_gpu": "failed", "power_cycle": "failed", "ticket": "proposed"}},
		{false, false, true, map[string]string{"drain": "done", "reset_gpu": "refused", "power_cycle": "done", "uncordon": "done"}},
	} {
		t.Run(fmt.Sprintf("driver %v, reset cures %v, power cycle cures %v", tc.driver, tc.reset, tc.cycle), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			writeFile(t, filepath.Join(b.dir, "policy.yaml"), escalation)
			c := b.controller()
			c.d.Remediators["power_cycle"] = cyclesBack{worldStep{b.w}, tc.cycle}
			if tc.driver {
				c.d.Remediators["reset_gpu"] = resetStep{worldStep{b.w}, tc.reset}
			}
			as := b.until(
				c, func(as []schemas.Action) bool { s := states(as); return s["uncordon"] == "done" || s["ticket"] != "" },
				incident("i1", part, "gpu.fallen_off_bus"),
			)
			got := states(as)
			for k, want := range tc.want {
				if got[k] != want {
					t.Errorf("%s is %s, want %s: %s", k, got[k], want, kind(as, k).Detail)
				}
			}
			if len(got) != len(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
			b.w.mu.Lock()
			defer b.w.mu.Unlock()
			if out := tc.want["ticket"] != ""; b.w.drained[server] != out {
				t.Errorf("out of the pool: %v, want %v", b.w.drained[server], out)
			}
		})
	}
}

// A part that fails again while its server waits for a person is not returned.
func TestAServerWhosePartFailsAgainBeforeItsReturnStaysOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeApprove)
	c := b.controller()
	approved := map[string]bool{}
	b.until(c, func(as []schemas.Action) bool {
		for _, a := range as {
			if a.State != schemas.ActionWaiting || approved[a.ID] {
				continue
			}
			if a.Kind == "uncordon" {
				b.w.mu.Lock()
				b.w.dead[server] = true
				b.w.mu.Unlock()
			}
			approved[a.ID] = true
			if a.Kind == "uncordon" { // the part has been silent for longer than the quiet time
				time.Sleep(50 * time.Millisecond) // that silence
			}
			b.intend(c, "approve", a)
		}
		u := kind(as, "uncordon")
		return strings.Contains(u.Detail, railHolds) || u.State == schemas.ActionDone
	}, incident("i1", part, "gpu.fallen_off_bus"))
	b.w.drainedIs(t, true)
	b.w.mu.Lock()
	b.w.dead[server] = false // and it comes back
	b.w.mu.Unlock()
	b.until(b.controller(), func(as []schemas.Action) bool { return states(as)["uncordon"] == schemas.ActionDone })
	b.w.drainedIs(t, false)
}

func (w *world) drainedIs(t *testing.T, want bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.drained[server] != want {
		t.Errorf("drained %v, want %v", w.drained[server], want)
	}
}

// What was heard before a restart is not believed after it: the quiet time is seen
// whole by one process, and counted from the effect that was stored.
func TestTheQuietTimeBeginsAnewAfterARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.ReplaceAll(policyText, "quiet: 30ms", "quiet: 1h"))
	first := b.controller()
	as := b.until(
		first, func(as []schemas.Action) bool { return !kind(as, "power_cycle").EffectAt.IsZero() }, incident("i1", part, "gpu.fallen_off_bus"),
	)
	effectAt := kind(as, "power_cycle").EffectAt
	writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.ReplaceAll(policyText, "verify: 2s, quiet: 30ms", "verify: 1m, quiet: 200ms"))
	second := b.controller()
	began := time.Now()
	as = b.until(second, func(as []schemas.Action) bool { return states(as)["power_cycle"] == schemas.ActionDone })
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("verified %s after the restart", took)
	}
	if got := kind(as, "power_cycle"); !got.EffectAt.Equal(effectAt) || len(b.w.cycles()) != 1 {
		t.Errorf("effect at %s, was %s; cycles %v", got.EffectAt, effectAt, b.w.cycles())
	}
}

// A step of an earlier version said in words alone that it was sent.
func TestWhatEarlierVersionsSaidInWordsIsAFieldNow(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	k := b.climbedTo(c, "power_cycle")
	when := time.Now().Add(-time.Minute)
	for i, detail := range []string{"sent", "decided", `sent, the answer is not known: "detail":"sent"`} {
		a := schemas.Action{ID: fmt.Sprint("old", i), Rung: 5 + i, Attempt: 1, State: schemas.ActionVerifying, Detail: detail}
		if err := c.store.saveAction(t.Context(), k, &a, true, when, actor, "sent"); err != nil {
			t.Fatal(err)
		}
	}
	migration, err := sql.Relational.ReadFile("relational/0042_control.sql")
	if err != nil {
		t.Fatal(err)
	}
	update := regexp.MustCompile(`(?m)^UPDATE .*;$`).FindString(string(migration))
	if _, err := b.db.ExecContext(t.Context(), update); err != nil || update == "" {
		t.Fatal(update, err)
	}
	for i, want := range []bool{true, false, false} {
		a, found, err := c.store.action(t.Context(), k.ID, 5+i, 1)
		if err != nil || !found {
			t.Fatal(found, err)
		}
		if got := !a.SentAt.IsZero(); got != want {
			t.Errorf("%q: sent %v, want %v", a.Detail, got, want)
		}
	}
}
