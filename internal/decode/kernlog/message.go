// Package kernlog turns lines of kernel and service logs into events: the
// NVIDIA driver's XIDs and SXids, the kernel's own alarms, network adapters,
// failed services and reboots. It knows the formats in which such lines come:
// /dev/kmsg, dmesg, journal exports and fabric manager's log.
package kernlog

import (
	"cmp"
	"maps"
	"strconv"
	"strings"

	"auspex/schemas"
	"auspex/schemas/faults"
)

// Parser turns the messages of one host's log into events. It remembers what
// lines say for later ones: the GPUs' UUIDs and whether the host was shut
// down. It is not safe for concurrent use.
type Parser struct {
	uuids    map[string]string // PCI address without function → UUID
	lines    int
	shutdown string // how the host went down, if it said so
	panicked bool
	sentence string // what the driver has begun to say of a GPU, over several lines
	oom      oomState
	peers    map[string]bool // nodes of the IMEX domain, and whether they are lost

	// EndsEarly says that the log may end before its host does, as what a host sends does: a boot
	// without a word of the end before it is then none after a crash.
	EndsEarly bool
}

// Observed tells the parser that the log of an earlier boot was seen, so that the
// next boot's first line is a reboot and not a first sight.
func (p *Parser) Observed() { p.lines++ }

// Message returns the events that a record means, mostly none. Time, Observed,
// Resource and ID are the caller's to set. The unit is the syslog identifier or
// systemd unit that wrote it; "" or "kernel" is the kernel. A record may have
// several lines; an event's message is the line, or the sentence, that means it.
func (p *Parser) Message(unit, text string) (events []schemas.Event) {
	for text != "" {
		var line string
		line, text = firstLine(text)
		ev, ok := p.match(unit, line)
		p.lines++
		if !ok {
			continue
		}
		ev.Source = schemas.SourceKmsg
		if ev.Message == "" {
			ev.Message = line
		}
		if ev.Attr("action") == "" {
			ev.SetAttr("action", defaultAction(&ev))
		}
		events = append(events, ev)
	}
	return events
}

const driver = "NVRM:"

// firstLine splits a record after its first line. Some shippers write a record of
// several lines as one: there the driver's name stands in the middle again.
func firstLine(text string) (line, rest string) {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		text, rest = text[:i], text[i+1:]
	}
	text = strings.TrimRight(text, "\r")
	if strings.HasPrefix(text, driver) {
		if i := strings.Index(text[len(driver):], driver); i >= 0 {
			i += len(driver)
			if rest != "" {
				rest = "\n" + rest
			}
			return strings.TrimRight(strings.TrimSuffix(text[:i], `\n`), " "), text[i:] + rest
		}
	}
	return text, rest
}

func defaultAction(ev *schemas.Event) string {
	switch ev.Type {
	case schemas.EventHostOOM:
		return faults.ActionRestartApp
	case schemas.EventHostPanic, schemas.EventHostHungTask:
		return faults.ActionRestartHost
	}
	if ev.Severity == schemas.SeverityInfo {
		return faults.ActionIgnore
	}
	return faults.ActionContactSupport
}

// match finds what a line means. What a program prints is never taken for what the
// kernel says, whatever it quotes.
func (p *Parser) match(unit, text string) (schemas.Event, bool) {
	if len(text) < 5 {
		return schemas.Event{}, false
	}
	if unit != "" && unit != kernelUnit {
		return p.service(unit, text)
	}
	switch {
	case strings.HasPrefix(text, driver):
		return p.nvrm(text)
	case strings.HasPrefix(text, "nvidia-nvswitch"), strings.HasPrefix(text, "SXid ("):
		if i := strings.Index(text, "SXid (PCI:"); i >= 0 {
			return sxid(text, i)
		}
		return schemas.Event{}, false
	case strings.HasPrefix(text, "Xid ("): // a shipper has cut off the driver's name
		return p.xid(text)
	}
	return p.kernel(text)
}

func event(typ, code string, s schemas.Severity, attrs ...string) (schemas.Event, bool) {
	ev := schemas.Event{Type: typ, Code: code, Severity: s}
	for i := 0; i+1 < len(attrs); i += 2 {
		if attrs[i+1] != "" {
			ev.SetAttr(attrs[i], attrs[i+1])
		}
	}
	return ev, true
}

