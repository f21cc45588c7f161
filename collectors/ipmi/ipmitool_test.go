package ipmi

import (
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"auspex/collectors/collectortest"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/internal/decode/sel"
	"auspex/schemas/faults"
)

// ipmitool runs it (Debian: ipmitool) against a controller.
func ipmitool(t *testing.T, addr string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("ipmitool"); err != nil {
		if os.Getenv("AUSPEX_E2E") != "" {
			t.Fatal(err)
		}
		t.Skip("ipmitool is not installed: install the Debian package ipmitool to run this test")
	}
	host, port, _ := net.SplitHostPort(addr)
	cmd := exec.CommandContext(t.Context(), "ipmitool", append([]string{"-I", "lanplus", "-C", "3", "-N", "30", "-H", host, "-p", port, "-U", "admin", "-P", "secret"}, args...)...)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("ipmitool: %v: %s", err, out)
	}
	return string(out)
}

// silent are offsets of which ipmitool says nothing where event data 2 says nothing.
var silent = []string{"10/06", "2a/00", "2a/01", "2a/02", "2a/03", "2b/01", "2b/07"}

// Each offset of each type means what ipmitool says that it means: its text, read back, is the same type and offset.
func TestEachOffsetMeansWhatIPMItoolSays(t *testing.T) {
	b := ipmitest.Start(t, ipmitest.State{Clock: collectortest.Now})
	type row struct{ sensor, event, offset byte }
	rows := map[uint16]row{}
	id := uint16(0)
	for _, k := range faults.SELRows() {
		id++
		sensor := k.Sensor
		if sensor == 0 {
			if sensor = 0x18; k.EventType == faults.SELThreshold { // a chassis has no offsets of its own
				sensor = 0x01
			}
		}
		rows[id] = row{sensor, k.EventType, k.Offset}
		b.Add(ipmitest.Record(id, uint32(collectortest.Now.Unix()), sensor, 0x30, k.EventType|byte(id&1)<<7, k.Offset))
	}
	seen := 0
	for line := range strings.Lines(ipmitool(t, b.Addr, "sel", "list")) {
		theirs, err := sel.ParseElist(line)
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		seen++
		want := rows[theirs.ID]
		var raw []byte
		for _, r := range b.Log() {
			if ours, err := sel.ParseRaw(r); err == nil && ours.ID == theirs.ID {
				raw = r
			}
		}
		ours, err := sel.ParseRaw(raw)
		if err != nil {
			t.Fatal(err)
		}
		if theirs.Text == "" && slices.Contains(silent, ours.Code()) {
			continue
		}
		if theirs.SensorType != want.sensor || theirs.EventType != want.event || theirs.Offset() != want.offset || theirs.Deasserted != ours.Deasserted {
			t.Errorf("%s: ipmitool says %q, which is type %02xh event %02xh offset %02xh", hex.EncodeToString(raw), strings.TrimSpace(line), theirs.SensorType, theirs.EventType, theirs.Offset())
		}
	}
	if seen != len(rows) {
		t.Errorf("%d rows of %d", seen, len(rows))
	}
}

// What Dell and Supermicro mean with event data, and that nothing is made of what they have not described.
func TestVendorsEventData(t *testing.T) {
	for _, c := range []struct {
		maker        uint32
		sensor       byte
		data         [3]byte
		ours, theirs string
	}{
		{674, 0x0c, [3]byte{0xa0, 0x80, 0x05}, "DIMM A1, DIMM A3", "DIMMA1, DIMMA3"},
		{674, 0x0c, [3]byte{0xa1, 0xc1, 0x10}, "DIMM B1", "DIMMB1"},
		{674, 0x0c, [3]byte{0xa0, 0x1f, 0x02}, "card B, DIMM 2", "Card B DIMM2"},
		{674, 0x13, [3]byte{0xa8, 0x0a, 0x3b}, "PCI 3b:01.2", "PCI bus:3b device:01 function:2"},
		{674, 0x13, [3]byte{0xaa, 0x00, 0x84}, "slot 4", "Slot 4"},
		{10876, 0xd0, [3]byte{0x80, 0x01, 0xff}, "cold reset of the controller", "BMC cold reset"},
		{19046, 0xd0, [3]byte{0x80, 0x01, 0xff}, "event data 8001ff", ""},
		{674, 0x07, [3]byte{0xa5, 0x01, 0x02}, "event data a50102", ""},
	} {
		b := ipmitest.Start(t, ipmitest.State{Clock: collectortest.Now, Manufacturer: c.maker})
		b.Add(ipmitest.Record(1, uint32(collectortest.Now.Unix()), c.sensor, 0x30, 0x6f, c.data[:]...))
		l := newLog(t, nil)
		l.bmc = b
		l.restart(l.r.cfg)
		l.poll()
		if ev := l.rec.Events()[0]; !strings.Contains(ev.Message, "| "+c.ours+" |") {
			t.Errorf("%d %02x %x: %q has no %q", c.maker, c.sensor, c.data, ev.Message, c.ours)
		}
		said := ipmitool(t, b.Addr, "sel", "list")
		if !strings.Contains(said, c.theirs) {
			t.Errorf("%d %02x %x: ipmitool says %q", c.maker, c.sensor, c.data, said)
		}
	}
}
