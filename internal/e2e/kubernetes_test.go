package e2e

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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"auspex/schemas"
)

// kubernetes speaks to a real API server as its administrator, who plays kubelet too.
type kubernetes struct {
	t *testing.T
	c *rest.RESTClient
}

func newKubernetes(t *testing.T) kubernetes {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", peer(t, "KUBE_ADMIN"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.APIPath, cfg.GroupVersion = "/api", &schema.GroupVersion{Version: "v1"}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes{t, c}
}

func (k kubernetes) do(verb, path, body string, out any) {
	k.t.Helper()
	kind := "application/json"
	switch {
	case strings.HasSuffix(path, "?fieldManager=test&force=true"):
		kind = string(types.ApplyPatchType)
	case verb == "PATCH":
		kind = string(types.MergePatchType)
	}
	raw, err := k.c.Verb(verb).RequestURI(path).SetHeader("Content-Type", kind).Body([]byte(body)).DoRaw(k.t.Context())
	if err == nil && out != nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		k.t.Fatalf("%s %s: %v\n%.500s", verb, path, err, raw)
	}
}

func (k kubernetes) apply(path, body string) {
	k.t.Helper()
	k.do("PATCH", path+"?fieldManager=test&force=true", body, nil)
}

// rights gives the user auspex what the manifest gives its service account.
func (k kubernetes) rights() {
	k.t.Helper()
	b, err := os.ReadFile("../../deploy/kubernetes/rbac.yaml")
	if err != nil {
		k.t.Fatal(err)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	for {
		var doc map[string]any
		if dec.Decode(&doc) != nil {
			return
		}
		kind := strings.ToLower(fmt.Sprint(doc["kind"]))
		meta, _ := doc["metadata"].(map[string]any)
		if meta["name"] != "auspex-control" { // the rights of the collector are its own
			continue
		}
		if kind == "clusterrolebinding" {
			doc["subjects"] = []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "auspex"}}
		} else if kind != "clusterrole" {
			continue
		}
		text, err := json.Marshal(doc)
		if err != nil {
			k.t.Fatal(err)
		}
		k.apply("/apis/rbac.authorization.k8s.io/v1/"+kind+"s/auspex-control", string(text))
	}
}

// A lost GPU takes its server out of a real Kubernetes. While a disruption budget holds the drain, API server and
// product are killed: the drain is no success, ends once the budget allows it, and nothing is done twice.
func TestALostGPUIsDrainedOnRealKubernetesOverAKillOfBoth(t *testing.T) {
	beside(t)
	k := newKubernetes(t)
	k.rights()
	const space, pods, budget = "/api/v1/namespaces/e2e", "/api/v1/namespaces/e2e/pods", "/apis/policy/v1/namespaces/e2e/poddisruptionbudgets/keep"
	k.apply(space, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"e2e"}}`)
	k.do("POST", "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"gpu1"}}`, nil)
	t.Cleanup(func() { // another run finds none of it
		_ = k.c.Delete().RequestURI("/api/v1/nodes/gpu1").Do(context.Background()).Error()
		_ = k.c.Delete().RequestURI("/apis/apps/v1/namespaces/e2e/replicasets/train").Do(context.Background()).Error()
	})
	k.do("PATCH", "/api/v1/nodes/gpu1/status", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, nil)
	var owner struct{ Metadata struct{ UID string } }
	k.do("POST", "/apis/apps/v1/namespaces/e2e/replicasets", `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"train"},"spec":{
		"selector":{"matchLabels":{"app":"train"}},"template":{"metadata":{"labels":{"app":"train"}},"spec":{"containers":[{"name":"c","image":"x"}]}}}}`, &owner)
	k.do("POST", pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"train-1","labels":{"app":"train"},"ownerReferences":[
		{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"train","uid":"`+owner.Metadata.UID+`","controller":true}]},
		"spec":{"nodeName":"gpu1","containers":[{"name":"c","image":"x"}]}}`, nil)
	k.do("PATCH", pods+"/train-1/status", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, nil)
	demand := func(least int) {
		k.apply(budget, `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"keep"},"spec":{
			"minAvailable":`+strconv.Itoa(least)+`,"selector":{"matchLabels":{"app":"train"}}}}`)
	}
	demand(1)

	dir := dataDir(t)
	kmsg := write(t, dir, "kmsg", "6,1,1000,-;Linux version 6.1.0\n")
	policy := write(t, dir, "policy.yaml", `budgets: {fleet: 4, rack: 1, per_hour: 6}
