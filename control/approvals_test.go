package control

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// says has a person decide about an action.
func (b *bench) says(c *Controller, verb, who string, a schemas.Action, reason string) {
	b.t.Helper()
	user := "user-" + who
	if who == "script" {
		user = ""
	}
	v, err := json.Marshal(schemas.Intent{ID: a.ID + verb + who, Verb: verb, Action: a.ID, Actor: who, User: user, Reason: reason})
	if err == nil {
		err = c.onIntents(b.t.Context(), []bus.Message{{Value: v}})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// policies replaces the policy file of a bench.
func (b *bench) policies(pairs ...string) {
	b.t.Helper()
	text := strings.NewReplacer(pairs...).Replace(policyText)
	writeFile(b.t, filepath.Join(b.dir, "policy.yaml"), text)
}

// by are those who approved an action.
func by(a schemas.Action) (out []string) {
	for _, v := range a.Approvals {
		out = append(out, v.By)
	}
	return out
}

// row returns who the audit says did something to an action.
func (b *bench) rows(c *Controller, verb, action string) (who []string) {
	b.t.Helper()
	rows, err := audit.New(b.db, c.d.Now).List(b.t.Context(), 0, 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range slices.Backward(rows) {
		if r.Verb == verb && r.Action == action {
			who = append(who, r.Actor)
		}
	}
	return who
}

func TestTheStrictestModeThatAppliesHolds(t *testing.T) {
	pools := shares{of: map[string][]Group{server: {{schemas.ScopePool, "prod"}}}}
	for name, c := range map[string]struct {
		whole, rules, want string
	}{
		"nothing narrows it":            {schemas.ModeEnforce, "[]", "uncordon done enforce"},
		"the pool observes":             {schemas.ModeEnforce, "[{pool: prod, mode: observe}]", "uncordon proposed observe"},
		"another pool observes":         {schemas.ModeEnforce, "[{pool: lab, mode: observe}]", "uncordon done enforce"},
		"the fault is tried":            {schemas.ModeEnforce, "[{fault: gpu.*, mode: dry-run}]", "uncordon proposed dry-run"},
		"the policy waits for a person": {schemas.ModeEnforce, "[{policy: gpu, mode: approve}]", "drain waiting approve"},
		"one rung waits for a person":   {schemas.ModeEnforce, "[{rung: power_cycle, mode: approve}]", "power_cycle waiting approve"},
		"the whole is stricter":         {schemas.ModeObserve, "[{pool: prod, mode: enforce}]", "uncordon proposed observe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, c.whole)
			b.policies("budgets:", "rules: "+c.rules+"\nbudgets:")
			b.groups = pools
			ctl := b.controller()
			want := strings.Fields(c.want)
			as := b.until(ctl, func(as []schemas.Action) bool { return kind(as, want[0]).State == want[1] }, incident("i1", part, "gpu.fallen_off_bus"))
			if a := kind(as, want[0]); a.Mode != want[2] {
				t.Errorf("%s in mode %s", a.Kind, a.Mode)
			}
			if sends := want[2] == schemas.ModeEnforce || want[0] == "power_cycle"; (len(b.w.applied) > 0) != sends {
				t.Errorf("%d steps were sent", len(b.w.applied))
			}
		})
	}
}

// A mode that became stricter while a case is open holds its next step, and a laxer one loosens nothing.
func TestAModeThatBecomesStricterHoldsOpenCases(t *testing.T) {
	b := newBench(t, schemas.ModeApprove)
	as := b.until(b.controller(), func(as []schemas.Action) bool { return states(as)["drain"] == schemas.ActionWaiting }, incident("i1", part, "gpu.fallen_off_bus"))
	b.mode = schemas.ModeObserve
	c := b.controller()
	b.says(c, verbApprove, "ada", kind(as, "drain"), "")
	as = b.until(c, func(as []schemas.Action) bool { return kind(as, "drain").Mode == schemas.ModeObserve })
	if d := kind(as, "drain"); d.State != schemas.ActionWaiting || !strings.Contains(d.Detail, "the mode for "+server+" is observe now") || len(b.w.applied) != 0 {
		t.Errorf("%s %q, %d sent", d.State, d.Detail, len(b.w.applied))
	}
	b.mode = schemas.ModeEnforce
	as = b.until(b.controller(), func(as []schemas.Action) bool { return kind(as, "power_cycle").State == schemas.ActionWaiting })
	if p := kind(as, "power_cycle"); p.Mode != schemas.ModeApprove {
		t.Errorf("the case that was opened in approve is in mode %s", p.Mode)
	}
}

func TestRulesForPoolsNeedToKnowPools(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.policies("budgets:", "rules: [{pool: prod, mode: observe}]\nbudgets:")
	cfg := DefaultConfig()
	cfg.Policies = filepath.Join(b.dir, "policy.yaml")
	if _, err := New(cfg, Deps{}); err == nil || !strings.Contains(err.Error(), "in which pool") {
		t.Error(err)
	}
	if _, err := Modes(cfg, nil); err == nil || !strings.Contains(err.Error(), "in which pool") {
		t.Error(err)
	}
}

// TestWhoKeepsConfigurationsFollowsTheRules reads the mode of a step that somebody asks for, by server and kind.
func TestWhoKeepsConfigurationsFollowsTheRules(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.policies("budgets:", "rules: [{pool: prod, mode: observe}, {rung: set_bios, mode: approve}, {policy: gpu, mode: dry-run}]\nbudgets:")
	cfg := DefaultConfig()
	cfg.Mode, cfg.Policies = schemas.ModeEnforce, filepath.Join(b.dir, "policy.yaml")
	mode, err := Modes(cfg, shares{of: map[string][]Group{server: {{schemas.ScopePool, "prod"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[[2]string]string{
		{server, "configure_gpu"}: schemas.ModeObserve, {"gpu-r02-01", "configure_gpu"}: schemas.ModeEnforce, {"gpu-r02-01", "set_bios"}: schemas.ModeApprove,
	} {
		if got, err := mode(t.Context(), at[0], at[1]); err != nil || got != want {
			t.Errorf("%v: %s, %v", at, got, err)
		}
	}
}

// TestTwoPersonsApprove has the process end between the two: the first is remembered, counts once whatever they say again,
// and neither a token that is nobody's nor one person alone is enough.
func TestTwoPersonsApprove(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"of a policy": schemas.ModeApprove, "of a rung": schemas.ModeEnforce} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, mode)
			step := "drain"
			if mode == schemas.ModeApprove {
				b.policies("    min_confidence: 0.5", "    approvals: 2\n    min_confidence: 0.5")
			} else {
				step = "power_cycle"
				b.policies("quiet: 30ms", "quiet: 30ms, approvals: 2")
			}
			first := b.controller()
			as := b.until(first, func(as []schemas.Action) bool { return kind(as, step).State == schemas.ActionWaiting }, incident("i1", part, "gpu.fallen_off_bus"))
			a := kind(as, step)
			if a.ApprovalsNeeded != 2 || !strings.Contains(a.Detail, "2 of 2 persons must still approve") {
				t.Errorf("%d are needed: %q", a.ApprovalsNeeded, a.Detail)
			}
			for _, who := range []string{"ada", "script", "ada"} {
				b.says(first, verbApprove, who, a, "") // the process ends right after the bus was told
			}
			second := b.controller()
			as = b.until(second, func(as []schemas.Action) bool { return len(kind(as, step).Approvals) == 1 })
			a = kind(as, step)
			if d := cmp.Diff([]string{"ada"}, by(a)); d != "" || a.State != schemas.ActionWaiting || b.w.applied[a.ID] != 0 {
				t.Fatalf("%s %s, sent %d times", d, a.State, b.w.applied[a.ID])
			}
			third := b.controller()
			b.says(third, verbApprove, "ada", a, "")
			b.says(third, verbApprove, "bo", a, "")
			as = b.until(third, func(as []schemas.Action) bool { return kind(as, step).State == schemas.ActionDone })
			a = kind(as, step)
			if d := cmp.Diff([]string{"ada", "bo"}, by(a)); d != "" || b.w.applied[a.ID] != 1 {
				t.Errorf("%s, sent %d times", d, b.w.applied[a.ID])
			}
			if d := cmp.Diff([]string{"ada", "bo"}, b.rows(third, verbApprove, a.ID)); d != "" {
				t.Errorf("the audit has other approvals: %s", d)
			}
			if d := cmp.Diff([]string{"bo"}, b.rows(third, "intend", a.ID)); d != "" {
				t.Errorf("the audit has another decision: %s", d)
			}
		})
	}
}

// Where somebody has the server, both of two persons must approve before either vouches.
func TestOneOfTwoPersonsVouchesForNothing(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.policies("    min_confidence: 0.5", "    approvals: 2\n    min_confidence: 0.5")
	b.allocated(server)
	c := b.controller()
	as := b.until(c, func(as []schemas.Action) bool { return kind(as, "drain").State == schemas.ActionWaiting }, incident("i1", part, "gpu.fallen_off_bus"))
	a := kind(as, "drain")
	if a.ApprovalsNeeded != 2 {
		t.Errorf("%d are needed", a.ApprovalsNeeded)
	}
	b.says(c, verbApprove, "ada", a, "")
	as = b.until(c, func(as []schemas.Action) bool { return len(kind(as, "drain").Approvals) == 1 })
	if a = kind(as, "drain"); a.State != schemas.ActionWaiting || len(b.w.applied) != 0 {
		t.Fatalf("%s, %d sent", a.State, len(b.w.applied))
	}
	b.says(c, verbApprove, "bo", a, "")
	b.until(c, func(as []schemas.Action) bool { return kind(as, "drain").State == schemas.ActionDone })
}

func TestNobodyApprovesWhatTheyAskedFor(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.policies("budgets:", "rules: [{rung: power_cycle, approvals: 1}]\nbudgets:")
	c := b.controller()
	in := wish("r1", "power_cycle", nil)
	in.User = "user-ann"
	flow := wish("r2", "power_cycle", nil)
	flow.Server, flow.Reason, flow.Actor = "gpu-r02-01", "workflow w1", "auspex"
	b.tell(c, in, flow)
	b.until(c, func([]schemas.Action) bool { return b.actionOf("r1").State == schemas.ActionWaiting && b.closed("r2") })
	if a := b.actionOf("r2"); a.State != schemas.ActionDone {
		t.Errorf("what a workflow does is granted with the workflow: %s %s", a.State, a.Detail)
	}
	a := b.actionOf("r1")
	if a.Requester != "user-ann" || a.ApprovalsNeeded != 1 {
		t.Errorf("%q asked, %d are needed", a.Requester, a.ApprovalsNeeded)
	}
	b.says(c, verbApprove, "ann", a, "")
	b.says(c, verbApprove, "bo", a, "")
	b.until(c, func([]schemas.Action) bool { return b.closed("r1") })
	if a := b.actionOf("r1"); a.State != schemas.ActionDone || !slices.Equal(by(a), []string{"bo"}) {
		t.Errorf("%s by %v: %s", a.State, by(a), a.Detail)
	}
}

// frost freezes servers.
type frost map[string]bool

func (f frost) Frozen(_ context.Context, t time.Time, server string) (schemas.Maintenance, bool, error) {
	return schemas.Maintenance{ID: "mw-1", By: "li", Reason: "year end", Until: t.Add(time.Hour)}, f[server], nil
}

// TestNothingThatEndsWhatRunsStartsInAFreeze drains a server that is frozen and cycles it only once an admin has said why;
// next door it is repaired meanwhile.
func TestNothingThatEndsWhatRunsStartsInAFreeze(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	b.policies("2s", "10m") // what is seen in the end is not to depend on the machine
	c := b.controller()
	c.d.Freezes = frost{server: true}
	of := func(as []schemas.Action, server, kind string) schemas.Action {
		for _, a := range as {
			if a.Server == server && a.Kind == kind {
				return a
			}
		}
		return schemas.Action{}
	}
	as := b.until(c, func(as []schemas.Action) bool {
		return of(as, server, "power_cycle").State == schemas.ActionWaiting && of(as, "gpu-r02-03", "uncordon").State == schemas.ActionDone
	}, incident("i1", part, "gpu.fallen_off_bus"), incident("i2", "gpu-r02-03/gpu2", "gpu.fallen_off_bus"))
	a := of(as, server, "power_cycle")
	if of(as, server, "drain").State != schemas.ActionDone || !strings.Contains(a.Detail, "li froze "+server+" until") || !strings.Contains(a.Detail, "year end") {
		t.Errorf("the drain is %s, the power cycle says %q", of(as, server, "drain").State, a.Detail)
	}
	b.says(c, verbOverride, "root", a, "the rack burns")
	as = b.until(c, func(as []schemas.Action) bool { return of(as, server, "uncordon").State == schemas.ActionDone })
	a = of(as, server, "power_cycle")
	if a.Override == nil || a.Override.By != "root" || a.Override.Reason != "the rack burns" {
		t.Errorf("%+v", a.Override)
	}
	if i := slices.IndexFunc(a.Rails, func(r schemas.Rail) bool { return r.Name == railFreeze }); i < 0 || !a.Rails[i].OK || a.Rails[i].Sentence.ID != messages.FreezeOverridden {
		t.Errorf("%+v", a.Rails)
	}
	if d := cmp.Diff([]string{"root"}, b.rows(c, verbOverride, a.ID)); d != "" {
		t.Error(d)
	}
}

// What a person asks for in a freeze waits for an admin, and an override of what waits for nothing is too late.
func TestWhatIsAskedForWaitsInAFreeze(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	c.d.Freezes = frost{server: true}
	b.tell(c, wish("r1", "power_cycle", nil))
	b.until(c, func([]schemas.Action) bool { return b.actionOf("r1").State == schemas.ActionWaiting })
	b.says(c, verbOverride, "root", b.actionOf("r1"), "now")
	b.until(c, func([]schemas.Action) bool { return b.closed("r1") })
	if a := b.actionOf("r1"); a.State != schemas.ActionDone || a.Override == nil {
		t.Errorf("%s %s", a.State, a.Detail)
	}
	if kept, err := c.store.putIntent(t.Context(), schemas.Intent{Verb: verbOverride, Action: "r1", Actor: "root"}); err != nil || kept {
		t.Errorf("%v %v", kept, err)
	}
}

// TestOneViewAloneCutsNoPower has the kernel and an exporter of one host, a rule, and somebody's posts say that a GPU is
// lost: the server is drained, and its power left alone until the board controller says so too, or a person does.
func TestOneViewAloneCutsNoPower(t *testing.T) {
	for name, agrees := range map[string]bool{"the board controller agrees": true, "a person approves": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			store := records.New(b.db)
			inc := incident("i1", part, "gpu.fallen_off_bus")
			inc.Events = []string{"k", "d", "r", "p"}
			for id, a := range map[string]schemas.Alert{
				"k": alert("k", part, "gpu.xid", schemas.SourceKmsg, "", schemas.SeverityCritical, inc.At),
				"d": alert("d", part, "gpu.ecc_ue", schemas.SourceDCGM, "", schemas.SeverityError, inc.At),
				"r": alert("r", part, "gpu.missing", schemas.SourceRule, "", schemas.SeverityCritical, inc.At),
				"p": posted("p", part, "bmc.sel", nil),
			} {
				if id == "p" {
					a.Source = schemas.SourceRedfish
				}
				a.Server, a.Status = server, schemas.AlertResolved
				if err := store.PutAlert(t.Context(), a); err != nil {
					t.Fatal(err)
				}
			}
			if err := store.PutIncident(t.Context(), inc); err != nil {
				t.Fatal(err)
			}
			c := b.controller()
			as := b.until(c, func(as []schemas.Action) bool { return kind(as, "power_cycle").State == schemas.ActionWaiting })
			a := kind(as, "power_cycle")
			if !strings.Contains(a.Detail, "only 1 of 2 views saw the fault of "+part+": host") || a.ApprovalsNeeded != 1 {
				t.Errorf("%q, %d are needed", a.Detail, a.ApprovalsNeeded)
			}
			said := messages.QuorumVouched
			if agrees {
				said = messages.QuorumMet
				late := alert("b", part, "bmc.sel", schemas.SourceIPMI, "", schemas.SeverityCritical, inc.At)
				late.Server, late.Status = server, schemas.AlertResolved
				if err := store.PutAlert(t.Context(), late); err != nil {
					t.Fatal(err)
				}
				inc.Events = append(inc.Events, "b")
				if err := store.PutIncident(t.Context(), inc); err != nil { // control reads it when it starts
					t.Fatal(err)
				}
			} else {
				b.says(c, verbApprove, "script", a, "")
			}
			as = b.until(b.controller(), func(as []schemas.Action) bool { return kind(as, "uncordon").State == schemas.ActionDone })
			a = kind(as, "power_cycle")
			if i := slices.IndexFunc(a.Rails, func(r schemas.Rail) bool { return r.Name == railQuorum }); i < 0 || a.Rails[i].Sentence.ID != said || !a.Rails[i].OK {
				t.Errorf("%+v", a.Rails)
			}
		})
	}
}

