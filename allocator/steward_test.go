package allocator_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/allocator"
	"auspex/allocator/flow"
	"auspex/allocator/steps"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/store/workflows"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// site is an allocator at work on servers with two GPUs each, whose steps the test decides.
type site struct {
	t      testing.TB
	db     *sqldb.DB
	given  *allocations.Store
	estate *estate.Store
	flows  *workflows.Store
	user   schemas.User
	ids    map[string]string // of servers and GPUs, by name

	mu      sync.Mutex
	outcome map[string]string // by step: "" is done, "wait", or why it fails
	did     []string          // steps that were begun, as type/step
	blamed  map[string]schemas.Incident
	works   map[string]schemas.Workload
	deaf    bool // the bus takes nothing
	refused int
	posted  []schemas.Event
	config  allocator.Config
	stops   []string          // steps that were ended, as attempt step
	goesOn  bool              // what was begun
	holds   map[string]string // by step: what it waits for before it begins
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func newSite(t testing.TB, servers int) *site {
	t.Helper()
	db := sqltest.Open(t)
	s := &site{
		t: t, db: db, given: allocations.New(db), estate: estate.New(db), flows: workflows.New(db), ids: map[string]string{}, outcome: map[string]string{},
		blamed: map[string]schemas.Incident{}, works: map[string]schemas.Workload{}, config: allocator.DefaultConfig(),
	}
	s.config.Deploy, s.config.Cleanup, s.config.Poll = []string{"ready"}, []string{"scrub"}, 5*time.Millisecond
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(s.estate)
	s.must(inv.Open(t.Context()))
	top := schemas.Topology{}
	for n := range servers {
		name := fmt.Sprintf("s%d", n)
		top.Resources = append(top.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer})
		for g := range 2 {
			top.Resources = append(top.Resources, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name})
		}
	}
	_, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()})
	s.must(err)
	for _, r := range top.Resources {
		s.ids[r.ID] = inv.Snapshot().ID(r.ID)
	}
	s.user, err = people.New(db).CreateUser(t.Context(), "root", schemas.User{Username: "li", Email: "li@example.com", Role: "engineer", Status: "active"})
	s.must(err)
	return s
}

// Kinds implements steps.Driver.
func (s *site) Kinds() []string {
	return []string{"ready", "scrub", steps.Drain, steps.Install, steps.Uncordon, steps.Wipe, steps.SetBIOS, steps.ResetNetwork}
}

// Do implements steps.Driver.
func (s *site) Do(_ context.Context, j steps.Job) (steps.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if step := j.Workflow.Type + "/" + j.Workflow.Server + "/" + strings.Join(j.GPUs, "+"); !slices.Contains(s.did, step) {
		s.did = append(s.did, step)
	}
	switch why := s.outcome[j.Step.Name]; why {
	case "":
		return steps.Progress{Done: true, Message: "done"}, nil
	case "wait":
		return steps.Progress{Message: "waits"}, nil
	case "lost":
		return steps.Progress{}, errors.New("no answer")
	default:
		return steps.Progress{Failed: true, Message: why}, nil
	}
}

func (s *site) set(step, outcome string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome[step] = outcome
}

