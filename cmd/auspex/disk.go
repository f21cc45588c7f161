package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"auspex/internal/run"
)

// lowDisk is the free space below which a person is told, in bytes: the bus and
// the stores wait for space rather than lose anything, and say so many times.
const lowDisk = 64 << 20

// watchDisk tells in one sentence when the disk of the data folder is full, and
// when it has space again.
func (s *stack) watchDisk() run.Component {
	return run.Func("disk", func(ctx context.Context, ready func()) error {
		var low atomic.Bool
		s.health.Check("disk", func() error {
			if low.Load() {
				return errors.New("the disk of the data folder is full")
			}
			return nil
		})
		ready()
		for {
			free, err := freeBytes(s.cfg.Data)
			if err != nil {
				s.log.Warn("cannot read the free disk space", "folder", s.cfg.Data, "error", err)
			} else if full := free < lowDisk; full != low.Load() {
				low.Store(full)
				state := "has space again"
				if full {
					state = fmt.Sprintf("is full (%d MB free); free some space, or choose another folder with --data", free>>20)
				}
				fmt.Fprintf(s.err, "auspex: the disk of %s %s\n", s.cfg.Data, state)
			}
			if run.Sleep(ctx, 5*time.Second) != nil {
				return nil
			}
		}
	})
}

func freeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