// toll is what every step costs.
type toll struct{ schemas.BlastRadius }

func (c toll) Of(_ context.Context, server, target string) (schemas.BlastRadius, error) {
	c.Time, c.Servers, c.Owners = time.Now(), []string{server}, []string{target}
	return c.BlastRadius, nil
}

func TestWhatAStepWouldEndIsToldBefore(t *testing.T) {
	for mode, state := range map[string]string{schemas.ModeApprove: schemas.ActionWaiting, schemas.ModeDryRun: schemas.ActionProposed} {
		b := newBench(t, mode)
		b.policies("- {kind: drain, attempts: 2, verify: 2s}\n", "- {kind: reset_gpu, destructive: true, verify: 1s}\n", "needs: [drain], ", "")
		c := b.controller()
		c.d.Costs = toll{schemas.BlastRadius{GPUs: 8, GPUHours: 12, Jobs: []schemas.JobAtRisk{{ID: "job-1"}}}}
		c.d.Remediators["reset_gpu"] = worldStep{b.w}
		as := b.until(c, func(as []schemas.Action) bool { return kind(as, "reset_gpu").State == state }, incident("i1", part, "gpu.fallen_off_bus"))
		if r := kind(as, "reset_gpu").BlastRadius; r == nil || r.GPUs != 8 || r.GPUHours != 12 || !slices.Equal(r.Owners, []string{part}) {
			t.Errorf("%s: %+v", mode, r)
		}
		if mode != schemas.ModeDryRun {
			continue
		}
		b.until(c, func(as []schemas.Action) bool { return kind(as, "uncordon").State != "" })
		as, _, err := records.New(b.db).Actions(t.Context(), records.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if r := kind(as, "power_cycle").BlastRadius; r == nil || !slices.Equal(r.Owners, []string{server}) {
			t.Errorf("of the whole server: %+v", r)
		}
		if r := kind(as, "uncordon").BlastRadius; r != nil {
			t.Errorf("a return costs nothing: %+v", r)
		}
	}
}

// TestWhatAStepWaitsForIsTold has a power cycle that takes no effect for long, by a clock that runs fast: what was read back
// last is told while it waits, not only at its end.
func TestWhatAStepWaitsForIsTold(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.policies("verify: 2s, quiet", "verify: 10h, quiet", "max_evidence_age: 1h", "max_evidence_age: 100h")
	b.w.lazy = true
	c := b.controller()
	began := time.Now()
	c.d.Now = func() time.Time { return began.Add(200 * time.Since(began)) }
	as := b.until(c, func(as []schemas.Action) bool {
		a := kind(as, "power_cycle")
		return a.State == schemas.ActionVerifying && a.DetailSentence != nil && a.DetailSentence.ID == messages.Progress
	}, incident("i1", part, "gpu.fallen_off_bus"))
	if a := kind(as, "power_cycle"); !strings.Contains(a.Detail, "since then: power is on and no reset was observed since") || !a.EffectAt.IsZero() {
		t.Errorf("%q", a.Detail)
	}
}

func TestProgressIsToldSeldom(t *testing.T) {
	at := func(percent int) schemas.Sentence {
		return messages.New(messages.UpdateAt, messages.Args{"percent": percent})
	}
	for name, c := range map[string]struct {
		ago   time.Duration
		shown schemas.Sentence
		saw   schemas.Sentence
		want  bool
	}{
		"nothing was seen":     {time.Hour, schemas.Sentence{}, messages.New(messages.NothingSeen, nil), false},
		"too soon":             {9 * time.Second, schemas.Sentence{}, at(1), false},
		"the first":            {10 * time.Second, schemas.Sentence{}, at(1), true},
		"the same":             {time.Hour, at(1), at(1), false},
		"another number, soon": {20 * time.Second, at(1), at(2), false},
		"another number":       {30 * time.Second, at(1), at(2), true},
		"another thing":        {10 * time.Second, at(1), messages.New(messages.PowerOff, nil), true},
	} {
		shown := ""
		if c.shown.ID != "" {
			shown = said(c.shown)
		}
		if got := progressed(c.ago, shown, c.saw); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
