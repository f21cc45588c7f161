package host

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"auspex/agent/journal"
	"auspex/schemas"
)

// drive is an ATA disk behind the kernel's interface: it answers commands by their bytes.
type drive struct {
	identify, smart sector
	sense           []byte
	err             error
	asked           int
}

// answer implements [command].
func (d *drive) answer(_ string, cdb *[16]byte, data *sector, sense *[64]byte) (int, error) {
	d.asked++
	if d.err != nil {
		return 0, d.err
	}
	switch {
	case cdb[0] == 0x85 && cdb[14] == 0xec && cdb[1] == 4<<1 && cdb[2] == 0x0e && cdb[6] == 1:
		*data = d.identify
		return 0, nil
	case cdb[14] != 0xb0 || cdb[10] != 0x4f || cdb[12] != 0xc2:
	case cdb[4] == 0xd0 && cdb[1] == 4<<1 && cdb[2] == 0x0e && cdb[6] == 1:
		*data = d.smart
		return 0, nil
	case cdb[4] == 0xda && cdb[1] == 3<<1 && cdb[2] == 0x20 && data == nil:
		return copy(sense[:], d.sense), nil
	}
	return 0, errRefused
}

var (
	// What libata leaves of SMART RETURN STATUS: sense data with descriptors, and of fixed format.
	senseWell   = []byte{0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 0x0e, 0x09, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0x4f, 0, 0xc2, 0, 0x50}
	senseFailed = []byte{0x72, 0x01, 0x00, 0x1d, 0, 0, 0, 0x0e, 0x09, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0xf4, 0, 0x2c, 0, 0x50}
	fixedWell   = []byte{0xf0, 0, 0x01, 0, 0x50, 0, 0, 0x0a, 0, 0, 0x4f, 0xc2, 0x00, 0x1d, 0, 0, 0, 0}
	fixedFailed = []byte{0xf0, 0, 0x01, 0, 0x50, 0, 0, 0x0a, 0, 0, 0xf4, 0x2c, 0x00, 0x1d, 0, 0, 0, 0}
)

// healthy is a disk whose first attributes are those that a Crucial of 11,603 hours has
// answered; the rest is laid out as the standard has it.
func healthy() *drive {
	d := &drive{sense: senseWell}
	copy(d.smart[:], []byte{
		0x10, 0x00, 0x01, 0x2f, 0x00, 0x64, 0x64, 0, 0, 0, 0, 0, 0, 0, 0x05, 0x32,
		0x00, 0x64, 0x64, 0, 0, 0, 0, 0, 0, 0, 0x09, 0x32, 0x00, 0x64, 0x64, 0x53,
		0x2d, 0, 0, 0, 0, 0, 0x0c, 0x32, 0x00, 0x64, 0x64, 0x1c, 0, 0, 0, 0,
		0, 0, 0xaa, 0x33, 0x00, 0x64, 0x64, 0, 0, 0, 0, 0, 0, 0, 0xab, 0x32,
	})
	d.attribute(187, 0)
	d.attribute(194, 33|41<<32) // now, and at most
	d.attribute(197, 0)
	d.attribute(198, 0)
	d.attribute(199, 2)
	swapped := func(word int, text string, words int) {
		b := []byte(text + strings.Repeat(" ", 2*words-len(text)))
		for i := 0; i < len(b); i += 2 {
			d.identify[2*word+i], d.identify[2*word+i+1] = b[i+1], b[i]
		}
	}
	swapped(10, "9143247AB1F", 10)
	swapped(27, "Crucial_CT250MX200SSD1", 20)
	binary.LittleEndian.PutUint16(d.identify[2*82:], 0x746b)
	binary.LittleEndian.PutUint16(d.identify[2*83:], 0x7d01)
	binary.LittleEndian.PutUint16(d.identify[2*85:], 0x7469)
	return d
}

// attribute sets an attribute, and the checksum.
func (d *drive) attribute(id byte, raw uint64) {
	for at := 2; at < 362; at += 12 {
		if d.smart[at] != id && d.smart[at] != 0 {
			continue
		}
		d.smart[at] = id
		binary.LittleEndian.PutUint32(d.smart[at+5:], uint32(raw))
		binary.LittleEndian.PutUint16(d.smart[at+9:], uint16(raw>>32))
		break
	}
	sum := byte(0)
	for _, b := range d.smart[:511] {
		sum += b
	}
	d.smart[511] = -sum
}

// failed is a disk that fails as one did: its attributes are those that smartctl showed.
func failed() *drive {
	d := healthy()
	d.sense = senseFailed
	for id, raw := range map[byte]uint64{5: 1, 9: 69619 | 3<<24, 12: 14, 187: 245410, 194: 33, 199: 0} {
		d.attribute(id, raw)
	}
	return d
}

