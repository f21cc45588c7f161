package ipmi

import (
	"context"
	"crypto/aes"
	"errors"
	"fmt"
	"math"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goipmi "github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"auspex/internal/sim/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fakeBMC struct {
	mu     sync.Mutex
	power  device.PowerState
	boot   device.Boot
	log    []device.LogRecord
	erased time.Time
	skew   time.Duration
	resets []string
	fault  device.Fault
	limit  float64
	active bool
}

func (f *fakeBMC) PowerLimit() (watts float64, active, ok bool) {
	defer f.lock()()
	return f.limit, f.active, true
}

func (f *fakeBMC) SetPowerLimit(watts float64, active bool, _, _ string) error {
	defer f.lock()()
	f.limit, f.active = watts, active
	return nil
}

func newFake() *fakeBMC {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &fakeBMC{
		power: device.PowerOn, boot: device.Boot{Enabled: "Disabled", Target: "None", Mode: "UEFI"}, erased: at.Add(-time.Hour),
		log: []device.LogRecord{
			{ID: 1, Time: at, SensorType: 0x08, SensorNumber: 0x40, EventType: 0x6f, Data: [3]byte{0x03, 0xff, 0xff}},
			{ID: 2, Time: at.Add(time.Second), SensorType: 0x04, SensorNumber: 0x30, EventType: 0x01, Data: [3]byte{0x52, 0x40, 0x46}},
			{ID: 5, Time: at.Add(2 * time.Second), SensorType: 0x08, SensorNumber: 0x40, EventType: 0xef, Data: [3]byte{0x03, 0xff, 0xff}},
		},
	}
}

func (f *fakeBMC) lock() func() { f.mu.Lock(); return f.mu.Unlock }

func (f *fakeBMC) Info() device.Info {
	return device.Info{
		Name: "gpu-r01-01", UUID: "21ec4218-bd70-4a73-a476-990523953642", Firmware: "1.23.4",
		Manufacturer: "Example", Model: "AX-8", Serial: "S", MACs: []string{"b8:3f:d2:01:02:03"}, Users: []string{"admin", "watcher"},
	}
}

func (f *fakeBMC) Password(u string) (string, bool) { return "secret", u == "admin" }
func (f *fakeBMC) Power() device.PowerState         { defer f.lock()(); return f.power }
func (f *fakeBMC) LastReset() time.Time             { return time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC) }

func (f *fakeBMC) Reset(t device.ResetType, via, id string) error {
	defer f.lock()()
	switch t {
	case device.ResetNmi:
		return device.ErrUnsupported
	case device.ResetForceRestart:
		if f.power == device.PowerOff {
			return errors.New("power is off")
		}
	case device.ResetOn, device.ResetPowerCycle:
		f.power = device.PowerOn
	case device.ResetForceOff:
		f.power = device.PowerOff
	}
	f.resets = append(f.resets, string(t)+" "+via+" "+id)
	return nil
}

func (f *fakeBMC) Boot() device.Boot           { defer f.lock()(); return f.boot }
func (f *fakeBMC) SetBoot(b device.Boot) error { defer f.lock()(); f.boot = b; return nil }
func (f *fakeBMC) GPUs() []device.GPU          { return nil }
func (f *fakeBMC) resetLog() []string          { defer f.lock()(); return slices.Clone(f.resets) }
func (f *fakeBMC) Fault() device.Fault         { defer f.lock()(); return f.fault }
func (f *fakeBMC) ClearLog()                   { defer f.lock()(); f.log = nil }
func (f *fakeBMC) Now() time.Time              { defer f.lock()(); return time.Now().Add(f.skew) }
func (f *fakeBMC) SetClock(t time.Time)        { defer f.lock()(); f.skew = time.Until(t) }
func (f *fakeBMC) setFault(fault device.Fault) { defer f.lock()(); f.fault = fault }

func (f *fakeBMC) Log() ([]device.LogRecord, time.Time) {
	defer f.lock()()
	return slices.Clone(f.log), f.erased
}

