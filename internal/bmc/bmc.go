// Package bmc reaches a server's board controller, over Redfish or IPMI: power
// state, resets and boot device. A command that is accepted has not happened
// yet: whoever asked reads back.
package bmc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/redfish"
)

var (
	// ErrNoAddress says that a target has neither a Redfish URL nor an IPMI address.
	ErrNoAddress = errors.New("neither redfish_url nor ipmi_ip is set")
	// ErrUnsupported says that the protocol has no such operation.
	ErrUnsupported = errors.New("not supported over this protocol")
)

// Rejected reports whether an error of [Client] says that the controller refused the
// command: nothing was done and nothing will be. All other errors leave it open.
func Rejected(err error) bool {
	var status *redfish.StatusError
	return errors.Is(err, ErrUnsupported) || errors.Is(err, redfish.ErrBefore) || errors.Is(err, redfish.ErrNotFound) || errors.Is(err, ipmi.ErrRefused) ||
		errors.As(err, &status) && status.Status >= 400 && status.Status < 500
}

// PowerState is the state of a server's main power, as Redfish names it
// (DSP2046, Resource.PowerState).
type PowerState string

// The power states. IPMI knows on and off only.
const (
	PowerOn          PowerState = "On"
	PowerOff         PowerState = "Off"
	PowerPoweringOn  PowerState = "PoweringOn"
	PowerPoweringOff PowerState = "PoweringOff"
)

// ResetType is what to do with a server's power, as Redfish names it (DSP2046,
// Resource.ResetType).
type ResetType string

// The resets. Over IPMI, GracefulRestart is not there, and ForceRestart is a
// hard reset.
const (
	ResetOn               ResetType = "On"
	ResetForceOff         ResetType = "ForceOff"
	ResetGracefulShutdown ResetType = "GracefulShutdown"
	ResetGracefulRestart  ResetType = "GracefulRestart"
	ResetForceRestart     ResetType = "ForceRestart"
	ResetPowerCycle       ResetType = "PowerCycle"
	ResetNMI              ResetType = "Nmi"
)

// Boot is the boot source override.
type Boot struct {
	Enabled string // Disabled, Once or Continuous
	Target  string // None, Pxe, Hdd or BiosSetup
	Mode    string // UEFI, Legacy, or "" for what is set
}

// PowerUse is what a server draws and may draw, in watts.
type PowerUse struct {
	Draw     float64 // NaN where the controller does not measure
	Limit    float64 // 0 is none
	Min, Max float64 // of a limit; 0 where the controller does not say
	Settable bool    // there is a way to limit it
}

// Client is a session with one board controller. One caller at a time.
type Client interface {
	// Power reads the power state.
	Power(ctx context.Context) (PowerState, error)
	// Reset asks for a reset, once: after an error it is not known whether it was
	// taken. The request id travels with it where the protocol can carry one.
	Reset(ctx context.Context, t ResetType, requestID string) error
	// SetBoot sets the boot source of the next boot or of all.
	SetBoot(ctx context.Context, b Boot, requestID string) error
	// Boot reads the boot source override back, as it is set for the boots to come.
	Boot(ctx context.Context) (Boot, error)
	// PowerUse reads what the server draws and its limit.
	PowerUse(ctx context.Context) (PowerUse, error)
	// LimitPower sets the limit, in whole watts; 0 takes it away.
	LimitPower(ctx context.Context, watts float64, requestID string) error
	// Protocol is "redfish" or "ipmi".
	Protocol() string
	// Close ends the session and gives the turn at the controller back.
	Close(ctx context.Context) error
}

// Target says how to reach a controller.
type Target struct {
	Server     string // the inventory's id, key of the gate
	RedfishURL string // preferred
	IPMIAddr   string // host or host:port
	User       string
	Password   string
	TLS        *tls.Config   // for Redfish; nil trusts the system's certificates
	Timeout    time.Duration // of one request; 0 is 15 s
	Gate       *Gate         // nil lets everyone through
}

// Open waits for the turn at the controller and opens a session, over Redfish
// where there is a URL. The caller closes the client soon: others wait.
func Open(ctx context.Context, t Target) (Client, error) {
	release := func() {}
	if t.Gate != nil {
		var err error
		if release, err = t.Gate.Acquire(ctx, t.Server); err != nil {
			return nil, fmt.Errorf("wait for the controller of %s: %w", t.Server, err)
		}
	}
	c, err := open(ctx, t, release)
	if err != nil {
		release()
		return nil, fmt.Errorf("open the controller of %s: %w", t.Server, err)
	}
	return c, nil
}

func open(ctx context.Context, t Target, release func()) (Client, error) {
	switch {
	case t.RedfishURL != "":
		c, err := redfish.New(redfish.Options{URL: t.RedfishURL, User: t.User, Password: t.Password, TLS: t.TLS, Timeout: t.Timeout})
		if err != nil {
			return nil, err
		}
		if _, err := c.Root(ctx); err != nil {
			c.Close(ctx)
			return nil, err
		}
		return &redfishClient{c, release}, nil
	case t.IPMIAddr != "":
		c, err := ipmi.New(ipmi.Options{Addr: t.IPMIAddr, User: t.User, Password: t.Password, Retries: ipmi.DefaultOptions().Retries})
		if err != nil {
			return nil, err
		}
		if err := c.Connect(ctx); err != nil {
			return nil, err
		}
		return &ipmiClient{c, release}, nil
	}
	return nil, ErrNoAddress
}

