package tinkerbell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/control/messages"
	"auspex/schemas"
)

// switched is the driver of a boot device, as a board controller has it.
type switched struct {
	mu   sync.Mutex
	is   string // "" is that nothing is set
	none error  // that it cannot be told
	sent int
}

// Plan implements control.Remediator.
func (b *switched) Plan(context.Context, control.Step) (schemas.Sentence, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return schemas.Sentence{}, b.none
}

// Apply implements control.Remediator.
func (b *switched) Apply(_ context.Context, s control.Step) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent++
	if s.With["target"] == "none" {
		b.is = ""
	}
	return nil
}

// Verify implements control.Remediator.
func (b *switched) Verify(_ context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.is == "" && s.With["target"] == "none" {
		return control.Verified, schemas.Sentence{}, nil
	}
	return control.Pending, messages.New(messages.BootIs, messages.Args{"now": b.is}), nil
}

func resetting(server string) control.Step {
	return control.Step{ID: "act-net", Kind: kindNetwork, Server: server, Target: server, Reason: "a test", Since: time.Now()}
}

// released reads what a release has come to, as control does.
func released(t *testing.T, n *network, s control.Step, want control.Verdict) string {
	t.Helper()
	v, said, err := n.Verify(t.Context(), s)
	if err != nil || v != want {
		t.Fatalf("verdict %d, want %d: %s: %v", v, want, messages.Text(said), err)
	}
	return messages.Text(said)
}

// late has what changes hardware answered, and done only when it is let.
type late struct {
	http.Handler
	mu   sync.Mutex
	held []*http.Request
	n    int
}

