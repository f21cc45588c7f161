package control

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/run"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// Two controllers over one store, in processes of their own, that are killed again and again, while devices and
// schedulers lie, lose answers, answer late or not at all, and the store is locked, full, or away. The devices live in
// the test, which so knows what was really sent: what must be so is held against that, and not against what the
// controllers wrote. AUSPEX_CHAOS_RUNS says how many runs (make chaos: 1000) and AUSPEX_POSTGRES_CHAOS_RUNS how many of those
// with PostgreSQL, AUSPEX_CHAOS_FOR for how long each at most; AUSPEX_CHAOS_SEED repeats what a run with that seed draws,
// though not how processes are scheduled. Package control/kubernetes has those in which its API is away.

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
type chaosRole struct {
	DSN, World, Holder, Policy string
	Broken                     flaw
}

// A flaw takes one protection away, for the test to see that it is missed.
type flaw string

const (
	flawless   flaw = ""
	noFence    flaw = "writes are not fenced"
	noBudget   flaw = "no budget is counted"
	noRack     flaw = "no rack is counted"
	sendsAgain flaw = "what was decided is decided again after a restart"
	noAge      flaw = "the age of evidence does not count"
	noClosing  flaw = "what has closed may come again"
	noOwner    flaw = "nobody is asked whose server it is"
	noDrain    flaw = "nothing is drained before"
	noMark     flaw = "what others have taken is given back"
	noTicket   flaw = "nobody is told"
)

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
	chaosFleet, chaosRack = 2, 1
	chaosCall             = 300 * time.Millisecond
	chaosAge              = time.Hour // as the policy has it

	// What stands against servers. Nothing may be done about the last four.
	chaosFades  = "gpu-r03-01" // its evidence becomes too old while the test runs
	chaosStale  = "gpu-r03-02" // its evidence was too old before
	chaosTheirs = "gpu-r04-01" // somebody has it, and is not asked
	chaosClosed = "gpu-r04-02" // its incident has closed, and comes again from the bus
	chaosWell   = "gpu-r05-01"
)

// chaosSick are the servers with an incident of this moment: two in a rack, of which one may be out.
var chaosSick = []string{"gpu-r01-01", "gpu-r01-02", "gpu-r02-01", "gpu-r02-02"}

// chaosAll are all servers.
func chaosAll() []string {
	return append(slices.Clone(chaosSick), chaosFades, chaosStale, chaosTheirs, chaosClosed, chaosWell)
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
	signal.Ignore(syscall.SIGXFSZ) // a file that may not grow is an error, as on a disk that is full
	db, err := sqldb.Connect(ctx, role.DSN)
	for err != nil && run.Sleep(ctx, 20*time.Millisecond) == nil { // the store is away: a process begins anew
		db, err = sqldb.Connect(ctx, role.DSN)
	}
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if role.Broken == noFence { // the same to the store, though they are two
		role.Holder = "both"
	}
	r := remote{role.World}
	for ctx.Err() == nil {
		cfg := DefaultConfig()
		cfg.Mode, cfg.Policies, cfg.Poll, cfg.LeaseTTL, cfg.CallTime = schemas.ModeEnforce, role.Policy, 10*time.Millisecond, 500*time.Millisecond, chaosCall
		cfg.ApproveWithin = 3 * time.Second
		c, err := New(cfg, Deps{
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Now: time.Now, DB: db, Records: records.New(db), Bus: &storeBus{records: records.New(db)},
			Inventory: place{}, Holder: role.Holder, Remediators: map[string]Remediator{kindDrain: r, "power_cycle": r, kindUncordon: r}, Life: r, View: eyes,
		})
		if err != nil {
			return err
		}
		c.after = func(d time.Duration) <-chan time.Time { return time.After(min(d, 100*time.Millisecond)) }
		if err := c.breaks(ctx, role.Broken); err != nil {
			return err
		}
		if err := c.Run(ctx, func() {}); err != nil {
			fmt.Fprintln(os.Stderr, role.Holder, "begins anew:", err)
			_ = run.Sleep(ctx, 20*time.Millisecond)
		}
	}
	return nil
}

