package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/enrol"
	"auspex/internal/store/join"
)

var errNoEnrolment = problem{
	http.StatusServiceUnavailable, "no_enrolment", "This console has no join tokens and no proposals.", "Ask a role with the relational store.",
}

func joinToken(t *join.Token, now time.Time) apigen.JoinToken {
	return apigen.JoinToken{
		Name: t.Name, State: t.State(now), Server: t.Server, Uses: t.Uses, Used: t.Used, Accept: t.Accept, Created: t.Created, CreatedBy: t.CreatedBy,
		Expires: t.Expires, Revoked: t.Revoked, RevokedBy: t.RevokedBy, Refused: t.Refused, RefusedAt: t.RefusedAt, RefusedFrom: t.RefusedFrom,
	}
}

// ListJoinTokens implements the operation listJoinTokens.
func (s *Server) ListJoinTokens(ctx context.Context, r apigen.ListJoinTokensRequestObject) (apigen.ListJoinTokensResponseObject, error) {
	if s.deps.Join == nil {
		return nil, errNoEnrolment
	}
	found, next, err := s.deps.Join.Tokens(ctx, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(err)
	}
	out := apigen.ListJoinTokens200JSONResponse{Items: make([]apigen.JoinToken, len(found)), Next: next, Listen: s.deps.Tunnel}
	for k := range out.Items {
		out.Items[k] = joinToken(&found[k], time.Now())
	}
	return out, nil
}

// CreateJoinToken implements the operation createJoinToken.
func (s *Server) CreateJoinToken(ctx context.Context, r apigen.CreateJoinTokenRequestObject) (apigen.CreateJoinTokenResponseObject, error) {
	if err := may(ctx, access.Enrol); err != nil {
		return nil, err
	}
	if s.deps.Join == nil {
		return nil, errNoEnrolment
	}
	b := r.Body
	bad := func(field, detail string) error {
		return faulty("body", field, "bad_parameter", detail, "The OpenAPI document says what a join token may be.")
	}
	if b.ExpiresIn < 0 || b.ExpiresIn > int64(join.MaxExpiry/time.Second) {
		return nil, bad("expires_in", "expires_in is not within 0 to 366 days.")
	}
	plain, t, err := s.deps.Join.Create(ctx, Caller(ctx).Name, join.Spec{
		Name: b.Name, Server: b.Server, Uses: b.Uses, Expiry: time.Duration(b.ExpiresIn) * time.Second, Accept: b.Accept,
	})
	sentence := join.BadError{}
	switch {
	case errors.Is(err, join.ErrTaken):
		return nil, problem{http.StatusConflict, "name_taken", "A join token with this name exists.", "Choose another name; a revoked one keeps its own."}
	case errors.Is(err, join.ErrName):
		return nil, bad("name", "A name has 1 to 64 letters, digits and . _ @ -.")
	case errors.As(err, &sentence):
		return nil, bad(sentence.Field, sentence.Text)
	case errors.Is(err, join.ErrMany):
		return nil, problem{http.StatusConflict, "too_many", "There are too many join tokens.", "Revoke those that are not needed."}
	case err != nil:
		return nil, err
	}
	s.log.Info("join token created", "name", t.Name, "server", t.Server, "uses", t.Uses, "actor", t.CreatedBy)
	s.live.mark("join-tokens", "machines", "audit")
	out := joinToken(&t, time.Now())
	out.Token = plain
	return apigen.CreateJoinToken201JSONResponse(out), nil
}

// RevokeJoinToken implements the operation revokeJoinToken.
func (s *Server) RevokeJoinToken(ctx context.Context, r apigen.RevokeJoinTokenRequestObject) (apigen.RevokeJoinTokenResponseObject, error) {
	if err := may(ctx, access.Enrol); err != nil {
		return nil, err
	}
	if s.deps.Join == nil {
		return nil, errNoEnrolment
	}
	err := s.deps.Join.Revoke(ctx, Caller(ctx).Name, r.Name)
	switch {
	case errors.Is(err, join.ErrNone):
		return nil, missing("join token", r.Name)
	case err != nil:
		return nil, err
	}
	s.log.Info("join token revoked", "name", r.Name, "actor", Caller(ctx).Name)
	s.live.mark("join-tokens", "machines", "audit")
	return apigen.RevokeJoinToken204Response{}, nil
}

// ListMachines implements the operation listMachines.
func (s *Server) ListMachines(ctx context.Context, r apigen.ListMachinesRequestObject) (apigen.ListMachinesResponseObject, error) {
	if s.deps.Join == nil {
		return nil, errNoEnrolment
	}
	found, next, err := s.deps.Join.Machines(ctx, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(err)
	}
	versions, err := s.versions(ctx)
	if err != nil {
		return nil, err
	}
	out := apigen.ListMachines200JSONResponse{Items: make([]apigen.Machine, len(found)), Next: next}
	for k := range out.Items {
		m := &found[k]
		out.Items[k] = apigen.Machine{
			Key: m.Key, Token: m.Token, Server: m.Server, Doubt: m.Doubt, Serial: m.Serial, UUID: m.UUID, Hostname: m.Hostname, Address: m.Address,
			Version: versions[m.Key].Version, Admitted: m.Admitted, Joined: m.Joined, Seen: m.Seen, Revoked: m.Revoked, RevokedBy: m.RevokedBy,
		}
	}
	return out, nil
}

