package bmc

import (
	"context"
	"fmt"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bmc"
	"auspex/schemas"
)

// boot is the remediator of set_boot: where the next boot is from, once.
type boot struct{ hand }

// Reaches implements control.Reacher.
func (o boot) Reaches(server string) bool { return o.reaches(server) }

// wants is the override that a step asks for.
func wants(s control.Step) (b bmc.Boot, err error) {
	target, ok := map[string]string{"pxe": "Pxe", "disk": "Hdd", "bios": "BiosSetup", "none": "None"}[s.With["target"]]
	if !ok {
		return b, fmt.Errorf("%w: target is %q: want pxe, disk, bios or none", control.ErrCannot, s.With["target"])
	}
	b = bmc.Boot{Enabled: "Once", Target: target}
	if target == "None" {
		b.Enabled = "Disabled"
	}
	return b, nil
}

// now says what is set, in one word or two.
func now(b bmc.Boot) string {
	if unset(b) {
		return "no override"
	}
	return b.Target + " " + b.Enabled
}

func unset(b bmc.Boot) bool { return b.Enabled == "Disabled" || b.Enabled == "" || b.Target == "None" }

// Plan implements control.Remediator.
func (o boot) Plan(ctx context.Context, s control.Step) (sentence schemas.Sentence, err error) {
	want, err := wants(s)
	if err != nil {
		return sentence, err
	}
	err = o.read(ctx, s.Server, func(c controller) error {
		is, err := c.c.Boot(ctx)
		sentence = messages.New(messages.WouldBoot, messages.Args{"server": s.Server, "target": now(want), "now": now(is)})
		return err
	})
	return sentence, err
}

// Apply implements control.Remediator.
func (o boot) Apply(ctx context.Context, s control.Step) error {
	want, err := wants(s)
	if err != nil {
		return err
	}
	return o.do(ctx, s.Server, func(c controller) error { return refusal(c.c.SetBoot(ctx, want, s.ID)) })
}

// Settled implements control.Settler.
func (o boot) Settled(ctx context.Context, s control.Step) (bool, schemas.Sentence, error) {
	v, how, err := o.Verify(ctx, s)
	return v == control.Verified, how, err
}

// Verify implements control.Remediator.
func (o boot) Verify(ctx context.Context, s control.Step) (v control.Verdict, observed schemas.Sentence, err error) {
	want, err := wants(s)
	if err != nil {
		return control.Pending, observed, err
	}
	err = o.read(ctx, s.Server, func(c controller) error {
		is, err := c.c.Boot(ctx)
		if err == nil && (unset(want) && unset(is) || is.Enabled == want.Enabled && is.Target == want.Target) {
			v = control.Verified
		}
		observed = messages.New(messages.BootIs, messages.Args{"now": now(is)})
		return err
	})
	return v, observed, err
}
