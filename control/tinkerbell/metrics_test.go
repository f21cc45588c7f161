package tinkerbell

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/control"
	"auspex/internal/waittest"
)

func TestWhatTheDriverAndItsAPIDoIsCounted(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i := a.driver(s)
	follow(t, i)
	if err := i.Apply(t.Context(), reinstall("act-1")); err != nil {
		t.Fatal(err)
	}
	a.add(workflows, map[string]any{"metadata": map[string]any{"name": "theirs", "namespace": "tink", "uid": "x"}, "status": map[string]any{"state": "STATE_RUNNING"}})
	counts := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			return testutil.CollectAndCompare(i.metrics.workflows, strings.NewReader(`
# HELP auspex_control_tinkerbell_workflows Workflows in Tinkerbell's API, by state (as Tinkerbell says it) and template with its version (unknown of those that are not ours).
# TYPE auspex_control_tinkerbell_workflows gauge
`+want))
		})
	}
	counts(`auspex_control_tinkerbell_workflows{state="new",template="linux@2"} 1
auspex_control_tinkerbell_workflows{state="running",template="unknown"} 1
`)
	a.runs("auspex-act-1", "STATE_FAILED", "FAILED", "")
	a.comes(i, reinstall("act-1"), control.Failed)
	counts(`auspex_control_tinkerbell_workflows{state="failed",template="linux@2"} 1
auspex_control_tinkerbell_workflows{state="running",template="unknown"} 1
`)
	for range 2 { // it has ended once
		a.wants(i, reinstall("act-1"), control.Failed, "")
	}
	waittest.Until(t, func() error { // by the watch, or here: by whoever closes it
		if n := testutil.CollectAndCount(i.metrics.lasted); n != 1 {
			return fmt.Errorf("%d kinds of ends", n)
		}
		return nil
	})
	waittest.Until(t, func() error { // the two resources are followed side by side
		if lists, watches := testutil.ToFloat64(i.metrics.lists.WithLabelValues(hardware)), testutil.ToFloat64(i.metrics.watches.WithLabelValues(hardware)); lists != 1 || watches < 1 {
			return fmt.Errorf("%g lists, %g watches", lists, watches)
		}
		return nil
	})
	// A watch that is too old begins with a list again.
	a.mu.Lock()
	a.expired = true
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	waittest.Until(t, func() error {
		if testutil.ToFloat64(i.metrics.lists.WithLabelValues(hardware))+testutil.ToFloat64(i.metrics.lists.WithLabelValues(workflows)) < 3 {
			return errors.New("no list has followed")
		}
		return nil
	})
	stale := &Workflow{}
	if found, err := i.get(t.Context(), workflows, "theirs", stale); err != nil || !found {
		t.Fatal(err)
	}
	before := testutil.ToFloat64(i.metrics.conflicts.WithLabelValues(workflows)) // two may end the same one
	a.say(workflows, "theirs", map[string]any{"status": map[string]any{"state": "STATE_SUCCESS"}})
	if err := i.patch(t.Context(), workflows, &stale.ObjectMeta, annotations(map[string]any{"x": "y"})); !conflicts(err) {
		t.Error(err)
	}
	if n := testutil.ToFloat64(i.metrics.conflicts.WithLabelValues(workflows)); n != before+1 {
		t.Errorf("%g conflicts, after %g", n, before)
	}
	a.mu.Lock()
	a.forbid = func(r *http.Request) bool { return r.Method == http.MethodPost }
	a.mu.Unlock()
	if err := i.Apply(t.Context(), reinstall("act-2")); err == nil {
		t.Error("it is let in")
	}
	if n := testutil.ToFloat64(i.metrics.errors.WithLabelValues("create", "forbidden")); n != 1 {
		t.Errorf("%g errors", n)
	}
}