func (p *Parser) nvrm(text string) (schemas.Event, bool) {
	body := strings.TrimSpace(strings.TrimPrefix(text, driver))
	switch {
	case strings.HasPrefix(body, "Xid ("):
		return p.xid(body)
	case strings.HasPrefix(body, "GPU at "):
		// NVRM: GPU at PCI:0000:1b:00: GPU-8a5f…, also 0000:01:00.0 without "PCI:".
		rest := strings.TrimPrefix(strings.TrimPrefix(body, "GPU at "), "PCI:")
		if i := strings.Index(rest, "GPU-"); i > 2 {
			p.learn(PCI(strings.Trim(rest[:i], ": ")), firstWord(rest[i:]))
		}
	case strings.Contains(body, "GPU has fallen off the bus"), strings.Contains(body, "GPU is lost"):
		// The line that comes beside XID 79, such as "NVRM: GPU 0000:1b:00.0: GPU has
		// fallen off the bus.".
		pci := ""
		if rest, ok := strings.CutPrefix(body, "GPU "); ok {
			pci = PCI(strings.TrimRight(firstWord(rest), ":"))
		}
		if pci == "" {
			return schemas.Event{}, false
		}
		return event(
			schemas.EventGPUMissing, "FALLEN_OFF_BUS", schemas.SeverityCritical, "pci", pci, "uuid", p.uuids[trimFunction(pci)], "action",
			faults.ActionRestartHost,
		)
	case strings.Contains(body, "RmInitAdapter failed"):
		pci := ""
		if rest, ok := strings.CutPrefix(body, "GPU "); ok {
			pci = PCI(strings.TrimRight(firstWord(rest), ":"))
		}
		return event(
			schemas.EventGPUMissing, "INIT_FAILED", schemas.SeverityError, "pci", pci, "uuid", p.uuids[trimFunction(pci)], "action",
			faults.ActionResetGPU,
		)
	case strings.HasPrefix(body, "The NVIDIA GPU "):
		p.sentence = strings.Clone(body)
		return p.probed()
	case p.sentence != "":
		p.sentence += " " + body
		return p.probed()
	}
	return schemas.Event{}, false
}

// probed reads what the driver's probe says of a GPU, in one to four lines that
// differ between releases: "The NVIDIA GPU 0000:b1:00.0 (PCI ID: 10de:2330) installed
// in this system has fallen off the bus and is not responding to commands.".
func (p *Parser) probed() (schemas.Event, bool) {
	s := p.sentence
	if strings.HasSuffix(s, ".") || len(s) > 512 {
		p.sentence = ""
	}
	if !strings.Contains(s, "fallen off the bus") {
		return schemas.Event{}, false
	}
	p.sentence = ""
	pci := PCI(firstWord(strings.TrimPrefix(s, "The NVIDIA GPU ")))
	ev, ok := event(
		schemas.EventGPUMissing, "FALLEN_OFF_BUS", schemas.SeverityCritical, "pci", pci, "uuid", p.uuids[trimFunction(pci)], "action",
		faults.ActionRestartHost,
	)
	ev.Message = driver + " " + s
	return ev, ok
}

func (p *Parser) learn(pci, uuid string) {
	if pci == "" || len(uuid) < 8 || len(p.uuids) > 4096 {
		return
	}
	if p.uuids == nil {
		p.uuids = make(map[string]string)
	}
	p.uuids[strings.Clone(trimFunction(pci))] = strings.Clone(uuid)
}

