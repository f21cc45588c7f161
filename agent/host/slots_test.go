package host

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/agent/journal"
	"auspex/schemas"
)

// bay is a machine with NVMe disks in slots, by address, and what of it outlives the agent.
type bay struct {
	t     *testing.T
	s     *server
	j     *journal.Journal
	state string
	disks map[string]string // serial numbers by address
	ill   map[string]bool   // by serial number
	boot  string
}

func newBay(t *testing.T, disks map[string]string) *bay {
	t.Helper()
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, "journal"), 1<<20, "boot-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	b := &bay{t: t, j: j, state: filepath.Join(dir, "disks.json"), disks: disks, ill: map[string]bool{}, boot: "boot-1"}
	b.start()
	return b
}

// start is another agent, after a restart or a boot.
func (b *bay) start() {
	b.s = newServer(b.t)
	b.s.calm()
	b.s.host.Tell(b.j, b.boot, b.state)
	b.s.source("disks").(*disks).log = func(device string, page *logPage) error {
		serial, err := os.ReadFile(b.s.path("sys/class/nvme/" + filepath.Base(device) + "/serial"))
		if page[0] = 0; b.ill[strings.TrimSpace(string(serial))] {
			page[0] = 4
		}
		return err
	}
}

// reads has the disks read so often, as they are in their slots; they are named by order of their address.
func (b *bay) reads(times int) {
	for range times {
		b.s.remove("sys")
		for i, address := range []string{"0000:3b:00.0", "0000:3c:00.0", "0000:5e:00.0"} {
			serial, there := b.disks[address]
			if !there {
				continue
			}
			name := "nvme" + string(rune('0'+i))
			folder := "sys/devices/pci0000:3a/" + address + "/nvme/" + name
			b.s.put(map[string]string{
				"sys/class/nvme/" + name: "-> ../../devices/pci0000:3a/" + address + "/nvme/" + name,
				folder + "/state":        "live\n", folder + "/model": "M\n", folder + "/serial": serial + "\n", folder + "/transport": "pcie\n",
			})
		}
		b.s.read()
	}
}

func (b *bay) said() (out []string) {
	for _, ev := range said(b.t, b.j) {
		out = append(out, strings.Join([]string{ev.Type, ev.State, ev.Attr("serial"), ev.Attr("disk")}, " "))
	}
	return out
}

