// Package enrich says which part of the inventory a record speaks of, and where
// that part is. Answers are kept until the inventory changes, so that a series
// or a device costs one look-up.
package enrich

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

// Inventory gives the current snapshot.
type Inventory interface {
	Snapshot() *cmdb.Snapshot
}

// Enricher resolves. Its methods may be called at the same time.
type Enricher struct {
	inv   Inventory
	cache atomic.Pointer[cache]

	unknown  *prometheus.CounterVec
	lookups  prometheus.Counter
	skew     prometheus.Histogram
	skewed   *prometheus.CounterVec
	repaired *prometheus.CounterVec
	clocks   clocks
}

// cacheLimit bounds the answers that are kept; beyond it the cache begins anew.
const cacheLimit = 1 << 20

type cache struct {
	generation uint64
	mu         sync.RWMutex
	parts      map[partKey]cmdb.Placement
	gpus       map[gpuKey]cmdb.Placement
}

type partKey struct{ device, kind, part string }

type gpuKey struct {
	device    string
	index     uint32
	uuid, pci string
}

// New returns an enricher over an inventory.
func New(inv Inventory, reg prometheus.Registerer) *Enricher {
	e := &Enricher{
		inv: inv,
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_enrich_unknown_total", Help: "Look-ups of devices or parts unknown to the inventory.",
		}, []string{"what"}),
		lookups: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_enrich_lookups_total", Help: "Look-ups not answered from the cache.",
		}),
		skew: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "auspex_enrich_clock_skew_seconds", Help: "Estimated offset of a device's clock from ours, at each event.",
			Buckets: []float64{.1, .5, 1, 5, 30, 120, 3600, 86400},
		}),
		skewed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_enrich_skewed_events_total", Help: "Events of a device whose clock is estimated to be off by more than the tolerance.",
		}, []string{"source"}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_enrich_normalized_events_total", Help: "Events with a normalized field.",
		}, []string{"field"}),
		clocks: clocks{devices: map[string]*clock{}},
	}
	e.cache.Store(newCache(0))
	if reg != nil {
		reg.MustRegister(e.unknown, e.lookups, e.skew, e.skewed, e.repaired)
	}
	return e
}

func newCache(generation uint64) *cache {
	return &cache{generation: generation, parts: map[partKey]cmdb.Placement{}, gpus: map[gpuKey]cmdb.Placement{}}
}

func (e *Enricher) current() (*cmdb.Snapshot, *cache) {
	s, c := e.inv.Snapshot(), e.cache.Load()
	if c.generation != s.Generation {
		c = newCache(s.Generation)
		e.cache.Store(c)
	}
	return s, c
}

// Generation tells when what was resolved before may have changed: it is the
// same as long as every answer is.
func (e *Enricher) Generation() uint64 { return e.inv.Snapshot().Generation }

// Part resolves a series' hint: the kind of the part and its name on the device;
// both empty for the device itself. A part that the inventory does not know is
// placed at its device, a port under the device by its name.
func (e *Enricher) Part(device, partKind, part string) cmdb.Placement {
	s, c := e.current()
	key := partKey{device, partKind, part}
	c.mu.RLock()
	p, ok := c.parts[key]
	c.mu.RUnlock()
	if ok {
		return p
	}
	p = e.resolvePart(s, device, partKind, part)
	c.mu.Lock()
	if len(c.parts) >= cacheLimit {
		clear(c.parts)
	}
	c.parts[key] = p
	c.mu.Unlock()
	return p
}

