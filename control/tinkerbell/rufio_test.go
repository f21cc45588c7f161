package tinkerbell

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/control"
	"auspex/control/bmc"
	"auspex/control/controltest"
	"auspex/control/messages"
	"auspex/schemas"
)

// relieved is the driver as one of board controllers alone.
type relieved struct{ *Config }

// Remediators implements control.Driver.
func (r relieved) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	return r.Reliefs(s)
}

// inventoryOf knows one server.
func inventoryOf(attrs map[string]string) func(string) (schemas.Resource, bool) {
	return func(id string) (schemas.Resource, bool) {
		return schemas.Resource{ID: server, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(attrs)}, id == server
	}
}

// bmcAt has Rufio know the board controller of the server, with its power as it reads it.
func (a *api) bmcAt(host, power string) {
	a.add(units, map[string]any{
		"metadata": map[string]any{"name": server, "namespace": "tink", "uid": "m"}, "spec": map[string]any{"connection": map[string]any{"host": host}},
		"status": map[string]any{"powerState": power},
	})
}

// reads has Rufio read the power, some time after now.
func (a *api) reads(power string, after time.Duration) {
	a.say(units, server, map[string]any{
		"metadata": map[string]any{"managedFields": []any{map[string]any{"manager": "rufio", "subresource": "status", "time": time.Now().Add(after).UTC().Format(time.RFC3339)}}},
		"status":   map[string]any{"powerState": power},
	})
}

func (a *api) ends(name, how, message string) {
	a.say(jobs, name, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": how, "status": "True", "message": message}}}})
}

func (a *api) taskFails(name, message string) {
	a.add(tasks, map[string]any{
		"metadata": map[string]any{"name": name, "namespace": "tink", "uid": name},
		"status":   map[string]any{"conditions": []any{map[string]any{"type": jobFailed, "status": "True", "message": message}}},
	})
}

// hands are those of Rufio, by kind of step.
func (a *api) hands(now func() time.Time, attrs map[string]string) map[string]control.Remediator {
	a.Helper()
	c := defaults()
	c.Kubeconfig, c.Rufio = kubeconfigFor(a.T, a.url), true
	all, err := c.Reliefs(control.Settings{Resource: inventoryOf(attrs), Now: now, Installs: newStock(server, mac)})
	if err != nil {
		a.Fatal(err)
	}
	return all
}

func toDo(kind string, with map[string]string) control.Step {
	return control.Step{ID: "act-" + kind, Kind: kind, Server: server, Target: server, Reason: "a test", Since: time.Now(), With: with}
}

// sees pursues and verifies, as control does.
func (a *api) sees(r control.Remediator, s control.Step, want control.Verdict, words string) {
	a.Helper()
	if err := r.(control.Pursuer).Pursue(a.Context(), s); err != nil {
		a.Fatal(err)
	}
	v, said, err := r.Verify(a.Context(), s)
	if err != nil || v != want || !strings.Contains(messages.Text(said), words) {
		a.Fatalf("verdict %d, want %d: %q, want %q: %v", v, want, messages.Text(said), words, err)
	}
}

func TestConformanceOfRufio(t *testing.T) {
	changes := func(r *http.Request) bool { return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, jobs) }
	for first, kinds := range map[string][]string{"on": {"power_cycle", "power_off"}, "off": {"power_on"}} {
		t.Run(first, func(t *testing.T) {
			controltest.Run(t, controltest.Harness{
				Kinds: kinds, Some: true,
				World: func(t *testing.T, m controltest.Manner) controltest.World {
					a := newAPI(t)
					a.bmcAt("192.0.2.1", first)
					srv := httptest.NewServer(controltest.Behave(m, a, changes))
					if m == controltest.Gone {
						srv.Close()
					} else {
						t.Cleanup(srv.Close)
					}
					c := defaults()
					c.Kubeconfig, c.Rufio = kubeconfigFor(t, srv.URL), true
					effects := func(kind, to string) []func() {
						return []func(){
							func() { a.ends("auspex-"+label("act-"+kind), "Running", "") },
							func() { a.ends("auspex-"+label("act-"+kind), jobCompleted, "") }, // which proves nothing
							func() { a.reads(to, 2*time.Second) },
						}
					}
					return controltest.World{
						Driver: relieved{c}, Settings: control.Settings{Resource: inventoryOf(nil)}, Server: server,
						Asked:   func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.asked },
						Effects: map[string][]func(){"power_cycle": effects("power_cycle", "on"), "power_off": effects("power_off", "off"), "power_on": effects("power_on", "on")},
					}
				},
			})
		})
	}
}

