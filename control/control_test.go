package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/run"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// nullBus lets tests call the handlers themselves.
type nullBus struct {
	mu  sync.Mutex
	out []schemas.Action
}

func (b *nullBus) Publish(_ context.Context, msgs ...bus.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range msgs {
		var a schemas.Action
		if err := json.Unmarshal(m.Value, &a); err != nil {
			return err
		}
		b.out = append(b.out, a)
	}
	return nil
}

func (b *nullBus) Subscribe(ctx context.Context, _ bus.Subscription, _ bus.Handler) error {
	<-ctx.Done()
	return nil
}
func (b *nullBus) Partitions(context.Context, string) (int, error) { return 1, nil }
func (b *nullBus) Close() error                                    { return nil }

// world is a scheduler and a BMC that remember what they were asked.
type world struct {
	mu      sync.Mutex
	drained map[string]bool
	cycled  map[string]int // by step id
	applied map[string]int
	lazy    bool  // accepts and does nothing
	fail    error // what Apply answers
	reboots map[string]time.Time
	dead    map[string]bool // servers whose gpu2 never comes back
	mute    map[string]bool // servers of which nothing is read
	jobs    map[string][]string
}

func newWorld() *world {
	return &world{
		drained: map[string]bool{}, cycled: map[string]int{}, applied: map[string]int{}, reboots: map[string]time.Time{},
		dead: map[string]bool{}, mute: map[string]bool{},
	}
}

func (w *world) drain(server string, drained bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drained[server] = drained
}

func (w *world) cycles() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.cycled)
}

type worldStep struct{ w *world }

func (r worldStep) Plan(_ context.Context, s Step) (schemas.Sentence, error) {
	return messages.New(messages.WouldReturn, messages.Args{"server": s.Server}), nil
}

func (r worldStep) Apply(_ context.Context, s Step) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.applied[s.ID]++
	if r.w.lazy && s.Kind == "power_cycle" {
		return nil
	}
	switch s.Kind {
	case "drain", kindQuarantine:
		r.w.drained[s.Server] = true
	case "uncordon":
		r.w.drained[s.Server] = false
	case "power_cycle":
		r.w.cycled[s.ID]++
		r.w.reboots[s.Server] = time.Now()
	}
	return r.w.fail
}

func (r worldStep) Verify(_ context.Context, s Step) (Verdict, schemas.Sentence, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	ok := map[string]bool{
		"drain": r.w.drained[s.Server], kindQuarantine: r.w.drained[s.Server], "uncordon": !r.w.drained[s.Server],
		"power_cycle": !r.w.reboots[s.Server].Before(s.Since), "power_on": r.w.applied[s.ID] > 0, "validate": r.w.applied[s.ID] > 0,
	}[s.Kind]
	if ok {
		return Verified, messages.New(messages.PowerBack, nil), nil
	}
	return Pending, messages.New(messages.NoReset, nil), nil
}

// Jobs implements Scheduler.
func (r worldStep) Jobs(_ context.Context, server string) ([]string, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return r.w.jobs[server], nil
}

type place struct{}

func (place) Kind(resource string) string {
	if strings.Contains(resource, "/gpu") {
		return schemas.KindGPU
	}
	if strings.HasPrefix(resource, "pdu-") {
		return schemas.KindPDU
	}
	return ""
}

// bootTime is how long a server is silent that is power-cycled.
const bootTime = 50 * time.Millisecond

// exporter reads what lives in the world, as often as it can.
type exporter struct{ w *world }

func (e exporter) Follow(ctx context.Context, device string, observe func(Observation)) error {
	for run.Sleep(ctx, 2*time.Millisecond) == nil {
		now := time.Now()
		e.w.mu.Lock()
		dead, mute := e.w.dead[device], e.w.mute[device] || now.Sub(e.w.reboots[device]) < bootTime
		booted := e.w.reboots[device]
		e.w.mu.Unlock()
		values := power(now)
		if s := now.Sub(booted).Seconds(); !booted.IsZero() {
			values = []Value{{Series: schemas.GPUEnergy, Number: 90_000 * s}, {Series: schemas.GPUPower, Number: 90 + math.Sin(1e6*s)}}
		}
		for i := range 8 {
			r := fmt.Sprintf("%s/gpu%d", device, i)
			if !mute && !(dead && i == 2) {
				observe(Observation{Resource: r, Kind: schemas.KindGPU, Collector: "dcgmexporter", Time: now, Observed: now, Values: values})
			}
		}
	}
	return nil
}

// power is a reading of something that works: no two are alike.
func power(at time.Time) []Value {
	return []Value{{Series: "temperature", Number: 40}, {Series: "power", Number: float64(at.UnixNano())}}
}

