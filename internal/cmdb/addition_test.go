package cmdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

var place = regexp.MustCompile(`links\[\d+\]`)

// draft draws what a source brings: some of a small site, some of it wrong.
func draft(r *rand.Rand, share int) schemas.Topology {
	t := schemas.Topology{Version: 1}
	var all []string
	add := func(id, kind, parent string) {
		if r.IntN(100) >= share {
			return
		}
		m := map[string]string{}
		for _, k := range []string{schemas.AttrSerial, schemas.AttrModel, schemas.AttrRedfishURL} {
			if r.IntN(3) == 0 {
				m[k] = fmt.Sprintf("%s-%d", k, r.IntN(4))
			}
		}
		all = append(all, id)
		t.Resources = append(t.Resources, schemas.Resource{ID: id, Kind: kind, Parent: parent, Attrs: schemas.AttrsOf(m)})
	}
	add("dc1", schemas.KindSite, "")
	for k := range 3 {
		rack := fmt.Sprintf("rack%d", k)
		add(rack, schemas.KindRack, []string{"dc1", "dc1", "", "nowhere"}[r.IntN(4)])
		add(fmt.Sprintf("pdu%d", k), schemas.KindPDU, rack)
	}
	for k := range 6 {
		server := fmt.Sprintf("server%d", k)
		add(server, schemas.KindServer, fmt.Sprintf("rack%d", r.IntN(3)))
		for g := range 2 {
			add(fmt.Sprintf("%s/gpu%d", server, g), schemas.KindGPU, server)
			add(fmt.Sprintf("%s/nic%d", server, g), schemas.KindNIC, server)
		}
	}
	for range r.IntN(4) {
		if kind := []string{schemas.LinkPowers, schemas.LinkNetwork}[r.IntN(2)]; len(all) > 0 {
			to := all[r.IntN(len(all))]
			if r.IntN(4) == 0 {
				to = fmt.Sprintf("server%d", r.IntN(6)) // of another source, or of none
			}
			if l := (schemas.Link{From: all[r.IntN(len(all))], To: to, Kind: kind}); l.From != l.To && !slices.Contains(t.Links, l) {
				t.Links = append(t.Links, l)
			}
		}
	}
	return t
}

// stored is what is kept of an inventory.
func stored(t *testing.T, db *sqldb.DB) string {
	t.Helper()
	var b strings.Builder
	for _, query := range []string{
		`SELECT id || ' ' || kind || ' ' || parent || ' ' || attrs || ' said by ' || said FROM inventory_resources ORDER BY 1`,
		`SELECT from_id || ' ' || to_id || ' ' || kind || ' said by ' || said FROM inventory_links ORDER BY 1`,
		`SELECT resource || ' ' || source || ' ' || version || ' ' || kind || ' ' || parent || ' ' || attrs FROM inventory_words ORDER BY 1`,
		`SELECT number || ' ' || source || ' ' || version FROM inventory_sources ORDER BY 1`,
		`SELECT resource || ' ' || version || ' ' || change || ' ' || source || ' ' || parent || ' ' || attrs FROM inventory_resource_versions ORDER BY 1`,
		`SELECT version || ' ' || source || ' ' || resources || ' ' || links || ' ' || added || ' ' || changed || ' ' || removed FROM inventory_imports ORDER BY version`,
		`SELECT kind || ' ' || resource || ' ' || field || ' ' || sides || ' ' || status FROM conflicts ORDER BY 1`,
	} {
		rows, err := sqldb.Docs[string](t.Context(), db, `SELECT '"' || replace(x, '"', '''') || '"' FROM (`+strings.Replace(query, " FROM ", " AS x FROM ", 1)+`) q`)
		if err != nil {
			t.Fatal(query, err)
		}
		fmt.Fprintf(&b, "%s\n%s\n", query, strings.Join(rows, "\n"))
	}
	return b.String()
}

