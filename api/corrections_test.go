package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/hindsight"
	"auspex/internal/store/audit"
	"auspex/internal/store/corrections"
	"auspex/schemas"
)

func TestAPersonSaysWhatTheCauseWas(t *testing.T) {
	w := start(t, true)
	const path = "api/v1/incidents/i-1042/corrections"
	gpu, _ := w.inv.Snapshot().Resource("gpu-r01-03/gpu2")
	for _, c := range []struct {
		name, role, path, body string
		status                 int
		code                   string
	}{
		{"nobody", "", path, `{"verdict":"right"}`, 401, "login_needed"},
		{"a viewer", access.RoleViewer, path, `{"verdict":"right"}`, 403, "no_permission"},
		{"no verdict", access.RoleOperator, path, `{}`, 400, "bad_body"},
		{"a verdict of nobody", access.RoleOperator, path, `{"verdict":"maybe"}`, 400, "bad_body"},
		{"no cause", access.RoleOperator, path, `{"verdict":"cause"}`, 400, "bad_correction"},
		{"a resource of nobody", access.RoleOperator, path, `{"verdict":"cause","resource":"gpu-r99-01","fault":"host.crash"}`, 404, "not_found"},
		{"a fault of nobody", access.RoleOperator, path, `{"verdict":"cause","resource":"pdu-r01-b","fault":"power.magic"}`, 400, "bad_correction"},
		{"a fault of another kind", access.RoleOperator, path, `{"verdict":"cause","resource":"pdu-r01-b","fault":"host.crash"}`, 400, "bad_correction"},
		{"a long note", access.RoleOperator, path, `{"verdict":"right","note":"` + strings.Repeat("x", 2001) + `"}`, 400, "bad_body"},
		{"an incident of nobody", access.RoleOperator, "api/v1/incidents/i-0/corrections", `{"verdict":"right"}`, 404, "not_found"},
		{"right", access.RoleOperator, path, `{"verdict":"right"}`, 201, ""},
		{"another cause", access.RoleAdmin, path, `{"verdict":"cause","resource":"pdu-r01-b","fault":"power.feed_loss","note":" B, not A "}`, 201, ""},
		{"of a part by its PCI name", access.RoleOperator, path, `{"verdict":"cause","resource":"` + gpu.ID + `","fault":"gpu.fallen_off_bus"}`, 201, ""},
		{"a job", access.RoleOperator, path, `{"verdict":"cause","resource":"job-118","fault":"workload.error"}`, 201, ""},
		{"none that is known", access.RoleOperator, path, `{"verdict":"cause","resource":"dc1-r01","fault":"unknown","note":"water"}`, 201, ""},
		{"none", access.RoleOperator, path, `{"verdict":"no_incident"}`, 201, ""},
		{"withdrawn", access.RoleOperator, path, `{"verdict":"withdrawn"}`, 201, ""},
		{"again", access.RoleOperator, path, `{"verdict":"cause","resource":"pdu-r01-b","fault":"power.feed_loss"}`, 201, ""},
	} {
		a := w.send(t, http.MethodPost, c.path, c.role, body(c.body))
		if a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
		} else if c.code != "" {
			if p := a.problem(t); p.Code != c.code {
				t.Errorf("%s: %+v", c.name, p)
			}
		}
	}
	i := read[apigen.Incident](t, w, "api/v1/incidents/i-1042")
	if c := i.Correction; c.Revision != 8 || c.Resource != "pdu-r01-b" || c.Author != "operator" || c.Said.Resource != "pdu-r01-a" ||
		c.Said.Confidence != 0.97 {
		t.Errorf("on the incident: %+v", c)
	}
	if i.RootCause.Resource != "pdu-r01-a" {
		t.Errorf("what the product had said is changed: %+v", i.RootCause)
	}
	list := read[apigen.IncidentList](t, w, "api/v1/incidents")
	for _, other := range list.Items {
		if (other.Correction.Revision > 0) != (other.ID == "i-1042") {
			t.Errorf("in the list: %s %+v", other.ID, other.Correction)
		}
	}
	all := read[apigen.CorrectionList](t, w, path)
	if len(all.Items) != 8 || all.Items[6].Note != "B, not A" || all.Items[6].Author != "admin" {
		t.Errorf("the verdicts: %+v", all.Items)
	}
	if standing := read[apigen.CorrectionList](t, w, "api/v1/corrections"); len(standing.Items) != 1 || standing.Items[0].Revision != 8 {
		t.Errorf("exported: %+v", standing)
	}
	if _, err := audit.Verify(t.Context(), w.db); err != nil {
		t.Error(err)
	}
}

