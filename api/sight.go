package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	prom "auspex/api/prometheus"
	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/internal/store/allocations"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

// sight is what a tenant sees: somebody of a team who is no admin. What is measured, happens and is
// done to a server is theirs while they have it. nil sees everything: admins, scripts of nobody, and
// people of no team, who run the place.
type sight struct {
	user  string
	names func() *cmdb.Snapshot
	had   map[string][]allocations.Span // by server, the first first
	runs  map[string]apigen.PoolRight   // by pool
	ours  map[string]bool               // the servers of those pools
}

// look returns what somebody sees.
func (s *Server) look(ctx context.Context, who access.Principal) (*sight, error) {
	if who.User == "" || who.May(access.Users) {
		return nil, nil //nolint:nilnil // nil sees everything
	}
	u, err := s.deps.People.User(ctx, who.User)
	if err != nil || len(u.Teams) == 0 {
		return nil, err
	}
	spans, err := s.deps.Allocations.Spans(ctx, who.User)
	if err != nil {
		return nil, err
	}
	v := &sight{user: who.User, names: s.live.directory, had: make(map[string][]allocations.Span), ours: make(map[string]bool)}
	// Whoever is granted something in a pool runs it, and sees what is of its servers.
	if v.runs, err = s.rights(ctx, who); err != nil {
		return nil, err
	}
	for pool := range v.runs {
		servers, err := s.deps.Estate.InPool(ctx, pool)
		if err != nil {
			return nil, err
		}
		for _, name := range servers {
			v.had[name], v.ours[name] = []allocations.Span{{Server: name}}, true
		}
	}
	for _, sp := range spans {
		v.had[sp.Server] = append(v.had[sp.Server], sp)
	}
	return v, nil
}

// seen returns what the caller of a context sees.
func seen(ctx context.Context) *sight {
	if id, ok := ctx.Value(identityKey{}).(*identity); ok {
		return id.sees
	}
	return nil
}

// Servers implements [prom.View]: those that a tenant has or had.
func (v *sight) Servers() []string {
	return slices.Sorted(maps.Keys(v.had))
}

// spans are when a tenant had a resource of a server. Of a server of which they had only GPUs, those
// of others are not theirs, and a part that the inventory no longer knows may be one.
func (v *sight) spans(server, resource string) (out []allocations.Span) {
	r, known := v.names().Resource(resource)
	part := r.Kind == schemas.KindGPU || !known && resource != "" && resource != server
	for _, sp := range v.had[server] {
		if sp.GPU == "" || !part || sp.GPU == resource {
			out = append(out, sp)
		}
	}
	return out
}

// within reports whether a tenant had a resource of a server at some time of a span; a zero end is now.
func (v *sight) within(server, resource string, from, to time.Time) bool {
	return slices.ContainsFunc(v.spans(server, resource), func(sp allocations.Span) bool {
		return (to.IsZero() || !sp.From.After(to)) && (sp.Until.IsZero() || !sp.Until.Before(from))
	})
}

// during reports whether a tenant had a resource at some time of a span; a zero end is now.
func (v *sight) during(resource string, from, to time.Time) bool {
	return v == nil || v.within(cmp.Or(v.names().Server(resource), resource), resource, from, to)
}

// at reports whether a tenant had a resource at a time.
func (v *sight) at(resource string, t time.Time) bool { return v.during(resource, t, t) }

// throughout reports whether a tenant had a resource all of a time: where they had it before and after
// somebody else, what was measured over both is not theirs.
func (v *sight) throughout(resource string, from, to time.Time) bool {
	return v == nil || slices.ContainsFunc(v.spans(cmp.Or(v.names().Server(resource), resource), resource), func(sp allocations.Span) bool {
		return !sp.From.After(from) && (sp.Until.IsZero() || !sp.Until.Before(to))
	})
}

// has reports whether a tenant has a resource now.
func (v *sight) has(resource string) bool { return v.at(resource, time.Now()) }

// runsOn reports whether a tenant runs the pool of the server that a resource is, or is part of.
func (v *sight) runsOn(resource string) bool {
	return v == nil || v.ours[cmp.Or(v.names().Server(resource), resource)]
}

// theirs is the answer of who looks for something by name where a tenant names what is of a pool that they do
// not run: what is not there.
func (v *sight) theirs(what, text, name string, err error) error {
	if v != nil && (errors.As(err, new(unresolved)) || err == nil && !v.runsOn(name)) { // also what its name is like is not told
		return missing(what, text)
	}
	return err
}

