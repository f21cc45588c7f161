package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auspex-dev/auspex/correlator"
	"github.com/auspex-dev/auspex/correlator/notify"
	"github.com/auspex-dev/auspex/internal/run"
)

// correlate folds alerts into incidents and tells them to Alertmanager.
func (s *stack) correlate() []run.Component {
	if !s.cfg.has(RoleCorrelate) {
		return nil
	}
	comps := []run.Component{s.lasting("correlator", func(reg prometheus.Registerer) (run.Component, error) {
		return correlator.New(s.cfg.Correlator, s.inv, s.db, s.bus, s.log, reg), nil
	})}
	if len(s.cfg.Notify.Alertmanagers) > 0 {
		comps = append(comps, s.lasting("notify", func(reg prometheus.Registerer) (run.Component, error) {
			return notify.New(s.cfg.Notify, s.records, s.bus, s.log, reg), nil
		}))
	}
	return comps
}
