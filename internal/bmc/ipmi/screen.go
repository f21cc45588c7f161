package ipmi

import (
	"context"
	"net"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"
)

// screen dials the library's connection and keeps datagrams from it that it
// cannot bear: it decrypts in a goroutine of its own, where a payload that is too
// short, from whomever it comes, would end the process.
type screen struct{ c *client.Client }

// Dial implements the library's proxy.
func (s screen) Dial(network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial(network, addr)
	if err != nil {
		return nil, err
	}
	return &screened{Conn: conn, c: s.c}, nil
}

// dialTimeout bounds the look-up of a name.
const dialTimeout = 3 * time.Second

type screened struct {
	net.Conn
	c *client.Client
}

// Read implements [net.Conn]. It passes over what cannot be decrypted.
func (s *screened) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if err != nil || s.bearable(b[:n]) {
			return n, err
		}
	}
}

// bearable tries the library's own parser.
func (s *screened) bearable(b []byte) (ok bool) {
	defer func() { ok = recover() == nil }()
	const rmcpPlus, encrypted = 0x06, 0x80
	if len(b) > 5 && b[4] == rmcpPlus && b[5]&encrypted != 0 {
		_ = s.c.ParseRmcpResponse(context.Background(), b, types.Command{}, ignored{})
	}
	return true
}

// ignored is an answer that nobody reads.
type ignored struct{}

func (ignored) Unpack([]byte) error { return nil }
func (ignored) Format() string      { return "" }
