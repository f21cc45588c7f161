package api_test

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/requests"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func operationIn(t *testing.T, a answer) (o apigen.Operation) {
	t.Helper()
	if a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func keyed(key, text string) func(*http.Request) {
	return func(r *http.Request) {
		body(text)(r)
		r.Header.Set("Idempotency-Key", key)
	}
}

func TestAnOperationIsAskedForOnceAndFollowed(t *testing.T) {
	w := start(t, true)
	w.engineer(t)
	asked := w.intents(t)
	ask := keyed("k1", `{"action":"power_off","force":true}`)
	a := w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/power", access.RoleEngineer, ask)
	o := operationIn(t, a)
	if o.State != requests.Pending || o.Done || o.Server != "gpu-r01-03" || o.ServerID == "" || o.Kind != "power_off" || o.With["force"] != "true" ||
		o.Actor != access.RoleEngineer || o.Reason != "request" {
		t.Errorf("%+v", o)
	}
	if !strings.HasSuffix(a.header.Get("Location"), "/api/v1/operations/"+o.ID) {
		t.Errorf("it is at %q", a.header.Get("Location"))
	}
	if again := operationIn(t, w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/power", access.RoleEngineer, ask)); again.ID != o.ID {
		t.Errorf("the same request again is %s, was %s", again.ID, o.ID)
	}
	in := <-asked
	if in.ID != o.ID || in.Verb != schemas.IntentRequest || in.Kind != "power_off" || in.Server != "gpu-r01-03" {
		t.Errorf("%+v", in)
	}
	if got := read[apigen.Operation](t, w, "api/v1/operations/"+o.ID); got.State != requests.Pending {
		t.Errorf("%+v", got) // before control has taken it
	}
	now := time.Now().UTC()
	if err := w.records.PutAction(t.Context(), schemas.Action{
		ID: o.ID, Time: now, Created: now, Server: o.Server, Kind: o.Kind, State: schemas.ActionRefused, Detail: "control only observes", Actor: "x",
	}); err != nil {
		t.Fatal(err)
	}
	if got := read[apigen.Operation](t, w, "api/v1/operations/"+o.ID); got.State != schemas.ActionRefused || !got.Done || got.Detail != "control only observes" {
		t.Errorf("%+v", got)
	}
}

func TestOperationsAreListedByServerAndState(t *testing.T) {
	w := start(t, true)
	w.engineer(t)
	var ids []string
	for _, server := range []string{"gpu-r01-03", "gpu-r01-02", "gpu-r01-03"} {
		ids = append(ids, operationIn(t, w.send(t, http.MethodPost, "api/v1/operations/"+server+"/power", access.RoleAdmin, body(`{"action":"reboot"}`))).ID)
	}
	now := time.Now().UTC()
	if err := w.records.PutAction(t.Context(), schemas.Action{ID: ids[1], Time: now, Created: now, Server: "gpu-r01-02", Kind: "reboot", State: "done"}); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		"": {ids[2], ids[1], ids[0]}, "?server=gpu-r01-03": {ids[2], ids[0]}, "?state=done": {ids[1]}, "?state=pending&limit=1": {ids[2]},
	} {
		list := read[apigen.OperationList](t, w, "api/v1/operations"+query)
		var got []string
		for _, o := range list.Items {
			got = append(got, o.ID)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
	}
	first := read[apigen.OperationList](t, w, "api/v1/operations?limit=2")
	if rest := read[apigen.OperationList](t, w, "api/v1/operations?limit=2&after="+first.Next); len(rest.Items) != 1 || rest.Items[0].ID != ids[0] || rest.Next != "" {
		t.Errorf("%+v", rest)
	}
}

func TestWhoMayAskAndForWhat(t *testing.T) {
	w := start(t, true)
	w.engineer(t)
	for _, tc := range []struct {
		role, path, text string
		status           int
	}{
		{access.RoleOperator, "servers/gpu-r01-03/power", `{"action":"power_on"}`, 403},
		{access.RoleViewer, "servers/gpu-r01-03/bios", `{"attributes":{"a":"b"}}`, 403},
		{access.RoleEngineer, "servers/nobody/power", `{"action":"power_on"}`, 404},
		{access.RoleEngineer, "servers/gpu-r01-03%2Fgpu0/power", `{"action":"power_on"}`, 404}, // a part is no server
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"explode"}`, 400},
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"power_on","watts":3000}`, 400}, // it is of cap_power alone,
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"cap_power"}`, 400},             // which needs it,
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"cap_power","watts":0}`, 400},
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"cap_power","watts":-1}`, 400},
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"cap_power","watts":70000}`, 400}, // within what a controller takes
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"cap_power","watts":"3000"}`, 400},
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"cap_power","watts":3000}`, 202},
		{access.RoleEngineer, "servers/gpu-r01-03/power", `{"action":"uncap_power"}`, 202},
		{access.RoleEngineer, "servers/gpu-r01-03/bios", `{"attributes":{}}`, 400},
		{access.RoleEngineer, "servers/gpu-r01-03/firmware", `{"component":"bmc"}`, 400},
		{access.RoleEngineer, "servers/gpu-r01-03/firmware", `{"component":"bmc","version":"2"}`, 400},
		{access.RoleEngineer, "servers/gpu-r01-03/firmware", `{"component":"bmc","version":"2","image":"http://192.0.2.1/i","sha256":"` + strings.Repeat("0", 64) + `"}`, 202},
		{access.RoleEngineer, "servers/gpu-r01-03/bios", `{"attributes":{"reset":"true"}}`, 400},
	} {
		if a := w.send(t, http.MethodPost, "api/v1/"+tc.path, tc.role, body(tc.text)); a.status != tc.status {
			t.Errorf("%s %s %s: %d %s", tc.role, tc.path, tc.text, a.status, a.body)
		}
	}
	for text, want := range map[string]string{`{"action":"reboot","watts":3000}`: "Leave watts out.", `{"action":"cap_power"}`: "Say what the server may draw."} {
		if a := w.send(t, http.MethodPost, "api/v1/servers/gpu-r01-03/power", access.RoleEngineer, body(text)); !strings.Contains(string(a.body), want) || !strings.Contains(string(a.body), `"field":"watts"`) {
			t.Errorf("%s: %s", text, a.body)
		}
	}
	if a := w.send(t, http.MethodGet, "api/v1/operations/none", access.RoleViewer, nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Operations are listed for as long as the configuration says, and what is forgotten is counted.
func TestOldOperationsAreForgotten(t *testing.T) {
	w := start(t, true, func(c *api.Config, d *api.Deps) {
		c.KeepOperations = 48 * time.Hour
		for id, ago := range map[string]time.Duration{"old": 49 * time.Hour, "new": 47 * time.Hour} {
			in := schemas.Intent{ID: id, Time: time.Now().Add(-ago), Verb: schemas.IntentRequest, Server: "gpu-r01-01", Kind: "power_on"}
			if err := d.DB.InTx(t.Context(), func(tx *sql.Tx) error { return requests.Take(t.Context(), tx, in) }); err != nil {
				t.Fatal(err)
			}
		}
	})
	waittest.For(t, "old operations are forgotten", func() bool { return metric(t, w, "auspex_api_forgotten_operations_total", "", "") == 1 })
	if list := read[apigen.OperationList](t, w, "api/v1/operations"); len(list.Items) != 1 || list.Items[0].ID != "new" {
		t.Errorf("%+v", list.Items)
	}
}
