package main

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"auspex/collectors"
	"auspex/internal/bus/spool"
	"auspex/internal/cabling"
	"auspex/internal/run"
	"auspex/internal/store/cursors"
	"auspex/schemas"
)

// collect reads the devices of the inventory, and follows its changes. Its events
// wait on the disk while the bus is away.
func (s *stack) collect() []run.Component {
	if !s.cfg.has(RoleCollect) {
		return nil
	}
	var events *spool.Spool
	var cables *cabling.Runner
	return []run.Component{
		late("cabling", func(context.Context) (run.Component, error) {
			cables = cabling.New(s.db, s.inv, s.log, s.reg)
			return run.Func("cabling", func(ctx context.Context, ready func()) error {
				ready()
				cables.Run(ctx)
				return nil
			}), nil
		}),
		late("spool", func(ctx context.Context) (run.Component, error) {
			var err error
			events, err = spool.Open(ctx, filepath.Join(s.cfg.Data, "spool.db"), schemas.TopicEvents, s.cfg.Collect.Spool, s.bus, s.log, s.reg)
			if err != nil {
				return nil, err
			}
			return run.Func("spool", func(ctx context.Context, ready func()) error {
				defer func() { _ = events.Close() }()
				return events.Run(ctx, ready)
			}), nil
		}),
		late("collectors", func(context.Context) (run.Component, error) {
			r := collectors.NewRunner(s.cfg.Collect.RunnerConfig, s.cfg.Collectors.m, events, collectors.Settings{
				Log: s.log, Now: time.Now, Cursors: cursors.New(s.db), Secrets: &s.secrets, Metrics: s.reg, Gate: s.gate,
				Tunnels: s.collecting(), Cabling: cables,
			})
			changed := s.inv.Changed()
			s.reconcile(r, s.inv.Snapshot().Resources())
			s.reloadsCollectors(r)
			return run.Func("collectors", func(ctx context.Context, ready func()) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				followed := make(chan struct{})
				go func() {
					defer close(followed)
					for {
						select {
						case <-ctx.Done():
							return
						case <-changed:
							changed = s.inv.Changed()
							s.reconcile(r, s.inv.Snapshot().Resources())
						}
					}
				}()
				err := r.Run(ctx, ready)
				cancel()
				<-followed
				return err
			}), nil
		}),
	}
}

// reconcile brings the collectors in line with the inventory. A device that cannot
// be read as the inventory has it is told, and stops no other.
func (s *stack) reconcile(r *collectors.Runner, resources []schemas.Resource) {
	if err := r.Reconcile(resources); err != nil {
		for line := range strings.Lines(err.Error()) {
			s.log.Error("device is skipped", "error", strings.TrimSpace(line))
		}
	}
}
