// Package power cycles a server through its board controller and believes only
// what it can read back: a new reset time, or a power state that went away.
package power

import (
	"context"
	"fmt"
	"sync"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/schemas"
)

// BMC is what a power cycle needs of a board controller.
type BMC interface {
	// PowerOn reports whether the server has power.
	PowerOn(ctx context.Context) (bool, error)
	// PowerCycle takes the power away and gives it back. request goes with the
	// call, where the protocol has room for it. An error that is certain to mean
	// "nothing was done" wraps control.ErrRejected.
	PowerCycle(ctx context.Context, request string) error
	// LastReset returns when the server was last reset, by the BMC's clock and as
	// the offset of that clock to ours; ok is false where the BMC does not say.
	LastReset(ctx context.Context) (t time.Time, skew time.Duration, ok bool, err error)
	// Close ends the session.
	Close(ctx context.Context) error
}

// Open connects to the BMC of a server. It wraps control.ErrCannot for a server
// without one.
type Open func(ctx context.Context, server string) (BMC, error)

// Cycle is the remediator of the rung power_cycle.
type Cycle struct {
	open Open

	mu  sync.Mutex
	off map[string]bool // by step: the server was seen without power
}

// New returns the remediator.
func New(open Open) *Cycle { return &Cycle{open: open, off: map[string]bool{}} }

// Plan implements control.Remediator.
func (c *Cycle) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	b, err := c.open(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	defer func() { _ = b.Close(ctx) }()
	on, err := b.PowerOn(ctx)
	if err != nil {
		return schemas.Sentence{}, fmt.Errorf("read power of %s: %w", s.Server, err)
	}
	id := messages.WouldCycleOff
	if on {
		id = messages.WouldCycleOn
	}
	return messages.New(id, messages.Args{"server": s.Server}), nil
}

// Apply implements control.Remediator.
func (c *Cycle) Apply(ctx context.Context, s control.Step) error {
	b, err := c.open(ctx, s.Server)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err) // no connection, so nothing was sent
	}
	defer func() { _ = b.Close(ctx) }()
	return b.PowerCycle(ctx, s.ID)
}

// Verify implements control.Remediator.
func (c *Cycle) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	b, err := c.open(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	defer func() { _ = b.Close(ctx) }()
	on, err := b.PowerOn(ctx)
	if err != nil {
		return control.Pending, schemas.Sentence{}, fmt.Errorf("read power of %s: %w", s.Server, err)
	}
	if !on {
		c.mu.Lock()
		c.off[s.ID] = true
		c.mu.Unlock()
		return control.Pending, messages.New(messages.PowerOff, nil), nil
	}
	cycled, how, err := c.cycled(ctx, b, s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	if !cycled {
		return control.Pending, messages.New(messages.NoReset, nil), nil
	}
	c.mu.Lock()
	delete(c.off, s.ID)
	c.mu.Unlock()
	return control.Verified, how, nil
}

// cycled looks for proof that the power really went away after the step began.
func (c *Cycle) cycled(ctx context.Context, b BMC, s control.Step) (bool, schemas.Sentence, error) {
	c.mu.Lock()
	off := c.off[s.ID]
	c.mu.Unlock()
	if off {
		return true, messages.New(messages.PowerBack, nil), nil
	}
	t, skew, ok, err := b.LastReset(ctx)
	if err != nil {
		return false, schemas.Sentence{}, fmt.Errorf("read last reset of %s: %w", s.Server, err)
	}
	// Whole seconds and a skew that is measured over the network: two are granted.
	if ok && !t.Add(-skew).Before(s.Since.Add(-2*time.Second)) {
		return true, messages.New(messages.ResetAt, messages.Args{"time": t.UTC().Format(time.RFC3339)}), nil
	}
	return false, schemas.Sentence{}, nil
}
