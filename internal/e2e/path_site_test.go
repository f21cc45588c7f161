package e2e

import (
	"encoding/json"
	"fmt"
	"io"
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
const pathServers = 4

// pathSite is a simulated fleet and a PostgreSQL that outlive the product on them.
type pathSite struct {
	t          *testing.T
	dir, files string
	dsn        string // of PostgreSQL itself
	spare      schemas.Resource
	fleet      *exec.Cmd
	await      func(what string, check func() error)
	killed     func() // the product, which begins again
}

// newPathSite starts both.
func newPathSite(t *testing.T) *pathSite {
	t.Helper()
	s := &pathSite{t: t, dir: dataDir(t), files: t.TempDir()}
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
	s.fleet = command(s.t, "simulate", "--dir", filepath.Join(s.dir, "sim"), "--racks", "1", "--servers", strconv.Itoa(pathServers), "--spare", "1",
		"--seed", "3", "--script", script)
	said := &buffer{}
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
allocator: {poll: 250ms}
api: {limits: {reads: 0, writes: 0}}
`, filepath.Join(fleet, sim.TopologyFile), filepath.Join(fleet, sim.SecretsFile), filepath.Join(fleet, sim.CAFile), sim.Credential,
		policy, dsn))
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
