package allocations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/audit"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// world is servers with two GPUs each, two users, and a team that one of them is of.
type world struct {
	*allocations.Store
	t      *testing.T
	db     *sqldb.DB
	estate *estate.Store
	people *people.Store
	li, bo schemas.User
	vision schemas.Team
}

func newWorld(t *testing.T, servers int) *world {
	t.Helper()
	db := sqltest.Open(t)
	w := &world{Store: allocations.New(db), t: t, db: db, estate: estate.New(db), people: people.New(db)}
	top := schemas.Topology{}
	for n := range servers {
		name := fmt.Sprintf("s%03d", n)
		top.Resources = append(top.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer})
		for g := range 2 {
			top.Resources = append(top.Resources, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name})
		}
	}
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(w.estate)
	w.must(inv.Open(t.Context()))
	_, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()})
	w.must(err)
	for name, u := range map[string]*schemas.User{"li": &w.li, "bo": &w.bo} {
		*u, err = w.people.CreateUser(t.Context(), "root", schemas.User{Username: name, Email: name + "@example.com", Role: "engineer", Status: "active"})
		w.must(err)
	}
	w.vision, err = w.people.CreateTeam(t.Context(), "root", schemas.Team{Name: "vision", Members: []string{"li"}})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) server(n int) schemas.Server {
	w.t.Helper()
	v, err := w.estate.Server(w.t.Context(), fmt.Sprintf("s%03d", n))
	w.must(err)
	return v
}

func (w *world) gpu(server, n int) schemas.GPU {
	w.t.Helper()
	v, err := w.estate.GPU(w.t.Context(), fmt.Sprintf("s%03d/gpu%d", server, n))
	w.must(err)
	return v
}

// whole asks for servers as a whole, for as long as it pleases.
func (w *world) whole(servers ...int) allocations.Draft {
	d := allocations.Draft{User: w.li.ID, Exclusive: true, Purpose: "train"}
	for _, n := range servers {
		d.Parts = append(d.Parts, allocations.Part{Server: w.server(n).ID})
	}
	return d
}

// some asks for GPUs of a server.
func (w *world) some(server int, gpus ...int) allocations.Draft {
	p := allocations.Part{Server: w.server(server).ID}
	for _, n := range gpus {
		p.GPUs = append(p.GPUs, w.gpu(server, n).ID)
	}
	return allocations.Draft{User: w.bo.ID, Purpose: "try", Parts: []allocations.Part{p}}
}

func (w *world) take(d allocations.Draft) schemas.Allocation {
	w.t.Helper()
	a, err := w.Take(w.t.Context(), "li", d)
	w.must(err)
	return a
}

// refused says why a request is refused, "" where it is not.
func (w *world) refused(d allocations.Draft) string {
	w.t.Helper()
	checked := w.Check(w.t.Context(), d)
	_, err := w.Take(w.t.Context(), "li", d)
	if (checked == nil) != (err == nil) {
		w.t.Errorf("tried: %v, done: %v", checked, err)
	}
	var conflict *allocations.ConflictError
	var quota *allocations.QuotaError
	var kept *allocations.ReservedError
	switch {
	case errors.As(err, &conflict):
		return conflict.Why
	case errors.As(err, &quota):
		return quota.Error()
	case errors.As(err, &kept):
		return kept.Error()
	}
	w.must(err)
	return ""
}

func (w *world) end(a schemas.Allocation, to, reason string) schemas.Allocation {
	w.t.Helper()
	a, err := w.End(w.t.Context(), "li", a.ID, 0, to, reason, "")
	w.must(err)
	return a
}

func (w *world) free(a schemas.Allocation) {
	w.t.Helper()
	for _, id := range a.ServerIDs {
		w.must(w.Free(w.t.Context(), "auspex", a.ID, id))
	}
}

