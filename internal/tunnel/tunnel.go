// Package tunnel is where machines dial in (openconfig/grpctunnel, proto/tunnel/tunnel.proto):
// each keeps one connection, and whoever wants something of it has a connection opened through
// it, the other way. A machine is its key, which TLS proves; who may be connected, and which
// server of the inventory it is, a store of join tokens says.
package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

var (
	// ErrRefused is wrapped, with a sentence for the machine, when it may not be connected.
	ErrRefused = errors.New("refused")
	// ErrAway is wrapped when no machine is there that is a server.
	ErrAway = errors.New("has not dialled in")
)

// Config says where machines dial in. It is off where Listen is empty.
type Config struct {
	Listen   string `yaml:"listen"` // host:port
	TLS      TLS    `yaml:"tls"`
	Machines int    `yaml:"machines"` // connected at a time
}

// TLS is the certificate that machines verify.
type TLS struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// DefaultConfig listens nowhere.
func DefaultConfig() Config { return Config{Machines: 20_000} }

// Validate names the key at fault. It reads no file.
func (c *Config) Validate() error {
	if c.Machines < 1 {
		return errors.New("machines: must be at least 1")
	}
	if c.Listen == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if c.TLS.CertFile == "" || c.TLS.KeyFile == "" {
		return errors.New("tls: set cert_file and key_file: who dials in verifies the certificate, and shows a key that only TLS can prove")
	}
	return nil
}

// Load reads the certificate.
func (t *TLS) Load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls.cert_file: %w", err)
	}
	return &pair, nil
}

// Machine is what an agent says of its machine. Key alone is proven.
type Machine struct {
	Key      string // hex SHA-256 of the SubjectPublicKeyInfo of its certificate
	Serial   string
	UUID     string
	Hostname string
	Address  string // where it dials from, host:port
}

// Admission is a machine that may be connected.
type Admission struct {
	Token  string // the name of its token
	Server string // the server of the inventory that it is; "" is not placed yet
}

// Admissions says who may be connected.
type Admissions interface {
	// Admit binds a token at its first use. An error that wraps [ErrRefused] is a sentence for
	// the machine, without the token.
	Admit(ctx context.Context, token string, m Machine) (Admission, error)
	// Admitted returns who may be connected now, by key.
	Admitted(ctx context.Context) (map[string]Admission, error)
}

// Connected is a machine that is dialled in.
type Connected struct {
	Machine
	Admission
	Since    time.Time
	Sessions int // open through it
}

// Machines lists who is dialled in, those not placed among them, by host name.
func (s *Server) Machines() []Connected {
	s.mu.Lock()
	out := make([]Connected, 0, len(s.links))
	for _, l := range s.links {
		out = append(out, Connected{Machine: l.machine, Admission: l.admission, Since: l.since, Sessions: int(l.open.Load())})
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b Connected) int {
		if c := strings.Compare(a.Hostname, b.Hostname); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
	return out
}

// DialMachine is [Server.Dial] to a machine that is dialled in, by its key: it may stand nowhere.
func (s *Server) DialMachine(ctx context.Context, key string) (net.Conn, error) {
	ctx, done := context.WithTimeout(ctx, dialWithin)
	defer done()
	s.mu.Lock()
	l := s.links[key]
	s.mu.Unlock()
	var conn net.Conn
	err := error(ErrAway)
	if l != nil {
		conn, err = l.session(ctx)
	}
	return s.dialled(conn, err, "machine "+key)
}
