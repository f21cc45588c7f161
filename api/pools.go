package api

import (
	"cmp"
	"context"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/allocations"
	"auspex/schemas"
)

// ListPools implements the operation listPools.
func (s *Server) ListPools(ctx context.Context, r apigen.ListPoolsRequestObject) (apigen.ListPoolsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	items, next, err := e.Pools(ctx, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	return apigen.ListPools200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetPool implements the operation getPool.
func (s *Server) GetPool(ctx context.Context, r apigen.GetPoolRequestObject) (apigen.GetPoolResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	p, err := e.Pool(ctx, r.ID)
	if err != nil {
		return nil, refused(err, "pool", r.ID)
	}
	return apigen.GetPool200JSONResponse{Body: p, Headers: apigen.GetPool200ResponseHeaders{ETag: etag(p.Revision)}}, nil
}

// CreatePool implements the operation createPool.
func (s *Server) CreatePool(ctx context.Context, r apigen.CreatePoolRequestObject) (apigen.CreatePoolResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	p, err := e.CreatePool(ctx, Caller(ctx).Name, schemas.Pool{Name: r.Body.Name, Description: r.Body.Description})
	if err != nil {
		return nil, refused(err, "pool", r.Body.Name)
	}
	s.noted(ctx, "pool created", p.Name)
	return apigen.CreatePool201JSONResponse{Body: p, Headers: apigen.CreatePool201ResponseHeaders{
		ETag: etag(p.Revision), Location: s.cfg.BasePath + "/api/v1/pools/" + p.ID,
	}}, nil
}

// UpdatePool implements the operation updatePool.
func (s *Server) UpdatePool(ctx context.Context, r apigen.UpdatePoolRequestObject) (apigen.UpdatePoolResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	p, err := e.UpdatePool(ctx, Caller(ctx).Name, r.ID, of, func(p *schemas.Pool) {
		p.Name = cmp.Or(r.Body.Name, p.Name)
		if r.Body.Description != nil {
			p.Description = *r.Body.Description
		}
	})
	if err != nil {
		return nil, refused(err, "pool", r.ID)
	}
	s.noted(ctx, "pool changed", p.Name)
	return apigen.UpdatePool200JSONResponse{Body: p, Headers: apigen.UpdatePool200ResponseHeaders{ETag: etag(p.Revision)}}, nil
}

// DeletePool implements the operation deletePool.
func (s *Server) DeletePool(ctx context.Context, r apigen.DeletePoolRequestObject) (apigen.DeletePoolResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := e.DeletePool(ctx, Caller(ctx).Name, r.ID, of); err != nil {
		return nil, refused(err, "pool", r.ID)
	}
	s.noted(ctx, "pool removed", r.ID)
	return apigen.DeletePool204Response{}, nil
}

// quotaOf is a quota as the API has it.
func quotaOf(q *allocations.Used) apigen.Quota {
	out := apigen.Quota{
		ID: q.ID, Team: q.Team, Pool: q.Pool, MaxGpus: q.MaxGPUs, MaxServers: q.MaxServers, CreatedAt: q.CreatedAt, UpdatedAt: q.UpdatedAt,
		Usage: make([]apigen.QuotaUsage, len(q.Usage)),
	}
	if q.MaxDuration != 0 {
		out.MaxSeconds = &q.MaxDuration
	}
	for i, u := range q.Usage {
		out.Usage[i] = apigen.QuotaUsage{Team: u.Team, User: u.User, Gpus: u.GPUs, Servers: u.Servers}
	}
	return out
}

// quota reads a quota for whoever asks.
func (s *Server) quota(ctx context.Context, e *holdings, id string) (q apigen.Quota, tag string, err error) {
	used, err := e.allocations.Quota(ctx, viewer(ctx), id)
	if err != nil {
		return q, "", refused(err, "quota", id)
	}
	return quotaOf(&used), etag(used.Revision), nil
}

// ListQuotas implements the operation listQuotas.
func (s *Server) ListQuotas(ctx context.Context, r apigen.ListQuotasRequestObject) (apigen.ListQuotasResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	found, next, err := e.allocations.Quotas(ctx, viewer(ctx), string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	out := apigen.ListQuotas200JSONResponse{Items: make([]apigen.Quota, len(found)), Next: next}
	for i := range found {
		out.Items[i] = quotaOf(&found[i])
	}
	return out, nil
}

// GetQuota implements the operation getQuota.
func (s *Server) GetQuota(ctx context.Context, r apigen.GetQuotaRequestObject) (apigen.GetQuotaResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	q, tag, err := s.quota(ctx, e, r.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetQuota200JSONResponse{Body: q, Headers: apigen.GetQuota200ResponseHeaders{ETag: tag}}, nil
}

// bound sets the limits of a quota; nil is none.
func bound(q *schemas.Quota, gpus, servers, seconds *int64) {
	q.MaxGPUs, q.MaxServers, q.MaxDuration = gpus, servers, 0
	if seconds != nil {
		q.MaxDuration = *seconds
	}
}

// CreateQuota implements the operation createQuota.
func (s *Server) CreateQuota(ctx context.Context, r apigen.CreateQuotaRequestObject) (apigen.CreateQuotaResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	b := r.Body
	made, err := e.allocations.PutQuota(ctx, Caller(ctx).Name, "", 0, func(q *schemas.Quota) {
		q.Team, q.Pool = b.Team, b.Pool
		bound(q, b.MaxGpus, b.MaxServers, b.MaxSeconds)
	})
	if err != nil {
		return nil, refused(err, "quota", b.Team)
	}
	q, tag, err := s.quota(ctx, e, made.ID)
	if err != nil {
		return nil, err
	}
	s.noted(ctx, "quota created", q.ID)
	return apigen.CreateQuota201JSONResponse{Body: q, Headers: apigen.CreateQuota201ResponseHeaders{
		ETag: tag, Location: s.cfg.BasePath + "/api/v1/quotas/" + q.ID,
	}}, nil
}

// UpdateQuota implements the operation updateQuota.
func (s *Server) UpdateQuota(ctx context.Context, r apigen.UpdateQuotaRequestObject) (apigen.UpdateQuotaResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if _, err := e.allocations.PutQuota(ctx, Caller(ctx).Name, r.ID, of, func(q *schemas.Quota) {
		bound(q, r.Body.MaxGpus, r.Body.MaxServers, r.Body.MaxSeconds)
	}); err != nil {
		return nil, refused(err, "quota", r.ID)
	}
	q, tag, err := s.quota(ctx, e, r.ID)
	if err != nil {
		return nil, err
	}
	s.noted(ctx, "quota changed", q.ID)
	return apigen.UpdateQuota200JSONResponse{Body: q, Headers: apigen.UpdateQuota200ResponseHeaders{ETag: tag}}, nil
}

// DeleteQuota implements the operation deleteQuota.
func (s *Server) DeleteQuota(ctx context.Context, r apigen.DeleteQuotaRequestObject) (apigen.DeleteQuotaResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := e.allocations.DeleteQuota(ctx, Caller(ctx).Name, r.ID, of); err != nil {
		return nil, refused(err, "quota", r.ID)
	}
	s.noted(ctx, "quota removed", r.ID)
	return apigen.DeleteQuota204Response{}, nil
}

// ListReservations implements the operation listReservations.
func (s *Server) ListReservations(ctx context.Context, r apigen.ListReservationsRequestObject) (apigen.ListReservationsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	items, next, err := e.allocations.Reservations(ctx, viewer(ctx), string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	return apigen.ListReservations200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetReservation implements the operation getReservation.
func (s *Server) GetReservation(ctx context.Context, r apigen.GetReservationRequestObject) (apigen.GetReservationResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	v, err := e.allocations.Reservation(ctx, viewer(ctx), r.ID)
	if err != nil {
		return nil, refused(err, "reservation", r.ID)
	}
	return apigen.GetReservation200JSONResponse{Body: v, Headers: apigen.GetReservation200ResponseHeaders{ETag: etag(v.Revision)}}, nil
}

// CreateReservation implements the operation createReservation.
func (s *Server) CreateReservation(ctx context.Context, r apigen.CreateReservationRequestObject) (apigen.CreateReservationResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	b := r.Body
	v, err := e.allocations.PutReservation(ctx, Caller(ctx).Name, "", 0, func(v *schemas.Reservation) {
		v.Name, v.Team, v.Pool, v.GPUs, v.Servers = b.Name, b.Team, b.Pool, b.Gpus, b.Servers
		v.StartTime, v.EndTime = zeroOr(b.StartTime, time.Now()).UTC(), b.EndTime.UTC()
	})
	if err != nil {
		return nil, refused(err, "reservation", b.Name)
	}
	s.noted(ctx, "reservation created", v.Name)
	return apigen.CreateReservation201JSONResponse{Body: v, Headers: apigen.CreateReservation201ResponseHeaders{
		ETag: etag(v.Revision), Location: s.cfg.BasePath + "/api/v1/reservations/" + v.ID,
	}}, nil
}

// UpdateReservation implements the operation updateReservation.
func (s *Server) UpdateReservation(ctx context.Context, r apigen.UpdateReservationRequestObject) (apigen.UpdateReservationResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	b := r.Body
	v, err := e.allocations.PutReservation(ctx, Caller(ctx).Name, r.ID, of, func(v *schemas.Reservation) {
		v.Name, v.Team, v.Pool = cmp.Or(b.Name, v.Name), cmp.Or(b.Team, v.Team), cmp.Or(b.Pool, v.Pool)
		if b.Gpus != nil {
			v.GPUs = *b.Gpus
		}
		if b.Servers != nil {
			v.Servers = *b.Servers
		}
		v.StartTime, v.EndTime = zeroOr(b.StartTime, v.StartTime).UTC(), zeroOr(b.EndTime, v.EndTime).UTC()
	})
	if err != nil {
		return nil, refused(err, "reservation", r.ID)
	}
	s.noted(ctx, "reservation changed", v.Name)
	return apigen.UpdateReservation200JSONResponse{Body: v, Headers: apigen.UpdateReservation200ResponseHeaders{ETag: etag(v.Revision)}}, nil
}

// DeleteReservation implements the operation deleteReservation.
func (s *Server) DeleteReservation(ctx context.Context, r apigen.DeleteReservationRequestObject) (apigen.DeleteReservationResponseObject, error) {
	e, err := s.editor(ctx, access.Quotas)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := e.allocations.DeleteReservation(ctx, Caller(ctx).Name, r.ID, of); err != nil {
		return nil, refused(err, "reservation", r.ID)
	}
	s.noted(ctx, "reservation removed", r.ID)
	return apigen.DeleteReservation204Response{}, nil
}
