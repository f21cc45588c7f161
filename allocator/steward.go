// Package allocator gives servers and GPUs to people and takes them back: it chooses what fits a
// wish, makes what was given ready, ends what has ended, and has what comes back cleaned before
// somebody else is given it. It touches no device: workflows ask control.
package allocator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/allocator/steps"
	"auspex/internal/reasons"
	"auspex/internal/store/allocations"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// actor is whose doing it is in the audit.
const actor = "allocator"

// Config is the user's part.
type Config struct {
	// Deploy and Cleanup are the steps of a workflow before a server or GPU is its user's, and before it is given to
	// somebody else; Look those of one that is only looked at. install is left out where nothing says with what, and with
	// it drain, uncordon and reset_network, but to take back what a deployment had done.
	Deploy  []string `yaml:"deploy"`
	Cleanup []string `yaml:"cleanup"`
	Look    []string `yaml:"validate"`
	BringUp BringUp  `yaml:"bring_up"`
	// Install says for which allocations whole servers are installed, which writes over their disk: asked, those that
	// name a template, or pinned, also others, of servers to which one is pinned.
	Install  string        `yaml:"install"`
	Wipe     Wipe          `yaml:"wipe"`
	StepTime time.Duration `yaml:"step_time"` // for one step; an installation has at least two hours
	Notice   time.Duration `yaml:"notice"`    // before the end of an allocation, for its user
	Grace    time.Duration `yaml:"grace"`     // for what is booked to become free
	Poll     time.Duration `yaml:"poll"`
	Parallel int           `yaml:"parallel"` // workflows at a time in a process, and as many bring-ups
}

// The values of Install.
const (
	InstallAsked  = "asked"  // of allocations that name a template
	InstallPinned = "pinned" // and of others, where a template is pinned to the server
)

// Wipe says how whole servers are wiped when they come back, which destroys what is on all of their drives. Without a template
// none is.
type Wipe struct {
	Template   string            `yaml:"template"`
	Version    int64             `yaml:"version"`    // 0 is the latest when the cleaning begins
	Parameters map[string]string `yaml:"parameters"` // of the template; a secret is secret:NAME
	// Of says after which allocations: installed, those for which the server was installed, or all.
	Of string `yaml:"of"`
}

// The values of Wipe.Of.
const (
	WipeInstalled = "installed"
	WipeAll       = "all"
)

// DefaultConfig looks at what every site has read.
func DefaultConfig() Config {
	return Config{
		Deploy:  []string{"idle", steps.Drain, "power_on", "set_boot", steps.Install, "telemetry", "health"},
		Cleanup: []string{"health", "idle", steps.Drain, steps.Wipe, steps.Install, steps.ResetNetwork, "telemetry", "health", steps.Uncordon},
		BringUp: BringUp{Steps: []string{
			steps.Inventory, "idle", steps.Drain, firmware, steps.Install, steps.HostReads, steps.Drain, "telemetry", validate, "health", steps.Uncordon,
		}},
		Install: InstallAsked, Wipe: Wipe{Of: WipeInstalled},
		Look: []string{"telemetry", "health"}, StepTime: 10 * time.Minute, Notice: time.Hour, Grace: 15 * time.Minute, Poll: time.Second, Parallel: 64,
	}
}

// Validate names the key at fault.
func (c *Config) Validate() error {
	for key, d := range map[string]time.Duration{"step_time": c.StepTime, "grace": c.Grace, "poll": c.Poll} {
		if d <= 0 {
			return fmt.Errorf("%s is %s; it must be positive", key, d)
		}
	}
	if c.Install != InstallAsked && c.Install != InstallPinned {
		return fmt.Errorf("install is %q; want %s or %s", c.Install, InstallAsked, InstallPinned)
	}
	if c.Wipe.Of != WipeInstalled && c.Wipe.Of != WipeAll {
		return fmt.Errorf("wipe.of is %q; want %s or %s", c.Wipe.Of, WipeInstalled, WipeAll)
	}
	if c.Wipe.Version < 0 {
		return fmt.Errorf("wipe.version is %d; want a version of the template, or 0 for its latest", c.Wipe.Version)
	}
	if c.Wipe.Template == "" && (c.Wipe.Version > 0 || len(c.Wipe.Parameters) > 0) {
		return errors.New("wipe.template is missing: nothing is wiped without it")
	}
	if c.Wipe.Template != "" && !slices.Contains(c.Cleanup, steps.Wipe) {
		return errors.New("wipe.template is set, and cleanup has no step wipe")
	}
	if err := c.BringUp.validate(); err != nil {
		return err
	}
	if c.Notice < 0 {
		return fmt.Errorf("notice is %s; it must not be negative", c.Notice)
	}
	if c.Parallel < 1 {
		return fmt.Errorf("parallel is %d; it must be at least 1", c.Parallel)
	}
	return nil
}