func (place) Place(resource string) (server, rack, site string, ok bool) {
	var r, s, g int
	if n, _ := fmt.Sscanf(resource, "gpu-r%02d-%02d/gpu%d", &r, &s, &g); n >= 2 {
		return fmt.Sprintf("gpu-r%02d-%02d", r, s), fmt.Sprintf("r%02d", r), "dc1", true
	}
	return "", "", "dc1", true
}

const policyText = `
budgets: {fleet: 2, rack: 1, per_hour: 4}
breaker: {cases: 5, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    min_confidence: 0.5
    settle: 0s
    max_evidence_age: 1h
    ladder:
      - {kind: drain, attempts: 2, verify: 2s}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 2s, quiet: 30ms}
      - {kind: uncordon, needs: [power_cycle], verify: 2s}
  - name: memory
    faults: [gpu.memory_uncorrectable]
    ladder:
      - {kind: reset_gpu, destructive: true, verify: 1s}
      - {kind: uncordon, needs: [reset_gpu]}
  - name: feed
    faults: [power.feed_loss]
    ladder: [{kind: inspect_feed, person: true}]
`

// eyes are the views of what tests hear of.
func eyes(name string) schemas.View {
	switch name {
	case "dcgmexporter", schemas.SourceDCGM, schemas.SourceKmsg:
		return schemas.ViewHost
	case schemas.SourceIPMI, schemas.SourceRedfish:
		return schemas.ViewBoard
	case schemas.SourceGNMI:
		return schemas.ViewNetwork
	}
	return schemas.ViewNone
}

type bench struct {
	t    testing.TB
	dir  string
	mode string
	w    *world
	bus  *nullBus
	db   *sqldb.DB

	groups Groups // nil knows none
}

func newBench(t testing.TB, mode string) *bench {
	b := &bench{t: t, dir: t.TempDir(), mode: mode, w: newWorld(), bus: &nullBus{}}
	writeFile(t, filepath.Join(b.dir, "policy.yaml"), policyText)
	b.db = sqltest.Open(t)
	return b
}

