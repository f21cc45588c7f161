package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

const (
	defaultPage = 200
	maxPage     = 1000
	maxFolded   = 1000 // alerts of an incident that are read for its lanes
	maxNamed    = 200  // resources that a lane names
	invitation  = 15 * time.Minute
)

var _ apigen.StrictServerInterface = (*Server)(nil)

// pageSize is what a list asks for, which the document bounds.
func pageSize(n int) int { return cmp.Or(n, defaultPage) }

var errCursor = faulty("query", "after", "bad_cursor", "after is not a cursor of this list.", "Use `next` of the previous answer, or omit it.")

// cut is the page of a list of few after the item of a name, all of it where no limit is asked for.
func cut[T any](all []T, after string, limit int, name func(*T) string) (page []T, next string, err error) {
	if after != "" {
		at := slices.IndexFunc(all, func(x T) bool { return name(&x) == after })
		if at < 0 {
			return nil, "", errCursor
		}
		all = all[at+1:]
	}
	if limit > 0 && limit < len(all) {
		all = all[:limit]
		next = name(&all[limit-1])
	}
	return all, next, nil
}

// arranged is the page of a list of few in an order that a caller chose; where they chose none, the list
// stays as it is.
func arranged[T any](o sqldb.Order[T], all []T, sort, after string, limit int) (page []T, next string, err error) {
	if sort == "" {
		return cut(all, after, limit, func(x *T) string { return o.ID.Of(x).(string) })
	}
	page, next, err = o.Cut(all, sort, after, limit)
	return page, next, listed(err)
}

// listed turns the errors of a list into what a person should see.
func listed(err error) error {
	var other *sqldb.OrderError
	switch {
	case errors.As(err, &other):
		return faulty("query", "after", "bad_cursor", "after is of this list sorted by "+other.Of+", and not by "+other.Asked+".", "Begin anew, or ask in the same order.")
	case errors.Is(err, sqldb.ErrCursor):
		return errCursor
	}
	return err
}

func missing(what, id string) error {
	return problem{
		http.StatusNotFound, "not_found", fmt.Sprintf("There is no %s %s.", what, id), "It may have been removed, or its name may be wrong.",
	}
}

// Login implements the operation login.
func (s *Server) Login(ctx context.Context, r apigen.LoginRequestObject) (apigen.LoginResponseObject, error) {
	return loginAnswer{s, ctx, *r.Body}, nil
}

// loginAnswer decides when it is written, since it needs the caller's address.
type loginAnswer struct {
	s    *Server
	ctx  context.Context
	body apigen.Credential
}

// VisitLoginResponse implements apigen.LoginResponseObject.
func (a loginAnswer) VisitLoginResponse(c *fiber.Ctx) error {
	s := a.s
	var who access.Principal
	found := false
	var err error
	switch {
	case a.body.Code != "":
		who, found = s.access.TakeCode(a.body.Code)
	case a.body.Token != "":
		if who, found, err = s.access.Token(a.ctx, a.body.Token); err != nil {
			return err
		}
	}
	if !found {
		// Guesses are slowed down, and only they: who shares an address with a
		// guesser still gets in. A try costs a hash and a look-up, whatever it holds.
		if err := s.slow(c, s.logins, "login"); err != nil {
			s.meter.logins.WithLabelValues("limited").Inc()
			return err
		}
		s.meter.logins.WithLabelValues("refused").Inc()
		return problem{
			http.StatusUnauthorized, "bad_credential", "The code or token is not valid.",
			"A code is valid once. Auspex prints a new address at start, and POST /api/v1/login-codes creates a code.",
		}
	}
	session, expires, err := s.access.StartSession(a.ctx, who)
	switch {
	case errors.Is(err, access.ErrRevoked):
		s.meter.logins.WithLabelValues("refused").Inc()
		return problem{http.StatusUnauthorized, "bad_credential", "The token behind this code was revoked.", "Ask for another code."}
	case err != nil:
		return err
	}
	me, err := s.me(a.ctx, who)
	if err != nil {
		return err
	}
	s.meter.logins.WithLabelValues("accepted").Inc()
	s.log.Info("browser logged in", "name", who.Name, "role", who.Role)
	c.Cookie(s.cookie(session, expires))
	return c.JSON(me)
}

