package allocator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/allocator"
	"auspex/allocator/fit/messages"
	"auspex/allocator/steps"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/estate"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// service is a process with an API over the store of a site.
func (s *site) service(inv *cmdb.Inventory) *allocator.Service {
	return s.serviceWith(inv, func(*allocator.ServiceDeps) {})
}

func (s *site) serviceWith(inv *cmdb.Inventory, more func(*allocator.ServiceDeps)) *allocator.Service {
	d := allocator.ServiceDeps{Allocations: s.given, Estate: s.estate, Workflows: s.flows, Records: records.New(s.db), Inventory: inv.Snapshot}
	more(&d)
	return allocator.NewService(s.config, d)
}

// stocked is a site of racks with four servers of two GPUs each, and its inventory.
func stocked(t testing.TB, racks int) (*site, *cmdb.Inventory) {
	t.Helper()
	s := newSite(t, 0)
	inv := cmdb.New(cmdb.DefaultConfig(), s.db, nil, nil)
	inv.Follow(s.estate)
	s.must(inv.Open(t.Context()))
	top := schemas.Topology{}
	for r := range racks {
		rack := fmt.Sprintf("r%02d", r)
		top.Resources = append(top.Resources, schemas.Resource{ID: rack, Kind: schemas.KindRack})
		for n := range 4 {
			name := fmt.Sprintf("%s-s%d", rack, n)
			top.Resources = append(top.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer, Parent: rack, Attrs: schemas.AttrsOf(map[string]string{"model": "HGX"})})
			for g := range 2 {
				top.Resources = append(top.Resources, schemas.Resource{
					ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name, Attrs: schemas.AttrsOf(map[string]string{"model": "H100 80GB"}),
				})
			}
		}
	}
	_, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()})
	s.must(err)
	return s, inv
}

func (s *site) ask(w schemas.Wish) schemas.AllocationRequest {
	return schemas.AllocationRequest{User: s.user.ID, Wish: &w}
}

func TestWhatFitsIsGiven(t *testing.T) {
	s, inv := stocked(t, 2)
	v := s.service(inv)
	racks := func(a schemas.Allocation) []string {
		var out []string
		for _, name := range a.Servers {
			out = append(out, name[:3])
		}
		return slices.Compact(out)
	}
	c, err := v.Choose(t.Context(), s.ask(schemas.Wish{Servers: 3, Together: "rack"}))
	if err != nil || len(c.Servers) != 3 || len(c.Servers[0].GPUIDs) != 2 || len(c.Servers[0].Reasons) == 0 ||
		!strings.Contains(c.Servers[0].Detail, "no failure is predicted within the time; ") {
		t.Fatalf("%+v %v", c, err)
	}
	a, c, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{Servers: 3, Together: "rack", Model: "h100*", MinMemoryGB: 80}))
	if err != nil || len(racks(a)) != 1 || !a.Exclusive || len(a.GPUIDs) != 6 || len(c.Servers) != 3 {
		t.Fatalf("%+v %+v %v", a, c, err)
	}
	b, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{Servers: 3, Together: "rack"}))
	if err != nil || slices.Equal(racks(a), racks(b)) {
		t.Fatalf("%+v %v", b, err)
	}
	var none *schemas.NoFitError
	if _, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{Servers: 2, Together: "rack"})); !errors.As(err, &none) || len(none.Choice.Lost) == 0 ||
		len(none.Choice.Nearest) == 0 || !strings.HasPrefix(none.Choice.Detail, "the most that one rack has free is ") || none.Choice.Lost[0].Detail == "" {
		t.Errorf("%v %+v", err, none)
	}
	g, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{GPUs: 3}))
	if err != nil || g.Exclusive || len(g.GPUIDs) != 3 || len(g.Servers) != 2 {
		t.Errorf("%+v %v", g, err)
	}
	if _, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{Servers: 1})); !errors.As(err, &none) {
		t.Errorf("a server of which a GPU is taken: %v", err)
	}
	last, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{GPUs: 1}))
	if err != nil || len(last.GPUIDs) != 1 {
		t.Errorf("%+v %v", last, err)
	}
	if _, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{GPUs: 1})); !errors.As(err, &none) {
		t.Errorf("%v", err)
	}
}

