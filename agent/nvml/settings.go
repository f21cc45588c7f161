//go:build cgo

package nvml

import (
	"context"
	"fmt"
)

// request is a set of wishes of one peer, all of them or none, or a look at a GPU.
type request struct {
	wishes []Wish
	by     string
	look   *order
	gpu    uint32
	answer chan error
}

// Set grants wishes: all are checked before the first is granted, what was granted is read
// back, and taken back where another fails. It returns when that is done, or when ctx is.
func (r *Reader) Set(ctx context.Context, by string, wishes []Wish) error {
	return r.request(ctx, request{wishes: wishes, by: by, answer: make(chan error, 1)})
}

// request has a session deal with a request, and waits for its answer.
func (r *Reader) request(ctx context.Context, q request) error {
	select {
	case r.requests <- q:
	case <-ctx.Done():
		return fmt.Errorf("no GPU is read now: %w", ctx.Err())
	}
	select {
	case err := <-q.answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the driver has not answered: %w", ctx.Err())
	}
}
