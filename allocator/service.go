package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"auspex/allocator/fit"
	"auspex/allocator/fit/messages"
	"auspex/allocator/steps"
	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/internal/store/allocations"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/records"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// Records is what other stages know of failures.
type Records interface {
	Incidents(ctx context.Context, f records.Filter) ([]schemas.Incident, string, error)
	Predictions(ctx context.Context, f records.Filter) ([]schemas.Prediction, string, error)
}

// ServiceDeps is what a service stands on.
type ServiceDeps struct {
	Allocations *allocations.Store
	Estate      *estate.Store
	Workflows   *workflows.Store
	Records     Records
	Inventory   func() *cmdb.Snapshot
	Running     func(server string) []string // workloads that run on it now, but for allocations
	Wake        func()                       // makes what is due be done at once
	// Installs reports whether control can install a server and acts, or where none is named whether it does at all.
	Installs func(ctx context.Context, server string) (bool, error)
	// Pinned is the template that is pinned to a server, by its id, and its version, "" where none is; nil where nobody installs servers.
	Pinned func(ctx context.Context, server string) (template string, version int64, err error)
}

// Service gives servers and GPUs to whoever asks. It chooses by a view of its own, which may be
// a moment old; what it chose is taken in a transaction, and where somebody was faster it chooses
// again. Any number of services may give from one store.
type Service struct {
	cfg Config
	d   ServiceDeps
	now func() time.Time

	turn       chan struct{} // who holds it has what is below
	view       *fit.View
	promises   map[*promise]struct{}
	taken      map[*promise]time.Time // promises that were kept, and when: what is being read may not tell of them
	ids        map[string]string      // of servers and GPUs, by name
	index      *fleet.Index
	places     map[string]fleet.Place
	holds      map[string]string          // by server: why a person holds it back
	generation uint64                     // of the inventory that the view is of
	read       time.Time                  // when changes were read last
	seen       map[estate.Change]struct{} // of those that are read again
	known      *facts
	reading    chan struct{} // closed when the changes that are being read are in the view; nil when none are
	unread     error         // why changes could not be read last
	learning   chan struct{} // the same of new facts
	unlearned  error         // why they could not be, last
}

// NewService returns a service; nothing is read before it is asked.
func NewService(cfg Config, d ServiceDeps) *Service {
	return &Service{cfg: cfg, d: d, now: time.Now, turn: make(chan struct{}, 1), promises: make(map[*promise]struct{}), taken: make(map[*promise]time.Time)}
}

// Wake makes what is due be done at once.
func (s *Service) Wake() {
	if s.d.Wake != nil {
		s.d.Wake()
	}
}

// asked is what is kept of a request, to be asked again.
type asked struct {
	Wish      *schemas.Wish `json:"wish,omitempty"`
	ServerIDs []string      `json:"server_ids,omitempty"`
	GPUIDs    []string      `json:"gpu_ids,omitempty"`
}

// wish is a wish in the terms of a view. Whole servers are asked for where servers are.
func wish(r *schemas.AllocationRequest, except []string) fit.Wish {
	w := fit.Wish{From: r.Start, Until: r.End, Except: except, Install: r.Install.Template != ""}
	a := r.Wish
	w.Servers, w.GPUs, w.GPUsPerServer, w.Exclusive = a.Servers, a.GPUs, a.GPUsPerServer, a.Servers > 0 && a.GPUsPerServer == 0
	w.Model, w.ServerModel, w.MinMemoryGB, w.Pool, w.Labels = a.Model, a.ServerModel, a.MinMemoryGB, a.Pool, a.Labels
	w.Together = fit.Together(a.Together)
	if a.Spread != "" {
		w.Spread = []fit.Spread{{Over: fit.Over(a.Spread), Share: .5}}
	}
	w.MinHealth = fit.Warning
	if a.MinHealth == fit.OK.String() {
		w.MinHealth = fit.OK
	}
	if a.MaxRisk != nil {
		w.MaxRisk = max(*a.MaxRisk, 1e-9) // 0 is the default of a view
	}
	return w
}

