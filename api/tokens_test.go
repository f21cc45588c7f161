package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
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
	tag := w.send(t, http.MethodGet, "api/v1/tokens/night", access.RoleAdmin, nil).header.Get("ETag")
	if a := w.do(t, access.RoleAdmin, http.MethodPut, "tokens/night", tag, `{"role":"viewer"}`); a.status != http.StatusOK || tag == "" || a.header.Get("ETag") == tag {
		t.Errorf("%s: %d %s", tag, a.status, a.body)
	}
	if a := w.do(t, access.RoleAdmin, http.MethodPut, "tokens/night", tag, `{"role":"admin"}`); a.status != http.StatusPreconditionFailed {
		t.Errorf("somebody was faster: %d %s", a.status, a.body)
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

// What is sent twice with a key is made once, also where the answer holds a secret, which the store has not in
// clear; a key that could be guessed is refused.
func TestASecretIsAnsweredTwiceAndKeptSealed(t *testing.T) {
	w := start(t, false)
	for path, text := range map[string]string{"tokens": `{"name":"ci","role":"viewer"}`, "login-codes": "", "join-tokens": `{"name":"image"}`} {
		key := "key-of-" + path + "-4f1c2a9e77b04d33"
		ask := func(key, text string) answer {
			return w.send(t, http.MethodPost, "api/v1/"+path, access.RoleAdmin, func(r *http.Request) {
				if text != "" {
					body(text)(r)
				}
				r.Header.Set("Idempotency-Key", key)
			})
		}
		first := ask(key, text)
		var secret struct{ Token, Code string }
		if err := json.Unmarshal(first.body, &secret); err != nil || first.status != http.StatusCreated || secret.Token+secret.Code == "" {
			t.Fatalf("%s: %d %s", path, first.status, first.body)
		}
		if again := ask(key, text); again.status != first.status || string(again.body) != string(first.body) || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s again: %d %s", path, again.status, again.body)
		}
		if text != "" {
			if other := ask(key, strings.Replace(text, `"name":"`, `"name":"other-`, 1)); other.status != http.StatusUnprocessableEntity || other.problem(t).Code != "key_used" {
				t.Errorf("%s, another request: %d %s", path, other.status, other.body)
			}
		}
		if a := ask("k1", text); a.status != http.StatusBadRequest || a.problem(t).Errors[0].Field != "Idempotency-Key" {
			t.Errorf("%s, a short key: %d %s", path, a.status, a.body)
		}
		var found int
		if err := w.db.QueryRowContext(t.Context(), `SELECT count(*) FROM api_answers WHERE answer LIKE '%' || $1 || '%' OR request_key LIKE '%' || $2 || '%'`,
			secret.Token+secret.Code, key).Scan(&found); err != nil || found != 0 {
			t.Errorf("%s: %d rows have the secret or the key, %v", path, found, err)
		}
	}
}
