// Package api is the console's server: the REST API under /api/v1, the live
// stream, the login, and the web UI, on one listener.
//
// It reads what other stages keep in the relational store and in the hot window;
// what a person decides goes to the bus as an intent. Every answer works on an
// empty system and without a history.
package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/api/access"
	"auspex/api/oidc"
	promapi "auspex/api/prometheus"
	"auspex/api/stream"
	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/discover"
	"auspex/internal/enrol"
	"auspex/internal/reasons"
	"auspex/internal/store/allocations"
	"auspex/internal/store/answers"
	"auspex/internal/store/audit"
	"auspex/internal/store/configs"
	"auspex/internal/store/corrections"
	"auspex/internal/store/cursors"
	"auspex/internal/store/estate"
	"auspex/internal/store/handling"
	"auspex/internal/store/hooks"
	"auspex/internal/store/join"
	"auspex/internal/store/people"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/records"
	"auspex/internal/store/requests"
	"auspex/internal/store/validations"
	"auspex/internal/store/wipes"
	"auspex/internal/store/workflows"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

// Config is how the console listens and whom it lets in.
type Config struct {
	Listen          string        `yaml:"listen"`           // host:port; loopback by default
	BasePath        string        `yaml:"base_path"`        // a prefix behind a proxy, such as /auspex
	Hosts           []string      `yaml:"hosts"`            // names that browsers may use, beside localhost and IP addresses
	SessionLifetime time.Duration `yaml:"session_lifetime"` // of a browser's login
	MaxStreams      int           `yaml:"max_streams"`      // readers of the live stream at a time
	TLS             TLSConfig     `yaml:"tls"`
	Name            string        `yaml:"name"` // of this fleet, shown in the header
	// Metrics and Health say who may read /metrics, and /-/healthy with /-/ready:
	// open, or token (of any role). Empty is open where the listener is on loopback
	// alone, and token elsewhere; health is open.
	Metrics string `yaml:"metrics"`
	Health  string `yaml:"health"`
	// Limits is how often a caller may ask.
	Limits LimitsConfig `yaml:"limits"`
	// KeepOperations is how long what people, allocations and workflows asked control for is listed
	// after it was asked for. What has not ended stays, and so does the audit.
	KeepOperations time.Duration `yaml:"keep_operations"`
	// OIDC is the login service that lets people in, where there is one.
	OIDC oidc.Config `yaml:"oidc"`
	// Query bounds what the Prometheus read API does for a caller.
	Query promapi.Config `yaml:"query"`
}

// Who may read what a process says of itself.
const (
	AccessOpen  = "open"
	AccessToken = "token"
)

// MetricsOpen reports whether /metrics answers anybody. It goes by the listener
// and not by who asks: a proxy on this machine gives everybody its address.
func (c Config) MetricsOpen() bool {
	if c.Metrics != "" {
		return c.Metrics == AccessOpen
	}
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// HealthOpen reports whether /-/healthy and /-/ready answer anybody.
func (c Config) HealthOpen() bool { return c.Health != AccessToken }

// TLSConfig names the certificate of the listener; without one it speaks HTTP.
type TLSConfig struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Read reads the certificate and its key.
func (c TLSConfig) Read() (tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return cert, fmt.Errorf("read api.tls: certificate %s with key %s: %w", c.CertFile, c.KeyFile, err)
	}
	return cert, nil
}

// DefaultConfig returns a console on loopback.
func DefaultConfig() Config {
	return Config{
		Listen: "127.0.0.1:8080", SessionLifetime: 7 * 24 * time.Hour, MaxStreams: 64, Query: promapi.DefaultConfig(),
		Limits: LimitsConfig{Reads: 2000, Writes: 500, Burst: 2 * time.Second}, OIDC: oidc.DefaultConfig(),
		KeepOperations: 400 * 24 * time.Hour, // last year's are looked up when the same comes again
	}
}

// Validate reports the first setting that cannot work.
func (c Config) Validate() error {
	if _, port, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("listen: %q is not a port", port)
	}
	if c.BasePath != "" &&
		(!strings.HasPrefix(c.BasePath, "/") || strings.HasSuffix(c.BasePath, "/") || strings.ContainsAny(c.BasePath, `"<>?#%:*`)) {
		return fmt.Errorf("base_path: %q must be empty or like /auspex", c.BasePath)
	}
	if c.SessionLifetime < time.Minute {
		return fmt.Errorf("session_lifetime: want at least 1m, got %s", c.SessionLifetime)
	}
	if c.KeepOperations < 24*time.Hour { // the bus may give a request again
		return fmt.Errorf("keep_operations: want at least 24h, got %s", c.KeepOperations)
	}
	if c.MaxStreams < 1 || c.MaxStreams > 10_000 {
		return fmt.Errorf("max_streams: want 1 to 10000, got %d", c.MaxStreams)
	}
	for key, v := range map[string]string{"metrics": c.Metrics, "health": c.Health} {
		if v != "" && v != AccessOpen && v != AccessToken {
			return fmt.Errorf("%s: want open or token, got %q", key, v)
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("tls: set both cert_file and key_file, or neither")
	}
	return nil
}

