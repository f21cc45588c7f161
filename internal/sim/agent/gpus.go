package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"auspex/agent/acts"
	"auspex/agent/nvml"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/run"
	"auspex/internal/sim/fleet"
)

// stuck is the call of the driver that does not return for a GPU that hangs.
const stuck = "nvmlDeviceGetPowerUsage"

// gpus reads the GPUs of a server of the model, as [nvml.Reader] reads those of a driver. All
// but its constructor happens in Run.
type gpus struct {
	*nvml.Memory

	fleet    *fleet.Fleet
	server   string
	interval time.Duration
	tree     *tree
	host     fleet.Host
	calls    chan func()
	released atomic.Bool // somebody resets them
}

func newGPUs(cfg *Config, n nvml.Needs) *gpus {
	memory := nvml.NewMemory(n)
	var host fleet.Host
	cfg.Fleet.Host(cfg.Server, &host)
	memory.Watch().Patience = 30 * cfg.Interval
	return &gpus{Memory: memory, fleet: cfg.Fleet, server: cfg.Server, interval: cfg.Interval, tree: newTree(n.Tree, host.Driver), calls: make(chan func())}
}

// Run implements [agent.GPUs].
func (g *gpus) Run(ctx context.Context) {
	g.fleet.Host(g.server, &g.host)
	g.Load(len(g.host.GPUs))
	defer g.Settled()
	tick := time.NewTicker(g.interval)
	defer tick.Stop()
	for g.read(); ; {
		select {
		case <-ctx.Done():
			return
		case call := <-g.calls:
			call()
		case <-tick.C:
			g.read()
		}
		g.Settled()
	}
}

// in makes a call in Run.
func (g *gpus) in(ctx context.Context, call func()) error {
	made := make(chan struct{})
	select {
	case g.calls <- func() { defer close(made); call() }:
		<-made
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no GPU is read now: %w", ctx.Err())
	}
}

// read reads all GPUs once.
func (g *gpus) read() {
	if g.released.Load() || !g.fleet.Host(g.server, &g.host) || !g.host.Up {
		return
	}
	now, watch := time.Now(), g.Watch()
	for i := range g.host.GPUs {
		h := &g.host.GPUs[i]
		n := uint32(h.Index)
		switch {
		case h.Hung:
			watch.Stalled(now, n, true, stuck+" has not returned for 5s")
			g.tree.stalled(now, n)
			continue
		case h.Failing:
			watch.Misses(now, n, gpuwatch.Stale)
			g.tree.missing(now, n)
			continue
		case !h.Present:
			watch.Misses(now, n, gpuwatch.Lost)
			g.tree.missing(now, n)
			continue
		}
		watch.Stalled(now, n, false, "the call has returned")
		watch.Name(n, h.UUID, h.PCI)
		watch.Answers(now, n)
		watch.Reads(now, n, gpuwatch.Reading{Reasons: float64(h.Reasons), Pending: truth(h.RemapPending), DBE: h.DBE, XID: math.NaN()})
		f := fabric(h)
		watch.Fabric(now, n, &f)
		g.tree.tell(now, n, h, g.Wanted(n), g.enforce(n, h))
	}
}

// at finds a GPU that answers.
func (g *gpus) at(n uint32) (*fleet.HostGPU, error) {
	g.fleet.Host(g.server, &g.host)
	if int(n) >= len(g.host.GPUs) || !g.host.GPUs[n].Present {
		return nil, fmt.Errorf("gpu%d is not there", n)
	}
	if g.host.GPUs[n].Hung {
		return nil, fmt.Errorf("gpu%d: %s has not returned", n, stuck)
	}
	return &g.host.GPUs[n], nil
}

// enforce sets what peers want and is not so, and says what cannot be set.
func (g *gpus) enforce(n uint32, h *fleet.HostGPU) (unset string) {
	to, wanted := h.Set, g.Wanted(n)
	for leaf, w := range wanted {
		if err := change(&to, leaf, w.Value); err != nil {
			return leaf + ": " + err.Error()
		}
	}
	if to == h.Set {
		return ""
	}
	if err := g.fleet.SetGPU(g.server, h.Index, to); err != nil {
		return err.Error()
	}
	var after fleet.Host
	if g.fleet.Host(g.server, &after); after.GPUs[n].Set != to {
		return "the GPU does not take its settings"
	}
	h.Set = to
	return ""
}

// Set implements [agent.GPUs].
func (g *gpus) Set(ctx context.Context, by string, wishes []nvml.Wish) (err error) {
	if away := g.in(ctx, func() { err = g.set(by, wishes) }); away != nil {
		return away
	}
	return err
}

