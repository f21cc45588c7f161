package cmdb

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"auspex/schemas"
)

// Snapshot is the inventory at one moment. It never changes; what it returns
// must not be written to.
type Snapshot struct {
	*graph
	// Version grows with each change.
	Version uint64
	// Generation grows with each change of resources or links. Caches of places
	// stay valid while it is the same.
	Generation uint64

	workloads map[string]schemas.Workload
	byDevice  map[string][]string // device → workloads on it, newest first
}

// graph is the half that changes seldom.
type graph struct {
	resources []schemas.Resource
	links     []schemas.Link
	nodes     map[string]*node
	identity  map[string]string // normalised uuid, serial, MAC → id
	space     schemas.Space     // of the ids
	known     func() *directory
	pile      func() *pile
}

type node struct {
	*schemas.Resource
	children []string
	links    []schemas.Link
	server   string // nearest server or switch, this one included
	rack     string
	site     string
	model    string // of the part, else of its server
	device   *device
}

func newGraph(t schemas.Topology, site string) *graph {
	g := &graph{
		resources: t.Resources, links: t.Links, space: schemas.SpaceOf(site),
		nodes: make(map[string]*node, len(t.Resources)), identity: map[string]string{},
	}
	g.known = sync.OnceValue(func() *directory { return newDirectory(g) })
	g.pile = sync.OnceValue(func() *pile { return newPile(g) })
	for i := range g.resources {
		r := &g.resources[i]
		g.nodes[r.ID] = &node{Resource: r}
		for _, k := range []string{schemas.AttrUUID, schemas.AttrSerial, schemas.AttrMAC} {
			if v := identity(r.Attrs.Get(k)); v != "" {
				if _, taken := g.identity[v]; !taken { // serial numbers repeat; the first one stays
					g.identity[v] = r.ID
				}
			}
		}
	}
	for i := range g.resources {
		r := &g.resources[i]
		if p := g.nodes[r.Parent]; p != nil {
			p.children = append(p.children, r.ID)
		}
	}
	for _, l := range g.links {
		for _, id := range []string{l.From, l.To} {
			if n := g.nodes[id]; n != nil {
				n.links = append(n.links, l)
			}
		}
	}
	var sites []string
	for i := range g.resources {
		n := g.nodes[g.resources[i].ID]
		if n.Kind == schemas.KindSite {
			sites = append(sites, n.ID)
		}
		for at, steps := n, 0; at != nil && steps <= len(g.resources); at, steps = g.nodes[at.Parent], steps+1 {
			if n.server == "" && isDevice(at.Kind) {
				n.server = at.ID
			}
			if n.model == "" {
				n.model = at.Attrs.Get(schemas.AttrModel)
			}
			if n.rack == "" && at.Kind == schemas.KindRack {
				n.rack = at.ID
			}
			if at.Kind == schemas.KindSite {
				n.site = at.ID
			}
		}
	}
	if len(sites) == 1 {
		for _, n := range g.nodes {
			n.site = sites[0]
		}
	}
	for i := range g.resources {
		if n := g.nodes[g.resources[i].ID]; isDevice(n.Kind) {
			n.device = newDevice(g, n)
		}
	}
	return g
}

// isDevice tells the kinds that collectors read and that messages are keyed by.
func isDevice(kind string) bool { return kind == schemas.KindServer || kind == schemas.KindSwitch }

// Topology returns the whole inventory.
func (s *Snapshot) Topology() schemas.Topology {
	t := schemas.Topology{Version: 1, Resources: s.resources, Links: s.links}
	if t.Resources == nil { // an empty inventory has empty lists, not null
		t.Resources = []schemas.Resource{}
	}
	if t.Links == nil {
		t.Links = []schemas.Link{}
	}
	for _, w := range s.workloads {
		t.Workloads = append(t.Workloads, w)
	}
	slices.SortFunc(t.Workloads, func(a, b schemas.Workload) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID))
	})
	return t
}

// Resources returns every resource.
func (s *Snapshot) Resources() []schemas.Resource { return s.resources }

// Resource returns the resource with an id, and whether there is one.
func (s *Snapshot) Resource(id string) (schemas.Resource, bool) {
	n := s.nodes[id]
	if n == nil {
		return schemas.Resource{}, false
	}
	return *n.Resource, true
}

// Children returns the ids of the parts of a resource.
func (s *Snapshot) Children(id string) []string {
	if n := s.nodes[id]; n != nil {
		return n.children
	}
	return nil
}

// Links returns the links that begin or end at a resource.
func (s *Snapshot) Links(id string) []schemas.Link {
	if n := s.nodes[id]; n != nil {
		return n.links
	}
	return nil
}

// Server returns the nearest server or switch that a resource is, or is part
// of; "" when there is none.
func (s *Snapshot) Server(id string) string { return s.at(id).server }

// Rack returns the rack that a resource is in, or "".
func (s *Snapshot) Rack(id string) string { return s.at(id).rack }

