// Package gnmi subscribes to a switch's telemetry over gNMI: counters, optics and
// platform values are sampled, states come when they change and become events.
// Paths are OpenConfig's and are matched by position.
package gnmi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"auspex/collectors"
	"auspex/collectors/gnmi/presets"
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
	// HeartbeatInterval is how often a state that stays the same is told again, where the preset does not say; 0 is never.
	HeartbeatInterval time.Duration `yaml:"heartbeat_interval"`
	// SuppressRedundant has samples left out that stay the same, until the heartbeat.
	SuppressRedundant bool `yaml:"suppress_redundant"`
	// Mode is stream, poll or once. A target that refuses streams is polled, and one that refuses polls is asked once at each interval.
	Mode string `yaml:"mode"`
	// Presets say what switches are asked. Those of a vendor apply to switches that show its models. A name that ends in .yaml is a file of one.
	Presets []string `yaml:"presets"`
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
		SampleInterval: 10 * time.Second, Mode: "stream", Presets: presets.All(), Timeout: 10 * time.Second, FlapTransitions: 4, FlapWindow: 5 * time.Minute, MaxMessage: 16 << 20,
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.SampleInterval < 100*time.Millisecond:
		return errors.New("sample_interval must be at least 100ms")
	case c.HeartbeatInterval < 0:
		return errors.New("heartbeat_interval must not be negative")
	case c.SuppressRedundant && c.HeartbeatInterval == 0:
		return errors.New("suppress_redundant needs a heartbeat_interval: what is silent may be dead")
	case modes[c.Mode] == nil:
		return fmt.Errorf("mode is stream, poll or once, not %q", c.Mode)
	case c.Timeout <= 0:
		return errors.New("timeout must be positive")
	case c.FlapTransitions < 2 || c.FlapTransitions > 1000:
		return errors.New("flap_transitions must be between 2 and 1000")
	case c.FlapWindow <= 0:
		return errors.New("flap_window must be positive")
	case c.MaxMessage < 4096:
		return errors.New("max_message must be at least 4096")
	case len(c.Presets) == 0:
		return errors.New("presets names none, so nothing would be read: leave it out, or name openconfig")
	}
	if _, err := presets.Load(c.Presets); err != nil {
		return fmt.Errorf("presets: %w", err)
	}
	return nil
}

var modes = map[string]*gpb.SubscriptionList_Mode{
	"stream": gpb.SubscriptionList_STREAM.Enum(), "poll": gpb.SubscriptionList_POLL.Enum(), "once": gpb.SubscriptionList_ONCE.Enum(),
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
	known, err := presets.Load(c.Presets)
	if err != nil {
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
		log: s.Log, metrics: newMetrics(s.Metrics), presets: known, guess: true, mode: *modes[c.Mode],
		refused: map[presets.Need]bool{}, silenced: map[string]bool{}, waiting: enough, slow: tooSlow,
	}
	return sub, nil
}

type metrics struct{ updates, unmatched, malformed, coalesced, deletes, removed, fallbacks, resyncs, untold prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	c := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_gnmi_" + name, Help: help}))
	}
	return &metrics{
		updates:   c("updates_total", "Updates in the notifications of targets."),
		unmatched: c("unmatched_total", "Updates of paths that the collector does not use."),
		malformed: c("malformed_total", "Updates whose value could not be read."),
		coalesced: c("samples_coalesced_total", "Samples left out because newer ones of their series came while the bus was slow."),
		deletes:   c("deletes_total", "Paths that targets say are no more."),
		removed:   c("removed_total", "Ports, components and sessions that targets removed."),
		fallbacks: c("fallbacks_total", "Times that a target refused streams, or polls, and was asked otherwise."),
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
	presets    []*presets.Preset
	readings   []*presets.Reading    // of those that are for this target
	refused    map[presets.Need]bool // ask no more for paths of this need
	asked      map[presets.Need]bool
	silenced   map[string]bool // calls of their own, by target, that were refused
	guess      bool            // ask for neighbours where the target does not say which models it has
	guessed    bool            // that was asked
	basic      bool            // show the credential as HTTP Basic too
	basicTried bool            // in this run
	mode       gpb.SubscriptionList_Mode
	modeOf     *gpb.CapabilityResponse // of whom that was found out, where it is not the configured one
	named      bool                    // say the target's name: it may be one of many behind an address
	garbled    bool                    // a value that is no number was told
	expired    error                   // of our certificate, when it was last shown
	caps       *gpb.CapabilityResponse
	runs       int
	onChange   []*gpb.Path   // paths that are not sampled: each update of what is below tells a change
	quiet      time.Duration // for how long a sample may stay the same, and untold
	waiting    int           // samples that are sent, or thinned
	slow       time.Duration // for how long a bus is waited for before that
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
	return collectors.StatusError("gNMI of "+s.device, err)
}

// yields reports whether what a target refuses was changed, so that it is asked again: a name that it wants, or less.
func (s *subscriber) yields(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.Unimplemented:
	default:
		return false
	}
	said := status.Convert(err).Message()
	switch {
	case !s.named && (strings.Contains(said, "target") || strings.Contains(said, "prefix")):
		s.log.Info("whoever answers wants the target's name; telling that of the device", "error", err)
		s.named = true
		return true
	case s.guessed:
		s.log.Info("target rejects paths of models that it does not name; skipping them", "error", err)
		s.guess = false
		return true
	}
	for _, need := range []presets.Need{presets.Extra, presets.Usual} {
		if s.asked[need] {
			s.log.Info("target rejects paths that some do not know; skipping those of this need", "need", need, "error", err)
			s.refused[need] = true
			return true
		}
	}
	return false
}

