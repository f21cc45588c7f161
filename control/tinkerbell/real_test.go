package tinkerbell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/foreign"
	conflictstore "auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// peer returns a variable that test/peers/tinkerbell.sh prints.
func peer(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatalf("%s is not set: test/e2e.sh starts the peer and sets it", name)
		}
		t.Skipf("%s is not set: run `make e2e` to test against this peer", name)
	}
	return v
}

// site is a real Tinkerbell, with a server of its own for each test.
type site struct {
	*testing.T
	admin *cluster
	stock *stock
	mac   string
	step  control.Step
}

var serial atomic.Uint32

// realSite gives the user auspex the role of the manifest and nothing more.
func realSite(t *testing.T) *site {
	admin := defaults()
	admin.Kubeconfig = peer(t, "TINK_ADMIN")
	s := &site{T: t, admin: &cluster{cfg: *admin, metrics: newMetrics(nil)}}
	b, err := os.ReadFile("../../deploy/kubernetes/tinkerbell.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	for {
		var doc map[string]any
		if dec.Decode(&doc) != nil {
			break
		}
		path := map[string]string{"Role": "roles", "RoleBinding": "rolebindings"}[doc["kind"].(string)]
		if doc["kind"] == "RoleBinding" {
			doc["subjects"] = []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "auspex"}}
		}
		name := doc["metadata"].(map[string]any)["name"].(string)
		s.call("PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/tink/"+path+"/"+name+"?fieldManager=test&force=true", types.ApplyPatchType, doc)
	}
	n := uint32(time.Now().UnixNano()/1e6)&0xffff00 | serial.Add(1)
	s.mac = fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
	name := fmt.Sprintf("srv-%06x", n)
	s.stock = newStock(name, s.mac)
	s.step = control.Step{ID: "act-" + name, Kind: kindReinstall, Server: name, Target: name, Reason: "a test", Since: time.Now()}
	return s
}

// call asks the API as its administrator.
func (s *site) call(verb, path string, kind types.PatchType, body any) {
	s.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		s.Fatal(err)
	}
	if kind == "" {
		kind = "application/json"
	}
	if err := s.admin.do(s.Context(), verb, path, func(c *rest.RESTClient) *rest.Request {
		return c.Verb(verb).RequestURI(path).SetHeader("Content-Type", string(kind)).Body(b)
	}, nil); err != nil {
		s.Fatal(err)
	}
}

// driver is one as a process that starts has it; with its watch, until it is killed.
func (s *site) driver(edit ...func(*Config)) (i *installer, kill func()) {
	s.Helper()
	c := defaults()
	c.Kubeconfig, c.Boot = peer(s.T, "TINK_AUSPEX"), bootNone
	for _, e := range edit {
		e(c)
	}
	all, err := c.Remediators(control.Settings{Installs: s.stock, Secrets: s.stock})
	if err != nil {
		s.Fatal(err)
	}
	i = all[kindReinstall].(*installer)
	return i, follow(s.T, i)
}

