// Package redfish reads board controllers over Redfish: log services from where
// they were left, sensors, metric reports, power supplies and the power state.
package redfish

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/bmc/redfish"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the collector's name in configuration, cursors and metrics.
const Name = "redfish"

func init() {
	collectors.Register(Name, func() collectors.Config { return DefaultConfig() })
}

// Config is the collector's configuration.
type Config struct {
	// Interval is the time between looks at the logs and the power state.
	Interval time.Duration `yaml:"interval"`
	// SensorInterval is the time between readings of sensors, metric reports and
	// power supplies; 0 reads none.
	SensorInterval time.Duration `yaml:"sensor_interval"`
	// DiscoveryInterval is the time between searches for new resources.
	DiscoveryInterval time.Duration `yaml:"discovery_interval"`
	// Jitter moves each poll by up to this share of the interval.
	Jitter float64 `yaml:"jitter"`
	// Timeout bounds one request.
	Timeout time.Duration `yaml:"timeout"`
	// ExcludeLogs names log services that are not events: the Id of each.
	ExcludeLogs []string `yaml:"exclude_logs"`
	// Backlog is how much of a log that was never read before is of interest, by
	// the service's own clock; 0 takes all of it.
	Backlog time.Duration `yaml:"backlog"`
	TLS     trust.TLS     `yaml:"tls"`

	tlsOnce func() (*tls.Config, error)
}

// DefaultConfig returns the defaults.
func DefaultConfig() *Config {
	c := &Config{
		Interval: 10 * time.Second, SensorInterval: 30 * time.Second, DiscoveryInterval: 10 * time.Minute, Jitter: 0.1, Timeout: 10 * time.Second,
		ExcludeLogs: []string{"PostCodes", "Dump", "DebugTokenService", "FDR", "Journal", "HostLogger", "Crashdump"}, Backlog: 24 * time.Hour,
	}
	// All clients share one configuration, and with it one cache of sessions.
	c.tlsOnce = sync.OnceValues(func() (*tls.Config, error) { return c.TLS.Client() })
	return c
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.Interval <= 0 || c.DiscoveryInterval <= 0 || c.Timeout <= 0:
		return errors.New("interval, discovery_interval and timeout must be positive")
	case c.SensorInterval < 0 || c.Backlog < 0:
		return errors.New("sensor_interval and backlog must not be negative")
	case c.Jitter < 0 || c.Jitter > 1:
		return errors.New("jitter must be between 0 and 1")
	}
	return nil
}

// LossType implements [collectors.LossTyper].
func (*Config) LossType() string { return collectors.LossBMC }

// Targets picks what has the attribute redfish_url.
func (*Config) Targets(resources []schemas.Resource) []schemas.Resource {
	return collectors.With(resources, "", schemas.AttrRedfishURL)
}

// New makes the collector of one service. A target that is a bmc speaks for the
// server that it is a part of.
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	opt := redfish.Options{URL: target.Attrs[schemas.AttrRedfishURL], Timeout: c.Timeout}
	if _, err := redfish.New(opt); err != nil {
		return nil, err
	}
	device := collectors.DeviceOf(target)
	counter := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(s.Metrics, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_redfish_" + name, Help: help}))
	}
	r := &reader{
		cfg: c, s: s, opt: opt, target: target, device: device, batch: collectors.NewBatch(device, Name),
		bad:     counter("bad_resources_total", "Resources, log entries and metric values that could not be understood."),
		rereads: counter("log_rereads_total", "Logs that were read in full because the last known entry was gone."),
		skipped: counter("log_skipped_total", "Log entries left out because they are older than the backlog of interest."),
		stale:   counter("stale_values_total", "Metric report values left out because the service marks them as stale."),
	}
	r.loop = collectors.Scrape(c.Interval, c.Jitter, r.poll)
	return r, nil
}

