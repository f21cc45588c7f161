package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A hang-up signal and POST /-/reload read the same files; a bad one is told by
// its place, and the process lives on with what it had.
func TestReloadBySignalAndByRequest(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	file := filepath.Join(t.TempDir(), "auspex.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("store: {clickhouse: \"off\"}\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: warn}\n")
	p := launch(t, dir, "--config", file)
	p.ready()
	reloads := func(result string, n int) func() error {
		return func() error {
			text, err := p.page("metrics")
			if err != nil {
				return err
			}
			return has(text, fmt.Sprintf("auspex_config_reloads_total{result=%q} %d\n", result, n))
		}
	}
	p.await("the process to be ready", func() error { _, err := p.page("-/ready"); return err })
	hangUp := func() {
		t.Helper()
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {level: info}\ncontrol: {mode: enforce}\n")
	hangUp()
	p.await("the reload", reloads("success", 1))
	p.await("what needs a restart", func() error { return has(p.err.String(), "control.mode") })
	write("log: {volume: info}\n")
	hangUp()
	p.await("the failure", reloads("failure", 1))
	p.await("the place of the mistake", func() error { return has(p.err.String(), file+":2: unknown key") })
	made, err := command(t, "token", "create", "reloads", "--role", "admin", "--data", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	post := func(token string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"-/reload", http.NoBody)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		return http.DefaultClient.Do(req)
	}
	refused, err := post("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = refused.Body.Close() }()
	if refused.StatusCode != http.StatusUnauthorized {
		t.Errorf("this machine without a token: %d", refused.StatusCode)
	}
	resp, err := post(strings.TrimSpace(string(made)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusUnprocessableEntity ||
		!strings.Contains(string(body), file+":2: unknown key") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	write("")
	again, err := post(strings.TrimSpace(string(made)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Body.Close() }()
	var r struct {
		Applied []string `json:"applied"`
		Restart []string `json:"needs_restart"`
	}
	if err := json.NewDecoder(again.Body).Decode(&r); err != nil || !slices.Equal(r.Applied, []string{"log.level"}) || len(r.Restart) > 0 {
		t.Errorf("%v %+v", err, r)
	}
	p.interrupt()
}

// page returns a page outside of the API.
func (p *product) page(path string) (string, error) {
	resp, err := http.Get(p.url + path)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}
