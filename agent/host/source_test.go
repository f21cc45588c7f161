package host

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/target"
)

// nic returns the files of a ConnectX-7 as mlx5_core shows it.
func nic(name, pci, operstate, speed string) map[string]string {
	device := "sys/devices/pci0000:15/" + pci
	netdev := device + "/net/" + name
	out := map[string]string{
		"sys/class/net/" + name: "-> ../../devices/pci0000:15/" + pci + "/net/" + name,
		netdev + "/device":      "-> ../../../" + pci,

		netdev + "/operstate": operstate + "\n", netdev + "/flags": "0x1003\n", netdev + "/address": "b8:3f:d2:4a:11:0e\n",
		netdev + "/carrier_changes": "5\n",

		device + "/current_link_width": "8\n", device + "/max_link_width": "16\n",
		device + "/current_link_speed": "16.0 GT/s PCIe\n", device + "/max_link_speed": "32.0 GT/s PCIe\n",
	}
	if speed != "" {
		out[netdev+"/speed"] = speed + "\n"
	}
	for i, counter := range []string{
		"rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped", "tx_dropped",
	} {
		out[netdev+"/statistics/"+counter] = fmt.Sprintf("%d\n", 1000+i)
	}
	return out
}

// port returns the files of an InfiniBand port.
func port(device, number, state, phys, rate string) map[string]string {
	folder := "sys/class/infiniband/" + device + "/ports/" + number
	out := map[string]string{
		folder + "/state": state + "\n", folder + "/phys_state": phys + "\n", folder + "/rate": rate + "\n", folder + "/link_layer": "InfiniBand\n",
	}
	for i, counter := range []string{
		"port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets", "port_rcv_errors", "port_xmit_discards",
		"port_xmit_wait", "symbol_error", "link_error_recovery", "link_downed", "local_link_integrity_errors",
	} {
		out[folder+"/counters/"+counter] = fmt.Sprintf("%d\n", 10+i)
	}
	return out
}

// dimm returns the files of a module of memory.
func dimm(controller, module int, label string, ce, ue int) map[string]string {
	folder := fmt.Sprintf("sys/devices/system/edac/mc/mc%d/dimm%d", controller, module)
	return map[string]string{
		folder + "/dimm_label": label + "\n", folder + "/dimm_mem_type": "Registered-DDR5\n", folder + "/size": "65536\n",
		folder + "/dimm_ce_count": fmt.Sprintf("%d\n", ce), folder + "/dimm_ue_count": fmt.Sprintf("%d\n", ue),
		folder + "/dimm_location": fmt.Sprintf("channel %d slot 0\n", module),
	}
}

// controllerCounts returns what a controller counts of no module.
func controllerCounts(controller, ce, ue int) map[string]string {
	folder := fmt.Sprintf("sys/devices/system/edac/mc/mc%d", controller)
	return map[string]string{
		folder + "/ce_noinfo_count": fmt.Sprintf("%d\n", ce), folder + "/ue_noinfo_count": fmt.Sprintf("%d\n", ue), folder + "/mc_name": "Intel_10nm Socket#0 IMC#0\n",
	}
}

// nvme returns the files of a controller with a namespace.
func nvme(name string) map[string]string {
	folder := "sys/class/nvme/" + name
	return map[string]string{
		folder + "/state": "live\n", folder + "/model": "SAMSUNG MZQL23T8HCLS-00A07              \n", folder + "/serial": "S64HNE0T501234      \n",
		folder + "/firmware_rev": "GDC5602Q\n", folder + "/transport": "pcie\n", folder + "/hwmon3/temp1_input": "35850\n",
		"sys/block/" + name + "n1": "-> ../devices/virtual/nvme-subsystem/nvme-subsys0/" + name + "n1",
	}
}

// sata returns the files of a disk behind SCSI.
func sata(name string) map[string]string {
	folder := "sys/block/" + name
	return map[string]string{
		folder + "/size": "937703088\n", folder + "/device": "-> ../../devices/scsi-" + name,

		"sys/devices/scsi-" + name + "/state": "running\n", "sys/devices/scsi-" + name + "/model": "MICRON_5300_MTFD\n",
		"sys/devices/scsi-" + name + "/vendor": "ATA     \n", "sys/devices/scsi-" + name + "/rev": "U001\n", "sys/devices/scsi-" + name + "/ioerr_cnt": "0x1a\n",
		"sys/devices/scsi-" + name + "/iotmo_cnt": "0x2\n", "sys/devices/scsi-" + name + "/hwmon/hwmon5/temp1_input": "29000\n",
	}
}

