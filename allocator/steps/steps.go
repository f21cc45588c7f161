// Package steps does the steps of workflows. A driver is a file: it says which steps it does, and
// does them so that it may be asked again at any time, also by another process after a kill.
package steps

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"auspex/schemas"
)

// Job is a step that is to be done.
type Job struct {
	Workflow schemas.Workflow
	Step     schemas.WorkflowStep
	Number   int      // of the step, from 0
	GPUs     []string // names: those that the workflow is about
}

// ID is the same for the same step of the same run of a workflow, wherever it is done.
func (j *Job) ID() string {
	name := fmt.Sprintf("%s\x00%d\x00%d\x00%s", j.Workflow.ID, j.Workflow.Attempt, j.Number, j.Step.Name)
	return uuid.NewHash(sha256.New(), uuid.Nil, []byte(name), 8).String()
}

// takesOut reports whether its workflow takes the server out of the pool, installs or wipes it.
func (j *Job) takesOut() bool {
	return slices.ContainsFunc([]string{Drain, Install, Wipe, SetBIOS}, func(name string) bool { return j.Workflow.Step(name) != nil })
}

// Progress is how far a step is.
type Progress struct {
	Done, Failed bool
	Message      string // what was seen, or what it waits for
	Operation    string // id of the action of control that does it
	Stages       []schemas.Stage
}

// Driver does some kinds of steps.
type Driver interface {
	// Kinds are the names of the steps that it does.
	Kinds() []string
	// Do begins a step or goes on with it, and says how far it is. An error is no end: it is
	// called again until the step is out of time.
	Do(ctx context.Context, j Job) (Progress, error)
}

// Stopper is a driver whose steps go on, or may begin, where nobody waits for them any more.
type Stopper interface {
	// Stop ends a step of a workflow that has failed, and reports whether nothing of it goes on. It is called again until that is so.
	Stop(ctx context.Context, j Job) (bool, error)
}

// Holder is a driver whose steps may have to wait before they begin.
type Holder interface {
	// Holds says what a step waits for that has yet to begin; "" is nothing.
	Holds(ctx context.Context, j Job) (why string, err error)
}

// Steps around an installation: the scheduler of a server, where it has one, places no jobs on it meanwhile.
const (
	Drain    = "drain"
	Install  = "install" // with the template that it is given, of its parameters With
	Uncordon = "uncordon"
	Wipe     = "wipe"            // erases all that is on the drives, and proves it
	Update   = "update_firmware" // of one component, to a version
	SetBIOS  = "set_bios"
	// ResetNetwork has what Tinkerbell has of a server, and what it starts from next, as the inventory says.
	ResetNetwork = "reset_network"
	// ResetBIOS stands for the SetBIOS of a cleanup: all defaults, but for what the server is kept at.
	ResetBIOS = "reset_bios"
)

// lasting are steps that take longer than others, at most.
var lasting = map[string]time.Duration{Health: time.Hour, Drain: 30 * time.Minute, Install: 2 * time.Hour, "reinstall": 2 * time.Hour, Wipe: 2 * time.Hour, SetBIOS: 30 * time.Minute}

// patience is how long a bring-up waits for what control does: people may have to agree first, and budgets to be free. Nobody waits for the server.
const patience = 24 * time.Hour

// Within is how long a step of a type of workflow may take, where others may take usual.
func Within(kind, name string, usual time.Duration) time.Duration {
	usual = max(usual, lasting[name])
	if kind == schemas.WorkflowBringUp && slices.Contains(Control{}.Kinds(), name) {
		return max(usual, patience)
	}
	return usual
}

// Drivers finds the driver of a step.
type Drivers map[string]Driver

// Of returns the steps that drivers do. Two that do the same are an error.
func Of(all ...Driver) (Drivers, error) {
	d := make(Drivers)
	for _, one := range all {
		for _, kind := range one.Kinds() {
			if _, dup := d[kind]; dup {
				return nil, fmt.Errorf("two drivers do the step %s", kind)
			}
			d[kind] = one
		}
	}
	return d, nil
}

// Kinds lists the steps that can be done.
func (d Drivers) Kinds() []string { return slices.Sorted(maps.Keys(d)) }
