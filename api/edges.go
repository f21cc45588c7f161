package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/learned"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Edges are the proposals of which kinds of events bring about which others.
type Edges interface {
	// Proposals returns those of a state, all where it is empty.
	Proposals(ctx context.Context, state string) ([]schemas.EdgeProposal, error)
	// Decide takes the decision of a person and audits it. What is accepted or taken back is in force at once.
	Decide(ctx context.Context, id string, d schemas.EdgeDecision) (schemas.EdgeProposal, error)
}

func (s *Server) edges() (Edges, error) {
	if s.deps.Edges == nil {
		return nil, problem{
			http.StatusServiceUnavailable, "no_proposals", "This console has no proposals.", "Ask a role with the relational store.",
		}
	}
	return s.deps.Edges, nil
}

var edgeOrder = sqldb.Order[schemas.EdgeProposal]{
	ID: sqldb.Key[schemas.EdgeProposal]{Of: func(p *schemas.EdgeProposal) any { return p.ID }},
	By: map[string]sqldb.Key[schemas.EdgeProposal]{
		"gain":  {Of: func(p *schemas.EdgeProposal) any { return p.Gain }},
		"found": {Of: func(p *schemas.EdgeProposal) any { return p.Found.UnixNano() }},
	},
}

// ListEdgeProposals implements the operation listEdgeProposals.
func (s *Server) ListEdgeProposals(
	ctx context.Context, r apigen.ListEdgeProposalsRequestObject,
) (apigen.ListEdgeProposalsResponseObject, error) {
	store, err := s.edges()
	if err != nil {
		return nil, err
	}
	items, err := store.Proposals(ctx, string(r.Params.State))
	if err != nil {
		return nil, err
	}
	items, next, err := arranged(edgeOrder, items, string(r.Params.Sort), r.Params.After, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	out := apigen.ListEdgeProposals200JSONResponse{Items: orEmpty(items), Next: next}
	if s.deps.Learned != nil {
		out.Parameters, err = s.deps.Learned(ctx)
	}
	return out, err
}

// DecideEdgeProposal implements the operation decideEdgeProposal.
func (s *Server) DecideEdgeProposal(
	ctx context.Context, r apigen.DecideEdgeProposalRequestObject,
) (apigen.DecideEdgeProposalResponseObject, error) {
	if err := may(ctx, access.Correct); err != nil {
		return nil, err
	}
	store, err := s.edges()
	if err != nil {
		return nil, err
	}
	d := schemas.EdgeDecision{
		Decision: string(r.Body.Decision), Reason: strings.TrimSpace(r.Body.Reason), Fault: r.Body.Fault, Author: Caller(ctx).Name,
		Time: time.Now().UTC(),
	}
	bad := func(field, detail string) error {
		return faulty("body", field, "bad_decision", detail, "The OpenAPI document lists the decisions; GET /learning/edges has the causes.")
	}
	switch {
	case d.Reason == "":
		return nil, bad("reason", "reason has nothing but spaces: why?")
	case d.Fault != "" && d.Decision != schemas.EdgeAccepted:
		return nil, bad("fault", "fault is of an acceptance.")
	}
	p, err := store.Decide(ctx, r.ID, d)
	switch {
	case errors.Is(err, learned.ErrNoProposal):
		return nil, missing("proposal", r.ID)
	case errors.Is(err, learned.ErrDecided):
		return nil, problem{
			http.StatusConflict, "decided",
			"The proposal is not in a state for that: what is accepted can be taken back, the rest accepted or declined.",
			"Read it again; somebody else may have decided.",
		}
	case errors.Is(err, learned.ErrNoCause):
		return nil, bad("fault", "The proposal lists no such cause.")
	case err != nil:
		return nil, err
	}
	s.log.Info("edge proposal decided", "proposal", r.ID, "decision", d.Decision, "actor", d.Author, "version", p.Decision.Version)
	return apigen.DecideEdgeProposal201JSONResponse(p), nil
}
