// Package slurm reads jobs and nodes from Slurm's REST daemon (slurmrestd,
// v0.0.38 to v0.0.43 and later of the same shape) and tells what has changed: a job
// that starts, ends or fails, a node that is drained or down.
package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	rest "auspex/internal/slurm"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the collector's key in the configuration.
const Name = "slurm"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewNone, Sources: []string{schemas.SourceScheduler}},
		func() collectors.Config { return Default() },
	)
}

// Config is the collector's configuration. Without a URL it reads nothing.
type Config struct {
	URL string `yaml:"url"` // of slurmrestd, such as http://slurmctl:6820
	// TokenFile holds a JSON web token; it is read anew for each poll.
	TokenFile string `yaml:"token_file"`
	// User is sent as X-SLURM-USER-NAME; empty takes the name in the token.
	User     string        `yaml:"user"`
	Version  string        `yaml:"version"` // such as v0.0.42; empty asks the daemon
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
	MaxBody  int64         `yaml:"max_body"` // bounds an answer in bytes
	// Reconcile is how often all jobs and nodes are read, whatever the controller says has changed.
	Reconcile time.Duration `yaml:"reconcile"`
	TLS       trust.TLS     `yaml:"tls"`
}

// Default returns the defaults.
func Default() *Config {
	return &Config{Interval: 5 * time.Second, Timeout: time.Minute, MaxBody: 1 << 30, Reconcile: 5 * time.Minute}
}

var versionPattern = regexp.MustCompile(`^v0\.0\.\d{2,3}$`)

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	if c.URL != "" {
		if u, err := url.Parse(c.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("url %.80q is not an HTTP address", c.URL)
		}
	}
	switch {
	case c.Interval < 100*time.Millisecond:
		return errors.New("interval must be at least 100ms")
	case c.Timeout <= 0:
		return errors.New("timeout must be positive")
	case c.Version != "" && !versionPattern.MatchString(c.Version):
		return errors.New("version must look like v0.0.42")
	case c.Reconcile <= 0:
		return errors.New("reconcile must be positive")
	case c.MaxBody < 4096:
		return errors.New("max_body must be at least 4096")
	}
	return nil
}

// Targets implements [collectors.Config]: the first site stands for the cluster.
func (c *Config) Targets(resources []schemas.Resource) []schemas.Resource {
	if c.URL == "" {
		return nil
	}
	if i := slices.IndexFunc(resources, func(r schemas.Resource) bool { return r.Kind == schemas.KindSite }); i >= 0 {
		return resources[i : i+1 : i+1]
	}
	return []schemas.Resource{{ID: Name, Kind: "scheduler"}}
}

// CheckFiles reads the file that the configuration names.
func (c *Config) CheckFiles() error { return rest.CheckToken(c.TokenFile) }

// LossType implements [collectors.LossTyper]: a scheduler that does not answer is
// no device that is lost.
func (*Config) LossType() string { return "" }

// New implements [collectors.Config].
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.URL == "" {
		return nil, errors.New("url is required")
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	trusted, err := c.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	p := &poller{
		cfg: *c, device: target.ID,
		client: rest.New(rest.Options{
			URL: c.URL, TokenFile: c.TokenFile, User: c.User, Version: c.Version, TLS: trusted, Timeout: c.Timeout, MaxBody: c.MaxBody,
		}), settings: s,
		log: s.Log, metrics: newMetrics(s.Metrics), batch: collectors.NewBatch(target.ID, Name), complaints: map[string]string{},
		memory: collectors.NewMemory(s.Cursors, Name, target.ID),
	}
	return &collector{p: p, loop: collectors.Scrape(c.Interval, 0.05, p.poll)}, nil
}

type collector struct {
	p    *poller
	loop collectors.Collector
}

// Run implements [collectors.Collector].
func (c *collector) Run(ctx context.Context, out collectors.Emitter) error {
	defer c.p.client.Close()
	return c.loop.Run(ctx, out)
}

type metrics struct {
	malformed prometheus.Counter
	jobs      prometheus.Gauge
	reads     *prometheus.CounterVec
	unseen    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		malformed: collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_collectors_slurm_malformed_total", Help: "Malformed jobs and nodes.",
		})),
		jobs: collectors.RegisterOrGet(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_collectors_slurm_jobs", Help: "Jobs that the controller knows; an array of which no task has started is one.",
		})),
		reads: collectors.RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_collectors_slurm_reads_total", Help: "Lists that were asked for, by what came: all of it, states alone, or that nothing has changed.",
		}, []string{"list", "result"})),
		unseen: collectors.RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_collectors_slurm_unseen_ends_total",
			Help: "Ends of jobs that the controller did not list any more, by what told them: accounting, or none (they are told as UNKNOWN).",
		}, []string{"by"})),
	}
}

// Results of reads.
const (
	readAll       = "all"
	readStates    = "states"
	readUnchanged = "unchanged"
)

