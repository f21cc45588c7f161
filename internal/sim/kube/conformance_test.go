package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// patience guards against what never comes, however busy the machine is.
const patience = 2 * time.Minute

var (
	groupVersion = schema.GroupVersion{Group: "tinkerbell.org", Version: "v1alpha1"}
	workflows    = groupVersion.WithResource("workflows")
)

func workflow(name string, labels map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": groupVersion.String(), "kind": "Workflow",
		"spec":   map[string]any{"templateRef": "first", "hardwareMap": map[string]any{"device_1": "02:00:00:00:00:01"}},
		"status": map[string]any{"state": "STATE_SUCCESS"},
	}}
	o.SetName(name)
	o.SetLabels(labels)
	return o
}

func field(o *unstructured.Unstructured, path ...string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return v
}

// want fails unless an error is of a kind.
func want(t *testing.T, what string, err error, kind func(error) bool) {
	t.Helper()
	if !kind(err) {
		t.Errorf("%s: %v", what, err)
	}
}

// conformance holds an API server against what kube-apiserver answers: it passes against the real one, too.
// Nobody else writes workflows in the namespace, and no controller acts on them.
func conformance(t *testing.T, cfg *rest.Config, namespace string) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	api := client.Resource(workflows).Namespace(namespace)
	web, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer web.CloseIdleConnections()
	ask := func(t *testing.T, path string, into any) int { // without the patience of a client
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return resp.StatusCode
	}
	create := func(t *testing.T, name string, labels map[string]string) *unstructured.Unstructured {
		t.Helper()
		o, err := api.Create(ctx, workflow(name, labels), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}

	t.Run("what there is can be found", func(t *testing.T) {
		get := func(path string, into any) {
			t.Helper()
			if code := ask(t, path, into); code != http.StatusOK {
				t.Errorf("%s: status %d", path, code)
			}
		}
		var v version.Info
		if get("/version", &v); v.Major != "1" {
			t.Error(v)
		}
		var core metav1.APIVersions
		if get("/api", &core); !slices.Equal(core.Versions, []string{"v1"}) {
			t.Error(core)
		}
		var groups metav1.APIGroupList
		get("/apis", &groups)
		if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
			return g.Name == groupVersion.Group && g.PreferredVersion.GroupVersion == groupVersion.String()
		}) {
			t.Errorf("%+v", groups)
		}
		var group metav1.APIGroup
		if get("/apis/"+groupVersion.Group, &group); group.Name != groupVersion.Group {
			t.Errorf("%+v", group)
		}
		var list metav1.APIResourceList
		get("/apis/"+groupVersion.String(), &list)
		var names []string
		for _, r := range list.APIResources {
			names = append(names, r.Name)
			if r.Name == "workflows" && (!r.Namespaced || r.Kind != "Workflow" || !slices.Contains(r.Verbs, "watch")) {
				t.Errorf("%+v", r)
			}
		}
		for _, name := range []string{"hardware", "templates", "workflows", "workflows/status"} {
			if !slices.Contains(names, name) {
				t.Errorf("no %s among %v", name, names)
			}
		}
		for _, path := range []string{"/api/v1", "/api/v1/namespaces/" + namespace} {
			get(path, &map[string]any{})
		}
	})

	t.Run("an object is created once, without a status", func(t *testing.T) {
		o := create(t, "once", nil)
		if o.GetUID() == "" || o.GetResourceVersion() == "" || o.GetGeneration() != 1 || field(o, "metadata", "creationTimestamp") == nil || o.GetNamespace() != namespace {
			t.Errorf("%+v", o.Object)
		}
		if field(o, "status") != nil {
			t.Errorf("status %v was written with the object", field(o, "status"))
		}
		_, err := api.Create(ctx, workflow("once", nil), metav1.CreateOptions{})
		want(t, "create again", err, apierrors.IsAlreadyExists)
		_, err = api.Create(ctx, workflow("Not_A_Name", nil), metav1.CreateOptions{})
		want(t, "a bad name", err, apierrors.IsInvalid)
		bad := workflow("other-kind", nil)
		bad.SetKind("Template")
		_, err = api.Create(ctx, bad, metav1.CreateOptions{})
		want(t, "another kind", err, apierrors.IsInvalid)
		bad = workflow("versioned", nil)
		bad.SetResourceVersion("1")
		_, err = api.Create(ctx, bad, metav1.CreateOptions{})
		want(t, "a version of its own", err, func(err error) bool { return apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) })
		_, err = client.Resource(workflows).Namespace("nowhere").Create(ctx, workflow("once", nil), metav1.CreateOptions{})
		want(t, "a namespace that is not there", err, apierrors.IsNotFound)
		_, err = api.Create(ctx, workflow("dry", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Error(err)
		}
		_, err = api.Get(ctx, "dry", metav1.GetOptions{})
		want(t, "a dry run", err, apierrors.IsNotFound)
		drawn := workflow("", nil)
		drawn.SetGenerateName("drawn-")
		if o, err := api.Create(ctx, drawn, metav1.CreateOptions{}); err != nil || len(o.GetName()) != len("drawn-")+5 {
			t.Error(o, err)
		}
	})

	t.Run("an update needs the last version", func(t *testing.T) {
		first := create(t, "updated", nil)
		o := first.DeepCopy()
		_ = unstructured.SetNestedField(o.Object, "second", "spec", "templateRef")
		_ = unstructured.SetNestedField(o.Object, "STATE_FAILED", "status", "state")
		second, err := api.Update(ctx, o, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if second.GetGeneration() != 2 || second.GetResourceVersion() == first.GetResourceVersion() || field(second, "status") != nil || second.GetUID() != first.GetUID() {
			t.Errorf("%+v", second.Object)
		}
		_, err = api.Update(ctx, o, metav1.UpdateOptions{})
		want(t, "an old version", err, apierrors.IsConflict)
		same, err := api.Update(ctx, second, metav1.UpdateOptions{})
		if err != nil || same.GetResourceVersion() != second.GetResourceVersion() {
			t.Errorf("an update to nothing: %v, version %s after %s", err, same.GetResourceVersion(), second.GetResourceVersion())
		}
		o = second.DeepCopy()
		o.SetResourceVersion("")
		_, err = api.Update(ctx, o, metav1.UpdateOptions{})
		want(t, "no version", err, apierrors.IsInvalid)
		o = second.DeepCopy()
		o.SetLabels(map[string]string{"a": "b"})
		if o, err = api.Update(ctx, o, metav1.UpdateOptions{}); err != nil || o.GetGeneration() != 2 {
			t.Errorf("a label: %v, generation %d", err, o.GetGeneration())
		}
		_, err = api.Update(ctx, workflow("nobody", nil), metav1.UpdateOptions{})
		want(t, "an object that is not there", err, func(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) })
	})

	t.Run("a status is written by itself", func(t *testing.T) {
		o := create(t, "status", nil)
		o.Object["status"] = map[string]any{"state": "STATE_RUNNING"}
		_ = unstructured.SetNestedField(o.Object, "other", "spec", "templateRef")
		is, err := api.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if field(is, "status", "state") != "STATE_RUNNING" || field(is, "spec", "templateRef") != "first" || is.GetGeneration() != 1 {
			t.Errorf("%+v", is.Object)
		}
		is, err = api.Patch(ctx, "status", types.MergePatchType, []byte(`{"status":{"state":"STATE_POST"},"spec":{"templateRef":"no"}}`), metav1.PatchOptions{}, "status")
		if err != nil || field(is, "status", "state") != "STATE_POST" || field(is, "spec", "templateRef") != "first" {
			t.Errorf("%v %+v", err, is)
		}
		is, err = api.Patch(ctx, "status", types.MergePatchType, []byte(`{"status":{"state":"STATE_FAILED"},"spec":{"templateRef":"yes"}}`), metav1.PatchOptions{})
		if err != nil || field(is, "status", "state") != "STATE_POST" || field(is, "spec", "templateRef") != "yes" {
			t.Errorf("%v %+v", err, is)
		}
	})

	t.Run("patches", func(t *testing.T) {
		o := create(t, "patched", nil)
		merged, err := api.Patch(ctx, "patched", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"poke":"1"}},"spec":{"templateRef":null,"hardwareRef":"h"}}`), metav1.PatchOptions{FieldManager: "test"})
		if err != nil || merged.GetAnnotations()["poke"] != "1" || field(merged, "spec", "templateRef") != nil || field(merged, "spec", "hardwareRef") != "h" {
			t.Fatalf("%v %+v", err, merged)
		}
		_, err = api.Patch(ctx, "patched", types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"resourceVersion":%q,"annotations":{"poke":"2"}}}`, o.GetResourceVersion()), metav1.PatchOptions{})
		want(t, "a patch of an old version", err, apierrors.IsConflict)
		is, err := api.Patch(ctx, "patched", types.JSONPatchType, []byte(
			`[{"op":"test","path":"/spec/hardwareRef","value":"h"},{"op":"replace","path":"/spec/hardwareRef","value":"i"},{"op":"remove","path":"/metadata/annotations/poke"}]`,
		), metav1.PatchOptions{})
		if err != nil || field(is, "spec", "hardwareRef") != "i" || len(is.GetAnnotations()) != 0 {
			t.Errorf("%v %+v", err, is)
		}
		_, err = api.Patch(ctx, "patched", types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/hardwareRef","value":"h"}]`), metav1.PatchOptions{})
		want(t, "a test that fails", err, apierrors.IsInvalid)
		_, err = api.Patch(ctx, "patched", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{})
		want(t, "a strategic merge patch", err, apierrors.IsUnsupportedMediaType)
		_, err = api.Patch(ctx, "nobody", types.MergePatchType, []byte(`{"metadata":{"annotations":{"poke":"1"}}}`), metav1.PatchOptions{})
		want(t, "a patch of nothing", err, apierrors.IsNotFound)
	})

	t.Run("a list in pages is as it was when it began", func(t *testing.T) {
		for i := range 5 {
			create(t, "page-"+strconv.Itoa(i), map[string]string{"set": "pages", "n": strconv.Itoa(i)})
		}
		o := metav1.ListOptions{LabelSelector: "set=pages", Limit: 2}
		var names []string
		for page := 0; ; page++ {
			list, err := api.List(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				names = append(names, list.Items[i].GetName())
			}
			if page == 0 {
				if err := api.Delete(ctx, "page-3", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				create(t, "page-9", map[string]string{"set": "pages"})
			}
			if o.Continue = list.GetContinue(); o.Continue == "" {
				break
			}
		}
		if !slices.Equal(names, []string{"page-0", "page-1", "page-2", "page-3", "page-4"}) {
			t.Errorf("pages have %v", names)
		}
		for selector, n := range map[string]int{"set=pages": 5, "n in (0,1)": 2, "set=pages,!n": 1, "set=none": 0} {
			list, err := api.List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil || len(list.Items) != n || list.GetKind() != "WorkflowList" || list.GetResourceVersion() == "" {
				t.Errorf("%s: %v, %d objects of %d", selector, err, len(list.Items), n)
			}
		}
		if list, err := api.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=page-1"}); err != nil || len(list.Items) != 1 {
			t.Error(err, list)
		}
		if list, err := client.Resource(workflows).List(ctx, metav1.ListOptions{LabelSelector: "set=pages"}); err != nil || len(list.Items) != 5 {
			t.Error(err, list)
		}
		_, err := api.List(ctx, metav1.ListOptions{FieldSelector: "spec.nothing=1"})
		want(t, "a field that nobody selects by", err, apierrors.IsBadRequest)
		var status metav1.Status
		ask(t, "/apis/"+groupVersion.String()+"/namespaces/"+namespace+"/workflows?resourceVersion=99999999999&resourceVersionMatch=NotOlderThan", &status)
		want(t, "a version that is to come", apierrors.FromObject(&status), func(err error) bool {
			return apierrors.IsTimeout(err) && apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
		})
	})

	t.Run("a watch tells all changes, and goes on where it was", func(t *testing.T) {
		list, err := api.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		version := list.GetResourceVersion()
		a := create(t, "watched", map[string]string{"set": "watch"})
		create(t, "beside", nil)
		if _, err := api.Patch(ctx, "watched", types.MergePatchType, []byte(`{"status":{"state":"STATE_RUNNING"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		told := func(version string, n int) (out []string, last string) {
			t.Helper()
			w, err := api.Watch(ctx, metav1.ListOptions{LabelSelector: "set=watch", ResourceVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for len(out) < n {
				e, ok := <-w.ResultChan()
				o, is := e.Object.(*unstructured.Unstructured)
				if !ok || !is {
					t.Fatalf("the watch ends after %v with %+v", out, e)
				}
				out, last = append(out, string(e.Type)+" "+o.GetName()), o.GetResourceVersion()
			}
			return out, last
		}
		got, last := told(version, 2)
		if !slices.Equal(got, []string{"ADDED watched", "MODIFIED watched"}) {
			t.Error(got)
		}
		if _, err := api.Patch(ctx, "watched", types.MergePatchType, []byte(`{"metadata":{"labels":{"set":"other"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Patch(ctx, "watched", types.MergePatchType, []byte(`{"metadata":{"labels":{"set":"watch"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		uid := a.GetUID()
		if err := api.Delete(ctx, "watched", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
			t.Fatal(err)
		}
		if got, _ = told(last, 3); !slices.Equal(got, []string{"DELETED watched", "ADDED watched", "DELETED watched"}) {
			t.Error(got)
		}
	})

	t.Run("a watch that begins anew tells where the beginning ends", func(t *testing.T) {
		yes := true
		w, err := api.Watch(ctx, metav1.ListOptions{
			LabelSelector: "set=pages", SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		n := 0
		for e := range w.ResultChan() {
			o := e.Object.(*unstructured.Unstructured)
			if e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				break
			}
			n++
		}
		if n != 5 {
			t.Errorf("told of %d objects of 5", n)
		}
	})

	t.Run("a watch without a version begins with what there is", func(t *testing.T) {
		w, err := api.Watch(ctx, metav1.ListOptions{LabelSelector: "set=pages"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		for range 5 {
			if e := <-w.ResultChan(); e.Type != watch.Added {
				t.Fatalf("%+v", e)
			}
		}
	})

	t.Run("a deletion is of the object that was meant", func(t *testing.T) {
		o := create(t, "deleted", nil)
		other, uid, old := types.UID("other"), o.GetUID(), "1"
		want(t, "another object", api.Delete(ctx, "deleted", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}), apierrors.IsConflict)
		want(t, "another version", api.Delete(ctx, "deleted", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}), apierrors.IsConflict)
		if err := api.Delete(ctx, "deleted", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
			t.Error(err)
		}
		want(t, "once more", api.Delete(ctx, "deleted", metav1.DeleteOptions{}), apierrors.IsNotFound)
		_, err := api.Get(ctx, "deleted", metav1.GetOptions{})
		want(t, "what is gone", err, apierrors.IsNotFound)
		if err := api.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "set=pages"}); err != nil {
			t.Error(err)
		}
		if list, err := api.List(ctx, metav1.ListOptions{LabelSelector: "set=pages"}); err != nil || len(list.Items) > 0 {
			t.Error(err, list)
		}
	})

	t.Run("who has no token is not let in", func(t *testing.T) {
		stranger := rest.CopyConfig(cfg)
		stranger.BearerToken, stranger.BearerTokenFile = "wrong", ""
		c, err := dynamic.NewForConfig(stranger)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Resource(workflows).Namespace(namespace).List(ctx, metav1.ListOptions{})
		want(t, "a wrong token", err, apierrors.IsUnauthorized)
	})

	t.Run("what is not there is not found", func(t *testing.T) {
		_, err := client.Resource(groupVersion.WithResource("nothing")).Namespace(namespace).List(ctx, metav1.ListOptions{})
		want(t, "another resource", err, apierrors.IsNotFound)
		_, err = client.Resource(schema.GroupVersionResource{Group: "nobody.example", Version: "v1", Resource: "things"}).List(ctx, metav1.ListOptions{})
		want(t, "another group", err, apierrors.IsNotFound)
		_, err = api.Get(ctx, "nobody", metav1.GetOptions{})
		want(t, "another object", err, apierrors.IsNotFound)
		if s, ok := err.(apierrors.APIStatus); !ok || s.Status().Code != http.StatusNotFound || s.Status().Details.Name != "nobody" || s.Status().Details.Group != groupVersion.Group { //nolint:errorlint // the client's own type
			t.Errorf("%+v", err)
		}
	})
}
