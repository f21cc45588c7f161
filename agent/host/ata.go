package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"auspex/internal/target"
)

// smartEvery is how often the health of an ATA disk is read: other commands wait for it.
const smartEvery = 5 * time.Minute

// sector is what an ATA command answers with.
type sector [512]byte

// ataLeaves are the attributes of SMART that are told: they have no standard, but vendors
// agree on what these count, and on which bits of the raw value do. Pending and uncorrectable
// sectors may become fewer.
var ataLeaves = [...]struct {
	leaf string
	id   byte
	bits int
}{
	{"reallocated-sectors", 5, 16},
	{"power-on-hours", 9, 24},
	{"power-cycles", 12, 48},
	{"media-errors", 187, 48},
	{"pending-sectors", 197, 48},
	{"uncorrectable-sectors", 198, 48},
	{"link-errors", 199, 48},
}

const (
	attributeAirflow     = 190 // degrees Celsius in the lowest byte
	attributeTemperature = 194
)

// ata is the health of an ATA disk.
type ata struct {
	device string
	serial string
	model  string
	smart  bool // it has SMART, and it is on
	asked  bool // what disk it is
	next   time.Time
	err    error // of the last reading

	failing   value
	heat      value
	values    [len(ataLeaves)]value
	refs      [len(ataLeaves)]target.Ref
	prefails  target.Ref
	serialRef target.Ref
}

func newATA(t *target.Tree, path, device string) *ata {
	a := &ata{device: device, prefails: t.Leaf(path + "predicted-failure"), serialRef: t.Leaf(path + "serial-number")}
	for i, l := range ataLeaves {
		a.refs[i] = t.Leaf(path + l.leaf)
	}
	return a
}

// command makes a command of a disk; it returns how many bytes of sense data came back.
type command func(device string, cdb *[16]byte, data *sector, sense *[64]byte) (int, error)

// read reads the health anew where it is time.
func (a *ata) read(at time.Time, do command) error {
	if at.Before(a.next) {
		return a.err
	}
	a.next = at.Add(smartEvery)
	if a.err = a.ask(do); a.err != nil {
		a.failing.kind, a.heat.kind = nothing, nothing
		a.values = [len(ataLeaves)]value{}
	}
	return a.err
}

func (a *ata) ask(do command) error {
	var data sector
	var sense [64]byte
	if !a.asked {
		if _, err := do(a.device, &identify, &data, &sense); err != nil {
			return err
		}
		a.serial, a.model, a.smart = diskIdentity(&data)
		a.asked = true
	}
	if !a.smart {
		return nil
	}
	n, err := do(a.device, &smartStatus, nil, &sense)
	if err != nil {
		return err
	}
	a.failing.kind = nothing
	if failing, known := failureOf(sense[:n]); known {
		a.failing.bool(failing)
	}
	if _, err := do(a.device, &smartData, &data, &sense); err != nil {
		return err
	}
	return a.parse(&data)
}

func (a *ata) write(w *target.Writer) {
	a.failing.write(w, a.prefails)
	for i := range a.values {
		a.values[i].write(w, a.refs[i])
	}
	if a.serial != "" {
		w.Text(a.serialRef, a.serial)
	}
}

// passThrough is ATA PASS-THROUGH(16) (SAT-3, section 12.2.2.3): with a sector to read, or
// without data and with the registers in the sense data.
func passThrough(command, features byte, data bool) [16]byte {
	const (
		pioIn, noData = 4 << 1, 3 << 1
		fromDevice    = 1<<3 | 1<<2 | 2 // as many blocks as the count says
		registers     = 1 << 5
	)
	cdb := [16]byte{0: 0x85, 1: noData, 2: registers, 4: features, 14: command}
	if data {
		cdb[1], cdb[2], cdb[6] = pioIn, fromDevice, 1
	}
	if command == smartCommand {
		cdb[10], cdb[12] = 0x4f, 0xc2
	}
	return cdb
}

// Commands of ATA (ACS-3, section 7): IDENTIFY DEVICE, and SMART READ DATA and SMART RETURN STATUS.
const smartCommand = 0xb0

var (
	identify    = passThrough(0xec, 0, true)
	smartData   = passThrough(smartCommand, 0xd0, true)
	smartStatus = passThrough(smartCommand, 0xda, false)

	// sanitizeStatus is SANITIZE STATUS EXT (ACS-4, section 7.36), which has registers of two octets (EXTEND of SAT-3).
	sanitizeStatus = extended(passThrough(0xb4, 0, false))
)

func extended(cdb [16]byte) [16]byte {
	cdb[1] |= 1
	return cdb
}

// SanitizeATA reads what a disk says of its last sanitize operation: the ATA Status Return descriptor of SANITIZE STATUS EXT.
// It needs CAP_SYS_RAWIO.
func SanitizeATA(device string) ([]byte, error) {
	d, err := sanitizeATA(device, sendATA)
	if err != nil {
		return nil, fmt.Errorf("read the sanitize status of %s: %w", device, err)
	}
	return d, nil
}

func sanitizeATA(device string, do command) ([]byte, error) {
	var sense [64]byte
	n, err := do(device, &sanitizeStatus, nil, &sense)
	if err != nil {
		return nil, err
	}
	if d := statusReturn(sense[:n]); d != nil {
		return d, nil
	}
	return nil, errRefused
}