// ServeHTTP implements http.Handler.
func (l *late) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/"+hardware+"/") {
		l.Handler.ServeHTTP(w, r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	again := r.Clone(context.WithoutCancel(r.Context()))
	again.Body = io.NopCloser(bytes.NewReader(body))
	l.held, l.n = append(l.held, again), l.n+1
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"kind":"Hardware","apiVersion":"` + group.String() + `"}`))
}

func (l *late) let() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.held {
		l.Handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	l.held = nil
}

func TestConformanceOfNetworks(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{kindNetwork}, Some: true,
		World: func(t *testing.T, m controltest.Manner) controltest.World {
			a, s := newAPI(t), newStock(server, mac)
			i := a.driver(s)
			if _, err := i.putHardware(t.Context(), &s.record, nil); err != nil {
				t.Fatal(err)
			}
			a.say(hardware, server, map[string]any{"metadata": map[string]any{"annotations": map[string]any{netbootFor: "one that is gone"}}})
			l := &late{Handler: a}
			srv := httptest.NewServer(controltest.Behave(m, l, func(r *http.Request) bool { return r.Method == http.MethodPatch }))
			if m == controltest.Gone {
				srv.Close()
			} else {
				t.Cleanup(srv.Close)
			}
			c := defaults()
			c.Kubeconfig, c.Boot = kubeconfigFor(t, srv.URL), bootNone
			return controltest.World{
				Driver: c, Settings: control.Settings{Installs: s, Secrets: s, Wipes: s}, Server: server,
				Asked:   func() int { l.mu.Lock(); defer l.mu.Unlock(); return l.n },
				Effects: map[string][]func(){kindNetwork: {l.let}},
			}
		},
	})
}

// What we wrote and the record says no more, what we left open and what we began is taken back; what others have stays, and is named.
func TestAReleaseTakesBackWhatWasWrittenAboutTheNetwork(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	s.record.Overrides.UserData = "#cloud-config\n{}\n"
	i := a.driver(s)
	boot := &switched{is: "Pxe Once"}
	n := &network{i: i}
	n.Through(map[string]control.Remediator{"set_boot": boot})
	install := reinstall("act-1")
	if err := i.Apply(t.Context(), install); err != nil {
		t.Fatal(err)
	}
	a.wants(i, install, control.Pending, "is NEW; no step has begun") // its start from the network is open
	a.runs("auspex-act-1", "STATE_RUNNING", "RUNNING", "")
	ifaces := a.of(hardware, server)["spec"].(map[string]any)["interfaces"].([]any)
	ifaces[0].(map[string]any)["disableDhcp"] = false // as the real API fills in
	into(ifaces[0].(map[string]any), "netboot")["ipxe"] = map[string]any{"url": "http://example.com/theirs"}
	a.say(hardware, server, map[string]any{
		"metadata": map[string]any{"managedFields": []any{map[string]any{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": map[string]any{"f:spec": map[string]any{
			"f:interfaces": map[string]any{}, "f:metadata": map[string]any{"f:instance": map[string]any{"f:ssh_keys": map[string]any{}}, "f:facility": map[string]any{"f:facility_code": map[string]any{}}},
		}}}}},
		"spec": map[string]any{"interfaces": ifaces, "metadata": map[string]any{"instance": map[string]any{"ssh_keys": []any{"ssh-ed25519 X"}}, "facility": map[string]any{"facility_code": "onprem"}}},
	})
	s.says(func(r *schemas.HardwareRecord) { r.Overrides.UserData, r.Model = "", "" }) // the next user is to get none of it
	step := resetting(server)
	version := a.version
	plan, err := n.Plan(t.Context(), step)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{messages.Text(plan), released(t, n, step, control.Pending)} {
		for _, want := range []string{
			"workflow tink/auspex-act-1 is RUNNING", "spec.userData is 17 bytes, SHA-256", "spec.metadata.facility.plan_slug is m, and the record says nothing",
			"it may start from the network auspex-act-1", "has Pxe Once for the next boot",
			"left to others: spec.metadata.facility.facility_code is onprem, and the record says dc1 (kubectl-edit)",
			"spec.interfaces[" + mac + "].netboot.ipxe (kubectl-edit)", "spec.metadata.instance.ssh_keys (kubectl-edit)",
		} {
			if !strings.Contains(said, want) {
				t.Errorf("it does not say %q: %s", want, said)
			}
		}
		if strings.Contains(said, "cloud-config") || strings.Contains(said, "disableDhcp") || strings.Contains(said, "ed25519") {
			t.Errorf("it tells what may be secret: %s", said)
		}
	}
	if so, _, err := n.Settled(t.Context(), step); so || err != nil || a.version != version || boot.sent != 0 {
		t.Fatalf("looking has changed something: %v, %v", so, err)
	}
	if err := n.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	said := released(t, n, step, control.Verified)
	if !strings.Contains(said, "left to others: spec.metadata.facility.facility_code is onprem") || strings.Contains(said, "userData") {
		t.Error(said)
	}
	spec := a.of(hardware, server)["spec"].(map[string]any)
	b, _ := json.Marshal(spec)
	for _, gone := range []string{"userData", "plan_slug", `"allowPXE":true`} {
		if strings.Contains(string(b), gone) {
			t.Errorf("%s is left: %s", gone, b)
		}
	}
	for _, kept := range []string{"ssh-ed25519 X", "onprem", "example.com/theirs", `"hostname":"` + server} {
		if !strings.Contains(string(b), kept) {
			t.Errorf("%s is gone: %s", kept, b)
		}
	}
	if a.count(workflows) != 0 || a.count(templates) != 0 || boot.is != "" || boot.sent != 1 {
		t.Errorf("%d workflows, %d templates, boot %q set %d times", a.count(workflows), a.count(templates), boot.is, boot.sent)
	}
	version = a.version
	if so, _, err := n.Settled(t.Context(), step); !so || err != nil {
		t.Error("nothing is left to do, and it is not settled", err)
	}
	if err := n.Apply(t.Context(), step); err != nil || a.version != version || boot.sent != 1 {
		t.Errorf("it is done again: %v", err)
	}
}

func TestAServerThatTinkerbellNeverHadHasNothingToTakeBack(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	n := &network{i: a.driver(s)}
	for name, tc := range map[string]struct {
		boot control.Remediator
		want string
	}{
		"nobody reads what it starts from": {nil, "what it starts from next, which nobody here reads"},
		"its controller is out of reach":   {&switched{none: fmt.Errorf("%w: no address", control.ErrCannot)}, "what it starts from next: " + control.ErrCannot.Error() + ": no address"},
		"all is as it should be":           {&switched{}, "left to others: -"},
	} {
		n.boot = tc.boot
		if said := released(t, n, resetting(server), control.Verified); !strings.Contains(said, tc.want) {
			t.Errorf("%s: %s", name, said)
		}
	}
	n.boot = &switched{none: errors.New("connection refused")}
	if v, _, err := n.Verify(t.Context(), resetting(server)); err == nil || v != control.Pending {
		t.Error("a controller that does not answer is taken for one that has nothing set", v)
	}
	if a.version != 100 {
		t.Error("something was made")
	}
}

