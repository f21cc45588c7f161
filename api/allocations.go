package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/provision"
	"auspex/internal/reasons"
	"auspex/internal/store/allocations"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// Allocator chooses what fits a wish and gives it.
type Allocator interface {
	// Choose says what would be given, and changes nothing.
	Choose(ctx context.Context, r schemas.AllocationRequest) (schemas.Choice, error)
	// Allocate gives it. What does not fit is a [*schemas.NoFitError], else errors are those of
	// [allocations.Store.Take].
	Allocate(ctx context.Context, by string, r schemas.AllocationRequest) (schemas.Allocation, schemas.Choice, error)
	// Again gives what a failed allocation asked for.
	Again(ctx context.Context, by, id string) (schemas.Allocation, error)
	// Replacement is what could be had instead of servers of an allocation that are ill; none
	// where none is, or nothing fits.
	Replacement(ctx context.Context, a *schemas.Allocation) ([]schemas.Pick, error)
	// Workflow runs one on a server that nobody has: what is to be done, and then a look at it.
	Workflow(ctx context.Context, by, kind, server string, do []schemas.WorkflowStep) (schemas.Workflow, error)
	// BringUpSteps are those of a bring-up, before it is run.
	BringUpSteps(ctx context.Context, server string, in schemas.Install) ([]schemas.WorkflowStep, error)
	// BringUp runs one that takes a server from where it was found to ready, installed with what is asked for or pinned to it.
	BringUp(ctx context.Context, by, server string, in schemas.Install) (schemas.Workflow, error)
	// Resume goes on with a failed one of no allocation where it failed.
	Resume(ctx context.Context, by, id string) (schemas.Workflow, error)
	// Rerun runs a failed one of an allocation again.
	Rerun(ctx context.Context, by, kind, allocation, server string) (schemas.Workflow, error)
	// Wake makes what is due be done at once.
	Wake()
}

// noAllocator is the answer where no process gives anything.
var noAllocator = problem{
	http.StatusServiceUnavailable, "no_allocator", "This process does not allocate.", "Run the role allocate in a process with an API.",
}

// around is the user whose own and whose teams' allocations a caller sees, or "" for one who sees
// all: admins, scripts of nobody, and people of no team, who run the place.
func around(ctx context.Context) string {
	if v := seen(ctx); v != nil {
		return v.user
	}
	return ""
}

// allocation returns one that the caller may see; another is not there.
func (s *Server) allocation(ctx context.Context, id string) (schemas.Allocation, error) {
	a, err := s.deps.Allocations.Get(ctx, id)
	if err != nil {
		return a, refused(err, "allocation", id)
	}
	near := around(ctx)
	if near == "" {
		return a, nil
	}
	ok, err := s.deps.Allocations.Sees(ctx, near, id)
	if err == nil && !ok {
		err = missing("allocation", id)
	}
	return a, err
}

// legal tells a move that a life cycle does not have, with those that it has.
func legal(err error) error {
	var move *schemas.MoveError
	if !errors.As(err, &move) {
		return err
	}
	hint := "It can become nothing else."
	if len(move.Legal) > 0 {
		hint = fmt.Sprintf("It can become %s.", either(move.Legal))
	}
	return unmoved{problem{http.StatusConflict, "illegal_move", fmt.Sprintf("%s that is %s cannot become %s.", article(move.Of), move.From, move.To), hint}, move.Legal}
}

// article puts the article before a noun, at the beginning of a sentence.
func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "An " + noun
	}
	return "A " + noun
}

// unmoved is a problem with the moves that there are.
type unmoved struct {
	problem
	legal []string
}

func either(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " or " + names[n-1]
	}
	return strings.Join(names, "")
}

// notGiven tells why nothing is given, as a person should see it.
func notGiven(err error) error {
	var conflict *allocations.ConflictError
	var quota *allocations.QuotaError
	var kept *allocations.ReservedError
	var none *schemas.NoFitError
	switch {
	case errors.As(err, &conflict):
		return problem{http.StatusConflict, "taken", conflict.Error() + ".", "Ask for another, or for what fits a wish."}
	case errors.As(err, &quota):
		return problem{http.StatusConflict, "over_quota", "Not given: " + quota.Error() + ".", "End an allocation, or ask an admin for more."}
	case errors.As(err, &kept):
		return problem{http.StatusConflict, "reserved", "Not given: " + kept.Error() + ".", "Ask for less, or for another time or pool."}
	case errors.As(err, &none):
		detail := "Nothing fits."
		if none.Choice.Detail != "" {
			detail = "Nothing fits: " + none.Choice.Detail + "."
		}
		return noFit{problem{http.StatusConflict, "no_fit", detail, "See `choice` for why each server does not."}, none.Choice}
	case errors.Is(err, schemas.ErrNoInstall):
		return problem{
			http.StatusConflict, "not_installed", "Servers are not installed here.",
			"It takes control.tinkerbell, a mode of control in which it acts, and the step install in allocator.deploy or allocator.bring_up. Or ask without a template.",
		}
	case errors.Is(err, workflows.ErrBusy):
		return problem{http.StatusConflict, "busy", "Another workflow runs on the server.", "Wait for its end, or cancel it."}
	case errors.Is(err, estate.ErrAllocated):
		return problem{http.StatusConflict, "allocated", "Somebody has the server, or a part of it.", "End the allocation first."}
	}
	return legal(err)
}

