// Package tinkerbell plays Tinkerbell for the simulated fleet, as tink v0.12.2 behaves: what answers a
// server that starts from the network, the controller of workflows, and the worker that runs their actions
// on a server. Their objects are in the store of [auspex/internal/sim/kube].
//
// It reads objects with types of its own, so that it does not share a misreading with the product.
package tinkerbell

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/kube"
)

// Namespace is where the objects of the simulated fleet are.
const Namespace = "tink"

// The resources (tink v0.12.2, config/crd/bases).
const (
	hardwarePlural = "hardware"
	templatePlural = "templates"
	workflowPlural = "workflows"
)

// Resources are the custom resources of tink v0.12.2 that it plays.
func Resources() []kube.Resource {
	of := func(kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "tinkerbell.org", Version: "v1alpha1", Kind: kind}
	}
	return []kube.Resource{
		{GroupVersionKind: of("Hardware"), Plural: hardwarePlural, Singular: "hardware", Short: []string{"hw"}},
		{GroupVersionKind: of("Template"), Plural: templatePlural, Singular: "template", Short: []string{"tpl"}},
		{GroupVersionKind: of("Workflow"), Plural: workflowPlural, Singular: "workflow", Short: []string{"wf"}},
	}
}

// Timing says how long what a worker does takes.
type Timing struct {
	Write  time.Duration // of an image to a disk
	Action time.Duration // of any other action
	Poll   time.Duration // between two questions of a worker for work
	Retry  time.Duration // of the controller for the first time, and twice as long each time after
}

// DefaultTiming is that of the demo.
func DefaultTiming() Timing {
	return Timing{Write: 8 * time.Second, Action: time.Second, Poll: 3 * time.Second, Retry: 2 * time.Second}
}

// Service is the controller, the answer to those who start from the network, and all workers.
type Service struct {
	store  *kube.Store
	fleet  *fleet.Fleet
	timing Timing
	// Image tells whether the simulated image store has what a URL names; other stores are not looked at.
	image func(url string) error

	seen    map[kube.ID]string   // versions of workflows that were reconciled
	retries map[kube.ID]retry    // of those that could not be reconciled
	looked  uint64               // the version of the store when the controller last looked
	workers map[string]*worker   // by server
	waiting map[string]*workflow // what workers can do in this step, by their addresses
}

// New returns a service over a store with the resources of [Resources]. Image says what speaks against
// an image that is to be written; nil is nothing.
func New(store *kube.Store, f *fleet.Fleet, timing Timing, image func(url string) error) *Service {
	if image == nil {
		image = func(string) error { return nil }
	}
	s := &Service{
		store: store, fleet: f, timing: timing, image: image,
		seen: map[kube.ID]string{}, retries: map[kube.ID]retry{}, workers: map[string]*worker{},
	}
	f.OnNetboot(s.offers)
	return s
}

// Handler returns the interface to the objects.
func (s *Service) Handler(token string) http.Handler {
	return kube.NewHandler(s.store, token, s.fleet.ServiceFault)
}

// offers tells whether a server may start the installer's system by an interface.
func (s *Service) offers(mac string) bool {
	for _, o := range s.store.List(hardwarePlural, Namespace) {
		var h hardware
		if err := decode(o, &h); err != nil {
			continue
		}
		for i := range h.Spec.Interfaces {
			n := &h.Spec.Interfaces[i]
			if n.DHCP != nil && strings.EqualFold(n.DHCP.MAC, mac) && n.Netboot != nil && n.Netboot.AllowPXE != nil && *n.Netboot.AllowPXE {
				return true
			}
		}
	}
	return false
}

// Step does what the controller and the workers do until a time. It is not safe for use by several
// goroutines at the same time.
func (s *Service) Step(now time.Time) {
	away := s.fleet.ServiceFault().Away
	if !away {
		s.control(now)
	}
	s.work(now, away)
	if !away {
		s.control(now) // what workers have told
	}
}

func decode(o *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		return fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// hardware is what of a Hardware is read (tink v0.12.2, api/v1alpha1, hardware_types.go).
type hardware struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec hardwareSpec `json:"spec"`
}

