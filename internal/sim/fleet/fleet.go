// Package fleet is the physical model of the simulated fleet: servers with
// GPUs, fans and power supplies, racks with two power feeds, switches and air
// handlers. All protocols answer from its one state, so their numbers agree.
//
// Time is given from outside ([Fleet.Step]), so that tests run it faster than
// the clock; the same seed and the same calls give the same fleet.
package fleet

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/kmsg"
	"auspex/internal/sim/ledger"
)

// ErrUnknown is returned for a device or part that the fleet does not have.
var ErrUnknown = errors.New("the simulated fleet has no such part")

// Config says how large the fleet is.
type Config struct {
	Site           string `yaml:"site"`
	Racks          int    `yaml:"racks"`
	ServersPerRack int    `yaml:"servers_per_rack"`
	GPUs           int    `yaml:"gpus"` // of a server
	Spines         int    `yaml:"spines"`
	CRACs          int    `yaml:"cracs"`
	// FeedWatts is what each PDU is rated for, as the inventory then says; one that carries more for a while trips. 0 is that nobody
	// knows, and none trips.
	FeedWatts float64 `yaml:"feed_watts"`
	// FeedTripAfter is for how long that is; 0 is 30 s, so that tests see it.
	FeedTripAfter time.Duration `yaml:"feed_trip_after"`
	// Syslog is where the kernels' lines are sent over UDP, host:port, as RFC 5424 has it; empty is nowhere.
	Syslog string `yaml:"syslog"`
	// Password of its controllers and switches; empty is [Password].
	Password string `yaml:"password"`
}

// DefaultConfig returns the fleet of the demo: 64 servers with 512 GPUs. A feed of a rack is 50 A of three phases at 415 V, of which it may
// carry 80 %: 28.8 kW. Two carry a rack whose eight servers are all at work (39 kW), and one alone does where half of them are. A breaker
// bears a third more than that for a while.
func DefaultConfig() Config {
	return Config{Site: "dc1", Racks: 8, ServersPerRack: 8, GPUs: 8, Spines: 2, CRACs: 2, FeedWatts: 28_800, FeedTripAfter: 20 * time.Minute}
}

// Validate checks that the sizes are possible.
func (c Config) Validate() error {
	for _, v := range []struct {
		name     string
		n, least int
		most     int
	}{
		{"racks", c.Racks, 1, 99},
		{"servers_per_rack", c.ServersPerRack, 1, 24},
		{"gpus", c.GPUs, 1, 16},
		{"spines", c.Spines, 0, 16},
		{"cracs", c.CRACs, 1, 99},
	} {
		if v.n < v.least || v.n > v.most {
			return fmt.Errorf("%s is %d; it must be %d to %d", v.name, v.n, v.least, v.most)
		}
	}
	if c.FeedWatts < 0 {
		return fmt.Errorf("feed_watts is %g; it must not be negative", c.FeedWatts)
	}
	if c.FeedTripAfter < 0 {
		return fmt.Errorf("feed_trip_after is %s; it must not be negative", c.FeedTripAfter)
	}
	if c.Site == "" {
		return errors.New("site is empty")
	}
	return nil
}

// Password returns what opens the fleet's controllers and switches.
func (f *Fleet) Password() string { return cmp.Or(f.cfg.Password, Password) }

// Password and user of every simulated board controller and switch, where the
// configuration says nothing else. They are public.
const (
	User     = "admin"
	Password = "auspex-demo"
)

// Physics is how often the model computes its next state.
const Physics = time.Second

// Fleet is the model. Its methods may be called at the same time.
type Fleet struct {
	mu       sync.Mutex
	cfg      Config
	led      *ledger.Writer
	rng      *rand.Rand
	now      time.Time
	nextTick time.Time
	queue    queue
	settling bool // no pauses of jobs
	order    uint64

	servers   []*server
	byName    map[string]*server
	switches  []*netSwitch
	swByName  map[string]*netSwitch
	racks     []*rack
	cracs     []*crac
	pdus      map[string]*pdu
	listeners []func(now time.Time, e Change)
	syslog    net.Conn              // nil without
	offers    func(mac string) bool // who may start from the network
	service   device.Fault          // of the interface of the installer
	records   uint64
	err       error
}

// ChangeKind says what a [Change] tells.
type ChangeKind string

// The changes that a scheduler must know of.
const (
	HostDown ChangeKind = "host_down"
	HostUp   ChangeKind = "host_up"
	GPULost  ChangeKind = "gpu_lost"
	GPUBack  ChangeKind = "gpu_back"
	NICDown  ChangeKind = "nic_down"
)

// Change tells that a server can no longer do, or can again do, its work.
type Change struct {
	Kind   ChangeKind
	Server string
	GPU    int
}

