package decode

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"auspex/schemas"
)

func run(t *testing.T, in io.Reader, o Options) (events []schemas.Event, errs string, res Result, err error) {
	t.Helper()
	o.Name = "input"
	var out, errw bytes.Buffer
	res, err = Run(context.Background(), in, &out, &errw, o)
	for dec := json.NewDecoder(&out); ; {
		var ev schemas.Event
		if dec.Decode(&ev) != nil {
			break
		}
		events = append(events, ev)
	}
	return events, errw.String(), res, err
}

func lines(evs []schemas.Event) []string {
	var out []string
	for _, e := range evs {
		out = append(
			out, strings.Join([]string{e.Time.Format(time.RFC3339Nano), e.Resource, e.Type, e.Code, e.Attrs["action"], e.Attrs["clock"]}, " "),
		)
	}
	return out
}

func TestFormats(t *testing.T) {
	boot := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, in string
		o        Options
		want     []string
		bad      int
	}{
		{
			"kmsg",
			"6,1,1000,-;Linux version 6.8\n3,2,2500000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n SUBSYSTEM=pci\nnonsense\n",
			Options{Format: "kmsg", Host: "gpu-1", Boot: boot},
			[]string{"2026-01-01T00:00:00.001Z gpu-1 host.reboot boot IGNORE ", "2026-01-01T00:00:02.5Z gpu-1 gpu.xid 79 RESTART_BM "},
			1,
		},
		{
			"dmesg without a boot time", "[    5.000000] NVRM: Xid (PCI:0000:1b:00): 999, x\n",
			Options{Format: "dmesg", Host: "gpu-1"},
			[]string{"1970-01-01T00:00:05Z gpu-1 gpu.xid 999 CONTACT_SUPPORT boot"},
			0,
		},
		{
			"dmesg, bare lines", "NVRM: Xid (PCI:0000:1b:00): 48, x\n  indented\n",
			Options{Format: "dmesg"},
			[]string{"1970-01-01T00:00:00Z localhost gpu.xid 48 WORKFLOW_XID_48 unknown"},
			0,
		},
		{
			"journal",
			`{"__REALTIME_TIMESTAMP":"1767225600000000","_HOSTNAME":"gpu-9","_TRANSPORT":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"}` + "\n{broken\n",
			Options{Format: "journal"},
			[]string{"2026-01-01T00:00:00Z gpu-9 gpu.xid 154 RESET_GPU "},
			1,
		},
		{
			"fabric manager",
			"[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33\n[Jul 23 2024 07:53:56] [INFO] [tid 841] x\n",
			Options{Format: "fabricmanager", Host: "h"},
			[]string{"2024-07-23T07:53:55Z h nvswitch.sxid 20034 RESET_GPU "},
			0,
		},
		{
			"IMEX",
			"IMEX Log initializing at: 3/27/2025 15:47:10.217\n[Mar 27 2025 15:47:10] [ERROR] [tid 39] Lost connection to node 3 with ip address 10.1.1.3\n",
			Options{Format: "imex", Host: "h"},
			[]string{"2025-03-27T15:47:10Z h imex.domain peer_lost CONTACT_SUPPORT "},
			0,
		},
		{
			"sel", "   1 | 04/12/2026 | 19:48:09 | Power Supply PS1 Status | Power Supply AC lost | Asserted\nSEL has no entries\nx | y\n",
			Options{Format: "sel", Host: "h"},
			[]string{"2026-04-12T19:48:09Z h psu.input_lost PS1 Status CHECK_MECHANICALS "},
			1,
		},
		{
			"sel-raw", "010002 0065276a 2000 04 08 c8 6f 03 ff ff\n01\n",
			Options{Format: "sel-raw", Host: "h"},
			[]string{"2026-06-09T00:57:36Z h psu.input_lost 08/03 CHECK_MECHANICALS "},
			1,
		},
		{
			"redfish, a line each, one cut off",
			`{"MessageId":"a.1.0.PSU0003","Created":"2026-01-01T00:00:00Z"}` + "\n{\"Message\n" + `{"MessageId":"b.1.0.X","Severity":"OK","Created":"2026-01-01T00:00:01Z"}` + "\n",
			Options{Format: "redfish-event", Host: "h"},
			[]string{"2026-01-01T00:00:00Z h psu.input_lost a.1.0.PSU0003 CHECK_MECHANICALS ", "2026-01-01T00:00:01Z h bmc.event b.1.0.X IGNORE "},
			1,
		},
		{
			"redfish, over several lines", "{\n \"Events\": [\n{\"MessageId\":\"PSU0003\",\"EventTimestamp\":\"2026-01-01T00:00:00Z\"}\n]\n}\n",
			Options{Format: "redfish-event", Host: "h"},
			[]string{"2026-01-01T00:00:00Z h psu.input_lost PSU0003 CHECK_MECHANICALS "},
			0,
		},
		{
			"redfish array",
			"[\n{\"MessageId\":\"PSU0003\",\"Created\":\"2026-01-01T00:00:00Z\"},\n{\"MessageId\":\"PSU0019\",\"Created\":\"2026-01-01T00:00:01Z\"}]",
			Options{Format: "redfish-event", Host: "h"},
			[]string{"2026-01-01T00:00:00Z h psu.input_lost PSU0003 CHECK_MECHANICALS ", "2026-01-01T00:00:01Z h psu.input_lost PSU0019 IGNORE "},
			0,
		},
		{
			"redfish collection on one long line",
			`{"Members":[{"@odata.id":"/redfish/v1/x/1"},null,{"MessageId":"PSU0003","Created":"2026-01-01T00:00:00Z","Message":"` + strings.Repeat("x", 3<<20) + `"}]}`,
			Options{Format: "redfish-event", Host: "h"},
			[]string{"2026-01-01T00:00:00Z h psu.input_lost PSU0003 CHECK_MECHANICALS "},
			0,
		},
		{
			"redfish, an entry that is none does not cost the others",
			`{"Events":[7,{"MessageId":"PSU0003","EventTimestamp":"2026-01-01T00:00:00Z"}]}`,
			Options{Format: "redfish-event", Host: "h"},
			[]string{"2026-01-01T00:00:00Z h psu.input_lost PSU0003 CHECK_MECHANICALS "},
			1,
		},
		{
			"byte order mark, ends of lines of Windows",
			"\ufeff[    5.000000] NVRM: Xid (PCI:0000:1b:00): 79, x\r\n[    6.000000 <    1.000000>] EXT4-fs error (device sda1): x\r\n",
			Options{Format: "dmesg", Host: "h", Boot: boot},
			[]string{"2026-01-01T00:00:05Z h gpu.xid 79 RESTART_BM ", "2026-01-01T00:00:06Z h host.fs_error ext4 CONTACT_SUPPORT "},
			0,
		},
		{
			"journal as an array", "[\n" + `{"__REALTIME_TIMESTAMP":"1767225600000000","_HOSTNAME":"g","_TRANSPORT":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:1b:00): 79, x"}, 7,` + "\n" +
				`{"__REALTIME_TIMESTAMP":"1767225601000000","_HOSTNAME":"g","_TRANSPORT":"kernel","MESSAGE":[78,86,82,77,58,32,88,105,100,32,40,80,67,73,58,48,48,48,48,58,49,98,58,48,48,41,58,32,52,56,44,32,255]}` + "\n",
			Options{Format: "journal"},
			[]string{"2026-01-01T00:00:00Z g gpu.xid 79 RESTART_BM ", "2026-01-01T00:00:01Z g gpu.xid 48 WORKFLOW_XID_48 "},
			2,
		},
		{
			"sel, a vendor's record without a time",
			"1 | 04/12/2026 | 19:48:09 | Power Supply PS1 | Power Supply AC lost | Asserted\n2 | OEM record e0 | 00112233445566778899aabbcc\n",
			Options{Format: "sel", Host: "h"},
			[]string{"2026-04-12T19:48:09Z h psu.input_lost PS1 CHECK_MECHANICALS ", "2026-04-12T19:48:09Z h bmc.sel oem/e0 IGNORE unknown"},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			evs, errs, res, err := run(t, strings.NewReader(tc.in), tc.o)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, lines(evs)); d != "" {
				t.Error(d)
			}
			if res.Bad != tc.bad || tc.bad > 0 && !strings.Contains(errs, "input:") {
				t.Errorf("%d bad: %s", res.Bad, errs)
			}
			strict := tc.o
			strict.Strict = true
			if _, _, _, err := run(t, strings.NewReader(tc.in), strict); errors.Is(err, ErrBadLine) != (tc.bad > 0) {
				t.Errorf("strict: %v", err)
			}
		})
	}
}

