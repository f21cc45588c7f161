package redfish

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/internal/bmc/redfish"
	"auspex/internal/bmc/sensor"
	"auspex/schemas"
)

// part is one that a service has, or a firmware: a series of the value 1, whose labels say what it is.
type part struct {
	metric, kind, part, name     string
	model, maker, serial, number string
	component, firmware          string
}

const (
	partsEvery   = time.Hour       // how often what a service is made of is read
	partsToldFor = 2 * time.Minute // how often it is told: twice before a reading becomes stale
	mostParts    = 512             // of a device
)

// labels are what is said of it; what is not known is left out.
func (p *part) labels() (out []string) {
	version := "firmware"
	if p.component != "" {
		version = "version"
	}
	for _, l := range [][2]string{
		{"component", p.component}, {"name", p.name}, {"manufacturer", p.maker}, {"model", p.model}, {"part_number", p.number}, {"serial", p.serial}, {version, p.firmware},
	} {
		if l[1] != "" {
			out = append(out, l[0], l[1])
		}
	}
	return out
}

// partFrom reads a part (DSP0268: Processor, Memory, Drive, NetworkAdapter, PowerSupply, Fan, and the older ones in Thermal
// and Power); ok is false for one that is absent or of which nothing is said that a list of parts is read for.
func partFrom(o redfish.Object, kind, id string) (p part, ok bool) {
	p = part{
		metric: "auspex_" + cmp.Or(kind, schemas.KindServer) + "_info", kind: kind, part: id, name: sensor.Told(cmp.Or(o.String("Id"), o.String("MemberId"), lastPart(o.ID()))),
		model: sensor.Told(o.String("Model")), maker: sensor.Told(o.String("Manufacturer")), serial: sensor.Serial(o.String("SerialNumber")), number: sensor.Serial(o.String("PartNumber")),
		firmware: sensor.Told(cmp.Or(o.String("FirmwareVersion"), o.String("Revision"))),
	}
	switch kind {
	case schemas.KindNIC:
		for _, c := range o.Objects("Controllers") {
			p.firmware = cmp.Or(p.firmware, sensor.Told(c.String("FirmwarePackageVersion")))
		}
	case schemas.KindCPU, schemas.KindGPU:
		p.firmware = sensor.Told(o.String("FirmwareVersion"))
	case "":
		p.firmware = sensor.Told(o.String("BiosVersion"))
	}
	ok = o.Object("Status").String("State") != "Absent" && (p.serial != "" || p.number != "" || p.model != "")
	return p, ok
}

// holds notes what a source has of parts, in place of what it had.
func (r *reader) holds(src *source, list ...part) {
	if !slices.Equal(r.found.parts[src.path], list) {
		r.partsAt = time.Time{} // it is news
	}
	if len(list) == 0 {
		delete(r.found.parts, src.path)
		return
	}
	r.found.parts[src.path] = list
}

// holdsMembers notes the parts of a list, whose names are known.
func (r *reader) holdsMembers(src *source, kind string, list []redfish.Object, names []string) {
	var parts []part
	for i, o := range list {
		if p, ok := partFrom(o, kind, names[i]); ok {
			parts = append(parts, p)
		}
	}
	r.holds(src, parts...)
}

// readUpdates follows the update service to the firmware.
func (r *reader) readUpdates(ctx context.Context, src *source, _ time.Time) error {
	o, err := r.get(ctx, src.path)
	r.child(src, o.Link("FirmwareInventory"), rankParts, (*reader).readFirmwares)
	return err
}

func (r *reader) readFirmwares(ctx context.Context, src *source, _ time.Time) error {
	return r.eachPart(ctx, src, (*reader).readFirmware, firmwareFrom)
}

func (r *reader) readFirmware(ctx context.Context, src *source, _ time.Time) error {
	return r.onePart(ctx, src, firmwareFrom)
}

