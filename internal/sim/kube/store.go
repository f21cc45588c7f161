// Package kube serves the part of the Kubernetes API that custom resources need, as kube-apiserver 1.36
// answers it: discovery, objects in namespaces with versions and a status of its own, lists in pages,
// watches that resume, conflicts, patches. There are no schemas, no owners, no admission and no rights
// beyond a token.
package kube

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Resource is a kind of objects, in namespaces, with a status that is written by itself.
type Resource struct {
	schema.GroupVersionKind

	Plural, Singular string
	Short            []string
}

func (r *Resource) group() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Plural}
}

// ID says which object is meant.
type ID struct{ Plural, Namespace, Name string }

// Part is what of an object a request writes.
type Part string

// The parts of an object.
const (
	Main   Part = ""
	Status Part = "status"
)

// change is a write; before is nil of an object that is new, after of one that is gone.
type change struct {
	version       uint64
	plural        string
	before, after *unstructured.Unstructured
}

// is the object of a change.
func (c *change) is() *unstructured.Unstructured {
	if c.after != nil {
		return c.after
	}
	return c.before
}

// Remembered is how many changes a store keeps for those who watch or read a list in pages.
const Remembered = 20_000

// Store holds objects. What it hands out is a copy. Its methods may be called at the same time.
type Store struct {
	resources  []Resource
	namespaces []string
	now        func() time.Time

	mu        sync.Mutex
	version   uint64
	objects   map[ID]*unstructured.Unstructured // never changed, but replaced
	history   []change                          // oldest first
	forgotten uint64                            // the last version whose change is not in the history
	changed   chan struct{}                     // closed with the next change
}

// NewStore returns a store of resources in namespaces.
func NewStore(resources []Resource, namespaces []string, now func() time.Time) *Store {
	return &Store{
		resources: resources, namespaces: namespaces, now: now, version: 1, forgotten: 1,
		objects: map[ID]*unstructured.Unstructured{}, changed: make(chan struct{}),
	}
}

// resource finds one by its name in paths.
func (s *Store) resource(plural string) *Resource {
	i := slices.IndexFunc(s.resources, func(r Resource) bool { return r.Plural == plural })
	if i < 0 {
		return nil
	}
	return &s.resources[i]
}

// Version is the version of the last change.
func (s *Store) Version() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Forget drops what is kept of changes: who watches from before has to begin anew.
func (s *Store) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.forgotten = nil, s.version
	s.wake()
}

func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// commit replaces an object; the caller holds the lock.
func (s *Store) commit(id ID, before, after *unstructured.Unstructured) {
	s.version++
	if after == nil {
		delete(s.objects, id)
	} else {
		after.SetResourceVersion(strconv.FormatUint(s.version, 10))
		s.objects[id] = after
	}
	s.history = append(s.history, change{s.version, id.Plural, before, after})
	if len(s.history) > Remembered {
		drop := len(s.history) - Remembered*3/4
		s.forgotten = s.history[drop-1].version
		s.history = slices.Delete(s.history, 0, drop)
	}
	s.wake()
}

// Get returns an object.
func (s *Store) Get(id ID) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.get(id)
	if err != nil {
		return nil, err
	}
	return o.DeepCopy(), nil
}

func (s *Store) get(id ID) (*unstructured.Unstructured, error) {
	if o := s.objects[id]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(s.resource(id.Plural).group(), id.Name)
}

// List returns the objects of a resource in a namespace, "" is in all, in order of their names.
func (s *Store) List(plural, namespace string) []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.at(s.version, plural, namespace)
	for i := range found {
		found[i] = found[i].DeepCopy()
	}
	return found
}

// at returns the objects as they were at a version that is remembered; the caller holds the lock.
func (s *Store) at(version uint64, plural, namespace string) []*unstructured.Unstructured {
	of := func(id ID) bool { return id.Plural == plural && (namespace == "" || id.Namespace == namespace) }
	was := map[ID]*unstructured.Unstructured{}
	for id, o := range s.objects {
		if of(id) {
			was[id] = o
		}
	}
	for i := len(s.history) - 1; i >= 0 && s.history[i].version > version; i-- {
		c := &s.history[i]
		o := c.is()
		if id := (ID{c.plural, o.GetNamespace(), o.GetName()}); !of(id) {
			continue
		} else if c.before == nil {
			delete(was, id)
		} else {
			was[id] = c.before
		}
	}
	out := make([]*unstructured.Unstructured, 0, len(was))
	for _, o := range was {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return out
}

// Create adds an object. Its status is left out, as it is written by itself. A dry run only tells
// what would come of it.
func (s *Store) Create(plural, namespace string, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	r := s.resource(plural)
	if err := s.fits(r, namespace, o); err != nil {
		return nil, err
	}
	o = o.DeepCopy()
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + rand.String(5))
	}
	if err := named(r, o.GetName()); err != nil {
		return nil, err
	}
	if o.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := ID{plural, namespace, o.GetName()}
	switch {
	case !slices.Contains(s.namespaces, namespace):
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
	case s.objects[id] != nil:
		return nil, apierrors.NewAlreadyExists(r.group(), id.Name)
	}
	o.SetNamespace(namespace)
	o.SetUID(types.UID(uuid.NewString()))
	o.SetCreationTimestamp(metav1.NewTime(s.now().UTC().Truncate(time.Second)))
	o.SetGeneration(1)
	o.SetDeletionTimestamp(nil)
	delete(o.Object, "status")
	if !dryRun {
		s.commit(id, nil, o)
	}
	return o.DeepCopy(), nil
}