// with is a server with a disk, and a journal.
func with(t *testing.T, d *drive) (*server, *journal.Journal) {
	t.Helper()
	s := newServer(t)
	s.calm()
	s.put(sata("sda"))
	s.source("disks").(*disks).ata = d.answer
	j, err := journal.Open(filepath.Join(s.root, "journal"), 1<<20, "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	s.host.Tell(j, "boot", filepath.Join(s.root, "disks.json"))
	return s, j
}

// later reads the disks when their health is due.
func (s *server) later() {
	for it, e := range s.source("disks").(*disks).extras {
		if e.ata != nil && it.seen {
			e.ata.next = time.Time{}
		}
	}
	s.read()
}

// said returns the events of a journal.
func said(t *testing.T, j *journal.Journal) (out []schemas.Event) {
	t.Helper()
	list, err := j.Read(0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		var ev schemas.Event
		if err := json.Unmarshal([]byte(r.Data), &ev); err != nil || r.Kind != journal.KindEvent {
			t.Fatal(err, r)
		}
		out = append(out, ev)
	}
	return out
}

func TestTheHealthOfAnATADiskIsTold(t *testing.T) {
	for what, c := range map[string]struct {
		disk *drive
		want map[string]string
	}{
		"healthy": {healthy(), map[string]string{
			"predicted-failure": "false", "reallocated-sectors": "0", "power-on-hours": "11603", "power-cycles": "28", "media-errors": "0",
			"pending-sectors": "0", "uncorrectable-sectors": "0", "link-errors": "2",
		}},
		"failed": {failed(), map[string]string{
			"predicted-failure": "true", "reallocated-sectors": "1", "power-on-hours": "69619", "power-cycles": "14", "media-errors": "245410",
			"pending-sectors": "0", "uncorrectable-sectors": "0", "link-errors": "0",
		}},
	} {
		t.Run(what, func(t *testing.T) {
			s, _ := with(t, c.disk)
			s.remove("sys/devices/scsi-sda/hwmon")
			s.read()
			maps.Copy(c.want, map[string]string{
				"serial-number": "9143247AB1F", "name": "sda", "model": "MICRON_5300_MTFD", "firmware-version": "U001", "status": "running", "up": "true",
				"temperature": "33", "size": "480103981056", "command-errors": "26", "command-timeouts": "2",
			})
			if diff := cmp.Diff(c.want, below(s.told(), "/host/disk[name=sda]/state/")); diff != "" {
				t.Error(diff)
			}
			asked := c.disk.asked
			if s.read(); c.disk.asked != asked {
				t.Error("its health is read each time")
			}
			if s.later(); c.disk.asked != asked+2 {
				t.Errorf("%d commands for a reading", c.disk.asked-asked)
			}
		})
	}
}

// A disk that says that it will fail is one event, over restarts of the agent too, and one
// when it says so no more.
func TestADiskThatWillFailIsOneEvent(t *testing.T) {
	disk := healthy()
	s, j := with(t, disk)
	s.read()
	if got := said(t, j); len(got) != 0 {
		t.Fatalf("a disk that is well: %v", got)
	}
	disk.sense = senseFailed
	s.later()
	s.later()
	again := newServer(t)
	again.calm()
	again.put(sata("sda"))
	again.source("disks").(*disks).ata = disk.answer
	again.host.Tell(j, "boot", "")
	again.read()
	disk.sense = fixedWell
	again.later()
	disk.sense = fixedFailed
	again.later()
	var got []string
	ids := map[string]bool{}
	for _, ev := range said(t, j) {
		got = append(got, strings.Join([]string{ev.Type, ev.Code, ev.State, string(ev.Severity), ev.Source, ev.Attr("serial"), ev.Attr("disk")}, " "))
		ids[ev.ID] = true
	}
	if diff := cmp.Diff([]string{
		"disk.predicted_failure SMART raised error agent 9143247AB1F sda", "disk.predicted_failure SMART cleared info agent 9143247AB1F sda",
		"disk.predicted_failure SMART raised error agent 9143247AB1F sda",
	}, got); diff != "" || len(ids) != 3 {
		t.Error(diff, ids)
	}
}

// So is an NVMe disk that says so; one that is warm only is none.
func TestAnNVMeDiskThatWillFailIsAnEvent(t *testing.T) {
	s, j := with(t, healthy())
	s.put(nvme("nvme0"))
	warning := byte(0x02)
	s.source("disks").(*disks).log = func(_ string, page *logPage) error {
		page[0] = warning
		return nil
	}
	s.read()
	warning = 0x06
	s.read()
	s.read()
	got := said(t, j)
	if len(got) != 1 || got[0].Code != "NVMe" || got[0].Attr("serial") != "S64HNE0T501234" || got[0].State != schemas.StateRaised {
		t.Errorf("%+v", got)
	}
}

// What a disk does not tell, or tells wrong, costs its health alone.
func TestADiskThatDoesNotTellItsHealth(t *testing.T) {
	off, torn, mute := healthy(), healthy(), healthy()
	binary.LittleEndian.PutUint16(off.identify[2*85:], 0x7468)
	torn.smart[100]++
	mute.sense = []byte{0x72, 0, 0, 0, 0, 0, 0, 0xff, 0x09, 0xff}
	for what, c := range map[string]struct {
		disk  *drive
		want  string
		tells bool // what it counts
	}{
		"SMART is off":         {off, "", false},
		"a wrong checksum":     {torn, "the checksum of SMART data is wrong", false},
		"no status":            {mute, "", true},
		"no rights":            {&drive{err: syscall.EPERM}, "/dev/sda cannot be read: it needs CAP_SYS_RAWIO", false},
		"no such command":      {&drive{err: errRefused}, "does not take the command", false},
		"it is gone":           {&drive{err: syscall.ENODEV}, "", false},
		"an adapter that errs": {&drive{err: errors.New("status 0x7 of its host adapter")}, "host adapter", false},
	} {
		t.Run(what, func(t *testing.T) {
			s, j := with(t, c.disk)
			s.read()
			s.read() // what went wrong stays told until the next reading
			told := s.told()
			if text := told["/host/state/unreadable"]; (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
				t.Errorf("%q", text)
			}
			disk := below(told, "/host/disk[name=sda]/state/")
			if _, ok := disk["predicted-failure"]; ok || disk["status"] != "running" {
				t.Error(disk)
			}
			if _, ok := disk["power-on-hours"]; ok != c.tells {
				t.Error(disk)
			}
			if got := said(t, j); len(got) > 0 {
				t.Error(got)
			}
		})
	}
}

// The kernel's own answer to a file that is no disk, and to a disk of this machine if there is one.
func TestSGIOIsTheKernels(t *testing.T) {
	var r request
	if n := unsafe.Sizeof(r); n != 88 || unsafe.Offsetof(r.timeout) != 40 || unsafe.Offsetof(r.info) != 80 {
		t.Errorf("struct sg_io_hdr has 88 bytes, not %d, with timeout at %d and info at %d", n, unsafe.Offsetof(r.timeout), unsafe.Offsetof(r.info))
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var data sector
	var sense [64]byte
	if _, err := sendATA(path, &identify, &data, &sense); !errors.Is(err, syscall.ENOTTY) {
		t.Error(err)
	}
	if _, err := sendATA(path+"none", &identify, &data, &sense); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	found, _ := filepath.Glob("/dev/sd?")
	for _, disk := range found {
		_, err := sendATA(disk, &identify, &data, &sense)
		t.Logf("%s: %v", disk, err)
	}
}

func FuzzATA(f *testing.F) {
	d := healthy()
	f.Add(d.identify[:], d.smart[:], senseFailed)
	f.Add(d.smart[:], d.identify[:], fixedWell)
	f.Add([]byte{}, []byte{}, []byte{0x72, 0, 0, 0, 0, 0, 0, 9, 9, 0, 9})
	f.Fuzz(func(t *testing.T, id, smart, sense []byte) {
		var data sector
		copy(data[:], id)
		serial, model, _ := diskIdentity(&data)
		if serial != "" && !plain(serial) || model != "" && !plain(model) {
			t.Errorf("%q %q", serial, model)
		}
		copy(data[:], smart)
		var a ata
		if err := a.parse(&data); err == nil {
			for i, l := range ataLeaves {
				if a.values[i].n >= 1<<l.bits {
					t.Errorf("%s is %d", l.leaf, a.values[i].n)
				}
			}
		}
		if failing, known := failureOf(sense); failing && !known {
			t.Error("it fails, and nobody knows")
		}
	})
}

// SANITIZE STATUS EXT asks for the registers of two octets each, and its descriptor is found among others.
func TestTheSanitizeStatusOfAnATADisk(t *testing.T) {
	d := []byte{0x09, 0x0c, 1, 0, 0x80, 0, 0, 0xff, 0, 0xff, 0, 0, 0x40, 0x50}
	var asked [16]byte
	answer := func(sense []byte) command {
		return func(_ string, cdb *[16]byte, _ *sector, into *[64]byte) (int, error) {
			asked = *cdb
			return copy(into[:], sense), nil
		}
	}
	head := []byte{0x72, 1, 0, 0x1d, 0, 0, 0, 18}
	got, err := sanitizeATA("sda", answer(slices.Concat(head, []byte{0x02, 2, 0, 0}, d)))
	if err != nil || !bytes.Equal(got, d) {
		t.Errorf("%x %v", got, err)
	}
	// ATA PASS-THROUGH(16): non-data with EXTEND, CK_COND, and the command B4h with the feature 0.
	if want := [16]byte{0: 0x85, 1: 3<<1 | 1, 2: 1 << 5, 14: 0xb4}; asked != want {
		t.Errorf("%x, want %x", asked, want)
	}
	for _, sense := range [][]byte{nil, head, append(head, d[:13]...), {0x70, 0, 1, 0, 0, 0, 0, 10, 0, 0, 0, 0}} {
		if got, err := sanitizeATA("sda", answer(sense)); !errors.Is(err, errRefused) {
			t.Errorf("%x is read as %x", sense, got)
		}
	}
}
