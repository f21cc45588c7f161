package fleet

import (
	"fmt"
	"time"
)

// Machine is what the kernel of a server shows of it.
type Machine struct {
	Up         time.Time // since when it runs
	Now        time.Time
	Busy       float64 // share of the GPUs' time in which they work
	NICs       [nicCount]MachineNIC
	DIMMs      [dimmCount]MachineDIMM
	NVSwitches [nvswitchCount]string // PCI addresses
	Disks      [diskCount]MachineDisk
	NoFabric   bool   // its fabric manager has died
	ID         string // machine-id(5)
	Driver     string // version of the GPU driver; empty is the one it was delivered with
}

// MachineNIC is a network interface. The counters of one without a cable stay.
type MachineNIC struct {
	Name, PCI, MAC string
	Up             bool
	Carrier        uint64 // how often the link came or went
	In, Out        uint64 // octets
}

// MachineDIMM counts the errors of a memory module since the boot.
type MachineDIMM struct{ Corrected, Uncorrected uint64 }

// Machine reads what the kernel of a server shows. It returns false for an unknown name.
func (f *Fleet) Machine(name string, m *Machine) bool {
	s, ok := f.byName[name]
	if !ok {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m.Up, m.Now, m.Busy, m.DIMMs, m.NoFabric = s.reset, f.now, s.busy(), s.dimms, s.noFabric
	m.ID, m.Driver = s.os.machine, s.os.driver
	for i := range s.disks {
		m.Disks[i] = s.disks[i].machine(i, f.now)
	}
	for i := range s.nics {
		m.NICs[i] = MachineNIC{Name: s.nics[i].netif, PCI: s.nics[i].pci, MAC: s.macs[i]}
	}
	if leaf := s.rack.leaf; leaf != nil {
		for i := range cabledNICs {
			p := leaf.ports[s.index*cabledNICs+i]
			n := &m.NICs[i]
			n.Up, n.Carrier, n.In, n.Out = p.OperUp, p.Carrier, uint64(max(0, p.out)), uint64(max(0, p.in)) // what the switch sends, the server receives
		}
	}
	for i := range m.NVSwitches {
		m.NVSwitches[i] = nvswitchPCI(i)
	}
	return true
}

// wear counts an error of a memory module. The correction of one is what a module that wears
// has often done when its controller tells of it.
func (s *server) wear(dimm int, uncorrected bool) error {
	if dimm < 0 || dimm >= dimmCount {
		return fmt.Errorf("dimm %d of %q: %w", dimm, s.name, ErrUnknown)
	}
	const often = 24
	if uncorrected {
		s.dimms[dimm].Uncorrected++
	} else {
		s.dimms[dimm].Corrected += often
	}
	return nil
}
