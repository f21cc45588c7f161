package ipmi

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"auspex/collectors"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

const (
	partsEvery   = time.Hour       // how often the inventories of the parts are read
	partsToldFor = 2 * time.Minute // how often they are told: twice before a reading becomes stale
	mostParts    = 64              // of a controller
)

// entities are kinds of parts by their entity (table 43-13): processor, memory module, power supply, fan, memory device.
// Boards and all else are parts of the server that have no kind.
var entities = map[uint8]string{3: schemas.KindCPU, 8: schemas.KindDIMM, 10: schemas.KindPSU, 29: schemas.KindFan, 32: schemas.KindDIMM}

// partPlace is where a part is, by its locator record.
type partPlace struct {
	device           uint8 // of its inventory
	kind, part, name string
}

// placesOf names the parts of locator records: as their sensors are named where the record's name speaks of the same kind,
// else by the instance.
func placesOf(devices []ipmi.FRUDevice) []partPlace {
	out := []partPlace{{name: "system"}}
	for _, d := range devices[:min(len(devices), mostParts-1)] {
		p := partPlace{device: d.ID, kind: entities[d.Entity], name: sensor.Told(d.Name)}
		if p.kind != "" {
			p.part = p.kind + strconv.Itoa(int(d.Instance))
		}
		if kind, part := sensor.Part(d.Name); kind != "" && (kind == p.kind || p.kind == "") {
			p.kind, p.part = kind, part
		}
		out = append(out, p)
	}
	return out
}

// partsState is what is known of the parts.
type partsState struct {
	list           []toldPart
	readAt, toldAt time.Time
}

// toldPart is a part, and what is told of it: pairs of name and value.
type toldPart struct {
	place  *partPlace
	labels []string
}

// readParts reads what the controller keeps of the machine and its parts, and tells it as series of the value 1, as those of
// Redfish are told. They go apart from the readings: serial numbers are each device's own, and the names of its readings are
// those of its model. Who has no inventory of a part, refuses it, or has a damaged one, tells nothing of it.
func (r *reader) readParts(ctx context.Context, now time.Time) error {
	p := &r.parts
	if !p.readAt.IsZero() && now.Sub(p.readAt) < partsEvery {
		return nil
	}
	var list []toldPart
	for i := range r.model.places {
		place := &r.model.places[i]
		fru, err := r.conn.FRUOf(ctx, place.device)
		switch {
		case errors.Is(err, ipmi.ErrDamaged):
			r.badRecords.Inc()
			continue
		case errors.Is(err, ipmi.ErrNoRecord), errors.Is(err, ipmi.ErrRefused):
			continue
		case err != nil:
			return err
		}
		t := toldPart{place: place}
		serial, number, model := sensor.Serial(fru.Serial), sensor.Serial(fru.Part), sensor.Told(fru.Product)
		if serial == "" && number == "" && model == "" {
			continue
		}
		for _, l := range [][2]string{
			{"name", place.name}, {"manufacturer", sensor.Told(fru.Manufacturer)}, {"model", model}, {"part_number", number}, {"serial", serial},
		} {
			if l[1] != "" {
				t.labels = append(t.labels, l[0], l[1])
			}
		}
		list = append(list, t)
	}
	*p = partsState{list: list, readAt: now}
	return nil
}

// tellParts sends what is known of the parts.
func (r *reader) tellParts(ctx context.Context, out collectors.Emitter, now time.Time) error {
	p := &r.parts
	if len(p.list) == 0 || now.Sub(p.toldAt) < partsToldFor {
		return nil
	}
	b := collectors.NewBatch(r.device, Name)
	for _, t := range p.list {
		metric := "auspex_" + cmp.Or(t.place.kind, schemas.KindServer) + "_info"
		b.Sample(b.Series(metric, t.place.kind, t.place.part, t.labels...), now, 1)
	}
	p.toldAt = now
	return b.Emit(ctx, out, now)
}
