package cuda

import (
	_ "embed" // the kernels
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"auspex/agent/acts"
)

// kernels are what runs on the GPU; its driver compiles them for it.
//
//go:embed kernels.ptx
var kernels string

// worker does a job.
type worker struct {
	job

	say                *json.Encoder
	lib                *library
	device             int32
	units              int // multiprocessors
	fill, check, burst uintptr
	pieces             []piece
}

// piece is memory of the GPU that is swept.
type piece struct {
	at    uint64
	words uint64
}

func (w *worker) begins(what string) { _ = w.say.Encode(line{Begins: what}) }

func (w *worker) found(name string, result acts.Result, value float64, unit, format string, args ...any) {
	_ = w.say.Encode(line{Test: &acts.Test{Name: name, GPU: w.GPU, Result: result, Message: fmt.Sprintf(format, args...), Value: value, Unit: unit}})
}

// work does it. The library has a thread of its own: a GPU is a matter of the thread.
func (w *worker) work() {
	runtime.LockOSThread()
	w.begins(starting)
	err := w.start()
	switch {
	case errors.Is(err, errNone):
		w.found("compute", acts.Skipped, 0, "", "%v", err)
		return
	case err != nil:
		w.found("start", acts.Broken, 0, "", "%v", err)
		return
	}
	defer w.lib.release(w.device)
	if w.Memory > 0 {
		w.begins(sweeping)
		if err := w.sweep(); err != nil {
			w.found("memory", acts.Broken, 0, "", "%v", err)
			return // what an error leaves, nobody can compute with
		}
	}
	if w.Burst > 0 {
		w.begins(computing)
		if err := w.compute(); err != nil {
			w.found("compute", acts.Broken, 0, "", "%v", err)
		}
	}
}

// start makes the GPU ready.
func (w *worker) start() (err error) {
	if w.lib, err = open(w.Library); err != nil {
		return err
	}
	l := w.lib
	if err := l.err("cuInit", l.init(0)); err != nil {
		return err
	}
	if err := l.err("cuDeviceGetByPCIBusId", l.byPCI(&w.device, w.PCI)); err != nil {
		return err
	}
	var units int32
	if err := l.err("cuDeviceGetAttribute", l.attribute(&units, multiprocessors, w.device)); err != nil {
		return err
	}
	w.units = int(units)
	_ = l.setFlags(w.device, blocking) // else it waits with all of a core
	var context, module uintptr
	if err := l.err("cuDevicePrimaryCtxRetain", l.retain(&context, w.device)); err != nil {
		return err
	}
	if err := l.err("cuCtxSetCurrent", l.setCurrent(context)); err != nil {
		return err
	}
	text := append([]byte(kernels), 0)
	if err := l.err("cuModuleLoadData", l.load(&module, ptr(&text[0]))); err != nil {
		return err
	}
	for name, f := range map[string]*uintptr{"fill": &w.fill, "check": &w.check, "burst": &w.burst} {
		if err := l.err("cuModuleGetFunction", l.function(f, module, name)); err != nil {
			return err
		}
	}
	return nil
}

// run runs a kernel with parameters of 4 or 8 bytes, and waits for its end.
func (w *worker) run(f uintptr, blocks int, params ...ptr) error {
	if err := w.lib.err("cuLaunchKernel", w.lib.launch(f, uint32(max(1, blocks)), 1, 1, threads, 1, 1, 0, 0, ptr(&params[0]), nil)); err != nil {
		return err
	}
	return w.lib.err("cuCtxSynchronize", w.lib.synchronize())
}

const (
	threads = 256 // of a block
	blocks  = 8   // of each multiprocessor: as many threads as it has room for

	pieceBytes = 1 << 30
	leastBytes = 1 << 20
	// spare is left to the driver, which needs some for itself.
	spare = 256 << 20
)

// pattern is what memory is filled with: the word i holds (i * factor + first) ^ mask.
type pattern struct{ first, factor, mask uint64 }

// golden spreads numbers over all bits: the fraction of the golden ratio, odd.
const golden = 0x9e3779b97f4a7c15

// patterns have each bit both ways, alone among neighbours of the other kind, and tell each word
// from every other: an address that is decoded wrong shows too.
var patterns = []pattern{
	{0, 0, 0}, {0, 0, math.MaxUint64}, {0, 0, 0x5555555555555555}, {0, 0, 0xaaaaaaaaaaaaaaaa}, {1, golden, 0}, {1, golden, math.MaxUint64},
}

// counted is what a kernel has counted; so many words of it.
func (w *worker) counted(out uint64, into []uint64) error {
	return w.lib.err("cuMemcpyDtoH", w.lib.fromDevice(ptr(&into[0]), out, uintptr(len(into)*8)))
}

// zero sets what a kernel counts in.
func (w *worker) zero(out uint64, with []uint64) error {
	return w.lib.err("cuMemcpyHtoD", w.lib.toDevice(out, ptr(&with[0]), uintptr(len(with)*8)))
}

