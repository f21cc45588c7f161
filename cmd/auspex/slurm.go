package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"auspex/control"
	"auspex/control/drain"
	"auspex/internal/slurm"
)

// scheduler is Slurm as control wants it.
type scheduler struct{ c *slurm.Client }

func newScheduler(c SlurmConfig) (scheduler, error) {
	trusted, err := c.TLS.Client()
	if err != nil {
		return scheduler{}, fmt.Errorf("control.slurm.tls: %w", err)
	}
	return scheduler{slurm.New(slurm.Options{URL: c.URL, TokenFile: c.TokenFile, User: c.User, Scontrol: c.Scontrol, TLS: trusted, Timeout: 15 * time.Second})}, nil
}

// Node implements drain.Scheduler. A node that Slurm does not know cannot be
// drained, and is no node without jobs.
func (s scheduler) Node(ctx context.Context, name string) (drain.Node, error) {
	n, err := s.c.Node(ctx, name)
	if errors.Is(err, slurm.ErrUnknownNode) {
		return drain.Node{}, fmt.Errorf("%w: %w", control.ErrCannot, err)
	}
	return drain.Node{Name: n.Name, States: n.States(), Reason: n.Reason}, err
}

// Drain implements drain.Scheduler.
func (s scheduler) Drain(ctx context.Context, name, reason string) error {
	return s.set(ctx, name, "DRAIN", reason)
}

// Resume implements drain.Scheduler.
func (s scheduler) Resume(ctx context.Context, name string) error {
	return s.set(ctx, name, "RESUME", "")
}

func (s scheduler) set(ctx context.Context, name, state, reason string) error {
	err := s.c.SetNode(ctx, name, state, reason)
	if errors.Is(err, slurm.ErrRefused) || errors.Is(err, slurm.ErrAuth) {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	return err
}