// fits says whether an object is of a resource and a namespace.
func (s *Store) fits(r *Resource, namespace string, o *unstructured.Unstructured) error {
	if got := o.GroupVersionKind(); got != r.GroupVersionKind {
		if got.Kind == "" || got.Version == "" {
			return apierrors.NewBadRequest("the object has no kind or no apiVersion")
		}
		if got.GroupVersion() != r.GroupVersion() {
			return apierrors.NewBadRequest(fmt.Sprintf("%s does not match the expected %s", got, r.GroupVersionKind))
		}
		return apierrors.NewInvalid(got.GroupKind(), o.GetName(), field.ErrorList{field.Invalid(field.NewPath("kind"), got.Kind, "must be "+r.Kind)})
	}
	if ns := o.GetNamespace(); ns != "" && ns != namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// named says whether an object may be called so (RFC 1123, as Kubernetes has it).
func named(r *Resource, name string) error {
	at := field.NewPath("metadata", "name")
	if name == "" {
		return apierrors.NewInvalid(r.GroupKind(), name, field.ErrorList{field.Required(at, "name or generateName is required")})
	}
	if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
		return apierrors.NewInvalid(r.GroupKind(), name, field.ErrorList{field.Invalid(at, name, strings.Join(bad, "; "))})
	}
	return nil
}

// errModified is what a writer is told who has not read the last version.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

// Change has fn make another object out of one, and takes a part of it. An object that has a resource
// version, and not the present one, is refused as a conflict. A change to nothing is none.
func (s *Store) Change(
	id ID, part Part, dryRun bool, fn func(now *unstructured.Unstructured) (*unstructured.Unstructured, error),
) (*unstructured.Unstructured, error) {
	r := s.resource(id.Plural)
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.get(id)
	if err != nil {
		return nil, err
	}
	want, err := fn(now.DeepCopy())
	if err != nil {
		return nil, err
	}
	if err := s.fits(r, id.Namespace, want); err != nil {
		return nil, err
	}
	if want.GetName() != id.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", want.GetName(), id.Name))
	}
	if v := want.GetResourceVersion(); v != "" && v != now.GetResourceVersion() || want.GetUID() != "" && want.GetUID() != now.GetUID() {
		return nil, apierrors.NewConflict(r.group(), id.Name, errModified)
	}
	next := now.DeepCopy()
	if part == Status {
		take(next, want, "status")
	} else {
		next = want.DeepCopy()
		take(next, now, "status")
		next.SetNamespace(id.Namespace)
		next.SetUID(now.GetUID())
		next.SetCreationTimestamp(now.GetCreationTimestamp())
		next.SetDeletionTimestamp(now.GetDeletionTimestamp())
		next.SetGeneration(now.GetGeneration())
		if !equality.Semantic.DeepEqual(body(next), body(now)) {
			next.SetGeneration(now.GetGeneration() + 1)
		}
	}
	next.SetResourceVersion(now.GetResourceVersion())
	if equality.Semantic.DeepEqual(next.Object, now.Object) || dryRun {
		return next, nil
	}
	s.commit(id, now, next)
	return next.DeepCopy(), nil
}

// take replaces a field of an object by that of another one.
func take(into, from *unstructured.Unstructured, name string) {
	if v, ok := from.Object[name]; ok {
		into.Object[name] = v
	} else {
		delete(into.Object, name)
	}
}

// body is what of an object the generation counts the changes of.
func body(o *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for k, v := range o.Object {
		if k != "metadata" && k != "status" {
			out[k] = v
		}
	}
	return out
}

// Delete removes an object that has what the preconditions say, and returns it as it was.
func (s *Store) Delete(id ID, pre *metav1.Preconditions, dryRun bool) (*unstructured.Unstructured, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.get(id)
	if err != nil {
		return nil, err
	}
	if pre != nil {
		group := s.resource(id.Plural).group()
		if pre.UID != nil && *pre.UID != now.GetUID() {
			return nil, apierrors.NewConflict(group, id.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", *pre.UID, now.GetUID()))
		}
		if pre.ResourceVersion != nil && *pre.ResourceVersion != now.GetResourceVersion() {
			return nil, apierrors.NewConflict(group, id.Name, fmt.Errorf(
				"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s)", *pre.ResourceVersion, now.GetResourceVersion(),
			))
		}
	}
	if !dryRun {
		s.commit(id, now, nil)
	}
	return now.DeepCopy(), nil
}

// State is what a store keeps when it stops.
type State struct {
	Version uint64            `json:"version"`
	Objects []json.RawMessage `json:"objects,omitempty"`
}

// versionGap is by how many versions a store goes on that may have lost its last changes, so that no
// version is given to two of them.
const versionGap = 100_000

// State returns a copy of what is kept.
func (s *Store) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{Version: s.version}
	for _, r := range s.resources {
		for _, o := range s.at(s.version, r.Plural, "") {
			if b, err := json.Marshal(o.Object); err == nil {
				st.Objects = append(st.Objects, b)
			}
		}
	}
	return st
}

// Restore takes up what was kept. Lossy says that it may be older than the last change.
func (s *Store) Restore(st State, lossy bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = max(s.version, st.Version)
	if lossy {
		s.version += versionGap
	}
	s.forgotten = s.version
	for _, b := range st.Objects {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(b); err != nil {
			return fmt.Errorf("restore an object: %w", err)
		}
		for _, r := range s.resources {
			if r.GroupVersionKind == o.GroupVersionKind() {
				s.objects[ID{r.Plural, o.GetNamespace(), o.GetName()}] = o
			}
		}
	}
	return nil
}