// Records is the current state of what other stages decided.
type Records interface {
	Alert(ctx context.Context, id string) (schemas.Alert, bool, error)
	Alerts(ctx context.Context, f records.Filter) ([]schemas.Alert, string, error)
	Incident(ctx context.Context, id string) (schemas.Incident, bool, error)
	Incidents(ctx context.Context, f records.Filter) ([]schemas.Incident, string, error)
	// IncidentOf returns the incident that lists an event, of those that opened within a span.
	IncidentOf(ctx context.Context, event string, from, to time.Time) (schemas.Incident, bool, error)
	Predictions(ctx context.Context, f records.Filter) ([]schemas.Prediction, string, error)
	Action(ctx context.Context, id string) (schemas.Action, bool, error)
	Actions(ctx context.Context, f records.Filter) ([]schemas.Action, string, error)
	Budgets(ctx context.Context) (schemas.Budgets, bool, error)
	// NoSteps returns why control has no step for open incidents, by their ids.
	NoSteps(ctx context.Context) (map[string]schemas.NoStep, error)
}

// Audit is who did what to which machine.
type Audit interface {
	// Page returns a page of rows, from the newest on where no order is asked for, and the cursor of
	// the following page.
	Page(ctx context.Context, f audit.Filter) ([]audit.Row, string, error)
	// Check says whether the chain of hashes holds.
	Check(ctx context.Context) (audit.Chain, error)
}

// Corrections is what people said about the causes of incidents.
type Corrections interface {
	// Put adds a verdict and audits it; the same again changes nothing.
	Put(ctx context.Context, c schemas.Correction) (schemas.Correction, error)
	// History returns all verdicts on an incident, newest first.
	History(ctx context.Context, incident string) ([]schemas.Correction, error)
	// Of returns the verdicts that stand on incidents.
	Of(ctx context.Context, incidents ...string) (map[string]schemas.Correction, error)
	// List returns a page of the verdicts that stand, in an order; "" is the newest first.
	List(ctx context.Context, since time.Time, sort, after string, limit int) ([]schemas.Correction, string, error)
	// Turns returns from when on incidents named which cause.
	Turns(ctx context.Context, incidents ...string) (map[string][]corrections.Turn, error)
}

// Maintenance is the work that was declared.
type Maintenance interface {
	// Declare adds a window and audits it; a known one is returned as it stands.
	Declare(ctx context.Context, m schemas.Maintenance) (schemas.Maintenance, error)
	// Change changes one that people declared and that is not over, and audits that.
	Change(ctx context.Context, id, by string, revision int64, at time.Time, change func(*schemas.Maintenance) error) (schemas.Maintenance, error)
	// End ends a window and audits that; one that is over stays as it is.
	End(ctx context.Context, id, by string, revision int64, at time.Time) (schemas.Maintenance, error)
	Get(ctx context.Context, id string) (schemas.Maintenance, error)
	// Open returns the windows that are open or to come, the first to begin first.
	Open(ctx context.Context, now time.Time) ([]schemas.Maintenance, error)
	// List returns a page of all windows, the last declared first where no order is asked for.
	List(ctx context.Context, sort, after string, limit int) ([]schemas.Maintenance, string, error)
	// Untold returns the windows of which the bus does not know all, and Told notes that it does.
	Untold(ctx context.Context) ([]schemas.Maintenance, error)
	Forget(ctx context.Context, before time.Time) error
	Told(ctx context.Context, m *schemas.Maintenance) error
}

// Contacts is which devices collectors have lost.
type Contacts interface {
	Losses(ctx context.Context, event, collector string) (map[string]cursors.Loss, error)
}

// Inventory is what there is to watch.
type Inventory interface {
	Snapshot() *cmdb.Snapshot
}

// History answers for what is older than the records. It may be missing.
type History interface {
	// Events returns a page of events, those observed last first, and the cursor of the page that
	// follows, or "". A nil page says that there is no history now.
	Events(ctx context.Context, f records.EventFilter) (page []schemas.Event, next string, err error)
	// Event returns one event, and whether there is one.
	Event(ctx context.Context, id string) (schemas.Event, bool, error)
	// Readings returns what each collector read of a metric of a resource, on a grid of n times from
	// start on: the value at a time is of the step that ends there, of a counter the last, else the
	// mean; nil is nothing. A nil map says that there is no history now.
	Readings(
		ctx context.Context, resource, metric string, counter bool, start time.Time, step time.Duration, n int,
	) (map[string][]*float64, error)
}

