package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/store/validations"
	"auspex/internal/store/wipes"
	"auspex/schemas"
)

// newTemplate is one that asks for nothing.
const newTemplate = `{"name":"plain","os_family":"other","architectures":["x86_64"],
"text":"version: \"0.1\"\nname: plain\nglobal_timeout: 60\ntasks:\n- name: t\n  worker: any\n  actions:\n  - {name: a, image: \"a:1\", timeout: 5}\n"}`

// ubuntu is one that asks for parameters, a secret among them, and for the hardware.
func ubuntu(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"name": "ubuntu", "os_family": "ubuntu", "architectures": []string{"x86_64"}, "text": text,
		"parameters": map[string]any{"type": "object", "required": []string{"url"}, "properties": map[string]any{
			"url":   map[string]any{"type": "string", "format": "uri", "examples": []string{"http://images/a.gz"}},
			"token": map[string]any{"type": "string", "writeOnly": true},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const ubuntuText = `version: "0.1"
name: ubuntu
global_timeout: 1800
tasks:
  - name: install
    worker: "{{ .device_1 }}"
    actions:
      - name: write
        image: images.example/actions/image2disk:v1.0.0
        timeout: 600
        environment:
          DEST_DISK: {{ index .Hardware.Disks 0 }}
          IMG_URL: {{ .url | quote }}
          TOKEN: "{{ .token | default "none" }}"
`

func TestATemplateIsMadeChangedAndRetired(t *testing.T) {
	w := start(t, false, withEstate(t, 2))
	w.engineer(t)
	do := func(method, path, tag, text string) answer {
		return w.do(t, access.RoleEngineer, method, path, tag, text)
	}
	made := do(http.MethodPost, "templates", "", ubuntu(t, ubuntuText))
	v := got[schemas.Template](t, made, http.StatusCreated)
	if made.header.Get("Location") != "/api/v1/templates/"+v.ID || made.header.Get("ETag") != `"1"` || v.Version != 1 || v.VersionBy != "engineer" || v.Text != ubuntuText {
		t.Errorf("%v %s", made.header, made.body)
	}
	refusal(t, "taken", do(http.MethodPost, "templates", "", ubuntu(t, ubuntuText)), http.StatusConflict, "name_taken", "name")
	refusal(t, "a UUID", do(http.MethodPost, "templates", "", strings.Replace(newTemplate, "plain", v.ID, 1)), http.StatusBadRequest, "bad_body", "name")
	p := refusal(t, "no tag", do(http.MethodPut, "templates/ubuntu", "", ubuntuBody(t, strings.Replace(ubuntuText, ":v1.0.0", "", 1))), http.StatusBadRequest, "bad_template", "text")
	if len(p.Errors) == 1 && p.Errors[0].Line != 9 || !strings.Contains(p.Detail, "line 9") {
		t.Errorf("%+v", p)
	}
	// A dry run checks and stores nothing.
	if a := do(http.MethodPost, "templates?dry_run=1", "", newTemplate); a.status != http.StatusOK || !strings.Contains(string(a.body), `"00000000-0000-0000-0000-000000000000"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	refusal(t, "a dry run", do(http.MethodPost, "templates?dry_run=1", "", strings.Replace(newTemplate, "a:1", "a", 1)), http.StatusBadRequest, "bad_template", "text")
	next := ubuntuBody(t, strings.Replace(ubuntuText, "v1.0.0", "v1.0.1", 1))
	if a := do(http.MethodPut, "templates/ubuntu?dry_run=1", `"1"`, next); a.status != http.StatusOK || a.header.Get("ETag") != `"1"` {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	refusal(t, "nothing there", do(http.MethodGet, "templates/plain", "", ""), http.StatusNotFound, "not_found", "")
	// The next version, by id; the first one stays.
	v = got[schemas.Template](t, do(http.MethodPut, "templates/"+v.ID, `"1"`, next), http.StatusOK)
	refusal(t, "changed meanwhile", do(http.MethodPut, "templates/ubuntu", `"1"`, next), http.StatusPreconditionFailed, "changed_meanwhile", "")
	first := got[schemas.Template](t, do(http.MethodGet, "templates/ubuntu?version=1", "", ""), http.StatusOK)
	if v.Version != 2 || first.Version != 1 || first.Text != ubuntuText || first.ID != v.ID {
		t.Errorf("%+v\n%+v", v, first)
	}
	refusal(t, "no such version", do(http.MethodGet, "templates/ubuntu?version=3", "", ""), http.StatusNotFound, "not_found", "")
	versions := got[apigen.TemplateVersionList](t, do(http.MethodGet, "templates/ubuntu/versions?limit=1", "", ""), http.StatusOK)
	if len(versions.Items) != 1 || versions.Items[0].Version != 2 || versions.Next != "2" || versions.Items[0].Text != "" {
		t.Errorf("%+v", versions)
	}
	list := got[apigen.TemplateList](t, do(http.MethodGet, "templates?os_family=ubuntu&status=active", "", ""), http.StatusOK)
	if len(list.Items) != 1 || list.Items[0].Text != "" || list.Items[0].Version != 2 {
		t.Errorf("%+v", list)
	}
	// What refers to it keeps it.
	got[schemas.HardwareRecord](t, do(http.MethodPut, "hardware/gpu-r01-01", "", `{"template":"ubuntu","template_version":1}`), http.StatusOK)
	if p := refusal(t, "in use", do(http.MethodDelete, "templates/ubuntu", "", ""), http.StatusConflict, "in_use", ""); !strings.Contains(p.Hint, "Retire") {
		t.Errorf("%+v", p)
	}
	if v = got[schemas.Template](t, do(http.MethodPut, "templates/ubuntu", "", `{"status":"retired"}`), http.StatusOK); v.Status != schemas.TemplateRetired || v.Version != 2 {
		t.Errorf("%+v", v)
	}
	refusal(t, "retired", do(http.MethodPut, "templates/ubuntu", "", `{"description":"x"}`), http.StatusConflict, "retired", "")
	refusal(t, "retired", do(http.MethodPut, "hardware/gpu-r01-02", "", `{"template":"ubuntu"}`), http.StatusBadRequest, "bad_body", "template")
	got[schemas.HardwareRecord](t, do(http.MethodPut, "hardware/gpu-r01-01", "", `{}`), http.StatusOK)
	if a := do(http.MethodDelete, "templates/ubuntu", "", ""); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func ubuntuBody(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// knows is an inventory that says of a server what an installation needs.
func knows(t *testing.T, inv *cmdb.Inventory, server string) {
	t.Helper()
	top := topology(2)
	for i := range top.Resources {
		r := &top.Resources[i]
		switch r.ID {
		case server:
			for k, v := range map[string]string{"architecture": "x86_64", "boot_mode": "uefi", "redfish_url": "https://192.0.2.7", "credential": "bmc"} {
				r.Attrs = r.Attrs.With(k, v)
			}
		case server + "/nic3":
			r.Attrs = r.Attrs.With("mac", "02-00-00-00-00-0A").With("boot", "true")
		case server + "/disk1":
			r.Attrs = r.Attrs.With("device", "/dev/nvme1n1").With("boot", "true")
		}
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: top}, cmdb.ImportOptions{Origin: "topology.json", Actor: "ana"}); err != nil {
		t.Fatal(err)
	}
}

func TestHardwareIsWhatTheInventoryKnowsAndPeopleSay(t *testing.T) {
	var inv *cmdb.Inventory
	w := start(t, false, withEstate(t, 2), func(_ *api.Config, d *api.Deps) { inv = d.Registry })
	w.engineer(t)
	do := func(method, path, tag, text string) answer {
		return w.do(t, access.RoleEngineer, method, path, tag, text)
	}
	a := do(http.MethodGet, "hardware/gpu-r01-01", "", "")
	h := got[schemas.HardwareRecord](t, a, http.StatusOK)
	if h.Installable || !slices.Contains(h.Lacks, schemas.FactBootMAC) || h.Version != 0 || a.header.Get("ETag") != `"1"` || h.Metadata.Rack != "dc1-r01" {
		t.Errorf("%s", a.body)
	}
	knows(t, inv, "gpu-r01-01")
	h = got[schemas.HardwareRecord](t, do(http.MethodGet, "hardware/"+h.ID, "", ""), http.StatusOK)
	if !h.Installable || h.Fact(schemas.FactBootMAC) != "02:00:00:00:00:0a" || h.Interfaces[0].Resource != "gpu-r01-01/nic3" || h.Disks[0].Device != "/dev/nvme1n1" || h.BMC.Address != "192.0.2.7" {
		t.Errorf("%+v", h)
	}
	for query, want := range map[string]int{
		"?limit=1000": 16, "?installable=true": 1, "?installable=false&limit=1000": 15, "?lacks=boot_mac&limit=1000": 15, "?server=S0101": 1, "?server=gpu-r01-01&lacks=boot_mac": 0,
	} {
		if list := got[apigen.HardwareRecordList](t, do(http.MethodGet, "hardware"+query, "", ""), http.StatusOK); len(list.Items) != want {
			t.Errorf("%s: %d records, want %d", query, len(list.Items), want)
		}
	}
	// An override wins, and where the inventory has nothing of it, says so.
	bad := refusal(t, "user data that cloud-init would not take", do(http.MethodPut, "hardware/gpu-r01-01", `"1"`, `{"user_data":"#cloud-config\nhost_name: a\n"}`), http.StatusBadRequest, "bad_user_data", "user_data")
	if bad.Errors[0].Line != 2 {
		t.Errorf("%+v", bad.Errors)
	}
	a = do(http.MethodPut, "hardware/gpu-r01-01", `"1"`, `{"boot_mac":"02-00-00-00-00-FF","allow_pxe":true,"user_data":"#cloud-config\n","bmc_ref":{"kind":"ipmi"}}`)
	h = got[schemas.HardwareRecord](t, a, http.StatusOK)
	if a.header.Get("ETag") != `"2"` || h.Version != 1 || h.ChangedBy != "engineer" || h.Interfaces[0].DHCP.MAC != "02:00:00:00:00:ff" || !h.Interfaces[0].Netboot.AllowPXE ||
		len(h.Conflicts) != 2 || h.Conflicts[0].Fact != schemas.FactBootMAC || h.BMC.Kind != "ipmi" || h.BMC.Credential != "bmc" {
		t.Errorf("%s", a.body)
	}
	refusal(t, "changed meanwhile", do(http.MethodPut, "hardware/gpu-r01-01", `"1"`, `{}`), http.StatusPreconditionFailed, "changed_meanwhile", "")
	for name, bad := range map[string]string{
		"boot_mac": `{"boot_mac":"02:00"}`, "boot_disk": `{"boot_disk":"nvme0n1; rm"}`, "architecture": `{"architecture":"sparc"}`, "template": `{"template":"none"}`,
		"template_version": `{"template_version":1}`, "user_data": fmt.Sprintf(`{"user_data":%q}`, strings.Repeat("x", 65537)), "bmc_ref.password": `{"bmc_ref":{"password":"x"}}`,
	} {
		refusal(t, name, do(http.MethodPut, "hardware/gpu-r01-01", "", bad), http.StatusBadRequest, "bad_body", name)
	}
	refusal(t, "a part", do(http.MethodGet, "hardware/gpu-r01-01%2Fgpu0", "", ""), http.StatusNotFound, "not_found", "")
	refusal(t, "nobody", do(http.MethodPut, "hardware/gpu-r09-09", "", `{}`), http.StatusNotFound, "not_found", "")
}

func TestATemplateIsRenderedAndNothingIsStored(t *testing.T) {
	var inv *cmdb.Inventory
	w := start(t, false, withEstate(t, 2), func(_ *api.Config, d *api.Deps) { inv = d.Registry })
	w.engineer(t)
	knows(t, inv, "gpu-r01-01")
	got[schemas.Template](t, w.do(t, access.RoleEngineer, http.MethodPost, "templates", "", ubuntu(t, ubuntuText)), http.StatusCreated)
	render := func(text string) answer {
		return w.do(t, access.RoleViewer, http.MethodPost, "templates/ubuntu/render", "", text)
	}
	r := got[schemas.RenderedTemplate](t, render(`{"server":"gpu-r01-01","parameters":{"url":"http://a/b","token":"secret:join"}}`), http.StatusOK)
	for _, want := range []string{`worker: "02:00:00:00:00:0a"`, "DEST_DISK: /dev/nvme1n1", `TOKEN: "(hidden)"`} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %s in\n%s", want, r.Text)
		}
	}
	if r.Version != 1 || len(r.Steps) != 1 || r.Steps[0].Timeout != 600 || !slices.Equal(r.Secrets, []string{"token"}) || r.Server != "gpu-r01-01" {
		t.Errorf("%+v", r)
	}
	refusal(t, "nothing given", render(`{"server":"gpu-r01-01"}`), http.StatusBadRequest, "bad_body", "parameters.url")
	p := refusal(t, "a secret", render(`{"server":"gpu-r01-01","parameters":{"url":"http://a/b","token":"hunter2"}}`), http.StatusBadRequest, "bad_body", "parameters.token")
	if strings.Contains(p.Detail, "hunter2") {
		t.Errorf("%+v", p)
	}
	p = refusal(t, "what lacks", render(`{"server":"gpu-r01-02","parameters":{"url":"http://a/b"}}`), http.StatusConflict, "no_workflow", "text")
	if len(p.Errors) != 1 || p.Errors[0].Line != 12 || p.Errors[0].In != "stored" || !strings.Contains(p.Hint, "Of gpu-r01-02 it is not known: architecture") {
		t.Errorf("%+v", p)
	}
	refusal(t, "no server", render(`{"server":"nobody","parameters":{"url":"http://a/b"}}`), http.StatusNotFound, "not_found", "")
	refusal(t, "no version", render(`{"server":"gpu-r01-01","version":2}`), http.StatusNotFound, "not_found", "")
	got[schemas.HardwareRecord](t, w.do(t, access.RoleEngineer, http.MethodPut, "hardware/gpu-r01-01", "", `{"architecture":"aarch64"}`), http.StatusOK)
	refusal(t, "another architecture", render(`{"server":"gpu-r01-01","parameters":{"url":"http://a/b"}}`), http.StatusBadRequest, "bad_body", "server")
}

// What was found of a server is listed, the last time first, page by page.
func TestTheValidationsOfAServer(t *testing.T) {
	w := start(t, false, withEstate(t, 2))
	list := func(query string) apigen.ValidationList {
		return got[apigen.ValidationList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/gpu-r01-01/validations"+query, "", ""), http.StatusOK)
	}
	if l := list(""); len(l.Items) != 0 || l.Next != "" {
		t.Errorf("%+v", l)
	}
	server := got[schemas.Server](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/gpu-r01-01", "", ""), http.StatusOK).ID
	for _, id := range []string{"a", "b", "c"} {
		_, err := validations.New(w.db).Put(t.Context(), schemas.Validation{
			ID: id, ServerID: server, Checks: []schemas.ValidationCheck{{Name: "link", Verdict: schemas.CheckNotSeen, Source: schemas.SeenByTelemetry, Detail: "nobody reads it"}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := list("?limit=2")
	if len(first.Items) != 2 || first.Items[0].ID != "c" || first.Items[0].Number != 3 || first.Items[0].Verdict != schemas.CheckNotSeen || first.Items[0].Server != "gpu-r01-01" {
		t.Errorf("%+v", first)
	}
	if l := list("?limit=2&after=" + first.Next); len(l.Items) != 1 || l.Items[0].ID != "a" || l.Next != "" {
		t.Errorf("%+v", l)
	}
	refusal(t, "no such server", w.do(t, access.RoleViewer, http.MethodGet, "servers/none/validations", "", ""), http.StatusNotFound, "not_found", "")
}

// What was found of the drives of a server is listed as it was told, the last time first, page by page.
func TestTheWipesOfAServer(t *testing.T) {
	w := start(t, false, withEstate(t, 2))
	list := func(query string) apigen.WipeList {
		return got[apigen.WipeList](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/gpu-r01-01/wipes"+query, "", ""), http.StatusOK)
	}
	if l := list(""); l.Items == nil || len(l.Items) != 0 || l.Next != "" {
		t.Errorf("%+v", l)
	}
	server := got[schemas.Server](t, w.do(t, access.RoleViewer, http.MethodGet, "servers/gpu-r01-01", "", ""), http.StatusOK).ID
	for _, action := range []string{"a", "b", "c"} {
		_, err := wipes.New(w.db, time.Now).Put(t.Context(), schemas.Wipe{ServerID: server, Action: action, Workflow: "auspex-" + action, Drives: []schemas.WipeDrive{{
			Device: "/dev/sda", Serial: "S0", Detail: "1 of 3 blocks that were read hold data, one of them at 4096",
			Sanitize: &schemas.SanitizeStatus{Raw: "090c", State: schemas.SanitizeDone}, Blocks: &schemas.WipeBlocks{Size: 4096, Offsets: []int64{0, 4096, 8192}, Blank: 2, Data: []int64{4096}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := list("?limit=2")
	if len(first.Items) != 2 || first.Items[0].Action != "c" || first.Items[0].Number != 3 || first.Items[0].Server != "gpu-r01-01" || first.Items[0].Drives[0].Blocks.Data[0] != 4096 {
		t.Errorf("%+v", first)
	}
	if l := list("?limit=2&after=" + first.Next); len(l.Items) != 1 || l.Items[0].Action != "a" || l.Next != "" {
		t.Errorf("%+v", l)
	}
	refusal(t, "no such server", w.do(t, access.RoleViewer, http.MethodGet, "servers/none/wipes", "", ""), http.StatusNotFound, "not_found", "")
}

// What servers are to be installed with is checked before anything is given, and is kept as it was then.
func TestAnAllocationNamesItsTemplate(t *testing.T) {
	var n *named
	w := gives(t, withEstate(t, 4), func(_ *api.Config, d *api.Deps) { n = d.Allocator.(*named) })
	w.person(t, "li", access.RoleEngineer)
	if a := w.do(t, access.RoleEngineer, http.MethodPost, "templates", "", ubuntu(t, ubuntuText)); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	ask := func(who, with string) answer {
		return w.send(t, http.MethodPost, "api/v1/allocations", who, body(`{"server_id":"gpu-r01-01","user_id":"li"`+with+`}`))
	}
	for with, field := range map[string]string{
		`,"template":"talos"`: "template", `,"template":"ubuntu","template_version":7`: "template_version", `,"template_version":1`: "template_version",
		`,"parameters":{"url":"http://images/a.gz"}`: "parameters", `,"template":"ubuntu"`: "parameters.url", `,"template":"ubuntu","parameters":{"url":3}`: "parameters.url",
		`,"template":"ubuntu","parameters":{"url":"http://images/a.gz","urll":"x"}`:  "parameters.urll",
		`,"template":"ubuntu","parameters":{"url":"http://images/a.gz","token":"x"}`: "parameters.token",
	} {
		refusal(t, with, ask("li", with), http.StatusBadRequest, "bad_body", field)
	}
	gpu := w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"gpu_ids":["gpu-r01-01/gpu0"],"template":"ubuntu","parameters":{"url":"http://images/a.gz"}}`))
	refusal(t, "a GPU", gpu, http.StatusBadRequest, "bad_body", "template")
	const good = `,"template":"ubuntu","parameters":{"url":"http://images/a.gz"}`
	n.bare = true
	refusal(t, "where nothing is installed", ask("li", good), http.StatusConflict, "not_installed", "")
	n.bare = false
	made := decode[apigen.CreatedAllocation](t, ask("li", good), http.StatusCreated).Allocation
	if made.Template != "ubuntu" || made.TemplateVersion != 1 || made.Parameters["url"] != "http://images/a.gz" {
		t.Errorf("%+v", made)
	}
	// A secret of the site would be written to a server that is theirs.
	secret := `,"template":"ubuntu","parameters":{"url":"http://images/a.gz","token":"secret:join"}`
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"blue","members":["li"]}`)
	refusal(t, "a secret", ask("li", secret), http.StatusBadRequest, "bad_body", "parameters.token")
	// A later version changes nothing of it, and what is retired is for nobody new.
	if a := w.do(t, access.RoleEngineer, http.MethodPut, "templates/ubuntu", "", `{"description":"x","status":"retired"}`); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if is := got[schemas.Allocation](t, w.do(t, "li", http.MethodGet, "allocations/"+made.ID, "", ""), http.StatusOK); is.TemplateVersion != 1 {
		t.Errorf("%+v", is)
	}
	refusal(t, "retired", ask("li", good), http.StatusBadRequest, "bad_body", "template")
	refusal(t, "pinned", w.do(t, access.RoleEngineer, http.MethodDelete, "templates/ubuntu", "", ""), http.StatusConflict, "in_use", "")
}

// A server is brought up with a template that is checked first; where that fails it is resumed, by who may and while nothing else was done.
func TestAServerIsBroughtUp(t *testing.T) {
	w := gives(t, withEstate(t, 4))
	if a := w.do(t, access.RoleEngineer, http.MethodPost, "templates", "", ubuntu(t, ubuntuText)); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	ask := func(text string) answer {
		return w.send(t, http.MethodPost, "api/v1/workflows", access.RoleEngineer, body(text))
	}
	const good = `"template":"ubuntu","parameters":{"url":"http://images/a.gz"}`
	for with, field := range map[string]string{
		`{"type":"bring_up","server_id":"gpu-r01-01","template":"talos"}`: "template", `{"type":"bring_up","server_id":"gpu-r01-01","template":"ubuntu"}`: "parameters.url",
		`{"type":"validate","server_id":"gpu-r01-01",` + good + `}`: "template", `{"type":"bring_up","server_id":"gpu-r01-01","allocation_id":"x"}`: "allocation_id",
	} {
		refusal(t, with, ask(with), http.StatusBadRequest, "bad_body", field)
	}
	dry := func(text string) answer {
		return w.send(t, http.MethodPost, "api/v1/workflows?dry_run=true", access.RoleEngineer, body(text))
	}
	refusal(t, "a validation in words alone", dry(`{"type":"validate","server_id":"gpu-r01-01"}`), http.StatusBadRequest, "bad_parameter", "dry_run")
	would := decode[schemas.Workflow](t, dry(`{"type":"bring_up","server_id":"gpu-r01-01",`+good+`}`), http.StatusOK)
	if would.Step("install").With["version"] != "1" || would.Server != "gpu-r01-01" || would.ID != uuid.Nil.String() || would.Steps[0].Status != schemas.StepPending {
		t.Errorf("%+v", would)
	}
	if none := decode[apigen.WorkflowList](t, w.send(t, http.MethodGet, "api/v1/workflows", access.RoleEngineer, nil), http.StatusOK); len(none.Items) > 0 {
		t.Errorf("what was only asked was begun: %+v", none.Items)
	}
	f := decode[schemas.Workflow](t, ask(`{"type":"bring_up","server_id":"gpu-r01-01",`+good+`}`), http.StatusAccepted)
	if f.Type != schemas.WorkflowBringUp || f.Step("install").With["template"] != "ubuntu" || f.Step("install").With["version"] != "1" {
		t.Errorf("%+v", f)
	}
	resume := func(id string) answer {
		return w.send(t, http.MethodPost, "api/v1/workflows/"+id+"/resume", access.RoleEngineer, nil)
	}
	refusal(t, "one that goes on", resume(f.ID), http.StatusConflict, "illegal_move", "")
	if a := w.send(t, http.MethodDelete, "api/v1/workflows/"+f.ID, access.RoleEngineer, nil); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := resume(f.ID)
	if is := decode[schemas.Workflow](t, a, http.StatusAccepted); is.Status != schemas.WorkflowPending || is.Attempt != 2 || a.header.Get("Location") != "/api/v1/workflows/"+f.ID {
		t.Errorf("%s %v", a.body, a.header)
	}
	w.send(t, http.MethodDelete, "api/v1/workflows/"+f.ID, access.RoleEngineer, nil)
	w.validates(t, "gpu-r01-01")
	refusal(t, "after another", resume(f.ID), http.StatusConflict, "past", "")
}
