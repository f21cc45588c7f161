// Package dedup remembers what was handled, for a bounded time and number: event
// ids, and the (epoch, sequence) of batches.
package dedup

import (
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Window remembers ids for a time, at most so many. Its methods may be called at
// the same time. It keeps 8 bytes of hash an id: of a million ids two agree by
// chance once in 37 million windows.
type Window struct {
	age   time.Duration
	limit int

	mu   sync.Mutex
	when map[uint64]int64 // hash → when it was added, Unix nanoseconds
	ring []entry          // in order of addition
	head int              // oldest entry
	n    int
}

type entry struct {
	hash uint64
	when int64
}

// New returns a window of an age and a number of ids.
func New(age time.Duration, limit int) *Window {
	return &Window{age: age, limit: max(limit, 1), when: map[uint64]int64{}}
}

// Seen tells whether an id was added within the window.
func (w *Window) Seen(id string, now time.Time) bool {
	h := xxhash.Sum64String(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	_, ok := w.when[h]
	return ok
}

// Add remembers an id. Adding it again does not make it younger.
func (w *Window) Add(id string, now time.Time) {
	h := xxhash.Sum64String(id)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(now)
	if _, ok := w.when[h]; ok {
		return
	}
	if w.n == w.limit {
		w.drop()
	}
	if w.n == len(w.ring) {
		grown := make([]entry, min(max(2*len(w.ring), 256), w.limit))
		for i := range w.n {
			grown[i] = w.ring[(w.head+i)%len(w.ring)]
		}
		w.ring, w.head = grown, 0
	}
	w.ring[(w.head+w.n)%len(w.ring)] = entry{h, now.UnixNano()}
	w.n++
	w.when[h] = now.UnixNano()
}

// Len returns how many ids are remembered.
func (w *Window) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *Window) expire(now time.Time) {
	before := now.Add(-w.age).UnixNano()
	for w.n > 0 && w.ring[w.head].when < before {
		w.drop()
	}
}

func (w *Window) drop() {
	delete(w.when, w.ring[w.head].hash)
	w.head = (w.head + 1) % len(w.ring)
	w.n--
}

// Batches remembers the last 64 sequence numbers of each producer: what it
// publishes again after a lost acknowledgement is among them. A producer may
// publish from several goroutines, so order says nothing.
type Batches struct {
	mu   sync.Mutex
	last map[producer]sequences
}

type producer struct{ device, collector string }

// sequences holds the newest number, and in bit i of seen whether newest-i came.
type sequences struct{ epoch, newest, seen uint64 }

// maxProducers bounds the producers that are remembered.
const maxProducers = 1 << 18

// NewBatches returns an empty memory.
func NewBatches() *Batches { return &Batches{last: map[producer]sequences{}} }

// Seen tells whether a batch was added. One without an epoch is never known, nor
// is one that is further back than the memory reaches.
func (b *Batches) Seen(device, collector string, epoch, seq uint64) bool {
	if epoch == 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.last[producer{device, collector}]
	if !ok || l.epoch != epoch || seq > l.newest || l.newest-seq > 63 {
		return false
	}
	return l.seen>>(l.newest-seq)&1 == 1
}

// Add remembers a batch.
func (b *Batches) Add(device, collector string, epoch, seq uint64) {
	if epoch == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k := producer{device, collector}
	l, ok := b.last[k]
	switch {
	case !ok || l.epoch != epoch:
		if !ok && len(b.last) >= maxProducers {
			clear(b.last)
		}
		l = sequences{epoch, seq, 1}
	case seq > l.newest:
		l.seen = l.seen<<(seq-l.newest) | 1 // a shift by 64 or more leaves 0
		l.newest = seq
	case l.newest-seq <= 63:
		l.seen |= 1 << (l.newest - seq)
	}
	b.last[k] = l
}
