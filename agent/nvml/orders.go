//go:build cgo

package nvml

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// setting is how one leaf of a GPU's config is checked, read and set. Where a setting takes
// a reset to be in force, get is what comes after it.
type setting struct {
	symbol string // of the call that sets it
	check  func(d lib.Device, value string) error
	get    func(d lib.Device) (string, lib.Return)
	set    func(d lib.Device, value string) lib.Return
}

var settings = map[string]setting{
	"power-limit": {
		symbol: "nvmlDeviceSetPowerManagementLimit",
		check: func(d lib.Device, value string) error {
			w, err := strconv.ParseFloat(value, 64)
			if err != nil || math.IsNaN(w) {
				return fmt.Errorf("%q is no number of watts", value)
			}
			least, most, ret := d.GetPowerManagementLimitConstraints()
			if ret != lib.SUCCESS {
				return fmt.Errorf("the board does not tell its limits: %s", text(ret))
			}
			if mw := w / milli; mw < float64(least) || mw > float64(most) {
				return fmt.Errorf("%s W is outside of %s to %s W", value, watts(least), watts(most))
			}
			return nil
		},
		get: func(d lib.Device) (string, lib.Return) {
			mw, ret := d.GetPowerManagementLimit()
			return watts(mw), ret
		},
		set: func(d lib.Device, value string) lib.Return {
			w, _ := strconv.ParseFloat(value, 64)
			return d.SetPowerManagementLimit(uint32(math.Round(w / milli)))
		},
	},
	"application-clocks": {
		symbol: "nvmlDeviceSetApplicationsClocks",
		check: func(d lib.Device, value string) error {
			memory, sm, err := clocks(value)
			if err != nil {
				return err
			}
			for _, c := range []struct {
				name string
				mhz  uint32
				typ  lib.ClockType
			}{{"memory", memory, lib.CLOCK_MEM}, {"SM", sm, lib.CLOCK_SM}} {
				if most, ret := d.GetMaxClockInfo(c.typ); ret == lib.SUCCESS && c.mhz > most {
					return fmt.Errorf("a %s clock of %d MHz is above %d MHz", c.name, c.mhz, most)
				}
			}
			return nil
		},
		get: func(d lib.Device) (string, lib.Return) {
			memory, ret := d.GetApplicationsClock(lib.CLOCK_MEM)
			if ret != lib.SUCCESS {
				return "", ret
			}
			sm, ret := d.GetApplicationsClock(lib.CLOCK_SM)
			return fmt.Sprintf("%d,%d", memory, sm), ret
		},
		set: func(d lib.Device, value string) lib.Return {
			memory, sm, _ := clocks(value)
			return d.SetApplicationsClocks(memory, sm)
		},
	},
	"persistence": {
		symbol: "nvmlDeviceSetPersistenceMode", check: isTruth,
		get: func(d lib.Device) (string, lib.Return) {
			mode, ret := d.GetPersistenceMode()
			return strconv.FormatBool(mode == lib.FEATURE_ENABLED), ret
		},
		set: func(d lib.Device, value string) lib.Return { return d.SetPersistenceMode(enabled(value)) },
	},
	"ecc-enabled": {
		symbol: "nvmlDeviceSetEccMode", check: isTruth,
		get: func(d lib.Device) (string, lib.Return) {
			_, next, ret := d.GetEccMode()
			return strconv.FormatBool(next == lib.FEATURE_ENABLED), ret
		},
		set: func(d lib.Device, value string) lib.Return { return d.SetEccMode(enabled(value)) },
	},
	"mig-enabled": {
		symbol: "nvmlDeviceSetMigMode", check: isTruth,
		get: func(d lib.Device) (string, lib.Return) {
			_, next, ret := d.GetMigMode()
			return strconv.FormatBool(next == lib.DEVICE_MIG_ENABLE), ret
		},
		set: func(d lib.Device, value string) lib.Return {
			_, ret := d.SetMigMode(int(enabled(value)))
			return ret
		},
	},
}

func watts(mw uint32) string { return strconv.FormatFloat(float64(mw)*milli, 'f', -1, 64) }

func enabled(value string) lib.EnableState {
	if value == "true" {
		return lib.FEATURE_ENABLED
	}
	return lib.FEATURE_DISABLED
}