func (s *Server) cookie(value string, expires time.Time) *fiber.Cookie {
	return &fiber.Cookie{
		Name: sessionCookie, Value: value, Path: s.cfg.BasePath + "/", Expires: expires,
		HTTPOnly: true, SameSite: fiber.CookieSameSiteStrictMode, Secure: s.cfg.TLS.CertFile != "",
	}
}

// CreateLoginCode implements the operation createLoginCode.
func (s *Server) CreateLoginCode(ctx context.Context, _ apigen.CreateLoginCodeRequestObject) (apigen.CreateLoginCodeResponseObject, error) {
	if err := may(ctx, access.Invite); err != nil {
		return nil, err
	}
	code, expires, err := s.access.NewCode(ctx, Caller(ctx).Name, Caller(ctx), invitation)
	if err != nil {
		return nil, err
	}
	return apigen.CreateLoginCode201JSONResponse{Code: code, Expires: expires.UTC()}, nil
}

// Logout implements the operation logout.
func (s *Server) Logout(ctx context.Context, _ apigen.LogoutRequestObject) (apigen.LogoutResponseObject, error) {
	if id, ok := ctx.Value(identityKey{}).(*identity); ok && id.session != "" {
		if err := s.access.EndSession(ctx, id.session); err != nil {
			return nil, err
		}
	}
	return logoutAnswer{s}, nil
}

type logoutAnswer struct{ s *Server }

// VisitLogoutResponse implements apigen.LogoutResponseObject.
func (a logoutAnswer) VisitLogoutResponse(c *fiber.Ctx) error {
	c.Cookie(a.s.cookie("", time.Unix(1, 0)))
	return c.SendStatus(http.StatusNoContent)
}

func (s *Server) me(ctx context.Context, p access.Principal) (apigen.Me, error) {
	m := apigen.Me{
		Name: p.Name, Role: p.Role, Permissions: p.Permissions(), Mode: s.deps.Mode(), Version: s.deps.Version,
		Simulated: s.deps.Simulated, History: s.deps.HistoryLive,
	}
	granted, err := s.rights(ctx, p)
	if err != nil {
		return m, err
	}
	for _, pool := range slices.Sorted(maps.Keys(granted)) {
		m.Grants = append(m.Grants, granted[pool])
	}
	if p.User == "" {
		return m, nil
	}
	u, err := s.deps.People.User(ctx, p.User)
	m.User = apigen.MyUser{ID: u.ID, Username: u.Username, Teams: orEmpty(u.Teams)}
	return m, err
}

// GetMe implements the operation getMe.
func (s *Server) GetMe(ctx context.Context, _ apigen.GetMeRequestObject) (apigen.GetMeResponseObject, error) {
	m, err := s.me(ctx, Caller(ctx))
	if err != nil {
		return nil, err
	}
	return apigen.GetMe200JSONResponse(m), nil
}

// errNoHistory is of a page of the history, while that does not answer.
var errNoHistory = problem{http.StatusServiceUnavailable, "no_history", "The history does not answer.", "Ask again in a moment, or without `after` for the alerts."}

// ListEvents implements the operation listEvents.
func (s *Server) ListEvents(ctx context.Context, r apigen.ListEventsRequestObject) (apigen.ListEventsResponseObject, error) {
	p := r.Params
	server, err := s.serverFilter(p.Server)
	if err != nil {
		return nil, err
	}
	f := records.EventFilter{
		Device: server, Type: p.Type, Source: p.Source, Severity: string(p.Severity), Since: p.Since, Until: p.Until, After: p.After, Limit: pageSize(p.Limit),
		Oldest: p.Sort == records.EventsByObserved,
	}
	byTime := map[bool]string{true: "time", false: "-time"}[f.Oldest] // of alerts, which is when they were observed
	// A page of the alerts goes on where it began: each of the two lists has cursors of its own.
	ofAlerts := strings.HasPrefix(strings.TrimPrefix(p.After, "-"), "time~")
	if p.After != "" && !ofAlerts { // also where the history does not answer
		if _, err := f.Behind(); err != nil {
			return nil, listed(err)
		}
	}
	if s.deps.History != nil && !ofAlerts {
		events, next, err := s.deps.History.Events(ctx, f)
		switch {
		case errors.Is(err, sqldb.ErrCursor):
			return nil, listed(err)
		case err == nil && events != nil:
			return apigen.ListEvents200JSONResponse{Items: eventsOf(events, s.live.directory()), Next: next, History: true}, nil
		case err != nil:
			s.log.Warn("cannot read history", "error", err)
		}
		if p.After != "" {
			return nil, errNoHistory
		}
	}
	alerts, next, err := through(p.After, func(after string) ([]schemas.Alert, string, error) {
		return s.deps.Records.Alerts(ctx, records.Filter{Server: server, Since: p.Since, Sort: byTime, After: after, Limit: f.Limit})
	}, func(a *schemas.Alert) bool {
		return chosen(&a.Event, f.Type, f.Source, f.Severity) && (p.Until.IsZero() || !a.Time.After(p.Until))
	})
	if err != nil {
		return nil, listed(err)
	}
	events := make([]schemas.Event, len(alerts))
	for k := range alerts {
		events[k] = alerts[k].Event
	}
	return apigen.ListEvents200JSONResponse{Items: eventsOf(events, s.live.directory()), Next: next}, nil
}

