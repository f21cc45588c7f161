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
	"math"
	"net/http"
	"runtime"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promrules "github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// Prefix is where the handler expects its routes.
const Prefix = "/prometheus/api/v1/"

// version is the release of Prometheus whose API and functions these are; Grafana
// chooses its requests by it.
const version = "3.15.0"

// Config bounds what a query may cost.
type Config struct {
	Timeout       time.Duration `yaml:"timeout"`        // of one query, waiting included
	MaxSamples    int           `yaml:"max_samples"`    // that one query may hold in memory
	MaxTouched    int64         `yaml:"max_touched"`    // samples that one query may look at
	MaxSeries     int           `yaml:"max_series"`     // that one query may read
	MaxBytes      int           `yaml:"max_bytes"`      // of an answer, before it is packed
	MaxLength     int           `yaml:"max_length"`     // bytes of the text of a query
	MaxConcurrent int           `yaml:"max_concurrent"` // queries at a time, half of them of one caller; more wait
	MaxWaiting    int           `yaml:"max_waiting"`    // queries that wait, a quarter of them of one caller; more are refused
	LookbackDelta time.Duration `yaml:"lookback_delta"` // how old a sample may be and still be current

	// Rules returns the rule groups that the routes rules and alerts show; nil is none.
	Rules func() []*promrules.Group `yaml:"-"`
	// Caller names who sent a request, for the queue; nil makes all one.
	Caller func(context.Context) string `yaml:"-"`
	// Status answers below status/, by route; nil has none but buildinfo.
	Status Status `yaml:"-"`
}

// DefaultConfig has bounds for a process that does other work beside.
func DefaultConfig() Config {
	return Config{
		Timeout: 30 * time.Second, MaxSamples: 10_000_000, MaxTouched: 500_000_000, MaxSeries: 250_000, MaxBytes: 32 << 20, MaxLength: 64 << 10,
		MaxConcurrent: 4, MaxWaiting: 256, LookbackDelta: 5 * time.Minute,
	}
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	if c.Timeout <= 0 {
		return fmt.Errorf("timeout: want more than 0s, got %s", c.Timeout)
	}
	if c.LookbackDelta < time.Second {
		return fmt.Errorf("lookback_delta: want at least 1s, got %s", c.LookbackDelta)
	}
	for _, n := range []struct {
		key   string
		value int64
	}{
		{"max_samples", int64(c.MaxSamples)},
		{"max_touched", c.MaxTouched},
		{"max_series", int64(c.MaxSeries)},
		{"max_bytes", int64(c.MaxBytes)},
		{"max_length", int64(c.MaxLength)},
		{"max_concurrent", int64(c.MaxConcurrent)},
		{"max_waiting", int64(c.MaxWaiting)},
	} {
		if n.value < 1 {
			return fmt.Errorf("%s: want at least 1, got %d", n.key, n.value)
		}
	}
	return nil
}

type handler struct {
	store  storage.Queryable
	engine *promql.Engine
	parser parser.Parser
	log    *slog.Logger
	now    func() time.Time
	queue  *queue
	cfg    Config

	ruleGroups func() []*promrules.Group

	served *client.CounterVec
}

// New returns a handler of the routes below [Prefix]: query, query_range, series,
// labels, label/NAME/values, metadata, format_query, parse_query, rules, alerts and
// status/buildinfo, config, flags, runtimeinfo and tsdb. Metrics are registered on reg where it is not nil.
func New(store storage.Queryable, cfg Config, log *slog.Logger, reg client.Registerer) (http.Handler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("prometheus api: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := boundedParser{parser.NewParser(parser.Options{}), cfg.MaxLength}
	h := &handler{
		store: store, parser: p, log: log, now: time.Now, queue: newQueue(cfg.MaxConcurrent, cfg.MaxWaiting), cfg: cfg, ruleGroups: cfg.Rules,
		engine: promql.NewEngine(promql.EngineOpts{
			Logger: log, MaxSamples: cfg.MaxSamples, Timeout: cfg.Timeout, LookbackDelta: cfg.LookbackDelta,
			EnableAtModifier: true, EnableNegativeOffset: true, Parser: p,
			NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryStep.Milliseconds() },
		}),
		served: client.NewCounterVec(
			client.CounterOpts{Name: "auspex_api_prometheus_requests_total", Help: "Requests to the Prometheus read API by route and result."},
			[]string{"route", "result"},
		),
	}
	if reg != nil {
		running := client.NewGaugeFunc(
			client.GaugeOpts{Name: "auspex_api_prometheus_queries_running", Help: "Queries of the Prometheus read API that are running."},
			func() float64 { n, _ := h.queue.counts(); return float64(n) },
		)
		waiting := client.NewGaugeFunc(
			client.GaugeOpts{Name: "auspex_api_prometheus_queries_waiting", Help: "Queries of the Prometheus read API that wait to run."},
			func() float64 { _, n := h.queue.counts(); return float64(n) },
		)
		for _, c := range []client.Collector{h.served, running, waiting} {
			if err := reg.Register(c); err != nil {
				return nil, fmt.Errorf("prometheus api: %w", err)
			}
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
	route(get, "rules", "rules", whole(h.rules))
	route(get, "alerts", "alerts", whole(h.alerts))
	route(both, "parse_query", "parse_query", h.parseQuery)
	route(get, "config", "status/config", whole(h.configuration))
	route(get, "flags", "status/flags", whole(h.flags))
	route(get, "runtimeinfo", "status/runtimeinfo", whole(h.runtimeInfo))
	route(get, "tsdb", "status/tsdb", whole(h.tsdbStatus))
	route(get, "buildinfo", "status/buildinfo", func(*http.Request) result {
		return result{data: map[string]string{
			"version": version, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": runtime.Version(),
			"application": "Auspex",
		}}
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
	errBusyKind  = kind{"unavailable", http.StatusServiceUnavailable}
	errInternal  = kind{"internal", http.StatusInternalServerError}
	errNotFound  = kind{"not_found", http.StatusNotFound}
	errForbidden = kind{"forbidden", http.StatusForbidden}
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
	var limit errLimit
	switch {
	case errors.As(err, &limit):
		return fail(errExecution, limit)
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
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
	var res result
	if err := r.ParseForm(); err != nil {
		res = fail(errBadData, fmt.Errorf("error parsing form values: %w", err))
	} else if leave, err := h.queue.enter(ctx, h.caller(ctx)); errors.Is(err, errBusy) {
		w.Header().Set("Retry-After", "1")
		res = fail(errBusyKind, err)
	} else if err != nil {
		res = execution(err)
	} else {
		defer leave() // the answer is built in its place, too
		res = h.guard(r, f)
	}
	if res.done != nil {
		defer res.done()
	}
	body, ok := encode(&res, h.cfg.MaxBytes)
	if !ok {
		res = fail(errExecution, overf("the answer has more than %d bytes; choose fewer series or a longer step", h.cfg.MaxBytes))
		body, _ = encode(&res, math.MaxInt)
	}
	outcome := "success"
	if res.err != nil {
		outcome = res.kind.name
	}
	h.served.WithLabelValues(route, outcome).Inc()
	w.Header().Set("Content-Type", "application/json")
	if res.err != nil {
		w.WriteHeader(res.kind.status)
	}
	if _, err := w.Write(body); err != nil {
		h.log.Debug("cannot write the answer", "route", route, "error", err)
	}
}

func (h *handler) caller(ctx context.Context) string {
	if h.cfg.Caller == nil {
		return ""
	}
	return h.cfg.Caller(ctx)
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
