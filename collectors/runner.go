package collectors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"auspex/internal/run"
	"auspex/schemas"
)

// RunnerConfig bounds how hard the runner tries.
type RunnerConfig struct {
	// StartSpread is the span over which the first runs of all devices are spread.
	StartSpread time.Duration `yaml:"start_spread"`
	// BackoffMin and BackoffMax bound the wait after an error, BackoffLong that after many: a device that has been away
	// for long, or refuses our credentials, is asked less often.
	BackoffMin  time.Duration `yaml:"backoff_min"`
	BackoffMax  time.Duration `yaml:"backoff_max"`
	BackoffLong time.Duration `yaml:"backoff_long"`
	// LostMisses and LostAfter say when a device counts as unreachable: both the
	// misses in a row and the time since the first of them.
	LostMisses int           `yaml:"lost_misses"`
	LostAfter  time.Duration `yaml:"lost_after"`
	// TelemetryPatience is how long samples wait for a bus that refuses them
	// before they are given up and counted. Events wait for ever.
	TelemetryPatience time.Duration `yaml:"telemetry_patience"`
	// EventRate and SampleRate are what one collector of one device may say a
	// second, on average over 20 s, before it is read more slowly; 0 is no bound.
	EventRate  int `yaml:"event_rate"`
	SampleRate int `yaml:"sample_rate"`
}

// DefaultRunnerConfig returns the defaults.
func DefaultRunnerConfig() RunnerConfig {
	return RunnerConfig{
		StartSpread: time.Second, BackoffMin: time.Second, BackoffMax: 30 * time.Second, BackoffLong: 10 * time.Minute,
		LostMisses: 3, LostAfter: 5 * time.Second, TelemetryPatience: time.Minute,
		EventRate: 500, SampleRate: 20000,
	}
}

// Validate names the first value that makes no sense.
func (c RunnerConfig) Validate() error {
	switch {
	case c.StartSpread < 0:
		return errors.New("start_spread must not be negative")
	case c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin:
		return errors.New("backoff_min must be positive and backoff_max not below it")
	case c.BackoffLong < c.BackoffMax:
		return errors.New("backoff_long must not be below backoff_max")
	case c.LostMisses < 1 || c.LostAfter < 0:
		return errors.New("lost_misses must be at least 1 and lost_after not negative")
	case c.TelemetryPatience < 0:
		return errors.New("telemetry_patience must not be negative")
	case c.EventRate < 0 || c.SampleRate < 0:
		return errors.New("event_rate and sample_rate must not be negative")
	}
	return nil
}

// LossTyper is implemented by configurations that say which event tells the
// loss of contact with their targets; "" tells none. Without it a switch gives
// switch.unreachable, a server host.unreachable, anything else none.
type LossTyper interface{ LossType() string }

// Types of the events that tell loss and return of contact.
const (
	LossHost   = schemas.EventHostUnreachable
	LossBMC    = schemas.EventBMCUnreachable
	LossSwitch = schemas.EventSwitchUnreachable
)

// Runner keeps one collector running for each target of each configuration,
// tries again what fails, and tells loss and return of contact. It is a
// component; its methods may be called at the same time.
type Runner struct {
	cfg      RunnerConfig
	configs  map[string]Config
	pub      Publisher
	settings Settings
	log      *slog.Logger
	metrics  *metrics

	reconcile sync.Mutex // one at a time, so that no successor meets its predecessor

	mu        sync.Mutex
	instances map[instanceKey]*instance
	known     map[string]bool // ids of the inventory
	holds     func(target schemas.Resource) bool
	running   context.Context // nil before Run and after
	wg        sync.WaitGroup
	contacts  map[contactKey]*contactState
	receivers map[string]*receiving // by collector
}

type instanceKey struct{ collector, device string }

type instance struct {
	collector string
	target    schemas.Resource
	taken     []Sign
	c         Collector
	loss      string
	cancel    context.CancelFunc
	done      chan struct{}
}

// NewRunner makes a runner of configurations by their registered name. Before
// [Runner.Reconcile] it has no targets.
func NewRunner(cfg RunnerConfig, configs map[string]Config, pub Publisher, s Settings) *Runner {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Cursors != nil {
		s.Cursors = guardedCursors{s.Cursors}
	}
	return &Runner{
		cfg: cfg, configs: configs, pub: pub, settings: s, log: s.Log, metrics: newMetrics(s.Metrics),
		instances: make(map[instanceKey]*instance), known: make(map[string]bool), contacts: make(map[contactKey]*contactState),
		receivers: make(map[string]*receiving),
	}
}

// Share leaves the targets that holds denies to other processes, from the next [Runner.Reconcile] on: when that returns, none of them is
// read here any more. It is called before Run.
func (r *Runner) Share(holds func(target schemas.Resource) bool) { r.holds = holds }

