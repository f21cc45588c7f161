package tinkerbell

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"auspex/internal/sim/device"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/kube"
	"auspex/internal/sim/ledger"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const installation = `version: "0.1"
name: ubuntu
global_timeout: 600
tasks:
  - name: install
    worker: "{{ .device_1 }}"
    actions:
      - name: write the image
        image: images.example/actions/image2disk:v1.0.0
        timeout: 300
        environment:
          DEST_DISK: {{ index .Hardware.Disks 0 }}
          IMG_URL: http://images.example/ubuntu.raw.gz
      - name: install the driver
        image: images.example/actions/cexec:v1.0.0
        timeout: 90
        environment:
          CMD_LINE: apt-get install -y nvidia-driver-version=575.51.03
      - name: reboot
        image: images.example/waitdaemon:0.2.1
        timeout: 90
        command: [reboot]
        environment:
          WAIT_SECONDS: "10"
`

// world is a fleet with Tinkerbell, on a clock of its own, and a client of the API.
type world struct {
	*testing.T

	fleet   *fleet.Fleet
	store   *kube.Store
	tink    *Service
	client  dynamic.Interface
	at      time.Time
	entries []ledger.Entry
}

func newWorld(t *testing.T, cfg fleet.Config) *world {
	w := &world{T: t, at: start}
	w.fleet = fleet.New(cfg, 1, t.TempDir(), ledger.Discard(func(e ledger.Entry) { w.entries = append(w.entries, e) }), start)
	if err := w.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	w.store = kube.NewStore(Resources(), []string{Namespace}, func() time.Time { return w.at })
	w.tink = New(w.store, w.fleet, DefaultTiming(), nil)
	srv := httptest.NewServer(w.tink.Handler("token"))
	var err error
	if w.client, err = dynamic.NewForConfig(&rest.Config{Host: srv.URL, BearerToken: "token", QPS: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		_ = w.fleet.Close()
	})
	return w
}

func small(t *testing.T) *world {
	return newWorld(t, fleet.Config{Site: "dc1", Racks: 1, ServersPerRack: 2, GPUs: 2, Spines: 1, CRACs: 1})
}

func (w *world) pass(d time.Duration) {
	w.Helper()
	for end := w.at.Add(d); w.at.Before(end); {
		w.at = w.at.Add(500 * time.Millisecond)
		if _, err := w.fleet.Step(w.at); err != nil {
			w.Fatal(err)
		}
		w.tink.Step(w.at)
	}
}

func (w *world) api(plural string) dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{Group: "tinkerbell.org", Version: "v1alpha1", Resource: plural}).Namespace(Namespace)
}

