package bmc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"auspex/control"
	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
	"auspex/schemas"
)

// settings is the remediator of set_bios: attributes that a reset puts in force.
type settings struct{ hand }

// resets reports whether a step resets the server itself.
func resets(s control.Step) bool { return s.With[policy.Reset] == "true" }

// toCome is what will be in force after a reset.
func toCome(b *redfish.Bios) redfish.Object {
	out := maps.Clone(b.Attributes)
	if out == nil {
		out = redfish.Object{}
	}
	maps.Copy(out, b.Pending)
	return out
}

// differences says of each attribute what it is and what it should be.
func differences(is redfish.Object, asked map[string]string) string {
	var out []string
	for _, name := range redfish.Differing(is, asked) {
		out = append(out, fmt.Sprintf("%s is %s, not %q", name, redfish.Word(is[name]), asked[name]))
	}
	return strings.Join(out, ", ")
}

// pairs writes attributes with their values.
func pairs(asked map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		out = append(out, name+"="+asked[name])
	}
	return strings.Join(out, ", ")
}

// wants are the attributes that a step asks for: those that it names, and beside them, where it says so, all defaults.
func (o settings) wants(ctx context.Context, api *redfish.Client, b *redfish.Bios, s control.Step) (map[string]string, error) {
	named := policy.Attributes(s.With)
	if s.With[policy.Defaults] != "true" {
		return named, nil
	}
	all, err := api.Defaults(ctx, b)
	if err != nil {
		return nil, cannot(err)
	}
	maps.Copy(all, named)
	return all, nil
}

// told writes what a step asks for: of defaults, how many they are.
func told(s control.Step, asked map[string]string) string {
	named := policy.Attributes(s.With)
	if len(named) == len(asked) {
		return pairs(asked)
	}
	return strings.TrimSuffix(fmt.Sprintf("%d defaults, %s", len(asked)-len(named), pairs(named)), ", ")
}

// inForce are the attributes of a step as they are, for whoever compares.
func inForce(b *redfish.Bios, asked map[string]string) map[string]any {
	out := map[string]any{}
	for name := range asked {
		if v, ok := b.Attributes[name]; ok {
			out[name] = v
		}
	}
	return out
}

// Plan implements control.Remediator.
func (o settings) Plan(ctx context.Context, s control.Step) (sentence schemas.Sentence, err error) {
	err = o.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		b, err := api.Bios(ctx)
		if err != nil {
			return cannot(err)
		}
		asked, err := o.wants(ctx, api, b, s)
		if err != nil {
			return err
		}
		if err := api.CheckBios(ctx, b, asked); err != nil {
			return cannot(err)
		}
		id := messages.WouldSetBIOS
		if resets(s) {
			id = messages.WouldApplyBIOS
		}
		changes := differences(b.Attributes, asked)
		if changes == "" {
			changes = "none, they are so already"
		}
		sentence = messages.New(id, messages.Args{"server": s.Server, "changes": changes})
		return nil
	})
	return sentence, err
}

// cannot marks an error that will be the same tomorrow.
func cannot(err error) error {
	if errors.Is(err, redfish.ErrNotFound) || errors.Is(err, redfish.ErrAttribute) || errors.Is(err, redfish.ErrComponent) {
		return fmt.Errorf("%w: %w", control.ErrCannot, err)
	}
	return err
}

// Apply implements control.Remediator. Where the step resets, it does so once the controller shows
// what is to come.
func (o settings) Apply(ctx context.Context, s control.Step) error {
	return o.do(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		if resets(s) {
			p, err := c.c.Power(ctx)
			if err != nil {
				return fmt.Errorf("%w: read power of %s: %w", control.ErrRejected, s.Server, err)
			}
			if p != bmc.PowerOn {
				return fmt.Errorf("%w: power of %s is %s, and a reset needs it on; without %s what is set waits for it", control.ErrRejected, s.Server, p, policy.Reset)
			}
		}
		asked := policy.Attributes(s.With)
		send := asked
		if s.With[policy.Defaults] == "true" {
			b, err := api.Bios(ctx)
			if err == nil {
				asked, err = o.wants(ctx, api, b, s)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", control.ErrRejected, err)
			}
			send = map[string]string{} // many of them depend on others, and are refused where they need not change
			for _, name := range redfish.Differing(toCome(b), asked) {
				send[name] = asked[name]
			}
		}
		err = api.SetBios(ctx, send, s.ID)
		if bmc.Rejected(err) && errors.Is(err, redfish.ErrBefore) {
			return refusal(err)
		} else if err != nil && !bmc.Rejected(err) {
			return err
		}
		b, look := api.Bios(ctx)
		if err != nil { // it says no; whether it did it all the same, it shows
			if look == nil && len(redfish.Differing(toCome(b), asked)) > 0 {
				return refusal(err)
			}
			if look != nil {
				return fmt.Errorf("%w; then it did not answer: %w", errors.New(err.Error()), look)
			}
		}
		if !resets(s) {
			return nil
		}
		if look != nil {
			return fmt.Errorf("read back what is to come, and so reset nothing: %w", look)
		}
		if len(redfish.Differing(toCome(b), asked)) > 0 {
			return nil // it took them and has them nowhere: there is nothing to reset for, and verification says so
		}
		for _, kind := range []bmc.ResetType{bmc.ResetGracefulRestart, bmc.ResetPowerCycle, bmc.ResetForceRestart} {
			if err = c.c.Reset(ctx, kind, s.ID); !errors.Is(err, redfish.ErrNotFound) {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("reset %s, whose attributes are set: %w", s.Server, err)
		}
		return nil
	})
}

