package sim

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// patience guards against what never comes, however busy the machine is.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func small(dir string) Config {
	cfg := DefaultConfig()
	cfg.Dir, cfg.Script = dir, nil
	cfg.Fleet = fleet.Config{Site: "dc1", Racks: 2, ServersPerRack: 2, GPUs: 4, Spines: 1, CRACs: 1}
	return cfg
}

// begin runs a simulator until the test, or the returned function, stops it.
func begin(t *testing.T, cfg Config) (eps Endpoints, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan Endpoints, 1), make(chan error, 1)
	cfg.Ready = func(e Endpoints) { ready <- e }
	go func() { done <- Run(ctx, cfg) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("simulator ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the simulator does not stop")
		}
	}
	t.Cleanup(stop)
	select {
	case eps = <-ready:
	case err := <-done:
		stopped = true
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the simulator is not ready")
	}
	return eps, stop
}

func inventory(t *testing.T, dir string) map[string]schemas.Resource {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, TopologyFile))
	if err != nil {
		t.Fatal(err)
	}
	var top schemas.Topology
	if err := json.Unmarshal(data, &top); err != nil {
		t.Fatal(err)
	}
	out := map[string]schemas.Resource{}
	for _, r := range top.Resources {
		out[r.ID] = r
	}
	return out
}

func trust(t *testing.T, dir string) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool}
}

