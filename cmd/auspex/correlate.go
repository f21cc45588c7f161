package main

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/correlator"
	"auspex/correlator/learn"
	"auspex/correlator/notify"
	"auspex/internal/run"
	"auspex/internal/store/learned"
	"auspex/schemas"
)

// correlate folds alerts into incidents, looks for what else follows what, and notifies Alertmanager.
func (s *stack) correlate() []run.Component {
	if !s.cfg.has(RoleCorrelate) {
		return nil
	}
	var cfg atomic.Pointer[correlator.Config]
	var now atomic.Pointer[correlator.Correlator]
	cfg.Store(&s.cfg.Correlator)
	var collecting atomic.Pointer[Config]
	collecting.Store(&s.cfg)
	s.reloads("correlator", func(ctx context.Context, changed Config) (func(context.Context) error, error) {
		apply, err := now.Load().Prepare(ctx, changed.Correlator)
		return func(ctx context.Context) error {
			if err := apply(ctx); err != nil {
				return err
			}
			cfg.Store(&changed.Correlator)
			return nil
		}, err
	}, "correlator.faults", "correlator.close_after")
	s.reloads("unread servers", func(_ context.Context, changed Config) (func(context.Context) error, error) {
		return func(context.Context) error {
			collecting.Store(&changed)
			now.Load().SetUnread(unread(&changed.Collectors))
			return nil
		}, nil
	}, "collectors")
	comps := []run.Component{s.lasting("correlator", func(reg prometheus.Registerer) (run.Component, error) {
		c := correlator.New(*cfg.Load(), s.inv, s.db, s.bus, s.log, reg)
		c.SetUnread(unread(&collecting.Load().Collectors))
		c.SetLearned(learn.Stored{Store: learned.New(s.db)})
		now.Store(c)
		return c, nil
	})}
	comps = append(comps, s.lasting("edges", func(reg prometheus.Registerer) (run.Component, error) {
		return learn.NewProposer(s.cfg.Learn.Edges, func() []string { return cfg.Load().Faults }, s.inv, s.db, s.log, reg), nil
	}))
	if len(s.cfg.Notify.Alertmanagers) > 0 {
		comps = append(comps, s.lasting("notify", func(reg prometheus.Registerer) (run.Component, error) {
			n := notify.New(s.cfg.Notify, s.records, s.bus, s.log, reg)
			s.health.Check("alertmanager", n.Health)
			return n, nil
		}))
	}
	return comps
}

// unread says which servers no collector of a configuration reads from inside: none where it names no collector, since
// another process then collects.
func unread(c *Collectors) func(*schemas.Topology) []string {
	return func(t *schemas.Topology) []string {
		if len(c.m) == 0 {
			return nil
		}
		return collectors.Unread(c.m, *t)
	}
}
