package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/kube"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// peer returns a variable that test/peers/kube.sh prints.
func peer(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatalf("%s is not set: test/e2e.sh starts the peer and sets it", name)
		}
		t.Skipf("%s is not set: run `make e2e` to test against this peer", name)
	}
	return v
}

// site is a real API server in the eyes of its administrator, who plays kubelet too.
type site struct {
	*testing.T
	admin *cluster
	space string
	clock time.Duration // by how much the driver's clock is ahead
}

// realSite gives the user auspex the role of the manifest and nothing more, and makes a namespace.
func realSite(t *testing.T) *site {
	admin := defaults()
	admin.Kubeconfig = peer(t, "KUBE_ADMIN")
	peer(t, "KUBE_AUSPEX")
	s := &site{T: t, admin: &cluster{cfg: *admin, now: time.Now, again: map[string]time.Time{}}}
	b, err := os.ReadFile("../../deploy/kubernetes/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{
		"Namespace": "/api/v1/namespaces/", "ServiceAccount": "/api/v1/namespaces/auspex/serviceaccounts/",
		"ClusterRole":        "/apis/rbac.authorization.k8s.io/v1/clusterroles/",
		"ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/",
	}
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	for {
		var doc map[string]any
		if dec.Decode(&doc) != nil {
			break
		}
		if doc["kind"] == "ClusterRoleBinding" {
			doc["subjects"] = []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "auspex"}}
		}
		s.apply(paths[doc["kind"].(string)]+doc["metadata"].(map[string]any)["name"].(string), doc)
	}
	s.space = "t" + strconv.FormatInt(time.Now().UnixNano(), 36)
	s.apply("/api/v1/namespaces/"+s.space, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": s.space}})
	t.Cleanup(func() { _ = s.admin.call(context.Background(), "DELETE", "/api/v1/namespaces/"+s.space, "", nil) })
	return s
}

func (k *cluster) call(ctx context.Context, verb, path string, kind types.PatchType, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if kind == "" {
		kind = "application/json"
	}
	return k.do(ctx, func(c *rest.RESTClient) *rest.Request {
		return c.Verb(verb).RequestURI(path).SetHeader("Content-Type", string(kind)).Body(b)
	}, nil)
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) apply(path string, doc any) {
	s.Helper()
	s.must(s.admin.call(s.Context(), "PATCH", path+"?fieldManager=test&force=true", types.ApplyPatchType, doc))
}

// node makes a node that is ready.
func (s *site) node(name string, metadata map[string]any, spec map[string]any) {
	s.Helper()
	metadata = mergeInto(map[string]any{"name": name}, metadata)
	s.must(s.admin.call(s.Context(), "POST", "/api/v1/nodes", "", map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}))
	s.must(s.admin.call(s.Context(), "PATCH", "/api/v1/nodes/"+name+"/status", types.MergePatchType, map[string]any{
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}))
	s.Cleanup(func() { _ = s.admin.call(context.Background(), "DELETE", "/api/v1/nodes/"+name, "", nil) })
}

func mergeInto(into, more map[string]any) map[string]any {
	merge(into, more)
	return into
}

func (s *site) read(name string) *corev1.Node {
	s.Helper()
	n, err := s.admin.node(s.Context(), name)
	s.must(err)
	return n
}

// controller makes one that starts no pods, since nothing runs it, and returns a reference to it.
func (s *site) controller(kind, name string) map[string]any {
	s.Helper()
	spec := map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{"app": name}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": name}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "x"}}},
		},
	}
	path := "/apis/apps/v1/namespaces/" + s.space + "/" + strings.ToLower(kind) + "s"
	doc := map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
	var raw []byte
	s.must(s.admin.do(s.Context(), func(c *rest.RESTClient) *rest.Request {
		b, _ := json.Marshal(doc)
		return c.Post().RequestURI(path).SetHeader("Content-Type", "application/json").Body(b)
	}, nil))
	c, err := s.admin.client()
	s.must(err)
	raw, err = c.Get().RequestURI(path + "/" + name).DoRaw(s.Context())
	s.must(err)
	var got struct{ Metadata struct{ UID string } }
	s.must(json.Unmarshal(raw, &got))
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": got.Metadata.UID, "controller": true}
}