// event reports whether a tenant sees what happened to a resource, of a server where that is known.
func (v *sight) event(resource, server string, t time.Time) bool {
	return v == nil || v.within(cmp.Or(v.names().Server(resource), server, resource), resource, t, t)
}

// Spans implements [prom.View].
func (v *sight) Spans(server, resource string) []prom.Span {
	var out []prom.Span
	for _, sp := range v.spans(server, resource) {
		one := prom.Span{From: sp.From.UnixMilli(), Until: time.Now().UnixMilli()}
		if !sp.Until.IsZero() {
			one.Until = sp.Until.UnixMilli()
		}
		out = append(out, one)
	}
	return out
}

// incident is what a tenant sees of an incident, and whether they see it at all: all of it where
// nobody else is touched by it, else that there is one, of what kind, and what it means for theirs.
func (v *sight) incident(i schemas.Incident) (schemas.Incident, bool) {
	if v == nil {
		return i, true
	}
	end := time.Now()
	if i.Closed != nil {
		end = *i.Closed
	}
	theirs := func(resource string) bool { return v.during(resource, i.Opened, end) }
	names := v.names()
	affected := slices.DeleteFunc(slices.Clone(i.Affected), func(s string) bool { return !theirs(s) })
	workloads := slices.DeleteFunc(slices.Clone(i.Workloads), func(id string) bool {
		w, known := names.Workload(id)
		return !known || slices.ContainsFunc(w.Resources, func(r string) bool { return !theirs(r) })
	})
	root := theirs(i.RootCause.Resource)
	if !root && len(affected) == 0 {
		return i, false
	}
	if root && len(affected) == len(i.Affected) && len(workloads) == len(i.Workloads) {
		return i, true
	}
	out := schemas.Incident{
		ID: i.ID, Opened: i.Opened, Updated: i.Updated, Closed: i.Closed, At: i.At, Site: i.Site, Severity: i.Severity, Revision: i.Revision,
		RootCause: schemas.Cause{Fault: i.RootCause.Fault, Title: i.RootCause.Title, Confidence: i.RootCause.Confidence},
		Affected:  affected, Workloads: workloads, Explanation: i.RootCause.Title["en"],
	}
	if root {
		out.RootCause.Resource, out.RootCause.ResourceID = i.RootCause.Resource, i.RootCause.ResourceID
	}
	return out, true
}

// unknownDigit is the state of what somebody else has.
var unknownDigit = strconv.Itoa(int(fleet.Unknown))

// facts are what is open now, as a tenant sees it.
func (v *sight) facts(f fleet.Facts) fleet.Facts {
	if v == nil {
		return f
	}
	incidents := f.Incidents
	f.Incidents = nil
	for k := range incidents {
		if i, ok := v.incident(incidents[k]); ok {
			f.Incidents = append(f.Incidents, i)
		}
	}
	f.Predictions = slices.DeleteFunc(slices.Clone(f.Predictions), func(p schemas.Prediction) bool { return !v.event(p.Resource, p.Server, p.Time) })
	f.Actions = slices.DeleteFunc(slices.Clone(f.Actions), func(a schemas.Action) bool { return !v.action(&a) })
	return f
}

// fleet hides what a tenant does not have: that it is there is all that is left.
func (v *sight) fleet(f *apigen.Fleet, index *fleet.Index) {
	if v == nil {
		return
	}
	unknown := int(fleet.Unknown)
	sv, used := &f.Servers, make([]bool, len(f.Jobs))
	for i, name := range sv.Name {
		if v.has(name) {
			if sv.Job[i] >= 0 {
				used[sv.Job[i]] = true
			}
			digits := []byte(sv.Gpus[i])
			for k, gpu := range index.Parts(name, schemas.KindGPU)[:len(digits)] {
				if !v.has(gpu) {
					digits[k] = unknownDigit[0]
				}
			}
			sv.Gpus[i] = string(digits)
			continue
		}
		sv.State[i], sv.Gpus[i], sv.Risk[i], sv.Job[i] = unknown, strings.Repeat(unknownDigit, len(sv.Gpus[i])), 0, -1
		sv.Temp[i], sv.Power[i], sv.Load[i] = nil, nil, nil
	}
	for k := range f.Jobs {
		if !used[k] { // the indices of the others stand
			f.Jobs[k] = apigen.FleetJob{}
		}
	}
	for k := range f.Racks {
		f.Racks[k].Leaf, f.Racks[k].Feeds = unknown, []int{unknown, unknown}
	}
	clear(f.History.Alerts)
	f.Summary.Gpus = apigen.FleetGPUs{Total: f.Summary.Gpus.Total}
	f.Summary.PowerKw, f.Summary.SamplesPerSecond = nil, nil
}

