package decode

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

// logged is a record as the kernel keeps it: facility 0 is the kernel's own.
type logged struct {
	at       time.Duration // since boot
	facility int
	level    int
	tag      string // with a process id, of what a program wrote
	text     string
}

var bootAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (r logged) time() time.Time { return bootAt.Add(r.at) }

// tagged is the text as it stands in the ring buffer.
func (r logged) tagged() string {
	if r.tag == "" {
		return r.text
	}
	return r.tag + ": " + r.text
}

func (r logged) program() string {
	if r.tag == "" {
		return "kernel"
	}
	return r.tag
}

func (r logged) priority() int { return r.facility<<3 | r.level }

var (
	facilityNames = map[int]string{0: "kern", 1: "user", 3: "daemon"}
	levelNames    = []string{"emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"}
)

// padded writes a record as tools do that indent its further lines.
func padded(head, text string) string {
	return head + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", len(head))) + "\n"
}

func lineEach(f func(r logged) string) func([]logged) string {
	return func(records []logged) string {
		var b strings.Builder
		for _, r := range records {
			b.WriteString(f(r))
		}
		return b.String()
	}
}

func sinceBoot(r logged) string {
	return fmt.Sprintf("[%5d.%06d] ", r.at/time.Second, r.at%time.Second/time.Microsecond)
}

func fields(r logged) map[string]any {
	m := map[string]any{
		"__REALTIME_TIMESTAMP": strconv.FormatInt(r.time().UnixMicro(), 10), "__CURSOR": fmt.Sprintf("s=1;i=%x", r.at), "_HOSTNAME": "gpu-1",
		"PRIORITY": strconv.Itoa(r.level), "SYSLOG_FACILITY": strconv.Itoa(r.facility), "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel",
		"MESSAGE": r.text,
	}
	if r.tag != "" {
		name, pid, _ := strings.Cut(strings.TrimSuffix(r.tag, "]"), "[")
		m["_TRANSPORT"], m["SYSLOG_IDENTIFIER"], m["_PID"] = "journal", name, pid
	}
	return m
}

func jsonLine(r logged, bytesToo bool) string {
	m := fields(r)
	if bytesToo {
		var list []int
		for _, c := range []byte(r.text) {
			list = append(list, int(c))
		}
		m["MESSAGE"] = list
	}
	b, _ := json.Marshal(m)
	return string(b)
}

