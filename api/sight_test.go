package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/bus"
	"auspex/internal/store/allocations"
	"auspex/schemas"
	"auspex/schemas/openapi"
)

// operations are those of the document, by id: method and path.
func operations(t *testing.T) map[string][2]string {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `yaml:"operationId"`
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(openapi.Document, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string][2]string{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.OperationID != "" {
				out[op.OperationID] = [2]string{strings.ToUpper(method), path}
			}
		}
	}
	return out
}

// tenants are li of red, who has gpu-r01-01, and jo of blue, who has the server of many records,
// both for an hour.
func tenants(t *testing.T, options ...option) (w *world, red, blue schemas.Allocation) {
	t.Helper()
	w = gives(t, append([]option{withEstate(t, 8), func(_ *api.Config, d *api.Deps) {
		d.Guarded = map[string]http.Handler{"/metrics": http.NotFoundHandler(), "/debug/pprof/": http.NotFoundHandler()}
	}}, options...)...)
	for name, team := range map[string]string{"li": "red", "jo": "blue"} {
		w.person(t, name, access.RoleEngineer)
		makes[schemas.Team](t, w, "api/v1/teams", `{"name":"`+team+`","members":["`+name+`"]}`)
	}
	red, blue = w.gets(t, "li", "gpu-r01-01", "red-work"), w.gets(t, "jo", "gpu-r01-03", "blue-secret")
	return w, red, blue
}

