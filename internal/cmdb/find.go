package cmdb

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"sync"

	"auspex/internal/nearest"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// sheet are resources with what finds them by what people call them, which is made when somebody
// asks for other than a name.
type sheet struct {
	resources []schemas.Resource
	first     number      // of the resources
	identity  func() keys // by normalised UUID, serial or MAC
	pci       func() keys
	ids       func() keys
	sorted    func() []number // by name
	byKind    func() []number // and within it by name
	pile      func() *pile
}

// open makes it be made for resources that are numbered in a graph.
func (s *sheet) open(g *graph) {
	each := func(called func(r *schemas.Resource, put func(hash uint32))) func() keys {
		return sync.OnceValue(func() (k keys) {
			for i := range count(s.resources) {
				called(&s.resources[i], func(hash uint32) { k.put(hash, s.first+i) })
			}
			slices.Sort(k)
			return slices.Compact(k)
		})
	}
	s.identity = each(func(r *schemas.Resource, put func(uint32)) {
		for _, attr := range identifying {
			if v := identity(r.Attrs.Get(attr)); v != "" {
				put(hashOf(v))
			}
		}
	})
	s.pci = each(func(r *schemas.Resource, put func(uint32)) {
		if v := PCI(r.Attrs.Get(schemas.AttrPCI)); v != "" {
			put(hashOf(v))
		}
	})
	s.ids = each(func(r *schemas.Resource, put func(uint32)) {
		id := g.space.ID(r.ID)
		put(binary.BigEndian.Uint32(id[:]))
	})
	s.sorted = sync.OnceValue(func() []number {
		return s.order(func(a, b *schemas.Resource) int { return strings.Compare(a.ID, b.ID) })
	})
	s.byKind = sync.OnceValue(func() []number {
		return s.order(func(a, b *schemas.Resource) int {
			return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
		})
	})
	s.pile = sync.OnceValue(func() *pile { return newPile(s, g) })
}

var identifying = []string{schemas.AttrUUID, schemas.AttrSerial, schemas.AttrMAC}

func (s *sheet) order(compare func(a, b *schemas.Resource) int) []number {
	all := make([]number, len(s.resources))
	for i := range all {
		all[i] = s.first + number(i) //nolint:gosec // a number of resources
	}
	slices.SortFunc(all, func(a, b number) int { return compare(&s.resources[a-s.first], &s.resources[b-s.first]) })
	return all
}

// known yields the resources that keys of the sheets have under a hash, and that are what is asked for.
func (g *graph) known(of func(*sheet) func() keys, hash uint32, is func(*schemas.Resource) bool) iter.Seq[number] {
	return func(yield func(number) bool) {
		for _, s := range []*sheet{&g.sheet, &g.since.sheet} {
			for n := range of(s)().find(hash) {
				if g.now(n) == n && is(g.at(n)) && !yield(n) {
					return
				}
			}
		}
	}
}

// identified yields the resources with a normalised UUID, serial number or MAC address.
func (g *graph) identified(label string) iter.Seq[number] {
	return g.known(func(s *sheet) func() keys { return s.identity }, hashOf(label), func(r *schemas.Resource) bool {
		return label != "" && slices.ContainsFunc(identifying, func(attr string) bool { return identity(r.Attrs.Get(attr)) == label })
	})
}

// ordered yields all resources by name, or by kind and within it by name, those behind a kind and name
// where the name is not empty.
func (g *graph) ordered(byKind, down bool, kind, name string) iter.Seq[number] {
	return func(yield func(number) bool) {
		compare := func(n number, kind, name string) int {
			r := g.at(n)
			if byKind {
				return cmp.Or(strings.Compare(r.Kind, kind), strings.Compare(r.ID, name))
			}
			return strings.Compare(r.ID, name)
		}
		step := 1
		if down {
			step = -1
		}
		var lists [2][]number
		var at [2]int
		for i, s := range []*sheet{&g.sheet, &g.since.sheet} {
			lists[i] = s.sorted()
			if byKind {
				lists[i] = s.byKind()
			}
			if down {
				at[i] = len(lists[i]) - 1
			}
			if name != "" {
				at[i] = sort.Search(len(lists[i]), func(k int) bool { // what was and what is may have one name
					c := compare(lists[i][k], kind, name)
					return c > 0 || c == 0 && down
				})
				if down {
					at[i]--
				}
			}
		}
		for {
			next := -1
			for i := range lists {
				if at[i] < 0 || at[i] >= len(lists[i]) {
					continue
				}
				if next >= 0 {
					r := g.at(lists[next][at[next]])
					if c := compare(lists[i][at[i]], r.Kind, r.ID); c == 0 || c < 0 == down {
						continue
					}
				}
				next = i
			}
			if next < 0 {
				return
			}
			n := lists[next][at[next]]
			at[next] += step
			if g.now(n) == n && !yield(n) {
				return
			}
		}
	}
}

// ID returns the UUID of the resource with a name.
func (s *Snapshot) ID(name string) string { return s.space.ID(name).String() }

