package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"auspex/internal/datafile"
	"auspex/schemas"
)

// slots know which disks the machine has had, and where each stood, over restarts and boots.
//
// A disk that is there no more is missing: whether it died or somebody took it out, the
// machine cannot tell, and both are to be looked at. What it said of itself stays said, also
// after a boot, which a dead disk does not survive either. Another disk in its slot, one
// that was not known before, ends its case: it was replaced. A disk that stood elsewhere does
// not: addresses may be numbered anew, and slots with them. A disk that was taken out for good
// is told so by a person, who empties its slot in the file.
type slots struct {
	m      *machine
	known  map[string]*stood // by serial number
	here   map[string]stood  // of this reading
	slots  map[string]string // serial numbers by slot, of this reading; empty is not known
	loaded bool
	blind  bool // a list of disks could not be read
}

// stood is a disk where it stood.
type stood struct {
	Name  string `json:"name"`
	Model string `json:"model,omitempty"`
	Slot  string `json:"slot"`

	unseen int // readings in a row
}

// maxKnown bounds the disks that are remembered.
const maxKnown = 1024

func (s *slots) begin() {
	s.here, s.slots, s.blind = map[string]stood{}, map[string]string{}, false
	if s.loaded {
		return
	}
	s.loaded, s.known = true, map[string]*stood{}
	if s.m.state == "" {
		return
	}
	b, err := os.ReadFile(s.m.state)
	if err == nil {
		err = json.Unmarshal(b, &s.known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.m.fault(fmt.Errorf("%s: which disks there were is not known: %w", s.m.state, err))
	}
	if s.known == nil {
		s.known = map[string]*stood{}
	}
	for serial, k := range s.known {
		if k == nil {
			delete(s.known, serial)
		}
	}
}

// found takes note of a disk. One without a slot, as a remote or a removable one, may come
// and go; one whose serial number is not known now holds its slot all the same.
func (s *slots) found(serial, name, model, folder string) {
	slot := slotOf(folder)
	if slot == "" {
		return
	}
	s.slots[slot] = serial
	if serial != "" {
		s.here[serial] = stood{Name: name, Model: model, Slot: slot}
	}
}

// end tells what is missing, back, or replaced.
func (s *slots) end(at time.Time) {
	if s.blind {
		return
	}
	changed := false
	for serial, k := range s.known {
		h, here := s.here[serial]
		in, held := s.slots[k.Slot]
		switch {
		case here:
			changed = changed || *k != h
			s.missing(at, serial, &h, false, "is there")
			*k = h
		case held && in == "": // by a disk that does not tell which it is
		case k.Slot == "":
			s.ended(at, serial, k, "was taken out for good")
			changed = true
		case held && s.known[in] == nil:
			s.ended(at, serial, k, "was replaced: another is in its slot")
			changed = true
		default:
			if k.unseen++; k.unseen >= lostAfter {
				s.missing(at, serial, k, true, "is there no more, and no other is in its slot ("+k.Slot+")")
			}
		}
	}
	for serial, h := range s.here {
		if s.known[serial] == nil && len(s.known) < maxKnown {
			s.known[serial] = &h
			changed = true
		}
	}
	if !changed || s.m.state == "" {
		return
	}
	b, err := json.Marshal(s.known)
	if err == nil {
		err = datafile.Replace(s.m.state, b)
	}
	if err != nil {
		s.m.fault(fmt.Errorf("which disks there are is not kept: %w", err))
	}
}

func (s *slots) missing(at time.Time, serial string, k *stood, holds bool, how string) {
	s.m.condition(at, serial, holds, k.event(schemas.EventDiskMissing, "LOST", serial, how))
}

// ended ends all that was raised of a disk.
func (s *slots) ended(at time.Time, serial string, k *stood, how string) {
	s.missing(at, serial, k, false, how)
	s.m.condition(at, serial, false, k.event(schemas.EventDiskPredictedFailure, "", serial, how))
	delete(s.known, serial)
}

func (k *stood) event(typ, code, serial, how string) schemas.Event {
	ev := schemas.Event{
		Type: typ, Code: code, Severity: schemas.SeverityError, Message: fmt.Sprintf("disk %s (%s, serial %s) %s", k.Name, k.Model, serial, how),
	}
	for key, v := range map[string]string{"serial": serial, "disk": k.Name, "model": k.Model} {
		ev.SetAttr(key, v)
	}
	return ev
}

// slotOf names where a disk stands, from where its folder in sysfs leads, as
// "../../devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda": the
// address of its controller, for NVMe that of the disk itself, and what is below it without
// the host's number, which each boot gives anew. Empty is a disk on USB, or on no bus.
func slotOf(folder string) string {
	var out []string
	for e := range strings.SplitSeq(folder, "/") {
		switch {
		case strings.HasPrefix(e, "usb"):
			return ""
		case strings.Count(e, ":") == 2 && strings.Contains(e, "."): // a PCI address
			out = append(out[:0], e)
		case len(out) == 0: // above it
		case strings.HasPrefix(e, "ata"):
			out = append(out, e)
		case strings.Count(e, ":") == 3: // host:channel:target:unit
			_, place, _ := strings.Cut(e, ":")
			out = append(out, place)
		}
	}
	return strings.Join(out, " ")
}