// Whoever asks again because the answer was lost is told what they were given, also where nothing else fits any more.
func TestARequestWhoseAnswerWasLostIsGivenWhatItHas(t *testing.T) {
	s, inv := stocked(t, 1)
	v := s.service(inv)
	ctx := sqldb.WithRequest(t.Context(), "user li\x00once")
	wish := schemas.Wish{Servers: 4}
	a, was, err := v.Allocate(ctx, "li", s.ask(wish))
	s.must(err)
	again, is, err := v.Allocate(ctx, "li", s.ask(wish))
	if err != nil || again.ID != a.ID {
		t.Fatalf("%+v %v, want %s", again, err, a.ID)
	}
	names := func(c schemas.Choice) (out []string) {
		for i := range c.Servers {
			out = append(append(out, c.Servers[i].Server), c.Servers[i].GPUs...)
		}
		slices.Sort(out)
		return out
	}
	if d := cmp.Diff(names(was), names(is)); d != "" {
		t.Error(d)
	}
	if _, _, err := v.Allocate(t.Context(), "li", s.ask(wish)); !errors.As(err, new(*schemas.NoFitError)) {
		t.Errorf("there is room for another: %v", err)
	}
}

// TestWhatIsIllIsNotGiven: an incident, a prediction within the time and an open case, each as
// its stage writes it.
func TestWhatIsIllIsNotGiven(t *testing.T) {
	s, inv := stocked(t, 1)
	st := records.New(s.db)
	now := time.Now().UTC()
	s.must(st.PutIncident(t.Context(), schemas.Incident{
		ID: "i1", Opened: now, Updated: now, At: now, Severity: schemas.SeverityCritical, RootCause: schemas.Cause{Resource: "r00-s0/gpu0", Fault: "gpu.fallen_off_bus"},
		Affected: []string{"r00-s0"}, Revision: 1,
	}))
	soon, later := now.Add(72*time.Hour), now.Add(5*24*time.Hour)
	s.must(st.PutPrediction(t.Context(), schemas.Prediction{
		ID: "p1", Time: now, Resource: "r00-s1/fan1", Server: "r00-s1", Failure: "cooling.fan_failure", Probability: .9, HorizonSeconds: (7 * 24 * time.Hour).Seconds(),
		ETAP10: &now, ETAP50: &soon, ETAP90: &later, State: schemas.PredictionOpen,
	}))
	if _, err := s.db.ExecContext(t.Context(), `INSERT INTO control_cases (id, reason, subject, target, state, updated_ns, doc)
VALUES ('c','i','r00-s2','r00-s2','open',1,'{}')`); err != nil {
		t.Fatal(err)
	}
	v := s.service(inv)
	week := s.ask(schemas.Wish{Servers: 1})
	week.End = now.Add(7 * 24 * time.Hour)
	a, c, err := v.Allocate(t.Context(), "li", week)
	if err != nil || a.Servers[0] != "r00-s3" {
		t.Fatalf("%+v %v", a, err)
	}
	said := map[string]string{}
	for _, l := range c.Lost {
		for _, name := range l.Examples {
			said[name] = l.Reason.ID
		}
	}
	for name, reason := range map[string]string{"r00-s0": "fit.health", "r00-s1": "fit.risk", "r00-s2": "fit.case"} {
		if said[name] != reason {
			t.Errorf("%s was not chosen because of %q, want %q", name, said[name], reason)
		}
	}
	hour := s.ask(schemas.Wish{Servers: 1})
	hour.End = now.Add(time.Hour)
	if a, _, err := v.Allocate(t.Context(), "li", hour); err != nil || a.Servers[0] != "r00-s1" {
		t.Errorf("for an hour the fan will do: %+v %v", a, err)
	}
}

// TestManyAskAtOnce of two processes, while others end theirs: nobody is told that nothing fits
// while something does, and nothing is given twice.
// A rack whose servers have no system since they were wiped is offered to who names a template, and to nobody else.
func TestWhatHasNoSystemIsGivenToWhoNamesATemplate(t *testing.T) {
	s, inv := stocked(t, 1)
	s.template("ubuntu")
	s.config.Deploy = []string{steps.Install}
	for n := range 3 {
		s.must(s.db.InTx(t.Context(), func(tx *sql.Tx) error {
			v, err := estate.LockServer(t.Context(), tx, fmt.Sprintf("r00-s%d", n))
			for _, to := range []string{schemas.ServerProvisioning, schemas.ServerReady} {
				if err == nil {
					err = s.estate.MoveServer(t.Context(), tx, "auspex", &v, to, allocations.WhyBare)
				}
			}
			return err
		}))
	}
	svc := allocator.NewService(s.config, allocator.ServiceDeps{
		Allocations: s.given, Estate: s.estate, Workflows: s.flows, Records: records.New(s.db), Inventory: inv.Snapshot, Installs: func(context.Context, string) (bool, error) { return true, nil },
	})
	c, err := svc.Choose(t.Context(), s.ask(schemas.Wish{Servers: 1}))
	if err != nil || len(c.Servers) != 1 || c.Servers[0].Server != "r00-s3" || len(c.Lost) != 1 || c.Lost[0].Reason.ID != messages.Bare || c.Lost[0].Count != 3 {
		t.Errorf("%+v %v", c, err)
	}
	r := s.ask(schemas.Wish{Servers: 4})
	if _, err := svc.Choose(t.Context(), r); !errors.As(err, new(*schemas.NoFitError)) {
		t.Errorf("servers without a system: %v", err)
	}
	r.Install = schemas.Install{Template: "ubuntu", TemplateVersion: 1}
	a, _, err := svc.Allocate(t.Context(), "ann", r)
	if err != nil || len(a.Servers) != 4 || a.Template != "ubuntu" {
		t.Errorf("%+v %v", a, err)
	}
}

