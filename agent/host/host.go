// Package host reads what a server's own system tells of it: pressure, network
// interfaces and their neighbours, memory modules, disks, services. Each source is a
// file of this package and a line of its list of sources; it reads on its own, so that
// one that is stuck or cannot be read costs the others nothing.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"auspex/internal/target"
)

// Config says what is read. The folders may be those of another root, as of a
// container's host.
type Config struct {
	Disabled bool          `yaml:"disabled"`
	Interval time.Duration `yaml:"interval"` // between two readings; slow sources are read less often
	Sys      string        `yaml:"sys"`      // where sysfs is mounted
	Proc     string        `yaml:"proc"`     // where procfs is mounted
	Run      string        `yaml:"run"`      // the folder of the system bus's socket
	Dev      string        `yaml:"dev"`      // the folder of the devices of disks
	Services []string      `yaml:"services"` // units of systemd that are watched; .service may be left out
}

// Default returns the defaults: this machine, and the services of a GPU server.
func Default() Config {
	return Config{
		Interval: 10 * time.Second, Sys: "/sys", Proc: "/proc", Run: "/run", Dev: "/dev",
		Services: []string{"nvidia-fabricmanager", "nvidia-imex", "nvidia-persistenced", "slurmd", "kubelet"},
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.Disabled:
		return nil
	case c.Interval < 100*time.Millisecond:
		return errors.New("interval must be at least 100ms")
	case c.Sys == "" || c.Proc == "" || c.Run == "" || c.Dev == "":
		return errors.New("sys, proc, run and dev must be set")
	case len(c.Services) > maxServices:
		return fmt.Errorf("services: at most %d", maxServices)
	}
	for i, name := range c.Services {
		if !plain(name) || strings.ContainsAny(name, "/ ") {
			return fmt.Errorf("services[%d]: %q is no name of a unit", i, name)
		}
	}
	return nil
}

// source reads one kind of thing and writes it to the tree. What it cannot read it
// leaves with its machine.
type source interface {
	read(at time.Time)
}

// sources are all that there are. A slow one is read every so many intervals.
var sources = []struct {
	name  string
	every int
	open  func(m *machine) source
}{
	{"system", 6, newSystem},
	{"pressure", 1, newPressure},
	{"network interfaces", 1, newNICs},
	{"infiniband", 1, newInfiniBand},
	{"memory modules", 1, newMemory},
	{"nvswitches", 1, newNVSwitches},
	{"disks", 6, newDisks},
	{"services", 3, newServices},
	{"lldp neighbors", 6, newLLDP},
	{"identity", 3, newIdentity},
}

// stuck is after how many of its intervals a reading that does not return is told.
const stuck = 3

// Host reads all sources.
type Host struct {
	cfg  Config
	tree *target.Tree
	log  *slog.Logger

	mu        sync.Mutex
	runners   []*runner
	garbled   uint64
	told      string
	count     uint64
	malformed target.Ref
	trouble   target.Ref
}

// runner is a source at work.
type runner struct {
	name    string
	every   time.Duration
	machine *machine
	source  source

	// Under the host's lock:
	since  time.Time // when the reading began that is under way; zero is none
	fault  string    // why it cannot be read
	logged string    // the fault that was logged last
}

// New returns a reader; it performs no I/O.
func New(cfg Config, tree *target.Tree, log *slog.Logger) *Host {
	h := &Host{
		cfg: cfg, tree: tree, log: log, count: math.MaxUint64,
		malformed: tree.Leaf("/host/state/malformed"), trouble: tree.Leaf("/host/state/unreadable"),
	}
	for _, s := range sources {
		m := newMachine(&h.cfg, tree)
		h.runners = append(h.runners, &runner{
			name: s.name, every: time.Duration(s.every) * cfg.Interval, machine: m, source: s.open(m),
		})
	}
	return h
}

