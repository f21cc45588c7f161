package enrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"auspex/internal/cmdb"
	"auspex/internal/gnmiclient"
	"auspex/internal/store/audit"
	"auspex/internal/store/join"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/target"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "00000000000000000000000000000000000000000000000000000000000000aa"

// site is an inventory with two servers and a switch.
func site() schemas.Topology {
	res := func(id, kind, parent string, attrs ...string) schemas.Resource {
		r := schemas.Resource{ID: id, Kind: kind, Parent: parent}
		for i := 0; i+1 < len(attrs); i += 2 {
			r.Attrs = r.Attrs.With(attrs[i], attrs[i+1])
		}
		return r
	}
	return schemas.Topology{
		Version: 1, Resources: []schemas.Resource{
			res("dc1", "site", ""), res("r01", "rack", "dc1"),
			res("leaf-1", "switch", "r01"), res("leaf-1/Ethernet1", "port", "leaf-1"), res("leaf-1/Ethernet2", "port", "leaf-1"),
			res("leaf-1/Ethernet3", "port", "leaf-1"),
			res("a", "server", "r01", "serial", "SN1", "uuid", "3b54ba4f-0c6e-44ce-a7a8-0b3a3c5f8e11", "model", "DGX H100", "agent_address", "a:9339"),
			res("a/gpu0", "gpu", "a", "pci", "0000:1b:00.0", "uuid", "GPU-11111111-0000-0000-0000-000000000000"),
			res("a/gpu1", "gpu", "a", "pci", "0000:43:00.0"),
			res("a/nic0", "nic", "a", "mac", "b8:3f:d2:4a:11:0e", "aliases", "ens1"),
			res("b", "server", "r01", "serial", "SN2"),
			res("b/gpu0", "gpu", "b", "uuid", "GPU-22222222-0000-0000-0000-000000000000"), res("b/nic0", "nic", "b"),
		},
		Links: []schemas.Link{
			{From: "leaf-1/Ethernet1", To: "a/nic0", Kind: "network"}, {From: "leaf-1/Ethernet2", To: "b/nic0", Kind: "network"},
		},
	}
}

// same is what the agent of server a says that is as the inventory has it.
func same() *Description {
	return &Description{
		Digest: "d1", Boot: "b1", Product: "DGXH100", Serial: "SN1", UUID: "3B54BA4F-0C6E-44CE-A7A8-0B3A3C5F8E11", Hostname: "a",
		GPUs:      []Part{{Name: "gpu0", PCI: "00000000:1B:00.0", UUID: "GPU-11111111-0000-0000-0000-000000000000"}, {Name: "gpu1", PCI: "0000:43:00.0"}},
		NICs:      []Part{{Name: "ens1", MAC: "B8-3F-D2-4A-11-0E"}},
		Neighbors: []Neighbor{{Interface: "ens1", System: "leaf-1.example.org", Port: "Ethernet1"}},
	}
}

