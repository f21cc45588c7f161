package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"auspex/client"
	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// curl asks the product, as somebody with a shell does, and decodes the answer.
func (p *product) curl(token, method, path, body string, out any) error {
	args := []string{"-sS", "--fail-with-body", "--max-time", "60", "-X", method, "-H", "Authorization: Bearer " + token}
	if body != "" {
		args = append(args, "-H", "Content-Type: application/json", "-d", body)
	}
	b, err := exec.Command("curl", append(args, p.url+"api/v1/"+path)...).Output() //nolint:noctx // it has a bound
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", method, path, err, b)
	}
	return json.Unmarshal(b, out)
}

// oneOwner are what is true of the tables at every moment.
var oneOwner = map[string]string{
	"GPUs with two owners": `SELECT count(*) FROM (SELECT gpu_id FROM allocation_claims WHERE state IN ('held','cleaning') AND gpu_id IS NOT NULL GROUP BY gpu_id HAVING count(*)>1) x`,
	"workflows that were made or run twice": `SELECT count(*) FROM (SELECT 1 FROM workflows WHERE allocation_id IS NOT NULL
GROUP BY allocation_id, server_id, type HAVING count(*)>1) x`,
	"servers with one serial number": `SELECT count(*) FROM (SELECT serial_number FROM servers WHERE serial_number<>'' GROUP BY serial_number HAVING count(*)>1) x`,
	"allocations beside the one":     `SELECT count(*)-1 FROM allocations`,
	"cases that nobody works on":     `SELECT count(*) FROM control_actions WHERE state='unknown'`,
}

func (s *pathSite) holds() {
	s.t.Helper()
	for what, query := range oneOwner {
		if got, err := s.psql(query); err != nil || got != "0" {
			s.t.Errorf("%s: %s %v", what, got, err)
		}
	}
}

