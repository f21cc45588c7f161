// Package target is a gNMI target (gNMI specification 0.10.0): a tree of leaves that
// readers write, and the server that tells of them.
package target

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// Tree holds one value a leaf: what its machine is at this moment. Readers write
// groups of leaves ([Tree.Write]), subscribers read what changed since they last did.
// It is for use by several goroutines.
type Tree struct {
	mu     sync.Mutex
	leaves []leaf
	index  map[string]Ref
	free   []Ref
	turn   uint64 // of the newest write; each group of leaves has one
	shape  uint64 // grows when a leaf is added or dropped
	gone   []departure
	forgot uint64        // turn of the last departure that is no longer remembered
	news   chan struct{} // closed and made anew when a write ends
}

// Ref names a leaf of a tree for those who write it often.
type Ref int32

// kind says which field of a value counts.
type kind uint8

const (
	none kind = iota // a leaf that has no value now: it is not told
	unsigned
	signed
	double
	boolean
	text
)

// value is a leaf's value. It is comparable, so that a change is seen.
type value struct {
	kind kind
	bits uint64
	text string
}

type leaf struct {
	*place  // nil once it was dropped
	value   value
	at      int64  // when it was read, nanoseconds since the epoch
	written uint64 // turn of the last write
	changed uint64 // turn of the last write of another value
}

// departure is a leaf or a branch that was dropped.
type departure struct {
	path *gpb.Path
	turn uint64
	at   int64
}

// departures bounds how many are remembered; a subscriber that is further behind is
// told everything anew.
const departures = 4096

// NewTree returns a tree without leaves.
func NewTree() *Tree {
	return &Tree{index: map[string]Ref{}, news: make(chan struct{})}
}

// Leaf returns the leaf of an absolute path in the notation of gNMI, as in
// /gpus/gpu[index=0]/state/temperature, and adds it where there is none; it is told from
// its first value on. It panics on a path that is malformed: paths are the program's.
// Values of keys that come from a machine go through [Key].
func (t *Tree) Leaf(path string) Ref {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ref, ok := t.index[path]; ok {
		return ref
	}
	at, err := placeOf(path)
	if err != nil {
		panic("target: " + err.Error())
	}
	l := leaf{place: at}
	ref := Ref(len(t.leaves))
	if n := len(t.free); n > 0 {
		ref, t.free = t.free[n-1], t.free[:n-1]
		t.leaves[ref] = l
	} else {
		t.leaves = append(t.leaves, l)
	}
	t.index[at.name] = ref
	t.shape++
	return ref
}

// Drop removes the leaves at and below a path: a list entry that is no more, as a
// process that has ended. Their refs are void afterwards.
func (t *Tree) Drop(path string) {
	parsed, err := ParsePath(path)
	if err != nil {
		panic("target: " + err.Error())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	found := false
	for name, ref := range t.index {
		if rest, ok := strings.CutPrefix(name, path); ok && (rest == "" || rest[0] == '/') {
			found = true
			delete(t.index, name)
			t.leaves[ref] = leaf{}
			t.free = append(t.free, ref)
		}
	}
	if !found {
		return
	}
	t.turn++
	t.shape++
	if len(t.gone) == departures {
		t.forgot = t.gone[departures/2-1].turn
		t.gone = append(t.gone[:0], t.gone[departures/2:]...)
	}
	t.gone = append(t.gone, departure{path: parsed, turn: t.turn, at: time.Now().UnixNano()})
	t.wake()
}

// wake tells those who wait; the caller holds the lock.
func (t *Tree) wake() {
	close(t.news)
	t.news = make(chan struct{})
}

// Writer writes leaves that were read at one time; subscribers see all of them or
// none. It holds the tree until [Writer.Close]: read the machine first, then write.
type Writer struct {
	t  *Tree
	at int64
}

// Write begins a group of leaves that were read at a time.
func (t *Tree) Write(at time.Time) Writer {
	t.mu.Lock()
	t.turn++
	return Writer{t: t, at: at.UnixNano()}
}

// Close ends the group.
func (w *Writer) Close() {
	w.t.wake()
	w.t.mu.Unlock()
}

func (w *Writer) set(ref Ref, v value) {
	l := &w.t.leaves[ref]
	l.at, l.written = w.at, w.t.turn
	if l.value != v {
		l.value, l.changed = v, w.t.turn
	}
}

// Uint writes a leaf of type uint64 or narrower, or of counter64.
func (w *Writer) Uint(ref Ref, v uint64) { w.set(ref, value{kind: unsigned, bits: v}) }

// Int writes a leaf of type int64 or narrower.
func (w *Writer) Int(ref Ref, v int64) { w.set(ref, value{kind: signed, bits: uint64(v)}) }

// Float writes a leaf of type decimal64; NaN and the infinities are no value.
func (w *Writer) Float(ref Ref, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		w.None(ref)
		return
	}
	w.set(ref, value{kind: double, bits: math.Float64bits(v)})
}

// Bool writes a leaf of type boolean.
func (w *Writer) Bool(ref Ref, v bool) {
	bits := uint64(0)
	if v {
		bits = 1
	}
	w.set(ref, value{kind: boolean, bits: bits})
}

// Text writes a leaf of type string, enumeration or identityref. Empty is a value.
func (w *Writer) Text(ref Ref, v string) { w.set(ref, value{kind: text, text: v}) }

// None takes a leaf's value away: it cannot be read now.
func (w *Writer) None(ref Ref) { w.set(ref, value{}) }

var escapes = strings.NewReplacer(`\`, `\\`, `]`, `\]`)

// Key returns a value of a list's key as it stands in a path, with the characters
// escaped that would end it (gNMI path conventions, section 3).
func Key(v string) string {
	return escapes.Replace(v)
}

// ParsePath reads an absolute path in the notation of gNMI. Keys may hold any
// character; ] and \ are escaped by \.
func ParsePath(path string) (*gpb.Path, error) {
	return parsePath(path, func(_ string, e *gpb.PathElem) *gpb.PathElem { return e })
}

// parsePath is ParsePath, with what is to stand for an element of a text.
func parsePath(path string, use func(text string, e *gpb.PathElem) *gpb.PathElem) (*gpb.Path, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("path %q does not begin with /", path)
	}
	out := &gpb.Path{}
	for rest := path; rest != ""; {
		rest = rest[1:] // the slash
		begin := len(path) - len(rest)
		end := strings.IndexAny(rest, "/[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, fmt.Errorf("path %q has an element without a name", path)
		}
		elem := &gpb.PathElem{Name: rest[:end]}
		for rest = rest[end:]; strings.HasPrefix(rest, "["); {
			name, after, ok := strings.Cut(rest[1:], "=")
			if !ok || name == "" {
				return nil, fmt.Errorf("path %q has a key without a name", path)
			}
			var v strings.Builder
			i := 0
			for ; i < len(after) && after[i] != ']'; i++ {
				if after[i] == '\\' && i+1 < len(after) {
					i++
				}
				v.WriteByte(after[i])
			}
			if i == len(after) {
				return nil, fmt.Errorf("path %q has a key without an end", path)
			}
			if elem.Key == nil {
				elem.Key = map[string]string{}
			}
			elem.Key[name] = v.String()
			rest = after[i+1:]
		}
		if rest != "" && rest[0] != '/' {
			return nil, fmt.Errorf("path %q: / expected after a key", path)
		}
		out.Elem = append(out.Elem, use(path[begin:len(path)-len(rest)], elem))
	}
	return out, nil
}
