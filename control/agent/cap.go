package agent

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"auspex/control"
	"auspex/internal/target"
)

// way is how a server is limited here, as it is told and kept.
const way = "GPU power limits"

// capper limits a server by the power limits of its GPUs, where its controller has none.
type capper struct{ hand }

// Capper implements [control.Limiter].
func (c *Config) Capper(s control.Settings) (control.Capper, error) {
	h, err := c.hand(s)
	return capper{h}, err
}

// Whole implements control.Capper: what the rest of the server draws is its controller's to tell.
func (capper) Whole() bool { return false }

// Use implements control.Capper. A limit is written as gpu0=500 gpu1=500.
func (r capper) Use(ctx context.Context, server, by string) (control.Use, error) {
	u := control.Use{Draw: math.NaN()}
	if by != "" && by != way {
		return u, nil
	}
	c, err := r.open(ctx, control.Step{Server: server, Target: server})
	if err != nil {
		return u, err
	}
	defer c.end()
	var paths []string
	for _, leaf := range []string{"missing", "power", "power-limit-set", "power-limit-default", "power-limit-min"} {
		paths = append(paths, text(all())+"/state/"+leaf)
	}
	leaves, err := c.get(paths...)
	if err != nil {
		return u, err
	}
	values := map[string]map[string]string{}
	for _, l := range leaves {
		if values[l.gpu] == nil {
			values[l.gpu] = map[string]string{}
		}
		values[l.gpu][l.name] = word(l.value)
	}
	var is []string
	limited := false
	for _, gpu := range slices.Sorted(maps.Keys(values)) {
		v := values[gpu]
		var numbers [3]float64
		for i, leaf := range []string{"power", "power-limit-set", "power-limit-min"} {
			if numbers[i], err = strconv.ParseFloat(v[leaf], 64); err != nil {
				break
			}
		}
		if err != nil || v["missing"] != "false" { // one that cannot be set makes no limit of the server
			return u, fmt.Errorf("%w: the agent of %s does not read the power of %s", control.ErrCannot, server, gpu)
		}
		u.Parts++
		u.PartsDraw += numbers[0]
		u.PartsLimit += numbers[1]
		u.PartsMin += numbers[2]
		is = append(is, gpu+"="+strconv.FormatFloat(numbers[1], 'f', -1, 64))
		limited = limited || !same(v["power-limit-set"], v["power-limit-default"])
	}
	if len(is) == 0 {
		return u, fmt.Errorf("the agent of %s reads no GPUs now", server)
	}
	if !limited {
		u.PartsLimit = 0
	}
	u.Way, u.Is = way, strings.Join(is, " ")
	return u, nil
}

// To implements control.Capper: the GPUs have in equal parts what the rest of the server leaves.
func (capper) To(u control.Use, watts float64) (string, error) {
	if math.IsNaN(u.Draw) {
		return "", fmt.Errorf("%w: nobody reads what the server draws beside its GPUs", control.ErrCannot)
	}
	each := math.Floor((watts - max(0, u.Draw-u.PartsDraw)) / float64(u.Parts))
	var out []string
	for pair := range strings.FieldsSeq(u.Is) {
		gpu, _, _ := strings.Cut(pair, "=")
		out = append(out, gpu+"="+strconv.FormatFloat(each, 'f', -1, 64))
	}
	return strings.Join(out, " "), nil
}

// Set implements control.Capper: the agent sets all or none.
func (r capper) Set(ctx context.Context, server, _, to, request string) error {
	c, err := r.open(ctx, control.Step{ID: request, Server: server, Target: server})
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	defer c.end()
	req := &gpb.SetRequest{}
	for pair := range strings.FieldsSeq(to) {
		gpu, watts, _ := strings.Cut(pair, "=")
		path, err := target.ParsePath("/gpus/gpu[name=" + target.Key(gpu) + "]/config/" + settings["power_limit"].leaf)
		if err != nil {
			return fmt.Errorf("%w: %w", control.ErrRejected, err)
		}
		req.Update = append(req.Update, &gpb.Update{Path: path, Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: watts}}})
	}
	_, err = c.gnmi.Set(c.ctx, req)
	return told(err)
}
