package kmsg

import "fmt"

// Process is what the driver prints of the process behind an error.
type Process struct {
	PID  int
	Name string
}

func (p Process) String() string {
	if p.PID == 0 {
		return "pid='<unknown>', name=<unknown>"
	}
	return fmt.Sprintf("pid=%d, name=%s", p.PID, p.Name)
}

// Xid returns the line of the NVIDIA driver for an XID. The PCI address is the
// full one, such as 0000:1b:00.0; the driver prints it without its function.
func Xid(pci string, code int, p Process, detail string) string {
	return fmt.Sprintf("NVRM: Xid (PCI:%s): %d, %s, %s", trimFunction(pci), code, p, detail)
}

// SXid returns the line of the NVSwitch driver for an SXid.
func SXid(index int, pci string, code int, detail string) string {
	return fmt.Sprintf("nvidia-nvswitch%d: SXid (PCI:%s): %05d, %s", index, pci, code, detail)
}

// GPUAt returns the line with which the driver introduces the GPU that the
// following lines speak of.
func GPUAt(pci, uuid string) string {
	return fmt.Sprintf("NVRM: GPU at PCI:%s: %s", trimFunction(pci), uuid)
}

func trimFunction(pci string) string {
	if i := len(pci) - 2; i > 0 && pci[i] == '.' {
		return pci[:i]
	}
	return pci
}