// Files are what the kernel of a machine shows in sysfs and procfs, where that is not this
// machine. They are used by several goroutines at once.
type Files interface {
	// Read reads a file whole, as far as there is room.
	Read(path string, into []byte) (int, error)
	Names(dir string) ([]string, error)
	// Link returns where a symbolic link leads; empty is none.
	Link(path string) string
}

// Disks are the commands of the disks of a machine that is not this one; [Files] may have them.
type Disks interface {
	// NVMeHealth reads the log page of SMART and health information of a controller.
	NVMeHealth(device string, page *[512]byte) error
	// ATA makes a command of a disk, and returns how many bytes of sense data came back.
	ATA(device string, command *[16]byte, data *[512]byte, sense *[64]byte) (int, error)
}

// Unit is a service as systemd tells it.
type Unit struct {
	Name, Active, Sub, Result string
	Restarts                  uint64
}

// On lets readings be of another machine. It is called before Run.
func (h *Host) On(files Files, units func(names []string) []Unit) {
	for _, r := range h.runners {
		r.machine.files = files
		if d, ok := r.source.(*disks); ok {
			if of, ok := files.(Disks); ok {
				d.log = func(device string, page *logPage) error { return of.NVMeHealth(device, (*[512]byte)(page)) }
				d.ata = func(device string, cdb *[16]byte, data *sector, sense *[64]byte) (int, error) {
					return of.ATA(device, cdb, (*[512]byte)(data), sense)
				}
			}
		}
		if s, ok := r.source.(*services); ok {
			s.ask = func(_ context.Context, names []string) (out []unit, err error) {
				for _, u := range units(names) {
					out = append(out, unit{u.Name, u.Active, u.Sub, u.Result, u.Restarts, true})
				}
				return out, nil
			}
		}
	}
}

// Run reads until ctx is done. It waits for readings under way: a caller that cannot
// wait for a machine that is stuck leaves it.
func (h *Host) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, r := range h.runners {
		all.Go(func() { h.follow(ctx, r) })
	}
	tick := time.NewTicker(h.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			all.Wait()
			return
		case <-tick.C:
			h.tell()
		}
	}
}

// follow reads one source again and again.
func (h *Host) follow(ctx context.Context, r *runner) {
	r.machine.ctx = ctx
	defer r.machine.close()
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		if !h.reading(r) {
			return
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// reading reads a source once. False is a source that cannot go on.
func (h *Host) reading(r *runner) (goes bool) {
	h.mu.Lock()
	r.since = time.Now()
	h.mu.Unlock()
	defer func() {
		fault, garbled := r.machine.faults()
		if p := recover(); p != nil { // it harms itself alone
			h.log.Error("a source of the host ended", "source", r.name, "panic", p, "stack", string(debug.Stack()))
			fault, goes = "it failed and is not read any more", false
		}
		h.mu.Lock()
		r.since, r.fault = time.Time{}, fault
		h.garbled += garbled
		h.mu.Unlock()
		h.tell()
	}()
	r.source.read(r.since)
	return true
}

// tell publishes what cannot be read; each sentence is logged once.
func (h *Host) tell() {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := ""
	for _, r := range h.runners {
		fault := r.fault
		if !r.since.IsZero() && time.Since(r.since) > stuck*r.every {
			fault = "a reading does not return"
		}
		if fault == "" {
			continue
		}
		fault = r.name + ": " + fault
		if text != "" {
			text += "; "
		}
		text += fault
		if fault != r.logged {
			r.logged = fault
			h.log.Warn("a source of the host is not read", "source", r.name, "error", fault)
		}
	}
	if text == h.told && h.garbled == h.count {
		return
	}
	h.told, h.count = text, h.garbled
	w := h.tree.Write(time.Now())
	defer w.Close()
	w.Uint(h.malformed, h.garbled)
	if text == "" {
		w.None(h.trouble)
		return
	}
	w.Text(h.trouble, text)
}
