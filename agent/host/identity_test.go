package host

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// structure is one of the firmware's tables, as DSP0134 lays it out.
func structure(kind byte, formatted []byte, strs ...string) string {
	b := append([]byte{kind, byte(4 + len(formatted)), 0, 0}, formatted...)
	for _, s := range strs {
		b = append(append(b, s...), 0)
	}
	if len(strs) == 0 {
		b = append(b, 0)
	}
	return string(append(b, 0))
}

// stick is a memory device of so many MiB; its strings are locator, bank, maker, serial and part.
func stick(mib int, strs ...string) string {
	f := make([]byte, 0x22-4)
	binary.LittleEndian.PutUint16(f[0x0c-4:], uint16(min(mib, 0x7fff)))
	if mib >= 0x7fff {
		binary.LittleEndian.PutUint32(f[0x1c-4:], uint32(mib))
	}
	for i, at := range []int{0x10, 0x11, 0x17, 0x18, 0x1a} {
		if i < len(strs) {
			f[at-4] = byte(i + 1)
		}
	}
	return structure(17, f, strs...)
}

func tables() string {
	return structure(1, make([]byte, 23), "NVIDIA", "DGXH100") + structure(16, make([]byte, 19)) +
		stick(65536, "DIMM_A1", "NODE 0", "Samsung", "8001", "M321R8GA0BB0") + stick(0, "DIMM_A2", "NODE 0") +
		stick(16384, "DIMM_A1", "NODE 1", "Samsung", "8002", "M321R8GA0BB0") + structure(127, nil)
}

func TestAServerTellsWhichMachineItIs(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.put(map[string]string{
		"proc/sys/kernel/hostname":      "gpu-r01-03\n",
		"sys/class/dmi/id/sys_vendor":   "NVIDIA\n",
		"sys/class/dmi/id/product_name": "DGXH100\n", "sys/class/dmi/id/product_serial": "1660223000123\n",
		"sys/class/dmi/id/product_uuid": "3b54ba4f-0c6e-44ce-a7a8-0b3a3c5f8e11\n", "sys/class/dmi/id/chassis_serial": "C77\n",
		"sys/firmware/dmi/tables/DMI": tables(), "sys/firmware/efi/fw_platform_size": "64\n",
		"sys/bus/pci/devices/0000:07:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:07:00.0/class": "0x068000\n",
		"sys/bus/pci/devices/0000:08:00.0/vendor": "0x8086\n", "sys/bus/pci/devices/0000:08:00.0/class": "0x068000\n",
	})
	s.read()
	got := below(s.told(), "/identity/")
	digest := got["state/digest"]
	delete(got, "state/digest")
	want := map[string]string{
		"state/vendor": "NVIDIA", "state/product": "DGXH100", "state/serial": "1660223000123", "state/uuid": "3b54ba4f-0c6e-44ce-a7a8-0b3a3c5f8e11",
		"state/agent-version": buildVersion(), "state/chassis-serial": "C77", "state/hostname": "gpu-r01-03",
		"state/architecture": architectures[runtime.GOARCH], "state/boot-mode": "uefi",
		"nvswitch[name=nvswitch0]/state/name": "nvswitch0", "nvswitch[name=nvswitch0]/state/pci-address": "0000:07:00.0",
	}
	for name, d := range map[string]memoryDevice{
		"NODE 0 DIMM_A1": {"DIMM_A1", "NODE 0", "Samsung", "8001", "M321R8GA0BB0", 64 << 30},
		"NODE 1 DIMM_A1": {"DIMM_A1", "NODE 1", "Samsung", "8002", "M321R8GA0BB0", 16 << 30},
	} {
		at := "dimm[name=" + name + "]/state/"
		want[at+"name"], want[at+"bank"], want[at+"manufacturer"], want[at+"serial"], want[at+"part-number"] = name, d.bank, d.manufacturer, d.serial, d.part
		want[at+"size"] = map[uint64]string{64 << 30: "68719476736", 16 << 30: "17179869184"}[d.size]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	s.read()
	if again := s.told()["/identity/state/digest"]; digest == "" || again != digest {
		t.Errorf("the digest of what stayed the same went from %q to %q", digest, again)
	}
	s.put(map[string]string{"sys/class/dmi/id/product_serial": "1660223000124\n"})
	s.read()
	if again := s.told()["/identity/state/digest"]; again == digest {
		t.Error("another serial number has the same digest")
	}
	if text := s.unreadable(); text != "" {
		t.Errorf("not read: %s", text)
	}
}

// What the firmware wrote wrongly is told, and stops no other reading.
func TestTablesOfTheFirmwareThatDoNotEndAreMalformed(t *testing.T) {
	for name, text := range map[string]string{
		"a structure of nothing":      "\x11\x00\x00\x00",
		"longer than the table":       "\x11\xff\x00\x00",
		"strings without an end":      "\x01\x04\x00\x00abc",
		"a string longer than a page": "\x01\x04\x00\x00" + strings.Repeat("a", 5000) + "\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := memoryDevices([]byte(text)); !errors.Is(err, errMalformed) {
				t.Errorf("error %v", err)
			}
		})
	}
	s := newServer(t)
	s.calm()
	s.put(map[string]string{"sys/class/dmi/id/sys_vendor": "NVIDIA\n", "sys/firmware/dmi/tables/DMI": "\x11\xff\x00\x00"})
	s.read()
	if v := s.told()["/identity/state/vendor"]; v != "NVIDIA" || !strings.Contains(s.unreadable(), "malformed") {
		t.Errorf("vendor %q, unreadable %q", v, s.unreadable())
	}
}

func FuzzMemoryDevices(f *testing.F) {
	f.Add([]byte(tables()))
	if b, err := os.ReadFile(filepath.Join("/sys", "firmware/dmi/tables/DMI")); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = memoryDevices(b) })
}