// run starts a process, as a kill would end it with stop.
func (s *site) run(holder string) (stop func()) {
	s.t.Helper()
	drivers, err := steps.Of(s)
	s.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	log := slog.New(slog.DiscardHandler)
	runner := flow.New(flow.Config{StepTime: time.Minute, Poll: s.config.Poll, Parallel: s.config.Parallel, Hold: 300 * time.Millisecond}, flow.Deps{
		Store: s.flows, Drivers: drivers, Holder: holder, Log: log, Metrics: prometheus.NewRegistry(),
		GPUs: func(ctx context.Context, w *schemas.Workflow) ([]string, error) {
			return s.given.GPUs(ctx, w.AllocationID, w.ServerID)
		},
	})
	steward := allocator.NewSteward(s.config, allocator.Deps{
		Allocations: s.given, Estate: s.estate, Workflows: s.flows, Log: log, Metrics: prometheus.NewRegistry(), Wake: runner.Wake,
		Blamed: func(context.Context) (map[string]schemas.Incident, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return maps.Clone(s.blamed), nil
		},
		Put: func(_ context.Context, w schemas.Workload) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.works[w.ID] = w
			return nil
		},
		Installs: func(ctx context.Context, server string) (string, int64, error) {
			said, err := provisioning.New(s.db).Overrides(ctx, []string{server})
			o := said[server]
			return o.Template, o.TemplateVersion, err
		},
		BIOS: func(context.Context, string) (map[string]string, error) {
			return map[string]string{"SMT": "false"}, nil
		},
		Latest: func(ctx context.Context, template string) (int64, error) {
			t, err := provisioning.New(s.db).Template(ctx, template)
			if errors.Is(err, entity.ErrNone) {
				return 0, nil
			}
			return t.Version, err
		},
		Post: func(_ context.Context, ev schemas.Event) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.deaf {
				s.refused++
				return errors.New("the bus is full")
			}
			s.posted = append(s.posted, ev)
			return nil
		},
	})
	var wg sync.WaitGroup
	for _, c := range []interface {
		Run(context.Context, func()) error
	}{runner, steward} {
		wg.Go(func() { _ = c.Run(ctx, func() {}) })
	}
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	s.t.Cleanup(stop)
	return stop
}

func (s *site) take(d allocations.Draft) schemas.Allocation {
	s.t.Helper()
	d.User = s.user.ID
	a, err := s.given.Take(s.t.Context(), "li", d)
	s.must(err)
	return a
}

func (s *site) whole(servers ...string) allocations.Draft {
	d := allocations.Draft{Exclusive: true, Purpose: "train"}
	for _, name := range servers {
		d.Parts = append(d.Parts, allocations.Part{Server: s.ids[name]})
	}
	return d
}

// until waits for an allocation.
func (s *site) until(id string, what string, ok func(*schemas.Allocation) bool) schemas.Allocation {
	s.t.Helper()
	var a schemas.Allocation
	waittest.Until(s.t, func() (err error) {
		if a, err = s.given.Get(context.WithoutCancel(s.t.Context()), id); err == nil && !ok(&a) {
			err = fmt.Errorf("it is not %s: %+v", what, a)
		}
		return err
	})
	return a
}

func (s *site) becomes(id, status string) schemas.Allocation {
	s.t.Helper()
	return s.until(id, status, func(a *schemas.Allocation) bool { return a.Status == status })
}

func (s *site) returned(id string) schemas.Allocation {
	s.t.Helper()
	return s.until(id, "returned", func(a *schemas.Allocation) bool { return a.Returned })
}

func (s *site) server(name string) string {
	s.t.Helper()
	v, err := s.estate.Server(s.t.Context(), name)
	s.must(err)
	return v.Status
}

func (s *site) gpu(name string) schemas.GPU {
	s.t.Helper()
	g, err := s.estate.GPU(s.t.Context(), name)
	s.must(err)
	return g
}

func (s *site) saw(notice string) {
	s.t.Helper()
	waittest.Until(s.t, func() error {
		told, err := sqldb.Rows(s.t.Context(), s.db, func(rows *sql.Rows) (text string, err error) {
			var kind string
			var data []byte
			if err := rows.Scan(&kind, &data); err != nil {
				return "", err
			}
			var n struct{ User, Detail string }
			err = json.Unmarshal(data, &n)
			return strings.TrimSpace(kind + " " + n.User + " " + n.Detail), err
		}, `SELECT type, data FROM notices`)
		if err == nil && !slices.Contains(told, notice) {
			err = fmt.Errorf("told: %q, want %q", told, notice)
		}
		return err
	})
}

