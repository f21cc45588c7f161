package host

import (
	"bytes"
	"strconv"
	"time"
)

// system reads what runs: the boot, the kernel, the driver of the GPUs.
type system struct {
	m    *machine
	item *item
}

func newSystem(m *machine) source {
	return &system{m: m, item: m.newItem("/host", m.cfg.Proc, []attr{
		{"sys/kernel/random/boot_id", "boot-id", text},
		{"sys/kernel/osrelease", "kernel-version", text},
		{"uptime", "uptime", uptime},
		{"driver/nvidia/version", "nvidia-driver-version", driver},
	})}
}

func (s *system) read(at time.Time) {
	s.m.read(s.item)
	w := s.m.tree.Write(at)
	defer w.Close()
	s.item.write(&w)
}

// uptime reads the whole seconds of "350735.47 234388.90" (proc_uptime(5)).
func uptime(v *value, b []byte) error {
	whole, _, _ := bytes.Cut(b, []byte{'.'})
	return number(v, whole)
}

// driver finds the version in the first line of what the driver says: "NVRM version:
// NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024".
func driver(v *value, b []byte) error {
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	for field := range bytes.FieldsSeq(line) {
		major, minor, ok := bytes.Cut(field, []byte{'.'})
		if _, err := strconv.ParseUint(string(major), 10, 32); err != nil || !ok {
			continue
		}
		if len(minor) > 0 && len(bytes.Trim(minor, "0123456789.")) == 0 {
			return text(v, field)
		}
	}
	return unexpected("a version", line)
}
