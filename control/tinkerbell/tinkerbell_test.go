package tinkerbell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"auspex/control"
	"auspex/control/controltest"
	"auspex/control/messages"
	"auspex/internal/waittest"
	"auspex/schemas"
)

const server = "gpu-1"

// driver is one as a process that starts has it.
func (a *api) driver(s *stock, edit ...func(*Config)) *installer {
	a.Helper()
	c := defaults()
	c.Kubeconfig, c.Boot = kubeconfigFor(a.T, a.url), bootNone
	for _, e := range edit {
		e(c)
	}
	all, err := c.Remediators(control.Settings{Installs: s, Secrets: s, Wipes: s})
	if err != nil {
		a.Fatal(err)
	}
	return all[kindReinstall].(*installer)
}

func reinstall(id string) control.Step {
	return control.Step{ID: id, Kind: kindReinstall, Server: server, Target: server, Reason: "a test", Since: time.Now()}
}

// runs has Tinkerbell say where the workflow of a step is.
func (a *api) runs(name, state string, actions ...string) {
	list := []any{}
	for i, s := range actions {
		one := map[string]any{"name": []string{"write", "boot"}[i], "timeout": 90, "startedAt": time.Now().UTC().Format(time.RFC3339)}
		if s != "" {
			one["status"] = "STATE_" + s
		}
		list = append(list, one)
	}
	a.say(workflows, name, map[string]any{"status": map[string]any{"state": state, "tasks": []any{map[string]any{"worker": mac, "actions": list}}}})
}

// look pursues and verifies, as control does.
func look(ctx context.Context, i *installer, s control.Step) (control.Verdict, string, error) {
	if err := i.Pursue(ctx, s); err != nil {
		return control.Pending, "", err
	}
	v, said, err := i.Verify(ctx, s)
	return v, messages.Text(said), err
}

func (a *api) wants(i *installer, s control.Step, want control.Verdict, words string) {
	a.Helper()
	v, said, err := look(a.Context(), i, s)
	if err != nil || v != want || !strings.Contains(said, words) {
		a.Fatalf("verdict %d, want %d: %q, want %q: %v", v, want, said, words, err)
	}
}

// comes is wants where a watch may not have seen yet what the API has.
func (a *api) comes(i *installer, s control.Step, want control.Verdict) {
	a.Helper()
	waittest.Until(a.T, func() error {
		if v, said, err := look(a.Context(), i, s); err != nil || v != want {
			return fmt.Errorf("verdict %d, want %d: %q %w", v, want, said, err)
		}
		return nil
	})
}

func TestConformance(t *testing.T) {
	changes := func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, workflows)
	}
	controltest.Run(t, controltest.Harness{
		Kinds: []string{kindInstall, kindReinstall, kindWipe}, Some: true, // reset_network has its own
		World: func(t *testing.T, m controltest.Manner) controltest.World {
			a, s := newAPI(t), newStock(server, mac)
			srv := httptest.NewServer(controltest.Behave(m, a, changes))
			if m == controltest.Gone {
				srv.Close()
			} else {
				t.Cleanup(srv.Close)
			}
			c := defaults()
			c.Kubeconfig, c.Boot = kubeconfigFor(t, srv.URL), bootNone
			effects := map[string][]func(){}
			for _, kind := range []string{kindInstall, kindReinstall, kindWipe} {
				name := "auspex-" + label("act-"+kind)
				effects[kind] = []func(){
					func() { a.runs(name, "STATE_RUNNING", "RUNNING", "") },
					func() { a.runs(name, "STATE_POST", "SUCCESS", "SUCCESS") },
					func() { s.tells("act-"+kind, true, "blank"); a.runs(name, "STATE_SUCCESS", "SUCCESS", "SUCCESS") },
				}
			}
			return controltest.World{
				Driver: c, Settings: control.Settings{Installs: s, Secrets: s, Wipes: s}, Server: server,
				With: map[string]map[string]string{
					kindInstall: {"template": "linux", "version": "2", "parameters.n": "3"}, kindWipe: {"template": "linux", "version": "2", "parameters.n": "3"},
				},
				Asked:   func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.asked },
				Effects: effects,
			}
		},
	})
}

