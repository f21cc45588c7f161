package host

import (
	"bytes"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// nicAttrs are attributes of a network interface (Linux,
// Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-statistics) and of the
// PCIe device behind it (Documentation/ABI/testing/sysfs-bus-pci).
var nicAttrs = append([]attr{
	{"operstate", "oper-status", text},
	{"operstate", "up", isUp},
	{"flags", "enabled", isEnabled},
	{"address", "mac-address", text},
	{"speed", "speed", megabits},
	{"carrier_changes", "carrier-transitions", number},
	{"statistics/rx_bytes", "in-octets", number},
	{"statistics/tx_bytes", "out-octets", number},
	{"statistics/rx_packets", "in-packets", number},
	{"statistics/tx_packets", "out-packets", number},
	{"statistics/rx_errors", "in-errors", number},
	{"statistics/tx_errors", "out-errors", number},
	{"statistics/rx_crc_errors", "in-fcs-errors", number},
	{"statistics/rx_dropped", "in-discards", number},
	{"statistics/tx_dropped", "out-discards", number},
}, pcieAttrs...)

var pcieAttrs = []attr{
	{"device/current_link_width", "pcie-width", lanes},
	{"device/max_link_width", "pcie-width-max", lanes},
	{"device/current_link_speed", "pcie-speed", transfers},
	{"device/max_link_speed", "pcie-speed-max", transfers},
}

// nics reads the network interfaces that have a device; bridges, tunnels and the like
// have none.
type nics struct {
	m    *machine
	list *list
}

func newNICs(m *machine) source { return &nics{m: m, list: newList(m, "/host/nic")} }

func (n *nics) read(at time.Time) {
	n.list.begin()
	for _, name := range n.m.names(n.m.sys("class/net")) {
		folder := n.m.sys("class/net", name)
		identity := n.m.link(folder)
		if strings.Contains(identity, "/virtual/") {
			continue
		}
		device := n.m.link(filepath.Join(folder, "device"))
		if device == "" {
			continue
		}
		// Interfaces are renamed, and a file that is open stays its interface's.
		it, fresh := n.list.entry(name, identity+" "+device, folder, nicAttrs)
		if it == nil {
			continue
		}
		if fresh {
			n.m.text(it, "pci-address", pciAddress(device))
		}
		n.m.read(it)
	}
	n.list.end()
	n.list.write(at)
}

// pciAddress is the end of a device's path if that is an address, as 0000:1b:00.0.
func pciAddress(device string) string {
	base := filepath.Base(device)
	if strings.Count(base, ":") == 2 && strings.Count(base, ".") == 1 && plain(base) {
		return base
	}
	return ""
}

// isUp reads operstate (RFC 2863, as in Documentation/networking/operstates.rst).
func isUp(v *value, b []byte) error {
	switch string(b) {
	case "up":
		v.bool(true)
	case "unknown": // the driver does not tell
	case "down", "notpresent", "lowerlayerdown", "testing", "dormant":
		v.bool(false)
	default:
		return unexpected("an operstate", b)
	}
	return nil
}

// isEnabled reads IFF_UP of the flags of an interface (netdevice(7)): who administers the
// machine wants it up.
func isEnabled(v *value, b []byte) error {
	if err := hex(v, b); err != nil {
		return err
	}
	v.bool(v.n&1 != 0)
	return nil
}

// megabits reads the speed of a link in Mb/s; -1 and its 32 bits are unknown.
func megabits(v *value, b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n > 1<<32 {
		return unexpected("a speed", b)
	}
	if n > 0 && n != 1<<32-1 {
		v.number(uint64(n) * 1e6)
	}
	return nil
}

// lanes reads the width of a PCIe link; 0 and 63 are what a device says that does not
// answer.
func lanes(v *value, b []byte) error {
	if string(b) == "Unknown" {
		return nil
	}
	if err := number(v, b); err != nil {
		return err
	}
	if v.n == 0 || v.n > 32 {
		v.kind = nothing
	}
	return nil
}

// transfers reads the speed of a PCIe link, as "32.0 GT/s PCIe".
func transfers(v *value, b []byte) error {
	speed, unit, _ := bytes.Cut(b, []byte{' '})
	if string(speed) == "Unknown" {
		return nil
	}
	n, err := strconv.ParseFloat(string(speed), 64)
	if err != nil || !(n > 0 && n < 10000) || !bytes.HasPrefix(unit, []byte("GT/s")) {
		return unexpected("GT/s", b)
	}
	v.number(uint64(n*1e9 + .5))
	return nil
}
