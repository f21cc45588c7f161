package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/store/handling"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// How long before an alert its incident may have opened, and how much later by another clock.
const (
	incidentBefore = 7 * 24 * time.Hour
	incidentAfter  = 5 * time.Minute
)

// alertActive is the status of an alert that fires and that nobody has handled.
const alertActive = schemas.HandlingActive

// alertOf is an alert as the API has it (formats, section 9).
func alertOf(a schemas.Alert, names *cmdb.Snapshot, h schemas.AlertHandling) apigen.Alert {
	out := apigen.Alert{
		ID: a.ID, Time: a.Time, Observed: a.Observed, OccurredAt: a.Time, Source: a.Source, Resource: a.Resource,
		Type: a.Type, AlertType: a.Type, EventType: a.Type, Code: a.Code, Severity: a.Severity, Priority: a.Severity.Priority(),
		State: a.Status, Status: alertActive, Condition: a.Event.State, TriggeredAt: a.Time, ResolvedAt: a.ResolvedAt,
		Message: a.Message, Site: a.Site, Server: a.Server, Rack: a.Rack, Rule: a.Rule, Fingerprint: a.Fingerprint,
		Labels: a.Labels, Annotations: a.Annotations,
		AcknowledgedBy: h.AcknowledgedBy, AcknowledgedAt: h.AcknowledgedAt, ResolvedBy: h.ResolvedBy, Comments: h.Comments,
	}
	out.SourceType, out.SourceID = source(names, a.Resource)
	out.Data, out.Attrs = posted(&a.Event)
	if h.Status != "" {
		out.Status = h.Status
	}
	if out.ResolvedAt.IsZero() {
		out.ResolvedAt = h.ResolvedAt
	}
	if a.Status == schemas.AlertResolved {
		out.Status = schemas.HandlingResolved
	}
	return out
}

// alertsOf are alerts as the API has them, with what people did about them but what they said.
func (s *Server) alertsOf(ctx context.Context, all []schemas.Alert, names *cmdb.Snapshot) ([]apigen.Alert, error) {
	var handled map[string]schemas.AlertHandling
	if s.deps.Handling != nil {
		ids := make([]string, len(all))
		for k := range all {
			ids[k] = all[k].ID
		}
		var err error
		if handled, err = s.deps.Handling.Of(ctx, ids...); err != nil {
			return nil, err
		}
	}
	out := make([]apigen.Alert, len(all))
	for k, a := range all {
		out[k] = alertOf(a, names, handled[a.ID])
	}
	return out, nil
}

// ListAlerts implements the operation listAlerts.
func (s *Server) ListAlerts(ctx context.Context, r apigen.ListAlertsRequestObject) (apigen.ListAlertsResponseObject, error) {
	var err error
	if r.Params.Server, err = s.serverFilter(r.Params.Server); err != nil {
		return nil, err
	}
	f := records.Filter{Server: r.Params.Server, Since: r.Params.Since, Sort: string(r.Params.Sort), After: r.Params.After, Limit: pageSize(r.Params.Limit)}
	if f.Handled = string(r.Params.Status); f.Handled == schemas.AlertFiring {
		f.Handled, f.Status = "", schemas.AlertFiring
	}
	found, next, err := through(f.After, func(after string) ([]schemas.Alert, string, error) {
		f.After = after
		return s.deps.Records.Alerts(ctx, f)
	}, func(a *schemas.Alert) bool {
		return chosen(&a.Event, r.Params.Type, r.Params.Source, string(r.Params.Severity))
	})
	if err != nil {
		return nil, listed(err)
	}
	items, err := s.alertsOf(ctx, found, s.live.directory())
	if err != nil {
		return nil, err
	}
	return apigen.ListAlerts200JSONResponse{Items: items, Next: next}, nil
}

// alert returns one alert, and how it was handled.
func (s *Server) alert(ctx context.Context, id string) (schemas.Alert, schemas.AlertHandling, error) {
	h := schemas.AlertHandling{Revision: 1}
	a, found, err := s.deps.Records.Alert(ctx, id)
	switch {
	case err != nil:
		return a, h, err
	case !found:
		return a, h, missing("alert", id)
	case s.deps.Handling != nil:
		h, err = s.deps.Handling.Get(ctx, id)
	}
	return a, h, err
}

