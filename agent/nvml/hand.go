//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	made := make(chan error, 1)
	select {
	case r.calls <- func(s *session) {
		if s == nil {
			made <- fmt.Errorf("no GPU is read now: %s", r.unread)
			return
		}
		call(s)
		made <- nil
	}:
		return <-made
	case <-ctx.Done():
		return fmt.Errorf("no GPU is read now: %w", ctx.Err())
	}
}

// idle waits where there is no session. Who wants the GPUs has them.
func (r *Reader) idle(ctx context.Context, wait time.Duration) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for r.left == nil {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case call := <-r.calls:
			call(nil)
		case q := <-r.requests:
			q.answer <- fmt.Errorf("no GPU is read now: %s", r.unread)
		}
	}
}

// Release implements [acts.GPUs].
func (r *Reader) Release(ctx context.Context) (resume func(), err error) {
	l := &leave{gone: make(chan struct{}), resume: make(chan struct{})}
	stuck := make(chan string, 1)
	select {
	case r.calls <- func(s *session) {
		if s != nil {
			for _, call := range s.late {
				stuck <- call
				return
			}
		}
		r.left = l
		stuck <- ""
	}:
	case <-ctx.Done():
		return nil, fmt.Errorf("the driver is not given out of hand: %w", ctx.Err())
	}
	if call := <-stuck; call != "" {
		return nil, fmt.Errorf("%s has not returned: this process holds the driver, and only a reboot of the server frees it", call)
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

// Known implements [acts.GPUs].
func (r *Reader) Known(ctx context.Context) (out []uint32, err error) {
	away := r.in(ctx, func(s *session) { out = s.numbers() })
	return out, away
}

// Read implements [acts.GPUs].
func (r *Reader) Read(ctx context.Context, number uint32, all bool) (map[string]float64, error) {
	o := &order{verb: look, all: all}
	if err := r.request(ctx, request{look: o, gpu: number, answer: make(chan error, 1)}); err != nil {
		return nil, err
	}
	return o.seen, nil
}

// Group implements [acts.GPUs]. Before Hopper, GPUs that NVLinks join through switches are
// reset together (NVIDIA Fabric Manager User Guide, GPU reset): all that have a link up.
func (r *Reader) Group(ctx context.Context, numbers []uint32) (out []acts.GPU, err error) {
	away := r.in(ctx, func(s *session) {
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
			if len(numbers) == 0 || slices.Contains(numbers, n) || together && w.last.linked {
				g := acts.GPU{Number: n, PCI: w.last.pci}
				for _, p := range w.last.processes {
					g.Processes = append(g.Processes, fmt.Sprintf("%s (%d)", p.name, p.pid))
				}
				out = append(out, g)
			}
		}
		slices.SortFunc(out, func(a, b acts.GPU) int { return int(a.Number) - int(b.Number) })
	})
	return out, errors.Join(err, away)
}

// hopper is the first architecture whose GPUs are reset one by one behind NVSwitches.
const hopper = lib.DEVICE_ARCH_HOPPER