// with are the parameters of steps that need some: a server that is not installed anew boots from
// where it always does, and not each has a scheduler.
var with = map[string]map[string]string{
	"set_boot": {"target": "none"}, steps.Drain: {"optional": "true"}, steps.Uncordon: {"optional": "true"},
}

func stepsOf(names []string) []schemas.WorkflowStep {
	out := make([]schemas.WorkflowStep, len(names))
	for i, name := range names {
		out[i] = schemas.WorkflowStep{Name: name, With: with[name]}
	}
	return out
}

// Deps is what a steward stands on.
type Deps struct {
	Allocations *allocations.Store
	Estate      *estate.Store
	Workflows   *workflows.Store
	// Blamed returns the open incidents that name a part as their cause, by its name.
	Blamed func(ctx context.Context) (map[string]schemas.Incident, error)
	// Put makes an allocation a workload of the inventory; the correlator asks it who computes where.
	Put func(ctx context.Context, w schemas.Workload) error
	// Post publishes an event. One that is published again under its id is still one.
	Post func(ctx context.Context, ev schemas.Event) error
	// Installs returns the template that is pinned to a server, by its id, and the version of it that is installed now; ""
	// where none is, or nobody installs servers.
	Installs func(ctx context.Context, server string) (template string, version int64, err error)
	// BIOS are the attributes that a server, by its id, is kept at, by its configuration; none where it has none.
	BIOS func(ctx context.Context, server string) (map[string]string, error)
	// Latest is the version of a template that is the latest now, 0 where there is none.
	Latest func(ctx context.Context, template string) (int64, error)
	// Wake makes workflows that wait begin.
	Wake    func()
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Steward carries allocations from one state to the next. What it does follows from what the
// store has, and each of it may be done again: a kill loses nothing, and two stewards do no harm.
// It is a component of internal/run.
type Steward struct {
	cfg   Config
	d     Deps
	now   func() time.Time
	wake  chan struct{}
	moves *prometheus.CounterVec
	fails prometheus.Counter
	// posted are the cleanups that wait for their server, and whose report is on the bus already.
	posted map[string]bool
}

// NewSteward returns a steward that does nothing yet.
func NewSteward(cfg Config, d Deps) *Steward {
	s := &Steward{
		cfg: cfg, d: d, now: time.Now, wake: make(chan struct{}, 1), posted: make(map[string]bool),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_allocator_allocations_total", Help: "Allocations that became active or ended, by state.",
		}, []string{"status"}),
		fails: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_allocator_errors_total", Help: "Things about an allocation that could not be done and are tried again.",
		}),
	}
	d.Metrics.MustRegister(s.moves, s.fails)
	return s
}

// Name implements run.Component.
func (s *Steward) Name() string { return "allocator" }

// Wake makes the steward look at once.
func (s *Steward) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run implements run.Component.
func (s *Steward) Run(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	for {
		s.round(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wake:
		}
	}
}

// round does what is due. One allocation that cannot be carried on delays no other.
func (s *Steward) round(ctx context.Context) {
	each(ctx, s, "pending", s.d.Allocations.Pending, s.pending)
	each(ctx, s, "ending", func(ctx context.Context) ([]schemas.Allocation, error) {
		return s.d.Allocations.Ending(ctx, s.now().Add(s.cfg.Notice))
	}, s.ending)
	each(ctx, s, "returned", s.d.Allocations.Cleaning, s.cleaning)
	if err := s.gpus(ctx); err != nil {
		s.failed(ctx, "GPUs of incidents", err)
	}
	s.d.Wake()
}

func each[T any](ctx context.Context, s *Steward, what string, list func(context.Context) ([]T, error), one func(context.Context, *T) error) {
	all, err := list(ctx)
	if err != nil {
		s.failed(ctx, what+" allocations", err)
	}
	for i := range all {
		if err := one(ctx, &all[i]); err != nil {
			s.failed(ctx, fmt.Sprintf("%s allocation %d of %d", what, i+1, len(all)), err)
		}
	}
}

func (s *Steward) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.fails.Inc()
		s.d.Log.Warn("an allocation is tried again later", "what", what, "error", err)
	}
}

