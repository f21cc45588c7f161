package tinkerbell

import (
	"errors"
	"strings"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/messages"
)

func wiping(id string) control.Step {
	with := map[string]string{"template": "linux", "version": "2", "parameters.wipe_token": "secret:root"}
	return control.Step{ID: id, Kind: kindWipe, Server: server, Target: server, Reason: "a test", Since: time.Now(), With: with}
}

// A wipe is done when each drive is proven to hold nothing, whatever its workflow says of itself.
func TestAWipeIsDoneByWhatWasFoundOfTheDrives(t *testing.T) {
	for name, tc := range map[string]struct {
		state  string
		tell   func(s *stock)
		want   control.Verdict
		said   string
		silent string // is not said
	}{
		"proven": {"SUCCESS", func(s *stock) { s.tells("act-1", true, "it is sanitized") }, control.Verified, "all 1 drives of gpu-1 are proven to hold nothing: /dev/nvme0n1 (serial N0): it is sanitized", token},
		"the workflow succeeded, and a drive holds data": {
			"SUCCESS", func(s *stock) { s.tells("act-1", false, "3 of 1026 blocks hold data") }, control.Failed,
			"gpu-1 is not proven to hold nothing: /dev/nvme0n1 (serial N0): 3 of 1026 blocks hold data", "succeeded",
		},
		"the workflow succeeded, and nothing was told":                    {"SUCCESS", func(*stock) {}, control.Failed, "gpu-1 is not proven to hold nothing: its workflow has told nothing of its drives", token},
		"another workflow found it":                                       {"SUCCESS", func(s *stock) { s.tells("act-0", true, "blank") }, control.Failed, "has told nothing of its drives", token},
		"the workflow failed since a drive holds data":                    {"FAILED", func(s *stock) { s.tells("act-1", false, "its sanitize operation failed") }, control.Failed, "N0): its sanitize operation failed", token},
		"the drives are proven, and something else of the workflow fails": {"FAILED", func(s *stock) { s.tells("act-1", true, "blank") }, control.Failed, "the wipe of gpu-1 ended as FAILED", token},
	} {
		t.Run(name, func(t *testing.T) {
			a, s := newAPI(t), newStock(server, mac)
			i, step := a.driver(s), wiping("act-1")
			plan, err := i.Plan(t.Context(), step)
			if err != nil || !strings.Contains(messages.Text(plan), "would wipe gpu-1 with linux@2 through Tinkerbell, in 2 steps (write, boot)") || len(s.opened) != 0 {
				t.Fatal(messages.Text(plan), err, s.opened)
			}
			for range 2 {
				if err := i.Apply(t.Context(), step); err != nil {
					t.Fatal(err)
				}
			}
			spec := a.of(workflows, "auspex-act-1")["spec"].(map[string]any)
			data := a.of(templates, spec["templateRef"].(string))["spec"].(map[string]any)["data"].(string)
			if a.count(workflows) != 1 || !strings.Contains(data, "TOKEN: \""+token) || s.opened[0] != "act-1 "+s.record.ID+" auspex-act-1" {
				t.Errorf("%s %q", data, s.opened)
			}
			a.wants(i, step, control.Pending, "the wipe of gpu-1 is NEW; no step has begun")
			tc.tell(s)
			if len(s.closed) != 0 {
				t.Error("it could tell nobody")
			}
			second := "SUCCESS"
			if tc.state == "FAILED" {
				second = "FAILED"
			}
			a.runs("auspex-act-1", "STATE_"+tc.state, "SUCCESS", second)
			a.wants(i, step, tc.want, tc.said)
			if v, said, err := i.Verify(t.Context(), step); err != nil || v != tc.want || strings.Contains(messages.Text(said), tc.silent) {
				t.Errorf("%d %s %v", v, messages.Text(said), err)
			}
			if s.closed[0] != "act-1" || a.allowed() || a.count(templates) != 0 {
				t.Errorf("something is left open: %q", s.closed)
			}
		})
	}
}

// A template whose workflow could tell nobody what it found wipes nothing, and its token is nobody's to give.
func TestATemplateThatCannotTellIsRefused(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	delete(s.template.Parameters["properties"].(map[string]any), "wipe_token")
	i, step := a.driver(s), wiping("act-1")
	delete(step.With, "parameters.wipe_token")
	if _, err := i.Plan(t.Context(), step); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "the template linux has no parameter wipe_token") {
		t.Error(err)
	}
	if err := i.Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) || a.count(workflows) != 0 {
		t.Error(err)
	}
	i = a.driver(newStock(server, mac))
	i.wipes = nil
	if _, err := i.Plan(t.Context(), wiping("act-1")); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "nobody here keeps") {
		t.Error(err)
	}
}
