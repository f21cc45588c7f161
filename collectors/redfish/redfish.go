// Package redfish reads board controllers over Redfish: log services from where
// they were left, sensors, metric reports, power supplies and the power state.
package redfish

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the collector's name in configuration, cursors and metrics.
const Name = "redfish"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewBoard, Sources: []string{schemas.SourceRedfish}},
		func() collectors.Config { return DefaultConfig() },
	)
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
	// Reconcile is the time between looks at the logs of a service that tells by itself when there is something new
	// (server-sent events, or what it sends to push); 0 takes no such events.
	Reconcile time.Duration `yaml:"reconcile"`
	// Push is where services that have no server-sent events send theirs; off without listen.
	Push Push `yaml:"push"`
	// Jitter moves each poll by up to this share of the interval.
	Jitter float64 `yaml:"jitter"`
	// Timeout bounds one request.
	Timeout time.Duration `yaml:"timeout"`
	// ExcludeLogs names log services that are not events: the Id of each.
	ExcludeLogs []string `yaml:"exclude_logs"`
	// Backlog is how much of a log that was never read before is of interest, by
	// the service's own clock; 0 takes all of it.
	Backlog time.Duration `yaml:"backlog"`
	// MaxRequests bounds the requests of one round of readings, and of what is learnt between
	// two of them. What a service cannot give within it is read in turn, a round later.
	MaxRequests int `yaml:"max_requests"`
	// MaxUnmapped bounds the series of a device whose meaning nothing says, such as values
	// of metric reports without a metric of ours; what is beyond is counted.
	MaxUnmapped int       `yaml:"max_unmapped"`
	TLS         trust.TLS `yaml:"tls"`

	tlsOnce func() (*tls.Config, error)
}

// DefaultConfig returns the defaults.
func DefaultConfig() *Config {
	c := &Config{
		Interval: 10 * time.Second, SensorInterval: 30 * time.Second, DiscoveryInterval: 10 * time.Minute, Reconcile: 5 * time.Minute, Jitter: 0.1, Timeout: 10 * time.Second,
		ExcludeLogs: []string{"PostCodes", "Dump", "DebugTokenService", "FDR", "Journal", "HostLogger", "Crashdump"}, Backlog: 24 * time.Hour,
		MaxRequests: 60, MaxUnmapped: 200,
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
	case c.SensorInterval < 0 || c.Backlog < 0 || c.Reconcile < 0:
		return errors.New("sensor_interval, backlog and reconcile must not be negative")
	case c.MaxRequests < 1 || c.MaxUnmapped < 0:
		return errors.New("max_requests must be positive, max_unmapped must not be negative")
	case c.Jitter < 0 || c.Jitter > 1:
		return errors.New("jitter must be between 0 and 1")
	}
	return c.Push.Validate()
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
	opt := redfish.Options{URL: target.Attrs.Get(schemas.AttrRedfishURL), Timeout: c.Timeout}
	if _, err := redfish.New(opt); err != nil {
		return nil, err
	}
	device := collectors.DeviceOf(target)
	counter := func(name, help string) prometheus.Counter {
		opts := prometheus.CounterOpts{Name: "auspex_collectors_redfish_" + name, Help: help}
		return collectors.RegisterOrGet(s.Metrics, prometheus.NewCounter(opts))
	}
	r := &reader{
		cfg: c, s: s, opt: opt, target: target, device: device, batch: collectors.NewBatch(device, Name),
		bad:     counter("bad_resources_total", "Malformed resources, log entries and metric values."),
		rereads: counter("log_rereads_total", "Logs that were read in full because the last known entry was gone."),
		skipped: counter("log_skipped_total", "Log entries skipped because they are older than the backlog."),
		stale: counter("stale_values_total",
			"Metric report values skipped because the service marks them as stale or they are older than the backlog."),
		unnamed: counter("unnamed_values_total", "Metric report values dropped because several share a name without a property."),
		unmapped: counter("unmapped_values_total",
			"Unmapped values dropped because max_unmapped series of that kind exist."),
		conflicts: counter("unit_conflicts_total", "Sensors whose unit contradicts their reading type, where the unit counts, or their value in a report, where the sensor does."),
		requests:  counter("requests_total", "Requests to services."),
		deferred:  counter("deferred_reads_total", "Reads put off to a later round because of max_requests."),
		badNow: collectors.RegisterOrGet(s.Metrics, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "auspex_collectors_redfish_bad_resources", Help: "Resources that cannot be read now, the first of each device by name: 1.",
		}, []string{"device", "resource"})),
		failing: make(map[string]*failure), reported: make(map[string]bool), leaks: make(map[string]string), ear: newEar(s.Metrics),
	}
	r.loop = collectors.ScrapeOnBell(c.Interval, c.Jitter, r.ear.bell, r.poll)
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

	bad, rereads, skipped, stale, unnamed, unmapped, conflicts, requests, deferred prometheus.Counter
	badNow                                                                         *prometheus.GaugeVec

	found     *inventory // nil before discovery
	foundAt   time.Time
	logsAt    time.Time
	sensorsAt time.Time

	consolesAt time.Time
	partsAt    time.Time
	skew       time.Duration // the service's clock minus ours
	on         string        // the power state
	counted    int64         // requests that are in the counter
	cursors    map[string]position
	loaded     bool
	kept       string              // cursors as they were last stored
	sent       map[string]bool     // ids of the events of this poll
	good       int                 // answers of this poll that were understood
	failed     error               // the last one that was not
	hung       bool                // one of them did not come in time
	failing    map[string]*failure // by path
	reported   map[string]bool     // what was said once
	leaks      map[string]string   // states of detectors that have not been sent yet
	ear        *ear
	hook       *webhook // nil where services cannot send to us
	sub        subscription
}

