//go:build linux

package jetstream_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/internal/bus"
	"auspex/internal/bus/jetstream"
	"auspex/internal/waittest"
)

// The server gives a stream up for good when a write of it has failed. A limit on
// the size of files stands for a disk that is full, and has space again.
func TestAFullDiskStopsTheBusOnlyWhileItIsFull(t *testing.T) {
	c := jetstream.DefaultConfig()
	reg := prometheus.NewRegistry()
	c.Dir, c.Partitions, c.PublishTimeout, c.Metrics = t.TempDir(), 1, 2*time.Second, reg
	b := open(t, c)
	defer func() { _ = b.Close() }()
	value := func(n int) bus.Message {
		return bus.Message{Topic: "t", Key: "k", Value: fmt.Appendf(nil, "%d %2000d", n, n)}
	}
	signal.Ignore(syscall.SIGXFSZ)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	set := func(size uint64) {
		t.Helper()
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
	}
	defer set(was.Cur)
	set(256 << 10)
	n := 0
	var err error
	for n < 10 || err == nil { // the first ones have space: a failure of theirs is a machine that stood still
		if err = b.Publish(t.Context(), value(n)); err == nil {
			n++
		}
	}
	set(was.Cur)
	waittest.Until(t, func() error { return b.Publish(t.Context(), value(n)) }) // the disk has space again
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	want := 0
	err = b.Subscribe(ctx, bus.Subscription{Topic: "t", Group: "g"}, func(_ context.Context, msgs []bus.Message) error {
		for _, m := range msgs {
			var got int
			if _, err := fmt.Sscan(string(m.Value), &got); err != nil {
				return err
			}
			if got != want && got != want-1 { // the one that was refused may be there twice
				return fmt.Errorf("got %d, want %d", got, want)
			}
			if want = got + 1; want > n {
				cancel()
			}
		}
		return nil
	})
	if err != nil || want <= n {
		t.Errorf("read up to %d of %d: %v", want, n, err)
	}
	if problems, err := testutil.GatherAndCount(reg, "auspex_bus_reopened_total"); err != nil || problems != 1 {
		t.Errorf("reopening is not counted: %v", err)
	}
}
