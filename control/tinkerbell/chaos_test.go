package tinkerbell

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// Two controllers in processes of their own install servers through a Kubernetes API that dies in the middle, again and again, loses
// requests and answers, or does not answer, while either controller is killed. The API and the machines live in the test, which so sees
// every change of an object as it is made: what must be so is held against that, and not against what the controllers wrote.

// chaosEnv tells the test binary that it is a controller.
const chaosEnv = "AUSPEX_TINKERBELL_CHAOS"

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

// A flaw takes one protection away, for the test to see that it is missed.
type flaw string

const (
	flawless    flaw = ""
	noRival     flaw = "nobody looks for the workflows of others"
	noClosing   flaw = "what was opened is not closed"
	cyclesAgain flaw = "that a power cycle was sent is not written down"
)

type chaosRole struct {
	DSN, Kubeconfig, World, Holder, Policy string
	Broken                                 flaw
}

const (
	chaosTheirs = "srv-theirs" // a workflow of somebody else goes on there
	chaosWell   = "srv-well"   // for which nobody asks
)

// chaosAsked are the servers that are to be installed, the first of them twice.
var chaosAsked = []string{"srv-0", "srv-0", "srv-1", "srv-2", chaosTheirs}

func chaosAll() []string { return []string{"srv-0", "srv-1", "srv-2", chaosTheirs, chaosWell} }

func chaosMAC(server string) string {
	return fmt.Sprintf("02:00:00:00:01:%02x", slices.Index(chaosAll(), server))
}

// chaosInstalls is what they are installed with.
type chaosInstalls map[string]*stock

// Hardware implements control.Installs.
func (s chaosInstalls) Hardware(ctx context.Context, server string) (schemas.HardwareRecord, error) {
	if one := s[server]; one != nil {
		return one.Hardware(ctx, server)
	}
	return schemas.HardwareRecord{}, fmt.Errorf("%w: there is no server %s", control.ErrCannot, server)
}

// Template implements control.Installs.
func (s chaosInstalls) Template(ctx context.Context, name string, version int64) (schemas.Template, error) {
	return s[chaosWell].Template(ctx, name, version)
}

// negligent is an installer without one of its protections.
type negligent struct {
	*installer
	without flaw
}

// Pursue implements control.Pursuer.
func (n negligent) Pursue(ctx context.Context, s control.Step) error {
	if n.without == cyclesAgain {
		if w, err := n.workflow(ctx, workflowName(s)); err == nil && w != nil && w.Annotations[bootPhase] == phaseCycle && !w.ended() {
			_ = n.cycle.Apply(ctx, part(s, "power_cycle", nil))
		}
	}
	return n.installer.Pursue(ctx, s)
}

// Verify implements control.Remediator.
func (n negligent) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	if n.without == noClosing {
		if w, err := n.workflow(ctx, workflowName(s)); err == nil && w != nil && w.ended() {
			return map[bool]control.Verdict{true: control.Verified, false: control.Failed}[w.state() == stateSuccess], n.says(ctx, s, w), nil
		}
	}
	return n.installer.Verify(ctx, s)
}

