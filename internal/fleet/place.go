package fleet

import (
	"cmp"
	"slices"

	"auspex/schemas"
)

// Place is where a server is, and what it shares with others: "" and none are not known.
type Place struct {
	Site, Row, Rack string
	NVLink          string   // the domain of servers whose GPUs are linked, by its first server
	Feeds, Leaves   []string // what powers it, and the switches that it is cabled to
}

// Places finds the place of every server.
func (x *Index) Places() map[string]Place {
	domain := make(map[string]string) // of servers whose GPUs are linked across servers
	root := func(name string) string {
		for domain[name] != "" && domain[name] != name {
			name = domain[name]
		}
		return name
	}
	out := make(map[string]Place, len(x.Servers))
	for _, srv := range x.Servers {
		rack := x.Racks[srv.Rack]
		p := Place{Site: rack.Site, Row: rack.Row, Rack: rack.ID}
		for _, l := range x.Links(srv.ID) {
			other := x.Device(l.To)
			switch l.Kind {
			case schemas.LinkPowers:
				p.Feeds = append(p.Feeds, cmp.Or(other, l.To))
			case schemas.LinkNetwork:
				if r, ok := x.Resource(other); ok && r.Kind == schemas.KindSwitch {
					p.Leaves = append(p.Leaves, other)
				}
			case schemas.LinkNVLink:
				if a, b := root(srv.ID), root(cmp.Or(other, l.To)); a != b {
					domain[max(a, b)] = min(a, b)
					domain[min(a, b)] = min(a, b)
				}
			}
		}
		slices.Sort(p.Feeds)
		slices.Sort(p.Leaves)
		p.Feeds, p.Leaves = slices.Compact(p.Feeds), slices.Compact(p.Leaves)
		out[srv.ID] = p
	}
	for name, p := range out {
		if domain[name] != "" {
			p.NVLink = root(name)
			out[name] = p
		}
	}
	return out
}
