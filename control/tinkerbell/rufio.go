package tinkerbell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"auspex/control"
	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
)

// bmcGroup is that of tinkerbell/rufio v0.6.5 (api/v1alpha1).
var bmcGroup = schema.GroupVersion{Group: "bmc.tinkerbell.org", Version: "v1alpha1"}

const (
	jobs  = "jobs"
	tasks = "tasks"
	units = "machines"

	ofKind   = "auspex.io/kind" // of a job: of the step
	lookedAt = "auspex.io/look" // of a Machine: the action for which Rufio was made to read it, and when

	// settles is how long Rufio has to read a Machine after it was made to: where the answer is what it was, the API shows
	// nothing of the reading.
	settles = 15 * time.Second
	// keeps is how long a job of ours stays, as evidence; no step looks at one for longer.
	keeps = 6 * time.Hour
	// cleans is how often those that are older are looked for.
	cleans = 10 * time.Minute
)

// Job is a list of what Rufio is to do at one Machine, one after the other.
type Job struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   JobSpec   `json:"spec,omitzero"`
	Status JobStatus `json:"status,omitzero"`
}

// JobSpec is what is wanted.
type JobSpec struct {
	Machine MachineRef `json:"machineRef,omitzero"`
	Tasks   []Act      `json:"tasks"`
}

// MachineRef names a Machine.
type MachineRef struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Act is one of them.
type Act struct {
	Power string   `json:"powerAction,omitempty"` // on, off, soft (a shutdown)
	Boot  *BootAct `json:"oneTimeBootDeviceAction,omitempty"`
}

// BootAct is from what a server starts next.
type BootAct struct {
	Devices []string `json:"device"`
	EFI     bool     `json:"efiBoot,omitempty"`
}

func (a Act) String() string {
	if a.Boot != nil {
		return "boot " + strings.Join(a.Boot.Devices, ", ")
	}
	return "power " + a.Power
}

// JobStatus is what is, of a Job and of a Task.
type JobStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// has reports whether a condition is true, and what is said of it.
func (s *JobStatus) has(kind string) (string, bool) {
	for _, c := range s.Conditions {
		if c.Type == kind && c.Status == "True" {
			return c.Message, true
		}
	}
	return "", false
}

// Of jobs and tasks.
const (
	jobCompleted = "Completed"
	jobFailed    = "Failed"
)

func (s *JobStatus) ended() bool {
	_, done := s.has(jobCompleted)
	_, failed := s.has(jobFailed)
	return done || failed
}

func (j *Job) ours() bool {
	return j.Labels[managedBy] == manager && j.Annotations[ofAction] != ""
}

// JobList is a page of them.
type JobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Job `json:"items"`
}

// BMCTask is one act of a Job, as Rufio does it.
type BMCTask struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Status JobStatus `json:"status,omitzero"`
}

// DeepCopyObject implements runtime.Object.
func (j *Job) DeepCopyObject() runtime.Object { return copied(j) }

// DeepCopyObject implements runtime.Object.
func (l *JobList) DeepCopyObject() runtime.Object { return copied(l) }

// DeepCopyObject implements runtime.Object.
func (t *BMCTask) DeepCopyObject() runtime.Object { return copied(t) }

// rufio does what a board controller would be asked for through jobs of Rufio, which reaches controllers that we do not.
type rufio struct {
	*cluster
	now      func() time.Time
	resource func(id string) (schemas.Resource, bool)
	installs control.Installs
}

// turn is the remediator of one kind of step.
type turn struct {
	*rufio
	acts func(ctx context.Context, s control.Step) ([]Act, error)
	to   string // what power reads when it is done; "" is not of power
}

func power(states ...string) func(context.Context, control.Step) ([]Act, error) {
	return func(context.Context, control.Step) (out []Act, err error) {
		for _, s := range states {
			out = append(out, Act{Power: s})
		}
		return out, nil
	}
}

