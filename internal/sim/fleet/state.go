package fleet

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/kmsg"
	"auspex/schemas"
)

// recordGap is by how many numbers a system event log is moved on when records
// may have been lost, so that no number is given to two records.
const recordGap = 256

// State is what devices keep when their simulator stops: who they are, what
// they have counted and logged, and what is wrong with them.
type State struct {
	Servers  map[string]ServerState `json:"servers"`
	Switches map[string]SwitchState `json:"switches"`
	DeadPDUs []string               `json:"dead_pdus,omitempty"`
	DeadCRAC []string               `json:"dead_cracs,omitempty"`
}

// ServerState is what a server and its board controller keep.
type ServerState struct {
	Power    device.PowerState  `json:"power"`
	Up       bool               `json:"up"`
	Reset    time.Time          `json:"reset"`
	BootID   string             `json:"boot_id,omitempty"`
	Booted   time.Time          `json:"booted"`
	Boot     device.Boot        `json:"boot"`
	Skew     time.Duration      `json:"skew,omitempty"`
	Fault    device.Fault       `json:"fault"`
	GPUs     []GPUState         `json:"gpus"`
	PSUs     []PSUState         `json:"psus"`
	Fans     []FanState         `json:"fans"`
	Alarms   Alarms             `json:"alarms"`
	Log      []device.LogRecord `json:"log"`
	LogNext  uint16             `json:"log_next"`
	LogEpoch time.Time          `json:"log_epoch"`
	BIOS     map[string]any     `json:"bios,omitempty"`
	Pending  map[string]any     `json:"bios_pending,omitempty"`
	Firmware map[string]string  `json:"firmware,omitempty"` // versions, by id
	Started  time.Time          `json:"bmc_started"`
	Machine  string             `json:"machine_id,omitempty"`
	Driver   string             `json:"driver,omitempty"`
	Torn     bool               `json:"torn,omitempty"`
	Limit    float64            `json:"power_limit,omitempty"` // watts, where one is in force
}

// Alarms are the conditions that a board controller has told and not taken back.
type Alarms struct {
	NotRedundant bool `json:"not_redundant,omitempty"`
	Brake        bool `json:"brake,omitempty"`
	Temperature  bool `json:"temperature,omitempty"`
	Starved      bool `json:"starved,omitempty"`
}

// GPUState is what a GPU has counted and what is wrong with it.
type GPUState struct {
	Serial     string  `json:"serial"`
	Lost       bool    `json:"lost,omitempty"`
	Dead       bool    `json:"dead,omitempty"`
	Pending    bool    `json:"pending,omitempty"`
	Hung       bool    `json:"hung,omitempty"`
	Failing    bool    `json:"failing,omitempty"`
	Damaged    bool    `json:"damaged,omitempty"`
	NoECC      bool    `json:"no_ecc,omitempty"` // settings that the board keeps
	MIG        bool    `json:"mig,omitempty"`
	ECC        float64 `json:"ecc,omitempty"`
	NVErrRate  float64 `json:"nv_error_rate,omitempty"`
	XID        int     `json:"xid,omitempty"`
	Energy     float64 `json:"energy"`
	SBE        float64 `json:"sbe,omitempty"`
	DBE        float64 `json:"dbe,omitempty"`
	SBEAgg     float64 `json:"sbe_agg,omitempty"`
	DBEAgg     float64 `json:"dbe_agg,omitempty"`
	RemapCE    float64 `json:"remap_ce,omitempty"`
	RemapUE    float64 `json:"remap_ue,omitempty"`
	Replays    float64 `json:"replays,omitempty"`
	PCIeReplay float64 `json:"pcie_replay,omitempty"`
	CRC        float64 `json:"crc,omitempty"`
	NVReplays  float64 `json:"nv_replays,omitempty"`
	NVBytes    float64 `json:"nv_bytes,omitempty"`
	TxBytes    float64 `json:"tx_bytes,omitempty"`
	RxBytes    float64 `json:"rx_bytes,omitempty"`
	ThermalUS  float64 `json:"thermal_us,omitempty"`
	PowerUS    float64 `json:"power_us,omitempty"`
}

// PSUState says what is wrong with a power supply.
type PSUState struct {
	NoInput bool `json:"no_input,omitempty"`
	Failed  bool `json:"failed,omitempty"`
}

