package ipmi

import (
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"auspex/internal/bmc/ipmi/ipmitest"
)

func session(t *testing.T, s ipmitest.State) *Conn {
	t.Helper()
	opt := DefaultOptions()
	opt.Addr, opt.User, opt.Password = ipmitest.Start(t, s).Addr, "admin", "secret"
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return c
}

// sensorsOn reads the sensors of a controller.
func sensorsOn(t *testing.T, c *Conn) (sensors []Sensor, bad int) {
	t.Helper()
	records, err := c.SensorRecords(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ParseSensors(records)
}

const (
	fan = "020051012f2000021d027f680401957a957a3f3f0012000064000000000000000000ff00fffaf0050a0f0202000000c446414e30"
	psu = "19005102262000190a197f40086fff7fff7fff7fc000000100000000000000cb5053553120537461747573"
)

func TestSensorsAreReadInTheirUnits(t *testing.T) {
	c := session(t, ipmitest.State{SDRs: []string{fan, "030051010101", psu}, Readings: []ipmitest.Reading{{Sensor: 2, Raw: 80}}})
	sensors, bad := sensorsOn(t, c)
	if len(sensors) != 2 || bad != 1 {
		t.Fatalf("%d sensors, %d bad", len(sensors), bad)
	}
	s := &sensors[0]
	r, err := c.Read(t.Context(), s)
	if err != nil || !r.OK || s.Name != "FAN0" || s.Unit != UnitRPM || s.Value(r.Raw) != 8000 {
		t.Errorf("%s: %v %s, %+v, %v", s.Name, s.Value(r.Raw), s.Unit, r, err)
	}
	if r, err := c.Read(t.Context(), &sensors[1]); err != nil || r.OK {
		t.Errorf("a sensor that is absent: %+v, %v", r, err)
	}
	if _, err := c.SELRecord(t.Context(), FirstRecord); !errors.Is(err, ErrNoRecord) {
		t.Errorf("first record of an empty log: %v", err)
	}
}

func FuzzSDR(f *testing.F) {
	for _, h := range []string{fan, psu, "030051010101", ""} {
		raw, err := hex.DecodeString(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if sensors, bad := ParseSensors(raw); len(sensors) > 16*len(raw) || bad > len(raw) {
			t.Errorf("%d sensors and %d malformed records of %d bytes", len(sensors), bad, len(raw))
		}
		sdr, err := parseSDR(raw, LastRecord)
		if err != nil {
			return
		}
		for _, s := range sensorsOf(sdr, raw) {
			_ = s.Value(0x80)
			for _, x := range s.Thresholds {
				if math.IsNaN(x.Value) || math.IsInf(x.Value, 0) {
					t.Errorf("threshold %s is %v", x.Bound, x.Value)
				}
			}
		}
	})
}
