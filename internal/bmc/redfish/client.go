// Package redfish speaks Redfish (DMTF DSP0266) to a board controller. It works
// on raw JSON: one property of an unexpected type must not lose a resource, and
// vendors are not strict about types (docs/adr/0009-clients.md).
package redfish

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrAuth says that the service refused user or password.
	ErrAuth = errors.New("redfish: credentials refused")
	// ErrNotFound says that the service has no such resource.
	ErrNotFound = errors.New("redfish: no such resource")
	// ErrProtocol says that an answer is not what DSP0266 allows.
	ErrProtocol = errors.New("redfish: malformed answer")
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
	// Patience is how long in all a client waits for a service that says when to come again
	// (429 or 503 with Retry-After); 0 is not at all. What would change something is not repeated.
	Patience time.Duration
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
	opened     bool   // a session was, once
	kept       bool   // the session is left with the service
	basic      bool   // the service knows no sessions, or has none left
	seen       map[string]answer
	flat       map[string]bool   // collections that leave $expand unheeded
	gathered   map[string]Object // what came with [Client.Gather], by path
	shallow    bool              // it did not work
	root       *Root
	read       int64 // bytes of all answers
	asked      int64 // requests
	sum        maphash.Seed
	understood int           // answers that could be read
	waited     time.Duration // where the service asked for it
}

// Read returns the bytes of all answers so far.
func (c *Client) Read() int64 { return c.read }

// Requests returns the number of requests so far, sessions included.
func (c *Client) Requests() int64 { return c.asked }

// answer is what is kept of the last answer for a resource, so that the next one can
// be known for the same; path is the whole of it, with query.
type answer struct {
	path string
	tag  string
	sum  uint64
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
	c := &Client{
		opt: opt, base: &url.URL{Scheme: u.Scheme, Host: u.Host}, tr: tr,
		seen: make(map[string]answer), flat: make(map[string]bool), sum: maphash.MakeSeed(),
	}
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

// SetCredentials sets user and password for a session to come: what was read before it, such as
// the service root, needs none.
func (c *Client) SetCredentials(user, password string) { c.opt.User, c.opt.Password = user, password }

// Close ends the session and the connection.
func (c *Client) Close(ctx context.Context) {
	if c.session != "" && !c.kept {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 300*time.Millisecond)
		defer cancel()
		_, _, _ = c.once(ctx, http.MethodDelete, c.session, nil, nil)
	}
	c.token, c.session, c.root = "", "", nil
	c.tr.CloseIdleConnections()
}

// Session is a login that was left with a service. A service that starts anew has forgotten it.
type Session struct{ token, path string }

// Keep leaves the session with the service when the client closes; ok is false where there is none.
func (c *Client) Keep() (s Session, ok bool) {
	if c.token == "" || c.session == "" {
		return s, false
	}
	c.kept = true
	return Session{c.token, c.session}, true
}