// reader reads one service. Its methods run in one goroutine.
type reader struct {
	cfg    *Config
	s      collectors.Settings
	opt    redfish.Options
	target schemas.Resource
	device string
	c      *redfish.Client
	batch  *collectors.Batch
	loop   collectors.Collector

	bad, rereads, skipped, stale prometheus.Counter

	found     *inventory // nil before discovery
	foundAt   time.Time
	sensorsAt time.Time
	skew      time.Duration // the service's clock minus ours
	cursors   map[string]position
	loaded    bool
	kept      string          // cursors as they were last stored
	sent      map[string]bool // ids of the events of this poll
	good      int             // answers of this poll that were understood
	failed    error           // the last one that was not
}

// Run implements [collectors.Collector].
func (r *reader) Run(ctx context.Context, out collectors.Emitter) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() {
		r.c.Close(ctx)
		r.c = nil
	}()
	return r.loop.Run(ctx, out)
}

func (r *reader) open(ctx context.Context) error {
	opt := r.opt
	if ref := r.target.Attrs[schemas.AttrCredential]; ref != "" && r.s.Secrets != nil {
		var err error
		if opt.User, opt.Password, err = r.s.Secrets.Secret(ctx, ref); err != nil {
			return fmt.Errorf("credential of %s: %w", r.target.ID, err)
		}
	}
	var err error
	if opt.TLS, err = r.cfg.tlsOnce(); err != nil {
		return err
	}
	r.c, err = redfish.New(opt)
	return err
}

// poll reads logs, power state, and at times sensors and reports. The turn at
// the controller is given back between the steps, so that control need not wait
// long.
func (r *reader) poll(ctx context.Context, out collectors.Emitter) error {
	r.batch.Discard()
	now := r.s.Now()
	if r.found == nil || now.Sub(r.foundAt) >= r.cfg.DiscoveryInterval {
		r.failed = nil
		if err := r.turn(ctx, func() error { return r.discover(ctx) }); err != nil {
			return mark(err)
		}
		r.foundAt = now
		if r.failed != nil { // part of it could not be understood: look again soon
			r.foundAt = now.Add(min(time.Minute, r.cfg.DiscoveryInterval) - r.cfg.DiscoveryInterval)
		}
	}
	r.sent, r.good, r.failed = make(map[string]bool), 0, nil
	for i := range r.found.logs {
		if err := r.readLog(ctx, out, &r.found.logs[i]); err != nil {
			r.loaded = false // what was read and not sent is read again
			return mark(err)
		}
	}
	if err := r.turn(ctx, func() error { return r.readPower(ctx, now) }); err != nil {
		return mark(err)
	}
	if r.cfg.SensorInterval > 0 && now.Sub(r.sensorsAt) >= r.cfg.SensorInterval-r.cfg.Interval/2 {
		understood := r.c.Understood()
		for _, read := range []func(context.Context, time.Time) error{r.readReports, r.readSensors, r.readSupplies} {
			if err := r.turn(ctx, func() error { return read(ctx, now) }); err != nil {
				return mark(err)
			}
		}
		if r.c.Understood() == understood && r.failed != nil {
			return mark(r.failed) // it only makes sense where it says that nothing has changed
		}
		r.sensorsAt = now
	}
	if r.good == 0 && r.failed != nil {
		return mark(r.failed) // nothing that it says makes sense: that is no contact
	}
	return r.batch.Emit(ctx, out, now)
}

func (r *reader) turn(ctx context.Context, f func() error) error {
	release, err := r.s.Enter(ctx, r.device)
	if err != nil {
		return err
	}
	defer release()
	return f()
}

// mark gives the runner the kind of an error.
func mark(err error) error {
	switch {
	case errors.Is(err, redfish.ErrAuth):
		return fmt.Errorf("%w: %w", collectors.ErrAuth, err)
	case errors.Is(err, redfish.ErrProtocol), errors.As(err, new(*redfish.StatusError)):
		return fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
	}
	return err
}

// tolerate counts the failure of one resource, and hands back what concerns the
// whole service: no connection, no permission, no time.
func (r *reader) tolerate(err error) error {
	var st *redfish.StatusError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redfish.ErrProtocol), errors.As(err, &st) && st.Status != 401 && st.Status < 500:
		r.bad.Inc()
		r.failed = err
		return nil
	}
	return err
}

