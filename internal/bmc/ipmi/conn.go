// Package ipmi speaks IPMI 2.0 over RMCP+ to a board controller: power, boot
// device, event log (SEL), sensor records (SDR) and readings. Section and table
// numbers are those of the IPMI 2.0 specification, revision 1.1.
package ipmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"
)

var (
	// ErrAuth says that the controller refused user or password.
	ErrAuth = errors.New("ipmi: credentials refused")
	// ErrNoRecord says that a record or sensor is not there.
	ErrNoRecord = errors.New("ipmi: no such record")
	// ErrRefused says that the controller did not do what it was asked, for certain.
	ErrRefused = errors.New("ipmi: refused")
	// ErrMalformed says that a record is not what the specification allows.
	ErrMalformed = errors.New("ipmi: malformed record")
	// ErrNoAnswer says that no attempt of a command had an answer in time.
	ErrNoAnswer = errors.New("ipmi: no answer")
)

// Options says how to reach a controller.
type Options struct {
	Addr     string // host or host:port; the port is 623 without one
	User     string
	Password string
	// Timeout bounds one attempt of one command; Retries are further attempts with
	// the same datagram.
	Timeout time.Duration
	Retries int
	// CipherSuites are tried in order (table 22-20); empty means 17, then 3.
	CipherSuites []int
}

// DefaultOptions returns 700 ms an attempt, 4 retries, suites 17 and 3. A short
// attempt costs a slow controller one repeated datagram, and lets the caller go
// soon when its context ends.
func DefaultOptions() Options {
	return Options{Timeout: 700 * time.Millisecond, Retries: 4, CipherSuites: []int{17, 3}}
}

// Conn is a session with one controller. One caller at a time; not safe for
// concurrent use.
type Conn struct {
	opt   Options
	host  string
	port  int
	c     *client.Client
	line  *screened
	suite int // that has worked, 0 before

	passed passed // over, while an answer was awaited
}

// New checks the options; it performs no I/O.
func New(opt Options) (*Conn, error) {
	def := DefaultOptions()
	if opt.Timeout <= 0 {
		opt.Timeout = def.Timeout
	}
	if opt.Retries < 0 {
		opt.Retries = 0
	}
	if len(opt.CipherSuites) == 0 {
		opt.CipherSuites = def.CipherSuites
	}
	host, portText, err := net.SplitHostPort(opt.Addr)
	if err != nil { // no port; a colon is allowed in an IPv6 address only
		host, portText = opt.Addr, "623"
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			host = ""
		}
	}
	port, err := strconv.Atoi(portText)
	if err != nil || host == "" || port < 1 || port > 65535 {
		return nil, fmt.Errorf("ipmi address %q: want host or host:port", opt.Addr)
	}
	c := &Conn{opt: opt, host: host, port: port}
	return c, c.SetCredentials(opt.User, opt.Password)
}

// SetCredentials sets user and password for the next session.
func (c *Conn) SetCredentials(user, password string) error {
	if len(user) > 16 || len(password) > 20 {
		return errors.New("ipmi: the user has at most 16 and the password at most 20 bytes")
	}
	c.opt.User, c.opt.Password = user, password
	return nil
}

// Connected reports whether there is a session.
func (c *Conn) Connected() bool { return c.c != nil }

// Connect opens a session as administrator (section 13.15) when there is none.
func (c *Conn) Connect(ctx context.Context) error {
	if c.c != nil {
		return nil
	}
	suites := c.opt.CipherSuites
	if c.suite != 0 {
		suites = []int{c.suite}
	}
	var errs []error
	for _, s := range suites {
		began := time.Now()
		c.passed.forget()
		cl, err := c.open(ctx, s)
		if err == nil {
			c.c, c.suite = cl, s
			return nil
		}
		errs = append(errs, fmt.Errorf("cipher suite %d: %w", s, err))
		var refused *net.OpError
		silent := c.silent(err, began)
		if silent {
			errs = []error{c.passed.explain(fmt.Errorf("%w: %w", ErrNoAnswer, err))}
		}
		if ctx.Err() != nil || errors.As(err, &refused) || silent || errors.Is(err, ErrAuth) {
			break // nobody there, or nobody who takes this password: another suite would not help, and accounts are locked out
		}
	}
	if err := errors.Join(errs...); !errors.Is(err, ErrNoAnswer) && !errors.As(err, new(*net.OpError)) && ctx.Err() == nil {
		c.suite = 0 // it answers, and takes the one that it took no more
	}
	return fmt.Errorf("open ipmi session with %s: %w", c.opt.Addr, errors.Join(errs...))
}

