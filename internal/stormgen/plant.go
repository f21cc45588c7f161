package stormgen

import (
	"slices"

	"auspex/schemas"
)

// part is a resource with what it is joined with; numbers are places in plant.parts.
type part struct {
	id, kind, tier string
	parent         int // -1: none
	dev            int // the server or switch that it is, or is part of; -1: none
	kids           []int
	feeds, loads   []int // what powers it, and what it powers
	coolers, cools []int
	links          []int // of plant.links
	nv, pcie       []int // joined by NVLink and by PCIe
}

type link struct{ a, b int }

// plant is an inventory of any origin, ready to be run.
type plant struct {
	parts    []part
	links    []link
	by       map[string]int
	kinds    map[string][]int
	servers  []int
	switches []int
}

func newPlant(t *schemas.Topology) *plant {
	p := &plant{by: make(map[string]int, len(t.Resources)), kinds: map[string][]int{}}
	for _, r := range t.Resources {
		if _, ok := p.by[r.ID]; ok {
			continue
		}
		p.by[r.ID] = len(p.parts)
		p.parts = append(p.parts, part{id: r.ID, kind: r.Kind, tier: r.Attrs.Get(schemas.AttrTier), parent: -1, dev: -1})
	}
	for _, r := range t.Resources {
		i := p.by[r.ID]
		if up, ok := p.by[r.Parent]; ok && up != i && p.parts[i].parent < 0 && !p.above(up, i) {
			p.parts[i].parent = up
			p.parts[up].kids = append(p.parts[up].kids, i)
		}
	}
	for i := range p.parts {
		p.kinds[p.parts[i].kind] = append(p.kinds[p.parts[i].kind], i)
		for d := i; d >= 0; d = p.parts[d].parent {
			if k := p.parts[d].kind; k == schemas.KindServer || k == schemas.KindSwitch {
				p.parts[i].dev = d
				break
			}
		}
	}
	p.servers, p.switches = p.kinds[schemas.KindServer], p.kinds[schemas.KindSwitch]
	for _, l := range t.Links {
		a, aok := p.by[l.From]
		b, bok := p.by[l.To]
		if !aok || !bok || a == b {
			continue
		}
		pa, pb := &p.parts[a], &p.parts[b]
		switch l.Kind {
		case schemas.LinkPowers:
			if p.fedFrom(a, b) {
				continue // a circle: what closes it is wrong
			}
			pa.loads, pb.feeds = append(pa.loads, b), append(pb.feeds, a)
		case schemas.LinkCools:
			pa.cools, pb.coolers = append(pa.cools, b), append(pb.coolers, a)
		case schemas.LinkNetwork:
			pa.links, pb.links = append(pa.links, len(p.links)), append(pb.links, len(p.links))
			p.links = append(p.links, link{a, b})
		case schemas.LinkNVLink:
			pa.nv, pb.nv = append(pa.nv, b), append(pb.nv, a)
		case schemas.LinkPCIe:
			pa.pcie, pb.pcie = append(pa.pcie, b), append(pb.pcie, a)
		}
	}
	return p
}

// above tells whether a part is at or above another, so that no circle is made.
func (p *plant) above(at, x int) bool {
	for n := 0; at >= 0 && n < len(p.parts); at, n = p.parts[at].parent, n+1 {
		if at == x {
			return true
		}
	}
	return false
}

// fedFrom tells whether power comes to a part from another, or from what that is in.
func (p *plant) fedFrom(at, x int) bool {
	seen := map[int]bool{}
	for todo := []int{at}; len(todo) > 0; todo = todo[1:] {
		if todo[0] == x || p.parts[todo[0]].dev >= 0 && p.parts[todo[0]].dev == p.parts[x].dev {
			return true
		}
		for _, f := range p.parts[todo[0]].feeds {
			if !seen[f] {
				seen[f] = true
				todo = append(todo, f)
			}
		}
	}
	return false
}

// of returns the parts of a kind directly in another.
func (p *plant) of(i int, kind string) (out []int) {
	for _, k := range p.parts[i].kids {
		if p.parts[k].kind == kind {
			out = append(out, k)
		}
	}
	return out
}

// under calls f with all below a part, itself included.
func (p *plant) under(i int, f func(int)) {
	f(i)
	for _, k := range p.parts[i].kids {
		p.under(k, f)
	}
}

// devices returns the servers and switches at and below a part.
func (p *plant) devices(i int) (out []int) {
	p.under(i, func(k int) {
		if p.parts[k].dev == k {
			out = append(out, k)
		}
	})
	return out
}

// peer returns the other end of a link.
func (p *plant) peer(l, end int) int {
	if p.links[l].a == end {
		return p.links[l].b
	}
	return p.links[l].a
}

// ports returns the parts of a device that have network links.
func (p *plant) ports(dev int) (out []int) {
	for _, k := range p.parts[dev].kids {
		if len(p.parts[k].links) > 0 && p.parts[k].kind != schemas.KindBMC {
			out = append(out, k)
		}
	}
	return out
}

func (p *plant) bmc(server int) int {
	if b := p.of(server, schemas.KindBMC); len(b) > 0 {
		return b[0]
	}
	return -1
}

// rank orders switches from what servers hang on upwards.
func (p *plant) rank(sw int) int {
	return max(0, slices.Index([]string{"leaf", "spine", "core"}, p.parts[sw].tier))
}

func (p *plant) mgmt(sw int) bool { return p.parts[sw].tier == "mgmt" || p.parts[sw].tier == "oob" }

// rackOf returns the rack that a part stands in, or -1.
func (p *plant) rackOf(i int) int {
	for ; i >= 0; i = p.parts[i].parent {
		if p.parts[i].kind == schemas.KindRack {
			return i
		}
	}
	return -1
}

// served returns the devices that an air unit cools.
func (p *plant) served(unit int) (out []int) {
	for _, c := range p.parts[unit].cools {
		out = append(out, p.devices(c)...)
	}
	return out
}

// units returns the air units that cool a device, by itself or by what it stands in.
func (p *plant) units(dev int) (out []int) {
	for i := dev; i >= 0; i = p.parts[i].parent {
		out = append(out, p.parts[i].coolers...)
	}
	return out
}
