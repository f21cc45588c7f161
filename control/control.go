// Package control turns incidents into repairs, and does what people, allocations and
// workflows ask for: one durable state machine a server climbs a ladder of policy (package policy), each rung checked before and
// verified after. It is the only writer of its state; everybody else queues
// intents. An intent row is committed before each side effect: after a crash the
// world is observed again, and nothing is sent twice.
package control

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/bus"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Errors of remediators.
var (
	// ErrCannot: there is no way to do this here; what needs the rung is blocked.
	ErrCannot = errors.New("cannot")
	// ErrRejected: the peer refused; it is certain that nothing was done.
	ErrRejected = errors.New("rejected")
	// ErrAlready: the world is as the step wants it, and not by us.
	ErrAlready = errors.New("already in the wanted state, but not set by Auspex")
)

// Step is one side effect on one server.
type Step struct {
	ID     string // of the action; goes with the request, and is never sent twice
	Kind   string
	Server string
	Target string // the part that the incident blames
	Reason string
	Since  time.Time // when the step was decided
	// With are the parameters that the policy gives its kind.
	With map[string]string
}

// Verdict is what verification saw.
type Verdict int

// The verdicts.
const (
	Pending Verdict = iota
	Verified
	Failed
	Unseen // nothing tells whether the effect is there, and nothing will
)

// Remediator does one kind of step. Its calls observe deadlines of their context.
type Remediator interface {
	// Plan says in a sentence what Apply would do, and changes nothing. An error
	// that wraps ErrCannot is final.
	Plan(ctx context.Context, s Step) (schemas.Sentence, error)
	// Apply does it. It is called at most once for a step's ID. An error that
	// wraps ErrRejected means that nothing was done; after any other the outcome
	// is not known.
	Apply(ctx context.Context, s Step) error
	// Verify reads the world back, from whom the step acts on, and says whether its
	// effect is there. Whether the part works again is not its to say.
	Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error)
}

// Lasting is a remediator whose Apply may take longer than a call to a device.
type Lasting interface {
	// Lasts bounds it.
	Lasts() time.Duration
}

// Updater is what the remediator of update_firmware may know besides: whether firmware is being
// installed on a server.
type Updater interface {
	// Updating names an update that is under way, whoever began it; "" is none. An error that wraps
	// ErrCannot is of a server on which nobody can tell.
	Updating(ctx context.Context, server string) (what string, err error)
}

// Inventory places resources.
type Inventory interface {
	// Place returns the server that holds a resource ("" where none does), its
	// rack and its site; ok is false for a resource that is not known.
	Place(resource string) (server, rack, site string, ok bool)
	// Kind returns the kind of a resource, "" for one that is not known.
	Kind(resource string) string
}

// Maintenance is the work that people declared.
type Maintenance interface {
	// Covering returns a window that is open at t over one of some resources.
	Covering(ctx context.Context, t time.Time, resources ...string) (m schemas.Maintenance, open bool, err error)
}

// Freezes are the times in which nothing that ends what runs may start.
type Freezes interface {
	// Frozen returns a freeze that holds at t for a server.
	Frozen(ctx context.Context, t time.Time, server string) (m schemas.Maintenance, frozen bool, err error)
}

// Costs tells what a step would end.
type Costs interface {
	// Of returns what ends now with a server, or with a part of it alone where that is the target.
	Of(ctx context.Context, server, target string) (schemas.BlastRadius, error)
}

// Config is the user's part.
type Config struct {
	Mode     string        `yaml:"mode"`     // observe, dry-run, approve or enforce
	Policies string        `yaml:"policies"` // a policy file; empty is the built-in one
	LeaseTTL time.Duration `yaml:"lease_ttl"`
	Poll     time.Duration `yaml:"poll"`      // between two looks at a step's effect
	CallTime time.Duration `yaml:"call_time"` // bound on one call to a device
	// ApproveWithin bounds how long a step waits for a person or for a budget.
	ApproveWithin time.Duration `yaml:"approve_within"`
}

