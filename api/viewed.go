package api

import (
	"context"
	"slices"
	"time"

	"auspex/internal/store/records"
	"auspex/schemas"
)

// viewed are the records as the caller of a context sees them, whatever handler asks.
type viewed struct{ Records }

// Alert implements [Records].
func (r viewed) Alert(ctx context.Context, id string) (schemas.Alert, bool, error) {
	a, found, err := r.Records.Alert(ctx, id)
	if v := seen(ctx); found && !v.alert(&a) {
		return schemas.Alert{}, false, err
	}
	return a, found, err
}

func (v *sight) alert(a *schemas.Alert) bool { return v.event(a.Resource, a.Server, a.Time) }

// Alerts implements [Records].
func (r viewed) Alerts(ctx context.Context, f records.Filter) ([]schemas.Alert, string, error) {
	return limited(ctx, f, r.Records.Alerts, (*sight).alert)
}

// Action implements [Records].
func (r viewed) Action(ctx context.Context, id string) (schemas.Action, bool, error) {
	a, found, err := r.Records.Action(ctx, id)
	if v := seen(ctx); found && !v.action(&a) {
		return schemas.Action{}, false, err
	}
	return a, found, err
}

func (v *sight) action(a *schemas.Action) bool { return v.at(a.Server, a.Created) }

// Actions implements [Records].
func (r viewed) Actions(ctx context.Context, f records.Filter) ([]schemas.Action, string, error) {
	return limited(ctx, f, r.Records.Actions, (*sight).action)
}

// Predictions implements [Records].
func (r viewed) Predictions(ctx context.Context, f records.Filter) ([]schemas.Prediction, string, error) {
	return limited(ctx, f, r.Records.Predictions, func(v *sight, p *schemas.Prediction) bool { return v.event(p.Resource, p.Server, p.Time) })
}

// Incident implements [Records].
func (r viewed) Incident(ctx context.Context, id string) (schemas.Incident, bool, error) {
	i, found, err := r.Records.Incident(ctx, id)
	if found {
		i, found = seen(ctx).incident(i)
	}
	if !found {
		i = schemas.Incident{}
	}
	return i, found, err
}

// IncidentOf implements [Records].
func (r viewed) IncidentOf(ctx context.Context, event string, from, to time.Time) (schemas.Incident, bool, error) {
	i, found, err := r.Records.IncidentOf(ctx, event, from, to)
	if found {
		i, found = seen(ctx).incident(i)
	}
	if !found {
		i = schemas.Incident{}
	}
	return i, found, err
}

// Incidents implements [Records].
func (r viewed) Incidents(ctx context.Context, f records.Filter) ([]schemas.Incident, string, error) {
	v := seen(ctx)
	if v == nil {
		return r.Records.Incidents(ctx, f)
	}
	return through(f.After, func(after string) ([]schemas.Incident, string, error) {
		f.After = after
		return r.Records.Incidents(ctx, f)
	}, func(i *schemas.Incident) (ok bool) {
		*i, ok = v.incident(*i)
		return ok
	})
}

// limited lists records of servers that the caller has or had, of the time in which they did.
func limited[T any](
	ctx context.Context, f records.Filter, list func(context.Context, records.Filter) ([]T, string, error), ok func(*sight, *T) bool,
) ([]T, string, error) {
	v := seen(ctx)
	if v == nil {
		return list(ctx, f)
	}
	if f.Servers = v.Servers(); len(f.Servers) == 0 {
		return nil, "", nil
	}
	return through(f.After, func(after string) ([]T, string, error) {
		f.After = after
		return list(ctx, f)
	}, func(x *T) bool { return ok(v, x) })
}

// past is the history as the caller of a context sees it.
type past struct{ History }

// Events implements [History].
func (h past) Events(ctx context.Context, f records.EventFilter) ([]schemas.Event, string, error) {
	v := seen(ctx)
	if v == nil {
		return h.History.Events(ctx, f)
	}
	if len(v.had) == 0 {
		return []schemas.Event{}, "", nil
	}
	known := false
	out, next, err := through(f.After, func(after string) ([]schemas.Event, string, error) {
		f.After = after
		out, next, err := h.during(ctx, v, f)
		known = known || out != nil
		return out, next, err
	}, func(*schemas.Event) bool { return true })
	if known {
		out = orEmpty(out)
	}
	return out, next, err
}

// during reads a page of what happened to servers of a tenant while they had them: of each time of
// each server a page, of which that counts which is not behind where one of them broke off.
func (h past) during(ctx context.Context, v *sight, f records.EventFilter) (out []schemas.Event, next string, err error) {
	var end *schemas.Event
	for _, server := range v.Servers() {
		if f.Device != "" && f.Device != server {
			continue
		}
		for _, sp := range v.had[server] {
			one := f
			one.Device = server
			if one.Since.Before(sp.From) {
				one.Since = sp.From
			}
			if !sp.Until.IsZero() && (one.Until.IsZero() || sp.Until.Before(one.Until)) {
				one.Until = sp.Until
			}
			found, more, err := h.History.Events(ctx, one)
			if err != nil {
				return nil, "", err
			}
			if found != nil && out == nil { // a server without events may be nil too, and says nothing of the others
				out = []schemas.Event{}
			}
			for k := range found {
				if v.event(found[k].Resource, server, found[k].Time) {
					out = append(out, found[k])
				}
			}
			if n := len(found); more != "" && n > 0 && (end == nil || f.Compare(&found[n-1], end) < 0) {
				end = &found[n-1]
			}
		}
	}
	slices.SortFunc(out, func(a, b schemas.Event) int { return f.Compare(&a, &b) })
	out = slices.CompactFunc(out, func(a, b schemas.Event) bool { return a.ID == b.ID }) // spans of two GPUs of a server meet
	if end != nil {
		out = slices.DeleteFunc(out, func(ev schemas.Event) bool { return f.Compare(&ev, end) > 0 })
		next = f.Ahead(end)
	}
	if len(out) > f.Limit {
		out, next = f.Page(out)
	}
	return out, next, nil
}

// Event implements [History].
func (h past) Event(ctx context.Context, id string) (schemas.Event, bool, error) {
	ev, found, err := h.History.Event(ctx, id)
	if v := seen(ctx); found && !v.event(ev.Resource, "", ev.Time) {
		return schemas.Event{}, false, err
	}
	return ev, found, err
}

// Readings implements [History].
func (h past) Readings(
	ctx context.Context, resource, metric string, counter bool, start time.Time, step time.Duration, n int,
) (map[string][]*float64, error) {
	found, err := h.History.Readings(ctx, resource, metric, counter, start, step, n)
	if v := seen(ctx); v != nil {
		for _, values := range found {
			for k := range values { // a value is of the step that ends there
				if at := start.Add(time.Duration(k) * step); !v.throughout(resource, at.Add(-step), at) {
					values[k] = nil
				}
			}
		}
	}
	return found, err
}
