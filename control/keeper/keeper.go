// Package keeper sees to it that servers and GPUs are configured as their configurations say. It reads how
// they are set, tells what has drifted, and asks control for the steps that set it, as a person would: it
// has no way to a device but what control's drivers read. How often it may try is bounded; after that a
// person has to look.
package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/store/configs"
	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Config is the user's part.
type Config struct {
	// Enforce has configurations set, and set again where they drift, in the mode enforce of control. Without
	// it they are read, and drifts are told.
	Enforce bool `yaml:"enforce"`
	// Reset restarts servers for BIOS settings, which else wait until somebody restarts the server.
	Reset bool `yaml:"reset"`
	// Read is how often a server that has a configuration is read.
	Read time.Duration `yaml:"read"`
	// Attempts bounds how often one version is tried, within a day where it was in force before.
	Attempts int `yaml:"attempts"`
	// CoolDown is the pause after the first attempt; it doubles with each.
	CoolDown time.Duration `yaml:"cool_down"`
	// Parallel is how many servers are read at the same time.
	Parallel int `yaml:"parallel"`
}

// DefaultConfig reads, and sets nothing.
func DefaultConfig() Config {
	return Config{Read: 10 * time.Minute, Attempts: 3, CoolDown: 10 * time.Minute, Parallel: 8}
}

// Validate names the key at fault.
func (c *Config) Validate() error {
	switch {
	case c.Read < 10*time.Second:
		return fmt.Errorf("read: %s is too often; at least 10s", c.Read)
	case c.Attempts < 1 || c.Attempts > 10:
		return fmt.Errorf("attempts: want 1 to 10, got %d", c.Attempts)
	case c.CoolDown <= 0:
		return errors.New("cool_down must be positive")
	case c.Parallel < 1 || c.Parallel > 256:
		return fmt.Errorf("parallel: want 1 to 256, got %d", c.Parallel)
	}
	return nil
}

// Deps is what a keeper stands on.
type Deps struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
	Store   *configs.Store
	Bus     bus.Bus
	// Remediators by kind of rung: those that are a [control.Reader] are read, the others never.
	Remediators map[string]control.Remediator
	CallTime    time.Duration // bounds one reading of a server
	// Mode is what control may do of a step on a server now: the strictest of its own and of the rules for it.
	Mode        func(ctx context.Context, server, kind string) (string, error)
	Maintenance control.Maintenance
	// Ask puts a request to control on the bus, and Action tells what became of it. The same request
	// again is the same action.
	Ask    func(ctx context.Context, in schemas.Intent) error
	Action func(ctx context.Context, id string) (schemas.Action, bool, error)
}

const (
	actor = "auspex"

	tick     = time.Second
	refresh  = 5 * time.Second  // between two looks for new versions
	overlap  = 10 * time.Minute // by which clocks of those who store versions may differ
	reload   = 10 * time.Minute // between two looks at all versions
	poll     = 3 * time.Second  // between two looks at an operation
	askAgain = time.Minute      // for a request of which control has made nothing
	failed   = time.Minute      // after a first reading that failed; it doubles
	stale    = time.Hour        // how old the stored time of a reading may become
	confirm  = 20               // what is read otherwise is read again after this part of the usual time
)

// Keeper keeps configurations in force. It is made by New and lives in Run.
type Keeper struct {
	cfg Config
	d   Deps

	mu      sync.Mutex
	servers map[string]*server

	reads  *prometheus.CounterVec
	asked  *prometheus.CounterVec
	drifts *prometheus.CounterVec
	states *prometheus.GaugeVec
}

// server is one that has configurations, itself or of its GPUs.
type server struct {
	wants map[string]configs.Wanted    // by subject
	known map[string]*configs.Standing // of the visit alone
	state map[string]string            // by subject, for the gauge

	busy   bool      // it is visited now
	read   time.Time // when it is to be read
	visit  time.Time // when it is to be looked at
	misses int       // readings that failed in a row
}

