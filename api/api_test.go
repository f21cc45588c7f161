package api_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/people"
	"auspex/schemas"
	"auspex/schemas/openapi"
)

// answer is what a request came back with.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) problem(t *testing.T) apigen.Problem {
	t.Helper()
	var p apigen.Problem
	if ct := a.header.Get("Content-Type"); !strings.HasPrefix(ct, "application/problem+json") {
		t.Errorf("content type %q of %s", ct, a.body)
	}
	if err := json.Unmarshal(a.body, &p); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	if p.Status != a.status || p.Code == "" || p.Detail == "" {
		t.Errorf("problem %+v with status %d", p, a.status)
	}
	return p
}

func (w *world) send(t *testing.T, method, path, role string, change func(*http.Request)) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.base+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		req.Header.Set("Authorization", "Bearer "+w.tokens[role])
	}
	if change != nil {
		change(req)
	}
	client := http.Client{Timeout: 2 * time.Minute}
	if w.client != nil {
		client = *w.client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, b}
}

func body(text string) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
		r.Header.Set("Content-Type", "application/json")
	}
}

func read[T any](t *testing.T, w *world, path string) T {
	t.Helper()
	var v T
	a := w.send(t, http.MethodGet, path, access.RoleViewer, nil)
	if a.status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

func TestOneTimeCodeBecomesASessionOnce(t *testing.T) {
	w := start(t, true)
	_, code, _ := strings.Cut(w.login(t, "on-call", access.RoleOperator), "#login=")
	a := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"code":"`+code+`"}`))
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	cookie, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" ||
		cookie.Expires.Before(time.Now().Add(time.Hour)) {
		t.Errorf("cookie: %+v", cookie)
	}
	if again := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"code":"`+code+`"}`)); again.status != http.StatusUnauthorized ||
		again.problem(t).Code != "bad_credential" {
		t.Errorf("a code worked twice: %d %s", again.status, again.body)
	}
	with := func(r *http.Request) { r.AddCookie(cookie) }
	if a := w.send(t, http.MethodGet, "api/v1/me", "", with); a.status != http.StatusOK || !strings.Contains(string(a.body), `"on-call"`) {
		t.Errorf("me: %d %s", a.status, a.body)
	}

	// A write with a session comes from our own pages.
	for name, header := range map[string][2]string{
		"no origin": {}, "other origin": {"Origin", "https://evil.example"}, "other site": {"Sec-Fetch-Site", "cross-site"},
	} {
		a := w.send(t, http.MethodPost, "api/v1/actions/a-314/approve", "", func(r *http.Request) {
			with(r)
			if header[0] != "" {
				r.Header.Set(header[0], header[1])
			}
		})
		if a.status != http.StatusForbidden || a.problem(t).Code != "cross_site" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	same := func(r *http.Request) { with(r); r.Header.Set("Sec-Fetch-Site", "same-origin") }
	if a := w.send(t, http.MethodPost, "api/v1/actions/a-314/approve", "", same); a.status != http.StatusAccepted {
		t.Errorf("our own page: %d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodPost, "api/v1/logout", "", same); a.status != http.StatusNoContent {
		t.Errorf("logout: %d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodGet, "api/v1/me", "", with); a.status != http.StatusUnauthorized {
		t.Errorf("a session outlived its logout: %d", a.status)
	}
}

func TestWhoMayAsk(t *testing.T) {
	w := start(t, true)
	for _, tc := range []struct {
		name, method, path, role string
		change                   func(*http.Request)
		status                   int
		code                     string
	}{
		{"nobody", http.MethodGet, "api/v1/fleet", "", nil, 401, "login_needed"},
		{
			"a wrong token", http.MethodGet, "api/v1/fleet", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401,
			"login_needed",
		},
		{
			"a token as password", http.MethodGet, "prometheus/api/v1/label/__name__/values", "",
			func(r *http.Request) { r.SetBasicAuth("any", w.tokens[access.RoleViewer]) }, 200, "",
		},
		{"prometheus without", http.MethodGet, "prometheus/api/v1/query?query=up", "", nil, 401, "login_needed"},
		{"the description is open", http.MethodGet, "api/v1/openapi.yaml", "", nil, 200, ""},
		{"health is open", http.MethodGet, "-/healthy", "", nil, 200, ""},
		{"the page is open", http.MethodGet, "incidents/i-1042", "", nil, 200, ""},
		{"a viewer reads", http.MethodGet, "api/v1/actions", access.RoleViewer, nil, 200, ""},
		{"a viewer decides", http.MethodPost, "api/v1/actions/a-314/approve", access.RoleViewer, nil, 403, "no_permission"},
		{"a viewer reads the audit", http.MethodGet, "api/v1/audit", access.RoleViewer, nil, 403, "no_permission"},
		{"an operator reads the audit", http.MethodGet, "api/v1/audit", access.RoleOperator, nil, 200, ""},
		{"an operator invites", http.MethodPost, "api/v1/login-codes", access.RoleOperator, nil, 403, "no_permission"},
		{"an admin invites", http.MethodPost, "api/v1/login-codes", access.RoleAdmin, nil, 201, ""},
		{
			"another name", http.MethodGet, "api/v1/me", access.RoleViewer, func(r *http.Request) { r.Host = "rebound.example" }, 421,
			"unknown_host",
		},
		{
			"a forwarded name", http.MethodGet, "api/v1/me", access.RoleViewer,
			func(r *http.Request) { r.Host = "rebound.example"; r.Header.Set("X-Forwarded-Host", "localhost") }, 421, "unknown_host",
		},
		{"localhost", http.MethodGet, "api/v1/me", access.RoleViewer, func(r *http.Request) { r.Host = "localhost:1" }, 200, ""},
		{"an address", http.MethodGet, "api/v1/me", access.RoleViewer, func(r *http.Request) { r.Host = "[::1]:1" }, 200, ""},
	} {
		a := w.send(t, tc.method, tc.path, tc.role, tc.change)
		if a.status != tc.status {
			t.Errorf("%s: %d %s", tc.name, a.status, a.body)
		} else if tc.code != "" {
			if p := a.problem(t); p.Code != tc.code {
				t.Errorf("%s: %+v", tc.name, p)
			}
		}
	}
}

// Guesses are slowed down; who has a token or a code gets in from the same
// address all the while.
func TestGuessingIsSlowAndHoldsNobodyElseBack(t *testing.T) {
	w := start(t, false)
	limited := 0
	for n := range 40 {
		a := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"code":"guess"}`))
		if a.status != http.StatusTooManyRequests {
			continue
		}
		if limited++; a.header.Get("Retry-After") == "" || a.problem(t).Code != "too_many_logins" || n < 5 {
			t.Errorf("try %d: %v %s", n, a.header, a.body)
		}
	}
	if limited < 20 {
		t.Errorf("%d of 40 guesses were held back", limited)
	}
	_, code, _ := strings.Cut(w.login(t, "on-call", access.RoleOperator), "#login=")
	for name, credential := range map[string]string{"code": code, "token": w.tokens[access.RoleViewer]} {
		if a := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"`+name+`":"`+credential+`"}`)); a.status != http.StatusOK {
			t.Errorf("a good %s behind a guesser: %d %s", name, a.status, a.body)
		}
	}
}