// breaks takes away what a flaw lacks.
func (c *Controller) breaks(ctx context.Context, f flaw) error {
	switch f {
	case noFence: // whoever leads, each takes it to be itself
		go func() {
			for run.Sleep(ctx, time.Millisecond) == nil {
				var token int64
				if c.store.db.QueryRowContext(ctx, `SELECT token FROM control_leases WHERE subject=$1`, leadership).Scan(&token) == nil && c.store.term.Load() > 0 {
					c.store.term.Store(token)
				}
			}
		}()
	case sendsAgain:
		_, err := c.store.db.ExecContext(ctx, `UPDATE control_actions SET state='waiting', intent_ns=0, doc=REPLACE(doc, '"state":"running"', '"state":"waiting"') WHERE state='running'`)
		return err
	}
	return nil
}

// storeBus hands over the incidents of a store, and again and again what was said of one that has closed since.
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
		closed, _, err := b.records.Incident(ctx, chaosClosed)
		if err != nil {
			return err
		}
		closed.Closed = nil
		incs = append(incs, closed)
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
		for run.Sleep(ctx, 20*time.Millisecond) == nil {
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
	fades    time.Time // when the evidence against a server becomes too old
	flaw     flaw
	away     func(running []int, d time.Duration) // takes the store from everybody
	calm     bool
	broken   []string
	sent     []string
	told     map[string][]string  // kinds of steps, by server
	under    map[string]time.Time // since when a server is at a step
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
		how, slow := x.receives(s)
		if slow > 0 {
			x.mu.Unlock()
			time.Sleep(slow) // a device that takes its time
			x.mu.Lock()
		}
		a.Err = x.does(s, how)
		delete(x.under, s.Server)
	}
	x.mu.Unlock()
	if a.Err == "lost" {
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(a)
}

// rungs are the steps of the ladder in their order.
var rungs = []string{kindDrain, "power_cycle", kindUncordon}

// slowest is how long a device takes at most: less than a step is awaited.
const slowest = 400 * time.Millisecond

// receives holds, as a device would see it, what must be so whenever something is sent, and draws how the device behaves.
func (x *chaos) receives(s Step) (how string, slow time.Duration) {
	now := time.Now()
	x.sent = append(x.sent, fmt.Sprint(now.Format("05.000"), " ", s.Kind, " ", s.Server, " ", s.ID))
	x.w.applied[s.ID]++
	if x.w.applied[s.ID] > 1 {
		x.violated("%s of %s was sent twice", s.Kind, s.Server)
	}
	if since, at := x.under[s.Server]; at && now.Sub(since) < slowest {
		x.violated("%s of %s was sent while another step was under way", s.Kind, s.Server)
	}
	if before := x.told[s.Server]; len(before) > 0 && slices.Index(rungs, before[len(before)-1]) > slices.Index(rungs, s.Kind) {
		x.violated("%s of %s was sent after %s: it is on two ladders", s.Kind, s.Server, before[len(before)-1])
	}
	x.told[s.Server] = append(x.told[s.Server], s.Kind)
	x.under[s.Server] = now
	switch {
	case s.Server == chaosFades:
		// What was decided may be sent for as long as a call takes, and this machine may be slow.
		if late := now.Sub(x.fades); s.Kind != kindUncordon && late > chaosCall+time.Second {
			x.violated("%s of %s was sent %s after its evidence was too old", s.Kind, s.Server, late)
		}
	case s.Server == chaosTheirs:
		x.violated("%s of %s, and whoever has it was not asked", s.Kind, s.Server)
	case !slices.Contains(chaosSick, s.Server):
		x.violated("%s of %s without a reason that stands", s.Kind, s.Server)
	}
	how = "well"
	if !x.calm {
		how = []string{"well", "well", "well", "lost", "void", "lie", "slow", "slow and lost", "rejected", "no, and does it"}[x.r.IntN(10)]
	}
	if strings.HasPrefix(how, "slow") {
		slow = time.Duration(x.r.Int64N(int64(slowest)))
	}
	return how, slow
}

