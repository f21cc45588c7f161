package redfish

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"

	"auspex/collectors"
	"auspex/internal/bmc/redfish"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Push says where services without a stream of events send theirs.
type Push struct {
	Listen string `yaml:"listen"` // host:port; empty is off
	// URL is where services reach that, as https://auspex.example:8444; empty is the address that is listened on.
	URL          string `yaml:"url"`
	trust.Server `yaml:",inline"`
}

// Validate names the key at fault.
func (p *Push) Validate() error {
	if p.Listen == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(p.Listen)
	if err != nil {
		return fmt.Errorf("push.listen: %w", err)
	}
	if err := p.Server.Validate(); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	ip, err := netip.ParseAddr(host)
	if loopback := err == nil && ip.IsLoopback() || host == "localhost"; !loopback && !p.On() {
		return fmt.Errorf("push.listen: %s listens beyond this machine, and what services send would tell everybody on the way how to send in their place: set cert_file and key_file", p.Listen)
	}
	if p.URL == "" {
		if err == nil && ip.IsUnspecified() || host == "" {
			return fmt.Errorf("push.url: %s is no address that services can send to: set it, as https://auspex.example:8444", p.Listen)
		}
		return nil
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && (u.Scheme != "http" || p.On()) {
		return fmt.Errorf("push.url: %q; want https://HOST:PORT, or http:// where push has no certificate", p.URL)
	}
	return nil
}

// base is the address that services send to, without a slash at the end.
func (p *Push) base() string {
	switch {
	case p.URL != "":
		return strings.TrimRight(p.URL, "/")
	case p.On():
		return "https://" + p.Listen
	}
	return "http://" + p.Listen
}

// Bounds of what may be sent. A service keeps what was refused for being too much, and sends it again.
const (
	mostBody   = 1 << 20 // bytes of a message
	mostAtOnce = 64      // messages that are read, of all services
	mostOfOne  = 4       // of one
	mostConns  = 8192
	mostSeen   = 128 // messages of a service that are known again
	bodyWithin = 15 * time.Second
)

// webhook takes in what services send to who has subscribed. Each service has a door of its own, whose address nobody else knows.
type webhook struct {
	cfg   *Config
	log   *slog.Logger
	now   func() time.Time
	slots chan struct{}

	mu    sync.Mutex
	doors map[[sha256.Size]byte]*door // by the sum of what is secret in the address

	taken, malformed, unknown, foreign, repeated, large, busy prometheus.Counter
	lost, refused                                             prometheus.Counter
}

// door is where one service sends to.
type door struct {
	target  string // id of the resource
	context string // comes with each message
	key     [sha256.Size]byte
	secret  string
	ear     *ear

	mu   sync.Mutex
	busy int
	seed maphash.Seed
	seen []uint64 // sums of the last messages
	next int
}

// Listen implements [collectors.Listening].
func (c *Config) Listen(s collectors.Settings) (collectors.Receiver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	messages := collectors.RegisterOrGet(s.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_collectors_redfish_webhook_messages_total",
		Help: "Messages that were sent to us: taken, malformed, unknown (to an address that no service was given), foreign (to that of another service), repeated, large, busy (told to come again).",
	}, []string{"result"}))
	of := messages.WithLabelValues
	subs := collectors.RegisterOrGet(s.Metrics, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_collectors_redfish_subscriptions_failed_total",
		Help: "Subscriptions to events that services refused, or no longer had (lost) and were asked for again.",
	}, []string{"reason"}))
	return &webhook{
		cfg: c, log: s.Log, now: s.Now, slots: make(chan struct{}, mostAtOnce),
		doors: make(map[[sha256.Size]byte]*door),
		taken: of("taken"), malformed: of("malformed"), unknown: of("unknown"), foreign: of("foreign"), repeated: of("repeated"), large: of("large"),
		busy: of("busy"), lost: subs.WithLabelValues("lost"), refused: subs.WithLabelValues("refused"),
	}, nil
}

// CheckFiles reads the certificates.
func (c *Config) CheckFiles() error {
	if c.Push.Listen == "" || !c.Push.On() {
		return nil
	}
	if _, err := c.Push.Config(); err != nil {
		return fmt.Errorf("push.%w", err)
	}
	return nil
}