func TestWithoutAKubeconfigThereIsNoDriver(t *testing.T) {
	all, err := defaults().Remediators(control.Settings{})
	if err != nil || len(all) != 0 {
		t.Error(all, err)
	}
}

func TestAConfigurationThatCannotBeIsNamed(t *testing.T) {
	for want, edit := range map[string]func(*Config){
		"namespace":  func(c *Config) { c.Namespace = "A b" },
		"deadline":   func(c *Config) { c.Deadline = time.Millisecond },
		"boot":       func(c *Config) { c.Boot = "luck" },
		"in_cluster": func(c *Config) { c.Kubeconfig, c.InCluster = "/x", true },
	} {
		c := defaults()
		edit(c)
		if _, err := c.Remediators(control.Settings{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The two dialects of one API version mean the same.
func TestBothDialectsOfAStatusAreRead(t *testing.T) {
	for name, doc := range map[string]string{
		"tink v0.12.2": `{"status":{"state":"STATE_RUNNING","templateRending":"successful","globalTimeout":600,"tasks":[{"worker":"` + mac + `","actions":[
{"name":"write","status":"STATE_SUCCESS","startedAt":"2026-03-01T12:00:00Z","timeout":90},{"name":"boot","status":"STATE_RUNNING","startedAt":"2026-03-01T12:01:00Z","timeout":60,"message":"m"},{"name":"last","status":"STATE_PENDING"}]}]}}`,
		"tinkerbell v0.25": `{"status":{"state":"RUNNING","templateRendering":"successful","globalTimeout":600,"tasks":[{"id":"1","agentID":"` + mac + `","actions":[
{"id":"1","name":"write","state":"SUCCESS","executionStart":"2026-03-01T12:00:00Z","timeout":90},{"id":"2","name":"boot","state":"RUNNING","executionStart":"2026-03-01T12:01:00Z","timeout":60,"message":"m"},{"id":"3","name":"last","state":"PENDING"}]}]}}`,
	} {
		var w Workflow
		if err := json.Unmarshal([]byte(doc), &w); err != nil {
			t.Fatal(err)
		}
		a, n, of := w.at()
		if w.state() != stateRunning || w.ended() || a == nil || a.Name != "boot" || a.state() != stateRunning || a.Message != "m" || n != 2 || of != 3 {
			t.Errorf("%s: %s %+v %d of %d", name, w.state(), a, n, of)
		}
		if got := w.due().UTC().Format(time.TimeOnly); got != "12:02:00" || !w.touches("", []string{mac}) {
			t.Errorf("%s: due %s", name, got)
		}
	}
}

func TestNamesAreThoseOfKubernetes(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"gpu-1", "GPU-1", "dc1/rack 2/gpu_1", strings.Repeat("x", 70), strings.Repeat("x", 71), "日本", "a.b"} {
		l := label(name)
		if len(l) > 50 || l == "" || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(l, "-") || seen[l] {
			t.Errorf("%s: %s", name, l)
		}
		seen[l] = true
	}
	if label("gpu-1") != "gpu-1" {
		t.Error(label("gpu-1"))
	}
}

func TestAnInstallationIsSentOnceAndShownStepByStep(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	plan, err := i.Plan(t.Context(), step)
	if err != nil || !strings.Contains(messages.Text(plan), "linux@2") || !strings.Contains(messages.Text(plan), "2 steps (write, boot)") {
		t.Fatal(messages.Text(plan), err)
	}
	for range 2 { // the same step again is the same workflow
		if err := i.Apply(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if a.count(workflows) != 1 || a.count(templates) != 1 || a.count(hardware) != 1 || a.allowed() {
		t.Fatal(a.objects)
	}
	w := a.of(workflows, "auspex-act-1")
	spec := w["spec"].(map[string]any)
	data := a.of(templates, spec["templateRef"].(string))["spec"].(map[string]any)["data"].(string)
	if !strings.Contains(data, secret) || strings.Contains(data, "{{") {
		t.Error(data)
	}
	a.wants(i, step, control.Pending, "is NEW; no step has begun")
	if !a.allowed() {
		t.Error("the server may not start from the network")
	}
	a.runs("auspex-act-1", "STATE_RUNNING", "RUNNING", "")
	a.wants(i, step, control.Pending, "step 1 of 2, write (RUNNING)")
	a.runs("auspex-act-1", "STATE_RUNNING", "SUCCESS", "RUNNING")
	a.wants(i, step, control.Pending, "step 2 of 2, boot (RUNNING)")
	stages, err := i.Stages(t.Context(), step)
	if err != nil || len(stages) != 2 || stages[0].Name != "write" || stages[0].State != "success" || stages[1].Name != "boot" || stages[1].State != "running" {
		t.Errorf("%+v %v", stages, err)
	}
	a.runs("auspex-act-1", "STATE_SUCCESS", "SUCCESS", "SUCCESS")
	a.wants(i, step, control.Verified, "all 2 steps of the installation of gpu-1 succeeded")
	if a.allowed() || a.count(templates) != 0 || a.count(workflows) != 1 {
		t.Error("something is left open")
	}
	// The next one of the same server has its own template, also of the same text.
	next := reinstall("act-2")
	if err := i.Apply(t.Context(), next); err != nil || a.count(templates) != 1 {
		t.Error(err)
	}
	a.wants(i, step, control.Verified, "succeeded")
	if a.count(templates) != 1 {
		t.Error("an earlier step took the template of a later one away")
	}
}

func TestASecretIsNeverTold(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	a.runs("auspex-act-1", "STATE_FAILED", "FAILED", "")
	a.say(workflows, "auspex-act-1", map[string]any{"status": map[string]any{"tasks": []any{map[string]any{"worker": mac, "actions": []any{
		map[string]any{"name": "write", "status": "STATE_FAILED", "message": "curl --user root:" + secret + ": 404"},
	}}}}})
	v, said, err := look(t.Context(), i, step)
	if err != nil || v != control.Failed || strings.Contains(said, secret) || !strings.Contains(said, "404") {
		t.Errorf("%d %q %v", v, said, err)
	}
	if a.allowed() || a.count(templates) != 0 {
		t.Error("something is left open")
	}
	// An API server quotes what it does not like.
	other := newAPI(t)
	quoting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, templates) {
			status(w, http.StatusUnprocessableEntity, "Invalid", "spec.data: Invalid value: "+secret)
			return
		}
		other.ServeHTTP(w, r)
	}))
	t.Cleanup(quoting.Close)
	err = other.driver(s, func(c *Config) { c.Kubeconfig = kubeconfigFor(t, quoting.URL) }).Apply(t.Context(), step)
	if !errors.Is(err, control.ErrRejected) || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "Invalid value") {
		t.Error(err)
	}
}

