// Package bmc registers the driver that acts through board controllers, over
// Redfish or IPMI: the rungs power_cycle, power_on, power_off, nmi and set_boot; and over Redfish alone set_bios,
// update_firmware, reset_bmc and ac_cycle.
package bmc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"auspex/control"
	"auspex/control/power"
	"auspex/internal/bmc"
	"auspex/internal/bmc/redfish"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the driver's key in the configuration.
const Name = "bmc"

func init() {
	control.Register(Name, func() control.Driver { return Default() })
}

// Config is how control reaches board controllers.
type Config struct {
	trust.TLS `yaml:",inline"`
	Protocol  string        `yaml:"protocol"` // redfish, ipmi, or auto: Redfish where the inventory has its URL
	Timeout   time.Duration `yaml:"timeout"`
	// Images are the beginnings of URLs, http or https, from which firmware may come. None means that
	// none is updated.
	Images []string `yaml:"images"`
	// ImageTime bounds how long an image may take to be read, and to be sent to a BMC.
	ImageTime time.Duration `yaml:"image_time"`
	// OutletOff is how long a server is without its mains in an AC cycle, where its PDUs do not cycle
	// outlets by themselves.
	OutletOff time.Duration `yaml:"outlet_off"`
}

// Default returns the defaults.
func Default() *Config {
	return &Config{Protocol: "auto", Timeout: 15 * time.Second, ImageTime: 10 * time.Minute, OutletOff: 15 * time.Second}
}

// Validate names the key at fault.
func (c *Config) Validate() error {
	if !slices.Contains([]string{"auto", "redfish", "ipmi"}, c.Protocol) {
		return fmt.Errorf("protocol: want auto, redfish or ipmi, got %q", c.Protocol)
	}
	if c.Timeout <= 0 {
		return errors.New("timeout must be positive")
	}
	if c.ImageTime <= 0 {
		return errors.New("image_time must be positive")
	}
	if c.OutletOff <= 0 {
		return errors.New("outlet_off must be positive")
	}
	for i, from := range c.Images {
		if u, err := url.Parse(from); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return fmt.Errorf("images[%d]: want http://HOST/PATH or https://HOST/PATH, without a user", i)
		}
	}
	return c.TLS.Validate()
}

// Reliefs implements [control.Relief]: servers without a node agent restart through their controllers.
func (c *Config) Reliefs(s control.Settings) (map[string]control.Remediator, error) {
	open, _, err := c.opener(s)
	if err != nil {
		return nil, err
	}
	return map[string]control.Remediator{"reboot": reboot{hand{open: open}}}, nil
}

// opener reaches the controllers of servers.
func (c *Config) opener(s control.Settings) (open func(ctx context.Context, server string) (controller, error), trusted *tls.Config, err error) {
	if trusted, err = c.Client(); err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, server string) (controller, error) {
		t, err := c.target(ctx, s, server)
		if err != nil {
			return controller{}, fmt.Errorf("%w: %w", control.ErrCannot, err)
		}
		t.TLS = trusted
		client, err := bmc.Open(ctx, t)
		if err != nil {
			return controller{}, err
		}
		return controller{client}, nil
	}, trusted, nil
}

// Remediators implements [control.Driver].
func (c *Config) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	open, trusted, err := c.opener(s)
	if err != nil {
		return nil, err
	}
	hand := hand{open, func(server string) bool { return c.reaches(s, server) }}
	return map[string]control.Remediator{
		"power_cycle": cycle{power.New(func(ctx context.Context, server string) (power.BMC, error) { return open(ctx, server) }), hand.reaches},
		"power_on":    turn{hand, bmc.PowerOn}, "power_off": turn{hand, bmc.PowerOff}, "nmi": interrupt{hand}, "set_boot": boot{hand},
		"reset_bmc": &restart{hand: hand}, "set_bios": settings{hand},
		"update_firmware": &update{hand: hand, images: images{c.Images, c.ImageTime}},
		"ac_cycle": &mains{hand: hand, outlets: s.Outlets, off: c.OutletOff, unit: func(ctx context.Context, pdu schemas.Resource) (bmc.Client, error) {
			return c.unit(ctx, s, pdu, trusted)
		}},
	}, nil
}

