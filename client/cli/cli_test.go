package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"auspex/client/cli"
	"auspex/schemas/openapi"
)

// request is what a server was sent.
type request struct{ method, path, query, auth, key, body string }

// server answers with what a test says, and keeps what it was sent.
type server struct {
	*httptest.Server
	got    []request
	answer func(n int, r request) (status int, body string)
}

func serve(t *testing.T, answer func(n int, r request) (int, string)) *server {
	t.Helper()
	s := &server{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		one := request{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Authorization"), r.Header.Get("Idempotency-Key"), string(text)}
		s.got = append(s.got, one)
		status, body := s.answer(len(s.got), one)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

// run runs a command line against a server.
func (s *server) run(t *testing.T, stdin string, args ...string) (out, notes string, err error) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := &cobra.Command{Use: "auspex", SilenceErrors: true, SilenceUsage: true}
	root.AddGroup(&cobra.Group{ID: cli.Group, Title: "x"})
	all, err := cli.Commands(openapi.Document, []string{cli.EnvURL + "=" + s.URL, cli.EnvFile + "=" + token}, strings.NewReader(stdin), func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	root.AddCommand(all...)
	var o, e bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&o)
	root.SetErr(&e)
	err = root.ExecuteContext(context.WithoutCancel(t.Context()))
	return o.String(), e.String(), err
}

// What is long is in a file, as JSON or as YAML.
func TestABodyIsAFile(t *testing.T) {
	s := serve(t, func(int, request) (int, string) { return http.StatusCreated, `{"name":"a"}` })
	for name, text := range map[string]string{
		"a.json": `{"name":"a","os_family":"other","architectures":["x86_64"],"text":"x: 1\n"}`,
		"a.yaml": "name: a\nos_family: other\narchitectures: [x86_64]\ntext: |\n  x: 1\n",
	} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.run(t, "", "templates", "create", "-f", file, "--dry-run"); err != nil {
			t.Error(name, err)
			continue
		}
		r := s.got[len(s.got)-1]
		want := `{"architectures":["x86_64"],"name":"a","os_family":"other","text":"x: 1\n"}`
		if r.path != "/api/v1/templates" || r.query != "dry_run=true" || strings.TrimSpace(r.body) != want {
			t.Errorf("%s: %+v", name, r)
		}
	}
	file := filepath.Join(t.TempDir(), "bad.yml")
	if err := os.WriteFile(file, []byte("name: [a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.run(t, "", "templates", "create", "-f", file); err == nil || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

func TestARouteIsACommand(t *testing.T) {
	s := serve(t, func(int, request) (int, string) { return http.StatusOK, `{"items":[]}` })
	for _, tc := range []struct {
		args string
		want request
	}{
		{"users list --role admin --limit 5", request{http.MethodGet, "/api/v1/users", "limit=5&role=admin", "", "", ""}},
		{"allocations list --live", request{http.MethodGet, "/api/v1/allocations", "live=true", "", "", ""}},
		{"users allocations li", request{http.MethodGet, "/api/v1/users/li/allocations", "", "", "", ""}},
		{"resources get gpu-1/gpu0", request{http.MethodGet, "/api/v1/resources/gpu-1%2Fgpu0", "", "", "", ""}},
		{"allocations delete a/../b", request{http.MethodDelete, "/api/v1/allocations/a%2F..%2Fb", "", "", "", ""}},
		{"users create --username li --email li@example.com --role engineer", request{
			http.MethodPost, "/api/v1/users", "", "", "key", `{"email":"li@example.com","role":"engineer","username":"li"}`,
		}},
		{"users update li --status inactive", request{http.MethodPut, "/api/v1/users/li", "", "", "", `{"status":"inactive"}`}},
		{"allocations create --wish.gpus 4 --wish.labels a=b --purpose x --dry-run", request{
			http.MethodPost, "/api/v1/allocations", "dry_run=true", "", "key", `{"purpose":"x","wish":{"gpus":4,"labels":{"a":"b"}}}`,
		}},
		{"allocations create --server-ids a,b", request{http.MethodPost, "/api/v1/allocations", "", "", "key", `{"server_ids":["a","b"]}`}},
		{"allocations stop x", request{http.MethodPost, "/api/v1/allocations/x/stop", "", "", "key", ""}},
		{"tokens create --name x --role viewer", request{http.MethodPost, "/api/v1/tokens", "", "", "key", `{"name":"x","role":"viewer"}`}},
		{"actions decide a-1 approve", request{http.MethodPost, "/api/v1/actions/a-1/approve", "", "", "key", ""}},
		{"fleet get", request{http.MethodGet, "/api/v1/fleet", "", "", "", ""}},
		{"capacity get", request{http.MethodGet, "/api/v1/capacity", "", "", "", ""}},
	} {
		s.got = nil
		if _, _, err := s.run(t, "", strings.Fields(tc.args)...); err != nil || len(s.got) != 1 {
			t.Errorf("%s: %v, %+v", tc.args, err, s.got)
			continue
		}
		got := s.got[0]
		if got.auth != "Bearer secret" {
			t.Errorf("%s: asked as %q", tc.args, got.auth)
		}
		if got.auth = ""; got.key != "" {
			got.key = "key"
		}
		if got != tc.want {
			t.Errorf("%s:\n%+v, want\n%+v", tc.args, got, tc.want)
		}
	}
}

func TestABodyFromAFileAndFlags(t *testing.T) {
	s := serve(t, func(int, request) (int, string) { return http.StatusOK, `{}` })
	if _, _, err := s.run(t, `{"wish":{"gpus":2,"pool":"a"},"purpose":"x"}`, "allocations", "create", "--body", "-", "--wish.pool", "b"); err != nil {
		t.Fatal(err)
	}
	if got := s.got[0].body; got != `{"purpose":"x","wish":{"gpus":2,"pool":"b"}}` {
		t.Error(got)
	}
	if _, _, err := s.run(t, `{"wish"`, "allocations", "create", "--body", "-"); err == nil || len(s.got) != 1 {
		t.Errorf("%v", err)
	}
}

func TestAnswersAreShown(t *testing.T) {
	page := func(n int, _ request) (int, string) {
		next := `,"next":"u1"`
		if n > 1 {
			next = ""
		}
		return http.StatusOK, fmt.Sprintf(`{"items":[{"id":"%d","username":"u%d","email":"e","role":"viewer","status":"active","teams":["a","b"],
"created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}]%s}`, n, n, next)
	}
	s := serve(t, page)
	out, notes, err := s.run(t, "", "users", "list")
	if err != nil || !strings.HasPrefix(out, "ID  USERNAME  EMAIL  ROLE") || !strings.Contains(out, "u1") || notes != "there is more: --after u1, or --all\n" {
		t.Errorf("%s%s%v", out, notes, err)
	}
	s = serve(t, page)
	out, notes, err = s.run(t, "", "users", "list", "--all", "-o", "json")
	var all struct{ Items []map[string]any }
	if json.Unmarshal([]byte(out), &all) != nil || len(all.Items) != 2 || notes != "" || err != nil || s.got[1].query != "after=u1" {
		t.Errorf("%s%s%v %+v", out, notes, err, s.got)
	}
	if out, _, err := s.run(t, "", "users", "list", "-o", "yaml"); err != nil || !strings.Contains(out, "username: u3") {
		t.Errorf("%s%v", out, err)
	}
	if _, _, err := s.run(t, "", "users", "list", "-o", "xml"); err == nil {
		t.Error("there is no xml")
	}
	s = serve(t, func(int, request) (int, string) {
		return http.StatusOK, `{"role":"viewer","id":"1","username":"li","teams":["a","b"]}`
	})
	if out, _, err := s.run(t, "", "users", "get", "li"); err != nil || out != "id        1\nusername  li\nrole      viewer\nteams     a,b\n" {
		t.Errorf("%s%v", out, err)
	}
}

func TestWhatAServerRefuses(t *testing.T) {
	s := serve(t, func(int, request) (int, string) {
		return http.StatusConflict, `{"code":"name_taken","detail":"There is another user with this username.","hint":"Choose another."}`
	})
	if _, _, err := s.run(t, "", "users", "create", "--username", "li"); err == nil ||
		err.Error() != "There is another user with this username. Choose another. (name_taken)" || len(s.got) != 1 {
		t.Errorf("%v, %d requests", err, len(s.got))
	}
	s = serve(t, func(int, request) (int, string) { return http.StatusBadGateway, "<html>" })
	if _, _, err := s.run(t, "", "users", "list"); err == nil || err.Error() != "the server answered 502 Bad Gateway (HTTP 502)" {
		t.Errorf("%v", err)
	}
}

// TestWhatIsSentAgainIsDoneOnce: with one key, and only where the route takes one.
func TestWhatIsSentAgainIsDoneOnce(t *testing.T) {
	away := func(n int, _ request) (int, string) {
		if n < 3 {
			return http.StatusServiceUnavailable, `{"detail":"not yet"}`
		}
		return http.StatusOK, `{}`
	}
	s := serve(t, away)
	if _, _, err := s.run(t, "", "users", "create", "--username", "li"); err != nil || len(s.got) != 3 || s.got[0].key == "" || s.got[0].key != s.got[2].key {
		t.Errorf("%v %+v", err, s.got)
	}
	s = serve(t, away)
	if _, _, err := s.run(t, "", "templates", "render", "ubuntu", "--server", "gpu-1"); err == nil || len(s.got) != 1 {
		t.Errorf("%v %+v", err, s.got)
	}
}

func TestAllocateInTheWordsOfPeople(t *testing.T) {
	made := `{"allocation":{"id":"a1","status":"pending","servers":["s1","s2"],"gpu_ids":["1","2"]},"choice":{"servers":[],"runners_up":[],"lost":[]}}`
	states := []string{
		`{"status":"pending","workflows":[{"id":"w","server":"s1","steps":[{"name":"telemetry","status":"running","message":"nobody has read gpu0"}]}]}`,
		`{"status":"active","workflows":[{"id":"w","server":"s1","steps":[{"name":"telemetry","status":"completed","message":"8 GPUs were read"}]}]}`,
	}
	s := serve(t, func(n int, r request) (int, string) {
		if r.method == http.MethodPost {
			return http.StatusCreated, made
		}
		return http.StatusOK, states[n-2]
	})
	out, notes, err := s.run(t, "", "allocate", "--gpus", "16", "--same-rack", "--for", "3d", "--purpose", "fine-tuning", "--max-risk", "0.1", "--wait")
	if err != nil || !strings.Contains(out, "s1, s2") || notes != "s1  telemetry running: nobody has read gpu0\ns1  telemetry completed: 8 GPUs were read\nactive\n" {
		t.Errorf("%s%s%v", out, notes, err)
	}
	if b := s.got[0].body; !strings.Contains(b, `"wish":{"gpus":16,"together":"rack","max_risk":0.1}`) || !strings.Contains(b, `"end_time":"`) || s.got[0].key == "" {
		t.Error(b)
	}
	if _, _, err := s.run(t, "", "allocate", "--gpus", "1", "--same-rack", "--same-rail"); err == nil {
		t.Error("one of the two")
	}
	if _, _, err := s.run(t, "", "allocate", "s1", "--for", "soon"); err == nil || !strings.Contains(err.Error(), "--for") {
		t.Errorf("%v", err)
	}
	s = serve(t, func(int, request) (int, string) {
		return http.StatusConflict, `{"code":"no_fit","detail":"Nothing fits.","choice":{"lost":[{"reason":{"id":"fit.hold","args":{"hold":"burn-in"}},"count":2,"examples":["s1","s2"]}],
"nearest":[{"id":"fit.miss_without","args":{"constraint":"model"}}]}}`
	})
	if _, notes, err := s.run(t, "", "allocate", "--servers", "3"); err == nil || notes != "2 not chosen: is held back: burn-in (s1, s2)\nwithout model it would fit\n" {
		t.Errorf("%s%v", notes, err)
	}
	s = serve(t, func(int, request) (int, string) {
		return http.StatusAccepted, `{"id":"a1","status":"completed","servers":["s1"]}`
	})
	if out, _, err := s.run(t, "", "release", "a1", "--report", "slow"); err != nil || !strings.Contains(out, "completed") || s.got[0].body != `{"report":"slow"}` {
		t.Errorf("%s%v %+v", out, err, s.got)
	}
}

func TestTheServerCompletesNames(t *testing.T) {
	s := serve(t, func(_ int, r request) (int, string) {
		return http.StatusOK, map[string]string{
			"/api/v1/users":       `{"items":[{"id":"1","username":"li"},{"id":"2","username":"lo"},{"id":"3","username":"bo"}]}`,
			"/api/v1/allocations": `{"items":[{"id":"a-1"},{"id":"b-1"}]}`,
			"/api/v1/servers":     `{"items":[{"id":"1","name":"gpu-1"},{"id":"2","name":"gpu-2"}]}`,
			"/api/v1/gpus":        `{"items":[{"id":"1","name":"gpu-1/gpu0"},{"id":"2","name":"gpu-1/gpu1"}]}`,
			"/api/v1/pools":       `{"items":[{"id":"1","name":"train"},{"id":"2","name":"default"}]}`,
			"/api/v1/hardware":    `{"items":[{"id":"1","name":"gpu-1"}]}`,
			"/api/v1/machines":    `{"items":[{"key":"beef","name":"gpu-1"}]}`,
		}[r.path]
	})
	for typed, want := range map[string]string{
		"users get l":                            "li lo",
		"release ":                               "a-1 b-1",
		"release a-1 ":                           "",
		"allocate gpu-":                          "gpu-1 gpu-2",
		"allocate gpu-1/":                        "gpu-1/gpu0 gpu-1/gpu1",
		"allocate --gpus 8 --pool t":             "train",
		"allocate --servers 2 --user b":          "bo",
		"allocate --spread ":                     "feeds racks",
		"allocations list --server gpu-":         "gpu-1 gpu-2",
		"workflows create --server-id gpu-2":     "gpu-2",
		"workflows cleanup --allocation-id b":    "b-1",
		"allocations create --wish.pool default": "default",
		"hardware get ":                          "gpu-1",
		"machines delete b":                      "beef",
	} {
		words := strings.Split(typed, " ")
		out, _, err := s.run(t, "", append([]string{"__complete"}, words...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if got := strings.Join(lines[:len(lines)-1], " "); err != nil || got != want || lines[len(lines)-1] != ":4" {
			t.Errorf("%q: %q, want %q (%v)", typed, out, want, err)
		}
	}
	if r := s.got[len(s.got)-1]; r.auth != "Bearer secret" {
		t.Errorf("%+v", r)
	}
}

func TestWhereAnAuspexIs(t *testing.T) {
	s := serve(t, func(int, request) (int, string) { return http.StatusOK, `{}` })
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"url":"`+s.URL+`/","token":"local"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	root := &cobra.Command{Use: "auspex", SilenceErrors: true, SilenceUsage: true}
	root.AddGroup(&cobra.Group{ID: cli.Group})
	all, err := cli.Commands(openapi.Document, nil, nil, func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	root.AddCommand(all...)
	root.SetOut(io.Discard)
	root.SetArgs([]string{"me", "get", "--data-dir", dir})
	if err := root.ExecuteContext(t.Context()); err != nil || s.got[0].auth != "Bearer local" {
		t.Errorf("%v %+v", err, s.got)
	}
	root.SetArgs([]string{"me", "get", "--data-dir", filepath.Join(dir, "none")})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "where is Auspex? Set AUSPEX_URL and AUSPEX_TOKEN_FILE") {
		t.Errorf("%v", err)
	}
}
