// Package mem is a bus in memory, for tests. It keeps everything until it is
// closed and never refuses a message that is small enough.
package mem

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"auspex/internal/bus"
)

// MaxMessageBytes is the largest value that the bus carries.
const MaxMessageBytes = 8 << 20

// Bus is a bus in memory.
type Bus struct {
	partitions int
	metrics    *bus.Metrics
	log        *slog.Logger

	mu        sync.Mutex
	topics    map[string][]*partition
	positions map[string]int64 // "group\x00topic\x00partition"
	done      chan struct{}
	closed    bool
}

type partition struct {
	mu    sync.Mutex
	msgs  []bus.Message
	grown chan struct{} // closed at the next append
}

var _ bus.Bus = (*Bus)(nil)

// New returns an empty bus whose topics have the given number of partitions.
func New(partitions int) *Bus {
	return &Bus{
		partitions: max(partitions, 1), metrics: bus.NewMetrics(nil), log: slog.New(slog.DiscardHandler),
		topics: map[string][]*partition{}, positions: map[string]int64{}, done: make(chan struct{}),
	}
}

func (b *Bus) topic(name string) ([]*partition, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, bus.ErrClosed
	}
	ps := b.topics[name]
	if ps == nil {
		for range b.partitions {
			ps = append(ps, &partition{grown: make(chan struct{})})
		}
		b.topics[name] = ps
	}
	return ps, nil
}

// Publish appends the messages. It returns [bus.ErrTooLarge] and appends nothing
// when one of them is too large.
func (b *Bus) Publish(ctx context.Context, msgs ...bus.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range msgs {
		if len(msgs[i].Value) > MaxMessageBytes {
			return fmt.Errorf("publish to %s: %d bytes: %w", msgs[i].Topic, len(msgs[i].Value), bus.ErrTooLarge)
		}
	}
	start := time.Now()
	for i := range msgs {
		ps, err := b.topic(msgs[i].Topic)
		if err != nil {
			return err
		}
		n := bus.PartitionFor(msgs[i].Key, len(ps))
		p := ps[n]
		p.mu.Lock()
		m := msgs[i]
		m.Value = slices.Clone(m.Value)
		m.Partition, m.Offset, m.Time = n, int64(len(p.msgs)), start
		p.msgs = append(p.msgs, m)
		close(p.grown)
		p.grown = make(chan struct{})
		p.mu.Unlock()
	}
	b.metrics.Published(msgs, start, nil)
	return nil
}

// Partitions returns the number of partitions.
func (b *Bus) Partitions(context.Context, string) (int, error) { return b.partitions, nil }

// Subscribe reads a topic.
func (b *Bus) Subscribe(ctx context.Context, sub bus.Subscription, handle bus.Handler) error {
	ps, err := b.topic(sub.Topic)
	if err != nil {
		return err
	}
	return bus.Read(ctx, &topicLog{b, sub.Topic, ps}, sub, b.metrics, b.log, handle)
}

// Close ends every subscription with [bus.ErrClosed].
func (b *Bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.done)
	}
	return nil
}

type topicLog struct {
	b    *Bus
	name string
	ps   []*partition
}

func (l *topicLog) Partitions(context.Context) (int, error) { return len(l.ps), nil }

func (l *topicLog) part(n int) (*partition, error) {
	if n < 0 || n >= len(l.ps) {
		return nil, fmt.Errorf("topic %s has no partition %d", l.name, n)
	}
	return l.ps[n], nil
}

func (l *topicLog) Bounds(_ context.Context, n int) (first, next int64, err error) {
	p, err := l.part(n)
	if err != nil {
		return 0, 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return 0, int64(len(p.msgs)), nil
}

func (l *topicLog) key(group string, n int) string {
	return fmt.Sprintf("%s\x00%s\x00%d", group, l.name, n)
}

func (l *topicLog) Position(_ context.Context, group string, n int) (int64, bool, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	at, ok := l.b.positions[l.key(group, n)]
	return at, ok, nil
}

func (l *topicLog) Commit(_ context.Context, group string, n int, next int64) error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.b.positions[l.key(group, n)] = next
	return nil
}

func (l *topicLog) Fetch(ctx context.Context, n int, offset int64, limit int, wait time.Duration) ([]bus.Message, int64, error) {
	p, err := l.part(n)
	if err != nil {
		return nil, 0, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		p.mu.Lock()
		grown, have := p.grown, int64(len(p.msgs))
		if offset < have {
			end := min(offset+int64(limit), have)
			msgs := slices.Clone(p.msgs[offset:end])
			p.mu.Unlock()
			return msgs, have - end, nil
		}
		p.mu.Unlock()
		select {
		case <-grown:
		case <-timer.C:
			return nil, 0, nil
		case <-l.b.done:
			return nil, 0, bus.ErrClosed
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}
