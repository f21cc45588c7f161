package api_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/workflows"
	"auspex/schemas"
)

// rightsOf is whose the things of an operation are.
type rightsOf int

const (
	everybodys rightsOf = iota // it speaks of the caller, of what the house offers, or of nothing of anybody's
	sites                      // of those who run the place: whoever is in a team and no admin is told so
	runners                    // below a server or GPU of a pool that the caller runs, which nobody of this table does
	holders                    // below a server or GPU that a tenant must have, which is looked at before their role
	happened                   // of what happened to somebody's servers: another's is not there
	helds                      // allocations and what is done for them: another team's is not there
	peoples                    // users and teams: those who are of no common team are not there, except for admins
	reports                    // what is told of a server, whose name is for everybody: of another's it is refused
	shares                     // quotas and reservations: another team's is not there, except for who runs the inventory
)

// right is what an operation is, said by hand: the product's own tables are what is tested.
type right struct {
	op    string
	needs string // the least role
	of    rightsOf
	thing string // what X of the request stands for; "" has none
	path  string // below /api/v1, with X
	body  string // with X
	tag   string // If-Match; a passed one changes nothing
	ok    int    // the answer to those who may
	agree bool   // whoever is of no team must ask the holder, unless they are an admin
}

const (
	nobody  = "" // without credentials
	anybody = "anybody"
	passed  = `"999999"`
)

