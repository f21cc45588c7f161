//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/agent/jobs"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/target"
)

const (
	minute    = time.Minute      // between readings of what moves slowly
	again     = 30 * time.Second // until GPUs are looked for anew when some are missing, and then twice as long each time
	seldomest = 16 * time.Minute // at most: without persistence mode it starts the GPUs anew
	grace     = time.Second      // for calls that are under way at the end
)

// Reader reads the GPUs. New returns one; it performs no I/O before Run.
type Reader struct {
	*Memory

	cfg    Config
	owners *owners

	places  map[uint32]*place
	unread  string        // why there are no GPUs, as it was logged last
	without int           // tries without a driver
	bound   bool          // the library has served a session, and cannot be exchanged any more
	anew    time.Duration // until missing GPUs are looked for again
	slowly  time.Duration // between readings of what moves slowly

	requests chan request
	calls    chan func(*session) // to be made by a session that has its GPUs
	left     *leave              // who has the GPUs out of our hand
	called   atomic.Pointer[map[string]uint32]

	failures, stalls                uint64
	errorRef, failedRef, stalledRef target.Ref
	driverRef, versionRef           target.Ref
}

// New returns a reader.
func New(cfg Config, n Needs) *Reader {
	leaf := func(name string) target.Ref { return n.Tree.Leaf("/gpus/state/" + name) }
	r := &Reader{
		Memory: NewMemory(n), cfg: cfg, owners: &owners{proc: cfg.Proc, pod: n.Pod}, places: map[uint32]*place{}, anew: again, slowly: minute,
		requests: make(chan request), calls: make(chan func(*session)),
		errorRef: leaf("error"), failedRef: leaf("failures"), stalledRef: leaf("stalls"), driverRef: leaf("driver-version"), versionRef: leaf("nvml-version"),
	}
	return r
}

// Called returns the numbers of the GPUs by what they are called: their UUIDs and addresses,
// the UUIDs of their MIG devices, and [jobs.Minor].
func (r *Reader) Called() map[string]uint32 {
	if c := r.called.Load(); c != nil {
		return *c
	}
	return nil
}

// call takes note of what a GPU and its parts are called; a name that is not used any more is forgotten.
func (r *Reader) call(n uint32, w *worker) {
	names := []string{w.uuid, w.pci}
	if minor := w.value("state/minor-number"); minor >= 0 {
		names = append(names, jobs.Minor(uint64(minor)))
	}
	for i := range w.instances {
		names = append(names, w.instances[i].devices...)
	}
	before := r.Called()
	same := 0
	for name, of := range before {
		if of == n && slices.Contains(names, name) {
			same++
		} else if of == n {
			same = -len(before) - 1
		}
	}
	if same == len(names) {
		return
	}
	now := maps.Clone(before)
	if now == nil {
		now = map[string]uint32{}
	}
	maps.DeleteFunc(now, func(_ string, of uint32) bool { return of == n })
	for _, name := range names {
		now[name] = n
	}
	r.called.Store(&now)
}

