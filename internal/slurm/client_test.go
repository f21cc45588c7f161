package slurm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"auspex/internal/certtest"
)

func TestUserComesFromTheToken(t *testing.T) {
	for jwt, want := range map[string]string{
		"x." + base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1,"sun":"root"}`)) + ".y": "root",
		"x.!.y": "", "opaque": "", "x." + base64.RawURLEncoding.EncodeToString([]byte(`{"sun":"a\nb"}`)) + ".y": "",
	} {
		if got := userOf(jwt); got != want {
			t.Errorf("%q: %q, want %q", jwt, got, want)
		}
	}
}

// daemon answers as slurmrestd does: an unknown node is an empty list, with or without a complaint.
func daemon(t *testing.T, version string) (*httptest.Server, *[]string) {
	var posts []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, "/slurm/"+version+"/node/")
		const n1 = `{"nodes":[{"name":"n1","state":["IDLE","DRAIN"],"reason":"auspex: x"}],"errors":[]}`
		switch {
		case r.URL.Path == "/slurm/"+version+"/nodes":
			_, _ = w.Write([]byte(n1))
		case !ok:
			http.NotFound(w, r)
		case r.Method == http.MethodPost:
			var ask struct {
				State  []string
				Reason string
			}
			if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
				t.Error(err)
			}
			posts = append(posts, rest+" "+strings.Join(ask.State, "+")+" "+ask.Reason)
			_, _ = w.Write([]byte(`{"errors":[]}`))
		case rest == "n1":
			_, _ = w.Write([]byte(n1))
		case rest == "nope": // as 24.11 says it
			_, _ = w.Write([]byte(`{"errors":[{"description":"Failure to query node nope","error_number":0,"error":"No error","source":"_dump_nodes"}]}`))
		case rest == "gone": // as 22.05 does
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"errors":[{"error":"Invalid node name specified","errno":2018}],"nodes":[]}`))
		default:
			_, _ = w.Write([]byte(`{"nodes":[],"errors":[]}`))
		}
	}))
	t.Cleanup(srv.Close)
	return srv, &posts
}

func TestAnUnknownNodeIsAnErrorAndNothingIsSent(t *testing.T) {
	for _, version := range []string{"v0.0.42", "v0.0.43"} {
		t.Run(version, func(t *testing.T) { testUnknownNode(t, version) })
	}
}

