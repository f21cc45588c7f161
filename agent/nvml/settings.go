//go:build cgo

package nvml

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// held is a wish that was granted: it is granted again after a reset or a restart.
type held struct {
	Value string `json:"value"`
	By    string `json:"by"` // who asked
}

// request is a set of wishes of one peer: all of them, or none.
type request struct {
	wishes []Wish
	by     string
	answer chan error
}

// Set grants wishes: all are checked before the first is granted, what was granted is read
// back, and taken back where another fails. It returns when that is done, or when ctx is.
func (r *Reader) Set(ctx context.Context, by string, wishes []Wish) error {
	q := request{wishes, by, make(chan error, 1)}
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

// refuse says what speaks against wishes before any GPU is asked.
func refuse(wishes []Wish, by string, wanted map[uint32]map[string]held) error {
	seen := map[Wish]bool{}
	for _, w := range wishes {
		if !slices.Contains(settingNames, w.Leaf) {
			return fmt.Errorf("%s of gpu%d cannot be set: only %s can", w.Leaf, w.GPU, strings.Join(settingNames, ", "))
		}
		same := Wish{GPU: w.GPU, Leaf: w.Leaf}
		if seen[same] {
			return fmt.Errorf("%s of gpu%d is set twice", w.Leaf, w.GPU)
		}
		seen[same] = true
		if had, ok := wanted[w.GPU][w.Leaf]; ok && had.By != by && had.Value != w.Value {
			return fmt.Errorf("%s of gpu%d was set to %s by %s, who alone may change it", w.Leaf, w.GPU, had.Value, had.By)
		}
	}
	return nil
}

// settingNames are the leaves that can be set, in the order in which they are.
var settingNames = []string{"persistence", "mig-enabled", "ecc-enabled", "power-limit", "application-clocks"}

// merge returns what is wanted after wishes were granted.
func merge(wanted map[uint32]map[string]held, wishes []Wish, by string) map[uint32]map[string]held {
	out := map[uint32]map[string]held{}
	for n, of := range wanted {
		out[n] = maps.Clone(of)
	}
	for _, w := range wishes {
		if out[w.GPU] == nil {
			out[w.GPU] = map[string]held{}
		}
		out[w.GPU][w.Leaf] = held{w.Value, by}
	}
	return out
}
