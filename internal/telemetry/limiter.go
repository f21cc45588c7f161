package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// A call site may write burst records in a window; the rest are counted and told
	// with the next one that passes.
	burst  = 20
	window = 10 * time.Second
	// Of one device it may write one in a deviceWindow: a device that says the same
	// all the time neither fills the log nor takes the turn of others.
	deviceWindow = time.Minute
	// maxDevices bounds what is remembered of devices.
	maxDevices = 1 << 14
)

// Keys that tell of which device a record is.
const (
	keyDevice    = "device"
	keyCollector = "collector"
)

type limiter struct {
	slog.Handler
	shared *limits
	who    origin // from the attributes of the logger
}

// origin is the device that a record is about and the collector that reads it.
type origin struct{ device, collector string }

func (o *origin) note(a slog.Attr) {
	switch a.Key {
	case keyDevice:
		o.device = a.Value.String()
	case keyCollector:
		o.collector = a.Value.String()
	}
}

type limits struct {
	mu      sync.Mutex
	sites   map[uintptr]*site
	devices map[deviceSite]*site
	pruned  time.Time // devices, last
	lines   *prometheus.CounterVec
}

// deviceSite is a call site with what it speaks of.
type deviceSite struct {
	pc uintptr
	origin
}

type site struct {
	since      time.Time
	n, skipped int
}

func newLimiter(h slog.Handler, reg prometheus.Registerer) slog.Handler {
	l := &limits{sites: map[uintptr]*site{}, devices: map[deviceSite]*site{}, lines: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_log_records_total", Help: "Log records by level and fate: written, or suppressed because their call site repeats itself.",
	}, []string{"level", "fate"})}
	if reg != nil {
		reg.MustRegister(l.lines)
	}
	return limiter{Handler: h, shared: l}
}

// Handle implements [slog.Handler].
func (l limiter) Handle(ctx context.Context, r slog.Record) error {
	who := l.who
	r.Attrs(func(a slog.Attr) bool { who.note(a); return true })
	skipped, ok := l.shared.admit(r, who)
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
func (l limiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := limiter{l.Handler.WithAttrs(attrs), l.shared, l.who}
	for _, a := range attrs {
		next.who.note(a)
	}
	return next
}

// WithGroup implements [slog.Handler].
func (l limiter) WithGroup(name string) slog.Handler {
	return limiter{l.Handler.WithGroup(name), l.shared, l.who}
}

func (l *limits) admit(r slog.Record, who origin) (skipped int, ok bool) {
	if r.PC == 0 {
		return 0, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if who.device != "" {
		if skipped, ok = l.device(deviceSite{r.PC, who}, r.Time); !ok {
			return 0, false
		}
	}
	s := l.sites[r.PC]
	if s == nil {
		s = &site{since: r.Time}
		l.sites[r.PC] = s
	}
	if r.Time.Sub(s.since) >= window {
		skipped += s.skipped
		*s = site{since: r.Time}
	}
	s.n++
	if s.n > burst {
		s.skipped += 1 + skipped
		return 0, false
	}
	return skipped, true
}

// device admits one record of a device in a deviceWindow.
func (l *limits) device(key deviceSite, now time.Time) (skipped int, ok bool) {
	s := l.devices[key]
	if s != nil && now.Sub(s.since) < deviceWindow {
		s.skipped++
		return 0, false
	}
	if s == nil {
		if len(l.devices) >= maxDevices && now.Sub(l.pruned) >= deviceWindow {
			l.pruned = now
			for k, old := range l.devices {
				if now.Sub(old.since) >= deviceWindow {
					delete(l.devices, k)
				}
			}
		}
		if len(l.devices) >= maxDevices {
			return 0, true // the bound of the call site is left
		}
		s = &site{}
		l.devices[key] = s
	}
	skipped = s.skipped
	*s = site{since: now}
	return skipped, true
}
