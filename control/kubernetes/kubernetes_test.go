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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/internal/kube"
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
	skip := strconv.FormatBool(strings.HasPrefix(url, "https"))
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "` + url + `", insecure-skip-tls-verify: ` + skip + `}}],
users: [{name: u, user: {token: ` + secretToken + `}}], contexts: [{name: c, context: {cluster: k, user: u}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestConformance(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"drain", "cordon", "uncordon", "quarantine"},
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
					"drain":      {s.happens("True"), s.empties},
					"cordon":     {s.happens("True")},
					"quarantine": {s.happens("True")},
					"uncordon":   {s.happens("Unknown"), s.happens("False"), s.happens("True")},
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
		"nodes.key":    func(c *Config) { c.Nodes = kube.Nodes{By: kube.ByLabel, Key: "a b"} },
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
	refusing := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnauthorized) }))
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
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(elsewhere.Close)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+secretToken {
			t.Error("the API itself is asked without the token")
		}
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

// A budget that allows no eviction is asked again when the server says, and not by the client in between.
func TestAnEvictionWaitsAsLongAsTheServerSays(t *testing.T) {
	yes := true
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			b, _ := io.ReadAll(r.Body)
			asked = append(asked, r.URL.Path+" "+string(b))
			w.Header().Set("Retry-After", "10")
			w.WriteHeader(http.StatusTooManyRequests)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusTooManyRequests,
				Reason: metav1.StatusReasonTooManyRequests, Details: &metav1.StatusDetails{RetryAfterSeconds: 10},
			})
		case strings.HasSuffix(r.URL.Path, "/nodes/n1"):
			n := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{
				Name: "n1", Annotations: map[string]string{markKey: `{"action":"act-1"}`},
			}}
			n.Spec.Unschedulable = true
			_ = json.NewEncoder(w).Encode(n)
		default:
			_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{
				Name: "p", Namespace: "x", UID: "uid-1", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: &yes}},
			}}}})
		}
	}))
	t.Cleanup(srv.Close)
	now := time.Now()
	c := defaults()
	c.Kubeconfig = kubeconfigFor(t, srv.URL)
	all, err := c.Remediators(control.Settings{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {9 * time.Second, 1}, {11 * time.Second, 2}, {12 * time.Second, 2}} {
		now = now.Add(at.after)
		if err := all["drain"].(control.Pursuer).Pursue(t.Context(), control.Step{ID: "act-1", Server: "n1"}); err != nil {
			t.Fatal(err)
		}
		if len(asked) != at.want {
			t.Fatalf("after %s it was asked for %d times, want %d: %q", at.after, len(asked), at.want, asked)
		}
		now = now.Add(-at.after)
	}
	if !strings.HasPrefix(asked[0], "/api/v1/namespaces/x/pods/p/eviction ") || !strings.Contains(asked[0], `"uid":"uid-1"`) {
		t.Errorf("%q", asked[0])
	}
	// Another step, or a look at any drain of ours, evicts nothing.
	now = now.Add(time.Hour)
	for _, id := range []string{"act-2", ""} {
		if err := all["drain"].(control.Pursuer).Pursue(t.Context(), control.Step{ID: id, Server: "n1"}); err != nil || len(asked) != 2 {
			t.Errorf("%q: %v, asked %d times", id, err, len(asked))
		}
	}
}

