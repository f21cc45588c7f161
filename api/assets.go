package api

import (
	"context"
	"errors"
	"strconv"

	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/store/entity"
	"auspex/schemas"
)

// assetOf is a resource, as it is or was, with its latest state.
func assetOf(names *cmdb.Snapshot, name string, is cmdb.State) apigen.Asset {
	r, there := names.Resource(name)
	if !there {
		r = is.Resource
	}
	out := apigen.Asset{
		ID: names.ID(name), Name: name, Kind: r.Kind, Parent: r.Parent, Attrs: r.Attrs.Map(), InInventory: there, Version: is.Version, Change: is.Change,
		ChangedAt: is.Time, ChangedBy: is.Actor, Source: is.Source, Origin: is.Origin,
	}
	if there {
		out.Place = placeOf(names, name)
	}
	return out
}

// ListAssets implements the operation listAssets.
func (s *Server) ListAssets(ctx context.Context, r apigen.ListAssetsRequestObject) (apigen.ListAssetsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	n, names, whole := pageSize(r.Params.Limit), s.deps.Inventory.Snapshot(), r.Params.Within
	if whole != "" {
		if whole, err = one(names, whole, "resource", names.Find(whole)); err != nil {
			return nil, err
		}
	}
	page, next, err := names.Page(cmdb.Filter{Kind: r.Params.Kind, Whole: whole, Text: r.Params.Q, Sort: string(r.Params.Sort)}, r.Params.After, n)
	if err != nil {
		return nil, err
	}
	of := make([]string, len(page))
	for i := range page {
		of[i] = page[i].ID
	}
	latest, err := e.inventory.Latest(ctx, of)
	if err != nil {
		return nil, err
	}
	out := apigen.ListAssets200JSONResponse{Items: make([]apigen.Asset, len(page)), Next: next}
	for i, name := range of {
		out.Items[i] = assetOf(names, name, latest[name])
	}
	return out, nil
}

// asset finds a resource by any of its names; one that has left the inventory by its name, or,
// of a server or GPU, its id.
func (s *Server) asset(ctx context.Context, e *holdings, text string) (name string, names *cmdb.Snapshot, err error) {
	names = s.deps.Inventory.Snapshot()
	found := names.Find(text)
	if len(found) > 0 {
		name, err = one(names, text, "resource", found)
		return name, names, err
	}
	for _, find := range []func() (string, error){
		func() (string, error) { return text, nil },
		func() (string, error) { v, err := e.Server(ctx, text); return v.Name, err },
		func() (string, error) { v, err := e.GPU(ctx, text); return v.Name, err },
	} {
		if name, err = find(); errors.Is(err, entity.ErrNone) {
			continue
		} else if err != nil {
			return "", names, err
		}
		if known, err := e.inventory.History(ctx, name, 0, 1); err != nil || len(known) > 0 {
			return name, names, err
		}
	}
	_, err = one(names, text, "resource", nil)
	return "", names, err
}

// GetAsset implements the operation getAsset.
func (s *Server) GetAsset(ctx context.Context, r apigen.GetAssetRequestObject) (apigen.GetAssetResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	name, names, err := s.asset(ctx, e, r.ID)
	if err != nil {
		return nil, err
	}
	latest, err := e.inventory.Latest(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	return apigen.GetAsset200JSONResponse(assetOf(names, name, latest[name])), nil
}

// ListAssetVersions implements the operation listAssetVersions.
func (s *Server) ListAssetVersions(ctx context.Context, r apigen.ListAssetVersionsRequestObject) (apigen.ListAssetVersionsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	from, err := before(r.Params.After)
	if err != nil {
		return nil, err
	}
	name, _, err := s.asset(ctx, e, r.ID)
	if err != nil {
		return nil, err
	}
	n := pageSize(r.Params.Limit)
	found, err := e.inventory.History(ctx, name, from, n+1)
	if err != nil {
		return nil, err
	}
	out := apigen.ListAssetVersions200JSONResponse{Items: make([]apigen.AssetVersion, min(n, len(found)))}
	for i := range out.Items {
		v := &found[i]
		out.Items[i] = apigen.AssetVersion{
			Version: v.Version, Time: v.Time, Change: v.Change, Source: v.Source, Origin: v.Origin, By: v.Actor, Kind: v.Resource.Kind,
			Parent: v.Resource.Parent, Attrs: v.Resource.Attrs.Map(), Differences: []apigen.AssetDifference{},
		}
		if i+1 < len(found) && v.Change == cmdb.Changed {
			out.Items[i].Differences = differences(&found[i+1].Resource, &v.Resource)
		}
	}
	if len(found) > n {
		out.Next = strconv.FormatInt(found[n-1].Version, 10)
	}
	return out, nil
}

// differences are those of two states of a resource.
func differences(was, is *schemas.Resource) []apigen.AssetDifference {
	out := []apigen.AssetDifference{}
	note := func(attribute, was, is string) {
		if was != is {
			out = append(out, apigen.AssetDifference{Attribute: attribute, Was: was, Is: is})
		}
	}
	note("kind", was.Kind, is.Kind)
	note("parent", was.Parent, is.Parent)
	for k := range was.Attrs.Join(is.Attrs).All() {
		note(k, was.Attrs.Get(k), is.Attrs.Get(k))
	}
	return out
}
