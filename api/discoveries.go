package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/discover"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

func (s *Server) discovery() (*discover.Desk, error) {
	if s.deps.Discovery == nil {
		return nil, problem{http.StatusServiceUnavailable, "no_discovery", "This console has no sweeps.", "Ask a role with the relational store."}
	}
	return s.deps.Discovery, nil
}

// ListDiscoveries implements the operation listDiscoveries.
func (s *Server) ListDiscoveries(ctx context.Context, r apigen.ListDiscoveriesRequestObject) (apigen.ListDiscoveriesResponseObject, error) {
	d, err := s.discovery()
	if err != nil {
		return nil, err
	}
	items, next, err := d.Sweeps.List(ctx, string(r.Params.Status), string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(err)
	}
	for i := range items {
		items[i] = s.saidOfSweep(items[i])
	}
	return apigen.ListDiscoveries200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// StartDiscovery implements the operation startDiscovery.
func (s *Server) StartDiscovery(ctx context.Context, r apigen.StartDiscoveryRequestObject) (apigen.StartDiscoveryResponseObject, error) {
	if err := may(ctx, access.Inventory); err != nil {
		return nil, err
	}
	d, err := s.discovery()
	if err != nil {
		return nil, err
	}
	b, by := r.Body, Caller(ctx).Name
	sweep := schemas.Discovery{
		Ranges: b.Ranges, RedfishPorts: discover.Ports(b.RedfishPorts, discover.RedfishPort), IPMIPorts: discover.Ports(b.IpmiPorts, discover.IPMIPort),
		Credential: b.Credential,
	}
	addresses, err := d.Config.Plan(sweep.Ranges, append(sweep.RedfishPorts[:len(sweep.RedfishPorts):len(sweep.RedfishPorts)], sweep.IPMIPorts...)...)
	field, refusal := (*discover.FieldError)(nil), discover.NotAllowedError("")
	switch {
	case errors.As(err, &field):
		return nil, wrong("body", apigen.FieldProblem{Field: field.Field, Detail: field.Reason})
	case errors.As(err, &refusal):
		return nil, problem{http.StatusConflict, "not_allowed", string(refusal), "Whoever configures Auspex says which addresses are board controllers."}
	case err != nil:
		return nil, err
	}
	sweep.Addresses = len(addresses)
	sweep, err = d.Sweeps.Start(ctx, by, sweep)
	if errors.Is(err, discoveries.ErrMany) {
		return nil, problem{http.StatusConflict, "too_many", "Too many sweeps wait or run.", "Wait for one of them, or cancel it."}
	} else if err != nil {
		return nil, refused(err, "sweep", "")
	}
	s.log.Info("sweep asked for", "id", sweep.ID, "addresses", sweep.Addresses, "actor", by)
	return apigen.StartDiscovery202JSONResponse{Body: sweep, Headers: apigen.StartDiscovery202ResponseHeaders{
		Location: s.cfg.BasePath + "/api/v1/discoveries/" + sweep.ID,
	}}, nil
}

// GetDiscovery implements the operation getDiscovery.
func (s *Server) GetDiscovery(ctx context.Context, r apigen.GetDiscoveryRequestObject) (apigen.GetDiscoveryResponseObject, error) {
	d, err := s.discovery()
	if err != nil {
		return nil, err
	}
	sweep, err := d.Sweeps.Get(ctx, r.ID)
	if err != nil {
		return nil, refused(err, "sweep", r.ID)
	}
	items, next, err := d.Sweeps.Finds(ctx, r.ID, string(r.Params.Result), r.Params.After, pageSize(r.Params.Limit))
	if err != nil {
		return nil, listed(err)
	}
	if len(items) > 0 {
		x := discover.NewIndex(s.live.directory())
		for i := range items {
			x.Judge(&items[i], sweep.Credential)
		}
	}
	return apigen.GetDiscovery200JSONResponse{Discovery: s.saidOfSweep(sweep), Items: orEmpty(items), Next: next}, nil
}

// CancelDiscovery implements the operation cancelDiscovery.
func (s *Server) CancelDiscovery(ctx context.Context, r apigen.CancelDiscoveryRequestObject) (apigen.CancelDiscoveryResponseObject, error) {
	if err := may(ctx, access.Inventory); err != nil {
		return nil, err
	}
	d, err := s.discovery()
	if err != nil {
		return nil, err
	}
	sweep, err := d.Sweeps.Cancel(ctx, Caller(ctx).Name, r.ID)
	if errors.Is(err, discoveries.ErrEnded) {
		return nil, problem{http.StatusConflict, "ended", "The sweep has ended.", "Start another one."}
	} else if err != nil {
		return nil, refused(err, "sweep", r.ID)
	}
	s.log.Info("sweep cancelled", "id", sweep.ID, "actor", Caller(ctx).Name)
	return apigen.CancelDiscovery200JSONResponse(s.saidOfSweep(sweep)), nil
}

// ListConflicts implements the operation listConflicts.
func (s *Server) ListConflicts(ctx context.Context, r apigen.ListConflictsRequestObject) (apigen.ListConflictsResponseObject, error) {
	d, err := s.discovery()
	if err != nil {
		return nil, err
	}
	p := r.Params
	items, next, err := d.Conflicts.List(ctx, conflicts.Filter{
		Status: string(p.Status), Kind: string(p.Kind), Resource: p.Resource, Sort: string(p.Sort), After: p.After, Limit: pageSize(p.Limit),
	})
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListConflicts200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetConflict implements the operation getConflict.
func (s *Server) GetConflict(ctx context.Context, r apigen.GetConflictRequestObject) (apigen.GetConflictResponseObject, error) {
	d, err := s.discovery()
	if err != nil {
		return nil, err
	}
	c, err := d.Conflicts.Get(ctx, r.ID)
	if err != nil {
		return nil, refused(err, "conflict", r.ID)
	}
	return apigen.GetConflict200JSONResponse(c), nil
}

// DecideConflict implements the operation decideConflict.
func (s *Server) DecideConflict(ctx context.Context, r apigen.DecideConflictRequestObject) (apigen.DecideConflictResponseObject, error) {
	if err := may(ctx, access.Inventory); err != nil {
		return nil, err
	}
	d, err := s.discovery()
	if err != nil {
		return nil, err
	}
	c, err := d.Conflicts.Decide(ctx, Caller(ctx).Name, r.ID, r.Body.Decision, r.Body.Comment)
	if err != nil {
		return nil, refused(err, "conflict", r.ID)
	}
	s.log.Info("conflict decided", "id", c.ID, "resource", c.Resource, "decision", c.Decision, "actor", c.DecidedBy)
	return apigen.DecideConflict200JSONResponse(c), nil
}

// complete takes what the registration of a server leaves out from what a sweep has found, and
// returns what nobody registers by hand: the UUID, what it is installed by, and the interfaces.
func (s *Server) complete(ctx context.Context, b *apigen.NewServer) (more schemas.Attrs, nics []schemas.Resource, err error) {
	if b.Found == "" {
		return more, nil, nil
	}
	d, err := s.discovery()
	if err != nil {
		return more, nil, err
	}
	nothing := func(why string) error { return wrong("body", apigen.FieldProblem{Field: "found", Detail: why}) }
	f, err := d.Sweeps.Find(ctx, b.Found)
	if errors.Is(err, entity.ErrNone) {
		return more, nil, nothing("is nothing that a sweep has found")
	} else if err != nil {
		return more, nil, err
	}
	sweep, err := d.Sweeps.Get(ctx, f.DiscoveryID)
	if err != nil {
		return more, nil, err
	}
	discover.NewIndex(s.live.directory()).Judge(&f, sweep.Credential)
	switch {
	case f.Server == b.Name && f.Server != "": // the same request again
	case f.Server != "":
		return more, nil, nothing("is " + f.Server + " of the inventory, by its " + f.MatchedBy)
	case f.Proposal == nil:
		return more, nil, nothing("is a controller of which nothing was read")
	default:
		b.RedfishURL, b.IpmiIP = cmp.Or(b.RedfishURL, f.Proposal.RedfishURL), cmp.Or(b.IpmiIP, f.Proposal.IPMIIP)
		b.Credential = cmp.Or(b.Credential, f.Proposal.Credential)
	}
	own := b.Gpus != nil
	for _, r := range discover.Fragment(&f, b.Name) {
		a := r.Attrs
		switch r.Kind {
		case schemas.KindServer:
			b.Model, b.SerialNumber = cmp.Or(b.Model, a.Get(schemas.AttrModel)), cmp.Or(b.SerialNumber, a.Get(schemas.AttrSerial))
			more = a.Without(schemas.AttrModel, schemas.AttrSerial)
		case schemas.KindGPU:
			if !own {
				b.Gpus = append(b.Gpus, apigen.NewGPU{
					Name: strings.TrimPrefix(r.ID, b.Name+"/"), Model: a.Get(schemas.AttrModel), SerialNumber: a.Get(schemas.AttrSerial), UUID: a.Get(schemas.AttrUUID),
				})
			}
		case schemas.KindNIC:
			nics = append(nics, r)
		}
	}
	return more, nics, nil
}