// Site returns the site that a resource is in. One that belongs to no site, as
// an air handler may, is in the only site there is, if there is only one.
func (s *Snapshot) Site(id string) string { return s.at(id).site }

// Model returns the model of a resource, or of the server or switch around it.
func (s *Snapshot) Model(id string) string { return s.at(id).model }

var nowhere = &node{Resource: &schemas.Resource{}}

func (s *Snapshot) at(id string) *node {
	if n := s.nodes[id]; n != nil {
		return n
	}
	return nowhere
}

// Workload returns the workload with an id, and whether it is known.
func (s *Snapshot) Workload(id string) (schemas.Workload, bool) {
	w, ok := s.workloads[id]
	return w, ok
}

// WorkloadsAt returns the workloads that ran at a time on a resource, on a part
// of it, or on what it is part of; newest first. A zero time means now: those
// that have not ended.
func (s *Snapshot) WorkloadsAt(id string, t time.Time) []schemas.Workload {
	var out []schemas.Workload
	if device := s.Server(id); device != "" {
		for _, w := range s.byDevice[device] {
			if job := s.workloads[w]; ranAt(job, t) && s.touches(job, id) {
				out = append(out, job)
			}
		}
		return out
	}
	for _, job := range s.workloads {
		if ranAt(job, t) && s.touches(job, id) {
			out = append(out, job)
		}
	}
	slices.SortFunc(out, newestFirst)
	return out
}

func newestFirst(a, b schemas.Workload) int {
	return cmp.Or(b.Start.Compare(a.Start), cmp.Compare(a.ID, b.ID))
}

func ranAt(w schemas.Workload, t time.Time) bool {
	if t.IsZero() {
		return w.End.IsZero()
	}
	return !t.Before(w.Start) && (w.End.IsZero() || t.Before(w.End))
}

func (s *Snapshot) touches(w schemas.Workload, id string) bool {
	for _, r := range w.Resources {
		if r == id || s.within(r, id) || s.within(id, r) {
			return true
		}
	}
	return false
}

// within tells whether part is a part of whole, at any depth.
func (s *Snapshot) within(part, whole string) bool {
	for n := s.nodes[part]; n != nil && n.Parent != ""; n = s.nodes[n.Parent] {
		if n.Parent == whole {
			return true
		}
	}
	return false
}

// Covers tells whether work on a place concerns a resource: it is the place, is part of it,
// or its server or switch is powered from there, at most maxSupply suppliers away.
func (s *Snapshot) Covers(place, id string) bool {
	if place == id || s.within(id, place) {
		return true
	}
	device := s.Server(id)
	return device != "" && s.powers(place, device, maxSupply)
}

const maxSupply = 8

func (s *Snapshot) powers(place, device string, depth int) bool {
	for _, l := range s.Links(place) {
		if l.Kind != schemas.LinkPowers || l.From != place {
			continue
		}
		if to := s.Server(l.To); to == device || to == "" && (s.within(device, l.To) || depth > 0 && s.powers(l.To, device, depth-1)) {
			return true
		}
	}
	return false
}

func newSnapshot(g *graph, workloads map[string]schemas.Workload, version, generation uint64) *Snapshot {
	s := &Snapshot{graph: g, Version: version, Generation: generation, workloads: workloads, byDevice: map[string][]string{}}
	for id, w := range workloads {
		for _, r := range w.Resources {
			if d := s.Server(r); d != "" && !slices.Contains(s.byDevice[d], id) {
				s.byDevice[d] = append(s.byDevice[d], id)
			}
		}
	}
	for _, ids := range s.byDevice {
		slices.SortFunc(ids, func(a, b string) int { return newestFirst(workloads[a], workloads[b]) })
	}
	return s
}

var separators = strings.NewReplacer(":", "", "-", "", ".", "")

// identity normalises a UUID, a serial number or a MAC address.
func identity(v string) string {
	v = strings.ToLower(strings.TrimSpace(v))
	v = strings.Trim(strings.TrimPrefix(strings.TrimPrefix(v, "urn:uuid:"), "gpu-"), "{}")
	if digits := separators.Replace(v); isHex(digits) && (len(digits) == 12 || len(digits) == 32) {
		return digits // a MAC address or a UUID: spellings differ in their separators alone
	}
	return v
}

func isHex(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') }) < 0
}

// placeholders are what makers leave in the place of a serial number.
var placeholders = []string{
	"none", "na", "n/a", "unknown", "notspecified", "notapplicable", "defaultstring", "tobefilledbyo.e.m.", "systemserialnumber", "notprovided",
	"123456789", "0123456789", "chassisserialnumber", "03000200040005000006000700080009",
}

// Identifies reports whether a serial number, UUID or MAC address tells a thing from others: makers
// leave placeholders in many.
func Identifies(text string) bool {
	n := strings.NewReplacer("-", "", " ", "").Replace(strings.ToLower(text))
	return len(n) > 1 && strings.Trim(n, "0") != "" && strings.Trim(n, "f") != "" && strings.Trim(n, "x.") != "" && !slices.Contains(placeholders, n)
}
