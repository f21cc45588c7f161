// Package gnmi subscribes to a switch's telemetry over gNMI: counters, optics and
// platform values are sampled, states come when they change and become events.
// Paths are OpenConfig's and are matched by position.
package gnmi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/collectors"
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
	addr := target.Attrs[schemas.AttrGNMIAddress]
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
		cfg: *c, device: target.ID, addr: addr, credential: target.Attrs[schemas.AttrCredential], settings: s,
		log: s.Log, metrics: newMetrics(s.Metrics), optional: true,
	}
	return sub, nil
}

type metrics struct{ updates, unmatched, malformed, resyncs prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	c := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_gnmi_" + name, Help: help}))
	}
	return &metrics{
		updates:   c("updates_total", "Updates in the notifications of targets."),
		unmatched: c("unmatched_total", "Updates of paths that the collector does not use."),
		malformed: c("malformed_total", "Updates whose value could not be read."),
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
	case codes.Unauthenticated, codes.PermissionDenied:
		return fmt.Errorf("%w: gNMI of %s: %w", collectors.ErrAuth, s.device, err)
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
		if s.optional {
			s.log.Info("target rejects optional paths; skipping them", "error", err)
			s.optional = false
		}
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("gNMI of %s: target ended the stream: %w", s.device, io.ErrUnexpectedEOF)
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return fmt.Errorf("gNMI of %s: %w: %w", s.device, context.DeadlineExceeded, err)
	case codes.Internal, codes.ResourceExhausted, codes.DataLoss:
		return fmt.Errorf("%w: gNMI of %s: %w", collectors.ErrProtocol, s.device, err)
	case codes.Unavailable:
		return fmt.Errorf("gNMI of %s: %w: %w", s.device, syscall.ECONNRESET, err)
	}
	return fmt.Errorf("gNMI of %s: %w", s.device, err)
}

func (s *subscriber) dial() (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if !s.cfg.TLS.Disabled {
		tc, err := s.cfg.TLS.Client()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(tc)
	}
	return grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(1<<20), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(s.cfg.MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: s.cfg.Timeout}))
}

func (s *subscriber) stream(ctx context.Context, out collectors.Emitter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.credential != "" && s.settings.Secrets != nil {
		user, password, err := s.settings.Secrets.Secret(ctx, s.credential)
		if err != nil {
			return fmt.Errorf("credential %s: %w", s.credential, err)
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "username", user, "password", password)
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
	stream, err := client.Subscribe(ctx)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := stream.Send(s.request(caps)); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("subscribe: %w", err)
	}
	type result struct {
		res *gpb.SubscribeResponse
		err error
	}
	results := make(chan result) // unbuffered: a slow bus slows the target down
	received := make(chan struct{})
	go func() {
		defer close(received)
		for {
			res, err := stream.Recv()
			select {
			case results <- result{res, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-received }()

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
		case r := <-results:
			if r.err != nil {
				return r.err
			}
			quiet.Reset(max(3*s.cfg.SampleInterval, s.cfg.Timeout))
			switch x := r.res.GetResponse().(type) {
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
