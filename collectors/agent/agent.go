// Package agent reads node agents over gNMI: samples of what the agent reads of its
// server, and the agent's journal with the kernel's lines and the agent's events. A
// record is acknowledged when its events are durable; which metric a reading is, the
// YANG modules say.
package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"auspex/collectors"
	"auspex/internal/gnmiclient"
	"auspex/internal/grpcwire"
	"auspex/internal/target"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the collector's key in the configuration.
const Name = "agent"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewHost, Sources: []string{schemas.SourceKmsg, schemas.SourceAgent, schemas.SourceNVML, schemas.SourceDCGM}},
		func() collectors.Config { return Default() },
	)
}

// TLS says whom to trust. Disabled speaks plain text, for agents on loopback.
type TLS struct {
	trust.TLS `yaml:",inline"`
	Disabled  bool `yaml:"disabled"`
}

// Config is the collector's configuration. Its targets are the servers with the
// attribute agent_address.
type Config struct {
	// SampleInterval is the period of readings.
	SampleInterval time.Duration `yaml:"sample_interval"`
	// Timeout bounds dialling and each answer.
	Timeout time.Duration `yaml:"timeout"`
	// MaxMessage bounds a message in bytes.
	MaxMessage int `yaml:"max_message"`
	// Credential names the secret that agents want, where a certificate is not enough.
	Credential string `yaml:"credential"`
	TLS        TLS    `yaml:"tls"`

	paths *paths // that all its collectors share
}

// Default returns the defaults.
func Default() *Config {
	return &Config{SampleInterval: 10 * time.Second, Timeout: 10 * time.Second, MaxMessage: 4 << 20, paths: newPaths()}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.SampleInterval < 100*time.Millisecond:
		return errors.New("sample_interval must be at least 100ms")
	case c.Timeout <= 0:
		return errors.New("timeout must be positive")
	case c.MaxMessage < 64<<10:
		return errors.New("max_message must be at least 65536")
	}
	return nil
}

// Targets implements [collectors.Config].
func (c *Config) Targets(resources []schemas.Resource) []schemas.Resource {
	return collectors.With(resources, schemas.KindServer, schemas.AttrAgentAddress)
}

// LossType implements [collectors.LossTyper]: a server whose agent is silent may be well.
func (*Config) LossType() string { return schemas.EventAgentUnreachable }

// Evidence implements [collectors.Witness]. Lines of a kernel log that is read here
// are left to who reads it, and readings of GPUs to an exporter.
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{
		Signs: []collectors.Sign{collectors.SignXID, collectors.SignKernel, collectors.SignGPU}, Attr: schemas.AttrAgentAddress,
		Yields: []collectors.Sign{collectors.SignKernel, collectors.SignGPU},
	}
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Agent, "tls", &c.TLS.TLS
}

// New implements [collectors.Config].
func (c *Config) New(resource schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	addr := resource.Attrs.Get(schemas.AttrAgentAddress)
	if _, _, err := net.SplitHostPort(addr); err != nil && addr != schemas.AgentDialsIn {
		return nil, fmt.Errorf("%s of %s: %w", schemas.AttrAgentAddress, resource.ID, err)
	}
	if addr == schemas.AgentDialsIn && s.Tunnels == nil {
		return nil, fmt.Errorf("%s of %s is %s, and agents cannot dial in here: set tunnel.listen", schemas.AttrAgentAddress, resource.ID, addr)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	known := c.paths
	if known == nil {
		known = newPaths()
	}
	return &subscriber{
		cfg: *c, paths: known, device: resource.ID, addr: addr, settings: s, log: s.Log, metrics: newMetrics(s.Metrics),
		kernel: !slices.Contains(s.Taken, collectors.SignKernel), gpus: !slices.Contains(s.Taken, collectors.SignGPU),
	}, nil
}

type metrics struct{ records, malformed, lost, dropped, boots, unmatched prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	c := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_agent_" + name, Help: help}))
	}
	return &metrics{
		records:   c("records_total", "Records read from journals of agents."),
		malformed: c("malformed_total", "Records of journals and values of readings that could not be read."),
		lost:      c("lost_total", "Lines of kernel logs that nobody had read before they were overwritten or dropped."),
		dropped:   c("dropped_total", "Records that agents dropped for space before they were acknowledged."),
		boots:     c("boots_total", "Changes of the boot id."),
		unmatched: c("unmatched_total", "Updates of paths that the modules do not know."),
	}
}

