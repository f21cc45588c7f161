// Package discover sweeps ranges of addresses for board controllers: it asks each address once,
// slowly, and reads of what answers which machine that is. What it finds is held against the
// inventory: a server that is there, with what contradicts it, or one that a person may register.
package discover

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Default ports (DSP0266, section 13.2; IPMI 2.0, section 13.1.2).
const (
	RedfishPort = 443
	IPMIPort    = 623
)

// Config says where a sweep may go, and how slowly.
type Config struct {
	// Ranges are the addresses and prefixes that sweeps may ask; empty allows none.
	Ranges []string `yaml:"ranges"`
	// Ports may be asked beside 443 and 623: numbers, or spans such as 8000-8100.
	Ports []string `yaml:"ports"`
	// MaxAddresses bounds one sweep.
	MaxAddresses int `yaml:"max_addresses"`
	// Workers is how many addresses are asked at a time, each over one connection, and Rate
	// how many begin in a second.
	Workers int     `yaml:"workers"`
	Rate    float64 `yaml:"rate"`
	// Timeout bounds the first answer of an address, and ReadTime all that is read of it.
	Timeout  time.Duration `yaml:"timeout"`
	ReadTime time.Duration `yaml:"read_time"`
}

// DefaultConfig allows nothing.
func DefaultConfig() Config {
	return Config{MaxAddresses: 4096, Workers: 8, Rate: 20, Timeout: 3 * time.Second, ReadTime: time.Minute}
}

// Validate names the key at fault.
func (c *Config) Validate() error {
	if _, err := c.allowed(); err != nil {
		return err
	}
	if _, err := c.spans(); err != nil {
		return err
	}
	switch {
	case c.MaxAddresses < 1 || c.MaxAddresses > 1<<20:
		return fmt.Errorf("max_addresses is %d; it must be 1 to %d", c.MaxAddresses, 1<<20)
	case c.Workers < 1 || c.Workers > 256:
		return fmt.Errorf("workers is %d; it must be 1 to 256", c.Workers)
	case !(c.Rate > 0) || c.Rate > 1000:
		return fmt.Errorf("rate is %g; it must be above 0, and at most 1000 addresses a second", c.Rate)
	case c.Timeout <= 0 || c.ReadTime < c.Timeout:
		return fmt.Errorf("timeout is %s and read_time %s; they must be positive, and read_time the longer", c.Timeout, c.ReadTime)
	}
	return nil
}

// prefix reads an address or a prefix; the bits behind a prefix are dropped.
func prefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q is no address", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is no prefix such as 10.0.0.0/28", text)
	}
	return p.Masked(), nil
}

func (c *Config) allowed() ([]netip.Prefix, error) {
	out := make([]netip.Prefix, len(c.Ranges))
	for i, text := range c.Ranges {
		var err error
		if out[i], err = prefix(text); err != nil {
			return nil, fmt.Errorf("ranges[%d]: %w", i, err)
		}
	}
	return out, nil
}

type span struct{ first, last int }

func (c *Config) spans() ([]span, error) {
	out := []span{{RedfishPort, RedfishPort}, {IPMIPort, IPMIPort}}
	for i, text := range c.Ports {
		s := span{}
		if n, _ := fmt.Sscanf(text, "%d-%d", &s.first, &s.last); n == 1 {
			s.last = s.first
		} else if n != 2 {
			return nil, fmt.Errorf("ports[%d]: %q is no port and no span such as 8000-8100", i, text)
		}
		if s.first < 1 || s.last > 65535 || s.first > s.last {
			return nil, fmt.Errorf("ports[%d]: %q is not within 1 to 65535", i, text)
		}
		out = append(out, s)
	}
	return out, nil
}

// FieldError is a field of a request for a sweep that cannot be what it is.
type FieldError struct{ Field, Reason string }

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

// NotAllowedError is a sweep that the configuration does not allow, a sentence.
type NotAllowedError string

// Error implements error.
func (e NotAllowedError) Error() string { return string(e) }

// Plan returns the addresses of ranges, each once and in order, where the configuration allows
// them and the ports. The network and broadcast addresses of IPv4 prefixes are left out. Errors are
// a [*FieldError] or a [NotAllowedError].
func (c *Config) Plan(ranges []string, ports ...int) ([]netip.Addr, error) {
	allowed, err := c.allowed()
	if err != nil {
		return nil, err
	}
	if len(allowed) == 0 {
		return nil, NotAllowedError("No address may be swept: discovery.ranges in the configuration is empty.")
	}
	spans, err := c.spans()
	if err != nil {
		return nil, err
	}
	if len(ports) == 0 {
		return nil, &FieldError{"redfish_ports", "is empty, and so is ipmi_ports: nothing would be asked"}
	}
	for _, p := range ports {
		if !slices.ContainsFunc(spans, func(s span) bool { return s.first <= p && p <= s.last }) {
			return nil, NotAllowedError(fmt.Sprintf("Port %d may not be asked: discovery.ports in the configuration does not have it.", p))
		}
	}
	var all []netip.Prefix
	total := 0.0
	for i, text := range ranges {
		field := fmt.Sprintf("ranges[%d]", i)
		p, err := prefix(text)
		if err != nil {
			return nil, &FieldError{field, err.Error()}
		}
		if a := p.Addr(); a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return nil, &FieldError{field, text + " has addresses that are no controller's"}
		}
		if !slices.ContainsFunc(allowed, func(a netip.Prefix) bool { return a.Bits() <= p.Bits() && a.Contains(p.Addr()) }) {
			return nil, NotAllowedError(fmt.Sprintf("%s may not be swept: discovery.ranges in the configuration does not have all of it.", text))
		}
		all = append(all, p)
		total += math.Exp2(float64(p.Addr().BitLen() - p.Bits()))
	}
	if total > float64(c.MaxAddresses) {
		digits := 4 // of IPv6 there may be more than anybody counts
		if total < 1e9 {
			digits = 10
		}
		return nil, &FieldError{"ranges", fmt.Sprintf("have %.*g addresses together; a sweep has at most %d (discovery.max_addresses)", digits, total, c.MaxAddresses)}
	}
	var out []netip.Addr
	for _, p := range all {
		edges := p.Addr().Is4() && p.Bits() < 31
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			if edges && (a == p.Addr() || !p.Contains(a.Next())) {
				continue
			}
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// Ports are those of a request, or the default where it names none.
func Ports(asked []int, def int) []int {
	if asked == nil {
		return []int{def}
	}
	out := []int{}
	for _, p := range asked {
		if !slices.Contains(out, p) {
			out = append(out, cmp.Or(p, def))
		}
	}
	return out
}
