package allocator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"auspex/allocator/fit"
	"auspex/internal/fleet"
	"auspex/internal/store/allocations"
	"auspex/internal/store/estate"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// How old what a choice goes by may be: who has what, and how well it is. The transaction that
// gives it is right in any case; an old view costs another try.
const (
	claimsEvery  = 250 * time.Millisecond
	claimsAtMost = 5 * time.Second
	factsEvery   = 3 * time.Second
	factsAtMost  = 10 * time.Second
	failedEvery  = 5 * time.Minute
	// overlap is how far back changes are read again: clocks of processes differ, and what was
	// changed before may be committed after.
	overlap = 3 * time.Second
	// remembered is how long a failure counts.
	remembered = 90 * 24 * time.Hour
	manyAtOnce = 500 // servers that are read in one query
	// refreshWithin is how long it may take to read what is new.
	refreshWithin = time.Minute
)

// refresh brings the view up to date, with what was changed before a time at least; the caller has
// the turn, and has it again afterwards. What is a little old is read while others choose by it; only
// what is older than claimsAtMost, factsAtMost, or what the caller allows, is waited for.
func (s *Service) refresh(ctx context.Context, fresh time.Time) error {
	for waited := false; ; waited = true {
		if err := s.open(ctx); err != nil {
			return err
		}
		now, wait := s.now(), (chan struct{})(nil)
		claims, facts := now.Sub(s.read), now.Sub(s.known.at)
		behind, unsure := claims > claimsAtMost || s.read.Before(fresh), facts > factsAtMost
		switch {
		case waited && behind && s.reading == nil && s.unread != nil:
			return s.unread
		case waited && unsure && s.learning == nil && s.unlearned != nil:
			return s.unlearned
		}
		if s.reading == nil && (behind || claims > claimsEvery) {
			s.reading, s.unread = make(chan struct{}), nil
			go s.readChanges(context.WithoutCancel(ctx), s.read, s.seen)
		}
		if s.learning == nil && facts > factsEvery {
			s.learning, s.unlearned = make(chan struct{}), nil
			go s.relearn(context.WithoutCancel(ctx), s.known)
		}
		switch {
		case behind:
			wait = s.reading
		case unsure:
			wait = s.learning
		default:
			return nil
		}
		s.pass()
		select {
		case <-wait:
		case <-ctx.Done():
		}
		s.turn <- struct{}{}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// open makes the view where there is none, or none of this inventory. It is done for all who wait
// for it: that the request which happens to do it is given up meanwhile undoes nothing.
func (s *Service) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshWithin)
	defer cancel()
	snap := s.d.Inventory()
	if s.view == nil || snap.Generation != s.generation {
		s.index = fleet.NewIndex(snap)
		s.places = s.index.Places()
		s.generation, s.read = snap.Generation, time.Time{}
	}
	if s.known == nil || s.known.index != s.index {
		f, err := s.learn(ctx, s.index, s.known)
		if err != nil {
			return err
		}
		s.known = f
	}
	if s.read.IsZero() {
		return s.rebuild(ctx, s.now())
	}
	return nil
}

// readChanges reads what was changed since a time, without the turn, and puts it into the view.
func (s *Service) readChanges(ctx context.Context, since time.Time, old map[estate.Change]struct{}) {
	c, err := s.changes(ctx, since, old)
	s.turn <- struct{}{}
	defer s.pass()
	s.accept(c, err)
}

// changed is what was changed since a time, as it was read from another time on.
type changed struct {
	since, began time.Time
	seen         map[estate.Change]struct{}
	rows         []rows
}

// changes reads what was changed since a time, but for changes that are known.
func (s *Service) changes(ctx context.Context, since time.Time, old map[estate.Change]struct{}) (c changed, err error) {
	ctx, cancel := context.WithTimeout(ctx, refreshWithin)
	defer cancel()
	c = changed{since: since, began: s.now(), seen: make(map[estate.Change]struct{}, len(old))}
	all, err := s.d.Estate.Changes(ctx, since.Add(-overlap))
	if err != nil {
		return c, fmt.Errorf("read changes: %w", err)
	}
	servers := make(map[string]struct{})
	for _, one := range all {
		c.seen[one] = struct{}{}
		if _, known := old[one]; !known {
			servers[one.Server] = struct{}{}
		}
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(servers)), manyAtOnce) {
		r, err := s.some(ctx, part)
		if err != nil {
			return c, err
		}
		c.rows = append(c.rows, r)
	}
	return c, nil
}

