package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/run"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Two controllers over one store, in processes of their own, that are killed again and again, while devices and
// schedulers lie, lose answers, answer late or not at all, and the store is locked. The devices live in the test, which
// so knows what was really sent. AUSPEX_CHAOS_RUNS says how many runs (make chaos: 1000), AUSPEX_CHAOS_FOR for how long at
// most; AUSPEX_CHAOS_SEED repeats what a run with that seed draws, though not how processes are scheduled.

// chaosEnv tells the test binary that it is a controller.
const chaosEnv = "AUSPEX_CHAOS_CONTROLLER"

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

// chaosRole is what a controller is told.
type chaosRole struct{ DSN, World, Holder, Policy string }

const (
	chaosPolicy = `
budgets: {fleet: 2, rack: 1, per_hour: 99}
breaker: {cases: 99, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    min_confidence: 0.5
    settle: 0s
    max_evidence_age: 1h
    ladder:
      - {kind: drain, attempts: 2, verify: 500ms}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 500ms, quiet: 60ms}
      - {kind: uncordon, needs: [power_cycle], attempts: 2, verify: 500ms}
`
	chaosFleet = 2
	chaosSick  = 4 // servers with an incident
	chaosAll   = 6
)

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
	r := remote{role.World}
	for ctx.Err() == nil {
		cfg := DefaultConfig()
		cfg.Mode, cfg.Policies, cfg.Poll, cfg.LeaseTTL, cfg.CallTime = schemas.ModeEnforce, role.Policy, 10*time.Millisecond, 500*time.Millisecond, 300*time.Millisecond
		cfg.ApproveWithin = 3 * time.Second
		c, err := New(cfg, Deps{
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: time.Now, DB: db, Records: records.New(db), Bus: &storeBus{records: records.New(db)},
			Inventory: place{}, Holder: role.Holder, Remediators: map[string]Remediator{kindDrain: r, "power_cycle": r, kindUncordon: r}, Life: r, View: eyes,
		})
		if err != nil {
			return err
		}
		c.after = func(d time.Duration) <-chan time.Time { return time.After(min(d, 100*time.Millisecond)) }
		if err := c.Run(ctx, func() {}); err != nil {
			fmt.Fprintln(os.Stderr, role.Holder, "begins anew:", err)
			_ = run.Sleep(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

// storeBus hands over the incidents of a store.
type storeBus struct {
	nullBus
	records *records.Store
}

func (b *storeBus) Publish(context.Context, ...bus.Message) error { return nil }

func (b *storeBus) Subscribe(ctx context.Context, s bus.Subscription, handle bus.Handler) error {
	if s.Topic != schemas.TopicIncidents {
		<-ctx.Done()
		return nil
	}
	for run.Sleep(ctx, 50*time.Millisecond) == nil {
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
	return nil
}

// remote is the world as a controller reaches it.
type remote struct{ url string }

// saying is what the world answers.
type saying struct {
	Err     string
	Verdict Verdict
	Mute    bool
	Dead    bool
	Booted  time.Time
}

func (r remote) ask(ctx context.Context, what string, s Step) (a saying, err error) {
	doc, err := json.Marshal(s)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+what, bytes.NewReader(doc))
	if err != nil {
		return a, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return a, errors.New(res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return a, err
	}
	switch a.Err {
	case "":
	case "rejected":
		err = ErrRejected
	case "already":
		err = ErrAlready
	default:
		err = errors.New(a.Err)
	}
	return a, err
}

func (r remote) Plan(context.Context, Step) (schemas.Sentence, error) { return schemas.Sentence{}, nil }

func (r remote) Apply(ctx context.Context, s Step) error {
	_, err := r.ask(ctx, "/apply", s)
	return err
}

func (r remote) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	a, err := r.ask(ctx, "/verify", s)
	return a.Verdict, messages.New(messages.PowerBack, nil), err
}

// Follow implements Life.
func (r remote) Follow(ctx context.Context, server string, observe func(Observation)) error {
	w := newWorld()
	go func() {
		for run.Sleep(ctx, 10*time.Millisecond) == nil {
			a, err := r.ask(ctx, "/read", Step{Server: server})
			w.mu.Lock()
			w.mute[server], w.dead[server], w.reboots[server] = a.Mute || err != nil, a.Dead, a.Booted
			w.mu.Unlock()
		}
	}()
	w.mute[server] = true
	return exporter{w}.Follow(ctx, server, observe)
}

// chaos is one run.
type chaos struct {
	t    *testing.T
	seed uint64
	db   *sqldb.DB

	mu       sync.Mutex
	r        *rand.Rand
	w        *world
	foreign  map[string]bool
	awayTill time.Time // the scheduler
	muteTill map[string]time.Time
	calm     bool
	broken   []string
	sent     []string
}

// violated notes what must not be; mu is held.
func (x *chaos) violated(format string, args ...any) {
	x.broken = append(x.broken, fmt.Sprintf(format, args...))
}

func (x *chaos) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var s Step
	if err := json.NewDecoder(req.Body).Decode(&s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	x.mu.Lock()
	away := s.Kind != "power_cycle" && time.Now().Before(x.awayTill)
	mute := time.Now().Before(x.muteTill[s.Server])
	var a saying
	var late time.Duration
	switch {
	case req.URL.Path == "/read":
		a.Mute, a.Dead, a.Booted = mute || time.Since(x.w.reboots[s.Server]) < bootTime, x.w.dead[s.Server], x.w.reboots[s.Server]
	case away:
		x.mu.Unlock()
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	case req.URL.Path == "/verify" && mute:
		a.Err = "no answer"
	case req.URL.Path == "/verify":
		a.Verdict, _, _ = worldStep{x.w}.Verify(req.Context(), s)
		if s.Kind == kindDrain && x.foreign[s.Server] {
			a.Verdict = Verified
		}
	default:
		a.Err, late = x.apply(s)
	}
	x.mu.Unlock()
	if late > 0 {
		time.Sleep(late) // a device that takes its time
	}
	if a.Err == "lost" {
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(a)
}

// apply holds, as a device would see it, what must be so whenever something is sent, and does it or not.
func (x *chaos) apply(s Step) (answer string, late time.Duration) {
	x.sent = append(x.sent, fmt.Sprint(time.Now().Format("05.000"), " ", s.Kind, " ", s.Server, " ", s.ID))
	x.w.applied[s.ID]++
	if x.w.applied[s.ID] > 1 {
		x.violated("%s of %s was sent twice", s.Kind, s.Server)
	}
	var unfinished, sick int
	_, _ = fmt.Sscanf(s.Server, "gpu-r%02d-", &sick)
	if sick > chaosSick {
		x.violated("%s of %s, which nothing is said of", s.Kind, s.Server)
	}
	err := x.db.QueryRowContext(x.t.Context(), `SELECT count(*) FROM control_actions a JOIN control_cases c ON c.id = a.case_id
WHERE c.subject=$1 AND a.state IN ('running','verifying')`, s.Server).Scan(&unfinished)
	if err == nil && unfinished > 1 {
		x.violated("%d unfinished actions on %s", unfinished, s.Server)
	}
	how := "well"
	if !x.calm {
		how = []string{"well", "well", "well", "lost", "void", "lie", "late", "rejected", "no, and does it"}[x.r.IntN(9)]
	}
	switch how {
	case "void":
		return "lost", 0
	case "lie":
		return "", 0
	case "rejected":
		return "rejected", 0
	}
	switch s.Kind {
	case kindDrain:
		if x.foreign[s.Server] {
			return "already", 0
		}
		x.w.drained[s.Server] = true
		n := 0
		for _, d := range x.w.drained {
			if d {
				n++
			}
		}
		if n > chaosFleet {
			x.violated("%d servers are out, the budget is %d", n, chaosFleet)
		}
	case "power_cycle":
		if !x.w.drained[s.Server] && !x.foreign[s.Server] {
			x.violated("%s was cycled undrained", s.Server)
		}
		x.w.reboots[s.Server] = time.Now()
	case kindUncordon:
		if x.foreign[s.Server] { // as a scheduler's driver answers: the mark is somebody else's
			return "rejected", 0
		}
		if x.w.reboots[s.Server].IsZero() {
			x.violated("%s was given back unrepaired", s.Server)
		}
		x.w.drained[s.Server] = false
	}
	switch how {
	case "lost", "no, and does it":
		return "lost", 0
	case "late":
		return "", time.Duration(x.r.IntN(500)) * time.Millisecond
	}
	return "", 0
}

// controller starts one of the two, which ends with the test at the latest.
func (x *chaos) controller(role chaosRole, log io.Writer) *exec.Cmd {
	doc, err := json.Marshal(role)
	if err != nil {
		x.t.Fatal(err)
	}
	cmd := exec.CommandContext(x.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), chaosEnv+"="+string(doc), "GOMAXPROCS=2")
	cmd.Stderr = log
	if _, err := cmd.StdinPipe(); err != nil { // open until this process ends
		x.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		x.t.Fatal(err)
	}
	return cmd
}

// pick draws a number below n.
func (x *chaos) pick(n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.r.IntN(n)
}

// live is a run: trouble for a while, then quiet until every case has ended.
func (x *chaos) live(role chaosRole) (ends map[string]int) {
	t := x.t
	var log syncBuffer
	running := map[string]*exec.Cmd{}
	start := func(name string) {
		role.Holder = name
		running[name] = x.controller(role, &log)
	}
	kill := func(name string) {
		if cmd := running[name]; cmd != nil {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait() // it was killed
			running[name] = nil
		}
	}
	defer func() {
		kill("a")
		kill("b")
	}()
	start("a")
	start("b")
	for range 8 + x.pick(8) {
		wait := time.Duration(x.pick(150)) * time.Millisecond
		name := []string{"a", "b"}[x.pick(2)]
		time.Sleep(wait) // trouble comes at times of its own
		switch x.pick(6) {
		case 0, 1, 2:
			kill(name)
			if x.pick(3) > 0 {
				start(name)
			}
		case 3:
			x.mu.Lock()
			x.awayTill = time.Now().Add(wait)
			x.mu.Unlock()
		case 4:
			x.mu.Lock()
			x.muteTill[fmt.Sprintf("gpu-r%02d-01", 1+x.r.IntN(chaosSick))] = time.Now().Add(2 * wait)
			x.mu.Unlock()
		case 5:
			x.lock(wait)
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
	end := time.Now().Add(time.Minute)
	for {
		var left int
		err := x.db.QueryRowContext(t.Context(), `SELECT count(*) + (SELECT count(*) FROM control_cases WHERE state='open') FROM records
WHERE kind='incident' AND NOT EXISTS (SELECT 1 FROM control_cases WHERE reason=records.id)`).Scan(&left)
		if err == nil && left == 0 {
			break
		}
		if time.Now().After(end) {
			x.mu.Lock()
			x.violated("%d cases never end (%v)", left, err)
			x.mu.Unlock()
			break
		}
		time.Sleep(20 * time.Millisecond) // another look
	}
	kill("a")
	kill("b")
	ends = x.judge()
	if len(x.broken) > 0 {
		t.Errorf("seed %d: %s\nsent:\n%s\ntold:\n%s", x.seed, strings.Join(x.broken, "\n"), strings.Join(x.sent, "\n"), log.String())
	}
	return ends
}

// lock keeps everybody from writing for a while.
func (x *chaos) lock(d time.Duration) {
	conn, err := x.db.Conn(x.t.Context())
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(x.t.Context(), `BEGIN EXCLUSIVE`); err == nil {
		time.Sleep(d) // the store is away
		_, _ = conn.ExecContext(x.t.Context(), `ROLLBACK`)
	}
}

// judge holds what must be so in the end.
func (x *chaos) judge() map[string]int {
	t := x.t
	x.mu.Lock()
	defer x.mu.Unlock()
	as, _, err := records.New(x.db).Actions(t.Context(), records.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ends, ticket, unknown := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, a := range as {
		ends[a.Kind+" "+a.State]++
		ticket[a.Server] = ticket[a.Server] || a.Kind == kindTicket
		switch a.State {
		case schemas.ActionUnknown:
			unknown[a.Server] = unknown[a.Server] || a.Kind == "power_cycle" // others are tried again
		case schemas.ActionRunning, schemas.ActionVerifying:
			x.violated("%s of %s is left %s", a.Kind, a.Server, a.State)
		}
	}
	for i := range chaosAll {
		name := serverName(i)
		if unknown[name] && !ticket[name] {
			x.violated("nobody is told that an outcome on %s is unknown", name)
		}
		if x.w.drained[name] && !ticket[name] {
			x.violated("%s stays out of the pool, and nobody is told", name)
		}
	}
	if _, err := audit.Verify(t.Context(), x.db); err != nil {
		x.violated("%v", err)
	}
	return ends
}

// syncBuffer takes what two processes say.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// chaosRun is the run of a seed, over a copy of an empty store.
func chaosRun(t *testing.T, seed uint64, template []byte) map[string]int {
	dir := t.TempDir()
	role := chaosRole{DSN: filepath.Join(dir, "auspex.db"), Policy: filepath.Join(dir, "policy.yaml")}
	writeFile(t, role.Policy, chaosPolicy)
	writeFile(t, role.DSN, string(template))
	db, err := sqldb.Connect(t.Context(), role.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	x := &chaos{
		t: t, seed: seed, db: db, r: rand.New(rand.NewPCG(seed, 7)), w: newWorld(), foreign: map[string]bool{}, muteTill: map[string]time.Time{},
	}
	b := &bench{t: t, db: db}
	for i := range chaosSick {
		b.keep(incident(fmt.Sprint("i", i), fmt.Sprintf("%s/gpu%d", serverName(i), 2), "gpu.fallen_off_bus"))
		x.w.dead[serverName(i)] = x.r.IntN(4) == 0
	}
	if x.r.IntN(2) == 0 {
		x.foreign[serverName(x.r.IntN(chaosSick))] = true
	}
	server := httptest.NewServer(x)
	defer server.Close()
	role.World = server.URL
	return x.live(role)
}

func TestChaos(t *testing.T) {
	runs, seeds := 3, rand.Uint64()>>1
	if testing.Short() {
		runs = 1
	}
	if n, err := strconv.Atoi(os.Getenv("AUSPEX_CHAOS_RUNS")); err == nil {
		runs = n
	}
	if n, err := strconv.ParseUint(os.Getenv("AUSPEX_CHAOS_SEED"), 10, 64); err == nil {
		runs, seeds = 1, n
	}
	enough := time.Now().Add(24 * time.Hour)
	if d, err := time.ParseDuration(os.Getenv("AUSPEX_CHAOS_FOR")); err == nil {
		enough = time.Now().Add(d)
	}
	empty := filepath.Join(t.TempDir(), "empty.db")
	db, err := sqldb.Open(t.Context(), empty)
	if err == nil {
		err = db.Close() // writes what the log beside it holds into the file
	}
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile(empty)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	all, done, next := map[string]int{}, 0, 0
	for range min(runs, 2*runtime.GOMAXPROCS(0)) { // a run waits most of its time
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= runs || time.Now().After(enough) {
					return
				}
				seed := seeds + uint64(i) //nolint:gosec // small
				ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					ends := chaosRun(t, seed, template)
					mu.Lock()
					defer mu.Unlock()
					done++
					for k, n := range ends {
						all[k] += n
					}
				})
				if !ok {
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d runs ended with %v", done, all)
}