func (g *gpus) set(by string, wishes []nvml.Wish) error {
	if err := g.Refuse(wishes, by); err != nil {
		return err
	}
	before, after := map[uint32]fleet.GPUSettings{}, map[uint32]fleet.GPUSettings{}
	for _, w := range wishes {
		h, err := g.at(w.GPU)
		if err == nil && h.Failing {
			err = fmt.Errorf("gpu%d: nvmlDeviceGetPowerManagementLimit: error 999 of NVML", w.GPU)
		}
		if err != nil {
			return err
		}
		to, begun := after[w.GPU]
		if !begun {
			before[w.GPU], to = h.Set, h.Set
		}
		if err := change(&to, w.Leaf, w.Value); err != nil {
			return fmt.Errorf("gpu%d: %s: %w", w.GPU, w.Leaf, err)
		}
		after[w.GPU] = to
	}
	for n, to := range after {
		err := g.fleet.SetGPU(g.server, int(n), to)
		if h, gone := g.at(n); err == nil && (gone != nil || h.Set != to) {
			err = fmt.Errorf("gpu%d does not take its settings", n)
		}
		if err != nil {
			for n, was := range before {
				_ = g.fleet.SetGPU(g.server, int(n), was)
			}
			return err
		}
	}
	return g.Grant(wishes, by)
}