// gets gives somebody a server that they have had for an hour.
func (w *world) gets(t *testing.T, who, server, purpose string) schemas.Allocation {
	t.Helper()
	a := decode[apigen.CreatedAllocation](t, w.send(t, http.MethodPost, "api/v1/allocations", who,
		body(`{"server_id":"`+server+`","purpose":"`+purpose+`"}`)), http.StatusCreated).Allocation
	store := allocations.New(w.db)
	if _, err := store.Begin(t.Context(), "allocator", a.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Activate(t.Context(), "allocator", a.ID); err != nil {
		t.Fatal(err)
	}
	w.had(t, a.ID, time.Now().Add(-time.Hour), time.Time{})
	return a
}

// had has an allocation be active from one time to another.
func (w *world) had(t *testing.T, id string, from, until time.Time) {
	t.Helper()
	end := int64(0)
	if !until.IsZero() {
		end = until.UnixNano()
	}
	if _, err := w.db.ExecContext(t.Context(), `UPDATE allocations SET active_ns=$1, ended_ns=$2 WHERE id=$3`, from.UnixNano(), end, id); err != nil {
		t.Fatal(err)
	}
}

// A server tells its health and its risk in lists and on its page, as the fleet does; of what another
// team has, a tenant learns neither.
func TestServersTellTheirHealthAndRisk(t *testing.T) {
	w, _, _ := tenants(t)
	words := []string{"ok", "warning", "critical", "affected", "predicted", "acting", "out", "unknown"}
	ill, risky := 0, 0
	for _, who := range []string{access.RoleAdmin, "li"} {
		f := decode[apigen.Fleet](t, w.do(t, who, http.MethodGet, "fleet", "", ""), http.StatusOK).Servers
		list := decode[apigen.ServerRecordList](t, w.do(t, who, http.MethodGet, "servers?limit=1000", "", ""), http.StatusOK).Items
		for _, v := range list {
			k := slices.Index(f.Name, v.Name)
			if v.Health != words[f.State[k]] || math.Abs(v.Risk*100-f.Risk[k]) > .1 {
				t.Errorf("%s reads that %s is %s with %v, and in the fleet %s with %v %%", who, v.Name, v.Health, v.Risk, words[f.State[k]], f.Risk[k])
			}
			page := decode[apigen.Server](t, w.do(t, who, http.MethodGet, "servers/"+v.Name, "", ""), http.StatusOK)
			if page.Health != v.Health || page.Risk != v.Risk {
				t.Errorf("%s reads on the page of %s: %s, %v, and in the list %s, %v", who, v.Name, page.Health, page.Risk, v.Health, v.Risk)
			}
			switch {
			case who != access.RoleAdmin:
				if (v.Health == "unknown") != (v.Name != "gpu-r01-01") {
					t.Errorf("%s reads that %s is %s", who, v.Name, v.Health)
				}
			case v.Health != "ok" && v.Health != "unknown":
				ill++
			}
			if v.Risk > 0 {
				risky++
			}
		}
	}
	if ill == 0 || risky == 0 {
		t.Errorf("%d are ill, %d at risk", ill, risky)
	}
}

// What is another team's is nowhere in what a tenant can read: no list, page, search, stream or error.
func TestATenantReadsNothingOfAnother(t *testing.T) {
	w, _, blue := tenants(t)
	_ = w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/power", access.RoleAdmin, body(`{"action":"power_on"}`))
	alert := read[apigen.AlertList](t, w, "api/v1/alerts?server=gpu-r01-03&limit=1").Items[0]
	asked := decode[apigen.OperationList](t, w.send(t, http.MethodGet, "api/v1/operations", access.RoleAdmin, nil), 200).Items[0]
	// What tells of them, by what it is; the names of servers are for everybody.
	secrets := []string{blue.ID, "blue-secret", "jo@", `"jo"`, "i-1043", "a-314", alert.ID, asked.ID}
	ids := map[string]string{
		"/alerts/": alert.ID, "/events/": alert.ID, "/incidents/": "i-1043", "/actions/": "a-314", "/allocations/": blue.ID, "/users/": "jo", "/teams/": "blue",
		"/operations/": asked.ID, "/servers/": "gpu-r01-03", "/gpus/": url.PathEscape("gpu-r01-03/gpu4"), "/resources/": "gpu-r01-03", "/assets/": "gpu-r01-03",
		"/machines/": "gpu-r01-03", "/maintenance/": "m-1", "/workflows/": "none", "/webhooks/": "none", "/pools/": "default", "/quotas/": "none",
		"/reservations/": "none", "/proposals/": "none", "/discoveries/": "none", "/conflicts/": "none", "/grants/": "none", "/tokens/": "none",
		"/templates/": "none", "/hardware/": "gpu-r01-03",
	}
	shown := 0
	for id, op := range operations(t) {
		method, path := op[0], op[1]
		if method != http.MethodGet || slices.Contains([]string{"stream", "beginLogin", "finishLogin"}, id) {
			continue
		}
		for prefix, value := range ids {
			if rest, ok := strings.CutPrefix(path, prefix+"{"); ok {
				_, rest, _ = strings.Cut(rest, "}")
				path = prefix + value + rest
			}
		}
		query := map[string]string{"search": "?q=r01-03", "getGPUMetrics": "?metric=DCGM_FI_DEV_GPU_TEMP", "listUsers": ""}[id]
		if strings.Contains(path, "{") {
			t.Errorf("%s: nothing to put into %s", id, path)
		}
		a, admin := w.send(t, http.MethodGet, "api/v1"+path+query, "li", nil), w.send(t, http.MethodGet, "api/v1"+path+query, access.RoleAdmin, nil)
		for _, s := range secrets {
			if strings.Contains(string(a.body), s) && !(a.status == http.StatusNotFound && strings.Contains(path, url.PathEscape(s))) {
				t.Errorf("%s tells %s: %d %s", id, s, a.status, a.body)
			}
			if strings.Contains(string(admin.body), s) && admin.status == http.StatusOK {
				shown++
			}
		}
		if a.status >= http.StatusInternalServerError {
			t.Errorf("%s: %d %s", id, a.status, a.body)
		}
	}
	if shown < 20 {
		t.Errorf("an admin is told of them %d times only", shown)
	}
}

// A tenant sees what happened to a server while they had it, and nothing of before and after.
func TestATenantSeesTheirServersForTheirTime(t *testing.T) {
	w, red, _ := tenants(t)
	now := time.Now().UTC()
	w.had(t, red.ID, now.Add(-3*time.Hour), now.Add(-time.Hour))
	for id, ago := range map[string]time.Duration{"x-before": 4 * time.Hour, "x-during": 2 * time.Hour, "x-after": time.Minute} {
		at := now.Add(-ago)
		if err := w.records.PutAlert(t.Context(), schemas.Alert{
			Event:  schemas.Event{ID: id, Time: at, Observed: at, Source: "kmsg", Resource: "gpu-r01-01/gpu0", Type: "gpu.xid", Severity: "error"},
			Server: "gpu-r01-01",
			Status: schemas.AlertFiring,
		}); err != nil {
			t.Fatal(err)
		}
		if err := w.records.PutIncident(t.Context(), schemas.Incident{
			ID: "i-" + id, Opened: at, Updated: at, Closed: &at, At: at, Severity: "error", RootCause: schemas.Cause{Resource: "gpu-r01-01/gpu0", Fault: "gpu.gsp_hang"},
			Affected: []string{"gpu-r01-01"}, Events: []string{id},
		}); err != nil {
			t.Fatal(err)
		}
	}
	names := func(list []apigen.Alert) (out []string) {
		for _, a := range list {
			out = append(out, a.ID)
		}
		return out
	}
	if got := names(decode[apigen.AlertList](t, w.send(t, http.MethodGet, "api/v1/alerts", "li", nil), 200).Items); !slices.Equal(got, []string{"x-during"}) {
		t.Errorf("%v", got)
	}
	for id, status := range map[string]int{"x-before": 404, "x-during": 200, "x-after": 404} {
		for _, path := range []string{"alerts/" + id, "events/" + id, "alerts/" + id + "/correlation", "incidents/i-" + id} {
			if a := w.send(t, http.MethodGet, "api/v1/"+path, "li", nil); a.status != status {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	for path, status := range map[string]int{"servers/gpu-r01-01/status": 404, "servers/gpu-r01-01/plots": 200, "servers/gpu-r01-01": 200} {
		if a := w.send(t, http.MethodGet, "api/v1/"+path, "li", nil); a.status != status {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	w.had(t, red.ID, now.Add(-3*time.Hour), time.Time{}) // again
	if a := w.send(t, http.MethodGet, "api/v1/servers/gpu-r01-01/status", "li", nil); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// An incident that touches others too says what it is and what of it is the tenant's, and no more.
func TestAnIncidentOfSeveralIsToldInPart(t *testing.T) {
	w, red, _ := tenants(t)
	now := time.Now().UTC()
	if err := w.records.PutIncident(t.Context(), schemas.Incident{
		ID: "i-feed", Opened: now.Add(-time.Minute), Updated: now, At: now, Severity: "critical", Events: []string{"e1"}, Workloads: []string{"job-blue"},
		RootCause: schemas.Cause{Resource: "pdu-r01-a", Fault: "power.feed_loss", Title: map[string]string{"en": "Power feed lost", "zh": "供电中断"}},
		Affected:  []string{"gpu-r01-01", "gpu-r01-03"}, Explanation: "job-blue of jo on gpu-r01-03 has ended",
	}); err != nil {
		t.Fatal(err)
	}
	i := decode[apigen.Incident](t, w.send(t, http.MethodGet, "api/v1/incidents/i-feed", "li", nil), 200)
	if !slices.Equal(i.Affected, []string{"gpu-r01-01"}) || len(i.Workloads) != 0 || len(i.Events) != 0 || i.RootCause.Resource != "" ||
		i.RootCause.Fault != "power.feed_loss" || i.Explanation != "Power feed lost" {
		t.Errorf("%+v", i)
	}
	if len(i.Holders) != 1 || i.Holders[0].Allocation != red.ID || i.Holders[0].Team != "red" || !slices.Equal(i.Holders[0].Servers, []string{"gpu-r01-01"}) {
		t.Errorf("%+v", i.Holders)
	}
	if i = read[apigen.Incident](t, w, "api/v1/incidents/i-feed"); len(i.Holders) != 2 || i.Holders[0].Purpose == i.Holders[1].Purpose {
		t.Errorf("%+v", i.Holders)
	}
}

// What a process says of itself is for those who run the place.
func TestATenantReadsNothingOfTheProcess(t *testing.T) {
	w, _, _ := tenants(t)
	for _, path := range []string{"metrics", "debug/pprof/heap"} {
		if a := w.send(t, http.MethodGet, path, "li", nil); a.status != http.StatusForbidden {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// A tenant's stream tells that lists changed, and of whose servers only their own.
func TestATenantsStream(t *testing.T) {
	w, _, _ := tenants(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"api/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens["li"])
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	told := false
	for lines.Scan() {
		line := lines.Text()
		if line == "event: hello" {
			w.alarm(t, "gpu-r01-03")
			w.alarm(t, "gpu-r01-01")
		}
		if line == "event: servers" || strings.Contains(line, "gpu-r01-03") {
			t.Fatal(line)
		}
		if strings.Contains(line, `"servers/gpu-r01-01"`) {
			told = true
			break
		}
	}
	if !told {
		t.Fatal("nothing is told of their server", lines.Err())
	}
}

// alarm tells the bus of an alert of a server.
func (w *world) alarm(t *testing.T, server string) {
	t.Helper()
	value, err := json.Marshal(schemas.Alert{Event: schemas.Event{ID: "alarm-" + server, Resource: server, Type: "host.oom"}, Server: server})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.bus.Publish(t.Context(), bus.Message{Topic: schemas.TopicAlerts, Key: server, Value: value}); err != nil {
		t.Fatal(err)
	}
}