func TestWhatIsNotOursIsLeftAloneAndNamed(t *testing.T) {
	theirs := func(name, address string) map[string]any {
		return map[string]any{"metadata": map[string]any{
			"name": name, "namespace": "tink", "uid": "x", "managedFields": []any{map[string]any{"manager": "kubectl-edit", "operation": "Update"}},
		}, "spec": map[string]any{"interfaces": []any{map[string]any{"dhcp": map[string]any{"mac": address}, "netboot": map[string]any{"allowPXE": false}}}}}
	}
	live := func(state string, spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "theirs", "namespace": "tink", "uid": "y", "labels": map[string]any{managedBy: "capt"}}, "spec": spec, "status": map[string]any{"state": state}}
	}
	for name, tc := range map[string]struct {
		there map[string]map[string]any
		edit  func(*stock)
		want  string
	}{
		"hardware with its address":   {map[string]map[string]any{hardware: theirs("other", strings.ToUpper(mac))}, nil, "hardware tink/other, which belongs to kubectl-edit, has the address " + mac},
		"hardware with its name":      {map[string]map[string]any{hardware: theirs(server, "02:00:00:00:00:99")}, nil, "hardware tink/gpu-1, which belongs to kubectl-edit, has the name"},
		"a live workflow on hardware": {map[string]map[string]any{workflows: live("STATE_RUNNING", map[string]any{"hardwareRef": server})}, nil, "workflow tink/theirs, which belongs to capt, is RUNNING on gpu-1"},
		"a live workflow of a worker": {map[string]map[string]any{workflows: live("", map[string]any{"hardwareMap": map[string]any{"x": mac}})}, nil, "workflow tink/theirs, which belongs to capt, is NEW on gpu-1"},
		"a task of another worker": {nil, func(s *stock) {
			s.template.Text = strings.Replace(text, `"{{.device_1}}"`, `"02:00:00:00:00:77"`, 1)
		}, "the task os of linux@2 has the worker 02:00:00:00:00:77, and gpu-1 starts by " + mac},
		"a record that lacks something": {nil, func(s *stock) { s.record.Lacks = []string{schemas.FactBootMAC, schemas.FactBMCAddress} }, "lacks boot_mac"},
		"no template":                   {nil, func(s *stock) { s.record.Overrides.Template = "" }, "no template is pinned to gpu-1"},
	} {
		t.Run(name, func(t *testing.T) {
			a, s := newAPI(t), newStock(server, mac)
			if tc.edit != nil {
				tc.edit(s)
			}
			for resource, o := range tc.there {
				a.add(resource, o)
			}
			i := a.driver(s)
			was := a.version
			if _, err := i.Plan(t.Context(), reinstall("act-1")); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("plan: %v", err)
			}
			if err := i.Apply(t.Context(), reinstall("act-1")); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("apply: %v", err)
			}
			if a.version != was {
				t.Errorf("something was done: %v", a.log)
			}
		})
	}
	t.Run("a workflow that has ended", func(t *testing.T) {
		a, s := newAPI(t), newStock(server, mac)
		a.add(workflows, live("STATE_TIMEOUT", map[string]any{"hardwareRef": server}))
		if err := a.driver(s).Apply(t.Context(), reinstall("act-1")); err != nil {
			t.Error(err)
		}
	})
}