// nvswitch returns the files of an NVSwitch, with a driver or without.
func nvswitch(address, width string) map[string]string {
	folder := "sys/bus/pci/devices/" + address
	return map[string]string{
		folder + "/class": "0x068000\n", folder + "/vendor": "0x10de\n", folder + "/device": "0x22a3\n", folder + "/current_link_width": width + "\n",
		folder + "/max_link_width": "2\n", folder + "/current_link_speed": "32.0 GT/s PCIe\n", folder + "/max_link_speed": "32.0 GT/s PCIe\n",
	}
}

// recordedLog answers with the page of a disk that is worn beyond its life.
func recordedLog(_ string, page *logPage) error {
	page[0], page[3], page[4], page[5] = 0x01, 97, 10, 104
	binary.LittleEndian.PutUint64(page[112:], 41)
	binary.LittleEndian.PutUint64(page[128:], 20123)
	binary.LittleEndian.PutUint64(page[144:], 17)
	binary.LittleEndian.PutUint64(page[160:], 3)
	binary.LittleEndian.PutUint64(page[176:], 1<<40)
	return nil
}

// fleetServer puts what a GPU server has: two interfaces, two ports, two controllers of
// memory, two disks.
func (s *server) fleetServer() {
	for _, files := range []map[string]string{
		nic("ens1f0np0", "0000:1b:00.0", "up", "400000"), nic("ens1f1np1", "0000:1b:00.1", "down", ""),
		port("mlx5_0", "1", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"), port("mlx5_1", "1", "1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)"),
		dimm(0, 0, "CPU_SrcID#0_MC#0_Chan#0_DIMM#0", 7, 0), dimm(0, 1, "", 0, 0), controllerCounts(0, 1, 0),
		dimm(1, 0, "CPU_SrcID#1_MC#0_Chan#0_DIMM#0", 0, 2), controllerCounts(1, 2, 1), nvme("nvme0"), sata("sda"), nvswitch("0000:86:00.0", "2"),
	} {
		s.put(files)
	}
	s.put(map[string]string{
		"sys/bus/pci/devices/0000:86:00.0/driver": "-> ../../../../bus/pci/drivers/nvidia-nvswitch",
		"sys/bus/pci/devices/0000:1b:00.0/class":  "0x030200\n", "sys/bus/pci/devices/0000:1b:00.0/vendor": "0x10de\n",

		"sys/class/net/lo":                   "-> ../../devices/virtual/net/lo",
		"sys/devices/virtual/net/lo/mtu":     "65536\n",
		"sys/class/infiniband/mlx5_0/device": "-> ../../../0000:1b:00.0", "sys/block/loop0/size": "0\n", "sys/block/dm-0/size": "8\n", "sys/block/sr0/device": "-> ../../devices/scsi-sda",
		"sys/devices/system/edac/mc/power/control": "auto\n",
		"sys/block/vda/size":                       "2097152\n", "sys/block/vda/device": "-> ../../devices/virtio1",
		"sys/devices/virtio1/hwmon/none": "", "sys/devices/virtio1/vendor": "0x1af4\n",
	})
	d := s.source("disks").(*disks)
	d.log, d.ata = recordedLog, healthy().answer
}

func TestInterfacesAreTold(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	s.read()
	told := s.told()
	want := map[string]string{
		"name": "ens1f0np0", "pci-address": "0000:1b:00.0", "mac-address": "b8:3f:d2:4a:11:0e", "oper-status": "up", "up": "true", "enabled": "true",
		"speed": "400000000000", "carrier-transitions": "5", "in-octets": "1000", "out-octets": "1001", "in-packets": "1002", "out-packets": "1003",
		"in-errors": "1004", "out-errors": "1005", "in-fcs-errors": "1006", "in-discards": "1007", "out-discards": "1008",
		"pcie-width": "8", "pcie-width-max": "16", "pcie-speed": "16000000000", "pcie-speed-max": "32000000000",
	}
	if diff := cmp.Diff(want, below(told, "/host/nic[name=ens1f0np0]/state/")); diff != "" {
		t.Error(diff)
	}
	down := below(told, "/host/nic[name=ens1f1np1]/state/")
	if _, ok := down["speed"]; ok || down["up"] != "false" || down["enabled"] != "true" {
		t.Errorf("a port that is down: %v", down)
	}
	if n := below(told, "/host/nic[name=lo]"); len(n) > 0 {
		t.Errorf("an interface without a device is told: %v", n)
	}
	if text := s.unreadable(); text != "" {
		t.Error(text)
	}
}

