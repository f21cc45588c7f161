package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/api/access"
	"auspex/api/apigen"
	prom "auspex/api/prometheus"
	"auspex/api/ui"
	"auspex/schemas/openapi"
)

const (
	sessionCookie = "auspex_session"
	answerWithin  = 15 * time.Second
	tryPage       = "docs/api" // where the API is read and tried
	// What the page may load: its own files, nothing inline, no other origin.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)

// problem is an error that a person sees (RFC 9457).
type problem struct {
	status             int
	code, detail, hint string
}

func (p problem) Error() string { return p.detail }

func (p problem) body() apigen.Problem {
	return apigen.Problem{
		Type: "about:blank", Title: http.StatusText(p.status), Status: p.status, Code: p.code, Detail: p.detail, Hint: p.hint,
	}
}

// busy is a problem that has passed after a while.
type busy struct {
	problem
	after time.Duration
}

// identity is who sent a request, and with what: a token, or the session of a
// browser.
type identity struct {
	access.Principal
	token, session string
	sees           *sight
}

type identityKey struct{}

// Caller returns who sent the request of a context; nobody has no name.
func Caller(ctx context.Context) access.Principal {
	if id, ok := ctx.Value(identityKey{}).(*identity); ok {
		return id.Principal
	}
	return access.Principal{}
}

// build assembles the handlers. The order matters: what is refused is refused
// before anything is read.
func (s *Server) build() (*fiber.App, error) {
	methods := append(slices.Clone(fiber.DefaultMethods), "QUERY") // any other is refused before anything of ours is asked
	app := fiber.New(fiber.Config{
		AppName: "auspex", DisableStartupMessage: true, Immutable: true, // values of a request outlive it in stores and queues
		BodyLimit: maxBody, ReadTimeout: 15 * time.Second, IdleTimeout: 2 * time.Minute, WriteTimeout: 0, // a stream has no end
		ErrorHandler: s.fail, StrictRouting: false, CaseSensitive: true, ReadBufferSize: 16 << 10,
		Concurrency: maxConnections, RequestMethods: methods, DisablePreParseMultipartForm: true, // which would unpack before anybody is known
	})
	app.Server().HeaderReceived = s.admit
	app.Use(s.measure, recover.New(), s.headers, s.frame, s.host, s.coded, s.attend)
	root := app.Group(s.cfg.BasePath)
	for _, prefix := range longestFirst(s.deps.Open) {
		h := s.deps.Open[prefix]
		root.All(prefix, mount(s.strip(h)))
		root.All(strings.TrimSuffix(prefix, "/")+"/*", mount(s.strip(h)))
	}
	guarded := make(map[string]http.Handler)
	maps.Copy(guarded, s.deps.Viewed)
	maps.Copy(guarded, s.deps.Guarded)
	for _, prefix := range longestFirst(guarded) {
		chain := []fiber.Handler{packed, s.authenticate, s.readers, mount(s.strip(guarded[prefix]))}
		if s.deps.Viewed[prefix] == nil {
			chain = slices.Insert(chain, 3, s.keepers)
		}
		root.All(prefix, chain...)
		root.All(strings.TrimSuffix(prefix, "/")+"/*", chain...)
	}
	for path, h := range s.deps.Admin {
		root.Post(path, s.authenticate, s.admins, s.note, mount(s.strip(h)))
		root.All(path, func(c *fiber.Ctx) error {
			c.Set("Allow", http.MethodPost)
			return problem{http.StatusMethodNotAllowed, "no_route", c.Method() + " is not allowed here.", "Use POST."}
		})
	}
	v1 := root.Group("/api/v1")
	v1.Use(packed)
	document := bytes.Replace(openapi.Document, []byte("servers: [{url: /api/v1}]"), []byte("servers: [{url: "+strconv.Quote(s.cfg.BasePath+"/api/v1")+"}]"), 1)
	v1.Get("/openapi.yaml", func(c *fiber.Ctx) error {
		c.Set("Content-Type", "application/yaml")
		return c.Send(document)
	})
	v1.Use(func(c *fiber.Ctx) error {
		c.Set("Cache-Control", "no-store")
		if !strings.HasSuffix(c.Path(), "/stream") {
			ctx, cancel := context.WithTimeout(c.UserContext(), answerWithin)
			defer cancel()
			c.SetUserContext(ctx)
		}
		switch strings.TrimPrefix(c.Path(), s.cfg.BasePath+"/api/v1") {
		case "/login":
			return s.login(c)
		case "/login-methods", "/oidc/login", "/oidc/callback":
			return c.Next()
		}
		return s.authenticate(c)
	})
	v1.Use(s.check)
	apigen.RegisterHandlers(v1, apigen.NewStrictHandler(s, nil))
	v1.Use(func(*fiber.Ctx) error {
		return problem{http.StatusNotFound, "no_route", "There is no such route in the API.", "GET /api/v1/openapi.yaml lists the routes."}
	})
	static, err := newStatic(s.cfg.BasePath)
	if err != nil {
		return nil, err
	}
	if s.cfg.BasePath != "" {
		app.Get("/", func(c *fiber.Ctx) error { return c.Redirect(s.cfg.BasePath+"/", http.StatusFound) })
	}
	root.Get("/*", static.serve)
	return app, nil
}

// longestFirst lists prefixes so that a part of another comes before it.
func longestFirst(m map[string]http.Handler) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int { return len(b) - len(a) })
}

