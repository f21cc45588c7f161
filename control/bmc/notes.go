package bmc

import "sync"

// notes are what is known of steps beside what can be read now, by their ids. A restart of control loses them.
type notes[T any] struct {
	mu sync.Mutex
	of map[string]*T
}

// about returns what is noted of a step, to be read and written by whoever does it.
func (n *notes[T]) about(id string) *T {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of == nil {
		n.of = map[string]*T{}
	}
	if n.of[id] == nil {
		n.of[id] = new(T)
	}
	return n.of[id]
}

// forget drops what is noted of a step that has ended.
func (n *notes[T]) forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, id)
}
