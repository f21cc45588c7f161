package kubernetes

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The fields of objects that are read (Kubernetes API, core/v1 and meta/v1); all others are passed over.
type metadata struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Created         string            `json:"creationTimestamp"`
	Deleted         string            `json:"deletionTimestamp"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
	Owners          []ref             `json:"ownerReferences"`
}

// value is the first of some labels or annotations that is there.
func (m *metadata) value(keys []string) string {
	for _, k := range keys {
		if v := cmp.Or(m.Labels[k], m.Annotations[k]); v != "" {
			return v
		}
	}
	return ""
}

// ref names an object that owns another.
type ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// owner is who controls an object; where none does, the first owner.
func (m *metadata) owner() ref {
	if i := slices.IndexFunc(m.Owners, func(r ref) bool { return r.Controller }); i >= 0 {
		return m.Owners[i]
	}
	if len(m.Owners) > 0 {
		return m.Owners[0]
	}
	return ref{}
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Changed string `json:"lastTransitionTime"`
}

type pod struct {
	Meta metadata `json:"metadata"`
	Spec struct {
		Node       string      `json:"nodeName"`
		Containers []container `json:"containers"`
		Init       []container `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase      string            `json:"phase"`
		Reason     string            `json:"reason"`
		Start      string            `json:"startTime"`
		Conditions []condition       `json:"conditions"`
		Containers []containerStatus `json:"containerStatuses"`
		Init       []containerStatus `json:"initContainerStatuses"`
	} `json:"status"`
}

type container struct {
	Resources struct {
		Limits   map[string]string `json:"limits"`
		Requests map[string]string `json:"requests"`
	} `json:"resources"`
}

type containerStatus struct {
	Name     string `json:"name"`
	Restarts int64  `json:"restartCount"`
	State    state  `json:"state"`
	Last     state  `json:"lastState"`
	// Allocated are the devices that the container has (KEP 4680; only where the cluster has the feature ResourceHealthStatus).
	Allocated []struct {
		Name      string `json:"name"`
		Resources []struct {
			ID string `json:"resourceID"`
		} `json:"resources"`
	} `json:"allocatedResourcesStatus"`
}

type state struct {
	Terminated *struct {
		Code     int64  `json:"exitCode"`
		Signal   int64  `json:"signal"`
		Reason   string `json:"reason"`
		Finished string `json:"finishedAt"`
	} `json:"terminated"`
}

