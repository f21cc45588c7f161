package main

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/correlator"
	"auspex/correlator/learn"
	"auspex/correlator/notify"
	"auspex/internal/run"
	"auspex/internal/store/learned"
)

// correlate folds alerts into incidents, looks for what else follows what, and notifies Alertmanager.
func (s *stack) correlate() []run.Component {
	if !s.cfg.has(RoleCorrelate) {
		return nil
	}
	var cfg atomic.Pointer[correlator.Config]
	var now atomic.Pointer[correlator.Correlator]
	cfg.Store(&s.cfg.Correlator)
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
	comps := []run.Component{s.lasting("correlator", func(reg prometheus.Registerer) (run.Component, error) {
		c := correlator.New(*cfg.Load(), s.inv, s.db, s.bus, s.log, reg)
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
