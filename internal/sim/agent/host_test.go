package agent_test

import (
	"fmt"
	"testing"

	"auspex/internal/waittest"
)

// The readers of a server's own system read the model as they would a kernel, and what the
// model plays is what they tell.
func TestTheKernelOfTheModel(t *testing.T) {
	w := newWorld(t)
	const nic = "/host/nic[name=ens1f0np0]/state/"
	dimm := func(n int, leaf string) string { return fmt.Sprintf("/host/dimm[name=DIMM%d]/state/%s", n, leaf) }
	for path, want := range map[string]string{
		nic + "up": "true", nic + "pci-address": "0000:18:00.0", nic + "speed": "400000000000", nic + "pcie-width": "16", nic + "in-errors": "0",
		"/host/nic[name=ens8f0np0]/state/up": "false", dimm(15, "corrected-errors"): "0", dimm(3, "size"): "68719476736",
		"/host/nvswitch[name=0000:05:00.0]/state/up": "true", "/host/nvswitch[name=0000:05:00.0]/state/driver": "nvidia-nvswitch",
		"/host/service[name=nvidia-fabricmanager.service]/state/active-state": "active", "/host/service[name=kubelet.service]/state/active-state": "",
		"/host/services/state/failed": "0", "/host/state/nvidia-driver-version": "570.124.06", "/host/state/malformed": "0", "/host/state/unreadable": "",
	} {
		w.shows(path, want)
	}
	waittest.For(t, "no octets are received", func() bool { got, err := w.get(nic + "in-octets"); return err == nil && got != "" && got != "0" })
	if err := w.fleet.WearMemory(server, 3); err != nil {
		t.Fatal(err)
	}
	if err := w.fleet.SetLink("leaf-r01/Ethernet1", true); err != nil {
		t.Fatal(err)
	}
	w.shows(dimm(3, "corrected-errors"), "24")
	w.shows(dimm(4, "corrected-errors"), "0")
	w.shows(nic+"up", "false")
	w.shows(nic+"enabled", "true")
	w.shows("/host/nic[name=ens2f0np0]/state/up", "true")
}
