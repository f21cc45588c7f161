package syslog

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"auspex/internal/run"
)

const (
	// maxLine is what is read of a line, in bytes; a kernel's longest message has 8 KiB.
	maxLine = 16 << 10
	// chunk is what is read of a connection at once.
	chunk = 32 << 10
	// ofOne is how many connections one address may have that is no relay.
	ofOne       = 64
	handshakeIn = 10 * time.Second
	// maxOrigins bounds the addresses that are remembered of datagrams.
	maxOrigins = 1 << 16
	udpBuffer  = 4 << 20
)

// admit counts a connection in, or says why it is not let in.
func (r *receiver) admit(addr netip.Addr, proven bool) (release func(), refused string) {
	if !proven && !r.permitted(addr) {
		return nil, "network"
	}
	relay := r.from(addr, nil).relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.total >= r.cfg.Connections || r.conns[addr] >= ofOne && !relay {
		return nil, "connections"
	}
	r.total++
	r.conns[addr]++
	r.m.conns.Inc()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.m.conns.Dec()
		r.total--
		if r.conns[addr]--; r.conns[addr] <= 0 {
			delete(r.conns, addr)
		}
	}), ""
}

// gate lets connections in.
type gate struct {
	net.Listener
	r      *receiver
	proven bool // clients have to show a certificate
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := addrOf(c.RemoteAddr())
		release, refused := g.r.admit(addr, g.proven)
		if refused == "" {
			return &counted{c, release}, nil
		}
		g.r.refuse(refused, addr)
		_ = c.Close()
	}
}

// counted is a connection that was let in.
type counted struct {
	net.Conn
	release func()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.release()
	return c.Conn.Close()
}

func (r *receiver) refuse(why string, addr netip.Addr) {
	r.m.refused.WithLabelValues(why).Inc()
	r.tell("refused "+why+addr.String(), "a sender is not let in", "reason", why, "sender", addr.String())
}

// listen opens a listener, with TLS where a certificate is set.
func (r *receiver) listen(ctx context.Context, addr string, s Secure) (net.Listener, *tls.Config, error) {
	var config *tls.Config
	if s.On() {
		var err error
		config, err = s.Follow(func(err error) {
			r.m.certs.Inc()
			r.log.Error("changed certificate cannot be read; the one before stays in force", "error", err)
		})
		if err != nil {
			return nil, nil, err
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, err
	}
	return &gate{l, r, s.ClientCAFile != ""}, config, nil
}

// listenTCP serves syslog over connections.
func (r *receiver) listenTCP(ctx context.Context, addr string, via transport, s Secure) (func() error, error) {
	l, config, err := r.listen(ctx, addr, s)
	if err != nil {
		return nil, err
	}
	return func() error {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		defer stop()
		var wg sync.WaitGroup
		defer wg.Wait()
		for {
			conn, err := l.Accept()
			if err != nil && passing(ctx, err) {
				continue
			}
			if err != nil {
				return err
			}
			wg.Go(func() { r.connection(ctx, conn, via, config) })
		}
	}, nil
}

// passing reports whether an error of a socket passes: the process has no file descriptor or memory
// left, or the client is gone again. It waits a moment then.
func passing(ctx context.Context, err error) bool {
	for _, no := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, no) {
			return run.Sleep(ctx, 10*time.Millisecond) == nil
		}
	}
	return false
}

// connection reads one connection to its end.
func (r *receiver) connection(ctx context.Context, conn net.Conn, via transport, config *tls.Config) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	addr := addrOf(conn.RemoteAddr())
	var names []string
	if config != nil {
		secure := tls.Server(conn, config)
		_ = conn.SetDeadline(time.Now().Add(handshakeIn))
		if err := secure.HandshakeContext(ctx); err != nil {
			if ctx.Err() == nil {
				r.m.refused.WithLabelValues("tls").Inc()
				r.tell("tls "+addr.String(), "a sender's TLS handshake failed", "sender", addr.String(), "error", err)
			}
			return
		}
		_ = conn.SetDeadline(time.Time{})
		names = namesOf(secure.ConnectionState())
		conn = secure
	}
	o := r.from(addr, names)
	defer r.begin(o)()
	f := framer{r: conn, cut: r.m.cut.Inc}
	for {
		text, err := f.next()
		if errors.Is(err, errFraming) {
			r.m.left[via][malformed].Inc()
			r.tell("framing "+o.String(), "a sender's stream has no frames that are understood; it is closed", "sender", o.String(), "error", err)
		}
		if err != nil {
			return
		}
		now := r.settings.Now()
		if !o.relay && r.slow(ctx, o, now) != nil {
			return
		}
		if r.line(ctx, o, via, text, now) != nil {
			return
		}
	}
}

// namesOf returns the names of a client's certificate, which was verified.
func namesOf(st tls.ConnectionState) []string {
	if len(st.VerifiedChains) == 0 {
		return nil
	}
	return certificateNames(st.PeerCertificates[0])
}

