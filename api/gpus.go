package api

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/schemas"
)

type gpuList struct{ paged[schemas.GPU] }

// VisitListGPUsResponse implements apigen.ListGPUsResponseObject.
func (l gpuList) VisitListGPUsResponse(c *fiber.Ctx) error { return l.visit(c) }

// ListGPUs implements the operation listGPUs.
func (s *Server) ListGPUs(ctx context.Context, r apigen.ListGPUsRequestObject) (apigen.ListGPUsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	p := r.Params
	f := estate.Filter{Status: string(p.Status), Pool: p.Pool, Model: p.Model, Gone: p.Gone, Sort: string(p.Sort)}
	if p.Server != "" {
		v, err := s.server(ctx, p.Server)
		if err != nil {
			return nil, err
		}
		f.Server = v.ID
	}
	page := func(ctx context.Context, after string, limit int) ([]schemas.GPU, string, error) {
		f := f
		f.After, f.Limit = after, limit
		return e.GPUs(ctx, f)
	}
	return gpuList{paged[schemas.GPU]{s, page, p.After, func() (any, error) {
		items, next, err := page(ctx, p.After, pageSize(p.Limit))
		return apigen.GPUList{Items: orEmpty(items), Next: next}, err
	}}}, nil
}

// ListServerGPUs implements the operation listServerGPUs.
func (s *Server) ListServerGPUs(ctx context.Context, r apigen.ListServerGPUsRequestObject) (apigen.ListServerGPUsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	gone := !v.Present || v.Status == schemas.ServerRetired // then so are its GPUs
	items, next, err := e.GPUs(ctx, estate.Filter{Server: v.ID, Gone: gone, After: r.Params.After, Limit: pageSize(r.Params.Limit)})
	if err != nil {
		return nil, err
	}
	return apigen.ListServerGPUs200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// RegisterGPU implements the operation registerGPU.
func (s *Server) RegisterGPU(ctx context.Context, r apigen.RegisterGPURequestObject) (apigen.RegisterGPUResponseObject, error) {
	e, err := s.editor(ctx, access.Inventory)
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	gpu, err := part(r.Body, v.Name, "")
	if err != nil {
		return nil, err
	}
	err = s.bring(ctx, e, schemas.Topology{Version: 1, Resources: []schemas.Resource{gpu}}, cmdb.ImportOptions{
		Check: func(old *cmdb.Snapshot) error {
			if _, there := old.Resource(v.Name); !there {
				return errLeft(v.Name)
			}
			return newPart(ctx, e, old, &gpu, "", make(map[string]bool))
		},
		With: func(ctx context.Context, tx *sql.Tx) error {
			g, err := estate.GPUOf(ctx, tx, gpu.ID)
			if err != nil {
				return err
			}
			return entity.Audit(ctx, tx, time.Now(), Caller(ctx).Name, entity.Create, estate.KindGPU, gpu.ID, nil, g)
		},
	})
	if err != nil && !errors.Is(err, errMade) {
		return nil, refused(err, "GPU", gpu.ID)
	}
	g, err := e.GPU(ctx, gpu.ID)
	if err != nil {
		return nil, refused(err, "GPU", gpu.ID)
	}
	s.noted(ctx, "GPU registered", g.Name)
	return apigen.RegisterGPU201JSONResponse{Body: g, Headers: apigen.RegisterGPU201ResponseHeaders{
		ETag: etag(g.Revision), Location: s.cfg.BasePath + "/api/v1/gpus/" + url.PathEscape(g.ID),
	}}, nil
}

// GetGPU implements the operation getGPU.
func (s *Server) GetGPU(ctx context.Context, r apigen.GetGPURequestObject) (apigen.GetGPUResponseObject, error) {
	g, err := s.gpu(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetGPU200JSONResponse{Body: g, Headers: apigen.GetGPU200ResponseHeaders{ETag: etag(g.Revision)}}, nil
}

// UpdateGPU implements the operation updateGPU.
func (s *Server) UpdateGPU(ctx context.Context, r apigen.UpdateGPURequestObject) (apigen.UpdateGPUResponseObject, error) {
	e, err := s.keeper(ctx)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	g, err := s.gpu(ctx, r.ID)
	if err == nil {
		err = s.mayOn(ctx, access.Inventory, g.ServerID)
	}
	if err != nil {
		return nil, err
	}
	b, by := r.Body, Caller(ctx).Name
	is := schemas.Resource{ID: g.Name, Kind: schemas.KindGPU}
	for k, p := range map[string]*string{
		schemas.AttrModel: b.Model, schemas.AttrSerial: b.SerialNumber, schemas.AttrDriverVersion: b.DriverVersion, schemas.AttrCUDAVersion: b.CudaVersion,
	} {
		if p != nil {
			is.Attrs = is.Attrs.With(k, *p)
		}
	}
	if b.MemoryGb != nil {
		is.Attrs = is.Attrs.With(schemas.AttrMemoryGB, strconv.FormatFloat(*b.MemoryGb, 'f', -1, 64))
	}
	t := schemas.Topology{Version: 1, Resources: []schemas.Resource{is}}
	if is.Attrs.Len() == 0 {
		t.Resources = nil
	}
	var before schemas.GPU
	err = s.bring(ctx, e, t, cmdb.ImportOptions{
		Check: func(old *cmdb.Snapshot) error {
			if _, there := old.Resource(g.Name); !there && is.Attrs.Len() > 0 {
				return errLeft(g.Name)
			}
			return nobodys(old, "serial_number", is.Attrs.Get(schemas.AttrSerial), g.Name)
		},
		First: func(ctx context.Context, tx *sql.Tx) (err error) {
			if before, err = estate.LockGPU(ctx, tx, g.ID); err != nil {
				return err
			}
			return entity.Check(of, before.Revision)
		},
		With: func(ctx context.Context, tx *sql.Tx) error {
			if b.Status != "" && b.Status != before.Status {
				if _, err := e.ChangeGPU(ctx, tx, by, g.ID, b.Status, b.StatusReason); err != nil {
					return err
				}
			}
			if is.Attrs.Len() == 0 {
				return nil
			}
			after, err := estate.GPUOf(ctx, tx, g.ID)
			if err != nil {
				return err
			}
			return entity.Audit(ctx, tx, time.Now(), by, entity.Update, estate.KindGPU, g.Name, before, after)
		},
	})
	if err != nil {
		return nil, refused(err, "GPU", r.ID)
	}
	if g, err = e.GPU(ctx, g.ID); err != nil {
		return nil, refused(err, "GPU", r.ID)
	}
	s.noted(ctx, "GPU changed", g.Name)
	return apigen.UpdateGPU200JSONResponse{Body: g, Headers: apigen.UpdateGPU200ResponseHeaders{ETag: etag(g.Revision)}}, nil
}
