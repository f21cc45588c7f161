package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/schemas"
)

// waits puts an action that waits for two persons, as control leaves it.
func (w *world) waits(t *testing.T, id string, change func(*schemas.Action)) {
	t.Helper()
	now := time.Now().UTC()
	a := schemas.Action{
		ID: id, Time: now, Created: now, Server: "gpu-r01-03", Kind: "power_cycle", Mode: schemas.ModeApprove, State: schemas.ActionWaiting, Attempt: 1,
		Ladder: []string{"power_cycle"}, ApprovalsNeeded: 2, Why: "x",
	}
	change(&a)
	if err := w.records.PutAction(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// TestTwoPersonsAreAskedEachByName tells each of two who is still needed, and refuses whoever counts for nothing.
func TestTwoPersonsAreAskedEachByName(t *testing.T) {
	w := start(t, false)
	intents := w.intents(t)
	ann, bo := w.person(t, "ann", access.RoleOperator), w.person(t, "bo", access.RoleOperator)
	w.waits(t, "two", func(*schemas.Action) {})
	approve := func(id, who string) answer {
		return w.send(t, http.MethodPost, "api/v1/actions/"+id+"/approve", who, nil)
	}
	first := decode[apigen.Accepted](t, approve("two", "ann"), http.StatusAccepted)
	if !strings.Contains(first.Detail, "One more person must approve it") {
		t.Errorf("%+v", first)
	}
	if in := <-intents; in.User != ann.ID || in.Actor != "ann" || in.Verb != "approve" {
		t.Errorf("%+v", in)
	}
	w.waits(t, "two", func(a *schemas.Action) { a.Approvals = []schemas.Approval{{By: "ann", User: ann.ID}} })
	if p := approve("two", "ann").problem(t); p.Status != http.StatusConflict || p.Code != "approved_already" || !strings.Contains(p.Hint, "One more person") {
		t.Errorf("the same person again: %+v", p)
	}
	if p := approve("two", access.RoleOperator).problem(t); p.Status != http.StatusForbidden || p.Code != "no_person" {
		t.Errorf("a token that is nobody's: %+v", p)
	}
	if last := decode[apigen.Accepted](t, approve("two", "bo"), http.StatusAccepted); last.Detail != "" {
		t.Errorf("%+v", last)
	}
	w.waits(t, "own", func(a *schemas.Action) { a.ApprovalsNeeded, a.Requester = 1, bo.ID })
	if p := approve("own", "bo").problem(t); p.Status != http.StatusConflict || p.Code != "own_request" {
		t.Errorf("who asked for it: %+v", p)
	}
	if a := approve("own", "ann"); a.status != http.StatusAccepted {
		t.Errorf("another: %d %s", a.status, a.body)
	}
}

// TestAnAdminOverridesAFreezeForAReason, and nobody else, nor without one, nor where none holds.
func TestAnAdminOverridesAFreezeForAReason(t *testing.T) {
	w := start(t, false)
	w.engineer(t)
	intents := w.intents(t)
	w.waits(t, "frozen", func(a *schemas.Action) {
		a.Rails = []schemas.Rail{{Name: "change_freeze", Value: 1}}
	})
	w.waits(t, "free", func(*schemas.Action) {})
	override := func(id, role, text string) answer {
		return w.send(t, http.MethodPost, "api/v1/actions/"+id+"/override", role, body(text))
	}
	for name, c := range map[string]struct {
		id, role, body string
		status         int
		code           string
	}{
		"an engineer":        {"frozen", access.RoleEngineer, `{"reason":"x"}`, http.StatusForbidden, "no_permission"},
		"without a reason":   {"frozen", access.RoleAdmin, `{}`, http.StatusBadRequest, "invalid_request"},
		"an empty reason":    {"frozen", access.RoleAdmin, `{"reason":"  "}`, http.StatusBadRequest, "invalid_request"},
		"no freeze holds it": {"free", access.RoleAdmin, `{"reason":"x"}`, http.StatusConflict, "not_frozen"},
	} {
		if p := override(c.id, c.role, c.body).problem(t); p.Status != c.status || p.Code != c.code {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if a := override("frozen", access.RoleAdmin, `{"reason":"the rack burns"}`); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if in := <-intents; in.Verb != "override" || in.Reason != "the rack burns" || in.Action != "frozen" {
		t.Errorf("%+v", in)
	}
}

// TestAFreezeIsDeclaredForPoolsAndEndedByItsOwner keeps a freeze out of the hands of those whom it holds.
func TestAFreezeIsDeclaredForPoolsAndEndedByItsOwner(t *testing.T) {
	w := gives(t)
	w.person(t, "ann", access.RoleOperator)
	w.person(t, "bo", access.RoleOperator)
	declare := func(text string) answer {
		return w.send(t, http.MethodPost, "api/v1/maintenance", "ann", body(text))
	}
	for text, code := range map[string]string{
		`{"pools":["none"],"work":"freeze","duration_seconds":60,"reason":"x"}`:                "bad_maintenance",
		`{"pools":["default"],"duration_seconds":60,"reason":"x"}`:                             "bad_maintenance",
		`{"resources":["gpu-r01-03"],"duration_seconds":2000000,"reason":"x"}`:                 "bad_maintenance",
		`{"resources":["gpu-r01-03/gpu0"],"work":"freeze","duration_seconds":60,"reason":"x"}`: "bad_maintenance",
	} {
		if p := declare(text).problem(t); p.Status != http.StatusBadRequest || p.Code != code {
			t.Errorf("%s: %+v", text, p)
		}
	}
	m := decode[schemas.Maintenance](t, declare(`{"pools":["default"],"resources":["gpu-r01-03"],"work":"freeze","duration_seconds":2000000,"reason":"year end"}`), http.StatusCreated)
	if len(m.Pools) != 1 || m.Pools[0] != "default" || m.Work != schemas.WorkFreeze || len(m.Events()) != 0 {
		t.Errorf("%+v", m)
	}
	end := func(who string) answer {
		return w.send(t, http.MethodPost, "api/v1/maintenance/"+m.ID+"/end", who, nil)
	}
	if p := end("bo").problem(t); p.Status != http.StatusForbidden || p.Code != "not_yours" {
		t.Errorf("%+v", p)
	}
	if a := end("ann"); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}