func TestOurHardwareThatSomebodyChangedIsNamed(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i := a.driver(s)
	if err := i.Apply(t.Context(), reinstall("act-1")); err != nil {
		t.Fatal(err)
	}
	a.runs("auspex-act-1", "STATE_SUCCESS", "SUCCESS", "SUCCESS")
	a.wants(i, reinstall("act-1"), control.Verified, "")
	a.say(hardware, server, map[string]any{"spec": map[string]any{"disks": []any{map[string]any{"device": "/dev/sda"}}}})
	err := i.Apply(t.Context(), reinstall("act-2"))
	if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "/dev/sda, and the record says") {
		t.Error(err)
	}
	// What others add that an installation does not go by stays.
	a.say(hardware, server, map[string]any{"metadata": map[string]any{"annotations": map[string]any{recordOf: nil}}, "spec": map[string]any{"vendorData": "theirs"}})
	if err := i.Apply(t.Context(), reinstall("act-2")); err != nil {
		t.Error(err)
	}
	spec := a.of(hardware, server)["spec"].(map[string]any)
	if spec["vendorData"] != "theirs" || spec["disks"].([]any)[0].(map[string]any)["device"] != "/dev/nvme0n1" {
		t.Error(spec)
	}
}

// Two that begin at the same moment both look before and after: ours yields.
func TestAWorkflowThatComesAtTheSameMomentIsNotJoined(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	a.add(workflows, map[string]any{"metadata": map[string]any{"name": "theirs", "namespace": "tink", "uid": "y"}, "spec": map[string]any{"hardwareRef": server}})
	if err := i.Pursue(t.Context(), step); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "tink/theirs") {
		t.Error(err)
	}
	if a.of(workflows, "auspex-act-1") != nil || a.of(workflows, "theirs") == nil || a.allowed() || a.count(templates) != 0 {
		t.Error(a.objects)
	}
}

