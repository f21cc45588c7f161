// Package gnmi subscribes to a switch's telemetry over gNMI: counters, optics and
// platform values are sampled, states come when they change and become events.
// Paths are OpenConfig's and are matched by position.
package gnmi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"auspex/collectors"
	"auspex/internal/gnmiclient"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the collector's key in the configuration.
const Name = "gnmi"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewNetwork, Sources: []string{schemas.SourceGNMI}},
		func() collectors.Config { return Default() },
	)
}

// TLS says whom to trust. Disabled speaks plain text, for targets on loopback.
type TLS struct {
	trust.TLS `yaml:",inline"`
	Disabled  bool `yaml:"disabled"`
}

// Config is the collector's configuration. Its targets are the switches with the
// attribute gnmi_address.
type Config struct {
	// SampleInterval is the period of counters and sensors.
	SampleInterval time.Duration `yaml:"sample_interval"`
	// Timeout bounds dialling and the first answer.
	Timeout time.Duration `yaml:"timeout"`
	// FlapTransitions of a port within FlapWindow make it flapping.
	FlapTransitions int           `yaml:"flap_transitions"`
	FlapWindow      time.Duration `yaml:"flap_window"`
	// MaxMessage bounds a message in bytes.
	MaxMessage int `yaml:"max_message"`
	TLS        TLS `yaml:"tls"`
}

// Default returns the defaults.
func Default() *Config {
	return &Config{
		SampleInterval: 10 * time.Second, Timeout: 10 * time.Second, FlapTransitions: 4, FlapWindow: 5 * time.Minute, MaxMessage: 16 << 20,
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.SampleInterval < 100*time.Millisecond:
		return errors.New("sample_interval must be at least 100ms")
	case c.Timeout <= 0:
		return errors.New("timeout must be positive")
	case c.FlapTransitions < 2 || c.FlapTransitions > 1000:
		return errors.New("flap_transitions must be between 2 and 1000")
	case c.FlapWindow <= 0:
		return errors.New("flap_window must be positive")
	case c.MaxMessage < 4096:
		return errors.New("max_message must be at least 4096")
	}
	return nil
}

// Targets implements [collectors.Config].
func (c *Config) Targets(resources []schemas.Resource) []schemas.Resource {
	return collectors.With(resources, schemas.KindSwitch, schemas.AttrGNMIAddress)
}

// New implements [collectors.Config].
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	addr := target.Attrs.Get(schemas.AttrGNMIAddress)
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("%s of %s: %w", schemas.AttrGNMIAddress, target.ID, err)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	sub := &subscriber{
		cfg: *c, device: target.ID, addr: addr, credential: target.Attrs.Get(schemas.AttrCredential), settings: s,
		log: s.Log, metrics: newMetrics(s.Metrics), optional: true, guess: true,
	}
	return sub, nil
}

type metrics struct{ updates, unmatched, malformed, resyncs, untold prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	c := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_gnmi_" + name, Help: help}))
	}
	return &metrics{
		updates:   c("updates_total", "Updates in the notifications of targets."),
		unmatched: c("unmatched_total", "Updates of paths that the collector does not use."),
		malformed: c("malformed_total", "Updates whose value could not be read."),
		untold:    c("neighbors_untold_total", "Times that neighbours of ports could not be held against the inventory; it is tried again."),
		resyncs:   c("resyncs_total", "Streams that began after another had ended; states in between were missed."),
	}
}

type subscriber struct {
	cfg        Config
	device     string
	addr       string
	credential string
	settings   collectors.Settings
	log        *slog.Logger
	metrics    *metrics
	optional   bool // ask for the paths that some targets do not know
	guess      bool // ask for neighbours where the target does not say which models it has
	guessed    bool // that was asked
	named      bool // say the target's name: it may be one of many behind an address
	garbled    bool // a value that is no number was told
	runs       int
	state      *state
}

// Run implements [collectors.Collector]: one stream, until it breaks.
func (s *subscriber) Run(ctx context.Context, out collectors.Emitter) error {
	if s.state == nil {
		st, err := newState(ctx, s)
		if err != nil {
			return err
		}
		s.state = st
	}
	if s.runs++; s.runs > 1 {
		s.metrics.resyncs.Inc()
	}
	err := s.stream(ctx, out)
	if ctx.Err() != nil {
		return nil
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		switch {
		case !s.named && strings.Contains(status.Convert(err).Message(), "target"),
			!s.named && strings.Contains(status.Convert(err).Message(), "prefix"):
			s.log.Info("whoever answers wants the target's name; telling that of the device", "error", err)
			s.named = true
		case s.guessed:
			s.log.Info("target rejects paths of models that it does not name; skipping them", "error", err)
			s.guess = false
		case s.optional:
			s.log.Info("target rejects optional paths; skipping them", "error", err)
			s.optional = false
		}
	}
	return collectors.StatusError("gNMI of "+s.device, err)
}

func (s *subscriber) dial() (*grpc.ClientConn, error) {
	var tc *tls.Config
	if !s.cfg.TLS.Disabled {
		var err error
		if tc, err = s.cfg.TLS.Client(); err != nil {
			return nil, err
		}
	}
	return gnmiclient.Dial(s.addr, tc, s.cfg.MaxMessage, s.cfg.Timeout, grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20))
}