// An addition leaves what it leaves where all of the inventory is looked at, whatever else is there,
// and another process that reads what was touched has all of it.
func TestAnAdditionIsJudgedByWhatItTouches(t *testing.T) {
	for run := range uint64(2) {
		r := rand.New(rand.NewPCG(5, run))
		dbs := []*sqldb.DB{sqltest.Open(t), sqltest.Open(t)}
		var invs []*Inventory
		for k, db := range dbs {
			i := New(DefaultConfig(), db, nil, nil)
			i.wholly = k == 1
			if err := i.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			invs = append(invs, i)
		}
		other := New(DefaultConfig(), dbs[0], nil, nil)
		if err := other.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		for step := range 40 {
			o := ImportOptions{Source: []string{"file", "list"}[r.IntN(2)], Bounds: NoBounds(), Told: r.IntN(2) == 0}
			d := draft(r, 80)
			if r.IntN(5) > 0 {
				d = draft(r, 8)
				o.Source, o.Add = []string{SourceAPI, SourceAgent, "file"}[r.IntN(3)], true
				for range r.IntN(2) {
					o.Drop = append(o.Drop, fmt.Sprintf([]string{"server%d", "rack%d", "server%d/gpu0"}[r.IntN(3)], r.IntN(6)))
				}
			}
			var reports []string
			for _, i := range invs {
				report, err := i.Import(t.Context(), Draft{Topology: d}, o)
				report.Conflicts = 0
				slices.SortFunc(report.Changes, func(a, b Change) int { return strings.Compare(a.String(), b.String()) })
				if slices.Sort(report.Held); o.Add {
					report.Held = nil // of what it touches
				}
				reports = append(reports, place.ReplaceAllString(fmt.Sprint(report, err), "links"))
			}
			what := fmt.Sprintf("run %d, step %d: %+v\n%v\n%v", run, step, o, d.Resources, d.Links)
			if reports[0] != reports[1] {
				t.Fatalf("%s\n  touched %s\n    whole %s", what, reports[0], reports[1])
			}
			for _, i := range invs {
				i.wholly = true
				report, err := i.Import(t.Context(), Draft{Topology: schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "zz", Kind: "rack"}}}}, ImportOptions{Source: SourceDiscovery, Add: true, DryRun: true, Bounds: NoBounds()})
				i.wholly = i == invs[1]
				if err != nil || len(report.Changes) != 1 {
					t.Fatalf("step %d: %+v\n%v\n%v\n%v %+v\n%s", step, o, d.Resources, d.Links, err, report.Changes, stored(t, dbs[0]))
				}
			}
			small, whole := stored(t, dbs[0]), stored(t, dbs[1])
			if small != whole {
				a, b := strings.Split(small, "\n"), strings.Split(whole, "\n")
				for k := range min(len(a), len(b)) {
					if a[k] != b[k] {
						t.Fatalf("%s\n  touched %s\n    whole %s", what, a[k], b[k])
					}
				}
				t.Fatal(what)
			}
			if err := other.poll(t.Context()); err != nil {
				t.Fatal(err)
			}
			fresh := New(DefaultConfig(), dbs[0], nil, nil)
			if err := fresh.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			for r := range fresh.Snapshot().All() {
				if _, there := fresh.Snapshot().Resource(r.Parent); r.Parent != "" && !there {
					t.Fatalf("%s: %s is part of nothing\n%v", what, r, reports)
				}
			}
			want := said(t, fresh.Snapshot())
			for name, i := range map[string]*Inventory{"itself": invs[0], "where all is looked at": invs[1], "another process": other} {
				got := said(t, i.Snapshot())
				for _, k := range slices.Sorted(maps.Keys(want)) {
					if fmt.Sprint(got[k]) != fmt.Sprint(want[k]) {
						t.Fatalf("%s: %s, %s\n got %v\nwant %v", what, name, k, got[k], want[k])
					}
				}
			}
		}
	}
}

func opened(t *testing.T, db *sqldb.DB, cfg Config) *Inventory {
	t.Helper()
	i := New(cfg, db, nil, nil)
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return i
}