type node struct {
	Meta struct {
		metadata
		Managers []manager `json:"managedFields"`
	} `json:"metadata"`
	Spec struct {
		ProviderID    string  `json:"providerID"`
		Unschedulable bool    `json:"unschedulable"`
		Taints        []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// manager is who last wrote some fields, and when (meta/v1, ManagedFieldsEntry).
type manager struct {
	Name   string          `json:"manager"`
	Time   string          `json:"time"`
	Fields json.RawMessage `json:"fieldsV1"`
}

// stamp reads a time; zero where it is none.
func stamp(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Unix() <= 0 {
		return time.Time{}
	}
	return t.UTC()
}

// gpus counts the GPUs, or parts of them, that a pod asks for.
func (p *pod) gpus(resources []string) (n int) {
	count := func(all []container) (n int) {
		for _, c := range all {
			for name, text := range c.Resources.Limits {
				n += amount(name, text, resources)
			}
			for name, text := range c.Resources.Requests {
				if _, both := c.Resources.Limits[name]; !both {
					n += amount(name, text, resources)
				}
			}
		}
		return n
	}
	return max(count(p.Spec.Containers), count(p.Spec.Init))
}

func amount(name, text string, resources []string) int {
	for _, r := range resources {
		prefix, wild := strings.CutSuffix(r, "*")
		if name == r || wild && strings.HasPrefix(name, prefix) {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 { // such as 2k, which is many
				return 1
			}
			return min(n, 1024)
		}
	}
	return 0
}

// outcome is how far a pod has come.
type outcome uint8

const (
	waiting outcome = iota // has a node, and does not run yet
	active
	succeeded
	failing // has failed
	cancelled
	preempted
	vanished // is not listed any more, and nobody saw how it ended
)

func (o outcome) ended() bool { return o > active }

// held is what is kept of a pod.
type held struct {
	uid, namespace, name, node string

	owner       ref
	group       string // the workload that a label names
	user, queue string
	gpus        int
	devices     []string // UUIDs of its GPUs, or of parts of them, where the API says them
	created     time.Time
	start, end  time.Time
	outcome     outcome
	failures    []failure
	job         *workload
}

// failure is the end of a container with an error, or of a pod with a reason.
type failure struct {
	id           string // of the end: it is the same in what the API tells before and after a restart
	pod, node    string
	container    string
	code, signal int64
	reason       string
	at           time.Time
}

// Reasons that are not the words of the kubelet.
const (
	reasonNodeLost = "NodeLost"
	reasonOOM      = "OOMKilled"
)

// queueLabel is the queue of Kueue that a pod was let in by.
const queueLabel = "kueue.x-k8s.io/queue-name"

// reduce keeps what is needed of a pod.
func (c *Config) reduce(p *pod, gpus int, now time.Time) *held {
	h := &held{
		uid: p.Meta.UID, namespace: p.Meta.Namespace, name: p.Meta.Name, node: p.Spec.Node, owner: p.Meta.owner(), group: p.Meta.value(c.WorkloadKeys),
		user: cmp.Or(p.Meta.value(c.OwnerKeys), p.Meta.Namespace), queue: p.Meta.Labels[queueLabel], gpus: gpus,
		created: stamp(p.Meta.Created), start: stamp(p.Status.Start),
	}
	for _, s := range slices.Concat(p.Status.Init, p.Status.Containers) {
		for _, a := range s.Allocated {
			if amount(a.Name, "1", c.Resources) == 0 {
				continue
			}
			for _, r := range a.Resources[:min(len(a.Resources), maxDevices)] {
				// Where GPUs are shared in time, NVIDIA's device plugin adds ::<number> to the UUID.
				id, _, _ := strings.Cut(r.ID, "::")
				h.devices = append(h.devices, id)
			}
		}
	}
	h.judge(p, now)
	return h
}

// maxDevices bounds the devices of a resource that a container has.
const maxDevices = 1024

// disruption is why somebody means to end a pod (core/v1, condition DisruptionTarget).
func (p *pod) disruption() string {
	for _, c := range p.Status.Conditions {
		if c.Type == "DisruptionTarget" && c.Status == "True" {
			return c.Reason
		}
	}
	return ""
}

// judge says how far a pod has come, and what has failed in it.
func (h *held) judge(p *pod, now time.Time) {
	why := p.disruption()
	lost := why == "DeletionByTaintManager" || why == "DeletionByPodGC" || p.Status.Reason == reasonNodeLost
	unwanted := p.Meta.Deleted != "" || why != "" // others end it: that its containers are told to is no failure
	for _, s := range slices.Concat(p.Status.Init, p.Status.Containers) {
		h.container(&s, unwanted)
	}
	slices.SortStableFunc(h.failures, func(a, b failure) int { return a.at.Compare(b.at) })
	switch p.Status.Phase {
	case "Pending":
		h.outcome = waiting
		return
	case "Succeeded":
		h.outcome = succeeded
	case "Failed":
		h.outcome = failing
	default: // Running; Unknown is a node that does not answer
		h.outcome = active
		return
	}
	if h.end.IsZero() || h.end.After(now.Add(time.Minute)) {
		h.end = now
	}
	if h.outcome == succeeded {
		return
	}
	whole := failure{id: h.uid + "/" + p.Status.Reason, pod: h.name, node: h.node, code: 1, reason: p.Status.Reason, at: h.end}
	switch reason := p.Status.Reason; {
	case lost:
		whole.id, whole.reason = h.uid+"/"+reasonNodeLost, reasonNodeLost
		h.failures = []failure{whole}
	case why == "PreemptionByScheduler", why == "PreemptionByKubeScheduler", reason == "Preempting":
		h.outcome, h.failures = preempted, nil
	case why == "EvictionByEvictionAPI", reason == "DeadlineExceeded": // somebody drains, or it may not run longer
		h.outcome, h.failures = cancelled, nil
	case reason == "Evicted", reason == "NodeShutdown", reason == "Terminated", reason == "UnexpectedAdmissionError", reason == "NodeAffinity":
		h.failures = []failure{whole} // the kubelet's word goes before what it did to the containers
	case len(h.failures) > 0:
	case p.Meta.Deleted != "":
		h.outcome = cancelled
	default:
		whole.reason = cmp.Or(reason, "Error")
		whole.id = h.uid + "/" + whole.reason
		h.failures = []failure{whole}
	}
}

// container notes the ends of a container with an error, and when the last one was.
func (h *held) container(s *containerStatus, unwanted bool) {
	note := func(of state, restarts int64) {
		t := of.Terminated
		if t == nil {
			return
		}
		at := stamp(t.Finished)
		if at.After(h.end) {
			h.end = at
		}
		// 143 and 137 are SIGTERM and SIGKILL.
		if t.Code == 0 && t.Reason != reasonOOM || unwanted && t.Reason != reasonOOM && (t.Code == 143 || t.Code == 137) {
			return
		}
		signal := t.Signal
		if signal == 0 && t.Code > 128 && t.Code <= 128+64 { // as a shell says it
			signal = t.Code - 128
		}
		h.failures = append(h.failures, failure{
			id: h.uid + "/" + s.Name + "/" + strconv.FormatInt(restarts, 10), pod: h.name, node: h.node, container: s.Name, code: t.Code,
			signal: signal, reason: cmp.Or(t.Reason, "Error"), at: at,
		})
	}
	note(s.Last, s.Restarts-1)
	note(s.State, s.Restarts)
}

// gone is a pod that was deleted, as it was last seen.
func (h *held) gone(p *pod, now time.Time) {
	if h.outcome.ended() {
		return
	}
	h.outcome, h.end = cancelled, now
	if p == nil {
		h.outcome = vanished
		return
	}
	switch p.disruption() {
	case "DeletionByTaintManager", "DeletionByPodGC":
		h.outcome = failing
		h.failures = append(h.failures, failure{id: h.uid + "/" + reasonNodeLost, pod: h.name, node: h.node, code: 1, reason: reasonNodeLost, at: now})
	case "PreemptionByScheduler", "PreemptionByKubeScheduler":
		h.outcome = preempted
	}
}
