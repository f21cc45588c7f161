// Package sim runs the simulated fleet: real Redfish, IPMI, gNMI, dcgm-exporter
// and Slurm endpoints on loopback, a node agent for each server, kernel logs in files, and the
// Kubernetes API with what Tinkerbell does, all over one physical model, with faults from a script.
//
// It is a process of its own and shares nothing with the product but its files:
//
//	topology.json   the inventory, with the addresses of all devices
//	spare.json      likewise, of servers that stand there and that the inventory does not have
//	secrets.yaml    users and passwords by the name that the inventory uses
//	ca.pem          what signs the certificates of the HTTPS and gNMI endpoints
//	slurm.json      the address of the scheduler and the file with its token
//	tinkerbell.kubeconfig  how to reach the Kubernetes API with the objects of Tinkerbell
//	images.json     the address of a store of images, and what is in it
//	ledger.jsonl    all that was injected, and all that the devices said
//	state.json      what the devices keep when the simulator stops
//	endpoints.json  the process, its start and its ports, written when it is ready
package sim

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"auspex/internal/sim/agent"
	"auspex/internal/sim/appendfile"
	"auspex/internal/sim/exporter"
	"auspex/internal/sim/fault"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/gnmi"
	"auspex/internal/sim/ipmi"
	"auspex/internal/sim/kube"
	"auspex/internal/sim/ledger"
	"auspex/internal/sim/redfish"
	"auspex/internal/sim/slurm"
	"auspex/internal/sim/tinkerbell"
	"auspex/internal/tunnel/outbound"
	"auspex/schemas"
)

// Names of the files below the simulator's directory.
const (
	TopologyFile  = "topology.json"
	SpareFile     = "spare.json"
	SecretsFile   = "secrets.yaml"
	CAFile        = caFile
	SlurmFile     = "slurm.json"
	ImagesFile    = "images.json"
	LedgerFile    = "ledger.jsonl"
	EndpointsFile = "endpoints.json"

	// TinkerbellFile is a kubeconfig.
	TinkerbellFile = "tinkerbell.kubeconfig"

	tokenFile    = "slurm.token"
	kubeToken    = "tinkerbell.token"
	passwordFile = "password"
	stateFile    = "state.json"
	lockFile     = "lock"
	kmsgDir      = "kmsg"
	agentDir     = "agents"
)

// agentInterval is how often agents read their GPUs.
const agentInterval = 5 * time.Second

// maxWait bounds how late the model does what a request has planned.
const maxWait = 100 * time.Millisecond

// calm is how long a fleet that was mended stays well before the script begins
// again.
const calm = 20 * time.Second

// Credential is the name of the secret of every simulated device.
const Credential = "sim"

// ErrRunning is returned when another simulator uses the directory.
var ErrRunning = errors.New("another simulator runs in this directory")

// DemoScript is the script of faults that the demo plays.
var DemoScript = fault.Demo

// Config says what is simulated, and where its files go.
type Config struct {
	Dir    string
	Script []byte // YAML; empty plays nothing
	Seed   uint64
	Listen string // the address, without a port, of all endpoints; beyond loopback the fleet's password is drawn
	Port   int    // of the first endpoint, the others follow one by one; 0 takes free ones, and the same again the next time
	Fleet  fleet.Config
	// AgentsAlone leaves node agents as the only ones that tell of what runs on a server: there
	// are no exporters, and nobody else reads kernel logs.
	AgentsAlone bool
	// Spare is how many servers, the last, stand there and are not in the inventory.
	Spare int
	// Miscabled is in how many racks, the first, the inventory has the cables of two servers
	// to the leaf the other way round.
	Miscabled int
	// Dial is whom node agents dial; they then listen nowhere. One token is for all of them.
	Dial    []outbound.Config
	Log     *slog.Logger
	OnEntry func(ledger.Entry) // if not nil, called with each entry of the ledger; must return soon
	Ready   func(Endpoints)    // if not nil, called when every endpoint answers
}

