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
	"auspex/control/messages"
	"auspex/internal/target"
	"auspex/schemas"
)

// setting is a parameter of the rung configure_gpu: the leaf of a GPU's config that says it, and
// those of its state that show it. What takes a reset to be in force shows what comes after it.
type setting struct {
	leaf  string
	shown []string
}

var settings = map[string]setting{
	"power_limit":        {"power-limit", []string{"power-limit-set"}},
	"application_clocks": {"application-clocks", []string{"application-memory-clock", "application-sm-clock"}},
	"ecc":                {"ecc-enabled", []string{"ecc-pending"}},
	"persistence":        {"persistence", []string{"persistence"}},
	"mig":                {"mig-enabled", []string{"mig-pending"}},
}

// configure is the remediator of the rung configure_gpu: settings of a GPU, or of all of a server.
// The agent sets all or none, reads back what it set, and takes it back where one fails.
type configure struct{ hand }

// state is how one GPU is set.
type state struct {
	gpu  string
	has  map[string]string // by parameter; what the board does not tell is missing
	read bool              // it is read now
}

// look reads how the GPUs of a step are set.
func (c call) look(s control.Step) (out []state, err error) {
	of, err := scope(s)
	if err != nil {
		return nil, err
	}
	if len(s.With) == 0 {
		return nil, fmt.Errorf("%w: the step has no settings", control.ErrCannot)
	}
	paths := []string{text(of) + "/state/missing"}
	for _, name := range slices.Sorted(maps.Keys(s.With)) {
		known, ok := settings[name]
		if !ok {
			return nil, fmt.Errorf("%w: %s cannot be set through an agent", control.ErrCannot, name)
		}
		for _, leaf := range known.shown {
			paths = append(paths, text(of)+"/state/"+leaf)
		}
	}
	leaves, err := c.get(paths...)
	if err != nil {
		return nil, err
	}
	values := map[string]map[string]string{}
	for _, l := range leaves {
		if values[l.gpu] == nil {
			values[l.gpu] = map[string]string{}
		}
		values[l.gpu][l.name] = word(l.value)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		one := state{gpu: name, has: map[string]string{}, read: values[name]["missing"] == "false"}
		for parameter := range s.With {
			var parts []string
			for _, leaf := range settings[parameter].shown {
				if v, ok := values[name][leaf]; ok {
					parts = append(parts, v)
				}
			}
			if len(parts) == len(settings[parameter].shown) {
				one.has[parameter] = strings.Join(parts, ",")
			}
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("the agent reads none of %s now", text(of))
	}
	return out, nil
}

// word is a value as a policy writes it.
func word(v *gpb.TypedValue) string {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_BoolVal:
		return strconv.FormatBool(x.BoolVal)
	case *gpb.TypedValue_UintVal:
		return strconv.FormatUint(x.UintVal, 10)
	case *gpb.TypedValue_IntVal:
		return strconv.FormatInt(x.IntVal, 10)
	case *gpb.TypedValue_DoubleVal:
		return strconv.FormatFloat(x.DoubleVal, 'f', -1, 64)
	}
	return v.GetStringVal()
}

// same compares values as they are meant: 500 is 500.0.
func same(a, b string) bool {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return a == b || err1 == nil && err2 == nil && math.Abs(x-y) < .001
}

// changes says what would change, or has not: gpu3 power_limit 700 → 500.
func changes(states []state, s control.Step) (out []string) {
	for _, one := range states {
		for _, name := range slices.Sorted(maps.Keys(s.With)) {
			has, told := one.has[name]
			switch want := s.With[name]; {
			case !told:
				out = append(out, fmt.Sprintf("%s %s ? → %s", one.gpu, name, want))
			case !same(has, want):
				out = append(out, fmt.Sprintf("%s %s %s → %s", one.gpu, name, has, want))
			}
		}
	}
	return out
}

// about are the arguments of sentences.
func about(states []state, s control.Step) messages.Args {
	var gpus, wanted []string
	for _, one := range states {
		gpus = append(gpus, one.gpu)
	}
	for _, name := range slices.Sorted(maps.Keys(s.With)) {
		wanted = append(wanted, name+" "+s.With[name])
	}
	return messages.Args{
		"server": s.Server, "gpus": strings.Join(gpus, ", "), "settings": strings.Join(wanted, ", "), "changes": strings.Join(changes(states, s), ", "),
	}
}

// Plan implements control.Remediator.
func (r configure) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	c, err := r.open(ctx, s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	defer c.end()
	states, err := c.look(s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	if len(changes(states, s)) == 0 {
		return messages.New(messages.WouldSetNo, about(states, s)), nil
	}
	return messages.New(messages.WouldSet, about(states, s)), nil
}

// Apply implements control.Remediator.
func (r configure) Apply(ctx context.Context, s control.Step) error {
	c, err := r.open(ctx, s)
	if err != nil {
		return err
	}
	defer c.end()
	states, err := c.look(s)
	if err != nil { // nothing was sent that could be done
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	req := &gpb.SetRequest{}
	for _, one := range states {
		for _, name := range slices.Sorted(maps.Keys(s.With)) {
			path, err := target.ParsePath("/gpus/gpu[name=" + target.Key(one.gpu) + "]/config/" + settings[name].leaf)
			if err != nil {
				return fmt.Errorf("%w: %w", control.ErrRejected, err)
			}
			value := &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: s.With[name]}}
			req.Update = append(req.Update, &gpb.Update{Path: path, Val: value})
		}
	}
	_, err = c.gnmi.Set(c.ctx, req)
	return told(err)
}

// Verify implements control.Remediator: the agent reads the GPUs as they should be. What it has set it
// read back; so it matters not when it read what it tells, while that was otherwise before.
func (r configure) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	c, err := r.open(ctx, s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	defer c.end()
	states, err := c.look(s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	for _, one := range states {
		if !one.read || len(changes(states, s)) > 0 {
			return control.Pending, messages.New(messages.SetUnread, about(states, s)), nil
		}
	}
	return control.Verified, messages.New(messages.SetRead, about(states, s)), nil
}

// Read implements control.Reader.
func (r configure) Read(ctx context.Context, s control.Step) (map[string]control.Reading, error) {
	c, err := r.open(ctx, s)
	if err != nil {
		return nil, err
	}
	defer c.end()
	states, err := c.look(s)
	if err != nil {
		return nil, err
	}
	out := map[string]control.Reading{}
	for _, one := range states {
		if one.read {
			out[s.Server+"/"+one.gpu] = control.Reading{Has: one.has}
		}
	}
	return out, nil
}