// Find returns the names of the resources that a text means: by name, by id, by
// serial number, UUID, MAC or PCI address in any usual spelling, or by a part's
// name or PCI address behind its server and a slash. A name comes before an id,
// an id before the rest. More than one is ambiguous, none is unknown.
func (s *Snapshot) Find(text string) []string {
	if s.find(text) != none {
		return []string{text}
	}
	text = strings.TrimSpace(text)
	label := identity(text)
	if b, err := hex.DecodeString(label); err == nil && len(b) == len(schemas.UUID{}) {
		id := schemas.UUID(b)
		for n := range s.known(func(s *sheet) func() keys { return s.ids }, binary.BigEndian.Uint32(id[:]), func(r *schemas.Resource) bool {
			return s.space.ID(r.ID) == id
		}) {
			return []string{s.at(n).ID}
		}
	}
	var found []string
	for n := range s.identified(label) {
		found = append(found, s.at(n).ID)
	}
	if address := PCI(text); address != "" {
		for n := range s.known(func(s *sheet) func() keys { return s.pci }, hashOf(address), func(r *schemas.Resource) bool {
			return PCI(r.Attrs.Get(schemas.AttrPCI)) == address
		}) {
			found = append(found, s.at(n).ID)
		}
	}
	if head, part, ok := strings.Cut(text, "/"); ok && head != "" {
		for _, server := range s.Find(head) {
			if name, ok := s.Part(server, part); ok {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// Filter says which resources are wanted; what is empty does not count.
type Filter struct {
	Kind  string
	Whole string // parts of this resource, at any depth
	Find  string // what this text means, as in [Snapshot.Find]
	Text  string // a part of what it is called, as in [Snapshot.Search]
	Sort  string // name, kind, or one of them with a minus before it; "" is name
}

// Page returns up to n resources that come after a cursor, and the cursor of the page that
// follows, or "" where none does.
func (s *Snapshot) Page(f Filter, after string, n int) (page []schemas.Resource, next string, err error) {
	f.Sort = cmp.Or(f.Sort, "name")
	by, down := strings.CutPrefix(f.Sort, "-")
	key := func(*schemas.Resource) string { return "" } // the name alone tells them apart
	if by == "kind" {
		key = func(r *schemas.Resource) string { return r.Kind }
	}
	kind, name := "", ""
	if after != "" {
		k, n, err := sqldb.Behind(f.Sort, after, "")
		if err != nil {
			return nil, "", fmt.Errorf("list resources: %w", err)
		}
		kind, name = k.(string), n
	}
	all := s.ordered(by == "kind", down, kind, name)
	if f.Find != "" {
		all = s.few(s.Find(f.Find), func(a, b *schemas.Resource) int {
			return cmp.Or(strings.Compare(key(a), key(b)), strings.Compare(a.ID, b.ID))
		}, down, kind, name)
	}
	called := s.called(f.Text)
	whole := s.find(f.Whole)
	for at := range all {
		r := s.at(at)
		if f.Kind != "" && r.Kind != f.Kind || f.Whole != "" && (whole == none || !s.partOf(at, whole)) || f.Text != "" && !called[at] {
			continue
		}
		if len(page) == n {
			last := &page[n-1]
			return page, sqldb.Ahead(f.Sort, key(last), last.ID), nil
		}
		page = append(page, *r)
	}
	return page, "", nil
}

// few yields some resources in an order, those behind a kind and name where the name is not empty.
func (g *graph) few(names []string, compare func(a, b *schemas.Resource) int, down bool, kind, name string) iter.Seq[number] {
	order := func(a, b *schemas.Resource) int {
		if down {
			a, b = b, a
		}
		return compare(a, b)
	}
	return func(yield func(number) bool) {
		after := &schemas.Resource{ID: name, Kind: kind}
		slices.SortFunc(names, func(a, b string) int { return order(g.at(g.find(a)), g.at(g.find(b))) })
		for _, id := range names {
			if n := g.find(id); (name == "" || order(g.at(n), after) > 0) && !yield(n) {
				return
			}
		}
	}
}

// Part finds a part of a server or switch by its PCI address, or by exactly its name or an alias.
func (s *Snapshot) Part(server, name string) (string, bool) {
	d := s.device(s.find(server))
	if d == nil {
		return "", false
	}
	n := d.byPCI(s.graph, PCI(name))
	if n == none {
		n = d.byName(s.graph, squeeze(name))
	}
	if n == none {
		return "", false
	}
	return s.at(n).ID, true
}

// Nearest returns up to n names like one that is not known: parts of a server or
// switch that is known, else what is part of none.
func (s *Snapshot) Nearest(text string, n int) []string {
	if head, _, ok := strings.Cut(text, "/"); ok {
		if found := s.Find(head); len(found) == 1 {
			if d := s.device(s.find(found[0])); d != nil {
				return nearest.Words(found[0]+text[len(head):], d.all(s.graph), n)
			}
		}
	}
	return nearest.Words(text, s.wholes, n)
}

// wholes yields what is a server or switch, or part of none.
func (s *Snapshot) wholes(yield func(string) bool) {
	for n := range s.numbers() {
		if d := s.server(n); (d == none || d == n) && !yield(s.at(n).ID) {
			return
		}
	}
}
