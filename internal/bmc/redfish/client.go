// Package redfish speaks Redfish (DMTF DSP0266) to a board controller. It works
// on raw JSON: one property of an unexpected type must not lose a resource, and
// vendors are not strict about types.
package redfish

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

var (
	// ErrAuth says that the service refused user or password.
	ErrAuth = errors.New("redfish: credentials refused")
	// ErrNotFound says that the service has no such resource.
	ErrNotFound = errors.New("redfish: no such resource")
	// ErrProtocol says that an answer is not what DSP0266 allows.
	ErrProtocol = errors.New("redfish: answer not understood")
)

// StatusError is an answer with an HTTP status that says no.
type StatusError struct {
	Method, Path string
	Status       int
	Message      string // of the extended error information (DSP0266, section 8.6), or ""
}

// Error implements error.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("%s %s: HTTP status %d", e.Method, e.Path, e.Status)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Is makes a status comparable with the sentinels.
func (e *StatusError) Is(target error) bool {
	switch target {
	case ErrAuth:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrNotFound:
		return e.Status == http.StatusNotFound || e.Status == http.StatusGone
	}
	return false
}

// Options says how to reach a service.
type Options struct {
	URL      string // http or https, without the path
	User     string
	Password string
	// TLS is shared by many clients; nil trusts the system's certificates.
	TLS *tls.Config
	// Timeout bounds one request; 0 is 15 s.
	Timeout time.Duration
}

// What one controller may cost us. The largest known answers are log collections
// of some MiB and 150,000 values.
const (
	maxBody   = 16 << 20 // bytes of an answer
	maxValues = 1 << 19  // of an answer: decoded, a value takes many times its bytes
	// MaxListing bounds the bytes of all pages of a collection.
	MaxListing = 32 << 20
)

// maxPages bounds a collection, for services whose next links go in circles.
const maxPages = 1000

// Client is a service that keeps one connection and one session. One caller at
// a time; not safe for concurrent use.
type Client struct {
	opt        Options
	base       *url.URL
	http       *http.Client
	tr         *http.Transport
	token      string
	session    string // path of the session to delete
	basic      bool   // the service knows no sessions, or has none left
	etags      map[string]cached
	root       *Root
	read       int64 // bytes of all answers
	understood int   // answers with a body
}

// Read returns the bytes of all answers so far.
func (c *Client) Read() int64 { return c.read }

// cached is the last answer for a resource; path is the whole of it, with query.
type cached struct {
	path string
	tag  string
	body []byte
}

// New checks the options; it performs no I/O.
func New(opt Options) (*Client, error) {
	u, err := url.Parse(opt.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("redfish URL %q: want http://HOST or https://HOST", opt.URL)
	}
	if opt.Timeout <= 0 {
		opt.Timeout = 15 * time.Second
	}
	tr := &http.Transport{
		DialContext:     (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig: opt.TLS, TLSHandshakeTimeout: 10 * time.Second, MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1,
		IdleConnTimeout: 5 * time.Minute, ResponseHeaderTimeout: opt.Timeout, DisableCompression: false,
	}
	c := &Client{opt: opt, base: &url.URL{Scheme: u.Scheme, Host: u.Host}, tr: tr, etags: make(map[string]cached)}
	c.http = &http.Client{
		Transport: tr, Timeout: opt.Timeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 || r.URL.Host != c.base.Host || r.URL.Scheme != c.base.Scheme {
				return fmt.Errorf("%w: redirect to %s", ErrProtocol, r.URL.Host)
			}
			return nil
		},
	}
	return c, nil
}

// Close ends the session and the connection.
func (c *Client) Close(ctx context.Context) {
	if c.session != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 300*time.Millisecond)
		defer cancel()
		_, _, _ = c.once(ctx, http.MethodDelete, c.session, nil, nil)
	}
	c.token, c.session, c.root = "", "", nil
	c.tr.CloseIdleConnections()
}

