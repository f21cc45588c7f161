package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNVSwitchesAreTold(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	s.put(nvswitch("0000:87:00.0", "1"))
	s.read()
	told := s.told()
	if diff := cmp.Diff(map[string]string{
		"name": "0000:86:00.0", "device-id": "0x22a3", "driver": "nvidia-nvswitch", "up": "true", "pcie-width": "2", "pcie-width-max": "2",
		"pcie-speed": "32000000000", "pcie-speed-max": "32000000000",
	}, below(told, "/host/nvswitch[name=0000:86:00.0]/state/")); diff != "" {
		t.Error(diff)
	}
	if other := below(told, "/host/nvswitch[name=0000:87:00.0]/state/"); other["driver"] != "" || other["pcie-width"] != "1" || other["up"] != "true" {
		t.Errorf("one without a driver: %v", other)
	}
	if gpu := below(told, "/host/nvswitch[name=0000:1b:00.0]"); len(gpu) > 0 {
		t.Errorf("a GPU is no switch: %v", gpu)
	}
}

// An NVSwitch that is lost is one event after two readings, over a restart of the agent too,
// and one when it is back; whether the kernel still shows it or not.
func TestALostNVSwitchIsOneEvent(t *testing.T) {
	const width = "sys/bus/pci/devices/0000:86:00.0/current_link_width"
	for what, c := range map[string]struct{ lose, find func(s *server) }{
		"its link reads as ones": {
			func(s *server) { s.put(map[string]string{width: "63\n"}) }, func(s *server) { s.put(map[string]string{width: "2\n"}) },
		},
		"the kernel has removed it": {
			func(s *server) { s.remove("sys/bus/pci/devices/0000:86:00.0") }, func(s *server) { s.put(nvswitch("0000:86:00.0", "2")) },
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, j := with(t, healthy())
			s.put(nvswitch("0000:86:00.0", "2"))
			s.read()
			c.lose(s)
			s.read()
			if got := said(t, j); len(got) != 0 {
				t.Errorf("after one reading: %v", got)
			}
			s.read()
			s.read()
			again := newServer(t)
			again.calm()
			again.host.Tell(j, "boot", "")
			again.put(nvswitch("0000:86:00.0", "63"))
			again.read()
			again.read()
			c.find(s)
			s.read()
			s.read()
			var got []string
			for _, ev := range said(t, j) {
				got = append(got, strings.Join([]string{ev.Type, ev.Code, ev.State, string(ev.Severity), ev.Source, ev.Attr("pci")}, " "))
			}
			if diff := cmp.Diff([]string{
				"nvswitch.missing LOST raised critical agent 0000:86:00.0", "nvswitch.missing LOST cleared info agent 0000:86:00.0",
			}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
