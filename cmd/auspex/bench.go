package main

import (
	"io"

	"auspex/bench"
	"auspex/internal/config"
	"auspex/internal/run"
)

// benchProduct builds the product that a scenario measures.
func benchProduct(set []string, errw io.Writer) (*bench.Product, error) {
	cfg := DefaultConfig()
	if err := config.Load(config.Source{Set: set}, &cfg); err != nil {
		return nil, err
	}
	s := newStack(cfg, io.Discard, errw)
	parts := map[string]func() []run.Component{
		"state":     func() []run.Component { return []run.Component{s.state()} },
		"tunnel":    s.tunnels,
		"bus":       func() []run.Component { return []run.Component{s.openBus()} },
		RoleProcess: s.process, RoleCorrelate: s.correlate, RolePredict: s.predict, RoleControl: s.control, RoleAllocate: s.allocate, RoleCollect: s.collect,
		RoleAPI: func() []run.Component { return s.serve(nil) },
	}
	return &bench.Product{
		Log: s.log, Metrics: s.reg, Data: cfg.Data, Bus: cfg.Bus.JetStream.Dir, Collect: cfg.Collect.RunnerConfig, Collectors: cfg.Collectors.m,
		Engine: cfg.Store.Engine, History: cfg.Store.History, Sink: cfg.Store.Sink,
		Components: func(names ...string) (comps []run.Component) {
			for _, name := range names {
				comps = append(comps, parts[name]()...)
			}
			return comps
		},
		Parts: func() bench.Parts {
			p := bench.Parts{Bus: s.bus, DB: s.db, Records: s.records, Inventory: s.inv, Enrich: s.enrich, Secrets: &s.secrets}
			if srv := s.console.Load(); srv != nil {
				p.API = srv.URL()
			}
			return p
		},
	}, nil
}
