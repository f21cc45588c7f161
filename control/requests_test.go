package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/reasons"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/requests"
	"auspex/schemas"
)

// wish is a request for a server of the bench.
func wish(id, kind string, with map[string]string) schemas.Intent {
	return schemas.Intent{
		ID: id, Time: time.Now().UTC(), Verb: schemas.IntentRequest, Server: server, Kind: kind, Reason: "request", Actor: "ann", With: with,
	}
}

// tell gives a controller what the bus would.
func (b *bench) tell(c *Controller, ins ...schemas.Intent) {
	b.t.Helper()
	var msgs []bus.Message
	for _, in := range ins {
		value, err := json.Marshal(in)
		if err != nil {
			b.t.Fatal(err)
		}
		msgs = append(msgs, bus.Message{Value: value})
	}
	if err := c.onIntents(b.t.Context(), msgs); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) actionOf(id string) schemas.Action {
	b.t.Helper()
	a, _, err := records.New(b.db).Action(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// closed says that a request has ended, and its case with it.
func (b *bench) closed(id string) bool {
	b.t.Helper()
	var n int
	if err := b.db.QueryRowContext(b.t.Context(), `SELECT count(*) FROM control_cases WHERE reason=$1 AND state IN ('open','reading')`, id).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n == 0 && ended(b.actionOf(id))
}

func ended(a schemas.Action) bool {
	return slices.Contains([]string{"done", "failed", "unknown", "cancelled", "refused"}, a.State)
}

func TestWhatIsAskedForIsDoneAndReadBack(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{schemas.ModeApprove, schemas.ModeEnforce} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, mode)
			c := b.controller()
			in := wish("r1", "power_cycle", nil)
			b.tell(c, in, in)
			b.until(c, func([]schemas.Action) bool { return b.closed("r1") })
			b.tell(b.controller(), in) // the bus brings it again
			a := b.actionOf("r1")
			if a.State != schemas.ActionDone || a.VerifiedBy == "" || a.Actor != "ann" || a.Reason != "request" || a.Incident != "" || a.Mode != mode {
				t.Errorf("%+v", a)
			}
			if n := b.w.cycles()["r1"]; n != 1 {
				t.Errorf("it was power-cycled %d times", n)
			}
			names := map[string]bool{}
			for _, r := range a.Rails {
				names[r.Name] = r.OK
			}
			for _, name := range []string{railFleet, railRack, railRate, railLease, railBreaker, railJobs} {
				if !names[name] {
					t.Errorf("rail %s is not among %v", name, names)
				}
			}
			rows, err := audit.New(b.db, time.Now).List(t.Context(), 0, 20)
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, r := range slices.Backward(rows) {
				said = append(said, r.Actor+" "+r.Verb)
			}
			if got := strings.Join(said, ", "); got != "ann request, ann intend, auspex sent, auspex done" {
				t.Errorf("the audit has %s", got)
			}
			list, _, err := requests.New(b.db).List(t.Context(), requests.Filter{Limit: 10, State: schemas.ActionDone})
			if err != nil || len(list) != 1 || list[0].Intent.ID != "r1" {
				t.Errorf("%+v, %v", list, err)
			}
			if len(c.open) != 0 {
				t.Errorf("%d cases stand", len(c.open))
			}
		})
	}
}