func TestAnAllocationIsMadeReadyAndCleaned(t *testing.T) {
	s := newSite(t, 2)
	s.run("p1")
	a := s.becomes(s.take(s.whole("s0", "s1")).ID, schemas.AllocationActive)
	s.saw("allocation.active li")
	if g := s.gpu("s1/gpu1"); g.Status != schemas.GPUInUse {
		t.Errorf("%+v", g)
	}
	waittest.Until(t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w := s.works[allocator.WorkloadID(a.ID)]; !slices.Equal(w.Resources, []string{"s0", "s1"}) || w.Attrs["owner"] != "li" || !w.End.IsZero() {
			return fmt.Errorf("workload: %+v", w)
		}
		return nil
	})
	s.set("scrub", "wait")
	if _, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "gpu1 was slow"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		if got := s.server("s0"); got != schemas.ServerProvisioning {
			return fmt.Errorf("s0 is %s", got)
		}
		return nil
	})
	if b, err := s.given.Get(t.Context(), a.ID); err != nil || b.Returned || b.Report != "gpu1 was slow" {
		t.Errorf("%+v %v", b, err)
	}
	s.set("scrub", "")
	s.returned(a.ID)
	if s.server("s0") != schemas.ServerReady || s.gpu("s0/gpu0").Status != schemas.GPUAvailable {
		t.Errorf("s0 is %s", s.server("s0"))
	}
	if _, err := audit.Verify(t.Context(), s.db); err != nil {
		t.Error(err)
	}
}

// TestKilledAtAnyMoment stops the process again and again, and another goes on: each allocation
// becomes active once and everything comes back.
func TestKilledAtAnyMoment(t *testing.T) {
	s := newSite(t, 4)
	var all []string
	for n := range 4 {
		all = append(all, s.take(s.whole(fmt.Sprintf("s%d", n))).ID)
	}
	stop := s.run("p0")
	for n := range 12 {
		<-time.After(time.Duration(n*3) * time.Millisecond) // anywhere
		stop()
		stop = s.run(fmt.Sprintf("p%d", n+1))
		if n == 5 {
			for _, id := range all {
				s.becomes(id, schemas.AllocationActive)
				_, err := s.given.End(t.Context(), "li", id, 0, schemas.AllocationCompleted, "", "")
				s.must(err)
			}
		}
	}
	for _, id := range all {
		s.returned(id)
		made, err := s.flows.Of(t.Context(), id)
		if err != nil || len(made) != 2 {
			t.Errorf("%d workflows: %+v %v", len(made), made, err)
		}
	}
	for n := range 4 {
		s.take(s.whole(fmt.Sprintf("s%d", n)))
	}
}

func TestADeployThatFails(t *testing.T) {
	s := newSite(t, 2)
	s.set("ready", "the fan is dead")
	s.run("p1")
	a := s.becomes(s.take(s.whole("s0")).ID, schemas.AllocationFailed)
	if a.Reason != "s0: ready: the fan is dead" {
		t.Errorf("%+v", a)
	}
	s.saw("allocation.failed li s0: ready: the fan is dead")
	s.returned(a.ID) // it is cleaned, and a person is told why it failed
}

func TestAStepWithoutADriver(t *testing.T) {
	s := newSite(t, 1)
	s.config.Deploy = []string{"reinstall"}
	s.run("p1")
	if a := s.becomes(s.take(s.whole("s0")).ID, schemas.AllocationFailed); a.Reason != "s0: reinstall: no driver does reinstall" {
		t.Errorf("%+v", a)
	}
}

// Stop implements steps.Stopper.
func (s *site) Stop(_ context.Context, j steps.Job) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, fmt.Sprint(j.Workflow.Attempt, " ", j.Step.Name))
	return !s.goesOn, nil
}

// flow waits for a workflow.
func (s *site) flow(id string, ok func(*schemas.Workflow) bool) {
	s.t.Helper()
	waittest.Until(s.t, func() error {
		w, err := s.flows.Get(s.t.Context(), id)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil && !ok(&w) {
			err = fmt.Errorf("it is %+v, after %v", w, s.stops)
		}
		return err
	})
}

