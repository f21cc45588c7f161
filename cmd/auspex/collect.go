package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"auspex/collectors"
	"auspex/internal/bus/spool"
	"auspex/internal/cabling"
	"auspex/internal/run"
	"auspex/internal/store/cursors"
	"auspex/internal/store/shards"
	"auspex/internal/store/sqldb"
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
			share, err := s.sharing()
			if err != nil {
				return nil, err
			}
			kept := cursors.New(s.db)
			if share != nil {
				kept = cursors.Fenced(s.db, share.Fence)
			}
			r := collectors.NewRunner(s.cfg.Collect.RunnerConfig, s.cfg.Collectors.m, events, collectors.Settings{
				Log: s.log, Now: time.Now, Cursors: kept, Secrets: &s.secrets, Metrics: s.reg, Gate: s.gate,
				Tunnels: s.collecting(), Cabling: cables,
			})
			if share != nil {
				r.Share(func(t schemas.Resource) bool {
					if dialsIn(t) {
						return s.tunnel != nil // nobody but the process that it dials reaches it
					}
					return share.Holds(collectors.DeviceOf(t))
				})
			}
			changed := s.inv.Changed()
			s.reconcile(r, s.inv.Snapshot().Resources())
			s.reloadsCollectors(r)
			return run.Func("collectors", func(ctx context.Context, ready func()) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				var wg sync.WaitGroup
				wg.Go(func() {
					for {
						select {
						case <-ctx.Done():
							return
						case <-changed:
							changed = s.inv.Changed()
							s.reconcile(r, s.inv.Snapshot().Resources())
						}
					}
				})
				if share != nil {
					begun := ready
					ready = func() { // the runner's; the process is ready when it holds its share
						wg.Go(func() {
							if err := share.Run(ctx, begun, sharer{s, r, kept}); err != nil {
								s.log.Error("devices are not shared", "error", err)
							}
						})
					}
				}
				err := r.Run(ctx, ready)
				cancel()
				wg.Wait()
				return err
			}), nil
		}),
	}
}

// sharing makes this process one of those that share the devices of the inventory; nil where the store is of this process alone.
func (s *stack) sharing() (*shards.Member, error) {
	if !sqldb.IsPostgres(s.cfg.Store.SQL) {
		return nil, nil
	}
	name := s.cfg.Collect.Member
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name this process (collect.member): %w", err)
		}
		data, err := filepath.Abs(s.cfg.Data)
		if err != nil {
			return nil, fmt.Errorf("name this process (collect.member): %w", err)
		}
		name = fmt.Sprintf("%s-%06x", host, xxhash.Sum64String(data)&0xffffff) // no two processes share a data folder
	}
	return shards.New(s.db, name, s.cfg.Collect.LeaseTTL, s.log, s.reg), nil
}

// sharer lets the runner read what this process holds.
type sharer struct {
	s    *stack
	r    *collectors.Runner
	kept *cursors.Store
}

// Apply implements [shards.Reader].
func (h sharer) Apply() { h.s.reconcile(h.r, h.s.inv.Snapshot().Resources()) }

// Settle implements [shards.Reader].
func (h sharer) Settle(ctx context.Context) error { return h.kept.Settle(ctx) }

// reconcile brings the collectors in line with the inventory. A device that cannot
// be read as the inventory has it is told, and stops no other.
func (s *stack) reconcile(r *collectors.Runner, resources []schemas.Resource) {
	if err := r.Reconcile(resources); err != nil {
		for line := range strings.Lines(err.Error()) {
			s.log.Error("device is skipped", "error", strings.TrimSpace(line))
		}
	}
}
