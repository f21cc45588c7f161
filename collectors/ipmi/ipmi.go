// Package ipmi reads board controllers over IPMI 2.0: the event log (SEL) from
// where it was left, sensors, and the power state.
package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/bmc/ipmi"
	"auspex/schemas"
)

// Name is the collector's name in configuration, cursors and metrics.
const Name = "ipmi"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewBoard, Sources: []string{schemas.SourceIPMI}},
		func() collectors.Config { return DefaultConfig() },
	)
}

// Config is the collector's configuration.
type Config struct {
	// Interval is the time between looks at the event log and the power state.
	Interval time.Duration `yaml:"interval"`
	// SensorInterval is the time between readings of the sensors; 0 reads none.
	SensorInterval time.Duration `yaml:"sensor_interval"`
	// Jitter moves each poll by up to this share of the interval.
	Jitter float64 `yaml:"jitter"`
	// Timeout bounds one attempt of one command, Retries the further attempts.
	Timeout time.Duration `yaml:"timeout"`
	Retries int           `yaml:"retries"`
	// CipherSuites are tried in order.
	CipherSuites []int `yaml:"cipher_suites"`
	// Backlog is how much of an event log that was never read before is of
	// interest, by the controller's own clock; 0 takes all of it.
	Backlog time.Duration `yaml:"backlog"`
	// ClearSELAt is the share of an event log, from 0 to 1, from which on it is cleared once all of
	// it is on the bus; 0 clears none.
	ClearSELAt float64 `yaml:"clear_sel_at"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() *Config {
	o := ipmi.DefaultOptions()
	return &Config{
		Interval: 5 * time.Second, SensorInterval: 10 * time.Second, Jitter: 0.1, Timeout: o.Timeout, Retries: o.Retries,
		CipherSuites: o.CipherSuites, Backlog: 24 * time.Hour,
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.Interval <= 0:
		return errors.New("interval must be positive")
	case c.SensorInterval < 0 || c.Backlog < 0:
		return errors.New("sensor_interval and backlog must not be negative")
	case c.Jitter < 0 || c.Jitter > 1:
		return errors.New("jitter must be between 0 and 1")
	case c.ClearSELAt < 0 || c.ClearSELAt > 1:
		return errors.New("clear_sel_at must be between 0 and 1")
	case c.Timeout <= 0 || c.Retries < 0:
		return errors.New("timeout must be positive and retries not negative")
	}
	for _, s := range c.CipherSuites {
		if s < 1 || s > 17 {
			return fmt.Errorf("cipher_suites: want 1 to 17, got %d", s)
		}
	}
	return nil
}

// LossType implements [collectors.LossTyper].
func (*Config) LossType() string { return collectors.LossBMC }

// Targets picks what has the attribute ipmi_ip.
func (*Config) Targets(resources []schemas.Resource) []schemas.Resource {
	return collectors.With(resources, "", schemas.AttrIPMIIP)
}

// New makes the collector of one controller. A target that is a bmc speaks for
// the server that it is a part of.
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	conn, err := ipmi.New(ipmi.Options{
		Addr: target.Attrs.Get(schemas.AttrIPMIIP), Timeout: c.Timeout, Retries: c.Retries, CipherSuites: c.CipherSuites,
	})
	if err != nil {
		return nil, err
	}
	device := collectors.DeviceOf(target)
	counter := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(
			s.Metrics, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_ipmi_" + name, Help: help}),
		)
	}
	r := &reader{
		cfg: c, s: s, target: target, device: device, conn: conn, batch: collectors.NewBatch(device, Name), model: new(model),
		badRecords: counter("bad_records_total", "Malformed event log and sensor records."),
		rereads:    counter("sel_rereads_total", "Event logs that were read from their start because none of the last known records was there."),
		clears:     counter("sel_clears_total", "Event logs that were cleared because clear_sel_at says so."),
		skipped:    counter("sel_skipped_total", "Event log records skipped because they are older than the backlog."),
	}
	r.loop = collectors.Scrape(c.Interval, c.Jitter, r.poll)
	return r, nil
}

// reader reads one controller. Its methods run in one goroutine.
type reader struct {
	cfg    *Config
	s      collectors.Settings
	target schemas.Resource
	device string
	conn   *ipmi.Conn
	batch  *collectors.Batch
	loop   collectors.Collector

	badRecords, rereads, skipped, clears prometheus.Counter

	cursor   *cursor // nil before it was read
	kept     cursor  // as it was last stored
	stored   bool    // else it never was
	lastInfo ipmi.SELInfo
	infoAt   time.Time // when that was first seen
	lookedAt time.Time // when the end of the log was last looked at; zero where its state is not known
	records  int       // read in this poll

	unguarded sync.Once // that the log cannot be cleared safely is logged

	skew      time.Duration // the controller's clock minus ours
	skewAt    time.Time
	model     *model
	own       map[int][]collectors.Threshold // of sensors of the model whose thresholds are set otherwise
	drawFrom  time.Time                      // before then it is not asked for over DCMI
	statesAt  time.Time                      // when discrete sensors were read
	maker     uint32                         // of the controller, 0 is not known
	stamp     ipmi.SDRStamp
	haveSDR   bool
	sensorsAt time.Time

	sol   solState
	parts partsState

	thresholdsAt time.Time // when those that can be set were read
}

// Run implements [collectors.Collector].
func (r *reader) Run(ctx context.Context, out collectors.Emitter) error {
	defer func() { _ = r.conn.Close(ctx) }()
	if !r.conn.Connected() && r.s.Secrets != nil && r.target.Attrs.Get(schemas.AttrCredential) != "" {
		user, password, err := r.s.Secrets.Secret(ctx, r.target.Attrs.Get(schemas.AttrCredential))
		if err != nil {
			return fmt.Errorf("credential of %s: %w", r.target.ID, err)
		}
		if err := r.conn.SetCredentials(user, password); err != nil {
			return err
		}
	}
	return r.loop.Run(ctx, out)
}

// poll reads the log, the power state, and at times the sensors. The turn at the
// controller is given back between the two, so that control need not wait long.
func (r *reader) poll(ctx context.Context, out collectors.Emitter) error {
	r.batch.Discard()
	r.records = 0
	if err := r.turn(ctx, func() error { return r.readNames(ctx) }); err != nil {
		return mark(err)
	}
	for more := true; more; {
		err := r.turn(ctx, func() (err error) {
			more, err = r.readSEL(ctx)
			return err
		})
		if err != nil {
			r.forget()
			return mark(err)
		}
		if err := r.flush(ctx, out); err != nil {
			return err
		}
	}
	if err := r.turn(ctx, func() error { return r.clearSEL(ctx) }); err != nil {
		return mark(err)
	}
	now := r.s.Now()
	if err := r.turn(ctx, func() error { return r.readPower(ctx, now) }); err != nil {
		return mark(err)
	}
	if r.cfg.SensorInterval > 0 && now.Sub(r.sensorsAt) >= r.cfg.SensorInterval-r.cfg.Interval/2 {
		if err := r.turn(ctx, func() error { return r.readSensors(ctx, now) }); err != nil {
			return mark(err)
		}
		if err := r.turn(ctx, func() error { return r.readConsole(ctx, now) }); err != nil {
			return mark(err)
		}
		if err := r.turn(ctx, func() error { return r.readParts(ctx, now) }); err != nil {
			return mark(err)
		}
		r.sensorsAt = now
	}
	if err := r.batch.Emit(ctx, out, now); err != nil {
		return err
	}
	return r.tellParts(ctx, out, now)
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
	case errors.Is(err, ipmi.ErrAuth):
		return fmt.Errorf("%w: %w", collectors.ErrAuth, err)
	case errors.Is(err, ipmi.ErrNoAnswer):
		return fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	case errors.Is(err, context.Canceled), errors.As(err, new(net.Error)):
		return err
	}
	return fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
}

func (r *reader) readPower(ctx context.Context, now time.Time) error {
	on, err := r.conn.Power(ctx)
	if err != nil {
		return err
	}
	v := 0.0
	if on {
		v = 1
	}
	r.batch.Sample(r.batch.Series(powerOn, "", ""), now, v)
	return nil
}

// Evidence implements [collectors.Witness].
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{Signs: []collectors.Sign{collectors.SignSEL, collectors.SignSensors}, Attr: schemas.AttrIPMIIP}
}
