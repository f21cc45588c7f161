package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/kube"
	"auspex/schemas"
)

// markKey is the annotation that says that a node is out of the pool by us.
const markKey = "auspex.io/cordon"

// mark is its value.
type mark struct {
	Action string    `json:"action"` // id of the one that is under way or was last
	Since  time.Time `json:"since"`  // when that one came
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	// Found says that the node was unschedulable already, by someone else: it stays so after us.
	Found bool `json:"found_cordoned,omitempty"`
}

func markOf(n *corev1.Node) (m mark, ok bool) {
	v, ok := n.Annotations[markKey]
	if ok && json.Unmarshal([]byte(v), &m) != nil {
		return mark{By: "someone who wrote " + markKey}, false
	}
	return m, ok
}

// isOurs reports whether a taint is the one that we set.
func (k *cluster) isOurs(t corev1.Taint) bool {
	return t.Key == k.cfg.Taint && t.Effect == corev1.TaintEffectNoSchedule
}

// takeOut cordons the node of a step.
func (k *cluster) takeOut(ctx context.Context, s control.Step) error {
	n, err := k.node(ctx, s.Server)
	if err != nil {
		return rejected(err)
	}
	pods, err := k.pods(ctx, n.Name)
	if err != nil {
		return rejected(err)
	}
	return k.change(ctx, s.Server, k.hold(s, slices.ContainsFunc(pods, func(p corev1.Pod) bool { return isSlurm(&p) })))
}

// hold marks a node as taken out by a step, and tells slurm-operator why where that has a pod there. One that the step
// has marked before stays as it is: who made it schedulable meanwhile has decided so.
func (k *cluster) hold(s control.Step, slurm bool) func(*corev1.Node) (bool, error) {
	return func(n *corev1.Node) (bool, error) {
		m, ours := markOf(n)
		tainted := slices.ContainsFunc(n.Spec.Taints, k.isOurs)
		if ours && m.Action == s.ID {
			if !n.Spec.Unschedulable {
				return false, uncordoned(n)
			}
			if tainted {
				return false, nil
			}
		} else {
			m = mark{Found: n.Spec.Unschedulable && (!ours || m.Found)}
		}
		m.Action, m.By, m.Reason, m.Since = s.ID, "auspex", s.Reason, k.now().UTC()
		b, err := json.Marshal(m)
		if err != nil {
			return false, err
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[markKey], n.Spec.Unschedulable = string(b), true
		if slurm {
			tellSlurm(n, s)
		}
		if !tainted {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: k.cfg.Taint, Effect: corev1.TaintEffectNoSchedule})
		}
		return true, nil
	}
}

// release takes our mark and taint from a node, and makes it schedulable unless it was not before us.
func (k *cluster) release(n *corev1.Node) {
	m, _ := markOf(n)
	n.Spec.Unschedulable = n.Spec.Unschedulable && m.Found
	delete(n.Annotations, markKey)
	untellSlurm(n)
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, k.isOurs)
}

func uncordoned(n *corev1.Node) error {
	return fmt.Errorf("%w: someone has made node %s schedulable since Auspex cordoned it", control.ErrRejected, n.Name)
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// words says how a node is, as kubectl does, and by whom.
func words(n *corev1.Node) string {
	out := "node " + n.Name + " NotReady"
	if ready(n) {
		out = "node " + n.Name + " Ready"
	}
	m, ours := markOf(n)
	switch {
	case n.Spec.Unschedulable && ours && m.Found:
		out += ", cordoned by someone else before Auspex, and by Auspex (" + m.Action + ")"
	case n.Spec.Unschedulable && ours:
		out += ", cordoned by Auspex (" + m.Action + ")"
	case n.Spec.Unschedulable:
		out += ", cordoned by someone else"
	case ours:
		out += ", marked by Auspex (" + m.Action + ") and made schedulable by someone else"
	}
	return out
}

func says(states string) schemas.Sentence {
	return messages.New(messages.SchedulerHas, messages.Args{"states": states})
}

// held reports whether a node is out of the pool by a step, or by any of ours where none is named.
func (k *cluster) held(n *corev1.Node, s control.Step) (ours, out bool) {
	m, ok := markOf(n)
	ours = ok && (s.ID == "" || m.Action == s.ID)
	return ours, ours && n.Spec.Unschedulable && slices.ContainsFunc(n.Spec.Taints, k.isOurs)
}

// cordon is the remediator of the rung cordon.
type cordon struct{ *cluster }

// Plan implements control.Remediator.
func (c cordon) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	return c.plan(ctx, s)
}

func (k *cluster) plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	n, err := k.node(ctx, s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	load, err := k.load(ctx, n)
	if err != nil {
		return schemas.Sentence{}, err
	}
	return messages.New(messages.WouldDrain, messages.Args{"server": s.Server, "states": words(n) + load.words()}), nil
}

// Apply implements control.Remediator.
func (c cordon) Apply(ctx context.Context, s control.Step) error {
	return c.takeOut(ctx, s)
}

