package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"auspex/internal/sim"
	"auspex/internal/sim/ledger"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// receiver is a program of a user that is told what happens to what they hold.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	told map[string]string // notices by their id: type, subject and what they say
}

func listen(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{told: map[string]string{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := io.ReadAll(req.Body)
		var n struct {
			ID, Type, Subject string
			Data              json.RawMessage
		}
		if err == nil {
			err = json.Unmarshal(b, &n)
		}
		if err != nil || req.Header.Get("Webhook-Signature") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		r.told[n.ID] = n.Type + " " + n.Subject + " " + string(n.Data)
		r.mu.Unlock()
	}))
	t.Cleanup(r.Close)
	return r
}

// heard reports whether a notice has come.
func (r *receiver) heard(notice string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, told := range r.told {
		if strings.HasPrefix(told, notice+" ") {
			return nil
		}
	}
	return fmt.Errorf("told so far: %v", r.told)
}

// twice are the notices that came under more than one id.
func (r *receiver) twice() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, told := range r.told {
		if seen[told] {
			out = append(out, told)
		}
		seen[told] = true
	}
	return out
}

// small fleet of the path: one rack of four servers, the last of which no inventory has.
const (
	pathServers = 4
	pathPorts   = 64 // at least as many as its devices listen on
)

// pathSite is a simulated fleet and a PostgreSQL that outlive the product on them.
type pathSite struct {
	t          *testing.T
	dir, files string
	dsn        string // of PostgreSQL itself
	listen     string // the address of the fleet's first device, of those after it too
	spare      schemas.Resource
	fleet      *exec.Cmd
	await      func(what string, check func() error)
	killed     func()                                         // the product, which begins again
	try        func(out any, method, path, body string) error // asks the product once
}