// pod binds a pod that runs; more is merged into it.
func (s *site) pod(node, name, app string, owner map[string]any, more map[string]any) {
	s.Helper()
	metadata := map[string]any{"name": name, "labels": map[string]any{"app": app}}
	if owner != nil {
		metadata["ownerReferences"] = []any{owner}
	}
	doc := map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
		"spec": map[string]any{
			"nodeName": node, "terminationGracePeriodSeconds": 30,
			"containers": []any{map[string]any{
				"name": "c", "image": "x",
				"resources": map[string]any{"limits": map[string]any{gpu: "2"}, "requests": map[string]any{gpu: "2"}},
			}},
		},
	}
	merge(doc, more)
	base := "/api/v1/namespaces/" + s.space + "/pods"
	s.must(s.admin.call(s.Context(), "POST", base, "", doc))
	s.phase(name, "Running")
}

func (s *site) phase(name, phase string) {
	s.Helper()
	s.must(s.admin.call(s.Context(), "PATCH", "/api/v1/namespaces/"+s.space+"/pods/"+name+"/status", types.MergePatchType, map[string]any{
		"status": map[string]any{"phase": phase, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}))
}

// budget demands that so many pods of an app are there, and waits until the disruption controller has counted.
func (s *site) budget(name, app string, least int) {
	s.Helper()
	path := "/apis/policy/v1/namespaces/" + s.space + "/poddisruptionbudgets/" + name
	s.apply(path, map[string]any{
		"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"minAvailable": least, "selector": map[string]any{"matchLabels": map[string]any{"app": app}}},
	})
	s.await("the budget is counted", func() error {
		c, err := s.admin.client()
		if err != nil {
			return err
		}
		raw, err := c.Get().RequestURI(path).DoRaw(s.Context())
		if err != nil {
			return err
		}
		var b struct {
			Metadata struct{ Generation int64 }
			Status   struct {
				ObservedGeneration             int64
				CurrentHealthy, DesiredHealthy int
			}
		}
		if err := json.Unmarshal(raw, &b); err != nil {
			return err
		}
		if b.Status.ObservedGeneration != b.Metadata.Generation || b.Status.DesiredHealthy != least || b.Status.CurrentHealthy == 0 {
			return fmt.Errorf("status %+v", b.Status)
		}
		return nil
	})
}

func (s *site) await(what string, ok func() error) {
	s.Helper()
	waittest.Until(s.T, func() error {
		if err := ok(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// kubelet takes away the pods of a node that are to end, and returns the names of those that stay.
func (s *site) kubelet(node string) (stay []string) {
	s.Helper()
	pods, err := s.admin.pods(s.Context(), node)
	s.must(err)
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp == nil {
			stay = append(stay, p.Name)
			continue
		}
		err := s.admin.call(s.Context(), "DELETE", "/api/v1/namespaces/"+p.Namespace+"/pods/"+p.Name, "", map[string]any{
			"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
		})
		if !apierrors.IsNotFound(err) {
			s.must(err)
		}
	}
	return stay
}

// driver is one as a process that starts has it.
func (s *site) driver(edit ...func(*Config)) map[string]control.Remediator {
	s.Helper()
	c := defaults()
	c.Kubeconfig = peer(s.T, "KUBE_AUSPEX")
	for _, e := range edit {
		e(c)
	}
	all, err := c.Remediators(control.Settings{
		Now: func() time.Time { return time.Now().Add(s.clock) },
		Resource: func(id string) (schemas.Resource, bool) {
			return schemas.Resource{ID: id, Attrs: schemas.AttrsOf(map[string]string{"provider_id": "cloud://" + id})}, true
		},
	})
	s.must(err)
	return all
}

// look pursues and verifies, as control does.
func (s *site) look(r control.Remediator, step control.Step) (control.Verdict, string, error) {
	if p, ok := r.(control.Pursuer); ok {
		if err := p.Pursue(s.Context(), step); err != nil {
			return control.Pending, "", err
		}
	}
	v, observed, err := r.Verify(s.Context(), step)
	return v, messages.Text(observed), err
}

func (s *site) wants(r control.Remediator, step control.Step, want control.Verdict, words ...string) {
	s.Helper()
	v, text, err := s.look(r, step)
	s.must(err)
	if v != want {
		s.Fatalf("verdict %d, want %d: %s", v, want, text)
	}
	s.tells(text, words...)
}

func (s *site) tells(text string, words ...string) {
	s.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			s.Errorf("%q does not name %q", text, w)
		}
	}
}

func TestADrainOnTheRealAPIWaitsForBudgetsAndLeavesDaemonsAlone(t *testing.T) {
	s := realSite(t)
	n := s.space + "-n"
	s.node(n, nil, nil)
	rs, ds := s.controller("ReplicaSet", "train"), s.controller("DaemonSet", "exporter")
	s.pod(n, "train-1", "train", rs, nil)
	s.pod(n, "train-2", "train", rs, nil)
	s.pod(n, "exporter-1", "exporter", ds, nil)
	s.pod(n, "mirror", "static", nil, map[string]any{"metadata": map[string]any{"annotations": map[string]any{corev1.MirrorPodAnnotationKey: "x"}}})
	s.pod(n, "finished", "train-old", rs, nil)
	s.phase("finished", "Succeeded")
	s.budget("keep", "train", 2)

	all := s.driver()
	d, step := all["drain"], control.Step{ID: "act-1", Kind: "drain", Server: n, Reason: "a test"}
	plan, err := d.Plan(t.Context(), step)
	s.must(err)
	s.tells(messages.Text(plan), s.space+"/train-1 of ReplicaSet train (2 GPUs)", "2 pods of namespaces "+s.space+" and 4 GPUs")
	jobs, err := d.(control.Scheduler).Jobs(t.Context(), n)
	if err != nil || len(jobs) != 2 {
		t.Errorf("jobs %v, %v", jobs, err)
	}
	s.wants(d, step, control.Pending)
	if got := s.kubelet(n); len(got) != 5 {
		t.Fatalf("before anything was asked, these are left: %v", got)
	}
	s.must(d.Apply(t.Context(), step))
	s.wants(d, step, control.Pending, "cordoned by Auspex (act-1)", "train-1", "disruption budget "+s.space+"/keep, which allows 0 disruptions")
	if got := s.kubelet(n); len(got) != 5 {
		t.Fatalf("the budget was not respected: %v", got)
	}
	// The same step again changes nothing.
	before := s.read(n)
	s.must(d.Apply(t.Context(), step))
	if after := s.read(n); after.ResourceVersion != before.ResourceVersion {
		t.Error("a step that was applied has changed the node again")
	}
	s.budget("keep", "train", 1)
	s.wants(d, step, control.Pending) // asked for anew only when the server's time is over
	s.clock = 30 * time.Second
	s.wants(d, step, control.Pending)
	s.await("one pod is evicted", func() error {
		if got := s.kubelet(n); len(got) != 4 {
			return fmt.Errorf("left: %v", got)
		}
		return nil
	})
	// One of two must stay: the deadline comes, and says who stands in the way.
	s.clock = time.Hour
	s.wants(d, step, control.Failed, "not gone within 9m0s", "pod "+s.space+"/train-", s.space+"/keep")

	// A process that starts anew goes on where the world stands, with another step.
	s.clock = 0
	s.budget("keep", "train", 0)
	again, all := control.Step{ID: "act-2", Kind: "drain", Server: n}, s.driver()
	d = all["drain"]
	s.must(d.Apply(t.Context(), again))
	s.wants(d, again, control.Pending, "terminating")
	left := s.kubelet(n)
	s.wants(d, again, control.Verified, "act-2")
	if strings.Join(left, " ") != "exporter-1 finished mirror" {
		t.Errorf("left are %v", left)
	}
	// What a destructive step asks for: any drain of ours.
	s.wants(d, control.Step{Server: n}, control.Verified)

	u := all["uncordon"]
	s.must(u.Apply(t.Context(), control.Step{ID: "act-3", Server: n}))
	s.wants(u, control.Step{ID: "act-3", Server: n}, control.Verified)
	got := s.read(n)
	if got.Spec.Unschedulable || got.Annotations[markKey] != "" || strings.Contains(fmt.Sprint(got.Spec.Taints), "auspex") {
		t.Errorf("after uncordon: %+v %v", got.Spec, got.Annotations)
	}
	if v, _, _ := s.look(d, again); v == control.Verified {
		t.Error("a node that was given back counts as drained")
	}
}

func TestWhatIsNotEvictedOnTheRealAPIIsNamed(t *testing.T) {
	s := realSite(t)
	n := s.space + "-n"
	s.node(n, nil, nil)
	rs := s.controller("ReplicaSet", "web")
	s.pod(n, "bare", "bare", nil, nil)
	s.pod(n, "scratch", "web", rs, map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{"name": "s", "emptyDir": map[string]any{}}}}})
	s.pod(n, "stuck", "web", rs, map[string]any{"metadata": map[string]any{"finalizers": []any{"example.com/never"}}})
	step := control.Step{ID: "act-1", Server: n}
	d := s.driver()["drain"]
	s.must(d.Apply(t.Context(), step))
	s.wants(d, step, control.Pending, "/bare (2 GPUs): no controller starts it again", "scratch of ReplicaSet web (2 GPUs): its emptyDir would be lost")
	s.kubelet(n)
	s.clock = 5 * time.Minute
	s.wants(d, step, control.Pending, "stuck terminating since", "finalizers example.com/never")
	if got := s.kubelet(n); strings.Join(got, " ") != "bare scratch" {
		t.Errorf("left are %v", got)
	}
	s.clock = 0
	d = s.driver(func(c *Config) { c.EvictBare, c.EvictEmptyDir, c.GracePeriod = true, true, 7*time.Second })["drain"]
	s.wants(d, step, control.Pending)
	pods, err := s.admin.pods(t.Context(), n)
	s.must(err)
	for _, p := range pods {
		if p.Name != "stuck" && (p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 7) {
			t.Errorf("%s: ends at %v", p.Name, p.DeletionTimestamp)
		}
	}
	s.must(s.admin.call(t.Context(), "PATCH", "/api/v1/namespaces/"+s.space+"/pods/stuck", types.MergePatchType, map[string]any{"metadata": map[string]any{"finalizers": nil}}))
	s.kubelet(n)
	s.wants(d, step, control.Verified)
	// Namespaces that are left alone do not count.
	s.pod(n, "bare", "bare", nil, nil)
	s.wants(s.driver(func(c *Config) { c.LeaveNamespaces = []string{s.space} })["drain"], step, control.Verified)
}