// Deps is what the console needs of the rest of the system.
type Deps struct {
	Log        *slog.Logger
	Registerer prometheus.Registerer
	DB         access.DB
	Records    Records
	People     *people.Store
	Answers    *answers.Store // to requests with an Idempotency-Key
	Audit      Audit          // nil shows none
	// Requests is what people asked control for; nil takes and shows none.
	Requests *requests.Store
	// Estate, Allocations and Workflows are who has what and what is done for it, and Allocator
	// gives it; nil gives nothing.
	Estate      *estate.Store
	Allocations *allocations.Store
	Workflows   *workflows.Store
	Allocator   Allocator
	// Said reads sentences from the texts of reasons; nil reads none.
	Said *reasons.Reader
	// Webhooks are where notices are sent to; nil shows none.
	Webhooks *hooks.Store
	// Corrections are shown and taken where they are there.
	Corrections Corrections
	// Learned is the version of the learned parameters in force; nil reads as 0.
	Learned func(ctx context.Context) (int64, error)
	// Handling is what people did about alerts; nil takes nothing.
	Handling *handling.Store
	// Edges are listed and decided on where they are there.
	Edges Edges
	// Maintenance is declared and listed where it is there.
	Maintenance Maintenance
	// Join is who may dial in, and Enrol what agents propose; nil shows none.
	Join  *join.Store
	Enrol *enrol.Desk
	// Discovery is where sweeps are asked for and conflicts decided; nil shows none.
	Discovery *discover.Desk
	// Configs is what servers and GPUs are to be configured as, and Registry the inventory that
	// callers add to, which Inventory is the reading half of; nil registers nothing.
	Configs  *configs.Store
	Registry *cmdb.Inventory
	// Provisioning is how systems are installed.
	Provisioning *provisioning.Store
	Validations  *validations.Store
	Wipes        *wipes.Store
	// Contacts is which agents are lost, and Tunnel where they dial in, if this process
	// lets them.
	Contacts   Contacts
	Tunnel     string
	Inventory  Inventory
	Secrets    oidc.Secrets   // has that of the login service, where one is configured
	Querier    Querier        // hot window; nil when there is none: pages then have no plots
	History    History        // nil when there is none
	Publisher  bus.Publisher  // for intents; nil refuses them
	Subscriber bus.Subscriber // for the live stream; nil refreshes every few seconds

	Mode        func() string             // of control; nil reads as observe
	SampleRate  func() float64            // samples per second that arrive; nil is not known
	Faults      func() *propagation.Model // what faults are called; nil is the built-in records
	Version     string
	Simulated   bool
	HistoryLive bool // a store for the history is there

	// Open, Guarded and Admin mount handlers below the base path, by prefix such as
	// "/metrics" or "/prometheus/": those of Open answer anybody, those of Guarded
	// whoever may read, those of Admin the POST of an admin.
	Open    map[string]http.Handler
	Guarded map[string]http.Handler
	// Viewed are as Guarded, and keep to the view of their caller (prometheus.WithView).
	Viewed map[string]http.Handler
	Admin  map[string]http.Handler
}

// Server is the console. It is a component of internal/run.
type Server struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	app    *fiber.App
	access *access.Store
	hub    *stream.Hub
	live   *live
	told   chan struct{}  // a window was declared or ended
	asks   chan struct{}  // something was asked for
	oidc   *oidc.Provider // nil where there is no login service
	limits
	checks checker
	meter  meter

	cert atomic.Pointer[tls.Certificate]

	capacity capacity

	stopping context.Context // done when the server stops
	stop     context.CancelFunc

	mu   sync.Mutex
	addr net.Addr
}

