// Package detect turns events into alerts: it admits what a person or the
// correlator must know of, and evaluates Prometheus rules over the hot window,
// whose verdicts are events like all others.
package detect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bus"
	"auspex/internal/bus/wire"
	"auspex/internal/cmdb"
	"auspex/internal/run"
	"auspex/internal/store/records"
	"auspex/pipeline/dedup"
	"auspex/schemas"
)

// Config says what is admitted and what is remembered.
type Config struct {
	// MinSeverity is the least severity of an event that becomes an alert.
	MinSeverity schemas.Severity `yaml:"min_severity"`
	// Admit lists types of events that become alerts whatever their severity.
	Admit []string `yaml:"admit"`
	// Ignore lists types of events that never become alerts.
	Ignore []string `yaml:"ignore"`
	// Remember is for how long an event's id is known, so that a second copy is
	// dropped.
	Remember time.Duration `yaml:"remember"`
	// MomentTTL is how long an alert without an end counts as firing after it was
	// observed.
	MomentTTL time.Duration `yaml:"moment_ttl"`
}

// DefaultConfig admits warnings and worse, ends of conditions, and reboots.
func DefaultConfig() Config {
	return Config{
		MinSeverity: schemas.SeverityWarning,
		Admit:       []string{schemas.EventHostReboot, schemas.EventSwitchReboot},
		Ignore:      []string{schemas.EventWorkloadState, schemas.EventNodeState, schemas.EventWorkloadDevices},
		Remember:    24 * time.Hour,
		MomentTTL:   time.Hour,
	}
}

// Validate reports the first setting that cannot work.
func (c Config) Validate() error {
	switch {
	case c.MinSeverity.Rank() < 0:
		return fmt.Errorf("detect: min_severity: want info, warning, error or critical, got %q", c.MinSeverity)
	case c.Remember <= 0:
		return fmt.Errorf("detect: remember is %s; it must be positive", c.Remember)
	case c.MomentTTL <= 0:
		return fmt.Errorf("detect: moment_ttl is %s; it must be positive", c.MomentTTL)
	}
	return nil
}

// Enricher resolves events.
type Enricher interface {
	Normalize(ev *schemas.Event, observed time.Time)
	Event(ev *schemas.Event) cmdb.Placement
	Skew(device string, ev *schemas.Event) time.Duration
}

// Records keeps the current state of alerts.
type Records interface {
	PutAlerts(ctx context.Context, alerts []schemas.Alert) error
	Alerts(ctx context.Context, f records.Filter) ([]schemas.Alert, string, error)
}

const (
	group = "detect"
	// remembered bounds the ids that are remembered.
	remembered = 1 << 18
	// maxFiring bounds the firing alerts that can be resolved by their successors.
	maxFiring = 1 << 17
	// recordsTimeout bounds the write of recordsChunk alerts, so that a relational store that
	// hangs does not keep alerts from the correlator.
	recordsTimeout = 5 * time.Second
	recordsChunk   = 256
	// writeAgain is the pause after a write that failed.
	writeAgain = 10 * time.Second
	maxBackoff = 5 * time.Second
)

// Detector reads the topic events and publishes alerts.
type Detector struct {
	cfg     Config
	bus     bus.Bus
	enrich  Enricher
	records Records
	decode  *wire.Decoder
	log     *slog.Logger
	now     func() time.Time
	admit   map[string]bool
	ignore  map[string]bool
	ids     *dedup.Window
	batches *dedup.Batches

	writing sync.Mutex
	again   time.Time // no write is tried before; guarded by writing

	mu      sync.Mutex
	firing  map[string]schemas.Alert // by fingerprint
	waiting map[string]schemas.Alert // by id: states that the relational store did not take

	events    *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	alerts    *prometheus.CounterVec
	retries   prometheus.Counter
	unwritten prometheus.Counter
	latency   prometheus.Histogram
}