func TestInfiniBandIsTold(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	s.read()
	want := map[string]string{
		"name": "mlx5_0:1", "pci-address": "0000:1b:00.0", "link-layer": "InfiniBand", "port-state": "ACTIVE", "physical-state": "LinkUp", "up": "true",
		"speed": "400000000000", "in-octets": "40", "out-octets": "44", "in-packets": "12", "out-packets": "13", "in-errors": "14", "out-discards": "15",
		"out-wait": "16", "symbol-errors": "17", "link-recoveries": "18", "link-downs": "19", "integrity-errors": "20",
	}
	told := s.told()
	if diff := cmp.Diff(want, below(told, "/host/infiniband-port[name=mlx5_0:1]/state/")); diff != "" {
		t.Error(diff)
	}
	if down := below(told, "/host/infiniband-port[name=mlx5_1:1]/state/"); down["up"] != "false" || down["port-state"] != "DOWN" {
		t.Errorf("a port that is down: %v", down)
	}
}

func TestMemoryIsToldByTheLabelOfItsSlot(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	s.read()
	told := s.told()
	for name, want := range map[string][2]string{
		"CPU_SrcID#0_MC#0_Chan#0_DIMM#0": {"7", "0"}, "mc0:dimm1": {"0", "0"}, "CPU_SrcID#1_MC#0_Chan#0_DIMM#0": {"0", "2"},
	} {
		state := below(told, "/host/dimm[name="+name+"]/state/")
		if got := [2]string{state["corrected-errors"], state["uncorrected-errors"]}; got != want || state["size"] != "68719476736" {
			t.Errorf("%s: %v", name, state)
		}
	}
	if ce, ue := told["/host/memory/state/unlocated-corrected-errors"], told["/host/memory/state/unlocated-uncorrected-errors"]; ce != "3" || ue != "1" {
		t.Errorf("of no module: %s, %s", ce, ue)
	}

	// Two slots of one label would be one module.
	s.put(dimm(0, 1, "CPU_SrcID#0_MC#0_Chan#0_DIMM#0", 0, 0))
	s.read()
	told = s.told()
	for name, there := range map[string]bool{"CPU_SrcID#0_MC#0_Chan#0_DIMM#0": false, "mc0:dimm0": true, "mc0:dimm1": true} {
		if n := len(below(told, "/host/dimm[name="+name+"]")); n > 0 != there {
			t.Errorf("%s: %d leaves", name, n)
		}
	}
}

func TestRowsAreToldWhereTheDriverKnowsNoModules(t *testing.T) {
	s := newServer(t)
	s.calm()
	folder := "sys/devices/system/edac/mc/mc0/csrow2"
	s.put(map[string]string{folder + "/ce_count": "4\n", folder + "/ue_count": "0\n", folder + "/size_mb": "16384\n", folder + "/mem_type": "Unbuffered-DDR4\n"})
	s.read()
	want := map[string]string{"name": "mc0:csrow2", "type": "Unbuffered-DDR4", "size": "17179869184", "corrected-errors": "4", "uncorrected-errors": "0"}
	if diff := cmp.Diff(want, below(s.told(), "/host/dimm[name=mc0:csrow2]/state/")); diff != "" {
		t.Error(diff)
	}
}

func TestDisksAreTold(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	s.read()
	told := s.told()
	want := map[string]string{
		"name": "nvme0", "model": "SAMSUNG MZQL23T8HCLS-00A07", "serial-number": "S64HNE0T501234", "firmware-version": "GDC5602Q", "transport": "pcie",
		"status": "live", "up": "true", "temperature": "35.85", "critical-warning": "1", "available-spare": "0.97", "available-spare-threshold": "0.1",
		"wear": "1.04", "power-cycles": "41", "power-on-hours": "20123", "unsafe-shutdowns": "17", "media-errors": "3", "error-log-entries": "1099511627776",
	}
	if diff := cmp.Diff(want, below(told, "/host/disk[name=nvme0]/state/")); diff != "" {
		t.Error(diff)
	}
	want = map[string]string{
		"name": "sda", "model": "MICRON_5300_MTFD", "firmware-version": "U001", "status": "running", "up": "true", "temperature": "29",
		"size": "480103981056", "command-errors": "26", "command-timeouts": "2", "serial-number": "9143247AB1F", "predicted-failure": "false",
		"reallocated-sectors": "0", "power-on-hours": "11603", "power-cycles": "28", "media-errors": "0", "pending-sectors": "0",
		"uncorrectable-sectors": "0", "link-errors": "2",
	}
	if diff := cmp.Diff(want, below(told, "/host/disk[name=sda]/state/")); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"loop0", "dm-0", "sr0", "nvme0n1"} {
		if n := len(below(told, "/host/disk[name="+name+"]")); n > 0 {
			t.Errorf("%s is told as a disk", name)
		}
	}
}

