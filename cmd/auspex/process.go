package main

import (
	"context"

	"auspex/internal/run"
	"auspex/internal/store/maintenance"
	"auspex/pipeline/detect"
)

// DetectConfig says what becomes an alert.
type DetectConfig struct {
	detect.Config `yaml:",inline"`
	Rules         detect.RulesConfig `yaml:"rules"`
}

// Validate names the key at fault. It hides the embedded method, which would
// validate half of it.
func (c *DetectConfig) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	return c.Rules.Validate()
}

// process turns telemetry and events into the hot window, alerts and history.
// Detection and the hot window go on when the history stands still.
func (s *stack) process() []run.Component {
	if !s.cfg.has(RoleProcess) {
		return nil
	}
	return []run.Component{
		s.openHot(),
		late("hot window feed", s.hotFeed),
		late("history", s.openHistory),
		late("workloads", func(context.Context) (run.Component, error) {
			return detect.NewWorkloads(s.bus, s.inv, maintenance.New(s.db), s.log, s.reg), nil
		}),
		late("detector", func(context.Context) (run.Component, error) {
			return detect.New(s.cfg.Detect.Config, s.bus, s.enrich, s.records, s.log, s.reg), nil
		}),
		late("rules", func(context.Context) (run.Component, error) {
			r := detect.NewRules(s.cfg.Detect.Rules, s.hot, s.hot, s.bus, s.enrich, s.records, s.log, s.reg)
			s.rules.Store(r)
			s.reloads("rules", func(ctx context.Context, cfg Config) (func(context.Context) error, error) {
				return r.Prepare(ctx, cfg.Detect.Rules)
			},
				"detect.rules.builtin", "detect.rules.files", "detect.rules.interval")
			return r, nil
		}),
	}
}
