package bmc

import (
	"context"
	"fmt"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bmc"
	"auspex/schemas"
)

// reboot is the remediator of reboot for servers without a node agent: the controller asks the system to
// restart.
type reboot struct{ hand }

// Outside implements control.Outside.
func (r reboot) Outside() bool { return true }

// Plan implements control.Remediator.
func (r reboot) Plan(ctx context.Context, s control.Step) (sentence schemas.Sentence, err error) {
	err = r.read(ctx, s.Server, func(c controller) error {
		if _, err := c.redfish(s); err != nil {
			return err
		}
		p, err := c.c.Power(ctx)
		sentence = messages.New(messages.WouldRestart, messages.Args{"server": s.Server, "power": string(p)})
		return err
	})
	return sentence, err
}

// Apply implements control.Remediator.
func (r reboot) Apply(ctx context.Context, s control.Step) error {
	return r.do(ctx, s.Server, func(c controller) error {
		p, err := c.c.Power(ctx)
		if err != nil {
			return fmt.Errorf("%w: read power of %s: %w", control.ErrRejected, s.Server, err)
		}
		if p != bmc.PowerOn {
			return fmt.Errorf("%w: power of %s is %s: there is no system to restart", control.ErrRejected, s.Server, p)
		}
		return refusal(c.c.Reset(ctx, bmc.ResetGracefulRestart, s.ID))
	})
}

// Verify implements control.Remediator. A controller that tells no time of resets shows nothing of one.
func (r reboot) Verify(ctx context.Context, s control.Step) (v control.Verdict, observed schemas.Sentence, err error) {
	err = r.read(ctx, s.Server, func(c controller) error {
		t, skew, told, err := c.LastReset(ctx)
		if err != nil {
			return err
		}
		p, err := c.c.Power(ctx)
		if err != nil {
			return err
		}
		switch {
		case !told && time.Since(s.Since) > proof:
			v, observed = control.Unseen, messages.New(messages.PowerIs, messages.Args{"power": string(p)})
		case told && p == bmc.PowerOn && !t.Add(-skew).Before(s.Since.Add(-2*time.Second)): // whole seconds, and a skew measured over the network
			v, observed = control.Verified, messages.New(messages.ResetAt, messages.Args{"time": t.UTC().Format(time.RFC3339)})
		case p == bmc.PowerOn:
			observed = messages.New(messages.NoReset, nil)
		default:
			observed = messages.New(messages.PowerIs, messages.Args{"power": string(p)})
		}
		return nil
	})
	return v, observed, err
}
