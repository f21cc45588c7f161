package instance

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/internal/certtest"
	"auspex/schemas"
)

const password = "s3cr3t-of-the-site"

// fleet is who asks: two servers, and what was audited.
type fleet struct {
	mu     sync.Mutex
	at     map[string]schemas.HardwareRecord // by address
	tokens map[string]schemas.HardwareRecord
	away   error
	read   []string
	now    time.Time
	log    bytes.Buffer
}

func (f *fleet) find(in map[string]schemas.HardwareRecord, key string) (schemas.HardwareRecord, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := in[key]
	if f.away == nil && !ok {
		return r, ErrUnknown
	}
	return r, f.away
}

func (f *fleet) At(_ context.Context, a netip.Addr) (schemas.HardwareRecord, error) {
	return f.find(f.at, a.String())
}

func (f *fleet) Bearer(_ context.Context, secret string) (schemas.HardwareRecord, error) {
	return f.find(f.tokens, secret)
}

func record(id, name, userData string, addresses ...string) schemas.HardwareRecord {
	return schemas.HardwareRecord{
		ID: id, Name: name, Model: "xe9680", Facts: []schemas.HardwareFact{{Fact: schemas.FactArchitecture, Value: schemas.ArchX86}},
		Interfaces: []schemas.HardwareInterface{{Boot: true, Addresses: addresses, DHCP: schemas.HardwareDHCP{MAC: "02:00:00:00:00:0a"}}},
		Disks:      []schemas.HardwareDisk{{Device: "/dev/nvme0n1", Boot: true}, {Device: "/dev/nvme1n1"}, {Serial: "S3"}},
		Metadata:   schemas.HardwareMetadata{Hostname: name, Site: "dc1", Labels: map[string]string{"team": "vision", "role": "train"}},
		Overrides:  schemas.HardwareOverrides{UserData: userData},
	}
}

const userData = "#cloud-config\nwrite_files:\n- {path: /etc/join, content: \"secret:join-token\"}\n# not-a-secret:here nor a secret: there\n"

func newFleet() *fleet {
	one := record("11111111-1111-4111-8111-111111111111", "gpu-1", userData, "127.0.0.1", "2001:db8::1")
	return &fleet{
		at:     map[string]schemas.HardwareRecord{"127.0.0.1": one, "192.0.2.7": record("2", "gpu-2", ""), "2001:db8::1": one, "192.0.2.8": record("3", "gpu-3", "secret:bmc")},
		tokens: map[string]schemas.HardwareRecord{"t0k3n": record("2", "gpu-2", "#!/bin/sh\n")}, now: time.Unix(1_700_000_000, 0),
	}
}

