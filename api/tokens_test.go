package api_test

import (
	"net/http"
	"testing"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/audit"
)

// What a token may, and until when, can be changed without another secret. It counts at the next
// request, of the token and of the session that came from it.
func TestATokenIsReadAndChanged(t *testing.T) {
	w := start(t, false)
	made := makes[apigen.CreatedToken](t, w, "api/v1/tokens", `{"name":"night","role":"operator","expires_in":3600}`)
	w.tokens["night"] = made.Token
	login := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"token":"`+made.Token+`"}`))
	cookie, err := http.ParseSetCookie(login.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	roles := func(want string) {
		t.Helper()
		for name, a := range map[string]answer{
			"token":   w.send(t, http.MethodGet, "api/v1/me", "night", nil),
			"session": w.send(t, http.MethodGet, "api/v1/me", "", func(r *http.Request) { r.AddCookie(cookie) }),
		} {
			if want == "" {
				if a.status != http.StatusUnauthorized {
					t.Errorf("%s: %d %s", name, a.status, a.body)
				}
			} else if me := decode[apigen.Me](t, a, http.StatusOK); me.Role != want {
				t.Errorf("%s may as %s, want %s", name, me.Role, want)
			}
		}
	}
	change := func(text string) apigen.Token {
		t.Helper()
		out := decode[apigen.Token](t, w.send(t, http.MethodPut, "api/v1/tokens/night", access.RoleAdmin, body(text)), http.StatusOK)
		if one := decode[apigen.Token](t, w.send(t, http.MethodGet, "api/v1/tokens/night", access.RoleAdmin, nil), http.StatusOK); one.Role != out.Role || !one.Expires.Equal(out.Expires) {
			t.Errorf("%+v, and read %+v", out, one)
		}
		return out
	}
	roles(access.RoleOperator)
	if got := change(`{"role":"viewer"}`); !got.Expires.Equal(made.Expires) {
		t.Errorf("what is left out has changed: %+v", got)
	}
	roles(access.RoleViewer)
	if got := change(`{"role":"engineer","expires_in":0}`); !got.Expires.IsZero() {
		t.Errorf("%+v", got)
	}
	roles(access.RoleEngineer)
	for text, field := range map[string]string{`{"role":"king"}`: "role", `{"expires_in":-1}`: "expires_in", `{"token":"x"}`: "token", `{"name":"day"}`: "name"} {
		if a := w.send(t, http.MethodPut, "api/v1/tokens/night", access.RoleAdmin, body(text)); a.status != http.StatusBadRequest || a.problem(t).Errors[0].Field != field {
			t.Errorf("%s: %d %s", text, a.status, a.body)
		}
	}
	change(`{"expires_in":1}`)
	if _, err := w.db.ExecContext(t.Context(), `UPDATE api_tokens SET expires_ns=1 WHERE name='night'`); err != nil { // the second is over
		t.Fatal(err)
	}
	roles("")
	if a := w.send(t, http.MethodPut, "api/v1/tokens/none", access.RoleAdmin, body(`{"role":"viewer"}`)); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if _, err := audit.Verify(t.Context(), w.db); err != nil {
		t.Error(err)
	}
}
