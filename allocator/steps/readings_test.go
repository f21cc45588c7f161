package steps_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"auspex/allocator/steps"
	"auspex/schemas"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func job(step string, exclusive bool) steps.Job {
	return steps.Job{
		Workflow: schemas.Workflow{ID: "w", Server: "s1", Exclusive: exclusive, Attempt: 1}, Step: schemas.WorkflowStep{Name: step, StartedAt: began},
		GPUs: []string{"s1/gpu0"},
	}
}

func TestPartsAreReadSinceTheStepBegan(t *testing.T) {
	parts := []schemas.Resource{
		{ID: "s1/gpu0", Kind: schemas.KindGPU}, {ID: "s1/gpu1", Kind: schemas.KindGPU}, {ID: "s1/fan1", Kind: schemas.KindFan}, {ID: "s1/dimm0", Kind: schemas.KindDIMM},
	}
	before, after := began.Add(-time.Second), began.Add(time.Second)
	for name, tc := range map[string]struct {
		exclusive bool
		read      map[string]time.Time
		done      bool
		said      string
	}{
		"nothing":            {true, nil, false, "nobody has read gpu0 since the step began"},
		"before alone":       {true, map[string]time.Time{"s1/gpu0": before}, false, "nobody has read gpu0 since the step began"},
		"the GPU":            {true, map[string]time.Time{"s1/gpu0": after}, true, "1 GPUs were read since 12:00:00; nobody reads fan1, dimm0"},
		"a fan that is late": {true, map[string]time.Time{"s1/gpu0": after, "s1/fan1": before}, false, "nobody has read fan1 since the step began"},
		"all":                {true, map[string]time.Time{"s1/gpu0": after, "s1/fan1": after}, true, "1 GPUs and 1 other parts were read since 12:00:00; nobody reads dimm0"},
		"one GPU of a server that others use": {
			false, map[string]time.Time{"s1/gpu0": after, "s1/fan1": before}, true, "1 GPUs were read since 12:00:00",
		},
	} {
		r := steps.Readings{
			Parts:  func(string) []schemas.Resource { return parts },
			Newest: func(context.Context, string) (map[string]time.Time, error) { return tc.read, nil },
		}
		if p, err := r.Do(t.Context(), job(steps.Telemetry, tc.exclusive)); err != nil || p.Done != tc.done || p.Failed || p.Message != tc.said {
			t.Errorf("%s: %+v %v", name, p, err)
		}
	}
	blind := steps.Readings{}
	if p, err := blind.Do(t.Context(), job(steps.Telemetry, true)); err != nil || !p.Failed || !strings.Contains(p.Message, "sees no telemetry") {
		t.Errorf("%+v %v", p, err)
	}
}

