package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"auspex/internal/sim"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// actionsOn returns the actions on a server by kind, the last of each.
func (p *product) actionsOn(server string) (map[string]schemas.Action, error) {
	all, err := list[schemas.Action](p, "actions")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b schemas.Action) int { return a.Created.Compare(b.Created) })
	last := map[string]schemas.Action{}
	for _, a := range all {
		if a.Server == server {
			last[a.Kind] = a
		}
	}
	return last, nil
}

// repaired waits until a server was drained, treated and returned, each step done and
// verified.
func (p *product) repaired(server, treatment string) {
	p.t.Helper()
	p.awaitFor(2*patience, server+" is repaired", func() error { return p.isRepaired(server, treatment) })
}

func (p *product) isRepaired(server, treatment string) error {
	acts, err := p.actionsOn(server)
	if err != nil {
		return err
	}
	for _, kind := range []string{"drain", treatment, "uncordon"} {
		a, ok := acts[kind]
		if !ok {
			return errors.New("no action " + kind)
		}
		if a.State == schemas.ActionFailed || a.State == schemas.ActionCancelled {
			return settled{fmt.Errorf("%s is %s: %s", kind, a.State, a.Detail)}
		}
		if a.State != schemas.ActionDone || a.VerifiedBy == "" {
			return fmt.Errorf("%s is %s: %s %s", kind, a.State, a.Detail, a.VerifiedBy)
		}
	}
	return nil
}

