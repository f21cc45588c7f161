package api

import (
	"cmp"
	"context"
	"slices"

	"auspex/api/apigen"
	"auspex/internal/fleet"
	"auspex/internal/store/records"
	"auspex/schemas"
)

const (
	similarRead  = 200 // closed incidents, from the newest on, that are looked through
	similarShown = 5
)

// How alike two incidents of one fault are, the most alike first.
var alike = []string{"resource", "model", "fault"}

// similar returns closed incidents of the same fault, the most alike first, with what
// was done about each.
func (s *Server) similar(ctx context.Context, i *schemas.Incident, index *fleet.Index) ([]apigen.SimilarIncident, error) {
	if i.RootCause.Fault == schemas.FaultUnknown {
		return nil, nil
	}
	var found []schemas.Incident
	for _, f := range []records.Filter{
		{Status: records.StatusClosed, Resource: i.RootCause.Resource, Limit: similarShown + 1},
		{Status: records.StatusClosed, Limit: similarRead},
	} {
		page, _, err := s.deps.Records.Incidents(ctx, f)
		if err != nil {
			return nil, err
		}
		found = append(found, page...)
	}
	model := func(resource string) string {
		part, _ := index.Resource(resource)
		device, _ := index.Resource(index.Device(resource))
		if m := cmp.Or(part.Attrs.Get(schemas.AttrModel), device.Attrs.Get(schemas.AttrModel)); m != "" {
			return part.Kind + " " + m
		}
		return ""
	}
	mine, seen := model(i.RootCause.Resource), map[string]bool{i.ID: true}
	out := []apigen.SimilarIncident{}
	for _, o := range found {
		if seen[o.ID] || o.RootCause.Fault != i.RootCause.Fault || o.Closed == nil || o.Opened.After(i.Opened) {
			continue
		}
		seen[o.ID] = true
		match := "fault"
		switch {
		case o.RootCause.Resource == i.RootCause.Resource:
			match = "resource"
		case mine != "" && model(o.RootCause.Resource) == mine:
			match = "model"
		}
		out = append(out, apigen.SimilarIncident{
			ID: o.ID, Resource: o.RootCause.Resource, Opened: o.Opened, Closed: *o.Closed, Match: match, CuredBy: []string{},
		})
	}
	slices.SortStableFunc(out, func(a, b apigen.SimilarIncident) int {
		return cmp.Or(slices.Index(alike, a.Match)-slices.Index(alike, b.Match), b.Opened.Compare(a.Opened))
	})
	out = out[:min(len(out), similarShown)]
	for k := range out {
		done, _, err := s.deps.Records.Actions(ctx, records.Filter{Status: schemas.ActionDone, Incident: out[k].ID, Limit: 50})
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(done, func(a, b schemas.Action) int { return a.Time.Compare(b.Time) })
		for _, a := range done {
			if (a.Mode == schemas.ModeApprove || a.Mode == schemas.ModeEnforce) && !slices.Contains(out[k].CuredBy, a.Kind) {
				out[k].CuredBy = append(out[k].CuredBy, a.Kind)
			}
		}
	}
	return out, nil
}
