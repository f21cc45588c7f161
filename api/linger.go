package api

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"time"
)

const (
	lingerFor   = 2 * time.Second // within the grace that a stop has
	lingerBytes = 64 << 20
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

// conn reads on for a while before it closes if the answer went out before the
// request was read. Closing at once would send a reset, and the sender, still
// writing, would see that instead of the reason (RFC 9112 section 9.6).
type conn struct {
	net.Conn
	unread atomic.Bool
}

// linger notes that a request is answered but not read to its end.
func linger(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if c, ok := c.(*conn); ok {
		c.unread.Store(true)
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