// Run implements [collectors.Collector].
func (r *reader) Run(ctx context.Context, out collectors.Emitter) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() {
		r.ear.close()
		if ctx.Err() != nil { // it is read no more; who fails is read again
			r.unsubscribe(ctx)
		}
		r.c.Close(ctx)
		r.c = nil
	}()
	return r.loop.Run(ctx, out)
}

func (r *reader) open(ctx context.Context) error {
	opt := r.opt
	if ref := r.target.Attrs.Get(schemas.AttrCredential); ref != "" && r.s.Secrets != nil {
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
	r.counted = 0
	return err
}

// poll reads logs, power state, and at times sensors and reports. The turn at
// the controller is given back between the steps, so that control need not wait
// long.
func (r *reader) poll(ctx context.Context, out collectors.Emitter) error {
	r.batch.Discard()
	clear(r.leaks)
	defer func() {
		r.c.Release()
		r.requests.Add(float64(r.c.Requests() - r.counted))
		r.counted = r.c.Requests()
	}()
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
	r.sent, r.good, r.failed, r.hung = make(map[string]bool), 0, nil, false
	if r.logsDue(now) {
		for _, l := range r.found.logs {
			if err := r.readLog(ctx, out, l); err != nil {
				r.loaded = false // what was read and not sent is read again
				return mark(err)
			}
		}
		r.logsAt = now
		r.unwritten(now)
	}
	if err := r.turn(ctx, func() error { return r.listen(ctx, now) }); err != nil {
		return mark(err)
	}
	r.takeReports(now)
	if err := r.turn(ctx, func() error { return r.readPower(ctx, now) }); err != nil {
		return mark(err)
	}
	r.tellConsoles(now)
	r.tellParts(now)
	switch {
	case r.cfg.SensorInterval == 0:
	case now.Sub(r.sensorsAt) >= r.cfg.SensorInterval-r.cfg.Interval/2:
		understood := r.c.Understood()
		if err := r.round(ctx, now); err != nil {
			return mark(err)
		}
		if r.c.Understood() == understood && r.failed != nil {
			return mark(r.failed) // it only makes sense where it says that nothing has changed
		}
		r.sensorsAt = now
	default: // a service without $expand has hundreds of sensors to learn: not in the rounds alone
		if err := r.learn(ctx, now, r.c.Requests()); err != nil {
			return mark(err)
		}
	}
	if r.good == 0 && r.failed != nil {
		return mark(r.failed) // nothing that it says makes sense: that is no contact
	}
	if err := r.batch.Emit(ctx, out, now); err != nil {
		return err
	}
	return r.keepLeaks(ctx)
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
	switch kind := bmc.KindOf(err); {
	case errors.Is(err, redfish.ErrAuth):
		return fmt.Errorf("%w: %w", collectors.ErrAuth, err)
	case kind == bmc.Garbled || kind == bmc.Missing:
		return fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
	}
	return err
}

// failure is a resource that cannot be read: it is asked for again ever more seldom.
type failure struct {
	until time.Time
	wait  time.Duration
}

// How long a resource that could not be read is left alone: twice as long each time. What
// is not there at all will hardly come before the next discovery.
const (
	firstWait  = time.Minute
	absentWait = 10 * time.Minute
	longWait   = 24 * time.Hour
	maxNamed   = 16 // resources of a device that are named in a metric
)

// waits reports whether a resource is one to be left alone for now.
func (r *reader) waits(path string, now time.Time) bool {
	f := r.failing[path]
	return f != nil && now.Before(f.until)
}

// heal notes that a resource can be read.
func (r *reader) heal(path string) {
	if r.failing[path] != nil {
		delete(r.failing, path)
		r.badNow.DeleteLabelValues(r.device, path)
	}
}

// tolerate counts the failure of one resource and names it, and hands back what
// concerns the whole service: no connection, no permission, no time.
func (r *reader) tolerate(path string, err error) error {
	if err == nil {
		return nil
	}
	kind := bmc.KindOf(err)
	switch {
	case kind == bmc.Garbled, kind == bmc.Missing:
	case errors.Is(err, context.DeadlineExceeded) && r.good > 0 && !r.hung:
		r.hung = true // one resource that never comes is no loss of contact, a second one is
	default:
		return err
	}
	r.failed = err
	f := r.failing[path]
	if f == nil {
		f = &failure{} // what makes no sense once may at the next poll
		if kind == bmc.Missing {
			f.wait = absentWait
		}
		if r.failing[path] = f; len(r.failing) <= maxNamed {
			r.badNow.WithLabelValues(r.device, path).Set(1)
			r.s.Log.Warn("cannot read resource; trying again", "resource", path, "in", f.wait, "error", err)
		}
	}
	r.bad.Inc()
	f.until, f.wait = r.s.Now().Add(f.wait), min(max(2*f.wait, firstWait), longWait)
	return nil
}

// get reads a resource, or nil where it cannot be read or is to be left alone.
func (r *reader) get(ctx context.Context, path string) (redfish.Object, error) {
	if path == "" || r.waits(path, r.s.Now()) {
		return nil, nil
	}
	o, err := r.c.Get(ctx, path)
	if err != nil {
		return nil, r.tolerate(path, err)
	}
	r.heal(path)
	r.good++
	r.commas(path, o)
	return o, nil
}

// list reads a collection in the order of its members' paths; some may be links only.
func (r *reader) list(ctx context.Context, path string) ([]redfish.Object, error) {
	if path == "" || r.waits(path, r.s.Now()) {
		return nil, nil
	}
	list, err := r.c.List(ctx, path)
	if err != nil {
		return nil, r.tolerate(path, err)
	}
	r.heal(path)
	r.good++
	slices.SortStableFunc(list, func(a, b redfish.Object) int { return natural(a.ID(), b.ID()) })
	for _, o := range list {
		r.commas(path, o)
	}
	return list, nil
}

// commas counts the numbers of a resource that are written with a decimal comma, as a
// service does that formats them in its own language. JSON knows no such number
// (RFC 8259, section 6), and whether 1,234 is one or a thousand nobody can say: none is read.
func (r *reader) commas(path string, o redfish.Object) {
	for key, v := range o {
		switch v := v.(type) {
		case string:
			if comma(v) && measured(key) {
				r.bad.Inc()
				r.reportComma(path, key, v)
			}
		case map[string]any:
			r.commas(path, v)
		case []any:
			for _, x := range v {
				if o, ok := x.(map[string]any); ok {
					r.commas(path, o)
				}
			}
		}
	}
}

func (r *reader) reportComma(path, property, value string) {
	if !r.reported["comma"] { // the others are counted
		r.reported["comma"] = true
		r.s.Log.Warn("numbers with a decimal comma are not read", "resource", path, "property", property, "value", value)
	}
}

// comma reports whether a text is digits with one comma in between.
func comma(s string) bool {
	whole, part, ok := strings.Cut(strings.TrimSpace(s), ",")
	return ok && digits(strings.TrimLeft(whole, "+-")) && digits(part)
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// measured reports whether a property is a number of a sensor by its name; a part
// number may have a comma.
func measured(property string) bool {
	return slices.ContainsFunc([]string{
		"Reading", "Threshold", "Watts", "Volt", "Amps", "Celsius", "RPM", "Percent", "Joules", "kWh", "Hz", "Seconds",
	}, func(unit string) bool { return strings.Contains(property, unit) })
}

// natural compares paths so that …/9 comes before …/10.
func natural(a, b string) int {
	if len(a) != len(b) && strings.TrimRight(a, "0123456789") == strings.TrimRight(b, "0123456789") {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// members reads a collection with its members in full.
func (r *reader) members(ctx context.Context, path string) (out []redfish.Object, err error) {
	list, err := r.list(ctx, path)
	for _, m := range list {
		if m.IsLink() {
			if m, err = r.get(ctx, m.ID()); err != nil {
				return nil, err
			}
		}
		if m != nil {
			out = append(out, m)
		}
	}
	return out, err
}

func (r *reader) readPower(ctx context.Context, now time.Time) error {
	if r.found.system == "" {
		return nil
	}
	o, err := r.c.GetChanged(ctx, r.found.system)
	if err != nil {
		return r.tolerate(r.found.system, err)
	}
	r.heal(r.found.system)
	r.good++
	if o != nil {
		r.on = o.String("PowerState")
	}
	switch r.on {
	case "On", "PoweringOff":
		r.batch.Sample(r.batch.Series("auspex_server_power_on", "", ""), now, 1)
	case "Off", "PoweringOn":
		r.batch.Sample(r.batch.Series("auspex_server_power_on", "", ""), now, 0)
	}
	return nil
}

// inventory is what discovery has found in a service.
type inventory struct {
	system  string         // path of the system that has a power state
	service string         // path of its event service
	serves  redfish.Object // what that says of itself, nil where it is not known
	events  string         // path of what it sends by itself, "" where there is nothing
	consoles
	logs    []*logService
	sources map[string]*source        // of readings, by path
	metrics map[string]redfish.Object // the definitions of the metrics of reports, by id
	parts   map[string][]part         // by the path of the source that has them
	planned []*source
	waiting int // resources that could not be read when that was planned
	catalog
}

// discover walks the service. Reading what it found costs little after it.
func (r *reader) discover(ctx context.Context) error {
	root, err := r.c.Root(ctx)
	if err != nil {
		return err
	}
	old := r.found
	if old == nil {
		old = &inventory{sources: make(map[string]*source), metrics: make(map[string]redfish.Object), parts: make(map[string][]part), catalog: newCatalog()}
	}
	inv := &inventory{consoles: make(consoles), sources: make(map[string]*source), metrics: old.metrics, parts: old.parts, catalog: old.catalog}
	r.found = inv
	add := func(path string, rank rank, ch string, read func(*reader, context.Context, *source, time.Time) error) {
		if path == "" || inv.sources[path] != nil {
			return
		}
		src := old.sources[path]
		if src == nil {
			src = &source{path: path, rank: rank, chassis: ch, read: read, gives: make(map[*series]int)}
		}
		src.keep(inv)
	}
	seen := make(map[string]bool) // logs, by the path of their entries
	systems := make(map[string]bool)
	var host redfish.Object
	for _, owner := range []string{"Systems", "Managers", "Chassis"} {
		if err := r.c.Gather(ctx, root.Link(owner), levels); err != nil {
			return err
		}
		list, err := r.members(ctx, root.Link(owner))
		if err != nil {
			return err
		}
		if owner == "Managers" {
			inv.consoles.add(host)
		}
		for _, o := range list {
			if owner == "Managers" && manages(o, inv.system) {
				inv.consoles.add(o)
			}
			// A baseboard of accelerators is a system too; the one to watch has a reset.
			reset := o.Object("Actions").Object("#ComputerSystem.Reset") != nil
			if owner == "Systems" && o.String("PowerState") != "" && (inv.system == "" || reset) {
				inv.system, host = o.ID(), o
			}
			if t, ok := o.Time("DateTime"); ok && owner == "Managers" && t.Year() > 1970 {
				r.skew = t.Sub(r.s.Now())
			}
			services := o.Link("LogServices")
			var logs []redfish.Object
			if services != "" && !seen[services] {
				seen[services] = true
				if logs, err = r.members(ctx, services); err != nil {
					return err
				}
			}
			for _, l := range logs {
				entries := l.Link("Entries")
				if entries == "" || seen[entries] || slices.Contains(r.cfg.ExcludeLogs, l.String("Id")) {
					continue
				}
				seen[entries] = true
				i := slices.IndexFunc(old.logs, func(x *logService) bool { return x.entries == entries })
				svc := &logService{id: l.String("Id"), entries: entries}
				if i >= 0 {
					svc = old.logs[i]
				}
				if owner == "Chassis" {
					svc.chassis = o.String("Id")
				}
				inv.logs = append(inv.logs, svc)
			}
			id := o.String("Id")
			switch owner {
			case "Systems":
				systems[o.ID()] = true
				add(o.Link("Processors"), rankMetrics, "", (*reader).readComponents)
				add(o.Link("Memory"), rankMetrics, "", (*reader).readComponents)
				add(o.Link("Storage"), rankParts, "", (*reader).readStorage)
				if p, ok := partFrom(o, "", ""); ok {
					inv.parts[o.ID()] = []part{p}
				}
			case "Chassis":
				add(o.Link("Sensors"), rankSensors, id, (*reader).readSensors)
				add(o.Link("Thermal"), rankThermal, id, (*reader).readThermal)
				add(o.Link("Power"), rankPower, id, (*reader).readOlderPower)
				add(o.Link("ThermalSubsystem"), rankWalk, id, (*reader).readSubsystem)
				add(o.Link("PowerSubsystem"), rankWalk, id, (*reader).readSubsystem)
				add(o.Link("EnvironmentMetrics"), rankExcerpts, id, (*reader).readExcerpts)
				add(o.Link("NetworkAdapters"), rankParts, id, (*reader).readAdapters)
			}
		}
	}
	if inv.service = root.Link("EventService"); inv.service == old.service {
		inv.serves, inv.events = old.serves, old.events
	}
	add(root.Link("TelemetryService"), rankWalk, "", (*reader).readTelemetry)
	add(root.Link("PowerEquipment"), rankWalk, "", (*reader).readEquipment)
	add(root.Link("ThermalEquipment"), rankWalk, "", (*reader).readEquipment)
	add(root.Link("UpdateService"), rankParts, "", (*reader).readUpdates)
	if root.Gathers(levels) && root.Link("Chassis") != "" {
		add(root.Link("Chassis"), rankAllChassis, "", (*reader).readAllChassis)
	}
	inv.dirty = true
	for path := range inv.parts { // those of resources that are gone
		if inv.sources[path] == nil && !systems[path] {
			delete(inv.parts, path)
		}
	}
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
