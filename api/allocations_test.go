package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/api"
	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/reasons"
	"auspex/internal/store/allocations"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/workflows"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// named gives what is named, by the real stores; the real allocator, which chooses too, is
// tested where stages meet.
type named struct {
	estate *estate.Store
	given  *allocations.Store
	flows  *workflows.Store
	woken  int
	// fits answers wishes; without it nothing fits.
	fits func(*schemas.Wish) (schemas.Choice, error)
	free []schemas.Pick // instead of servers that are ill
	bare bool           // nothing is installed here
}

func (n *named) draft(ctx context.Context, r *schemas.AllocationRequest) (d allocations.Draft, c schemas.Choice, err error) {
	if r.Wish != nil && n.fits != nil {
		if c, err = n.fits(r.Wish); err != nil {
			return d, c, err
		}
		for _, p := range c.Servers {
			r.ServerIDs = append(r.ServerIDs, p.ServerID)
		}
	} else if r.Wish != nil {
		return d, c, &schemas.NoFitError{Choice: schemas.Choice{
			Servers: []schemas.Pick{}, RunnersUp: []schemas.Pick{}, Lost: []schemas.NotChosen{{Reason: schemas.Sentence{ID: "lost.model"}, Count: 3, Examples: []string{}}},
		}}
	}
	d = allocations.Draft{User: r.User, Team: r.Team, Group: r.Group, Purpose: r.Purpose, Start: r.Start, End: r.End, Exclusive: len(r.ServerIDs) > 0}
	for _, id := range r.ServerIDs {
		d.Parts = append(d.Parts, allocations.Part{Server: id})
	}
	d.Install = r.Install
	if r.Install.Template != "" && n.bare {
		return d, c, schemas.ErrNoInstall
	}
	for _, id := range r.GPUIDs {
		g, err := n.estate.GPU(ctx, id)
		if err != nil {
			return d, c, err
		}
		d.Parts = append(d.Parts, allocations.Part{Server: g.ServerID, GPUs: []string{id}})
	}
	if r.Wish == nil {
		c = schemas.Choice{Servers: []schemas.Pick{}, RunnersUp: []schemas.Pick{}, Lost: []schemas.NotChosen{}}
	}
	return d, c, nil
}

func (n *named) Choose(ctx context.Context, r schemas.AllocationRequest) (schemas.Choice, error) {
	d, c, err := n.draft(ctx, &r)
	if err == nil {
		err = n.given.Check(ctx, d)
	}
	return c, err
}

func (n *named) Allocate(ctx context.Context, by string, r schemas.AllocationRequest) (schemas.Allocation, schemas.Choice, error) {
	d, c, err := n.draft(ctx, &r)
	if err != nil {
		return schemas.Allocation{}, c, err
	}
	a, err := n.given.Take(ctx, by, d)
	return a, c, err
}

func (n *named) Again(ctx context.Context, by, id string) (schemas.Allocation, error) {
	a, err := n.given.Get(ctx, id)
	if err != nil {
		return a, err
	}
	return n.given.Again(ctx, by, id, []allocations.Part{{Server: a.ServerID}})
}

func (n *named) Replacement(context.Context, *schemas.Allocation) ([]schemas.Pick, error) {
	return n.free, nil
}

func (n *named) Workflow(ctx context.Context, by, kind, server string, do []schemas.WorkflowStep) (schemas.Workflow, error) {
	return n.flows.Create(ctx, by, schemas.Workflow{ServerID: server, Type: kind, Exclusive: true, Steps: append(do, schemas.WorkflowStep{Name: "health"})})
}

func (n *named) BringUpSteps(_ context.Context, _ string, in schemas.Install) ([]schemas.WorkflowStep, error) {
	if n.bare && in.Template != "" {
		return nil, schemas.ErrNoInstall
	}
	out := []schemas.WorkflowStep{{Name: "inventory"}, {Name: "no_baseline", With: map[string]string{"model": "DGX"}}}
	if in.Template != "" {
		out = append(out, schemas.WorkflowStep{Name: "install", With: map[string]string{"template": in.Template, "version": strconv.FormatInt(in.TemplateVersion, 10)}})
	}
	return append(out, schemas.WorkflowStep{Name: "validate"}), nil
}