func (b *bench) controller() *Controller {
	cfg := DefaultConfig()
	cfg.Mode, cfg.Policies, cfg.Poll, cfg.LeaseTTL = b.mode, filepath.Join(b.dir, "policy.yaml"), 10*time.Millisecond, time.Second
	r := worldStep{b.w}
	c, err := New(cfg, Deps{
		Log: slog.New(slog.DiscardHandler), Now: time.Now, DB: b.db, Records: records.New(b.db), Bus: b.bus, Inventory: place{}, Holder: "test",
		Remediators: map[string]Remediator{"drain": r, kindQuarantine: r, "power_cycle": r, "uncordon": r, "power_on": r, "validate": r}, Life: exporter{b.w}, View: eyes, Groups: b.groups,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	c.lateness = 0 // what the world of the bench is told, it does at once
	return c
}

func incident(id, resource, fault string) schemas.Incident {
	now := time.Now().UTC()
	return schemas.Incident{
		ID: id, Opened: now, Updated: now, At: now, RootCause: schemas.Cause{Resource: resource, Fault: fault, Confidence: 0.9},
		Explanation: "because", Events: []string{id + "-e", id + "-b"},
	}
}

// keep stores an incident as the correlator does, and what its kernel and its board controller said of it.
func (b *bench) keep(i schemas.Incident) {
	b.t.Helper()
	a := alert(i.ID+"-e", i.RootCause.Resource, "gpu.xid", schemas.SourceKmsg, "", schemas.SeverityCritical, i.At)
	a.Server, _, _, _ = place{}.Place(a.Resource)
	a.Status = schemas.AlertResolved // an occurrence, not a condition
	board := alert(i.ID+"-b", i.RootCause.Resource, "bmc.sel", schemas.SourceRedfish, "", schemas.SeverityCritical, i.At)
	board.Server, board.Status = a.Server, a.Status
	r := records.New(b.db)
	if err := errors.Join(r.PutAlert(b.t.Context(), a), r.PutAlert(b.t.Context(), board), r.PutIncident(b.t.Context(), i)); err != nil {
		b.t.Fatal(err)
	}
}

// until runs a controller with incidents until cond holds.
func (b *bench) until(c *Controller, cond func([]schemas.Action) bool, incs ...schemas.Incident) []schemas.Action {
	b.t.Helper()
	for _, i := range incs {
		b.keep(i)
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- c.Run(ctx, func() { close(ready) }) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}()
	select {
	case <-ready: // what is open is taken up before anything else is opened
	case <-time.After(2 * time.Minute):
		b.t.Fatal("not ready")
	}
	var as []schemas.Action
	waittest.Until(b.t, func() (err error) {
		if as, _, err = records.New(b.db).Actions(b.t.Context(), records.Filter{}); err != nil {
			b.t.Fatal(err)
		}
		if cond(as) {
			return nil
		}
		if err := c.openDue(ctx); err != nil && ctx.Err() == nil {
			b.t.Fatal(err)
		}
		return fmt.Errorf("never came: %s", show(as))
	})
	return as
}

func show(as []schemas.Action) []string {
	var out []string
	for _, a := range as {
		out = append(out, fmt.Sprintf("%s %d.%d %s %s", a.Server, a.Rung, a.Attempt, a.Kind, a.State))
	}
	return out
}

func states(as []schemas.Action) map[string]string {
	out := map[string]string{}
	for _, a := range as {
		out[a.Kind] = a.State
	}
	return out
}

// pursued is a drain whose effect takes three requests after the first.
type pursued struct {
	worldStep
	left *atomic.Int64
	fail error
}

func (p pursued) Apply(context.Context, Step) error { return nil }

func (p pursued) Pursue(_ context.Context, s Step) error {
	if p.fail == nil && p.left.Add(-1) == 0 {
		p.w.drain(s.Server, true)
	}
	return p.fail
}

func TestWhatIsLeftOfAStepIsPursuedUntilItsEffectIsSeen(t *testing.T) {
	for want, fail := range map[string]error{
		schemas.ActionDone:   nil,
		schemas.ActionFailed: fmt.Errorf("%w: no right to evict", ErrRejected),
	} {
		b := newBench(t, schemas.ModeEnforce)
		c := b.controller()
		p := pursued{worldStep{b.w}, &atomic.Int64{}, fail}
		p.left.Store(3)
		c.d.Remediators["drain"] = p
		as := b.until(
			c, func(as []schemas.Action) bool { return states(as)["drain"] == want },
			incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"),
		)
		for _, a := range as {
			if a.Kind == "drain" && fail != nil && !strings.Contains(a.Detail, "no right to evict") {
				t.Errorf("it failed with %q", a.Detail)
			}
		}
	}
}

func TestEnforceClimbsTheLadderAndReturnsTheServer(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	as := b.until(
		b.controller(), func(as []schemas.Action) bool { return states(as)["uncordon"] == "done" },
		incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"),
	)
	if d := cmp.Diff(map[string]string{"drain": "done", "power_cycle": "done", "uncordon": "done"}, states(as)); d != "" {
		t.Error(d)
	}
	for id, n := range b.w.applied {
		if n != 1 {
			t.Errorf("%s was applied %d times", id, n)
		}
	}
	if n, err := audit.Verify(t.Context(), b.db); err != nil || n < 6 {
		t.Errorf("audit has %d rows: %v", n, err)
	}
}

// TestEverythingSaidIsSaidInPieces holds the sentences of actions and checks
// against their plain text, over ladders that end well, badly and not at all.
func TestEverythingSaidIsSaidInPieces(t *testing.T) {
	for mode, last := range map[string]string{
		schemas.ModeEnforce: "uncordon", schemas.ModeDryRun: "uncordon", schemas.ModeObserve: "inspect_feed",
	} {
		b := newBench(t, mode)
		inc := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus")
		inc.Summary = &schemas.Sentence{ID: "sum.gpu.fallen_off_bus", Args: map[string]any{"gpu": 2.0, "server": "gpu-r01-03"}}
		as := b.until(b.controller(), func(as []schemas.Action) bool {
			return states(as)[last] != "" && states(as)["inspect_feed"] != "" && states(as)["drain"] != "" &&
				states(as)[last] != schemas.ActionRunning
		},
			inc, incident("i2", "pdu-r01-a", "power.feed_loss"))
		for _, a := range as {
			if a.Incident == "i1" && (a.Sentence == nil || a.Sentence.ID != inc.Summary.ID) {
				t.Errorf("%s %s: why is not the sentence of the incident: %+v", mode, a.Kind, a.Sentence)
			}
			sentence := map[string]*schemas.Sentence{a.Detail: a.DetailSentence, a.VerifiedBy: a.VerifiedSentence}
			for _, r := range a.Rails {
				sentence[r.Detail] = r.Sentence
			}
			for text, s := range sentence {
				if text == "" {
					continue
				}
				if s == nil || messages.Template(s.ID) == "" || messages.Text(*s) != text {
					t.Errorf("%s %s: %q is said as %+v", mode, a.Kind, text, s)
				}
			}
		}
	}
}

// TestACaseWhoseStoreFailsGoesOnFromWhatIsStored takes the audit away, so that no
// step can be written, at three moments of a ladder.
func TestACaseWhoseStoreFailsGoesOnFromWhatIsStored(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"before the first step", "intent drain", "applied power_cycle"} {
		t.Run(moment, func(t *testing.T) {
			b := newBench(t, schemas.ModeEnforce)
			rename := func(from, to string) {
				if _, err := b.db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
					t.Error(err)
				}
			}
			c := b.controller()
			stands := make(chan struct{})
			var once, away sync.Once
			c.d.Log = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
				if strings.Contains(string(p), "cannot advance case") {
					once.Do(func() { close(stands) })
				}
				return len(p), nil
			}), nil))
			c.afterStep = func(name string) {
				if name == moment {
					away.Do(func() { rename("control_audit", "control_away") })
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done, ready := make(chan error, 1), make(chan struct{})
			go func() { done <- c.Run(ctx, func() { close(ready) }) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			<-ready
			inc := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus")
			b.keep(inc)
			if moment == "before the first step" {
				c.afterStep(moment)
			}
			c.consider(inc)
			select {
			case <-stands:
			case <-time.After(time.Minute):
				t.Fatal("it did not notice")
			}
			rename("control_away", "control_audit")
			var as []schemas.Action
			waittest.Until(t, func() (err error) {
				if as, _, err = records.New(b.db).Actions(t.Context(), records.Filter{}); err != nil {
					t.Fatal(err)
				}
				if s := states(as); s["uncordon"] == schemas.ActionDone || s["ticket"] != "" {
					return nil
				}
				return fmt.Errorf("it stands still for ever: %s", show(as))
			})
			b.w.mu.Lock()
			defer b.w.mu.Unlock()
			for id, n := range b.w.applied {
				if n != 1 {
					t.Errorf("%s was applied %d times", id, n)
				}
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestObserveAndDryRunSendNothing(t *testing.T) {
	for _, mode := range []string{schemas.ModeObserve, schemas.ModeDryRun} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, mode)
			as := b.until(b.controller(), func(as []schemas.Action) bool { return len(as) == 4 },
				incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"), incident("i2", "pdu-r01-a", "power.feed_loss"))
			for _, a := range as {
				if a.State != schemas.ActionProposed || len(a.Rails) == 0 || a.Mode != mode {
					t.Errorf("%s is %s in mode %s with %d rails", a.Kind, a.State, a.Mode, len(a.Rails))
				}
			}
			if len(b.w.applied) != 0 {
				t.Errorf("something was sent: %v", b.w.applied)
			}
		})
	}
}

func TestAPeerThatAcceptsAndDoesNothingEndsInFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	b.w.lazy = true
	as := b.until(
		b.controller(), func(as []schemas.Action) bool { return states(as)["ticket"] != "" },
		incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"),
	)
	if d := cmp.Diff(map[string]string{"drain": "done", "power_cycle": "failed", "ticket": "proposed"}, states(as)); d != "" {
		t.Error(d)
	}
	if !b.w.drained["gpu-r01-03"] {
		t.Error("the server went back to the pool unrepaired")
	}
}

