package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/internal/config"
)

// alone is the configuration of one role with a data folder of its own.
func alone(t *testing.T, role string, set ...string) Config {
	t.Helper()
	cfg := DefaultConfig()
	if err := config.Load(config.Source{
		Set: append([]string{"data=" + t.TempDir(), "site=dc1", "store.clickhouse=off", "roles=[" + role + "]"}, set...),
	}, &cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestARoleAloneIsReadyAndServesItsMetricsAndHealth(t *testing.T) {
	for _, role := range []string{RoleCollect, RoleControl, RoleCorrelate} {
		t.Run(role, func(t *testing.T) {
			cfg := alone(t, role)
			out, in := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- Run(ctx, cfg, RunOptions{Out: in, Err: io.Discard, Grace: time.Minute})
				_ = in.Close()
			}()
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("%v: %v", err, <-done)
			}
			go func() { _, _ = io.Copy(io.Discard, out) }()
			url := strings.TrimSpace(strings.TrimPrefix(line, "ready "))
			if !strings.HasPrefix(line, "ready http://127.0.0.1:") {
				t.Errorf("line %q", line)
			}
			get := func(path string) (int, string) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = res.Body.Close() }()
				body, _ := io.ReadAll(res.Body)
				return res.StatusCode, string(body)
			}
			if status, body := get("metrics"); status != http.StatusOK || !strings.Contains(body, "auspex_build_info{") ||
				strings.Contains(body, "auspex_learn_edge_proposals_open ") != (role == RoleCorrelate) {
				t.Errorf("metrics: %d", status)
			}
			for _, p := range []string{"-/ready", "-/healthy"} {
				if status, body := get(p); status != http.StatusOK {
					t.Errorf("%s: %d %s", p, status, body)
				}
			}
			for _, p := range []string{"debug/pprof/heap", "", "api/v1/incidents", "-/reload"} {
				if status, _ := get(p); status != http.StatusNotFound {
					t.Errorf("%q: %d", p, status)
				}
			}
			http.DefaultClient.CloseIdleConnections()
			text, err := os.ReadFile(filepath.Join(cfg.Data, "run.json"))
			if err != nil {
				t.Fatal(err)
			}
			var f runFile
			if err := json.Unmarshal(text, &f); err != nil || f.URL != url || f.PID != os.Getpid() || f.Addresses["metrics"] != url+"metrics" ||
				len(f.Roles) != 1 || f.Token != "" {
				t.Errorf("run.json: %s %v", text, err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnAddressThatIsTakenIsOneSentence(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	err = Run(
		t.Context(), alone(t, RoleControl, "metrics.listen="+taken.Addr().String()),
		RunOptions{Out: io.Discard, Err: io.Discard, Grace: time.Minute},
	)
	if want := "listen on " + taken.Addr().String() + ": the address is in use; choose another with metrics.listen"; err == nil ||
		!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestMetricsBeyondLoopbackAreOpenOnlyWhereSomebodySaysSo(t *testing.T) {
	for listen, want := range map[string]bool{
		"127.0.0.1:9464": true, "[::1]:0": true, "localhost:9464": true, "0.0.0.0:9464": false, ":9464": false, "10.0.0.1:9464": false,
		"nonsense": false,
	} {
		c := DefaultConfig().Metrics
		c.Listen = listen
		if err := c.Validate(); (err == nil) != want {
			t.Errorf("%s: %v", listen, err)
		}
		c.Open = true
		if err := c.Validate(); (err == nil) != (listen != "nonsense") {
			t.Errorf("%s, open: %v", listen, err)
		}
	}
}