func (r *reader) readPower(ctx context.Context, now time.Time) error {
	if r.found.system == "" {
		return nil
	}
	o, _, err := r.c.GetChanged(ctx, r.found.system)
	if err != nil {
		return r.tolerate(err)
	}
	r.good++
	switch o.String("PowerState") {
	case "On", "PoweringOff":
		r.batch.Sample(r.batch.Series("auspex_server_power_on", "", ""), now, 1)
	case "Off", "PoweringOn":
		r.batch.Sample(r.batch.Series("auspex_server_power_on", "", ""), now, 0)
	}
	return nil
}

// inventory is what discovery has found in a service.
type inventory struct {
	system   string // path of the system that has a power state
	logs     []logService
	chassis  []chassis
	reports  string // path of the collection of metric reports
	supplies []string
	sensors  map[string]series    // by path
	names    map[[3]string]string // metric, part and sensor label to path
}

type chassis struct {
	id      string
	sensors string // path of the collection, "" where there is none
	thermal string // the older resources, where there are no sensors
	power   string
	paths   []string // of the sensors with a reading
}

type logService struct {
	id      string
	chassis string // id of the chassis that keeps the log, or ""
	entries string
	broken  bool // was told that it cannot be read
}

// discover walks the service once. Reading what it found costs little after it.
func (r *reader) discover(ctx context.Context) error {
	root, err := r.c.Root(ctx)
	if err != nil {
		return err
	}
	inv := &inventory{sensors: make(map[string]series), names: make(map[[3]string]string)}
	members := func(link string) ([]redfish.Object, error) {
		if link == "" {
			return nil, nil
		}
		list, bad, err := r.c.Members(ctx, link)
		r.bad.Add(float64(bad))
		return list, r.tolerate(err)
	}
	for _, owner := range []string{"Systems", "Managers", "Chassis"} {
		list, err := members(root.Link(owner))
		if err != nil {
			return err
		}
		for _, o := range list {
			// A baseboard of accelerators is a system too; the one to watch has a reset.
			if owner == "Systems" && o.String("PowerState") != "" && (inv.system == "" || o.Object("Actions").Object("#ComputerSystem.Reset") != nil) {
				inv.system = o.ID()
			}
			if t, ok := o.Time("DateTime"); ok && owner == "Managers" && t.Year() > 1970 {
				r.skew = t.Sub(r.s.Now())
			}
			services, err := members(o.Link("LogServices"))
			if err != nil {
				return err
			}
			for _, l := range services {
				entries := l.Link("Entries")
				if entries == "" || slices.Contains(r.cfg.ExcludeLogs, l.String("Id")) {
					continue
				}
				svc := logService{id: l.String("Id"), entries: entries}
				if owner == "Chassis" {
					svc.chassis = o.String("Id")
				}
				inv.logs = append(inv.logs, svc)
			}
			if owner != "Chassis" {
				continue
			}
			c := chassis{id: o.String("Id"), sensors: o.Link("Sensors")}
			if c.sensors == "" {
				c.thermal, c.power = o.Link("Thermal"), o.Link("Power")
			}
			if c.sensors != "" || c.thermal != "" || c.power != "" {
				inv.chassis = append(inv.chassis, c)
			}
			if sub := o.Link("PowerSubsystem"); sub != "" {
				ps, err := r.c.Get(ctx, sub)
				if err := r.tolerate(err); err != nil {
					return err
				}
				if link := ps.Link("PowerSupplies"); link != "" {
					inv.supplies = append(inv.supplies, link)
				}
			}
		}
	}
	if link := root.Link("TelemetryService"); link != "" {
		ts, err := r.c.Get(ctx, link)
		if err := r.tolerate(err); err != nil {
			return err
		}
		inv.reports = ts.Link("MetricReports")
	}
	r.found = inv
	r.batch = collectors.NewBatch(r.device, Name)
	return nil
}

// Evidence implements [collectors.Witness].
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{Signs: []collectors.Sign{collectors.SignSEL, collectors.SignSensors}, Attr: schemas.AttrRedfishURL}
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.BMC, "tls", &c.TLS
}