// What becomes of a disk that says that it fails: where it was taken out, its case goes on until
// another is in its slot, over restarts and boots; a disk that comes back, or moves, is told so.
func TestADiskThatIsTakenOut(t *testing.T) {
	const (
		slot, second, third = "0000:3b:00.0", "0000:3c:00.0", "0000:5e:00.0"

		raised, cleared = schemas.EventDiskPredictedFailure + " raised A nvme0", schemas.EventDiskPredictedFailure + " cleared A nvme0"
		missing, found  = schemas.EventDiskMissing + " raised A nvme0", schemas.EventDiskMissing + " cleared A nvme0"
	)
	for name, c := range map[string]struct {
		then func(b *bay)
		want []string
	}{
		"it is gone for one reading": {func(b *bay) {
			delete(b.disks, slot)
			b.reads(1)
			b.disks[slot] = "A"
			b.reads(1)
		}, []string{raised}},
		"nothing takes its place": {func(b *bay) {
			delete(b.disks, slot)
			b.reads(3)
		}, []string{raised, missing}},
		"it comes back": {func(b *bay) {
			delete(b.disks, slot)
			b.reads(2)
			b.disks[slot] = "A"
			b.reads(1)
		}, []string{raised, missing, found}},
		"another is put in while the machine runs": {func(b *bay) {
			delete(b.disks, slot)
			b.reads(2)
			b.disks[slot] = "C"
			b.reads(1)
		}, []string{raised, missing, found, cleared}},
		"another is in its place after a boot": {func(b *bay) {
			b.boot = "boot-2"
			b.start()
			b.disks[slot] = "C"
			b.reads(2)
		}, []string{raised, cleared}},
		"it does not come up after a boot": {func(b *bay) {
			b.boot = "boot-2"
			b.start()
			delete(b.disks, slot)
			b.reads(3)
		}, []string{raised, missing}},
		"slots are numbered anew, and a known disk is where it stood": {func(b *bay) {
			b.boot = "boot-2"
			b.start()
			b.disks[slot] = "B"
			delete(b.disks, second)
			b.reads(2)
		}, []string{raised, missing}},
		"it moves": {func(b *bay) {
			b.disks[third] = "A"
			delete(b.disks, slot)
			b.reads(2)
		}, []string{raised}},
		"it was taken out for good, and a person says so": {func(b *bay) {
			delete(b.disks, slot)
			b.reads(2)
			kept, err := os.ReadFile(b.state)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(b.state, []byte(strings.ReplaceAll(string(kept), slot, "")), 0o600); err != nil {
				t.Fatal(err)
			}
			b.start()
			b.reads(3)
		}, []string{raised, missing, found, cleared}},
		"the agent starts anew between": {func(b *bay) {
			delete(b.disks, slot)
			b.reads(2)
			b.start()
			b.reads(2)
			b.disks[slot] = "C"
			b.start()
			b.reads(2)
		}, []string{raised, missing, found, cleared}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t, map[string]string{slot: "A", second: "B"})
			b.ill["A"] = true
			b.reads(2)
			c.then(b)
			if diff := cmp.Diff(c.want, b.said()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// blocked is a machine whose lists of disks cannot be read.
type blocked struct{}

func (blocked) Read(string, []byte) (int, error) { return 0, syscall.ENOENT }
func (blocked) Names(string) ([]string, error)   { return nil, syscall.EIO }
func (blocked) Link(string) string               { return "" }

// A list that cannot be read is no sign that all disks are gone.
func TestDisksThatCannotBeListedAreNotMissing(t *testing.T) {
	b := newBay(t, map[string]string{"0000:3b:00.0": "A"})
	b.reads(1)
	b.s.source("disks").(*disks).m.files = blocked{}
	b.reads(3)
	if got := b.said(); len(got) > 0 {
		t.Error(got)
	}
	if text := b.s.told()["/host/state/unreadable"]; !strings.Contains(text, syscall.EIO.Error()) {
		t.Errorf("%q", text)
	}
}

// A file of disks that holds something else is told, and costs only what it knew.
func TestAFileOfDisksThatIsNone(t *testing.T) {
	b := newBay(t, map[string]string{"0000:3b:00.0": "A"})
	for _, content := range []string{"{", `{"A": null}`, `{"A": {"name": "nvme0"}}`, `[]`, `null`} {
		if err := os.WriteFile(b.state, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.reads(3)
		if got := b.said(); len(got) > 0 {
			t.Error(content, got)
		}
		if kept, err := os.ReadFile(b.state); err != nil || !strings.Contains(string(kept), "0000:3b:00.0") {
			t.Errorf("%s: %s %v", content, kept, err)
		}
	}
}

func TestSlots(t *testing.T) {
	for link, want := range map[string]string{
		"../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/nvme/nvme0":                                  "0000:3b:00.0",
		"../../devices/pci0000:5d/0000:5d:05.5/pci10000:00/10000:00:02.0/10000:01:00.0/nvme/nvme3":       "10000:01:00.0",
		"../devices/pci0000:00/0000:00:17.0/ata5/host4/target4:0:0/4:0:0:0/block/sda":                    "0000:00:17.0 ata5 0:0:0",
		"../devices/pci0000:64/0000:65:00.0/host9/port-9:0/end_device-9:0/target9:0:3/9:0:3:0/block/sdc": "0000:65:00.0 0:3:0",
		"../devices/pci0000:00/0000:00:14.0/usb1/1-3/1-3:1.0/host6/target6:0:0/6:0:0:0/block/sdb":        "",
		"../../devices/virtual/nvme-fabrics/ctl/nvme1":                                                   "",
		"../devices/virtio1/block/vda":                                                                   "",
		"":                                                                                               "",
	} {
		if got := slotOf(link); got != want {
			t.Errorf("%s: %q, want %q", link, got, want)
		}
	}
}
