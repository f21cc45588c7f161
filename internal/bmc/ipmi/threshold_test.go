package ipmi

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"auspex/internal/bmc/ipmi/ipmitest"
	"auspex/schemas"
)

// record is a full sensor record of a fan that reads in steps of 100, or another that edit makes of it.
func record(t *testing.T, edit func(raw []byte)) string {
	t.Helper()
	raw, err := hex.DecodeString(fan)
	if err != nil {
		t.Fatal(err)
	}
	edit(raw)
	return hex.EncodeToString(raw)
}

func given(pairs ...any) []schemas.Threshold {
	var out []schemas.Threshold
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, schemas.Threshold{Bound: pairs[i].(schemas.Bound), Value: pairs[i+1].(float64)})
	}
	return out
}

// Bytes of a record as table 43-1 counts them, from one.
func TestThresholdsOfTheRecord(t *testing.T) {
	access := func(raw []byte, a byte) { raw[12-1] = raw[12-1]&^0x0c | a<<2 }
	all := []byte{250, 240, 230, 5, 10, 15} // UNR … LNC, bytes 37 to 42
	for _, tc := range []struct {
		name string
		edit func(raw []byte)
		want []schemas.Threshold
	}{
		{
			"readable, all six", func(raw []byte) { access(raw, 1); copy(raw[36:], all) },
			given(schemas.LowerCaution, 1500.0, schemas.LowerCritical, 1000.0, schemas.LowerFatal, 500.0,
				schemas.UpperCaution, 23000.0, schemas.UpperCritical, 24000.0, schemas.UpperFatal, 25000.0),
		},
		{
			"only those that the mask names", func(raw []byte) { access(raw, 1); copy(raw[36:], all); raw[19-1] = 0x02 },
			given(schemas.LowerCritical, 1000.0),
		},
		{"the byte of those that can be set names none", func(raw []byte) { access(raw, 1); raw[19-1], raw[20-1] = 0, 0x3f }, nil},
		{"no access", func(raw []byte) { access(raw, 0) }, nil},
		{
			"fixed: the masks of readings name them", func(raw []byte) {
				access(raw, 3)
				copy(raw[36:], all)
				raw[15-1], raw[16-1], raw[17-1], raw[18-1], raw[19-1] = 0, 0x20, 0, 0x10, 0
			},
			given(schemas.LowerCritical, 1000.0, schemas.UpperCaution, 23000.0),
		},
		{
			"zeros where nothing was set", func(raw []byte) { access(raw, 1); copy(raw[36:], []byte{0, 0, 0, 0, 10, 15}) },
			given(schemas.LowerCaution, 1500.0, schemas.LowerCritical, 1000.0),
		},
		{
			"signed, with an offset and an exponent", func(raw []byte) {
				access(raw, 1)
				raw[21-1] |= 0x80                                     // two's complement
				raw[25-1], raw[26-1] = 5, 0                           // M
				raw[27-1], raw[28-1] = 20, 0                          // B
				raw[30-1] = 0xf0                                      // 10^-1
				raw[35-1], raw[36-1] = 0x7f, 0x80                     // most, least
				copy(raw[36:], []byte{100, 90, 80, 0xce, 0xd8, 0xe2}) // the lower ones -50, -40, -30
			},
			given(schemas.LowerCaution, -13.0, schemas.LowerCritical, -18.0, schemas.LowerFatal, -23.0,
				schemas.UpperCaution, 42.0, schemas.UpperCritical, 47.0, schemas.UpperFatal, 52.0),
		},
		{
			"linearised as the reading is", func(raw []byte) {
				access(raw, 1)
				raw[24-1] = 0x08            // square
				raw[25-1], raw[26-1] = 2, 0 // M
				raw[30-1] = 0               // exponents
				copy(raw[36:], all)
				raw[19-1] = 0x10
			},
			given(schemas.UpperCritical, float64(2*240*2*240)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := session(t, ipmitest.State{SDRs: []string{record(t, tc.edit)}})
			sensors, bad := sensorsOn(t, c)
			if len(sensors) != 1 || bad != 0 {
				t.Fatalf("%d sensors, %d bad", len(sensors), bad)
			}
			if diff := cmp.Diff(tc.want, sensors[0].Thresholds, cmpopts.EquateEmpty(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestThresholdsThatCanBeSetAreReadFromTheSensor(t *testing.T) {
	c := session(t, ipmitest.State{
		SDRs:       []string{fan, record(t, func(raw []byte) { raw[0], raw[8-1] = 7, 9 })}, // number 9
		Thresholds: map[uint8]string{2: "02" + "00" + "0c" + "00" + "00" + "00" + "00"},
	})
	sensors, _ := sensorsOn(t, c)
	if len(sensors) != 2 {
		t.Fatalf("%d sensors", len(sensors))
	}
	for i, want := range [][]schemas.Threshold{given(schemas.LowerCritical, 1200.0), sensors[1].Thresholds} {
		got, err := c.Thresholds(t.Context(), &sensors[i])
		if diff := cmp.Diff(want, got); diff != "" || err != nil || !sensors[i].Settable || len(got) == 0 {
			t.Errorf("sensor %d: %v %s", sensors[i].Number, err, diff)
		}
	}
}
