//go:build cgo

package nvml

import (
	"context"
	"strconv"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/internal/run"
)

// seen is an XID of which the library has told.
type seen struct {
	device lib.Device
	code   uint64
	at     time.Time
}

// listener waits for events of the library.
type listener struct {
	under
	wanted func() bool
	idle   time.Duration // until one that is not wanted asks whether it is
	seen   chan seen
	done   chan struct{}
	stop   context.CancelFunc
}

// wait is how long one call waits for an event; it cannot be ended before.
const wait = 500 * time.Millisecond

var (
	callRegister = "nvmlDeviceRegisterEvents"
	callWait     = "nvmlEventSetWait"
)

// listen waits for XIDs as long as nobody else tells of them: each wait keeps the runtime
// awake for a while, which is more than all else that an idle agent does. A GPU that cannot
// tell its XIDs is left out.
func (s *session) listen(ctx context.Context) *listener {
	ctx, cancel := context.WithCancel(ctx)
	x := &listener{
		wanted: func() bool { return s.cfg.XIDEvents != xidAuto || !s.needs.Kernel() }, idle: s.cfg.Interval,
		seen: make(chan seen), done: make(chan struct{}), stop: cancel,
	}
	go func() {
		defer close(x.done)
		if s.cfg.XIDEvents == XIDOff || !s.driver.has("nvmlEventSetCreate") {
			return
		}
		for ctx.Err() == nil {
			if x.wanted() && !x.run(ctx, s.driver.lib, len(s.workers)) {
				return
			}
			_ = run.Sleep(ctx, x.idle)
		}
	}()
	return x
}

// run tells of XIDs as long as that is wanted. False is a library that tells of none.
func (x *listener) run(ctx context.Context, library lib.Interface, gpus int) (listening bool) {
	set, ret := library.EventSetCreate()
	if ret != lib.SUCCESS {
		return false
	}
	defer func() { _ = set.Free() }()
	for i := range gpus {
		x.begin(&callRegister)
		if d, ret := library.DeviceGetHandleByIndex(i); ret == lib.SUCCESS {
			listening = d.RegisterEvents(lib.EventTypeXidCriticalError, set) == lib.SUCCESS || listening
		}
		x.end()
	}
	for listening && ctx.Err() == nil && x.wanted() {
		x.begin(&callWait)
		ev, ret := set.Wait(uint32(wait.Milliseconds()))
		x.end()
		switch {
		case ret == lib.SUCCESS && ev.EventType == lib.EventTypeXidCriticalError:
			select {
			case x.seen <- seen{ev.Device, ev.EventData, time.Now()}:
			case <-ctx.Done():
			}
		case ret != lib.SUCCESS && ret != lib.ERROR_TIMEOUT: // as for a GPU that was lost: at once, again and again
			_ = run.Sleep(ctx, wait)
		}
	}
	return listening
}

// close ends listening, and says whether it has ended in time.
func (x *listener) close(late <-chan time.Time) bool {
	x.stop()
	select {
	case <-x.done:
		return true
	case <-late:
		return false
	}
}

// xid tells of an XID, where the kernel's log does not.
func (s *session) xid(e seen) {
	if !s.events.wanted() || e.code == 0 || e.code > 99999 {
		return
	}
	if w := s.devices[e.device]; w != nil && s.number != nil {
		s.watch.XID(e.at, s.number[w], int(e.code), "XID "+strconv.FormatUint(e.code, 10)+" (NVML event)")
	}
}