func TestHealthThatCannotBeReadIsSaid(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	d := s.source("disks").(*disks)
	s.read()
	for _, c := range []struct {
		err  error
		want string
	}{
		{syscall.EACCES, "needs CAP_SYS_ADMIN"},
		{&fs.PathError{Op: "open", Path: "/dev/nvme0", Err: syscall.EPERM}, "needs CAP_SYS_ADMIN"},
		{syscall.EIO, "input/output error"},
		{&fs.PathError{Op: "open", Path: "/dev/nvme0", Err: syscall.ENOENT}, ""},
	} {
		d.log = func(string, *logPage) error { return c.err }
		s.read()
		told := s.told()
		if text := told["/host/state/unreadable"]; (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%v: %q", c.err, text)
		}
		disk := below(told, "/host/disk[name=nvme0]/state/")
		if _, ok := disk["wear"]; ok || disk["status"] != "live" {
			t.Errorf("%v: %v", c.err, disk)
		}
	}
	d.log = smartLog // of a file that is no device
	s.put(map[string]string{"dev/nvme0": ""})
	s.read()
	if text := s.unreadable(); !strings.Contains(text, "dev/nvme0") {
		t.Errorf("a file for a device: %q", text)
	}
}

func TestTheCommandHasTheKernelsForm(t *testing.T) {
	var c adminCommand
	if n := unsafe.Sizeof(c); n != 72 {
		t.Errorf("struct nvme_admin_cmd has 72 bytes, not %d", n)
	}
	if want := int64(3<<30 | 72<<16 | 0x4e<<8 | 0x41); ioctlAdmin != want {
		t.Errorf("NVME_IOCTL_ADMIN_CMD is %#x, not %#x", want, ioctlAdmin)
	}
}

func TestWhatVanishesIsDropped(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	s.read()
	s.remove("sys/class/net/ens1f1np1")
	s.remove("sys/class/infiniband/mlx5_1")
	s.remove("sys/devices/system/edac/mc/mc1")
	s.remove("sys/class/nvme/nvme0")
	s.remove("sys/block/sda")
	s.read()
	told := s.told()
	for _, gone := range []string{
		"/host/nic[name=ens1f1np1]", "/host/infiniband-port[name=mlx5_1:1]", "/host/dimm[name=CPU_SrcID#1_MC#0_Chan#0_DIMM#0]", "/host/disk[name=nvme0]", "/host/disk[name=sda]",
	} {
		if left := below(told, gone); len(left) > 0 {
			t.Errorf("%s: %v", gone, left)
		}
	}
	if told["/host/nic[name=ens1f0np0]/state/up"] != "true" || told["/host/memory/state/unlocated-corrected-errors"] != "1" {
		t.Error("what is still there is not told")
	}
	if text := told["/host/state/unreadable"]; text != "" {
		t.Error(text)
	}
	s.fleetAgain()
	s.read()
	if up := s.told()["/host/disk[name=nvme0]/state/up"]; up != "true" {
		t.Error("what comes back is not told")
	}
}

// A disk that is replaced has its name, and another hwmon.
func TestTheTemperatureOfADiskIsFoundAgain(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.put(nvme("nvme0"))
	s.source("disks").(*disks).log = recordedLog
	s.read()
	for _, r := range s.host.runners {
		r.machine.close() // the kernel ends what reads of a device that goes
	}
	s.remove("sys/class/nvme/nvme0/hwmon3")
	s.put(map[string]string{"sys/class/nvme/nvme0/hwmon9/temp1_input": "-1500\n"})
	s.read()
	s.read()
	if got := s.told()["/host/disk[name=nvme0]/state/temperature"]; got != "-1.5" {
		t.Errorf("temperature %q", got)
	}
}