// A request that will not be done is an action that says why, at once.
func TestWhatIsNotDoneIsRefusedWithTheReason(t *testing.T) {
	old := wish("r", "power_cycle", nil)
	old.Time = time.Now().Add(-time.Hour)
	elsewhere, part := wish("r", "power_cycle", nil), wish("r", "power_cycle", nil)
	elsewhere.Server, part.Target = "rack7", "gpu-r02-01/gpu0"
	for want, tc := range map[string]struct {
		mode string
		in   schemas.Intent
	}{
		"control only observes":                                  {schemas.ModeObserve, wish("r", "power_cycle", nil)},
		"cannot: no driver for set_bios":                         {schemas.ModeEnforce, wish("r", "set_bios", nil)},
		"cannot: no driver for set_raid":                         {schemas.ModeEnforce, wish("r", "set_raid", map[string]string{"level": "1"})},
		"cannot: no driver for make_tea":                         {schemas.ModeDryRun, wish("r", "make_tea", nil)},
		"ago and not taken up in time":                           {schemas.ModeEnforce, old},
		"rack7 is no server of the inventory":                    {schemas.ModeEnforce, elsewhere},
		"gpu-r02-01/gpu0 is no part of " + server:                {schemas.ModeEnforce, part},
		"power_cycle cannot be used: it takes no":                {schemas.ModeEnforce, wish("r", "power_cycle", map[string]string{"speed": "1"})},
		`force: "perhaps" is neither true nor false`:             {schemas.ModeEnforce, wish("r", "power_cycle", map[string]string{"force": "perhaps"})},
		"1 jobs run on " + server + ": job-141 of bea; they end": {schemas.ModeEnforce, wish("r", "power_cycle", nil)},
	} {
		t.Run(want, func(t *testing.T) {
			b := newBench(t, tc.mode)
			b.w.jobs = map[string][]string{server: {"job-141 of bea"}}
			c := b.controller()
			b.tell(c, tc.in)
			b.until(c, func([]schemas.Action) bool { return ended(b.actionOf("r")) })
			if a := b.actionOf("r"); a.State != schemas.ActionRefused || !strings.Contains(a.Detail, want) {
				t.Errorf("%s: %s", a.State, a.Detail)
			}
			if n := len(b.w.applied); n != 0 {
				t.Errorf("%d steps were sent", n)
			}
		})
	}
}

// An installation that is asked for is held back by jobs as all that ends them, and counts in neither the rate of repairs nor the time
// between two of them: what is ill after it is repaired at once.
func TestAnInstallationThatIsAskedForIsNoRepair(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	c.d.Remediators["install"] = quick{worldStep{b.w}}
	in := wish("r1", "install", map[string]string{"template": "ubuntu", "version": "1"})
	b.w.jobs = map[string][]string{server: {"job-141 of bea"}}
	b.tell(c, in)
	b.until(c, func([]schemas.Action) bool { return b.closed("r1") })
	if a := b.actionOf("r1"); a.State != schemas.ActionRefused || !strings.Contains(a.Detail, "job-141 of bea") {
		t.Errorf("%s: %s", a.State, a.Detail)
	}
	b.w.jobs, in.ID = nil, "r2"
	c = b.controller()
	c.d.Remediators["install"] = quick{worldStep{b.w}}
	b.tell(c, in)
	b.until(c, func([]schemas.Action) bool { return b.closed("r2") })
	a := b.actionOf("r2")
	if a.State != schemas.ActionDone || slices.ContainsFunc(a.Rails, func(r schemas.Rail) bool { return r.Name == railRate }) {
		t.Errorf("%+v", a)
	}
	n, last, err := c.destructive(t.Context(), time.Now(), server)
	if err != nil || n != 0 || !last.IsZero() {
		t.Errorf("%d steps count, the last of %s: %v", n, last, err)
	}
}

// quick is a step whose effect is there at once.
type quick struct{ worldStep }

func (quick) Verify(context.Context, Step) (Verdict, schemas.Sentence, error) {
	return Verified, schemas.Sentence{ID: messages.InstallDone}, nil
}

func TestForceEndsJobsAndSaysWhich(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.w.jobs = map[string][]string{server: {"job-141 of bea"}}
	c := b.controller()
	b.tell(c, wish("r", "power_cycle", map[string]string{"force": "true"}))
	b.until(c, func([]schemas.Action) bool { return ended(b.actionOf("r")) })
	a := b.actionOf("r")
	if a.State != schemas.ActionDone || !slices.ContainsFunc(a.Rails, func(r schemas.Rail) bool { return strings.Contains(r.Detail, "job-141 of bea") }) {
		t.Errorf("%s: %s, %+v", a.State, a.Detail, a.Rails)
	}
}

func TestDryRunSaysWhatItWouldDoForWhoAsks(t *testing.T) {
	b := newBench(t, schemas.ModeDryRun)
	c := b.controller()
	b.tell(c, wish("r", "power_cycle", nil))
	b.until(c, func([]schemas.Action) bool { return b.actionOf("r").Rails != nil })
	if a := b.actionOf("r"); a.State != schemas.ActionProposed || !strings.HasPrefix(a.Detail, "would") || len(b.w.applied) != 0 {
		t.Errorf("%s: %s, applied %v", a.State, a.Detail, b.w.applied)
	}
}

