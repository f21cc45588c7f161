// Package predictor says which parts fail next, and when. It follows the metrics
// that have a limit (limits.yaml), keeps a bounded summary of each series
// (package trend), and writes a prediction when a series runs towards its limit,
// when that changes materially, and how it ended. What is said when is decided by
// trend.Follower, which "auspex backtest forecast" runs on files. The state of the
// series survives a restart in the relational store.
package predictor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// Records keeps predictions.
type Records interface {
	PutPrediction(ctx context.Context, p schemas.Prediction) error
	Predictions(ctx context.Context, f records.Filter) ([]schemas.Prediction, string, error)
}

// Config is the user's part.
type Config struct {
	// Limits is a file of limits; empty takes the built-in ones.
	Limits string `yaml:"limits"`
	// Save is how often the state of the series is written.
	Save time.Duration `yaml:"save"`
	// Silence is how long a series may be silent before its prediction expires.
	Silence time.Duration `yaml:"silence"`
	// MaxSeries bounds the series that are followed, about 3 KB each, 6 KB where others explain it; further
	// ones are left out and counted.
	MaxSeries int `yaml:"max_series"`
}

// DefaultConfig follows up to 200,000 series with the built-in limits.
func DefaultConfig() Config {
	return Config{Save: 5 * time.Minute, Silence: 15 * time.Minute, MaxSeries: 200_000}
}

// Validate names the key at fault.
func (c *Config) Validate() error {
	switch {
	case c.Save < time.Second:
		return fmt.Errorf("save: want at least 1s, got %s", c.Save)
	case c.Silence < time.Minute:
		return fmt.Errorf("silence: want at least 1m, got %s", c.Silence)
	case c.MaxSeries < 1:
		return fmt.Errorf("max_series: want at least 1, got %d", c.MaxSeries)
	}
	_, err := ReadLimits(c.Limits)
	return err
}

// Deps is what the predictor stands on. DB may be nil: the state of the series
// then ends with the process.
type Deps struct {
	Bus     bus.Bus
	Placer  cmdb.Placer
	Records Records
	DB      *sqldb.DB
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
}

// Bounds of calls and of retries.
const (
	callTime    = 10 * time.Second
	endTime     = time.Second            // for the last words: a quarter of the grace of a stop
	publishTime = 300 * time.Millisecond // of them, for the bus
	tick        = time.Second
)

// Predictor is the stage. It is made by [New] and lives in Run.
type Predictor struct {
	cfg Config
	d   Deps
	log *slog.Logger

	mu     sync.Mutex
	engine *engine
	batch  auspexv1.Batch
	next   map[int]int64 // offset to read next, by partition

	flushing sync.Mutex

	decode    *wire.Decoder
	retries   prometheus.Counter
	published *prometheus.CounterVec
}

// New reads the limits and makes the stage; it does not touch the bus or a store.
func New(cfg Config, d Deps) (*Predictor, error) {
	limits, err := ReadLimits(cfg.Limits)
	if err != nil {
		return nil, err
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	p := &Predictor{
		cfg: cfg, d: d, log: d.Log.With("stage", "predictor"),
		decode: wire.New("predictor", d.Bus, d.Log, d.Metrics),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_predictor_retries_total", Help: "Failed attempts to write or publish predictions; they are repeated.",
		}),
		published: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "auspex_predictor_predictions_total", Help: "Changes of predictions, by the state after them."},
			[]string{"state"},
		),
	}
	p.engine, p.next = newEngine(cfg, limits, d.Placer), map[int]int64{}
	if d.Metrics != nil {
		d.Metrics.MustRegister(p.retries, p.published, p.engine.samples, p.engine.skipped, p.engine.refused, p.engine.forecasts,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "auspex_predictor_series", Help: "Series followed."}, func() float64 {
				p.mu.Lock()
				defer p.mu.Unlock()
				return float64(p.engine.n)
			}))
	}
	return p, nil
}

// Name names the component.
func (p *Predictor) Name() string { return "predictor" }

