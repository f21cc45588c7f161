package slurm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"auspex/control"
	"auspex/control/drain"
	"auspex/control/messages"
	"auspex/internal/slurm"
	"auspex/schemas"
)

// reboot is the remediator of reboot through Slurm's RebootProgram (scontrol(1), reboot). Only a drained node is
// restarted: on another Slurm would wait until it is idle, and restart it when nobody expects it any more.
type reboot struct {
	scheduler

	command *slurm.Scontrol
}

// Reaches implements [control.Reacher]: whoever has Slurm restart servers has it restart all of them.
func (reboot) Reaches(string) bool { return true }

// node reads a node of which Slurm tells when it has started: else a restart would never be seen.
func (r reboot) node(ctx context.Context, server string) (slurm.Node, drain.Node, error) {
	n, err := r.read(ctx, server)
	if err == nil && !n.Boot.Set {
		err = fmt.Errorf("%w: this scontrol does not tell in Unix time when %s has started; set url to slurmrestd", control.ErrCannot, server)
	}
	return n, nodeOf(n), err
}

// Plan implements control.Remediator.
func (r reboot) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	_, n, err := r.node(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	return messages.New(messages.WouldRebootSlurm, messages.Args{"server": s.Server, "states": n.StateText}), nil
}

// Apply implements control.Remediator. The reason begins as that of a drain of ours, for the drain keeps it.
func (r reboot) Apply(ctx context.Context, s control.Step) error {
	is, n, err := r.node(ctx, s.Server)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	case !n.Drained() || rebooting(is):
		return fmt.Errorf("%w: %s is %s; Slurm restarts what is drained and not restarting already", control.ErrRejected, s.Server, n.StateText)
	case n.Theirs():
		return fmt.Errorf("%w: %s was drained by someone else: %s", control.ErrRejected, s.Server, n.Reason)
	}
	return refusal(r.command.Reboot(ctx, s.Server, drain.Prefix+" "+s.ID+" "+s.Reason))
}

// rebooting reports whether a restart is asked for or under way (scontrol(1), REBOOT_ISSUED and REBOOT_REQUESTED).
func rebooting(n slurm.Node) bool {
	return slices.ContainsFunc(n.States(), func(s string) bool { return s == "REBOOT_ISSUED" || s == "REBOOT_REQUESTED" || s == "REBOOT" })
}

// Verify implements control.Remediator: the node has registered again with a later start, by its own clock.
func (r reboot) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	is, n, err := r.node(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	// Whole seconds, and a clock that is set over the network: two are granted.
	if n.Away || rebooting(is) || is.Boot.Time().Before(s.Since.Add(-2*time.Second)) {
		return control.Pending, messages.New(messages.SchedulerHas, messages.Args{"states": n.StateText}), nil
	}
	return control.Verified, messages.New(messages.Rebooted, messages.Args{"server": s.Server}), nil
}
