package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"auspex/internal/sim"
	"auspex/schemas"
)

// spare is what stands in the fleet of a demo and is in no inventory.
func spare(t *testing.T, dir string) []schemas.Resource {
	t.Helper()
	var top schemas.Topology
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.SpareFile))
	if err == nil {
		err = json.Unmarshal(b, &top)
	}
	if err != nil {
		t.Fatal(err)
	}
	return top.Resources
}

// finds sweeps for the server that stands in the fleet of a demo and in no inventory, and registers it.
func (p *product) finds(dir string) (v schemas.Server) {
	p.t.Helper()
	must := func(method, path, body string, out any) {
		p.t.Helper()
		if err := p.curl(p.token, method, path, body, out); err != nil {
			p.t.Fatal(err)
		}
	}
	all := spare(p.t, dir)
	stands := all[slices.IndexFunc(all, func(r schemas.Resource) bool { return r.Kind == schemas.KindServer })]
	at, err := url.Parse(stands.Attrs.Get(schemas.AttrRedfishURL))
	if err != nil {
		p.t.Fatal(err)
	}
	var sweep schemas.Discovery
	must(http.MethodPost, "discoveries", fmt.Sprintf(`{"ranges":[%q],"redfish_ports":[%s],"credential":%q}`, at.Hostname(), at.Port(), sim.Credential), &sweep)
	var found struct {
		Discovery schemas.Discovery
		Items     []schemas.Find
	}
	p.await("the sweep ends", func() error {
		must(http.MethodGet, "discoveries/"+sweep.ID, "", &found)
		if found.Discovery.Status != schemas.DiscoveryCompleted {
			return fmt.Errorf("%+v", found.Discovery)
		}
		return nil
	})
	if len(found.Items) != 1 || found.Items[0].Proposal == nil {
		p.t.Fatalf("%+v", found)
	}
	must(http.MethodPost, "servers", fmt.Sprintf(`{"name":%q,"parent":%q,"found":%q,"credential":%q}`, stands.ID, stands.Parent, found.Items[0].ID, sim.Credential), &v)
	if v.Status != schemas.ServerDiscovered {
		p.t.Fatalf("it is %s", v.Status)
	}
	return v
}

// reaches waits for a workflow of a server alone.
func (p *product) reaches(id string, ok func(*schemas.Workflow) bool) (w schemas.Workflow) {
	p.t.Helper()
	p.awaitFor(2*patience, "the workflow "+id, func() error {
		w = schemas.Workflow{}
		if err := p.get("api/v1/workflows/"+id, &w); err != nil {
			return err
		}
		if ok(&w) {
			return nil
		}
		if !w.Live() {
			return settled{errors.New(w.Reason)}
		}
		return fmt.Errorf("it is %s: %+v", w.Status, w.Steps)
	})
	return w
}

// bringsUp has a server that was found brought up: first by what the sweep told of it, which is too little to install it by, then
// again, from where that failed, with what somebody has looked up. It returns with the second run under way.
func (p *product) bringsUp(dir string, v *schemas.Server) schemas.Workflow {
	p.t.Helper()
	var w schemas.Workflow
	p.await("its bring-up is asked for", func() error { // the demo stores its templates
		return p.curl(p.token, http.MethodPost, "workflows", fmt.Sprintf(`{"type":"bring_up","server_id":%q,"template":"ubuntu"}`, v.ID), &w)
	})
	w = p.reaches(w.ID, func(w *schemas.Workflow) bool { return w.Status == schemas.WorkflowFailed })
	if st := w.Steps[0]; st.Name != "inventory" || st.Status != schemas.StepFailed || !strings.Contains(st.Message, "its hardware record lacks boot_mac, boot_disk") {
		p.t.Fatalf("%+v", w.Steps)
	}
	var all page[map[string]any]
	if err := p.curl(p.token, http.MethodPost, "allocations", fmt.Sprintf(`{"server_id":%q,"user_id":"li"}`, v.ID), &all); err == nil || !strings.Contains(err.Error(), "it is not ready") {
		p.t.Errorf("it is given to somebody: %v", err)
	}
	mac, disk := "", ""
	for _, r := range spare(p.t, dir) {
		switch boots := r.Attrs.Get(schemas.AttrBoot) == "true"; {
		case boots && r.Kind == schemas.KindNIC:
			mac = r.Attrs.Get(schemas.AttrMAC)
		case boots && r.Kind == schemas.KindDisk:
			disk = r.Attrs.Get(schemas.AttrDevice)
		}
	}
	if err := p.curl(p.token, http.MethodPut, "hardware/"+v.Name, fmt.Sprintf(`{"boot_mac":%q,"boot_disk":%q}`, mac, disk), &map[string]any{}); err != nil {
		p.t.Fatal(err)
	}
	if err := p.curl(p.token, http.MethodPost, "workflows/"+w.ID+"/resume", "", &w); err != nil || w.Attempt != 2 {
		p.t.Fatalf("%+v %v", w, err)
	}
	return w
}
