package control

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"auspex/control/messages"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// What follows checks the code that decides, over the real store: it runs two controllers and stops each of their
// goroutines at every step that it names (afterStep) and at every wait (after), so that one alone moves at a time. What
// moves next is a choice; a search tries all choices from every state that it has not seen, and after each step holds what
// must always hold. A state is what is durable, what the world is like, and where each goroutine stands; it has the same
// name whatever its servers are called. A run begins anew from an empty store to come to a state again.
//
// TestTheCheckFindsWhatIsBroken takes away in turn what keeps controllers from doing harm, and wants the check to see it.

// bounds are those of a search.
type bounds struct {
	servers, fleet         int
	crashes, jumps, faults int  // at most, in one run
	theirs                 bool // somebody has the first server, and is not asked
	coarse                 bool // goroutines stop only where they decide, send, or wait
	states                 int  // give up beyond
}

// A mutant lacks one of the protections.
type mutant string

const (
	whole       mutant = ""
	everyLeads  mutant = "nobody takes the leadership"
	unfenced    mutant = "writes are not fenced"
	forgetful   mutant = "what stands is not counted after a restart"
	resending   mutant = "what was decided is decided again after a restart"
	sleepwalker mutant = "what was decided is sent however late"
)

const (
	exhaustivePolicy = `
budgets: {fleet: %d, rack: 9, per_hour: 99}
breaker: {cases: 99, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    min_confidence: 0.5
    settle: 0s
    max_evidence_age: 4m
    ladder:
      - {kind: drain, attempts: 2, verify: 1m}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 1m, quiet: 1ms}
      - {kind: uncordon, needs: [power_cycle], verify: 1m}
`
	// jump is how far all clocks go at once: beyond leases and deadlines. Two of them make evidence too old.
	jump = 150 * time.Second
	tick = 10 * time.Millisecond // of each step
)

// thread is a goroutine of a controller.
type thread struct {
	n      *node
	name   string // "main", or the server of a climb
	at     string
	since  int // jumps when it came to what it does, but for waits
	resume chan struct{}
	timer  chan time.Time
	done   bool
}

// node is one of the two controllers; it is started anew after it crashed.
type node struct {
	x       *execution
	name    string
	c       *Controller
	cancel  context.CancelFunc
	ended   chan struct{} // its main goroutine has
	threads []*thread
	dead    atomic.Bool
	deposed bool
	tried   bool // it has tried to lead
}

// execution is one run: a store, a world, two controllers, and what was chosen.
type execution struct {
	t       *testing.T
	b       bounds
	m       mutant
	db      *sqldb.DB
	policy  string
	clock   time.Time
	nodes   []*node
	cur     *thread
	running atomic.Int32
	events  chan struct{}
	trace   []string

	crashes, jumps, faults int

	// The world: what a server is like, and what was asked of it.
	drained, foreign map[string]bool
	cycled           map[string]time.Time
	applied          map[string]int // by id of the step
	fault            string         // of the step that is sent next
	broken           []string
}

func (x *execution) now() time.Time { return x.clock }

func (x *execution) violated(format string, args ...any) {
	x.broken = append(x.broken, fmt.Sprintf(format, args...))
}

