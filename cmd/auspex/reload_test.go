package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api/access"
	"auspex/internal/certtest"
	"auspex/internal/config"
	"auspex/internal/store/sqldb"
	"auspex/internal/waittest"
)

// site is a folder with a configuration and the files that it names, and an
// Auspex that runs on it.
type site struct {
	token    string // of an admin
	dir, url string
	hup      chan struct{}
	client   http.Client
}

const (
	siteConfig = `
data: DIR/data
site: dc1
secrets: DIR/secrets.yaml
inventory: {file: DIR/topology.json}
store: {clickhouse: "off"}
detect: {rules: {builtin: false, files: [DIR/rules.yml]}}
collectors: {kmsg: {}}
api: {listen: 127.0.0.1:0}
`
	siteRules = "groups:\n- name: g\n  rules:\n  - {alert: First, expr: vector(1) > 2}\n"
	siteFleet = `{"version": 1, "resources": [{"id": "dc1", "kind": "site"}, {"id": "s1", "kind": "server", "parent": "dc1"}], "links": []}`
)

func (s *site) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(filepath.Join(s.dir, name)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(strings.ReplaceAll(text, "DIR", s.dir)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func startSite(t *testing.T) *site {
	t.Helper()
	s := &site{dir: t.TempDir(), hup: make(chan struct{})}
	s.start(t, siteConfig)
	return s
}

func (s *site) start(t *testing.T, text string) {
	t.Helper()
	s.write(t, "auspex.yaml", text)
	s.write(t, "rules.yml", siteRules)
	s.write(t, "topology.json", siteFleet)
	s.write(t, "secrets.yaml", "bmc: {user: a, password: b}\n")
	load := func() (Config, error) {
		c := DefaultConfig()
		return c, config.Load(config.Source{Files: []string{filepath.Join(s.dir, "auspex.yaml")}}, &c)
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, cfg, RunOptions{Out: in, Err: io.Discard, Load: load, Reload: s.hup, Grace: time.Minute})
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v: %v", err, <-done)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	s.url, _, _ = strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "ready ")), "#")
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	db, err := sqldb.Open(t.Context(), cfg.Store.SQL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if s.token, _, err = access.New(db, time.Hour).CreateToken(t.Context(), "test", "reloads", access.RoleAdmin, "", 0); err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "it is ready", func() bool { // the address is printed before the last parts run
		status, _ := s.get(t, "-/ready")
		return status == http.StatusOK
	})
}

func (s *site) ask(t *testing.T, method, path string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

func (s *site) get(t *testing.T, path string) (int, []byte) {
	t.Helper()
	return s.ask(t, http.MethodGet, path)
}

// metrics returns the lines of /metrics with a prefix.
func (s *site) metrics(t *testing.T, prefix string) []string {
	t.Helper()
	_, body := s.get(t, "metrics")
	return slices.DeleteFunc(strings.Split(string(body), "\n"), func(l string) bool { return !strings.HasPrefix(l, prefix) })
}

type reloaded struct {
	Code, Detail  string
	Applied, Read []string
	NeedsRestart  []string `json:"needs_restart"`
}

func (s *site) reload(t *testing.T) (int, reloaded) {
	t.Helper()
	status, body := s.ask(t, http.MethodPost, "-/reload")
	var r reloaded
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return status, r
}

func TestReloadTakesOverWhatItCan(t *testing.T) {
	s := startSite(t)
	status, r := s.reload(t)
	slices.Sort(r.Read)
	if d := cmp.Diff(reloaded{Applied: []string{}, NeedsRestart: []string{}, Read: []string{"collectors", "correlator", "fault records", "inventory", "log", "rules", "secrets", "unread servers"}}, r); status != 200 || d != "" {
		t.Errorf("nothing has changed: %d %s", status, d)
	}
	s.write(t, "rules.yml", siteRules+"- name: h\n  rules:\n  - {alert: Second, expr: vector(1) > 2}\n")
	s.write(t, "topology.json", strings.Replace(
		siteFleet, `{"id": "s1"`, `{"id": "s0", "kind": "server", "parent": "dc1", "attrs": {"kmsg_path": "/nowhere"}}, {"id": "s1"`, 1,
	))
	s.write(
		t, "auspex.yaml",
		strings.NewReplacer("127.0.0.1:0", "127.0.0.1:1", "kmsg: {}", "kmsg: {}, dcgmexporter: {interval: 9s}").Replace(siteConfig)+"log: {level: error}\ncontrol: {mode: enforce}\n",
	)
	status, r = s.reload(t)
	if status != 200 || !slices.Contains(r.Applied, "collectors.dcgmexporter.interval") || !slices.Contains(r.Applied, "log.level") {
		t.Errorf("%d %+v", status, r)
	}
	if d := cmp.Diff([]string{"api.listen", "control.mode"}, r.NeedsRestart); d != "" {
		t.Error(d)
	}
	if got := s.metrics(t, "auspex_inventory_resources "); !slices.Equal(got, []string{"auspex_inventory_resources 3"}) {
		t.Errorf("the inventory: %v", got)
	}
	if got := s.metrics(t, `auspex_collectors_targets{collector="kmsg"}`); !slices.Equal(
		got, []string{`auspex_collectors_targets{collector="kmsg"} 1`},
	) {
		t.Errorf("targets: %v", got)
	}
	if got := s.metrics(t, "auspex_detect_prometheus_rule_group_rules{"); len(got) != 2 {
		t.Errorf("rule groups: %v", got)
	}
	s.hup <- struct{}{}
	s.hup <- struct{}{} // taken when the first is done
	if got := s.metrics(t, `auspex_config_reloads_total{result="success"}`); len(got) != 1 || strings.HasSuffix(got[0], " 2") {
		t.Errorf("a signal was not counted: %v", got)
	}
}

func TestReloadShowsANewCertificateAndKeepsTheOldOneWhereItIsBad(t *testing.T) {
	s := &site{dir: t.TempDir(), hup: make(chan struct{})}
	install := func(certFile, keyFile string) {
		t.Helper()
		for name, from := range map[string]string{"tls.crt": certFile, "tls.key": keyFile} {
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			s.write(t, name, string(b))
		}
	}
	trust := func(a *certtest.Authority) {
		s.client.CloseIdleConnections()
		s.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool, MinVersion: tls.VersionTLS12}}
	}
	t.Cleanup(func() { s.client.CloseIdleConnections() })
	a, b := certtest.New(t), certtest.New(t)
	soon := time.Now().Add(time.Hour)
	old, next := a.Issue(t, soon, "127.0.0.1"), b.Issue(t, soon, "127.0.0.1")
	install(old.CertFile, old.KeyFile)
	trust(a)
	s.start(t, strings.Replace(siteConfig, "127.0.0.1:0", "127.0.0.1:0, tls: {cert_file: DIR/tls.crt, key_file: DIR/tls.key}", 1))
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatalf("address %s", s.url)
	}
	install(next.CertFile, old.KeyFile)
	if status, r := s.reload(t); status != 422 || !strings.Contains(r.Detail, "tls.key") {
		t.Errorf("the key of another certificate: %d %+v", status, r)
	}
	trust(a) // a new connection
	if status, _ := s.get(t, "-/ready"); status != 200 {
		t.Errorf("after it: %d", status)
	}
	install(next.CertFile, next.KeyFile)
	if status, r := s.reload(t); status != 200 || !slices.Contains(r.Read, "certificate") {
		t.Errorf("a new certificate: %d %+v", status, r)
	}
	trust(b)
	if status, _ := s.get(t, "-/ready"); status != 200 {
		t.Errorf("with it: %d", status)
	}
}

