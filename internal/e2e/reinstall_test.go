package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

// Of the script damaged-driver: what a new installation mends, and where it fails.
const (
	reinstalled   = "gpu-r03-04"
	uninstallable = "gpu-r07-05"
)

// What neither a reset nor a power cycle mends is installed anew through Tinkerbell, validated and given back; where
// the installation fails, the server stays out, held back from everybody, and a person is told.
func TestEnforceInstallsAServerAnewAndReturnsIt(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	p := launch(t, dir, "--demo", "--agents-alone", "--mode", "enforce", "--script", "testdata/scripts/damaged-driver.yaml", "--seed", "3",
		"--set", "store.clickhouse=off", "--set", "control.policies=testdata/reinstall.yaml")
	p.ready()
	p.awaitFor(4*patience, reinstalled+" is installed anew and given back", func() error {
		steps, err := p.actionsOn(reinstalled)
		if err != nil {
			return err
		}
		for _, kind := range []string{"drain", "reset_gpu", "power_cycle", "reinstall", "validate", "uncordon"} {
			a, ok := steps[kind]
			want := schemas.ActionDone
			if kind == "reset_gpu" || kind == "power_cycle" {
				want = schemas.ActionFailed
			}
			ended := slices.Contains([]string{schemas.ActionDone, schemas.ActionFailed, schemas.ActionCancelled, schemas.ActionUnknown}, a.State)
			switch {
			case !ok:
				return errors.New("no action " + kind)
			case ended && a.State != want:
				return settled{fmt.Errorf("%s is %s: %s %s", kind, a.State, a.Detail, a.VerifiedBy)}
			case a.State != want:
				return fmt.Errorf("%s is %s: %s", kind, a.State, a.Detail)
			}
		}
		return nil
	})
	steps, err := p.actionsOn(reinstalled)
	if err != nil {
		t.Fatal(err)
	}
	for kind, a := range steps {
		t.Logf("%s: %s %s", kind, a.Detail, a.VerifiedBy)
	}
	if a := steps["reinstall"]; !strings.HasPrefix(a.VerifiedBy, "agent has read "+reinstalled+"/gpu2 for ") {
		t.Errorf("the installation was verified by %q", a.VerifiedBy)
	}
	// What was found is kept with the server, beside what collectors, the inventory and the fleet say.
	var kept struct{ Items []schemas.Validation }
	if err := p.get("api/v1/servers/"+reinstalled+"/validations", &kept); err != nil || len(kept.Items) == 0 {
		t.Fatalf("%+v %v", kept, err)
	}
	found := map[string]schemas.ValidationCheck{}
	for _, c := range kept.Items[0].Checks {
		if c.Verdict == schemas.CheckPassed {
			found[c.Source+" "+c.Name] = c
		}
		if c.Verdict == schemas.CheckFailed {
			t.Errorf("the server was given back with %+v", c)
		}
	}
	for _, check := range []string{"agent driver", "agent pcie-width", "telemetry telemetry", "inventory gpu_count"} {
		if _, ok := found[check]; !ok {
			t.Errorf("%s is not passed among %+v", check, kept.Items[0].Checks)
		}
	}
	if s := nodeStates(t, dir, reinstalled); slices.Contains(s, "DRAIN") || slices.Contains(s, "DOWN") {
		t.Errorf("%s is %v and not back in the pool", reinstalled, s)
	}

	p.bringsUp(dir, "gpu-r01-", "gpu-r02-", "gpu-r04-", "gpu-r05-", "gpu-r06-", "gpu-r08-")

	p.awaitFor(4*patience, "a person is told of the server that cannot be installed", func() error {
		steps, err := p.actionsOn(uninstallable)
		if err != nil {
			return err
		}
		if a := steps["reinstall"]; a.State == schemas.ActionDone {
			return settled{fmt.Errorf("it is installed: %s", a.VerifiedBy)}
		} else if a.State != schemas.ActionFailed {
			return fmt.Errorf("the installation is %q: %s", a.State, a.Detail)
		}
		if a := steps["ticket"]; a.State != schemas.ActionProposed {
			return errors.New("nobody is told of it")
		}
		return nil
	})
	if steps, err = p.actionsOn(uninstallable); err != nil {
		t.Fatal(err)
	}
	t.Logf("reinstall: %s; ticket: %s", steps["reinstall"].Detail, steps["ticket"].Why)
	if a, ok := steps["uncordon"]; ok {
		t.Errorf("uncordon is %s", a.State)
	}
	if s := nodeStates(t, dir, uninstallable); !slices.Contains(s, "DRAIN") {
		t.Errorf("%s is %v and not held out of the pool", uninstallable, s)
	}
	p.interrupt()
}

// bringsUp has a server of some racks, one on which nobody computes, brought up, with an installation, to its end.
func (p *product) bringsUp(dir string, racks ...string) {
	p.t.Helper()
	var w schemas.Workflow
	tries := 0
	p.awaitFor(4*patience, "a server is brought up", func() error {
		if w.ID == "" {
			server := ""
			for range len(racks) * 8 {
				server = fmt.Sprintf("%s%02d", racks[tries/8%len(racks)], 1+tries%8)
				tries++
				if slices.Contains(nodeStates(p.t, dir, server), "IDLE") {
					break
				}
			}
			var v schemas.Server
			if err := p.get("api/v1/servers/"+server, &v); err != nil {
				return err
			}
			return errors.Join(errors.New("it is asked for"),
				p.curl(p.token, http.MethodPost, "workflows", fmt.Sprintf(`{"type":"bring_up","server_id":%q,"template":"ubuntu"}`, v.ID), &w))
		}
		var is schemas.Workflow
		if err := p.get("api/v1/workflows/"+w.ID, &is); err != nil {
			return err
		}
		w = is
		if why := p.busy(&w); why != nil { // another one is taken
			w = schemas.Workflow{}
			return why
		}
		if w.Status == schemas.WorkflowFailed {
			return settled{errors.New(w.Reason)}
		}
		if w.Status != schemas.WorkflowCompleted {
			return fmt.Errorf("it is %s: %+v", w.Status, w.Steps)
		}
		return nil
	})
	var did []string
	for i := range w.Steps {
		did = append(did, w.Steps[i].Name)
		p.t.Logf("%s: %s", w.Steps[i].Name, w.Steps[i].Message)
	}
	if d := cmp.Diff([]string{"inventory", "idle", "drain", "no_baseline", "install", "driver", "drain", "telemetry", "validate", "health", "uncordon"}, did); d != "" {
		p.t.Error(d)
	}
	if at := w.Step("install"); at == nil || !strings.Contains(at.Message, "all 6 steps of the installation") {
		p.t.Errorf("the installation says %+v", at)
	}
	var v schemas.Server
	if err := p.get("api/v1/servers/"+w.Server, &v); err != nil || v.Status != schemas.ServerReady {
		p.t.Errorf("%s is %s (%v)", w.Server, v.Status, err)
	}
}
