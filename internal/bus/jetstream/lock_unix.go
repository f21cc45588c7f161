//go:build unix

package jetstream

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrInUse is returned by Open when another process has the folder open.
var ErrInUse = errors.New("another process uses this folder")

// lock takes the folder for this process: two servers on the same files would
// destroy them. The kernel frees it when the process dies.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
