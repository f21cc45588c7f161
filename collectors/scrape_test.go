package collectors

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"auspex/schemas"
)

// A device that rings is read soon, not more often than once a second however it rings, and at its own moments as ever.
func TestADeviceThatRingsIsReadSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bell := make(chan struct{}, 1)
		var mu sync.Mutex
		var read []time.Duration
		began := time.Now()
		cfg := &fakeConfig{run: func(ctx context.Context, _ schemas.Resource, out Emitter) error {
			return ScrapeOnBell(time.Minute, 0, bell, func(context.Context, Emitter) error {
				mu.Lock()
				defer mu.Unlock()
				read = append(read, time.Since(began))
				return nil
			}).Run(ctx, out)
		}}
		rc := DefaultRunnerConfig()
		rc.StartSpread = 0
		r := NewRunner(rc, map[string]Config{"fake": cfg}, &memPublisher{}, Settings{})
		if err := r.Reconcile(servers("s1")); err != nil {
			t.Fatal(err)
		}
		stop := begin(t, r)
		defer stop()
		take := func() []time.Duration {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			out := slices.Clone(read)
			read = nil
			return out
		}
		time.Sleep(2 * time.Minute)
		own := take()
		if len(own) != 2 || own[1]-own[0] != time.Minute {
			t.Fatalf("read at %v", own)
		}
		rung := time.Since(began)
		bell <- struct{}{}
		time.Sleep(time.Millisecond)
		if got := take(); len(got) != 1 || got[0] != rung {
			t.Errorf("rung at %s, read at %v", rung, got)
		}
		for range 100 { // for ten seconds
			select {
			case bell <- struct{}{}:
			default:
			}
			time.Sleep(100 * time.Millisecond)
		}
		got := take()
		if len(got) > 12 || len(got) < 9 {
			t.Errorf("a device that rings without end is read %d times in ten seconds", len(got))
		}
		time.Sleep(2 * time.Minute)
		for _, at := range take() {
			if (at-own[0])%time.Minute != 0 && at-rung > 12*time.Second {
				t.Errorf("read at %s, and its moment is %s of the minute", at, own[0])
			}
		}
	})
}