// does is what a device does, and answers.
func (x *chaos) does(s Step, how string) (answer string) {
	switch how {
	case "void":
		return "lost"
	case "lie":
		return ""
	case "rejected":
		return "rejected"
	}
	switch s.Kind {
	case kindDrain:
		if x.foreign[s.Server] {
			return "already"
		}
		x.w.drained[s.Server] = true
		n, racks := 0, map[string]int{}
		for server, d := range x.w.drained {
			if d {
				n++
				_, rack, _, _ := place{}.Place(server)
				if racks[rack]++; racks[rack] > chaosRack {
					x.violated("%d servers of rack %s are out, the budget is %d", racks[rack], rack, chaosRack)
				}
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
			if x.flaw == noMark {
				x.foreign[s.Server] = false
				x.violated("%s was given back, and others had taken it", s.Server)
			}
			return "rejected"
		}
		if x.w.reboots[s.Server].IsZero() {
			x.violated("%s was given back unrepaired", s.Server)
		}
		x.w.drained[s.Server] = false
	}
	if strings.HasSuffix(how, "lost") || how == "no, and does it" {
		return "lost"
	}
	return ""
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // one that is stopped is no reason to hang up on all of us
	if _, err := cmd.StdinPipe(); err != nil {            // open until this process ends
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
	var log waittest.Buffer
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
		switch x.pick(7) {
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
			x.muteTill[chaosSick[x.r.IntN(len(chaosSick))]] = time.Now().Add(2 * wait)
			x.mu.Unlock()
		case 5:
			var pids []int
			for _, cmd := range running {
				if cmd != nil {
					pids = append(pids, cmd.Process.Pid)
				}
			}
			x.away(pids, wait)
		case 6:
			if cmd := running[name]; cmd != nil { // it sleeps, for longer than a lease at times, and wakes
				_ = cmd.Process.Signal(syscall.SIGSTOP)
				time.Sleep(8 * wait) // it sleeps
				_ = cmd.Process.Signal(syscall.SIGCONT)
			}
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
	end := time.Now().Add(2 * time.Minute)
	for {
		var left int
		err := x.db.QueryRowContext(t.Context(), `SELECT count(*) + (SELECT count(*) FROM control_cases WHERE state='open') FROM records
WHERE kind='incident' AND status='open' AND NOT EXISTS (SELECT 1 FROM control_cases WHERE reason=records.id)`).Scan(&left)
		if err == nil && left == 0 {
			break
		}
		if now := time.Now(); now.After(end) && (err == nil || now.After(end.Add(time.Minute))) { // a store that comes back says more
			x.mu.Lock()
			x.violated("%d cases never end (%v)", left, err)
			x.mu.Unlock()
			break
		}
		time.Sleep(50 * time.Millisecond) // another look
	}
	kill("a")
	kill("b")
	ends = x.judge()
	if len(x.broken) > 0 && x.flaw == flawless {
		t.Errorf("seed %d: %s\nsent:\n%s\ntold:\n%s", x.seed, strings.Join(x.broken, "\n"), strings.Join(x.sent, "\n"), log.String())
	}
	return ends
}

// files are stores of a file each.
type files struct{ template []byte }

func (files) Lock()   {}
func (files) Unlock() {}

func (f files) make(t *testing.T) string {
	dsn := filepath.Join(t.TempDir(), "auspex.db")
	writeFile(t, dsn, string(f.template))
	return dsn
}

// away keeps everybody from writing, or fills the disk of those that run.
func (files) away(x *chaos, running []int, d time.Duration) {
	if x.pick(2) == 0 {
		const sizeOfFiles = 1 // RLIMIT_FSIZE, which package syscall does not name
		limit := func(most uint64) {
			for _, pid := range running {
				l := syscall.Rlimit{Cur: most, Max: math.MaxUint64}
				if _, _, e := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), sizeOfFiles, uintptr(unsafe.Pointer(&l)), 0, 0, 0); e != 0 && e != syscall.ESRCH {
					x.t.Error("prlimit: ", e)
				}
			}
		}
		limit(0)
		time.Sleep(2 * d) // the disk is full
		limit(math.MaxUint64)
		return
	}
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
	var as []schemas.Action
	waittest.Until(t, func() (err error) { // the store of others' tests may be away
		if as, _, err = records.New(x.db).Actions(t.Context(), records.Filter{Limit: 1000}); err == nil {
			_, err = audit.Verify(t.Context(), x.db)
		}
		return err
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	ends, ticket, unknown := map[string]int{}, map[string]bool{}, map[string]bool{}
	for _, a := range as {
		ends[a.Kind+" "+a.State]++
		ticket[a.Server] = ticket[a.Server] || a.Kind == kindTicket && x.flaw != noTicket
		switch a.State {
		case schemas.ActionUnknown:
			unknown[a.Server] = unknown[a.Server] || a.Kind == "power_cycle" // others are tried again
		case schemas.ActionRunning, schemas.ActionVerifying:
			x.violated("%s of %s is left %s", a.Kind, a.Server, a.State)
		}
	}
	for _, name := range chaosAll() {
		switch {
		case ticket[name]:
		case unknown[name]:
			x.violated("nobody is told that an outcome on %s is unknown", name)
		case slices.Contains(x.told[name], "power_cycle") && x.w.reboots[name].IsZero():
			x.violated("%s was to be cycled and was not, and nobody is told", name)
		case x.w.drained[name]:
			x.violated("%s stays out of the pool, and nobody is told", name)
		}
	}
	return ends
}

// chaosStore makes the store of a run, in which nothing has happened.
type chaosStore interface {
	sync.Locker // held while a run is prepared: nothing is taken away
	make(t *testing.T) (dsn string)
	// away takes it from everybody for a while; running are the processes that use it.
	away(x *chaos, running []int, d time.Duration)
}

// chaosRun is the run of a seed.
func chaosRun(t *testing.T, seed uint64, store chaosStore, f flaw) (ends map[string]int, broken []string) {
	store.Lock()
	ready := sync.OnceFunc(store.Unlock)
	defer ready()
	role := chaosRole{DSN: store.make(t), Policy: filepath.Join(t.TempDir(), "policy.yaml"), Broken: f}
	policy := chaosPolicy
	for _, change := range []struct {
		of       flaw
		old, new string
	}{
		{noBudget, "fleet: 2", "fleet: 99"},
		{noRack, "rack: 1", "rack: 99"},
		{noAge, "max_evidence_age: 1h", "max_evidence_age: 9999h"},
		{noDrain, "{kind: power_cycle, needs: [drain],", "{kind: power_cycle,"},
		{noDrain, "      - {kind: drain, attempts: 2, verify: 500ms}\n", ""},
	} {
		if f == change.of {
			policy = strings.Replace(policy, change.old, change.new, 1)
		}
	}
	writeFile(t, role.Policy, policy)
	db, err := sqldb.Connect(t.Context(), role.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	x := &chaos{
		t: t, seed: seed, db: db, r: rand.New(rand.NewPCG(seed, 7)), w: newWorld(), foreign: map[string]bool{}, muteTill: map[string]time.Time{},
		told: map[string][]string{}, under: map[string]time.Time{}, flaw: f, fades: time.Now().Add(1500 * time.Millisecond),
	}
	x.away = func(running []int, d time.Duration) { store.away(x, running, d) }
	b := &bench{t: t, db: db}
	for _, name := range chaosAll() {
		i := incident(name, name+"/gpu2", "gpu.fallen_off_bus")
		switch name {
		case chaosWell:
			continue
		case chaosFades:
			i.Updated = x.fades.Add(-chaosAge)
		case chaosStale:
			i.Updated = i.Updated.Add(-2 * chaosAge)
		case chaosClosed:
			if f != noClosing {
				i.Closed = &i.Updated
			}
		}
		b.keep(i)
		x.w.dead[name] = x.r.IntN(4) == 0
	}
	if x.r.IntN(2) == 0 {
		x.foreign[chaosSick[x.r.IntN(len(chaosSick))]] = true
	}
	if f == noOwner {
		if _, err := db.ExecContext(t.Context(), `DELETE FROM allocation_claims`); err != nil {
			t.Fatal(err)
		}
	}
	ready()
	server := httptest.NewServer(x)
	defer server.Close()
	role.World = server.URL
	return x.live(role), x.broken
}

// chaosTemplate fills an empty store with what does not differ between runs, and closes it.
func chaosTemplate(t *testing.T, dsn string) {
	t.Helper()
	db, err := sqldb.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	(&bench{t: t, db: db}).allocated(chaosTheirs)
	if err := db.Close(); err != nil { // writes what the log beside a file holds into it
		t.Fatal(err)
	}
}

func chaosFiles(t *testing.T) files {
	t.Helper()
	empty := filepath.Join(t.TempDir(), "empty.db")
	chaosTemplate(t, empty)
	template, err := os.ReadFile(empty)
	if err != nil {
		t.Fatal(err)
	}
	return files{template}
}

// chaosRuns does some runs, side by side.
func chaosRuns(t *testing.T, runs int, one func(t *testing.T, seed uint64) (ends map[string]int)) {
	t.Helper()
	seeds := rand.Uint64() >> 1
	if n, err := strconv.ParseUint(os.Getenv("AUSPEX_CHAOS_SEED"), 10, 64); err == nil {
		runs, seeds = 1, n
	}
	enough := time.Now().Add(24 * time.Hour)
	if d, err := time.ParseDuration(os.Getenv("AUSPEX_CHAOS_FOR")); err == nil {
		enough = time.Now().Add(d)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	all, done, next, began := map[string]int{}, 0, 0, time.Now()
	for range min(runs, 4*runtime.GOMAXPROCS(0)) { // a run waits most of its time
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
					ends := one(t, seed)
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
	var ours, theirs syscall.Rusage
	if err := errors.Join(syscall.Getrusage(syscall.RUSAGE_SELF, &ours), syscall.Getrusage(syscall.RUSAGE_CHILDREN, &theirs)); err != nil {
		t.Error(err)
	}
	var cpu time.Duration
	for _, u := range []syscall.Rusage{ours, theirs} {
		cpu += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	t.Logf("%d runs from seed %d ended in %s (%s of this process and its controllers) with %v", done, seeds, time.Since(began).Round(time.Second), cpu.Round(time.Second), all)
}

func TestChaos(t *testing.T) {
	store, runs := chaosFiles(t), 3
	if testing.Short() {
		runs = 1
	}
	if n, err := strconv.Atoi(os.Getenv("AUSPEX_CHAOS_RUNS")); err == nil {
		runs = n
	}
	chaosRuns(t, runs, func(t *testing.T, seed uint64) map[string]int {
		ends, _ := chaosRun(t, seed, store, flawless)
		return ends
	})
}

// TestChaosFindsWhatIsBroken takes away one protection after the other, and wants a run in which that is seen.
func TestChaosFindsWhatIsBroken(t *testing.T) {
	if os.Getenv("AUSPEX_CHAOS_RUNS") == "" || os.Getenv("AUSPEX_CHAOS_FOR") != "" {
		t.Skip("it takes minutes: make chaos runs it")
	}
	store := chaosFiles(t)
	for _, f := range []flaw{noFence, noBudget, noRack, sendsAgain, noAge, noClosing, noOwner, noDrain, noMark, noTicket} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			const most = 40
			for n := range uint64(most) {
				if _, broken := chaosRun(t, n, store, f); len(broken) > 0 {
					t.Logf("found in run %d: %s", n+1, broken[0])
					return
				}
			}
			t.Errorf("nothing was found in %d runs", most)
		})
	}
}

// postgres is a server of our own with a database for each run, which is taken away from all of them.
type postgres struct {
	sync.Locker // many may be prepared at once, while it is there
	there       *sync.RWMutex
	dir, dsn    string
	made        *atomic.Int64
}

func (p *postgres) script(verb string) (dsn string, err error) {
	out, err := exec.Command("../test/peers/postgres.sh", verb, p.dir).Output()
	_, dsn, _ = strings.Cut(strings.TrimSpace(string(out)), "=")
	return strings.Trim(dsn, "'"), err
}

// signal is sent to all processes of the server: each of its sessions has one.
func (p *postgres) signal(t *testing.T, s syscall.Signal) {
	b, err := os.ReadFile(filepath.Join(p.dir, "postgres.pid"))
	if err != nil {
		t.Error(err)
		return
	}
	first, _, _ := strings.Cut(string(b), " ")
	children, err := os.ReadFile(filepath.Join("/proc", first, "task", first, "children"))
	if err != nil {
		t.Error(err)
	}
	for _, text := range append([]string{first}, strings.Fields(string(children))...) {
		if pid, err := strconv.Atoi(text); err == nil {
			_ = syscall.Kill(pid, s) // it may have ended
		}
	}
}

// away stops the server for a while, or kills it and starts it again.
func (p *postgres) away(x *chaos, _ []int, d time.Duration) {
	kill := x.pick(2) == 0
	p.there.Lock()
	defer p.there.Unlock()
	if kill {
		p.signal(x.t, syscall.SIGKILL)
		time.Sleep(d) // nobody listens
		waittest.Until(x.t, func() error { _, err := p.script("start"); return err })
		return
	}
	p.signal(x.t, syscall.SIGSTOP)
	time.Sleep(4 * d) // nobody answers; the longest is more than a lease
	p.signal(x.t, syscall.SIGCONT)
}

func (p *postgres) make(t *testing.T) string {
	name := fmt.Sprint("chaos", p.made.Add(1))
	db, err := sql.Open("pgx", p.dsn)
	if err == nil {
		_, err = db.ExecContext(t.Context(), "CREATE DATABASE "+name+" TEMPLATE chaos")
		_ = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.dsn + " dbname=" + name
}

// TestChaosWithPostgreSQLAway is the same with a server that is stopped, or killed and started again.
func TestChaosWithPostgreSQLAway(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("AUSPEX_POSTGRES_CHAOS_RUNS"))
	if err != nil {
		t.Skip("it needs PostgreSQL: make chaos runs it")
	}
	dir, err := os.MkdirTemp("", "chaos") // whose parents its user may search
	if err != nil {
		t.Fatal(err)
	}
	p := &postgres{there: new(sync.RWMutex), dir: dir, made: new(atomic.Int64)}
	p.Locker = p.there.RLocker()
	t.Cleanup(func() {
		_, _ = p.script("stop")
		_ = os.RemoveAll(dir)
	})
	if p.dsn, err = p.script("start"); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", p.dsn)
	if err == nil {
		_, err = db.ExecContext(t.Context(), "CREATE DATABASE chaos")
		_ = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	chaosTemplate(t, p.dsn+" dbname=chaos")
	chaosRuns(t, runs, func(t *testing.T, seed uint64) map[string]int {
		ends, _ := chaosRun(t, seed, p, flawless)
		return ends
	})
}
