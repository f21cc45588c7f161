package agent

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"auspex/agent/nvml"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/sim/fleet"
	"auspex/internal/target"
	"auspex/schemas/yang"
)

// leaf is what is told of a GPU, in the unit of auspex-gpu.yang.
type leaf struct {
	name  string
	value func(*fleet.HostGPU) float64
}

func of(v float64) func(*fleet.HostGPU) float64 { return func(*fleet.HostGPU) float64 { return v } }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var leaves = []leaf{
	{"temperature", func(g *fleet.HostGPU) float64 { return g.Temp }},
	{"memory-temperature", func(g *fleet.HostGPU) float64 { return g.MemTemp }},
	{"temperature-max-operating", of(fleet.MaxOperatingC)},
	{"temperature-slowdown", of(fleet.SlowdownC)},
	{"temperature-shutdown", of(fleet.ShutdownC)},
	{"memory-temperature-max-operating", of(fleet.MemoryMaxC)},
	{"power", func(g *fleet.HostGPU) float64 { return g.Watts }},
	{"power-limit", func(g *fleet.HostGPU) float64 { return g.Set.PowerLimit }},
	{"power-limit-set", func(g *fleet.HostGPU) float64 { return g.Set.PowerLimit }},
	{"power-limit-default", of(fleet.PowerLimitW)},
	{"power-limit-min", of(fleet.PowerLimitMinW)},
	{"power-limit-max", of(fleet.PowerLimitW)},
	{"energy", func(g *fleet.HostGPU) float64 { return g.Joules * 1000 }},
	{"sm-clock", func(g *fleet.HostGPU) float64 { return g.SMClock }},
	{"memory-clock", func(g *fleet.HostGPU) float64 { return g.MemClock }},
	{"sm-clock-max", of(fleet.MaxSMClock)},
	{"application-sm-clock", func(g *fleet.HostGPU) float64 { return g.Set.SMClock }},
	{"application-memory-clock", func(g *fleet.HostGPU) float64 { return g.Set.MemClock }},
	{"clocks-event-reasons", func(g *fleet.HostGPU) float64 { return float64(g.Reasons) }},
	{"utilization", func(g *fleet.HostGPU) float64 { return g.Util * 100 }},
	{"memory-utilization", func(g *fleet.HostGPU) float64 { return g.Util * 62 }},
	{"encoder-utilization", of(0)},
	{"decoder-utilization", of(0)},
	{"memory-used", func(g *fleet.HostGPU) float64 { return g.FrameMiB * g.Memory }},
	{"memory-free", func(g *fleet.HostGPU) float64 { return g.FrameMiB*(1-g.Memory) - 611 }},
	{"memory-reserved", of(611)},
	{"ecc-enabled", func(g *fleet.HostGPU) float64 { return truth(g.ECC) }},
	{"ecc-pending", func(g *fleet.HostGPU) float64 { return truth(g.Set.ECC) }},
	{"ecc-corrected", func(g *fleet.HostGPU) float64 { return g.SBE }},
	{"ecc-uncorrected", func(g *fleet.HostGPU) float64 { return g.DBE }},
	{"ecc-corrected-lifetime", func(g *fleet.HostGPU) float64 { return g.SBEAggregate }},
	{"ecc-uncorrected-lifetime", func(g *fleet.HostGPU) float64 { return g.DBEAggregate }},
	{"remapped-rows-corrected", func(g *fleet.HostGPU) float64 { return g.RemappedCorrectable }},
	{"remapped-rows-uncorrected", func(g *fleet.HostGPU) float64 { return g.RemappedUncorrectable }},
	{"remap-pending", func(g *fleet.HostGPU) float64 { return truth(g.RemapPending) }},
	{"remap-failed", of(0)},
	{"recovery-action", func(g *fleet.HostGPU) float64 { return truth(g.RemapPending) }}, // a reset, as its XID 154 says
	{"pcie-replays", func(g *fleet.HostGPU) float64 { return g.PCIeReplays }},
	{"pcie-generation", of(5)},
	{"pcie-generation-max", of(5)},
	{"pcie-width", of(16)},
	{"pcie-width-max", of(16)},
	{"nvlink-crc-flit-errors", func(g *fleet.HostGPU) float64 { return g.CRCErrors }},
	{"nvlink-replay-errors", func(g *fleet.HostGPU) float64 { return g.NVLinkReplays }},
	{"nvlink-recovery-errors", of(0)},
	{"thermal-violation", func(g *fleet.HostGPU) float64 { return g.ThermalMicroseconds }},
	{"power-violation", func(g *fleet.HostGPU) float64 { return g.PowerMicroseconds }},
	{"fabric-state", func(g *fleet.HostGPU) float64 { f := fabric(g); return float64(f.State) }},
	{"mig-enabled", func(g *fleet.HostGPU) float64 { return truth(g.Set.MIG) }},
	{"mig-pending", func(g *fleet.HostGPU) float64 { return truth(g.Set.MIG) }},
	{"persistence", func(g *fleet.HostGPU) float64 { return truth(g.Set.Persistence) }},
}

