package main

import (
	"context"
	"errors"
	"fmt"

	"auspex/api/instance"
	"auspex/internal/store/entity"
	"auspex/internal/store/wipes"
	"auspex/internal/wipe"
	"auspex/schemas"
)

// wiped has what workflows that wipe found. It implements control.Wipes.
type wiped struct{ store *wipes.Store }

// Open implements control.Wipes.
func (w wiped) Open(ctx context.Context, action, server, workflow string) (string, error) {
	return w.store.Open(ctx, wipes.Order{Action: action, ServerID: server, Workflow: workflow})
}

// Close implements control.Wipes.
func (w wiped) Close(ctx context.Context, action string) error { return w.store.Close(ctx, action) }

// Found implements control.Wipes.
func (w wiped) Found(ctx context.Context, action string) (schemas.Wipe, bool, error) {
	return w.store.Last(ctx, action)
}

// proofs keeps what workflows tell, judged by the hardware record of their server.
type proofs struct {
	store  *wipes.Store
	record func(ctx context.Context, server string) (schemas.HardwareRecord, error)
}

// of is what an instance.Server does with a report.
func (p proofs) of(ctx context.Context, token string) (func(context.Context, *wipe.Report) (schemas.Wipe, error), error) {
	o, err := p.store.Told(ctx, token)
	if errors.Is(err, entity.ErrNone) {
		return nil, fmt.Errorf("%w has that token", instance.ErrUnknown)
	}
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, r *wipe.Report) (schemas.Wipe, error) {
		record, err := p.record(ctx, o.ServerID)
		if err != nil {
			return schemas.Wipe{}, err
		}
		w := schemas.Wipe{ServerID: o.ServerID, Server: record.Name, Action: o.Action, Workflow: o.Workflow, Began: r.Began.UTC(), Ended: r.Ended.UTC()}
		if w.Drives, w.Proven, err = wipe.Judge(r, record.Disks); err != nil {
			return w, err
		}
		return p.store.Put(ctx, w)
	}, nil
}
