package kubernetes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"auspex/control"
	scheduling "auspex/control/drain"
)

// What slurm-operator reads and writes (SlinkyProject/slurm-operator v1.1, api/v1beta1/well_known.go and
// "NodeSet Controller"): a pod of a NodeSet is a node of Slurm. It drains that node when the pod's own node is cordoned,
// with the reason in this annotation of it, gives it back when that is uncordoned, and shows Slurm's states as
// conditions of the pod.
const (
	slurmGroup     = "slinky.slurm.net"
	slurmReasonKey = "nodeset.slinky.slurm.net/node-cordon-reason"
	slurmSourceKey = "nodeset.slinky.slurm.net/pod-cordon-source" // "slurm": somebody drained it there
	slurmState     = "SlurmNodeState"
)

// isSlurm reports whether a pod is a node of Slurm.
func isSlurm(p *corev1.Pod) bool {
	o := metav1.GetControllerOf(p)
	if o == nil || o.Kind != "NodeSet" {
		return false
	}
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	return err == nil && gv.Group == slurmGroup
}

// slurmStates are the states that Slurm has of a pod.
func slurmStates(p *corev1.Pod) (out []string) {
	for _, c := range p.Status.Conditions {
		if name, ok := strings.CutPrefix(string(c.Type), slurmState); ok && c.Status == corev1.ConditionTrue {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// slurmNode is a pod of a NodeSet as a drain sees it; known is false where the operator says nothing of it.
func slurmNode(p *corev1.Pod) (n scheduling.Node, known bool) {
	states := slurmStates(p)
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(s string) bool { return slices.Contains(states, s) })
	}
	return scheduling.Node{
		Cordoned: has("Drain") && !has("Undrain"), Busy: has("Allocated", "Mixed", "Completing"), StateText: strings.Join(states, "+"),
	}, len(states) > 0
}

// undrained says why a pod of a NodeSet is in the way; empty where its node in Slurm is drained.
func undrained(p *corev1.Pod) string {
	n, known := slurmNode(p)
	switch {
	case !known:
		return "slurm-operator says nothing of its state in Slurm"
	case n.Drained():
		return ""
	}
	return "Slurm has it as " + n.StateText
}

// busy reports whether a pod counts as work: one of a NodeSet is work where Slurm runs jobs there, or may.
func busy(p *corev1.Pod) bool {
	if !isSlurm(p) {
		return true
	}
	n, known := slurmNode(p)
	return n.Busy || !known
}

// tellSlurm leaves the reason of a cordon where slurm-operator looks for it, unless somebody else has one there.
func tellSlurm(n *corev1.Node, s control.Step) {
	if was, ok := n.Annotations[slurmReasonKey]; !ok || strings.HasPrefix(was, scheduling.Prefix) {
		n.Annotations[slurmReasonKey] = scheduling.Prefix + " " + s.ID + " " + s.Reason
	}
}

// untellSlurm takes our reason away.
func untellSlurm(n *corev1.Node) {
	if strings.HasPrefix(n.Annotations[slurmReasonKey], scheduling.Prefix) {
		delete(n.Annotations, slurmReasonKey)
	}
}

// stillDrained names a pod whose node in Slurm slurm-operator has not given back; one that somebody drained in Slurm
// is theirs.
func stillDrained(pods []corev1.Pod) string {
	for i := range pods {
		p := &pods[i]
		if n, known := slurmNode(p); isSlurm(p) && known && n.Cordoned && p.Annotations[slurmSourceKey] != "slurm" {
			return describe(p) + ": Slurm has it as " + n.StateText
		}
	}
	return ""
}
