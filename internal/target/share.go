package target

import (
	"runtime"
	"strings"
	"sync"
	"weak"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// place is where a leaf is. Those of all trees of a process share it: a simulator has a thousand machines with the same leaves.
type place struct {
	path *gpb.Path
	name string // the path as written
}

// shared are values by their text, each for as long as somebody has it. Nobody may change them.
type shared[T any] struct {
	mu sync.Mutex
	of map[string]weak.Pointer[T]
}

// keep returns the value of a text: that which is there, or else this one.
func (s *shared[T]) keep(text string, v *T) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.of[text].Value(); have != nil {
		return have
	}
	if s.of == nil {
		s.of = map[string]weak.Pointer[T]{}
	}
	text = strings.Clone(text)
	s.of[text] = weak.Make(v)
	runtime.AddCleanup(v, s.forget, text)
	return v
}

// have returns the value of a text, or nil.
func (s *shared[T]) have(text string) *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[text].Value()
}

// forget drops a value that nobody has, unless another has come in its place.
func (s *shared[T]) forget(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[text].Value() == nil {
		delete(s.of, text)
	}
}

var (
	places   shared[place]
	elements shared[gpb.PathElem] // of paths: all leaves of a GPU are below the same
)

// placeOf reads a path.
func placeOf(name string) (*place, error) {
	if have := places.have(name); have != nil {
		return have, nil
	}
	path, err := parsePath(name, elements.keep)
	if err != nil {
		return nil, err
	}
	return places.keep(name, &place{path, strings.Clone(name)}), nil
}
