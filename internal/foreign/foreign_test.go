package foreign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/discover"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// ears hear what is put on the bus.
type ears struct {
	mu    sync.Mutex
	heard []schemas.Event
	err   error
	after bool // the error comes after it was taken
}

// Publish implements bus.Publisher.
func (e *ears) Publish(_ context.Context, msgs ...bus.Message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil && !e.after {
		return e.err
	}
	for _, m := range msgs {
		var b auspexv1.Batch
		if err := wire.Decode(m.Value, &b); err != nil {
			return err
		}
		for _, ev := range b.GetEvents() {
			e.heard = append(e.heard, schemas.EventFromWire(ev))
		}
	}
	return e.err
}

type desk struct {
	*testing.T
	db   *sqldb.DB
	inv  *cmdb.Inventory
	ears *ears
}

func open(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, db: sqltest.Open(t), ears: &ears{}}
	d.inv = cmdb.New(cmdb.DefaultConfig(), d.db, nil, nil)
	if err := d.inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.has("gpu-1", "02:00:00:00:00:01")
	return d
}

// has imports servers with an interface each.
func (d *desk) has(pairs ...string) {
	d.Helper()
	top := schemas.Topology{Resources: []schemas.Resource{{ID: "dc1", Kind: schemas.KindSite}}}
	for i := 0; i < len(pairs); i += 2 {
		top.Resources = append(top.Resources, schemas.Resource{ID: pairs[i], Kind: schemas.KindServer, Parent: "dc1"},
			schemas.Resource{ID: pairs[i] + "/nic0", Kind: schemas.KindNIC, Parent: pairs[i], Attrs: schemas.AttrsOf(map[string]string{schemas.AttrMAC: pairs[i+1]})})
	}
	if _, err := d.inv.Import(d.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Source: "racks", Bounds: cmdb.NoBounds()}); err != nil {
		d.Fatal(err)
	}
}

// keeper is one as a process that starts has it.
func (d *desk) keeper() *Keeper { return New(d.db, d.inv, d.ears, slog.New(slog.DiscardHandler), nil) }

