package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/allocator"
	"auspex/api"
	"auspex/internal/bmc"
	"auspex/internal/bus"
	"auspex/internal/bus/jetstream"
	"auspex/internal/bus/kafka"
	"auspex/internal/cmdb"
	"auspex/internal/datafile"
	"auspex/internal/reload"
	"auspex/internal/run"
	"auspex/internal/secrets"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/hot"
	"auspex/internal/store/join"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/telemetry"
	"auspex/internal/tunnel"
	"auspex/pipeline/detect"
	"auspex/pipeline/enrich"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// stack is what the roles of one process share. Its parts are opened by
// components, in order; a role's component runs only when those it needs are open.
type stack struct {
	cfg    Config
	log    *slog.Logger
	level  *slog.LevelVar // of log
	reg    *prometheus.Registry
	health *telemetry.Health
	out    io.Writer
	err    io.Writer

	reload    *reload.Manager[Config] // nil where nothing is reloaded
	secrets   secrets.Store
	db        *sqldb.DB
	records   *records.Store
	inv       *cmdb.Inventory
	join      *join.Store
	tunnel    *tunnel.Server // nil where no agent can dial in
	bus       bus.Bus
	enrich    *enrich.Enricher
	hot       *hot.Window
	rules     atomic.Pointer[detect.Rules]
	faults    atomic.Pointer[propagation.Model] // what is known of faults
	history   atomic.Pointer[clickhouse.DB]
	console   atomic.Pointer[api.Server]        // of this process
	steward   atomic.Pointer[allocator.Steward] // of this process
	mu        sync.Mutex
	parts     map[string]*replaceable
	rateAt    time.Time // when the sample rate was computed last; at first, when the process began
	rate      float64
	rateTotal float64
	own       string    // where a process without an API serves its metrics
	gate      *bmc.Gate // one operation at a time on each board controller
}

// newLog writes warnings and worse: the console tells the rest.
func newLog(w io.Writer) *slog.Logger {
	log, _ := telemetry.NewLogger(telemetry.LogConfig{Level: "warn", Format: "text"}, w, nil)
	return log
}

func newStack(cfg Config, out, errw io.Writer) *stack {
	reg := telemetry.NewRegistry()
	log, level := telemetry.NewLogger(cfg.Log, errw, reg)
	s := &stack{cfg: cfg, reg: reg, log: log, level: level, health: &telemetry.Health{}, gate: bmc.NewGate(), out: out, err: errw, rateAt: time.Now()}
	faults, err := propagation.Load(cfg.Correlator.Faults...)
	if err != nil { // the configuration was checked; a file has changed since
		log.Error("fault records of the site are left out", "error", err)
		faults = propagation.Default()
	}
	s.faults.Store(faults)
	return s
}

// replaceable lets a part that is built again after a failure register its
// metrics again: what it had registered goes when it is made anew.
type replaceable struct {
	prometheus.Registerer
	mu  sync.Mutex
	own []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (r *replaceable) Register(c prometheus.Collector) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own = append(r.own, c)
	return r.Registerer.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (r *replaceable) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// unique returns a registerer for a part that may be built more than once; what
// the part of that name had registered before is unregistered.
func (s *stack) unique(name string) prometheus.Registerer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.parts[name]; old != nil {
		for _, c := range old.own {
			s.reg.Unregister(c)
		}
	}
	r := &replaceable{Registerer: s.reg}
	if s.parts == nil {
		s.parts = map[string]*replaceable{}
	}
	s.parts[name] = r
	return r
}

// late is a component that is built when those before it are ready.
func late(name string, build func(ctx context.Context) (run.Component, error)) run.Component {
	return run.Func(name, func(ctx context.Context, ready func()) error {
		c, err := build(ctx)
		if err != nil {
			return err
		}
		return c.Run(ctx, ready)
	})
}

// errorBox holds what a health check says now.
type errorBox struct{ p atomic.Pointer[error] }

func (b *errorBox) set(err error) { b.p.Store(&err) }

func (b *errorBox) get() error {
	if err := b.p.Load(); err != nil {
		return *err
	}
	return nil
}

// Bounds of lasting.
const (
	shortestPause, longestPause = time.Second, 30 * time.Second
	// steady is how long a component has to work for its failures to be over.
	steady = time.Minute
	// giveUpAfter is how long a component may fail in a row.
	giveUpAfter = 5 * time.Minute
)

// lasting is a component that is built again, with a growing pause, when it fails
// after it has run: it keeps its state in the stores and takes it up from there,
// as after a restart of the process, and the others go on meanwhile. One that
// cannot start, whose bus is closed, or that fails for longer than giveUpAfter ends
// the process (docs/adr/0007-lifecycle.md).
func (s *stack) lasting(name string, build func(reg prometheus.Registerer) (run.Component, error)) run.Component {
	return run.Func(name, func(ctx context.Context, ready func()) error {
		var failed errorBox
		s.health.Check(name, failed.get)
		started := false
		var since time.Time // when the failures in a row began
		for pause := shortestPause; ; pause = min(2*pause, longestPause) {
			began := time.Now()
			c, err := build(s.unique(name))
			if err == nil {
				err = c.Run(ctx, func() {
					started = true
					failed.set(nil)
					ready()
				})
			}
			if ctx.Err() != nil || !started || err == nil || errors.Is(err, bus.ErrClosed) {
				return err
			}
			if since.IsZero() || time.Since(began) > steady {
				since, pause = time.Now(), shortestPause
			}
			failed.set(err)
			if stood := time.Since(since); stood >= giveUpAfter {
				return fmt.Errorf("given up after %s: %w", stood.Round(time.Second), err)
			}
			s.log.Error("component stopped; trying again", "component", name, "error", err, "in", pause.String())
			if run.Sleep(ctx, pause) != nil {
				return nil
			}
		}
	})
}