func entries(t *testing.T, dir string) []ledger.Entry {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, LedgerFile))
	if err != nil {
		t.Fatal(err)
	}
	var out []ledger.Entry
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) { // the last one may be half written
		var e ledger.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// name is what a test calls an entry of the ledger.
func name(e ledger.Entry) string {
	return e.Kind + " " + e.Protocol + " " + e.Device + "/" + e.Part + " " + e.Code
}

// awaitEntries waits until entries of the ledger, from the given one on, have these names.
func awaitEntries(t *testing.T, dir string, from int, names ...string) {
	t.Helper()
	waittest.Until(t, func() error {
		missing := slices.Clone(names)
		for _, e := range entries(t, dir)[from:] {
			missing = slices.DeleteFunc(missing, func(n string) bool { return n == name(e) })
		}
		if len(missing) > 0 {
			return fmt.Errorf("nobody said %q", missing)
		}
		return nil
	})
}

func TestAllProtocolsTellOfOneFleet(t *testing.T) {
	dir := t.TempDir()
	_, stop := begin(t, small(dir))
	res := inventory(t, dir)
	server := res["gpu-r01-02"].Attrs
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust(t, dir), DisableKeepAlives: true}, Timeout: patience}
	fetch := func(method, url, body string, head map[string]string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range head {
			req.Header.Set(k, v)
		}
		if strings.HasPrefix(url, server.Get(schemas.AttrRedfishURL)) {
			req.SetBasicAuth(fleet.User, fleet.Password)
		}
		r, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(data)
	}

	if status, body := fetch("GET", server.Get(schemas.AttrExporterURL), "", nil); status != 200 ||
		strings.Count(body, "\nDCGM_FI_DEV_GPU_TEMP{") != 4 {
		t.Errorf("exporter: %d, %d bytes", status, len(body))
	}
	if status, body := fetch("GET", server.Get(schemas.AttrRedfishURL)+"/redfish/v1/Systems", "", nil); status != 200 ||
		!strings.Contains(body, "Members") {
		t.Errorf("redfish: %d %s", status, body)
	}
	if data, err := os.ReadFile(server.Get(schemas.AttrKmsgPath)); err != nil || !bytes.Contains(data, []byte(",-;")) {
		t.Errorf("kernel log: %q, %v", data, err)
	}
	var sched struct {
		URL       string `json:"url"`
		TokenFile string `json:"token_file"`
	}
	if err := readJSON(filepath.Join(dir, SlurmFile), &sched); err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(sched.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := fetch("GET", sched.URL+"/slurm/v0.0.42/nodes", "", map[string]string{"X-SLURM-USER-TOKEN": string(token)}); status != 200 || strings.Count(body, `"hostname"`) != 4 {
		t.Errorf("scheduler: %d %s", status, body)
	}

	conn, err := grpc.NewClient(
		res["leaf-r01"].Attrs.Get(schemas.AttrGNMIAddress), grpc.WithTransportCredentials(credentials.NewTLS(trust(t, dir))),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(
		metadata.AppendToOutgoingContext(context.Background(), "username", fleet.User, "password", fleet.Password), patience,
	)
	defer cancel()
	if caps, err := gpb.NewGNMIClient(conn).Capabilities(ctx, &gpb.CapabilityRequest{}); err != nil || len(caps.SupportedModels) == 0 {
		t.Errorf("gNMI: %v, %v", caps, err)
	}

	// A reset over Redfish is in the ledger with the id of its request, and is felt elsewhere.
	if status, body := fetch("POST", server.Get(schemas.AttrRedfishURL)+"/redfish/v1/Systems/System_0/Actions/ComputerSystem.Reset", `{"ResetType": "ForceOff"}`,
		map[string]string{"Content-Type": "application/json", "X-Request-Id": "action-1"}); status/100 != 2 {
		t.Fatalf("reset: %d %s", status, body)
	}
	waittest.For(t, "the host is down without power", func() bool {
		_, err := os.Stat(server.Get(schemas.AttrKmsgPath))
		return errors.Is(err, os.ErrNotExist)
	})
	if _, err := client.Get(server.Get(schemas.AttrExporterURL)); err == nil {
		t.Error("the exporter answers without power")
	}
	stop()
	var resets []string
	for _, e := range entries(t, dir) {
		if e.Kind == ledger.KindReset {
			resets = append(resets, e.Device+" "+e.Protocol+" "+e.Code+" "+e.RequestID)
		}
	}
	if d := cmp.Diff([]string{"gpu-r01-02 redfish ForceOff action-1"}, resets); d != "" {
		t.Error(d)
	}
}

func TestARestartKeepsPortsCertificateAndJobNumbers(t *testing.T) {
	dir := t.TempDir()
	first, stop := begin(t, small(dir))
	ca, _ := os.ReadFile(filepath.Join(dir, CAFile))
	stop()
	lastJob := uint64(0)
	for _, e := range entries(t, dir) {
		lastJob = max(lastJob, e.Record)
	}
	second, stop := begin(t, small(dir))
	stop()
	if d := cmp.Diff(first.Ports, second.Ports); d != "" {
		t.Errorf("ports changed: %s", d)
	}
	if again, _ := os.ReadFile(filepath.Join(dir, CAFile)); !bytes.Equal(ca, again) {
		t.Error("the authority changed")
	}
	jobs := map[uint64]int{}
	for _, e := range entries(t, dir) {
		if e.Kind == ledger.KindJob && e.Code == "RUNNING" {
			jobs[e.Record]++
		}
	}
	for id, n := range jobs {
		if n > 1 {
			t.Errorf("job %d ran twice", id)
		}
	}
	for name, mode := range map[string]os.FileMode{SecretsFile: 0o600, tokenFile: 0o600, keyFile: 0o600, EndpointsFile: 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

func TestOneDirectoryHasOneSimulator(t *testing.T) {
	dir := t.TempDir()
	begin(t, small(dir))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := Run(ctx, small(dir)); !errors.Is(err, ErrRunning) {
		t.Errorf("the second simulator says %v", err)
	}
}

func TestFaultsComeAtTheirTimeAndAreWrittenDown(t *testing.T) {
	dir := t.TempDir()
	cfg := small(dir)
	cfg.Script = []byte(
		"name: quick\nfaults:\n  - {at: 300ms, kind: gpu_fallen_off, target: gpu-r02-01/gpu1}\n  - {at: 500ms, kind: feed_loss, target: {rack: 1, feed: a}}\n",
	)
	eps, stop := begin(t, cfg)
	if len(eps.Faults) != 2 || eps.Script != "quick" || eps.Faults[1].Resource != "pdu-r01-a" {
		t.Errorf("endpoints tell of %+v", eps)
	}
	awaitEntries(t, dir, 0, "record kmsg gpu-r02-01/gpu1 79", "record ipmi gpu-r01-01/psu0 08/03")
	stop()
	log := entries(t, dir)
	at := func(match func(e ledger.Entry) bool) time.Duration {
		t.Helper()
		i := slices.IndexFunc(log, match)
		if i < 0 {
			t.Fatal("not in the ledger")
		}
		return log[i].Time.Sub(eps.Started)
	}
	fault := func(code string) time.Duration {
		return at(func(e ledger.Entry) bool { return e.Kind == ledger.KindFault && e.Code == code })
	}
	fallen, feed := fault("gpu_fallen_off"), fault("feed_loss")
	if fallen < 290*time.Millisecond || feed < 490*time.Millisecond || feed < fallen {
		t.Errorf("the faults came after %s and %s", fallen, feed)
	}
	// What follows is by the simulator's clock, however busy the machine is.
	if d := at(func(e ledger.Entry) bool { return e.Type == "gpu.xid" && e.Code == "79" }) - fallen; d < 0 || d > 700*time.Millisecond {
		t.Errorf("XID 79 %s after its fault", d)
	}
	if d := at(func(e ledger.Entry) bool { return e.Type == "psu.input_lost" && e.Protocol == "ipmi" }) - feed; d < 0 ||
		d > 1500*time.Millisecond {
		t.Errorf("the first supply %s after its fault", d)
	}
}

// Another address with ports one after the other, all of it in the inventory.
func TestAddressAndPortsAreTheOperators(t *testing.T) {
	cfg := small(t.TempDir())
	cfg.Listen = "127.0.0.9"
	l, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Skip("this machine has one loopback address:", err)
	}
	cfg.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	eps, stop := begin(t, cfg)
	seen := map[int]bool{}
	for key, port := range eps.Ports {
		if port < cfg.Port || port >= cfg.Port+len(eps.Ports) || seen[port] {
			t.Errorf("%s is on port %d of %d to %d", key, port, cfg.Port, cfg.Port+len(eps.Ports)-1)
		}
		seen[port] = true
	}
	text, err := os.ReadFile(filepath.Join(cfg.Dir, TopologyFile))
	if err != nil || !bytes.Contains(text, []byte("https://127.0.0.9:")) || bytes.Contains(text, []byte("127.0.0.1:")) {
		t.Errorf("inventory without the address, or with another: %v", err)
	}
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(cfg.Dir, CAFile))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no authority:", err)
	}
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.9:%d", eps.Ports["gpu-r01-01/redfish"]), &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal("the certificate does not cover the address:", err)
	}
	_ = conn.Close()
	stop()
}

