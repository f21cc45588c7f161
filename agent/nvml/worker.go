//go:build cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/internal/decode/gpuwatch"
)

// outcome is what became of asking a GPU.
type outcome uint8

const (
	told   outcome = iota // it was read
	silent                // no call gave a value
	lost                  // the driver says that it is gone
	gone                  // the driver is
)

// meaning sorts what a call returned: nothing to say of the GPU's health (a board or a
// driver without it, no right to know), the GPU is lost, the driver is gone, or a failure.
func meaning(ret lib.Return) (o outcome, failed bool) {
	switch ret {
	case lib.SUCCESS, lib.ERROR_NOT_SUPPORTED, lib.ERROR_NO_PERMISSION, lib.ERROR_INVALID_ARGUMENT, lib.ERROR_FUNCTION_NOT_FOUND,
		lib.ERROR_NOT_FOUND, lib.ERROR_NO_DATA, lib.ERROR_ARGUMENT_VERSION_MISMATCH, lib.ERROR_DEPRECATED, lib.ERROR_NOT_READY:
		return told, false
	case lib.ERROR_GPU_IS_LOST, lib.ERROR_GPU_NOT_FOUND:
		return lost, true
	case lib.ERROR_UNINITIALIZED, lib.ERROR_DRIVER_NOT_LOADED, lib.ERROR_LIB_RM_VERSION_MISMATCH, lib.ERROR_LIBRARY_NOT_FOUND:
		return gone, true
	}
	return told, true
}

// driver is the library as it is loaded.
type driver struct {
	lib  lib.Interface
	call []bool // readings that it can be asked for
	word []bool // and words
	has  func(symbol string) bool
}

// under is the call that somebody has under way.
type under struct {
	name  atomic.Pointer[string]
	since atomic.Int64 // nanoseconds of the monotonic clock; 0 is none
}

var epoch = time.Now()

func (u *under) begin(name *string) {
	u.name.Store(name)
	u.since.Store(int64(time.Since(epoch)) + 1)
}

func (u *under) end() { u.since.Store(0) }

// late returns the call that has taken longer than that, or "".
func (u *under) late(limit time.Duration) string {
	if since := u.since.Load(); since != 0 && int64(time.Since(epoch))-since > int64(limit) {
		if name := u.name.Load(); name != nil {
			return *name
		}
	}
	return ""
}

// worker reads one GPU. While it is not asked its fields are the reader's.
type worker struct {
	under
	driver *driver
	number int // in the library's order
	ask    chan question
	busy   bool // it was asked and has not answered
	stale  bool // what moves slowly is not any more as it was read
	owners *owners

	device    lib.Device
	known     bool
	linked    bool // by NVLinks to switches
	old       bool // of before Hopper
	uuid, pci string
	words     []string
	values    []float64 // by slot; NaN is not known
	summed    []bool    // values that are sums of others
	mute      []bool    // readings that this GPU does not give
	processes []process
	instances []instance

	order    *order // that was carried out; nil is a reading
	all      bool   // the reading was of everything
	outcome  outcome
	failures int
	trouble  string // the first failure

	last answer // is the reader's always
}

// answer is what stays of a worker's last answer while it is asked anew.
type answer struct {
	outcome   outcome
	pci       string
	linked    bool
	old       bool
	processes []process
}

// slots says where the values of each reading stand among those of a GPU, and leaves what
// each of these is. Readings that stand in for each other have the same.
var slots, leaves = func() (slots [][]int, leaves []string) {
	for _, r := range readings {
		var of []int
		for _, leaf := range r.leaves {
			at := slices.Index(leaves, leaf)
			if at < 0 {
				at = len(leaves)
				leaves = append(leaves, leaf)
			}
			of = append(of, at)
		}
		slots = append(slots, of)
	}
	return slots, leaves
}()

// maxLeaves is how many a reading has at most.
const maxLeaves = 10

func newWorker(d *driver, number int, o *owners) *worker {
	w := &worker{driver: d, number: number, ask: make(chan question, 1), owners: o, mute: make([]bool, len(readings)), words: make([]string, len(words))}
	w.values, w.summed = make([]float64, len(leaves)), make([]bool, len(leaves))
	for i := range w.values {
		w.values[i] = math.NaN()
	}
	return w
}

// question is what a worker is asked: to read, with all that moves slowly or without, or to
// carry out an order.
type question struct {
	all   bool
	order *order
}

// run answers questions until there are no more.
func (w *worker) run(answer chan<- *worker, ended <-chan struct{}) {
	for q := range w.ask {
		if w.order = q.order; q.order != nil {
			w.obey(q.order)
		} else {
			w.take(q.all)
		}
		select {
		case answer <- w:
		case <-ended:
			return
		}
	}
}

// take reads the GPU, with all that moves slowly or without.
func (w *worker) take(all bool) {
	w.all, w.outcome, w.failures, w.trouble = all, told, 0, ""
	if w.identify() {
		w.read(all)
	}
}

