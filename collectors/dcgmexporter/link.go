package dcgmexporter

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"auspex/collectors"
)

// link asks one exporter for one page, again and again, over a connection that stays, in the goroutine that wants it. Over
// net/http's client the goroutines behind each connection are woken for each page, which costs as much as the page.
type link struct {
	url     *url.URL
	tls     *tls.Config // nil is without
	timeout time.Duration
	mu      sync.Mutex // of conn, which interrupt reads
	conn    net.Conn
	limit   io.LimitedReader
	in      *bufio.Reader
	request []byte
	asked   http.Request // what answers are read for
	used    bool         // the connection has brought a page
}

func newLink(u *url.URL, conf *tls.Config, timeout time.Duration) *link {
	l := &link{url: u, timeout: timeout}
	l.asked = http.Request{
		Method: http.MethodGet, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Accept": {"text/plain;version=0.0.4"}, "User-Agent": {"auspex"}},
	}
	if u.User != nil {
		password, _ := u.User.Password()
		l.asked.SetBasicAuth(u.User.Username(), password)
	}
	if u.Scheme == "https" {
		if conf == nil {
			conf = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if l.tls = conf.Clone(); l.tls.ServerName == "" {
			l.tls.ServerName = u.Hostname()
		}
		l.tls.NextProtos = nil // what is spoken is HTTP/1.1
	}
	var b bytes.Buffer
	_ = l.asked.Write(&b) // into memory
	l.request = b.Bytes()
	return l
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// interrupt ends what the link waits for.
func (l *link) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.SetDeadline(time.Unix(1, 0))
	}
}

// maxHead is what an answer may have in bytes beside its page, and interim how many answers come before the one.
const (
	maxHead = 1 << 20
	interim = 5
)

// read appends the page to a buffer that has room for most+1 bytes of it at most, and returns the status and where the exporter
// sends us instead. A connection that the exporter has closed meanwhile is opened anew, once. It stays open after a page.
func (l *link) read(ctx context.Context, page *bytes.Buffer, most int64) (status int, elsewhere *url.URL, err error) {
	defer context.AfterFunc(ctx, l.interrupt)()
	if l.conn != nil && l.in.Buffered() > 0 { // nobody asked for that
		l.close()
	}
	all := 2*most + maxHead // of an answer: chunks have heads, too
	for {
		again := l.conn != nil && l.used
		res, err := l.ask(ctx, all)
		if err == nil {
			return l.take(ctx, res, page, most)
		}
		silent := l.limit.N == all // nothing came
		l.close()
		if cause := ctx.Err(); cause != nil {
			return 0, nil, cause
		}
		if !again || !silent || isTimeout(err) {
			return 0, nil, err
		}
	}
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// take reads the body of an answer. Only after a whole page does the connection go on.
func (l *link) take(ctx context.Context, res *http.Response, page *bytes.Buffer, most int64) (status int, elsewhere *url.URL, err error) {
	l.used = false
	defer func() {
		if !l.used {
			l.close()
		}
	}()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		elsewhere, err = res.Location()
		return res.StatusCode, elsewhere, err
	default:
		return res.StatusCode, nil, nil
	}
	n, err := page.ReadFrom(io.LimitReader(res.Body, most+1))
	if cause := ctx.Err(); err != nil && cause != nil {
		err = cause
	}
	l.used = err == nil && n <= most && !res.Close
	return res.StatusCode, nil, err
}

// ask sends the request and returns the head of the answer, which has so many bytes in all at most.
func (l *link) ask(ctx context.Context, all int64) (*http.Response, error) {
	l.limit.N = all
	if l.conn == nil {
		if err := l.dial(ctx); err != nil {
			return nil, err
		}
	}
	end, _ := ctx.Deadline() // none is the zero time, for both
	if err := l.conn.SetDeadline(end); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // whose end may have been told before the deadline was set
		return nil, err
	}
	if _, err := l.conn.Write(l.request); err != nil {
		return nil, err
	}
	for range interim {
		res, err := http.ReadResponse(l.in, &l.asked)
		if err != nil || res.StatusCode >= http.StatusOK {
			return res, err
		}
	}
	return nil, fmt.Errorf("%w: only interim answers", collectors.ErrProtocol)
}

func (l *link) dial(ctx context.Context) error {
	port := l.url.Port()
	if port == "" {
		port = l.url.Scheme // net knows both by name
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(l.url.Hostname(), port))
	if err != nil {
		return err
	}
	if l.tls != nil {
		shaken, cancel := context.WithTimeout(ctx, l.timeout)
		defer cancel()
		secured := tls.Client(conn, l.tls)
		if err := secured.HandshakeContext(shaken); err != nil {
			_ = conn.Close()
			return err
		}
		conn = secured
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	l.used, l.limit.R = false, conn
	if l.in == nil {
		l.in = bufio.NewReader(&l.limit)
	} else {
		l.in.Reset(&l.limit)
	}
	return nil
}
