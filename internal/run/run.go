// Package run gives the parts of a process their life: started in order, each
// when the one before is ready; stopped in reverse, within a bound; the death of
// one ends the process with its name and its reason.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// ErrStopped is wrapped when a component returns before it was told to.
var ErrStopped = errors.New("stopped by itself")

// Component is a part of the process with a life of its own. Its constructor is
// inert.
type Component interface {
	// Name is what people read when it fails.
	Name() string
	// Run calls ready once its work has begun, blocks until ctx is done and
	// returns nil, or returns why it cannot go on.
	Run(ctx context.Context, ready func()) error
}

// Func is a Component made of a function.
func Func(name string, run func(ctx context.Context, ready func()) error) Component {
	return component{name, run}
}

type component struct {
	name string
	run  func(context.Context, func()) error
}

func (c component) Name() string                                { return c.name }
func (c component) Run(ctx context.Context, ready func()) error { return c.run(ctx, ready) }

type live struct {
	c      Component
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Group runs components until ctx is done or one of them ends, then stops those
// that run, last started first. All of them together have grace to stop; what has
// not stopped by then is named in the error and left.
func Group(ctx context.Context, log *slog.Logger, grace time.Duration, cs ...Component) error {
	var running []*live
	died := make(chan *live, len(cs))
	var err error
	for _, c := range cs {
		var l *live
		if l, err = start(ctx, c, died); l != nil {
			running = append(running, l)
		}
		if err != nil {
			break
		}
		log.Debug("component started", "component", c.Name())
	}
	if err == nil {
		select {
		case l := <-died:
			err = fmt.Errorf("%s: %w", l.c.Name(), l.err)
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	return errors.Join(err, stop(running, log, grace))
}

func start(ctx context.Context, c Component, died chan<- *live) (*live, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &live{c: c, cancel: cancel, done: make(chan struct{})}
	ready := make(chan struct{})
	var once sync.Once
	go func() {
		defer close(l.done)
		l.err = guard(own, c, func() { once.Do(func() { close(ready) }) })
		if own.Err() != nil {
			if errors.Is(l.err, context.Canceled) {
				l.err = nil
			}
			return
		}
		if l.err == nil {
			l.err = ErrStopped
		}
		died <- l
	}()
	select {
	case <-ready:
		return l, nil
	case <-l.done:
		return nil, fmt.Errorf("%s: %w", c.Name(), l.err)
	case <-ctx.Done():
		return l, ctx.Err()
	}
}

// guard turns a panic into an error, so that the others still stop in order.
func guard(ctx context.Context, c Component, ready func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return c.Run(ctx, ready)
}

func stop(running []*live, log *slog.Logger, grace time.Duration) error {
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	expired := false
	var errs []error
	var slow []string // says where the grace went
	at := time.Now()
	for i := len(running) - 1; i >= 0; i-- {
		l := running[i]
		select {
		case <-l.done: // it ended by itself: its error is known
			l.cancel()
			continue
		default:
		}
		l.cancel()
		if !expired {
			select {
			case <-l.done:
			case <-deadline.C:
				expired = true
			}
		}
		if took := time.Since(at); took >= grace/16 {
			slow = append(slow, fmt.Sprintf("%s %s", l.c.Name(), took.Round(time.Millisecond)))
		}
		at = time.Now()
		select {
		case <-l.done:
			if l.err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", l.c.Name(), l.err))
			}
			log.Debug("component stopped", "component", l.c.Name())
		default:
			errs = append(errs, fmt.Errorf("stop %s: not done within %s", l.c.Name(), grace))
		}
	}
	if expired {
		log.Warn("components took long to stop", "took", strings.Join(slow, ", "))
	}
	return errors.Join(errs...)
}
