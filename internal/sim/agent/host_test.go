package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmic/pkg/api"

	"auspex/internal/waittest"
	"auspex/schemas"
)

// The readers of a server's own system read the model as they would a kernel, and what the
// model plays is what they tell.
func TestTheKernelOfTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const nic = "/host/nic[name=ens1f0np0]/state/"
	dimm := func(n int, leaf string) string { return fmt.Sprintf("/host/dimm[name=DIMM%d]/state/%s", n, leaf) }
	for path, want := range map[string]string{
		nic + "up": "true", nic + "pci-address": "0000:18:00.0", nic + "speed": "400000000000", nic + "pcie-width": "16", nic + "in-errors": "0",
		"/host/nic[name=ens8f0np0]/state/up": "false", dimm(15, "corrected-errors"): "0", dimm(3, "size"): "68719476736",
		"/host/nvswitch[name=0000:05:00.0]/state/up": "true", "/host/nvswitch[name=0000:05:00.0]/state/driver": "nvidia-nvswitch",
		"/host/service[name=nvidia-fabricmanager.service]/state/active-state": "active", "/host/service[name=kubelet.service]/state/active-state": "",
		"/host/disk[name=nvme0]/state/media-errors": "0", "/host/disk[name=nvme0]/state/available-spare": "1",
		"/host/disk[name=nvme0]/state/up":              "true",
		"/host/disk[name=sda]/state/predicted-failure": "false", "/host/disk[name=sda]/state/temperature": "38",
		"/host/fabric-manager-log/state/error": "", "/host/fabric-manager-log/state/records": "2",
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

// What is wrong with disks and the fabric manager of the model their readers tell as events.
func TestFailuresOfTheServicesAndDisksOfTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	said := w.follow()
	tells := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			said.mu.Lock()
			all := slices.Clone(said.all)
			said.mu.Unlock()
			if slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, want) }) {
				return nil
			}
			return fmt.Errorf("%q is not told: %q", want, all)
		})
	}
	w.shows("/host/disk[name=sda]/state/predicted-failure", "false")
	w.shows("/host/fabric-manager-log/state/records", "2")
	for _, err := range []error{
		w.fleet.SetFabricManager(server, true), w.fleet.WearDisk(server+"/disk0", time.Millisecond), w.fleet.SetDisk(server+"/disk1", true),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tells("critical medium error, dev nvme0n1, sector ")
	tells("aborting fabric manager due to a fatal error")
	tells("service.failed nvidia-fabricmanager raised")
	w.shows("/gpus/gpu[name=gpu3]/state/fabric-state", "3") // who is in the fabric stays there
	waittest.Until(t, func() error { return w.fleet.ResetGPUs(server, []int{3}) })
	tells("gpu.fabric NOT_REGISTERED raised")
	w.shows("/gpus/gpu[name=gpu3]/state/fabric-state", "2")
	w.shows("/gpus/gpu[name=gpu2]/state/fabric-state", "3")
	tells("disk.predicted_failure NVMe raised")
	tells("disk.missing LOST raised")
	w.shows("/host/disk[name=nvme0]/state/critical-warning", "1")
	w.shows("/host/disk[name=sda]/state/size", "")
	for _, err := range []error{
		w.fleet.SetFabricManager(server, false), w.fleet.WearDisk(server+"/disk0", 0), w.fleet.SetDisk(server+"/disk1", false),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	tells("service.failed nvidia-fabricmanager cleared")
	tells("gpu.fabric REGISTERED cleared")
	w.shows("/gpus/gpu[name=gpu3]/state/fabric-state", "3")
	tells("disk.predicted_failure NVMe cleared")
	tells("disk.missing LOST cleared")
}

// sayings are what a journal tells: texts of lines, and types, codes and states of events.
type sayings struct {
	mu  sync.Mutex
	all []string
}

func (s *sayings) take(n *gpb.Notification) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range n.GetUpdate() {
		e := u.GetPath().GetElem()
		if len(e) == 0 || e[len(e)-1].GetName() != "data" {
			continue
		}
		text := u.GetVal().GetStringVal()
		var ev schemas.Event
		if json.Unmarshal([]byte(text), &ev) == nil {
			text = strings.Join([]string{ev.Type, ev.Code, ev.State}, " ")
		} else if _, said, ok := strings.Cut(text, "[tid 841] "); ok {
			text = said
		} else if _, said, ok := strings.Cut(text, ";"); ok {
			text = said
		}
		s.all = append(s.all, text)
	}
}

// follow subscribes to the journal.
func (w *world) follow() *sayings {
	w.t.Helper()
	records := api.Subscription(api.Path("/journal/record"), api.SubscriptionModeON_CHANGE())
	req, err := api.NewSubscribeRequest(api.EncodingPROTO(), api.SubscriptionListModeSTREAM(), records)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	s := &sayings{}
	var all sync.WaitGroup
	ended := make(chan struct{})
	all.Go(func() { defer close(ended); w.gnmic.Subscribe(ctx, req, "journal") })
	responses, errs := w.gnmic.ReadSubscriptions()
	all.Go(func() {
		for {
			select {
			case r := <-responses:
				s.take(r.Response.GetUpdate())
			case <-errs:
			case <-ended:
				return
			}
		}
	})
	w.t.Cleanup(func() { cancel(); all.Wait() })
	return s
}
