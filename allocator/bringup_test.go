package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/allocator"
	"auspex/allocator/steps"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// Holds implements steps.Holder.
func (s *site) Holds(_ context.Context, j steps.Job) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[j.Step.Name], nil
}

// A bring-up waits before a step that may not begin, fails where one fails, and goes on there: what was done stays done, also in
// another process.
func TestABringUpIsResumedWhereItFailed(t *testing.T) {
	s := newSite(t, 1)
	s.set("ready", "the fan is dead")
	s.holds = map[string]string{steps.Drain: "control observes"}
	stop := s.run("p1")
	w, err := s.flows.Create(t.Context(), "li", schemas.Workflow{
		ServerID: s.ids["s0"], Type: schemas.WorkflowBringUp, Exclusive: true, Steps: []schemas.WorkflowStep{{Name: "scrub"}, {Name: steps.Drain}, {Name: "ready"}, {Name: steps.Uncordon}},
	})
	s.must(err)
	s.flow(w.ID, func(w *schemas.Workflow) bool {
		return w.Steps[0].Status == schemas.StepCompleted && w.Steps[1].Status == schemas.StepPending && w.Steps[1].Message == "control observes"
	})
	if got := s.server("s0"); got != schemas.ServerProvisioning {
		t.Errorf("s0 is %s while it is brought up", got)
	}
	stop()
	s.mu.Lock()
	s.holds = nil
	s.mu.Unlock()
	s.run("p2")
	s.flow(w.ID, func(w *schemas.Workflow) bool { return w.Status == schemas.WorkflowFailed })
	was, err := s.flows.Get(t.Context(), w.ID)
	s.must(err)
	if was.Steps[1].Message != "done" || was.Steps[2].Status != schemas.StepFailed || was.Steps[3].Status != schemas.StepSkipped || was.Reason != "ready: the fan is dead" {
		t.Errorf("%+v", was)
	}
	s.set("ready", "")
	again, err := s.flows.Resume(t.Context(), "ana", w.ID)
	s.must(err)
	if again.Attempt != 2 || again.Status != schemas.WorkflowPending {
		t.Errorf("%+v", again)
	}
	s.flow(w.ID, func(w *schemas.Workflow) bool { return w.Status == schemas.WorkflowCompleted })
	is, err := s.flows.Get(t.Context(), w.ID)
	s.must(err)
	if d := cmp.Diff(was.Steps[:2], is.Steps[:2]); d != "" {
		t.Errorf("what was done was done again: %s", d)
	}
	if got := s.server("s0"); got != schemas.ServerReady {
		t.Errorf("s0 is %s", got)
	}
}

// Bring-ups that wait for people keep nobody else waiting.
func TestABringUpThatWaitsTakesNoOthersPlace(t *testing.T) {
	s := newSite(t, 2)
	s.config.Parallel = 1
	s.holds = map[string]string{"ready": "nobody has agreed"}
	waits, err := s.flows.Create(t.Context(), "li", schemas.Workflow{
		ServerID: s.ids["s0"], Type: schemas.WorkflowBringUp, Exclusive: true, Steps: []schemas.WorkflowStep{{Name: "ready"}},
	})
	s.must(err)
	s.run("p1")
	s.flow(waits.ID, func(w *schemas.Workflow) bool { return w.Steps[0].Message == "nobody has agreed" })
	w, err := s.flows.Create(t.Context(), "li", schemas.Workflow{
		ServerID: s.ids["s1"], Type: schemas.WorkflowValidate, Exclusive: true, Steps: []schemas.WorkflowStep{{Name: "scrub"}},
	})
	s.must(err)
	s.flow(w.ID, func(w *schemas.Workflow) bool { return w.Status == schemas.WorkflowCompleted })
}