// firmwareFrom reads a member of a firmware inventory (DSP0268, SoftwareInventory). What is kept to go back to, or waits to be
// installed, is not what runs.
func firmwareFrom(o redfish.Object) (part, bool) {
	id := cmp.Or(o.String("Id"), lastPart(o.ID()))
	p := part{
		metric: "auspex_server_firmware_info", name: sensor.Told(cmp.Or(o.String("Name"), id)), component: id,
		firmware: sensor.Told(o.String("Version")),
	}
	for _, other := range []string{"Previous", "Available", "Rollback"} { // iDRAC names what it keeps beside so
		if strings.HasPrefix(id, other+"-") {
			return p, false
		}
	}
	return p, p.firmware != "" && o.Object("Status").String("State") != "Absent"
}

// readStorage follows the storage of a system to its drives.
func (r *reader) readStorage(ctx context.Context, src *source, _ time.Time) error {
	list, err := r.members(ctx, src.path)
	for _, s := range list {
		for _, d := range s.Objects("Drives") {
			r.child(src, d.ID(), rankParts, (*reader).readDrive)
		}
	}
	return err
}

func (r *reader) readDrive(ctx context.Context, src *source, _ time.Time) error {
	return r.onePart(ctx, src, partOfKind(schemas.KindDisk))
}

func (r *reader) readAdapters(ctx context.Context, src *source, _ time.Time) error {
	return r.eachPart(ctx, src, (*reader).readAdapter, partOfKind(schemas.KindNIC))
}

func (r *reader) readAdapter(ctx context.Context, src *source, _ time.Time) error {
	return r.onePart(ctx, src, partOfKind(schemas.KindNIC))
}

// partOfKind reads parts that have no readings, by the place that they name.
func partOfKind(kind string) func(redfish.Object) (part, bool) {
	return func(o redfish.Object) (part, bool) {
		at := ""
		if n, ok := o.Object("PhysicalLocation").Object("PartLocation").Number("LocationOrdinalValue"); ok {
			at = strconv.Itoa(int(n))
		}
		return partFrom(o, kind, partOf(kind, at, label(o), cmp.Or(o.String("Id"), lastPart(o.ID())), o.String("Name")))
	}
}

// eachPart reads a collection of parts. Where the service does not expand it, each becomes a source of its own.
func (r *reader) eachPart(
	ctx context.Context, src *source, one func(*reader, context.Context, *source, time.Time) error, from func(redfish.Object) (part, bool),
) error {
	list, err := r.list(ctx, src.path)
	var parts []part
	for _, o := range list {
		if o.IsLink() {
			r.child(src, o.ID(), rankParts, one)
		} else if p, ok := from(o); ok {
			parts = append(parts, p)
		}
	}
	r.holds(src, parts...)
	return err
}

func (r *reader) onePart(ctx context.Context, src *source, from func(redfish.Object) (part, bool)) error {
	o, err := r.get(ctx, src.path)
	if p, ok := from(o); ok && o != nil {
		r.holds(src, p)
	} else {
		r.holds(src)
	}
	return err
}

// tellParts gives what the service is made of as series of the value 1. Several resources may show one part: the same serial
// number of a kind is told once.
func (r *reader) tellParts(now time.Time) {
	if now.Sub(r.partsAt) < partsToldFor || len(r.found.parts) == 0 {
		return
	}
	r.partsAt = now
	var all []part
	for _, list := range r.found.parts {
		all = append(all, list...)
	}
	rank := func(p *part) string {
		return strings.Join([]string{p.metric, p.kind, p.part, p.name, strings.Join(p.labels(), "\x00")}, "\x00")
	}
	slices.SortFunc(all, func(a, b part) int {
		return cmp.Or(len(b.labels())-len(a.labels()), strings.Compare(rank(&a), rank(&b)))
	})
	seen := make(map[[2]string]bool)
	n := 0
	for i := range all {
		p := &all[i]
		key := [2]string{p.metric, p.serial}
		if p.serial == "" {
			key[1] = "\x00" + rank(p)
		}
		if seen[key] {
			continue
		}
		seen[key] = true
		if n++; n > mostParts {
			r.unmapped.Inc()
			continue
		}
		r.batch.Sample(r.batch.Series(p.metric, p.kind, p.part, p.labels()...), now, 1)
	}
}
