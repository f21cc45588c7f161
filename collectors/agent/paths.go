package agent

import "sync"

const (
	maxShared = 1 << 16 // paths that are known of all agents together
	maxPaths  = 1 << 13 // that one agent brings; what it brings beyond is found anew each time
)

// paths are what the paths of agents stand for. Servers are alike: thousands of agents share
// what each would have for itself.
type paths struct {
	mu     sync.RWMutex
	leaves map[string]*leaf
}

func newPaths() *paths { return &paths{leaves: map[string]*leaf{}} }

func (p *paths) find(key []byte) *leaf {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.leaves[string(key)]
}

func (p *paths) keep(key []byte, l *leaf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.leaves) < maxShared {
		p.leaves[string(key)] = l
	}
}