func (n *named) BringUp(ctx context.Context, by, server string, in schemas.Install) (schemas.Workflow, error) {
	all, err := n.BringUpSteps(ctx, server, in)
	if err != nil {
		return schemas.Workflow{}, err
	}
	return n.flows.Create(ctx, by, schemas.Workflow{ServerID: server, Type: schemas.WorkflowBringUp, Exclusive: true, Steps: all})
}

func (n *named) Resume(ctx context.Context, by, id string) (schemas.Workflow, error) {
	return n.flows.Resume(ctx, by, id)
}

func (n *named) Rerun(ctx context.Context, by, kind, allocation, server string) (schemas.Workflow, error) {
	all, err := n.flows.Of(ctx, allocation)
	if err != nil {
		return schemas.Workflow{}, err
	}
	for _, w := range all {
		if w.Type == kind && w.ServerID == server {
			return n.flows.Move(ctx, by, "", w.ID, schemas.WorkflowPending, "", nil)
		}
	}
	return schemas.Workflow{}, entity.ErrNone
}

func (n *named) Wake() { n.woken++ }

// gives starts a console that gives the servers of its inventory.
func gives(t *testing.T, options ...option) *world {
	t.Helper()
	w := start(t, true, append([]option{func(_ *api.Config, d *api.Deps) {
		d.Allocator = &named{estate: d.Estate, given: d.Allocations, flows: d.Workflows}
		d.Said = reasons.NewReader([]string{"health"}, nil)
	}}, options...)...)
	w.engineer(t)
	cfg := cmdb.DefaultConfig()
	cfg.Site = "dc1"
	inv := cmdb.New(cfg, w.db, nil, nil)
	inv.Follow(estate.New(w.db))
	if err := inv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Import(t.Context(), cmdb.Draft{Topology: w.inv.t}, cmdb.ImportOptions{Bounds: cmdb.NoBounds()}); err != nil {
		t.Fatal(err)
	}
	return w
}

// person makes a user with a token of theirs.
func (w *world) person(t *testing.T, name, role string) schemas.User {
	t.Helper()
	u := w.user(t, name, role)
	made := makes[apigen.CreatedToken](t, w, "api/v1/tokens", fmt.Sprintf(`{"name":"of-%s","role":%q,"user":%q}`, name, role, name))
	w.tokens[name] = made.Token
	return u
}