// take waits for the turn, and pass gives it on.
func (s *Service) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) pass() { <-s.turn }

// promise is what was chosen for somebody and is being taken: nobody else is offered it meanwhile,
// or all who ask at once would be offered the same, which one of them gets.
type promise struct {
	of   map[string]fit.Booking // by server
	over chan struct{}          // closed when it was taken, or could not be
}

// choose chooses for a request, by a view that knows what was changed before a time at least, and
// promises what it chose where keep says so.
func (s *Service) choose(ctx context.Context, r *schemas.AllocationRequest, except []string, fresh time.Time, keep bool) (chosen, error) {
	if r.Wish == nil {
		parts, err := s.named(ctx, r)
		none := schemas.Choice{Servers: []schemas.Pick{}, RunnersUp: []schemas.Pick{}, Lost: []schemas.NotChosen{}}
		return chosen{Choice: none, parts: parts, exclusive: len(r.ServerIDs) > 0}, err
	}
	if r.Start.IsZero() {
		r.Start = s.now()
	}
	for waited := false; ; waited = true {
		c, others, err := s.fit(ctx, r, except, fresh, keep)
		if waited || len(others) == 0 || !errors.As(err, new(*schemas.NoFitError)) {
			return c, err
		}
		// What is promised may not be taken in the end: nobody is told that there is nothing before that is known.
		for _, p := range others {
			select {
			case <-p.over:
			case <-ctx.Done():
				return c, ctx.Err()
			}
		}
	}
}

// chosen is a choice, and what is to be taken.
type chosen struct {
	schemas.Choice
	parts     []allocations.Part
	exclusive bool
	promise   *promise // nil is none
}

// fit chooses once, and tells what was promised to others then.
func (s *Service) fit(ctx context.Context, r *schemas.AllocationRequest, except []string, fresh time.Time, keep bool) (c chosen, others []*promise, err error) {
	if err := s.take(ctx); err != nil {
		return c, nil, err
	}
	defer s.pass()
	if err := s.refresh(ctx, fresh); err != nil {
		return c, nil, err
	}
	w := wish(r, except)
	got, err := fit.Choose(s.view, w)
	var none *fit.NoFit
	if errors.As(err, &none) {
		near := nearest(none.Misses)
		return c, slices.Collect(maps.Keys(s.promises)), &schemas.NoFitError{Choice: schemas.Choice{
			Servers: []schemas.Pick{}, RunnersUp: []schemas.Pick{}, Lost: lost(none.Lost), Nearest: near, Detail: inWords(near),
		}}
	}
	if err != nil {
		return c, nil, err
	}
	c = chosen{Choice: schemas.Choice{Servers: s.picks(got.Servers), RunnersUp: []schemas.Pick{}, Lost: lost(got.Lost)}, exclusive: w.Exclusive}
	for _, r := range got.RunnersUp {
		p := s.pick(&r.Chosen)
		p.Reasons = append(p.Reasons, r.Why)
		p.Detail = inWords(p.Reasons)
		c.RunnersUp = append(c.RunnersUp, p)
	}
	c.parts = make([]allocations.Part, len(c.Servers))
	for i, p := range c.Servers {
		c.parts[i].Server = p.ServerID
		if !w.Exclusive {
			c.parts[i].GPUs = p.GPUIDs
		}
	}
	if !keep {
		return c, nil, nil
	}
	c.promise = &promise{of: make(map[string]fit.Booking, len(c.Servers)), over: make(chan struct{})}
	for _, p := range c.Servers {
		b := fit.Booking{Whole: w.Exclusive, GPUs: p.GPUs, From: r.Start, Until: r.End}
		c.promise.of[p.Server] = b
		if err := s.view.Update(p.Server, func(v *fit.Server) { v.Bookings = append(v.Bookings, b) }); err != nil {
			return c, nil, err
		}
	}
	s.promises[c.promise] = struct{}{}
	return c, nil, nil
}

// keeping takes what was chosen, and ends its promise however that ends.
func (s *Service) keeping(ctx context.Context, c *chosen, take func(parts []allocations.Part, exclusive bool) error) (err error) {
	taken := false
	defer func() {
		if serr := s.settle(ctx, c, taken); serr != nil {
			err = errors.Join(err, serr)
		}
	}()
	err = take(c.parts, c.exclusive)
	taken = err == nil
	return err
}

