// Package agent registers the driver that acts through node agents: the rungs reset_gpu,
// reload_driver and reboot, all gNOI's System.Reboot (openconfig/gnoi, system.proto); validate,
// which is its Healthz.Check; and configure_gpu, a Set of gNMI. An agent does a step at most once
// under its id, and tells what became of it; that a GPU was reset or set counts when the agent
// has read it since.
package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnoi/healthz"
	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/control"
	"auspex/control/messages"
	"auspex/internal/gnmiclient"
	"auspex/internal/target"
	"auspex/internal/trust"
	"auspex/schemas"
)

// Name is the driver's key in the configuration.
const Name = "agent"

// The rungs.
const (
	kindReset     = "reset_gpu"
	kindReload    = "reload_driver"
	kindReboot    = "reboot"
	kindValidate  = "validate"
	kindConfigure = "configure_gpu"
)

func init() {
	control.Register(Name, func() control.Driver { return Default() })
}

// Config is how control reaches node agents, at the attribute agent_address of servers.
type Config struct {
	// Timeout bounds dialling and short questions; a reset takes as long as a call of
	// control may.
	Timeout time.Duration `yaml:"timeout"`
	// Credential names the secret that agents want, where a certificate is not enough.
	Credential string    `yaml:"credential"`
	TLS        trust.TLS `yaml:"tls"`
}

// Default returns the defaults.
func Default() *Config { return &Config{Timeout: 10 * time.Second} }

// Validate names the key at fault.
func (c *Config) Validate() error {
	if c.Timeout <= 0 {
		return errors.New("timeout must be positive")
	}
	return c.TLS.Validate()
}

// Trusts implements [trust.Client].
func (c *Config) Trusts() (peer trust.Peer, key string, settings *trust.TLS) {
	return trust.Agent, "tls", &c.TLS
}

// Remediators implements [control.Driver].
func (c *Config) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	h, err := c.hand(s)
	if err != nil {
		return nil, err
	}
	return map[string]control.Remediator{
		kindReset: reset{h}, kindReload: reload{h}, kindReboot: reboot{h}, kindValidate: validate{h}, kindConfigure: configure{h},
	}, nil
}

// hand makes what reaches agents.
func (c *Config) hand(s control.Settings) (hand, error) {
	if err := c.Validate(); err != nil {
		return hand{}, err
	}
	tc, err := c.TLS.Client()
	if err != nil {
		return hand{}, fmt.Errorf("tls: %w", err)
	}
	return hand{*c, s, func(server, addr string) (*grpc.ClientConn, error) {
		if addr == schemas.AgentDialsIn {
			return gnmiclient.Through(func(ctx context.Context) (net.Conn, error) { return s.Tunnels.Dial(ctx, server) }, maxMessage, c.Timeout)
		}
		return gnmiclient.Dial(addr, tc, maxMessage, c.Timeout)
	}}, nil
}

// maxMessage bounds what an agent answers, in bytes.
const maxMessage = 1 << 20

// hand reaches agents.
type hand struct {
	cfg      Config
	settings control.Settings
	dial     func(server, addr string) (*grpc.ClientConn, error)
}

// call is a connection to the agent of a server, and the context of calls.
type call struct {
	ctx     context.Context
	timeout time.Duration // of short questions
	system  system.SystemClient
	health  healthz.HealthzClient
	gnmi    gpb.GNMIClient
	end     func()
}

