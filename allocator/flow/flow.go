// Package flow runs workflows: each step by its driver, until all are done or one is not. It keeps
// nothing that the store does not have: after a kill, any process goes on where it was.
package flow

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/allocator/steps"
	"auspex/internal/reasons"
	"auspex/internal/run"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// Config bounds what is run.
type Config struct {
	StepTime time.Duration // for one step
	Poll     time.Duration // between two looks
	Parallel int           // workflows at a time in this process
	Hold     time.Duration // how long nobody else takes up a workflow whose process was killed
}

// Runner runs the workflows that nobody else runs. It is a component of internal/run.
type Runner struct {
	cfg     Config
	store   *workflows.Store
	drivers steps.Drivers
	gpus    func(ctx context.Context, w *schemas.Workflow) ([]string, error)
	holder  string
	log     *slog.Logger
	ended   *prometheus.CounterVec
	wake    chan struct{}
	now     func() time.Time

	mu      sync.Mutex
	running map[string]bool
}

// Deps is what a runner stands on.
type Deps struct {
	Store   *workflows.Store
	Drivers steps.Drivers
	// GPUs names the GPUs that a workflow is about.
	GPUs    func(ctx context.Context, w *schemas.Workflow) ([]string, error)
	Holder  string // names this process
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// New returns a runner that does nothing yet.
func New(cfg Config, d Deps) *Runner {
	r := &Runner{
		cfg: cfg, store: d.Store, drivers: d.Drivers, gpus: d.GPUs, holder: d.Holder, log: d.Log, wake: make(chan struct{}, 1), now: time.Now,
		running: make(map[string]bool),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_allocator_workflows_total", Help: "Workflows that ended, by type and how.",
		}, []string{"type", "status"}),
	}
	d.Metrics.MustRegister(r.ended)
	return r
}

// Name implements run.Component.
func (r *Runner) Name() string { return "workflows" }

// Wake makes the runner look at once.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run implements run.Component.
func (r *Runner) Run(ctx context.Context, ready func()) error {
	ready()
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(r.cfg.Poll)
	defer tick.Stop()
	for {
		due, err := r.store.Due(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("cannot list workflows", "error", err)
		}
		for _, w := range due {
			if !r.begin(w.ID) {
				continue
			}
			wg.Go(func() {
				defer r.end(w.ID)
				if err := r.one(ctx, w); err != nil && ctx.Err() == nil && !errors.Is(err, workflows.ErrLost) {
					r.log.Warn("a workflow is taken up again later", "workflow", w.ID, "server", w.Server, "error", err)
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.wake:
		}
	}
}

func (r *Runner) begin(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[id] || len(r.running) >= r.cfg.Parallel {
		return false
	}
	r.running[id] = true
	return true
}

func (r *Runner) end(id string) {
	r.mu.Lock()
	delete(r.running, id)
	r.mu.Unlock()
	r.Wake()
}

// one runs a workflow to its end, or until another process has it.
func (r *Runner) one(ctx context.Context, w schemas.Workflow) error {
	if ok, err := r.store.Hold(ctx, w.ID, r.holder, r.cfg.Hold); err != nil || !ok {
		return err
	}
	by := w.CreatedBy
	if w.Status == schemas.WorkflowPending {
		began, err := r.store.Move(ctx, by, r.holder, w.ID, schemas.WorkflowRunning, "", nil)
		var move *schemas.MoveError
		if errors.As(err, &move) { // of the server: it is not where a workflow may begin
			return r.finish(ctx, &w, schemas.WorkflowFailed, move.Error())
		}
		if err != nil {
			return err
		}
		w = began
	}
	gpus, err := r.gpus(ctx, &w)
	if err != nil {
		return err
	}
	for n := range w.Steps {
		st := &w.Steps[n]
		if st.Status == schemas.StepCompleted {
			continue
		}
		if st.Status == schemas.StepPending {
			st.Status, st.StartedAt = schemas.StepRunning, r.now().UTC()
			if err := r.save(ctx, &w); err != nil {
				return err
			}
		}
		if err := r.step(ctx, &w, n, gpus); err != nil {
			return err
		}
		if st.Status == schemas.StepFailed {
			return r.finish(ctx, &w, schemas.WorkflowFailed, reasons.Text(reasons.Step, reasons.Args{"step": st.Name, "why": st.Message}))
		}
	}
	return r.finish(ctx, &w, schemas.WorkflowCompleted, "")
}

// step does a step until it is completed or failed.
func (r *Runner) step(ctx context.Context, w *schemas.Workflow, n int, gpus []string) error {
	st := &w.Steps[n]
	driver, known := r.drivers[st.Name]
	if !known {
		st.Status, st.Message = schemas.StepFailed, reasons.Text(reasons.NoDriver, reasons.Args{"step": st.Name})
	}
	for st.Status == schemas.StepRunning {
		if ok, err := r.store.Hold(ctx, w.ID, r.holder, r.cfg.Hold); err != nil {
			return err
		} else if !ok {
			return workflows.ErrLost
		}
		was := *st
		call, cancel := context.WithTimeout(ctx, r.cfg.Hold/2)
		p, err := driver.Do(call, steps.Job{Workflow: *w, Step: *st, Number: n, GPUs: gpus})
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.Message = err.Error()
		}
		st.Message, st.Operation = p.Message, p.Operation
		switch {
		case p.Done:
			st.Status = schemas.StepCompleted
		case p.Failed:
			st.Status = schemas.StepFailed
		case r.now().Sub(st.StartedAt) > steps.Within(st.Name, r.cfg.StepTime):
			late := reasons.TooLong
			if st.Message != "" {
				late = reasons.TooLongSo
			}
			st.Status, st.Message = schemas.StepFailed, reasons.Text(late, reasons.Args{"age": steps.Within(st.Name, r.cfg.StepTime), "why": st.Message})
		}
		if st.Status != schemas.StepRunning {
			break
		}
		if st.Message != was.Message || st.Operation != was.Operation {
			if err := r.save(ctx, w); err != nil {
				return err
			}
		}
		if err := run.Sleep(ctx, r.cfg.Poll); err != nil {
			return err
		}
	}
	st.CompletedAt = r.now().UTC()
	return r.save(ctx, w)
}

func (r *Runner) save(ctx context.Context, w *schemas.Workflow) error {
	return r.store.Save(ctx, r.holder, w)
}

func (r *Runner) finish(ctx context.Context, w *schemas.Workflow, status, reason string) error {
	if _, err := r.store.Move(ctx, w.CreatedBy, r.holder, w.ID, status, reason, w.Steps); err != nil {
		return err
	}
	r.ended.WithLabelValues(w.Type, status).Inc()
	if status == schemas.WorkflowFailed {
		r.log.Warn("workflow failed", "workflow", w.ID, "server", w.Server, "type", w.Type, "reason", reason)
	}
	return nil
}