// flowID is the same each time that the same thing is done for an allocation.
func flowID(allocation, server, kind string, since time.Time) string {
	name := strings.Join([]string{allocation, server, kind, strconv.FormatInt(since.UnixNano(), 10)}, "\x00")
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(name), 8).String()
}

// flow returns a workflow of an allocation on a server, which it makes where there is none; nil
// is that the server is not free for it yet.
func (s *Steward) flow(ctx context.Context, id string, a *schemas.Allocation, server, kind string, exclusive bool, names []string) (*schemas.Workflow, error) {
	w, err := s.d.Workflows.Get(ctx, id)
	if err == nil || !errors.Is(err, entity.ErrNone) {
		return &w, err
	}
	if !exclusive { // who has the other GPUs keeps the server as it is
		names = slices.DeleteFunc(slices.Clone(names), steps.OfServer)
	}
	todo := stepsOf(names)
	if slices.ContainsFunc(names, writes) {
		made, err := s.d.Workflows.Of(ctx, a.ID)
		if err != nil {
			return nil, err
		}
		made = slices.DeleteFunc(made, func(w schemas.Workflow) bool { return w.ServerID != server || w.Type != schemas.WorkflowDeploy })
		drained := slices.ContainsFunc(made, func(w schemas.Workflow) bool { return w.Step(steps.Drain) != nil })
		wiped := -1 // the step after which it has no system
		for i := range todo {
			switch st := &todo[i]; st.Name {
			case steps.Install:
				if st.With, err = s.installs(ctx, a, server, kind, made, wiped >= 0); st.With != nil {
					wiped = -1
				}
			case steps.Wipe:
				if st.With, err = s.wipes(ctx, kind, made); st.With != nil {
					wiped = i
				}
			case steps.ResetBIOS:
				st.Name = steps.SetBIOS
				st.With, err = s.resets(ctx, server)
			default:
				continue
			}
			if err != nil {
				return nil, err
			}
			drained = drained || todo[i].With != nil
		}
		if wiped >= 0 { // nothing reports there any more, and its scheduler has no use for it
			todo = slices.DeleteFunc(todo, func(st schemas.WorkflowStep) bool { return st.Name == steps.Uncordon })
			n := slices.IndexFunc(todo, func(st schemas.WorkflowStep) bool { return st.Name == steps.Wipe }) + 1
			todo = append(todo[:n], slices.DeleteFunc(todo[n:], func(st schemas.WorkflowStep) bool { return st.Name == steps.Telemetry || st.Name == steps.Health })...)
		}
		todo = slices.DeleteFunc(todo, func(st schemas.WorkflowStep) bool {
			return writes(st.Name) && st.With == nil || slices.Contains([]string{steps.Drain, steps.Uncordon, steps.ResetNetwork}, st.Name) && !drained
		})
	}
	w, err = s.d.Workflows.Create(ctx, actor, schemas.Workflow{ID: id, AllocationID: a.ID, ServerID: server, Type: kind, Exclusive: exclusive, Steps: todo})
	if errors.Is(err, workflows.ErrBusy) || errors.Is(err, estate.ErrAllocated) {
		return nil, nil
	}
	return &w, err
}

// writes reports whether a step changes what a server has, so that its scheduler may not have it meanwhile.
func writes(name string) bool {
	return name == steps.Install || name == steps.Wipe || name == steps.ResetBIOS
}

// resets are the parameters of the step that sets the BIOS of a server back: the defaults of its controller, but for what it is kept at.
func (s *Steward) resets(ctx context.Context, server string) (map[string]string, error) {
	with, err := s.d.BIOS(ctx, server)
	if err != nil {
		return nil, err
	}
	if with == nil {
		with = map[string]string{}
	}
	with["defaults"], with["reset"] = "true", "true"
	return with, nil
}

// installs are the parameters of the step that installs a server, nil where none does: a deployment as it was asked for, or as an
// earlier one of those made of the same allocation on that server did it; else, where that is to be or nothing is left of what it had, with
// what is pinned to the server.
func (s *Steward) installs(ctx context.Context, a *schemas.Allocation, server, kind string, made []schemas.Workflow, wiped bool) (map[string]string, error) {
	if kind == schemas.WorkflowDeploy {
		if a.Template != "" {
			return steps.InstallWith(&a.Install)
		}
		for i := range made {
			if st := made[i].Step(steps.Install); st != nil {
				return st.With, nil
			}
		}
	}
	if s.d.Installs == nil || s.cfg.Install != InstallPinned && a.Template == "" && !wiped {
		return nil, nil
	}
	template, version, err := s.d.Installs(ctx, server)
	if err != nil || template == "" {
		return nil, err
	}
	return steps.InstallWith(&schemas.Install{Template: template, TemplateVersion: version})
}

