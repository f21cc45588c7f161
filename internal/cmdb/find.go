package cmdb

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"auspex/internal/nearest"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// directory finds resources by what people call them. It is made when somebody
// asks for other than a name.
type directory struct {
	ids    map[schemas.UUID]string
	labels map[string][]string // normalised UUID, serial, MAC or PCI address → names
	sorted []string            // names
	kinds  func() []string     // names by kind, made when somebody asks
}

func newDirectory(g *graph) *directory {
	d := &directory{
		ids: make(map[schemas.UUID]string, len(g.resources)), labels: make(map[string][]string, len(g.identity)), sorted: make([]string, len(g.resources)),
	}
	for i := range g.resources {
		r := &g.resources[i]
		d.ids[g.space.ID(r.ID)] = r.ID
		for _, label := range []string{
			identity(r.Attrs.Get(schemas.AttrUUID)), identity(r.Attrs.Get(schemas.AttrSerial)), identity(r.Attrs.Get(schemas.AttrMAC)),
			PCI(r.Attrs.Get(schemas.AttrPCI)),
		} {
			if label == "" {
				continue
			}
			if same := d.labels[label]; len(same) == 0 || same[len(same)-1] != r.ID { // every server has the same PCI addresses
				d.labels[label] = append(same, r.ID)
			}
		}
		d.sorted[i] = r.ID
	}
	slices.Sort(d.sorted)
	d.kinds = sync.OnceValue(func() []string {
		names := slices.Clone(d.sorted)
		slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(g.nodes[a].Kind, g.nodes[b].Kind) })
		return names
	})
	return d
}

// ID returns the UUID of the resource with a name.
func (s *Snapshot) ID(name string) string { return s.space.ID(name).String() }

// Find returns the names of the resources that a text means: by name, by id, by
// serial number, UUID, MAC or PCI address in any usual spelling, or by a part's
// name or PCI address behind its server and a slash. A name comes before an id,
// an id before the rest. More than one is ambiguous, none is unknown.
func (s *Snapshot) Find(text string) []string {
	if s.nodes[text] != nil {
		return []string{text}
	}
	text = strings.TrimSpace(text)
	known, label := s.known(), identity(text)
	if b, err := hex.DecodeString(label); err == nil && len(b) == len(schemas.UUID{}) {
		if name, ok := known.ids[schemas.UUID(b)]; ok {
			return []string{name}
		}
	}
	found := slices.Concat(known.labels[label], known.labels[PCI(text)])
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
	key, names := func(string) string { return "" }, s.known().sorted // the name alone tells them apart
	switch {
	case f.Find != "":
		names = s.Find(f.Find)
	case by == "kind":
		names = s.known().kinds()
	}
	if by == "kind" {
		key = func(name string) string { return s.nodes[name].Kind }
		if f.Find != "" {
			slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(key(a), key(b)) })
		}
	}
	at, step := 0, 1
	if down {
		at, step = len(names)-1, -1
	}
	if after != "" {
		kind, name, err := sqldb.Behind(f.Sort, after, "")
		if err != nil {
			return nil, "", fmt.Errorf("list resources: %w", err)
		}
		i, found := slices.BinarySearchFunc(names, name, func(a, b string) int {
			return cmp.Or(strings.Compare(key(a), kind.(string)), strings.Compare(a, b))
		})
		if at = i; found || down {
			at = i + step
		}
	}
	called := s.called(f.Text)
	for ; at >= 0 && at < len(names); at += step {
		name := names[at]
		r := s.nodes[name].Resource
		if f.Kind != "" && r.Kind != f.Kind || f.Whole != "" && !s.within(name, f.Whole) || f.Text != "" && !called[name] {
			continue
		}
		if len(page) == n {
			last := page[n-1].ID
			return page, sqldb.Ahead(f.Sort, key(last), last), nil
		}
		page = append(page, *r)
	}
	return page, "", nil
}

// Part finds a part of a server or switch by its PCI address, or by exactly its name or an alias.
func (s *Snapshot) Part(server, name string) (string, bool) {
	d := s.at(server).device
	if d == nil {
		return "", false
	}
	if id, ok := d.pci[PCI(name)]; ok {
		return id, true
	}
	id, ok := d.names[squeeze(name)]
	return id, ok
}

// Nearest returns up to n names like one that is not known: parts of a server or
// switch that is known, else what is part of none.
func (s *Snapshot) Nearest(text string, n int) []string {
	if head, _, ok := strings.Cut(text, "/"); ok {
		if found := s.Find(head); len(found) == 1 && s.at(found[0]).device != nil {
			return nearest.Words(found[0]+text[len(head):], maps.Values(s.at(found[0]).device.names), n)
		}
	}
	return nearest.Words(text, s.wholes, n)
}

// wholes yields what is a server or switch, or part of none.
func (s *Snapshot) wholes(yield func(string) bool) {
	for i := range s.resources {
		if id := s.resources[i].ID; (s.at(id).server == "" || s.at(id).server == id) && !yield(id) {
			return
		}
	}
}
