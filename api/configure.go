package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/schemas"
)

// driverSettings are those of driver_config that control can set, by the name of its parameter.
var driverSettings = []string{"ecc", "mig", "persistence"}

// unset is a configuration that control cannot set as it is.
func unset(field, detail string) error {
	return fielded{
		problem{422, "not_applicable", "Control cannot set this configuration.", "Store a version without it, or set it by hand."},
		[]apigen.FieldProblem{{In: "stored", Field: field, Detail: detail}},
	}
}

// gpuSettings are the parameters of the step that sets a GPU so.
func gpuSettings(c *schemas.GPUConfig) (map[string]string, error) {
	with := map[string]string{}
	if c.PowerLimit != nil {
		with["power_limit"] = strconv.FormatFloat(*c.PowerLimit, 'f', -1, 64)
	}
	left := maps.Clone(c.Driver)
	sm, clocked := left["sm_clock"].(float64)
	delete(left, "sm_clock")
	if (c.MemoryClock != nil) != clocked {
		return nil, unset("memory_clock", "it is set together with driver_config.sm_clock, in MHz, or not at all")
	}
	if clocked {
		with["application_clocks"] = fmt.Sprintf("%d,%d", int64(*c.MemoryClock), int64(sm))
	}
	for _, name := range driverSettings {
		switch v := left[name].(type) {
		case bool:
			with[name] = strconv.FormatBool(v)
			delete(left, name)
		case nil:
		default:
			return nil, unset("driver_config."+name, "it is true or false")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		return nil, unset("driver_config."+name, "no driver of control sets it")
	}
	if len(with) == 0 {
		return nil, unset("power_limit", "the configuration has no setting")
	}
	return with, nil
}

// serverSettings are the step that sets a server so, and its parameters. A configuration is not set in
// part: what no driver sets of it is what is asked for.
func serverSettings(c *schemas.ServerConfig) (kind string, with map[string]string, err error) {
	kind, settings := "set_bios", c.BIOS
	switch {
	case len(c.RAID) > 0:
		kind, settings = "set_raid", c.RAID
	case len(c.Network) > 0:
		kind, settings = "set_network", c.Network
	case len(c.BIOS) == 0:
		return "", nil, unset("bios_config", "the configuration has no setting")
	}
	with = make(map[string]string, len(settings))
	for name, v := range settings {
		if kind == "set_bios" && (name == paramReset || name == paramForce) {
			return "", nil, unset("bios_config."+name, "the name is that of a parameter")
		}
		switch v := v.(type) {
		case float64:
			with[name] = strconv.FormatFloat(v, 'f', -1, 64)
		case string, bool:
			with[name] = fmt.Sprint(v)
		default:
			if kind == "set_bios" {
				return "", nil, unset("bios_config."+name, "an attribute is a text, a number, or true or false")
			}
			text, err := json.Marshal(v)
			if err != nil {
				return "", nil, err
			}
			with[name] = string(text)
		}
	}
	return kind, with, nil
}

// configSteps are what sets a server and its GPUs as the latest configurations of each say.
func (s *Server) configSteps(ctx context.Context, v *schemas.Server) (do []schemas.WorkflowStep, err error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	c, err := e.configs.Server(ctx, v.ID)
	if err == nil && len(c.BIOS)+len(c.RAID)+len(c.Network) > 0 {
		kind, with, err := serverSettings(&c)
		if err != nil {
			return nil, err
		}
		do = append(do, schemas.WorkflowStep{Name: kind, With: with})
	} else if err != nil && !errors.Is(err, entity.ErrNone) {
		return nil, err
	}
	gpus, _, err := e.GPUs(ctx, estate.Filter{Server: v.ID, Limit: maxPage})
	if err != nil {
		return nil, err
	}
	for i := range gpus {
		c, err := e.configs.GPU(ctx, gpus[i].ID)
		if errors.Is(err, entity.ErrNone) {
			continue
		} else if err != nil {
			return nil, err
		}
		with, err := gpuSettings(&c)
		if err != nil {
			return nil, err
		}
		do = append(do, schemas.WorkflowStep{Name: "configure_gpu", Target: gpus[i].Name, With: with})
	}
	if len(do) == 0 {
		return nil, problem{http.StatusConflict, "no_config", "Neither " + v.Name + " nor a GPU of it has a configuration.", "Store one first."}
	}
	return do, nil
}

// ApplyGPUConfig implements the operation applyGPUConfig.
func (s *Server) ApplyGPUConfig(ctx context.Context, r apigen.ApplyGPUConfigRequestObject) (apigen.ApplyGPUConfigResponseObject, error) {
	if err := s.somewhere(ctx, access.Operate); err != nil {
		return nil, err
	}
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	g, err := s.gpu(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := s.mayOn(ctx, access.Operate, g.ServerID); err != nil {
		return nil, err
	}
	c, err := e.configs.GPU(ctx, g.ID)
	if err != nil {
		return nil, refused(err, "configuration of GPU", g.Name)
	}
	with, err := gpuSettings(&c)
	if err != nil {
		return nil, err
	}
	out, err := s.ask(ctx, g.ServerID, g.Name, "configure_gpu", with)
	return apigen.ApplyGPUConfig202JSONResponse{AskedJSONResponse: out}, err
}

// ApplyServerConfig implements the operation applyServerConfig.
func (s *Server) ApplyServerConfig(ctx context.Context, r apigen.ApplyServerConfigRequestObject) (apigen.ApplyServerConfigResponseObject, error) {
	if err := s.somewhere(ctx, access.Operate); err != nil {
		return nil, err
	}
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := s.mayOn(ctx, access.Operate, v.ID); err != nil {
		return nil, err
	}
	c, err := e.configs.Server(ctx, v.ID)
	if err != nil {
		return nil, refused(err, "configuration of server", v.Name)
	}
	kind, with, err := serverSettings(&c)
	if err != nil {
		return nil, err
	}
	out, err := s.ask(ctx, v.ID, "", kind, with)
	return apigen.ApplyServerConfig202JSONResponse{AskedJSONResponse: out}, err
}