func decode[T any](t *testing.T, a answer, status int) (v T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("%d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAnAllocationIsAskedForReadAndEnded(t *testing.T) {
	w := gives(t)
	li := w.person(t, "li", access.RoleEngineer)
	server := w.inv.Snapshot()
	name := "gpu-r01-01"
	a := w.send(t, http.MethodPost, "api/v1/allocations?dry_run=true", "li", body(`{"server_id":"`+name+`"}`))
	decode[schemas.Choice](t, a, http.StatusOK)
	a = w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"server_id":"`+name+`","purpose":"train"}`))
	made := decode[apigen.CreatedAllocation](t, a, http.StatusCreated).Allocation
	path := "api/v1/allocations/" + made.ID
	if made.UserID != li.ID || made.Servers[0] != name || made.ServerID != server.ID(name) || len(made.GPUIDs) != 8 || made.Status != schemas.AllocationPending ||
		a.header.Get("Location") != "/"+path || a.header.Get("ETag") != `"1"` || strings.Contains(string(a.body), "end_time") {
		t.Errorf("%s %v", a.body, a.header)
	}
	for _, ref := range []string{name, server.ID(name)} {
		a := w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"server_ids":["`+ref+`"]}`))
		if p := a.problem(t); a.status != http.StatusConflict || p.Code != "taken" {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	gpu := w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"gpu_ids":["gpu-r01-02/gpu3"]}`))
	if got := decode[apigen.CreatedAllocation](t, gpu, http.StatusCreated).Allocation; got.Exclusive || got.GPUIDs[0] != server.ID("gpu-r01-02/gpu3") {
		t.Errorf("%+v", got)
	}
	for query, want := range map[string]int{
		"": 2, "?live=true": 2, "?ended=true": 0, "?status=active": 0, "?user=li": 2, "?server=" + name: 1, "?server=gpu-r01-03": 0, "?limit=1": 1,
	} {
		if list := decode[apigen.AllocationList](t, w.send(t, http.MethodGet, "api/v1/allocations"+query, "li", nil), http.StatusOK); len(list.Items) != want {
			t.Errorf("%s: %d, want %d", query, len(list.Items), want)
		}
	}
	if list := decode[apigen.AllocationList](t, w.send(t, http.MethodGet, "api/v1/users/li/allocations", "li", nil), http.StatusOK); len(list.Items) != 2 {
		t.Errorf("%+v", list)
	}
	end := time.Now().Add(72 * time.Hour).UTC().Truncate(time.Second)
	a = w.send(t, http.MethodPut, path, "li", body(`{"purpose":"","end_time":"`+end.Format(time.RFC3339)+`"}`))
	if got := decode[schemas.Allocation](t, a, http.StatusOK); got.Purpose != "" || !got.EndTime.Equal(end) || a.header.Get("ETag") != `"2"` {
		t.Errorf("%s", a.body)
	}
	status := decode[apigen.AllocationStatus](t, w.send(t, http.MethodGet, path+"/status", "li", nil), http.StatusOK)
	if len(status.Servers) != 1 || len(status.Servers[0].Gpus) != 8 || status.Servers[0].Gpus[0].Status != schemas.GPUAllocated || status.Servers[0].Health == "" ||
		status.SecondsLeft == nil || *status.SecondsLeft < 71*3600 {
		t.Errorf("%+v", status)
	}
	a = w.send(t, http.MethodDelete, path, "li", nil)
	if got := decode[schemas.Allocation](t, a, http.StatusOK); got.Status != schemas.AllocationFailed || got.Reason != allocations.Cancelled || got.Returned {
		t.Errorf("%s", a.body)
	}
	if list := decode[apigen.AllocationList](t, w.send(t, http.MethodGet, "api/v1/allocations?ended=true", "li", nil), http.StatusOK); len(list.Items) != 1 || list.Items[0].ID != made.ID {
		t.Errorf("ended: %+v", list)
	}
	again := w.send(t, http.MethodDelete, path, "li", nil)
	if p := again.problem(t); again.status != http.StatusConflict || p.Code != "illegal_move" || strings.Join(p.Legal, " ") != "pending" {
		t.Errorf("%d %s", again.status, again.body)
	}
	waits := w.send(t, http.MethodPost, path+"/start", "li", nil)
	if waits.status != http.StatusConflict || waits.problem(t).Code != "taken" {
		t.Errorf("%d %s", waits.status, waits.body)
	}
	capacity := func() apigen.Capacity {
		return decode[apigen.Capacity](t, w.send(t, http.MethodGet, "api/v1/capacity", "li", nil), http.StatusOK)
	}
	waittest.Until(t, func() error {
		if p := capacity().Pools[0]; p.Pool != schemas.DefaultPool || p.Given != 1 || p.Cleaning != 8 || p.Free != p.GPUs-9 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if a := w.send(t, http.MethodPost, path+"/stop", "li", body(`{"force":true}`)); a.status != http.StatusForbidden {
		t.Errorf("%d %s", a.status, a.body)
	}
	a = w.send(t, http.MethodPost, path+"/stop", access.RoleAdmin, body(`{"force":true}`))
	if got := decode[schemas.Allocation](t, a, http.StatusAccepted); !got.Returned {
		t.Errorf("%s", a.body)
	}
	waittest.Until(t, func() error {
		if c := capacity(); len(c.Stranded) != 1 || c.Stranded[0].Server != name || c.Stranded[0].Why != schemas.StrandedHold {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func TestWhatCannotBeAskedFor(t *testing.T) {
	w := gives(t)
	w.person(t, "li", access.RoleEngineer)
	w.person(t, "bo", access.RoleViewer)
	w.user(t, "jo", access.RoleEngineer)
	past := time.Now().Add(-time.Hour).Format(time.RFC3339)
	for _, tc := range []struct {
		who, body   string
		status      int
		code, field string
	}{
		{"bo", `{"server_id":"gpu-r01-01"}`, http.StatusForbidden, "no_permission", ""},
		{"li", `{}`, http.StatusBadRequest, "bad_body", "wish"},
		{"li", `{"server_id":"gpu-r01-01","wish":{"gpus":1}}`, http.StatusBadRequest, "bad_body", "wish"},
		{"li", `{"wish":{"gpus":1,"servers":1}}`, http.StatusBadRequest, "bad_body", "wish"},
		{"li", `{"wish":{"gpus":-1}}`, http.StatusBadRequest, "bad_body", "wish.gpus"},
		{"li", `{"wish":{"gpus":1,"colour":"red"}}`, http.StatusBadRequest, "bad_body", "wish.colour"},
		{"li", `{"wish":{"gpus":1,"pool":"none"}}`, http.StatusBadRequest, "bad_body", "wish.pool"},
		{"li", `{"wish":{"gpus":1}}`, http.StatusConflict, "no_fit", ""},
		{"li", `{"server_id":"gpu-r01-01","end_time":"` + past + `"}`, http.StatusBadRequest, "bad_body", "end_time"},
		{"li", `{"server_id":"gpu-r01-01","team":"none"}`, http.StatusBadRequest, "bad_body", "team"},
		{"li", `{"server_id":"gpu-r01-01","user_id":"jo"}`, http.StatusForbidden, "no_permission", ""},
		{access.RoleEngineer, `{"server_id":"gpu-r01-01"}`, http.StatusBadRequest, "bad_body", "user_id"},
		{access.RoleEngineer, `{"server_id":"gpu-r01-01","user_id":"nobody"}`, http.StatusBadRequest, "bad_body", "user_id"},
		{"li", `{"server_id":"no-such-server"}`, http.StatusNotFound, "not_found", ""},
		{"li", `{"gpu_ids":["gpu-r01-01"]}`, http.StatusNotFound, "not_found", ""},
	} {
		a := w.send(t, http.MethodPost, "api/v1/allocations", tc.who, body(tc.body))
		p := a.problem(t)
		field := ""
		if len(p.Errors) > 0 {
			field = p.Errors[0].Field
		}
		if a.status != tc.status || p.Code != tc.code || field != tc.field {
			t.Errorf("%s %s: %d %s, want %d %s %s", tc.who, tc.body, a.status, a.body, tc.status, tc.code, tc.field)
		}
		if tc.code == "no_fit" && (len(p.Choice.Lost) != 1 || p.Choice.Lost[0].Count != 3) {
			t.Errorf("%s", a.body)
		}
	}
	if list := decode[apigen.AllocationList](t, w.send(t, http.MethodGet, "api/v1/allocations", access.RoleAdmin, nil), http.StatusOK); len(list.Items) != 0 {
		t.Errorf("something was given: %+v", list)
	}
	a := w.send(t, http.MethodPost, "api/v1/allocations", access.RoleEngineer, body(`{"server_id":"gpu-r01-01","user_id":"jo"}`))
	decode[apigen.CreatedAllocation](t, a, http.StatusCreated) // a script of nobody's asks for somebody
}

// TestAnotherTeamsAllocationIsNotThere: a member of a team sees their own and their team's, as if
// there were no other.
func TestAnotherTeamsAllocationIsNotThere(t *testing.T) {
	w := gives(t)
	for _, name := range []string{"li", "bo", "jo"} {
		w.person(t, name, access.RoleEngineer)
	}
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"vision","members":["li","bo"]}`)
	makes[schemas.Team](t, w, "api/v1/teams", `{"name":"speech","members":["jo"]}`)
	made := decode[apigen.CreatedAllocation](t, w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"server_id":"gpu-r01-01"}`)), http.StatusCreated).Allocation
	if made.Team != "vision" {
		t.Errorf("%+v", made)
	}
	flow, err := workflows.New(w.db).Create(t.Context(), "allocator", schemas.Workflow{
		AllocationID: made.ID, ServerID: made.ServerID, Type: schemas.WorkflowDeploy, Exclusive: true, Steps: []schemas.WorkflowStep{{Name: "health"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path, flowPath := "api/v1/allocations/"+made.ID, "api/v1/workflows/"+flow.ID
	for _, who := range []string{"li", "bo", access.RoleAdmin} {
		for _, p := range []string{path, path + "/status", flowPath} {
			if a := w.send(t, http.MethodGet, p, who, nil); a.status != http.StatusOK {
				t.Errorf("%s %s: %d %s", who, p, a.status, a.body)
			}
		}
	}
	for _, tc := range []struct{ method, path, body string }{
		{http.MethodGet, path, ""},
		{http.MethodGet, path + "/status", ""},
		{http.MethodPut, path, `{"purpose":"x"}`},
		{http.MethodDelete, path, ""},
		{http.MethodPost, path + "/stop", `{}`},
		{http.MethodPost, path + "/start", ""},
		{http.MethodGet, flowPath, ""},
		{http.MethodDelete, flowPath, ""},
		{http.MethodPost, "api/v1/workflows/cleanup", `{"allocation_id":"` + made.ID + `","server_id":"gpu-r01-01"}`},
	} {
		var set func(*http.Request)
		if tc.body != "" {
			set = body(tc.body)
		}
		other, none := w.send(t, tc.method, tc.path, "jo", set), answer{}
		unknown := strings.NewReplacer(made.ID, "0-"+made.ID[2:], flow.ID, "0-"+flow.ID[2:])
		if tc.body != "" {
			set = body(unknown.Replace(tc.body))
		}
		none = w.send(t, tc.method, unknown.Replace(tc.path), "jo", set)
		if other.status != http.StatusNotFound || unknown.Replace(string(other.body)) != string(none.body) {
			t.Errorf("%s %s: %d %s\nof none: %d %s", tc.method, tc.path, other.status, other.body, none.status, none.body)
		}
	}
	for list, want := range map[string]string{
		"api/v1/allocations": `{"items":[]}`, "api/v1/allocations?server=gpu-r01-01": `{"items":[]}`, "api/v1/workflows": `{"items":[]}`,
		"api/v1/workflows?allocation=" + url.QueryEscape(made.ID): `{"items":[]}`,
	} {
		if a := w.send(t, http.MethodGet, list, "jo", nil); a.status != http.StatusOK || strings.TrimSpace(string(a.body)) != want {
			t.Errorf("%s: %d %s", list, a.status, a.body)
		}
	}
	if a := w.send(t, http.MethodGet, "api/v1/users/li/allocations", "jo", nil); a.status != http.StatusNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodGet, "api/v1/allocations?user=li", "jo", nil); a.status != http.StatusBadRequest {
		t.Errorf("%d %s", a.status, a.body)
	}
	// The team of somebody with several has to be said.
	if _, err := w.db.ExecContext(t.Context(), `INSERT INTO team_members SELECT t.id, u.id FROM teams t, users u WHERE t.name='speech' AND u.username='li'`); err != nil {
		t.Fatal(err)
	}
	if a := w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"server_id":"gpu-r01-02"}`)); a.status != http.StatusBadRequest ||
		a.problem(t).Errors[0].Detail != "is needed: li is of speech or vision" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestAServerIsValidatedOnRequest(t *testing.T) {
	w := gives(t)
	a := w.send(t, http.MethodPost, "api/v1/workflows", access.RoleEngineer, body(`{"type":"validate","server_id":"gpu-r01-01"}`))
	made := decode[schemas.Workflow](t, a, http.StatusAccepted)
	if made.Server != "gpu-r01-01" || made.Status != schemas.WorkflowPending || a.header.Get("Location") != "/api/v1/workflows/"+made.ID {
		t.Errorf("%s %v", a.body, a.header)
	}
	if a := w.send(t, http.MethodPost, "api/v1/workflows", access.RoleEngineer, body(`{"type":"validate","server_id":"gpu-r01-01"}`)); a.status != http.StatusConflict ||
		a.problem(t).Code != "busy" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if list := decode[apigen.WorkflowList](t, w.send(t, http.MethodGet, "api/v1/workflows?server=gpu-r01-01&type=validate&status=pending", access.RoleViewer, nil), http.StatusOK); len(list.Items) != 1 {
		t.Errorf("%+v", list)
	}
	a = w.send(t, http.MethodDelete, "api/v1/workflows/"+made.ID, access.RoleEngineer, nil)
	if got := decode[schemas.Workflow](t, a, http.StatusOK); got.Status != schemas.WorkflowFailed || got.Reason != workflows.Cancelled {
		t.Errorf("%s", a.body)
	}
	if a := w.send(t, http.MethodDelete, "api/v1/workflows/"+made.ID, access.RoleEngineer, nil); a.status != http.StatusConflict {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A configuration is applied by a workflow too: of the server and of its GPUs, each by a step of its own.
func TestAServerIsConfiguredByAWorkflow(t *testing.T) {
	w := gives(t, withEstate(t, 8))
	ask := func(text string) answer {
		return w.send(t, http.MethodPost, "api/v1/workflows", access.RoleEngineer, body(text))
	}
	const config = `{"type":"config","server_id":"gpu-r01-01"}`
	if a := ask(config); a.status != http.StatusConflict || a.problem(t).Code != "no_config" {
		t.Errorf("without a configuration: %d %s", a.status, a.body)
	}
	for path, text := range map[string]string{"servers/gpu-r01-01/config": `{"bios_config":{"BootMode":"Uefi"}}`, "gpus/gpu-r01-01%2Fgpu1/config": `{"power_limit":500}`} {
		if a := w.do(t, access.RoleEngineer, http.MethodPut, path, "", text); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for text, field := range map[string]string{
		`{"type":"config","server_id":"gpu-r01-01","allocation_id":"x"}`: "allocation_id", `{"type":"deploy","server_id":"gpu-r01-01"}`: "allocation_id",
		`{"type":"brew","server_id":"gpu-r01-01"}`: "type", `{"type":"config"}`: "server_id",
	} {
		if a := ask(text); a.status != http.StatusBadRequest || a.problem(t).Errors[0].Field != field {
			t.Errorf("%s: %d %s", text, a.status, a.body)
		}
	}
	f := decode[schemas.Workflow](t, ask(config), http.StatusAccepted)
	want := []schemas.WorkflowStep{
		{Name: "set_bios", With: map[string]string{"BootMode": "Uefi"}, Status: schemas.StepPending},
		{Name: "configure_gpu", Target: "gpu-r01-01/gpu1", With: map[string]string{"power_limit": "500"}, Status: schemas.StepPending},
		{Name: "health", Status: schemas.StepPending},
	}
	if d := cmp.Diff(want, f.Steps); d != "" || f.Type != schemas.WorkflowConfig || !f.Exclusive {
		t.Errorf("%+v\n%s", f, d)
	}
	// That of an allocation is the same by either route.
	a := w.allocates(t, "gpu-r01-02")
	if got := ask(`{"type":"deploy","server_id":"gpu-r01-02","allocation_id":"` + a.ID + `"}`); got.status != http.StatusNotFound {
		t.Errorf("before there was one: %d %s", got.status, got.body)
	}
	if got := ask(`{"type":"deploy","server_id":"gpu-r01-03","allocation_id":"` + a.ID + `"}`); got.status != http.StatusBadRequest {
		t.Errorf("of another server: %d %s", got.status, got.body)
	}
}

// allocates gives a server to somebody.
func (w *world) allocates(t *testing.T, server string) schemas.Allocation {
	t.Helper()
	owner := w.owner(t)
	a := w.send(t, http.MethodPost, "api/v1/allocations", access.RoleEngineer, body(fmt.Sprintf(`{"server_id":%q,"user_id":%q}`, server, owner)))
	return decode[apigen.CreatedAllocation](t, a, http.StatusCreated).Allocation
}

// owner is somebody who is given things.
func (w *world) owner(t *testing.T) string {
	t.Helper()
	if a := w.send(t, http.MethodGet, "api/v1/users/owner", access.RoleAdmin, nil); a.status == http.StatusNotFound {
		w.user(t, "owner", access.RoleEngineer)
	}
	return "owner"
}

// validates asks for a validation.
func (w *world) validates(t *testing.T, server string) schemas.Workflow {
	t.Helper()
	a := w.send(t, http.MethodPost, "api/v1/workflows", access.RoleEngineer, body(`{"type":"validate","server_id":"`+server+`"}`))
	return decode[schemas.Workflow](t, a, http.StatusAccepted)
}

// reruns runs a workflow of an allocation that has failed again, and says what that leaves.
func (w *world) reruns(t *testing.T, kind, server string) string {
	t.Helper()
	a, s := w.allocates(t, server), workflows.New(w.db)
	f, err := s.Create(t.Context(), "allocator", schemas.Workflow{AllocationID: a.ID, ServerID: a.ServerID, Type: kind, Steps: []schemas.WorkflowStep{{Name: "health"}}})
	if err == nil {
		_, err = s.Move(t.Context(), "allocator", "", f.ID, schemas.WorkflowFailed, "x", nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := body(fmt.Sprintf(`{"allocation_id":%q,"server_id":%q}`, a.ID, server))
	decode[schemas.Workflow](t, w.send(t, http.MethodPost, "api/v1/workflows/"+kind, access.RoleEngineer, b), http.StatusAccepted)
	return "engineer update workflow " + f.ID
}

// An order whose answer was lost is sent again under its key, and is answered as before; without one it
// would be refused as a move that there is not.
func TestOrdersAreGivenOnceUnderTheirKey(t *testing.T) {
	w := gives(t, withEstate(t, 8))
	w.person(t, "li", access.RoleEngineer)
	id := w.gets(t, "li", "gpu-r01-01", "x").ID
	order := func(path, key, text string) answer {
		return w.send(t, http.MethodPost, "api/v1/"+path, "li", func(r *http.Request) {
			body(text)(r)
			r.Header.Set("Idempotency-Key", key)
		})
	}
	stop := "allocations/" + id + "/stop"
	first, again := order(stop, "k1", `{"report":"hot"}`), order(stop, "k1", `{"report":"hot"}`)
	if first.status != http.StatusAccepted || again.status != first.status || string(again.body) != string(first.body) || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s, and again %d %s", first.status, first.body, again.status, again.body)
	}
	if a := order(stop, "k1", `{"report":"cold"}`); a.status != http.StatusUnprocessableEntity {
		t.Errorf("another order under the key: %d %s", a.status, a.body)
	}
	if a := order(stop, "k2", `{"report":"hot"}`); a.status != http.StatusConflict {
		t.Errorf("another key: %d %s", a.status, a.body)
	}
	for _, path := range []string{"workflows/deploy", "workflows/cleanup"} {
		text := `{"allocation_id":"` + id + `","server_id":"gpu-r01-01"}`
		if first, again := order(path, path, text), order(path, path, text); again.status != first.status || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: %d, and again %d", path, first.status, again.status)
		}
	}
}

// Allocations are found by their team and by what they were asked for with; another team's are in neither list.
func TestAllocationsAreFoundByTeamAndGroup(t *testing.T) {
	w, red, blue := tenants(t)
	decode[apigen.CreatedAllocation](t, w.send(t, http.MethodPost, "api/v1/allocations", "li", body(`{"server_id":"gpu-r01-02","group_id":"run-7"}`)), http.StatusCreated)
	blues := decode[schemas.Team](t, w.do(t, access.RoleAdmin, http.MethodGet, "teams/blue", "", ""), http.StatusOK).ID
	for _, tc := range []struct {
		who, query string
		want       int
	}{
		{access.RoleAdmin, "team=red", 2},
		{access.RoleAdmin, "team=BLUE", 1},
		{access.RoleAdmin, "team=" + blues, 1},
		{access.RoleAdmin, "team=none", 0},
		{access.RoleAdmin, "group_id=run-7", 1},
		{access.RoleAdmin, "team=blue&group_id=run-7", 0},
		{"li", "team=red", 2},
		{"li", "team=blue", 0},
		{"jo", "group_id=run-7", 0},
		{"jo", "team=" + blues, 1},
	} {
		list := decode[apigen.AllocationList](t, w.do(t, tc.who, http.MethodGet, "allocations?"+tc.query, "", ""), http.StatusOK).Items
		if len(list) != tc.want {
			t.Errorf("%s finds %d by %s, want %d", tc.who, len(list), tc.query, tc.want)
		}
		for _, a := range list {
			if strings.HasPrefix(tc.query, "team=red") != (a.Team == red.Team) && !strings.HasPrefix(tc.query, "group") || a.Team == blue.Team && tc.who == "li" {
				t.Errorf("%s finds one of %s by %s", tc.who, a.Team, tc.query)
			}
		}
	}
}
