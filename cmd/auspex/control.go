package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/control"
	"auspex/control/drain"
	"auspex/control/messages"
	"auspex/control/power"
	"auspex/internal/run"
	"auspex/schemas"
)

// control climbs ladders; what has no driver here says "cannot".
func (s *stack) control() []run.Component {
	if !s.cfg.has(RoleControl) {
		return nil
	}
	return []run.Component{s.lasting("control", func(reg prometheus.Registerer) (run.Component, error) {
		parts := &partWatch{s}
		rem := map[string]control.Remediator{"power_cycle": power.New(s.openBMC, parts.alive)}
		if s.cfg.Control.Slurm.URL != "" {
			sched, err := newScheduler(s.cfg.Control.Slurm)
			if err != nil {
				return nil, err
			}
			rem["drain"], rem["uncordon"] = drain.Drain{Scheduler: sched}, drain.Uncordon{Scheduler: sched}
		}
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		return control.New(s.cfg.Control.Config, control.Deps{
			Log: s.log, Metrics: reg, Now: time.Now, DB: s.db, Records: s.records, Bus: s.bus, Inventory: place{s.inv}, Remediators: rem, Holder: host,
		})
	})}
}

// partWatch judges a repair by telemetry: the part has to be read again.
type partWatch struct{ s *stack }

// alive reports whether any metric of a part was observed after a time.
func (w *partWatch) alive(ctx context.Context, part string, since time.Time) (bool, schemas.Sentence, error) {
	if w.s.hot == nil {
		return true, messages.Say(messages.NoWindow, nil), nil
	}
	at, ok, err := w.s.hot.LastSeen(ctx, part, since)
	if err != nil {
		return false, schemas.Sentence{}, fmt.Errorf("look for readings of %s: %w", part, err)
	}
	if !ok {
		return false, messages.Say(messages.NotRead, messages.Args{"part": part}), nil
	}
	return true, messages.Say(messages.ReadAgain, messages.Args{"part": part, "time": at.UTC().Format(time.TimeOnly)}), nil
}
