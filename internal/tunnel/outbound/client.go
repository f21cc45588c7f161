package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	tpb "github.com/openconfig/grpctunnel/proto/tunnel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/trust"
)

const (
	maxSessions = 16               // at a time
	maxRefused  = 1000             // sessions in one connection; then it is ended
	connectIn   = 20 * time.Second // until the server has taken the target
	longest     = 2 * time.Minute  // pause between tries
	steady      = time.Minute      // how long a connection has to stand for its failures to be over
	// A server that has refused is asked again when the token has changed, else after slow and
	// up to twice that.
	slow      = 5 * time.Minute
	pingEvery = 20 * time.Second // where nothing comes
	pingIn    = 10 * time.Second
	maxPing   = 10 * time.Minute
	lookEvery = 5 * time.Second // at the token
	maxToken  = 4096
)

// Config is a server that is dialled.
type Config struct {
	Address    string `yaml:"address"`     // host:port
	CAFile     string `yaml:"ca_file"`     // authorities that sign the server's certificate, PEM; empty trusts the system's
	ServerName string `yaml:"server_name"` // the name in the certificate, where it is not that of the address
	TokenFile  string `yaml:"token_file"`  // its first line is the join token, read at each dial
	// Plain speaks without TLS, to loopback alone; the server is then nobody.
	Plain bool `yaml:"plain"`
	// Retry bounds the first pause before another try, which is random; it doubles up to 2m.
	Retry time.Duration `yaml:"retry"`
}

// Validate names the key at fault. It reads no file.
func (c *Config) Validate() error {
	host, port, err := net.SplitHostPort(c.Address)
	ip := net.ParseIP(host)
	switch {
	case err != nil:
		return fmt.Errorf("address: %w", err)
	case host == "" || port == "" || port == "0":
		return fmt.Errorf("address: %s names no host and port", c.Address)
	case c.Plain && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return fmt.Errorf("plain: %s is not loopback: the token and all that is read need TLS", c.Address)
	case c.Plain && (c.CAFile != "" || c.ServerName != ""):
		return errors.New("plain: ca_file and server_name are of TLS")
	case c.Retry < 0 || c.Retry > longest:
		return fmt.Errorf("retry: must be at most %s", longest)
	}
	return nil
}

// Check reads the files.
func (c *Config) Check() error {
	if _, err := c.tls(tls.Certificate{}); err != nil {
		return err
	}
	_, err := c.token()
	return err
}

// Peer is who is there once the certificate was verified.
func (c *Config) Peer() Peer {
	if c.Plain {
		return Peer{Name: c.Address}
	}
	name, _, _ := net.SplitHostPort(c.Address)
	if c.ServerName != "" {
		name = c.ServerName
	}
	return Peer{Name: name, Verified: true}
}

func (c *Config) tls(own tls.Certificate) (*tls.Config, error) {
	tc, err := trust.TLS{CAFile: c.CAFile, ServerName: c.Peer().Name}.Client()
	if err != nil {
		return nil, err
	}
	// Asked for or not by a list of authorities: the key is who the machine is.
	tc.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	return tc, nil
}

// token reads the join token. An error does not hold it.
func (c *Config) token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("token_file: %w", err)
	}
	token, _, _ := strings.Cut(string(b), "\n")
	token = strings.TrimSpace(token)
	if token == "" || len(token) > maxToken || strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return "", fmt.Errorf("token_file: %s does not begin with a token", c.TokenFile)
	}
	return token, nil
}

// About is what a machine says of itself.
type About struct{ Hostname, Serial, UUID, Machine string }

// printable keeps what metadata can hold.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, s[:min(len(s), 128)])
}

// Client keeps a connection to a server and hands out what comes through it.
type Client struct {
	cfg   Config
	own   tls.Certificate
	about About
	log   *slog.Logger
	out   *Sessions
	slots chan struct{}
	ping  time.Duration // longer where a server takes it amiss
}

// New is inert. What the server opens comes out of sessions.
func New(cfg Config, own tls.Certificate, about About, sessions *Sessions, log *slog.Logger) *Client {
	if cfg.Retry == 0 {
		cfg.Retry = 10 * time.Second
	}
	return &Client{cfg: cfg, own: own, about: about, ping: pingEvery, out: sessions, log: log.With("address", cfg.Address), slots: make(chan struct{}, maxSessions)}
}

