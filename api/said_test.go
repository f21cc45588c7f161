package api_test

import (
	"net/http"
	"testing"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/reasons"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// TestReasonsAreToldInPiecesToo holds that what can be said in every language is, beside its text.
func TestReasonsAreToldInPiecesToo(t *testing.T) {
	w := gives(t)
	made, store := w.allocates(t, "gpu-r01-01"), workflows.New(w.db)
	flow, err := store.Create(t.Context(), "allocator", schemas.Workflow{
		AllocationID: made.ID, ServerID: made.ServerID, Type: schemas.WorkflowDeploy, Exclusive: true, Steps: []schemas.WorkflowStep{{Name: "health"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ill := reasons.Text(reasons.Blamed, reasons.Args{"incident": "i1", "fault": "gpu.xid_ecc", "part": "gpu-r01-01/gpu0"})
	for _, to := range []string{schemas.WorkflowRunning, schemas.WorkflowFailed} {
		if _, err := store.Move(t.Context(), "allocator", "", flow.ID, to, reasons.Text(reasons.Step, reasons.Args{"step": "health", "why": ill}), []schemas.WorkflowStep{
			{Name: "health", Status: schemas.StepFailed, Message: ill},
		}); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, s *schemas.Sentence, id string) {
		t.Helper()
		if s == nil || s.ID != id {
			t.Errorf("%s is told as %+v, want %s", what, s, id)
		}
	}
	got := decode[schemas.Workflow](t, w.send(t, http.MethodGet, "api/v1/workflows/"+flow.ID, access.RoleEngineer, nil), http.StatusOK)
	is("the workflow", got.Sentence, reasons.Step)
	is("its step", got.Steps[0].Sentence, reasons.Blamed)
	if got.Steps[0].Message != ill {
		t.Errorf("the text is %q", got.Steps[0].Message)
	}
	status := decode[apigen.AllocationStatus](t, w.send(t, http.MethodGet, "api/v1/allocations/"+made.ID+"/status", access.RoleEngineer, nil), http.StatusOK)
	is("the workflow of an allocation", status.Workflows[0].Sentence, reasons.Step)
	a := decode[schemas.Allocation](t, w.send(t, http.MethodDelete, "api/v1/allocations/"+made.ID, access.RoleEngineer, nil), http.StatusOK)
	is("the allocation", a.Sentence, reasons.Cancelled)
	list := decode[apigen.AllocationList](t, w.send(t, http.MethodGet, "api/v1/allocations?ended=true", access.RoleEngineer, nil), http.StatusOK)
	is("the allocation of a list", list.Items[0].Sentence, reasons.Cancelled)
	capacity := decode[apigen.Capacity](t, w.send(t, http.MethodGet, "api/v1/capacity", access.RoleEngineer, nil), http.StatusOK)
	if len(capacity.Stranded) != 1 {
		t.Fatalf("%+v", capacity.Stranded)
	}
	is("the stranded server", capacity.Stranded[0].Sentence, reasons.StatusSo)
}