// DefaultConfig returns the demo's fleet and script, without a directory.
func DefaultConfig() Config {
	return Config{Script: DemoScript, Seed: 1, Listen: "127.0.0.1", Fleet: fleet.DefaultConfig(), Log: slog.New(slog.DiscardHandler)}
}

// Validate checks the configuration; it does not look at the disk.
func (c Config) Validate() error {
	if c.Dir == "" {
		return errors.New("dir is empty")
	}
	if ip := net.ParseIP(c.Listen); ip == nil || ip.IsUnspecified() || ip.IsMulticast() {
		return fmt.Errorf("listen is %q; it must be one IP address that clients can reach, for it stands in the inventory", c.Listen)
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("port is %d; want 0 (free ones) to 65535", c.Port)
	}
	for i := range c.Dial {
		if err := c.Dial[i].Validate(); err != nil {
			return fmt.Errorf("dial[%d].%w", i, err)
		}
	}
	if err := c.Fleet.Validate(); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if n := c.Fleet.Racks * c.Fleet.ServersPerRack; c.Spare < 0 || c.Spare >= n {
		return fmt.Errorf("spare is %d; it must be 0 to %d", c.Spare, n-1)
	}
	if c.Miscabled < 0 || c.Miscabled > c.Fleet.Racks {
		return fmt.Errorf("miscabled is %d; it must be 0 to %d, the number of racks", c.Miscabled, c.Fleet.Racks)
	}
	if len(c.Script) > 0 {
		if _, err := fault.Parse(c.Script); err != nil {
			return err
		}
	}
	return nil
}

// Endpoints is the content of endpoints.json.
type Endpoints struct {
	PID     int            `json:"pid"`
	Started time.Time      `json:"started"`
	Seed    uint64         `json:"seed"`
	Script  string         `json:"script,omitempty"`
	Faults  []Planned      `json:"faults"`
	Ports   map[string]int `json:"ports"`
}

// Planned is a fault of the script with the target that was chosen.
type Planned struct {
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"`
	Resource string    `json:"resource"`
}

// Run simulates until ctx is done. It returns nil then, and an error when the
// directory cannot be used, a port cannot be opened or a file cannot be written;
// it goes on while the disk is full, once it has begun.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	if err := newSimulator(cfg).run(ctx); err != nil {
		return fmt.Errorf("simulator: %w", err)
	}
	return nil
}

type simulator struct {
	cfg   Config
	fleet *fleet.Fleet
	slurm *slurm.Controller
	in    *fault.Injector
	kube  *kube.Store
	tink  *tinkerbell.Service
	token string // of the Kubernetes API
	tls   tls.Certificate
	ports map[string]int // those of now
	known map[string]int // those of the last time

	mended       bool // what a run before had broken
	saved        time.Time
	savedRecords uint64
	savedJob     uint32
	savedKube    uint64
	unsaved      bool // the last time found no room on the disk
	full         bool // the disk; it has been said

	wg      sync.WaitGroup
	stops   []func()
	problem chan error
}

func newSimulator(cfg Config) *simulator {
	return &simulator{cfg: cfg, ports: map[string]int{}, known: map[string]int{}, problem: make(chan error, 1)}
}

func (s *simulator) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