func (f *fleet) server(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen, cfg.Secrets, cfg.Proxies = "127.0.0.1:0", []string{"join-token", "gone"}, []string{"198.51.100.0/24"}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, Deps{
		Log: slog.New(slog.NewTextHandler(&f.log, nil)), Metrics: prometheus.NewRegistry(), Records: f,
		Now: func() time.Time { return f.now },
		Secret: func(_ context.Context, name string) (string, string, error) {
			if name != "join-token" && name != "bmc" {
				return "", "", errors.New("no such credential")
			}
			return "", password, nil
		},
		Read: func(_ context.Context, server, how string) error {
			f.read = append(f.read, server+" "+how)
			return f.away
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type call struct {
	method, path, from string
	header             map[string]string
}

func (s *Server) call(c call) *httptest.ResponseRecorder {
	if c.method == "" {
		c.method = http.MethodGet
	}
	r := httptest.NewRequest(c.method, c.path, nil)
	r.RemoteAddr = c.from + ":40000"
	if strings.Contains(c.from, ":") {
		r.RemoteAddr = "[" + c.from + "]:40000"
	}
	for k, v := range c.header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// A server is told of itself, in EC2's tree and as Hegel answers, in both versions.
func TestAServerIsToldOfItself(t *testing.T) {
	f := newFleet()
	s := f.server(t, nil)
	for path, want := range map[string]string{
		"/":                             "2009-04-04\nlatest",
		"/latest/":                      "dynamic/\nmeta-data/\nuser-data",
		"/2009-04-04/meta-data/":        "facility\nhostname\ninstance-id\ninstance-type\nipv6\nlocal-hostname\nlocal-ipv4\nmac\nplacement/\nplan\ntags",
		"/latest/meta-data":             "facility\nhostname\ninstance-id\ninstance-type\nipv6\nlocal-hostname\nlocal-ipv4\nmac\nplacement/\nplan\ntags",
		"/latest/meta-data/instance-id": "11111111-1111-4111-8111-111111111111",
		"/2009-04-04/meta-data/placement/availability-zone": "dc1",
		"/latest/meta-data/hostname/":                       "gpu-1",
		"/latest/meta-data/local-ipv4":                      "127.0.0.1",
		"/latest/meta-data/ipv6":                            "2001:db8::1",
		"/latest/meta-data/tags":                            "role=train\nteam=vision",
		"/latest/user-data":                                 strings.ReplaceAll(userData, "secret:join-token", password),
		"/metadata": `{"metadata":{"instance":{"id":"11111111-1111-4111-8111-111111111111","hostname":"gpu-1","tags":["role=train","team=vision"],` +
			`"storage":{"disks":[{"device":"/dev/nvme0n1"},{"device":"/dev/nvme1n1"}]}},"facility":{"facility_code":"dc1","plan_slug":"xe9680"}}}`,
	} {
		for _, from := range []string{"127.0.0.1", "::ffff:127.0.0.1", "2001:db8::1"} {
			w := s.call(call{path: path, from: from})
			if d := cmp.Diff(want, w.Body.String()); w.Code != http.StatusOK || d != "" {
				t.Errorf("%s from %s: %d\n%s", path, from, w.Code, d)
			}
			if w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s may be kept", path)
			}
		}
	}
	if len(f.read) != 3 || f.read[0][:len("gpu-1 from ")] != "gpu-1 from " || strings.Contains(strings.Join(f.read, ""), password) {
		t.Errorf("audited: %q", f.read)
	}
	for path, code := range map[string]int{
		"/latest/meta-data/public-keys": 404, "/1.0/meta-data/": 404, "/latest/meta-data/hostname/x": 404, "/2021-03-23/meta-data/instance-id": 404,
		"/latest/../../etc/passwd": 404, "/latest/api/token": 404, "/metadata/": 404,
	} {
		if w := s.call(call{path: path, from: "127.0.0.1"}); w.Code != code {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := s.call(call{path: "/latest/user-data", from: "192.0.2.7"}); w.Code != 404 {
		t.Errorf("no user data: %d", w.Code)
	}
	if w := s.call(call{method: http.MethodPost, path: "/latest/user-data", from: "127.0.0.1"}); w.Code != 405 || len(f.read) != 3 {
		t.Errorf("POST: %d", w.Code)
	}
}

// Whoever is no server is told the same at every path, whatever there is.
func TestStrangersLearnNothing(t *testing.T) {
	f := newFleet()
	s := f.server(t, func(c *Config) { c.Rate = 0 })
	for _, path := range []string{
		"/", "/latest/user-data", "/latest/meta-data/", "/metadata", "/nothing", "/latest/meta-data/instance-id", "/t/", "/t/t0k3", "/t/t0k3/latest/user-data", "/t//metadata",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodHead} {
			want, with := http.StatusNotFound, map[string]string{}
			if strings.HasPrefix(path, "/t/") {
				want = http.StatusUnauthorized
			}
			for range 2 {
				w := s.call(call{method: method, path: path, from: "203.0.113.9", header: with})
				if w.Code != want || w.Body.String() != http.StatusText(want)+"\n" || w.Header().Get("Allow") != "" {
					t.Errorf("%s %s with %v: %d %q", method, path, with, w.Code, w.Body)
				}
				want, with = http.StatusUnauthorized, map[string]string{"Authorization": "Bearer nobodys"}
			}
		}
	}
	if len(f.read) != 0 {
		t.Error(f.read)
	}
}

// A token is a server's wherever it asks from, as a header or in the path, and outranks the address.
func TestATokenSaysWhichServerAsks(t *testing.T) {
	f := newFleet()
	s := f.server(t, func(c *Config) { c.ByAddress = false })
	bearer := map[string]string{"Authorization": "Bearer t0k3n"}
	for _, c := range []call{
		{path: "/latest/meta-data/hostname", from: "203.0.113.9", header: bearer},
		{path: "/t/t0k3n/latest/meta-data/hostname", from: "203.0.113.9"},
		{path: "/t/t0k3n/2009-04-04/meta-data/hostname", from: "127.0.0.1"},
	} {
		if w := s.call(c); w.Code != http.StatusOK || w.Body.String() != "gpu-2" {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
	if w := s.call(call{path: "/latest/user-data", from: "203.0.113.9", header: bearer}); w.Body.String() != "#!/bin/sh\n" || !slices.Equal(f.read, []string{"gpu-2 by its token from 203.0.113.9"}) {
		t.Errorf("%s %q", w.Body, f.read)
	}
	if w := s.call(call{path: "/latest/meta-data/hostname", from: "127.0.0.1"}); w.Code != http.StatusNotFound {
		t.Errorf("an address counts where it must not: %d", w.Code)
	}
}

// X-Forwarded-For counts from our proxies alone, and who forwards for others is nobody's server.
func TestWhoseForwardedAddressCounts(t *testing.T) {
	f := newFleet()
	s := f.server(t, nil)
	for _, tc := range []struct {
		from, forwarded string
		want            int
	}{
		{"198.51.100.1", "192.0.2.7", 200},
		{"198.51.100.1", "127.0.0.1, 192.0.2.7", 200}, // what the client said itself stands before
		{"198.51.100.1", "192.0.2.7, 198.51.100.2", 200},
		{"198.51.100.1", "192.0.2.7, 203.0.113.9", 404},
		{"198.51.100.1", "", 404},
		{"198.51.100.1", "x", 404},
		{"198.51.100.1", "192.0.2.7,", 404},
		{"198.51.100.1", "198.51.100.2", 404},
		{"203.0.113.9", "192.0.2.7", 404},
		{"192.0.2.7", "192.0.2.7", 404},
		{"192.0.2.7", "", 200},
	} {
		h := map[string]string{}
		if tc.forwarded != "" {
			h["X-Forwarded-For"] = tc.forwarded
		}
		w := s.call(call{path: "/latest/meta-data/hostname", from: tc.from, header: h})
		if w.Code != tc.want || tc.want == 200 && w.Body.String() != "gpu-2" {
			t.Errorf("%s for %q: %d %s", tc.from, tc.forwarded, w.Code, w.Body)
		}
	}
	if w := s.call(call{path: "/", from: "192.0.2.7", header: map[string]string{"Forwarded": "for=192.0.2.7"}}); w.Code != 404 {
		t.Errorf("Forwarded: %d", w.Code)
	}
}

// A session token holds for the server that asked for it, until its time is over.
func TestSessionTokens(t *testing.T) {
	f := newFleet()
	s := f.server(t, nil)
	put := func(seconds string) *httptest.ResponseRecorder {
		return s.call(call{method: http.MethodPut, path: "/latest/api/token", from: "127.0.0.1", header: map[string]string{lifetimeHeader: seconds}})
	}
	for _, bad := range []string{"", "0", "-1", "21601", "x"} {
		if w := put(bad); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, w.Code)
		}
	}
	w := put("60")
	token := w.Body.String()
	if w.Code != http.StatusOK || w.Header().Get(lifetimeHeader) != "60" || token == "" {
		t.Fatal(w.Code, token)
	}
	get := func(from, token string) int {
		return s.call(call{path: "/latest/meta-data/hostname", from: from, header: map[string]string{sessionHeader: token}}).Code
	}
	if got := []int{get("127.0.0.1", token), get("192.0.2.7", token), get("127.0.0.1", token+"A"), get("127.0.0.1", "AAAA"), get("127.0.0.1", "")}; !slices.Equal(got, []int{200, 401, 401, 401, 200}) {
		t.Error(got)
	}
	f.now = f.now.Add(time.Minute)
	if got := get("127.0.0.1", token); got != http.StatusUnauthorized {
		t.Error("it holds for longer than its time", got)
	}
}

// A secret is handed out only where the configuration names it, is in no log, and what cannot be
// audited is not handed out.
func TestSecretsOfUserData(t *testing.T) {
	f := newFleet()
	s := f.server(t, nil)
	f.at["192.0.2.9"] = record("4", "gpu-4", "a: secret:gone\n")
	f.at["192.0.2.10"] = record("5", "gpu-5", "a: secret:join-token. b=\"secret:join-token\"")
	f.at["192.0.2.11"] = record("6", "gpu-6", strings.Repeat("secret:join-token ", secretWords+1))
	for from, want := range map[string]int{"192.0.2.8": 503, "192.0.2.9": 503, "192.0.2.10": 200, "192.0.2.11": 503} {
		if w := s.call(call{path: "/latest/user-data", from: from}); w.Code != want || want != 200 && w.Body.String() != "Service Unavailable\n" {
			t.Errorf("%s: %d %s", from, w.Code, w.Body)
		} else if want == 200 && w.Body.String() != "a: "+password+". b=\""+password+"\"" {
			t.Errorf("%s: %q", from, w.Body)
		}
	}
	if len(f.read) != 1 {
		t.Errorf("what was not handed out was audited: %q", f.read)
	}
	f.away = errors.New("the store is away")
	s.deps.Records = &fleet{at: f.at}
	if w := s.call(call{path: "/latest/user-data", from: "127.0.0.1"}); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), password) {
		t.Errorf("without the audit: %d %s", w.Code, w.Body)
	}
	said := f.log.String()
	if strings.Contains(said, password) || strings.Contains(said, "cloud-config") || !strings.Contains(said, "secret:bmc") || !strings.Contains(said, "without the audit") {
		t.Error(said)
	}
	s.deps.Records = f
	if w := s.call(call{path: "/latest/meta-data/", from: "127.0.0.1"}); w.Code != http.StatusServiceUnavailable {
		t.Errorf("the store is away: %d", w.Code)
	}
}

// One source, and one server's user data, is answered at its rate; what came of a request is counted.
func TestFloodsAreBounded(t *testing.T) {
	f := newFleet()
	s := f.server(t, func(c *Config) { c.Rate = 4 })
	codes := map[int]int{}
	for range 100 {
		codes[s.call(call{path: "/latest/meta-data/", from: "203.0.113.9"}).Code]++
		codes[s.call(call{path: "/latest/user-data", from: "127.0.0.1"}).Code]++
	}
	if d := cmp.Diff(map[int]int{404: 40, 200: 30, 429: 130}, codes); d != "" {
		t.Error(d)
	}
	if len(f.read) != dataBurst {
		t.Errorf("%d readings were audited", len(f.read))
	}
	w := s.call(call{path: "/", from: "203.0.113.9"})
	if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Error(w.Code, w.Header())
	}
	for labels, want := range map[[2]string]float64{{pathUnknown, resultUnknown}: 40, {pathUserData, resultAnswered}: 30, {pathUserData, resultFlood}: 10, {pathUnknown, resultFlood}: 121} {
		if got := testutil.ToFloat64(s.asked.WithLabelValues(labels[0], labels[1])); got != want {
			t.Errorf("%v: %g", labels, got)
		}
	}
}

func TestConfigurationsThatCannotWork(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"proxies":       func(c *Config) { c.Proxies = []string{"a"} },
		"rate":          func(c *Config) { c.Rate = -1 },
		"tls":           func(c *Config) { c.TLS.CertFile = "x" },
		"listen":        func(c *Config) { c.Listen = "nowhere" },
		"tls.cert_file": func(c *Config) { c.TLS = TLS{"no.pem", "no.key"} },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if _, err := New(cfg, Deps{}); err == nil || !strings.HasPrefix(err.Error(), want+":") {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// serve runs a service on loopback and returns its URL.
func (s *Server) serve(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	addr, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(a net.Addr) { addr <- a.String() }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-addr:
		return a
	case err := <-done:
		t.Fatal(err)
		return ""
	}
}

// Whoever holds connections open does not keep others out.
func TestOneAddressHasFewConnections(t *testing.T) {
	addr := newFleet().server(t, nil).serve(t)
	var held []net.Conn
	for range maxOfOne + 1 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		held = append(held, c)
	}
	if err := held[maxOfOne].SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := held[maxOfOne].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it holds one more: %v", err)
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}}
	client := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNotFound { // a stranger, but answered
		t.Error(resp.StatusCode, err)
	}
}

