// Package flow runs workflows: each step by its driver, until all are done or one is not. It keeps
// nothing that the store does not have: after a kill, any process goes on where it was.
package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	Parallel int           // workflows at a time in this process, and as many bring-ups
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
	running map[string]string    // by id, the type
	looks   map[string]time.Time // when a run of a workflow is looked at again, for what goes on of it
	stopped map[string]time.Time // those nothing of which goes on: when they were seen so; of the loop alone
}

// looksEvery is how many polls are between two such looks, each of which may ask control.
const looksEvery = 5

// stopsFor is how long after its end a workflow that has failed is looked at, for what goes on of it: a request of its last step may
// have been on its way.
const stopsFor = 15 * time.Minute

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
		running: make(map[string]string), stopped: make(map[string]time.Time), looks: make(map[string]time.Time),
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
		if err := r.stop(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("what a failed workflow had begun cannot be ended; it is tried again", "error", err)
		}
		due, err := r.store.Due(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("cannot list workflows", "error", err)
		}
		for _, w := range due {
			if !r.begin(w.ID, w.Type) {
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

// begin takes a place for a workflow. A bring-up may wait for people for a day, so these have places of their own.
func (r *Runner) begin(id, kind string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	alike := 0
	for _, other := range r.running {
		if (other == schemas.WorkflowBringUp) == (kind == schemas.WorkflowBringUp) {
			alike++
		}
	}
	if _, is := r.running[id]; is || alike >= r.cfg.Parallel {
		return false
	}
	r.running[id] = kind
	return true
}

func (r *Runner) end(id string) {
	r.mu.Lock()
	delete(r.running, id)
	r.mu.Unlock()
	r.Wake()
}

// stop ends what goes on of workflows that have failed: by a step, a person or the end of their allocation.
func (r *Runner) stop(ctx context.Context) error {
	now := r.now()
	failed, err := r.store.Failed(ctx, now.Add(-stopsFor))
	if err != nil {
		return err
	}
	old := func(_ string, at time.Time) bool { return now.Sub(at) > 2*stopsFor }
	maps.DeleteFunc(r.stopped, old)
	r.mu.Lock()
	maps.DeleteFunc(r.looks, old)
	r.mu.Unlock()
	var errs []error
	for i := range failed {
		w := &failed[i]
		run := runOf(w, w.Attempt)
		if _, known := r.stopped[run]; known {
			continue
		}
		over, err := r.over(ctx, w, w.Attempt)
		if err != nil {
			errs = append(errs, err)
		} else if over && now.Sub(w.CompletedAt) > settles { // what was asked for at its last moment has arrived
			r.stopped[run] = now
		}
	}
	return errors.Join(errs...)
}

// settles is how long a request may be on its way.
const settles = time.Minute

func runOf(w *schemas.Workflow, attempt int) string { return fmt.Sprint(w.ID, " ", attempt) }

// over reports whether nothing goes on of a run of a workflow, and ends what can be ended.
func (r *Runner) over(ctx context.Context, w *schemas.Workflow, attempt int) (bool, error) {
	now, run := r.now(), runOf(w, attempt)
	r.mu.Lock()
	early := now.Before(r.looks[run])
	if !early {
		r.looks[run] = now.Add(looksEvery * r.cfg.Poll)
	}
	r.mu.Unlock()
	if early {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Hold/2) // who asks may have no bus
	defer cancel()
	was := *w
	was.Attempt = attempt
	all := true
	for n := range was.Steps {
		d, ok := r.drivers[was.Steps[n].Name].(steps.Stopper)
		if !ok || was.Steps[n].Status == schemas.StepCompleted {
			continue
		}
		over, err := d.Stop(ctx, steps.Job{Workflow: was, Step: was.Steps[n], Number: n})
		if err != nil {
			return false, err
		}
		all = all && over
	}
	return all, nil
}

// one runs a workflow to its end, or until another process has it.
func (r *Runner) one(ctx context.Context, w schemas.Workflow) error {
	if ok, err := r.store.Hold(ctx, w.ID, r.holder, r.cfg.Hold); err != nil || !ok {
		return err
	}
	by := w.CreatedBy
	if w.Status == schemas.WorkflowPending && w.Attempt > 1 { // control does one thing at a time on a server
		if over, err := r.over(ctx, &w, w.Attempt-1); err != nil || !over {
			return err
		}
	}
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
			if err := r.hold(ctx, &w, n, gpus); err != nil {
				return err
			}
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

// hold waits until a step may begin, which its driver says. What it waits for is its message; its time has not begun.
func (r *Runner) hold(ctx context.Context, w *schemas.Workflow, n int, gpus []string) error {
	st := &w.Steps[n]
	d, ok := r.drivers[st.Name].(steps.Holder)
	for ok {
		if mine, err := r.store.Hold(ctx, w.ID, r.holder, r.cfg.Hold); err != nil {
			return err
		} else if !mine {
			return workflows.ErrLost
		}
		call, cancel := context.WithTimeout(ctx, r.cfg.Hold/2)
		why, err := d.Holds(call, steps.Job{Workflow: *w, Step: *st, Number: n, GPUs: gpus})
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			why = err.Error()
		}
		if why == "" {
			break
		}
		if st.Message != why {
			st.Message = why
			if err := r.save(ctx, w); err != nil {
				return err
			}
		}
		if err := run.Sleep(ctx, r.cfg.Poll); err != nil {
			return err
		}
	}
	st.Message = ""
	return nil
}

// step does a step until it is completed or failed.
func (r *Runner) step(ctx context.Context, w *schemas.Workflow, n int, gpus []string) error {
	st := &w.Steps[n]
	driver, known := r.drivers[st.Name]
	within := steps.Within(w.Type, st.Name, r.cfg.StepTime)
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
		if len(p.Stages) > 0 {
			st.Stages = p.Stages
		}
		switch {
		case p.Done:
			st.Status = schemas.StepCompleted
		case p.Failed:
			st.Status = schemas.StepFailed
		case r.now().Sub(st.StartedAt) > within:
			late := reasons.TooLong
			if st.Message != "" {
				late = reasons.TooLongSo
			}
			st.Status, st.Message = schemas.StepFailed, reasons.Text(late, reasons.Args{"age": within, "why": st.Message})
		}
		if st.Status != schemas.StepRunning {
			break
		}
		if st.Message != was.Message || st.Operation != was.Operation || !slices.Equal(st.Stages, was.Stages) {
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
