package tunnel_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tpb "github.com/openconfig/grpctunnel/proto/tunnel"
	foreign "github.com/openconfig/grpctunnel/tunnel"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/certtest"
	"auspex/internal/tunnel"
	"auspex/internal/tunnel/outbound"
	"auspex/internal/tunnel/tunneltest"
	"auspex/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text collects what is logged.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.String()
}

func (t *text) logger() *slog.Logger { return slog.New(slog.NewTextHandler(t, nil)) }

// machine dials a server; what comes through the tunnel is sent back as it comes.
type machine struct {
	t     *testing.T
	dir   string
	cfg   outbound.Config
	about outbound.About
	log   text
	stop  func()
}

func newMachine(t *testing.T, addr, ca, token string) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir(), about: outbound.About{Hostname: "node-1", Serial: "S1", UUID: "U1"}, stop: func() {}}
	m.cfg = outbound.Config{Address: addr, CAFile: ca, TokenFile: filepath.Join(m.dir, "token"), Retry: 50 * time.Millisecond}
	m.shows(token)
	t.Cleanup(func() { m.stop() })
	return m
}

func (m *machine) shows(token string) {
	m.t.Helper()
	if err := os.WriteFile(m.cfg.TokenFile, []byte(token+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) identity() tls.Certificate {
	m.t.Helper()
	own, err := outbound.Identity(filepath.Join(m.dir, "key"))
	if err != nil {
		m.t.Fatal(err)
	}
	return own
}

func (m *machine) start() {
	m.t.Helper()
	sessions := outbound.NewSessions()
	client := outbound.New(m.cfg, m.identity(), m.about, sessions, m.log.logger())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(ctx) })
	wg.Go(func() {
		for {
			c, err := sessions.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	m.stop = sync.OnceFunc(func() {
		cancel()
		_ = sessions.Close()
		wg.Wait()
	})
}

// echo sends through the tunnel and waits for what comes back.
func echo(ctx context.Context, s *tunneltest.Server, server string) error {
	c, err := s.Dial(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	sent := bytes.Repeat([]byte("through the tunnel "), 20_000)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		wrote <- err
	}()
	got := make([]byte, len(sent))
	_, err = io.ReadFull(c, got)
	if err = errors.Join(err, <-wrote); err == nil && !bytes.Equal(sent, got) {
		err = errors.New("what came back is not what was sent")
	}
	return err
}

func reaches(t *testing.T, s *tunneltest.Server, server string) {
	t.Helper()
	waittest.Until(t, func() error { return echo(t.Context(), s, server) })
}

func TestAMachineIsReachedThroughItsOwnConnection(t *testing.T) {
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"one": "gpu-1"}), slog.New(slog.DiscardHandler))
	m := newMachine(t, s.Addr, s.CA, "one")
	if err := echo(t.Context(), s, "gpu-1"); !errors.Is(err, tunnel.ErrAway) || err.Error() != "the agent of gpu-1: has not dialled in" {
		t.Errorf("before: %v", err)
	}
	m.start()
	var wg sync.WaitGroup
	for range 8 { // at a time
		wg.Go(func() {
			if err := echo(t.Context(), s, "gpu-1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	waittest.For(t, "sessions stay open", func() bool { return s.Counted(t, "sessions", "") == 0 })
	got := s.Machines()
	if len(got) != 1 || len(got[0].Key) != 64 || time.Since(got[0].Since) > time.Minute || !strings.HasPrefix(got[0].Address, "127.0.0.1:") {
		t.Fatalf("machines: %+v", got)
	}
	want := tunnel.Connected{
		Machine:   tunnel.Machine{Key: got[0].Key, Serial: "S1", UUID: "U1", Hostname: "node-1", Address: got[0].Address},
		Admission: tunnel.Admission{Token: "t-gpu-1", Server: "gpu-1"}, Since: got[0].Since,
	}
	if d := cmp.Diff([]tunnel.Connected{want}, got); d != "" {
		t.Error(d)
	}
	m.stop()
	waittest.For(t, "it is still there", func() bool { return len(s.Machines()) == 0 })
}

func TestADeadlineEndsAConnection(t *testing.T) {
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"one": "gpu-1"}), slog.New(slog.DiscardHandler))
	m := newMachine(t, s.Addr, s.CA, "one")
	m.start()
	reaches(t, s, "gpu-1")
	c, err := s.Dial(t.Context(), "gpu-1")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	waittest.For(t, "the session stays", func() bool { return s.Counted(t, "sessions", "") == 0 })
}

// A token is no secret for long: it is in no log and no error.
func TestARefusedMachineAsksAgainWhenItsTokenHasChanged(t *testing.T) {
	var log text
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"good-token": "gpu-1"}), log.logger())
	m := newMachine(t, s.Addr, s.CA, "bad-token")
	m.start()
	waittest.For(t, "it is not refused", func() bool { return s.Counted(t, "connections_total", "refused") > 0 })
	for _, l := range []*text{&log, &m.log} {
		waittest.For(t, "no sentence", func() bool { return strings.Count(l.String(), "its join token is not known") == 1 })
		if strings.Contains(l.String(), "bad-token") {
			t.Errorf("the token is told: %s", l)
		}
	}
	time.Sleep(time.Second) // it would have tried twenty times
	if n := s.Counted(t, "connections_total", "refused"); n != 1 {
		t.Errorf("%v tries", n)
	}
	m.shows("good-token")
	reaches(t, s, "gpu-1")
}

