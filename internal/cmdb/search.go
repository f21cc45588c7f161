package cmdb

import (
	"bytes"
	"slices"
	"strings"

	"auspex/schemas"
)

// How a text is found, the best first.
const (
	MatchExact     = "exact"
	MatchPrefix    = "prefix"
	MatchSubstring = "substring"
)

// Hit is a resource that was searched for.
type Hit struct {
	Name  string
	Match string
	In    string // name, serial, uuid, mac, pci, or id
}

// What a key of a resource is.
var searched = []string{"name", schemas.AttrSerial, schemas.AttrUUID, schemas.AttrMAC, schemas.AttrPCI}

// pile is all that resources are called, in lower case, in one text that is scanned: lines of one key each. What
// is a server, a switch or part of none comes before what is a part.
type pile struct {
	text  []byte
	begin []uint32 // of each line
	owner []uint32 // index of the name in names
	field []uint8  // of searched
	names []string
}

func newPile(s *graph) *pile {
	names := s.known().sorted
	p := &pile{names: names, text: []byte{'\n'}}
	add := func(k int, field int, key string) {
		if key = strings.ToLower(key); key == "" || strings.Contains(key, "\n") {
			return
		}
		p.begin, p.owner, p.field = append(p.begin, uint32(len(p.text))), append(p.owner, uint32(k)), append(p.field, uint8(field))
		p.text = append(append(p.text, key...), '\n')
	}
	for _, parts := range []bool{false, true} {
		for k, name := range names {
			n := s.nodes[name]
			if parts == (n.server == "" || n.server == name) {
				continue
			}
			add(k, 0, name)
			for f, attr := range searched[1:] {
				add(k, f+1, n.Attrs.Get(attr))
			}
		}
	}
	return p
}

// Search returns up to n resources that a text names, exactly, at the beginning or anywhere, and
// whether there are more. An empty kind is any.
func (s *Snapshot) Search(text, kind string, n int) (hits []Hit, more bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" || strings.Contains(text, "\n") {
		return nil, false
	}
	found := make(map[string]bool)
	take := func(name, match, in string) bool { // false is enough
		if found[name] || kind != "" && s.nodes[name].Kind != kind {
			return true
		}
		if len(hits) == n {
			more = true
			return false
		}
		found[name] = true
		hits = append(hits, Hit{name, match, in})
		return true
	}
	p := s.pile()
	if !p.scan("\n"+text+"\n", func(name, in string) bool { return take(name, MatchExact, in) }) {
		return hits, more
	}
	for _, name := range s.Find(text) { // in another spelling, or by its id
		if !take(name, MatchExact, "id") {
			return hits, more
		}
	}
	if p.scan("\n"+text, func(name, in string) bool { return take(name, MatchPrefix, in) }) {
		p.scan(text, func(name, in string) bool { return take(name, MatchSubstring, in) })
	}
	return hits, more
}

// called are the names of the resources that a text is a part of a key of, or means.
func (s *Snapshot) called(text string) map[string]bool {
	text = strings.ToLower(strings.TrimSpace(text))
	out := make(map[string]bool)
	if text == "" || strings.Contains(text, "\n") {
		return out
	}
	s.pile().scan(text, func(name, _ string) bool { out[name] = true; return true })
	for _, name := range s.Find(text) {
		out[name] = true
	}
	return out
}

// scan calls f with each key in which a text is found, until it returns false.
func (p *pile) scan(text string, f func(name, in string) bool) bool {
	want := []byte(text)
	skip := len(text) - len(strings.TrimPrefix(text, "\n"))
	for at := 0; ; {
		k := bytes.Index(p.text[at:], want)
		if k < 0 {
			return true
		}
		at += k + skip
		line, exact := slices.BinarySearch(p.begin, uint32(at))
		if !exact {
			line--
		}
		if !f(p.names[p.owner[line]], searched[p.field[line]]) {
			return false
		}
		if line+1 == len(p.begin) {
			return true
		}
		at = int(p.begin[line+1]) - 1 // the end of this line begins the next
	}
}
