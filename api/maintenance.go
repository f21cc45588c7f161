package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/store/entity"
	"auspex/internal/store/maintenance"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

const (
	tellEvery   = 2 * time.Second      // between two attempts to publish what the bus does not know
	forgetEvery = time.Hour            // between two looks for windows that are too old
	keepWindows = 400 * 24 * time.Hour // after their end: last year's work is looked up when the same comes again
)

func (s *Server) maintenance() (Maintenance, error) {
	if s.deps.Maintenance == nil {
		return nil, problem{
			http.StatusServiceUnavailable, "no_maintenance", "This console has no maintenance windows.", "Ask a role with the relational store.",
		}
	}
	return s.deps.Maintenance, nil
}

func refusedWindow(err error, id string) error {
	bad := maintenance.BadError{}
	switch {
	case errors.Is(err, maintenance.ErrNone):
		return missing("maintenance window", id)
	case errors.Is(err, maintenance.ErrOver):
		return problem{http.StatusConflict, "over", "The maintenance window is over.", "Declare another one."}
	case errors.Is(err, maintenance.ErrScheduler):
		return problem{http.StatusConflict, "of_scheduler", "The maintenance window is a reservation of the scheduler.", "Change it there."}
	case errors.As(err, &bad):
		return faulty("body", bad.Field, "bad_maintenance", bad.Text, "GET /maintenance lists the kinds of work, and for which kinds of resources each can be declared.")
	}
	return refused(err, "maintenance window", id)
}