// Run dials until ctx is done, and returns when nothing of it runs any more.
func (c *Client) Run(ctx context.Context) {
	told := ""
	for attempt := 0; ; attempt++ {
		began := time.Now()
		token, stood, err := c.once(ctx, func() { told = "" })
		if ctx.Err() != nil {
			return
		}
		if stood && time.Since(began) > steady {
			attempt = 0
		}
		if strings.Contains(fmt.Sprint(err), "too_many_pings") { // gRPC's servers allow one in five minutes, where nobody says otherwise
			c.ping = min(2*c.ping, maxPing)
		}
		refused := status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated
		if text := sentence(err); text != told {
			told = text
			if refused {
				c.log.Error("the server does not take this machine; it is asked again when the token has changed, or in some minutes", "error", text)
			} else {
				c.log.Warn("the server is away; it is dialled again", "error", text)
			}
		}
		if refused {
			c.wait(ctx, slow+rand.N(slow), token)
		} else {
			c.wait(ctx, pause(attempt, c.cfg.Retry), token)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// pause is random between 0 and what doubles: what was lost together does not come back together.
func pause(attempt int, first time.Duration) time.Duration {
	limit := longest
	if attempt < 10 {
		limit = min(longest, first<<attempt)
	}
	return rand.N(limit) + 1
}

// wait ends early when the token has changed.
func (c *Client) wait(ctx context.Context, d time.Duration, token string) {
	end := time.NewTimer(d)
	defer end.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			return
		case <-look.C:
			if now, err := c.cfg.token(); err == nil && now != token {
				return
			}
		}
	}
}

// sentence is what the server, or the connection, says.
func sentence(err error) string {
	if st, ok := status.FromError(err); ok && err != nil {
		return st.Message()
	}
	return fmt.Sprint(err)
}

// errTaken is the end of a connection that stood.
var errEnded = errors.New("the server ended the connection")

// register is the stream on which sessions are asked for. Several may send.
type register struct {
	tpb.Tunnel_RegisterClient
	mu sync.Mutex
}

func (r *register) say(op *tpb.RegisterOp) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Send(op)
}

// once dials, and serves sessions until the connection ends. Taken is called when the server
// has taken the target, of which stood tells.
func (c *Client) once(ctx context.Context, taken func()) (token string, stood bool, err error) {
	if token, err = c.cfg.token(); err != nil {
		return token, false, err
	}
	creds := insecure.NewCredentials()
	if !c.cfg.Plain {
		tc, err := c.cfg.tls(c.own)
		if err != nil {
			return token, false, err
		}
		creds = credentials.NewTLS(tc)
	}
	conn, err := grpc.NewClient("passthrough:///"+c.cfg.Address, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{Timeout: connectIn / 2, KeepAliveConfig: net.KeepAliveConfig{
				Enable: true, Idle: pingEvery, Interval: pingIn / 2, Count: 2,
			}}).DialContext(ctx, "tcp", addr)
		}),
		// The windows do not grow and the buffers are small: memory is what the agent has least of, and
		// what it writes at once is as large as the buffer that the server keeps of TLS.
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(2*window),
		// Records of TLS are as large, and so is what the server keeps for each of its machines.
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(2<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)), grpc.WithMaxHeaderListSize(16<<10),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: c.ping, Timeout: pingIn, PermitWithoutStream: true}),
	)
	if err != nil {
		return token, false, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer func() {
		cancel(errEnded)
		_ = conn.Close()
		running.Wait()
	}()
	client := tpb.NewTunnelClient(conn)
	impatience := time.AfterFunc(connectIn, func() { cancel(fmt.Errorf("the server has not answered within %s", connectIn)) })
	defer impatience.Stop()
	ctx = c.says(ctx, token)
	stream, err := client.Register(ctx)
	if err != nil {
		return token, false, because(ctx, err)
	}
	r := &register{Tunnel_RegisterClient: stream}
	name := c.name()
	if err := r.say(&tpb.RegisterOp{Registration: &tpb.RegisterOp_Target{Target: &tpb.Target{
		Op: tpb.Target_ADD, Target: name, TargetType: TargetType,
	}}}); err != nil {
		_, err = stream.Recv() // it says why
		return token, false, because(ctx, err)
	}
	for refused := 0; ; {
		op, err := stream.Recv()
		if err != nil {
			return token, stood, because(ctx, err)
		}
		switch op := op.GetRegistration().(type) {
		case *tpb.RegisterOp_Target:
			t := op.Target
			switch {
			case t.GetError() != "":
				return token, stood, status.Error(codes.Unavailable, printable(t.GetError()))
			case t.GetOp() != tpb.Target_UNKNOWN: // targets of others
			case t.GetAccept():
				impatience.Stop()
				if !stood {
					stood = true
					taken()
					c.log.Info("dialled in", "as", name)
				}
			}
		case *tpb.RegisterOp_Session:
			s := op.Session
			why := ""
			switch {
			case s.GetTag() <= 0: // none was asked for here
				continue
			case s.GetTarget() != name || s.GetTargetType() != TargetType:
				why = "there is no such target here"
			default:
				select {
				case c.slots <- struct{}{}:
					running.Go(func() { c.session(ctx, client, r, s) })
					continue
				default:
					why = fmt.Sprintf("%d sessions are open, which is all that there may be", maxSessions)
				}
			}
			if refused++; refused > maxRefused {
				return token, stood, fmt.Errorf("the server has asked for %d sessions that it could not have", refused)
			}
			if err := r.say(refusal(s, why)); err != nil {
				continue // Recv says why
			}
		}
	}
}

