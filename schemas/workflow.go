package schemas

import (
	"slices"
	"time"
)

// Types of workflows.
const (
	WorkflowDeploy   = "deploy"   // makes a server fit for its user
	WorkflowCleanup  = "cleanup"  // makes it fit for the next one
	WorkflowConfig   = "config"   // brings a configuration in force
	WorkflowValidate = "validate" // looks whether it is well
	WorkflowBringUp  = "bring_up" // makes one that was found fit for its first user
)

// States of a step of a workflow.
const (
	StepPending   = "pending"
	StepRunning   = "running"
	StepCompleted = "completed"
	StepFailed    = "failed"
	StepSkipped   = "skipped" // the one before failed
)

// Workflow is what is done to a server, step by step.
type Workflow struct {
	ID           string         `json:"id"` // UUID
	AllocationID string         `json:"allocation_id,omitempty"`
	ServerID     string         `json:"server_id"`
	Server       string         `json:"server"`        // its name
	TinkerbellID string         `json:"tinkerbell_id"` // of the Workflow there; "" is none
	Type         string         `json:"type"`
	Exclusive    bool           `json:"exclusive"` // it has the server for itself, whose life it moves along
	Status       string         `json:"status"`    // of [WorkflowLife]
	Reason       string         `json:"status_reason,omitempty"`
	Sentence     *Sentence      `json:"status_sentence,omitempty"` // Reason in pieces, where it is in words of ours; of answers alone
	Steps        []WorkflowStep `json:"steps"`
	Attempt      int            `json:"attempt"` // which run this is, from 1
	CreatedBy    string         `json:"created_by"`
	StartedAt    time.Time      `json:"started_at,omitzero"`
	CompletedAt  time.Time      `json:"completed_at,omitzero"`
	CreatedAt    time.Time      `json:"created_at"`
	UpdatedAt    time.Time      `json:"updated_at"`
	Revision     int64          `json:"-"`
}

// WorkflowStep is one thing that a workflow does.
type WorkflowStep struct {
	Name        string            `json:"name"`             // its kind
	Target      string            `json:"target,omitempty"` // the part that it is done to; "" is the server
	With        map[string]string `json:"with,omitempty"`
	Status      string            `json:"status"`
	StartedAt   time.Time         `json:"started_at,omitzero"`
	CompletedAt time.Time         `json:"completed_at,omitzero"`
	Message     string            `json:"message,omitempty"`
	Sentence    *Sentence         `json:"sentence,omitempty"`  // Message in pieces; of answers alone
	Operation   string            `json:"operation,omitempty"` // id of the action of control that does it
	Stages      []Stage           `json:"stages,omitempty"`    // of that action, where it has some
}

// Live reports whether it is yet to end.
func (w *Workflow) Live() bool { return w.Status == WorkflowPending || w.Status == WorkflowRunning }

// Step returns the first step of a name, nil where there is none.
func (w *Workflow) Step(name string) *WorkflowStep {
	if n := slices.IndexFunc(w.Steps, func(st WorkflowStep) bool { return st.Name == name }); n >= 0 {
		return &w.Steps[n]
	}
	return nil
}
