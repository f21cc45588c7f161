package fleet

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/ledger"
)

// How long a start from the network takes.
const (
	offerDelay     = 6 * time.Second // until firmware gives up and starts from the disk
	installerDelay = 4 * time.Second // until the installer's system runs
)

// The numbers of the disk that servers start from, and of the interface that they start by from the
// network first.
const (
	bootDisk = 0
	bootNIC  = 0
)

// DriverVersion is the version of the GPU driver that servers are delivered with.
const DriverVersion = "570.133.20"

// system is what is installed on the disk that a server starts from.
type system struct {
	machine string // its machine-id(5)
	driver  string // version of its GPU driver; empty is the one it was delivered with
	torn    bool   // half written: it does not start
}

// System is a system as an installer writes it.
type System struct {
	Driver string // version of its GPU driver; empty is the one of the simulated fleet
}

// InstallFault says at which action of an installation, from 1, something goes wrong; 0 is at none.
type InstallFault struct {
	Fail int // the action fails
	Hang int // the worker dies in it
}

// Netbooted is a server that runs an installer's system.
type Netbooted struct {
	Server string
	MAC    string // of the interface that it has started by
	Life   int    // changes with each start
	Fault  InstallFault
}

// OnNetboot has fn decide who may start from the network: it is asked with the MAC address of an
// interface. It is called with the fleet locked and must not call back.
func (f *Fleet) OnNetboot(fn func(mac string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offers = fn
}

// netboot starts a server by the first of its cabled interfaces that is offered something to start;
// where none is, it starts from its disk.
func (f *Fleet) netboot(s *server) {
	i := -1
	if f.offers != nil {
		i = slices.IndexFunc(s.macs[:cabledNICs], f.offers)
	}
	if i < 0 {
		f.note(s, "passed", "", "nothing was offered to start from the network")
		f.later(s, offerDelay, func() { f.diskboot(s) })
		return
	}
	f.later(s, installerDelay, func() {
		s.host, s.netMAC = hostInstaller, s.macs[i]
		f.note(s, "netbooted", "", "the installer's system runs, by "+s.netMAC)
	})
}

// diskboot starts the system on the disk; one that is half written does not start.
func (f *Fleet) diskboot(s *server) {
	if s.os.torn {
		f.note(s, "unbootable", "", "no system was found to start")
		return
	}
	s.host, s.dimms = hostBooting, [dimmCount]MachineDIMM{}
	f.fail(s.klog.Boot(f.now, 0))
	f.bootLines(s)
	f.later(s, servicesDelay/2, func() { f.driverLines(s) })
	f.later(s, servicesDelay, func() {
		s.host = hostUp
		if s.noFabric { // a start starts it too
			f.startFabric(s)
		}
		f.change(Change{Kind: HostUp, Server: s.name})
	})
}

// Netbooted returns the servers that run an installer's system, in order.
func (f *Fleet) Netbooted() (out []Netbooted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.servers {
		if s.host == hostInstaller {
			out = append(out, Netbooted{s.name, s.netMAC, s.life, s.install})
		}
	}
	return out
}

// ErrRestarted is of an installer's system that does not run any more.
var ErrRestarted = errors.New("the server has restarted meanwhile")

// installer finds a server that runs the installer's system of a start.
func (f *Fleet) installer(at Netbooted) (*server, error) {
	s, err := f.server(at.Server)
	if err == nil && (s.host != hostInstaller || s.life != at.Life) {
		err = ErrRestarted
	}
	return s, err
}

// diskOf finds a disk of a server that runs an installer's system by the name that Linux gives it. The error is the one that a
// program would be told.
func (f *Fleet) diskOf(at Netbooted, dev string) (s *server, i int, err error) {
	if s, err = f.installer(at); err != nil {
		return nil, 0, err
	}
	i = slices.IndexFunc(diskKinds[:], func(k diskKind) bool { return "/dev/"+k.block == dev })
	if i < 0 || s.disks[i].gone {
		return nil, 0, fmt.Errorf("open %s: %w", dev, syscall.ENOENT)
	}
	return s, i, nil
}

// Overwrite begins to write a disk of a server that runs an installer's system, by the name that
// Linux gives it, as /dev/nvme0n1. What was on it is lost; it starts again once [Fleet.Written] has
// said that it is written. The error is the one that a program would be told.
func (f *Fleet) Overwrite(at Netbooted, dev string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, i, err := f.diskOf(at, dev)
	if err != nil {
		return err
	}
	s.disks[i].blank, s.disks[i].erased = false, false
	if i == bootDisk {
		s.os.torn = true
	}
	if m := s.disks[i].machine(i, f.now); m.Warns {
		return fmt.Errorf("write %s: %w", dev, syscall.EIO)
	}
	return nil
}

// Written says that a system is on a disk as a whole: another one than before, without what was wrong
// with the software of the one before.
func (f *Fleet) Written(at Netbooted, dev string, sys System) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.installer(at)
	if err != nil || dev != "/dev/"+diskKinds[bootDisk].block {
		return err
	}
	var id [16]byte
	for i := range id {
		id[i] = byte(f.rng.Uint32())
	}
	s.os = system{machine: hex.EncodeToString(id[:]), driver: sys.Driver}
	s.rigid = false
	for i := range s.gpus {
		s.gpus[i].damaged = false
	}
	return nil
}

// LeaveInstaller restarts a server that runs an installer's system after a while.
func (f *Fleet) LeaveInstaller(at Netbooted, after time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.installer(at)
	if err == nil {
		f.later(s, after, func() { f.warmRestart(s) })
	}
	return err
}

// SetInstallFault says what goes wrong with installations of a server.
func (f *Fleet) SetInstallFault(name string, fault InstallFault) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err == nil {
		s.install = fault
	}
	return err
}

// SetServiceFault says how the interface of the installer's answers go wrong.
func (f *Fleet) SetServiceFault(fault device.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.service = fault
}

// ServiceFault is how they do.
func (f *Fleet) ServiceFault() device.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.service
}

// DamageDriver damages the files of a server's driver that are for a GPU: its firmware answers nothing
// but errors after a reset, a reload, a restart and a power cycle too, until the server is installed anew.
func (f *Fleet) DamageDriver(id string) error {
	f.mu.Lock()
	_, g, err := f.gpu(id)
	if err == nil {
		g.damaged = true
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.FailGPU(id, false)
}

// InstallNote writes down what becomes of an installation of a server: begun, done or failed.
func (f *Fleet) InstallNote(name, state, workflow, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.byName[name]; s != nil {
		f.note(s, state, workflow, message)
	}
}

func (f *Fleet) note(s *server, state, workflow, message string) {
	f.led.Write(ledger.Entry{Time: f.now, Kind: ledger.KindInstall, Device: s.name, Type: state, Code: workflow, Message: message})
}

// driverVersion is the version of the driver that a server runs.
func (s *server) driverVersion() string { return cmp.Or(s.os.driver, DriverVersion) }
