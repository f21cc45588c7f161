// Package dcgmexporter scrapes NVIDIA's dcgm-exporter: a host's GPUs become
// rows of packed columns, and what has changed between scrapes (a GPU that is
// gone, hardware throttling, an uncorrectable error) becomes events.
package dcgmexporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/trust"
	"auspex/schemas"
	"auspex/schemas/faults"
)

// Name is the collector's key in the configuration.
const Name = "dcgmexporter"

// AttrGPUs is an attribute of a server: how many GPUs it should show.
const AttrGPUs = "gpus"

func init() {
	collectors.Register(Name, func() collectors.Config { return Default() })
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
	u, err := url.Parse(target.Attrs[schemas.AttrExporterURL])
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf(
			"%s of %s is not an HTTP address: %.80q", schemas.AttrExporterURL, target.ID, target.Attrs[schemas.AttrExporterURL],
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
	expect, _ := strconv.Atoi(target.Attrs[AttrGPUs])
	x := &scraper{
		cfg: *c, device: target.ID, url: u.String(), expect: min(max(expect, 0), 1024), settings: s,
		log: s.Log, metrics: newMetrics(s.Metrics),
		xids: c.xidMode() == xidOn || c.xidMode() == xidAuto && !slices.Contains(s.Taken, collectors.SignXID),
	}
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
	defer c.x.client.CloseIdleConnections()
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

// memory is what must outlive a restart so that what was raised is cleared.
type memory struct {
	GPUs map[uint32]*known `json:"gpus"`
}

type known struct {
	UUID   string            `json:"uuid,omitempty"`
	PCI    string            `json:"pci,omitempty"`
	Raised map[string]string `json:"raised,omitempty"` // condition → its name in event ids
	// DBE and XID are the last values; nil where there was none. The first is what
	// was there before anybody looked, and no event of now.
	DBE     *float64 `json:"dbe,omitempty"`
	XID     *float64 `json:"xid,omitempty"`
	XIDs    int      `json:"xids,omitempty"` // events made, names them
	misses  int
	present bool
}

type scraper struct {
	cfg      Config
	device   string
	url      string
	expect   int
	xids     bool // the XID gauge makes events
	settings collectors.Settings
	log      *slog.Logger
	metrics  *metrics
	client   *http.Client
	body     bytes.Buffer
	table    *table
	mem      memory
	loaded   bool
	changed  bool
	garbled  bool
}

func (x *scraper) open() error {
	if x.client != nil {
		return nil
	}
	tr := &http.Transport{
		MaxIdleConns: 1, MaxIdleConnsPerHost: 1, MaxConnsPerHost: 1, IdleConnTimeout: 2 * x.cfg.Interval, DisableCompression: true,
		TLSHandshakeTimeout: x.cfg.Timeout, ResponseHeaderTimeout: x.cfg.Timeout,
	}
	var err error
	if tr.TLSClientConfig, err = x.cfg.TLS.Client(); err != nil {
		return err
	}
	x.client = &http.Client{Transport: tr, Timeout: x.cfg.Timeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > 3 || r.URL.Host != via[0].URL.Host {
			return fmt.Errorf("%w: redirect to %s", collectors.ErrProtocol, r.URL.Redacted())
		}
		return nil
	}}
	return nil
}

func (x *scraper) scrape(ctx context.Context, out collectors.Emitter) error {
	if err := x.load(ctx); err != nil {
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
			x.log.Warn("exposition has malformed lines", "url", x.url, "lines", bad, "error", first)
		}
	}
	x.garbled = bad > 0
	if samples == 0 {
		x.table.batch.Discard()
		if first != nil {
			return fmt.Errorf("%w: scrape %s: %w", collectors.ErrProtocol, x.url, first)
		}
		return fmt.Errorf("%w: scrape %s: no metrics", collectors.ErrProtocol, x.url)
	}
	x.table.fill(now)
	x.compare(now)
	if err := x.table.batch.Emit(ctx, out, now); err != nil {
		x.loaded = false // what was not taken is to be told again
		return fmt.Errorf("emit scrape of %s: %w", x.device, err)
	}
	return x.save(ctx)
}

// largeBody is more than a host has to say, in bytes.
const largeBody = 1 << 20

