package cmdb_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/schemas"
)

func searchable(t testing.TB) *cmdb.Snapshot {
	t.Helper()
	i, problems := cmdb.FromTopology(schemas.Topology{Resources: []schemas.Resource{
		{ID: "dc1", Kind: "site"},
		{ID: "gpu-r1-1", Kind: "server", Parent: "dc1", Attrs: schemas.AttrsOf(map[string]string{"serial": "SN-77", "mac": "0C:42:A1:00:00:01"})},
		{ID: "gpu-r1-1/gpu0", Kind: "gpu", Parent: "gpu-r1-1", Attrs: schemas.AttrsOf(map[string]string{"pci": "0000:1b:00.0", "uuid": "GPU-77aa", "serial": "77"})},
		{ID: "gpu-r1-10", Kind: "server", Parent: "dc1"},
	}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return i.Snapshot()
}

func TestSearchPutsTheBestFirst(t *testing.T) {
	s := searchable(t)
	for _, c := range []struct {
		text, kind string
		want       []cmdb.Hit
	}{
		{"GPU-R1-1", "", []cmdb.Hit{
			{Name: "gpu-r1-1", Match: "exact", In: "name"},
			{Name: "gpu-r1-10", Match: "prefix", In: "name"},
			{Name: "gpu-r1-1/gpu0", Match: "prefix", In: "name"},
		}},
		{"gpu-r1-1", "gpu", []cmdb.Hit{{Name: "gpu-r1-1/gpu0", Match: "prefix", In: "name"}}},
		{"77", "", []cmdb.Hit{
			{Name: "gpu-r1-1/gpu0", Match: "exact", In: "serial"}, {Name: "gpu-r1-1", Match: "substring", In: "serial"},
		}},
		{"0c-42-a1-00-00-01", "", []cmdb.Hit{{Name: "gpu-r1-1", Match: "exact", In: "id"}}},
		{s.ID("gpu-r1-10"), "", []cmdb.Hit{{Name: "gpu-r1-10", Match: "exact", In: "id"}}},
		{"dc1", "", []cmdb.Hit{{Name: "dc1", Match: "exact", In: "name"}}},
		{"no such thing", "", nil},
		{"a\nb", "", nil},
		{" ", "", nil},
	} {
		got, more := s.Search(c.text, c.kind, 10)
		if d := cmp.Diff(c.want, got); d != "" || more {
			t.Errorf("%q: more %v, -want +got:\n%s", c.text, more, d)
		}
	}
	if got, more := s.Search("gpu", "", 2); len(got) != 2 || !more {
		t.Errorf("%v, more %v", got, more)
	}
	if got, more := s.Search("gpu", "", 3); len(got) != 3 || more {
		t.Errorf("%v, more %v", got, more)
	}
}

// BenchmarkSearch looks through 400,000 resources; "first" is what the first search of an inventory costs.
func BenchmarkSearch(b *testing.B) {
	t := schemas.Topology{Resources: []schemas.Resource{{ID: "dc1", Kind: "site"}}}
	for k := range 10_000 {
		server := fmt.Sprintf("gpu-r%04d-%02d", k/8, k%8)
		t.Resources = append(t.Resources, schemas.Resource{ID: server, Kind: "server", Parent: "dc1", Attrs: schemas.AttrsOf(map[string]string{"serial": fmt.Sprintf("S%07d", k)})})
		for p := range 39 {
			t.Resources = append(t.Resources, schemas.Resource{
				ID: fmt.Sprintf("%s/part%d", server, p), Kind: "gpu", Parent: server, Attrs: schemas.AttrsOf(map[string]string{
					"serial": fmt.Sprintf("P%07d%02d", k, p), "pci": fmt.Sprintf("0000:%02x:00.0", p), // as in every other server
				}),
			})
		}
	}
	i, problems := cmdb.FromTopology(t)
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	s := i.Snapshot()
	s.Search("x", "", 1)
	b.Run("first", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			i, _ := cmdb.FromTopology(t)
			s := i.Snapshot()
			b.StartTimer()
			s.Search("x", "", 1)
		}
	})
	for name, text := range map[string]string{"exact": "s0009999", "prefix": "gpu-r1249-0", "substring": "r0777-03/part3", "none": "gpu-zz", "all": "a"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Search(text, "", 20)
			}
		})
	}
}
