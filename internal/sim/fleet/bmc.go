package fleet

import (
	"fmt"
	"math"
	"slices"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
)

// selCapacity is how many records a board controller keeps; the oldest go first.
const selCapacity = 4000

// BMC returns the board controller of a server, or nil for a name that is not one.
func (f *Fleet) BMC(name string) device.BMC {
	s, ok := f.byName[name]
	if !ok {
		return nil
	}
	return &bmc{f, s}
}

type bmc struct {
	f *Fleet
	s *server
}

func (b *bmc) Info() device.Info {
	return device.Info{
		Name: b.s.name, Manufacturer: "Auspex Simulations", Model: b.s.model, Serial: b.s.serial, UUID: b.s.uuid,
		Firmware: b.Firmware()[0].Version, MACs: slices.Clone(b.s.macs), Users: []string{User},
	}
}

func (b *bmc) Password(user string) (string, bool) {
	if user != User {
		return "", false
	}
	return b.f.Password(), true
}

func (b *bmc) Power() device.PowerState {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.s.power
}

func (b *bmc) LastReset() time.Time {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.s.reset.Add(b.s.skew)
}

func (b *bmc) Reset(t device.ResetType, via, requestID string) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	switch t {
	case device.ResetOn, device.ResetForceOff, device.ResetGracefulShutdown, device.ResetGracefulRestart, device.ResetForceRestart,
		device.ResetPowerCycle, device.ResetNmi:
	default:
		return fmt.Errorf("reset %q: %w", t, device.ErrUnsupported)
	}
	b.f.now = b.f.clock()
	e := ledger.Entry{
		Time: b.f.now, Kind: ledger.KindReset, Device: b.s.name, Protocol: via, Type: "accepted", Code: string(t), RequestID: requestID,
		Message: "power is " + string(b.s.power),
	}
	if b.s.bmc.IgnoreSets {
		e.Type = "ignored"
	}
	b.f.led.Write(e)
	if !b.s.bmc.IgnoreSets {
		b.f.reset(b.s, t)
	}
	return nil
}

func (b *bmc) Boot() device.Boot {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.s.boot
}

func (b *bmc) SetBoot(v device.Boot) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if !b.s.bmc.IgnoreSets {
		b.s.boot = v
	}
	return nil
}

func (b *bmc) Log() ([]device.LogRecord, time.Time) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return slices.Clone(b.s.sel), b.s.selEpoch
}

func (b *bmc) ClearLog() {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.s.sel, b.s.selNext = nil, 1
	b.s.selEpoch = b.f.clock().Add(b.s.skew).Truncate(time.Second)
}

func (b *bmc) Now() time.Time {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.f.clock().Add(b.s.skew)
}

func (b *bmc) SetClock(t time.Time) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.s.skew = t.Sub(b.f.clock())
}

// Fault also tells of a controller without power: not even standby is left when
// both feeds are gone.
func (b *bmc) Fault() device.Fault {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	v := b.s.bmc
	v.Away = b.f.clock().Before(b.s.board.away)
	if !slices.ContainsFunc(b.s.psus[:], func(p psu) bool { return p.input }) {
		v.Mute = true
	}
	return v
}

func (b *bmc) GPUs() []device.GPU {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	out := make([]device.GPU, 0, len(b.s.gpus))
	for i := range b.s.gpus {
		g := &b.s.gpus[i]
		v := device.GPU{
			Index: i, Name: fmt.Sprintf("gpu%d", i), Model: gpuModel, Serial: g.serial, UUID: g.uuid, PCI: g.pci,
			Present: !g.lost && b.s.power == device.PowerOn,
		}
		if v.Present {
			v.Temperature, v.MemoryTemp, v.PowerWatts, v.ClockMHz = tenth(g.temp), tenth(g.memTemp()), tenth(g.watts), math.Round(g.clock)
		}
		out = append(out, v)
	}
	return out
}

const gpuModel = "NVIDIA H100 80GB HBM3"

func (g *gpu) memTemp() float64 { return g.temp + 4 + g.watts*0.008 }