func (s *server) fleetAgain() {
	files := nvme("nvme0")
	maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, "sys/block") })
	s.put(files)
}

// An interface keeps its files when it is renamed; what is open must not be read as that
// of the one which has its name now.
func TestARenamedInterfaceIsAnother(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.put(nic("eth0", "0000:1b:00.0", "up", "400000"))
	s.put(nic("eth1", "0000:2a:00.0", "up", "100000"))
	s.read()
	s.remove("sys/class/net/eth0")
	s.remove("sys/class/net/eth1")
	s.put(map[string]string{
		"sys/devices/pci0000:15/0000:2a:00.0/net/eth0/speed":     "100000\n",
		"sys/devices/pci0000:15/0000:2a:00.0/net/eth0/operstate": "up\n",
		"sys/devices/pci0000:15/0000:2a:00.0/net/eth0/device":    "-> ../../../0000:2a:00.0",
		"sys/class/net/eth0": "-> ../../devices/pci0000:15/0000:2a:00.0/net/eth0",
	})
	s.read()
	got := below(s.told(), "/host/nic[")
	if got["name=eth0]/state/speed"] != "100000000000" || got["name=eth0]/state/pci-address"] != "0000:2a:00.0" || got["name=eth1]/state/speed"] != "" {
		t.Errorf("%v", got)
	}
}

func TestValuesThatMeanUnknownAreNone(t *testing.T) {
	for _, c := range []struct {
		scan func(*value, []byte) error
		text string
	}{
		{megabits, "-1"},
		{megabits, "4294967295"},
		{megabits, "0"},
		{lanes, "0"},
		{lanes, "63"},
		{lanes, "255"},
		{lanes, "Unknown"},
		{transfers, "Unknown"},
		{transfers, "Unknown speed"},
		{isUp, "unknown"},
		{text, "   "},
	} {
		var v value
		if err := c.scan(&v, []byte(c.text)); err != nil || v.kind != nothing {
			t.Errorf("%q: %+v, %v", c.text, v, err)
		}
	}
}

func FuzzScans(f *testing.F) {
	for _, seed := range []string{
		"", "0", "-1", "0x1003", "400 Gb/sec (4X NDR)", "4: ACTIVE", "16.0 GT/s PCIe", "1.5 2", "99999999999999999999", "NaN GT/s", "Inf Gb/sec", "some avg10=NaN", "\x00",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue",
	} {
		f.Add([]byte(seed))
	}
	scans := []func(*value, []byte) error{
		number, text, hex, uptime, driver, isUp, isEnabled, megabits, lanes, transfers, meaning, isActive, gigabits, words, mebibytes, sectors, milli,
		func(_ *value, b []byte) error { return new(stall).parse(b) },
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, scan := range scans {
			var v value
			if err := scan(&v, b); err == nil && v.kind == isFloat && v.f != v.f {
				t.Errorf("scan %d of %q is no number", i, b)
			} else if err != nil && len(err.Error()) > 400 {
				t.Errorf("scan %d says too much: %v", i, err)
			}
		}
	})
}

// BenchmarkReading reads a server of 8 interfaces, 8 ports, 32 modules and 8 disks.
func BenchmarkReading(b *testing.B) {
	s := newServer(b)
	s.calm()
	for i := range 8 {
		s.put(nic(fmt.Sprintf("ens%d", i), fmt.Sprintf("0000:%x0:00.0", i+1), "up", "400000"))
		s.put(port(fmt.Sprintf("mlx5_%d", i), "1", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"))
		s.put(nvme(fmt.Sprintf("nvme%d", i)))
	}
	for i := range 32 {
		s.put(dimm(i/4, i%4, fmt.Sprintf("CPU_SrcID#%d_MC#%d_Chan#%d_DIMM#0", i/16, i/4%4, i%4), 0, 0))
	}
	s.source("disks").(*disks).log = recordedLog
	for _, r := range s.host.runners {
		s.host.reading(r)
		b.Run(strings.ReplaceAll(r.name, " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.host.reading(r)
			}
		})
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.read()
		}
	})
}

// BenchmarkThisMachine reads the machine that it runs on.
func BenchmarkThisMachine(b *testing.B) {
	h := New(Default(), target.NewTree(), slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range h.runners {
			if r.name != "services" {
				h.reading(r)
			}
		}
	}
	for _, r := range h.runners {
		r.machine.close()
	}
}
