package api_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/internal/certtest"
	"auspex/schemas"
)

// secure starts a console with a certificate, and a client that trusts it.
func secure(t *testing.T, options ...option) (*world, *certtest.Authority, certtest.Leaf) {
	t.Helper()
	a := certtest.New(t)
	l := a.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	w := start(t, true, append(options, func(c *api.Config, _ *api.Deps) {
		c.TLS = api.TLSConfig{CertFile: l.CertFile, KeyFile: l.KeyFile}
	})...)
	w.client = trusting(t, a.Pool)
	return w, a, l
}

func trusting(t *testing.T, pool *x509.CertPool) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Timeout: time.Minute, Transport: tr}
}

func TestOverTLSThePageStaysThere(t *testing.T) {
	w, _, _ := secure(t)
	if !strings.HasPrefix(w.base, "https://127.0.0.1:") {
		t.Fatalf("address %s", w.base)
	}
	_, code, _ := strings.Cut(w.login(t, "on-call", access.RoleOperator), "#login=")
	a := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"code":"`+code+`"}`))
	cookie, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	if !cookie.Secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie: %+v", cookie)
	}
	for _, path := range []string{"", "api/v1/me", "api/v1/nowhere", "-/healthy"} {
		a := w.send(t, http.MethodGet, path, "", func(r *http.Request) { r.AddCookie(cookie) })
		if got := a.header.Get("Strict-Transport-Security"); !strings.HasPrefix(got, "max-age=") {
			t.Errorf("/%s: %d, Strict-Transport-Security %q", path, a.status, got)
		}
	}
	old := trusting(t, nil)
	old.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11} //nolint:gosec // what must be refused
	if res, err := old.Get(w.base); err == nil {                                                                          //nolint:noctx // the client has a bound
		_ = res.Body.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

func TestOverTLSARefusalIsHeardWhileTheBodyIsSent(t *testing.T) {
	w, a, _ := secure(t)
	large := strings.Repeat("x", 24<<20)
	for range 10 {
		if a := w.send(t, http.MethodPost, "api/v1/login", "", body(large)); a.status != http.StatusRequestEntityTooLarge {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	t.Run("curl", func(t *testing.T) {
		curl, err := exec.LookPath("curl")
		if err != nil {
			if os.Getenv("AUSPEX_E2E") != "" {
				t.Fatal(err)
			}
			t.Skip("curl is not installed; Go's client alone has tried it")
		}
		file := filepath.Join(t.TempDir(), "large")
		if err := os.WriteFile(file, []byte(large), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, expect := range []string{"Expect:", "Expect: 100-continue"} {
			out, err := exec.CommandContext(t.Context(), curl, "--silent", "--show-error", "--max-time", "60", "--cacert", a.File, "--header", expect,
				"--data-binary", "@"+file, "--output", "-", "--write-out", " %{http_version} %{http_code}", w.base+"api/v1/login").CombinedOutput()
			if err != nil || !bytes.HasSuffix(out, []byte(" 1.1 413")) || !bytes.Contains(out, []byte("too_large")) {
				t.Errorf("with %q: %v\n%s", expect, err, out)
			}
		}
	})
}

func TestANewCertificateDisturbsNoStream(t *testing.T) {
	w, old, _ := secure(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+"api/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens[access.RoleViewer])
	res, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	until := func(want string) {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == want {
				return
			}
		}
		t.Fatalf("the stream ended before %q: %v", want, lines.Err())
	}
	until("event: hello")

	next := certtest.New(t)
	leaf := next.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	other := next.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	for name, c := range map[string]api.TLSConfig{
		"the key of another certificate": {CertFile: leaf.CertFile, KeyFile: other.KeyFile},
		"a key that is none":             {CertFile: leaf.CertFile, KeyFile: leaf.CertFile},
		"a key that is not there":        {CertFile: leaf.CertFile, KeyFile: filepath.Join(t.TempDir(), "none.key")},
	} {
		if _, err := w.PrepareTLS(t.Context(), c); err == nil || !strings.Contains(err.Error(), c.KeyFile) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if res, err := trusting(t, old.Pool).Get(w.base); err != nil { //nolint:noctx // the client has a bound
		t.Errorf("after refused certificates: %v", err)
	} else {
		_ = res.Body.Close()
	}

	use, err := w.PrepareTLS(t.Context(), api.TLSConfig{CertFile: leaf.CertFile, KeyFile: leaf.KeyFile})
	if err == nil {
		err = use(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if res, err := trusting(t, next.Pool).Get(w.base); err != nil { //nolint:noctx // the client has a bound
		t.Errorf("the new certificate is not shown: %v", err)
	} else {
		_ = res.Body.Close()
	}
	w.change(t, "a-314", schemas.ActionRunning, "")
	until("event: changed")
}

func TestACertificateThatCannotBeUsedEndsTheStart(t *testing.T) {
	w := start(t, false)
	a := certtest.New(t)
	one, two := a.Issue(t, time.Now().Add(time.Hour), "127.0.0.1"), a.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	cfg := api.DefaultConfig()
	cfg.Listen, cfg.TLS = "127.0.0.1:0", api.TLSConfig{CertFile: one.CertFile, KeyFile: two.KeyFile}
	s, err := api.New(cfg, w.deps(t))
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context(), func() { t.Error("ready without a certificate") })
	if err == nil || !strings.Contains(err.Error(), one.CertFile) || !strings.Contains(err.Error(), two.KeyFile) ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("error: %v", err)
	}
}