// wipes are the parameters of the step that wipes a server, nil where none does: what the site says, after an allocation whose
// deployments, those made, have begun to install it, or after each. Where control cannot do it the step fails, and the server is nobody's.
func (s *Steward) wipes(ctx context.Context, kind string, made []schemas.Workflow) (map[string]string, error) {
	c := &s.cfg.Wipe
	if c.Template == "" || kind != schemas.WorkflowCleanup {
		return nil, nil
	}
	if c.Of != WipeAll && !slices.ContainsFunc(made, func(w schemas.Workflow) bool {
		st := w.Step(steps.Install)
		return st != nil && (!st.StartedAt.IsZero() || w.Attempt > 1)
	}) {
		return nil, nil
	}
	in := schemas.Install{Template: c.Template, TemplateVersion: c.Version, Parameters: map[string]any{}}
	for name, v := range c.Parameters {
		in.Parameters[name] = v
	}
	if in.TemplateVersion == 0 {
		var err error
		if in.TemplateVersion, err = s.d.Latest(ctx, in.Template); err != nil {
			return nil, err
		}
	}
	with, err := steps.InstallWith(&in)
	if in.TemplateVersion == 0 { // there is none, which control says
		delete(with, "version")
	}
	return with, err
}

// pending brings an allocation whose time has come to its user.
func (s *Steward) pending(ctx context.Context, a *schemas.Allocation) error {
	if a.Booked {
		got, err := s.d.Allocations.Begin(ctx, actor, a.ID)
		var conflict *allocations.ConflictError
		if errors.As(err, &conflict) {
			if s.now().Sub(a.StartTime) < s.cfg.Grace {
				return s.d.Allocations.Note(ctx, a.ID, reasons.Text(reasons.Waits, reasons.Args{"why": conflict.Error()}))
			}
			return s.end(ctx, a.ID, schemas.AllocationFailed, conflict.Error())
		}
		if err != nil {
			return err
		}
		*a = got
	}
	done := true
	for i, server := range a.ServerIDs {
		w, err := s.flow(ctx, flowID(a.ID, server, schemas.WorkflowDeploy, a.StartTime), a, server, schemas.WorkflowDeploy, a.Exclusive, s.cfg.Deploy)
		if err != nil {
			return err
		}
		if w == nil {
			done = false
			if err := s.d.Allocations.Note(ctx, a.ID, reasons.Text(reasons.Waits, reasons.Args{"why": reasons.Text(reasons.HasWorkflow, reasons.Args{"server": a.Servers[i]})})); err != nil {
				return err
			}
			continue
		}
		if w.Status == schemas.WorkflowFailed {
			return s.end(ctx, a.ID, schemas.AllocationFailed, reasons.Text(reasons.On, reasons.Args{"server": a.Servers[i], "why": w.Reason}))
		}
		done = done && w.Status == schemas.WorkflowCompleted
	}
	if !done {
		return nil
	}
	got, err := s.d.Allocations.Activate(ctx, actor, a.ID)
	var conflict *allocations.ConflictError
	if errors.As(err, &conflict) {
		return s.end(ctx, a.ID, schemas.AllocationFailed, conflict.Error())
	}
	if err != nil {
		return err
	}
	s.moves.WithLabelValues(got.Status).Inc()
	return s.workload(ctx, &got)
}

// workload tells the inventory who computes where.
func (s *Steward) workload(ctx context.Context, a *schemas.Allocation) error {
	w := schemas.Workload{ID: WorkloadID(a.ID), Start: a.ActiveAt, End: a.EndedAt, Attrs: map[string]string{"owner": a.User, "account": a.Team, "name": a.Purpose}}
	if a.Exclusive {
		w.Resources = a.Servers
	} else {
		for _, server := range a.ServerIDs {
			gpus, err := s.d.Allocations.GPUs(ctx, a.ID, server)
			if err != nil {
				return err
			}
			w.Resources = append(w.Resources, gpus...)
		}
	}
	return s.d.Put(ctx, w)
}

