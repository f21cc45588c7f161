package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"auspex/internal/kube"
)

const (
	maxOwners = 8  // from a pod up; more is a ring
	fewOwners = 50 // of one resource that are read one by one; more are listed
	metaOf    = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	metasOf   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// owners knows who owns what, up to the workload that a person knows. Owners do not change.
type owners struct {
	cfg     *Config
	api     *kube.Client
	log     *slog.Logger
	metrics *metrics
	parents map[string]ref // by UID; without a UID there is none, or none that may be read
	warned  map[string]bool
}

// resourceOf is where objects of a kind are, or false for what can own no workload.
func resourceOf(r ref) (gv schema.GroupVersion, resource string, ok bool) {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil || r.Kind == "" || r.Kind == "Node" || r.Name == "" {
		return gv, "", false
	}
	plural, _ := apimeta.UnsafeGuessKindToResource(gv.WithKind(r.Kind))
	return gv, plural.Resource, true
}

func prefix(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"/api", gv.Version}
	}
	return []string{"/apis", gv.Group, gv.Version}
}

// top is the workload that an owner of a pod belongs to. A CronJob owns many: each of its jobs is one.
func (o *owners) top(ctx context.Context, namespace string, of ref) (ref, error) {
	for range maxOwners {
		parent, err := o.parent(ctx, namespace, of)
		if err != nil {
			return ref{}, err
		}
		if parent.UID == "" || parent.Kind == "CronJob" || parent.Kind == "Node" {
			return of, nil
		}
		of = parent
	}
	return of, nil
}

func (o *owners) parent(ctx context.Context, namespace string, of ref) (ref, error) {
	if p, ok := o.parents[of.UID]; ok {
		return p, nil
	}
	gv, resource, ok := resourceOf(of)
	if !ok {
		return ref{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Timeout)
	defer cancel()
	body, err := o.api.Raw(ctx, o.cfg.rest, func(c *rest.RESTClient) *rest.Request {
		return c.Get().AbsPath(append(prefix(gv), "namespaces", namespace, resource, of.Name)...).SetHeader("Accept", metaOf)
	})
	var found struct {
		Meta metadata `json:"metadata"`
	}
	switch {
	case apierrors.IsForbidden(err):
		o.metrics.unread.WithLabelValues("forbidden").Inc()
		if key := gv.Group + "/" + resource; !o.warned[key] {
			o.warned[key] = true
			o.log.Warn("owners of pods may not be read, and stand for their workloads themselves", "kind", of.Kind, "error", err)
		}
	case apierrors.IsNotFound(err): // it was deleted, or its kind has another path
		o.metrics.unread.WithLabelValues("not_found").Inc()
	case err != nil:
		return ref{}, failed(fmt.Sprintf("read %s %s/%s", resource, namespace, of.Name), err)
	case json.Unmarshal(body, &found) != nil:
		o.metrics.malformed.WithLabelValues(resource).Inc()
	case found.Meta.UID != of.UID: // another one of this name
		o.metrics.unread.WithLabelValues("not_found").Inc()
	}
	parent := ref{}
	if found.Meta.UID == of.UID {
		parent = found.Meta.owner()
	}
	o.parents[of.UID] = parent
	return parent, nil
}

// warm lists the owners of many pods, which would else be read one by one.
func (o *owners) warm(ctx context.Context, wanted []ref) error {
	by := map[string][]ref{}
	for _, r := range wanted {
		if _, known := o.parents[r.UID]; !known && r.UID != "" {
			key := r.APIVersion + " " + r.Kind
			by[key] = append(by[key], r)
		}
	}
	for _, refs := range by {
		gv, resource, ok := resourceOf(refs[0])
		if !ok || len(refs) <= fewOwners {
			continue
		}
		need := make(map[string]bool, len(refs))
		for _, r := range refs {
			need[r.UID] = true
		}
		for from := ""; ; {
			var l struct {
				Meta struct {
					Continue string `json:"continue"`
				} `json:"metadata"`
				Items []struct {
					Meta metadata `json:"metadata"`
				} `json:"items"`
			}
			within, cancel := context.WithTimeout(ctx, o.cfg.Timeout)
			body, err := o.api.Raw(within, o.cfg.rest, func(c *rest.RESTClient) *rest.Request {
				r := c.Get().AbsPath(append(prefix(gv), resource)...).SetHeader("Accept", metasOf).Param("limit", strconv.Itoa(page))
				if from != "" {
					r.Param("continue", from)
				}
				return r
			})
			cancel()
			if err != nil {
				if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || gone(err) { // then one by one
					break
				}
				return failed("list "+resource, err)
			}
			if json.Unmarshal(body, &l) != nil {
				o.metrics.malformed.WithLabelValues(resource).Inc()
				break
			}
			for _, i := range l.Items {
				if need[i.Meta.UID] {
					o.parents[i.Meta.UID] = i.Meta.owner()
				}
			}
			if from = l.Meta.Continue; from == "" {
				break
			}
		}
	}
	return nil
}

// forget keeps only owners that may be asked for again, where there are many others.
func (o *owners) forget(pods map[string]*held) {
	if len(o.parents) < 1000+2*len(pods) {
		return
	}
	used := make(map[string]ref, len(pods))
	for _, h := range pods {
		for at := h.owner; at.UID != ""; at = o.parents[at.UID] {
			p, ok := o.parents[at.UID]
			if _, seen := used[at.UID]; !ok || seen {
				break
			}
			used[at.UID] = p
		}
	}
	o.parents = used
}