func TestAWorkflowOutOfTimeIsTakenAway(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	a.wants(i, step, control.Pending, "NEW")
	i.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	a.wants(i, step, control.Failed, "had not ended within 1h30m0s")
	if a.count(workflows) != 0 || a.count(templates) != 0 || a.allowed() {
		t.Error(a.objects)
	}
	if err := i.End(t.Context(), step); err != nil {
		t.Error(err)
	}
}

// Who cancels an installation has it end at once, whatever it is at: its workflow and template are gone, and the server does not start from
// the network. Where a workflow may still come to be it has not ended.
func TestAnInstallationIsEndedInTheMiddle(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	if err := i.End(t.Context(), step); err == nil || !strings.Contains(err.Error(), "may still come to be") {
		t.Error(err)
	}
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	if err := i.Pursue(t.Context(), step); err != nil || !a.allowed() {
		t.Fatal(err, a.allowed())
	}
	a.runs("auspex-act-1", "STATE_RUNNING", "RUNNING", "")
	if err := i.End(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	if a.count(workflows) != 0 || a.count(templates) != 0 || a.allowed() {
		t.Error(a.objects)
	}
	// The next one begins anew, with a workflow of its own.
	again := reinstall("act-2")
	if err := i.Apply(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	a.wants(i, again, control.Pending, "NEW")
	if err := i.End(t.Context(), reinstall("act-1")); err == nil || a.count(workflows) != 1 {
		t.Errorf("%v: another one's workflow: %v", err, a.objects)
	}
}

func TestTinkerbellIsMadeToLookWhenATimeIsOver(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	a.wants(i, step, control.Pending, "")
	a.runs("auspex-act-1", "STATE_RUNNING", "RUNNING", "")
	a.wants(i, step, control.Pending, "")
	was := a.version
	a.wants(i, step, control.Pending, "")
	if a.version != was {
		t.Error("it was changed without a reason")
	}
	i.now = func() time.Time { return time.Now().Add(2 * time.Minute) }
	a.wants(i, step, control.Pending, "")
	a.wants(i, step, control.Pending, "")
	if w := a.of(workflows, "auspex-act-1"); w["metadata"].(map[string]any)["annotations"].(map[string]any)[pokedAt] == nil || a.version != was+1 {
		t.Error(w, a.version-was)
	}
}

func TestAWorkflowThatSomebodyDeletesHasFailed(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	a.wants(i, step, control.Pending, "")
	a.drop(workflows, "auspex-act-1")
	if err := i.Pursue(t.Context(), step); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "tink/auspex-act-1 was deleted") || a.allowed() {
		t.Error(err, a.allowed())
	}
}

func TestARightThatLacksIsNamed(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	a.forbid = func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, workflows)
	}
	err := a.driver(s).Apply(t.Context(), reinstall("act-1"))
	if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), `the role lacks a right: workflows.tinkerbell.org is forbidden: User "auspex" cannot create resource "workflows"`) {
		t.Error(err)
	}
}

// An API that does not know the kind has not said that an object is gone.
func TestAClusterWithoutTinkerbellIsNoWorkflowThatIsGone(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	a, s := newAPI(t), newStock(server, mac)
	i := a.driver(s, func(c *Config) { c.Kubeconfig = kubeconfigFor(t, srv.URL) })
	step := reinstall("act-1")
	step.Since = time.Now().Add(-time.Hour)
	if err := i.Pursue(t.Context(), step); err == nil || errors.Is(err, control.ErrRejected) {
		t.Error(err)
	}
}