func TestBadRequestsAreExplained(t *testing.T) {
	w := start(t, true)
	for _, tc := range []struct {
		method, path string
		change       func(*http.Request)
		status       int
		code         string
	}{
		{http.MethodGet, "api/v1/incidents/none", nil, 404, "not_found"},
		{http.MethodGet, "api/v1/servers/none", nil, 404, "not_found"},
		{http.MethodGet, "api/v1/servers/gpu-r01-01/plots?part=gpu9", nil, 404, "not_found"},
		{http.MethodGet, `api/v1/servers/gpu-r01-01/plots?part=%22%7D`, nil, 400, "bad_parameter"},
		{http.MethodGet, "api/v1/servers/gpu-r01-01/plots?range=9d", nil, 400, "bad_parameter"},
		{http.MethodGet, "api/v1/nowhere", nil, 404, "no_route"},
		{http.MethodGet, "api/v1/incidents?limit=5000", nil, 400, "bad_parameter"},
		{http.MethodGet, "api/v1/incidents?limit=x", nil, 400, "bad_parameter"},
		{http.MethodGet, "api/v1/incidents?status=ajar", nil, 400, "bad_parameter"},
		{http.MethodGet, "api/v1/alerts?after=zzz", nil, 400, "bad_cursor"},
		{http.MethodGet, "api/v1/alerts?since=yesterday", nil, 400, "bad_parameter"},
		{http.MethodPost, "api/v1/login", body(`{"code":`), 400, "bad_body"},
		{http.MethodPost, "api/v1/login", body(`{}`), 401, "bad_credential"},
		{http.MethodPost, "api/v1/login", body(strings.Repeat("x", 2<<20)), 413, "too_large"},
		{http.MethodPost, "api/v1/actions/none/approve", nil, 404, "not_found"},
		{http.MethodPost, "api/v1/actions/a-314/explode", nil, 400, "bad_parameter"},
		{http.MethodPost, "api/v1/actions/a-310/approve", nil, 409, "wrong_state"},
		{http.MethodPost, "api/v1/actions/a-308/cancel", nil, 409, "wrong_state"},
		{http.MethodPost, "api/v1/actions/a-314/resolve", nil, 409, "wrong_state"},
		{http.MethodPost, "api/v1/actions/a-307/resolve", body(`{"notes":"x"}`), 400, "bad_body"},
		{http.MethodDelete, "api/v1/actions/a-314", nil, 405, "no_route"},
	} {
		a := w.send(t, tc.method, tc.path, access.RoleOperator, tc.change)
		if a.status != tc.status {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, a.status, a.body)
		} else if p := a.problem(t); p.Code != tc.code {
			t.Errorf("%s %s: %+v", tc.method, tc.path, p)
		}
	}
}

