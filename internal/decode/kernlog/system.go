package kernlog

import (
	"strconv"
	"strings"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// kernel matches what the kernel itself and its drivers for PCIe, memory,
// network and storage print.
func (p *Parser) kernel(text string) (schemas.Event, bool) {
	if !telling.in(text) && !adapterNamed(firstWord(text)) {
		return schemas.Event{}, false
	}
	return p.says(text)
}

// says is kernel for a line that may mean something.
func (p *Parser) says(text string) (schemas.Event, bool) {
	has := func(s string) bool { return strings.Contains(text, s) }
	begins := func(s string) bool { return strings.HasPrefix(text, s) }
	switch {
	case begins("Linux version "):
		return p.booted()
	case begins("reboot: "), begins("systemd-shutdown["), begins("systemd-shutdown: "):
		p.down()
		return schemas.Event{}, false
	case begins("Kernel panic - not syncing"):
		p.panicked = true
		return event(schemas.EventHostPanic, "panic", schemas.SeverityCritical)
	case begins("BUG: unable to handle"), begins("BUG: kernel NULL pointer"), begins("general protection fault"), begins("Oops: "),
		begins("Internal error: Oops"):
		return event(schemas.EventHostPanic, "oops", schemas.SeverityCritical)
	case begins("watchdog: BUG: soft lockup"), has("soft lockup - CPU#"):
		return event(schemas.EventHostHungTask, "soft_lockup", schemas.SeverityError)
	case has("hard LOCKUP on cpu"):
		return event(schemas.EventHostPanic, "hard_lockup", schemas.SeverityCritical)
	case has("INFO: task ") && has(" blocked for more than "):
		ev, ok := event(schemas.EventHostHungTask, digitsOf(between(text, "blocked for more than ", " ")), schemas.SeverityError)
		task := between(text, "INFO: task ", " blocked")
		if i := strings.LastIndexByte(task, ':'); i > 0 {
			ev.SetAttr("name", task[:i])
			ev.SetAttr("pid", task[i+1:])
		}
		return ev, ok
	case has("self-detected stall on CPU"), has("detected stalls on CPUs/tasks"), has("detected expedited stalls on CPUs/tasks"):
		return event(schemas.EventHostHungTask, "rcu_stall", schemas.SeverityError)
	}
	if ev, ok := p.oom.read(text); ok {
		return ev, true
	}
	if ev, ok := mce(text); ok {
		return ev, true
	}
	if ev, ok := adapter(text); ok {
		return ev, true
	}
	if has("DPC: containment event") || has("DPC: unmasked uncorrectable error detected") {
		return event(schemas.EventHostPCIeAER, "dpc", schemas.SeverityCritical, "pci", address(text))
	}
	if has("AER:") || has("PCIe Bus Error: severity=") {
		return aer(text)
	}
	if has("pciehp") && has("Link Down") {
		return event(schemas.EventHostPCIeAER, "link_down", schemas.SeverityWarning, "pci", address(text))
	}
	if ev, ok := disk(text); ok {
		return ev, true
	}
	return netdev(text)
}

// oomState joins the lines that the kernel prints of one killing: its summary
// ("oom-kill:constraint=…", since Linux 4.20) and "Killed process 123 (name)", of
// which a group that dies as a whole has one a process.
type oomState struct {
	pid   string // that the summary named
	group bool   // more processes of the same group follow
}

func (o *oomState) read(text string) (schemas.Event, bool) {
	_, named, ok := strings.Cut(text, "oom-kill:constraint=")
	if ok && len(text)-len(named) < 64 {
		*o = oomState{pid: strings.Clone(digitsOf(between(named, ",pid=", ",")))}
		return oomEvent(strings.HasPrefix(named, "CONSTRAINT_MEMCG"), o.pid, between(named, ",task=", ","))
	}
	cgroup := strings.HasPrefix(text, "Memory cgroup out of memory")
	switch {
	case strings.Contains(text, " invoked oom-killer: "):
		*o = oomState{}
	case strings.HasPrefix(text, "Tasks in ") && strings.Contains(text, "memory.oom.group set"):
		o.group = true
	case cgroup, strings.HasPrefix(text, "Out of memory:"), strings.HasPrefix(text, "Out of memory ("):
		pid := digitsOf(between(text, "rocess ", " "))
		if o.group || o.pid != "" && o.pid == pid {
			o.pid = ""
			return schemas.Event{}, false
		}
		return oomEvent(cgroup, pid, between(text, "(", ")"))
	}
	return schemas.Event{}, false
}

func oomEvent(cgroup bool, pid, name string) (schemas.Event, bool) {
	code, s := "global", schemas.SeverityError
	if cgroup {
		code, s = "cgroup", schemas.SeverityWarning
	}
	return event(schemas.EventHostOOM, code, s, "pid", pid, "name", name, "action", faults.ActionRestartApp)
}

func (p *Parser) booted() (schemas.Event, bool) {
	code, s := "boot", schemas.SeverityInfo
	switch {
	case p.shutdown != "":
		code = p.shutdown
	case p.panicked:
		code, s = "panic", schemas.SeverityWarning
	case p.lines > 0 && !p.EndsEarly:
		code, s = "unclean", schemas.SeverityWarning
	}
	*p = Parser{lines: p.lines, EndsEarly: p.EndsEarly}
	return event(schemas.EventHostReboot, code, s)
}

// down notes that the host goes down in order, and not by a crash.
func (p *Parser) down() { p.shutdown = "clean" }

// ShuttingDown reports whether the log has said that the host goes down.
func (p *Parser) ShuttingDown() bool { return p.shutdown != "" }

// mciUncorrected is the bit UC of MCi_STATUS (Intel SDM, volume 3, section
// "IA32_MCi_STATUS MSRs"): the hardware could not correct the error.
const mciUncorrected = 1 << 61

// mce reads machine checks and the memory controller's reports (EDAC).
func mce(text string) (schemas.Event, bool) {
	switch {
	case strings.HasPrefix(text, "EDAC ") && strings.Contains(text, " UE "):
		return event(schemas.EventDIMMECCUE, "DIMM", schemas.SeverityCritical, "slot", edacSlot(text))
	case strings.HasPrefix(text, "EDAC ") && strings.Contains(text, " CE "):
		return event(schemas.EventDIMMECCCE, "DIMM", schemas.SeverityWarning, "slot", edacSlot(text))
	case strings.Contains(text, "Machine Check Exception"), strings.Contains(text, "Machine check events logged"),
		strings.Contains(text, "Machine Check: "),
		strings.Contains(text, "Fatal machine check"):
		if strings.Contains(text, "events logged") {
			return event(schemas.EventHostMCE, "logged", schemas.SeverityWarning)
		}
		code, s := "exception", schemas.SeverityCritical
		_, bank, _ := strings.Cut(text, "Bank ")
		bank, status, _ := strings.Cut(bank, ":")
		if bank != "" && digitsOf(bank) == bank {
			code = "bank" + bank
		}
		if v, err := strconv.ParseUint(firstWord(status), 16, 64); err == nil && v&mciUncorrected == 0 {
			s = schemas.SeverityWarning
		}
		return event(schemas.EventHostMCE, code, s, "cpu", digitsOf(between(text, "CPU ", ":")))
	case strings.Contains(text, "[Hardware Error]: System Fatal error."):
		return event(schemas.EventHostMCE, "fatal", schemas.SeverityCritical)
	case strings.Contains(text, "[Hardware Error]: Uncorrected, software"):
		return event(schemas.EventHostMCE, "uncorrected", schemas.SeverityError)
	case strings.Contains(text, "Uncorrected hardware memory error"), strings.Contains(text, "Memory failure:") &&
		strings.Contains(text, "due to hardware memory corruption"):
		return event(schemas.EventHostMCE, "memory", schemas.SeverityCritical)
	case strings.Contains(text, "[Hardware Error]: event severity: fatal"):
		return event(schemas.EventHostMCE, "ghes_fatal", schemas.SeverityCritical)
	case strings.Contains(text, "[Hardware Error]: event severity: recoverable"):
		return event(schemas.EventHostMCE, "ghes_recoverable", schemas.SeverityError)
	case strings.Contains(text, "[Hardware Error]: event severity: corrected"):
		return event(schemas.EventHostMCE, "ghes_corrected", schemas.SeverityInfo)
	}
	return schemas.Event{}, false
}

func edacSlot(text string) string {
	if _, after, ok := strings.Cut(text, " on "); ok {
		return firstWord(after)
	}
	return ""
}

// aer reads PCIe advanced error reporting: the root port's message, which names
// the device that reported, and the details that are told of that device.
func aer(text string) (schemas.Event, bool) {
	low := strings.ToLower(text)
	pci := address(text)
	for _, sep := range []string{" received: ", " received from "} {
		if _, reporter, ok := strings.Cut(text, sep); ok {
			if a := address(reporter); a != "" {
				pci = a
			}
		}
	}
	switch {
	case strings.Contains(low, "device recovery failed"), strings.Contains(low, "can't recover"):
		return event(schemas.EventHostPCIeAER, "recovery_failed", schemas.SeverityError, "pci", pci)
	case strings.Contains(low, "uncorrected (fatal)"), strings.Contains(low, "uncorrectable (fatal)"), strings.Contains(low, "fatal error") &&
		!strings.Contains(low, "non-fatal"):
		return event(schemas.EventHostPCIeAER, "fatal", schemas.SeverityCritical, "pci", pci)
	case strings.Contains(low, "non-fatal"):
		return event(schemas.EventHostPCIeAER, "nonfatal", schemas.SeverityError, "pci", pci)
	case strings.Contains(low, "corrected"):
		return event(schemas.EventHostPCIeAER, "corrected", schemas.SeverityInfo, "pci", pci)
	}
	return schemas.Event{}, false
}

func disk(text string) (schemas.Event, bool) {
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case strings.HasPrefix(text, "EXT4-fs error"), strings.HasPrefix(text, "EXT4-fs (") && has("error"):
		return event(schemas.EventHostFSError, "ext4", schemas.SeverityError, "disk", between(text, "(device ", ")"))
	case strings.HasPrefix(text, "XFS (") && xfsError(strings.ToLower(text)):
		return event(schemas.EventHostFSError, "xfs", schemas.SeverityError, "disk", between(text, "XFS (", ")"))
	case strings.HasPrefix(text, "BTRFS error"), strings.HasPrefix(text, "BTRFS critical"):
		return event(schemas.EventHostFSError, "btrfs", schemas.SeverityError, "disk", between(text, "(device ", ")"))
	case strings.HasPrefix(text, "Aborting journal on device "):
		return event(
			schemas.EventHostFSError, "journal", schemas.SeverityError, "disk",
			strings.TrimRight(firstWord(text[len("Aborting journal on device "):]), "."),
		)
	case has("Remounting filesystem read-only"):
		return event(schemas.EventHostFSError, "read_only", schemas.SeverityError)
	case strings.HasPrefix(text, "JBD2: ") && has("IO error"):
		return event(schemas.EventHostFSError, "ext4", schemas.SeverityError, "disk", strings.TrimRight(between(text+" ", " on ", " "), "."))
	case strings.HasPrefix(text, "BTRFS: error"):
		return event(schemas.EventHostFSError, "btrfs", schemas.SeverityError, "disk", strings.TrimRight(between(text, "(device ", ")"), ":"))
	case strings.HasPrefix(text, "md") &&
		(has(": Disk failure on ") || has("unrecoverable I/O read error") || has("read error not correctable")):
		return event(
			schemas.EventHostFSError, "raid", schemas.SeverityError, "disk", strings.TrimRight(between(text+" ", "Disk failure on ", " "), ",:"),
		)
	case strings.HasPrefix(text, "nvme") && has("Unrecovered Read Error"):
		return event(schemas.EventHostFSError, "io", schemas.SeverityError, "disk", strings.TrimRight(firstWord(text), ":"))
	case strings.HasPrefix(text, "nvme ") &&
		(has("frozen state error") || has("failure state") || has("Disabling device") || has("controller is dead")),
		strings.HasPrefix(text, "nvme ") && (has("timeout, aborting") || has("timeout, reset controller") || has("timeout, disable controller") ||
			has("controller is down") || has("after probe failure") || has("after reset failure") || has("Device not ready;")):
		return event(schemas.EventHostFSError, "io", schemas.SeverityError, "disk", strings.TrimRight(firstWord(text[5:]), ":"))
	case has("I/O error, dev "), has("critical medium error, dev "), has("critical target error, dev "):
		return event(schemas.EventHostFSError, "io", schemas.SeverityError, "disk", strings.TrimRight(between(text, " error, dev ", " "), ","))
	case strings.HasPrefix(text, "Buffer I/O error on dev"):
		return event(schemas.EventHostFSError, "io", schemas.SeverityError, "disk", strings.TrimRight(between(text, "on dev ", " "), ","))
	}
	return schemas.Event{}, false
}