// settle ends a promise. What was taken stays in the view until it is read; what was not is read now.
func (s *Service) settle(ctx context.Context, c *chosen, taken bool) error {
	if c.promise == nil {
		return nil
	}
	s.turn <- struct{}{}
	defer s.pass()
	delete(s.promises, c.promise)
	close(c.promise.over)
	if taken {
		s.taken[c.promise] = s.now()
		return nil
	}
	if s.read.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshWithin)
	defer cancel()
	ids := make([]string, len(c.parts))
	for i := range c.parts {
		ids[i] = c.parts[i].Server
	}
	began := s.now()
	r, err := s.some(ctx, ids)
	if err == nil {
		err = s.put(&r, began)
	}
	if err != nil {
		s.read = time.Time{} // all is read again before the next choice
	}
	return err
}

func (s *Service) picks(all []fit.Chosen) []schemas.Pick {
	out := make([]schemas.Pick, len(all))
	for i := range all {
		out[i] = s.pick(&all[i])
	}
	return out
}

func (s *Service) pick(c *fit.Chosen) schemas.Pick {
	p := schemas.Pick{
		Server: c.Server, ServerID: s.ids[c.Server], GPUs: c.GPUs, GPUIDs: make([]string, len(c.GPUs)), Reasons: c.Reasons, Detail: inWords(c.Reasons),
	}
	if c.GPUs == nil {
		p.GPUs = []string{}
	}
	for k, g := range c.GPUs {
		p.GPUIDs[k] = s.ids[g]
	}
	return p
}

// inWords is sentences in English, for who has no words of their own for them.
func inWords(all []schemas.Sentence) string {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = messages.Text(s)
	}
	return strings.Join(out, "; ")
}

func lost(all []fit.Lost) []schemas.NotChosen {
	out := make([]schemas.NotChosen, len(all))
	for i, l := range all {
		out[i] = schemas.NotChosen{Reason: l.Detail, Detail: messages.Text(l.Detail), Count: l.Count, Examples: l.Examples}
	}
	return out
}

func nearest(all []fit.Miss) []schemas.Sentence {
	out := make([]schemas.Sentence, len(all))
	for i, m := range all {
		out[i] = m.Sentence
	}
	return out
}

// named is what a request names, by server.
func (s *Service) named(ctx context.Context, r *schemas.AllocationRequest) ([]allocations.Part, error) {
	var parts []allocations.Part
	for _, id := range r.ServerIDs {
		parts = append(parts, allocations.Part{Server: id})
	}
	for _, id := range r.GPUIDs {
		g, err := s.d.Estate.GPU(ctx, id)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(parts, func(p allocations.Part) bool { return p.Server == g.ServerID })
		if n < 0 {
			n, parts = len(parts), append(parts, allocations.Part{Server: g.ServerID})
		}
		parts[n].GPUs = append(parts[n].GPUs, g.ID)
	}
	return parts, nil
}

func draft(r *schemas.AllocationRequest, parts []allocations.Part, exclusive bool) (allocations.Draft, error) {
	kept, err := json.Marshal(asked{r.Wish, r.ServerIDs, r.GPUIDs})
	return allocations.Draft{
		User: r.User, Team: r.Team, Group: r.Group, Purpose: r.Purpose, Start: r.Start, End: r.End, Exclusive: exclusive, Parts: parts, Wish: string(kept),
		Install: r.Install,
	}, err
}