// DefaultConfig observes: it proposes, and sends nothing.
func DefaultConfig() Config {
	return Config{
		Mode: schemas.ModeObserve, LeaseTTL: 2 * time.Minute, Poll: time.Second, CallTime: 30 * time.Second, ApproveWithin: 30 * time.Minute,
	}
}

var modes = policy.Modes()

// Validate names the key at fault.
func (c *Config) Validate() error {
	if !slices.Contains(modes, c.Mode) {
		return fmt.Errorf("mode: want observe, dry-run, approve or enforce, got %q", c.Mode)
	}
	if c.LeaseTTL <= 0 || c.Poll <= 0 || c.CallTime <= 0 || c.ApproveWithin <= 0 {
		return errors.New("lease_ttl, poll, call_time and approve_within must be positive")
	}
	_, err := policy.Read(c.Policies)
	return err
}

// Deps is what control stands on.
type Deps struct {
	Log         *slog.Logger
	Metrics     prometheus.Registerer
	Now         func() time.Time
	DB          *sqldb.DB
	Records     *records.Store
	Bus         bus.Bus
	Inventory   Inventory
	Remediators map[string]Remediator // by kind of rung
	Life        Life                  // nil hears nothing: no repair is ever verified
	// View tells whose eyes a collector, or a source of events, reads with; nil knows
	// nobody, and then nobody is believed.
	View        func(name string) schemas.View
	Faults      *propagation.Model // whose records name policies; nil is the built-in ones
	Maintenance Maintenance        // nil knows of none
	Groups      Groups             // nil knows none: policies without limits of them alone can be held
	Freezes     Freezes            // nil knows of none
	Costs       Costs              // nil knows none: nobody is told what a step would end
	Holder      string             // names this process in leases
	// Resource finds a resource of the inventory, for who is told of it; nil finds none.
	Resource func(id string) (schemas.Resource, bool)
	Console  string // where people reach the user interface; empty is that nobody said it
}

// Controller is the stage. It is made by New and lives in Run.
type Controller struct {
	cfg      Config
	d        Deps
	policies policy.Set
	store    *store

	decide    sync.Mutex                // a check and what it decides are one
	reporting sync.Mutex                // held while the budgets are counted and written
	counting  sync.Mutex                // guards counts
	told      map[string]schemas.NoStep // why incidents have no step, as it was written last; of the report alone
	counts    counts

	mu        sync.Mutex
	incidents map[string]*candidate
	open      map[string]*climb        // by key; failed ones stay while the server is out of the pool
	out       map[string]*climb        // of these, those that keep a server out of the pool
	wake      map[string]chan struct{} // by action: an intent came
	taken     []*climb                 // requests that the tick is to start
	asked     []time.Time              // when ladders with destructive steps were opened
	withdrawn map[string]string        // incidents that closed ("") or changed their cause, until the tick

	wg      sync.WaitGroup
	dirty   chan struct{}
	taking  chan struct{}
	news    chan struct{} // an incident came
	checks  prometheus.Histogram
	actions *prometheus.CounterVec
	ignored *prometheus.CounterVec

	deposed func() // ends what this controller does where another leads

	// afterStep is called between any two steps of a climb, and after waits of it; tests stop there.
	afterStep func(name string)
	after     func(d time.Duration) <-chan time.Time
	lateness  time.Duration // after a decision, until nothing that was sent for it can reach a device any more
}

// candidate is an open incident whose cause is settling.
type candidate struct {
	inc     schemas.Incident
	settled time.Time // since when the root cause stands
	known   bool      // it has its case
	ended   string    // the state in which that has ended, where it has
	rests   bool      // a ladder failed on its server of late
	lapses  int       // ladders that ended because it was not sure enough, or taken back

	prediction *schemas.Prediction // instead of an incident: what is to come
}

