package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"auspex/internal/certtest"
	"auspex/internal/sim"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// The fleet that dials in: so many servers, the one whose GPU hangs, and so many lines of their kernels beside.
const (
	diallers = 4
	hangs    = "gpu-r01-02"
	lines    = 45
)

// killScript is a GPU whose firmware hangs, and XIDs of programs on all servers before, meanwhile and after.
func killScript() string {
	var b strings.Builder
	b.WriteString("name: kills\nfaults:\n  - {at: 40s, kind: gpu_fails, target: " + hangs + "/gpu2}\n")
	for i := range lines {
		fmt.Fprintf(&b, "  - {at: %dms, kind: xid, code: 43, text: Reset channel %d, target: gpu-r01-0%d/gpu%d}\n",
			15_000+1500*i, i, 1+i%diallers, 4+i%4)
	}
	return b.String()
}

// Auspex is killed while agents are connected through the tunnel and one of them resets a GPU for it. Agents come back
// by themselves, what they have said is stored once, and the reset is done once and counts.
func TestKillsWhileAgentsHaveDialledIn(t *testing.T) {
	beside(t)
	dir, files := dataDir(t), t.TempDir()
	auth := certtest.New(t)
	leaf := auth.Issue(t, time.Now().Add(time.Hour), "collector.example")
	addr := freeAddress(t)
	made, err := command(t, "join", "create", "rack-1", "--uses", strconv.Itoa(diallers), "--data", dir).Output()
	if err != nil {
		t.Fatalf("make a join token: %v", err)
	}
	token := write(t, files, "token", string(made))
	fleet := command(t, "simulate", "--dir", filepath.Join(dir, "sim"), "--racks", "1", "--servers", strconv.Itoa(diallers), "--agents-alone",
		"--agents-dial", write(t, files, "dial.yaml", fmt.Sprintf(
			"dial: [{address: %q, ca_file: %s, server_name: collector.example, token_file: %s, retry: 200ms}]\n", addr, auth.File, token)),
		"--script", write(t, files, "script.yaml", killScript()), "--seed", "1")
	said := &waittest.Buffer{}
	fleet.Stdout, fleet.Stderr = said, said
	if err := fleet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fleet.Process.Kill(); _ = fleet.Wait() })
	shell := &product{t: t, done: make(chan struct{}), exit: new(error)}
	shell.await("the fleet is ready", func() error { return has(said.String(), "ready") })
	config := dialledConfig(t, dir, files, addr, leaf)

	machines := regexp.MustCompile(`(?m)^auspex_tunnel_machines ` + strconv.Itoa(diallers) + `$`)
	refused := regexp.MustCompile(`(?m)^auspex_tunnel_connections_total\{result="refused"\} ([1-9]\d*)`)
	start := func() *product {
		p := launch(t, dir, "--config", config)
		p.ready()
		p.await("all agents have dialled in", func() error {
			var text []byte
			if err := p.get("metrics", &text); err != nil {
				return err
			}
			if refused.Match(text) {
				return settled{errors.New("one was refused")}
			}
			if !machines.Match(text) {
				return errors.New("they have not")
			}
			return nil
		})
		return p
	}
	resets := func() (did []string) { did, _ = acts(output(t, dir), hangs); return did }

	p := start()
	p.await("the reset is under way", func() error {
		if len(resets()) == 0 {
			return errors.New("it has not begun")
		}
		return nil
	})
	before, err := p.rows("source = 'kmsg'")
	if err != nil {
		t.Error(err)
	}
	p.kill()
	if slices.Contains(resets(), "reset done") {
		t.Log("the kill came after the reset")
	}
	t.Logf("killed with %d lines stored", len(before))
	random := rand.New(rand.NewPCG(5, 6))
	for n := range 3 {
		if p = launch(t, dir, "--config", config); n%2 == 0 {
			p.ready()
		}
		time.Sleep(time.Duration(500+random.IntN(4000)) * time.Millisecond) // the moment of the kill
		p.kill()
	}
	p = start()
	p.repaired(hangs, "reset_gpu")
	steps, err := p.actionsOn(hangs)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("reset_gpu: %s", steps["reset_gpu"].VerifiedBy)
	if did := resets(); !slices.Equal(did, []string{"reset begun", "reset done"}) {
		t.Errorf("the tools of %s were asked for %q", hangs, did)
	}
	if s := nodeStates(t, dir, hangs); slices.Contains(s, "DRAIN") || slices.Contains(s, "DOWN") {
		t.Errorf("%s is %v and not back in the pool", hangs, s)
	}
	last := time.Time{}
	for _, f := range planned(t, dir)["xid"] {
		last = f.At
	}
	time.Sleep(time.Until(last.Add(time.Second))) // the script is over
	if n := storedOnce(t, p); n < lines {
		t.Errorf("the fleet has said only %d things", n)
	}
}

// dialledConfig writes the configuration of a product whose agents dial in.
func dialledConfig(t *testing.T, dir, files, addr string, leaf certtest.Leaf) string {
	t.Helper()
	var slurm struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	fleet := filepath.Join(dir, "sim")
	b, err := os.ReadFile(filepath.Join(fleet, sim.SlurmFile))
	if err == nil {
		err = json.Unmarshal(b, &slurm)
	}
	if err != nil {
		t.Fatal(err)
	}
	policy := write(t, files, "policy.yaml", `
budgets: {fleet: 1, rack: 1, per_hour: 3}
breaker: {cases: 6, window: 10m}
policies:
  - name: gpu-firmware
    faults: [gpu.gsp_hang]
    min_confidence: 0.6
    settle: 2s
    max_evidence_age: 15m
    ladder:
      - {kind: drain, attempts: 2, verify: 3m}
      - {kind: reset_gpu, needs: [drain], destructive: true, attempts: 1, cool_down: 1h, verify: 3m, quiet: 10s}
      - {kind: uncordon, needs: [reset_gpu], attempts: 2, verify: 1m}
`)
	return write(t, files, "auspex.yaml", fmt.Sprintf(`
site: dc1
inventory: {file: %[1]s}
secrets: %[2]s
tunnel: {listen: "%[3]s", tls: {cert_file: %[4]s, key_file: %[5]s}}
collectors:
  agent: {credential: %[6]s, sample_interval: 2s}
  slurm: {url: "%[7]s", token_file: %[8]s}
correlator: {close_after: {cleared: 10s, repaired: 15s, silent: 90s}}
control:
  mode: %[9]s
  policies: %[10]s
  slurm: {url: "%[7]s", token_file: %[8]s}
  agent: {credential: %[6]s}
`, filepath.Join(fleet, sim.TopologyFile), filepath.Join(fleet, sim.SecretsFile), addr, leaf.CertFile, leaf.KeyFile, sim.Credential,
		slurm.URL, slurm.TokenFile, schemas.ModeEnforce, policy))
}
