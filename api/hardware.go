package api

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/provision"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/schemas"
)

// hardwareOf are the hardware records of servers.
func (s *Server) hardwareOf(ctx context.Context, e *holdings, servers []schemas.Server) ([]schemas.HardwareRecord, error) {
	ids := make([]string, len(servers))
	for i := range servers {
		ids[i] = servers[i].ID
	}
	said, err := e.provisioning.Overrides(ctx, ids)
	if err != nil {
		return nil, err
	}
	names := s.deps.Inventory.Snapshot()
	out := make([]schemas.HardwareRecord, len(servers))
	for i := range servers {
		o := said[ids[i]]
		out[i] = provision.Derive(names, &servers[i], &o.HardwareOverrides)
		out[i].Version, out[i].ChangedBy, out[i].ChangedAt = o.Version, o.ChangedBy, o.ChangedAt
	}
	return out, nil
}

// hardware is the hardware record of a server, by any of its own names, with its tag.
func (s *Server) hardware(ctx context.Context, e *holdings, ref string) (r schemas.HardwareRecord, tag string, err error) {
	v, err := s.itself(ctx, ref)
	if err != nil {
		return r, "", err
	}
	if !v.Present {
		return r, "", missing("server in the inventory that is called", ref)
	}
	found, err := s.hardwareOf(ctx, e, []schemas.Server{v})
	if err != nil {
		return r, "", err
	}
	return found[0], etag((&provisioning.Overridden{Version: found[0].Version}).Revision()), nil
}

// ListHardware implements the operation listHardware.
func (s *Server) ListHardware(ctx context.Context, r apigen.ListHardwareRequestObject) (apigen.ListHardwareResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	p := r.Params
	asked := func(h *schemas.HardwareRecord) bool {
		return (p.Lacks == "" || slices.Contains(h.Lacks, string(p.Lacks))) && (p.Installable == nil || *p.Installable == h.Installable)
	}
	if p.Server != "" {
		h, _, err := s.hardware(ctx, e, p.Server)
		if err != nil {
			return nil, err
		}
		items := []schemas.HardwareRecord{}
		if asked(&h) && p.After == "" {
			items = append(items, h)
		}
		return apigen.ListHardware200JSONResponse{Items: items}, nil
	}
	items, next, err := through(p.After, func(after string) ([]schemas.HardwareRecord, string, error) {
		servers, next, err := e.Servers(ctx, estate.Filter{Sort: string(p.Sort), After: after, Limit: pageSize(p.Limit)})
		if err != nil {
			return nil, "", err
		}
		found, err := s.hardwareOf(ctx, e, servers)
		return found, next, err
	}, asked)
	if err != nil {
		return nil, err
	}
	return apigen.ListHardware200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetHardware implements the operation getHardware.
func (s *Server) GetHardware(ctx context.Context, r apigen.GetHardwareRequestObject) (apigen.GetHardwareResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	h, tag, err := s.hardware(ctx, e, r.Server)
	if err != nil {
		return nil, err
	}
	return apigen.GetHardware200JSONResponse{Body: h, Headers: apigen.GetHardware200ResponseHeaders{ETag: tag}}, nil
}

// PutHardware implements the operation putHardware.
func (s *Server) PutHardware(ctx context.Context, r apigen.PutHardwareRequestObject) (apigen.PutHardwareResponseObject, error) {
	e, err := s.keeper(ctx)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	h, _, err := s.hardware(ctx, e, r.Server)
	if err == nil {
		err = s.mayOn(ctx, access.Inventory, h.ID)
	}
	if err != nil {
		return nil, err
	}
	said := *r.Body
	if mac, ok := provision.MAC(said.BootMAC); ok { // as Tinkerbell spells it
		said.BootMAC = mac
	}
	var faults provision.Faults
	if errors.As(provision.CheckUserData(said.UserData), &faults) {
		return nil, fielded{
			problem{http.StatusBadRequest, "bad_user_data", sentence(faults.Error()), "docs/how-to/instance-metadata.md says what user data is held against."}, faultsIn("body", faults),
		}
	}
	if _, err := e.provisioning.Override(ctx, Caller(ctx).Name, h.ID, of, said); err != nil {
		return nil, refused(err, "server", r.Server)
	}
	s.noted(ctx, "hardware overridden", h.Name)
	h, tag, err := s.hardware(ctx, e, h.Name)
	if err != nil {
		return nil, err
	}
	return apigen.PutHardware200JSONResponse{Body: h, Headers: apigen.PutHardware200ResponseHeaders{ETag: tag}}, nil
}