func TestTheCordonOfOthersIsKeptOnTheRealAPI(t *testing.T) {
	s := realSite(t)
	n := s.space + "-n"
	s.node(n, nil, map[string]any{"unschedulable": true, "taints": []any{map[string]any{"key": "team", "value": "a", "effect": "NoSchedule"}}})
	all := s.driver()
	if err := all["uncordon"].Apply(t.Context(), control.Step{ID: "act-0", Server: n}); !errors.Is(err, control.ErrRejected) {
		t.Errorf("the cordon of someone else was lifted: %v", err)
	}
	step := control.Step{ID: "act-1", Server: n}
	for i, kind := range []string{"cordon", "drain"} {
		step.ID = fmt.Sprintf("act-%d", i+1)
		s.must(all[kind].Apply(t.Context(), step))
		s.wants(all[kind], step, control.Verified, "cordoned by someone else before Auspex")
	}
	step.ID = "act-3"
	s.must(all["uncordon"].Apply(t.Context(), step))
	s.wants(all["uncordon"], step, control.Verified, "cordoned by someone else")
	got := s.read(n)
	if !got.Spec.Unschedulable || got.Annotations[markKey] != "" || strings.Contains(fmt.Sprint(got.Spec.Taints), "auspex") ||
		!strings.Contains(fmt.Sprint(got.Spec.Taints), "team") {
		t.Errorf("%+v %v", got.Spec, got.Annotations)
	}
}