// nodeStates asks the simulated scheduler, as sinfo would, for a node's states.
func nodeStates(t *testing.T, dir, node string) []string {
	t.Helper()
	var at struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.SlurmFile))
	if err == nil {
		err = json.Unmarshal(b, &at)
	}
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(at.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.URL+"/slurm/v0.0.42/node/"+node, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-SLURM-USER-TOKEN", strings.TrimSpace(string(token)))
	req.Header.Set("X-SLURM-USER-NAME", "root")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Nodes []struct {
			State []string `json:"state"`
		} `json:"nodes"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Nodes) != 1 {
		t.Fatalf("node %s: %s, %d nodes, %v", node, resp.Status, len(answer.Nodes), err)
	}
	return answer.Nodes[0].State
}

// verifiedWithin writes the policies of testdata/policy.yaml with another bound for the effect of a repair.
func verifiedWithin(t *testing.T, bound string) string {
	t.Helper()
	policies, err := os.ReadFile("testdata/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return write(t, t.TempDir(), "policy.yaml", strings.ReplaceAll(string(policies), "verify: 90s", "verify: "+bound))
}

func TestEnforceDrainsPowerCyclesAndReturnsTheServer(t *testing.T) {
	beside(t)
	const server = "gpu-r03-04"
	for protocol, policies := range map[string]string{"redfish": "", "ipmi": "testdata/policy.yaml"} { // "" are those that come with the product
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			p := startDemo(t, dir, "--mode", "enforce", "--script", "testdata/scripts/lost-gpu.yaml", "--seed", "3",
				"--set", "store.clickhouse=off", "--set", "control.bmc.protocol="+protocol, "--set", "control.policies="+policies)
			p.repaired(server, "power_cycle")
			if s := nodeStates(t, dir, server); slices.Contains(s, "DRAIN") || slices.Contains(s, "DOWN") {
				t.Errorf("%s is %v and not back in the pool", server, s)
			}
			var drained, resumed, reset bool
			for _, e := range output(t, dir) {
				switch {
				case e.Kind == ledger.KindNode && e.Device == server && strings.Contains(e.Code, "DRAIN"):
					drained = true
				case e.Kind == ledger.KindNode && e.Device == server && drained:
					resumed = true
				case e.Kind == ledger.KindReset:
					if reset || !drained || e.Device != server || e.Type != "accepted" || e.Protocol != protocol {
						t.Errorf("reset %+v (drained %v, reset before %v)", e, drained, reset)
					}
					reset = true
				}
			}
			if !drained || !reset || !resumed {
				t.Errorf("the fleet saw: drained %v, reset %v, resumed %v", drained, reset, resumed)
			}
			acts, err := p.actionsOn(server)
			if err != nil {
				t.Fatal(err)
			}
			for kind, a := range acts {
				t.Logf("%s: %s", kind, a.VerifiedBy)
			}
			p.interrupt()
		})
	}
}

func TestEnforceResetsAGPUThroughTheAgentAndReturnsTheServer(t *testing.T) {
	beside(t)
	const server = "gpu-r03-04"
	for _, profile := range [][]string{nil, {"--agents-alone"}} {
		t.Run(strings.Join(append(profile, "demo"), " "), func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			p := startDemo(t, dir, append(profile, "--mode", "enforce", "--script", "testdata/scripts/lost-memory.yaml", "--seed", "3",
				"--set", "store.clickhouse=off", "--set", "control.policies=testdata/policy.yaml")...)
			p.repaired(server, "reset_gpu")
			if s := nodeStates(t, dir, server); slices.Contains(s, "DRAIN") || slices.Contains(s, "DOWN") {
				t.Errorf("%s is %v and not back in the pool", server, s)
			}
			acts, err := p.actionsOn(server)
			if err != nil {
				t.Fatal(err)
			}
			if a, rebooted := acts["reboot"]; rebooted {
				t.Errorf("a GPU that was reset was followed by a reboot: %s", a.State)
			}
			// The rule on remapped rows looks back an hour, and is what a reset is not to be held against.
			p.await("the rule fires still", func() error {
				firing, err := list[schemas.Alert](p, "alerts")
				if err != nil {
					return err
				}
				for _, a := range firing {
					if a.Status == schemas.AlertFiring && a.Resource == server+"/gpu2" && a.Attrs[schemas.AttrGrew] != "" {
						return nil
					}
				}
				return fmt.Errorf("it is not among %d alerts", len(firing))
			})
			p.interrupt()
		})
	}
}

// A server whose GPU was reset returns when the GPU has passed a validation, and stays out where it has not:
// control says which test of which GPU.
func TestAServerReturnsWhenItsGPUHasPassedAValidation(t *testing.T) {
	beside(t)
	const server = "gpu-r03-04"
	for script, passes := range map[string]bool{"lost-memory": true, "weak-memory": false} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			p := startDemo(t, dir, "--mode", "enforce", "--script", "testdata/scripts/"+script+".yaml", "--seed", "3",
				"--set", "store.clickhouse=off", "--set", "control.policies=testdata/validate.yaml")
			want := schemas.ActionFailed
			if passes {
				want = schemas.ActionDone
			}
			p.awaitFor(2*patience, "the validation is "+want, func() error {
				acts, err := p.actionsOn(server)
				if err != nil {
					return err
				}
				a := acts["validate"]
				if a.State != want && (a.State == schemas.ActionDone || a.State == schemas.ActionFailed) {
					return settled{fmt.Errorf("it is %s: %s %s", a.State, a.Detail, a.VerifiedBy)}
				}
				if a.State == want && !passes && acts["ticket"].State != schemas.ActionProposed {
					return errors.New("nobody is told of it")
				}
				if a.State != want {
					return fmt.Errorf("it is %q: %s; reset_gpu: %s %s", a.State, a.Detail, acts["reset_gpu"].State, acts["reset_gpu"].Detail)
				}
				return nil
			})
			if passes {
				p.repaired(server, "configure_gpu")
			}
			acts, err := p.actionsOn(server)
			if err != nil {
				t.Fatal(err)
			}
			if a := acts["configure_gpu"]; a.With["power_limit"] != "650" || !strings.Contains(a.VerifiedBy, "reads gpu2 as they should be: power_limit 650") {
				t.Errorf("with %v: %s %s", a.With, a.Detail, a.VerifiedBy)
			}
			states := nodeStates(t, dir, server)
			out := slices.Contains(states, "DRAIN") || slices.Contains(states, "DOWN")
			v := acts["validate"]
			switch {
			case out == passes:
				t.Errorf("%s is %v", server, states)
			case passes && !strings.Contains(v.VerifiedBy, "gpu2 of "+server+" passed"):
				t.Errorf("it says %q", v.VerifiedBy)
			case !passes && v.Detail != "the validation of gpu2 of "+server+" found: gpu2 memory: 6 words were read otherwise than they were written":
				t.Errorf("it says %q", v.Detail)
			}
			p.interrupt()
		})
	}
}

func TestABMCThatAnswersAndDoesNothingEndsInFailed(t *testing.T) {
	beside(t)
	const server = "gpu-r03-04"
	dir := dataDir(t)
	p := startDemo(t, dir, "--mode", "enforce", "--script", "testdata/scripts/deaf-bmc.yaml", "--seed", "3",
		"--set", "store.clickhouse=off", "--set", "control.policies="+verifiedWithin(t, "20s"))
	p.awaitFor(2*patience, "the power cycle has failed", func() error {
		acts, err := p.actionsOn(server)
		if err != nil {
			return err
		}
		if a := acts["power_cycle"]; a.State != schemas.ActionFailed {
			return fmt.Errorf("it is %q: %s", a.State, a.Detail)
		}
		return nil
	})
	acts, err := p.actionsOn(server)
	if err != nil {
		t.Fatal(err)
	}
	if a := acts["uncordon"]; a.State == schemas.ActionDone {
		t.Errorf("the server was returned without a repair: %+v", a)
	}
	if s := nodeStates(t, dir, server); !slices.Contains(s, "DRAIN") {
		t.Errorf("%s is %v and not held out of the pool", server, s)
	}
	ignored := 0
	for _, e := range output(t, dir) {
		if e.Kind == ledger.KindReset {
			ignored++
			if e.Type != "ignored" {
				t.Errorf("reset %+v", e)
			}
		}
		if e.Kind == ledger.KindPower {
			t.Errorf("the power changed: %+v", e)
		}
	}
	if ignored != 1 {
		t.Errorf("%d resets were sent, want one", ignored)
	}
	p.interrupt()
}