// FanState says how worn a fan is.
type FanState struct {
	Wear    float64 `json:"wear,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
	Stopped bool    `json:"stopped,omitempty"`
	Alarm   bool    `json:"alarm,omitempty"`
}

// SwitchState is what a switch keeps.
type SwitchState struct {
	Booted time.Time            `json:"booted"`
	Down   bool                 `json:"down,omitempty"`
	PSUs   []PSUState           `json:"psus"`
	Ports  map[string]PortState `json:"ports"`
}

// PortState is what a port has counted and what is wrong with it.
type PortState struct {
	Up         bool      `json:"up,omitempty"`
	LastChange time.Time `json:"last_change"`
	Carrier    uint64    `json:"carrier,omitempty"`
	In         float64   `json:"in,omitempty"`
	Out        float64   `json:"out,omitempty"`
	Bad        float64   `json:"bad,omitempty"`
	Broken     bool      `json:"broken,omitempty"`
	Degraded   float64   `json:"degraded,omitempty"`
	Loss       float64   `json:"loss,omitempty"`
}

// Records counts the records that all event logs were given since New; a change
// says that there is something that must not be lost.
func (f *Fleet) Records() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.records
}

// State returns a copy of what the devices keep.
func (f *Fleet) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	st := State{Servers: make(map[string]ServerState, len(f.servers)), Switches: make(map[string]SwitchState, len(f.switches))}
	for _, r := range f.racks {
		for _, p := range r.pdus {
			if !p.live {
				st.DeadPDUs = append(st.DeadPDUs, p.name)
			}
		}
	}
	for _, c := range f.cracs {
		if c.failed {
			st.DeadCRAC = append(st.DeadCRAC, c.name)
		}
	}
	for _, s := range f.servers {
		st.Servers[s.name] = s.state()
	}
	for _, sw := range f.switches {
		st.Switches[sw.name] = sw.state()
	}
	return st
}

func (s *server) state() ServerState {
	out := ServerState{
		Power: s.power, Up: s.host == hostUp, Reset: s.reset, BootID: s.klog.BootID(), Booted: s.klog.Booted(), Boot: s.boot, Skew: s.skew,
		Fault:  s.bmc,
		Alarms: Alarms{NotRedundant: !s.redundant, Brake: s.brake, Temperature: s.tempAlarm, Starved: s.starved},
		Log:    slices.Clone(s.sel), LogNext: s.selNext, LogEpoch: s.selEpoch,
		BIOS: maps.Clone(s.board.bios), Pending: maps.Clone(s.board.pending), Firmware: map[string]string{}, Started: s.board.started,
		Machine: s.os.machine, Driver: s.os.driver, Torn: s.os.torn,
	}
	if s.limit.active {
		out.Limit = s.limit.watts
	}
	for _, w := range s.board.firmware {
		out.Firmware[w.ID] = w.Version
	}
	for i := range s.gpus {
		g := &s.gpus[i]
		out.GPUs = append(out.GPUs, GPUState{
			Serial: g.serial, Lost: g.lost, Dead: g.dead, Pending: g.pending, Hung: g.hung, Failing: g.failing, Damaged: g.damaged, NoECC: !g.set.ECC, MIG: g.set.MIG, ECC: g.ecc, NVErrRate: g.nvErrRate, XID: g.xid, Energy: g.energy,
			SBE: g.sbe, DBE: g.dbe, SBEAgg: g.sbeAgg, DBEAgg: g.dbeAgg, RemapCE: g.remapCE, RemapUE: g.remapUE, Replays: g.replays,
			PCIeReplay: g.pcieReplay, CRC: g.crc, NVReplays: g.nvReplays, NVBytes: g.nvBytes, TxBytes: g.txBytes, RxBytes: g.rxBytes,
			ThermalUS: g.thermalUS, PowerUS: g.powerUS,
		})
	}
	for _, p := range s.psus {
		out.PSUs = append(out.PSUs, PSUState{NoInput: !p.input, Failed: p.failed})
	}
	for _, fn := range s.fans {
		out.Fans = append(out.Fans, FanState{Wear: fn.wear, Rate: fn.rate, Stopped: fn.stopped, Alarm: fn.alarm})
	}
	return out
}

func (sw *netSwitch) state() SwitchState {
	out := SwitchState{Booted: sw.booted, Down: sw.down, Ports: make(map[string]PortState, len(sw.ports))}
	for _, p := range sw.psus {
		out.PSUs = append(out.PSUs, PSUState{NoInput: !p.input, Failed: p.failed})
	}
	for _, p := range sw.ports {
		out.Ports[p.Name] = PortState{
			Up: p.OperUp, LastChange: p.LastChange, Carrier: p.Carrier, In: p.in, Out: p.out, Bad: p.bad, Broken: p.broken, Degraded: p.degraded,
			Loss: p.loss,
		}
	}
	return out
}

// Restore brings the devices to where they were when the state was taken; it
// belongs before [Fleet.Start]. Devices that the state does not know stay new.
// Lossy says that the state may be older than the end of the last run.
func (f *Fleet) Restore(st State, lossy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range st.DeadPDUs {
		if p := f.pdus[name]; p != nil {
			p.live = false
		}
	}
	for _, c := range f.cracs {
		c.failed = slices.Contains(st.DeadCRAC, c.name)
	}
	for _, s := range f.servers {
		if v, ok := st.Servers[s.name]; ok && v.LogNext > 0 {
			s.restore(v, lossy)
		}
	}
	for _, sw := range f.switches {
		if v, ok := st.Switches[sw.name]; ok {
			sw.restore(v)
		}
	}
}

func (s *server) restore(v ServerState, lossy bool) {
	s.kept = &v
	s.power, s.reset, s.boot, s.skew, s.bmc = v.Power, v.Reset, v.Boot, v.Skew, v.Fault
	if s.host = hostOff; v.Up {
		s.host = hostUp
	}
	s.redundant, s.brake, s.tempAlarm, s.starved = !v.Alarms.NotRedundant, v.Alarms.Brake, v.Alarms.Temperature, v.Alarms.Starved
	s.sel, s.selNext, s.selEpoch = slices.Clone(v.Log), v.LogNext, v.LogEpoch
	s.limit.watts, s.limit.active = v.Limit, v.Limit > 0
	s.board.restore(&v)
	if v.Machine != "" {
		s.os = system{machine: v.Machine, driver: v.Driver, torn: v.Torn}
	}
	if lossy {
		if s.selNext < 0xffff-recordGap {
			s.selNext += recordGap
		} else {
			s.selNext = recordGap
		}
	}
	for i := range min(len(s.gpus), len(v.GPUs)) {
		g, k := &s.gpus[i], &v.GPUs[i]
		g.serial, g.lost, g.dead, g.pending = k.Serial, k.Lost, k.Dead, k.Pending
		g.ecc, g.nvErrRate, g.xid, g.energy = k.ECC, k.NVErrRate, k.XID, k.Energy
		g.sbe, g.dbe, g.sbeAgg, g.dbeAgg, g.remapCE, g.remapUE, g.replays = k.SBE, k.DBE, k.SBEAgg, k.DBEAgg, k.RemapCE, k.RemapUE, k.Replays
		g.pcieReplay, g.crc, g.nvReplays, g.nvBytes, g.txBytes, g.rxBytes = k.PCIeReplay, k.CRC, k.NVReplays, k.NVBytes, k.TxBytes, k.RxBytes
		g.thermalUS, g.powerUS = k.ThermalUS, k.PowerUS
		g.hung, g.failing, g.damaged, g.set.ECC, g.set.MIG, g.eccNow = k.Hung, k.Failing, k.Damaged, !k.NoECC, k.MIG, !k.NoECC
	}
	for i := range min(len(s.psus), len(v.PSUs)) {
		s.psus[i].input, s.psus[i].failed = !v.PSUs[i].NoInput, v.PSUs[i].Failed
	}
	for i := range min(len(s.fans), len(v.Fans)) {
		fn, k := &s.fans[i], &v.Fans[i]
		fn.wear, fn.rate, fn.stopped, fn.alarm = k.Wear, k.Rate, k.Stopped, k.Alarm
	}
}

func (sw *netSwitch) restore(v SwitchState) {
	sw.booted, sw.down = v.Booted, v.Down
	for i := range min(len(sw.psus), len(v.PSUs)) {
		sw.psus[i].input, sw.psus[i].failed = !v.PSUs[i].NoInput, v.PSUs[i].Failed
	}
	for _, p := range sw.ports {
		k, ok := v.Ports[p.Name]
		if !ok {
			continue
		}
		p.OperUp, p.LastChange, p.Carrier, p.in, p.out, p.bad = k.Up, k.LastChange, k.Carrier, k.In, k.Out, k.Bad
		p.broken, p.degraded, p.loss = k.Broken, k.Degraded, k.Loss
	}
}

// resume goes on with the kernel log of a host that was up when the simulator
// stopped. It reports false when the host needs a boot.
func (f *Fleet) resume(s *server) (bool, error) {
	if s.kept == nil || s.host != hostUp || s.power != device.PowerOn {
		return false, nil
	}
	return s.klog.Resume(s.kept.BootID, s.kept.Booted)
}

// Repair mends all that is wrong, as a crew would have between two runs, and
// lets the devices say so. It returns the servers that had to boot. It belongs
// after [Fleet.Start].
func (f *Fleet) Repair() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.cracs {
		c.failed = false
	}
	for _, rk := range f.racks {
		for _, p := range rk.pdus {
			p.live = true
		}
	}
	var booted []string
	for _, s := range f.servers {
		if s.kept == nil {
			continue
		}
		s.bmc, s.skew, s.limit = device.Fault{}, 0, limit{}
		boot := s.host != hostUp || s.power != device.PowerOn
		s.os.torn = false
		s.starved = false // the boot is ours, at once
		for i := range s.psus {
			if s.psus[i].failed {
				s.psus[i].failed = false
				f.selAdd(s, recPSUFailed(i, false))
			}
			s.psus[i].off = false
			f.setInput(s, i, true)
		}
		f.powerChanged(s)
		for i := range s.fans {
			fn := &s.fans[i]
			fn.wear, fn.rate, fn.wobble, fn.stopped, fn.crossed = 0, 0, 0, false, false
		}
		for i := range s.gpus {
			boot = boot || s.gpus[i].broken()
		}
		if boot {
			f.renew(s)
			booted = append(booted, s.name)
		}
		s.kept = nil
	}
	for _, sw := range f.switches {
		for i := range sw.psus {
			f.setSwitchPSU(sw, i, func(p *psu) { p.input, p.failed = true, false })
		}
		f.setSwitchDown(sw, false)
		for _, p := range sw.ports {
			p.broken, p.degraded, p.loss = false, 0, 0
		}
	}
	for _, sw := range f.switches {
		f.links(sw)
	}
	return booted
}

// broken says whether a GPU needs a power cycle or an exchange.
func (g *gpu) broken() bool {
	return g.lost || g.dead || g.damaged || g.pending || g.hung || g.failing || g.ecc > 0 || g.nvErrRate > 0
}

// renew takes a server through a power cycle that is over.
func (f *Fleet) renew(s *server) {
	s.life++
	if s.power != device.PowerOff {
		f.setPower(s, device.PowerOff)
		f.selAdd(s, recPowerOff(true))
	}
	f.setPower(s, device.PowerOn)
	f.selAdd(s, recPowerOff(false))
	for i := range s.gpus {
		g := &s.gpus[i]
		g.lost, g.dead, g.damaged, g.ecc = false, false, false, 0
		g.clearVolatile()
	}
	s.host = hostBooting
	f.fail(s.klog.Boot(f.now, 0))
	f.bootLines(s)
	f.driverLines(s)
	s.host = hostUp
}

// bootLines prints how a kernel starts.
func (f *Fleet) bootLines(s *server) {
	f.event(
		s, kmsg.Notice, schemas.EventHostReboot, "", "",
		"Linux version 6.8.0-1029-nvidia (buildd@lcy02-amd64-066) (x86_64-linux-gnu-gcc-13) #32-Ubuntu SMP PREEMPT_DYNAMIC",
	)
	f.print(s, kmsg.Info, "Command line: BOOT_IMAGE=/boot/vmlinuz-6.8.0-1029-nvidia root=/dev/md0 ro console=ttyS0,115200n8")
	f.print(s, kmsg.Info, fmt.Sprintf("DMI: %s/%s, BIOS 1.6.7 02/21/2026", s.model, s.serial))
}

// driverLines prints how the driver finds the GPUs.
func (f *Fleet) driverLines(s *server) {
	f.print(s, kmsg.Notice, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  "+s.driverVersion())
	for i := range s.gpus {
		if g := &s.gpus[i]; !g.lost {
			f.print(s, kmsg.Info, fmt.Sprintf("nvidia %s: enabling device (0000 -> 0002)", g.pci))
			f.started(s, g)
		}
	}
}