func isTruth(_ lib.Device, value string) error {
	if value != "true" && value != "false" {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	return nil
}

// clocks reads clocks of memory and SM as nvidia-smi -ac takes them.
func clocks(value string) (memory, sm uint32, err error) {
	a, b, ok := strings.Cut(value, ",")
	m, err1 := strconv.ParseUint(a, 10, 32)
	s, err2 := strconv.ParseUint(b, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("%q is no pair of clocks in MHz, memory and SM, as 2619,1980", value)
	}
	return uint32(m), uint32(s), nil
}

// verb is what a worker does with values.
type verb uint8

const (
	check   verb = iota // says what speaks against them
	grant               // sets them, reads them back, and takes them back where one fails
	enforce             // sets those that are not so
	look                // reads the GPU
)

// order is what a worker is to do beside reading. Its answers are in it.
type order struct {
	verb   verb
	values map[string]string // by leaf
	before map[string]string // what they were, for who takes them back
	err    error
	anew   int                // settings that were not as they should be
	all    bool               // a look is at all that is read
	seen   map[string]float64 // what it saw, by leaf
}

// obey carries out an order.
func (w *worker) obey(o *order) {
	if o.verb == look {
		w.look(o)
		return
	}
	o.before = map[string]string{}
	for _, leaf := range Settings {
		value, ok := o.values[leaf]
		if !ok || o.err != nil {
			continue
		}
		s := settings[leaf]
		if !w.driver.has(s.symbol) {
			o.err = fmt.Errorf("%s: the driver cannot set it", leaf)
			break
		}
		w.begin(&s.symbol)
		o.err = w.settle(s, o, leaf, value)
		w.end()
	}
	if o.err == nil || o.verb != grant {
		return
	}
	for leaf, value := range o.before {
		s := settings[leaf]
		w.begin(&s.symbol)
		if ret := s.set(w.device, value); ret != lib.SUCCESS {
			o.err = fmt.Errorf("%w; and %s could not be taken back: %s", o.err, leaf, text(ret))
		}
		w.end()
	}
}

var callInforom = "nvmlDeviceValidateInforom"

// look reads the GPU, and what takes too long to be read again and again.
func (w *worker) look(o *order) {
	w.take(o.all)
	if w.outcome != told {
		o.err = fmt.Errorf("it is not read: %s", w.trouble)
		return
	}
	w.add()
	o.seen = map[string]float64{}
	for i, leaf := range leaves {
		if v := w.values[i]; !math.IsNaN(v) {
			o.seen[leaf] = v
		}
	}
	if !o.all || !w.driver.has(callInforom) {
		return
	}
	w.begin(&callInforom)
	ret := w.device.ValidateInforom()
	w.end()
	if ret == lib.SUCCESS || ret == lib.ERROR_CORRUPTED_INFOROM {
		o.seen["state/inforom-corrupted"] = truth(ret != lib.SUCCESS)
	}
}

// settle deals with one value.
func (w *worker) settle(s setting, o *order, leaf, value string) error {
	if o.verb == check {
		if err := s.check(w.device, value); err != nil {
			return fmt.Errorf("%s: %w", leaf, err)
		}
		if _, ret := s.get(w.device); ret != lib.SUCCESS {
			return fmt.Errorf("%s: the board does not have it: %s", leaf, text(ret))
		}
		return nil
	}
	before, ret := s.get(w.device)
	if ret != lib.SUCCESS {
		return fmt.Errorf("%s cannot be read: %s", leaf, text(ret))
	}
	if same(before, value) {
		return nil
	}
	o.anew++
	if ret := s.set(w.device, value); ret != lib.SUCCESS {
		return fmt.Errorf("%s: %s", leaf, text(ret))
	}
	o.before[leaf] = before
	if now, ret := s.get(w.device); ret != lib.SUCCESS || !same(now, value) {
		return fmt.Errorf("%s is %s after it was set to %s", leaf, now, value)
	}
	return nil
}

// same compares values as YANG means them: 500 is 500.0.
func same(a, b string) bool {
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return a == b || err1 == nil && err2 == nil && math.Abs(x-y) < milli
}

// deal is a request at work: the workers are asked one after another, and nobody is asked
// for the next request before.
type deal struct {
	request
	steps  []step
	done   []step // granted, to be taken back
	active *step
	err    error
}

type step struct {
	w *worker
	n uint32
	o *order
}

// begin looks at a request, and plans what its GPUs are asked.
func (s *session) begin(q request) {
	if q.look != nil {
		w := s.workerOf(q.gpu)
		if w == nil {
			q.answer <- fmt.Errorf("gpu%d is not there", q.gpu)
			return
		}
		s.deal = &deal{request: q, steps: []step{{w, q.gpu, q.look}}}
		s.proceed()
		return
	}
	if err := s.Refuse(q.wishes, q.by); err != nil {
		q.answer <- err
		return
	}
	byGPU := map[uint32]map[string]string{}
	for _, w := range q.wishes {
		if byGPU[w.GPU] == nil {
			byGPU[w.GPU] = map[string]string{}
		}
		byGPU[w.GPU][w.Leaf] = w.Value
	}
	d := &deal{request: q}
	for _, v := range []verb{check, grant} {
		for n, values := range byGPU {
			w := s.workerOf(n)
			if w == nil || w.last.outcome != told || s.late[w] != "" {
				q.answer <- fmt.Errorf("gpu%d is not read now", n)
				return
			}
			d.steps = append(d.steps, step{w, n, &order{verb: v, values: values}})
		}
	}
	s.deal = d
	s.proceed()
}

func (s *session) workerOf(n uint32) *worker {
	for w, have := range s.number {
		if have == n {
			return w
		}
	}
	return nil
}

// proceed asks the next worker of the deal, when that is free.
func (s *session) proceed() {
	d := s.deal
	switch {
	case d == nil:
		return
	case d.active != nil:
		if call := s.late[d.active.w]; call != "" {
			s.fail(fmt.Errorf("gpu%d: %s has not returned", d.active.n, call))
		}
		return
	}
	if len(d.steps) == 0 {
		s.conclude()
		return
	}
	next := d.steps[0]
	if call := s.late[next.w]; call != "" {
		s.fail(fmt.Errorf("gpu%d: %s has not returned", next.n, call))
		return
	}
	if next.w.busy {
		return
	}
	d.active, d.steps = &next, d.steps[1:]
	next.w.busy = true
	next.w.ask <- question{order: next.o}
}

// obeyed takes what a worker answered to its order.
func (s *session) obeyed(w *worker) {
	o := w.order
	w.order, w.stale = nil, w.stale || o.anew > 0
	d := s.deal
	if o.verb == look {
		s.tell(w)
	}
	if d == nil || d.active == nil || d.active.o != o {
		if o.verb == look {
			return
		}
		if o.verb == grant && len(o.before) > 0 { // it came too late, and was given up
			w.busy = true
			w.ask <- question{order: &order{verb: enforce, values: o.before}}
			return
		}
		s.enforced(w, o)
		return
	}
	did := *d.active
	d.active = nil
	switch {
	case o.err != nil:
		s.fail(fmt.Errorf("gpu%d: %w", did.n, o.err))
		return
	case o.verb == grant && d.err == nil:
		d.done = append(d.done, did)
	}
	s.proceed()
}

// fail takes back what the deal has set so far; who was asked last may never answer.
func (s *session) fail(err error) {
	d := s.deal
	if d.err != nil { // taking back failed as well
		err = fmt.Errorf("%w; and taking it back: %w", d.err, err)
	}
	d.err, d.active, d.steps = err, nil, nil
	for _, did := range slices.Backward(d.done) {
		if len(did.o.before) > 0 {
			d.steps = append(d.steps, step{did.w, did.n, &order{verb: grant, values: did.o.before}})
		}
	}
	d.done = nil
	s.proceed()
}

// conclude keeps what was granted, and answers.
func (s *session) conclude() {
	d := s.deal
	s.deal = nil
	if d.err == nil && d.look == nil {
		d.err = s.Grant(d.wishes, d.by)
		now := time.Now()
		for n := range s.wanted {
			s.place(n).should(now, s.wanted[n])
		}
	}
	d.answer <- d.err
}

// enforce asks a worker to set again what should be so and is not: after a restart of the
// driver, a reset, or by somebody else.
func (s *session) enforce(w *worker) {
	of := s.wanted[s.number[w]]
	if len(of) == 0 || w.busy || s.deal != nil {
		return
	}
	values := map[string]string{}
	for leaf, h := range of {
		values[leaf] = h.Value
	}
	w.busy = true
	w.ask <- question{order: &order{verb: enforce, values: values}}
}

// enforced tells what came of it.
func (s *session) enforced(w *worker, o *order) {
	n := s.number[w]
	if o.anew > 0 && o.err == nil {
		s.needs.Log.Warn("settings of a GPU were set again", "gpu", n, "settings", o.anew)
	}
	p := s.place(n)
	why := ""
	if o.err != nil {
		why = o.err.Error()
	}
	if why != p.unsetWhy {
		if p.unsetWhy = why; why != "" {
			s.needs.Log.Error("settings of a GPU cannot be set again", "gpu", n, "error", why)
		}
	}
	t := s.needs.Tree.Write(time.Now())
	defer t.Close()
	if why == "" {
		t.None(p.unset)
		return
	}
	t.Text(p.unset, why)
}
