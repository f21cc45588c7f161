// Package filewatch waits until a file may have changed: one that others write, replace and
// remove, and that need not be there yet. The kernel tells where it can (inotify(7)); on other
// file systems, as those of a network, the file is looked at now and then.
package filewatch

import (
	"context"
	"time"
)

// breath is how long changes are awaited that come close after one another.
const breath = 5 * time.Millisecond

// Watch is of one file. It is for use by one goroutine, in this order again and again: Arm, look
// at the file, Wait.
type Watch struct {
	path       string
	poll, idle time.Duration
	told       bool          // the kernel tells of what happens since it was armed
	changed    chan struct{} // holds one

	notices
}

// New returns a watch of a path. Where the kernel does not tell of changes Wait takes poll, and
// where it does at most idle: it may not tell of all. It performs no I/O.
func New(path string, poll, idle time.Duration) *Watch {
	return &Watch{path: path, poll: poll, idle: max(poll, idle), changed: make(chan struct{}, 1)}
}

// Arm has Wait return for what happens from now on.
func (w *Watch) Arm() { w.told = w.arm() }

// Wait returns when the file may have changed since Arm, and false when ctx is done.
func (w *Watch) Wait(ctx context.Context) bool {
	wait := w.poll
	if w.told {
		wait = w.idle
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-w.changed:
	}
	timer.Reset(min(w.poll, breath))
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// notify ends a Wait, or the next one.
func (w *Watch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