breaker: {cases: 6, window: 10m}
policies:
  - name: gpu-lost
    faults: [gpu.fallen_off_bus]
    min_confidence: 0.1
    settle: 1s
    max_evidence_age: 15m
    ladder: [{kind: drain, verify: 10m}]
`)
	args := append(site(t, dir,
		schemas.Resource{ID: "gpu1", Kind: schemas.KindServer, Parent: "dc1-r01", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrKmsgPath: kmsg})},
		schemas.Resource{ID: "gpu1/gpu3", Kind: schemas.KindGPU, Parent: "gpu1", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:13:00.0"})},
	),
		"--set", "collectors.kmsg={}", "--set", "control.kubernetes.kubeconfig="+peer(t, "KUBE_AUSPEX"), "--set", "control.policies="+policy,
		"--mode", "enforce", "--set", "store.clickhouse=off")
	p := launch(t, dir, args...)
	p.ready()
	f, err := os.OpenFile(kmsg, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range []string{
		"NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
		"NVRM: GPU 0000:13:00.0: GPU has fallen off the bus.",
	} {
		fmt.Fprintf(f, "3,%d,%d,-;%s\n", 100+i, 5_000_000+i, line)
	}
	f.Close()

	type node struct {
		Metadata struct {
			Annotations map[string]string
		}
		Spec struct {
			Unschedulable bool
			Taints        []struct{ Key string }
		}
	}
	marked := func() (mark string) {
		var n node
		k.do("GET", "/api/v1/nodes/gpu1", "", &n)
		if !n.Spec.Unschedulable || !strings.Contains(fmt.Sprint(n.Spec.Taints), "auspex.io/cordoned") {
			return ""
		}
		return n.Metadata.Annotations["auspex.io/cordon"]
	}
	var mark string
	p.await("the node is cordoned with a mark", func() error {
		if mark = marked(); mark == "" {
			return errors.New("it is not")
		}
		return nil
	})
	waits := func() {
		t.Helper()
		acts, err := p.actionsOn("gpu1")
		if err != nil {
			t.Fatal(err)
		}
		if a := acts["drain"]; a.State != schemas.ActionVerifying || !strings.Contains(mark, a.ID) {
			t.Fatalf("drain is %s (%s); the mark is %s", a.State, a.Detail, mark)
		}
	}
	time.Sleep(2 * time.Second) // in which it could succeed wrongly
	waits()

	state := peer(t, "KUBE_DIR")
	b, err := os.ReadFile(filepath.Join(state, "kube-api.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(b))[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // the same
	waits()
	p.kill()
	p = launch(t, dir, args...)
	p.ready()
	time.Sleep(2 * time.Second) // the same
	waits()
	if out, err := exec.Command("../../test/peers/kube.sh", "start", state).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if now := marked(); now != mark {
		t.Errorf("the mark was %s and is %s: the step was sent again", mark, now)
	}
	demand(0)
	p.await("the pod is to end", func() error {
		var pod struct {
			Metadata struct{ DeletionTimestamp string }
		}
		k.do("GET", pods+"/train-1", "", &pod)
		if pod.Metadata.DeletionTimestamp == "" {
			return errors.New("it runs")
		}
		return nil
	})
	waits()
	k.do("DELETE", pods+"/train-1", `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`, nil)
	p.await("the drain is verified", func() error {
		acts, err := p.actionsOn("gpu1")
		if err != nil {
			return err
		}
		if a := acts["drain"]; a.State != schemas.ActionDone || !strings.Contains(a.VerifiedBy, "no pod is left") {
			return fmt.Errorf("it is %s: %s %s", a.State, a.Detail, a.VerifiedBy)
		}
		return nil
	})
}
