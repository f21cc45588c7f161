// Package instance is the instance metadata service: a listener of its own, where a server asks
// what it is called and what it is to become, in the ways that cloud-init (the EC2 data source),
// Ignition, Talos and the actions of Tinkerbell ask. What it answers is derived from the hardware
// record at each request. A server is told of itself alone: it is known by its address or by its
// token, and whoever is not known learns nothing, not even what there is.
package instance

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/api/limit"
	"auspex/internal/wipe"
	"auspex/schemas"
)

const (
	maxSources  = 1 << 16 // whose requests are counted at a time
	maxConns    = 1024
	maxOfOne    = 16
	burst       = 10 // seconds of the rate at once: a crawl of cloud-init asks some thirty times
	readWithin  = 5 * time.Second
	writeWithin = 15 * time.Second
	idleFor     = 30 * time.Second
	lastWords   = 2 * time.Second // to those who are being answered when it ends
	secretWords = 16              // how many secrets one user data may refer to
)

// Config says where servers ask. It is off where Listen is empty.
type Config struct {
	Listen string `yaml:"listen"` // host:port
	TLS    TLS    `yaml:"tls"`    // optional: without it answers can be read on the way
	// ByAddress knows a server by the address of its connection, as `ip` of its interfaces in the
	// inventory has it. Without it only tokens count.
	ByAddress bool `yaml:"by_address"`
	// Proxies are addresses or networks of reverse proxies, whose X-Forwarded-For counts.
	Proxies []string `yaml:"proxies"`
	// Secrets are the credentials that user data may refer to as secret:NAME.
	Secrets []string `yaml:"secrets"`
	Rate    float64  `yaml:"rate"` // requests a second of one address; 0 is no limit
}

// TLS is the certificate that servers verify.
type TLS struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// DefaultConfig listens nowhere.
func DefaultConfig() Config { return Config{ByAddress: true, Rate: 20} }

// Validate names the key at fault. It reads no file.
func (c *Config) Validate() error {
	if _, err := c.proxies(); err != nil {
		return err
	}
	if c.Rate < 0 {
		return fmt.Errorf("rate: want 0 for no limit, or requests a second, got %g", c.Rate)
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("tls: set both cert_file and key_file, or neither")
	}
	if c.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

func (c *Config) proxies() (out []netip.Prefix, err error) {
	for _, text := range c.Proxies {
		p, err := netip.ParsePrefix(text)
		if a, bad := netip.ParseAddr(text); bad == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("proxies: %q is neither an address nor a network", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// Load reads the certificate; nil is none.
func (t *TLS) Load() (*tls.Certificate, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls.cert_file: %w", err)
	}
	return &pair, nil
}

// ErrUnknown is wrapped when an address or a token is no server's.
var ErrUnknown = errors.New("no server")

// Records says which server asks.
type Records interface {
	// At is the record of the only server that has an address. The error wraps [ErrUnknown] where
	// there is none, or more than one.
	At(ctx context.Context, addr netip.Addr) (schemas.HardwareRecord, error)
	// Bearer is that of the server whose token a secret is, with an error likewise.
	Bearer(ctx context.Context, secret string) (schemas.HardwareRecord, error)
}

// Deps are what the service answers from.
type Deps struct {
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
	Records Records
	// Secret returns the user and the password of a credential.
	Secret func(ctx context.Context, name string) (user, password string, err error)
	// Read writes into the audit that a server reads its user data, and how it is known. What
	// cannot be written is not answered.
	Read func(ctx context.Context, server, how string) error
	// Wiping finds the workflow that a token is of, and returns what keeps what it found of the drives of its server. The error
	// wraps [ErrUnknown] where there is none; that of what is to be kept wraps [wipe.ErrReport] where nobody can have found it.
	// nil takes nothing.
	Wiping func(ctx context.Context, token string) (keep func(ctx context.Context, r *wipe.Report) (schemas.Wipe, error), err error)
}

// Server answers. [Server.Run] starts it.
type Server struct {
	cfg     Config
	deps    Deps
	proxies []netip.Prefix
	rate    *limit.Limiter[netip.Prefix]
	data    *limit.Limiter[string] // readings of user data, by server
	key     [32]byte               // of session tokens
	cert    atomic.Pointer[tls.Certificate]
	asked   *prometheus.CounterVec
}

// Readings of user data that one server may have: each is a row of the audit.
const (
	dataRate  = 0.1 // a second
	dataBurst = 30
)

// New reads the certificate, and starts nothing.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	proxies, err := cfg.proxies()
	if err != nil {
		return nil, err
	}
	cert, err := cfg.TLS.Load()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, deps: deps, proxies: proxies, rate: limit.New[netip.Prefix](cfg.Rate, cfg.Rate*burst, maxSources),
		data: limit.New[string](dataRate, dataBurst, maxSources),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_instance_metadata_requests_total", Help: "Requests to the instance metadata service, by what was asked for and what came of it.",
		}, []string{"path", "result"}),
	}
	for _, p := range []string{pathMetadata, pathUserData} {
		s.asked.WithLabelValues(p, resultAnswered)
	}
	s.asked.WithLabelValues(pathWipe, resultAnswered)
	for _, r := range []string{resultUnknown, resultToken, resultForwarded, resultFlood} {
		s.asked.WithLabelValues(pathUnknown, r)
	}
	_, _ = rand.Read(s.key[:]) // never fails
	s.cert.Store(cert)
	if deps.Metrics != nil {
		deps.Metrics.MustRegister(s.asked)
	}
	return s, nil
}

// SetCertificate takes another certificate for connections from now on.
func (s *Server) SetCertificate(c *tls.Certificate) { s.cert.Store(c) }

// Run answers until ctx is done. It calls ready with the address on which it listens.
func (s *Server) Run(ctx context.Context, ready func(addr net.Addr)) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	addr := ln.Addr()
	ln = &bounded{Listener: ln, proxy: s.trusted, from: map[netip.Addr]int{}}
	if s.cert.Load() != nil {
		ln = tls.NewListener(ln, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Load(), nil },
		})
	}
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: readWithin, ReadTimeout: readWithin, WriteTimeout: writeWithin, IdleTimeout: idleFor, MaxHeaderBytes: 8 << 10,
		ErrorLog: slog.NewLogLogger(s.deps.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	ready(addr)
	select {
	case err = <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		if srv.Shutdown(shut) != nil {
			_ = srv.Close()
		}
		<-failed
		return nil
	}
}

// bounded is a listener with so many connections at most. Of one address, which is no proxy of ours,
// there are few, so that others get in beside it.
type bounded struct {
	net.Listener
	proxy func(netip.Addr) bool

	mu   sync.Mutex
	from map[netip.Addr]int
	all  int
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		addr := at.Addr().Unmap().WithZone("")
		b.mu.Lock()
		full := b.all >= maxConns || b.from[addr] >= maxOfOne && !b.proxy(addr)
		if !full {
			b.all++
			b.from[addr]++
		}
		b.mu.Unlock()
		if full {
			_ = c.Close()
			continue
		}
		return &conn{Conn: c, gone: sync.OnceFunc(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.all--
			if b.from[addr]--; b.from[addr] == 0 {
				delete(b.from, addr)
			}
		})}, nil
	}
}

type conn struct {
	net.Conn
	gone func()
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.gone()
	return c.Conn.Close()
}

func (s *Server) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(s.proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}