func testUnknownNode(t *testing.T, version string) {
	srv, posts := daemon(t, version)
	c := New(Options{URL: srv.URL, Version: version, Timeout: time.Minute})
	t.Cleanup(c.Close)
	for _, name := range []string{"nope", "gone", "n2"} {
		if _, err := c.Node(t.Context(), name); !errors.Is(err, ErrUnknownNode) {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.SetNode(t.Context(), name, "DRAIN", "r"); !errors.Is(err, ErrRefused) || !errors.Is(err, ErrUnknownNode) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.SetNode(t.Context(), "n1", "DRAIN", "auspex: because"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(*posts, ";"); got != "n1 DRAIN auspex: because" {
		t.Error(got)
	}
}

// serve answers each path below the version's with one text, and what is asked to be changed with another.
func serve(t *testing.T, version string, status int, says map[string]string) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.URL.Path, "/slurm/"+version+"/")
		if r.Method == http.MethodPost {
			key = "POST"
		}
		text, ok := says[key]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if key == "POST" {
			w.WriteHeader(status)
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(srv.Close)
	c := New(Options{URL: srv.URL, Version: version, Timeout: time.Minute})
	t.Cleanup(c.Close)
	return c
}

// Who does not know a node lets what ends its jobs go. So it is unknown only where a list of nodes that nothing is wrong with
// does not have it.
func TestAnAnswerWithErrorsIsNoUnknownNode(t *testing.T) {
	const (
		away    = `{"nodes":[],"errors":[{"error_number":1800,"error":"Unable to contact slurm controller"}]}`
		invalid = `{"nodes":[],"errors":[{"error_number":2018,"error":"Invalid node name specified"}]}`
		others  = `{"nodes":[{"name":"n2","state":["IDLE"]}],"errors":[]}`
		none    = `{"nodes":[],"errors":[]}`
		n1      = `{"name":"n1","state":["IDLE","DRAIN"]}`
	)
	for name, tc := range map[string]struct {
		node, nodes string
		want        error
	}{
		"another error":                  {away, others, ErrProtocol},
		"an invalid name":                {invalid, others, ErrUnknownNode},
		"an empty list":                  {none, others, ErrUnknownNode},
		"a list with an error":           {invalid, away, ErrProtocol},
		"an empty list of all":           {invalid, none, ErrProtocol},
		"a list without nodes":           {`{}`, `{}`, ErrProtocol},
		"the node beside an error":       {`{"nodes":[` + n1 + `],"errors":[{"error_number":9001,"error":"x"}]}`, others, ErrProtocol},
		"a node that the list does have": {invalid, `{"nodes":[` + n1 + `]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, "v0.0.42", http.StatusOK, map[string]string{"node/n1": tc.node, "nodes": tc.nodes})
			if n, err := c.Node(t.Context(), "n1"); !errors.Is(err, tc.want) || err == nil && n.Name != "n1" || errors.Is(err, ErrUnknownNode) != errors.Is(tc.want, ErrUnknownNode) {
				t.Errorf("%+v %v, want %v", n, err, tc.want)
			}
		})
	}
}

// Status 200 is no success, and an error with it no refusal, unless it says that nothing was done.
func TestWhatRESTRefusesIsToldFromWhatMayHaveHappened(t *testing.T) {
	for says, want := range map[string]error{
		`{"errors":[]}`: nil,
		`{}`:            nil,
		`{"errors":[{"error_number":2002,"error":"Access/permission denied","source":"_update_node","description":"x"}]}`: ErrRefused,
		`{"errors":[{"error_number":2047,"error":"Invalid node state specified"}]}`:                                       ErrRefused,
		`{"errors":[{"error_number":5004,"error":"Socket timed out on send/recv operation"}]}`:                            ErrProtocol,
		`{"errors":[{"error_number":-1,"error":"x"}]}`:                                                                    ErrProtocol,
		`<html>`: ErrProtocol,
	} {
		for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
			c := serve(t, "v0.0.43", status, map[string]string{"node/n1": `{"nodes":[{"name":"n1","state":["IDLE"]}]}`, "POST": says})
			want := want
			if want == nil && status != http.StatusOK {
				want = ErrProtocol
			}
			err := c.SetNode(t.Context(), "n1", "DRAIN", "x")
			if !errors.Is(err, want) || errors.Is(err, ErrRefused) != errors.Is(want, ErrRefused) {
				t.Errorf("%d %s: %v, want %v", status, says, err, want)
			}
		}
	}
}

func TestAListOfJobsWithAnErrorIsNoIdleNode(t *testing.T) {
	for says, want := range map[string]int{
		`{"jobs":[],"errors":[],"warnings":[{"description":"Zero jobs to dump"}]}`:                       0,
		`{"jobs":[{"job_id":7,"user_name":"ann","job_state":["RUNNING"],"nodes":"n[1-2]"}]}`:             1,
		`{"jobs":[],"errors":[{"error_number":5004,"error":"Socket timed out on send/recv operation"}]}`: -1,
		`{}`: -1,
	} {
		jobs, err := serve(t, "v0.0.43", http.StatusOK, map[string]string{"jobs": says}).Running(t.Context(), "n1")
		if want < 0 && !errors.Is(err, ErrProtocol) || want >= 0 && (err != nil || len(jobs) != want) {
			t.Errorf("%s: %+v, %v", says, jobs, err)
		}
	}
}

// A node that is read alone shows the CPUs that were in use when somebody read the list.
func TestAMixedNodeIsReadAgainAfterTheList(t *testing.T) {
	listed := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch state := "MIXED"; r.URL.Path {
		case "/slurm/v0.0.42/nodes":
			listed++
			_, _ = w.Write([]byte(`{"nodes":[]}`))
		case "/slurm/v0.0.42/node/n1":
			if listed == 1 {
				state = "IDLE"
			}
			_, _ = w.Write([]byte(`{"nodes":[{"name":"n1","state":["` + state + `","DRAIN"]}]}`))
		case "/slurm/v0.0.42/node/n2":
			_, _ = w.Write([]byte(`{"nodes":[{"name":"n2","state":["MIXED","DRAIN"]}]}`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	c := New(Options{URL: srv.URL, Version: "v0.0.42", Timeout: time.Minute})
	t.Cleanup(c.Close)
	if n, err := c.Node(t.Context(), "n1"); err != nil || n.State[0] != "IDLE" {
		t.Errorf("%+v %v", n, err)
	}
	for range 3 { // the list is large: many nodes that are drained do not read it many times
		if n, err := c.Node(t.Context(), "n2"); err != nil || n.State[0] != "MIXED" {
			t.Errorf("%+v %v", n, err)
		}
	}
	if listed != 1 {
		t.Errorf("the list was read %d times", listed)
	}
}

// Since 23.11 the document has its slashes escaped.
func TestTheNewestVersionOfTheDocumentIsTaken(t *testing.T) {
	for document, want := range map[string]string{
		`{"paths":{"/slurm/v0.0.38/jobs":{}}}`: "v0.0.38",
		`{"paths":{"\/slurm\/v0.0.41\/jobs\/":{},"\/slurm\/v0.0.43\/jobs\/":{},"\/slurm\/v0.0.42\/jobs\/":{}}}`: "v0.0.43",
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/openapi/v3" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(document))
		}))
		c := New(Options{URL: srv.URL, Timeout: time.Minute})
		if got, err := c.Version(t.Context()); err != nil || got != want {
			t.Errorf("%s: %s %v", document, got, err)
		}
		c.Close()
		srv.Close()
	}
}

func TestOldDaemonsAreChangedThroughScontrol(t *testing.T) {
	srv, posts := daemon(t, "v0.0.38")
	out := filepath.Join(t.TempDir(), "args")
	script := filepath.Join(t.TempDir(), "scontrol")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$@\" >"+out+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := New(Options{URL: srv.URL, Version: "v0.0.38", Timeout: time.Minute})
	t.Cleanup(c.Close)
	if err := c.SetNode(context.Background(), "n1", "DRAIN", "why"); !errors.Is(err, ErrRefused) {
		t.Errorf("without scontrol: %v", err)
	}
	c = New(Options{URL: srv.URL, Version: "v0.0.38", Timeout: time.Minute, Scontrol: &Scontrol{Command: []string{script}}})
	t.Cleanup(c.Close)
	if err := c.SetNode(context.Background(), "n1", "DRAIN", "why"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil || strings.TrimSpace(string(got)) != "update NodeName=n1 State=DRAIN Reason=why" || len(*posts) != 0 {
		t.Errorf("%q %v %v", got, *posts, err)
	}
}

func TestATokenDoesNotFollowARedirect(t *testing.T) {
	asked := make(chan string, 8)
	elsewhere := httptest.NewServer(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("X-SLURM-USER-TOKEN") }),
	)
	t.Cleanup(elsewhere.Close)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusFound)
	}))
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := New(Options{URL: srv.URL, Version: "v0.0.42", TokenFile: file, Timeout: time.Minute})
	t.Cleanup(c.Close)
	if _, err := c.Node(t.Context(), "n1"); !errors.Is(err, ErrProtocol) {
		t.Errorf("a redirect: %v, want an answer that is not understood", err)
	}
	if len(asked) > 0 {
		t.Errorf("another host was asked, with token %q", <-asked)
	}
}

func TestWhichDaemonIsTrusted(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	certtest.Handshakes(t, func(t *testing.T, h certtest.Handshake) error {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }))
		s.TLS, s.Config.ErrorLog = h.Server, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		defer s.Close()
		trusted, err := h.Client()
		if err != nil {
			return err
		}
		c := New(Options{URL: s.URL, TokenFile: token, Version: "v0.0.42", TLS: trusted, Timeout: time.Minute})
		defer c.Close()
		return c.Get(t.Context(), "nodes", &struct{}{})
	})
}

// An answer that unpacks to a gigabyte is given up once it is larger than any
// answer may be.
func TestAPackedAnswerIsBoundedUnpacked(t *testing.T) {
	bomb := certtest.Bomb(t, 1<<30)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	}))
	defer s.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := New(Options{URL: s.URL, Version: "v0.0.42", TokenFile: token, Timeout: time.Minute, MaxBody: 8 << 20})
	defer c.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := c.Node(t.Context(), "n1")
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrProtocol) || used > 128<<20 {
		t.Errorf("%v, %d MiB", err, used>>20)
	}
}

// What the fast reader sees of an object is what encoding/json sees.
func FuzzList(f *testing.F) {
	f.Add(`{"jobs":[{"job_id":{"set":true,"number":7},"a\"b":[1,{"x":"]"}],"job_state":["RUNNING"]},null,3],"errors":[],"last_update":5}`)
	f.Add(`{"jobs":[{"job_id":7`)
	f.Add(`{"errors":[{"error":"x"}],"jobs":[]}`)
	f.Add("{\"jobs\":[\"\\\\\\\"\",{\"k\\u0041\" : -1e5 , \"\":{}}]} ")
	f.Fuzz(func(t *testing.T, s string) {
		_, _, _, err := decodeList(strings.NewReader(s), "jobs", func(raw []byte) {
			var want map[string]json.RawMessage
			object := json.Unmarshal(raw, &want) == nil && len(raw) > 0 && raw[0] == '{'
			seen := map[string]string{}
			Members(raw, func(name, value []byte) {
				var key string
				if err := json.Unmarshal([]byte(`"`+string(name)+`"`), &key); err != nil {
					t.Errorf("%q: name %q: %v", raw, name, err)
				}
				seen[key] = string(value)
				_, _ = ID(value)
				_ = Word(value)
			})
			if !object {
				return
			}
			if len(seen) != len(want) {
				t.Errorf("%q: %d members, want %d", raw, len(seen), len(want))
			}
			for k, v := range want {
				if seen[k] != string(v) {
					t.Errorf("%q: %q is %q, want %q", raw, k, seen[k], v)
				}
			}
			var p Past
			if json.Unmarshal(raw, &p) == nil {
				p.Failed()
			}
		})
		if err == nil && !json.Valid([]byte(firstValue(s))) {
			t.Errorf("%q was taken", s)
		}
	})
}

// firstValue is the first JSON value of a text: what comes after an answer is not read.
func firstValue(s string) string {
	var raw json.RawMessage
	if json.NewDecoder(strings.NewReader(s)).Decode(&raw) != nil {
		return s
	}
	return string(raw)
}

func TestNumbersAreReadInEachForm(t *testing.T) {
	for in, want := range map[string]Number{
		`7`: {7, true}, `"7"`: {7, true}, `{"set": true, "infinite": false, "number": 7}`: {7, true}, `{"number":7}`: {7, true},
		`{"set":false,"number":7}`: {}, `{"set":true,"infinite":true,"number":0}`: {}, `null`: {}, `[]`: {}, `{}`: {}, `1e99`: {},
	} {
		var n Number
		if err := json.Unmarshal([]byte(in), &n); err != nil || n != want {
			t.Errorf("%s: %+v, %v", in, n, err)
		}
	}
	for in, want := range map[string]int64{`7`: 7, `"7_3"`: 7, `"7+1"`: 7, `"7.batch"`: 7, `"x"`: 0, `{}`: 0, `-1`: 0} {
		if id, ok := ID([]byte(in)); (ok || want != 0) && (id != want || !ok) {
			t.Errorf("%s: %d, %v", in, id, ok)
		}
	}
}