type hardwareSpec struct {
	Interfaces []networkInterface `json:"interfaces,omitempty"`
	Disks      []struct {
		Device string `json:"device,omitempty"`
	} `json:"disks,omitempty"`
	Metadata   *metadata `json:"metadata,omitempty"`
	UserData   *string   `json:"userData,omitempty"`
	VendorData *string   `json:"vendorData,omitempty"`
}

type networkInterface struct {
	Netboot *netboot `json:"netboot,omitempty"`
	DHCP    *dhcp    `json:"dhcp,omitempty"`
}

type netboot struct {
	AllowPXE      *bool `json:"allowPXE,omitempty"`
	AllowWorkflow *bool `json:"allowWorkflow,omitempty"`
}

type dhcp struct {
	MAC       string `json:"mac,omitempty"`
	Hostname  string `json:"hostname,omitempty"`
	Arch      string `json:"arch,omitempty"`
	UEFI      bool   `json:"uefi,omitempty"`
	IfaceName string `json:"iface_name,omitempty"`
}

type metadata struct {
	Instance *struct {
		ID       string `json:"id,omitempty"`
		Hostname string `json:"hostname,omitempty"`
		Userdata string `json:"userdata,omitempty"`
	} `json:"instance,omitempty"`
	Facility *struct {
		PlanSlug     string `json:"plan_slug,omitempty"`
		FacilityCode string `json:"facility_code,omitempty"`
	} `json:"facility,omitempty"`
}

type template struct {
	Spec struct {
		Data *string `json:"data,omitempty"`
	} `json:"spec"`
}

// States of workflows and actions (workflow_types.go).
const (
	preparing = "STATE_PREPARING"
	pending   = "STATE_PENDING"
	running   = "STATE_RUNNING"
	post      = "STATE_POST"
	success   = "STATE_SUCCESS"
	failed    = "STATE_FAILED"
	timeout   = "STATE_TIMEOUT"
)

type workflow struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		TemplateRef string            `json:"templateRef,omitempty"`
		HardwareRef string            `json:"hardwareRef,omitempty"`
		HardwareMap map[string]string `json:"hardwareMap,omitempty"`
		BootOptions struct {
			ToggleAllowNetboot bool   `json:"toggleAllowNetboot,omitempty"`
			BootMode           string `json:"bootMode,omitempty"`
		} `json:"bootOptions"`
	} `json:"spec"`
	Status workflowStatus `json:"status"`
}

type workflowStatus struct {
	State             string      `json:"state,omitempty"`
	CurrentAction     string      `json:"currentAction,omitempty"`
	BootOptions       bootStatus  `json:"bootOptions"`
	TemplateRendering string      `json:"templateRending,omitempty"` // so it is spelt in v0.12.2
	GlobalTimeout     int64       `json:"globalTimeout,omitempty"`
	Tasks             []task      `json:"tasks,omitempty"`
	Conditions        []condition `json:"conditions,omitempty"`
}

type bootStatus struct {
	AllowNetboot struct {
		ToggledTrue  bool `json:"toggledTrue,omitempty"`
		ToggledFalse bool `json:"toggledFalse,omitempty"`
	} `json:"allowNetboot"`
}

type condition struct {
	Type    string       `json:"type"`
	Status  string       `json:"status"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Time    *metav1.Time `json:"time,omitempty"`
}

type task struct {
	Name        string            `json:"name"`
	WorkerAddr  string            `json:"worker"`
	Actions     []action          `json:"actions"`
	Volumes     []string          `json:"volumes,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
}

type action struct {
	Name        string            `json:"name,omitempty"`
	Image       string            `json:"image,omitempty"`
	Timeout     int64             `json:"timeout,omitempty"`
	Command     []string          `json:"command,omitempty"`
	Volumes     []string          `json:"volumes,omitempty"`
	Pid         string            `json:"pid,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Status      string            `json:"status,omitempty"`
	StartedAt   *metav1.Time      `json:"startedAt,omitempty"`
	Seconds     int64             `json:"seconds,omitempty"`
	Message     string            `json:"message,omitempty"`
}

// current finds the first action that has not succeeded; ok is false where all have.
func (w *workflowStatus) current() (t *task, a *action, ok bool) {
	for i := range w.Tasks {
		for k := range w.Tasks[i].Actions {
			if a := &w.Tasks[i].Actions[k]; a.Status != success {
				return &w.Tasks[i], a, true
			}
		}
	}
	return nil, nil, false
}
