package api

import (
	"context"
	"errors"
	"net/http"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/configs"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/schemas"
)

// settable tells which field control cannot set as it is.
func settable(err error) error {
	var unset *configs.UnsetError
	if !errors.As(err, &unset) {
		return err
	}
	return fielded{
		problem{422, "not_applicable", "Control cannot set this configuration.", "Store a version without it, or set it by hand."},
		[]apigen.FieldProblem{{In: "stored", Field: unset.Field, Detail: unset.Detail}},
	}
}

// configSteps are what sets a server and its GPUs as the latest configurations of each say.
func (s *Server) configSteps(ctx context.Context, v *schemas.Server) (do []schemas.WorkflowStep, err error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	c, err := e.configs.Server(ctx, v.ID)
	if err == nil && len(c.BIOS)+len(c.RAID)+len(c.Network) > 0 {
		kind, with, err := configs.ServerSettings(&c)
		if err != nil {
			return nil, settable(err)
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
		with, err := configs.GPUSettings(&c)
		if err != nil {
			return nil, settable(err)
		}
		do = append(do, schemas.WorkflowStep{Name: configs.SetGPU, Target: gpus[i].Name, With: with})
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
	with, err := configs.GPUSettings(&c)
	if err != nil {
		return nil, settable(err)
	}
	out, err := s.ask(ctx, g.ServerID, g.Name, configs.SetGPU, with)
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
	kind, with, err := configs.ServerSettings(&c)
	if err != nil {
		return nil, settable(err)
	}
	out, err := s.ask(ctx, v.ID, "", kind, with)
	return apigen.ApplyServerConfig202JSONResponse{AskedJSONResponse: out}, err
}
