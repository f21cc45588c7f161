package kube

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/version"

	"auspex/internal/sim/device"
)

// maxBody bounds a request, as kube-apiserver does.
const maxBody = 3 << 20

// Version is what the server says it is.
const Version = "v1.36.3"

// Handler answers HTTP requests.
type Handler struct {
	store *Store
	token string
	fault func() device.Fault
}

// NewHandler returns the interface to a store for who has the token. Fault says how answers go wrong.
func NewHandler(store *Store, token string, fault func() device.Fault) *Handler {
	return &Handler{store: store, token: token, fault: fault}
}

// statusOf is an error as it is answered.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, err error) {
	status := statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	reply(w, int(status.Code), &status)
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := h.fault()
	if fault.Away {
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}
	if fault.Delay > 0 {
		late := time.NewTimer(fault.Delay)
		defer late.Stop()
		select {
		case <-late.C:
		case <-r.Context().Done():
			return
		}
	}
	switch r.URL.Path { // open to all, as the role system:public-info-viewer has it
	case "/healthz", "/livez", "/readyz":
		_, _ = io.WriteString(w, "ok")
		return
	case "/version":
		reply(w, http.StatusOK, version.Info{Major: "1", Minor: "36", GitVersion: Version, GoVersion: "go", Compiler: "gc", Platform: "linux/amd64"})
		return
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(h.token)) != 1 {
		fail(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if fault.Status != 0 {
		fail(w, apierrors.NewGenericServerResponse(fault.Status, strings.ToLower(r.Method), schema.GroupResource{}, "", "the simulator was told to", 0, true))
		return
	}
	if err := h.route(w, r, strings.Split(strings.Trim(r.URL.Path, "/"), "/")); err != nil {
		fail(w, err)
	}
}

var errNoPath = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource",
	Details: &metav1.StatusDetails{},
}}

func (h *Handler) route(w http.ResponseWriter, r *http.Request, seg []string) error {
	if doc := h.discovery(seg); doc != nil {
		if r.Method != http.MethodGet {
			return apierrors.NewMethodNotSupported(schema.GroupResource{}, strings.ToLower(r.Method))
		}
		reply(w, http.StatusOK, doc)
		return nil
	}
	if len(seg) < 4 || seg[0] != "apis" {
		return errNoPath
	}
	gv, rest := schema.GroupVersion{Group: seg[1], Version: seg[2]}, seg[3:]
	var id ID
	if rest[0] == "namespaces" && len(rest) > 2 {
		id.Namespace, rest = rest[1], rest[2:]
	}
	id.Plural = rest[0]
	res := h.store.resource(id.Plural)
	if res == nil || res.GroupVersion() != gv || len(rest) > 3 || len(rest) > 1 && id.Namespace == "" {
		return errNoPath
	}
	if len(rest) == 1 {
		return h.collection(w, r, res, &id)
	}
	id.Name = rest[1]
	part := Main
	if len(rest) == 3 {
		if part = Part(rest[2]); part != Status {
			return errNoPath
		}
	}
	return h.object(w, r, res, id, part)
}

// discovery returns a document that says what there is, or nil.
func (h *Handler) discovery(seg []string) any {
	groups := map[string]metav1.APIGroup{}
	for _, r := range h.store.resources {
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.GroupVersion().String(), Version: r.Version}
		groups[r.Group] = metav1.APIGroup{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
		}
	}
	switch {
	case len(seg) == 1 && seg[0] == "api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case len(seg) >= 2 && seg[0] == "api" && seg[1] == "v1":
		return h.core(seg[2:])
	case len(seg) == 1 && seg[0] == "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, g := range groups {
			list.Groups = append(list.Groups, g)
		}
		return &list
	case len(seg) == 2 && seg[0] == "apis":
		if g, ok := groups[seg[1]]; ok {
			return &g
		}
	case len(seg) == 3 && seg[0] == "apis":
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: seg[1] + "/" + seg[2]}
		for _, r := range h.store.resources {
			if r.GroupVersion().String() == list.GroupVersion {
				list.APIResources = append(list.APIResources, metav1.APIResource{
					Name: r.Plural, SingularName: r.Singular, Namespaced: true, Kind: r.Kind, ShortNames: r.Short,
					Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
				}, metav1.APIResource{Name: r.Plural + "/status", Namespaced: true, Kind: r.Kind, Verbs: metav1.Verbs{"get", "patch", "update"}})
			}
		}
		if list.APIResources != nil {
			return &list
		}
	}
	return nil
}

