//go:build cgo

package nvml

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"auspex/internal/decode/gpuwatch"
)

func TestAGPUKeepsItsNumber(t *testing.T) {
	board := func(uuid, pci string) gpuwatch.Board { return gpuwatch.Board{UUID: uuid, PCI: pci} }
	known := map[uint32]gpuwatch.Board{0: board("a", "1b"), 1: board("b", "2a"), 2: board("c", "3c")}
	for _, c := range []struct {
		name    string
		known   map[uint32]gpuwatch.Board
		found   []gpuwatch.Board
		bus     []string
		numbers []uint32
		names   map[uint32]string
	}{
		{"the first time, by address", nil, []gpuwatch.Board{board("b", "2a"), board("a", "1b")}, nil, []uint32{1, 0}, nil},
		{"one that could not be started keeps its room", nil, []gpuwatch.Board{board("a", "1b"), board("c", "3c")}, []string{"1b", "2a", "3c"}, []uint32{0, 2}, map[uint32]string{1: "2a"}},
		{"one fell off the bus", known, []gpuwatch.Board{board("a", "1b"), board("c", "3c")}, []string{"1b", "2a", "3c"}, []uint32{0, 2}, nil},
		{"and is no more on the bus, which was numbered anew", known, []gpuwatch.Board{board("a", "1b"), board("c", "2a")}, []string{"1b", "2a"}, []uint32{0, 2}, nil},
		{"a board was replaced", known, []gpuwatch.Board{board("a", "1b"), board("x", "2a"), board("c", "3c")}, nil, []uint32{0, 1, 2}, nil},
		{"another machine with the same disk", known, []gpuwatch.Board{board("x", "51"), board("y", "61"), board("z", "71")}, []string{"51", "61", "71"}, []uint32{0, 1, 2}, nil},
		{"one does not say who it is", known, []gpuwatch.Board{board("a", "1b"), {}, board("c", "3c")}, []string{"1b", "2a", "3c"}, []uint32{0, 1, 2}, nil},
		{"nobody says so, the first time", nil, []gpuwatch.Board{{}, {}}, nil, []uint32{0, 1}, nil},
		{"one does not say so, the first time", nil, []gpuwatch.Board{board("a", "1b"), {}, board("c", "3c")}, []string{"1b", "2a", "3c"}, []uint32{0, 1, 2}, map[uint32]string{1: "2a"}},
		{"and another is not listed", nil, []gpuwatch.Board{board("a", "1b"), {}}, []string{"1b", "2a", "3c"}, []uint32{0, 3}, map[uint32]string{1: "2a", 2: "3c"}},
		{"one is new", known, []gpuwatch.Board{board("d", "00"), board("a", "1b"), board("b", "2a"), board("c", "3c")}, nil, []uint32{3, 0, 1, 2}, nil},
		{"some are only expected", map[uint32]gpuwatch.Board{0: {}, 1: {}}, []gpuwatch.Board{board("a", "1b")}, nil, []uint32{0}, nil},
	} {
		numbers, names := settle(c.known, c.found, c.bus)
		if !slices.Equal(numbers, c.numbers) || !maps.Equal(names, c.names) {
			t.Errorf("%s: %v %v, want %v %v", c.name, numbers, names, c.numbers, c.names)
		}
	}
}

func TestGPUsOnTheBusAreThoseOfTheDriver(t *testing.T) {
	sys := t.TempDir()
	for addr, d := range map[string][3]string{
		"0000:1b:00.0": {"0x10de", "0x030200", "nvidia"}, "0000:2a:00.0": {"0x10de", "0x030000", "nvidia"},
		"0000:03:00.0": {"0x10de", "0x068000", "nvidia-nvswitch"}, "0000:3c:00.0": {"0x10de", "0x030200", "vfio-pci"}, "0000:00:1f.0": {"0x8086", "0x030000", "i915"},
	} {
		dir := filepath.Join(sys, "bus/pci/devices", addr)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]string{"vendor": d[0], "class": d[1]} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(v+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("../../../bus/pci/drivers/"+d[2], filepath.Join(dir, "driver")); err != nil {
			t.Fatal(err)
		}
	}
	if got := onBus(sys); !slices.Equal(got, []string{"0000:1b:00.0", "0000:2a:00.0"}) {
		t.Error(got)
	}
	if got := onBus(filepath.Join(sys, "none")); got != nil {
		t.Error(got)
	}
}
