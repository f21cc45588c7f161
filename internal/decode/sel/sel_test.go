package sel

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

func TestElistLines(t *testing.T) {
	at := time.Date(2026, 4, 12, 19, 48, 9, 0, time.UTC)
	for _, tc := range []struct {
		name, line string
		want       schemas.Event
	}{
		{"input lost", "  1a | 04/12/2026 | 19:48:09 | Power Supply PS1 Status | Power Supply AC lost | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "psu.input_lost", Code: "PS1 Status", Severity: "error", State: "raised",
			Message: "Power Supply PS1 Status | Power Supply AC lost | Asserted",
			Attrs:   map[string]string{"record": "26", "sel": "08/03", "sensor": "PS1 Status", "action": "CHECK_MECHANICALS"},
		}},
		{"input back", "1b | 04/12/26 | 19:48:09 UTC | Power Supply PS1 Status | Power Supply AC lost | Deasserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "psu.input_lost", Code: "PS1 Status", Severity: "info", State: "cleared",
			Message: "Power Supply PS1 Status | Power Supply AC lost | Deasserted",
			Attrs:   map[string]string{"record": "27", "sel": "08/03", "sensor": "PS1 Status", "action": "IGNORE"},
		}},
		{"fan", "   2 | 04/12/2026 | 19:48:09 | Fan SYS_FAN3 | Lower Critical going low  | Reading 0 < Threshold 1500 RPM | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "fan.failure", Code: "SYS_FAN3", Severity: "error", State: "raised",
			Message: "Fan SYS_FAN3 | Lower Critical going low | Reading 0 < Threshold 1500 RPM | Asserted",
			Attrs:   map[string]string{"record": "2", "sel": "04/02", "sensor": "SYS_FAN3", "action": "CONTACT_SUPPORT"},
		}},
		{"inlet", "3 | 04/12/2026 | 19:48:09 | Temperature Inlet Temp | Upper Critical going high | Reading 39 > Threshold 38 degrees C | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "temp.inlet_high", Code: "Inlet Temp", Severity: "critical", State: "raised",
			Message: "Temperature Inlet Temp | Upper Critical going high | Reading 39 > Threshold 38 degrees C | Asserted",
			Attrs:   map[string]string{"record": "3", "sel": "01/09", "sensor": "Inlet Temp", "action": "CONTACT_SUPPORT"},
		}},
		{"no clock", "4 | Pre-Init  |0000000033| Physical Security Chassis Intru | General Chassis intrusion | Asserted", schemas.Event{
			Time: time.Unix(33, 0).UTC(), Source: "ipmi", Type: "bmc.sel", Code: "05/00", Severity: "info",
			Message: "Physical Security Chassis Intru | General Chassis intrusion | Asserted",
			Attrs:   map[string]string{"record": "4", "sel": "05/00", "sensor": "Chassis Intru", "clock": "unset", "action": "IGNORE"},
		}},
		{"bus error", "5 | 04/12/2026 | 19:48:09 | Critical Interrupt PCIe | Bus Fatal Error | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "bmc.sel", Code: "13/0a", Severity: "critical", State: "raised",
			Message: "Critical Interrupt PCIe | Bus Fatal Error | Asserted",
			Attrs:   map[string]string{"record": "5", "sel": "13/0a", "sensor": "PCIe", "action": "CONTACT_SUPPORT"},
		}},
		{"redundancy, generic type", "6 | 04/12/2026 | 19:48:09 | Power Unit PSU Redundancy | Redundancy Lost | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "bmc.sel", Code: "09/01", Severity: "warning", State: "raised",
			Message: "Power Unit PSU Redundancy | Redundancy Lost | Asserted",
			Attrs:   map[string]string{"record": "6", "sel": "09/01", "sensor": "PSU Redundancy", "action": "CONTACT_SUPPORT"},
		}},
		{"memory module beside the direction", "7 | 04/12/2026 | 19:48:09 | Memory | Correctable ECC | Asserted | CPU 1 DIMM 3", schemas.Event{
			Time: at, Source: "ipmi", Type: "dimm.ecc_ce", Code: "0c/00", Severity: "warning",
			Message: "Memory | Correctable ECC | CPU 1 DIMM 3 | Asserted",
			Attrs:   map[string]string{"record": "7", "sel": "0c/00", "slot": "CPU 1 DIMM 3", "action": "CONTACT_SUPPORT"},
		}},
		{"memory module of Supermicro", "8 | 04/12/2026 | 07:48:09 PM UTC | Memory #0xff | Uncorrectable ECC (@DIMMG1(CPU1)) | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "dimm.ecc_ue", Code: "0c/01", Severity: "critical", State: "raised",
			Message: "Memory | Uncorrectable ECC | DIMMG1(CPU1) | Asserted",
			Attrs:   map[string]string{"record": "8", "sel": "0c/01", "sensor_number": "0xff", "slot": "DIMMG1(CPU1)", "action": "CONTACT_SUPPORT"},
		}},
		{"a zone with an offset", "9 | 04/12/2026 | 21:48:09 +02 | Fan #0x08 | Lower Critical going low | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "fan.failure", Code: "04/02", Severity: "error", State: "raised",
			Message: "Fan | Lower Critical going low | Asserted",
			Attrs:   map[string]string{"record": "9", "sel": "04/02", "sensor_number": "0x08", "action": "CONTACT_SUPPORT"},
		}},
		{"no clock, newer ipmitool", "a | S+ 70/001 | 00:00:33 UTC | Physical Security Chassis Intru | General Chassis intrusion | Asserted", schemas.Event{
			Time: time.Unix(33, 0).UTC(), Source: "ipmi", Type: "bmc.sel", Code: "05/00", Severity: "info",
			Message: "Physical Security Chassis Intru | General Chassis intrusion | Asserted",
			Attrs:   map[string]string{"record": "10", "sel": "05/00", "sensor": "Chassis Intru", "clock": "unset", "action": "IGNORE"},
		}},
		{"no time at all", "b | Unspecified | Unspecified | Fan SYS_FAN3 | Lower Critical going low | Asserted", schemas.Event{
			Source: "ipmi", Type: "fan.failure", Code: "SYS_FAN3", Severity: "error", State: "raised",
			Message: "Fan SYS_FAN3 | Lower Critical going low | Asserted",
			Attrs:   map[string]string{"record": "11", "sel": "04/02", "sensor": "SYS_FAN3", "clock": "unset", "action": "CONTACT_SUPPORT"},
		}},
		{"vendor's record with a time", "c | 04/12/2026 | 19:48:09 | OEM record dd | 000137 | 050880000000", schemas.Event{
			Time: at, Source: "ipmi", Type: "bmc.sel", Code: "oem/dd", Severity: "info", Message: "OEM record dd 000137 050880000000",
			Attrs: map[string]string{"record": "12", "action": "IGNORE"},
		}},
		{"vendor's record without a time", "d | OEM record e1 | 00112233445566778899aabbcc", schemas.Event{
			Source: "ipmi", Type: "bmc.sel", Code: "oem/e1", Severity: "info", Message: "OEM record e1 00112233445566778899aabbcc",
			Attrs: map[string]string{"record": "13", "action": "IGNORE"},
		}},
		{"progress of the start, told by event data 2", "f | 04/12/2026 | 19:48:09 | System Firmware Progress | Motherboard initialization | Asserted", schemas.Event{
			Time: at, Source: "ipmi", Type: "bmc.sel", Code: "0f/02", Severity: "info",
			Message: "System Firmwares | Progress | Motherboard initialization | Asserted",
			Attrs:   map[string]string{"record": "15", "sel": "0f/02", "action": "IGNORE"},
		}},
		{"panic", "e | Linux kernel panic: Fatal excep", schemas.Event{
			Source: "ipmi", Type: "bmc.sel", Code: "oem/f0", Severity: "critical", Message: "Linux kernel panic: Fatal excep",
			Attrs: map[string]string{"record": "14", "action": "CONTACT_SUPPORT"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := ParseElist(tc.line)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, r.Event("")); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRawRecord(t *testing.T) {
	r, err := ParseHex("0100 02 0065276a 2000 04 08 c8 6f 03 ff ff")
	if err != nil {
		t.Fatal(err)
	}
	ev := r.Event("PSU0 Input")
	want := schemas.Event{
		Time: time.Unix(0x6a276500, 0).UTC(), Source: "ipmi", Type: "psu.input_lost", Code: "PSU0 Input", Severity: "error", State: "raised",
		Message: "Power Supply PSU0 Input | Power Supply AC lost | Asserted",
		Attrs:   map[string]string{"record": "1", "sel": "08/03", "sensor": "PSU0 Input", "sensor_number": "0xc8", "action": "CHECK_MECHANICALS"},
	}
	if d := cmp.Diff(want, ev); d != "" {
		t.Error(d)
	}
}

func TestRawPanicKeepsItsWords(t *testing.T) {
	r, err := ParseHex("0400 f0 2000 46 61 74 61 6c 20 65 78 63 65 70")
	if err != nil {
		t.Fatal(err)
	}
	if ev := r.Event(""); ev.Message != "Linux kernel panic: Fatal excep" || ev.Severity != schemas.SeverityCritical {
		t.Errorf("%s %q", ev.Severity, ev.Message)
	}
}

func TestMalformedRecords(t *testing.T) {
	for _, s := range []string{
		"", "zz", "01", "0100020065276a20000408c86f03ff", "ffff020065276a20000408c86f03ffff", "0100aa0065276a20000408c86f03ffff",
	} {
		if _, err := ParseHex(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
	for _, s := range []string{
		"x | y", "zz | 04/12/2026 | 19:48:09 | Fan | x | y", "1 | 99/99/2026 | 19:48:09 | Fan A | x", "1 | 04/12/2026 | 19:48:09 | Fan A",
	} {
		if _, err := ParseElist(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func FuzzRecords(f *testing.F) {
	f.Add("  1 | 04/12/2026 | 19:48:09 | Fan SYS_FAN3 | Lower Critical going low  | Reading 0 < Threshold 1500 RPM | Asserted")
	f.Add("0100 02 0065276a 2000 04 08 c8 6f 03 ff ff")
	f.Fuzz(func(t *testing.T, s string) {
		for _, parse := range []func(string) (Record, error){ParseElist, ParseHex} {
			if r, err := parse(s); err == nil {
				if ev := r.Event(""); ev.Type == "" || ev.Severity.Rank() < 0 {
					t.Errorf("incomplete event %+v", ev)
				}
			}
		}
	})
}

// FuzzRawRecords makes an event of any record of any maker.
func FuzzRawRecords(f *testing.F) {
	for _, h := range []string{
		"01000200 65276a2000 0408c86f03ffff", "0200dd0065276aa20200010203040506", "0300e0000102030405060708090a0b0c", "0400f020004661746 16c20657863657 0",
	} {
		raw, err := hex.DecodeString(strings.ReplaceAll(h, " ", ""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint32(674))
	}
	f.Fuzz(func(t *testing.T, raw []byte, maker uint32) {
		r, err := ParseRaw(raw)
		if err != nil {
			return
		}
		r.Manufacturer = maker
		if ev := r.Event("x"); ev.Type == "" || ev.Severity.Rank() < 0 || ev.Message == "" || !utf8.ValidString(ev.Message) {
			t.Errorf("%x is %+v", raw, ev)
		}
	})
}

// The lights of a ProLiant are told in words; of a maker that describes nothing in public, such as Lenovo, the bytes are kept.
func TestRecordsOfMakersAreToldOrKept(t *testing.T) {
	for _, tc := range []struct {
		maker          uint32
		record, detail string
	}{
		{11, "0100 02 0065276a 2000 04 c0 03 71 02 ff ff", "the health light is red"},
		{11, "0100 02 0065276a 2000 04 c0 03 70 01 ff ff", "the locator light is off"},
		{11, "0100 02 0065276a 2000 04 c0 03 71 0e ff ff", "event data 0effff"},
		{674, "0100 02 0065276a 2000 04 c0 03 71 02 ff ff", "event data 02ffff"},
		{19046, "0100 02 0065276a 2000 04 c0 03 71 a2 12 34", "event data a21234"},
		{19046, "0100 d0 0065276a 664a00 010203040506", "OEM record d0h of Lenovo: 010203040506"},
		{47196, "0100 c0 0065276a 5cb800 010203040506", "OEM record c0h of Hewlett Packard Enterprise: 010203040506"},
		{47196, "0100 e1 0102030405060708090a0b0c0d", "OEM record e1h: 0102030405060708090a0b0c0d"},
	} {
		r, err := ParseHex(tc.record)
		if err != nil {
			t.Fatal(err)
		}
		r.Manufacturer = tc.maker
		if ev := r.Event(""); !strings.Contains(ev.Message, tc.detail) {
			t.Errorf("%d, %s: %q, want %q in it", tc.maker, tc.record, ev.Message, tc.detail)
		}
	}
}
