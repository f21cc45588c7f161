// Package racetest keeps the run under the race detector to what that can find.
package racetest

import "testing"

// OneGoroutine leaves a test out of a short run, as the one under the race detector
// is: only one goroutine takes part in what it looks at, and it takes several
// seconds there or more. The run of the tests as built has all of it.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("of one goroutine, which the race detector has nothing to say of")
	}
}

// Allocations leaves a test that counts them out of a short run: under the race detector a [sync.Pool] drops
// at random what it is given.
func Allocations(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("allocations are not counted where pools drop at random")
	}
}
