package cabling

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/internal/cmdb"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

const (
	macA = "02:00:00:00:00:0a"
	macB = "02:00:00:00:00:0b"
)

// hall is two servers at a leaf, which is at a spine. Of a third server the inventory knows no cable.
func hall() schemas.Topology {
	res := func(id, kind, parent string, attrs ...string) schemas.Resource {
		r := schemas.Resource{ID: id, Kind: kind, Parent: parent}
		for i := 0; i < len(attrs); i += 2 {
			r.Attrs = r.Attrs.With(attrs[i], attrs[i+1])
		}
		return r
	}
	link := func(from, to string) schemas.Link { return schemas.Link{From: from, To: to, Kind: schemas.LinkNetwork} }
	return schemas.Topology{
		Version: 1,
		Resources: []schemas.Resource{
			res("leaf", schemas.KindSwitch, "", schemas.AttrGNMIAddress, "leaf:9339"), res("spine", schemas.KindSwitch, "", schemas.AttrGNMIAddress, "spine:9339"),
			res("leaf/Ethernet1", schemas.KindPort, "leaf", schemas.AttrAliases, "Eth1"), res("leaf/Ethernet2", schemas.KindPort, "leaf"),
			res("leaf/Ethernet3", schemas.KindPort, "leaf"), res("leaf/Ethernet9", schemas.KindPort, "leaf"), res("leaf/Ethernet10", schemas.KindPort, "leaf"),
			res("spine/Ethernet1", schemas.KindPort, "spine"), res("spine/Ethernet2", schemas.KindPort, "spine"),
			res("a", schemas.KindServer, ""), res("b", schemas.KindServer, ""), res("c", schemas.KindServer, ""),
			res("a/nic0", schemas.KindNIC, "a", schemas.AttrMAC, macA), res("b/nic0", schemas.KindNIC, "b", schemas.AttrMAC, macB, schemas.AttrAliases, "ens3"),
			res("a/nic1", schemas.KindNIC, "a"), res("c/nic0", schemas.KindNIC, "c"),
		},
		Links: []schemas.Link{link("leaf/Ethernet1", "a/nic0"), link("leaf/Ethernet2", "b/nic0"), link("leaf/Ethernet9", "spine/Ethernet1")},
	}
}

type desk struct {
	*Runner
	db  *sqldb.DB
	inv *cmdb.Inventory
}

func open(t *testing.T) *desk {
	t.Helper()
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := &desk{db: db, inv: inv}
	d.put(t, hall())
	d.Runner = New(db, inv, slog.New(slog.DiscardHandler), nil)
	return d
}