// The refusal reaches a sender that is still sending, each time.
func TestTooLargeIsHeard(t *testing.T) {
	w := start(t, false)
	large := strings.Repeat("x", 24<<20)
	for range 10 {
		if a := w.send(t, http.MethodPost, "api/v1/login", "", body(large)); a.status != http.StatusRequestEntityTooLarge {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
}

func TestDecisionsBecomeIntents(t *testing.T) {
	w := start(t, true)
	intents := w.intents(t)
	var ids []string
	for n, key := range []string{"k1", "k1", "k2"} {
		a := w.send(
			t, http.MethodPost, "api/v1/actions/a-314/approve", access.RoleOperator, func(r *http.Request) { r.Header.Set("Idempotency-Key", key) },
		)
		if a.status != http.StatusAccepted {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if n > 0 && key == "k1" {
			if a.header.Get("Idempotency-Replayed") != "true" {
				t.Error("the same request was not answered as before")
			}
			continue
		}
		i := <-intents
		ids = append(ids, i.ID)
		i.ID, i.Time = "", time.Time{}
		if d := cmp.Diff(schemas.Intent{
			Verb: "approve", Action: "a-314", Server: "gpu-r03-06", Kind: "power_cycle", Reason: "i-1043", Actor: "operator",
		}, i); d != "" {
			t.Error(d)
		}
	}
	if len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("ids of intents: %v", ids)
	}
}

func TestATicketIsResolvedInWords(t *testing.T) {
	w := start(t, true)
	intents := w.intents(t)
	for said, want := range map[string]string{
		"": "", `{}`: "", `{"note":"exchanged"}`: "exchanged", `{"reference":"OPS-17"}`: "OPS-17", `{"note":"exchanged","reference":"OPS-17"}`: "OPS-17: exchanged",
	} {
		change := body(said)
		if said == "" {
			change = nil
		}
		if a := w.send(t, http.MethodPost, "api/v1/actions/a-307/resolve", access.RoleOperator, change); a.status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", said, a.status, a.body)
		}
		i := <-intents
		i.ID, i.Time = "", time.Time{}
		if d := cmp.Diff(schemas.Intent{
			Verb: "resolve", Action: "a-307", Server: "gpu-r07-02", Kind: "ticket", Reason: "i-1017", Actor: "operator", Note: want,
		}, i); d != "" {
			t.Error(said, d)
		}
	}
}

func TestFleetSaysWhatIsWrong(t *testing.T) {
	w := start(t, true)
	f := read[apigen.Fleet](t, w, "api/v1/fleet")
	at := func(id string) int { return slices.Index(f.Servers.Name, id) }
	got := map[string]string{}
	for _, id := range []string{"gpu-r01-01", "gpu-r03-06", "gpu-r05-02", "gpu-r06-01", "gpu-r02-05", "gpu-r08-04", "gpu-r08-07"} {
		got[id] = fmt.Sprintf("%d %s", f.Servers.State[at(id)], f.Servers.Gpus[at(id)])
	}
	want := map[string]string{
		"gpu-r01-01": "3 33333333", // hangs on the feed
		"gpu-r03-06": "2 00002000",
		"gpu-r05-02": "4 00000000", // its fan, not its GPUs
		"gpu-r06-01": "0 00000000", // the job is to blame, not the machine
		"gpu-r02-05": "5 55555555",
		"gpu-r08-04": "6 66666666",
		"gpu-r08-07": "7 77777777",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{2, 0}, f.Racks[0].Feeds); d != "" {
		t.Errorf("feeds of r01: %s", d)
	}
	if f.Summary.Servers != 64 || f.Summary.Gpus.Total != 512 || f.Summary.Gpus.Out != 25 || f.Summary.PowerKw == nil ||
		*f.Servers.Temp[0] < 40 {
		t.Errorf("summary: %+v", f.Summary)
	}
	if job := f.Jobs[f.Servers.Job[at("gpu-r06-01")]]; job.ID != "job-140" || job.Tenant != "robotics" {
		t.Errorf("job: %+v", job)
	}
	alerts := 0
	for _, n := range f.History.Alerts {
		alerts += n
	}
	if alerts != 146 || len(f.History.Incidents) != 4 {
		t.Errorf("history: %d alerts, %d incidents", alerts, len(f.History.Incidents))
	}
}

func TestListsComeInPages(t *testing.T) {
	w := start(t, true)
	var ids []string
	after := ""
	for range 50 {
		page := read[apigen.AlertList](t, w, "api/v1/alerts?limit=40&after="+url.QueryEscape(after))
		for _, a := range page.Items {
			ids = append(ids, a.ID)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); len(ids) != 146 || n != 146 {
		t.Errorf("%d alerts over all pages, %d different", len(ids), n)
	}
	events := read[apigen.EventList](t, w, "api/v1/events?server=gpu-r03-06")
	if events.History || len(events.Items) != 7 {
		t.Errorf("events without a history: %v, %d", events.History, len(events.Items))
	}
}

// TestAlertsHaveTheFieldsOfTheContract reads one alert that fires and one that has
// ended, by either name of the status.
func TestAlertsHaveTheFieldsOfTheContract(t *testing.T) {
	w := start(t, true)
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	for id, ended := range map[string]time.Time{"c1": {}, "c2": at.Add(time.Minute)} {
		a := schemas.Alert{
			Event: schemas.Event{
				ID: id, Time: at, Observed: at, Source: schemas.SourceKmsg, Resource: "gpu-r03-06/gpu4", Type: schemas.EventGPUXID, Code: "79",
				Severity: schemas.SeverityError, State: schemas.StateRaised,
			},
			Server: "contract", Rule: "event/gpu.xid", Fingerprint: id, Status: schemas.AlertFiring,
		}
		if !ended.IsZero() {
			a.Status, a.ResolvedAt = schemas.AlertResolved, ended
		}
		if err := w.records.PutAlert(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ query, id, state, status string }{
		{"active", "c1", "firing", "active"}, {"firing", "c1", "firing", "active"}, {"resolved", "c2", "resolved", "resolved"},
	} {
		l := read[apigen.AlertList](t, w, "api/v1/alerts?server=contract&status="+tc.query)
		if len(l.Items) != 1 || l.Items[0].ID != tc.id {
			t.Fatalf("%s: %+v", tc.query, l.Items)
		}
		a := l.Items[0]
		if a.State != tc.state || a.Status != tc.status || a.Condition != schemas.StateRaised || a.AlertType != a.Type || a.Priority != "high" ||
			a.SourceType != schemas.KindGPU || a.SourceID != idIn("gpu-r03-06/gpu4") || !a.TriggeredAt.Equal(at) {
			t.Errorf("%s: %+v", tc.query, a)
		}
		if want := map[bool]time.Time{true: at.Add(time.Minute)}[tc.id == "c2"]; !a.ResolvedAt.Equal(want) {
			t.Errorf("%s: resolved at %v, want %v", tc.query, a.ResolvedAt, want)
		}
	}
}

// TestAuditComesInPagesWithTheStateOfItsChain reads all rows once, newest first,
// and is told when another hand was at one of them.
func TestAuditComesInPagesWithTheStateOfItsChain(t *testing.T) {
	w := start(t, true)
	rows := func(path string) apigen.AuditList {
		t.Helper()
		var out apigen.AuditList
		a := w.send(t, http.MethodGet, path, access.RoleOperator, nil)
		if err := json.Unmarshal(a.body, &out); err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s: %v", a.status, a.body, err)
		}
		return out
	}
	var seen []int64
	for after := "0"; after != ""; {
		page := rows("api/v1/audit?limit=4&after=" + strings.TrimPrefix(after, "0"))
		for _, r := range page.Items {
			seen = append(seen, r.Seq)
		}
		after = page.Next
	}
	if d := cmp.Diff([]int64{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, seen); d != "" {
		t.Error(d)
	}
	page := rows("api/v1/audit")
	if made := page.Items[0]; made.Verb != "replace" || made.Kind != "token" || made.Subject != access.RoleAdmin || made.Actor != "auspex" {
		t.Errorf("newest row: %+v", made)
	}
	if top := page.Items[3]; top.Action != "a-314" || top.Kind != "power_cycle" || top.State != schemas.ActionWaiting || top.Verb != "wait" ||
		top.Actor != "auspex" || len(top.Hash) != 64 {
		t.Errorf("newest row: %+v", top)
	}
	if !page.Chain.Holds || page.Chain.Rows != 12 {
		t.Errorf("chain: %+v", page.Chain)
	}
	if p := w.send(t, http.MethodGet, "api/v1/audit?after=x", access.RoleOperator, nil).problem(t); p.Code != "bad_cursor" {
		t.Errorf("a cursor of another list: %+v", p)
	}
	if _, err := w.db.ExecContext(t.Context(), `UPDATE control_audit SET actor='nobody' WHERE seq=3`); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.up() // a console that has not read the rows yet
	if c := rows("api/v1/audit").Chain; c.Holds || c.BrokenAt != 3 || c.Rows != 2 {
		t.Errorf("chain with a changed row: %+v", c)
	}
}

func TestBudgetsAreThoseThatControlCounted(t *testing.T) {
	w := start(t, true)
	b := read[apigen.Budgets](t, w, "api/v1/actions/budgets")
	if b.RackLimit != 1 || b.Time.IsZero() || b.Breaker.Limit != 6 {
		t.Errorf("%+v", b)
	}
	want := []schemas.Budget{
		{Scope: "fleet", Limit: 4, Used: 2, Reserved: 1},
		{Scope: "rack", Name: "dc1-r02", Limit: 1, Used: 1},
		{Scope: "rack", Name: "dc1-r03", Limit: 1, Reserved: 1},
		{Scope: "rack", Name: "dc1-r07", Limit: 1, Used: 1},
		{Scope: "hour", Limit: 6, Used: 2, Reserved: 1},
	}
	if d := cmp.Diff(want, b.Levels); d != "" {
		t.Error(d)
	}
}

// TestRecordCountsHowPredictionsEnded counts from what is stored: hits, false
// alarms, what was averted, and a failure that none had told of.
func TestRecordCountsHowPredictionsEnded(t *testing.T) {
	w := start(t, true)
	record := func(path string) apigen.PredictionRecord {
		t.Helper()
		return read[apigen.PredictionRecord](t, w, path)
	}
	r := record("api/v1/predictions/record")
	if r.CameTrue != 5 || r.Expired != 2 || r.Averted != 1 || r.Open != 2 || r.Missed != 1 || r.LeadSeconds == nil ||
		*r.LeadSeconds != (31*time.Hour).Seconds() {
		t.Errorf("%+v", r)
	}
	ended, hits := 0, 0
	for _, b := range r.Bins {
		ended, hits = ended+b.Ended, hits+b.CameTrue
	}
	if ended != 7 || hits != 5 || r.Bins[1].Ended != 1 || r.Bins[1].CameTrue != 0 {
		t.Errorf("by what was said: %+v", r.Bins)
	}
	now := time.Now().UTC()
	for k, i := range []schemas.Incident{
		{ID: "told", RootCause: schemas.Cause{Resource: "gpu-r05-02/fan3", Fault: "cooling.fan_failure"}},           // an open prediction stands
		{ID: "another part", RootCause: schemas.Cause{Resource: "gpu-r05-02/fan4", Fault: "cooling.fan_failure"}},   // of the same server
		{ID: "another fault", RootCause: schemas.Cause{Resource: "gpu-r05-02/fan3", Fault: "power.psu_failure"}},    // nobody foretells these
		{ID: "absorbed", MergedInto: "told", RootCause: schemas.Cause{Resource: "x", Fault: "cooling.fan_failure"}}, // by another
		{ID: "long ago", Opened: now.Add(-100 * 24 * time.Hour), RootCause: schemas.Cause{Resource: "y", Fault: "gpu.overheating"}},
	} {
		if i.Opened.IsZero() {
			i.Opened = now.Add(time.Duration(k) * time.Second)
		}
		if err := w.records.PutIncident(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	if r := record("api/v1/predictions/record"); r.Missed != 2 {
		t.Errorf("%d missed, want the one before and another part", r.Missed)
	}
}

func TestIncidentCarriesItsEvidence(t *testing.T) {
	w := start(t, true)
	i := read[apigen.Incident](t, w, "api/v1/incidents/i-1042")
	if i.Status != "open" || i.Alerts != 82 || len(i.Lanes) != 5 || len(i.Graph.Nodes) != 7 || len(i.Jobs) != 2 || i.Jobs[0].Gpus != 40 {
		t.Errorf("%+v", i)
	}
	if l := i.Lanes[0]; l.Source != "redfish" || l.Message != "Power supply lost AC input" || len(l.Resources) != 24 {
		t.Errorf("lane: %+v", l)
	}
	// One without lanes gets them from its alerts.
	i = read[apigen.Incident](t, w, "api/v1/incidents/i-1043")
	var lanes []string
	for _, l := range i.Lanes {
		lanes = append(lanes, fmt.Sprintf("%s %d", l.ID, l.Count))
	}
	if d := cmp.Diff([]string{"gpu.xid/79 1", "gpu.xid/154 1", "gpu.missing/7 of 8 1", "nvswitch.sxid/12028 4"}, lanes); d != "" {
		t.Error(d)
	}
	list := read[apigen.IncidentList](t, w, "api/v1/incidents?status=open")
	if len(list.Items) != 3 || list.Items[0].Lanes != nil || list.Items[0].Events != nil {
		t.Errorf("a list carries evidence: %+v", list.Items)
	}
}

func TestDeviceShowsItsForecast(t *testing.T) {
	w := start(t, true)
	s := read[apigen.Server](t, w, "api/v1/servers/"+url.PathEscape("gpu-r05-02/fan3"))
	if s.Name != "gpu-r05-02" || s.State != 4 || s.Job.ID != "job-137" || len(s.Predictions) != 1 || len(s.Contact) != 4 {
		t.Errorf("%+v", s)
	}
	if by := read[apigen.Server](t, w, "api/v1/servers/s0502"); by.Name != "gpu-r05-02" {
		t.Errorf("a serial number finds %s", by.Name)
	}
	plots := read[apigen.PlotList](t, w, "api/v1/servers/gpu-r05-02/plots")
	p := plots.Items[0]
	if p.Metric != "auspex_fan_speed_rpm" || p.Subject != "fan3" || p.Unit != "rpm" || len(p.Times) != len(p.Avg) ||
		len(p.Peer) != len(p.Times) || *p.Limit.Below != 6000 {
		t.Fatalf("%+v", p)
	}
	want := []apigen.Threshold{{Bound: "lower_caution", Value: 6300}, {Bound: "lower_critical", Value: 6000}}
	if diff := cmp.Diff(want, p.Thresholds); diff != "" || p.Limit.Source != schemas.LimitOfDevice {
		t.Errorf("limit of %q; thresholds of the device: %s", p.Limit.Source, diff)
	}
	// The lines cross the limit at the quantiles of the prediction.
	for name, line := range map[string]struct {
		values []*float64
		eta    time.Time
	}{"p10": {p.Forecast.P10, p.Forecast.EtaP10}, "p50": {p.Forecast.P50, p.Forecast.EtaP50}, "p90": {p.Forecast.P90, p.Forecast.EtaP90}} {
		k := slices.IndexFunc(line.values, func(v *float64) bool { return *v <= 6000 })
		step := p.Forecast.Times[1] - p.Forecast.Times[0]
		if d := p.Forecast.Times[k] - float64(line.eta.Unix()); d < -1 || d > step+1 {
			t.Errorf("%s crosses %g s from its time", name, d)
		}
	}
	for _, p := range plots.Items[1:] {
		if p.Forecast.Prediction != "" {
			t.Errorf("%s has a forecast of another metric", p.Metric)
		}
	}
}

func TestStreamTellsChangesAndWhatWasMissed(t *testing.T) {
	w := start(t, true)
	listen := func(last string) (*bufio.Scanner, func()) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"api/v1/stream", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+w.tokens[access.RoleViewer])
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		res, err := http.DefaultClient.Do(req) //nolint:bodyclose // closed by the returned function
		if err != nil {
			t.Fatal(err)
		}
		return bufio.NewScanner(res.Body), func() { cancel(); _ = res.Body.Close() }
	}
	next := func(s *bufio.Scanner, want string) (id, data string) {
		t.Helper()
		event := ""
		for s.Scan() {
			switch line := s.Text(); {
			case line == "":
				if event == want {
					return id, data
				}
				id = ""
			case strings.HasPrefix(line, "id: "):
				id = line[4:]
			case strings.HasPrefix(line, "event: "):
				event = line[7:]
			case strings.HasPrefix(line, "data: "):
				data = line[6:]
			}
		}
		t.Fatalf("the stream ended before %s: %v", want, s.Err())
		return "", ""
	}
	s, stop := listen("")
	id, _ := next(s, "hello")
	w.change(t, "a-314", schemas.ActionRunning, "")
	_, data := next(s, "servers")
	if !strings.Contains(data, `,5,"55555555"`) {
		t.Errorf("the server in repair is not told: %s", data)
	}
	if _, data := next(s, "changed"); !strings.Contains(data, `"actions"`) {
		t.Errorf("changed: %s", data)
	}
	if _, err := people.New(w.db).CreateUser(t.Context(), "another process", schemas.User{
		Username: "new", Email: "new@example.com", Role: access.RoleViewer, Status: schemas.UserActive,
	}); err != nil {
		t.Fatal(err)
	}
	if _, data := next(s, "changed"); !strings.Contains(data, `"audit","users"`) {
		t.Errorf("changed by another process: %s", data)
	}
	stop()
	s, stop = listen(id)
	if _, data := next(s, "changed"); !strings.Contains(data, `"actions"`) {
		t.Errorf("missed: %s", data)
	}
	stop()
	s, stop = listen("another-7")
	if _, data := next(s, "changed"); data != `{"topics":[""]}` {
		t.Errorf("after another process: %s", data)
	}
	stop()
}

func TestEmptySystemAnswersEverything(t *testing.T) {
	w := start(t, false)
	for _, path := range []string{
		"me", "fleet", "events", "alerts", "incidents", "predictions", "predictions/record", "actions", "actions/budgets",
	} {
		a := w.send(t, http.MethodGet, "api/v1/"+path, access.RoleViewer, nil)
		if a.status != http.StatusOK || strings.Contains(string(a.body), ":null,\"items") || strings.Contains(string(a.body), `"items":null`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := w.send(t, http.MethodPost, "api/v1/actions/x/approve", access.RoleAdmin, nil); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// No address is trusted, this machine's least of all: a proxy on it gives it to
// everybody, and may rewrite the name as well.
func TestAdminsRoutesAnswerAdminsAlone(t *testing.T) {
	reloads := 0
	w := start(t, false, func(_ *api.Config, d *api.Deps) {
		d.Admin = map[string]http.Handler{
			"/-/reload": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reloads++; _, _ = io.WriteString(w, "{}\n") }),
		}
	})
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for _, tc := range []struct {
		name, method, role string
		change             func(*http.Request)
		status             int
	}{
		{"this machine", http.MethodPost, "", nil, 401},
		{"a read", http.MethodGet, access.RoleAdmin, nil, 405},
		{"another site", http.MethodPost, "", header("Origin", "https://evil.example"), 401},
		{"a proxy that claims this machine", http.MethodPost, "", header("X-Forwarded-For", "127.0.0.1"), 401},
		{"a viewer", http.MethodPost, access.RoleViewer, nil, 403},
		{"an operator", http.MethodPost, access.RoleOperator, nil, 403},
		{"an admin", http.MethodPost, access.RoleAdmin, nil, 200},
		{"an admin behind a proxy", http.MethodPost, access.RoleAdmin, header("X-Forwarded-For", "192.0.2.7"), 200},
	} {
		before := reloads
		a := w.send(t, tc.method, "-/reload", tc.role, tc.change)
		if a.status != tc.status || (reloads > before) != (tc.status == 200) {
			t.Errorf("%s: %d %s, reloaded %v", tc.name, a.status, a.body, reloads > before)
		}
	}
}

func TestPagesAreServedStrictly(t *testing.T) {
	w := start(t, false, func(c *api.Config, _ *api.Deps) { c.BasePath = "/auspex" })
	a := w.send(t, http.MethodGet, "fleet?by=temp", "", nil)
	if a.status != http.StatusOK || !strings.Contains(string(a.body), `<base href="/auspex/">`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	for header, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Referrer-Policy": "same-origin",
	} {
		if got := a.header.Get(header); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", header, got)
		}
	}
	tag := a.header.Get("ETag")
	if again := w.send(
		t, http.MethodGet, "fleet", "", func(r *http.Request) { r.Header.Set("If-None-Match", tag) },
	); again.status != http.StatusNotModified {
		t.Errorf("an unchanged page came again: %d", again.status)
	}
	scripts := regexp.MustCompile(`(?:href|src)="([\w-]+\.js)"`).FindAllStringSubmatch(string(a.body), -1)
	if len(scripts) < 2 {
		t.Errorf("the page names the scripts %q", scripts)
	}
	for _, m := range scripts { // app.js is asked for again each time; those whose names change with them are not
		want := "no-cache"
		if m[1] != "app.js" {
			want = "public, max-age=31536000, immutable"
		}
		if got := w.send(t, http.MethodGet, m[1], "", nil); !strings.HasPrefix(got.header.Get("Content-Type"), "text/javascript") || got.header.Get("Cache-Control") != want {
			t.Errorf("%s: %v", m[1], got.header)
		}
	}
	if a := w.send(t, http.MethodGet, "-/healthy", "", nil); string(a.body) != "ok\n" {
		t.Errorf("below a prefix: %d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodGet, "prometheus/api/v1/label/__name__/values", access.RoleViewer, nil); a.status != http.StatusOK ||
		!json.Valid(a.body) {
		t.Errorf("prometheus below a prefix: %d %s", a.status, a.body)
	}
}

func TestAddressInUseIsOneSentence(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	w := start(t, false)
	cfg := api.DefaultConfig()
	cfg.Listen = ln.Addr().String()
	s, err := api.New(cfg, w.deps(t))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context(), func() { t.Error("ready on an address in use") })
	if err == nil || !strings.Contains(err.Error(), "is in use; choose another with --listen") {
		t.Errorf("error: %v", err)
	}
}

// A console may be told to end before it has begun to answer.
func TestAnEndAtTheStartIsHeard(t *testing.T) {
	w := start(t, false)
	w.stop()
	cfg := api.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	for range 20 {
		s, err := api.New(cfg, w.deps(t))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Run(ctx, cancel); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for want, change := range map[string]func(*api.Config){
		"listen":           func(c *api.Config) { c.Listen = "nonsense" },
		"not a port":       func(c *api.Config) { c.Listen = "127.0.0.1:http" },
		"base_path":        func(c *api.Config) { c.BasePath = "auspex/" },
		"session_lifetime": func(c *api.Config) { c.SessionLifetime = 0 },
		"max_streams":      func(c *api.Config) { c.MaxStreams = 0 },
		"tls":              func(c *api.Config) { c.TLS.CertFile = "x" },
	} {
		c := api.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := api.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

// TestDocumentSaysWhatRecordsHold compares the records that the API answers as
// they are with their description.
func TestDocumentSaysWhatRecordsHold(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Type       string         `yaml:"x-go-type"`
				Properties map[string]any `yaml:"properties"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(openapi.Document, &doc); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{
		"AlertComment": schemas.AlertComment{}, "Action": schemas.Action{}, "Rail": schemas.Rail{}, "Cause": schemas.Cause{},
		"Recommendation": schemas.Recommendation{}, "Sentence": schemas.Sentence{}, "Graph": schemas.Graph{}, "Evidence": schemas.Evidence{},
		"Model":  schemas.Model{},
		"Budget": schemas.Budget{}, "Breaker": schemas.Breaker{}, "Approval": schemas.Approval{}, "BlastRadius": schemas.BlastRadius{}, "JobAtRisk": schemas.JobAtRisk{},
	} {
		var have, want []string
		for p := range doc.Components.Schemas[name].Properties {
			have = append(have, p)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
				want = append(want, tag)
			}
		}
		slices.Sort(have)
		slices.Sort(want)
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%s (-record +document):\n%s", name, d)
		}
	}
}

// The map of a large fleet stays small: nobody who draws it needs ids.
func TestLargeFleetAnswersWithLittle(t *testing.T) {
	w := start(t, true, func(_ *api.Config, d *api.Deps) {
		inv := &inventory{t: topology(1563)}
		inv.t.Links = nil
		inv.t.Resources = slices.DeleteFunc(inv.t.Resources, func(r schemas.Resource) bool {
			return !slices.Contains([]string{schemas.KindSite, schemas.KindRack, schemas.KindServer, schemas.KindGPU}, r.Kind)
		})
		inv.version.Store(7)
		d.Inventory = inv
	})
	size := func(path string) int {
		a := w.send(t, http.MethodGet, path, access.RoleViewer, nil)
		var f apigen.Fleet
		if err := json.Unmarshal(a.body, &f); err != nil || len(f.Servers.Name) != 12504 {
			t.Fatalf("%s: %d, %d servers, %v", path, a.status, len(f.Servers.Name), err)
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(a.body)
		_ = z.Close()
		return b.Len()
	}
	without, with := size("api/v1/fleet?ids=false"), size("api/v1/fleet")
	if without > 93_000 {
		t.Errorf("the map of 12,504 servers has %d bytes gz", without)
	}
	if with < without+12504*16 {
		t.Errorf("ids are missing: %d and %d bytes", without, with)
	}
}

func FuzzQuerierReadsAnyAnswer(f *testing.F) {
	f.Add(`{"status":"success","data":{"result":[{"metric":{"a":"b"},"value":[1.5,"NaN"]}]}}`)
	f.Add(`{"status":"error","error":"no"}`)
	f.Add(`{"status":"success","data":{"result":[{"values":[[1,"2"],[3]]}]}}`)
	f.Fuzz(func(_ *testing.T, text string) {
		q := api.NewQuerier(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }), "/prometheus")
		_, _ = q.Instant(context.Background(), "up", time.Unix(1, 0))
	})
}

func TestQuerierSpeaksPrometheus(t *testing.T) {
	q := api.NewQuerier(http.HandlerFunc(prometheusStub), "/prometheus")
	series, err := q.Range(t.Context(), "up", time.Unix(1000, 0), time.Unix(1060, 0), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(series) != 8 || series[0].Labels["rack"] != "dc1-r01" || len(series[0].Points) != 3 || series[0].Points[1].T != 1030 {
		t.Errorf("%+v", series)
	}
	if _, err := q.Instant(t.Context(), "!!", time.Now()); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("error: %v", err)
	}
}