// Verify implements control.Remediator.
func (c cordon) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	n, err := c.node(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	ours, out := c.held(n, s)
	switch {
	case out:
		return control.Verified, says(words(n)), nil
	case ours && !n.Spec.Unschedulable:
		return control.Failed, says(words(n)), nil
	}
	return control.Pending, says(words(n)), nil
}

// drain is the remediator of the rung drain.
type drain struct{ *cluster }

// Plan implements control.Remediator.
func (d drain) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	return d.plan(ctx, s)
}

// Apply implements control.Remediator. It cordons; what runs is evicted by Pursue.
func (d drain) Apply(ctx context.Context, s control.Step) error {
	return d.takeOut(ctx, s)
}

// Pursue implements control.Pursuer: it evicts, from a node that carries the mark of this
// very step, what may be evicted now. Where someone has made the node schedulable, our mark
// goes too.
func (d drain) Pursue(ctx context.Context, s control.Step) error {
	n, err := d.node(ctx, s.Server)
	if err != nil {
		return err
	}
	if m, ok := markOf(n); !ok || s.ID == "" || m.Action != s.ID {
		return nil // it has not come there
	}
	if !n.Spec.Unschedulable {
		err := d.change(ctx, s.Server, func(n *corev1.Node) (bool, error) {
			if m, ok := markOf(n); !ok || m.Action != s.ID || n.Spec.Unschedulable {
				return false, nil
			}
			d.release(n)
			return true, nil
		})
		return errors.Join(uncordoned(n), err)
	}
	load, err := d.load(ctx, n)
	if err != nil {
		return err
	}
	now := d.now()
	for i := range load.evictable {
		p := &load.evictable[i]
		d.mu.Lock()
		wait := now.Before(d.again[string(p.UID)])
		d.mu.Unlock()
		if wait {
			continue
		}
		after, err := d.evict(ctx, p)
		if err != nil {
			if kube.Refused(err) && !apierrors.IsUnauthorized(err) { // a token may be renewed any time, a right is given by people
				return rejected(err)
			}
			return err
		}
		d.mu.Lock()
		if after > 0 {
			d.again[string(p.UID)] = now.Add(after)
		} else {
			delete(d.again, string(p.UID))
		}
		d.mu.Unlock()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid, at := range d.again {
		if now.Sub(at) > time.Hour {
			delete(d.again, uid)
		}
	}
	return nil
}

// Verify implements control.Remediator.
func (d drain) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	n, err := d.node(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	ours, out := d.held(n, s)
	switch {
	case ours && !n.Spec.Unschedulable:
		return control.Failed, says(words(n)), nil
	case !out:
		return control.Pending, says(words(n)), nil
	}
	load, err := d.load(ctx, n)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	if len(load.counts) == 0 {
		return control.Verified, says(words(n) + "; no pod is left that counts"), nil
	}
	inTheWay, err := d.inTheWay(ctx, load)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	observed := says(words(n) + "; still there: " + inTheWay)
	if m, _ := markOf(n); d.now().Sub(m.Since) > d.cfg.EvictWithin {
		observed = says(words(n) + "; not gone within " + d.cfg.EvictWithin.String() + ": " + inTheWay)
		return control.Failed, observed, nil
	}
	return control.Pending, observed, nil
}

// Jobs implements control.Scheduler.
func (d drain) Jobs(ctx context.Context, server string) ([]string, error) {
	n, err := d.node(ctx, server)
	if err != nil {
		return nil, err
	}
	load, err := d.load(ctx, n)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range load.counts {
		if p := &load.counts[i].Pod; busy(p) {
			out = append(out, describe(p))
		}
	}
	return out, nil
}

// uncordon is the remediator of the rung uncordon.
type uncordon struct{ *cluster }

// Plan implements control.Remediator. What somebody else cordoned cannot be returned.
func (u uncordon) Plan(ctx context.Context, s control.Step) (schemas.Sentence, error) {
	if n, err := u.node(ctx, s.Server); errors.Is(err, control.ErrCannot) {
		return schemas.Sentence{}, err
	} else if err == nil {
		if _, ours := markOf(n); !ours && n.Spec.Unschedulable {
			return schemas.Sentence{}, fmt.Errorf("%w: node %s was cordoned by someone else", control.ErrCannot, n.Name)
		}
	}
	return messages.New(messages.WouldReturn, messages.Args{"server": s.Server}), nil
}

// Apply implements control.Remediator.
func (u uncordon) Apply(ctx context.Context, s control.Step) error {
	return u.change(ctx, s.Server, func(n *corev1.Node) (bool, error) {
		_, ours := markOf(n)
		switch {
		case ours:
			u.release(n)
			return true, nil
		case n.Spec.Unschedulable:
			return false, fmt.Errorf("%w: node %s was cordoned by someone else", control.ErrRejected, n.Name)
		}
		return false, nil
	})
}

// Verify implements control.Remediator. A node that was cordoned before us stays so, and our part is done.
func (u uncordon) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	n, err := u.node(ctx, s.Server)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	_, ours := markOf(n)
	if ours || !ready(n) || slices.ContainsFunc(n.Spec.Taints, u.isOurs) {
		return control.Pending, says(words(n)), nil
	}
	pods, err := u.pods(ctx, n.Name)
	if err != nil {
		return control.Pending, schemas.Sentence{}, err
	}
	if left := stillDrained(pods); left != "" && !n.Spec.Unschedulable {
		return control.Pending, says(words(n) + "; " + left), nil
	}
	return control.Verified, says(words(n)), nil
}

