package tinkerbell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"auspex/control"
	"auspex/internal/kube"
)

const (
	timeout = 15 * time.Second // of one request, but for a watch
	page    = 500              // objects of a list that are asked for at a time

	workflows = "workflows"
	hardware  = "hardware"
	templates = "templates"
)

// cluster speaks to one API server. What it reads itself is read from etcd, never from a cache
// (resourceVersion is not set).
type cluster struct {
	cfg     Config
	group   schema.GroupVersion // of what it asks for; that of Tinkerbell where it is not set
	api     kube.Client
	metrics *metrics
}

// settings are those of requests for Tinkerbell's resources.
func (k *cluster) settings() (*rest.Config, error) {
	cfg, err := k.cfg.Rest()
	if err != nil {
		return nil, err
	}
	of := cmp.Or(k.group, group)
	cfg.APIPath, cfg.GroupVersion = "/apis", &of
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return cfg, nil
}

func (k *cluster) client() (*rest.RESTClient, error) { return k.api.REST(k.settings) }

// do sends a request; verb and resource are what it is counted by.
func (k *cluster) do(ctx context.Context, verb, resource string, ask func(*rest.RESTClient) *rest.Request, into runtime.Object) error {
	err := k.api.Do(ctx, k.settings, ask, into)
	k.metrics.did(verb, resource, err)
	return err
}

// rejected marks an error from before anything was sent.
func rejected(err error) error {
	if err == nil || errors.Is(err, control.ErrRejected) {
		return err
	}
	return fmt.Errorf("%w: %w", control.ErrRejected, err)
}

// sent is the error of a request that changes something.
func sent(err error) error {
	if kube.Refused(err) {
		return rejected(err)
	}
	return err
}

// absent tells an object that there is none of from an API that does not know its kind.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// get reads an object; found is false where there is none of this name.
func (k *cluster) get(ctx context.Context, resource, name string, into runtime.Object) (found bool, err error) {
	err = k.do(ctx, "get", resource, func(c *rest.RESTClient) *rest.Request {
		return c.Get().Namespace(k.cfg.Namespace).Resource(resource).Name(name)
	}, into)
	switch {
	case absent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s %s/%s: %w", resource, k.cfg.Namespace, name, err)
	}
	return true, nil
}

func (k *cluster) workflow(ctx context.Context, name string) (*Workflow, error) {
	w := &Workflow{}
	if found, err := k.get(ctx, workflows, name, w); err != nil || !found {
		return nil, err
	}
	return w, nil
}

func (k *cluster) pages(ctx context.Context, resource string, read func() (into runtime.Object, next func() string)) error {
	for from := ""; ; {
		into, next := read()
		if err := k.do(ctx, "list", resource, func(c *rest.RESTClient) *rest.Request {
			return c.Get().Namespace(k.cfg.Namespace).Resource(resource).Param("limit", strconv.Itoa(page)).Param("continue", from)
		}, into); err != nil {
			return fmt.Errorf("list %s of %s: %w", resource, k.cfg.Namespace, err)
		}
		if from = next(); from == "" {
			return nil
		}
	}
}

func (k *cluster) allWorkflows(ctx context.Context) (out []Workflow, err error) {
	err = k.pages(ctx, workflows, func() (runtime.Object, func() string) {
		l := &WorkflowList{}
		return l, func() string { out = append(out, l.Items...); return l.Continue }
	})
	return out, err
}

func (k *cluster) allHardware(ctx context.Context) (out []Hardware, err error) {
	err = k.pages(ctx, hardware, func() (runtime.Object, func() string) {
		l := &HardwareList{}
		return l, func() string { out = append(out, l.Items...); return l.Continue }
	})
	return out, err
}

// create makes an object; made is false where one of this name exists.
func (k *cluster) create(ctx context.Context, resource, name string, o runtime.Object) (made bool, err error) {
	err = k.do(ctx, "create", resource, func(c *rest.RESTClient) *rest.Request {
		return c.Post().Namespace(k.cfg.Namespace).Resource(resource).Param("fieldManager", manager).Body(o)
	}, nil)
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("create %s %s/%s: %w", resource, k.cfg.Namespace, name, err)
	}
	return true, nil
}

// patch changes an object by a JSON merge patch (RFC 7396), on the grounds of the version that was
// read: a change by someone else meanwhile is a conflict, and nothing is done.
func (k *cluster) patch(ctx context.Context, resource string, of *metav1.ObjectMeta, changes map[string]any) error {
	meta, _ := changes["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		changes["metadata"] = meta
	}
	meta["resourceVersion"] = of.ResourceVersion
	body, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	if err := k.do(ctx, "patch", resource, func(c *rest.RESTClient) *rest.Request {
		return c.Patch(types.MergePatchType).Namespace(k.cfg.Namespace).Resource(resource).Name(of.Name).Param("fieldManager", manager).Body(body)
	}, nil); err != nil {
		return fmt.Errorf("change %s %s/%s: %w", resource, k.cfg.Namespace, of.Name, err)
	}
	return nil
}

// annotations are a change of those of an object; a nil one is taken away.
func annotations(set map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": set}}
}

// remove deletes the very object that was read; one that is gone is as good.
func (k *cluster) remove(ctx context.Context, resource string, of *metav1.ObjectMeta) error {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &metav1.Preconditions{UID: &of.UID},
	})
	if err != nil {
		return err
	}
	err = k.do(ctx, "delete", resource, func(c *rest.RESTClient) *rest.Request {
		return c.Delete().Namespace(k.cfg.Namespace).Resource(resource).Name(of.Name).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	}, nil)
	if err != nil && !absent(err) {
		return fmt.Errorf("delete %s %s/%s: %w", resource, k.cfg.Namespace, of.Name, err)
	}
	return nil
}

// list reads a resource for a reflector.
func (k *cluster) list(ctx context.Context, resource string, o metav1.ListOptions, into runtime.Object) error {
	c, err := k.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = c.Get().Namespace(k.cfg.Namespace).Resource(resource).VersionedParams(&o, runtime.NewParameterCodec(scheme)).Do(ctx).Into(into)
	k.api.Strange(c, err)
	return err
}

// watch follows a resource for a reflector.
func (k *cluster) watch(ctx context.Context, resource string, o metav1.ListOptions) (watch.Interface, error) {
	c, err := k.client()
	if err != nil {
		return nil, err
	}
	o.Watch = true
	w, err := c.Get().Namespace(k.cfg.Namespace).Resource(resource).VersionedParams(&o, runtime.NewParameterCodec(scheme)).Watch(ctx)
	k.api.Strange(c, err)
	return w, err
}

// conflicts reports whether an object had changed since it was read.
func conflicts(err error) bool { return apierrors.IsConflict(err) }
