package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/entity"
	"auspex/internal/store/people"
	"auspex/schemas"
)

// etag is the entity tag of a revision (RFC 9110, section 8.8.3), and revision reads one back;
// no tag is any revision.
func etag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

func revision(tag string) (int64, error) {
	if tag == "" || tag == "*" {
		return 0, nil
	}
	text, quoted := strings.CutPrefix(tag, `"`)
	text, end := strings.CutSuffix(text, `"`)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && quoted && end && n > 0 {
		return n, nil
	}
	return 0, errStale // no tag of ours: what it was made of is not there
}

var errStale = problem{
	http.StatusPreconditionFailed, "changed_meanwhile", "It was changed since the ETag of If-Match was given.", "Read it again, and change that.",
}

// refused tells the errors of the store as a person should see them.
func refused(err error, what, ref string) error {
	if out, ok := standing(err); ok {
		return out
	}
	var field *entity.FieldError
	switch {
	case errors.Is(err, entity.ErrNone):
		return missing(what, ref)
	case errors.Is(err, entity.ErrChanged):
		return errStale
	case errors.Is(err, entity.ErrInUse):
		return problem{http.StatusConflict, "in_use", "Something refers to this " + what + ".", "Remove that first."}
	case errors.As(err, &field) && field.Taken:
		return fielded{
			problem{http.StatusConflict, "name_taken", "There is another " + what + " with this " + field.Field + ".", "Choose another."},
			[]apigen.FieldProblem{{In: "body", Field: field.Field, Detail: field.Error()}},
		}
	case errors.As(err, &field):
		return wrong("body", apigen.FieldProblem{Field: field.Field, Detail: strings.TrimPrefix(field.Error(), field.Field+" ")})
	}
	return err
}

// near is the user around whom a caller may look, or "" for one who sees all.
func near(ctx context.Context) (id string, err error) {
	if who := Caller(ctx); !who.May(access.Users) && who.User != "" {
		return who.User, nil
	}
	return "", may(ctx, access.Users)
}