// core answers what there is of the group without a name: namespaces, to read.
func (h *Handler) core(seg []string) any {
	namespace := func(name string) map[string]any {
		return map[string]any{
			"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": name, "resourceVersion": "1", "uid": name},
			"status": map[string]any{"phase": "Active"},
		}
	}
	switch {
	case len(seg) == 0:
		return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", Verbs: metav1.Verbs{"get", "list"}, ShortNames: []string{"ns"}},
		}}
	case seg[0] != "namespaces" || len(seg) > 2:
		return nil
	case len(seg) == 2:
		if slices.Contains(h.store.namespaces, seg[1]) {
			return namespace(seg[1])
		}
		return nil
	}
	items := []any{}
	for _, name := range h.store.namespaces {
		items = append(items, namespace(name))
	}
	return map[string]any{"kind": "NamespaceList", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": items}
}

// collection answers requests to all objects of a resource.
func (h *Handler) collection(w http.ResponseWriter, r *http.Request, res *Resource, id *ID) error {
	q := r.URL.Query()
	sel, err := selected(id.Plural, id.Namespace, q)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet:
		if q.Get("watch") == "true" || q.Get("watch") == "1" {
			return h.watch(w, r, &sel)
		}
		list, err := h.store.list(&sel, q)
		if err != nil {
			return err
		}
		reply(w, http.StatusOK, list)
		return nil
	case http.MethodPost:
		if id.Namespace == "" {
			break
		}
		o, err := read(r)
		if err != nil {
			return err
		}
		if o, err = h.store.Create(id.Plural, id.Namespace, o, dryRun(r)); err != nil {
			return err
		}
		reply(w, http.StatusCreated, o)
		return nil
	case http.MethodDelete:
		if id.Namespace == "" {
			break
		}
		list, err := h.store.list(&sel, q)
		if err != nil {
			return err
		}
		for i := range list.Items {
			o := &list.Items[i]
			if _, err := h.store.Delete(ID{id.Plural, o.GetNamespace(), o.GetName()}, nil, dryRun(r)); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		reply(w, http.StatusOK, list)
		return nil
	}
	return apierrors.NewMethodNotSupported(res.group(), strings.ToLower(r.Method))
}

// object answers requests to one object, or to its status.
func (h *Handler) object(w http.ResponseWriter, r *http.Request, res *Resource, id ID, part Part) error {
	var o *unstructured.Unstructured
	var err error
	switch {
	case r.Method == http.MethodGet:
		o, err = h.store.Get(id)
	case r.Method == http.MethodPut:
		var want *unstructured.Unstructured
		if want, err = read(r); err != nil {
			return err
		}
		if want.GetResourceVersion() == "" { // a custom resource is not updated unconditionally
			return apierrors.NewInvalid(res.GroupKind(), id.Name, mustBeSet())
		}
		o, err = h.store.Change(id, part, dryRun(r), func(*unstructured.Unstructured) (*unstructured.Unstructured, error) { return want, nil })
	case r.Method == http.MethodPatch:
		o, err = h.patch(r, res, id, part)
	case r.Method == http.MethodDelete && part == Main:
		return h.remove(w, r, res, id)
	default:
		return apierrors.NewMethodNotSupported(res.group(), strings.ToLower(r.Method))
	}
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, o)
	return nil
}

func (h *Handler) remove(w http.ResponseWriter, r *http.Request, res *Resource, id ID) error {
	var o metav1.DeleteOptions
	b, _, err := content(r)
	if err == nil && len(b) > 0 {
		if err = json.Unmarshal(b, &o); err != nil {
			err = apierrors.NewBadRequest("the options cannot be read: " + err.Error())
		}
	}
	if err != nil {
		return err
	}
	gone, err := h.store.Delete(id, o.Preconditions, dryRun(r) || slices.Contains(o.DryRun, metav1.DryRunAll))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: id.Name, Group: res.Group, Kind: id.Plural, UID: gone.GetUID()},
	})
	return nil
}

func dryRun(r *http.Request) bool { return slices.Contains(r.URL.Query()["dryRun"], metav1.DryRunAll) }

// content reads what a request brings, and of what type it is.
func content(r *http.Request) ([]byte, string, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, "", apierrors.NewBadRequest(err.Error())
	case len(b) > maxBody:
		return nil, "", apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = runtime.ContentTypeJSON
	}
	return b, kind, nil
}

// read reads an object.
func read(r *http.Request) (*unstructured.Unstructured, error) {
	b, kind, err := content(r)
	if err != nil {
		return nil, err
	}
	return parse(b, kind)
}

func parse(b []byte, kind string) (*unstructured.Unstructured, error) {
	var err error
	switch kind {
	case runtime.ContentTypeJSON:
	case runtime.ContentTypeYAML:
		if b, err = utilyaml.ToJSON(b); err != nil {
			return nil, apierrors.NewBadRequest("the object is no YAML: " + err.Error())
		}
	default:
		return nil, unsupported(kind)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(b); err != nil {
		return nil, apierrors.NewBadRequest("the object cannot be read: " + err.Error())
	}
	if o.IsList() {
		return nil, apierrors.NewBadRequest("a list is no object")
	}
	return o, nil
}

func unsupported(kind string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format (%s)", kind),
	}}
}
