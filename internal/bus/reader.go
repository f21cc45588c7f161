package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Log is what an implementation offers for [Read]: one topic's partitions as
// logs with positions of groups beside them. Its methods are called from one
// goroutine a partition.
type Log interface {
	// Partitions returns how many partitions the topic has.
	Partitions(ctx context.Context) (int, error)
	// Bounds returns the oldest offset kept and the offset that the next message
	// will get.
	Bounds(ctx context.Context, partition int) (first, next int64, err error)
	// Position returns where a group goes on, and whether it has a position.
	Position(ctx context.Context, group string, partition int) (int64, bool, error)
	// Commit sets where a group goes on.
	Commit(ctx context.Context, group string, partition int, next int64) error
	// Fetch returns at most limit messages from offset on, in order, and how many
	// more there are. With nothing there it waits at most wait and returns none.
	Fetch(ctx context.Context, partition int, offset int64, limit int, wait time.Duration) (msgs []Message, more int64, err error)
}

// defaultMaxBatch is Subscription.MaxBatch when it is 0.
const defaultMaxBatch = 256

// idleWait is how long a fetch waits before it looks at its context again.
const idleWait = time.Second

// commitGrace is how long the last position of a subscription may take to
// become durable after its context was done.
const commitGrace = 2 * time.Second

// Read drives a subscription over a log: it finds where each partition begins,
// hands out batches, and moves the group's position after each. It implements
// [Subscriber.Subscribe] for every bus, so that they agree on its meaning.
func Read(ctx context.Context, l Log, sub Subscription, m *Metrics, log *slog.Logger, handle Handler) error {
	parts := sub.Partitions
	if len(parts) == 0 {
		n, err := l.Partitions(ctx)
		if err != nil {
			return ignoreDone(ctx, fmt.Errorf("subscribe to %s: %w", sub.Topic, err))
		}
		for p := range n {
			parts = append(parts, p)
		}
	}
	if sub.MaxBatch <= 0 {
		sub.MaxBatch = defaultMaxBatch
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(parts))
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() {
			err := readPartition(ctx, l, sub, p, m, log, handle)
			if err != nil {
				cancel()
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	var first error
	for err := range errs {
		if err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	return first
}

func readPartition(ctx context.Context, l Log, sub Subscription, p int, m *Metrics, log *slog.Logger, handle Handler) error {
	next, err := begin(ctx, l, sub, p, m, log)
	if err != nil {
		return ignoreDone(ctx, fmt.Errorf("subscribe to %s/%d: %w", sub.Topic, p, err))
	}
	c := m.reader(sub.Topic, sub.Group, p)
	for ctx.Err() == nil {
		msgs, more, err := l.Fetch(ctx, p, next, sub.MaxBatch, idleWait)
		if err == nil && len(msgs) > 0 && sub.MaxWait > 0 {
			msgs, more, err = gather(ctx, l, sub, p, msgs, more)
		}
		if err != nil {
			return ignoreDone(ctx, fmt.Errorf("read %s/%d at %d: %w", sub.Topic, p, next, err))
		}
		if len(msgs) == 0 {
			c.lag.Set(0)
			continue
		}
		if gap := msgs[0].Offset - next; gap > 0 {
			c.skipped.Add(float64(gap))
			log.Warn("retention removed messages before they were read", "topic", sub.Topic, "partition", p, "group", sub.Group, "messages", gap)
		}
		c.lag.Set(float64(int64(len(msgs)) + more))
		if err := handle(ctx, msgs); err != nil {
			return ignoreDone(ctx, fmt.Errorf("handle %s/%d from %d: %w", sub.Topic, p, msgs[0].Offset, err))
		}
		next = msgs[len(msgs)-1].Offset + 1
		c.messages.Add(float64(len(msgs)))
		c.lag.Set(float64(more))
		if keepsPosition(sub) {
			if err := commit(ctx, l, sub, p, next); err != nil {
				return ignoreDone(ctx, err)
			}
		}
	}
	return nil
}

// commit survives the end of ctx: what was handled must not be handled again
// after an orderly stop.
func commit(ctx context.Context, l Log, sub Subscription, p int, next int64) error {
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitGrace)
	defer cancel()
	if ctx.Err() == nil {
		cctx = ctx
	}
	err := l.Commit(cctx, sub.Group, p, next)
	if err != nil && ctx.Err() != nil && cctx == ctx {
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), commitGrace)
		defer stop()
		err = l.Commit(late, sub.Group, p, next)
	}
	if err != nil {
		return fmt.Errorf("commit %s/%d of %s: %w", sub.Topic, p, sub.Group, err)
	}
	return nil
}

// gather waits for more messages of a batch that is not full.
func gather(ctx context.Context, l Log, sub Subscription, p int, msgs []Message, more int64) ([]Message, int64, error) {
	until := time.Now().Add(sub.MaxWait)
	for len(msgs) < sub.MaxBatch {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		got, m, err := l.Fetch(ctx, p, msgs[len(msgs)-1].Offset+1, sub.MaxBatch-len(msgs), left)
		if err != nil {
			return nil, 0, err
		}
		more = m
		msgs = append(msgs, got...)
	}
	return msgs, more, nil
}

func keepsPosition(sub Subscription) bool { return sub.Group != "" && sub.Start == nil }

// begin finds the first offset to read.
func begin(ctx context.Context, l Log, sub Subscription, p int, m *Metrics, log *slog.Logger) (int64, error) {
	first, next, err := l.Bounds(ctx, p)
	if err != nil {
		return 0, err
	}
	var at int64
	switch {
	case sub.Start != nil:
		if at, err = sub.Start(ctx, p); err != nil {
			return 0, err
		}
	case sub.Group != "":
		pos, found, err := l.Position(ctx, sub.Group, p)
		if err != nil {
			return 0, err
		}
		if !found {
			pos = first
			if sub.FromNewest {
				pos = next
			}
			// A reader that starts at the newest message must find the same place
			// after a restart, even when nothing came.
			if err := l.Commit(ctx, sub.Group, p, pos); err != nil {
				return 0, err
			}
		}
		at = pos
	default:
		at = next
	}
	if at > next {
		// The log was removed and begun anew under a reader that remembers.
		m.reset(sub.Topic, sub.Group)
		log.Warn(
			"position is beyond the end of the log; reading from the oldest message", "topic", sub.Topic, "partition", p, "group", sub.Group,
			"position", at, "end", next,
		)
		return first, nil
	}
	return max(at, 0), nil
}

func ignoreDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
