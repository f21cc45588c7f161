package redfish

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/sensor"
	"auspex/internal/decode/redfishevent"
	"auspex/schemas"
)

// readEquipment follows PowerEquipment and ThermalEquipment to what has readings: power shelves and coolant distribution units
// (DSP0268, PowerEquipment, PowerDistribution, CoolingUnit).
func (r *reader) readEquipment(ctx context.Context, src *source, _ time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil {
		return err
	}
	for _, k := range [][2]string{{"PowerShelves", "PowerShelf"}, {"CDUs", "CDU"}} {
		list, err := r.members(ctx, o.Link(k[0]))
		if err != nil {
			return err
		}
		for _, m := range list {
			for _, c := range []*source{
				r.child(src, m.Link("PowerSupplies"), rankExcerpts, (*reader).readSupplies),
				r.child(src, m.Link("Metrics"), rankExcerpts, (*reader).readExcerpts),
				r.child(src, m.Link("LeakDetection"), rankWalk, (*reader).readLeakDetection),
			} {
				if c != nil {
					c.apart = k[1] + " " + cmp.Or(m.String("Id"), lastPart(m.ID()))
					c.chassis = cmp.Or(c.chassis, c.apart)
				}
			}
		}
	}
	return nil
}

// readLeakDetection follows to the detectors of leaks.
func (r *reader) readLeakDetection(ctx context.Context, src *source, _ time.Time) error {
	o, err := r.get(ctx, src.path)
	r.child(src, o.Link("LeakDetectors"), rankExcerpts, (*reader).readLeakDetectors)
	return err
}

// readLeakDetectors reads the detectors of leaks. Where the service does not expand them, each is a source of its own.
func (r *reader) readLeakDetectors(ctx context.Context, src *source, now time.Time) error {
	list, err := r.list(ctx, src.path)
	if err == nil {
		err = r.loadCursors(ctx)
	}
	src.list = true
	for _, o := range list {
		if o.IsLink() {
			r.child(src, o.ID(), rankSensor, (*reader).readLeakDetector)
			continue
		}
		r.leak(src, o, now)
	}
	return err
}

func (r *reader) readLeakDetector(ctx context.Context, src *source, now time.Time) error {
	o, err := r.get(ctx, src.path)
	if err != nil || o == nil {
		return err
	}
	if err := r.loadCursors(ctx); err != nil {
		return err
	}
	if o.ID() == "" {
		o["@odata.id"] = src.path
	}
	r.leak(src, o, now)
	return nil
}

// leakKey is the key of what a detector has said, among the positions of logs.
func leakKey(detector string) string { return "leak " + detector }

// leak reads a detector (DSP0268, LeakDetector): a series, and an event when its state changes. What it said is kept with the
// positions of the logs, so that a leak that ends while nobody reads is ended all the same.
func (r *reader) leak(src *source, o redfish.Object, now time.Time) {
	state := o.String("DetectorState")
	message, ok := map[string]string{"OK": "LeakDetectedNormal", "Warning": "LeakDetectedWarning", "Critical": "LeakDetectedCritical"}[state]
	if !ok || silent(o) || o.ID() == "" {
		return
	}
	name := nameOf(o)
	r.put(src, &reading{
		id: o.ID(), name: name, alt: strings.TrimSpace(src.chassis + " " + name), array: "LeakDetectors", value: truth(state != "OK"), ok: true,
		metric: &sensor.Series{Metric: "auspex_server_leak_detected", Scale: 1},
	}, now)
	key := leakKey(o.ID())
	if was := cmp.Or(r.leaks[key], r.cursors[key].Last, "OK"); was == state {
		return
	}
	e := redfishevent.Entry{MessageID: "Environmental.1.0." + message, Created: now.UTC().Format(time.RFC3339Nano), ODataID: o.ID(), Args: []any{name}}
	e.Message = fmt.Sprintf("Leak detector %s (%s) is %s.", name, o.ID(), map[string]string{
		"OK": "dry again", "Warning": "wet: warning", "Critical": "wet: critical",
	}[state])
	ev := e.Event()
	ev.ID = schemas.EventID(r.device, e.Created, o.ID(), state)
	ev.Resource, ev.Observed = r.device, now
	r.batch.Event(ev)
	r.leaks[key] = state
}

// keepLeaks keeps what detectors have said, when it has been sent.
func (r *reader) keepLeaks(ctx context.Context) error {
	if len(r.leaks) == 0 {
		return nil
	}
	for key, state := range r.leaks {
		if r.cursors[key] = (position{Last: state}); state == "OK" {
			delete(r.cursors, key)
		}
	}
	clear(r.leaks)
	return r.keepCursors(ctx)
}
