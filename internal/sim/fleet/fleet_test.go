package fleet

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a small fleet on a clock of its own.
type world struct {
	*Fleet
	t       *testing.T
	at      time.Time
	entries []ledger.Entry
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, at: start}
	cfg := Config{Site: "dc1", Racks: 2, ServersPerRack: 2, GPUs: 8, Spines: 2, CRACs: 2}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	w.Fleet = New(cfg, seed, t.TempDir(), ledger.Discard(func(e ledger.Entry) { w.entries = append(w.entries, e) }), start)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func (w *world) pass(d time.Duration) {
	w.t.Helper()
	for end := w.at.Add(d); w.at.Before(end); {
		if w.at = w.at.Add(20 * time.Second); w.at.After(end) {
			w.at = end
		}
		if _, err := w.Step(w.at); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) work(server string) {
	w.SetLoad(server, []int{0, 1, 2, 3, 4, 5, 6, 7}, Load{Util: 0.95, Memory: 0.8, PID: 4000, Name: "python3"})
}

func (w *world) sensor(server, name string) device.Sensor {
	w.t.Helper()
	for _, s := range w.BMC(server).Sensors() {
		if s.Name == name {
			return s
		}
	}
	w.t.Fatalf("no sensor %q", name)
	return device.Sensor{}
}

func (w *world) records(protocol, typ string) []ledger.Entry {
	var out []ledger.Entry
	for _, e := range w.entries {
		if e.Kind == ledger.KindRecord && e.Protocol == protocol && e.Type == typ {
			out = append(out, e)
		}
	}
	return out
}

func TestTemperaturePowerAndFansFollowTheLoad(t *testing.T) {
	w := newWorld(t, 1)
	w.pass(3 * time.Minute)
	var idle, busy Host
	w.Host("gpu-r01-01", &idle)
	idleFan, idlePower := w.sensor("gpu-r01-01", "FAN1").Value, w.sensor("gpu-r01-01", "Total Power").Value
	w.work("gpu-r01-01")
	w.pass(5 * time.Minute)
	w.Host("gpu-r01-01", &busy)
	for i := range busy.GPUs {
		if g := busy.GPUs[i]; g.Temp < idle.GPUs[i].Temp+20 || g.Temp > 80 || g.Watts < 550 || g.Watts > 705 || g.SMClock < 1900 {
			t.Errorf("gpu%d under load: %.0f C, %.0f W, %.0f MHz", i, g.Temp, g.Watts, g.SMClock)
		}
	}
	if f := w.sensor("gpu-r01-01", "FAN1").Value; f < idleFan+1000 {
		t.Errorf("fan %.0f rpm under load, %.0f idle", f, idleFan)
	}
	if idleFan < fanLowRPM+500 {
		t.Errorf("an idle fan turns at %.0f rpm, near its limit", idleFan)
	}
	if p := w.sensor("gpu-r01-01", "Total Power").Value; p < idlePower+4000 {
		t.Errorf("power %.0f W under load, %.0f idle", p, idlePower)
	}
	// All protocols speak of one state.
	if a, b := w.BMC("gpu-r01-01").GPUs()[3].Temperature, busy.GPUs[3].Temp; math.Abs(a-b) > 0.06 {
		t.Errorf("board controller says %.1f C, driver %.1f", a, b)
	}
}

func TestEnergyNeverFalls(t *testing.T) {
	w := newWorld(t, 2)
	w.work("gpu-r01-02")
	var h Host
	last := make([]float64, 8)
	for range 120 {
		w.pass(time.Second)
		w.Host("gpu-r01-02", &h)
		for i, g := range h.GPUs {
			if g.Joules < last[i] {
				t.Fatalf("gpu%d: energy fell from %.0f to %.0f J", i, last[i], g.Joules)
			}
			last[i] = g.Joules
		}
	}
}

func TestFewerFansMeanHotterGPUs(t *testing.T) {
	temp := func(stop int) float64 {
		w := newWorld(t, 3)
		w.work("gpu-r01-01")
		for i := range stop {
			if err := w.StopFan("gpu-r01-01/fan"+string(rune('1'+i)), true); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(5 * time.Minute)
		return w.BMC("gpu-r01-01").GPUs()[0].Temperature
	}
	if all, half := temp(0), temp(4); half < all+3 {
		t.Errorf("%.1f C with all fans, %.1f with half of them", all, half)
	}
}

func TestFeedLossIsSeenByEverySupplyWithinASecond(t *testing.T) {
	w := newWorld(t, 4)
	w.work("gpu-r01-01")
	w.work("gpu-r01-02")
	w.pass(time.Minute)
	if err := w.SetFeed("pdu-r01-a", false); err != nil {
		t.Fatal(err)
	}
	lost := w.at
	w.pass(3 * time.Second)
	var parts []string
	for _, e := range w.records("ipmi", "psu.input_lost") {
		parts = append(parts, e.Device+"/"+e.Part)
		if d := e.Time.Sub(lost); d < 100*time.Millisecond || d > time.Second {
			t.Errorf("%s/%s lost its input after %s", e.Device, e.Part, d)
		}
	}
	slices.Sort(parts)
	want := []string{"gpu-r01-01/psu0", "gpu-r01-01/psu1", "gpu-r01-01/psu2", "gpu-r01-02/psu0", "gpu-r01-02/psu1", "gpu-r01-02/psu2"}
	if d := cmp.Diff(want, parts); d != "" {
		t.Error(d)
	}
	if a, b := len(w.records("ipmi", "bmc.sel")), len(w.records("redfish", "bmc.sel")); a != 4 || b != 4 {
		t.Errorf("%d and %d records of redundancy and throttling, want 4", a, b)
	}
	w.pass(20 * time.Second)
	var h Host
	w.Host("gpu-r01-01", &h)
	if g := h.GPUs[0]; g.Reasons&ReasonPowerBrake == 0 || g.Watts > brakeWatts+20 || g.SMClock > 1900 {
		t.Errorf("no power brake: reasons %#x, %.0f W, %.0f MHz", g.Reasons, g.Watts, g.SMClock)
	}
	if v := w.sensor("gpu-r01-01", "PSU0 Input Volt").Value; v != 0 {
		t.Errorf("input of psu0 is %.0f V", v)
	}
	if c := w.Switch("leaf-r01").Components()[0]; c.Oper != "INACTIVE" || c.InputVolts != 0 {
		t.Errorf("leaf: %+v", c)
	}
	if err := w.SetFeed("pdu-r01-a", true); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	w.Host("gpu-r01-01", &h)
	if g := h.GPUs[0]; g.Reasons&ReasonPowerBrake != 0 || g.SMClock < 1900 {
		t.Errorf("the brake stays: reasons %#x, %.0f MHz", g.Reasons, g.SMClock)
	}
	if n := len(w.records("ipmi", "psu.input_lost")); n != 12 {
		t.Errorf("%d records of inputs, want 6 lost and 6 back", n)
	}
}

func TestBothFeedsGoneTakeTheServerDownAndPowerBringsItBack(t *testing.T) {
	w := newWorld(t, 5)
	for _, live := range []bool{false, true} {
		for _, p := range []string{"pdu-r01-a", "pdu-r01-b"} {
			if err := w.SetFeed(p, live); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(2 * time.Second)
		if !live {
			if b := w.BMC("gpu-r01-01"); b.Power() != device.PowerOff || !b.Fault().Mute {
				t.Errorf("power %s, mute %t without any feed", b.Power(), b.Fault().Mute)
			}
		}
	}
	w.pass(30 * time.Second)
	if up, _ := w.Ready("gpu-r01-01"); !up || w.BMC("gpu-r01-01").Power() != device.PowerOn {
		t.Error("the server did not start when power was back")
	}
}

func TestAGPUThatFellOffTheBusComesBackWithPowerOnly(t *testing.T) {
	for _, tc := range []struct {
		name  string
		dead  bool
		reset device.ResetType
		back  bool
	}{
		{"a restart does not help", false, device.ResetForceRestart, false},
		{"a graceful restart does not help", false, device.ResetGracefulRestart, false},
		{"a power cycle helps", false, device.ResetPowerCycle, true},
		{"dead hardware stays dead", true, device.ResetPowerCycle, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 6)
			w.work("gpu-r02-01")
			w.pass(10 * time.Second)
			if err := w.LoseGPU("gpu-r02-01/gpu2", tc.dead); err != nil {
				t.Fatal(err)
			}
			w.pass(5 * time.Second)
			b := w.BMC("gpu-r02-01")
			if b.GPUs()[2].Present || w.sensor("gpu-r02-01", "GPU2 Temp").Present {
				t.Error("the board controller still sees the GPU")
			}
			log := read(t, w, "gpu-r02-01")
			if !strings.Contains(log, "): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.") || !strings.Contains(log, "): 154, ") {
				t.Errorf("kernel log:\n%s", log)
			}
			if err := b.Reset(tc.reset, "redfish", "r1"); err != nil {
				t.Fatal(err)
			}
			w.pass(time.Minute)
			up, whole := w.Ready("gpu-r02-01")
			if !up || whole != tc.back {
				t.Errorf("up %t, whole %t, want %t", up, whole, tc.back)
			}
		})
	}
}

func read(t *testing.T, w *world, server string) string {
	t.Helper()
	data, err := os.ReadFile(w.byName[server].klog.Path())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestResetsGoThroughTheirStates(t *testing.T) {
	on, off, rising, falling := string(device.PowerOn), string(device.PowerOff), string(device.PowerPoweringOn), string(device.PowerPoweringOff)
	for _, tc := range []struct {
		first, reset device.ResetType
		want         []string
	}{
		{"", device.ResetPowerCycle, []string{falling, off, rising, on}},
		{"", device.ResetForceOff, []string{falling, off}},
		{"", device.ResetGracefulShutdown, []string{falling, off}},
		{"", device.ResetForceRestart, nil},
		{"", device.ResetOn, nil},
		{device.ResetForceOff, device.ResetOn, []string{rising, on}},
		{device.ResetForceOff, device.ResetForceRestart, nil},
		{device.ResetForceOff, device.ResetPowerCycle, []string{falling, off, rising, on}},
	} {
		t.Run(string(tc.first+" "+tc.reset), func(t *testing.T) {
			w := newWorld(t, 7)
			b := w.BMC("gpu-r01-01")
			if tc.first != "" {
				if err := b.Reset(tc.first, "ipmi", ""); err != nil {
					t.Fatal(err)
				}
				w.pass(10 * time.Second)
			}
			w.entries = nil
			if err := b.Reset(tc.reset, "redfish", "action-7"); err != nil {
				t.Fatal(err)
			}
			if got := w.entries[0]; got.Kind != ledger.KindReset || got.RequestID != "action-7" || got.Type != "accepted" ||
				got.Code != string(tc.reset) {
				t.Errorf("ledger: %+v", got)
			}
			w.pass(40 * time.Second)
			var states []string
			for _, e := range w.entries {
				if e.Kind == ledger.KindPower {
					states = append(states, e.Code)
				}
			}
			if d := cmp.Diff(tc.want, states); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestAResetOverridesTheOneBefore(t *testing.T) {
	w := newWorld(t, 8)
	b := w.BMC("gpu-r01-01")
	for _, r := range []device.ResetType{device.ResetPowerCycle, device.ResetForceOff} {
		if err := b.Reset(r, "redfish", ""); err != nil {
			t.Fatal(err)
		}
		w.pass(500 * time.Millisecond)
	}
	w.pass(time.Minute)
	if p := b.Power(); p != device.PowerOff {
		t.Errorf("power is %s after power cycle, then off", p)
	}
	if err := b.Reset("Explode", "redfish", ""); err == nil {
		t.Error("an unknown reset was accepted")
	}
}

func TestAControllerThatIgnoresSetsDoesNothing(t *testing.T) {
	w := newWorld(t, 9)
	if err := w.SetBMCFault("gpu-r01-01", device.Fault{IgnoreSets: true}); err != nil {
		t.Fatal(err)
	}
	b := w.BMC("gpu-r01-01")
	if err := b.Reset(device.ResetPowerCycle, "redfish", "a"); err != nil {
		t.Fatal(err)
	}
	w.pass(30 * time.Second)
	if b.Power() != device.PowerOn || len(w.entries) != 1 || w.entries[0].Type != "ignored" {
		t.Errorf("power %s, ledger %+v", b.Power(), w.entries)
	}
}

func TestAHostIsSilentUntilItHasBooted(t *testing.T) {
	w := newWorld(t, 10)
	s := w.byName["gpu-r01-01"]
	before := s.klog.BootID()
	if err := w.BMC("gpu-r01-01").Reset(device.ResetPowerCycle, "redfish", ""); err != nil {
		t.Fatal(err)
	}
	w.pass(3 * time.Second)
	var h Host
	if w.Host("gpu-r01-01", &h); h.Up {
		t.Error("programs run without power")
	}
	if _, err := os.Stat(s.klog.Path()); err == nil {
		t.Error("the kernel log outlived the power")
	}
	w.pass(30 * time.Second)
	if w.Host("gpu-r01-01", &h); !h.Up {
		t.Error("the host did not boot")
	}
	if s.klog.BootID() == before {
		t.Error("the boot id is the old one")
	}
	log := read(t, w, "gpu-r01-01")
	if !strings.HasPrefix(log, "5,0,0,-;Linux version ") {
		t.Errorf("kernel log begins with %.60q", log)
	}
}

func TestAPanicEndsInABootByItself(t *testing.T) {
	w := newWorld(t, 11)
	var changes []Change
	w.OnChange(func(_ time.Time, c Change) { changes = append(changes, c) })
	if err := w.CrashHost("gpu-r01-02", 3); err != nil {
		t.Fatal(err)
	}
	if up, _ := w.Ready("gpu-r01-02"); up {
		t.Error("programs outlived the kernel")
	}
	w.pass(time.Minute)
	if up, _ := w.Ready("gpu-r01-02"); !up {
		t.Error("the host did not come back")
	}
	if len(w.records("kmsg", "host.panic")) != 1 || len(w.records("ipmi", "dimm.ecc_ue")) != 1 || len(w.records("kmsg", "host.reboot")) != 1 {
		t.Errorf("ledger: %+v", w.entries)
	}
	if len(changes) < 2 || changes[0].Kind != HostDown || changes[len(changes)-1].Kind != HostUp {
		t.Errorf("changes: %+v", changes)
	}
}

func TestAWornFanCrossesItsLimitWhenTheLedgerSays(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.work("gpu-r01-01")
		w.Settle()
		first := w.sensor("gpu-r01-01", "FAN3").Value
		at, err := w.WearFan("gpu-r01-01/fan3", 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		w.pass(time.Minute)
		if v := w.sensor("gpu-r01-01", "FAN3").Value; first-v < 200 {
			t.Errorf("seed %d: %.0f rpm after a minute, %.0f at first: the slope cannot be seen", seed, v, first)
		}
		w.pass(15 * time.Minute)
		i := slices.IndexFunc(w.entries, func(e ledger.Entry) bool { return e.Kind == ledger.KindCrossing && e.Type == "crossed" })
		if i < 0 {
			t.Errorf("seed %d: the limit was never crossed", seed)
			continue
		}
		if d := w.entries[i].Time.Sub(at); d.Abs() > 90*time.Second {
			t.Errorf("seed %d: crossed %s off the expected time", seed, d)
		}
		if n := len(w.records("ipmi", "fan.failure")); n == 0 {
			t.Errorf("seed %d: no record of the fan", seed)
		}
	}
}

func TestASwitchThatDiesTakesItsLinksDown(t *testing.T) {
	w := newWorld(t, 12)
	spine := w.Switch("spine-01")
	changed, cancel := spine.Watch()
	defer cancel()
	if err := w.SetSwitch("leaf-r01", true); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("the spine told nobody of its port")
	}
	if p := spine.Ports()[0]; p.OperUp || p.Carrier != 1 {
		t.Errorf("port to the dead leaf: %+v", p)
	}
	if !w.Switch("leaf-r01").Fault().Mute {
		t.Error("the dead switch answers")
	}
	if n := len(w.records("kmsg", "nic.down")); n != 4 {
		t.Errorf("%d links down in kernel logs, want 4", n)
	}
	if err := w.SetSwitch("leaf-r01", false); err != nil {
		t.Fatal(err)
	}
	if p := spine.Ports()[0]; !p.OperUp {
		t.Error("the link stays down")
	}
}

// A session goes when its link goes, at both ends, and comes back a while after it;
// ports of servers have none.
func TestSessionsFollowTheirLinks(t *testing.T) {
	w := newWorld(t, 14)
	leaf, spine := w.Switch("leaf-r02"), w.Switch("spine-01")
	w.pass(10 * time.Second)
	states := func() (out []string) {
		a, b := leaf.Sessions(), spine.Sessions()
		if len(a) != 2 || len(b) != 2 || a[0].Neighbor != b[1].Address || b[1].Neighbor != a[0].Address || a[0].Peer != b[1].Local ||
			a[0].Local == b[0].Peer {
			t.Fatalf("the ends do not fit: %+v and %+v", a, b)
		}
		return []string{a[0].State, b[1].State, a[1].State, b[0].State}
	}
	const up = "ESTABLISHED"
	for _, step := range []struct {
		broken bool
		pass   time.Duration
		want   []string
	}{
		{false, 0, []string{up, up, up, up}},
		{true, 0, []string{"IDLE", "IDLE", up, up}},
		{true, time.Minute, []string{"IDLE", "IDLE", up, up}},
		{false, time.Second, []string{"ACTIVE", "ACTIVE", up, up}},
		{false, 10 * time.Second, []string{up, up, up, up}},
	} {
		if err := w.SetLink("leaf-r02/Ethernet49", step.broken); err != nil {
			t.Fatal(err)
		}
		w.pass(step.pass)
		if d := cmp.Diff(step.want, states()); d != "" {
			t.Errorf("broken %t, %s later: %s", step.broken, step.pass, d)
		}
	}
	if n := leaf.Sessions()[0].Established; n != 2 {
		t.Errorf("%d times established, want 2", n)
	}
	reported := 0
	for _, e := range w.entries {
		if e.Kind == ledger.KindState && e.Type == "bgp.session_down" && e.Device == "leaf-r02" {
			reported++
		}
	}
	if reported != 2 {
		t.Errorf("the ledger has %d changes of the leaf's session, want 2", reported)
	}
}

func TestCountersOfPortsGrowAndOpticsFade(t *testing.T) {
	w := newWorld(t, 13)
	w.work("gpu-r01-01")
	w.pass(10 * time.Second)
	a := w.Switch("leaf-r01").Ports()[0]
	if err := w.DegradeOptics("leaf-r01/Ethernet1", 3); err != nil {
		t.Fatal(err)
	}
	w.pass(3 * time.Minute)
	b := w.Switch("leaf-r01").Ports()[0]
	if b.InOctets <= a.InOctets || b.RxPowerDBm > a.RxPowerDBm-5 || b.PreFECBER < a.PreFECBER*10 || b.InFCSErrors == 0 {
		t.Errorf("before %+v\nafter %+v", a, b)
	}
}

func TestFailedAirHandlerWarmsItsRacks(t *testing.T) {
	w := newWorld(t, 14)
	w.pass(2 * time.Minute)
	cool := w.sensor("gpu-r01-01", "Inlet Temp").Value
	if err := w.SetCRAC("crac-1", true); err != nil {
		t.Fatal(err)
	}
	w.pass(5 * time.Minute)
	if warm := w.sensor("gpu-r01-01", "Inlet Temp").Value; warm < cool+10 {
		t.Errorf("inlet %.1f C, %.1f before", warm, cool)
	}
	if other := w.sensor("gpu-r02-01", "Inlet Temp").Value; other > cool+2 {
		t.Errorf("a rack of the other air handler has %.1f C", other)
	}
	if len(w.records("ipmi", "temp.inlet_high")) == 0 {
		t.Error("no record of the inlet temperature")
	}
}

func TestTheSameSeedGivesTheSameFleet(t *testing.T) {
	run := func(seed uint64) (string, []device.Sensor) {
		w := newWorld(t, seed)
		w.work("gpu-r01-01")
		_ = w.SetFeed("pdu-r02-b", false)
		_ = w.LoseGPU("gpu-r01-01/gpu5", false)
		w.pass(30 * time.Second)
		var b strings.Builder
		for _, e := range w.entries {
			b.WriteString(e.Time.String() + e.Device + e.Part + e.Code + "\n")
		}
		return b.String(), w.BMC("gpu-r01-01").Sensors()
	}
	l1, s1 := run(5)
	l2, s2 := run(5)
	l3, _ := run(6)
	if l1 != l2 || !cmp.Equal(s1, s2, cmp.Comparer(func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })) {
		t.Error("two runs with one seed differ")
	}
	if l1 == l3 {
		t.Error("two seeds give one run")
	}
}

func TestClearedLogBeginsAnew(t *testing.T) {
	w := newWorld(t, 15)
	_ = w.SetPSU("gpu-r01-01/psu1", true)
	b := w.BMC("gpu-r01-01")
	w.pass(10 * time.Second)
	if log, _ := b.Log(); len(log) != 1 || log[0].ID != 1 || log[0].MessageID != "Power.1.0.PowerSupplyFailed" {
		t.Errorf("log: %+v", log)
	}
	_, before := b.Log()
	b.ClearLog()
	_ = w.SetPSU("gpu-r01-01/psu1", false)
	log, erased := b.Log()
	if len(log) != 1 || log[0].ID != 1 || !erased.After(before) {
		t.Errorf("log after the erasure at %s: %+v", erased, log)
	}
}

func TestTheInventoryHoldsTogether(t *testing.T) {
	w := newWorld(t, 16)
	top := w.Topology()
	ids := map[string]string{}
	for _, r := range top.Resources {
		if _, dup := ids[r.ID]; dup {
			t.Errorf("%s is there twice", r.ID)
		}
		ids[r.ID] = r.Kind
		if r.Parent != "" && ids[r.Parent] == "" {
			t.Errorf("%s comes before its parent %s", r.ID, r.Parent)
		}
	}
	for _, l := range top.Links {
		if ids[l.From] == "" || ids[l.To] == "" {
			t.Errorf("link %+v has an end that is not there", l)
		}
	}
	for id, kind := range map[string]string{
		"gpu-r02-02/gpu7": "gpu", "gpu-r01-01/psu5": "psu", "gpu-r01-01/fan8": "fan", "gpu-r01-01/nic7": "nic", "gpu-r01-01/bmc": "bmc",
		"leaf-r01/Ethernet49": "port", "spine-02/Ethernet2": "port", "pdu-r02-b": "pdu", "crac-2": "crac", "leaf-r02/psu2": "psu",
	} {
		if !w.Has(id, kind) {
			t.Errorf("no %s %s", kind, id)
		}
	}
	inv, problems := cmdb.FromTopology(top)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var m Machine
	w.Machine("gpu-r01-01", &m)
	for i := range m.NICs { // what agents and the kernel call them
		if id, ok := inv.Snapshot().Resolve("gpu-r01-01", schemas.KindNIC, m.NICs[i].Name); !ok || id != fmt.Sprintf("gpu-r01-01/nic%d", i) {
			t.Errorf("%s is %q", m.NICs[i].Name, id)
		}
	}
	if w.Has("gpu-r09-01", "server") {
		t.Error("a server that is not there")
	}
}