func (f *fakeBMC) Sensors() []device.Sensor {
	n := math.NaN()
	none := func(s device.Sensor) device.Sensor {
		s.LNC, s.LC, s.LNR, s.UNC, s.UC, s.UNR, s.Present = n, n, n, n, n, n, true
		return s
	}
	inlet := none(device.Sensor{Number: 0x01, Name: "Inlet Temp", Kind: device.SensorTemperature, Value: 24.5, MaxRange: 127})
	inlet.UNC, inlet.UC = 40, 45
	cold := none(device.Sensor{Number: 0x02, Name: "Outside Temp", Kind: device.SensorTemperature, Value: -12, MinRange: -40, MaxRange: 87.5})
	fan := none(device.Sensor{Number: 0x30, Name: "FAN1", Part: "fan1", Kind: device.SensorFan, Value: 5200, MaxRange: 20400})
	fan.LC = 5600
	gone := none(device.Sensor{Number: 0x50, Name: "GPU3 Temp", Part: "gpu3", Kind: device.SensorTemperature, MaxRange: 127})
	gone.Present = false
	return []device.Sensor{
		inlet, cold, fan, gone,
		none(device.Sensor{Number: 0x31, Name: "FAN PWM", Kind: device.SensorDuty, Value: 60, MaxRange: 102}),
		none(device.Sensor{Number: 0x40, Name: "PSU0 Status", Part: "psu0", Kind: device.SensorPSU, Value: 9, MaxRange: 255}),
		none(device.Sensor{Number: 0x41, Name: "PSU0 Input Voltage", Part: "psu0", Kind: device.SensorVoltage, Value: 229, MaxRange: 255}),
		none(device.Sensor{Number: 0x42, Name: "PSU0 Input Power", Part: "psu0", Kind: device.SensorPower, Value: 800, MaxRange: 4080}),
	}
}

// start serves a controller and returns its port.
func start(t testing.TB, b device.BMC) (*Server, int) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(b)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, conn) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		conn.Close()
	})
	return s, conn.LocalAddr().(*net.UDPAddr).Port
}

func connect(t testing.TB, port int, suite types.CipherSuiteID) *goipmi.Client {
	t.Helper()
	c, err := goipmi.NewClient("127.0.0.1", port, "admin", "secret")
	if err != nil {
		t.Fatal(err)
	}
	c.WithCipherSuiteID(suite).WithTimeout(30 * time.Second).WithRetry(1)
	if err := c.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func TestGoIPMIReadsAndControls(t *testing.T) {
	for _, suite := range []types.CipherSuiteID{types.CipherSuiteID3, types.CipherSuiteID17} {
		t.Run(fmt.Sprint("suite ", suite), func(t *testing.T) {
			b := newFake()
			_, port := start(t, b)
			c := connect(t, port, suite)
			ctx := t.Context()
			id, err := c.GetDeviceID(ctx)
			if err != nil || id.MajorFirmwareRevision != 1 || id.MinorFirmwareRevision != 23 {
				t.Errorf("device id %+v: %v", id, err)
			}
			info, err := c.GetSELInfo(ctx)
			if err != nil || info.Entries != 3 || !info.RecentEraseTime.Equal(b.erased) {
				t.Errorf("SEL info %+v: %v", info, err)
			}
			entries, err := c.GetSELEntries(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, fmt.Sprintf(
					"%d %s %d %02x", e.RecordID, e.Standard.Timestamp.UTC().Format(time.RFC3339), e.Standard.SensorNumber,
					e.Standard.EventData.EventData1,
				))
			}
			want := []string{"1 2026-01-02T03:04:05Z 64 03", "2 2026-01-02T03:04:06Z 48 52", "5 2026-01-02T03:04:07Z 64 03"}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			var sol types.SOLConfigParam_SOLEnable
			if err := c.GetSOLConfigParamFor(ctx, 0x0e, &sol); err != nil || !sol.EnableSOLPayload {
				t.Errorf("serial over LAN %+v: %v", sol, err)
			}
			sensors, err := c.GetSensors(ctx)
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]float64{}
			for _, s := range sensors {
				values[s.Name] = math.Round(s.Value*10) / 10
			}
			for name, v := range map[string]float64{
				"Inlet Temp": 24.5, "Outside Temp": -12, "FAN1": 5200, "FAN PWM": 60, "PSU0 Input Volta": 229, "PSU0 Input Power": 800,
			} {
				if values[name] != v {
					t.Errorf("%s is %v, want %v of %v", name, values[name], v, values)
				}
			}
			for _, x := range []chassis.ChassisControl{
				chassis.ChassisControlPowerDown, chassis.ChassisControlPowerUp, chassis.ChassisControlPowerCycle,
			} {
				if _, err := c.ChassisControl(ctx, x); err != nil {
					t.Error(err)
				}
			}
			if d := cmp.Diff([]string{"ForceOff ipmi ", "On ipmi ", "PowerCycle ipmi "}, b.resetLog()); d != "" {
				t.Error(d)
			}
			st, err := c.GetChassisStatus(ctx)
			if err != nil || !st.PowerIsOn {
				t.Errorf("chassis %+v: %v", st, err)
			}
		})
	}
}