// Name implements run.Component.
func (*Runner) Name() string { return "collectors" }

// Run starts what Reconcile has prepared and keeps it running until ctx is
// done; it returns when every collector has returned, or after a bound that
// leaves the rest of the process time to end in order.
func (r *Runner) Run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.running = ctx
	for _, inst := range r.instances {
		r.start(inst)
	}
	for name, l := range r.receivers {
		r.receive(name, l)
	}
	r.mu.Unlock()
	ready()
	<-ctx.Done()
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.wg.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(stopGrace):
		r.left()
	}
	return nil
}

// stopGrace bounds the end of all collectors together. Their calls end with the
// context; what may not is a file system that hangs.
const stopGrace = 2 * time.Second

// left names the collectors that have not returned.
func (r *Runner) left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, inst := range r.instances {
		if inst.done == nil { // was not started any more
			continue
		}
		select {
		case <-inst.done:
		default:
			r.metrics.hung.WithLabelValues(k.collector).Inc()
			r.log.Error("collector does not stop and is abandoned", "collector", k.collector, "device", k.device)
		}
	}
}

// Targets returns how many devices each collector reads.
func (r *Runner) Targets() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int)
	for k := range r.instances {
		out[k.collector]++
	}
	return out
}

// Reconcile brings the instances in line with the inventory: new targets start,
// targets that are gone stop, and those whose attributes changed start anew. It
// performs no I/O before Run. A target that cannot be read is in the error,
// with its name; the others are not affected.
func (r *Runner) Reconcile(resources []schemas.Resource) error {
	r.reconcile.Lock()
	defer r.reconcile.Unlock()
	r.mu.Lock()
	want := make(map[instanceKey]schemas.Resource)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.configs)) {
		l, err := r.listen(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if l != nil {
			l.Place(resources)
		}
		_, passive := r.configs[name].(Passive) // who only sends does so to whom he will
		for _, t := range r.configs[name].Targets(resources) {
			if r.holds != nil && !passive && !r.holds(t) {
				continue
			}
			want[instanceKey{name, t.ID}] = t
		}
	}
	clear(r.known)
	for _, res := range resources {
		r.known[res.ID] = true
	}
	have := bringing(r.configs, resources)
	taken := make(map[instanceKey][]Sign)
	for k, t := range want {
		taken[k] = have.taken(r.configs, k.collector, DeviceOf(t))
	}
	var stopped []*instance
	for k, inst := range r.instances {
		if t, ok := want[k]; ok && t.Kind == inst.target.Kind && t.Attrs == inst.target.Attrs && slices.Equal(taken[k], inst.taken) {
			continue
		}
		delete(r.instances, k)
		stopped = append(stopped, inst)
	}
	r.mu.Unlock()
	// A successor must not run beside its predecessor: both would speak to the
	// device and move its cursor.
	stop(stopped)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(want)
	for k, t := range want {
		if _, ok := r.instances[k]; ok {
			continue
		}
		s := r.settings
		s.Log = s.Log.With("collector", k.collector, "device", t.ID)
		s.Taken = taken[k]
		construct := r.configs[k.collector].New
		if l := r.receivers[k.collector]; l != nil {
			construct = l.New
		}
		c, err := construct(t, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("collector %s of %s: %w", k.collector, t.ID, err))
			continue
		}
		inst := &instance{collector: k.collector, target: t, taken: taken[k], c: c, loss: lossType(r.configs[k.collector], t)}
		r.instances[k] = inst
		if r.running != nil {
			r.start(inst)
		}
	}
	for name, l := range r.receivers {
		r.receive(name, l)
	}
	counts := make(map[string]int)
	for k := range r.instances {
		counts[k.collector]++
	}
	for name := range r.configs {
		r.metrics.targets.WithLabelValues(name).Set(float64(counts[name]))
	}
	slices.SortFunc(errs, func(a, b error) int {
		if a.Error() < b.Error() {
			return -1
		}
		return 1
	})
	return errors.Join(errs...)
}

// Prepare builds the collectors of other configurations without I/O. An error
// names the targets that they cannot read and the present ones can. What it
// returns stops what changed; [Runner.Reconcile] then starts it anew. Collectors
// whose name is not in changed go on as they are.
func (r *Runner) Prepare(configs map[string]Config, changed []string, resources []schemas.Resource) (replace func(), err error) {
	r.reconcile.Lock()
	present := r.configs
	r.reconcile.Unlock()
	known := map[string]bool{}
	for _, err := range r.unreadable(present, resources) {
		known[err.Error()] = true
	}
	bad := slices.DeleteFunc(r.unreadable(configs, resources), func(err error) bool { return known[err.Error()] })
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return func() { r.replace(configs, changed) }, nil
}