// once sends one request and reads its answer.
func (c *Client) once(ctx context.Context, method, path string, body any, header http.Header) ([]byte, *http.Response, error) {
	var rd io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, nil, err
		}
		rd = bytes.NewReader(raw)
	}
	ref, err := url.Parse(path)
	if err != nil || ref.IsAbs() || ref.Host != "" || !strings.HasPrefix(ref.Path, "/") {
		return nil, nil, fmt.Errorf("%w: link %q", ErrProtocol, path)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.ResolveReference(ref).String(), rd)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("OData-Version", "4.0")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch {
	case c.token != "":
		req.Header.Set("X-Auth-Token", c.token)
	case c.basic && c.opt.User != "":
		req.SetBasicAuth(c.opt.User, c.opt.Password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	c.read += int64(len(raw))
	if len(raw) > maxBody {
		return nil, nil, fmt.Errorf("%w: %s %s is larger than %d bytes", ErrProtocol, method, path, maxBody)
	}
	if resp.StatusCode >= 400 {
		return raw, resp, &StatusError{Method: method, Path: path, Status: resp.StatusCode, Message: errorMessage(raw)}
	}
	return raw, resp, nil
}

func errorMessage(raw []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
			Info    []struct {
				Message string `json:"Message"`
			} `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return ""
	}
	if len(e.Error.Info) > 0 && e.Error.Info[0].Message != "" {
		return e.Error.Info[0].Message
	}
	return e.Error.Message
}

// login opens a session (DSP0266, section 13.3.4); a service that knows none, or
// has none left, gets basic authentication.
func (c *Client) login(ctx context.Context) error {
	if c.token != "" || c.basic || c.opt.User == "" {
		return nil
	}
	_, resp, err := c.once(ctx, http.MethodPost, "/redfish/v1/SessionService/Sessions",
		map[string]string{"UserName": c.opt.User, "Password": c.opt.Password}, nil)
	var st *StatusError
	switch {
	case errors.As(err, &st) && st.Status == http.StatusUnauthorized:
		return fmt.Errorf("log in to %s: %w", c.base.Host, err)
	case errors.As(err, &st):
		c.basic = true
		return nil
	case err != nil:
		return fmt.Errorf("log in to %s: %w", c.base.Host, err)
	}
	if c.token = resp.Header.Get("X-Auth-Token"); c.token == "" {
		c.basic = true
		return nil
	}
	if loc, err := url.Parse(resp.Header.Get("Location")); err == nil {
		c.session = loc.Path
	}
	return nil
}

// do sends a request in the session, and once more in a new one when the
// service has forgotten it.
func (c *Client) do(ctx context.Context, method, path string, body any, header http.Header) ([]byte, *http.Response, error) {
	if err := c.login(ctx); err != nil {
		return nil, nil, err
	}
	raw, resp, err := c.once(ctx, method, path, body, header)
	var st *StatusError
	if errors.As(err, &st) && st.Status == http.StatusUnauthorized && c.token != "" {
		c.token, c.session = "", ""
		if err := c.login(ctx); err != nil {
			return nil, nil, err
		}
		raw, resp, err = c.once(ctx, method, path, body, header)
	}
	return raw, resp, err
}

// Get reads a resource.
func (c *Client) Get(ctx context.Context, path string) (Object, error) {
	o, _, err := c.get(ctx, path, false)
	return o, err
}

// Understood returns how many answers with a body could be read: what a service
// says of what has not changed tells little of its health.
func (c *Client) Understood() int { return c.understood }

// GetChanged reads a resource and reports whether it differs from what the last
// call for this path has read; a service with ETags sends it only then.
func (c *Client) GetChanged(ctx context.Context, path string) (Object, bool, error) {
	return c.get(ctx, path, true)
}

func (c *Client) get(ctx context.Context, path string, cond bool) (Object, bool, error) {
	var header http.Header
	resource, _, _ := strings.Cut(path, "?") // one answer a resource, so that paging does not fill the cache
	old, have := c.etags[resource]
	have = have && old.path == path
	if cond && have && old.tag != "" {
		header = http.Header{"If-None-Match": {old.tag}}
	}
	raw, resp, err := c.do(ctx, http.MethodGet, path, nil, header)
	if err != nil {
		return nil, false, err
	}
	if resp.StatusCode == http.StatusNotModified && have {
		o, err := parse(path, old.body)
		return o, false, err
	}
	o, err := parse(path, raw)
	if err != nil {
		return nil, false, err
	}
	c.understood++
	changed := true
	if cond {
		changed = !have || !bytes.Equal(old.body, raw)
		c.etags[resource] = cached{path, resp.Header.Get("ETag"), raw}
	}
	return o, changed, nil
}

func parse(path string, raw []byte) (Object, error) {
	if n := bytes.Count(raw, []byte{','}); n > maxValues {
		return nil, fmt.Errorf("%w: %s has more than %d values", ErrProtocol, path, maxValues)
	}
	var o Object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrProtocol, path, err)
	}
	if o == nil {
		return nil, fmt.Errorf("%w: %s is not a JSON object", ErrProtocol, path)
	}
	return o, nil
}

// Root is the service root and what the service can do.
type Root struct {
	Object
	Expand  bool // takes ?$expand=.($levels=1)
	TopSkip bool // takes ?$skip and $top
}

// Root reads the service root once a session.
func (c *Client) Root(ctx context.Context) (*Root, error) {
	if c.root != nil {
		return c.root, nil
	}
	o, err := c.Get(ctx, "/redfish/v1/")
	if err != nil {
		return nil, fmt.Errorf("read service root of %s: %w", c.base.Host, err)
	}
	pf := o.Object("ProtocolFeaturesSupported")
	c.root = &Root{Object: o, Expand: pf.Object("ExpandQuery").Bool("NoLinks"), TopSkip: pf.Bool("TopSkipQuery")}
	return c.root, nil
}

// Page is a piece of a collection: its members as they stand there, which may
// be links only.
type Page struct {
	Members []Object
	Count   int // of the collection, -1 when it does not say
	Next    string
}

// Page reads one page of a collection.
func (c *Client) Page(ctx context.Context, path string) (Page, error) {
	o, err := c.Get(ctx, path)
	if err != nil {
		return Page{}, err
	}
	return pageOf(o), nil
}

func pageOf(o Object) Page {
	p := Page{Members: o.Objects("Members"), Count: -1, Next: o.String("Members@odata.nextLink")}
	if n, ok := o.Number("Members@odata.count"); ok {
		p.Count = int(n)
	}
	return p
}

// Members reads all members of a collection in full, with one request a page
// where the service expands and one a member where it does not. A member that
// cannot be read is left out and counted in bad.
func (c *Client) Members(ctx context.Context, path string) (out []Object, bad int, err error) {
	root, err := c.Root(ctx)
	if err != nil {
		return nil, 0, err
	}
	next := path
	if root.Expand {
		next += "?$expand=.($levels=1)"
	}
	for began, pages := c.read, 0; pages < maxPages && c.read-began <= MaxListing; pages++ {
		p, err := c.Page(ctx, next)
		var st *StatusError
		if errors.As(err, &st) && next != path && len(out) == 0 && (st.Status == http.StatusNotImplemented || st.Status == http.StatusBadRequest) {
			root.Expand = false
			p, err = c.Page(ctx, path)
		}
		if err != nil {
			return nil, bad, err
		}
		for _, m := range p.Members {
			if c.read-began > MaxListing {
				break
			}
			if !m.isLink() {
				out = append(out, m)
				continue
			}
			full, err := c.Get(ctx, m.ID())
			switch {
			case err == nil:
				out = append(out, full)
			case errors.Is(err, ErrProtocol), errors.As(err, &st):
				bad++
			default:
				return nil, bad, err
			}
		}
		if p.Next == "" && c.read-began <= MaxListing {
			return out, bad, nil
		}
		next = p.Next
	}
	return nil, bad, fmt.Errorf("%w: %s has more than %d pages or %d bytes", ErrProtocol, path, maxPages, MaxListing)
}
