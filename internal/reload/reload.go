// Package reload takes a changed configuration over while the process runs. A
// part that can do so adds itself with the settings that it covers; everything is
// read and checked before anything changes, so that a bad file changes nothing.
package reload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/config"
)

// ErrStarting is returned while the parts of the process still start.
var ErrStarting = errors.New("the process is starting; try again when it is ready")

// Part is a part of a process that takes settings over while it runs.
type Part[C any] struct {
	Name string // what it reads, in a word or two
	Keys []string
	// Prepare reads and checks everything that the part needs of a configuration,
	// and changes nothing. What it returns puts it in force.
	Prepare func(ctx context.Context, cfg C) (apply func(context.Context) error, err error)
}

// covers tells whether a setting is one of the part's or below one.
func (p Part[C]) covers(key string) bool {
	return slices.ContainsFunc(p.Keys, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
}

// Report says what came of a reload.
type Report struct {
	Read         []string `json:"read"`          // parts that have read their files and settings again
	Applied      []string `json:"applied"`       // settings that changed and are in force
	NeedsRestart []string `json:"needs_restart"` // settings that differ from what the process started with
}

// Manager reloads the configuration of a process.
type Manager[C any] struct {
	load func() (C, error)
	log  *slog.Logger

	mu      sync.Mutex
	started C // what runs where no part takes changes over
	last    C // what was taken over last
	parts   []Part[C]
	open    bool

	reloads *prometheus.CounterVec
	good    prometheus.Gauge
	at      prometheus.Gauge
}

// New returns a manager of a process that starts with a configuration; load reads
// all sources of it anew.
func New[C any](cfg C, load func() (C, error), log *slog.Logger, reg prometheus.Registerer) *Manager[C] {
	m := &Manager[C]{
		load: load, log: log, started: cfg, last: cfg,
		reloads: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "auspex_config_reloads_total", Help: "Reloads of the configuration, by result: success, or failure, which changes nothing.",
			},
			[]string{"result"},
		),
		good: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_config_last_reload_successful", Help: "1 unless the last reload of the configuration failed.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration was last read without an error, at the start or later.",
		}),
	}
	m.reloads.WithLabelValues("success")
	m.reloads.WithLabelValues("failure")
	m.good.Set(1)
	m.at.SetToCurrentTime()
	reg.MustRegister(m.reloads, m.good, m.at)
	return m
}

// Add makes a part known, once it runs.
func (m *Manager[C]) Add(p Part[C]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.parts = append(m.parts, p)
}

// Follow reloads at each signal, and lets others do so, until ctx is done. It
// begins when the parts run.
func (m *Manager[C]) Follow(ctx context.Context, ready func(), signals <-chan struct{}) error {
	m.setOpen(true)
	defer m.setOpen(false)
	ready()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			_, _ = m.Reload(ctx) // logged and counted there: nobody waits for an answer
		}
	}
}

func (m *Manager[C]) setOpen(open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = open
}

// Reload reads the configuration and the files that it names, and puts in force
// what can change while the process runs. An error means that nothing changed,
// unless it says which part failed after it had accepted its settings.
func (m *Manager[C]) Reload(ctx context.Context) (Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return Report{}, ErrStarting
	}
	report, err := m.reload(ctx)
	if err != nil {
		m.reloads.WithLabelValues("failure").Inc()
		m.good.Set(0)
		m.log.Error("configuration was not reloaded", "error", err)
		return report, err
	}
	m.reloads.WithLabelValues("success").Inc()
	m.good.Set(1)
	m.at.Set(float64(time.Now().UnixMilli()) / 1000)
	m.log.Info("configuration reloaded", "applied", report.Applied)
	if len(report.NeedsRestart) > 0 {
		m.log.Warn("changed settings need a restart", "settings", report.NeedsRestart)
	}
	return report, nil
}

func (m *Manager[C]) reload(ctx context.Context) (Report, error) {
	report := Report{Read: []string{}, Applied: []string{}, NeedsRestart: []string{}}
	cfg, err := m.load()
	if err != nil {
		return report, err
	}
	covered := func(key string) bool {
		return slices.ContainsFunc(m.parts, func(p Part[C]) bool { return p.covers(key) })
	}
	var errs []error
	applies := make([]func(context.Context) error, len(m.parts))
	for i, p := range m.parts {
		if applies[i], err = p.Prepare(ctx, cfg); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return report, err
	}
	for i, apply := range applies {
		if err := apply(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s was accepted but could not be applied: %w", m.parts[i].Name, err))
			continue
		}
		report.Read = append(report.Read, m.parts[i].Name)
	}
	for _, key := range config.Diff(&m.last, &cfg) {
		if covered(key) {
			report.Applied = append(report.Applied, key)
		}
	}
	for _, key := range config.Diff(&m.started, &cfg) {
		if !covered(key) {
			report.NeedsRestart = append(report.NeedsRestart, key)
		}
	}
	m.last = cfg
	return report, errors.Join(errs...)
}