// xid reads "Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, …". Old drivers
// write the bus as "0000:01:00" alone, some a GPU UUID beside it, MIG instances
// " GPU-I:01" or "(GI: 1, CI: 0)".
func (p *Parser) xid(body string) (schemas.Event, bool) {
	open := strings.IndexByte(body, '(')
	end := strings.Index(body, "):")
	if end < open {
		return schemas.Event{}, false
	}
	where, rest := body[open+1:end], strings.TrimSpace(body[end+2:])
	digits, detail, _ := strings.Cut(rest, ",")
	code, err := strconv.Atoi(firstWord(digits))
	if err != nil || code < 0 || code > 99999 {
		return schemas.Event{}, false
	}
	if strings.TrimSpace(digits) != firstWord(digits) && detail == "" {
		detail = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(digits), firstWord(digits)))
	}
	detail = strings.TrimSpace(detail)
	entry := faults.XID(code)
	ev, _ := event(schemas.EventGPUXID, strconv.Itoa(code), entry.Severity, "action", entry.Action)
	place := strings.FieldsSeq(strings.TrimSpace(where))
	for w := range place {
		switch {
		case strings.HasPrefix(w, "GPU-I:"), strings.HasPrefix(w, "GI:"):
			ev.SetAttr("gpu_instance", strings.TrimPrefix(strings.TrimPrefix(w, "GPU-I:"), "GI:"))
		case strings.HasPrefix(w, "GPU-"):
			ev.SetAttr("uuid", w)
		default:
			if pci := xidBus(strings.TrimPrefix(w, "PCI:")); pci != "" {
				ev.SetAttr("pci", pci)
			}
		}
	}
	if u := p.uuids[trimFunction(ev.Attr("pci"))]; u != "" && ev.Attr("uuid") == "" {
		ev.SetAttr("uuid", u)
	}
	process(&ev, detail)
	if _, prev, ok := strings.Cut(detail, "caused by previous Xid "); ok {
		if n, err := strconv.Atoi(digitsOf(prev)); err == nil {
			ev.SetAttr("caused_by_xid", strconv.Itoa(n))
		}
	}
	if g := between(detail, "GI: ", ","); g != "" {
		ev.SetAttr("gpu_instance", digitsOf(g))
	}
	switch {
	case code == faults.XIDRecoveryAction:
		if action, verdict, ok := faults.RecoveryAction(detail); ok {
			ev.SetAttr("action", action)
			ev.SetAttr("recovery", verdict)
			if action == faults.ActionIgnore {
				ev.Severity = schemas.SeverityInfo
			}
		} else {
			ev.SetAttr("action", faults.ActionContactSupport)
		}
	case code >= 144 && code <= 150:
		nvlink5(&ev, code, detail)
	}
	if link := between(detail, "Link ", " "); link != "" && link != "-1" { // -1 is no link
		ev.SetAttr("link", strings.TrimRight(link, ",.:("))
	}
	return ev, true
}

// xidBus reads the bus of an Xid; the oldest drivers wrote "0003:00", bus and slot.
func xidBus(s string) string {
	if len(s) == 7 && s[:2] == "00" && s[4] == ':' {
		s = s[2:]
	}
	return PCI(s)
}

// nvlink5 reads "RLW_REMAP Nonfatal XC0 i0 Link 12 (0x00000004 0x00000040 …)".
func nvlink5(ev *schemas.Event, code int, detail string) {
	detail = withoutProcess(detail)
	unit := firstWord(detail)
	if unit == "" || strings.Contains(unit, "=") {
		return
	}
	ev.SetAttr("unit", unit)
	low := strings.ToLower(detail)
	if strings.Contains(low, "nonfatal") || strings.Contains(low, "non-fatal") {
		ev.Severity = schemas.SeverityInfo
	} else if strings.Contains(low, "fatal") {
		ev.Severity = schemas.SeverityCritical
	}
	words := strings.Fields(between(detail, "(0x", ")"))
	if len(words) < 2 {
		return
	}
	intr, err1 := strconv.ParseUint(words[0], 16, 32)
	status, err2 := strconv.ParseUint(strings.TrimPrefix(words[1], "0x"), 16, 32)
	if err1 != nil || err2 != nil {
		return
	}
	if r, ok := faults.NVLink(code, unit, uint32(intr), uint32(status)); ok {
		ev.SetAttr("decoded_action", r.Action)
		ev.SetAttr("investigate", r.Investigate)
		ev.SetAttr("effect", r.Effect)
	}
}

// withoutProcess takes off the leading "pid=1234, name=python3, ", which some
// releases of the driver write and others do not.
func withoutProcess(detail string) string {
	for strings.HasPrefix(detail, "pid=") || strings.HasPrefix(detail, "name=") {
		_, rest, ok := strings.Cut(detail, ", ")
		if !ok {
			break
		}
		detail = strings.TrimSpace(rest)
	}
	return detail
}