// heard are the events since the last look, as lines.
func (d *desk) heard(want ...string) {
	d.Helper()
	d.ears.mu.Lock()
	defer d.ears.mu.Unlock()
	got := []string{}
	for _, ev := range d.ears.heard {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s: %s", ev.Type, ev.Code, ev.State, ev.Resource, ev.Message)))
	}
	if d.ears.heard = nil; !slices.Equal(got, want) && len(got)+len(want) > 0 {
		d.Errorf("heard\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (d *desk) conflicts(status string, want ...string) {
	d.Helper()
	all, _, err := conflicts.New(d.db).List(d.Context(), conflicts.Filter{Status: status, Limit: 100, Sort: "resource"})
	if err != nil {
		d.Fatal(err)
	}
	got := []string{}
	for _, c := range all {
		got = append(got, fmt.Sprintf("%s %s: %s=%s %s=%s by %s at %s", c.Resource, c.Field, c.Left.Source, c.Left.Value, c.Right.Source, c.Right.Value, c.Right.Owner, c.Right.Resource))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) && len(got)+len(want) > 0 {
		d.Errorf("%s:\n%s\nwant\n%s", status, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (d *desk) says(k *Keeper, all ...schemas.Foreign) {
	d.Helper()
	if err := k.Said(d.Context(), "tink", all); err != nil {
		d.Fatal(err)
	}
}

func disks(theirs, owner string) schemas.Foreign {
	return schemas.Foreign{Object: "tink/gpu-1", Server: "gpu-1", Field: "spec.disks", Ours: "/dev/nvme0n1", Theirs: theirs, Owner: owner}
}

func TestADifferenceIsToldOnceAndSettles(t *testing.T) {
	d := open(t)
	d.says(d.keeper(), disks("/dev/sda", "kubectl-edit"))
	d.heard("hardware.conflict field raised gpu-1: spec.disks of hardware tink/gpu-1 is /dev/sda by kubectl-edit, and the inventory has /dev/nvme0n1")
	d.conflicts(schemas.ConflictOpen, "gpu-1 spec.disks: inventory=/dev/nvme0n1 tinkerbell=/dev/sda by kubectl-edit at tink/gpu-1")
	for _, by := range []string{"kubectl-edit", "argocd"} { // after restarts, and when another has it
		d.says(d.keeper(), disks("/dev/sda", by))
		d.heard()
		d.conflicts(schemas.ConflictOpen, "gpu-1 spec.disks: inventory=/dev/nvme0n1 tinkerbell=/dev/sda by "+by+" at tink/gpu-1")
	}
	d.has("gpu-1", "02:00:00:00:00:01", "gpu-5", "02:00:00:00:00:05") // an import settles nothing of it
	two := schemas.Foreign{Object: "tink/rack1", Server: "gpu-1", Field: schemas.FieldObject, Ours: "tink/gpu-1", Theirs: "tink/rack1", Owner: "kubectl-create"}
	three := two
	three.Object, three.Theirs = "tink/rack2", "tink/rack2"
	d.says(d.keeper(), disks("/dev/sdb", "argocd"), two, three)
	d.heard(
		"hardware.conflict field raised gpu-1: spec.disks of hardware tink/gpu-1 is /dev/sdb by argocd, and the inventory has /dev/nvme0n1",
		"hardware.conflict two_owners raised gpu-1: hardware tink/rack1, which belongs to kubectl-create, is of the same machine as tink/gpu-1",
		"hardware.conflict two_owners raised gpu-1: hardware tink/rack2, which belongs to kubectl-create, is of the same machine as tink/gpu-1",
	)
	d.conflicts(schemas.ConflictOpen,
		"gpu-1 hardware: inventory=tink/gpu-1 tinkerbell=tink/rack1 by kubectl-create at tink/rack1",
		"gpu-1 hardware: inventory=tink/gpu-1 tinkerbell=tink/rack2 by kubectl-create at tink/rack2",
		"gpu-1 spec.disks: inventory=/dev/nvme0n1 tinkerbell=/dev/sdb by argocd at tink/gpu-1")
	d.says(d.keeper())
	d.heard(
		"hardware.conflict field cleared gpu-1: spec.disks of hardware tink/gpu-1 is no longer otherwise than the inventory has it",
		"hardware.conflict two_owners cleared gpu-1: hardware tink/rack1 no longer stands beside tink/gpu-1",
		"hardware.conflict two_owners cleared gpu-1: hardware tink/rack2 no longer stands beside tink/gpu-1",
	)
	d.conflicts(schemas.ConflictOpen)
}

func TestADecisionStaysAndIsNotToldAgain(t *testing.T) {
	d := open(t)
	d.says(d.keeper(), disks("/dev/sda", "kubectl-edit"))
	d.heard("hardware.conflict field raised gpu-1: spec.disks of hardware tink/gpu-1 is /dev/sda by kubectl-edit, and the inventory has /dev/nvme0n1")
	all, _, err := conflicts.New(d.db).List(t.Context(), conflicts.Filter{Limit: 1})
	if err != nil || len(all) != 1 {
		t.Fatal(err)
	}
	if _, err := conflicts.New(d.db).Decide(t.Context(), "li", all[0].ID, schemas.DecisionRight, "the new disk"); err != nil {
		t.Fatal(err)
	}
	d.says(d.keeper(), disks("/dev/sda", "kubectl-edit"))
	d.heard()
	d.conflicts(schemas.ConflictOpen)
	d.conflicts(schemas.ConflictDecided, "gpu-1 spec.disks: inventory=/dev/nvme0n1 tinkerbell=/dev/sda by kubectl-edit at tink/gpu-1")
}

// What could not be published is, by whoever comes next; that of which the answer was lost has the same id.
func TestNothingIsLostBetweenTheStoreAndTheBus(t *testing.T) {
	d := open(t)
	for _, after := range []bool{false, true} {
		d.ears.err, d.ears.after = errors.New("the bus is away"), after
		if err := d.keeper().Said(t.Context(), "tink", []schemas.Foreign{disks("/dev/sda", "kubectl-edit")}); err == nil {
			t.Fatal("nothing was said of the bus")
		}
	}
	lost := slices.Clone(d.ears.heard)
	d.ears.err = nil
	d.says(d.keeper(), disks("/dev/sda", "kubectl-edit"))
	if all := d.ears.heard; len(lost) != 1 || len(all) != 2 || all[0].ID != all[1].ID {
		t.Errorf("%+v", all)
	}
	d.ears.heard = nil
	d.says(d.keeper(), disks("/dev/sda", "kubectl-edit"))
	d.heard()
}

func TestAMachineThatTheInventoryDoesNotHaveIsFound(t *testing.T) {
	d := open(t)
	machine := schemas.Foreign{Object: "tink/gpu-9", Owner: "kubectl-create", Machine: &schemas.Hardware{
		Hostname: "gpu-9.site", Architecture: schemas.ArchX86, NICs: []schemas.FoundPart{{Name: "eth0", MAC: "02:00:00:00:00:99"}},
	}}
	for range 2 {
		d.says(d.keeper(), machine)
	}
	d.heard("hardware.discovered   gpu-9: Hardware tink/gpu-9, which belongs to kubectl-create, is of a machine that the inventory does not have")
	d.conflicts(schemas.ConflictOpen)
	store := discoveries.New(d.db)
	sweeps, _, err := store.List(t.Context(), "", "", "", 10)
	if err != nil || len(sweeps) != 1 || sweeps[0].Status != schemas.DiscoveryCompleted || sweeps[0].Found != 1 || sweeps[0].Silent != 0 || sweeps[0].Ranges[0] != "tinkerbell tink" {
		t.Fatalf("%+v %v", sweeps, err)
	}
	finds, _, err := store.Finds(t.Context(), sweeps[0].ID, "", "", 10)
	if err != nil || len(finds) != 1 {
		t.Fatal(finds, err)
	}
	f := finds[0]
	discover.NewIndex(d.inv.Snapshot()).Judge(&f, "")
	if f.Status != schemas.ServerDiscovered || f.Proposal == nil || f.Proposal.Name != "gpu-9" || f.Proposal.IPMIIP != "" || f.Proposal.RedfishURL != "" {
		t.Errorf("%+v", f)
	}
	if parts := discover.Fragment(&f, "gpu-9"); len(parts) != 2 || parts[1].Attrs.Get(schemas.AttrMAC) != "02:00:00:00:00:99" {
		t.Errorf("%+v", parts)
	}
	d.has("gpu-1", "02:00:00:00:00:01", "gpu-9", "02:00:00:00:00:99")
	f = finds[0]
	if discover.NewIndex(d.inv.Snapshot()).Judge(&f, ""); f.Server != "gpu-9" || f.MatchedBy != "mac" {
		t.Errorf("%+v", f)
	}
	k := d.keeper()
	if got := k.Servers("", "02:00:00:00:00:99", "02:00:00:00:00:01", "x"); !slices.Equal(got, []string{"gpu-9", "gpu-1"}) {
		t.Error(got)
	}
	if got := k.Servers("gpu-1/nic0"); len(got) != 0 {
		t.Error(got)
	}
	d.says(k)
	d.heard()
	if is, err := store.Get(t.Context(), sweeps[0].ID); err != nil || is.Found != 0 || is.Silent != 0 {
		t.Errorf("%+v %v", is, err)
	}
}

func TestOfVeryManyDifferencesSomeAreKept(t *testing.T) {
	d := open(t)
	var all []schemas.Foreign
	for n := range kept + 10 {
		f := disks("/dev/sda", "kubectl-edit")
		f.Object = fmt.Sprintf("tink/h%04d", n)
		all = append(all, f)
	}
	d.says(d.keeper(), all...)
	if n := len(d.ears.heard); n != kept {
		t.Errorf("%d are told", n)
	}
}
