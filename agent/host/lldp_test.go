package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lldpd is a server where lldpd runs, and lldpcli is a script.
func (s *server) lldpd(script string) {
	s.t.Helper()
	s.put(map[string]string{"run/lldpd.socket": "", "lldpcli": "#!/bin/sh\n" + script})
	if err := os.Chmod(s.path("lldpcli"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.source("lldp neighbors").(*lldp).command = s.path("lldpcli")
}

// recordedLLDP is the answer of lldpcli 1.0.16 beside a switch with two ports.
func recordedLLDP(t testing.TB) string {
	t.Helper()
	path, err := filepath.Abs("testdata/lldpcli-1.0.16.json")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNeighboursAreTold(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.lldpd(`[ "$*" = "-u ` + s.path("run/lldpd.socket") + ` -f json0 show neighbors" ] && cat ` + recordedLLDP(t) + "\n")
	s.read()
	s.read()
	want := map[string]string{
		"name": "ens1f0np0", "chassis-id": "2a:3d:ce:70:83:b0", "system-name": "leaf-a07", "management-address": "10.20.7.1",
		"port-id": "sw1", "port-description": "Ethernet1/1 to gpu-0412",
	}
	told := s.told()
	if diff := cmp.Diff(want, below(told, "/host/lldp-neighbor[name=ens1f0np0]/state/")); diff != "" {
		t.Error(diff)
	}
	if id := told["/host/lldp-neighbor[name=ens1f1np1]/state/port-id"]; id != "06:dd:16:e6:89:97" {
		t.Errorf("port %q", id)
	}
	if text := told["/host/state/unreadable"]; text != "" {
		t.Error(text)
	}

	// Without a neighbour, and with another.
	s.lldpd(`echo '{"lldp": [{}]}'`)
	s.read()
	if left := below(s.told(), "/host/lldp-neighbor"); len(left) > 0 {
		t.Errorf("still told: %v", left)
	}
	s.lldpd(`echo '{"lldp": [{"interface": [{"name": "eth0", "chassis": [{"name": [{"value": "leaf-b"}]}]}, {"name": "eth0", "port": []}]}]}'`)
	s.read()
	want = map[string]string{"name": "eth0", "system-name": "leaf-b"}
	if diff := cmp.Diff(want, below(s.told(), "/host/lldp-neighbor[name=eth0]/state/")); diff != "" {
		t.Error(diff)
	}
}

func TestLLDPThatCannotBeReadIsSaid(t *testing.T) {
	for script, want := range map[string]string{
		"echo 'unable to connect to socket' >&2; exit 1": "unable to connect",
		"echo nonsense":             "malformed",
		"head -c 2000000 /dev/zero": "longer than",
	} {
		s := newServer(t)
		s.calm()
		s.lldpd(script)
		s.read()
		if text := s.unreadable(); !strings.Contains(text, "lldp neighbors: ") || !strings.Contains(text, want) {
			t.Errorf("%s: %q", script, text)
		}
	}
	s := newServer(t)
	s.calm()
	s.lldpd("")
	s.source("lldp neighbors").(*lldp).command = s.path("none")
	s.read()
	if text := s.unreadable(); !strings.Contains(text, "not installed") {
		t.Errorf("%q", text)
	}
}

func FuzzNeighbours(f *testing.F) {
	b, err := os.ReadFile("testdata/lldpcli-1.0.16.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		out, _ := neighbours(b)
		for _, n := range out {
			for _, c := range n.Chassis {
				c.ID.first()
			}
		}
	})
}
