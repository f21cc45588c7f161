// Package waittest lets tests wait for what happens in its own time, with a bound:
// for a condition, never for a while.
package waittest

import (
	"fmt"
	"testing"
	"time"
)

// Patience is how long something may take on a machine that is busy with everything
// else; nothing waits for it where the condition holds sooner.
const Patience = 2 * time.Minute

// pause lies between two looks at a condition.
const pause = 5 * time.Millisecond

// Until waits until check returns nil. It ends the test with what check said last
// when [Patience] has passed.
func Until(t testing.TB, check func() error) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(pause) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %v", Patience, err)
		}
	}
}

// For is [Until] of a condition that has nothing more to say than its name.
func For(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Until(t, func() error {
		if !ok() {
			return fmt.Errorf("%s", what)
		}
		return nil
	})
}
