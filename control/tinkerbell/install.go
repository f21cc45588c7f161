package tinkerbell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/kube"
	"auspex/schemas"
)

// The kinds of rungs.
const (
	kindInstall   = "install"   // with the template that the step names
	kindReinstall = "reinstall" // with the one that is pinned to the server
	kindWipe      = "wipe"      // with the template that the step names, whose workflow tells what it found of the drives
)

// Of the start from the network, as a workflow of ours has it: nothing is done twice.
const (
	phaseOpen  = "open"  // the hardware may start from the network
	phaseCycle = "cycle" // the power cycle is about to be sent, or was
)

const (
	// arrives is how long after its step was decided a workflow may still come to be: its answer may
	// have been lost.
	arrives = 2 * time.Minute
	// pokes is how long a workflow whose time is over is left to Tinkerbell before it is made to look.
	pokes = 15 * time.Second
	// lingers is how long after its deadline a workflow is left to the step that follows it.
	lingers = time.Minute
)

// installer is the remediator of install, reinstall and wipe.
type installer struct {
	*cluster
	units    *cluster // what of Rufio's is cleaned up
	log      *slog.Logger
	now      func() time.Time
	installs control.Installs
	secrets  control.Secrets
	wipes    control.Wipes

	boot, cycle control.Remediator // nil where there is none

	flows, machines *store

	foreign control.Foreign // nil where nobody wants to know what others have
	rereads time.Duration
	arrives time.Duration
	// What was found of hardware, by name, and told last: of [installer.Follow] alone.
	held  map[string]held
	hosts map[string]host
	deaf  bool
	said  []schemas.Foreign

	mu    sync.Mutex
	again map[string]time.Time // when the boot device of a step is set again, where it does not read so
	away  error                // why the API is not followed
	since time.Time            // that
}

func newInstaller(cfg Config, s control.Settings) *installer {
	m := newMetrics(s.Metrics)
	return &installer{
		cluster: &cluster{cfg: cfg, metrics: m}, units: &cluster{cfg: cfg, group: bmcGroup, metrics: m}, log: s.Log, now: s.Now, installs: s.Installs, secrets: s.Secrets, wipes: s.Wipes,
		flows: newStore(), machines: newStore(), again: map[string]time.Time{}, rereads: rereads, arrives: arrives, foreign: s.Foreign, hosts: map[string]host{},
	}
}

// Through implements [control.Compound]: a board controller is spoken to by its own driver alone.
func (i *installer) Through(others map[string]control.Remediator) {
	if i.cfg.Boot == bootBMC {
		i.boot, i.cycle = others["set_boot"], others["power_cycle"]
	}
}

// Lasts implements [control.Lasting]: it is some requests.
func (i *installer) Lasts() time.Duration { return i.arrives / 2 }

// workflowName is that of a step: the same one again is the same workflow.
func workflowName(s control.Step) string { return "auspex-" + label(s.ID) }

// part is a step of another driver within a step.
func part(s control.Step, kind string, with map[string]string) control.Step {
	s.ID, s.Kind, s.With = s.ID+"/"+kind, kind, with
	return s
}

func toBoot(s control.Step) control.Step {
	return part(s, "set_boot", map[string]string{"target": "pxe"})
}

// startable is the error of a server that nobody can start from the network.
func (i *installer) startable(ctx context.Context, s control.Step) error {
	if i.cfg.Boot == bootNone {
		return nil
	}
	if i.boot == nil || i.cycle == nil {
		return fmt.Errorf("%w: nobody here can start %s from the network: control.bmc or Rufio does set_boot and power_cycle, or control.tinkerbell.boot is none", control.ErrCannot, s.Server)
	}
	if _, err := i.boot.Plan(ctx, toBoot(s)); err != nil {
		return err
	}
	_, err := i.cycle.Plan(ctx, part(s, "power_cycle", nil))
	return err
}

// rival is the error of a live workflow on a server that is not that of the step.
func rival(all []Workflow, r *schemas.HardwareRecord, hardware, but string) error {
	for k := range all {
		w := &all[k]
		if w.Name == but || w.ended() || !w.touches(hardware, macs(r)) {
			continue
		}
		by := owner(&w.ObjectMeta)
		if w.ours() {
			by = "Auspex (" + w.Annotations[ofAction] + ")"
		}
		return fmt.Errorf("%w: workflow %s/%s, which belongs to %s, is %s on %s", control.ErrCannot, w.Namespace, w.Name, by, w.state(), r.Name)
	}
	return nil
}