func TestWhoUncordonsMeanwhileIsRespectedOnTheRealAPI(t *testing.T) {
	s := realSite(t)
	n := s.space + "-n"
	s.node(n, nil, nil)
	s.pod(n, "p", "p", s.controller("ReplicaSet", "p"), nil)
	d, step := s.driver()["drain"], control.Step{ID: "act-1", Server: n}
	s.must(d.Apply(t.Context(), step))
	s.must(s.admin.call(t.Context(), "PATCH", "/api/v1/nodes/"+n, types.MergePatchType, map[string]any{"spec": map[string]any{"unschedulable": false}}))
	if v, _, _ := d.Verify(t.Context(), step); v != control.Failed {
		t.Errorf("verdict %d", v)
	}
	if err := d.Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) {
		t.Errorf("cordoned again: %v", err)
	}
	err := d.(control.Pursuer).Pursue(t.Context(), step)
	if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "someone has made node "+n+" schedulable") {
		t.Error(err)
	}
	if got := s.read(n); got.Spec.Unschedulable || got.Annotations[markKey] != "" || strings.Contains(fmt.Sprint(got.Spec.Taints), "auspex") {
		t.Errorf("%+v %v", got.Spec, got.Annotations)
	}
	if left := s.kubelet(n); len(left) != 1 {
		t.Error("a pod was evicted from a node that was given back")
	}
}