// One thing at a time on a server: the second is refused, and not queued. What only reads is done beside it.
func TestAServerUnderRepairIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeApprove)
	c := b.controller()
	b.until(c, func(as []schemas.Action) bool {
		if len(as) == 0 {
			return false
		}
		if b.actionOf("r").ID == "" {
			b.tell(c, wish("r", "power_on", nil), wish("v", "validate", nil))
		}
		return b.closed("v")
	}, incident("i1", part, "gpu.fallen_off_bus"))
	if a := b.actionOf("r"); a.State != schemas.ActionRefused || a.Detail != "the repair for incident i1 is under way on "+server {
		t.Errorf("%s: %s", a.State, a.Detail)
	}
	if a := b.actionOf("v"); a.State != schemas.ActionDone {
		t.Errorf("%s: %s", a.State, a.Detail)
	}
	if _, ok, err := (&store{db: b.db, holder: "another", now: time.Now}).lease(t.Context(), server, time.Second); ok || err != nil {
		t.Error("a validation gave the lease of a repair away", err)
	}
}

// A server that a ladder left drained is a person's to treat and to give back.
func TestAPersonGoesOnWhereALadderFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	b.w.lazy = true
	c := b.controller()
	b.until(c, func(as []schemas.Action) bool { return states(as)["ticket"] != "" && b.over() }, incident("i1", part, "gpu.fallen_off_bus"))
	if len(c.open) != 1 {
		t.Fatalf("%d cases stand", len(c.open))
	}
	c = b.controller()
	b.until(c, func([]schemas.Action) bool {
		if b.actionOf("p").ID == "" {
			b.tell(c, wish("p", "power_on", nil))
		}
		if b.closed("p") { // and its case with it
			b.tell(c, wish("u", "uncordon", nil))
		}
		return b.closed("u")
	})
	if a := b.actionOf("u"); a.State != schemas.ActionDone {
		t.Errorf("%s: %s", a.State, a.Detail)
	}
	for _, k := range c.open {
		t.Errorf("a case stands: %s of %s, %s", k.ID, k.reason(), k.State)
	}
	b.w.drainedIs(t, false)
}

// A server that somebody asked to be out of the pool stays out after its repair, until its return is asked for; where somebody
// gave it back in the scheduler meanwhile, the ladder takes it out and returns it.
func TestARepairReturnsNoServerThatWasOutBefore(t *testing.T) {
	for name, back := range map[string]bool{"out": false, "given back by hand": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			c := b.controller()
			b.tell(c, wish("d", "drain", map[string]string{"optional": "true"}))
			b.until(c, func([]schemas.Action) bool { return b.closed("d") })
			if back {
				b.w.drain(server, false)
			}
			c = b.controller()
			as := b.until(c, func(as []schemas.Action) bool { return states(as)["uncordon"] == schemas.ActionDone && b.over() }, incident("i1", part, "gpu.fallen_off_bus"))
			if kind(as, "power_cycle").State != schemas.ActionDone || (b.w.applied[kind(as, "uncordon").ID] > 0) != back || (b.w.applied[kind(as, "drain").ID] > 0) != back {
				t.Errorf("%+v applied %v", states(as), b.w.applied)
			}
			b.w.drainedIs(t, !back)
			if said := kind(as, "uncordon").VerifiedBy; !back && said != "out of the pool as ann asked, and stays so until its return is asked for" {
				t.Error(said)
			}
			if back {
				return
			}
			c = b.controller()
			b.tell(c, wish("u", "uncordon", map[string]string{"optional": "true"}))
			b.until(c, func([]schemas.Action) bool { return b.closed("u") })
			b.w.drainedIs(t, false)
			if held, err := c.store.takenOut(t.Context(), server); err != nil || len(held) != 0 {
				t.Errorf("%v %v", held, err)
			}
		})
	}
}