// reported is what the user of an allocation said of a server when it was given back. It is
// evidence by somebody who can post, as any other: people see it, and nothing is destroyed for it alone.
func reported(a *schemas.Allocation, r *allocations.Return) schemas.Event {
	return schemas.Event{
		ID: "r" + flowID(r.Allocation, r.Server, schemas.EventTenantReport, r.EndedAt), Time: r.EndedAt, Observed: r.EndedAt,
		Source: schemas.SourceAPI, Resource: r.Name, Type: schemas.EventTenantReport, Severity: schemas.SeverityWarning, Message: a.Report,
		Attrs: map[string]string{
			schemas.AttrExternal: "true", schemas.AttrAlert: "true", schemas.AttrPostedBy: a.User, "allocation": a.ID,
		},
	}
}

// WorkloadID is the id of the workload of an allocation.
func WorkloadID(allocation string) string { return "allocation-" + allocation }

// end ends an allocation.
func (s *Steward) end(ctx context.Context, id, to, reason string) error {
	_, err := s.d.Allocations.End(ctx, actor, id, 0, to, reason, "")
	if errors.As(err, new(*schemas.MoveError)) {
		return nil // somebody was faster
	}
	if err == nil {
		s.moves.WithLabelValues(to).Inc()
	}
	return err
}

// Expired is the reason of an allocation whose time was over.
var Expired = reasons.Text(reasons.Expired, nil)

// ending tells the user of an active allocation that it ends soon, and ends it.
func (s *Steward) ending(ctx context.Context, a *schemas.Allocation) error {
	if !a.EndTime.After(s.now()) {
		return s.end(ctx, a.ID, schemas.AllocationCompleted, Expired)
	}
	if a.Noticed.Equal(a.EndTime) {
		return nil
	}
	return s.d.Allocations.Warn(ctx, a)
}

// cleaning has what an ended allocation held cleaned, and gives it back.
func (s *Steward) cleaning(ctx context.Context, r *allocations.Return) error {
	made, err := s.d.Workflows.Of(ctx, r.Allocation)
	if err != nil {
		return err
	}
	for i := range made {
		if w := &made[i]; w.ServerID == r.Server && w.Type == schemas.WorkflowDeploy && w.Live() {
			if _, err := s.d.Workflows.Move(ctx, actor, "", w.ID, schemas.WorkflowFailed, workflows.Cancelled, nil); err != nil {
				return err
			}
		}
	}
	a, err := s.d.Allocations.Get(ctx, r.Allocation)
	if err != nil {
		return err
	}
	if !a.ActiveAt.IsZero() {
		if err := s.workload(ctx, &a); err != nil { // that it has ended
			return err
		}
	}
	id := flowID(r.Allocation, r.Server, schemas.WorkflowCleanup, r.EndedAt)
	if a.Report != "" && !s.posted[id] && !slices.ContainsFunc(made, func(w schemas.Workflow) bool { return w.ID == id }) {
		if err := s.d.Post(ctx, reported(&a, r)); err != nil {
			return fmt.Errorf("post what %s reports of %s: %w", a.User, r.Name, err)
		}
		s.posted[id] = true
	}
	w, err := s.flow(ctx, id, &a, r.Server, schemas.WorkflowCleanup, r.Exclusive, s.cfg.Cleanup)
	if err != nil || w == nil || w.Status != schemas.WorkflowCompleted {
		return err
	}
	delete(s.posted, id)
	return s.d.Allocations.Free(ctx, actor, r.Allocation, r.Server)
}

// incidentReason begins why a GPU is in error because of an incident.
var incidentReason = reasons.Text(reasons.Incident, reasons.Args{"incident": ""})

// gpus moves GPUs that open incidents blame to error, tells who has them, and moves them back
// when the incident has closed.
func (s *Steward) gpus(ctx context.Context) error {
	blamed, err := s.d.Blamed(ctx)
	if err != nil {
		return err
	}
	ill, err := s.d.Estate.InError(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(ill))
	for i := range ill {
		g := &ill[i]
		known[g.Name] = true
		id, ours := strings.CutPrefix(g.Reason, incidentReason)
		if now, still := blamed[g.Name]; !ours || still && now.ID == id || still {
			continue
		}
		if err := s.d.Allocations.Mend(ctx, actor, g.ID, reasons.Text(reasons.Closed, reasons.Args{"incident": id})); err != nil {
			return err
		}
	}
	for name, i := range blamed {
		if known[name] {
			continue
		}
		// What is no GPU of ours is looked for again each time.
		if _, err := s.d.Allocations.Break(ctx, actor, name, incidentReason+i.ID, cmp.Or(i.Explanation, i.RootCause.Fault), i.Explanations); err != nil {
			return err
		}
	}
	return nil
}