func TestATokenOfOneMachineIsNoneOfAnother(t *testing.T) {
	var log text
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"one": "gpu-1"}), log.logger())
	first, second := newMachine(t, s.Addr, s.CA, "one"), newMachine(t, s.Addr, s.CA, "one")
	first.start()
	reaches(t, s, "gpu-1")
	second.start()
	waittest.For(t, "it is not refused", func() bool { return strings.Contains(second.log.String(), "the join token has been used") })
	if got := s.Counted(t, "connections_total", "refused"); got != 1 || len(s.Machines()) != 1 {
		t.Errorf("%v refused, machines %+v", got, s.Machines())
	}
	reaches(t, s, "gpu-1")
}

func TestWhileTheStoreIsAwayWhoIsConnectedStaysAndOthersWait(t *testing.T) {
	tokens := tunneltest.NewTokens(map[string]string{"one": "gpu-1", "two": "gpu-2"})
	s := tunneltest.Start(t, tokens, slog.New(slog.DiscardHandler))
	first, second := newMachine(t, s.Addr, s.CA, "one"), newMachine(t, s.Addr, s.CA, "two")
	first.start()
	reaches(t, s, "gpu-1")
	tokens.Away(errors.New("connection refused"))
	s.Review(t.Context())
	second.start()
	waittest.For(t, "it does not try again", func() bool { return s.Counted(t, "connections_total", "store_away") > 2 })
	reaches(t, s, "gpu-1")
	if s.Counted(t, "admissions_unread_total", "") != 1 {
		t.Error("it is not counted that the store was away")
	}
	tokens.Away(nil)
	reaches(t, s, "gpu-2")
}

func TestWhoIsPlacedIsRenamedAndWhoIsRevokedIsCutOff(t *testing.T) {
	var log text
	tokens := tunneltest.NewTokens(map[string]string{"any": ""})
	s := tunneltest.Start(t, tokens, log.logger())
	m := newMachine(t, s.Addr, s.CA, "any")
	m.start()
	waittest.For(t, "it is not there", func() bool { return len(s.Machines()) == 1 && s.Counted(t, "machines_unplaced", "") == 1 })
	key := s.Machines()[0].Key
	for _, server := range []string{"gpu-7", "gpu-8"} {
		tokens.Place(key, server)
		s.Review(t.Context())
		if err := echo(t.Context(), s, server); err != nil {
			t.Error(err)
		}
	}
	if err := echo(t.Context(), s, "gpu-7"); !errors.Is(err, tunnel.ErrAway) {
		t.Errorf("under its old name: %v", err)
	}
	c, err := s.Dial(t.Context(), "gpu-8")
	if err != nil {
		t.Fatal(err)
	}
	tokens.Place(key, "")
	s.Review(t.Context())
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("its session goes on: %v", err)
	}
	waittest.For(t, "it does not hear why", func() bool { return strings.Contains(m.log.String(), "this machine, or its token, was revoked") })
	waittest.For(t, "it is not refused", func() bool { return s.Counted(t, "connections_total", "refused") > 0 })
	if len(s.Machines()) != 0 || s.Counted(t, "connections_total", "cut") != 1 {
		t.Errorf("machines: %+v", s.Machines())
	}
}

