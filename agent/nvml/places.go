//go:build cgo

package nvml

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"auspex/internal/decode/gpuwatch"
)

// onBus returns the addresses of the GPUs on the PCI bus that NVIDIA's driver has: also of
// those that the library does not list, since they could not be started.
func onBus(sys string) []string {
	dir := filepath.Join(sys, "bus/pci/devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		word := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(dir, e.Name(), name))
			return strings.TrimSpace(string(b))
		}
		driver, _ := os.Readlink(filepath.Join(dir, e.Name(), "driver"))
		class := word("class") // 0300 is VGA, 0302 a 3D controller (PCI Code and ID Assignment)
		if filepath.Base(driver) == "nvidia" && word("vendor") == "0x10de" && (strings.HasPrefix(class, "0x0300") || strings.HasPrefix(class, "0x0302")) {
			out = append(out, gpuwatch.PCI(e.Name()))
		}
	}
	return out
}

// settle gives each GPU the number that it keeps. A GPU has that of its board, wherever that
// is now (a bus may be numbered anew when something on it died), else that of its address,
// where a board was replaced, else that of one which is no more on the bus, else the next by
// its address; so one that falls off the bus renames no other. It returns the numbers of the
// found in their order, and the addresses of those that are new and have not told theirs.
func settle(known map[uint32]gpuwatch.Board, found []gpuwatch.Board, bus []string) (numbers []uint32, names map[uint32]string) {
	numbers, names = make([]uint32, len(found)), map[uint32]string{}
	placed, taken := make([]bool, len(found)), map[uint32]bool{}
	place := func(i int, n uint32) { numbers[i], placed[i], taken[n] = n, true, true }
	order := make([]uint32, 0, len(known))
	for n := range known {
		order = append(order, n)
	}
	slices.Sort(order)
	match := func(same func(found, known gpuwatch.Board) bool) {
		for i, f := range found {
			for _, n := range order {
				if !placed[i] && !taken[n] && same(f, known[n]) {
					place(i, n)
				}
			}
		}
	}
	match(func(f, k gpuwatch.Board) bool { return f.UUID != "" && f.UUID == k.UUID })
	match(func(f, k gpuwatch.Board) bool { return f.PCI != "" && f.PCI == k.PCI })
	match(func(_, k gpuwatch.Board) bool { return k.PCI != "" && !slices.Contains(bus, k.PCI) && len(bus) > 0 })
	match(func(f, _ gpuwatch.Board) bool { return f == gpuwatch.Board{} }) // it has not told: one that nobody else is

	// The rest are new: those that were found, and those that are on the bus alone.
	type arrival struct {
		pci string
		at  int // in found; -1 is on the bus alone
	}
	var rest []arrival
	var silent []int // of rest
	for i, f := range found {
		if placed[i] {
			continue
		}
		if f.PCI == "" {
			silent = append(silent, len(rest))
		}
		rest = append(rest, arrival{f.PCI, i})
	}
	var alone []string
	for _, pci := range bus {
		has := func(b gpuwatch.Board) bool { return b.PCI == pci }
		if !slices.ContainsFunc(found, has) && !slices.ContainsFunc(order, func(n uint32) bool { return has(known[n]) }) {
			alone = append(alone, pci)
		}
	}
	slices.Sort(alone)
	for k, pci := range alone {
		if len(silent) == len(alone) { // who has not told its address is at one that is left; the library lists them by address
			rest[silent[k]].pci = pci
		} else {
			rest = append(rest, arrival{pci, -1})
		}
	}
	slices.SortStableFunc(rest, func(a, b arrival) int {
		if a.pci == "" || b.pci == "" { // who has not told its address comes last
			return strings.Compare(b.pci, a.pci)
		}
		return strings.Compare(a.pci, b.pci)
	})
	next := uint32(0)
	for _, r := range rest {
		for taken[next] || known[next].PCI != "" {
			next++
		}
		if taken[next] = true; r.at >= 0 {
			numbers[r.at] = next
		}
		if r.at < 0 || found[r.at].PCI != r.pci {
			names[next] = r.pci
		}
	}
	return numbers, names
}