// Run reads until ctx is done. What it cannot read it says once, and tries again.
func (r *Reader) Run(ctx context.Context) {
	r.Load(r.cfg.GPUs)
	defer r.Settled()
	for ctx.Err() == nil {
		err := r.session(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := time.Duration(0)
		switch {
		case r.left != nil:
			r.left.wait(ctx)
			r.left = nil
		case err != nil:
			r.unreadable(err)
			wait = r.cfg.Interval
			if r.bound && errors.Is(err, errOther) && r.needs.Renew != nil {
				r.needs.Renew()
			}
		}
		if wait == 0 {
			continue
		}
		if r.idle(ctx, wait); r.left != nil {
			r.left.wait(ctx)
			r.left = nil
		}
	}
}

// unreadable tells that no GPU is read. Where GPUs were, their driver should be.
func (r *Reader) unreadable(err error) {
	now := time.Now()
	if r.without++; r.without >= absentFor && len(r.watch.Boards()) > 0 {
		r.watch.Driver(now, true, err.Error())
	}
	w := r.needs.Tree.Write(now)
	w.Text(r.errorRef, err.Error())
	for _, p := range r.places {
		p.none(&w)
	}
	w.Close()
	if err.Error() != r.unread {
		r.unread = err.Error()
		r.needs.Log.Warn("GPUs are not read", "error", err)
	}
	r.Settled()
}

// session is the time between loading the library and the driver's end, or until GPUs that
// are missing are looked for anew: a session sees those that were there at its begin.
type session struct {
	*Reader
	driver  *driver
	workers []*worker
	answer  chan *worker
	ended   chan struct{}
	begun   time.Time
	number  map[*worker]uint32     // nil until all have answered or are late
	ready   []*worker              // that have answered before
	late    map[*worker]string     // the call that has not returned in time
	devices map[lib.Device]*worker // of those that have said who they are
	events  *listener
	asked   int
	gone    error
	deal    *deal // the request that is at work
}

func (r *Reader) session(ctx context.Context) error {
	d := &driver{lib: lib.New(lib.WithLibraryPath(r.cfg.Library))}
	s := &session{Reader: r, driver: d, answer: make(chan *worker), ended: make(chan struct{}), begun: time.Now()}
	s.late, s.devices = map[*worker]string{}, map[lib.Device]*worker{}
	if err := s.open(ctx); err != nil {
		return err
	}
	s.events = s.listen(ctx)
	defer func() {
		if s.deal != nil {
			s.deal.answer <- errors.New("the driver went, or the agent ends: what was set may be so")
		}
		s.close(ctx.Err() != nil)
	}()
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	check, every := (<-chan time.Time)(nil), max(r.cfg.Deadline/4, time.Millisecond)
	s.askAll()
	for {
		if check == nil && s.awaits() {
			check = time.After(every)
		}
		if r.left != nil {
			select {
			case <-r.left.resume: // nobody wants the GPUs any more
				r.left = nil
			default:
				if !s.busy() {
					return nil
				}
			}
		}
		requests, calls := r.requests, r.calls
		if s.deal != nil || s.number == nil || r.left != nil {
			requests, calls = nil, nil
		}
		select {
		case <-ctx.Done():
			return nil
		case q := <-requests:
			s.begin(q)
		case call := <-calls:
			call(s)
		case w := <-s.answer:
			w.busy = false
			s.take(w)
			s.proceed()
		case seen := <-s.events.seen:
			s.xid(seen)
		case <-check:
			check = nil
			s.stalled()
			s.proceed()
		case <-tick.C:
			if r.left != nil {
				continue
			}
			if done, err := s.over(); done {
				return err
			}
			s.askAll()
		}
		s.Settled()
	}
}

// over says whether the session has served: the driver is gone, or it is time to look for
// those that are missing. It ends only while nobody has a call under way.
func (s *session) over() (bool, error) {
	absent := false
	for _, w := range s.workers {
		if w.busy {
			return false, nil
		}
		absent = absent || w.outcome != told
	}
	if s.events.late(s.cfg.Deadline) != "" {
		return false, nil
	}
	if s.gone != nil {
		return true, s.gone
	}
	absent = absent || s.number != nil && len(s.watch.Boards()) > len(s.workers)
	switch {
	case !absent:
		s.anew = again
	case time.Since(s.begun) > s.anew:
		s.anew = min(2*s.anew, seldomest)
		return true, nil
	}
	return false, nil
}

func (s *session) askAll() {
	all := time.Duration(s.asked)*s.cfg.Interval >= s.slowly || s.asked == 0
	if all {
		s.asked = 0
	}
	s.asked++
	for _, w := range s.workers {
		if !w.busy {
			w.busy = true
			w.ask <- question{all: all || !w.known || w.stale}
			w.stale = false
		}
	}
	if s.number != nil {
		s.absent()
	}
}

// absent counts those that should be there and that no worker reads.
func (s *session) absent() {
	now := time.Now()
	for _, n := range s.numbers() {
		if !s.read(n) {
			s.watch.Misses(now, n, gpuwatch.Lost)
			s.place(n).miss(now)
		}
	}
}

// numbers are those of all GPUs that are known, in order.
func (s *session) numbers() []uint32 {
	var out []uint32
	for n := range s.watch.Boards() {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (s *session) read(n uint32) bool {
	for _, have := range s.number {
		if have == n {
			return true
		}
	}
	return false
}

// take takes what a worker has read. GPUs have numbers when all have said who they are,
// or are late.
func (s *session) take(w *worker) {
	w.last = answer{w.outcome, w.pci, w.linked, w.old, w.processes}
	if s.late[w] != "" {
		delete(s.late, w)
		if n, ok := s.number[w]; ok {
			s.watch.Stalled(time.Now(), n, false, "the call has returned")
		}
	}
	if w.known {
		s.devices[w.device] = w
	}
	if w.order != nil {
		s.obeyed(w)
		return
	}
	if s.number == nil {
		s.ready = append(s.ready, w)
		s.assemble()
		return
	}
	s.tell(w)
}

// assemble gives numbers once nobody is awaited.
func (s *session) assemble() {
	for _, w := range s.workers {
		if w.busy && s.late[w] == "" {
			return
		}
	}
	found := make([]gpuwatch.Board, len(s.workers))
	for i, w := range s.workers {
		if !w.busy { // what a call is under way for is not ours to read
			found[i] = gpuwatch.Board{UUID: w.uuid, PCI: w.pci}
		}
	}
	numbers, names := settle(s.watch.Boards(), found, onBus(s.cfg.Sys))
	s.number = make(map[*worker]uint32, len(s.workers))
	for i, w := range s.workers {
		s.number[w] = numbers[i]
	}
	for n, pci := range names {
		s.watch.Name(n, "", pci)
	}
	for _, w := range s.ready {
		s.tell(w)
	}
	s.ready = nil
	s.absent()
	now := time.Now()
	for _, w := range s.workers {
		if s.late[w] != "" {
			s.stall(now, w)
		}
	}
}

// awaits says whether somebody has a call under way that is not late yet.
func (s *session) awaits() bool {
	return slices.ContainsFunc(s.workers, func(w *worker) bool { return w.busy && s.late[w] == "" })
}

// stalled looks for calls that have not returned in time.
func (s *session) stalled() {
	now := time.Now()
	for _, w := range s.workers {
		call := w.under.late(s.cfg.Deadline)
		if s.late[w] != "" || !w.busy || call == "" {
			continue
		}
		s.late[w] = call
		s.stalls++
		if s.number == nil {
			s.assemble()
		} else {
			s.stall(now, w)
		}
	}
}

func (s *session) stall(now time.Time, w *worker) {
	n, call := s.number[w], s.late[w]
	s.watch.Stalled(now, n, true, fmt.Sprintf("%s has not returned for %s", call, s.cfg.Deadline))
	s.needs.Log.Warn("a call of NVML does not return", "gpu", n, "call", call)
	p := s.place(n)
	t := s.needs.Tree.Write(now)
	p.none(&t)
	t.Text(p.stalled, call)
	t.Uint(s.stalledRef, s.stalls)
	t.Close()
}

// tell publishes what a worker has read, and compares it with what was before.
func (s *session) tell(w *worker) {
	now := time.Now()
	n := s.number[w]
	p := s.place(n)
	s.failures += uint64(w.failures)
	if w.failures > 0 && w.trouble != p.trouble {
		s.needs.Log.Warn("a call of NVML failed", "gpu", n, "error", w.trouble)
	}
	p.trouble = w.trouble
	switch w.outcome {
	case gone:
		s.gone = errors.New(w.trouble)
	case silent, lost:
		code := gpuwatch.Stale
		if w.outcome == lost {
			code = gpuwatch.Lost
		}
		s.watch.Misses(now, n, code)
		p.miss(now)
	case told:
		s.watch.Name(n, w.uuid, w.pci)
		s.watch.Answers(now, n)
		s.watch.Reads(now, n, gpuwatch.Reading{
			Reasons: w.value("state/clocks-event-reasons"), Pending: w.value("state/remap-pending"), DBE: w.value("state/ecc-uncorrected"), XID: math.NaN(),
		})
		if f, ok := w.fabric(); ok {
			s.watch.Fabric(now, n, &f)
		}
		p.tell(now, w)
		s.call(n, w)
		p.should(now, s.wanted[n])
		if w.all {
			s.enforce(w)
		}
	}
	t := s.needs.Tree.Write(now)
	t.Uint(s.failedRef, s.failures)
	t.Uint(s.stalledRef, s.stalls)
	t.Close()
}

var errOther = errors.New("library and driver are of different versions")

// open loads the library and makes a worker for each GPU.
func (s *session) open(ctx context.Context) error {
	var count int
	var version, driver string
	err := s.guarded(ctx, "nvmlInit", func() error {
		if ret := s.driver.lib.Init(); ret == lib.ERROR_LIBRARY_NOT_FOUND {
			return fmt.Errorf("%s is not there: no NVIDIA driver is installed", s.cfg.Library)
		} else if ret == lib.ERROR_LIB_RM_VERSION_MISMATCH {
			return fmt.Errorf("nvmlInit: %w", errOther)
		} else if ret != lib.SUCCESS {
			return fmt.Errorf("nvmlInit: %s", text(ret))
		}
		var ret lib.Return
		if count, ret = s.driver.lib.DeviceGetCount(); ret != lib.SUCCESS {
			_ = s.driver.lib.Shutdown()
			return fmt.Errorf("nvmlDeviceGetCount: %s", text(ret))
		}
		version, _ = s.driver.lib.SystemGetNVMLVersion()
		driver, _ = s.driver.lib.SystemGetDriverVersion()
		return nil
	})
	if err != nil {
		return err
	}
	s.driver.has = func(symbol string) bool { return s.driver.lib.Extensions().LookupSymbol(symbol) == nil }
	for _, r := range readings {
		s.driver.call = append(s.driver.call, s.driver.has(r.symbol) && (r.unless == "" || !s.driver.has(r.unless)))
	}
	for _, w := range words {
		s.driver.word = append(s.driver.word, s.driver.has(w.symbol))
	}
	for i := range count {
		w := newWorker(s.driver, i, s.owners)
		s.workers = append(s.workers, w)
		go w.run(s.answer, s.ended)
	}
	now := time.Now()
	s.watch.Driver(now, false, "the driver answers again")
	s.without, s.unread, s.bound = 0, "", true
	t := s.needs.Tree.Write(now)
	t.None(s.errorRef)
	t.Text(s.driverRef, driver)
	t.Text(s.versionRef, version)
	t.Uint(s.failedRef, s.failures)
	t.Uint(s.stalledRef, s.stalls)
	t.Close()
	if count == 0 {
		s.assemble()
	}
	return nil
}

// guarded calls the library where no GPU is to blame; as long as that takes, nothing else can
// be read.
func (s *session) guarded(ctx context.Context, name string, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	late := time.NewTimer(s.cfg.Deadline)
	defer late.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done(): // what is opened is also closed
			select {
			case err := <-done:
				return err
			case <-time.After(grace):
				return ctx.Err()
			}
		case <-late.C:
			s.stalls++
			s.without = absentFor
			s.unreadable(fmt.Errorf("%s has not returned for %s", name, s.cfg.Deadline))
		}
	}
}

// close ends the session. A library in which a call is under way is left as it is; it would
// show the next session what it showed this one.
func (s *session) close(atOnce bool) {
	for _, w := range s.workers {
		close(w.ask)
	}
	patience := grace
	if !atOnce {
		patience += wait
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	idle := s.events.close(timer.C)
	for _, w := range s.workers {
		for idle && w.busy {
			select {
			case other := <-s.answer:
				other.busy = false
			case <-timer.C:
				idle = false
			}
		}
	}
	close(s.ended)
	if idle {
		_ = s.driver.lib.Shutdown()
	}
	if s.left != nil && !idle {
		s.left.err = errors.New("a call of the driver has not returned")
	}
}

// place returns where a GPU is told.
func (s *session) place(n uint32) *place {
	p := s.places[n]
	if p == nil {
		p = newPlace(s.needs.Tree, "/gpus/gpu[name=gpu"+strconv.FormatUint(uint64(n), 10)+"]")
		s.places[n] = p
	}
	return p
}
