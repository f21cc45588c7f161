package api_test

import (
	"net/http"
	"testing"

	"auspex/api/access"
)

// What a route does not have is refused with what it has, whoever invented the method.
func TestAMethodThatARouteDoesNotHaveIsToldThoseThatItHas(t *testing.T) {
	w := start(t, true)
	for _, tc := range []struct{ method, path, allow string }{
		{http.MethodPatch, "api/v1/users/x", "GET, HEAD, PUT"},
		{http.MethodTrace, "api/v1/allocations", "GET, HEAD, POST"},
		{"QUERY", "api/v1/allocations/x", "DELETE, GET, HEAD, PUT"},
		{http.MethodPut, "api/v1/workflows/deploy", "POST"}, // not those of /workflows/{id}
	} {
		a := w.send(t, tc.method, tc.path, access.RoleAdmin, nil)
		if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != tc.allow {
			t.Errorf("%s %s: %d, allowed are %q", tc.method, tc.path, a.status, a.header.Get("Allow"))
		} else if p := a.problem(t); p.Code != "no_route" {
			t.Errorf("%s %s: %+v", tc.method, tc.path, p)
		}
	}
}

// A bad request says which field is at fault, and which part of the request has it.
func TestABadRequestNamesItsField(t *testing.T) {
	w := start(t, true)
	for _, tc := range []struct{ method, path, body, in, field, code string }{
		{http.MethodGet, "api/v1/search", "", "query", "q", "bad_parameter"},
		{http.MethodGet, "api/v1/alerts?after=zzz", "", "query", "after", "bad_cursor"},
		{http.MethodPost, "api/v1/tokens", `{"name":"x","role":"viewer","expires_in":9223372036854775808}`, "body", "expires_in", "bad_body"},
		{http.MethodPost, "api/v1/tokens", `{"name":"a b","role":"viewer"}`, "body", "name", ""},
		{http.MethodPost, "api/v1/maintenance", `{"resources":["dc1-r01"],"reason":"x","duration_seconds":9223372036854775808}`, "body", "duration_seconds", "bad_body"},
		{http.MethodPost, "api/v1/maintenance", `{"resources":["dc1-r01"],"reason":"x"}`, "body", "until", "bad_maintenance"},
	} {
		var change func(*http.Request)
		if tc.body != "" {
			change = body(tc.body)
		}
		a := w.send(t, tc.method, tc.path, access.RoleAdmin, change)
		p := a.problem(t)
		if a.status != http.StatusBadRequest || tc.code != "" && p.Code != tc.code || len(p.Errors) != 1 || p.Errors[0].In != tc.in || p.Errors[0].Field != tc.field || p.Errors[0].Detail == "" {
			t.Errorf("%s %s: %d %+v", tc.method, tc.path, a.status, p)
		}
	}
}

// A body that the document lets out may be left out.
func TestABodyThatIsNotNeededIsNotAskedFor(t *testing.T) {
	w := start(t, true)
	a := w.send(t, http.MethodPost, "api/v1/allocations/none/stop", access.RoleAdmin, nil)
	if p := a.problem(t); a.status != http.StatusNotFound || p.Code != "not_found" {
		t.Errorf("%d %+v", a.status, p)
	}
}
