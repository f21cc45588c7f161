package bmc

import (
	"context"
	"sync"
)

// Gate lets one operation at a time through to each controller. Controllers are
// small computers: a second session beside the first makes many of them fail.
// Collectors and control share one Gate, keyed by the server's id.
type Gate struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	sem   chan struct{}
	users int
}

// NewGate makes an open gate.
func NewGate() *Gate { return &Gate{held: make(map[string]*turn)} }

// Acquire waits for the turn of a controller. The caller calls release once.
func (g *Gate) Acquire(ctx context.Context, server string) (release func(), err error) {
	g.mu.Lock()
	t, ok := g.held[server]
	if !ok {
		t = &turn{sem: make(chan struct{}, 1)}
		g.held[server] = t
	}
	t.users++
	g.mu.Unlock()
	leave := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(g.held, server)
		}
	}
	select {
	case t.sem <- struct{}{}:
		var once sync.Once
		return func() {
			once.Do(func() {
				<-t.sem
				leave()
			})
		}, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
