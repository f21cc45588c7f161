//go:build !cgo

package nvml

import (
	"context"
	"errors"
	"time"

	"auspex/agent/acts"
)

// Reader says that this build reads no GPUs.
type Reader struct{ needs Needs }

// New returns a reader that reads nothing.
func New(_ Config, n Needs) *Reader { return &Reader{needs: n} }

const text = "this agent was built without cgo and reads no GPUs"

// Set refuses.
func (r *Reader) Set(context.Context, string, []Wish) error { return errors.New(text) }

// Known implements [acts.GPUs].
func (r *Reader) Known(context.Context) ([]uint32, error) { return nil, errors.New(text) }

// Read implements [acts.GPUs].
func (r *Reader) Read(context.Context, uint32, bool) (map[string]float64, error) {
	return nil, errors.New(text)
}

// Group implements [acts.GPUs].
func (r *Reader) Group(context.Context, []uint32) ([]acts.GPU, error) { return nil, errors.New(text) }

// Release implements [acts.GPUs].
func (r *Reader) Release(context.Context) (resume func(), err error) { return nil, errors.New(text) }

// Run says so in the tree.
func (r *Reader) Run(ctx context.Context) {
	ref := r.needs.Tree.Leaf("/gpus/state/error")
	w := r.needs.Tree.Write(time.Now())
	w.Text(ref, text)
	w.Close()
	<-ctx.Done()
}
