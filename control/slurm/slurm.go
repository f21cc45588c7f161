// Package slurm registers the driver that drains nodes in Slurm and resumes them, and where it is told to, has Slurm
// restart them.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/control"
	"auspex/control/drain"
	"auspex/internal/slurm"
	"auspex/internal/trust"
)

// Name is the driver's key in the configuration.
const Name = "slurm"

func init() {
	control.Register(Name, func() control.Driver { return &Config{} })
}

// Config is how control reaches Slurm. Without an address it does not.
type Config struct {
	URL       string    `yaml:"url"`        // of slurmrestd
	TokenFile string    `yaml:"token_file"` // holds a JSON web token
	User      string    `yaml:"user"`
	TLS       trust.TLS `yaml:"tls"`
	// Scontrol is a command that changes nodes where slurmrestd cannot (Slurm
	// before 23.02); empty uses REST alone. Without a URL it does all.
	Scontrol []string `yaml:"scontrol"`
	// Reboot has Slurm restart those servers, by its RebootProgram, that have no node agent.
	Reboot bool `yaml:"reboot"`
	// Servers are those that are of this cluster, where others are not; without them all are.
	Servers control.Servers `yaml:"servers"`
}

const timeout = 15 * time.Second

// CheckFiles reads the file that the configuration names.
func (c *Config) CheckFiles() error { return slurm.CheckToken(c.TokenFile) }

// Remediators implements [control.Driver].
func (c *Config) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	through, _, err := c.controller()
	if err != nil || through == nil {
		return nil, err
	}
	return c.Servers.Keep(s, drain.Remediators(scheduler{through}))
}

// Reliefs implements [control.Relief]: servers without a node agent restart through Slurm where that is asked for.
func (c *Config) Reliefs(s control.Settings) (map[string]control.Remediator, error) {
	through, command, err := c.controller()
	switch {
	case err != nil || !c.Reboot || through == nil:
		return nil, err
	case command == nil:
		return nil, errors.New("reboot: slurmrestd restarts no nodes: set scontrol to the command that does")
	}
	return c.Servers.Keep(s, map[string]control.Remediator{"reboot": reboot{scheduler{through}, command}})
}

// controller reaches Slurm; nil where the configuration says nothing of it.
func (c *Config) controller() (controller, *slurm.Scontrol, error) {
	trusted, err := c.TLS.Client()
	if err != nil {
		return nil, nil, fmt.Errorf("tls: %w", err)
	}
	var command *slurm.Scontrol
	if len(c.Scontrol) > 0 {
		command = &slurm.Scontrol{Command: c.Scontrol, Timeout: timeout}
	}
	switch {
	case c.URL != "":
		return slurm.New(slurm.Options{
			URL: c.URL, TokenFile: c.TokenFile, User: c.User, Scontrol: command, TLS: trusted, Timeout: timeout,
		}), command, nil
	case command != nil:
		return command, command, nil
	}
	return nil, nil, nil
}

// controller is slurmctld, through slurmrestd or scontrol.
type controller interface {
	Node(ctx context.Context, name string) (slurm.Node, error)
	SetNode(ctx context.Context, name, state, reason string) error
	Running(ctx context.Context, node string) ([]slurm.Job, error)
}

// scheduler is Slurm as a drain wants it.
type scheduler struct{ c controller }

// Node implements drain.Scheduler. A node that Slurm does not know cannot be
// drained, and is no node without jobs.
func (s scheduler) Node(ctx context.Context, name string) (drain.Node, error) {
	n, err := s.read(ctx, name)
	return nodeOf(n), err
}

func (s scheduler) read(ctx context.Context, name string) (slurm.Node, error) {
	n, err := s.c.Node(ctx, name)
	if errors.Is(err, slurm.ErrUnknownNode) {
		err = fmt.Errorf("%w: %w", control.ErrCannot, err)
	}
	return n, err
}

// nodeOf reads a node's states (slurm.conf, "NodeState"; scontrol, "State"): DRAIN
// is the administrator's wish, and UNDRAIN its end that is still to come.
func nodeOf(n slurm.Node) drain.Node {
	states := n.States()
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(s string) bool { return slices.Contains(states, s) })
	}
	return drain.Node{
		Cordoned:  has("DRAIN") && !has("UNDRAIN"),
		Busy:      has("ALLOCATED", "MIXED", "COMPLETING"),
		Away:      has("DOWN", "NOT_RESPONDING"),
		Reason:    n.Reason,
		StateText: strings.Join(states, "+"),
	}
}

// Jobs implements drain.Scheduler. The list of all jobs is read only where the node says that it has any.
func (s scheduler) Jobs(ctx context.Context, name string) ([]string, error) {
	n, err := s.Node(ctx, name)
	if err != nil || !n.Busy {
		return nil, err
	}
	jobs, err := s.c.Running(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(jobs) == 0 { // it ended meanwhile, or is one that we may not see
		return []string{"one that Slurm does not list (" + n.StateText + ")"}, nil
	}
	out := make([]string, len(jobs))
	for i, j := range jobs {
		out[i] = fmt.Sprintf("job-%d of %s", j.ID.N, j.User)
	}
	return out, nil
}

// Drain implements drain.Scheduler.
func (s scheduler) Drain(ctx context.Context, name, reason string) error {
	return s.set(ctx, name, "DRAIN", reason)
}

// Return implements drain.Scheduler.
func (s scheduler) Return(ctx context.Context, name string) error {
	return s.set(ctx, name, "RESUME", "")
}

func (s scheduler) set(ctx context.Context, name, state, reason string) error {
	return refusal(s.c.SetNode(ctx, name, state, reason))
}

// refusal marks an error after which it is certain that nothing was done.
func refusal(err error) error {
	if errors.Is(err, slurm.ErrRefused) || errors.Is(err, slurm.ErrAuth) {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	return err
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Scheduler, "tls", &c.TLS
}