// statusReturn finds the ATA Status Return descriptor in sense data of descriptor format (SAT-3, section 12.2.2.6); nil is none.
func statusReturn(sense []byte) []byte {
	if len(sense) < 8 || sense[0]&0x7f != 0x72 {
		return nil
	}
	for d := sense[8:]; len(d) >= 2; {
		end := 2 + int(d[1])
		if end > len(d) {
			break
		}
		if d[0] == 0x09 && end >= 14 {
			return d[:14]
		}
		d = d[end:]
	}
	return nil
}

// diskIdentity reads which disk it is (ACS-3, section 7.12.7): words 10 to 19 and 27 to 46, whose
// characters are swapped, and whether it has SMART and that is on, words 82, 83 and 85.
func diskIdentity(data *sector) (serial, model string, smart bool) {
	word := func(n int) uint16 { return binary.LittleEndian.Uint16(data[2*n:]) }
	text := func(from, to int) string {
		var b []byte
		for n := from; n <= to; n++ {
			b = append(b, byte(word(n)>>8), byte(word(n)))
		}
		s := strings.TrimSpace(strings.TrimRight(string(b), "\x00"))
		if !plain(s) {
			return ""
		}
		return s
	}
	smart = word(83)>>14 == 1 && word(82)&1 != 0 && word(85)&1 != 0
	return text(10, 19), text(27, 46), smart
}

// failureOf reads the registers that SMART RETURN STATUS leaves (ACS-3, section 7.48.8): LBA
// c24f00h is well, 2cf400h is a threshold that was exceeded. They are a descriptor of the
// sense data, or its fields where it is of fixed format (SAT-3, sections 12.2.2.6 and 12.2.2.7).
func failureOf(sense []byte) (failing, known bool) {
	var mid, high byte
	switch {
	case len(sense) < 8:
		return false, false
	case sense[0]&0x7f == 0x70 && len(sense) >= 12:
		mid, high = sense[10], sense[11]
	default:
		if d := statusReturn(sense); d != nil {
			mid, high = d[9], d[11]
		}
	}
	switch {
	case mid == 0x4f && high == 0xc2:
		return false, true
	case mid == 0xf4 && high == 0x2c:
		return true, true
	}
	return false, false
}

// parse reads what SMART READ DATA answers (SFF-8035i, section 4.2): 30 attributes of 12
// bytes, each a number, flags, its value now and at worst, and a raw value of 6 bytes.
func (a *ata) parse(data *sector) error {
	a.heat.kind = nothing
	a.values = [len(ataLeaves)]value{}
	sum := byte(0)
	for _, b := range data {
		sum += b
	}
	if sum != 0 {
		return fmt.Errorf("%w: the checksum of SMART data is wrong", errMalformed)
	}
	for at := 2; at < 2+30*12; at += 12 {
		id := data[at]
		raw := uint64(binary.LittleEndian.Uint32(data[at+5:])) | uint64(binary.LittleEndian.Uint16(data[at+9:]))<<32
		for i, l := range ataLeaves {
			if id == l.id {
				a.values[i].number(raw & (1<<l.bits - 1))
			}
		}
		if c := raw & 0xff; (id == attributeTemperature || id == attributeAirflow && a.heat.kind == nothing) && c > 0 && c < 128 {
			a.heat.float(float64(c))
		}
	}
	return nil
}

// request is struct sg_io_hdr (Linux, include/scsi/sg.h).
type request struct {
	interfaceID, direction                int32
	commandLen, senseLen                  uint8
	vectors                               uint16
	dataLen                               uint32
	data, command, sense                  unsafe.Pointer
	timeout, flags                        uint32
	packID                                int32
	user                                  unsafe.Pointer
	status, masked, message, senseWritten uint8
	hostStatus, driverStatus              uint16
	residual                              int32
	duration, info                        uint32
}

const (
	ioctlSG        = 0x2285 // SG_IO
	nothingMoves   = -1
	fromDevice     = -3
	checkCondition = 0x02
	patience       = 10 * time.Second // of the kernel with a disk
)

// errRefused is what a disk answers to a command that it does not know.
var errRefused = errors.New("the disk does not take the command")

// sendATA makes a command through the kernel, which needs CAP_SYS_RAWIO.
func sendATA(device string, cdb *[16]byte, data *sector, sense *[64]byte) (int, error) {
	fd, err := uninterrupted(func() (int, error) {
		return syscall.Open(device, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	})
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: device, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	req := &request{
		interfaceID: 'S', direction: nothingMoves, commandLen: uint8(len(cdb)), senseLen: uint8(len(sense)),
		command: unsafe.Pointer(cdb), sense: unsafe.Pointer(sense), timeout: uint32(patience / time.Millisecond),
	}
	if data != nil {
		req.direction, req.dataLen, req.data = fromDevice, uint32(len(data)), unsafe.Pointer(data)
	}
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), ioctlSG, uintptr(unsafe.Pointer(req)))
	runtime.KeepAlive(req)
	switch {
	case errno != 0:
		return 0, errno
	case req.hostStatus != 0:
		return 0, fmt.Errorf("status %#x of its host adapter", req.hostStatus)
	case req.status != 0 && (data != nil || req.status != checkCondition):
		return 0, errRefused
	case data != nil && req.residual != 0:
		return 0, fmt.Errorf("%w: an answer of %d bytes", errMalformed, int32(len(data))-req.residual)
	}
	return int(min(req.senseWritten, uint8(len(sense)))), nil
}