func (x *scraper) fetch(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url, nil)
	if err != nil {
		return fmt.Errorf("scrape %s: %w", x.url, err)
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	res, err := x.client.Do(req)
	if err != nil {
		return fmt.Errorf("scrape %s: %w", x.device, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: scrape %s: %s", collectors.ErrAuth, x.url, res.Status)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: scrape %s: %s", collectors.ErrProtocol, x.url, res.Status)
	}
	if x.body.Cap() > largeBody { // one huge answer is not kept for ever
		x.body = bytes.Buffer{}
	}
	x.body.Reset()
	n, err := x.body.ReadFrom(io.LimitReader(res.Body, x.cfg.MaxBody+1))
	if err != nil {
		return fmt.Errorf("scrape %s: %w", x.url, err)
	}
	if n > x.cfg.MaxBody {
		return fmt.Errorf("%w: scrape %s: answer is larger than %d bytes", collectors.ErrProtocol, x.url, x.cfg.MaxBody)
	}
	return nil
}

func (x *scraper) load(ctx context.Context) error {
	if x.loaded {
		return nil
	}
	x.mem.GPUs = map[uint32]*known{}
	if x.settings.Cursors != nil {
		s, err := x.settings.Cursors.Cursor(ctx, Name, x.device)
		if err != nil {
			return fmt.Errorf("read cursor of %s: %w", x.device, err)
		}
		if s != "" {
			if err := json.Unmarshal([]byte(s), &x.mem); err != nil || x.mem.GPUs == nil {
				x.log.Warn("malformed cursor; starting over", "error", err)
				x.mem.GPUs = map[uint32]*known{}
			}
		}
	}
	for i := range x.expect {
		if x.mem.GPUs[uint32(i)] == nil {
			x.mem.GPUs[uint32(i)] = &known{}
		}
	}
	for i, k := range x.mem.GPUs {
		if k == nil {
			x.mem.GPUs[i] = &known{}
		}
	}
	x.loaded = true
	return nil
}

func (x *scraper) save(ctx context.Context) error {
	if !x.changed || x.settings.Cursors == nil {
		x.changed = false
		return nil
	}
	b, err := json.Marshal(x.mem)
	if err != nil {
		return fmt.Errorf("store cursor of %s: %w", x.device, err)
	}
	if err := x.settings.Cursors.SetCursor(ctx, Name, x.device, string(b)); err != nil {
		return fmt.Errorf("store cursor of %s: %w", x.device, err)
	}
	x.changed = false
	return nil
}

// reason is a bit of DCGM_FI_DEV_CLOCKS_EVENT_REASONS (dcgm_fields.h) that says
// that hardware, not policy, holds the clocks down.
type reason struct {
	bit  uint64
	name string
}

var reasons = []reason{
	{0x40, "HW_THERMAL_SLOWDOWN"},
	{0x80, "HW_POWER_BRAKE"},
}

var (
	columnReasons = metricIndex["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"]
	columnDBE     = metricIndex["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"]
	columnXID     = metricIndex["DCGM_FI_DEV_XID_ERRORS"]
)

// compare makes events of what is different from the scrape before.
func (x *scraper) compare(now time.Time) {
	t := x.table
	gauges := slices.ContainsFunc(t.gpus, func(g gpu) bool { return g.reads })
	for i := range t.gpus {
		g := &t.gpus[i]
		k := x.mem.GPUs[g.index]
		if k == nil {
			k = &known{}
			x.mem.GPUs[g.index] = k
			x.changed = true
		}
		if k.UUID != g.uuid || k.PCI != g.pci {
			if k.UUID != "" && g.uuid != "" && k.UUID != g.uuid { // another board is in its place
				k.DBE, k.XID = nil, nil
			}
			k.UUID, k.PCI, x.changed = g.uuid, g.pci, true
		}
		k.present = g.reads || g.seen && !gauges // an exporter may be asked for counters alone
	}
	for index, k := range x.mem.GPUs {
		if k.present {
			k.misses = 0
			x.condition(now, index, k, schemas.EventGPUMissing, "STALE", schemas.SeverityError, false, "GPU answers again", faults.ActionIgnore)
			continue
		}
		if k.misses++; k.misses >= x.cfg.MissingAfter {
			x.condition(now, index, k, schemas.EventGPUMissing, "STALE", schemas.SeverityError, true,
				"no values in "+strconv.Itoa(k.misses)+" scrapes while the exporter answers", faults.ActionResetGPU)
		}
	}
	for i := range t.gpus {
		if g := &t.gpus[i]; g.seen {
			x.gauges(now, i, g, x.mem.GPUs[g.index])
			x.mem.GPUs[g.index].present = false
		}
	}
}