func TestAServerIsIdleAndWell(t *testing.T) {
	var asked []string
	busy, ill := []string{"job-1"}, []string{"incident i1: gpu.xid on s1/gpu0"}
	r := steps.Readings{
		Running: func(resources ...string) []string { asked = resources; return busy },
		Ill:     func(context.Context, string) ([]string, error) { return ill, nil },
	}
	if p, err := r.Do(t.Context(), job(steps.Idle, true)); err != nil || p.Done || p.Failed || p.Message != "job-1 still runs" || asked[0] != "s1" {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := r.Do(t.Context(), job(steps.Idle, false)); err != nil || asked[0] != "s1/gpu0" {
		t.Errorf("%v %v", asked, err)
	}
	if p, err := r.Do(t.Context(), job(steps.Health, true)); err != nil || !p.Failed || p.Message != ill[0] {
		t.Errorf("%+v %v", p, err)
	}
	cleanup := job(steps.Health, true)
	cleanup.Workflow.Type = schemas.WorkflowCleanup
	if p, err := r.Do(t.Context(), cleanup); err != nil || p.Failed || p.Done || p.Message != ill[0] {
		t.Errorf("what is ill is not waited for: %+v %v", p, err)
	}
	busy, ill = nil, nil
	// Control does one thing at a time on a server, so that what is to be installed waits for it.
	works := true
	r.Works = func(context.Context, string) (bool, error) { return works, nil }
	cleanup.Workflow.Steps = []schemas.WorkflowStep{{Name: steps.Install}}
	if p, err := r.Do(t.Context(), cleanup); err != nil || p.Failed || p.Done || p.Message != "control works on it" {
		t.Errorf("%+v %v", p, err)
	}
	works = false
	if p, err := r.Do(t.Context(), cleanup); err != nil || !p.Done {
		t.Errorf("%+v %v", p, err)
	}
	for _, step := range []string{steps.Idle, steps.Health} {
		if p, err := r.Do(t.Context(), job(step, true)); err != nil || !p.Done {
			t.Errorf("%s: %+v %v", step, p, err)
		}
	}
}

// TestControlIsAskedOnce for one step of one run, wherever it is done, and anew for the next run.
func TestControlIsAskedOnce(t *testing.T) {
	actions := map[string]schemas.Action{}
	var asked []schemas.Intent
	away := errors.New("the bus is away")
	c := steps.Control{
		Now: func() time.Time { return began },
		Ask: func(_ context.Context, in schemas.Intent) error {
			asked = append(asked, in)
			err := away
			away = nil
			return err
		},
		Action: func(_ context.Context, id string) (schemas.Action, bool, error) {
			a, ok := actions[id]
			return a, ok, nil
		},
	}
	j := job("power_on", true)
	j.Workflow.CreatedBy, j.Step.Target = "li", "s1/gpu0"
	if _, err := c.Do(t.Context(), j); err == nil {
		t.Error("the bus is away")
	}
	p, err := c.Do(t.Context(), j)
	if err != nil || p.Done || p.Operation != j.ID() {
		t.Errorf("%+v %v", p, err)
	}
	if len(asked) != 2 || asked[0].ID != asked[1].ID || asked[0].Verb != schemas.IntentRequest || asked[0].Kind != "power_on" || asked[0].Server != "s1" || asked[0].Target != "s1/gpu0" ||
		asked[0].Reason != "workflow w" || asked[0].Actor != "li" {
		t.Errorf("%+v", asked)
	}
	for _, tc := range []struct {
		a            schemas.Action
		done, failed bool
		said         string
	}{
		{schemas.Action{State: schemas.ActionRunning}, false, false, "running: control works on it"},
		{schemas.Action{State: schemas.ActionWaiting, Detail: "rack budget"}, false, false, "waiting: rack budget"},
		{schemas.Action{State: schemas.ActionDone, VerifiedBy: "the power is on"}, true, false, "the power is on"},
		{schemas.Action{State: schemas.ActionRefused, Detail: "it has no BMC"}, false, true, "refused: it has no BMC"},
		{schemas.Action{State: schemas.ActionProposed, Mode: "dry-run", Why: "li asked", Detail: "li asked"}, false, false, "control looks at it"},
		{schemas.Action{State: schemas.ActionProposed, Mode: "dry-run", Why: "li asked", Detail: "it would"}, false, true, "control does nothing in mode dry-run: it would"},
	} {
		actions[j.ID()] = tc.a
		if p, err := c.Do(t.Context(), j); err != nil || p.Done != tc.done || p.Failed != tc.failed || p.Message != tc.said {
			t.Errorf("%+v: %+v %v", tc.a, p, err)
		}
	}
	if len(asked) != 2 {
		t.Errorf("control was asked again: %+v", asked)
	}
	was := j.ID()
	if j.Workflow.Attempt = 2; j.ID() == was {
		t.Error("the next run is another action")
	}
	if j.Workflow.Attempt, j.Number = 1, 1; j.ID() == was {
		t.Error("the next step is another action")
	}
}

func TestTwoDriversOfOneStep(t *testing.T) {
	if _, err := steps.Of(steps.Control{}, steps.Control{}); err == nil {
		t.Error("nobody can say which of them does it")
	}
	d, err := steps.Of(steps.Control{}, steps.Readings{})
	if err != nil || len(d.Kinds()) < 10 {
		t.Errorf("%v %v", d.Kinds(), err)
	}
}