func TestTheSameMachineReplacesItsConnectionAndAnotherDoesNot(t *testing.T) {
	tokens := tunneltest.NewTokens(map[string]string{"one": "gpu-1", "two": "gpu-1"})
	s := tunneltest.Start(t, tokens, slog.New(slog.DiscardHandler))
	m := newMachine(t, s.Addr, s.CA, "one")
	m.start()
	reaches(t, s, "gpu-1")
	since := s.Machines()[0].Since

	again := newMachine(t, s.Addr, s.CA, "one") // its first connection is half open, say
	again.dir = m.dir
	again.start()
	waittest.For(t, "it is not replaced", func() bool { return s.Counted(t, "connections_total", "replaced") > 0 })
	m.stop()
	reaches(t, s, "gpu-1")
	if got := s.Machines(); len(got) != 1 || !got[0].Since.After(since) {
		t.Errorf("machines: %+v", got)
	}

	copied := newMachine(t, s.Addr, s.CA, "one")
	copied.dir, copied.about.UUID = m.dir, "U2"
	copied.start()
	waittest.For(t, "a copy is taken", func() bool { return strings.Contains(copied.log.String(), "a data folder of an agent was copied") })
	copied.stop()

	other := newMachine(t, s.Addr, s.CA, "two") // of the same server
	other.about = outbound.About{Hostname: "node-2", Serial: "S2"}
	other.start()
	waittest.For(t, "two machines are one server", func() bool {
		return strings.Contains(other.log.String(), "another machine, node-1 at 127.0.0.1") && strings.Contains(other.log.String(), "is dialled in as gpu-1")
	})
	reaches(t, s, "gpu-1")
	again.stop()
	waittest.For(t, "it is not taken after the first has gone", func() bool { // by its next try
		got := s.Machines()
		return len(got) == 1 && got[0].Hostname == "node-2"
	})
	reaches(t, s, "gpu-1")
}

func TestAServerThatIsNotTheOneIsNotSpokenTo(t *testing.T) {
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"one": "gpu-1"}), slog.New(slog.DiscardHandler))
	for name, change := range map[string]func(*outbound.Config){
		"another authority": func(c *outbound.Config) { c.CAFile = certtest.New(t).File },
		"another name":      func(c *outbound.Config) { c.ServerName = "elsewhere.example" },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, s.Addr, s.CA, "one")
			change(&m.cfg)
			m.start()
			waittest.For(t, "no sentence", func() bool { return strings.Contains(m.log.String(), "certificate") })
		})
	}
	if len(s.Machines()) != 0 || s.Counted(t, "connections_total", "admitted") != 0 {
		t.Errorf("machines: %+v", s.Machines())
	}
}

