package main

import (
	"context"
	"time"

	"auspex/internal/run"
	"auspex/pipeline/enrich"
	"auspex/predictor"
)

// predict says what fails next.
func (s *stack) predict() []run.Component {
	if !s.cfg.has(RolePredict) {
		return nil
	}
	return []run.Component{late("predictor", func(context.Context) (run.Component, error) {
		return predictor.New(s.cfg.Predictor, predictor.Deps{
			Bus: s.bus, Placer: predictorPlacer{s.enrich}, Records: s.records, DB: s.db, Log: s.log, Metrics: s.reg, Now: time.Now,
		})
	})}
}

// predictorPlacer hands the enricher's answers to the predictor.
type predictorPlacer struct{ e *enrich.Enricher }

// Part implements predictor.Placer.
func (p predictorPlacer) Part(device, kind, part string) predictor.Placement {
	return predictor.Placement(p.e.Part(device, kind, part))
}

// GPU implements predictor.Placer.
func (p predictorPlacer) GPU(device string, index uint32, uuid, pci string) predictor.Placement {
	return predictor.Placement(p.e.GPU(device, index, uuid, pci))
}
