package ipmi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/ipmi/ipmitest"
)

// area makes an area of a FRU inventory: a version, its length in eights, what is before its fields,
// the fields as text, and a checksum (IPMI Platform Management FRU Information Storage Definition,
// v1.0 revision 1.3, sections 10 to 13).
func area(before []byte, fields ...string) []byte {
	b := append([]byte{1, 0}, before...)
	for _, f := range fields {
		b = append(append(b, 0xc0|byte(len(f))), f...) //nolint:gosec // short
	}
	b = append(b, 0xc1)
	for len(b)%8 != 7 {
		b = append(b, 0)
	}
	b[1] = byte(len(b)/8 + 1) //nolint:gosec // short
	return append(b, checksum(b))
}

func checksum(b []byte) (sum byte) {
	for _, x := range b {
		sum -= x
	}
	return sum
}

// inventory is a whole one; an area that is nil is not there.
func inventory(chassis, board, product []byte) []byte {
	header, body := []byte{1, 0, 0, 0, 0, 0, 0}, []byte(nil)
	for k, a := range [][]byte{chassis, board, product} {
		if a != nil {
			header[2+k] = byte(1 + len(body)/8) //nolint:gosec // short
			body = append(body, a...)
		}
	}
	return append(append(header, checksum(header)), body...)
}

func harmed(b []byte, at int) []byte {
	b[at] ^= 0xff
	return b
}

// What a controller keeps of its machine is read from one that shares no code with us; what is
// damaged is not believed.
func TestAFRUInventoryIsRead(t *testing.T) {
	chassis := func() []byte { return area([]byte{0x17}, "CH-PART", "CH-SERIAL") }
	board := func() []byte {
		return area([]byte{0, 1, 2, 3}, "Boardmaker", "X13DGU", "BRD-SERIAL", "BRD-PART", "file")
	}
	product := func() []byte { return area([]byte{0}, "Supermicro", "SYS-821GE", "PART", "1.0", "S123456X", "asset") }
	for name, c := range map[string]struct {
		fru  []byte
		want ipmi.FRU
		err  error
	}{
		"the product's":               {fru: inventory(chassis(), board(), product()), want: ipmi.FRU{Manufacturer: "Supermicro", Product: "SYS-821GE", Serial: "S123456X", Part: "PART"}},
		"without a product":           {fru: inventory(chassis(), board(), nil), want: ipmi.FRU{Manufacturer: "Boardmaker", Product: "X13DGU", Serial: "CH-SERIAL", Part: "BRD-PART"}},
		"of the board alone":          {fru: inventory(nil, board(), nil), want: ipmi.FRU{Manufacturer: "Boardmaker", Product: "X13DGU", Serial: "BRD-SERIAL", Part: "BRD-PART"}},
		"a product without a serial":  {fru: inventory(nil, board(), area([]byte{0}, "Supermicro", "SYS-821GE", "PART", "1.0", "")), want: ipmi.FRU{Manufacturer: "Supermicro", Product: "SYS-821GE", Serial: "BRD-SERIAL", Part: "PART"}},
		"of nothing":                  {fru: inventory(nil, nil, nil), err: ipmi.ErrNoRecord},
		"none":                        {err: ipmi.ErrNoRecord},
		"with a damaged header":       {fru: harmed(inventory(chassis(), board(), product()), 4), err: ipmi.ErrDamaged},
		"with a damaged product area": {fru: harmed(inventory(nil, board(), product()), 8+len(board())+6), err: ipmi.ErrDamaged},
		"that was never written":      {fru: []byte(strings.Repeat("\xff", 64)), err: ipmi.ErrNoRecord},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var commands []string
			if c.fru != nil {
				line := fmt.Appendf(nil, "mc_add_fru_data 0x20 0 %d data", max(len(c.fru), 256))
				for _, b := range c.fru {
					line = fmt.Appendf(line, " 0x%02x", b)
				}
				commands = append(commands, string(line))
			}
			s := ipmitest.StartSim(t, ipmitest.Obedient, commands...)
			conn, err := ipmi.New(ipmi.Options{Addr: s.Addr, User: "admin", Password: "secret", Timeout: 10 * time.Second, Retries: 1, CipherSuites: []int{3}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(t.Context()) }()
			got, err := conn.FRU(t.Context())
			switch {
			case c.want != ipmi.FRU{} && (err != nil || got != c.want):
				t.Errorf("%+v %v, want %+v", got, err, c.want)
			case c.want == ipmi.FRU{} && !errors.Is(err, c.err):
				t.Errorf("%+v %v, want %v", got, err, c.err)
			}
		})
	}
}
