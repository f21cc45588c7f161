package kube

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	bookmarkEvery = 10 * time.Second
	glance        = 250 * time.Millisecond // between looks whether a watch is to be cut
	watchTime     = 30 * time.Minute       // of one without a bound
)

// selection is which objects a list or a watch is of.
type selection struct {
	plural, namespace string
	labels            labels.Selector
	fields            fields.Selector
}

func selected(plural, namespace string, q url.Values) (sel selection, err error) {
	sel = selection{plural: plural, namespace: namespace}
	if sel.labels, err = labels.Parse(q.Get("labelSelector")); err != nil {
		return sel, apierrors.NewBadRequest(fmt.Sprintf("unable to parse the label selector: %v", err))
	}
	if sel.fields, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
		return sel, apierrors.NewBadRequest(fmt.Sprintf("unable to parse the field selector: %v", err))
	}
	for _, r := range sel.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return sel, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	return sel, nil
}

func (sel *selection) has(o *unstructured.Unstructured) bool {
	return o != nil && (sel.namespace == "" || o.GetNamespace() == sel.namespace) && sel.labels.Matches(labels.Set(o.GetLabels())) &&
		sel.fields.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
}

// token goes on with a list, where it was and as it was.
type token struct {
	Version uint64 `json:"rv"`
	After   string `json:"after"` // namespace/name
}

func (t token) String() string {
	b, _ := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(text string) (t token, err error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err != nil {
		return t, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
	}
	return t, nil
}

func versionOf(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: %v", text, err))
	}
	return v, nil
}

func tooLarge(asked, now uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", asked, now), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// list answers a list, or a page of it.
func (s *Store) list(sel *selection, q url.Values) (*unstructured.UnstructuredList, error) {
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil && q.Get("limit") != "" || limit < 0 {
		return nil, apierrors.NewBadRequest("limit is no number")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := token{Version: s.version}
	switch v := q.Get("resourceVersion"); {
	case q.Get("continue") != "":
		if from, err = parseToken(q.Get("continue")); err != nil {
			return nil, err
		}
		if v != "" && v != "0" {
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
	case v != "" && v != "0":
		asked, err := versionOf(v)
		switch {
		case err != nil:
			return nil, err
		case asked > s.version:
			return nil, tooLarge(asked, s.version)
		case q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact):
			from.Version = asked
		}
	}
	if from.Version < s.forgotten {
		return nil, apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
	}
	r := s.resource(sel.plural)
	out := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": r.GroupVersion().String(), "kind": r.Kind + "List"}}
	out.SetResourceVersion(strconv.FormatUint(from.Version, 10))
	out.Items = []unstructured.Unstructured{}
	left := int64(0)
	for _, o := range s.at(from.Version, sel.plural, sel.namespace) {
		at := o.GetNamespace() + "/" + o.GetName()
		if at <= from.After || !sel.has(o) {
			continue
		}
		if limit > 0 && len(out.Items) == limit {
			left++
			continue
		}
		out.Items = append(out.Items, *o)
	}
	if left > 0 {
		last := &out.Items[len(out.Items)-1]
		out.SetContinue(token{from.Version, last.GetNamespace() + "/" + last.GetName()}.String())
		out.SetRemainingItemCount(&left)
	}
	return out, nil
}

// event is a line of a watch.
type event struct {
	Type   watch.EventType `json:"type"`
	Object any             `json:"object"`
}

// after returns what a watch is to be told of the changes after a version, and the version of the last.
func (s *Store) after(sel *selection, version uint64) (out []event, now uint64, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.forgotten {
		return nil, version, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, s.forgotten))
	}
	for i := sort.Search(len(s.history), func(i int) bool { return s.history[i].version > version }); i < len(s.history); i++ {
		c := &s.history[i]
		if c.plural != sel.plural {
			continue
		}
		was, is := sel.has(c.before), sel.has(c.after)
		switch {
		case is && !was:
			out = append(out, event{watch.Added, c.after})
		case is:
			out = append(out, event{watch.Modified, c.after})
		case was: // or it is no longer one of these
			gone := c.before.DeepCopy()
			gone.SetResourceVersion(strconv.FormatUint(c.version, 10))
			out = append(out, event{watch.Deleted, gone})
		}
	}
	return out, s.version, s.changed, nil
}

// begin returns where a watch begins, and the objects that it is told of first.
func (s *Store) begin(sel *selection, q url.Values) (first []event, version uint64, err error) {
	asked := q.Get("resourceVersion")
	if asked != "" && asked != "0" {
		if version, err = versionOf(asked); err != nil {
			return nil, 0, err
		}
	}
	initial := q.Get("sendInitialEvents")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case version > s.version:
		return nil, 0, tooLarge(version, s.version)
	case initial == "true" && q.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan):
		return nil, 0, apierrors.NewBadRequest("sendInitialEvents needs resourceVersionMatch=NotOlderThan")
	case initial == "true", version == 0 && initial == "":
		for _, o := range s.at(s.version, sel.plural, sel.namespace) {
			if sel.has(o) {
				first = append(first, event{watch.Added, o})
			}
		}
		return first, s.version, nil
	case version == 0:
		return nil, s.version, nil
	}
	return nil, version, nil
}

// bookmark tells a watch how far it is.
func (s *Store) bookmark(plural string, version uint64, initial bool) event {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(s.resource(plural).GroupVersionKind)
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	if initial {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return event{watch.Bookmark, o}
}

// watch writes events until the client goes, the time is up, or the server is away.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, sel *selection) error {
	q := r.URL.Query()
	first, version, err := h.store.begin(sel, q)
	if err != nil {
		return err
	}
	bookmarks := q.Get("allowWatchBookmarks") == "true"
	if q.Get("sendInitialEvents") == "true" && bookmarks {
		first = append(first, h.store.bookmark(sel.plural, version, true))
	}
	until := watchTime
	if n, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil && n > 0 {
		until = time.Duration(n) * time.Second
	}
	end := time.NewTimer(until)
	defer end.Stop()
	look := time.NewTicker(glance)
	defer look.Stop()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	send := func(events []event) error {
		for _, e := range events {
			if err := out.Encode(e); err != nil {
				return err
			}
		}
		return http.NewResponseController(w).Flush()
	}
	if send(first) != nil {
		return nil
	}
	for told := time.Now(); ; {
		events, now, changed, err := h.store.after(sel, version)
		if err != nil { // told in the stream, for the answer has begun
			status := statusOf(err)
			_ = send([]event{{watch.Error, &status}})
			return nil
		}
		if version = now; len(events) == 0 && bookmarks && time.Since(told) > bookmarkEvery {
			events, told = append(events, h.store.bookmark(sel.plural, version, false)), time.Now()
		}
		if len(events) > 0 && send(events) != nil {
			return nil
		}
		for waiting := true; waiting; {
			select {
			case <-changed:
				waiting = false
			case <-look.C:
				if h.fault().Away {
					panic(http.ErrAbortHandler)
				}
				waiting = !bookmarks || time.Since(told) <= bookmarkEvery
			case <-end.C:
				return nil
			case <-r.Context().Done():
				return nil
			}
		}
	}
}
