package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
	"auspex/schemas"
)

// restart is the remediator of reset_bmc: the controller starts anew, and the host goes on.
type restart struct {
	hand

	seen notes[trace]
}

// trace is what is known of a step.
type trace struct {
	power   bmc.PowerState  // before the step
	session redfish.Session // left with the controller, which forgets it when it starts anew
	left    bool            // there is one
	away    bool            // nobody listened at its address
	off     time.Time       // since when the host is read without power
}

const (
	// proof is how long a controller that shows no sign of a restart may be watched for one.
	proof = 2 * time.Minute
	// settling is how long a controller that has started may take to see that its host has power.
	settling = 10 * time.Second
)

// Plan implements control.Remediator.
func (r *restart) Plan(ctx context.Context, s control.Step) (sentence schemas.Sentence, err error) {
	err = r.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		m, err := api.Manager(ctx)
		if err != nil {
			return err
		}
		if m.Object("Actions").Object("#Manager.Reset").String("target") == "" {
			return fmt.Errorf("%w: the BMC of %s has no reset of itself", control.ErrCannot, s.Server)
		}
		p, err := c.c.Power(ctx)
		sentence = messages.New(messages.WouldResetBMC, messages.Args{"server": s.Server, "power": string(p)})
		return err
	})
	return sentence, err
}

// Apply implements control.Remediator.
func (r *restart) Apply(ctx context.Context, s control.Step) error {
	return r.do(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		power, err := c.c.Power(ctx)
		if err != nil {
			return fmt.Errorf("%w: read power of %s: %w", control.ErrRejected, s.Server, err)
		}
		t := r.seen.about(s.ID)
		t.power = power
		t.session, t.left = api.Keep()
		err = api.ResetManager(ctx, s.With[policy.Force] == "true", s.ID)
		if !bmc.Rejected(err) {
			return err
		}
		// A controller that says no and does it all the same is away now, or soon.
		if _, look := api.Manager(ctx); look != nil {
			return fmt.Errorf("%w; then it did not answer: %w", errors.New(err.Error()), look)
		}
		r.seen.forget(s.ID)
		if t.left {
			api.End(ctx, t.session)
		}
		return refusal(err)
	})
}

// Verify implements control.Remediator.
func (r *restart) Verify(ctx context.Context, s control.Step) (v control.Verdict, observed schemas.Sentence, err error) {
	t := r.seen.about(s.ID)
	err = r.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		sign, provable, err := restartedBy(ctx, api, s, t)
		if err != nil {
			return err
		}
		if sign == "" {
			observed = messages.New(messages.BMCAnswers, messages.Args{"server": s.Server})
			if !provable && time.Since(s.Since) > proof {
				v, observed = control.Unseen, messages.New(messages.BMCUnproven, messages.Args{"server": s.Server})
			}
			return nil
		}
		v, observed, err = r.host(ctx, c, s, t, sign)
		if err == nil && v != control.Pending {
			if t.left {
				api.End(ctx, t.session)
			}
			r.seen.forget(s.ID)
		}
		return err
	})
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" && ctx.Err() == nil {
		t.away = true
	}
	return v, observed, err
}

// restartedBy looks for a sign that a controller has started since a step; provable says whether
// there could be one.
func restartedBy(ctx context.Context, api *redfish.Client, s control.Step, t *trace) (sign string, provable bool, err error) {
	began := time.Now()
	m, err := api.Manager(ctx)
	if err != nil {
		return "", false, err
	}
	reset, told := m.Time("LastResetTime")
	if now, ok := m.Time("DateTime"); ok && told {
		skew := now.Sub(began)
		if !reset.Add(-skew).Before(s.Since.Add(-2 * time.Second)) { // whole seconds, and a skew measured over the network
			return "it reports a start at " + reset.UTC().Format(time.RFC3339), true, nil
		}
		return "", true, nil // it tells, and has not
	}
	if t.left {
		known, err := api.Knows(ctx, t.session)
		if err != nil {
			return "", true, err
		}
		if !known {
			return "it has forgotten its sessions", true, nil
		}
	}
	if t.away {
		return "nobody listened at its address for a while", true, nil
	}
	return "", t.left, nil
}

// host says whether the host went on while its controller started.
func (*restart) host(ctx context.Context, c controller, s control.Step, t *trace, sign string) (control.Verdict, schemas.Sentence, error) {
	down := func(why string) (control.Verdict, schemas.Sentence, error) {
		return control.Failed, messages.New(messages.HostWentDown, messages.Args{"server": s.Server, "sign": why}), nil
	}
	power, err := c.c.Power(ctx)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	if reset, skew, ok, err := c.LastReset(ctx); err != nil {
		return control.Pending, schemas.Sentence{}, err
	} else if ok && !reset.Add(-skew).Before(s.Since) {
		return down("the BMC reports a reset of it at " + reset.UTC().Format(time.RFC3339))
	}
	saw := messages.New(messages.BMCRestarted, messages.Args{"server": s.Server, "sign": sign, "power": string(power)})
	switch {
	case power == bmc.PowerOn, power == t.power:
		return control.Verified, saw, nil
	case t.power == "": // it may have been off before: control has started anew since
		return control.Unseen, messages.New(messages.PowerIs, messages.Args{"power": string(power)}), nil
	}
	if t.off.IsZero() {
		t.off = time.Now()
	}
	if time.Since(t.off) < settling {
		return control.Pending, messages.New(messages.PowerIs, messages.Args{"power": string(power)}), nil
	}
	return down("its power was " + string(t.power) + " and is " + string(power))
}
