// Package stub is a library in NVML's place, for tests and measurements: C that is compiled
// when it is wanted, over a machine that its user describes. The comment of library/nvml.c says how.
package stub

import (
	_ "embed" // the library's source
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

//go:embed library/nvml.c
var source []byte

// Env names the file that describes the machine to the library.
const Env = "AUSPEX_NVML_STUB"

// Compile writes the library to a folder and returns its path. Old is one of 2018. It needs gcc.
func Compile(dir string, old bool) (string, error) {
	src, out := filepath.Join(dir, "nvml.c"), filepath.Join(dir, "libnvidia-ml.so.1")
	if err := os.WriteFile(src, source, 0o600); err != nil {
		return "", err
	}
	args := []string{"-std=gnu11", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", out, src, "-lpthread"}
	if old {
		args = append(args, "-DOLD")
	}
	if msg, err := exec.Command("gcc", args...).CombinedOutput(); err != nil { //nolint:gosec // our own file
		return "", fmt.Errorf("gcc: %w: %s", err, msg)
	}
	return out, nil
}

// Machine is what the library says there is.
type Machine struct {
	path string

	mu    sync.Mutex
	lines []string
	xids  int
}

// New describes a machine with GPUs in a file, which [Env] is to name to the library.
func New(path string, gpus int) *Machine {
	m := Describe(path)
	m.Say("gpus %d", gpus)
	return m
}

// Describe describes a machine of which nothing is said yet.
func Describe(path string) *Machine { return &Machine{path: path} }

// Path is the file.
func (m *Machine) Path() string { return m.path }

// Say adds a line of the description.
func (m *Machine) Say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, fmt.Sprintf(format, args...))
	m.write()
}

// Unsay takes a line away.
func (m *Machine) Unsay(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	kept := m.lines[:0]
	for _, l := range m.lines {
		if l != line {
			kept = append(kept, l)
		}
	}
	m.lines = kept
	m.write()
}

// XID has a GPU tell of an XID.
func (m *Machine) XID(gpu, code int) {
	m.mu.Lock()
	m.xids++
	n := m.xids
	m.mu.Unlock()
	m.Say("xid %d %d %d", n, gpu, code)
}

// write replaces the file at once: the library never sees half of it.
func (m *Machine) write() {
	next := m.path + ".next"
	if err := os.WriteFile(next, []byte(strings.Join(m.lines, "\n")+"\n"), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(next, m.path); err != nil {
		panic(err)
	}
}
