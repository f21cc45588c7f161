// Package tunneltest starts servers of tunnels for tests, with tokens that are kept in memory.
package tunneltest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/certtest"
	"auspex/internal/tunnel"
)

// Tokens admit machines: a token by the server that it is for.
type Tokens struct {
	mu       sync.Mutex
	servers  map[string]string // by token
	admitted map[string]tunnel.Admission
	tokens   map[string]string // by key
	away     error
}

// NewTokens returns tokens with the servers that they are for; "" is for one that is placed later.
func NewTokens(servers map[string]string) *Tokens {
	return &Tokens{servers: servers, admitted: map[string]tunnel.Admission{}, tokens: map[string]string{}}
}

// Admit implements [tunnel.Admissions].
func (t *Tokens) Admit(_ context.Context, token string, m tunnel.Machine) (tunnel.Admission, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.away != nil {
		return tunnel.Admission{}, t.away
	}
	if a, ok := t.admitted[m.Key]; ok {
		return a, nil
	}
	server, ok := t.servers[token]
	if !ok {
		return tunnel.Admission{}, fmt.Errorf("%w: its join token is not known", tunnel.ErrRefused)
	}
	for key, used := range t.tokens {
		if used == token && key != m.Key {
			return tunnel.Admission{}, fmt.Errorf("%w: the join token has been used", tunnel.ErrRefused)
		}
	}
	t.tokens[m.Key], t.admitted[m.Key] = token, tunnel.Admission{Token: "t-" + server, Server: server}
	return t.admitted[m.Key], nil
}

// Admitted implements [tunnel.Admissions].
func (t *Tokens) Admitted(context.Context) (map[string]tunnel.Admission, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.admitted), t.away
}

// Place says which server a machine is; "" revokes it.
func (t *Tokens) Place(key, server string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if server == "" {
		delete(t.admitted, key)
		delete(t.servers, t.tokens[key])
		return
	}
	t.admitted[key] = tunnel.Admission{Token: t.admitted[key].Token, Server: server}
}

// Away lets the store answer with an error; nil lets it answer again.
func (t *Tokens) Away(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = err
}

// Server is a server of tunnels that runs.
type Server struct {
	*tunnel.Server
	Addr string
	CA   string // file of the authority that signed its certificate

	Metrics *prometheus.Registry
	stop    func()
}

// Start starts a server on 127.0.0.1. It ends with the test, or with Stop.
func Start(t testing.TB, who tunnel.Admissions, log *slog.Logger) *Server {
	t.Helper()
	ca := certtest.New(t)
	leaf := ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1", "collector.example")
	return StartAt(t, "127.0.0.1:0", ca.File, leaf, who, log)
}

// StartAt is Start at an address, with a certificate.
func StartAt(t testing.TB, addr, ca string, leaf certtest.Leaf, who tunnel.Admissions, log *slog.Logger) *Server {
	t.Helper()
	cfg := tunnel.DefaultConfig()
	cfg.Listen, cfg.TLS = addr, tunnel.TLS{CertFile: leaf.CertFile, KeyFile: leaf.KeyFile}
	out := &Server{CA: ca, Metrics: prometheus.NewRegistry()}
	var err error
	if out.Server, err = tunnel.New(cfg, who, log, out.Metrics); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- out.Run(ctx, func(a net.Addr) { ready <- a.String() }) }()
	select {
	case out.Addr = <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	out.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("server of tunnels: %v", err)
		}
	})
	t.Cleanup(out.stop)
	return out
}

// Stop ends it.
func (s *Server) Stop() { s.stop() }

// Counted returns the value of a counter or gauge, summed over its labels that have result.
func (s *Server) Counted(t testing.TB, name, result string) (sum float64) {
	t.Helper()
	families, err := s.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "auspex_tunnel_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if l := m.GetLabel(); len(l) == 0 || l[0].GetValue() == result {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
