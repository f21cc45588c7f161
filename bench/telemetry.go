package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"

	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Generator makes the telemetry of a fleet: each server tells of its GPUs and of
// its sensors in turn. Load wanders and steps as jobs do, power follows load,
// temperature follows power with a lag, counters grow with what they count, and
// readings are rounded as the devices round them. The same seed gives the same
// numbers.
type Generator struct {
	rng     *rand.Rand
	servers []*serverModel
	at      time.Time
	every   time.Duration
	next    int
	seq     uint64
	wear    map[int]float64
}

type serverModel struct {
	inlet, duty float64
	busy        float64
	gpus        [GPUsPerServer]gpuModel
	fans        [fansPerServer]float64
	gpuBatch    auspexv1.Batch
	sensorBatch auspexv1.Batch
	sensorTurn  bool
}

type gpuModel struct {
	util, power, temp, mem       float64
	energy, nvlink, tx, rx       float64
	sbe, replay, crc             float64
	thermal, limited             float64
	fbUsed                       float64
	baseline, efficiency, offset float64
}

// NewGenerator returns a generator of a fleet that is read every interval from a
// time on.
func NewGenerator(servers int, seed uint64, from time.Time, every time.Duration) *Generator {
	g := &Generator{rng: rand.New(rand.NewPCG(seed, 0xa05bec)), at: from, every: every, wear: map[int]float64{}} //nolint:gosec // no secret
	for i := range servers {
		s := &serverModel{inlet: 21 + 3*g.rng.Float64(), duty: .6, busy: g.rng.Float64()}
		for j := range s.gpus {
			s.gpus[j] = gpuModel{
				temp: 35, power: 110, mem: 40, baseline: 68 + 8*g.rng.Float64(), efficiency: .9 + .2*g.rng.Float64(), offset: 4 * g.rng.Float64(),
				energy: g.rng.Float64() * 1e12, nvlink: g.rng.Float64() * 1e15, tx: g.rng.Float64() * 1e15, rx: g.rng.Float64() * 1e15,
				sbe: float64(g.rng.IntN(20)), fbUsed: float64(g.rng.IntN(70000)),
			}
		}
		for f := range s.fans {
			s.fans[f] = 16500 * (.985 + .03*g.rng.Float64())
		}
		s.gpuBatch.Device, s.gpuBatch.Collector, s.gpuBatch.Epoch = Server(i), "dcgmexporter", 1
		s.gpuBatch.Gpus = gpuRows(i)
		s.sensorBatch.Device, s.sensorBatch.Collector, s.sensorBatch.Epoch = Server(i), "redfish", 1
		s.sensorBatch.Samples = sensorSeries()
		g.servers = append(g.servers, s)
	}
	return g
}

// Wear makes fan1 of a server lose a share of its speed each hour.
func (g *Generator) Wear(server int, share float64) { g.wear[server] = share }

func gpuRows(server int) *auspexv1.GpuColumns {
	c := &auspexv1.GpuColumns{}
	for i := range GPUsPerServer {
		c.Gpu = append(c.Gpu, uint32(i)) //nolint:gosec // 0 to 7
		c.Delta = append(c.Delta, 0)
		c.Uuid = append(c.Uuid, gpuUUID(server, i))
		c.Pci = append(c.Pci, gpuPCI(i))
	}
	for _, m := range schemas.GPUMetrics {
		*m.Get(c) = make([]float64, GPUsPerServer)
	}
	return c
}

const sensorsPerServer = 2 + fansPerServer + 2*psusPerServer

func sensorSeries() *auspexv1.SampleColumns {
	c := &auspexv1.SampleColumns{Symbols: []string{""}}
	known := map[string]uint32{}
	sym := func(s string) uint32 {
		i, ok := known[s]
		if !ok {
			i = uint32(len(c.Symbols)) //nolint:gosec // few
			known[s] = i
			c.Symbols = append(c.Symbols, s)
		}
		return i
	}
	add := func(metric, kind, part string) {
		s := &auspexv1.Series{Metric: sym(metric)}
		if kind != "" {
			s.PartKind, s.Part = sym(kind), sym(part)
		}
		c.Ref = append(c.Ref, uint32(len(c.Series))) //nolint:gosec // few
		c.Series = append(c.Series, s)
	}
	add("auspex_server_inlet_temperature_celsius", "", "")
	add("auspex_server_power_watts", "", "")
	for i := range fansPerServer {
		add("auspex_fan_speed_rpm", schemas.KindFan, fmt.Sprintf("fan%d", i+1))
	}
	for i := range psusPerServer {
		add("auspex_psu_input_power_watts", schemas.KindPSU, fmt.Sprintf("psu%d", i))
		add("auspex_psu_input_voltage_volts", schemas.KindPSU, fmt.Sprintf("psu%d", i))
	}
	c.Delta, c.Value = make([]int64, len(c.Ref)), make([]float64, len(c.Ref))
	return c
}

// Next returns the next batch. It is the generator's, and is overwritten when its
// turn comes again.
func (g *Generator) Next() *auspexv1.Batch {
	s := g.servers[g.next]
	now := g.at.Add(time.Duration(g.next) * g.every / time.Duration(len(g.servers)))
	var b *auspexv1.Batch
	if !s.sensorTurn {
		s.step(g.rng, g.every.Seconds(), g.wear[g.next])
		s.sensorTurn = true
		b = &s.gpuBatch
		s.fillGPUs(now)
	} else {
		s.sensorTurn = false
		b = &s.sensorBatch
		s.fillSensors(g.rng, now)
		if g.next++; g.next == len(g.servers) {
			g.next = 0
			g.at = g.at.Add(g.every)
		}
	}
	g.seq++
	b.Sequence, b.Observed = g.seq, now.UnixNano()
	return b
}

