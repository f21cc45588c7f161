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
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
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
	TLS      trust.TLS     `yaml:"tls"`
}

// Default returns the defaults.
func Default() *Config {
	return &Config{Interval: 5 * time.Second, Timeout: 15 * time.Second, MaxBody: 256 << 20}
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
		log: s.Log, metrics: newMetrics(s.Metrics), batch: collectors.NewBatch(target.ID, Name), refused: map[string]string{},
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
}

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{
		malformed: collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_collectors_slurm_malformed_total", Help: "Malformed jobs and nodes.",
		})),
		jobs: collectors.RegisterOrGet(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "auspex_collectors_slurm_jobs", Help: "Jobs that the controller knows.",
		})),
	}
}

// memory is what was told last, so that only changes are told, also after a
// restart. It holds jobs that run or have ended and are still listed.
type memory struct {
	Jobs  map[int64]published `json:"jobs"`
	Nodes map[string]string   `json:"nodes"`
	// Windows are the maintenance reservations that were told and are still listed.
	Windows map[string]schemas.Maintenance `json:"windows,omitempty"`
}

type published struct {
	State string `json:"s"`
	At    int64  `json:"t"`
	ended bool
}

type poller struct {
	cfg      Config
	device   string
	settings collectors.Settings
	log      *slog.Logger
	metrics  *metrics
	client   *rest.Client
	batch    *collectors.Batch
	mem      memory
	memory   *collectors.Memory
	loaded   bool
	changed  bool
	refused  map[string]string // reservations that are no window, and why, by id
	unread   string            // why reservations are not read
}

func (p *poller) poll(ctx context.Context, out collectors.Emitter) error {
	if err := p.load(ctx); err != nil {
		return err
	}
	ctx2, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	var jobs struct {
		Jobs   *[]json.RawMessage `json:"jobs"`
		Errors []rest.Error       `json:"errors"`
	}
	var nodes struct {
		Nodes  *[]json.RawMessage `json:"nodes"`
		Errors []rest.Error       `json:"errors"`
	}
	if err := p.get(ctx2, "jobs", &jobs); err != nil {
		return err
	}
	if err := p.get(ctx2, "nodes", &nodes); err != nil {
		return err
	}
	// Beside an error, with status 200 too, a list may lack what is there: whoever believed it would end jobs that run.
	for _, e := range slices.Concat(jobs.Errors, nodes.Errors) {
		return fmt.Errorf("%w: slurmrestd: %s", collectors.ErrProtocol, e)
	}
	if jobs.Jobs == nil || nodes.Nodes == nil {
		return fmt.Errorf("%w: slurmrestd lists no jobs or no nodes, not even none", collectors.ErrProtocol)
	}
	now := p.settings.Now().UTC()
	p.batch.Discard()
	p.jobs(*jobs.Jobs, now)
	p.nodes(*nodes.Nodes, now)
	p.reservations(ctx2, now)
	var known []byte
	if p.changed {
		var err error
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
	p.mem = memory{}
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
		p.mem.Jobs = map[int64]published{}
	}
	if p.mem.Nodes == nil {
		p.mem.Nodes = map[string]string{}
	}
	if p.mem.Windows == nil {
		p.mem.Windows = map[string]schemas.Maintenance{}
	}
	for id, t := range p.mem.Jobs {
		t.ended = ended(t.State)
		p.mem.Jobs[id] = t
	}
	p.loaded = true
	return nil
}

// get reads a list and sorts its failure under the kinds that collectors count.
func (p *poller) get(ctx context.Context, path string, v any) error {
	err := p.client.Get(ctx, path, v)
	switch {
	case errors.Is(err, rest.ErrAuth):
		return fmt.Errorf("%w: %w", collectors.ErrAuth, err)
	case errors.Is(err, rest.ErrProtocol):
		return fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
	}
	return err
}

// ended reports whether a job in this state will not run any more.
func ended(state string) bool {
	switch state {
	case "COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "REVOKED",
		"UNKNOWN":
		return true
	}
	return false
}

// failed reports whether a job's end is a failure, and not a wish or a limit.
func failed(state string) bool {
	switch state {
	case "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL":
		return true
	}
	return false
}

func (p *poller) jobs(list []json.RawMessage, now time.Time) {
	p.metrics.jobs.Set(float64(len(list)))
	seen := make(map[int64]bool, len(p.mem.Jobs))
	for _, raw := range list {
		var j job
		if err := json.Unmarshal(raw, &j); err != nil || !j.ID.Set || len(j.State) == 0 {
			p.metrics.malformed.Inc()
			continue
		}
		seen[j.ID.N] = true
		p.job(&j, now)
	}
	// A job that ran and is not listed any more has ended unseen; one that had
	// ended is forgotten.
	for id, t := range p.mem.Jobs {
		if seen[id] {
			continue
		}
		delete(p.mem.Jobs, id)
		p.changed = true
		if !t.ended {
			name := workload(id)
			ev := p.event(name, schemas.EventWorkloadState, "UNKNOWN", now)
			ev.Message = name + " is not listed any more"
			ev.SetAttr("workload", name)
			ev.SetAttr("end", now.Format(time.RFC3339))
			ev.ID = schemas.EventID(p.device, strconv.FormatInt(t.At, 10), name, "UNKNOWN")
			p.batch.Event(ev)
		}
	}
}

