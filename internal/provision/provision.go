// Package provision makes what an installer works with out of what Auspex knows: workflows of
// Tinkerbell from templates and parameters, and hardware records from the inventory. It stores
// nothing and reaches nothing.
package provision

import (
	"fmt"
	"strings"
)

// Fault is something wrong with a template, with its parameters or with what they come to.
type Fault struct {
	// Field is where: text, parameters (of the schema, or given), and what is below, with dots.
	Field string
	// Line of the text of the template, from 1; 0 is of no line.
	Line   int
	Detail string // a sentence without its full stop
}

// String writes it as a sentence.
func (f Fault) String() string {
	if f.Line == 0 {
		return f.Field + ": " + f.Detail
	}
	return fmt.Sprintf("%s, line %d: %s", f.Field, f.Line, f.Detail)
}

// Faults are the error of what cannot be used.
type Faults []Fault

// Error implements error.
func (f Faults) Error() string {
	words := make([]string, len(f))
	for i := range f {
		words[i] = f[i].String()
	}
	return strings.Join(words, "; ")
}

// maxFaults is how many are told at once.
const maxFaults = 20

func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f[:min(len(f), maxFaults)]
}
