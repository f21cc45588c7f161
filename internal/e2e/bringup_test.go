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
	"testing"

	"auspex/internal/sim"
	"auspex/schemas"
)

// finds sweeps for the server that stands in the fleet of a demo and in no inventory, and registers it.
func (p *product) finds(dir string) (v schemas.Server) {
	p.t.Helper()
	must := func(method, path, body string, out any) {
		p.t.Helper()
		if err := p.curl(p.token, method, path, body, out); err != nil {
			p.t.Fatal(err)
		}
	}
	var spare schemas.Topology
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.SpareFile))
	if err == nil {
		err = json.Unmarshal(b, &spare)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	stands := spare.Resources[slices.IndexFunc(spare.Resources, func(r schemas.Resource) bool { return r.Kind == schemas.KindServer })]
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

func TestBringUpScratch(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	p := launch(t, dir, "--demo", "--mode", "enforce", "--script", "none", "--spare", "1", "--set", "store.clickhouse=off")
	p.ready()
	v := p.finds(dir)
	var w schemas.Workflow
	p.await("asked", func() error {
		return p.curl(p.token, http.MethodPost, "workflows", fmt.Sprintf(`{"type":"bring_up","server_id":%q,"template":"ubuntu"}`, v.ID), &w)
	})
	w = p.reaches(w.ID, func(w *schemas.Workflow) bool { return !w.Live() })
	for _, st := range w.Steps {
		t.Logf("%s %s %s: %s", st.Name, st.Status, st.CompletedAt.Sub(st.StartedAt), st.Message)
	}
	t.Log(w.Status, w.Reason)
	var h map[string]any
	t.Log(p.get("api/v1/hardware/"+v.Name, &h), h)
	p.interrupt()
}
