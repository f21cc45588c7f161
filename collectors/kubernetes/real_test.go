package kubernetes

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/kube"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// admin is the administrator of a real API server, who plays scheduler and kubelet too.
type admin struct {
	*testing.T
	cfg   Config
	api   kube.Client
	space string
}

func (a *admin) do(verb, path string, kind types.PatchType, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if kind == "" {
		kind = "application/json"
	}
	return a.api.Do(context.WithoutCancel(a.Context()), a.cfg.rest, func(c *rest.RESTClient) *rest.Request {
		return c.Verb(verb).RequestURI(path).SetHeader("Content-Type", string(kind)).Body(b)
	}, nil)
}

func (a *admin) must(verb, path string, kind types.PatchType, body any) {
	a.Helper()
	if err := a.do(verb, path, kind, body); err != nil {
		a.Fatal(err)
	}
}

// uid reads what an object is called in truth.
func (a *admin) uid(path string) string {
	a.Helper()
	b, err := a.api.Raw(a.Context(), a.cfg.rest, func(c *rest.RESTClient) *rest.Request { return c.Get().RequestURI(path) })
	if err != nil {
		a.Fatal(err)
	}
	var o struct {
		Meta metadata `json:"metadata"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		a.Fatal(err)
	}
	return o.Meta.UID
}

// With the rights of the manifest's collector and no others, on a real API server.
func TestWorkloadsAndNodesOfARealClusterAreTold(t *testing.T) {
	file := os.Getenv("KUBE_ADMIN")
	if file == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatal("KUBE_ADMIN is not set: test/e2e.sh starts the peer and sets it")
		}
		t.Skip("KUBE_ADMIN is not set: run `make e2e` to test against this peer")
	}
	a := &admin{T: t, cfg: *Default(), space: "w" + strconv.FormatInt(time.Now().UnixNano(), 36)}
	a.cfg.Kubeconfig = file
	t.Cleanup(a.api.Close)
	user := a.space
	a.rights(user)
	pods := "/api/v1/namespaces/" + a.space + "/pods"
	node := "n-" + a.space
	a.must("POST", "/api/v1/namespaces", "", object{"metadata": object{"name": a.space}})
	a.must("POST", "/api/v1/nodes", "", object{"metadata": object{"name": node, "labels": object{"test": "x"}}})
	t.Cleanup(func() {
		_ = a.do("DELETE", "/api/v1/nodes/"+node, "", object{})
		_ = a.do("DELETE", "/api/v1/namespaces/"+a.space, "", object{})
	})
	a.must("PATCH", "/api/v1/nodes/"+node+"/status?fieldManager=kubelet", types.MergePatchType, object{
		"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}},
	})

	cfg := Default()
	cfg.Kubeconfig, cfg.Interval, cfg.Settle = impersonating(t, file, user), 100*time.Millisecond, time.Second
	s := collectortest.Settings()
	s.Now = time.Now
	rec := collectortest.NewRecorder()
	f := newFollower(cfg, "dc1", s)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx, rec) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	told := func(want string) (found schemas.Event) {
		t.Helper()
		waittest.For(t, want, func() bool {
			for _, ev := range rec.Events() {
				if strings.TrimSpace(ev.Resource+" "+ev.Type+" "+ev.Code) == want {
					found = ev
					return true
				}
			}
			return false
		})
		return found
	}
	told(node + " node.state READY")
	a.must("PATCH", "/api/v1/nodes/"+node+"?fieldManager=ann", types.MergePatchType, object{"spec": object{"unschedulable": true}})
	if ev := told(node + " node.state DRAIN"); ev.Attr("by") != "ann" {
		t.Errorf("cordoned by %q", ev.Attr("by"))
	}

	// A Deployment's pods, through their ReplicaSet; a Job's pods.
	template := object{"metadata": object{"labels": object{"app": "x"}}, "spec": object{"containers": []any{object{"name": "c", "image": "x"}}}}
	apps := "/apis/apps/v1/namespaces/" + a.space
	owned := func(version, kind, name, path string) []any {
		return []any{object{"apiVersion": version, "kind": kind, "name": name, "uid": a.uid(path + "/" + name), "controller": true}}
	}
	spec := object{"replicas": 0, "selector": object{"matchLabels": object{"app": "x"}}, "template": template}
	a.must("POST", apps+"/deployments", "", object{"metadata": object{"name": "serve"}, "spec": spec})
	a.must("POST", apps+"/replicasets", "", object{
		"metadata": object{"name": "serve-1", "ownerReferences": owned("apps/v1", "Deployment", "serve", apps+"/deployments")}, "spec": spec,
	})
	batch := "/apis/batch/v1/namespaces/" + a.space + "/jobs"
	job := object{"metadata": object{"name": "train"}, "spec": object{"suspend": true, "template": object{
		"spec": object{"restartPolicy": "Never", "containers": []any{object{"name": "c", "image": "x"}}},
	}}}
	a.must("POST", batch, "", job)
	start := func(name string, owners []any) {
		a.must("POST", pods, "", object{
			"metadata": object{"name": name, "ownerReferences": owners},
			"spec": object{"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": []any{object{
				"name": "c", "image": "x", "resources": object{"limits": object{"nvidia.com/gpu": "4"}},
			}}},
		})
	}
	status := func(name string, status object) {
		a.must("PATCH", pods+"/"+name+"/status", types.MergePatchType, object{"status": status})
	}
	start("serve-1-a", owned("apps/v1", "ReplicaSet", "serve-1", apps+"/replicasets"))
	start("train-a", owned("batch/v1", "Job", "train", batch))
	start("train-b", owned("batch/v1", "Job", "train", batch))
	for _, p := range []string{"serve-1-a", "train-a", "train-b"} {
		status(p, object{"phase": "Running", "startTime": at(time.Now())})
	}
	serve := a.space + "/serve@" + a.uid(apps + "/deployments/serve")[:8]
	train := a.space + "/train@" + a.uid(batch + "/train")[:8]
	if ev := told(serve + " workload.state RUNNING"); ev.Attr("nodes") != node || ev.Attr("kind") != "Deployment" {
		t.Errorf("%+v", ev.Attrs)
	}
	told(train + " workload.state RUNNING")
	failed := object{"phase": "Failed", "containerStatuses": []any{object{
		"name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
		"state": object{"terminated": object{"exitCode": 137, "reason": "OOMKilled", "finishedAt": at(time.Now()), "startedAt": at(time.Now())}},
	}}}
	status("train-a", failed)
	if ev := told(train + " workload.failed 137"); ev.Attr("reason") != "OOMKilled" || ev.Attr("pod") != "train-a" {
		t.Errorf("%+v", ev.Attrs)
	}
	a.must("DELETE", pods+"/train-b", "", object{})
	told(train + " workload.state OUT_OF_MEMORY")
	a.must("DELETE", pods+"/serve-1-a", "", object{})
	told(serve + " workload.state CANCELLED")

	// Who has no rights is told which one is missing.
	cfg.Kubeconfig = impersonating(t, file, "nobody-"+user)
	err := collectors.Try(t.Context(), cfg, schemas.Resource{ID: "dc1", Kind: schemas.KindSite}, s)
	if err == nil || !strings.Contains(err.Error(), "cannot list resource") {
		t.Errorf("without rights: %v", err)
	}
}

// rights gives a user what the manifest gives the collector, and nothing more.
func (a *admin) rights(user string) {
	a.Helper()
	b, err := os.ReadFile("../../deploy/kubernetes/rbac.yaml")
	if err != nil {
		a.Fatal(err)
	}
	paths := map[string]string{"ClusterRole": "clusterroles/", "ClusterRoleBinding": "clusterrolebindings/"}
	for dec := yaml.NewDecoder(strings.NewReader(string(b))); ; {
		var doc map[string]any
		if dec.Decode(&doc) != nil {
			return
		}
		kind := doc["kind"].(string)
		if metadataOf(doc)["name"] != "auspex-collector" {
			continue
		}
		metadataOf(doc)["name"] = user
		if kind == "ClusterRoleBinding" {
			doc["roleRef"].(object)["name"] = user
			doc["subjects"] = []any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}}
		}
		path := "/apis/rbac.authorization.k8s.io/v1/" + paths[kind] + user
		a.must("PATCH", path+"?fieldManager=test&force=true", types.ApplyPatchType, doc)
		a.Cleanup(func() { _ = a.do("DELETE", path, "", object{}) })
	}
}

// impersonating is the administrator's kubeconfig as another user.
func impersonating(t *testing.T, file, user string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	for _, u := range doc["users"].([]any) {
		u.(object)["user"].(object)["as"] = user
	}
	if b, err = yaml.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir() + "/kubeconfig"
	if err := os.WriteFile(out, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}
