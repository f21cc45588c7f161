// Package outbound is the machine's side of a tunnel (openconfig/grpctunnel,
// proto/tunnel/tunnel.proto): a client keeps one connection to a server, shows a token and a
// key of its own, and hands out what the server opens through it as connections.
package outbound

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	tpb "github.com/openconfig/grpctunnel/proto/tunnel"
)

// TargetType is what is served through the tunnel (tunnel.proto, TargetType).
var TargetType = tpb.TargetType_GNMI_GNOI.String()

// Metadata of the calls of a tunnel: what a machine says of itself. The token is in
// "authorization", as a bearer's.
const (
	MetaToken    = "authorization"
	MetaHostname = "auspex-hostname"
	MetaSerial   = "auspex-serial"
	MetaUUID     = "auspex-uuid"
	MetaMachine  = "auspex-machine" // SHA-256 of the machine-id, in hex
)

// Scheme stands before the token.
const Scheme = "Bearer "

// maxWrite is how much goes into one message, in bytes.
const maxWrite = 32 << 10

// Stream is either end of the call Tunnel.
type Stream interface {
	Send(*tpb.Data) error
	Recv() (*tpb.Data, error)
	Context() context.Context
}

// Conn is a connection through a tunnel. A deadline that passes ends it.
type Conn struct {
	stream Stream
	peer   Peer
	end    func()
	done   chan struct{}

	left []byte // of the last message; the reader's
	wmu  sync.Mutex

	mu     sync.Mutex
	timer  *time.Timer
	closed error
}

// Peer is who is at the other end.
type Peer struct {
	Name     string // of the certificate that was verified, else the address
	Verified bool
}

// NewConn makes a connection of a stream. End is called once, when it is closed, and has to end
// the stream.
func NewConn(s Stream, peer Peer, end func()) *Conn {
	return &Conn{stream: s, peer: peer, end: end, done: make(chan struct{})}
}

// Peer says who is at the other end.
func (c *Conn) Peer() Peer { return c.peer }

// Done is closed when the connection is closed at this end.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Read implements [net.Conn].
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		chunk, err := c.Chunk()
		if err != nil {
			return 0, err
		}
		c.left = chunk
	}
	n := copy(b, c.left)
	if c.left = c.left[n:]; len(c.left) == 0 {
		c.left = nil // a message is not held for its last bytes
	}
	return n, nil
}

// Chunk is Read of as much as came at a time, without a copy; it has at least one byte, and is the
// caller's. One who reads in chunks does not read otherwise.
func (c *Conn) Chunk() ([]byte, error) {
	for {
		m, err := c.stream.Recv()
		switch {
		case err != nil:
			return nil, c.why(err)
		case m.GetClose():
			return nil, io.EOF
		case len(m.GetData()) > 0:
			return m.GetData(), nil
		}
	}
}

// Write implements [net.Conn].
func (c *Conn) Write(b []byte) (n int, err error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	for len(b) > 0 {
		part := b[:min(len(b), maxWrite)]
		select {
		case <-c.done:
			return n, c.why(net.ErrClosed)
		default:
		}
		if err := c.stream.Send(&tpb.Data{Data: part}); err != nil {
			return n, c.why(err)
		}
		n, b = n+len(part), b[len(part):]
	}
	return n, nil
}

// why is the reason of the end at this side, else that of the stream.
func (c *Conn) why(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return c.closed
	}
	return err
}

func (c *Conn) close(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return
	}
	c.closed = err
	if c.timer != nil {
		c.timer.Stop()
	}
	close(c.done)
	if c.end != nil {
		c.end()
	}
}

// Close implements [net.Conn]. It waits for nothing.
func (c *Conn) Close() error {
	c.close(net.ErrClosed)
	return nil
}

// SetDeadline implements [net.Conn]: what is not done then never will be.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return c.closed
	}
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t), func() { c.close(os.ErrDeadlineExceeded) })
	}
	return nil
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// LocalAddr implements [net.Conn].
func (c *Conn) LocalAddr() net.Addr { return Addr("tunnel") }

// RemoteAddr implements [net.Conn].
func (c *Conn) RemoteAddr() net.Addr { return Addr(c.peer.Name) }

// Addr is the name of an end of a tunnel.
type Addr string

// Network implements [net.Addr].
func (Addr) Network() string { return "tunnel" }

// String implements [net.Addr].
func (a Addr) String() string { return string(a) }