// free is the error of a server on which no workflow can be begun, with the hardware that is there.
func (i *installer) free(ctx context.Context, s control.Step, r *schemas.HardwareRecord) (h *Hardware, err error) {
	if h, err = i.ofServer(ctx, r); err != nil {
		return nil, err
	}
	all, err := i.allWorkflows(ctx)
	if err != nil {
		return nil, err
	}
	name := label(r.Name)
	if h != nil {
		name = h.Name
	}
	return h, rival(all, r, name, workflowName(s))
}

// Plan implements control.Remediator.
func (i *installer) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	o, err := i.order(ctx, s, false)
	if err != nil {
		return schemas.Sentence{}, err
	}
	if _, err := i.free(ctx, s, &o.record); err != nil {
		return schemas.Sentence{}, err
	}
	if err := i.startable(ctx, s); err != nil {
		return schemas.Sentence{}, err
	}
	names := make([]string, len(o.steps))
	for k := range o.steps {
		names[k] = o.steps[k].Name
	}
	id := messages.WouldInstall
	switch {
	case s.Kind == kindWipe:
		id = messages.WouldWipe
	case i.cfg.Boot == bootNone:
		id = messages.WouldInstallBare
	}
	return messages.New(id, messages.Args{"server": s.Server, "template": o.pinned(), "n": len(names), "steps": strings.Join(names, ", ")}), nil
}

// Apply implements control.Remediator. The workflow comes last of what it makes, and is what counts:
// without it all the rest does nothing.
func (i *installer) Apply(ctx context.Context, s control.Step) error {
	o, err := i.order(ctx, s, true)
	if err != nil {
		return rejected(discreet(err, o.secrets))
	}
	h, err := i.free(ctx, s, &o.record)
	if err != nil {
		return rejected(err)
	}
	if err := i.startable(ctx, s); err != nil {
		return rejected(err)
	}
	where, err := i.putHardware(ctx, &o.record, h)
	if err != nil {
		return rejected(err) // of hardware alone nothing follows
	}
	if err := i.putTemplate(ctx, &o, s); err != nil {
		said := discreet(err, o.secrets)
		if errors.Is(err, control.ErrCannot) || kube.Refused(err) || errors.Is(err, syscall.ECONNREFUSED) {
			return rejected(said)
		}
		return said // it may have come to be, with its secrets: who finds no workflow takes it away
	}
	w := &Workflow{
		TypeMeta: metav1.TypeMeta{APIVersion: group.String(), Kind: "Workflow"},
		ObjectMeta: metav1.ObjectMeta{
			Name: workflowName(s), Namespace: i.cfg.Namespace, Labels: map[string]string{managedBy: manager, serverID: o.record.ID},
			Annotations: map[string]string{
				ofAction: s.ID, forServer: s.Server, ofTemplate: o.pinned(), deadlineAt: i.now().Add(i.cfg.Deadline).UTC().Format(time.RFC3339),
			},
		},
		Spec: WorkflowSpec{TemplateRef: o.name(), HardwareRef: where, HardwareMap: map[string]string{"device_1": bootMAC(&o.record)}},
	}
	_, err = i.create(ctx, workflows, w.Name, w) // one that exists was sent before
	if kube.Refused(err) {
		return errors.Join(rejected(err), i.tidy(ctx, w))
	}
	return err
}

// putTemplate makes the Template of an order where there is none yet.
func (i *installer) putTemplate(ctx context.Context, o *order, s control.Step) error {
	t := &Template{
		TypeMeta: metav1.TypeMeta{APIVersion: group.String(), Kind: "Template"},
		ObjectMeta: metav1.ObjectMeta{
			Name: o.name(), Namespace: i.cfg.Namespace, Labels: map[string]string{managedBy: manager, serverID: o.record.ID},
			Annotations: map[string]string{forServer: s.Server, ofAction: s.ID},
		},
		Spec: TemplateSpec{Data: &o.text},
	}
	made, err := i.create(ctx, templates, t.Name, t)
	if err != nil || made {
		return err
	}
	is := &Template{}
	if found, err := i.get(ctx, templates, t.Name, is); err != nil || !found {
		return errors.Join(err, fmt.Errorf("template %s/%s is made and taken away by someone else", i.cfg.Namespace, t.Name))
	}
	if is.Labels[managedBy] != manager || is.Spec.Data == nil || *is.Spec.Data != o.text {
		return fmt.Errorf("%w: template %s/%s, which belongs to %s, has another text", control.ErrCannot, i.cfg.Namespace, t.Name, owner(&is.ObjectMeta))
	}
	if is.Annotations[ofAction] == s.ID {
		return nil
	}
	return i.patch(ctx, templates, &is.ObjectMeta, annotations(map[string]any{ofAction: s.ID})) // so that an earlier step does not take it away
}

