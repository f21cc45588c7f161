//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/agent/acts"
)

// leave is a time in which the library is not loaded: the driver resets no GPU that
// somebody has open.
type leave struct {
	gone   chan struct{} // closed when it is not loaded
	resume chan struct{} // closed when it may be again
	err    error         // before gone is closed
}

// wait lets others have the GPUs.
func (l *leave) wait(ctx context.Context) {
	close(l.gone)
	select {
	case <-l.resume:
	case <-ctx.Done():
	}
}

// busy reports whether somebody has a call under way.
func (s *session) busy() bool {
	return slices.ContainsFunc(s.workers, func(w *worker) bool { return w.busy })
}

// in has a session make a call, and waits until it was made.
func (r *Reader) in(ctx context.Context, call func(*session)) error {
	made := make(chan struct{})
	select {
	case r.calls <- func(s *session) { call(s); close(made) }:
		<-made
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no GPU is read now: %w", ctx.Err())
	}
}

// Release implements [acts.GPUs].
func (r *Reader) Release(ctx context.Context) (resume func(), err error) {
	l := &leave{gone: make(chan struct{}), resume: make(chan struct{})}
	stuck := ""
	if err := r.in(ctx, func(s *session) {
		for _, call := range s.late {
			stuck = call
		}
		if stuck == "" {
			s.left = l
		}
	}); err != nil {
		return nil, err
	}
	if stuck != "" {
		return nil, fmt.Errorf("%s has not returned: the driver must be loaded anew, or the server rebooted", stuck)
	}
	// It is given out of hand by now or soon: whoever asked has to resume.
	select {
	case <-l.gone:
		if l.err != nil {
			close(l.resume)
			return nil, l.err
		}
		return func() { close(l.resume) }, nil
	case <-ctx.Done():
		close(l.resume)
		return nil, fmt.Errorf("the driver is not given out of hand: %w", ctx.Err())
	}
}

// Group implements [acts.GPUs]. Before Hopper, GPUs that NVLinks join through switches are
// reset together (NVIDIA Fabric Manager User Guide, GPU reset): all that have a link up.
func (r *Reader) Group(ctx context.Context, numbers []uint32) (out []acts.GPU, err error) {
	err2 := r.in(ctx, func(s *session) {
		together := false
		for _, n := range numbers {
			w := s.workerOf(n)
			if w == nil {
				err = fmt.Errorf("gpu%d is not there", n)
				return
			}
			together = together || w.last.linked && w.last.old
		}
		for w, n := range s.number {
			if slices.Contains(numbers, n) || together && w.last.linked {
				g := acts.GPU{Number: n, PCI: w.last.pci}
				for _, p := range w.last.processes {
					g.Processes = append(g.Processes, fmt.Sprintf("%s (%d)", p.name, p.pid))
				}
				out = append(out, g)
			}
		}
		slices.SortFunc(out, func(a, b acts.GPU) int { return int(a.Number) - int(b.Number) })
	})
	return out, errors.Join(err, err2)
}

// hopper is the first architecture whose GPUs are reset one by one behind NVSwitches.
const hopper = lib.DEVICE_ARCH_HOPPER