// What a workflow had begun is ended when it is cancelled, and it is not begun anew before nothing of that goes on.
func TestWhatACancelledWorkflowHadBegunIsEnded(t *testing.T) {
	s := newSite(t, 1)
	s.goesOn = true
	s.set("ready", "wait")
	s.run("p1")
	w, err := s.flows.Create(t.Context(), "li", schemas.Workflow{
		ServerID: s.ids["s0"], Type: schemas.WorkflowValidate, Exclusive: true, Steps: []schemas.WorkflowStep{{Name: steps.Install}, {Name: "ready"}, {Name: "scrub"}},
	})
	s.must(err)
	s.flow(w.ID, func(w *schemas.Workflow) bool { return w.Steps[1].Status == schemas.StepRunning })
	_, err = s.flows.Move(t.Context(), "li", "", w.ID, schemas.WorkflowFailed, workflows.Cancelled, nil)
	s.must(err)
	s.flow(w.ID, func(*schemas.Workflow) bool { return len(s.stops) > 4 })
	if got := s.server("s0"); got != schemas.ServerError {
		t.Errorf("s0 is %s", got)
	}
	_, err = s.flows.Move(t.Context(), "li", "", w.ID, schemas.WorkflowPending, "", nil)
	s.must(err)
	s.set("ready", "")
	s.mu.Lock()
	s.stops = nil
	s.mu.Unlock()
	s.flow(w.ID, func(w *schemas.Workflow) bool {
		if w.Status != schemas.WorkflowPending {
			t.Fatalf("it began while the one before went on: %+v", w)
		}
		return len(s.stops) > 4
	})
	s.mu.Lock()
	stops := slices.Clone(s.stops)
	s.mu.Unlock()
	for _, stop := range stops {
		if stop != "1 install" && stop != "1 ready" && stop != "1 scrub" {
			t.Errorf("%s was ended", stop)
		}
	}
	s.mu.Lock()
	s.goesOn = false
	s.mu.Unlock()
	s.flow(w.ID, func(w *schemas.Workflow) bool { return w.Status == schemas.WorkflowCompleted && w.Attempt == 2 })
}

// template stores a template with two versions.
func (s *site) template(name string) {
	s.t.Helper()
	store := provisioning.New(s.db)
	made, err := store.Create(s.t.Context(), "root", name, schemas.TemplateBody{OSFamily: "other", Architectures: []string{schemas.ArchX86}, Text: "1"})
	s.must(err)
	_, err = store.Update(s.t.Context(), "root", name, made.Revision, func(t *schemas.Template) { t.Text = "2" })
	s.must(err)
}

// pin has a server installed with a version of a template.
func (s *site) pin(server, template string, version int64) {
	s.t.Helper()
	_, err := provisioning.New(s.db).Override(s.t.Context(), "root", s.ids[server], 0, schemas.HardwareOverrides{Template: template, TemplateVersion: version})
	s.must(err)
}

// installs are the parameters of the steps that install, of workflows of an allocation.
func (s *site) installs(id, kind string) (out []map[string]string) {
	s.t.Helper()
	made, err := s.flows.Of(s.t.Context(), id)
	s.must(err)
	for _, w := range made {
		for _, st := range w.Steps {
			if w.Type == kind && st.Name == steps.Install {
				out = append(out, st.With)
			}
		}
	}
	return out
}