func brings(t *testing.T, i *Inventory, o ImportOptions, top schemas.Topology) Report {
	t.Helper()
	o.Bounds = NoBounds()
	r, err := i.Import(t.Context(), Draft{Topology: top}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An inventory that was kept before it was known who says what has the same sources afterwards.
func TestAnInventoryOfBeforeKeepsItsSources(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	file, list, more := draft(r, 90), draft(r, 60), draft(r, 20)
	var want string
	for _, before := range []bool{false, true} {
		db := sqltest.Open(t)
		i := opened(t, db, DefaultConfig())
		brings(t, i, ImportOptions{Source: "list"}, list)
		brings(t, i, ImportOptions{Source: "file"}, file)
		if before {
			for _, query := range []string{
				`DELETE FROM inventory_words`, `DELETE FROM inventory_sources`, `DELETE FROM inventory_changes`, `UPDATE inventory_resources SET said=''`,
				`UPDATE inventory_links SET said=''`,
			} {
				if _, err := db.ExecContext(t.Context(), query); err != nil {
					t.Fatal(err)
				}
			}
			i = opened(t, db, DefaultConfig())
		}
		brings(t, i, ImportOptions{Source: "list", Add: true}, more)
		brings(t, i, ImportOptions{Source: "file"}, schemas.Topology{Version: 1, Resources: file.Resources[:1]})
		got := stored(t, db)
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}

// What an addition left can be had again: from the last import that was none, or back from what is
// brought now; and where neither is stored, it is said.
func TestAnAdditionIsRestored(t *testing.T) {
	cfg := DefaultConfig()
	cfg.KeepVersions = 3
	db := sqltest.Open(t)
	i := opened(t, db, cfg)
	server := func(name, serial string) schemas.Topology {
		return schemas.Topology{Version: 1, Resources: []schemas.Resource{
			{ID: name, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrSerial: serial})},
		}}
	}
	api := ImportOptions{Source: SourceAPI, Add: true}
	at := func() string {
		var all []string
		for r := range i.Snapshot().All() {
			all = append(all, r.ID+"="+r.Attrs.Get(schemas.AttrSerial))
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	restored := func(version int64, source, want string) {
		t.Helper()
		if _, err := i.Restore(t.Context(), version, ImportOptions{Source: source, Bounds: NoBounds()}); err != nil || at() != want {
			t.Fatalf("%q %v; want %q", at(), err, want)
		}
	}
	brings(t, i, api, server("a", "S1"))
	b := brings(t, i, api, server("b", "S2")).Version
	brings(t, i, ImportOptions{Source: "file"}, server("f", "S9"))
	brings(t, i, api, server("a", "S3"))
	gone := api
	gone.Drop = []string{"b"}
	brings(t, i, gone, server("c", "S4"))
	if at() != "a=S3 c=S4 f=S9" {
		t.Fatal(at())
	}
	restored(b, "", "a=S1 b=S2 f=S9")
	restored(0, SourceAPI, "a=S3 c=S4 f=S9") // what there was before that
	d := brings(t, i, api, server("d", "S5")).Version
	brings(t, i, api, server("e", "S6"))
	restored(d, "", "a=S3 c=S4 d=S5 f=S9")
	if _, err := i.Restore(t.Context(), b, ImportOptions{Bounds: NoBounds()}); !errors.Is(err, ErrNoVersion) {
		t.Errorf("a version that is no longer stored: %v", err)
	}
}

// What cannot be used of an addition leaves what its source said before.
func TestABadAdditionLeavesWhatThereWas(t *testing.T) {
	db := sqltest.Open(t)
	i := opened(t, db, DefaultConfig())
	api := ImportOptions{Source: SourceAPI, Add: true}
	brings(t, i, api, schemas.Topology{Version: 1, Resources: []schemas.Resource{
		{ID: "rack", Kind: schemas.KindRack}, {ID: "s", Kind: schemas.KindServer, Parent: "rack"}, {ID: "s/gpu0", Kind: schemas.KindGPU, Parent: "s"},
	}})
	before := fmt.Sprint(i.Snapshot().Resources())
	for _, bad := range []schemas.Resource{
		{ID: "s", Kind: schemas.KindServer, Parent: "nowhere"},
		{ID: "s", Kind: "Server"},
		{ID: "rack", Kind: schemas.KindRack, Parent: "s"},
		{ID: "s", Kind: schemas.KindServer, Parent: "s"},
	} {
		r := brings(t, i, api, schemas.Topology{Version: 1, Resources: []schemas.Resource{bad}})
		if got := fmt.Sprint(i.Snapshot().Resources()); len(r.Problems) != 1 || r.Skipped != 1 || got != before {
			t.Errorf("%+v: %+v, and there is %s", bad, r, got)
		}
	}
}

// One server more, among many.
func BenchmarkAddition(b *testing.B) {
	for _, servers := range []int{100, 5000} {
		b.Run(strconv.Itoa(66*servers), func(b *testing.B) {
			db := sqltest.Open(b)
			i := New(DefaultConfig(), db, nil, nil)
			top := schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "dc1", Kind: schemas.KindSite}}}
			machine := func(k int) (out []schemas.Resource) {
				name := fmt.Sprintf("server-%05d", k)
				out = append(out, schemas.Resource{ID: name, Kind: schemas.KindServer, Parent: "dc1", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrSerial: "S" + name})})
				for p := range 65 {
					out = append(out, schemas.Resource{ID: fmt.Sprintf("%s/part%d", name, p), Kind: schemas.KindGPU, Parent: name})
				}
				return out
			}
			for k := range servers {
				top.Resources = append(top.Resources, machine(k)...)
			}
			if _, err := i.Import(b.Context(), Draft{Topology: top}, ImportOptions{Bounds: NoBounds()}); err != nil {
				b.Fatal(err)
			}
			k := servers
			for b.Loop() {
				k++
				more := schemas.Topology{Version: 1, Resources: machine(k)}
				if _, err := i.Import(b.Context(), Draft{Topology: more}, ImportOptions{Source: SourceAPI, Add: true, Bounds: NoBounds()}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// How much of the heap a resource takes, with all that finds it.
func BenchmarkHeapOfAResource(b *testing.B) {
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		var t schemas.Topology
		for k := range 6000 {
			name := fmt.Sprintf("server-%05d", k)
			t.Resources = append(t.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer})
			for p := range 65 {
				r := schemas.Resource{ID: fmt.Sprintf("%s/part%d", name, p), Kind: schemas.KindGPU, Parent: name}
				if p%3 == 0 {
					r.Attrs = schemas.AttrsOf(map[string]string{
						schemas.AttrSerial: fmt.Sprintf("S%05d-%03d", k, p), schemas.AttrModel: "NVIDIA H100 80GB HBM3", schemas.AttrPCI: fmt.Sprintf("0000:%02x:00.0", p),
					})
				}
				t.Resources = append(t.Resources, r)
				if p > 0 && p%3 == 0 {
					t.Links = append(t.Links, schemas.Link{From: r.ID, To: name, Kind: schemas.LinkNetwork})
				}
			}
		}
		s := newSnapshot(newGraph(t, schemas.SpaceOf("dc1")), nil, 0, 0)
		n := float64(len(t.Resources))
		t = schemas.Topology{}
		b.ReportMetric((heap()-before)/n, "B/resource")
		s.Find("nothing of this name")
		s.Search("nothing", "", 1)
		for r := range s.All() {
			s.Part(r.ID, "part1")
		}
		b.ReportMetric((heap()-before)/n, "B/resource-found")
		runtime.KeepAlive(s)
	}
}

// What another process says of workloads stands in no import's way: what it changes is noted under its
// own number, though the workloads are not read yet.
func TestAnImportIsNotedBesideTheWorkloadsOfAnother(t *testing.T) {
	db := sqltest.Open(t)
	i, other := opened(t, db, DefaultConfig()), opened(t, db, DefaultConfig())
	server := func(id string) schemas.Topology {
		return schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: id, Kind: schemas.KindServer}}}
	}
	brings(t, i, ImportOptions{Source: "list", Add: true}, server("a"))
	if err := other.PutWorkloads(t.Context(), schemas.Workload{ID: "job-1", Resources: []string{"a"}, Start: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"b", "c"} {
		brings(t, i, ImportOptions{Source: "list", Add: true}, server(id))
	}
}

