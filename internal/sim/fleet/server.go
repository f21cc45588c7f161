package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"auspex/internal/sim/appendfile"
	"auspex/internal/sim/device"
	"auspex/internal/sim/kmsg"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// Parts of a server, beside its GPUs.
const (
	fanCount      = 8
	psuCount      = 6
	nicCount      = 8
	nvswitchCount = 4
	cpuCount      = 2
	dimmCount     = 16
	diskCount     = 2
	cabledNICs    = 2 // the NICs with a cable to the rack's leaf
)

// How long the steps of a change of power take.
const (
	acceptDelay   = 300 * time.Millisecond
	offDelay      = time.Second
	gracefulDelay = 5 * time.Second
	cyclePause    = 3 * time.Second
	onDelay       = 2 * time.Second
	firmwareDelay = 8 * time.Second // until the kernel starts
	servicesDelay = 6 * time.Second // until the exporter and slurmd answer
	panicDelay    = 10 * time.Second
)

type hostState int

const (
	hostOff hostState = iota
	hostFirmware
	hostBooting // the kernel runs, no service yet
	hostUp
	hostDead      // the kernel has panicked
	hostInstaller // an installer's system runs, from the network
)

type server struct {
	name   string
	rack   *rack
	index  int
	serial string
	uuid   string
	model  string
	macs   []string

	power     device.PowerState
	reset     time.Time // when the host last got power
	host      hostState
	life      int // changes with each change of power: what was planned before no longer happens
	klog      *kmsg.Log
	fabricLog *appendfile.File // of the fabric manager
	bmc       device.Fault
	board     board
	boot      device.Boot
	limit     limit
	skew      time.Duration

	gpus []gpu
	psus [psuCount]psu
	fans [fanCount]fan
	nics [nicCount]nic

	dimms [dimmCount]MachineDIMM
	disks [diskCount]disk

	noFabric bool // its fabric manager has died

	cpus [cpuCount]float64 // degrees Celsius

	inlet, outlet float64
	duty          float64 // percent
	setDuty       float64 // where the controller wants the duty
	watts         float64 // drawn from the feeds, after losses
	redundant     bool
	starved       bool // off because nothing fed it: it starts by itself when power is back
	brake         bool
	tempAlarm     bool
	rigid         bool // its driver cannot be unloaded

	os      system
	netMAC  string // of the interface that it has started by from the network
	install InstallFault

	sel      []device.LogRecord
	selNext  uint16
	selEpoch time.Time
	sensors  []device.Sensor

	kept *ServerState // of the run before, until it is mended
}

type gpu struct {
	index   int
	pci     string
	uuid    string
	serial  string
	lost    bool
	dead    bool // does not come back with power
	ecc     float64
	load    Load
	util    float64
	temp    float64
	watts   float64
	clock   float64
	reasons uint64
	energy  float64 // joules

	xid        int
	sbe        float64
	dbe        float64
	sbeAgg     float64
	dbeAgg     float64
	remapCE    float64
	remapUE    float64
	pending    bool
	replays    float64
	crc        float64
	nvReplays  float64
	nvBytes    float64
	txBytes    float64
	rxBytes    float64
	thermalUS  float64
	powerUS    float64
	pcieReplay float64
	nvErrRate  float64

	set      GPUSettings
	eccNow   bool
	hung     bool // calls of its driver do not return
	failing  bool // calls of its driver return errors
	weak     bool // a cell of its memory does not keep what is written
	wrong    bool // a multiprocessor computes something else
	stubborn bool // cannot be reset
	slips    bool // does not take settings
	damaged  bool // the files of its driver are, which only another installation mends
	apart    bool // was started anew, and no fabric manager has registered it since
}

type psu struct {
	input  bool // the feed gives power
	off    bool // its outlet is switched off
	failed bool
	watts  float64
	volts  float64
}

type fan struct {
	wear    float64 // share of the speed that is lost
	rate    float64 // per second
	wobble  float64
	stopped bool
	rpm     float64
	crossed bool
	alarm   bool
}

type nic struct {
	pci   string
	netif string
	down  bool
}

// Load is the work of a GPU.
type Load struct {
	Util   float64 // 0 to 1; 0 is idle
	Memory float64 // share of the frame buffer in use
	PID    int
	Name   string
	Phase  float64 // seconds by which the dips of this job are shifted
}

var gpuPCI = []string{
	"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0", "0000:9d:00.0", "0000:c3:00.0", "0000:d1:00.0", "0000:df:00.0",
	"0000:22:00.0", "0000:2f:00.0", "0000:38:00.0", "0000:6a:00.0", "0000:a4:00.0", "0000:ab:00.0", "0000:b8:00.0", "0000:e7:00.0",
}

var nicPCI = [nicCount]string{
	"0000:18:00.0", "0000:40:00.0", "0000:4f:00.0", "0000:5e:00.0", "0000:9a:00.0", "0000:c0:00.0", "0000:ce:00.0", "0000:dc:00.0",
}

func digest(parts ...string) string {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(h[:])
}

