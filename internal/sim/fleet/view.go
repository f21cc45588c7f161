package fleet

// Host is what programs on a server see of it.
type Host struct {
	Name   string
	Up     bool   // programs run
	Driver string // version of the GPU driver
	GPUs   []HostGPU
}

// HostGPU is a GPU as its driver shows it.
type HostGPU struct {
	Index    int
	Present  bool // false: fallen off the bus
	PCI      string
	UUID     string
	Serial   string
	Model    string
	Util     float64 // 0 to 1
	Memory   float64 // share of the frame buffer in use
	SMClock  float64 // MHz
	MemClock float64 // MHz
	Temp     float64 // degrees Celsius
	MemTemp  float64 // degrees Celsius
	Watts    float64
	Joules   float64
	FrameMiB float64
	Reasons  uint64 // clocks event reasons, as nvml.h numbers them
	XID      int    // the last one

	SBE, DBE, SBEAggregate, DBEAggregate       float64
	RemappedCorrectable, RemappedUncorrectable float64
	RemapPending                               bool
	PCIeReplays, CRCErrors, NVLinkReplays      float64
	NVLinkBytes, TxBytes, RxBytes              float64
	ThermalMicroseconds, PowerMicroseconds     float64

	Set  GPUSettings
	ECC  bool // in force
	Hung bool // calls of its driver do not return
	// Failing calls return errors; Weak memory does not keep what is written; Wrong is what a
	// multiprocessor computes.
	Failing, Weak, Wrong bool
	Apart                bool // waits to be registered in the NVLink fabric
	Load                 Load
}

// Host reads the state of a server into h, whose memory is used again. It
// returns false for an unknown name.
func (f *Fleet) Host(name string, h *Host) bool {
	s, ok := f.byName[name]
	if !ok {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	h.Name, h.Up, h.Driver, h.GPUs = s.name, s.up(), s.driverVersion(), h.GPUs[:0]
	for i := range s.gpus {
		g := &s.gpus[i]
		mem := g.load.Memory
		if g.load.Util == 0 {
			mem = 0.007
		}
		h.GPUs = append(h.GPUs, HostGPU{
			Index: i, Present: !g.lost, PCI: g.pci, UUID: g.uuid, Serial: g.serial, Model: gpuModel,
			Util: g.util, Memory: mem, SMClock: g.clock, MemClock: memClock, Temp: g.temp, MemTemp: g.memTemp(), Watts: g.watts,
			Joules: g.energy, FrameMiB: frameMiB, Reasons: g.reasons, XID: g.xid,
			SBE: g.sbe, DBE: g.dbe, SBEAggregate: g.sbeAgg, DBEAggregate: g.dbeAgg,
			RemappedCorrectable: g.remapCE, RemappedUncorrectable: g.remapUE, RemapPending: g.pending,
			PCIeReplays: g.pcieReplay, CRCErrors: g.crc, NVLinkReplays: g.nvReplays, NVLinkBytes: g.nvBytes, TxBytes: g.txBytes, RxBytes: g.rxBytes,
			ThermalMicroseconds: g.thermalUS, PowerMicroseconds: g.powerUS, Set: g.set, ECC: g.eccNow, Hung: g.hung, Failing: g.failing, Weak: g.weak, Wrong: g.wrong, Apart: g.apart, Load: g.load,
		})
	}
	return true
}

// Ready tells whether a server's programs run, and its driver has all its GPUs, linked with one another.
func (f *Fleet) Ready(name string) (up, whole bool) {
	s, ok := f.byName[name]
	if !ok {
		return false, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	whole = !s.noFabric
	for i := range s.gpus {
		whole = whole && !s.gpus[i].lost && !s.gpus[i].failing && !s.gpus[i].apart
	}
	return s.up(), whole
}

// SetLoad gives work to GPUs of a server; the load of GPU i runs in process
// PID+i. The zero Load makes them idle.
func (f *Fleet) SetLoad(name string, gpus []int, l Load) {
	s, ok := f.byName[name]
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range gpus {
		if i < 0 || i >= len(s.gpus) {
			continue
		}
		s.gpus[i].load = l
		if l.PID != 0 {
			s.gpus[i].load.PID = l.PID + i
		}
	}
}

// Settle runs the physics until temperatures and fans no longer change much,
// without moving the clock, so that a fleet starts warm and not cold.
func (f *Fleet) Settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settling = true
	for range 600 {
		f.physics(Physics)
	}
	f.settling = false
}
