package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
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
	"time"

	"auspex/internal/sim"
	"auspex/internal/sim/ledger"
	"auspex/internal/store/embedded/embeddedtest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// patience is how long something may take on a machine that is busy with
// everything else; nothing waits for it when the product is quick.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	embeddedtest.Main()
	if os.Getenv("AUSPEX_E2E") == "1" {
		_ = os.Setenv("AUSPEX_REQUIRE_ENGINE", "1")
	}
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// whole skips a test of the whole product where nobody asked for it.
func whole(t *testing.T) {
	t.Helper()
	if os.Getenv("AUSPEX_E2E") != "1" {
		t.Skip("AUSPEX_E2E is not 1: run `make e2e` for the tests of the whole product")
	}
}

// beside is [whole] for a test that waits most of its time and measures none: it runs
// beside others of its kind, when those that measure are done.
func beside(t *testing.T) {
	t.Helper()
	whole(t)
	t.Parallel()
}

// peer returns what test/e2e.sh says of a peer. Without it the test is skipped, or
// fails where all peers have to be there.
func peer(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		if os.Getenv("AUSPEX_E2E") == "1" {
			t.Fatalf("%s is not set: test/e2e.sh starts the peer and sets it", name)
		}
		t.Skipf("%s is not set: run `make e2e` to test against this peer", name)
	}
	return v
}

var (
	buildOnce sync.Once
	buildDir  string
	buildErr  error
)

// binary returns the path of the product: AUSPEX_BIN, or one built here.
func binary(t *testing.T) string {
	t.Helper()
	if p := os.Getenv("AUSPEX_BIN"); p != "" {
		return p
	}
	buildOnce.Do(func() {
		if buildDir, buildErr = os.MkdirTemp("", "auspex-e2e-"); buildErr != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", filepath.Join(buildDir, "auspex"), "../../cmd/auspex").CombinedOutput()
		if err != nil {
			buildErr = fmt.Errorf("build the product: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return filepath.Join(buildDir, "auspex")
}

// command is a command line of the product. What the tests are told by variables
// is not for it.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AUSPEX_") })
	return cmd
}

// product is a running Auspex.
type product struct {
	t        *testing.T
	dir      string
	cmd      *exec.Cmd
	out, err *waittest.Buffer
	done     chan struct{} // closed when it has ended
	exit     *error        // valid then
	silent   bool          // what it said is of no use where the test fails

	url, token string
	pids       map[string]int
}

// in is the product as a subtest sees it, which fails without its siblings.
func (p *product) in(t *testing.T) *product {
	q := *p
	q.t = t
	return &q
}

// startDemo starts `auspex run --demo` on a folder and waits until it is ready.
func startDemo(t *testing.T, dir string, args ...string) *product {
	t.Helper()
	p := launch(t, dir, append([]string{"--demo"}, args...)...)
	p.ready()
	return p
}

// launch starts `auspex run` and does not wait. What it leaves is ended with the test.
func launch(t *testing.T, dir string, args ...string) *product {
	t.Helper()
	return launchIn(t, nil, dir, args...)
}

// launchIn is launch with variables of the environment that are other than the test's own.
func launchIn(t *testing.T, env []string, dir string, args ...string) *product {
	t.Helper()
	p := &product{t: t, dir: dir, out: &waittest.Buffer{}, err: &waittest.Buffer{}, done: make(chan struct{}), exit: new(error)}
	p.cmd = command(t, append([]string{"run", "--data", dir, "--listen", "127.0.0.1:0"}, args...)...)
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.WaitDelay = 20 * time.Second // a child that keeps our pipe must not keep the test
	_ = os.Remove(filepath.Join(dir, "run.json"))
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		*p.exit = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		endSimulator(dir)
		if t.Failed() && !p.silent {
			t.Logf("standard output of the product:\n%s\nstandard error:\n%s", tail(p.out.String()), tail(p.err.String()))
		}
	})
	return p
}

func tail(s string) string {
	const most = 6000
	if len(s) > most {
		return "… " + s[len(s)-most:]
	}
	return s
}

// endSimulator ends the fleet that a killed product has left behind.
func endSimulator(dir string) {
	var e sim.Endpoints
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.EndpointsFile))
	if err == nil && json.Unmarshal(b, &e) == nil && slices.ContainsFunc(processesOf(dir), func(pid int) bool { return pid == e.PID }) {
		_ = syscall.Kill(e.PID, syscall.SIGKILL)
	}
}

