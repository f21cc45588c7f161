package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/enrol"
	"auspex/internal/store/cursors"
	"auspex/schemas"
)

// lost is what collectors say of agents.
type lost map[string]map[string]cursors.Loss

func (l lost) Losses(_ context.Context, event, collector string) (map[string]cursors.Loss, error) {
	if collector != "agent" {
		return nil, nil
	}
	return l[event], nil
}

var wasLost = time.Date(2026, 11, 24, 22, 10, 0, 0, time.UTC)

// agentsOf is a console with servers whose agents are in each state.
func agentsOf(t *testing.T) *world {
	t.Helper()
	return start(t, true, func(_ *api.Config, d *api.Deps) {
		d.Tunnel = "0.0.0.0:9340"
		d.Contacts = lost{
			schemas.EventAgentUnreachable: {"gpu-r01-02": {Since: wasLost}, "not-there": {Since: wasLost}},
			schemas.EventAccessRefused:    {"gpu-r01-03": {Since: wasLost}},
		}
		inv := d.Inventory.(*inventory)
		for i := range inv.t.Resources {
			r := &inv.t.Resources[i]
			address := map[string]string{
				"gpu-r01-01": "gpu-r01-01:9339", "gpu-r01-02": "gpu-r01-02:9339", "gpu-r01-03": "gpu-r01-03:9339", "gpu-r01-04": schemas.AgentDialsIn,
			}[r.ID]
			if address != "" {
				r.Attrs = r.Attrs.With(schemas.AttrAgentAddress, address)
			}
		}
		inv.version.Add(1)
	})
}

func TestServersAreListedWithTheStateOfTheirAgents(t *testing.T) {
	w := agentsOf(t)
	if err := w.deps(t).Enrol.Note(t.Context(), &enrol.Agent{Server: "gpu-r01-01", Version: "v1.2.3"}); err != nil {
		t.Fatal(err)
	}
	all := read[apigen.AgentList](t, w, "api/v1/agents")
	got := map[string]string{}
	for _, a := range all.Items {
		got[a.Server] = a.State
	}
	for server, want := range map[string]string{"gpu-r01-02": "lost", "gpu-r01-03": "refuses", "gpu-r01-05": "none"} {
		if got[server] != want {
			t.Errorf("%s is %q, want %q", server, got[server], want)
		}
	}
	c := all.Counts
	if n := c.Answers + c.Unheard + c.Lost + c.Refuses + c.None; n != len(all.Items) || c.Lost != 1 || c.Refuses != 1 {
		t.Errorf("%d servers are counted as %+v", len(all.Items), c)
	}
	away := read[apigen.AgentList](t, w, "api/v1/agents?state=away")
	want := []apigen.Agent{
		{Server: "gpu-r01-02", Rack: all.Items[1].Rack, State: "lost", Since: wasLost, Address: "gpu-r01-02:9339"},
		{Server: "gpu-r01-03", Rack: all.Items[1].Rack, State: "refuses", Since: wasLost, Address: "gpu-r01-03:9339"},
	}
	if diff := cmp.Diff(want, away.Items); diff != "" || away.Counts != c {
		t.Error(diff, away.Counts)
	}
	if all.Items[0].Version != "v1.2.3" || !all.Items[3].DialsIn || all.Items[3].Address != "" {
		t.Errorf("%+v", all.Items[:4])
	}
	page := read[apigen.AgentList](t, w, "api/v1/agents?limit=1&state=away")
	if page.Items[0].Server != "gpu-r01-02" || read[apigen.AgentList](t, w, "api/v1/agents?limit=1&state=away&after="+page.Next).Items[0].Server != "gpu-r01-03" {
		t.Errorf("pages: %+v", page)
	}
	if a := w.send(t, http.MethodGet, "api/v1/agents?state=perhaps", access.RoleViewer, nil); a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestWhatAgentsSayInVainIsListedAndARackIsChecked(t *testing.T) {
	w := start(t, false)
	w.engineer(t)
	key := w.joins(t, "one", "gpu-9")
	if err := w.deps(t).Enrol.Note(t.Context(), &enrol.Agent{Machine: key, Token: "one", Refused: "more than 64 of /gpus/gpu"}); err != nil {
		t.Fatal(err)
	}
	list := read[apigen.RefusedDescriptionList](t, w, "api/v1/refused-descriptions").Items
	if len(list) != 1 || list[0].Refused != "more than 64 of /gpus/gpu" || list[0].Machine != key {
		t.Errorf("%+v", list)
	}
	id := w.proposes(t, "gpu-8")
	for text, want := range map[string]string{
		`{"decision":"accepted","rack":"r99"}`:               "no rack \\\"r99\\\"",
		`{"decision":"declined","reason":"no","rack":"r99"}`: "rack is for a proposal that is accepted",
	} {
		a := w.send(t, http.MethodPost, "api/v1/proposals/"+id+"/decisions", access.RoleEngineer, body(text))
		if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d %s", text, a.status, a.body)
		}
	}
	var p enrol.Proposal
	if err := json.Unmarshal(w.send(t, http.MethodGet, "api/v1/proposals/"+id, access.RoleViewer, nil).body, &p); err != nil || p.State != enrol.Open {
		t.Errorf("it is %s: %v", p.State, err)
	}
}

// stale is a hot window in which an agent told one metric just now, and another long ago.
type stale struct{ querier }

func (q stale) Instant(ctx context.Context, expr string, at time.Time) ([]api.Series, error) {
	series := func(metric string, ago float64) api.Series {
		return api.Series{
			Labels: map[string]string{"collector": "agent", "__name__": metric}, Points: []api.Point{{V: float64(at.UnixMilli())/1000 - ago}},
		}
	}
	all := []api.Series{series("auspex_dimm_size_bytes", 110), series("auspex_nic_in_octets_total", 3)}
	switch {
	case strings.HasPrefix(expr, "count by (collector"):
		return all, nil
	case strings.Contains(expr, "timestamp(") && strings.Contains(expr, "auspex_nic_in_octets_total{"):
		return all, nil
	}
	return q.querier.Instant(ctx, expr, at)
}

// An agent tells what has not changed seldom; that it tells anything is contact.
func TestContactIsTheNewestOfWhatACollectorTells(t *testing.T) {
	w := start(t, true, func(_ *api.Config, d *api.Deps) { d.Querier = stale{d.Querier.(querier)} })
	got := read[apigen.Server](t, w, "api/v1/servers/gpu-r01-01").Contact
	if len(got) != 1 || got[0].Collector != "agent" || got[0].Seconds > 10 {
		t.Errorf("contact: %+v", got)
	}
}
