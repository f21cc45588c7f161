package cmdb

import (
	"hash/maphash"
	"iter"
	"slices"
	"sync"

	"auspex/schemas"
)

// number is of a resource, or of a link, within a graph.
type number = int32

const none number = -1

// tie is a link between two numbers.
type tie struct {
	from, to number
	kind     string
}

// table is an inventory in columns, by number, in the order in which it was brought.
type table struct {
	sheet
	parent  []number
	kids    lists // of numbers
	links   []tie
	ties    lists // of numbers of links
	names   hashed
	devices sync.Map // number → *device
}

// newTable takes the records over.
func newTable(resources []schemas.Resource, links []schemas.Link) *table {
	t := &table{parent: make([]number, len(resources)), names: newHashed(len(resources))}
	t.resources = resources
	kinds := map[string]string{}
	same := func(text string) string {
		have, there := kinds[text]
		if !there {
			kinds[text], have = text, text
		}
		return have
	}
	for n := range count(resources) {
		r := &resources[n]
		r.Kind = same(r.Kind)
		t.names.put(r.ID, n)
	}
	for n := range count(resources) {
		r := &resources[n]
		if t.parent[n] = t.find(r.Parent); t.parent[n] != none {
			r.Parent = resources[t.parent[n]].ID // one text for all its parts
		}
	}
	t.kids = newLists(len(resources), func(yield func(of, n number) bool) {
		for n, p := range t.parent {
			if p != none && !yield(p, number(n)) { //nolint:gosec // a number of resources
				return
			}
		}
	})
	t.links = make([]tie, 0, len(links))
	for _, l := range links {
		if from, to := t.find(l.From), t.find(l.To); from != none && to != none {
			t.links = append(t.links, tie{from, to, same(l.Kind)})
		}
	}
	t.ties = newLists(len(resources), func(yield func(of, n number) bool) {
		for n := range count(t.links) {
			if l := t.links[n]; !yield(l.from, n) || l.to != l.from && !yield(l.to, n) {
				return
			}
		}
	})
	return t
}

func count[T any](all []T) number { return number(len(all)) } //nolint:gosec // of resources or links: far below 2^31

// find returns the number of a name, or none.
func (t *table) find(id string) number {
	if id == "" {
		return none
	}
	return t.names.find(id, func(n number) string { return t.resources[n].ID })
}

// lists are a list of numbers for each number, in one piece.
type lists struct {
	start []number
	all   []number
}

func newLists(n int, pairs iter.Seq2[number, number]) lists {
	l := lists{start: make([]number, n+1)}
	total := number(0)
	for of := range pairs {
		l.start[of+1]++
		total++
	}
	for i := 1; i <= n; i++ {
		l.start[i] += l.start[i-1]
	}
	l.all = make([]number, total)
	next := slices.Clone(l.start)
	for of, k := range pairs {
		l.all[next[of]] = k
		next[of]++
	}
	return l
}

func (l *lists) of(n number) []number { return l.all[l.start[n]:l.start[n+1]:l.start[n+1]] }

var seed = maphash.MakeSeed()

// hashed finds numbers by name, without a copy of the names.
type hashed struct {
	slots []number // number + 1; 0 is empty
	mask  uint64
}

func newHashed(n int) hashed {
	size := 8
	for size < n+n/2 {
		size *= 2
	}
	return hashed{make([]number, size), uint64(size - 1)}
}

// put adds a name that is not there.
func (h *hashed) put(name string, n number) {
	at := maphash.String(seed, name) & h.mask
	for h.slots[at] != 0 {
		at = (at + 1) & h.mask
	}
	h.slots[at] = n + 1
}

func (h *hashed) find(name string, of func(number) string) number {
	for at := maphash.String(seed, name) & h.mask; ; at = (at + 1) & h.mask {
		n := h.slots[at] - 1
		if n < 0 || of(n) == name {
			return n
		}
	}
}

// keys are numbers by a hash of what they are called, in order: many may be called alike.
type keys []uint64

func (k *keys) put(hash uint32, n number) { *k = append(*k, uint64(hash)<<32|uint64(n)) } //nolint:gosec // a number is not negative

// find yields the numbers that have a hash.
func (k keys) find(hash uint32) iter.Seq[number] {
	return func(yield func(number) bool) {
		at, _ := slices.BinarySearch(k, uint64(hash)<<32)
		for ; at < len(k) && uint32(k[at]>>32) == hash; at++ { //nolint:gosec // the upper half
			if !yield(number(k[at] & (1<<32 - 1))) { //nolint:gosec // the lower half
				return
			}
		}
	}
}

func hashOf(text string) uint32 { return uint32(maphash.String(seed, text) >> 32) } //nolint:gosec // the upper half
