package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"auspex/client"
	"auspex/schemas"
)

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
	s.try = func(out any, method, path, body string) error { return p.curl(root, method, path, body, out) }
	must := func(out any, method, path, body string) {
		t.Helper()
		if err := s.try(out, method, path, body); err != nil {
			t.Fatal(err)
		}
	}
	var ignored map[string]any
	hook := listen(t)
	must(&ignored, "POST", "users", `{"username":"zoe","email":"zoe@example.com","role":"engineer"}`)
	must(&ignored, "POST", "webhooks", fmt.Sprintf(`{"name":"mine","url":%q,"topics":["allocation.*"],"secret":"whsec_%s"}`, hook.URL, strings.Repeat("QUJD", 8)))

	v := s.discovered(must)
	s.broughtUp(must, &v)
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