// brokenStep is a peer that goes away as it is asked: its answer is lost, and the
// next looks fail.
type brokenStep struct {
	worldStep
	kind    string
	arrives bool // the request got there
	checks  *atomic.Int32
}

var errGone = errors.New("connection reset by peer")

// breaks tells the first attempt; the second one finds the peer back.
func (r brokenStep) breaks(s Step) bool {
	rung := map[string]string{"drain": "0", "power_cycle": "1"}[s.Kind]
	return s.Kind == r.kind && s.ID == "act-"+schemas.EventID("case-"+schemas.EventID("control", "i1", s.Target), rung, "1")
}

func (r brokenStep) Apply(ctx context.Context, s Step) error {
	if !r.breaks(s) {
		return r.worldStep.Apply(ctx, s)
	}
	if r.arrives {
		_ = r.worldStep.Apply(ctx, s)
	}
	return errGone
}

func (r brokenStep) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	if r.breaks(s) && r.checks.Add(1) <= 3 {
		return Pending, schemas.Sentence{}, errGone
	}
	return r.worldStep.Verify(ctx, s)
}

func TestAPeerThatGoesAwayDuringAStepIsLookedAtAndNotAskedAgain(t *testing.T) {
	for _, tc := range []struct {
		kind    string
		arrives bool
		want    map[string]string // the last state by kind
		back    bool              // in the pool at the end
		asks    int               // for the step, over all attempts
	}{
		{"drain", true, map[string]string{"drain": "done", "power_cycle": "done", "uncordon": "done"}, true, 1},
		{"drain", false, map[string]string{"drain": "done", "power_cycle": "done", "uncordon": "done"}, true, 1}, // and one that was lost
		{"power_cycle", true, map[string]string{"drain": "done", "power_cycle": "done", "uncordon": "done"}, true, 1},
		{"power_cycle", false, map[string]string{"drain": "done", "power_cycle": "unknown", "ticket": "proposed"}, false, 0},
	} {
		t.Run(fmt.Sprintf("%s, request arrives %v", tc.kind, tc.arrives), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			if tc.arrives { // what is seen in the end is not to depend on the machine
				writeFile(t, filepath.Join(b.dir, "policy.yaml"), strings.ReplaceAll(policyText, "2s", "10m"))
			}
			c := b.controller()
			r := brokenStep{worldStep{b.w}, tc.kind, tc.arrives, &atomic.Int32{}}
			c.d.Remediators = map[string]Remediator{"drain": r, "power_cycle": r, "uncordon": r}
			last := func(as []schemas.Action) map[string]string {
				slices.SortFunc(as, func(x, y schemas.Action) int { return x.Attempt - y.Attempt })
				return states(as)
			}
			as := b.until(c, func(as []schemas.Action) bool { s := last(as); return s["uncordon"] == "done" || s["ticket"] != "" },
				incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"))
			if d := cmp.Diff(tc.want, last(as)); d != "" {
				t.Error(d)
			}
			b.w.mu.Lock()
			defer b.w.mu.Unlock()
			asks := 0
			for _, a := range as {
				if n := b.w.applied[a.ID]; n > 1 {
					t.Errorf("%s was asked %d times", a.ID, n)
				} else if a.Kind == tc.kind {
					asks += n
				}
			}
			if asks != tc.asks || b.w.drained["gpu-r01-03"] == tc.back {
				t.Errorf("%d requests arrived, want %d; drained %v", asks, tc.asks, b.w.drained)
			}
		})
	}
}