func TestWhatAnAgentSaysIsHeldAgainstTheInventory(t *testing.T) {
	inv, problems := cmdb.FromTopology(site())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for name, c := range map[string]struct {
		who  Who
		says func(d *Description)
		want []string
	}{
		"equal, in whatever spelling": {Who{Server: "a"}, func(*Description) {}, nil},
		"placeholders for serial numbers": {Who{Server: "a"}, func(d *Description) {
			d.Serial, d.UUID = "To be filled by O.E.M.", "00000000-0000-0000-0000-000000000000"
		}, nil},
		"new parts": {Who{Server: "a"}, func(d *Description) {
			d.Disks = []Part{{Name: "nvme0", Serial: "S6CKNE0T", Model: "MZQL2"}, {Name: "sda"}}
			d.NVSwitches = []Part{{Name: "nvswitch0", PCI: "0000:07:00.0"}}
		}, []string{"added nvswitch a/nvswitch0", "added disk a/nvme0"}},
		"names of its system by which the inventory does not find a part": {Who{Server: "a"}, func(d *Description) {
			d.NICs[0].Name, d.Neighbors = "enp27s0f0np0", nil
		}, []string{"changed nic a/nic0 aliases ens1 ens1,enp27s0f0np0"}},
		"a name that another part has": {Who{Server: "a"}, func(d *Description) {
			d.NICs, d.Neighbors = []Part{{Name: "ens2", MAC: d.NICs[0].MAC}, {Name: "ens1", MAC: "b8:3f:d2:4a:11:0f"}}, nil
		}, []string{"changed nic a/nic0 aliases ens1 ens1,ens2", "added nic a/ens1"}},
		"what was not known": {Who{Server: "a"}, func(d *Description) {
			d.GPUs[1].UUID = "GPU-33333333-0000-0000-0000-000000000000"
		}, []string{"changed gpu a/gpu1 uuid"}},
		"another GPU in that slot": {Who{Server: "a"}, func(d *Description) {
			d.GPUs[0].UUID = "GPU-44444444-0000-0000-0000-000000000000"
		}, []string{"conflict gpu a/gpu0 uuid GPU-11111111-0000-0000-0000-000000000000 GPU-44444444-0000-0000-0000-000000000000"}},
		"a GPU that is elsewhere in the inventory": {Who{Server: "a"}, func(d *Description) {
			d.GPUs[1].UUID = "GPU-22222222-0000-0000-0000-000000000000"
		}, []string{"conflict gpu a/gpu1 uuid GPU-22222222-0000-0000-0000-000000000000: In the inventory GPU-22222222-0000-0000-0000-000000000000 is that of b/gpu0."}},
		"a UUID of two GPUs": {Who{Server: "a"}, func(d *Description) {
			d.GPUs = append(d.GPUs, Part{Name: "gpu2", PCI: "0000:44:00.0", UUID: d.GPUs[0].UUID})
		}, []string{"conflict gpu a/gpu0 uuid", "added gpu a/gpu2", "conflict gpu a/gpu2 uuid"}},
		"a serial number that the inventory has twice": {
			Who{Server: "a"},
			func(d *Description) { d.Serial = "SN2" },
			[]string{"conflict server a serial SN1 SN2: The inventory has serial SN1 here, the agent finds SN2. In the inventory SN2 is that of b."},
		},
		"a cable elsewhere": {
			Who{Server: "a"},
			func(d *Description) { d.Neighbors[0].Port = "Ethernet3" },
			[]string{"conflict network a/nic0 leaf-1/Ethernet1 leaf-1/Ethernet3: The inventory has its cable in leaf-1/Ethernet1, LLDP says leaf-1/Ethernet3."},
		},
		"a new cable, in a port that has one": {Who{Server: "a"}, func(d *Description) {
			d.NICs = append(d.NICs, Part{Name: "ens2", MAC: "b8:3f:d2:4a:11:0f"})
			d.Neighbors = append(d.Neighbors, Neighbor{Interface: "ens2", System: "leaf-1", Port: "Ethernet2"})
		}, []string{"added nic a/ens2", "conflict network a/ens2 b/nic0 leaf-1/Ethernet2"}},
		"a new cable": {Who{Server: "a"}, func(d *Description) {
			d.NICs = append(d.NICs, Part{Name: "ens2", MAC: "b8:3f:d2:4a:11:0f"})
			d.Neighbors = append(d.Neighbors, Neighbor{Interface: "ens2", System: "leaf-1", Port: "x", PortDescription: "Ethernet3"})
		}, []string{"added nic a/ens2", "added network a/ens2"}},
		"a switch that nobody knows": {Who{Server: "a"}, func(d *Description) { d.Neighbors[0].System = "spine-9" }, nil},
		"interfaces of a bond": {Who{Server: "a"}, func(d *Description) {
			d.NICs = []Part{{Name: "ens1", MAC: "b8:3f:d2:4a:11:0e", PCI: "0000:01:00.0"}, {Name: "ens2", MAC: "b8:3f:d2:4a:11:0e", PCI: "0000:02:00.0"}}
		}, []string{"added nic a/ens1", "added nic a/ens2", "conflict network a/ens1 a/nic0 leaf-1/Ethernet1"}},
		"a server of which nobody knows": {Who{Machine: key}, func(d *Description) {
			*d = Description{Hostname: "gpu-9.example.org", Serial: "SN9", Product: "XE9680", Architecture: "x86_64", BootMode: "uefi"}
		}, []string{"added server gpu-9"}},
		"a machine that stands nowhere, with a host name of the inventory": {
			Who{Machine: key},
			func(d *Description) { *d = Description{Hostname: "b"} },
			[]string{"conflict server b SN2: Its host name alone", "changed server b agent_address"},
		},
		"one that dials in": {Who{Server: "b", Machine: key}, func(d *Description) { *d = Description{Serial: "SN2"} }, []string{"changed server b agent_address tunnel"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := same()
			c.says(d)
			p := Compare(inv.Snapshot(), c.who, d)
			var got []string
			for _, x := range p.Differences {
				words := slices.DeleteFunc([]string{x.Verb, x.Kind, x.Resource, x.Attr, x.Inventory, x.Agent, x.Why}, func(w string) bool { return w == "" })
				got = append(got, strings.Join(words, " "))
			}
			ok := len(got) == len(c.want)
			for i := range got {
				ok = ok && strings.HasPrefix(strings.ReplaceAll(got[i], ": ", " "), strings.ReplaceAll(c.want[i], ": ", " "))
			}
			if !ok {
				t.Errorf("%s", cmp.Diff(c.want, got))
			}
			if again := Compare(inv.Snapshot(), c.who, d); again.ID != p.ID {
				t.Errorf("the same says %s and %s", p.ID, again.ID)
			}
		})
	}
}