// New checks the configuration and returns a controller that does nothing yet.
func New(cfg Config, d Deps) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	set, err := policy.Read(cfg.Policies)
	if err != nil {
		return nil, err
	}
	if set.NamesPools() && d.Groups == nil {
		return nil, errPools
	}
	if d.Faults != nil {
		set.Follow(policy.Of(d.Faults))
		if missing := set.Missing(d.Faults); len(missing) > 0 {
			return nil, fmt.Errorf("control: %s", strings.Join(missing, "; "))
		}
	}
	c := &Controller{
		cfg: cfg, d: d, policies: set, store: &store{db: d.DB, holder: d.Holder, now: d.Now, ttl: cfg.LeaseTTL},
		incidents: map[string]*candidate{}, open: map[string]*climb{}, out: map[string]*climb{}, wake: map[string]chan struct{}{}, withdrawn: map[string]string{},
		dirty: make(chan struct{}, 1), taking: make(chan struct{}, 1), news: make(chan struct{}, 1), deposed: func() {}, afterStep: func(string) {}, after: time.After,
		lateness: 2 * cfg.CallTime, // it is sent within one (awake), and is under way for one
		checks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "auspex_control_check_seconds", Help: "Time that one evaluation of all checks of a step took.",
			Buckets: []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 5e-3, 25e-3, 100e-3},
		}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_actions_total", Help: "Changes of actions, by kind, mode and new state.",
		}, []string{"kind", "mode", "state"}),
		ignored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_messages_ignored_total", Help: "Messages that could not be used, by topic.",
		}, []string{"topic"}),
	}
	for kind, r := range d.Remediators {
		if _, ok := r.(Ender); ok {
			c.store.ends = append(c.store.ends, kind)
		}
	}
	if d.Metrics != nil {
		d.Metrics.MustRegister(c.actions, c.ignored, c.checks)
	}
	return c, nil
}

// Name implements run.Component.
func (c *Controller) Name() string { return "control" }

