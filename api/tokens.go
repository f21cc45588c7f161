package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
)

// maxTokenLife is the longest time that a token may be made for, in seconds.
const maxTokenLife = 100 * 365 * 24 * 3600

// ListTokens implements the operation listTokens.
func (s *Server) ListTokens(ctx context.Context, r apigen.ListTokensRequestObject) (apigen.ListTokensResponseObject, error) {
	if err := may(ctx, access.Tokens); err != nil {
		return nil, err
	}
	found, next, err := s.access.Tokens(ctx, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(err)
	}
	out := apigen.ListTokens200JSONResponse{Items: make([]apigen.Token, len(found)), Next: next}
	for k := range out.Items {
		out.Items[k] = tokenOf(&found[k])
	}
	return out, nil
}

func tokenOf(t *access.Token) apigen.Token {
	return apigen.Token{Name: t.Name, Role: t.Role, User: t.User, Created: t.Created, Expires: t.Expires, LastUsed: t.Used}
}

// GetToken implements the operation getToken.
func (s *Server) GetToken(ctx context.Context, r apigen.GetTokenRequestObject) (apigen.GetTokenResponseObject, error) {
	if err := may(ctx, access.Tokens); err != nil {
		return nil, err
	}
	t, err := s.access.TokenOf(ctx, r.Name)
	if errors.Is(err, access.ErrNoToken) {
		return nil, missing("token", r.Name)
	} else if err != nil {
		return nil, err
	}
	return apigen.GetToken200JSONResponse{Body: tokenOf(&t), Headers: apigen.GetToken200ResponseHeaders{ETag: t.Tag()}}, nil
}

// UpdateToken implements the operation updateToken.
func (s *Server) UpdateToken(ctx context.Context, r apigen.UpdateTokenRequestObject) (apigen.UpdateTokenResponseObject, error) {
	if err := may(ctx, access.Tokens); err != nil {
		return nil, err
	}
	var lifetime *time.Duration
	if r.Body.ExpiresIn != nil {
		d := time.Duration(*r.Body.ExpiresIn) * time.Second
		lifetime = &d
	}
	t, err := s.access.ChangeToken(ctx, Caller(ctx).Name, r.Name, r.Params.IfMatch, r.Body.Role, lifetime)
	switch {
	case errors.Is(err, access.ErrNoToken):
		return nil, missing("token", r.Name)
	case errors.Is(err, access.ErrStale):
		return nil, errStale
	case err != nil:
		return nil, err
	}
	s.hub.Prune(func(owner any) bool { return s.stands(ctx, owner) })
	s.log.Info("token changed", "name", t.Name, "role", t.Role, "actor", Caller(ctx).Name)
	return apigen.UpdateToken200JSONResponse{Body: tokenOf(&t), Headers: apigen.UpdateToken200ResponseHeaders{ETag: t.Tag()}}, nil
}

// CreateToken implements the operation createToken.
func (s *Server) CreateToken(ctx context.Context, r apigen.CreateTokenRequestObject) (apigen.CreateTokenResponseObject, error) {
	if err := may(ctx, access.Tokens); err != nil {
		return nil, err
	}
	if r.Body.ExpiresIn < 0 || r.Body.ExpiresIn > maxTokenLife {
		return nil, faulty("body", "expires_in", "bad_parameter", "expires_in is not within 0 to 100 years.", "It is in seconds; 0 means no expiry.")
	}
	plain, t, err := s.access.CreateToken(ctx, Caller(ctx).Name, r.Body.Name, r.Body.Role, r.Body.User, time.Duration(r.Body.ExpiresIn)*time.Second)
	switch {
	case errors.Is(err, access.ErrTaken):
		return nil, problem{http.StatusConflict, "name_taken", "A token with this name exists.", "Choose another name, or revoke that one first."}
	case errors.Is(err, access.ErrUser):
		return nil, wrong("body", apigen.FieldProblem{Field: "user", Detail: "there is no such user, or not an active one"})
	case errors.Is(err, access.ErrName):
		return nil, faulty("body", "name", "bad_parameter", "The name of the token is invalid.", "A name has 1 to 64 letters, digits and . _ @ -.")
	case errors.Is(err, access.ErrRole):
		return nil, faulty("body", "role", "bad_parameter", "The role of the token is invalid.", "The OpenAPI document lists the roles.")
	case err != nil:
		return nil, err
	}
	s.log.Info("token created", "name", t.Name, "role", t.Role, "user", t.User, "actor", Caller(ctx).Name)
	return apigen.CreateToken201JSONResponse{Name: t.Name, Role: t.Role, User: t.User, Created: t.Created, Expires: t.Expires, Token: plain}, nil
}

// RevokeToken implements the operation revokeToken.
func (s *Server) RevokeToken(ctx context.Context, r apigen.RevokeTokenRequestObject) (apigen.RevokeTokenResponseObject, error) {
	if err := may(ctx, access.Tokens); err != nil {
		return nil, err
	}
	err := s.access.RevokeToken(ctx, Caller(ctx).Name, r.Name)
	switch {
	case errors.Is(err, access.ErrNoToken):
		return nil, missing("token", r.Name)
	case err != nil:
		return nil, err
	}
	s.hub.Prune(func(owner any) bool { return s.stands(ctx, owner) })
	s.log.Info("token revoked", "name", r.Name, "actor", Caller(ctx).Name)
	return apigen.RevokeToken204Response{}, nil
}

// pruneEvery is how soon a stream ends whose token was revoked by another process.
const pruneEvery = time.Second

// prune ends the streams of those who are no longer let in.
func (s *Server) prune(ctx context.Context) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.hub.Prune(func(owner any) bool { return s.stands(ctx, owner) })
		}
	}
}

// stands reports whether a credential is still good; a store that does not answer
// ends nothing.
func (s *Server) stands(ctx context.Context, owner any) bool {
	id, ok := owner.(*identity)
	if !ok {
		return true
	}
	var found bool
	var err error
	if id.session != "" {
		_, found, err = s.access.Session(ctx, id.session)
	} else if s.oidc != nil && s.oidc.Takes(id.token) {
		_, found, err = s.bearer(ctx, id.token)
	} else {
		_, found, err = s.access.Token(ctx, id.token)
	}
	return found || err != nil
}