// step moves the physics of a server on by dt seconds.
func (s *serverModel) step(rng *rand.Rand, dt, wear float64) {
	if rng.Float64() < dt/1800 { // a job begins or ends
		s.busy = float64(rng.IntN(3)) / 2
	}
	s.inlet += .02 * rng.NormFloat64()
	s.inlet += (23 - s.inlet) * dt / 3600
	hottest := 0.0
	for i := range s.gpus {
		p := &s.gpus[i]
		p.util = min(max(.7*p.util+.3*(100*s.busy)+4*rng.NormFloat64(), 0), 100)
		p.power += (p.baseline + 5.9*p.util*p.efficiency - p.power) * min(dt/5, 1)
		p.power += 3 * rng.NormFloat64()
		p.temp += (s.inlet + p.offset + p.power*.065 - p.temp) * min(dt/40, 1)
		p.mem += (p.temp + 9 + .06*p.util - p.mem) * min(dt/60, 1)
		hottest = max(hottest, p.temp)
		busy := p.util / 100 * dt
		p.energy += 1000 * p.power * dt
		p.nvlink += busy * 2.1e11 * (.9 + .2*rng.Float64())
		p.tx += busy * 1.7e10 * (.8 + .4*rng.Float64())
		p.rx += busy * 1.9e10 * (.8 + .4*rng.Float64())
		p.fbUsed += (70000*s.busy - p.fbUsed) * min(dt/30, 1)
		if rng.Float64() < dt/90000 {
			p.sbe++
		}
		if rng.Float64() < dt/20000 {
			p.replay++
		}
		if rng.Float64() < dt/40000 {
			p.crc++
		}
		if p.power > 690 {
			p.limited += 1e6 * dt * rng.Float64()
		}
	}
	s.duty += (min(max((hottest-10)/60, .55), 1) - s.duty) * min(dt/20, 1)
	if wear > 0 {
		s.fans[0] *= 1 - wear*dt/3600
	}
}

func (s *serverModel) fillGPUs(now time.Time) {
	c := s.gpuBatch.Gpus
	c.BaseTime = now.UnixNano()
	for i := range s.gpus {
		p := &s.gpus[i]
		active := p.util / 100
		for k, v := range [...]float64{
			math.Round(1980 - 4*max(p.temp-60, 0)), 2619, math.Round(p.mem), math.Round(p.temp), milli(p.power), math.Round(p.energy), p.replay,
			math.Round(p.util), math.Round(.6 * p.util), 0, 0, 0, math.Round(81559 - p.fbUsed), math.Round(p.fbUsed), 551, p.sbe, 0, p.sbe + 3, 0, 0,
			0, 0,
			math.Round(p.nvlink), p.crc, 0, 0, p.thermal, math.Round(p.limited), micro(active * .98), micro(active * .9), micro(active * .55),
			micro(active * .41),
			math.Round(p.tx), math.Round(p.rx),
		} {
			(*schemas.GPUMetrics[k].Get(c))[i] = v
		}
		c.Delta[i] = int64(i) * 137_000
	}
}

func (s *serverModel) fillSensors(rng *rand.Rand, now time.Time) {
	c := s.sensorBatch.Samples
	c.BaseTime = now.UnixNano()
	total := 900.0
	for i := range s.gpus {
		total += s.gpus[i].power
	}
	v := append(c.Value[:0], math.Round(10*s.inlet)/10, math.Round(total))
	for _, full := range s.fans {
		v = append(v, 20*math.Round(full*s.duty*(1+.004*rng.NormFloat64())/20)) // tachometers count steps
	}
	for range psusPerServer {
		v = append(v, math.Round(total/psusPerServer*(1+.01*rng.NormFloat64())), math.Round(10*(231+.4*rng.NormFloat64()))/10)
	}
	c.Value = v
	for i := range c.Delta {
		c.Delta[i] = int64(i) * 1_900_000
	}
}

func milli(v float64) float64 { return math.Round(v*1e3) / 1e3 }
func micro(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// Tally sums up batches so that two ends of a path can be compared.
type Tally struct {
	Batches int64  `json:"batches"`
	Samples int64  `json:"samples"`
	GPURows int64  `json:"gpu_rows"`
	Energy  int64  `json:"energy_millijoules"` // of all rows of GPUs
	Hash    uint64 `json:"hash,string"`        // of the wire forms, whatever their order
}

// Add takes in a batch: its wire form and, where it was decoded, what it holds.
func (t *Tally) Add(wire []byte, b *auspexv1.Batch) {
	t.Batches++
	t.Hash += xxhash.Sum64(wire)
	if b == nil {
		return
	}
	samples, rows := SamplesOf(b)
	t.Samples += int64(samples)
	t.GPURows += int64(rows)
	for _, v := range b.GetGpus().GetTotalEnergyMillijoules() {
		t.Energy += int64(v)
	}
}

// SamplesOf returns how many values and how many rows of GPUs a batch holds.
func SamplesOf(b *auspexv1.Batch) (samples, gpuRows int) {
	gpuRows = len(b.GetGpus().GetGpu())
	samples = len(b.GetSamples().GetValue())
	if gpuRows > 0 {
		for i := range schemas.GPUMetrics {
			samples += len(*schemas.GPUMetrics[i].Get(b.GetGpus()))
		}
	}
	return samples, gpuRows
}