// deadline is until when a workflow of ours may take.
func (i *installer) deadline(w *Workflow) time.Time {
	if t, err := time.Parse(time.RFC3339, w.Annotations[deadlineAt]); err == nil {
		return t
	}
	return w.CreationTimestamp.Add(i.cfg.Deadline)
}

// find reads the workflow of a step: what the watch has seen of it, or where it has seen none, what
// there is.
func (i *installer) find(ctx context.Context, s control.Step) (*Workflow, error) {
	if w := i.flows.workflow(i.cfg.Namespace, workflowName(s)); w != nil {
		return w, nil
	}
	return i.workflow(ctx, workflowName(s))
}

// Pursue implements control.Pursuer: it has the server start from the network, each part of it once,
// and has Tinkerbell look at a workflow whose time is over.
func (i *installer) Pursue(ctx context.Context, s control.Step) error {
	w, err := i.find(ctx, s)
	if err != nil {
		return err
	}
	if w == nil {
		return i.gone(ctx, s)
	}
	if !w.ours() || w.Annotations[ofAction] != s.ID {
		return fmt.Errorf("%w: workflow %s/%s belongs to %s", control.ErrRejected, i.cfg.Namespace, w.Name, owner(&w.ObjectMeta))
	}
	if w.ended() || i.now().After(i.deadline(w)) {
		return nil
	}
	if i.starts(w) {
		// What is done once follows from what there is, not from what was seen of it.
		if w, err = i.workflow(ctx, w.Name); err != nil || w == nil || w.ended() || !i.starts(w) {
			return err
		}
		if err = i.start(ctx, s, w); errors.Is(err, control.ErrCannot) || errors.Is(err, control.ErrRejected) {
			return errors.Join(rejected(err), i.end(ctx, w))
		}
		return err
	}
	if due := w.due(); !due.IsZero() && i.now().After(due.Add(pokes)) {
		if last, err := time.Parse(time.RFC3339, w.Annotations[pokedAt]); err != nil || i.now().After(last.Add(pokes)) {
			err := i.patch(ctx, workflows, &w.ObjectMeta, annotations(map[string]any{pokedAt: i.now().UTC().Format(time.RFC3339)}))
			if err != nil && !conflicts(err) { // it has changed, and so was looked at
				return err
			}
		}
	}
	return nil
}

// starts reports whether a part of the start from the network is left to do.
func (i *installer) starts(w *Workflow) bool {
	phase := w.Annotations[bootPhase]
	return phase == "" || phase == phaseOpen && i.cfg.Boot == bootBMC
}

// gone says what it means that a step has no workflow.
func (i *installer) gone(ctx context.Context, s control.Step) error {
	r, err := i.record(ctx, s)
	if err != nil {
		return nil //nolint:nilerr // Verify says so
	}
	h, err := i.ofServer(ctx, &r)
	if err != nil && !errors.Is(err, control.ErrCannot) {
		return err
	}
	was := h != nil && h.Annotations[netbootFor] == workflowName(s)
	if was {
		if err := i.shut(ctx, h.Name, workflowName(s)); err != nil {
			return err
		}
	}
	switch {
	case was:
		return fmt.Errorf("%w: workflow %s/%s was deleted before it had ended", control.ErrRejected, i.cfg.Namespace, workflowName(s))
	case i.now().Sub(s.Since) > i.arrives:
		if o, err := i.order(ctx, s, true); err == nil { // its template may have come to be
			w := &Workflow{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ofAction: s.ID}}, Spec: WorkflowSpec{TemplateRef: o.name()}}
			if err := i.tidy(ctx, w); err != nil {
				return err
			}
		}
		return fmt.Errorf("%w: there is no workflow %s/%s: it never came to be, or was deleted", control.ErrRejected, i.cfg.Namespace, workflowName(s))
	}
	return nil
}

