package sink

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"auspex/internal/bus"
)

// lateBus refuses a subscription once; then nothing comes.
type lateBus struct {
	bus.Subscriber
	asked int
}

func (b *lateBus) Subscribe(ctx context.Context, sub bus.Subscription, _ bus.Handler) error {
	if b.asked++; b.asked == 1 {
		return errors.New("no leader")
	}
	if _, err := sub.Start(ctx, 0); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func TestHealthForgetsARefusalOnceTheTopicIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{
			bus: &lateBus{}, w: newPredictions(nil), log: slog.New(slog.DiscardHandler), metrics: m, now: time.Now, next: map[int]int64{},
		}
		s := &Sink{readers: []*reader{r}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.follow(ctx, bus.Subscription{Start: r.start}, nil) }()
		synctest.Wait()
		if s.Health() == nil {
			t.Error("healthy while nothing is read")
		}
		time.Sleep(time.Minute)
		if err := s.Health(); err != nil {
			t.Errorf("it is read, and nothing has come: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
