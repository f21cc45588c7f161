package kubernetes

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"auspex/control"
	"auspex/control/controltest"
)

// server is an API of one node, one pod on its way out and one of a daemon set. What it is
// asked takes place when the test lets it.
type server struct {
	mu    sync.Mutex
	node  map[string]any
	asked int
	patch []byte
	pods  int
}

func newServer() *server {
	return &server{pods: 2, node: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{
			"name": "n1", "resourceVersion": "7", "annotations": map[string]any{markKey: `{"action":"act-earlier"}`, "theirs": "kept"},
		},
		"spec":   map[string]any{"taints": []any{map[string]any{"key": "gpu", "effect": "NoSchedule"}}},
		"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}}
}

// merge is RFC 7396.
func merge(into, patch map[string]any) {
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(into, k)
		case map[string]any:
			old, _ := into[k].(map[string]any)
			if old == nil {
				old = map[string]any{}
			}
			merge(old, v)
			into[k] = old
		default:
			into[k] = v
		}
	}
}

func (s *server) happens(ready string) func() {
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		var p map[string]any
		if json.Unmarshal(s.patch, &p) == nil {
			delete(p["metadata"].(map[string]any), "resourceVersion")
			merge(s.node, p)
		}
		s.patch = nil
		s.node["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}}
	}
}

func (s *server) empties() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = 1
}

func changes(r *http.Request) bool { return r.Method != http.MethodGet }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/api/v1/nodes/n1" && r.Method == http.MethodPatch:
		s.asked++
		s.patch, _ = io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(s.node)
	case r.URL.Path == "/api/v1/nodes/n1":
		_ = json.NewEncoder(w).Encode(s.node)
	case r.URL.Path == "/api/v1/pods":
		yes, now := true, metav1.Now()
		daemon := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "daemon", Namespace: "x", OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: &yes}},
		}}
		leaving := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "leaving", Namespace: "x", DeletionTimestamp: &now}}
		_ = json.NewEncoder(w).Encode(corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{daemon, leaving}[:s.pods],
		})
	case strings.HasPrefix(r.URL.Path, "/apis/policy/v1/"):
		_ = json.NewEncoder(w).Encode(policyv1.PodDisruptionBudgetList{})
	default:
		http.NotFound(w, r)
	}
}

const secretToken = "s3cr3t-token"

func kubeconfigFor(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "` + url + `"}}],
users: [{name: u, user: {token: ` + secretToken + `}}], contexts: [{name: c, context: {cluster: k, user: u}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestConformance(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"drain", "cordon", "uncordon"},
		World: func(t *testing.T, m controltest.Manner) controltest.World {
			s := newServer()
			srv := httptest.NewServer(controltest.Behave(m, s, changes))
			if m == controltest.Gone {
				srv.Close()
			} else {
				t.Cleanup(srv.Close)
			}
			cfg := defaults()
			cfg.Kubeconfig = kubeconfigFor(t, srv.URL)
			return controltest.World{
				Driver: cfg, Server: "n1",
				Asked: func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.asked },
				Effects: map[string][]func(){
					"drain":    {s.happens("True"), s.empties},
					"cordon":   {s.happens("True")},
					"uncordon": {s.happens("Unknown"), s.happens("False"), s.happens("True")},
				},
			}
		},
	})
}

func TestWithoutAKubeconfigThereIsNoDriver(t *testing.T) {
	all, err := defaults().Remediators(control.Settings{})
	if err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}

func TestAConfigurationThatCannotBeIsNamed(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"nodes.by":     func(c *Config) { c.Nodes.By = "luck" },
		"nodes.key":    func(c *Config) { c.Nodes = Nodes{By: byLabel, Key: "a b"} },
		"taint":        func(c *Config) { c.Taint = "" },
		"evict_within": func(c *Config) { c.EvictWithin = 0 },
		"in_cluster":   func(c *Config) { c.Kubeconfig, c.InCluster = "/x", true },
	} {
		c := defaults()
		edit(c)
		if _, err := c.Remediators(control.Settings{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestAnErrorNeverHoldsTheToken(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }))
	t.Cleanup(refusing.Close)
	for name, file := range map[string]string{
		"no YAML":       write("a", "users: [{name: u, user: {token: "+secretToken+": "),
		"another shape": write("b", "users: [{name: u, user: "+secretToken+"}]"),
		"bad base64":    write("c", "{apiVersion: v1, kind: Config, clusters: [{name: k, cluster: {certificate-authority-data: \""+secretToken+"\"}}]}"),
		"no context":    write("d", "{apiVersion: v1, kind: Config, users: [{name: u, user: {token: "+secretToken+"}}]}"),
		"refused":       kubeconfigFor(t, refusing.URL),
	} {
		c := defaults()
		c.Kubeconfig = file
		all, err := c.Remediators(control.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		if err = all["drain"].Apply(t.Context(), control.Step{ID: "a", Server: "n1"}); !errors.Is(err, control.ErrRejected) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), secretToken) {
			t.Errorf("%s: the token is told: %v", name, err)
		}
	}
}

func TestATokenDoesNotFollowARedirect(t *testing.T) {
	asked := make(chan string, 8)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(elsewhere.Close)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(srv.Close)
	c := defaults()
	c.Kubeconfig = kubeconfigFor(t, srv.URL)
	all, err := c.Remediators(control.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all["drain"].Plan(t.Context(), control.Step{Server: "n1"}); err == nil {
		t.Error("a redirect is taken for an answer")
	}
	if len(asked) > 0 {
		t.Errorf("another host was asked, with %q", <-asked)
	}
}

// What a patch replaces must not take what others have set.
func TestAPatchKeepsWhatIsNotOurs(t *testing.T) {
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "7", Annotations: map[string]string{"theirs": "kept"}}}
	old.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: "auspex.io/cordoned", Effect: corev1.TaintEffectNoExecute}}
	k := &cluster{cfg: *defaults(), now: time.Now}
	held := old.DeepCopy()
	if changed, err := k.hold(control.Step{ID: "act-1"})(held); !changed || err != nil {
		t.Fatal(changed, err)
	}
	if len(held.Spec.Taints) != 3 || !held.Spec.Unschedulable {
		t.Errorf("%+v", held.Spec)
	}
	k.release(held)
	if len(held.Spec.Taints) != 2 || held.Spec.Unschedulable || !maps.Equal(held.Annotations, old.Annotations) {
		t.Errorf("%+v %v", held.Spec, held.Annotations)
	}
	p := patchOf(old, held)
	if p["metadata"].(map[string]any)["resourceVersion"] != "7" || len(p["spec"].(map[string]any)) != 0 {
		t.Errorf("%v", p)
	}
}