// Run reads telemetry until ctx is done. What is told is put in the records,
// then published; while either fails, the newest state of each prediction waits
// and is tried again.
func (p *Predictor) Run(ctx context.Context, ready func()) error {
	if err := p.restore(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	inner, stop := context.WithCancel(ctx)
	wg.Go(func() { p.tend(inner) })
	ready()
	err := p.follow(ctx)
	stop()
	wg.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	last, stopTelling := context.WithTimeout(end, publishTime)
	p.flush(last)
	stopTelling()
	if serr := p.save(end); serr != nil {
		p.log.Warn("cannot write the state of the series", "error", serr)
	}
	return err
}

// follow reads the bus; a failure of it is waited out.
func (p *Predictor) follow(ctx context.Context) error {
	sub := bus.Subscription{Topic: schemas.TopicTelemetry, Group: "predictor"}
	if p.d.DB != nil { // the state of the series and the position belong together
		sub.Start = func(_ context.Context, partition int) (int64, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.next[partition], nil
		}
	}
	if err := bus.Follow(ctx, p.d.Bus, sub, p.log, p.handle, func(error) { p.retries.Inc() }); err != nil {
		return fmt.Errorf("read telemetry: %w", err)
	}
	return nil
}

func (p *Predictor) handle(ctx context.Context, msgs []bus.Message) error {
	p.mu.Lock()
	for _, m := range msgs {
		p.next[m.Partition] = m.Offset + 1
		if p.decode.Into(ctx, m, &p.batch) {
			p.engine.Batch(&p.batch)
		}
	}
	waiting := len(p.engine.changed) > 0
	p.mu.Unlock()
	if waiting {
		p.flush(ctx)
	}
	return nil
}

// tend expires what has fallen silent, writes what waits and saves the state.
func (p *Predictor) tend(ctx context.Context) {
	t := time.NewTicker(tick)
	defer t.Stop()
	saved := p.d.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.mu.Lock()
		p.engine.Expire(p.d.Now())
		p.mu.Unlock()
		p.flush(ctx)
		if p.d.Now().Sub(saved) < p.cfg.Save {
			continue
		}
		saved = p.d.Now()
		if err := p.save(ctx); err != nil && ctx.Err() == nil {
			p.retries.Inc()
			p.log.Warn("cannot write the state of the series", "error", err)
		}
	}
}

// flush puts and publishes what has changed. What fails waits for the next call.
func (p *Predictor) flush(ctx context.Context) {
	p.flushing.Lock()
	defer p.flushing.Unlock()
	for {
		p.mu.Lock()
		var next schemas.Prediction
		found := false
		for _, c := range p.engine.changed {
			next, found = c, true
			break
		}
		delete(p.engine.changed, next.ID)
		p.mu.Unlock()
		if !found {
			return
		}
		if err := p.publish(ctx, next); err != nil {
			p.mu.Lock()
			if _, newer := p.engine.changed[next.ID]; !newer {
				p.engine.changed[next.ID] = next
			}
			p.mu.Unlock()
			if ctx.Err() == nil {
				p.retries.Inc()
				p.log.Warn("cannot write prediction", "prediction", next.ID, "error", err)
			}
			return
		}
		p.published.WithLabelValues(next.State).Inc()
	}
}

// publish keeps a prediction and puts it on the bus.
func (p *Predictor) publish(ctx context.Context, x schemas.Prediction) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := p.d.Records.PutPrediction(ctx, x); err != nil {
		return err
	}
	v, err := json.Marshal(&x)
	if err != nil {
		return fmt.Errorf("encode prediction %s: %w", x.ID, err)
	}
	if err := p.d.Bus.Publish(ctx, bus.Message{Topic: schemas.TopicPredictions, Key: x.Server, Value: v}); err != nil {
		return fmt.Errorf("publish prediction %s: %w", x.ID, err)
	}
	return nil
}

// restore reads the open predictions and the state of the series.
func (p *Predictor) restore(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	after := ""
	for {
		ps, next, err := p.d.Records.Predictions(ctx, records.Filter{Status: schemas.PredictionOpen, After: after})
		if err != nil {
			return fmt.Errorf("restore predictions: %w", err)
		}
		for _, x := range ps {
			p.engine.open[openKey{x.Resource, x.Metric}] = &opened{prediction: x}
			p.engine.published[x.ID] = x.Time
		}
		if next == "" {
			break
		}
		after = next
	}
	// What has ended since the state was written ends again, and is not told again.
	newest, _, err := p.d.Records.Predictions(ctx, records.Filter{})
	if err != nil {
		return fmt.Errorf("restore predictions: %w", err)
	}
	for _, x := range newest {
		p.engine.published[x.ID] = x.Time
	}
	if p.d.DB == nil {
		return nil
	}
	if p.engine.saved, p.next, err = loadStates(ctx, p.d.DB); err != nil {
		return fmt.Errorf("restore series: %w", err)
	}
	return nil
}

func (p *Predictor) save(ctx context.Context) error {
	if p.d.DB == nil {
		return nil
	}
	p.mu.Lock()
	states, next := p.engine.states(), maps.Clone(p.next)
	p.mu.Unlock()
	err := saveStates(ctx, p.d.DB, states, next, p.d.Now())
	if err != nil {
		p.mu.Lock()
		for _, s := range states {
			s.of.changed = true
		}
		p.mu.Unlock()
	}
	return err
}