// New returns a detector. It performs no I/O.
func New(cfg Config, b bus.Bus, e Enricher, r Records, log *slog.Logger, reg prometheus.Registerer) *Detector {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Detector{
		cfg: cfg, bus: b, enrich: e, records: r, log: log, now: time.Now,
		decode: wire.New(group, b, log, reg), admit: set(cfg.Admit), ignore: set(cfg.Ignore),
		ids: dedup.New(cfg.Remember, remembered), batches: dedup.NewBatches(), firing: map[string]schemas.Alert{},
		waiting: map[string]schemas.Alert{},
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_detect_events_total", Help: "Events read, by outcome.",
		}, []string{"verdict"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_detect_duplicates_total", Help: "Batches and events handled before.",
		}, []string{"what"}),
		alerts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_detect_alerts_total", Help: "Alerts published.",
		}, []string{"severity", "status"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_detect_publish_retries_total", Help: "Failed attempts to publish alerts that were repeated.",
		}),
		unwritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_detect_unwritten_alerts_total",
			Help: "Published alerts missing in the relational store because too many waited for it.",
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "auspex_detect_latency_seconds", Help: "Time from an event's observation until its alert was durable on the bus.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 5, 30, 300},
		}),
	}
	if reg != nil {
		reg.MustRegister(d.events, d.dropped, d.alerts, d.retries, d.unwritten, d.latency)
	}
	return d
}

func set(names []string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// Name names the component.
func (d *Detector) Name() string { return "detector" }

// Run reads until ctx is done. A bus that fails is tried again; one that is
// closed ends the component.
func (d *Detector) Run(ctx context.Context, ready func()) error {
	if err := d.restore(ctx); err != nil {
		return err
	}
	ready()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { d.sweep(ctx) })
	defer wg.Wait()
	defer cancel()
	return bus.Follow(ctx, d.bus, bus.Subscription{Topic: schemas.TopicEvents, Group: group}, d.log, d.handle)
}

// restore loads the alerts that still fire, so that their ends find them.
func (d *Detector) restore(ctx context.Context) error {
	f := records.Filter{Status: schemas.AlertFiring, Limit: 1000}
	for {
		page, next, err := d.records.Alerts(ctx, f)
		if err != nil {
			return fmt.Errorf("load firing alerts: %w", err)
		}
		d.mu.Lock()
		for _, a := range page {
			if _, newer := d.firing[a.Fingerprint]; !newer && len(d.firing) < maxFiring {
				d.firing[a.Fingerprint] = a
			}
		}
		full := len(d.firing) >= maxFiring
		d.mu.Unlock()
		if next == "" || full {
			return nil
		}
		f.After = next
	}
}

// handle makes the alerts of a batch of messages. Ids are remembered only when
// the alerts are on the bus: a batch that is handed out again is handled again.
func (d *Detector) handle(ctx context.Context, msgs []bus.Message) error {
	now := d.now()
	var alerts []schemas.Alert
	type batchID struct {
		device, collector string
		epoch, sequence   uint64
	}
	var batches []batchID
	var ids []string
	inBatch := map[string]bool{}
	for _, m := range msgs {
		b, ok := d.decode.Batch(ctx, m)
		if !ok {
			continue
		}
		if d.batches.Seen(b.GetDevice(), b.GetCollector(), b.GetEpoch(), b.GetSequence()) {
			d.dropped.WithLabelValues("batch").Inc()
			continue
		}
		batches = append(batches, batchID{b.GetDevice(), b.GetCollector(), b.GetEpoch(), b.GetSequence()})
		observed := now
		if b.GetObserved() > 0 {
			observed = time.Unix(0, b.GetObserved()).UTC()
		}
		for _, w := range b.GetEvents() {
			ev := schemas.EventFromWire(w)
			if ev.Resource == "" {
				ev.Resource = b.GetDevice()
			}
			d.enrich.Normalize(&ev, observed)
			if inBatch[ev.ID] || d.ids.Seen(ev.ID, now) {
				d.dropped.WithLabelValues("event").Inc()
				continue
			}
			inBatch[ev.ID] = true
			ids = append(ids, ev.ID)
			if !d.admits(&ev) {
				d.events.WithLabelValues("ignored").Inc()
				continue
			}
			d.events.WithLabelValues("admitted").Inc()
			d.enrich.Skew(b.GetDevice(), &ev)
			alerts = append(alerts, makeAlert(ev, d.enrich.Event(&ev)))
		}
	}
	if err := d.emit(ctx, alerts); err != nil {
		return err
	}
	for _, id := range ids {
		d.ids.Add(id, now)
	}
	for _, b := range batches {
		d.batches.Add(b.device, b.collector, b.epoch, b.sequence)
	}
	return nil
}