// raw is a machine that does what it wants.
func raw(t *testing.T, s *tunneltest.Server, token string) tpb.TunnelClient {
	t.Helper()
	own, err := outbound.Identity(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return rawAs(t, s, token, &tls.Config{Certificates: []tls.Certificate{own}, InsecureSkipVerify: true}) //nolint:gosec // a test of the server
}

func rawAs(t *testing.T, s *tunneltest.Server, token string, tc *tls.Config) tpb.TunnelClient {
	t.Helper()
	conn, err := grpc.NewClient(s.Addr, grpc.WithTransportCredentials(credentials.NewTLS(tc)), grpc.WithStreamInterceptor(
		func(ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			return next(metadata.AppendToOutgoingContext(ctx, outbound.MetaToken, outbound.Scheme+token), d, cc, method, o...)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return tpb.NewTunnelClient(conn)
}

func target(op tpb.Target_TargetOp, name string) *tpb.RegisterOp {
	return &tpb.RegisterOp{Registration: &tpb.RegisterOp_Target{Target: &tpb.Target{Op: op, Target: name, TargetType: outbound.TargetType}}}
}

func TestAMachineThatMisbehavesHarmsItselfAlone(t *testing.T) {
	t.Parallel()
	tokens := map[string]string{"good": "gpu-good"}
	for i := range 10 {
		tokens[fmt.Sprint("t", i)] = fmt.Sprint("gpu-", i)
	}
	s := tunneltest.Start(t, tunneltest.NewTokens(tokens), slog.New(slog.DiscardHandler))
	good := newMachine(t, s.Addr, s.CA, "good")
	good.start()
	reaches(t, s, "gpu-good")
	counted := func(result string, n float64) {
		t.Helper()
		waittest.For(t, "not counted: "+result, func() bool { return s.Counted(t, "connections_total", result) >= n })
	}
	register := func(c tpb.TunnelClient) tpb.Tunnel_RegisterClient {
		t.Helper()
		r, err := c.Register(t.Context())
		if err == nil {
			err = r.Send(target(tpb.Target_ADD, "node"))
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	t.Run("it shows no certificate", func(t *testing.T) {
		c := rawAs(t, s, "t0", &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test of the server
		r, err := c.Register(t.Context())
		if err == nil {
			_, err = r.Recv()
		}
		if err == nil {
			t.Error("it is taken")
		}
		counted("handshake", 1)
	})
	t.Run("it speaks no TLS", func(t *testing.T) {
		c, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		counted("handshake", 2)
	})
	t.Run("it opens tunnels before it has registered", func(t *testing.T) {
		c, err := raw(t, s, "t1").Tunnel(t.Context())
		if err == nil {
			_ = c.Send(&tpb.Data{Tag: 1})
			_, err = c.Recv()
		}
		if status.Convert(err).Message() != "register first" {
			t.Error(err)
		}
	})
	t.Run("it opens tunnels that nobody asked for", func(t *testing.T) {
		c := raw(t, s, "t2")
		r := register(c)
		if _, err := r.Recv(); err != nil {
			t.Fatal(err)
		}
		tn, err := c.Tunnel(t.Context())
		if err == nil {
			_ = tn.Send(&tpb.Data{Tag: 1})
			_, err = tn.Recv()
		}
		if status.Convert(err).Message() != "nobody asked for a connection with this tag" {
			t.Error(err)
		}
	})
	t.Run("it says what nobody asked for without end", func(t *testing.T) {
		r := register(raw(t, s, "t3"))
		for range 5000 {
			if r.Send(target(tpb.Target_REMOVE, "node")) != nil {
				break
			}
		}
		for {
			if _, err := r.Recv(); err != nil {
				break
			}
		}
		counted("flood", 1)
	})
	t.Run("it asks for another machine", func(t *testing.T) {
		before := s.Counted(t, "unasked_total", "")
		r := register(raw(t, s, "t4"))
		_ = r.Send(&tpb.RegisterOp{Registration: &tpb.RegisterOp_Session{Session: &tpb.Session{Tag: -1, Target: "node-1", TargetType: outbound.TargetType}}})
		waittest.For(t, "not counted", func() bool { return s.Counted(t, "unasked_total", "") > before })
		if n := s.Counted(t, "sessions", ""); n != 0 {
			t.Errorf("%v sessions", n)
		}
	})
	t.Run("it answers no session", func(t *testing.T) {
		register(raw(t, s, "t5"))
		waittest.For(t, "it is not there", func() bool {
			return slices.ContainsFunc(s.Machines(), func(c tunnel.Connected) bool { return c.Server == "gpu-5" })
		})
		for range 9 {
			ctx, done := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if c, err := s.Dial(ctx, "gpu-5"); err == nil {
				_ = c.Close()
				t.Error("there is a connection")
			}
			done()
		}
		counted("mute", 1)
	})
	t.Run("it says nothing after the handshake", func(t *testing.T) {
		before := s.Counted(t, "connections_total", "mute")
		own, err := outbound.Identity(filepath.Join(t.TempDir(), "key"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", s.Addr, &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{"h2"}, InsecureSkipVerify: true}) //nolint:gosec // a test of the server
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		began := time.Now()
		_ = c.SetReadDeadline(began.Add(time.Minute))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it may stay")
		}
		counted("mute", before+1)
	})
	reaches(t, s, "gpu-good")
	waittest.For(t, "connections stay pending", func() bool { return s.Counted(t, "connections_pending", "") == 0 })
}

func TestAnAddressThatFloodsLeavesRoomForOthers(t *testing.T) {
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"one": "gpu-1"}), slog.New(slog.DiscardHandler))
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 700 {
		c, err := dialer.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	waittest.For(t, "the flood is taken", func() bool { return s.Counted(t, "connections_total", "flood") >= 150 })
	if n := s.Counted(t, "connections_pending", ""); n > 513 {
		t.Errorf("%v connections are pending", n)
	}
	m := newMachine(t, s.Addr, s.CA, "one")
	m.start()
	reaches(t, s, "gpu-1")
}

// A network that forwards no more is noticed at both ends.
func TestACutOfTheNetworkIsNoticedAtBothEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"one": "gpu-1"}), slog.New(slog.DiscardHandler))
	proxy := newProxy(t, s.Addr)
	m := newMachine(t, proxy.addr, s.CA, "one")
	m.start()
	reaches(t, s, "gpu-1")
	c, err := s.Dial(t.Context(), "gpu-1")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	proxy.cut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("something came")
	}
	waittest.For(t, "the server has not noticed", func() bool { return len(s.Machines()) == 0 })
	waittest.For(t, "the machine has not noticed", func() bool { return strings.Contains(m.log.String(), "the server is away") })
	took := time.Since(began)
	t.Logf("noticed after %s", took)
	if took > 45*time.Second {
		t.Errorf("noticed after %s", took)
	}
	proxy.mend()
	reaches(t, s, "gpu-1")
}

// proxy forwards connections until it is cut: then they stay open and nothing goes through.
type proxy struct {
	addr string
	mu   sync.Mutex
	gone chan struct{}
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), gone: make(chan struct{})}
	var wg sync.WaitGroup
	var conns []net.Conn
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			conns = append(conns, in, out)
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() { p.forward(way[0], way[1]) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		for _, c := range conns {
			_ = c.Close()
		}
		wg.Wait()
	})
	return p
}

