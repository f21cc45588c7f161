// Package dcgmexporter scrapes NVIDIA's dcgm-exporter: a host's GPUs become
// rows of packed columns, and what has changed between scrapes (a GPU that is
// gone, hardware throttling, an uncorrectable error) becomes events.
package dcgmexporter

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the collector's key in the configuration.
const Name = "dcgmexporter"

// AttrGPUs is an attribute of a server: how many GPUs it should show.
const AttrGPUs = "gpus"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewHost, Sources: []string{schemas.SourceDCGM}},
		func() collectors.Config { return Default() },
	)
}

// Config is the collector's configuration. Its targets are the servers with the
// attribute exporter_url.
type Config struct {
	Interval time.Duration `yaml:"interval"`
	Timeout  time.Duration `yaml:"timeout"`
	// MissingAfter is the number of scrapes without a GPU after which it is missing.
	MissingAfter int `yaml:"missing_after"`
	// XIDEvents says where the XID gauge makes events: auto, on the servers whose
	// kernel log nobody reads; on; off. The gauge (DCGM_FI_DEV_XID_ERRORS, field 230)
	// shows the last code since the exporter's engine started, without its text and
	// time: a code that repeats is not seen, nor one that another follows between two
	// scrapes.
	XIDEvents string `yaml:"xid_events"`
	// MaxBody bounds an answer in bytes.
	MaxBody int64     `yaml:"max_body"`
	TLS     trust.TLS `yaml:"tls"`
}

// What xid_events may be; true and false of earlier versions are on and off.
const xidAuto, xidOn, xidOff = "auto", "on", "off"

// xidMode is [Config.XIDEvents] as it is meant; "" is nonsense.
func (c *Config) xidMode() string {
	switch c.XIDEvents {
	case xidAuto, "":
		return xidAuto
	case xidOn, "true":
		return xidOn
	case xidOff, "false":
		return xidOff
	}
	return ""
}

// Default returns the defaults.
func Default() *Config {
	return &Config{Interval: 10 * time.Second, Timeout: 5 * time.Second, MissingAfter: 2, XIDEvents: xidAuto, MaxBody: 16 << 20}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.Interval < 100*time.Millisecond:
		return errors.New("interval must be at least 100ms")
	case c.Timeout <= 0:
		return errors.New("timeout must be positive")
	case c.MissingAfter < 1:
		return errors.New("missing_after must be at least 1")
	case c.xidMode() == "":
		return fmt.Errorf("xid_events: want auto, on or off, got %q", c.XIDEvents)
	case c.MaxBody < 1024:
		return errors.New("max_body must be at least 1024")
	}
	return nil
}

// Targets implements [collectors.Config].
func (c *Config) Targets(resources []schemas.Resource) []schemas.Resource {
	return collectors.With(resources, schemas.KindServer, schemas.AttrExporterURL)
}

// Evidence implements [collectors.Witness].
func (c *Config) Evidence() collectors.Evidence {
	e := collectors.Evidence{Signs: []collectors.Sign{collectors.SignGPU}, Attr: schemas.AttrExporterURL}
	if c.xidMode() != xidOff {
		e.Signs = append(e.Signs, collectors.SignXID)
	}
	if c.xidMode() == xidAuto {
		e.Yields = []collectors.Sign{collectors.SignXID}
		e.Partly = "only the exporter's gauge of the last XID is read, which has no text and does not show one that repeats; with a kernel log (kmsg_path) all are seen"
	}
	return e
}

// New implements [collectors.Config].
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := url.Parse(target.Attrs.Get(schemas.AttrExporterURL))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf(
			"%s of %s is not an HTTP address: %.80q", schemas.AttrExporterURL, target.ID, target.Attrs.Get(schemas.AttrExporterURL),
		)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	expect, _ := strconv.Atoi(target.Attrs.Get(AttrGPUs))
	x := &scraper{
		cfg: *c, device: target.ID, url: u.String(), expect: min(max(expect, 0), 1024), settings: s,
		log: s.Log, metrics: newMetrics(s.Metrics),
	}
	x.watch = gpuwatch.Watch{
		Device: target.ID, Source: schemas.SourceDCGM, After: c.MissingAfter,
		XIDs:   c.xidMode() == xidOn || c.xidMode() == xidAuto && !slices.Contains(s.Taken, collectors.SignXID),
		Unread: "no values in %d scrapes while the exporter answers", Emit: func(ev schemas.Event) { x.table.batch.Event(ev) },
	}
	x.memory = collectors.NewMemory(s.Cursors, Name, target.ID)
	x.table = newTable(func() *collectors.Batch { return collectors.NewBatch(target.ID, Name) })
	return &collector{x: x, loop: collectors.Scrape(c.Interval, 0.05, x.scrape)}, nil
}

// collector closes the idle connection when it ends.
type collector struct {
	x    *scraper
	loop collectors.Collector
}

// Run implements [collectors.Collector].
func (c *collector) Run(ctx context.Context, out collectors.Emitter) error {
	if err := c.x.open(); err != nil {
		return err
	}
	defer c.x.link.close()
	return c.loop.Run(ctx, out)
}

type metrics struct{ malformed, scrapes prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	c := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(
			reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_dcgmexporter_" + name, Help: help}),
		)
	}
	return &metrics{
		malformed: c("malformed_total", "Lines of expositions that could not be parsed."),
		scrapes:   c("scrapes_total", "Expositions that were read."),
	}
}