// A drain that nobody answered may still be under way when somebody else's is seen: the power cycle waits for it.
func TestWhatIsStillUnderWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	b.w.drained["gpu-r01-03"] = true
	c := b.controller()
	c.lateness = 700 * time.Millisecond
	r := brokenStep{worldStep{b.w}, "drain", false, &atomic.Int32{}}
	c.d.Remediators = map[string]Remediator{"drain": r, "power_cycle": r, "uncordon": r}
	as := b.until(c, func(as []schemas.Action) bool { return states(as)["power_cycle"] != "" }, incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"))
	drain := kind(as, "drain")
	if took := drain.Time.Sub(drain.Created); drain.State != schemas.ActionDone || took < c.lateness {
		t.Errorf("the drain is %s after %s", drain.State, took)
	}
}

// Of parts that nothing tells apart none is sure enough to be repaired.
func TestOneOfEqualsIsNotRepaired(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	equal, sure := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"), incident("i2", "gpu-r02-03/gpu2", "gpu.fallen_off_bus")
	equal.RootCause.OneOf = []string{"gpu-r01-03/gpu2", "gpu-r01-03/gpu3"}
	for _, a := range b.until(
		b.controller(), func(as []schemas.Action) bool { return states(as)["uncordon"] == schemas.ActionDone }, equal, sure,
	) {
		if a.Server == "gpu-r01-03" {
			t.Errorf("%s %s: %s", a.Server, a.Kind, a.State)
		}
	}
}

func TestARungWithoutADriverCannotAndBlocksWhatNeedsIt(t *testing.T) {
	b := newBench(t, schemas.ModeDryRun)
	as := b.until(
		b.controller(), func(as []schemas.Action) bool { return len(as) == 2 }, incident("i1", "gpu-r01-03/gpu2", "gpu.memory_uncorrectable"),
	)
	if d := cmp.Diff(map[string]string{"reset_gpu": "refused", "uncordon": "refused"}, states(as)); d != "" {
		t.Error(d)
	}
}

func TestBudgetsHoldBackWhatComesTooMuch(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	b.w.lazy = true // the first ones fail and stay out of the pool
	var incs []schemas.Incident
	for i := range 4 {
		incs = append(incs, incident(fmt.Sprint("i", i), fmt.Sprintf("gpu-r%02d-%02d/gpu0", 1+i, 1), "gpu.fallen_off_bus"))
	}
	incs = append(incs, incident("same-rack", "gpu-r01-02/gpu0", "gpu.fallen_off_bus"))
	b.until(b.controller(), func(as []schemas.Action) bool {
		n := 0
		for _, a := range as {
			if a.Kind == "drain" && a.State == schemas.ActionWaiting {
				n++
			}
		}
		return n == 3
	}, incs...)
	time.Sleep(50 * time.Millisecond) // in which more could be drained
	if n := len(b.w.drained); n != 2 {
		t.Errorf("%d servers are drained, the fleet's budget is 2", n)
	}
}