func TestTheLifeOfAnAllocation(t *testing.T) {
	w := newWorld(t, 2)
	a := w.take(w.whole(0, 1))
	if a.Status != schemas.AllocationPending || len(a.ServerIDs) != 2 || len(a.GPUIDs) != 4 || a.ServerID != w.server(0).ID || !a.EndTime.IsZero() || a.User != "li" {
		t.Errorf("%+v", a)
	}
	if g := w.gpu(1, 1); g.Status != schemas.GPUAllocated {
		t.Errorf("%+v", g)
	}
	if why := w.refused(w.some(1, 0)); why != allocations.WhyTaken {
		t.Errorf("a GPU of a server that is taken as a whole: %q", why)
	}
	a, err := w.Activate(t.Context(), "auspex", a.ID)
	if err != nil || a.Status != schemas.AllocationActive || a.ActiveAt.IsZero() || w.gpu(0, 0).Status != schemas.GPUInUse {
		t.Errorf("%+v %v", a, err)
	}
	var move *schemas.MoveError
	if _, err := w.Activate(t.Context(), "auspex", a.ID); !errors.As(err, &move) {
		t.Errorf("%v", err)
	}
	a = w.end(a, schemas.AllocationCompleted, "")
	if a.Returned || a.EndedAt.IsZero() {
		t.Errorf("%+v", a)
	}
	if why := w.refused(w.whole(0)); why != allocations.WhyTaken {
		t.Errorf("what is being cleaned is given: %q", why)
	}
	w.must(w.Free(t.Context(), "auspex", a.ID, a.ServerIDs[0]))
	if g := w.gpu(0, 0); g.Status != schemas.GPUAvailable {
		t.Errorf("%+v", g)
	}
	if b, err := w.Get(t.Context(), a.ID); err != nil || b.Returned {
		t.Errorf("%+v %v", b, err)
	}
	w.must(w.Free(t.Context(), "auspex", a.ID, a.ServerIDs[1]))
	if b, err := w.Get(t.Context(), a.ID); err != nil || !b.Returned {
		t.Errorf("%+v %v", b, err)
	}
	w.take(w.some(1, 0))
	if why := w.refused(w.some(1, 0)); why != allocations.WhyTaken {
		t.Errorf("%q", why)
	}
	if why := w.refused(w.whole(1)); why != allocations.WhyTaken {
		t.Errorf("a server of which a GPU is taken: %q", why)
	}
	w.take(w.some(1, 1))
	if _, err := audit.Verify(t.Context(), w.db); err != nil {
		t.Error(err)
	}
}

// TestSpans: what somebody has and had is theirs and their teams' from when it was ready to its end.
func TestSpans(t *testing.T) {
	w := newWorld(t, 3)
	whole, gpu, never := w.take(w.whole(0)), w.take(w.some(1, 1)), w.take(w.whole(2))
	for _, a := range []schemas.Allocation{whole, gpu} {
		_, err := w.Activate(t.Context(), "auspex", a.ID)
		w.must(err)
	}
	ended := w.end(whole, schemas.AllocationCompleted, "")
	found, err := w.Spans(t.Context(), whole.UserID)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v %v, and %s was never active", found, err, never.ID)
	}
	if sp := found[0]; sp.Server != whole.Servers[0] || sp.GPU != "" || sp.From.IsZero() || !sp.Until.Equal(ended.EndedAt) {
		t.Errorf("%+v", sp)
	}
	if found, err = w.Spans(t.Context(), w.bo.ID); err != nil || len(found) != 1 {
		t.Fatalf("%+v %v", found, err)
	}
	if sp := found[0]; sp.Server != gpu.Servers[0] || sp.GPU != w.gpu(1, 1).Name || !sp.Until.IsZero() {
		t.Errorf("%+v", sp)
	}
	if found, err = w.Spans(t.Context(), "somebody else"); err != nil || len(found) != 0 {
		t.Errorf("%+v %v", found, err)
	}
}

func TestWhatIsGivenToNobody(t *testing.T) {
	w := newWorld(t, 1)
	set := func(change func(*schemas.Server)) {
		t.Helper()
		_, err := w.estate.UpdateServer(t.Context(), "root", "s000", 0, change)
		w.must(err)
	}
	set(func(v *schemas.Server) { v.Hold = "burn-in" })
	if why := w.refused(w.whole(0)); why != allocations.WhyHold {
		t.Errorf("%q", why)
	}
	set(func(v *schemas.Server) { v.Hold, v.Status = "", schemas.ServerProvisioning })
	if why := w.refused(w.whole(0)); why != allocations.WhyState {
		t.Errorf("%q", why)
	}
	set(func(v *schemas.Server) { v.Status = schemas.ServerReady })
	d := w.some(0, 0)
	d.Parts[0].GPUs = append(d.Parts[0].GPUs, "another")
	if why := w.refused(d); why != allocations.WhyNoGPU {
		t.Errorf("%q", why)
	}
	g := w.gpu(0, 1)
	w.must(w.db.InTx(t.Context(), func(tx *sql.Tx) error {
		return w.estate.MoveGPU(t.Context(), tx, "auspex", &g, schemas.GPUError, "incident i1")
	}))
	for _, d := range []allocations.Draft{w.whole(0), w.some(0, 1)} {
		if why := w.refused(d); why != allocations.WhyGPU {
			t.Errorf("%q", why)
		}
	}
	if why := w.refused(w.some(0, 0)); why != "" {
		t.Errorf("the other GPU: %q", why)
	}
	if _, err := w.db.ExecContext(t.Context(), `INSERT INTO control_cases (id, reason, subject, target, state, updated_ns, doc)
VALUES ('c','i','s000','s000','open',1,'{}')`); err != nil {
		t.Fatal(err)
	}
	if why := w.refused(w.some(0, 1)); why != allocations.WhyCase {
		t.Errorf("%q", why)
	}
}

