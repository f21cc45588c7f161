package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// quiet is how long no request may fail before brokers that answer count as well:
// while one of several is away, its partitions fail and the others do not.
const quiet = 5 * time.Second

// watch sees every request to the brokers, and knows whether they answer.
type watch struct {
	*kafkago.Transport

	mu       sync.Mutex
	err      error
	since    time.Time // of the failures
	last     time.Time
	answered bool // since the last failure
}

// RoundTrip implements [kafkago.RoundTripper].
func (w *watch) RoundTrip(ctx context.Context, addr net.Addr, req kafkago.Request) (kafkago.Response, error) {
	res, err := w.Transport.RoundTrip(ctx, addr, req)
	if req.ApiKey() != protocol.Metadata { // which is answered from memory
		w.note(err)
	}
	return res, err
}

func (w *watch) note(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.answered = true
		return
	}
	now := time.Now()
	if w.err == nil || w.answered && now.Sub(w.last) > quiet {
		w.since = now
	}
	w.err, w.last, w.answered = err, now, false
}

func (w *watch) failing() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil || w.answered && time.Since(w.last) > quiet {
		return time.Time{}, nil
	}
	return w.since, w.err
}

// Health returns since when and why requests to the brokers fail, or nil.
func (b *Bus) Health() error {
	since, err := b.trans.failing()
	if err == nil {
		return nil
	}
	return fmt.Errorf("Kafka at %s has not answered since %s: %w", strings.Join(b.cfg.Brokers, ", "), since.UTC().Format(time.TimeOnly), err) //nolint:revive,staticcheck // a name
}
