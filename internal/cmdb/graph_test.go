package cmdb

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"auspex/schemas"
)

// estate is an inventory as maps, from which graphs are made anew.
type estate struct {
	resources map[string]schemas.Resource
	links     map[schemas.Link]bool
}

func (e *estate) topology() schemas.Topology {
	return schemas.Topology{
		Resources: slices.SortedFunc(maps.Values(e.resources), func(a, b schemas.Resource) int { return cmp.Compare(a.ID, b.ID) }),
		Links:     slices.SortedFunc(maps.Keys(e.links), compareLinks),
	}
}

func compareLinks(a, b schemas.Link) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Kind, b.Kind))
}

func attrs(r *rand.Rand) schemas.Attrs {
	m := map[string]string{}
	for _, k := range []string{schemas.AttrModel, schemas.AttrSerial, schemas.AttrUUID, schemas.AttrPCI, schemas.AttrAliases} {
		switch v := fmt.Sprint(k, r.IntN(40)); {
		case r.IntN(3) > 0:
		case k == schemas.AttrPCI:
			m[k] = fmt.Sprintf("0000:%02x:00.0", r.IntN(20))
		case k == schemas.AttrAliases:
			m[k] = v + ",board " + v
		default:
			m[k] = v
		}
	}
	return schemas.AttrsOf(m)
}

// change draws a change that leaves an estate whole: what goes has no parts, and takes its links along.
func (e *estate) change(r *rand.Rand) (put []schemas.Resource, remove []string, add, drop []schemas.Link) {
	names := slices.Sorted(maps.Keys(e.resources))
	within := map[string][]string{} // a kind's parent is of a kind before it
	kinds := []string{schemas.KindSite, schemas.KindRack, schemas.KindServer, schemas.KindGPU}
	for _, id := range names {
		within[e.resources[id].Kind] = append(within[e.resources[id].Kind], id)
	}
	pick := func(all []string) string {
		if len(all) == 0 {
			return ""
		}
		return all[r.IntN(len(all))]
	}
	for range r.IntN(4) {
		k := r.IntN(len(kinds))
		x := schemas.Resource{ID: fmt.Sprintf("%s%d", kinds[k], r.IntN(30)), Kind: kinds[k], Attrs: attrs(r)}
		if k > 0 && r.IntN(8) > 0 {
			x.Parent = pick(within[kinds[k-1]])
		}
		if !slices.ContainsFunc(put, func(p schemas.Resource) bool { return p.ID == x.ID }) {
			put = append(put, x)
			e.resources[x.ID] = x
		}
	}
	for range r.IntN(3) {
		id := pick(names)
		leaf := !slices.ContainsFunc(slices.Collect(maps.Values(e.resources)), func(p schemas.Resource) bool { return p.Parent == id })
		if id == "" || !leaf || slices.Contains(remove, id) || slices.ContainsFunc(put, func(p schemas.Resource) bool { return p.ID == id }) {
			continue
		}
		remove = append(remove, id)
		delete(e.resources, id)
		for _, l := range slices.SortedFunc(maps.Keys(e.links), compareLinks) {
			if l.From == id || l.To == id {
				drop = append(drop, l)
				delete(e.links, l)
			}
		}
	}
	for _, l := range slices.SortedFunc(maps.Keys(e.links), compareLinks) {
		if r.IntN(20) == 0 {
			drop = append(drop, l)
			delete(e.links, l)
		}
	}
	names = slices.Sorted(maps.Keys(e.resources))
	for range r.IntN(4) {
		l := schemas.Link{From: pick(names), To: pick(names), Kind: []string{schemas.LinkPowers, schemas.LinkNetwork}[r.IntN(2)]}
		if l.From != "" && !e.links[l] && !slices.Contains(drop, l) {
			add = append(add, l)
			e.links[l] = true
		}
	}
	return put, remove, add, drop
}

