package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"auspex/internal/target"
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

	log func(device string, page *logPage) error
}

// extra is what a disk tells beyond its folder.
type extra struct {
	temperature    file
	temperatureRef target.Ref
	celsius        value

	device string // of an NVMe controller; empty is another disk
	health health
}

func newDisks(m *machine) source {
	return &disks{m: m, list: newList(m, "/host/disk"), extras: map[*item]*extra{}, log: smartLog}
}

func (d *disks) read(at time.Time) {
	d.list.begin()
	for _, name := range d.m.names(d.m.sys("class/nvme")) {
		folder := d.m.sys("class/nvme", name)
		d.disk(name, folder, controllerAttrs, filepath.Join(d.m.cfg.Dev, name), folder, filepath.Join(folder, "device"))
	}
	for _, name := range d.m.names(d.m.sys("block")) {
		folder := d.m.sys("block", name)
		// A namespace of NVMe is its controller's; what has no device is none, as a loop,
		// and sr is a drive of CDs, mostly the BMC's virtual one.
		if numberedNVMe(name) || numbered(name, "sr") || link(filepath.Join(folder, "device")) == "" {
			continue
		}
		d.disk(name, folder, driveAttrs, "", filepath.Join(folder, "device"))
	}
	d.list.end()
	for it := range d.extras {
		if !it.seen {
			d.m.shut(&d.extras[it].temperature)
			delete(d.extras, it)
		}
	}
	d.write(at)
}

// disk reads one; its temperature is in a hwmon folder below one of some.
func (d *disks) disk(name, folder string, attrs []attr, device string, hwmon ...string) {
	it, fresh := d.list.entry(name, link(folder), folder, attrs)
	if it == nil {
		return
	}
	if fresh {
		e := &extra{temperature: newFile(d.m.hwmon(hwmon)), device: device, temperatureRef: d.m.tree.Leaf(it.path + "/state/temperature")}
		if device != "" {
			e.health.leaves(d.m.tree, it.path+"/state/")
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
	if device == "" {
		return
	}
	page := &e.health.page
	err := d.log(device, page)
	e.health.known = err == nil
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, fs.ErrPermission):
		d.m.fault(fmt.Errorf("the health of %s cannot be read: it needs CAP_SYS_ADMIN", device))
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO): // it goes
	default:
		d.m.fault(fmt.Errorf("the health of %s cannot be read: %w", device, err))
	}
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
