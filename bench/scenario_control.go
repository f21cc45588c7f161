package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/schemas"
)

// controlPolicy has a ladder that begins at once, and one that waits for a person.
const controlPolicy = `
budgets: {fleet: 1000000, rack: 1000, per_hour: 1000000}
breaker: {cases: 1000000, window: 10m}
policies:
  - name: at-once
    faults: [gpu.fallen_off_bus]
    settle: 0s
    ladder:
      - {kind: drain, verify: 1m}
  - name: asked
    faults: [gpu.memory_uncorrectable]
    mode: approve
    settle: 0s
    ladder:
      - {kind: drain, verify: 1m}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 1m}
      - {kind: uncordon, needs: [power_cycle], verify: 1m}
`

const (
	firstSteps = 100 // incidents of which each has its first step awaited
	stormOf    = 1000
	idleFor    = 30 * time.Second
)

// fleetPlace is the inventory of the fleet of the scenarios.
type fleetPlace struct{}

func (fleetPlace) Kind(string) string { return schemas.KindGPU }

func (fleetPlace) Place(resource string) (server, rack, site string, ok bool) {
	var r, s, g int
	if n, _ := fmt.Sscanf(resource, "gpu-r%d-%d/gpu%d", &r, &s, &g); n < 2 {
		return "", "", "", false
	}
	i := (r-1)*ServersPerRack + s - 1
	return Server(i), rackName(r - 1), Site, true
}

// obeys does each step at once, and tells when the first of a server came.
type obeys struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// Plan implements control.Remediator.
func (o *obeys) Plan(context.Context, control.Step) (schemas.Sentence, error) {
	return schemas.Sentence{}, nil
}

// Apply implements control.Remediator.
func (o *obeys) Apply(_ context.Context, s control.Step) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.first[s.Server]; !known {
		o.first[s.Server] = time.Now()
	}
	return nil
}

// Verify implements control.Remediator.
func (o *obeys) Verify(context.Context, control.Step) (control.Verdict, schemas.Sentence, error) {
	return control.Verified, messages.New(messages.PowerBack, nil), nil
}

func (o *obeys) at(server string) (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, ok := o.first[server]
	return t, ok
}

// controlled is the control of a product, with devices that do each step at once.
type controlled struct {
	*live
	parts Parts
	o     *obeys
	reg   *prometheus.Registry
}

func (b *bencher) controlled(ctx context.Context) (v *controlled, err error) {
	v = &controlled{o: &obeys{first: map[string]time.Time{}}, reg: prometheus.NewRegistry()}
	policies := b.path("policy.yaml")
	if err := os.WriteFile(policies, []byte(controlPolicy), 0o600); err != nil {
		return nil, err
	}
	s, err := b.product()
	if err != nil {
		return nil, err
	}
	if v.live, err = b.start(ctx, s, s.Components("state", "bus")...); err != nil {
		return nil, err
	}
	v.parts = s.Parts()
	cfg := control.DefaultConfig()
	cfg.Mode, cfg.Policies, cfg.ApproveWithin = schemas.ModeEnforce, policies, 24*time.Hour
	c, err := control.New(cfg, control.Deps{
		Log: s.Log, Metrics: v.reg, Now: time.Now, DB: v.parts.DB, Records: v.parts.Records, Bus: v.parts.Bus, Inventory: fleetPlace{}, Holder: "bench",
		Remediators: map[string]control.Remediator{"drain": v.o, "power_cycle": v.o, "uncordon": v.o},
		View:        func(string) schemas.View { return schemas.ViewHost },
	})
	if err != nil {
		return nil, errors.Join(err, v.stop())
	}
	// What control does ends before what it stands on.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	inner := v.live
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- c.Run(running, func() { close(ready) }) }()
	outer := &live{died: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(outer.died)
		outer.err = errors.Join(<-done, inner.stop())
	}()
	v.live = outer
	select {
	case <-ready:
		return v, nil
	case <-outer.died:
		return nil, outer.err
	}
}