func TestAChangeByOthersMeanwhileIsNotLostOnTheRealAPI(t *testing.T) {
	s := realSite(t)
	n := s.space + "-n"
	s.node(n, nil, nil)
	k := s.driver()["drain"].(drain).cluster
	seen := 0
	s.must(k.change(t.Context(), n, func(node *corev1.Node) (bool, error) {
		if seen++; seen == 1 { // between our reading and our writing
			s.must(s.admin.call(t.Context(), "PATCH", "/api/v1/nodes/"+n, types.MergePatchType, map[string]any{
				"spec": map[string]any{"unschedulable": true, "taints": []any{map[string]any{"key": "theirs", "effect": "NoSchedule"}}},
			}))
		}
		return k.hold(control.Step{ID: "act-1"}, false)(node)
	}))
	got := s.read(n)
	if m, ok := markOf(got); seen != 2 || !ok || !m.Found || !strings.Contains(fmt.Sprint(got.Spec.Taints), "theirs") {
		t.Errorf("seen %d times: %+v %v", seen, got.Spec.Taints, got.Annotations)
	}
	// Who changes it each time wins, and nothing was done.
	i := 0
	err := k.change(t.Context(), n, func(node *corev1.Node) (bool, error) {
		i++
		s.must(s.admin.call(t.Context(), "PATCH", "/api/v1/nodes/"+n, types.MergePatchType, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"turn": strconv.Itoa(i)}},
		}))
		k.release(node)
		return true, nil
	})
	if !errors.Is(err, control.ErrRejected) || s.read(n).Annotations[markKey] == "" {
		t.Errorf("%v", err)
	}
}

func TestARoleThatLacksARightIsNamedOnTheRealAPI(t *testing.T) {
	s := realSite(t)
	n := s.space + "-n"
	s.node(n, nil, nil)
	s.pod(n, "p", "p", s.controller("ReplicaSet", "p"), nil)
	stranger := func(c *Config) { c.Kubeconfig = peer(t, "KUBE_STRANGER") }
	step := control.Step{ID: "act-1", Server: n}
	rights := func(rules ...any) {
		name := s.space
		s.apply("/apis/rbac.authorization.k8s.io/v1/clusterroles/"+name, map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name}, "rules": rules,
		})
		s.apply("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"+name, map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "stranger"}},
		})
		t.Cleanup(func() {
			for _, kind := range []string{"clusterroles/", "clusterrolebindings/"} {
				_ = s.admin.call(context.Background(), "DELETE", "/apis/rbac.authorization.k8s.io/v1/"+kind+name, "", nil)
			}
		})
	}
	rule := func(resource string, verbs ...any) any {
		return map[string]any{"apiGroups": []any{""}, "resources": []any{resource}, "verbs": verbs}
	}
	refuses := func(what, verb, resource string, call func(control.Remediator) error) {
		t.Helper()
		s.await(what, func() error { // until the rights have come to the authorizer
			err := call(s.driver(stranger)["drain"])
			if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "cannot "+verb+` resource "`+resource+`"`) {
				return fmt.Errorf("%w", errors.Join(errors.New("want a refusal of "+verb+" "+resource), err))
			}
			return nil
		})
	}
	apply := func(d control.Remediator) error { return d.Apply(t.Context(), step) }
	refuses("nothing", "get", "nodes", apply)
	rights(rule("nodes", "get"))
	refuses("the node alone", "list", "pods", apply) // whether Slurm's node runs there
	rights(rule("nodes", "get"), rule("pods", "list"))
	refuses("reads alone", "patch", "nodes", apply)
	if got := s.read(n); got.Spec.Unschedulable || got.Annotations[markKey] != "" {
		t.Error("half of it was done")
	}
	rights(rule("nodes", "get", "patch"), rule("pods", "list"))
	s.await("it may cordon", func() error { return apply(s.driver(stranger)["drain"]) })
	refuses("no evictions", "create", "pods/eviction", func(d control.Remediator) error { return d.(control.Pursuer).Pursue(t.Context(), step) })
	if left := s.kubelet(n); len(left) != 1 {
		t.Error("evicted without a right")
	}
}