// accept puts into the view what changes read, or says why that could not be read; the caller has the turn.
func (s *Service) accept(c changed, err error) {
	close(s.reading)
	s.reading = nil
	if err == nil && s.read.Equal(c.since) { // else all was read meanwhile
		for i := range c.rows {
			if err = s.put(&c.rows[i], c.began); err != nil {
				s.read = time.Time{} // all is read again before the next choice
				break
			}
		}
		if err == nil {
			s.read, s.seen = c.began, c.seen
			maps.DeleteFunc(s.taken, func(_ *promise, at time.Time) bool { return at.Before(c.began) })
		}
	}
	s.unread = err
}

// facts is how well everything was at a time, by the inventory of then.
type facts struct {
	at     time.Time
	index  *fleet.Index
	judged map[string]judgement // by server

	failed   map[string]time.Time // by server: when something of it failed last
	failedAt time.Time            // when that was read
}

// judgement is how well a server is, and what runs on it.
type judgement struct {
	health fit.Health
	open   string // the case of control
	risks  []fit.Risk
	failed time.Time
	busy   string
}

func (j *judgement) equal(k *judgement) bool {
	return j.health == k.health && j.open == k.open && j.failed.Equal(k.failed) && j.busy == k.busy && slices.Equal(j.risks, k.risks)
}

// relearn reads how well everything is, without the turn: it takes long on a large fleet.
func (s *Service) relearn(ctx context.Context, old *facts) {
	ctx, cancel := context.WithTimeout(ctx, refreshWithin)
	defer cancel()
	f, err := s.learn(ctx, old.index, old)
	s.turn <- struct{}{}
	defer s.pass()
	close(s.learning)
	s.learning = nil
	if s.unlearned = err; err != nil || s.known != old { // of another inventory
		return
	}
	s.known = f
	if s.view == nil {
		return
	}
	for name, j := range f.judged {
		if was := old.judged[name]; was.equal(&j) {
			continue
		}
		if err := s.view.Update(name, func(v *fit.Server) { s.judge(v) }); err != nil {
			s.read = time.Time{} // all is read again before the next choice
			s.unlearned = err
			return
		}
	}
}

// learn reads how well everything of an inventory is; old is what was known before, or nil.
func (s *Service) learn(ctx context.Context, index *fleet.Index, old *facts) (*facts, error) {
	now := s.now()
	f := &facts{at: now, index: index, judged: make(map[string]judgement, len(index.Servers))}
	incidents, err := all(ctx, records.Filter{Status: records.StatusOpen}, s.d.Records.Incidents)
	if err != nil {
		return nil, fmt.Errorf("read incidents: %w", err)
	}
	predictions, err := all(ctx, records.Filter{Status: schemas.PredictionOpen}, s.d.Records.Predictions)
	if err != nil {
		return nil, fmt.Errorf("read predictions: %w", err)
	}
	cases, err := s.d.Estate.Cases(ctx)
	if err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	if old != nil {
		f.failed, f.failedAt = old.failed, old.failedAt
	}
	if f.failedAt.IsZero() || now.Sub(f.failedAt) > failedEvery {
		past, err := all(ctx, records.Filter{Since: now.Add(-remembered)}, s.d.Records.Incidents)
		if err != nil {
			return nil, fmt.Errorf("read incidents: %w", err)
		}
		f.failed, f.failedAt = make(map[string]time.Time), now
		for i := range past {
			if d := index.Device(past[i].RootCause.Resource); d != "" && past[i].Severity != schemas.SeverityInfo && past[i].Opened.After(f.failed[d]) {
				f.failed[d] = past[i].Opened
			}
		}
	}
	states, risks := index.States(fleet.Facts{Incidents: incidents}), make(map[string][]fit.Risk)
	for i := range predictions {
		p := &predictions[i]
		d := cmp.Or(p.Server, index.Device(p.Resource))
		r := fit.Risk{
			Part: p.Resource, Failure: cmp.Or(p.Failure, p.Metric), Probability: p.Probability, Made: p.Time,
			Horizon: p.Time.Add(time.Duration(p.HorizonSeconds * float64(time.Second))),
		}
		for _, q := range []struct {
			to   *time.Time
			from *time.Time
		}{{&r.P10, p.ETAP10}, {&r.P50, p.ETAP50}, {&r.P90, p.ETAP90}} {
			if q.from != nil {
				*q.to = *q.from
			}
		}
		risks[d] = append(risks[d], r)
	}
	for i := range index.Servers {
		srv := &index.Servers[i]
		j := judgement{open: cases[srv.ID], risks: risks[srv.ID], failed: f.failed[srv.ID]}
		state, _ := states.Server(index, *srv)
		switch state {
		case fleet.OK, fleet.Predicted: // what is predicted is weighed by itself
			j.health = fit.OK
		case fleet.Warning, fleet.Affected:
			j.health = fit.Warning
		case fleet.Unknown:
			j.health = fit.Unknown
		default:
			j.health = fit.Critical
		}
		if s.d.Running != nil {
			if busy := s.d.Running(srv.ID); len(busy) > 0 {
				j.busy = busy[0] + " runs on it"
			}
		}
		f.judged[srv.ID] = j
	}
	return f, nil
}

