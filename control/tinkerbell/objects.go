package tinkerbell

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// group is that of tinkerbell/tink v0.12.2 (api/v1alpha1) and of tinkerbell/tinkerbell v0.25
// (api/v1alpha1/tinkerbell), which share it and differ in what a status is called.
var group = schema.GroupVersion{Group: "tinkerbell.org", Version: "v1alpha1"}

// What is written on objects that are ours.
const (
	managedBy  = "app.kubernetes.io/managed-by" // label
	manager    = "auspex"
	serverID   = "auspex.io/server-id" // label
	forServer  = "auspex.io/server"
	ofAction   = "auspex.io/action"
	deadlineAt = "auspex.io/deadline" // RFC 3339
	bootPhase  = "auspex.io/boot"     // how far the start from the network is: "", open, cycle
	closedAt   = "auspex.io/closed"   // since when nothing is left to be done of a workflow that ended
	pokedAt    = "auspex.io/poked"
	netbootFor = "auspex.io/netboot"       // the workflow for which hardware may start from the network
	recordOf   = "auspex.io/record"        // what we wrote of hardware, by field: JSON
	listBy     = "auspex.io/interfaces-by" // who else had written the list of interfaces when we did last: it has one owner as a whole
	ofTemplate = "auspex.io/template"      // of a workflow: name@version
)

// Workflow is the part of a Workflow that is read and written here. What its actions are given is
// left out: it holds the secrets of a template.
type Workflow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   WorkflowSpec   `json:"spec,omitzero"`
	Status WorkflowStatus `json:"status,omitzero"`
}

// WorkflowSpec is what is wanted.
type WorkflowSpec struct {
	TemplateRef string            `json:"templateRef,omitempty"`
	HardwareRef string            `json:"hardwareRef,omitempty"`
	HardwareMap map[string]string `json:"hardwareMap,omitempty"` // addresses of workers, by placeholder
}

// WorkflowStatus is what is, in both dialects.
type WorkflowStatus struct {
	State             string      `json:"state,omitempty"`
	TemplateRending   string      `json:"templateRending,omitempty"` // as both spell it
	TemplateRendering string      `json:"templateRendering,omitempty"`
	GlobalTimeout     int64       `json:"globalTimeout,omitempty"` // seconds
	Tasks             []Task      `json:"tasks,omitempty"`
	Conditions        []Condition `json:"conditions,omitempty"`
}

// Task is a list of actions for a worker.
type Task struct {
	Worker  string   `json:"worker,omitempty"`  // of v0.12.2
	AgentID string   `json:"agentID,omitempty"` // of v0.25
	Actions []Action `json:"actions,omitempty"`
}

// Action is one step.
type Action struct {
	Name           string       `json:"name,omitempty"`
	Timeout        int64        `json:"timeout,omitempty"` // seconds
	Status         string       `json:"status,omitempty"`  // of v0.12.2
	State          string       `json:"state,omitempty"`   // of v0.25
	StartedAt      *metav1.Time `json:"startedAt,omitempty"`
	ExecutionStart *metav1.Time `json:"executionStart,omitempty"`
	Message        string       `json:"message,omitempty"`
}

// Condition is what a controller says of a workflow.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message,omitempty"`
}

// States, without the prefix that v0.12.2 gives them.
const (
	stateRunning = "RUNNING"
	stateSuccess = "SUCCESS"
	stateFailed  = "FAILED"
	stateTimeout = "TIMEOUT"
	stateNew     = "NEW" // of none yet
)

func plainState(words ...string) string {
	for _, w := range words {
		if w != "" {
			return strings.TrimPrefix(w, "STATE_")
		}
	}
	return ""
}

func (a *Action) state() string { return plainState(a.Status, a.State) }

func (a *Action) began() time.Time {
	switch {
	case a.StartedAt != nil:
		return a.StartedAt.Time
	case a.ExecutionStart != nil:
		return a.ExecutionStart.Time
	}
	return time.Time{}
}

func (w *Workflow) state() string {
	if s := plainState(w.Status.State); s != "" {
		return s
	}
	return stateNew
}

// ended reports whether nothing more is done of it.
func (w *Workflow) ended() bool {
	return slices.Contains([]string{stateSuccess, stateFailed, stateTimeout}, w.state())
}

func (w *Workflow) ours() bool {
	return w.Labels[managedBy] == manager && w.Annotations[ofAction] != ""
}

// at is the action that a workflow is at, counted from 1, of how many; nil before the first.
func (w *Workflow) at() (a *Action, n, of int) {
	for i := range w.Status.Tasks {
		for k := range w.Status.Tasks[i].Actions {
			of++
			one := &w.Status.Tasks[i].Actions[k]
			if s := one.state(); s != "" && s != "PENDING" && (a == nil || a.state() == stateSuccess) {
				a, n = one, of
			}
		}
	}
	return a, n, of
}