func TestManyAskAtOnce(t *testing.T) {
	const racks, callers = 8, 16 // 32 servers, for twice as many requests
	s, inv := stocked(t, racks)
	services := []*allocator.Service{s.service(inv), s.service(inv)}
	var given, none atomic.Int64
	var mu sync.Mutex
	owner := map[string]string{}
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			for range 4 {
				a, _, err := services[n%2].Allocate(t.Context(), "li", s.ask(schemas.Wish{Servers: 1}))
				if errors.As(err, new(*schemas.NoFitError)) {
					none.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				given.Add(1)
				mu.Lock()
				if owner[a.ServerID] != "" {
					t.Errorf("%s is of %s and of %s", a.Servers[0], owner[a.ServerID], a.ID)
				}
				owner[a.ServerID] = a.ID
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if given.Load() != 4*racks || none.Load() != 4*callers-4*racks {
		t.Errorf("%d given and %d refused, of %d servers", given.Load(), none.Load(), 4*racks)
	}
}

// TestWhatIsReadLateIsNotOffered has servers read while they are nobody's, and what was read put into the
// view when they are promised, and when they are somebody's: the next who asks is offered another at
// once, and they are offered again when they are free.
func TestWhatIsReadLateIsNotOffered(t *testing.T) {
	s, inv := stocked(t, 1)
	v := s.service(inv)
	now := time.Now()
	v.SetClock(func() time.Time { return now }) // nothing is so old that it is read but by the test
	_, err := v.Choose(t.Context(), s.ask(schemas.Wish{Servers: 1}))
	s.must(err)
	reads := 0
	read := func() func() error {
		t.Helper()
		reads++
		for n := range 4 {
			name := fmt.Sprintf("r00-s%d", n)
			_, err := s.estate.UpdateServer(t.Context(), "root", inv.Snapshot().ID(name), 0, func(v *schemas.Server) {
				v.Labels = map[string]string{"read": strconv.Itoa(reads)}
			})
			s.must(err)
		}
		return v.ReadAhead(t.Context())
	}
	tries := 0
	give := func(meanwhile func() error) schemas.Allocation {
		t.Helper()
		var a schemas.Allocation
		var once sync.Once
		_, err := v.Give(t.Context(), s.ask(schemas.Wish{Servers: 1}), func(parts []allocations.Part, exclusive bool) (err error) {
			tries++
			once.Do(func() { s.must(meanwhile()) })
			a, err = s.given.Take(t.Context(), "li", allocations.Draft{User: s.user.ID, Parts: parts, Exclusive: exclusive})
			return err
		})
		s.must(err)
		return a
	}
	nothing := func() error { return nil }

	put := read()
	first := give(func() error {
		s.must(put())
		give(nothing)
		return nil
	})
	if tries != 2 {
		t.Errorf("two chose %d times, and the second while a server was promised to the first", tries)
	}

	tries = 0
	put = read()
	give(nothing)
	s.must(put())
	give(nothing)
	if tries != 2 {
		t.Errorf("two chose %d times, and the second when a server was given to the first", tries)
	}

	_, err = s.given.End(t.Context(), "li", first.ID, 0, schemas.AllocationFailed, "no power", "")
	s.must(err)
	s.must(s.given.Free(t.Context(), "auspex", first.ID, first.ServerID))
	now = now.Add(time.Second)
	s.must(read()())
	if c, err := v.Choose(t.Context(), s.ask(schemas.Wish{Servers: 1})); err != nil || c.Servers[0].ServerID != first.ServerID {
		t.Errorf("the one server that is free again: %+v %v", c, err)
	}
	if n := v.Taken(); n != 0 {
		t.Errorf("%d that were given are remembered when the view has read of them", n)
	}
}

// What was promised to somebody who may not have it in the end is there for the next.
func TestWhatIsNotTakenIsOfferedAgain(t *testing.T) {
	s, inv := stocked(t, 1)
	v := s.service(inv)
	q, err := s.given.PutQuota(t.Context(), "root", "", 0, func(q *schemas.Quota) { none := int64(0); q.MaxServers = &none })
	s.must(err)
	all := s.ask(schemas.Wish{Servers: 4})
	if _, _, err := v.Allocate(t.Context(), "li", all); !errors.As(err, new(*allocations.QuotaError)) {
		t.Fatalf("%v", err)
	}
	s.must(s.given.DeleteQuota(t.Context(), "root", q.ID, 0))
	if a, _, err := v.Allocate(t.Context(), "li", all); err != nil || len(a.Servers) != 4 {
		t.Errorf("%+v %v", a, err)
	}
}

// A request that is given up while it reads what is new keeps nobody else from what it would have read.
func TestARequestThatIsGivenUp(t *testing.T) {
	s, inv := stocked(t, 1)
	v := s.service(inv)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := v.Choose(gone, s.ask(schemas.Wish{Servers: 1})); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if c, err := v.Choose(t.Context(), s.ask(schemas.Wish{Servers: 1})); err != nil || len(c.Servers) != 1 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestAFailedOneIsGivenWhatFitsNow(t *testing.T) {
	s, inv := stocked(t, 1)
	v := s.service(inv)
	a, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{Servers: 1}))
	s.must(err)
	first := a.Servers[0]
	a, err = s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationFailed, "no power", "")
	s.must(err)
	s.must(s.given.Free(t.Context(), "auspex", a.ID, a.ServerID))
	_, err = s.estate.UpdateServer(t.Context(), "root", first, 0, func(v *schemas.Server) { v.Hold = "no power" })
	s.must(err)
	if a, err = v.Again(t.Context(), "li", a.ID); err != nil || a.Status != schemas.AllocationPending || a.Servers[0] == first {
		t.Errorf("%+v %v", a, err)
	}
	if _, err := v.Again(t.Context(), "li", a.ID); !errors.As(err, new(*schemas.MoveError)) {
		t.Errorf("%v", err)
	}
}

