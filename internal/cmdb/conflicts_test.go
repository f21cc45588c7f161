package cmdb_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"auspex/internal/cmdb"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
)

// lists has an inventory in a database, with what may be wrong between lists.
type lists struct {
	*cmdb.Inventory
	conflicts *conflicts.Store
}

func twoLists(t *testing.T) lists {
	t.Helper()
	db := sqltest.OpenFile(t)
	i := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := i.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return lists{i, conflicts.New(db)}
}

// brings imports servers, as name and then key=value.
func (l lists) brings(t *testing.T, source string, servers ...string) cmdb.Report {
	t.Helper()
	top := schemas.Topology{Resources: []schemas.Resource{{ID: "dc1", Kind: schemas.KindSite}}}
	for _, line := range servers {
		words := strings.Fields(line)
		r := schemas.Resource{ID: words[0], Kind: schemas.KindServer, Parent: "dc1"}
		if parent, part, ok := strings.Cut(words[0], "/"); ok {
			r.Kind, r.Parent = strings.TrimRight(part, "0123456789"), parent
		}
		for _, w := range words[1:] {
			k, v, _ := strings.Cut(w, "=")
			r.Attrs = r.Attrs.With(k, strings.ReplaceAll(v, "_", " "))
		}
		top.Resources = append(top.Resources, r)
	}
	r, err := l.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Source: source, Bounds: cmdb.NoBounds()})
	if err != nil || len(r.Problems) > 0 {
		t.Fatal(err, r.Problems)
	}
	return r
}

// are the conflicts in a state, as lines.
func (l lists) are(t *testing.T, status string) []string {
	t.Helper()
	all, _, err := l.conflicts.List(t.Context(), conflicts.Filter{Status: status, Limit: 5000})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, 0, len(all))
	for _, c := range all {
		line := fmt.Sprintf("%s %s %s: %s=%s %s=%s", c.Kind, c.Resource, c.Field, c.Left.Source, c.Left.Value, c.Right.Source, c.Right.Value)
		if c.Right.Resource != "" {
			line += " of " + c.Right.Resource
		}
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

func (l lists) want(t *testing.T, status string, want ...string) {
	t.Helper()
	if got := l.are(t, status); !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", status, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestListsThatContradictOneAnotherAreTold(t *testing.T) {
	l := twoLists(t)
	l.brings(t, "racks", "a serial=S1 model=H100 ipmi_ip=10.0.0.1", "b serial=S2 note=x", "c serial=None", "d uuid=4C4C4544-0030-3510-8052-B4C04F4E4D32")
	l.want(t, schemas.ConflictOpen)
	// What they call a model or note is up to them, as are spellings, placeholders, and what one does not say.
	r := l.brings(t, "netbox", "a serial=S9 model=NVIDIA_H100 ipmi_ip=10.0.0.9", "b serial=s2 note=y", "c serial=S3", "d uuid=4c4c4544003035108052b4c04f4e4d32")
	serial, address := "two_sources a serial: netbox=S9 racks=S1", "two_sources a ipmi_ip: netbox=10.0.0.9 racks=10.0.0.1"
	if r.Conflicts != 2 {
		t.Errorf("%d conflicts", r.Conflicts)
	}
	l.want(t, schemas.ConflictOpen, address, serial)

	decided := l.find(t, "serial")
	if _, err := l.conflicts.Decide(t.Context(), "li", decided.ID, schemas.DecisionLeft, ""); err != nil {
		t.Fatal(err)
	}
	// Whichever was imported last is in force, and the question is the same.
	l.brings(t, "racks", "a serial=S1 model=H100 ipmi_ip=10.0.0.1 note=z", "b serial=S2")
	l.want(t, schemas.ConflictOpen, address)
	l.want(t, schemas.ConflictDecided, serial)

	l.brings(t, "racks", "a serial=S1 ipmi_ip=10.0.0.8", "b serial=S2")
	l.want(t, schemas.ConflictOpen, "two_sources a ipmi_ip: netbox=10.0.0.9 racks=10.0.0.8")
	l.want(t, schemas.ConflictSettled)
	l.brings(t, "racks", "a serial=S9 ipmi_ip=10.0.0.9", "b serial=S2")
	l.want(t, schemas.ConflictOpen)
	l.want(t, schemas.ConflictSettled, "two_sources a ipmi_ip: netbox=10.0.0.9 racks=10.0.0.8")
	l.want(t, schemas.ConflictDecided, serial)
}

func (l lists) find(t *testing.T, field string) schemas.Conflict {
	t.Helper()
	all, _, err := l.conflicts.List(t.Context(), conflicts.Filter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Field == field {
			return c
		}
	}
	t.Fatalf("no conflict about %s", field)
	return schemas.Conflict{}
}

func TestASerialNumberOfTwoThingsIsTold(t *testing.T) {
	l := twoLists(t)
	r := l.brings(t, "racks",
		"a serial=S1", "b serial=s1", "c serial=To_be_filled_by_O.E.M.", "d serial=To_be_filled_by_O.E.M.",
		"a/gpu0 serial=G1", "a/gpu1 serial=G1", "b/gpu0 serial=G2", "c/gpu0 serial=G2", "a/disk0 serial=D1", "b/disk0 serial=D1")
	if r.Conflicts != 2 {
		t.Errorf("%d conflicts", r.Conflicts)
	}
	server, gpu := "serial_twice a serial: racks=S1 racks=s1 of b", "serial_twice b/gpu0 serial: racks=G2 racks=G2 of c/gpu0"
	l.want(t, schemas.ConflictOpen, server, gpu)
	l.brings(t, "racks", "a serial=S1", "b serial=S2", "b/gpu0 serial=G2")
	l.want(t, schemas.ConflictOpen)
	all, _, err := l.conflicts.List(t.Context(), conflicts.Filter{Status: schemas.ConflictSettled, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	why := map[string]string{}
	for _, c := range all {
		why[c.Resource] = c.Comment
	}
	if want := map[string]string{"a": conflicts.WhyAgree, "b/gpu0": conflicts.WhyGone}; !maps.Equal(why, want) {
		t.Errorf("%v", why)
	}
}

func TestOfVeryManyConflictsSomeAreKept(t *testing.T) {
	l := twoLists(t)
	var racks, netbox []string
	for n := range 1500 {
		racks, netbox = append(racks, fmt.Sprintf("s%04d serial=A%d", n, n)), append(netbox, fmt.Sprintf("s%04d serial=B%d", n, n))
	}
	l.brings(t, "racks", racks...)
	if r := l.brings(t, "netbox", netbox...); r.Conflicts != 1500 {
		t.Errorf("%d conflicts", r.Conflicts)
	}
	if n := len(l.are(t, schemas.ConflictOpen)); n != 1000 {
		t.Errorf("%d are open", n)
	}
	if r := l.brings(t, "netbox", append(racks[:1400:1400], netbox[1400:]...)...); r.Conflicts != 100 {
		t.Errorf("%d conflicts", r.Conflicts)
	}
	if n := len(l.are(t, schemas.ConflictOpen)); n != 100 {
		t.Errorf("%d are open", n)
	}
}
