package acts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"auspex/internal/datafile"
	"auspex/internal/target"
)

// Result is what became of a test.
type Result string

// The results. A warning is worth a look and keeps nobody out; a test that was skipped could
// not be made here, and says nothing.
const (
	Passed  Result = "passed"
	Warned  Result = "warned"
	Skipped Result = "skipped"
	Broken  Result = "failed"
)

// AllGPUs is the number of the GPU where a test is of the server, or of all its GPUs together.
const AllGPUs = -1

// Test is what one test found.
type Test struct {
	// Name is in small letters with dashes, and of who made it before a point where that is not the agent: dcgm.pcie.
	Name    string  `json:"name"`
	GPU     int     `json:"gpu"` // its number, or [AllGPUs]
	Result  Result  `json:"result"`
	Message string  `json:"message,omitempty"` // a sentence without the GPU and the test
	Value   float64 `json:"value,omitempty"`   // what was measured, where there is a unit
	Unit    string  `json:"unit,omitempty"`    // as UCUM writes it: By/s, Cel, W; 1 is a count
}

// String is the test as a person reads it: gpu3: memory-sweep: 1 of 41 words is wrong.
func (t *Test) String() string {
	if t.GPU == AllGPUs {
		return fmt.Sprintf("%s: %s", t.Name, t.Message)
	}
	return fmt.Sprintf("gpu%d: %s: %s", t.GPU, t.Name, t.Message)
}

// Report is what a validation found, in the order in which it was tested.
type Report struct {
	ID    string    `json:"id"` // of the act
	Level int       `json:"level"`
	GPUs  []uint32  `json:"gpus"` // that were tested
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	Tests []Test    `json:"tests"`
}

// Of returns the tests with a result.
func (r *Report) Of(result Result) (out []Test) {
	for _, t := range r.Tests {
		if t.Result == result {
			out = append(out, t)
		}
	}
	return out
}

// Sound reports whether something was tested, and nothing has failed.
func (r *Report) Sound() bool {
	return len(r.Of(Passed))+len(r.Of(Warned)) > 0 && len(r.Of(Broken)) == 0
}

// Add appends tests.
func (r *Report) Add(tests ...Test) { r.Tests = append(r.Tests, tests...) }

// maxNamed bounds how many failed tests a sentence names.
const maxNamed = 4

// String says what was found.
func (r *Report) String() string {
	var bad []string
	for _, t := range r.Of(Broken) {
		if bad = append(bad, t.String()); len(bad) == maxNamed {
			break
		}
	}
	if more := len(r.Of(Broken)) - len(bad); more > 0 {
		bad = append(bad, fmt.Sprintf("and %d more", more))
	}
	if len(bad) > 0 {
		return "failed: " + strings.Join(bad, "; ")
	}
	return fmt.Sprintf("%d tests passed, %d warn, %d were skipped", len(r.Of(Passed)), len(r.Of(Warned)), len(r.Of(Skipped)))
}

// on returns the part of a report that is of a GPU, and what is of all of them.
func (r *Report) on(gpu int) Report {
	out := *r
	out.Tests = nil
	for _, t := range r.Tests {
		if t.GPU == gpu || t.GPU == AllGPUs {
			out.Tests = append(out.Tests, t)
		}
	}
	return out
}

// maxReports bounds how many GPUs have one.
const maxReports = 256

// Reports keeps the last report of each GPU, on the disk and in the tree. It is for use by
// several goroutines.
type Reports struct {
	path string
	tree *target.Tree

	mu   sync.Mutex
	last map[uint32]Report // by GPU: what of the last validation is of it
}

// OpenReports reads what was kept; what cannot be read is an error beside reports that are empty.
func OpenReports(path string, tree *target.Tree) (*Reports, error) {
	r := &Reports{path: path, tree: tree, last: map[uint32]Report{}}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return r, nil
	case err == nil:
		err = json.Unmarshal(b, &r.last)
	}
	if err != nil {
		r.last = map[uint32]Report{}
		return r, fmt.Errorf("reports of validations are forgotten: %w", err)
	}
	for n := range r.last {
		r.tell(n)
	}
	return r, nil
}

// Keep keeps a report as the last of each GPU that it is of.
func (r *Reports) Keep(report Report) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(r.last)
	for _, n := range report.GPUs {
		next[n] = report.on(int(n))
	}
	if len(next) > maxReports {
		return fmt.Errorf("there are reports of %d GPUs", len(r.last))
	}
	b, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := datafile.Replace(r.path, b); err != nil {
		return err
	}
	r.last = next
	for _, n := range report.GPUs {
		r.tell(n)
	}
	return nil
}

// Last returns the last report of some GPUs, of all where none is named, as one; the id is that
// of the newest. Without an id none is wanted, with one only that.
func (r *Reports) Last(gpus []uint32, id string) (out Report, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(gpus) == 0 {
		gpus = slices.Sorted(maps.Keys(r.last))
	}
	for _, n := range gpus {
		one, have := r.last[n]
		if !have || id != "" && one.ID != id {
			continue
		}
		if one.Ended.After(out.Ended) {
			out.ID, out.Level, out.Began, out.Ended = one.ID, one.Level, one.Began, one.Ended
		}
		out.GPUs = append(out.GPUs, n)
		for _, t := range one.Tests {
			if !slices.Contains(out.Tests, t) { // what is of all GPUs is in each
				out.Tests = append(out.Tests, t)
			}
		}
	}
	return out, len(out.GPUs) > 0
}

// tell writes the report of a GPU to the tree; the caller holds the lock.
func (r *Reports) tell(n uint32) {
	report := r.last[n]
	at := fmt.Sprintf("/gpus/gpu[name=gpu%d]/validation", n)
	r.tree.Drop(at)
	state := func(leaf string) target.Ref { return r.tree.Leaf(at + "/state/" + leaf) }
	id, level, passed, began, ended := state("id"), state("level"), state("passed"), state("began"), state("ended")
	w := r.tree.Write(time.Now())
	w.Text(id, report.ID)
	w.Uint(level, uint64(max(0, report.Level)))
	w.Bool(passed, report.Sound())
	w.Uint(began, uint64(max(0, report.Began.Unix())))
	w.Uint(ended, uint64(max(0, report.Ended.Unix())))
	w.Close()
	for _, t := range report.Tests {
		test := at + "/test[name=" + target.Key(t.Name) + "]/state/"
		leaf := func(name string) target.Ref { return r.tree.Leaf(test + name) }
		name, result, message, value, unit := leaf("name"), leaf("result"), leaf("message"), leaf("value"), leaf("unit")
		w := r.tree.Write(time.Now())
		w.Text(name, t.Name)
		w.Text(result, string(t.Result))
		w.Text(message, t.Message)
		if t.Unit != "" {
			w.Float(value, t.Value)
			w.Text(unit, t.Unit)
		}
		w.Close()
	}
}