// Ladders that a controller finds count in each other's budgets.
func TestLaddersCountInBudgetsAfterARestart(t *testing.T) {
	t.Parallel()
	b := newBench(t, schemas.ModeEnforce)
	first := b.controller()
	for i := range 4 {
		inc := incident(fmt.Sprint("i", i), fmt.Sprintf("gpu-r%02d-01/gpu0", 1+i), "gpu.fallen_off_bus")
		b.keep(inc)
		k := &climb{
			ID: "case-" + inc.ID, Incident: inc.ID, Subject: fmt.Sprintf("gpu-r%02d-01", 1+i), Target: inc.RootCause.Resource,
			Fault: inc.RootCause.Fault, Confidence: 0.9, Mode: schemas.ModeEnforce, Rack: fmt.Sprintf("r%02d", 1+i), Touched: i > 1,
			Evidence: inc.Updated, Opened: inc.Opened.Add(time.Duration(i) * time.Millisecond), State: caseOpen,
		}
		if ok, err := first.store.openCase(t.Context(), first.store.db, k); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	c := b.controller()
	if err := c.restore(ctx); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		as, _, err := records.New(b.db).Actions(t.Context(), records.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		waiting := 0
		for _, a := range as {
			if a.Kind == "drain" && a.State == schemas.ActionWaiting {
				waiting++
			}
		}
		if waiting != 2 {
			return fmt.Errorf("two should wait: %s", show(as))
		}
		return nil
	})
	end()
	c.wg.Wait()
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if b.w.drained["gpu-r01-01"] || b.w.drained["gpu-r02-01"] {
		t.Error("a third server was taken, the fleet's budget is 2")
	}
}

// A step whose record may have been kept though the store failed counts in the budgets
// until the case is read again.
func TestAStepThatMayBeRecordedCounts(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	c := b.controller()
	inc := incident("i1", part, "gpu.fallen_off_bus")
	b.keep(inc)
	c.consider(inc)
	k := &climb{
		ID: "case-1", Incident: inc.ID, Subject: server, Target: part, Fault: inc.RootCause.Fault, Confidence: 0.9,
		Mode: schemas.ModeEnforce, Rack: "r01", Evidence: time.Now(), Opened: time.Now(), State: caseOpen,
	}
	if ok, err := c.store.openCase(t.Context(), c.store.db, k); err != nil || !ok {
		t.Fatal(ok, err)
	}
	c.takeUp(nil, []*climb{k})
	p, _ := c.policies.For(k.Fault)
	a := c.newAction(k, p, 0, 1, p.Ladder[0])
	if _, err := b.db.ExecContext(t.Context(), "ALTER TABLE control_audit RENAME TO control_away"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.decideAndCommit(t.Context(), k, p, &a, p.Ladder[0], true, nil); err == nil {
		t.Fatal("the store did not fail")
	}
	if fleet, rack := c.held(&climb{ID: "another", Rack: k.Rack}); fleet != 2 || rack != 2 {
		t.Errorf("another ladder counts %d in the fleet, %d in the rack, want 2 and 2", fleet, rack)
	}
}

// A process that dies between any two steps and comes back repeats no side effect
// and ends every action in a state that says what is known.
func TestDeathBetweenAnyTwoStepsRepeatsNothing(t *testing.T) {
	for kill := 1; kill <= 30; kill++ {
		t.Run(fmt.Sprint("step ", kill), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			inc := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus")
			b.keep(inc)
			ctx, die := context.WithCancel(t.Context())
			c := b.controller()
			steps := 0
			c.afterStep = func(string) {
				if steps++; steps == kill {
					die()
				}
			}
			_ = c.restore(ctx)
			_ = c.openDue(ctx)
			c.wg.Wait()
			die()
			final := func(as []schemas.Action) bool {
				return states(as)["uncordon"] == "done" || states(as)["ticket"] != ""
			}
			as := b.until(b.controller(), final)
			for id, n := range b.w.applied {
				if n > 1 {
					t.Errorf("%s was applied %d times", id, n)
				}
			}
			for _, a := range as {
				if a.State == schemas.ActionRunning || a.State == schemas.ActionVerifying {
					t.Errorf("%s is left %s", a.Kind, a.State)
				}
			}
		})
	}
}

