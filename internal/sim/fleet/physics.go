package fleet

import (
	"fmt"
	"math"
	"slices"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// Constants of the model. The GPU is of the class of an H100 SXM: 700 W, 1980
// MHz, 80 GiB. The rest is chosen so that a healthy fleet stays well inside its
// thresholds and a fault shows within seconds.
const (
	supplyCelsius = 20.0
	failedCelsius = 44.0 // where the supply air of a failed air handler ends

	idleWatts  = 72.0
	tdpWatts   = PowerLimitW
	brakeWatts = 380.0
	idleClock  = 345.0
	maxClock   = 1980.0
	memClock   = 2619.0
	frameMiB   = 81559.0

	fanMaxRPM  = 16000.0
	fanLowRPM  = 6000.0 // lower critical threshold
	idleDuty   = 46.0
	dutyStep   = 3.0 // percent by which the controller must be off before it acts
	psuWatts   = 3300.0
	psuLoss    = 0.94
	inletHighC = 35.0
)

// Thresholds of a GPU and of its memory, as the host and the board controller report them.
const (
	PowerLimitW   = 700.0
	MaxOperatingC = 85.0
	SlowdownC     = 87.0
	ShutdownC     = 92.0
	MemoryMaxC    = 95.0
)

// Bits of DCGM_FI_DEV_CLOCKS_EVENT_REASONS (nvml.h, nvmlClocksEventReason*).
const (
	ReasonIdle       = 0x1
	ReasonPowerCap   = 0x4
	ReasonHWSlowdown = 0x8
	ReasonSWThermal  = 0x20
	ReasonPowerBrake = 0x80
)

// toward moves x to target with a time constant, in seconds.
func toward(x, target, dt, tau float64) float64 {
	return target + (x-target)*math.Exp(-dt/tau)
}

func (f *Fleet) noise(sd float64) float64 { return f.rng.NormFloat64() * sd }

func (f *Fleet) physics(d time.Duration) {
	dt := d.Seconds()
	for _, c := range f.cracs {
		if c.failed {
			c.supply = toward(c.supply, failedCelsius, dt, 120)
		} else {
			c.supply = toward(c.supply, supplyCelsius, dt, 60)
		}
	}
	for _, r := range f.racks {
		var w float64
		for _, s := range r.servers {
			w += s.watts
		}
		recirculation := 2 + w/float64(len(r.servers))/10000*2
		r.inlet = toward(r.inlet, r.crac.supply+recirculation, dt, 20)
		for _, s := range r.servers {
			f.stepServer(s, dt)
		}
	}
	for _, sw := range f.switches {
		f.stepSwitch(sw, dt)
	}
	f.watchFeeds(d)
}

func (f *Fleet) stepServer(s *server, dt float64) {
	s.inlet = s.rack.inlet + float64(s.index%4)*0.3 + f.noise(0.08)
	on := s.power == device.PowerOn || s.power == device.PowerPoweringOff
	live := s.live()
	f.stepFans(s, dt, on && live > 0)
	var flow float64
	for i := range s.fans {
		flow += s.fans[i].rpm
	}
	flow = max(0.05, flow/fanCount/fanMaxRPM)

	var board, hottest, busy float64
	most, limited := s.share()
	for i := range s.gpus {
		g := &s.gpus[i]
		f.stepGPU(s, g, dt, on && live > 0, flow, most, limited)
		board += g.watts
		busy += g.util
		hottest = max(hottest, g.temp)
	}
	busy /= float64(len(s.gpus))
	if !on || live == 0 {
		s.watts = toward(s.watts, 0, dt, 1)
		s.outlet = toward(s.outlet, s.inlet, dt, 60)
		for i := range s.cpus {
			s.cpus[i] = toward(s.cpus[i], s.inlet, dt, 60)
		}
		for i := range s.psus {
			p := &s.psus[i]
			p.watts, p.volts = 0, 0
			if p.input {
				p.watts, p.volts = 9, 230+f.noise(0.4) // standby
			}
		}
		return
	}
	cpu := 110 + 170*busy
	board += cpuCount*cpu + nicCount*24 + nvswitchCount*(60+50*busy) + 260
	for i := range s.fans {
		r := s.fans[i].rpm / fanMaxRPM
		board += 75 * r * r * r
	}
	s.watts = board / psuLoss
	for i := range s.psus {
		p := &s.psus[i]
		switch {
		case !p.input:
			p.watts, p.volts = 0, 0
		case p.failed:
			p.watts, p.volts = 0, 230+f.noise(0.4)
		default:
			p.watts, p.volts = s.watts/float64(live)*(1+f.noise(0.004)), 230+f.noise(0.4)
		}
	}
	for i := range s.cpus {
		s.cpus[i] = toward(s.cpus[i], s.inlet+cpu*0.13*math.Pow(0.6/flow, 0.5), dt, 12)
	}
	s.outlet = toward(s.outlet, s.inlet+board/(flow*1000), dt, 15)
	// The controller of the fans follows the hottest GPU in steps, so that a short
	// pause of the load does not make the fans howl up and down.
	want := min(100, max(idleDuty, idleDuty+0.5*(hottest-42)))
	if math.Abs(want-s.setDuty) > dutyStep || want == 100 {
		s.setDuty = math.Round(want)
	}
	s.duty = toward(s.duty, s.setDuty, dt, 4)
	f.watchTemperatures(s)
}

func (f *Fleet) stepGPU(s *server, g *gpu, dt float64, on bool, flow, most float64, limited bool) {
	if !on {
		g.util, g.watts, g.clock, g.reasons = 0, 0, 0, 0
		g.temp = toward(g.temp, s.inlet, dt, 60)
		return
	}
	util := g.load.Util
	if g.lost || s.host != hostUp {
		util = 0
	}
	if util > 0 {
		// A training job pauses for its checkpoint.
		if t := math.Mod(float64(f.now.UnixMilli())/1000+g.load.Phase, 300); t < 4 && !f.settling {
			util *= 0.55
		}
		util = min(1, max(0, util+f.noise(0.01)))
	}
	g.util = util
	limit := g.set.PowerLimit
	g.reasons = 0
	if s.brake {
		limit = brakeWatts
		g.reasons |= ReasonHWSlowdown | ReasonPowerBrake
	}
	if limited && most < limit {
		limit = most
	}
	ratio := g.set.SMClock / maxClock
	if g.temp > SlowdownC {
		ratio = min(ratio, max(0.3, 1-(g.temp-SlowdownC)*0.08))
		g.reasons |= ReasonSWThermal
		g.thermalUS += dt * 1e6
	}
	watts := idleWatts + (0.97*tdpWatts-idleWatts)*util*math.Pow(ratio, 1.6)
	if watts > limit {
		ratio *= math.Pow((limit-idleWatts)/(watts-idleWatts), 1/1.6)
		watts = limit
		g.powerUS += dt * 1e6
		if !s.brake {
			g.reasons |= ReasonPowerCap
		}
	}
	if util == 0 {
		g.reasons |= ReasonIdle
		g.clock = idleClock
	} else {
		g.clock = maxClock * ratio
	}
	g.watts = max(0, watts+f.noise(3))
	if g.lost {
		g.watts = 25
	}
	resistance := 0.058 * math.Pow(0.6/flow, 0.6)
	g.temp = toward(g.temp, s.inlet+float64(g.index%4)*1.2+g.watts*resistance, dt, 14)
	if f.settling { // no time passes
		return
	}
	g.energy += g.watts * dt
	g.nvBytes += util * 2.1e11 * dt * (1 + f.noise(0.02))
	g.txBytes += util * 3.2e9 * dt * (1 + f.noise(0.05))
	g.rxBytes += util * 5.5e9 * dt * (1 + f.noise(0.05))
	if g.ecc > 0 {
		n := f.poisson(g.ecc * dt)
		g.sbe += n
		g.sbeAgg += n
		g.ecc *= math.Exp(dt / 180)
	}
	if g.nvErrRate > 0 {
		n := f.poisson(g.nvErrRate * dt)
		g.crc += n
		g.nvReplays += f.poisson(g.nvErrRate * dt / 4)
	}
}

func (f *Fleet) poisson(mean float64) float64 {
	if mean > 50 {
		return max(0, math.Round(mean+f.noise(math.Sqrt(mean))))
	}
	l, k, p := math.Exp(-mean), 0.0, 1.0
	for {
		if p *= f.rng.Float64(); p <= l {
			return k
		}
		k++
	}
}

// stepFans turns the fans: speed follows the duty at once compared with a
// second; wear takes a share of it away, with a wobble that a bearing has.
func (f *Fleet) stepFans(s *server, dt float64, on bool) {
	for i := range s.fans {
		fn := &s.fans[i]
		if !on || fn.stopped {
			fn.rpm = toward(fn.rpm, 0, dt, 2)
			if fn.rpm < 50 {
				fn.rpm = 0
			}
			if on && !fn.alarm {
				f.fanAlarm(s, i, true)
			}
			continue
		}
		if fn.rate > 0 && !f.settling {
			fn.wear = min(0.95, fn.wear+fn.rate*dt*max(0, 1+f.noise(0.4)))
			fn.wobble = toward(fn.wobble, f.noise(0.004), dt, 15)
		}
		clean := s.duty / 100 * fanMaxRPM * (1 - fn.wear)
		fn.rpm = max(0, clean*(1+fn.wobble)+f.noise(18))
		if fn.rate > 0 && !fn.crossed && clean < fanLowRPM {
			fn.crossed = true
			f.led.Write(ledger.Entry{
				Time: f.now, Kind: ledger.KindCrossing, Type: "crossed", Device: s.name, Part: fmt.Sprintf("fan%d", i+1),
				Code: schemas.EventFanSlow, Limit: fanLowRPM, Value: math.Round(clean),
			})
		}
		switch {
		case !fn.alarm && fn.rpm < fanLowRPM-100:
			f.fanAlarm(s, i, true)
		case fn.alarm && fn.rpm > fanLowRPM+200:
			f.fanAlarm(s, i, false)
		}
	}
}

func (f *Fleet) fanAlarm(s *server, i int, on bool) {
	s.fans[i].alarm = on
	f.selAdd(s, recFanLow(i, s.fans[i].rpm, on))
}

// watchTemperatures raises the inlet alarm and, when a GPU is beyond its limit,
// the line of the kernel that tells of it.
func (f *Fleet) watchTemperatures(s *server) {
	switch {
	case !s.tempAlarm && s.inlet > inletHighC:
		s.tempAlarm = true
		f.selAdd(s, recInletHigh(s.inlet, true))
	case s.tempAlarm && s.inlet < inletHighC-2:
		s.tempAlarm = false
		f.selAdd(s, recInletHigh(s.inlet, false))
	}
}

// setInput changes the input of a power supply and tells it as a board
// controller does.
func (f *Fleet) setInput(s *server, i int, live bool) {
	p := &s.psus[i]
	if p.input == live {
		return
	}
	p.input = live
	switch fed := slices.ContainsFunc(s.psus[:], func(p psu) bool { return p.input }); {
	case !fed:
		s.board.dark = true
	case s.board.dark: // standby power is back, and the controller starts
		s.board.dark = false
		f.restartBMC(s)
	}
	f.selAdd(s, recInput(i, !live))
	f.powerChanged(s)
}

// powerChanged re-computes redundancy and the power brake, and takes the server
// down when nothing feeds it.
func (f *Fleet) powerChanged(s *server) {
	live := s.live()
	if red := live > psuCount/2; red != s.redundant {
		s.redundant = red
		f.after(f.jitter(50*time.Millisecond, 300*time.Millisecond), func() {
			if s.redundant == red {
				f.selAdd(s, recRedundancy(!red))
			}
		})
	}
	on := s.power == device.PowerOn
	if brake := on && live <= psuCount/2; brake != s.brake {
		s.brake = brake
		f.after(f.jitter(100*time.Millisecond, 600*time.Millisecond), func() {
			if s.brake == brake {
				f.selAdd(s, recThrottled(brake))
			}
		})
	}
	switch {
	case live == 0 && s.power != device.PowerOff:
		f.powerOff(s)
		s.starved = true
	case live > 0 && s.starved:
		s.starved = false
		f.powerOn(s)
	}
}
