package app

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

	"github.com/auspex-dev/auspex/internal/bmc"
	"github.com/auspex-dev/auspex/internal/bus"
	"github.com/auspex-dev/auspex/internal/bus/jetstream"
	"github.com/auspex-dev/auspex/internal/bus/kafka"
	"github.com/auspex-dev/auspex/internal/cmdb"
	"github.com/auspex-dev/auspex/internal/run"
	"github.com/auspex-dev/auspex/internal/secrets"
	"github.com/auspex-dev/auspex/internal/store/hot"
	"github.com/auspex-dev/auspex/internal/store/records"
	"github.com/auspex-dev/auspex/internal/store/sqldb"
	"github.com/auspex-dev/auspex/internal/telemetry"
	"github.com/auspex-dev/auspex/pipeline/detect"
	"github.com/auspex-dev/auspex/pipeline/enrich"
	"github.com/auspex-dev/auspex/pipeline/sink"
	"github.com/auspex-dev/auspex/schemas"
)

// stack is what the roles of one process share. Its parts are opened by
// components, in order; a role's component runs only when those it needs are open.
type stack struct {
	cfg    Config
	log    *slog.Logger
	reg    *prometheus.Registry
	health *telemetry.Health
	out    io.Writer
	err    io.Writer

	secrets   *secrets.File
	db        *sqldb.DB
	records   *records.Store
	inv       *cmdb.Inventory
	bus       bus.Bus
	enrich    *enrich.Enricher
	hot       *hot.Window
	rules     atomic.Pointer[detect.Rules]
	history   atomic.Pointer[history]
	mu        sync.Mutex
	parts     map[string]*replaceable
	rateAt    time.Time // when the sample rate was computed last
	rate      float64
	rateTotal float64
	gate      *bmc.Gate // one operation at a time on each board controller
}

// newLog writes warnings and worse: the console tells the rest.
func newLog(w io.Writer) *slog.Logger {
	return telemetry.NewLogger(telemetry.LogConfig{Level: "warn", Format: "text"}, w, nil)
}

func newStack(cfg Config, out, errw io.Writer) *stack {
	reg := telemetry.NewRegistry()
	return &stack{cfg: cfg, reg: reg, log: telemetry.NewLogger(cfg.Log, errw, reg), health: &telemetry.Health{}, gate: bmc.NewGate(), out: out, err: errw}
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

// state opens the relational store, the inventory and the secrets.
func (s *stack) state() run.Component {
	return run.Func("state", func(ctx context.Context, ready func()) error {
		var err error
		if s.secrets, err = secrets.Read(s.cfg.Secrets); err != nil {
			return err
		}
		if s.db, err = sqldb.Open(ctx, s.cfg.Store.SQL); err != nil {
			return err
		}
		defer func() { _ = s.db.Close() }()
		s.records = records.New(s.db)
		s.inv = cmdb.New(s.cfg.Inventory.Config, s.db, s.log, s.reg)
		if err := s.inv.Open(ctx); err != nil {
			return err
		}
		if err := s.importInventory(ctx); err != nil {
			return err
		}
		s.enrich = enrich.New(s.inv, s.reg)
		return s.inv.Run(ctx, ready)
	})
}

// importInventory replaces the inventory with the configured file, if there is one.
func (s *stack) importInventory(ctx context.Context) error {
	if s.cfg.Inventory.File == "" {
		return nil
	}
	t, problems, err := cmdb.ReadFile(s.cfg.Inventory.File, os.Stdin)
	if err != nil {
		return err
	}
	for _, p := range problems {
		s.log.Warn("record of the inventory was skipped", "file", s.cfg.Inventory.File, "problem", p.String())
	}
	_, err = s.inv.Import(ctx, t)
	return err
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
		ready()
		<-ctx.Done()
		return s.bus.Close()
	})
}

func (s *stack) openHot() run.Component {
	return run.Func("hot window", func(ctx context.Context, ready func()) (err error) {
		s.hot, err = hot.Open(filepath.Join(s.cfg.Data, "hot"), s.cfg.Store.HotWindow, sink.Placer(s.enrich), s.log, s.reg)
		if err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		return s.hot.Close()
	})
}

// place answers control: the server, rack and site of a resource.
type place struct{ inv *cmdb.Inventory }

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

// cursors keeps the positions of collectors in the relational store.
type cursors struct{ db *sqldb.DB }

// Cursor implements collectors.Cursors.
func (c cursors) Cursor(ctx context.Context, collector, device string) (string, error) {
	var pos string
	err := c.db.QueryRowContext(ctx, `SELECT position FROM cursors WHERE collector=$1 AND device=$2`, collector, device).Scan(&pos)
	if errors.Is(err, errNoRows) {
		return "", nil
	}
	return pos, err
}

// SetCursor implements collectors.Cursors.
func (c cursors) SetCursor(ctx context.Context, collector, device, position string) error {
	_, err := c.db.ExecContext(ctx, `INSERT INTO cursors (collector, device, position, updated_ns) VALUES ($1,$2,$3,$4)
ON CONFLICT (collector, device) DO UPDATE SET position=excluded.position, updated_ns=excluded.updated_ns`, collector, device, position, time.Now().UnixNano())
	if err != nil {
		return fmt.Errorf("keep cursor of %s on %s: %w", collector, device, err)
	}
	return nil
}

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
	return func() { _ = f.Close() }, nil
}
