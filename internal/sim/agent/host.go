package agent

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"auspex/agent/host"
	"auspex/internal/sim/fleet"
)

// machine is the sysfs and the procfs of a server of the model, as far as [host.Host] reads
// them. Nothing of it is stored: what a file holds is written when it is read.
type machine struct {
	fleet  *fleet.Fleet
	server string
	boot   string // the file with the id of the boot

	mu   sync.Mutex
	view fleet.Machine
	at   time.Time // when the model was looked at
}

// fresh is how long a look at the model serves the readings that come together.
const fresh = 500 * time.Millisecond

// look is what the kernel shows now; the caller holds the lock.
func (m *machine) look() *fleet.Machine {
	if now := time.Now(); now.Sub(m.at) > fresh {
		m.at = now
		m.fleet.Machine(m.server, &m.view)
	}
	return &m.view
}

const (
	pciDevices = "/sys/bus/pci/devices"
	netClass   = "/sys/class/net"
	edac       = "/sys/devices/system/edac/mc"
	nvmeClass  = "/sys/class/nvme"
	blocks     = "/sys/block"
	speed      = 400000 // of an interface, Mb/s
)

// Read implements [host.Files].
func (m *machine) Read(name string, into []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.file(name)
	if !ok {
		return 0, syscall.ENOENT
	}
	return copy(into, text), nil
}

// file writes what a file holds.
func (m *machine) file(name string) (string, bool) {
	v := m.look()
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	switch {
	case dir == "/proc/pressure":
		return pressure(base, v.Busy), true
	case name == "/proc/uptime":
		return fmt.Sprintf("%.2f %.2f", v.Now.Sub(v.Up).Seconds(), v.Now.Sub(v.Up).Seconds()*100), true
	case name == "/proc/sys/kernel/random/boot_id":
		b, err := os.ReadFile(m.boot)
		return string(b), err == nil
	case name == "/proc/sys/kernel/osrelease":
		return "6.8.0-1029-nvidia", true
	case name == "/proc/driver/nvidia/version":
		return "NVRM version: NVIDIA UNIX x86_64 Kernel Module  " + cmp.Or(v.Driver, "570.124.06") + "  Release Build", true
	case name == "/etc/machine-id":
		return v.ID, true
	case path.Dir(dir) == pciDevices:
		return m.nvswitch(v, path.Base(dir), base)
	case strings.HasPrefix(dir, netClass+"/"):
		nic, file, _ := strings.Cut(strings.TrimPrefix(name, netClass+"/"), "/")
		for i := range v.NICs {
			if v.NICs[i].Name == nic {
				return interfaceFile(&v.NICs[i], file)
			}
		}
	case strings.HasPrefix(dir, nvmeClass), strings.HasPrefix(dir, blocks):
		return diskFile(v, name)
	case path.Dir(dir) == edac:
		return "0", base == "ce_noinfo_count" || base == "ue_noinfo_count"
	case path.Dir(path.Dir(dir)) == edac:
		n, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "dimm"))
		if err == nil && n >= 0 && n < len(v.DIMMs) {
			return module(n, &v.DIMMs[n], base)
		}
	}
	return "", false
}

// pressure writes what waits: a server that trains waits a little, for its data.
func pressure(resource string, busy float64) string {
	some := map[string]float64{"cpu": .5 + 1.5*busy, "memory": 0, "io": .2 + 3*busy}[resource]
	return fmt.Sprintf("some avg10=%.2f avg60=%.2f avg300=%.2f total=0\nfull avg10=%.2f avg60=0.00 avg300=0.00 total=0", some, some, some, some/4)
}

func (m *machine) nvswitch(v *fleet.Machine, address, file string) (string, bool) {
	for _, s := range v.NVSwitches {
		if s == address {
			text, ok := map[string]string{
				"class": "0x068000", "vendor": "0x10de", "device": "0x22a3", "current_link_width": "2", "max_link_width": "2",
				"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
			}[file]
			return text, ok
		}
	}
	return "", false
}

