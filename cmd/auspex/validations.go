package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/hot"
	"auspex/internal/store/validations"
	"auspex/internal/validation"
	"auspex/schemas"
)

// kept keeps what was found of servers, with what collectors, the inventory and the rest of the fleet tell. It implements
// control.Validations.
type kept struct {
	s     *stack
	hot   *hot.Window // nil where this process sees no telemetry
	store *validations.Store
}

// Keep implements control.Validations.
func (k kept) Keep(ctx context.Context, v schemas.Validation) error {
	server, err := estate.New(k.s.db).Server(ctx, v.Server)
	if errors.Is(err, entity.ErrNone) { // there is nothing to keep it with
		return nil
	}
	if err != nil {
		return err
	}
	v.ServerID = server.ID
	w := validation.World{Parts: k.s.below(v.Server), Answered: answered(&v)}
	_, w.GPUs, err = estate.New(k.s.db).Some(ctx, []string{server.ID})
	if err != nil {
		return err
	}
	if w.Fleet, err = k.store.Fleet(ctx, server.ID); err != nil {
		return err
	}
	now := time.Now()
	if k.hot != nil {
		if err := k.read(ctx, &server, &w, now); err != nil {
			return err
		}
	}
	v.Checks = append(v.Checks, validation.Checks(v.Server, &w, now)...)
	_, err = k.store.Put(ctx, v)
	return err
}

// read fills in what telemetry tells.
func (k kept) read(ctx context.Context, server *schemas.Server, w *validation.World, now time.Time) (err error) {
	since := now.Add(-readWithin)
	var all map[string]map[string]float64
	w.Read, err = k.hot.Newest(ctx, server.Name, since, nil)
	if err == nil {
		w.Values, err = k.hot.Values(ctx, server.Name, now.Add(-validation.Recent), validation.NICUp, validation.NICSpeed)
	}
	if err == nil {
		all, err = k.hot.Values(ctx, "", now.Add(-validation.Recent), validation.NICSpeed)
	}
	if err != nil {
		return err
	}
	names := k.s.inv.Snapshot()
	w.Speeds = map[string][]float64{}
	for id, values := range all {
		other := names.Server(id)
		r, ok := names.Resource(other)
		if ok && other != server.Name && server.Model != "" && r.Attrs.Get(schemas.AttrModel) == server.Model {
			short := strings.TrimPrefix(id, other+"/")
			w.Speeds[short] = append(w.Speeds[short], values[validation.NICSpeed])
		}
	}
	return nil
}

// answered is how many GPUs an agent could test, where it was to test all of a server.
func answered(v *schemas.Validation) *int {
	if v.Part != "" {
		return nil
	}
	n := 0
	for i := range v.Checks {
		if c := &v.Checks[i]; c.Name == "driver" && c.Source == schemas.SeenByAgent && c.Verdict == schemas.CheckPassed {
			n++
		}
	}
	return &n
}