// all reads every page of a list.
func all[T any](ctx context.Context, f records.Filter, list func(context.Context, records.Filter) ([]T, string, error)) (out []T, err error) {
	for f.Limit = 1000; ; {
		page, next, err := list(ctx, f)
		if err != nil {
			return nil, err
		}
		out = append(out, page...)
		if f.After = next; next == "" {
			return out, nil
		}
	}
}

// judge says how well a server is.
func (s *Service) judge(v *fit.Server) {
	j := s.known.judged[v.Name]
	v.Health, v.Hold, v.Case, v.Risks, v.Failed = j.health, cmp.Or(s.holds[v.Name], j.busy), j.open, j.risks, j.failed
}

// rows is what the stores say of servers.
type rows struct {
	servers []schemas.Server
	gpus    []schemas.GPU
	claims  []allocations.Claim
}

// rebuild makes the view anew.
func (s *Service) rebuild(ctx context.Context, now time.Time) (err error) {
	var r rows
	if r.servers, r.gpus, err = s.d.Estate.All(ctx); err != nil {
		return err
	}
	if r.claims, err = s.d.Allocations.Claims(ctx, nil); err != nil {
		return err
	}
	s.holds = make(map[string]string, len(r.servers))
	s.view, s.ids = fit.NewView(), make(map[string]string, len(r.servers)+len(r.gpus))
	if err := s.put(&r, now); err != nil {
		return err
	}
	s.read, s.seen = now, nil
	return nil
}

// some reads some servers.
func (s *Service) some(ctx context.Context, ids []string) (r rows, err error) {
	if r.servers, r.gpus, err = s.d.Estate.Some(ctx, ids); err != nil {
		return r, err
	}
	r.claims, err = s.d.Allocations.Claims(ctx, ids)
	return r, err
}

// put has the view say what was read, which began at a time; the caller has the turn. What was
// promised, or taken since, those rows do not tell.
func (s *Service) put(r *rows, began time.Time) error {
	promised := slices.Collect(maps.Keys(s.promises))
	for p, at := range s.taken {
		if !at.Before(began) {
			promised = append(promised, p)
		}
	}
	bookings := make(map[string][]fit.Booking)
	for _, c := range r.claims {
		b := fit.Booking{Whole: c.GPU == "", From: c.From, Until: c.Until}
		if c.GPU != "" {
			b.GPUs = []string{c.GPU}
		}
		bookings[c.Server] = append(bookings[c.Server], b)
	}
	parts := make(map[string][]fit.GPU)
	for i := range r.gpus {
		g := &r.gpus[i]
		memory := 0.0
		if g.MemoryGB != nil {
			memory = *g.MemoryGB
		}
		parts[g.ServerID] = append(parts[g.ServerID], fit.GPU{Name: g.Name, Model: g.Model, MemoryGB: memory, Status: g.Status})
		s.ids[g.Name] = g.ID
	}
	for i := range r.servers {
		v := &r.servers[i]
		_, there := s.known.judged[v.Name]
		if !v.Present || v.Status == schemas.ServerRetired || !there {
			s.view.Remove(v.Name)
			continue
		}
		p := s.places[v.Name]
		one := fit.Server{
			Name: v.Name, Model: v.Model, Pool: v.Pool, Status: v.Status, Labels: v.Labels, Site: p.Site, Row: p.Row, Rack: p.Rack, Feeds: p.Feeds,
			Leaves: p.Leaves, NVLink: p.NVLink, GPUs: parts[v.ID], Bookings: merge(bookings[v.ID]), Bare: v.Reason == allocations.WhyBare,
		}
		for _, p := range promised {
			if b, ok := p.of[v.Name]; ok {
				one.Bookings = append(one.Bookings, b)
			}
		}
		s.holds[v.Name] = v.Hold
		s.judge(&one)
		if err := s.view.Put(one); err != nil {
			return err
		}
		s.ids[v.Name] = v.ID
	}
	return nil
}

// merge makes one booking of those of the same time.
func merge(all []fit.Booking) []fit.Booking {
	slices.SortFunc(all, func(a, b fit.Booking) int {
		return cmp.Or(a.From.Compare(b.From), a.Until.Compare(b.Until), strings.Compare(strings.Join(a.GPUs, ""), strings.Join(b.GPUs, "")))
	})
	var out []fit.Booking
	for _, b := range all {
		if n := len(out); n > 0 && out[n-1].From.Equal(b.From) && out[n-1].Until.Equal(b.Until) {
			out[n-1].Whole, out[n-1].GPUs = out[n-1].Whole || b.Whole, append(out[n-1].GPUs, b.GPUs...)
			continue
		}
		out = append(out, b)
	}
	return out
}