// overheard is the live stream as a tenant hears it: that lists changed, which of their servers did, and
// what is told to them and their teams.
type overheard struct {
	reader io.ReadCloser
	look   func() (*sight, error)
	hears  func(notice string) (bool, error)
	in     []byte // what was read and is no whole message yet
	out    []byte
}

// Read implements [io.Reader].
func (o *overheard) Read(p []byte) (int, error) {
	for len(o.out) == 0 {
		if end := bytes.Index(o.in, []byte("\n\n")); end >= 0 {
			message := o.in[:end+2]
			o.in = o.in[end+2:]
			var err error
			if o.out, err = o.pass(message); err != nil {
				return 0, err
			}
			continue
		}
		n, err := o.reader.Read(p)
		o.in = append(o.in, p[:n]...)
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, o.out)
	o.out = o.out[n:]
	return n, nil
}

// Close implements [io.Closer].
func (o *overheard) Close() error { return o.reader.Close() }

// pass returns what is left of a message.
func (o *overheard) pass(message []byte) ([]byte, error) {
	_, rest, _ := bytes.Cut(message, []byte("event: "))
	event, rest, _ := bytes.Cut(rest, []byte("\n"))
	switch string(event) {
	case "hello", "tick":
		return message, nil
	case "changed":
	case "notice":
		return o.notice(message, rest)
	default: // states and readings of servers
		return nil, nil
	}
	var told struct {
		Topics []string `json:"topics"`
	}
	data := dataOf(rest)
	if err := json.Unmarshal(data, &told); err != nil {
		return nil, err
	}
	v, err := o.look()
	if err != nil {
		return nil, err
	}
	told.Topics = slices.DeleteFunc(told.Topics, func(topic string) bool {
		server, of := strings.CutPrefix(topic, "servers/")
		return of && !v.has(server)
	})
	text, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	return append(message[:len(message)-len(rest):len(message)-len(rest)], []byte("data: "+string(text)+"\n\n")...), nil
}

// notice returns a notice to those whom it is for, and to nobody else.
func (o *overheard) notice(message, rest []byte) ([]byte, error) {
	var n schemas.Notice
	if err := json.Unmarshal(dataOf(rest), &n); err != nil {
		return nil, err
	}
	if ok, err := o.hears(n.ID); err != nil || !ok {
		return nil, err
	}
	return message, nil
}

func dataOf(rest []byte) []byte {
	data, _ := bytes.CutPrefix(bytes.TrimSpace(rest), []byte("data: "))
	return data
}

// through reads pages of a list until one has something that ok lets through: then it is shorter
// than asked for, and not empty.
func through[T any](after string, page func(after string) ([]T, string, error), ok func(*T) bool) (out []T, next string, err error) {
	const most = 100
	for range most {
		if out, next, err = page(after); err != nil {
			return nil, "", err
		}
		out = slices.DeleteFunc(out, func(x T) bool { return !ok(&x) })
		if len(out) > 0 || next == "" {
			return out, next, nil
		}
		after = next
	}
	return out, next, nil
}

// rule is what a tenant may do with a route.
type rule int

const (
	// ruleSite is a route of those who run the place, and of one that nobody has thought about.
	ruleSite rule = iota
	// ruleOpen shows and changes nothing of others: it speaks of the caller, of what the house offers,
	// or its handler keeps to what the caller sees.
	ruleOpen
	// ruleHas is a route below a server or GPU, which the caller must have now; ruleHad one that
	// shows what was, of what they have or had.
	ruleHas
	ruleHad
	// ruleRuns is a route below a server or GPU of those who run its pool.
	ruleRuns
	// ruleRunners is a route of those who run some pool; its handler keeps to the servers of theirs,
	// which [sight.runsOn] tells.
	ruleRunners
)