// office is a store with an inventory and who has joined.
type office struct {
	db   *sqldb.DB
	desk *Desk
}

func newOffice(t *testing.T) *office {
	t.Helper()
	db := sqltest.Open(t)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: site()}, cmdb.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	return &office{db, &Desk{Store: New(db), Inventory: inv, Machines: join.New(db, inv, nil)}}
}

func (o *office) joins(t *testing.T, spec join.Spec) {
	t.Helper()
	plain, _, err := o.desk.Machines.Create(t.Context(), "ana", spec)
	if err == nil {
		_, err = o.desk.Machines.Admit(t.Context(), plain, join.Machine{Key: key, Hostname: "gpu-9", Address: "10.0.0.9:1"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (o *office) offer(t *testing.T, who Who, d *Description) (Proposal, string) {
	t.Helper()
	p := Compare(o.desk.Inventory.Snapshot(), who, d)
	state, err := o.desk.Offer(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return p, state
}

func (o *office) list(t *testing.T, state string) (ids []string) {
	t.Helper()
	all, _, err := o.desk.List(t.Context(), state, "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		ids = append(ids, p.ID)
	}
	return ids
}

func TestTheSameIsOneProposalAndANewerOneTakesItsPlace(t *testing.T) {
	o := newOffice(t)
	d := same()
	d.Disks = []Part{{Name: "nvme0", Serial: "S6CKNE0T"}}
	first, _ := o.offer(t, Who{Server: "a"}, d)
	o.offer(t, Who{Server: "a"}, d)
	if diff := cmp.Diff([]string{first.ID}, o.list(t, "")); diff != "" {
		t.Errorf("told twice: %s", diff)
	}
	d.Disks[0].Serial = "S6CKNE0U"
	second, _ := o.offer(t, Who{Server: "a"}, d)
	if diff := cmp.Diff([]string{second.ID}, o.list(t, "")); diff != "" {
		t.Errorf("after a newer one: %s", diff)
	}
	if _, err := o.desk.Decline(t.Context(), first.ID, "ana", "no"); !errors.Is(err, ErrNone) {
		t.Errorf("what was replaced is declined: %v", err)
	}
	if _, err := o.desk.Decline(t.Context(), second.ID, "ana", "it goes back"); err != nil {
		t.Fatal(err)
	}
	if _, state := o.offer(t, Who{Server: "a"}, d); state != Declined || len(o.list(t, Open)) != 0 {
		t.Errorf("what was declined is %s, and %v are open", state, o.list(t, Open))
	}
	if _, err := o.desk.Decline(t.Context(), second.ID, "bo", "no"); !errors.Is(err, ErrDecided) {
		t.Errorf("what was declined is declined again: %v", err)
	}
	if _, err := o.desk.Accept(t.Context(), second.ID, "", "bo", "yes"); !errors.Is(err, ErrDecided) {
		t.Errorf("what was declined is accepted: %v", err)
	}
	d.Disks[0].Serial = "S6CKNE0V"
	if _, state := o.offer(t, Who{Server: "a"}, d); state != Open {
		t.Errorf("what says something else is %s", state)
	}
	if err := o.desk.Settle(t.Context(), Compare(o.desk.Inventory.Snapshot(), Who{Server: "a"}, same())); err != nil || len(o.list(t, Open)) != 0 {
		t.Errorf("what no longer differs is open: %v", err)
	}
}

// Import, decision, place and audit come together, and what other sources bring stays.
func TestWhatIsAcceptedIsInTheInventory(t *testing.T) {
	o := newOffice(t)
	o.joins(t, join.Spec{Name: "image", Uses: 5})
	d := &Description{
		Hostname: "gpu-9", Serial: "SN9", Architecture: "x86_64", BootMode: "uefi",
		GPUs: []Part{{Name: "gpu0", PCI: "0000:1b:00.0", UUID: "GPU-99999999-0000-0000-0000-000000000000"}},
	}
	p, _ := o.offer(t, Who{Machine: key, Token: "image"}, d)
	got, err := o.desk.Accept(t.Context(), p.ID, "", "ana", "")
	if err != nil || got.State != Accepted || got.DecidedBy != "ana" {
		t.Fatalf("%+v %v", got, err)
	}
	r, _ := o.desk.Inventory.Snapshot().Resource("gpu-9")
	want := schemas.Resource{ID: "gpu-9", Kind: "server", Attrs: schemas.AttrsOf(map[string]string{"serial": "SN9", "agent_address": "tunnel", "architecture": "x86_64", "boot_mode": "uefi"})}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	if all, err := o.desk.Machines.Admitted(t.Context()); err != nil || all[key].Server != "gpu-9" {
		t.Errorf("its machine stands at %+v: %v", all, err)
	}
	if p := Compare(o.desk.Inventory.Snapshot(), Who{Server: "gpu-9", Machine: key}, d); len(p.Differences) != 0 {
		t.Errorf("it still differs: %+v", p.Differences)
	}
	// The parts that the agent of another server brings are beside them.
	more := same()
	more.Disks = []Part{{Name: "nvme0", Serial: "S6CKNE0T"}}
	p, _ = o.offer(t, Who{Server: "a"}, more)
	if _, err := o.desk.Accept(t.Context(), p.ID, "", "ana", ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"gpu-9/gpu0", "a/nvme0", "a/gpu0", "b/gpu0"} {
		if _, there := o.desk.Inventory.Snapshot().Resource(id); !there {
			t.Errorf("%s is gone", id)
		}
	}
	var rows []string
	all, err := audit.New(o.db, time.Now).List(t.Context(), 0, 5)
	for _, r := range all {
		rows = append(rows, strings.Join([]string{r.Actor, r.Verb, r.Kind, r.Subject}, " "))
	}
	if diff := cmp.Diff([]string{
		"ana import inventory agent", "ana accept proposal a", "ana import inventory agent", "ana accept proposal gpu-9", "ana place machine gpu-9",
	}, rows); diff != "" || err != nil {
		t.Errorf("in the audit: %v %s", err, diff)
	}
}

// Where one part of an acceptance fails, nothing of it is done.
func TestAnAcceptanceThatFailsChangesNothing(t *testing.T) {
	o := newOffice(t)
	o.joins(t, join.Spec{Name: "image"})
	p, _ := o.offer(t, Who{Machine: key}, &Description{Hostname: "gpu-9", Serial: "SN9"})
	if err := o.desk.Machines.RevokeMachine(t.Context(), "bo", key); err != nil {
		t.Fatal(err)
	}
	if _, err := o.desk.Accept(t.Context(), p.ID, "", "ana", ""); !errors.Is(err, join.ErrMachine) {
		t.Errorf("the proposal of a machine that was revoked: %v", err)
	}
	if _, there := o.desk.Inventory.Snapshot().Resource("gpu-9"); there {
		t.Error("its server is in the inventory")
	}
	if got, err := o.desk.Get(t.Context(), p.ID); err != nil || got.State != Open {
		t.Errorf("it is %s: %v", got.State, err)
	}
}

// What hangs on a server that is gone does not come in without it.
func TestAProposalThatNoLongerFitsIsTold(t *testing.T) {
	o := newOffice(t)
	d := same()
	d.Disks = []Part{{Name: "nvme0", Serial: "S6CKNE0T"}}
	p, _ := o.offer(t, Who{Server: "a"}, d)
	without := site()
	without.Resources = slices.DeleteFunc(without.Resources, func(r schemas.Resource) bool { return r.ID == "a" || r.Parent == "a" })
	without.Links = without.Links[1:]
	if _, err := o.desk.Inventory.Import(t.Context(), cmdb.Draft{Topology: without}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.desk.Accept(t.Context(), p.ID, "", "ana", ""); !errors.Is(err, ErrUnfit) {
		t.Errorf("error %v", err)
	}
	if _, there := o.desk.Inventory.Snapshot().Resource("a/nvme0"); there {
		t.Error("a disk of nothing is in the inventory")
	}
}

// A cable that was moved is in one port alone of what the agents bring.
func TestACableThatMovedIsInOnePort(t *testing.T) {
	o := newOffice(t)
	d := same()
	d.NICs = append(d.NICs, Part{Name: "ens2", MAC: "b8:3f:d2:4a:11:0f"})
	for _, port := range []string{"Ethernet3", "Ethernet1"} {
		d.Neighbors = []Neighbor{{Interface: "ens2", System: "leaf-1", Port: port}}
		p, _ := o.offer(t, Who{Server: "a"}, d)
		if _, err := o.desk.Accept(t.Context(), p.ID, "", "ana", "moved"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]schemas.Link{{From: "leaf-1/" + port, To: "a/ens2", Kind: "network"}}, o.desk.Inventory.Snapshot().Links("a/ens2")); diff != "" {
			t.Errorf("in %s: %s", port, diff)
		}
	}
}

// liar is an agent that says what it likes.
type liar struct {
	gpb.UnimplementedGNMIServer
	tell func(send func(path, text string))
}

// Subscribe implements [gpb.GNMIServer].
func (l *liar) Subscribe(s gpb.GNMI_SubscribeServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	n := &gpb.Notification{}
	flush := func() {
		_ = s.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: n}})
		n = &gpb.Notification{}
	}
	l.tell(func(path, text string) {
		p, err := target.ParsePath(path)
		if err != nil {
			panic(err)
		}
		n.Update = append(n.Update, &gpb.Update{Path: p, Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: text}}})
		if len(n.Update) == 500 {
			flush()
		}
	})
	flush()
	return s.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}})
}

