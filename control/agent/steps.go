package agent

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
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
			return m[1], ofName(m[1]), nil
		}
	}
	return "", nil, fmt.Errorf("%w: %s is no GPU of %s", control.ErrCannot, s.Target, s.Server)
}

func ofName(name string) *types.Path {
	return &types.Path{Elem: []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": name}}}}
}

// all is the path of all GPUs, and of what has them: their driver.
func all() *types.Path { return &types.Path{Elem: []*types.PathElem{{Name: "gpus"}}} }

// scope is what a step is for that is done to one GPU, or where a server is to blame to all of it.
func scope(s control.Step) (*types.Path, error) {
	if s.Target == s.Server {
		return all(), nil
	}
	_, path, err := gpu(s)
	return path, err
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
	ended, v, observed, err := c.became(s, path)
	if err != nil || v != control.Verified {
		return v, observed, err
	}
	// The agent reads no GPU until it has written down that it is reset, and takes both times from one clock.
	_, unread, err := c.read(path, ended)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	args := messages.Args{"gpu": name, "server": s.Server}
	if len(unread) > 0 {
		return control.Pending, messages.New(messages.ResetUnread, args), nil
	}
	switch wants, err := c.wants(path, ended); {
	case err != nil:
		return control.Pending, schemas.Sentence{}, err
	case wants != "":
		args["wants"] = wants
		return control.Failed, messages.New(messages.DriverWants, args), nil
	}
	return control.Verified, messages.New(messages.ResetRead, args), nil
}

// get reads leaves of gNMI, each with the time of its reading.
func (c call) get(paths ...string) (out []leaf, err error) {
	req := &gpb.GetRequest{Encoding: gpb.Encoding_PROTO}
	for _, p := range paths {
		path, err := target.ParsePath(p)
		if err != nil {
			return nil, err
		}
		req.Path = append(req.Path, path)
	}
	ctx, done := context.WithTimeout(c.ctx, c.timeout)
	defer done()
	res, err := c.gnmi.Get(ctx, req)
	if err != nil {
		return nil, told(err)
	}
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			l := leaf{at: time.Unix(0, n.GetTimestamp()), value: u.GetVal()}
			for _, e := range slices.Concat(n.GetPrefix().GetElem(), u.GetPath().GetElem()) {
				l.gpu, l.name = cmp.Or(l.gpu, e.GetKey()["name"]), e.GetName()
			}
			out = append(out, l)
		}
	}
	return out, nil
}

// leaf is a leaf of a GPU as it was read.
type leaf struct {
	gpu, name string
	at        time.Time
	value     *gpb.TypedValue
}

// read returns the GPUs of a path in order, and those of them that the agent has not read since a time. Without any
// it reads none.
func (c call) read(of *types.Path, since time.Time) (gpus, unread []string, err error) {
	leaves, err := c.get(text(of) + "/state/missing")
	for _, l := range leaves {
		gpus = append(gpus, l.gpu)
		if l.value.GetBoolVal() || !l.at.After(since) {
			unread = append(unread, l.gpu)
		}
	}
	slices.Sort(gpus)
	slices.Sort(unread)
	if name := of.GetElem()[len(of.GetElem())-1].GetKey()["name"]; len(gpus) == 0 {
		unread = []string{cmp.Or(name, "any GPU")}
	}
	return gpus, unread, err
}

// recoveries are what a driver wants done to a GPU (nvml.h, nvmlDeviceGpuRecoveryAction_t).
var recoveries = []string{
	"", "a reset of the GPU", "a reboot", "an end of all that uses NVLink", "an end of all that uses NVLink, and a reset", "recovery of the IMEX domain", "a reset of the PCIe bus",
	"a restart of the system",
}

// wants is what the driver wants done to GPUs of a path, as it was read since a time; "" is nothing, or that it is too old to tell.
func (c call) wants(of *types.Path, since time.Time) (string, error) {
	leaves, err := c.get(text(of) + "/state") // the leaf alone is an error where the agent has none
	var out []string
	for _, l := range leaves {
		if n := l.value.GetUintVal(); l.name == "recovery-action" && n > 0 && l.at.After(since) {
			what := fmt.Sprintf("action %d", n)
			if n < uint64(len(recoveries)) {
				what = recoveries[n]
			}
			out = append(out, l.gpu+": "+what)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; "), err
}

// text is a path of GPUs as gNMI's users write it.
func text(p *types.Path) string {
	if e := p.GetElem(); len(e) > 1 {
		return "/gpus/gpu[name=" + e[1].GetKey()["name"] + "]"
	}
	return "/gpus/gpu"
}

// reload is the remediator of the rung reload_driver.
type reload struct{ hand }

// Plan implements control.Remediator.
func (r reload) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	st, err := r.would(ctx, s, all())
	if err != nil {
		return schemas.Sentence{}, err
	}
	args := messages.Args{"gpus": cmp.Or(st.GetReason(), "GPUs"), "server": s.Server}
	if held := st.GetStatus().GetMessage(); held != "" {
		args["held"] = held
		return messages.New(messages.WouldReloadHeld, args), nil
	}
	return messages.New(messages.WouldReload, args), nil
}

// Apply implements control.Remediator.
func (r reload) Apply(ctx context.Context, s control.Step) error { return r.do(ctx, s, all()) }

// Verify implements control.Remediator: the driver was loaded, and answers for the GPU that is to
// blame, or for all where none is.
func (r reload) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	c, err := r.open(ctx, s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	defer c.end()
	ended, v, observed, err := c.became(s, all())
	if err != nil || v != control.Verified {
		return v, observed, err
	}
	of, err := scope(s)
	if err != nil { // another part of the server is to blame
		of = all()
	}
	gpus, unread, err := c.read(of, ended)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	args := messages.Args{"gpus": strings.Join(gpus, ", "), "server": s.Server}
	if len(unread) > 0 {
		args["gpus"] = strings.Join(unread, ", ")
		return control.Pending, messages.New(messages.ReloadUnread, args), nil
	}
	switch wants, err := c.wants(of, ended); {
	case err != nil:
		return control.Pending, schemas.Sentence{}, err
	case wants != "":
		args["wants"] = wants
		return control.Failed, messages.New(messages.DriverWants, args), nil
	}
	return control.Verified, messages.New(messages.Reloaded, args), nil
}

// reboot is the remediator of the rung of that name.
type reboot struct{ hand }

// Reaches implements control.Reacher.
func (r reboot) Reaches(server string) bool {
	is, ok := r.settings.Resource(server)
	return ok && is.Attrs.Get(schemas.AttrAgentAddress) != ""
}

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