// xfsError reports whether what XFS says, in lower case, is that it lost data or stopped.
func xfsError(low string) bool {
	for _, s := range []string{
		"corruption", "metadata i/o error", "log i/o error", "shutting down filesystem", "has been shut down", "xfs_do_force_shutdown",
	} {
		if strings.Contains(low, s) {
			return true
		}
	}
	return false
}

// address returns the first PCI address with a function in a text.
func address(text string) string {
	for _, w := range strings.FieldsFunc(
		text, func(r rune) bool { return r == ' ' || r == ',' || r == '(' || r == ')' || r == '[' || r == ']' },
	) {
		w = strings.TrimRight(w, ":.")
		if strings.Count(w, ":") == 2 && strings.Contains(w, ".") {
			if p := PCI(w); p != "" {
				return p
			}
		}
	}
	return ""
}

// service matches what systemd says of units and what fabric manager says.
func (p *Parser) service(unit, text string) (schemas.Event, bool) {
	if strings.Contains(unit, "fabricmanager") {
		if strings.Contains(text, "detected NVSwitch") {
			return fabricError(text)
		}
		return schemas.Event{}, false
	}
	if unit == "systemd-shutdown" || unit == "systemd" && strings.Contains(text, "Shutting down.") {
		p.down()
	}
	if unit != "systemd" {
		return schemas.Event{}, false
	}
	name, rest, ok := strings.Cut(text, ".service: ")
	if !ok || strings.ContainsAny(name, " \t") {
		return schemas.Event{}, false
	}
	if !strings.HasPrefix(rest, "Failed with result") && !strings.HasPrefix(rest, "Start request repeated too quickly") {
		return schemas.Event{}, false
	}
	return failed(name)
}

func failed(name string) (schemas.Event, bool) {
	s := schemas.SeverityWarning
	switch name {
	case "nvidia-fabricmanager", "nvidia-persistenced", "nvidia-dcgm", "nvlsm", "nvidia-imex", "slurmd", "kubelet", "containerd":
		s = schemas.SeverityError
	}
	return event(schemas.EventServiceFailed, name, s)
}