// GetAlert implements the operation getAlert.
func (s *Server) GetAlert(ctx context.Context, r apigen.GetAlertRequestObject) (apigen.GetAlertResponseObject, error) {
	a, h, err := s.alert(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetAlert200JSONResponse{
		Body: alertOf(a, s.live.directory(), h), Headers: apigen.GetAlert200ResponseHeaders{ETag: etag(h.Revision)},
	}, nil
}

// HandleAlert implements the operation handleAlert.
func (s *Server) HandleAlert(ctx context.Context, r apigen.HandleAlertRequestObject) (apigen.HandleAlertResponseObject, error) {
	if err := may(ctx, access.Handle); err != nil {
		return nil, err
	}
	if s.deps.Handling == nil {
		return nil, problem{http.StatusServiceUnavailable, "no_handling", "This console keeps nothing of alerts.", "Ask a role with the relational store."}
	}
	switch {
	case r.Body.Status == "" && r.Body.Comment == "":
		return nil, wrong("body", apigen.FieldProblem{Field: "status", Detail: "it is missing, and so is comment"})
	case strings.ContainsRune(r.Body.Comment, 0):
		return nil, wrong("body", apigen.FieldProblem{Field: "comment", Detail: "it has a character that is no text"})
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	a, _, err := s.alert(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	h, err := s.deps.Handling.Put(ctx, handling.Change{
		Alert: a.ID, By: Caller(ctx).Name, Status: r.Body.Status, Comment: r.Body.Comment, Revision: of, Ended: a.Status == schemas.AlertResolved,
	})
	if err != nil {
		return nil, refused(legal(err), "alert", r.ID)
	}
	s.log.Info("alert handled", "alert", a.ID, "status", h.Status, "actor", Caller(ctx).Name)
	s.live.mark("alerts", "servers", "audit")
	return apigen.HandleAlert200JSONResponse{
		Body: alertOf(a, s.live.directory(), h), Headers: apigen.HandleAlert200ResponseHeaders{ETag: etag(h.Revision)},
	}, nil
}

// GetAlertCorrelation implements the operation getAlertCorrelation.
func (s *Server) GetAlertCorrelation(
	ctx context.Context, r apigen.GetAlertCorrelationRequestObject,
) (apigen.GetAlertCorrelationResponseObject, error) {
	a, found, err := s.deps.Records.Alert(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, missing("alert", r.ID)
	}
	out := apigen.GetAlertCorrelation200JSONResponse{Alert: a.ID, Alternatives: []schemas.Cause{}}
	i, found, err := s.deps.Records.IncidentOf(ctx, a.ID, a.Observed.Add(-incidentBefore), a.Observed.Add(incidentAfter))
	if err != nil {
		return nil, err
	}
	if !found {
		reason := "No incident lists this alert: it needs none, or the correlator has not decided yet."
		if a.Severity.Rank() < schemas.SeverityWarning.Rank() {
			reason = "No incident lists this alert: one of severity " + string(a.Severity) + " opens none."
		} else if time.Since(a.Observed) > incidentBefore {
			reason = "No incident lists this alert. A long incident lists the first and the last of its alerts only."
		}
		out.Reason = &reason
		return out, nil
	}
	b := brief(i, false, s.live.directory(), s.deps.Faults())
	out.Incident, out.RootCause, out.Confidence, out.Explanation, out.Alternatives = &b.ID, &b.RootCause, &b.RootCause.Confidence, &b.Explanation, b.Alternatives
	out.Recommendation = i.Recommendation
	out.External, err = s.external(ctx, &i)
	return out, err
}

// external reports whether all that is known of an incident's evidence was posted by callers.
func (s *Server) external(ctx context.Context, i *schemas.Incident) (bool, error) {
	for _, id := range i.Events[:min(len(i.Events), maxFolded)] {
		a, found, err := s.deps.Records.Alert(ctx, id)
		if err != nil || !found || !a.External() {
			return false, err
		}
	}
	return len(i.Events) > 0, nil
}