// containers are the forms in which the same records come;
// coarse ones keep whole seconds only.
var containers = []struct {
	name, format string
	coarse       bool
	wrap         func([]logged) string
}{
	{"kmsg", "kmsg", false, func(records []logged) string {
		var b strings.Builder
		for i, r := range records {
			fmt.Fprintf(&b, "%d,%d,%d,-;%s\n SUBSYSTEM=pci\n", r.priority(), i, r.at.Microseconds(), strings.ReplaceAll(r.tagged(), "\n", `\x0a`))
		}
		return b.String()
	}},
	{"dmesg", "dmesg", false, lineEach(func(r logged) string { return padded(sinceBoot(r), r.tagged()) })},
	{"dmesg, lines not indented", "dmesg", false, lineEach(func(r logged) string {
		return sinceBoot(r) + strings.ReplaceAll(r.tagged(), "\n", "\n"+sinceBoot(r)) + "\n"
	})},
	{"dmesg -x", "dmesg", false, lineEach(func(r logged) string {
		return padded(fmt.Sprintf("%-6s:%-6s: %s", facilityNames[r.facility], levelNames[r.level], sinceBoot(r)), r.tagged())
	})},
	{"dmesg -r", "dmesg", false, lineEach(func(r logged) string { return fmt.Sprintf("<%d>%s%s\n", r.priority(), sinceBoot(r), r.tagged()) })},
	{"dmesg -T", "dmesg", true, lineEach(func(r logged) string {
		return padded(r.time().Format("[Mon Jan _2 15:04:05 2006] "), r.tagged())
	})},
	{"dmesg -d", "dmesg", false, lineEach(func(r logged) string {
		return padded(strings.Replace(sinceBoot(r), "]", " <    0.500000>]", 1), r.tagged())
	})},
	{"dmesg -e", "dmesg", false, func(records []logged) string {
		var b strings.Builder
		at := bootAt
		b.WriteString(at.Format("[Jan_2 15:04] ") + "first\n")
		for _, r := range records {
			b.WriteString(padded(fmt.Sprintf("[%12s] ", fmt.Sprintf("+%.6f", r.time().Sub(at).Seconds())), r.tagged()))
			at = r.time()
		}
		return b.String()
	}},
	{"dmesg --time-format iso", "dmesg", false, lineEach(func(r logged) string {
		return padded(r.time().Format("2006-01-02T15:04:05,000000-07:00 "), r.tagged())
	})},
	{"dmesg --color", "dmesg", false, lineEach(func(r logged) string {
		head, text, ok := strings.Cut(r.tagged(), ": ")
		if !ok {
			return "\x1b[32m" + sinceBoot(r) + "\x1b[0m" + head + "\n"
		}
		return "\x1b[32m" + sinceBoot(r) + "\x1b[0m\x1b[33m" + head + ": \x1b[0m\x1b[31m" + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", len(sinceBoot(r)))) + "\x1b[0m\n"
	})},
	{"dmesg -J -x", "dmesg", false, func(records []logged) string {
		var list []map[string]any
		for _, r := range records {
			list = append(list, map[string]any{
				"fac": facilityNames[r.facility], "pri": levelNames[r.level], "msg": r.tagged(),
				"time": json.RawMessage(strings.Trim(sinceBoot(r), "[] ")),
			})
		}
		b, _ := json.MarshalIndent(map[string]any{"dmesg": list}, "", "   ")
		return string(b) + "\n"
	}},
	{"syslog file", "dmesg", true, lineEach(func(r logged) string {
		return padded(r.time().Format("Jan _2 15:04:05 gpu-1 ")+r.program()+": ", r.text)
	})},
	{"syslog file with the kernel's time", "dmesg", true, lineEach(func(r logged) string {
		if r.tag != "" {
			return r.time().Format("Jan _2 15:04:05 gpu-1 ") + r.program() + ": " + r.text + "\n"
		}
		return padded(r.time().Format("Jan _2 15:04:05 gpu-1 kernel: ")+sinceBoot(r), r.text)
	})},
	{"syslog file of BusyBox", "dmesg", true, lineEach(func(r logged) string {
		return padded(r.time().Format("Jan _2 15:04:05 gpu-1 ")+facilityNames[r.facility]+"."+levelNames[r.level]+" "+r.program()+": ", r.text)
	})},
	{"rsyslog, RFC 3339", "dmesg", false, lineEach(func(r logged) string {
		return r.time().Format("2006-01-02T15:04:05.000000-07:00 gpu-1 ") + r.program() + ": " + strings.ReplaceAll(r.text, "\n", "#012") + "\n"
	})},
	{"RFC 3164", "dmesg", true, lineEach(func(r logged) string {
		return fmt.Sprintf(
			"<%d>%s%s: %s\n", r.priority(), r.time().Format("Jan _2 15:04:05 gpu-1 "), r.program(), strings.ReplaceAll(r.text, "\n", "#012"),
		)
	})},
	{"RFC 5424", "dmesg", false, lineEach(func(r logged) string { return rfc5424(r, strings.ReplaceAll(r.text, "\n", "#012")) + "\n" })},
	{"RFC 6587", "dmesg", false, lineEach(func(r logged) string {
		s := rfc5424(r, r.text)
		return fmt.Sprintf("%d %s", len(s), s)
	})},
	{"journalctl -o json", "journal", false, lineEach(func(r logged) string { return jsonLine(r, false) + "\n" })},
	{"journalctl -o json, bytes", "journal", false, lineEach(func(r logged) string { return jsonLine(r, true) + "\n" })},
	{"journalctl -o json-seq", "journal", false, lineEach(func(r logged) string { return "\x1e" + jsonLine(r, false) + "\n" })},
	{"journalctl -o json-sse", "journal", false, lineEach(func(r logged) string { return "data: " + jsonLine(r, false) + "\n\n" })},
	{"journalctl -o json-pretty", "journal", false, lineEach(func(r logged) string {
		b, _ := json.MarshalIndent(fields(r), "", "\t")
		return string(b) + "\n"
	})},
	{"journal as an array", "journal", false, func(records []logged) string {
		var list []json.RawMessage
		for _, r := range records {
			list = append(list, json.RawMessage(jsonLine(r, false)))
		}
		b, _ := json.Marshal(list)
		return string(b)
	}},
	{"journalctl -o export", "journal", false, lineEach(func(r logged) string {
		var b bytes.Buffer
		for k, v := range fields(r) {
			if s := v.(string); strings.Contains(s, "\n") {
				_, _ = b.WriteString(k + "\n")
				_ = binary.Write(&b, binary.LittleEndian, uint64(len(s)))
				_, _ = b.WriteString(s + "\n")
			} else {
				_, _ = b.WriteString(k + "=" + s + "\n")
			}
		}
		return b.String() + "\n"
	})},
	{"journalctl -o verbose", "journal", false, lineEach(func(r logged) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s [s=1;i=%d]\n", r.time().Format("Mon 2006-01-02 15:04:05.000000 MST"), r.at)
		for k, v := range fields(r) {
			b.WriteString(padded("    "+k+"=", v.(string)))
		}
		return b.String()
	})},
	{"journalctl -o short-precise", "journal", false, lineEach(func(r logged) string {
		return padded(r.time().Format("Jan 02 15:04:05.000000 gpu-1 ")+r.program()+": ", r.text)
	})},
	{"journalctl -o short-full", "journal", true, lineEach(func(r logged) string {
		return padded(r.time().Format("Mon 2006-01-02 15:04:05 MST gpu-1 ")+r.program()+": ", r.text)
	})},
	{"journalctl -o short-iso", "journal", true, lineEach(func(r logged) string {
		return padded(r.time().In(time.FixedZone("", 5*3600)).Format("2006-01-02T15:04:05-0700 gpu-1 ")+r.program()+": ", r.text)
	})},
	{"journalctl -o short-unix", "journal", false, lineEach(func(r logged) string {
		return padded(fmt.Sprintf("%d.%06d gpu-1 %s: ", r.time().Unix(), r.time().Nanosecond()/1000, r.program()), r.text)
	})},
	{"journalctl -o short-monotonic", "journal", false, lineEach(
		func(r logged) string { return padded(sinceBoot(r)+"gpu-1 "+r.program()+": ", r.text) },
	)},
}