func TestAMergedIncidentIsJudgedWhereItWent(t *testing.T) {
	w := start(t, false)
	at := time.Now().UTC()
	if err := w.records.PutIncident(t.Context(), schemas.Incident{
		ID: "i-1", Opened: at, Updated: at, At: at, MergedInto: "i-2", RootCause: schemas.Cause{Resource: "x", Fault: "host.crash"},
	}); err != nil {
		t.Fatal(err)
	}
	a := w.send(t, http.MethodPost, "api/v1/incidents/i-1/corrections", access.RoleOperator, body(`{"verdict":"right"}`))
	if a.status != http.StatusConflict || a.problem(t).Code != "merged" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// judge stores closed incidents that a person has judged: of every ten, eight right,
// one wrong, one that was none.
func judge(t *testing.T, w *world, n int) {
	t.Helper()
	store := corrections.New(w.db)
	for k := range n {
		opened := time.Now().UTC().Add(-time.Duration(k+2) * time.Hour)
		closed := opened.Add(time.Hour)
		said := schemas.Cause{Resource: "pdu-r01-a", Fault: "power.feed_loss", Confidence: 0.6 + 0.037*float64(k%10)}
		i := schemas.Incident{
			ID: fmt.Sprintf("i-9%03d", k), Opened: opened, Updated: closed, Closed: &closed, At: opened.Add(time.Duration(5+k) * time.Second),
			Severity: schemas.SeverityWarning, RootCause: said, Revision: 1, Explanation: "Feed A lost power.",
		}
		c := schemas.Correction{
			Incident: i.ID, Time: closed, Author: "ann", Verdict: schemas.VerdictRight, Resource: said.Resource, Fault: said.Fault, Said: said,
		}
		switch k % 10 {
		case 0:
			c.Verdict, c.Resource, c.Fault = schemas.VerdictCause, "gpu-r01-01/psu0", "power.psu_failure"
		case 1:
			c.Verdict, c.Resource, c.Fault = schemas.VerdictNoIncident, "", ""
		}
		if err := w.records.PutIncident(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		if err := corrections.PutCauseIn(t.Context(), w.db, &i); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheRecordOfCausesCountsWhatPeopleJudged(t *testing.T) {
	w := start(t, true, func(_ *api.Config, d *api.Deps) {
		d.Learned = nil
	})
	r := read[apigen.IncidentRecord](t, w, "api/v1/incidents/record")
	if r.Judged != 0 || r.Enough || r.Closed != 2 || r.CalibrationError != nil || r.SecondsP50 != nil || len(r.Bins) != hindsight.Bins {
		t.Errorf("nothing is judged yet: %+v", r)
	}
	judge(t, w, 40)
	r = read[apigen.IncidentRecord](t, w, "api/v1/incidents/record")
	if r.Judged != 40 || r.Right != 32 || r.Wrong != 8 || r.NoIncident != 4 || !r.Enough || r.Closed != 42 {
		t.Errorf("%+v", r)
	}
	if r.SecondsP50 == nil || *r.SecondsP50 < 5 || *r.SecondsP50 > 45 || r.CalibrationError == nil {
		t.Errorf("time %v, calibration error %v", r.SecondsP50, r.CalibrationError)
	}
	n := 0
	for _, b := range r.Bins {
		n += b.N
	}
	if n != 40 || r.Faults[0].Fault != "power.feed_loss" || r.Faults[0].N != 32 {
		t.Errorf("bins hold %d; by fault %+v", n, r.Faults)
	}
	a := w.send(t, http.MethodPost, "api/v1/incidents/i-9005/corrections", access.RoleOperator, body(`{"verdict":"withdrawn"}`))
	if a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if r = read[apigen.IncidentRecord](t, w, "api/v1/incidents/record"); r.Judged != 39 || r.Right != 31 {
		t.Errorf("a verdict that was withdrawn counts: %+v", r)
	}
}
