package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/certtest"
	"auspex/internal/config"
	"auspex/internal/store/join"
	"auspex/internal/store/sqldb"
	"auspex/internal/waittest"
)

// A fleet that can only dial out is watched: its agents join with one token, stand where their
// serial numbers say, and are gone when the token is revoked.
func TestAFleetThatOnlyDialsOut(t *testing.T) {
	ca := certtest.New(t)
	leaf := ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s := &site{dir: t.TempDir(), hup: make(chan struct{})}
	s.write(t, "dial.yaml", fmt.Sprintf("dial: [{address: %q, ca_file: %s, token_file: DIR/token, retry: 200ms}]\n", addr, ca.File))
	s.write(t, "token", "not-made-yet\n")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Simulate(ctx, SimulateOptions{
			Dir: filepath.Join(s.dir, "sim"), Script: "none", Racks: 1, Servers: 2, Agents: true, Dial: filepath.Join(s.dir, "dial.yaml"),
		}, in)
		_ = in.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if _, err := out.Read(make([]byte, 256)); err != nil {
		t.Fatalf("%v: %v", err, <-done)
	}
	s.write(t, "secrets.yaml", "")
	const text = `
data: DIR/data
secrets: DIR/sim/secrets.yaml
inventory: {file: DIR/sim/topology.json}
store: {clickhouse: "off"}
tunnel: {listen: "ADDR", tls: {cert_file: CERT, key_file: KEY}}
collectors: {agent: {credential: sim, sample_interval: 1s}}
api: {listen: 127.0.0.1:0}
`
	s.start(t, strings.NewReplacer("ADDR", addr, "CERT", leaf.CertFile, "KEY", leaf.KeyFile).Replace(text))
	has := func(line string) {
		t.Helper()
		waittest.Until(t, func() error {
			name, _, _ := strings.Cut(line, " ")
			got := s.metrics(t, name)
			if slices.Contains(got, line) {
				return nil
			}
			return fmt.Errorf("want %s, have %s", line, strings.Join(got, ", "))
		})
	}
	waittest.For(t, "strangers are not refused", func() bool {
		return !strings.Contains(strings.Join(s.metrics(t, `auspex_tunnel_connections_total{result="refused"}`), ""), " 0")
	})
	db, err := sqldb.Open(t.Context(), filepath.Join(s.dir, "data", "auspex.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store := join.New(db, nil, nil)
	token, _, err := store.Create(t.Context(), "test", join.Spec{Name: "rack-1", Uses: 2})
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "token", token+"\n") // the agents see that it has changed
	has("auspex_tunnel_machines 2")
	has("auspex_tunnel_machines_unplaced 0")
	waittest.For(t, "nothing is read", func() bool {
		return strings.Contains(strings.Join(s.metrics(t, "auspex_collectors_samples_total"), "\n"), `collector="agent"`)
	})
	if err := store.Revoke(t.Context(), "test", "rack-1"); err != nil {
		t.Fatal(err)
	}
	has("auspex_tunnel_machines 0")
	has(`auspex_tunnel_connections_total{result="cut"} 2`)

	// Its certificate is read again.
	again := ca.Issue(t, time.Now().Add(2*time.Hour), "127.0.0.1")
	for from, to := range map[string]string{again.CertFile: leaf.CertFile, again.KeyFile: leaf.KeyFile} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if status, r := s.reload(t); status != http.StatusOK || !strings.Contains(strings.Join(r.Read, ","), "certificate for agents that dial in") {
		t.Errorf("reload: %d %+v", status, r)
	}
	if err := os.WriteFile(leaf.KeyFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, r := s.reload(t); status == http.StatusOK || !strings.Contains(r.Detail, "tunnel.tls.cert_file") {
		t.Errorf("reload of nonsense: %d %+v", status, r)
	}
}

func TestConfigCheckKnowsWhoDialsIn(t *testing.T) {
	ca := certtest.New(t)
	leaf := ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	s := &site{dir: t.TempDir()}
	s.write(t, "topology.json", `{"version": 1, "resources": [{"id": "s1", "kind": "server", "attrs": {"agent_address": "tunnel"}}], "links": []}`)
	for _, tc := range []struct{ name, tunnel, want string }{
		{"nobody can dial in", "", "agents cannot dial in here: set tunnel.listen"},
		{"no certificate", `{listen: "127.0.0.1:0"}`, "tunnel: tls: set cert_file and key_file"},
		{"a certificate that is not there", `{listen: "127.0.0.1:0", tls: {cert_file: /nowhere, key_file: /nowhere}}`, "tls.cert_file: open /nowhere"},
		{"all is well", fmt.Sprintf(`{listen: "127.0.0.1:0", tls: {cert_file: %s, key_file: %s}}`, leaf.CertFile, leaf.KeyFile), "collector agent: 1 targets"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "data: DIR/data\nstore: {clickhouse: \"off\"}\ninventory: {file: DIR/topology.json}\ncollectors: {agent: {}}\n"
			if tc.tunnel != "" {
				text += "tunnel: " + tc.tunnel + "\n"
			}
			s.write(t, "auspex.yaml", text)
			cfg := DefaultConfig()
			err := config.Load(config.Source{Files: []string{filepath.Join(s.dir, "auspex.yaml")}}, &cfg)
			var out bytes.Buffer
			if err == nil {
				err = Check(t.Context(), cfg, true, &out, io.Discard)
			}
			if got := fmt.Sprint(out.String(), err); !strings.Contains(got, tc.want) {
				t.Errorf("it says %s", got)
			}
		})
	}
}
