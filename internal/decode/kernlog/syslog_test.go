package kernlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const fallen = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

func TestALineOfSyslogIsTakenApart(t *testing.T) {
	since := 12345*time.Second + 678901*time.Microsecond
	for name, tc := range map[string]struct {
		line string
		want Syslog
	}{
		"RFC 3164":            {"<3>Nov 21 06:50:24 gpu-1 kernel: [12345.678901] " + fallen, Syslog{"Nov 21 06:50:24", "gpu-1", "kernel", since, fallen}},
		"with a caller":       {"<3>Nov  1 06:50:24 gpu-1 kernel: [12345.678901] [  T1234] " + fallen, Syslog{"Nov  1 06:50:24", "gpu-1", "kernel", since, fallen}},
		"rsyslog's template":  {"<3>2026-11-21T06:50:24.123456+01:00 gpu-1 kernel: " + fallen, Syslog{"2026-11-21T06:50:24.123456+01:00", "gpu-1", "kernel", 0, fallen}},
		"RFC 5424":            {"<3>1 2026-11-21T06:50:24.123Z gpu-1.example kernel - - - \ufeff[12345.678901] " + fallen, Syslog{"2026-11-21T06:50:24.123Z", "gpu-1.example", "kernel", since, fallen}},
		"RFC 5424 of rsyslog": {"<3>1 2026-11-21T06:50:24.123Z gpu-1 kernel - - -  [12345.678901] " + fallen, Syslog{"2026-11-21T06:50:24.123Z", "gpu-1", "kernel", since, fallen}},
		"structured data":     {`<3>1 2026-11-21T06:50:24Z gpu-1 kernel - - [a@1 k="v \] w"][b@1] ` + fallen, Syslog{"2026-11-21T06:50:24Z", "gpu-1", "kernel", 0, fallen}},
		"no time, no host":    {"<3>1 - - kernel - - - " + fallen, Syslog{"", "", "kernel", 0, fallen}},
		"no host":             {"<3>Nov 21 06:50:24 kernel: " + fallen, Syslog{"Nov 21 06:50:24", "", "kernel", 0, fallen}},
		"no head":             {"<3>" + fallen, Syslog{"", "", "kernel", 0, fallen}},
		"no tag":              {"<3>Nov 21 06:50:24 gpu-1 " + fallen, Syslog{"Nov 21 06:50:24", "gpu-1", "kernel", 0, fallen}},
		"control characters":  {"<3>Nov 21 06:50:24 gpu-1 kernel: a#012b", Syslog{"Nov 21 06:50:24", "gpu-1", "kernel", 0, "a\nb"}},
		"a user's logger":     {"<13>Nov 21 06:50:24 gpu-1 kernel: " + fallen, Syslog{"Nov 21 06:50:24", "gpu-1", "", 0, "kernel: " + fallen}},
		"a user's, RFC 5424":  {"<13>1 2026-11-21T06:50:24Z gpu-1 kernel - - - " + fallen, Syslog{"2026-11-21T06:50:24Z", "gpu-1", "", 0, fallen}},
		"a process":           {"<3>Nov 21 06:50:24 gpu-1 kernel[812]: " + fallen, Syslog{"Nov 21 06:50:24", "gpu-1", "user", 0, "kernel[812]: " + fallen}},
		"a program":           {"<3>Nov 21 06:50:24 gpu-1 trainer: " + fallen, Syslog{"Nov 21 06:50:24", "gpu-1", "trainer", 0, "trainer: " + fallen}},
		"no priority":         {"Nov 21 06:50:24 gpu-1 kernel: " + fallen, Syslog{"Nov 21 06:50:24", "gpu-1", "", 0, "kernel: " + fallen}},
		"half a head":         {"<3>1 2026-11-21T06:50:24Z gpu-1", Syslog{"", "", "kernel", 0, "1 2026-11-21T06:50:24Z gpu-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, ParseSyslog(tc.line)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestATimeWithoutZoneOrYearIsFoundByOurClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)
	for stamp, want := range map[string]string{
		"Jan  1 00:09:58":               "2026-01-01T00:09:58Z",
		"Dec 31 23:40:03":               "2025-12-31T23:40:03Z", // late, by no zone
		"Jan  1 08:09:58":               "2026-01-01T00:09:58Z", // in China
		"Dec 31 16:09:58":               "2026-01-01T00:09:58Z", // in California
		"Jan  1 05:54:58":               "2026-01-01T00:09:58Z", // in Nepal
		"Jan  1 00:14:00":               "2026-01-01T00:10:00Z", // ahead
		"2026-01-01T08:09:58+08:00":     "2026-01-01T00:09:58Z",
		"1970-01-01T00:00:07.25Z":       "1970-01-01T00:00:07.25Z", // a clock that was never set is told as it is
		"2026-01-01T00:09:58.123456":    "2026-01-01T00:09:58.123456Z",
		"2026-02-31T00:00:00.000+00:00": "",
	} {
		l := Syslog{Stamp: stamp}
		at, ok := l.Time(now)
		if got := at.Format(time.RFC3339Nano); ok != (want != "") || ok && got != want {
			t.Errorf("%s is %s %t, want %s", stamp, got, ok, want)
		}
	}
}

func TestAMemberOfABondIsToldByItsName(t *testing.T) {
	for line, want := range map[string]string{
		"bond0: (slave ens1f0np0): link status definitely down, disabling slave":            "nic.down raised ens1f0np0 bond0",
		"bond0: link status definitely up for interface ens1f1np1, 100000 Mbps full duplex": "nic.down cleared ens1f1np1 bond0",
		"bonding: bond1: link status definitely down for interface eth0, disabling it":      "nic.down raised eth0 bond1",
		"bond0: (slave ens1f0np0): link status down for interface, disabling it in 200 ms":  "",
	} {
		got := ""
		for _, ev := range new(Parser).Message("", line) {
			got = ev.Type + " " + ev.State + " " + ev.Attr("port") + " " + ev.Attr("bond")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// chatter means nothing.
var chatter = []string{
	"<6>Nov 21 06:50:24 gpu-r01-01 kernel: [12345.678901] perf: interrupt took too long (2504 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
	"<4>2026-11-21T06:50:24.123456+00:00 gpu-r01-01 kernel: [12345.678901] docker0: port 3(veth12ab) entered disabled state",
	"<6>1 2026-11-21T06:50:24.123456Z gpu-r01-01 kernel - - - [12345.678901] usb 1-14: new high-speed USB device number 7 using xhci_hcd",
	"<6>Nov 21 06:50:24 gpu-r01-01 kernel: [12345.678901] IPv6: ADDRCONF(NETDEV_CHANGE): Eth0: Link becomes ready",
	"<30>Nov 21 06:50:24 gpu-r01-01 systemd[1]: Started Session 3141 of User alice.",
	"<78>Nov 21 06:50:24 gpu-r01-01 CRON[8812]: (root) CMD (command -v debian-sa1 > /dev/null)",
}

func TestChatterCostsNoMemory(t *testing.T) {
	var p Parser
	if n := testing.AllocsPerRun(100, func() {
		for _, line := range chatter {
			if l := ParseSyslog(line); l.Kernel() && len(p.Message("", l.Text)) > 0 {
				t.Errorf("%s means something", line)
			}
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkKernelChatter is a line of the kernel that means nothing, BenchmarkChatter one of a mix.
func BenchmarkKernelChatter(b *testing.B) { benchmarkLines(b, chatter[:4]) }

func BenchmarkChatter(b *testing.B) { benchmarkLines(b, chatter) }

func benchmarkLines(b *testing.B, lines []string) {
	var p Parser
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if l := ParseSyslog(lines[i%len(lines)]); l.Kernel() && len(p.Message("", l.Text)) > 0 {
			b.Fatal(l.Text)
		}
	}
}

func FuzzSyslog(f *testing.F) {
	for _, line := range chatter {
		f.Add(line)
	}
	f.Add("<3>1 2026-11-21T06:50:24Z h kernel - - [a b=\"\\]\"] [ 1.5] [T1] " + fallen)
	f.Add("<3>Nov 21 06:50:24 h kernel: EDAC MC0: 1 CE memory read error on CPU#0Channel#1_DIMM#0")
	f.Fuzz(func(t *testing.T, line string) {
		l := ParseSyslog(line)
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if at, ok := l.Time(now); ok && at.Year() > 9999 {
			t.Errorf("time %v", at)
		}
		if l.Kernel() {
			if pri, _, ok := priority(line); !ok || pri > 7 {
				t.Errorf("%q is taken for the kernel's", line)
			}
			new(Parser).Message("", l.Text)
		}
	})
}
