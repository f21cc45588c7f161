package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/browsertest"
	"auspex/schemas"
)

// idIn is the UUID that a resource of the test fleet has at its site.
func idIn(name string) string { return schemas.SpaceOf("dc1").ID(name).String() }

// labelled is a console whose first two servers have what servers have in the field.
func labelled(t *testing.T) *world {
	return start(t, true, func(_ *api.Config, d *api.Deps) {
		inv := &inventory{t: topology(8)}
		for name, attrs := range map[string]map[string]string{
			"gpu-r01-01":      {"serial": "1660423000123", "uuid": "4c4c4544-0042-3510-8052-b4c04f4e4d32"},
			"gpu-r01-02":      {"serial": "TWIN"},
			"gpu-r01-03":      {"serial": "TWIN"},
			"gpu-r01-01/gpu0": {"pci": "0000:1b:00.0", "uuid": "GPU-5e2f1b3a-0c4d-4e5f-8a9b-0c1d2e3f4a5b"},
			"gpu-r01-02/gpu0": {"pci": "0000:1b:00.0"},
			"gpu-r01-01/nic0": {"mac": "b8:59:9f:0a:1b:2c"},
			"gpu-r01-01/bmc":  {"serial": "1660423000123"}, // the server's: not ambiguous where a server is asked for
		} {
			at := slices.IndexFunc(inv.t.Resources, func(r schemas.Resource) bool { return r.ID == name })
			inv.t.Resources[at].Attrs = schemas.AttrsOf(attrs)
		}
		inv.version.Store(1)
		d.Inventory = inv
	})
}

func TestAnyNameOfAResourceFindsItInRoutes(t *testing.T) {
	w := labelled(t)
	id := idIn("gpu-r01-01")
	for text, want := range map[string]string{
		"gpu-r01-01": "gpu-r01-01", id: "gpu-r01-01", strings.ToUpper(id): "gpu-r01-01", "1660423000123": "gpu-r01-01",
		"4C4C4544-0042-3510-8052-B4C04F4E4D32": "gpu-r01-01",
		"gpu-r01-01/gpu0":                      "gpu-r01-01/gpu0", idIn("gpu-r01-01/gpu0"): "gpu-r01-01/gpu0",
		"GPU-5e2f1b3a-0c4d-4e5f-8a9b-0c1d2e3f4a5b": "gpu-r01-01/gpu0",
		"gpu-r01-02/1b:00.0":                       "gpu-r01-02/gpu0", id + "/00000000:1B:00.0": "gpu-r01-01/gpu0",
		"B8-59-9F-0A-1B-2C": "gpu-r01-01/nic0", "b859.9f0a.1b2c": "gpu-r01-01/nic0", "b8599f0a1b2c": "gpu-r01-01/nic0",
	} {
		server, _, _ := strings.Cut(want, "/")
		s := read[apigen.Server](t, w, "api/v1/servers/"+url.PathEscape(text))
		if s.Name != server || s.ID != idIn(server) {
			t.Errorf("servers/%s is %s %s", text, s.Name, s.ID)
		}
		if text == "1660423000123" { // as a resource it may be the server or its board controller
			continue
		}
		r := read[apigen.Resource](t, w, "api/v1/resources/"+url.PathEscape(text))
		if r.Name != want || r.ID != idIn(want) || r.Server.Name != server || r.Rack.Name != "dc1-r01" || r.Site.Name != "dc1" {
			t.Errorf("resources/%s is %+v", text, r)
		}
	}
	r := read[apigen.Resource](t, w, "api/v1/resources/gpu-r01-01")
	if r.Parent.Name != "dc1-r01" || r.Parent.Kind != "rack" || len(r.Parts) != 55 || r.Attrs["serial"] != "1660423000123" {
		t.Errorf("%+v", r)
	}
	for path, want := range map[string]int{"plots": 4, "plots?part=gpu0": 3} {
		if p := read[apigen.PlotList](t, w, "api/v1/servers/"+id+"/"+path); len(p.Items) < want {
			t.Errorf("%s of an id: %d plots", path, len(p.Items))
		}
	}
}

func TestAmbiguousAndUnknownNamesAreToldWithCandidates(t *testing.T) {
	w := labelled(t)
	for _, tc := range []struct {
		path       string
		status     int
		code, hint string
		want       []string
	}{
		{"servers/twin", 409, "ambiguous", "gpu-r01-02, gpu-r01-03", []string{"gpu-r01-02", "gpu-r01-03"}},
		{"servers/0000:1b:00.0", 409, "ambiguous", "gpu-r01-01, gpu-r01-02", []string{"gpu-r01-01", "gpu-r01-02"}},
		{"resources/1660423000123", 409, "ambiguous", "gpu-r01-01/bmc", []string{"gpu-r01-01", "gpu-r01-01/bmc"}},
		{"actions?server=TWIN", 409, "ambiguous", "gpu-r01-02", []string{"gpu-r01-02", "gpu-r01-03"}},
		{"servers/gpu-r01-1", 404, "not_found", "gpu-r01-01", []string{"gpu-r01-01", "gpu-r01-02", "gpu-r01-03"}},
		{"resources/gpu-r01-01%2Fgpu9", 404, "not_found", "gpu-r01-01/gpu0", []string{"gpu-r01-01/gpu0", "gpu-r01-01/gpu1", "gpu-r01-01/gpu2"}},
		{"servers/nothing-like-any-name", 404, "not_found", "may be wrong", nil},
		{"servers/" + idIn("gone"), 404, "not_found", "may be wrong", nil},
	} {
		a := w.send(t, http.MethodGet, "api/v1/"+tc.path, access.RoleViewer, nil)
		p := a.problem(t)
		var got []string
		for _, c := range p.Candidates {
			got = append(got, c.Name)
			if c.ID != idIn(c.Name) || c.Kind == "" {
				t.Errorf("%s: candidate %+v", tc.path, c)
			}
		}
		if a.status != tc.status || p.Code != tc.code || !strings.Contains(p.Hint, tc.hint) {
			t.Errorf("%s: %d %s", tc.path, a.status, a.body)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", tc.path, d)
		}
	}
}

