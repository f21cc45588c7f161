package app

import (
	"context"

	"github.com/auspex-dev/auspex/correlator"
	"github.com/auspex-dev/auspex/correlator/notify"
	"github.com/auspex-dev/auspex/internal/run"
)

// correlate folds alerts into incidents and tells them to Alertmanager.
func (s *stack) correlate() []run.Component {
	if !s.cfg.has(RoleCorrelate) {
		return nil
	}
	comps := []run.Component{late("correlator", func(context.Context) (run.Component, error) {
		c := correlator.New(s.cfg.Correlator, s.inv, s.db, s.bus, s.log, s.reg)
		s.reloads("correlator", func(ctx context.Context, cfg Config) (func(context.Context) error, error) {
			return c.Prepare(ctx, cfg.Correlator)
		},
			"correlator.propagation", "correlator.close_after")
		return c, nil
	})}
	if len(s.cfg.Notify.Alertmanagers) > 0 {
		comps = append(comps, late("notify", func(context.Context) (run.Component, error) {
			return notify.New(s.cfg.Notify, s.records, s.bus, s.log, s.reg), nil
		}))
	}
	return comps
}