// Knows reports whether the service still knows a session that was left with it.
func (c *Client) Knows(ctx context.Context, s Session) (bool, error) {
	err := c.as(ctx, http.MethodGet, s)
	if errors.Is(err, ErrAuth) || errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// End ends a session that was left with the service, where that knows it.
func (c *Client) End(ctx context.Context, s Session) { _ = c.as(ctx, http.MethodDelete, s) }

// as asks for a session with its own token.
func (c *Client) as(ctx context.Context, method string, s Session) error {
	token := c.token
	c.token = s.token
	defer func() { c.token = token }()
	_, _, err := c.once(ctx, method, s.path, nil, nil)
	return err
}

// once sends one request with a JSON body, or none, and reads its answer.
func (c *Client) once(ctx context.Context, method, path string, body any, header http.Header) ([]byte, *http.Response, error) {
	if body == nil {
		return c.send(ctx, c.http, method, path, nil, header)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	return c.send(ctx, c.http, method, path, &payload{bytes.NewReader(raw), "application/json", int64(len(raw))}, header)
}

// payload is the body of a request.
type payload struct {
	io.Reader
	kind string // its media type
	size int64
}

// send sends one request over a client and reads its answer.
func (c *Client) send(
	ctx context.Context, over *http.Client, method, path string, body *payload, header http.Header,
) ([]byte, *http.Response, error) {
	resp, err := c.request(ctx, over, method, path, body, header)
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

// request sends one request over a client. The caller closes the body of the answer.
func (c *Client) request(
	ctx context.Context, over *http.Client, method, path string, body *payload, header http.Header,
) (*http.Response, error) {
	ref, err := url.Parse(path)
	if err != nil || ref.IsAbs() || ref.Host != "" || !strings.HasPrefix(ref.Path, "/") {
		return nil, fmt.Errorf("%w: link %q", ErrProtocol, path)
	}
	var rd io.Reader
	if body != nil {
		rd = body.Reader
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.ResolveReference(ref).String(), rd)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	maps.Copy(req.Header, header)
	req.Header.Set("OData-Version", "4.0")
	if body != nil {
		req.ContentLength = body.size
		req.Header.Set("Content-Type", body.kind)
	}
	switch {
	case c.token != "":
		req.Header.Set("X-Auth-Token", c.token)
	case c.basic && c.opt.User != "":
		req.SetBasicAuth(c.opt.User, c.opt.Password)
	}
	c.asked++
	return over.Do(req)
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

// login opens a session (DSP0266, section 13.3.4), where the service root says if that was read; a
// service that names no sessions, or has none left, gets basic authentication.
func (c *Client) login(ctx context.Context) error {
	if c.token != "" || c.basic || c.opt.User == "" {
		return nil
	}
	path := "/redfish/v1/SessionService/Sessions"
	if c.root != nil {
		if !c.opened && !c.root.sessions() {
			c.basic = true
			return nil
		}
		path = orDefault(c.root.Object.Object("Links").Link("Sessions"), path)
	}
	_, resp, err := c.patiently(ctx, http.MethodPost, path, map[string]string{"UserName": c.opt.User, "Password": c.opt.Password}, nil)
	var st *StatusError
	switch {
	case errors.As(err, &st) && st.Status == http.StatusUnauthorized:
		if c.root == nil && c.noSessions(ctx) {
			c.basic = true
			return nil
		}
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
	c.opened = true
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
	send := c.once
	if method == http.MethodGet {
		send = c.patiently
	}
	raw, resp, err := send(ctx, method, path, body, header)
	var st *StatusError
	if errors.As(err, &st) && st.Status == http.StatusUnauthorized && c.token != "" {
		c.token, c.session = "", ""
		if err := c.login(ctx); err != nil {
			return nil, nil, err
		}
		raw, resp, err = send(ctx, method, path, body, header)
	}
	return raw, resp, err
}

// patiently sends a request, again where the service is busy and says when to come again.
func (c *Client) patiently(ctx context.Context, method, path string, body any, header http.Header) ([]byte, *http.Response, error) {
	for {
		raw, resp, err := c.once(ctx, method, path, body, header)
		var st *StatusError
		if !errors.As(err, &st) || st.Status != http.StatusServiceUnavailable && st.Status != http.StatusTooManyRequests {
			return raw, resp, err
		}
		wait, told := retryAfter(resp.Header, time.Now())
		if deadline, ok := ctx.Deadline(); !told || c.waited+wait > c.opt.Patience || ok && time.Until(deadline) < wait {
			return raw, resp, err
		}
		c.waited += wait
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// retryAfter reads when to come again (RFC 9110, section 10.2.3): in seconds or a date. No wait is
// shorter than a second.
func retryAfter(h http.Header, now time.Time) (wait time.Duration, told bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 20); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	} else {
		return 0, false
	}
	return max(wait, time.Second), true
}

// Get reads a resource.
func (c *Client) Get(ctx context.Context, path string) (Object, error) {
	if o := c.take(path); o != nil {
		return o, nil
	}
	raw, _, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, err
	}
	return c.parse(path, raw)
}

// Understood returns how many answers with a body could be read: what a service
// says of what has not changed tells little of its health.
func (c *Client) Understood() int { return c.understood }

// GetChanged reads a resource, and returns nil where it is what the last call for this
// path has read; a service with ETags does not even send it then.
func (c *Client) GetChanged(ctx context.Context, path string) (Object, error) {
	var header http.Header
	resource, _, _ := strings.Cut(path, "?") // one answer a resource, so that paging keeps no more
	old, have := c.seen[resource]
	have = have && old.path == path
	if have && old.tag != "" {
		header = http.Header{"If-None-Match": {old.tag}}
	}
	raw, resp, err := c.do(ctx, http.MethodGet, path, nil, header)
	if err != nil {
		return nil, err
	}
	sum := maphash.Bytes(c.sum, raw)
	if have && (resp.StatusCode == http.StatusNotModified || sum == old.sum) {
		return nil, nil
	}
	o, err := c.parse(path, raw)
	if err != nil {
		return nil, err
	}
	c.seen[resource] = answer{path, resp.Header.Get("ETag"), sum}
	return o, nil
}

// Forget lets the next GetChanged of a resource read it whatever it read before.
func (c *Client) Forget(path string) {
	resource, _, _ := strings.Cut(path, "?")
	delete(c.seen, resource)
}

func (c *Client) parse(path string, raw []byte) (Object, error) {
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
	if base, err := url.Parse(path); err == nil {
		c.resolve(base, map[string]any(o))
	}
	if o.ID() == "" && o["error"] != nil { // some services send their errors with status 200
		return nil, fmt.Errorf("%w: %s: %s", ErrProtocol, path, errorMessage(raw))
	}
	c.understood++
	return o, nil
}

// resolve makes all links of a document absolute paths in one spelling (RFC 3986,
// section 5): services are seen that give whole URLs, relative ones or a slash at the end.
func (c *Client) resolve(base *url.URL, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			s, isText := x.(string)
			switch {
			case isText && (k == "@odata.id" || k == "DataSourceUri" || strings.HasSuffix(k, "@odata.nextLink")):
				v[k] = c.canonical(base, s)
			case !isText:
				c.resolve(base, x)
			}
		}
	case []any:
		for _, x := range v {
			c.resolve(base, x)
		}
	}
}

// Canonical returns a link of this service as an absolute path in one spelling.
func (c *Client) Canonical(link string) string { return c.canonical(&url.URL{Path: "/"}, link) }

func (c *Client) canonical(base *url.URL, link string) string {
	if plain(link) {
		return link
	}
	u, err := url.Parse(link)
	if err != nil || link == "" || u.IsAbs() && u.Host != c.base.Host {
		return link // refused where it is followed
	}
	if u.Host == c.base.Host {
		u.Scheme, u.Host, u.User = "", "", nil
	}
	u = base.ResolveReference(u)
	if u.Path != "/redfish/v1/" {
		u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	}
	return u.String()
}

// plain reports whether a link needs no rewriting, as nearly all do.
func plain(s string) bool {
	if !strings.HasPrefix(s, "/") || strings.HasSuffix(s, "/") {
		return false
	}
	for i := range len(s) - 1 {
		if s[i] == '/' && (s[i+1] == '/' || s[i+1] == '.') || s[i] == '?' || s[i] == '#' {
			return s[i] == '?' || s[i] == '#' && s[i-1] != '/'
		}
	}
	return true
}

// Root is the service root and what the service can do.
type Root struct {
	Object
	Expand bool // takes ?$expand=.($levels=1)
	levels int  // takes as many
	known  bool // says, or has shown, whether it does
}

// Root reads the service root once a session.
func (c *Client) Root(ctx context.Context) (*Root, error) {
	if c.root != nil {
		return c.root, nil
	}
	o, err := c.Get(ctx, rootPath)
	if err != nil {
		return nil, fmt.Errorf("read service root of %s: %w", c.base.Host, err)
	}
	c.root = newRoot(o)
	return c.root, nil
}

const rootPath = "/redfish/v1/"

// sessions reports whether the service names any. One that does not refuses a session whatever the
// password is.
func (r *Root) sessions() bool {
	return r.Object.Object("Links").Link("Sessions") != "" || r.Link("SessionService") != ""
}

// noSessions reports whether a service that refuses a session names none in its root, which
// everybody can read.
func (c *Client) noSessions(ctx context.Context) bool {
	raw, _, err := c.once(ctx, http.MethodGet, rootPath, nil, nil)
	if err != nil {
		return false
	}
	o, err := c.parse(rootPath, raw)
	return err == nil && o.String("RedfishVersion") != "" && !newRoot(o).sessions()
}

func newRoot(o Object) *Root {
	eq := o.Object("ProtocolFeaturesSupported").Object("ExpandQuery")
	r := &Root{Object: o, Expand: eq.Bool("NoLinks"), known: eq != nil}
	if n, ok := eq.Number("MaxLevels"); ok && r.Expand && eq.Bool("Levels") {
		r.levels = int(n)
	}
	return r
}

// expandQuery asks a collection for its members in full (DSP0266, section 7.3).
const expandQuery = "?$expand=.($levels=1)"

// worthAsking is the number of links in a collection from which on a service that says
// nothing of $expand is asked for it.
const worthAsking = 8

// List reads a collection, page by page: its members as they stand there, each once. Where
// the service expands they are whole, else some or all of them are only links ([Object.IsLink]).
func (c *Client) List(ctx context.Context, path string) ([]Object, error) {
	root, err := c.Root(ctx)
	if err != nil {
		return nil, err
	}
	if o := c.gathered[path]; o != nil && whole(o) {
		return c.take(path).Objects("Members"), nil
	}
	ask := root.Expand && !c.flat[path]
	out, err := c.list(ctx, path, ask)
	if refused := new(StatusError); ask && errors.As(err, &refused) && refused.cannot() {
		root.Expand, ask = false, false
		out, err = c.list(ctx, path, false)
	}
	if err != nil {
		return nil, err
	}
	links := 0
	for _, m := range out {
		if m.IsLink() {
			links++
		}
	}
	switch {
	case ask:
		c.flat[path] = links > 0 && links == len(out)
	case !root.known && links >= worthAsking:
		root.known = true
		if full, err := c.list(ctx, path, true); err == nil && len(full) == len(out) && !full[0].IsLink() {
			root.Expand = true
			return full, nil
		}
	}
	return out, nil
}

func (c *Client) list(ctx context.Context, path string, expand bool) (out []Object, err error) {
	next := path
	if expand {
		next += expandQuery
	}
	began, pages, members := c.read, make(map[string]bool), make(map[string]bool)
	for next != "" && !pages[next] { // some go in circles
		if len(pages) >= maxPages || c.read-began > MaxListing {
			return nil, fmt.Errorf("%w: %s has more than %d pages or %d bytes", ErrProtocol, path, maxPages, MaxListing)
		}
		pages[next] = true
		o, err := c.Get(ctx, next)
		if err != nil {
			return nil, err
		}
		for _, m := range o.Objects("Members") {
			if id := m.ID(); id == "" || !members[id] {
				members[id] = true
				out = append(out, m)
			}
		}
		next = o.Next()
	}
	return out, nil
}

// cannot reports whether a status says that a query option is not there (DSP0266, 7.3).
func (e *StatusError) cannot() bool {
	return e.Status == http.StatusNotImplemented || e.Status == http.StatusBadRequest
}

// Members reads all members of a collection in full, with one request a page where the
// service expands and one a member where it does not. A member that cannot be read is
// left out and counted in bad.
func (c *Client) Members(ctx context.Context, path string) (out []Object, bad int, err error) {
	list, err := c.List(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range list {
		if m.IsLink() {
			switch m, err = c.Get(ctx, m.ID()); {
			case errors.Is(err, ErrProtocol), errors.As(err, new(*StatusError)):
				bad++
				continue
			case err != nil:
				return nil, bad, err
			}
		}
		out = append(out, m)
	}
	return out, bad, nil
}
