// Package syslog takes in the kernel logs that servers send by themselves: syslog of RFC 5424 and
// RFC 3164 over UDP, TCP and TLS, and the journal as systemd-journal-upload sends it. One receiver
// takes in what all servers send; whose a line is, the inventory says (see [senders]).
package syslog

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"auspex/collectors"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the collector's key in the configuration.
const Name = "syslog"

func init() {
	collectors.Register(
		Name, collectors.Sight{View: schemas.ViewHost, Sources: []string{schemas.SourceKmsg}},
		func() collectors.Config { return Default() },
	)
}

// Config is the collector's configuration. Its targets are the servers with the attribute syslog_from.
type Config struct {
	UDP     string `yaml:"udp"`     // host:port of syslog over UDP (RFC 5426); empty is off
	TCP     string `yaml:"tcp"`     // host:port of syslog over TCP (RFC 6587, both framings); empty is off
	TLS     Secure `yaml:"tls"`     // syslog over TLS (RFC 5425); off without listen
	Journal Secure `yaml:"journal"` // what systemd-journal-upload sends, over HTTPS with a certificate, else over HTTP
	// Networks are the addresses that may send without a certificate, as 10.7.0.0/16 or one address;
	// empty is this machine alone.
	Networks []string `yaml:"networks"`
	// Relays are the addresses, and the names in certificates, of those who send what others wrote:
	// they alone are believed whose a line is.
	Relays []string `yaml:"relays"`
	// Rate is how many lines a second one sender may send, on average over 20 s: over a connection it
	// then has to wait, over UDP and through a relay its lines are left out, and counted.
	Rate int `yaml:"rate"`
	// Connections is how many there may be at a time, of all senders.
	Connections int `yaml:"connections"`
	// JournalAge is how old entries of a journal may be for their events to be told: a server that
	// uploads for the first time sends all that it has kept.
	JournalAge time.Duration `yaml:"journal_age"`
	// SilentAfter is after how long without a line a server counts as silent.
	SilentAfter time.Duration `yaml:"silent_after"`
}

// Secure is where something listens that may speak TLS.
type Secure struct {
	Listen       string `yaml:"listen"` // host:port; empty is off
	trust.Server `yaml:",inline"`
}

// Default listens on loopback alone.
func Default() *Config {
	return &Config{
		UDP: "127.0.0.1:5514", TCP: "127.0.0.1:5514", Journal: Secure{Listen: "127.0.0.1:19532"},
		Rate: 5000, Connections: 20_000, JournalAge: 7 * 24 * time.Hour, SilentAfter: 24 * time.Hour,
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	if _, err := prefixes(c.Networks); err != nil {
		return fmt.Errorf("networks: %w", err)
	}
	for _, l := range []struct {
		key, addr string
		proven    bool // by certificates
	}{
		{"udp", c.UDP, false},
		{"tcp", c.TCP, false},
		{"tls.listen", c.TLS.Listen, c.TLS.ClientCAFile != ""},
		{"journal.listen", c.Journal.Listen, c.Journal.ClientCAFile != ""},
	} {
		if l.addr == "" {
			continue
		}
		host, port, err := net.SplitHostPort(l.addr)
		if err != nil {
			return fmt.Errorf("%s: %w", l.key, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%s: port %q; want 1 to 65535", l.key, port)
		}
		ip, err := netip.ParseAddr(host)
		if loopback := err == nil && ip.IsLoopback() || host == "localhost"; !loopback && !l.proven && len(c.Networks) == 0 {
			return fmt.Errorf("%s: %s listens beyond this machine, and anybody could write as any server: name in networks who may send, or set client_ca_file", l.key, l.addr)
		}
	}
	if err := c.TLS.Validate(); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	if c.TLS.Listen != "" && !c.TLS.On() {
		return errors.New("tls: set cert_file and key_file")
	}
	if err := c.Journal.Validate(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	switch {
	case c.Rate < 1:
		return errors.New("rate must be at least 1")
	case c.Connections < 1:
		return errors.New("connections must be at least 1")
	case c.JournalAge <= 0 || c.SilentAfter <= 0:
		return errors.New("journal_age and silent_after must be positive")
	}
	return nil
}

// CheckFiles reads the certificates.
func (c *Config) CheckFiles() error {
	for key, s := range map[string]Secure{"tls": c.TLS, "journal": c.Journal} {
		if s.Listen != "" && s.On() {
			if _, err := s.Config(); err != nil {
				return fmt.Errorf("%s.%w", key, err)
			}
		}
	}
	return nil
}

// Targets implements [collectors.Config].
func (c *Config) Targets(resources []schemas.Resource) []schemas.Resource {
	return collectors.With(resources, schemas.KindServer, schemas.AttrSyslogFrom)
}

// Evidence implements [collectors.Witness]. A log that is read where it is written is complete, and
// says which line follows which; this one may lack some.
func (*Config) Evidence() collectors.Evidence {
	signs := []collectors.Sign{collectors.SignXID, collectors.SignKernel}
	return collectors.Evidence{Signs: signs, Attr: schemas.AttrSyslogFrom, Yields: signs, To: []string{"kmsg", "agent"}}
}

// LossType implements [collectors.LossTyper]: a server that sends nothing may be well.
func (*Config) LossType() string { return "" }

// Passive implements [collectors.Passive].
func (*Config) Passive() {}

// Listen implements [collectors.Listening].
func (c *Config) Listen(s collectors.Settings) (collectors.Receiver, error) {
	return newReceiver(*c, s)
}

// New implements [collectors.Config]: the collector of one target with a receiver of its own.
func (c *Config) New(target schemas.Resource, s collectors.Settings) (collectors.Collector, error) {
	r, err := newReceiver(*c, s)
	if err != nil {
		return nil, err
	}
	r.Place([]schemas.Resource{target})
	one, err := r.New(target, s)
	if err != nil {
		return nil, err
	}
	return &alone{r, one}, nil
}

// prefixes reads networks; an address is a network of one.
func prefixes(in []string) (out []netip.Prefix, err error) {
	for _, s := range in {
		if ip, err := netip.ParseAddr(s); err == nil {
			out = append(out, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is no network; write it as 10.7.0.0/16", s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
