//go:build !linux

package kmsg

import (
	"context"
	"time"
)

type watcher struct{}

func watch(string) *watcher { return &watcher{} }

// wait returns false when ctx is done.
func (*watcher) wait(ctx context.Context, poll time.Duration) bool {
	t := time.NewTimer(poll)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (*watcher) close() {}