const line = "[    5.000000] NVRM: Xid (PCI:0000:1b:00): 79, x\n"

func TestCompressedInput(t *testing.T) {
	var gz, zs bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write([]byte(line))
	_ = w.Close()
	z, _ := zstd.NewWriter(&zs)
	_, _ = z.Write([]byte(line))
	_ = z.Close()
	for name, in := range map[string]io.Reader{"gzip": &gz, "zstd": &zs} {
		if evs, _, _, err := run(t, in, Options{Format: "dmesg"}); err != nil || len(evs) != 1 {
			t.Errorf("%s: %v %v", name, evs, err)
		}
	}
}

func TestIDsAreStableAndDistinct(t *testing.T) {
	a, _, _, _ := run(t, strings.NewReader(line+line), Options{Format: "dmesg"})
	b, _, _, _ := run(t, strings.NewReader(line+line), Options{Format: "dmesg"})
	if len(a) != 2 || a[0].ID == a[1].ID {
		t.Errorf("equal records of one moment share an id: %+v", a)
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("a second run differs: %s", d)
	}
}

func TestTopologyResolves(t *testing.T) {
	evs, _, _, _ := run(
		t, strings.NewReader(line),
		Options{Format: "dmesg", Host: "gpu-1", Resolve: func(ev *schemas.Event) string { return ev.Resource + "/" + ev.Attrs["pci"] }},
	)
	if len(evs) != 1 || evs[0].Resource != "gpu-1/0000:1b:00" {
		t.Errorf("%+v", evs)
	}
}

