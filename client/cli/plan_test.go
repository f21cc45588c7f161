package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"auspex/schemas"
)

// TestPlanSaysWhatIsDoneNowAndWhyNotMore reads the steps of every state that is open, and of each what holds it, who must
// approve, and what it costs.
func TestPlanSaysWhatIsDoneNowAndWhyNotMore(t *testing.T) {
	actions := map[string]schemas.Action{
		"waiting": {
			ID: "act-2", Server: "s2", Target: "s2/gpu1", Incident: "i-2", Kind: "power_cycle", Mode: "approve", State: "waiting", Rung: 1, Ladder: []string{"drain", "power_cycle", "uncordon"},
			Detail: "waits for approval: 1 of 2 persons must still approve", ApprovalsNeeded: 2, Approvals: []schemas.Approval{{By: "ann"}},
			Rails:       []schemas.Rail{{Name: "confidence", Value: 0.9, Limit: 0.7, OK: true}, {Name: "fleet_budget", Value: 5, Limit: 4, Detail: "Auspex would hold 5 servers"}},
			BlastRadius: &schemas.BlastRadius{Servers: []string{"s2"}, GPUs: 8, GPUHours: 12.5, Jobs: []schemas.JobAtRisk{{ID: "job-1", Owner: "bea"}}},
		},
		"verifying": {ID: "act-1", Server: "s1", Incident: "i-1", Kind: "drain", Mode: "enforce", State: "verifying", Detail: "sent"},
		"proposed":  {ID: "act-3", Server: "s3", Incident: "i-3", Kind: "drain", Mode: "observe", State: "proposed", Detail: "observed only"},
	}
	s := serve(t, func(_ int, r request) (int, string) {
		switch {
		case strings.HasSuffix(r.path, "/actions/budgets"):
			return http.StatusOK, `{"levels":[{"scope":"fleet","limit":4,"used":4}],"breaker":{}}`
		case strings.HasSuffix(r.path, "/incidents"):
			return http.StatusOK, `{"items":[{"id":"i-1"},{"id":"i-8"},{"id":"i-9","root_cause":{"resource":"s9/psu0","fault":"psu.failure"},"no_step":{"policy":"part-failed","reason":"the cause is 40 % sure","sentence":{"id":"no_step.unsure"}}}]}`
		}
		items := []schemas.Action{}
		for state, a := range actions {
			if strings.Contains(r.query, "state="+state) {
				items = append(items, a)
			}
		}
		text, err := json.Marshal(map[string]any{"items": items})
		if err != nil {
			t.Error(err)
		}
		return http.StatusOK, string(text)
	})
	out, _, err := s.run(t, "", "plan")
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	for _, want := range []string{
		"s1: drain, verifying in mode enforce [act-1, i-1]\n  now: sent\n",
		"s2 (s2/gpu1): power_cycle, waiting in mode approve [act-2, i-2]\n  now: nothing: waits for approval",
		"  why not more: fleet_budget (5, limit 4): Auspex would hold 5 servers\n  why not more: approvals: 1 of 2 persons approved\n",
		"  approved by ann",
		"  costs: 1 server, 8 GPUs, 1 job, 12.5 GPU hours: job-1 of bea\n  then: uncordon\n",
		"s3: drain, proposed in mode observe [act-3, i-3]\n  now: nothing in mode observe: observed only\n",
		"i-8: no step [i-8]\n  why: control has not said why", "s9/psu0: no step [i-9, psu.failure]\n  why: the cause is 40 % sure\n", "budget fleet: 4 of 4 used, 0 reserved\n",
	} {
		at := strings.Index(out, want)
		if at <= last {
			t.Errorf("%q is not there, or too early:\n%s", want, out)
		}
		last = at
	}
	out, _, err = s.run(t, "", "plan", "--server", "s2", "-o", "yaml")
	if err != nil || !strings.Contains(out, "approvals_needed: 2") || !strings.Contains(out, "why_not:") || strings.Contains(out, "budgets:") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, r := range s.got {
		if r.method != http.MethodGet {
			t.Errorf("it asked for a change: %+v", r)
		}
	}
}
