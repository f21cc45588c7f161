// Package drain takes a server out of its scheduler and gives it back: no new
// jobs, and no job left, read back from the scheduler. It undoes only what it did.
package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"auspex/control"
	"auspex/control/messages"
	"auspex/schemas"
)

// Prefix starts the reason of every drain of ours; a node whose reason has
// another start was drained by somebody else.
const Prefix = "auspex:"

// Node is a scheduler's view of a server.
type Node struct {
	Name   string
	States []string // as Slurm names them: IDLE, ALLOCATED, MIXED, COMPLETING, DRAIN, DOWN, ...
	Reason string
	Jobs   int // jobs on it now, where the scheduler says; else 0
}

func (n Node) states() string { return strings.Join(n.States, "+") }

// Is reports whether the node is in a state.
func (n Node) Is(state string) bool { return slices.Contains(n.States, state) }

// Drained reports that no job runs and none will start (Slurm: DRAIN and none of
// ALLOCATED, MIXED, COMPLETING).
func (n Node) Drained() bool {
	return n.Is("DRAIN") && !n.Is("ALLOCATED") && !n.Is("MIXED") && !n.Is("COMPLETING") && !n.Is("UNDRAIN")
}

// Scheduler is what a drain needs of Slurm (or another).
type Scheduler interface {
	// Node returns a node; an error that wraps control.ErrCannot for one that the
	// scheduler does not know.
	Node(ctx context.Context, name string) (Node, error)
	// Drain asks for the node to be drained, with a reason.
	Drain(ctx context.Context, name, reason string) error
	// Resume puts a drained node back to work.
	Resume(ctx context.Context, name string) error
}

// Drain is the remediator of the rung drain.
type Drain struct{ Scheduler Scheduler }

// Plan implements control.Remediator.
func (d Drain) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	n, err := d.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	if n.Drained() {
		return messages.Say(messages.DrainedSo, messages.Args{"server": s.Server, "reason": n.Reason}), nil
	}
	return messages.Say(messages.WouldDrain, messages.Args{"server": s.Server, "states": n.states()}), nil
}

// Apply implements control.Remediator.
func (d Drain) Apply(ctx context.Context, s control.Step) error {
	n, err := d.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	if n.Is("DRAIN") && !strings.HasPrefix(n.Reason, Prefix) {
		return fmt.Errorf("%s: %s: %w", s.Server, n.Reason, control.ErrAlready)
	}
	return d.Scheduler.Drain(ctx, s.Server, Prefix+" "+s.ID+" "+s.Reason)
}

// Verify implements control.Remediator.
func (d Drain) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	n, err := d.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	saw := messages.Say(messages.SchedulerHas, messages.Args{"states": n.states()})
	if n.Drained() {
		return control.Verified, saw, nil
	}
	return control.Pending, saw, nil
}

// Uncordon is the remediator of the rung uncordon.
type Uncordon struct{ Scheduler Scheduler }

// Plan implements control.Remediator.
func (u Uncordon) Plan(_ context.Context, s control.Step) (schemas.Sentence, error) {
	return messages.Say(messages.WouldReturn, messages.Args{"server": s.Server}), nil
}

// Apply implements control.Remediator.
func (u Uncordon) Apply(ctx context.Context, s control.Step) error {
	n, err := u.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	if n.Is("DRAIN") && !strings.HasPrefix(n.Reason, Prefix) {
		return fmt.Errorf("%w: %s was drained by somebody else: %s", control.ErrRejected, s.Server, n.Reason)
	}
	return u.Scheduler.Resume(ctx, s.Server)
}

// Verify implements control.Remediator.
func (u Uncordon) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	n, err := u.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	saw := messages.Say(messages.SchedulerHas, messages.Args{"states": n.states()})
	if !n.Is("DRAIN") && !n.Is("DOWN") && !n.Is("NOT_RESPONDING") {
		return control.Verified, saw, nil
	}
	return control.Pending, saw, nil
}
