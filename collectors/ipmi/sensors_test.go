package ipmi

import (
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/google/go-cmp/cmp"

	"auspex/collectors/collectortest"
	"auspex/internal/bmc/ipmi/ipmitest"
)

// sdr is a record as on the wire, changed.
func sdr(t *testing.T, digits string, edit func(raw []byte)) []byte {
	t.Helper()
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(raw)
	}
	return raw
}

const (
	sdrFan    = "020051012f2000021d027f680401957a957a3f3f0012000064000000000000000000ff00fffaf0050a0f0202000000c446414e30"
	sdrSupply = "19005102262000190a197f40086fff7fff7fff7fc000000100000000000000cb5053553120537461747573"
)

// The records of sensors cost a command or more each: they are read again only when the repository's time stamps change.
func TestSensorRecordsAreReadOnce(t *testing.T) {
	l := newLog(t, nil)
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	l.bmc.SetSDRs(1, sdr(t, sdrFan, nil), sdr(t, sdrSupply, nil))
	reads := func(after time.Duration) int {
		before := l.bmc.Commands(types.CommandGetSDR)
		now = now.Add(after)
		l.poll()
		return l.bmc.Commands(types.CommandGetSDR) - before
	}
	got := []int{reads(0), reads(time.Second), reads(recheck), reads(time.Hour)}
	_ = l.r.conn.Close(t.Context()) // a session that is lost loses nothing of it
	got = append(got, reads(recheck))
	l.bmc.SetSDRs(2, sdr(t, sdrFan, nil), sdr(t, sdrSupply, nil))
	got = append(got, reads(recheck), reads(recheck))
	if d := cmp.Diff([]int{2, 0, 0, 0, 0, 2, 0}, got); d != "" {
		t.Error(d)
	}
}

// A record may be of several sensors, of one that only sends events, or of another controller's; the number alone does
// not say which.
func TestEventsNameTheirSensor(t *testing.T) {
	l := newLog(t, nil)
	shared := sdr(t, sdrSupply, func(raw []byte) {
		raw[0], raw[7], raw[23], raw[24] = 2, 0x40, 0x83, 0x82 // numbers 40h to 42h, names from 2
		copy(raw[len(raw)-11:], "Supply     ")
	})
	other := sdr(t, sdrSupply, func(raw []byte) {
		raw[0], raw[5], raw[7] = 3, 0x2c, 0x40 // of the controller at 2Ch
		copy(raw[len(raw)-11:], "NM Health  ")
	})
	event := append([]byte{4, 0, 0x51, 3, 0, 0x20, 0, 0x50, 7, 1, 0x0f, 0x6f, 0, 0, 0, 0, 0xc4}, "POST"...)
	event[4] = byte(len(event) - 5)
	l.bmc.SetSDRs(1, shared, other, event)
	at := uint32(collectortest.Now.Unix())
	add := func(id uint16, sensor, number, owner byte) {
		r := ipmitest.Record(id, at, sensor, number, 0x6f, 0x01)
		r[7] = owner
		l.bmc.Add(r)
	}
	add(1, 0x08, 0x41, 0x20)
	add(2, 0x08, 0x40, 0x2c)
	add(3, 0x0f, 0x50, 0x20)
	add(4, 0x0f, 0x50, 0x01) // of the BIOS, which sends it for the same sensor
	add(5, 0x08, 0x40, 0x01) // of whom nobody can say
	add(6, 0x0c, 0x41, 0x01)
	l.poll()
	var got []string
	for _, ev := range l.rec.Events() {
		got = append(got, ev.Attr("sensor"))
	}
	if d := cmp.Diff([]string{"Supply3", "NM Health", "POST", "POST", "", ""}, got); d != "" {
		t.Error(d)
	}
}

// What a server draws is told over DCMI where no sensor tells it, and a controller without it is left alone.
func TestPowerIsReadOverDCMI(t *testing.T) {
	for _, watts := range []uint16{0, 1234} {
		l := newLog(t, func(c *Config) { c.SensorInterval = c.Interval })
		l.bmc = ipmitest.Start(t, ipmitest.State{Clock: collectortest.Now, Watts: watts})
		l.restart(l.r.cfg)
		now := l.s.Now()
		l.r.s.Now = func() time.Time { return now }
		for range 3 {
			l.poll()
			now = now.Add(l.r.cfg.Interval)
		}
		told := slices.ContainsFunc(l.rec.Lines(), func(s string) bool {
			return strings.Contains(s, `"auspex_server_power_watts"`) && strings.Contains(s, `"DCMI"`) && strings.Contains(s, `"value":1234`)
		})
		if told != (watts > 0) {
			t.Errorf("%d W are told: %v", watts, told)
		}
		if n := l.bmc.Commands(types.CommandGetDCMIPowerReading); watts == 0 && n != 1 || watts > 0 && n != 3 {
			t.Errorf("of %d W it was asked %d times", watts, n)
		}
	}
}

// The states of a discrete sensor are told, each minute.
func TestStatesOfDiscreteSensors(t *testing.T) {
	l := newLog(t, func(c *Config) { c.SensorInterval = c.Interval })
	drive := sdr(t, sdrSupply, func(raw []byte) {
		raw[7], raw[12] = 0x60, 0x0d
		copy(raw[len(raw)-11:], "Drive 3    ")
	})
	l.bmc = ipmitest.Start(t, ipmitest.State{
		Clock: collectortest.Now, SDRs: []string{hex.EncodeToString(drive)}, Readings: []ipmitest.Reading{{Sensor: 0x60, States: 1<<0 | 1<<8}},
	})
	l.restart(l.r.cfg)
	now := l.s.Now()
	l.r.s.Now = func() time.Time { return now }
	for range 4 { // of 20 s
		l.poll()
		now = now.Add(restate / 3)
	}
	if !slices.ContainsFunc(l.rec.Lines(), func(s string) bool {
		return strings.Contains(s, `"auspex_disk_sensor_state"`) && strings.Contains(s, `"value":257`)
	}) {
		t.Errorf("%s", l.rec.Lines())
	}
	if n := l.bmc.Commands(types.CommandGetSensorReading); n != 2 {
		t.Errorf("it was read %d times", n)
	}
}

// The suite that worked is tried alone while the controller is silent, and the others again when it refuses it.
func TestTheSuiteThatWorksIsRemembered(t *testing.T) {
	s := ipmitest.StartSim(t, ipmitest.Obedient) // it has suite 3 only
	var mu sync.Mutex
	asked, mute := map[byte]int{}, false
	addr := ipmitest.RelayBoth(t, s.Addr, func(request []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if len(request) > 28 && request[5] == 0x10 { // open session request: the authentication algorithm
			asked[request[16+12]]++
		}
		return !mute
	})
	l := newLog(t, func(c *Config) { c.Timeout, c.Retries = 2*time.Second, 0 })
	l.bmc = &ipmitest.BMC{Addr: addr}
	l.restart(l.r.cfg)
	open := func() error {
		_, err := l.r.conn.Power(t.Context())
		_ = l.r.conn.Close(t.Context())
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	silence := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		mute = on
	}
	silence(true)
	if open() == nil {
		t.Fatal("a mute controller answers")
	}
	silence(false)
	if err := open(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if asked[3] != 1 || asked[1] != 3 { // of suite 17 and suite 3
		t.Errorf("sessions with suite 17 were asked for %d times, with suite 3 %d times", asked[3], asked[1])
	}
}