func machine(id, parent, serial string) schemas.Resource {
	r := schemas.Resource{ID: id, Kind: schemas.KindServer, Parent: parent}
	if serial != "" {
		r.Attrs = schemas.AttrsOf(map[string]string{schemas.AttrSerial: serial})
	}
	return r
}

func of(resources ...schemas.Resource) schemas.Topology {
	return schemas.Topology{Version: 1, Resources: resources}
}

// keeper has some resources kept.
type keeper map[string]string

func (keeper) Kinds() []string                                                  { return nil }
func (keeper) Count(context.Context, sqldb.Queryer) (int, error)                { return 0, nil }
func (keeper) Follow(context.Context, *sql.Tx, Following) error                 { return nil }
func (k keeper) Keep(context.Context, sqldb.Queryer) (map[string]string, error) { return k, nil }

// What somebody has stays also where an addition beside it is the occasion to look at it.
func TestWhatIsKeptStaysBesideAnAddition(t *testing.T) {
	i := New(DefaultConfig(), sqltest.Open(t), nil, nil)
	i.Follow(keeper{"s": "somebody has it"})
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	brings(t, i, ImportOptions{}, of(machine("s", "", "S1"), machine("f", "", "")))
	brings(t, i, ImportOptions{}, of(machine("f", "", "")))
	brings(t, i, ImportOptions{Source: SourceAPI, Add: true}, of(machine("new", "", "S1")))
	if _, there := i.Snapshot().Resource("s"); !there {
		t.Error("it is gone")
	}
}

