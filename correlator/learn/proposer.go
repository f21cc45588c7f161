package learn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/correlator"
	"auspex/internal/run"
	"auspex/internal/store/learned"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Config says what a running product learns by itself.
type Config struct {
	// Edges is when it looks which kinds of events bring about which others, for people to decide on.
	Edges EdgesConfig `yaml:"edges"`
}

// EdgesConfig says when and how far back edges are looked for.
type EdgesConfig struct {
	// Every is how long after one search the next one comes at the earliest; 0 is never: by `auspex learn edges` only.
	Every time.Duration `yaml:"every"`
	// Incidents is how many must have closed since the last search.
	Incidents int `yaml:"incidents"`
	// Since is how far back alerts are read.
	Since time.Duration `yaml:"since"`
	// Alerts is how many are read at most, the newest.
	Alerts int `yaml:"alerts"`
}

// DefaultConfig looks for edges once a day where ten incidents have closed since.
func DefaultConfig() Config {
	return Config{Edges: EdgesConfig{Every: 24 * time.Hour, Incidents: 10, Since: 90 * 24 * time.Hour, Alerts: 100_000}}
}

// Validate names the key at fault.
func (c Config) Validate() error {
	switch e := c.Edges; {
	case e.Every != 0 && (e.Every < time.Minute || e.Every > 365*24*time.Hour):
		return fmt.Errorf("edges.every: %s is not 0 or between 1m and a year", e.Every)
	case e.Incidents < 1:
		return fmt.Errorf("edges.incidents: %d is not 1 or more", e.Incidents)
	case e.Since < time.Hour:
		return fmt.Errorf("edges.since: %s is less than an hour", e.Since)
	case e.Alerts < 100 || e.Alerts > 10_000_000:
		return fmt.Errorf("edges.alerts: %d is not between 100 and 10000000", e.Alerts)
	}
	return nil
}

const (
	searchMost = 5 * time.Minute // of one search: what takes longer is given up until the next is due
	askMost    = time.Hour       // between two questions whether one is due
	askOften   = 24              // the same, for a short time between searches: so many
	longOpen   = 30 * 24 * time.Hour
)

// Proposer looks for edges in a running product, now and then, and stores what no record
// has as proposals. It accepts none, and a decision of a person stands.
type Proposer struct {
	cfg    EdgesConfig
	faults func() []string
	inv    correlator.Inventory
	db     *sqldb.DB
	log    *slog.Logger

	searches *prometheus.CounterVec
	found    prometheus.Counter
	waiting  prometheus.Gauge
}

// NewProposer returns a proposer over a site's stores; faults are the folders of its own
// fault records, as they are at the time. It does nothing before Run.
func NewProposer(
	cfg EdgesConfig, faults func() []string, inv correlator.Inventory, db *sqldb.DB, log *slog.Logger, reg prometheus.Registerer,
) *Proposer {
	p := &Proposer{
		cfg: cfg, faults: faults, inv: inv, db: db, log: log,
		searches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_learn_edge_searches_total", Help: "Searches for edges, by result: done, slow (given up) or failed.",
		}, []string{"result"}),
		found: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_learn_edge_proposals_total", Help: "Proposals of edges that were new.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_learn_edge_proposals_open", Help: "Proposals of edges that wait for a decision.",
		}),
	}
	if reg != nil {
		reg.MustRegister(p.searches, p.found, p.waiting)
	}
	return p
}

// Name names the component.
func (p *Proposer) Name() string { return "edges" }

// Run looks for edges when that is due, until ctx is done.
func (p *Proposer) Run(ctx context.Context, ready func()) error {
	ready()
	if p.cfg.Every == 0 {
		<-ctx.Done()
		return nil
	}
	for run.Sleep(ctx, min(askMost, p.cfg.Every/askOften)) == nil {
		if err := p.turn(ctx, time.Now().UTC()); err != nil && ctx.Err() == nil {
			p.searches.WithLabelValues("failed").Inc()
			p.log.Warn("edges were not looked for", "error", err)
		}
	}
	return nil
}

// turn looks for edges where that is due, and shows how many proposals wait.
func (p *Proposer) turn(ctx context.Context, now time.Time) error {
	s := Stored{Store: learned.New(p.db)}
	due, err := p.due(ctx, s, now)
	if err == nil && due {
		err = p.search(ctx, s, now)
	}
	if err != nil {
		return err
	}
	open, err := s.Proposals(ctx, schemas.EdgeOpen)
	p.waiting.Set(float64(len(open)))
	return err
}

// due says whether it is time, and enough has come to an end since the last search.
func (p *Proposer) due(ctx context.Context, s Stored, now time.Time) (bool, error) {
	last, err := s.Sought(ctx)
	if err != nil || now.Sub(last) < p.cfg.Every {
		return false, err
	}
	st, closed := records.New(p.db), 0
	f := records.Filter{Status: records.StatusClosed, Limit: page}
	if !last.IsZero() {
		f.Since = last.Add(-longOpen)
	}
	for {
		list, next, err := st.Incidents(ctx, f)
		if err != nil {
			return false, err
		}
		for i := range list {
			if list[i].Closed != nil && list[i].Closed.After(last) {
				closed++
			}
		}
		if f.After = next; closed >= p.cfg.Incidents || next == "" {
			return closed >= p.cfg.Incidents, nil
		}
	}
}

// search looks for edges once, within searchMost.
func (p *Proposer) search(ctx context.Context, s Stored, now time.Time) error {
	m, err := propagation.Load(p.faults()...)
	if err != nil {
		return err
	}
	t := p.inv.Snapshot().Topology()
	within, cancel := context.WithTimeout(ctx, searchMost)
	defer cancel()
	list, err := ProposeStored(within, p.db, &t, m, now.Add(-p.cfg.Since), p.cfg.Alerts, io.Discard)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		p.searches.WithLabelValues("slow").Inc()
		p.log.Warn("the search for edges was given up", "after", searchMost, "hint", "lower learn.edges.alerts, or run `auspex learn edges` elsewhere")
		return s.SetSought(ctx, now)
	}
	if err != nil {
		return err
	}
	added, known, err := s.KeepProposals(ctx, list, now.Truncate(time.Second))
	if err != nil {
		return err
	}
	p.searches.WithLabelValues("done").Inc()
	p.found.Add(float64(added))
	if added > 0 {
		p.log.Info("kinds of events follow others; proposals wait for a decision", "new", added, "known", known)
	}
	return s.SetSought(ctx, now)
}