// ListUsers implements the operation listUsers.
func (s *Server) ListUsers(ctx context.Context, r apigen.ListUsersRequestObject) (apigen.ListUsersResponseObject, error) {
	around, err := near(ctx)
	if err != nil {
		return nil, err
	}
	items, next, err := s.deps.People.Users(ctx, people.Filter{
		Role: string(r.Params.Role), Status: string(r.Params.Status), Near: around, Sort: string(r.Params.Sort), After: r.Params.After,
		Limit: pageSize(r.Params.Limit),
	})
	if err != nil {
		return nil, err
	}
	return apigen.ListUsers200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// sees reports whether a caller may know of a user: themselves, and those of their teams.
func (s *Server) sees(ctx context.Context, u *schemas.User) (bool, error) {
	who := Caller(ctx)
	if who.May(access.Users) || who.User == u.ID {
		return true, nil
	}
	if who.User == "" {
		return false, nil
	}
	self, err := s.deps.People.User(ctx, who.User)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(u.Teams, func(t string) bool { return slices.Contains(self.Teams, t) }), nil
}

// GetUser implements the operation getUser.
func (s *Server) GetUser(ctx context.Context, r apigen.GetUserRequestObject) (apigen.GetUserResponseObject, error) {
	u, err := s.deps.People.User(ctx, r.ID)
	if err != nil {
		return nil, refused(err, "user", r.ID)
	}
	if ok, err := s.sees(ctx, &u); err != nil {
		return nil, err
	} else if !ok {
		return nil, missing("user", r.ID) // the same as of nobody
	}
	return apigen.GetUser200JSONResponse{Body: u, Headers: apigen.GetUser200ResponseHeaders{ETag: etag(u.Revision)}}, nil
}

// CreateUser implements the operation createUser.
func (s *Server) CreateUser(ctx context.Context, r apigen.CreateUserRequestObject) (apigen.CreateUserResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	b := r.Body
	u, err := s.deps.People.CreateUser(ctx, Caller(ctx).Name, schemas.User{
		Username: b.Username, Email: b.Email, Role: b.Role, Status: cmp.Or(b.Status, schemas.UserActive),
	})
	if err != nil {
		return nil, refused(err, "user", b.Username)
	}
	s.log.Info("user created", "username", u.Username, "role", u.Role, "actor", Caller(ctx).Name)
	return apigen.CreateUser201JSONResponse{Body: u, Headers: apigen.CreateUser201ResponseHeaders{
		ETag: etag(u.Revision), Location: s.cfg.BasePath + "/api/v1/users/" + u.ID,
	}}, nil
}

// UpdateUser implements the operation updateUser.
func (s *Server) UpdateUser(ctx context.Context, r apigen.UpdateUserRequestObject) (apigen.UpdateUserResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	u, err := s.deps.People.UpdateUser(ctx, Caller(ctx).Name, r.ID, of, func(u *schemas.User) {
		u.Username, u.Email = cmp.Or(r.Body.Username, u.Username), cmp.Or(r.Body.Email, u.Email)
		u.Role, u.Status = cmp.Or(r.Body.Role, u.Role), cmp.Or(r.Body.Status, u.Status)
	})
	if err != nil {
		return nil, refused(err, "user", r.ID)
	}
	s.hub.Prune(func(owner any) bool { return s.stands(ctx, owner) })
	s.log.Info("user changed", "username", u.Username, "role", u.Role, "status", u.Status, "actor", Caller(ctx).Name)
	return apigen.UpdateUser200JSONResponse{Body: u, Headers: apigen.UpdateUser200ResponseHeaders{ETag: etag(u.Revision)}}, nil
}

// ListTeams implements the operation listTeams.
func (s *Server) ListTeams(ctx context.Context, r apigen.ListTeamsRequestObject) (apigen.ListTeamsResponseObject, error) {
	around, err := near(ctx)
	if err != nil {
		return nil, err
	}
	items, next, err := s.deps.People.Teams(ctx, people.Filter{Near: around, Sort: string(r.Params.Sort), After: r.Params.After, Limit: pageSize(r.Params.Limit)})
	if err != nil {
		return nil, err
	}
	return apigen.ListTeams200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetTeam implements the operation getTeam.
func (s *Server) GetTeam(ctx context.Context, r apigen.GetTeamRequestObject) (apigen.GetTeamResponseObject, error) {
	t, err := s.deps.People.Team(ctx, r.ID)
	if err != nil {
		return nil, refused(err, "team", r.ID)
	}
	if who := Caller(ctx); !who.May(access.Users) {
		self, err := s.deps.People.User(ctx, who.User)
		if err != nil && !errors.Is(err, entity.ErrNone) {
			return nil, err
		}
		if !slices.Contains(self.Teams, t.Name) {
			return nil, missing("team", r.ID)
		}
	}
	return apigen.GetTeam200JSONResponse{Body: t, Headers: apigen.GetTeam200ResponseHeaders{ETag: etag(t.Revision)}}, nil
}

// CreateTeam implements the operation createTeam.
func (s *Server) CreateTeam(ctx context.Context, r apigen.CreateTeamRequestObject) (apigen.CreateTeamResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	t, err := s.deps.People.CreateTeam(ctx, Caller(ctx).Name, schemas.Team{Name: r.Body.Name, Description: r.Body.Description, Members: r.Body.Members})
	if err != nil {
		return nil, refused(err, "team", r.Body.Name)
	}
	s.log.Info("team created", "name", t.Name, "actor", Caller(ctx).Name)
	return apigen.CreateTeam201JSONResponse{Body: t, Headers: apigen.CreateTeam201ResponseHeaders{
		ETag: etag(t.Revision), Location: s.cfg.BasePath + "/api/v1/teams/" + url.PathEscape(t.ID),
	}}, nil
}

// UpdateTeam implements the operation updateTeam.
func (s *Server) UpdateTeam(ctx context.Context, r apigen.UpdateTeamRequestObject) (apigen.UpdateTeamResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	t, err := s.deps.People.UpdateTeam(ctx, Caller(ctx).Name, r.ID, of, func(t *schemas.Team) {
		t.Name = cmp.Or(r.Body.Name, t.Name)
		if r.Body.Description != nil {
			t.Description = *r.Body.Description
		}
		if r.Body.Members != nil {
			t.Members = *r.Body.Members
		}
	})
	if err != nil {
		return nil, refused(err, "team", r.ID)
	}
	s.log.Info("team changed", "name", t.Name, "members", len(t.Members), "actor", Caller(ctx).Name)
	return apigen.UpdateTeam200JSONResponse{Body: t, Headers: apigen.UpdateTeam200ResponseHeaders{ETag: etag(t.Revision)}}, nil
}

// DeleteTeam implements the operation deleteTeam.
func (s *Server) DeleteTeam(ctx context.Context, r apigen.DeleteTeamRequestObject) (apigen.DeleteTeamResponseObject, error) {
	if err := may(ctx, access.Users); err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := s.deps.People.DeleteTeam(ctx, Caller(ctx).Name, r.ID, of); err != nil {
		return nil, refused(err, "team", r.ID)
	}
	s.log.Info("team removed", "name", r.ID, "actor", Caller(ctx).Name)
	return apigen.DeleteTeam204Response{}, nil
}