func serve(t *testing.T, s gpb.GNMIServer) *grpc.ClientConn {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	gpb.RegisterGNMIServer(srv, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	conn, err := gnmiclient.Dial(l.Addr().String(), nil, 4<<20, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); srv.Stop(); <-done })
	return conn
}

func TestADescriptionThatNobodyCouldKeepIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(send func(path, text string))
		want string
	}{
		"a megabyte of serial number": {func(send func(path, text string)) { send("/identity/state/serial", strings.Repeat("a", 1<<20)) }, "more than 256 characters"},
		"100,000 GPUs": {func(send func(path, text string)) {
			for i := range 100_000 {
				send(fmt.Sprintf("/gpus/gpu[name=gpu%d]/state/uuid", i), "GPU-1")
			}
		}, "more than 64 of /gpus/gpu"},
		"the same for ever": {func(send func(path, text string)) {
			for range 100_000 {
				send("/identity/state/serial", "S")
			}
		}, "it says more than 20000 things"},
		"a name with a slash":       {func(send func(path, text string)) { send("/host/nic[name=a/../b]/state/name", "x") }, `"a/../b" of /host/nic is no name`},
		"a name of control":         {func(send func(path, text string)) { send("/host/nic[name=a\nb]/state/name", "x") }, `is no name`},
		"control in a text":         {func(send func(path, text string)) { send("/identity/state/product", "a\x1b[2Jb") }, "do not print"},
		"a text in a script beyond": {func(send func(path, text string)) { send("/identity/state/product", "a\u202eb") }, "are not of ASCII"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Describe(t.Context(), gpb.NewGNMIClient(serve(t, &liar{tell: c.tell})))
			if !errors.Is(err, ErrDescription) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 {
				t.Errorf("error %.600v", err)
			}
		})
	}
}