// fabric is a GPU in the NVLink fabric of its server, which tells no health, as that of an HGX H100.
func fabric(g *fleet.HostGPU) gpuwatch.Fabric {
	if g.Apart {
		return gpuwatch.Fabric{State: gpuwatch.FabricInProgress}
	}
	return gpuwatch.Fabric{State: gpuwatch.FabricRegistered}
}

// types are those of the leaves, by their order.
var types = func() (out []string) {
	for _, l := range leaves {
		at, ok := yang.Leaves["/gpus/gpu/state/"+l.name]
		if !ok {
			panic("sim: " + l.name + " is in no module")
		}
		out = append(out, at.Type)
	}
	return out
}()

// tree writes the GPUs of a server.
type tree struct {
	t    *target.Tree
	gpus map[uint32]*place
}

type place struct {
	path                               string
	words                              [5]target.Ref
	missing, stalled, unset, processes target.Ref
	leaves                             []target.Ref
	wanted                             map[string]target.Ref
	pid                                int
}

func newTree(t *target.Tree, version string) *tree {
	driver, library := t.Leaf("/gpus/state/driver-version"), t.Leaf("/gpus/state/nvml-version")
	w := t.Write(time.Now())
	defer w.Close()
	w.Text(driver, version)
	w.Text(library, "12."+version)
	return &tree{t, map[uint32]*place{}}
}

func (t *tree) at(n uint32) *place {
	if p := t.gpus[n]; p != nil {
		return p
	}
	name := "gpu" + strconv.FormatUint(uint64(n), 10)
	p := &place{path: "/gpus/gpu[name=" + name + "]", wanted: map[string]target.Ref{}}
	state := func(leaf string) target.Ref { return t.t.Leaf(p.path + "/state/" + leaf) }
	for i, word := range []string{"name", "product", "uuid", "serial", "pci"} {
		p.words[i] = state(word)
	}
	p.missing, p.stalled, p.unset, p.processes = state("missing"), state("stalled"), state("unset"), state("processes")
	for _, l := range leaves {
		p.leaves = append(p.leaves, state(l.name))
	}
	t.gpus[n] = p
	w := t.t.Write(time.Now())
	defer w.Close()
	w.Text(p.words[0], name)
	return p
}

// tell writes a GPU that was read.
func (t *tree) tell(now time.Time, n uint32, g *fleet.HostGPU, wanted map[string]nvml.Held, unset string) {
	p := t.at(n)
	t.process(now, p, g)
	for leaf := range wanted {
		if _, ok := p.wanted[leaf]; !ok {
			p.wanted[leaf] = t.t.Leaf(p.path + "/config/" + leaf)
		}
	}
	w := t.t.Write(now)
	defer w.Close()
	for i, word := range []string{g.Model, g.UUID, g.Serial, g.PCI} {
		w.Text(p.words[i+1], word)
	}
	w.Bool(p.missing, false)
	w.None(p.stalled)
	if w.None(p.unset); unset != "" {
		w.Text(p.unset, unset)
	}
	for i, l := range leaves {
		write(&w, p.leaves[i], types[i], l.value(g))
	}
	for leaf, ref := range p.wanted {
		value := wanted[leaf].Value
		v, err := strconv.ParseFloat(value, 64)
		switch {
		case value == "":
			w.None(ref)
		case value == "true" || value == "false":
			w.Bool(ref, value == "true")
		case err == nil:
			w.Float(ref, v)
		default:
			w.Text(ref, value)
		}
	}
}

func write(w *target.Writer, ref target.Ref, typ string, v float64) {
	switch typ {
	case "decimal64":
		w.Float(ref, math.Round(v*1000)/1000)
	case "boolean":
		w.Bool(ref, v != 0)
	default:
		w.Uint(ref, uint64(max(0, math.Round(v))))
	}
}

// process writes the process that has a GPU open.
func (t *tree) process(now time.Time, p *place, g *fleet.HostGPU) {
	path := func(pid int) string { return fmt.Sprintf("%s/process[pid=%d]", p.path, pid) }
	if p.pid != 0 && p.pid != g.Load.PID {
		t.t.Drop(path(p.pid))
	}
	p.pid = g.Load.PID
	if p.pid == 0 {
		w := t.t.Write(now)
		defer w.Close()
		w.Uint(p.processes, 0)
		return
	}
	state := func(leaf string) target.Ref { return t.t.Leaf(path(p.pid) + "/state/" + leaf) }
	pid, name, memory := state("pid"), state("name"), state("memory")
	w := t.t.Write(now)
	defer w.Close()
	w.Uint(p.processes, 1)
	w.Uint(pid, uint64(max(0, p.pid)))
	w.Text(name, g.Load.Name)
	w.Uint(memory, uint64(max(0, g.FrameMiB*g.Memory)))
}

// missing writes a GPU that is not there, stalled one whose driver does not return.
func (t *tree) missing(now time.Time, n uint32) {
	p, w := t.none(now, n)
	defer w.Close()
	w.None(p.stalled)
	w.Bool(p.missing, true)
}

func (t *tree) stalled(now time.Time, n uint32) {
	p, w := t.none(now, n)
	defer w.Close()
	w.Text(p.stalled, stuck)
}

func (t *tree) none(now time.Time, n uint32) (*place, target.Writer) {
	p := t.at(n)
	w := t.t.Write(now)
	for _, ref := range p.leaves {
		w.None(ref)
	}
	return p, w
}