func tenth(x float64) float64 { return math.Round(x*10) / 10 }

// Numbers of the sensors; a range of each kind.
const (
	numInlet    = 0x01
	numOutlet   = 0x02
	numCPU      = 0x04
	numDIMM     = 0x08
	numFan      = 0x10
	numDuty     = 0x1f
	numPSUState = 0x20
	numPSUWatts = 0x28
	numPSUVolts = 0x30
	numTotal    = 0x38
	num12V      = 0x39
	numUnit     = 0x3a
	numEventLog = 0x3b
	numGPUTemp  = 0x40
	numGPUMem   = 0x50
	numGPUWatts = 0x60
)

// newSensors lists the sensors without values.
func (s *server) newSensors() []device.Sensor {
	nan := math.NaN()
	none := func(x device.Sensor) device.Sensor {
		x.LNC, x.LC, x.LNR, x.UNC, x.UC, x.UNR = nan, nan, nan, nan, nan, nan
		return x
	}
	upper := func(x device.Sensor, unc, uc, unr float64) device.Sensor {
		x = none(x)
		x.UNC, x.UC, x.UNR = unc, uc, unr
		return x
	}
	out := []device.Sensor{
		upper(device.Sensor{Number: numInlet, Name: "Inlet Temp", Kind: device.SensorTemperature, MaxRange: 127}, inletHighC, 40, 45),
		upper(device.Sensor{Number: numOutlet, Name: "Outlet Temp", Kind: device.SensorTemperature, MaxRange: 127}, 70, 75, 80),
	}
	for i := range cpuCount {
		out = append(out, upper(device.Sensor{
			Number: byte(numCPU + i), Name: fmt.Sprintf("CPU%d Temp", i), Part: fmt.Sprintf("cpu%d", i), Kind: device.SensorTemperature,
			MaxRange: 127,
		}, 90, 95, 100))
	}
	for i := range fanCount {
		x := none(device.Sensor{
			Number: byte(numFan + i), Name: fmt.Sprintf("FAN%d", i+1), Part: fmt.Sprintf("fan%d", i+1), Kind: device.SensorFan, MaxRange: 20400,
		})
		x.LC, x.LNR = fanLowRPM, 2000
		out = append(out, x)
	}
	out = append(out, none(device.Sensor{Number: numDuty, Name: "FAN PWM", Kind: device.SensorDuty, MaxRange: 102}))
	for i := range psuCount {
		part := fmt.Sprintf("psu%d", i)
		volts := none(device.Sensor{
			Number: byte(numPSUVolts + i), Name: fmt.Sprintf("PSU%d Input Volt", i), Part: part, Kind: device.SensorVoltage, MaxRange: 255,
		})
		volts.LC, volts.UC = 180, 264
		out = append(
			out,
			none(device.Sensor{
				Number: byte(numPSUState + i), Name: fmt.Sprintf("PSU%d Status", i), Part: part, Kind: device.SensorPSU, MaxRange: 255,
			}),
			none(device.Sensor{
				Number: byte(numPSUWatts + i), Name: fmt.Sprintf("PSU%d Input Power", i), Part: part, Kind: device.SensorPower, MaxRange: 4080,
			}),
			volts,
		)
	}
	v12 := none(device.Sensor{Number: num12V, Name: "P12V", Kind: device.SensorVoltage, MaxRange: 15.3})
	v12.LC, v12.UC = 11.2, 12.8
	out = append(out, none(device.Sensor{Number: numTotal, Name: "Total Power", Kind: device.SensorPower, MaxRange: 15300}), v12)
	for i := range s.gpus {
		part := fmt.Sprintf("gpu%d", i)
		out = append(
			out,
			upper(
				device.Sensor{
					Number: byte(numGPUTemp + i), Name: fmt.Sprintf("GPU%d Temp", i), Part: part, Kind: device.SensorTemperature, MaxRange: 127,
				},
				MaxOperatingC, SlowdownC, ShutdownC,
			),
			upper(
				device.Sensor{
					Number: byte(numGPUMem + i), Name: fmt.Sprintf("GPU%d Memory Temp", i), Part: part, Kind: device.SensorTemperature, MaxRange: 127,
				},
				MemoryMaxC, 100, 105,
			),
			none(device.Sensor{
				Number: byte(numGPUWatts + i), Name: fmt.Sprintf("GPU%d Power", i), Part: part, Kind: device.SensorPower, MaxRange: 1020,
			}),
		)
	}
	return out
}

