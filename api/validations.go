package api

import (
	"context"
	"strconv"

	"auspex/api/apigen"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

// ListServerValidations implements the operation listServerValidations.
func (s *Server) ListServerValidations(ctx context.Context, r apigen.ListServerValidationsRequestObject) (apigen.ListServerValidationsResponseObject, error) {
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
	found, err := e.validations.Of(ctx, v.ID, from, n+1)
	if err != nil {
		return nil, err
	}
	items, next := entity.Page(orEmpty(found), n, func(v *schemas.Validation) string { return strconv.FormatInt(v.Number, 10) })
	return apigen.ListServerValidations200JSONResponse{Items: items, Next: next}, nil
}