// emit writes the state of alerts and publishes them. A relational store that
// fails delays the list of alerts, not the alerts.
func (d *Detector) emit(ctx context.Context, alerts []schemas.Alert) error {
	if len(alerts) == 0 {
		return nil
	}
	// What ends within the batch was written as firing before: the end comes last.
	d.write(ctx, append(slices.Clip(alerts), d.supersede(alerts)...))
	msgs := make([]bus.Message, 0, len(alerts))
	for i := range alerts {
		doc, err := json.Marshal(&alerts[i])
		if err != nil { // strings, times and maps of strings always marshal
			return fmt.Errorf("encode alert %s: %w", alerts[i].ID, err)
		}
		msgs = append(msgs, bus.Message{Topic: schemas.TopicAlerts, Key: key(&alerts[i]), Value: doc})
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, maxBackoff) {
		err := d.bus.Publish(ctx, msgs...)
		if err == nil {
			break
		}
		if ctx.Err() != nil || errors.Is(err, bus.ErrClosed) {
			return err
		}
		d.retries.Inc()
		d.log.Warn("cannot publish alerts; trying again", "alerts", len(alerts), "error", err)
		if run.Sleep(ctx, wait) != nil {
			return ctx.Err()
		}
	}
	now := d.now()
	for i := range alerts {
		d.alerts.WithLabelValues(string(alerts[i].Severity), alerts[i].Status).Inc()
		d.latency.Observe(max(now.Sub(alerts[i].Observed).Seconds(), 0))
	}
	return nil
}

// write puts the state of alerts into the relational store, with what it did not
// take before. What it does not take now waits.
func (d *Detector) write(ctx context.Context, changed []schemas.Alert) {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	for _, a := range changed {
		if _, known := d.waiting[a.ID]; known || len(d.waiting) < maxFiring {
			d.waiting[a.ID] = a
		} else {
			d.unwritten.Inc()
		}
	}
	rest := slices.Collect(maps.Values(d.waiting))
	d.mu.Unlock()
	if d.now().Before(d.again) { // it may hang: not every batch waits for it
		return
	}
	for len(rest) > 0 { // a flood of one device is no reason to lose all
		n := min(len(rest), recordsChunk)
		wctx, cancel := context.WithTimeout(ctx, recordsTimeout)
		err := d.records.PutAlerts(wctx, rest[:n])
		cancel()
		if err != nil {
			d.again = d.now().Add(writeAgain)
			if ctx.Err() == nil {
				d.log.Error("alerts wait for the relational store", "alerts", len(rest), "error", err)
			}
			return
		}
		d.mu.Lock()
		for _, a := range rest[:n] {
			delete(d.waiting, a.ID)
		}
		d.mu.Unlock()
		rest = rest[n:]
	}
}

// key keeps the alerts of a server or switch in order.
func key(a *schemas.Alert) string {
	if a.Server != "" {
		return a.Server
	}
	return a.Resource
}

// supersede notes the new alerts as those that fire, and returns the older ones
// that they end: there is one firing alert a fingerprint.
func (d *Detector) supersede(alerts []schemas.Alert) []schemas.Alert {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ended []schemas.Alert
	for _, a := range alerts {
		if old, ok := d.firing[a.Fingerprint]; ok && old.ID != a.ID {
			old.Status, old.ResolvedAt = schemas.AlertResolved, a.Time
			ended = append(ended, old)
		}
		delete(d.firing, a.Fingerprint)
		if a.Status == schemas.AlertFiring && len(d.firing) < maxFiring {
			d.firing[a.Fingerprint] = a
		}
	}
	return ended
}

// sweep ends alerts of moments, which nothing else ends, and writes what waits.
func (d *Detector) sweep(ctx context.Context) {
	tick := time.NewTicker(min(d.cfg.MomentTTL/4, writeAgain))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		before := d.now().Add(-d.cfg.MomentTTL)
		var ended []schemas.Alert
		d.mu.Lock()
		for _, a := range d.firing {
			if a.State == "" && a.Observed.Before(before) {
				a.Status, a.ResolvedAt = schemas.AlertResolved, d.now().UTC()
				ended = append(ended, a)
				delete(d.firing, a.Fingerprint)
			}
		}
		d.mu.Unlock()
		d.write(ctx, ended)
	}
}