// A server on which somebody else's workflow goes on is nobody's next server.
func TestAWorkflowOfOthersKeepsAServerFromBeingReleased(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i := a.driver(s)
	if _, err := i.putHardware(t.Context(), &s.record, nil); err != nil {
		t.Fatal(err)
	}
	a.add(hardware, map[string]any{"metadata": map[string]any{"name": "other", "namespace": "tink", "uid": "x", "labels": map[string]any{managedBy: "capt"}}, "spec": map[string]any{
		"interfaces": []any{map[string]any{"dhcp": map[string]any{"mac": mac}, "netboot": map[string]any{"allowPXE": true}}},
	}})
	n := &network{i: i}
	if said := released(t, n, resetting(server), control.Verified); !strings.Contains(said, "hardware tink/other, which belongs to capt, has the address "+mac+" of "+server+", and lets it start from the network") {
		t.Error(said)
	}
	a.add(workflows, map[string]any{
		"metadata": map[string]any{"name": "theirs", "namespace": "tink", "uid": "y", "labels": map[string]any{managedBy: "capt"}}, "spec": map[string]any{"hardwareRef": server}, "status": map[string]any{"state": "STATE_RUNNING"},
	})
	version := a.version
	for name, err := range map[string]error{
		"plan":   func() error { _, err := n.Plan(t.Context(), resetting(server)); return err }(),
		"apply":  n.Apply(t.Context(), resetting(server)),
		"verify": func() error { _, _, err := n.Verify(t.Context(), resetting(server)); return err }(),
	} {
		if !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "workflow tink/theirs, which belongs to capt, is RUNNING on "+server) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a.version != version {
		t.Error("something was done")
	}
}

// What comes after something was done is no refusal, from which one would conclude that nothing was.
func TestARefusalInTheMiddleIsNoRefusal(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, install := a.driver(s), reinstall("act-1")
	if err := i.Apply(t.Context(), install); err != nil {
		t.Fatal(err)
	}
	a.wants(i, install, control.Pending, "is NEW")
	a.forbid = func(r *http.Request) bool { return r.Method == http.MethodDelete }
	n := &network{i: i}
	if err := n.Apply(t.Context(), resetting(server)); err == nil || errors.Is(err, control.ErrRejected) {
		t.Errorf("the workflow may not be taken away: %v", err)
	}
	if a.allowed() {
		t.Error("it may still start from the network")
	}
	released(t, n, resetting(server), control.Pending)
}

func TestAReleaseOnTheRealTinkerbellTakesBackWhatWasWritten(t *testing.T) {
	s := realSite(t)
	s.stock.record.Overrides.UserData = "#cloud-config\n{}\n"
	i, _ := s.driver()
	boot := &switched{is: "Pxe Once"}
	n := &network{i: i, boot: boot}
	if err := i.Apply(t.Context(), s.step); err != nil {
		t.Fatal(err)
	}
	s.until(i, control.Pending, "is PENDING; no step has begun")
	base := "/apis/tinkerbell.org/v1alpha1/namespaces/tink/hardware/" + s.step.Server
	s.call("PATCH", base+"?fieldManager=argocd&force=true", "application/apply-patch+yaml", map[string]any{
		"apiVersion": group.String(), "kind": "Hardware", "metadata": map[string]any{"name": s.step.Server},
		"spec": map[string]any{"metadata": map[string]any{"instance": map[string]any{"ssh_keys": []any{"ssh-ed25519 X"}}}},
	})
	s.stock.says(func(r *schemas.HardwareRecord) { r.Overrides.UserData = "" })
	step := resetting(s.step.Server)
	if said := released(t, n, step, control.Pending); !strings.Contains(said, "it may start from the network auspex-"+s.step.ID) || !strings.Contains(said, "spec.userData is 17 bytes") {
		t.Error(said)
	}
	if err := n.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	if said := released(t, n, step, control.Verified); !strings.Contains(said, "left to others: spec.metadata.instance.ssh_keys (argocd)") {
		t.Error(said)
	}
	s.closed()
	h := s.machine()
	keys, _ := sub(h.Spec.Metadata, "instance")["ssh_keys"].([]any)
	if h.Spec.UserData != nil || !slices.Equal(keys, []any{"ssh-ed25519 X"}) || boot.is != "" {
		t.Errorf("%+v, boot %q", h.Spec, boot.is)
	}
	if w, err := s.admin.workflow(t.Context(), workflowName(s.step)); err != nil || w != nil {
		t.Error("its workflow is there", err)
	}
}