// Redfish returns what speaks Redfish in a client, for what no other protocol has; false for
// another protocol.
func Redfish(c Client) (*redfish.Client, bool) {
	r, ok := c.(*redfishClient)
	if !ok {
		return nil, false
	}
	return r.c, true
}

type redfishClient struct {
	c       *redfish.Client
	release func()
}

func (r *redfishClient) Power(ctx context.Context) (PowerState, error) {
	s, err := r.c.PowerState(ctx)
	return PowerState(s), err
}

// LastReset returns when the host was last reset and what time it is, both by the
// controller's clock; ok is false where it does not say.
func (r *redfishClient) LastReset(ctx context.Context) (t, now time.Time, ok bool, err error) {
	return r.c.LastReset(ctx)
}

func (r *redfishClient) Reset(ctx context.Context, t ResetType, requestID string) error {
	return r.c.Reset(ctx, string(t), requestID)
}

func (r *redfishClient) SetBoot(ctx context.Context, b Boot, requestID string) error {
	return r.c.SetBoot(ctx, b.Enabled, b.Target, b.Mode, requestID)
}

func (r *redfishClient) Boot(ctx context.Context) (b Boot, err error) {
	b.Enabled, b.Target, b.Mode, err = r.c.Boot(ctx)
	return b, err
}

func (r *redfishClient) PowerUse(ctx context.Context) (PowerUse, error) {
	p, err := r.c.PowerLimit(ctx)
	return PowerUse{p.Draw, p.Limit, p.Min, p.Max, p.Settable}, err
}

func (r *redfishClient) LimitPower(ctx context.Context, watts float64, requestID string) error {
	at, err := r.c.PowerLimit(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", redfish.ErrBefore, err)
	}
	return r.c.SetPowerLimit(ctx, at, watts, requestID)
}

func (*redfishClient) Protocol() string { return "redfish" }

func (r *redfishClient) Close(ctx context.Context) error {
	defer r.release()
	r.c.Close(ctx)
	return nil
}

type ipmiClient struct {
	c       *ipmi.Conn
	release func()
}

func (c *ipmiClient) Power(ctx context.Context) (PowerState, error) {
	on, err := c.c.Power(ctx)
	if err != nil {
		return "", err
	}
	if on {
		return PowerOn, nil
	}
	return PowerOff, nil
}

var controls = map[ResetType]ipmi.Control{
	ResetOn: ipmi.ControlUp, ResetForceOff: ipmi.ControlDown, ResetGracefulShutdown: ipmi.ControlSoft,
	ResetForceRestart: ipmi.ControlReset, ResetPowerCycle: ipmi.ControlCycle, ResetNMI: ipmi.ControlDiag,
}

func (c *ipmiClient) Reset(ctx context.Context, t ResetType, _ string) error {
	cmd, ok := controls[t]
	if !ok {
		return fmt.Errorf("reset %s: %w", t, ErrUnsupported)
	}
	return c.c.Control(ctx, cmd)
}

// devices are the boot devices of IPMI, by their names in Redfish.
var devices = map[string]string{"None": "none", "Pxe": "pxe", "Hdd": "disk", "BiosSetup": "bios"}

func (c *ipmiClient) Boot(ctx context.Context) (b Boot, err error) {
	f, err := c.c.BootDevice(ctx)
	if err != nil {
		return b, err
	}
	b = Boot{Enabled: "Disabled", Target: "None", Mode: "Legacy"}
	if f.UEFI {
		b.Mode = "UEFI"
	}
	if !f.Valid || f.Device == "none" {
		return b, nil
	}
	b.Enabled, b.Target = "Once", f.Device // one that Redfish has no name for keeps its own
	for name, device := range devices {
		if device == f.Device {
			b.Target = name
		}
	}
	if f.Persist {
		b.Enabled = "Continuous"
	}
	return b, nil
}

func (c *ipmiClient) SetBoot(ctx context.Context, b Boot, _ string) error {
	device, ok := devices[b.Target]
	if b.Enabled == "Disabled" {
		device, ok = "none", true
	}
	if !ok {
		return fmt.Errorf("boot from %s: %w", b.Target, ErrUnsupported)
	}
	return c.c.SetBootDevice(ctx, device, !strings.EqualFold(b.Mode, "Legacy"), b.Enabled == "Continuous")
}

// PowerUse implements [Client] with DCMI, which a controller may lack: then there is no way to limit.
func (c *ipmiClient) PowerUse(ctx context.Context) (PowerUse, error) {
	p, err := c.c.PowerLimit(ctx)
	if errors.Is(err, ipmi.ErrRefused) {
		return PowerUse{Draw: p.Draw}, nil
	}
	return PowerUse{Draw: p.Draw, Limit: p.Limit, Settable: err == nil}, err
}

func (c *ipmiClient) LimitPower(ctx context.Context, watts float64, _ string) error {
	at, err := c.c.PowerLimit(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", redfish.ErrBefore, err)
	}
	return c.c.SetPowerLimit(ctx, at, watts)
}

func (*ipmiClient) Protocol() string { return "ipmi" }

func (c *ipmiClient) Close(ctx context.Context) error {
	defer c.release()
	return c.c.Close(ctx)
}