// New returns a keeper that does nothing yet.
func New(cfg Config, d Deps) (*Keeper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("control: configuration: %w", err)
	}
	k := &Keeper{
		cfg: cfg, d: d, servers: map[string]*server{},
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_config_reads_total", Help: "Readings of how servers are set, by what they are set by and result: ok, error.",
		}, []string{"kind", "result"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_config_requests_total", Help: "Steps that were asked for so that a configuration is in force, by kind.",
		}, []string{"kind"}),
		drifts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_control_config_events_total", Help: "Events of configurations that were told, by type and state.",
		}, []string{"type", "state"}),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auspex_control_configurations", Help: "Servers and GPUs that have a configuration, by how it fares.",
		}, []string{"state"}),
	}
	if d.Metrics != nil {
		d.Metrics.MustRegister(k.reads, k.asked, k.drifts, k.states)
	}
	return k, nil
}

// Name implements run.Component.
func (k *Keeper) Name() string { return "configurations" }

// Run keeps configurations until ctx is done.
func (k *Keeper) Run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	stored, err := k.d.Store.States(ctx)
	if err == nil {
		known := make(map[string]configs.Standing, len(stored))
		for _, st := range stored {
			known[st.Subject] = st
		}
		err = k.learn(ctx, time.Time{}, known)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	errs := make(chan error, 2)
	for topic, handle := range map[string]bus.Handler{schemas.TopicEvents: k.onEvents, schemas.TopicOutcomes: k.onOutcomes} {
		all.Go(func() {
			errs <- bus.Follow(ctx, k.d.Bus, bus.Subscription{Topic: topic, Group: "configurations", FromNewest: true}, k.d.Log, handle)
		})
	}
	ready()
	places := make(chan struct{}, k.cfg.Parallel)
	t := time.NewTicker(tick)
	defer t.Stop()
	looked, loaded := k.d.Now(), k.d.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-errs:
			if err != nil && ctx.Err() == nil {
				return err
			}
		case <-t.C:
		}
		if now := k.d.Now(); now.Sub(looked) >= refresh {
			since := now.Add(-overlap)
			if now.Sub(loaded) >= reload {
				since, loaded = time.Time{}, now
			}
			if err := k.learn(ctx, since, nil); err != nil && ctx.Err() == nil {
				k.d.Log.Warn("configurations are not up to date; trying again", "error", err)
			}
			looked = now
		}
		for _, name := range k.due() {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return nil
			}
			all.Go(func() {
				defer func() { <-places }()
				k.visit(ctx, name)
			})
		}
	}
}

// learn takes up versions that were stored since a time; of all, it forgets what is no more. At the start it
// is told what was known before, by subject.
func (k *Keeper) learn(ctx context.Context, since time.Time, known map[string]configs.Standing) error {
	wants, err := k.d.Store.Latest(ctx, since)
	if err != nil {
		return err
	}
	now := k.d.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	there := map[string]bool{}
	for _, w := range wants {
		there[w.Subject] = true
		s := k.servers[w.Server]
		if s == nil {
			s = &server{wants: map[string]configs.Wanted{}, known: map[string]*configs.Standing{}, state: map[string]string{}, read: now.Add(k.spread(w.Server))}
			s.visit = s.read
			k.servers[w.Server] = s
		}
		looked := s.wants[w.Subject].Version
		if st, ok := known[w.Subject]; ok && st.Server == w.Server {
			s.known[w.Subject], s.state[w.Subject], looked = &st, st.State, st.Version
			if st.Operation != "" || len(st.Untold) > 0 {
				s.visit = now
			}
		}
		if looked != w.Version { // it was stored since
			s.read, s.visit = now, now
		}
		s.wants[w.Subject] = w
	}
	if !since.IsZero() {
		return nil
	}
	for name, s := range k.servers {
		maps.DeleteFunc(s.wants, func(subject string, w configs.Wanted) bool { return !there[subject] || w.Server != name })
		if len(s.wants) == 0 && !s.busy {
			delete(k.servers, name)
		}
	}
	k.count()
	return nil
}

// spread is when within the time between two readings a server is read first, so that not all are at once.
func (k *Keeper) spread(name string) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return time.Duration(h.Sum64() % uint64(k.cfg.Read))
}

