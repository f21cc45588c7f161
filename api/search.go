package api

import (
	"context"
	"slices"
	"strings"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/store/people"
)

// Kinds of what is found beside resources.
const (
	foundIncident = "incident"
	foundUser     = "user"
)

var matches = []string{cmdb.MatchExact, cmdb.MatchPrefix, cmdb.MatchSubstring}

// matchOf says how a text that is in lower case stands in a key, or "".
func matchOf(key, text string) string {
	switch key = strings.ToLower(key); {
	case key == text:
		return cmdb.MatchExact
	case strings.HasPrefix(key, text):
		return cmdb.MatchPrefix
	case strings.Contains(key, text):
		return cmdb.MatchSubstring
	}
	return ""
}

// Search implements the operation search.
func (s *Server) Search(ctx context.Context, r apigen.SearchRequestObject) (apigen.SearchResponseObject, error) {
	if err := may(ctx, access.Read); err != nil {
		return nil, err
	}
	limit := r.Params.Limit
	if limit == 0 {
		limit = 20
	}
	text := strings.ToLower(strings.TrimSpace(r.Params.Q))
	if text == "" || strings.ContainsRune(text, 0) {
		return nil, wrong("query", apigen.FieldProblem{Field: "q", Detail: "it has no text to look for"})
	}
	wants := func(kind string) bool { return r.Params.Kind == "" || r.Params.Kind == kind }
	out := apigen.Search200JSONResponse{Items: []apigen.SearchResult{}}
	names := s.live.directory()
	if r.Params.Kind != foundIncident && r.Params.Kind != foundUser {
		hits, more := names.Search(text, r.Params.Kind, limit)
		out.More = more
		for _, h := range hits {
			ref := refer(names, h.Name)
			found := apigen.SearchResult{Kind: ref.Kind, ID: ref.ID, Name: h.Name, Match: h.Match, Matched: h.In}
			if server := names.Server(h.Name); server != h.Name {
				found.Server = server
			}
			out.Items = append(out.Items, found)
		}
	}
	if wants(foundIncident) {
		found, err := s.searchIncidents(ctx, text, strings.TrimSpace(r.Params.Q))
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, found...)
	}
	if wants(foundUser) {
		found, err := s.searchUsers(ctx, text, limit+1)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, found...)
	}
	slices.SortStableFunc(out.Items, func(a, b apigen.SearchResult) int {
		return slices.Index(matches, a.Match) - slices.Index(matches, b.Match)
	})
	if len(out.Items) > limit {
		out.Items, out.More = out.Items[:limit], true
	}
	return out, nil
}

// searchIncidents finds any incident by its id, and those that are open by a part of it or of what they blame.
func (s *Server) searchIncidents(ctx context.Context, text, id string) ([]apigen.SearchResult, error) {
	var out []apigen.SearchResult
	i, found, err := s.deps.Records.Incident(ctx, id)
	if err != nil {
		return nil, err
	}
	if found {
		out = append(out, apigen.SearchResult{
			Kind: foundIncident, ID: i.ID, Name: i.RootCause.Resource + " " + i.RootCause.Fault, Match: cmdb.MatchExact, Matched: "id",
		})
	}
	_, _, facts := s.live.current()
	for _, i := range seen(ctx).facts(facts).Incidents {
		match, in := matchOf(i.ID, text), "id"
		if match == "" {
			match, in = matchOf(i.RootCause.Resource, text), "resource"
		}
		if match != "" && !(found && i.ID == id) {
			out = append(out, apigen.SearchResult{Kind: foundIncident, ID: i.ID, Name: i.RootCause.Resource + " " + i.RootCause.Fault, Match: match, Matched: in})
		}
	}
	return out, nil
}

// searchUsers finds users of those that the caller may see: who may see nobody, finds nobody.
func (s *Server) searchUsers(ctx context.Context, text string, limit int) ([]apigen.SearchResult, error) {
	around, err := near(ctx)
	if err != nil {
		return nil, nil //nolint:nilerr // a search is of what the caller sees
	}
	users, _, err := s.deps.People.Users(ctx, people.Filter{Near: around, Text: text, Limit: limit})
	if err != nil {
		return nil, err
	}
	out := make([]apigen.SearchResult, 0, len(users))
	for _, u := range users {
		match, in := matchOf(u.Username, text), "name"
		if by := matchOf(u.Email, text); match == "" || by != "" && slices.Index(matches, by) < slices.Index(matches, match) {
			match, in = by, "email"
		}
		if u.ID == text {
			match, in = cmdb.MatchExact, "id"
		}
		out = append(out, apigen.SearchResult{Kind: foundUser, ID: u.ID, Name: u.Username, Match: match, Matched: in})
	}
	return out, nil
}