// open connects to the agent of a step's server. Its calls carry the step's id.
func (h hand) open(ctx context.Context, s control.Step) (call, error) {
	r, ok := h.settings.Resource(s.Server)
	if !ok {
		return call{}, fmt.Errorf("%w: %s is not in the inventory", control.ErrCannot, s.Server)
	}
	addr := r.Attrs.Get(schemas.AttrAgentAddress)
	if addr == "" {
		return call{}, fmt.Errorf("%w: %s has no node agent: set its attribute %s", control.ErrCannot, s.Server, schemas.AttrAgentAddress)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil && addr != schemas.AgentDialsIn {
		return call{}, fmt.Errorf("%w: %s of %s: %w", control.ErrCannot, schemas.AttrAgentAddress, s.Server, err)
	}
	if addr == schemas.AgentDialsIn && h.settings.Tunnels == nil {
		return call{}, fmt.Errorf("%w: %s of %s is %s, and agents cannot dial in here: set tunnel.listen", control.ErrCannot, schemas.AttrAgentAddress, s.Server, addr)
	}
	ctx, err := gnmiclient.As(ctx, h.cfg.Credential, h.settings.Secrets)
	if err != nil {
		return call{}, fmt.Errorf("%w: %w", control.ErrCannot, err)
	}
	conn, err := h.dial(s.Server, addr)
	if err != nil {
		return call{}, err
	}
	ctx = metadata.AppendToOutgoingContext(ctx, target.MetaAction, s.ID)
	return call{ctx, h.cfg.Timeout, system.NewSystemClient(conn), healthz.NewHealthzClient(conn), gpb.NewGNMIClient(conn), func() { _ = conn.Close() }}, nil
}

// status asks for what the agent knows of a step.
func (c call) status(gpus []*types.Path) (*system.RebootStatusResponse, error) {
	ctx, done := context.WithTimeout(c.ctx, c.timeout)
	defer done()
	st, err := c.system.RebootStatus(ctx, &system.RebootStatusRequest{Subcomponents: gpus})
	return st, told(err)
}

// would asks the agent what a step would do.
func (h hand) would(ctx context.Context, s control.Step, gpus ...*types.Path) (*system.RebootStatusResponse, error) {
	c, err := h.open(metadata.AppendToOutgoingContext(ctx, target.MetaWould, "1"), s)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return c.status(gpus)
}

// do asks for a step. An agent that tried and failed was asked all the same: what became of it
// is told when the world is read.
func (h hand) do(ctx context.Context, s control.Step, gpus ...*types.Path) error {
	c, err := h.open(ctx, s)
	if err != nil {
		return err
	}
	defer c.end()
	if _, err := c.status(gpus); err != nil { // nothing was sent that could be done
		return fmt.Errorf("%w: %w", control.ErrRejected, err)
	}
	ctx, done := c.ctx, func() {}
	if end, ok := ctx.Deadline(); ok { // a reset may take longer than a call
		ctx, done = context.WithDeadline(ctx, end.Add(-time.Until(end)/4))
	}
	_, err = c.system.Reboot(ctx, &system.RebootRequest{Method: system.RebootMethod_COLD, Message: s.Reason, Subcomponents: gpus})
	done()
	switch status.Code(err) {
	case codes.Aborted:
		return nil
	case codes.DeadlineExceeded: // what the agent has written down, it was asked
		if st, err := c.status(gpus); err == nil && st.GetReason() == s.ID {
			return nil
		}
	}
	return told(err)
}

// told is an error of an agent in its words, with those marked after which nothing was done.
func told(err error) error {
	st, _ := status.FromError(err)
	switch st.Code() {
	case codes.OK:
		return nil
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented, codes.AlreadyExists:
		return fmt.Errorf("%w: agent: %s", control.ErrRejected, st.Message())
	}
	return fmt.Errorf("agent: %s", st.Message())
}

// became says what became of a step that the agent was asked for, and when it ended there: a reading
// while it began is of the GPU as it was.
// Verified is what the agent says that it did; the sentence is then the caller's.
func (c call) became(s control.Step, gpus ...*types.Path) (ended time.Time, v control.Verdict, observed schemas.Sentence, err error) {
	st, err := c.status(gpus)
	if err != nil {
		return ended, control.Pending, observed, err
	}
	ended = time.Unix(0, int64(min(st.GetWhen(), math.MaxInt64)))
	args := messages.Args{"server": s.Server}
	switch {
	case st.GetReason() != s.ID:
		return ended, control.Pending, messages.New(messages.AgentUnaware, args), nil
	case st.GetActive():
		return ended, control.Pending, messages.New(messages.AgentAtIt, args), nil
	case st.GetStatus().GetStatus() == system.RebootStatus_STATUS_SUCCESS:
		return ended, control.Verified, observed, nil
	case st.GetStatus().GetStatus() == system.RebootStatus_STATUS_FAILURE:
		v = control.Failed
	}
	args["words"] = st.GetStatus().GetMessage()
	return ended, v, messages.New(messages.AgentSays, args), nil
}