// A server is installed with what its allocation names, or with what is pinned to it; a try after a failure installs the same, though
// something else is pinned by then.
func TestADeploymentInstallsWhatIsPinned(t *testing.T) {
	s := newSite(t, 4)
	s.template("ubuntu")
	s.config.Deploy, s.config.Cleanup, s.config.Install = []string{"install", "ready"}, []string{"install", "scrub"}, allocator.InstallPinned
	s.pin("s0", "ubuntu", 1)
	s.run("p1")

	a := s.becomes(s.take(s.whole("s1")).ID, schemas.AllocationActive)
	if got := s.installs(a.ID, schemas.WorkflowDeploy); got != nil {
		t.Errorf("nothing is pinned to it: %v", got)
	}

	s.set("ready", "the fan is dead")
	a = s.becomes(s.take(s.whole("s0")).ID, schemas.AllocationFailed)
	s.returned(a.ID)
	s.pin("s0", "ubuntu", 2)
	s.set("ready", "")
	_, err := s.given.Again(t.Context(), "li", a.ID, s.whole("s0").Parts)
	s.must(err)
	s.becomes(a.ID, schemas.AllocationActive)
	old := map[string]string{"template": "ubuntu", "version": "1"}
	if d := cmp.Diff([]map[string]string{old, old}, s.installs(a.ID, schemas.WorkflowDeploy)); d != "" {
		t.Error(d)
	}
	if got := s.installs(a.ID, schemas.WorkflowCleanup); len(got) != 1 || got[0]["version"] != "1" {
		t.Errorf("it was cleaned with %v", got)
	}

	d := s.whole("s2")
	d.Install = schemas.Install{Template: "ubuntu", TemplateVersion: 1, Parameters: map[string]any{"n": 3, "name": "x"}}
	a = s.becomes(s.take(d).ID, schemas.AllocationActive)
	if a.Template != "ubuntu" || a.TemplateVersion != 1 || len(a.Parameters) != 2 {
		t.Errorf("%+v", a)
	}
	named := map[string]string{"template": "ubuntu", "version": "1", "parameters.n": "3", "parameters.name": "x"}
	if d := cmp.Diff([]map[string]string{named}, s.installs(a.ID, schemas.WorkflowDeploy)); d != "" {
		t.Error(d)
	}
	if err := provisioning.New(s.db).Delete(t.Context(), "root", "ubuntu", 0); !errors.Is(err, entity.ErrInUse) {
		t.Errorf("a template that an allocation is pinned to was removed: %v", err)
	}
	d.Install.TemplateVersion = 7
	d.User = s.user.ID
	if _, err := s.given.Take(t.Context(), "li", d); !errors.Is(err, entity.ErrNone) {
		t.Errorf("a version that there is none of: %v", err)
	}
	// Who has a part of a server has no say in its system.
	s.pin("s3", "ubuntu", 2)
	a = s.becomes(s.take(allocations.Draft{Purpose: "x", Parts: []allocations.Part{{Server: s.ids["s3"], GPUs: []string{s.ids["s3/gpu0"]}}}}).ID, schemas.AllocationActive)
	if got := s.installs(a.ID, schemas.WorkflowDeploy); got != nil {
		t.Errorf("a GPU was given by installing its server: %v", got)
	}
}

// A template that is pinned to a server is no order to write over its disk: by default that takes an allocation that names one, and what
// was installed for it is installed anew after it.
func TestAServerIsInstalledForWhoAsksForIt(t *testing.T) {
	s := newSite(t, 3)
	s.template("ubuntu")
	s.config.Deploy, s.config.Cleanup = []string{"drain", "install", "ready"}, []string{"drain", "install", "reset_network", "scrub", "uncordon"}
	s.pin("s0", "ubuntu", 1)
	s.pin("s1", "ubuntu", 1)
	s.pin("s2", "ubuntu", 1)
	s.run("p1")
	// A server whose pin is taken away meanwhile is not installed anew, and given back to its scheduler all the same.
	for server, want := range map[string]string{
		"s0": "ready, scrub", "s1": "drain, install, ready, drain, install, reset_network, scrub, uncordon", "s2": "drain, install, ready, drain, reset_network, scrub, uncordon",
	} {
		d := s.whole(server)
		if server != "s0" {
			d.Install = schemas.Install{Template: "ubuntu", TemplateVersion: 1}
		}
		a := s.becomes(s.take(d).ID, schemas.AllocationActive)
		if server == "s2" {
			s.pin(server, "", 0)
		}
		_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "")
		s.must(err)
		s.returned(a.ID)
		made, err := s.flows.Of(t.Context(), a.ID)
		s.must(err)
		var done []string
		for _, w := range made {
			for _, st := range w.Steps {
				done = append(done, st.Name)
				if around := st.Name == steps.Drain || st.Name == steps.Uncordon; around && st.With["optional"] != "true" {
					t.Errorf("%s of %s: %v", st.Name, server, st.With)
				}
			}
		}
		if got := strings.Join(done, ", "); got != want {
			t.Errorf("%s: %s; want %s", server, got, want)
		}
	}
}