// change puts a value as YANG writes it into settings.
func change(to *fleet.GPUSettings, leaf, value string) error {
	on, isTruth := map[string]bool{"true": true}[value], value == "true" || value == "false"
	switch leaf {
	case "power-limit":
		w, err := strconv.ParseFloat(value, 64)
		if err != nil || !(w >= fleet.PowerLimitMinW && w <= fleet.PowerLimitW) {
			return fmt.Errorf("%s W is outside of %g to %g W", value, fleet.PowerLimitMinW, fleet.PowerLimitW)
		}
		to.PowerLimit = w
		return nil
	case "application-clocks":
		a, b, _ := strings.Cut(value, ",")
		memory, err1 := strconv.ParseFloat(a, 64)
		sm, err2 := strconv.ParseFloat(b, 64)
		if err := errors.Join(err1, err2); err != nil || !(memory > 0 && memory <= fleet.MaxMemClock && sm > 0 && sm <= fleet.MaxSMClock) {
			return fmt.Errorf("%q is no pair of clocks in MHz, memory and SM, up to %g,%g", value, fleet.MaxMemClock, fleet.MaxSMClock)
		}
		to.MemClock, to.SMClock = memory, sm
		return nil
	}
	if !isTruth {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	switch leaf {
	case "persistence":
		to.Persistence = on
	case "ecc-enabled":
		to.ECC = on
	case "mig-enabled":
		to.MIG = on
	}
	return nil
}

// Group implements [acts.GPUs]: each is reset alone, as from Hopper on.
func (g *gpus) Group(ctx context.Context, numbers []uint32) (out []acts.GPU, err error) {
	if away := g.in(ctx, func() { out, err = g.group(numbers) }); away != nil {
		return nil, away
	}
	return out, err
}

func (g *gpus) group(numbers []uint32) (out []acts.GPU, err error) {
	if len(numbers) == 0 {
		g.fleet.Host(g.server, &g.host)
		for i := range g.host.GPUs {
			if h := &g.host.GPUs[i]; h.Present && !h.Hung {
				numbers = append(numbers, uint32(i))
			}
		}
	}
	for _, n := range numbers {
		h, err := g.at(n)
		if err != nil {
			return nil, err
		}
		one := acts.GPU{Number: n, PCI: h.PCI}
		if h.Load.PID != 0 {
			one.Processes = append(one.Processes, fmt.Sprintf("%s (%d)", h.Load.Name, h.Load.PID))
		}
		out = append(out, one)
	}
	return out, nil
}

// Known implements [acts.GPUs].
func (g *gpus) Known(ctx context.Context) (out []uint32, err error) {
	err = g.in(ctx, func() {
		g.fleet.Host(g.server, &g.host)
		for i := range g.host.GPUs {
			out = append(out, uint32(i))
		}
	})
	return out, err
}

// Read implements [acts.GPUs].
func (g *gpus) Read(ctx context.Context, number uint32, _ bool) (out map[string]float64, err error) {
	away := g.in(ctx, func() {
		g.read()
		h, wrong := g.at(number)
		switch {
		case wrong != nil:
			err = wrong
		case h.Failing:
			err = errors.New("it is not read: nvmlDeviceGetTemperature: error 999 of NVML")
		default:
			out = map[string]float64{}
			for _, l := range leaves {
				out["state/"+l.name] = l.value(h)
			}
		}
	})
	return out, errors.Join(err, away)
}

// Release implements [acts.GPUs].
func (g *gpus) Release(ctx context.Context) (resume func(), err error) {
	stuckAt := -1
	if err := g.in(ctx, func() {
		g.fleet.Host(g.server, &g.host)
		for i := range g.host.GPUs {
			if g.host.GPUs[i].Hung {
				stuckAt = i
			}
		}
		g.released.Store(stuckAt < 0)
	}); err != nil {
		return nil, err
	}
	if stuckAt >= 0 {
		return nil, fmt.Errorf("gpu%d: %s has not returned, and holds the driver", stuckAt, stuck)
	}
	return func() { g.released.Store(false) }, nil
}

// tools are nvidia-smi, rmmod, modprobe and systemctl of a server of the model.
type tools struct {
	fleet  *fleet.Fleet
	server string
}

// How long things take.
const (
	resetTakes  = 3 * time.Second
	reloadTakes = 3 * time.Second
	sweepTakes  = 300 * time.Millisecond
	burstTakes  = 1500 * time.Millisecond
)

// Reset implements [acts.Tools].
func (t *tools) Reset(ctx context.Context, group []acts.GPU) (string, error) {
	var numbers []int
	var parts []string
	for _, g := range group {
		numbers, parts = append(numbers, int(g.Number)), append(parts, fmt.Sprintf("gpu%d", g.Number))
	}
	err := t.noted(acts.KindReset, func() error {
		if err := run.Sleep(ctx, resetTakes); err != nil {
			return err
		}
		return t.fleet.ResetGPUs(t.server, numbers)
	}, parts...)
	if err != nil {
		return "nvidia-smi: " + err.Error(), err
	}
	return "All done.", nil
}

// noted writes down in the ledger that something is done, and how it ended.
func (t *tools) noted(kind string, do func() error, parts ...string) error {
	t.fleet.NoteAct(t.server, kind, "begun", "", parts...)
	err := do()
	if err != nil {
		t.fleet.NoteAct(t.server, kind, "failed", err.Error(), parts...)
		return err
	}
	t.fleet.NoteAct(t.server, kind, "done", "", parts...)
	return nil
}

// Reboot implements [acts.Tools].
func (t *tools) Reboot(context.Context) (string, error) {
	if err := t.noted(acts.KindReboot, func() error { return t.fleet.RebootHost(t.server) }); err != nil {
		return "systemctl: " + err.Error(), err
	}
	return "", nil
}

// Reload implements [acts.Tools].
func (t *tools) Reload(ctx context.Context, away func(acts.Away) error) (string, error) {
	if err := away(acts.Away{Units: []string{"nvidia-persistenced"}, Modules: []string{"nvidia_uvm", "nvidia"}}); err != nil {
		return err.Error(), err
	}
	if err := t.noted(acts.KindReload, func() error {
		if err := run.Sleep(ctx, reloadTakes); err != nil {
			return err
		}
		return t.fleet.ReloadDriver(t.server)
	}); err != nil {
		return err.Error(), err
	}
	return "loaded anew: nvidia_uvm, nvidia; stopped meanwhile: nvidia-persistenced", nil
}

// Restore implements [acts.Tools]: nothing of the model stays away.
func (t *tools) Restore(context.Context, acts.Away) error { return nil }

// computer has GPUs of the model work.
type computer struct {
	fleet  *fleet.Fleet
	server string
}

// Compute implements [acts.Computer].
func (c *computer) Compute(ctx context.Context, gpu acts.GPU, _ acts.Validation, busy func()) []acts.Test {
	index := int(gpu.Number)
	c.fleet.SetLoad(c.server, []int{index}, fleet.Load{Util: 1, Memory: .97})
	defer c.fleet.SetLoad(c.server, []int{index}, fleet.Load{})
	test := func(name string, broken bool, bad, good string) acts.Test {
		if broken {
			return acts.Test{Name: name, GPU: index, Result: acts.Broken, Message: bad}
		}
		return acts.Test{Name: name, GPU: index, Result: acts.Passed, Message: good}
	}
	err := run.Sleep(ctx, sweepTakes)
	if busy(); err == nil {
		err = run.Sleep(ctx, burstTakes)
	}
	if err != nil {
		return []acts.Test{test("compute", true, err.Error(), "")}
	}
	var h fleet.Host
	if !c.fleet.Host(c.server, &h) || !h.Up || index >= len(h.GPUs) || !h.GPUs[index].Present {
		return []acts.Test{test("start", true, "cuDeviceGetByPCIBusId: error 101 (invalid device ordinal)", "")}
	}
	g := &h.GPUs[index]
	if g.Apart {
		return []acts.Test{test("start", true, "cuInit: error 802 (system not yet initialized)", "")}
	}
	return []acts.Test{
		test("memory", g.Weak, "6 words were read otherwise than they were written", "6 patterns over the memory that was free"),
		test("compute", g.Wrong, "256 threads computed something else, on multiprocessors 17", "132 multiprocessors computed the same"),
	}
}
