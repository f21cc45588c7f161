package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/store/requests"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// askAgain is how long control may take to make an action of a request before it is put on the bus again.
const askAgain = time.Minute

func (s *Server) requests() (*requests.Store, error) {
	if s.deps.Requests == nil {
		return nil, problem{http.StatusServiceUnavailable, "no_operations", "This console has no operations.", "Ask a role with the relational store."}
	}
	return s.deps.Requests, nil
}

// ask notes that a caller wants something done to a server, or to a part of it, and has it put on the bus.
func (s *Server) ask(ctx context.Context, server, part, kind string, with map[string]string) (out apigen.AskedJSONResponse, err error) {
	if err := s.somewhere(ctx, access.Operate); err != nil {
		return out, err
	}
	store, err := s.requests()
	if err != nil {
		return out, err
	}
	if s.deps.Publisher == nil {
		return out, problem{http.StatusServiceUnavailable, "read_only", "This console cannot publish intents.", "Run a role that has the bus."}
	}
	names := s.live.directory()
	found := slices.DeleteFunc(names.Find(server), func(id string) bool {
		r, _ := names.Resource(id)
		return r.Kind != schemas.KindServer
	})
	name, err := one(names, server, "server", found)
	if err != nil {
		return out, err
	}
	if err := s.mayOn(ctx, access.Operate, name); err != nil {
		return out, err
	}
	if err := s.agrees(ctx, name); err != nil {
		return out, err
	}
	in := schemas.Intent{
		ID: sqldb.NewID(ctx), Time: time.Now().UTC(), Site: names.Site(name), Verb: schemas.IntentRequest, Server: name, Target: part, Kind: kind, With: with,
		Reason: schemas.IntentRequest, Actor: Caller(ctx).Name, User: Caller(ctx).User,
	}
	if err := store.Add(ctx, in); err != nil {
		return out, err
	}
	s.log.Info("operation asked for", "id", in.ID, "kind", kind, "server", name, "actor", in.Actor)
	s.live.mark("operations", "audit")
	select {
	case s.asks <- struct{}{}:
	default:
	}
	// Of a request that is made again, what has become of it.
	r, known, err := store.Get(ctx, in.ID)
	if err != nil {
		return out, err
	}
	if !known {
		return out, missing("operation", in.ID)
	}
	out.Body = operation(&r, names)
	out.Headers.Location = s.cfg.BasePath + "/api/v1/operations/" + in.ID
	return out, nil
}

// operation is a request as the API has it.
func operation(r *requests.Request, names *cmdb.Snapshot) apigen.Operation {
	in := &r.Intent
	out := apigen.Operation{
		ID: in.ID, Server: in.Server, ServerID: idOf(names, in.Server), Target: in.Target, Kind: in.Kind, With: in.With, State: requests.Pending, Reason: in.Reason,
		Actor: in.Actor, CreatedAt: in.Time, UpdatedAt: in.Time, Rails: []schemas.Rail{},
	}
	a := r.Action
	if a == nil {
		return out
	}
	out.State, out.Actor, out.Detail, out.VerifiedBy = a.State, cmp.Or(a.Actor, in.Actor), a.Detail, a.VerifiedBy
	out.Rails, out.UpdatedAt = orEmpty(a.Rails), a.Time
	if a.DetailSentence != nil {
		out.Sentence = *a.DetailSentence
	} else if a.VerifiedSentence != nil {
		out.Sentence = *a.VerifiedSentence
	}
	switch a.State {
	case schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionCancelled, schemas.ActionRefused:
		out.Done = true
	case schemas.ActionProposed: // a dry run, once it has said what it would do
		out.Done = a.Detail != a.Why
	}
	return out
}

func (s *Server) power(ctx context.Context, server string, b *apigen.PowerRequest) (apigen.AskedJSONResponse, error) {
	var with map[string]string
	if b.Force {
		with = map[string]string{"force": "true"}
	}
	if b.Watts != 0 {
		if b.Action != apigen.CapPower {
			return apigen.AskedJSONResponse{}, fielded{
				problem{http.StatusBadRequest, "invalid_request", "Only cap_power takes watts.", "Leave watts out."},
				[]apigen.FieldProblem{{In: "body", Field: "watts", Detail: "it is of cap_power alone"}},
			}
		}
		with = map[string]string{"watts": strconv.Itoa(b.Watts)}
	} else if b.Action == apigen.CapPower {
		return apigen.AskedJSONResponse{}, fielded{
			problem{http.StatusBadRequest, "invalid_request", "cap_power needs watts.", "Say what the server may draw."},
			[]apigen.FieldProblem{{In: "body", Field: "watts", Detail: "it is required with cap_power"}},
		}
	}
	return s.ask(ctx, server, "", string(b.Action), with)
}

// PowerServer implements the operation powerServer.
func (s *Server) PowerServer(ctx context.Context, r apigen.PowerServerRequestObject) (apigen.PowerServerResponseObject, error) {
	out, err := s.power(ctx, r.ID, r.Body)
	return apigen.PowerServer202JSONResponse{AskedJSONResponse: out}, err
}

// PoolServer implements the operation poolServer.
func (s *Server) PoolServer(ctx context.Context, r apigen.PoolServerRequestObject) (apigen.PoolServerResponseObject, error) {
	out, err := s.ask(ctx, r.ID, "", string(r.Body.Action), nil)
	return apigen.PoolServer202JSONResponse{AskedJSONResponse: out}, err
}