func TestNodesAreFoundByWhatNamesThemOnTheRealAPI(t *testing.T) {
	s := realSite(t)
	id := s.space
	s.node(id+"-a", map[string]any{"labels": map[string]any{"auspex.io/server": id}, "annotations": map[string]any{"auspex.io/server": id + "/x"}},
		map[string]any{"providerID": "cloud://" + id})
	for by, c := range map[string]struct {
		server string
		nodes  kube.Nodes
	}{
		"label":      {id, kube.Nodes{By: kube.ByLabel, Key: "auspex.io/server"}},
		"annotation": {id + "/x", kube.Nodes{By: kube.ByAnnotation, Key: "auspex.io/server"}},
		"provider":   {id, kube.Nodes{By: kube.ByProvider, Attr: "provider_id"}},
	} {
		cordon := s.driver(func(k *Config) { k.Nodes = c.nodes })["cordon"]
		step := control.Step{ID: "act-" + by, Server: c.server}
		s.must(cordon.Apply(t.Context(), step))
		s.wants(cordon, step, control.Verified, "node "+id+"-a")
		step.Server = "another"
		if err := cordon.Apply(t.Context(), step); !errors.Is(err, control.ErrCannot) {
			t.Errorf("%s: %v", by, err)
		}
	}
	s.node(id+"-b", map[string]any{"labels": map[string]any{"auspex.io/server": id}}, nil)
	err := s.driver(func(k *Config) { k.Nodes.By = kube.ByLabel })["cordon"].Apply(t.Context(), control.Step{ID: "act-9", Server: id})
	if !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "both") {
		t.Errorf("two nodes: %v", err)
	}
}

// The API server is killed while a drain waits for a budget. Nothing counts as done while it is away, and a
// process that starts anew brings the drain to its end.
func TestADrainGoesOnAfterTheRealAPIWasKilled(t *testing.T) {
	s := realSite(t)
	dir := peer(t, "KUBE_DIR")
	n := s.space + "-n"
	s.node(n, nil, nil)
	rs := s.controller("ReplicaSet", "train")
	s.pod(n, "train-1", "train", rs, nil)
	s.budget("keep", "train", 1)
	d, step := s.driver()["drain"], control.Step{ID: "act-1", Server: n}
	s.must(d.Apply(t.Context(), step))
	s.wants(d, step, control.Pending, "disruption budget")

	b, err := os.ReadFile(filepath.Join(dir, "kube-api.pid"))
	s.must(err)
	pid, err := strconv.Atoi(strings.Fields(string(b))[0])
	s.must(err)
	s.must(syscall.Kill(pid, syscall.SIGKILL))
	started := false
	start := func() {
		out, err := exec.Command("../../test/peers/kube.sh", "start", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		started = true
	}
	t.Cleanup(func() {
		if !started {
			start()
		}
	})
	for range 3 {
		if v, text, err := s.look(d, step); err == nil || v != control.Pending || errors.Is(err, control.ErrRejected) {
			t.Fatalf("without an API: verdict %d, %s, %v", v, text, err)
		}
		if v, _, err := d.Verify(t.Context(), step); err == nil || v != control.Pending {
			t.Fatalf("without an API: verdict %d, %v", v, err)
		}
	}
	other := s.driver()["drain"]
	if err := other.Apply(t.Context(), control.Step{ID: "act-2", Server: n}); !errors.Is(err, control.ErrRejected) {
		t.Errorf("nothing can have been done: %v", err)
	}
	start()
	s.budget("keep", "train", 0)
	d = s.driver()["drain"]
	s.await("the drain goes on", func() error {
		v, text, err := s.look(d, step)
		if err != nil || v != control.Verified {
			s.kubelet(n)
			return fmt.Errorf("verdict %d: %s: %w", v, text, err)
		}
		return nil
	})
}

// nodeSet makes a NodeSet as slurm-operator knows it, and returns a reference to it. The definition has the names of
// that of slurm-operator v1.1, and leaves what is in it open.
func (s *site) nodeSet(name string) map[string]any {
	s.Helper()
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	s.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodesets.slinky.slurm.net", map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "nodesets.slinky.slurm.net"},
		"spec": map[string]any{
			"group": "slinky.slurm.net", "scope": "Namespaced",
			"names": map[string]any{"kind": "NodeSet", "listKind": "NodeSetList", "plural": "nodesets", "singular": "nodeset"},
			"versions": []any{map[string]any{
				"name": "v1beta1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": open, "status": open}}},
			}},
		},
	})
	path := "/apis/slinky.slurm.net/v1beta1/namespaces/" + s.space + "/nodesets"
	var uid string
	s.await("a NodeSet can be made", func() error {
		err := s.admin.call(s.Context(), "PATCH", path+"/"+name+"?fieldManager=test&force=true", types.ApplyPatchType, map[string]any{
			"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "metadata": map[string]any{"name": name}, "spec": map[string]any{"replicas": 1},
		})
		if err != nil {
			return err
		}
		c, err := s.admin.client()
		if err != nil {
			return err
		}
		raw, err := c.Get().RequestURI(path + "/" + name).DoRaw(s.Context())
		if err != nil {
			return err
		}
		var got struct{ Metadata struct{ UID string } }
		err = json.Unmarshal(raw, &got)
		uid = got.Metadata.UID
		return err
	})
	return map[string]any{"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": name, "uid": uid, "controller": true}
}

