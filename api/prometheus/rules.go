package prometheus

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promrules "github.com/prometheus/prometheus/rules"
)

// The documented shapes of rules and alerts.
type (
	ruleGroup struct {
		Name           string    `json:"name"`
		File           string    `json:"file"`
		Rules          []any     `json:"rules"`
		Interval       float64   `json:"interval"`
		Limit          int       `json:"limit"`
		EvaluationTime float64   `json:"evaluationTime"`
		LastEvaluation time.Time `json:"lastEvaluation"`
	}
	evaluation struct {
		Health         promrules.RuleHealth `json:"health"`
		LastError      string               `json:"lastError,omitempty"`
		EvaluationTime float64              `json:"evaluationTime"`
		LastEvaluation time.Time            `json:"lastEvaluation"`
		Type           string               `json:"type"`
	}
	alertingRule struct {
		State         string        `json:"state"`
		Name          string        `json:"name"`
		Query         string        `json:"query"`
		Duration      float64       `json:"duration"`
		KeepFiringFor float64       `json:"keepFiringFor"`
		Labels        labels.Labels `json:"labels"`
		Annotations   labels.Labels `json:"annotations"`
		Alerts        []alert       `json:"alerts"`
		evaluation
	}
	recordingRule struct {
		Name   string        `json:"name"`
		Query  string        `json:"query"`
		Labels labels.Labels `json:"labels"`
		evaluation
	}
	alert struct {
		Labels      labels.Labels `json:"labels"`
		Annotations labels.Labels `json:"annotations"`
		State       string        `json:"state"`
		ActiveAt    time.Time     `json:"activeAt"`
		Value       string        `json:"value"`
	}
)

func evaluated(r promrules.Rule, kind string) evaluation {
	e := evaluation{
		Health: r.Health(), EvaluationTime: r.GetEvaluationDuration().Seconds(), LastEvaluation: r.GetEvaluationTimestamp(), Type: kind,
	}
	if err := r.LastError(); err != nil {
		e.LastError = err.Error()
	}
	return e
}

func active(r *promrules.AlertingRule) []alert {
	out := []alert{}
	for _, a := range r.ActiveAlerts() {
		out = append(out, alert{a.Labels, a.Annotations, a.State.String(), a.ActiveAt, strconv.FormatFloat(a.Value, 'e', -1, 64)})
	}
	return out
}

func (h *handler) groups() []*promrules.Group {
	if h.ruleGroups == nil {
		return nil
	}
	return h.ruleGroups()
}

func (h *handler) rules(r *http.Request) result {
	want := r.FormValue("type")
	if want != "" && want != "alert" && want != "record" {
		return badParameter("type", fmt.Errorf("not supported value %q", want))
	}
	found := []ruleGroup{}
	for _, g := range h.groups() {
		group := ruleGroup{
			Name: g.Name(), File: g.File(), Rules: []any{}, Interval: g.Interval().Seconds(), Limit: g.Limit(),
			EvaluationTime: g.GetEvaluationTime().Seconds(), LastEvaluation: g.GetLastEvaluation(),
		}
		for _, rule := range g.Rules() {
			switch rule := rule.(type) {
			case *promrules.AlertingRule:
				if want != "record" {
					group.Rules = append(group.Rules, alertingRule{
						State: rule.State().String(), Name: rule.Name(), Query: rule.Query().String(), Duration: rule.HoldDuration().Seconds(),
						KeepFiringFor: rule.KeepFiringFor().Seconds(), Labels: rule.Labels(), Annotations: rule.Annotations(),
						Alerts: active(rule), evaluation: evaluated(rule, "alerting"),
					})
				}
			case *promrules.RecordingRule:
				if want != "alert" {
					group.Rules = append(group.Rules, recordingRule{rule.Name(), rule.Query().String(), rule.Labels(), evaluated(rule, "recording")})
				}
			}
		}
		found = append(found, group)
	}
	return result{data: map[string]any{"groups": found}}
}

func (h *handler) alerts(*http.Request) result {
	found := []alert{}
	for _, g := range h.groups() {
		for _, rule := range g.AlertingRules() {
			found = append(found, active(rule)...)
		}
	}
	return result{data: map[string]any{"alerts": found}}
}