// A drain that somebody asked for and that ran out of time, with jobs still there, stays theirs: a ladder waits for the jobs, and
// leaves the server out.
func TestARepairLeavesWhatWasBeingDrainedToWhoAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	b.tell(c, wish("first", "drain", map[string]string{"optional": "true"}))
	b.until(c, func([]schemas.Action) bool { return b.closed("first") })
	b.w.drain(server, false) // given back by hand
	c = b.controller()
	busy := stuck{worldStep{b.w}, new(atomic.Int64)}
	c.d.Now = func() time.Time { return time.Now().Add(time.Duration(busy.ahead.Load())) }
	c.d.Remediators[kindDrain] = busy
	b.w.jobs = map[string][]string{server: {"job 7"}}
	in := wish("d", "drain", map[string]string{"optional": "true"})
	in.Actor = "bea"
	b.tell(c, in)
	b.until(c, func([]schemas.Action) bool { return b.closed("d") })
	if a := b.actionOf("d"); a.State == schemas.ActionDone {
		t.Fatalf("%s: %s", a.State, a.Detail)
	}
	c = b.controller()
	c.d.Remediators[kindDrain] = busy
	c.afterStep = func(step string) {
		if step == "running drain" { // by the ladder
			b.w.mu.Lock()
			b.w.jobs = nil
			b.w.mu.Unlock()
		}
	}
	as := b.until(c, func(as []schemas.Action) bool { return states(as)["uncordon"] == schemas.ActionDone && b.over() }, incident("i1", part, "gpu.fallen_off_bus"))
	a := kind(as, "uncordon")
	if kind(as, "power_cycle").State != schemas.ActionDone || b.w.applied[a.ID] > 0 || a.VerifiedBy != "out of the pool as bea asked, and stays so until its return is asked for" {
		t.Errorf("%s, applied %v: %v", a.VerifiedBy, b.w.applied, show(as))
	}
	b.w.drainedIs(t, true)
	c = b.controller()
	b.tell(c, wish("u", "uncordon", nil))
	b.until(c, func([]schemas.Action) bool { return b.closed("u") })
	b.w.drainedIs(t, false)
}

// stuck is a scheduler whose servers are not drained while jobs run.
type stuck struct {
	worldStep
	ahead *atomic.Int64 // once it was looked at, its time is over
}

func (s stuck) Verify(ctx context.Context, step Step) (Verdict, schemas.Sentence, error) {
	if jobs, _ := s.Jobs(ctx, step.Server); len(jobs) > 0 {
		s.ahead.Store(int64(24 * time.Hour))
		return Pending, messages.New(messages.NoReset, nil), nil
	}
	return s.worldStep.Verify(ctx, step)
}

// Where there is no scheduler, and where a repair that failed keeps the server out, an optional step is done, says why, and sends nothing.
func TestAnOptionalStepIsDoneWhereThereIsNoWay(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	keptServer(t, b.db)
	c := b.controller()
	delete(c.d.Remediators, "drain")
	optional := map[string]string{"optional": "true"}
	b.tell(c, wish("d", "drain", optional), wish("bad", "drain", map[string]string{"optional": "perhaps"}))
	b.until(c, func([]schemas.Action) bool { return b.closed("d") && b.closed("bad") })
	if a := b.actionOf("d"); a.State != schemas.ActionDone || a.VerifiedBy != "skipped: cannot: no driver for drain" || len(b.w.applied) != 0 {
		t.Errorf("%+v", a)
	}
	if a := b.actionOf("bad"); a.State != schemas.ActionRefused {
		t.Errorf("%+v", a)
	}
	b.w.lazy = true
	c = b.controller()
	b.until(c, func(as []schemas.Action) bool { return states(as)["ticket"] != "" && b.over() }, incident("i1", part, "gpu.fallen_off_bus"))
	c = b.controller()
	b.tell(c, wish("u", "uncordon", optional))
	b.until(c, func([]schemas.Action) bool { return b.closed("u") })
	if a := b.actionOf("u"); a.State != schemas.ActionDone || a.VerifiedBy != "skipped: the repair for incident i1 failed, and keeps it out of the pool" {
		t.Errorf("%+v", a)
	}
	b.w.drainedIs(t, true)
	if why, _ := holdOf(t, b.db); why == "" {
		t.Error("it may be given to somebody")
	}
}

// A window of maintenance is not waited for: what was asked for now is not done at night.
func TestARequestDoesNotWaitForTheEndOfMaintenance(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	c.d.Maintenance = window{}
	b.tell(c, wish("r", "power_on", nil))
	b.until(c, func([]schemas.Action) bool { return ended(b.actionOf("r")) })
	if a := b.actionOf("r"); a.State != schemas.ActionRefused || !strings.Contains(a.Detail, "in maintenance window") {
		t.Errorf("%s: %s", a.State, a.Detail)
	}
}

type window struct{}

func (window) Covering(context.Context, time.Time, ...string) (schemas.Maintenance, bool, error) {
	return schemas.Maintenance{ID: "mw-1", By: "bea", Until: time.Now().Add(time.Hour)}, true, nil
}

