package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/allocator"
	"auspex/allocator/flow"
	"auspex/allocator/steps"
	"auspex/control"
	"auspex/control/messages"
	"auspex/control/tinkerbell"
	"auspex/internal/bus"
	"auspex/internal/reasons"
	"auspex/internal/run"
	"auspex/internal/store/allocations"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/records"
	"auspex/internal/store/workflows"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// readWithin is how far back a part counts as one that somebody reads.
const readWithin = 15 * time.Minute

// allocate carries allocations from state to state and runs their workflows.
func (s *stack) allocate() []run.Component {
	if !s.cfg.has(RoleAllocate) {
		return nil
	}
	return []run.Component{s.lasting("allocator", func(reg prometheus.Registerer) (run.Component, error) {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("allocator: %w", err)
		}
		asks := s.askControl()
		if asks.Mode, err = control.Modes(s.cfg.Control.Config, &groups{inv: s.inv, db: s.db}); err != nil {
			return nil, err
		}
		drivers, err := steps.Of(asks, s.readings(), s.inventories())
		if err != nil {
			return nil, err
		}
		cfg := s.cfg.Allocator
		given, flows := allocations.New(s.db), workflows.New(s.db)
		runner := flow.New(flow.Config{StepTime: cfg.StepTime, Poll: cfg.Poll, Parallel: cfg.Parallel, Hold: 30 * time.Second}, flow.Deps{
			Store: flows, Drivers: drivers, Holder: fmt.Sprintf("%s/%d", host, os.Getpid()), Log: s.log, Metrics: reg,
			GPUs: func(ctx context.Context, w *schemas.Workflow) ([]string, error) {
				if w.AllocationID != "" {
					return given.GPUs(ctx, w.AllocationID, w.ServerID)
				}
				return s.partsOf(w.Server, schemas.KindGPU), nil
			},
		})
		steward := allocator.NewSteward(cfg, allocator.Deps{
			Allocations: given, Estate: estate.New(s.db), Workflows: flows, Log: s.log, Metrics: reg, Wake: runner.Wake, Blamed: s.blamed,
			Put: func(ctx context.Context, w schemas.Workload) error { return s.inv.PutWorkloads(ctx, w) }, Post: s.post, Installs: s.toInstall, Latest: s.latest, BIOS: s.keptBIOS,
		})
		s.steward.Store(steward)
		return run.Func("allocator", func(ctx context.Context, ready func()) error {
			return run.Group(ctx, s.log, grace, runner, run.Func("steward", func(ctx context.Context, up func()) error {
				return steward.Run(ctx, func() { up(); ready() })
			}))
		}), nil
	})}
}

// post publishes an event of a server.
func (s *stack) post(ctx context.Context, ev schemas.Event) error {
	batch := auspexv1.Batch{Device: ev.Resource, Collector: ev.Source, Observed: ev.Observed.UnixNano(), Events: []*auspexv1.Event{ev.Wire()}}
	value, err := batch.MarshalVT()
	if err != nil {
		return fmt.Errorf("encode event %s: %w", ev.ID, err)
	}
	return s.bus.Publish(ctx, bus.Message{Topic: schemas.TopicEvents, Key: ev.Resource, Value: value})
}

// allocating gives servers and GPUs, to the API of this process.
func (s *stack) allocating() *allocator.Service {
	var pinned func(ctx context.Context, server string) (string, int64, error)
	if s.tinkered() { // whether control acts is waited for
		pinned = s.pinned
	}
	return allocator.NewService(s.cfg.Allocator, allocator.ServiceDeps{
		Allocations: allocations.New(s.db), Estate: estate.New(s.db), Workflows: workflows.New(s.db), Records: s.records, Inventory: s.inv.Snapshot,
		Running: func(server string) []string { return s.runningOn(server) }, Installs: s.installing, Pinned: pinned,
		Wake: func() {
			if w := s.steward.Load(); w != nil {
				w.Wake()
			}
		},
	})
}

// tinkered reports whether control can install servers where it acts.
func (s *stack) tinkered() bool {
	c, ok := s.cfg.Control.Drivers[tinkerbell.Name].(*tinkerbell.Config)
	return ok && c.Configured()
}

// installing tells whether control can install servers and acts: of the server of an id, or, where that is "", of one that no
// rule for pools is about. What a rule holds back in its pool, control refuses itself, and says why.
func (s *stack) installing(ctx context.Context, server string) (bool, error) {
	if !s.tinkered() {
		return false, nil
	}
	mode, err := control.Modes(s.cfg.Control.Config, &groups{inv: s.inv, db: s.db})
	if err != nil {
		return false, err
	}
	if server != "" {
		v, err := estate.New(s.db).Server(ctx, server)
		if err != nil {
			return false, err
		}
		server = v.Name
	}
	is, err := mode(ctx, server, steps.Install)
	return is == schemas.ModeApprove || is == schemas.ModeEnforce, err
}

