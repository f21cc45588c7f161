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

// daemon answers as slurmrestd does: an unknown node is an empty list.
func daemon(t *testing.T, version string) (*httptest.Server, *[]string) {
	var posts []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, "/slurm/"+version+"/node/")
		switch {
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
			_, _ = w.Write([]byte(`{"nodes":[{"name":"n1","state":["IDLE","DRAIN"],"reason":"auspex: x"}],"errors":[]}`))
		default:
			_, _ = w.Write([]byte(`{"nodes":[],"errors":[]}`))
		}
	}))
	t.Cleanup(srv.Close)
	return srv, &posts
}

// The shapes of v0.0.43 are those of v0.0.42 as far as they are read here: nothing was recorded of it.
func TestAnUnknownNodeIsAnErrorAndNothingIsSent(t *testing.T) {
	for _, version := range []string{"v0.0.42", "v0.0.43"} {
		t.Run(version, func(t *testing.T) { testUnknownNode(t, version) })
	}
}

func testUnknownNode(t *testing.T, version string) {
	srv, posts := daemon(t, version)
	c := New(Options{URL: srv.URL, Version: version, Timeout: time.Minute})
	t.Cleanup(c.Close)
	if _, err := c.Node(t.Context(), "nope"); !errors.Is(err, ErrUnknownNode) {
		t.Error(err)
	}
	if err := c.SetNode(t.Context(), "nope", "DRAIN", "r"); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	if err := c.SetNode(t.Context(), "n1", "DRAIN", "auspex: because"); err != nil {
		t.Error(err)
	}
	if got := strings.Join(*posts, ";"); got != "n1 DRAIN auspex: because" {
		t.Error(got)
	}
}

// An empty list with status 200 is a node that is not known only where nothing else went wrong: who does not know
// a node lets what ends its jobs go.
func TestAnAnswerWithErrorsIsNoUnknownNode(t *testing.T) {
	for text, unknown := range map[string]bool{
		`{"nodes":[],"errors":[{"error_number":2018,"error":"Invalid node name specified"}]}`:        true,
		`{"nodes":[],"errors":[{"error_number":1800,"error":"Unable to contact slurm controller"}]}`: false,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		c := New(Options{URL: srv.URL, Version: "v0.0.42", Timeout: time.Minute})
		if _, err := c.Node(t.Context(), "n1"); err == nil || errors.Is(err, ErrUnknownNode) != unknown || errors.Is(err, ErrProtocol) == unknown {
			t.Errorf("%s: %v", text, err)
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