// count sets the gauge of states; the mutex is held.
func (k *Keeper) count() {
	n := map[string]int{}
	for _, s := range k.servers {
		for subject := range s.wants {
			if state := s.state[subject]; state != "" {
				n[state]++
			} else {
				n[schemas.ConfigPending]++
			}
		}
	}
	k.states.Reset()
	for state, count := range n {
		k.states.WithLabelValues(state).Set(float64(count))
	}
}

// due takes the servers that are to be visited now, the longest overdue first.
func (k *Keeper) due() []string {
	now := k.d.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for name, s := range k.servers {
		if !s.busy && !now.Before(s.visit) {
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return k.servers[a].visit.Compare(k.servers[b].visit) })
	out = out[:min(len(out), k.cfg.Parallel)] // the rest when these are done: others may be due by then
	for _, name := range out {
		k.servers[name].busy = true
	}
	return out
}

// hurry has a server read at once.
func (k *Keeper) hurry(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.servers[name]; s != nil {
		now := k.d.Now()
		s.read, s.visit, s.misses = now, now, 0
	}
}

// onEvents reads a server again that has started anew: drivers forget how they were set.
func (k *Keeper) onEvents(_ context.Context, msgs []bus.Message) error {
	var batch auspexv1.Batch
	for _, m := range msgs {
		if k.has(m.Key) && wire.Decode(m.Value, &batch) == nil && slices.ContainsFunc(batch.GetEvents(), func(e *auspexv1.Event) bool {
			return e.GetType() == schemas.EventHostReboot
		}) {
			k.hurry(m.Key)
		}
	}
	return nil
}

func (k *Keeper) has(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.servers[name] != nil
}

// onOutcomes reads a server again to which something was done, whoever asked for it.
func (k *Keeper) onOutcomes(_ context.Context, msgs []bus.Message) error {
	for _, m := range msgs {
		var a schemas.Action
		if !k.has(m.Key) || json.Unmarshal(m.Value, &a) != nil {
			continue
		}
		if slices.Contains([]string{schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown, schemas.ActionRefused, schemas.ActionCancelled}, a.State) {
			k.hurry(a.Server)
		}
	}
	return nil
}

