package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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
	boot   int64
}

// TestMain lets this program be an scontrol that asks a restd.
func TestMain(m *testing.M) {
	if at := os.Getenv(scontrolOf); at != "" {
		res, err := http.Post(at+"/reboot/"+os.Args[len(os.Args)-1], "text/plain", strings.NewReader(strings.Join(os.Args[1:], " ")))
		switch {
		case err != nil:
			fmt.Println("scontrol_reboot_nodes error: Unexpected message received")
			os.Exit(1)
		case res.StatusCode != http.StatusOK:
			fmt.Println("scontrol_reboot_nodes error: Access/permission denied")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const scontrolOf = "AUSPEX_TEST_SCONTROL"

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
	case r.URL.Path == "/reboot/n1":
		b, _ := io.ReadAll(r.Body)
		c.reason = strings.TrimSuffix(strings.TrimPrefix(string(b), "reboot reason="), " n1")
		c.asked++
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
			"nodes": []any{map[string]any{"name": "n1", "state": c.states, "reason": c.reason, "boot_time": map[string]any{"set": true, "number": c.boot}}}, "errors": []any{},
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

// slurmAlone is the driver's other way of reboot by itself.
type slurmAlone struct{ *Config }

func (s slurmAlone) Remediators(set control.Settings) (map[string]control.Remediator, error) {
	return s.Reliefs(set)
}

func TestConformanceOfReboot(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"reboot"},
		World: func(t *testing.T, m controltest.Manner) controltest.World {
			c := &restd{states: []string{"IDLE", "DRAIN"}, reason: "auspex: act-0 x", api: "v0.0.42", boot: time.Now().Add(-time.Hour).Unix()}
			srv := httptest.NewServer(controltest.Behave(m, c, changes))
			t.Setenv(scontrolOf, srv.URL)
			if m == controltest.Gone {
				srv.Close()
			} else {
				t.Cleanup(srv.Close)
			}
			return controltest.World{
				Driver: slurmAlone{&Config{URL: srv.URL, Scontrol: []string{os.Args[0]}, Reboot: true}}, Server: "n1",
				Asked: func() int { c.mu.Lock(); defer c.mu.Unlock(); return c.asked },
				Effects: map[string][]func(){"reboot": {
					c.become("DOWN", "DRAIN", "REBOOT_ISSUED"),
					func() { c.mu.Lock(); c.boot = time.Now().Unix(); c.mu.Unlock() },
					c.become("IDLE", "DRAIN", "NOT_RESPONDING"),
					func() {
						c.become("IDLE", "DRAIN")()
						if !strings.HasPrefix(c.reason, drain.Prefix+" act-reboot ") {
							t.Errorf("%q is no mark of ours", c.reason)
						}
					},
				}},
			}
		},
	})
}

// Slurm restarts what is not drained once it is idle: at any time, also long after the step was given up.
func TestOnlyWhatWeHaveDrainedIsRestartedThroughSlurm(t *testing.T) {
	for name, is := range map[string]struct {
		states []string
		reason string
	}{
		"at work": {[]string{"IDLE"}, ""}, "with a job": {[]string{"ALLOCATED", "DRAIN"}, "auspex: x"}, "drained by others": {[]string{"IDLE", "DRAIN"}, "ann: a fan"},
		"restarting": {[]string{"DOWN", "DRAIN", "REBOOT_ISSUED"}, "auspex: x"}, "to restart": {[]string{"IDLE", "DRAIN", "REBOOT_REQUESTED"}, "auspex: x"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &restd{states: is.states, reason: is.reason, api: "v0.0.42"}
			srv := httptest.NewServer(c)
			defer srv.Close()
			t.Setenv(scontrolOf, srv.URL)
			all, err := (&Config{URL: srv.URL, Scontrol: []string{os.Args[0]}, Reboot: true}).Reliefs(control.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			if err := all["reboot"].Apply(t.Context(), control.Step{ID: "act-1", Server: "n1"}); !errors.Is(err, control.ErrRejected) || c.asked != 0 {
				t.Errorf("%v, asked %d times", err, c.asked)
			}
		})
	}
}

func TestRestartsThroughSlurmAreAskedFor(t *testing.T) {
	if all, err := (&Config{URL: "http://127.0.0.1:1", Scontrol: []string{"scontrol"}}).Reliefs(control.Settings{}); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if _, err := (&Config{URL: "http://127.0.0.1:1", Reboot: true}).Reliefs(control.Settings{}); err == nil {
		t.Error("slurmrestd alone restarts nodes")
	}
}