// process reads pid and name, in any of the spellings of driver generations.
func process(ev *schemas.Event, detail string) {
	if pid := between(detail, "pid=", ","); pid != "" {
		if pid = strings.Trim(pid, "' "); pid != "" && digitsOf(pid) == pid {
			ev.SetAttr("pid", pid)
		}
	}
	if name := between(detail, "name=", ","); name != "" {
		if name = strings.Trim(name, "' "); name != "" && name != "<unknown>" {
			ev.SetAttr("name", name)
		}
	}
	if ch := cmp.Or(between(detail, "Ch ", " "), between(detail, "channel 0x", " ")); ch != "" { // as driver 580 has it
		ev.SetAttr("channel", strings.TrimRight(ch, ",."))
	}
}

// sxid reads "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32
// egress …". The lines "Severity …" and "Data {…}" that follow are its details.
func sxid(text string, at int) (schemas.Event, bool) {
	body := text[at:]
	end := strings.Index(body, "):")
	if end < 0 {
		return schemas.Event{}, false
	}
	pci := PCI(strings.TrimPrefix(body[len("SXid ("):end], "PCI:"))
	digits, detail, _ := strings.Cut(strings.TrimSpace(body[end+2:]), ",")
	code, err := strconv.Atoi(strings.TrimSpace(digits))
	if err != nil || code < 0 || code > 999999 {
		return schemas.Event{}, false
	}
	detail = strings.TrimSpace(detail)
	if strings.HasPrefix(detail, "Data {") || strings.HasPrefix(detail, "Severity ") {
		return schemas.Event{}, false
	}
	low := strings.ToLower(detail)
	nonFatal := strings.HasPrefix(low, "non-fatal") || strings.HasPrefix(low, "nonfatal")
	fatal := !nonFatal && strings.HasPrefix(low, "fatal")
	severity, action := faults.SXIDSeverity(code, fatal, nonFatal)
	ev, ok := event(schemas.EventNVSwitchSXid, strconv.Itoa(code), severity, "pci", pci, "action", action)
	if i := strings.LastIndex(text[:at], "nvswitch"); i >= 0 {
		if n := digitsOf(text[i+len("nvswitch"):]); n != "" {
			ev.SetAttr("nvswitch", n)
		}
	}
	switch {
	case fatal:
		ev.SetAttr("fatal", "true")
	case nonFatal:
		ev.SetAttr("fatal", "false")
	}
	if l := between(detail, "Link ", " "); l != "" && digitsOf(l) != "" {
		ev.SetAttr("link", digitsOf(l))
	}
	if e := faults.SXID(code); e.Known {
		ev.SetAttr("mnemonic", e.Mnemonic)
	}
	return ev, ok
}

// PCI returns a PCI address in lower case with a domain of four digits, as
// "0000:1b:00.0" or "0000:1b:00", or "" for what is none. The domain may have
// eight digits (as NVML and fabric manager write it) or be missing.
func PCI(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...)
	}
	if len(parts) != 3 {
		return ""
	}
	dom, bus, dev := parts[0], parts[1], parts[2]
	for len(dom) > 4 && dom[0] == '0' {
		dom = dom[1:]
	}
	slot, fn, hasFn := strings.Cut(dev, ".")
	if len(dom) < 4 || len(dom) > 8 || len(bus) != 2 || len(slot) != 2 || !hex(dom) || !hex(bus) || !hex(slot) || hasFn &&
		(len(fn) != 1 || !hex(fn)) {
		return ""
	}
	return dom + ":" + bus + ":" + dev
}

func trimFunction(pci string) string {
	if i := strings.LastIndexByte(pci, '.'); i > 0 {
		return pci[:i]
	}
	return pci
}

func hex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func firstWord(s string) string {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t,;"); i >= 0 {
		return s[:i]
	}
	return s
}

func digitsOf(s string) string {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return s[:i]
		}
	}
	return s
}

// between returns what stands after prefix and before end (or the line's end).
func between(s, prefix, end string) string {
	i := strings.Index(s, prefix)
	if i < 0 {
		return ""
	}
	s = s[i+len(prefix):]
	if j := strings.Index(s, end); j >= 0 {
		s = s[:j]
	}
	return s
}

// UUIDs returns a copy of what the log has said of the GPUs: PCI address without
// function to UUID.
func (p *Parser) UUIDs() map[string]string { return maps.Clone(p.uuids) }
