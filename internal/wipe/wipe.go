// Package wipe tells whether the drives of a server hold nothing of their last user. It looks at a drive that is there,
// and judges what was seen of all: by the drive's own sanitize status, or by blocks that were read back. That a program
// which was to erase a drive ended well counts for nothing.
package wipe

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"auspex/schemas"
)

const (
	// BlockSize is how much is read at one place, in bytes.
	BlockSize = 4096
	// Fewest is how many blocks must have been read of a drive for them to prove anything, unless it has fewer. Of a drive of
	// which a share f still holds data, all of n random blocks miss it with the probability (1-f)^n.
	Fewest = 256
	// Usual is how many random blocks are read where nobody says otherwise.
	Usual = 1024
	// most are the drives of a server, and the blocks of a drive, that are taken of a report.
	mostDrives = 128
	mostBlocks = 4096
)

// Drive is what was seen of a drive.
type Drive struct {
	Device string              `json:"device"`
	Serial string              `json:"serial,omitempty"`
	Model  string              `json:"model,omitempty"`
	Size   int64               `json:"size_bytes"`
	NVMe   []byte              `json:"nvme,omitempty"` // the log page Sanitize Status, or its first 32 bytes
	ATA    []byte              `json:"ata,omitempty"`  // the ATA Status Return descriptor of SANITIZE STATUS EXT
	Blocks *schemas.WipeBlocks `json:"blocks,omitempty"`
}

// Report is what was seen of all drives of a server.
type Report struct {
	Drives []Drive   `json:"drives"`
	Began  time.Time `json:"began_at"`
	Ended  time.Time `json:"ended_at"`
}

// ErrReport is wrapped by what speaks against a report: whoever made it is broken, or lies.
var ErrReport = errors.New("no report of drives")

// NVMe reads the log page Sanitize Status (log identifier 81h; NVM Express Base Specification 2.0, section 5.16.1.25,
// figure 265), little endian: Sanitize Progress in bytes 0 and 1, of 65,536, and Sanitize Status in 2 and 3.
func NVMe(page []byte) (s schemas.SanitizeStatus, err error) {
	if len(page) < 32 {
		return s, fmt.Errorf("%w: the page Sanitize Status has %d bytes, of 32 that are wanted", ErrReport, len(page))
	}
	status := binary.LittleEndian.Uint16(page[2:])
	s.Raw, s.Erased = hex.EncodeToString(page[:32]), status>>8&1 != 0
	switch status & 7 {
	case 1, 4: // 4 has deallocated blocks that were not to be, which is none the worse here
		s.State = schemas.SanitizeDone
	case 2:
		s.State, s.Progress = schemas.SanitizeRunning, float64(binary.LittleEndian.Uint16(page))/65536
	case 3:
		s.State = schemas.SanitizeFailed
	default:
		s.State = schemas.SanitizeNone
	}
	return s, nil
}

// ATA reads the descriptor with which SANITIZE STATUS EXT answers (SAT-3, section 12.2.2.6): the COUNT field has in bit 15
// that the last operation completed without an error, and in bit 14 that one is in progress; LBA(15:0) has how far it is, of
// 65,536 (ACS-4, section 7.36.9). A command that ends in an error tells of a drive that failed, where its reason is in
// LBA(7:0), or does not know it.
func ATA(d []byte) (s schemas.SanitizeStatus, err error) {
	if len(d) < 14 || d[0] != 0x09 || d[1] != 0x0c {
		return s, fmt.Errorf("%w: %x is no ATA Status Return descriptor", ErrReport, d)
	}
	s.Raw = hex.EncodeToString(d[:14])
	count, low := uint16(d[4])<<8|uint16(d[5]), uint16(d[9])<<8|uint16(d[7])
	const failed = 1 // SANITIZE DEVICE ERROR REASON: Sanitize Command Unsuccessful
	switch {
	case d[13]&1 != 0 && low&0xff == failed:
		s.State = schemas.SanitizeFailed
	case d[13]&1 != 0:
		s.State = schemas.SanitizeNone
	case count>>14&1 != 0:
		s.State, s.Progress = schemas.SanitizeRunning, float64(low)/65536
	case count>>15 != 0:
		s.State = schemas.SanitizeDone
	default:
		s.State = schemas.SanitizeNone
	}
	return s, nil
}

// status is what a drive says of itself; nil is nothing.
func (d *Drive) status() (*schemas.SanitizeStatus, error) {
	var s schemas.SanitizeStatus
	var err error
	switch {
	case d.NVMe != nil:
		s, err = NVMe(d.NVMe)
	case d.ATA != nil:
		s, err = ATA(d.ATA)
	default:
		return nil, nil
	}
	return &s, err
}