// incidents stores and publishes incidents of servers from..to, and what their kernels said.
func (v *controlled) incidents(ctx context.Context, fault string, from, to int) error {
	var msgs []bus.Message
	var alerts []schemas.Alert
	for i := from; i < to; i++ {
		now := time.Now().UTC()
		id, part := fmt.Sprintf("inc-%06d", i), GPU(i, 0)
		inc := schemas.Incident{
			ID: id, Opened: now, Updated: now, At: now, RootCause: schemas.Cause{Resource: part, Fault: fault, Confidence: .95},
			Explanation: fault + " on " + part, Events: []string{id + "-e"},
		}
		alerts = append(alerts, schemas.Alert{
			Event: schemas.Event{
				ID: id + "-e", Resource: part, Type: schemas.EventGPUXID, Source: schemas.SourceKmsg, Severity: schemas.SeverityCritical, Time: now, Observed: now,
			},
			Server: Server(i), Status: schemas.AlertResolved, Fingerprint: id,
		})
		doc, err := json.Marshal(inc)
		if err != nil {
			return err
		}
		msgs = append(msgs, bus.Message{Topic: schemas.TopicIncidents, Key: id, Value: doc})
	}
	if err := v.parts.Records.PutAlerts(ctx, alerts); err != nil {
		return err
	}
	return v.parts.Bus.Publish(ctx, msgs...)
}

func (v *controlled) waiting() int {
	return int(total(v.reg, "auspex_control_actions_total", "state", schemas.ActionWaiting))
}

// checks are how often the checks of a step were evaluated, and the time that this took.
func (v *controlled) checks() (n uint64, took time.Duration, err error) {
	families, err := v.reg.Gather()
	if err != nil {
		return 0, 0, err
	}
	for _, f := range families {
		if f.GetName() == "auspex_control_check_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), time.Duration(h.GetSampleSum() * float64(time.Second)), nil
		}
	}
	return 0, 0, errors.New("control does not count its checks")
}

// controlCases measures control alone, over the product's store and bus: the time from an incident to its first step; a
// storm of incidents until each has a step that waits for a person; what that many cases cost while nothing happens.
func (b *bencher) controlCases(ctx context.Context) (res Result, err error) {
	if b.n < stormOf {
		return res, fmt.Errorf("%d cases are too few: %d incidents come at once", b.n, stormOf)
	}
	v, err := b.controlled(ctx)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	const patience = 5 * time.Minute
	all := StartMeter()
	var each []time.Duration
	for i := range firstSteps {
		began := time.Now()
		if err := v.incidents(ctx, "gpu.fallen_off_bus", b.n+i, b.n+i+1); err != nil {
			return res, err
		}
		var first time.Time
		if err := v.await(ctx, patience, "the first step", func() (ok bool) {
			first, ok = v.o.at(Server(b.n + i))
			return ok
		}); err != nil {
			return res, err
		}
		each = append(each, first.Sub(began))
	}
	storm := StartMeter()
	if err := v.incidents(ctx, "gpu.memory_uncorrectable", 0, stormOf); err != nil {
		return res, err
	}
	if err := v.await(ctx, patience, "the plans of a storm", func() bool { return v.waiting() >= stormOf }); err != nil {
		return res, err
	}
	planned := storm.Stop(b.name, "incidents", stormOf)
	if err := v.incidents(ctx, "gpu.memory_uncorrectable", stormOf, b.n); err != nil {
		return res, err
	}
	if err := v.await(ctx, patience, "the open cases", func() bool { return v.waiting() >= b.n }); err != nil {
		return res, err
	}
	opened := all.Stop(b.name, "cases", int64(b.n))
	n, took, err := v.checks()
	if err != nil {
		return res, err
	}
	idle := StartMeter()
	select {
	case <-ctx.Done():
		return res, ctx.Err()
	case <-v.died:
		return res, v.err
	case <-time.After(idleFor):
	}
	res = idle.Stop(b.name, "open cases", int64(b.n))
	res.Latencies("from an incident to its first step", each)
	later, tookLater, err := v.checks()
	if err != nil {
		return res, err
	}
	res.Detail = map[string]any{
		"storm": stormOf, "storm_planned_s": planned.Seconds, "storm_planned_cpu_s": planned.CPUSeconds, "opened_s": opened.Seconds,
		"idle_cores": round(res.CPUSeconds / res.Seconds), "checks_while_idle": later - n,
		"check_us": round(float64((tookLater - took).Microseconds()) / max(1, float64(later-n))),
	}
	cases := 0
	if err := v.parts.DB.QueryRowContext(ctx, `SELECT count(*) FROM control_cases WHERE state='open'`).Scan(&cases); err != nil {
		return res, err
	}
	if cases != b.n {
		return res, fmt.Errorf("%d cases are open, not %d", cases, b.n)
	}
	return res, nil
}