// fallsBack reports whether a target that refuses a mode is to be asked in another. With said, it must have named
// the mode; else nothing less is left to ask for.
func (s *subscriber) fallsBack(err error, said bool) bool {
	if code := status.Code(err); code != codes.InvalidArgument && code != codes.Unimplemented {
		return false
	}
	text := strings.ToLower(status.Convert(err).Message())
	if said && !strings.Contains(text, strings.ToLower(s.mode.String())) && !strings.Contains(text, "subscription mode") {
		return false
	}
	next := gpb.SubscriptionList_POLL
	switch s.mode {
	case gpb.SubscriptionList_STREAM:
	case gpb.SubscriptionList_POLL:
		next = gpb.SubscriptionList_ONCE
	default: // it takes none: it is heard from the beginning at the next try
		s.mode, s.modeOf = *modes[s.cfg.Mode], nil
		return false
	}
	s.metrics.fallbacks.Inc()
	s.log.Warn("target refuses the mode of the subscription; it is asked otherwise", "refused", s.mode, "now", next, "every", s.cfg.SampleInterval, "error", err)
	s.mode, s.modeOf, s.guess = next, s.caps, true
	clear(s.refused) // it was the mode
	return true
}

// remembers goes back to the configured mode where a target has become another, as after an upgrade.
func (s *subscriber) remembers(caps *gpb.CapabilityResponse) {
	if s.caps = caps; s.mode != *modes[s.cfg.Mode] && !proto.Equal(caps, s.modeOf) {
		s.mode, s.modeOf = *modes[s.cfg.Mode], nil
	}
}

// requests are the calls to make: what the presets name for this target in one, and one more for
// each preset with a target of its own.
func (s *subscriber) requests(caps *gpb.CapabilityResponse) (first *gpb.SubscribeRequest, more []*gpb.SubscribeRequest) {
	s.guessed, s.readings, s.asked, s.onChange, s.quiet = false, nil, map[presets.Need]bool{}, nil, 0
	named := ""
	if s.named {
		named = s.device
	}
	lists, asked := map[string]*gpb.SubscriptionList{}, map[string]bool{}
	var order []string
	for _, p := range s.presets {
		if !p.For(caps.GetSupportedModels()) || s.silenced[p.Target] {
			continue
		}
		for i := range p.Readings {
			s.readings = append(s.readings, &p.Readings[i])
		}
		to := p.Target
		if to == "" {
			to = named
		}
		for i := range p.Subscribe {
			sub := &p.Subscribe[i]
			if asked[to+" "+p.Origin+":"+sub.Path] || !s.wanted(sub, caps.GetSupportedModels()) {
				continue
			}
			wire, err := sub.GNMI()
			if err != nil {
				continue // it was read when the preset was
			}
			wire.Path.Origin = p.Origin
			heartbeat, suppress := s.cfg.HeartbeatInterval, s.cfg.SuppressRedundant && wire.Mode == gpb.SubscriptionMode_SAMPLE
			if sub.Heartbeat > 0 {
				heartbeat, suppress = sub.Heartbeat, sub.SuppressRedundant
			}
			if wire.SuppressRedundant = suppress; suppress || wire.Mode != gpb.SubscriptionMode_SAMPLE {
				wire.HeartbeatInterval = uint64(heartbeat)
			}
			if suppress {
				s.quiet = max(s.quiet, heartbeat)
			}
			if wire.Mode == gpb.SubscriptionMode_SAMPLE {
				wire.SampleInterval = uint64(s.cfg.SampleInterval)
			} else {
				s.onChange = append(s.onChange, wire.GetPath())
			}
			if s.mode != gpb.SubscriptionList_STREAM { // it is for streams alone
				wire = &gpb.Subscription{Path: wire.GetPath()}
			}
			if lists[to] == nil {
				lists[to] = &gpb.SubscriptionList{Mode: s.mode, Encoding: encoding(caps)}
				if to != "" {
					lists[to].Prefix = &gpb.Path{Target: to}
				}
				order = append(order, to)
			}
			lists[to].Subscription = append(lists[to].Subscription, wire)
			asked[to+" "+p.Origin+":"+sub.Path] = true
			s.asked[sub.Need] = s.asked[sub.Need] || p.Target == ""
		}
	}
	for i, to := range order {
		req := &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: lists[to]}}
		if i == 0 {
			first = req
		} else {
			more = append(more, req)
		}
	}
	return first, more
}

// changes reports whether an update of a path tells a change, and not what is sampled.
func (s *subscriber) changes(e *elems) bool {
	return slices.ContainsFunc(s.onChange, func(p *gpb.Path) bool { return e.below(p) })
}

// wanted reports whether a target with these models is asked for a path.
func (s *subscriber) wanted(sub *presets.Subscription, models []*gpb.ModelData) bool {
	if s.refused[sub.Need] || sub.Cables && s.settings.Cabling == nil {
		return false
	}
	for _, name := range sub.Models {
		if slices.ContainsFunc(models, func(m *gpb.ModelData) bool { return m.GetName() == name }) {
			continue
		}
		if !sub.Guess || !s.guess || len(models) > 0 {
			return false
		}
		s.guessed = true
	}
	return true
}

func encoding(caps *gpb.CapabilityResponse) gpb.Encoding {
	for _, e := range []gpb.Encoding{gpb.Encoding_PROTO, gpb.Encoding_JSON_IETF, gpb.Encoding_JSON} {
		if slices.Contains(caps.GetSupportedEncodings(), e) {
			return e
		}
	}
	return gpb.Encoding_PROTO
}

// Evidence implements [collectors.Witness].
func (*Config) Evidence() collectors.Evidence {
	return collectors.Evidence{Signs: []collectors.Sign{collectors.SignNetwork}, Attr: schemas.AttrGNMIAddress}
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Switch, "tls", &c.TLS.TLS
}
