package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"auspex/internal/bus"
	"auspex/internal/reload"
	"auspex/internal/run"
	"auspex/internal/sim"
	"auspex/internal/sim/child"
)

// grace bounds how long everything together takes to stop, where nothing else is asked for.
const grace = 4 * time.Second

// stopBound is what all of that and the end of the simulated fleet may take.
const stopBound = 4800 * time.Millisecond

// RunOptions is what `auspex run` gets beside the configuration.
type RunOptions struct {
	Demo      bool
	Script    string
	Seed      uint64
	Agents    bool // the simulated fleet's node agents alone tell of what runs on its servers
	Spare     int  // servers of the simulated fleet that the inventory does not have
	Miscabled int  // racks of it of which the inventory has two cables the other way round
	Out, Err  io.Writer

	// Load reads the configuration anew, from the same sources.
	Load func() (Config, error)
	// Reload asks for it; nil asks never.
	Reload <-chan struct{}
	// Grace bounds how long everything together takes to stop; 0 is 4 s.
	Grace time.Duration
}

// Run runs the roles of a configuration until ctx is done.
func Run(ctx context.Context, cfg Config, o RunOptions) (err error) {
	unlock, err := lockData(cfg.Data)
	if err != nil {
		return err
	}
	defer unlock()
	s := newStack(cfg, o.Out, o.Err)
	c := newConsole(o.Out, s.log)
	comps := []run.Component{}
	var stopping atomic.Value // when the end was asked for
	defer context.AfterFunc(ctx, func() { stopping.Store(time.Now()) })()
	var fleet *child.Fleet
	if o.Demo {
		dir := filepath.Join(cfg.Data, "sim")
		if fleet, err = child.Start(ctx, dir, simulateArgs(o)...); err != nil {
			if ctx.Err() != nil { // it was told to stop before it had begun
				return nil
			}
			return err
		}
		defer func() {
			// A clean stop ends the fleet too; after a kill it is found again.
			within := stopBound
			if at, ok := stopping.Load().(time.Time); ok {
				within -= time.Since(at)
			}
			err = errors.Join(err, fleet.Stop(max(within, 500*time.Millisecond)))
		}()
		if err := useFleet(fleet, &s.cfg); err != nil {
			return err
		}
	}
	s.reload = reload.New(s.cfg, func() (Config, error) {
		again, err := o.Load()
		if err == nil && fleet != nil {
			err = useFleet(fleet, &again)
		}
		return again, err
	}, s.log, s.reg)
	s.reloads("log", s.prepareLog, "log.level")
	comps = append(comps, s.watchDisk(), s.watchClock(), s.state(), s.openBus())
	comps = append(comps, c.component(func() bus.Bus { return s.bus }))
	comps = append(comps, s.process()...)
	comps = append(comps, s.correlate()...)
	comps = append(comps, s.predict()...)
	comps = append(comps, s.tunnels()...)
	comps = append(comps, s.control()...)
	comps = append(comps, s.allocate()...)
	comps = append(comps, s.serve(fleet)...)
	comps = append(comps, s.instances()...)
	comps = append(comps, s.collect()...)
	comps = append(comps, s.enrol()...)
	comps = append(comps, s.discover()...)
	if fleet != nil && s.cfg.has(RoleAllocate) {
		comps = append(comps, s.tenants(), s.installs(fleet))
	}
	if fleet != nil {
		comps = append(comps, c.faults(fleet.Path(sim.LedgerFile), fleet.Ledger))
	}
	comps = append(comps, run.Func("ready", func(ctx context.Context, ready func()) error {
		s.health.SetReady(true)
		s.announceRoles()
		defer s.health.SetReady(false)
		return s.reload.Follow(ctx, ready, o.Reload)
	}))
	return run.Group(ctx, s.log, cmp.Or(o.Grace, grace), comps...)
}

func flock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
