package acts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The levels of a validation. Each has the tests of those below it.
const (
	levelRead = 1 // what the driver tells; nobody is disturbed
	levelLoad = 2 // GPUs work: a sweep of their memory, a burst of computing, and diagnostics of this level
	levelMost = 3 // and diagnostics that take long
)

// Validation bounds what a validation takes.
type Validation struct {
	Memory  time.Duration `yaml:"memory"`  // of the sweep of a GPU's memory, at most; 0 is none
	Burst   time.Duration `yaml:"burst"`   // of computing on a GPU; 0 is none
	Timeout time.Duration `yaml:"timeout"` // of all of it
	CUDA    string        `yaml:"cuda"`    // library of the driver, file name or path
}

func (v *Validation) validate() error {
	switch {
	case v.Memory < 0 || v.Burst < 0:
		return errors.New("validation: memory and burst must not be negative")
	case v.Timeout < time.Second:
		return errors.New("validation: timeout must be at least 1s")
	case v.CUDA == "":
		return errors.New("validation: cuda must be set")
	}
	return nil
}

// Computer has a GPU work, and checks what it did.
type Computer interface {
	// Compute sweeps the memory of a GPU, then has it compute. It calls busy when the computing begins.
	// Why it cannot be tested is a test as well.
	Compute(ctx context.Context, gpu GPU, v Validation, busy func()) []Test
}

// Diagnostics are tests that somebody else brings along.
type Diagnostics interface {
	// Diagnose tests GPUs. An error says why it cannot; that speaks against none of them.
	Diagnose(ctx context.Context, level int, numbers []uint32) (Report, error)
}

