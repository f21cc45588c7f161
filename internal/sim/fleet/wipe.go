package fleet

import (
	"encoding/binary"
	"hash/fnv"
	"io"
)

// WipeFault is what goes wrong when a disk is to be erased.
type WipeFault string

// The faults of a disk that is to be erased.
const (
	WipeWell  WipeFault = ""
	WipeFails WipeFault = "fails" // its sanitize operation fails, and it says so
	WipeLies  WipeFault = "lies"  // it says that it is done, and keeps what it holds
)

// Sanitize Status of NVMe (NVM Express Base Specification 2.0, figure 265) and the bits of an ATA COUNT field (ACS-4, section 7.36).
const (
	nvmeDone, nvmeFailed, nvmeErased = 1, 3, 1 << 8
	ataDone                          = 1 << 15
)

// SizeOfDisk is how much a simulated disk holds, in bytes.
const SizeOfDisk = 1 << 30

// WipedDisk is a disk as a program of an installer's system sees it.
type WipedDisk struct {
	Device, Serial, Model string
	NVMe                  []byte // its log page Sanitize Status
	ATA                   []byte // its descriptor of SANITIZE STATUS EXT
	Content               io.ReaderAt
}

// SetWipeFault says what goes wrong when a disk is to be erased.
func (f *Fleet) SetWipeFault(id string, fault WipeFault) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, i, err := f.disk(id)
	if err == nil {
		s.disks[i].wipe = fault
	}
	return err
}

// Erase has a disk of a server that runs an installer's system erase itself. It ends well where the disk has taken the command, as
// programs do that start a sanitize operation.
func (f *Fleet) Erase(at Netbooted, dev string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, i, err := f.diskOf(at, dev)
	if err != nil {
		return err
	}
	d := &s.disks[i]
	d.sanitized, d.broken = d.wipe != WipeFails, d.wipe == WipeFails
	d.erased = d.sanitized // since when nothing was written
	if d.wipe == WipeWell {
		d.blank = true
		if i == bootDisk {
			s.os.torn = true
		}
	}
	return nil
}

// Disks are those of a server that runs an installer's system.
func (f *Fleet) Disks(at Netbooted) (out []WipedDisk, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.installer(at)
	if err != nil {
		return nil, err
	}
	for i := range s.disks {
		d, k := &s.disks[i], &diskKinds[i]
		if d.gone {
			continue
		}
		w := WipedDisk{Device: "/dev/" + k.block, Serial: d.serial, Model: k.model, Content: content(d.blank)}
		if k.pci != "" {
			w.NVMe = make([]byte, 512)
			var status uint16
			switch {
			case d.broken:
				status = nvmeFailed
			case d.sanitized:
				status = nvmeDone
			}
			if d.erased {
				status |= nvmeErased
			}
			binary.LittleEndian.PutUint16(w.NVMe, 0xffff)
			binary.LittleEndian.PutUint16(w.NVMe[2:], status)
		} else {
			w.ATA = []byte{0x09, 0x0c, 1, 0, 0, 0, 0, 0xff, 0, 0xff, 0, 0, 0x40, 0x50}
			switch {
			case d.broken:
				w.ATA[7], w.ATA[9], w.ATA[13] = 1, 0, 0x51
			case d.sanitized:
				binary.BigEndian.PutUint16(w.ATA[4:], ataDone)
			}
		}
		out = append(out, w)
	}
	return out, nil
}

// content is what a disk holds: nothing, or something at its start and in one of eight blocks of 4,096 bytes.
type content bool

// ReadAt implements [io.ReaderAt].
func (blank content) ReadAt(b []byte, at int64) (int, error) {
	if at < 0 || at+int64(len(b)) > SizeOfDisk {
		return 0, io.EOF
	}
	clear(b)
	for i := range b {
		n := (at + int64(i)) / 4096
		h := fnv.New32a()
		if (at+int64(i))%4096 == 0 && !bool(blank) {
			_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) //nolint:gosec // it is not negative
			if n == 0 || h.Sum32()%8 == 0 {
				b[i] = 'x'
			}
		}
	}
	return len(b), nil
}
