package host

import (
	"bytes"
	"path/filepath"
	"strconv"
	"time"
)

// portAttrs are attributes of a port of an RDMA device (Linux,
// Documentation/ABI/stable/sysfs-class-infiniband). Counters of octets count words of
// 32 bits, and have 64 bits where the device has extended ones.
var portAttrs = []attr{
	{"state", "port-state", meaning},
	{"state", "up", isActive},
	{"phys_state", "physical-state", meaning},
	{"rate", "speed", gigabits},
	{"link_layer", "link-layer", text},
	{"counters/port_rcv_data", "in-octets", words},
	{"counters/port_xmit_data", "out-octets", words},
	{"counters/port_rcv_packets", "in-packets", number},
	{"counters/port_xmit_packets", "out-packets", number},
	{"counters/port_rcv_errors", "in-errors", number},
	{"counters/port_xmit_discards", "out-discards", number},
	{"counters/port_xmit_wait", "out-wait", number},
	{"counters/symbol_error", "symbol-errors", number},
	{"counters/link_error_recovery", "link-recoveries", number},
	{"counters/link_downed", "link-downs", number},
	{"counters/local_link_integrity_errors", "integrity-errors", number},
}

// infiniband reads the ports of RDMA devices, InfiniBand and RoCE.
type infiniband struct {
	m    *machine
	list *list
}

func newInfiniBand(m *machine) source {
	return &infiniband{m: m, list: newList(m, "/host/infiniband-port")}
}

func (i *infiniband) read(at time.Time) {
	i.list.begin()
	for _, device := range i.m.names(i.m.sys("class/infiniband")) {
		folder := i.m.sys("class/infiniband", device)
		identity, ports := i.m.link(folder), filepath.Join(folder, "ports")
		for _, port := range i.m.names(ports) {
			it, fresh := i.list.entry(device+":"+port, identity, filepath.Join(ports, port), portAttrs)
			if it == nil {
				continue
			}
			if fresh {
				i.m.text(it, "pci-address", pciAddress(i.m.link(filepath.Join(folder, "device"))))
			}
			i.m.read(it)
		}
	}
	i.list.end()
	i.list.write(at)
}

// meaning reads the word of "4: ACTIVE".
func meaning(v *value, b []byte) error {
	code, word, ok := bytes.Cut(b, []byte(": "))
	if _, err := strconv.ParseUint(string(code), 10, 8); err != nil || !ok {
		return unexpected("a state", b)
	}
	return text(v, word)
}

// isActive reads the state of a port: 4 passes traffic (InfiniBand Architecture 1.3,
// section 14.2.5.6, PortState).
func isActive(v *value, b []byte) error {
	code, _, _ := bytes.Cut(b, []byte{':'})
	n, err := strconv.ParseUint(string(code), 10, 8)
	if err != nil {
		return unexpected("a state", b)
	}
	v.bool(n == 4)
	return nil
}

// gigabits reads a rate as "400 Gb/sec (4X NDR)".
func gigabits(v *value, b []byte) error {
	rate, unit, _ := bytes.Cut(b, []byte{' '})
	n, err := strconv.ParseFloat(string(rate), 64)
	if err != nil || !(n >= 0 && n < 1e6) || !bytes.HasPrefix(unit, []byte("Gb/sec")) {
		return unexpected("Gb/sec", b)
	}
	v.number(uint64(n*1e9 + .5))
	return nil
}

func words(v *value, b []byte) error {
	if err := number(v, b); err != nil {
		return err
	}
	v.n *= 4 // wraps around with the counter
	return nil
}
