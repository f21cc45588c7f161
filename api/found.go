package api

import (
	"context"
	"strconv"

	"auspex/api/apigen"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

// foundOf is a page of what was found of a server: records that never change, the newest first.
func foundOf[T any](
	ctx context.Context, s *Server, id, after string, limit apigen.QueryLimit, number func(*T) int64,
	list func(e *holdings) func(ctx context.Context, server string, before int64, limit int) ([]T, error),
) (items []T, next string, err error) {
	e, err := s.holdings()
	if err != nil {
		return nil, "", err
	}
	from, err := before(after)
	if err != nil {
		return nil, "", err
	}
	v, err := s.itself(ctx, id)
	if err != nil {
		return nil, "", err
	}
	n := pageSize(limit)
	found, err := list(e)(ctx, v.ID, from, n+1)
	if err != nil {
		return nil, "", err
	}
	items, next = entity.Page(orEmpty(found), n, func(one *T) string { return strconv.FormatInt(number(one), 10) })
	return items, next, nil
}

// ListServerValidations implements the operation listServerValidations.
func (s *Server) ListServerValidations(ctx context.Context, r apigen.ListServerValidationsRequestObject) (apigen.ListServerValidationsResponseObject, error) {
	items, next, err := foundOf(ctx, s, r.ID, r.Params.After, r.Params.Limit, func(v *schemas.Validation) int64 { return v.Number },
		func(e *holdings) func(context.Context, string, int64, int) ([]schemas.Validation, error) {
			return e.validations.Of
		})
	if err != nil {
		return nil, err
	}
	return apigen.ListServerValidations200JSONResponse{Items: items, Next: next}, nil
}

// ListServerWipes implements the operation listServerWipes.
func (s *Server) ListServerWipes(ctx context.Context, r apigen.ListServerWipesRequestObject) (apigen.ListServerWipesResponseObject, error) {
	items, next, err := foundOf(ctx, s, r.ID, r.Params.After, r.Params.Limit, func(w *schemas.Wipe) int64 { return w.Number },
		func(e *holdings) func(context.Context, string, int64, int) ([]schemas.Wipe, error) { return e.wipes.Of })
	if err != nil {
		return nil, err
	}
	return apigen.ListServerWipes200JSONResponse{Items: items, Next: next}, nil
}