// tenantRules are the routes of a tenant, by their operation.
var tenantRules = map[string]rule{
	"login": ruleOpen, "getLoginMethods": ruleOpen, "beginLogin": ruleOpen, "finishLogin": ruleOpen, "logout": ruleOpen, "getMe": ruleOpen,
	"listFaults": ruleOpen, "listPools": ruleOpen, "getPool": ruleOpen, "listMaintenance": ruleOpen, "getMaintenance": ruleOpen, "getCapacity": ruleOpen,
	// The people and teams around the caller, and what they have.
	"listUsers": ruleOpen, "getUser": ruleOpen, "listUserAllocations": ruleOpen, "listTeams": ruleOpen, "getTeam": ruleOpen,
	"listQuotas": ruleOpen, "getQuota": ruleOpen, "listReservations": ruleOpen, "getReservation": ruleOpen,
	"listAllocations": ruleOpen, "createAllocation": ruleOpen, "getAllocation": ruleOpen, "updateAllocation": ruleOpen, "deleteAllocation": ruleOpen,
	"startAllocation": ruleOpen, "stopAllocation": ruleOpen, "getAllocationStatus": ruleOpen,
	"listWorkflows": ruleOpen, "getWorkflow": ruleOpen, "cancelWorkflow": ruleOpen, "resumeWorkflow": ruleOpen, "deployAllocation": ruleOpen, "cleanupAllocation": ruleOpen,
	// What there is to choose from; who has it is not told.
	"listServers": ruleOpen, "getServer": ruleOpen, "listServerGPUs": ruleOpen, "listGPUs": ruleOpen, "getGPU": ruleOpen,
	"listResources": ruleOpen, "getResource": ruleOpen, "search": ruleOpen,
	// What happens, is measured, and is done.
	"getFleet": ruleOpen, "stream": ruleOpen, "listNotices": ruleOpen,
	"getServerStatus": ruleHas, "getGPUStatus": ruleHas, "getServerPlots": ruleHad, "getGPUMetrics": ruleHad,
	"listEvents": ruleOpen, "getEvent": ruleOpen, "postEvent": ruleOpen, "listAlerts": ruleOpen, "getAlert": ruleOpen, "postAlert": ruleOpen,
	"handleAlert": ruleOpen, "getAlertCorrelation": ruleOpen, "listIncidents": ruleOpen, "getIncident": ruleOpen,
	"listPredictions": ruleOpen, "listActions": ruleOpen, "getAction": ruleOpen, "decideAction": ruleOpen,
	"listOperations": ruleOpen, "getOperation": ruleOpen, "powerServer": ruleHas, "powerServerOperation": ruleHas,
	"setServerBios": ruleRuns, "poolServer": ruleRuns, "updateServerFirmware": ruleRuns, "updateServer": ruleRuns, "updateGPU": ruleRuns, "getServerConfig": ruleRuns,
	"putServerConfig": ruleRuns, "applyServerConfig": ruleRuns, "listServerConfigs": ruleRuns, "listServerValidations": ruleRuns, "listServerWipes": ruleRuns, "createGPUConfig": ruleRuns, "updateGPUConfig": ruleRuns,
	"createWorkflow": ruleRunners, "declareMaintenance": ruleRunners, "updateMaintenance": ruleRunners, "deleteMaintenance": ruleRunners, "endMaintenance": ruleRunners,
	"getGPUConfig": ruleHas, "listGPUConfigs": ruleHas, "applyGPUConfig": ruleHas,
}

// errSite is the answer to a tenant where those who run the place are asked for.
var errSite = problem{
	http.StatusForbidden, "not_for_tenants", "This is for those who run the place.", "Whoever is in a team sees and changes what their team has.",
}

// tenant lets a tenant through to what is theirs. What is not is answered as what is not there.
func (s *Server) tenant(ctx context.Context, a *asked, path string) error {
	v := seen(ctx)
	if v == nil {
		return nil
	}
	switch r := tenantRules[a.operation]; r {
	case ruleOpen:
		return nil
	case ruleRuns:
		names := s.live.directory()
		if found := wholes(names, names.Find(a.subject(path))); len(found) == 1 {
			of, err := s.deps.Estate.Server(ctx, found[0])
			if _, runs := v.runs[of.Pool]; err == nil && runs {
				return nil
			} else if err != nil && !errors.Is(err, entity.ErrNone) {
				return err
			}
		}
	case ruleRunners:
		if len(v.runs) > 0 {
			return nil
		}
	case ruleHas, ruleHad:
		ref, what := a.subject(path), "server"
		if strings.HasPrefix(path, "/gpus/") {
			what = "GPU"
		}
		names := s.live.directory()
		found := names.Find(ref)
		if what == "server" {
			found = wholes(names, found)
		}
		if len(found) != 1 || r == ruleHas && !v.has(found[0]) || r == ruleHad && !v.during(found[0], time.Time{}, time.Time{}) {
			return missing(what, ref)
		}
		return nil
	}
	return errSite
}