// New makes a fleet that is switched on at the given time. Kernel logs go below
// dir. It performs no I/O; the hosts boot in [Fleet.Start].
func New(cfg Config, seed uint64, dir string, led *ledger.Writer, now time.Time) *Fleet {
	f := &Fleet{
		cfg: cfg, led: led, now: now, nextTick: now,
		rng:    rand.New(rand.NewPCG(seed, 0x6c62272e07bb0142)),
		byName: map[string]*server{}, swByName: map[string]*netSwitch{}, pdus: map[string]*pdu{},
	}
	for i := range cfg.CRACs {
		f.cracs = append(f.cracs, &crac{name: fmt.Sprintf("crac-%d", i+1), supply: supplyCelsius})
	}
	for r := range cfg.Racks {
		rk := &rack{index: r, name: fmt.Sprintf("%s-r%02d", cfg.Site, r+1), crac: f.cracs[r*cfg.CRACs/cfg.Racks], inlet: supplyCelsius + 2}
		for i, feed := range []string{"a", "b"} {
			p := &pdu{name: fmt.Sprintf("pdu-r%02d-%s", r+1, feed), feed: i, rack: rk, live: true}
			rk.pdus[i] = p
			f.pdus[p.name] = p
		}
		for s := range cfg.ServersPerRack {
			sv := f.newServer(rk, s, filepath.Join(dir, fmt.Sprintf("gpu-r%02d-%02d", r+1, s+1)))
			rk.servers = append(rk.servers, sv)
			f.servers = append(f.servers, sv)
			f.byName[sv.name] = sv
		}
		f.racks = append(f.racks, rk)
	}
	f.newSwitches()
	return f
}

// Start opens the kernel logs of hosts that have been up for days, or goes on
// with those that [Fleet.Restore] has found.
func (f *Fleet) Start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.sendLogs(); err != nil {
		return err
	}
	for _, s := range f.servers {
		up := time.Duration(3+f.rng.IntN(60)) * 24 * time.Hour
		goesOn, err := f.resume(s)
		if err != nil {
			return err
		}
		if goesOn {
			continue
		}
		if s.kept != nil { // it was down; Repair boots it
			s.host = hostOff
			continue
		}
		if err := s.klog.Boot(f.now.Add(-up-time.Duration(f.rng.IntN(86400))*time.Second), uint64(20000+f.rng.IntN(60000))); err != nil {
			return err
		}
		f.fabricLines(s)
		f.print(s, kmsg.Info, "perf: interrupt took too long (2504 > 2500), lowering kernel.perf_event_max_sample_rate to 79750")
	}
	return f.err
}

// Close closes the kernel logs; they stay as they are.
func (f *Fleet) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	for _, s := range f.servers {
		err = errors.Join(err, s.klog.Close())
	}
	if f.syslog != nil {
		err = errors.Join(err, f.syslog.Close())
	}
	return err
}

// OnChange calls fn whenever a server loses or regains what work needs. Fn is
// called with the fleet locked and must not call back.
func (f *Fleet) OnChange(fn func(now time.Time, c Change)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, fn)
}

func (f *Fleet) change(c Change) {
	for _, fn := range f.listeners {
		fn(f.now, c)
	}
}

// Step moves the model to the given time: what is due by then happens in order,
// at its own time. It returns when the next thing is due, and the first error
// of writing a kernel log.
func (f *Fleet) Step(now time.Time) (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		next := f.nextTick
		if len(f.queue) > 0 && f.queue[0].at.Before(next) {
			next = f.queue[0].at
		}
		if next.After(now) {
			if now.After(f.now) {
				f.now = now
			}
			return next, f.err
		}
		if next.After(f.now) {
			f.now = next
		}
		if len(f.queue) > 0 && !f.queue[0].at.After(next) {
			heap.Pop(&f.queue).(*item).run()
			continue
		}
		f.physics(Physics)
		f.nextTick = f.nextTick.Add(Physics)
		if behind := now.Sub(f.nextTick); behind > time.Minute {
			f.nextTick = now // the machine slept: do not replay the gap
		}
	}
}

// After runs fn with the fleet locked when the model's clock has moved on by d.
func (f *Fleet) After(d time.Duration, fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after(d, fn)
}

func (f *Fleet) after(d time.Duration, fn func()) {
	f.order++
	heap.Push(&f.queue, &item{f.now.Add(d), f.order, fn})
}

// jitter returns a time between the two.
func (f *Fleet) jitter(least, most time.Duration) time.Duration {
	return least + time.Duration(f.rng.Int64N(int64(most-least)+1))
}

func (f *Fleet) fail(err error) {
	if err != nil && f.err == nil {
		f.err = err
	}
}

// Servers returns the names of all servers, in order.
func (f *Fleet) Servers() []string {
	var out []string
	for _, s := range f.servers {
		out = append(out, s.name)
	}
	return out
}

// Switches returns the names of all switches, leaves first.
func (f *Fleet) Switches() []string {
	var out []string
	for _, s := range f.switches {
		out = append(out, s.name)
	}
	return out
}

// Config returns the sizes of the fleet.
func (f *Fleet) Config() Config { return f.cfg }

type rack struct {
	index   int
	name    string
	crac    *crac
	pdus    [2]*pdu
	servers []*server
	leaf    *netSwitch
	inlet   float64
}

type pdu struct {
	name  string
	feed  int
	rack  *rack
	live  bool
	stuck bool          // its outlets say yes, and stay as they are
	over  time.Duration // for how long it has carried more than it is rated for
}

type crac struct {
	name   string
	failed bool
	supply float64
}

type item struct {
	at    time.Time
	order uint64
	run   func()
}

type queue []*item

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].order < q[j].order
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*item)) }
func (q *queue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