// Follow implements control.Follower.
func (n negligent) Follow(ctx context.Context) {
	if n.without != noClosing {
		n.installer.Follow(ctx)
	}
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
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	stocks := chaosInstalls{}
	for _, name := range chaosAll() {
		stocks[name] = newStock(name, chaosMAC(name))
	}
	c := defaults()
	c.Kubeconfig, c.Deadline = role.Kubeconfig, 8*time.Second
	for ctx.Err() == nil {
		all, err := c.Remediators(control.Settings{Installs: stocks, Secrets: stocks[chaosWell], Log: log})
		if err != nil {
			return err
		}
		i := all[kindInstall].(*installer)
		i.arrives = 3 * time.Second
		board := chaosBoard{role.World}
		i.Through(map[string]control.Remediator{"set_boot": board, "power_cycle": board})
		if role.Broken != flawless {
			all[kindInstall] = negligent{i, role.Broken}
			delete(all, kindReinstall) // which would follow the API
			delete(all, kindWipe)
		}
		cfg := control.DefaultConfig()
		cfg.Mode, cfg.Policies, cfg.Poll, cfg.LeaseTTL, cfg.CallTime = schemas.ModeEnforce, role.Policy, 50*time.Millisecond, time.Second, 2*time.Second
		ctl, err := control.New(cfg, control.Deps{
			Log: log, Now: time.Now, DB: db, Records: records.New(db), Bus: asking{role.World}, Inventory: alone{}, Holder: role.Holder, Remediators: all,
			View: func(string) schemas.View { return schemas.ViewHost },
		})
		if err != nil {
			return err
		}
		if err := ctl.Run(ctx, func() {}); err != nil {
			fmt.Fprintln(os.Stderr, role.Holder, "begins anew:", err)
			_ = run.Sleep(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

type alone struct{}

func (alone) Kind(string) string { return schemas.KindServer }

func (alone) Place(resource string) (server, rack, site string, ok bool) {
	return resource, resource, "dc1", true
}

// asking hands over what is asked for, again and again.
type asking struct{ url string }

func (asking) Publish(context.Context, ...bus.Message) error   { return nil }
func (asking) Partitions(context.Context, string) (int, error) { return 1, nil }
func (asking) Close() error                                    { return nil }

func (b asking) Subscribe(ctx context.Context, s bus.Subscription, handle bus.Handler) error {
	for s.Topic == schemas.TopicIntents && run.Sleep(ctx, 100*time.Millisecond) == nil {
		var all []schemas.Intent
		if err := post(ctx, b.url+"/asked", nil, &all); err != nil {
			continue
		}
		var msgs []bus.Message
		for k := range all {
			doc, err := json.Marshal(all[k])
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

func post(ctx context.Context, url string, body, into any) error {
	doc, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(doc))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	return json.NewDecoder(res.Body).Decode(into)
}

// chaosBoard is the board controllers, as a controller reaches them.
type chaosBoard struct{ url string }

func (chaosBoard) Plan(context.Context, control.Step) (schemas.Sentence, error) {
	return schemas.Sentence{}, nil
}

func (b chaosBoard) Apply(ctx context.Context, s control.Step) error {
	var set bool
	return post(ctx, b.url+"/apply", s, &set)
}

func (b chaosBoard) Verify(ctx context.Context, s control.Step) (control.Verdict, schemas.Sentence, error) {
	var set bool
	if err := post(ctx, b.url+"/read", s, &set); err != nil || !set {
		return control.Pending, messages.New(messages.BootIs, messages.Args{"now": "-"}), err
	}
	return control.Verified, schemas.Sentence{}, nil
}

// chaos is one run.
type chaos struct {
	*testing.T
	api *api

	mu     sync.Mutex
	r      *rand.Rand
	calm   bool
	asked  []schemas.Intent
	boots  map[string]bool // servers that start from the network next
	cycles map[string]int  // by id of the step
	made   map[string]int  // workflows of ours, by name
	good   map[string]bool // those that came to their end well
	broken []string
	told   []string
	wg     sync.WaitGroup
}

func (x *chaos) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

func (x *chaos) pick(n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.r.IntN(n)
}

// says notes what happens; mu is held.
func (x *chaos) says(format string, args ...any) {
	x.told = append(x.told, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// violated notes what must not be; mu is held.
func (x *chaos) violated(format string, args ...any) {
	x.broken = append(x.broken, fmt.Sprintf(format, args...))
	x.says(format, args...)
}

// failures is how many things were that must not be.
func (x *chaos) failures() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.broken)
}

// read is an object as the driver reads it.
func read[T any](o map[string]any) (out T) {
	b, _ := json.Marshal(o)
	_ = json.Unmarshal(b, &out)
	return out
}

// sees holds what must be so with each change of an object; the API is locked.
func (x *chaos) sees(kind, resource string, o map[string]any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch resource {
	case hardware:
		h := read[Hardware](o)
		x.says("hardware %s %s, open %t for %q", h.Name, kind, h.open(), h.Annotations[netbootFor])
		if h.Name == chaosWell || h.Name == chaosTheirs && h.open() {
			x.violated("%s was changed without a reason", h.Name)
		}
	case workflows:
		w := read[Workflow](o)
		x.says("workflow %s of %s %s, %s, boot %q", w.Name, w.Spec.HardwareRef, kind, w.state(), w.Annotations[bootPhase])
		if kind != "ADDED" || !w.ours() {
			return
		}
		if x.made[w.Name]++; x.made[w.Name] > 1 {
			x.violated("the workflow %s was made twice", w.Name)
		}
		for key, o := range x.api.objects {
			other := read[Workflow](o)
			if strings.HasPrefix(key, workflows+"/") && other.Name != w.Name && !other.ended() && other.Spec.HardwareRef == w.Spec.HardwareRef {
				x.violated("%s has two workflows, %s and %s", w.Spec.HardwareRef, other.Name, w.Name)
			}
		}
	}
}

// ServeHTTP implements http.Handler: board controllers, and who asks.
func (x *chaos) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var s control.Step
	if err := json.NewDecoder(req.Body).Decode(&s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if req.URL.Path == "/asked" {
		x.mu.Lock()
		defer x.mu.Unlock()
		_ = json.NewEncoder(w).Encode(x.asked)
		return
	}
	live := ""
	if req.URL.Path == "/apply" && s.Kind == "power_cycle" {
		live = x.openFor(s.Server)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	how := "well"
	if req.URL.Path == "/apply" {
		if !x.calm {
			how = []string{"well", "well", "lost", "void"}[x.r.IntN(4)]
		}
		x.says("%s of %s: %s", s.Kind, s.Server, how)
		if s.Kind == "set_boot" {
			x.boots[s.Server] = x.boots[s.Server] || how != "void"
		} else {
			x.cycled(s, live, how)
		}
	}
	if how != "well" {
		panic(http.ErrAbortHandler) // no answer
	}
	_ = json.NewEncoder(w).Encode(x.boots[s.Server])
}

// openFor is the live workflow for which a server may start from the network.
func (x *chaos) openFor(server string) string {
	h := read[Hardware](x.api.of(hardware, server))
	name := h.Annotations[netbootFor]
	if w := read[Workflow](x.api.of(workflows, name)); name == "" || !h.open() || w.Name == "" || w.ended() {
		return ""
	}
	return name
}

// cycled holds what must be so when the power of a server is cycled, and has it start; mu is held.
func (x *chaos) cycled(s control.Step, live, how string) {
	if x.cycles[s.ID]++; x.cycles[s.ID] > 1 {
		x.violated("the power cycle of %s was sent twice", s.Server)
	}
	switch {
	case live == "" && x.calm:
		x.violated("%s was power-cycled while it has no workflow", s.Server)
	case !slices.Contains(chaosAsked, s.Server), s.Server == chaosTheirs:
		x.violated("%s was power-cycled without a reason", s.Server)
	}
	if how == "void" || live == "" || !x.boots[s.Server] {
		return
	}
	x.boots[s.Server] = false
	end := []string{stateSuccess, stateSuccess, stateSuccess, stateFailed, ""}[x.r.IntN(5)]
	waits := []time.Duration{time.Duration(x.r.IntN(200)) * time.Millisecond, time.Duration(x.r.IntN(300)) * time.Millisecond}
	x.wg.Go(func() {
		for k, state := range []string{stateRunning, end} {
			time.Sleep(waits[k]) // a machine works
			if state != "" && !x.turns(live, state) {
				return
			}
		}
	})
}

// turns has the worker of a workflow tell its state; false is that it is there no more.
func (x *chaos) turns(name, state string) bool {
	x.api.mu.Lock()
	defer x.api.mu.Unlock()
	o := x.api.objects[workflows+"/"+name]
	if w := read[Workflow](o); o == nil || w.ended() {
		return false
	}
	next := deep(o)
	merge(next, map[string]any{"status": map[string]any{"state": "STATE_" + state, "tasks": []any{map[string]any{"worker": "w", "actions": []any{
		map[string]any{"name": "write", "status": "STATE_" + state, "timeout": 90, "startedAt": time.Now().UTC().Format(time.RFC3339)},
	}}}}})
	x.api.put("MODIFIED", workflows, next)
	if state == stateSuccess {
		x.mu.Lock()
		x.good[name] = true
		x.mu.Unlock()
	}
	return true
}

// door is where the API is reached: it can be dead, or mute.
type door struct {
	*chaos
	addr  string
	srv   *http.Server
	mute  sync.RWMutex
	blind bool
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mute.RLock()   // held where nobody answers
	d.mute.RUnlock() //nolint:staticcheck // it waits for nothing but that
	if d.blind && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+workflows) && r.URL.Query().Get("watch") == "" {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"WorkflowList","apiVersion":"`+group.String()+`","metadata":{"resourceVersion":"1"},"items":[]}`)
		return
	}
	d.api.ServeHTTP(w, r)
}

// own is a loopback address whose ports nobody's connections take while the API is dead.
var own = map[bool]string{true: "127.0.0.77", false: "127.0.0.1"}[runtime.GOOS == "linux"]

func (d *door) start() {
	// A client that dials while nobody listens may be given the very port, and speaks to itself until it sees so.
	l, err := net.Listen("tcp", d.addr)
	for end := time.Now().Add(10 * time.Second); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); l, err = net.Listen("tcp", d.addr) {
		time.Sleep(10 * time.Millisecond) // until it has hung up
	}
	d.must(err)
	d.addr, d.srv = l.Addr().String(), &http.Server{Handler: d, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	srv := d.srv
	go func() { _ = srv.Serve(l) }()
}

// away has the API dead, or mute, for a while.
func (d *door) away(long time.Duration) {
	if d.pick(3) == 0 {
		d.mute.Lock()
		time.Sleep(5 * long) // nobody answers; the longest is more than a lease
		d.mute.Unlock()
		return
	}
	_ = d.srv.Close() // in the middle of what it answers
	time.Sleep(long)  // nobody listens
	d.start()
}

// live is a run: trouble, and then calm in which all comes to its end.
func (x *chaos) live(d *door, role chaosRole, db *sqldb.DB) {
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
	defer func() { kill("a"); kill("b"); x.wg.Wait(); _ = d.srv.Close() }()
	defer func() {
		if x.Failed() {
			x.Logf("told:\n%s", log.String())
		}
	}()
	start("a")
	start("b")
	for range 8 + x.pick(6) {
		wait := time.Duration(x.pick(300)) * time.Millisecond
		time.Sleep(wait) // trouble comes at times of its own
		if name := []string{"a", "b"}[x.pick(2)]; x.pick(3) > 0 {
			d.away(wait)
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
	x.says("calm")
	x.mu.Unlock()
	kill("a") // whose watch waits for longer after each death of the API
	kill("b")
	start("a")
	waittest.Until(x.T, func() error {
		as, _, err := records.New(db).Actions(x.Context(), records.Filter{Limit: 1000})
		if err != nil || x.failures() > 0 {
			return err
		}
		if n := len(slices.DeleteFunc(as, func(a schemas.Action) bool { return !a.Ended() })); n < len(x.asked) {
			return fmt.Errorf("%d of %d actions have ended", n, len(x.asked))
		}
		return nil
	})
	var open error
	for range 60 { // what was opened is closed by whoever looks next
		if open = x.open(); open == nil || x.failures() > 0 {
			break
		}
		time.Sleep(250 * time.Millisecond) // the driver tends what is left every ten seconds
	}
	x.judge(db, open)
}

// open is the error of what is left open.
func (x *chaos) open() (err error) {
	x.api.mu.Lock()
	defer x.api.mu.Unlock()
	for key, o := range x.api.objects {
		switch resource, name, _ := strings.Cut(key, "/"); resource {
		case hardware:
			if h := read[Hardware](o); h.open() || h.Annotations[netbootFor] != "" {
				err = errors.Join(err, fmt.Errorf("%s may start from the network for %q", name, h.Annotations[netbootFor]))
			}
		case templates:
			err = errors.Join(err, fmt.Errorf("the template %s is left, with its secrets", name))
		case workflows:
			if w := read[Workflow](o); w.ours() && !w.ended() {
				err = errors.Join(err, fmt.Errorf("the workflow %s goes on", name))
			}
		}
	}
	return err
}

// judge holds what must be so in the end.
func (x *chaos) judge(db *sqldb.DB, open error) {
	as, _, err := records.New(db).Actions(x.Context(), records.Filter{Limit: 1000})
	x.must(err)
	x.mu.Lock()
	defer x.mu.Unlock()
	if open != nil {
		x.violated("%v", open)
	}
	ends := map[string]int{}
	for _, a := range as {
		ends[a.State]++
		x.says("%s of %s: %s: %s", a.ID, a.Server, a.State, a.Detail)
		name := workflowName(control.Step{ID: a.ID})
		switch {
		case a.State == schemas.ActionDone && !x.good[name]:
			x.violated("%s of %s is done, and its workflow never was", a.ID, a.Server)
		case a.Server == chaosTheirs && a.State == schemas.ActionDone:
			x.violated("%s was installed beside somebody else", a.Server)
		case a.State != schemas.ActionDone && a.Detail == "":
			x.violated("%s of %s is %s, and nobody is told why", a.ID, a.Server, a.State)
		}
	}
	x.Logf("%v; %d workflows were made, %d came to their end well, %d power cycles were sent", ends, len(x.made), len(x.good), len(x.cycles))
}

// chaosRun is one run of a seed; it returns what must not have been.
func chaosRun(t *testing.T, seed uint64, broken flaw) (violations, told []string) {
	x := &chaos{
		T: t, api: newAPI(t), r: rand.New(rand.NewPCG(seed, 11)), boots: map[string]bool{}, cycles: map[string]int{}, made: map[string]int{}, good: map[string]bool{},
	}
	x.api.seen = x.sees
	x.api.hook = func(*http.Request) (before, after bool) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.calm {
			return false, false
		}
		n := x.r.IntN(12)
		return n == 0, n == 1
	}
	x.api.add(workflows, map[string]any{
		"metadata": map[string]any{"name": "theirs", "namespace": "tink", "uid": "y", "labels": map[string]any{managedBy: "capt"}}, "spec": map[string]any{"hardwareRef": chaosTheirs},
		"status": map[string]any{"state": "STATE_RUNNING"},
	})
	for n, server := range chaosAsked {
		x.asked = append(x.asked, schemas.Intent{
			ID: fmt.Sprintf("i-%d", n), Action: fmt.Sprintf("act-%d", n), Time: time.Now().UTC(), Verb: schemas.IntentRequest, Server: server, Target: server, Kind: kindInstall,
			With: map[string]string{"template": "linux", "version": "2", "force": "true"}, Reason: "a test", Actor: "li",
		})
	}
	file := sqltest.File(t)
	db, err := sqldb.Connect(t.Context(), file)
	x.must(err)
	defer func() { _ = db.Close() }()
	d := &door{chaos: x, addr: own + ":0", blind: broken == noRival}
	d.start()
	world := httptest.NewServer(x)
	defer world.Close()
	role := chaosRole{DSN: file, Kubeconfig: kubeconfigFor(t, "http://"+d.addr), World: world.URL, Policy: filepath.Join(t.TempDir(), "policy.yaml"), Broken: broken}
	x.must(os.WriteFile(role.Policy, []byte("budgets: {fleet: 3, rack: 3, per_hour: 99}\nbreaker: {cases: 99, window: 10m}\npolicies: []\n"), 0o600))
	x.live(d, role, db)
	return x.broken, x.told
}

// TestChaosInWorkflows is for as many runs as AUSPEX_KUBERNETES_CHAOS_RUNS says, as long as AUSPEX_CHAOS_FOR, and else for one.
func TestChaosInWorkflows(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("AUSPEX_KUBERNETES_CHAOS_RUNS"))
	if err != nil {
		runs = 1
	}
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
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if broken, told := chaosRun(t, seed, flawless); len(broken) > 0 {
				t.Errorf("seed %d: %s\n%s", seed, strings.Join(broken, "\n"), strings.Join(told, "\n"))
			}
		}) {
			break
		}
	}
}

// Each protection that is taken away is missed, in a few runs.
func TestChaosInWorkflowsFindsWhatIsBroken(t *testing.T) {
	if os.Getenv("AUSPEX_KUBERNETES_CHAOS_RUNS") == "" {
		t.Skip("make chaos runs it")
	}
	for _, broken := range []flaw{noRival, noClosing, cyclesAgain} {
		t.Run(string(broken), func(t *testing.T) {
			for seed := range uint64(8) {
				if found, _ := chaosRun(t, seed+1, broken); len(found) > 0 {
					t.Logf("run %d: %s", seed+1, found[0])
					return
				}
			}
			t.Error("nobody has noticed")
		})
	}
}