func (p *proxy) forward(from, to net.Conn) {
	p.mu.Lock()
	gone := p.gone
	p.mu.Unlock()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-gone: // it goes nowhere, and nobody hears of it
			if err != nil {
				return
			}
			continue
		default:
		}
		if err == nil {
			_, err = to.Write(b[:n])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gone)
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = make(chan struct{})
}

// Another implementation of a machine is openconfig's client.
func TestOpenconfigsClientIsReached(t *testing.T) {
	s := tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"one": "gpu-1"}), slog.New(slog.DiscardHandler))
	at := foreign.Target{ID: "node", Type: outbound.TargetType}
	client, err := foreign.NewClient(raw(t, s, "one"), foreign.ClientConfig{
		RegisterHandler: func(foreign.Target) error { return nil },
		Handler: func(_ foreign.Target, c io.ReadWriteCloser) error {
			_, _ = io.Copy(c, c)
			_ = c.Close()
			return nil // an error would end its tunnel as a whole
		},
	}, map[foreign.Target]struct{}{at: {}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	for range 3 {
		waittest.Until(t, func() error {
			select {
			case err := <-done:
				t.Fatalf("it has ended: %v", err)
			default:
			}
			return echo(t.Context(), s, "gpu-1")
		})
	}
	cancel()
	<-done
}

// When a server starts again, those that were connected come back, and not all at once.
func TestAfterARestartOfTheServerAllComeBackWithoutAStampede(t *testing.T) {
	t.Parallel()
	const machines, retry = 500, 5 * time.Second
	servers := map[string]string{}
	for i := range machines {
		servers[fmt.Sprint("token-", i)] = fmt.Sprint("gpu-", i)
	}
	tokens := tunneltest.NewTokens(servers)
	ca := certtest.New(t)
	leaf := ca.Issue(t, time.Now().Add(time.Hour), "127.0.0.1")
	s := tunneltest.StartAt(t, "127.0.0.1:0", ca.File, leaf, tokens, slog.New(slog.DiscardHandler))
	addr := s.Addr
	all := make([]*machine, machines)
	for i := range all {
		all[i] = newMachine(t, addr, ca.File, fmt.Sprint("token-", i))
		all[i].cfg.Retry = retry
		all[i].start()
	}
	waittest.For(t, "not all are there", func() bool { return len(s.Machines()) == machines })
	// A machine that stands still lets come together what was to come apart; those that stampede do so each time.
	most := machines
	for try := 0; try < 3 && most > machines/4; try++ {
		s.Stop()
		s = tunneltest.StartAt(t, addr, ca.File, leaf, tokens, slog.New(slog.DiscardHandler))
		waittest.For(t, "not all are back", func() bool { return len(s.Machines()) == machines })
		at := make([]time.Time, 0, machines)
		for _, c := range s.Machines() {
			at = append(at, c.Since)
		}
		slices.SortFunc(at, time.Time.Compare)
		most = 0
		for i, first := range at { // within any tenth of the pause
			n := 0
			for _, then := range at[i:] {
				if then.Sub(first) < retry/10 {
					n++
				}
			}
			most = max(most, n)
		}
		t.Logf("back within %s; %d of %d within %s", at[machines-1].Sub(at[0]).Round(time.Millisecond), most, machines, retry/10)
	}
	if most > machines/4 {
		t.Errorf("%d of %d came within %s", most, machines, retry/10)
	}
	for _, m := range all {
		go m.stop()
	}
}
