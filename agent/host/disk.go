package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"auspex/internal/target"
	"auspex/schemas"
)

// controllerAttrs are attributes of an NVMe controller (Linux,
// drivers/nvme/host/sysfs.c).
var controllerAttrs = []attr{
	{"state", "status", text},
	{"state", "up", isLive},
	{"model", "model", text},
	{"serial", "serial-number", text},
	{"firmware_rev", "firmware-version", text},
	{"transport", "transport", text},
}

// driveAttrs are attributes of another disk: those of its block device
// (Documentation/ABI/stable/sysfs-block), and of its SCSI device
// (drivers/scsi/scsi_sysfs.c) where it has one.
var driveAttrs = []attr{
	{"size", "size", sectors},
	{"device/state", "status", text},
	{"device/state", "up", isRunning},
	{"device/model", "model", text},
	{"device/rev", "firmware-version", text},
	{"device/ioerr_cnt", "command-errors", hex},
	{"device/iotmo_cnt", "command-timeouts", hex},
}

// disks reads NVMe controllers and the disks that are none.
type disks struct {
	m      *machine
	list   *list
	extras map[*item]*extra
	slots  slots

	log func(device string, page *logPage) error
	ata command
}

// extra is what a disk tells beyond its folder.
type extra struct {
	temperature    file
	temperatureRef target.Ref
	celsius        value

	device string // of an NVMe controller; empty is another disk
	health health
	ata    *ata // nil is no ATA disk
}

func newDisks(m *machine) source {
	return &disks{m: m, list: newList(m, "/host/disk"), extras: map[*item]*extra{}, slots: slots{m: m}, log: smartLog, ata: sendATA}
}

func (d *disks) read(at time.Time) {
	d.list.begin()
	d.slots.begin()
	for _, name := range d.names("class/nvme") {
		folder := d.m.sys("class/nvme", name)
		d.disk(at, name, folder, controllerAttrs, filepath.Join(d.m.cfg.Dev, name), folder, filepath.Join(folder, "device"))
	}
	for _, name := range d.names("block") {
		folder := d.m.sys("block", name)
		// A namespace of NVMe is its controller's; what has no device is none, as a loop,
		// and sr is a drive of CDs, mostly the BMC's virtual one.
		if numberedNVMe(name) || numbered(name, "sr") || d.m.link(filepath.Join(folder, "device")) == "" {
			continue
		}
		d.disk(at, name, folder, driveAttrs, "", filepath.Join(folder, "device"))
	}
	d.list.end()
	d.slots.end(at)
	for it := range d.extras {
		if !it.seen {
			d.m.shut(&d.extras[it].temperature)
			delete(d.extras, it)
		}
	}
	d.write(at)
}

// names lists a folder; where that fails it is not known which disks there are.
func (d *disks) names(folder string) []string {
	first, more := d.m.first, d.m.more
	out := d.m.names(d.m.sys(folder))
	d.slots.blind = d.slots.blind || d.m.more > more || first == nil && d.m.first != nil
	return out
}

// disk reads one; its temperature is in a hwmon folder below one of some.
func (d *disks) disk(at time.Time, name, folder string, attrs []attr, device string, hwmon ...string) {
	it, fresh := d.list.entry(name, d.m.link(folder), folder, attrs)
	if it == nil {
		return
	}
	if fresh {
		e := &extra{temperature: newFile(d.m.hwmon(hwmon)), device: device, temperatureRef: d.m.tree.Leaf(it.path + "/state/temperature")}
		switch {
		case device != "":
			e.health.leaves(d.m.tree, it.path+"/state/")
		case d.isATA(folder):
			e.ata = newATA(d.m.tree, it.path+"/state/", filepath.Join(d.m.cfg.Dev, name))
		}
		d.extras[it] = e
	}
	d.m.read(it)
	e := d.extras[it]
	if d.m.scan(&e.temperature, &e.celsius, milli); e.celsius.kind == nothing {
		// A disk that was replaced in its slot has another hwmon.
		if path := d.m.hwmon(hwmon); path != e.temperature.path {
			d.m.shut(&e.temperature)
			e.temperature.path = path
		}
	}
	if e.ata != nil {
		d.refused(e.ata.device, e.ata.read(at, d.ata), "CAP_SYS_RAWIO")
		if e.celsius.kind == nothing {
			e.celsius = e.ata.heat
		}
		if e.ata.failing.kind != nothing {
			d.fails(at, name, e.ata.serial, e.ata.model, "SMART", e.ata.failing.n != 0)
		}
	}
	if device == "" {
		if e.ata != nil {
			d.slots.found(e.ata.serial, name, e.ata.model, it.identity)
		}
		return
	}
	d.slots.found(textOf(it, "serial-number"), name, textOf(it, "model"), it.identity)
	page := &e.health.page
	err := d.log(device, page)
	e.health.known = err == nil
	d.refused(device, err, "CAP_SYS_ADMIN")
	if err == nil {
		const dying = 1 | 4 | 8 // of the critical warnings: spare, reliability, read-only
		d.fails(at, name, textOf(it, "serial-number"), textOf(it, "model"), "NVMe", page[0]&dying != 0)
	}
}

