package enrol

import (
	"errors"
	"strings"
	"testing"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/join"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// Who accepts a server says where it stands; a rack that is none changes nothing.
func TestAServerIsAcceptedIntoItsRack(t *testing.T) {
	o := newOffice(t)
	more := site()
	more.Resources = append(more.Resources, schemas.Resource{ID: "r02", Kind: "rack", Parent: "dc1"})
	if _, err := o.desk.Inventory.Import(t.Context(), cmdb.Draft{Topology: more}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	o.joins(t, join.Spec{Name: "image"})
	fresh, _ := o.offer(t, Who{Machine: key, Token: "image"}, &Description{Hostname: "gpu-9", Serial: "SN9"})
	disk := same()
	disk.Disks = []Part{{Name: "nvme0", Serial: "S6CKNE0T"}}
	elsewhere, _ := o.offer(t, Who{Server: "a"}, disk)
	for _, bad := range []struct{ id, rack, want string }{
		{fresh.ID, "r0l", `no rack "r0l"; did you mean r01?`},
		{fresh.ID, "dc1", "is no rack, it is a site"},
		{fresh.ID, "a", "is no rack, it is a server"},
		{elsewhere.ID, "r02", "a stands in r01 already"},
	} {
		_, err := o.desk.Accept(t.Context(), bad.id, bad.rack, "ana", "here")
		if rack := RackError(""); !errors.As(err, &rack) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: error %v", bad.rack, err)
		}
		if p, err := o.desk.Get(t.Context(), bad.id); err != nil || p.State != Open || p.Rack != "" {
			t.Errorf("%s: it is %s in %q: %v", bad.rack, p.State, p.Rack, err)
		}
	}
	if _, err := o.desk.Accept(t.Context(), fresh.ID, "r01", "ana", ""); err != nil {
		t.Fatal(err)
	}
	snap := o.desk.Inventory.Snapshot()
	if snap.Rack("gpu-9") != "r01" || snap.Site("gpu-9") != "dc1" {
		t.Errorf("it stands in %q of %q", snap.Rack("gpu-9"), snap.Site("gpu-9"))
	}
	if p, err := o.desk.Get(t.Context(), fresh.ID); err != nil || p.Rack != "r01" {
		t.Errorf("the decision says %q: %v", p.Rack, err)
	}
	if p := Compare(snap, Who{Server: "gpu-9", Machine: key}, &Description{Hostname: "gpu-9", Serial: "SN9"}); len(p.Differences) != 0 {
		t.Errorf("it still differs: %+v", p.Differences)
	}
	rows, err := audit.New(o.db, time.Now).List(t.Context(), 0, 3)
	told := false
	for _, r := range rows {
		told = told || r.Kind == kind && strings.Contains(r.Detail, "in r01")
	}
	if err != nil || !told {
		t.Errorf("the audit does not tell the rack: %+v %v", rows, err)
	}
	// What comes later of it leaves it where it is.
	later, _ := o.offer(t, Who{Server: "gpu-9", Machine: key}, &Description{Hostname: "gpu-9", Serial: "SN9", Disks: []Part{{Name: "nvme0", Serial: "S6CKNE0V"}}})
	if _, err := o.desk.Accept(t.Context(), later.ID, "", "ana", ""); err != nil || o.desk.Inventory.Snapshot().Rack("gpu-9") != "r01" {
		t.Errorf("it stands in %q: %v", o.desk.Inventory.Snapshot().Rack("gpu-9"), err)
	}
}

// refused lists why descriptions are not taken.
func (o *office) refused(t *testing.T) (out []string) {
	t.Helper()
	for after := ""; ; {
		page, next, err := o.desk.Refused(t.Context(), "", after, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range page {
			out = append(out, a.Server+a.Machine+": "+a.Refused)
		}
		if after = next; next == "" {
			return out
		}
	}
}

// A description that is not taken stands in a list with the reason, until a better one comes
// or its machine is revoked; the version of the agent is kept.
func TestARefusedDescriptionIsInAList(t *testing.T) {
	o := newOffice(t)
	o.joins(t, join.Spec{Name: "image"})
	set := o.agent(t, map[string]string{
		"/identity/state/digest": "1", "/identity/state/hostname": "gpu-9", "/identity/state/serial": strings.Repeat("S", 300),
		"/identity/state/agent-version": "v1.2.3",
	})
	waittest.For(t, "not listed", func() bool {
		all := o.refused(t)
		return len(all) == 1 && strings.HasPrefix(all[0], key+": /identity/state/serial of") && strings.Contains(all[0], "more than 256 characters")
	})
	set(map[string]string{"/identity/state/digest": "2", "/identity/state/serial": "SN9"})
	waittest.For(t, "still listed", func() bool { return len(o.refused(t)) == 0 })
	waittest.For(t, "no version", func() bool {
		all, err := o.desk.Agents(t.Context())
		return err == nil && all[key].Version == "v1.2.3"
	})
	first := Agent{Server: "a", Address: "a:9339", Refused: "it lies"}
	gone := Agent{Server: "gone", Refused: "it lies"}
	for _, a := range []*Agent{&first, &gone, {Machine: key, Refused: "it lies too"}} {
		if err := o.desk.Note(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if all := o.refused(t); len(all) != 2 || all[1] != "a: it lies" {
		t.Errorf("listed: %v", all)
	}
	if err := o.desk.Machines.RevokeMachine(t.Context(), "bo", key); err != nil {
		t.Fatal(err)
	}
	if all := o.refused(t); len(all) != 1 {
		t.Errorf("a machine that was revoked is listed: %v", all)
	}
	before, _ := o.desk.Agents(t.Context())
	if err := o.desk.Note(t.Context(), &first); err != nil {
		t.Fatal(err)
	}
	if after, _ := o.desk.Agents(t.Context()); !after["a"].Since.Equal(before["a"].Since) {
		t.Errorf("it has been refused since %s, then since %s", before["a"].Since, after["a"].Since)
	}
}