func TestRecordsCarryTheIDOfWhatTheySpeakOf(t *testing.T) {
	w := start(t, true)
	i := read[apigen.Incident](t, w, "api/v1/incidents/i-1043")
	if i.RootCause.ResourceID != idIn("gpu-r03-06/gpu4") || i.Alternatives[0].ResourceID != idIn("gpu-r03-06") {
		t.Errorf("%+v %+v", i.RootCause, i.Alternatives)
	}
	if job := read[apigen.Incident](t, w, "api/v1/incidents/i-1044"); job.RootCause.ResourceID != "" {
		t.Errorf("a job has the id of a resource: %+v", job.RootCause)
	}
	if a := read[schemas.Action](t, w, "api/v1/actions/a-310"); a.ServerID != idIn("gpu-r03-06") {
		t.Errorf("%+v", a)
	}
	for _, text := range []string{"gpu-r03-06", idIn("gpu-r03-06"), "s0306"} {
		if l := read[apigen.ActionList](t, w, "api/v1/actions?server="+text); len(l.Items) != 4 || l.Items[0].ServerID != idIn("gpu-r03-06") {
			t.Errorf("actions of %s: %+v", text, l.Items)
		}
		if l := read[apigen.AlertList](t, w, "api/v1/alerts?server="+text); len(l.Items) != 7 {
			t.Errorf("alerts of %s: %d", text, len(l.Items))
		}
	}
	if l := read[apigen.AlertList](t, w, "api/v1/alerts?server=gone"); len(l.Items) != 0 {
		t.Errorf("alerts of a server that the inventory does not know: %+v", l.Items)
	}
	p := read[apigen.PredictionList](t, w, "api/v1/predictions?server="+idIn("gpu-r05-02"))
	if len(p.Items) != 1 || p.Items[0].ResourceID != idIn("gpu-r05-02/fan3") {
		t.Errorf("%+v", p.Items)
	}
	s := read[apigen.Server](t, w, "api/v1/servers/gpu-r03-06")
	if len(s.Incidents) != 1 || s.Incidents[0].RootCause.ResourceID == "" || len(s.Actions) != 4 || s.Actions[0].ServerID != s.ID {
		t.Errorf("%+v", s)
	}
	f := read[apigen.Fleet](t, w, "api/v1/fleet")
	for k, name := range f.Servers.Name {
		if f.Servers.ID[k] != idIn(name) {
			t.Errorf("%s has the id %s", name, f.Servers.ID[k])
		}
	}
	if r := f.Racks[0]; r.ID != idIn(r.Name) {
		t.Errorf("%+v", r)
	}
}

func TestResourcesComeInPages(t *testing.T) {
	w := labelled(t)
	var names []string
	after := ""
	for {
		l := read[apigen.ResourceList](
			t, w, "api/v1/resources?kind=gpu&limit=100&within="+url.QueryEscape("dc1-r02")+"&after="+url.QueryEscape(after),
		)
		for _, r := range l.Items {
			names = append(names, r.Name)
			if r.ID != idIn(r.Name) || r.Kind != "gpu" || !strings.HasPrefix(r.Name, "gpu-r02-") {
				t.Errorf("%+v", r)
			}
		}
		if after = l.Next; after == "" {
			break
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(names)) != 64 {
		t.Errorf("%d GPUs: %v", len(names), names)
	}
	whole := 0
	for after = ""; ; {
		l := read[apigen.ResourceList](t, w, "api/v1/resources?limit=1000&after="+url.QueryEscape(after))
		whole += len(l.Items)
		if after = l.Next; after == "" {
			break
		}
	}
	if want := len(topology(8).Resources); whole != want {
		t.Errorf("%d resources, the inventory has %d", whole, want)
	}
	for text, want := range map[string]int{"twin": 2, "b8599f0a1b2c": 1, "gpu-r01-01": 1, "nothing": 0} {
		if l := read[apigen.ResourceList](t, w, "api/v1/resources?find="+text); len(l.Items) != want {
			t.Errorf("find %s: %+v", text, l.Items)
		}
	}
}

// What stands on a sticker or in another system's log opens the page of a device.
func TestThePaletteFindsADeviceByWhatIsOnItsSticker(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	w := labelled(t)
	p := open(browser, t, w, access.RoleOperator, view{1280, 800, "light", "en"})
	for text, want := range map[string]string{
		"B8-59-9F-0A-1B-2C": "/servers/gpu-r01-01?part=nic0", idIn("gpu-r02-05"): "/servers/gpu-r02-05", "S0304": "/servers/gpu-r03-04",
	} {
		p.visit(w.base + "fleet")
		p.keys("/")
		p.wait("the palette", `document.activeElement.matches('.palette input')`)
		p.keys(text)
		p.wait(text+" is offered", `document.querySelector('.palette li small')?.textContent === 'Inventory'`)
		p.keys(kb.Enter)
		p.wait(want, fmt.Sprintf(`(location.pathname + location.search).endsWith(%q) && document.querySelector('h1.mono')`, want))
	}
	p.visit(w.base + "servers/" + idIn("gpu-r02-05"))
	p.wait(
		"the address of the name",
		`location.pathname.endsWith('/servers/gpu-r02-05') && document.querySelector('h1.mono')?.textContent === 'gpu-r02-05'`,
	)
	if e := p.console(); len(e) > 0 {
		t.Errorf("the console said %q", e)
	}
}