func TestAReplacementIsOffered(t *testing.T) {
	s, inv := stocked(t, 1)
	v := s.service(inv)
	a, _, err := v.Allocate(t.Context(), "li", s.ask(schemas.Wish{Servers: 2}))
	s.must(err)
	if got, err := v.Replacement(t.Context(), &a); err != nil || got != nil {
		t.Errorf("%+v %v", got, err)
	}
	_, err = s.given.Break(t.Context(), "auspex", a.Servers[0]+"/gpu1", "incident i1", "it fell off the bus", nil)
	s.must(err)
	got, err := v.Replacement(t.Context(), &a)
	if err != nil || len(got) != 1 || slices.Contains(a.Servers, got[0].Server) {
		t.Errorf("%+v %v", got, err)
	}
	var conflict *allocations.ConflictError
	named := schemas.AllocationRequest{User: s.user.ID, ServerIDs: a.ServerIDs[:1]}
	if _, err := v.Choose(t.Context(), named); !errors.As(err, &conflict) {
		t.Errorf("%v", err)
	}
}

// BenchmarkAllocate gives and takes back a server of a site of 10,000 with two GPUs each.
func BenchmarkAllocate(b *testing.B) {
	s, inv := stocked(b, 2500)
	v := s.service(inv)
	if _, err := v.Choose(b.Context(), s.ask(schemas.Wish{Servers: 1})); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		a, _, err := v.Allocate(b.Context(), "li", s.ask(schemas.Wish{Servers: 1}))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := s.given.End(b.Context(), "li", a.ID, 0, schemas.AllocationFailed, "", ""); err != nil {
			b.Fatal(err)
		}
		if err := s.given.Free(b.Context(), "auspex", a.ID, a.ServerID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// What a workflow is to do to a server is done where nothing computes on it, and before it is looked at.
func TestAWorkflowDoesWhatItIsToldBetweenTwoLooks(t *testing.T) {
	s, inv := stocked(t, 1)
	v := s.service(inv)
	server, err := s.estate.Server(t.Context(), "r00-s0")
	s.must(err)
	names := func(kind string, do ...schemas.WorkflowStep) (out []string) {
		f, err := v.Workflow(t.Context(), "li", kind, server.ID, do)
		s.must(err)
		for _, st := range f.Steps {
			out = append(out, st.Name+st.Target)
		}
		_, err = s.flows.Move(t.Context(), "li", "", f.ID, schemas.WorkflowFailed, "", nil)
		s.must(err)
		return out
	}
	if got := names(schemas.WorkflowValidate); !slices.Equal(got, []string{"telemetry", "health"}) {
		t.Errorf("%v", got)
	}
	got := names(schemas.WorkflowConfig, schemas.WorkflowStep{Name: "configure_gpu", Target: "r00-s0/gpu1"})
	if !slices.Equal(got, []string{"idle", "configure_gpur00-s0/gpu1", "telemetry", "health"}) {
		t.Errorf("%v", got)
	}
}
