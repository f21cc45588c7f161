//go:build !cgo

package nvml

import (
	"context"
	"time"
)

// Reader says that this build reads no GPUs.
type Reader struct{ needs Needs }

// New returns a reader that reads nothing.
func New(_ Config, n Needs) *Reader { return &Reader{needs: n} }

// Run says so in the tree.
func (r *Reader) Run(ctx context.Context) {
	const text = "this agent was built without cgo and reads no GPUs"
	ref := r.needs.Tree.Leaf("/gpus/state/error")
	w := r.needs.Tree.Write(time.Now())
	w.Text(ref, text)
	w.Close()
	<-ctx.Done()
}
