package api

import (
	"context"
	"time"
	"unicode"
	"unicode/utf8"

	"auspex/api/apigen"
	"auspex/internal/enrol"
	"auspex/internal/store/cursors"
	"auspex/internal/store/join"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// collectorOfAgents is how the collector of node agents is called.
const collectorOfAgents = "agent"

// sentence makes one of a text that begins in lower case and has no end.
func sentence(text string) string {
	r, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(r)) + text[n:] + "."
}

// versions is what was read last of agents, by machine or by server.
func (s *Server) versions(ctx context.Context) (map[string]enrol.Agent, error) {
	if s.deps.Enrol == nil {
		return nil, nil
	}
	return s.deps.Enrol.Agents(ctx)
}

// agents is what is known of node agents now.
type agents struct {
	lost, refused map[string]cursors.Loss
	read          map[string]enrol.Agent // by machine, or by server
	machines      map[string]join.Bound  // by server
	heard         map[string]bool        // nil is not known
}

func (s *Server) agents(ctx context.Context) (a agents, err error) {
	if s.deps.Contacts != nil {
		if a.lost, err = s.deps.Contacts.Losses(ctx, schemas.EventAgentUnreachable, collectorOfAgents); err != nil {
			return a, err
		}
		if a.refused, err = s.deps.Contacts.Losses(ctx, schemas.EventAccessRefused, collectorOfAgents); err != nil {
			return a, err
		}
	}
	if a.read, err = s.versions(ctx); err != nil {
		return a, err
	}
	if s.deps.Join != nil {
		if a.machines, err = s.deps.Join.Placed(ctx); err != nil {
			return a, err
		}
	}
	if s.deps.Querier != nil {
		up, err := s.deps.Querier.Instant(ctx, `up{job="`+collectorOfAgents+`"}`, time.Now())
		if err != nil {
			s.log.Warn("cannot read which agents were heard", "error", err)
			return a, nil
		}
		a.heard = make(map[string]bool, len(up))
		for _, series := range up {
			a.heard[series.Labels["instance"]] = true
		}
	}
	return a, nil
}

// of is the agent of a server.
func (a *agents) of(r *schemas.Resource, rack string) apigen.Agent {
	address := r.Attrs.Get(schemas.AttrAgentAddress)
	out := apigen.Agent{Server: r.ID, Rack: rack, DialsIn: address == schemas.AgentDialsIn, Address: address, Version: a.read[r.ID].Version}
	if out.DialsIn {
		out.Address = ""
		if m, there := a.machines[r.ID]; there {
			out.Machine, out.Seen, out.Address, out.Version = m.Key, m.Seen, m.Address, a.read[m.Key].Version
		}
	}
	lost, gone := a.lost[r.ID]
	refused, shut := a.refused[r.ID]
	switch {
	case address == "":
		out.State = string(apigen.None)
	case gone:
		out.State, out.Since = string(apigen.Lost), lost.Since
	case shut:
		out.State, out.Since = string(apigen.Refuses), refused.Since
	case a.heard != nil && !a.heard[r.ID]:
		out.State = string(apigen.Unheard)
	default:
		out.State = string(apigen.Answers)
	}
	return out
}

// ListAgents implements the operation listAgents.
func (s *Server) ListAgents(ctx context.Context, r apigen.ListAgentsRequestObject) (apigen.ListAgentsResponseObject, error) {
	known, err := s.agents(ctx)
	if err != nil {
		return nil, err
	}
	names := s.live.directory()
	out := apigen.ListAgents200JSONResponse{Items: []apigen.Agent{}}
	counts := map[string]*int{
		string(apigen.Answers): &out.Counts.Answers, string(apigen.Unheard): &out.Counts.Unheard, string(apigen.Lost): &out.Counts.Lost,
		string(apigen.Refuses): &out.Counts.Refuses, string(apigen.None): &out.Counts.None,
	}
	for _, server := range names.Resources() {
		if server.Kind != schemas.KindServer {
			continue
		}
		a := known.of(&server, names.Rack(server.ID))
		*counts[a.State]++
		away := r.Params.State == apigen.Away && (a.State == string(apigen.Lost) || a.State == string(apigen.Refuses))
		if r.Params.State == "" || string(r.Params.State) == a.State || away {
			out.Items = append(out.Items, a)
		}
	}
	if out.Items, out.Next, err = agentOrder.Cut(out.Items, string(r.Params.Sort), r.Params.After, pageSize(r.Params.Limit)); err != nil {
		return nil, listed(err)
	}
	return out, nil
}

var agentOrder = sqldb.Order[apigen.Agent]{
	ID: sqldb.Key[apigen.Agent]{Of: func(a *apigen.Agent) any { return a.Server }}, Usual: "server",
	By: map[string]sqldb.Key[apigen.Agent]{
		"server": {Of: func(a *apigen.Agent) any { return a.Server }, Alone: true},
		"rack":   {Of: func(a *apigen.Agent) any { return a.Rack }},
		"state":  {Of: func(a *apigen.Agent) any { return a.State }},
	},
}

// ListRefusedDescriptions implements the operation listRefusedDescriptions.
func (s *Server) ListRefusedDescriptions(
	ctx context.Context, r apigen.ListRefusedDescriptionsRequestObject,
) (apigen.ListRefusedDescriptionsResponseObject, error) {
	if s.deps.Enrol == nil {
		return nil, errNoEnrolment
	}
	n := pageSize(r.Params.Limit)
	items, next, err := s.deps.Enrol.Refused(ctx, string(r.Params.Sort), r.Params.After, n)
	if err != nil {
		return nil, listed(err)
	}
	return apigen.ListRefusedDescriptions200JSONResponse{Items: orEmpty(items), Next: next}, nil
}
