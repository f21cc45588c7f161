// Package hot is the hot window: the last hours of telemetry in a Prometheus TSDB
// inside the process, for rules, the Prometheus read API and plots. Series carry
// the labels of the inventory (formats, section 8), resolved once a series.
package hot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"auspex/internal/cmdb"
	"auspex/schemas/auspexv1"
)

// Config is the size of the window.
type Config struct {
	// Retention is how long samples are kept; the TSDB drops them in blocks, so
	// that up to half as much again is there.
	Retention time.Duration `yaml:"retention"`
	// OutOfOrder is how late a sample may come.
	OutOfOrder time.Duration `yaml:"out_of_order"`
	// MaxSkew is how far a device's clock may be from the collector's before the
	// collector's is taken instead.
	MaxSkew time.Duration `yaml:"max_skew"`
	// MaxSeries bounds the series in memory (about 1.3 KB each); samples of
	// further ones are dropped and counted.
	MaxSeries int `yaml:"max_series"`
}

// DefaultConfig keeps six hours of a million series.
func DefaultConfig() Config {
	return Config{Retention: 6 * time.Hour, OutOfOrder: 10 * time.Minute, MaxSkew: time.Minute, MaxSeries: 1_000_000}
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	switch {
	case c.Retention < 10*time.Minute:
		return fmt.Errorf("retention: want at least 10m, got %s", c.Retention)
	case c.OutOfOrder < 0 || c.OutOfOrder > c.Retention:
		return fmt.Errorf("out_of_order: want 0s to the retention, got %s", c.OutOfOrder)
	case c.MaxSkew < 0:
		return fmt.Errorf("max_skew: want at least 0s, got %s", c.MaxSkew)
	case c.MaxSeries < 1:
		return fmt.Errorf("max_series: want at least 1, got %d", c.MaxSeries)
	}
	return nil
}

// Placer resolves parts against the inventory.
type Placer interface {
	cmdb.Placer
	// Generation grows when the inventory changes.
	Generation() uint64
}

// Window is an open window. It implements [storage.Queryable] and, for the
// results of rules, [storage.Appendable].
type Window struct {
	db     *tsdb.DB
	cfg    Config
	placer Placer
	now    func() time.Time
	reg    prometheus.Registerer

	mu      sync.RWMutex
	devices map[deviceKey]*device

	appended prometheus.Counter
	dropped  *prometheus.CounterVec
	replaced prometheus.Counter
	ours     []prometheus.Collector
}

type deviceKey struct{ device, collector string }

// Open opens the window in dir and replays its log, which takes some seconds for
// each 100,000 series.
func Open(dir string, cfg Config, placer Placer, log *slog.Logger, reg prometheus.Registerer) (*Window, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("hot window: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	opts := tsdb.DefaultOptions()
	opts.RetentionDuration = cfg.Retention.Milliseconds()
	// Blocks of a third of the window: what lies beyond it goes soon.
	opts.MinBlockDuration = min(opts.MinBlockDuration, max(cfg.Retention/3, 5*time.Minute).Milliseconds())
	opts.MaxBlockDuration = opts.MinBlockDuration
	opts.OutOfOrderTimeWindow = cfg.OutOfOrder.Milliseconds()
	w := &Window{
		cfg: cfg, placer: placer, now: time.Now, devices: map[deviceKey]*device{}, reg: reg,
		appended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_store_hot_samples_total", Help: "Samples written to the hot window.",
		}),
		dropped: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "auspex_store_hot_samples_dropped_total", Help: "Samples that the hot window rejected, by reason."},
			[]string{"reason"},
		),
		replaced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_store_hot_clocks_replaced_total",
			Help: "Samples whose device's clock was too far off, stored under the collector's clock.",
		}),
	}
	for _, r := range reasons {
		w.dropped.WithLabelValues(r)
	}
	db, err := tsdb.Open(dir, log, nil, opts, nil)
	if err != nil {
		return nil, fmt.Errorf("hot window in %s: %w", dir, err)
	}
	w.db = db
	w.ours = []prometheus.Collector{w.appended, w.dropped, w.replaced, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "auspex_store_hot_series", Help: "Series in the head of the hot window."},
		func() float64 { return float64(db.Head().NumSeries()) })}
	if reg != nil {
		for _, c := range w.ours {
			if err := reg.Register(c); err != nil {
				return nil, errors.Join(fmt.Errorf("hot window: %w", err), db.Close())
			}
		}
	}
	return w, nil
}

// Close writes what is in memory and closes the window.
func (w *Window) Close() error {
	if w.reg != nil {
		for _, c := range w.ours {
			w.reg.Unregister(c)
		}
	}
	return w.db.Close()
}

// Querier implements [storage.Queryable]; times are Unix milliseconds.
func (w *Window) Querier(mint, maxt int64) (storage.Querier, error) { return w.db.Querier(mint, maxt) }

// Appender implements [storage.Appendable], for the series that rules make.
func (w *Window) Appender(ctx context.Context) storage.Appender { return w.db.Appender(ctx) }

// Stats tells which names and labels the series in memory have most of, at most
// limit of each kind.
func (w *Window) Stats(limit int) *tsdb.Stats { return w.db.Head().Stats(model.MetricNameLabel, limit) }

// Series returns the number of series in memory.
func (w *Window) Series() int { return int(w.db.Head().NumSeries()) }

// Append writes batches in one transaction. Samples that the window does not take
// are counted, not returned; an error means that nothing of it was written.
func (w *Window) Append(ctx context.Context, batches ...*auspexv1.Batch) error {
	t := transaction{w: w, app: w.db.Appender(ctx), limit: w.now().Add(w.cfg.MaxSkew).UnixMilli()}
	generation := w.placer.Generation()
	for _, b := range batches {
		if b.GetSamples() == nil && b.GetGpus() == nil {
			continue
		}
		d := w.device(b.GetDevice(), b.GetCollector())
		d.mu.Lock()
		if d.generation != generation {
			d.reset(generation)
		}
		d.contact.note(time.Unix(0, b.GetObserved()), w.now(), w.cfg.MaxSkew)
		t.samples(d, b)
		t.gpus(d, b)
		d.mu.Unlock()
	}
	if t.err != nil {
		return errors.Join(fmt.Errorf("append to the hot window: %w", t.err), t.app.Rollback())
	}
	if err := t.app.Commit(); err != nil {
		w.forget() // references of series that were made in it are void
		return fmt.Errorf("append to the hot window: %w", err)
	}
	w.appended.Add(float64(t.appended))
	w.replaced.Add(float64(t.replaced))
	for i, n := range t.dropped {
		if n > 0 {
			w.dropped.WithLabelValues(reasons[i]).Add(float64(n))
		}
	}
	return nil
}

func (w *Window) device(name, collector string) *device {
	key := deviceKey{name, collector}
	w.mu.RLock()
	d := w.devices[key]
	w.mu.RUnlock()
	if d != nil {
		return d
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d = w.devices[key]; d == nil {
		d = &device{name: name, collector: collector}
		d.reset(w.placer.Generation())
		w.devices[key] = d
	}
	return d
}

func (w *Window) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.devices)
}