type scraper struct {
	cfg      Config
	device   string
	url      string
	expect   int
	settings collectors.Settings
	log      *slog.Logger
	metrics  *metrics
	link     *link
	tls      *tls.Config
	body     bytes.Buffer
	table    *table
	watch    gpuwatch.Watch
	memory   *collectors.Memory
	loaded   bool
	garbled  bool
}

func (x *scraper) open() error {
	if x.link != nil {
		return nil
	}
	u, err := url.Parse(x.url)
	if err != nil {
		return err
	}
	if x.tls, err = x.cfg.TLS.Client(); err != nil {
		return err
	}
	x.link = newLink(u, x.tls, x.cfg.Timeout)
	return nil
}

func (x *scraper) scrape(ctx context.Context, out collectors.Emitter) error {
	err := x.load(ctx)
	if err != nil {
		return err
	}
	ctx2, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	if err := x.fetch(ctx2); err != nil {
		return err
	}
	now := x.settings.Now()
	x.table.batch.Discard()
	samples, bad, first := x.table.parse(x.body.Bytes(), now)
	x.metrics.scrapes.Inc()
	if bad > 0 {
		x.metrics.malformed.Add(float64(bad))
		if !x.garbled {
			x.log.Warn("exposition has malformed lines", "url", x.link.url.Redacted(), "lines", bad, "error", first)
		}
	}
	x.garbled = bad > 0
	if samples == 0 {
		x.table.batch.Discard()
		if first != nil {
			return fmt.Errorf("%w: scrape %s: %w", collectors.ErrProtocol, x.link.url.Redacted(), first)
		}
		return fmt.Errorf("%w: scrape %s: no metrics", collectors.ErrProtocol, x.link.url.Redacted())
	}
	x.table.gpus.Fill(x.table.batch, now)
	x.compare(now)
	var known []byte
	if x.watch.Changed() {
		if known, err = x.watch.MarshalText(); err != nil {
			return fmt.Errorf("store cursor of %s: %w", x.device, err)
		}
	}
	told, err := x.memory.Tell(ctx, known, x.table.batch, out, now)
	x.loaded = told // what was not taken is to be told again
	if err == nil {
		x.watch.Kept()
	}
	return err
}

// largeBody is more than a host has to say, in bytes.
const largeBody = 1 << 20

// mostHops is how often an exporter may send us elsewhere, on the same host.
const mostHops = 3

func (x *scraper) fetch(ctx context.Context) error {
	if x.body.Cap() > largeBody { // one huge answer is not kept for ever
		x.body = bytes.Buffer{}
	}
	x.body.Reset()
	status, elsewhere, err := x.link.read(ctx, &x.body, x.cfg.MaxBody)
	for hop := 0; err == nil && elsewhere != nil; hop++ {
		if hop == mostHops || elsewhere.Host != x.link.url.Host || elsewhere.Scheme != "http" && elsewhere.Scheme != "https" {
			return fmt.Errorf("%w: redirect to %s", collectors.ErrProtocol, elsewhere.Redacted())
		}
		l := newLink(elsewhere, x.tls, x.cfg.Timeout)
		status, elsewhere, err = l.read(ctx, &x.body, x.cfg.MaxBody)
		l.close()
	}
	text := strconv.Itoa(status) + " " + http.StatusText(status)
	switch {
	case err != nil:
		return fmt.Errorf("scrape %s: %w", x.device, err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("%w: scrape %s: %s", collectors.ErrAuth, x.link.url.Redacted(), text)
	case status != http.StatusOK:
		return fmt.Errorf("%w: scrape %s: %s", collectors.ErrProtocol, x.link.url.Redacted(), text)
	case int64(x.body.Len()) > x.cfg.MaxBody:
		return fmt.Errorf("%w: scrape %s: answer is larger than %d bytes", collectors.ErrProtocol, x.link.url.Redacted(), x.cfg.MaxBody)
	}
	return nil
}

func (x *scraper) load(ctx context.Context) error {
	if x.loaded {
		return nil
	}
	known, err := x.memory.Load(ctx)
	if err != nil {
		return err
	}
	if err := x.watch.UnmarshalText(known); err != nil {
		x.log.Warn("malformed cursor; starting over", "error", err)
	}
	x.watch.Expect(x.expect)
	x.loaded = true
	return nil
}

var (
	columnReasons = mustColumn("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
	columnDBE     = mustColumn("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
	columnXID     = mustColumn("DCGM_FI_DEV_XID_ERRORS")
)

// compare makes events of what is different from the scrape before.
func (x *scraper) compare(now time.Time) {
	t := x.table
	gauges := slices.ContainsFunc(t.told, func(g told) bool { return g.reads })
	there := map[uint32]bool{}
	for i := range t.told {
		g := t.gpus.At(i)
		x.watch.Name(g.Index, g.UUID, g.PCI)
		there[g.Index] = t.told[i].reads || !g.At.IsZero() && !gauges // an exporter may be asked for counters alone
	}
	for index := range x.watch.Boards() {
		if there[index] {
			x.watch.Answers(now, index)
		} else {
			x.watch.Misses(now, index, gpuwatch.Stale)
		}
	}
	for i := range t.told {
		if g := t.gpus.At(i); !g.At.IsZero() {
			x.watch.Reads(now, g.Index, gpuwatch.Reading{
				Reasons: t.gpus.Value(i, columnReasons), Pending: t.told[i].pending, DBE: t.gpus.Value(i, columnDBE), XID: t.gpus.Value(i, columnXID),
			})
		}
	}
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Exporter, "tls", &c.TLS
}