// newPathSite starts both.
func newPathSite(t *testing.T) *pathSite {
	t.Helper()
	s := &pathSite{t: t, dir: dataDir(t), files: t.TempDir(), listen: net.JoinHostPort("127.0.0.1", strconv.Itoa(freePorts(t, pathPorts)))}
	if err := os.Chmod(s.dir, 0o711); err != nil { //nolint:gosec // PostgreSQL runs as a user of its own
		t.Fatal(err)
	}
	_, vars := startPeer(t, "postgres", s.dir)
	s.dsn = vars["POSTGRES_DSN"]
	s.play("none")
	t.Cleanup(func() { s.still() })
	var spare schemas.Topology
	b, err := os.ReadFile(filepath.Join(s.dir, "sim", sim.SpareFile))
	if err == nil {
		err = json.Unmarshal(b, &spare)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.spare = spare.Resources[slices.IndexFunc(spare.Resources, func(r schemas.Resource) bool { return r.Kind == schemas.KindServer })]
	return s
}

// play starts the fleet with a script, in the state in which it was left.
func (s *pathSite) play(script string) {
	s.t.Helper()
	s.still()
	s.fleet = command(s.t, "simulate", "--dir", filepath.Join(s.dir, "sim"), "--listen", s.listen, "--racks", "1", "--servers", strconv.Itoa(pathServers), "--spare", "1",
		"--seed", "3", "--script", script)
	said := &waittest.Buffer{}
	s.fleet.Stdout, s.fleet.Stderr = said, said
	if err := s.fleet.Start(); err != nil {
		s.t.Fatal(err)
	}
	shell := &product{t: s.t, done: make(chan struct{}), exit: new(error)}
	shell.await("the fleet is ready", func() error { return has(said.String(), "ready") })
}

// still ends the fleet; it keeps its state.
func (s *pathSite) still() {
	if s.fleet == nil {
		return
	}
	_ = s.fleet.Process.Signal(syscall.SIGTERM)
	_ = s.fleet.Wait()
	s.fleet = nil
}

// breaks has a GPU fall off the bus in a moment.
func (s *pathSite) breaks(gpu string) {
	s.t.Helper()
	s.play(write(s.t, s.files, "broken.yaml", "name: broken\nfaults:\n  - {at: 2s, kind: gpu_fallen_off, target: "+gpu+"}\n"))
}

// config writes the configuration of a product on this site, whose store is at a DSN. Its servers are in no scheduler:
// people have them by allocations alone.
func (s *pathSite) config(dsn string) string {
	s.t.Helper()
	fleet := filepath.Join(s.dir, "sim")
	policy := write(s.t, s.files, "policy.yaml", `
budgets: {fleet: 1, rack: 1, per_hour: 3}
breaker: {cases: 6, window: 10m}
policies:
  - name: gpu-lost
    faults: [gpu.fallen_off_bus]
    min_confidence: 0.6
    settle: 2s
    max_evidence_age: 15m
    ladder:
      - {kind: power_cycle, destructive: true, attempts: 1, cool_down: 1h, verify: 90s, quiet: 5s}
`)
	return write(s.t, s.files, "auspex.yaml", fmt.Sprintf(`
site: dc1
inventory: {file: %[1]s}
secrets: %[2]s
store: {sql: %[6]q, clickhouse: "off"}
discovery: {ranges: [127.0.0.1], ports: [1024-65535]}
trust: {bmc: {ca_file: %[3]s}, agent: {ca_file: %[3]s}}
collectors:
  kmsg: {}
  dcgmexporter: {interval: 2s}
  redfish: {interval: 5s, sensor_interval: 5s}
detect: {rules: {settle: 10s}}
correlator: {close_after: {cleared: 5s, repaired: 5s, silent: 90s}}
control:
  mode: enforce
  policies: %[5]s
  agent: {credential: %[4]s}
allocator:
  poll: 250ms
  bring_up: # nothing on the new server is read but its board controller
    steps: [inventory, idle, drain, firmware, telemetry, validate, health, uncordon]
    firmware: [{model: %[7]q, component: FW_BMC_0, version: 1.14.2, image: "https://images.invalid/bmc", sha256: %[8]s}]
api: {limits: {reads: 0, writes: 0}}
`, filepath.Join(fleet, sim.TopologyFile), filepath.Join(fleet, sim.SecretsFile), filepath.Join(fleet, sim.CAFile), sim.Credential,
		policy, dsn, s.spare.Attrs.Get(schemas.AttrModel), strings.Repeat("0", 64)))
}

// psql reads one value of the tables, as somebody with a shell does.
func (s *pathSite) psql(query string) (string, error) {
	out, err := exec.Command("psql", s.dsn, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", query).CombinedOutput() //nolint:noctx // it is short
	return strings.TrimSpace(string(out)), err
}

// says holds what psql reads against what it should.
func (s *pathSite) says(query, want string) {
	s.t.Helper()
	if got, err := s.psql(query); err != nil || got != want {
		s.t.Errorf("%s: %q, want %q (%v)", query, got, want, err)
	}
}

// refuses holds that the database lets nobody write something, by the name of its rule.
func (s *pathSite) refuses(statement, rule string) {
	s.t.Helper()
	if got, err := s.psql(statement); err == nil || !strings.Contains(got, `"`+rule+`"`) {
		s.t.Errorf("%s: %q (%v), want a refusal by %s", statement, got, err, rule)
	}
}

// known is the first server of the inventory.
func (s *pathSite) known() schemas.Resource {
	s.t.Helper()
	var top schemas.Topology
	b, err := os.ReadFile(filepath.Join(s.dir, "sim", sim.TopologyFile))
	if err == nil {
		err = json.Unmarshal(b, &top)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	k := slices.IndexFunc(top.Resources, func(r schemas.Resource) bool { return r.Kind == schemas.KindServer })
	return top.Resources[k]
}

// controller is where the board controller of a server listens.
func (s *pathSite) controller(of schemas.Resource) *url.URL {
	s.t.Helper()
	u, err := url.Parse(of.Attrs.Get(schemas.AttrRedfishURL))
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

// curl asks the product, as somebody with a shell does, and decodes the answer.
func (p *product) curl(token, method, path, body string, out any) error {
	return p.curlOnce(token, "", method, path, body, out)
}

// curlOnce is curl with the key of a request that is done once however often it is sent; "" is none.
func (p *product) curlOnce(token, key, method, path, body string, out any) error {
	args := []string{"-sS", "--fail-with-body", "--max-time", "60", "-X", method, "-H", "Authorization: Bearer " + token}
	if key != "" {
		args = append(args, "-H", "Idempotency-Key: "+key)
	}
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

// broughtUp has the new server brought up, over a kill, and holds that nobody is given it before that is done.
func (s *pathSite) broughtUp(must asks, v *schemas.Server) {
	s.t.Helper()
	var w schemas.Workflow
	must(&w, "POST", "workflows", fmt.Sprintf(`{"type":"bring_up","server_id":%q}`, v.ID))
	s.await("its bring-up is under way", func() error {
		must(&w, "GET", "workflows/"+w.ID, "")
		if w.Status != schemas.WorkflowRunning {
			return fmt.Errorf("it is %s: %s", w.Status, w.Reason)
		}
		return nil
	})
	var ignored map[string]any
	if err := s.try(&ignored, "POST", "allocations", fmt.Sprintf(`{"server_id":%q}`, v.ID)); err == nil {
		s.t.Errorf("it was given to somebody: %v", ignored)
	}
	s.killed() // it goes on
	s.await("it is ready", func() error {
		id := w.ID
		w = schemas.Workflow{}
		must(&w, "GET", "workflows/"+id, "")
		must(v, "GET", "servers/"+v.ID, "")
		if w.Status == schemas.WorkflowFailed {
			return settled{errors.New(w.Reason)}
		}
		if v.Status != schemas.ServerReady || w.Status != schemas.WorkflowCompleted {
			return fmt.Errorf("it is %s: %+v", v.Status, w)
		}
		return nil
	})
	said := map[string]string{}
	for _, st := range w.Steps {
		said[st.Name] = st.Message
		s.t.Logf("%s: %s", st.Name, st.Message)
	}
	for step, want := range map[string]string{
		"inventory": "nothing that was seen contradicts its 8 GPUs", "update_firmware": "1.14.2", "health": "no open incident is about it",
	} {
		if !strings.Contains(said[step], want) {
			s.t.Errorf("%s: %q, want %q", step, said[step], want)
		}
	}
	s.says(`SELECT status FROM servers WHERE id='`+v.ID+`'`, schemas.ServerReady)
	s.says(`SELECT count(*) FROM workflows WHERE server_id='`+v.ID+`' AND type='bring_up' AND attempt=1`, "1")
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
	s.await(ill+" is ready", func() error {
		var status struct{ Workflows []schemas.Workflow }
		must(&status, "GET", "allocations/"+a.ID+"/status", "")
		for _, w := range status.Workflows {
			if w.Server == ill && w.Type == schemas.WorkflowCleanup && w.Status == schemas.WorkflowFailed {
				s.t.Logf("it was not clean: %s", w.Reason)
				var ignored map[string]any
				if err := s.try(&ignored, "POST", "workflows/cleanup", fmt.Sprintf(`{"allocation_id":%q,"server_id":%q}`, a.ID, ill)); err != nil {
					return err
				}
			}
		}
		return ready(ill)
	})
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