func TestAGangIsGivenAsAWhole(t *testing.T) {
	w := newWorld(t, 3)
	w.take(w.whole(1))
	if why := w.refused(w.whole(0, 1, 2)); why != allocations.WhyTaken {
		t.Errorf("%q", why)
	}
	if got, _, err := w.List(t.Context(), allocations.Filter{Limit: 10}); err != nil || len(got) != 1 || w.gpu(0, 0).Status != schemas.GPUAvailable {
		t.Errorf("%+v %v", got, err)
	}
	w.take(w.whole(0, 2))
}

func TestTimesDoNotMeet(t *testing.T) {
	w := newWorld(t, 1)
	day := func(n int) time.Time { return time.Now().Add(time.Duration(n) * 24 * time.Hour) }
	during := func(d allocations.Draft, from, to int) allocations.Draft {
		d.Start, d.End = day(from), day(to)
		return d
	}
	later := w.take(during(w.whole(0), 5, 7))
	if g := w.gpu(0, 0); g.Status != schemas.GPUAvailable {
		t.Errorf("what is booked for later is %s", g.Status)
	}
	for _, tc := range []struct {
		from, to int
		why      string
	}{{0, 6, allocations.WhyTaken}, {6, 8, allocations.WhyTaken}, {4, 9, allocations.WhyTaken}} {
		if why := w.refused(during(w.some(0, 0), tc.from, tc.to)); why != tc.why {
			t.Errorf("from day %d to %d: %q, want %q", tc.from, tc.to, why, tc.why)
		}
	}
	open := w.some(0, 0)
	if why := w.refused(open); why != allocations.WhyTaken {
		t.Errorf("without an end: %q", why)
	}
	now := w.take(during(w.some(0, 0), 0, 3))
	if now, err := w.Change(t.Context(), "li", now.ID, now.Revision, func(a *schemas.Allocation) { a.EndTime = day(4) }); err != nil || now.Revision != 2 {
		t.Errorf("%+v %v", now, err)
	}
	var conflict *allocations.ConflictError
	if _, err := w.Change(t.Context(), "li", now.ID, 0, func(a *schemas.Allocation) { a.EndTime = day(6) }); !errors.As(err, &conflict) {
		t.Errorf("an extension into what is booked: %v", err)
	}
	field := (*entity.FieldError)(nil)
	if _, err := w.Take(t.Context(), "li", during(w.whole(0), 9, 8)); !errors.As(err, &field) || field.Field != "end_time" {
		t.Errorf("%v", err)
	}
	// Its time has come, and the one before has not gone.
	if _, err := w.Begin(t.Context(), "auspex", later.ID); !errors.As(err, &conflict) {
		t.Errorf("%v", err)
	}
	w.free(w.end(now, schemas.AllocationFailed, allocations.Cancelled))
	if a, err := w.Begin(t.Context(), "auspex", later.ID); err != nil || w.gpu(0, 0).Status != schemas.GPUAllocated {
		t.Errorf("%+v %v", a, err)
	}
	if a, err := w.Activate(t.Context(), "auspex", later.ID); err != nil || a.Status != schemas.AllocationActive {
		t.Errorf("%+v %v", a, err)
	}
	// What is held is held beyond its time.
	if _, err := w.db.ExecContext(t.Context(), `UPDATE allocation_claims SET from_ns=1, until_ns=2 WHERE allocation_id=$1`, later.ID); err != nil {
		t.Fatal(err)
	}
	if why := w.refused(w.some(0, 1)); why != allocations.WhyTaken {
		t.Errorf("%q", why)
	}
}

