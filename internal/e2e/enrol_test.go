package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"auspex/internal/certtest"
	"auspex/internal/enrol"
	"auspex/internal/waittest"
)

// A machine of which nobody knows dials in with a token, is proposed, accepted, read as a
// server of the inventory, over a kill of the product, and cut off when it is revoked.
func TestAMachineJoinsAndIsEnrolled(t *testing.T) {
	beside(t)
	dir, data := t.TempDir(), dataDir(t)
	auth := certtest.New(t)
	leaf := auth.Issue(t, time.Now().Add(time.Hour), "collector.example")
	addr := freeAddress(t)
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := put("auspex.yaml", fmt.Sprintf(`
roles: [collect, process, api]
store: {clickhouse: "off"}
tunnel: {listen: "%s", tls: {cert_file: %s, key_file: %s}}
collectors: {agent: {sample_interval: 1s}}
collect: {enrol: {interval: 1s}}
`, addr, leaf.CertFile, leaf.KeyFile))
	auspex := func(args ...string) string {
		t.Helper()
		cmd := command(t, append(args, "--config", config, "--data", data)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return string(out)
	}
	secret := strings.TrimSpace(auspex("join", "create", "image"))
	put("sys/class/dmi/id/product_serial", "SN777\n")
	put("sys/class/dmi/id/product_name", "DGXH100\n")
	bin := filepath.Join(dir, "auspex-agent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/auspex-agent").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	said := &waittest.Buffer{}
	agent := exec.CommandContext(t.Context(), bin, "--config", put("agent.yaml", fmt.Sprintf(`
data: %[1]s/agent
listen: ""
dial: [{address: "%[2]s", ca_file: %[3]s, server_name: collector.example, token_file: %[4]s, retry: 100ms}]
kernel: {disabled: true}
nvml: {disabled: true}
host: {sys: %[1]s/sys, interval: 1s}
`, dir, addr, auth.File, put("token", secret+"\n"))))
	agent.Stderr = said
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = agent.Process.Kill()
		_ = agent.Wait()
		if t.Failed() {
			t.Logf("the agent says:\n%s", tail(said.String()))
		}
	})
	p := launch(t, data, "--config", config)
	p.ready()
	var open enrol.Proposal
	p.await("a proposal", func() error {
		all, err := list[enrol.Proposal](p, "proposals")
		if err != nil || len(all) != 1 {
			return fmt.Errorf("%d proposals: %w", len(all), err)
		}
		open = all[0]
		return nil
	})
	if open.Conflicts != 0 || open.Known || open.State != enrol.Open {
		t.Fatalf("it proposes %+v", open)
	}
	p.kill()
	auspex("enrol", "accept", open.ID)
	p = launch(t, data, "--config", config)
	p.ready()
	samples := regexp.MustCompile(`(?m)^auspex_collectors_samples_total\{collector="agent"\} ([1-9]\d*)`)
	p.await("readings of it", func() error {
		var text []byte
		if err := p.get("metrics", &text); err != nil || !samples.Match(text) {
			return fmt.Errorf("none: %w", err)
		}
		return nil
	})
	if text := auspex("cmdb", "export"); !strings.Contains(text, `"agent_address": "tunnel"`) || !strings.Contains(text, `"serial": "SN777"`) {
		t.Errorf("the inventory has %s", text)
	}
	auspex("join", "revoke", "image")
	p.await("that it is cut off", func() error {
		if !strings.Contains(said.String(), "was revoked") {
			return errors.New("it was told nothing")
		}
		return nil
	})
	for _, text := range []string{said.String(), p.err.String()} {
		if strings.Contains(text, secret) {
			t.Error("a log has the token")
		}
	}
}