// memory is what was told last, so that only changes are told, also after a
// restart. It holds jobs that run or have ended and are still listed.
type memory struct {
	Jobs  map[int64]*published `json:"jobs"`
	Nodes map[string]string    `json:"nodes"`
	// Windows are the maintenance reservations that were told and are still listed.
	Windows map[string]schemas.Maintenance `json:"windows,omitempty"`
	// At is when jobs were read, at the time of the last change, in Unix seconds of the controller's clock, or no later.
	At int64 `json:"at,omitempty"`
}

type published struct {
	State string `json:"s"`
	At    int64  `json:"t"` // its start
	ended bool
	pass  uint32 // of the reading that listed it last
}

type poller struct {
	cfg        Config
	device     string
	settings   collectors.Settings
	log        *slog.Logger
	metrics    *metrics
	client     *rest.Client
	batch      *collectors.Batch
	mem        memory
	memory     *collectors.Memory
	loaded     bool
	changed    bool
	complaints map[string]string // what was said of objects that are not understood, by object
	unread     string            // why reservations are not read

	jobList, nodeList list
	marks             map[string]mark // of nodes, by name
	away              bool            // nothing was read since the cursor was
	stateless         time.Time       // until when states alone are not asked for, which the daemon does not tell
	stepless          time.Time       // until when accounting is not asked for steps, which it does not tell
	unaccounted       string          // why accounting is not read
}

func (p *poller) poll(ctx context.Context, out collectors.Emitter) error {
	if err := p.load(ctx); err != nil {
		return err
	}
	ctx2, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	now := p.settings.Now().UTC()
	// Nothing is concluded before both are read to their ends: whoever believed half a list would end jobs that run.
	jobs, err := p.readJobs(ctx2, now)
	if err != nil {
		return err
	}
	nodes, err := p.readNodes(ctx2, now)
	if err != nil {
		return err
	}
	p.batch.Discard()
	p.tellJobs(ctx2, jobs, now)
	p.tellNodes(nodes, now)
	p.reservations(ctx2, now)
	var known []byte
	if p.changed {
		switch {
		case jobs.updated > 0:
			p.mem.At = jobs.updated
		case jobs.came: // v0.0.38 does not say when: by our clock, which may be ahead; what is told again has the same ids
			p.mem.At = now.Add(-gap).Unix()
		}
		if known, err = json.Marshal(p.mem); err != nil {
			return fmt.Errorf("store cursor of %s: %w", p.device, err)
		}
	}
	told, err := p.memory.Tell(ctx, known, p.batch, out, now)
	p.loaded = told // what was not taken is to be told again
	p.changed = p.changed && err != nil
	return err
}

func (p *poller) load(ctx context.Context) error {
	if p.loaded {
		return nil
	}
	p.mem, p.jobList, p.nodeList, p.marks = memory{}, list{pass: p.jobList.pass}, list{pass: p.nodeList.pass}, map[string]mark{}
	known, err := p.memory.Load(ctx)
	if err != nil {
		return err
	}
	if len(known) > 0 {
		if err := json.Unmarshal(known, &p.mem); err != nil {
			p.log.Warn("malformed cursor; starting over", "error", err)
			p.mem = memory{}
		}
	}
	if p.mem.Jobs == nil {
		p.mem.Jobs = map[int64]*published{}
	}
	if p.mem.Nodes == nil {
		p.mem.Nodes = map[string]string{}
	}
	if p.mem.Windows == nil {
		p.mem.Windows = map[string]schemas.Maintenance{}
	}
	for id, t := range p.mem.Jobs {
		if t == nil {
			delete(p.mem.Jobs, id)
			continue
		}
		t.ended = ended(t.State)
	}
	p.loaded, p.away = true, p.mem.At > 0
	return nil
}

// maxComplaints bounds the objects that are not understood of which it is remembered what was said.
const maxComplaints = 1024

// complain says what is wrong with an object, once while it is the same.
func (p *poller) complain(object, wrong string) {
	p.metrics.malformed.Inc()
	if p.complaints[object] == wrong {
		return
	}
	if len(p.complaints) >= maxComplaints {
		clear(p.complaints)
	}
	p.complaints[object] = wrong
	p.log.Warn("the controller tells what is not understood", "object", object, "error", wrong)
}

// failure sorts a failed request under the kinds that collectors count.
func failure(err error) error {
	switch {
	case errors.Is(err, rest.ErrAuth):
		return fmt.Errorf("%w: %w", collectors.ErrAuth, err)
	case errors.Is(err, rest.ErrProtocol):
		return fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
	}
	return err
}

func (p *poller) event(resource, typ, code string, at time.Time) schemas.Event {
	return schemas.Event{
		Time: at, Observed: p.settings.Now().UTC(), Source: schemas.SourceScheduler, Resource: resource, Type: typ, Code: code,
		Severity: schemas.SeverityInfo,
	}
}

// Evidence implements [collectors.Witness].
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{Signs: []collectors.Sign{collectors.SignJobs}}
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Scheduler, "tls", &c.TLS
}
