package slurm

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/control/drain"
	"auspex/internal/slurm"
)

// restd is a slurmrestd of one node. What it is asked takes place when the
// test lets it.
type restd struct {
	mu     sync.Mutex
	states []string
	reason string
	asked  int
	api    string
}

func (c *restd) become(states ...string) func() {
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.states = states
	}
}

func changes(r *http.Request) bool { return r.Method == http.MethodPost }

func (c *restd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, ok := strings.CutPrefix(r.URL.Path, "/slurm/"+c.api+"/node/")
	switch {
	case strings.HasPrefix(r.URL.Path, "/openapi"):
		_, _ = w.Write([]byte(`{"paths":{"\/slurm\/` + c.api + `\/jobs\/":{}}}`))
	case r.URL.Path == "/slurm/"+c.api+"/nodes":
		_ = json.NewEncoder(w).Encode(map[string]any{"nodes": []any{map[string]any{"name": "n1", "state": c.states}}, "errors": []any{}})
	case !ok:
		http.NotFound(w, r)
	case changes(r):
		var ask struct{ Reason string }
		_ = json.NewDecoder(r.Body).Decode(&ask)
		c.asked++
		c.reason = ask.Reason
		_, _ = w.Write([]byte(`{"errors":[]}`))
	case node != "n1": // as 24.11 says it
		_, _ = w.Write([]byte(`{"errors":[{"description":"Failure to query node","error_number":0,"error":"No error","source":"_dump_nodes"}]}`))
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{
			"nodes": []any{map[string]any{"name": "n1", "state": c.states, "reason": c.reason}}, "errors": []any{},
		})
	}
}

func TestConformance(t *testing.T) {
	for _, api := range []string{"v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43"} {
		t.Run(api, func(t *testing.T) { testConformance(t, api) })
	}
}

func testConformance(t *testing.T, api string) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"drain", "uncordon", "quarantine"},
		World: func(t *testing.T, m controltest.Manner) controltest.World {
			c := &restd{states: []string{"MIXED"}, api: api}
			srv := httptest.NewServer(controltest.Behave(m, c, changes))
			if m == controltest.Gone {
				srv.Close()
			} else {
				t.Cleanup(srv.Close)
			}
			return controltest.World{
				Driver: &Config{URL: srv.URL}, Server: "n1",
				Asked: func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.asked },
				Effects: map[string][]func(){
					"drain":      {c.become("MIXED", "DRAIN"), c.become("IDLE", "DRAIN", "COMPLETING"), c.become("IDLE", "DRAIN")},
					"quarantine": {c.become("MIXED", "DRAIN"), c.become("IDLE", "DRAIN")},
					"uncordon":   {c.become("DOWN"), c.become("IDLE", "NOT_RESPONDING"), c.become("IDLE")},
				},
			}
		},
	})
}

func TestStatesAreReadAsSlurmMeansThem(t *testing.T) {
	for states, want := range map[string]drain.Node{
		"IDLE":                  {},
		"IDLE DRAIN":            {Cordoned: true},
		"ALLOCATED DRAIN":       {Cordoned: true, Busy: true},
		"MIXED DRAIN":           {Cordoned: true, Busy: true},
		"IDLE DRAIN COMPLETING": {Cordoned: true, Busy: true},
		"DOWN DRAIN":            {Cordoned: true, Away: true},
		"IDLE DRAIN UNDRAIN":    {},
		"DOWN* NOT_RESPONDING":  {Away: true},
		"idle+drain":            {Cordoned: true},
	} {
		got := nodeOf(slurm.Node{State: slurm.Names(strings.Fields(states))})
		got.StateText = ""
		if got != want {
			t.Errorf("%s: %+v, want %+v", states, got, want)
		}
	}
}

func TestWithoutAnAddressThereIsNoDriver(t *testing.T) {
	all, err := (&Config{}).Remediators(control.Settings{})
	if err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}