// chosen says whether an event is of a type, source and severity; what is empty asks nothing.
func chosen(ev *schemas.Event, kind, source, severity string) bool {
	return (kind == "" || ev.Type == kind) && (source == "" || ev.Source == source) && (severity == "" || string(ev.Severity) == severity)
}

// ListIncidents implements the operation listIncidents.
func (s *Server) ListIncidents(ctx context.Context, r apigen.ListIncidentsRequestObject) (apigen.ListIncidentsResponseObject, error) {
	n := pageSize(r.Params.Limit)
	found, next, err := s.deps.Records.Incidents(ctx, records.Filter{
		Status: string(r.Params.Status), Since: r.Params.Since, Sort: strings.Replace(string(r.Params.Sort), "opened", "time", 1), After: r.Params.After, Limit: n,
	})
	if err != nil {
		return nil, listed(err)
	}
	_, _, facts := s.live.current()
	repaired, names := fleet.Repaired(facts.Actions), s.live.directory()
	items := make([]apigen.Incident, len(found))
	for k, i := range found {
		items[k] = brief(i, repaired[i.ID], names, s.deps.Faults())
	}
	if err := errors.Join(s.corrected(ctx, items), s.stepless(ctx, items)); err != nil {
		return nil, err
	}
	return apigen.ListIncidents200JSONResponse{Items: items, Next: next}, nil
}

// stepless says of open incidents why they have no step.
func (s *Server) stepless(ctx context.Context, items []apigen.Incident) error {
	if !slices.ContainsFunc(items, func(i apigen.Incident) bool { return i.Status == records.StatusOpen }) {
		return nil
	}
	why, err := s.deps.Records.NoSteps(ctx)
	for k := range items {
		if w, ok := why[items[k].ID]; ok && items[k].Status == records.StatusOpen {
			items[k].NoStep = w
		}
	}
	return err
}

// brief is an incident without its evidence.
func brief(i schemas.Incident, repaired bool, names *cmdb.Snapshot, m *propagation.Model) apigen.Incident {
	out := apigen.Incident{
		ID: i.ID, Opened: i.Opened, Updated: i.Updated, At: i.At, Site: i.Site, Severity: string(i.Severity), RootCause: i.RootCause,
		Alternatives: make([]schemas.Cause, len(i.Alternatives)), Alerts: i.Count(), MergedInto: i.MergedInto, Affected: orEmpty(i.Affected),
		Workloads: orEmpty(i.Workloads), Explanation: i.Explanation, Revision: i.Revision, Status: records.StatusOpen,
	}
	out.RootCause.ResourceID = idOf(names, i.RootCause.Resource)
	if out.RootCause.Title == nil { // of an older version
		out.RootCause.Title = m.Title(i.RootCause.Fault)
	}
	for k, c := range i.Alternatives {
		c.ResourceID = idOf(names, c.Resource)
		if c.Title == nil {
			c.Title = m.Title(c.Fault)
		}
		out.Alternatives[k] = c
	}
	switch {
	case i.MergedInto != "":
		out.Status = records.StatusMerged
	case i.Closed != nil:
		out.Status, out.Closed = records.StatusClosed, *i.Closed
	case repaired:
		out.Status = "repair"
	}
	if i.Recommendation != nil {
		out.Recommendation = *i.Recommendation
	}
	if i.Summary != nil {
		out.Summary = *i.Summary
	}
	return out
}