// sweep writes patterns to all memory that is free, and reads them back.
func (w *worker) sweep() error {
	end := time.Now().Add(w.Memory)
	var out uint64
	if err := w.lib.err("cuMemAlloc", w.lib.alloc(&out, 24)); err != nil {
		return err
	}
	defer w.lib.free(out)
	if err := w.take(); err != nil {
		return err
	}
	defer func() {
		for _, p := range w.pieces {
			w.lib.free(p.at)
		}
	}()
	var total, bad, differ uint64
	for _, p := range w.pieces {
		total += p.words
	}
	if total == 0 {
		w.found("memory", acts.Skipped, 0, "", "no memory of it is free")
		return nil
	}
	where, passes := "", 0
	for _, pat := range patterns {
		if time.Now().After(end) {
			break
		}
		before := uint64(0)
		for _, p := range w.pieces {
			at := pat
			at.first += before * pat.factor
			if err := w.run(w.fill, w.units*blocks, ptr(&p.at), ptr(&p.words), ptr(&at.first), ptr(&at.factor), ptr(&at.mask)); err != nil {
				return err
			}
			before += p.words
		}
		before = 0
		for _, p := range w.pieces {
			at := pat
			at.first += before * pat.factor
			got := []uint64{0, math.MaxUint64, 0}
			if err := w.zero(out, got); err != nil {
				return err
			}
			if err := w.run(w.check, w.units*blocks, ptr(&p.at), ptr(&p.words), ptr(&at.first), ptr(&at.factor), ptr(&at.mask), ptr(&out)); err != nil {
				return err
			}
			if err := w.counted(out, got); err != nil {
				return err
			}
			if bad += got[0]; got[0] > 0 {
				if differ |= got[2]; where == "" {
					where = fmt.Sprintf("the first at %d MiB of what was free", (before+got[1])*8>>20)
				}
			}
			before += p.words
		}
		passes++
	}
	size := float64(total * 8)
	switch {
	case bad > 0:
		w.found("memory", acts.Broken, float64(bad), "1", "%d words were read otherwise than they were written, %s; bits that differ: %#x", bad, where, differ)
	case passes < len(patterns):
		w.found("memory", acts.Warned, size, "By", "%d of %d patterns in %s over %.0f MiB", passes, len(patterns), w.Memory, size/(1<<20))
	default:
		w.found("memory", acts.Passed, size, "By", "%d patterns over %.0f MiB", passes, size/(1<<20))
	}
	return nil
}

// take takes the memory that is free, in pieces.
func (w *worker) take() error {
	var free, total uintptr
	if err := w.lib.err("cuMemGetInfo", w.lib.memory(&free, &total)); err != nil {
		return err
	}
	left := uint64(free)
	for size := uint64(pieceBytes); size >= leastBytes && left > spare; {
		size = min(size, (left-spare)&^(leastBytes-1))
		var at uint64
		if size == 0 || w.lib.alloc(&at, uintptr(size)) != 0 {
			size /= 2
			continue
		}
		w.pieces = append(w.pieces, piece{at, size / 8})
		left -= size
	}
	return nil
}

const (
	// loops is how often a thread goes round in one run: some hundredths of a second.
	loops = 1 << 19
	// marks is how many words of 64 the multiprocessors take.
	marks = 8
	// ops is how many operations of numbers a thread does each time: four products and sums, and four products.
	ops = 12
)

// rate is of the map, where it is chaotic.
const rate = float32(3.9)

// expected is what every thread has at the end.
func expected(n int) (x [4]float32, u uint32) {
	x, u = [4]float32{.1, .2, .3, .4}, 1
	for range n {
		for i, v := range x {
			x[i] = float32(float64(fma(-v, v, v)) * float64(rate))
		}
		u = u*1664525 + 1013904223
	}
	return x, u
}

// fma is a * b + c, rounded once (IEEE 754, fusedMultiplyAdd): the product is exact in 64 bits, and the
// sum is rounded to odd there, so that rounding it again does no harm.
func fma(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	t := s - p
	rest := (p - (s - t)) + (float64(c) - t)
	if n := math.Float64bits(s); rest != 0 && n&1 == 0 {
		if (rest > 0) == (s > 0) {
			n++
		} else {
			n--
		}
		s = math.Float64frombits(n)
	}
	return float32(s)
}

// compute has all multiprocessors compute the same, for a time.
func (w *worker) compute() error {
	x, u := expected(loops)
	var out uint64
	counts := make([]uint64, 2+2*marks)
	if err := w.lib.err("cuMemAlloc", w.lib.alloc(&out, unsafe.Sizeof(out)*uintptr(len(counts)))); err != nil {
		return err
	}
	defer w.lib.free(out)
	if err := w.zero(out, counts); err != nil {
		return err
	}
	n, r, runs := uint32(loops), rate, 0
	began := time.Now()
	for ; runs == 0 || time.Since(began) < w.Burst; runs++ {
		if err := w.run(w.burst, w.units*blocks, ptr(&n), ptr(&r), ptr(&x[0]), ptr(&x[1]), ptr(&x[2]), ptr(&x[3]), ptr(&u), ptr(&out)); err != nil {
			return err
		}
	}
	took := time.Since(began)
	if err := w.counted(out, counts); err != nil {
		return err
	}
	ran, wrong := ones(counts[2:2+marks]), counts[2+marks:]
	speed := float64(w.units*blocks*threads) * loops * ops * float64(runs) / took.Seconds()
	switch {
	case counts[0] > 0:
		w.found("compute", acts.Broken, float64(counts[0]), "1", "%d threads computed something else, on multiprocessors %s", counts[0], named(wrong))
	case ran < w.units:
		w.found("compute", acts.Warned, float64(ran), "1", "it ran on %d of %d multiprocessors", ran, w.units)
	default:
		w.found("compute", acts.Passed, speed, "/s", "%d multiprocessors computed the same for %s", w.units, took.Round(time.Second))
	}
	return nil
}

func ones(words []uint64) (n int) {
	for _, x := range words {
		n += bits.OnesCount64(x)
	}
	return n
}

// maxNamed bounds how many multiprocessors are named.
const maxNamed = 8

// named lists the multiprocessors that are marked.
func named(words []uint64) string {
	out, n := "", 0
	for i := range 64 * len(words) {
		if words[i/64]>>(i%64)&1 == 0 {
			continue
		}
		if n++; n > maxNamed {
			return out + " and more"
		}
		if out != "" {
			out += ", "
		}
		out += strconv.Itoa(i)
	}
	return out
}
