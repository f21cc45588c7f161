package tinkerbell

import (
	"errors"
	"fmt"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"auspex/internal/sim/kube"
)

// Conditions of workflows (tink v0.12.2, api/v1alpha1, workflow_types.go).
const (
	templateRendered = "TemplateRenderedSuccess"
	allowTrue        = "AllowNetbootTrue"
	allowFalse       = "AllowNetbootFalse"
	jobSetupFailed   = "NetbootJobSetupFailed"
)

// retry is when a workflow is reconciled again.
type retry struct {
	at   time.Time
	wait time.Duration
}

// maxRetry is how long the controller waits at most (controller-runtime's default is a thousand seconds).
const maxRetry = 1000 * time.Second

// control reconciles workflows that have changed, until none changes any more. One that nobody changes is
// not looked at: so no time runs out for a worker that has died (tink v0.12.2, reconciler.go).
func (s *Service) control(now time.Time) {
	due := s.store.Version() != s.looked
	for _, again := range s.retries {
		due = due || !now.Before(again.at)
	}
	if !due {
		return
	}
	for changed := true; changed; {
		changed = false
		alive := map[kube.ID]string{}
		for _, o := range s.store.List(workflowPlural, Namespace) {
			id := kube.ID{Plural: workflowPlural, Namespace: Namespace, Name: o.GetName()}
			alive[id] = s.seen[id]
			again, late := s.retries[id]
			if s.seen[id] == o.GetResourceVersion() && (!late || now.Before(again.at)) {
				continue
			}
			delete(s.retries, id)
			var w workflow
			if err := decode(o, &w); err != nil {
				alive[id] = o.GetResourceVersion()
				continue
			}
			was := w.Status.State
			err := s.reconcile(&w, now)
			after, put := s.putStatus(id, o.GetResourceVersion(), &w.Status)
			if put == nil {
				alive[id] = after.GetResourceVersion()
			}
			if err != nil || put != nil && !apierrors.IsNotFound(put) {
				wait := min(maxRetry, max(s.timing.Retry, 2*again.wait))
				s.retries[id] = retry{now.Add(wait), wait}
			} else if w.Status.State != was && was != running {
				alive[id] = "" // there may be a next step
				changed = true
			}
		}
		s.seen = alive
		maps.DeleteFunc(s.retries, func(id kube.ID, _ retry) bool { _, ok := alive[id]; return !ok })
	}
	s.looked = s.store.Version()
}

// putStatus writes the status of a workflow that is as it was read.
func (s *Service) putStatus(id kube.ID, version string, status *workflowStatus) (*unstructured.Unstructured, error) {
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, fmt.Errorf("write the status of %s: %w", id.Name, err)
	}
	return s.store.Change(id, kube.Status, false, func(now *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		now.SetResourceVersion(version) // where it is another one now, this is a conflict
		if len(doc) > 0 {
			now.Object["status"] = doc
		}
		return now, nil
	})
}

func (s *Service) reconcile(w *workflow, now time.Time) error {
	switch w.Status.State {
	case "":
		return s.begin(w, now)
	case preparing:
		return s.prepare(w, now)
	case running:
		expire(w, now)
	case post:
		if w.Spec.BootOptions.ToggleAllowNetboot && !w.Status.BootOptions.AllowNetboot.ToggledFalse {
			if err := s.toggle(w, false, now); err != nil {
				return err
			}
		}
		w.Status.State = success
	}
	return nil
}

// set adds a condition, or replaces the one of its type.
func (w *workflowStatus) set(kind string, err error, done string, now time.Time) {
	at := metav1.NewTime(now.UTC())
	c := condition{Type: kind, Status: "True", Reason: "Complete", Message: done, Time: &at}
	if err != nil {
		c.Status, c.Reason, c.Message = "False", "Error", err.Error()
	}
	for i := range w.Conditions {
		if w.Conditions[i].Type == kind {
			w.Conditions[i] = c
			return
		}
	}
	w.Conditions = append(w.Conditions, c)
}

// begin renders the template of a new workflow.
func (s *Service) begin(w *workflow, now time.Time) error {
	status, err := s.rendered(w)
	if err != nil {
		w.Status.TemplateRendering = "failed"
		w.Status.set(templateRendered, err, "", now)
		return err
	}
	w.Status = *status
	w.Status.TemplateRendering = "successful"
	w.Status.set(templateRendered, nil, "template rendered successfully", now)
	if w.Status.State = pending; w.Spec.BootOptions.ToggleAllowNetboot || w.Spec.BootOptions.BootMode != "" {
		w.Status.State = preparing
	}
	return nil
}