// GetIncident implements the operation getIncident.
func (s *Server) GetIncident(ctx context.Context, r apigen.GetIncidentRequestObject) (apigen.GetIncidentResponseObject, error) {
	i, found, err := s.deps.Records.Incident(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, missing("incident", r.ID)
	}
	index, _, facts := s.live.current()
	out := brief(i, fleet.Repaired(facts.Actions)[i.ID], s.live.directory(), s.deps.Faults())
	out.Events = i.Events[:min(len(i.Events), maxFolded)]
	out.Sentences, out.Explanations, out.Against, out.WouldChange = i.Sentences, i.Explanations, i.Against, i.WouldChange
	if i.Step != nil {
		out.Step = *i.Step
	}
	if out.Similar, err = s.similar(ctx, &i, index); err != nil {
		return nil, err
	}
	if i.Graph != nil {
		out.Graph = *i.Graph
	}
	if out.Lanes, err = s.lanes(ctx, i); err != nil {
		return nil, err
	}
	if out.External, err = s.external(ctx, &i); err != nil {
		return nil, err
	}
	for _, id := range i.Workloads {
		w, _ := index.Workload(id)
		job := apigen.IncidentJob{ID: id, Tenant: fleet.Tenant(w)}
		for _, res := range w.Resources {
			if k, ok := index.Resource(res); ok && k.Kind == schemas.KindGPU {
				job.Gpus++
			} else if ok && k.Kind == schemas.KindServer {
				job.Gpus += len(index.Parts(res, schemas.KindGPU))
			}
		}
		out.Jobs = append(out.Jobs, job)
	}
	if out.Holders, err = s.holders(ctx, &i); err != nil {
		return nil, err
	}
	whole := []apigen.Incident{out}
	if err := errors.Join(s.corrected(ctx, whole), s.stepless(ctx, whole)); err != nil {
		return nil, err
	}
	return apigen.GetIncident200JSONResponse(whole[0]), nil
}

// maxHolders bounds whom an incident names.
const maxHolders = 100

// holders are who had what an incident touches while it was open, as far as the caller may know.
func (s *Server) holders(ctx context.Context, i *schemas.Incident) ([]apigen.IncidentHolder, error) {
	end := time.Now()
	if i.Closed != nil {
		end = *i.Closed
	}
	touched := slices.Clone(i.Affected)
	if root := s.live.directory().Server(i.RootCause.Resource); root != "" && !slices.Contains(touched, root) {
		touched = append(touched, root)
	}
	found, err := s.deps.Allocations.Held(ctx, touched, i.Opened, end)
	if err != nil {
		return nil, err
	}
	var out []apigen.IncidentHolder
	for k := range found {
		a := &found[k]
		if near := around(ctx); near != "" {
			if ok, err := s.deps.Allocations.Sees(ctx, near, a.ID); err != nil {
				return nil, err
			} else if !ok {
				continue
			}
		}
		h := apigen.IncidentHolder{Allocation: a.ID, User: a.User, Team: a.Team, Purpose: a.Purpose}
		for _, server := range a.Servers {
			if slices.Contains(touched, server) {
				h.Servers = append(h.Servers, server)
			}
		}
		if out = append(out, h); len(out) == maxHolders {
			break
		}
	}
	return out, nil
}

