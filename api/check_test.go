package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/audit"
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

// Whatever is wrong with a request, it is refused by the field at fault, and nothing is changed.
func TestBadInputChangesNothing(t *testing.T) {
	w, ids := rightsWorld(t)
	newest := func() int64 {
		t.Helper()
		rows, err := audit.New(w.db, time.Now).List(t.Context(), 0, 1)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		return rows[0].Seq
	}
	deep := strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)
	quote := url.QueryEscape(`x' OR '1'='1'; DROP TABLE users; --`)
	const admin = access.RoleAdmin
	for _, tc := range []struct {
		name, who, method, path, body string
		status                        int
		field                         string // "" is of no field
	}{
		{"no JSON", admin, "POST", "users", `{"username":`, 400, ""},
		{"two values", admin, "POST", "pools", `{"name":"x"}{"name":"y"}`, 400, ""},
		{"no object", admin, "POST", "pools", `["x"]`, 400, ""},
		{"no UTF-8", admin, "POST", "pools", "{\"name\":\"x\",\"description\":\"\xff\"}", 400, ""},
		{"too large", admin, "POST", "pools", `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, 413, ""},
		{"a text too long", admin, "POST", "teams", `{"name":"x","description":"` + strings.Repeat("x", 1001) + `"}`, 400, "description"},
		{"deeply nested", admin, "PUT", "servers/gpu-r01-01/config", `{"bios_config":` + deep + `}`, 400, ""},
		{"deep lists", admin, "POST", "teams", `{"name":"x","members":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`, 400, ""},
		{"a number for a text", admin, "POST", "pools", `{"name":7}`, 400, "name"},
		{"a text for a number", admin, "POST", "quotas", `{"team":"red","max_gpus":"8"}`, 400, "max_gpus"},
		{"null for a text", admin, "POST", "pools", `{"name":null}`, 400, "name"},
		{"a text for a list", admin, "POST", "teams", `{"name":"x","members":"li"}`, 400, "members"},
		{"an unknown field", admin, "POST", "pools", `{"name":"x","colour":"red"}`, 400, "colour"},
		{"an unknown field within", "red-engineer", "POST", "allocations", `{"wish":{"servers":1,"colour":"red"}}`, 400, "wish.colour"},
		{"an unknown parameter", admin, "GET", "servers?colour=red", "", 400, "colour"},
		{"a key twice", admin, "POST", "pools", `{"name":"x","name":"y"}`, 400, "name"},
		{"a key twice within", "red-engineer", "POST", "allocations", `{"wish":{"servers":1,"servers":2}}`, 400, "wish.servers"},
		{"a key twice, escaped", admin, "POST", "pools", `{"name":"x","n\u0061me":"y"}`, 400, "name"},
		{"another tenant's id", "red-engineer", "PUT", "allocations/" + ids["allocation"][1], `{"purpose":"mine"}`, 404, ""},
		{"another tenant's id in a body", "red-engineer", "POST", "workflows/deploy", `{"allocation_id":"` + ids["allocation"][1] + `","server_id":"gpu-r03-06"}`, 404, ""},
		{"another tenant's user in a body", "red-engineer", "POST", "allocations", `{"server_id":"gpu-r08-08","user_id":"jo"}`, 400, "user_id"},
		{"an end that is over", "red-engineer", "POST", "allocations", `{"server_id":"gpu-r08-08","user_id":"red-engineer","end_time":"2001-01-01T00:00:00Z"}`, 400, "end_time"},
		{"an end before its start", admin, "POST", "reservations", `{"name":"x","team":"red","pool":"default","gpus":1,"start_time":"2098-01-02T00:00:00Z","end_time":"2098-01-01T00:00:00Z"}`, 400, "end_time"},
		{"a window that ends before it begins", admin, "POST", "maintenance", `{"resources":["dc1-r01"],"reason":"x","from":"2098-01-02T00:00:00Z","until":"2098-01-01T00:00:00Z"}`, 400, "until"},
		{"a span that runs backwards", admin, "GET", "gpus/gpu-r01-01%2Fgpu1/metrics?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "", 400, "from"},
		{"an end that cannot be kept", "red-engineer", "POST", "allocations", `{"server_id":"gpu-r08-08","user_id":"red-engineer","end_time":"9999-12-31T00:00:00Z"}`, 400, "end_time"},
		{"a start that cannot be kept", "red-engineer", "POST", "allocations", `{"server_id":"gpu-r08-08","user_id":"red-engineer","start_time":"9998-01-01T00:00:00Z","end_time":"9998-01-02T00:00:00Z"}`, 400, ""},
		{"a start of the year 1", "red-engineer", "POST", "allocations", `{"server_id":"gpu-r08-08","user_id":"red-engineer","start_time":"0001-01-01T00:00:00Z"}`, 400, "start_time"},
		{"a later end that cannot be kept", "red-engineer", "PUT", "allocations/" + ids["allocation"][0], `{"end_time":"2300-01-01T00:00:00Z"}`, 400, "end_time"},
		{"a reservation that cannot be kept", admin, "POST", "reservations", `{"name":"x","team":"red","pool":"default","gpus":1,"end_time":"2300-01-01T00:00:00Z"}`, 400, "end_time"},
		{"since a time that cannot be kept", admin, "GET", "alerts?since=9999-01-01T00:00:00Z", "", 400, "since"},
		{"since the year 1", admin, "GET", "incidents?since=0001-01-01T00:00:00Z", "", 400, "since"},
		{"a day that there is not", admin, "GET", "alerts?since=2026-02-30T00:00:00Z", "", 400, "since"},
		{"a NUL in a text", admin, "POST", "pools", `{"name":"x","description":"a\u0000b"}`, 400, "description"},
		{"a NUL in a text within", admin, "PUT", "servers/gpu-r01-01", `{"labels":{"a":"\u0000"}}`, 400, "labels.a"},
		{"a NUL in a name", admin, "PUT", "servers/gpu-r01-01/config", `{"bios_config":{"a\u0000":1}}`, 400, "bios_config"},
		{"a NUL in a filter", admin, "GET", "servers?model=a%00", "", 400, "model"},
		{"a NUL in an id", admin, "GET", "users/a%00b", "", 400, "id"},
		{"a filter that is no UTF-8", admin, "GET", "servers?model=%ff", "", 400, "model"},
		{"an id that is no UTF-8", admin, "GET", "users/%ff", "", 400, "id"},
		{"a number beyond all", admin, "PUT", "servers/gpu-r01-01/config", `{"bios_config":{"a":1e400}}`, 400, "bios_config.a"},
		{"no time", admin, "GET", "alerts?since=yesterday", "", 400, "since"},
		{"a negative size", admin, "POST", "quotas", `{"team":"red","pool":"default","max_gpus":-1}`, 400, "max_gpus"},
		{"a memory of nothing", admin, "POST", "servers/gpu-r01-01/gpus", `{"index":99,"memory_gb":0}`, 400, "memory_gb"},
		{"a memory below nothing", admin, "POST", "servers/gpu-r01-01/gpus", `{"index":99,"memory_gb":-1}`, 400, "memory_gb"},
		{"a power limit below zero", admin, "POST", "gpus/gpu-r01-01%2Fgpu1/config", `{"power_limit":-5}`, 400, "power_limit"},
		{"fewer than no servers", "red-engineer", "POST", "allocations", `{"wish":{"servers":-1}}`, 400, "wish.servers"},
		{"a page of less than nothing", admin, "GET", "servers?limit=-1", "", 400, "limit"},
		{"a life of less than nothing", admin, "POST", "tokens", `{"name":"x","role":"viewer","expires_in":-1}`, 400, "expires_in"},
		{"SQL for an id", admin, "GET", "users/" + quote, "", 404, ""},
		{"SQL for a filter", admin, "GET", "servers?pool=" + quote, "", 200, ""},
		{"SQL for a sort", admin, "GET", "servers?sort=" + quote, "", 400, "sort"},
		{"SQL for a cursor", admin, "GET", "servers?after=" + quote, "", 400, "after"},
		{"SQL for a name", admin, "POST", "pools", `{"name":"x'; DROP TABLE users; --"}`, 400, "name"},
		{"SQL for what is sought", admin, "GET", "search?q=" + quote, "", 200, ""},
		{"PromQL for a metric", admin, "GET", "gpus/gpu-r01-01%2Fgpu1/metrics?metrics=" + url.QueryEscape(`up} or on() count({__name__=~".+"}) #`), "", 400, "metrics"},
		{"PromQL for a server", admin, "GET", "servers/" + url.PathEscape(`x"} or vector(1) or {a="`) + "/plots", "", 404, ""},
	} {
		before := newest()
		a := w.do(t, tc.who, tc.method, tc.path, "", tc.body)
		if a.status != tc.status {
			t.Errorf("%s: %d, want %d: %.300s", tc.name, a.status, tc.status, a.body)
			continue
		}
		if tc.status == http.StatusOK {
			if !strings.Contains(string(a.body), `"items":[]`) {
				t.Errorf("%s finds %.300s", tc.name, a.body)
			}
		} else if p := a.problem(t); tc.field != "" && (len(p.Errors) != 1 || slices.ContainsFunc(p.Errors, func(e apigen.FieldProblem) bool { return e.Field != tc.field })) {
			t.Errorf("%s: %+v", tc.name, p)
		}
		if after := newest(); after != before {
			t.Errorf("%s left a row in the audit", tc.name)
		}
	}
	// A whole number is one however it is written.
	if a := w.do(t, admin, http.MethodPost, "quotas", "", `{"pool":"default","max_gpus":1.6e1}`); a.status != http.StatusCreated || !strings.Contains(string(a.body), `"max_gpus":16,`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do(t, admin, http.MethodGet, "users/li", "", ""); a.status != http.StatusOK {
		t.Errorf("there are no users any more: %d", a.status)
	}
}

// A body that does not come is not waited for without end, and does nothing.
func TestABodyThatIsSlowIsGivenUp(t *testing.T) {
	t.Parallel() // it waits for as long as the server does
	w := start(t, false)
	c, err := net.Dial("tcp", w.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = fmt.Fprintf(c, "POST /api/v1/pools HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"name\":", w.tokens[access.RoleAdmin])
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 408 ")) {
		t.Errorf("%v %s", err, answer)
	}
}
