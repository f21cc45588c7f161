package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/api/oidc"
	"auspex/internal/store/people"
	"auspex/schemas"
)

// loginCookie binds a login by the login service to the browser that began it: its secret, and
// the page to go back to. It is sent when that service sends the browser back, as a session's is not.
const (
	loginCookie = "auspex_login"
	loginWithin = 10 * time.Minute
)

// GetLoginMethods implements the operation getLoginMethods.
func (s *Server) GetLoginMethods(context.Context, apigen.GetLoginMethodsRequestObject) (apigen.GetLoginMethodsResponseObject, error) {
	if s.oidc == nil {
		return apigen.GetLoginMethods200JSONResponse{}, nil
	}
	return apigen.GetLoginMethods200JSONResponse{Oidc: &apigen.LoginService{Name: s.oidc.Button(), Ready: s.oidc.Ready()}}, nil
}

var errNoService = problem{http.StatusNotFound, "not_found", "There is no login service.", "api.oidc of the configuration names one."}

// away sends the browser to a page.
type away func(c *fiber.Ctx) error

// VisitBeginLoginResponse implements apigen.BeginLoginResponseObject.
func (a away) VisitBeginLoginResponse(c *fiber.Ctx) error { return a(c) }

// VisitFinishLoginResponse implements apigen.FinishLoginResponseObject.
func (a away) VisitFinishLoginResponse(c *fiber.Ctx) error { return a(c) }

// BeginLogin implements the operation beginLogin.
func (s *Server) BeginLogin(_ context.Context, r apigen.BeginLoginRequestObject) (apigen.BeginLoginResponseObject, error) {
	if s.oidc == nil {
		return nil, errNoService
	}
	back := r.Params.Return
	return away(func(c *fiber.Ctx) error {
		secret, target, err := s.oidc.Begin()
		if err != nil {
			return s.notIn(c, err)
		}
		c.Cookie(s.loginCookie(secret+"."+url.QueryEscape(s.ownPage(back)), time.Now().Add(loginWithin)))
		return c.Redirect(target, http.StatusFound)
	}), nil
}

func (s *Server) loginCookie(value string, expires time.Time) *fiber.Cookie {
	return &fiber.Cookie{
		Name: loginCookie, Value: value, Path: s.cfg.BasePath + "/api/v1/oidc/", Expires: expires,
		HTTPOnly: true, SameSite: fiber.CookieSameSiteLaxMode, Secure: s.oidc.Secure(),
	}
}

// ownPage is the path of a page of ours, or that of the first: a browser is sent nowhere else.
func (s *Server) ownPage(path string) string {
	first := s.cfg.BasePath + "/"
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(path, first) || strings.HasPrefix(path, "//") ||
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == '\\' || r > '~' }) || strings.HasPrefix(u.Path, "//") ||
		strings.Contains(u.Path, "\\") || strings.HasPrefix(u.Path, first+"api/") {
		return first
	}
	return path
}

// FinishLogin implements the operation finishLogin.
func (s *Server) FinishLogin(ctx context.Context, r apigen.FinishLoginRequestObject) (apigen.FinishLoginResponseObject, error) {
	if s.oidc == nil {
		return nil, errNoService
	}
	back := oidc.Callback{Code: r.Params.Code, State: r.Params.State, Error: r.Params.Error}
	return away(func(c *fiber.Ctx) error {
		kept := c.Cookies(loginCookie)
		c.Cookie(s.loginCookie("", time.Unix(1, 0))) // it is for one try
		secret, page, _ := strings.Cut(kept, ".")
		page, _ = url.QueryUnescape(page)
		st, err := s.oidc.Finish(ctx, secret, back)
		if err == nil {
			var u schemas.User
			if u, err = s.deps.People.Known(ctx, byLogin, st); err == nil {
				session, expires, err := s.access.StartUserSession(ctx, &u)
				if err != nil {
					return err
				}
				s.meter.logins.WithLabelValues("accepted").Inc()
				s.log.Info("browser logged in", "name", u.Username, "role", u.Role, "by", "oidc")
				c.Cookie(s.cookie(session, expires))
				return c.Redirect(s.ownPage(page), http.StatusFound)
			}
		}
		s.meter.logins.WithLabelValues("refused").Inc()
		return s.notIn(c, err)
	}), nil
}

// byLogin is who makes and changes users because a login service says so.
const byLogin = "oidc"

// failures of logins, by the word that the page knows them by.
var failures = []struct {
	err          error
	word, detail string
}{
	{oidc.ErrAway, "away", "The login service does not answer."},
	{oidc.ErrState, "state", "This browser did not begin the login, or too long ago."},
	{oidc.ErrRefused, "refused", "The login service refused the login."},
	{oidc.ErrToken, "token", "What the login service answered does not hold."},
	{oidc.ErrRole, "no_role", "No group of the user has a role here."},
	{people.ErrName, "no_name", "The login service told no usable name and address of the user."},
	{people.ErrInactive, "inactive", "The user is inactive."},
	{people.ErrOther, "other_user", "Another user has the name or address of this one."},
}

// notIn sends a browser to the login page, which says why. The reason is in the fragment, of which
// no server is told.
func (s *Server) notIn(c *fiber.Ctx, err error) error {
	for _, f := range failures {
		if errors.Is(err, f.err) {
			s.log.Warn("login by the login service did not succeed", "reason", f.word, "error", err)
			return c.Redirect(s.cfg.BasePath+"/#login-error="+f.word, http.StatusFound)
		}
	}
	return err
}

// bearer returns whose token of the login service it is.
func (s *Server) bearer(ctx context.Context, token string) (p access.Principal, found bool, err error) {
	id, err := s.oidc.User(ctx, token, func(ctx context.Context, st *people.Statement) (string, error) {
		u, err := s.deps.People.Known(ctx, byLogin, st)
		return u.ID, err
	})
	switch {
	case errors.Is(err, oidc.ErrToken):
		return p, false, nil
	case errors.Is(err, oidc.ErrAway):
		return p, false, problem{http.StatusServiceUnavailable, "login_service_away", "The login service does not answer, so its tokens cannot be checked.", "Try again, or use a token of Auspex."}
	case err == nil:
		return s.access.User(ctx, id)
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return p, false, problem{http.StatusForbidden, f.word, f.detail, "An admin can change that."}
		}
	}
	return p, false, err
}
