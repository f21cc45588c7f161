package redfish

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/bus"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// answered keeps the events that a runner publishes.
type answered struct {
	mu     sync.Mutex
	events []schemas.Event
}

func (h *answered) Publish(_ context.Context, msgs ...bus.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range msgs {
		var b auspexv1.Batch
		if err := b.UnmarshalVT(m.Value); err != nil {
			return err
		}
		for _, e := range b.Events {
			h.events = append(h.events, schemas.EventFromWire(e))
		}
	}
	return nil
}

func (h *answered) await(t *testing.T, state string) (found schemas.Event) {
	t.Helper()
	waittest.For(t, collectors.LossBMC+" that is "+state, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		i := slices.IndexFunc(h.events, func(e schemas.Event) bool { return e.Type == collectors.LossBMC && e.State == state })
		if i >= 0 {
			found = h.events[i]
		}
		return i >= 0
	})
	return found
}

// A controller whose answers are cut, while it says truly of what has not changed
// that it has not, is lost: nothing is learnt of its server.
func TestAControllerThatGarblesForLongIsToldAsLost(t *testing.T) {
	for _, input := range []string{"testdata/gh200/input", "testdata/r750/input"} {
		t.Run(input, func(t *testing.T) {
			tree := openTree(t, input)
			var garble atomic.Bool
			url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if p := r.URL.Path; !strings.Contains(p, "/Systems") && !strings.Contains(p, "/LogServices") {
					r.Header.Del("If-None-Match") // as if a reading were a little different each time
				}
				rec := httptest.NewRecorder()
				tree.ServeHTTP(rec, r)
				body := rec.Body.Bytes()
				if garble.Load() && r.Method == http.MethodGet {
					body = body[:len(body)/2]
				}
				maps.Copy(w.Header(), rec.Header())
				w.WriteHeader(rec.Code)
				_, _ = w.Write(body)
			}))
			cfg := DefaultConfig()
			cfg.Interval, cfg.SensorInterval, cfg.Jitter = 20*time.Millisecond, 20*time.Millisecond, 0
			rc := collectors.DefaultRunnerConfig()
			rc.StartSpread, rc.BackoffMin, rc.BackoffMax, rc.LostAfter = 0, time.Millisecond, 10*time.Millisecond, 20*time.Millisecond
			out := &answered{}
			s := collectortest.Settings()
			s.Now = time.Now
			r := collectors.NewRunner(rc, map[string]collectors.Config{Name: cfg}, out, s)
			if err := r.Reconcile([]schemas.Resource{target(url)}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			ready := make(chan struct{})
			go func() { done <- r.Run(ctx, func() { close(ready) }) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			<-ready
			waittest.For(t, "the controller is discovered, and read a few times", func() bool { return tree.Requests.Load() > 100 })
			garble.Store(true)
			ev := out.await(t, schemas.StateRaised)
			if ev.Attrs["reason"] != "protocol" || !strings.HasPrefix(ev.Message, "answers, but not so that it can be understood: ") {
				t.Errorf("%+v", ev)
			}
			garble.Store(false)
			out.await(t, schemas.StateCleared)
		})
	}
}
