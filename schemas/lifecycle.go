package schemas

import (
	"fmt"
	"slices"
	"strings"
)

// Life cycle of a server. Health is telemetry, and no part of it.
const (
	ServerDiscovered   = "discovered" // seen, and nobody has said that it is ours to use
	ServerProvisioning = "provisioning"
	ServerReady        = "ready" // may be given to somebody
	ServerError        = "error"
	ServerRetired      = "retired"
)

// Life cycle of a GPU.
const (
	GPUAvailable = "available"
	GPUAllocated = "allocated" // promised to an allocation that has not begun
	GPUInUse     = "in_use"    // of an active allocation
	GPUError     = "error"
)

// Life cycle of an allocation.
const (
	AllocationPending   = "pending"
	AllocationActive    = "active"
	AllocationCompleted = "completed"
	AllocationFailed    = "failed"
)

// Life cycle of a workflow.
const (
	WorkflowPending   = "pending"
	WorkflowRunning   = "running"
	WorkflowCompleted = "completed"
	WorkflowFailed    = "failed"
)

// Lifecycle is the states of a kind of record, and the moves between them that there are. It
// is the only place that knows: stores ask it before they write.
type Lifecycle struct {
	Of    string   // what it is the life of, in a sentence
	First []string // states that a record may begin in
	moves []move
}

type move struct {
	from string
	to   []string
}

// The life cycles, each state in the order of a record's life.
var (
	ServerLife = Lifecycle{"server", []string{ServerDiscovered, ServerReady}, []move{
		{ServerDiscovered, []string{ServerProvisioning}},
		{ServerProvisioning, []string{ServerReady, ServerError}},
		{ServerReady, []string{ServerProvisioning, ServerRetired}},
		{ServerError, []string{ServerProvisioning, ServerRetired}},
		{ServerRetired, nil},
	}}
	GPULife = Lifecycle{"GPU", []string{GPUAvailable}, []move{
		{GPUAvailable, []string{GPUAllocated, GPUError}},
		{GPUAllocated, []string{GPUInUse, GPUAvailable, GPUError}},
		{GPUInUse, []string{GPUAvailable, GPUError}},
		{GPUError, []string{GPUAvailable}},
	}}
	AllocationLife = Lifecycle{"allocation", []string{AllocationPending}, []move{
		{AllocationPending, []string{AllocationActive, AllocationFailed}},
		{AllocationActive, []string{AllocationCompleted, AllocationFailed}},
		{AllocationCompleted, nil},
		{AllocationFailed, []string{AllocationPending}},
	}}
	WorkflowLife = Lifecycle{"workflow", []string{WorkflowPending}, []move{
		{WorkflowPending, []string{WorkflowRunning, WorkflowFailed}},
		{WorkflowRunning, []string{WorkflowCompleted, WorkflowFailed}},
		{WorkflowCompleted, nil},
		{WorkflowFailed, []string{WorkflowPending}},
	}}
)

// States lists the states.
func (l Lifecycle) States() []string {
	out := make([]string, len(l.moves))
	for i, m := range l.moves {
		out[i] = m.from
	}
	return out
}

// Next lists the states that a record may move to from one; none from a state that there is not.
func (l Lifecycle) Next(from string) []string {
	for _, m := range l.moves {
		if m.from == from {
			return slices.Clone(m.to)
		}
	}
	return nil
}

// Move is nil where a record may move, and else a [*MoveError]. To stay is no move, and is refused.
func (l Lifecycle) Move(from, to string) error {
	next := l.Next(from)
	if slices.Contains(next, to) {
		return nil
	}
	return &MoveError{Of: l.Of, From: from, To: to, Legal: next}
}

// MoveError is a move that a life cycle does not have.
type MoveError struct {
	Of       string // what was to be moved
	From, To string
	Legal    []string // where it may go
}

// Error implements error.
func (e *MoveError) Error() string {
	legal := "nowhere"
	if len(e.Legal) > 0 {
		legal = strings.Join(e.Legal, " or ")
	}
	return fmt.Sprintf("a %s that is %s cannot become %s; it may become %s", e.Of, e.From, e.To, legal)
}