type subscriber struct {
	cfg      Config
	paths    *paths
	device   string
	addr     string
	settings collectors.Settings
	log      *slog.Logger
	metrics  *metrics
	kernel   bool // tell what the kernel's lines mean, and the XIDs that NVML told the agent
	gpus     bool // tell the readings of GPUs that others tell as well
	refused  bool // that records cannot be acknowledged was said
	state    *state
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
	err := s.stream(ctx, out)
	if ctx.Err() != nil {
		return nil
	}
	return collectors.StatusError("agent of "+s.device, err)
}

// dial connects to the agent, by itself or through the tunnel.
func (s *subscriber) dial(ctx context.Context) (net.Conn, error) {
	ctx, done := context.WithTimeout(ctx, s.cfg.Timeout)
	defer done()
	if s.addr == schemas.AgentDialsIn {
		return s.settings.Tunnels.Dial(ctx, s.device)
	}
	if s.cfg.TLS.Disabled {
		return new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	}
	tc, err := s.cfg.TLS.Client()
	if err != nil {
		return nil, err
	}
	tc.NextProtos = []string{"h2"} // RFC 9113, section 3.2
	return (&tls.Dialer{Config: tc}).DialContext(ctx, "tcp", s.addr)
}

// heartbeat is how often a reading is told that stays the same: often enough that the look-back
// of PromQL, 5 minutes, sees it when one is lost.
const heartbeat = 2 * time.Minute

// Methods of gNMI (gnmi.proto).
const (
	methodGet       = "/gnmi.gNMI/Get"
	methodSet       = "/gnmi.gNMI/Set"
	methodSubscribe = "/gnmi.gNMI/Subscribe"
)

// stream reads the agent until the connection breaks. It all happens in one goroutine, with
// nothing beside it but a timer: there are thousands.
func (s *subscriber) stream(ctx context.Context, out collectors.Emitter) (err error) {
	metadata, err := gnmiclient.Shown(ctx, s.cfg.Credential, s.settings.Secrets)
	if err != nil {
		return err
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var late atomic.Bool
	quiet := time.AfterFunc(s.cfg.Timeout, func() { late.Store(true); _ = conn.Close() })
	defer func() {
		if quiet.Stop(); late.Load() && ctx.Err() == nil {
			err = fmt.Errorf("%w: no message in time: %w", context.DeadlineExceeded, err)
		}
	}()

	st := s.state
	r := &reading{subscriber: s, metadata: metadata}
	// The agent has Timeout for its first messages, and then three intervals.
	patience := max(3*s.cfg.SampleInterval, s.cfg.Timeout)
	settle := func() error {
		quiet.Stop() // the bus may keep us waiting
		r.fresh = false
		if err := st.flush(ctx, out); err != nil {
			return err
		}
		quiet.Reset(patience)
		return nil
	}
	r.conn, err = grpcwire.New(conn, grpcwire.Options{
		Authority: s.addr, TLS: !s.cfg.TLS.Disabled && s.addr != schemas.AgentDialsIn, MaxMessage: s.cfg.MaxMessage,
		Idle: func() error {
			if !r.fresh {
				return nil
			}
			return errors.Join(settle(), r.acknowledge())
		},
	})
	if err != nil {
		return err
	}
	id, err := r.journal()
	if err != nil {
		return err
	}
	st.begin(id)
	quiet.Reset(s.cfg.Timeout)
	if r.stream, err = r.begin(methodSubscribe, s.request(), true); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	for {
		err := r.next(out)
		if err == nil && st.full() {
			err = settle()
		}
		if err != nil {
			return errors.Join(st.flush(ctx, out), err) // what came before the end is still good
		}
	}
}

// reading is a connection that is read.
type reading struct {
	*subscriber

	conn         *grpcwire.Conn
	metadata     []string
	message      gnmiclient.Response
	stream       uint32 // the call that subscribes
	fresh        bool   // something came that was not flushed
	asked        uint32 // the call that acknowledges, 0 where none runs
	acknowledges uint64 // and what
	askedAt      time.Time
}

func (r *reading) begin(method string, m proto.Message, open bool) (uint32, error) {
	raw, err := proto.Marshal(m)
	if err != nil {
		return 0, err
	}
	req := grpcwire.Request{Method: method, Metadata: r.metadata, Message: raw, Open: open}
	if !open {
		req.Timeout = r.cfg.Timeout
	}
	return r.conn.Begin(req)
}

// journal asks which journal the agent has.
func (r *reading) journal() (id string, err error) {
	path, err := target.ParsePath("/journal/state/id")
	if err != nil {
		return "", err
	}
	call, err := r.begin(methodGet, &gpb.GetRequest{Path: []*gpb.Path{path}, Encoding: gpb.Encoding_PROTO}, false)
	for err == nil {
		var ev grpcwire.Event
		if ev, err = r.conn.Next(); err != nil || ev.Call != call {
			continue
		}
		if ev.Done != nil {
			if err = ev.Done.Err(); err == nil && id == "" {
				err = fmt.Errorf("%w: the agent does not name its journal", collectors.ErrProtocol)
			}
			break
		}
		var res gpb.GetResponse
		if proto.Unmarshal(ev.Message, &res) != nil {
			return "", fmt.Errorf("%w: get: malformed message", collectors.ErrProtocol)
		}
		for _, n := range res.GetNotification() {
			for _, u := range n.GetUpdate() {
				if text := u.GetVal().GetStringVal(); text != "" && !strings.ContainsAny(text, " \n") && len(text) <= 64 {
					id = text
				}
			}
		}
	}
	if err != nil {
		return "", fmt.Errorf("get: %w", err)
	}
	return id, nil
}

// next takes a message.
func (r *reading) next(out collectors.Emitter) error {
	ev, err := r.conn.Next()
	switch {
	case err != nil:
		return err
	case ev.Call == r.stream && ev.Done != nil:
		if err := ev.Done.Err(); err != nil {
			return err
		}
		return io.EOF
	case ev.Call == r.asked && ev.Done != nil:
		r.asked = 0
		return r.acknowledged(ev.Done.Err())
	case ev.Call != r.stream:
		return nil
	}
	r.fresh = true
	if err := r.message.Parse(ev.Message); err != nil {
		return fmt.Errorf("%w: %w", collectors.ErrProtocol, err)
	}
	if r.message.Sync {
		collectors.Contact(out)
		r.state.pods.synced = true
	}
	err = r.state.response(&r.message)
	r.message = gnmiclient.Response{} // what it lay in goes
	return err
}

// acknowledge tells the agent what it need not keep any longer.
func (r *reading) acknowledge() error {
	st := r.state
	if r.stream == 0 || r.refused || r.asked != 0 || st.done <= st.acknowledged || time.Since(r.askedAt) < time.Second {
		return nil
	}
	r.askedAt = time.Now()
	path, err := target.ParsePath("/journal/config/acknowledged")
	if err != nil {
		return err
	}
	r.acknowledges = st.done
	r.asked, err = r.begin(methodSet, &gpb.SetRequest{Update: []*gpb.Update{{
		Path: path, Val: &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: st.done}},
	}}}, false)
	return err
}