// toInstall is what is pinned to a server where control acts.
func (s *stack) toInstall(ctx context.Context, server string) (name string, version int64, err error) {
	if acts, err := s.installing(ctx, server); err != nil || !acts {
		return "", 0, err
	}
	return s.pinned(ctx, server)
}

// pinned is the template that a server, by its id, is installed with, and its version of now where none is pinned.
func (s *stack) pinned(ctx context.Context, server string) (name string, version int64, err error) {
	store := provisioning.New(s.db)
	said, err := store.Overrides(ctx, []string{server})
	if o := said[server]; err != nil || o.Template == "" || o.TemplateVersion != 0 {
		return o.Template, o.TemplateVersion, err
	}
	name = said[server].Template
	t, err := store.Template(ctx, name)
	return name, t.Version, err
}

// latest is the version of a template that is the latest now, 0 where there is none: control says so.
func (s *stack) latest(ctx context.Context, template string) (int64, error) {
	t, err := provisioning.New(s.db).Template(ctx, template)
	if errors.Is(err, entity.ErrNone) {
		return 0, nil
	}
	return t.Version, err
}

func (s *stack) partsOf(server, kind string) []string {
	var out []string
	for _, r := range s.below(server) {
		if r.Kind == kind {
			out = append(out, r.ID)
		}
	}
	return out
}

// below is what a server has, at any depth.
func (s *stack) below(id string) []schemas.Resource {
	names := s.inv.Snapshot()
	var out []schemas.Resource
	for _, part := range names.Children(id) {
		if r, ok := names.Resource(part); ok {
			out = append(append(out, r), s.below(part)...)
		}
	}
	return out
}

func (s *stack) askControl() steps.Control {
	return steps.Control{
		Now: time.Now, Action: s.records.Action, Works: estate.New(s.db).InWork,
		Ask: func(ctx context.Context, in schemas.Intent) error {
			text, err := json.Marshal(in)
			if err != nil {
				return err
			}
			return s.bus.Publish(ctx, bus.Message{Topic: schemas.TopicIntents, Key: in.Server, Value: text})
		},
	}
}

func (s *stack) readings() steps.Readings {
	r := steps.Readings{Parts: s.below, Running: s.runningOn, Ill: s.ill, Works: estate.New(s.db).InWork}
	if s.hot != nil {
		r.Newest = func(ctx context.Context, server string) (map[string]time.Time, error) {
			return s.hot.Newest(ctx, server, time.Now().Add(-readWithin), nil)
		}
	}
	return r
}

// saying reads what the stages say from its text.
func saying() *reasons.Reader {
	said := make(map[string]string)
	for _, id := range messages.All() {
		said[id] = messages.Template(id)
	}
	return reasons.NewReader(slices.Concat(steps.Control{}.Kinds(), steps.Readings{}.Kinds(), steps.Inventories{}.Kinds()), said)
}

// runningOn lists what computes on resources, but for allocations.
func (s *stack) runningOn(resources ...string) []string {
	var out []string
	names := s.inv.Snapshot()
	for _, r := range resources {
		for _, w := range names.WorkloadsAt(r, time.Time{}) {
			if !strings.HasPrefix(w.ID, allocator.WorkloadID("")) && !slices.Contains(out, w.ID) {
				out = append(out, w.ID)
			}
		}
	}
	return out
}

// openIncidents are those whose cause is hardware.
func (s *stack) openIncidents(ctx context.Context, each func(*schemas.Incident)) error {
	for f := (records.Filter{Status: records.StatusOpen, Limit: 1000}); ; {
		page, next, err := s.records.Incidents(ctx, f)
		if err != nil {
			return err
		}
		for i := range page {
			if !strings.HasPrefix(page[i].RootCause.Fault, "workload.") {
				each(&page[i])
			}
		}
		if f.After = next; next == "" {
			return nil
		}
	}
}

// blamed are the open incidents that are no mere warning, by the part that they name.
func (s *stack) blamed(ctx context.Context) (map[string]schemas.Incident, error) {
	out := make(map[string]schemas.Incident)
	err := s.openIncidents(ctx, func(i *schemas.Incident) {
		if i.Severity != schemas.SeverityWarning && i.Severity != schemas.SeverityInfo {
			out[i.RootCause.Resource] = *i
		}
	})
	return out, err
}

// ill says what is wrong with a server and its parts.
func (s *stack) ill(ctx context.Context, server string) (out []string, err error) {
	names := s.inv.Snapshot()
	err = s.openIncidents(ctx, func(i *schemas.Incident) {
		if i.Severity != schemas.SeverityInfo && names.Server(i.RootCause.Resource) == server {
			out = append(out, reasons.Text(reasons.Blamed, reasons.Args{"incident": i.ID, "fault": i.RootCause.Fault, "part": i.RootCause.Resource}))
		}
	})
	return out, err
}