// New builds the console and registers its metrics. Nothing listens before Run.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if deps.Records == nil || deps.Inventory == nil || deps.DB == nil || deps.Registerer == nil || deps.Log == nil || deps.People == nil ||
		deps.Answers == nil || deps.Estate == nil || deps.Allocations == nil || deps.Workflows == nil {
		return nil, errors.New("api: records, people, answers, estate, allocations, workflows, inventory, database, registerer and log are required")
	}
	if deps.Faults == nil {
		deps.Faults = sync.OnceValue(propagation.Default)
	}
	if deps.Mode == nil {
		deps.Mode = func() string { return schemas.ModeObserve }
	}
	deps.Records = viewed{deps.Records}
	if deps.History != nil {
		deps.History = past{deps.History}
	}
	s := &Server{
		cfg: cfg, deps: deps, log: deps.Log, access: access.New(deps.DB, cfg.SessionLifetime), limits: newLimits(cfg.Limits),
		told: make(chan struct{}, 1), asks: make(chan struct{}, 1),
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	var err error
	if s.hub, err = stream.NewHub(strconv.FormatInt(time.Now().UnixNano(), 36), cfg.MaxStreams, deps.Registerer); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if err := s.meter.register(deps.Registerer); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if cfg.OIDC.On() {
		if deps.Secrets == nil && cfg.OIDC.ClientSecret != "" {
			return nil, errors.New("api: a login service with a secret needs secrets")
		}
		if s.oidc, err = oidc.New(cfg.OIDC, deps.Secrets, deps.Log, deps.Registerer); err != nil {
			return nil, fmt.Errorf("api.oidc.%w", err)
		}
	}
	s.live = newLive(deps, s.hub, &s.meter)
	if s.checks, err = newChecker(); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	if s.app, err = s.build(); err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	return s, nil
}

// printedCode is how long an address works that stands in a terminal.
const printedCode = 12 * time.Hour

// Name implements run.Component.
func (s *Server) Name() string { return "api" }

// Addr returns the address that the console listens on, and nil before it does.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// URL returns the address of the UI, and "" before the console listens.
func (s *Server) URL() string {
	addr, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if s.cfg.TLS.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(addr.Port)) + s.cfg.BasePath + "/"
}

// LoginURL returns the address of the UI with a new one-time code in its
// fragment, which browsers keep to themselves.
func (s *Server) LoginURL(ctx context.Context, name, role string) (string, error) {
	code, _, err := s.access.NewCode(ctx, process, access.Principal{Name: name, Role: role}, printedCode)
	if err != nil {
		return "", err
	}
	return s.URL() + "#login=" + code, nil
}

// process is who makes what nobody asked for: the start of Auspex.
const process = "auspex"

// IssueToken makes the token of a name with a role (access.RoleViewer, …); an
// earlier token of that name stops working.
func (s *Server) IssueToken(ctx context.Context, name, role string) (string, error) {
	return s.access.IssueToken(ctx, process, name, role)
}

// PrepareTLS reads a certificate; what it returns shows it to those who connect
// from then on.
func (s *Server) PrepareTLS(_ context.Context, c TLSConfig) (apply func(context.Context) error, err error) {
	if c.CertFile == "" {
		return nil, errors.New("api.tls: cert_file: a TLS listener needs a certificate; restart to listen without TLS")
	}
	cert, err := c.Read()
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { s.cert.Store(&cert); return nil }, nil
}

// Run listens until ctx is done. It calls ready once requests are answered.
func (s *Server) Run(ctx context.Context, ready func()) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("listen on %s: the address is in use; choose another with --listen", s.cfg.Listen)
		}
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	ln = listener{ln}
	s.mu.Lock()
	s.addr = ln.Addr()
	s.mu.Unlock()
	if s.cfg.TLS.CertFile != "" {
		use, err := s.PrepareTLS(ctx, s.cfg.TLS)
		if err == nil {
			err = use(ctx)
		}
		if err != nil {
			_ = ln.Close()
			return err
		}
		ln = tls.NewListener(ln, &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Load(), nil },
		})
	} else if a, ok := ln.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		s.log.Warn("console listens without TLS beyond loopback", "address", ln.Addr().String())
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if err := s.live.load(ctx); err != nil {
		s.log.Warn("cannot read the current state yet", "error", err)
	}
	wg.Go(func() { s.live.run(ctx) })
	wg.Go(func() { s.prune(ctx) })
	if s.oidc != nil {
		wg.Go(func() { s.oidc.Run(ctx) })
	}
	wg.Go(func() { s.announceMaintenance(ctx) })
	wg.Go(func() { s.announceRequests(ctx) })
	failed := make(chan error, 1)
	wg.Go(func() { failed <- s.app.Listener(ln) })
	ready()
	select {
	case err = <-failed:
		if err == nil {
			err = errors.New("listener ended")
		}
	case <-ctx.Done():
		err = nil
	}
	cancel()
	s.stop()
	s.hub.Close()
	if e := s.app.ShutdownWithTimeout(3 * time.Second); e != nil && err == nil && !errors.Is(e, context.DeadlineExceeded) {
		err = fmt.Errorf("stop listening: %w", e)
	}
	_ = ln.Close() // of an end that came before the listener was taken up, the library knows nothing
	wg.Wait()
	return err
}
