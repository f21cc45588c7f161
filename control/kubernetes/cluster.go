package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"auspex/control"
	"auspex/internal/kube"
	"auspex/schemas"
)

const page = 500 // objects of a list that are asked for at a time

// scheme knows what is spoken here and nothing else: all of Kubernetes' kinds would
// weigh as much as the rest of the driver.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, policyv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// cluster speaks to one API server. What it reads is read from etcd itself, never
// from a cache (resourceVersion is not set).
type cluster struct {
	cfg      Config
	now      func() time.Time
	resource func(string) (schemas.Resource, bool)

	api   kube.Client
	mu    sync.Mutex
	again map[string]time.Time // when a pod whose eviction has to wait is asked for again, by its UID
}

// settings are those of requests for the core resources.
func (k *cluster) settings() (*rest.Config, error) {
	cfg, err := k.cfg.Rest()
	if err != nil {
		return nil, err
	}
	cfg.APIPath, cfg.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return cfg, nil
}

func (k *cluster) client() (*rest.RESTClient, error) { return k.api.REST(k.settings) }

func (k *cluster) do(ctx context.Context, ask func(*rest.RESTClient) *rest.Request, into runtime.Object) error {
	return k.api.Do(ctx, k.settings, ask, into)
}

// node finds the node of a server.
func (k *cluster) node(ctx context.Context, server string) (*corev1.Node, error) {
	want := server
	if attr := k.cfg.Nodes.Attr; attr != "" {
		r, _ := k.resource(server)
		if want = r.Attrs.Get(attr); want == "" {
			return nil, fmt.Errorf("%w: %s has no %s in the inventory, which names its node", control.ErrCannot, server, attr)
		}
	}
	unknown := fmt.Errorf("%w: kubernetes has no node with the %s %q", control.ErrCannot, strings.ReplaceAll(k.cfg.Nodes.By, "_", " "), want)
	if k.cfg.Nodes.By == kube.ByName {
		if strings.ContainsAny(want, "/%") || want == "" || want == "." || want == ".." { // no name, and no part of a path
			return nil, unknown
		}
		var n corev1.Node
		err := k.do(ctx, func(c *rest.RESTClient) *rest.Request { return c.Get().Resource("nodes").Name(want) }, &n)
		if apierrors.IsNotFound(err) {
			return nil, unknown
		}
		if err != nil {
			return nil, fmt.Errorf("read node %s: %w", want, err)
		}
		return &n, nil
	}
	selector := labels.Everything()
	if k.cfg.Nodes.By == kube.ByLabel {
		s, err := labels.ValidatedSelectorFromSet(labels.Set{k.cfg.Nodes.Key: want})
		if err != nil {
			return nil, unknown
		}
		selector = s
	}
	var found []corev1.Node
	err := pages(func(from string) (string, error) {
		var list corev1.NodeList
		err := k.do(ctx, func(c *rest.RESTClient) *rest.Request {
			return c.Get().Resource("nodes").Param("labelSelector", selector.String()).Param("limit", strconv.Itoa(page)).Param("continue", from)
		}, &list)
		for _, n := range list.Items {
			if value, ok := k.cfg.Nodes.Identity(n.Name, n.Spec.ProviderID, n.Labels, n.Annotations); ok && value == want {
				found = append(found, n)
			}
		}
		return list.Continue, err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read nodes: %w", err)
	case len(found) == 0:
		return nil, unknown
	case len(found) > 1:
		return nil, fmt.Errorf("%w: the nodes %s and %s both have the %s of %s", control.ErrCannot, found[0].Name, found[1].Name, k.cfg.Nodes.By, server)
	}
	return &found[0], nil
}

func pages(read func(from string) (next string, err error)) error {
	for from := ""; ; {
		next, err := read(from)
		if err != nil || next == "" {
			return err
		}
		from = next
	}
}

// pods are those of a node.
func (k *cluster) pods(ctx context.Context, node string) (out []corev1.Pod, err error) {
	err = pages(func(from string) (string, error) {
		var list corev1.PodList
		err := k.do(ctx, func(c *rest.RESTClient) *rest.Request {
			return c.Get().Resource("pods").Param("fieldSelector", "spec.nodeName="+node).Param("limit", strconv.Itoa(page)).Param("continue", from)
		}, &list)
		out = append(out, list.Items...)
		return list.Continue, err
	})
	if err != nil {
		return nil, fmt.Errorf("read pods of %s: %w", node, err)
	}
	return out, nil
}

// budgets names the disruption budgets over a pod, with what they say.
func (k *cluster) budgets(ctx context.Context, known map[string][]policyv1.PodDisruptionBudget, p *corev1.Pod) ([]string, error) {
	all, ok := known[p.Namespace]
	if !ok {
		err := pages(func(from string) (string, error) {
			var list policyv1.PodDisruptionBudgetList
			err := k.do(ctx, func(c *rest.RESTClient) *rest.Request {
				return c.Get().AbsPath("/apis/policy/v1").Namespace(p.Namespace).Resource("poddisruptionbudgets").
					Param("limit", strconv.Itoa(page)).Param("continue", from)
			}, &list)
			all = append(all, list.Items...)
			return list.Continue, err
		})
		if err != nil {
			return nil, fmt.Errorf("read disruption budgets of %s: %w", p.Namespace, err)
		}
		known[p.Namespace] = all
	}
	var out []string
	for _, b := range all {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		out = append(out, fmt.Sprintf("%s/%s, which allows %d disruptions now (%d of its pods are healthy, %d must be)",
			b.Namespace, b.Name, b.Status.DisruptionsAllowed, b.Status.CurrentHealthy, b.Status.DesiredHealthy))
	}
	return out, nil
}

// evict asks for the end of a pod. It returns when to ask again where a budget has to be waited for.
func (k *cluster) evict(ctx context.Context, p *corev1.Pod) (again time.Duration, err error) {
	e := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	}
	if k.cfg.GracePeriod > 0 {
		seconds := int64(k.cfg.GracePeriod.Seconds())
		e.DeleteOptions.GracePeriodSeconds = &seconds
	}
	e.APIVersion, e.Kind = "policy/v1", "Eviction"
	body, err := json.Marshal(e)
	if err != nil {
		return 0, err
	}
	err = k.do(ctx, func(c *rest.RESTClient) *rest.Request {
		return c.Post().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("eviction").
			SetHeader("Content-Type", "application/json").Body(body)
	}, nil)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, or another one has its name
		return 0, nil
	case apierrors.IsTooManyRequests(err):
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return max(time.Duration(seconds)*time.Second, retryEviction), nil
	case apierrors.IsInternalError(err): // more than one budget is over the pod (policy/v1, "Eviction API"): a person must mend that
		return retryEviction, nil
	}
	return 0, fmt.Errorf("evict %s/%s: %w", p.Namespace, p.Name, err)
}

