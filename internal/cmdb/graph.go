package cmdb

import (
	"iter"
	"maps"
	"slices"
	"sync"

	"auspex/schemas"
)

// graph is the half of a snapshot that changes seldom: a table of all that there was, and what has
// changed of it since. A change costs what it touches and, when many have come together, a new table.
type graph struct {
	*table
	since *changes
	space schemas.Space // of the ids
	whole func() []schemas.Resource
	sites func() []number
}

// changes are what is otherwise than in a table. Their numbers go on where those of the table end.
// They are not written to: each change makes others.
type changes struct {
	sheet
	added   []bool // and not in the place of another
	parent  []number
	kids    [][]number
	ties    [][]number
	links   []tie
	names   map[string]number // of what was put; none of what was removed
	moved   map[number]number // of what is not as it was: where it is now, or none
	cut     map[number]bool   // links that are no more
	devices map[number]func() *device
	count   int // of all resources
}

const (
	maxDepth  = 1 << 10 // of parts in parts: an inventory that loops ends here
	staleness = 16      // a new table is made when more than one in so many has changed,
	bearable  = 4096    // and more than these
)

func newGraph(t schemas.Topology, space schemas.Space) *graph {
	table := newTable(t.Resources, t.Links)
	g := &graph{table: table, space: space, since: &changes{
		names: map[string]number{}, moved: map[number]number{}, cut: map[number]bool{}, devices: map[number]func() *device{}, count: len(t.Resources),
	}}
	table.open(g)
	g.open()
	return g
}

// open makes what is asked for seldom be made then.
func (g *graph) open() {
	g.since.first = count(g.resources)
	g.since.open(g)
	g.whole = sync.OnceValue(func() []schemas.Resource {
		if g.since.none() {
			return g.resources
		}
		all := make([]schemas.Resource, 0, g.since.count)
		for n := range g.numbers() {
			all = append(all, *g.at(n))
		}
		return all
	})
	g.sites = sync.OnceValue(func() (found []number) {
		for n := range g.numbers() {
			if g.at(n).Kind == schemas.KindSite {
				found = append(found, n)
			}
		}
		return found
	})
}

func (c *changes) none() bool { return len(c.names) == 0 && len(c.cut) == 0 && len(c.links) == 0 }

func (c *changes) clone() *changes {
	return &changes{
		sheet: sheet{resources: slices.Clone(c.resources)}, added: slices.Clone(c.added), parent: slices.Clone(c.parent), kids: slices.Clone(c.kids),
		ties: slices.Clone(c.ties), links: slices.Clone(c.links), names: maps.Clone(c.names), moved: maps.Clone(c.moved), cut: maps.Clone(c.cut),
		devices: maps.Clone(c.devices), count: c.count,
	}
}

// find returns the number of a name, or none.
func (g *graph) find(id string) number {
	if n, changed := g.since.names[id]; changed {
		return n
	}
	return g.table.find(id)
}

// now is the number of what a number was of, or none.
func (g *graph) now(n number) number {
	for n != none {
		m, moved := g.since.moved[n]
		if !moved {
			break
		}
		n = m
	}
	return n
}

// later is the place among the changes of a number that is there, and whether it is.
func (g *graph) later(n number) (int, bool) {
	i := int(n) - len(g.resources)
	return i, i >= 0
}

func (g *graph) at(n number) *schemas.Resource {
	if i, ok := g.later(n); ok {
		return &g.since.resources[i]
	}
	return &g.resources[n]
}

// resource is the one with a name, or nil.
func (g *graph) resource(id string) *schemas.Resource {
	if n := g.find(id); n != none {
		return g.at(n)
	}
	return nil
}

// up is what a resource is part of, or none.
func (g *graph) up(n number) number {
	if i, ok := g.later(n); ok {
		return g.now(g.since.parent[i])
	}
	return g.now(g.parent[n])
}

// above yields a resource, what it is part of, and so on.
func (g *graph) above(n number) iter.Seq2[number, *schemas.Resource] {
	return func(yield func(number, *schemas.Resource) bool) {
		for depth := 0; n != none && depth < maxDepth; n, depth = g.up(n), depth+1 {
			if !yield(n, g.at(n)) {
				return
			}
		}
	}
}

// parts yields those of a resource.
func (g *graph) parts(n number) iter.Seq[number] {
	list := g.listed(n)
	return func(yield func(number) bool) {
		for _, k := range list {
			if !yield(g.now(k)) {
				return
			}
		}
	}
}

func (g *graph) listed(n number) []number {
	if i, ok := g.later(n); ok {
		return g.since.kids[i]
	}
	return g.kids.of(n)
}

// tied are the numbers of the links of a resource.
func (g *graph) tied(n number) []number {
	if i, ok := g.later(n); ok {
		return g.since.ties[i]
	}
	return g.ties.of(n)
}

func (g *graph) tie(l number) tie {
	t := tie{}
	if i := int(l) - len(g.links); i >= 0 {
		t = g.since.links[i]
	} else {
		t = g.links[l]
	}
	t.from, t.to = g.now(t.from), g.now(t.to)
	return t
}

func (g *graph) link(l number) schemas.Link {
	t := g.tie(l)
	return schemas.Link{From: g.at(t.from).ID, To: g.at(t.to).ID, Kind: t.kind}
}

func (g *graph) tieCount() int { return len(g.links) + len(g.since.links) - len(g.since.cut) }