// visit looks at a server and its parts, and says when it is to be looked at again.
func (k *Keeper) visit(ctx context.Context, name string) {
	k.mu.Lock()
	s := k.servers[name]
	wants := slices.SortedFunc(maps.Values(s.wants), func(a, b configs.Wanted) int { return strings.Compare(a.Kind+a.Name, b.Kind+b.Name) })
	began := k.d.Now()
	v := &visit{k: k, name: name, s: s, wants: wants, now: began, reads: !began.Before(s.read), misses: s.misses}
	was := s.read
	k.mu.Unlock()

	err := v.all(ctx)
	if err != nil && ctx.Err() == nil {
		k.d.Log.Warn("a configuration cannot be looked after; trying again", "server", name, "error", err)
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.d.Now()
	if s.read.Equal(was) { // else somebody wants it read since
		switch {
		case err != nil:
		case v.again:
			s.read = now.Add(k.cfg.Read / confirm)
		case v.missed:
			s.misses++
			s.read = now.Add(min(failed<<min(s.misses-1, 10), max(k.cfg.Read, failed)))
		case v.reads:
			s.misses, s.read = 0, now.Add(k.cfg.Read)
		}
		if !v.ended.IsZero() {
			s.read = v.ended
		}
	}
	s.visit = s.read
	earlier := func(t time.Time) {
		if t.Before(s.visit) {
			s.visit = t
		}
	}
	for subject, st := range s.known {
		if _, ok := s.wants[subject]; !ok {
			delete(s.known, subject)
			delete(s.state, subject)
			continue
		}
		s.state[subject] = st.State
		if st.Operation != "" {
			earlier(now.Add(poll))
		}
		if st.Next.After(now) && st.Operation == "" && st.State != schemas.ConfigInForce && st.Next.Before(s.read) {
			s.read = st.Next
			earlier(st.Next)
		}
	}
	if err != nil {
		s.visit = now.Add(refresh)
	}
	s.busy = false
	k.count()
}

// visit is one look at a server.
type visit struct {
	k     *Keeper
	name  string
	s     *server
	wants []configs.Wanted
	now   time.Time
	reads bool // it is to be read

	misses int
	missed bool      // a reading failed
	again  bool      // it is to be read again soon
	ended  time.Time // an operation has ended: it is to be read now
}

// all looks at all configurations of the server. It reads at most once with each remediator.
func (v *visit) all(ctx context.Context) error {
	busy := false
	for _, w := range v.wants {
		st := v.s.known[w.Subject]
		if st == nil {
			found, known, err := v.k.d.Store.State(ctx, w.Subject)
			if err != nil {
				return err
			}
			if !known {
				found = configs.Standing{}
			}
			st = &found
			v.s.known[w.Subject] = st
		}
		busy = busy || st.Operation != ""
	}
	var readings map[string]*told
	if v.reads {
		readings = v.read(ctx)
	}
	for i := range v.wants {
		w := &v.wants[i]
		st := v.s.known[w.Subject]
		asked, err := v.one(ctx, w, st, readings[w.Step], busy)
		busy = busy || asked
		if errors.Is(err, entity.ErrChanged) { // another process looks after it as well
			delete(v.s.known, w.Subject)
			continue
		} else if err != nil {
			return err
		}
	}
	return nil
}

// told is what a remediator read of a server.
type told struct {
	parts map[string]control.Reading
	err   error
}

// read reads how the server and its parts are set.
func (v *visit) read(ctx context.Context) map[string]*told {
	steps := map[string]control.Step{}
	for i := range v.wants {
		w, st := &v.wants[i], v.s.known[v.wants[i].Subject]
		if w.Step == "" || len(w.With) == 0 {
			continue
		}
		s, ok := steps[w.Step]
		if !ok {
			s = control.Step{Kind: w.Step, Server: v.name, Target: v.name, Since: v.now, With: map[string]string{}}
			steps[w.Step] = s
		}
		for _, with := range []map[string]string{w.With, st.Kept, st.Before} {
			for name := range with {
				s.With[name] = ""
			}
		}
	}
	out := map[string]*told{}
	for kind, step := range steps {
		t := &told{}
		reader, ok := v.k.d.Remediators[kind].(control.Reader)
		switch {
		case ok:
			ctx, cancel := context.WithTimeout(ctx, v.k.d.CallTime)
			t.parts, t.err = reader.Read(ctx, step)
			cancel()
		case v.k.d.Remediators[kind] == nil:
			t.err = fmt.Errorf("%w: no driver for %s", control.ErrCannot, kind)
		default:
			t.err = fmt.Errorf("%w: nobody reads what %s sets", control.ErrCannot, kind)
		}
		result := "ok"
		if t.err != nil {
			result = "error"
			v.missed = v.missed || !errors.Is(t.err, control.ErrCannot)
		}
		v.k.reads.WithLabelValues(kind, result).Inc()
		out[kind] = t
	}
	return out
}

// one looks at one configuration. What is decided is stored before it is done.
func (v *visit) one(ctx context.Context, w *configs.Wanted, st *configs.Standing, t *told, busy bool) (asked bool, err error) {
	k := v.k
	before, err := json.Marshal(&st.ConfigState)
	if err != nil {
		return false, err
	}
	next := configs.Standing{Revision: st.Revision}
	if err := json.Unmarshal(before, &next.ConfigState); err != nil {
		return false, err
	}
	mode, err := k.d.Mode(ctx, w.Server, w.Step)
	if err != nil {
		return false, fmt.Errorf("read what may be done on %s: %w", w.Server, err)
	}
	l := look{now: v.now, want: *w, mode: mode, busy: busy, window: func() (schemas.Sentence, error) { return v.window(ctx, w.Name) }}
	if t != nil {
		l.read, l.err = true, t.err
		if r, ok := t.parts[w.Name]; ok && t.err == nil {
			l.reading = &r
		}
	}
	if next.Operation != "" {
		a, found, err := k.d.Action(ctx, next.Operation)
		if err != nil {
			return false, err
		}
		if found {
			l.action = &a
		} else if v.now.Sub(next.AskedAt) > askAgain {
			if err := k.d.Ask(ctx, *next.Request); err != nil {
				return false, err
			}
		}
	}
	j := judge{cfg: k.cfg, st: &next.ConfigState, look: l}
	do, err := j.decide()
	if err != nil {
		return false, err
	}
	next.Reason = messages.Text(next.Sentence)
	if st.Operation != "" && next.Operation == "" {
		v.ended = v.now
	} else if j.again {
		v.again = true
	}
	if do != nil {
		next.Operation = sqldb.NewID(ctx)
		next.Request = &schemas.Intent{
			ID: next.Operation, Time: v.now.UTC(), Verb: schemas.IntentRequest, Server: w.Server, Kind: do.kind, With: do.with, Reason: do.reason, Actor: actor,
		}
		if w.Kind == schemas.ConfigOfGPU {
			next.Request.Target = w.Name
		}
	}
	if err := v.put(ctx, st, &next, before, do != nil); err != nil {
		return false, err
	}
	if do != nil {
		k.asked.WithLabelValues(do.kind).Inc()
		k.d.Log.Info("a configuration is to be set", "of", w.Name, "version", w.Version, "operation", next.Operation, "reason", do.reason)
		if err := k.d.Ask(ctx, *next.Request); err != nil {
			return true, err
		}
	}
	return next.Operation != "", v.tell(ctx, st)
}

// window says why nothing is done on a server now.
func (v *visit) window(ctx context.Context, part string) (schemas.Sentence, error) {
	if v.k.d.Maintenance == nil {
		return schemas.Sentence{}, nil
	}
	m, open, err := v.k.d.Maintenance.Covering(ctx, v.now, v.name, part)
	if err != nil || !open {
		return schemas.Sentence{}, err
	}
	return messages.New(messages.InWindow, messages.Args{"window": m.ID, "by": m.By, "server": v.name, "until": m.End().UTC().Format(time.RFC3339)}), nil
}

// put stores a state that has changed; that something was read again is stored now and then. One that asks for something
// is stored while nobody else asks on the server.
func (v *visit) put(ctx context.Context, st, next *configs.Standing, before []byte, asks bool) error {
	read := next.ReadAt
	if read.Sub(st.ReadAt) < stale {
		next.ReadAt = st.ReadAt
	}
	after, err := json.Marshal(&next.ConfigState)
	if err != nil {
		return err
	}
	if bytes.Equal(before, after) && st.Revision > 0 {
		return nil
	}
	next.ReadAt = read
	if asks {
		others := make([]string, len(v.wants))
		for i := range v.wants {
			others[i] = v.wants[i].Subject
		}
		err = v.k.d.Store.Claim(ctx, next, others)
	} else {
		err = v.k.d.Store.PutState(ctx, next)
	}
	if err != nil {
		return err
	}
	*st = *next
	return nil
}

// tell publishes the events of a state, which are stored with it until they are on the bus.
func (v *visit) tell(ctx context.Context, st *configs.Standing) error {
	if len(st.Untold) == 0 {
		return nil
	}
	batch := auspexv1.Batch{Device: v.name, Collector: schemas.SourceControl, Observed: v.now.UnixNano()}
	for i := range st.Untold {
		batch.Events = append(batch.Events, st.Untold[i].Wire())
	}
	value, err := batch.MarshalVT()
	if err != nil {
		return fmt.Errorf("encode events of the configuration of %s: %w", st.Name, err)
	}
	if err := v.k.d.Bus.Publish(ctx, bus.Message{Topic: schemas.TopicEvents, Key: v.name, Value: value}); err != nil {
		return fmt.Errorf("publish events of the configuration of %s: %w", st.Name, err)
	}
	for i := range st.Untold {
		v.k.drifts.WithLabelValues(st.Untold[i].Type, st.Untold[i].State).Inc()
	}
	next := *st
	next.Untold = nil
	if err := v.k.d.Store.PutState(ctx, &next); err != nil {
		return err
	}
	*st = next
	return nil
}
