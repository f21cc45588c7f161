package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/schemas"
)

// maxCandidates is how many resources an error names.
const maxCandidates = 10

// unresolved is a problem with a text that means no resource, or several.
type unresolved struct {
	problem
	candidates []apigen.ResourceRef
}

// one returns what was found for a text where that is one thing; what says what
// was looked for.
func one(names *cmdb.Snapshot, text, what string, found []string) (string, error) {
	if len(found) == 1 {
		return found[0], nil
	}
	u := unresolved{problem: problem{
		http.StatusNotFound, "not_found", fmt.Sprintf("There is no %s %s.", what, text), "It may have been removed, or its name may be wrong.",
	}}
	shown := found[:min(len(found), maxCandidates)]
	if len(found) > 1 {
		u.problem = problem{
			http.StatusConflict, "ambiguous", fmt.Sprintf("%s means %d resources.", text, len(found)),
			"Use a name or an id: " + strings.Join(shown, ", ") + ".",
		}
	} else if shown = names.Nearest(text, 3); len(shown) > 0 {
		u.hint = "Names like it: " + strings.Join(shown, ", ") + "."
	}
	for _, name := range shown {
		u.candidates = append(u.candidates, refer(names, name))
	}
	return "", u
}

// wholes replaces parts by the server or switch that they are part of.
func wholes(names *cmdb.Snapshot, found []string) []string {
	out := make([]string, len(found))
	for i, name := range found {
		out[i] = cmp.Or(names.Server(name), name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// serverFilter returns the name of the server that a filter means. One that the
// inventory does not know is left as it is: records outlive it.
func (s *Server) serverFilter(text string) (string, error) {
	names := s.live.directory()
	found := wholes(names, names.Find(text))
	if len(found) == 0 {
		return text, nil
	}
	return one(names, text, "server or switch", found)
}

func refer(names *cmdb.Snapshot, name string) apigen.ResourceRef {
	r, ok := names.Resource(name)
	if !ok {
		return apigen.ResourceRef{}
	}
	return apigen.ResourceRef{ID: names.ID(name), Name: name, Kind: r.Kind}
}

// idOf returns the id of a resource of the inventory; "" for what is in none,
// such as a job.
func idOf(names *cmdb.Snapshot, name string) string { return refer(names, name).ID }

// shown is an action as the API has it.
func shown(a schemas.Action, names *cmdb.Snapshot) schemas.Action {
	a.ServerID, a.Rails = idOf(names, a.Server), orEmpty(a.Rails)
	return a
}

// ListResources implements the operation listResources.
func (s *Server) ListResources(_ context.Context, r apigen.ListResourcesRequestObject) (apigen.ListResourcesResponseObject, error) {
	n := pageSize(r.Params.Limit)
	names, whole := s.live.directory(), r.Params.Within
	if whole != "" {
		var err error
		if whole, err = one(names, whole, "resource", names.Find(whole)); err != nil {
			return nil, err
		}
	}
	page, next, err := names.Page(cmdb.Filter{Kind: r.Params.Kind, Whole: whole, Find: r.Params.Find, Sort: string(r.Params.Sort)}, r.Params.After, n)
	if err != nil {
		return nil, err
	}
	out := apigen.ListResources200JSONResponse{Items: make([]apigen.ResourceRef, len(page)), Next: next}
	for k := range page {
		out.Items[k] = refer(names, page[k].ID)
	}
	return out, nil
}

// GetResource implements the operation getResource.
func (s *Server) GetResource(_ context.Context, r apigen.GetResourceRequestObject) (apigen.GetResourceResponseObject, error) {
	names := s.live.directory()
	name, err := one(names, r.ID, "resource", names.Find(r.ID))
	if err != nil {
		return nil, err
	}
	found, _ := names.Resource(name)
	out := apigen.GetResource200JSONResponse{
		ID: names.ID(name), Name: name, Kind: found.Kind, Attrs: found.Attrs.Map(), Parent: refer(names, found.Parent),
		Server: refer(names, names.Server(name)), Rack: refer(names, names.Rack(name)), Site: refer(names, names.Site(name)),
		Parts: []apigen.ResourceRef{},
	}
	for _, part := range names.Children(name) {
		out.Parts = append(out.Parts, refer(names, part))
	}
	return out, nil
}
