package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"auspex/internal/sim"
	"auspex/internal/waittest"
)

// Who has but one way to see servers sees by it that a GPU fell off the bus (XID 79), as docs/how-to/real-hardware.md says:
// as one incident at that GPU, with the fault where the way can tell it from others.
func TestOneWayAloneShowsALostGPU(t *testing.T) {
	beside(t)
	const lost = "gpu-r01-02/gpu2"
	for _, way := range []struct{ name, collector, fault string }{
		{"agent", "agent: {credential: " + sim.Credential + ", sample_interval: 2s}", "gpu.fallen_off_bus"},
		{"syslog", `syslog: {udp: "%s", tcp: ""}`, "gpu.fallen_off_bus"},
		{"exporter", "dcgmexporter: {interval: 2s}", ""},             // XID and GPU may both be gone by its next page
		{"redfish", "redfish: {interval: 5s}", "gpu.fallen_off_bus"}, // by a fatal PCIe error
		{"ipmi", "ipmi: {interval: 5s}", "gpu.fallen_off_bus"},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			dir, files := dataDir(t), t.TempDir()
			args := []string{
				"simulate", "--dir", filepath.Join(dir, "sim"), "--racks", "1", "--servers", "2", "--seed", "4",
				"--script", write(t, files, "script.yaml", "name: lost\nfaults: [{at: 45s, kind: gpu_fallen_off, target: "+lost+"}]\n"),
			}
			if way.name == "syslog" {
				addr := freeAddress(t)
				way.collector = fmt.Sprintf(way.collector, addr)
				args = append(args, "--syslog", addr)
			}
			fleet, said := command(t, args...), &waittest.Buffer{}
			fleet.Stdout, fleet.Stderr = said, said
			if err := fleet.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fleet.Process.Kill(); _ = fleet.Wait() })
			(&product{t: t, done: make(chan struct{}), exit: new(error)}).await("the fleet is ready", func() error { return has(said.String(), "ready") })
			of := func(file string) string { return filepath.Join(dir, "sim", file) }
			p := launch(t, dir, "--config", write(t, files, "auspex.yaml", fmt.Sprintf(`
site: dc1
inventory: {file: %s}
secrets: %s
trust: {bmc: {ca_file: %[3]s}, agent: {ca_file: %[3]s}}
store: {clickhouse: "off"}
collectors: {%s}
`, of(sim.TopologyFile), of(sim.SecretsFile), of(sim.CAFile), way.collector)))
			p.ready()
			p.await("an incident of the lost GPU", func() error {
				all, err := list[incident](p, "incidents")
				if err != nil {
					return err
				}
				for _, i := range all {
					if i.RootCause.Resource == lost && (way.fault == "" || i.RootCause.Fault == way.fault) {
						t.Logf("%s, %.2f: %s", i.RootCause.Fault, i.RootCause.Confidence, i.Explanation)
						return nil
					}
				}
				return fmt.Errorf("%+v", all)
			})
		})
	}
}