// give chooses until what was chosen could be taken, or nothing fits, or what stands in the way
// is not a server. A choice that is to be taken is kept from others meanwhile.
func (s *Service) give(
	ctx context.Context, r *schemas.AllocationRequest, keep bool, take func(parts []allocations.Part, exclusive bool) error,
) (schemas.Choice, error) {
	if r.Install.Template != "" {
		if s.d.Installs == nil || !slices.Contains(s.cfg.Deploy, steps.Install) {
			return schemas.Choice{}, schemas.ErrNoInstall
		}
		for _, server := range append([]string{""}, r.ServerIDs...) {
			if acts, err := s.d.Installs(ctx, server); err != nil {
				return schemas.Choice{}, err
			} else if !acts {
				return schemas.Choice{}, schemas.ErrNoInstall
			}
		}
	}
	var except []string
	var fresh time.Time
	for try := 0; ; try++ {
		c, err := s.choose(ctx, r, except, fresh, keep)
		if err != nil {
			return c.Choice, err
		}
		err = s.keeping(ctx, &c, take)
		var conflict *allocations.ConflictError
		if err == nil || !errors.As(err, &conflict) || r.Wish == nil || ctx.Err() != nil {
			return c.Choice, err
		}
		// What was changed until now is read for the next try, once for all who wait. A server whose view does not tell
		// why it cannot be had is left out, so that each try has fewer to choose from.
		fresh = s.now()
		if name := conflict.Server; try > 0 && !slices.Contains(except, name) {
			except = append(except, name)
		}
	}
}

// Choose says what would be given, and changes nothing.
func (s *Service) Choose(ctx context.Context, r schemas.AllocationRequest) (schemas.Choice, error) {
	return s.give(ctx, &r, false, func(parts []allocations.Part, exclusive bool) error {
		d, err := draft(&r, parts, exclusive)
		if err != nil {
			return err
		}
		return s.d.Allocations.Check(ctx, d)
	})
}

// Allocate gives what is asked for, all of it or nothing. What nothing fits is a
// [*schemas.NoFitError]; other errors are those of [allocations.Store.Take]. What the same request was given
// before its answer was lost is its answer.
func (s *Service) Allocate(ctx context.Context, by string, r schemas.AllocationRequest) (a schemas.Allocation, c schemas.Choice, err error) {
	a, made, err := s.d.Allocations.Made(ctx)
	if err != nil {
		return a, c, err
	}
	if made {
		c, err = s.had(ctx, &a)
		return a, c, err
	}
	c, err = s.give(ctx, &r, true, func(parts []allocations.Part, exclusive bool) error {
		d, err := draft(&r, parts, exclusive)
		if err != nil {
			return err
		}
		a, err = s.d.Allocations.Take(ctx, by, d)
		return err
	})
	return a, c, err
}

// had is what an allocation has, without why.
func (s *Service) had(ctx context.Context, a *schemas.Allocation) (schemas.Choice, error) {
	c := schemas.Choice{Servers: []schemas.Pick{}, RunnersUp: []schemas.Pick{}, Lost: []schemas.NotChosen{}}
	_, gpus, err := s.d.Estate.Some(ctx, a.ServerIDs)
	if err != nil {
		return c, err
	}
	for i, server := range a.ServerIDs {
		p := schemas.Pick{Server: a.Servers[i], ServerID: server, GPUs: []string{}, GPUIDs: []string{}, Reasons: []schemas.Sentence{}}
		for k := range gpus {
			if g := &gpus[k]; g.ServerID == server && slices.Contains(a.GPUIDs, g.ID) {
				p.GPUs, p.GPUIDs = append(p.GPUs, g.Name), append(p.GPUIDs, g.ID)
			}
		}
		c.Servers = append(c.Servers, p)
	}
	return c, nil
}

// request is what an allocation asked for.
func (s *Service) request(ctx context.Context, a *schemas.Allocation) (r schemas.AllocationRequest, err error) {
	kept, err := s.d.Allocations.Wish(ctx, a.ID)
	if err != nil {
		return r, err
	}
	var was asked
	if err := json.Unmarshal([]byte(kept), &was); err != nil {
		return r, fmt.Errorf("read what allocation %s asked for: %w", a.ID, err)
	}
	team, err := s.d.Allocations.TeamID(ctx, a.ID)
	return schemas.AllocationRequest{
		User: a.UserID, Team: team, Group: a.GroupID, Purpose: a.Purpose, Start: a.StartTime, End: a.EndTime, Wish: was.Wish, ServerIDs: was.ServerIDs,
		GPUIDs: was.GPUIDs, Install: a.Install,
	}, err
}

