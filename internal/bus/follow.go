package bus

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Follow subscribes, and again with back-off where the bus or the handler fails,
// until ctx is done (nil) or the bus is closed ([ErrClosed]). A reader that begins
// anew gets the batch that failed once more. Each time that it breaks off, broken
// is called with the reason.
func Follow(ctx context.Context, b Subscriber, sub Subscription, log *slog.Logger, handle Handler, broken ...func(error)) error {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	wait := shortest
	for {
		begun := time.Now()
		err := b.Subscribe(ctx, sub, handle)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrClosed) {
			return err
		}
		if time.Since(begun) > time.Minute {
			wait = shortest
		}
		for _, f := range broken {
			f(err)
		}
		log.Warn("subscription ended; subscribing again", "topic", sub.Topic, "group", sub.Group, "error", err)
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		wait = min(2*wait, longest)
	}
}
