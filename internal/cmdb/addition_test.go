package cmdb

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	for run := range uint64(3) {
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
		for step := range 50 {
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
