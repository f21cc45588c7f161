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

// What is found, by how: an index of ranks.
const (
	rankExact = iota
	rankPrefix
	rankSubstring
)

var ranks = [...]string{MatchExact, MatchPrefix, MatchSubstring}

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
	field []uint8  // of searched
	times [256]int // that each byte is in the text
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
	for _, b := range p.text {
		p.times[b]++
	}
	return p
}

// Search returns up to limit resources that a text names, exactly, at the beginning or anywhere, and
// whether there are more. An empty kind is any.
func (s *Snapshot) Search(text, kind string, limit int) (hits []Hit, more bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" || strings.Contains(text, "\n") {
		return nil, false
	}
	var by [len(ranks)][]Hit
	var enough [len(ranks)]bool // one more than asked for
	before := make(map[number]int)
	s.scan(text, &enough, func(n number, rank int, in string) {
		if at, known := before[n]; kind != "" && s.at(n).Kind != kind || known && at <= rank {
			return
		}
		before[n] = rank
		by[rank] = append(by[rank], Hit{s.at(n).ID, ranks[rank], in})
		enough[rank] = len(by[rank]) > limit
	})
	for _, name := range s.Find(text) { // in another spelling, or by its id
		if kind == "" || s.at(s.find(name)).Kind == kind {
			by[rankExact] = append(by[rankExact], Hit{name, MatchExact, "id"})
		}
	}
	found := make(map[string]bool)
	for _, h := range slices.Concat(by[:]...) {
		switch {
		case found[h.Name]:
		case len(hits) == limit:
			return hits, true
		default:
			found[h.Name] = true
			hits = append(hits, h)
		}
	}
	return hits, false
}

// called are the resources that a text is a part of a key of, or means.
func (s *Snapshot) called(text string) map[number]bool {
	text = strings.ToLower(strings.TrimSpace(text))
	out := make(map[number]bool)
	if text == "" || strings.Contains(text, "\n") {
		return out
	}
	s.scan(text, new([len(ranks)]bool), func(n number, _ int, _ string) { out[n] = true })
	for _, name := range s.Find(text) {
		out[s.find(name)] = true
	}
	return out
}

// scan calls f with each key of a resource in which a text is found, but for those of a rank of which
// there is enough; it ends when there is enough of the first.
func (g *graph) scan(text string, enough *[len(ranks)]bool, f func(n number, rank int, in string)) {
	for _, s := range []*sheet{&g.sheet, &g.since.sheet} {
		s.pile().scan(text, enough, func(n number, rank int, in string) {
			if g.now(n) == n {
				f(n, rank, in)
			}
		})
	}
}

func (p *pile) scan(text string, enough *[len(ranks)]bool, f func(n number, rank int, in string)) {
	want := []byte(text)
	rare := 0 // where its byte is that is met least
	for k, b := range want {
		if p.times[b] < p.times[want[rare]] {
			rare = k
		}
	}
	for at := 1; !enough[rankExact]; {
		at = p.index(at, want, rare)
		if at < 0 {
			return
		}
		rank, after := rankSubstring, at+len(want)
		if p.text[at-1] == '\n' {
			rank = rankPrefix
			if p.text[after] == '\n' {
				rank = rankExact
			}
		}
		if !enough[rank] {
			line, exact := slices.BinarySearch(p.begin, uint32(at))
			if !exact {
				line--
			}
			f(p.owner[line], rank, searched[p.field[line]])
		}
		at = after + bytes.IndexByte(p.text[after:], '\n') + 1
	}
}

// index finds a text from a place on, by the byte of it that is met least; it is -1 for none. What
// has names by a pattern has bytes that most of its keys begin with.
func (p *pile) index(from int, want []byte, rare int) int {
	if often := p.times[want[rare]]; often*16 > len(p.text) {
		k := bytes.Index(p.text[min(from, len(p.text)):], want)
		if k >= 0 {
			k += from
		}
		return k
	}
	for at := from + rare; at < len(p.text); at++ {
		k := bytes.IndexByte(p.text[at:], want[rare])
		if k < 0 {
			return -1
		}
		at += k
		if bytes.HasPrefix(p.text[at-rare:], want) {
			return at - rare
		}
	}
	return -1
}