// noFit is a problem with what was looked at.
type noFit struct {
	problem
	choice schemas.Choice
}

// ListAllocations implements the operation listAllocations.
func (s *Server) ListAllocations(ctx context.Context, r apigen.ListAllocationsRequestObject) (apigen.ListAllocationsResponseObject, error) {
	var err error
	f := allocations.Filter{Status: string(r.Params.Status), Team: r.Params.Team, Group: r.Params.GroupID, Live: r.Params.Live, Ended: r.Params.Ended, Near: around(ctx), Sort: string(r.Params.Sort), After: r.Params.After, Limit: pageSize(r.Params.Limit)}
	if r.Params.User != "" {
		if f.User, err = s.userID(ctx, r.Params.User, "query", "user"); err != nil {
			return nil, err
		}
	}
	if r.Params.Server != "" {
		v, err := s.server(ctx, r.Params.Server)
		if err != nil {
			return nil, err
		}
		f.Server = v.ID
	}
	items, next, err := s.deps.Allocations.List(ctx, f)
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListAllocations200JSONResponse{Items: orEmpty(s.saidOfAll(items)), Next: next}, nil
}

// userID finds a user that the caller may know of.
func (s *Server) userID(ctx context.Context, ref, in, field string) (string, error) {
	none := wrong(in, apigen.FieldProblem{Field: field, Detail: fmt.Sprintf("%q is no user", ref)})
	u, err := s.deps.People.User(ctx, ref)
	if errors.Is(err, entity.ErrNone) {
		return "", none
	} else if err != nil {
		return "", err
	}
	near := around(ctx)
	if near != "" {
		if ok, err := s.sees(ctx, &u); err != nil {
			return "", err
		} else if !ok {
			return "", none
		}
	}
	return u.ID, nil
}

// ListUserAllocations implements the operation listUserAllocations.
func (s *Server) ListUserAllocations(
	ctx context.Context, r apigen.ListUserAllocationsRequestObject,
) (apigen.ListUserAllocationsResponseObject, error) {
	u, err := s.deps.People.User(ctx, r.ID)
	if err != nil {
		return nil, refused(err, "user", r.ID)
	}
	near := around(ctx)
	if near != "" {
		if ok, err := s.sees(ctx, &u); err != nil {
			return nil, err
		} else if !ok {
			return nil, missing("user", r.ID)
		}
	}
	items, next, err := s.deps.Allocations.List(ctx, allocations.Filter{
		User: u.ID, Live: r.Params.Live, Near: near, Sort: string(r.Params.Sort), After: r.Params.After, Limit: pageSize(r.Params.Limit),
	})
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListUserAllocations200JSONResponse{Items: orEmpty(s.saidOfAll(items)), Next: next}, nil
}

// server returns the server that a text means, also one that has left the inventory.
func (s *Server) server(ctx context.Context, ref string) (schemas.Server, error) {
	names := s.live.directory()
	name := ref
	if found := names.Find(ref); len(found) > 0 {
		var err error
		if name, err = one(names, ref, "server", wholes(names, found)); err != nil {
			return schemas.Server{}, err
		}
	}
	v, err := s.deps.Estate.Server(ctx, name)
	if errors.Is(err, entity.ErrNone) {
		_, err = one(names, ref, "server", nil)
	}
	return v, err
}

// gpu returns the GPU that a text means.
func (s *Server) gpu(ctx context.Context, ref string) (schemas.GPU, error) {
	names := s.live.directory()
	name := ref
	if found := names.Find(ref); len(found) > 0 {
		var err error
		if name, err = one(names, ref, "GPU", found); err != nil {
			return schemas.GPU{}, err
		}
	}
	g, err := s.deps.Estate.GPU(ctx, name)
	if errors.Is(err, entity.ErrNone) {
		_, err = one(names, ref, "GPU", nil)
	}
	return g, err
}