// load is what runs on a node.
type load struct {
	counts    []counted
	evictable []corev1.Pod
	gpus      int64
}

// counted is a pod that must leave before a node is drained.
type counted struct {
	corev1.Pod
	why string // it is not evicted, or is not gone; empty where it is evicted
}

const gpu = "nvidia.com/gpu"

// load reads and sorts the pods of a node.
func (k *cluster) load(ctx context.Context, n *corev1.Node) (l load, err error) {
	pods, err := k.pods(ctx, n.Name)
	if err != nil {
		return l, err
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	for i := range pods {
		p := &pods[i]
		if k.leaves(p) || isSlurm(p) && undrained(p) == "" {
			continue
		}
		why := k.keeps(p)
		l.counts = append(l.counts, counted{*p, why})
		l.gpus += gpus(p)
		if why == "" {
			l.evictable = append(l.evictable, *p)
		}
	}
	return l, nil
}

// leaves reports whether a pod does not count: it has finished, belongs to the node itself, or to a
// namespace that is left alone. The kubelet writes the annotation of mirror pods.
func (k *cluster) leaves(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	finished := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	owner := metav1.GetControllerOf(p)
	return mirror || finished || owner != nil && owner.Kind == "DaemonSet" || slices.Contains(k.cfg.LeaveNamespaces, p.Namespace)
}

// keeps says why a pod is not evicted.
func (k *cluster) keeps(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil { // which is when its grace period is over
		if late := k.now().Sub(p.DeletionTimestamp.Time); late > k.cfg.StuckAfter {
			why := "stuck terminating since " + p.DeletionTimestamp.UTC().Format(time.RFC3339)
			if len(p.Finalizers) > 0 {
				why += ", finalizers " + strings.Join(p.Finalizers, ", ")
			}
			return why
		}
		return "terminating"
	}
	if isSlurm(p) { // evicting it would end jobs of Slurm, which has to end them in its own way
		return undrained(p)
	}
	if metav1.GetControllerOf(p) == nil && !k.cfg.EvictBare {
		return "no controller starts it again, and evict_bare is off"
	}
	if !k.cfg.EvictEmptyDir && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) {
		return "its emptyDir would be lost, and evict_empty_dir is off"
	}
	return ""
}

func gpus(p *corev1.Pod) (n int64) {
	for i := range p.Spec.Containers {
		q := p.Spec.Containers[i].Resources.Requests[gpu]
		n += q.Value()
	}
	return n
}

// describe names a pod, whose it is and what it holds.
func describe(p *corev1.Pod) string {
	out := "pod " + p.Namespace + "/" + p.Name
	if o := metav1.GetControllerOf(p); o != nil {
		out += " of " + o.Kind + " " + o.Name
	}
	if n := gpus(p); n > 0 {
		out += fmt.Sprintf(" (%d GPUs)", n)
	}
	return out
}

// most bounds what a sentence names.
const most = 8

// words says what would end with a node.
func (l load) words() string {
	if len(l.counts) == 0 {
		return " without pods that count"
	}
	var spaces, names []string
	for i := range l.counts {
		c := &l.counts[i]
		spaces = append(spaces, c.Namespace)
		name := describe(&c.Pod)
		if c.why != "" {
			name += ": " + c.why
		}
		names = append(names, name)
	}
	slices.Sort(spaces)
	return fmt.Sprintf(" with %d pods of namespaces %s and %d GPUs: %s", len(l.counts), some(slices.Compact(spaces), ", "), l.gpus, some(names, "; "))
}

// inTheWay says of each pod why it is still there.
func (k *cluster) inTheWay(ctx context.Context, l load) (string, error) {
	known := map[string][]policyv1.PodDisruptionBudget{}
	var out []string
	for i := range l.counts {
		c := &l.counts[i]
		name := describe(&c.Pod)
		if c.why == "" {
			over, err := k.budgets(ctx, known, &c.Pod)
			if err != nil {
				return "", err
			}
			c.why = "is to be evicted"
			if len(over) > 0 {
				c.why = "waits for disruption budget " + strings.Join(over, " and ")
			}
		}
		out = append(out, name+": "+c.why)
	}
	return some(out, "; "), nil
}

func some(names []string, sep string) string {
	if len(names) > most {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, sep)
}