// Again makes a failed allocation pending, with what fits what it asked for now.
func (s *Service) Again(ctx context.Context, by, id string) (schemas.Allocation, error) {
	a, err := s.d.Allocations.Get(ctx, id)
	if err != nil {
		return a, err
	}
	if err := schemas.AllocationLife.Move(a.Status, schemas.AllocationPending); err != nil {
		return a, err
	}
	r, err := s.request(ctx, &a)
	if err != nil {
		return a, err
	}
	if now := s.now(); r.Start.Before(now) {
		r.Start = now
	}
	_, err = s.give(ctx, &r, true, func(parts []allocations.Part, _ bool) error {
		a, err = s.d.Allocations.Again(ctx, by, id, parts)
		return err
	})
	return a, err
}

// Replacement is what could be had instead of servers of an allocation of which a GPU is in
// error: as many, alike, for what is left of its time. None is that none is needed, or nothing
// fits.
func (s *Service) Replacement(ctx context.Context, a *schemas.Allocation) ([]schemas.Pick, error) {
	_, gpus, err := s.d.Estate.Some(ctx, a.ServerIDs)
	if err != nil {
		return nil, err
	}
	ill := make(map[string]int) // GPUs of the allocation, by server, of servers with one in error
	for i := range gpus {
		if g := &gpus[i]; slices.Contains(a.GPUIDs, g.ID) && g.Status == schemas.GPUError {
			ill[g.ServerID] = 0
		}
	}
	if len(ill) == 0 {
		return nil, nil
	}
	for i := range gpus {
		if _, is := ill[gpus[i].ServerID]; is && slices.Contains(a.GPUIDs, gpus[i].ID) {
			ill[gpus[i].ServerID]++
		}
	}
	r, err := s.request(ctx, a)
	if err != nil {
		return nil, err
	}
	like := schemas.Wish{}
	if r.Wish != nil {
		like = *r.Wish
	} else if len(gpus) > 0 {
		like.Model = gpus[0].Model
	}
	like.Servers, like.GPUs, like.GPUsPerServer, like.Spread = 0, 0, 0, ""
	if a.Exclusive {
		like.Servers = len(ill)
	} else {
		for _, n := range ill {
			like.GPUs += n
		}
	}
	r.Wish, r.ServerIDs, r.GPUIDs, r.Start = &like, nil, nil, s.now()
	c, err := s.choose(ctx, &r, a.Servers, time.Time{}, false)
	if errors.As(err, new(*schemas.NoFitError)) {
		return nil, nil
	}
	return c.Servers, err
}

// Workflow runs a workflow on a server that nobody has. What it is to do there is done where nothing
// computes on the server; then the server is looked at.
func (s *Service) Workflow(ctx context.Context, by, kind, server string, do []schemas.WorkflowStep) (schemas.Workflow, error) {
	all := stepsOf(s.cfg.Look)
	if len(do) > 0 {
		all = slices.Concat(stepsOf([]string{steps.Idle}), do, all)
	}
	return s.d.Workflows.Create(ctx, by, schemas.Workflow{ServerID: server, Type: kind, Exclusive: true, Steps: all})
}

// Resume goes on with a workflow that has failed and is of no allocation, at the step that failed.
func (s *Service) Resume(ctx context.Context, by, id string) (schemas.Workflow, error) {
	return s.d.Workflows.Resume(ctx, by, id)
}

// Rerun runs a workflow of an allocation again that has failed on a server.
func (s *Service) Rerun(ctx context.Context, by, kind, allocation, server string) (schemas.Workflow, error) {
	made, err := s.d.Workflows.Of(ctx, allocation)
	if err != nil {
		return schemas.Workflow{}, err
	}
	for _, w := range slices.Backward(made) {
		if w.Type == kind && w.ServerID == server {
			return s.d.Workflows.Move(ctx, by, "", w.ID, schemas.WorkflowPending, "", nil)
		}
	}
	return schemas.Workflow{}, fmt.Errorf("%s workflow of allocation %s: %w", kind, allocation, entity.ErrNone)
}
