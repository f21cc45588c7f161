package api

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	lingerFor   = 2 * time.Second // within the grace that a stop has
	lingerBytes = 64 << 20
	writeWithin = time.Minute // for each write, of an answer or of a stream
	maxEarly    = 16 << 10    // bytes that are read ahead
)

// listener gives connections that can be closed without cutting off an answer.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// ours returns the connection below TLS.
func ours(c net.Conn) (*conn, bool) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, ok := c.(*conn)
	return own, ok
}

// conn reads on for a while before it closes if the answer went out before the
// request was read. Closing at once would send a reset, and the sender, still
// writing, would see that instead of the reason (RFC 9112 section 9.6).
type conn struct {
	net.Conn
	unread atomic.Bool
	early  []byte // of the next request, read while this one was answered
}

// Read implements io.Reader.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.early) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.early)
	c.early = c.early[n:]
	return n, nil
}

// Write implements io.Writer. A reader that takes nothing does not hold what
// waits for it for ever.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// linger notes that a request is answered but not read to its end.
func linger(c net.Conn) {
	if c, ok := ours(c); ok {
		c.unread.Store(true)
	}
}

// watch calls gone when the other side closes the connection while its request
// is answered. It reads ahead to see that, since nothing else tells; stop has to
// be called before the connection is read again.
func watch(c net.Conn, gone func()) (stop func()) {
	own, ok := ours(c)
	if !ok || own.SetReadDeadline(time.Time{}) != nil {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for len(own.early) < maxEarly {
			n, err := own.Conn.Read(buf)
			own.early = append(own.early, buf[:n]...)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					gone()
				}
				return
			}
		}
	}()
	return func() {
		_ = own.SetReadDeadline(time.Unix(1, 0)) // ends the read
		<-done
		_ = own.SetReadDeadline(time.Time{})
	}
}

func (c *conn) Close() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.unread.Swap(false) && half.CloseWrite() == nil {
		if c.SetReadDeadline(time.Now().Add(lingerFor)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
		}
	}
	return c.Conn.Close()
}
