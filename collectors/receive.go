package collectors

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"auspex/internal/run"
	"auspex/schemas"
)

// Listening is implemented by configurations whose devices send by themselves: one receiver
// takes in what all of them send, and gives each collector what its device sends.
type Listening interface {
	Config
	// Listen makes the receiver. It checks the configuration and performs no I/O.
	Listen(s Settings) (Receiver, error)
}

// Passive is implemented by those whose devices only send: there is nothing that they could be asked.
type Passive interface {
	Listening
	Passive()
}

// Receiver takes in what the devices of one configuration send.
type Receiver interface {
	// Place tells which resources there are: who sends is found among them. It is called before
	// New, and again when the inventory has changed.
	Place(resources []schemas.Resource)
	// New makes the collector of one target, as [Config.New] does.
	New(target schemas.Resource, s Settings) (Collector, error)
	// Run receives until ctx is done. Any other return is counted and logged, and it is called again.
	Run(ctx context.Context) error
}

// receiving is a receiver of the runner.
type receiving struct {
	Receiver
	cancel context.CancelFunc // nil before it was started
	done   chan struct{}
}

// listen makes the receiver of a configuration that has none yet; r.mu is held. It is nil where
// the configuration's devices do not send by themselves.
func (r *Runner) listen(name string) (*receiving, error) {
	c, ok := r.configs[name].(Listening)
	if !ok {
		return nil, nil
	}
	if l := r.receivers[name]; l != nil {
		return l, nil
	}
	s := r.settings
	s.Log = s.Log.With("collector", name)
	made, err := c.Listen(s)
	if err != nil {
		return nil, fmt.Errorf("collector %s: %w", name, err)
	}
	l := &receiving{Receiver: made}
	r.receivers[name] = l
	return l, nil
}

// receive runs a receiver again and again until its end; r.mu is held.
func (r *Runner) receive(name string, l *receiving) {
	if r.running == nil || l.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.running)
	l.cancel, l.done = cancel, make(chan struct{})
	log := r.log.With("collector", name)
	r.wg.Go(func() {
		defer close(l.done)
		defer cancel()
		for attempt := 0; ; attempt++ {
			began := time.Now()
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						log.Error("receiver panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
						err = fmt.Errorf("%w: %v", errPanic, p)
					}
				}()
				return l.Run(ctx)
			}()
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				err = errors.New("receiver ended without an error")
			}
			if time.Since(began) > 2*r.cfg.BackoffMax {
				attempt = 0
			}
			r.metrics.errors.WithLabelValues(name, errorKind(err)).Inc()
			log.Error("receiver stopped; trying again", "error", err)
			if run.Sleep(ctx, backoff(attempt, r.cfg.BackoffMin, r.cfg.BackoffMax)) != nil {
				return
			}
		}
	})
}

// stop ends a receiver and waits for it.
func (l *receiving) stop() {
	if l.cancel != nil {
		l.cancel()
		<-l.done
	}
}