// failed takes note of what a call returned, and says whether the GPU is worth asking on.
func (w *worker) failed(name string, ret lib.Return) bool {
	o, failed := meaning(ret)
	if !failed {
		return false
	}
	w.failures++
	if w.trouble == "" {
		w.trouble = fmt.Sprintf("%s: %s", name, text(ret))
	}
	w.outcome = max(w.outcome, o)
	return o != told
}

var (
	callHandle = "nvmlDeviceGetHandleByIndex"
	callPCI    = "nvmlDeviceGetPciInfo"
	callUUID   = "nvmlDeviceGetUUID"
)

// identify finds which GPU it is, once.
func (w *worker) identify() bool {
	if w.known {
		return true
	}
	w.begin(&callHandle)
	d, ret := w.driver.lib.DeviceGetHandleByIndex(w.number)
	w.end()
	if ret != lib.SUCCESS {
		w.failed(callHandle, ret)
		w.outcome = max(w.outcome, silent)
		return false
	}
	w.device = d
	w.begin(&callPCI)
	info, ret := d.GetPciInfo()
	w.end()
	if w.failed(callPCI, ret) {
		return false
	}
	w.begin(&callUUID)
	uuid, ret := d.GetUUID()
	w.end()
	if w.failed(callUUID, ret) {
		return false
	}
	w.uuid, w.pci, w.known = uuid, gpuwatch.PCI(chars(info.BusId[:])), true
	w.group()
	return w.name(true)
}

// name reads the words, all or those that move, and says whether the GPU is worth asking on.
func (w *worker) name(all bool) bool {
	for i := range words {
		if !w.driver.word[i] || !all && !words[i].moves {
			continue
		}
		w.begin(&words[i].symbol)
		word, ret := words[i].read(w.device)
		w.end()
		if w.failed(words[i].symbol, ret) {
			return false
		}
		if ret == lib.SUCCESS {
			w.words[i] = word
		}
	}
	return true
}

var (
	callArchitecture = "nvmlDeviceGetArchitecture"
	callRemote       = "nvmlDeviceGetNvLinkRemoteDeviceType"
)

// group finds what a reset has to know of the GPU's neighbours.
func (w *worker) group() {
	if !w.driver.has(callArchitecture) || !w.driver.has(callRemote) {
		return
	}
	w.begin(&callArchitecture)
	arch, ret := w.device.GetArchitecture()
	w.end()
	w.old = ret == lib.SUCCESS && arch < hopper
	for link := range lib.NVLINK_MAX_LINKS {
		w.begin(&callRemote)
		kind, ret := w.device.GetNvLinkRemoteDeviceType(link)
		w.end()
		if ret == lib.SUCCESS && kind == lib.NVLINK_DEVICE_TYPE_SWITCH {
			w.linked = true
			return
		}
	}
}

// read reads the GPU. One that answers no call with a value is lost.
func (w *worker) read(all bool) {
	answered := false
	var scratch [maxLeaves]float64
	for i := range readings {
		r := &readings[i]
		if !w.driver.call[i] || w.mute[i] || r.pace == seldom && !all {
			continue
		}
		v := scratch[:len(r.leaves)]
		w.begin(&r.symbol)
		ret := r.read(w.device, v)
		w.end()
		for j, slot := range slots[i] {
			w.values[slot] = math.NaN()
			if ret == lib.SUCCESS {
				w.values[slot] = v[j]
			}
		}
		if ret == lib.SUCCESS {
			answered = true
			continue
		}
		w.mute[i] = ret == lib.ERROR_NOT_SUPPORTED || ret == lib.ERROR_FUNCTION_NOT_FOUND
		if w.failed(r.symbol, ret) {
			return
		}
	}
	if !answered && w.failures > 0 {
		w.outcome = max(w.outcome, silent)
		return
	}
	if all && !w.name(false) {
		return
	}
	w.divide()
	w.open()
}

// chars reads a C string of fixed size.
func chars(b []uint8) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// text says what a code of the library means, without asking the library.
func text(ret lib.Return) string {
	switch ret {
	case lib.ERROR_GPU_IS_LOST:
		return "the GPU has fallen off the bus or is otherwise inaccessible"
	case lib.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA driver is not loaded"
	case lib.ERROR_LIBRARY_NOT_FOUND:
		return "the library is not there"
	case lib.ERROR_LIB_RM_VERSION_MISMATCH:
		return errOther.Error()
	case lib.ERROR_NO_PERMISSION:
		return "no permission"
	case lib.ERROR_UNINITIALIZED:
		return "the library is not initialised"
	case lib.ERROR_TIMEOUT:
		return "timeout"
	case lib.ERROR_IRQ_ISSUE:
		return "the kernel sees an interrupt problem with a GPU"
	case lib.ERROR_RESET_REQUIRED:
		return "the GPU needs a reset"
	case lib.ERROR_OPERATING_SYSTEM:
		return "the operating system or a container's settings block the GPU"
	}
	return fmt.Sprintf("error %d of NVML", ret)
}
