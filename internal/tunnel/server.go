package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tpb "github.com/openconfig/grpctunnel/proto/tunnel"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"auspex/internal/tunnel/outbound"
)

const (
	askEvery    = 10 * time.Second // who may be connected
	askWithin   = 5 * time.Second
	admitAtOnce = 16               // questions to the store
	dialWithin  = 10 * time.Second // a session, where the caller has more patience
	awaitFor    = 3 * time.Second  // a machine that has not dialled in
	streams     = 32               // of one machine
	window      = 64 << 10
	readBuffer  = 512 // for the headers of frames: TLS has what came
	maxMessage  = 256 << 10
)

// Server takes machines that dial in. [Server.Run] starts it.
type Server struct {
	tpb.UnimplementedTunnelServer

	cfg     Config
	who     Admissions
	log     *slog.Logger
	cert    atomic.Pointer[tls.Certificate]
	gate    *gate
	metrics metrics
	asks    chan struct{}
	open    atomic.Int64
	told    told

	mu      sync.Mutex
	links   map[string]*link // by key
	servers map[string]*link // those that are placed, by server
	waiting map[string]*awaited
}

// awaited is a server that somebody wants to reach.
type awaited struct {
	ch chan struct{} // closed when it is there
	n  int
}

// New reads the certificate, and starts nothing.
func New(cfg Config, who Admissions, log *slog.Logger, reg prometheus.Registerer) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cert, err := cfg.TLS.Load()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, who: who, log: log, asks: make(chan struct{}, admitAtOnce),
		links: map[string]*link{}, servers: map[string]*link{}, waiting: map[string]*awaited{},
	}
	s.gate = newGate(nil, func() { s.counted(resultFlood) })
	s.cert.Store(cert)
	s.register(reg)
	return s, nil
}

// SetCertificate takes another certificate for those who dial in from now on.
func (s *Server) SetCertificate(c *tls.Certificate) { s.cert.Store(c) }

// Run takes machines until ctx is done. It calls ready with the address on which it listens.
func (s *Server) Run(ctx context.Context, ready func(addr net.Addr)) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.gate.Listener = l
	g := grpc.NewServer(
		grpc.Creds(newHandshake(s)), grpc.ConnectionTimeout(handshakeIn), grpc.MaxConcurrentStreams(streams), grpc.MaxHeaderListSize(16<<10),
		grpc.MaxRecvMsgSize(maxMessage), grpc.WaitForHandlers(true),
		// Windows that do not grow and small buffers: there are thousands of machines.
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(2*window), grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(4<<10),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	)
	tpb.RegisterTunnelServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(s.gate) }()
	if ready != nil {
		ready(l.Addr())
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.review(ctx)
		case <-ctx.Done():
			g.Stop()
			<-served
			return nil
		case err := <-served:
			g.Stop()
			return fmt.Errorf("serve: %w", err)
		}
	}
}

// Register implements the call of that name.
func (s *Server) Register(stream tpb.Tunnel_RegisterServer) error {
	p, _ := peer.FromContext(stream.Context())
	l, ok := p.AuthInfo.(*link)
	if !ok || !l.began(stream) {
		return status.Error(codes.FailedPrecondition, "this connection has registered already")
	}
	defer func() { // without it the connection is of no use
		l.mute.Stop()
		l.gone()
		time.AfterFunc(lastWords, func() { _ = l.conn.Close() })
	}()
	m, token := said(stream.Context(), l.key, p.Addr)
	a, err := s.admit(stream.Context(), token, m)
	if err != nil {
		return err
	}
	if err := s.enter(l, m, a); err != nil {
		return err
	}
	defer s.leave(l)
	return l.hear()
}

// said is what a machine says of itself, and its token.
func said(ctx context.Context, key string, addr net.Addr) (m Machine, token string) {
	md, _ := metadata.FromIncomingContext(ctx)
	first := func(key string) string {
		if v := md.Get(key); len(v) > 0 && len(v[0]) <= 4096 {
			return v[0]
		}
		return ""
	}
	m = Machine{Key: key, Serial: first(outbound.MetaSerial), UUID: first(outbound.MetaUUID), Hostname: first(outbound.MetaHostname), Address: addr.String()}
	token, _ = strings.CutPrefix(first(outbound.MetaToken), outbound.Scheme)
	return m, token
}