func TestAJobSaysWhatRufioIsToDo(t *testing.T) {
	a := newAPI(t)
	a.bmcAt("192.0.2.1", "on")
	all := a.hands(nil, nil)
	for kind, one := range map[string]struct {
		with map[string]string
		want string
	}{
		"power_on":    {nil, "power on"},
		"power_off":   {nil, "power soft"},
		"power_cycle": {nil, "power off, power on"},
		"set_boot":    {map[string]string{"target": "pxe"}, "boot pxe"},
	} {
		s := toDo(kind, one.with)
		said, err := all[kind].Plan(t.Context(), s)
		if err != nil || !strings.Contains(messages.Text(said), "machine "+server+" of "+server+": "+one.want+"; it read power as on last") {
			t.Errorf("%s: %s, %v", kind, messages.Text(said), err)
		}
		if err := all[kind].Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		j := &Job{}
		if found, err := all[kind].(turn).get(t.Context(), jobs, workflowName(s), j); err != nil || !found || phrase(j.Spec.Tasks) != one.want || !j.ours() || j.Annotations[ofAction] != s.ID {
			t.Errorf("%s: %+v, %v", kind, j, err)
		}
		a.ends(j.Name, jobCompleted, "")
	}
	forced := toDo("power_off", map[string]string{"force": "true"})
	if said, err := all["power_off"].Plan(t.Context(), forced); err != nil || !strings.Contains(messages.Text(said), ": power off;") {
		t.Error(messages.Text(said), err)
	}
	if boot := a.of(jobs, "auspex-act-set_boot"); boot != nil {
		t.Error("a name that Kubernetes does not take", boot)
	}
	for _, target := range []string{"none", ""} {
		if _, err := all["set_boot"].Plan(t.Context(), toDo("set_boot", map[string]string{"target": target})); !errors.Is(err, control.ErrCannot) {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// The board controller may have been on all the time: the API shows nothing of a reading that says what was there.
func TestPowerThatReadsAsBeforeIsBelievedOnceRufioHadTheTimeToReadIt(t *testing.T) {
	a := newAPI(t)
	a.bmcAt("192.0.2.1", "on")
	now := time.Now()
	r, s := a.hands(func() time.Time { return now }, nil)["power_cycle"], toDo("power_cycle", nil)
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a.sees(r, s, control.Pending, "has not ended")
	if of := a.of(units, server)["metadata"].(map[string]any)["annotations"]; of != nil {
		t.Errorf("read before the job has ended: %v", of)
	}
	a.ends(workflowName(s), jobCompleted, "")
	a.sees(r, s, control.Pending, "has not read power since")
	now = now.Add(settles)
	r = a.hands(func() time.Time { return now }, nil)["power_cycle"] // a restart forgets nothing
	a.sees(r, s, control.Verified, "reads that power is on")
	a.reads("off", time.Hour)
	a.sees(r, s, control.Pending, "reads that power is off")
}

func TestAJobThatIsKilledInTheMiddleOrLostIsNotSentAgain(t *testing.T) {
	a := newAPI(t)
	a.bmcAt("192.0.2.1", "off")
	a.mu.Lock()
	a.hook = func(r *http.Request) (before, after bool) {
		return false, r.Method == http.MethodPost
	}
	a.mu.Unlock()
	r, s := a.hands(nil, nil)["power_on"], toDo("power_on", nil)
	if err := r.Apply(t.Context(), s); err == nil || errors.Is(err, control.ErrRejected) {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.hook = nil
	a.mu.Unlock()
	if err := a.hands(nil, nil)["power_on"].Apply(t.Context(), s); err != nil { // whoever asks again makes none
		t.Fatal(err)
	}
	if n := a.count(jobs); n != 1 {
		t.Errorf("%d jobs", n)
	}
	a.drop(jobs, workflowName(s))
	a.sees(r, s, control.Pending, "has no job")
	s.Since = time.Now().Add(-arrives - time.Second)
	a.sees(r, s, control.Unseen, "what became of it is not known")
}

func TestWhatRufioDoesNotKnowReachesAPerson(t *testing.T) {
	for name, one := range map[string]struct {
		kind, to, words string // what its first task says, the power that is read after it
		second          bool   // it is the second one
		want            control.Verdict
	}{
		"never reached":     {"power_cycle", "on", "Failed to connect to BMC: no route to host", false, control.Failed},
		"on after all":      {"power_on", "on", "failed to perform PowerAction: timeout", false, control.Verified},
		"not on":            {"power_on", "off", "failed to perform PowerAction: timeout", false, control.Unseen},
		"a cycle may be so": {"power_cycle", "on", "failed to perform PowerAction: timeout", false, control.Unseen},
		"left off":          {"power_cycle", "off", "Failed to connect to BMC: no route to host", true, control.Unseen},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			a.bmcAt("192.0.2.1", "off")
			r, s := a.hands(nil, nil)[one.kind], toDo(one.kind, nil)
			if err := r.Apply(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			a.ends(workflowName(s), jobFailed, "task failed")
			task := workflowName(s) + "-task-0"
			if one.second {
				task = workflowName(s) + "-task-1"
			}
			a.taskFails(task, one.words)
			a.reads(one.to, 2*time.Second)
			words := one.words
			if one.want == control.Verified {
				words = ""
			}
			a.sees(r, s, one.want, words)
		})
	}
	a := newAPI(t)
	a.bmcAt("192.0.2.1", "on")
	r, s := a.hands(nil, nil)["set_boot"], toDo("set_boot", map[string]string{"target": "disk"})
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	a.ends(workflowName(s), jobCompleted, "")
	a.sees(r, s, control.Unseen, "does not read back what")
	a.drop(units, server)
	p := toDo("power_on", nil)
	p.ID = s.ID
	a.sees(a.hands(nil, nil)["power_on"], p, control.Unseen, "has not read power since")
}

func TestAMachineThatIsNotTheServersOrIsBusyIsLeftAlone(t *testing.T) {
	a := newAPI(t)
	refused := func(attrs map[string]string, words string) {
		t.Helper()
		r, s := a.hands(nil, attrs)["power_cycle"], toDo("power_cycle", nil)
		_, plan := r.Plan(t.Context(), s)
		for name, err := range map[string]error{"plan": plan, "apply": r.Apply(t.Context(), s)} {
			if err == nil || !strings.Contains(err.Error(), words) || !errors.Is(err, control.ErrRejected) && !errors.Is(err, control.ErrCannot) {
				t.Errorf("%s: %v, want %q", name, err, words)
			}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asked != 0 {
			t.Error("a job was made")
		}
	}
	refused(nil, "Rufio has no machine tink/gpu-1: set rufio_machine of gpu-1")
	a.bmcAt("192.0.2.1", "on")
	refused(map[string]string{schemas.AttrRufioMachine: "bmc-9"}, "Rufio has no machine tink/bmc-9")
	refused(map[string]string{schemas.AttrRedfishURL: "https://192.0.2.9"}, "machine tink/gpu-1 is at 192.0.2.1, and the inventory has redfish_url of gpu-1 at 192.0.2.9")
	a.add(jobs, map[string]any{
		"metadata": map[string]any{"name": "theirs", "namespace": "tink", "uid": "t", "labels": map[string]any{managedBy: "capt"}},
		"spec":     map[string]any{"machineRef": map[string]any{"name": server, "namespace": "tink"}, "tasks": []any{map[string]any{"powerAction": "off"}}},
	})
	refused(nil, "job tink/theirs, which belongs to capt, has not ended on machine gpu-1")
	a.ends("theirs", jobFailed, "")
	a.say(units, server, map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Contactable", "status": "False", "message": "no route to host"}}}})
	refused(nil, "Rufio does not reach the board controller of machine tink/gpu-1: no route to host")
	a.say(units, server, map[string]any{"status": map[string]any{"conditions": []any{}}})
	a.mu.Lock()
	a.forbid = func(r *http.Request) bool { return r.Method == http.MethodPost }
	a.mu.Unlock()
	if err := a.hands(nil, nil)["power_cycle"].Apply(t.Context(), toDo("power_cycle", nil)); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "the role lacks a right") {
		t.Error(err)
	}
}

func TestAJobOfAnotherWithTheNameOfOursFailsTheStep(t *testing.T) {
	a := newAPI(t)
	a.bmcAt("192.0.2.1", "on")
	r, s := a.hands(nil, nil)["power_off"], toDo("power_off", nil)
	a.add(jobs, map[string]any{"metadata": map[string]any{"name": workflowName(s), "namespace": "tink", "uid": "t"}})
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := r.(control.Pursuer).Pursue(t.Context(), s); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "belongs to someone else") {
		t.Error(err)
	}
}

func TestOldJobsOfOursAreTakenAway(t *testing.T) {
	a := newAPI(t)
	reg := prometheus.NewRegistry()
	c := defaults()
	c.Kubeconfig, c.Rufio = kubeconfigFor(t, a.url), true
	settings := control.Settings{Metrics: reg, Installs: newStock(server, mac), Resource: inventoryOf(nil)}
	all, err := c.Remediators(settings)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reliefs(settings); err != nil { // which counts in the same place
		t.Fatal(err)
	}
	ours := map[string]any{managedBy: manager}
	for name, labels := range map[string]any{"old": ours, "young": ours, "running": ours, "theirs": map[string]any{}} {
		created := time.Now().Add(-keeps - time.Minute)
		if name == "young" {
			created = time.Now()
		}
		a.add(jobs, map[string]any{"metadata": map[string]any{
			"name": name, "namespace": "tink", "uid": name, "labels": labels, "annotations": map[string]any{ofAction: name, ofKind: "power_on"},
			"creationTimestamp": created.UTC().Format(time.RFC3339),
		}})
		if name != "running" {
			a.ends(name, jobFailed, "")
		}
	}
	i := all[kindInstall].(*installer)
	if err := i.units.sweep(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{"old": false, "young": true, "running": true, "theirs": true} {
		if is := a.of(jobs, name) != nil; is != stays {
			t.Errorf("%s is there: %v", name, is)
		}
	}
	if n := testutil.ToFloat64(i.metrics.jobs.WithLabelValues("power_on", "taken_away")); n != 1 {
		t.Errorf("%g were counted", n)
	}
}

// unset has a board controller that nobody reads back, as through Rufio.
type unset struct {
	lever

	saw string
}

// Verify implements control.Remediator.
func (u *unset) Verify(context.Context, control.Step) (control.Verdict, schemas.Sentence, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.set {
		return control.Unseen, messages.New(u.saw, nil), nil
	}
	return control.Pending, schemas.Sentence{}, nil
}

func TestAnInstallationGoesOnWhereNobodyReadsTheBootDeviceBack(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i := a.driver(s, withBMC)
	boot, cycle := &unset{saw: messages.RufioBoot}, &lever{}
	i.Through(map[string]control.Remediator{"set_boot": boot, "power_cycle": cycle})
	if err := i.Apply(t.Context(), reinstall("act-1")); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if err := i.Pursue(t.Context(), reinstall("act-1")); err != nil {
			t.Fatal(err)
		}
	}
	if boot.times() != 1 || cycle.times() != 1 {
		t.Errorf("boot %v, cycle %v", boot.asked, cycle.asked)
	}
}

func TestAnInstallationEndsWhereTheBootDeviceCouldNotBeSet(t *testing.T) {
	a, s := newAPI(t), newStock(server, mac)
	i := a.driver(s, withBMC)
	boot, cycle := &unset{saw: messages.RufioFailed}, &lever{}
	i.Through(map[string]control.Remediator{"set_boot": boot, "power_cycle": cycle})
	if err := i.Apply(t.Context(), reinstall("act-1")); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 6 {
		if err = i.Pursue(t.Context(), reinstall("act-1")); err != nil {
			break
		}
	}
	if !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "is not set to start from the network") || cycle.times() != 0 {
		t.Errorf("cycle %v: %v", cycle.asked, err)
	}
	if a.allowed() || a.count(workflows) != 0 {
		t.Error("something is left open")
	}
}

// Which way a server goes follows from the inventory, for all kinds alike: its own board controller first.
func TestAServerGoesThroughRufioWhereThereIsNoOtherWayOrTheInventorySaysSo(t *testing.T) {
	a := newAPI(t)
	a.bmcAt("192.0.2.1", "on")
	c := defaults()
	c.Kubeconfig, c.Rufio = kubeconfigFor(t, a.url), true
	own := map[string]string{schemas.AttrRedfishURL: "https://192.0.2.1", schemas.AttrCredential: "root"}
	for name, one := range map[string]struct {
		attrs    map[string]string
		protocol string
		rufio    bool
	}{
		"an address and a credential":  {own, "auto", false},
		"no address":                   {map[string]string{schemas.AttrCredential: "root"}, "auto", true},
		"no credential":                {map[string]string{schemas.AttrIPMIIP: "192.0.2.1"}, "auto", true},
		"an address of no use":         {own, "ipmi", true},
		"the inventory names Rufio's":  {map[string]string{schemas.AttrRedfishURL: "https://192.0.2.1", schemas.AttrCredential: "root", schemas.AttrRufioMachine: server}, "auto", true},
		"no address, and IPMI is used": {nil, "ipmi", true},
	} {
		board := bmc.Default()
		board.Protocol = one.protocol
		all, err := control.Drivers{"bmc": board, "tinkerbell": c}.Remediators(control.Settings{Resource: inventoryOf(one.attrs), Installs: newStock(server, mac), Secrets: newStock(server, mac)})
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{"power_on", "power_off", "power_cycle", "set_boot"} {
			ctx, cancel := context.WithCancel(t.Context())
			if !one.rufio {
				cancel() // nobody is asked for it
			}
			said, err := all[kind].Plan(ctx, toDo(kind, map[string]string{"target": "pxe"}))
			cancel()
			if (err == nil && said.ID == messages.WouldRufio) != one.rufio {
				t.Errorf("%s: %s: %s, %v", name, kind, messages.Text(said), err)
			}
			// What is so already is told by a controller of our own alone: what Rufio has read may be minutes old.
			settler, ok := all[kind].(control.Settler)
			if ok != (kind != "power_cycle") {
				t.Errorf("%s: %s tells what is so already: %v", name, kind, ok)
			}
			if ok && one.rufio {
				if so, _, err := settler.Settled(t.Context(), toDo(kind, nil)); so || err != nil {
					t.Errorf("%s: %s: %v, %v", name, kind, so, err)
				}
			}
		}
	}
	alone, err := control.Drivers{"bmc": bmc.Default(), "tinkerbell": defaults()}.Remediators(control.Settings{Resource: inventoryOf(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone["power_on"].Plan(t.Context(), toDo("power_on", nil)); !errors.Is(err, control.ErrCannot) || !strings.Contains(err.Error(), "set redfish_url or ipmi_ip") {
		t.Errorf("without Rufio: %v", err)
	}
}
