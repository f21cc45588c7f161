package bmc

import (
	"context"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bmc"
	"auspex/schemas"
)

// interrupt is the remediator of nmi: a diagnostic interrupt, on which most systems write down what
// they do and restart.
type interrupt struct{ hand }

// dumps is how long a system may take to write its memory down before it restarts.
const dumps = 5 * time.Minute

// Plan implements control.Remediator.
func (i interrupt) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	p, err := i.power(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	return messages.New(messages.WouldNMI, messages.Args{"server": s.Server, "power": string(p)}), nil
}

// Apply implements control.Remediator.
func (i interrupt) Apply(ctx context.Context, s control.Step) error {
	return i.do(ctx, s.Server, func(c controller) error { return refusal(c.c.Reset(ctx, bmc.ResetNMI, s.ID)) })
}

// Verify implements control.Remediator. All that a controller may show of an interrupt is a reset that
// follows it; where it shows none, what came of it is not known.
func (i interrupt) Verify(ctx context.Context, s control.Step) (v control.Verdict, observed schemas.Sentence, err error) {
	err = i.read(ctx, s.Server, func(c controller) error {
		t, skew, ok, err := c.LastReset(ctx)
		switch {
		case err != nil:
			return err
		case ok && !t.Add(-skew).Before(s.Since.Add(-2*time.Second)): // whole seconds, and a skew measured over the network
			v, observed = control.Verified, messages.New(messages.ResetAt, messages.Args{"time": t.UTC().Format(time.RFC3339)})
			return nil
		}
		if !ok { // an answer of it nevertheless, or there is no controller
			if _, err := c.c.Power(ctx); err != nil {
				return err
			}
		}
		v, observed = control.Pending, messages.New(messages.NMITaken, nil)
		if !ok || time.Since(s.Since) > dumps {
			v = control.Unseen
		}
		return nil
	})
	return v, observed, err
}