// keyPoints are where a coarse search stops a goroutine.
func keyPoints(name string) bool {
	for _, prefix := range []string{"climb", "decide", "intent", "applied", "closed", "stand by", "lead", "idle", "start"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// hook stops the goroutine that calls it, until it is chosen.
func (n *node) hook(name string) {
	x := n.x
	if n.dead.Load() {
		if name == "left" {
			return
		}
		runtime.Goexit() // as a process that is killed: nothing more is written
	}
	var th *thread
	switch subject, climbs := strings.CutPrefix(name, "climb "); {
	case name == "left":
		th = x.cur
		th.done = true
		x.events <- struct{}{}
		return
	case climbs:
		th = &thread{n: n, name: subject, resume: make(chan struct{})}
		n.threads = append(n.threads, th)
	default:
		th = x.cur
		if x.b.coarse && !keyPoints(name) {
			return
		}
	}
	th.at, th.since = name, x.jumps
	x.events <- struct{}{}
	<-th.resume
	if n.dead.Load() {
		runtime.Goexit()
	}
	if strings.HasPrefix(name, "start ") {
		x.running.Add(1) // the climb that it starts moves until it stops
	}
}

// after is a wait of a goroutine: it ends when that is chosen.
func (n *node) after(time.Duration) <-chan time.Time {
	ch := make(chan time.Time, 1)
	if !n.dead.Load() {
		th := n.x.cur
		th.at, th.timer = "wait after "+strings.TrimPrefix(th.at, "wait after "), ch
		n.x.events <- struct{}{}
	}
	return ch
}

// let lets a goroutine move until it stops again.
func (x *execution) let(th *thread) {
	x.cur = th
	x.running.Store(1)
	if th.timer != nil {
		x.feed(th)
		ch := th.timer
		th.timer = nil
		ch <- x.clock
	} else {
		th.resume <- struct{}{}
	}
	for x.running.Load() > 0 {
		<-x.events
		x.running.Add(-1)
	}
}

// feed lets the part of a climb that waits for its quiet time be read, as by the board controller that saw the fault.
func (x *execution) feed(th *thread) {
	th.n.c.mu.Lock()
	k := th.n.c.open[th.name]
	th.n.c.mu.Unlock()
	if k == nil || k.vigil == nil || x.cycled[k.Subject].IsZero() {
		return
	}
	for _, before := range []time.Duration{4 * time.Millisecond, 2 * time.Millisecond, time.Millisecond / 2} {
		at := x.clock.Add(-before)
		k.vigil.observe(Observation{Resource: k.Target, Collector: schemas.SourceIPMI, Time: at, Observed: at, Values: power(at)})
	}
}

// boot starts a controller, whose first goroutine stands before its attempt to lead.
func (x *execution) boot(name string) {
	n := &node{x: x, name: name, ended: make(chan struct{})}
	cfg := DefaultConfig()
	cfg.Mode, cfg.Policies = schemas.ModeEnforce, x.policy
	if x.m == sleepwalker {
		cfg.CallTime = time.Hour
	}
	r := device{x, n}
	c, err := New(cfg, Deps{
		Log: slog.New(slog.DiscardHandler), Now: x.now, DB: x.db, Records: records.New(x.db), Bus: &nullBus{}, Inventory: place{}, Holder: name,
		Remediators: map[string]Remediator{kindDrain: r, "power_cycle": r, kindUncordon: r}, View: eyes,
	})
	if err != nil {
		x.t.Fatal(err)
	}
	c.afterStep, c.after, c.deposed = n.hook, n.after, func() { n.deposed = true }
	c.lateness = 0 // a device does what it is told before anything else moves
	n.c = c
	ctx, cancel := context.WithCancel(x.t.Context())
	n.cancel = cancel
	x.nodes = append(slices.DeleteFunc(x.nodes, func(o *node) bool { return o.name == name }), n)
	slices.SortFunc(x.nodes, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	th := &thread{n: n, name: "main", resume: make(chan struct{})}
	n.threads = []*thread{th}
	x.cur = th
	x.running.Store(1)
	go func() {
		defer close(n.ended)
		if err := n.main(ctx); err != nil && !errors.Is(err, errDeposed) && !n.dead.Load() {
			x.violated("%s: %v", name, err)
		}
		n.deposed = true
		n.hook("left")
	}()
	<-x.events
}

// main is what Run does, but for what the test does itself.
func (n *node) main(ctx context.Context) error {
	for first := true; n.x.m != everyLeads; first = false {
		n.hook("stand by")
		n.tried = true
		if ok, err := n.c.store.lead(ctx, first); err != nil || ok {
			if err != nil {
				return err
			}
			break
		}
	}
	n.hook("lead")
	if n.x.m == resending {
		if _, err := n.x.db.ExecContext(ctx, `UPDATE control_actions SET state='waiting', intent_ns=0, doc=REPLACE(doc, '"state":"running"', '"state":"waiting"') WHERE state='running'`); err != nil {
			return err
		}
	}
	if err := n.c.restore(ctx); err != nil {
		return err
	}
	if n.x.m == forgetful {
		clear(n.c.open)
		clear(n.c.out)
	}
	for {
		n.hook("idle")
		if n.deposed {
			return nil
		}
		if err := n.c.openDue(ctx); err != nil {
			return err
		}
	}
}

// kill ends a controller where it stands.
func (n *node) kill() {
	n.dead.Store(true)
	n.cancel()
	for _, th := range n.threads {
		if !th.done && th.timer == nil {
			close(th.resume)
		}
	}
	n.c.wg.Wait()
	<-n.ended
}

// device is a server as its controllers reach it.
type device struct {
	x *execution
	n *node
}

func (d device) Plan(context.Context, Step) (schemas.Sentence, error) {
	return schemas.Sentence{}, nil
}

// Apply holds what must be so whenever something is sent.
func (d device) Apply(ctx context.Context, s Step) error {
	x := d.x
	if x.applied[s.ID]++; x.applied[s.ID] > 1 {
		x.violated("%s of %s was sent twice (%s)", s.Kind, s.Server, s.ID)
	}
	var holder string
	var token int64
	err := x.db.QueryRowContext(ctx, `SELECT holder, token FROM control_leases WHERE subject=$1`, leadership).Scan(&holder, &token)
	if x.m != everyLeads && (err != nil || holder != d.n.name || token != d.n.c.store.term.Load()) {
		x.violated("%s of %s was sent by %s, which leads no more (%s does)", s.Kind, s.Server, d.n.name, holder)
	}
	if x.clock.Sub(s.Since) > time.Minute {
		x.violated("%s of %s was sent %s after it was decided", s.Kind, s.Server, x.clock.Sub(s.Since))
	}
	if x.b.theirs && s.Server == serverName(0) {
		x.violated("%s of %s was sent, and whoever has it was not asked", s.Kind, s.Server)
	}
	fault := x.fault
	x.fault = ""
	switch fault {
	case "void": // the request is lost
		return errGone
	case "lie": // it says yes, and does nothing
		return nil
	}
	switch s.Kind {
	case kindDrain:
		if x.foreign[s.Server] {
			return ErrAlready
		}
		x.drained[s.Server] = true
	case "power_cycle":
		if !x.drained[s.Server] && !x.foreign[s.Server] {
			x.violated("%s was cycled undrained", s.Server)
		}
		x.cycled[s.Server] = x.clock
	case kindUncordon:
		if x.foreign[s.Server] {
			x.violated("%s was given back, and others had taken it", s.Server)
		}
		if x.cycled[s.Server].IsZero() {
			x.violated("%s was given back unrepaired", s.Server)
		}
		x.drained[s.Server] = false
	}
	if fault == "lost" { // the answer is
		return errGone
	}
	return nil
}

func (d device) Verify(_ context.Context, s Step) (Verdict, schemas.Sentence, error) {
	x := d.x
	ok := map[string]bool{
		kindDrain: x.drained[s.Server] || x.foreign[s.Server], kindUncordon: !x.drained[s.Server] && !x.foreign[s.Server],
		"power_cycle": !x.cycled[s.Server].Before(s.Since),
	}[s.Kind]
	if ok {
		return Verified, messages.New(messages.PowerBack, nil), nil
	}
	return Pending, messages.New(messages.NoReset, nil), nil
}

// over reports whether nothing of a controller moves any more.
func (n *node) over() bool {
	return n.dead.Load() || !slices.ContainsFunc(n.threads, func(th *thread) bool { return !th.done })
}

// choices are what can happen next.
func (x *execution) choices() (out []string) {
	cases := 0
	if err := x.db.QueryRowContext(x.t.Context(), `SELECT count(*) FROM control_cases`).Scan(&cases); err != nil {
		x.t.Fatal(err)
	}
	var holder string
	var expires int64
	led := x.db.QueryRowContext(x.t.Context(), `SELECT holder, expires_ns FROM control_leases WHERE subject=$1`, leadership).Scan(&holder, &expires) == nil
	for _, n := range x.nodes {
		if n.over() {
			out = append(out, "start "+n.name)
			continue
		}
		decides := slices.ContainsFunc(n.threads, func(th *thread) bool {
			return !th.done && (strings.HasPrefix(th.at, "checked ") || strings.HasPrefix(th.at, "running "))
		})
		for _, th := range n.threads {
			switch {
			case th.done, th.at == "idle" && cases == x.b.servers && !n.deposed, decides && strings.HasPrefix(th.at, "decide "):
				continue // nothing to do, or it waits for the lock
			case th.at == "stand by" && led && expires >= x.clock.UnixNano() && (n.tried || holder != n.name):
				continue // in vain
			}
			out = append(out, n.name+" "+th.name)
			if strings.HasPrefix(th.at, "intent ") && x.faults < x.b.faults {
				for _, fault := range []string{"lost", "void", "lie"} {
					out = append(out, n.name+" "+th.name+" "+fault)
				}
			}
		}
		if x.crashes < x.b.crashes && n.threads[0].at != "stand by" { // what has done nothing begins anew as it was
			out = append(out, "crash "+n.name)
		}
	}
	if x.jumps < x.b.jumps {
		out = append(out, "jump")
	}
	return out
}

// choose lets happen what was chosen, and holds the invariants.
func (x *execution) choose(choice string) {
	x.trace = append(x.trace, choice)
	x.clock = x.clock.Add(tick)
	verb, rest, _ := strings.Cut(choice, " ")
	name, fault, _ := strings.Cut(rest, " ")
	switch verb {
	case "jump":
		x.jumps++
		x.clock = x.clock.Add(jump)
	case "crash":
		x.crashes++
		x.node(rest).kill()
	case "start":
		x.boot(rest)
	default:
		n := x.node(verb)
		if fault != "" {
			x.faults++
		}
		x.fault = fault
		if x.m == unfenced {
			n.forge()
		}
		i := slices.IndexFunc(n.threads, func(th *thread) bool { return th.name == name && !th.done })
		if i < 0 {
			x.t.Fatalf("a run does not repeat: no %s in %v", choice, x.trace)
		}
		x.let(n.threads[i])
	}
}

// forge lets the fence of a controller that has led hold whoever leads.
func (n *node) forge() {
	st := n.c.store
	var token int64
	st.holder = n.name
	if st.term.Load() <= 0 {
		return
	}
	if err := n.x.db.QueryRowContext(n.x.t.Context(), `SELECT holder, token FROM control_leases WHERE subject=$1`, leadership).Scan(&st.holder, &token); err != nil {
		n.x.t.Fatal(err)
	}
	st.term.Store(token)
}

func (x *execution) node(name string) *node {
	return x.nodes[slices.IndexFunc(x.nodes, func(n *node) bool { return n.name == name })]
}

// state names the state, and holds what must be so in each.
func (x *execution) state() (uint64, bool) {
	type server struct {
		text       string
		unfinished int
		held       bool
	}
	all := map[string]*server{}
	kases, err := sqldb.Docs[*climb](x.t.Context(), x.db, `SELECT doc FROM control_cases`)
	if err != nil {
		x.t.Fatal(err)
	}
	type lease struct {
		holder  string
		token   int64
		expires int64
	}
	leases := map[string]lease{}
	if _, err := sqldb.Rows(x.t.Context(), x.db, func(rows *sql.Rows) (struct{}, error) {
		var subject string
		var l lease
		err := rows.Scan(&subject, &l.holder, &l.token, &l.expires)
		leases[subject] = l
		return struct{}{}, err
	}, `SELECT subject, holder, token, expires_ns FROM control_leases`); err != nil {
		x.t.Fatal(err)
	}
	over := true
	for i := range x.b.servers {
		name := serverName(i)
		l := leases[name]
		s := &server{text: fmt.Sprint(x.drained[name], x.foreign[name], !x.cycled[name].IsZero(), marked(l.holder), l.expires < x.clock.UnixNano())}
		all[name] = s
		held := x.drained[name]
		var of *climb
		for _, k := range kases {
			if k.Subject == name {
				of = k
				s.text += fmt.Sprint("|", k.State, k.Touched, k.Cordoned)
				held = held || k.Touched && (k.State == caseOpen || k.State == caseFailed && k.Cordoned)
			}
		}
		s.held = held
		over = over && of != nil && of.State != caseOpen
	}
	actions, err := sqldb.Docs[schemas.Action](x.t.Context(), x.db, `SELECT doc FROM control_actions ORDER BY rung, attempt`)
	if err != nil {
		x.t.Fatal(err)
	}
	tickets, unknown := map[string]bool{}, map[string]bool{}
	for _, a := range actions {
		s := all[a.Server]
		s.text += fmt.Sprint("|", a.Kind, a.Attempt, a.State, !a.EffectAt.IsZero(), !a.SentAt.IsZero(), x.applied[a.ID])
		switch a.State {
		case schemas.ActionRunning, schemas.ActionVerifying:
			s.unfinished++
		case schemas.ActionUnknown:
			unknown[a.Server] = unknown[a.Server] || a.Kind != kindDrain // a drain whose outcome is unknown is tried again
		case schemas.ActionProposed:
			tickets[a.Server] = a.Kind == kindTicket
		}
	}
	held := 0
	for _, k := range kases {
		s := all[k.Subject]
		switch {
		case s.unfinished > 1:
			x.violated("%d unfinished actions on %s", s.unfinished, k.Subject)
		case k.State != caseOpen && s.unfinished > 0:
			x.violated("the case of %s is %s, and an action of it unfinished", k.Subject, k.State)
		case k.State != caseOpen && unknown[k.Subject] && !tickets[k.Subject]:
			x.violated("nobody is told that an outcome on %s is unknown", k.Subject)
		case k.State != caseOpen && x.drained[k.Subject] && !tickets[k.Subject]:
			x.violated("%s stays out of the pool, and nobody is told", k.Subject)
		}
	}
	for _, s := range all {
		if s.held {
			held++
		}
	}
	if held > x.b.fleet {
		x.violated("%d servers are held, the budget is %d", held, x.b.fleet)
	}
	var servers, nodes []string
	for name, s := range all {
		for _, n := range x.nodes {
			for _, th := range n.threads {
				if th.name == name && !th.done && !n.dead.Load() {
					s.text += fmt.Sprint("|", marked(n.name), th.at, x.jumps-th.since)
				}
			}
		}
		servers = append(servers, s.text)
	}
	leader := leases[leadership]
	for _, n := range x.nodes {
		text := marked(n.name)
		if !n.over() {
			text += fmt.Sprint(n.tried, n.deposed, n.c.store.term.Load() == leader.token, n.threads[0].at, n.threads[0].done)
		}
		nodes = append(nodes, text)
	}
	nodes = append(nodes, fmt.Sprint(marked(leader.holder), leader.expires < x.clock.UnixNano(), x.crashes, x.jumps, x.faults))
	return alike(servers, nodes), over
}

// marked is the name of a controller in the name of a state.
func marked(name string) string { return "<" + name + ">" }

var swapped = strings.NewReplacer("<a>", "<b>", "<b>", "<a>")

// alike names a state, whatever its servers and its controllers are called: one of two states that differ in that alone
// leads to all that the other does.
func alike(servers, nodes []string) uint64 {
	name := func(as func(string) string) string {
		var parts []string
		for _, some := range [][]string{servers, nodes} {
			renamed := make([]string, len(some))
			for i, text := range some {
				renamed[i] = as(text)
			}
			slices.Sort(renamed)
			parts = append(parts, strings.Join(renamed, "\n"))
		}
		return strings.Join(parts, "\n\n")
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(min(name(strings.Clone), name(swapped.Replace))))
	return h.Sum64()
}

func serverName(i int) string { return fmt.Sprintf("gpu-r%02d-01", i+1) }

// frontier is what a search has seen and has still to try.
type frontier struct {
	mu     sync.Mutex
	more   *sync.Cond
	seen   map[uint64]bool
	todo   [][]string
	busy   int // that may find more
	runs   int
	broken []string
}

// take returns what is tried next; nothing is left where ok is false.
func (f *frontier) take() (prefix []string, n int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.todo) == 0 && f.busy > 0 && len(f.broken) == 0 {
		f.more.Wait()
	}
	if len(f.todo) == 0 || len(f.broken) > 0 {
		return nil, 0, false
	}
	prefix = f.todo[len(f.todo)-1]
	f.todo = f.todo[:len(f.todo)-1]
	f.busy++
	f.runs++
	return prefix, f.runs, true
}

// put notes a state, and what else can be done in it; new is false where it was seen before.
func (f *frontier) put(id uint64, others func() [][]string) (new bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen[id] {
		return false
	}
	f.seen[id] = true
	f.todo = append(f.todo, others()...)
	f.more.Broadcast()
	return true
}

// over notes that a run has ended, and what it broke.
func (f *frontier) over(broken []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.busy--
	if len(f.broken) == 0 {
		f.broken = broken
	}
	f.more.Broadcast()
}

// search tries every run within the bounds, on all cores. It returns the first that breaks something.
func search(t *testing.T, b bounds, m mutant) (states, runs int, broken []string) {
	t.Helper()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, policy, fmt.Sprintf(exhaustivePolicy, b.fleet))
	f := &frontier{seen: map[uint64]bool{}, todo: [][]string{nil}}
	f.more = sync.NewCond(&f.mu)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		db, err := sqldb.Open(t.Context(), filepath.Join(t.TempDir(), "auspex.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		db.SetMaxOpenConns(1) // which keeps what it is told here: no crash of the machine is tried
		for _, pragma := range []string{"synchronous=OFF", "locking_mode=EXCLUSIVE"} {
			if _, err := db.ExecContext(t.Context(), "PRAGMA "+pragma); err != nil {
				t.Fatal(err)
			}
		}
		if b.theirs {
			(&bench{t: t, db: db}).allocated(serverName(0))
		}
		wg.Go(func() {
			for {
				prefix, n, ok := f.take()
				if !ok {
					return
				}
				f.run(newExecution(t, b, m, db, policy), prefix, n)
			}
		})
	}
	wg.Wait()
	if len(f.broken) == 0 && len(f.seen) > b.states {
		t.Fatalf("more than %d states within %+v", b.states, b)
	}
	return len(f.seen), f.runs, f.broken
}

// run goes on from a prefix for as long as what comes was not seen.
func (f *frontier) run(x *execution, prefix []string, n int) {
	var broken []string
	defer func() { f.over(broken) }()
	for _, choice := range prefix {
		x.choose(choice)
	}
	for {
		id, over := x.state()
		if len(x.broken) > 0 {
			break
		}
		next := x.choices()
		isNew := f.put(id, func() (others [][]string) {
			if !over {
				for _, other := range next[1:] {
					others = append(others, append(slices.Clone(x.trace), other))
				}
			}
			return others
		})
		if !isNew || over {
			break
		}
		x.choose(next[0])
	}
	if len(x.broken) == 0 && n%31 == 0 {
		x.finish()
	}
	x.end()
	if len(x.broken) > 0 {
		broken = append(x.broken, "after "+strings.Join(x.trace, ", "))
	}
}

// finish lets everybody go on in turn: every case has to end.
func (x *execution) finish() {
	x.b.crashes, x.b.faults, x.b.jumps = x.crashes, x.faults, x.jumps
	for round := range 400 {
		for _, choice := range x.choices() {
			if slices.Contains(x.choices(), choice) {
				x.choose(choice)
			}
		}
		if _, over := x.state(); over || len(x.broken) > 0 {
			return
		}
		if round%10 == 9 {
			x.clock = x.clock.Add(jump)
			x.jumps++
		}
	}
	x.violated("it never ends")
}

func newExecution(t *testing.T, b bounds, m mutant, db *sqldb.DB, policy string) *execution {
	t.Helper()
	x := &execution{
		t: t, b: b, m: m, db: db, policy: policy, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), events: make(chan struct{}),
		drained: map[string]bool{}, foreign: map[string]bool{}, cycled: map[string]time.Time{}, applied: map[string]int{},
	}
	for _, text := range []string{
		`DELETE FROM control_intents`, `DELETE FROM control_actions`, `DELETE FROM control_cases`, `DELETE FROM control_leases`, `DELETE FROM control_audit`,
		`UPDATE control_audit_head SET seq=0, hash=''`, `DELETE FROM records`, `DELETE FROM notices`,
	} {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	r := records.New(db)
	for i := range b.servers {
		target := serverName(i) + "/psu0"
		inc := incident(fmt.Sprint("i", i), target, "gpu.fallen_off_bus")
		inc.Opened, inc.Updated, inc.At = x.clock.Add(time.Duration(i)), x.clock, x.clock
		a := alert(inc.ID+"-e", target, "psu.failure", schemas.SourceIPMI, "", schemas.SeverityCritical, x.clock)
		a.Server, a.Status = serverName(i), schemas.AlertResolved
		if err := errors.Join(r.PutAlert(t.Context(), a), r.PutIncident(t.Context(), inc)); err != nil {
			t.Fatal(err)
		}
	}
	if b.servers > 1 {
		x.foreign[serverName(b.servers-1)] = true // somebody else has drained the last
	}
	x.boot("a")
	x.boot("b")
	return x
}

func (x *execution) end() {
	for _, n := range x.nodes {
		if !n.dead.Load() {
			n.kill()
		}
	}
}

func TestEveryInterleavingOfTwoControllers(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine goes at a time: the race detector, which runs the short tests, has nothing to see in it")
	}
	all := map[string]bounds{
		"every step of one server, and a crash": {servers: 1, fleet: 1, crashes: 1, states: 100_000},
		"every step of one server, and a sleep": {servers: 1, fleet: 1, jumps: 1, states: 100_000},
		"one server that misbehaves":            {servers: 1, fleet: 1, jumps: 1, faults: 1, coarse: true, states: 100_000},
		"a server that somebody has":            {servers: 1, fleet: 1, crashes: 1, theirs: true, coarse: true, states: 100_000},
		"two servers":                           {servers: 2, fleet: 1, crashes: 1, coarse: true, states: 100_000},
	}
	if os.Getenv("AUSPEX_EXHAUSTIVE") != "" {
		maps.Copy(all, map[string]bounds{
			"every step of one server, a crash, a sleep, and misbehaviour": {servers: 1, fleet: 1, crashes: 1, jumps: 1, faults: 1, states: 10_000_000},
			"two servers, and a sleep":                                     {servers: 2, fleet: 1, jumps: 1, coarse: true, states: 10_000_000},
			"two servers, of which one lies, and a crash":                  {servers: 2, fleet: 1, crashes: 1, faults: 1, coarse: true, states: 10_000_000},
			"three servers":                   {servers: 3, fleet: 2, crashes: 1, coarse: true, states: 10_000_000},
			"four servers":                    {servers: 4, fleet: 2, crashes: 1, coarse: true, states: 10_000_000},
			"three servers, and two crashes":  {servers: 3, fleet: 2, crashes: 2, coarse: true, states: 10_000_000},
			"every step of two servers":       {servers: 2, fleet: 1, crashes: 1, states: 10_000_000},
			"four servers, of which one lies": {servers: 4, fleet: 2, faults: 1, coarse: true, states: 10_000_000},
		})
	}
	for name, b := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, runs, broken := search(t, b, whole)
			t.Logf("%d states in %d runs", states, runs)
			if len(broken) > 0 {
				t.Error(strings.Join(broken, "\n"))
			}
		})
	}
}

func TestTheCheckFindsWhatIsBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine goes at a time: the race detector, which runs the short tests, has nothing to see in it")
	}
	for m, b := range map[mutant]bounds{
		everyLeads:  {servers: 2, fleet: 1, coarse: true, states: 100_000},
		unfenced:    {servers: 1, fleet: 1, jumps: 1, coarse: true, states: 100_000},
		forgetful:   {servers: 2, fleet: 1, crashes: 1, coarse: true, states: 100_000},
		resending:   {servers: 1, fleet: 1, crashes: 1, coarse: true, states: 100_000},
		sleepwalker: {servers: 1, fleet: 1, jumps: 1, coarse: true, states: 100_000},
	} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			states, runs, broken := search(t, b, m)
			if len(broken) == 0 {
				t.Fatalf("nothing was found in %d states and %d runs", states, runs)
			}
			t.Logf("found in %d states and %d runs: %s", states, runs, strings.Join(broken, "\n"))
		})
	}
}