// Over TLS the certificate can be replaced while it runs.
func TestOverTLS(t *testing.T) {
	ca := certtest.New(t)
	first, second := ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1"), ca.Issue(t, time.Now().Add(2*time.Hour), "127.0.0.1")
	s := newFleet().server(t, func(c *Config) { c.TLS = TLS{first.CertFile, first.KeyFile} })
	url := "https://" + s.serve(t) + "/latest/meta-data/hostname"
	ask := func() time.Time {
		t.Helper()
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil || string(body) != "gpu-1" {
			t.Fatalf("%s %v", body, err)
		}
		return resp.TLS.PeerCertificates[0].NotAfter
	}
	before := ask()
	pair, err := (&TLS{second.CertFile, second.KeyFile}).Load()
	if err != nil {
		t.Fatal(err)
	}
	s.SetCertificate(pair)
	if !ask().After(before) {
		t.Error("it still shows the old certificate")
	}
}

// cloud-init's own EC2 data source finds what it needs: by address, by token, and with session tokens
// where it takes itself to be on AWS.
func TestCloudInitIsContent(t *testing.T) {
	path := os.Getenv("CLOUDINIT_PYTHONPATH")
	if path == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatal("CLOUDINIT_PYTHONPATH is not set: test/e2e.sh starts the peer and sets it")
		}
		t.Skip("CLOUDINIT_PYTHONPATH is not set: run `make e2e` to test against this peer")
	}
	f := newFleet()
	f.tokens["t0k3n"] = f.at["127.0.0.1"]
	s := f.server(t, nil)
	url := "http://" + s.serve(t)
	for name, tc := range map[string]struct {
		url, platform string
		session       bool
	}{
		"by its address":      {url, "unknown", false},
		"by its token":        {url + "/t/t0k3n", "unknown", false},
		"with session tokens": {url, "aws", true},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/crawl.py", tc.url, tc.platform)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+path)
			var said bytes.Buffer
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, said.Bytes())
			}
			var got struct {
				ID       string `json:"instance_id"`
				Hostname string
				Zone     string
				Version  string
				Metadata map[string]any
				UserData string `json:"user_data"`
				APIToken bool   `json:"api_token"`
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got.ID != "11111111-1111-4111-8111-111111111111" || got.Hostname != "gpu-1" || got.Zone != "dc1" || got.Version != "2009-04-04" || got.APIToken != tc.session {
				t.Errorf("%s", out)
			}
			if got.UserData != strings.ReplaceAll(userData, "secret:join-token", password) || got.Metadata["local-ipv4"] != "127.0.0.1" {
				t.Errorf("%s", out)
			}
			if said.Len() > 0 {
				t.Errorf("it complains: %s", said.Bytes())
			}
		})
	}
	t.Run("a stranger", func(t *testing.T) {
		f.mu.Lock()
		delete(f.at, "127.0.0.1")
		f.mu.Unlock()
		cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "testdata/crawl.py", url, "unknown")
		cmd.Env = append(os.Environ(), "PYTHONPATH="+path)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "the data source has found nothing") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