func TestUnknownFormatNamesTheKnown(t *testing.T) {
	if _, _, _, err := run(t, strings.NewReader(""), Options{Format: "csv"}); err == nil || !strings.Contains(err.Error(), "sel-raw") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkKmsg(b *testing.B) {
	var in bytes.Buffer
	for i := range 1000 {
		if i%100 == 0 {
			fmt.Fprintf(&in, "3,%d,%d,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=%d, name=python3, Ch 00000010, intr 00000000. MMU Fault\n", i, i*1000, i)
		} else {
			fmt.Fprintf(&in, "6,%d,%d,-;usb %d-1: new high-speed USB device number %d using xhci_hcd\n", i, i*1000, i, i)
		}
	}
	b.SetBytes(int64(in.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(
			context.Background(), bytes.NewReader(in.Bytes()), io.Discard, io.Discard, Options{Format: "kmsg", Name: "x"},
		); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzRun(f *testing.F) {
	for i := range Formats() {
		f.Add(i, []byte(line))
		f.Add(i, []byte("[{\"a\":1},\n"))
	}
	f.Fuzz(func(t *testing.T, format int, in []byte) {
		if format < 0 || format >= len(Formats()) {
			return
		}
		var out bytes.Buffer
		_, _ = Run(context.Background(), bytes.NewReader(in), &out, io.Discard, Options{Format: Formats()[format], Name: "x"})
		for l := range bytes.Lines(out.Bytes()) {
			if !json.Valid(l) {
				t.Fatalf("not JSON: %s", l)
			}
		}
	})
}

func TestBadElementOfAnArrayIsNamedByItsLine(t *testing.T) {
	in := "[\n{\"MessageId\":\"PSU0003\",\n\"Created\":\"2026-01-01T00:00:00Z\"},\n7,\n{\"MessageId\":\"PSU0019\"}]"
	evs, errs, res, err := run(t, strings.NewReader(in), Options{Format: "redfish-event"})
	if err != nil || len(evs) != 2 || res.Bad != 1 || !strings.HasPrefix(errs, "input:4: ") {
		t.Errorf("%d events, %+v, %v: %s", len(evs), res, err, errs)
	}
}

func TestRecordThatIsReadTwiceIsTheSameEvent(t *testing.T) {
	for _, tc := range []struct {
		name, format, in string
		ids              int
	}{
		{"kernel log", "kmsg", "3,7,1000,-;NVRM: Xid (PCI:0000:1b:00): 79, x\n", 1},
		{"event log", "sel", "1 | 04/12/2026 | 19:48:09 | Power Supply PS1 | Power Supply AC lost | Asserted\n", 1},
		{"Redfish event", "redfish-event", `{"EventId":"5","MessageId":"PSU0003","EventTimestamp":"2026-01-01T00:00:00Z"}` + "\n", 1},
		{"lines without a name are two", "dmesg", "[    1.000000] NVRM: Xid (PCI:0000:1b:00): 79, x\n", 2},
	} {
		evs, _, _, err := run(t, strings.NewReader(tc.in+tc.in), Options{Format: tc.format, Host: "h"})
		ids := map[string]bool{}
		for _, ev := range evs {
			ids[ev.ID] = true
		}
		if err != nil || len(evs) != 2 || len(ids) != tc.ids {
			t.Errorf("%s: %d events with %d ids, %v", tc.name, len(evs), len(ids), err)
		}
	}
	other := `{"MemberId":"0","MessageId":"X.1.0.Y","Message":"XID 79","OriginOfCondition":{"@odata.id":"/gpu/%d"},"EventTimestamp":"2026-01-01T00:00:00Z"}` + "\n"
	evs, _, _, err := run(t, strings.NewReader(fmt.Sprintf(other, 0)+fmt.Sprintf(other, 1)), Options{Format: "redfish-event"})
	if err != nil || len(evs) != 2 || evs[0].ID == evs[1].ID {
		t.Errorf("two parts in two messages are one event: %+v, %v", evs, err)
	}
}
