// Package drain takes a server out of its scheduler and gives it back: no new
// jobs, and no job left, read back from the scheduler. It undoes only what it did.
package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"auspex/control"
	"auspex/control/messages"
	"auspex/schemas"
)

// Prefix starts the reason of every drain of ours; a node whose reason has
// another start was drained by someone else.
const Prefix = "auspex:"

// Node is a server as its scheduler sees it.
type Node struct {
	Cordoned  bool   // it gets no new work: Slurm's DRAIN, Kubernetes' unschedulable
	Busy      bool   // work is still on it, or on its way out
	Away      bool   // it cannot take work even without a cordon: down, not ready
	Reason    string // of the cordon, as whoever set it gave it
	StateText string // its state in the scheduler's own words, for people
}

// Drained reports that nothing runs on the server and nothing will start.
func (n Node) Drained() bool { return n.Cordoned && !n.Busy }

// Theirs reports that somebody else holds the server back.
func (n Node) Theirs() bool { return n.Cordoned && !strings.HasPrefix(n.Reason, Prefix) }

// Scheduler is what a drain needs of whoever places work on servers.
type Scheduler interface {
	// Node returns a server's node; an error that wraps control.ErrCannot for one
	// that the scheduler does not know.
	Node(ctx context.Context, server string) (Node, error)
	// Drain asks for no new work, and for what runs to end in the scheduler's own way;
	// the reason is kept where Node finds it.
	Drain(ctx context.Context, server, reason string) error
	// Return lifts the cordon.
	Return(ctx context.Context, server string) error
	// Jobs names what runs on a server; its error for one that it does not know is that of Node.
	Jobs(ctx context.Context, server string) ([]string, error)
}

// Remediators returns those of the rungs drain, quarantine and uncordon.
func Remediators(s Scheduler) map[string]control.Remediator {
	return map[string]control.Remediator{"drain": Drain{s}, "quarantine": Drain{s}, "uncordon": Uncordon{s}}
}

// Drain is the remediator of the rung drain, and of quarantine, a drain that no ladder ends.
type Drain struct{ Scheduler Scheduler }

// Plan implements control.Remediator.
func (d Drain) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	n, err := d.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	if n.Drained() {
		return messages.New(messages.DrainedSo, messages.Args{"server": s.Server, "reason": n.Reason}), nil
	}
	return messages.New(messages.WouldDrain, messages.Args{"server": s.Server, "states": n.StateText}), nil
}

// Apply implements control.Remediator.
func (d Drain) Apply(ctx context.Context, s control.Step) error {
	n, err := d.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	if n.Theirs() {
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
	observed := messages.New(messages.SchedulerHas, messages.Args{"states": n.StateText})
	if n.Drained() {
		return control.Verified, observed, nil
	}
	return control.Pending, observed, nil
}

// Jobs implements control.Scheduler.
func (d Drain) Jobs(ctx context.Context, server string) ([]string, error) {
	return d.Scheduler.Jobs(ctx, server)
}

// Uncordon is the remediator of the rung uncordon.
type Uncordon struct{ Scheduler Scheduler }

// Plan implements control.Remediator. What somebody else drained cannot be returned.
func (u Uncordon) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	if n, err := u.Scheduler.Node(ctx, s.Server); errors.Is(err, control.ErrCannot) {
		return schemas.Sentence{}, err
	} else if err == nil && n.Theirs() {
		return schemas.Sentence{}, fmt.Errorf("%w: %s was drained by someone else: %s", control.ErrCannot, s.Server, n.Reason)
	}
	return messages.New(messages.WouldReturn, messages.Args{"server": s.Server}), nil
}

// Apply implements control.Remediator.
func (u Uncordon) Apply(ctx context.Context, s control.Step) error {
	n, err := u.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	if n.Theirs() {
		return fmt.Errorf("%w: %s was drained by someone else: %s", control.ErrRejected, s.Server, n.Reason)
	}
	return u.Scheduler.Return(ctx, s.Server)
}

// Verify implements control.Remediator.
func (u Uncordon) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	n, err := u.Scheduler.Node(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	observed := messages.New(messages.SchedulerHas, messages.Args{"states": n.StateText})
	if !n.Cordoned && !n.Away {
		return control.Verified, observed, nil
	}
	return control.Pending, observed, nil
}
