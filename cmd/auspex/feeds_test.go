package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/cmdb"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// racked is an inventory of servers by the PDUs that their supplies hang on.
func racked(t *testing.T, servers map[string][]string, pdus ...string) (*cmdb.Inventory, *sqldb.DB) {
	t.Helper()
	top := schemas.Topology{Version: 1, Resources: []schemas.Resource{{ID: "r0", Kind: schemas.KindRack}}}
	for _, pdu := range pdus {
		top.Resources = append(top.Resources, schemas.Resource{ID: pdu, Kind: schemas.KindPDU, Parent: "r0", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrRating: "9000"})})
	}
	for s, on := range servers {
		top.Resources = append(top.Resources, schemas.Resource{ID: s, Kind: schemas.KindServer, Parent: "r0"})
		for i, pdu := range on {
			psu := s + "/psu" + string(rune('0'+i))
			top.Resources = append(top.Resources, schemas.Resource{ID: psu, Kind: schemas.KindPSU, Parent: s})
			top.Links = append(top.Links, schemas.Link{From: pdu, To: psu, Kind: schemas.LinkPowers})
		}
	}
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(estate.New(db))
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	return inv, db
}

// TestWhatIsLeftWhereAFeedIsLost: each unit that shares a server with the lost one, with all that hangs on it, and the part of
// what each draws that comes from there by the supplies that still have input.
func TestWhatIsLeftWhereAFeedIsLost(t *testing.T) {
	inv, _ := racked(t, map[string][]string{
		"both":  {"pa", "pb"},
		"alone": {"pa"},
		"twice": {"pa", "pb", "pb"},
		"three": {"pa", "pb", "pc"},
		"other": {"pb", "pc"}, // loses nothing
		"far":   {"pd", "pe"},
	}, "pa", "pb", "pc", "pd", "pe", "empty")
	of := feeds(inv)
	for pdu, want := range map[string]map[string]map[string]float64{
		"pa":    {"pb": {"both": 1, "twice": 1, "three": .5, "other": .5}, "pc": {"three": .5, "other": .5}},
		"pd":    {"pe": {"far": 1}},
		"empty": {},
	} {
		f, ok := of(pdu)
		got := map[string]map[string]float64{}
		for _, u := range f.Units {
			got[u.PDU.ID] = u.Servers
			if u.PDU.Attrs.Get(schemas.AttrRating) != "9000" {
				t.Errorf("%s: nothing is said of what %s bears", pdu, u.PDU.ID)
			}
		}
		if d := cmp.Diff(want, got); !ok || d != "" {
			t.Errorf("%s is lost (%t): %s", pdu, ok, d)
		}
	}
	for _, none := range []string{"both", "r0", "nobody"} {
		if _, ok := of(none); ok {
			t.Errorf("%s is a feed", none)
		}
	}
}