// allLinks yields every link.
func (g *graph) allLinks() iter.Seq[schemas.Link] {
	return func(yield func(schemas.Link) bool) {
		for l := range count(g.links) + count(g.since.links) {
			if !g.since.cut[l] && !yield(g.link(l)) {
				return
			}
		}
	}
}

// numbers yields those of all resources, in the order in which they were brought.
func (g *graph) numbers() iter.Seq[number] {
	return func(yield func(number) bool) {
		first := count(g.resources)
		for n := range first {
			if n := g.now(n); n != none && !yield(n) {
				return
			}
		}
		for i := range count(g.since.resources) {
			if n := first + i; g.since.added[i] && g.now(n) == n && !yield(n) {
				return
			}
		}
	}
}

// server is the server or switch that a resource is, or is part of, or none.
func (g *graph) server(n number) number {
	for n, r := range g.above(n) {
		if isDevice(r.Kind) {
			return n
		}
	}
	return none
}

// with returns the graph after a change. What is removed has no parts and no links left; both ends
// of what is linked are there.
func (g *graph) with(put []schemas.Resource, remove []string, add, drop []schemas.Link) *graph {
	c := g.since.clone()
	out := &graph{table: g.table, since: c, space: g.space}
	touched := map[number]bool{} // whose server finds its parts anew
	// own returns the number of a resource that may be written to.
	own := func(n number) number {
		if n == none {
			return none
		}
		if i, ok := out.later(n); ok {
			c.kids[i], c.ties[i] = slices.Clip(c.kids[i]), slices.Clip(c.ties[i])
			touched[n] = true
			return n
		}
		m := count(g.resources) + count(c.resources)
		c.resources, c.added = append(c.resources, g.resources[n]), append(c.added, false)
		c.parent, c.kids, c.ties = append(c.parent, g.parent[n]), append(c.kids, g.kids.of(n)), append(c.ties, g.ties.of(n))
		c.moved[n], c.names[g.resources[n].ID] = m, m
		touched[m] = true
		return m
	}
	without := func(list []number, n number) []number {
		return slices.DeleteFunc(slices.Clone(list), func(k number) bool { return out.now(k) == n })
	}
	leave := func(n number) { // its parent
		if p := own(out.up(n)); p != none {
			i, _ := out.later(p)
			c.kids[i] = without(c.kids[i], n)
		}
	}
	ends := func(l schemas.Link) (from, to number, ok bool) {
		own(out.find(l.From))
		own(out.find(l.To))
		from, to = out.find(l.From), out.find(l.To)
		return from, to, from != none && to != none
	}
	for _, l := range drop {
		from, to, ok := ends(l)
		if !ok {
			continue
		}
		for _, k := range out.tied(from) {
			if t := out.tie(k); t.kind == l.Kind && t.from == from && t.to == to {
				c.cut[k] = true
			}
		}
		for _, n := range []number{from, to} {
			i, _ := out.later(n)
			c.ties[i] = slices.DeleteFunc(slices.Clone(c.ties[i]), func(k number) bool { return c.cut[k] })
		}
	}
	for _, id := range remove {
		n := out.find(id)
		if n == none {
			continue
		}
		leave(n)
		c.moved[n], c.names[id] = none, none
		c.count--
	}
	for _, r := range put {
		n := out.find(r.ID)
		if n == none {
			n = count(g.resources) + count(c.resources)
			c.resources, c.added, c.parent = append(c.resources, r), append(c.added, true), append(c.parent, none)
			c.kids, c.ties = append(c.kids, nil), append(c.ties, nil)
			c.names[r.ID] = n
			c.count++
			touched[n] = true
			continue
		}
		i, _ := out.later(own(n))
		c.resources[i] = r
	}
	for _, r := range put { // all of them are there
		n, p := out.find(r.ID), out.find(r.Parent)
		if out.up(n) == p {
			continue
		}
		leave(n)
		i, _ := out.later(n)
		if p = own(p); p != none {
			k, _ := out.later(p)
			c.kids[k] = append(c.kids[k], n)
		}
		c.parent[i] = p
	}
	for _, l := range add {
		from, to, ok := ends(l)
		if !ok {
			continue
		}
		k := count(g.links) + count(c.links)
		c.links = append(c.links, tie{from, to, l.Kind})
		for _, n := range slices.Compact([]number{from, to}) {
			i, _ := out.later(n)
			c.ties[i] = append(c.ties[i], k)
		}
	}
	if n := len(c.names) + len(c.cut); n > bearable && n > len(g.resources)/staleness {
		out.open()
		return newGraph(schemas.Topology{Resources: slices.Clone(out.whole()), Links: slices.Collect(out.allLinks())}, g.space)
	}
	for n := range touched {
		if n = out.now(n); n == none {
			continue
		}
		for at, r := range out.above(n) { // parts of parts are found by each server above
			if isDevice(r.Kind) {
				c.devices[at] = sync.OnceValue(func() *device { return newDevice(out, at) })
			}
		}
	}
	out.open()
	return out
}

// device is what finds the parts of a server or switch, or nil.
func (g *graph) device(n number) *device {
	if n == none || !isDevice(g.at(n).Kind) {
		return nil
	}
	if made := g.since.devices[n]; made != nil {
		return made()
	}
	if d, there := g.devices.Load(n); there {
		return d.(*device)
	}
	d, _ := g.devices.LoadOrStore(n, newDevice(g, n))
	return d.(*device)
}

// isDevice tells the kinds that collectors read and that messages are keyed by.
func isDevice(kind string) bool { return kind == schemas.KindServer || kind == schemas.KindSwitch }
