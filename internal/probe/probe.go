// Package probe tries many peers once, some at a time and each for a bounded
// while, and says in few lines which did not answer and why.
package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Probe is one try.
type Probe struct {
	Group  string // what is tried, such as "collector redfish"; results of a group stand together
	Target string // the peer
	Try    func(ctx context.Context) error
	// Own are words that only this peer's errors hold, such as its address: they do
	// not tell two reasons apart.
	Own []string
}

// Bounds of a run.
type Bounds struct {
	Parallel int           // tries at a time
	Each     time.Duration // for one of them
}

// DefaultBounds try 64 at a time, for half a minute each.
func DefaultBounds() Bounds { return Bounds{Parallel: 64, Each: 30 * time.Second} }

// Result is what came of a group.
type Result struct {
	Group    string
	Tried    int
	Failures []Failure // by reason, the most frequent first
}

// Failure is one reason and all targets that have it.
type Failure struct {
	Reason  string
	Targets []string // in order
}

// Run tries all and returns the results in the order in which the groups came
// first. progress, which may be nil, is called after each try, one at a time. When
// ctx is done, the probes that are left fail with its error.
func Run(ctx context.Context, probes []Probe, b Bounds, progress func(done, of int)) []Result {
	errs := make([]error, len(probes))
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for range max(1, min(b.Parallel, len(probes))) {
		wg.Go(func() {
			for i := range next {
				errs[i] = once(ctx, probes[i], b.Each)
				mu.Lock()
				done++
				if progress != nil {
					progress(done, len(probes))
				}
				mu.Unlock()
			}
		})
	}
	for i := range probes {
		next <- i
	}
	close(next)
	wg.Wait()
	return group(probes, errs)
}

func once(ctx context.Context, p Probe, each time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	err := p.Try(bounded)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && bounded.Err() != nil {
		return fmt.Errorf("no answer within %s", each)
	}
	return err
}

func group(probes []Probe, errs []error) []Result {
	var out []Result
	at := map[string]int{}
	for i, p := range probes {
		n, known := at[p.Group]
		if !known {
			n = len(out)
			at[p.Group] = n
			out = append(out, Result{Group: p.Group})
		}
		r := &out[n]
		r.Tried++
		if errs[i] == nil {
			continue
		}
		why := reason(errs[i], p)
		f := slices.IndexFunc(r.Failures, func(f Failure) bool { return f.Reason == why })
		if f < 0 {
			f = len(r.Failures)
			r.Failures = append(r.Failures, Failure{Reason: why})
		}
		r.Failures[f].Targets = append(r.Failures[f].Targets, p.Target)
	}
	for _, r := range out {
		for _, f := range r.Failures {
			slices.Sort(f.Targets)
		}
		slices.SortFunc(r.Failures, func(a, b Failure) int {
			return cmp.Or(cmp.Compare(len(b.Targets), len(a.Targets)), cmp.Compare(a.Reason, b.Reason))
		})
	}
	return out
}

var (
	address = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\[[0-9a-fA-F:.%a-z]*\](:\d+)?`)
	arrow   = regexp.MustCompile(`…(:\d+)?(->…(:\d+)?)+`)
)

// reason is an error in one line, without what is this peer's alone.
func reason(err error, p Probe) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	own := slices.Clone(p.Own)
	slices.SortFunc(own, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, word := range append(own, p.Target) {
		if word != "" {
			text = strings.ReplaceAll(text, word, "…")
		}
	}
	return arrow.ReplaceAllString(address.ReplaceAllString(text, "…"), "…")
}

// Lines are the results for people: one line a group, then one a reason.
func (r Result) Lines() (summary string, failures []string) {
	failed := 0
	for _, f := range r.Failures {
		failed += len(f.Targets)
		names := strings.Join(f.Targets[:min(3, len(f.Targets))], ", ")
		if more := len(f.Targets) - 3; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		if r.Tried == 1 {
			failures = append(failures, fmt.Sprintf("%s: %s: %s", r.Group, names, f.Reason))
			continue
		}
		failures = append(failures, fmt.Sprintf("%s: %d of %d (%s): %s", r.Group, len(f.Targets), r.Tried, names, f.Reason))
	}
	return fmt.Sprintf("%s: %d of %d answer", r.Group, r.Tried-failed, r.Tried), failures
}
