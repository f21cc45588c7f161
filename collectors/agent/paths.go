package agent

import (
	"maps"
	"sync"
	"sync/atomic"
)

const (
	maxShared = 1 << 16 // paths that are known of all agents together
	maxPaths  = 1 << 13 // that one agent brings; what it brings beyond is found anew each time
)

// paths are what the paths of agents stand for. Servers are alike: thousands of agents share
// what each would have for itself, and look it up without a lock. What is new is behind one until
// it was looked for as often as there is something to copy.
type paths struct {
	settled atomic.Pointer[map[string]*leaf]

	mu     sync.Mutex
	all    map[string]*leaf
	misses int
}

func newPaths() *paths {
	p := &paths{all: map[string]*leaf{}}
	p.settled.Store(&map[string]*leaf{})
	return p
}

func (p *paths) find(key []byte) *leaf {
	if l := (*p.settled.Load())[string(key)]; l != nil {
		return l
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.all[string(key)]
	if l == nil {
		return nil
	}
	if p.misses++; p.misses >= len(p.all) {
		settled := maps.Clone(p.all)
		p.settled.Store(&settled)
		p.misses = 0
	}
	return l
}

func (p *paths) keep(key []byte, l *leaf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) < maxShared {
		p.all[string(key)] = l
	}
}