// Place implements [collectors.Receiver]: the doors of targets that are gone are shut.
func (h *webhook) Place(resources []schemas.Resource) {
	here := make(map[string]bool)
	for _, t := range h.cfg.Targets(resources) {
		here[t.ID] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, d := range h.doors {
		if !here[d.target] {
			delete(h.doors, key)
		}
	}
}

// New implements [collectors.Receiver].
func (h *webhook) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	c, err := h.cfg.New(target, s)
	if err != nil {
		return nil, err
	}
	if r, ok := c.(*reader); ok && h.cfg.Push.Listen != "" {
		r.hook = h
	}
	return c, nil
}

// open makes a door for a target; its former one is shut.
func (h *webhook) open(target string, e *ear) *door {
	d := &door{target: target, context: "auspex-" + rand.Text(), secret: rand.Text(), ear: e, seed: maphash.MakeSeed()}
	d.key = sha256.Sum256([]byte(d.secret))
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, old := range h.doors {
		if old.target == target {
			delete(h.doors, key)
		}
	}
	h.doors[d.key] = d
	return d
}

func (h *webhook) shut(d *door) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.doors, d.key)
}

const doorPath = "/redfish-events/"

// destination is the address of a door.
func (h *webhook) destination(d *door) string { return h.cfg.Push.base() + doorPath + d.secret }

// Run implements [collectors.Receiver].
func (h *webhook) Run(ctx context.Context) error {
	if h.cfg.Push.Listen == "" {
		<-ctx.Done()
		return nil
	}
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: bodyWithin, WriteTimeout: 2 * bodyWithin, IdleTimeout: time.Minute,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}
	var err error
	if h.cfg.Push.On() {
		if s.TLSConfig, err = h.cfg.Push.Follow(func(err error) { h.log.Error("new certificate of the webhook cannot be used", "error", err) }); err != nil {
			return fmt.Errorf("push.%w", err)
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", h.cfg.Push.Listen)
	if err != nil {
		return fmt.Errorf("push.listen: %w", err)
	}
	l = netutil.LimitListener(l, mostConns)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if h.cfg.Push.On() {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return err
}

// ServeHTTP implements [http.Handler]. Who has no address that we gave is told nothing, and its message is not read.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secret, ok := strings.CutPrefix(r.URL.Path, doorPath)
	h.mu.Lock()
	d := h.doors[sha256.Sum256([]byte(secret))]
	h.mu.Unlock()
	if d == nil || !ok || r.Method != http.MethodPost {
		h.unknown.Inc()
		w.Header().Set("Connection", "close")
		http.Error(w, "", http.StatusNotFound)
		return
	}
	if !d.enter() {
		h.tooMuch(w)
		return
	}
	defer d.leave()
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		h.tooMuch(w)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		h.large.Inc()
		http.Error(w, "", http.StatusRequestEntityTooLarge)
		return
	}
	var o redfish.Object
	if err != nil || json.Unmarshal(body, &o) != nil || o == nil {
		h.malformed.Inc()
		http.Error(w, "", http.StatusBadRequest)
		return
	}
	if !d.own(o) {
		h.foreign.Inc()
		h.log.Warn("a message to the address of one service has the mark of another", "target", d.target)
		http.Error(w, "", http.StatusForbidden)
		return
	}
	if d.known(o, body) {
		h.repeated.Inc() // it was taken; the service has not heard that
	} else {
		h.taken.Inc()
		d.ear.posted(o, h.now())
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *webhook) tooMuch(w http.ResponseWriter) {
	h.busy.Inc()
	w.Header().Set("Retry-After", "5")
	w.Header().Set("Connection", "close")
	http.Error(w, "", http.StatusServiceUnavailable)
}

func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy >= mostOfOne {
		return false
	}
	d.busy++
	return true
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy--
}

// own reports whether a message has the mark of its subscription, or none. It stands in the message, in older services in each of its events.
func (d *door) own(o redfish.Object) bool {
	for _, x := range append(o.Objects("Events"), o) {
		if mark := x.String("Context"); mark != "" && mark != d.context {
			return false
		}
	}
	return true
}

// known reports whether a message is one of the last that came, to the byte. One that says no time may be of something that happened again.
func (d *door) known(o redfish.Object, body []byte) bool {
	timed := o.String("Timestamp") != ""
	for _, e := range o.Objects("Events") {
		timed = timed || e.String("EventTimestamp") != ""
	}
	if !timed {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := maphash.Bytes(d.seed, body)
	if slices.Contains(d.seen, sum) {
		return true
	}
	if len(d.seen) < mostSeen {
		d.seen = append(d.seen, sum)
	} else {
		d.seen[d.next] = sum
		d.next = (d.next + 1) % mostSeen
	}
	return false
}