func (s *simulator) run(parent context.Context) (err error) {
	dir, err := filepath.Abs(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("find directory: %w", err)
	}
	s.cfg.Dir = dir
	if err := os.MkdirAll(s.path(kmsgDir), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	unlock, err := lock(s.path(lockFile))
	if err != nil {
		return err
	}
	defer unlock()
	var last Endpoints
	if readJSON(s.path(EndpointsFile), &last) == nil && last.Ports != nil {
		s.known = last.Ports
	}
	before, err := s.remember()
	if err != nil {
		return err
	}
	now := time.Now()
	if s.tls, err = certificate(dir, net.ParseIP(s.cfg.Listen), now); err != nil {
		return err
	}
	token, err := s.secret(tokenFile)
	if err != nil {
		return err
	}
	if s.token, err = s.secret(kubeToken); err != nil {
		return err
	}
	if !net.ParseIP(s.cfg.Listen).IsLoopback() {
		if s.cfg.Fleet.Password, err = s.secret(passwordFile); err != nil {
			return err
		}
		s.cfg.Fleet.Password = s.cfg.Fleet.Password[:16] // what IPMI 1.5 clients take as well
	}
	led, err := ledger.Open(s.path(LedgerFile), s.cfg.OnEntry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, led.Err(), led.Close()) }()

	s.fleet = fleet.New(s.cfg.Fleet, s.cfg.Seed, s.path(kmsgDir), led, now)
	s.slurm = slurm.New(s.fleet, s.cfg.Seed, token, 0, led, now)
	s.kube = kube.NewStore(tinkerbell.Resources(), []string{tinkerbell.Namespace}, time.Now)
	s.tink = tinkerbell.New(s.kube, s.fleet, tinkerbell.DefaultTiming(), s.hasImage)
	if before != nil {
		s.fleet.Restore(before.Fleet, !before.Clean)
		if err := s.kube.Restore(before.Tinkerbell, !before.Clean); err != nil {
			return err
		}
	}
	s.fleet.OnChange(s.slurm.Changed)
	if err := s.fleet.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.fleet.Close()) }()
	if before != nil {
		booted := s.fleet.Repair()
		for _, a := range before.Faults {
			a.End(s.fleet)
		}
		s.slurm.Restore(before.Slurm, booted)
		s.mended = len(booted)+len(before.Faults) > 0
	} else {
		s.slurm.Start()
	}
	s.fleet.Settle()
	if err := s.save(false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.save(true)) }()

	ctx, cancel := context.WithCancel(parent)
	defer func() {
		cancel()
		for _, stop := range s.stops {
			stop()
		}
		s.wg.Wait()
	}()
	topology, err := s.listen(ctx)
	if err != nil {
		return err
	}
	if err := s.publish(topology); err != nil {
		return err
	}
	return s.loop(ctx, led)
}

// loop is the simulator's only clock.
func (s *simulator) loop(ctx context.Context, led *ledger.Writer) error {
	started := time.Now()
	if _, err := s.fleet.Step(started); err != nil {
		return err
	}
	s.slurm.Step(started)
	eps := Endpoints{PID: os.Getpid(), Started: started.UTC(), Seed: s.cfg.Seed, Ports: s.ports, Faults: []Planned{}}
	if len(s.cfg.Script) > 0 {
		script, err := fault.Parse(s.cfg.Script)
		if err != nil {
			return err
		}
		start := started
		if s.mended { // let all see that it is well before it breaks again
			start = started.Add(calm)
		}
		if s.in, err = fault.NewInjector(s.fleet, s.slurm, script, s.cfg.Seed, start); err != nil {
			return err
		}
		eps.Script = script.Name
		for _, p := range s.in.Plan() {
			eps.Faults = append(eps.Faults, Planned{start.Add(p.At).UTC(), p.Kind, p.Resource})
		}
	}
	if err := writeJSON(s.path(EndpointsFile), eps); err != nil {
		return err
	}
	if s.cfg.Ready != nil {
		s.cfg.Ready(eps)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for schedule := started; ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.problem:
			return err
		case <-timer.C:
		}
		now := time.Now()
		next, err := s.fleet.Step(now)
		if s.in != nil && err == nil {
			if err := s.in.Step(now); err != nil {
				s.cfg.Log.Error("fault was not injected", "error", err)
			}
			next, err = s.fleet.Step(now)
		}
		if err = errors.Join(err, led.Err()); err != nil {
			return err
		}
		if !now.Before(schedule) {
			s.slurm.Step(now)
			s.tink.Step(now)
			schedule = now.Add(500 * time.Millisecond)
			if err := s.store(now, led); err != nil {
				return err
			}
		}
		if schedule.Before(next) {
			next = schedule
		}
		if s.in != nil {
			if at, ok := s.in.Next(); ok && at.Before(next) {
				next = at
			}
		}
		// A request may have planned something earlier in the meantime.
		timer.Reset(min(maxWait, max(time.Millisecond, time.Until(next))))
	}
}

