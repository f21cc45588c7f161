package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/hindsight"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// recordYear is how far back the record of causes goes: incidents are rare, and
// fewer still are judged.
const recordYear = 365 * 24 * time.Hour

func (s *Server) corrections() (Corrections, error) {
	if s.deps.Corrections == nil {
		return nil, problem{
			http.StatusServiceUnavailable, "no_corrections", "This console has no corrections.", "Ask a role with the relational store.",
		}
	}
	return s.deps.Corrections, nil
}

// corrected puts the verdicts that stand on incidents.
func (s *Server) corrected(ctx context.Context, items []apigen.Incident) error {
	if s.deps.Corrections == nil {
		return nil
	}
	ids := make([]string, len(items))
	for k := range items {
		ids[k] = items[k].ID
	}
	found, err := s.deps.Corrections.Of(ctx, ids...)
	if err != nil {
		return err
	}
	for k := range items {
		items[k].Correction = found[items[k].ID]
	}
	return nil
}

func faultName(f *schemas.FaultKinds) any { return f.Fault }

var faultOrder = sqldb.Order[schemas.FaultKinds]{
	ID: sqldb.Key[schemas.FaultKinds]{Of: faultName},
	By: map[string]sqldb.Key[schemas.FaultKinds]{"fault": {Of: faultName, Alone: true}},
}

// ListFaults implements the operation listFaults.
func (s *Server) ListFaults(_ context.Context, r apigen.ListFaultsRequestObject) (apigen.ListFaultsResponseObject, error) {
	items, next, err := arranged(faultOrder, s.deps.Faults().Blamable(), string(r.Params.Sort), r.Params.After, r.Params.Limit)
	return apigen.ListFaults200JSONResponse{Items: orEmpty(items), Next: next}, err
}