func (i *installer) record(ctx context.Context, s control.Step) (schemas.HardwareRecord, error) {
	if i.installs == nil {
		return schemas.HardwareRecord{}, fmt.Errorf("%w: no store of templates is here", control.ErrCannot)
	}
	return i.installs.Hardware(ctx, s.Server)
}

// start does the next part of the start from the network. What it is about to do is written down
// before where it may not be done twice.
func (i *installer) start(ctx context.Context, s control.Step, w *Workflow) error {
	if w.Annotations[bootPhase] == "" {
		r, err := i.record(ctx, s)
		if err != nil {
			return err
		}
		h, err := i.free(ctx, s, &r) // somebody may have begun another at the same moment
		if err != nil {
			return err
		}
		if h == nil {
			return fmt.Errorf("%w: hardware %s/%s is gone", control.ErrRejected, i.cfg.Namespace, w.Spec.HardwareRef)
		}
		if !h.open() || h.Annotations[netbootFor] != w.Name {
			if err := i.allow(ctx, h, w.Name); err != nil {
				return sent(passing(err))
			}
		}
		return sent(passing(i.patch(ctx, workflows, &w.ObjectMeta, annotations(map[string]any{bootPhase: phaseOpen}))))
	}
	if w.begun() { // it was there already
		return sent(passing(i.patch(ctx, workflows, &w.ObjectMeta, annotations(map[string]any{bootPhase: phaseCycle}))))
	}
	if i.boot == nil || i.cycle == nil {
		return i.startable(ctx, s)
	}
	step := toBoot(s)
	step.Since = i.now()
	v, saw, err := i.boot.Verify(ctx, step)
	unread := v == control.Unseen && saw.ID == messages.RufioBoot // the worker that comes shows whether it was set
	switch {
	case err != nil:
		return err
	case v == control.Failed, v == control.Unseen && !unread:
		return fmt.Errorf("%w: %s is not set to start from the network: %s", control.ErrRejected, s.Server, messages.Text(saw))
	}
	if v != control.Verified && !unread { // it is read back when this is called again
		i.mu.Lock()
		wait := i.now().Before(i.again[s.ID])
		if !wait {
			i.again[s.ID] = i.now().Add(pokes)
		}
		i.mu.Unlock()
		if wait {
			return nil
		}
		return i.boot.Apply(ctx, step)
	}
	i.mu.Lock()
	delete(i.again, s.ID)
	i.mu.Unlock()
	if err := i.patch(ctx, workflows, &w.ObjectMeta, annotations(map[string]any{bootPhase: phaseCycle})); err != nil {
		return sent(passing(err))
	}
	step = part(s, "power_cycle", nil)
	step.Since = i.now()
	err = i.cycle.Apply(ctx, step)
	if err != nil && !errors.Is(err, control.ErrCannot) && !errors.Is(err, control.ErrRejected) {
		i.log.Warn("the answer to a power cycle was lost; whether it took place, its worker shows", "server", s.Server, "action", s.ID, "error", err)
		return nil
	}
	return err
}

// passing takes from a conflict that it is final: what had changed is read again.
func passing(err error) error {
	if conflicts(err) {
		return errors.New(err.Error())
	}
	return err
}

// Verify implements control.Remediator.
func (i *installer) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	w, err := i.find(ctx, s)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	if w == nil {
		_, err := i.record(ctx, s)
		return control.Pending, messages.New(messages.InstallNone, messages.Args{"server": s.Server}), err
	}
	said := i.says(ctx, s, w)
	switch {
	case w.ended():
		if err := i.finish(ctx, w); err != nil {
			return control.Pending, said, err
		}
		if s.Kind == kindWipe {
			return i.proven(ctx, s, w, said)
		}
		if w.state() == stateSuccess {
			return control.Verified, said, nil
		}
		return control.Failed, said, nil
	case i.now().After(i.deadline(w)):
		if err := i.end(ctx, w); err != nil {
			return control.Pending, said, err
		}
		args := messages.Age(i.cfg.Deadline)
		args["what"], args["saw"] = subject(s), said
		return control.Failed, messages.New(messages.InstallLate, args), nil
	}
	if why, since := i.unseen(); why != nil {
		said = messages.New(messages.InstallAway, messages.Args{"time": since.UTC().Format(time.TimeOnly), "error": why.Error(), "saw": said})
	}
	return control.Pending, said, nil
}

