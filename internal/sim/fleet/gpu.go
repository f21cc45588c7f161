package fleet

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/kmsg"
	"auspex/internal/sim/ledger"
)

// GPUSettings are how a driver was told to run a GPU.
type GPUSettings struct {
	PowerLimit  float64 // watts
	MemClock    float64 // MHz, of applications
	SMClock     float64 // MHz, of applications
	Persistence bool
	ECC         bool // from the next reset on
	MIG         bool
}

// The bounds of settings.
const (
	PowerLimitMinW = 200.0
	MaxMemClock    = memClock
	MaxSMClock     = maxClock
)

// defaultSettings are those of a driver that was just loaded. ECC and MIG are kept on the board.
func (g *gpu) defaultSettings() {
	g.set = GPUSettings{PowerLimit: PowerLimitW, MemClock: memClock, SMClock: maxClock, Persistence: true, ECC: g.set.ECC, MIG: g.set.MIG}
}

// SetGPU tells the driver of a server how to run a GPU. Some do not obey: what became of it
// is read back ([HostGPU]).
func (f *Fleet) SetGPU(name string, index int, to GPUSettings) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, g, err := f.present(name, index)
	if err == nil && !g.slips {
		g.set = to
	}
	return err
}

// present finds a GPU that the driver of a running server has.
func (f *Fleet) present(name string, index int) (*server, *gpu, error) {
	s, err := f.server(name)
	switch {
	case err != nil:
		return nil, nil, err
	case !s.up():
		return nil, nil, fmt.Errorf("%s is down", name)
	case index < 0 || index >= len(s.gpus):
		return nil, nil, fmt.Errorf("gpu %d of %q: %w", index, name, ErrUnknown)
	case s.gpus[index].lost:
		return nil, nil, fmt.Errorf("gpu%d has fallen off the bus", index)
	}
	return s, &s.gpus[index], nil
}

// ErrInUse says that a process has a GPU open.
var ErrInUse = errors.New("GPU is in use by another client")

// ResetGPUs resets GPUs together, as nvidia-smi --gpu-reset does: what the driver counts
// begins anew, rows are remapped, settings of the board come into force. None is reset
// where one cannot be.
func (f *Fleet) ResetGPUs(name string, indexes []int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range indexes {
		switch _, g, err := f.present(name, i); {
		case err != nil:
			return err
		case g.load.PID != 0:
			return fmt.Errorf("gpu%d: %w", i, ErrInUse)
		case g.stubborn || g.hung:
			return fmt.Errorf("gpu%d: unable to reset this GPU: unknown error", i)
		}
	}
	for _, i := range indexes {
		s, g, _ := f.present(name, i)
		sick, energy := g.pending || g.failing, g.energy
		g.clearVolatile()
		g.energy, g.ecc, g.eccNow, g.apart = energy, 0, g.set.ECC, s.noFabric
		f.print(s, kmsg.Info, "NVRM: GPU at PCI:"+strings.TrimSuffix(g.pci, ".0")+": was reset")
		f.started(s, g)
		if sick && !g.failing {
			f.change(Change{Kind: GPUBack, Server: name, GPU: i})
		}
	}
	return nil
}

// ReloadDriver unloads the driver of a server and loads it again. It starts the firmware of each GPU
// (the driver's manual, GSP firmware) and counts anew; what is set in it is gone. Rows that wait to be
// remapped and modes of the board wait for a reset all the same.
func (f *Fleet) ReloadDriver(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	switch {
	case err != nil:
		return err
	case !s.up():
		return fmt.Errorf("%s is down", name)
	}
	for i := range s.gpus {
		if g := &s.gpus[i]; s.rigid || !g.lost && (g.hung || g.load.PID != 0) {
			return errors.New("rmmod: ERROR: Module nvidia is in use")
		}
	}
	for i := range s.gpus {
		g := &s.gpus[i]
		if g.lost {
			continue
		}
		sick, pending := g.failing, g.pending
		g.clearVolatile()
		g.defaultSettings()
		g.apart = s.noFabric
		if g.pending = pending; sick && !g.failing {
			f.change(Change{Kind: GPUBack, Server: name, GPU: i})
		}
	}
	f.driverLines(s)
	return nil
}