// state opens the relational store, the inventory and the secrets.
func (s *stack) state() run.Component {
	of := func(err error) error { // names the store, unless its DSN may hold a password
		if err == nil || sqldb.IsPostgres(s.cfg.Store.SQL) {
			return err
		}
		return fmt.Errorf("%s: %w", s.cfg.Store.SQL, err)
	}
	return run.Func("state", func(ctx context.Context, ready func()) error {
		credentials, err := secrets.Read(s.cfg.Secrets)
		if err != nil {
			return err
		}
		s.secrets.Set(credentials)
		if s.db, err = s.openSQL(ctx, storeWait); err != nil {
			return of(err)
		}
		defer func() { _ = s.db.Close() }()
		s.health.Check("state", s.db.Health)
		s.records = records.New(s.db)
		s.inv = newInventory(s.cfg.Inventory.Config, s.db, s.log, s.reg)
		if err := s.inv.Open(ctx); err != nil {
			return of(err)
		}
		s.join = join.New(s.db, s.inv, s.reg)
		if err := s.startInventory(ctx); err != nil {
			return err
		}
		s.reloadsState()
		s.enrich = enrich.New(s.inv, s.reg)
		return of(s.inv.Run(ctx, ready))
	})
}

// storeWait is how long a server may take to answer when the process starts.
const storeWait = 30 * time.Second

// openSQL opens the relational store; a server that does not answer yet is waited
// for, since both may have been started at once.
func (s *stack) openSQL(ctx context.Context, within time.Duration) (*sqldb.DB, error) {
	began := time.Now()
	for warned := false; ; warned = true {
		db, err := sqldb.Open(ctx, s.cfg.Store.SQL)
		if err == nil || !sqldb.Away(err) || time.Since(began) >= within {
			return db, err
		}
		if !warned {
			s.log.Warn("PostgreSQL does not answer yet", "waits", within.String(), "error", err)
		}
		if err := run.Sleep(ctx, 500*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (s *stack) openBus() run.Component {
	return run.Func("bus", func(ctx context.Context, ready func()) (err error) {
		switch s.cfg.Bus.Type {
		case "kafka":
			cfg := s.cfg.Bus.Kafka
			cfg.Log, cfg.Metrics = s.log, s.reg
			s.bus, err = kafka.Open(ctx, cfg)
		default:
			cfg := s.cfg.Bus.JetStream
			cfg.Log, cfg.Metrics = s.log, s.reg
			s.bus, err = jetstream.Open(ctx, cfg)
		}
		if err != nil {
			return err
		}
		if h, ok := s.bus.(interface{ Health() error }); ok {
			s.health.Check("bus", h.Health)
		}
		ready()
		<-ctx.Done()
		return s.bus.Close()
	})
}

func (s *stack) openHot() run.Component {
	return run.Func("hot window", func(ctx context.Context, ready func()) (err error) {
		s.hot, err = hot.Open(filepath.Join(s.cfg.Data, "hot"), s.cfg.Store.HotWindow, s.enrich, s.log, s.reg)
		if err != nil {
			return err
		}
		ready()
		for run.Sleep(ctx, hot.BeatEvery) == nil {
			if err := s.hot.Beat(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot store contact state", "error", err)
			}
		}
		return s.hot.Close()
	})
}

// place answers control: the server, rack and site of a resource.
type place struct{ inv *cmdb.Inventory }

// Kind implements control.Inventory.
func (p place) Kind(resource string) string {
	r, _ := p.inv.Snapshot().Resource(resource)
	return r.Kind
}

// Place implements control.Inventory.
func (p place) Place(resource string) (server, rack, site string, ok bool) {
	s := p.inv.Snapshot()
	if _, ok := s.Resource(resource); !ok {
		return "", "", "", false
	}
	server = s.Server(resource)
	if r, ok := s.Resource(server); !ok || r.Kind != schemas.KindServer {
		server = ""
	}
	return server, s.Rack(resource), s.Site(resource), true
}

// ours are the entries of a data folder that a process makes.
var ours = []string{"lock", "run.json*", "auspex.db*", "spool.db*", "bus", "hot", "clickhouse", "sim", "predictor*", "cache"}

// lockData makes sure that one process uses a data folder.
func lockData(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := flock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another auspex uses the data folder %s; stop it, or choose another with --data", dir)
	}
	if err := datafile.Narrow(dir, ours...); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("data folder: %w", err)
	}
	return func() { _ = f.Close() }, nil
}
