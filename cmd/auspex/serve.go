package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	promrules "github.com/prometheus/prometheus/rules"

	"auspex/api"
	"auspex/api/prometheus"
	"auspex/correlator/learn"
	"auspex/internal/discover"
	"auspex/internal/enrol"
	"auspex/internal/notices"
	"auspex/internal/run"
	"auspex/internal/sim/child"
	"auspex/internal/store/allocations"
	"auspex/internal/store/answers"
	"auspex/internal/store/audit"
	"auspex/internal/store/configs"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/corrections"
	"auspex/internal/store/cursors"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/estate"
	"auspex/internal/store/handling"
	"auspex/internal/store/hooks"
	"auspex/internal/store/learned"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/people"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/records"
	"auspex/internal/store/requests"
	"auspex/internal/store/validations"
	"auspex/internal/store/wipes"
	"auspex/internal/store/workflows"
	"auspex/internal/telemetry"
	"auspex/schemas"
)

const promPrefix = "/prometheus"

// serve answers people: the REST API, the web UI and the Prometheus read API.
func (s *stack) serve(fleet *child.Fleet) []run.Component {
	if !s.cfg.has(RoleAPI) {
		return []run.Component{s.serveOwn()}
	}
	return []run.Component{s.sendNotices(), late("api", func(context.Context) (run.Component, error) {
		version, _ := telemetry.Version()
		deps := api.Deps{
			Log: s.log, Registerer: s.reg, DB: s.db, Records: s.records, People: people.New(s.db), Answers: answers.New(s.db), Requests: requests.New(s.db), Estate: estate.New(s.db), Allocations: allocations.New(s.db), Workflows: workflows.New(s.db), Allocator: s.allocating(), Said: saying(), Webhooks: hooks.New(s.db), Audit: audit.New(s.db, time.Now), Inventory: s.inv, History: historyView{s},
			Secrets:     &s.secrets,
			Corrections: corrections.New(s.db), Learned: learned.New(s.db).Active,
			Edges: learn.Stored{Store: learned.New(s.db)}, Maintenance: maintenance.New(s.db), Handling: handling.New(s.db),
			Join: s.join, Enrol: &enrol.Desk{Store: enrol.New(s.db), Inventory: s.inv, Machines: s.join},
			Discovery: &discover.Desk{Config: s.cfg.Discovery, Sweeps: discoveries.New(s.db), Conflicts: conflicts.New(s.db)},
			Configs:   configs.New(s.db), Registry: s.inv, Provisioning: provisioning.New(s.db), Validations: validations.New(s.db), Wipes: wipes.New(s.db, time.Now),
			Contacts: cursors.New(s.db), Tunnel: s.tunnelAddress(),
			Publisher: s.bus, Subscriber: s.bus, Mode: func() string { return s.cfg.Control.Mode }, SampleRate: s.sampleRate,
			Faults:  s.faults.Load,
			Version: version, Simulated: fleet != nil, HistoryLive: s.cfg.Store.ClickHouse != "off",
			Open: map[string]http.Handler{}, Guarded: map[string]http.Handler{},
		}
		own := telemetry.Handler(s.reg, s.health)
		behind := func(open bool) map[string]http.Handler {
			if open {
				return deps.Open
			}
			return deps.Guarded
		}
		behind(s.cfg.API.MetricsOpen())["/metrics"] = own
		for _, p := range []string{"/-/healthy", "/-/ready"} {
			behind(s.cfg.API.HealthOpen())[p] = own
			behind(s.cfg.API.HealthOpen())[promPrefix+p] = http.StripPrefix(promPrefix, own)
		}
		deps.Guarded["/debug/pprof/"] = own
		if s.reload != nil {
			deps.Admin = map[string]http.Handler{"/-/reload": s.reload}
		}
		if s.hot != nil {
			cfg := s.cfg.API.Query
			cfg.Rules = s.ruleGroups
			cfg.Caller = func(ctx context.Context) string { return api.Caller(ctx).Name }
			cfg.Status = prometheus.Status{Started: time.Now(), Retention: s.cfg.Store.HotWindow.Retention, Config: s.shownConfig}
			read, err := prometheus.New(s.hot, cfg, s.log, s.reg)
			if err != nil {
				return nil, err
			}
			deps.Viewed = map[string]http.Handler{promPrefix + "/": read}
			deps.Querier = api.NewQuerier(read, promPrefix)
		}
		srv, err := api.New(s.cfg.API, deps)
		if err != nil {
			return nil, err
		}
		s.console.Store(srv)
		if s.cfg.API.TLS.CertFile != "" {
			s.reloads("certificate", func(ctx context.Context, cfg Config) (func(context.Context) error, error) {
				return srv.PrepareTLS(ctx, cfg.API.TLS)
			}, "api.tls")
		}
		return run.Func("api", func(ctx context.Context, ready func()) error {
			return srv.Run(ctx, func() {
				s.announce(ctx, srv, fleet)
				ready()
			})
		}), nil
	})}
}

// sendNotices sends to webhooks what happens.
func (s *stack) sendNotices() run.Component {
	return s.lasting("notices", func(reg prom.Registerer) (run.Component, error) {
		return notices.NewSender(notices.DefaultConfig(), hooks.New(s.db), s.log, reg), nil
	})
}

// serveOwn answers those who watch a process without an API.
func (s *stack) serveOwn() run.Component {
	return run.Func("metrics", func(ctx context.Context, ready func()) error {
		return telemetry.Serve(ctx, s.cfg.Metrics, s.reg, s.health, s.log, func(addr net.Addr) {
			s.own = "http://" + addr.String() + "/"
			ready()
		})
	})
}

// historyView answers from ClickHouse where it is there, and is empty elsewhere.
type historyView struct{ s *stack }

// Events implements api.History.
func (v historyView) Events(ctx context.Context, f records.EventFilter) ([]schemas.Event, string, error) {
	h := v.s.history.Load()
	if h == nil {
		return nil, "", nil
	}
	return h.Events(ctx, f)
}

// Event implements api.History.
func (v historyView) Event(ctx context.Context, id string) (schemas.Event, bool, error) {
	h := v.s.history.Load()
	if h == nil {
		return schemas.Event{}, false, nil
	}
	return h.Event(ctx, id)
}

// Readings implements api.History.
func (v historyView) Readings(
	ctx context.Context, resource, metric string, counter bool, start time.Time, step time.Duration, n int,
) (map[string][]*float64, error) {
	h := v.s.history.Load()
	if h == nil {
		return nil, nil
	}
	return h.Readings(ctx, resource, metric, counter, start, step, n)
}

// shownConfig is the configuration that this process began with.
func (s *stack) shownConfig() (string, error) {
	var text strings.Builder
	err := ShowConfig(&text, s.cfg)
	return text.String(), err
}

// ruleGroups are the rules that this process evaluates.
func (s *stack) ruleGroups() []*promrules.Group {
	if r := s.rules.Load(); r != nil {
		return r.Groups()
	}
	return nil
}

// sampleRate is how many samples a second the collectors have handed over since
// it was asked last; not known without collectors in this process.
func (s *stack) sampleRate() float64 {
	families, err := s.reg.Gather()
	if err != nil {
		return 0
	}
	var total float64
	for _, f := range families {
		if f.GetName() == "auspex_collectors_samples_total" {
			for _, m := range f.GetMetric() {
				total += m.GetCounter().GetValue()
			}
		}
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if span := now.Sub(s.rateAt).Seconds(); span >= 1 {
		s.rate = (total - s.rateTotal) / span
		s.rateAt, s.rateTotal = now, total
	}
	return s.rate
}
