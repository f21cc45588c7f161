package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/certtest"
	"auspex/internal/store/audit"
	"auspex/internal/store/learned"
	"auspex/schemas"
	"auspex/schemas/openapi"
)

// pack packs a text n times over.
func pack(t testing.TB, text []byte, n int) []byte {
	t.Helper()
	for range n {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		text = b.Bytes()
	}
	return text
}

func coded(coding string, payload []byte) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(payload)), int64(len(payload))
		r.Header.Set("Content-Type", "application/json")
		for c := range strings.SplitSeq(coding, "|") {
			r.Header.Add("Content-Encoding", c)
		}
	}
}

// What a body costs is bounded by what it holds unpacked, and nobody who is not
// known makes this machine unpack anything.
func TestPackedBodiesCostLittle(t *testing.T) {
	w := start(t, false)
	once := certtest.Bomb(t, 256<<20)
	twice := pack(t, once, 1)
	named := pack(t, []byte(`{"name":"packed","role":"viewer"}`), 1)
	for _, tc := range []struct {
		name, path, role, coding string
		payload                  []byte
		status                   int
		code                     string
	}{
		{"twice, before login", "api/v1/login", "", "gzip, gzip", twice, 415, "unknown_coding"},
		{"twice in two headers", "api/v1/login", "", "gzip|gzip", twice, 415, "unknown_coding"},
		{"once, before login", "api/v1/login", "", "gzip", pack(t, []byte(`{"code":"x"}`), 1), 415, "unknown_coding"},
		{"by a token of nobody", "api/v1/tokens", "", "gzip", named, 401, "login_needed"},
		{"more than a login", "api/v1/tokens", "", "gzip", once, 413, "too_large"},
		{"brotli", "api/v1/tokens", access.RoleAdmin, "br", named, 415, "unknown_coding"},
		{"deflate", "api/v1/tokens", access.RoleAdmin, "deflate", named, 415, "unknown_coding"},
		{"zstd", "api/v1/tokens", access.RoleAdmin, "zstd", named, 415, "unknown_coding"},
		{"a chain", "api/v1/tokens", access.RoleAdmin, "identity, gzip", named, 415, "unknown_coding"},
		{"a bomb of an admin", "api/v1/tokens", access.RoleAdmin, "gzip", once, 413, "too_large"},
		{"a twice packed bomb as one", "api/v1/tokens", access.RoleAdmin, "gzip", twice, 413, "too_large"},
		{"no gzip", "api/v1/tokens", access.RoleAdmin, "gzip", []byte("{}"), 400, "bad_coding"},
		{"packed once", "api/v1/tokens", access.RoleAdmin, "gzip", named, 201, ""},
		{"a query", "prometheus/api/v1/query", access.RoleViewer, "gzip", once, 413, "too_large"},
		{"not packed", "api/v1/tokens", access.RoleAdmin, "identity", []byte(`{"name":"plain","role":"viewer"}`), 201, ""},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := w.send(t, http.MethodPost, tc.path, tc.role, coded(tc.coding, tc.payload))
		runtime.ReadMemStats(&after)
		if a.status != tc.status {
			t.Errorf("%s: %d %s", tc.name, a.status, a.body)
		} else if tc.code != "" {
			if p := a.problem(t); p.Code != tc.code {
				t.Errorf("%s: %+v", tc.name, p)
			}
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 {
			t.Errorf("%s: allocated %d MiB", tc.name, used>>20)
		}
	}
}

// Of a caller that is not known, no more is read than a login holds.
func TestStrangersAreReadLittleOf(t *testing.T) {
	w := start(t, false)
	large := `{"code":"` + strings.Repeat("x", 64<<10) + `"}`
	for _, tc := range []struct {
		path, token string
		status      int
	}{
		{"api/v1/login", "", 413},
		{"api/v1/login", w.tokens[access.RoleAdmin], 413},
		{"api/v1/tokens", "", 413},
		{"api/v1/tokens", "not a token", 413},
		{"-/healthy", "", 413},
		{"prometheus/api/v1/query", "", 413},
		{"api/v1/tokens", w.tokens[access.RoleAdmin], 400},
	} {
		a := w.send(t, http.MethodPost, tc.path, "", func(r *http.Request) {
			body(large)(r)
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
		})
		if a.status != tc.status {
			t.Errorf("%s with %q: %d %s", tc.path, tc.token, a.status, a.body)
		}
	}
}

// A handler is told when its caller closes the connection, and the next request
// on a connection that stays is read whole.
func TestAnAbandonedRequestIsEnded(t *testing.T) {
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan error, 1)
			guard := func(_ *api.Config, d *api.Deps) {
				d.Viewed["/slow"] = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					close(began)
					<-r.Context().Done()
					ended <- r.Context().Err()
				})
			}
			var w *world
			client := &http.Client{}
			if scheme == "https" {
				w, _, _ = secure(t, guard)
				client = w.client
			} else {
				w = start(t, false, guard)
			}
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"slow", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+w.tokens[access.RoleViewer])
			go func() {
				<-began
				leave()
			}()
			if res, err := client.Do(req); err == nil {
				_ = res.Body.Close()
				t.Fatal("an answer came")
			}
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the handler went on without its caller")
			}
		})
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	w := start(t, true)
	c, err := net.Dial("tcp", w.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var all strings.Builder
	const n = 40
	for k := range n {
		last := ""
		if k == n-1 {
			last = "Connection: close\r\n"
		}
		fmt.Fprintf(
			&all, "GET /api/v1/resources?limit=%d HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n", k+1,
			w.tokens[access.RoleViewer], last,
		)
	}
	go func() { // in pieces, so that some arrive while others are answered
		for text := all.String(); text != ""; {
			m := min(len(text), 700)
			_, _ = io.WriteString(c, text[:m])
			text = text[m:]
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	answers, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(answers, []byte("HTTP/1.1 200 OK")); got != n {
		t.Errorf("%d of %d answers", got, n)
	}
}

// A header that says two things of where its request ends is refused at once, and what
// follows is no request.
func TestRequestsThatAreFramedInTwoWaysAreRefusedAtOnce(t *testing.T) {
	w := start(t, true)
	const smuggled = "GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		request string
		status  string
	}{
		"two lengths, the second longer":  {"Content-Length: 5\r\nContent-Length: 600\r\n\r\nhello", "400"},
		"two lengths, the second shorter": {"Content-Length: 600\r\nContent-Length: 0\r\n\r\n", "400"},
		"two lengths in two cases":        {"content-length: 5\r\nCONTENT-LENGTH: 6\r\n\r\nhello", "400"},
		"two lengths in one":              {"Content-Length: 5, 6\r\n\r\nhello", "400"},
		"an empty length and one":         {"Content-Length:\r\nContent-Length: 600\r\n\r\n", "400"},
		"a length and chunks":             {"Content-Length: 600\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		"two codings":                     {"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		"an unknown coding":               {"Transfer-Encoding: xchunked\r\n\r\n", "400"},
		"a blank after the name":          {"Content-Length : 600\r\n\r\n", "400"},
		"a folded line":                   {"X-A: b\r\n Content-Length: 600\r\n\r\n", "400"},
		"two hosts":                       {"Host: elsewhere\r\nContent-Length: 0\r\n\r\n", "400"},
		"two lengths and an expectation":  {"Expect: 100-continue\r\nContent-Length: 5\r\nContent-Length: 600\r\n\r\n", "400"},
		"the same length twice":           {"Connection: close\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "401"},
		"chunks":                          {"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "401"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", w.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			began := time.Now()
			if _, err := io.WriteString(conn, "POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\n"+c.request+smuggled); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			line := make([]byte, len("HTTP/1.1 400"))
			if _, err := io.ReadFull(conn, line); err != nil || string(line) != "HTTP/1.1 "+c.status {
				t.Fatalf("%q %v", line, err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the answer took %s", took)
			}
			_ = conn.(*net.TCPConn).CloseWrite()
			rest, err := io.ReadAll(conn)
			if err != nil || bytes.Contains(rest, []byte("HTTP/1.1 ")) {
				t.Errorf("%v, and then %q", err, rest)
			}
		})
	}
}

func TestTokensAreMadeAndRevokedByAdmins(t *testing.T) {
	w := start(t, true)
	for _, role := range []string{access.RoleViewer, access.RoleOperator} {
		for _, m := range []string{http.MethodGet, http.MethodPost} {
			if a := w.send(t, m, "api/v1/tokens", role, body(`{"name":"x","role":"admin"}`)); a.status != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", role, m, a.status, a.body)
			}
		}
	}
	a := w.send(t, http.MethodPost, "api/v1/tokens", access.RoleAdmin, body(`{"name":"night","role":"operator","expires_in":3600}`))
	var made apigen.CreatedToken
	if err := json.Unmarshal(a.body, &made); err != nil || a.status != http.StatusCreated || made.Token == "" ||
		time.Until(made.Expires) < 59*time.Minute {
		t.Fatalf("%d %s %v", a.status, a.body, err)
	}
	for name, bad := range map[string]string{
		"taken": `{"name":"night","role":"viewer"}`, "role": `{"name":"y","role":"emperor"}`, "name": `{"name":"a b","role":"viewer"}`,
		"life": `{"name":"y","role":"viewer","expires_in":-1}`,
	} {
		if a := w.send(t, http.MethodPost, "api/v1/tokens", access.RoleAdmin, body(bad)); a.status != http.StatusBadRequest &&
			a.status != http.StatusConflict {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	w.tokens["night"] = made.Token
	login := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"token":"`+made.Token+`"}`))
	cookie, err := http.ParseSetCookie(login.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]func(*http.Request){
		"token":  func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+made.Token) },
		"cookie": func(r *http.Request) { r.AddCookie(cookie) },
	}
	open := map[string]io.ReadCloser{}
	for name, as := range streams {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+"api/v1/stream", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		as(req)
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v %v", name, res, err)
		}
		open[name] = res.Body
	}
	list := w.send(t, http.MethodGet, "api/v1/tokens?limit=1000", access.RoleAdmin, nil)
	if !strings.Contains(string(list.body), `"night"`) || !strings.Contains(string(list.body), `"last_used"`) ||
		strings.Contains(string(list.body), made.Token) {
		t.Errorf("%d %s", list.status, list.body)
	}
	if a := w.send(t, http.MethodDelete, "api/v1/tokens/night", access.RoleAdmin, nil); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for name, as := range streams {
		if a := w.send(t, http.MethodGet, "api/v1/me", "", as); a.status != http.StatusUnauthorized {
			t.Errorf("%s after the token was revoked: %d", name, a.status)
		}
		ended := make(chan error, 1)
		go func() { _, err := io.Copy(io.Discard, open[name]); ended <- err }()
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Errorf("the stream of a %s goes on without its token", name)
		}
		_ = open[name].Close()
	}
	if a := w.send(t, http.MethodDelete, "api/v1/tokens/night", access.RoleAdmin, nil); a.status != http.StatusNotFound {
		t.Errorf("revoked twice: %d %s", a.status, a.body)
	}
}

// TestEveryRouteThatChangesSomethingIsAudited holds the routes of the OpenAPI
// document against the audit: a new one that writes must say here what it leaves.
func TestEveryRouteThatChangesSomethingIsAudited(t *testing.T) {
	w := gives(t, withEstate(t, 8), func(_ *api.Config, d *api.Deps) {
		d.Admin = map[string]http.Handler{
			"/-/reload": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}\n") }),
		}
	})
	made := w.send(t, http.MethodPost, "api/v1/tokens", access.RoleAdmin, body(`{"name":"night","role":"operator"}`))
	var token apigen.CreatedToken
	if err := json.Unmarshal(made.body, &token); err != nil {
		t.Fatal(err)
	}
	asked := w.intents(t)
	of := w
	newest := func() audit.Row {
		t.Helper()
		rows, err := audit.New(of.db, time.Now).List(t.Context(), 0, 1)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		return rows[0]
	}
	var cookie *http.Cookie
	declared := ""
	does := w.estateDoors(t)
	maps.Copy(does, map[string]func() (row string){ // by operation; control writes the row of an intent once it has taken it
		"createToken": func() string {
			w.send(t, http.MethodPost, "api/v1/tokens", access.RoleAdmin, body(`{"name":"day","role":"viewer"}`))
			return "admin create token day"
		},
		"updateToken": func() string {
			w.send(t, http.MethodPut, "api/v1/tokens/night", access.RoleAdmin, body(`{"role":"viewer"}`))
			return "admin update token night"
		},
		"revokeToken": func() string {
			w.send(t, http.MethodDelete, "api/v1/tokens/day", access.RoleAdmin, nil)
			return "admin revoke token day"
		},
		"createLoginCode": func() string {
			w.send(t, http.MethodPost, "api/v1/login-codes", access.RoleAdmin, nil)
			return "admin issue login_code admin"
		},
		"login": func() string {
			a := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"token":"`+token.Token+`"}`))
			var err error
			if cookie, err = http.ParseSetCookie(a.header.Get("Set-Cookie")); err != nil {
				t.Fatal(err)
			}
			return "night start session night"
		},
		"finishLogin": func() string { // a read by its method, and what a browser is sent to
			console, service, _ := consoleWith(t, true)
			service.set(func() { service.groups["id-ada"] = []string{"watch"} })
			console.visitor(t).login(t, service, "ada")
			of = console
			return "ada start session ada"
		},
		"logout": func() string {
			w.send(t, http.MethodPost, "api/v1/logout", "", func(r *http.Request) {
				r.AddCookie(cookie)
				r.Header.Set("Sec-Fetch-Site", "same-origin")
			})
			return "night end session night"
		},
		"correctIncident": func() string {
			w.send(t, http.MethodPost, "api/v1/incidents/i-1042/corrections", access.RoleOperator, body(`{"verdict":"right"}`))
			r := newest()
			if r.Action != "i-1042" {
				t.Errorf("the row of a verdict is of %q", r.Action)
			}
			return "operator correct right "
		},
		"decideEdgeProposal": func() string {
			if _, err := learned.New(w.db).Propose(t.Context(), []schemas.EdgeProposal{{ID: "e-1", Cause: "a", Effect: "b"}}); err != nil {
				t.Fatal(err)
			}
			const path = "api/v1/learning/edges/e-1/decisions"
			w.send(t, http.MethodPost, path, access.RoleOperator, body(`{"decision":"declined","reason":"x"}`))
			return "operator learn edge_declined "
		},
		"postEvent": func() string {
			w.send(t, http.MethodPost, "api/v1/events", access.RoleOperator, body(`{"source_id":"gpu-r01-01","event_type":"psu.failure","severity":"error"}`))
			return "operator post event gpu-r01-01"
		},
		"postAlert": func() string {
			w.send(t, http.MethodPost, "api/v1/alerts", access.RoleOperator, body(`{"source_id":"gpu-r01-01","alert_type":"psu.failure","priority":"low"}`))
			return "operator post alert gpu-r01-01"
		},
		"handleAlert": func() string {
			w.send(t, http.MethodPut, "api/v1/alerts/e00001", access.RoleOperator, body(`{"status":"acknowledged"}`))
			return "operator acknowledge alert e00001"
		},
		"declareMaintenance": func() string {
			w.send(t, http.MethodPost, "api/v1/maintenance", access.RoleOperator, body(`{"resources":["dc1-r01"],"duration_seconds":60,"reason":"x"}`))
			declared = newest().Action
			return "operator declare_maintenance maintenance dc1-r01"
		},
		"endMaintenance": func() string {
			w.send(t, http.MethodPost, "api/v1/maintenance/"+declared+"/end", access.RoleOperator, nil)
			return "operator end_maintenance maintenance dc1-r01"
		},
		"updateMaintenance": func() string {
			m := makes[schemas.Maintenance](t, w, "api/v1/maintenance", `{"resources":["dc1-r02"],"duration_seconds":60,"reason":"x"}`)
			w.send(t, http.MethodPut, "api/v1/maintenance/"+m.ID, access.RoleOperator, body(`{"duration_seconds":90}`))
			return "operator change_maintenance maintenance dc1-r02"
		},
		"deleteMaintenance": func() string {
			m := makes[schemas.Maintenance](t, w, "api/v1/maintenance", `{"resources":["dc1-r02"],"duration_seconds":60,"reason":"x"}`)
			w.send(t, http.MethodDelete, "api/v1/maintenance/"+m.ID, access.RoleOperator, nil)
			return "operator end_maintenance maintenance dc1-r02"
		},
		"createAllocation": func() string { return "engineer create allocation " + w.allocates(t, "gpu-r01-01").ID },
		"updateAllocation": func() string {
			a := w.allocates(t, "gpu-r01-02")
			w.send(t, http.MethodPut, "api/v1/allocations/"+a.ID, access.RoleEngineer, body(`{"purpose":"x"}`))
			return "engineer update allocation " + a.ID
		},
		"deleteAllocation": func() string {
			a := w.allocates(t, "gpu-r01-03")
			w.send(t, http.MethodDelete, "api/v1/allocations/"+a.ID, access.RoleEngineer, nil)
			return "engineer update allocation " + a.ID
		},
		"stopAllocation": func() string {
			a := w.allocates(t, "gpu-r01-04")
			w.send(t, http.MethodPost, "api/v1/allocations/"+a.ID+"/stop", access.RoleAdmin, body(`{"force":true}`))
			return "admin force allocation " + a.ID
		},
		"startAllocation": func() string {
			a := w.allocates(t, "gpu-r01-05")
			w.send(t, http.MethodPost, "api/v1/allocations/"+a.ID+"/stop", access.RoleAdmin, body(`{"force":true}`))
			if _, err := w.db.ExecContext(t.Context(), `UPDATE servers SET hold=''`); err != nil {
				t.Fatal(err)
			}
			w.send(t, http.MethodPost, "api/v1/allocations/"+a.ID+"/start", access.RoleEngineer, nil)
			return "engineer update allocation " + a.ID
		},
		"createWorkflow": func() string { return "engineer create workflow " + w.validates(t, "gpu-r01-06").ID },
		"cancelWorkflow": func() string {
			f := w.validates(t, "gpu-r01-07")
			w.send(t, http.MethodDelete, "api/v1/workflows/"+f.ID, access.RoleEngineer, nil)
			return "engineer update workflow " + f.ID
		},
		"resumeWorkflow": func() string {
			f := w.validates(t, "gpu-r02-02")
			w.send(t, http.MethodDelete, "api/v1/workflows/"+f.ID, access.RoleEngineer, nil)
			w.send(t, http.MethodPost, "api/v1/workflows/"+f.ID+"/resume", access.RoleEngineer, nil)
			return "engineer update workflow " + f.ID
		},
		"deployAllocation":  func() string { return w.reruns(t, schemas.WorkflowDeploy, "gpu-r01-08") },
		"cleanupAllocation": func() string { return w.reruns(t, schemas.WorkflowCleanup, "gpu-r02-01") },
		"createUser": func() string {
			w.send(t, http.MethodPost, "api/v1/users", access.RoleAdmin, body(`{"username":"li","email":"li@example.com","role":"viewer"}`))
			return "admin create user li"
		},
		"updateUser": func() string {
			w.send(t, http.MethodPut, "api/v1/users/li", access.RoleAdmin, body(`{"status":"inactive"}`))
			return "admin update user li"
		},
		"createTeam": func() string {
			w.send(t, http.MethodPost, "api/v1/teams", access.RoleAdmin, body(`{"name":"vision"}`))
			return "admin create team vision"
		},
		"updateTeam": func() string {
			w.send(t, http.MethodPut, "api/v1/teams/vision", access.RoleAdmin, body(`{"members":["li"]}`))
			return "admin update team vision"
		},
		"deleteTeam": func() string {
			w.send(t, http.MethodPost, "api/v1/teams", access.RoleAdmin, body(`{"name":"speech"}`))
			w.send(t, http.MethodDelete, "api/v1/teams/speech", access.RoleAdmin, nil)
			return "admin delete team speech"
		},
		"createGrant": func() string {
			w.send(t, http.MethodPost, "api/v1/grants", access.RoleAdmin, body(`{"token":"night","pool":"default","role":"operator"}`))
			return "admin create grant default"
		},
		"deleteGrant": func() string {
			g := makes[schemas.Grant](t, w, "api/v1/grants", `{"team":"vision","pool":"default","role":"engineer"}`)
			w.send(t, http.MethodDelete, "api/v1/grants/"+g.ID, access.RoleAdmin, nil)
			return "admin delete grant default"
		},
		"createWebhook": func() string {
			w.send(t, http.MethodPost, "api/v1/webhooks", access.RoleAdmin, body(newHook))
			return "admin create webhook chat"
		},
		"updateWebhook": func() string {
			w.send(t, http.MethodPut, "api/v1/webhooks/chat", access.RoleAdmin, body(`{"topics":["allocation.*"]}`))
			return "admin update webhook chat"
		},
		"testWebhook": func() string {
			w.send(t, http.MethodPost, "api/v1/webhooks/chat/test", access.RoleAdmin, nil)
			return "admin test webhook chat"
		},
		"deleteWebhook": func() string {
			w.send(t, http.MethodPost, "api/v1/webhooks", access.RoleAdmin, body(strings.Replace(newHook, "chat", "pager", 1)))
			w.send(t, http.MethodDelete, "api/v1/webhooks/pager", access.RoleAdmin, nil)
			return "admin delete webhook pager"
		},
		"createJoinToken": func() string {
			w.send(t, http.MethodPost, "api/v1/join-tokens", access.RoleEngineer, body(`{"name":"image"}`))
			return "engineer create join_token image"
		},
		"revokeJoinToken": func() string {
			w.send(t, http.MethodDelete, "api/v1/join-tokens/image", access.RoleAdmin, nil)
			return "admin revoke join_token image"
		},
		"revokeMachine": func() string {
			w.send(t, http.MethodDelete, "api/v1/machines/"+w.joins(t, "one", "gpu-9"), access.RoleEngineer, nil)
			return "engineer revoke machine " + machineKey("gpu-9")
		},
		"startDiscovery": func() string { return "engineer create discovery " + w.asks(t).ID },
		"cancelDiscovery": func() string {
			d := w.asks(t)
			w.send(t, http.MethodDelete, "api/v1/discoveries/"+d.ID, access.RoleEngineer, nil)
			return "engineer update discovery " + d.ID
		},
		"decideConflict": func() string {
			c := w.contradicts(t, "S2")
			w.send(t, http.MethodPost, "api/v1/conflicts/"+c.ID, access.RoleEngineer, body(`{"decision":"left"}`))
			return "engineer update conflict " + c.ID
		},
		"decideProposal": func() string {
			p := w.proposes(t, "gpu-9")
			w.send(t, http.MethodPost, "api/v1/proposals/"+p+"/decisions", access.RoleEngineer, body(`{"decision":"declined","reason":"x"}`))
			return "engineer decline proposal gpu-9"
		},
		"powerServer": func() string {
			w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/power", access.RoleEngineer, body(`{"action":"power_cycle"}`))
			return "engineer request power_cycle gpu-r01-03"
		},
		"powerServerOperation": func() string {
			w.send(t, http.MethodPost, "api/v1/operations/gpu-r01-03/power", access.RoleAdmin, body(`{"action":"nmi"}`))
			return "admin request nmi gpu-r01-03"
		},
		"poolServer": func() string {
			w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/pool", access.RoleEngineer, body(`{"action":"quarantine"}`))
			return "engineer request quarantine gpu-r01-03"
		},
		"setServerBios": func() string {
			w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/bios", access.RoleEngineer, body(`{"attributes":{"BootMode":"Uefi"}}`))
			return "engineer request set_bios gpu-r01-03"
		},
		"updateServerFirmware": func() string {
			w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/firmware", access.RoleEngineer, body(`{"component":"bmc","version":"1.2","image":"http://192.0.2.1/i","sha256":"`+strings.Repeat("0", 64)+`"}`))
			return "engineer request update_firmware gpu-r01-03"
		},
		"decideAction": func() string {
			w.send(t, http.MethodPost, "api/v1/actions/a-314/approve", access.RoleOperator, nil)
			in := <-asked
			for in.Verb == schemas.IntentRequest { // of those before
				in = <-asked
			}
			if in.Actor != access.RoleOperator {
				t.Errorf("control is told that %s decided", in.Actor)
			}
			r := newest()
			return strings.Join([]string{r.Actor, r.Verb, r.Kind, r.Subject}, " ")
		},
	})
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `yaml:"operationId"`
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(openapi.Document, &doc); err != nil {
		t.Fatal(err)
	}
	var writes []string
	for _, methods := range doc.Paths {
		for method, op := range methods {
			if method != "get" && op.OperationID != "" || op.OperationID == "finishLogin" {
				writes = append(writes, op.OperationID)
			}
		}
	}
	slices.Sort(writes) // createToken before revokeToken, login before logout
	if len(writes) != len(does) {
		t.Errorf("%d routes write, %d are known: %v", len(writes), len(does), writes)
	}
	check := func(name, want string) {
		t.Helper()
		if r := newest(); strings.Join([]string{r.Actor, r.Verb, r.Kind, r.Subject}, " ") != want {
			t.Errorf("%s left %+v, want %s", name, r, want)
		}
	}
	for _, op := range writes {
		if does[op] == nil {
			t.Errorf("nothing says what %s leaves in the audit", op)
			continue
		}
		check(op, does[op]())
		of = w
	}
	w.send(t, http.MethodPost, "-/reload", access.RoleAdmin, nil)
	check("reload", "admin request route /-/reload")
}