// processesOf lists the processes whose command line names a folder of the test.
func processesOf(dir string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscanf(e.Name(), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		if line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && bytes.Contains(line, []byte(dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ready waits for the line "ready URL" and reads run.json.
func (p *product) ready() {
	p.t.Helper()
	p.await("the product is ready", func() error {
		if !strings.Contains(p.out.String(), "ready http") {
			return errors.New("no line \"ready\" yet")
		}
		var f struct {
			URL   string         `json:"url"`
			Token string         `json:"token"`
			Pids  map[string]int `json:"pids"`
		}
		b, err := os.ReadFile(filepath.Join(p.dir, "run.json"))
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		p.url, p.token, p.pids = f.URL, f.Token, f.Pids
		return err
	})
}

// settled is an error after which waiting makes no sense.
type settled struct{ error }

// await polls until a check passes; it fails the test when the product dies or
// patience ends, with what was wrong last.
func (p *product) await(what string, check func() error) {
	p.t.Helper()
	p.awaitFor(patience, what, check)
}

func (p *product) awaitFor(bound time.Duration, what string, check func() error) {
	p.t.Helper()
	end := time.Now().Add(bound)
	for {
		err := check()
		if err == nil {
			return
		}
		if errors.As(err, new(settled)) {
			p.t.Fatalf("%s: %v", what, err)
		}
		if time.Now().After(end) {
			p.t.Fatalf("not within %s: %s: %v", bound, what, err)
		}
		select {
		case <-p.done:
			p.t.Fatalf("the product ended (%v) while the test waited: %s", *p.exit, what)
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// kill ends the product at once; the simulated fleet lives on.
func (p *product) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// interrupt is Ctrl-C, and waits for the product's end.
func (p *product) interrupt() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatalf("interrupt: %v", err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("the product did not end within %s of an interrupt", patience)
	}
	if *p.exit != nil {
		p.t.Errorf("after an interrupt the product ended with %v", *p.exit)
	}
}

// get reads a route of the API into v.
func (p *product) get(route string, v any) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+route, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", route, resp.Status, b)
	}
	if raw, ok := v.(*[]byte); ok {
		*raw = b
		return nil
	}
	return json.Unmarshal(b, v)
}

// ask runs a command that asks the product, as an admin, and decodes its answer.
func (p *product) ask(t *testing.T, token string, out any, args ...string) error {
	t.Helper()
	cmd := command(t, append(args, "-o", "json", "--api", p.url)...)
	cmd.Env = append(cmd.Environ(), "AUSPEX_TOKEN="+token)
	b, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	} else if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// list reads all pages of a route.
func list[T any](p *product, route string) ([]T, error) {
	var all []T
	for after := ""; ; {
		var one page[T]
		if err := p.get("api/v1/"+route+"?limit=1000&after="+url.QueryEscape(after), &one); err != nil {
			return nil, err
		}
		all = append(all, one.Items...)
		if after = one.Next; after == "" {
			return all, nil
		}
	}
}

// incident is what the tests look at of an incident in a list.
type incident struct {
	ID             string                 `json:"id"`
	Status         string                 `json:"status"`
	RootCause      schemas.Cause          `json:"root_cause"`
	Alerts         int                    `json:"alerts"`
	Affected       []string               `json:"affected"`
	Workloads      []string               `json:"workloads"`
	Explanation    string                 `json:"explanation"`
	Recommendation schemas.Recommendation `json:"recommendation"`
}

// judged returns the incidents that name a cause and are not absorbed, as
// "resource fault", sorted.
func (p *product) judged() ([]incident, []string, error) {
	all, err := list[incident](p, "incidents")
	if err != nil {
		return nil, nil, err
	}
	var names []string
	all = slices.DeleteFunc(all, func(i incident) bool { return i.Status == "merged" || i.RootCause.Fault == "unknown" })
	for _, i := range all {
		names = append(names, i.RootCause.Resource+" "+i.RootCause.Fault)
	}
	slices.Sort(names)
	return all, names, nil
}

// planned returns what the simulator plays, by kind of fault.
func planned(t *testing.T, dir string) map[string][]sim.Planned {
	t.Helper()
	var e sim.Endpoints
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.EndpointsFile))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string][]sim.Planned{}
	for _, f := range e.Faults {
		byKind[f.Kind] = append(byKind[f.Kind], f)
	}
	return byKind
}

// output reads the ledger of the simulated fleet.
func output(t *testing.T, dir string) []ledger.Entry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "sim", sim.LedgerFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var all []ledger.Entry
	for line := range bytes.Lines(b) {
		var e ledger.Entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("ledger: %v in %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// given are the ports that freePorts has returned to any test.
var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePorts returns the first of n ports on which nobody listens. They lie below those that Linux gives to whoever
// asks for any, as the fleets beside a test do all the time: nobody takes one before, or between two runs on it.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	given.Lock()
	defer given.Unlock()
search:
	for range 1000 {
		first := 20_000 + rand.IntN(12_000-n)
		for p := first; p < first+n; p++ {
			tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p})
			if err != nil {
				continue search
			}
			_ = tcp.Close()
			udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p})
			if err != nil {
				continue search
			}
			_ = udp.Close()
			if given.ports[p] {
				continue search
			}
		}
		for p := first; p < first+n; p++ {
			given.ports[p] = true
		}
		return first
	}
	t.Fatalf("no %d ports are free", n)
	return 0
}

// freeAddress is an address of this machine on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(freePorts(t, 1)))
}

// dataDir is a folder for the product whose path is short: sockets live in it.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() || os.Getenv("AUSPEX_KEEP") == "" {
			_ = os.RemoveAll(dir)
		}
	})
	return dir
}
