package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/schemas"
)

// makes sends what is to be made, and returns what was.
func makes[T any](t *testing.T, w *world, path, text string) T {
	t.Helper()
	var v T
	a := w.send(t, http.MethodPost, path, access.RoleAdmin, body(text))
	if a.status != http.StatusCreated {
		t.Fatalf("POST %s: %d %s", path, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *world) user(t *testing.T, name, role string) schemas.User {
	t.Helper()
	return makes[schemas.User](t, w, "api/v1/users", fmt.Sprintf(`{"username":%q,"email":"%s@example.com","role":%q}`, name, name, role))
}

func TestUsersAndTeamsAreMadeChangedAndRead(t *testing.T) {
	w := start(t, false)
	li := w.user(t, "Li", access.RoleOperator)
	w.user(t, "bo", access.RoleViewer)
	a := w.send(t, http.MethodGet, "api/v1/users/li", access.RoleAdmin, nil)
	var got schemas.User
	if err := json.Unmarshal(a.body, &got); err != nil || a.status != http.StatusOK || a.header.Get("ETag") != `"1"` {
		t.Fatalf("%d %s %v %v", a.status, a.body, a.header, err)
	}
	li.Revision = 0
	if d := cmp.Diff(li, got); d != "" {
		t.Error(d)
	}
	change := func(path, tag, text string) answer {
		return w.send(t, http.MethodPut, path, access.RoleAdmin, func(r *http.Request) {
			body(text)(r)
			if tag != "" {
				r.Header.Set("If-Match", tag)
			}
		})
	}
	if a := change("api/v1/users/"+li.ID, `"1"`, `{"role":"engineer"}`); a.status != http.StatusOK || a.header.Get("ETag") != `"2"` {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, tag := range []string{`"1"`, `"x"`, `W/"2"`} {
		if a := change("api/v1/users/li", tag, `{"role":"admin"}`); a.status != http.StatusPreconditionFailed || a.problem(t).Code != "changed_meanwhile" {
			t.Errorf("%s: %d %s", tag, a.status, a.body)
		}
	}
	team := makes[schemas.Team](t, w, "api/v1/teams", `{"name":"vision","members":["bo","LI"]}`)
	if !slices.Equal(team.Members, []string{"bo", "Li"}) {
		t.Error(team.Members)
	}
	if a := change("api/v1/teams/vision", `"1"`, `{"members":[]}`); a.status != http.StatusOK || !strings.Contains(string(a.body), `"members":[]`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodDelete, "api/v1/teams/"+team.ID, access.RoleAdmin, nil); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		code, field              string
	}{
		{"a name twice", http.MethodPost, "users", `{"username":"LI","email":"x@example.com","role":"viewer"}`, 409, "name_taken", "username"},
		{"an address twice", http.MethodPost, "users", `{"username":"x","email":"BO@example.com","role":"viewer"}`, 409, "name_taken", "email"},
		{"no role", http.MethodPost, "users", `{"username":"x","email":"x@example.com"}`, 400, "bad_body", "role"},
		{"a role of nobody", http.MethodPost, "users", `{"username":"x","email":"x@example.com","role":"king"}`, 400, "bad_body", "role"},
		{"a name with spaces", http.MethodPost, "users", `{"username":"x y","email":"x@example.com","role":"viewer"}`, 400, "bad_body", "username"},
		{"no address", http.MethodPost, "users", `{"username":"x","email":"at home","role":"viewer"}`, 400, "bad_body", "email"},
		{"a field that nobody knows", http.MethodPost, "users", `{"username":"x","email":"x@example.com","role":"viewer","admin":true}`, 400, "bad_body", "admin"},
		{"a field twice", http.MethodPost, "users", `{"username":"x","email":"x@example.com","role":"viewer","role":"admin"}`, 400, "bad_body", "role"},
		{"another type", http.MethodPost, "users", `{"username":7,"email":"x@example.com","role":"viewer"}`, 400, "bad_body", "username"},
		{"more behind it", http.MethodPost, "users", `{"username":"x","email":"x@example.com","role":"viewer"} {}`, 400, "bad_body", ""},
		{"nothing", http.MethodPost, "users", ``, 400, "bad_body", ""},
		{"a list", http.MethodPost, "users", `[]`, 400, "bad_body", ""},
		{"deep", http.MethodPost, "users", strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40), 400, "bad_body", ""},
		{"a parameter that nobody knows", http.MethodGet, "users?admin=1", ``, 400, "bad_parameter", "admin"},
		{"a parameter twice", http.MethodGet, "users?role=viewer&role=admin", ``, 400, "bad_parameter", "role"},
		{"a limit that HEAD asks", http.MethodHead, "users?limit=100000", ``, 400, "", ""},
		{"a member that nobody knows", http.MethodPost, "teams", `{"name":"x","members":["bo","eve"]}`, 400, "bad_body", "members[1]"},
		{"a user that nobody knows", http.MethodPut, "users/eve", `{"role":"viewer"}`, 404, "not_found", ""},
	} {
		a := w.send(t, tc.method, "api/v1/"+tc.path, access.RoleAdmin, body(tc.body))
		if a.status != tc.status {
			t.Errorf("%s: %d %s", tc.name, a.status, a.body)
			continue
		}
		if tc.code == "" {
			continue
		}
		p := a.problem(t)
		if fields := fmt.Sprint(p.Errors); p.Code != tc.code || tc.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != tc.field) {
			t.Errorf("%s: %s %s %s", tc.name, p.Code, fields, p.Detail)
		}
	}
}

