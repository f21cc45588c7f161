package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"auspex/internal/sim"
	"auspex/internal/waittest"
)

// Whoever has but one way to see a server sees by it that a GPU fell off the bus (XID 79), as docs/how-to/real-hardware.md
// says: as an incident with that GPU, or what the way can know of it, as its cause.
func TestOneWayAloneShowsALostGPU(t *testing.T) {
	beside(t)
	const lost = "gpu-r01-02/gpu2"
	for _, way := range []struct{ name, collectors string }{
		{"agent", "agent: {credential: " + sim.Credential + ", sample_interval: 2s}"},
		{"syslog", "syslog: {udp: %q, tcp: \"\"}"},
		{"exporter", "dcgmexporter: {interval: 2s}"},
		{"redfish", "redfish: {interval: 5s}"},
		{"ipmi", "ipmi: {interval: 5s}"},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			dir, files := dataDir(t), t.TempDir()
			args := []string{
				"simulate", "--dir", filepath.Join(dir, "sim"), "--racks", "1", "--servers", "2", "--seed", "4",
				"--script", write(t, files, "script.yaml", "name: lost\nfaults: [{at: 45s, kind: gpu_fallen_off, target: "+lost+"}]\n"),
			}
			if strings.Contains(way.collectors, "%q") {
				addr := freeAddress(t)
				way.collectors = fmt.Sprintf(way.collectors, addr)
				args = append(args, "--syslog", addr)
			}
			fleet := command(t, args...)
			said := &waittest.Buffer{}
			fleet.Stdout, fleet.Stderr = said, said
			if err := fleet.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fleet.Process.Kill(); _ = fleet.Wait() })
			(&product{t: t, done: make(chan struct{}), exit: new(error)}).await("the fleet is ready", func() error { return has(said.String(), "ready") })
			p := launch(t, dir, "--config", write(t, files, "auspex.yaml", fmt.Sprintf(
				"site: dc1\ninventory: {file: %[1]s}\nsecrets: %[2]s\ntrust: {bmc: {ca_file: %[3]s}, agent: {ca_file: %[3]s}}\nstore: {clickhouse: \"off\"}\ncollectors:\n  %[4]s\n",
				filepath.Join(dir, "sim", sim.TopologyFile), filepath.Join(dir, "sim", sim.SecretsFile), filepath.Join(dir, "sim", sim.CAFile), way.collectors)))
			p.ready()
			p.await("an incident", func() error {
				is, _, err := p.judged()
				if err != nil {
					return err
				}
				if len(is) == 0 {
					return errors.New("none")
				}
				t.Logf("%+v", is)
				return nil
			})
		})
	}
}
