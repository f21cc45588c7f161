package host

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"auspex/internal/target"
)

// logPage is the log page of SMART and health information (NVM Express Base
// Specification 2.0, section 5.16.1.3), little endian.
type logPage [512]byte

// health is what the page of a controller tells.
type health struct {
	page  logPage
	known bool
	refs  [len(healthLeaves)]target.Ref
}

// healthLeaves are the fields that are told. Counters have 128 bits there, of which the
// lower 64 are told; shares are in per cent.
var healthLeaves = [...]struct {
	leaf    string
	offset  int
	percent bool
	octet   bool
}{
	{leaf: "critical-warning", offset: 0, octet: true},
	{leaf: "available-spare", offset: 3, percent: true},
	{leaf: "available-spare-threshold", offset: 4, percent: true},
	{leaf: "wear", offset: 5, percent: true},
	{leaf: "power-cycles", offset: 112},
	{leaf: "power-on-hours", offset: 128},
	{leaf: "unsafe-shutdowns", offset: 144},
	{leaf: "media-errors", offset: 160},
	{leaf: "error-log-entries", offset: 176},
}

func (h *health) leaves(t *target.Tree, path string) {
	for i, l := range healthLeaves {
		h.refs[i] = t.Leaf(path + l.leaf)
	}
}

func (h *health) write(w *target.Writer) {
	for i, l := range healthLeaves {
		switch {
		case !h.known:
			w.None(h.refs[i])
		case l.percent:
			w.Float(h.refs[i], float64(h.page[l.offset])/100)
		case l.octet:
			w.Uint(h.refs[i], uint64(h.page[l.offset]))
		default:
			w.Uint(h.refs[i], binary.LittleEndian.Uint64(h.page[l.offset:]))
		}
	}
}

// adminCommand is struct nvme_admin_cmd (Linux, include/uapi/linux/nvme_ioctl.h).
type adminCommand struct {
	opcode, flags                            uint8
	_                                        uint16
	namespace, cdw2, cdw3                    uint32
	metadata, addr                           uint64
	metadataLen, dataLen                     uint32
	cdw10, cdw11, cdw12, cdw13, cdw14, cdw15 uint32
	timeout, result                          uint32
}

const (
	ioctlAdmin   = 0xc0484e41 // NVME_IOCTL_ADMIN_CMD, _IOWR('N', 0x41, struct nvme_admin_cmd)
	getLogPage   = 0x02
	pageHealth   = 0x02
	pageSanitize = 0x81
	everywhere   = 0xffffffff // namespace: of the controller
)

// smartLog reads the health of the controller behind a device, which needs CAP_SYS_ADMIN.
func smartLog(device string, page *logPage) error { return nvmeLog(device, pageHealth, page) }

// SanitizeNVMe reads the log page Sanitize Status of the controller behind a device (NVM Express Base Specification 2.0,
// section 5.16.1.25), which needs CAP_SYS_ADMIN.
func SanitizeNVMe(device string) ([]byte, error) {
	var page logPage
	if err := nvmeLog(device, pageSanitize, &page); err != nil {
		return nil, fmt.Errorf("read the log page Sanitize Status of %s: %w", device, err)
	}
	return page[:], nil
}

func nvmeLog(device string, id uint32, page *logPage) error {
	fd, err := uninterrupted(func() (int, error) { return syscall.Open(device, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return &fs.PathError{Op: "open", Path: device, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	cmd := adminCommand{
		opcode: getLogPage, namespace: everywhere, addr: uint64(uintptr(unsafe.Pointer(page))), dataLen: uint32(len(page)),
		cdw10: uint32(len(page)/4-1)<<16 | id,
	}
	status, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), ioctlAdmin, uintptr(unsafe.Pointer(&cmd)))
	runtime.KeepAlive(page)
	switch {
	case errno != 0:
		return errno
	case status != 0:
		return fmt.Errorf("status %#x of NVMe", status)
	}
	return nil
}

// milli reads thousandths, as of a degree Celsius.
func milli(v *value, b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return unexpected("a temperature", b)
	}
	v.float(float64(n) / 1000)
	return nil
}