// What a source said comes back into force when the later word goes, with all that follows from it.
func TestAnEarlierWordComesBack(t *testing.T) {
	rack := func(id string) schemas.Resource { return schemas.Resource{ID: id, Kind: schemas.KindRack} }
	api, agent := ImportOptions{Source: SourceAPI, Add: true}, ImportOptions{Source: SourceAgent, Add: true}
	gone := agent
	gone.Drop = []string{"x"}
	t.Run("its serial number and its place", func(t *testing.T) {
		db := sqltest.Open(t)
		i := opened(t, db, DefaultConfig())
		brings(t, i, ImportOptions{}, of(rack("rack1"), rack("rack2"), machine("other", "rack1", "S1")))
		brings(t, i, agent, of(machine("x", "rack1", "S2")))
		// The earlier word is the agent's, the later one the list's.
		brings(t, i, ImportOptions{Source: "list"}, of(machine("x", "rack2", "S1")))
		brings(t, i, agent, of(machine("x", "rack1", "S2")))
		if r := brings(t, i, gone, of()); r.Conflicts != 1 || len(r.Held) > 0 {
			t.Errorf("two servers have S1, and no rack stays for the sake of others: %+v", r)
		}
		if r, _ := i.Snapshot().Resource("x"); r != machine("x", "rack2", "S1") {
			t.Errorf("%+v", r)
		}
		if !strings.Contains(stored(t, db), "rack2 rack  {} said by 1") {
			t.Errorf("nobody says rack2 any more: %s", stored(t, db))
		}
	})
	t.Run("its place is gone", func(t *testing.T) {
		i := opened(t, sqltest.Open(t), DefaultConfig())
		brings(t, i, ImportOptions{}, of(rack("rack1"), rack("rack2")))
		brings(t, i, api, of(machine("x", "rack2", "")))
		brings(t, i, ImportOptions{Source: "list"}, of(machine("x", "rack1", "")))
		brings(t, i, ImportOptions{}, of(rack("rack1")))
		if _, there := i.Snapshot().Resource("rack2"); there {
			t.Fatal("rack2 is there")
		}
		brings(t, i, ImportOptions{Source: "list"}, of(machine("y", "rack1", "")))
		if r, there := i.Snapshot().Resource("x"); !there || r.Parent != "" {
			t.Errorf("%+v", r)
		}
	})
}
