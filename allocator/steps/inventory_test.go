package steps_test

import (
	"context"
	"testing"
	"time"

	"auspex/allocator/steps"
	"auspex/schemas"
)

func TestTheInventoryIsHeldAgainstWhatWasSeen(t *testing.T) {
	before, after := began.Add(-time.Second), began.Add(time.Second)
	parts := []schemas.Resource{{ID: "s1/gpu0", Kind: schemas.KindGPU}, {ID: "s1/nic0", Kind: schemas.KindNIC}}
	for name, tc := range map[string]struct {
		step         string
		board        bool
		read         map[string]time.Time
		differ       []string
		done, failed bool
		said         string
	}{
		"nobody has a board controller of it": {steps.Inventory, false, nil, nil, false, true, "the inventory has no board controller of s1"},
		"its board controller is silent":      {steps.Inventory, true, map[string]time.Time{"s1": before}, nil, false, false, "nobody has read its board controller since the step began"},
		"it is what was seen": {
			steps.Inventory, true,
			map[string]time.Time{"s1/fan0": after},
			nil, true, false,
			"its board controller was read since 12:00:00, and nothing that was seen contradicts its 1 GPUs and 1 other parts",
		},
		"it is another": {
			steps.Inventory, true,
			map[string]time.Time{"s1": after},
			[]string{"redfish saw 8 GPUs, and the inventory has 1"},
			false, true,
			"the inventory is not what was seen: redfish saw 8 GPUs, and the inventory has 1",
		},
		"the system reads no GPU":    {steps.HostReads, true, map[string]time.Time{"s1/gpu0": before}, nil, false, false, "its system has not read gpu0 since the step began"},
		"the system reads its GPU":   {steps.HostReads, false, map[string]time.Time{"s1/gpu0": after}, nil, true, false, "its system has read 1 GPUs since 12:00:00"},
		"there is no baseline of it": {steps.NoBaseline, false, nil, nil, true, false, "there is no baseline of firmware for the model AX 1: nothing is compared"},
	} {
		v := steps.Inventories{
			Parts: func(string) []schemas.Resource { return parts }, Board: func(string) bool { return tc.board },
			Newest: func(_ context.Context, _ string, by schemas.View) (map[string]time.Time, error) {
				if want := map[string]schemas.View{steps.Inventory: schemas.ViewBoard, steps.HostReads: schemas.ViewHost}[tc.step]; by != want {
					t.Errorf("%s: %s is read", name, by)
				}
				return tc.read, nil
			},
			Differences: func(_ context.Context, _ string, installs bool) ([]string, error) {
				if !installs {
					t.Errorf("%s: what an installation needs is not asked for", name)
				}
				return tc.differ, nil
			},
		}
		j := job(tc.step, true)
		j.Step.With = map[string]string{"model": "AX 1"}
		j.Workflow.Steps = []schemas.WorkflowStep{{Name: steps.Install}}
		if p, err := v.Do(t.Context(), j); err != nil || p.Done != tc.done || p.Failed != tc.failed || p.Message != tc.said {
			t.Errorf("%s: %+v %v", name, p, err)
		}
	}
	if p, err := (steps.Inventories{}).Do(t.Context(), job(steps.HostReads, true)); err != nil || !p.Failed {
		t.Errorf("where no telemetry is seen: %+v %v", p, err)
	}
}

// A bring-up waits for control to act, and to be done with something else; what somebody waits for fails instead.
func TestABringUpWaitsForControl(t *testing.T) {
	mode, busy := schemas.ModeObserve, true
	c := steps.Control{
		Mode:  func(context.Context, string, string) (string, error) { return mode, nil },
		Works: func(context.Context, string) (bool, error) { return busy, nil },
	}
	j := job("power_on", true)
	holds := func() string {
		why, err := c.Holds(t.Context(), j)
		if err != nil {
			t.Error(err)
		}
		return why
	}
	if why := holds(); why != "" {
		t.Errorf("a deployment waits: %s", why)
	}
	j.Workflow.Type = schemas.WorkflowBringUp
	if why := holds(); why != "waits: control is in mode observe, and does nothing for power_on" {
		t.Error(why)
	}
	mode = schemas.ModeApprove
	if why := holds(); why != "control works on it" {
		t.Error(why)
	}
	if busy = false; holds() != "" {
		t.Error("it waits for nothing")
	}
	for _, tc := range []struct {
		kind, step string
		want       time.Duration
	}{
		{schemas.WorkflowBringUp, "power_on", 24 * time.Hour},
		{schemas.WorkflowBringUp, steps.Telemetry, time.Minute},
		{schemas.WorkflowDeploy, "power_on", time.Minute},
		{schemas.WorkflowDeploy, steps.Install, 2 * time.Hour},
	} {
		if got := steps.Within(tc.kind, tc.step, time.Minute); got != tc.want {
			t.Errorf("%s of %s may take %s, want %s", tc.step, tc.kind, got, tc.want)
		}
	}
}