// admit asks the store, few at a time.
func (s *Server) admit(ctx context.Context, token string, m Machine) (a Admission, err error) {
	ctx, done := context.WithTimeout(ctx, askWithin)
	defer done()
	select {
	case s.asks <- struct{}{}:
		a, err = s.who.Admit(ctx, token, m)
		<-s.asks
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case errors.Is(err, ErrRefused):
		s.counted(resultRefused)
		s.refused(m, err.Error())
		return a, status.Error(codes.PermissionDenied, err.Error())
	case err != nil:
		s.counted(resultStore)
		s.told.once("store", func() { s.log.Error("machines wait: it cannot be read who may be connected", "error", err) })
		return a, status.Error(codes.Unavailable, "it cannot be read now who may be connected; try again")
	}
	return a, nil
}

func (s *Server) refused(m Machine, why string) {
	s.told.once(m.Key+why, func() {
		s.log.Warn("a machine that dials in is refused", "machine", m.Key, "hostname", m.Hostname, "serial", m.Serial, "from", m.Address, "error", why)
	})
}

// enter takes an admitted machine in. A newer connection replaces an older one of the same
// machine, which then is half open; two machines are never one server.
func (s *Server) enter(l *link, m Machine, a Admission) error {
	twin := func(why string) error {
		s.mu.Unlock()
		s.counted(resultTwin)
		s.refused(m, why)
		return status.Error(codes.Aborted, why)
	}
	s.mu.Lock()
	old := s.links[l.key]
	switch {
	case old != nil && (differ(old.machine.UUID, m.UUID) || differ(old.machine.Serial, m.Serial)):
		return twin(fmt.Sprintf("another machine, %s at %s, is dialled in with the same key: a data folder of an agent was copied", old.machine.Hostname, old.machine.Address))
	case old == nil && len(s.links) >= s.cfg.Machines:
		s.mu.Unlock()
		s.counted(resultFull)
		s.told.once("full", func() {
			s.log.Error("machines are refused: as many are dialled in as tunnel.machines allows", "machines", s.cfg.Machines)
		})
		return status.Errorf(codes.ResourceExhausted, "%d machines are dialled in, which is all that there may be", s.cfg.Machines)
	}
	if other := s.servers[a.Server]; a.Server != "" && other != nil && other.key != l.key {
		return twin(fmt.Sprintf("another machine, %s at %s, is dialled in as %s", other.machine.Hostname, other.machine.Address, a.Server))
	}
	if old != nil {
		s.drop(old)
	}
	l.machine, l.admission, l.since = m, a, time.Now()
	s.links[l.key] = l
	s.place(l, a.Server)
	s.mu.Unlock()
	l.mute.Stop()
	l.conn.(*caller).known()
	if old != nil {
		s.counted(resultReplaced)
		old.cut("a newer connection of the same machine takes its place")
	}
	s.counted(resultAdmitted)
	s.log.Info("a machine dialled in", "machine", m.Key, "hostname", m.Hostname, "from", m.Address, "is", a.Server, "token", a.Token)
	return nil
}

func differ(a, b string) bool { return a != "" && b != "" && !strings.EqualFold(a, b) }

// place notes which server a machine is, and wakes who waits for it. The caller holds mu.
func (s *Server) place(l *link, server string) {
	l.admission.Server = server
	if server == "" {
		return
	}
	s.servers[server] = l
	if w := s.waiting[server]; w != nil {
		close(w.ch)
		delete(s.waiting, server)
	}
}

// drop forgets a machine. The caller holds mu.
func (s *Server) drop(l *link) {
	if s.links[l.key] == l {
		delete(s.links, l.key)
	}
	if server := l.admission.Server; s.servers[server] == l {
		delete(s.servers, server)
	}
}

func (s *Server) leave(l *link) {
	s.mu.Lock()
	s.drop(l)
	server := l.admission.Server
	s.mu.Unlock()
	s.log.Info("a machine is gone", "machine", l.key, "hostname", l.machine.Hostname, "is", server)
}