// note writes who asks for a change of the process to the audit, and refuses what
// cannot be written there.
func (s *Server) note(c *fiber.Ctx) error {
	path := strings.TrimPrefix(c.Path(), s.cfg.BasePath)
	if err := s.access.NoteRequest(c.UserContext(), Caller(c.UserContext()).Name, path); err != nil {
		return err
	}
	return c.Next()
}

// strip takes the base path off before a mounted handler sees the request.
func (s *Server) strip(h http.Handler) http.Handler {
	if s.cfg.BasePath == "" {
		return h
	}
	return http.StripPrefix(s.cfg.BasePath, h)
}

// fail answers an error as a problem document.
func (s *Server) fail(c *fiber.Ctx, err error) error {
	var p problem
	var u unresolved
	var f fielded
	var m unmoved
	var n noFit
	var l busy
	var fe *fiber.Error
	err = listed(err)
	switch {
	case errors.As(err, &l):
		p = l.problem
		c.Set("Retry-After", strconv.Itoa(int(l.after.Seconds())))
	case errors.As(err, &u):
		p = u.problem
	case errors.As(err, &f):
		p = f.problem
	case errors.As(err, &m):
		p = m.problem
	case errors.As(err, &n):
		p = n.problem
	case errors.As(err, &p):
	case errors.As(err, &fe):
		p = problem{fe.Code, "bad_request", fe.Message, ""}
		switch fe.Code {
		case http.StatusMethodNotAllowed, http.StatusNotFound:
			p.code = "no_route"
		case http.StatusRequestEntityTooLarge:
			p = tooLarge(maxBody)
			linger(c.Context().Conn())
		case http.StatusRequestHeaderFieldsTooLarge:
			linger(c.Context().Conn())
		}
	case errors.Is(err, context.DeadlineExceeded):
		p = problem{http.StatusServiceUnavailable, "timeout", "The answer took too long.", "Ask for less, or try again."}
	default:
		s.log.Error("request failed", "method", c.Method(), "route", c.Route().Path, "error", err)
		p = problem{http.StatusInternalServerError, "internal", "The request could not be answered.", "See the log of the server."}
	}
	c.Set("Cache-Control", "no-store")
	body := p.body()
	body.Candidates, body.Errors, body.Legal, body.Choice = u.candidates, f.errs, m.legal, n.choice
	return c.Status(p.status).JSON(body, "application/problem+json")
}

func (s *Server) headers(c *fiber.Ctx) error {
	c.Set("Content-Security-Policy", policy)
	c.Set("X-Content-Type-Options", "nosniff")
	c.Set("Referrer-Policy", "same-origin")
	c.Set("X-Frame-Options", "DENY")
	c.Set("Cross-Origin-Opener-Policy", "same-origin")
	c.Set("Cross-Origin-Resource-Policy", "same-origin")
	if s.cfg.TLS.CertFile != "" {
		c.Set("Strict-Transport-Security", "max-age=31536000")
	}
	return c.Next()
}

// host refuses names that are not ours: a page of another site whose name was
// made to point here (DNS rebinding) arrives under that name.
func (s *Server) host(c *fiber.Ctx) error {
	name := string(c.Request().Host()) // never a forwarded name, which a page may claim
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if name == "localhost" || net.ParseIP(name) != nil || slices.Contains(s.cfg.Hosts, name) {
		return c.Next()
	}
	return problem{
		http.StatusMisdirectedRequest, "unknown_host", "This server does not answer to the host name of the request.",
		"Add the name to api.hosts, or use the address.",
	}
}

// crossSite refuses what another site makes the browser send. A page's origin is
// the name of the request, or one that browsers may use where a proxy puts
// another into the request.
func (s *Server) crossSite(c *fiber.Ctx) error {
	site, origin := c.Get("Sec-Fetch-Site"), c.Get("Origin")
	if (site != "" && site != "same-origin" && site != "none") || (origin != "" && !s.ours(origin, string(c.Request().Host()))) {
		return problem{http.StatusForbidden, "cross_site", "The request came from another site.", "Use this server's own pages, or a token."}
	}
	return nil
}