// store writes what a full disk has kept out, and the state if that is due. It says when the disk is
// full and when it no longer is.
func (s *simulator) store(now time.Time, led *ledger.Writer) error {
	waiting, lost := s.fleet.Flush()
	n, gone := led.Flush()
	waiting, lost = waiting+n, lost+gone
	if s.due(now) {
		err := s.save(false)
		if s.unsaved = appendfile.Full(err); err != nil && !s.unsaved {
			return err
		}
	}
	full := waiting > 0 || s.unsaved
	if full != s.full {
		if s.full = full; full {
			s.cfg.Log.Error("the disk is full: what the devices say waits in memory, and the state of the fleet is not saved", "dir", s.cfg.Dir)
		} else {
			s.cfg.Log.Info("the disk has room again: what waited is written", "dir", s.cfg.Dir, "lost_lines", lost)
		}
	}
	return nil
}

// listen opens every endpoint and returns the inventory with the addresses.
func (s *simulator) listen(ctx context.Context) (schemas.Topology, error) {
	t := s.fleet.Topology()
	tlsConfig := &tls.Config{Certificates: []tls.Certificate{s.tls}, MinVersion: tls.VersionTLS12}
	for i := range t.Resources {
		r := &t.Resources[i]
		var err error
		switch r.Kind {
		case schemas.KindServer:
			err = s.listenServer(ctx, r, tlsConfig)
		case schemas.KindSwitch:
			err = s.listenSwitch(r, tlsConfig)
		case schemas.KindPDU:
			err = s.listenPDU(r, tlsConfig)
		}
		if err != nil {
			return t, fmt.Errorf("open endpoints of %s: %w", r.ID, err)
		}
	}
	l, err := s.tcp("slurm")
	if err != nil {
		return t, fmt.Errorf("open endpoint of the scheduler: %w", err)
	}
	s.serveHTTP(l, s.slurm.Handler(), nil)
	if l, err = s.tcp("tinkerbell"); err != nil {
		return t, fmt.Errorf("open endpoint of the Kubernetes API: %w", err)
	}
	s.serveHTTP(l, s.tink.Handler(s.token), tlsConfig)
	if l, err = s.tcp("images"); err != nil {
		return t, fmt.Errorf("open endpoint of the images: %w", err)
	}
	s.serveHTTP(l, imageHandler(), nil)
	return t, nil
}

func (s *simulator) listenServer(ctx context.Context, r *schemas.Resource, tlsConfig *tls.Config) error {
	b := s.fleet.BMC(r.ID)
	l, err := s.tcp(r.ID + "/redfish")
	if err != nil {
		return err
	}
	service := redfish.NewHandler(b)
	s.stops = append(s.stops, service.Close)
	s.serveHTTP(l, service, tlsConfig)
	r.Attrs = r.Attrs.With(schemas.AttrRedfishURL, "https://"+l.Addr().String())

	pc, err := s.udp(r.ID + "/ipmi")
	if err != nil {
		return err
	}
	server := ipmi.NewServer(b)
	s.wg.Go(func() {
		if err := server.Serve(ctx, pc); err != nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("serve IPMI of %s: %w", r.ID, err))
		}
	})
	s.stops = append(s.stops, func() { _ = pc.Close() })
	r.Attrs = r.Attrs.With(schemas.AttrIPMIIP, pc.LocalAddr().String())

	log := filepath.Join(s.path(kmsgDir), r.ID+".kmsg")
	if !s.cfg.AgentsAlone {
		if l, err = s.tcp(r.ID + "/exporter"); err != nil {
			return err
		}
		s.serveHTTP(l, exporter.NewHandler(s.fleet, r.ID), nil)
		r.Attrs = r.Attrs.With(schemas.AttrExporterURL, "http://"+l.Addr().String()+"/metrics")
		if s.cfg.Fleet.Syslog == "" {
			r.Attrs = r.Attrs.With(schemas.AttrKmsgPath, log)
		} else {
			r.Attrs = r.Attrs.With(schemas.AttrSyslogFrom, r.ID)
		}
	}
	r.Attrs = r.Attrs.With(schemas.AttrCredential, Credential)
	return s.listenAgent(ctx, r, log)
}