// isATA reports whether a disk that SCSI shows is an ATA disk: libata and translators
// (SAT-3, section 9.2) name it so for its vendor.
func (d *disks) isATA(folder string) bool {
	f := newFile(filepath.Join(folder, "device/vendor"))
	defer d.m.shut(&f)
	b, err := d.m.content(&f)
	return err == nil && string(b) == "ATA"
}

// refused tells that the health of a disk cannot be read.
func (d *disks) refused(device string, err error, right string) {
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, fs.ErrPermission):
		d.m.fault(fmt.Errorf("the health of %s cannot be read: it needs %s", device, right))
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO): // it goes
	default:
		d.m.fault(fmt.Errorf("the health of %s cannot be read: %w", device, err))
	}
}

// fails tells that a disk says of itself that it will fail, or does so no more.
func (d *disks) fails(at time.Time, name, serial, model, by string, failing bool) {
	if serial == "" {
		return // nobody could say which disk it was
	}
	ev := schemas.Event{
		Type: schemas.EventDiskPredictedFailure, Code: by, Severity: schemas.SeverityError,
		Message: fmt.Sprintf("%s of %s (%s, serial %s) says that the disk will fail", by, name, model, serial),
	}
	if !failing {
		ev.Message = fmt.Sprintf("%s of %s (%s, serial %s) says no more that the disk will fail", by, name, model, serial)
	}
	for k, v := range map[string]string{"serial": serial, "disk": name, "model": model} {
		ev.SetAttr(k, v)
	}
	d.m.condition(at, serial, failing, ev)
}

// textOf returns what a thing says of itself.
func textOf(it *item, leaf string) string {
	for _, r := range it.readings {
		if r.leaf == leaf && r.value.kind == isText {
			return r.value.s
		}
	}
	return ""
}

func (d *disks) write(at time.Time) {
	w := d.m.tree.Write(at)
	defer w.Close()
	for it, e := range d.extras {
		it.write(&w)
		e.celsius.write(&w, e.temperatureRef)
		if e.device != "" {
			e.health.write(&w)
		}
		if e.ata != nil {
			e.ata.write(&w)
		}
	}
}

// hwmon finds the file of a device's temperature below one of some folders
// (Documentation/hwmon/sysfs-interface.rst). None is a path that is not there.
func (m *machine) hwmon(folders []string) string {
	for _, folder := range folders {
		for _, pattern := range []string{"hwmon*/temp1_input", "hwmon/hwmon*/temp1_input"} {
			if found, err := filepath.Glob(filepath.Join(folder, pattern)); err == nil && len(found) > 0 {
				return found[0]
			}
		}
	}
	return filepath.Join(folders[0], "temp1_input")
}

// numberedNVMe reports whether a block device is a namespace, as nvme0n1 or nvme0c0n1.
func numberedNVMe(name string) bool {
	return len(name) > 4 && name[:4] == "nvme" && name[4] >= '0' && name[4] <= '9'
}

func isLive(v *value, b []byte) error    { v.bool(string(b) == "live"); return nil }
func isRunning(v *value, b []byte) error { v.bool(string(b) == "running"); return nil }

// sectors reads a size, which is in units of 512 bytes whatever the disk's are.
func sectors(v *value, b []byte) error {
	if err := number(v, b); err != nil {
		return err
	}
	v.n *= 512
	return nil
}