// A token that another process revokes, as the command does, ends its streams too.
func TestAStreamEndsWithATokenThatAnotherProcessRevokes(t *testing.T) {
	w := start(t, false)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+"api/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens[access.RoleViewer])
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := access.New(w.db, time.Hour).RevokeToken(t.Context(), "test", access.RoleViewer); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, res.Body); close(ended) }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream goes on")
	}
}

// A page of another site does not read with our session, and a proxy that puts
// its own name for ours does not lock our pages out.
func TestASessionIsForOurOwnPages(t *testing.T) {
	w := start(t, true, func(c *api.Config, _ *api.Deps) { c.Hosts = []string{"console.example"} })
	_, code, _ := strings.Cut(w.login(t, "on-call", access.RoleOperator), "#login=")
	login := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"code":"`+code+`"}`))
	cookie, err := http.ParseSetCookie(login.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, method, header, value string
		status                      int
	}{
		{"a read of another site", http.MethodGet, "Sec-Fetch-Site", "cross-site", 403},
		{"a read of a sibling", http.MethodGet, "Sec-Fetch-Site", "same-site", 403},
		{"a read of another origin", http.MethodGet, "Origin", "https://evil.example", 403},
		{"an origin that is none", http.MethodGet, "Origin", "null", 403},
		{"our name behind a proxy", http.MethodGet, "Origin", "https://console.example", 200},
		{"a write by our name behind a proxy", http.MethodPost, "Origin", "https://console.example", 204},
	} {
		path := "api/v1/me"
		if tc.method == http.MethodPost {
			path = "api/v1/logout"
		}
		a := w.send(t, tc.method, path, "", func(r *http.Request) { r.AddCookie(cookie); r.Header.Set(tc.header, tc.value) })
		if a.status != tc.status {
			t.Errorf("%s: %d %s", tc.name, a.status, a.body)
		}
	}
}

func TestWhoMayReadMetricsIsSaidAndNotGuessed(t *testing.T) {
	for _, tc := range []struct {
		listen, metrics string
		open            bool
	}{
		{"127.0.0.1:8080", "", true},
		{"[::1]:8080", "", true},
		{"localhost:8080", "", true},
		{":8080", "", false},
		{"0.0.0.0:8080", "", false},
		{"192.0.2.1:8080", "", false},
		{"0.0.0.0:8080", "open", true},
		{"127.0.0.1:8080", "token", false},
	} {
		c := api.Config{Listen: tc.listen, Metrics: tc.metrics}
		if c.MetricsOpen() != tc.open {
			t.Errorf("%+v: open %v", tc, !tc.open)
		}
	}
	if (api.Config{Health: "token"}).HealthOpen() || !(api.Config{}).HealthOpen() {
		t.Error("health")
	}
	c := api.DefaultConfig()
	if c.Metrics = "everybody"; c.Validate() == nil {
		t.Error("a word without a meaning was taken")
	}
}
