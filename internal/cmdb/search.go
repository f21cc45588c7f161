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
	owner []number
	field []uint8 // of searched
}

func newPile(s *sheet, g *graph) *pile {
	p := &pile{text: []byte{'\n'}}
	add := func(n number, field int, key string) {
		if key = strings.ToLower(key); key == "" || strings.Contains(key, "\n") {
			return
		}
		p.begin, p.owner, p.field = append(p.begin, uint32(len(p.text))), append(p.owner, n), append(p.field, uint8(field))
		p.text = append(append(p.text, key...), '\n')
	}
	for _, parts := range []bool{false, true} {
		for _, n := range s.sorted() {
			if d := g.server(n); parts == (d == none || d == n) {
				continue
			}
			r := &s.resources[n-s.first]
			add(n, 0, r.ID)
			for f, attr := range searched[1:] {
				add(n, f+1, r.Attrs.Get(attr))
			}
		}
	}
	p.text = slices.Clip(p.text)
	return p
}

// Search returns up to limit resources that a text names, exactly, at the beginning or anywhere, and
// whether there are more. An empty kind is any.
func (s *Snapshot) Search(text, kind string, limit int) (hits []Hit, more bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" || strings.Contains(text, "\n") {
		return nil, false
	}
	found := make(map[number]bool)
	take := func(n number, match, in string) bool { // false is enough
		if found[n] || kind != "" && s.at(n).Kind != kind {
			return true
		}
		if len(hits) == limit {
			more = true
			return false
		}
		found[n] = true
		hits = append(hits, Hit{s.at(n).ID, match, in})
		return true
	}
	if !s.scan("\n"+text+"\n", func(n number, in string) bool { return take(n, MatchExact, in) }) {
		return hits, more
	}
	for _, name := range s.Find(text) { // in another spelling, or by its id
		if !take(s.find(name), MatchExact, "id") {
			return hits, more
		}
	}
	if s.scan("\n"+text, func(n number, in string) bool { return take(n, MatchPrefix, in) }) {
		s.scan(text, func(n number, in string) bool { return take(n, MatchSubstring, in) })
	}
	return hits, more
}

// called are the resources that a text is a part of a key of, or means.
func (s *Snapshot) called(text string) map[number]bool {
	text = strings.ToLower(strings.TrimSpace(text))
	out := make(map[number]bool)
	if text == "" || strings.Contains(text, "\n") {
		return out
	}
	s.scan(text, func(n number, _ string) bool { out[n] = true; return true })
	for _, name := range s.Find(text) {
		out[s.find(name)] = true
	}
	return out
}

// scan calls f with each key of a resource in which a text is found, until it returns false.
func (g *graph) scan(text string, f func(n number, in string) bool) bool {
	for _, s := range []*sheet{&g.sheet, &g.since.sheet} {
		if !s.pile().scan(text, func(n number, in string) bool { return g.now(n) != n || f(n, in) }) {
			return false
		}
	}
	return true
}

// scan calls f with each key in which a text is found, until it returns false.
func (p *pile) scan(text string, f func(n number, in string) bool) bool {
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
		if !f(p.owner[line], searched[p.field[line]]) {
			return false
		}
		if line+1 == len(p.begin) {
			return true
		}
		at = int(p.begin[line+1]) - 1 // the end of this line begins the next
	}
}