// open makes the session step by step, without the library's Connect: that asks
// first for capabilities that nothing here uses, and leaves a goroutine behind
// whose commands would race with ours for sequence numbers.
func (c *Conn) open(ctx context.Context, suite int) (*client.Client, error) {
	cl, err := client.NewClient(c.host, c.port, c.opt.User, c.opt.Password)
	if err != nil {
		return nil, err
	}
	cl.WithTimeout(c.opt.Timeout).WithRetry(c.opt.Retries).WithCipherSuiteID(types.CipherSuiteID(suite)).
		WithMaxPrivilegeLevel(types.PrivilegeLevelAdministrator).WithUDPProxy(screen{cl, c.opt.Password, &c.passed, &c.line})
	fail := func(step string, err error) (*client.Client, error) {
		shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
		defer cancel()
		_ = cl.Close(shut) // frees the socket; there is no session to end
		return nil, fmt.Errorf("%s: %w", step, classify(step, err))
	}
	for _, step := range []struct {
		name string
		do   func(*client.Client) error
	}{
		{"open session", func(cl *client.Client) error { _, err := cl.OpenSession(ctx); return err }},
		{"RAKP 1", func(cl *client.Client) error { _, err := cl.RAKPMessage1(ctx); return err }},
		{rakp3, func(cl *client.Client) error { _, err := cl.RAKPMessage3(ctx); return err }},
		{"set privilege level", func(cl *client.Client) error {
			_, err := cl.SetSessionPrivilegeLevel(ctx, types.PrivilegeLevelAdministrator)
			return err
		}},
	} {
		if err := contain(cl, step.do); err != nil {
			return fail(step.name, err)
		}
	}
	return cl, nil
}

const rakp3 = "RAKP 3"

// classify marks refused credentials: RAKP status 0Dh unauthorized name, 02h
// invalid session id after a wrong key, and a wrong authentication code. Who has
// answered RAKP message 1 with the right code knows the password (section 13.31); a wrong
// code after that is of messages that were repeated and crossed.
func classify(step string, err error) error {
	var st *types.RmcpStatusError
	switch {
	case errors.Is(err, client.ErrRAKPAuthentication):
		return fmt.Errorf("%w: %w", ErrAuth, err)
	case errors.As(err, &st):
		switch st.StatusCode() {
		case types.RmcpStatusCodeInvalidIntegrityCheckValue:
			if step != rakp3 {
				return fmt.Errorf("%w: %w", ErrAuth, err)
			}
		case types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel, types.RmcpStatusCodeUnauthorizedGUID:
			return fmt.Errorf("%w: %w", ErrAuth, err)
		}
	}
	return err
}

// silent reports whether a request failed since no attempt had an answer. The library
// has an error of its own for that, which it does not export.
func (c *Conn) silent(err error, began time.Time) bool {
	var st *types.RmcpStatusError
	if errors.Is(err, ErrAuth) || errors.As(err, &st) {
		return false
	}
	return isTimeout(err) || time.Since(began) >= c.opt.Timeout*time.Duration(c.opt.Retries+1)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// Close ends the session and frees the socket, within about one attempt. The
// connection can be opened again.
func (c *Conn) Close(ctx context.Context) error {
	if c.c == nil {
		return nil
	}
	cl := c.c
	c.c, c.line = nil, nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 200*time.Millisecond)
	defer cancel()
	return cl.Close(ctx)
}

// completion returns the completion code of an answer that is an error.
func completion(err error) (types.CompletionCode, bool) {
	if re, ok := types.IsResponseError(err); ok {
		return re.CompletionCode(), true
	}
	return 0, false
}

// do runs one command in the session. An answer with a completion code leaves
// the session as it is; anything else ends it, so that the next call begins anew.
func (c *Conn) do(ctx context.Context, what string, f func(*client.Client) error) error {
	if err := c.Connect(ctx); err != nil {
		return err
	}
	began := time.Now()
	c.passed.forget()
	err := contain(c.c, f)
	if c.line != nil {
		c.line.leave()
	}
	if err == nil {
		return nil
	}
	if code, ok := completion(err); ok {
		switch code {
		case types.CodeRequestedDataNotPresent:
			return fmt.Errorf("%s: %w", what, ErrNoRecord)
		case types.CodeNodeBusy, types.CodeInvalidCommand, types.CodeInvalidCommandForLUN, types.CodeInsufficientPrivilege,
			types.CodeNotSupported, types.CodeSubFnDisabled, types.CodeParameterOutOfRange, types.CodeRequestDataFieldInvalid:
			// Of other codes (table 5-2), such as a timeout, it is not certain that nothing was done.
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return fmt.Errorf("%s of %s: %w", what, c.opt.Addr, err)
	}
	_ = c.Close(ctx)
	if c.silent(err, began) {
		err = c.passed.explain(fmt.Errorf("%w: %w", ErrNoAnswer, err))
	}
	return fmt.Errorf("%s of %s: %w", what, c.opt.Addr, err)
}

// contain keeps a panic of the library on a malformed answer from the caller.
func contain(cl *client.Client, f func(*client.Client) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed answer: %v", p)
		}
	}()
	return f(cl)
}

