package app

import (
	"context"
	"time"

	"github.com/auspex-dev/auspex/collectors"
	"github.com/auspex-dev/auspex/internal/run"
)

// collect reads the devices of the inventory, and follows its changes.
func (s *stack) collect() []run.Component {
	if !s.cfg.has(RoleCollect) {
		return nil
	}
	return []run.Component{late("collectors", func(context.Context) (run.Component, error) {
		r := collectors.NewRunner(s.cfg.Collect.RunnerConfig, s.cfg.Collectors.m, s.bus, collectors.Settings{
			Log: s.log, Now: time.Now, Cursors: cursors{s.db}, Secrets: &s.secrets, Metrics: s.reg, Gate: s.gate,
		})
		changed := s.inv.Changed()
		if err := r.Reconcile(s.inv.Snapshot().Resources()); err != nil {
			return nil, err
		}
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
						if err := r.Reconcile(s.inv.Snapshot().Resources()); err != nil {
							s.log.Error("inventory has targets that cannot be read", "error", err)
						}
					}
				}
			}()
			err := r.Run(ctx, ready)
			cancel()
			<-followed
			return err
		}), nil
	})}
}
