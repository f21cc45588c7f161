package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"auspex/internal/sim"
	"auspex/internal/store/embedded"
	"auspex/internal/store/embedded/embeddedtest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// Of the script dead-gpu: one GPU that a power cycle brings back, and one that none does.
const (
	curable = "gpu-r03-04"
	dead    = "gpu-r07-05"
)

// onlyTheCurableComesBack waits until the one server was repaired and returned, and
// the other was given to a person, still out of the pool.
func (p *product) onlyTheCurableComesBack(dir string) {
	p.t.Helper()
	p.repaired(curable, "power_cycle")
	acts, err := p.actionsOn(curable)
	if err != nil {
		p.t.Fatal(err)
	}
	if a := acts["power_cycle"]; a.VerifiedSentence == nil || a.VerifiedSentence.ID != "step.lives" || a.EffectAt.IsZero() {
		p.t.Errorf("the power cycle was verified by %q, effect at %s", a.VerifiedBy, a.EffectAt)
	}
	if s := nodeStates(p.t, dir, curable); slices.Contains(s, "DRAIN") {
		p.t.Errorf("%s is %v and not back in the pool", curable, s)
	}
	p.awaitFor(2*patience, "a person is told of the dead GPU", func() error {
		acts, err := p.actionsOn(dead)
		if err != nil {
			return err
		}
		if a, ok := acts["uncordon"]; ok {
			return settled{fmt.Errorf("uncordon is %s: %s", a.State, a.Detail)}
		}
		if a := acts["power_cycle"]; a.State == schemas.ActionDone {
			return settled{fmt.Errorf("a dead GPU is repaired: %s", a.VerifiedBy)}
		}
		if _, ok := acts["ticket"]; !ok {
			return fmt.Errorf("power_cycle is %q: %s", acts["power_cycle"].State, acts["power_cycle"].Detail)
		}
		return nil
	})
	if s := nodeStates(p.t, dir, dead); !slices.Contains(s, "DRAIN") {
		p.t.Errorf("%s is %v and not held out of the pool", dead, s)
	}
}

func TestADeadGPUNeverComesBackToThePool(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	p := startDemo(t, dir, "--mode", "enforce", "--script", "testdata/scripts/dead-gpu.yaml", "--seed", "3",
		"--set", "store.clickhouse=off", "--set", "control.policies=testdata/policy.yaml")
	p.onlyTheCurableComesBack(dir)
	p.interrupt()
}

// serve makes an engine a ClickHouse server on loopback, and returns its address.
func serve(t *testing.T, e *embedded.Engine) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = in.Close() }()
				out, err := e.Dial(t.Context())
				if err != nil {
					return
				}
				defer func() { _ = out.Close() }()
				go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
				_, _ = io.Copy(in, out)
			})
		}
	})
	return l.Addr().String()
}

// fleetConfig writes a configuration for a simulated fleet that runs in dir/sim, as
// an operator would for real devices.
func fleetConfig(t *testing.T, dir, brokers, dsn, clickhouse string) string {
	t.Helper()
	var slurm struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	fleet := func(name string) string { return filepath.Join(dir, "sim", name) }
	b, err := os.ReadFile(fleet(sim.SlurmFile))
	if err == nil {
		err = json.Unmarshal(b, &slurm)
	}
	policy, err2 := filepath.Abs("testdata/policy.yaml")
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return write(t, dir, "auspex.yaml", strings.NewReplacer(
		"TOPOLOGY", fleet(sim.TopologyFile), "SECRETS", fleet(sim.SecretsFile), "CA", fleet(sim.CAFile), "SLURM", slurm.URL, "TOKEN",
		slurm.TokenFile,
		"BROKERS", brokers, "DSN", dsn, "CLICKHOUSE", clickhouse, "POLICY", policy,
	).Replace(`
site: dc1
inventory: {file: "TOPOLOGY"}
secrets: "SECRETS"
bus: {type: kafka, kafka: {brokers: [BROKERS]}}
store: {sql: "DSN", clickhouse: "http://CLICKHOUSE/auspex"}
collectors:
  kmsg: {}
  dcgmexporter: {interval: 5s}
  ipmi: {interval: 5s, sensor_interval: 30s}
  redfish: {interval: 5s, sensor_interval: 10s, tls: {ca_file: "CA"}}
  slurm: {url: "SLURM", token_file: "TOKEN"}
correlator: {close_after: {cleared: 10s, repaired: 15s, silent: 90s}}
control:
  mode: enforce
  policies: "POLICY"
  bmc: {ca_file: "CA"}
  slurm: {url: "SLURM", token_file: "TOKEN"}
`))
}

