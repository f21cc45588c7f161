package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	tpb "github.com/openconfig/grpctunnel/proto/tunnel"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"auspex/internal/tunnel/outbound"
)

const (
	maxUnanswered = 8    // sessions in a row for which nothing came
	maxUnasked    = 1000 // messages in one connection
	lastWords     = time.Second
)

// link is the connection of a machine.
type link struct {
	server *Server
	conn   net.Conn // beneath TLS
	key    string
	mute   *time.Timer // until it has registered
	open   atomic.Int32

	// Of the server's mutex, once it is admitted.
	machine   Machine
	admission Admission
	since     time.Time

	mu         sync.Mutex
	stream     tpb.Tunnel_RegisterServer // nil until it is admitted
	target     *tpb.Target               // what it serves
	ready      chan struct{}             // closed when it has a target
	tag        int32
	waiting    map[int32]chan answer
	unanswered int
	unasked    int
	ended      bool
}

// answer is what became of a session that was wanted.
type answer struct {
	conn *outbound.Conn
	err  error
}

// AuthType implements [credentials.AuthInfo].
func (*link) AuthType() string { return "tunnel" }

// newLink is a machine that has proven its key, and has to say who it is.
func (s *Server) newLink(conn net.Conn, key string) *link {
	l := &link{server: s, conn: conn, key: key, ready: make(chan struct{}), waiting: map[int32]chan answer{}}
	l.mute = time.AfterFunc(registerIn, func() {
		s.counted(resultMute)
		_ = conn.Close()
	})
	return l
}

// began takes the stream on which sessions are asked for, once.
func (l *link) began(stream tpb.Tunnel_RegisterServer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream != nil {
		return false
	}
	l.stream = stream
	return true
}

// say sends; so few messages are on the way at a time that nobody waits for a machine that does
// not read them.
func (l *link) say(op *tpb.RegisterOp) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stream.Send(op)
}

// cut tells the machine why, and ends the connection soon.
func (l *link) cut(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	if l.stream != nil {
		_ = l.stream.Send(&tpb.RegisterOp{Registration: &tpb.RegisterOp_Target{Target: &tpb.Target{
			Target: l.target.GetTarget(), TargetType: l.target.GetTargetType(), Error: why,
		}}})
	}
	time.AfterFunc(lastWords, func() { _ = l.conn.Close() })
}

// hear takes what the machine says until it ends.
func (l *link) hear() error {
	for {
		op, err := l.stream.Recv()
		if err != nil {
			return err
		}
		if err := l.take(op); err != nil {
			return err
		}
	}
}

func (l *link) take(op *tpb.RegisterOp) error {
	switch op := op.GetRegistration().(type) {
	case *tpb.RegisterOp_Target:
		if t := op.Target; t.GetOp() == tpb.Target_ADD && t.GetTarget() != "" && l.serves(t) {
			return l.say(&tpb.RegisterOp{Registration: &tpb.RegisterOp_Target{Target: &tpb.Target{
				Target: t.GetTarget(), TargetType: t.GetTargetType(), Accept: true,
			}}})
		}
	case *tpb.RegisterOp_Session:
		if s := op.Session; s.GetError() != "" && l.answered(s.GetTag(), answer{err: fmt.Errorf("%w: %.200s", errDeclined, s.GetError())}) {
			return nil
		}
	}
	l.server.metrics.unasked.Inc()
	if l.unasked++; l.unasked > maxUnasked {
		l.server.counted(resultFlood)
		return status.Errorf(codes.ResourceExhausted, "%d messages came that nobody had asked for", l.unasked)
	}
	return nil
}

var errDeclined = errors.New("the machine declines")

// serves notes the target, of which a machine has one.
func (l *link) serves(t *tpb.Target) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.target != nil {
		return false
	}
	l.target = t
	close(l.ready)
	return true
}

// answered gives an answer to who waits for it.
func (l *link) answered(tag int32, a answer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w, ok := l.waiting[tag]
	if ok {
		delete(l.waiting, tag)
		l.unanswered = 0
		w <- a // it has room for one
	}
	return ok
}

// session has a connection opened through the tunnel.
func (l *link) session(ctx context.Context) (net.Conn, error) {
	select {
	case <-l.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("it has named no target: %w", ctx.Err())
	}
	w := make(chan answer, 1)
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return nil, errGone
	}
	l.tag++
	tag := l.tag
	l.waiting[tag] = w
	l.unanswered++
	mute := l.unanswered > maxUnanswered
	var err error
	if !mute {
		err = l.stream.Send(&tpb.RegisterOp{Registration: &tpb.RegisterOp_Session{Session: &tpb.Session{
			Tag: tag, Accept: true, Target: l.target.GetTarget(), TargetType: l.target.GetTargetType(),
		}}})
	}
	l.mu.Unlock()
	if mute {
		l.server.counted(resultMute)
		l.cut(fmt.Sprintf("%d sessions in a row were not answered", maxUnanswered))
		err = errGone
	}
	if err != nil {
		l.forget(tag)
		return nil, err
	}
	select {
	case a := <-w:
		if a.err != nil {
			return nil, a.err
		}
		return a.conn, nil
	case <-ctx.Done():
		l.forget(tag)
		select {
		case a := <-w: // it came at the same moment
			if a.conn != nil {
				_ = a.conn.Close()
			}
		default:
		}
		return nil, fmt.Errorf("it has not answered: %w", ctx.Err())
	}
}

var errGone = errors.New("the connection has ended")

func (l *link) forget(tag int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, tag)
}

// gone answers all who wait.
func (l *link) gone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for tag, w := range l.waiting {
		delete(l.waiting, tag)
		w <- answer{err: errGone}
	}
}