func TestAFailedOneIsTriedAgain(t *testing.T) {
	w := newWorld(t, 2)
	a := w.end(w.take(w.whole(0)), schemas.AllocationFailed, "no power")
	parts := w.whole(1).Parts
	var conflict *allocations.ConflictError
	if _, err := w.Again(t.Context(), "li", a.ID, parts); !errors.As(err, &conflict) {
		t.Errorf("what it had is not clean: %v", err)
	}
	w.free(a)
	a, err := w.Again(t.Context(), "li", a.ID, parts)
	if err != nil || a.Status != schemas.AllocationPending || a.Servers[0] != "s001" || !a.EndedAt.IsZero() || w.gpu(1, 0).Status != schemas.GPUAllocated {
		t.Errorf("%+v %v", a, err)
	}
}

func TestTheSameRequestIsOneAllocation(t *testing.T) {
	w := newWorld(t, 4)
	ctx := sqldb.WithRequest(t.Context(), "li\x00once")
	one, err := w.Take(ctx, "li", w.whole(0))
	w.must(err)
	two, err := w.Take(ctx, "li", w.whole(1))
	if err != nil || one.ID != two.ID || two.Servers[0] != "s000" {
		t.Errorf("%+v %+v %v", one, two, err)
	}
}

func TestQuotas(t *testing.T) {
	w := newWorld(t, 4)
	n := func(n int64) *int64 { return &n }
	quota := func(q schemas.Quota) {
		t.Helper()
		_, err := w.PutQuota(t.Context(), "root", "", 0, func(v *schemas.Quota) {
			v.Team, v.Pool, v.MaxGPUs, v.MaxServers, v.MaxDuration = q.Team, q.Pool, q.MaxGPUs, q.MaxServers, q.MaxDuration
		})
		w.must(err)
	}
	quota(schemas.Quota{MaxGPUs: n(2)})
	quota(schemas.Quota{Team: "Vision", Pool: "default", MaxServers: n(1), MaxDuration: 3600})
	team := func(d allocations.Draft) allocations.Draft {
		d.Team, d.End = w.vision.ID, time.Now().Add(time.Hour)
		return d
	}
	if why := w.refused(w.whole(0, 1)); why != "the quota of each team without one of its own is 2 gpus at a time: 0 are used, and 4 more were asked for" {
		t.Error(why)
	}
	w.take(w.whole(0))
	if why := w.refused(w.whole(1)); why == "" {
		t.Error("over the quota")
	}
	w.take(w.some(1, 0)) // of another user without a team
	// Both bind the team: its own for the pool, that of all for all pools.
	if why := w.refused(team(w.whole(2, 3))); why == "" {
		t.Error("over the quota")
	}
	mine := team(w.whole(2))
	mine.End = time.Now().Add(2 * time.Hour)
	if why := w.refused(mine); why != "the quota of team vision in pool default is 1h0m0s for one allocation, and 1h59m59s were asked for" {
		t.Error(why)
	}
	mine.End = time.Time{}
	if why := w.refused(mine); why != "the quota of team vision in pool default needs an end, at most 1h0m0s after the start" {
		t.Error(why)
	}
	a := w.take(team(w.whole(2)))
	if why := w.refused(team(w.whole(3))); why == "" {
		t.Error("over the quota")
	}
	w.end(a, schemas.AllocationFailed, allocations.Cancelled)
	w.take(team(w.whole(3))) // what is cleaned does not count
	field := (*entity.FieldError)(nil)
	if _, err := w.PutQuota(t.Context(), "root", "", 0, func(q *schemas.Quota) { q.Team = "vision"; q.Pool = "default" }); !errors.As(err, &field) || !field.Taken {
		t.Errorf("%v", err)
	}
	if _, err := w.PutQuota(t.Context(), "root", "", 0, func(q *schemas.Quota) { q.Team = "none" }); !errors.As(err, &field) || field.Field != "team" {
		t.Errorf("%v", err)
	}
	if _, err := w.PutQuota(t.Context(), "root", "", 0, func(q *schemas.Quota) { q.Pool, q.MaxGPUs = "default", n(-1) }); !errors.As(err, &field) || field.Field != "max_gpus" {
		t.Errorf("%v", err)
	}
}

