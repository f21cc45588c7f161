package bmc

import (
	"context"
	"fmt"

	"auspex/control"
	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/bmc"
	"auspex/schemas"
)

// hand reaches board controllers.
type hand struct {
	open func(ctx context.Context, server string) (controller, error)
	// reaches tells by the inventory alone whether there is a way to the controller of a server from here.
	reaches func(server string) bool
}

// read asks the controller of a server for something, and changes nothing.
func (h hand) read(ctx context.Context, server string, ask func(controller) error) error {
	c, err := h.open(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	return ask(c)
}

// do has the controller of a server change something. Before it is reached, nothing was sent.
func (h hand) do(ctx context.Context, server string, change func(controller) error) error {
	c, err := h.open(ctx, server)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	defer func() { _ = c.Close(ctx) }()
	return change(c)
}

// power reads the power state of a server.
func (h hand) power(ctx context.Context, server string) (p bmc.PowerState, err error) {
	err = h.read(ctx, server, func(c controller) error {
		if p, err = c.c.Power(ctx); err != nil {
			return fmt.Errorf("read power of %s: %w", server, err)
		}
		return nil
	})
	return p, err
}

// turn is the remediator of power_on and power_off.
type turn struct {
	hand
	to bmc.PowerState
}

// Reaches implements control.Reacher.
func (t turn) Reaches(server string) bool { return t.reaches(server) }

// kind is the reset that a step asks for. A server is shut down by its system; its power is taken
// away at once only for whoever says so.
func (t turn) kind(s control.Step) bmc.ResetType {
	switch {
	case t.to == bmc.PowerOn:
		return bmc.ResetOn
	case s.With[policy.Force] == "true":
		return bmc.ResetForceOff
	}
	return bmc.ResetGracefulShutdown
}

// Plan implements control.Remediator.
func (t turn) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	p, err := t.power(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	id := map[bmc.ResetType]string{
		bmc.ResetOn: messages.WouldPowerOn, bmc.ResetForceOff: messages.WouldForceOff, bmc.ResetGracefulShutdown: messages.WouldPowerOff,
	}[t.kind(s)]
	return messages.New(id, messages.Args{"server": s.Server, "power": string(p)}), nil
}

// Apply implements control.Remediator.
func (t turn) Apply(ctx context.Context, s control.Step) error {
	return t.do(ctx, s.Server, func(c controller) error {
		p, err := c.c.Power(ctx)
		if err != nil {
			return fmt.Errorf("%w: read power of %s: %w", control.ErrRejected, s.Server, err)
		}
		if p == t.to {
			return fmt.Errorf("power of %s is %s: %w", s.Server, p, control.ErrAlready)
		}
		err = refusal(c.c.Reset(ctx, t.kind(s), s.ID))
		if bmc.Rejected(err) && t.kind(s) == bmc.ResetGracefulShutdown {
			err = fmt.Errorf("%w; with %s=true the power is taken away at once", err, policy.Force)
		}
		return err
	})
}

// Settled implements control.Settler.
func (t turn) Settled(ctx context.Context, s control.Step) (bool, schemas.Sentence, error) {
	v, how, err := t.Verify(ctx, s)
	return v == control.Verified, how, err
}

// Verify implements control.Remediator.
func (t turn) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	p, err := t.power(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	v := control.Pending
	if p == t.to {
		v = control.Verified
	}
	return v, messages.New(messages.PowerIs, messages.Args{"power": string(p)}), nil
}
