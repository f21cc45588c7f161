package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/store/allocations"
	"auspex/internal/store/answers"
	"auspex/internal/store/configs"
	"auspex/internal/store/estate"
	"auspex/internal/store/people"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/store/validations"
	"auspex/internal/store/wipes"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// withEstate has a console keep an inventory of racks, and what people are given of it.
func withEstate(t *testing.T, racks int) option {
	return func(_ *api.Config, d *api.Deps) {
		t.Helper()
		db := d.DB.(*sqldb.DB)
		cfg := cmdb.DefaultConfig()
		cfg.Site = "dc1"
		inv := cmdb.New(cfg, db, nil, nil)
		inv.Follow(estate.New(db))
		err := inv.Open(t.Context())
		if err == nil {
			_, err = inv.Import(t.Context(), cmdb.Draft{Topology: topology(racks)}, cmdb.ImportOptions{Origin: "topology.json", Actor: "ana"})
		}
		if err != nil {
			t.Fatal(err)
		}
		d.Inventory, d.Registry, d.Configs, d.Provisioning, d.Validations, d.Wipes = inv, inv, configs.New(db), provisioning.New(db), validations.New(db), wipes.New(db, time.Now)
	}
}

// do sends a body with an If-Match, and returns the answer.
func (w *world) do(t *testing.T, role, method, path, tag, text string) answer {
	t.Helper()
	return w.send(t, method, "api/v1/"+path, role, func(r *http.Request) {
		if text != "" {
			body(text)(r)
		}
		if tag != "" {
			r.Header.Set("If-Match", tag)
		}
	})
}