// NoteAct writes down that the tools of a server's agent were asked for an act ("begun"), and what
// became of it ("done" or "failed"). Parts are the GPUs that it is for; none is the server.
func (f *Fleet) NoteAct(name, kind, state, said string, parts ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := ledger.Entry{Time: f.now, Kind: ledger.KindAct, Device: name, Protocol: "agent", Type: state, Code: kind, Message: said}
	for _, p := range parts {
		e.Targets = append(e.Targets, name+"/"+p)
	}
	f.led.Write(e)
}

// RebootHost reboots a server in order, as its administrator would.
func (f *Fleet) RebootHost(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err == nil && !s.up() {
		err = fmt.Errorf("%s is down", name)
	}
	if err == nil {
		f.reset(s, device.ResetGracefulRestart)
	}
	return err
}

// HangGPU lets the firmware of a GPU stop answering: calls of its driver do not return, until
// the server restarts.
func (f *Fleet) HangGPU(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, g, err := f.gpu(id)
	if err != nil || g.hung || g.lost {
		return err
	}
	g.hung = true
	f.xid(s, g, 119, kmsg.Process{PID: g.load.PID, Name: g.load.Name}, fmt.Sprintf(
		"Timeout after 6s of waiting for RPC response from GPU%d GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080a0d0 0x4).", g.index))
	return nil
}

// FailGPU lets the firmware of a GPU answer nothing but errors: its driver tells nothing of it until
// it starts the firmware anew, and where the hardware is dead not then either.
func (f *Fleet) FailGPU(id string, dead bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, g, err := f.gpu(id)
	if err != nil || g.lost {
		return err
	}
	g.dead = g.dead || dead
	if g.failing {
		return nil
	}
	g.failing = true
	f.rpcTimeout(s, g)
	f.later(s, f.jitter(time.Second, 2*time.Second), func() {
		f.change(Change{Kind: GPULost, Server: s.name, GPU: g.index})
	})
	return nil
}

// rpcTimeout is what the driver says of firmware that answers none of its calls.
func (f *Fleet) rpcTimeout(s *server, g *gpu) {
	f.xid(s, g, 119, kmsg.Process{PID: g.load.PID, Name: g.load.Name}, fmt.Sprintf(
		"Timeout after 6s of waiting for RPC response from GPU%d GSP! Expected function 103 (GSP_RM_ALLOC) (0x0 0x0).", g.index))
}

// rpcWait is how long the driver waits for firmware that it has started.
const rpcWait = 6 * time.Second

// started has the driver call the firmware of a GPU that was started anew.
func (f *Fleet) started(s *server, g *gpu) {
	if g.failing {
		f.later(s, rpcWait, func() { f.rpcTimeout(s, g) })
	}
}

// SetWeak gives a GPU a cell of memory that does not keep what is written, or takes it away.
func (f *Fleet) SetWeak(id string, on bool) error {
	return f.quirk(id, func(g *gpu) { g.weak = on })
}

// SetWrong lets a multiprocessor of a GPU compute something else, or not.
func (f *Fleet) SetWrong(id string, on bool) error {
	return f.quirk(id, func(g *gpu) { g.wrong = on })
}

// SetRigid keeps the driver of a server from being unloaded, or not.
func (f *Fleet) SetRigid(name string, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.server(name)
	if err == nil {
		s.rigid = on
	}
	return err
}

// SetStubborn lets resets of a GPU fail, or succeed.
func (f *Fleet) SetStubborn(id string, on bool) error {
	return f.quirk(id, func(g *gpu) { g.stubborn = on })
}

// SetSlipping lets settings of a GPU not stick, or stick.
func (f *Fleet) SetSlipping(id string, on bool) error {
	return f.quirk(id, func(g *gpu) { g.slips = on })
}

func (f *Fleet) quirk(id string, set func(*gpu)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, g, err := f.gpu(id)
	if err == nil {
		set(g)
	}
	return err
}