// simulate runs a fleet in a process of its own, with its files in dir, until the test
// ends.
func simulate(t *testing.T, dir, script string) {
	t.Helper()
	fleet := command(t, "simulate", "--dir", dir, "--seed", "3", "--script", "testdata/scripts/"+script+".yaml")
	var out waittest.Buffer
	fleet.Stdout, fleet.Stderr = &out, &out
	if err := fleet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fleet.Process.Kill(); _ = fleet.Wait() })
	shell := &product{t: t, done: make(chan struct{}), exit: new(error)}
	shell.await("the fleet is ready", func() error {
		if !strings.Contains(out.String(), "ready") {
			return errors.New(tail(out.String()))
		}
		return nil
	})
}

// Every role in a process of its own, on Kafka, ClickHouse and PostgreSQL: control
// has no hot window and no collector beside it, and knows as much.
func TestRolesApartRepairAServerAndKeepADeadOneOut(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // PostgreSQL runs as a user of its own
		t.Fatal(err)
	}
	brokers, dsn := apartPeers(t, dir)
	clickhouse := serve(t, embeddedtest.StartIn(t, filepath.Join(dir, "clickhouse")))

	simulate(t, filepath.Join(dir, "sim"), "late-dead-gpu")
	config := fleetConfig(t, dir, brokers, dsn, clickhouse)
	role := func(name string) *product {
		return launch(t, filepath.Join(dir, name), "--config", config, "--role", name)
	}
	api := role("api") // makes the tables
	api.ready()
	procs := []*product{role("process"), role("correlate"), role("predict"), role("control"), role("collect")}
	api.onlyTheCurableComesBack(dir)
	for _, p := range append(procs, api) {
		select {
		case <-p.done:
			t.Errorf("%s ended: %v\n%s", p.dir, *p.exit, tail(p.err.String()))
		default:
			p.interrupt()
		}
	}
}

// apartPeers returns the addresses of a Kafka and of a PostgreSQL that end with the
// test: in containers where a daemon answers, else from test/peers.
func apartPeers(t *testing.T, dir string) (brokers, dsn string) {
	t.Helper()
	if exec.Command("docker", "info").Run() == nil {
		vars := containers(t)
		return vars["KAFKA_BROKERS"], vars["POSTGRES_DSN"]
	}
	_, kafka := startPeer(t, "kafka", dir)
	_, postgres := startPeer(t, "postgres", dir)
	return kafka["KAFKA_BROKERS"], postgres["POSTGRES_DSN"]
}

// containers starts the peers of test/containers, which end when their standard
// input does, and returns what it prints.
func containers(t *testing.T) map[string]string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "containers")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = filepath.Join("..", "..", "test", "containers")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build test/containers: %v\n%s", err, out)
	}
	cmd := exec.Command(bin)
	var failed waittest.Buffer
	cmd.Stderr = &failed
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	vars := map[string]string{}
	for lines := bufio.NewScanner(out); vars["READY"] == "" && lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		vars[key] = strings.Trim(value, "'")
	}
	if vars["READY"] == "" {
		t.Fatalf("containers did not start: %s", failed.String())
	}
	return vars
}