// ListMaintenance implements the operation listMaintenance.
func (s *Server) ListMaintenance(ctx context.Context, r apigen.ListMaintenanceRequestObject) (apigen.ListMaintenanceResponseObject, error) {
	store, err := s.maintenance()
	if err != nil {
		return nil, err
	}
	names, now := s.live.directory(), time.Now()
	place := ""
	if r.Params.Resource != "" {
		if place, err = one(names, r.Params.Resource, "resource", names.Find(r.Params.Resource)); err != nil {
			return nil, err
		}
	}
	var items []schemas.Maintenance
	next := ""
	if r.Params.Open {
		if items, err = store.Open(ctx, now); err == nil && r.Params.Sort != "" {
			items, err = maintenance.Sorted(items, string(r.Params.Sort))
		}
	} else {
		items, next, err = store.List(ctx, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	}
	if err != nil {
		return nil, listed(err)
	}
	if place != "" {
		items = slices.DeleteFunc(items, func(m schemas.Maintenance) bool { return !concerns(names, &m, place) })
	}
	for i := range items {
		items[i] = items[i].At(now)
	}
	works, kinds := s.deps.Faults().Works()
	works = append(slices.Clone(works), schemas.WorkFreeze)
	out := apigen.ListMaintenance200JSONResponse{Items: orEmpty(items), Next: next, Works: []apigen.MaintenanceWork{}}
	for _, w := range works {
		of := kinds[w]
		if w == schemas.WorkFreeze {
			of = schemas.FreezeKinds()
		}
		out.Works = append(out.Works, apigen.MaintenanceWork{Work: w, Kinds: of})
	}
	return out, nil
}

func concerns(names *cmdb.Snapshot, m *schemas.Maintenance, place string) bool {
	return slices.ContainsFunc(m.Resources, func(r string) bool { return names.Covers(r, place) })
}

// GetMaintenance implements the operation getMaintenance.
func (s *Server) GetMaintenance(ctx context.Context, r apigen.GetMaintenanceRequestObject) (apigen.GetMaintenanceResponseObject, error) {
	store, err := s.maintenance()
	if err != nil {
		return nil, err
	}
	m, err := store.Get(ctx, r.ID)
	if err != nil {
		return nil, refusedWindow(err, r.ID)
	}
	return apigen.GetMaintenance200JSONResponse{Body: m.At(time.Now()), Headers: apigen.GetMaintenance200ResponseHeaders{ETag: etag(m.Revision())}}, nil
}

// DeclareMaintenance implements the operation declareMaintenance.
func (s *Server) DeclareMaintenance(
	ctx context.Context, r apigen.DeclareMaintenanceRequestObject,
) (apigen.DeclareMaintenanceResponseObject, error) {
	if err := s.somewhere(ctx, access.Declare); err != nil {
		return nil, err
	}
	store, err := s.maintenance()
	if err != nil {
		return nil, err
	}
	b, names := r.Body, s.live.directory()
	find := func(text string) (string, error) {
		name, err := one(names, text, "resource", names.Find(text))
		return name, seen(ctx).theirs("resource", text, name, err)
	}
	m, err := maintenance.Request{
		Resources: b.Resources, Match: b.Match, Matches: seen(ctx).runsOn, From: b.From, Until: b.Until, Seconds: b.DurationSeconds, Grace: b.GraceSeconds,
		Reason: b.Reason, Work: b.Work, By: Caller(ctx).Name, Pools: b.Pools, Pool: func(text string) (string, error) { return s.poolNamed(ctx, text) },
	}.Window(names, find, s.deps.Faults(), time.Now().UTC())
	if err == nil {
		err = s.mayDeclare(ctx, &m)
	}
	if err != nil {
		return nil, refusedWindow(err, "")
	}
	key := cmp.Or(r.Params.IdempotencyKey, m.Declared.Format(time.RFC3339Nano))
	m.ID = schemas.OperatorWindow + schemas.EventID("maintenance", m.By, key)[:10]
	if m, err = store.Declare(ctx, m); err != nil {
		return nil, err
	}
	s.log.Info("maintenance declared", "window", m.ID, "resources", len(m.Resources), "from", m.From, "until", m.Until, "actor", m.By)
	s.publishWindows()
	return apigen.DeclareMaintenance201JSONResponse{Body: m.At(time.Now()), Headers: apigen.DeclareMaintenance201ResponseHeaders{
		ETag: etag(m.Revision()), Location: s.at("maintenance", m.ID),
	}}, nil
}

// mayDeclare refuses those who may not declare work on all that a window is for.
func (s *Server) mayDeclare(ctx context.Context, m *schemas.Maintenance) error {
	if len(m.Pools) > 0 && (seen(ctx) != nil || !Caller(ctx).May(access.Declare)) {
		return lacks(ctx, access.Declare, m.Pools[0])
	}
	names := s.live.directory()
	servers := make([]string, len(m.Resources))
	for i, name := range m.Resources {
		servers[i] = cmp.Or(names.Server(name), name)
	}
	return s.mayOn(ctx, access.Declare, servers...)
}

// poolNamed resolves a pool, by name or id.
func (s *Server) poolNamed(ctx context.Context, text string) (string, error) {
	if s.deps.Estate == nil {
		return "", problem{http.StatusServiceUnavailable, "no_estate", "This console knows no pools.", "Ask a role with the relational store."}
	}
	p, err := s.deps.Estate.Pool(ctx, text)
	if errors.Is(err, entity.ErrNone) {
		return "", faulty("body", "pools", "bad_maintenance", fmt.Sprintf("There is no pool %s.", text), "GET /pools lists them.")
	}
	return p.Name, err
}

// declared returns the store for those who may change a window: on all of its resources they may
// declare one.
func (s *Server) declared(ctx context.Context, id string) (Maintenance, error) {
	if err := s.somewhere(ctx, access.Declare); err != nil {
		return nil, err
	}
	store, err := s.maintenance()
	if err != nil {
		return nil, err
	}
	m, err := store.Get(ctx, id)
	if err != nil {
		return nil, refusedWindow(err, id)
	}
	// Whoever may override a freeze may end it, and who declared it; else it would hold nobody.
	if m.Work == schemas.WorkFreeze && m.By != Caller(ctx).Name && !Caller(ctx).May(access.Assign) {
		return nil, problem{http.StatusForbidden, "not_yours", "The freeze is of " + m.By + ".", "They or an admin change and end it."}
	}
	if seen(ctx) == nil && Caller(ctx).May(access.Declare) {
		return store, nil
	}
	if slices.ContainsFunc(m.Resources, func(name string) bool { return !seen(ctx).runsOn(name) }) {
		return nil, errSite
	}
	return store, s.mayDeclare(ctx, &m)
}

// UpdateMaintenance implements the operation updateMaintenance.
func (s *Server) UpdateMaintenance(
	ctx context.Context, r apigen.UpdateMaintenanceRequestObject,
) (apigen.UpdateMaintenanceResponseObject, error) {
	store, err := s.declared(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	now, c := time.Now().UTC(), maintenance.Change{Until: r.Body.Until, Seconds: r.Body.DurationSeconds, Reason: r.Body.Reason, Grace: r.Body.GraceSeconds}
	m, err := store.Change(ctx, r.ID, Caller(ctx).Name, of, now, func(m *schemas.Maintenance) error { return c.Of(m, now) })
	if err != nil {
		return nil, refusedWindow(err, r.ID)
	}
	s.log.Info("maintenance changed", "window", m.ID, "until", m.Until, "actor", m.ChangedBy)
	s.publishWindows()
	return apigen.UpdateMaintenance200JSONResponse{Body: m.At(now), Headers: apigen.UpdateMaintenance200ResponseHeaders{ETag: etag(m.Revision())}}, nil
}

// DeleteMaintenance implements the operation deleteMaintenance.
func (s *Server) DeleteMaintenance(
	ctx context.Context, r apigen.DeleteMaintenanceRequestObject,
) (apigen.DeleteMaintenanceResponseObject, error) {
	of, err := revision(r.Params.IfMatch)
	if err == nil {
		_, err = s.endMaintenance(ctx, r.ID, of)
	}
	if err != nil {
		return nil, err
	}
	return apigen.DeleteMaintenance204Response{}, nil
}

// EndMaintenance implements the operation endMaintenance.
func (s *Server) EndMaintenance(ctx context.Context, r apigen.EndMaintenanceRequestObject) (apigen.EndMaintenanceResponseObject, error) {
	m, err := s.endMaintenance(ctx, r.ID, 0)
	if err != nil {
		return nil, err
	}
	return apigen.EndMaintenance200JSONResponse(m), nil
}

// endMaintenance ends a window of a revision; 0 is any.
func (s *Server) endMaintenance(ctx context.Context, id string, of int64) (m schemas.Maintenance, err error) {
	store, err := s.declared(ctx, id)
	if err != nil {
		return m, err
	}
	now := time.Now().UTC()
	if m, err = store.End(ctx, id, Caller(ctx).Name, of, now); err != nil {
		return m, refusedWindow(err, id)
	}
	s.log.Info("maintenance ended", "window", m.ID, "actor", m.EndedBy)
	s.publishWindows()
	return m.At(now), nil
}

// publishWindows has windows published, and the pages that show them marked.
func (s *Server) publishWindows() {
	s.live.mark("maintenance", "audit")
	select {
	case s.told <- struct{}{}:
	default:
	}
}

// announceMaintenance publishes the events of windows that the bus does not know yet,
// whoever declared them, until ctx is done. What is published twice is one event.
func (s *Server) announceMaintenance(ctx context.Context) {
	if s.deps.Maintenance == nil || s.deps.Publisher == nil {
		return
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var forgot time.Time
	for failing := false; ; {
		err := s.publishMaintenance(ctx)
		if now := time.Now(); err == nil && now.Sub(forgot) > forgetEvery {
			forgot, err = now, s.deps.Maintenance.Forget(ctx, now.Add(-keepWindows))
		}
		if err != nil && ctx.Err() == nil && !failing {
			s.log.Error("maintenance windows are not kept up to date; trying again", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-s.told:
		case <-tick.C:
		}
	}
}

func (s *Server) publishMaintenance(ctx context.Context) error {
	windows, err := s.deps.Maintenance.Untold(ctx)
	if err != nil {
		return err
	}
	names := s.live.directory()
	for i := range windows {
		m := &windows[i]
		var msgs []bus.Message
		for _, ev := range m.Events() {
			device := cmp.Or(names.Server(ev.Resource), ev.Resource)
			b := auspexv1.Batch{Device: device, Collector: m.Source, Observed: ev.Observed.UnixNano(), Events: []*auspexv1.Event{ev.Wire()}}
			value, err := b.MarshalVT()
			if err != nil {
				return fmt.Errorf("encode maintenance window %s: %w", m.ID, err)
			}
			msgs = append(msgs, bus.Message{Topic: schemas.TopicEvents, Key: device, Value: value})
		}
		if err := s.deps.Publisher.Publish(ctx, msgs...); err != nil {
			return fmt.Errorf("publish maintenance window %s: %w", m.ID, err)
		}
		if err := s.deps.Maintenance.Told(ctx, m); err != nil {
			return err
		}
	}
	return nil
}