func rfc5424(r logged, text string) string {
	name, pid, _ := strings.Cut(strings.TrimSuffix(r.program(), "]"), "[")
	if pid == "" {
		pid = "-"
	}
	return fmt.Sprintf(
		`<%d>1 %s gpu-1 %s %s - [origin x="a\]b"][y z="1"] %s`, r.priority(), r.time().Format("2006-01-02T15:04:05.000000Z07:00"), name, pid,
		text,
	)
}

// carriers are what may have happened to a file since.
var carriers = []struct {
	name string
	wrap func(string) []byte
}{
	{"plain", func(s string) []byte { return []byte(s) }},
	{"UTF-16, little endian", func(s string) []byte { return inUTF16(s, binary.LittleEndian) }},
	{"UTF-16, big endian", func(s string) []byte { return inUTF16(s, binary.BigEndian) }},
	{"ends of lines of Windows", func(s string) []byte { return []byte(strings.ReplaceAll(s, "\n", "\r\n")) }},
	{"blank lines before it", func(s string) []byte { return []byte("\n\n" + s) }},
}

func inUTF16(s string, order binary.ByteOrder) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, order, append([]uint16{0xfeff}, utf16.Encode([]rune(s))...))
	return b.Bytes()
}

// drawn are records of all kinds, in a random order.
func drawn(rnd *rand.Rand) []logged {
	pci := fmt.Sprintf("%04x:%02x:00", rnd.IntN(2)*8, rnd.IntN(256))
	kernel := []logged{
		{level: 3, text: fmt.Sprintf("NVRM: Xid (PCI:%s): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", pci)},
		{level: 3, text: fmt.Sprintf(
			"NVRM: The NVIDIA GPU %s.0 (PCI ID: 10de:2330)\nNVRM: installed in this system has fallen off the bus and is not responding to commands.",
			pci,
		)},
		{level: 3, text: fmt.Sprintf(
			"NVRM: The NVIDIA GPU %s.0 (PCI ID: 10de:2330) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.",
			pci,
		)},
		{level: 3, text: fmt.Sprintf(
			"NVRM: Xid (PCI:%s): %d, pid=%d, name=python3, Ch 00000010, intr 00000000. MMU Fault", pci, 31+rnd.IntN(100), rnd.IntN(1<<20),
		)},
		{
			level: 3,
			text:  "NVRM: Xid (PCI:0000:61:00): 149, pid=12, name=python3, NETIR_BER_EVENT Nonfatal XC0 i0 Link 04 (0x00082226 0x00000001 0x0 0x0 0x0 0x0)",
		},
		{level: 3, text: "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 32 LTSSM Fault Up"},
		{level: 3, text: "mlx5_core 0000:40:00.0: print_health_info:431:(pid 0): synd 0x8: unrecoverable hardware error"},
		{
			level: 3,
			text:  "mlx5_core 0000:40:00.0: mlx5_cmd_out_err:838:(pid 268269): CREATE_SQ(0x904) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0xd61c0b), err(-22)",
		},
		{
			level: 6,
			text:  "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0-1,oom_memcg=/slurm,task_memcg=/slurm/job,task=python3,pid=271,uid=0",
		},
		{level: 3, text: "Memory cgroup out of memory: Killed process 271 (python3) total-vm:88200412kB"},
		{level: 2, text: "EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm x: reading directory lblock 0"},
		{level: 4, text: "nvme nvme0: I/O 12 QID 3 timeout, aborting"},
		{level: 6, text: "usb 1-1: new high-speed USB device number 2 using xhci_hcd"},
		{facility: 3, level: 6, tag: "systemd[1]", text: "nvidia-fabricmanager.service: Failed with result 'exit-code'."},
		{facility: 3, level: 6, tag: "systemd[2345]", text: "mine.service: Failed with result 'exit-code'."},
		{facility: 1, level: 6, tag: "trainer[4711]", text: fmt.Sprintf("NVRM: Xid (PCI:%s): 79, pid=1, GPU has fallen off the bus.", pci)},
		{facility: 1, level: 3, tag: "kernel[4712]", text: fmt.Sprintf("NVRM: Xid (PCI:%s): 48, quoted", pci)},
		{facility: 1, level: 3, tag: "trainer[4711]", text: "systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'."},
	}
	at := time.Duration(1+rnd.IntN(1000)) * time.Second
	out := make([]logged, 0, len(kernel))
	for _, i := range rnd.Perm(len(kernel)) {
		out = append(out, kernel[i])
	}
	for i := range out { // the two lines of one killing stay in their order
		if strings.HasPrefix(out[i].text, "Memory cgroup") {
			j := slices.IndexFunc(out, func(r logged) bool { return strings.HasPrefix(r.text, "oom-kill:") })
			if j > i {
				out[i], out[j] = out[j], out[i]
			}
		}
	}
	for i := range out {
		at += time.Duration(1+rnd.IntN(20_000_000)) * time.Microsecond
		out[i].at = at
	}
	return out
}

