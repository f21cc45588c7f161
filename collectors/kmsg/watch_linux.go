package kmsg

import (
	"context"
	"os"
	"syscall"
	"time"
)

// watcher waits for changes of a file: by inotify where the kernel has one
// left, else by waiting.
type watcher struct {
	file *os.File
	buf  [4096]byte
}

// idle is the longest wait with inotify: the log may be replaced on a file
// system that does not tell.
const idle = time.Second

func watch(path string) *watcher {
	w := &watcher{}
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		return w
	}
	const mask = syscall.IN_MODIFY | syscall.IN_MOVE_SELF | syscall.IN_DELETE_SELF | syscall.IN_ATTRIB
	if _, err := syscall.InotifyAddWatch(fd, path, mask); err != nil {
		_ = syscall.Close(fd)
		return w
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	return w
}

// wait returns false when ctx is done. Without inotify it waits for poll. With
// it, changes that come close together are read in one go.
func (w *watcher) wait(ctx context.Context, poll time.Duration) bool {
	if w.file != nil {
		stop := context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
		_ = w.file.SetReadDeadline(time.Now().Add(idle))
		if ctx.Err() == nil {
			_, _ = w.file.Read(w.buf[:])
		}
		stop()
		if ctx.Err() != nil {
			return false
		}
		poll = min(poll, 5*time.Millisecond)
	}
	t := time.NewTimer(poll)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (w *watcher) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}