// one is a single agent that can be reached.
type one struct {
	who  Who
	conn func() *grpc.ClientConn
}

// Agents implements [Agents].
func (o *one) Agents() []Who { return []Who{o.who} }

// Dial implements [Agents].
func (o *one) Dial(ctx context.Context, _ Who) (context.Context, *grpc.ClientConn, error) {
	return ctx, o.conn(), nil
}

// A description is read when it has changed, and what contradicts nothing is accepted at
// once where the token says so.
// agent has an agent that says what set gives it read, as the machine that joined.
func (o *office) agent(t *testing.T, leaves map[string]string) (set func(map[string]string)) {
	t.Helper()
	tree := target.NewTree()
	set = func(leaves map[string]string) {
		refs := map[string]target.Ref{}
		for path := range leaves {
			refs[path] = tree.Leaf(path)
		}
		w := tree.Write(time.Now())
		defer w.Close()
		for path, v := range leaves {
			w.Text(refs[path], v)
		}
	}
	set(leaves)
	cfg := target.DefaultConfig()
	cfg.Access = target.Access{Anonymous: true}
	s, err := target.NewServer(tree, cfg)
	if err != nil {
		t.Fatal(err)
	}
	conn := serve(t, s)
	r := NewRunner(Config{Interval: time.Second, Timeout: 5 * time.Second}, &one{Who{Machine: key, Token: "image"}, func() *grpc.ClientConn {
		c, err := gnmiclient.Dial(strings.TrimPrefix(conn.Target(), "passthrough:///"), nil, 4<<20, time.Second)
		if err != nil {
			t.Error(err)
		}
		return c
	}}, o.desk.Inventory, o.desk.Store, o.desk.Machines, cmdb.DefaultBounds(), slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return set
}

func TestADescriptionIsReadWhenItChanges(t *testing.T) {
	for _, accept := range []bool{false, true} {
		t.Run(fmt.Sprint("accept ", accept), func(t *testing.T) {
			o := newOffice(t)
			o.joins(t, join.Spec{Name: "image", Accept: accept})
			set := o.agent(t, map[string]string{
				"/identity/state/digest": "1", "/identity/state/serial": "SN9", "/identity/state/hostname": "gpu-9",
				"/gpus/gpu[name=gpu0]/state/uuid": "GPU-99999999-0000-0000-0000-000000000000",
			})
			if accept {
				waittest.For(t, "not accepted", func() bool { _, there := o.desk.Inventory.Snapshot().Resource("gpu-9/gpu0"); return there })
				return
			}
			var first []string
			waittest.For(t, "not offered", func() bool { first = o.list(t, Open); return len(first) == 1 })
			set(map[string]string{"/identity/state/serial": "SN10"}) // the digest is the same: it is not read
			time.Sleep(2500 * time.Millisecond)                      // two intervals in which nothing may happen
			if now := o.list(t, Open); !slices.Equal(now, first) {
				t.Errorf("it was read without need: %v, then %v", first, now)
			}
			set(map[string]string{"/identity/state/digest": "2"})
			waittest.For(t, "not read again", func() bool { now := o.list(t, Open); return len(now) == 1 && now[0] != first[0] })
		})
	}
}
