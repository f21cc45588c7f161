// Package client asks a running Auspex over its REST API. Every route of the OpenAPI document
// (schemas/openapi) that takes and answers JSON is a method with typed parameters and answers, made
// from the document; lists are iterators that read page by page. A refusal is a [*Problem] with a
// code, the fields at fault and the moves that are legal. What creates or decides is sent under an
// Idempotency-Key, so that it is done once however often it is sent. Left out are routes for browsers (login by a login service) and the stream of events.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Config is where an Auspex is, and as whom it is asked.
type Config struct {
	URL   string // such as https://auspex.example, with its base path
	Token string // sent as a bearer
	CA    string // file of certificates, PEM; empty trusts those of the system
}

// Client asks one Auspex. It may be used by several goroutines.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// timeout bounds one request.
const timeout = time.Minute

// New returns a client; nobody is asked yet.
func New(c Config) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(c.URL, "/") + "/api/v1/")
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, fmt.Errorf("%q is not the address of an Auspex: want http or https, a host and no password", c.URL)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", c.CA)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	// An answer that leads elsewhere would take the token with it.
	return &Client{base: base, token: c.Token, http: &http.Client{Timeout: timeout, Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}}, nil
}

// Request is one request; Path is below /api/v1, with its parameters escaped.
type Request struct {
	Method, Path string
	Query        url.Values
	Body         any    // as JSON; nil sends none
	IfMatch      string // the ETag that a change is made of
	// Once is that the route takes an Idempotency-Key: sent twice, it is done once.
	Once bool

	key            string
	etag, location *string
	status         *int
}

// Do sends a request and decodes the answer into out, unless that is nil. What reads, and what is
// done once however often it is sent, is sent again after a connection that broke, and so is what
// the server was too busy for (429, 503 with Retry-After of at most a minute) or is at work on. An
// answer that is no success is a [*Problem].
func (c *Client) Do(ctx context.Context, r Request, out any) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return err
		}
	}
	key := ""
	if r.Once {
		key = cmp.Or(r.key, uuid.NewString())
	}
	var last error
	var wait time.Duration
	for range 3 {
		if last != nil {
			select {
			case <-ctx.Done():
				return errors.Join(last, ctx.Err())
			case <-time.After(wait):
			}
		}
		again, after, err := c.once(ctx, &r, body, key, out)
		if err == nil || !again {
			return err
		}
		last, wait = err, max(after, wait+500*time.Millisecond)
	}
	return last
}

func (r *Request) again() bool { return r.Method == http.MethodGet || r.Once }

// once sends it once; again is that it may be sent again, not before a time has passed.
func (c *Client) once(ctx context.Context, r *Request, body []byte, key string, out any) (again bool, after time.Duration, err error) {
	at, err := c.base.Parse(r.Path)
	if err != nil || !strings.HasPrefix(at.String(), c.base.String()) {
		return false, 0, fmt.Errorf("%q is no path of the API", r.Path)
	}
	at.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, at.String(), bytes.NewReader(body))
	if err != nil {
		return false, 0, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, v := range map[string]string{"Idempotency-Key": key, "If-Match": r.IfMatch} {
		if v != "" {
			req.Header.Set(name, v)
		}
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return r.again(), 0, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 256<<20))
	if err != nil {
		return r.again(), 0, fmt.Errorf("read the answer: %w", err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		p := &Problem{}
		_ = json.Unmarshal(text, p) // of a proxy it is none
		p.Status = res.StatusCode
		after := retryAfter(res)
		switch res.StatusCode {
		case http.StatusTooManyRequests: // nothing was done
			return after <= timeout, after, p
		case http.StatusConflict: // the one whose connection broke may be at work still
			return r.Once && p.Code == "at_work" && after <= timeout, after, p
		case http.StatusBadGateway, http.StatusServiceUnavailable:
			return r.again() && after <= timeout, after, p
		}
		return false, 0, p
	}
	for to, v := range map[*string]string{r.etag: res.Header.Get("ETag"), r.location: res.Header.Get("Location")} {
		if to != nil {
			*to = v
		}
	}
	if r.status != nil {
		*r.status = res.StatusCode
	}
	if out == nil || len(text) == 0 {
		return false, 0, nil
	}
	if raw, ok := out.(*json.RawMessage); ok {
		*raw = text
		return false, 0, nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return false, 0, fmt.Errorf("read the answer: %w", err)
	}
	return false, 0, nil
}

// retryAfter is how long a server asks to wait; its limits say it in seconds.
func retryAfter(res *http.Response) time.Duration {
	n, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil || n < 0 {
		return 0
	}
	return time.Duration(n) * time.Second
}