func (s *subscriber) stream(ctx context.Context, out collectors.Emitter) error {
	ctx, err := gnmiclient.As(ctx, s.credential, s.settings.Secrets)
	if err != nil {
		return err
	}
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := gpb.NewGNMIClient(conn)

	first, done := context.WithTimeout(ctx, s.cfg.Timeout)
	caps, err := client.Capabilities(first, &gpb.CapabilityRequest{})
	done()
	if err != nil && status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("capabilities: %w", err)
	}
	messages, end, err := gnmiclient.Stream(ctx, client, s.request(caps), 0) // a slow bus slows the target down
	if err != nil {
		return err
	}
	defer end()

	// The target has Timeout for its first message, and then three intervals between
	// messages. One that does not say when it has sent everything counts as having
	// done so after Timeout.
	quiet := time.NewTimer(s.cfg.Timeout)
	defer quiet.Stop()
	unsynced := time.NewTimer(s.cfg.Timeout)
	defer unsynced.Stop()
	st := s.state
	flush := time.NewTicker(max(min(s.cfg.SampleInterval/4, time.Second), 25*time.Millisecond))
	defer flush.Stop()
	st.begin()
	send := func() error {
		began := time.Now()
		st.cabling.tell(ctx, began)
		err := st.flush(ctx, out)
		if time.Since(began) > time.Second { // we did not listen meanwhile
			quiet.Reset(max(3*s.cfg.SampleInterval, s.cfg.Timeout))
		}
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-quiet.C:
			return fmt.Errorf("%w: no message in time", context.DeadlineExceeded)
		case <-unsynced.C:
			if !st.sync {
				s.log.Warn("target sends updates but no sync_response")
				st.synced()
			}
		case <-flush.C:
			st.expire(s.settings.Now())
			if err := send(); err != nil {
				return err
			}
		case m := <-messages:
			if m.Err != nil {
				return m.Err
			}
			quiet.Reset(max(3*s.cfg.SampleInterval, s.cfg.Timeout))
			switch x := m.GetResponse().(type) {
			case *gpb.SubscribeResponse_Update:
				st.notification(x.Update)
			case *gpb.SubscribeResponse_SyncResponse:
				st.synced()
				collectors.Contact(out)
			}
			if st.urgent() {
				if err := send(); err != nil {
					return err
				}
			}
		}
	}
}

// request asks for states on change and for numbers each interval.
func (s *subscriber) request(caps *gpb.CapabilityResponse) *gpb.SubscribeRequest {
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_STREAM, Encoding: encoding(caps)}
	if s.named {
		list.Prefix = &gpb.Path{Target: s.device}
	}
	s.guessed = s.optional && s.guess && s.settings.Cabling != nil && len(caps.GetSupportedModels()) == 0
	add := func(mode gpb.SubscriptionMode, paths ...string) {
		for _, p := range paths {
			sub := &gpb.Subscription{Path: parsePath(p), Mode: mode}
			if mode == gpb.SubscriptionMode_SAMPLE {
				sub.SampleInterval = uint64(s.cfg.SampleInterval)
			}
			list.Subscription = append(list.Subscription, sub)
		}
	}
	add(gpb.SubscriptionMode_ON_CHANGE, "interfaces/interface[name=*]/state/oper-status", "interfaces/interface[name=*]/state/admin-status",
		"components/component[name=*]/state/oper-status")
	add(gpb.SubscriptionMode_SAMPLE, "interfaces/interface[name=*]/state/counters")
	if s.optional {
		add(
			gpb.SubscriptionMode_ON_CHANGE, "components/component[name=*]/state/type", "interfaces/interface[name=*]/state/transceiver",
			"system/state/boot-time",
		)
		add(gpb.SubscriptionMode_SAMPLE, "components/component[name=*]/state/temperature", "components/component[name=*]/transceiver",
			"components/component[name=*]/fan/state", "components/component[name=*]/power-supply/state")
		if s.guessed || s.settings.Cabling != nil && supports(caps, "openconfig-lldp") {
			// Its ages change all the time: the target knows which leaves can be told on change.
			add(gpb.SubscriptionMode_TARGET_DEFINED, "lldp/interfaces/interface[name=*]/neighbors/neighbor[id=*]/state")
		}
		if supports(caps, "openconfig-network-instance") {
			if supports(caps, "openconfig-if-ip") { // names the port of a session
				add(
					gpb.SubscriptionMode_ON_CHANGE,
					"interfaces/interface[name=*]/subinterfaces/subinterface[index=*]/ipv4/addresses/address[ip=*]/state/prefix-length",
				)
			}
			add(
				gpb.SubscriptionMode_ON_CHANGE,
				"network-instances/network-instance[name=*]/protocols/protocol[name=*]/bgp/neighbors/neighbor[neighbor-address=*]/state/session-state",
			)
		}
	}
	return &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}
}

func supports(caps *gpb.CapabilityResponse, model string) bool {
	return slices.ContainsFunc(caps.GetSupportedModels(), func(m *gpb.ModelData) bool { return m.GetName() == model })
}

func encoding(caps *gpb.CapabilityResponse) gpb.Encoding {
	for _, e := range []gpb.Encoding{gpb.Encoding_PROTO, gpb.Encoding_JSON_IETF, gpb.Encoding_JSON} {
		if slices.Contains(caps.GetSupportedEncodings(), e) {
			return e
		}
	}
	return gpb.Encoding_PROTO
}

// parsePath reads "a/b[k=v]/c"; it is for the constant paths above.
func parsePath(s string) *gpb.Path {
	p := &gpb.Path{}
	for part := range strings.SplitSeq(s, "/") {
		name, key, ok := strings.Cut(strings.TrimSuffix(part, "]"), "[")
		e := &gpb.PathElem{Name: name}
		if ok {
			k, v, _ := strings.Cut(key, "=")
			e.Key = map[string]string{k: v}
		}
		p.Elem = append(p.Elem, e)
	}
	return p
}

// Evidence implements [collectors.Witness].
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{Signs: []collectors.Sign{collectors.SignNetwork}, Attr: schemas.AttrGNMIAddress}
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Switch, "tls", &c.TLS.TLS
}