// begun reports whether a worker has taken it up.
func (w *Workflow) begun() bool {
	a, _, _ := w.at()
	return a != nil || w.state() == stateRunning || w.state() == "POST"
}

// due is when Tinkerbell would end it by itself, if it looked; zero is never.
func (w *Workflow) due() (t time.Time) {
	sooner := func(from time.Time, seconds int64) {
		if at := from.Add(time.Duration(seconds) * time.Second); !from.IsZero() && seconds > 0 && (t.IsZero() || at.Before(t)) {
			t = at
		}
	}
	var first time.Time
	for i := range w.Status.Tasks {
		for k := range w.Status.Tasks[i].Actions {
			a := &w.Status.Tasks[i].Actions[k]
			if began := a.began(); !began.IsZero() && (first.IsZero() || began.Before(first)) {
				first = began
			}
			if a.state() == stateRunning {
				sooner(a.began(), a.Timeout)
			}
		}
	}
	sooner(first, w.Status.GlobalTimeout)
	return t
}

// touches reports whether a workflow is for hardware or a worker with one of some addresses.
func (w *Workflow) touches(hardware string, macs []string) bool {
	if hardware != "" && w.Spec.HardwareRef == hardware {
		return true
	}
	about := func(mac string) bool { return slices.Contains(macs, strings.ToLower(mac)) }
	for _, mac := range w.Spec.HardwareMap {
		if about(mac) {
			return true
		}
	}
	return slices.ContainsFunc(w.Status.Tasks, func(t Task) bool { return about(t.Worker) || about(t.AgentID) })
}

// WorkflowList is a page of them.
type WorkflowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Workflow `json:"items"`
}

// Hardware is the part of a Hardware that is read and written here. Interfaces and metadata keep
// what others say in them.
type Hardware struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec HardwareSpec `json:"spec,omitzero"`
}

// HardwareSpec is what a server is.
type HardwareSpec struct {
	Interfaces []map[string]any `json:"interfaces,omitempty"`
	Disks      []Disk           `json:"disks,omitempty"`
	Metadata   map[string]any   `json:"metadata,omitzero"`
	UserData   *string          `json:"userData,omitempty"`
	VendorData *string          `json:"vendorData,omitempty"`
	BMC        *Reference       `json:"bmcRef,omitempty"`
}

// Reference names an object of the same namespace.
type Reference struct {
	APIGroup string `json:"apiGroup,omitempty"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// Disk is a disk.
type Disk struct {
	Device string `json:"device,omitempty"`
}

// HardwareList is a page of them.
type HardwareList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Hardware `json:"items"`
}

// Machine is a board controller, as Rufio has it. How it is logged in to is not even read.
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec struct {
		Connection struct {
			Host string `json:"host,omitempty"`
		} `json:"connection,omitzero"`
	} `json:"spec,omitzero"`
	Status struct {
		Power      string      `json:"powerState,omitempty"` // on, off, unknown
		Conditions []Condition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (m *Machine) DeepCopyObject() runtime.Object { return copied(m) }

// Template is a Template.
type Template struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec TemplateSpec `json:"spec,omitzero"`
}

// TemplateSpec is its text.
type TemplateSpec struct {
	Data *string `json:"data,omitempty"`
}

// copied is another of the same value: all of them are read from JSON.
func copied[T any](v *T) *T {
	out := new(T)
	b, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		panic(err) // what was read as JSON can be written as such
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (w *Workflow) DeepCopyObject() runtime.Object { return copied(w) }

// DeepCopyObject implements runtime.Object.
func (l *WorkflowList) DeepCopyObject() runtime.Object { return copied(l) }

// DeepCopyObject implements runtime.Object.
func (h *Hardware) DeepCopyObject() runtime.Object { return copied(h) }

// DeepCopyObject implements runtime.Object.
func (l *HardwareList) DeepCopyObject() runtime.Object { return copied(l) }

// DeepCopyObject implements runtime.Object.
func (t *Template) DeepCopyObject() runtime.Object { return copied(t) }

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(group, &Workflow{}, &WorkflowList{}, &Hardware{}, &HardwareList{}, &Template{})
	s.AddKnownTypes(bmcGroup, &Machine{}, &Job{}, &JobList{})
	s.AddKnownTypeWithName(bmcGroup.WithKind("Task"), &BMCTask{})
	metav1.AddToGroupVersion(s, group)
	metav1.AddToGroupVersion(s, bmcGroup)
	return s
}()

// owner names who has an object that is not ours.
func owner(m *metav1.ObjectMeta) string {
	if by := m.Labels[managedBy]; by != "" && by != manager {
		return by
	}
	if len(m.OwnerReferences) > 0 {
		return m.OwnerReferences[0].Kind + " " + m.OwnerReferences[0].Name
	}
	for i := range slices.Backward(m.ManagedFields) {
		if f := &m.ManagedFields[i]; f.Manager != manager && f.Subresource == "" {
			return f.Manager
		}
	}
	return "someone else"
}
