package power_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/power"
)

type bmc struct {
	on    bool
	reset time.Time
	skew  time.Duration
}

func (b *bmc) PowerOn(context.Context) (bool, error)    { return b.on, nil }
func (b *bmc) PowerCycle(context.Context, string) error { return nil }
func (b *bmc) Close(context.Context) error              { return nil }
func (b *bmc) LastReset(context.Context) (time.Time, time.Duration, bool, error) {
	return b.reset, b.skew, !b.reset.IsZero(), nil
}

func TestOnlyAnEffectThatIsReadBackVerifies(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := control.Step{ID: "act-1", Server: "s", Target: "s/gpu0", Since: since}
	b := &bmc{on: true, reset: since.Add(-24 * time.Hour)}
	c := power.New(func(context.Context, string) (power.BMC, error) { return b, nil })
	verify := func(want control.Verdict, when string) {
		t.Helper()
		if got, observed, err := c.Verify(t.Context(), step); got != want || err != nil {
			t.Errorf("%s: %v %v %v", when, got, observed, err)
		}
	}
	verify(control.Pending, "power is on and was all the time")
	b.on = false
	verify(control.Pending, "power is off")
	b.on = true
	verify(control.Verified, "power is back")

	c = power.New(func(context.Context, string) (power.BMC, error) { return b, nil })
	b.reset, b.skew = since.Add(time.Hour+time.Minute), time.Hour // a BMC an hour ahead
	verify(control.Verified, "a reset after the step, by the BMC's own clock")
	b.reset = since.Add(time.Hour - time.Minute)
	verify(control.Pending, "a reset before the step")
}

func TestWithoutAConnectionNothingWasSent(t *testing.T) {
	c := power.New(func(context.Context, string) (power.BMC, error) { return nil, errors.New("no route") })
	if err := c.Apply(t.Context(), control.Step{}); !errors.Is(err, control.ErrRejected) {
		t.Error(err)
	}
}