// acknowledged takes the agent's answer.
func (r *reading) acknowledged(err error) error {
	switch status.Code(err) {
	case codes.OK:
		r.state.acknowledged = r.acknowledges
		return nil
	case codes.PermissionDenied, codes.Unimplemented, codes.Unauthenticated:
		// Reading goes on; the agent keeps what it has room for.
		r.refused = true
		r.log.Warn("agent refuses to have its journal acknowledged; it needs a client certificate or a credential", "error", err)
		return nil
	case codes.FailedPrecondition: // a full disk of the agent, say
		r.log.Warn("agent could not take an acknowledgement", "error", err)
		return nil
	}
	return fmt.Errorf("acknowledge: %w", err)
}

// request asks for readings each interval, and for the journal as it grows.
func (s *subscriber) request() *gpb.SubscribeRequest {
	at := func(names ...string) *gpb.Path {
		p := &gpb.Path{}
		for _, n := range names {
			p.Elem = append(p.Elem, &gpb.PathElem{Name: n})
		}
		return p
	}
	list := &gpb.SubscriptionList{Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_PROTO}
	for _, p := range []*gpb.Path{at("journal", "state", "dropped"), at("journal", "record")} {
		list.Subscription = append(list.Subscription, &gpb.Subscription{Path: p, Mode: gpb.SubscriptionMode_ON_CHANGE})
	}
	sample := func(path *gpb.Path) *gpb.Subscription {
		return &gpb.Subscription{Path: path, Mode: gpb.SubscriptionMode_SAMPLE, SampleInterval: uint64(s.cfg.SampleInterval)}
	}
	list.Subscription = append(list.Subscription, sample(at("journal", "state", "last"))) // it says that the agent lives
	for _, tree := range trees() {                                                        // most of what a server tells is what it told before
		sub := sample(at(tree))
		sub.SuppressRedundant, sub.HeartbeatInterval = true, uint64(max(heartbeat, s.cfg.SampleInterval))
		list.Subscription = append(list.Subscription, sub)
	}
	return &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}}
}