// Reliefs implements [control.Relief]: servers whose board controllers are reached through Rufio. A cycle is off and on: Rufio
// ends each when it has read that it is so, and has nothing of the kind for its own cycle.
func (c *Config) Reliefs(s control.Settings) (map[string]control.Remediator, error) {
	if !c.Rufio || !c.Configured() {
		return nil, nil
	}
	r := &rufio{
		cluster: &cluster{cfg: *c, group: bmcGroup, metrics: newMetrics(s.Metrics)}, now: s.Now, resource: s.Resource, installs: s.Installs,
	}
	if r.now == nil {
		r.now = time.Now
	}
	off := func(_ context.Context, s control.Step) ([]Act, error) {
		if s.With[policy.Force] == "true" {
			return []Act{{Power: "off"}}, nil
		}
		return []Act{{Power: "soft"}}, nil
	}
	return map[string]control.Remediator{
		"power_on": turn{r, power("on"), "on"}, "power_off": turn{r, off, "off"}, "power_cycle": turn{r, power("off", "on"), "on"},
		"set_boot": turn{r, r.boots, ""},
	}, nil
}

// boots is from what a server is to start next, in the mode that its hardware record has.
func (r *rufio) boots(ctx context.Context, s control.Step) ([]Act, error) {
	target := s.With["target"]
	if !slices.Contains([]string{"pxe", "disk", "bios"}, target) {
		return nil, fmt.Errorf("%w: target is %q: want pxe, disk or bios, which is what Rufio sets", control.ErrCannot, target)
	}
	uefi := true
	if r.installs != nil {
		record, err := r.installs.Hardware(ctx, s.Server)
		if err != nil && !errors.Is(err, control.ErrCannot) {
			return nil, err
		}
		if len(record.Interfaces) > 0 {
			uefi = record.Interfaces[0].DHCP.UEFI
		}
	}
	return []Act{{Boot: &BootAct{[]string{target}, uefi}}}, nil
}

func phrase(acts []Act) string {
	out := make([]string, len(acts))
	for i, a := range acts {
		out[i] = a.String()
	}
	return strings.Join(out, ", ")
}

// find reads the Machine of a server: the one that the inventory names, or the one that has the name of the server.
func (r *rufio) find(ctx context.Context, server string) (*Machine, error) {
	var is schemas.Resource
	known := false
	if r.resource != nil {
		is, known = r.resource(server)
	}
	if !known {
		return nil, fmt.Errorf("%w: %s is not in the inventory", control.ErrCannot, server)
	}
	name := cmp.Or(is.Attrs.Get(schemas.AttrRufioMachine), label(server))
	m := &Machine{}
	found, err := r.get(ctx, units, name, m)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("%w: Rufio has no machine %s/%s: set rufio_machine of %s in the inventory, or redfish_url or ipmi_ip with a credential",
			control.ErrCannot, r.cfg.Namespace, name, server)
	}
	theirs, err := netip.ParseAddr(m.Spec.Connection.Host)
	if err != nil {
		return m, nil //nolint:nilerr // a name of a host may well be that of the address
	}
	for _, attr := range []string{schemas.AttrRedfishURL, schemas.AttrIPMIIP} {
		if ours, err := netip.ParseAddr(hostOf(is.Attrs.Get(attr))); err == nil && ours.Unmap() != theirs.Unmap() {
			return nil, fmt.Errorf("%w: machine %s/%s is at %s, and the inventory has %s of %s at %s", control.ErrCannot, r.cfg.Namespace, name, theirs, attr, server, ours)
		}
	}
	return m, nil
}