func TestReservations(t *testing.T) {
	w := newWorld(t, 3)
	now := time.Now()
	reserve := func(name string, gpus, servers int64, from, to time.Duration) error {
		_, err := w.PutReservation(t.Context(), "root", "", 0, func(r *schemas.Reservation) {
			*r = schemas.Reservation{ID: r.ID, CreatedAt: r.CreatedAt, Name: name, Team: "vision", Pool: "default", GPUs: gpus, Servers: servers, StartTime: now.Add(from), EndTime: now.Add(to)}
		})
		return err
	}
	w.must(reserve("june", 0, 2, time.Hour, 3*time.Hour))
	short := w.some(0, 0)
	short.End = now.Add(30 * time.Minute)
	w.take(short) // ends before
	if why := w.refused(w.whole(1, 2)); why != "2 servers were asked for of pool default, where 3 are free in that time and 2 are reserved for other teams" {
		t.Error(why)
	}
	w.take(w.some(1, 0)) // one of three is touched
	if why := w.refused(w.some(2, 0)); why == "" {
		t.Error("what is reserved is given")
	}
	mine := w.whole(2)
	mine.Team = w.vision.ID
	w.take(mine)
	field := (*entity.FieldError)(nil)
	if err := reserve("June", 1, 0, 0, time.Hour); !errors.As(err, &field) || field.Field != "name" {
		t.Errorf("%v", err)
	}
	if err := reserve("back", 1, 0, time.Hour, 0); !errors.As(err, &field) || field.Field != "end_time" {
		t.Errorf("%v", err)
	}
	if err := reserve("nothing", 0, 0, 0, time.Hour); !errors.As(err, &field) || field.Field != "servers" {
		t.Errorf("%v", err)
	}
}

// TestARace has many ask for the same at once, and end and clean what they have: never two
// owners, never over a quota, nothing lost.
func TestARace(t *testing.T) {
	const servers, callers, rounds, limit = 12, 16, 25, 10
	w := newWorld(t, servers)
	n := int64(limit)
	_, err := w.PutQuota(t.Context(), "root", "", 0, func(q *schemas.Quota) { q.Team, q.MaxGPUs = "vision", &n })
	w.must(err)
	drafts := make([]allocations.Draft, 0, 3*servers)
	for s := range servers {
		drafts = append(drafts, w.whole(s), w.some(s, 0), w.some(s, 1), w.whole(s, (s+1)%servers))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	owner, inTeam, won, lost := make(map[string]string), 0, 0, 0
	for c := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 7))
			for range rounds {
				d := drafts[rnd.IntN(len(drafts))]
				if c%2 == 0 {
					d.Team = w.vision.ID
				}
				a, err := w.Take(context.WithoutCancel(t.Context()), "li", d)
				if err != nil {
					var conflict *allocations.ConflictError
					var quota *allocations.QuotaError
					if !errors.As(err, &conflict) && !errors.As(err, &quota) {
						t.Error(err)
					}
					mu.Lock()
					lost++
					mu.Unlock()
					continue
				}
				mu.Lock()
				won++
				for _, g := range a.GPUIDs {
					if owner[g] != "" {
						t.Errorf("%s is of %s and of %s", g, owner[g], a.ID)
					}
					owner[g] = a.ID
				}
				if d.Team != "" {
					if inTeam += len(a.GPUIDs); inTeam > limit {
						t.Errorf("%d GPUs, over the quota of %d", inTeam, limit)
					}
				}
				mu.Unlock()
				if rnd.IntN(2) == 0 {
					if _, err := w.Activate(context.WithoutCancel(t.Context()), "auspex", a.ID); err != nil {
						t.Error(err)
					}
				}
				mu.Lock() // before it is: a quota counts it no more from there on
				if d.Team != "" {
					inTeam -= len(a.GPUIDs)
				}
				mu.Unlock()
				if a, err = w.End(context.WithoutCancel(t.Context()), "li", a.ID, 0, schemas.AllocationFailed, "", ""); err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, g := range a.GPUIDs {
					delete(owner, g)
				}
				mu.Unlock()
				for _, s := range a.ServerIDs {
					if err := w.Free(context.WithoutCancel(t.Context()), "auspex", a.ID, s); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d given, %d refused", won, lost)
	if won == 0 || lost == 0 {
		t.Error("there was no race")
	}
	for s := range servers {
		w.take(w.whole(s)) // nothing was lost
	}
	if _, err := audit.Verify(t.Context(), w.db); err != nil {
		t.Error(err)
	}
}