// A server comes back wiped, before it is installed anew, where the site names a template for that: after an allocation for which it
// was installed, or after each; and one that is not proven to be is nobody's.
func TestAServerIsWipedWhenItComesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		wipe      allocator.Wipe
		installed bool
		part      bool // of a server
		want      []string
		with      map[string]string
	}{
		"nobody says so":         {allocator.Wipe{Of: allocator.WipeAll}, true, false, []string{"install", "scrub"}, nil},
		"after an installation":  {allocator.Wipe{Template: "wipe", Of: allocator.WipeInstalled}, true, false, []string{"wipe", "install", "scrub"}, map[string]string{"template": "wipe", "version": "2"}},
		"after none":             {allocator.Wipe{Template: "wipe", Of: allocator.WipeInstalled}, false, false, []string{"scrub"}, nil},
		"after each":             {allocator.Wipe{Template: "wipe", Version: 1, Of: allocator.WipeAll, Parameters: map[string]string{"minutes": "9"}}, false, false, []string{"wipe", "install", "scrub"}, map[string]string{"template": "wipe", "version": "1", "parameters.minutes": "9"}},
		"of a server of others":  {allocator.Wipe{Template: "wipe", Of: allocator.WipeAll}, false, true, []string{"scrub"}, nil},
		"with what there is not": {allocator.Wipe{Template: "wpie", Of: allocator.WipeAll}, false, false, []string{"wipe", "install", "scrub"}, map[string]string{"template": "wpie"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1)
			s.template("ubuntu")
			s.template("wipe")
			s.pin("s0", "ubuntu", 1)
			s.config.Deploy, s.config.Cleanup, s.config.Wipe = []string{"install", "ready"}, []string{"wipe", "install", "scrub"}, tc.wipe
			s.must(s.config.Validate())
			s.run("p1")
			d := s.whole("s0")
			if tc.installed {
				d.Install = schemas.Install{Template: "ubuntu", TemplateVersion: 1}
			}
			if tc.part {
				d = allocations.Draft{Purpose: "x", Parts: []allocations.Part{{Server: s.ids["s0"], GPUs: []string{s.ids["s0/gpu0"]}}}}
			}
			if !tc.part {
				s.set("wipe", "one drive holds data")
			}
			a := s.becomes(s.take(d).ID, schemas.AllocationActive)
			_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "")
			s.must(err)
			wiped := slices.Contains(tc.want, "wipe")
			if wiped {
				waittest.Until(t, func() error {
					made, err := s.flows.Of(t.Context(), a.ID)
					if err == nil && !slices.ContainsFunc(made, func(w schemas.Workflow) bool {
						return w.Type == schemas.WorkflowCleanup && w.Status == schemas.WorkflowFailed
					}) {
						err = fmt.Errorf("no cleaning has failed: %+v", made)
					}
					return err
				})
				if is, err := s.given.Get(t.Context(), a.ID); err != nil || is.Returned || s.server("s0") != schemas.ServerError {
					t.Errorf("what holds data is given back: %+v %v, %s", is, err, s.server("s0"))
				}
				s.set("wipe", "")
				_, err := allocator.NewService(s.config, allocator.ServiceDeps{Allocations: s.given, Estate: s.estate, Workflows: s.flows, Wake: func() {}}).
					Rerun(t.Context(), "li", schemas.WorkflowCleanup, a.ID, s.ids["s0"])
				s.must(err)
			}
			s.returned(a.ID)
			made, err := s.flows.Of(t.Context(), a.ID)
			s.must(err)
			var got []string
			for _, w := range made {
				for _, st := range w.Steps {
					if w.Type == schemas.WorkflowCleanup {
						got = append(got, st.Name)
						if d := cmp.Diff(tc.with, st.With); st.Name == "wipe" && d != "" {
							t.Error(d)
						}
					}
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A server that is wiped and to which no template is pinned has no system: its cleaning ends there, and it is ready for whom it is
// installed, and for nobody else.
func TestAWipedServerWithoutASystemWaitsForWhoInstallsIt(t *testing.T) {
	s := newSite(t, 1)
	s.template("ubuntu")
	s.template("wipe")
	s.config.Deploy, s.config.Cleanup = []string{"install", "ready"}, []string{"drain", "wipe", "install", "reset_network", "telemetry", "health", "uncordon"}
	s.config.Wipe = allocator.Wipe{Template: "wipe", Of: allocator.WipeAll}
	s.must(s.config.Validate())
	s.run("p1")
	given := func(d allocations.Draft) schemas.Allocation {
		a := s.becomes(s.take(d).ID, schemas.AllocationActive)
		_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "")
		s.must(err)
		s.returned(a.ID)
		return a
	}
	again := s.whole("s0")
	again.Install = schemas.Install{Template: "ubuntu", TemplateVersion: 1}
	for _, d := range []allocations.Draft{s.whole("s0"), again} {
		a := given(d)
		made, err := s.flows.Of(t.Context(), a.ID)
		s.must(err)
		var did []string
		for _, w := range made {
			for _, st := range w.Steps {
				if w.Type == schemas.WorkflowCleanup {
					did = append(did, st.Name)
				}
			}
		}
		v, err := s.estate.Server(t.Context(), "s0")
		s.must(err)
		if !slices.Equal(did, []string{"drain", "wipe", "reset_network"}) || v.Status != schemas.ServerReady || v.Reason != allocations.WhyBare {
			t.Errorf("%v, and it is %s: %s", did, v.Status, v.Reason)
		}
		var refused *allocations.ConflictError
		other := s.whole("s0")
		other.User = s.user.ID
		if _, err := s.given.Take(t.Context(), "li", other); !errors.As(err, &refused) || refused.Why != allocations.WhyBare {
			t.Errorf("it is given without a system: %v", err)
		}
	}
}

func TestAConfigurationThatWipesNothingIsNamed(t *testing.T) {
	for want, change := range map[string]func(c *allocator.Config){
		`wipe.of is "some"`:        func(c *allocator.Config) { c.Wipe.Of = "some" },
		"wipe.version is -1":       func(c *allocator.Config) { c.Wipe.Template, c.Wipe.Version = "wipe", -1 },
		"wipe.template is missing": func(c *allocator.Config) { c.Wipe.Parameters = map[string]string{"a": "b"} },
		"cleanup has no step wipe": func(c *allocator.Config) { c.Wipe.Template, c.Cleanup = "wipe", []string{"idle"} },
	} {
		c := allocator.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestACleanupThatFailsKeepsTheServer(t *testing.T) {
	s := newSite(t, 1)
	s.set("scrub", "the disk does not answer")
	s.run("p1")
	a := s.becomes(s.take(s.whole("s0")).ID, schemas.AllocationActive)
	_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "")
	s.must(err)
	waittest.Until(t, func() error {
		if got := s.server("s0"); got != schemas.ServerError {
			return fmt.Errorf("s0 is %s", got)
		}
		return nil
	})
	var conflict *allocations.ConflictError
	d := s.whole("s0")
	d.User = s.user.ID
	if _, err := s.given.Take(t.Context(), "li", d); !errors.As(err, &conflict) {
		t.Errorf("%v", err)
	}
	// Once it is well, the same workflow is done again.
	s.set("scrub", "")
	made, err := s.flows.Of(t.Context(), a.ID)
	s.must(err)
	last := made[len(made)-1]
	_, err = s.flows.Move(t.Context(), "root", "", last.ID, schemas.WorkflowPending, "", nil)
	s.must(err)
	s.returned(a.ID)
}

// TestWhatAUserReportsIsEvidence: it is on the bus once for each server, before that is cleaned, whatever the bus does and whoever is killed.
func TestWhatAUserReportsIsEvidence(t *testing.T) {
	s := newSite(t, 2)
	s.deaf = true
	stop := s.run("one")
	a := s.take(s.whole("s0", "s1"))
	s.becomes(a.ID, schemas.AllocationActive)
	_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "two of them throttle")
	s.must(err)
	waittest.Until(t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.refused < 3 {
			return fmt.Errorf("%d asked", s.refused)
		}
		return nil
	})
	stop()
	if fs, err := s.flows.Of(t.Context(), a.ID); err != nil || slices.ContainsFunc(fs, func(w schemas.Workflow) bool { return w.Type == schemas.WorkflowCleanup }) {
		t.Errorf("cleaned before it is told: %+v, %v", fs, err)
	}
	s.mu.Lock()
	s.deaf = false
	s.mu.Unlock()
	s.run("two")
	s.returned(a.ID)
	told := map[string]string{}
	for _, ev := range s.posted {
		told[ev.ID] = ev.Resource
		if !ev.External() || ev.Message != "two of them throttle" || ev.Attrs[schemas.AttrPostedBy] != "li" || ev.Type != schemas.EventTenantReport {
			t.Errorf("%+v", ev)
		}
	}
	if got := slices.Sorted(maps.Values(told)); !slices.Equal(got, []string{"s0", "s1"}) || len(s.posted) != 2 {
		t.Errorf("%+v", s.posted)
	}
}

func TestWhatIsCancelledWhileItIsMadeReady(t *testing.T) {
	s := newSite(t, 1)
	s.set("ready", "wait")
	s.run("p1")
	a := s.take(s.whole("s0"))
	waittest.Until(t, func() error {
		if got := s.server("s0"); got != schemas.ServerProvisioning {
			return fmt.Errorf("s0 is %s", got)
		}
		return nil
	})
	_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationFailed, allocations.Cancelled, "")
	s.must(err)
	s.returned(a.ID)
	if s.server("s0") != schemas.ServerReady {
		t.Errorf("s0 is %s", s.server("s0"))
	}
}