// Beyond loopback nobody knows the password who cannot read the simulator's files.
func TestPasswordBeyondLoopbackIsDrawn(t *testing.T) {
	s := newSimulator(Config{Dir: t.TempDir()})
	a, err := s.secret(passwordFile)
	b, err2 := s.secret(passwordFile)
	if err != nil || err2 != nil || a != b || len(a) < 32 {
		t.Errorf("drawn %q, then %q: %v %v", a, b, err, err2)
	}
	if info, err := os.Stat(filepath.Join(s.cfg.Dir, passwordFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	cfg := fleet.DefaultConfig()
	cfg.Password = a[:16]
	f := fleet.New(cfg, 1, t.TempDir(), nil, time.Now())
	if got, ok := f.BMC("gpu-r01-01").Password(fleet.User); !ok || got != a[:16] {
		t.Errorf("the controllers take %q", got)
	}
}

func TestBadConfigurationIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for _, tc := range []struct {
		name string
		edit func(c *Config)
		want string
	}{
		{"no directory", func(c *Config) { c.Dir = "" }, "dir is empty"},
		{"an open address", func(c *Config) { c.Listen = "0.0.0.0" }, "one IP address"},
		{"a name", func(c *Config) { c.Listen = "localhost" }, "one IP address"},
		{"a port that none is", func(c *Config) { c.Port = 70000 }, "port is 70000"},
		{"no racks", func(c *Config) { c.Fleet.Racks = 0 }, "racks is 0"},
		{"a bad script", func(c *Config) { c.Script = []byte("faults: [{kind: x}]") }, "unknown kind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := small(dir)
			tc.edit(&cfg)
			if err := Run(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the directory was made")
			}
		})
	}
}
