// Package telemetry is what a process says of itself: logs, metrics, health and
// profiles.
package telemetry

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// LogConfig is how logs are written.
type LogConfig struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Validate implements the check of the configuration.
func (c *LogConfig) Validate() error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.Level)); err != nil {
		return fmt.Errorf("level: want debug, info, warn or error, got %q", c.Level)
	}
	if c.Format != "text" && c.Format != "json" {
		return fmt.Errorf("format: want text or json, got %q", c.Format)
	}
	return nil
}

// NewLogger returns a logger that writes to w and counts what it writes by level.
// The level is that of c until it is set anew.
func NewLogger(c LogConfig, w io.Writer, reg prometheus.Registerer) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	_ = level.UnmarshalText([]byte(c.Level))
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if c.Format == "json" {
		h = slog.NewJSONHandler(w, opts)
	}
	return slog.New(newLimiter(h, reg)), level
}

// NewRegistry returns a registry with the metrics of the process and the build.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	g := prometheus.NewGaugeVec(
		prometheus.GaugeOpts{Name: "auspex_build_info", Help: "1, labelled with the version and the Go release of this binary."},
		[]string{"version", "go_version"},
	)
	v, goVersion := Version()
	g.WithLabelValues(v, goVersion).Set(1)
	r.MustRegister(g)
	return r
}

// Version returns the module's version, or its revision where it was built from a
// checkout, and the Go release.
func Version() (version, goVersion string) {
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	version = bi.Main.Version
	if version == "" || version == "(devel)" {
		version = "devel"
	}
	var rev, dirty string
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = "+" + s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "-dirty"
			}
		}
	}
	if !strings.Contains(version, "+") && version == "devel" {
		version += rev + dirty
	}
	return version, bi.GoVersion
}

// Health collects the checks of the parts of a process.
type Health struct {
	mu     sync.Mutex
	checks map[string]func() error
	ready  bool
}

// Check adds a named check; an error says what does not work. A degraded part
// does not make the process unready: it shows in the answer.
func (h *Health) Check(name string, f func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checks == nil {
		h.checks = map[string]func() error{}
	}
	h.checks[name] = f
}

// SetReady says that every component has started, or that the process stops.
func (h *Health) SetReady(ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = ready
}

// Degraded returns what does not work, by name, each in one line.
func (h *Health) Degraded() map[string]string {
	h.mu.Lock()
	names := make([]string, 0, len(h.checks))
	for n := range h.checks {
		names = append(names, n)
	}
	slices.Sort(names)
	fs := make([]func() error, len(names))
	for i, n := range names {
		fs[i] = h.checks[n]
	}
	h.mu.Unlock()
	out := map[string]string{}
	for i, f := range fs {
		if err := f(); err != nil {
			out[names[i]] = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	return out
}

// Handler serves /metrics, /-/healthy, /-/ready and /debug/pprof/.
func Handler(g prometheus.Gatherer, h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("/-/healthy", func(w http.ResponseWriter, _ *http.Request) { writeStatus(w, http.StatusOK, "healthy", h.Degraded()) })
	mux.HandleFunc("/-/ready", func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		ready := h.ready
		h.mu.Unlock()
		if !ready {
			writeStatus(w, http.StatusServiceUnavailable, "starting", nil)
			return
		}
		writeStatus(w, http.StatusOK, "ready", h.Degraded())
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func writeStatus(w http.ResponseWriter, code int, status string, degraded map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(struct {
		Status   string            `json:"status"`
		Degraded map[string]string `json:"degraded,omitempty"`
	}{status, degraded})
}
