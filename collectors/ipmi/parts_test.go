package ipmi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/collectors/collectortest"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// locator is a FRU device locator record (table 43-7) of a logical device of the controller.
func locator(record, device, entity, instance byte, name string) []byte {
	b := []byte{record, 0, 0x51, 0x11, 0, 0x20, device, 0x80, 0, 0, 0x10, 0, entity, instance, 0, 0xc0 | byte(len(name))} //nolint:gosec // short
	b = append(b, name...)
	b[4] = byte(len(b) - 5) //nolint:gosec // short
	return b
}

// product is an inventory with a product area (Platform Management FRU Information Storage Definition, sections 8 and 12).
func product(fields ...string) []byte {
	area := []byte{1, 0, 0}
	for _, f := range fields {
		area = append(append(area, 0xc0|byte(len(f))), f...) //nolint:gosec // short
	}
	area = append(area, 0xc1)
	for len(area)%8 != 7 {
		area = append(area, 0)
	}
	area[1] = byte(len(area)/8 + 1) //nolint:gosec // short
	whole := func(b []byte) []byte {
		sum := byte(0)
		for _, x := range b {
			sum -= x
		}
		return append(b, sum)
	}
	return append(whole([]byte{1, 0, 0, 0, 1, 0, 0}), whole(area)...)
}

func data(b []byte) string {
	var s []byte
	for _, x := range b {
		s = fmt.Appendf(s, " 0x%02x", x)
	}
	return string(s)
}

// What a machine and its supplies and boards say of themselves is told as Redfish tells it; what is damaged, absent or says
// nothing is not, and the readings go on. The controller shares no code with us.
func TestPartsAreToldAsSeries(t *testing.T) {
	damaged := product("Delta", "DPS-2", "PN-2", "A", "SN-2", "", "")
	damaged[9] ^= 0xff
	var commands []string
	for device, inventory := range map[int][]byte{
		0: product("Supermicro", "SYS-821GE", "MACHINE", "1.0", "S123456X", "", ""),
		1: product("Delta", "DPS-3000AB", "PN-1", "A", "SN-1", "", ""),
		2: damaged,
		3: product("Supermicro", "X13 riser", "0000", "", "0000000", "", ""),
		4: product("", "N/A", "", "", "", "", ""),
	} {
		commands = append(commands, fmt.Sprintf("mc_add_fru_data 0x20 %d 256 data%s", device, data(inventory)))
	}
	for _, l := range [][]byte{
		locator(1, 1, 10, 1, "PSU1"), locator(2, 2, 10, 2, "PSU2"), locator(3, 3, 7, 1, "Riser"), locator(4, 4, 10, 4, "Power Supply 4"),
		locator(5, 9, 10, 5, "PSU5"), // which is not there
	} {
		commands = append(commands, "main_sdr_add 0x20"+data(l))
	}
	sim := ipmitest.StartSim(t, ipmitest.Obedient, commands...)
	s := collectortest.Settings()
	now := s.Now()
	s.Now = func() time.Time { return now }
	cfg := DefaultConfig()
	cfg.Timeout, cfg.CipherSuites = 10*time.Second, []int{3}
	c, err := cfg.New(schemas.Resource{ID: "gpu-1", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrIPMIIP: sim.Addr})}, s)
	if err != nil {
		t.Fatal(err)
	}
	r := c.(*reader)
	if err := r.conn.SetCredentials("admin", "secret"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.conn.Close(t.Context()) })
	want := []string{
		"auspex_psu_info psu psu1 name=PSU1 manufacturer=Delta model=DPS-3000AB part_number=PN-1 serial=SN-1",
		"auspex_server_info   name=Riser manufacturer=Supermicro model=X13 riser",
		"auspex_server_info   name=system manufacturer=Supermicro model=SYS-821GE part_number=MACHINE serial=S123456X",
	}
	for i, after := range []time.Duration{0, time.Minute, time.Minute} {
		now = now.Add(after)
		var told shown
		if err := r.poll(t.Context(), &told); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(slices.Values(told))
		if i == 1 {
			if len(got) != 0 {
				t.Errorf("told again after a minute: %v", got)
			}
			continue
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("poll %d: %s", i, d)
		}
	}
	if !r.conn.Connected() {
		t.Error("the session has ended over a damaged inventory")
	}
}

// shown are the parts that were told.
type shown []string

func (l *shown) Emit(_ context.Context, b *auspexv1.Batch) error {
	c := b.GetSamples()
	for _, ref := range c.GetRef() {
		s := c.Series[ref]
		if !strings.HasSuffix(c.Symbols[s.Metric], "_info") {
			continue
		}
		line := []string{c.Symbols[s.Metric], c.Symbols[s.PartKind], c.Symbols[s.Part]}
		for i := 0; i+1 < len(s.Labels); i += 2 {
			line = append(line, c.Symbols[s.Labels[i]]+"="+c.Symbols[s.Labels[i+1]])
		}
		*l = append(*l, strings.Join(line, " "))
	}
	return nil
}

func TestPlacesAreNamedAsSensorsAre(t *testing.T) {
	got := placesOf([]ipmi.FRUDevice{{ID: 1, Entity: 10, Instance: 1, Name: "Pwr Supply"}, {ID: 2, Entity: 7, Instance: 1, Name: "GPU 3"}, {ID: 3, Entity: 10, Instance: 2, Name: "FAN1"}})
	want := []partPlace{{0, "", "", "system"}, {1, "psu", "psu1", "Pwr Supply"}, {2, "gpu", "gpu3", "GPU 3"}, {3, "psu", "psu2", "FAN1"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	many := make([]ipmi.FRUDevice, 200)
	if n := len(placesOf(many)); n != mostParts {
		t.Errorf("%d places", n)
	}
}