// free is the error of a Machine on which no job may be begun: it is not reached, or is being worked on.
func (r *rufio) free(ctx context.Context, s control.Step) (*Machine, error) {
	m, err := r.find(ctx, s.Server)
	if err != nil {
		return nil, err
	}
	for _, c := range m.Status.Conditions {
		if c.Type == "Contactable" && c.Status == "False" {
			return nil, fmt.Errorf("%w: Rufio does not reach the board controller of machine %s/%s: %s", control.ErrRejected, m.Namespace, m.Name, short(c.Message))
		}
	}
	all, err := r.allJobs(ctx)
	if err != nil {
		return nil, err
	}
	for k := range all {
		j := &all[k]
		if j.Spec.Machine.Name != m.Name || j.Status.ended() || j.Name == workflowName(s) {
			continue
		}
		by := owner(&j.ObjectMeta)
		if j.ours() {
			by = "Auspex (" + j.Annotations[ofAction] + ")"
		}
		return nil, fmt.Errorf("%w: job %s/%s, which belongs to %s, has not ended on machine %s", control.ErrRejected, j.Namespace, j.Name, by, m.Name)
	}
	return m, nil
}

func (k *cluster) allJobs(ctx context.Context) (out []Job, err error) {
	err = k.pages(ctx, jobs, func() (runtime.Object, func() string) {
		l := &JobList{}
		return l, func() string { out = append(out, l.Items...); return l.Continue }
	})
	return out, err
}

// Plan implements control.Remediator.
func (t turn) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	acts, err := t.acts(ctx, s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	m, err := t.free(ctx, s)
	if err != nil {
		return schemas.Sentence{}, err
	}
	return messages.New(messages.WouldRufio, messages.Args{"server": s.Server, "acts": phrase(acts), "machine": m.Name, "power": m.power()}), nil
}