const (
	window     = 64 << 10
	maxMessage = 256 << 10
)

// because prefers why it was ended here.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// name is how the target is called.
func (c *Client) name() string {
	if n := printable(c.about.Hostname); n != "" {
		return n
	}
	return "auspex-agent"
}

// says returns a context whose calls say who the machine is.
func (c *Client) says(ctx context.Context, token string) context.Context {
	kv := []string{}
	for _, m := range [][2]string{
		{MetaHostname, c.about.Hostname}, {MetaSerial, c.about.Serial}, {MetaUUID, c.about.UUID}, {MetaMachine, c.about.Machine},
	} {
		if v := printable(m[1]); v != "" {
			kv = append(kv, m[0], v)
		}
	}
	if token != "" {
		kv = append(kv, MetaToken, Scheme+token)
	}
	return metadata.AppendToOutgoingContext(ctx, kv...)
}

func refusal(s *tpb.Session, why string) *tpb.RegisterOp {
	return &tpb.RegisterOp{Registration: &tpb.RegisterOp_Session{Session: &tpb.Session{
		Tag: s.GetTag(), Target: s.GetTarget(), TargetType: s.GetTargetType(), Error: why,
	}}}
}

// session opens what the server asked for, and returns when it is closed.
func (c *Client) session(ctx context.Context, client tpb.TunnelClient, r *register, s *tpb.Session) {
	defer func() { <-c.slots }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Tunnel(ctx)
	if err == nil {
		err = stream.Send(&tpb.Data{Tag: s.GetTag()})
	}
	if err != nil {
		_ = r.say(refusal(s, "the tunnel could not be opened: "+printable(sentence(err))))
		return
	}
	conn := NewConn(stream, c.cfg.Peer(), cancel)
	defer func() { _ = conn.Close() }()
	if !c.out.hand(ctx, conn) {
		return
	}
	select {
	case <-ctx.Done():
	case <-conn.Done():
	}
}

// Sessions is a listener of connections that come through tunnels.
type Sessions struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

// NewSessions returns a listener.
func NewSessions() *Sessions {
	return &Sessions{conns: make(chan net.Conn), ended: make(chan struct{})}
}

func (s *Sessions) hand(ctx context.Context, c net.Conn) bool {
	select {
	case s.conns <- c:
		return true
	case <-s.ended:
	case <-ctx.Done():
	}
	return false
}

// Accept implements [net.Listener].
func (s *Sessions) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.ended:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (s *Sessions) Close() error {
	s.once.Do(func() { close(s.ended) })
	return nil
}

// Addr implements [net.Listener].
func (*Sessions) Addr() net.Addr { return Addr("tunnel") }