// What a workflow saw is out of date after another, and one of an allocation is the allocation's to run again.
func TestWhatCannotBeResumed(t *testing.T) {
	s := newSite(t, 2)
	fails := func(server, allocation string) schemas.Workflow {
		w, err := s.flows.Create(t.Context(), "li", schemas.Workflow{
			ServerID: s.ids[server], AllocationID: allocation, Type: schemas.WorkflowBringUp, Exclusive: true, Steps: []schemas.WorkflowStep{{Name: "ready"}},
		})
		s.must(err)
		w, err = s.flows.Move(t.Context(), "li", "", w.ID, schemas.WorkflowFailed, workflows.Cancelled, nil)
		s.must(err)
		return w
	}
	first := fails("s0", "")
	second := fails("s0", "")
	if _, err := s.flows.Resume(t.Context(), "li", first.ID); !errors.Is(err, workflows.ErrPast) {
		t.Errorf("%v", err)
	}
	if _, err := s.flows.Resume(t.Context(), "li", second.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.flows.Resume(t.Context(), "li", second.ID); !errors.As(err, new(*schemas.MoveError)) {
		t.Errorf("one that goes on: %v", err)
	}
	if _, err := s.flows.Resume(t.Context(), "li", fails("s1", s.take(s.whole("s1")).ID).ID); !errors.Is(err, workflows.ErrOf) {
		t.Errorf("%v", err)
	}
}

// The steps of a bring-up are those of the site, with what its model and its template say.
func TestTheStepsOfABringUp(t *testing.T) {
	s, inv := stocked(t, 1)
	server, err := s.estate.Server(t.Context(), "r00-s0")
	s.must(err)
	sum := strings.Repeat("0f", 32)
	s.config.BringUp.Firmware = []allocator.Firmware{
		{Model: server.Model, Component: "BMC", Version: "2.0", Image: "https://images/bmc", SHA256: sum},
		{Model: "another", Component: "BMC", Version: "3.0", Image: "https://images/bmc3", SHA256: sum},
		{Model: server.Model, Component: "BIOS", Version: "1.7", Image: "https://images/bios", SHA256: sum},
	}
	pinned := ""
	v := s.serviceWith(inv, func(d *allocator.ServiceDeps) {
		d.Pinned = func(context.Context, string) (string, int64, error) { return pinned, 4, nil }
	})
	made := func(in schemas.Install) (out []string) {
		w, err := v.BringUp(t.Context(), "li", server.ID, in)
		s.must(err)
		if w.Type != schemas.WorkflowBringUp || !w.Exclusive || w.AllocationID != "" {
			t.Errorf("%+v", w)
		}
		for _, st := range w.Steps {
			out = append(out, strings.TrimSpace(fmt.Sprint(st.Name, " ", st.With["component"], st.With["template"], " ", st.With["version"])))
		}
		_, err = s.flows.Move(t.Context(), "li", "", w.ID, schemas.WorkflowFailed, "", nil)
		s.must(err)
		return out
	}
	want := []string{"inventory", "idle", "drain", "update_firmware BMC 2.0", "update_firmware BIOS 1.7", "driver", "drain", "telemetry", "validate", "health", "uncordon"}
	if d := cmp.Diff(want, made(schemas.Install{})); d != "" {
		t.Error(d)
	}
	want = slices.Insert(want, 5, "install talos 4")
	pinned = "talos"
	if d := cmp.Diff(want, made(schemas.Install{})); d != "" {
		t.Error(d)
	}
	want[5] = "install ubuntu 2"
	if d := cmp.Diff(want, made(schemas.Install{Template: "ubuntu", TemplateVersion: 2})); d != "" {
		t.Error(d)
	}
	s.config.BringUp.Firmware = s.config.BringUp.Firmware[1:2]
	v = s.service(inv)
	if got := made(schemas.Install{}); got[3] != "no_baseline" || slices.Contains(got, "install") {
		t.Error(got)
	}
	if _, err := v.BringUp(t.Context(), "li", server.ID, schemas.Install{Template: "ubuntu", TemplateVersion: 2}); !errors.Is(err, schemas.ErrNoInstall) {
		t.Errorf("nobody installs: %v", err)
	}
}

func TestABaselineThatIsWrong(t *testing.T) {
	good := allocator.Firmware{Model: "m", Component: "BMC", Version: "1", Image: "https://i", SHA256: strings.Repeat("0", 64)}
	for want, change := range map[string]func(*allocator.Config){
		"bring_up.firmware[0].component is missing": func(c *allocator.Config) {
			c.BringUp.Firmware = []allocator.Firmware{good}
			c.BringUp.Firmware[0].Component = ""
		},
		`bring_up.firmware[0].sha256 is "beef"; want 64 hexadecimal digits`: func(c *allocator.Config) {
			c.BringUp.Firmware = []allocator.Firmware{good}
			c.BringUp.Firmware[0].SHA256 = "beef"
		},
		"bring_up.firmware[1]: BMC of m has a version already": func(c *allocator.Config) { c.BringUp.Firmware = []allocator.Firmware{good, good} },
		"bring_up.firmware is set, and bring_up.steps has no step firmware": func(c *allocator.Config) {
			c.BringUp.Firmware, c.BringUp.Steps = []allocator.Firmware{good}, []string{"health"}
		},
		"bring_up.steps is empty: a server would be ready that nobody has looked at": func(c *allocator.Config) { c.BringUp.Steps = nil },
	} {
		c := allocator.DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A cleanup that is to set the BIOS back asks for all defaults but for what the server is kept at, of whole servers alone.
func TestACleanupSetsTheBIOSBack(t *testing.T) {
	s := newSite(t, 1)
	s.config.Cleanup = []string{steps.Drain, steps.ResetBIOS, "scrub"}
	s.run("p1")
	a := s.becomes(s.take(s.whole("s0")).ID, schemas.AllocationActive)
	_, err := s.given.End(t.Context(), "li", a.ID, 0, schemas.AllocationCompleted, "", "")
	s.must(err)
	s.returned(a.ID)
	made, err := s.flows.Of(t.Context(), a.ID)
	s.must(err)
	w := made[len(made)-1]
	if len(w.Steps) != 3 || w.Steps[0].Name != steps.Drain || w.Steps[1].Name != steps.SetBIOS {
		t.Fatalf("%+v", w.Steps)
	}
	if d := cmp.Diff(map[string]string{"SMT": "false", "defaults": "true", "reset": "true"}, w.Steps[1].With); d != "" {
		t.Error(d)
	}
}