// A token that was renewed in its file is taken up without a failure.
func TestARenewedTokenIsTakenUp(t *testing.T) {
	valid := "Bearer " + secretToken
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != valid {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/pods") {
			_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}})
			return
		}
		_ = json.NewEncoder(w).Encode(corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	}))
	t.Cleanup(srv.Close)
	c := defaults()
	c.Kubeconfig = kubeconfigFor(t, srv.URL)
	all, err := c.Remediators(control.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	plan := func() error {
		_, err := all["drain"].Plan(t.Context(), control.Step{Server: "n1"})
		return err
	}
	if err := plan(); err != nil {
		t.Fatal(err)
	}
	valid = "Bearer renewed"
	if err := plan(); err == nil {
		t.Error("an old token is let in")
	}
	b, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Kubeconfig, []byte(strings.ReplaceAll(string(b), secretToken, "renewed")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plan(); err != nil {
		t.Error(err)
	}
	valid = "Bearer again"
	if err := os.WriteFile(c.Kubeconfig, []byte(strings.ReplaceAll(string(b), secretToken, "again")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plan(); err != nil {
		t.Errorf("renewed while it was in use: %v", err)
	}
}

// What a patch replaces must not take what others have set.
func TestAPatchKeepsWhatIsNotOurs(t *testing.T) {
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "7", Annotations: map[string]string{"theirs": "kept"}}}
	old.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: "auspex.io/cordoned", Effect: corev1.TaintEffectNoExecute}}
	k := &cluster{cfg: *defaults(), now: time.Now}
	held := old.DeepCopy()
	if changed, err := k.hold(control.Step{ID: "act-1"}, false)(held); !changed || err != nil {
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

func TestWhatSlurmHasOfANodeSetsPodDecides(t *testing.T) {
	yes := true
	pod := func(kind, group string, states ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "gpu-0", Namespace: "slurm", OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "gpu", APIVersion: group + "/v1beta1", Controller: &yes}},
		}}
		for _, s := range states {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType("SlurmNodeState" + s), Status: corev1.ConditionTrue})
		}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "SlurmNodeStateFail", Status: corev1.ConditionFalse})
		return p
	}
	for _, tc := range []struct {
		states []string
		why    string // it is in the way
		busy   bool
	}{
		{nil, "slurm-operator says nothing of its state in Slurm", true},
		{[]string{"Idle"}, "Slurm has it as Idle", false},
		{[]string{"Mixed"}, "Slurm has it as Mixed", true},
		{[]string{"Allocated", "Drain"}, "Slurm has it as Allocated+Drain", true},
		{[]string{"Idle", "Drain", "Completing"}, "Slurm has it as Completing+Drain+Idle", true},
		{[]string{"Idle", "Drain", "Undrain"}, "Slurm has it as Drain+Idle+Undrain", false},
		{[]string{"Idle", "Drain"}, "", false},
		{[]string{"Down", "Drain"}, "", false},
	} {
		p := pod("NodeSet", "slinky.slurm.net", tc.states...)
		if !isSlurm(p) || undrained(p) != tc.why || busy(p) != tc.busy {
			t.Errorf("%v: %q, busy %v", tc.states, undrained(p), busy(p))
		}
	}
	for _, p := range []*corev1.Pod{pod("NodeSet", "example.com", "Idle"), pod("ReplicaSet", "slinky.slurm.net", "Idle"), {}} {
		if isSlurm(p) || !busy(p) {
			t.Errorf("%+v is taken for a node of Slurm", p.OwnerReferences)
		}
	}
}

func TestTheReasonOfOthersForSlurmStays(t *testing.T) {
	k := &cluster{cfg: *defaults(), now: time.Now}
	step := control.Step{ID: "act-1", Reason: "gpu.fallen_off_bus on n1/gpu2"}
	for was, want := range map[string]string{
		"": "auspex: act-1 gpu.fallen_off_bus on n1/gpu2", "auspex: act-0 an earlier one": "auspex: act-1 gpu.fallen_off_bus on n1/gpu2", "ann: hands off": "ann: hands off",
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		if was != "" {
			n.Annotations[slurmReasonKey] = was
		}
		old := n.DeepCopy()
		if _, err := k.hold(step, true)(n); err != nil || n.Annotations[slurmReasonKey] != want {
			t.Errorf("%q became %q: %v", was, n.Annotations[slurmReasonKey], err)
		}
		marks := patchOf(old, n)["metadata"].(map[string]any)["annotations"].(map[string]any)
		if _, told := marks[slurmReasonKey]; told != (was != want) {
			t.Errorf("%q: %v", was, marks)
		}
		held := n.DeepCopy()
		k.release(n)
		left, ok := n.Annotations[slurmReasonKey]
		if theirs := strings.HasPrefix(was, "ann"); ok != theirs || theirs && left != was {
			t.Errorf("%q: %q is left", was, left)
		}
		marks = patchOf(held, n)["metadata"].(map[string]any)["annotations"].(map[string]any)
		if v, told := marks[slurmReasonKey]; told == strings.HasPrefix(was, "ann") || v != nil {
			t.Errorf("%q: %v", was, marks)
		}
	}
}