func (a *api) levers(i *installer) (boot, cycle *lever) {
	boot, cycle = &lever{}, &lever{}
	i.Through(map[string]control.Remediator{"set_boot": boot, "power_cycle": cycle})
	return boot, cycle
}

func withBMC(c *Config) { c.Boot = bootBMC }

func TestTheServerIsStartedFromTheNetworkOnce(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s, withBMC), reinstall("act-1")
	if _, err := i.Plan(t.Context(), step); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "control.bmc") {
		t.Errorf("without a driver for its controller: %v", err)
	}
	boot, cycle := a.levers(i)
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		a.wants(i, step, control.Pending, "NEW")
	}
	if boot.times() != 1 || cycle.times() != 1 || !a.allowed() {
		t.Errorf("boot %v, cycle %v", boot.asked, cycle.asked)
	}
	// A new process does none of it again.
	again := a.driver(s, withBMC)
	boot, cycle = a.levers(again)
	for range 3 {
		a.wants(again, step, control.Pending, "NEW")
	}
	if boot.times()+cycle.times() != 0 {
		t.Errorf("boot %v, cycle %v", boot.asked, cycle.asked)
	}
	// Nor does one whose watch lags behind.
	w, err := again.workflow(t.Context(), workflowName(step))
	if err != nil {
		t.Fatal(err)
	}
	w.Annotations[bootPhase] = phaseOpen
	if err := again.flows.Add(w); err != nil {
		t.Fatal(err)
	}
	if err := again.Pursue(t.Context(), step); err != nil || boot.times()+cycle.times() != 0 {
		t.Errorf("boot %v, cycle %v: %v", boot.asked, cycle.asked, err)
	}
}

func TestAControllerThatRefusesEndsTheInstallation(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s, withBMC), reinstall("act-1")
	_, cycle := a.levers(i)
	cycle.err = control.ErrRejected
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 5 {
		if err = i.Pursue(t.Context(), step); err != nil {
			break
		}
	}
	if !errors.Is(err, control.ErrRejected) || a.count(workflows) != 0 || a.allowed() {
		t.Error(err, a.objects)
	}
}

// follow runs the watch until the test ends or the returned function is called.
func follow(t *testing.T, i *installer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { i.Follow(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func TestOneWatchFollowsAllWorkflowsAndIsMadeAnewWhereItsVersionIsTooOld(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i, step := a.driver(s), reinstall("act-1")
	follow(t, i)
	if err := i.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	until := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			if _, said, err := look(t.Context(), i, step); err != nil || !strings.Contains(said, want) {
				return errors.New(said)
			}
			return nil
		})
	}
	until("NEW")
	waittest.Until(t, func() error {
		if w := i.flows.workflow("tink", "auspex-act-1"); w == nil || w.Annotations[bootPhase] == "" {
			return errors.New("the watch has not seen it")
		}
		return nil
	})
	var mu sync.Mutex
	reads := 0
	a.mu.Lock()
	a.forbid = func(r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "auspex-act-1") {
			reads++
		}
		return false
	}
	a.mu.Unlock()
	a.runs("auspex-act-1", "STATE_RUNNING", "RUNNING", "")
	until("step 1 of 2")
	for range 20 {
		until("step 1 of 2")
	}
	mu.Lock()
	if reads > 1 { // the watches of workflows and hardware are not of one moment: who tends them may have begun before
		t.Errorf("it was read %d times beside the watch", reads)
	}
	mu.Unlock()
	a.mu.Lock()
	a.expired = true
	a.mu.Unlock()
	a.runs("auspex-act-1", "STATE_RUNNING", "SUCCESS", "RUNNING")
	until("step 2 of 2")
}