// review cuts off who may no longer be connected, and renames who was placed.
func (s *Server) review(ctx context.Context) {
	asked := time.Now()
	ctx, done := context.WithTimeout(ctx, askWithin)
	defer done()
	now, err := s.who.Admitted(ctx)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.metrics.unread.Inc()
			s.told.once("review", func() { s.log.Warn("it cannot be read who may be connected: those who are stay", "error", err) })
		}
		return
	}
	var out []*link
	s.mu.Lock()
	var moved []*link
	for key, l := range s.links {
		a, ok := now[key]
		switch {
		case !ok && l.since.Before(asked): // who came since may be missing for that
			out = append(out, l)
			s.drop(l)
		case ok && a.Server != l.admission.Server && l.since.Before(asked):
			moved = append(moved, l)
			if s.servers[l.admission.Server] == l {
				delete(s.servers, l.admission.Server)
			}
		}
	}
	for _, l := range moved {
		l.admission = now[l.key]
		server := l.admission.Server
		if other := s.servers[server]; other != nil {
			s.counted(resultTwin)
			s.told.once(l.key+server, func() {
				s.log.Warn("a machine stays without a place: another is dialled in as that server", "machine", l.key, "is", server, "other", other.key)
			})
			server = ""
		}
		s.place(l, server)
	}
	s.mu.Unlock()
	for _, l := range out {
		s.counted(resultCut)
		s.log.Warn("a machine is cut off: it may no longer be connected", "machine", l.key, "hostname", l.machine.Hostname, "token", l.admission.Token)
		l.cut("this machine, or its token, was revoked")
	}
}

// Dial returns a connection to what the machine that is a server serves. One that has not dialled
// in is waited for a little.
func (s *Server) Dial(ctx context.Context, server string) (net.Conn, error) {
	ctx, done := context.WithTimeout(ctx, dialWithin)
	defer done()
	conn, err := s.dial(ctx, server)
	return s.dialled(conn, err, "the agent of "+server)
}

// dialled counts what became of a wish to dial.
func (s *Server) dialled(conn net.Conn, err error, what string) (net.Conn, error) {
	result := resultOpened
	switch {
	case errors.Is(err, ErrAway):
		result = resultAway
	case errors.Is(err, errDeclined):
		result = resultDeclined
	case err != nil:
		result = resultUnanswered
	}
	s.metrics.dials.WithLabelValues(result).Inc()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return conn, nil
}

func (s *Server) dial(ctx context.Context, server string) (net.Conn, error) {
	l, err := s.await(ctx, server)
	if err != nil {
		return nil, err
	}
	return l.session(ctx)
}

// await returns the machine that is a server.
func (s *Server) await(ctx context.Context, server string) (*link, error) {
	timer := time.NewTimer(awaitFor)
	defer timer.Stop()
	for {
		s.mu.Lock()
		if l := s.servers[server]; l != nil {
			s.mu.Unlock()
			return l, nil
		}
		w := s.waiting[server]
		if w == nil {
			w = &awaited{ch: make(chan struct{})}
			s.waiting[server] = w
		}
		w.n++
		s.mu.Unlock()
		var err error
		select {
		case <-w.ch:
			continue
		case <-timer.C:
			err = ErrAway
		case <-ctx.Done():
			err = fmt.Errorf("%w: %w", ErrAway, ctx.Err())
		}
		s.mu.Lock()
		if w.n--; w.n == 0 && s.waiting[server] == w {
			delete(s.waiting, server)
		}
		s.mu.Unlock()
		return nil, err
	}
}

// Tunnel implements the call of that name: the connection that a session had asked for.
func (s *Server) Tunnel(stream tpb.Tunnel_TunnelServer) error {
	p, _ := peer.FromContext(stream.Context())
	l, ok := p.AuthInfo.(*link)
	if !ok || !s.has(l) {
		return status.Error(codes.FailedPrecondition, "register first")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	conn := outbound.NewConn(stream, outbound.Peer{Name: l.machine.Address, Verified: true}, nil)
	defer func() { _ = conn.Close() }()
	if len(first.GetData()) > 0 || !l.answered(first.GetTag(), answer{conn: conn}) {
		s.metrics.unasked.Inc()
		return status.Error(codes.NotFound, "nobody asked for a connection with this tag")
	}
	s.open.Add(1)
	l.open.Add(1)
	defer func() { s.open.Add(-1); l.open.Add(-1) }()
	select {
	case <-conn.Done():
	case <-stream.Context().Done():
	}
	return nil
}

func (s *Server) has(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[l.key] == l
}

// told says the same thing once in a while.
type told struct {
	mu sync.Mutex
	at map[string]time.Time
}

const (
	tellEvery = 10 * time.Minute
	maxTold   = 1024
)

func (t *told) once(what string, say func()) {
	t.mu.Lock()
	now := time.Now()
	at, known := t.at[what]
	again := known && now.Sub(at) < tellEvery
	if !again {
		if t.at == nil || len(t.at) >= maxTold { // what was told may be told again
			t.at = map[string]time.Time{}
		}
		t.at[what] = now
	}
	t.mu.Unlock()
	if !again {
		say()
	}
}
