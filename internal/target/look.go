package target

import (
	"slices"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// reading is a leaf as it was when somebody looked; a value of no kind says that the
// path, a leaf or a branch, is no more.
type reading struct {
	path  *gpb.Path
	at    int64
	value value
}

// view is what one query names in a tree, and how far its reader has got.
type view struct {
	query []*gpb.PathElem
	want  func(value) bool // nil takes every leaf
	refs  []Ref
	shape uint64
	seen  uint64 // turn up to which everything was taken
	begun bool   // it has looked once
}

// look appends what a view names to out: all that has a value, or, with changed, what
// changed since it looked last. It holds the tree for as long as that takes, and no
// longer: who sends slowly sees the newest values alone when it looks again.
func (t *Tree) look(v *view, changed bool, out []reading) []reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !v.begun || v.shape != t.shape {
		v.refs = v.refs[:0]
		for _, ref := range t.index {
			if covers(v.query, t.leaves[ref].path.GetElem()) {
				v.refs = append(v.refs, ref)
			}
		}
		slices.SortFunc(v.refs, func(a, b Ref) int { return int(a) - int(b) })
		v.shape = t.shape
	}
	if v.begun {
		if v.seen < t.forgot { // what went is not known any more: everything anew
			out = append(out, reading{path: &gpb.Path{Elem: v.query}, at: t.newest(v)})
			changed = false
		} else {
			for i := range t.gone {
				if d := &t.gone[i]; d.turn > v.seen && (covers(v.query, d.path.GetElem()) || below(v.query, d.path.GetElem())) {
					out = append(out, reading{path: d.path, at: d.at})
				}
			}
		}
	}
	if v.begun { // what is no more comes first (section 2.1)
		for _, ref := range v.refs {
			if l := &t.leaves[ref]; l.value.kind == none && l.changed > v.seen {
				out = append(out, reading{path: l.path, at: l.at})
			}
		}
	}
	for _, ref := range v.refs {
		l := &t.leaves[ref]
		if l.value.kind != none && (!changed || l.changed > v.seen) && (v.want == nil || v.want(l.value)) {
			out = append(out, reading{path: l.path, at: l.at, value: l.value})
		}
	}
	v.seen, v.begun = t.turn, true
	return out
}

// Texts returns what the leaves that are texts say now, of the paths that want takes.
func (t *Tree) Texts(want func(path string) bool) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]string{}
	for path, ref := range t.index {
		if v := &t.leaves[ref].value; v.kind == text && want(path) {
			out[path] = v.text
		}
	}
	return out
}

// newest returns when the newest leaf of a view was read; the caller holds the lock.
func (t *Tree) newest(v *view) (at int64) {
	for _, ref := range v.refs {
		at = max(at, t.leaves[ref].at)
	}
	return at
}

// changed returns a channel that is closed at the next write.
func (t *Tree) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.news
}

// maxUpdates bounds a notification, in leaves.
const maxUpdates = 512

// notifications groups readings by the time at which they were read.
func notifications(prefix *gpb.Path, enc gpb.Encoding, readings []reading) []*gpb.Notification {
	var out []*gpb.Notification
	var n *gpb.Notification
	for i := range readings {
		r := &readings[i]
		// The deletes of a notification come before its updates (section 2.1): one that
		// follows an update begins another.
		if n == nil || n.GetTimestamp() != r.at || len(n.Update)+len(n.Delete) >= maxUpdates || r.value.kind == none && len(n.Update) > 0 {
			n = &gpb.Notification{Timestamp: r.at, Prefix: prefix}
			out = append(out, n)
		}
		if r.value.kind == none {
			n.Delete = append(n.Delete, r.path)
		} else {
			n.Update = append(n.Update, &gpb.Update{Path: r.path, Val: r.value.encode(enc)})
		}
	}
	return out
}
