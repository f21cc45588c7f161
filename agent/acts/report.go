package acts

import (
	"fmt"
	"slices"
	"time"
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

// Add appends tests; who measured names them with a prefix of its own.
func (r *Report) Add(tests ...Test) { r.Tests = slices.Concat(r.Tests, tests) }