// A process that dies between any two steps of a request, and hears of it again, repeats nothing.
func TestDeathRepeatsNothingOfARequest(t *testing.T) {
	for kill := 1; kill <= 6; kill++ {
		t.Run(fmt.Sprint("step ", kill), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			in := wish("r1", "power_cycle", nil)
			ctx, die := context.WithCancel(t.Context())
			c := b.controller()
			steps := 0
			c.afterStep = func(string) {
				if steps++; steps == kill {
					die()
				}
			}
			b.tell(c, in)
			if ctx.Err() == nil {
				if err := c.Run(ctx, func() {}); err != nil {
					t.Fatal(err)
				}
			}
			c = b.controller()
			b.tell(c, in)
			if begun := time.Now(); b.w.cycles()["r1"] == 0 { // what was decided and not sent is looked for until its time is over
				c.d.Now = func() time.Time { return begun.Add(1000 * time.Since(begun)) }
			}
			b.until(c, func([]schemas.Action) bool { return ended(b.actionOf("r1")) })
			a := b.actionOf("r1")
			if n := b.w.cycles()["r1"]; n > 1 || n == 0 && a.State == schemas.ActionDone {
				t.Errorf("%s after %d cycles: %s", a.State, n, a.Detail)
			}
		})
	}
}

// onAlready is a server that has its power, or does not answer.
type onAlready struct {
	worldStep
	on  bool
	err error
}

func (r onAlready) Settled(context.Context, Step) (bool, schemas.Sentence, error) {
	return r.on, messages.New(messages.PowerIs, messages.Args{"power": "On"}), r.err
}

// TestWhatIsSoAlready is done in any mode, with nothing sent and what was read as its proof; what is
// not so, or not known, is what the mode makes of it.
func TestWhatIsSoAlready(t *testing.T) {
	for _, mode := range []string{schemas.ModeObserve, schemas.ModeDryRun, schemas.ModeEnforce} {
		for _, tc := range []struct {
			name string
			rem  onAlready
			want map[string]string // by mode
		}{
			{"on", onAlready{on: true}, map[string]string{"observe": "done", "dry-run": "done", "enforce": "done"}},
			{"off", onAlready{}, map[string]string{"observe": "refused", "dry-run": "proposed", "enforce": "done"}},
			{"silent", onAlready{on: true, err: errors.New("no answer")}, map[string]string{"observe": "refused", "dry-run": "proposed", "enforce": "done"}},
		} {
			t.Run(mode+" "+tc.name, func(t *testing.T) {
				b := newBench(t, mode)
				c := b.controller()
				tc.rem.worldStep = worldStep{b.w}
				c.d.Remediators["power_on"] = tc.rem
				b.tell(c, wish("r", "power_on", nil))
				b.until(c, func([]schemas.Action) bool {
					var n int
					if err := b.db.QueryRowContext(b.t.Context(), `SELECT count(*) FROM control_cases WHERE state IN ('open','reading')`).Scan(&n); err != nil {
						b.t.Fatal(err)
					}
					return n == 0 && b.actionOf("r").State == tc.want[mode]
				})
				a, sent := b.actionOf("r"), 0
				if tc.want[mode] == schemas.ActionDone && tc.name != "on" {
					sent = 1
				}
				if a.State != tc.want[mode] || len(b.w.applied) != sent || tc.name == "on" && a.VerifiedBy == "" {
					t.Errorf("%s (%s, %s), %d sent", a.State, a.Detail, a.VerifiedBy, len(b.w.applied))
				}
			})
		}
	}
}

// TestTheWorkflowThatAsksIsToldInEveryLanguage holds that why something was asked for is a
// sentence where it is in words of ours, and that the text stays as it was.
func TestTheWorkflowThatAsksIsToldInEveryLanguage(t *testing.T) {
	c := newBench(t, schemas.ModeApprove).controller()
	for reason, want := range map[string]string{"workflow w-1": reasons.Workflow, "request": "", "burn-in of rack 4": ""} {
		in := wish("r1", "power_cycle", nil)
		in.Reason = reason
		k := c.caseOf(in)
		said, _ := k.Summary.Args["said"].(schemas.Sentence)
		if said.ID != want || k.Why != "ann asked for power_cycle ("+reason+")" {
			t.Errorf("%s: %+v %q", reason, said, k.Why)
		}
	}
}