// said is all that a snapshot says of an estate.
func said(t *testing.T, s *Snapshot) map[string]any {
	t.Helper()
	ids := func(all []string) []string { slices.Sort(all); return all }
	top := s.Topology()
	top.Resources = slices.Clone(top.Resources)
	slices.SortFunc(top.Resources, func(a, b schemas.Resource) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(top.Links, compareLinks)
	out := map[string]any{"topology": top, "count": s.Len()}
	for _, r := range top.Resources {
		links := s.Links(r.ID)
		slices.SortFunc(links, compareLinks)
		out[r.ID] = []any{ids(s.Children(r.ID)), links, s.Server(r.ID), s.Rack(r.ID), s.Site(r.ID), s.Model(r.ID), s.Find(s.ID(r.ID)), s.Covers(r.Parent, r.ID)}
		if isDevice(r.Kind) {
			for n := range 30 {
				for _, name := range []string{fmt.Sprintf("gpu%d", n), fmt.Sprintf("GPU %d Temp", n), fmt.Sprintf("aliases%d", n), fmt.Sprintf("0000:%02x:00.0", n)} {
					part, _ := s.Part(r.ID, name)
					found, _ := s.Resolve(r.ID, "", name)
					of, _ := s.Resource(part)
					is, _ := s.Resource(found)
					out[r.ID+" "+name] = []any{part != "", found != "", of.Kind, is.Kind} // which of two of one name is not said
				}
			}
		}
	}
	for n := range 40 {
		for _, text := range []string{fmt.Sprint("serial", n), fmt.Sprint("uuid", n), fmt.Sprintf("%02x:00.0", n)} {
			out["find "+text] = ids(s.Find(text))
			_, out["identity "+text] = s.ByIdentity("", text)
		}
	}
	for _, order := range []string{"name", "-name", "kind", "-kind"} {
		var listed []string
		for after := ""; ; {
			page, next, err := s.Page(Filter{Sort: order}, after, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				listed = append(listed, r.ID)
			}
			if after = next; next == "" {
				break
			}
		}
		out["in order of "+order] = listed
	}
	hits, _ := s.Search("SER", "", 1000)
	var names []string
	for _, h := range hits {
		names = append(names, h.Name)
	}
	out["search"] = ids(names)
	return out
}

// A graph that was changed again and again says what one says that is made anew, and what it said
// before a change it says after it.
func TestAChangedGraphIsTheGraphOfWhatThereIs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2 {
		e := &estate{map[string]schemas.Resource{}, map[schemas.Link]bool{}}
		for range 40 {
			e.change(r)
		}
		g := newGraph(e.topology(), schemas.SpaceOf("dc1"))
		for step := range 25 {
			old := newSnapshot(g, nil, 0, 0)
			before := said(t, old)
			put, remove, add, drop := e.change(r)
			g = g.with(put, remove, add, drop)
			got, want := said(t, newSnapshot(g, nil, 0, 0)), said(t, newSnapshot(newGraph(e.topology(), schemas.SpaceOf("dc1")), nil, 0, 0))
			for k := range want {
				if fmt.Sprint(got[k]) != fmt.Sprint(want[k]) {
					t.Fatalf("step %d, %s:\n got %v\nwant %v\nput %v\nremove %v\nadd %v\ndrop %v", step, k, got[k], want[k], put, remove, add, drop)
				}
			}
			if len(got) != len(want) || fmt.Sprint(said(t, old)) != fmt.Sprint(before) {
				t.Fatalf("step %d: what was is otherwise now", step)
			}
		}
	}
}

// When much has changed there is a new table, of the same inventory.
func TestManyChangesMakeANewTable(t *testing.T) {
	g := newGraph(schemas.Topology{Resources: []schemas.Resource{{ID: "dc1", Kind: schemas.KindSite}}}, schemas.SpaceOf("dc1"))
	id := newSnapshot(g, nil, 0, 0).ID("server7")
	for n := range bearable + 10 {
		g = g.with([]schemas.Resource{{ID: fmt.Sprintf("server%d", n), Kind: schemas.KindServer, Parent: "dc1"}}, nil, nil, nil)
	}
	s := newSnapshot(g, nil, 0, 0)
	if len(g.resources) < bearable || len(g.since.names) > 100 || s.Len() != bearable+11 || s.Site("server9") != "dc1" || fmt.Sprint(s.Find(id)) != "[server7]" {
		t.Errorf("%d in the table and %d changed, %d in all; %s, %v", len(g.resources), len(g.since.names), s.Len(), s.Site("server9"), s.Find(id))
	}
}
