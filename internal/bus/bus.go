// Package bus carries records between stages: an ordered, partitioned log per
// topic. Sub-packages implement it on NATS JetStream (jetstream, the embedded
// default), Apache Kafka (kafka) and memory (mem, for tests); bustest is the
// suite that all of them pass.
package bus

import (
	"context"
	"errors"
	"hash/fnv"
	"time"
)

// Errors of every bus.
var (
	// ErrClosed is returned by operations on a bus that was closed.
	ErrClosed = errors.New("bus is closed")
	// ErrTooLarge is returned for a message that the bus cannot carry; sending it
	// again is of no use.
	ErrTooLarge = errors.New("message is too large for the bus")
)

// Message is one record on a topic.
type Message struct {
	Topic     string
	Key       string // the server or switch; equal keys keep their order
	Value     []byte // owned by the bus after Publish, by the handler until it returns
	Partition int
	Offset    int64 // first is 0; grows by at least 1 within a partition
	Time      time.Time
}

// Publisher appends to topics.
type Publisher interface {
	// Publish returns when every message is durable, or an error when it is not
	// known that all of them are. It blocks while the bus is full. Topic, Key
	// and Value of each message are used.
	Publish(ctx context.Context, msgs ...Message) error
}

// Subscriber reads topics.
type Subscriber interface {
	// Subscribe calls handle with batches of one partition, in order, until ctx
	// is done (nil) or handle or the bus fails (the error). Batches of different
	// partitions may be handled at the same time. The next batch of a
	// partition is not handed out before handle returns: that is the
	// back-pressure.
	Subscribe(ctx context.Context, sub Subscription, handle Handler) error
	// Partitions returns how many partitions a topic has.
	Partitions(ctx context.Context, topic string) (int, error)
}

// Bus is both ends of a bus and its life.
type Bus interface {
	Publisher
	Subscriber
	Close() error
}

// Handler handles consecutive messages of one partition.
type Handler func(ctx context.Context, msgs []Message) error

// Subscription says what to read and from where.
type Subscription struct {
	Topic string
	// Group names the reader. Without Start, its position is kept by the bus and
	// moves when handle returns nil: at-least-once. A new group starts at the
	// oldest message, or at the newest with FromNewest. An empty group without
	// Start reads from the newest message and keeps no position.
	Group      string
	FromNewest bool
	// Start, when set, gives the first offset to read of a partition; the caller
	// keeps the position itself, next to what it has stored, and Group is only the
	// reader's name in metrics. A start that has been removed by retention, or that
	// lies beyond the end of a log that was begun anew, begins at the oldest message.
	Start func(ctx context.Context, partition int) (int64, error)
	// MaxBatch bounds a batch in messages; 0 means 256.
	MaxBatch int
	// MaxWait bounds how long a batch is gathered; 0 hands out what is there.
	MaxWait time.Duration
	// Partitions limits the subscription; empty means all.
	Partitions []int
}

// PartitionFor maps a key to one of n partitions (FNV-1a), the same for every
// implementation.
func PartitionFor(key string, n int) int {
	if n <= 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(n))
}