func TestReloadOfABadFileChangesNothingAndSaysWhere(t *testing.T) {
	s := startSite(t)
	before := s.metrics(t, "auspex_config_last_reload_success_timestamp_seconds")
	for _, tc := range []struct{ name, text, want string }{
		{"auspex.yaml", siteConfig + "colectors: {}\n", `auspex.yaml:10: unknown key "colectors"; did you mean "collectors"?`},
		{"auspex.yaml", strings.Replace(siteConfig, "127.0.0.1:0", "nowhere", 1), "auspex.yaml:9: api: listen: "},
		{"rules.yml", siteRules + "  - {alert: Third, expr: 'sum('}\n", "rules.yml: 5:"},
		{"secrets.yaml", "bmc:\n  user: a\nother: hunter2\n", "secrets.yaml:3: not YAML of the form"},
		{"topology.json", "{\n \"resources\": [,]\n}", "topology.json:2: "},
		{"topology.json", `{"version": 1, "resources": [{"id": "dc1", "kind": "site"}]}`, "1 of its 2 resources would be removed"},
		{"records/leak.yaml", "fault: 3\nknds: [gpu]\n", `leak.yaml:2: knds: unknown key; did you mean "kinds"?`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.write(t, "secrets.yaml", "bmc: {user: a, password: b}\n")
			s.write(t, "auspex.yaml", siteConfig+"log: {level: debug}\n")
			s.write(t, "rules.yml", siteRules+"- name: h\n  rules:\n  - {alert: Second, expr: vector(1) > 2}\n")
			s.write(t, "topology.json", strings.Replace(siteFleet, `{"id": "s1"`, `{"id": "s2", "kind": "server"}, {"id": "s1"`, 1))
			if tc.name == "records/leak.yaml" {
				s.write(t, "auspex.yaml", siteConfig+"correlator: {faults: [DIR/records]}\n")
			}
			s.write(t, tc.name, tc.text)
			status, r := s.reload(t)
			if status != 422 || r.Code != "bad_configuration" || !strings.Contains(r.Detail, tc.want) || strings.Contains(r.Detail, "hunter2") {
				t.Errorf("%d %+v, want %q", status, r, tc.want)
			}
			if got := s.metrics(t, "auspex_detect_prometheus_rule_group_rules{"); len(got) != 1 {
				t.Errorf("rules have changed: %v", got)
			}
			if got := s.metrics(t, "auspex_inventory_resources "); !slices.Equal(got, []string{"auspex_inventory_resources 2"}) {
				t.Errorf("the inventory has changed: %v", got)
			}
			if status, _ := s.get(t, "-/ready"); status != 200 {
				t.Errorf("not ready any more: %d", status)
			}
		})
	}
	for prefix, want := range map[string]string{
		`auspex_config_reloads_total{result="failure"}`: " 7", "auspex_config_last_reload_successful": " 0",
	} {
		if got := s.metrics(t, prefix); len(got) != 1 || !strings.HasSuffix(got[0], want) {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if after := s.metrics(t, "auspex_config_last_reload_success_timestamp_seconds"); !slices.Equal(before, after) {
		t.Errorf("the last success moved: %v %v", before, after)
	}
}

func TestAStartKeepsTheInventoryThatItsFileWouldTakeAway(t *testing.T) {
	s := &site{dir: t.TempDir(), hup: make(chan struct{})}
	var before strings.Builder
	before.WriteString(`{"version": 1, "resources": [{"id": "dc1", "kind": "site"}`)
	for i := range 30 {
		fmt.Fprintf(&before, `, {"id": "s%d", "kind": "server", "parent": "dc1"}`, i)
	}
	s.write(t, "before.json", before.String()+"]}")
	cfg := DefaultConfig()
	cfg.Store.SQL = filepath.Join(s.dir, "data", "auspex.db")
	if err := ImportInventory(
		t.Context(), cfg, filepath.Join(s.dir, "before.json"), ImportOptions{}, nil, io.Discard, io.Discard,
	); err != nil {
		t.Fatal(err)
	}
	s.start(t, siteConfig)
	if got := s.metrics(t, "auspex_inventory_resources "); !slices.Equal(got, []string{"auspex_inventory_resources 31"}) {
		t.Errorf("the inventory: %v", got)
	}
}
