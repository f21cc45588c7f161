package collectors

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Try reads a target until it answers for the first time. It publishes nothing and
// moves no position; the device itself is only read, as ever.
func Try(ctx context.Context, c Config, target schemas.Resource, s Settings) error {
	s.Cursors, s.Metrics = forgetful{}, nil
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	reader, err := c.New(target, s)
	if err != nil {
		return err
	}
	reading, stop := context.WithCancel(context.WithValue(ctx, atOnce{}, true))
	defer stop()
	out := &listener{stop: stop}
	err = contain(reading, reader, out, s.Log)
	switch {
	case out.received.Load():
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return errors.New("collector ended without an error")
	}
	return err
}

// atOnce marks a context in which nobody waits for the first tick.
type atOnce struct{}

// listener ends the reading at the first sign of life.
type listener struct {
	stop     context.CancelFunc
	received atomic.Bool
}

// Emit implements [Emitter].
func (l *listener) Emit(ctx context.Context, _ *auspexv1.Batch) error {
	l.contact()
	return ctx.Err()
}

func (l *listener) contact() {
	l.received.Store(true)
	l.stop()
}

// forgetful knows no position and keeps none.
type forgetful struct{}

// Cursor implements [Cursors].
func (forgetful) Cursor(context.Context, string, string) (string, error) { return "", nil }

// SetCursor implements [Cursors].
func (forgetful) SetCursor(context.Context, string, string, string) error { return nil }