func uuidOf(parts ...string) string {
	d := digest(parts...)
	return fmt.Sprintf("%s-%s-4%s-a%s-%s", d[:8], d[8:12], d[13:16], d[17:20], d[20:32])
}

func (f *Fleet) newServer(rk *rack, index int, logPath string) *server {
	name := fmt.Sprintf("gpu-r%02d-%02d", rk.index+1, index+1)
	d := digest(f.cfg.Site, name)
	s := &server{
		name: name, rack: rk, index: index, model: "AX-8800 H100", serial: "AX" + strings.ToUpper(d[:9]), uuid: uuidOf(f.cfg.Site, name),
		power: device.PowerOn, reset: f.now, host: hostUp, klog: kmsg.New(logPath + ".kmsg"),
		boot: device.Boot{Enabled: "Disabled", Target: "None", Mode: "UEFI"}, os: system{machine: digest(f.cfg.Site, name, "system")[:32]},
		inlet: rk.inlet, outlet: rk.inlet + 8, duty: idleDuty, setDuty: idleDuty, redundant: true, selNext: 1,
		selEpoch: f.now.Truncate(time.Second),
	}
	for i := range f.cfg.GPUs {
		s.gpus = append(s.gpus, gpu{
			index: i, pci: gpuPCI[i], uuid: "GPU-" + uuidOf(f.cfg.Site, name, "gpu", strconv.Itoa(i)),
			serial: fmt.Sprintf("165%010d", f.rng.Int64N(1e10)), temp: rk.inlet + 10, watts: idleWatts, clock: idleClock,
			energy: float64(f.rng.IntN(4e9)), replays: float64(f.rng.IntN(3)), sbeAgg: float64(f.rng.IntN(4)),
		})
	}
	s.fabricLog = appendfile.New(64<<10, func() (*os.File, error) {
		return os.OpenFile(s.fabricPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	})
	s.board = newBoard(f.now)
	for i := range s.gpus {
		g := &s.gpus[i]
		g.set.ECC, g.eccNow = true, true
		g.defaultSettings()
	}
	for i := range s.psus {
		s.psus[i] = psu{input: true, volts: 230}
	}
	for i := range s.nics {
		s.nics[i] = nic{pci: nicPCI[i], netif: fmt.Sprintf("ens%df0np0", i+1)}
		s.macs = append(s.macs, fmt.Sprintf("b8:3f:d2:%s:%s:%02x", d[10:12], d[12:14], i*2))
	}
	s.cpus = [cpuCount]float64{40, 40}
	s.newDisks(f.cfg.Site)
	s.sensors = s.newSensors()
	return s
}

func (s *server) feedOf(psuIndex int) int {
	if psuIndex < psuCount/2 {
		return 0
	}
	return 1
}

// up tells whether programs on the host run.
func (s *server) up() bool { return s.host == hostUp }

// live counts the power supplies that deliver.
func (s *server) live() int {
	n := 0
	for _, p := range s.psus {
		if p.input && !p.failed {
			n++
		}
	}
	return n
}

// print writes a line of the kernel log that means nothing to anybody.
func (f *Fleet) print(s *server, priority int, text string) {
	if s.host == hostDead {
		return
	}
	_, _, err := s.klog.Write(f.now, priority, text)
	f.fail(err)
}

// event writes a line of the kernel log that is an event, and notes it.
func (f *Fleet) event(s *server, priority int, typ, code, part, text string) {
	if s.host == hostDead {
		return
	}
	seq, ok, err := s.klog.Write(f.now, priority, text)
	f.fail(err)
	if !ok {
		return
	}
	f.led.Write(ledger.Entry{
		Time: f.now, Kind: ledger.KindRecord, Device: s.name, Part: part, Protocol: "kmsg", Record: seq, Epoch: s.klog.BootID(),
		Type: typ, Code: code, Message: text,
	})
}

func (f *Fleet) xid(s *server, g *gpu, code int, p kmsg.Process, detail string) {
	g.xid = code
	f.event(s, kmsg.Err, schemas.EventGPUXID, strconv.Itoa(code), fmt.Sprintf("gpu%d", g.index), kmsg.Xid(g.pci, code, p, detail))
}

// setPower changes the power state and notes it.
func (f *Fleet) setPower(s *server, p device.PowerState) {
	if s.power == p {
		return
	}
	s.power = p
	if p == device.PowerOn {
		s.reset = f.now
	}
	f.led.Write(ledger.Entry{Time: f.now, Kind: ledger.KindPower, Device: s.name, Code: string(p)})
}

// later runs fn unless the server's power was changed by something else first.
func (f *Fleet) later(s *server, d time.Duration, fn func()) {
	life := s.life
	f.after(d, func() {
		if s.life == life {
			fn()
		}
	})
}

func (f *Fleet) hostGone(s *server) {
	was := s.host
	s.host = hostOff
	f.fail(s.klog.Down())
	for i := range s.gpus {
		s.gpus[i].load = Load{}
	}
	if was == hostUp || was == hostDead {
		f.change(Change{Kind: HostDown, Server: s.name})
	}
}

// powerOff takes the power from the server at once.
func (f *Fleet) powerOff(s *server) {
	s.life++
	f.hostGone(s)
	f.setPower(s, device.PowerOff)
	f.selAdd(s, recPowerOff(true))
	f.nicLinks(s)
}

// powerOn starts a server that is off.
func (f *Fleet) powerOn(s *server) {
	s.life++
	if s.live() == 0 {
		return
	}
	f.setPower(s, device.PowerPoweringOn)
	f.later(s, onDelay, func() {
		f.setPower(s, device.PowerOn)
		f.selAdd(s, recPowerOff(false))
		f.nicLinks(s)
		for i := range s.gpus { // power was away: the bus is trained anew
			g := &s.gpus[i]
			if g.lost && !g.dead {
				g.lost = false
				defer f.change(Change{Kind: GPUBack, Server: s.name, GPU: i})
			}
			g.clearVolatile()
		}
		f.startHost(s)
	})
}

func (g *gpu) clearVolatile() {
	g.sbe, g.dbe, g.xid, g.replays, g.crc, g.nvReplays, g.nvErrRate = 0, 0, 0, 0, 0, 0, 0
	g.nvBytes, g.txBytes, g.rxBytes, g.energy, g.thermalUS, g.powerUS = 0, 0, 0, 0, 0, 0
	g.pending, g.hung, g.failing = false, false, g.failing && (g.dead || g.damaged)
}

// startHost runs the firmware and boots the operating system.
func (f *Fleet) startHost(s *server) {
	s.host = hostFirmware
	f.applyBIOS(s)
	s.reset = f.now
	for i := range s.gpus {
		g := &s.gpus[i]
		g.defaultSettings()
		g.eccNow = g.set.ECC
	}
	fromNet := s.boot.Enabled != "Disabled" && s.boot.Target == "Pxe"
	if s.boot.Enabled == "Once" {
		s.boot = device.Boot{Enabled: "Disabled", Target: "None", Mode: s.boot.Mode}
	}
	f.later(s, firmwareDelay, func() {
		if fromNet {
			f.netboot(s)
		} else {
			f.diskboot(s)
		}
	})
}

// shutdown ends the operating system in order, then does what comes next.
func (f *Fleet) shutdown(s *server, then func()) {
	s.life++
	if s.host == hostUp || s.host == hostBooting {
		f.print(s, kmsg.Daemon|kmsg.Info, "systemd-shutdown[1]: Syncing filesystems and block devices.")
	} else {
		f.later(s, offDelay, then) // no system that could shut down
		return
	}
	f.later(s, gracefulDelay, func() {
		f.hostGone(s)
		f.later(s, offDelay, then)
	})
}

// reset starts what a BMC accepted.
func (f *Fleet) reset(s *server, t device.ResetType) {
	s.life++
	s.starved = false
	on := s.power == device.PowerOn || s.power == device.PowerPoweringOn
	switch t {
	case device.ResetOn:
		if !on {
			f.later(s, acceptDelay, func() { f.powerOn(s) })
		}
	case device.ResetForceOff:
		f.setPower(s, device.PowerPoweringOff)
		f.later(s, acceptDelay, func() { f.powerOff(s) })
	case device.ResetGracefulShutdown:
		if !on {
			return
		}
		f.setPower(s, device.PowerPoweringOff)
		f.shutdown(s, func() { f.powerOff(s) })
	case device.ResetPowerCycle:
		f.setPower(s, device.PowerPoweringOff)
		f.later(s, offDelay, func() {
			f.powerOff(s)
			f.later(s, cyclePause, func() { f.powerOn(s) })
		})
	case device.ResetForceRestart:
		if !on {
			return
		}
		f.later(s, acceptDelay, func() { f.warmRestart(s) })
	case device.ResetGracefulRestart:
		if !on {
			return
		}
		f.shutdown(s, func() { f.warmRestart(s) })
	case device.ResetNmi:
		f.later(s, acceptDelay, func() { f.panicHost(s, "NMI: Not continuing") })
	}
}

// warmRestart boots the host again with power all the time: a GPU that is lost
// stays lost.
func (f *Fleet) warmRestart(s *server) {
	s.life++
	f.hostGone(s)
	for i := range s.gpus {
		s.gpus[i].clearVolatile()
	}
	f.startHost(s)
}

// panicHost ends the kernel; the host restarts by itself after a while.
func (f *Fleet) panicHost(s *server, why string) {
	if s.host != hostUp {
		return
	}
	s.life++
	f.print(s, kmsg.Warning, "CPU: 37 PID: 0 Comm: swapper/37 Tainted: G           OE      6.8.0-1029-nvidia #32-Ubuntu")
	f.event(s, kmsg.Emergency, schemas.EventHostPanic, "", "", "Kernel panic - not syncing: "+why)
	s.host = hostDead
	for i := range s.gpus {
		s.gpus[i].load = Load{}
	}
	f.change(Change{Kind: HostDown, Server: s.name})
	f.selAdd(s, recOSStop())
	f.later(s, panicDelay, func() { f.warmRestart(s) })
}