func (s *simulator) listenPDU(r *schemas.Resource, tlsConfig *tls.Config) error {
	l, err := s.tcp(r.ID + "/redfish")
	if err != nil {
		return err
	}
	s.serveHTTP(l, redfish.NewPDUHandler(s.fleet.PDU(r.ID)), tlsConfig)
	r.Attrs = r.Attrs.With(schemas.AttrOutletURL, "https://"+l.Addr().String()).With(schemas.AttrCredential, Credential)
	return nil
}

func (s *simulator) listenAgent(ctx context.Context, r *schemas.Resource, log string) error {
	cfg := agent.Config{
		Fleet: s.fleet, Server: r.ID, Dir: filepath.Join(s.path(agentDir), r.ID), Log: log, Password: s.fleet.Password(),
		Interval: agentInterval, Events: s.cfg.Log,
	}
	var l net.Listener
	if cfg.Dial = s.cfg.Dial; len(cfg.Dial) > 0 {
		r.Attrs = r.Attrs.With(schemas.AttrAgentAddress, schemas.AgentDialsIn)
		cfg.About = outbound.About{Hostname: r.ID, Serial: r.Attrs.Get(schemas.AttrSerial), UUID: r.Attrs.Get(schemas.AttrUUID)}
	} else {
		var err error
		if l, err = s.tcp(r.ID + "/agent"); err != nil {
			return err
		}
		r.Attrs = r.Attrs.With(schemas.AttrAgentAddress, l.Addr().String())
		cfg.TLS.CertFile, cfg.TLS.KeyFile = s.path(certFile), s.path(keyFile)
	}
	s.wg.Go(func() {
		if err := agent.Run(ctx, cfg, l); err != nil {
			s.fail(err)
		}
	})
	return nil
}

func (s *simulator) listenSwitch(r *schemas.Resource, tlsConfig *tls.Config) error {
	l, err := s.tcp(r.ID + "/gnmi")
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(tlsConfig.Clone())))
	gpb.RegisterGNMIServer(g, gnmi.NewServer(s.fleet.Switch(r.ID)))
	s.wg.Go(func() {
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.fail(fmt.Errorf("serve gNMI of %s: %w", r.ID, err))
		}
	})
	s.stops = append(s.stops, g.Stop)
	r.Attrs = r.Attrs.With(schemas.AttrGNMIAddress, l.Addr().String())
	r.Attrs = r.Attrs.With(schemas.AttrCredential, Credential)
	return nil
}

// serveHTTP serves on l until the simulator stops. HTTP/2 is off, as board
// controllers have none.
func (s *simulator) serveHTTP(l net.Listener, h http.Handler, tlsConfig *tls.Config) {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	if tlsConfig != nil {
		l = tls.NewListener(l, tlsConfig)
	}
	s.wg.Go(func() {
		if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err))
		}
	})
	s.stops = append(s.stops, func() { _ = srv.Close() })
}

func (s *simulator) fail(err error) {
	select {
	case s.problem <- err:
	default:
	}
}

// tcp opens a listener on the port that the configuration gives, else on that of
// the last time, or on a free one.
func (s *simulator) tcp(key string) (net.Listener, error) {
	var l *net.TCPListener
	port, err := s.open(key, func(ip net.IP, port int) (n int, err error) {
		if l, err = net.ListenTCP("tcp", &net.TCPAddr{IP: ip, Port: port}); err == nil {
			n = l.Addr().(*net.TCPAddr).Port
		}
		return n, err
	})
	s.ports[key] = port
	return l, err
}

