package cmdb

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
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

// Topology returns the whole inventory.
func (s *Snapshot) Topology() schemas.Topology {
	t := schemas.Topology{Version: 1, Resources: s.whole(), Links: slices.Collect(s.allLinks())}
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
func (s *Snapshot) Resources() []schemas.Resource { return s.whole() }

// Len is how many resources there are.
func (s *Snapshot) Len() int { return s.since.count }

// All yields every resource.
func (s *Snapshot) All() iter.Seq[*schemas.Resource] {
	return func(yield func(*schemas.Resource) bool) {
		for n := range s.numbers() {
			if !yield(s.at(n)) {
				return
			}
		}
	}
}

// Resource returns the resource with an id, and whether there is one.
func (s *Snapshot) Resource(id string) (schemas.Resource, bool) {
	if n := s.find(id); n != none {
		return *s.at(n), true
	}
	return schemas.Resource{}, false
}

// Children returns the ids of the parts of a resource.
func (s *Snapshot) Children(id string) (ids []string) {
	if n := s.find(id); n != none {
		for k := range s.parts(n) {
			ids = append(ids, s.at(k).ID)
		}
	}
	return ids
}

// Links returns the links that begin or end at a resource.
func (s *Snapshot) Links(id string) (links []schemas.Link) {
	if n := s.find(id); n != none {
		for _, l := range s.tied(n) {
			links = append(links, s.link(l))
		}
	}
	return links
}

// Server returns the nearest server or switch that a resource is, or is part
// of; "" when there is none.
func (s *Snapshot) Server(id string) string {
	if n := s.server(s.find(id)); n != none {
		return s.at(n).ID
	}
	return ""
}

// Rack returns the rack that a resource is in, or "".
func (s *Snapshot) Rack(id string) string { return s.nearest(id, schemas.KindRack) }

// Site returns the site that a resource is in. One that belongs to no site, as
// an air handler may, is in the only site there is, if there is only one.
func (s *Snapshot) Site(id string) (site string) {
	n := s.find(id)
	if only := s.sites(); n != none && len(only) == 1 {
		return s.at(only[0]).ID
	}
	for _, r := range s.above(n) {
		if r.Kind == schemas.KindSite {
			site = r.ID
		}
	}
	return site
}

// nearest is the name of the nearest resource of a kind that one is, or is part of, or "".
func (s *Snapshot) nearest(id, kind string) string {
	for _, r := range s.above(s.find(id)) {
		if r.Kind == kind {
			return r.ID
		}
	}
	return ""
}

// Ancestor returns the nearest resource of a kind that one is part of, or "".
func (s *Snapshot) Ancestor(id, kind string) string {
	n := s.find(id)
	for at, r := range s.above(n) {
		if r.Kind == kind && at != n {
			return r.ID
		}
	}
	return ""
}

// Below yields the parts of a resource, and theirs.
func (s *Snapshot) Below(id string) iter.Seq[*schemas.Resource] {
	return func(yield func(*schemas.Resource) bool) {
		var walk func(n number, depth int) bool
		walk = func(n number, depth int) bool {
			for k := range s.parts(n) {
				if !yield(s.at(k)) || depth < maxDepth && !walk(k, depth+1) {
					return false
				}
			}
			return true
		}
		if n := s.find(id); n != none {
			walk(n, 0)
		}
	}
}

// Model returns the model of a resource, or of the server or switch around it.
func (s *Snapshot) Model(id string) string {
	for _, r := range s.above(s.find(id)) {
		if m := r.Attrs.Get(schemas.AttrModel); m != "" {
			return m
		}
	}
	return ""
}

// Workload returns the workload with an id, and whether it is known.
func (s *Snapshot) Workload(id string) (schemas.Workload, bool) {
	w, ok := s.workloads[id]
	return w, ok
}

// Workloads yields those that are remembered, by id.
func (s *Snapshot) Workloads() iter.Seq2[string, schemas.Workload] { return maps.All(s.workloads) }

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
	w := s.find(whole)
	return w != none && s.partOf(s.find(part), w)
}

func (g *graph) partOf(part, whole number) bool {
	for n := range g.above(part) {
		if n == whole && n != part {
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
	"123456789", "0123456789", "chassisserialnumber", "03000200040005000006000700080009", "notavailable", "unspecified", "null", "empty",
	"serialnumber", "tobefilled", "tbd", "invalid",
}

// Identifies reports whether a serial number, UUID or MAC address tells a thing from others: makers
// leave placeholders in many.
func Identifies(text string) bool {
	n := strings.NewReplacer("-", "", ":", "", " ", "").Replace(strings.ToLower(text))
	return len(n) > 1 && strings.Trim(n, "0") != "" && strings.Trim(n, "f") != "" && strings.Trim(n, "x.") != "" && !slices.Contains(placeholders, n)
}
