package host

import (
	"crypto/sha256"
	"encoding/binary"
	digits "encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"auspex/internal/target"
)

// dmiAttrs are what the kernel took from the firmware's tables (Linux,
// Documentation/ABI/testing/sysfs-class-dmi). Serial numbers are for root alone.
var dmiAttrs = []attr{
	{"class/dmi/id/sys_vendor", "vendor", text},
	{"class/dmi/id/product_name", "product", text},
	{"class/dmi/id/product_serial", "serial", text},
	{"class/dmi/id/product_uuid", "uuid", text},
	{"class/dmi/id/board_serial", "board-serial", text},
	{"class/dmi/id/chassis_serial", "chassis-serial", text},
}

// maxTables bounds what is read of the firmware's tables.
const maxTables = 1 << 20

// identity tells which machine this is, and sums up all that tells it and its parts from
// others, whoever reads it.
type identity struct {
	m        *machine
	dmi      *item
	hostname *item
	modules  *list
	switches *list
	read17   bool // the modules, which do not change during a boot
	digest   target.Ref
	version  target.Ref
	arch     target.Ref
	boot     target.Ref
}

// buildVersion is which build of the agent this is: a release, or the revision of a checkout.
var buildVersion = sync.OnceValue(func() string {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := b.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	at := slices.IndexFunc(b.Settings, func(s debug.BuildSetting) bool { return s.Key == "vcs.revision" })
	if at < 0 {
		return "devel"
	}
	return "devel+" + b.Settings[at].Value[:min(12, len(b.Settings[at].Value))]
})

func newIdentity(m *machine) source {
	return &identity{
		m: m, dmi: m.newItem("/identity", m.cfg.Sys, dmiAttrs),
		hostname: m.newItem("/identity", m.cfg.Proc, []attr{{"sys/kernel/hostname", "hostname", text}}),
		modules:  newList(m, "/identity/dimm"), switches: newList(m, "/identity/nvswitch"), digest: m.tree.Leaf("/identity/state/digest"),
		version: m.tree.Leaf("/identity/state/agent-version"), arch: m.tree.Leaf("/identity/state/architecture"), boot: m.tree.Leaf("/identity/state/boot-mode"),
	}
}

func (i *identity) read(at time.Time) {
	i.m.read(i.dmi)
	i.m.read(i.hostname)
	if !i.read17 {
		i.memory()
		i.modules.write(at)
	}
	i.nvswitches()
	i.switches.write(at)
	i.write(at)
	sum := describe(i.m.tree)
	w := i.m.tree.Write(at)
	defer w.Close()
	w.Text(i.digest, sum)
}

func (i *identity) write(at time.Time) {
	w := i.m.tree.Write(at)
	defer w.Close()
	i.dmi.write(&w)
	i.hostname.write(&w)
	w.Text(i.version, buildVersion())
	if arch := architectures[runtime.GOARCH]; arch != "" {
		w.Text(i.arch, arch)
	}
	if mode := i.bootMode(); mode != "" {
		w.Text(i.boot, mode)
	}
}

// architectures are those of machines by what runs on them.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// bootMode is what the system was started by: a kernel that UEFI has started has its folder (Linux,
// Documentation/ABI/testing/sysfs-firmware-efi). Where there is no folder of firmware, it is not known.
func (i *identity) bootMode() string {
	if _, err := os.Stat(i.m.sys("firmware/efi")); err == nil {
		return "uefi"
	}
	if _, err := os.Stat(i.m.sys("firmware")); err == nil && runtime.GOARCH == "amd64" {
		return "bios"
	}
	return ""
}

// nvswitches finds them on the PCI bus: bridges of NVIDIA (PCI Code and ID Assignment, 0680).
func (i *identity) nvswitches() {
	i.switches.begin()
	n := 0
	for _, pci := range i.m.names(i.m.sys("bus/pci/devices")) {
		word := func(name string) string {
			b, _ := os.ReadFile(i.m.sys("bus/pci/devices", pci, name))
			return strings.TrimSpace(string(b))
		}
		if pciAddress(pci) == "" || word("vendor") != "0x10de" || !strings.HasPrefix(word("class"), "0x0680") {
			continue
		}
		if it, fresh := i.switches.entry(fmt.Sprintf("nvswitch%d", n), pci, "", nil); fresh {
			i.m.text(it, "pci-address", pci)
		}
		n++
	}
	i.switches.end()
}