// ListCorrections implements the operation listCorrections.
func (s *Server) ListCorrections(ctx context.Context, r apigen.ListCorrectionsRequestObject) (apigen.ListCorrectionsResponseObject, error) {
	store, err := s.corrections()
	if err != nil {
		return nil, err
	}
	n := pageSize(r.Params.Limit)
	items, next, err := store.List(ctx, r.Params.Since, string(r.Params.Sort), r.Params.After, n)
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListCorrections200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// ListIncidentCorrections implements the operation listIncidentCorrections.
func (s *Server) ListIncidentCorrections(
	ctx context.Context, r apigen.ListIncidentCorrectionsRequestObject,
) (apigen.ListIncidentCorrectionsResponseObject, error) {
	store, err := s.corrections()
	if err != nil {
		return nil, err
	}
	if _, found, err := s.deps.Records.Incident(ctx, r.ID); err != nil {
		return nil, err
	} else if !found {
		return nil, missing("incident", r.ID)
	}
	items, err := store.History(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	items, next, err := cut(items, r.Params.After, r.Params.Limit, func(c *schemas.Correction) string { return strconv.FormatInt(int64(c.Revision), 10) })
	return apigen.ListIncidentCorrections200JSONResponse{Items: orEmpty(items), Next: next}, err
}

// CorrectIncident implements the operation correctIncident.
func (s *Server) CorrectIncident(ctx context.Context, r apigen.CorrectIncidentRequestObject) (apigen.CorrectIncidentResponseObject, error) {
	if err := may(ctx, access.Correct); err != nil {
		return nil, err
	}
	store, err := s.corrections()
	if err != nil {
		return nil, err
	}
	i, found, err := s.deps.Records.Incident(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, missing("incident", r.ID)
	}
	if i.MergedInto != "" {
		return nil, problem{
			http.StatusConflict, "merged", fmt.Sprintf("Incident %s is part of %s.", i.ID, i.MergedInto), "Judge that one.",
		}
	}
	c := schemas.Correction{
		Incident: i.ID, Time: time.Now().UTC(), Author: Caller(ctx).Name, Verdict: string(r.Body.Verdict), Note: strings.TrimSpace(r.Body.Note),
		Said: schemas.Cause{Resource: i.RootCause.Resource, Fault: i.RootCause.Fault, Confidence: i.RootCause.Confidence, OneOf: i.RootCause.OneOf},
	}
	switch c.Verdict {
	case schemas.VerdictRight:
		if i.RootCause.Fault == schemas.FaultUnknown || i.RootCause.Fault == "" {
			return nil, badCorrection("verdict", "Incident %s names no cause that could be right.", i.ID)
		}
		c.Resource, c.Fault = i.RootCause.Resource, i.RootCause.Fault
	case schemas.VerdictCause:
		if c.Resource, c.Fault, err = s.cause(r.Body.Resource, r.Body.Fault); err != nil {
			return nil, err
		}
	}
	if c, err = store.Put(ctx, c); err != nil {
		return nil, err
	}
	s.log.Info("incident corrected", "incident", c.Incident, "verdict", c.Verdict, "revision", c.Revision, "actor", c.Author)
	s.live.mark("incidents", "audit")
	return apigen.CorrectIncident201JSONResponse(c), nil
}

func badCorrection(field, format string, args ...any) error {
	return faulty("body", field, "bad_correction", fmt.Sprintf(format, args...), "The OpenAPI document lists the verdicts, and GET /faults what can be wrong.")
}

// cause resolves what a person names: a resource by any of its names or a workload,
// and a fault that its kind may have.
func (s *Server) cause(resource, fault string) (string, string, error) {
	if resource == "" || fault == "" {
		return "", "", badCorrection("resource", "The verdict cause needs resource and fault.")
	}
	names := s.live.directory()
	index, _, _ := s.live.current()
	kind := "workload"
	found := names.Find(resource)
	if _, job := index.Workload(resource); len(found) > 0 || !job {
		var err error
		if resource, err = one(names, resource, "resource", found); err != nil {
			return "", "", err
		}
		res, _ := names.Resource(resource)
		kind = res.Kind
	}
	if fault == schemas.FaultUnknown {
		return resource, fault, nil
	}
	var kinds []string
	known := false
	for _, f := range s.deps.Faults().Blamable() {
		if f.Fault == fault {
			known, kinds = true, append(kinds, f.Kinds...)
		}
	}
	switch {
	case !known:
		return "", "", badCorrection("fault", "There is no fault %q; say unknown where none fits, and what it was in the note.", fault)
	case !slices.Contains(kinds, kind):
		return "", "", badCorrection("fault", "%s is a %s, which cannot have %s; that is of: %s.", resource, kind, fault, strings.Join(kinds, ", "))
	}
	return resource, fault, nil
}

// GetIncidentRecord implements the operation getIncidentRecord.
func (s *Server) GetIncidentRecord(
	ctx context.Context, _ apigen.GetIncidentRecordRequestObject,
) (apigen.GetIncidentRecordResponseObject, error) {
	store, err := s.corrections()
	if err != nil {
		return nil, err
	}
	since := time.Now().Add(-recordYear).UTC()
	incidents, err := pages(func(f records.Filter) ([]schemas.Incident, string, error) { return s.deps.Records.Incidents(ctx, f) }, since)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(incidents))
	opened := make(map[string]time.Time, len(incidents))
	closed := 0
	for k, i := range incidents {
		ids[k], opened[i.ID] = i.ID, i.Opened
		if i.Closed != nil && i.MergedInto == "" {
			closed++
		}
	}
	judged, err := store.Of(ctx, ids...)
	if err != nil {
		return nil, err
	}
	judgedIDs := make([]string, 0, len(judged))
	for id := range judged {
		judgedIDs = append(judgedIDs, id)
	}
	turns, err := store.Turns(ctx, judgedIDs...)
	if err != nil {
		return nil, err
	}
	cases := make([]hindsight.Case, 0, len(judged))
	for id, c := range judged {
		one := hindsight.Of(&c)
		// The right cause stayed if it is what the last turn named.
		if t := turns[id]; len(t) > 0 {
			from := time.Time{}
			for k := len(t) - 1; k >= 0 && t[k].Resource == c.Resource; k-- {
				from = t[k].At
			}
			if !from.IsZero() {
				one.Took = max(0, from.Sub(opened[id]))
			}
		}
		cases = append(cases, one)
	}
	sum := hindsight.Sum(cases)
	out := apigen.GetIncidentRecord200JSONResponse{
		Since: since, Closed: closed, Judged: sum.Judged, Right: sum.Right, Wrong: sum.Wrong, NoIncident: sum.NoIncident, Enough: sum.Enough,
		SecondsP50: sum.SecondsP50, SecondsP95: sum.SecondsP95, Bins: make([]apigen.IncidentBin, len(sum.Bins)),
		Faults: make([]apigen.IncidentFault, len(sum.Faults)),
	}
	named := 0
	for k, b := range sum.Bins {
		out.Bins[k] = apigen.IncidentBin{From: b.From, To: b.To, N: b.N, Right: b.Right, Confidence: b.Confidence}
		named += b.N
	}
	for k, f := range sum.Faults {
		out.Faults[k] = apigen.IncidentFault(f)
	}
	if named > 0 {
		out.CalibrationError = &sum.CalibrationError
	}
	if s.deps.Learned != nil {
		if out.Parameters, err = s.deps.Learned(ctx); err != nil {
			return nil, err
		}
	}
	return out, nil
}