// A server that nobody knows is found by its controller, registered, looked at and set up; with a second one it is
// given to somebody, a GPU of it dies, its user is told and offered another, and what comes back is repaired, cleaned and
// ready: with curl, the Go client, the Python client and psql at one product on PostgreSQL, which is killed in the middle
// of the sweep, of the deployment and of the cleaning.
func TestThePathOfAServer(t *testing.T) {
	beside(t)
	s := newPathSite(t)
	var p *product
	begin := func() {
		p = launch(t, s.dir, "--config", s.config(s.dsn))
		p.ready()
		s.await = p.await
	}
	begin()
	s.killed = func() { p.kill(); begin() }
	made, err := command(t, "token", "create", "root", "--role", "admin", "--config", filepath.Join(s.files, "auspex.yaml"), "--data", s.dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(made))
	must := func(out any, method, path, body string) {
		t.Helper()
		if err := p.curl(root, method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	var ignored map[string]any
	hook := listen(t)
	must(&ignored, "POST", "users", `{"username":"zoe","email":"zoe@example.com","role":"engineer"}`)
	must(&ignored, "POST", "webhooks", fmt.Sprintf(`{"name":"mine","url":%q,"topics":["allocation.*"],"secret":"whsec_%s"}`, hook.URL, strings.Repeat("QUJD", 8)))

	v := s.discovered(must)
	s.looked(must, &v)
	s.set(must, s.known().ID+"/gpu1")

	// The Go client asks for two, one of which has to be the new one.
	program := func() *client.Client {
		c, err := client.New(client.Config{URL: p.url, Token: root})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var given struct {
		Allocation schemas.Allocation
		Choice     schemas.Choice
	}
	wish := map[string]any{"user_id": "zoe", "wish": schemas.Wish{Servers: 2, Together: "rack", MinHealth: "ok"}, "purpose": "train"}
	if err := program().Do(t.Context(), client.Request{Method: http.MethodPost, Path: "allocations", Once: true, Body: wish}, &given); err != nil {
		t.Fatal(err)
	}
	s.killed()
	c := program()
	a := given.Allocation
	ill, well := a.Servers[0], a.Servers[1]
	s.owned(&a, "held")
	p.await("it is active", func() error {
		if err := c.Do(t.Context(), client.Request{Method: http.MethodGet, Path: "allocations/" + a.ID}, &a); err != nil {
			return err
		}
		if a.Status == schemas.AllocationFailed {
			return settled{errors.New(a.Reason)}
		}
		if a.Status != schemas.AllocationActive {
			return fmt.Errorf("it is %s: %s", a.Status, a.Reason)
		}
		return nil
	})
	p.await("its user is told", func() error { return hook.heard("auspex.allocation.active " + a.ID) })
	s.says(`SELECT count(*) FROM workflows WHERE type='deploy' AND status='completed' AND attempt=1 AND allocation_id='`+a.ID+`'`, "2")
	s.says(`SELECT count(*) FROM gpus WHERE status='in_use'`, "16")

	s.breaks(ill + "/gpu3")
	cmd := exec.Command("python3", "testdata/path.py") //nolint:noctx // it has a bound
	lib, err := filepath.Abs("../../client/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+lib, "PYTHONDONTWRITEBYTECODE=1", "URL="+p.url, "TOKEN="+root, "ALLOCATION="+a.ID, "ILL="+ill+"/gpu3")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the Python client: %v\n%s", err, out)
	}
	incident, offered, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	s.killed() // while what was released is cleaned
	p.await("its user is told", func() error { return hook.heard("auspex.allocation.degraded " + a.ID) })
	p.await("its user is told", func() error { return hook.heard("auspex.allocation.completed " + a.ID) })
	t.Logf("incident %s on %s; %s was offered", incident, ill, offered)

	s.returned(must, &a, ill, well)
	s.holds()
	s.says(`SELECT count(*) FROM allocation_claims WHERE state<>'released'`, "0")
	if twice := hook.twice(); len(twice) > 0 {
		t.Errorf("told twice: %v", twice)
	}
	p.interrupt()
	s.proves()
}

type asks = func(out any, method, path, body string)

// discovered sweeps for the server that no inventory has, and registers it.
func (s *pathSite) discovered(must asks) schemas.Server {
	s.t.Helper()
	at, known := s.controller(s.spare), s.controller(s.known())
	var sweep schemas.Discovery
	must(&sweep, "POST", "discoveries", fmt.Sprintf(`{"ranges":[%q],"redfish_ports":[%s,%s],"credential":"sim"}`, at.Hostname(), known.Port(), at.Port()))
	s.killed() // it goes on
	var page struct {
		Discovery schemas.Discovery
		Items     []schemas.Find
	}
	s.await("the sweep ends", func() error {
		must(&page, "GET", "discoveries/"+sweep.ID, "")
		if page.Discovery.Status != schemas.DiscoveryCompleted {
			return fmt.Errorf("%+v", page.Discovery)
		}
		return nil
	})
	k := slices.IndexFunc(page.Items, func(f schemas.Find) bool { return f.Status == schemas.ServerDiscovered })
	if len(page.Items) != 2 || k < 0 {
		s.t.Fatalf("it has found %+v", page)
	}
	f := page.Items[k]
	if f.SerialNumber != s.spare.Attrs.Get(schemas.AttrSerial) || len(f.GPUs) != 8 || len(f.NICs) == 0 || f.Address != net.JoinHostPort(at.Hostname(), at.Port()) ||
		f.Proposal == nil || f.Proposal.Name != s.spare.ID || len(f.Proposal.Places) == 0 || f.Proposal.Places[0].Parent != s.spare.Parent {
		s.t.Fatalf("it has found %+v", f)
	}
	var v schemas.Server
	must(&v, "POST", "servers", fmt.Sprintf(`{"name":%q,"parent":%q,"found":%q}`, f.Proposal.Name, f.Proposal.Places[0].Parent, f.ID))
	s.says(`SELECT status || ' ' || serial_number FROM servers WHERE name='`+v.Name+`'`, "discovered "+f.SerialNumber)
	s.says(`SELECT count(*) FROM gpus WHERE server_id='`+v.ID+`'`, "8")
	return v
}

// looked has the new server looked at until it is ready.
func (s *pathSite) looked(must asks, v *schemas.Server) {
	s.t.Helper()
	var w schemas.Workflow
	must(&w, "POST", "workflows", fmt.Sprintf(`{"type":"validate","server_id":%q}`, v.ID))
	s.await("it is ready", func() error {
		must(&w, "GET", "workflows/"+w.ID, "")
		must(v, "GET", "servers/"+v.ID, "")
		if w.Status == schemas.WorkflowFailed {
			return settled{errors.New(w.Reason)}
		}
		if v.Status != schemas.ServerReady {
			return fmt.Errorf("it is %s: %+v", v.Status, w)
		}
		return nil
	})
	s.says(`SELECT status FROM servers WHERE id='`+v.ID+`'`, schemas.ServerReady)
}

// set has control set a GPU as it is wished: once so that its agent does it, once so that it refuses.
func (s *pathSite) set(must asks, gpu string) {
	s.t.Helper()
	path := "gpus/" + url.PathEscape(gpu) + "/config"
	type config struct {
		State       string
		Differences []struct {
			Field            string
			Desired, Applied float64
		}
		Applied struct {
			PowerLimit float64 `json:"power_limit"`
		}
	}
	var c config
	wished := func(watts, state string, applied float64) {
		s.t.Helper()
		s.await(fmt.Sprintf("%s W are %s, and %g W in force", watts, state, applied), func() error {
			c = config{}
			must(&c, "GET", path, "")
			if c.State != state || c.Applied.PowerLimit != applied || (state == "differs") != (len(c.Differences) == 1) {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	apply := func(state string) (o struct{ State, Detail, ID string }) {
		s.t.Helper()
		must(&o, "POST", path+"/apply", "")
		s.await("the setting is "+state, func() error {
			must(&o, "GET", "operations/"+o.ID, "")
			if o.State != state && (o.State == schemas.ActionDone || o.State == schemas.ActionFailed || o.State == schemas.ActionRefused) {
				return settled{fmt.Errorf("%+v", o)}
			}
			if o.State != state {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
		return o
	}
	var ignored map[string]any
	must(&ignored, "PUT", path, `{"power_limit":450}`)
	wished("450", "differs", 700)
	apply(schemas.ActionDone)
	wished("450", "in_force", 450)
	must(&ignored, "PUT", path, `{"power_limit":90}`)
	o := apply(schemas.ActionFailed)
	if !strings.Contains(o.Detail, "90") || !strings.Contains(o.Detail, "outside of 200 to 700 W") {
		s.t.Errorf("it says %q", o.Detail)
	}
	wished("90", "differs", 450)
	s.says(`SELECT count(*) FROM gpu_configs c JOIN gpus g ON g.id=c.gpu_id WHERE g.name='`+gpu+`'`, "2")
}

// owned holds that two servers are somebody's, once, and that the database keeps it so.
func (s *pathSite) owned(a *schemas.Allocation, state string) {
	s.t.Helper()
	s.says(`SELECT count(*) FROM allocation_claims WHERE state='`+state+`' AND gpu_id IS NOT NULL AND allocation_id='`+a.ID+`'`, "16")
	s.says(`SELECT u.username FROM allocations a JOIN users u ON u.id=a.user_id WHERE a.id='`+a.ID+`'`, "zoe")
	s.says(`SELECT count(*) FROM control_audit WHERE verb='create' AND subject='`+a.ID+`'`, "1")
	s.refuses(`BEGIN; INSERT INTO allocations SELECT 'thief', group_id, user_id, team_id, status, reason, purpose, start_ns, end_ns, wish, exclusive, report, active_ns, ended_ns,
noticed_ns, revision, created_ns, updated_ns FROM allocations LIMIT 1;
INSERT INTO allocation_claims SELECT 'thief', server_id, gpu_id, unit, state, from_ns, until_ns, changed_ns FROM allocation_claims WHERE gpu_id IS NOT NULL LIMIT 1; COMMIT`,
		"allocation_claims_held")
	s.refuses(`UPDATE allocations SET end_ns=start_ns`, "allocations_end_time")
	s.refuses(`UPDATE allocations SET user_id='nobody'`, "allocations_user_id")
	s.refuses(`UPDATE allocations SET status='mine'`, "allocations_status")
	s.refuses(`UPDATE gpus SET memory_gb=-1`, "gpus_memory_gb")
}

// returned waits until both servers can be given again: the ill one is repaired first, and cleaned when that is done.
func (s *pathSite) returned(must asks, a *schemas.Allocation, ill, well string) {
	s.t.Helper()
	ready := func(name string) error {
		var v schemas.Server
		must(&v, "GET", "servers/"+name, "")
		left, err := s.psql(`SELECT count(*) FROM allocation_claims c JOIN servers v ON v.id=c.server_id WHERE c.state<>'released' AND v.name='` + name + `'`)
		if err != nil || left != "0" || v.Status != schemas.ServerReady {
			return fmt.Errorf("%s is %s, and %s claims are left (%w)", name, v.Status, left, err)
		}
		return nil
	}
	s.await(well+" is ready", func() error { return ready(well) })
	s.await(ill+" is repaired", func() error {
		var all struct{ Items []schemas.Action }
		must(&all, "GET", "actions?limit=1000", "")
		if !slices.ContainsFunc(all.Items, func(a schemas.Action) bool {
			return a.Server == ill && a.Kind == "power_cycle" && a.State == schemas.ActionDone && a.VerifiedBy != ""
		}) {
			return fmt.Errorf("%+v", all.Items)
		}
		return nil
	})
	s.await(ill+" is well", func() error {
		var g schemas.GPU
		must(&g, "GET", "gpus/"+url.PathEscape(ill+"/gpu3"), "")
		if g.Status == schemas.GPUError {
			return errors.New(g.Reason)
		}
		return nil
	})
	var status struct{ Workflows []schemas.Workflow }
	must(&status, "GET", "allocations/"+a.ID+"/status", "")
	for _, w := range status.Workflows {
		if w.Server == ill && w.Type == schemas.WorkflowCleanup && w.Status == schemas.WorkflowFailed {
			s.t.Logf("it was not clean: %s", w.Reason)
			var ignored map[string]any
			must(&ignored, "POST", "workflows/cleanup", fmt.Sprintf(`{"allocation_id":%q,"server_id":%q}`, a.ID, ill))
		}
	}
	s.await(ill+" is ready", func() error { return ready(ill) })
	resets := map[string]int{}
	for _, e := range output(s.t, s.dir) {
		if e.Kind == ledger.KindReset {
			resets[e.Device+" "+e.RequestID]++
		}
	}
	if len(resets) != 1 {
		s.t.Errorf("the controllers were asked for %v", resets)
	}
	for of, n := range resets {
		if n != 1 || !strings.HasPrefix(of, ill+" ") {
			s.t.Errorf("%d resets: %s", n, of)
		}
	}
}

// proves holds that the audit is whole, and that a row that is changed would be seen.
func (s *pathSite) proves() {
	s.t.Helper()
	verify := func() (string, error) {
		out, err := command(s.t, "audit", "verify", "--config", filepath.Join(s.files, "auspex.yaml"), "--data", s.dir).CombinedOutput()
		return string(out), err
	}
	if out, err := verify(); err != nil {
		s.t.Errorf("%s%v", out, err)
	} else {
		s.t.Logf("audit: %s", out)
	}
	s.says(`UPDATE control_audit SET actor='nobody' WHERE seq=20`, "")
	if out, err := verify(); err == nil || !strings.Contains(out, "row 20") {
		s.t.Errorf("a row was changed: %s%v", out, err)
	}
}