// RevokeMachine implements the operation revokeMachine.
func (s *Server) RevokeMachine(ctx context.Context, r apigen.RevokeMachineRequestObject) (apigen.RevokeMachineResponseObject, error) {
	if err := may(ctx, access.Enrol); err != nil {
		return nil, err
	}
	if s.deps.Join == nil {
		return nil, errNoEnrolment
	}
	err := s.deps.Join.RevokeMachine(ctx, Caller(ctx).Name, r.Key)
	switch {
	case errors.Is(err, join.ErrMachine):
		return nil, missing("machine", r.Key)
	case err != nil:
		return nil, err
	}
	s.log.Info("machine revoked", "machine", r.Key, "actor", Caller(ctx).Name)
	s.live.mark("join-tokens", "machines", "audit")
	return apigen.RevokeMachine204Response{}, nil
}

// ListProposals implements the operation listProposals.
func (s *Server) ListProposals(ctx context.Context, r apigen.ListProposalsRequestObject) (apigen.ListProposalsResponseObject, error) {
	if s.deps.Enrol == nil {
		return nil, errNoEnrolment
	}
	items, next, err := s.deps.Enrol.List(ctx, string(r.Params.State), string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListProposals200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetProposal implements the operation getProposal.
func (s *Server) GetProposal(ctx context.Context, r apigen.GetProposalRequestObject) (apigen.GetProposalResponseObject, error) {
	if s.deps.Enrol == nil {
		return nil, errNoEnrolment
	}
	p, err := s.deps.Enrol.Get(ctx, r.ID)
	if errors.Is(err, enrol.ErrNone) {
		return nil, missing("proposal", r.ID)
	}
	return apigen.GetProposal200JSONResponse(p), err
}

// DecideProposal implements the operation decideProposal.
func (s *Server) DecideProposal(ctx context.Context, r apigen.DecideProposalRequestObject) (apigen.DecideProposalResponseObject, error) {
	if err := may(ctx, access.Enrol); err != nil {
		return nil, err
	}
	if s.deps.Enrol == nil {
		return nil, errNoEnrolment
	}
	bad := func(field, detail string) error {
		return faulty("body", field, "bad_decision", detail, "The OpenAPI document lists the decisions.")
	}
	reason, by := strings.TrimSpace(r.Body.Reason), Caller(ctx).Name
	if !r.Body.Decision.Valid() {
		return nil, bad("decision", "decision is none of accepted, declined.")
	}
	p, err := s.deps.Enrol.Get(ctx, r.ID)
	if errors.Is(err, enrol.ErrNone) {
		return nil, missing("proposal", r.ID)
	} else if err != nil {
		return nil, err
	}
	decline := string(r.Body.Decision) == enrol.Declined
	switch n := len([]rune(reason)); {
	case n > 500, n == 0 && (decline || p.Conflicts > 0):
		return nil, bad("reason", "reason needs 1 to 500 characters: why?")
	case decline && r.Body.Rack != "":
		return nil, bad("rack", "rack is for a proposal that is accepted.")
	case decline:
		p, err = s.deps.Enrol.Decline(ctx, r.ID, by, reason)
	default:
		p, err = s.deps.Enrol.Accept(ctx, r.ID, r.Body.Rack, by, reason)
	}
	refusal, rack := (*cmdb.RefusedError)(nil), enrol.RackError("")
	switch {
	case errors.As(err, &rack):
		return nil, faulty("body", "rack", "bad_rack", sentence(string(rack)),
			"GET /api/v1/resources?kind=rack lists them; leave rack out to put the server nowhere yet.")
	case errors.Is(err, enrol.ErrNone):
		return nil, missing("proposal", r.ID)
	case errors.Is(err, enrol.ErrDecided):
		return nil, problem{
			http.StatusConflict, "decided", "The proposal was decided, or a newer one has taken its place.", "Read the list again.",
		}
	case errors.Is(err, join.ErrMachine):
		return nil, problem{http.StatusConflict, "revoked", "Its machine has been revoked.", "Decline the proposal."}
	case errors.Is(err, enrol.ErrUnfit):
		return nil, problem{
			http.StatusConflict, "unfit", "It does not fit the inventory any more.", "The agent is looked at again within minutes; decide on what it proposes then.",
		}
	case errors.As(err, &refusal):
		return nil, problem{http.StatusConflict, "refused", refusal.Error() + ".", "auspex cmdb versions shows what its source brought before."}
	case err != nil:
		return nil, err
	}
	s.log.Info("proposal decided", "proposal", p.ID, "server", p.Server, "decision", p.State, "actor", by)
	s.live.mark("proposals", "machines", "agents", "audit")
	return apigen.DecideProposal200JSONResponse(p), nil
}