func (b *bmc) Sensors() []device.Sensor {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	s := b.s
	out := slices.Clone(s.sensors)
	on := s.power == device.PowerOn || s.power == device.PowerPoweringOff
	for i := range out {
		x := &out[i]
		x.Present = on
		n := int(x.Number)
		switch {
		case n == numInlet:
			x.Value, x.Present = tenth(s.inlet), true
		case n == numOutlet:
			x.Value = tenth(s.outlet)
		case n >= numCPU && n < numCPU+cpuCount:
			x.Value = tenth(s.cpus[n-numCPU])
		case n >= numFan && n < numFan+fanCount:
			x.Value = math.Round(s.fans[n-numFan].rpm)
		case n == numDuty:
			x.Value = tenth(s.duty)
		case n >= numPSUState && n < numPSUState+psuCount:
			p := &s.psus[n-numPSUState]
			x.Present, x.Value = true, 1 // presence detected
			if p.failed {
				x.Value += 1 << 1
			}
			if !p.input {
				x.Value += 1 << 3
			}
		case n >= numPSUWatts && n < numPSUWatts+psuCount:
			x.Present, x.Value = true, tenth(s.psus[n-numPSUWatts].watts)
		case n >= numPSUVolts && n < numPSUVolts+psuCount:
			x.Present, x.Value = true, tenth(s.psus[n-numPSUVolts].volts)
		case n == numTotal:
			x.Value = tenth(s.watts)
		case n == num12V:
			x.Value = 12.1
		case n >= numGPUTemp && n < numGPUTemp+len(s.gpus):
			g := &s.gpus[n-numGPUTemp]
			x.Value, x.Present = tenth(g.temp), on && !g.lost
		case n >= numGPUMem && n < numGPUMem+len(s.gpus):
			g := &s.gpus[n-numGPUMem]
			x.Value, x.Present = tenth(g.memTemp()), on && !g.lost
		case n >= numGPUWatts && n < numGPUWatts+len(s.gpus):
			g := &s.gpus[n-numGPUWatts]
			x.Value, x.Present = tenth(g.watts), on && !g.lost
		}
		if !x.Present {
			x.Value = 0
		}
	}
	return out
}

// clock is the model's time, or the machine's where the model lags behind by
// less than a step.
func (f *Fleet) clock() time.Time {
	if d := time.Since(f.now); d > 0 && d < 2*Physics {
		return f.now.Add(d)
	}
	return f.now
}

// selAdd appends a record to the log of the board controller; the controller
// lives on standby power as long as one feed is there.
func (f *Fleet) selAdd(s *server, r record) {
	f.records++
	r.ID = s.selNext
	r.Time = f.now.Add(s.skew)
	s.selNext++
	if s.selNext == 0xffff { // FFFFh means "the last" in Get SEL Entry
		s.selNext = 1
	}
	s.sel = append(s.sel, r.LogRecord)
	if len(s.sel) > selCapacity {
		s.sel = slices.Delete(s.sel, 0, len(s.sel)-selCapacity)
	}
	e := ledger.Entry{
		Time: f.now, Kind: ledger.KindRecord, Device: s.name, Part: r.Part, Protocol: "ipmi", Record: uint64(r.ID),
		Epoch: s.selEpoch.UTC().Format(time.RFC3339), Type: r.typ, Code: fmt.Sprintf("%02x/%02x", r.SensorType, r.Data[0]&0x0f),
		Message: r.Message,
	}
	f.led.Write(e)
	e.Protocol, e.Code = "redfish", r.MessageID
	f.led.Write(e)
}
