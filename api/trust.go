package api

import (
	"context"
	"math"
	"net/http"
	"slices"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/schemas"
)

// GetBudgets implements the operation getBudgets.
func (s *Server) GetBudgets(ctx context.Context, _ apigen.GetBudgetsRequestObject) (apigen.GetBudgetsResponseObject, error) {
	b, found, err := s.deps.Records.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	out := apigen.GetBudgets200JSONResponse{Time: b.Time, Levels: orEmpty(b.Levels), RackLimit: b.RackLimit}
	if found {
		out.Breaker = b.Breaker
	}
	return out, nil
}

// ListAudit implements the operation listAudit.
func (s *Server) ListAudit(ctx context.Context, r apigen.ListAuditRequestObject) (apigen.ListAuditResponseObject, error) {
	if err := may(ctx, access.Audit); err != nil {
		return nil, err
	}
	if s.deps.Audit == nil {
		return nil, problem{http.StatusServiceUnavailable, "no_audit", "This console has no audit.", "Ask a role that has the relational store."}
	}
	rows, next, err := s.deps.Audit.Page(ctx, audit.Filter{
		Actor: r.Params.Actor, Verb: r.Params.Verb, Subject: r.Params.Subject, Sort: string(r.Params.Sort), After: r.Params.After, Limit: pageSize(r.Params.Limit),
	})
	if err != nil {
		return nil, listed(err)
	}
	chain, err := s.deps.Audit.Check(ctx)
	if err != nil {
		return nil, err
	}
	out := apigen.ListAudit200JSONResponse{
		Items: make([]apigen.AuditRow, len(rows)), Next: next,
		Chain: apigen.AuditChain{Holds: chain.Broken == 0, Rows: chain.Rows, Checked: chain.Checked, BrokenAt: chain.Broken},
	}
	for k := range out.Items {
		out.Items[k] = auditRow(rows[k])
	}
	return out, nil
}

func auditRow(r audit.Row) apigen.AuditRow {
	return apigen.AuditRow{
		Seq: r.Seq, Time: r.Time, Actor: r.Actor, Verb: r.Verb, Subject: r.Subject, Action: r.Action, Kind: r.Kind, State: r.State,
		Detail: r.Detail, Hash: r.Hash,
	}
}

const (
	recordSpan      = 90 * 24 * time.Hour
	probabilityBins = 5
	maxRecord       = 20 // pages of maxPage that are counted
)

// GetPredictionRecord implements the operation getPredictionRecord.
func (s *Server) GetPredictionRecord(
	ctx context.Context, _ apigen.GetPredictionRecordRequestObject,
) (apigen.GetPredictionRecordResponseObject, error) {
	since := time.Now().Add(-recordSpan).UTC()
	predictions, err := pages(func(f records.Filter) ([]schemas.Prediction, string, error) {
		return s.deps.Records.Predictions(ctx, f)
	}, since)
	if err != nil {
		return nil, err
	}
	incidents, err := pages(func(f records.Filter) ([]schemas.Incident, string, error) { return s.deps.Records.Incidents(ctx, f) }, since)
	if err != nil {
		return nil, err
	}
	return apigen.GetPredictionRecord200JSONResponse(record(since, predictions, incidents, s.deps.Faults().Foretold())), nil
}

// pages reads a list to its end, or to what a page can wait for.
func pages[T any](list func(records.Filter) ([]T, string, error), since time.Time) (all []T, err error) {
	f := records.Filter{Since: since, Limit: maxPage}
	for range maxRecord {
		page, next, err := list(f)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if f.After = next; next == "" {
			break
		}
	}
	return all, nil
}

// record counts how predictions ended, and which failures none had told of.
func record(since time.Time, predictions []schemas.Prediction, incidents []schemas.Incident, predicted []string) apigen.PredictionRecord {
	out := apigen.PredictionRecord{Since: since, Bins: make([]apigen.ProbabilityBin, probabilityBins)}
	for k := range out.Bins {
		out.Bins[k].From, out.Bins[k].To = float64(k)/probabilityBins, float64(k+1)/probabilityBins
	}
	var leads []float64
	byFault := make(map[string][]schemas.Prediction) // by fault
	for _, p := range predictions {
		byFault[p.Failure] = append(byFault[p.Failure], p)
		bin := &out.Bins[min(probabilityBins-1, int(p.FirstProbability*probabilityBins))]
		switch p.State {
		case schemas.PredictionOpen:
			out.Open++
		case schemas.PredictionAverted:
			out.Averted++
		case schemas.PredictionExpired:
			out.Expired++
			if p.FirstProbability > 0 {
				bin.Ended++
			}
		case schemas.PredictionCameTrue:
			out.CameTrue++
			if p.FirstProbability > 0 {
				bin.Ended++
				bin.CameTrue++
			}
			if !p.Opened.IsZero() {
				leads = append(leads, p.Time.Sub(p.Opened).Seconds())
			}
		}
	}
	for _, i := range incidents {
		if i.MergedInto == "" && slices.Contains(predicted, i.RootCause.Fault) && !foretold(i, byFault[i.RootCause.Fault]) {
			out.Missed++
		}
	}
	if len(leads) > 0 {
		slices.Sort(leads)
		median := math.Round((leads[(len(leads)-1)/2] + leads[len(leads)/2]) / 2)
		out.LeadSeconds = &median
	}
	return out
}

// foretold reports whether one of the predictions of a fault stood when it came.
func foretold(i schemas.Incident, byFault []schemas.Prediction) bool {
	return slices.ContainsFunc(byFault, func(p schemas.Prediction) bool {
		stood := p.State == schemas.PredictionOpen || p.State == schemas.PredictionCameTrue || p.Time.After(i.Opened)
		return stood && !p.Opened.After(i.Opened) && (p.Resource == i.RootCause.Resource || slices.Contains(i.Affected, p.Resource))
	})
}
