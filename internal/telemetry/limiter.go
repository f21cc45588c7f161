package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A call site may write burst records in a window; the rest are counted and told
// with the next one that passes.
const (
	burst  = 20
	window = 10 * time.Second
)

type limiter struct {
	slog.Handler
	shared *limits
}

type limits struct {
	mu    sync.Mutex
	sites map[uintptr]*site
	lines *prometheus.CounterVec
}

type site struct {
	since      time.Time
	n, skipped int
}

func newLimiter(h slog.Handler, reg prometheus.Registerer) slog.Handler {
	l := &limits{sites: map[uintptr]*site{}, lines: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_log_records_total", Help: "Log records by level and fate: written, or suppressed because their call site repeats itself.",
	}, []string{"level", "fate"})}
	if reg != nil {
		reg.MustRegister(l.lines)
	}
	return limiter{h, l}
}

// Handle implements [slog.Handler].
func (l limiter) Handle(ctx context.Context, r slog.Record) error {
	skipped, ok := l.shared.admit(r)
	if !ok {
		l.shared.lines.WithLabelValues(r.Level.String(), "suppressed").Inc()
		return nil
	}
	if skipped > 0 {
		r.AddAttrs(slog.Int("suppressed", skipped))
	}
	l.shared.lines.WithLabelValues(r.Level.String(), "written").Inc()
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (l limiter) WithAttrs(a []slog.Attr) slog.Handler {
	return limiter{l.Handler.WithAttrs(a), l.shared}
}

// WithGroup implements [slog.Handler].
func (l limiter) WithGroup(name string) slog.Handler {
	return limiter{l.Handler.WithGroup(name), l.shared}
}

func (l *limits) admit(r slog.Record) (skipped int, ok bool) {
	if r.PC == 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[r.PC]
	if s == nil {
		s = &site{since: r.Time}
		l.sites[r.PC] = s
	}
	if r.Time.Sub(s.since) >= window {
		skipped = s.skipped
		*s = site{since: r.Time}
	}
	s.n++
	if s.n > burst {
		s.skipped++
		return 0, false
	}
	return skipped, true
}
