// Package stub is a library in the place of CUDA's driver, for tests: C that is compiled when it is
// wanted, over a file that says how it behaves. The comment of library/cuda.c says what stands in it.
package stub

import (
	_ "embed" // the library's source
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed library/cuda.c
var source []byte

// Env names the file that says how the library behaves.
const Env = "AUSPEX_CUDA_STUB"

// Compile writes the library to a folder and returns its path. It needs gcc.
func Compile(dir string) (string, error) {
	src, out := filepath.Join(dir, "cuda.c"), filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(src, source, 0o600); err != nil {
		return "", err
	}
	args := []string{"-std=gnu11", "-shared", "-fPIC", "-O2", "-ffp-contract=off", "-Wall", "-Werror", "-o", out, src, "-lm"}
	if msg, err := exec.Command("gcc", args...).CombinedOutput(); err != nil { //nolint:gosec // our own file
		return "", fmt.Errorf("gcc: %w: %s", err, msg)
	}
	return out, nil
}