func TestGPUsOfOneServerAreMadeReadySideBySide(t *testing.T) {
	s := newSite(t, 1)
	s.run("p1")
	part := func(gpu string) allocations.Draft {
		return allocations.Draft{Parts: []allocations.Part{{Server: s.ids["s0"], GPUs: []string{s.ids["s0/"+gpu]}}}}
	}
	a, b := s.take(part("gpu0")), s.take(part("gpu1"))
	s.becomes(a.ID, schemas.AllocationActive)
	s.becomes(b.ID, schemas.AllocationActive)
	if s.server("s0") != schemas.ServerReady {
		t.Errorf("s0 is %s", s.server("s0"))
	}
	if s.mu.Lock(); !slices.Contains(s.did, "deploy/s0/s0/gpu1") {
		t.Errorf("%v", s.did)
	}
	s.mu.Unlock()
	_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "")
	s.must(err)
	s.returned(a.ID)
	if s.gpu("s0/gpu1").Status != schemas.GPUInUse {
		t.Errorf("%+v", s.gpu("s0/gpu1"))
	}
}

func TestAnAllocationEnds(t *testing.T) {
	s := newSite(t, 1)
	s.run("p1")
	d := s.whole("s0")
	d.End = time.Now().Add(2 * time.Second)
	a := s.take(d)
	a = s.becomes(a.ID, schemas.AllocationCompleted)
	if a.Reason != allocator.Expired {
		t.Errorf("%+v", a)
	}
	s.saw("allocation.ending li ends at " + a.EndTime.Format(time.RFC3339))
	s.saw("allocation.completed li expired")
	s.returned(a.ID)
}