// subject is what a workflow is of a server.
func subject(s control.Step) schemas.Sentence {
	id := messages.OfInstall
	if s.Kind == kindWipe {
		id = messages.OfWipe
	}
	return messages.New(id, messages.Args{"server": s.Server})
}

// says is how far a workflow is.
func (i *installer) says(ctx context.Context, s control.Step, w *Workflow) schemas.Sentence {
	a, n, of := w.at()
	args := messages.Args{"server": s.Server, "what": subject(s), "stage": w.state(), "n": n, "of": of}
	if w.state() == stateSuccess {
		return messages.New(messages.InstallDone, args)
	}
	text := ""
	if a != nil {
		args["action"], args["phase"], text = a.Name, a.state(), a.Message
	} else {
		for _, c := range w.Status.Conditions {
			if c.Status == "False" && c.Message != "" {
				text = c.Message
			}
		}
	}
	args["words"] = i.words(ctx, s, text)
	switch {
	case w.ended():
		for _, name := range []string{"action", "words"} {
			if args[name] == nil || args[name] == "" {
				args[name] = "-"
			}
		}
		return messages.New(messages.InstallFailed, args)
	case a == nil && args["words"] != "":
		return messages.New(messages.InstallHeld, args)
	case a == nil:
		return messages.New(messages.InstallWaits, args)
	case args["words"] != "":
		return messages.New(messages.InstallSays, args)
	}
	return messages.New(messages.InstallAt, args)
}

// Stages implements [control.Staged]: the actions of the workflow.
func (i *installer) Stages(ctx context.Context, s control.Step) (out []schemas.Stage, err error) {
	w, err := i.find(ctx, s)
	if err != nil || w == nil {
		return nil, err
	}
	for _, t := range w.Status.Tasks {
		for k := range t.Actions {
			a := &t.Actions[k]
			stage := schemas.Stage{Name: a.Name, State: strings.ToLower(cmp.Or(a.state(), "PENDING")), Message: i.words(ctx, s, a.Message)}
			if began := a.began(); !began.IsZero() {
				stage.Began = began.UTC()
			}
			out = append(out, stage)
		}
	}
	return out, nil
}

// End implements [control.Ender].
func (i *installer) End(ctx context.Context, s control.Step) error {
	w, err := i.workflow(ctx, workflowName(s))
	switch {
	case err != nil:
		return err
	case w == nil:
		err := i.gone(ctx, s)
		if errors.Is(err, control.ErrRejected) { // which says that it is
			return nil
		}
		return errors.Join(err, fmt.Errorf("workflow %s/%s may still come to be", i.cfg.Namespace, workflowName(s)))
	case !w.ours() || w.Annotations[ofAction] != s.ID:
		return nil
	case w.ended():
		return i.finish(ctx, w)
	}
	return i.end(ctx, w)
}

// end takes a workflow of ours away that has not ended, and closes what was opened for it.
func (i *installer) end(ctx context.Context, w *Workflow) error {
	err := errors.Join(i.shut(ctx, w.Spec.HardwareRef, w.Name), i.remove(ctx, workflows, &w.ObjectMeta), i.tidy(ctx, w))
	if err == nil && !w.ended() && !w.CreationTimestamp.IsZero() {
		i.metrics.ended(w, "taken_away", i.now())
	}
	return err
}

// tidy takes the Template of a workflow away: it holds secrets, and is filled in for one server.
func (i *installer) tidy(ctx context.Context, w *Workflow) error {
	t := &Template{}
	found, err := i.get(ctx, templates, w.Spec.TemplateRef, t)
	if err != nil || !found || t.Labels[managedBy] != manager || t.Annotations[ofAction] != w.Annotations[ofAction] {
		return err
	}
	return i.remove(ctx, templates, &t.ObjectMeta)
}

// finish closes what was opened for a workflow of ours that has ended, once.
func (i *installer) finish(ctx context.Context, w *Workflow) error {
	if w.Annotations[closedAt] != "" {
		return nil
	}
	if err := errors.Join(i.shut(ctx, w.Spec.HardwareRef, w.Name), i.tidy(ctx, w)); err != nil {
		return err
	}
	err := i.patch(ctx, workflows, &w.ObjectMeta, annotations(map[string]any{closedAt: i.now().UTC().Format(time.RFC3339)}))
	if conflicts(err) { // it has changed since it was seen, and what is told of it is told by the watch
		return nil
	}
	if err == nil {
		i.metrics.ended(w, strings.ToLower(w.state()), i.now())
	}
	return err
}