// serve takes up what was open, then follows incidents and intents until ctx is done or another controller leads.
func (c *Controller) serve(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer c.wg.Wait()
	defer cancel(nil)
	c.deposed = func() { cancel(errDeposed) }
	if err := c.restore(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	following := map[Follower]bool{} // one may do several kinds of steps
	for _, r := range c.d.Remediators {
		if f, ok := r.(Follower); ok && !following[f] {
			following[f] = true
			c.wg.Go(func() { f.Follow(ctx) })
		}
	}
	errs := make(chan error, 6)
	spawn := func(f func(context.Context) error) { c.wg.Go(func() { errs <- f(ctx) }) }
	spawn(func(ctx context.Context) error {
		return bus.Follow(ctx, c.d.Bus, bus.Subscription{Topic: schemas.TopicIncidents, Group: "control"}, c.d.Log, c.onIncidents)
	})
	spawn(func(ctx context.Context) error {
		return bus.Follow(ctx, c.d.Bus, bus.Subscription{Topic: schemas.TopicPredictions, Group: "control"}, c.d.Log, c.onPredictions)
	})
	spawn(func(ctx context.Context) error {
		return bus.Follow(ctx, c.d.Bus, bus.Subscription{Topic: schemas.TopicIntents, Group: "control"}, c.d.Log, c.onIntents)
	})
	spawn(c.publishLoop)
	spawn(c.tickLoop)
	spawn(c.keepLeading)
	ready()
	for range cap(errs) {
		if err := <-errs; err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// restore takes up open cases where they stood and the incidents that are open.
func (c *Controller) restore(ctx context.Context) error {
	if rows, err := audit.Verify(ctx, c.d.DB); errors.Is(err, audit.ErrBroken) {
		c.d.Log.Error("audit was changed by someone else", "rows_that_hold", rows, "error", err)
	} else if err != nil {
		return err
	}
	// The storm breaker must not forget because the process ended.
	recent, err := c.store.opened(ctx, c.d.Now().Add(-c.policies.Breaker.Window))
	if err != nil {
		return err
	}
	for _, k := range recent {
		if p, ok := c.policyOf(k); ok && k.Request == nil && p.Destroys() {
			c.asked = append(c.asked, k.Opened)
		}
	}
	incs, _, err := c.d.Records.Incidents(ctx, records.Filter{Status: records.StatusOpen, Limit: 10000})
	if err != nil {
		return fmt.Errorf("restore incidents: %w", err)
	}
	for _, i := range incs {
		c.consider(i)
	}
	if err := c.recall(ctx); err != nil {
		return err
	}
	failed, err := c.store.cases(ctx, caseFailed)
	if err != nil {
		return err
	}
	open, err := c.store.cases(ctx, caseOpen)
	if err != nil {
		return err
	}
	reading, err := c.store.cases(ctx, caseReading)
	if err != nil {
		return err
	}
	open = append(open, reading...)
	for _, k := range open {
		if err := c.store.ladderOf(ctx, k); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.taken = nil // they are among the open ones
	c.mu.Unlock()
	c.takeUp(failed, open)
	for _, k := range open {
		c.start(ctx, k)
	}
	return nil
}

// takeUp notes the ladders that stand, all of them before any goes on: each counts in
// the budgets of the others.
func (c *Controller) takeUp(failed, open []*climb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range failed {
		if k.Cordoned {
			c.open[k.key()] = k
			c.notes(k)
		}
	}
	for _, k := range open {
		c.open[k.key()] = k
		c.notes(k)
	}
}

func (c *Controller) onIncidents(_ context.Context, msgs []bus.Message) error {
	for _, m := range msgs {
		var i schemas.Incident
		if err := json.Unmarshal(m.Value, &i); err != nil {
			c.ignored.WithLabelValues(schemas.TopicIncidents).Inc()
			c.d.Log.Warn("cannot read incident", "partition", m.Partition, "offset", m.Offset, "error", err)
			continue
		}
		c.consider(i)
	}
	c.hurry()
	return nil
}

// hurry has the tick look at once.
func (c *Controller) hurry() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// consider notes an incident's state; the tick decides when its cause has settled.
func (c *Controller) consider(i schemas.Incident) { c.note(candidate{inc: i}) }

func (c *Controller) note(n candidate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := &n.inc
	if i.Closed != nil || i.MergedInto != "" {
		delete(c.incidents, i.ID)
		c.withdrawn[i.ID] = ""
		return
	}
	old := c.incidents[i.ID]
	n.settled = c.d.Now()
	if old != nil && old.inc.RootCause.Resource == i.RootCause.Resource && old.inc.RootCause.Fault == i.RootCause.Fault {
		n.settled, n.known, n.ended, n.rests, n.lapses = old.settled, old.known, old.ended, old.rests, old.lapses
	} else {
		c.withdrawn[i.ID] = i.RootCause.Resource
	}
	c.incidents[i.ID] = &n
}

// stands returns the incident of a case while it is open and still blames what
// the case treats.
func (c *Controller) stands(k *climb) bool {
	if k.Request != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.incidentOf(k)
	if n == nil || n.inc.RootCause.Resource != k.Target || k.yields {
		return false
	}
	if n.inc.Updated.After(k.Evidence) { // what a failed repair has shown may be newer
		k.Evidence = n.inc.Updated
	}
	k.Confidence = n.inc.RootCause.Sure()
	return true
}

// incidentOf returns the open incident whose cause a case treats: the one that it was opened for, or, where that has
// closed, one that names the same cause since. A restart that does not help ends all signs, and they come again. c.mu is held.
func (c *Controller) incidentOf(k *climb) *candidate {
	if n := c.incidents[k.Incident]; n != nil || k.Incident == "" || k.Foretold && !k.Touched {
		return n
	}
	for _, n := range c.incidents {
		if n.prediction == nil && n.inc.RootCause.Resource == k.Target && n.inc.RootCause.Fault == k.Fault {
			return n
		}
	}
	return nil
}

// reportEvery is how often the budgets are counted where nothing happens: rates
// and the breaker fall with time alone.
const reportEvery = 15 * time.Second

// tickLoop opens cases for incidents whose cause has stood long enough.
func (c *Controller) tickLoop(ctx context.Context) error {
	t, reports := time.NewTicker(time.Second), time.NewTicker(reportEvery)
	defer t.Stop()
	defer reports.Stop()
	for c.report(ctx); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-reports.C:
			c.report(ctx)
		case <-c.taking:
			c.begin(ctx)
		case <-c.news:
			if err := c.openDue(ctx); err != nil {
				return err
			}
		case <-t.C:
			if err := c.openDue(ctx); err != nil {
				return err
			}
		}
	}
}

func (c *Controller) openDue(ctx context.Context) error {
	if err := errors.Join(c.withdraw(ctx), c.decided(ctx)); err != nil {
		return err
	}
	now := c.d.Now()
	c.mu.Lock()
	var due []candidate
	for _, n := range c.incidents {
		p, ok := c.policyFor(n)
		if ok && !n.known && now.Sub(n.settled) >= n.settles(&p) && n.inc.RootCause.Sure() >= p.MinConfidence && n.near(&p, now) {
			due = append(due, *n)
		}
	}
	c.mu.Unlock()
	slices.SortFunc(due, func(a, b candidate) int {
		if (a.prediction == nil) != (b.prediction == nil) { // what has failed comes first
			if a.prediction == nil {
				return -1
			}
			return 1
		}
		return a.inc.Opened.Compare(b.inc.Opened)
	})
	for some := range slices.Chunk(due, sharedWrites) {
		if err := c.openCases(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// withdraw cancels proposals whose incident closed or names another cause now.
func (c *Controller) withdraw(ctx context.Context) error {
	c.mu.Lock()
	todo := maps.Clone(c.withdrawn)
	clear(c.withdrawn)
	c.mu.Unlock()
	for incident, target := range todo {
		cases, actions, err := c.store.proposals(ctx, incident, target)
		if err != nil {
			return err
		}
		for i := range actions {
			a := &actions[i]
			if target == "" && a.Person && cases[i].Cordoned { // the signs may have ended because the server is out
				continue
			}
			sentence := messages.New(messages.OtherCause, nil)
			switch {
			case cases[i].Foretold:
				sentence = messages.New(messages.NotForetold, nil)
			case target == "":
				sentence = messages.New(messages.IncidentClosed, nil)
			}
			become(a, schemas.ActionCancelled, sentence)
			if err := c.saveDecision(ctx, cases[i], a, "withdraw"); err != nil {
				return err
			}
			k := cases[i]
			if k.State != caseProposed || i+1 < len(cases) && cases[i+1].ID == k.ID {
				continue
			}
			k.Lapsed = true
			if err := c.store.fenced(ctx, func(tx *sql.Tx) error { return c.store.saveCase(ctx, tx, k) }); err != nil {
				return err
			}
			c.lapsed(k)
		}
	}
	return nil
}

// rests reports whether a ladder on this server failed of late: a person has been
// told, and another cause on the same server does not start the next one.
func (c *Controller) rests(ctx context.Context, resource string) (bool, error) {
	subject, _, _, ok := c.d.Inventory.Place(resource)
	if !ok || subject == "" {
		subject = resource
	}
	c.mu.Lock()
	_, held := c.open[subject]
	c.mu.Unlock()
	if held {
		return true, nil
	}
	return c.store.failedSince(ctx, subject, c.d.Now().Add(-restAfterFailure))
}

// restAfterFailure is how long a server is left alone after a ladder failed on it.
const restAfterFailure = time.Hour

// mostLapses bounds how much longer a cause has to stand with each ladder that lapsed.
const mostLapses = 6

// settles is how long a cause has to stand: with each ladder that lapsed twice as long, so that nobody is asked about one
// that wavers at each turn.
func (n *candidate) settles(p *policy.Policy) time.Duration {
	if n.lapses == 0 {
		return p.Settle
	}
	return max(p.Settle, time.Second) << min(n.lapses, mostLapses)
}

// lapsed notes that a ladder made way for another, should its cause come again.
func (c *Controller) lapsed(k *climb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.incidents[k.Incident]; n != nil && n.inc.RootCause.Resource == k.Target {
		n.known, n.ended, n.settled = false, "", c.d.Now()
		n.lapses++
	}
}

// lapses reports whether a ladder ends, with nothing done, because its cause was taken back or is not sure enough any more.
func lapses(k *climb, a *schemas.Action) bool {
	if k.Touched || k.Request != nil {
		return false
	}
	gone := a.DetailSentence != nil && slices.Contains([]string{messages.CauseGone, messages.NotForetold, messages.FailedBefore}, a.DetailSentence.ID)
	return a.State == schemas.ActionCancelled && gone || a.State == schemas.ActionRefused && lacking(a.Rails, railConfidence)
}

// openCases opens the cases of incidents and predictions, all of them in one transaction. Where another ladder stands on a server, it is
// tried again.
func (c *Controller) openCases(ctx context.Context, of []candidate) error {
	var cases []*climb
	for i := range of {
		k, err := c.newCase(ctx, &of[i])
		if err != nil {
			return err
		}
		if k != nil {
			cases = append(cases, k)
		}
	}
	if len(cases) == 0 {
		return nil
	}
	now := c.store.now()
	opened := make([]bool, len(cases))
	leases := make([]lease, len(cases))
	err := c.store.fenced(ctx, func(tx *sql.Tx) (err error) {
		for i, k := range cases {
			if opened[i], err = c.store.openCase(ctx, tx, k); err != nil {
				return err
			}
			if opened[i] && (k.Mode == schemas.ModeApprove || k.Mode == schemas.ModeEnforce) { // its first step asks for it
				token, ours, err := c.store.leaseIn(ctx, tx, k.Subject, now, c.cfg.LeaseTTL)
				if err != nil {
					return fmt.Errorf("take lease of %s: %w", k.Subject, err)
				}
				if ours {
					leases[i] = lease{token, now.Add(c.cfg.LeaseTTL / 2)}
				}
			}
		}
		return nil
	})
	if sqldb.Again(err) { // somebody takes some of these servers at this moment
		return nil
	}
	if err != nil {
		return err
	}
	for i, k := range cases {
		if !opened[i] {
			continue
		}
		c.store.leased(k.Subject, leases[i], leases[i].token > 0)
		c.opened(k)
		c.start(ctx, k)
	}
	return nil
}

// opened notes a case that was opened.
func (c *Controller) opened(k *climb) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.knows(k.Incident, k.Target)
	c.open[k.Subject] = k
	if p, _ := c.policyOf(k); p.Destroys() {
		c.asked = append(c.asked, c.d.Now())
	}
}

// knows notes that a cause of an incident has its case; c.mu is held.
func (c *Controller) knows(incident, target string) {
	if n := c.incidents[incident]; n != nil && n.inc.RootCause.Resource == target {
		n.known = true
	}
}

// newCase is the case of an incident, nil where it has one or its server is to rest.
func (c *Controller) newCase(ctx context.Context, of *candidate) (*climb, error) {
	i := &of.inc
	state, lapsed, err := c.store.hasCase(ctx, i.ID, i.RootCause.Resource)
	if err != nil || state != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		if state != "" {
			c.knows(i.ID, i.RootCause.Resource)
			c.endedCase(i.ID, i.RootCause.Resource, state)
		}
		return nil, err
	}
	p, _ := c.policyFor(of)
	if of.prediction == nil {
		// A bus may hand over once more what was said before: what the records have as closed since is no reason.
		kept, found, err := c.d.Records.Incident(ctx, i.ID)
		if err != nil {
			return nil, err
		}
		if found && (kept.Closed != nil || kept.MergedInto != "") && !kept.Updated.Before(i.Updated) {
			c.consider(kept)
			return nil, nil
		}
		c.makeWay(i.RootCause.Resource)
	}
	rests, err := c.rests(ctx, i.RootCause.Resource)
	c.mu.Lock()
	if n := c.incidents[i.ID]; n != nil {
		n.rests = rests
	}
	c.mu.Unlock()
	if err != nil || rests {
		return nil, err
	}
	subject, rack, site, ok := c.d.Inventory.Place(i.RootCause.Resource)
	if !ok || subject == "" {
		subject = i.RootCause.Resource
	}
	k := &climb{
		ID: caseID(i.ID, i.RootCause.Resource, lapsed), Nth: lapsed, Incident: i.ID, Subject: subject,
		Target: i.RootCause.Resource, Fault: i.RootCause.Fault, Confidence: i.RootCause.Sure(), Why: i.Explanation, Summary: i.Summary,
		Policy: p.Name, Ladder: c.kindsFor(&p, i.RootCause.Resource), Rack: rack, Site: site, Evidence: i.Updated, Opened: c.d.Now().UTC(), State: caseOpen,
		Foretold: of.prediction != nil,
	}
	k.Mode, err = c.modeFor(ctx, k, &p)
	return k, err
}

// caseRetry is the first wait of a case whose store failed.
const caseRetry = time.Second

// start climbs, and again from what is stored where the store failed meanwhile: an
// answer that was lost may have been a yes.
func (c *Controller) start(ctx context.Context, k *climb) {
	c.afterStep("start " + k.Subject)
	c.wg.Go(func() {
		defer c.afterStep("left")
		c.afterStep("climb " + k.Subject)
		for wait := caseRetry; ; wait = min(2*wait, time.Minute) {
			err := c.guard(ctx, k)
			if err == nil || ctx.Err() != nil {
				return
			}
			if errors.Is(err, errDeposed) {
				c.deposed()
				return
			}
			c.d.Log.Error("cannot advance case", "case", k.ID, "server", k.Subject, "error", err)
			if errors.Is(err, errPanic) {
				return
			}
			for again := false; !again; {
				if c.pause(ctx, wait) != nil {
					return
				}
				if again, err = c.reread(ctx, k); err == nil && !again {
					return
				}
			}
		}
	})
}

// reread makes a case what is stored of it, and says whether it is open.
func (c *Controller) reread(ctx context.Context, k *climb) (open bool, err error) {
	stored, err := c.store.caseByID(ctx, k.ID)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := k.vigil
	*k = *stored
	k.vigil = v
	if !k.open() && (k.State != caseFailed || !k.Cordoned) {
		delete(c.open, k.key())
	}
	c.notes(k)
	return k.open(), nil
}

var errPanic = errors.New("panic")

// guard keeps a driver's panic to its own case, which then stands still for a
// person to see; nothing is sent again.
func (c *Controller) guard(ctx context.Context, k *climb) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
	}()
	return c.work(ctx, k)
}

// publishLoop publishes what changed, after it was committed.
func (c *Controller) publishLoop(ctx context.Context) error {
	retry := time.NewTicker(5 * time.Second)
	defer retry.Stop()
	for {
		more, err := c.publish(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case more:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.dirty:
		case <-retry.C:
		}
	}
}

// publish publishes some of what changed, and says whether there is more.
func (c *Controller) publish(ctx context.Context) (more bool, err error) {
	todo, err := c.store.unpublished(ctx, sharedWrites)
	if err != nil {
		return false, err
	}
	c.report(ctx) // before a change is told, so that who hears of it reads these
	if len(todo) == 0 {
		return false, nil
	}
	msgs := make([]bus.Message, len(todo))
	for i := range todo {
		a := &todo[i].action
		msgs[i] = bus.Message{Topic: schemas.TopicOutcomes, Key: cmp.Or(a.Server, a.Target), Value: []byte(todo[i].doc)}
	}
	if err := c.d.Bus.Publish(ctx, msgs...); err != nil {
		c.d.Log.Warn("outcomes wait for the bus", "actions", len(msgs), "error", err)
		return false, nil
	}
	return len(todo) == sharedWrites, c.store.published(ctx, todo)
}