func TestWhatIsBookedBegins(t *testing.T) {
	s := newSite(t, 1)
	now := s.whole("s0")
	now.End = time.Now().Add(150 * time.Millisecond)
	first := s.take(now)
	later := s.whole("s0")
	later.Start = now.End
	second := s.take(later)
	s.set("scrub", "wait")
	s.run("p1")
	s.becomes(first.ID, schemas.AllocationCompleted)
	s.until(second.ID, "waiting", func(a *schemas.Allocation) bool {
		return strings.HasPrefix(a.Reason, "waits: ")
	})
	s.set("scrub", "")
	s.becomes(second.ID, schemas.AllocationActive)
}

func TestAnIncidentOnAGPU(t *testing.T) {
	s := newSite(t, 1)
	s.run("p1")
	a := s.becomes(s.take(s.whole("s0")).ID, schemas.AllocationActive)
	gpu := func(status string) {
		t.Helper()
		waittest.Until(t, func() error {
			if g := s.gpu("s0/gpu1"); g.Status != status {
				return fmt.Errorf("%+v, want %s", g, status)
			}
			return nil
		})
	}
	s.mu.Lock()
	s.blamed["s0/gpu1"] = schemas.Incident{ID: "i1", Explanation: "gpu1 fell off the bus."}
	s.blamed["pdu"] = schemas.Incident{ID: "i2"}
	s.mu.Unlock()
	gpu(schemas.GPUError)
	s.saw("allocation.degraded li s0/gpu1: gpu1 fell off the bus.")
	if g := s.gpu("s0/gpu1"); g.Reason != "incident i1" {
		t.Errorf("%+v", g)
	}
	s.mu.Lock()
	clear(s.blamed)
	s.mu.Unlock()
	gpu(schemas.GPUInUse)
	if b, err := s.given.Get(t.Context(), a.ID); err != nil || b.Status != schemas.AllocationActive {
		t.Errorf("%+v %v", b, err)
	}
}
