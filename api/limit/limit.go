// Package limit bounds how often somebody may do something: a token bucket each, in bounded
// memory, without an allocation once a key is known.
package limit

import (
	"net/netip"
	"sync"
	"time"
)

// Limiter has a bucket for each key. It holds as many as it was made for: a new key then takes
// the place of the one that was seen the longest ago.
type Limiter[K comparable] struct {
	rate, burst float64 // tokens a second, and at most
	size        int

	mu    sync.Mutex
	at    map[K]int32
	slots []slot[K]
	// newest and oldest are the ends of the list of slots by when they were seen.
	newest, oldest int32
}

type slot[K comparable] struct {
	key          K
	tokens       float64
	seen         time.Time
	older, newer int32
}

const none = -1

// New returns a limiter for size keys, of rate a second with at most burst at once. A rate of 0
// has no limit.
func New[K comparable](rate, burst float64, size int) *Limiter[K] {
	return &Limiter[K]{rate: rate, burst: max(burst, 1), size: size, at: make(map[K]int32), newest: none, oldest: none}
}

// Allow takes a token of a key, or says how long it takes until there is one.
func (l *Limiter[K]) Allow(key K, now time.Time) (ok bool, wait time.Duration) {
	if l.rate <= 0 {
		return true, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i, known := l.at[key]
	if !known {
		i = l.place(key, now)
	} else {
		l.front(i)
	}
	s := &l.slots[i]
	if passed := now.Sub(s.seen).Seconds(); passed > 0 { // callers take the time before the lock
		s.tokens = min(l.burst, s.tokens+passed*l.rate)
		s.seen = now
	}
	if s.tokens < 1 {
		return false, time.Duration((1 - s.tokens) / l.rate * float64(time.Second))
	}
	s.tokens--
	return true, 0
}

// place makes a full bucket.
func (l *Limiter[K]) place(key K, now time.Time) int32 {
	i := int32(len(l.slots))
	if len(l.slots) < l.size {
		l.slots = append(l.slots, slot[K]{older: none, newer: none})
	} else {
		i = l.oldest
		delete(l.at, l.slots[i].key)
		l.unlink(i)
	}
	l.slots[i] = slot[K]{key: key, tokens: l.burst, seen: now, older: none, newer: none}
	l.at[key] = i
	l.link(i)
	return i
}

func (l *Limiter[K]) front(i int32) {
	if l.newest != i {
		l.unlink(i)
		l.link(i)
	}
}

func (l *Limiter[K]) link(i int32) {
	s := &l.slots[i]
	s.older, s.newer = l.newest, none
	if l.newest != none {
		l.slots[l.newest].newer = i
	}
	l.newest = i
	if l.oldest == none {
		l.oldest = i
	}
}

func (l *Limiter[K]) unlink(i int32) {
	s := &l.slots[i]
	if s.newer != none {
		l.slots[s.newer].older = s.older
	} else {
		l.newest = s.older
	}
	if s.older != none {
		l.slots[s.older].newer = s.newer
	} else {
		l.oldest = s.newer
	}
}

// Source is whom an address belongs to: itself, or in IPv6 its /64, of which one machine may use
// every address (RFC 4291, section 2.5.4).
func Source(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // an address that is none has no prefix, which is a source as well
	return p
}
