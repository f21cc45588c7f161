package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/sim/kmsg"
	"auspex/internal/sim/ledger"
)

func saved(t *testing.T, dir string) state {
	t.Helper()
	var st state
	if err := readJSON(filepath.Join(dir, stateFile), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// bootIDs reads the boot ids of all hosts from their files.
func bootIDs(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, kmsgDir, "*.kmsg"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range files {
		id, err := os.ReadFile(f + kmsg.BootIDSuffix)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".kmsg")] = strings.TrimSpace(string(id))
	}
	return out
}

func TestARestartOfAHealthyFleetIsNotSeen(t *testing.T) {
	dir := t.TempDir()
	_, stop := begin(t, small(dir))
	stop()
	before, ids, awaitEntries := saved(t, dir), bootIDs(t, dir), len(entries(t, dir))
	_, stop = begin(t, small(dir))
	stop()
	after := saved(t, dir)
	if !before.Clean || !after.Clean {
		t.Error("a clean stop is not noted")
	}
	if d := cmp.Diff(ids, bootIDs(t, dir)); d != "" {
		t.Errorf("hosts have booted: %s", d)
	}
	for name, a := range after.Fleet.Servers {
		b := before.Fleet.Servers[name]
		if !a.Booted.Equal(b.Booted) || !a.LogEpoch.Equal(b.LogEpoch) || a.LogNext != b.LogNext {
			t.Errorf("%s: boot or log have changed", name)
		}
		for i := range a.GPUs {
			if g, h := a.GPUs[i], b.GPUs[i]; g.Serial != h.Serial || g.Energy < h.Energy || g.Energy > h.Energy+1e5 {
				t.Errorf("gpu %d of %s: serial %s then %s, energy %.0f J then %.0f J", i, name, h.Serial, g.Serial, h.Energy, g.Energy)
			}
		}
	}
	for name, a := range after.Fleet.Switches {
		b := before.Fleet.Switches[name]
		if !a.Booted.Equal(b.Booted) {
			t.Errorf("%s has booted", name)
		}
		for port, p := range a.Ports {
			if q := b.Ports[port]; !p.LastChange.Equal(q.LastChange) || p.Carrier != q.Carrier || p.In < q.In || p.Out < q.Out {
				t.Errorf("port %s of %s: %+v then %+v", port, name, q, p)
			}
		}
	}
	for _, e := range entries(t, dir)[awaitEntries:] {
		t.Errorf("the restart made a device speak: %+v", e)
	}
	if len(after.Slurm.Jobs) != len(before.Slurm.Jobs) {
		t.Errorf("%d jobs, then %d", len(before.Slurm.Jobs), len(after.Slurm.Jobs))
	}
}

func TestWhatWasFaultyIsMendedAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	cfg := small(dir)
	cfg.Script = []byte(`name: broken
faults:
  - {at: 0s, kind: fan_failure, target: gpu-r02-02/fan3}
  - {at: 100ms, kind: gpu_fallen_off, target: gpu-r02-01/gpu1}
  - {at: 100ms, kind: feed_loss, target: {rack: 1, feed: a}}
  - {at: 100ms, kind: link_failure, target: leaf-r02/Ethernet1}
  - {at: 100ms, kind: switch_failure, target: spine-01}
  - {at: 100ms, kind: bmc_mute, target: gpu-r02-02}
`)
	_, stop := begin(t, cfg)
	awaitEntries(t, dir, 0, "fault  gpu-r02-02/ bmc_mute", "record ipmi gpu-r02-01/gpu1 13/0a", "state gnmi leaf-r01/psu1 INACTIVE",
		"record redfish gpu-r02-02/fan3 Environmental.1.0.FanSpeedCritical", "record ipmi gpu-r01-01/psu0 08/03", "record redfish gpu-r01-01/ Redundancy.1.0.RedundancyLost")
	stop()
	broken, ids, before := saved(t, dir), bootIDs(t, dir), len(entries(t, dir))
	if !broken.Fleet.Servers["gpu-r02-01"].GPUs[1].Lost || !broken.Fleet.Servers["gpu-r01-01"].PSUs[0].NoInput || len(broken.Faults) != 6 {
		t.Fatalf("the faults are not in the state: %+v", broken.Faults)
	}
	cfg.Script = []byte("name: again\nfaults:\n  - {at: 1h, kind: feed_loss, target: {rack: 1, feed: a}}\n")
	eps, stop := begin(t, cfg)
	want := []string{
		"record ipmi gpu-r01-01/psu0 08/03", "record redfish gpu-r01-01/psu0 Power.1.0.PowerSupplyInputRestored",
		"record redfish gpu-r01-01/ Redundancy.1.0.RedundancyRestored", "record redfish gpu-r02-02/fan3 Environmental.1.0.FanRestored",
		"record kmsg gpu-r02-01/ ", "state gnmi leaf-r02/Ethernet1 UP", "state gnmi leaf-r01/psu1 ACTIVE",
		"fault  pdu-r01-a/ feed_loss", "fault  gpu-r02-01/gpu1 gpu_fallen_off",
	}
	awaitEntries(t, dir, before, want...) // of what was faulty
	stop()
	if at := eps.Faults[0].At; !at.Equal(eps.Started.Add(calm + time.Hour)) {
		t.Errorf("the script begins %s after the start", at.Sub(eps.Started))
	}
	st := saved(t, dir)
	for name, id := range bootIDs(t, dir) {
		if booted := id != ids[name]; booted != (name == "gpu-r02-01") {
			t.Errorf("%s has booted: %t", name, booted)
		}
	}
	if g := st.Fleet.Servers["gpu-r02-01"].GPUs[1]; g.Lost {
		t.Error("the GPU is still lost")
	}
	if p := st.Fleet.Switches["leaf-r02"].Ports["Ethernet1"]; !p.Up || p.Broken {
		t.Errorf("port: %+v", p)
	}
	if was, is := broken.Fleet.Switches["spine-01"], st.Fleet.Switches["spine-01"]; !was.Down || is.Down || !is.Booted.After(was.Booted) {
		t.Error("the switch that was dead has not booted")
	}
	if !st.Fleet.Switches["leaf-r01"].Booted.Equal(broken.Fleet.Switches["leaf-r01"].Booted) {
		t.Error("a switch that lost one of two feeds has booted")
	}
	for _, e := range entries(t, dir)[before:] {
		if e.Kind == ledger.KindFault && e.Type != "end" {
			t.Errorf("a fault begins: %+v", e)
		}
	}
	if n := st.Fleet.Servers["gpu-r01-01"].LogNext; n <= broken.Fleet.Servers["gpu-r01-01"].LogNext {
		t.Errorf("record ids start over: %d", n)
	}
}

func TestAfterAKillNoRecordNumberIsUsedTwice(t *testing.T) {
	dir := t.TempDir()
	_, stop := begin(t, small(dir))
	stop()
	st := saved(t, dir)
	st.Clean = false // as if the last words had not been written
	if err := writeJSON(filepath.Join(dir, stateFile), &st); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, kmsgDir, "gpu-r01-01.kmsg")
	f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("6,99999"); err != nil { // half a line
		t.Fatal(err)
	}
	_ = f.Close()
	_, stop = begin(t, small(dir))
	stop()
	for name, s := range saved(t, dir).Fleet.Servers {
		if before := st.Fleet.Servers[name].LogNext; s.LogNext <= before {
			t.Errorf("%s gives record number %d again", name, before)
		}
	}
	if data, err := os.ReadFile(log); err != nil || strings.Contains(string(data), "99999") {
		t.Errorf("kernel log %q, %v", data, err)
	}
}

func TestAnUnreadableStateIsSetAside(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stop := begin(t, small(dir))
	stop()
	if _, err := os.Stat(filepath.Join(dir, stateFile+".bad")); err != nil {
		t.Error(err)
	}
	if !saved(t, dir).Clean {
		t.Error("no new state")
	}
}
