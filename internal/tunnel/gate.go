package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"auspex/internal/tunnel/outbound"
)

const (
	// maxPending bounds the connections that have not shown who they are; one address has half
	// of them, so that others get in beside it.
	maxPending  = 1024
	maxOfOne    = maxPending / 2
	handshakeIn = 10 * time.Second // TLS and HTTP/2
	registerIn  = 10 * time.Second // after that, until the machine is admitted
)

// gate is the listener: it closes what comes while too many have not shown who they are.
type gate struct {
	net.Listener
	refused func()

	mu    sync.Mutex
	from  map[string]int
	total int
}

func newGate(l net.Listener, refused func()) *gate {
	return &gate{Listener: l, refused: refused, from: map[string]int{}}
}

func (g *gate) pending() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		g.mu.Lock()
		full := g.total >= maxPending || g.from[host] >= maxOfOne
		if !full {
			g.total++
			g.from[host]++
		}
		g.mu.Unlock()
		if full {
			g.refused()
			_ = c.Close()
			continue
		}
		return &caller{Conn: c, known: sync.OnceFunc(func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.total--
			if g.from[host]--; g.from[host] <= 0 {
				delete(g.from, host)
			}
		})}, nil
	}
}

// caller is a connection of the gate; it is pending until known is called or it is closed.
type caller struct {
	net.Conn
	known func()
}

// Close implements [net.Conn].
func (c *caller) Close() error {
	c.known()
	return c.Conn.Close()
}

// handshake is TLS in which a machine proves its key. What else its certificate says is not
// looked at.
type handshake struct {
	server *Server
	cert   *atomic.Pointer[tls.Certificate]
	config *tls.Config
}

func newHandshake(s *Server) *handshake {
	h := &handshake{server: s, cert: &s.cert}
	h.config = &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return h.cert.Load(), nil },
	}
	return h
}

// ServerHandshake implements [credentials.TransportCredentials].
func (h *handshake) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw, h.config)
	ctx, done := context.WithTimeout(context.Background(), handshakeIn)
	defer done()
	err := conn.HandshakeContext(ctx)
	var peers []*x509.Certificate
	if err == nil {
		st := conn.ConnectionState()
		if peers = st.PeerCertificates; st.NegotiatedProtocol != "h2" || len(peers) == 0 {
			err = errors.New("it does not speak HTTP/2, or shows no certificate")
		}
	}
	if err != nil {
		h.server.counted(resultHandshake)
		return nil, nil, err
	}
	return conn, h.server.newLink(raw, outbound.KeyName(peers[0])), nil
}

// ClientHandshake implements [credentials.TransportCredentials].
func (*handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("this is a server")
}

// Info implements [credentials.TransportCredentials].
func (*handshake) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements [credentials.TransportCredentials].
func (h *handshake) Clone() credentials.TransportCredentials { return h }

// OverrideServerName implements [credentials.TransportCredentials].
func (*handshake) OverrideServerName(string) error { return nil }