// Settled implements control.Settler.
func (o settings) Settled(ctx context.Context, s control.Step) (so bool, how schemas.Sentence, err error) {
	err = o.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		b, err := api.Bios(ctx)
		if err != nil {
			return err
		}
		asked, err := o.wants(ctx, api, b, s)
		if err != nil {
			return err
		}
		so = len(redfish.Differing(b.Attributes, asked)) == 0 && len(redfish.Differing(toCome(b), asked)) == 0
		how = messages.New(messages.BIOSInForce, messages.Args{"server": s.Server, "attributes": told(s, asked), "in_force": inForce(b, policy.Attributes(s.With))})
		return nil
	})
	return so, how, err
}

// Verify implements control.Remediator.
func (o settings) Verify(ctx context.Context, s control.Step) (v control.Verdict, observed schemas.Sentence, err error) {
	err = o.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		b, err := api.Bios(ctx)
		if err != nil {
			return err
		}
		asked, err := o.wants(ctx, api, b, s)
		if err != nil {
			return err
		}
		args := messages.Args{"server": s.Server, "attributes": told(s, asked), "in_force": inForce(b, policy.Attributes(s.With))}
		applied, coming := len(redfish.Differing(b.Attributes, asked)) == 0, len(redfish.Differing(toCome(b), asked)) == 0
		args["differences"] = differences(b.Attributes, asked)
		switch {
		case applied && coming && !resets(s):
			v, observed = control.Verified, messages.New(messages.BIOSInForce, args)
			return nil
		case coming && !resets(s):
			v, observed = control.Verified, messages.New(messages.BIOSPending, args)
			return nil
		case !resets(s):
			args["differences"] = differences(toCome(b), asked)
			observed = messages.New(messages.BIOSDiffers, args)
			return nil
		}
		reset, skew, told, err := c.LastReset(ctx)
		if err != nil {
			return err
		}
		power, err := c.c.Power(ctx)
		if err != nil {
			return err
		}
		started := power == bmc.PowerOn && told && !reset.Add(-skew).Before(s.Since.Add(-2*time.Second))
		switch {
		case applied && power == bmc.PowerOn && (started || !told):
			v, observed = control.Verified, messages.New(messages.BIOSInForce, args)
		case started && !applied && !coming:
			if len(b.Messages) > 0 {
				args["differences"] = fmt.Sprintf("%s; it says: %s", args["differences"], strings.Join(b.Messages, " "))
			}
			// Where it says that it has put settings in force at this start, it will make no more of them. What was read
			// before may be of the start before.
			if !b.Applied.Before(reset) && !b.Applied.Add(-skew).Before(s.Since.Add(-2*time.Second)) {
				v = control.Failed
			}
			observed = messages.New(messages.BIOSRefused, args)
		case coming && !applied:
			observed = messages.New(messages.BIOSPending, args)
		default:
			observed = messages.New(messages.BIOSDiffers, args)
		}
		return nil
	})
	return v, observed, err
}

// Read implements control.Reader.
func (o settings) Read(ctx context.Context, s control.Step) (out map[string]control.Reading, err error) {
	err = o.read(ctx, s.Server, func(c controller) error {
		api, err := c.redfish(s)
		if err != nil {
			return err
		}
		b, err := api.Bios(ctx)
		if err != nil {
			return cannot(err)
		}
		out = map[string]control.Reading{s.Server: {Has: texts(b.Attributes, s.With), Coming: texts(toCome(b), s.With)}}
		return nil
	})
	return out, err
}

// texts are attributes as a request writes them.
func texts(is redfish.Object, asked map[string]string) map[string]string {
	out := map[string]string{}
	for name := range asked {
		switch v := is[name].(type) {
		case string:
			out[name] = v
		case bool, float64:
			out[name] = redfish.Word(v)
		}
	}
	return out
}
