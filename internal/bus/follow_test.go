package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"auspex/internal/bus"
)

// brokenBus breaks off so many subscriptions, then is closed.
type brokenBus struct {
	bus.Subscriber
	breaks int
	asked  []time.Time
}

var errNoLeader = errors.New("no leader")

func (b *brokenBus) Subscribe(context.Context, bus.Subscription, bus.Handler) error {
	b.asked = append(b.asked, time.Now())
	if len(b.asked) > b.breaks {
		return bus.ErrClosed
	}
	return errNoLeader
}

func TestAReaderFollowsWithGrowingPausesUntilTheBusIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, broken := &brokenBus{breaks: 20}, 0
		err := bus.Follow(t.Context(), b, bus.Subscription{Topic: "x"}, slog.New(slog.DiscardHandler), nil, func(err error) {
			if !errors.Is(err, errNoLeader) {
				t.Error(err)
			}
			broken++
		})
		if !errors.Is(err, bus.ErrClosed) || broken != b.breaks {
			t.Errorf("%v after %d reasons", err, broken)
		}
		last := time.Duration(0)
		for i, at := range b.asked[1:] {
			pause := at.Sub(b.asked[i])
			if pause < last || pause == 0 || pause > 5*time.Second {
				t.Errorf("pause %d is %s after %s", i, pause, last)
			}
			last = pause
		}
	})
}

func TestAReaderThatIsToldToStopEndsInItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Second, cancel)
		if err := bus.Follow(ctx, &brokenBus{breaks: 1000}, bus.Subscription{}, slog.New(slog.DiscardHandler), nil); err != nil {
			t.Error(err)
		}
	})
}
