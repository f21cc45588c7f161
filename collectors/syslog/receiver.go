package syslog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/decode/kernlog"
	"auspex/internal/run"
	"auspex/schemas"
)

// transport is how lines come; a label of metrics.
type transport int

const (
	overUDP transport = iota
	overTCP
	overTLS
	overJournal
)

var transports = []string{"udp", "tcp", "tls", "journal"}

type metrics struct {
	lines   [4]prometheus.Counter
	kernel  [4]prometheus.Counter
	left    [4][]prometheus.Counter // by reason
	cut     prometheus.Counter
	lost    prometheus.Counter
	waited  prometheus.Counter
	refused *prometheus.CounterVec
	conns   prometheus.Gauge
	silent  prometheus.Gauge
	certs   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return collectors.RegisterOrGet(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_collectors_syslog_" + name, Help: help}))
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return collectors.RegisterOrGet(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auspex_collectors_syslog_" + name, Help: help}, labels))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return collectors.RegisterOrGet(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_collectors_syslog_" + name, Help: help}))
	}
	m := &metrics{
		cut:     counter("lines_cut_total", "Lines that were longer than is read of one; their rest is left out."),
		lost:    counter("datagrams_lost_total", "Datagrams that this machine's kernel dropped because they came faster than they were read."),
		waited:  counter("wait_seconds_total", "Time that connections were not read because their senders exceeded their rate."),
		refused: vec("refused_total", "Connections and datagrams that were not let in, by reason: network, connections, tls.", "reason"),
		conns:   gauge("connections", "Connections of senders."),
		silent:  gauge("targets_silent", "Servers that have sent no line for longer than silent_after."),
		certs:   counter("certificate_errors_total", "Changed certificate files that could not be read; those before stay in force."),
	}
	lines := vec("lines_total", "Lines and entries of journals that were taken in, by transport.", "transport")
	kernel := vec("kernel_lines_total", "Of them, those that a kernel wrote.", "transport")
	left := vec("lines_left_out_total", "Lines that are booked on no server, or not told, by transport and reason.", "transport", "reason")
	for i, t := range transports {
		m.lines[i], m.kernel[i] = lines.WithLabelValues(t), kernel.WithLabelValues(t)
		m.left[i] = make([]prometheus.Counter, len(reasons))
		for why, name := range reasons[1:] {
			m.left[i][why+1] = left.WithLabelValues(t, name)
		}
	}
	for _, why := range []string{"network", "connections", "tls"} {
		m.refused.WithLabelValues(why)
	}
	return m
}

// receiver takes in what all servers send.
type receiver struct {
	cfg      Config
	networks []netip.Prefix
	settings collectors.Settings
	log      *slog.Logger
	m        *metrics
	senders  atomic.Pointer[senders]

	mu    sync.Mutex
	rates map[string]*shared // of senders, by their certificate's first name or their address
	told  map[string]bool
	conns map[netip.Addr]int
	total int
}

func newReceiver(cfg Config, s collectors.Settings) (*receiver, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	networks, _ := prefixes(cfg.Networks) // validated
	if len(networks) == 0 {
		networks, _ = prefixes([]string{"127.0.0.0/8", "::1"})
	}
	r := &receiver{
		cfg: cfg, networks: networks, settings: s, log: s.Log, m: newMetrics(s.Metrics), told: map[string]bool{}, conns: map[netip.Addr]int{}, rates: map[string]*shared{},
	}
	r.senders.Store(newSenders(nil, nil))
	return r, nil
}

// Place implements [collectors.Receiver].
func (r *receiver) Place(resources []schemas.Resource) {
	r.senders.Store(newSenders(resources, r.senders.Load().hosts))
}

// New implements [collectors.Receiver].
func (r *receiver) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	h := r.senders.Load().hosts[target.ID]
	if h == nil {
		return nil, fmt.Errorf("%s has no attribute %s", target.ID, schemas.AttrSyslogFrom)
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	return &sender{host: h, r: r, settings: s, quiet: len(s.Taken) > 0, batch: collectors.NewBatch(h.id, Name)}, nil
}

