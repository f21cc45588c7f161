// Package embeddedtest starts the real engine for tests. A test binary that uses
// it begins its TestMain with [Main].
package embeddedtest

import (
	"os"
	"testing"
	"time"

	"auspex/internal/store/embedded"
)

// Main makes the test binary its own engine where it was started as one.
func Main() {
	if len(os.Args) > 1 && os.Args[1] == "engine" {
		os.Exit(embedded.Main(os.Args[2:]))
	}
}

// Require skips the test with the reason where the engine's library is not there,
// and fails it where AUSPEX_REQUIRE_ENGINE is 1.
func Require(t testing.TB) {
	t.Helper()
	if err := embedded.Available(); err != nil {
		if os.Getenv("AUSPEX_REQUIRE_ENGINE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// Start starts an engine on an empty directory that ends with the test.
func Start(t testing.TB) *embedded.Engine {
	t.Helper()
	return StartIn(t, t.TempDir())
}

// StartIn is Start on the given directory.
func StartIn(t testing.TB, dir string) *embedded.Engine {
	t.Helper()
	Require(t)
	cfg := embedded.DefaultConfig()
	cfg.Dir, cfg.StartTimeout = dir, 2*time.Minute // machines that test are busy
	e, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}
