package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/hooks"
	"auspex/schemas"
)

// webhooks is the store, for callers who may.
func (s *Server) webhooks(ctx context.Context) (*hooks.Store, error) {
	if err := may(ctx, access.Webhooks); err != nil {
		return nil, err
	}
	if s.deps.Webhooks == nil {
		return nil, problem{http.StatusServiceUnavailable, "no_webhooks", "This console has no webhooks.", "Ask a role with the relational store."}
	}
	return s.deps.Webhooks, nil
}

func refusedHook(err error, ref string) error {
	switch {
	case errors.Is(err, hooks.ErrMany):
		return problem{http.StatusConflict, "too_many", "There are as many webhooks as can be.", "Remove one."}
	case errors.Is(err, hooks.ErrInactive):
		return problem{http.StatusConflict, "inactive", "Nothing is sent to a webhook that is not active.", "Make it active."}
	}
	return refused(err, hooks.Kind, ref)
}

// ListWebhooks implements the operation listWebhooks.
func (s *Server) ListWebhooks(ctx context.Context, r apigen.ListWebhooksRequestObject) (apigen.ListWebhooksResponseObject, error) {
	store, err := s.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	items, next, err := store.List(ctx, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, err
	}
	return apigen.ListWebhooks200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetWebhook implements the operation getWebhook.
func (s *Server) GetWebhook(ctx context.Context, r apigen.GetWebhookRequestObject) (apigen.GetWebhookResponseObject, error) {
	store, err := s.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	h, err := store.Get(ctx, r.ID)
	if err != nil {
		return nil, refusedHook(err, r.ID)
	}
	return apigen.GetWebhook200JSONResponse{Body: h, Headers: apigen.GetWebhook200ResponseHeaders{ETag: etag(h.Revision)}}, nil
}

// CreateWebhook implements the operation createWebhook.
func (s *Server) CreateWebhook(ctx context.Context, r apigen.CreateWebhookRequestObject) (apigen.CreateWebhookResponseObject, error) {
	store, err := s.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	b := r.Body
	h, err := store.Create(ctx, Caller(ctx).Name, schemas.Webhook{
		Name: b.Name, URL: b.URL, Topics: b.Topics, Active: b.Active == nil || *b.Active,
	}, hooks.Secret(b.Secret))
	if err != nil {
		return nil, refusedHook(err, b.Name)
	}
	s.log.Info("webhook created", "name", h.Name, "actor", Caller(ctx).Name)
	return apigen.CreateWebhook201JSONResponse{Body: h, Headers: apigen.CreateWebhook201ResponseHeaders{
		ETag: etag(h.Revision), Location: s.cfg.BasePath + "/api/v1/webhooks/" + h.ID,
	}}, nil
}

// UpdateWebhook implements the operation updateWebhook.
func (s *Server) UpdateWebhook(ctx context.Context, r apigen.UpdateWebhookRequestObject) (apigen.UpdateWebhookResponseObject, error) {
	store, err := s.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	b := r.Body
	h, err := store.Update(ctx, Caller(ctx).Name, r.ID, of, hooks.Secret(b.Secret), func(h *schemas.Webhook) {
		h.Name, h.URL = cmp.Or(b.Name, h.Name), cmp.Or(b.URL, h.URL)
		if b.Topics != nil {
			h.Topics = *b.Topics
		}
		if b.Active != nil {
			h.Active = *b.Active
		}
	})
	if err != nil {
		return nil, refusedHook(err, r.ID)
	}
	s.log.Info("webhook changed", "name", h.Name, "active", h.Active, "actor", Caller(ctx).Name)
	return apigen.UpdateWebhook200JSONResponse{Body: h, Headers: apigen.UpdateWebhook200ResponseHeaders{ETag: etag(h.Revision)}}, nil
}

// DeleteWebhook implements the operation deleteWebhook.
func (s *Server) DeleteWebhook(ctx context.Context, r apigen.DeleteWebhookRequestObject) (apigen.DeleteWebhookResponseObject, error) {
	store, err := s.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := store.Delete(ctx, Caller(ctx).Name, r.ID, of); err != nil {
		return nil, refusedHook(err, r.ID)
	}
	s.log.Info("webhook removed", "name", r.ID, "actor", Caller(ctx).Name)
	return apigen.DeleteWebhook204Response{}, nil
}

// TestWebhook implements the operation testWebhook.
func (s *Server) TestWebhook(ctx context.Context, r apigen.TestWebhookRequestObject) (apigen.TestWebhookResponseObject, error) {
	store, err := s.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	d, err := store.Test(ctx, Caller(ctx).Name, r.ID)
	if err != nil {
		return nil, refusedHook(err, r.ID)
	}
	return apigen.TestWebhook202JSONResponse{Body: d, Headers: apigen.TestWebhook202ResponseHeaders{
		Location: s.cfg.BasePath + "/api/v1/webhooks/" + url.PathEscape(d.WebhookID) + "/deliveries",
	}}, nil
}

// ListDeliveries implements the operation listDeliveries.
func (s *Server) ListDeliveries(ctx context.Context, r apigen.ListDeliveriesRequestObject) (apigen.ListDeliveriesResponseObject, error) {
	store, err := s.webhooks(ctx)
	if err != nil {
		return nil, err
	}
	items, next, err := store.Deliveries(ctx, r.ID, string(r.Params.State), string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(refusedHook(err, r.ID))
	}
	return apigen.ListDeliveries200JSONResponse{Items: orEmpty(items), Next: next}, nil
}