// Run implements [collectors.Receiver].
func (r *receiver) Run(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	listen := func(key, addr string, start func(context.Context, string) (func() error, error)) error {
		if addr == "" {
			return nil
		}
		serve, err := start(ctx, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		wg.Go(func() {
			if err := serve(); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", key, err))
			}
		})
		return nil
	}
	err := errors.Join(
		listen("udp", r.cfg.UDP, r.listenUDP),
		listen("tcp", r.cfg.TCP, func(ctx context.Context, addr string) (func() error, error) {
			return r.listenTCP(ctx, addr, overTCP, Secure{})
		}),
		listen("tls", r.cfg.TLS.Listen, func(ctx context.Context, addr string) (func() error, error) {
			return r.listenTCP(ctx, addr, overTLS, r.cfg.TLS)
		}),
		listen("journal", r.cfg.Journal.Listen, r.listenJournal),
	)
	if err != nil {
		cancel(err)
		return err
	}
	<-ctx.Done()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// tell logs something once; it is counted each time.
func (r *receiver) tell(key, text string, args ...any) {
	r.mu.Lock()
	// Whoever invents names is not remembered for ever.
	once := !r.told[key] && len(r.told) < 1024
	if once {
		r.told[strings.Clone(key)] = true
	}
	r.mu.Unlock()
	if once {
		r.log.Warn(text, args...) //nolint:sloglint // each caller gives a constant
	}
}

// permitted reports whether an address may send without a certificate.
func (r *receiver) permitted(addr netip.Addr) bool {
	return slices.ContainsFunc(r.networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// from returns the origin of what comes from an address, with the names of a certificate.
func (r *receiver) from(addr netip.Addr, names []string) *origin {
	o := &origin{addr: addr, names: names}
	for _, relay := range r.cfg.Relays {
		ip, err := netip.ParseAddr(relay)
		switch {
		case len(names) > 0: // an address proves less than a certificate
			o.relay = o.relay || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, relay) })
		case err == nil:
			o.relay = o.relay || ip.Unmap() == addr
		}
	}
	return o
}

// begin gives an origin the rate of its sender, which all that the sender has open share; the returned function ends it.
// Behind one address may be many senders: those with certificates have each their own.
func (r *receiver) begin(o *origin) (end func()) {
	if o.relay {
		return func() {}
	}
	key := o.addr.String()
	if len(o.names) > 0 {
		key = "certificate " + o.names[0]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.rates[key]
	if s == nil {
		if len(r.rates) >= maxOrigins { // whoever comes back soon has what it had: a new connection is no new burst
			maps.DeleteFunc(r.rates, func(_ string, s *shared) bool { return s.users == 0 })
		}
		s = &shared{}
		r.rates[key] = s
	}
	s.users++
	o.limit = s
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.users--
	}
}

// addrOf returns the address of a peer.
func addrOf(a net.Addr) netip.Addr {
	p, _ := netip.ParseAddrPort(a.String())
	return p.Addr().Unmap().WithZone("")
}

// line takes in a line of syslog. It waits for a server whose events are not passed on as fast as
// they come, where one may: a datagram does not come again, and behind a relay others wait too.
func (r *receiver) line(ctx context.Context, o *origin, via transport, text string, now time.Time) error {
	r.m.lines[via].Inc()
	l := kernlog.ParseSyslog(text)
	h, why := r.whose(o, l.Host)
	if h == nil {
		r.m.left[via][why].Inc()
		return nil
	}
	h.heard.Store(now.Unix())
	if !l.Kernel() && !o.relay {
		return nil
	}
	h.mu.Lock()
	if o.relay && h.limit.take(now, r.cfg.Rate) > 0 {
		h.limit.give()
		h.mu.Unlock()
		r.m.left[via][tooMany].Inc()
		return nil
	}
	if !l.Kernel() {
		h.mu.Unlock()
		return nil
	}
	evs := h.parser.Message("", l.Text)
	h.mu.Unlock()
	r.m.kernel[via].Inc()
	if len(evs) == 0 {
		return nil
	}
	at, _ := l.Time(now)
	// The same line again, as a sender repeats it after a connection broke, is the same event.
	h.stamp(evs, at, now, Name+strconv.Itoa(at.Year()), l.Stamp, l.SinceBoot.String(), l.Text)
	it := item{events: evs}
	if via == overUDP || o.relay {
		select {
		case h.queue <- it:
		default:
			r.m.left[via][overflow].Inc()
		}
		return nil
	}
	select {
	case h.queue <- it:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// alone is a receiver with one collector.
type alone struct {
	r   *receiver
	one collectors.Collector
}

// Run implements [collectors.Collector].
func (a *alone) Run(ctx context.Context, out collectors.Emitter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	received := make(chan error, 1)
	go func() {
		received <- a.r.Run(ctx)
		cancel()
	}()
	err := a.one.Run(ctx, out)
	cancel()
	return errors.Join(<-received, err)
}

// slow makes a connection wait whose sender exceeds its rate.
func (r *receiver) slow(ctx context.Context, o *origin, now time.Time) error {
	if o.limit == nil {
		return nil
	}
	wait := o.limit.take(now, r.cfg.Rate)
	if wait <= 0 {
		return nil
	}
	r.tell("flood "+o.String(), "sender floods; it is read more slowly", "sender", o.String())
	r.m.waited.Add(wait.Seconds())
	return run.Sleep(ctx, wait)
}
