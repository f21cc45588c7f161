package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"auspex/internal/store/embedded/embeddedtest"
)

// Three processes share the fleet and are killed again and again; some come back at once, of others the devices go to those that live.
// Every record of the fleet is stored once, and in the end each device is read by one.
func TestThreeThatCollectShareAFleetOverKills(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // PostgreSQL runs as a user of its own
		t.Fatal(err)
	}
	brokers, dsn := apartPeers(t, dir)
	clickhouse := serve(t, embeddedtest.StartIn(t, filepath.Join(dir, "clickhouse")))
	simulate(t, filepath.Join(dir, "sim"), "storm")
	config := fleetConfig(t, dir, brokers, dsn, clickhouse)
	const lease = 4 * time.Second
	run := func(name, roles string) *product {
		return launch(t, filepath.Join(dir, name), "--config", config, "--role", roles, "--set", fmt.Sprint("collect.lease_ttl=", lease))
	}
	process := run("process", "process,api")
	process.ready()
	readers := map[string]*product{}
	for i := range 3 {
		name := fmt.Sprint("collect-", i)
		readers[name] = run(name, "collect")
	}
	for _, p := range readers {
		p.ready()
	}
	random := rand.New(rand.NewPCG(1, 2)) // the moments differ, the order of them is the same in each run
	for n := range kills {
		time.Sleep(time.Duration(500+random.IntN(3000)) * time.Millisecond) // the moment of the kill
		name := fmt.Sprint("collect-", random.IntN(3))
		readers[name].kill()
		if n%3 == 0 { // its devices go to the others, and come back
			time.Sleep(lease + time.Duration(random.IntN(4000))*time.Millisecond) // likewise
		}
		readers[name] = run(name, "collect")
	}
	process.awaitFor(2*patience, "each device is read by one of three", func() error {
		sum := map[string]float64{}
		for name, p := range readers {
			p.ready()
			some := 0.0
			for collector, n := range p.targets() {
				sum[collector] += n
				some += n
			}
			if some == 0 {
				return fmt.Errorf("%s reads nothing", name)
			}
		}
		for collector, want := range map[string]float64{"ipmi": 64, "redfish": 64, "kmsg": 64, "dcgmexporter": 64, "slurm": 1} {
			if sum[collector] != want {
				return fmt.Errorf("%s reads %v devices and not %v: %v", collector, sum[collector], want, sum)
			}
		}
		return nil
	})
	said := recordCounts(output(t, dir))
	history := &product{t: t, dir: dir, done: process.done, exit: process.exit}
	history.stores(said)
	time.Sleep(15 * time.Second) // three readings of each device: what is read again must not be stored again
	rows, err := history.rows("source IN ('ipmi', 'redfish', 'kmsg')")
	if err != nil {
		t.Fatal(err)
	}
	stored, final := rowCounts(rows), recordCounts(output(t, dir))
	for key, n := range stored {
		if n != 1 || final[key] == 0 {
			t.Errorf("%s stands %d times in the table, read without FINAL; the ledger has it %d times", key, n, final[key])
		}
	}
	if len(said) < 150 {
		t.Errorf("the fleet has said only %d things", len(said))
	}
	t.Logf("%d records, each once", len(stored))
}

// targets returns how many devices each collector of a process reads.
func (p *product) targets() map[string]float64 {
	p.t.Helper()
	var text []byte
	if err := p.get("metrics", &text); err != nil {
		p.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, m := range families["auspex_collectors_targets"].GetMetric() {
		out[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
	}
	return out
}