func (e *Enricher) resolvePart(s *cmdb.Snapshot, device, partKind, part string) cmdb.Placement {
	e.lookups.Inc()
	id, known := findDevice(s, device)
	if !known {
		e.unknown.WithLabelValues("device").Inc()
	}
	if partKind == "" && part == "" {
		return place(s, id, device)
	}
	if partID, ok := find(s, id, partKind, part); ok {
		return place(s, partID, device)
	}
	if known {
		e.unknown.WithLabelValues("part").Inc()
	}
	p := place(s, id, device)
	switch {
	case partKind == schemas.KindPort && part != "":
		p.Resource, p.Kind = p.Resource+"/"+part, schemas.KindPort
	case partKind == schemas.KindGPU && isNumber(part):
		p.Resource, p.Kind = p.Resource+"/gpu"+part, schemas.KindGPU
	}
	return p
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// find tries a name as what the hint says it is, then as an identity and as anything.
func find(s *cmdb.Snapshot, device, kind, name string) (string, bool) {
	if id, ok := s.Resolve(device, kind, name); ok {
		return id, true
	}
	if kind == "" || isNumber(name) {
		return "", false
	}
	if id, ok := s.ByIdentity(device, name); ok && s.Server(id) == device { // a part that is named by its PCI address
		return id, true
	}
	if disk := strings.TrimRight(name, "0123456789"); kind == schemas.KindDisk && disk != name && strings.HasPrefix(name, "sd") {
		name = disk // the kernel names partitions
	}
	return s.Resolve(device, "", name)
}

// GPU resolves a GPU by UUID, else by PCI address, else by its index on the
// device. One that the inventory does not know is placed under its device by its
// index.
func (e *Enricher) GPU(device string, index uint32, uuid, pci string) cmdb.Placement {
	s, c := e.current()
	key := gpuKey{device, index, uuid, pci}
	c.mu.RLock()
	p, ok := c.gpus[key]
	c.mu.RUnlock()
	if ok {
		return p
	}
	e.lookups.Inc()
	id, known := findDevice(s, device)
	if !known {
		e.unknown.WithLabelValues("device").Inc()
	}
	number := strconv.FormatUint(uint64(index), 10)
	gpu, found := s.ByIdentity(id, uuid)
	if !found || s.Server(gpu) != id { // a GPU that was moved keeps its UUID; the inventory may be late
		gpu, found = s.ByIdentity(id, pci)
	}
	if !found || s.Server(gpu) != id {
		gpu, found = s.Resolve(id, schemas.KindGPU, number)
	}
	if found {
		p = place(s, gpu, device)
	} else {
		if known {
			e.unknown.WithLabelValues("part").Inc()
		}
		p = place(s, id, device)
		p.Resource, p.Kind = p.Resource+"/gpu"+number, schemas.KindGPU
	}
	c.mu.Lock()
	if len(c.gpus) >= cacheLimit {
		clear(c.gpus)
	}
	c.gpus[key] = p
	c.mu.Unlock()
	return p
}

// place fills a placement in. An id that the inventory lacks keeps its name and
// counts as its own server.
func place(s *cmdb.Snapshot, id, device string) cmdb.Placement {
	r, ok := s.Resource(id)
	if !ok {
		if id == "" {
			id = device
		}
		return cmdb.Placement{Resource: id, Server: id}
	}
	return cmdb.Placement{Resource: id, Kind: r.Kind, Server: s.Server(id), Rack: s.Rack(id), Site: s.Site(id), Model: s.Model(id)}
}

// findDevice finds a device by its id, by its host name without the domain, or
// by an identity.
func findDevice(s *cmdb.Snapshot, device string) (string, bool) {
	if _, ok := s.Resource(device); ok {
		return device, true
	}
	if host, _, ok := strings.Cut(device, "."); ok {
		if _, ok := s.Resource(host); ok {
			return host, true
		}
	}
	if id, ok := s.ByIdentity("", device); ok {
		return id, true
	}
	return device, false
}

// kindOf says which kind of part a type of event speaks of; "" is any.
func kindOf(eventType string) string {
	switch eventType {
	case schemas.EventSwitchPSU:
		return schemas.KindPSU
	case schemas.EventSwitchFan:
		return schemas.KindFan
	}
	switch prefix, _, _ := strings.Cut(eventType, "."); prefix {
	case "gpu":
		return schemas.KindGPU
	case "nvswitch":
		return schemas.KindNVSwitch
	case "psu":
		return schemas.KindPSU
	case "fan":
		return schemas.KindFan
	case "dimm":
		return schemas.KindDIMM
	case "disk":
		return schemas.KindDisk
	case "port":
		return schemas.KindPort
	case "nic":
		return schemas.KindNIC
	}
	return ""
}

// The attributes that hint at a part, the surest first, and the kind that each
// speaks of; "" is what the event's type says.
var nameHints = []struct{ attr, kind string }{
	{"gpu", schemas.KindGPU},
	{"nvswitch", schemas.KindNVSwitch},
	{"port", schemas.KindPort},
	{"part", ""},
	{"nic", schemas.KindNIC},
	{"disk", schemas.KindDisk},
	{"dimm", schemas.KindDIMM},
	{"sensor", ""},
	{"slot", ""},
	{"component", ""},
}

// Event resolves an event's resource from the device that it names and the hints
// in its attributes (uuid, pci, serial, mac, gpu, port, part, sensor, slot). It
// does not change the event.
func (e *Enricher) Event(ev *schemas.Event) cmdb.Placement {
	s := e.inv.Snapshot()
	if strings.HasPrefix(ev.Type, "workload.") {
		if r, ok := s.Resource(ev.Resource); !ok {
			return cmdb.Placement{Resource: ev.Resource, Kind: cmdb.KindWorkload, Site: workloadSite(s, ev.Resource)}
		} else if r.Kind != schemas.KindServer {
			return place(s, ev.Resource, ev.Resource)
		}
	}
	device, known := findDevice(s, ev.Resource)
	if !known {
		e.unknown.WithLabelValues("device").Inc()
		return place(s, device, ev.Resource)
	}
	r, _ := s.Resource(device)
	if r.Kind != schemas.KindServer && r.Kind != schemas.KindSwitch {
		return place(s, device, ev.Resource) // the collector knew the part
	}
	if ev.Type == schemas.EventBMCUnreachable {
		for _, c := range s.Children(device) {
			if part, _ := s.Resource(c); part.Kind == schemas.KindBMC {
				return place(s, c, device)
			}
		}
	}
	want, hinted := kindOf(ev.Type), false
	for _, attr := range []string{schemas.AttrUUID, schemas.AttrPCI, schemas.AttrSerial, schemas.AttrMAC} {
		v := ev.Attrs[attr]
		if v == "" {
			continue
		}
		hinted = true
		if id, ok := s.ByIdentity(device, v); ok && s.Server(id) == device && id != device {
			return place(s, id, device)
		}
	}
	for _, h := range nameHints {
		v := ev.Attrs[h.attr]
		if v == "" {
			continue
		}
		hinted = true
		kind := h.kind
		if kind == "" {
			kind = want
		}
		if id, ok := find(s, device, kind, v); ok {
			return place(s, id, device)
		}
	}
	if hinted && want != "" {
		e.unknown.WithLabelValues("part").Inc()
	}
	return place(s, device, ev.Resource)
}

func workloadSite(s *cmdb.Snapshot, id string) string {
	if w, ok := s.Workload(id); ok && len(w.Resources) > 0 {
		return s.Site(w.Resources[0])
	}
	return ""
}