func workload(id int64) string { return "job-" + strconv.FormatInt(id, 10) }

func (p *poller) event(resource, typ, code string, at time.Time) schemas.Event {
	return schemas.Event{
		Time: at, Observed: p.settings.Now().UTC(), Source: schemas.SourceScheduler, Resource: resource, Type: typ, Code: code,
		Severity: schemas.SeverityInfo,
	}
}

func (p *poller) job(j *job, now time.Time) {
	state := strings.ToUpper(j.State[0])
	if state == "PENDING" || state == "CONFIGURING" && j.Nodes == "" {
		return
	}
	if state == "COMPLETING" { // a flag in newer versions: the end is not yet there
		state = "RUNNING"
	}
	at := j.Start.Time()
	if ended(state) {
		at = j.End.Time()
	}
	if at.IsZero() || at.After(now.Add(time.Minute)) {
		at = now
	}
	was, known := p.mem.Jobs[j.ID.N]
	if known && was.State == state && (ended(state) || was.At == j.Start.N) {
		return
	}
	t := published{State: state, At: j.Start.N, ended: ended(state)}
	p.mem.Jobs[j.ID.N], p.changed = t, true

	name := workload(j.ID.N)
	hosts, err := rest.Hosts(j.Nodes)
	if err != nil {
		p.metrics.malformed.Inc()
		p.log.Warn("malformed node list of a job", "job", name, "error", err)
	}
	ev := p.event(name, schemas.EventWorkloadState, state, at)
	for _, a := range [][2]string{
		{"workload", name},
		{"owner", j.User},
		{"name", j.Name},
		{"partition", j.Partition},
		{"account", j.Account},
		{"nodes", strings.Join(hosts, ",")},
		{"gpus", strings.Join(gpus(hosts, j.Gres), ",")},
	} {
		if a[1] != "" {
			ev.SetAttr(a[0], a[1])
		}
	}
	if s := j.Start.Time(); !s.IsZero() {
		ev.SetAttr("start", s.Format(time.RFC3339))
	}
	if t.ended {
		ev.SetAttr("end", at.Format(time.RFC3339))
	}
	ev.Message = fmt.Sprintf("%s (%s of %s) is %s on %d nodes", name, j.Name, j.User, state, len(hosts))
	epoch := strconv.FormatInt(j.Submit.N, 10)
	ev.ID = schemas.EventID(p.device, epoch, name, state, strconv.FormatInt(at.Unix(), 10))
	p.batch.Event(ev)
	if !failed(state) {
		return
	}
	f := p.event(name, schemas.EventWorkloadFailed, strconv.FormatInt(j.Exit.status(), 10), at)
	f.Severity, f.Attrs = schemas.SeverityError, make(map[string]string, len(ev.Attrs)+2)
	maps.Copy(f.Attrs, ev.Attrs)
	f.SetAttr("state", state)
	if j.Exit.signal > 0 {
		f.SetAttr("signal", strconv.FormatInt(j.Exit.signal, 10))
	}
	f.Message = fmt.Sprintf("%s (%s of %s) %s on %d nodes: exit code %d", name, j.Name, j.User, state, len(hosts), j.Exit.status())
	f.ID = schemas.EventID(p.device, epoch, name, schemas.EventWorkloadFailed, strconv.FormatInt(at.Unix(), 10))
	p.batch.Event(f)
}

func (p *poller) nodes(list []json.RawMessage, now time.Time) {
	seen := make(map[string]bool, len(list))
	for _, raw := range list {
		var n rest.Node
		if err := json.Unmarshal(raw, &n); err != nil || n.Name == "" {
			p.metrics.malformed.Inc()
			continue
		}
		seen[n.Name] = true
		states := n.States()
		all := strings.Join(states, "+")
		if p.mem.Nodes[n.Name] == all {
			continue
		}
		p.mem.Nodes[n.Name], p.changed = all, true
		c, at := code(states), now
		if changed := n.Changed.Time(); (c == "DOWN" || c == "DRAIN") && !changed.IsZero() && now.Sub(changed) < p.cfg.Interval+time.Minute &&
			changed.Before(now) {
			at = changed
		}
		ev := p.event(n.Name, schemas.EventNodeState, c, at)
		ev.Message = n.Name + " is " + all
		ev.SetAttr("state", all)
		if n.Reason != "" && (c == "DOWN" || c == "DRAIN") { // an old reason outlives its state
			ev.SetAttr("reason", n.Reason)
		}
		ev.ID = schemas.EventID(p.device, "node", n.Name, all, strconv.FormatInt(at.UnixNano(), 10))
		p.batch.Event(ev)
	}
	if len(seen) == 0 {
		return
	}
	for name := range p.mem.Nodes {
		if !seen[name] {
			delete(p.mem.Nodes, name)
			p.changed = true
		}
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
