package main

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/control"
	_ "auspex/control/all" // registers every driver
	"auspex/control/life"
	"auspex/internal/run"
	"auspex/schemas"
)

// control climbs ladders; what has no driver here says "cannot".
func (s *stack) control() []run.Component {
	if !s.cfg.has(RoleControl) {
		return nil
	}
	return []run.Component{s.lasting("control", func(reg prometheus.Registerer) (run.Component, error) {
		remediators, err := s.cfg.Control.Drivers.Remediators(control.Settings{
			Log: s.log, Now: time.Now, Resource: func(id string) (schemas.Resource, bool) { return s.inv.Snapshot().Resource(id) },
			Secrets: &s.secrets, Gate: s.gate,
		})
		if err != nil {
			return nil, err
		}
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		return control.New(s.cfg.Control.Config, control.Deps{
			Log: s.log, Metrics: reg, Now: time.Now, DB: s.db, Records: s.records, Bus: s.bus, Inventory: place{s.inv}, Remediators: remediators,
			Life: life.Bus{Bus: s.bus, Placer: s.enrich}, View: collectors.ViewOf, Holder: host,
		})
	})}
}