func certificateNames(c *x509.Certificate) (names []string) {
	names = append(names, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	if len(names) == 0 {
		names = []string{"a certificate without a name"}
	}
	return names
}

// errFraming is returned for a stream in which no further line can be found.
var errFraming = errors.New("malformed frame")

// framer cuts a stream into lines: those with their length before them (RFC 6587, section 3.4.1)
// and those with a newline behind (3.4.2), as each begins. What it returns are parts of chunks, so
// that most lines cost no memory of their own.
type framer struct {
	r    io.Reader
	cut  func() // a line was too long
	buf  []byte
	text string // what was read and not returned
	skip int    // bytes to leave out of a frame that was cut
	line bool   // leave out up to the next newline
	err  error
}

// next returns a line that is not empty, at most maxLine bytes of it.
func (f *framer) next() (string, error) {
	for {
		line, ok, err := f.frame()
		if err != nil {
			return "", err
		}
		if ok {
			if line = strings.TrimRight(line, "\r\n\x00 "); line != "" {
				return line, nil
			}
			continue
		}
		if f.err != nil {
			rest := strings.TrimRight(f.text, "\r\n\x00 ")
			f.text = ""
			if rest != "" && rest[0] == '<' { // the last line has no newline
				return rest, nil
			}
			return "", f.err
		}
		f.fill()
	}
}

// fill reads more behind what is there, which is less than a whole frame.
func (f *framer) fill() {
	if f.buf == nil {
		f.buf = make([]byte, 4<<10)
	}
	if len(f.text) >= len(f.buf)/2 && len(f.buf) < chunk {
		f.buf = make([]byte, 4*len(f.buf))
	}
	n := copy(f.buf, f.text)
	m, err := f.r.Read(f.buf[n:])
	if n+m == len(f.buf) && len(f.buf) < chunk { // it has more to say at once than there is room for
		grown := make([]byte, 4*len(f.buf))
		copy(grown, f.buf)
		f.buf = grown
	}
	f.text, f.err = string(f.buf[:n+m]), err
}

// frame takes the next frame off the text; ok is false where more has to be read.
func (f *framer) frame() (line string, ok bool, err error) {
	if f.skip > 0 {
		n := min(f.skip, len(f.text))
		f.text, f.skip = f.text[n:], f.skip-n
		if f.skip > 0 {
			return "", false, nil
		}
	}
	if f.line {
		i := strings.IndexByte(f.text, '\n')
		if i < 0 {
			f.text = ""
			return "", false, nil
		}
		f.text, f.line = f.text[i+1:], false
	}
	if f.text == "" {
		return "", false, nil
	}
	if c := f.text[0]; c >= '1' && c <= '9' {
		return f.counted()
	}
	i := strings.IndexByte(f.text, '\n')
	switch {
	case i > maxLine, i < 0 && len(f.text) > maxLine:
		f.cut()
		line, f.text, f.line = f.text[:maxLine], f.text[maxLine:], true
		return line, true, nil
	case i < 0:
		return "", false, nil
	}
	line, f.text = f.text[:i], f.text[i+1:]
	return line, true, nil
}

// counted takes a frame that its length stands before.
func (f *framer) counted() (line string, ok bool, err error) {
	n, i := 0, 0
	for ; i < len(f.text) && f.text[i] >= '0' && f.text[i] <= '9'; i++ {
		if n = n*10 + int(f.text[i]-'0'); n > 1<<30 {
			return "", false, fmt.Errorf("%w: length %.12s", errFraming, f.text)
		}
	}
	switch {
	case i == len(f.text):
		return "", false, nil
	case f.text[i] != ' ':
		return "", false, fmt.Errorf("%w: %.20q has neither a length nor a priority", errFraming, f.text)
	}
	body := f.text[i+1:]
	if n > maxLine {
		if len(body) < maxLine {
			return "", false, nil
		}
		f.cut()
		f.text, f.skip = body[maxLine:], n-maxLine
		return body[:maxLine], true, nil
	}
	if len(body) < n {
		return "", false, nil
	}
	f.text = body[n:]
	return body[:n], true, nil
}

// listenUDP serves syslog in datagrams.
func (r *receiver) listenUDP(ctx context.Context, addr string) (func() error, error) {
	pc, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	conn := pc.(*net.UDPConn)
	_ = conn.SetReadBuffer(udpBuffer) // the system may bound it: what it then drops is counted
	countDrops(conn)
	return func() error {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		defer func() { _ = conn.Close() }()
		d := datagrams{r: r, from: map[netip.Addr]sending{}}
		defer d.forget()
		buf, oob := make([]byte, maxLine+1), make([]byte, 64)
		for {
			n, m, _, peer, err := conn.ReadMsgUDPAddrPort(buf, oob)
			if err != nil {
				if passing(ctx, err) {
					continue
				}
				return err
			}
			if lost, ok := dropped(oob[:m]); ok {
				d.lostSoFar(lost)
			}
			d.datagram(ctx, peer.Addr().Unmap().WithZone(""), buf[:n])
		}
	}, nil
}

// datagrams is the reader of one socket.
type datagrams struct {
	r    *receiver
	from map[netip.Addr]sending
	lost uint32
}

// sending is who sends datagrams.
type sending struct {
	*origin
	end func()
}

func (d *datagrams) forget() {
	for _, s := range d.from {
		s.end()
	}
	clear(d.from)
}

// lostSoFar takes over the kernel's count, which may wrap.
func (d *datagrams) lostSoFar(n uint32) {
	d.r.m.lost.Add(float64(n - d.lost))
	d.lost = n
}

func (d *datagrams) datagram(ctx context.Context, addr netip.Addr, b []byte) {
	r := d.r
	o := d.from[addr].origin
	if o == nil {
		if !r.permitted(addr) {
			r.refuse("network", addr)
			return
		}
		if len(d.from) >= maxOrigins {
			d.forget()
		}
		o = r.from(addr, nil)
		d.from[addr] = sending{o, r.begin(o)}
	}
	now := r.settings.Now()
	if o.limit != nil && o.limit.full(now, r.cfg.Rate) {
		r.m.left[overUDP][tooMany].Inc()
		r.tell("flood "+o.String(), "sender floods; its datagrams beyond the rate are left out", "sender", o.String())
		return
	}
	if len(b) > maxLine {
		b = b[:maxLine]
		r.m.cut.Inc()
	}
	if b = bytes.TrimRight(b, "\r\n\x00 "); len(b) > 0 {
		_ = r.line(ctx, o, overUDP, string(b), now) // it does not wait
	}
}