// rendered is the status that a workflow begins with.
func (s *Service) rendered(w *workflow) (*workflowStatus, error) {
	o, err := s.store.Get(kube.ID{Plural: templatePlural, Namespace: Namespace, Name: w.Spec.TemplateRef})
	if err != nil {
		return nil, errors.New("template not found")
	}
	var t template
	if err := decode(o, &t); err != nil {
		return nil, err
	}
	var h hardware
	if w.Spec.HardwareRef != "" {
		if h, err = s.hardware(w.Spec.HardwareRef); err != nil {
			return nil, fmt.Errorf("hardware not found: %w", err)
		}
	}
	text := ""
	if t.Spec.Data != nil {
		text = *t.Spec.Data
	}
	status, err := render(w.Name, text, w.Spec.HardwareMap, &h)
	if err != nil {
		return nil, fmt.Errorf("error rendering template: %w", err)
	}
	return status, nil
}

func (s *Service) hardware(name string) (h hardware, err error) {
	o, err := s.store.Get(kube.ID{Plural: hardwarePlural, Namespace: Namespace, Name: name})
	if err == nil {
		err = decode(o, &h)
	}
	return h, err
}

// prepare lets the server start from the network. A boot mode asks for Rufio, which is not played: such a
// workflow stays as it is.
func (s *Service) prepare(w *workflow, now time.Time) error {
	if w.Spec.BootOptions.ToggleAllowNetboot && !w.Status.BootOptions.AllowNetboot.ToggledTrue {
		if err := s.toggle(w, true, now); err != nil {
			return err
		}
	}
	if w.Spec.BootOptions.BootMode != "" {
		err := errors.New(`error creating job: no matches for kind "Job" in version "bmc.tinkerbell.org/v1alpha1"`)
		if len(w.Status.Conditions) == 0 || w.Status.Conditions[len(w.Status.Conditions)-1].Type != jobSetupFailed {
			w.Status.set(jobSetupFailed, err, "", now)
		}
		return err
	}
	w.Status.State = pending
	return nil
}

// toggle says of all interfaces of the hardware whether they may start from the network.
func (s *Service) toggle(w *workflow, allow bool, now time.Time) error {
	kind := allowFalse
	if allow {
		kind = allowTrue
	}
	err := errors.New("hardware ref is empty")
	if w.Spec.HardwareRef != "" {
		_, err = s.store.Change(kube.ID{Plural: hardwarePlural, Namespace: Namespace, Name: w.Spec.HardwareRef}, kube.Main, false,
			func(now *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				interfaces, _, err := unstructured.NestedSlice(now.Object, "spec", "interfaces")
				for i := range interfaces {
					n, _ := interfaces[i].(map[string]any)
					boot, ok := n["netboot"].(map[string]any)
					if !ok { // where tink v0.12.2 runs into a nil pointer, again and again
						return nil, fmt.Errorf("interface %d has no netboot", i)
					}
					boot["allowPXE"] = allow
				}
				if err == nil && interfaces != nil {
					err = unstructured.SetNestedSlice(now.Object, interfaces, "spec", "interfaces")
				}
				return now, err
			})
	}
	if err != nil {
		w.Status.set(kind, fmt.Errorf("error setting allowPXE to %v: %w", allow, err), "", now)
		return err
	}
	if allow {
		w.Status.BootOptions.AllowNetboot.ToggledTrue = true
	} else {
		w.Status.BootOptions.AllowNetboot.ToggledFalse = true
	}
	w.Status.set(kind, nil, fmt.Sprintf("set allowPXE to %v", allow), now)
	return nil
}

// expire looks whether the time of a running workflow is up, or that of one of its actions.
func expire(w *workflow, now time.Time) {
	st := &w.Status
	if len(st.Tasks) > 0 && len(st.Tasks[0].Actions) > 0 {
		if began := st.Tasks[0].Actions[0].StartedAt; began != nil && now.After(began.Add(time.Duration(st.GlobalTimeout)*time.Second)) {
			st.State = timeout
		}
	}
	for i := range st.Tasks {
		for k := range st.Tasks[i].Actions {
			a := &st.Tasks[i].Actions[k]
			if a.Status != running {
				continue
			}
			st.CurrentAction = a.Name
			if a.StartedAt != nil && now.After(a.StartedAt.Add(time.Duration(a.Timeout)*time.Second)) {
				a.Status, a.Message, a.Seconds = timeout, "Action timed out", int64(now.Sub(a.StartedAt.Time).Seconds())
				st.State = timeout
			}
		}
	}
}