// meaning is what must not depend on the container.
func meaning(evs []schemas.Event, coarse bool) []string {
	var out []string
	for _, ev := range evs {
		at := ev.Time
		if coarse {
			at = at.Truncate(time.Second)
		}
		b, _ := json.Marshal([]any{at, ev.Resource, ev.Type, ev.Code, ev.Severity, ev.State, ev.Message, ev.Attrs})
		out = append(out, string(b))
	}
	return out
}

func TestTheContainerDoesNotChangeWhatARecordMeans(t *testing.T) {
	for seed := range uint64(20) {
		records := drawn(rand.New(rand.NewPCG(seed, 7))) //nolint:gosec // a test's draw
		var want []schemas.Event
		for i, c := range containers {
			carrier := carriers[(i+int(seed))%len(carriers)]
			if c.name == "journalctl -o export" || c.name == "RFC 6587" {
				carrier = carriers[0] // both count bytes
			}
			in := carrier.wrap(c.wrap(records))
			o := Options{Format: c.format, Host: "gpu-1", Boot: bootAt, Now: func() time.Time { return bootAt.AddDate(0, 3, 0) }}
			evs, errs, res, err := run(t, bytes.NewReader(in), o)
			if err != nil || res.Bad != 0 {
				t.Errorf("seed %d, %s, %s: %d bad, %v: %s", seed, c.name, carrier.name, res.Bad, err, errs)
				continue
			}
			if want == nil {
				if want = evs; len(want) != 12 {
					t.Fatalf("%d events: %v", len(want), meaning(want, false))
				}
			}
			if d := cmp.Diff(meaning(want, c.coarse), meaning(evs, c.coarse)); d != "" {
				t.Errorf("seed %d, %s, %s: %s\n%s", seed, c.name, carrier.name, d, in)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// What the tools themselves print is read the same in each of their forms, or
// refused with a reason.
func TestToolsOutputs(t *testing.T) {
	type event struct{ Type, Code, Severity, PCI string }
	xid, missing := event{"gpu.xid", "79", "critical", "0000:1b:00"}, event{"gpu.missing", "FALLEN_OFF_BUS", "critical", "0000:b1:00.0"}
	dmesg := []event{{"host.reboot", "boot", "info", ""}, xid, missing, {"service.failed", "a", "warning", ""}}
	unit := event{"service.failed", "nvidia-fabricmanager", "error", ""}
	journal := []event{xid, missing, unit, {"nic.error", "hardware_unrecoverable", "critical", "0000:40:00.0"}}
	files, err := filepath.Glob("testdata/tools/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o, want, bad := Options{Format: "dmesg", Boot: bootAt, Host: "gpu-1"}, dmesg, 0
			if strings.HasPrefix(name, "journalctl-") {
				o.Format, want = "journal", journal
				if strings.Contains(name, "short") || strings.Contains(name, "unit") || strings.Contains(name, "verbose") {
					want, bad = journal[:3], 1 // the last is "[80B blob data]" there
				}
			}
			evs, errs, res, err := run(t, bytes.NewReader(b), o)
			if name == "journalctl-cat" {
				if !errors.Is(err, ErrNothingRead) || len(evs) > 0 || !strings.Contains(err.Error(), "-o export") {
					t.Errorf("%d events, %v", len(evs), err)
				}
				return
			}
			var got []event
			for _, ev := range evs {
				got = append(got, event{ev.Type, ev.Code, string(ev.Severity), ev.Attr("pci")})
				undated := strings.HasSuffix(name, "-t") || strings.HasSuffix(name, "-delta") && o.Format == "dmesg"
				if (ev.Attr("clock") == "unknown") != undated || !undated && ev.Time.Year() != 2026 {
					t.Errorf("%s at %v, clock %q", ev.Type, ev.Time, ev.Attr("clock"))
				}
			}
			if d := cmp.Diff(want, got); d != "" || err != nil || res.Bad != bad || bad > 0 && !strings.Contains(errs, "blob data") {
				t.Errorf("%s\n%d bad, %v: %s", d, res.Bad, err, errs)
			}
		})
	}
}

func TestWhatCannotBeReadIsNotPassedOver(t *testing.T) {
	const dmesgLine = "[    5.000000] NVRM: Xid (PCI:0000:1b:00): 79, x\n"
	for name, tc := range map[string]struct{ format, in string }{
		"dmesg as kmsg":              {"kmsg", dmesgLine},
		"journal's text without who": {"journal", "NVRM: Xid (PCI:0000:1b:00): 79, x\nNVRM: Xid (PCI:0000:1b:00): 79, x\n"},
		"some other JSON":            {"journal", `{"a":1}` + "\n" + `{"b":2}` + "\n"},
		"JSON cut off":               {"dmesg", `{"dmesg": [{"pri": 3, "ti`},
		"dmesg as an event log":      {"sel-raw", dmesgLine},
		"a log of Kubernetes":        {"dmesg", "2026-03-04T05:00:12.5Z stdout F " + dmesgLine},
		"and of what a job wrote":    {"journal", "2026-03-04T05:00:12.5+01:00 stderr P mce: [Hardware Error]: Machine check events logged\n"},
		"a log of Docker":            {"dmesg", `{"log":"NVRM: Xid (PCI:0000:1b:00): 79, x\\n","stream":"stdout","time":"2026-03-04T05:00:12Z"}` + "\n"},
		"UTF-16 without its mark":    {"dmesg", strings.Join(strings.Split(dmesgLine, ""), "\x00") + "\x00"},
		"something packed":           {"kmsg", "\x00\x01\x02\x00\xff"},
	} {
		evs, _, _, err := run(t, strings.NewReader(tc.in), Options{Format: tc.format, Host: "h"})
		if err == nil || len(evs) > 0 {
			t.Errorf("%s: %d events, %v", name, len(evs), err)
		}
	}
	// Where a crash lost what a log had written, the file system leaves NULs.
	evs, _, res, err := run(t, strings.NewReader(strings.Repeat("\x00", 5000)+dmesgLine), Options{Format: "dmesg", Host: "h"})
	if err != nil || res.Bad > 0 || len(evs) != 1 {
		t.Errorf("a line behind NULs: %d events, %d bad, %v", len(evs), res.Bad, err)
	}
	for name, tc := range map[string]struct{ format, in string }{
		"nothing at all":   {"journal", ""},
		"nothing happened": {"journal", "-- No entries --\n"},
		"quiet log":        {"dmesg", "[    5.000000] usb 1-1: x\n"},
	} {
		if _, errs, res, err := run(t, strings.NewReader(tc.in), Options{Format: tc.format, Host: "h"}); err != nil || res.Bad > 0 {
			t.Errorf("%s: %d bad, %v: %s", name, res.Bad, err, errs)
		}
	}
}