func (w *world) create(plural, kind, name string, spec map[string]any) {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tinkerbell.org/v1alpha1", "kind": kind, "spec": spec}}
	o.SetName(name)
	if _, err := w.api(plural).Create(w.Context(), o, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// know makes the hardware of a server and returns the address of its first interface.
func (w *world) know(server string, allow bool) string {
	w.Helper()
	mac := w.fleet.BMC(server).Info().MACs[0]
	w.create("hardware", "Hardware", server, map[string]any{
		"disks": []any{map[string]any{"device": "/dev/nvme0n1"}},
		"interfaces": []any{map[string]any{
			"netboot": map[string]any{"allowPXE": allow, "allowWorkflow": true}, "dhcp": map[string]any{"mac": mac, "arch": "x86_64", "uefi": true},
		}},
	})
	return mac
}

// order makes a workflow of a server.
func (w *world) order(name, template, server, mac string, toggle bool) {
	w.Helper()
	w.create("workflows", "Workflow", name, map[string]any{
		"templateRef": template, "hardwareRef": server, "hardwareMap": map[string]any{"device_1": mac},
		"bootOptions": map[string]any{"toggleAllowNetboot": toggle},
	})
}

// boot starts a server anew, from the network.
func (w *world) boot(server string, target string) {
	w.Helper()
	bmc := w.fleet.BMC(server)
	if err := bmc.SetBoot(device.Boot{Enabled: "Once", Target: target, Mode: "UEFI"}); err != nil {
		w.Fatal(err)
	}
	if err := bmc.Reset(device.ResetPowerCycle, "redfish", ""); err != nil {
		w.Fatal(err)
	}
}

func (w *world) workflow(name string) (wf workflow) {
	w.Helper()
	o, err := w.api("workflows").Get(w.Context(), name, metav1.GetOptions{})
	if err == nil {
		err = decode(o, &wf)
	}
	if err != nil {
		w.Fatal(err)
	}
	return wf
}

// is fails unless a workflow is in a state; actions are those of its actions.
func (w *world) is(name, state string, actions ...string) {
	w.Helper()
	wf := w.workflow(name)
	var got []string
	for _, t := range wf.Status.Tasks {
		for _, a := range t.Actions {
			got = append(got, strings.TrimPrefix(a.Status, "STATE_"))
		}
	}
	if strings.TrimPrefix(wf.Status.State, "STATE_") != state || actions != nil && !slices.Equal(got, actions) {
		w.Errorf("%s: workflow is %s, actions %v, want %s, %v", w.at.Sub(start), wf.Status.State, got, state, actions)
	}
}

func (w *world) machine(server string) (m fleet.Machine) {
	w.fleet.Machine(server, &m)
	return m
}

func (w *world) up(server string, want bool) {
	w.Helper()
	if up, _ := w.fleet.Ready(server); up != want {
		w.Errorf("%s: %s is up: %v", w.at.Sub(start), server, up)
	}
}

func (w *world) allowed(server string) bool {
	w.Helper()
	h, err := w.tink.hardware(server)
	if err != nil {
		w.Fatal(err)
	}
	return *h.Spec.Interfaces[0].Netboot.AllowPXE
}

// states are those that a workflow has had, as a watch tells them.
func (w *world) states(name string) (out []string) {
	w.Helper()
	watch, err := w.api("workflows").Watch(w.Context(), metav1.ListOptions{ResourceVersion: "1", FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	defer watch.Stop()
	for {
		e, ok := <-watch.ResultChan()
		o, is := e.Object.(*unstructured.Unstructured)
		if !ok || !is {
			w.Fatalf("the watch ends with %+v", e)
		}
		state, _, _ := unstructured.NestedString(o.Object, "status", "state")
		if state = strings.TrimPrefix(state, "STATE_"); len(out) == 0 || out[len(out)-1] != state {
			out = append(out, state)
		}
		if state == "SUCCESS" || state == "FAILED" || state == "TIMEOUT" {
			return out
		}
	}
}

const server = "gpu-r01-01"

func TestAServerIsInstalled(t *testing.T) {
	w := small(t)
	w.pass(2 * time.Second)
	if err := w.fleet.DamageDriver(server + "/gpu1"); err != nil {
		t.Fatal(err)
	}
	before := w.machine(server)
	mac := w.know(server, false)
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	w.order("install", "ubuntu", server, mac, true)
	w.pass(time.Second)
	w.is("install", "PENDING", "PENDING", "PENDING", "PENDING")
	if !w.allowed(server) {
		t.Error("the server may not start from the network")
	}
	w.boot(server, "Pxe")
	w.pass(22 * time.Second)
	w.is("install", "RUNNING")
	w.up(server, false)
	w.pass(90 * time.Second)
	w.is("install", "SUCCESS", "SUCCESS", "SUCCESS", "SUCCESS")
	w.up(server, true)
	if got, want := w.states("install"), []string{"", "PREPARING", "PENDING", "RUNNING", "POST", "SUCCESS"}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
	if w.allowed(server) {
		t.Error("the server may start from the network still")
	}
	var h fleet.Host
	w.fleet.Host(server, &h)
	if after := w.machine(server); after.ID == before.ID || h.Driver != "575.51.03" {
		t.Errorf("machine %s after %s, driver %s", after.ID, before.ID, h.Driver)
	}
	if _, whole := w.fleet.Ready(server); !whole {
		t.Error("what only another installation cures is there still")
	}
	if wf := w.workflow("install"); wf.Status.TemplateRendering != "successful" || wf.Status.Tasks[0].Actions[0].Seconds < 7 || len(wf.Status.Conditions) != 3 {
		t.Errorf("%+v", wf.Status)
	}
}

func TestNothingButAnotherInstallationMendsADamagedDriver(t *testing.T) {
	w := small(t)
	w.pass(2 * time.Second)
	if err := w.fleet.DamageDriver(server + "/gpu1"); err != nil {
		t.Fatal(err)
	}
	w.pass(5 * time.Second)
	for what, do := range map[string]func() error{
		"a reset":  func() error { return w.fleet.ResetGPUs(server, []int{0, 1}) },
		"a reload": func() error { return w.fleet.ReloadDriver(server) },
		"a cycle": func() error {
			return w.fleet.BMC(server).Reset(device.ResetPowerCycle, "redfish", "")
		},
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		w.pass(40 * time.Second)
		if up, whole := w.fleet.Ready(server); !up || whole {
			t.Errorf("after %s: up %v, whole %v", what, up, whole)
		}
	}
}

func TestWithoutLeaveToStartFromTheNetworkItStartsFromItsDisk(t *testing.T) {
	w := small(t)
	mac := w.know(server, false)
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	w.order("install", "ubuntu", server, mac, false)
	before := w.machine(server)
	w.boot(server, "Pxe")
	w.pass(60 * time.Second)
	w.up(server, true)
	w.is("install", "PENDING")
	if w.machine(server).ID != before.ID {
		t.Error("it was installed")
	}
}

func TestAnInstallationThatFailsLeavesNoSystem(t *testing.T) {
	w := small(t)
	mac := w.know(server, true)
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	w.order("install", "ubuntu", server, mac, false)
	if err := w.fleet.SetInstallFault(server, fleet.InstallFault{Fail: 1}); err != nil {
		t.Fatal(err)
	}
	w.boot(server, "Pxe")
	w.pass(60 * time.Second)
	w.is("install", "FAILED", "FAILED", "PENDING", "PENDING")
	w.boot(server, "Hdd")
	w.pass(60 * time.Second)
	w.up(server, false)
	if err := w.fleet.SetInstallFault(server, fleet.InstallFault{}); err != nil {
		t.Fatal(err)
	}
	w.order("again", "ubuntu", server, mac, false)
	w.boot(server, "Pxe")
	w.pass(2 * time.Minute)
	w.is("again", "SUCCESS")
	w.is("install", "FAILED")
	w.up(server, true)
}

func TestAWorkerThatDiedIsSeenOnlyWhenSomebodyPokes(t *testing.T) {
	w := small(t)
	mac := w.know(server, false)
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	w.order("install", "ubuntu", server, mac, true)
	if err := w.fleet.SetInstallFault(server, fleet.InstallFault{Hang: 2}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	w.boot(server, "Pxe")
	w.pass(20 * time.Minute)
	w.is("install", "RUNNING", "SUCCESS", "RUNNING", "PENDING")
	if _, err := w.api("workflows").Patch(t.Context(), "install", types.MergePatchType, []byte(`{"metadata":{"annotations":{"poke":"1"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	w.is("install", "TIMEOUT", "SUCCESS", "TIMEOUT", "PENDING")
	if !w.allowed(server) {
		t.Error("the controller has taken back that it may start from the network")
	}
}

func TestAnOutageOfTheInterfaceDelaysAnInstallation(t *testing.T) {
	w := small(t)
	mac := w.know(server, true)
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	w.order("install", "ubuntu", server, mac, false)
	w.boot(server, "Pxe")
	w.pass(22 * time.Second)
	w.is("install", "RUNNING")
	version := w.store.Version()
	w.fleet.SetServiceFault(device.Fault{Away: true})
	w.pass(time.Minute)
	if w.store.Version() != version {
		t.Error("somebody has written")
	}
	w.fleet.SetServiceFault(device.Fault{})
	w.pass(90 * time.Second)
	w.is("install", "SUCCESS")
	w.up(server, true)
}

func TestWhatSpeaksAgainstAnInstallation(t *testing.T) {
	for _, tc := range []struct{ name, old, with, state, detail string }{
		{"a disk that is not there", "{{ index .Hardware.Disks 0 }}", "/dev/sdz", "FAILED", "no such file"},
		{"too little time", "timeout: 300", "timeout: 2", "TIMEOUT", "its time is up"},
		{"a placeholder of nothing", "{{ .device_1 }}", "{{ .device_2 }}", "", "device_2"},
		{"no worker", "{{ .device_1 }}", "", "", "empty hardware address"},
		{"a bad image", "images.example/actions/image2disk:v1.0.0", "Image:x:y", "", "invalid action image"},
		{"no YAML", "tasks:", "tasks: [", "", "parsing yaml"},
		{"two of one name", "name: reboot", "name: write the image", "", "cannot have same name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := small(t)
			mac := w.know(server, true)
			w.create("templates", "Template", "ubuntu", map[string]any{"data": strings.Replace(installation, tc.old, tc.with, 1)})
			w.order("install", "ubuntu", server, mac, false)
			w.boot(server, "Pxe")
			w.pass(time.Minute)
			w.is("install", tc.state)
			var all []string
			for _, c := range w.workflow("install").Status.Conditions {
				all = append(all, c.Message)
			}
			for _, e := range w.entries {
				if e.Kind == ledger.KindInstall {
					all = append(all, e.Message)
				}
			}
			if !strings.Contains(strings.Join(all, "\n"), tc.detail) {
				t.Errorf("no %q in %q", tc.detail, all)
			}
		})
	}
}

func TestATemplateThatComesLateIsTriedAgain(t *testing.T) {
	w := small(t)
	mac := w.know(server, true)
	w.order("install", "ubuntu", server, mac, false)
	w.pass(time.Second)
	if wf := w.workflow("install"); wf.Status.State != "" || wf.Status.TemplateRendering != "failed" {
		t.Errorf("%+v", wf.Status)
	}
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	w.pass(10 * time.Second)
	w.is("install", "PENDING")
}

func TestAWorkflowThatIsDeletedLeavesItsWorkerWaiting(t *testing.T) {
	w := small(t)
	mac := w.know(server, true)
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	w.order("install", "ubuntu", server, mac, false)
	w.boot(server, "Pxe")
	w.pass(22 * time.Second)
	if err := w.api("workflows").Delete(t.Context(), "install", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	if n := len(w.fleet.Netbooted()); n != 1 {
		t.Errorf("%d servers run the installer's system", n)
	}
	w.order("again", "ubuntu", server, mac, false)
	w.boot(server, "Pxe")
	w.pass(2 * time.Minute)
	w.is("again", "SUCCESS")
	w.up(server, true)
}

func TestTwoHundredWorkflowsAtOnce(t *testing.T) {
	w := newWorld(t, fleet.Config{Site: "dc1", Racks: 10, ServersPerRack: 20, GPUs: 1, Spines: 1, CRACs: 1})
	w.create("templates", "Template", "ubuntu", map[string]any{"data": installation})
	for i, name := range w.fleet.Servers() {
		w.order(fmt.Sprintf("install-%03d", i), "ubuntu", name, w.know(name, false), true)
	}
	w.pass(time.Second)
	for _, name := range w.fleet.Servers() {
		w.boot(name, "Pxe")
	}
	w.pass(2 * time.Minute)
	list, err := w.api("workflows").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 200 {
		t.Fatal(err, len(list.Items))
	}
	for i := range list.Items {
		if state, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "state"); state != "STATE_SUCCESS" {
			t.Errorf("%s is %s", list.Items[i].GetName(), state)
		}
	}
	for _, name := range w.fleet.Servers() {
		w.up(name, true)
	}
}