func (s *simulator) udp(key string) (net.PacketConn, error) {
	var c *net.UDPConn
	port, err := s.open(key, func(ip net.IP, port int) (n int, err error) {
		if c, err = net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: port}); err == nil {
			n = c.LocalAddr().(*net.UDPAddr).Port
		}
		return n, err
	})
	s.ports[key] = port
	return c, err
}

func (s *simulator) open(key string, listen func(ip net.IP, port int) (int, error)) (int, error) {
	ip := net.ParseIP(s.cfg.Listen)
	if s.cfg.Port > 0 {
		return listen(ip, s.cfg.Port+len(s.ports))
	}
	if port := s.known[key]; port != 0 {
		if n, err := listen(ip, port); err == nil {
			return n, nil
		}
	}
	return listen(ip, 0)
}

// publish writes what a client needs to find the fleet.
func (s *simulator) publish(t schemas.Topology) error {
	t.Links = miscabled(t, s.cfg.Miscabled)
	known, spare := t, schemas.Topology{Version: t.Version}
	if s.cfg.Spare > 0 {
		known, spare = part(t, s.fleet.Servers()[len(s.fleet.Servers())-s.cfg.Spare:])
	}
	if err := writeJSON(s.path(TopologyFile), known); err != nil {
		return err
	}
	if err := writeJSON(s.path(SpareFile), spare); err != nil {
		return err
	}
	secrets := fmt.Sprintf("%s: {user: %s, password: %s}\n", Credential, fleet.User, s.fleet.Password())
	if err := writeFile(s.path(SecretsFile), []byte(secrets), 0o600); err != nil {
		return err
	}
	if err := s.publishInstaller(); err != nil {
		return err
	}
	return writeJSON(s.path(SlurmFile), map[string]string{
		"url": "http://" + net.JoinHostPort(s.cfg.Listen, strconv.Itoa(s.ports["slurm"])), "token_file": s.path(tokenFile),
	})
}

// part parts servers, with what is of them, from the rest of an inventory.
func part(t schemas.Topology, servers []string) (rest, parted schemas.Topology) {
	rest.Version, parted.Version = t.Version, t.Version
	of := func(id string) bool {
		server, _, _ := strings.Cut(id, "/")
		return slices.Contains(servers, server)
	}
	for _, r := range t.Resources {
		if of(r.ID) {
			parted.Resources = append(parted.Resources, r)
		} else {
			rest.Resources = append(rest.Resources, r)
		}
	}
	for _, l := range t.Links {
		if of(l.From) || of(l.To) {
			parted.Links = append(parted.Links, l)
		} else {
			rest.Links = append(rest.Links, l)
		}
	}
	return rest, parted
}

// miscabled returns the links of an inventory that has the first cables of the first two servers of
// some racks, the first, the other way round.
func miscabled(t schemas.Topology, racks int) []schemas.Link {
	links, first := slices.Clone(t.Links), map[string][]int{} // cables by leaf, one of each server
	for i, l := range links {
		leaf, _, _ := strings.Cut(l.From, "/")
		server, _, ok := strings.Cut(l.To, "/nic")
		had := first[leaf]
		if l.Kind != schemas.LinkNetwork || !ok || len(had) == 2 || len(had) == 0 && len(first) == racks || len(had) == 1 && strings.HasPrefix(links[had[0]].To, server+"/") {
			continue
		}
		if first[leaf] = append(had, i); len(first[leaf]) == 2 {
			a, b := &links[had[0]], &links[i]
			a.To, b.To = b.To, a.To
		}
	}
	return links
}

// secret returns what a file holds, drawn the first time; it stays the same over
// restarts.
func (s *simulator) secret(file string) (string, error) {
	data, err := os.ReadFile(s.path(file))
	if err == nil && len(data) >= 32 {
		return string(data), nil
	}
	var b [24]byte
	_, _ = rand.Read(b[:])
	token := hex.EncodeToString(b[:])
	return token, writeFile(s.path(file), []byte(token), 0o600)
}

// lock makes sure that one simulator uses a directory.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrRunning
		}
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return writeFile(path, append(data, '\n'), 0o600)
}