// request reads what is asked for, by whom.
func (s *Server) request(ctx context.Context, b *apigen.NewAllocation) (r schemas.AllocationRequest, err error) {
	bad := func(field, format string, args ...any) error {
		return wrong("body", apigen.FieldProblem{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	who := Caller(ctx)
	ref := cmp.Or(b.UserID, who.User)
	if ref == "" {
		return r, bad("user_id", "is needed: the token is nobody's")
	}
	id, err := s.userID(ctx, ref, "body", "user_id")
	if err != nil {
		return r, err
	}
	if who.User != "" && id != who.User {
		if err := s.somewhere(ctx, access.Assign); err != nil {
			return r, err
		}
	}
	u, err := s.deps.People.User(ctx, id)
	if err != nil {
		return r, err
	}
	if u.Status != schemas.UserActive {
		return r, bad("user_id", "%s is not active", u.Username)
	}
	r = schemas.AllocationRequest{User: u.ID, Group: b.GroupID, Purpose: b.Purpose, Start: b.StartTime, End: b.EndTime}
	team := b.Team
	if team == "" && len(u.Teams) == 1 {
		team = u.Teams[0]
	}
	switch {
	case team == "" && len(u.Teams) > 1:
		return r, bad("team", "is needed: %s is of %s", u.Username, either(u.Teams))
	case team != "":
		t, err := s.deps.People.Team(ctx, team)
		if errors.Is(err, entity.ErrNone) || err == nil && !slices.Contains(u.Teams, t.Name) {
			return r, bad("team", "%s is of no team %q", u.Username, team)
		} else if err != nil {
			return r, err
		}
		r.Team = t.ID
	}
	if !r.End.IsZero() && !r.End.After(later(r.Start, time.Now())) {
		return r, bad("end_time", "is over, or not after start_time")
	}
	wished := b.Wish.Servers > 0 || b.Wish.GPUs > 0
	ways := 0
	for _, asked := range []bool{b.ServerID != "", len(b.ServerIds) > 0, len(b.GpuIds) > 0, wished} {
		if asked {
			ways++
		}
	}
	if ways != 1 {
		return r, bad("wish", "is to be asked for, or server_id, server_ids or gpu_ids: one of them, and there are %d", ways)
	}
	if b.Template != "" && (b.Wish.GPUs > 0 || b.Wish.GPUsPerServer > 0 || len(b.GpuIds) > 0) {
		return r, wrong("body", apigen.FieldProblem{Field: "template", Detail: "is for whole servers: who has the other GPUs keeps the server as it is"})
	}
	if r.Install, err = s.installs(ctx, b.Template, b.TemplateVersion, b.Parameters); err != nil {
		return r, err
	}
	if wished {
		if b.Wish.Servers > 0 && b.Wish.GPUs > 0 {
			return r, bad("wish", "asks for servers and for gpus, and can ask for one of them")
		}
		if b.Wish.Pool != "" {
			p, err := s.deps.Estate.Pool(ctx, b.Wish.Pool)
			if errors.Is(err, entity.ErrNone) {
				return r, bad("wish.pool", "%q is no pool", b.Wish.Pool)
			} else if err != nil {
				return r, err
			}
			b.Wish.Pool = p.Name
		}
		r.Wish = &b.Wish
		return r, nil
	}
	servers := b.ServerIds
	if b.ServerID != "" {
		servers = []string{b.ServerID}
	}
	for _, ref := range servers {
		v, err := s.server(ctx, ref)
		if err != nil {
			return r, err
		}
		if !slices.Contains(r.ServerIDs, v.ID) {
			r.ServerIDs = append(r.ServerIDs, v.ID)
		}
	}
	for _, ref := range b.GpuIds {
		g, err := s.gpu(ctx, ref)
		if err != nil {
			return r, err
		}
		if !slices.Contains(r.GPUIDs, g.ID) {
			r.GPUIDs = append(r.GPUIDs, g.ID)
		}
	}
	return r, nil
}

// installs reads what servers are to be installed with, which a request names; the zero Install is nothing.
func (s *Server) installs(ctx context.Context, template string, version int64, parameters map[string]any) (in schemas.Install, err error) {
	bad := func(field, detail string) (schemas.Install, error) {
		return in, wrong("body", apigen.FieldProblem{Field: field, Detail: detail})
	}
	if template == "" {
		switch {
		case version != 0:
			return bad("template_version", "is of a template, and none is named")
		case len(parameters) > 0:
			return bad("parameters", "are of a template, and none is named")
		}
		return in, nil
	}
	e, err := s.holdings()
	if err != nil {
		return in, err
	}
	t, err := e.provisioning.Template(ctx, template)
	switch {
	case errors.Is(err, entity.ErrNone):
		return bad("template", fmt.Sprintf("%q is no template", template))
	case err != nil:
		return in, err
	case t.Status == schemas.TemplateRetired:
		return bad("template", t.Name+" is retired: nothing new is installed with it")
	}
	if version != 0 && version != t.Version {
		t.TemplateVersion, err = e.provisioning.Version(ctx, t.ID, version)
		if errors.Is(err, entity.ErrNone) {
			return bad("template_version", fmt.Sprintf("%s has no version %d", t.Name, version))
		} else if err != nil {
			return in, err
		}
	}
	var faults provision.Faults
	_, secrets, err := provision.Given(&t.TemplateBody, parameters)
	if errors.As(err, &faults) {
		return in, wrong("body", faultsIn("body", faults)...)
	} else if err != nil {
		return in, err
	}
	// What it names is written to a server that is then theirs.
	if len(secrets) > 0 && (around(ctx) != "" || may(ctx, access.Inventory) != nil) {
		return bad("parameters."+secrets[0], "names a secret of the site, which is for those who run it")
	}
	return schemas.Install{Template: t.Name, TemplateVersion: t.Version, Parameters: parameters}, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// CreateAllocation implements the operation createAllocation.
func (s *Server) CreateAllocation(ctx context.Context, r apigen.CreateAllocationRequestObject) (apigen.CreateAllocationResponseObject, error) {
	if err := s.somewhere(ctx, access.Allocate); err != nil {
		return nil, err
	}
	if s.deps.Allocator == nil {
		return nil, noAllocator
	}
	asked, err := s.request(ctx, r.Body)
	if err != nil {
		return nil, err
	}
	needed := access.Allocate
	if who := Caller(ctx).User; who != "" && asked.User != who {
		needed = access.Assign
	}
	if err := s.mayGive(ctx, needed, &asked); err != nil {
		return nil, err
	}
	if r.Params.DryRun {
		choice, err := s.deps.Allocator.Choose(ctx, asked)
		if err != nil {
			return nil, notGiven(err)
		}
		return apigen.CreateAllocation200JSONResponse(choice), nil
	}
	a, choice, err := s.deps.Allocator.Allocate(ctx, Caller(ctx).Name, asked)
	if err != nil {
		return nil, notGiven(err)
	}
	s.log.Info("allocated", "allocation", a.ID, "user", a.User, "servers", len(a.Servers), "gpus", len(a.GPUIDs), "actor", Caller(ctx).Name)
	s.allocated()
	return apigen.CreateAllocation201JSONResponse{
		Body:    apigen.CreatedAllocation{Allocation: s.saidOf(a), Choice: choice},
		Headers: apigen.CreateAllocation201ResponseHeaders{ETag: etag(a.Revision), Location: s.at("allocations", a.ID)},
	}, nil
}

// at is where a record is.
func (s *Server) at(list, id string) string {
	return s.cfg.BasePath + "/api/v1/" + list + "/" + url.PathEscape(id)
}

// allocated has what was changed done.
func (s *Server) allocated() {
	if s.deps.Allocator != nil {
		s.deps.Allocator.Wake()
	}
}

// GetAllocation implements the operation getAllocation.
func (s *Server) GetAllocation(ctx context.Context, r apigen.GetAllocationRequestObject) (apigen.GetAllocationResponseObject, error) {
	a, err := s.allocation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetAllocation200JSONResponse{Body: s.saidOf(a), Headers: apigen.GetAllocation200ResponseHeaders{ETag: etag(a.Revision)}}, nil
}

// mine is the allocation that a caller may change: their own or one of their teams, or any for
// those who see all. They may allocate what it is of.
func (s *Server) mine(ctx context.Context, id string) (schemas.Allocation, error) {
	if err := s.somewhere(ctx, access.Allocate); err != nil {
		return schemas.Allocation{}, err
	}
	a, err := s.allocation(ctx, id)
	if err == nil {
		err = s.mayOn(ctx, access.Allocate, a.ServerIDs...)
	}
	return a, err
}

// agrees is nil where a caller may decide what happens to a server: nobody has it, they or one of
// their teams do, or they are an admin.
func (s *Server) agrees(ctx context.Context, server string) error {
	if s.mayOn(ctx, access.Assign, server) == nil {
		return nil
	}
	held, err := s.deps.Allocations.On(ctx, server)
	if err != nil {
		return err
	}
	for _, a := range held {
		mine, err := s.deps.Allocations.Sees(ctx, Caller(ctx).User, a.ID)
		if err != nil {
			return err
		}
		if !mine {
			return problem{
				http.StatusForbidden, "not_yours", server + " is allocated to somebody else.", "They or an admin decide what is done to it.",
			}
		}
	}
	return nil
}

// UpdateAllocation implements the operation updateAllocation.
func (s *Server) UpdateAllocation(ctx context.Context, r apigen.UpdateAllocationRequestObject) (apigen.UpdateAllocationResponseObject, error) {
	if _, err := s.mine(ctx, r.ID); err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	a, err := s.deps.Allocations.Change(ctx, Caller(ctx).Name, r.ID, of, func(a *schemas.Allocation) {
		if r.Body.Purpose != nil {
			a.Purpose = *r.Body.Purpose
		}
		if !r.Body.EndTime.IsZero() {
			a.EndTime = r.Body.EndTime.UTC()
		}
	})
	if err != nil {
		return nil, refused(notGiven(err), "allocation", r.ID)
	}
	s.allocated()
	return apigen.UpdateAllocation200JSONResponse{Body: s.saidOf(a), Headers: apigen.UpdateAllocation200ResponseHeaders{ETag: etag(a.Revision)}}, nil
}

// end ends an allocation as its state allows.
func (s *Server) end(ctx context.Context, id, ifMatch, report string) (schemas.Allocation, error) {
	a, err := s.mine(ctx, id)
	if err != nil {
		return a, err
	}
	of, err := revision(ifMatch)
	if err != nil {
		return a, err
	}
	to, reason := schemas.AllocationCompleted, ""
	if a.Status == schemas.AllocationPending {
		to, reason = schemas.AllocationFailed, allocations.Cancelled
	}
	if a, err = s.deps.Allocations.End(ctx, Caller(ctx).Name, id, of, to, reason, report); err != nil {
		return a, refused(notGiven(err), "allocation", id)
	}
	s.log.Info("allocation ended", "allocation", id, "status", a.Status, "actor", Caller(ctx).Name)
	s.allocated()
	return a, nil
}

// DeleteAllocation implements the operation deleteAllocation.
func (s *Server) DeleteAllocation(ctx context.Context, r apigen.DeleteAllocationRequestObject) (apigen.DeleteAllocationResponseObject, error) {
	a, err := s.end(ctx, r.ID, r.Params.IfMatch, "")
	if err != nil {
		return nil, err
	}
	return apigen.DeleteAllocation200JSONResponse(s.saidOf(a)), nil
}

// StopAllocation implements the operation stopAllocation.
func (s *Server) StopAllocation(ctx context.Context, r apigen.StopAllocationRequestObject) (apigen.StopAllocationResponseObject, error) {
	report, force := "", false
	if r.Body != nil {
		report, force = r.Body.Report, r.Body.Force
	}
	if force {
		if err := s.somewhere(ctx, access.Assign); err != nil {
			return nil, err
		}
	}
	a, err := s.mine(ctx, r.ID)
	if err == nil && force {
		err = s.mayOn(ctx, access.Assign, a.ServerIDs...)
	}
	if err != nil {
		return nil, err
	}
	if !force || a.Live() {
		if a, err = s.end(ctx, r.ID, "", report); err != nil {
			return nil, err
		}
	}
	if force {
		if a, err = s.deps.Allocations.Force(ctx, Caller(ctx).Name, r.ID); err != nil {
			return nil, refused(notGiven(err), "allocation", r.ID)
		}
		s.allocated()
	}
	return apigen.StopAllocation202JSONResponse{Body: s.saidOf(a), Headers: apigen.StopAllocation202ResponseHeaders{Location: s.at("allocations", a.ID)}}, nil
}

// StartAllocation implements the operation startAllocation.
func (s *Server) StartAllocation(ctx context.Context, r apigen.StartAllocationRequestObject) (apigen.StartAllocationResponseObject, error) {
	if s.deps.Allocator == nil {
		return nil, noAllocator
	}
	if _, err := s.mine(ctx, r.ID); err != nil {
		return nil, err
	}
	a, err := s.deps.Allocator.Again(ctx, Caller(ctx).Name, r.ID)
	if err != nil {
		return nil, refused(notGiven(err), "allocation", r.ID)
	}
	s.allocated()
	return apigen.StartAllocation202JSONResponse{Body: s.saidOf(a), Headers: apigen.StartAllocation202ResponseHeaders{Location: s.at("allocations", a.ID)}}, nil
}

// GetAllocationStatus implements the operation getAllocationStatus.
func (s *Server) GetAllocationStatus(
	ctx context.Context, r apigen.GetAllocationStatusRequestObject,
) (apigen.GetAllocationStatusResponseObject, error) {
	a, err := s.allocation(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	out := apigen.GetAllocationStatus200JSONResponse{ID: a.ID, Status: a.Status, StatusReason: a.Reason, StatusSentence: s.said(a.Reason), Servers: []apigen.AllocatedServer{}}
	if left := int(time.Until(a.EndTime).Seconds()); !a.EndTime.IsZero() && a.Live() {
		left = max(left, 0)
		out.SecondsLeft = &left
	}
	flows, err := s.deps.Workflows.Of(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	out.Workflows = orEmpty(s.saidOfFlows(flows))
	index, states, _ := s.live.current()
	for _, id := range a.ServerIDs {
		v, err := s.deps.Estate.Server(ctx, id)
		if err != nil {
			return nil, err
		}
		gpus, _, err := s.deps.Estate.GPUs(ctx, estate.Filter{Server: id, Gone: true, Limit: maxPage})
		if err != nil {
			return nil, err
		}
		one := apigen.AllocatedServer{ID: v.ID, Name: v.Name, Status: v.Status, Health: stateWords[states.Device(index, v.Name)], Gpus: []apigen.AllocatedGPU{}}
		for i := range gpus {
			if g := &gpus[i]; slices.Contains(a.GPUIDs, g.ID) {
				one.Gpus = append(one.Gpus, apigen.AllocatedGPU{ID: g.ID, Name: g.Name, Status: g.Status, StatusReason: g.Reason, StatusSentence: s.said(g.Reason)})
			}
		}
		out.Servers = append(out.Servers, one)
	}
	if s.deps.Allocator != nil && a.Live() {
		if out.Replacement, err = s.deps.Allocator.Replacement(ctx, &a); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// capacityEvery is how old an answer about capacity may be: it is about every server, and asked for often.
const capacityEvery = 500 * time.Millisecond

// capacity is what was read last of it.
type capacity struct {
	mu       sync.Mutex
	at       time.Time
	pools    []schemas.PoolCapacity
	stranded []schemas.Stranded
}

// now reads it again where it is old, once for all who ask meanwhile.
func (c *capacity) now(ctx context.Context, store *allocations.Store, said *reasons.Reader) ([]schemas.PoolCapacity, []schemas.Stranded, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < capacityEvery {
		return c.pools, c.stranded, nil
	}
	pools, stranded, err := store.Capacity(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range stranded {
		stranded[i].Sentence = said.Of(stranded[i].Detail)
	}
	c.at, c.pools, c.stranded = time.Now(), pools, stranded
	return pools, stranded, nil
}

// GetCapacity implements the operation getCapacity.
func (s *Server) GetCapacity(ctx context.Context, _ apigen.GetCapacityRequestObject) (apigen.GetCapacityResponseObject, error) {
	near := around(ctx)
	pools, stranded, err := s.capacity.now(ctx, s.deps.Allocations, s.deps.Said)
	if err != nil {
		return nil, err
	}
	if near != "" { // what is wrong with the place is not a tenant's to know
		stranded = nil
	}
	return apigen.GetCapacity200JSONResponse{Pools: orEmpty(pools), Stranded: orEmpty(stranded)}, nil
}

// ListWorkflows implements the operation listWorkflows.
func (s *Server) ListWorkflows(ctx context.Context, r apigen.ListWorkflowsRequestObject) (apigen.ListWorkflowsResponseObject, error) {
	near := around(ctx)
	f := workflows.Filter{
		Status: string(r.Params.Status), Type: string(r.Params.Type), Allocation: r.Params.Allocation, Near: near, Sort: string(r.Params.Sort), After: r.Params.After,
		Limit: pageSize(r.Params.Limit),
	}
	if r.Params.Server != "" {
		v, err := s.server(ctx, r.Params.Server)
		if err != nil {
			return nil, err
		}
		f.Server = v.ID
	}
	items, next, err := s.deps.Workflows.List(ctx, f)
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListWorkflows200JSONResponse{Items: orEmpty(s.saidOfFlows(items)), Next: next}, nil
}

// workflow returns one that the caller may see.
func (s *Server) workflow(ctx context.Context, id string) (schemas.Workflow, error) {
	w, err := s.deps.Workflows.Get(ctx, id)
	if err != nil {
		return w, refused(err, "workflow", id)
	}
	near := around(ctx)
	if near == "" {
		return w, nil
	}
	ok, err := s.deps.Allocations.Sees(ctx, near, w.AllocationID)
	if err == nil && !ok {
		err = missing("workflow", id)
	}
	return w, err
}

// GetWorkflow implements the operation getWorkflow.
func (s *Server) GetWorkflow(ctx context.Context, r apigen.GetWorkflowRequestObject) (apigen.GetWorkflowResponseObject, error) {
	w, err := s.workflow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return apigen.GetWorkflow200JSONResponse(s.saidOfFlow(w)), nil
}

// CreateWorkflow implements the operation createWorkflow.
func (s *Server) CreateWorkflow(ctx context.Context, r apigen.CreateWorkflowRequestObject) (apigen.CreateWorkflowResponseObject, error) {
	w, err := s.makeWorkflow(ctx, r.Body, r.Params.DryRun)
	if err != nil {
		return nil, err
	}
	if r.Params.DryRun {
		return apigen.CreateWorkflow200JSONResponse(w), nil
	}
	return apigen.CreateWorkflow202JSONResponse{Body: s.saidOfFlow(w), Headers: apigen.CreateWorkflow202ResponseHeaders{Location: s.at("workflows", w.ID)}}, nil
}

// makeWorkflow makes one; with dry it only says which it would be.
func (s *Server) makeWorkflow(ctx context.Context, b *apigen.NewWorkflow, dry bool) (w schemas.Workflow, err error) {
	if err := s.somewhere(ctx, access.Allocate); err != nil {
		return w, err
	}
	if s.deps.Allocator == nil {
		return w, noAllocator
	}
	ofAllocation := b.Type == schemas.WorkflowDeploy || b.Type == schemas.WorkflowCleanup
	switch {
	case dry && b.Type != schemas.WorkflowBringUp:
		return w, wrong("query", apigen.FieldProblem{Field: "dry_run", Detail: "is of a workflow of the type " + schemas.WorkflowBringUp})
	case ofAllocation && b.AllocationID == "":
		return w, wrong("body", apigen.FieldProblem{Field: "allocation_id", Detail: "is needed: a workflow of the type " + b.Type + " is of an allocation"})
	case ofAllocation:
		return s.rerun(ctx, b.Type, &apigen.WorkflowOfAllocation{AllocationID: b.AllocationID, ServerID: b.ServerID})
	case b.AllocationID != "":
		return w, wrong("body", apigen.FieldProblem{Field: "allocation_id", Detail: "a workflow of the type " + b.Type + " is of a server that nobody has"})
	}
	v, err := s.server(ctx, b.ServerID)
	if err = seen(ctx).theirs("server", b.ServerID, v.Name, err); err == nil {
		err = s.mayOn(ctx, access.Allocate, v.ID)
	}
	if err != nil {
		return w, err
	}
	if b.Type != schemas.WorkflowValidate { // control does things for it
		if err := s.mayOn(ctx, access.Operate, v.ID); err != nil {
			return w, err
		}
	}
	in, err := s.installs(ctx, b.Template, b.TemplateVersion, b.Parameters)
	if err != nil {
		return w, err
	}
	var do []schemas.WorkflowStep
	switch {
	case dry:
		w = schemas.Workflow{ID: uuid.Nil.String(), ServerID: v.ID, Server: v.Name, Type: b.Type, Exclusive: true, Status: schemas.WorkflowPending}
		w.CreatedBy, w.CreatedAt = Caller(ctx).Name, time.Now().UTC()
		w.UpdatedAt = w.CreatedAt
		if w.Steps, err = s.deps.Allocator.BringUpSteps(ctx, v.ID, in); err != nil {
			return w, notGiven(err)
		}
		for i := range w.Steps {
			w.Steps[i].Status = schemas.StepPending
		}
		return w, nil
	case b.Type == schemas.WorkflowBringUp:
		w, err = s.deps.Allocator.BringUp(ctx, Caller(ctx).Name, v.ID, in)
	case in.Template != "":
		return w, wrong("body", apigen.FieldProblem{Field: "template", Detail: "is of a workflow of the type " + schemas.WorkflowBringUp})
	default:
		if b.Type == schemas.WorkflowConfig {
			if do, err = s.configSteps(ctx, &v); err != nil {
				return w, err
			}
		}
		w, err = s.deps.Allocator.Workflow(ctx, Caller(ctx).Name, b.Type, v.ID, do)
	}
	if err != nil {
		return w, notGiven(err)
	}
	s.allocated()
	return w, nil
}

// rerun runs a workflow of an allocation again.
func (s *Server) rerun(ctx context.Context, kind string, b *apigen.WorkflowOfAllocation) (schemas.Workflow, error) {
	if s.deps.Allocator == nil {
		return schemas.Workflow{}, noAllocator
	}
	a, err := s.mine(ctx, b.AllocationID)
	if err != nil {
		return schemas.Workflow{}, err
	}
	v, err := s.server(ctx, b.ServerID)
	if err != nil {
		return schemas.Workflow{}, err
	}
	if !slices.Contains(a.ServerIDs, v.ID) {
		return schemas.Workflow{}, wrong("body", apigen.FieldProblem{Field: "server_id", Detail: v.Name + " is none of the allocation"})
	}
	w, err := s.deps.Allocator.Rerun(ctx, Caller(ctx).Name, kind, a.ID, v.ID)
	if err != nil {
		return w, refused(notGiven(err), "workflow", kind+" of "+v.Name)
	}
	s.allocated()
	return w, nil
}

// DeployAllocation implements the operation deployAllocation.
func (s *Server) DeployAllocation(ctx context.Context, r apigen.DeployAllocationRequestObject) (apigen.DeployAllocationResponseObject, error) {
	w, err := s.rerun(ctx, schemas.WorkflowDeploy, r.Body)
	if err != nil {
		return nil, err
	}
	return apigen.DeployAllocation202JSONResponse{Body: s.saidOfFlow(w), Headers: apigen.DeployAllocation202ResponseHeaders{Location: s.at("workflows", w.ID)}}, nil
}

// CleanupAllocation implements the operation cleanupAllocation.
func (s *Server) CleanupAllocation(ctx context.Context, r apigen.CleanupAllocationRequestObject) (apigen.CleanupAllocationResponseObject, error) {
	w, err := s.rerun(ctx, schemas.WorkflowCleanup, r.Body)
	if err != nil {
		return nil, err
	}
	return apigen.CleanupAllocation202JSONResponse{Body: s.saidOfFlow(w), Headers: apigen.CleanupAllocation202ResponseHeaders{Location: s.at("workflows", w.ID)}}, nil
}

// ResumeWorkflow implements the operation resumeWorkflow.
func (s *Server) ResumeWorkflow(ctx context.Context, r apigen.ResumeWorkflowRequestObject) (apigen.ResumeWorkflowResponseObject, error) {
	if err := s.somewhere(ctx, access.Allocate); err != nil {
		return nil, err
	}
	if s.deps.Allocator == nil {
		return nil, noAllocator
	}
	f, err := s.workflow(ctx, r.ID)
	if err == nil {
		err = s.mayOn(ctx, access.Allocate, f.ServerID)
	}
	if err == nil && f.Type != schemas.WorkflowValidate {
		err = s.mayOn(ctx, access.Operate, f.ServerID)
	}
	if err != nil {
		return nil, err
	}
	w, err := s.deps.Allocator.Resume(ctx, Caller(ctx).Name, r.ID)
	switch {
	case errors.Is(err, workflows.ErrOf):
		return nil, problem{http.StatusConflict, "of_allocation", "The workflow is of an allocation.", "Run it again: `workflows deploy` or `workflows cleanup`."}
	case errors.Is(err, workflows.ErrPast):
		return nil, problem{http.StatusConflict, "past", "Another workflow was made on the server since, and what this one saw is out of date.", "Create one anew."}
	case err != nil:
		return nil, refused(notGiven(err), "workflow", r.ID)
	}
	s.allocated()
	return apigen.ResumeWorkflow202JSONResponse{Body: s.saidOfFlow(w), Headers: apigen.ResumeWorkflow202ResponseHeaders{Location: s.at("workflows", w.ID)}}, nil
}

// CancelWorkflow implements the operation cancelWorkflow.
func (s *Server) CancelWorkflow(ctx context.Context, r apigen.CancelWorkflowRequestObject) (apigen.CancelWorkflowResponseObject, error) {
	if err := s.somewhere(ctx, access.Allocate); err != nil {
		return nil, err
	}
	f, err := s.workflow(ctx, r.ID)
	if err == nil {
		err = s.mayOn(ctx, access.Allocate, f.ServerID)
	}
	if err != nil {
		return nil, err
	}
	w, err := s.deps.Workflows.Move(ctx, Caller(ctx).Name, "", r.ID, schemas.WorkflowFailed, workflows.Cancelled, nil)
	if err != nil {
		return nil, refused(notGiven(err), "workflow", r.ID)
	}
	s.allocated()
	return apigen.CancelWorkflow200JSONResponse(s.saidOfFlow(w)), nil
}