// rights are all operations of the document. A request here changes nothing, or can be made again:
// it meets what is there already, a revision that has passed, or something that is not there.
var rights = []right{
	// The way in.
	{op: "login", needs: anybody, path: "login", body: `{"token":"TOKEN"}`, ok: 200},
	{op: "getLoginMethods", needs: anybody, path: "login-methods", ok: 200},
	{op: "beginLogin", needs: anybody, path: "oidc/login", ok: 404},
	{op: "finishLogin", needs: anybody, path: "oidc/callback", ok: 404},
	{op: "logout", needs: "viewer", path: "logout", ok: 204},
	{op: "getMe", needs: "viewer", path: "me", ok: 200},
	{op: "createLoginCode", needs: "admin", of: sites, path: "login-codes", ok: 201},
	{op: "stream", needs: "viewer", path: "stream", ok: 200},

	// People.
	{op: "listTokens", needs: "admin", of: sites, path: "tokens", ok: 200},
	{op: "createToken", needs: "admin", of: sites, path: "tokens", body: `{"name":"of-li","role":"viewer"}`, ok: 409},
	{op: "getToken", needs: "admin", of: sites, path: "tokens/none", ok: 404},
	{op: "updateToken", needs: "admin", of: sites, path: "tokens/none", body: `{"role":"viewer"}`, ok: 404},
	{op: "revokeToken", needs: "admin", of: sites, path: "tokens/none", ok: 404},
	{op: "listUsers", needs: "viewer", path: "users", ok: 200},
	{op: "createUser", needs: "admin", of: sites, path: "users", body: `{"username":"li","email":"x@example.com","role":"viewer"}`, ok: 409},
	{op: "getUser", needs: "viewer", of: peoples, thing: "user", path: "users/X", ok: 200},
	{op: "updateUser", needs: "admin", of: sites, thing: "user", path: "users/X", body: `{"role":"admin"}`, tag: passed, ok: 412},
	{op: "listUserAllocations", needs: "viewer", of: helds, thing: "user", path: "users/X/allocations", ok: 200},
	{op: "listTeams", needs: "viewer", path: "teams", ok: 200},
	{op: "createTeam", needs: "admin", of: sites, path: "teams", body: `{"name":"red"}`, ok: 409},
	{op: "getTeam", needs: "viewer", of: peoples, thing: "team", path: "teams/X", ok: 200},
	{op: "updateTeam", needs: "admin", of: sites, thing: "team", path: "teams/X", body: `{"members":[]}`, tag: passed, ok: 412},
	{op: "deleteTeam", needs: "admin", of: sites, thing: "team", path: "teams/X", tag: passed, ok: 412},
	{op: "listGrants", needs: "admin", of: sites, path: "grants", ok: 200},
	{op: "createGrant", needs: "admin", of: sites, path: "grants", body: `{"user":"li","pool":"none","role":"operator"}`, ok: 400},
	{op: "getGrant", needs: "admin", of: sites, path: "grants/none", ok: 404},
	{op: "deleteGrant", needs: "admin", of: sites, path: "grants/none", ok: 404},
	{op: "listWebhooks", needs: "admin", of: sites, path: "webhooks", ok: 200},
	{op: "createWebhook", needs: "admin", of: sites, path: "webhooks", body: newHook, ok: 409},
	{op: "getWebhook", needs: "admin", of: sites, path: "webhooks/chat", ok: 200},
	{op: "updateWebhook", needs: "admin", of: sites, path: "webhooks/chat", body: `{"active":false}`, tag: passed, ok: 412},
	{op: "deleteWebhook", needs: "admin", of: sites, path: "webhooks/chat", tag: passed, ok: 412},
	{op: "testWebhook", needs: "admin", of: sites, path: "webhooks/chat/test", ok: 202},
	{op: "listNotices", needs: "viewer", path: "notices", ok: 200},
	{op: "listDeliveries", needs: "admin", of: sites, path: "webhooks/chat/deliveries", ok: 200},

	// What people have.
	{op: "listAllocations", needs: "viewer", path: "allocations", ok: 200},
	{op: "listAllocations", needs: "viewer", of: everybodys, path: "allocations?server=gpu-r03-06", ok: 200},
	{op: "createAllocation", needs: "engineer", path: "allocations?dry_run=1", body: `{"server_id":"gpu-r08-08","user_id":"ME"}`, ok: 200},
	{op: "getAllocation", needs: "viewer", of: helds, thing: "allocation", path: "allocations/X", ok: 200},
	{op: "updateAllocation", needs: "engineer", of: helds, thing: "allocation", path: "allocations/X", body: `{"purpose":"mine"}`, tag: passed, ok: 412},
	{op: "deleteAllocation", needs: "engineer", of: helds, thing: "allocation", path: "allocations/X", tag: passed, ok: 412},
	{op: "startAllocation", needs: "engineer", of: helds, thing: "allocation", path: "allocations/X/start", ok: 409},
	{op: "stopAllocation", needs: "engineer", of: helds, thing: "ended", path: "allocations/X/stop", ok: 409},
	{op: "stopAllocation", needs: "admin", of: helds, thing: "ended", path: "allocations/X/stop", body: `{"force":true}`, ok: 202},
	{op: "getAllocationStatus", needs: "viewer", of: helds, thing: "allocation", path: "allocations/X/status", ok: 200},
	{op: "listWorkflows", needs: "viewer", path: "workflows", ok: 200},
	{op: "createWorkflow", needs: "engineer", of: runners, path: "workflows", body: `{"type":"validate","server_id":"gpu-r01-01"}`, ok: 409},
	{op: "deployAllocation", needs: "engineer", of: helds, thing: "allocation", path: "workflows/deploy", body: `{"allocation_id":"X","server_id":"HOST"}`, ok: 409},
	{op: "cleanupAllocation", needs: "engineer", of: helds, thing: "allocation", path: "workflows/cleanup", body: `{"allocation_id":"X","server_id":"HOST"}`, ok: 409},
	{op: "getWorkflow", needs: "viewer", of: helds, thing: "workflow", path: "workflows/X", ok: 200},
	{op: "cancelWorkflow", needs: "engineer", of: helds, thing: "workflow", path: "workflows/X", ok: 409},
	{op: "resumeWorkflow", needs: "engineer", of: helds, thing: "workflow", path: "workflows/X/resume", ok: 409},
	{op: "getCapacity", needs: "viewer", path: "capacity", ok: 200},
	{op: "listPools", needs: "viewer", path: "pools", ok: 200},
	{op: "createPool", needs: "admin", of: sites, path: "pools", body: `{"name":"default"}`, ok: 409},
	{op: "getPool", needs: "viewer", path: "pools/default", ok: 200},
	{op: "updatePool", needs: "admin", of: sites, path: "pools/default", body: `{"description":"x"}`, tag: passed, ok: 412},
	{op: "deletePool", needs: "admin", of: sites, path: "pools/default", tag: passed, ok: 412},
	{op: "listQuotas", needs: "viewer", path: "quotas", ok: 200},
	{op: "createQuota", needs: "admin", of: sites, path: "quotas", body: `{"team":"red","max_gpus":1}`, ok: 409},
	{op: "getQuota", needs: "viewer", of: shares, thing: "quota", path: "quotas/X", ok: 200},
	{op: "updateQuota", needs: "admin", of: sites, thing: "quota", path: "quotas/X", body: `{"max_gpus":9}`, tag: passed, ok: 412},
	{op: "deleteQuota", needs: "admin", of: sites, thing: "quota", path: "quotas/X", tag: passed, ok: 412},
	{op: "listReservations", needs: "viewer", path: "reservations", ok: 200},
	{op: "createReservation", needs: "admin", of: sites, path: "reservations", body: `{"name":"red","team":"red","pool":"default","gpus":1,"end_time":"2099-01-01T00:00:00Z"}`, ok: 409},
	{op: "getReservation", needs: "viewer", of: shares, thing: "reservation", path: "reservations/X", ok: 200},
	{op: "updateReservation", needs: "admin", of: sites, thing: "reservation", path: "reservations/X", body: `{"gpus":2}`, tag: passed, ok: 412},
	{op: "deleteReservation", needs: "admin", of: sites, thing: "reservation", path: "reservations/X", tag: passed, ok: 412},

	// What there is.
	{op: "getFleet", needs: "viewer", path: "fleet", ok: 200},
	{op: "listServers", needs: "viewer", path: "servers", ok: 200},
	{op: "registerServer", needs: "engineer", of: sites, path: "servers", body: `{"name":"gpu-r01-01"}`, ok: 409},
	{op: "getServer", needs: "viewer", thing: "server", path: "servers/X", ok: 200},
	{op: "updateServer", needs: "engineer", of: runners, thing: "server", path: "servers/X", body: `{"hold":"x"}`, tag: passed, ok: 412},
	{op: "retireServer", needs: "engineer", of: sites, thing: "server", path: "servers/X", tag: passed, ok: 412},
	{op: "listServerGPUs", needs: "viewer", thing: "server", path: "servers/X/gpus", ok: 200},
	{op: "registerGPU", needs: "engineer", of: sites, thing: "server", path: "servers/X/gpus", body: `{"index":0}`, ok: 409},
	{op: "getServerConfig", needs: "viewer", of: runners, thing: "server", path: "servers/X/config", ok: 200},
	{op: "putServerConfig", needs: "engineer", of: runners, thing: "server", path: "servers/X/config", body: `{"bios_config":{"a":1}}`, tag: passed, ok: 412},
	{op: "applyServerConfig", needs: "engineer", of: runners, thing: "server", path: "servers/X/config/apply", ok: 202, agree: true},
	{op: "listServerConfigs", needs: "viewer", of: runners, thing: "server", path: "servers/X/config/versions", ok: 200},
	{op: "listServerWipes", needs: "viewer", of: runners, thing: "server", path: "servers/X/wipes", ok: 200},
	{op: "listServerValidations", needs: "viewer", of: runners, thing: "server", path: "servers/X/validations", ok: 200},
	{op: "listGPUs", needs: "viewer", path: "gpus", ok: 200},
	{op: "getGPU", needs: "viewer", thing: "gpu", path: "gpus/X", ok: 200},
	{op: "updateGPU", needs: "engineer", of: runners, thing: "gpu", path: "gpus/X", body: `{"status_reason":"x"}`, tag: passed, ok: 412},
	{op: "getGPUConfig", needs: "viewer", of: holders, thing: "gpu", path: "gpus/X/config", ok: 200},
	{op: "createGPUConfig", needs: "engineer", of: runners, thing: "gpu", path: "gpus/X/config", body: `{"power_limit":500}`, tag: passed, ok: 412},
	{op: "updateGPUConfig", needs: "engineer", of: runners, thing: "gpu", path: "gpus/X/config", body: `{"power_limit":600}`, tag: passed, ok: 412},
	{op: "applyGPUConfig", needs: "engineer", of: holders, thing: "gpu", path: "gpus/X/config/apply", ok: 202, agree: true},
	{op: "listGPUConfigs", needs: "viewer", of: holders, thing: "gpu", path: "gpus/X/config/versions", ok: 200},
	{op: "listAssets", needs: "viewer", of: sites, path: "assets", ok: 200},
	{op: "getAsset", needs: "viewer", of: sites, thing: "server", path: "assets/X", ok: 200},
	{op: "listAssetVersions", needs: "viewer", of: sites, thing: "server", path: "assets/X/versions", ok: 200},
	{op: "listResources", needs: "viewer", path: "resources", ok: 200},
	{op: "getResource", needs: "viewer", thing: "server", path: "resources/X", ok: 200},
	{op: "search", needs: "viewer", path: "search?q=gpu", ok: 200},

	// How systems are installed.
	{op: "listTemplates", needs: "viewer", of: sites, path: "templates", ok: 200},
	{op: "createTemplate", needs: "engineer", of: sites, path: "templates", body: newTemplate, ok: 409},
	{op: "getTemplate", needs: "viewer", of: sites, path: "templates/plain", ok: 200},
	{op: "updateTemplate", needs: "engineer", of: sites, path: "templates/plain", body: `{"description":"x"}`, tag: passed, ok: 412},
	{op: "deleteTemplate", needs: "engineer", of: sites, path: "templates/plain", tag: passed, ok: 412},
	{op: "listTemplateVersions", needs: "viewer", of: sites, path: "templates/plain/versions", ok: 200},
	{op: "renderTemplate", needs: "viewer", of: sites, thing: "server", path: "templates/plain/render", body: `{"server":"X"}`, ok: 200},
	{op: "listHardware", needs: "viewer", of: sites, path: "hardware", ok: 200},
	{op: "getHardware", needs: "viewer", of: sites, thing: "server", path: "hardware/X", ok: 200},
	{op: "putHardware", needs: "engineer", of: sites, thing: "server", path: "hardware/X", body: `{"boot_mode":"uefi"}`, tag: passed, ok: 412},

	// How what there is comes into the inventory.
	{op: "listJoinTokens", needs: "viewer", of: sites, path: "join-tokens", ok: 200},
	{op: "createJoinToken", needs: "engineer", of: sites, path: "join-tokens", body: `{"name":"image"}`, ok: 409},
	{op: "revokeJoinToken", needs: "engineer", of: sites, path: "join-tokens/none", ok: 404},
	{op: "listMachines", needs: "viewer", of: sites, path: "machines", ok: 200},
	{op: "revokeMachine", needs: "engineer", of: sites, path: "machines/" + strings.Repeat("0", 64), ok: 404},
	{op: "listProposals", needs: "viewer", of: sites, path: "proposals", ok: 200},
	{op: "getProposal", needs: "viewer", of: sites, path: "proposals/none", ok: 404},
	{op: "decideProposal", needs: "engineer", of: sites, path: "proposals/none/decisions", body: `{"decision":"declined","reason":"x"}`, ok: 404},
	{op: "listRefusedDescriptions", needs: "viewer", of: sites, path: "refused-descriptions", ok: 200},
	{op: "listAgents", needs: "viewer", of: sites, path: "agents", ok: 200},
	{op: "listDiscoveries", needs: "viewer", of: sites, path: "discoveries", ok: 200},
	{op: "startDiscovery", needs: "engineer", of: sites, path: "discoveries", body: `{"ranges":["192.0.2.1"]}`, ok: 409},
	{op: "getDiscovery", needs: "viewer", of: sites, path: "discoveries/none", ok: 404},
	{op: "cancelDiscovery", needs: "engineer", of: sites, path: "discoveries/none", ok: 404},
	{op: "listConflicts", needs: "viewer", of: sites, path: "conflicts", ok: 200},
	{op: "getConflict", needs: "viewer", of: sites, path: "conflicts/none", ok: 404},
	{op: "decideConflict", needs: "engineer", of: sites, path: "conflicts/none", body: `{"decision":"left"}`, ok: 404},

	// What happens, is measured, and is done.
	{op: "getServerStatus", needs: "viewer", of: holders, thing: "server", path: "servers/X/status", ok: 200},
	{op: "getServerPlots", needs: "viewer", of: holders, thing: "server", path: "servers/X/plots", ok: 200},
	{op: "getGPUStatus", needs: "viewer", of: holders, thing: "gpu", path: "gpus/X/status", ok: 200},
	{op: "getGPUMetrics", needs: "viewer", of: holders, thing: "gpu", path: "gpus/X/metrics", ok: 200},
	{op: "powerServer", needs: "engineer", of: holders, thing: "server", path: "servers/X/power", body: `{"action":"power_on"}`, ok: 202, agree: true},
	{op: "powerServerOperation", needs: "engineer", of: holders, thing: "server", path: "operations/X/power", body: `{"action":"power_on"}`, ok: 202, agree: true},
	{op: "poolServer", needs: "engineer", of: runners, thing: "server", path: "servers/X/pool", body: `{"action":"quarantine"}`, ok: 202, agree: true},
	{op: "setServerBios", needs: "engineer", of: runners, thing: "server", path: "servers/X/bios", body: `{"attributes":{"BootMode":"Uefi"}}`, ok: 202, agree: true},
	{op: "updateServerFirmware", needs: "engineer", of: runners, thing: "server", path: "servers/X/firmware", body: `{"component":"bmc","version":"1.2","image":"http://192.0.2.1/i","sha256":"` + strings.Repeat("0", 64) + `"}`, ok: 202, agree: true},
	{op: "listOperations", needs: "viewer", path: "operations", ok: 200},
	{op: "getOperation", needs: "viewer", of: happened, thing: "operation", path: "operations/X", ok: 200},
	{op: "listEvents", needs: "viewer", path: "events", ok: 200},
	{op: "postEvent", needs: "operator", of: reports, thing: "server", path: "events", body: `{"source_id":"X","event_type":"psu.failure","severity":"error"}`, ok: 201},
	{op: "getEvent", needs: "viewer", of: happened, thing: "alert", path: "events/X", ok: 200},
	{op: "listAlerts", needs: "viewer", path: "alerts", ok: 200},
	{op: "postAlert", needs: "operator", of: reports, thing: "server", path: "alerts", body: `{"source_id":"X","alert_type":"psu.failure","priority":"low"}`, ok: 201},
	{op: "getAlert", needs: "viewer", of: happened, thing: "alert", path: "alerts/X", ok: 200},
	{op: "handleAlert", needs: "operator", of: happened, thing: "alert", path: "alerts/X", body: `{"comment":"x"}`, tag: passed, ok: 412},
	{op: "getAlertCorrelation", needs: "viewer", of: happened, thing: "alert", path: "alerts/X/correlation", ok: 200},
	{op: "listIncidents", needs: "viewer", path: "incidents", ok: 200},
	{op: "getIncidentRecord", needs: "viewer", of: sites, path: "incidents/record", ok: 200},
	{op: "getIncident", needs: "viewer", of: happened, thing: "incident", path: "incidents/X", ok: 200},
	{op: "listIncidentCorrections", needs: "viewer", of: sites, thing: "incident", path: "incidents/X/corrections", ok: 200},
	{op: "correctIncident", needs: "operator", of: sites, thing: "incident", path: "incidents/X/corrections", body: `{"verdict":"right"}`, ok: 201},
	{op: "listCorrections", needs: "viewer", of: sites, path: "corrections", ok: 200},
	{op: "listEdgeProposals", needs: "viewer", of: sites, path: "learning/edges", ok: 200},
	{op: "decideEdgeProposal", needs: "operator", of: sites, path: "learning/edges/none/decisions", body: `{"decision":"declined","reason":"x"}`, ok: 404},
	{op: "listFaults", needs: "viewer", path: "faults", ok: 200},
	{op: "listPredictions", needs: "viewer", path: "predictions", ok: 200},
	{op: "getPredictionRecord", needs: "viewer", of: sites, path: "predictions/record", ok: 200},
	{op: "listActions", needs: "viewer", path: "actions", ok: 200},
	{op: "getBudgets", needs: "viewer", of: sites, path: "actions/budgets", ok: 200},
	{op: "getAction", needs: "viewer", of: happened, thing: "action", path: "actions/X", ok: 200},
	{op: "decideAction", needs: "operator", of: happened, thing: "action", path: "actions/X/approve", ok: 202, agree: true},
	{op: "decideAction", needs: "operator", of: happened, thing: "action", path: "actions/X/cancel", ok: 202},
	{op: "decideAction", needs: "operator", of: happened, thing: "action", path: "actions/X/dry-run", ok: 202},
	{op: "decideAction", needs: "admin", of: happened, thing: "action", path: "actions/X/override", body: `{"reason":"x"}`, ok: 409},
	{op: "listMaintenance", needs: "viewer", path: "maintenance", ok: 200},
	{op: "declareMaintenance", needs: "operator", of: runners, thing: "server", path: "maintenance", body: `{"resources":["X"],"duration_seconds":60,"reason":"x"}`, ok: 201},
	{op: "getMaintenance", needs: "viewer", path: "maintenance/none", ok: 404},
	{op: "updateMaintenance", needs: "operator", of: runners, path: "maintenance/none", body: `{"reason":"x"}`, ok: 404},
	{op: "deleteMaintenance", needs: "operator", of: runners, path: "maintenance/none", ok: 404},
	{op: "endMaintenance", needs: "operator", of: runners, path: "maintenance/none/end", ok: 404},
	{op: "listAudit", needs: "operator", of: sites, path: "audit", ok: 200},
}

