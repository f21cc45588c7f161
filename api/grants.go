package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

// rights is what somebody was granted in pools, by the pool's name, as far as their credential reaches.
func (s *Server) rights(ctx context.Context, who access.Principal) (map[string]apigen.PoolRight, error) {
	if who.User == "" && who.Script() == "" {
		return nil, nil //nolint:nilnil // to whom nothing can be granted
	}
	found, err := s.deps.People.GrantsOf(ctx, who.User, who.Script())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	out := make(map[string]apigen.PoolRight)
	for i := range found {
		role := who.Cap(found[i].Role)
		if slices.Index(schemas.Roles(), role) > slices.Index(schemas.Roles(), out[found[i].Pool].Role) {
			out[found[i].Pool] = apigen.PoolRight{Pool: found[i].Pool, Role: role, Permissions: access.InPool(role)}
		}
	}
	for pool := range out {
		if len(out[pool].Permissions) == 0 {
			delete(out, pool)
		}
	}
	return out, nil
}

// lacks is the answer to whoever lacks a permission, everywhere or in a pool.
func lacks(ctx context.Context, permission, pool string) error {
	detail := fmt.Sprintf("%s lacks the permission %q.", Caller(ctx).Name, permission)
	if pool != "" {
		detail = fmt.Sprintf("%s lacks the permission %q in the pool %s.", Caller(ctx).Name, permission, pool)
	}
	return problem{http.StatusForbidden, "no_permission", detail, "An admin can grant it."}
}

// mayIn is the one place that decides whether a caller may do something in pools: their role lets
// them do it everywhere, or they are granted it in each of these.
func (s *Server) mayIn(ctx context.Context, permission string, pools ...string) error {
	who := Caller(ctx)
	if who.May(permission) {
		return nil
	}
	granted, err := s.rights(ctx, who)
	if err != nil {
		return err
	}
	for _, pool := range pools {
		if !slices.Contains(granted[pool].Permissions, permission) {
			return lacks(ctx, permission, pool)
		}
	}
	if len(pools) == 0 {
		return lacks(ctx, permission, "")
	}
	return nil
}

// somewhere asks whether a caller may do something anywhere at all, before it is known what it is
// about. Whatever then does it asks mayIn, mayOn or mayGive too.
func (s *Server) somewhere(ctx context.Context, permission string) error {
	who := Caller(ctx)
	if who.May(permission) {
		return nil
	}
	granted, err := s.rights(ctx, who)
	if err != nil {
		return err
	}
	for _, r := range granted {
		if slices.Contains(r.Permissions, permission) {
			return nil
		}
	}
	return lacks(ctx, permission, "")
}

// mayOn is mayIn of the pools that servers are in, by name or id. What is no server is in none.
func (s *Server) mayOn(ctx context.Context, permission string, servers ...string) error {
	if Caller(ctx).May(permission) {
		return nil
	}
	if err := s.somewhere(ctx, permission); err != nil { // as of most who come here
		return err
	}
	pools := make([]string, len(servers))
	for i, ref := range servers {
		v, err := s.deps.Estate.Server(ctx, ref)
		if errors.Is(err, entity.ErrNone) {
			return lacks(ctx, permission, "")
		} else if err != nil {
			return err
		}
		pools[i] = v.Pool
	}
	return s.mayIn(ctx, permission, pools...)
}

// mayGive is mayIn of all that is asked for: of a wish the pool that it names, which it then has to.
func (s *Server) mayGive(ctx context.Context, permission string, r *schemas.AllocationRequest) error {
	if Caller(ctx).May(permission) {
		return nil
	}
	if r.Wish != nil {
		if r.Wish.Pool == "" {
			return wrong("body", apigen.FieldProblem{Field: "wish.pool", Detail: "it is needed: " + Caller(ctx).Name + " may allocate in some pools only"})
		}
		return s.mayIn(ctx, permission, r.Wish.Pool)
	}
	servers := slices.Clone(r.ServerIDs)
	for _, id := range r.GPUIDs {
		g, err := s.deps.Estate.GPU(ctx, id)
		if err != nil {
			return err
		}
		servers = append(servers, g.ServerID)
	}
	return s.mayOn(ctx, permission, servers...)
}

// ListGrants implements the operation listGrants.
func (s *Server) ListGrants(ctx context.Context, r apigen.ListGrantsRequestObject) (apigen.ListGrantsResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	items, next, err := s.deps.People.Grants(ctx, r.Params.Pool, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListGrants200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetGrant implements the operation getGrant.
func (s *Server) GetGrant(ctx context.Context, r apigen.GetGrantRequestObject) (apigen.GetGrantResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	g, err := s.deps.People.Grant(ctx, r.ID)
	if err != nil {
		return nil, refused(err, "grant", r.ID)
	}
	return apigen.GetGrant200JSONResponse(g), nil
}

// CreateGrant implements the operation createGrant.
func (s *Server) CreateGrant(ctx context.Context, r apigen.CreateGrantRequestObject) (apigen.CreateGrantResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	b := r.Body
	holders := 0
	for _, name := range []string{b.User, b.Team, b.Token} {
		if name != "" {
			holders++
		}
	}
	if holders != 1 {
		return nil, wrong("body", apigen.FieldProblem{Field: "user", Detail: fmt.Sprintf("one of user, team and token is to be named, and there are %d", holders)})
	}
	g, err := s.deps.People.CreateGrant(ctx, Caller(ctx).Name, schemas.Grant{User: b.User, Team: b.Team, Token: b.Token, Pool: b.Pool, Role: b.Role})
	if field := (*entity.FieldError)(nil); errors.As(err, &field) && field.Taken {
		return nil, problem{http.StatusConflict, "granted", "There is a grant in the pool " + field.Value + " already.", "Take that back first."}
	} else if err != nil {
		return nil, refused(err, "grant", b.Pool)
	}
	s.noted(ctx, "granted in the pool "+g.Pool, g.User+g.Team+g.Token)
	return apigen.CreateGrant201JSONResponse{Body: g, Headers: apigen.CreateGrant201ResponseHeaders{Location: s.at("grants", g.ID)}}, nil
}

// DeleteGrant implements the operation deleteGrant.
func (s *Server) DeleteGrant(ctx context.Context, r apigen.DeleteGrantRequestObject) (apigen.DeleteGrantResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	if err := s.deps.People.DeleteGrant(ctx, Caller(ctx).Name, r.ID); err != nil {
		return nil, refused(err, "grant", r.ID)
	}
	s.noted(ctx, "grant taken back", r.ID)
	return apigen.DeleteGrant204Response{}, nil
}
