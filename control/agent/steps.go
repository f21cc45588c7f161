package agent

import (
	"context"
	"fmt"
	"regexp"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnoi/types"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/target"
	"auspex/schemas"
)

// ofGPU finds the GPU's name in the id of a part: gpu-r01-03/gpu7.
var ofGPU = regexp.MustCompile(`^(gpu[0-9]{1,4})(/|$)`)

// gpu returns the name of the GPU that a step is for, and its path for gNOI.
func gpu(s control.Step) (name string, path *types.Path, err error) {
	if len(s.Target) > len(s.Server) && s.Target[:len(s.Server)+1] == s.Server+"/" {
		if m := ofGPU.FindStringSubmatch(s.Target[len(s.Server)+1:]); m != nil {
			return m[1], &types.Path{Elem: []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": m[1]}}}}, nil
		}
	}
	return "", nil, fmt.Errorf("%w: %s is no GPU of %s", control.ErrCannot, s.Target, s.Server)
}

// reset is the remediator of the rung reset_gpu.
type reset struct{ hand }

// Plan implements control.Remediator.
func (r reset) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	_, path, err := gpu(s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	st, err := r.would(ctx, s, path)
	if err != nil {
		return schemas.Sentence{}, err
	}
	args := messages.Args{"gpus": st.GetReason(), "server": s.Server}
	if held := st.GetStatus().GetMessage(); held != "" {
		args["held"] = held
		return messages.New(messages.WouldResetHeld, args), nil
	}
	return messages.New(messages.WouldReset, args), nil
}

// Apply implements control.Remediator.
func (r reset) Apply(ctx context.Context, s control.Step) error {
	_, path, err := gpu(s)
	if err != nil {
		return err
	}
	return r.do(ctx, s, path)
}

// Verify implements control.Remediator: the agent has reset the GPU, and has read it since.
func (r reset) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	name, path, err := gpu(s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	c, err := r.open(ctx, s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	defer c.end()
	began, v, observed, err := c.became(s, path)
	if err != nil || v != control.Verified {
		return v, observed, err
	}
	// The agent reads no GPU while it is reset, and takes both times from one clock.
	read, there, err := c.read(name)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	args := messages.Args{"gpu": name, "server": s.Server}
	if !there || !read.After(began) {
		return control.Pending, messages.New(messages.ResetUnread, args), nil
	}
	return control.Verified, messages.New(messages.ResetRead, args), nil
}

// read returns when a GPU was read last, and whether it was there.
func (c call) read(name string) (at time.Time, there bool, err error) {
	path, err := target.ParsePath("/gpus/gpu[name=" + name + "]/state/missing")
	if err != nil {
		return at, false, err
	}
	ctx, done := context.WithTimeout(c.ctx, c.timeout)
	defer done()
	res, err := c.gnmi.Get(ctx, &gpb.GetRequest{Path: []*gpb.Path{path}, Encoding: gpb.Encoding_PROTO})
	if err != nil {
		return at, false, told(err)
	}
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			at, there = time.Unix(0, n.GetTimestamp()), !u.GetVal().GetBoolVal()
		}
	}
	return at, there, nil
}

// reboot is the remediator of the rung of that name.
type reboot struct{ hand }

// Plan implements control.Remediator.
func (r reboot) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	if _, err := r.would(ctx, s); err != nil {
		return schemas.Sentence{}, err
	}
	return messages.New(messages.WouldReboot, messages.Args{"server": s.Server}), nil
}

// Apply implements control.Remediator.
func (r reboot) Apply(ctx context.Context, s control.Step) error { return r.do(ctx, s) }

// Verify implements control.Remediator: the agent is back, with another boot id.
func (r reboot) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	c, err := r.open(ctx, s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	defer c.end()
	_, v, observed, err := c.became(s)
	if err != nil || v != control.Verified {
		return v, observed, err
	}
	return control.Verified, messages.New(messages.Rebooted, messages.Args{"server": s.Server}), nil
}