// cycle is the remediator of power_cycle.
type cycle struct {
	*power.Cycle

	reaches func(server string) bool
}

// Reaches implements control.Reacher.
func (c cycle) Reaches(server string) bool { return c.reaches(server) }

// reaches reports whether the inventory has the controller of a server with how to enter it, and does not send us to Rufio. It only
// decides where there is another way.
func (c *Config) reaches(s control.Settings, server string) bool {
	r, ok := s.Resource(server)
	return ok && r.Attrs.Get(schemas.AttrRufioMachine) == "" && r.Attrs.Get(schemas.AttrCredential) != "" &&
		(c.Protocol != "ipmi" && r.Attrs.Get(schemas.AttrRedfishURL) != "" || c.Protocol != "redfish" && r.Attrs.Get(schemas.AttrIPMIIP) != "")
}

// target says how to reach the controller of a server.
func (c *Config) target(ctx context.Context, s control.Settings, server string) (t bmc.Target, err error) {
	r, ok := s.Resource(server)
	if !ok {
		return t, fmt.Errorf("%s is not in the inventory", server)
	}
	t = bmc.Target{Server: server, Timeout: c.Timeout, Gate: s.Gate}
	if c.Protocol != "ipmi" {
		t.RedfishURL = r.Attrs.Get(schemas.AttrRedfishURL)
	}
	if c.Protocol != "redfish" {
		t.IPMIAddr = r.Attrs.Get(schemas.AttrIPMIIP)
	}
	if t.RedfishURL == "" && t.IPMIAddr == "" {
		return t, fmt.Errorf("%s has no address in the inventory for protocol %s: set redfish_url or ipmi_ip", server, c.Protocol)
	}
	if ref := r.Attrs.Get(schemas.AttrCredential); ref != "" {
		t.User, t.Password, err = s.Secrets.Secret(ctx, ref)
	}
	return t, err
}

// unit opens a power distribution unit.
func (c *Config) unit(ctx context.Context, s control.Settings, pdu schemas.Resource, trusted *tls.Config) (bmc.Client, error) {
	t := bmc.Target{Server: pdu.ID, RedfishURL: address(pdu), Timeout: c.Timeout, Gate: s.Gate, TLS: trusted}
	if ref := pdu.Attrs.Get(schemas.AttrCredential); ref != "" {
		var err error
		if t.User, t.Password, err = s.Secrets.Secret(ctx, ref); err != nil {
			return nil, fmt.Errorf("%w: %w", control.ErrCannot, err)
		}
	}
	return bmc.Open(ctx, t)
}

// controller is a board controller as a power cycle wants it.
type controller struct{ c bmc.Client }

// redfish returns what speaks Redfish; other protocols have nothing of what needs it.
func (b controller) redfish(s control.Step) (*redfish.Client, error) {
	c, ok := bmc.Redfish(b.c)
	if !ok {
		return nil, fmt.Errorf("%w: %s needs Redfish, and the BMC of %s is reached over %s: set redfish_url", control.ErrCannot, s.Kind, s.Server, b.c.Protocol())
	}
	return c, nil
}

// PowerOn implements power.BMC.
func (b controller) PowerOn(ctx context.Context) (bool, error) {
	p, err := b.c.Power(ctx)
	return p == bmc.PowerOn, err
}

// PowerCycle implements power.BMC.
func (b controller) PowerCycle(ctx context.Context, request string) error {
	return refusal(b.c.Reset(ctx, bmc.ResetPowerCycle, request))
}

// refusal marks an error after which it is certain that nothing was done.
func refusal(err error) error {
	if bmc.Rejected(err) {
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	return err
}

// LastReset implements power.BMC.
func (b controller) LastReset(ctx context.Context) (t time.Time, skew time.Duration, ok bool, err error) {
	r, has := b.c.(interface {
		LastReset(context.Context) (t, now time.Time, ok bool, err error)
	})
	if !has {
		return t, 0, false, nil
	}
	began := time.Now()
	t, now, ok, err := r.LastReset(ctx)
	if !now.IsZero() {
		skew = now.Sub(began)
	}
	return t, skew, ok, err
}

// Close implements power.BMC.
func (b controller) Close(ctx context.Context) error { return b.c.Close(ctx) }

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.BMC, "", &c.TLS
}