// got decodes an answer of a status.
func got[T any](t *testing.T, a answer, status int) T {
	t.Helper()
	var v T
	if a.status != status {
		t.Fatalf("%d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// refusal holds an answer against a status, a code and the only field that it names.
func refusal(t *testing.T, name string, a answer, status int, code, field string) apigen.Problem {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: %d %s", name, a.status, a.body)
		return apigen.Problem{}
	}
	p := a.problem(t)
	if p.Code != code || field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != field) {
		t.Errorf("%s: %s %+v %s", name, p.Code, p.Errors, p.Detail)
	}
	return p
}

const newServer = `{"name":"gpu-new","model":"DGX H200","serial_number":"N1","ipmi_ip":"10.0.0.9","redfish_url":"https://10.0.0.9","management_ip":"10.1.0.9",
"credential":"bmc","parent":"dc1-r01","pool":"default","labels":{"team":"vision"},"gpus":[{"index":0,"model":"H200 141GB","memory_gb":141,"uuid":"GPU-aa","serial_number":"G0"},{"name":"left"}]}`

func TestAServerIsRegisteredChangedAndRetired(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	const eng = access.RoleEngineer
	a := w.do(t, eng, http.MethodPost, "servers", "", newServer)
	made := got[apigen.ServerRecord](t, a, http.StatusCreated)
	if made.Status != schemas.ServerDiscovered || made.Allocatable || made.WhyNot != allocations.WhyState || made.Pool != "default" ||
		made.Labels["team"] != "vision" || made.Place.Rack != "dc1-r01" || made.Place.Parent != "dc1-r01" || made.Place.Site != "dc1" ||
		made.SerialNumber != "N1" || made.IpmiIP != "10.0.0.9" || made.RedfishURL != "https://10.0.0.9" || made.ManagementIP != "10.1.0.9" ||
		!made.InInventory || a.header.Get("Location") != "/api/v1/servers/"+made.ID || a.header.Get("ETag") == "" {
		t.Errorf("%+v %v", made, a.header)
	}
	// It is found at once, by each of its names, on its page, among resources and with its GPUs.
	for _, by := range []string{"gpu-new", made.ID, "n1"} {
		a := w.do(t, access.RoleViewer, http.MethodGet, "servers/"+by, "", "")
		page := got[apigen.Server](t, a, http.StatusOK)
		if page.Name != "gpu-new" || page.Status != schemas.ServerDiscovered || page.Serial != "N1" || len(page.Parts) != 1 || page.Allocation != nil ||
			page.Allocatable == nil || *page.Allocatable || page.Rack != "dc1-r01" || a.header.Get("ETag") == "" {
			t.Errorf("%s: %s", by, a.body)
		}
	}
	gpus := got[apigen.GPUList](t, w.do(t, eng, http.MethodGet, "servers/gpu-new/gpus", "", ""), 200).Items
	if len(gpus) != 2 || gpus[0].Name != "gpu-new/gpu0" || *gpus[0].MemoryGB != 141 || gpus[0].Server != "gpu-new" || gpus[1].Name != "gpu-new/left" {
		t.Errorf("%+v", gpus)
	}
	if r, _ := w.estate.Registry.Snapshot().Resource("gpu-new"); r.Attrs.Get("credential") != "bmc" {
		t.Errorf("%+v", r)
	}
	for _, tc := range []struct{ name, body, code, field string }{
		{"a name twice", `{"name":"gpu-new"}`, "name_taken", "name"},
		{"the name of something else", `{"name":"leaf-r01"}`, "name_taken", "name"},
		{"a serial twice", `{"name":"x","serial_number":"s0101"}`, "name_taken", "serial_number"},
		{"a serial of a GPU", `{"name":"x","gpus":[{"index":0,"serial_number":"G0"}]}`, "name_taken", "gpus[0].serial_number"},
	} {
		refusal(t, tc.name, w.do(t, eng, http.MethodPost, "servers", "", tc.body), http.StatusConflict, tc.code, tc.field)
	}
	for _, tc := range []struct{ name, body, field string }{
		{"no such rack", `{"name":"x","parent":"r99"}`, "parent"},
		{"a parent that is no rack", `{"name":"x","parent":"gpu-r01-01"}`, "parent"},
		{"no such pool", `{"name":"x","pool":"none"}`, "pool"},
		{"a slash", `{"name":"x/y"}`, "name"},
		{"a secret in an address", `{"name":"x","redfish_url":"https://u:p@10.0.0.1"}`, "redfish_url"},
		{"a label that is none", `{"name":"x","labels":{"a b":"c"}}`, "labels.a b"},
		{"a GPU without a name", `{"name":"x","gpus":[{"model":"H100"}]}`, "gpus[0].name"},
		{"a GPU twice", `{"name":"x","gpus":[{"index":0},{"name":"gpu0"}]}`, "gpus[1].name"},
		{"no memory", `{"name":"x","gpus":[{"index":0,"memory_gb":0}]}`, "gpus[0].memory_gb"},
		{"a field that nobody knows", `{"name":"x","status":"ready"}`, "status"},
	} {
		refusal(t, tc.name, w.do(t, eng, http.MethodPost, "servers", "", tc.body), http.StatusBadRequest, "bad_body", tc.field)
	}
	if a := w.do(t, access.RoleViewer, http.MethodGet, "servers/x", "", ""); a.status != http.StatusNotFound {
		t.Errorf("something was left of what was refused: %s", a.body)
	}

	change := func(tag, text string) answer { return w.do(t, eng, http.MethodPut, "servers/gpu-new", tag, text) }
	tag := a.header.Get("ETag")
	a = change(tag, `{"model":"DGX B200","hold":"burn-in","labels":{},"status":"provisioning","status_reason":"burn-in"}`)
	v := got[apigen.ServerRecord](t, a, 200)
	if v.Model != "DGX B200" || v.Hold != "burn-in" || v.HoldBy != eng || len(v.Labels) != 0 || v.Status != schemas.ServerProvisioning ||
		v.StatusReason != "burn-in" || v.SerialNumber != "N1" {
		t.Errorf("%+v", v)
	}
	refusal(t, "an old tag, of the record", change(tag, `{"hold":""}`), http.StatusPreconditionFailed, "changed_meanwhile", "")
	refusal(t, "an old tag, of the inventory", change(tag, `{"model":"x"}`), http.StatusPreconditionFailed, "changed_meanwhile", "")
	if r, _ := w.estate.Registry.Snapshot().Resource("gpu-new"); r.Attrs.Get("model") != "DGX B200" {
		t.Errorf("%+v", r)
	}
	p := refusal(t, "a move that there is not", change("", `{"model":"x","status":"retired"}`), http.StatusConflict, "illegal_move", "")
	if d := cmp.Diff([]string{schemas.ServerReady, schemas.ServerError}, p.Legal); d != "" {
		t.Error(d)
	}
	refusal(t, "another's serial", change("", `{"serial_number":"S0102"}`), http.StatusConflict, "name_taken", "serial_number")
	refusal(t, "a rack that is none", change("", `{"parent":"leaf-r01"}`), http.StatusBadRequest, "bad_body", "parent")
	refusal(t, "a pool that is none", change("", `{"pool":"none"}`), http.StatusBadRequest, "bad_body", "pool")
	got[apigen.ServerRecord](t, change("", `{"status":"ready","hold":"","serial_number":""}`), 200)
	v = got[apigen.ServerRecord](t, w.do(t, eng, http.MethodPut, "servers/gpu-new", "", `{}`), 200)
	if !v.Allocatable || v.WhyNot != "" || v.SerialNumber != "" {
		t.Errorf("%+v", v)
	}

	// What a file brings too stays in the inventory.
	if a := w.do(t, eng, http.MethodDelete, "servers/gpu-r01-01", "", ""); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	refusal(t, "an old tag", w.do(t, eng, http.MethodDelete, "servers/gpu-new", tag, ""), http.StatusPreconditionFailed, "changed_meanwhile", "")
	if a := w.do(t, eng, http.MethodDelete, "servers/gpu-new", "", ""); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := w.do(t, eng, http.MethodDelete, "servers/gpu-new", "", ""); a.status != http.StatusNoContent {
		t.Errorf("retired twice: %d %s", a.status, a.body)
	}
	refusal(t, "brought back", change("", `{"status":"ready"}`), http.StatusConflict, "illegal_move", "")
	refusal(t, "its name", w.do(t, eng, http.MethodPost, "servers", "", newServer), http.StatusConflict, "name_taken", "name")
	names := w.estate.Registry.Snapshot()
	if _, there := names.Resource("gpu-new"); there || len(names.Children("gpu-new")) > 0 {
		t.Error("it is still in the inventory")
	}
	if _, there := names.Resource("gpu-r01-01/gpu0"); !there {
		t.Error("what the file brings is gone")
	}
	for _, by := range []string{"gpu-new", made.ID} {
		page := got[apigen.Server](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/"+by, "", ""), 200)
		if page.Status != schemas.ServerRetired || page.InInventory == nil || *page.InInventory || page.Parts == nil || page.WhyNot != allocations.WhyGone {
			t.Errorf("%s: %+v", by, page)
		}
	}
	list := func(query string) (names []string) {
		for _, v := range got[apigen.ServerRecordList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers?"+query, "", ""), 200).Items {
			names = append(names, v.Name)
		}
		return names
	}
	if n := list("limit=1000"); len(n) != 7 || slices.Contains(n, "gpu-r01-01") {
		t.Errorf("%v", n)
	}
	if n := list("gone=true"); len(n) != 9 || !slices.Contains(n, "gpu-new") {
		t.Errorf("%v", n)
	}
	if d := cmp.Diff([]string{"gpu-r01-01"}, list("status=retired")); d != "" {
		t.Error(d)
	}
	refusal(t, "left", change("", `{"model":"x"}`), http.StatusConflict, "not_in_inventory", "")
	if gpus := got[apigen.GPUList](t, w.do(t, eng, http.MethodGet, "servers/gpu-new/gpus", "", ""), 200).Items; len(gpus) != 2 || gpus[0].Present {
		t.Errorf("%+v", gpus)
	}
}

// A request that is sent again with its key, also after its answer was lost, makes one server.
func TestAServerIsRegisteredOnce(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	keyed := func(text string) answer {
		return w.send(t, http.MethodPost, "api/v1/servers", access.RoleEngineer, func(r *http.Request) {
			body(text)(r)
			r.Header.Set("Idempotency-Key", "k1")
		})
	}
	first := got[apigen.ServerRecord](t, keyed(`{"name":"a"}`), http.StatusCreated)
	if _, err := w.db.ExecContext(t.Context(), `DELETE FROM api_answers`); err != nil {
		t.Fatal(err)
	}
	if again := got[apigen.ServerRecord](t, keyed(`{"name":"a"}`), http.StatusCreated); again.ID != first.ID {
		t.Errorf("%+v", again)
	}
	refusal(t, "by somebody else", w.do(t, access.RoleEngineer, http.MethodPost, "servers", "", `{"name":"a"}`), http.StatusConflict, "name_taken", "name")
}

func TestServersAreListedByWhatTheyAre(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	makes[schemas.Pool](t, w, "api/v1/pools", `{"name":"train"}`)
	for name, text := range map[string]string{
		"gpu-r01-02": `{"pool":"train","labels":{"a_b":"x","rack":"1"}}`, "gpu-r01-03": `{"labels":{"aXb":"x\"y","rack":"10"}}`, "gpu-r01-04": `{"hold":"h"}`,
	} {
		got[apigen.ServerRecord](t, w.do(t, access.RoleEngineer, http.MethodPut, "servers/"+name, "", text), 200)
	}
	for query, want := range map[string]string{
		"pool=TRAIN": "02", "label=a_b": "02", "label=rack": "02 03", "label=rack%3D1": "02", "label=A_B": "", "label=aXb%3Dx%22y": "03", "label=x": "",
		"model=hgx+h100&limit=2": "01 02", "model=none": "", "status=error": "",
	} {
		var names []string
		for _, v := range got[apigen.ServerRecordList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers?"+query, "", ""), 200).Items {
			names = append(names, strings.TrimPrefix(v.Name, "gpu-r01-"))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	l := got[apigen.ServerRecordList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers?limit=3", "", ""), 200)
	if l = got[apigen.ServerRecordList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers?limit=3&after="+url.QueryEscape(l.Next), "", ""), 200); l.Items[0].Name != "gpu-r01-04" {
		t.Errorf("%+v", l.Items)
	}
	for _, path := range []string{"servers?health=ok", "servers?status=broken", "servers?gone=perhaps", "gpus?limit=0"} {
		refusal(t, path, w.do(t, access.RoleViewer, http.MethodGet, path, "", ""), http.StatusBadRequest, "bad_parameter", "")
	}
}

// TestTheStateThatAServerIsIn is told to those who may know of it, and stands against its end.
func TestWhoHasAServerIsToldToThoseWhoMayKnow(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	li := w.person(t, "li", access.RoleViewer)
	w.person(t, "bo", access.RoleViewer)
	w.person(t, "kim", access.RoleViewer)
	team := makes[schemas.Team](t, w, "api/v1/teams", `{"name":"vision","members":["li","kim"]}`)
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"speech","members":["bo"]}`)
	v, err := w.estate.Estate.Server(t.Context(), "gpu-r01-01")
	if err != nil {
		t.Fatal(err)
	}
	taken, err := w.estate.Allocations.Take(t.Context(), "li", allocations.Draft{
		User: li.ID, Team: team.ID, Exclusive: true, Purpose: "train", End: time.Now().Add(time.Hour), Parts: []allocations.Part{{Server: v.ID}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for who, knows := range map[string]bool{ // a token of nobody is a script of the place
		"li": true, "kim": true, "bo": false, access.RoleViewer: true, access.RoleAdmin: true,
	} {
		page := got[apigen.Server](t, w.do(t, who, http.MethodGet, "servers/gpu-r01-01", "", ""), 200)
		if (page.Allocation != nil) != knows || *page.Allocatable || page.WhyNot != allocations.WhyTaken ||
			knows && (page.Allocation.ID != taken.ID || page.Allocation.User != "li" || !page.Allocation.EndTime.Equal(taken.EndTime)) {
			t.Errorf("%s: %+v %s", who, page.Allocation, page.WhyNot)
		}
		item := got[apigen.ServerRecordList](t, w.do(t, who, http.MethodGet, "servers?limit=1", "", ""), 200).Items[0]
		if (item.Allocation != nil) != knows || item.Allocatable {
			t.Errorf("%s: %+v", who, item)
		}
	}
	const eng = access.RoleEngineer
	refusal(t, "retire", w.do(t, eng, http.MethodDelete, "servers/gpu-r01-01", "", ""), http.StatusConflict, "allocated", "")
	refusal(t, "provision", w.do(t, eng, http.MethodPut, "servers/gpu-r01-01", "", `{"status":"provisioning"}`), http.StatusConflict, "allocated", "")
	for table, code := range map[string]string{
		`INSERT INTO control_leases (subject, holder, token, expires_ns) VALUES ('gpu-r01-02','x',1,9000000000000000000)`:                 "leased",
		`INSERT INTO control_cases (id, reason, subject, target, state, updated_ns, doc) VALUES ('c','i','gpu-r01-03','t','open',0,'{}')`: "under_repair",
	} {
		if _, err := w.db.ExecContext(t.Context(), table); err != nil {
			t.Fatal(err)
		}
		server := "gpu-r01-02"
		if code == "under_repair" {
			server = "gpu-r01-03"
		}
		refusal(t, code, w.do(t, eng, http.MethodDelete, "servers/"+server, "", ""), http.StatusConflict, code, "")
	}
	if page := got[apigen.Server](t, w.do(t, "bo", http.MethodGet, "servers/gpu-r01-03", "", ""), 200); *page.Allocatable || page.WhyNot != allocations.WhyCase {
		t.Errorf("%+v", page)
	}
	refusal(t, "a GPU in use", w.do(t, eng, http.MethodPut, "gpus/gpu-r01-01%2Fgpu0", "", `{"status":"error","status_reason":"x"}`), http.StatusConflict, "illegal_move", "")
}

func TestGPUsAreRegisteredChangedAndListed(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	const eng = access.RoleEngineer
	a := w.do(t, eng, http.MethodPost, "servers/S0101/gpus", "", `{"index":8,"model":"H100 80GB","serial_number":"G8","pci":"0000:1b:00.0"}`)
	g := got[schemas.GPU](t, a, http.StatusCreated)
	if g.Name != "gpu-r01-01/gpu8" || g.Status != schemas.GPUAvailable || *g.MemoryGB != 80 || a.header.Get("Location") != "/api/v1/gpus/"+g.ID {
		t.Errorf("%+v", g)
	}
	refusal(t, "once more", w.do(t, eng, http.MethodPost, "servers/gpu-r01-01/gpus", "", `{"index":8}`), http.StatusConflict, "name_taken", "name")
	refusal(t, "its serial", w.do(t, eng, http.MethodPost, "servers/gpu-r01-02/gpus", "", `{"index":8,"serial_number":"g8"}`), http.StatusConflict, "name_taken", "serial_number")
	refusal(t, "no server", w.do(t, eng, http.MethodPost, "servers/leaf-r01/gpus", "", `{"index":8}`), http.StatusNotFound, "not_found", "")
	change := func(tag, text string) answer { return w.do(t, eng, http.MethodPut, "gpus/g8", tag, text) }
	tag := w.do(t, access.RoleViewer, http.MethodGet, "gpus/"+g.ID, "", "").header.Get("ETag")
	a = change(tag, `{"memory_gb":94.5,"driver_version":"570.1","cuda_version":"12.8","status":"error","status_reason":"fell off"}`)
	if g = got[schemas.GPU](t, a, 200); *g.MemoryGB != 94.5 || g.DriverVersion != "570.1" || g.CUDAVersion != "12.8" || g.Status != schemas.GPUError || g.Reason != "fell off" {
		t.Errorf("%+v", g)
	}
	refusal(t, "an old tag", change(tag, `{"model":"x"}`), http.StatusPreconditionFailed, "changed_meanwhile", "")
	p := refusal(t, "a move of allocations", change("", `{"status":"in_use"}`), http.StatusConflict, "illegal_move", "")
	if d := cmp.Diff([]string{schemas.GPUAvailable}, p.Legal); d != "" {
		t.Error(d)
	}
	if page := got[apigen.Server](t, w.do(t, eng, http.MethodGet, "servers/gpu-r01-01", "", ""), 200); *page.Allocatable || page.WhyNot != allocations.WhyGPU {
		t.Errorf("%+v", page)
	}
	got[schemas.GPU](t, change(a.header.Get("ETag"), `{"status":"available"}`), 200)
	refusal(t, "no reason", change("", `{"status":"error"}`), http.StatusBadRequest, "bad_body", "status_reason")
	refusal(t, "no memory", change("", `{"memory_gb":0}`), http.StatusBadRequest, "bad_body", "memory_gb")
	for query, n := range map[string]int{"": 65, "server=gpu-r01-01": 9, "status=error": 0, "model=H100+80GB": 1, "pool=default&limit=7": 7, "pool=none": 0} {
		if l := got[apigen.GPUList](t, w.do(t, access.RoleViewer, http.MethodGet, "gpus?"+query, "", ""), 200); len(l.Items) != n {
			t.Errorf("%q: %d", query, len(l.Items))
		}
	}
	refusal(t, "of no server", w.do(t, access.RoleViewer, http.MethodGet, "gpus?server=nobody", "", ""), http.StatusNotFound, "not_found", "")
	a = w.send(t, http.MethodGet, "api/v1/gpus", access.RoleViewer, func(r *http.Request) { r.Header.Set("Accept", "application/x-ndjson") })
	lines, names := bufio.NewScanner(bytes.NewReader(a.body)), []string{}
	for lines.Scan() {
		var g schemas.GPU
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		names = append(names, g.Name)
	}
	if len(names) != 65 || !slices.IsSorted(names) || a.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d lines, %v", len(names), a.header)
	}
	a = w.send(t, http.MethodGet, "api/v1/gpus?fields=status,name,status&sort=-name", access.RoleViewer, func(r *http.Request) { r.Header.Set("Accept", "application/x-ndjson") })
	some := strings.Split(strings.TrimSuffix(string(a.body), "\n"), "\n")
	slices.Reverse(names)
	for i, line := range some {
		if want := `{"status":"available","name":"` + names[min(i, len(names)-1)] + `"}`; line != want {
			t.Errorf("line %d is %s, want %s", i, line, want)
		}
	}
	if len(some) != len(names) {
		t.Errorf("%d lines with fields, want %d", len(some), len(names))
	}
}

func TestPoolsQuotasAndReservations(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	const adm = access.RoleAdmin
	li, bo := w.person(t, "li", access.RoleViewer), w.person(t, "bo", access.RoleViewer)
	vision := makes[schemas.Team](t, w, "api/v1/teams", `{"name":"vision","members":["li"]}`)
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"speech","members":["bo"]}`)
	pool := makes[schemas.Pool](t, w, "api/v1/pools", `{"name":"Train","description":"x"}`)
	refusal(t, "a name twice", w.do(t, adm, http.MethodPost, "pools", "", `{"name":"train"}`), http.StatusConflict, "name_taken", "name")
	refusal(t, "default", w.do(t, adm, http.MethodDelete, "pools/default", "", ""), http.StatusConflict, "default_pool", "")
	got[apigen.ServerRecord](t, w.do(t, adm, http.MethodPut, "servers/gpu-r01-01", "", `{"pool":"train"}`), 200)
	refusal(t, "in use", w.do(t, adm, http.MethodDelete, "pools/train", "", ""), http.StatusConflict, "in_use", "")
	a := w.do(t, "bo", http.MethodGet, "pools/TRAIN", "", "")
	if p := got[schemas.Pool](t, a, 200); p.Servers != 1 || p.ID != pool.ID {
		t.Errorf("%+v", p)
	}
	got[schemas.Pool](t, w.do(t, adm, http.MethodPut, "pools/train", a.header.Get("ETag"), `{"name":"training"}`), 200)
	refusal(t, "an old tag", w.do(t, adm, http.MethodPut, "pools/training", a.header.Get("ETag"), `{"name":"t"}`), http.StatusPreconditionFailed, "changed_meanwhile", "")
	if l := got[apigen.PoolList](t, w.do(t, "bo", http.MethodGet, "pools", "", ""), 200); len(l.Items) != 2 {
		t.Errorf("%+v", l)
	}

	all := makes[apigen.Quota](t, w, "api/v1/quotas", `{"max_gpus":16}`)
	its := makes[apigen.Quota](t, w, "api/v1/quotas", `{"team":"vision","pool":"training","max_servers":2,"max_seconds":86400}`)
	refusal(t, "twice", w.do(t, adm, http.MethodPost, "quotas", "", `{"team":"vision","pool":"training"}`), http.StatusConflict, "name_taken", "team")
	refusal(t, "no team", w.do(t, adm, http.MethodPost, "quotas", "", `{"team":"none"}`), http.StatusBadRequest, "bad_body", "team")
	refusal(t, "negative", w.do(t, adm, http.MethodPost, "quotas", "", `{"max_gpus":-1}`), http.StatusBadRequest, "bad_body", "max_gpus")
	v, err := w.estate.Estate.Server(t.Context(), "gpu-r01-01")
	if err != nil {
		t.Fatal(err)
	}
	two, err := w.estate.Estate.Server(t.Context(), "gpu-r01-02")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := w.estate.Estate.GPU(t.Context(), "gpu-r01-02/gpu3")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []allocations.Draft{
		{User: li.ID, Team: vision.ID, Exclusive: true, End: time.Now().Add(time.Hour), Parts: []allocations.Part{{Server: v.ID}}},
		{User: bo.ID, Parts: []allocations.Part{{Server: two.ID, GPUs: []string{gpu.ID}}}},
	} {
		if _, err := w.estate.Allocations.Take(t.Context(), "x", d); err != nil {
			t.Fatal(err)
		}
	}
	a = w.do(t, "li", http.MethodGet, "quotas/"+its.ID, "", "")
	q := got[apigen.Quota](t, a, 200)
	if d := cmp.Diff([]apigen.QuotaUsage{{Team: "vision", Gpus: 8, Servers: 1}}, q.Usage); d != "" || *q.MaxServers != 2 || q.MaxGpus != nil || *q.MaxSeconds != 86400 {
		t.Errorf("%s%+v", d, q)
	}
	refusal(t, "another team's", w.do(t, "bo", http.MethodGet, "quotas/"+its.ID, "", ""), http.StatusNotFound, "not_found", "")
	for who, want := range map[string][]apigen.QuotaUsage{
		"li": {{Team: "vision", Gpus: 8, Servers: 1}}, "bo": {{User: "bo", Gpus: 1}}, access.RoleViewer: {},
		access.RoleEngineer: {{Team: "vision", Gpus: 8, Servers: 1}, {User: "bo", Gpus: 1}},
	} {
		n := map[string]int{"li": 2, access.RoleEngineer: 2, "bo": 1, access.RoleViewer: 1}[who]
		l := got[apigen.QuotaList](t, w.do(t, who, http.MethodGet, "quotas", "", ""), 200).Items
		at := slices.IndexFunc(l, func(q apigen.Quota) bool { return q.ID == all.ID })
		if d := cmp.Diff(want, l[at].Usage); d != "" || len(l) != n {
			t.Errorf("%s sees %d: %s", who, len(l), d)
		}
	}
	if q := got[apigen.Quota](t, w.do(t, adm, http.MethodPut, "quotas/"+its.ID, a.header.Get("ETag"), `{"max_gpus":4,"max_seconds":null}`), 200); *q.MaxGpus != 4 ||
		q.MaxServers != nil || q.MaxSeconds != nil || q.Team != "vision" {
		t.Errorf("%+v", q)
	}
	refusal(t, "an old tag", w.do(t, adm, http.MethodDelete, "quotas/"+its.ID, a.header.Get("ETag"), ""), http.StatusPreconditionFailed, "changed_meanwhile", "")
	if a := w.do(t, adm, http.MethodDelete, "quotas/"+its.ID, "", ""); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}

	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	kept := makes[schemas.Reservation](t, w, "api/v1/reservations", `{"name":"demo","team":"speech","pool":"default","servers":1,"end_time":"`+end+`"}`)
	refusal(t, "of nothing", w.do(t, adm, http.MethodPost, "reservations", "", `{"name":"x","team":"speech","pool":"default","end_time":"`+end+`"}`), 400, "bad_body", "servers")
	refusal(t, "over", w.do(t, adm, http.MethodPost, "reservations", "", `{"name":"x","team":"speech","pool":"default","gpus":1,"end_time":"2020-01-01T00:00:00Z"}`), 400, "bad_body", "end_time")
	refusal(t, "its name", w.do(t, adm, http.MethodPost, "reservations", "", `{"name":"DEMO","team":"speech","pool":"default","gpus":1,"end_time":"`+end+`"}`), 409, "name_taken", "name")
	for who, sees := range map[string]bool{"bo": true, "li": false, access.RoleViewer: false, access.RoleEngineer: true} {
		a := w.do(t, who, http.MethodGet, "reservations/demo", "", "")
		l := got[apigen.ReservationList](t, w.do(t, who, http.MethodGet, "reservations", "", ""), 200)
		if (a.status == http.StatusOK) != sees || a.status != http.StatusOK && a.status != http.StatusNotFound || (len(l.Items) == 1) != sees {
			t.Errorf("%s: %d %s", who, a.status, a.body)
		}
	}
	if r := got[schemas.Reservation](t, w.do(t, adm, http.MethodPut, "reservations/"+kept.ID, `"1"`, `{"gpus":3,"servers":0}`), 200); r.GPUs != 3 || r.Servers != 0 || r.Name != "demo" {
		t.Errorf("%+v", r)
	}
	if a := w.do(t, adm, http.MethodDelete, "reservations/demo", `"2"`, ""); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, path := range []string{"pools", "quotas", "reservations"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			at, text := path+"/x", ""
			switch method {
			case http.MethodPost:
				at, text = path, map[string]string{"pools": `{"name":"x"}`, "quotas": `{}`, "reservations": `{"name":"x","team":"speech","pool":"default","gpus":1,"end_time":"` + end + `"}`}[path]
			case http.MethodPut:
				text = `{}`
			}
			refusal(t, method+" "+path, w.do(t, access.RoleEngineer, method, at, "", text), http.StatusForbidden, "no_permission", "")
		}
	}
}

func TestConfigurationsHaveVersions(t *testing.T) {
	limit := 650.0
	w := start(t, false, withEstate(t, 1), func(_ *api.Config, d *api.Deps) { d.Querier = powerLimits{&limit} })
	w.engineer(t)
	const eng = access.RoleEngineer
	refusal(t, "none yet", w.do(t, eng, http.MethodGet, "servers/gpu-r01-01/config", "", ""), http.StatusNotFound, "not_found", "")
	put := func(tag, text string) answer { return w.do(t, eng, http.MethodPut, "servers/S0101/config", tag, text) }
	c := got[apigen.ServerConfig](t, put("", `{"bios_config":{"SMT":"off","n":{"a":[1,2]}}}`), 200)
	if c.Version != 1 || c.State != "stored" || c.Applied != nil || c.AppliedReason == "" || c.RaidConfig == nil || c.CreatedBy != eng || c.Server != "gpu-r01-01" {
		t.Errorf("%+v", c)
	}
	if c = got[apigen.ServerConfig](t, put(`"1"`, `{"raid_config":{"level":1}}`), 200); c.Version != 2 || c.BiosConfig["SMT"] != "off" || c.RaidConfig["level"] != 1. {
		t.Errorf("%+v", c)
	}
	if c = got[apigen.ServerConfig](t, put("", `{"raid_config":{"level":1}}`), 200); c.Version != 2 {
		t.Errorf("the same again made version %d", c.Version)
	}
	refusal(t, "an old tag", put(`"1"`, `{"raid_config":{}}`), http.StatusPreconditionFailed, "changed_meanwhile", "")
	refusal(t, "a list", put("", `{"bios_config":[]}`), http.StatusBadRequest, "bad_body", "bios_config")
	refusal(t, "null", put("", `{"bios_config":null}`), http.StatusBadRequest, "bad_body", "bios_config")
	refusal(t, "large", put("", `{"bios_config":{"x":"`+strings.Repeat("x", 70_000)+`"}}`), http.StatusBadRequest, "bad_body", "bios_config")
	l := got[apigen.ServerConfigList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/gpu-r01-01/config/versions?limit=1", "", ""), 200)
	if len(l.Items) != 1 || l.Items[0].Version != 2 || l.Next != "2" {
		t.Errorf("%+v", l)
	}
	l = got[apigen.ServerConfigList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/gpu-r01-01/config/versions?after=2", "", ""), 200)
	if len(l.Items) != 1 || l.Items[0].Version != 1 || l.Next != "" {
		t.Errorf("%+v", l)
	}

	const gpu = "gpus/gpu-r01-01%2Fgpu0/config"
	ask := func(method, text string, status int) apigen.GPUConfig {
		t.Helper()
		return got[apigen.GPUConfig](t, w.do(t, eng, method, gpu, "", text), status)
	}
	g := ask(http.MethodPost, `{"power_limit":500,"memory_clock":2619}`, http.StatusCreated)
	if d := cmp.Diff([]apigen.ConfigDifference{{Field: "power_limit", Desired: 500., Applied: 650.}}, g.Differences); d != "" || g.State != "differs" || g.Version != 1 ||
		*g.Applied.PowerLimit != 650 || g.Applied.MemoryClock != nil {
		t.Errorf("%s%+v", d, g)
	}
	limit = 500
	if g = ask(http.MethodGet, "", 200); g.State != "unknown" || g.AppliedReason == "" || len(g.Differences) != 0 {
		t.Errorf("nobody reads the clock: %+v", g)
	}
	if g = ask(http.MethodPost, `{"power_limit":500}`, http.StatusCreated); g.Version != 2 || g.MemoryClock != nil || g.State != "in_force" || g.AppliedReason != "" {
		t.Errorf("%+v", g)
	}
	if g = ask(http.MethodPut, `{"driver_config":{"persistence":true}}`, 200); g.Version != 3 || *g.PowerLimit != 500 || g.State != "unknown" {
		t.Errorf("%+v", g)
	}
	if g = ask(http.MethodPost, `{"driver_config":{"persistence":true}}`, http.StatusCreated); g.Version != 4 || g.PowerLimit != nil || g.State != "stored" {
		t.Errorf("%+v", g)
	}
	for field, text := range map[string]string{"power_limit": `{"power_limit":0}`, "memory_clock": `{"memory_clock":-5}`, "fan": `{"fan":1}`} {
		refusal(t, field, w.do(t, eng, http.MethodPost, gpu, "", text), http.StatusBadRequest, "bad_body", field)
	}
	versions := got[apigen.GPUConfigList](t, w.do(t, access.RoleViewer, http.MethodGet, gpu+"/versions", "", ""), 200)
	if len(versions.Items) != 4 || versions.Items[3].State != "stored" || versions.Items[3].Applied != nil {
		t.Errorf("%+v", versions)
	}
	refusal(t, "a cursor of nothing", w.do(t, eng, http.MethodGet, gpu+"/versions?after=x", "", ""), http.StatusBadRequest, "bad_cursor", "")
	refusal(t, "a viewer", w.do(t, access.RoleViewer, http.MethodPut, gpu, "", `{"power_limit":1}`), http.StatusForbidden, "no_permission", "")
}

// What control has read and made of a configuration is told beside it, and goes before what collectors do not know.
func TestAConfigurationTellsWhatControlMadeOfIt(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	const eng = access.RoleEngineer
	store := configs.New(w.db)
	at := time.Now().UTC().Truncate(time.Second)
	keeps := func(st *schemas.ConfigState) {
		t.Helper()
		old, _, err := store.State(t.Context(), st.Subject)
		if err == nil {
			err = store.PutState(t.Context(), &configs.Standing{ConfigState: *st, Revision: old.Revision})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := got[apigen.ServerConfig](t, w.do(t, eng, http.MethodPut, "servers/gpu-r01-01/config", "", `{"bios_config":{"SMT":true,"Cores":32}}`), 200)
	if c.Keeping != nil || c.State != "stored" {
		t.Errorf("nobody has looked: %+v", c)
	}
	keeps(&schemas.ConfigState{
		Subject: c.ServerID, Kind: schemas.ConfigOfServer, Name: c.Server, Server: c.Server, Version: 1, State: schemas.ConfigAwaits, Reason: "because",
		Found: map[string]string{"SMT": "true", "Cores": "64"}, Coming: map[string]string{"SMT": "true", "Cores": "32"}, ReadAt: at,
		Tries: []time.Time{at}, Next: time.Now().Add(time.Hour), Operation: "op",
	})
	c = got[apigen.ServerConfig](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/gpu-r01-01/config", "", ""), 200)
	if d := cmp.Diff([]apigen.ConfigDifference{{Field: "bios_config.Cores", Desired: 32., Applied: 64.}}, c.Differences); d != "" || c.State != "differs" || c.Applied["SMT"] != true {
		t.Errorf("%s%+v", d, c)
	}
	if k := c.Keeping; k == nil || k.State != "awaits" || k.Detail != "because" || k.Attempts != 1 || k.NextAttemptAt.IsZero() || k.OperationID != "op" || !k.ReadAt.Equal(at) ||
		k.Coming["Cores"] != "32" || k.Drifts == nil {
		t.Errorf("%+v", k)
	}

	const gpu = "gpus/gpu-r01-01%2Fgpu0/config"
	g := got[apigen.GPUConfig](t, w.do(t, eng, http.MethodPut, gpu, "", `{"power_limit":500,"memory_clock":2619,"driver_config":{"sm_clock":1980,"ecc":true,"persistence":true}}`), 200)
	keeps(&schemas.ConfigState{
		Subject: g.GpuID, Kind: schemas.ConfigOfGPU, Name: g.Gpu, Server: c.Server, Version: 1, State: schemas.ConfigDrifted, Applied: 1, AppliedAt: at, ReadAt: at,
		Found:  map[string]string{"power_limit": "700", "application_clocks": "2619,1500", "ecc": "true", "persistence": "false"},
		Drifts: []schemas.ConfigDrift{{Setting: "power_limit", Desired: "500", Found: "700", Since: at}, {Setting: "ecc", Desired: "true", Found: "false", Since: at, Gone: at}},
	})
	g = got[apigen.GPUConfig](t, w.do(t, access.RoleViewer, http.MethodGet, gpu, "", ""), 200)
	want := []apigen.ConfigDifference{
		{Field: "power_limit", Desired: 500., Applied: 700.},
		{Field: "driver_config.sm_clock", Desired: 1980., Applied: 1500.},
		{Field: "driver_config.persistence", Desired: true, Applied: false},
	}
	if d := cmp.Diff(want, g.Differences); d != "" || g.State != "differs" || *g.Applied.MemoryClock != 2619 || g.AppliedReason != "" {
		t.Errorf("%s%+v", d, g)
	}
	if k := g.Keeping; k == nil || k.AppliedVersion != 1 || len(k.Drifts) != 1 || k.Drifts[0].Field != "power_limit" || k.Drifts[0].Found != "700" {
		t.Errorf("%+v", k)
	}
	// What was read is of the version before.
	g = got[apigen.GPUConfig](t, w.do(t, eng, http.MethodPost, gpu, "", `{"driver_config":{"ecc":true}}`), http.StatusCreated)
	if g.State != "stored" || len(g.Differences) != 0 || g.Keeping == nil || g.Keeping.Version != 1 {
		t.Errorf("%+v", g)
	}
	versions := got[apigen.GPUConfigList](t, w.do(t, access.RoleViewer, http.MethodGet, gpu+"/versions", "", ""), 200)
	if versions.Items[0].Keeping == nil || versions.Items[1].Keeping != nil {
		t.Errorf("%+v", versions)
	}
}

func TestAConfigurationIsApplied(t *testing.T) {
	w := start(t, true, withEstate(t, 1))
	w.engineer(t)
	asked := w.intents(t)
	const eng, gpu = access.RoleEngineer, "gpus/gpu-r01-01%2Fgpu0/config"
	store := func(path, text string) {
		t.Helper()
		if a := w.do(t, eng, http.MethodPut, path, "", text); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	refusal(t, "nothing stored", w.do(t, eng, http.MethodPost, gpu+"/apply", "", ""), http.StatusNotFound, "not_found", "")
	store(gpu, `{"power_limit":512.5,"memory_clock":2619,"driver_config":{"sm_clock":1980,"persistence":true}}`)
	o := operationIn(t, w.do(t, eng, http.MethodPost, gpu+"/apply", "", ""))
	with := map[string]string{"power_limit": "512.5", "application_clocks": "2619,1980", "persistence": "true"}
	in := <-asked
	if d := cmp.Diff(with, in.With); d != "" || in.ID != o.ID || in.Kind != "configure_gpu" || in.Server != "gpu-r01-01" || in.Target != "gpu-r01-01/gpu0" ||
		o.Target != in.Target {
		t.Errorf("%s%+v", d, in)
	}
	for field, text := range map[string]string{
		"memory_clock": `{"driver_config":{"persistence":true}}`, "driver_config.vgpu": `{"driver_config":{"sm_clock":1980,"vgpu":1}}`,
		"driver_config.ecc": `{"driver_config":{"sm_clock":1980,"ecc":"on"}}`,
	} {
		store(gpu, text)
		refusal(t, field, w.do(t, eng, http.MethodPost, gpu+"/apply", "", ""), http.StatusUnprocessableEntity, "not_applicable", field)
	}
	store("servers/gpu-r01-01/config", `{"bios_config":{"SMT":"off","Cores":64}}`)
	operationIn(t, w.do(t, eng, http.MethodPost, "servers/gpu-r01-01/config/apply", "", ""))
	if in = <-asked; in.Kind != "set_bios" || !maps.Equal(in.With, map[string]string{"SMT": "off", "Cores": "64"}) {
		t.Errorf("%+v", in)
	}
	// What is left out stays: the order counts.
	store("servers/gpu-r01-01/config", `{"bios_config":{"n":[1]}}`)
	refusal(t, "an attribute that is a list", w.do(t, eng, http.MethodPost, "servers/gpu-r01-01/config/apply", "", ""), http.StatusUnprocessableEntity, "not_applicable", "bios_config.n")
	// What no driver sets is asked of control all the same, which says so; nothing else is set then.
	store("servers/gpu-r01-01/config", `{"bios_config":{"SMT":"off"},"network_config":{"mtu":9000}}`)
	operationIn(t, w.do(t, eng, http.MethodPost, "servers/gpu-r01-01/config/apply", "", ""))
	if in = <-asked; in.Kind != "set_network" || !maps.Equal(in.With, map[string]string{"mtu": "9000"}) {
		t.Errorf("%+v", in)
	}
	store("servers/gpu-r01-01/config", `{"raid_config":{"level":1,"disks":["nvme0","nvme1"]}}`)
	operationIn(t, w.do(t, eng, http.MethodPost, "servers/gpu-r01-01/config/apply", "", ""))
	if in = <-asked; in.Kind != "set_raid" || !maps.Equal(in.With, map[string]string{"level": "1", "disks": `["nvme0","nvme1"]`}) {
		t.Errorf("%+v", in)
	}
	refusal(t, "a viewer", w.do(t, access.RoleViewer, http.MethodPost, gpu+"/apply", "", ""), http.StatusForbidden, "no_permission", "")
}

func TestAssetsTellWhoChangedThem(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	const eng = access.RoleEngineer
	got[apigen.ServerRecord](t, w.do(t, eng, http.MethodPut, "servers/gpu-r01-01", "", `{"model":"HGX H200","ipmi_ip":"10.0.0.7"}`), 200)
	a := got[apigen.Asset](t, w.do(t, access.RoleViewer, http.MethodGet, "assets/S0101", "", ""), 200)
	if a.Version != 2 || a.Change != "changed" || a.ChangedBy != eng || a.Source != "api" || !strings.HasPrefix(a.Origin, "request ") || a.Place.Rack != "dc1-r01" || !a.InInventory {
		t.Errorf("%+v", a)
	}
	if a = got[apigen.Asset](t, w.do(t, access.RoleViewer, http.MethodGet, "assets/gpu-r01-01%2Ffan1", "", ""), 200); a.Version != 1 || a.ChangedBy != "ana" ||
		a.Source != "file" || a.Origin != "topology.json" || a.Change != "added" || a.Kind != "fan" {
		t.Errorf("%+v", a)
	}
	v := got[apigen.AssetVersionList](t, w.do(t, access.RoleViewer, http.MethodGet, "assets/gpu-r01-01/versions", "", ""), 200).Items
	if len(v) != 2 || v[1].By != "ana" || v[1].Attrs["model"] != "HGX H100" || v[1].Version != 1 {
		t.Fatalf("%+v", v)
	}
	if d := cmp.Diff([]apigen.AssetDifference{{Attribute: "ipmi_ip", Is: "10.0.0.7"}, {Attribute: "model", Was: "HGX H100", Is: "HGX H200"}}, v[0].Differences); d != "" {
		t.Error(d)
	}
	made := got[apigen.ServerRecord](t, w.do(t, eng, http.MethodPost, "servers", "", `{"name":"x","gpus":[{"index":0}]}`), http.StatusCreated)
	for _, to := range []string{"provisioning", "ready"} {
		got[apigen.ServerRecord](t, w.do(t, eng, http.MethodPut, "servers/x", "", `{"status":"`+to+`"}`), 200)
	}
	w.do(t, eng, http.MethodDelete, "servers/x", "", "")
	for _, by := range []string{"x", made.ID, "x/gpu0"} {
		a := got[apigen.Asset](t, w.do(t, access.RoleViewer, http.MethodGet, "assets/"+url.PathEscape(by), "", ""), 200)
		if a.InInventory || a.Change != "removed" || a.Version != 2 || a.ChangedBy != eng {
			t.Errorf("%s: %+v", by, a)
		}
	}
	l := got[apigen.AssetList](t, w.do(t, access.RoleViewer, http.MethodGet, "assets?kind=server&limit=2", "", ""), 200)
	if len(l.Items) != 2 || l.Next == "" || l.Items[0].Version != 2 || l.Items[1].Version != 1 {
		t.Errorf("%+v", l)
	}
	if l = got[apigen.AssetList](t, w.do(t, access.RoleViewer, http.MethodGet, "assets?within=gpu-r01-01&kind=gpu", "", ""), 200); len(l.Items) != 8 {
		t.Errorf("%d", len(l.Items))
	}
	refusal(t, "nothing", w.do(t, access.RoleViewer, http.MethodGet, "assets/nothing", "", ""), http.StatusNotFound, "not_found", "")
}

// powerLimits is a hot window that knows one thing.
type powerLimits struct{ watts *float64 }

// Instant implements api.Querier.
func (p powerLimits) Instant(_ context.Context, expr string, at time.Time) ([]api.Series, error) {
	if !strings.Contains(expr, "auspex_gpu_power_limit_watts{resource=\"gpu-r01-01/gpu0\"}") {
		return nil, nil
	}
	return []api.Series{{Points: []api.Point{{T: float64(at.Unix()), V: *p.watts}}}}, nil
}

// Range implements api.Querier.
func (powerLimits) Range(context.Context, string, time.Time, time.Time, time.Duration) ([]api.Series, error) {
	return nil, nil
}

// TestWhoMayChangeTheEstate asks each of its routes that writes as each role: those who may not are
// refused before anything is looked at.
func TestWhoMayChangeTheEstate(t *testing.T) {
	w := start(t, false, withEstate(t, 1))
	w.engineer(t)
	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, r := range []struct{ method, path, body, permission string }{
		{http.MethodPost, "servers", `{"name":"x"}`, access.Inventory},
		{http.MethodPut, "servers/none", `{}`, access.Inventory},
		{http.MethodDelete, "servers/none", ``, access.Inventory},
		{http.MethodPost, "servers/none/gpus", `{"index":1}`, access.Inventory},
		{http.MethodPut, "servers/none/config", `{}`, access.Inventory},
		{http.MethodPut, "gpus/none", `{}`, access.Inventory},
		{http.MethodPost, "gpus/none/config", `{}`, access.Inventory},
		{http.MethodPut, "gpus/none/config", `{}`, access.Inventory},
		{http.MethodPost, "pools", `{"name":"x"}`, access.Quotas},
		{http.MethodPut, "pools/none", `{}`, access.Quotas},
		{http.MethodDelete, "pools/none", ``, access.Quotas},
		{http.MethodPost, "quotas", `{}`, access.Quotas},
		{http.MethodPut, "quotas/none", `{}`, access.Quotas},
		{http.MethodDelete, "quotas/none", ``, access.Quotas},
		{http.MethodPost, "reservations", `{"name":"x","team":"none","pool":"default","gpus":1,"end_time":"` + end + `"}`, access.Quotas},
		{http.MethodPut, "reservations/none", `{}`, access.Quotas},
		{http.MethodDelete, "reservations/none", ``, access.Quotas},
	} {
		for _, role := range schemas.Roles() {
			a := w.do(t, role, r.method, r.path, "", r.body)
			may := (access.Principal{Role: role}).May(r.permission)
			if may == (a.status == http.StatusForbidden) || a.status >= 500 || may && strings.HasSuffix(r.path, "/none") && a.status != http.StatusNotFound {
				t.Errorf("%s of %s as %s: %d %s", r.method, r.path, role, a.status, a.body)
			}
		}
	}
	// A console without an estate says so.
	bare := start(t, false)
	for _, path := range []string{"servers", "gpus", "pools", "quotas", "reservations", "assets", "servers/x/config"} {
		refusal(t, path, bare.do(t, access.RoleAdmin, http.MethodGet, path, "", ""), http.StatusServiceUnavailable, "no_estate", "")
	}
}

// BenchmarkListOfGPUs reads the 80,000 GPUs of 10,000 servers: as lines, with the memory that the
// heap grew by at most while they were read, and as one page.
func BenchmarkListOfGPUs(b *testing.B) {
	db := sqltest.Open(b)
	inv := cmdb.New(cmdb.DefaultConfig(), db, nil, nil)
	inv.Follow(estate.New(db))
	var top schemas.Topology
	for s := range 10_000 {
		name := fmt.Sprintf("s%05d", s)
		top.Resources = append(top.Resources, schemas.Resource{ID: name, Kind: schemas.KindServer})
		for g := range 8 {
			top.Resources = append(top.Resources, schemas.Resource{
				ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name, Attrs: schemas.AttrsOf(map[string]string{"model": "H100 80GB", "serial": fmt.Sprint(s, "-", g)}),
			})
		}
	}
	if _, err := inv.Import(b.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{}); err != nil {
		b.Fatal(err)
	}
	cfg := api.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	s, err := api.New(cfg, api.Deps{
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), DB: db, Records: records.New(db), People: people.New(db), Answers: answers.New(db),
		Estate: estate.New(db), Allocations: allocations.New(db), Workflows: workflows.New(db), Configs: configs.New(db), Provisioning: provisioning.New(db), Validations: validations.New(db), Wipes: wipes.New(db, time.Now), Registry: inv, Inventory: inv,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func() { close(ready) }) }()
	<-ready
	defer func() { stop(); <-done }()
	token, err := s.IssueToken(ctx, "bench", access.RoleViewer)
	if err != nil {
		b.Fatal(err)
	}
	read := func(b *testing.B, query, accept string, each func()) (n int) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"api/v1/gpus"+query, http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Accept", accept)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			b.Fatal(res.Status)
		}
		for lines := bufio.NewScanner(res.Body); lines.Scan(); n++ {
			if n%4000 == 0 {
				each()
			}
		}
		return n
	}
	b.Run("lines", func(b *testing.B) {
		var m runtime.MemStats
		var most uint64
		for b.Loop() {
			runtime.GC()
			runtime.ReadMemStats(&m)
			before := m.HeapAlloc
			n := read(b, "", "application/x-ndjson", func() {
				runtime.GC()
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc-min(m.HeapAlloc, before))
			})
			if n != 80_000 {
				b.Fatal(n)
			}
		}
		b.ReportMetric(float64(most)/(1<<20), "MiB-held")
	})
	middle := map[string]any{"name": "s05000", "-name": "s05000", "model": "H100 80GB", "status": "available", "updated_at": 0}
	for sort, value := range middle {
		b.Run("page/"+sort, func(b *testing.B) {
			query := "?limit=200&sort=" + sort + "&after=" + url.QueryEscape(sqldb.Ahead(sort, value, "80000000"))
			for b.Loop() {
				read(b, query, "", func() {})
			}
		})
	}
}

// estateDoors is what the routes of the estate leave in the audit, each with all that it needs:
// they are asked in the order of their names.
func (w *world) estateDoors(t *testing.T) map[string]func() string {
	send := func(role, method, path, text string, status int) {
		t.Helper()
		if a := w.do(t, role, method, path, "", text); a.status != status {
			t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
		}
	}
	const eng, adm = access.RoleEngineer, access.RoleAdmin
	end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	team := func(name string) { w.do(t, adm, http.MethodPost, "teams", "", `{"name":"`+name+`"}`) }
	quota := func(team string) (id string) {
		return got[apigen.Quota](t, w.do(t, adm, http.MethodPost, "quotas", "", `{"team":"`+team+`","max_gpus":1}`), http.StatusCreated).ID
	}
	reservation := func(name string) {
		team("t-" + name)
		send(adm, http.MethodPost, "reservations", `{"name":"`+name+`","team":"t-`+name+`","pool":"default","gpus":1,"end_time":"`+end+`"}`, http.StatusCreated)
	}
	return map[string]func() string{
		"registerServer": func() string {
			send(eng, http.MethodPost, "servers", `{"name":"new-1"}`, http.StatusCreated)
			return "engineer import inventory api"
		},
		"registerGPU": func() string {
			send(eng, http.MethodPost, "servers/gpu-r07-01/gpus", `{"index":9}`, http.StatusCreated)
			return "engineer import inventory api"
		},
		"updateServer": func() string {
			send(eng, http.MethodPut, "servers/gpu-r07-02", `{"hold":"x"}`, http.StatusOK)
			return "engineer update server gpu-r07-02"
		},
		"retireServer": func() string {
			send(eng, http.MethodDelete, "servers/gpu-r07-03", "", http.StatusNoContent)
			return "engineer update server gpu-r07-03"
		},
		"updateGPU": func() string {
			send(eng, http.MethodPut, "gpus/gpu-r07-04%2Fgpu0", `{"status":"error","status_reason":"x"}`, http.StatusOK)
			return "engineer update gpu gpu-r07-04/gpu0"
		},
		"putServerConfig": func() string {
			send(eng, http.MethodPut, "servers/gpu-r07-04/config", `{"bios_config":{"a":1}}`, http.StatusOK)
			return "engineer create server_config gpu-r07-04"
		},
		"createGPUConfig": func() string {
			send(eng, http.MethodPost, "gpus/gpu-r07-04%2Fgpu1/config", `{"power_limit":500}`, http.StatusCreated)
			return "engineer create gpu_config gpu-r07-04/gpu1"
		},
		"updateGPUConfig": func() string {
			send(eng, http.MethodPut, "gpus/gpu-r07-04%2Fgpu1/config", `{"power_limit":600}`, http.StatusOK)
			return "engineer update gpu_config gpu-r07-04/gpu1"
		},
		"applyServerConfig": func() string {
			send(eng, http.MethodPut, "servers/gpu-r07-05/config", `{"bios_config":{"BootMode":"Uefi"}}`, http.StatusOK)
			send(eng, http.MethodPost, "servers/gpu-r07-05/config/apply", "", http.StatusAccepted)
			return "engineer request set_bios gpu-r07-05"
		},
		"applyGPUConfig": func() string {
			send(eng, http.MethodPost, "gpus/gpu-r07-06%2Fgpu1/config", `{"power_limit":500}`, http.StatusCreated)
			send(eng, http.MethodPost, "gpus/gpu-r07-06%2Fgpu1/config/apply", "", http.StatusAccepted)
			return "engineer request configure_gpu gpu-r07-06"
		},
		"createTemplate": func() string {
			send(eng, http.MethodPost, "templates", newTemplate, http.StatusCreated)
			return "engineer create template plain"
		},
		"updateTemplate": func() string {
			send(eng, http.MethodPut, "templates/plain", `{"status":"retired"}`, http.StatusOK)
			return "engineer update template plain"
		},
		"deleteTemplate": func() string {
			send(eng, http.MethodPost, "templates", strings.Replace(newTemplate, "plain", "spare", 1), http.StatusCreated)
			send(eng, http.MethodDelete, "templates/spare", "", http.StatusNoContent)
			return "engineer delete template spare"
		},
		"renderTemplate": func() string { // which changes nothing, so that what was last stays so
			send(adm, http.MethodPost, "pools", `{"name":"before"}`, http.StatusCreated)
			send(eng, http.MethodPost, "templates/plain/render", `{"server":"gpu-r07-04"}`, http.StatusOK)
			return "admin create pool before"
		},
		"putHardware": func() string {
			send(eng, http.MethodPut, "hardware/gpu-r07-04", `{"boot_mode":"uefi"}`, http.StatusOK)
			return "engineer create hardware gpu-r07-04"
		},
		"createPool": func() string {
			send(adm, http.MethodPost, "pools", `{"name":"p1"}`, http.StatusCreated)
			return "admin create pool p1"
		},
		"updatePool": func() string {
			send(adm, http.MethodPut, "pools/default", `{"description":"all"}`, http.StatusOK)
			return "admin update pool default"
		},
		"deletePool": func() string {
			send(adm, http.MethodPost, "pools", `{"name":"p2"}`, http.StatusCreated)
			send(adm, http.MethodDelete, "pools/p2", "", http.StatusNoContent)
			return "admin delete pool p2"
		},
		"createQuota": func() string {
			team("q1")
			quota("q1")
			return "admin create quota q1 in all pools"
		},
		"updateQuota": func() string {
			team("q2")
			send(adm, http.MethodPut, "quotas/"+quota("q2"), `{"max_gpus":2}`, http.StatusOK)
			return "admin update quota q2 in all pools"
		},
		"deleteQuota": func() string {
			team("q3")
			send(adm, http.MethodDelete, "quotas/"+quota("q3"), "", http.StatusNoContent)
			return "admin delete quota q3 in all pools"
		},
		"createReservation": func() string {
			reservation("r1")
			return "admin create reservation r1"
		},
		"updateReservation": func() string {
			reservation("r2")
			send(adm, http.MethodPut, "reservations/r2", `{"gpus":2}`, http.StatusOK)
			return "admin update reservation r2"
		},
		"deleteReservation": func() string {
			reservation("r3")
			send(adm, http.MethodDelete, "reservations/r3", "", http.StatusNoContent)
			return "admin delete reservation r3"
		},
	}
}