func TestManySessionsAtOnce(t *testing.T) {
	s, port := start(t, newFake())
	var wg sync.WaitGroup
	for range 8 {
		c := connect(t, port, types.CipherSuiteID3)
		wg.Go(func() {
			for range 20 {
				if _, err := c.GetChassisStatus(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s.Dropped() != 0 {
		t.Errorf("%d datagrams dropped", s.Dropped())
	}
}

func TestWrongPasswordOpensNoSession(t *testing.T) {
	_, port := start(t, newFake())
	for _, who := range [][2]string{{"admin", "guess"}, {"nobody", "secret"}} {
		c, err := goipmi.NewClient("127.0.0.1", port, who[0], who[1])
		if err != nil {
			t.Fatal(err)
		}
		c.WithCipherSuiteID(types.CipherSuiteID3).WithTimeout(time.Second).WithRetry(0)
		if err := c.Connect(t.Context()); err == nil {
			t.Errorf("%v: connected", who)
		}
		_ = c.Close(t.Context())
	}
}

func TestSilentSessionsEnd(t *testing.T) {
	s := NewServer(newFake())
	now := time.Now()
	for i := range uint32(MaxSessions) {
		s.sessions[i+1] = &session{id: i + 1, open: i%2 == 0, used: now}
	}
	open := make([]byte, 32)
	for i := range 3 {
		copy(open[8+8*i:], []byte{byte(i), 0, 0, 8, 1})
	}
	if r := s.openSession(open); r[v20Header+1] != statusNoResources {
		t.Errorf("session %d opens with status %d", MaxSessions+1, r[v20Header+1])
	}
	s.expire(now.Add(SessionTimeout / 2))
	if len(s.sessions) != MaxSessions/2 {
		t.Errorf("%d sessions while the opened ones live", len(s.sessions))
	}
	s.expire(now.Add(SessionTimeout + time.Second))
	if len(s.sessions) != 0 {
		t.Errorf("%d sessions after the timeout", len(s.sessions))
	}
	if r := s.openSession(open); r[v20Header+1] != statusOK {
		t.Errorf("status %d", r[v20Header+1])
	}
}

func TestGarbageIsCountedAndDropped(t *testing.T) {
	s, port := start(t, newFake())
	c, err := net.Dial("udp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Datagrams are handled one after another: the answer to the last is the first.
	ping := "\x06\x00\xff\x06\x00\x00\x11\xbe\x80\x07\x00\x00"
	for _, d := range []string{
		"", "x", "\x06\x00\xff\x07", "\x06\x00\xff\x07\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff", "GET / HTTP/1.1\r\n\r\n", ping,
	} {
		if _, err := c.Write([]byte(d)); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	r := make([]byte, 512)
	n, err := c.Read(r)
	if err != nil || n != 28 || r[8] != 0x40 || r[9] != 7 {
		t.Errorf("presence ping: %x, %v", r[:n], err)
	}
	if s.Dropped() != 5 {
		t.Errorf("%d dropped", s.Dropped())
	}
}

// TestRepeatedRequestActsOnce: a client that lost the answer sends the same
// datagram again.
func TestRepeatedRequestActsOnce(t *testing.T) {
	b := newFake()
	s := NewServer(b)
	x := &session{id: 7, remote: 9, suite: suites[0], open: true, used: time.Now(), privilege: privilegeAdmin, integrity: make([]byte, 20)}
	var err error
	if x.block, err = aes.NewCipher(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	s.sessions[7] = x
	client := *x
	client.remote = 7
	cycle := []byte{0x20, 0x00, 0xe0, 0x81, 0x04, 0x02, 0x02}
	datagram := client.seal(append(cycle, checksum(cycle[3:])))
	first := s.handle(datagram, false)
	second := s.handle(datagram, false)
	if first == nil || !slices.Equal(first, second) || len(b.resetLog()) != 1 {
		t.Errorf("%x, %x, resets %v", first, second, b.resetLog())
	}
	datagram[len(datagram)-1] ^= 1
	if r := s.handle(datagram, false); r != nil {
		t.Errorf("a wrong integrity code was answered with %x", r)
	}
}

func TestFaults(t *testing.T) {
	b := newFake()
	_, port := start(t, b)
	c := connect(t, port, types.CipherSuiteID3)
	c.WithTimeout(150 * time.Millisecond).WithRetry(0)
	b.setFault(device.Fault{Mute: true})
	if _, err := c.GetChassisStatus(t.Context()); err == nil {
		t.Error("a mute controller answered")
	}
	b.setFault(device.Fault{Delay: time.Minute})
	if _, err := c.GetChassisStatus(t.Context()); err == nil {
		t.Error("a slow controller answered at once")
	}
	b.setFault(device.Fault{})
}

func TestLinearFactorsCoverTheRange(t *testing.T) {
	tests := []struct{ lo, hi float64 }{
		{0, 127}, {0, 20400}, {0, 102}, {0, 255}, {0, 4080}, {0, 15.3}, {0, 1020}, {-40, 87.5}, {-128, 127}, {100, 300}, {0, 1e6}, {5, 5},
	}
	for _, tc := range tests {
		f := linear(tc.lo, tc.hi)
		if tc.hi <= tc.lo {
			continue
		}
		step := (tc.hi - tc.lo) / 255
		for _, v := range []float64{tc.lo, (tc.lo + tc.hi) / 2, tc.hi} {
			if d := math.Abs(f.value(f.raw(v)) - v); d > step*0.75 {
				t.Errorf("range %v to %v: %v reads %v (%+v)", tc.lo, tc.hi, v, f.value(f.raw(v)), f)
			}
		}
	}
}

func TestThresholdsOutsideOfTheRangeAreLeftOut(t *testing.T) {
	n := math.NaN()
	s := device.Sensor{MaxRange: 255, LNC: n, LC: 180, LNR: n, UNC: 250, UC: 264, UNR: n}
	mask, raw := thresholds(&s, linear(0, 255))
	if mask != 0b001010 || raw != [6]byte{1: 180, 3: 250} {
		t.Errorf("mask %06b, thresholds %v", mask, raw)
	}
}

func ipmitool(t *testing.T, port int, args ...string) string {
	t.Helper()
	full := append(
		[]string{"-I", "lanplus", "-H", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "admin", "-P", "secret", "-C", "3", "-N", "10", "-R", "2"},
		args...,
	)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ipmitool", full...)
	cmd.Env = []string{"TZ=UTC", "PATH=/usr/bin:/usr/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("ipmitool %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestIPMItoolDrivesTheController(t *testing.T) {
	if _, err := exec.LookPath("ipmitool"); err != nil {
		t.Skip("ipmitool is not installed: install the Debian package ipmitool to run this test")
	}
	b := newFake()
	_, port := start(t, b)
	tests := []struct {
		args string
		want []string
	}{
		{"mc info", []string{"Firmware Revision         : 1.23", "IPMI Version              : 2.0"}},
		{"mc guid", []string{"21ec4218-bd70-4a73-a476-990523953642"}},
		{"chassis status", []string{"System Power         : on"}},
		{"sel info", []string{"Entries          : 3", "Last Del Time    : 01/02/26 02:04:05"}},
		{"sel list", []string{"Power Supply #0x40", "AC lost", "Fan #0x30"}},
		{"sel elist", []string{"Power Supply PSU0 Status", "Fan FAN1", "Lower Critical going low"}},
		{"sensor list", []string{
			"Inlet Temp       | 24.500", "Outside Temp     | -12.000", "FAN1             | 5200.000   | RPM        | cr", "GPU3 Temp        | na",
			"FAN PWM          | 60.000     | percent", "PSU0 Input Power | 800.000    | Watts",
		}},
		{"sdr elist", []string{
			"FAN1             | 30h | lcr | 29.2 | 5200 RPM", "PSU0 Status      | 40h | ok  | 10.1 | Presence detected, Power Supply AC lost",
		}},
		{"fru print", []string{
			"Chassis Serial        : S", "Board Mfg             : Example", "Product Manufacturer  : Example", "Product Name          : AX-8",
			"Product Version       : 1.23.4", "Product Asset Tag     : gpu-r01-01",
		}},
		{"lan print 1", []string{
			"IP Address Source       : Static Address", "IP Address              : 127.0.0.1", "MAC Address             : b8:3f:d2:01:02:03",
			"RMCP+ Cipher Suites     : 3,17",
		}},
		{"lan print", []string{"IP Address              : 127.0.0.1"}},
		{"sol info 1", []string{"Enabled                         : true"}},
		{"user list 1", []string{"2   admin            true    true       true       ADMINISTRATOR", "3   watcher"}},
		{"dcmi power reading", []string{
			"Instantaneous power reading:                   800 Watts", "Minimum during sampling period:                800 Watts",
			"Power reading state is:                   activated",
		}},
		{"dcmi discover", []string{"Power management available"}},
		{"dcmi power set_limit limit 2600", []string{"Power Limit:         2600 Watts"}},
		{"dcmi power activate", []string{"Power limit successfully activated"}},
		{"dcmi power get_limit", []string{"Current Limit State: Power Limit Active", "Power Limit:         2600 Watts"}},
		{"dcmi power deactivate", []string{"Power limit successfully deactivated"}},
		{"dcmi power get_limit", []string{"Current Limit State: No Active Power Limit", "Power Limit:         2600 Watts"}},
		{"power off", []string{"Down/Off"}},
		{"power status", []string{"Chassis Power is off"}},
		{"power on", []string{"Up/On"}},
		{"power cycle", []string{"Cycle"}},
		{"chassis bootdev pxe options=efiboot", []string{"Set Boot Device to pxe"}},
		{"chassis bootparam get 5", []string{"Force PXE", "EFI boot"}},
		{"sel time get", []string{"UTC"}},
		{"sel clear", []string{"Clearing SEL"}},
		{"sel list", []string{"SEL has no entries"}},
	}
	for _, tc := range tests {
		t.Run(tc.args, func(t *testing.T) {
			out := ipmitool(t, port, strings.Fields(tc.args)...)
			for _, w := range tc.want {
				if !strings.Contains(out, w) {
					t.Errorf("no %q in\n%s", w, out)
				}
			}
		})
	}
	if d := cmp.Diff([]string{"ForceOff ipmi ", "On ipmi ", "PowerCycle ipmi "}, b.resetLog()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(device.Boot{Enabled: "Once", Target: "Pxe", Mode: "UEFI"}, b.Boot()); d != "" {
		t.Error(d)
	}
}

func FuzzDatagrams(f *testing.F) {
	f.Add([]byte{6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 7, 0, 0})
	f.Add([]byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x20, 0x18, 0xc8, 0x81, 0, 0x38, 0x8e, 4, 0xb5})
	f.Add(outside(payloadOpenRequest, make([]byte, 32)))
	f.Add(outside(payloadRAKP1, make([]byte, 33)))
	f.Add(outside(payloadRAKP3, make([]byte, 28)))
	s := NewServer(newFake())
	f.Fuzz(func(_ *testing.T, in []byte) { s.handle(in, false) })
}

// FuzzCommands runs commands as an administrator.
func FuzzCommands(f *testing.F) {
	for k := range commands {
		f.Add(k[0], k[1], make([]byte, 6))
	}
	s := NewServer(newFake())
	f.Fuzz(func(t *testing.T, fn, cmd byte, data []byte) {
		if out, cc := s.run(fn, cmd, request{data: data, session: &session{id: 1, privilege: privilegeAdmin}}); cc != ccOK && cc != ccNoLimit && out != nil {
			t.Errorf("command %x %x: data with completion code %x", fn, cmd, cc)
		}
	})
}