func (s *Server) ours(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && (strings.EqualFold(u.Host, host) || slices.Contains(s.cfg.Hosts, strings.ToLower(u.Hostname())))
}

// login lets a try to log in through: from our own page or a script, small, and
// not packed.
func (s *Server) login(c *fiber.Ctx) error {
	if c.Method() == http.MethodPost {
		if err := s.crossSite(c); err != nil {
			return err
		}
	}
	if c.Get("Content-Encoding") != "" {
		return errCoding
	}
	if len(c.BodyRaw()) > maxUnknown {
		return tooLarge(maxUnknown)
	}
	return c.Next()
}

// authenticate finds out who asks: a token as bearer or as the password of basic
// authentication, or the session of a browser. The body is unpacked afterwards.
func (s *Server) authenticate(c *fiber.Ctx) error {
	id, err := s.identify(c.UserContext(), c.Get("Authorization"), c.Cookies(sessionCookie))
	if err != nil {
		return err
	}
	if id == nil {
		// Whose credential holds never waits, whoever guesses from the same address.
		if c.Get("Authorization") != "" || c.Cookies(sessionCookie) != "" {
			if err := s.slow(c, s.guesses, "credential"); err != nil {
				return err
			}
		}
		c.Set("WWW-Authenticate", `Bearer realm="auspex"`)
		return problem{
			http.StatusUnauthorized, "login_needed", "The request has no valid session or token.",
			"Open the address that Auspex printed at start, or send a token.",
		}
	}
	if id.session != "" {
		read := c.Method() == http.MethodGet || c.Method() == http.MethodHead
		if !read && c.Get("Sec-Fetch-Site") == "" && c.Get("Origin") == "" {
			return problem{
				http.StatusForbidden, "cross_site", "A write with a session must come from this server's own pages.", "Use a token for scripts.",
			}
		}
		if err := s.crossSite(c); err != nil {
			return err
		}
	}
	if err := s.pace(c, id.Principal); err != nil {
		return err
	}
	if id.sees, err = s.look(c.UserContext(), id.Principal); err != nil {
		return err
	}
	ctx := context.WithValue(c.UserContext(), identityKey{}, id)
	if id.sees != nil {
		ctx = prom.WithView(ctx, id.sees)
	}
	c.SetUserContext(ctx)
	if err := unpack(c); err != nil {
		return err
	}
	return c.Next()
}

// identify returns whose credential a request carries, or nil.
func (s *Server) identify(ctx context.Context, authorization, cookie string) (*identity, error) {
	scheme, value, _ := strings.Cut(authorization, " ")
	token := ""
	switch strings.ToLower(scheme) {
	case "bearer":
		token = strings.TrimSpace(value)
	case "basic":
		if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value)); err == nil {
			_, token, _ = strings.Cut(string(b), ":")
		}
	}
	id, found, err := &identity{token: token}, false, error(nil)
	if s.oidc != nil && s.oidc.Takes(token) {
		id.Principal, found, err = s.bearer(ctx, token)
	} else if token != "" {
		id.Principal, found, err = s.access.Token(ctx, token)
	} else if cookie != "" {
		id.session = cookie
		id.Principal, found, err = s.access.Session(ctx, cookie)
	}
	if err != nil || !found {
		return nil, err
	}
	return id, nil
}

// readers lets those through who may read.
func (s *Server) readers(c *fiber.Ctx) error {
	if err := may(c.UserContext(), access.Read); err != nil {
		return err
	}
	return c.Next()
}

// keepers lets those through who see everything.
func (s *Server) keepers(c *fiber.Ctx) error {
	if seen(c.UserContext()) != nil {
		return errSite
	}
	return c.Next()
}

// admins lets those through who may make the process reload.
func (s *Server) admins(c *fiber.Ctx) error {
	if err := may(c.UserContext(), access.Reload); err != nil {
		return err
	}
	return c.Next()
}

// may returns a problem unless the caller has a permission everywhere.
func may(ctx context.Context, permission string) error {
	if !Caller(ctx).May(permission) {
		return lacks(ctx, permission, "")
	}
	return nil
}

// static serves the built UI; a path that is no file gets index.html, so that
// every view is a link.
type static struct{ files map[string]asset }

type asset struct {
	body      []byte
	packed    func() ([]byte, error) // at the first request: a start need not wait for what nobody may ask for
	kind, tag string
}

var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".txt": "text/plain; charset=utf-8",
}

// hashed is a file whose name changes with what it holds.
var hashed = regexp.MustCompile(`^[\w-]+-[A-Z0-9]{8}\.js$`)