// lanes joins the lanes of an incident with what its alerts said. An incident
// without lanes gets one for each type and code.
func (s *Server) lanes(ctx context.Context, i schemas.Incident) ([]apigen.EvidenceLane, error) {
	type sample struct {
		source, message string
		severity        schemas.Severity
		resources       []string
		named           map[string]bool
		times           []time.Time
	}
	byKind := make(map[[2]string]*sample)
	var order [][2]string
	first := time.Time{}
	for _, id := range i.Events[:min(len(i.Events), maxFolded)] {
		a, found, err := s.deps.Records.Alert(ctx, id)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		key := [2]string{a.Type, a.Code}
		if byKind[key] == nil {
			byKind[key] = &sample{source: a.Source, message: a.Message, severity: a.Severity, named: make(map[string]bool)}
			order = append(order, key)
		}
		k := byKind[key]
		if !k.named[a.Resource] && len(k.resources) < maxNamed {
			k.named[a.Resource] = true
			k.resources = append(k.resources, a.Resource)
		}
		k.times = append(k.times, a.Time)
		if first.IsZero() || a.Time.Before(first) {
			first = a.Time
		}
	}
	var out []apigen.EvidenceLane
	for _, l := range i.Lanes {
		lane := apigen.EvidenceLane{
			ID: l.ID, Type: l.Type, Code: l.Code, Severity: string(l.Severity), Role: l.Role, Count: l.Count, Offsets: orEmpty(l.Offsets),
		}
		if k := byKind[[2]string{l.Type, l.Code}]; k != nil {
			lane.Source, lane.Message, lane.Resources = k.source, k.message, k.resources
		} else {
			for key, k := range byKind { // a lane may fold several codes
				if key[0] == l.Type {
					lane.Source, lane.Message = cmp.Or(lane.Source, k.source), cmp.Or(lane.Message, k.message)
					lane.Resources = append(lane.Resources, k.resources...)
				}
			}
			slices.Sort(lane.Resources)
			lane.Resources = slices.Compact(lane.Resources)
			lane.Resources = lane.Resources[:min(len(lane.Resources), maxNamed)]
		}
		out = append(out, lane)
	}
	if len(i.Lanes) > 0 {
		return out, nil
	}
	for _, key := range order {
		k := byKind[key]
		lane := apigen.EvidenceLane{
			ID: strings.Trim(key[0]+"/"+key[1], "/"), Type: key[0], Code: key[1], Severity: string(k.severity), Role: "effect", Count: len(k.times),
			Source: k.source, Message: k.message, Resources: k.resources,
		}
		slices.SortFunc(k.times, time.Time.Compare)
		for _, t := range k.times[:min(len(k.times), maxNamed)] {
			lane.Offsets = append(lane.Offsets, t.Sub(first).Seconds())
		}
		out = append(out, lane)
	}
	return out, nil
}

// ListPredictions implements the operation listPredictions.
func (s *Server) ListPredictions(ctx context.Context, r apigen.ListPredictionsRequestObject) (apigen.ListPredictionsResponseObject, error) {
	n := pageSize(r.Params.Limit)
	var err error
	if r.Params.Server, err = s.serverFilter(r.Params.Server); err != nil {
		return nil, err
	}
	found, next, err := s.deps.Records.Predictions(ctx, records.Filter{
		Status: string(r.Params.State), Server: r.Params.Server, Sort: string(r.Params.Sort), After: r.Params.After, Limit: n,
	})
	if err != nil {
		return nil, listed(err)
	}
	index, _, _ := s.live.current()
	running, names := index.Running(time.Now()), s.live.directory()
	out := apigen.ListPredictions200JSONResponse{Items: make([]apigen.Prediction, len(found)), Next: next}
	for k, p := range found {
		out.Items[k] = prediction(p, index, running, names, s.deps.Faults())
		out.HorizonSeconds = max(out.HorizonSeconds, p.HorizonSeconds)
	}
	return out, nil
}

func prediction(
	p schemas.Prediction, index *fleet.Index, running map[string]schemas.Workload, names *cmdb.Snapshot, m *propagation.Model,
) apigen.Prediction {
	out := apigen.Prediction{
		ID: p.ID, Time: p.Time, Site: p.Site, Resource: p.Resource, ResourceID: idOf(names, p.Resource),
		Server: cmp.Or(p.Server, index.Device(p.Resource), p.Resource), Metric: p.Metric,
		Failure: p.Failure, Unit: unitOf(p.Metric), Probability: p.Probability, HorizonSeconds: p.HorizonSeconds, Limit: limitOf(p),
		Value: p.Value, SlopePerHour: p.SlopePerHour, Evidence: orEmpty(p.Evidence), Model: p.Model, State: p.State, Explanation: p.Explanation,
		Opened: p.Opened, FirstProbability: p.FirstProbability,
	}
	out.EtaP10, out.EtaP50, out.EtaP90 = orZero(p.ETAP10), orZero(p.ETAP50), orZero(p.ETAP90)
	if p.Sentence != nil {
		out.Sentence = *p.Sentence
	}
	if p.Failure != "" {
		out.FailureTitle = m.Title(p.Failure)
	}
	out.Job = running[out.Server].ID
	return out
}