// rightsWorld has the teams red and blue, each with one of everything. The ids are of red's, of
// blue's, and of nobody's, by what they are.
func rightsWorld(t *testing.T) (w *world, ids map[string][3]string) {
	t.Helper()
	w = gives(t, withEstate(t, 8))
	w.person(t, "li", access.RoleEngineer)
	w.person(t, "jo", access.RoleEngineer)
	members := []string{"li"}
	for _, role := range schemas.Roles() {
		w.person(t, "red-"+role, role)
		w.person(t, "free-"+role, role)
		members = append(members, "red-"+role)
	}
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"red","members":["`+strings.Join(members, `","`)+`"]}`)
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"blue","members":["jo"]}`)
	makes[schemas.Webhook](t, w, "api/v1/webhooks", newHook)
	makes[schemas.Template](t, w, "api/v1/templates", newTemplate)
	w.joins(t, "image", "gpu-9")
	const none, noID = "nobody", "00000000-0000-4000-8000-000000000000"
	red, blue := "gpu-r01-01", "gpu-r03-06"
	ids = map[string][3]string{
		"user": {"li", "jo", none}, "team": {"red", "blue", none}, "server": {red, blue, "gpu-r99-99"},
		"gpu": {red + "%2Fgpu1", blue + "%2Fgpu1", "gpu-r99-99%2Fgpu1"}, "reservation": {"red", "blue", none},
	}
	put := func(what string, k int, id string) {
		v := ids[what]
		v[2] = noID
		v[k] = id
		ids[what] = v
	}
	flows := workflows.New(w.db)
	for k, of := range []struct{ who, team, server, second string }{{"li", "red", red, "gpu-r01-02"}, {"jo", "blue", blue, "gpu-r03-07"}} {
		a := w.gets(t, of.who, of.server, of.team)
		put("allocation", k, a.ID)
		second := w.gets(t, of.who, of.second, of.team)
		put("ended", k, second.ID)
		decode[schemas.Allocation](t, w.do(t, access.RoleAdmin, http.MethodPost, "allocations/"+second.ID+"/stop", "", ""), http.StatusAccepted)
		for _, kind := range []string{schemas.WorkflowDeploy, schemas.WorkflowCleanup} {
			f, err := flows.Create(t.Context(), "allocator", schemas.Workflow{AllocationID: a.ID, ServerID: a.ServerID, Type: kind, Steps: []schemas.WorkflowStep{{Name: "health"}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, to := range []string{schemas.WorkflowRunning, schemas.WorkflowCompleted} {
				if f, err = flows.Move(t.Context(), "allocator", "", f.ID, to, "", nil); err != nil {
					t.Fatal(err)
				}
			}
			put("workflow", k, f.ID)
		}
		put("quota", k, makes[apigen.Quota](t, w, "api/v1/quotas", `{"team":"`+of.team+`","max_gpus":64}`).ID)
		makes[schemas.Reservation](t, w, "api/v1/reservations", `{"name":"`+of.team+`","team":"`+of.team+`","pool":"default","gpus":1,"end_time":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`)
		w.do(t, access.RoleEngineer, http.MethodPut, "servers/"+of.server+"/config", "", `{"bios_config":{"BootMode":"Uefi"}}`)
		w.do(t, access.RoleEngineer, http.MethodPost, "gpus/"+of.server+"%2Fgpu1/config", "", `{"power_limit":500}`)
		put("operation", k, decode[apigen.Operation](t, w.do(t, access.RoleAdmin, http.MethodPost, "servers/"+of.server+"/power", "", `{"action":"power_on"}`), http.StatusAccepted).ID)
		at, id := time.Now().UTC().Add(-time.Minute), of.team+"-1"
		err := w.records.PutAlert(t.Context(), schemas.Alert{
			Event:  schemas.Event{ID: id, Time: at, Observed: at, Source: "kmsg", Resource: of.server + "/gpu0", Type: "gpu.xid", Severity: schemas.SeverityError},
			Server: of.server, Status: schemas.AlertFiring,
		})
		if err == nil {
			err = w.records.PutIncident(t.Context(), schemas.Incident{
				ID: id, Opened: at, Updated: at, At: at, Severity: schemas.SeverityError, RootCause: schemas.Cause{Resource: of.server + "/gpu0", Fault: "gpu.gsp_hang"},
				Affected: []string{of.server}, Events: []string{id},
			})
		}
		if err == nil {
			err = w.records.PutAction(t.Context(), schemas.Action{ID: id, Time: at, Created: at, Server: of.server, Kind: "power_cycle", Incident: id, State: schemas.ActionWaiting})
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"alert", "incident", "action"} {
			put(what, k, id)
		}
	}
	return w, ids
}

// wanted is the status, and the code of a refusal, for somebody of a role, of the team red or of no
// team, who asks for what is red's or blue's. Hidden says that it is answered as what is not there.
func (r *right) wanted(role string, red, other bool) (status int, code string, hidden bool) {
	roles := schemas.Roles()
	tenant := red && role != access.RoleAdmin
	least := slices.Index(roles, r.needs)
	switch {
	case tenant && (r.of == sites || r.of == runners):
		return http.StatusForbidden, "not_for_tenants", false
	case tenant && other && r.of == holders:
		return http.StatusNotFound, "not_found", true
	case r.needs != anybody && slices.Index(roles, role) < least:
		return http.StatusForbidden, "no_permission", false
	case tenant && other && (r.of == happened || r.of == helds || r.of == peoples || r.of == shares),
		!red && role != access.RoleAdmin && r.of == peoples,
		!red && slices.Index(roles, role) < slices.Index(roles, access.RoleEngineer) && r.of == shares:
		return http.StatusNotFound, "not_found", true
	case tenant && other && r.of == reports, r.agree && !red && role != access.RoleAdmin:
		return http.StatusForbidden, "not_yours", false
	}
	return r.ok, "", false
}

// asks sends the request of a row for a thing.
func (r *right) asks(t *testing.T, w *world, who, method, thing, host string) answer {
	t.Helper()
	x := strings.NewReplacer("X", thing)
	text := strings.NewReplacer("X", strings.ReplaceAll(thing, "%2F", "/"), "TOKEN", w.tokens[access.RoleViewer], "ME", who, "HOST", host).Replace(r.body)
	if r.op != "stream" {
		return w.do(t, who, method, x.Replace(r.path), r.tag, text)
	}
	ctx, cancel := context.WithCancel(t.Context()) // it has no end
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.base+"api/v1/"+r.path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if who != nobody {
		req.Header.Set("Authorization", "Bearer "+w.tokens[who])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return answer{res.StatusCode, res.Header, nil}
}

// Every operation of the document, asked by everybody: without credentials, and in each role, of a
// team and of none, for what is that team's and for what is another's. Another's id is answered to
// the letter as an unknown one.
func TestWhoMayDoWhatToWhose(t *testing.T) {
	w, ids := rightsWorld(t)
	ops := operations(t)
	said := make(map[string]bool)
	for i := range rights {
		r := &rights[i]
		op, known := ops[r.op]
		if said[r.op] = true; !known {
			t.Errorf("%s is no operation", r.op)
			continue
		}
		if api.OfTenants(r.op) != (r.of != sites) {
			t.Errorf("%s: the product says otherwise of tenants", r.op)
		}
		t.Run(strings.ReplaceAll(r.op+" "+r.path, "/", "|"), func(t *testing.T) {
			check := func(who string, a answer, status int, code string) {
				t.Helper()
				if a.status != status || code != "" && r.op != "stream" && a.problem(t).Code != code {
					t.Errorf("%s: %d, want %d %s: %.300s", who, a.status, status, code, a.body)
				}
			}
			id := ids[r.thing]
			if r.thing != "" && id[1] == "" {
				t.Fatalf("there is no %s", r.thing)
			}
			unknown, code := http.StatusUnauthorized, "login_needed"
			if r.needs == anybody {
				unknown, code = r.ok, ""
			}
			check("nobody", r.asks(t, w, nobody, op[0], id[0], ""), unknown, code)
			for _, role := range schemas.Roles() {
				for _, team := range []string{"red", "free"} {
					who := team + "-" + role
					for k, whose := range []string{"red's", "blue's"} {
						if k == 1 && r.thing == "" {
							continue
						}
						status, code, hidden := r.wanted(role, team == "red", k == 1)
						a := r.asks(t, w, who, op[0], id[k], ids["server"][k])
						check(who+" of "+whose, a, status, code)
						if !hidden {
							continue
						}
						none := r.asks(t, w, who, op[0], id[2], ids["server"][k])
						plain := func(s string) string { return strings.ReplaceAll(s, "%2F", "/") }
						if said := strings.ReplaceAll(string(a.body), plain(id[k]), plain(id[2])); none.status != a.status || said != string(none.body) {
							t.Errorf("%s of %s: %d %s\nof what is not there: %d %s", who, whose, a.status, a.body, none.status, none.body)
						}
					}
				}
			}
		})
	}
	for _, op := range slices.Sorted(maps.Keys(ops)) {
		if !said[op] {
			t.Errorf("nobody has said who may do %s, and to whose", op)
		}
	}
}