// check is the error of blocks that nobody can have read so.
func check(b *schemas.WipeBlocks, size int64) error {
	if b.Size != BlockSize || len(b.Offsets) > mostBlocks || b.Blank < 0 || b.Blank+len(b.Data)+len(b.Unread) != len(b.Offsets) {
		return fmt.Errorf("%w: %d blocks of %d bytes were read, %d of them blank, %d with data, and %d were not", ErrReport, len(b.Offsets), b.Size, b.Blank, len(b.Data), len(b.Unread))
	}
	seen := make(map[int64]bool, len(b.Offsets))
	for _, at := range b.Offsets {
		if at < 0 || at%BlockSize != 0 || at > size-BlockSize || seen[at] {
			return fmt.Errorf("%w: a block at %d of %d bytes, or twice", ErrReport, at, size)
		}
		seen[at] = true
	}
	for _, at := range slices.Concat(b.Data, b.Unread) {
		if !seen[at] {
			return fmt.Errorf("%w: the block at %d was none of those that were read", ErrReport, at)
		}
		delete(seen, at) // it is one of them, and once
	}
	return nil
}

// judged is what a drive comes to. Data that was found outweighs what the drive says. What it says alone counts where it
// says, too, that nothing was written since: its last sanitize operation may be the one before its last user.
func (d *Drive) judged() (w schemas.WipeDrive, err error) {
	w = schemas.WipeDrive{Device: d.Device, Serial: d.Serial, Model: d.Model, Size: d.Size, Blocks: d.Blocks}
	if w.Sanitize, err = d.status(); err != nil {
		return w, err
	}
	read := 0
	if b := d.Blocks; b != nil {
		if err := check(b, d.Size); err != nil {
			return w, err
		}
		read = len(b.Offsets) - len(b.Unread)
	}
	s := w.Sanitize
	done := s != nil && s.State == schemas.SanitizeDone
	switch {
	case s != nil && s.State == schemas.SanitizeFailed:
		w.Detail = "its sanitize operation failed"
	case s != nil && s.State == schemas.SanitizeRunning:
		w.Detail = fmt.Sprintf("its sanitize operation is at %.0f %%", 100*s.Progress)
	case d.Blocks != nil && len(d.Blocks.Data) > 0:
		w.Detail = fmt.Sprintf("%d of %d blocks that were read hold data, one of them at %d", len(d.Blocks.Data), read, d.Blocks.Data[0])
		if done {
			w.Detail += ", though it says that its sanitize operation is done"
		}
	case done && s.Erased:
		w.Proven, w.Method, w.Detail = true, schemas.WipedByNVMe, "its sanitize operation is done, and nothing was written since"
	case d.Blocks != nil && len(d.Blocks.Unread) > 0:
		w.Detail = fmt.Sprintf("%d of %d blocks could not be read", len(d.Blocks.Unread), len(d.Blocks.Offsets))
	case read < Fewest && int64(read) < d.Size/BlockSize || read == 0:
		w.Detail = fmt.Sprintf("%d of its blocks were read, of %d that are wanted, and it says nothing of a sanitize operation that ended well and was the last to write", read, Fewest)
	default:
		w.Proven, w.Method, w.Detail = true, schemas.WipedByBlocks, fmt.Sprintf("%d blocks that were read are blank", read)
		if done && d.ATA != nil {
			w.Method, w.Detail = schemas.WipedByATA, "its sanitize operation is done, and "+w.Detail
		} else if done {
			w.Method, w.Detail = schemas.WipedByNVMe, "its sanitize operation is done, and "+w.Detail
		}
	}
	return w, nil
}

// Judge says of the drives of a hardware record, and of whatever else was seen, whether they are proven to hold nothing: all
// of them where it is true. A drive of the record is found by its serial number, or where one of both has none by its device.
func Judge(r *Report, disks []schemas.HardwareDisk) (drives []schemas.WipeDrive, proven bool, err error) {
	if len(r.Drives) > mostDrives {
		return nil, false, fmt.Errorf("%w: of %d drives", ErrReport, len(r.Drives))
	}
	proven = len(r.Drives) > 0
	for i := range r.Drives {
		w, err := r.Drives[i].judged()
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", r.Drives[i].Device, err)
		}
		drives, proven = append(drives, w), proven && w.Proven
	}
	for k := range disks {
		d := &disks[k]
		n := slices.IndexFunc(drives, func(w schemas.WipeDrive) bool {
			if d.Serial != "" && w.Serial != "" {
				return strings.EqualFold(strings.TrimSpace(d.Serial), strings.TrimSpace(w.Serial))
			}
			return d.Device != "" && d.Device == w.Device
		})
		if n >= 0 {
			drives[n].Resource = d.Resource
			continue
		}
		proven = false
		drives = append(drives, schemas.WipeDrive{Resource: d.Resource, Device: d.Device, Serial: d.Serial, Model: d.Model, Detail: "the inventory has it, and it was not seen"})
	}
	return drives, proven, nil
}

// Name is how a drive is called in what people read.
func Name(d *schemas.WipeDrive) string {
	name := d.Device
	if name == "" {
		name = d.Resource
	}
	if d.Serial != "" {
		return strings.TrimSpace(name + " (serial " + d.Serial + ")")
	}
	return name
}

// Findings says what was found of a few of the drives that are proven, or of those that are not.
func Findings(drives []schemas.WipeDrive, proven bool) string {
	const few = 4
	var out []string
	n := 0
	for i := range drives {
		if d := &drives[i]; d.Proven == proven {
			if n++; n <= few {
				out = append(out, Name(d)+": "+d.Detail)
			}
		}
	}
	if n > few {
		out = append(out, fmt.Sprintf("and %d more", n-few))
	}
	return strings.Join(out, "; ")
}
