package api

import (
	"context"
	"strconv"

	"auspex/api/apigen"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

// ListServerWipes implements the operation listServerWipes.
func (s *Server) ListServerWipes(ctx context.Context, r apigen.ListServerWipesRequestObject) (apigen.ListServerWipesResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	from, err := before(r.Params.After)
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	n := pageSize(r.Params.Limit)
	found, err := e.wipes.Of(ctx, v.ID, from, n+1)
	if err != nil {
		return nil, err
	}
	items, next := entity.Page(orEmpty(found), n, func(v *schemas.Wipe) string { return strconv.FormatInt(v.Number, 10) })
	return apigen.ListServerWipes200JSONResponse{Items: items, Next: next}, nil
}