// What nobody waits for any more is closed all the same, by whoever starts next.
func TestWhatWasOpenedIsClosedAfterAKill(t *testing.T) {
	for name, ends := range map[string]func(a *api){
		"it succeeded":       func(a *api) { a.runs("auspex-act-1", "STATE_SUCCESS", "SUCCESS", "SUCCESS") },
		"it failed":          func(a *api) { a.runs("auspex-act-1", "STATE_FAILED", "FAILED", "") },
		"it ran out of time": func(a *api) { a.runs("auspex-act-1", "TIMEOUT", "TIMEOUT", "") },
		"it was deleted":     func(a *api) { a.drop(workflows, "auspex-act-1") },
		"nobody ended it": func(a *api) {
			a.say(workflows, "auspex-act-1", map[string]any{"metadata": map[string]any{"annotations": map[string]any{deadlineAt: "2026-01-01T00:00:00Z"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, s := newAPI(t), newStock(server, mac)
			i, step := a.driver(s), reinstall("act-1")
			if err := i.Apply(t.Context(), step); err != nil {
				t.Fatal(err)
			}
			a.wants(i, step, control.Pending, "")
			if !a.allowed() {
				t.Fatal("it was never opened")
			}
			ends(a)
			follow(t, a.driver(s))
			waittest.Until(t, func() error {
				if a.allowed() {
					return errors.New("the server may start from the network still")
				}
				return nil
			})
		})
	}
}

// Whatever request a kill or a lost answer falls on, nothing is sent twice and nothing stays open.
func TestAKillAtAnyRequestDoesNothingTwiceAndLeavesNothingOpen(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for at := 0; ; at++ {
			a, s := newAPI(t), newStock(server, mac)
			var n atomic.Int64 // a follower asks too
			a.hook = func(*http.Request) (before, after bool) {
				here := n.Add(1) == int64(at)+1
				return here && !lost, here && lost
			}
			first := a.driver(s, withBMC)
			boot, cycle := a.levers(first)
			step := reinstall("act-1")
			err := first.Apply(t.Context(), step)
			for range 6 {
				if err != nil || n.Load() > int64(at) {
					break
				}
				err = first.Pursue(t.Context(), step)
			}
			whole := n.Load() <= int64(at)
			// The process is gone; the next one looks and goes on.
			a.mu.Lock()
			a.hook = nil
			a.mu.Unlock()
			second := a.driver(s, withBMC)
			second.boot, second.cycle = boot, cycle
			var v control.Verdict
			for range 12 {
				if err = second.Pursue(t.Context(), step); err != nil {
					break
				}
				if a.of(workflows, "auspex-act-1") != nil && cycle.times() > 0 {
					a.runs("auspex-act-1", "STATE_SUCCESS", "SUCCESS", "SUCCESS")
				}
				if v, _, err = second.Verify(t.Context(), step); err != nil || v != control.Pending {
					break
				}
			}
			if v == control.Pending && err == nil { // it was never sent, or nothing restarts the server
				second.now = func() time.Time { return time.Now().Add(3 * time.Hour) }
				if err = second.Pursue(t.Context(), step); err == nil {
					v, _, err = second.Verify(t.Context(), step)
				}
				if err != nil && !errors.Is(err, control.ErrRejected) || err == nil && v != control.Failed {
					t.Errorf("cut at %d (lost %v): verdict %d, %v", at, lost, v, err)
				}
			} else if err != nil {
				t.Errorf("cut at %d (lost %v): %v", at, lost, err)
			}
			if a.asked > 2 || cycle.times() > 1 || boot.times() > 2 || a.allowed() || a.count(templates) > 0 {
				t.Errorf("cut at %d (lost %v): %d workflows asked for, %d cycles, %d boots, open %v, templates %d", at, lost, a.asked, cycle.times(), boot.times(), a.allowed(), a.count(templates))
			}
			if whole {
				break
			}
		}
	}
}
