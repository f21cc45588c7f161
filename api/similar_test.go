package api_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api/apigen"
	"auspex/schemas"
)

func TestAnIncidentKnowsWhatCuredSimilarOnes(t *testing.T) {
	w := start(t, true)
	now := time.Now().UTC().Truncate(time.Second)
	past := func(id, resource, fault string, ago time.Duration) {
		t.Helper()
		closed := now.Add(-ago).Add(20 * time.Minute)
		if err := w.putIncident(t.Context(), schemas.Incident{
			ID: id, Opened: now.Add(-ago), Updated: closed, Closed: &closed, At: closed, RootCause: schemas.Cause{Resource: resource, Fault: fault},
		}); err != nil {
			t.Fatal(err)
		}
	}
	past("same-part", "gpu-r03-06/gpu4", "gpu.fallen_off_bus", 90*24*time.Hour)
	past("elsewhere", "gpu-r01-02/gpu1", "gpu.fallen_off_bus", 24*time.Hour)
	past("another", "gpu-r03-06/gpu4", "gpu.gsp_hang", 48*time.Hour)
	for k, a := range []schemas.Action{
		{ID: "a1", Kind: "drain", Mode: schemas.ModeEnforce, State: schemas.ActionDone},
		{ID: "a2", Kind: "power_cycle", Mode: schemas.ModeApprove, State: schemas.ActionDone},
		{ID: "a3", Kind: "reboot", Mode: schemas.ModeEnforce, State: schemas.ActionFailed},
		{ID: "a4", Kind: "reset_gpu", Mode: schemas.ModeDryRun, State: schemas.ActionDone},
	} {
		a.Incident, a.Server, a.Time = "same-part", "gpu-r03-06", now.Add(time.Duration(k)*time.Minute)
		if err := w.records.PutAction(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	type short struct {
		ID, Match string
		CuredBy   []string
	}
	var got []short
	for _, s := range read[apigen.Incident](t, w, "api/v1/incidents/i-1043").Similar {
		got = append(got, short{s.ID, s.Match, s.CuredBy})
	}
	want := []short{{"same-part", "resource", []string{"drain", "power_cycle"}}, {"elsewhere", "model", []string{}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAnIncidentBringsItsWordsInEveryLanguage(t *testing.T) {
	w := start(t, true)
	i := read[apigen.Incident](t, w, "api/v1/incidents/i-1042")
	if i.RootCause.Title["zh"] != "供电中断" || i.Alternatives[0].Title["en"] != "Feed lost" {
		t.Errorf("causes are called %v, %v", i.RootCause.Title, i.Alternatives)
	}
	if i.Summary.Text["zh"] != "机柜 r01 的 A 路供电中断，8 台服务器接在其上。" {
		t.Errorf("summary: %v", i.Summary.Text)
	}
	for _, s := range i.Sentences {
		if s.Text["en"] == "" || s.Text["zh"] == "" {
			t.Errorf("%s is silent: %v", s.ID, s.Text)
		}
	}
	for _, p := range read[apigen.PredictionList](t, w, "api/v1/predictions?state=open").Items {
		if p.FailureTitle["zh"] == "" {
			t.Errorf("%s has no name in Chinese", p.Failure)
		}
	}
}
