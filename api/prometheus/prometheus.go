// Package prometheus answers the read part of Prometheus' HTTP API over a
// queryable store, so that Grafana, promtool and scripts read the hot window as
// if it were a Prometheus server. It keeps to the documented answers
// (https://prometheus.io/docs/prometheus/latest/querying/api/).
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promrules "github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"auspex/schemas"
)

// Prefix is where the handler expects its routes.
const Prefix = "/prometheus/api/v1/"

// version is the release of Prometheus whose API and functions these are; Grafana
// chooses its requests by it.
const version = "3.15.0"

// Config bounds what a query may cost.
type Config struct {
	Timeout       time.Duration `yaml:"timeout"`        // of one query
	MaxSamples    int           `yaml:"max_samples"`    // that one query may hold in memory
	MaxConcurrent int           `yaml:"max_concurrent"` // queries at a time; more wait
	LookbackDelta time.Duration `yaml:"lookback_delta"` // how old a sample may be and still be current

	// Rules returns the rule groups that the routes rules and alerts show; nil is none.
	Rules func() []*promrules.Group `yaml:"-"`
}

// DefaultConfig has Prometheus' own bounds, but fewer queries at a time.
func DefaultConfig() Config {
	return Config{Timeout: time.Minute, MaxSamples: 50_000_000, MaxConcurrent: 8, LookbackDelta: 5 * time.Minute}
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	switch {
	case c.Timeout <= 0:
		return fmt.Errorf("timeout: want more than 0s, got %s", c.Timeout)
	case c.MaxSamples < 1:
		return fmt.Errorf("max_samples: want at least 1, got %d", c.MaxSamples)
	case c.MaxConcurrent < 1:
		return fmt.Errorf("max_concurrent: want at least 1, got %d", c.MaxConcurrent)
	case c.LookbackDelta < time.Second:
		return fmt.Errorf("lookback_delta: want at least 1s, got %s", c.LookbackDelta)
	}
	return nil
}

type handler struct {
	store  storage.Queryable
	engine *promql.Engine
	parser parser.Parser
	log    *slog.Logger
	now    func() time.Time
	slots  chan struct{}

	ruleGroups func() []*promrules.Group

	served *client.CounterVec
}

// New returns a handler of the routes below [Prefix]: query, query_range, series,
// labels, label/NAME/values, metadata, format_query, rules, alerts and
// status/buildinfo. Metrics are registered on reg where it is not nil.
func New(store storage.Queryable, cfg Config, log *slog.Logger, reg client.Registerer) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prometheus api: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := parser.NewParser(parser.Options{})
	h := &handler{
		store: store, parser: p, log: log, now: time.Now, slots: make(chan struct{}, cfg.MaxConcurrent), ruleGroups: cfg.Rules,
		engine: promql.NewEngine(promql.EngineOpts{
			Logger: log, MaxSamples: cfg.MaxSamples, Timeout: cfg.Timeout, LookbackDelta: cfg.LookbackDelta,
			EnableAtModifier: true, EnableNegativeOffset: true, Parser: p,
			NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		}),
		served: client.NewCounterVec(client.CounterOpts{Name: "auspex_api_prometheus_requests_total", Help: "Requests to the Prometheus read API by route and result."}, []string{"route", "result"}),
	}
	if reg != nil {
		if err := reg.Register(h.served); err != nil {
			return nil, fmt.Errorf("prometheus api: %w", err)
		}
	}
	mux := http.NewServeMux()
	route := func(methods []string, name, path string, f func(*http.Request) result) {
		for _, m := range methods {
			mux.HandleFunc(m+" "+Prefix+path, func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, name, f) })
		}
	}
	get, both := []string{http.MethodGet}, []string{http.MethodGet, http.MethodPost}
	route(both, "query", "query", h.query)
	route(both, "query_range", "query_range", h.queryRange)
	route(both, "format_query", "format_query", h.formatQuery)
	route(both, "series", "series", h.series)
	route(both, "labels", "labels", h.labels)
	route(get, "label_values", "label/{name}/values", h.labelValues)
	route(get, "metadata", "metadata", h.metadata)
	route(both, "query_exemplars", "query_exemplars", func(*http.Request) result { return result{data: []string{}} })
	route(get, "rules", "rules", h.rules)
	route(get, "alerts", "alerts", h.alerts)
	route(get, "buildinfo", "status/buildinfo", func(*http.Request) result {
		return result{data: map[string]string{"version": version, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": runtime.Version(), "application": "Auspex"}}
	})
	mux.HandleFunc(Prefix, func(w http.ResponseWriter, r *http.Request) {
		h.serve(w, r, "other", func(*http.Request) result { return fail(errNotFound, errors.New("no such route")) })
	})
	return mux, nil
}

// kind is the type of an error and its status.
type kind struct {
	name   string
	status int
}

var (
	errBadData   = kind{"bad_data", http.StatusBadRequest}
	errExecution = kind{"execution", http.StatusUnprocessableEntity}
	errTimeout   = kind{"timeout", http.StatusServiceUnavailable}
	errCanceled  = kind{"canceled", 499} // the client has gone
	errInternal  = kind{"internal", http.StatusInternalServerError}
	errNotFound  = kind{"not_found", http.StatusNotFound}
)

// result is what a route answers: data that encodes as JSON, or an error.
type result struct {
	data     any
	err      error
	kind     kind
	warnings annotations.Annotations
	query    string
	done     func() // frees what data refers to
}

func fail(k kind, err error) result { return result{kind: k, err: err} }

func badParameter(name string, err error) result {
	return fail(errBadData, fmt.Errorf("invalid parameter %q: %w", name, err))
}

// execution sorts the errors of the engine and the store.
func execution(err error) result {
	var canceled promql.ErrQueryCanceled
	var timeout promql.ErrQueryTimeout
	var store promql.ErrStorage
	switch {
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return fail(errTimeout, err)
	case errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return fail(errCanceled, err)
	case errors.As(err, &store):
		return fail(errInternal, err)
	}
	return fail(errExecution, err)
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request, route string, f func(*http.Request) result) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	var res result
	if err := r.ParseForm(); err != nil {
		res = fail(errBadData, fmt.Errorf("error parsing form values: %w", err))
	} else {
		select {
		case h.slots <- struct{}{}:
			res = h.guard(r, f)
			<-h.slots
		case <-r.Context().Done():
			res = fail(errCanceled, r.Context().Err())
		}
	}
	if res.done != nil {
		defer res.done()
	}
	outcome := "success"
	if res.err != nil {
		outcome = res.kind.name
	}
	h.served.WithLabelValues(route, outcome).Inc()
	body := encode(&res)
	w.Header().Set("Content-Type", "application/json")
	if res.err != nil {
		w.WriteHeader(res.kind.status)
	}
	if _, err := w.Write(body); err != nil {
		h.log.Debug("answer not written", "route", route, "error", err)
	}
}

// guard turns a panic of the engine into an answer; one query ends nobody else's.
func (h *handler) guard(r *http.Request, f func(*http.Request) result) (res result) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("query panicked", "query", r.FormValue("query"), "panic", fmt.Sprint(p))
			res = fail(errInternal, errors.New("unexpected error"))
		}
	}()
	return f(r)
}

// counters of GPU scrapes, by name.
func isCounter(name string) bool {
	for i := range schemas.GPUMetrics {
		if schemas.GPUMetrics[i].Name == name {
			return schemas.GPUMetrics[i].Counter
		}
	}
	return len(name) > 6 && name[len(name)-6:] == "_total"
}