// A user's token may what both its role and theirs may, for as long as they are active; and so
// does a session that came from it.
func TestATokenFollowsItsUser(t *testing.T) {
	w := start(t, false)
	w.user(t, "li", access.RoleOperator)
	made := makes[apigen.CreatedToken](t, w, "api/v1/tokens", `{"name":"laptop","role":"admin","user":"LI"}`)
	w.tokens["li"] = made.Token
	me := func() apigen.Me {
		t.Helper()
		var m apigen.Me
		a := w.send(t, http.MethodGet, "api/v1/me", "li", nil)
		if a.status == http.StatusOK {
			if err := json.Unmarshal(a.body, &m); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	if m := me(); made.User != "li" || m.Name != "li" || m.Role != access.RoleOperator || m.User.Username != "li" || m.User.ID == "" || m.User.Teams == nil {
		t.Errorf("%+v %+v", made, m)
	}
	if a := w.send(t, http.MethodGet, "api/v1/me", access.RoleAdmin, nil); strings.Contains(string(a.body), `"user"`) {
		t.Errorf("whose is nobody's: %s", a.body)
	}
	a := w.send(t, http.MethodPost, "api/v1/login", "", body(fmt.Sprintf(`{"token":%q}`, made.Token)))
	cookie := a.header.Get("Set-Cookie")
	session := func() int {
		return w.send(t, http.MethodGet, "api/v1/me", "", func(r *http.Request) { r.Header.Set("Cookie", strings.Split(cookie, ";")[0]) }).status
	}
	if session() != http.StatusOK {
		t.Fatal("no session")
	}
	change := func(text string) {
		t.Helper()
		if a := w.send(t, http.MethodPut, "api/v1/users/li", access.RoleAdmin, body(text)); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	change(`{"role":"viewer"}`)
	if m := me(); m.Role != access.RoleViewer {
		t.Errorf("%+v", m)
	}
	change(`{"status":"inactive"}`)
	if m := me(); m.Name != "" || session() != http.StatusUnauthorized {
		t.Errorf("an inactive user gets in: %+v", m)
	}
	if a := w.send(t, http.MethodPost, "api/v1/tokens", access.RoleAdmin, body(`{"name":"phone","role":"viewer","user":"li"}`)); a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	change(`{"status":"active"}`)
	if m := me(); m.Name != "li" || session() != http.StatusOK {
		t.Errorf("%+v", m)
	}
}

// Who may not see all users sees those of their teams, and of others not even that they are there.
func TestPeopleSeeThoseOfTheirTeams(t *testing.T) {
	w := start(t, false)
	w.engineer(t)
	for _, name := range []string{"ana", "bo", "cem"} {
		w.user(t, name, access.RoleEngineer)
		w.tokens[name] = makes[apigen.CreatedToken](t, w, "api/v1/tokens", fmt.Sprintf(`{"name":%q,"role":"engineer","user":%q}`, name, name)).Token
	}
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"vision","members":["ana","bo"]}`)
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"speech","members":["cem"]}`)
	for _, tc := range []struct {
		who, path string
		status    int
	}{
		{"ana", "users/bo", 200},
		{"ana", "users/ana", 200},
		{"ana", "users/cem", 404},
		{"ana", "users/eve", 404},
		{"ana", "teams/vision", 200},
		{"ana", "teams/speech", 404},
		{access.RoleAdmin, "users/cem", 200},
		{access.RoleEngineer, "users/cem", 404},
		{access.RoleEngineer, "users", 403},
	} {
		if a := w.send(t, http.MethodGet, "api/v1/"+tc.path, tc.who, nil); a.status != tc.status {
			t.Errorf("%s of %s: %d %s", tc.path, tc.who, a.status, a.body)
		}
	}
	unknown := w.send(t, http.MethodGet, "api/v1/users/eve", "ana", nil)
	if other := w.send(t, http.MethodGet, "api/v1/users/cem", "ana", nil); strings.ReplaceAll(string(other.body), "cem", "eve") != string(unknown.body) {
		t.Errorf("%s\n%s", other.body, unknown.body)
	}
	var list apigen.UserList
	if err := json.Unmarshal(w.send(t, http.MethodGet, "api/v1/users", "ana", nil).body, &list); err != nil || len(list.Items) != 2 {
		t.Errorf("%+v %v", list, err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		path, text := "api/v1/users", `{"username":"x","email":"x@example.com","role":"viewer"}`
		if method == http.MethodPut {
			path, text = "api/v1/users/ana", `{"role":"admin"}`
		}
		if a := w.send(t, method, path, "ana", body(text)); a.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", method, a.status, a.body)
		}
	}
}

// The same request with the same key is answered as before, by this process and by one that
// starts later; another request with that key is refused.
func TestARequestWithAKeyIsDoneOnce(t *testing.T) {
	w := start(t, false)
	send := func(role, key, name string) answer {
		return w.send(t, http.MethodPost, "api/v1/users", role, func(r *http.Request) {
			body(fmt.Sprintf(`{"username":%q,"email":"%s@example.com","role":"viewer"}`, name, name))(r)
			r.Header.Set("Idempotency-Key", key)
		})
	}
	var mu sync.Mutex
	bodies := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			a := send(access.RoleAdmin, "k1", "li")
			for a.status == http.StatusConflict && a.problem(t).Code == "at_work" {
				a = send(access.RoleAdmin, "k1", "li")
			}
			mu.Lock()
			defer mu.Unlock()
			bodies[fmt.Sprint(a.status, string(a.body), a.header.Get("Location"), a.header.Get("ETag"))]++
		})
	}
	wg.Wait()
	if len(bodies) != 1 {
		t.Errorf("%v", bodies)
	}
	if a := send(access.RoleAdmin, "k1", "bo"); a.status != http.StatusUnprocessableEntity || a.problem(t).Code != "key_used" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := send(access.RoleAdmin, "k2", "li"); a.status != http.StatusConflict || a.problem(t).Code != "name_taken" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := send(access.RoleOperator, "k3", "bo"); a.status != http.StatusForbidden {
		t.Errorf("%d %s", a.status, a.body)
	}
	var err error
	if w.tokens[access.RoleOperator], err = w.IssueToken(t.Context(), access.RoleOperator, access.RoleAdmin); err != nil {
		t.Fatal(err)
	}
	if a := send(access.RoleOperator, "k3", "bo"); a.status != http.StatusCreated {
		t.Errorf("what was forbidden stays so: %d %s", a.status, a.body)
	}
	w.stop()
	w.up()
	if a := send(access.RoleAdmin, "k1", "li"); a.status != http.StatusCreated || bodies[fmt.Sprint(a.status, string(a.body), a.header.Get("Location"), a.header.Get("ETag"))] == 0 ||
		a.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s %v", a.status, a.body, a.header)
	}
	if _, err := w.db.ExecContext(t.Context(), `DELETE FROM api_answers`); err != nil { // as if it was killed before it answered
		t.Fatal(err)
	}
	if a := send(access.RoleAdmin, "k1", "li"); a.status != http.StatusCreated {
		t.Errorf("what was made is not found again: %d %s", a.status, a.body)
	}
}