// slurm shows states of Slurm as conditions of a pod, as slurm-operator does.
func (s *site) slurm(pod string, states ...string) {
	s.Helper()
	conditions := []any{map[string]any{"type": "Ready", "status": "True"}}
	for _, st := range states {
		conditions = append(conditions, map[string]any{"type": "SlurmNodeState" + st, "status": "True"})
	}
	s.must(s.admin.call(s.Context(), "PATCH", "/api/v1/namespaces/"+s.space+"/pods/"+pod+"/status", types.MergePatchType, map[string]any{
		"status": map[string]any{"conditions": conditions},
	}))
}

func TestANodeOfSlurmOnKubernetesIsDrainedThroughSlurmOperatorOnTheRealAPI(t *testing.T) {
	s := realSite(t)
	const name = "slinky-1"
	s.node(name, nil, nil)
	s.pod(name, "gpu-0", "gpu", s.nodeSet("gpu"), nil)
	s.pod(name, "web-0", "web", s.controller("ReplicaSet", "web"), nil)
	s.slurm("gpu-0", "Mixed")
	all := s.driver()
	d, step := all["drain"], control.Step{ID: "act-1", Kind: "drain", Server: name, Reason: "gpu.fallen_off_bus on " + name + "/gpu2"}
	plan, err := d.Plan(t.Context(), step)
	s.must(err)
	s.tells(messages.Text(plan), "gpu-0 of NodeSet gpu", "Slurm has it as Mixed")
	s.must(d.Apply(t.Context(), step))
	n := s.read(name)
	if got := n.Annotations["nodeset.slinky.slurm.net/node-cordon-reason"]; !n.Spec.Unschedulable || got != "auspex: act-1 "+step.Reason {
		t.Fatalf("unschedulable %v, the reason is %q", n.Spec.Unschedulable, got)
	}
	s.wants(d, step, control.Pending, "gpu-0", "Slurm has it as Mixed")
	if stay := s.kubelet(name); strings.Join(stay, " ") != "gpu-0" { // the other was evicted
		t.Fatalf("%v stay", stay)
	}
	s.slurm("gpu-0", "Mixed", "Drain") // the operator has told Slurm, and a job runs on
	s.wants(d, step, control.Pending, "Slurm has it as Drain+Mixed")
	if jobs, err := d.(control.Scheduler).Jobs(t.Context(), name); err != nil || len(jobs) != 1 {
		t.Errorf("%v %v", jobs, err)
	}
	s.slurm("gpu-0", "Idle", "Drain")
	s.wants(d, step, control.Verified)
	if stay := s.kubelet(name); strings.Join(stay, " ") != "gpu-0" {
		t.Fatalf("%v stay", stay)
	}
	if jobs, err := d.(control.Scheduler).Jobs(t.Context(), name); err != nil || len(jobs) != 0 {
		t.Errorf("%v %v", jobs, err)
	}
	back := control.Step{ID: "act-2", Kind: "uncordon", Server: name}
	s.must(all["uncordon"].Apply(t.Context(), back))
	n = s.read(name)
	if _, left := n.Annotations["nodeset.slinky.slurm.net/node-cordon-reason"]; left || n.Spec.Unschedulable {
		t.Errorf("unschedulable %v, annotations %v", n.Spec.Unschedulable, n.Annotations)
	}
	s.wants(all["uncordon"], back, control.Pending, "gpu-0", "Slurm has it as Drain+Idle")
	s.slurm("gpu-0", "Idle")
	s.wants(all["uncordon"], back, control.Verified)
}
