package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/audit"
	"auspex/internal/store/people"
	"auspex/schemas"
)

// granted has a pool train of two servers beside default, and viewers who were granted a role in it:
// three users, whoever is of a team, and a script.
func granted(t *testing.T) *world {
	t.Helper()
	w := gives(t, withEstate(t, 8))
	makes[schemas.Pool](t, w, "api/v1/pools", `{"name":"train"}`)
	for _, server := range []string{"gpu-r02-01", "gpu-r02-02"} {
		if a := w.do(t, access.RoleEngineer, http.MethodPut, "servers/"+server, "", `{"pool":"train"}`); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	at := time.Now().UTC()
	for id, server := range map[string]string{"a-train": "gpu-r02-01", "a-other": "gpu-r04-01"} {
		if err := w.records.PutAction(t.Context(), schemas.Action{ID: id, Time: at, Created: at, Server: server, Kind: "power_cycle", State: schemas.ActionWaiting}); err != nil {
			t.Fatal(err)
		}
	}
	person := func(name string) { // whose token lets them do what they may
		w.user(t, name, access.RoleViewer)
		w.tokens[name] = makes[apigen.CreatedToken](t, w, "api/v1/tokens", `{"name":"of-`+name+`","role":"admin","user":"`+name+`"}`).Token
	}
	for _, role := range []string{"operator", "engineer", "admin"} {
		person("of-train-" + role)
		makes[schemas.Grant](t, w, "api/v1/grants", `{"user":"of-train-`+role+`","pool":"train","role":"`+role+`"}`)
	}
	person("member")
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"crew","members":["member"]}`)
	makes[schemas.Grant](t, w, "api/v1/grants", `{"team":"crew","pool":"train","role":"engineer"}`)
	w.tokens["script"] = makes[apigen.CreatedToken](t, w, "api/v1/tokens", `{"name":"script","role":"viewer"}`).Token
	makes[schemas.Grant](t, w, "api/v1/grants", `{"token":"script","pool":"TRAIN","role":"engineer"}`)
	w.user(t, "jo", access.RoleEngineer)
	return w
}

// What is granted in a pool is allowed there, whoever it was granted to, and nowhere else.
func TestAGrantReachesAsFarAsItsPool(t *testing.T) {
	w := granted(t)
	const op, eng, adm = "operator", "engineer", "admin"
	doors := []struct {
		name, method, path, body string
		least                    string
		ok                       int
		site                     bool // a tenant is told that it is for those who run the place
	}{
		{"approve", "POST", "actions/ACTION/approve", "", op, 202, false},
		{"cancel", "POST", "actions/ACTION/cancel", "", op, 202, false},
		{"power", "POST", "servers/SERVER/power", `{"action":"power_on"}`, eng, 202, false},
		{"operate", "POST", "operations/SERVER/power", `{"action":"power_on"}`, eng, 202, false},
		{"bios", "POST", "servers/SERVER/bios", `{"attributes":{"BootMode":"Uefi"}}`, eng, 202, true},
		{"firmware", "POST", "servers/SERVER/firmware", `{"component":"bmc","version":"1.2","image":"http://192.0.2.1/i","sha256":"` + strings.Repeat("0", 64) + `"}`, eng, 202, true},
		{"hold", "PUT", "servers/SERVER", `{"hold":""}`, eng, 200, true},
		{"configuration", "PUT", "servers/SERVER/config", `{"bios_config":{"BootMode":"Uefi"}}`, eng, 200, true},
		{"apply it", "POST", "servers/SERVER/config/apply", "", eng, 202, true},
		{"configuration of a GPU", "POST", "gpus/SERVER%2Fgpu1/config", `{"power_limit":500}`, eng, 201, true},
		{"apply that", "POST", "gpus/SERVER%2Fgpu1/config/apply", "", eng, 202, false},
		{"a GPU", "PUT", "gpus/SERVER%2Fgpu2", `{"driver_version":"1"}`, eng, 200, true},
		{"what it would be given", "POST", "allocations?dry_run=1", `{"server_id":"SERVER","user_id":"ME"}`, eng, 200, false},
		{"a GPU that it would be given", "POST", "allocations?dry_run=1", `{"gpu_ids":["SERVER/gpu1"],"user_id":"ME"}`, eng, 200, false},
	}
	for _, role := range []string{"of-train-operator", "of-train-engineer", "of-train-admin", "member", "script"} {
		least := map[string]int{op: 1, eng: 2, adm: 3}
		has := least[strings.TrimPrefix(role, "of-train-")]
		if has == 0 {
			has = least[eng]
		}
		for _, d := range doors {
			for _, at := range []struct {
				server, action string
				granted        bool
			}{{"gpu-r02-01", "a-train", true}, {"gpu-r04-01", "a-other", false}} {
				me := role
				if role == "script" {
					me = "jo"
				}
				fill := strings.NewReplacer("SERVER", at.server, "ACTION", at.action, "ME", me)
				a := w.do(t, role, d.method, fill.Replace(d.path), "", fill.Replace(d.body))
				status, code := d.ok, ""
				switch {
				case at.granted && has >= least[d.least]:
				case role == "member" && d.site:
					status, code = http.StatusForbidden, "not_for_tenants"
				case role == "member" && !strings.HasPrefix(d.path, "allocations"): // telemetry and actions of a server that is not theirs
					status, code = http.StatusNotFound, "not_found"
				default:
					status, code = http.StatusForbidden, "no_permission"
				}
				if a.status != status || code != "" && a.problem(t).Code != code {
					t.Errorf("%s: %s of %s: %d, want %d %s: %.300s", role, d.name, at.server, a.status, status, code, a.body)
				}
			}
		}
		for path, text := range map[string]string{ // what is of no pool, and what moves something in or out of one
			"POST servers": `{"name":"new"}`, "DELETE servers/gpu-r02-01": "", "POST servers/gpu-r02-01/gpus": `{"index":9}`,
			"PUT servers/gpu-r02-01": `{"pool":"default"}`, "PUT servers/gpu-r04-01": `{"pool":"train"}`, "POST pools": `{"name":"mine"}`,
			"POST grants": `{"user":"jo","pool":"train","role":"admin"}`, "GET tokens": "", "POST workflows": `{"type":"validate","server_id":"gpu-r04-02"}`,
		} {
			method, path, _ := strings.Cut(path, " ")
			if a := w.do(t, role, method, path, "", text); a.status != http.StatusForbidden {
				t.Errorf("%s: %s %s: %d %s", role, method, path, a.status, a.body)
			}
		}
	}
}

// Whoever is an admin of a pool gives what it has to others and decides in their stead, there alone.
func TestAnAdminOfAPoolDecidesForOthers(t *testing.T) {
	w := granted(t)
	give := func(who, text string) answer { return w.do(t, who, http.MethodPost, "allocations", "", text) }
	refusal(t, "an engineer of the pool", give("of-train-engineer", `{"server_id":"gpu-r02-02","user_id":"jo"}`), 403, "no_permission", "")
	refusal(t, "of another pool", give("of-train-admin", `{"server_id":"gpu-r04-02","user_id":"jo"}`), 403, "no_permission", "")
	refusal(t, "of both", give("of-train-admin", `{"server_ids":["gpu-r02-02","gpu-r04-02"],"user_id":"jo"}`), 403, "no_permission", "")
	refusal(t, "a wish of anywhere", give("of-train-admin", `{"wish":{"servers":1},"user_id":"jo"}`), 400, "bad_body", "wish.pool")
	refusal(t, "a wish of elsewhere", give("of-train-admin", `{"wish":{"servers":1,"pool":"default"},"user_id":"jo"}`), 403, "no_permission", "")
	a := decode[apigen.CreatedAllocation](t, give("of-train-admin", `{"server_id":"gpu-r02-02","user_id":"jo"}`), http.StatusCreated).Allocation
	power := func(who string) answer {
		return w.do(t, who, http.MethodPost, "servers/gpu-r02-02/power", "", `{"action":"power_on"}`)
	}
	refusal(t, "an engineer, of what somebody has", power("of-train-engineer"), 403, "not_yours", "")
	if got := power("of-train-admin"); got.status != http.StatusAccepted {
		t.Errorf("%d %s", got.status, got.body)
	}
	stop := func(who string) answer {
		return w.do(t, who, http.MethodPost, "allocations/"+a.ID+"/stop", "", `{"force":true}`)
	}
	refusal(t, "an engineer, by force", stop("of-train-engineer"), 403, "no_permission", "")
	refusal(t, "an operator", w.do(t, "of-train-operator", http.MethodDelete, "allocations/"+a.ID, "", ""), 403, "no_permission", "")
	if got := stop("of-train-admin"); got.status != http.StatusAccepted {
		t.Errorf("%d %s", got.status, got.body)
	}
	other := w.allocates(t, "gpu-r04-03")
	refusal(t, "elsewhere", w.do(t, "of-train-admin", http.MethodPost, "allocations/"+other.ID+"/stop", "", `{"force":true}`), 403, "no_permission", "")
}

// A credential lets its user do no more than it was made for, a session follows its token, and what is
// taken back, or ends with its holder, counts at the next request.
func TestAGrantEnds(t *testing.T) {
	w := granted(t)
	power := func(who string) int {
		return w.do(t, who, http.MethodPost, "servers/gpu-r02-01/power", "", `{"action":"power_on"}`).status
	}
	token := func(name, text string) {
		w.tokens[name] = makes[apigen.CreatedToken](t, w, "api/v1/tokens", text).Token
	}
	token("capped", `{"name":"capped","role":"viewer","user":"of-train-engineer"}`)
	token("half", `{"name":"half","role":"operator","user":"of-train-engineer"}`)
	token("full", `{"name":"full","role":"engineer","user":"of-train-engineer"}`)
	for who, want := range map[string]int{"capped": 403, "half": 403, "full": 202} {
		if got := power(who); got != want {
			t.Errorf("%s: %d", who, got)
		}
	}
	for who, want := range map[string]string{"capped": "", "half": "operator", "full": "engineer", "member": "engineer", "script": "engineer", access.RoleViewer: ""} {
		m := got[apigen.Me](t, w.do(t, who, http.MethodGet, "me", "", ""), http.StatusOK)
		switch {
		case want == "" && len(m.Grants) == 0:
		case len(m.Grants) != 1 || m.Grants[0].Pool != "train" || m.Grants[0].Role != want || !slices.Equal(m.Grants[0].Permissions, access.InPool(want)):
			t.Errorf("%s: %+v", who, m.Grants)
		}
	}
	session := func(who string) func(*http.Request) {
		login := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"token":"`+w.tokens[who]+`"}`))
		cookie, err := http.ParseSetCookie(login.header.Get("Set-Cookie"))
		if err != nil {
			t.Fatal(err)
		}
		return func(r *http.Request) {
			body(`{"action":"power_on"}`)(r)
			r.AddCookie(cookie)
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}
	}
	for who, want := range map[string]int{"capped": 403, "full": 202, "script": 202} {
		if a := w.send(t, http.MethodPost, "api/v1/servers/gpu-r02-01/power", "", session(who)); a.status != want {
			t.Errorf("a session of %s: %d %s", who, a.status, a.body)
		}
	}
	// Who logs in by a code under the name of a script has nothing that was granted to that.
	_, code, _ := strings.Cut(w.login(t, "script", access.RoleViewer), "#login=")
	login := w.send(t, http.MethodPost, "api/v1/login", "", body(`{"code":"`+code+`"}`))
	cookie, err := http.ParseSetCookie(login.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	if a := w.send(t, http.MethodGet, "api/v1/me", "", func(r *http.Request) { r.AddCookie(cookie) }); strings.Contains(string(a.body), "train") {
		t.Errorf("%s", a.body)
	}
	list := got[apigen.GrantList](t, w.do(t, access.RoleAdmin, http.MethodGet, "grants?pool=train&limit=2", "", ""), http.StatusOK)
	rest := got[apigen.GrantList](t, w.do(t, access.RoleAdmin, http.MethodGet, "grants?pool=train&after="+list.Next, "", ""), http.StatusOK)
	all := slices.Concat(list.Items, rest.Items)
	if len(list.Items) != 2 || len(all) != 5 || rest.Next != "" {
		t.Fatalf("%+v %+v", list, rest)
	}
	for _, g := range all {
		if g.User != "of-train-engineer" {
			continue
		}
		refusal(t, "again", w.do(t, access.RoleAdmin, http.MethodPost, "grants", "", `{"user":"of-train-engineer","pool":"train","role":"admin"}`), 409, "granted", "")
		if a := w.do(t, access.RoleAdmin, http.MethodDelete, "grants/"+g.ID, "", ""); a.status != http.StatusNoContent {
			t.Errorf("%d %s", a.status, a.body)
		}
		rows, err := audit.New(w.db, time.Now).List(t.Context(), 0, 1)
		var change struct{ Before schemas.Grant }
		if err == nil {
			err = json.Unmarshal([]byte(rows[0].Detail), &change)
		}
		if err != nil || rows[0].Kind != people.KindGrant || rows[0].Actor != access.RoleAdmin || change.Before != g {
			t.Errorf("%+v %v", rows, err)
		}
	}
	if got := power("full"); got != http.StatusForbidden {
		t.Errorf("what was taken back: %d", got)
	}
	// A pool that is spoken of stays; a token of the same name is another, and a team's grants end with it.
	refusal(t, "the pool", w.do(t, access.RoleAdmin, http.MethodDelete, "pools/train", "", ""), 409, "in_use", "")
	w.do(t, access.RoleAdmin, http.MethodDelete, "tokens/script", "", "")
	token("script", `{"name":"script","role":"viewer"}`)
	w.do(t, access.RoleAdmin, http.MethodDelete, "teams/crew", "", "")
	for _, who := range []string{"script", "member"} {
		if got := power(who); got != http.StatusForbidden {
			t.Errorf("%s: %d", who, got)
		}
	}
	for name, text := range map[string]string{
		"user": `{"user":"nobody","pool":"train","role":"operator"}`, "team": `{"team":"nobody","pool":"train","role":"operator"}`,
		"token": `{"token":"full","pool":"train","role":"operator"}`, "pool": `{"user":"jo","pool":"none","role":"operator"}`,
		"role": `{"user":"jo","pool":"train","role":"viewer"}`,
	} {
		refusal(t, name, w.do(t, access.RoleAdmin, http.MethodPost, "grants", "", text), 400, "bad_body", name)
	}
	for _, text := range []string{`{"pool":"train","role":"operator"}`, `{"user":"jo","team":"crew","pool":"train","role":"operator"}`} {
		refusal(t, text, w.do(t, access.RoleAdmin, http.MethodPost, "grants", "", text), 400, "bad_body", "user")
	}
}