func interfaceFile(n *fleet.MachineNIC, file string) (string, bool) {
	count := func(v uint64) (string, bool) { return strconv.FormatUint(v, 10), true }
	const frame = 4096 // octets of a packet
	switch file {
	case "operstate":
		if n.Up {
			return "up", true
		}
		return "down", true
	case "flags":
		return "0x1003", true
	case "address":
		return n.MAC, true
	case "speed":
		if !n.Up {
			return "-1", true
		}
		return count(speed)
	case "carrier_changes":
		return count(n.Carrier)
	case "statistics/rx_bytes":
		return count(n.In)
	case "statistics/tx_bytes":
		return count(n.Out)
	case "statistics/rx_packets":
		return count(n.In / frame)
	case "statistics/tx_packets":
		return count(n.Out / frame)
	case "device/current_link_width", "device/max_link_width":
		return "16", true
	case "device/current_link_speed", "device/max_link_speed":
		return "32.0 GT/s PCIe", true
	}
	return "0", strings.HasPrefix(file, "statistics/")
}

func module(n int, d *fleet.MachineDIMM, file string) (string, bool) {
	switch file {
	case "dimm_label":
		return fmt.Sprintf("DIMM%d", n), true
	case "dimm_location":
		return fmt.Sprintf("channel %d slot 0", n), true
	case "dimm_mem_type":
		return "Registered-DDR5", true
	case "size":
		return "65536", true
	case "dimm_ce_count":
		return strconv.FormatUint(d.Corrected, 10), true
	case "dimm_ue_count":
		return strconv.FormatUint(d.Uncorrected, 10), true
	}
	return "", false
}

// Names implements [host.Files].
func (m *machine) Names(dir string) (out []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.look()
	switch dir {
	case pciDevices:
		return slices.Clone(v.NVSwitches[:]), nil
	case nvmeClass, blocks:
		for i := range v.Disks {
			if d := &v.Disks[i]; !d.Gone && (dir == blocks || d.PCI != "") {
				out = append(out, path.Base(diskFolder(d, dir)))
			}
		}
		return out, nil
	case netClass:
		for i := range v.NICs {
			out = append(out, v.NICs[i].Name)
		}
		return out, nil
	case edac:
		return []string{"mc0"}, nil
	case edac + "/mc0":
		for i := range v.DIMMs {
			out = append(out, fmt.Sprintf("dimm%d", i))
		}
		return out, nil
	}
	return nil, syscall.ENOENT
}

// Link implements [host.Files].
func (m *machine) Link(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.look()
	if path.Dir(path.Dir(name)) == pciDevices && path.Base(name) == "driver" {
		return "../../../../bus/pci/drivers/nvidia-nvswitch"
	}
	for i := range v.Disks {
		d := &v.Disks[i]
		at := "../../devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0"
		switch {
		case d.Gone:
		case name == nvmeClass+"/"+d.Name && d.PCI != "":
			return "../../devices/pci0000:3a/" + d.PCI + "/nvme/" + d.Name
		case name == diskFolder(d, blocks) && d.PCI == "":
			return at + "/block/" + d.Name
		case name == diskFolder(d, blocks)+"/device" && d.PCI == "":
			return at
		}
	}
	for i := range v.NICs {
		n := &v.NICs[i]
		switch name {
		case netClass + "/" + n.Name:
			return "../../devices/pci0000:00/" + n.PCI + "/net/" + n.Name
		case netClass + "/" + n.Name + "/device":
			return "../../../" + n.PCI
		}
	}
	return ""
}

// units are the services of the server, which has no kubelet, and is in no NVLink domain with others.
func (m *machine) units(names []string) (out []host.Unit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.look()
	for _, name := range names {
		u := host.Unit{Name: name, Active: "active", Sub: "running", Result: "success"}
		switch name {
		case "kubelet.service", "nvidia-imex.service":
			continue
		case "nvidia-fabricmanager.service":
			if v.NoFabric {
				u.Active, u.Sub, u.Result = "failed", "failed", "exit-code"
			}
		}
		out = append(out, u)
	}
	return out
}