// Apply implements control.Remediator. The name of the job follows from the action: one that exists was sent before.
func (t turn) Apply(ctx context.Context, s control.Step) error {
	acts, err := t.acts(ctx, s)
	if err != nil {
		return rejected(err)
	}
	m, err := t.free(ctx, s)
	if err != nil {
		return rejected(err)
	}
	j := &Job{
		TypeMeta: metav1.TypeMeta{APIVersion: bmcGroup.String(), Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{
			Name: workflowName(s), Namespace: t.cfg.Namespace, Labels: map[string]string{managedBy: manager},
			Annotations: map[string]string{ofAction: s.ID, forServer: s.Server, ofKind: s.Kind},
		},
		Spec: JobSpec{MachineRef{m.Name, t.cfg.Namespace}, acts},
	}
	made, err := t.create(ctx, jobs, j.Name, j)
	if made {
		t.metrics.jobs.WithLabelValues(s.Kind, "given").Inc()
	}
	return sent(err)
}

// job reads that of a step; nil is that there is none.
func (r *rufio) job(ctx context.Context, s control.Step) (*Job, error) {
	j := &Job{}
	if found, err := r.get(ctx, jobs, workflowName(s), j); err != nil || !found {
		return nil, err
	}
	if !j.ours() || j.Annotations[ofAction] != s.ID {
		return nil, fmt.Errorf("%w: job %s/%s belongs to %s", control.ErrRejected, j.Namespace, j.Name, owner(&j.ObjectMeta))
	}
	return j, nil
}

// Pursue implements control.Pursuer: once a job has ended, Rufio is made to read its Machine, which it does every three minutes
// otherwise, and whenever the object changes.
func (t turn) Pursue(ctx context.Context, s control.Step) error {
	j, err := t.job(ctx, s)
	if err != nil || j == nil || !j.Status.ended() || t.to == "" {
		return err
	}
	m, err := t.find(ctx, s.Server)
	if errors.Is(err, control.ErrCannot) {
		return nil // Verify says so
	}
	if err != nil || !m.looked(s.ID).IsZero() {
		return err
	}
	err = t.patch(ctx, units, &m.ObjectMeta, annotations(map[string]any{lookedAt: s.ID + " " + t.now().UTC().Format(time.RFC3339)}))
	if conflicts(err) { // it has changed, and so is read; the mark follows
		return nil
	}
	return err
}

// looked is when Rufio was made to read a Machine for an action.
func (m *Machine) looked(action string) time.Time {
	of, at, _ := strings.Cut(m.Annotations[lookedAt], " ")
	t, err := time.Parse(time.RFC3339, at)
	if of != action || err != nil {
		return time.Time{}
	}
	return t
}

func (m *Machine) power() string { return cmp.Or(m.Status.Power, "unknown") }

// readAt is when Rufio read a Machine otherwise than before, by the API's clock.
func (m *Machine) readAt() (at time.Time) {
	for i := range m.ManagedFields {
		if f := &m.ManagedFields[i]; f.Subresource == "status" && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// Verify implements control.Remediator. That a job has completed is not enough: Rufio must have read the power since, or have
// been made to.
func (t turn) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	m, err := t.find(ctx, s.Server)
	if err != nil && !errors.Is(err, control.ErrCannot) {
		return control.Pending, schemas.Sentence{}, err
	}
	j, jerr := t.job(ctx, s)
	if jerr != nil {
		return control.Pending, schemas.Sentence{}, jerr
	}
	args := messages.Args{"server": s.Server, "job": workflowName(s), "power": "unknown"}
	switch {
	case j == nil && err != nil:
		return control.Pending, schemas.Sentence{}, err
	case j == nil && t.now().Sub(s.Since) > arrives:
		return control.Unseen, messages.New(messages.RufioGone, args), nil
	case j == nil:
		return control.Pending, messages.New(messages.RufioNone, args), nil
	case !j.Status.ended():
		return control.Pending, messages.New(messages.RufioAt, args), nil
	}
	words, untouched, err2 := t.failure(ctx, j)
	if err2 != nil {
		return control.Pending, schemas.Sentence{}, err2
	}
	_, failed := j.Status.has(jobFailed)
	args["words"] = words
	if failed && untouched {
		return control.Failed, messages.New(messages.RufioFailed, args), nil
	}
	if err != nil { // what would read it is gone
		return control.Unseen, messages.New(messages.RufioUnread, args), nil
	}
	args["power"] = m.power()
	looked := m.looked(s.ID)
	fresh := m.readAt().After(j.CreationTimestamp.Time) || !looked.IsZero() && t.now().Sub(looked) >= settles
	switch {
	case failed && (t.to == "" || len(j.Spec.Tasks) > 1), failed && fresh && m.power() != t.to:
		return control.Unseen, messages.New(messages.RufioFailed, args), nil
	case t.to == "":
		return control.Unseen, messages.New(messages.RufioBoot, args), nil
	case !fresh:
		return control.Pending, messages.New(messages.RufioUnread, args), nil
	case m.power() == t.to:
		return control.Verified, messages.New(messages.RufioDone, args), nil
	}
	return control.Pending, messages.New(messages.RufioDone, args), nil
}

// failure is what Rufio says of a job that failed; untouched is that the board controller was never reached.
func (r *rufio) failure(ctx context.Context, j *Job) (words string, untouched bool, err error) {
	said, failed := j.Status.has(jobFailed)
	if !failed {
		return "", false, nil
	}
	for n := range j.Spec.Tasks {
		t := &BMCTask{}
		found, err := r.get(ctx, tasks, fmt.Sprintf("%s-task-%d", j.Name, n), t)
		if err != nil {
			return "", false, err
		}
		if why, failed := t.Status.has(jobFailed); found && failed {
			return short(why), n == 0 && strings.HasPrefix(why, "Failed to connect to BMC"), nil
		}
	}
	return short(said), false, nil
}

// sweep takes the jobs of ours away that have ended and that no step looks at any more; Kubernetes takes their tasks away.
func (k *cluster) sweep(ctx context.Context, now time.Time) error {
	all, err := k.allJobs(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range all {
		j := &all[i]
		if !j.ours() || !j.Status.ended() || now.Sub(j.CreationTimestamp.Time) <= keeps {
			continue
		}
		err := k.remove(ctx, jobs, &j.ObjectMeta)
		if err == nil {
			k.metrics.jobs.WithLabelValues(j.Annotations[ofKind], "taken_away").Inc()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
