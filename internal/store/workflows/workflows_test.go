package workflows_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// machine is a store with one server, a.
func machine(t *testing.T) (*sqldb.DB, *workflows.Store, func() schemas.Server) {
	t.Helper()
	db := sqltest.Open(t)
	e := estate.New(db)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(e)
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	top := schemas.Topology{Resources: []schemas.Resource{{ID: "a", Kind: schemas.KindServer}}}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	return db, workflows.New(db), func() schemas.Server {
		t.Helper()
		v, err := e.Server(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func draft(server string, steps ...string) schemas.Workflow {
	w := schemas.Workflow{ServerID: server, Type: schemas.WorkflowValidate, Exclusive: true}
	for _, name := range steps {
		w.Steps = append(w.Steps, schemas.WorkflowStep{Name: name})
	}
	return w
}

func TestAWorkflowMovesItsServer(t *testing.T) {
	_, s, server := machine(t)
	w, err := s.Create(t.Context(), "root", draft(server().ID, "one", "two"))
	if err != nil || w.Status != schemas.WorkflowPending || w.Steps[1].Status != schemas.StepPending || w.Server != "a" || w.Attempt != 1 {
		t.Fatalf("%+v %v", w, err)
	}
	if _, err := s.Create(t.Context(), "root", draft(server().ID, "one")); !errors.Is(err, workflows.ErrBusy) {
		t.Errorf("two workflows on one server: %v", err)
	}
	move := func(to string) (schemas.Workflow, error) {
		return s.Move(t.Context(), "root", "", w.ID, to, "because", nil)
	}
	if _, err := move(schemas.WorkflowCompleted); !errors.As(err, new(*schemas.MoveError)) {
		t.Errorf("%v", err)
	}
	for _, tc := range []struct{ to, server, step string }{
		{schemas.WorkflowRunning, schemas.ServerProvisioning, schemas.StepPending},
		{schemas.WorkflowFailed, schemas.ServerError, schemas.StepSkipped},
		{schemas.WorkflowPending, schemas.ServerError, schemas.StepPending},
		{schemas.WorkflowRunning, schemas.ServerProvisioning, schemas.StepPending},
		{schemas.WorkflowCompleted, schemas.ServerReady, schemas.StepSkipped},
	} {
		w, err := move(tc.to)
		if err != nil || w.Status != tc.to || server().Status != tc.server || w.Steps[0].Status != tc.step {
			t.Errorf("%s: %+v %v, server %s", tc.to, w, err, server().Status)
		}
	}
	if w, err := s.Get(t.Context(), w.ID); err != nil || w.Attempt != 2 || w.CompletedAt.IsZero() {
		t.Errorf("%+v %v", w, err)
	}
}

// A server that was wiped and not installed is ready and says so, until something has shown that it has a system.
func TestAWipedServerIsReadyToBeInstalled(t *testing.T) {
	_, s, server := machine(t)
	for _, tc := range []struct {
		steps []string
		bare  bool
	}{
		{[]string{"one"}, false},
		{[]string{"drain", "wipe"}, true},
		{[]string{"set_bios"}, true},
		{[]string{"install", "one"}, false},
		{[]string{"wipe"}, true},
		{[]string{"telemetry"}, false},
		{[]string{"wipe", "install", "telemetry"}, false},
	} {
		w, err := s.Create(t.Context(), "root", draft(server().ID, tc.steps...))
		for _, to := range []string{schemas.WorkflowRunning, schemas.WorkflowCompleted} {
			if err == nil {
				_, err = s.Move(t.Context(), "root", "", w.ID, to, "", nil)
			}
		}
		if v := server(); err != nil || v.Status != schemas.ServerReady || strings.Contains(v.Reason, "it is ready to be installed") != tc.bare || !tc.bare && v.Reason != "" {
			t.Errorf("%v: %v %s %q", tc.steps, err, v.Status, v.Reason)
		}
	}
}

// TestOneProcessRunsIt, and another takes it up when that one does not hold it any more.
func TestOneProcessRunsIt(t *testing.T) {
	db, s, server := machine(t)
	w, err := s.Create(t.Context(), "root", draft(server().ID, "one"))
	if err != nil {
		t.Fatal(err)
	}
	hold := func(who string, want bool) {
		t.Helper()
		if ok, err := s.Hold(t.Context(), w.ID, who, time.Hour); err != nil || ok != want {
			t.Errorf("%s holds it: %t %v", who, ok, err)
		}
	}
	due := func(want int) {
		t.Helper()
		if all, err := s.Due(t.Context()); err != nil || len(all) != want {
			t.Errorf("due: %v %v", all, err)
		}
	}
	due(1)
	hold("p1", true)
	hold("p2", false)
	hold("p1", true)
	due(0)
	w, err = s.Move(t.Context(), "root", "p1", w.ID, schemas.WorkflowRunning, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Steps[0].Status = schemas.StepRunning
	if err := s.Save(t.Context(), "p2", &w); !errors.Is(err, workflows.ErrLost) {
		t.Errorf("%v", err)
	}
	if err := s.Save(t.Context(), "p1", &w); err != nil {
		t.Error(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE workflows SET holder_ns=1`); err != nil {
		t.Fatal(err)
	}
	due(1)
	hold("p2", true)
	if err := s.Save(t.Context(), "p1", &w); !errors.Is(err, workflows.ErrLost) {
		t.Errorf("%v", err)
	}
	if _, err := s.Move(t.Context(), "root", "p1", w.ID, schemas.WorkflowCompleted, "", nil); !errors.Is(err, workflows.ErrLost) {
		t.Errorf("%v", err)
	}
	// A person ends it, whoever runs it; that one learns it.
	if w, err := s.Move(t.Context(), "root", "", w.ID, schemas.WorkflowFailed, workflows.Cancelled, nil); err != nil || w.Steps[0].Status != schemas.StepFailed ||
		w.Steps[0].Message != workflows.Cancelled {
		t.Errorf("%+v %v", w, err)
	}
	hold("p2", false)
	if err := s.Save(t.Context(), "p2", &w); !errors.Is(err, workflows.ErrLost) {
		t.Errorf("%v", err)
	}
}

// TestNobodyMovesAServerFromUnderItsWorkflow, and a workflow ends also where somebody once did.
func TestNobodyMovesAServerFromUnderItsWorkflow(t *testing.T) {
	db, s, server := machine(t)
	e := estate.New(db)
	by := func(to string) error {
		_, err := e.UpdateServer(t.Context(), "li", "a", 0, func(v *schemas.Server) { v.Status = to })
		return err
	}
	w, err := s.Create(t.Context(), "root", draft(server().ID, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Move(t.Context(), "root", "", w.ID, schemas.WorkflowRunning, "", nil); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{schemas.ServerError, schemas.ServerReady} {
		if err := by(to); !errors.Is(err, estate.ErrLeased) || server().Status != schemas.ServerProvisioning {
			t.Errorf("to %s: %v, it is %s", to, err, server().Status)
		}
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE servers SET status='error'`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Move(t.Context(), "root", "", w.ID, schemas.WorkflowFailed, workflows.Cancelled, nil); err != nil || server().Status != schemas.ServerError {
		t.Errorf("%v, it is %s", err, server().Status)
	}
	if err := by(schemas.ServerProvisioning); err != nil { // nobody works on it any more
		t.Error(err)
	}
}