func (d *desk) put(t *testing.T, topology schemas.Topology) {
	t.Helper()
	if _, err := d.inv.Import(t.Context(), cmdb.Draft{Topology: topology}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) see(t *testing.T, device string, seen ...schemas.Neighbor) {
	t.Helper()
	if err := d.Seen(t.Context(), device, seen); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) list(t *testing.T, status string) []schemas.Conflict {
	t.Helper()
	found, _, err := conflicts.New(d.db).List(t.Context(), conflicts.Filter{Status: status, Kind: schemas.ConflictCable, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWhatPortsSeeIsHeldAgainstTheInventory(t *testing.T) {
	d := open(t)
	snap := d.inv.Snapshot()
	n := func(system, chassis, port, text string) schemas.Neighbor {
		return schemas.Neighbor{Port: "Ethernet1", System: system, Chassis: chassis, PortID: port, PortDescription: text}
	}
	for name, c := range map[string]struct {
		device, port string
		seen         []schemas.Neighbor
		verdict      string
		left, right  string
	}{
		"by name":                              {"leaf", "Ethernet1", []schemas.Neighbor{n("a", "", "nic0", "")}, agrees, "", ""},
		"with a domain, in capitals":           {"leaf", "Ethernet1", []schemas.Neighbor{n("A.example.net", "", "nic0", "")}, agrees, "", ""},
		"own port by an alias":                 {"leaf", "eth1", []schemas.Neighbor{n("a", "", "nic0", "")}, agrees, "", ""},
		"by the MAC of its port":               {"leaf", "Ethernet1", []schemas.Neighbor{n("somebody", "", "02-00-00-00-00-0A", "")}, agrees, "", ""},
		"by the MAC of its chassis":            {"leaf", "Ethernet1", []schemas.Neighbor{n("", "0200.0000.000a", "enp1s0", "")}, agrees, "", ""},
		"its port has a name that nobody has":  {"leaf", "Ethernet1", []schemas.Neighbor{n("a", "", "enp65s0np0", "")}, agrees, "", ""},
		"a text alone does not accuse":         {"leaf", "Ethernet1", []schemas.Neighbor{n("a", "", "7", "nic1")}, agrees, "", ""},
		"MAC of the chassis, bare":             {"leaf", "Ethernet1", []schemas.Neighbor{n("", "0x02000000000a", "1", "")}, agrees, "", ""},
		"MAC of the chassis, in pairs":         {"leaf", "Ethernet1", []schemas.Neighbor{n("", "0200-0000-000A", "1", "")}, agrees, "", ""},
		"MAC of nobody":                        {"leaf", "Ethernet1", []schemas.Neighbor{n("a", "00:00:00:00:00:00", "nic0", "")}, agrees, "", ""},
		"an address and a text for a port":     {"leaf", "Ethernet1", []schemas.Neighbor{n("a", "10.0.0.7", "uplink to leaf", "")}, agrees, "", ""},
		"chassis by name, in capitals":         {"leaf", "Ethernet1", []schemas.Neighbor{n("", "B.example.net", "nic0", "")}, contradicts, "a/nic0", "b/nic0"},
		"another server":                       {"leaf", "Ethernet1", []schemas.Neighbor{n("b", "", "ens3", "")}, contradicts, "a/nic0", "b/nic0"},
		"another server by MAC alone":          {"leaf", "Ethernet1", []schemas.Neighbor{n("", "", macB, "")}, contradicts, "a/nic0", "b/nic0"},
		"another server, port unknown":         {"leaf", "Ethernet1", []schemas.Neighbor{n("b", "", "enp1", "")}, contradicts, "a/nic0", "b"},
		"another port of it":                   {"leaf", "Ethernet1", []schemas.Neighbor{n("a", "", "nic1", "")}, contradicts, "a/nic0", "a/nic1"},
		"nobody known":                         {"leaf", "Ethernet1", []schemas.Neighbor{n("phone", "02:00:00:00:00:ff", "1", "")}, unknownNeighbor, "", ""},
		"name of one, MAC of another":          {"leaf", "Ethernet1", []schemas.Neighbor{n("a", "", macB, "")}, ambiguous, "", ""},
		"the old one is not timed out":         {"leaf", "Ethernet1", []schemas.Neighbor{n("b", "", "nic0", ""), n("a", "", "nic0", "")}, agrees, "", ""},
		"two, neither of them":                 {"leaf", "Ethernet1", []schemas.Neighbor{n("b", "", "nic0", ""), n("c", "", "nic0", "")}, ambiguous, "", ""},
		"a stranger beside another":            {"leaf", "Ethernet1", []schemas.Neighbor{n("dpu-17", "", "p0", ""), n("b", "", "nic0", "")}, ambiguous, "", ""},
		"own port unknown":                     {"leaf", "Management0", []schemas.Neighbor{n("b", "", "nic0", "")}, unknownPort, "", ""},
		"a cable that is not there":            {"leaf", "Ethernet3", []schemas.Neighbor{n("c", "", "nic0", "")}, contradicts, "", "c/nic0"},
		"the cable of the other end was moved": {"leaf", "Ethernet3", []schemas.Neighbor{n("b", "", "nic0", "")}, contradicts, "leaf/Ethernet2", "b/nic0"},
		"not there, end unknown":               {"leaf", "Ethernet3", []schemas.Neighbor{n("c", "", "enp1", "")}, unlisted, "", ""},
		"of two switches, at one end":          {"leaf", "Ethernet10", []schemas.Neighbor{n("spine", "", "Ethernet2", "")}, contradicts, "", "spine/Ethernet2"},
		"of two switches, at the other":        {"spine", "Ethernet2", []schemas.Neighbor{n("leaf", "", "Ethernet10", "")}, unlisted, "", ""},
		"between switches":                     {"spine", "Ethernet1", []schemas.Neighbor{n("leaf", "", "Ethernet9", "")}, agrees, "", ""},
	} {
		verdict, _, got := judge(&names{snap: snap}, c.device, c.port, c.seen)
		if verdict != c.verdict || (got != nil) != (verdict == contradicts) || got != nil && (got.Left.Value != c.left || got.Right.Value != c.right) {
			t.Errorf("%s: %s %+v", name, verdict, got)
		}
	}
}

func TestWhatIsKnownRoughlyIsComparedRoughly(t *testing.T) {
	d := open(t)
	topology := hall()
	topology.Links = []schemas.Link{
		{From: "leaf/Ethernet1", To: "a", Kind: schemas.LinkNetwork}, {From: "leaf", To: "b", Kind: schemas.LinkNetwork},
	}
	d.put(t, topology)
	for _, c := range []struct{ port, system, part, verdict string }{
		{"Ethernet1", "a", "nic1", agrees}, {"Ethernet2", "b", "nic0", agrees}, {"Ethernet1", "b", "nic0", contradicts},
	} {
		if verdict, _, _ := judge(&names{snap: d.inv.Snapshot()}, "leaf", c.port, []schemas.Neighbor{{System: c.system, PortID: c.part}}); verdict != c.verdict {
			t.Errorf("%+v: %s", c, verdict)
		}
	}
	topology.Links = nil // nobody has drawn any cable
	d.put(t, topology)
	if verdict, _, c := judge(&names{snap: d.inv.Snapshot()}, "leaf", "Ethernet1", []schemas.Neighbor{{System: "a", PortID: "nic0"}}); verdict != unlisted || c != nil {
		t.Errorf("%s %+v", verdict, c)
	}
}

func TestAConflictAboutACableIsOneUntilBothAgree(t *testing.T) {
	d := open(t)
	wrong, right := schemas.Neighbor{Port: "Ethernet1", System: "b", PortID: "nic0", Seen: time.Now()}, schemas.Neighbor{Port: "Ethernet1", System: "a", PortID: "nic0"}
	d.see(t, "leaf", wrong)
	d.see(t, "leaf", wrong)
	again := New(d.db, d.inv, d.log, nil) // another process
	if err := again.Seen(t.Context(), "leaf", []schemas.Neighbor{wrong}); err != nil {
		t.Fatal(err)
	}
	is := d.list(t, schemas.ConflictOpen)
	if len(is) != 1 || is[0].Resource != "leaf/Ethernet1" || is[0].Left.Source != schemas.SideInventory || is[0].Left.Value != "a/nic0" ||
		is[0].Right.Source != schemas.SideLLDP || is[0].Right.Value != "b/nic0" || is[0].Right.Time.IsZero() {
		t.Fatalf("%+v", is)
	}
	if n := testutil.ToFloat64(d.opened) + testutil.ToFloat64(again.opened); n != 1 {
		t.Errorf("%v were opened", n)
	}
	d.see(t, "leaf", schemas.Neighbor{Port: "Ethernet1", System: "a stranger"}) // says nothing of the cable
	if is := d.list(t, schemas.ConflictOpen); len(is) != 1 {
		t.Errorf("%+v", is)
	}
	d.see(t, "leaf", schemas.Neighbor{Port: "Ethernet1", System: "c", PortID: "nic0"})
	if is := d.list(t, schemas.ConflictOpen); len(is) != 1 || is[0].Right.Value != "c/nic0" {
		t.Errorf("%+v", is)
	}
	d.see(t, "leaf", right)
	if is := d.list(t, schemas.ConflictSettled); len(is) != 1 || is[0].Comment != conflicts.WhyAgree || is[0].DecidedBy != "" || is[0].DecidedAt.IsZero() || len(d.list(t, schemas.ConflictOpen)) > 0 {
		t.Errorf("%+v", is)
	}
	d.see(t, "leaf", wrong)
	is = d.list(t, schemas.ConflictOpen)
	if len(is) != 1 || is[0].Comment != "" {
		t.Fatalf("%+v", is)
	}
	if _, err := conflicts.New(d.db).Decide(t.Context(), "ana", is[0].ID, schemas.DecisionRight, ""); err != nil {
		t.Fatal(err)
	}
	for _, n := range []schemas.Neighbor{wrong, right, wrong} {
		d.see(t, "leaf", n)
		if open := d.list(t, schemas.ConflictOpen); len(open) > 0 {
			t.Errorf("what was decided is asked again: %+v", open)
		}
	}
	d.see(t, "leaf", schemas.Neighbor{Port: "Ethernet1", System: "c", PortID: "nic0"})
	if open := d.list(t, schemas.ConflictOpen); len(open) != 1 {
		t.Errorf("another cable is another question: %+v", open)
	}
	if got := testutil.ToFloat64(d.ports.WithLabelValues(contradicts)); got != 1 {
		t.Errorf("%v ports contradict", got)
	}
}

func TestACorrectedInventorySettlesWhatItContradicted(t *testing.T) {
	d := open(t)
	d.see(t, "leaf",
		schemas.Neighbor{Port: "Ethernet1", System: "b", PortID: "nic0"}, schemas.Neighbor{Port: "Ethernet2", System: "a", PortID: "nic0"},
		schemas.Neighbor{Port: "Ethernet3", System: "c", PortID: "nic0"})
	if is := d.list(t, schemas.ConflictOpen); len(is) != 3 {
		t.Fatalf("%+v", is)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	restarted := New(d.db, d.inv, d.log, nil)
	go func() { defer close(done); restarted.Run(ctx) }()
	defer func() { cancel(); <-done }()
	waittest.For(t, "it knows what was told", func() bool { return testutil.ToFloat64(restarted.ports.WithLabelValues(contradicts)) == 3 })
	if is := d.list(t, schemas.ConflictOpen); len(is) != 3 {
		t.Fatalf("after a restart %+v", is)
	}
	topology := hall()
	topology.Links[0].To, topology.Links[1].To = "b/nic0", "a/nic0"
	at := 0
	for topology.Resources[at].ID != "leaf/Ethernet3" {
		at++
	}
	topology.Resources = append(topology.Resources[:at], topology.Resources[at+1:]...)
	d.put(t, topology)
	waittest.For(t, "the conflicts settle", func() bool { return len(d.list(t, schemas.ConflictOpen)) == 0 })
	why := map[string]string{}
	for _, c := range d.list(t, schemas.ConflictSettled) {
		why[c.Resource] = c.Comment
	}
	if why["leaf/Ethernet1"] != conflicts.WhyAgree || why["leaf/Ethernet2"] != conflicts.WhyAgree || why["leaf/Ethernet3"] != conflicts.WhyGone {
		t.Errorf("%v", why)
	}
}

func TestServersThatTheInventoryHasWithTheirDomainAreFoundWithoutAndInAnyCase(t *testing.T) {
	d := open(t)
	topology := hall()
	for _, id := range []string{"GPU-1.dc1.example.net", "GPU-2.dc1.example.net", "GPU-2.dc2.example.net"} {
		topology.Resources = append(topology.Resources, schemas.Resource{ID: id, Kind: schemas.KindServer})
	}
	d.put(t, topology)
	known := &names{snap: d.inv.Snapshot()}
	for name, want := range map[string]string{
		"gpu-1": "GPU-1.dc1.example.net", "GPU-1.dc1.example.net": "GPU-1.dc1.example.net", "gpu-1.DC1.example.net": "GPU-1.dc1.example.net", "gpu-1.dc9.example.net": "",
		"gpu-2": "", "gpu-2.dc2.example.net": "GPU-2.dc2.example.net", "A": "a", "a.anywhere": "a", "": "", ".": "", "leaf/Ethernet1": "",
	} {
		if got := known.find(name); got != want {
			t.Errorf("%q is %q, not %q", name, got, want)
		}
	}
}
