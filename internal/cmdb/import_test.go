package cmdb_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

func opened(t testing.TB) *cmdb.Inventory {
	t.Helper()
	i := cmdb.New(cmdb.DefaultConfig(), sqltest.Open(t), nil, nil)
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i
}

func bounded(source string) cmdb.ImportOptions {
	return cmdb.ImportOptions{Source: source, Bounds: cmdb.DefaultBounds()}
}

func unbounded(source string) cmdb.ImportOptions {
	return cmdb.ImportOptions{Source: source, Bounds: cmdb.NoBounds()}
}

func bring(t testing.TB, i *cmdb.Inventory, o cmdb.ImportOptions, top schemas.Topology) cmdb.Report {
	t.Helper()
	r, err := i.Import(t.Context(), cmdb.Draft{Topology: top}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refused(t testing.TB, err error) *cmdb.RefusedError {
	t.Helper()
	var r *cmdb.RefusedError
	if !errors.As(err, &r) {
		t.Fatalf("not refused: %v", err)
	}
	return r
}

func ids(s *cmdb.Snapshot) []string {
	var out []string
	for _, r := range s.Resources() {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// racks is a site of n servers with a GPU and a link each.
func racks(n int) schemas.Topology {
	t := schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc1", Kind: "site"}, {ID: "pdu", Kind: "pdu", Parent: "dc1"}}}
	for i := range n {
		s := fmt.Sprintf("s%03d", i)
		t.Resources = append(
			t.Resources, schemas.Resource{ID: s, Kind: "server", Parent: "dc1"}, schemas.Resource{ID: s + "/gpu0", Kind: "gpu", Parent: s},
		)
		t.Links = append(t.Links, schemas.Link{From: "pdu", To: s, Kind: "powers"})
	}
	return t
}

func TestAnImportThatTakesTooMuchIsRefused(t *testing.T) {
	i := opened(t)
	bring(t, i, bounded(""), racks(50))
	version := i.Snapshot().Version

	half, err := i.Import(t.Context(), cmdb.Draft{Topology: racks(25)}, bounded(""))
	r := refused(t, err)
	if want := "50 of its 102 resources would be removed (49.0 %; at most 10 % may be)"; !slices.Contains(r.Reasons, want) ||
		len(r.Reasons) != 2 {
		t.Errorf("reasons %q, want %q and one of links", r.Reasons, want)
	}
	if half.Removed != 50 || half.Version != 0 {
		t.Errorf("report of the refused import: %+v", half)
	}
	bare := racks(50)
	bare.Links = nil
	if _, err := i.Import(t.Context(), cmdb.Draft{Topology: bare}, bounded("")); !strings.Contains(
		refused(t, err).Error(), "50 of its 50 links would be removed (all",
	) {
		t.Error(err)
	}
	misspelt := racks(50)
	for n := range misspelt.Resources {
		if misspelt.Resources[n].Kind == "gpu" {
			misspelt.Resources[n].Kind = "GPU"
		}
	}
	if _, err := i.Import(t.Context(), cmdb.Draft{Topology: misspelt}, bounded("")); !strings.Contains(
		refused(t, err).Error(), "50 of 102 resources cannot be used",
	) {
		t.Error(err)
	}
	if i.Snapshot().Version != version || len(i.Snapshot().Resources()) != 102 {
		t.Error("a refused import has changed something")
	}
	if r := bring(t, i, bounded(""), racks(48)); r.Removed != 4 {
		t.Errorf("a small loss: %+v", r)
	}
	if r := bring(t, i, unbounded(""), racks(3)); r.Removed != 90 {
		t.Errorf("a great loss on demand: %+v", r)
	}
	empty := opened(t)
	if _, err := empty.Import(t.Context(), cmdb.Draft{Topology: misspelt}, bounded("")); !strings.Contains(
		refused(t, err).Error(), "cannot be used",
	) {
		t.Error("the first import is refused for its bad records too:", err)
	}
}

// Losses that are small each add up: they empty the inventory as surely as a great one.
func TestSmallLossesAddUp(t *testing.T) {
	bring9 := func(i *cmdb.Inventory, o cmdb.ImportOptions, spoil func(n int, t *schemas.Topology)) (imports int, err error) {
		for n := range 40 {
			top := racks(50)
			for k := range top.Resources {
				top.Resources[k].Attrs = schemas.AttrsOf(map[string]string{"redfish_url": "https://" + top.Resources[k].ID})
			}
			spoil(n, &top)
			if _, err = i.Import(t.Context(), cmdb.Draft{Topology: top}, o); err != nil {
				return n, err
			}
		}
		return 40, nil
	}
	server := func(id string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSuffix(id, "/gpu0"), "s"))
		if err != nil {
			return 1000
		}
		return n
	}
	everyTime := map[string]func(n int, t *schemas.Topology){
		"resources": func(n int, t *schemas.Topology) {
			t.Resources = slices.DeleteFunc(t.Resources, func(r schemas.Resource) bool { return server(r.ID) < 4*n })
			t.Links = slices.DeleteFunc(t.Links, func(l schemas.Link) bool { return server(l.To) < 4*n })
		},
		"resources, while new ones come": func(n int, t *schemas.Topology) {
			t.Resources = slices.DeleteFunc(t.Resources, func(r schemas.Resource) bool { return server(r.ID) < 4*n })
			t.Links = slices.DeleteFunc(t.Links, func(l schemas.Link) bool { return server(l.To) < 4*n })
			t.Resources = append(t.Resources, schemas.Resource{ID: fmt.Sprint("new", n), Kind: "server", Parent: "dc1"})
		},
		"links": func(n int, t *schemas.Topology) {
			t.Links = slices.DeleteFunc(t.Links, func(l schemas.Link) bool { return server(l.To) < 4*n })
		},
		"kinds": func(n int, t *schemas.Topology) {
			for k := range t.Resources {
				if server(t.Resources[k].ID) < 4*n {
					t.Resources[k].Kind = "machine"
				}
			}
		},
		"attributes": func(n int, t *schemas.Topology) {
			for k := range t.Resources {
				if server(t.Resources[k].ID) < 4*n {
					t.Resources[k].Attrs = t.Resources[k].Attrs.With("redfish_url", "")
				}
			}
		},
	}
	for what, spoil := range everyTime {
		t.Run(what, func(t *testing.T) {
			i := opened(t)
			n, err := bring9(i, bounded(""), spoil)
			if r := refused(t, err); n != 2 || !strings.Contains(r.Error(), "by imports of the last 168h") {
				t.Errorf("refused after %d: %v", n, err)
			}
			told := bounded("")
			told.Bounds.MaxRemoved, told.Told = .2, true
			top := racks(50)
			for k := range top.Resources {
				top.Resources[k].Attrs = schemas.AttrsOf(map[string]string{"redfish_url": "https://" + top.Resources[k].ID})
			}
			spoil(2, &top)
			bring(t, i, told, top)
			spoil(3, &top) // what a person has agreed to does not count
			bring(t, i, bounded(""), top)
			alone := bounded("")
			alone.Bounds.RemovedWithin = 0
			if n, _ := bring9(opened(t), alone, spoil); n < 3 {
				t.Errorf("each by itself is refused after %d", n)
			}
		})
	}
	t.Run("what comes back is no loss", func(t *testing.T) {
		i := opened(t)
		if n, err := bring9(i, bounded(""), func(n int, t *schemas.Topology) {
			if n%2 == 1 {
				everyTime["resources"](1, t)
			} else {
				everyTime["attributes"](1, t)
			}
		}); err != nil {
			t.Errorf("import %d: %v", n, err)
		}
	})
	t.Run("in memory", func(t *testing.T) {
		if n, err := bring9(cmdb.New(cmdb.DefaultConfig(), nil, nil, nil), bounded(""), everyTime["resources"]); n != 2 || err == nil {
			t.Errorf("refused after %d: %v", n, err)
		}
	})
}

func TestWhoChangesTheInventoryIsAudited(t *testing.T) {
	db := sqltest.Open(t)
	i := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := bounded("netbox")
	o.Actor, o.Origin = "shell:ops", "netbox.json"
	bring(t, i, o, racks(20))
	bring(t, i, o, racks(20)) // the same again changes nothing
	dry := o
	dry.DryRun = true
	bring(t, i, dry, racks(19))
	if _, err := i.Import(t.Context(), cmdb.Draft{Topology: racks(1)}, o); err == nil {
		t.Fatal("not refused")
	}
	bring(t, i, o, racks(19))
	if _, err := i.Restore(t.Context(), 1, cmdb.ImportOptions{Bounds: cmdb.NoBounds(), Told: true, Actor: "shell:ops"}); err != nil {
		t.Fatal(err)
	}
	bring(t, i, bounded(""), schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc2", Kind: "site"}}})
	rows, err := audit.New(db, time.Now).List(t.Context(), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, strings.Join([]string{r.Actor, r.Verb, r.Subject, r.Kind, r.Detail}, " | "))
	}
	if d := cmp.Diff([]string{
		"auspex | import | file | inventory | version 4 from memory: 1 added, 0 changed, 0 removed",
		"shell:ops | import | netbox | inventory | version 3 from version 1: 2 added, 0 changed, 0 removed",
		"shell:ops | import | netbox | inventory | version 2 from netbox.json: 0 added, 0 changed, 2 removed",
		"shell:ops | import | netbox | inventory | version 1 from netbox.json: 42 added, 0 changed, 0 removed",
	}, got); d != "" {
		t.Error(d)
	}
	if _, err := audit.Verify(t.Context(), db); err != nil {
		t.Error(err)
	}
}

// A file may keep every resource and say nothing of them any more.
func TestAnImportThatEmptiesWhatItKeepsIsRefused(t *testing.T) {
	full := racks(50)
	for n := range full.Resources {
		full.Resources[n].Attrs = schemas.AttrsOf(map[string]string{"redfish_url": fmt.Sprint("https://", n), "model": "X", "note": ""})
	}
	for name, tc := range map[string]struct {
		spoil func(n int, r *schemas.Resource)
		want  string // "" passes
	}{
		"kinds":              {func(_ int, r *schemas.Resource) { r.Kind = "machine" }, "102 of 102 kinds of what it brought would be lost"},
		"all attributes":     {func(_ int, r *schemas.Resource) { r.Attrs = schemas.Attrs{} }, "204 of 204 attributes of what it brought would be lost"},
		"addresses, to \"\"": {func(_ int, r *schemas.Resource) { r.Attrs = r.Attrs.With("redfish_url", "") }, "102 of 204 attributes"},
		"those of a few":     {func(n int, r *schemas.Resource) { dropIf(n < 5, r) }, ""},
		"other values": {func(_ int, r *schemas.Resource) {
			r.Attrs = r.Attrs.With("redfish_url", r.Attrs.Get("redfish_url")+"/")
		}, ""},
		"what was empty":       {func(_ int, r *schemas.Resource) { r.Attrs = r.Attrs.Without("note") }, ""},
		"more than there were": {func(_ int, r *schemas.Resource) { r.Attrs = r.Attrs.With("owner", "ops") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			i := opened(t)
			bring(t, i, bounded(""), full)
			next := racks(50)
			for n := range next.Resources {
				next.Resources[n].Attrs = full.Resources[n].Attrs
				tc.spoil(n, &next.Resources[n])
			}
			_, err := i.Import(t.Context(), cmdb.Draft{Topology: next}, bounded(""))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && !strings.Contains(refused(t, err).Error(), tc.want):
				t.Error(err)
			}
		})
	}
}

func dropIf(drop bool, r *schemas.Resource) {
	if drop {
		r.Attrs = schemas.Attrs{}
	}
}

func TestADryRunNamesTheDifferenceAndWritesNothing(t *testing.T) {
	i := opened(t)
	bring(t, i, bounded(""), fleet())
	version := i.Snapshot().Version
	next := fleet()
	next.Resources = append(next.Resources, schemas.Resource{ID: "s3", Kind: "server", Parent: "r01"})
	next.Resources[4].Attrs = schemas.AttrsOf(map[string]string{"serial": "S124"})
	next.Links[0].From = "crac-1"
	next.Resources = slices.DeleteFunc(next.Resources, func(r schemas.Resource) bool { return r.ID == "s1/fan3" })
	o := unbounded("")
	o.DryRun = true
	r := bring(t, i, o, next)
	var got []string
	for _, c := range r.Changes {
		got = append(got, c.String())
	}
	want := []string{
		`changed  server s1: model "DGX H100" → "", serial "S123" → "S124"`,
		"added    server s3",
		"removed  fan s1/fan3",
		"added    link powers from crac-1 to s1/psu0",
		"removed  link powers from pdu-a to s1/psu0",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if i.Snapshot().Version != version {
		t.Error("a dry run has changed the inventory")
	}
	if vs, err := i.Versions(t.Context()); err != nil || len(vs) != 1 {
		t.Error(vs, err)
	}
}

func TestVersionsAreBoundedAndCanBeRestored(t *testing.T) {
	cfg := cmdb.DefaultConfig()
	cfg.KeepVersions = 3
	db := sqltest.Open(t)
	i := cmdb.New(cfg, db, nil, nil)
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	bring(t, i, bounded("other"), schemas.Topology{Resources: []schemas.Resource{{ID: "crac-9", Kind: "crac"}}})
	for n := range 5 {
		bring(t, i, unbounded(""), racks(10+n))
	}
	vs, err := i.Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range vs {
		got = append(got, fmt.Sprint(v.Version, v.Source, v.Resources, v.Links, v.Added, v.Current))
	}
	if d := cmp.Diff([]string{
		"6 file 30 14 2 true", "5 file 28 13 2 false", "4 file 26 12 2 false", "1 other 1 0 1 true",
	}, trim(got)); d != "" {
		t.Error(d)
	}
	if r, err := i.Restore(t.Context(), 0, unbounded("")); err != nil || r.Removed != 2 || r.Version != 7 {
		t.Fatalf("%+v %v", r, err)
	}
	if r, err := i.Restore(t.Context(), 6, unbounded("")); err != nil || r.Added != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	for _, v := range []int64{2, 99} {
		if _, err := i.Restore(t.Context(), v, unbounded("")); !errors.Is(err, cmdb.ErrNoVersion) {
			t.Errorf("version %d: %v", v, err)
		}
	}
	if _, err := i.Restore(t.Context(), 0, unbounded("other")); !errors.Is(err, cmdb.ErrNoVersion) {
		t.Error(err)
	}
	again := cmdb.New(cfg, db, nil, nil)
	if err := again.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(ids(i.Snapshot()), ids(again.Snapshot())); d != "" || !slices.Contains(ids(again.Snapshot()), "crac-9") {
		t.Error(d)
	}
}

func trim(lines []string) []string { // fmt.Sprint leaves no space beside text
	for i := range lines {
		lines[i] = strings.NewReplacer("file", " file ", "other", " other ").Replace(lines[i])
	}
	return lines
}

func TestWhatWasThereBeforeSourcesCanBeRestored(t *testing.T) {
	db := sqltest.Open(t)
	for _, q := range []string{
		`INSERT INTO inventory_resources (id, kind, parent, attrs) VALUES ('dc1', 'site', '', 'null')`,
		`INSERT INTO inventory_resources (id, kind, parent, attrs) VALUES ('s1', 'server', 'dc1', '{"serial":"X"}')`,
		`UPDATE inventory_version SET resources=1 WHERE id=1`,
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	i := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := schemas.Topology{Resources: []schemas.Resource{{ID: "dc1", Kind: "site"}}}
	_, err := i.Import(t.Context(), cmdb.Draft{Topology: one}, bounded(""))
	refused(t, err)
	bring(t, i, unbounded(""), one)
	if r, err := i.Restore(t.Context(), 0, unbounded("")); err != nil || r.Added != 1 || i.Snapshot().Model("s1") != "" ||
		len(i.Snapshot().Resources()) != 2 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestSourcesAddUp(t *testing.T) {
	i := opened(t)
	bring(t, i, bounded("dcim"), racks(2))
	parts := schemas.Topology{
		Resources: []schemas.Resource{
			{ID: "s000", Kind: "server", Attrs: schemas.AttrsOf(map[string]string{"redfish_url": "https://b", "serial": "S1"})},
			{ID: "s001/fan1", Kind: "fan", Parent: "s001"},
		},
		Links: []schemas.Link{{From: "pdu", To: "s001/fan1", Kind: "powers"}},
	}
	if r := bring(t, i, bounded("discovery"), parts); r.Added != 1 || r.Changed != 1 || len(r.Problems) > 0 {
		t.Errorf("%+v", r)
	}
	next := racks(1)
	next.Resources[2].Attrs = schemas.AttrsOf(map[string]string{"serial": "S2"})
	r := bring(t, i, unbounded("dcim"), next)
	if d := cmp.Diff([]string{"s001"}, r.Held); d != "" || r.Removed != 1 {
		t.Errorf("what another source hangs on must stay: %s%+v", d, r)
	}
	s, _ := i.Snapshot().Resource("s000")
	if d := cmp.Diff(schemas.Resource{
		ID: "s000", Kind: "server", Parent: "dc1", Attrs: schemas.AttrsOf(map[string]string{"redfish_url": "https://b", "serial": "S2"}),
	}, s); d != "" {
		t.Error(d)
	}
	if r := bring(t, i, bounded("discovery"), parts); len(r.Problems) > 0 || r.Removed > 0 || r.Version != 0 {
		t.Errorf("what is held can be hung on: %+v", r)
	}
	r = bring(t, i, unbounded("discovery"), schemas.Topology{})
	if d := cmp.Diff([]string{"dc1", "pdu", "s000", "s000/gpu0"}, ids(i.Snapshot())); d != "" || r.Removed != 2 {
		t.Errorf("%s%+v", d, r)
	}
	if s, _ := i.Snapshot().Resource("s000"); s.Attrs.Get("redfish_url") != "" {
		t.Error("an attribute stays that no source brings")
	}
	round := schemas.Topology{Resources: []schemas.Resource{{ID: "dc1", Kind: "site", Parent: "s000"}}}
	if _, err := i.Import(t.Context(), cmdb.Draft{Topology: round}, bounded("discovery")); !errors.Is(err, cmdb.ErrProblems) {
		t.Errorf("two sources that make a circle: %v", err)
	}
}

// TestImportsOfAnySourcesKeepTheirPromises draws imports of several sources, cut at
// random, and holds the inventory against a model.
// What is added to a source leaves alone what another source has said since of the rest.
func TestAnAdditionDoesNotBringBackWhatWasOverruled(t *testing.T) {
	inv := opened(t)
	server := func(id, rack, serial string) schemas.Resource {
		return schemas.Resource{ID: id, Kind: schemas.KindServer, Parent: rack, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrSerial: serial, schemas.AttrModel: "M"})}
	}
	file := func(rack, serial string) {
		t.Helper()
		racks := []schemas.Resource{{ID: "r1", Kind: schemas.KindRack}, {ID: "r2", Kind: schemas.KindRack}}
		if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: schemas.Topology{
			Version: 1, Resources: append(racks, server("s1", rack, serial), server("s2", "r1", "B")),
		}}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
			t.Fatal(err)
		}
	}
	adds := func(r schemas.Resource) {
		t.Helper()
		if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: schemas.Topology{Version: 1, Resources: []schemas.Resource{r}}},
			cmdb.ImportOptions{Source: "agent", Add: true, Bounds: cmdb.NoBounds()}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(want schemas.Resource) {
		t.Helper()
		got, _ := inv.Snapshot().Resource(want.ID)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	file("r1", "A")
	adds(server("s1", "r1", "A1"))
	says(server("s1", "r1", "A1"))
	file("r2", "A2") // it was moved, and its board exchanged
	says(server("s1", "r2", "A2"))
	adds(server("s2", "", "B1"))
	says(server("s1", "r2", "A2"))
	says(server("s2", "r1", "B1"))
	adds(server("s1", "", "A3")) // what is added is the latest word
	says(server("s1", "r2", "A3"))
}

func TestImportsOfAnySourcesKeepTheirPromises(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			i := opened(t)
			whole := racks(12)
			claims := map[string]schemas.Topology{}
			for range 30 {
				source := fmt.Sprint("source-", rng.IntN(3))
				cut := whole
				cut.Resources = sample(rng, whole.Resources)
				cut.Links = sample(rng, whole.Links)
				o := bounded(source)
				if rng.IntN(3) == 0 {
					o = unbounded(source)
				}
				before, had := ids(i.Snapshot()), claims[source]
				r, err := i.Import(t.Context(), cmdb.Draft{Topology: cut}, o)
				after := ids(i.Snapshot())
				var no *cmdb.RefusedError
				if errors.As(err, &no) {
					if !slices.Equal(before, after) {
						t.Fatal("a refused import has changed something")
					}
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				gone := slices.DeleteFunc(slices.Clone(before), func(id string) bool { return slices.Contains(after, id) })
				if len(gone) != r.Removed {
					t.Fatalf("%d are gone, %d are reported", len(gone), r.Removed)
				}
				others := map[string]bool{}
				for name, c := range claims {
					for _, res := range c.Resources {
						others[res.ID] = others[res.ID] || name != source
					}
				}
				fromIt := 0
				for _, id := range gone {
					if others[id] {
						t.Fatalf("%s took %s away, which another source brings", source, id)
					}
					if slices.ContainsFunc(had.Resources, func(r schemas.Resource) bool { return r.ID == id }) {
						fromIt++
					}
				}
				if o.Bounds == cmdb.DefaultBounds() && float64(fromIt) > .1*float64(len(had.Resources)) {
					t.Fatalf("%d of %d went without being asked for", fromIt, len(had.Resources))
				}
				if _, problems := cmdb.Validate(i.Snapshot().Topology()); len(problems) > 0 {
					t.Fatal(problems)
				}
				kept := cut
				kept.Resources = slices.DeleteFunc(slices.Clone(cut.Resources), func(r schemas.Resource) bool { return !slices.Contains(after, r.ID) })
				claims[source] = kept
			}
			memory := i.Snapshot().Topology()
			if err := i.Open(t.Context()); err != nil { // reads what is stored
				t.Fatal(err)
			}
			if d := cmp.Diff(memory, i.Snapshot().Topology(), sorted, cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
		})
	}
}

// sample is a random part of a list: all, most or some of it.
func sample[T any](rng *rand.Rand, all []T) []T {
	p := []float64{1, .95, .5, .1}[rng.IntN(4)]
	return slices.DeleteFunc(slices.Clone(all), func(T) bool { return rng.Float64() > p })
}

func TestProcessesThatImportAtOnceLoseNothing(t *testing.T) {
	db := sqltest.Open(t)
	var wg sync.WaitGroup
	want := map[string]bool{}
	for n := range 6 {
		want[fmt.Sprint("crac-", n)] = true
		wg.Go(func() {
			i := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
			top := schemas.Topology{Resources: []schemas.Resource{{ID: fmt.Sprint("crac-", n), Kind: "crac"}}}
			for {
				_, err := i.Import(context.WithoutCancel(t.Context()), cmdb.Draft{Topology: top}, bounded(fmt.Sprint("source-", n)))
				if err == nil {
					return
				}
				if !strings.Contains(err.Error(), "another process is changing") {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	i := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(want)), ids(i.Snapshot())); d != "" {
		t.Error(d)
	}
}