// worker starts what runs the actions of the server, as it does once it has started from the network.
func (s *site) worker() (kill func()) {
	s.Helper()
	cmd := exec.Command(peer(s.T, "TINK_WORKER"), "--id", s.mac, "--sleep-min", "1s", "--sleep-jitter", "1s")
	cmd.Env = append(os.Environ(), "TINKERBELL_GRPC_AUTHORITY="+peer(s.T, "TINK_GRPC"), "TINKERBELL_TLS=false")
	log, err := os.Create(filepath.Join(s.TempDir(), "worker.log"))
	if err != nil {
		s.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	kill = func() { _ = cmd.Process.Kill(); <-done }
	s.Cleanup(func() {
		kill()
		if s.Failed() {
			b, _ := os.ReadFile(log.Name())
			s.Logf("worker: %s", b)
		}
		_ = log.Close()
	})
	return kill
}

// until looks as control does, until a verdict, or what is said, is what the test waits for.
func (s *site) until(i *installer, want control.Verdict, words string) string {
	s.Helper()
	last := ""
	waittest.Until(s.T, func() error {
		v, said, err := look(s.Context(), i, s.step)
		if said != "" && said != last {
			last = said
			s.Log(said)
		}
		switch {
		case err != nil:
			return err
		case v != want && v != control.Pending:
			s.Fatalf("verdict %d: %s", v, said)
		case v != want || !strings.Contains(said, words):
			return fmt.Errorf("verdict %d: %s", v, said)
		}
		return nil
	})
	return last
}

func (s *site) machine() *Hardware {
	s.Helper()
	h := &Hardware{}
	found, err := s.admin.get(s.Context(), hardware, s.step.Server, h)
	if err != nil || !found {
		s.Fatalf("hardware: %v, %v", found, err)
	}
	return h
}

func (s *site) closed() {
	s.Helper()
	if h := s.machine(); h.open() || h.Annotations[netbootFor] != "" {
		s.Errorf("the server may start from the network: %+v", h)
	}
	w, err := s.admin.workflow(s.Context(), workflowName(s.step))
	if err != nil {
		s.Fatal(err)
	}
	if w != nil {
		if found, err := s.admin.get(s.Context(), templates, w.Spec.TemplateRef, &Template{}); err != nil || found {
			s.Errorf("its template is there: %v", err)
		}
	}
}

func TestAServerIsInstalledThroughTheRealTinkerbell(t *testing.T) {
	s := realSite(t)
	i, _ := s.driver()
	plan, err := i.Plan(t.Context(), s.step)
	if err != nil || !strings.Contains(messages.Text(plan), "linux@2") {
		t.Fatal(plan, err)
	}
	for range 2 {
		if err := i.Apply(t.Context(), s.step); err != nil {
			t.Fatal(err)
		}
	}
	s.until(i, control.Pending, "is PENDING; no step has begun")
	if !s.machine().open() {
		t.Error("the server may not start from the network")
	}
	s.worker()
	s.until(i, control.Pending, "of 2")
	s.until(i, control.Verified, "all 2 steps")
	s.closed()
	v, said, err := look(t.Context(), i, s.step) // and after a restart
	if err != nil || v != control.Verified {
		t.Error(v, said, err)
	}
}

func TestAWorkerThatDiesOnTheRealTinkerbellEndsTheInstallation(t *testing.T) {
	s := realSite(t)
	s.stock.template.Text = strings.ReplaceAll(text, "timeout: 90", "timeout: 4")
	i, _ := s.driver()
	if err := i.Apply(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	kill := s.worker()
	s.until(i, control.Pending, "step 1 of 2, write (RUNNING)")
	kill()
	said := s.until(i, control.Failed, "")
	if !strings.Contains(said, "ended as TIMEOUT at step 1 of 2, write") && !strings.Contains(said, "ended as TIMEOUT at step 2 of 2") {
		t.Error(said)
	}
	s.closed()
}

func TestAServerThatNeverComesIsGivenUp(t *testing.T) {
	s := realSite(t)
	i, _ := s.driver(func(c *Config) { c.Deadline = 3 * time.Second })
	if err := i.Apply(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	s.until(i, control.Failed, "had not ended within 3s")
	s.closed()
	if w, err := s.admin.workflow(t.Context(), workflowName(s.step)); err != nil || w != nil {
		t.Error("its workflow is there", err)
	}
}

func TestAKillInTheMiddleOnTheRealTinkerbellSendsNothingTwice(t *testing.T) {
	s := realSite(t)
	i, kill := s.driver(withBMC)
	boot, cycle := &lever{}, &lever{}
	through := map[string]control.Remediator{"set_boot": boot, "power_cycle": cycle}
	i.Through(through)
	if err := i.Apply(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		_, said, err := look(t.Context(), i, s.step)
		if cycle.times() == 0 {
			return errors.Join(errors.New(said), err)
		}
		return nil
	})
	before, err := s.admin.workflow(t.Context(), workflowName(s.step))
	if err != nil || before == nil {
		t.Fatal(err)
	}
	s.worker()
	s.until(i, control.Pending, "step 1 of 2")
	kill()
	i, _ = s.driver(withBMC)
	i.Through(through)
	s.until(i, control.Verified, "all 2 steps")
	after, err := s.admin.workflow(t.Context(), workflowName(s.step))
	if err != nil || after == nil || after.UID != before.UID || boot.times() != 1 || cycle.times() != 1 {
		t.Errorf("boot %v, cycle %v, %v", boot.asked, cycle.asked, err)
	}
	s.closed()
}

// Nobody waits for it any more: it has ended while control was away, and is closed by whoever follows.
func TestAnInstallationThatEndsWhileNobodyLooksIsClosedOnTheRealTinkerbell(t *testing.T) {
	s := realSite(t)
	i, kill := s.driver()
	if err := i.Apply(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	s.until(i, control.Pending, "PENDING")
	kill()
	s.worker()
	waittest.Until(t, func() error {
		w, err := s.admin.workflow(t.Context(), workflowName(s.step))
		if err != nil || w == nil || !w.ended() {
			return errors.Join(errors.New("it goes on"), err)
		}
		return nil
	})
	if !s.machine().open() {
		t.Fatal("somebody has closed it")
	}
	s.driver()
	waittest.Until(t, func() error {
		if s.machine().open() {
			return errors.New("the server may start from the network")
		}
		return nil
	})
}

func TestTheRealAPIMayBeKilledInTheMiddle(t *testing.T) {
	s := realSite(t)
	dir := peer(t, "TINK_DIR")
	s.stock.template.Text = strings.ReplaceAll(text, "timeout: 90", "timeout: 300")
	i, _ := s.driver()
	if err := i.Apply(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	s.until(i, control.Pending, "PENDING")
	waittest.Until(t, func() error {
		if w := i.flows.workflow("tink", workflowName(s.step)); w == nil || w.Annotations[bootPhase] != phaseOpen {
			return errors.New("the watch has not seen it whole") // what is left to do for a start is read anew, which needs the API
		}
		return nil
	})
	b, err := os.ReadFile(filepath.Join(dir, "api", "kube-api.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(b))[0])
	if err != nil {
		t.Fatal(err)
	}
	back := func() {
		out, err := exec.Command("../../test/peers/tinkerbell.sh", "start", dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(back)
	s.until(i, control.Pending, "the Kubernetes API cannot be followed since")
	another := s.step
	another.ID += "-b"
	if err := i.Apply(context.WithoutCancel(t.Context()), another); !errors.Is(err, control.ErrRejected) {
		t.Errorf("without an API: %v", err)
	}
	back()
	s.worker()
	s.until(i, control.Verified, "all 2 steps")
	s.closed()
}

func TestWhatIsNotOursOnTheRealTinkerbellIsLeftAlone(t *testing.T) {
	s := realSite(t)
	i, _ := s.driver()
	base := "/apis/tinkerbell.org/v1alpha1/namespaces/tink/"
	s.call("POST", base+"hardware?fieldManager=kubectl-create", "", map[string]any{
		"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Hardware", "metadata": map[string]any{"name": s.step.Server + "-theirs"},
		"spec": map[string]any{"interfaces": []any{map[string]any{"dhcp": map[string]any{"mac": s.mac}}}},
	})
	for name, err := range map[string]error{"apply": i.Apply(t.Context(), s.step), "plan": func() error { _, err := i.Plan(t.Context(), s.step); return err }()} {
		if err == nil || !strings.Contains(err.Error(), "hardware tink/"+s.step.Server+"-theirs, which belongs to kubectl-create, has the address "+s.mac) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.call("DELETE", base+"hardware/"+s.step.Server+"-theirs", "", map[string]any{})
	s.call("POST", base+"workflows?fieldManager=kubectl-create", "", map[string]any{
		"apiVersion": "tinkerbell.org/v1alpha1", "kind": "Workflow", "metadata": map[string]any{"name": s.step.Server + "-theirs"},
		"spec": map[string]any{"templateRef": "none", "hardwareMap": map[string]any{"device_1": s.mac}},
	})
	if err := i.Apply(t.Context(), s.step); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "workflow tink/"+s.step.Server+"-theirs, which belongs to kubectl-create") {
		t.Error(err)
	}
	if found, err := s.admin.get(t.Context(), hardware, s.step.Server, &Hardware{}); err != nil || found {
		t.Errorf("something was done: %v, %v", found, err)
	}
	s.call("DELETE", base+"workflows/"+s.step.Server+"-theirs", "", map[string]any{})
	if err := i.Apply(t.Context(), s.step); err != nil {
		t.Error(err)
	}
	if err := i.End(t.Context(), s.step); err != nil {
		t.Error(err)
	}
	s.closed()
}

func TestARightThatLacksOnTheRealAPIIsNamed(t *testing.T) {
	s := realSite(t)
	i, _ := s.driver(func(c *Config) { c.Kubeconfig = peer(t, "TINK_STRANGER") })
	err := i.Apply(t.Context(), s.step)
	if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), `cannot list resource "hardware" in API group "tinkerbell.org" in the namespace "tink"`) {
		t.Error(err)
	}
	waittest.Until(t, func() error {
		if why, _ := i.unseen(); why == nil || !strings.Contains(why.Error(), "the role lacks a right") {
			return fmt.Errorf("the watch says %w", why)
		}
		return nil
	})
}

// inventory is a real one with the server of a site, with what is kept of others and heard on the bus.
type inventory struct {
	*site
	db  *sqldb.DB
	inv *cmdb.Inventory
	bus *posted
}

// posted is what was put on the bus.
type posted struct {
	mu   sync.Mutex
	msgs []bus.Message
}

// Publish implements bus.Publisher.
func (p *posted) Publish(_ context.Context, msgs ...bus.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.msgs = append(p.msgs, msgs...)
	return nil
}

func (s *site) inventory() *inventory {
	s.Helper()
	i := &inventory{site: s, db: sqltest.Open(s.T), bus: &posted{}}
	i.inv = cmdb.New(cmdb.DefaultConfig(), i.db, nil, nil)
	if err := i.inv.Open(s.Context()); err != nil {
		s.Fatal(err)
	}
	name := s.step.Server
	if _, err := i.inv.Import(s.Context(), cmdb.Draft{Topology: schemas.Topology{Resources: []schemas.Resource{
		{ID: name, Kind: schemas.KindServer},
		{ID: name + "/nic0", Kind: schemas.KindNIC, Parent: name, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrMAC: s.mac})},
	}}}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		s.Fatal(err)
	}
	return i
}

// driver is one that tells of others, as a process that starts has it.
func (i *inventory) driver(edit ...func(*Config)) (d *installer, kill func()) {
	i.Helper()
	c := defaults()
	c.Kubeconfig, c.Boot = peer(i.T, "TINK_AUSPEX"), bootNone
	for _, e := range edit {
		e(c)
	}
	all, err := c.Remediators(control.Settings{
		Installs: i.stock, Secrets: i.stock, Foreign: foreign.New(i.db, i.inv, i.bus, slog.New(slog.DiscardHandler), nil),
	})
	if err != nil {
		i.Fatal(err)
	}
	d = all[kindReinstall].(*installer)
	return d, follow(i.T, d)
}

// open are the open conflicts about the server of the site.
func (i *inventory) open(want ...string) {
	i.Helper()
	slices.Sort(want)
	waittest.Until(i.T, func() error {
		all, _, err := conflictstore.New(i.db).List(i.Context(), conflictstore.Filter{Status: schemas.ConflictOpen, Resource: i.step.Server, Limit: 100})
		if err != nil {
			return err
		}
		got := []string{}
		for _, c := range all {
			got = append(got, fmt.Sprintf("%s: %s, not %s (%s, %s)", c.Field, c.Right.Value, c.Left.Value, c.Right.Owner, c.Right.Resource))
		}
		if slices.Sort(got); !slices.Equal(got, want) && len(got)+len(want) > 0 {
			return fmt.Errorf("open are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		return nil
	})
}

// told are the events about an object up to now.
func (i *inventory) told(object string) (out []string) {
	i.Helper()
	i.bus.mu.Lock()
	defer i.bus.mu.Unlock()
	for _, m := range i.bus.msgs {
		var b auspexv1.Batch
		if err := wire.Decode(m.Value, &b); err != nil {
			i.Fatal(err)
		}
		for _, ev := range b.GetEvents() {
			if ev.GetAttrs()["object"] == object {
				out = append(out, strings.TrimSpace(ev.GetType()+" "+ev.GetAttrs()["field"]+" "+ev.GetState()))
			}
		}
	}
	return out
}

// tells waits for the events about an object, which come after what is kept of it.
func (i *inventory) tells(object string, want ...string) {
	i.Helper()
	waittest.Until(i.T, func() error {
		if got := slices.Sorted(slices.Values(i.told(object))); !slices.Equal(got, want) {
			return fmt.Errorf("told is %q", got)
		}
		return nil
	})
}

func TestWhatOthersWriteInTheRealAPIIsShownAndLeft(t *testing.T) {
	s := realSite(t)
	i := s.inventory()
	d, kill := i.driver()
	base := "/apis/tinkerbell.org/v1alpha1/namespaces/tink/hardware"
	name, ours := s.step.Server, "tink/"+s.step.Server
	if err := d.Apply(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	s.until(d, control.Pending, "PENDING")
	if err := d.End(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	i.open()
	// Somebody edits what is ours: a list as a whole, as kubectl edit does, and one field by server-side apply.
	ifaces := s.machine().Spec.Interfaces
	into(ifaces[0], "dhcp")["hostname"] = "theirs"
	s.call("PATCH", base+"/"+name+"?fieldManager=kubectl-edit", types.MergePatchType, map[string]any{"spec": map[string]any{"interfaces": ifaces}})
	s.call("PATCH", base+"/"+name+"?fieldManager=argocd&force=true", types.ApplyPatchType, map[string]any{
		"apiVersion": group.String(), "kind": "Hardware", "metadata": map[string]any{"name": name}, "spec": map[string]any{"metadata": map[string]any{"facility": map[string]any{"facility_code": "onprem"}}},
	})
	s.call("POST", base+"?fieldManager=kubectl-create", "", map[string]any{
		"apiVersion": group.String(), "kind": "Hardware", "metadata": map[string]any{"name": name + "-theirs"},
		"spec": map[string]any{"interfaces": []any{map[string]any{"dhcp": map[string]any{"mac": s.mac, "arch": "aarch64", "uefi": true}, "netboot": map[string]any{"allowWorkflow": true}}}},
	})
	hostname := "spec.interfaces[" + s.mac + "].dhcp.hostname: theirs, not " + name + " (kubectl-edit, " + ours + ")"
	facility := "spec.metadata.facility.facility_code: onprem, not dc1 (argocd, " + ours + ")"
	twice := "hardware: " + ours + "-theirs, not " + ours + " (kubectl-create, " + ours + "-theirs)"
	arch := "spec.interfaces[" + s.mac + "].dhcp.arch: aarch64, not x86_64 (kubectl-create, " + ours + "-theirs)"
	i.open(hostname, facility, twice, arch)

	// Killed, and what has changed meanwhile is told by the next one, the rest not again.
	kill()
	s.call("DELETE", base+"/"+name+"-theirs", "", map[string]any{})
	d, _ = i.driver()
	i.open(hostname, facility)
	i.tells(ours, "hardware.conflict spec.interfaces["+s.mac+"].dhcp.hostname raised", "hardware.conflict spec.metadata.facility.facility_code raised")
	i.tells(ours+"-theirs", "hardware.conflict hardware cleared", "hardware.conflict hardware raised",
		"hardware.conflict spec.interfaces["+s.mac+"].dhcp.arch cleared", "hardware.conflict spec.interfaces["+s.mac+"].dhcp.arch raised")
	// An installation leaves what others have, and it stays theirs though the list was written by us last.
	s.stock.record.Model = "m2"
	again := s.step
	again.ID += "-b"
	s.step = again
	if err := d.Apply(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	s.until(d, control.Pending, "PENDING")
	waittest.Until(t, func() error {
		if !s.machine().open() {
			return errors.New("the server may not start from the network")
		}
		return nil
	})
	if err := d.End(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	h := s.machine()
	if says := h.Spec.says(); says["spec.interfaces["+s.mac+"].dhcp.hostname"] != "theirs" || says[fieldFacility+".facility_code"] != "onprem" || says[fieldFacility+".plan_slug"] != "m2" || h.open() {
		t.Error(says)
	}
	i.open(hostname, facility)
	// They put it back.
	ifaces = h.Spec.Interfaces
	into(ifaces[0], "dhcp")["hostname"] = name
	s.call("PATCH", base+"/"+name+"?fieldManager=kubectl-edit", types.MergePatchType, map[string]any{"spec": map[string]any{"interfaces": ifaces, "metadata": map[string]any{"facility": map[string]any{"facility_code": "dc1"}}}})
	i.open()
}

func TestAMachineInTheRealAPIThatNobodyKnowsIsFound(t *testing.T) {
	s := realSite(t)
	i := s.inventory()
	_, kill := i.driver()
	base := "/apis/tinkerbell.org/v1alpha1/namespaces/tink/hardware"
	name := s.step.Server + "-new"
	s.call("POST", base+"?fieldManager=kubectl-create", "", map[string]any{
		"apiVersion": group.String(), "kind": "Hardware", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"interfaces": []any{map[string]any{"dhcp": map[string]any{"mac": "0a" + s.mac[2:], "hostname": name}}}},
	})
	defer s.call("DELETE", base+"/"+name, "", map[string]any{})
	found := func() error {
		sweeps, _, err := discoveries.New(i.db).List(t.Context(), "", "", "", 10)
		if err != nil || len(sweeps) != 1 {
			return fmt.Errorf("%d sweeps: %w", len(sweeps), err)
		}
		finds, _, err := discoveries.New(i.db).Finds(t.Context(), sweeps[0].ID, "", "", 1000)
		if !slices.ContainsFunc(finds, func(f schemas.Find) bool {
			return f.Address == "tink/"+name && f.Hostname == name && f.NICs[0].MAC == "0a"+s.mac[2:]
		}) {
			return fmt.Errorf("finds are %+v: %w", finds, err)
		}
		return nil
	}
	waittest.Until(t, found)
	kill()
	d, _ := i.driver()
	waittest.Until(t, func() error {
		if !d.machines.synced() {
			return errors.New("it has not seen all")
		}
		return nil
	})
	if err := found(); err != nil {
		t.Error(err)
	}
	i.tells("tink/"+name, "hardware.discovered")
}

// Whom the API lets see nothing tells nothing, and settles nothing of what was told.
func TestWithoutTheRightToReadTheRealAPINothingIsSettled(t *testing.T) {
	s := realSite(t)
	i := s.inventory()
	_, kill := i.driver()
	base := "/apis/tinkerbell.org/v1alpha1/namespaces/tink/hardware"
	s.call("POST", base+"?fieldManager=kubectl-create", "", map[string]any{
		"apiVersion": group.String(), "kind": "Hardware", "metadata": map[string]any{"name": s.step.Server + "-theirs"},
		"spec": map[string]any{"interfaces": []any{map[string]any{"dhcp": map[string]any{"mac": s.mac, "arch": "x86_64", "uefi": true}, "netboot": map[string]any{"allowWorkflow": true}}}},
	})
	ours := "tink/" + s.step.Server
	twice := "hardware: " + ours + "-theirs, not " + ours + " (kubectl-create, " + ours + "-theirs)"
	i.open(twice)
	kill()
	s.call("DELETE", base+"/"+s.step.Server+"-theirs", "", map[string]any{})
	d, _ := i.driver(func(c *Config) { c.Kubeconfig = peer(t, "TINK_STRANGER") })
	waittest.Until(t, func() error {
		if why, _ := d.unseen(); why == nil {
			return errors.New("it is let in")
		}
		return nil
	})
	i.open(twice)
}
