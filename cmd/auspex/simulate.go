package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"auspex/internal/config"
	"auspex/internal/sim"
	"auspex/internal/tunnel/outbound"
	"auspex/internal/usage"
)

// SimulateOptions says what `auspex simulate` simulates.
type SimulateOptions struct {
	Dir       string
	Script    string // a file; empty plays the demo's script, "none" nothing
	Seed      uint64
	Racks     int    // 0 is the demo's
	Servers   int    // a rack
	Spare     int    // servers that are not in the inventory
	Miscabled int    // racks with two cables that the inventory has the other way round
	Agents    bool   // node agents alone tell of what runs on servers
	Dial      string // a file of agent configuration whose section dial is theirs
	Syslog    string // HOST:PORT that the servers send their kernel logs to, over UDP
	Listen    string // ADDRESS or ADDRESS:PORT; empty is loopback with free ports
}

// Simulate runs the simulated fleet until ctx is done.
func Simulate(ctx context.Context, o SimulateOptions, out io.Writer) error {
	cfg := sim.DefaultConfig()
	cfg.Dir, cfg.Seed = o.Dir, o.Seed
	cfg.Log, cfg.AgentsAlone, cfg.Spare, cfg.Miscabled = newLog(os.Stderr), o.Agents, o.Spare, o.Miscabled
	cfg.Fleet.Syslog = o.Syslog
	if o.Dial != "" {
		var dial struct {
			Dial []outbound.Config `yaml:"dial"`
		}
		if err := config.Load(config.Source{Files: []string{o.Dial}}, &dial); err != nil {
			return fmt.Errorf("%w: --agents-dial: %w", usage.Err, err)
		}
		cfg.Dial = dial.Dial
	}
	if o.Racks > 0 {
		cfg.Fleet.Racks = o.Racks
	}
	if o.Servers > 0 {
		cfg.Fleet.ServersPerRack = o.Servers
	}
	if o.Listen != "" {
		cfg.Listen = o.Listen
		if host, port, err := net.SplitHostPort(o.Listen); err == nil {
			n, err := strconv.Atoi(port)
			if err != nil {
				return fmt.Errorf("%w: port %q of --listen is not a number", usage.Err, port)
			}
			cfg.Listen, cfg.Port = host, n
		}
	}
	switch o.Script {
	case "":
	case "none":
		cfg.Script = nil
	default:
		b, err := os.ReadFile(o.Script)
		if err != nil {
			return fmt.Errorf("read script: %w", err)
		}
		cfg.Script = b
	}
	cfg.Ready = func(e sim.Endpoints) {
		fmt.Fprintf(out, "simulated fleet is ready; %s lists its devices\n", filepath.Join(o.Dir, "topology.json"))
	}
	return sim.Run(ctx, cfg)
}

// simulateArgs are the flags of the demo's fleet.
func simulateArgs(o RunOptions) []string {
	args := []string{"--seed", strconv.FormatUint(o.Seed, 10)}
	if o.Script != "" {
		args = append(args, "--script", o.Script)
	}
	if o.Agents {
		args = append(args, "--agents-alone")
	}
	if o.Spare > 0 {
		args = append(args, "--spare", strconv.Itoa(o.Spare))
	}
	if o.Miscabled > 0 {
		args = append(args, "--miscabled", strconv.Itoa(o.Miscabled))
	}
	return args
}