// PowerServerOperation implements the operation powerServerOperation.
func (s *Server) PowerServerOperation(
	ctx context.Context, r apigen.PowerServerOperationRequestObject,
) (apigen.PowerServerOperationResponseObject, error) {
	out, err := s.power(ctx, r.ID, r.Body)
	return apigen.PowerServerOperation202JSONResponse{AskedJSONResponse: out}, err
}

// The parameters of operations that are no attributes of a BIOS.
const (
	paramReset = "reset"
	paramForce = "force"
)

// biosParameters are the parameters of set_bios for attributes; two names are taken.
func biosParameters(attrs map[string]string) (map[string]string, error) {
	for _, name := range []string{paramReset, paramForce} {
		if _, ok := attrs[name]; ok {
			return nil, fielded{
				problem{http.StatusBadRequest, "invalid_request", "An attribute cannot be set by this name.", "Ask for reset and force beside the attributes."},
				[]apigen.FieldProblem{{In: "body", Field: "attributes." + name, Detail: "the name is that of a parameter"}},
			}
		}
	}
	return maps.Clone(attrs), nil
}

// SetServerBios implements the operation setServerBios.
func (s *Server) SetServerBios(ctx context.Context, r apigen.SetServerBiosRequestObject) (apigen.SetServerBiosResponseObject, error) {
	with, err := biosParameters(r.Body.Attributes)
	if err != nil {
		return nil, err
	}
	if r.Body.Reset {
		with[paramReset] = "true"
	}
	if r.Body.Force {
		with[paramForce] = "true"
	}
	out, err := s.ask(ctx, r.ID, "", "set_bios", with)
	return apigen.SetServerBios202JSONResponse{AskedJSONResponse: out}, err
}

// UpdateServerFirmware implements the operation updateServerFirmware.
func (s *Server) UpdateServerFirmware(
	ctx context.Context, r apigen.UpdateServerFirmwareRequestObject,
) (apigen.UpdateServerFirmwareResponseObject, error) {
	with := map[string]string{"component": r.Body.Component, "version": r.Body.Version, "image": r.Body.Image, "sha256": r.Body.Sha256}
	if r.Body.Force {
		with["force"] = "true"
	}
	out, err := s.ask(ctx, r.ID, "", "update_firmware", with)
	return apigen.UpdateServerFirmware202JSONResponse{AskedJSONResponse: out}, err
}

// GetOperation implements the operation getOperation.
func (s *Server) GetOperation(ctx context.Context, r apigen.GetOperationRequestObject) (apigen.GetOperationResponseObject, error) {
	if err := may(ctx, access.Read); err != nil {
		return nil, err
	}
	store, err := s.requests()
	if err != nil {
		return nil, err
	}
	q, found, err := store.Get(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !found || !seen(ctx).at(q.Intent.Server, q.Intent.Time) {
		return nil, missing("operation", r.ID)
	}
	return apigen.GetOperation200JSONResponse(operation(&q, s.live.directory())), nil
}

// ListOperations implements the operation listOperations.
func (s *Server) ListOperations(ctx context.Context, r apigen.ListOperationsRequestObject) (apigen.ListOperationsResponseObject, error) {
	if err := may(ctx, access.Read); err != nil {
		return nil, err
	}
	store, err := s.requests()
	if err != nil {
		return nil, err
	}
	server := r.Params.Server
	if server != "" {
		if server, err = s.serverFilter(server); err != nil {
			return nil, err
		}
	}
	f := requests.Filter{Server: server, State: string(r.Params.State), Sort: string(r.Params.Sort), Limit: pageSize(r.Params.Limit)}
	items, next, err := through(r.Params.After, func(after string) ([]requests.Request, string, error) {
		f.After = after
		return store.List(ctx, f)
	}, func(q *requests.Request) bool { return seen(ctx).at(q.Intent.Server, q.Intent.Time) })
	if err != nil {
		return nil, listed(err)
	}
	names := s.live.directory()
	out := apigen.ListOperations200JSONResponse{Items: make([]apigen.Operation, len(items)), Next: next}
	for k := range items {
		out.Items[k] = operation(&items[k], names)
	}
	return out, nil
}

// announceRequests puts requests on the bus that control has not taken, whoever noted them, until ctx
// is done. What is published twice is one action.
func (s *Server) announceRequests(ctx context.Context) {
	if s.deps.Requests == nil || s.deps.Publisher == nil {
		return
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var forgot time.Time
	for failing := false; ; {
		err := s.publishRequests(ctx)
		if now := time.Now(); err == nil && now.Sub(forgot) > forgetEvery {
			var n int64
			n, err = s.deps.Requests.Forget(ctx, now.Add(-s.cfg.KeepOperations))
			s.meter.forgotten.Add(float64(n))
			if forgot = now; n > 0 {
				s.log.Info("old operations are forgotten; the audit keeps them", "operations", n, "older_than", s.cfg.KeepOperations)
			}
		}
		if err != nil && ctx.Err() == nil && !failing {
			s.log.Error("operations are not kept up to date; trying again", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-s.asks:
		case <-tick.C:
		}
	}
}

func (s *Server) publishRequests(ctx context.Context) error {
	now := time.Now()
	all, err := s.deps.Requests.Untold(ctx, now.Add(-askAgain))
	if err != nil {
		return err
	}
	for _, in := range all {
		value, err := json.Marshal(in)
		if err != nil {
			return err
		}
		if err := s.deps.Publisher.Publish(ctx, bus.Message{Topic: schemas.TopicIntents, Key: in.Server, Value: value}); err != nil {
			return fmt.Errorf("publish request %s: %w", in.ID, err)
		}
		s.meter.intents.WithLabelValues(in.Verb).Inc()
		if err := s.deps.Requests.Told(ctx, in.ID, now); err != nil {
			return err
		}
	}
	return nil
}
