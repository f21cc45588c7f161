package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"auspex/internal/sim"
	"auspex/schemas"
)

// cluster is the Kubernetes API of a simulated fleet, as somebody with its kubeconfig reads it.
func cluster(t *testing.T, dir string) func(resource string) []map[string]any {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "sim", sim.TinkerbellFile))
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(resource string) []map[string]any {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+"/apis/tinkerbell.org/v1alpha1/namespaces/tink/"+resource, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var list struct{ Items []map[string]any }
		if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v", resource, resp.Status, err)
		}
		return list.Items
	}
}

// flow is the newest workflow of a type of an allocation.
func (p *product) flow(allocation, kind string) (w schemas.Workflow, err error) {
	var found page[schemas.Workflow]
	if err := p.get("api/v1/workflows?limit=1&type="+kind+"&allocation="+allocation, &found); err != nil {
		return w, err
	}
	if len(found.Items) == 0 {
		return w, errors.New("no workflow " + kind)
	}
	return found.Items[0], nil
}

// A server is installed for its user, who cancels that in the middle, and the product is killed before it could do anything about it: the
// installation is ended all the same, nothing is left that could start it again, and the cleaning installs the server anew.
func TestAnInstallationIsCancelledInTheMiddle(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	args := []string{"--demo", "--mode", "enforce", "--script", "none", "--set", "store.clickhouse=off"}
	p := launch(t, dir, args...)
	p.ready()
	var a schemas.Allocation
	var w schemas.Workflow
	var asked schemas.Action
	p.await("an installation is under way", func() (err error) {
		if a.ID == "" {
			var made struct{ Allocation schemas.Allocation }
			if err := p.curl(p.token, http.MethodPost, "allocations", `{"wish":{"servers":1},"user_id":"li","purpose":"train","template":"ubuntu"}`, &made); err != nil {
				return err // the demo stores its templates
			}
			if a = made.Allocation; a.Template != "ubuntu" || a.TemplateVersion < 1 {
				return settled{fmt.Errorf("it is pinned to %s@%d", a.Template, a.TemplateVersion)}
			}
		}
		if w, err = p.flow(a.ID, schemas.WorkflowDeploy); err != nil {
			return err
		}
		if why := p.busy(&w); why != nil { // another server is asked for
			a = schemas.Allocation{}
			return why
		}
		install := w.Step("install")
		switch {
		case install == nil || w.Step("drain") == nil:
			return settled{fmt.Errorf("nothing is installed: %+v", w.Steps)}
		case w.Status == schemas.WorkflowFailed:
			return settled{errors.New(w.Reason)}
		case install.Operation == "":
			return errors.New("it is not there yet")
		}
		if err := p.get("api/v1/actions/"+install.Operation, &asked); err != nil {
			return err
		}
		if !asked.Endable() || !strings.Contains(asked.Detail, "the installation of ") {
			return fmt.Errorf("it is %s: %s", asked.State, asked.Detail)
		}
		return nil
	})
	server := a.Servers[0]
	t.Logf("cancelled at: %s", asked.Detail)
	var ended schemas.Workflow
	if err := p.curl(p.token, http.MethodDelete, "workflows/"+w.ID, "", &ended); err != nil || ended.Status != schemas.WorkflowFailed {
		t.Fatalf("%+v %v", ended, err)
	}
	p.kill()
	p.silent = true
	p = launch(t, dir, args...)
	p.ready()
	p.await("the installation is ended", func() error {
		var is schemas.Action
		if err := p.get("api/v1/actions/"+asked.ID, &is); err != nil {
			return err
		}
		if is.State == schemas.ActionDone || is.State == schemas.ActionFailed || is.State == schemas.ActionUnknown {
			return settled{fmt.Errorf("it is %s: %s %s", is.State, is.Detail, is.VerifiedBy)}
		}
		if is.State != schemas.ActionCancelled {
			return fmt.Errorf("it is %s: %s", is.State, is.Detail)
		}
		t.Log(is.Detail)
		return nil
	})
	for _, one := range cluster(t, dir)("workflows") {
		if strings.Contains(fmt.Sprint(one["metadata"]), asked.ID) {
			t.Errorf("its workflow is there: %v", one)
		}
	}
	p.awaitFor(2*patience, server+" is cleaned, installed anew, and ready", func() error {
		var is schemas.Allocation
		if err := p.get("api/v1/allocations/"+a.ID, &is); err != nil {
			return err
		}
		if is.Status != schemas.AllocationFailed {
			return fmt.Errorf("the allocation is %s", is.Status)
		}
		c, err := p.flow(a.ID, schemas.WorkflowCleanup)
		switch {
		case err != nil:
			return err
		case c.Status == schemas.WorkflowFailed:
			return settled{errors.New(c.Reason)}
		case c.Status != schemas.WorkflowCompleted || !is.Returned:
			return fmt.Errorf("the cleaning is %s: %+v", c.Status, c.Steps)
		}
		if st := c.Step("install"); st == nil || st.Status != schemas.StepCompleted || len(st.Stages) < 2 {
			return settled{fmt.Errorf("it was not installed anew: %+v", c.Steps)}
		}
		if st := c.Step("uncordon"); st == nil || st.Status != schemas.StepCompleted || strings.Contains(st.Message, "skipped") {
			return settled{fmt.Errorf("its scheduler has it not: %+v", c.Steps)}
		}
		return nil
	})
	for _, one := range cluster(t, dir)("hardware") {
		if text := fmt.Sprint(one); strings.Contains(text, server) && strings.Contains(text, "allowPXE:true") {
			t.Errorf("it may start from the network: %s", text)
		}
	}
	p.interrupt()
}
