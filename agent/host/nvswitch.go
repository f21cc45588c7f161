package host

import (
	"fmt"
	"path/filepath"
	"time"

	"auspex/schemas"
)

// switchAttrs are attributes of the PCIe device of an NVSwitch (Linux,
// Documentation/ABI/testing/sysfs-bus-pci).
var switchAttrs = []attr{
	{"device", "device-id", text},
	{"current_link_width", "up", answers},
	{"current_link_width", "pcie-width", lanes},
	{"max_link_width", "pcie-width-max", lanes},
	{"current_link_speed", "pcie-speed", transfers},
	{"max_link_speed", "pcie-speed-max", transfers},
}

// nvswitches reads the NVSwitches that are PCIe devices of the server. What they count only
// fabric manager and the driver's log tell.
type nvswitches struct {
	m       *machine
	list    *list
	is      map[string]bool // addresses of devices, and whether they are NVSwitches
	missing map[string]int  // readings in which one that was there did not answer
}

// lostAfter is how many readings in a row an NVSwitch does not answer until that is told.
const lostAfter = 2

func newNVSwitches(m *machine) source {
	return &nvswitches{m: m, list: newList(m, "/host/nvswitch"), is: map[string]bool{}, missing: map[string]int{}}
}

func (n *nvswitches) read(at time.Time) {
	n.list.begin()
	here := map[string]bool{}
	for _, address := range n.m.names(n.m.sys("bus/pci/devices")) {
		folder := n.m.sys("bus/pci/devices", address)
		here[address] = true
		if _, known := n.is[address]; !known {
			n.is[address] = n.holds(folder, "class", "0x068000") && n.holds(folder, "vendor", "0x10de")
		}
		if !n.is[address] {
			continue
		}
		driver := filepath.Base(n.m.link(filepath.Join(folder, "driver")))
		it, fresh := n.list.entry(address, driver, folder, switchAttrs)
		if it == nil {
			continue
		}
		if fresh && driver != "." {
			n.m.text(it, "driver", driver)
		}
		n.m.read(it)
	}
	for address, is := range n.is {
		if !is {
			if !here[address] {
				delete(n.is, address)
			}
			continue
		}
		n.lost(at, address, here[address])
	}
	n.list.end()
	n.list.write(at)
}

// holds reports whether a file of a device holds a word.
func (n *nvswitches) holds(folder, name, word string) bool {
	f := newFile(filepath.Join(folder, name))
	defer n.m.shut(&f)
	b, err := n.m.content(&f)
	if err != nil && !absent(err) {
		n.m.fault(err)
	}
	return err == nil && string(b) == word
}

// lost tells of an NVSwitch that does not answer any more, and of one that does again.
func (n *nvswitches) lost(at time.Time, address string, here bool) {
	up := here
	if it := n.list.items[address]; here && it != nil {
		for _, r := range it.readings {
			if r.leaf == "up" && r.value.kind == isBool {
				up = r.value.n != 0
			}
		}
	}
	if up {
		n.missing[address] = 0
	} else if n.missing[address]++; n.missing[address] < lostAfter {
		return
	}
	ev := schemas.Event{
		Type: schemas.EventNVSwitchMissing, Code: "LOST", Severity: schemas.SeverityCritical,
		Message: fmt.Sprintf("NVSwitch %s does not answer on PCIe any more", address),
	}
	if up {
		ev.Message = fmt.Sprintf("NVSwitch %s answers on PCIe", address)
	}
	ev.SetAttr("pci", address)
	n.m.condition(at, address, !up, ev)
}

// answers reads the width of a link for whether its device is there: one that is gone reads
// as ones, which are 63 lanes.
func answers(v *value, b []byte) error {
	var width value
	if err := number(&width, b); err != nil {
		if string(b) == "Unknown" {
			return nil
		}
		return err
	}
	v.bool(width.n > 0 && width.n <= 32)
	return nil
}