// retryEviction is how long a pod whose budget allows no eviction is left alone, where
// the server names no time.
const retryEviction = 5 * time.Second

// change patches a node as edit wants it, on the grounds of the version that edit has seen: a
// change by someone else meanwhile is seen before ours is made. edit returns false for
// what is as it should be.
func (k *cluster) change(ctx context.Context, server string, edit func(*corev1.Node) (bool, error)) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		n, err := k.node(ctx, server)
		if err != nil {
			return rejected(err)
		}
		wanted := n.DeepCopy()
		changed, err := edit(wanted)
		if err != nil || !changed {
			return rejected(err)
		}
		patch, err := json.Marshal(patchOf(n, wanted))
		if err != nil {
			return rejected(err)
		}
		err = k.do(ctx, func(c *rest.RESTClient) *rest.Request {
			return c.Patch(types.MergePatchType).Resource("nodes").Name(n.Name).Param("fieldManager", "auspex").Body(patch)
		}, nil)
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err) && attempt < attempts:
		case apierrors.IsConflict(err):
			return fmt.Errorf("%w: node %s is changed by others all the time: %w", control.ErrRejected, n.Name, err)
		case kube.Refused(err):
			return fmt.Errorf("%w: change node %s: %w", control.ErrRejected, n.Name, err)
		default:
			return fmt.Errorf("change node %s: %w", n.Name, err)
		}
	}
}

// rejected marks an error from before anything was sent.
func rejected(err error) error {
	if err == nil || errors.Is(err, control.ErrRejected) {
		return err
	}
	return fmt.Errorf("%w: %w", control.ErrRejected, err)
}

// patchOf is a JSON merge patch (RFC 7396) of what we change of a node. It replaces the
// list of taints, which is safe because it names the version that it was made from.
func patchOf(old, wanted *corev1.Node) map[string]any {
	marks := map[string]any{markKey: nil}
	if v, ok := wanted.Annotations[markKey]; ok {
		marks[markKey] = v
	}
	switch was, is := old.Annotations[slurmReasonKey], wanted.Annotations[slurmReasonKey]; {
	case is == "" && was != "":
		marks[slurmReasonKey] = nil
	case is != was:
		marks[slurmReasonKey] = is
	}
	spec := map[string]any{}
	if old.Spec.Unschedulable != wanted.Spec.Unschedulable {
		spec["unschedulable"] = wanted.Spec.Unschedulable
	}
	if !slices.Equal(old.Spec.Taints, wanted.Spec.Taints) {
		spec["taints"] = wanted.Spec.Taints
	}
	return map[string]any{
		"metadata": map[string]any{"resourceVersion": old.ResourceVersion, "annotations": marks},
		"spec":     spec,
	}
}