// Manufacturer reads whose controller it is (section 20.1): an IANA number, 0 where it refuses to say.
func (c *Conn) Manufacturer(ctx context.Context) (number uint32, err error) {
	err = c.do(ctx, "read device id", func(cl *client.Client) error {
		r, err := cl.GetDeviceID(ctx)
		if err == nil {
			number = r.ManufacturerID
		}
		return err
	})
	if errors.Is(err, ErrRefused) {
		return 0, nil
	}
	return number, err
}

// Power reports whether the chassis has power (section 28.2).
func (c *Conn) Power(ctx context.Context) (on bool, err error) {
	err = c.do(ctx, "read chassis status", func(*client.Client) error {
		var r chassis.GetChassisStatusResponse
		err := c.exchange(ctx, controller, &chassis.GetChassisStatusRequest{}, &r)
		on = err == nil && r.PowerIsOn
		return err
	})
	return on, err
}

// Control is a chassis control command (section 28.3).
type Control byte

// The chassis control commands.
const (
	ControlDown  Control = 0
	ControlUp    Control = 1
	ControlCycle Control = 2
	ControlReset Control = 3
	ControlDiag  Control = 4
	ControlSoft  Control = 5
)

// Control sends a chassis control command, once: a lost answer is an error and
// not a second command.
func (c *Conn) Control(ctx context.Context, cmd Control) error {
	return c.once(ctx, "chassis control", func(cl *client.Client) error {
		_, err := cl.ChassisControl(ctx, chassis.ChassisControl(cmd))
		return err
	})
}

// once sends a command that changes something, without a retry.
func (c *Conn) once(ctx context.Context, what string, f func(*client.Client) error) error {
	if err := c.Connect(ctx); err != nil {
		return err
	}
	c.c.WithRetry(0).WithTimeout(5 * time.Second)
	err := c.do(ctx, what, f)
	if c.c != nil {
		c.c.WithRetry(c.opt.Retries).WithTimeout(c.opt.Timeout)
	}
	return err
}

var bootDevices = map[string]types.BootDeviceSelector{
	"none": types.BootDeviceSelectorNoOverride, "pxe": types.BootDeviceSelectorForcePXE,
	"disk": types.BootDeviceSelectorForceHardDrive, "bios": types.BootDeviceSelectorForceBIOSSetup,
}

// BootFlags are what is set for the boots to come.
type BootFlags struct {
	Valid   bool   // else nothing is, whatever the rest says
	Persist bool   // for every boot, not the next alone
	UEFI    bool   // else a legacy boot
	Device  string // one of SetBootDevice, or a number of table 28-14
}

// BootDevice reads the boot flags (section 28.13, parameter 5).
func (c *Conn) BootDevice(ctx context.Context) (f BootFlags, err error) {
	var p types.BootOptionParam_BootFlags
	err = c.do(ctx, "read boot device", func(cl *client.Client) error { return cl.GetSystemBootOptionsParamFor(ctx, &p) })
	if err != nil {
		return f, err
	}
	f = BootFlags{Valid: p.BootFlagsValid, Persist: p.Persist, UEFI: p.BIOSBootType == types.BIOSBootTypeEFI, Device: fmt.Sprintf("device %d", p.BootDeviceSelector)}
	for name, sel := range bootDevices {
		if sel == p.BootDeviceSelector {
			f.Device = name
		}
	}
	return f, nil
}

// SetBootDevice sets the boot device for the next boot, or for every boot, once
// (section 28.12, boot flags). Device is "pxe", "disk", "bios" or "none".
func (c *Conn) SetBootDevice(ctx context.Context, device string, uefi, persist bool) error {
	sel, ok := bootDevices[device]
	if !ok {
		return fmt.Errorf("ipmi boot device %q: want pxe, disk, bios or none", device)
	}
	mode := types.BIOSBootTypeLegacy
	if uefi {
		mode = types.BIOSBootTypeEFI
	}
	return c.once(ctx, "set boot device", func(cl *client.Client) error { return cl.SetBootDevice(ctx, sel, mode, persist) })
}
