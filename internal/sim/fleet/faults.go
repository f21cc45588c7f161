package fleet

import (
	"fmt"
	"math"
	"strings"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/kmsg"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// SetFeed takes the power from what hangs on a PDU, or gives it back. The
// supplies notice it one after the other, within a second.
func (f *Fleet) SetFeed(name string, live bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.pdus[name]
	if !ok {
		return fmt.Errorf("pdu %q: %w", name, ErrUnknown)
	}
	f.feed(p, live)
	return nil
}

func (f *Fleet) feed(p *pdu, live bool) {
	p.live = live
	for _, s := range p.rack.servers {
		for i := range s.psus {
			if s.feedOf(i) == p.feed {
				f.after(f.jitter(100*time.Millisecond, time.Second), func() {
					f.setInput(s, i, p.live && !s.psus[i].off)
				})
			}
		}
	}
	if sw := p.rack.leaf; sw != nil {
		f.after(f.jitter(100*time.Millisecond, time.Second), func() {
			f.setSwitchPSU(sw, p.feed, func(u *psu) { u.input = p.live })
		})
	}
}

// SetPSU breaks a power supply of a server or a switch, or mends it.
func (f *Fleet) SetPSU(id string, failed bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	owner, part, _ := strings.Cut(id, "/")
	if s, i, ok := f.part(id, "psu", 0, psuCount); ok {
		if s.psus[i].failed != failed {
			s.psus[i].failed = failed
			f.selAdd(s, recPSUFailed(i, failed))
			f.powerChanged(s)
		}
		return nil
	}
	if sw, ok := f.swByName[owner]; ok {
		var n int
		if _, err := fmt.Sscanf(part, "psu%d", &n); err == nil && n >= 1 && n <= len(sw.psus) {
			f.setSwitchPSU(sw, n-1, func(p *psu) { p.failed = failed })
			return nil
		}
	}
	return fmt.Errorf("power supply %q: %w", id, ErrUnknown)
}

// part finds a part such as "gpu-r01-03/fan2" of a server; the number that is
// first is given, and i counts from 0.
func (f *Fleet) part(id, kind string, first, count int) (s *server, i int, ok bool) {
	owner, part, _ := strings.Cut(id, "/")
	s, ok = f.byName[owner]
	if !ok {
		return nil, 0, false
	}
	var n int
	if _, err := fmt.Sscanf(part, kind+"%d", &n); err != nil || part != fmt.Sprintf("%s%d", kind, n) || n < first || n >= first+count {
		return nil, 0, false
	}
	return s, n - first, true
}

func (f *Fleet) gpu(id string) (*server, *gpu, error) {
	s, i, ok := f.part(id, "gpu", 0, f.cfg.GPUs)
	if !ok {
		return nil, nil, fmt.Errorf("gpu %q: %w", id, ErrUnknown)
	}
	return s, &s.gpus[i], nil
}

func (f *Fleet) server(name string) (*server, error) {
	s, ok := f.byName[name]
	if !ok {
		return nil, fmt.Errorf("server %q: %w", name, ErrUnknown)
	}
	return s, nil
}

// LoseGPU lets a GPU fall off the bus: XID 79, the driver's verdict as XID 154,
// and silence. It comes back with a power cycle, unless the hardware is dead.
func (f *Fleet) LoseGPU(id string, dead bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, g, err := f.gpu(id)
	if err != nil {
		return err
	}
	g.dead = g.dead || dead
	if g.lost {
		return nil
	}
	part := fmt.Sprintf("gpu%d", g.index)
	f.event(
		s, kmsg.Info, schemas.EventHostPCIeAER, "link_down", part,
		fmt.Sprintf("pcieport %s: pciehp: Slot(%d): Link Down", strings.Replace(g.pci, ":00.0", ":01.0", 1), g.index+1),
	)
	f.print(s, kmsg.Info, kmsg.GPUAt(g.pci, g.uuid))
	f.print(s, kmsg.Info, "NVRM: GPU Board Serial Number: "+g.serial)
	f.xid(s, g, 79, kmsg.Process{}, "GPU has fallen off the bus.")
	g.lost = true
	f.later(s, f.jitter(20*time.Millisecond, 80*time.Millisecond), func() {
		f.event(s, kmsg.Err, schemas.EventGPUMissing, "", part, fmt.Sprintf("NVRM: GPU %s: GPU has fallen off the bus.", g.pci))
		f.print(s, kmsg.Err, fmt.Sprintf("NVRM: GPU %s: GPU serial number is %s.", g.pci, g.serial))
		f.xid(s, g, 154, kmsg.Process{}, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
		f.print(s, kmsg.Err, "NVRM: A GPU crash dump has been created. If possible, please run")
		f.print(s, kmsg.Err, "NVRM: nvidia-bug-report.sh as root to collect this data before")
		f.print(s, kmsg.Err, "NVRM: the NVIDIA kernel module is unloaded.")
	})
	f.later(s, f.jitter(200*time.Millisecond, 900*time.Millisecond), func() { f.selAdd(s, recGPULost(g.index)) })
	f.later(s, f.jitter(1500*time.Millisecond, 3*time.Second), func() {
		f.change(Change{Kind: GPULost, Server: s.name, GPU: g.index})
	})
	return nil
}

// CrashProgram prints what a program's fault leaves in the kernel log of a
// server: XID 13 or 31 on the GPU that made it, XID 43 after it, and XID 45 on
// every GPU when the driver removes the channels. The hardware is well.
func (f *Fleet) CrashProgram(name string, gpus []int, culprit bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err != nil {
		return err
	}
	for _, i := range gpus {
		if i < 0 || i >= len(s.gpus) {
			return fmt.Errorf("gpu %d of %q: %w", i, name, ErrUnknown)
		}
		g := &s.gpus[i]
		p := kmsg.Process{PID: g.load.PID, Name: g.load.Name}
		if g.lost || p.PID == 0 {
			continue
		}
		if culprit && (i == gpus[0] || f.rng.IntN(4) == 0) {
			f.later(s, f.jitter(0, 400*time.Millisecond), func() {
				if f.rng.IntN(2) == 0 {
					f.xid(s, g, 13, p, fmt.Sprintf(
						"Graphics SM Warp Exception on (GPC %d, TPC %d, SM %d): Out Of Range Address", f.rng.IntN(8), f.rng.IntN(9), f.rng.IntN(2),
					))
				} else {
					f.xid(s, g, 31, p, fmt.Sprintf(
						"Ch %08x, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC%d GPCCLIENT_T1_%d faulted @ 0x7f%02x_%08x. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
						f.rng.IntN(32), f.rng.IntN(8), f.rng.IntN(9), f.rng.IntN(256), f.rng.Uint32()))
				}
			})
		}
		f.later(s, f.jitter(600*time.Millisecond, 2*time.Second), func() {
			f.xid(s, g, 45, p, fmt.Sprintf("Ch %08x", f.rng.IntN(32)))
		})
	}
	return nil
}

// ErrorGPU prints an XID of a GPU with what belongs to it.
func (f *Fleet) ErrorGPU(id string, code int, detail string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, g, err := f.gpu(id)
	if err != nil {
		return err
	}
	p := kmsg.Process{PID: g.load.PID, Name: g.load.Name}
	if detail == "" {
		detail = "Internal error"
	}
	f.xid(s, g, code, p, detail)
	return nil
}

// LoseMemory makes an uncorrectable memory error in a GPU: XID 48, the row
// that will be remapped (63), and 94 where the error was contained or 95 where
// it was not.
func (f *Fleet) LoseMemory(id string, contained bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, g, err := f.gpu(id)
	if err != nil {
		return err
	}
	p := kmsg.Process{PID: g.load.PID, Name: g.load.Name}
	g.dbe++
	g.dbeAgg++
	f.xid(s, g, 48, kmsg.Process{}, fmt.Sprintf(
		"DBE (double bit error) ECC Error: An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physical address 0x%x partition %d, subpartition %d.",
		f.rng.Uint32(), f.rng.IntN(10), f.rng.IntN(2)))
	f.later(s, f.jitter(10*time.Millisecond, 100*time.Millisecond), func() {
		g.remapUE++
		g.pending = true
		f.xid(s, g, 63, kmsg.Process{}, "Row Remapper: New row marked for remapping, reset gpu to activate.")
	})
	f.later(s, f.jitter(100*time.Millisecond, 300*time.Millisecond), func() {
		if contained {
			f.xid(s, g, 94, p, "Contained: SM (0x1). RST: No, D-RST: No")
		} else {
			f.xid(s, g, 95, p, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")
		}
		f.xid(s, g, 154, kmsg.Process{}, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
	})
	f.later(s, f.jitter(time.Second, 2*time.Second), func() {
		f.change(Change{Kind: GPULost, Server: s.name, GPU: g.index})
	})
	return nil
}

// GrowECC lets correctable memory errors come at a rate per second that grows
// e-fold in three minutes; 0 stops it.
func (f *Fleet) GrowECC(id string, rate float64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, g, err := f.gpu(id)
	if err == nil {
		g.ecc = rate
	}
	return err
}

// BreakNVLink makes errors on a link of a GPU, and XID 74.
func (f *Fleet) BreakNVLink(id string, rate float64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, g, err := f.gpu(id)
	if err != nil {
		return err
	}
	g.nvErrRate = rate
	if rate <= 0 {
		return nil
	}
	nvlink := f.rng.IntN(18)
	f.later(s, 2*time.Second, func() {
		f.xid(
			s, g, 74, kmsg.Process{PID: g.load.PID, Name: g.load.Name},
			fmt.Sprintf("NVLink: fatal error detected on link %d(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", nvlink),
		)
		n := g.index % nvswitchCount
		text := kmsg.SXid(n, nvswitchPCI(n), 20034, fmt.Sprintf("Fatal, Link %02d LTSSM Fault Up", 30+g.index))
		f.event(s, kmsg.Err, schemas.EventNVSwitchSXid, "20034", fmt.Sprintf("nvswitch%d", n), text)
	})
	return nil
}

// WearFan lets the bearing of a fan wear so that, with the duty of now, its
// speed crosses the lower critical threshold after the given time. It returns
// the time that is expected.
func (f *Fleet) WearFan(id string, crossing time.Duration) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, i, ok := f.part(id, "fan", 1, fanCount)
	if !ok {
		return time.Time{}, fmt.Errorf("fan %q: %w", id, ErrUnknown)
	}
	fn := &s.fans[i]
	if crossing <= 0 {
		fn.rate, fn.wear, fn.wobble, fn.crossed = 0, 0, 0, false
		return time.Time{}, nil
	}
	left := 1 - fanLowRPM/(s.duty/100*fanMaxRPM) - fn.wear
	fn.rate = max(1e-6, left/crossing.Seconds())
	at := f.now.Add(crossing)
	f.led.Write(ledger.Entry{
		Time: f.now, Kind: ledger.KindCrossing, Type: "expected", Device: s.name, Part: fmt.Sprintf("fan%d", i+1),
		Code: schemas.EventFanSlow, At: &at, Limit: fanLowRPM, Value: math.Round(fn.rpm),
	})
	return at, nil
}

// StopFan blocks a fan, or frees it.
func (f *Fleet) StopFan(id string, stopped bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, i, ok := f.part(id, "fan", 1, fanCount)
	if !ok {
		return fmt.Errorf("fan %q: %w", id, ErrUnknown)
	}
	s.fans[i].stopped = stopped
	return nil
}

// SetCRAC stops an air handler, or starts it.
func (f *Fleet) SetCRAC(name string, failed bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.cracs {
		if c.name == name {
			c.failed = failed
			return nil
		}
	}
	return fmt.Errorf("air handler %q: %w", name, ErrUnknown)
}

func (f *Fleet) port(id string) (*port, error) {
	name, part, _ := strings.Cut(id, "/")
	if sw, ok := f.swByName[name]; ok {
		for _, p := range sw.ports {
			if p.Name == part {
				return p, nil
			}
		}
	}
	return nil, fmt.Errorf("port %q: %w", id, ErrUnknown)
}

// SetLink cuts the cable of a port, or joins it again.
func (f *Fleet) SetLink(id string, broken bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.port(id)
	if err != nil {
		return err
	}
	f.cut(p, broken)
	return nil
}

func (f *Fleet) cut(p *port, broken bool) {
	p.broken = broken
	f.link(p)
	if p.peer != nil {
		f.link(p.peer)
	}
}

// FlapLink cuts and joins a link again and again.
func (f *Fleet) FlapLink(id string, times int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.port(id)
	if err != nil {
		return err
	}
	var at time.Duration
	for range times {
		f.after(at, func() { f.cut(p, true) })
		at += f.jitter(500*time.Millisecond, 2*time.Second)
		f.after(at, func() { f.cut(p, false) })
		at += f.jitter(2*time.Second, 5*time.Second)
	}
	return nil
}

// DegradeOptics lets the receiver of a port lose the given decibels a minute;
// 0 cleans it.
func (f *Fleet) DegradeOptics(id string, perMinute float64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.port(id)
	if err != nil {
		return err
	}
	p.degraded = perMinute
	if perMinute == 0 {
		p.loss = 0
		f.cut(p, false)
	}
	return nil
}

// SetSwitch kills a switch, or boots it.
func (f *Fleet) SetSwitch(name string, dead bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	sw, ok := f.swByName[name]
	if !ok {
		return fmt.Errorf("switch %q: %w", name, ErrUnknown)
	}
	f.setSwitchDown(sw, dead)
	return nil
}

// SetBMCFault says how the answers of a board controller go wrong.
func (f *Fleet) SetBMCFault(name string, fault device.Fault) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err == nil {
		s.bmc = fault
	}
	return err
}

// SkewBMC sets the clock of a board controller off by d.
func (f *Fleet) SkewBMC(name string, d time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err == nil {
		s.skew = d
	}
	return err
}

// CrashHost makes the kernel of a server panic; with a memory error as its
// cause where dimm is not negative.
func (f *Fleet) CrashHost(name string, dimm int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err != nil {
		return err
	}
	if dimm < 0 {
		f.panicHost(s, "Fatal exception in interrupt")
		return nil
	}
	if err := s.wear(dimm, true); err != nil {
		return err
	}
	f.event(s, kmsg.Emergency, schemas.EventHostMCE, "", fmt.Sprintf("dimm%d", dimm), fmt.Sprintf(
		"mce: Uncorrected hardware memory error in user-access at %x", 0x1f4a2c0000+dimm<<30))
	f.selAdd(s, recMemory(dimm, true))
	f.panicHost(s, "Fatal machine check")
	return nil
}

// WearMemory tells that a memory module corrects too many errors.
func (f *Fleet) WearMemory(name string, dimm int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err != nil {
		return err
	}
	if err := s.wear(dimm, false); err != nil {
		return err
	}
	f.selAdd(s, recMemory(dimm, false))
	return nil
}

// Note writes the begin or the end of a fault to the ledger.
func (f *Fleet) Note(kind string, begin bool, targets []string, detail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := ledger.Entry{Time: f.now, Kind: ledger.KindFault, Type: "begin", Code: kind, Targets: targets, Message: detail}
	if !begin {
		e.Type = "end"
	}
	if len(targets) > 0 {
		e.Device, e.Part, _ = strings.Cut(targets[0], "/")
	}
	f.led.Write(e)
}