func newStatic(base string) (*static, error) {
	st := &static{files: make(map[string]asset)}
	err := fs.WalkDir(ui.Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(ui.Files(), name)
		if err != nil {
			return err
		}
		switch name {
		case "index.html":
			b = bytes.Replace(b, []byte(`<base href="/">`), []byte(`<base href="`+base+`/">`), 1)
		case tryPage + ".html": // without a base, which would lead its links within the page away
			b = bytes.ReplaceAll(b, []byte(`="/`), []byte(`="`+base+`/`))
		}
		sum := sha256.Sum256(b)
		st.files[name] = asset{b, sync.OnceValues(func() ([]byte, error) { return pack(b) }), kinds[path.Ext(name)], `"` + hex.EncodeToString(sum[:8]) + `"`}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the built UI: %w", err)
	}
	if _, ok := st.files["index.html"]; !ok {
		return nil, errors.New("the built UI is not in this binary; run make ui")
	}
	return st, nil
}

func pack(b []byte) ([]byte, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

func (st *static) serve(c *fiber.Ctx) error {
	name := strings.Trim(c.Params("*"), "/")
	if name == tryPage {
		name += ".html"
	}
	a, ok := st.files[name]
	if !ok {
		a = st.files["index.html"]
	}
	c.Set("Content-Type", a.kind)
	c.Set("Cache-Control", "no-cache")
	if ok && hashed.MatchString(name) {
		c.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	c.Set("ETag", a.tag)
	c.Set("Vary", "Accept-Encoding")
	if c.Get("If-None-Match") == a.tag {
		return c.SendStatus(http.StatusNotModified)
	}
	if strings.Contains(c.Get("Accept-Encoding"), "gzip") {
		packed, err := a.packed()
		if err != nil {
			return err
		}
		c.Set("Content-Encoding", "gzip")
		return c.Send(packed)
	}
	return c.Send(a.body)
}

// meter holds the console's own metrics.
type meter struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	logins    *prometheus.CounterVec
	intents   *prometheus.CounterVec
	posted    *prometheus.CounterVec
	refresh   prometheus.Counter
	listen    prometheus.Counter
	malformed prometheus.Counter
	limited   *prometheus.CounterVec
	broken    prometheus.Counter
	forgotten prometheus.Counter
}

func (m *meter) register(reg prometheus.Registerer) error {
	m.requests = prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "auspex_api_requests_total", Help: "Requests, by route, method and status."},
		[]string{"route", "method", "code"},
	)
	m.seconds = prometheus.NewHistogramVec(
		prometheus.HistogramOpts{
			Name: "auspex_api_request_duration_seconds", Help: "Duration of requests, streams excluded.",
			Buckets: prometheus.ExponentialBuckets(0.001, 3, 9),
		},
		[]string{"route"},
	)
	m.logins = prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "auspex_api_logins_total", Help: "Login attempts, by result."}, []string{"result"},
	)
	m.intents = prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "auspex_api_intents_total", Help: "Intents put on the bus, by verb."}, []string{"verb"},
	)
	m.posted = prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "auspex_api_posted_total", Help: "Events and alerts that callers posted, by whether the bus took them."},
		[]string{"what", "result"},
	)
	m.refresh = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "auspex_api_refresh_errors_total", Help: "Failed reads of the current state.",
	})
	m.listen = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "auspex_api_subscribe_errors_total", Help: "Failed reads of the bus for the live stream.",
	})
	m.malformed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "auspex_api_malformed_records_total", Help: "Records on the bus that the live stream could not read.",
	})
	m.limited = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "auspex_api_limited_total", Help: "Requests that were answered 429: reads and writes of callers, and credentials and logins that failed.",
	}, []string{"what"})
	m.broken = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "auspex_api_lines_broken_total", Help: "Lists of lines whose last line says that they could not be read to their end.",
	})
	m.forgotten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "auspex_api_forgotten_operations_total", Help: "Operations that had ended and were older than api.keep_operations: they are no longer listed.",
	})
	for _, c := range []prometheus.Collector{m.broken, m.forgotten, m.limited, m.requests, m.seconds, m.logins, m.intents, m.posted, m.refresh, m.listen, m.malformed} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

// measure counts requests by the route that took them, never by the path.
func (s *Server) measure(c *fiber.Ctx) error {
	began := time.Now()
	err := c.Next()
	if err != nil {
		if e := s.fail(c, err); e != nil {
			return e
		}
	}
	route := c.Route().Path
	s.meter.requests.WithLabelValues(route, c.Method(), strconv.Itoa(c.Response().StatusCode())).Inc()
	if !strings.HasSuffix(route, "/stream") {
		s.meter.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
	}
	return nil
}
