// Package agent is the node agent of a simulated server: the real one, on a machine that the
// fleet's model plays. Protocols, rights, journal, the kernel's log and the ledger of acts are
// the product's own; GPUs, resets and reboots are the model's, and so is what the kernel shows.
package agent

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"auspex/agent"
	"auspex/agent/nvml"
	"auspex/internal/run"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/kmsg"
	"auspex/internal/tunnel/outbound"
)

// Config is an agent of a server.
type Config struct {
	Fleet    *fleet.Fleet
	Server   string
	Dir      string // of what it keeps
	Log      string // the kernel's log of the server
	TLS      agent.TLS
	Dial     []outbound.Config // whom it dials, where it listens nowhere
	About    outbound.About    // what it says of its server there
	Password string            // of [fleet.User], whom all is allowed
	Interval time.Duration
	Events   *slog.Logger // what the agents log
}

const (
	look  = 200 * time.Millisecond // between looks whether the server is up
	retry = time.Second            // after an error
)

// Run runs the agent whenever its server is up, at the address of a listener, which it closes;
// without one it only dials. It returns nil when ctx is done.
func Run(ctx context.Context, cfg Config, l net.Listener) error {
	addr := ""
	if l != nil {
		addr = l.Addr().String()
		defer func(l net.Listener) { _ = l.Close() }(l)
	}
	for told := ""; ; {
		if up, _ := cfg.Fleet.Ready(cfg.Server); up {
			err := cfg.once(ctx, l, addr)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil: // the server went down
				told = ""
			case err.Error() != told:
				told = err.Error()
				cfg.Events.Error("a simulated agent does not run", "server", cfg.Server, "error", err)
			}
			l = nil // it was used
			if err != nil && run.Sleep(ctx, retry) != nil {
				return nil
			}
		}
		if run.Sleep(ctx, look) != nil {
			return nil
		}
	}
}

// once runs the agent until its server goes down, and closes the listener.
func (cfg *Config) once(ctx context.Context, l net.Listener, addr string) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	if l != nil {
		defer func() { _ = l.Close() }()
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return err
	}
	password := filepath.Join(cfg.Dir, "password")
	if err := os.WriteFile(password, []byte(cfg.Password+"\n"), 0o600); err != nil {
		return err
	}
	kernel := &machine{fleet: cfg.Fleet, server: cfg.Server, boot: cfg.Log + kmsg.BootIDSuffix}
	a, err := agent.NewOn(agent.Machine{
		GPUs:     func(n nvml.Needs) agent.GPUs { return newGPUs(cfg, n) },
		Tools:    &tools{cfg.Fleet, cfg.Server},
		Computer: &computer{cfg.Fleet, cfg.Server},
		About:    &cfg.About,
		Files:    kernel,
		Units:    kernel.units,
	}, cfg.agent(password, addr), cfg.Events.With("server", cfg.Server))
	if err != nil {
		return err
	}
	go func() {
		defer end()
		for up := true; up; up, _ = cfg.Fleet.Ready(cfg.Server) {
			if run.Sleep(ctx, look) != nil {
				return
			}
		}
	}()
	if l != nil {
		return a.Serve(ctx, l, nil)
	}
	return a.Run(ctx, nil)
}

// agent is the configuration of the real agent.
func (cfg *Config) agent(password, addr string) *agent.Config {
	c := agent.Default()
	c.Data, c.Listen, c.TLS, c.Dial = cfg.Dir, addr, cfg.TLS, cfg.Dial
	c.Credential = agent.Credential{User: fleet.User, PasswordFile: password}
	c.Journal.MaxBytes = 1 << 20
	c.Kernel.Path, c.Kernel.BootIDFile, c.Kernel.PollInterval = cfg.Log, cfg.Log+kmsg.BootIDSuffix, 100*time.Millisecond
	c.DCGM.Disabled, c.Fabric.Log, c.IMEX.Log = true, cfg.Fleet.FabricLog(cfg.Server), ""
	c.Host.Run, c.Host.Interval = cfg.Dir, min(c.Host.Interval, 10*cfg.Interval) // no bus, no lldpd
	everybody := []string{"user " + fleet.User}
	c.Allow = agent.Allow{Settings: everybody, Reset: everybody, Reboot: everybody, Reload: everybody, Validate: everybody}
	return c
}
