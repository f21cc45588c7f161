package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
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

	corev1 "k8s.io/api/core/v1"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/run"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// Two controllers in processes of their own take servers out of a real Kubernetes and give them back, while either is
// killed and the API is stopped, or killed and started again. What they did is what the API itself tells a watch of ours,
// that goes on where it ended, and what the board controller was told, which lives in the test.

// chaosEnv tells the test binary that it is a controller.
const chaosEnv = "AUSPEX_KUBERNETES_CHAOS"

func TestMain(m *testing.M) {
	if doc := os.Getenv(chaosEnv); doc != "" {
		if err := chaosController(doc); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type chaosRole struct{ DSN, Kubeconfig, World, Holder, Policy string }

const chaosPolicy = `
budgets: {fleet: 2, rack: 1, per_hour: 99}
breaker: {cases: 99, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    min_confidence: 0.5
    settle: 0s
    max_evidence_age: 1h
    ladder:
      - {kind: drain, attempts: 6, verify: 10s}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 2s, quiet: 60ms}
      - {kind: uncordon, needs: [power_cycle], attempts: 6, verify: 10s}
`

// Two of a rack, of which one may be out; one that somebody has cordoned; one against which nothing stands.
var (
	chaosSick    = []string{"gpu-r01-01", "gpu-r01-02", "gpu-r02-01", "gpu-r03-01"}
	chaosForeign = "gpu-r03-01"
	chaosWell    = "gpu-r04-01"
)

func rackOf(server string) string { return strings.Split(server, "-")[1] }

type racks struct{}

func (racks) Kind(string) string { return schemas.KindGPU }

func (racks) Place(resource string) (server, rack, site string, ok bool) {
	server, _, _ = strings.Cut(resource, "/")
	return server, rackOf(server), "dc1", true
}

// chaosController is a controller until its standard input ends.
func chaosController(doc string) error {
	var role chaosRole
	if err := json.Unmarshal([]byte(doc), &role); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	db, err := sqldb.Connect(ctx, role.DSN)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	kube := defaults()
	kube.Kubeconfig = role.Kubeconfig
	for ctx.Err() == nil {
		all, err := kube.Remediators(control.Settings{})
		if err != nil {
			return err
		}
		all["power_cycle"] = board{role.World}
		cfg := control.DefaultConfig()
		cfg.Mode, cfg.Policies, cfg.Poll, cfg.LeaseTTL, cfg.CallTime, cfg.ApproveWithin = schemas.ModeEnforce, role.Policy, 50*time.Millisecond, time.Second, 2*time.Second, 40*time.Second
		c, err := control.New(cfg, control.Deps{
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: time.Now, DB: db, Records: records.New(db), Bus: storeBus{records.New(db)},
			Inventory: racks{}, Holder: role.Holder, Remediators: all, Life: board{role.World}, View: viewOf,
		})
		if err != nil {
			return err
		}
		if err := c.Run(ctx, func() {}); err != nil {
			fmt.Fprintln(os.Stderr, role.Holder, "begins anew:", err)
			_ = run.Sleep(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

func viewOf(source string) schemas.View {
	if source == schemas.SourceRedfish {
		return schemas.ViewBoard
	}
	return schemas.ViewHost
}

// storeBus hands over the incidents of a store.
type storeBus struct{ records *records.Store }

func (storeBus) Publish(context.Context, ...bus.Message) error   { return nil }
func (storeBus) Partitions(context.Context, string) (int, error) { return 1, nil }
func (storeBus) Close() error                                    { return nil }

func (b storeBus) Subscribe(ctx context.Context, s bus.Subscription, handle bus.Handler) error {
	for s.Topic == schemas.TopicIncidents && run.Sleep(ctx, 100*time.Millisecond) == nil {
		incs, _, err := b.records.Incidents(ctx, records.Filter{Status: records.StatusOpen})
		if err != nil {
			return err
		}
		var msgs []bus.Message
		for i := range incs {
			doc, err := json.Marshal(incs[i])
			if err != nil {
				return err
			}
			msgs = append(msgs, bus.Message{Topic: s.Topic, Value: doc})
		}
		if err := handle(ctx, msgs); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// board is the board controllers, as a controller reaches them, and what is read of the servers.
type board struct{ url string }

func (b board) ask(ctx context.Context, what string, s control.Step) (booted time.Time, err error) {
	doc, err := json.Marshal(s)
	if err != nil {
		return booted, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+what, bytes.NewReader(doc))
	if err != nil {
		return booted, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return booted, err
	}
	defer func() { _ = res.Body.Close() }()
	return booted, json.NewDecoder(res.Body).Decode(&booted)
}

func (board) Plan(context.Context, control.Step) (schemas.Sentence, error) {
	return schemas.Sentence{}, nil
}

func (b board) Apply(ctx context.Context, s control.Step) error {
	_, err := b.ask(ctx, "/apply", s)
	return err
}

func (b board) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	booted, err := b.ask(ctx, "/read", s)
	if err == nil && !booted.Before(s.Since) {
		return control.Verified, messages.New(messages.PowerBack, nil), nil
	}
	return control.Pending, messages.New(messages.NoReset, nil), err
}

func (b board) Follow(ctx context.Context, server string, observe func(control.Observation)) error {
	for run.Sleep(ctx, 20*time.Millisecond) == nil {
		now := time.Now()
		booted, err := b.ask(ctx, "/read", control.Step{Server: server})
		if err != nil || now.Sub(booted) < 50*time.Millisecond { // it starts
			continue
		}
		values := []control.Value{{Series: schemas.GPUPower, Number: 90 + math.Sin(float64(now.UnixNano()))}}
		if !booted.IsZero() {
			values = append(values, control.Value{Series: schemas.GPUEnergy, Number: 90_000 * now.Sub(booted).Seconds()})
		}
		observe(control.Observation{Resource: server + "/gpu2", Kind: schemas.KindGPU, Collector: schemas.SourceDCGM, Time: now, Observed: now, Values: values})
	}
	return nil
}

// chaos is one run.
type chaos struct {
	*site
	seed uint64
	dir  string // of the peer
	db   *sqldb.DB

	mu     sync.Mutex
	r      *rand.Rand
	calm   bool
	booted map[string]time.Time
	sent   map[string]int      // by id of the step
	marks  map[string][]string // ids of the steps whose mark a node had, in their order
	out    map[string]bool     // has a mark of ours
	back   map[string]time.Time
	broken []string
	told   []string
}

// violated notes what must not be; mu is held.
func (x *chaos) violated(format string, args ...any) {
	x.broken = append(x.broken, fmt.Sprintf(format, args...))
}

func (x *chaos) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var s control.Step
	if err := json.NewDecoder(req.Body).Decode(&s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if req.URL.Path == "/apply" {
		x.told = append(x.told, fmt.Sprint(time.Now().Format("05.000"), " power_cycle ", s.Server))
		if x.sent[s.ID]++; x.sent[s.ID] > 1 {
			x.violated("power_cycle of %s was sent twice", s.Server)
		}
		if at, ok := x.back[s.Server]; ok {
			x.violated("%s was cycled after it was given back %s before", s.Server, time.Since(at))
		}
		if !slices.Contains(chaosSick, s.Server) {
			x.violated("%s was cycled without a reason", s.Server)
		}
		how := "well"
		if !x.calm {
			how = []string{"well", "well", "lost", "void"}[x.r.IntN(4)]
		}
		if how != "void" {
			x.booted[s.Server] = time.Now()
		}
		if how != "well" {
			panic(http.ErrAbortHandler) // no answer
		}
	}
	_ = json.NewEncoder(w).Encode(x.booted[s.Server])
}

// sees holds what must be so whenever a node has changed.
func (x *chaos) sees(n *corev1.Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m, ours := markOf(n)
	was := x.marks[n.Name]
	if ours && (len(was) == 0 || was[len(was)-1] != m.Action) {
		x.told = append(x.told, fmt.Sprint(time.Now().Format("05.000"), " marked ", n.Name, " ", m.Action))
		if slices.Contains(was, m.Action) {
			x.violated("%s was taken out twice by %s", n.Name, m.Action)
		}
		x.marks[n.Name] = append(was, m.Action)
	}
	if x.out[n.Name] && !ours {
		x.told = append(x.told, fmt.Sprint(time.Now().Format("05.000"), " given back ", n.Name))
		x.back[n.Name] = time.Now()
		if x.booted[n.Name].IsZero() {
			x.violated("%s was given back unrepaired", n.Name)
		}
	}
	x.out[n.Name] = ours
	switch {
	case n.Name == chaosForeign && !n.Spec.Unschedulable:
		x.violated("%s can be used, which somebody else has cordoned", n.Name)
	case ours && !slices.Contains(chaosSick, n.Name):
		x.violated("%s was taken out without a reason", n.Name)
	}
	held, inRack := 0, map[string]int{}
	for name, out := range x.out {
		if out {
			held++
			inRack[rackOf(name)]++
		}
	}
	if held > 2 || inRack[rackOf(n.Name)] > 1 {
		x.violated("with %s %d servers are out, %d in its rack; the budgets are 2 and 1", n.Name, held, inRack[rackOf(n.Name)])
	}
}

// watches follows all nodes, from where it ended where the API goes away.
func (x *chaos) watches(ctx context.Context, from string) {
	for run.Sleep(ctx, 20*time.Millisecond) == nil {
		c, err := x.admin.client()
		if err != nil {
			continue
		}
		stream, err := c.Get().RequestURI("/api/v1/nodes?watch=1&resourceVersion=" + from).Stream(ctx)
		if err != nil {
			continue
		}
		for dec := json.NewDecoder(stream); ; {
			var ev struct {
				Type   string
				Object corev1.Node
			}
			if dec.Decode(&ev) != nil {
				break
			}
			if ev.Type == "ERROR" {
				x.mu.Lock()
				x.violated("the watch of the test missed something from %s on", from)
				x.mu.Unlock()
				break
			}
			from = ev.Object.ResourceVersion
			if ev.Type == "MODIFIED" {
				x.sees(&ev.Object)
			}
		}
		_ = stream.Close()
	}
}

// kubelets end the pods that are to end.
func (x *chaos) kubelets(ctx context.Context) {
	for run.Sleep(ctx, 50*time.Millisecond) == nil {
		for _, node := range append(slices.Clone(chaosSick), chaosWell) {
			pods, err := x.admin.pods(ctx, node)
			if err != nil {
				continue
			}
			for i := range pods {
				if p := &pods[i]; p.DeletionTimestamp != nil {
					_ = x.admin.call(ctx, "DELETE", "/api/v1/namespaces/"+p.Namespace+"/pods/"+p.Name, "", map[string]any{
						"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
					})
				}
			}
		}
	}
}

func (x *chaos) pick(n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.r.IntN(n)
}

// away stops the API for a while, or kills it and starts it again.
func (x *chaos) away(d time.Duration) {
	b, err := os.ReadFile(filepath.Join(x.dir, "kube-api.pid"))
	x.must(err)
	pid, err := strconv.Atoi(strings.Fields(string(b))[0])
	x.must(err)
	if x.pick(2) == 0 {
		x.must(syscall.Kill(pid, syscall.SIGSTOP))
		time.Sleep(8 * d) // nobody answers; the longest is more than a lease
		x.must(syscall.Kill(pid, syscall.SIGCONT))
		return
	}
	x.must(syscall.Kill(pid, syscall.SIGKILL))
	waittest.For(x.T, "the API has ended", func() bool { // it has much memory to give back
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		threads, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task")) // while one is left its ports are taken
		return err != nil || strings.Contains(string(stat), ") Z ") && len(threads) <= 1
	})
	time.Sleep(d) // nobody listens
	if out, err := exec.Command("../../test/peers/kube.sh", "start", x.dir).CombinedOutput(); err != nil {
		x.Fatalf("%v\n%s", err, out)
	}
}

func (x *chaos) live(role chaosRole) {
	var log waittest.Buffer
	running := map[string]*exec.Cmd{}
	start := func(name string) {
		role.Holder = name
		doc, err := json.Marshal(role)
		x.must(err)
		cmd := exec.CommandContext(x.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), chaosEnv+"="+string(doc), "GOMAXPROCS=2")
		cmd.Stderr = &log
		_, err = cmd.StdinPipe() // open until this process ends
		x.must(err)
		x.must(cmd.Start())
		running[name] = cmd
	}
	kill := func(name string) {
		if cmd := running[name]; cmd != nil {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait() // it was killed
			running[name] = nil
		}
	}
	defer func() { kill("a"); kill("b") }()
	start("a")
	start("b")
	for range 8 + x.pick(6) {
		wait := time.Duration(x.pick(300)) * time.Millisecond
		name := []string{"a", "b"}[x.pick(2)]
		time.Sleep(wait) // trouble comes at times of its own
		if x.pick(3) == 0 {
			x.away(wait)
		} else {
			kill(name)
		}
		for _, name := range []string{"a", "b"} {
			if running[name] == nil && x.pick(2) == 0 {
				start(name)
			}
		}
	}
	x.mu.Lock()
	x.calm = true
	x.mu.Unlock()
	if running["a"] == nil {
		start("a")
	}
	defer func() {
		if x.Failed() {
			x.Logf("told:\n%s", log.String())
		}
	}()
	waittest.Until(x.T, func() error {
		var left int
		err := x.db.QueryRowContext(x.Context(), `SELECT count(*) + (SELECT count(*) FROM control_cases WHERE state='open') FROM records
WHERE kind='incident' AND NOT EXISTS (SELECT 1 FROM control_cases WHERE reason=records.id)`).Scan(&left)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d cases never end", left)
		}
		return err
	})
	kill("a")
	kill("b")
	x.judge()
}

// judge holds what must be so in the end.
func (x *chaos) judge() {
	as, _, err := records.New(x.db).Actions(x.Context(), records.Filter{Limit: 1000})
	x.must(err)
	ticket, ends := map[string]bool{}, map[string]int{}
	for _, a := range as {
		ticket[a.Server] = ticket[a.Server] || a.Kind == "ticket"
		ends[a.Kind+" "+a.State]++
		if a.State == schemas.ActionFailed || a.State == schemas.ActionUnknown {
			x.Logf("%s of %s: %s", a.Kind, a.Server, a.Detail)
		}
	}
	for _, name := range append(slices.Clone(chaosSick), chaosWell) {
		n := x.read(name)
		_, ours := markOf(n)
		pods, err := x.admin.pods(x.Context(), name)
		x.must(err)
		x.mu.Lock()
		switch {
		case name == chaosWell && len(pods) != 1:
			x.violated("the pod of %s was evicted", name)
		case ours && !ticket[name]:
			x.violated("%s stays out of the pool, and nobody is told", name)
		case !ours && n.Spec.Unschedulable != (name == chaosForeign):
			x.violated("%s is unschedulable: %t", name, n.Spec.Unschedulable)
		}
		x.mu.Unlock()
	}
	x.Logf("%v", ends)
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.broken) > 0 {
		x.Errorf("seed %d: %s\n%s", x.seed, strings.Join(x.broken, "\n"), strings.Join(x.told, "\n"))
	}
}

// TestChaosWithTheAPIAway is for as many runs as AUSPEX_KUBERNETES_CHAOS_RUNS says, and as long as AUSPEX_CHAOS_FOR.
func TestChaosWithTheAPIAway(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("AUSPEX_KUBERNETES_CHAOS_RUNS"))
	if err != nil {
		t.Skip("it takes a real Kubernetes API away: make chaos runs it")
	}
	dir := t.TempDir()
	t.Cleanup(func() { _, _ = exec.Command("../../test/peers/kube.sh", "stop", dir).Output() })
	out, err := exec.Command("../../test/peers/kube.sh", "start", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t.Setenv(name, value)
	}
	s := realSite(t)
	owner := s.controller("ReplicaSet", "train")
	seeds, began := rand.Uint64()>>1, time.Now()
	if n, err := strconv.ParseUint(os.Getenv("AUSPEX_CHAOS_SEED"), 10, 64); err == nil {
		runs, seeds = 1, n
	}
	enough, err := time.ParseDuration(os.Getenv("AUSPEX_CHAOS_FOR"))
	if err != nil {
		enough = 24 * time.Hour
	}
	for i := 0; i < runs && time.Since(began) < enough; i++ {
		seed := seeds + uint64(i) //nolint:gosec // small
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { chaosRun(t, s, owner, seed, dir) }) {
			break
		}
	}
}

func chaosRun(t *testing.T, s *site, owner map[string]any, seed uint64, dir string) {
	x := &chaos{
		site: &site{T: t, admin: s.admin, space: s.space}, seed: seed, dir: dir, r: rand.New(rand.NewPCG(seed, 7)), booted: map[string]time.Time{}, sent: map[string]int{},
		marks: map[string][]string{}, out: map[string]bool{}, back: map[string]time.Time{},
	}
	file := sqltest.File(t)
	db, err := sqldb.Connect(t.Context(), file)
	x.must(err)
	defer func() { _ = db.Close() }()
	x.db = db
	role := chaosRole{DSN: file, Kubeconfig: os.Getenv("KUBE_AUSPEX"), Policy: filepath.Join(t.TempDir(), "policy.yaml")}
	x.must(os.WriteFile(role.Policy, []byte(chaosPolicy), 0o600))
	store, now := records.New(db), time.Now().UTC()
	for _, name := range append(slices.Clone(chaosSick), chaosWell) {
		x.node(name, nil, map[string]any{"unschedulable": name == chaosForeign})
		x.pod(name, "train-"+name, "train", owner, nil)
		t.Cleanup(func() {
			_ = x.admin.call(context.Background(), "DELETE", "/api/v1/namespaces/"+x.space+"/pods/train-"+name, "", map[string]any{
				"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
			})
		})
		if name == chaosWell {
			continue
		}
		i := schemas.Incident{
			ID: name, Opened: now, Updated: now, At: now, RootCause: schemas.Cause{Resource: name + "/gpu2", Fault: "gpu.fallen_off_bus", Confidence: .9},
			Explanation: "because", Events: []string{name + "-e", name + "-b"},
		}
		for id, source := range map[string]string{"-e": schemas.SourceKmsg, "-b": schemas.SourceRedfish} {
			a := schemas.Alert{
				Event: schemas.Event{
					ID: name + id, Resource: name + "/gpu2", Type: schemas.EventGPUXID, Source: source, Severity: schemas.SeverityCritical, Time: now, Observed: now,
				},
				Server: name, Status: schemas.AlertResolved, Fingerprint: name + id,
			}
			x.must(store.PutAlert(t.Context(), a))
		}
		x.must(store.PutIncident(t.Context(), i))
	}
	first := x.read(chaosWell).ResourceVersion
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { x.watches(ctx, first) })
	wg.Go(func() { x.kubelets(ctx) })
	defer wg.Wait()
	defer cancel()
	server := httptest.NewServer(x)
	defer server.Close()
	role.World = server.URL
	x.live(role)
}
