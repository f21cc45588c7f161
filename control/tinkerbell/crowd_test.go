package tinkerbell

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"auspex/control"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// crowd is what many servers are installed with.
type crowd map[string]*stock

// Hardware implements control.Installs.
func (c crowd) Hardware(ctx context.Context, server string) (schemas.HardwareRecord, error) {
	if s := c[server]; s != nil {
		return s.Hardware(ctx, server)
	}
	return schemas.HardwareRecord{}, fmt.Errorf("%w: there is no server %s", control.ErrCannot, server)
}

// Template implements control.Installs.
func (c crowd) Template(ctx context.Context, name string, version int64) (schemas.Template, error) {
	for _, s := range c {
		return s.Template(ctx, name, version)
	}
	return schemas.Template{}, control.ErrCannot
}

// tally counts the requests that pass to an API server.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (y *tally) note(r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/tinkerbell.org/v1alpha1/namespaces/tink/"), "/")
	what := r.Method + " " + parts[0]
	switch {
	case r.URL.Query().Get("watch") != "":
		what = "WATCH " + parts[0]
	case r.Method == http.MethodGet && len(parts) == 1:
		what = "LIST " + parts[0]
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.n[what]++
}

// take returns what has been counted, and begins anew.
func (y *tally) take() (n map[string]int, all int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	n, y.n = y.n, map[string]int{}
	for _, k := range n {
		all += k
	}
	return n, all
}

// Two hundred installations at once on the real API are followed by the two watches: to look at them
// asks nothing, however often, and what each takes from its beginning to its end is bounded.
func TestTwoHundredAtOnceOnTheRealTinkerbell(t *testing.T) {
	s := realSite(t)
	const many = 200
	real := defaults()
	real.Kubeconfig = peer(t, "TINK_AUSPEX")
	access, err := real.Rest()
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(access)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(access.Host)
	if err != nil {
		t.Fatal(err)
	}
	counted := &tally{n: map[string]int{}}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted.note(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)

	all, steps := crowd{}, make([]control.Step, many)
	for n := range steps {
		name := fmt.Sprintf("%s-%d", s.step.Server, n)
		all[name] = newStock(name, fmt.Sprintf("06:%s:%02x:%02x", s.mac[9:], n>>8, n&0xff))
		steps[n] = s.step
		steps[n].ID, steps[n].Server, steps[n].Target = "act-"+name, name, name
	}
	cfg := defaults()
	cfg.Kubeconfig, cfg.Boot = kubeconfigFor(t, between.URL), bootNone
	drivers, err := cfg.Remediators(control.Settings{Installs: all, Secrets: s.stock})
	if err != nil {
		t.Fatal(err)
	}
	i := drivers[kindReinstall].(*installer)
	follow(t, i)
	each := func(do func(*control.Step) error) {
		t.Helper()
		var wg sync.WaitGroup
		free := make(chan struct{}, 8)
		for n := range steps {
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				if err := do(&steps[n]); err != nil {
					t.Error(steps[n].Server, err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	path := func(resource string) string { return "/apis/tinkerbell.org/v1alpha1/namespaces/tink/" + resource + "/" }
	t.Cleanup(func() {
		for n := range steps { // the other tests read all there is
			for resource, name := range map[string]string{workflows: workflowName(steps[n]), hardware: label(steps[n].Server)} {
				_ = s.admin.do(context.WithoutCancel(t.Context()), "delete", resource, func(c *rest.RESTClient) *rest.Request { return c.Delete().RequestURI(path(resource) + name) }, nil)
			}
		}
	})
	each(func(step *control.Step) error { return i.Apply(t.Context(), *step) })
	begun, beginning := counted.take()

	looked := func(want control.Verdict, words string) {
		t.Helper()
		each(func(step *control.Step) error {
			waittest.Until(t, func() error {
				v, said, err := look(t.Context(), i, *step)
				if err == nil && (v != want || !strings.Contains(said, words)) {
					err = fmt.Errorf("verdict %d: %s", v, said)
				}
				return err
			})
			return nil
		})
	}
	looked(control.Pending, "is PENDING; no step has begun") // and may start from the network
	waittest.Until(t, func() error {
		for n := range steps {
			if w := i.flows.workflow("tink", workflowName(steps[n])); w == nil || w.Annotations[bootPhase] == "" {
				return fmt.Errorf("%s is not opened, or not seen to be", steps[n].Server)
			}
		}
		return nil
	})
	opened, opening := counted.take()
	for range 10 {
		looked(control.Pending, "is PENDING; no step has begun")
	}
	idle, looking := counted.take()
	each(func(step *control.Step) error {
		s.call("PATCH", path(workflows)+workflowName(*step)+"/status", types.MergePatchType, map[string]any{"status": map[string]any{"state": stateSuccess}})
		return nil
	})
	looked(control.Verified, "")
	ended, ending := counted.take()
	t.Logf("to begin %v; to open %v; to look %v; to end %v", begun, opened, idle, ended)
	if looking > 10 { // a watch may be opened again
		t.Errorf("to look at %d workflows ten times took %d requests: %v", many, looking, idle)
	}
	for what, n := range map[string]int{"begin": beginning, "open": opening, "end": ending} {
		if n > 15*many {
			t.Errorf("to %s %d workflows took %d requests", what, many, n)
		}
	}
}