func TestApproveWaitsForAPersonAndCancelStops(t *testing.T) {
	b := newBench(t, schemas.ModeApprove)
	c := b.controller()
	var first string
	b.until(c, func(as []schemas.Action) bool {
		for _, a := range as {
			if a.State != schemas.ActionWaiting {
				continue
			}
			verb := "approve"
			if a.Kind == "power_cycle" {
				verb = "cancel"
			}
			if first == "" {
				first = a.Kind
			}
			b.intend(c, verb, a)
		}
		return states(as)["power_cycle"] == schemas.ActionCancelled
	}, incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"))
	if first != "drain" || !b.w.drained["gpu-r01-03"] || len(b.w.cycled) != 0 {
		t.Error(first, b.w.drained, b.w.cycled)
	}
}

func (b *bench) intend(c *Controller, verb string, a schemas.Action) {
	b.t.Helper()
	v, err := json.Marshal(schemas.Intent{ID: a.ID, Verb: verb, Action: a.ID, Actor: "ada"})
	if err == nil {
		err = c.onIntents(b.t.Context(), []bus.Message{{Value: v}})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func kind(as []schemas.Action, kind string) schemas.Action {
	for _, a := range as {
		if a.Kind == kind {
			return a
		}
	}
	return schemas.Action{}
}

// What a person decided counts even when the process dies right after the bus was
// told that it was read.
func TestADecisionOutlivesTheProcess(t *testing.T) {
	for _, tc := range []struct {
		sentence []string
		want     string
	}{
		{[]string{"cancel"}, schemas.ActionCancelled},
		{[]string{"approve"}, schemas.ActionDone},
		{[]string{"approve", "cancel"}, schemas.ActionCancelled},
		{[]string{"approve", "dry-run"}, schemas.ActionDone}, // a trial takes nothing back
	} {
		t.Run(fmt.Sprint(tc.sentence), func(t *testing.T) {
			b := newBench(t, schemas.ModeApprove)
			as := b.until(b.controller(), func(as []schemas.Action) bool { return states(as)["drain"] == schemas.ActionWaiting },
				incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"))
			dying := b.controller() // reads the bus, and does no more
			for _, verb := range tc.sentence {
				b.intend(dying, verb, kind(as, "drain"))
			}
			b.until(b.controller(), func(as []schemas.Action) bool { return states(as)["drain"] == tc.want })
		})
	}
}

func TestADryRunOfAWaitingStepSaysWhatItWouldDo(t *testing.T) {
	b := newBench(t, schemas.ModeApprove)
	c := b.controller()
	asked := false
	as := b.until(c, func(as []schemas.Action) bool {
		a := kind(as, "drain")
		if a.State == schemas.ActionWaiting && !asked {
			asked = true
			b.intend(c, "dry-run", a)
		}
		return strings.HasSuffix(a.Detail, "; dry run: would return gpu-r01-03 to the pool once the repair is verified")
	}, incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"))
	if a := kind(as, "drain"); a.State != schemas.ActionWaiting || len(b.w.applied) != 0 {
		t.Errorf("%s, sent %v", a.State, b.w.applied)
	}
}

// A power cycle that waited is not done to a server that was given back meanwhile.
// The approval stands while it waits, over a restart too.
func TestAServerThatIsBackInThePoolIsNotCycled(t *testing.T) {
	b := newBench(t, schemas.ModeApprove)
	c := b.controller()
	step := 0
	b.until(c, func(as []schemas.Action) bool {
		drain, cycle := kind(as, "drain"), kind(as, "power_cycle")
		switch {
		case drain.State == schemas.ActionWaiting && step == 0:
			b.intend(c, "approve", drain)
			step++
		case cycle.State == schemas.ActionWaiting && step == 1:
			b.w.drain("gpu-r01-03", false) // somebody resumes it
			b.intend(c, "approve", cycle)
			step++
		}
		return strings.HasPrefix(cycle.Detail, "held by "+railDrained)
	}, incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"))
	if len(b.w.cycles()) > 0 {
		t.Error("it was cycled with jobs on it")
	}
	b.w.drain("gpu-r01-03", true)
	b.until(b.controller(), func(as []schemas.Action) bool { return states(as)["power_cycle"] == schemas.ActionDone })
}

func TestAProposalIsCancelledAndTriedByAPerson(t *testing.T) {
	b := newBench(t, schemas.ModeDryRun)
	c := b.controller()
	inc, feed := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"), incident("i2", "pdu-r01-a", "power.feed_loss")
	as := b.until(c, func(as []schemas.Action) bool { return len(as) == 4 }, inc, feed)
	c = b.controller()
	b.intend(c, "approve", kind(as, "drain")) // nobody can approve what only shows
	b.intend(c, "dry-run", kind(as, "power_cycle"))
	b.intend(c, "cancel", kind(as, "inspect_feed"))
	as = b.until(c, func(as []schemas.Action) bool {
		return states(as)["inspect_feed"] == schemas.ActionCancelled &&
			strings.HasPrefix(kind(as, "power_cycle").Detail, "dry run: would return gpu-r01-03")
	})
	if a := kind(as, "inspect_feed"); a.Actor != "ada" || kind(as, "drain").State != schemas.ActionProposed || len(b.w.applied) != 0 {
		t.Error(a.Actor, show(as), b.w.applied)
	}
	var left int
	if err := b.db.QueryRowContext(t.Context(), `SELECT count(*) FROM control_intents`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d intents are left: %v", left, err)
	}
}

func TestTheBreakerRemembersOverARestart(t *testing.T) {
	b := newBench(t, schemas.ModeDryRun)
	var incs []schemas.Incident
	for i := range 6 { // the policy's breaker trips at more than 5
		incs = append(incs, incident(fmt.Sprint("i", i), fmt.Sprintf("gpu-r%02d-01/gpu0", 1+i), "gpu.fallen_off_bus"))
	}
	b.until(b.controller(), func(as []schemas.Action) bool { return len(as) == 18 }, incs...)
	as := b.until(
		b.controller(), func(as []schemas.Action) bool { return len(as) > 18 }, incident("late", "gpu-r09-01/gpu0", "gpu.fallen_off_bus"),
	)
	for _, a := range as {
		for _, r := range a.Rails {
			if a.Incident == "late" && r.Name == railBreaker && r.OK {
				t.Error("the breaker forgot the ladders of the process before")
			}
		}
	}
}

// TestBudgetsAreTold holds what the console reads of budgets against what the
// ladders hold: a failed one stays in use, one that waits for a person is
// reserved, and both are there again after a restart, the breaker's count too.
func TestBudgetsAreTold(t *testing.T) {
	b := newBench(t, schemas.ModeEnforce)
	b.w.lazy = true
	b.until(
		b.controller(), func(as []schemas.Action) bool { return states(as)["ticket"] != "" },
		incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus"),
	)
	want := schemas.Budgets{
		RackLimit: 1,
		Levels: []schemas.Budget{
			{Scope: schemas.ScopeFleet, Limit: 2, Used: 1, Reserved: 1},
			{Scope: schemas.ScopeRack, Name: "r01", Limit: 1, Used: 1},
			{Scope: schemas.ScopeRack, Name: "r02", Limit: 1, Reserved: 1},
			{Scope: schemas.ScopeHour, Limit: 4, Used: 1},
		},
		Breaker: schemas.Breaker{Ladders: 2, Limit: 5, WindowSeconds: 600},
	}
	diff := ""
	t.Cleanup(func() {
		if diff != "" {
			t.Error(diff)
		}
	})
	reported := func([]schemas.Action) bool {
		got, _, err := records.New(b.db).Budgets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		diff = cmp.Diff(want, got, cmpopts.IgnoreFields(schemas.Budgets{}, "Time"))
		return diff == ""
	}
	b.mode = schemas.ModeApprove
	b.until(b.controller(), reported, incident("i2", "gpu-r02-01/gpu0", "gpu.fallen_off_bus"))
	if err := records.New(b.db).PutBudgets(t.Context(), schemas.Budgets{}); err != nil {
		t.Fatal(err)
	}
	b.until(b.controller(), reported) // after a restart
}

func TestAClosedIncidentWithdrawsItsProposals(t *testing.T) {
	b := newBench(t, schemas.ModeDryRun)
	c := b.controller()
	inc := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus")
	b.until(c, func(as []schemas.Action) bool { return len(as) == 3 }, inc)
	c = b.controller()
	now := time.Now()
	closed := inc
	closed.Closed = &now
	b.until(c, func(as []schemas.Action) bool {
		c.consider(closed)
		return states(as)["power_cycle"] == schemas.ActionCancelled
	})
}

// Whatever comes, in whatever order, no more servers are touched than the budgets
// allow and no action is sent twice.
func TestBudgetsHoldForAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t, schemas.ModeEnforce)
		b.w.lazy = r.IntN(2) == 0
		var incs []schemas.Incident
		for i := range 12 {
			incs = append(
				incs, incident(fmt.Sprint("i", i), fmt.Sprintf("gpu-r%02d-%02d/gpu%d", 1+r.IntN(4), 1+r.IntN(4), r.IntN(8)), "gpu.fallen_off_bus"),
			)
		}
		end := time.Now().Add(700 * time.Millisecond)
		b.until(b.controller(), func([]schemas.Action) bool {
			b.w.mu.Lock()
			defer b.w.mu.Unlock()
			n := 0
			for _, d := range b.w.drained {
				if d {
					n++
				}
			}
			if n > 2 {
				t.Errorf("seed %d: %d servers out of the pool", seed, n)
			}
			return time.Now().After(end)
		}, incs...)
		for id, n := range b.w.applied {
			if n > 1 {
				t.Errorf("seed %d: %s was sent %d times", seed, id, n)
			}
		}
	}
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
