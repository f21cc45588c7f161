package main

import (
	"context"
	"time"

	"auspex/internal/run"
	"auspex/predictor"
)

// predict says what fails next.
func (s *stack) predict() []run.Component {
	if !s.cfg.has(RolePredict) {
		return nil
	}
	return []run.Component{late("predictor", func(context.Context) (run.Component, error) {
		return predictor.New(s.cfg.Predictor, predictor.Deps{
			Bus: s.bus, Placer: s.enrich, Records: s.records, DB: s.db, Log: s.log, Metrics: s.reg, Now: time.Now,
		})
	})}
}