// subjects returns GPUs that a validation is to look at, all that should be there where none is named.
// Of one that is not there nothing is known: that is for the validation to say.
func (h *Hand) subjects(ctx context.Context, numbers []uint32) (out []GPU, err error) {
	if len(numbers) == 0 {
		if numbers, err = h.GPUs.Known(ctx); err != nil {
			return nil, err
		}
	}
	for _, n := range numbers {
		one := GPU{Number: n}
		group, _ := h.GPUs.Group(ctx, []uint32{n})
		for _, g := range group {
			if g.Number == n {
				one = g
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// validate tests GPUs and keeps the report.
func (h *Hand) validate(ctx context.Context, a *Act, gpus []GPU) ending {
	ctx, done := context.WithTimeout(ctx, h.cfg.Tests.Timeout)
	defer done()
	r := Report{ID: a.ID, Level: a.Level, Began: a.Began}
	for _, g := range gpus {
		r.GPUs = append(r.GPUs, g.Number)
	}
	values := h.read(ctx, &r)
	for _, g := range gpus {
		if v := values[g.Number]; v != nil {
			r.Add(judge(g.Number, v, values)...)
			if a.Level >= levelLoad {
				r.Add(h.load(ctx, g, v)...)
			}
		}
	}
	if a.Level >= levelLoad {
		r.Add(h.diagnose(ctx, &r)...)
	}
	if ctx.Err() != nil {
		r.Add(Test{Name: "time", GPU: AllGPUs, Result: Broken, Message: fmt.Sprintf("the validation did not end within %s", h.cfg.Tests.Timeout)})
	}
	r.Ended = time.Now().UTC()
	if err := h.Reports.Keep(r); err != nil {
		return ending{outcome: Failed, message: "the report cannot be kept: " + err.Error()}
	}
	return ending{outcome: Done, message: r.String()}
}

// read reads the GPUs of a report, and those that they are compared with.
func (h *Hand) read(ctx context.Context, r *Report) map[uint32]map[string]float64 {
	values := map[uint32]map[string]float64{}
	known, _ := h.GPUs.Known(ctx)
	for _, n := range r.GPUs {
		v, err := h.readOne(ctx, n, true)
		if err != nil {
			r.Add(Test{Name: "driver", GPU: int(n), Result: Broken, Message: err.Error()})
			continue
		}
		r.Add(Test{Name: "driver", GPU: int(n), Result: Passed, Message: "it is read"})
		values[n] = v
	}
	for _, n := range known {
		if !slices.Contains(r.GPUs, n) {
			if v, err := h.readOne(ctx, n, false); err == nil {
				values[n] = v
			}
		}
	}
	return values
}

func (h *Hand) readOne(ctx context.Context, n uint32, all bool) (map[string]float64, error) {
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	return h.GPUs.Read(ctx, n, all)
}

// The bits of nvmlClocksEventReasons that tell of trouble (NVML API reference).
const (
	reasonSlowdown = 0x8
	reasonSoftHeat = 0x20
	reasonHeat     = 0x40
	reasonBrake    = 0x80
)

// judge says what the readings of a GPU mean, beside those of its neighbours. What a board does
// not tell is not tested.
func judge(n uint32, v map[string]float64, all map[uint32]map[string]float64) (out []Test) {
	add := func(name string, result Result, value float64, unit, format string, args ...any) {
		out = append(out, Test{Name: name, GPU: int(n), Result: result, Message: fmt.Sprintf(format, args...), Value: value, Unit: unit})
	}
	// none has a count that should be 0.
	none := func(name, leaf string, bad Result, what string) {
		switch x, ok := v["state/"+leaf]; {
		case ok && x > 0:
			add(name, bad, x, "1", "%s: %.0f", what, x)
		case ok:
			add(name, Passed, x, "1", "none")
		}
	}
	none("ecc-uncorrected", "ecc-uncorrected", Broken, "uncorrected errors of memory since the driver was loaded")
	none("ecc-corrected", "ecc-corrected", Warned, "corrected errors of memory since the driver was loaded")
	none("remap-pending", "remap-pending", Broken, "rows of memory wait for a reset to be remapped")
	none("remap-failed", "remap-failed", Broken, "a row of memory could not be remapped, and the board is to be exchanged")
	none("remap-spare", "remap-banks-none", Warned, "banks of memory without a spare row")
	none("retired-pending", "retired-pages-pending", Broken, "pages of memory wait for a reset to be retired")
	none("sram", "sram-threshold-exceeded", Broken, "uncorrected errors of SRAM are more than a field diagnosis lets pass, and the board is to be exchanged")
	none("channel-repair", "channel-repair-pending", Broken, "the repair of a channel of memory waits for a reset")
	none("tpc-repair", "tpc-repair-pending", Broken, "the repair of a cluster of multiprocessors waits for a reset")
	none("recovery", "recovery-action", Broken, "the driver wants something done before it is used again (nvmlDeviceGpuRecoveryAction_t)")
	none("fabric", "fabric-error", Broken, "its registration in the NVLink fabric ended with an error of NVML")
	none("fabric-routes", "fabric-route-unhealthy", Broken, "its routes in the NVLink fabric are not well")
	none("fabric-bandwidth", "fabric-bandwidth-degraded", Warned, "it has less bandwidth in the NVLink fabric than it should")
	none("inforom", "inforom-corrupted", Broken, "the checksum of the InfoROM is wrong")
	if have, most := v["state/pcie-width"], v["state/pcie-width-max"]; most > 0 {
		result := Passed
		if have < most {
			result = Broken
		}
		add("pcie-width", result, have, "1", "%.0f of %.0f lanes", have, most)
	}
	out = append(out, judgeLinks(n, v, all)...)
	if reasons, ok := v["state/clocks-event-reasons"]; ok {
		result, message := throttled(uint64(reasons))
		add("throttle", result, 0, "", "%s", message)
	}
	return append(out, judgeHeat("temperature", n, v["state/temperature"], v)...)
}

// judgeLinks compares how many NVLinks are up with the neighbours: a board that is joined to
// nobody has none, and how many one should have nobody tells.
func judgeLinks(n uint32, v map[string]float64, all map[uint32]map[string]float64) []Test {
	up := func(v map[string]float64) (up int, down []string) {
		for link := range 64 {
			switch active, ok := v[fmt.Sprintf("nvlink[link=%d]/state/active", link)]; {
			case ok && active > 0:
				up++
			case ok:
				down = append(down, strconv.Itoa(link))
			}
		}
		return up, down
	}
	have, down := up(v)
	most := have
	for _, other := range all {
		x, _ := up(other)
		most = max(most, x)
	}
	if most == 0 {
		return nil
	}
	t := Test{Name: "nvlink", GPU: int(n), Result: Passed, Message: fmt.Sprintf("%d links are up", have), Value: float64(have), Unit: "1"}
	if have < most {
		t.Result, t.Message = Broken, fmt.Sprintf("%d links are up and %d of another GPU; down: %s", have, most, strings.Join(down, ", "))
	}
	return []Test{t}
}

func throttled(reasons uint64) (Result, string) {
	switch {
	case reasons&reasonBrake != 0:
		return Broken, "the power brake of the server holds its clocks down"
	case reasons&reasonHeat != 0:
		return Broken, "its hardware holds its clocks down for heat"
	case reasons&reasonSlowdown != 0:
		return Broken, "its hardware holds its clocks down"
	case reasons&reasonSoftHeat != 0:
		return Warned, "the driver holds its clocks down for heat"
	}
	return Passed, "nothing holds its clocks down"
}

func judgeHeat(name string, n uint32, at float64, v map[string]float64) []Test {
	if at <= 0 {
		return nil
	}
	t := Test{Name: name, GPU: int(n), Result: Passed, Value: at, Unit: "Cel"}
	slow, most := v["state/temperature-slowdown"], v["state/temperature-max-operating"]
	switch {
	case slow > 0 && at >= slow:
		t.Result, t.Message = Broken, fmt.Sprintf("%.0f °C; it slows down at %.0f °C", at, slow)
	case most > 0 && at > most:
		t.Result, t.Message = Warned, fmt.Sprintf("%.0f °C; it should not be above %.0f °C", at, most)
	default:
		t.Message = fmt.Sprintf("%.0f °C", at)
	}
	return []Test{t}
}

// sampling is how often a GPU that computes is read.
const sampling = time.Second

// load has a GPU work, and reads it meanwhile.
func (h *Hand) load(ctx context.Context, g GPU, before map[string]float64) []Test {
	if h.Computer == nil {
		return []Test{{Name: "compute", GPU: int(g.Number), Result: Skipped, Message: "this agent cannot have a GPU work"}}
	}
	began, samples := make(chan struct{}), make(chan []map[string]float64)
	reading, end := context.WithCancel(ctx)
	go func() {
		var out []map[string]float64
		defer func() { samples <- out }()
		select {
		case <-began:
		case <-reading.Done():
			return
		}
		tick := time.NewTicker(sampling)
		defer tick.Stop()
		for {
			select {
			case <-reading.Done():
				return
			case <-tick.C:
				if v, err := h.readOne(reading, g.Number, len(out) == 0); err == nil {
					out = append(out, v)
				}
			}
		}
	}()
	busy := false
	tests := h.Computer.Compute(ctx, g, h.cfg.Tests, func() {
		if !busy {
			busy = true
			close(began)
		}
	})
	end()
	loaded := <-samples
	// What had it open is gone, and the next act must see that.
	after, err := h.readOne(context.WithoutCancel(ctx), g.Number, true)
	if err != nil {
		return append(tests, Test{Name: "driver-after", GPU: int(g.Number), Result: Broken, Message: "after it has worked: " + err.Error()})
	}
	return append(tests, judgeLoad(g.Number, before, loaded, after)...)
}

// judgeLoad says what a GPU was like while it computed, and what it has counted meanwhile.
func judgeLoad(n uint32, before map[string]float64, loaded []map[string]float64, after map[string]float64) (out []Test) {
	most := func(leaf string) (x float64) {
		for _, v := range loaded {
			x = max(x, v["state/"+leaf])
		}
		return x
	}
	if len(loaded) > 0 {
		out = judgeHeat("temperature-load", n, most("temperature"), before)
		out = append(out, Test{Name: "power-load", GPU: int(n), Result: Passed, Message: fmt.Sprintf("%.0f W at most", most("power")), Value: most("power"), Unit: "W"},
			Test{Name: "clock-load", GPU: int(n), Result: Passed, Message: fmt.Sprintf("%.0f MHz at most", most("sm-clock")), Value: most("sm-clock"), Unit: "MHz"})
		var reasons uint64
		for _, v := range loaded {
			reasons |= uint64(v["state/clocks-event-reasons"])
		}
		result, message := throttled(reasons)
		out = append(out, Test{Name: "throttle-load", GPU: int(n), Result: result, Message: message})
		if gen, top := most("pcie-generation"), before["state/pcie-generation-max"]; gen > 0 && top > 0 { // an idle one runs slower
			t := Test{Name: "pcie-generation", GPU: int(n), Result: Passed, Message: fmt.Sprintf("generation %.0f of %.0f", gen, top), Value: gen, Unit: "1"}
			if gen < top {
				t.Result = Broken
			}
			out = append(out, t)
		}
	}
	grew := func(name, leaf string, bad Result) {
		was, ok1 := before["state/"+leaf]
		is, ok2 := after["state/"+leaf]
		switch {
		case !ok1 || !ok2:
		case is > was:
			out = append(out, Test{Name: name, GPU: int(n), Result: bad, Message: fmt.Sprintf("%.0f while it worked", is-was), Value: is - was, Unit: "1"})
		default:
			out = append(out, Test{Name: name, GPU: int(n), Result: Passed, Message: "none while it worked", Unit: "1"})
		}
	}
	grew("ecc-uncorrected-load", "ecc-uncorrected", Broken)
	grew("ecc-corrected-load", "ecc-corrected", Warned)
	grew("pcie-replays-load", "pcie-replays", Warned)
	grew("remap-pending-load", "remap-pending", Broken)
	grew("nvlink-crc-load", "nvlink-crc-flit-errors", Warned)
	return out
}

// diagnose asks for the diagnostics of others.
func (h *Hand) diagnose(ctx context.Context, r *Report) []Test {
	if h.Diagnostics == nil {
		return []Test{{Name: "dcgm", GPU: AllGPUs, Result: Skipped, Message: "this agent has no DCGM"}}
	}
	theirs, err := h.Diagnostics.Diagnose(ctx, r.Level, r.GPUs)
	if err != nil {
		return append(theirs.Tests, Test{Name: "dcgm", GPU: AllGPUs, Result: Skipped, Message: err.Error()})
	}
	return theirs.Tests
}