// memory lists the modules of the firmware's tables.
func (i *identity) memory() {
	i.modules.begin()
	defer i.modules.end()
	f, err := os.Open(i.m.sys("firmware/dmi/tables/DMI"))
	if errors.Is(err, fs.ErrNotExist) {
		i.read17 = true
		return
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, maxTables))
		_ = f.Close()
	}
	if err != nil {
		i.m.fault(err)
		return
	}
	i.read17 = true
	modules, err := memoryDevices(b)
	if err != nil {
		i.m.fault(fmt.Errorf("%s: %w", i.m.sys("firmware/dmi/tables/DMI"), err))
	}
	slots := map[string]int{}
	for _, d := range modules {
		slots[d.locator]++
	}
	for _, d := range modules {
		name := d.locator
		if slots[name] > 1 {
			name = strings.TrimSpace(d.bank + " " + d.locator)
		}
		it, fresh := i.modules.entry(name, "", "", nil)
		if !fresh { // the firmware names two the same
			continue
		}
		i.m.text(it, "bank", d.bank)
		i.m.text(it, "manufacturer", d.manufacturer)
		i.m.text(it, "part-number", d.part)
		i.m.text(it, "serial", d.serial)
		it.fixed = append(it.fixed, fixed{i.m.tree.Leaf(it.path + "/state/size"), value{kind: isNumber, n: d.size}})
	}
}

// memoryDevice is a module in its slot.
type memoryDevice struct {
	locator, bank, manufacturer, serial, part string
	size                                      uint64 // bytes
}

// memoryDevices reads the structures of type 17 that hold a module (DSP0134, sections
// 6.1.2, 6.1.3 and 7.18).
func memoryDevices(b []byte) (out []memoryDevice, err error) {
	for len(b) >= 4 {
		kind, length := b[0], int(b[1])
		if length < 4 || length > len(b) {
			return out, fmt.Errorf("%w: a structure of %d bytes", errMalformed, length)
		}
		formatted := b[:length]
		var strs []string
		rest := b[length:]
		for { // strings end with a zero, and all of them with one more
			s, _, ok := strings.Cut(string(rest[:min(len(rest), 1<<10)]), "\x00")
			if !ok {
				return out, fmt.Errorf("%w: strings of a structure do not end", errMalformed)
			}
			if rest = rest[len(s)+1:]; s == "" {
				if len(strs) == 0 && len(rest) > 0 && rest[0] == 0 {
					rest = rest[1:]
				}
				break
			}
			strs = append(strs, s)
		}
		b = rest
		if kind == 127 { // the end
			return out, nil
		}
		if kind != 17 || length < 0x1b || len(out) == maxEntries {
			continue
		}
		said := func(at int) string {
			n := int(formatted[at])
			if n == 0 || n > len(strs) {
				return ""
			}
			if s := strings.TrimSpace(strs[n-1]); plain(s) {
				return s
			}
			return ""
		}
		d := memoryDevice{locator: said(0x10), bank: said(0x11), manufacturer: said(0x17), serial: said(0x18), part: said(0x1a)}
		switch size := binary.LittleEndian.Uint16(formatted[0x0c:]); {
		case size == 0xffff: // not known
		case size == 0x7fff && length >= 0x20: // in MiB, elsewhere
			d.size = uint64(binary.LittleEndian.Uint32(formatted[0x1c:])&0x7fffffff) << 20
		case size&0x8000 != 0: // in KiB
			d.size = uint64(size&0x7fff) << 10
		default:
			d.size = uint64(size) << 20
		}
		if d.size > 0 && d.locator != "" {
			out = append(out, d)
		}
	}
	return out, nil
}

// described are the leaves of others that tell parts apart: below each list, those of state.
var described = map[string][]string{
	"/gpus/gpu":           {"name", "uuid", "serial", "pci", "product"},
	"/host/nic":           {"name", "mac-address", "pci-address"},
	"/host/disk":          {"name", "model", "serial-number"},
	"/host/lldp-neighbor": {"name", "system-name", "port-id", "port-description", "chassis-id"},
}

// describe sums up what a tree says of a machine and its parts.
func describe(t *target.Tree) string {
	all := t.Texts(func(path string) bool {
		if strings.HasPrefix(path, "/identity/") {
			return path != "/identity/state/digest"
		}
		list, _, ok := strings.Cut(path, "[")
		at := strings.LastIndex(path, "]/state/")
		return ok && at > 0 && slices.Contains(described[list], path[at+len("]/state/"):])
	})
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(h, "%q %q\n", path, all[path])
	}
	return digits.EncodeToString(h.Sum(nil)[:16])
}
