package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/openconfig/gnmic/pkg/api"

	"auspex/internal/secrets"
	"auspex/internal/sim"
	"auspex/internal/sim/ledger"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// TestForeignClientsDriveTheSimulatedFleet is why the simulator may stand for real
// devices: clients that others wrote use it.
func TestForeignClientsDriveTheSimulatedFleet(t *testing.T) {
	beside(t)
	root := dataDir(t)
	dir := filepath.Join(root, "sim")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "simulate", "--dir", dir, "--script", "none", "--racks", "1", "--servers", "2")
	var stderr waittest.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the simulator ended with %v:\n%s", err, stderr.String())
		}
	})
	waittest.Until(t, func() error {
		if _, err := os.Stat(filepath.Join(dir, sim.EndpointsFile)); err != nil {
			return fmt.Errorf("the simulator is not ready:\n%s", stderr.String())
		}
		return nil
	})
	var topology schemas.Topology
	b, err := os.ReadFile(filepath.Join(dir, sim.TopologyFile))
	if err == nil {
		err = json.Unmarshal(b, &topology)
	}
	if err != nil {
		t.Fatal(err)
	}
	attrs := map[string]schemas.Attrs{}
	for _, r := range topology.Resources {
		attrs[r.ID] = r.Attrs
	}
	file, err := secrets.Read(filepath.Join(dir, sim.SecretsFile))
	if err != nil {
		t.Fatal(err)
	}
	user, password, err := file.Secret(t.Context(), sim.Credential)
	if err != nil {
		t.Fatal(err)
	}
	const server = "gpu-r01-01"

	t.Run("ipmitool", func(t *testing.T) {
		at := attrs[server].Get(schemas.AttrIPMIIP)
		do := func(args ...string) string { return ipmitool(t, at, user, password, args...) }
		for args, want := range map[string]string{
			"power status": "is on", "sel info": "SEL Information", "mc info": "IPMI Version", "chassis status": "System Power         : on",
		} {
			if out := do(strings.Fields(args)...); !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", args, want, out)
			}
		}
		sensors := do("sdr", "elist")
		for _, want := range []string{`Inlet`, `FAN1 .*RPM`, `PSU0`, `GPU7`} {
			if !regexp.MustCompile(want).MatchString(sensors) {
				t.Errorf("no sensor %s in\n%s", want, sensors)
			}
		}
		do("power", "off")
		wait(t, "the power is off", func() error { return has(do("power", "status"), "is off") })
		do("power", "on")
		wait(t, "the power is on", func() error { return has(do("power", "status"), "is on") })
	})
	t.Run("sushy", func(t *testing.T) {
		python := peer(t, "SUSHY_PYTHON")
		out, err := exec.Command(
			python, "testdata/sushy_fleet.py", attrs["gpu-r01-02"].Get(schemas.AttrRedfishURL), user, password, filepath.Join(dir, sim.CAFile),
		).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
	})
	t.Run("gnmic", func(t *testing.T) {
		target, err := api.NewTarget(api.Name("leaf"), api.Address(attrs["leaf-r01"].Get(schemas.AttrGNMIAddress)),
			api.Username(user), api.Password(password), api.TLSCA(filepath.Join(dir, sim.CAFile)), api.Timeout(patience))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := target.CreateGNMIClient(ctx); err != nil {
			t.Fatal(err)
		}
		defer target.Close()
		get, err := api.NewGetRequest(api.Path("/interfaces/interface[name=Ethernet1]/state/oper-status"), api.Encoding("json_ietf"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := target.Get(ctx, get)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(resp.String(), "UP") {
			t.Errorf("oper-status: %s", resp)
		}
	})
	resets := 0
	for _, e := range output(t, root) {
		if e.Kind == ledger.KindReset {
			resets++
		}
	}
	if resets != 6 {
		t.Errorf("the ledger holds %d resets, want 6: off and on, by ipmitool once and by sushy twice", resets)
	}
}

// wait polls without a product that could die.
func wait(t *testing.T, what string, check func() error) {
	t.Helper()
	waittest.Until(t, func() error {
		if err := check(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}
