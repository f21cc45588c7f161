// Package fleet derives the picture of the fleet that the screens draw: which
// state each server, GPU, feed and switch is in, from the inventory and from what
// incidents, predictions, actions and contact say of it.
package fleet

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

// Index answers questions about one state of the inventory. It is immutable.
type Index struct {
	snap *cmdb.Snapshot

	Servers []Server
	Racks   []Rack
	server  map[string]int // by id
	Sites   int
	GPUs    int
}

// Server is a server with what the map shows of it.
type Server struct {
	ID   string
	Rack int // index in Racks
	GPUs []string
}

// Rack is a rack with its power feeds and its leaf switch, where known.
type Rack struct {
	ID, Row, Site string
	Feeds         [2]string // pdu of feed A, of feed B
	Leaf          string
}

// NewIndex reads an inventory.
func NewIndex(snap *cmdb.Snapshot) *Index {
	x := &Index{snap: snap, server: make(map[string]int)}
	racks := make(map[string]int)
	for r := range snap.All() {
		switch r.Kind {
		case schemas.KindSite:
			x.Sites++
		case schemas.KindRack:
			racks[r.ID] = len(x.Racks)
			x.Racks = append(x.Racks, Rack{ID: r.ID, Row: x.Ancestor(r.ID, schemas.KindRow), Site: x.Ancestor(r.ID, schemas.KindSite)})
		}
	}
	for r := range snap.All() {
		if r.Kind != schemas.KindServer && r.Kind != schemas.KindPDU && r.Kind != schemas.KindSwitch {
			continue
		}
		rack := x.Ancestor(r.ID, schemas.KindRack)
		at, known := racks[rack]
		switch r.Kind {
		case schemas.KindServer:
			if !known { // a server without a rack still has a place on the map
				at = len(x.Racks)
				racks[rack] = at
				x.Racks = append(x.Racks, Rack{ID: rack, Site: x.Ancestor(r.ID, schemas.KindSite)})
			}
			x.server[r.ID] = len(x.Servers)
			gpus := x.Parts(r.ID, schemas.KindGPU)
			x.GPUs += len(gpus)
			x.Servers = append(x.Servers, Server{ID: r.ID, Rack: at, GPUs: gpus})
		case schemas.KindPDU:
			if known {
				feed := 0
				if strings.EqualFold(r.Attrs.Get(schemas.AttrFeed), "b") {
					feed = 1
				}
				x.Racks[at].Feeds[feed] = r.ID
			}
		case schemas.KindSwitch:
			if known && x.Racks[at].Leaf == "" {
				x.Racks[at].Leaf = r.ID
			}
		}
	}
	return x
}

// Resource returns a resource by its id.
func (x *Index) Resource(id string) (schemas.Resource, bool) { return x.snap.Resource(id) }

// Ancestor returns the nearest ancestor of a kind, or "".
func (x *Index) Ancestor(id, kind string) string { return x.snap.Ancestor(id, kind) }

// Device returns the server or switch that a resource is or is part of; "" for
// what is part of neither.
func (x *Index) Device(id string) string {
	if _, known := x.snap.Resource(id); !known {
		id, _, _ = strings.Cut(id, "/")
	}
	return x.snap.Server(id)
}

// Parts returns the parts of a kind below a device, in natural order.
func (x *Index) Parts(device, kind string) []string {
	var out []string
	for r := range x.snap.Below(device) {
		if r.Kind == kind {
			out = append(out, r.ID)
		}
	}
	slices.SortFunc(out, natural)
	return out
}

// Below is everything below a device.
func (x *Index) Below(device string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for r := range x.snap.Below(device) {
			if !yield(r.ID) {
				return
			}
		}
	}
}

// All returns everything below a device, in natural order.
func (x *Index) All(device string) []string {
	out := slices.Collect(x.Below(device))
	slices.SortFunc(out, natural)
	return out
}

// Links returns the links of a device and of its parts: the part, the other end
// and the kind.
func (x *Index) Links(device string) []schemas.Link {
	var out []schemas.Link
	for _, id := range append([]string{device}, x.All(device)...) {
		for _, l := range x.snap.Links(id) {
			if l.From != id {
				l.From, l.To = l.To, l.From
			}
			if x.Device(l.To) != device {
				out = append(out, l)
			}
		}
	}
	return out
}

// Workload returns a workload by its id.
func (x *Index) Workload(id string) (schemas.Workload, bool) {
	return x.snap.Workload(id)
}

// Running returns the workload that runs on each server at a time, by server
// id. Where several do, the one that started last.
func (x *Index) Running(at time.Time) map[string]schemas.Workload {
	out := make(map[string]schemas.Workload)
	for _, w := range x.snap.Workloads() {
		if w.Start.After(at) || (!w.End.IsZero() && !w.End.After(at)) {
			continue
		}
		for _, r := range w.Resources {
			server := x.Device(r)
			if have, ok := out[server]; server == "" || (ok && (have.Start.After(w.Start) || (have.Start.Equal(w.Start) && have.ID >= w.ID))) {
				continue
			}
			out[server] = w
		}
	}
	return out
}

// Tenant returns who a workload belongs to.
func Tenant(w schemas.Workload) string { return cmp.Or(w.Attrs["account"], w.Attrs["owner"]) }

// natural orders names with numbers in them: gpu2 before gpu10.
func natural(a, b string) int {
	for a != "" && b != "" {
		na, ra := digits(a)
		nb, rb := digits(b)
		if na != "" && nb != "" {
			na, nb = strings.TrimLeft(na, "0"), strings.TrimLeft(nb, "0")
			if c := cmp.Or(cmp.Compare(len(na), len(nb)), strings.Compare(na, nb)); c != 0 {
				return c
			}
			a, b = ra, rb
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

func digits(s string) (number, rest string) {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return s[:n], s[n:]
}