func (x *scraper) gauges(now time.Time, row int, g *gpu, k *known) {
	value := func(column int) float64 {
		if !x.table.used[column] {
			return math.NaN()
		}
		return x.table.values[column][row]
	}
	if v := value(columnReasons); v >= 0 && v < 1<<53 {
		for _, r := range reasons {
			on := uint64(v)&r.bit != 0
			x.condition(now, g.index, k, schemas.EventGPUClocksThrottled, r.name, schemas.SeverityWarning, on,
				fmt.Sprintf("clocks event reasons %#016x: %s", uint64(v), r.name), faults.ActionCheckMechanicals)
		}
	}
	if !math.IsNaN(g.pending) {
		x.condition(
			now, g.index, k, schemas.EventGPURowRemap, "pending", schemas.SeverityWarning, g.pending > 0, "row remapping waits for a reset",
			faults.ActionResetGPU,
		)
	}
	if v := value(columnDBE); !math.IsNaN(v) && (k.DBE == nil || v != *k.DBE) {
		if k.DBE != nil && v > *k.DBE {
			ev := x.event(now, g.index, k, schemas.EventGPUECCUE, "DRAM", schemas.SeverityCritical, faults.ActionResetGPU)
			ev.Message = fmt.Sprintf("volatile uncorrected errors: %g to %g", *k.DBE, v)
			ev.ID = schemas.EventID(x.device, k.UUID, "dbe", strconv.FormatFloat(v, 'g', -1, 64), now.UTC().Format("2006-01-02T15"))
			x.table.batch.Event(ev)
		}
		k.DBE, x.changed = &v, true
	}
	if v := value(columnXID); !math.IsNaN(v) && (k.XID == nil || v != *k.XID) {
		if code := int(v); x.xids && k.XID != nil && code > 0 && code < 100000 {
			k.XIDs++
			e := faults.XID(code)
			ev := x.event(now, g.index, k, schemas.EventGPUXID, strconv.Itoa(code), e.Severity, e.Action)
			ev.Message = fmt.Sprintf("the last XID is now %d, was %g (DCGM_FI_DEV_XID_ERRORS)", code, *k.XID)
			ev.ID = schemas.EventID(x.device, k.UUID, "xid", strconv.Itoa(code), strconv.Itoa(k.XIDs))
			x.table.batch.Event(ev)
		}
		k.XID, x.changed = &v, true
	}
}

func (x *scraper) event(now time.Time, index uint32, k *known, typ, code string, s schemas.Severity, action string) schemas.Event {
	ev := schemas.Event{
		Time: now.UTC(), Observed: now.UTC(), Source: schemas.SourceDCGM, Resource: x.device, Type: typ, Code: code, Severity: s,
	}
	ev.SetAttr("gpu", strconv.FormatUint(uint64(index), 10))
	ev.SetAttr("part", "gpu"+strconv.FormatUint(uint64(index), 10))
	if k.UUID != "" {
		ev.SetAttr("uuid", k.UUID)
	}
	if k.PCI != "" {
		ev.SetAttr("pci", k.PCI)
	}
	ev.SetAttr("action", action)
	return ev
}

// condition tells the edges of something that begins and ends.
func (x *scraper) condition(now time.Time, index uint32, k *known, typ, code string, s schemas.Severity, on bool, message, action string) {
	key := typ + "/" + code
	since, was := k.Raised[key]
	if on == was {
		return
	}
	ev := x.event(now, index, k, typ, code, s, action)
	ev.Message, ev.State = message, schemas.StateRaised
	if on {
		if k.Raised == nil {
			k.Raised = map[string]string{}
		}
		since = strconv.FormatInt(now.UnixNano(), 10)
		k.Raised[key] = since
	} else {
		delete(k.Raised, key)
		ev.Severity, ev.State = schemas.SeverityInfo, schemas.StateCleared
		ev.SetAttr("action", faults.ActionIgnore)
		ev.Message = strings.TrimSuffix(message, "; ended") + "; ended"
		if typ == schemas.EventGPUMissing {
			ev.Message = message
		}
	}
	ev.ID = schemas.EventID(x.device, since, "gpu"+strconv.FormatUint(uint64(index), 10), key, ev.State)
	x.table.batch.Event(ev)
	x.changed = true
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Exporter, "tls", &c.TLS
}