// unreadable returns why targets of configurations cannot be read.
func (r *Runner) unreadable(configs map[string]Config, resources []schemas.Resource) []error {
	s := r.settings
	s.Metrics = nil
	err := NewRunner(r.cfg, configs, nil, s).Reconcile(resources)
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		return all.Unwrap()
	}
	return nil
}

// replace takes configurations over and stops the instances that are not theirs.
func (r *Runner) replace(configs map[string]Config, changed []string) {
	r.reconcile.Lock()
	defer r.reconcile.Unlock()
	next := maps.Clone(configs)
	for name := range configs {
		if old, ok := r.configs[name]; ok && !slices.Contains(changed, name) {
			next[name] = old
		}
	}
	r.mu.Lock()
	var stopped []*instance
	for k, inst := range r.instances {
		if _, kept := next[k.collector]; !kept || slices.Contains(changed, k.collector) {
			delete(r.instances, k)
			stopped = append(stopped, inst)
		}
	}
	var ended []*receiving
	for name, l := range r.receivers {
		if _, kept := next[name]; !kept || slices.Contains(changed, name) {
			delete(r.receivers, name)
			ended = append(ended, l)
		}
	}
	for name := range r.configs {
		if _, kept := next[name]; !kept {
			r.metrics.targets.WithLabelValues(name).Set(0)
		}
	}
	r.configs = next
	r.mu.Unlock()
	for _, l := range ended { // before their collectors, so that nothing is taken in that nobody passes on
		l.stop()
	}
	stop(stopped)
}

// stop ends instances side by side and waits for them.
func stop(instances []*instance) {
	for _, inst := range instances {
		if inst.cancel != nil {
			inst.cancel()
		}
	}
	for _, inst := range instances {
		if inst.cancel != nil {
			<-inst.done
		}
	}
}

func lossType(c Config, t schemas.Resource) string {
	if l, ok := c.(LossTyper); ok {
		return l.LossType()
	}
	switch t.Kind {
	case schemas.KindSwitch:
		return LossSwitch
	case schemas.KindServer:
		return LossHost
	}
	return ""
}

// start runs an instance; r.mu is held.
func (r *Runner) start(inst *instance) {
	ctx, cancel := context.WithCancel(r.running)
	inst.cancel, inst.done = cancel, make(chan struct{})
	r.wg.Go(func() {
		defer close(inst.done)
		defer cancel()
		r.supervise(ctx, inst)
	})
}

// supervise runs the collector again and again until ctx is done.
func (r *Runner) supervise(ctx context.Context, inst *instance) {
	log := r.log.With("collector", inst.collector, "device", inst.target.ID)
	em := newEmitter(r, inst, uint64(r.settings.Now().UnixNano()))
	watch := newWatch(ctx, r, inst, em)
	em.alive = watch.alive
	if r.cfg.StartSpread > 0 {
		if run.Sleep(ctx, rand.N(r.cfg.StartSpread)) != nil {
			return
		}
	}
	ctx = context.WithValue(ctx, phase{}, phaseOf(inst.collector, inst.target.ID))
	var waits waits
	for ctx.Err() == nil {
		began := time.Now()
		watch.begin()
		changed := r.credentialChanged(ctx, inst.target)
		err := contain(ctx, inst.c, em, log)
		if ctx.Err() != nil && !failed(err) {
			return
		}
		if err == nil {
			err = errors.New("collector ended without an error")
		}
		kind := errorKind(err)
		r.metrics.errors.WithLabelValues(inst.collector, kind).Inc()
		if watch.seen() || time.Since(began) > 2*r.cfg.BackoffMax {
			// What has worked for a while starts again at the shortest wait.
			if time.Since(began) > r.cfg.BackoffMin {
				waits.again()
			}
		}
		if waits.errs == 0 {
			log.Warn("collector stopped", "kind", kind, "error", err)
		} else {
			log.Debug("collector stopped again", "kind", kind, "attempt", waits.errs+1, "error", err)
		}
		if !errors.Is(err, errState) {
			watch.miss(err)
		}
		if waits.after(ctx, err, watch.away(), r.cfg, changed) != nil {
			return
		}
		r.metrics.retries.WithLabelValues(inst.collector).Inc()
	}
}

// failed reports whether a collector that was told to end has failed by itself: that its
// connections end then is no failure.
func failed(err error) bool {
	return errors.Is(err, errPanic) || errors.Is(err, errState) && !errors.Is(err, context.Canceled)
}

// contain turns a panic of one collector into its error.
func contain(ctx context.Context, c Collector, out Emitter, log *slog.Logger) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("collector panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errPanic, p)
		}
	}()
	return c.Run(ctx, out)
}