func limitOf(p schemas.Prediction) apigen.Limit {
	v := p.Limit
	if p.Below {
		return apigen.Limit{Below: &v, Source: p.LimitSource}
	}
	return apigen.Limit{Above: &v, Source: p.LimitSource}
}

// ListActions implements the operation listActions.
func (s *Server) ListActions(ctx context.Context, r apigen.ListActionsRequestObject) (apigen.ListActionsResponseObject, error) {
	n := pageSize(r.Params.Limit)
	var err error
	if r.Params.Server, err = s.serverFilter(r.Params.Server); err != nil {
		return nil, err
	}
	items, next, err := s.deps.Records.Actions(ctx, records.Filter{
		Status: string(r.Params.State), Server: r.Params.Server, Incident: r.Params.Incident, Sort: string(r.Params.Sort),
		After: r.Params.After, Limit: n,
	})
	if err != nil {
		return nil, listed(err)
	}
	names := s.live.directory()
	for k := range items {
		items[k] = shown(items[k], names)
	}
	return apigen.ListActions200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// GetAction implements the operation getAction.
func (s *Server) GetAction(ctx context.Context, r apigen.GetActionRequestObject) (apigen.GetActionResponseObject, error) {
	a, found, err := s.deps.Records.Action(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, missing("action", r.ID)
	}
	return apigen.GetAction200JSONResponse(shown(a, s.live.directory())), nil
}

// decisions says which right a verb needs and in which states it has a meaning.
var decisions = map[apigen.DecideActionParamsVerb]struct {
	right  string
	states []string
}{
	apigen.Approve: {access.Approve, []string{schemas.ActionWaiting}},
	apigen.Cancel:  {access.Cancel, []string{schemas.ActionProposed, schemas.ActionWaiting, schemas.ActionApproved}},
	apigen.DryRun:  {access.DryRun, []string{schemas.ActionProposed, schemas.ActionWaiting}},
	// Who may decide in the stead of whoever has a server: admins.
	apigen.Override: {access.Assign, []string{schemas.ActionWaiting}},
	apigen.Resolve:  {access.Cancel, []string{schemas.ActionProposed}},
}

// DecideAction implements the operation decideAction.
func (s *Server) DecideAction(ctx context.Context, r apigen.DecideActionRequestObject) (apigen.DecideActionResponseObject, error) {
	d := decisions[r.Verb]
	if err := s.somewhere(ctx, d.right); err != nil {
		return nil, err
	}
	a, found, err := s.deps.Records.Action(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, missing("action", r.ID)
	}
	if err := s.mayOn(ctx, d.right, a.Server); err != nil {
		return nil, err
	}
	if r.Verb == apigen.Approve {
		if err := s.agrees(ctx, a.Server); err != nil {
			return nil, err
		}
	}
	if !slices.Contains(d.states, a.State) && !(r.Verb == apigen.Cancel && a.Endable()) {
		return nil, problem{
			http.StatusConflict, "wrong_state", fmt.Sprintf("Action %s is %s.", a.ID, a.State),
			"Someone else may have decided already; read the action again.",
		}
	}
	if r.Verb == apigen.Resolve && !a.Person {
		return nil, problem{
			http.StatusConflict, "wrong_state", fmt.Sprintf("Action %s is not a person's.", a.ID), "Approve or cancel it: Auspex does it and reads it back.",
		}
	}
	if s.deps.Publisher == nil {
		return nil, problem{http.StatusServiceUnavailable, "read_only", "This console cannot publish intents.", "Run a role that has the bus."}
	}
	reason, detail, note := a.Reason, "", ""
	switch r.Verb {
	case apigen.Approve:
		if detail, err = approves(ctx, &a); err != nil {
			return nil, err
		}
	case apigen.Override:
		if r.Body == nil || strings.TrimSpace(r.Body.Reason) == "" {
			return nil, faulty("body", "reason", "invalid_request", "A freeze is overridden for a reason.", "Say why; it is kept in the audit.")
		}
		if !slices.ContainsFunc(a.Rails, func(rail schemas.Rail) bool { return rail.Name == railFreeze && !rail.OK }) {
			return nil, problem{http.StatusConflict, "not_frozen", fmt.Sprintf("No freeze holds action %s.", a.ID), "Read the action again: something else holds it."}
		}
		reason = strings.TrimSpace(r.Body.Reason)
	case apigen.Resolve:
		if r.Body != nil {
			note = strings.Join(slices.DeleteFunc([]string{r.Body.Reference, r.Body.Note}, func(s string) bool { return s == "" }), ": ")
		}
	}
	key := cmp.Or(r.Params.IdempotencyKey, time.Now().Format(time.RFC3339Nano))
	intent := schemas.Intent{
		ID: schemas.EventID("intent", a.ID, string(r.Verb), Caller(ctx).Name, key), Time: time.Now().UTC(), Site: a.Site, Verb: string(r.Verb),
		Action: a.ID, Server: a.Server, Kind: a.Kind, Reason: reason, Actor: Caller(ctx).Name, User: Caller(ctx).User, Note: note,
	}
	value, err := json.Marshal(intent)
	if err != nil {
		return nil, err
	}
	if err := s.deps.Publisher.Publish(ctx, bus.Message{Topic: schemas.TopicIntents, Key: a.Server, Value: value}); err != nil {
		return nil, fmt.Errorf("publish intent for action %s: %w", a.ID, err)
	}
	s.meter.intents.WithLabelValues(intent.Verb).Inc()
	s.log.Info("intent sent", "verb", intent.Verb, "action", a.ID, "server", a.Server, "actor", intent.Actor)
	return apigen.DecideAction202JSONResponse{
		Body:    apigen.Accepted{Intent: intent.ID, Action: a.ID, Verb: intent.Verb, Detail: detail},
		Headers: apigen.DecideAction202ResponseHeaders{Location: s.at("actions", a.ID)},
	}, nil
}

// railFreeze is the check that an override is for (package control).
const railFreeze = "change_freeze"

// approves says who must approve an action besides the caller, or why what the caller says does not count.
func approves(ctx context.Context, a *schemas.Action) (still string, err error) {
	who := Caller(ctx)
	if a.Requester != "" && a.Requester == who.User {
		return "", problem{http.StatusConflict, "own_request", "You asked for it, so that others must approve it.", stillNeeded(a.ApprovalsNeeded - len(a.Approvals))}
	}
	if a.ApprovalsNeeded < 2 {
		return "", nil
	}
	if who.User == "" {
		return "", problem{
			http.StatusForbidden, "no_person", "Two persons must approve it, and this token is nobody's.", "Log in, or use a token of your own.",
		}
	}
	left := a.ApprovalsNeeded - len(a.Approvals)
	if slices.ContainsFunc(a.Approvals, func(v schemas.Approval) bool { return v.User == who.User }) {
		return "", problem{http.StatusConflict, "approved_already", "You approved it already.", stillNeeded(left)}
	}
	if left--; left <= 0 {
		return "", nil
	}
	return stillNeeded(left), nil
}

func stillNeeded(n int) string {
	switch {
	case n <= 0:
		return "No other person is needed; its checks hold it."
	case n == 1:
		return "One more person must approve it, and nobody who did."
	}
	return fmt.Sprintf("%d more persons must approve it, each another.", n)
}

// Stream implements the operation stream.
func (s *Server) Stream(ctx context.Context, r apigen.StreamRequestObject) (apigen.StreamResponseObject, error) {
	if err := may(ctx, access.Read); err != nil {
		return nil, err
	}
	reader, ok := s.hub.Open(
		ctx.Value(identityKey{}), r.Params.LastEventID, map[string]int64{"time": time.Now().UnixMilli()}, map[string][]string{"topics": {""}},
	)
	if !ok {
		return nil, problem{
			http.StatusServiceUnavailable, "too_many_streams", "Too many clients read the live stream.",
			"Close other pages, or raise api.max_streams.",
		}
	}
	if v := seen(ctx); v != nil {
		return apigen.Stream200TextEventStreamResponse{Body: &overheard{reader: reader, look: func() (*sight, error) {
			return s.look(s.stopping, Caller(ctx))
		}, hears: func(notice string) (bool, error) {
			return s.deps.Webhooks.Hears(s.stopping, v.user, notice)
		}}}, nil
	}
	return apigen.Stream200TextEventStreamResponse{Body: reader}, nil
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
