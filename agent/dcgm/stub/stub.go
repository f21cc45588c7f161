// Package stub is a library in the place of DCGM's, with the hostengine behind it, for tests: C that is compiled when it is
// wanted, with the headers that come with go-dcgm. The comment of library/dcgm.c says how a machine is described.
package stub

import (
	_ "embed" // the library's source
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"auspex/agent/nvml/stub"
)

//go:embed library/dcgm.c
var source []byte

// Env names the file that describes the machine to the library.
const Env = "AUSPEX_DCGM_STUB"

// Compile writes the library to a folder and returns its path. It needs gcc and the source of go-dcgm.
func Compile(dir string) (string, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm").Output()
	if err != nil {
		return "", fmt.Errorf("find go-dcgm: %w", err)
	}
	src, out := filepath.Join(dir, "dcgm.c"), filepath.Join(dir, "libdcgm.so.4")
	if err := os.WriteFile(src, source, 0o600); err != nil {
		return "", err
	}
	headers := filepath.Join(strings.TrimSpace(string(module)), "pkg", "dcgm")
	// go-dcgm opens the library by its soname.
	args := []string{
		"-std=gnu11", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-I", headers, "-Wl,-soname,libdcgm.so.4", "-o", out, src, "-lpthread",
	}
	if msg, err := exec.Command("gcc", args...).CombinedOutput(); err != nil { //nolint:gosec // our own file
		return "", fmt.Errorf("gcc: %w: %s", err, msg)
	}
	return out, nil
}

// New describes a machine with GPUs in a file, which [Env] is to name to the library. Its boards are those of NVML's stub,
// in the reverse order: DCGM's numbers are not ours.
func New(path string, gpus int) *stub.Machine {
	m := stub.Describe(path)
	for i := range gpus {
		m.Say("gpu %d GPU-5f1c6d1e-0000-4a3b-8c11-%012x 00000000:%02X:00.0", gpus-1-i, i, 0x1b+0x11*i)
	}
	return m
}
