// Package agent is the process that runs on a server and says how it is: readers, as that
// of the kernel's log, write a tree and a journal, and a gNMI target tells of both. What
// it cannot read it says once, and reads the rest.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnoi/healthz"
	system "github.com/openconfig/gnoi/system"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"auspex/agent/acts"
	"auspex/agent/cuda"
	"auspex/agent/dcgm"
	"auspex/agent/host"
	"auspex/agent/jobs"
	"auspex/agent/journal"
	"auspex/agent/kernel"
	"auspex/agent/logfile"
	"auspex/agent/nvml"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/decode/kernlog"
	"auspex/internal/run"
	"auspex/internal/target"
	"auspex/internal/tunnel/outbound"
	"auspex/schemas/yang"
)

const (
	// grace bounds the end of all readers together; a call that never returns is left.
	grace = 1500 * time.Millisecond
	// settle is how soon what is in the journal is on the disk and its state told.
	settle     = time.Second
	maxRequest = 256 << 10
)

// reader reads one thing of the machine until ctx is done.
type reader struct {
	name string
	run  func(ctx context.Context)
}

// GPUs reads, sets and resets the GPUs of a machine; see [nvml.Reader].
type GPUs interface {
	acts.GPUs
	// Run reads until ctx is done.
	Run(ctx context.Context)
	// Set grants what a peer wishes, all or nothing.
	Set(ctx context.Context, by string, wishes []nvml.Wish) error
}

// numbered are GPUs that have numbers.
type numbered interface {
	Boards() map[uint32]gpuwatch.Board
}

// Machine is what an agent runs on where that is not this machine.
type Machine struct {
	GPUs     func(nvml.Needs) GPUs // nil is NVML
	Tools    acts.Tools            // nil are the programs of the configuration
	Computer acts.Computer         // nil is CUDA, in a process of its own
	About    *outbound.About       // nil is what this machine says of itself to whom it dials
	Files    host.Files            // nil are the kernel's
	Units    func(names []string) []host.Unit
}

// Agent is the process. New is inert but for the journal's folder and the certificates.
type Agent struct {
	cfg     *Config
	log     *slog.Logger
	tree    *target.Tree
	journal *journal.Journal
	readers []reader
	server  *grpc.Server
	status  *journalStatus
	gpus    GPUs // nil where GPUs are not read
	dcgm    *dcgm.Reader
	renew   chan struct{}
	acked   chan struct{} // holds one: records were acknowledged that settle has not told

	sessions *outbound.Sessions // nil where nobody is dialled
}

// errRenew is the end of an agent that whoever started it has to start anew.
var errRenew = errors.New("another driver was loaded: the agent ends, to be started anew with its library")

// models are those of schemas/yang that have nodes.
func models() (out []*gpb.ModelData) {
	for _, m := range yang.Modules {
		out = append(out, &gpb.ModelData{Name: m[0], Organization: "Auspex", Version: m[1]})
	}
	return out
}

// New opens what the configuration names. The caller calls [Agent.Run], which closes it.
func New(cfg *Config, log *slog.Logger) (*Agent, error) { return NewOn(Machine{}, cfg, log) }

// NewOn is New on another machine.
func NewOn(m Machine, cfg *Config, log *slog.Logger) (*Agent, error) {
	if m.GPUs == nil {
		m.GPUs = func(n nvml.Needs) GPUs { return nvml.New(cfg.NVML, n) }
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	access, err := cfg.access()
	if err != nil {
		return nil, err
	}
	tc, err := cfg.TLS.server(access.User != "")
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, log: log, tree: target.NewTree(), renew: make(chan struct{}, 1), acked: make(chan struct{}, 1)}
	if a.journal, err = journal.Open(filepath.Join(cfg.Data, "journal"), cfg.Journal.MaxBytes, kernel.BootID(cfg.Kernel.BootIDFile)); err != nil {
		return nil, err
	}
	t := cfg.target()
	t.Models, t.Access, t.Log, t.Set = models(), access, a.journal, a.set
	s, err := target.NewServer(a.tree, t)
	if err != nil {
		return nil, errors.Join(err, a.journal.Close())
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(uint32(min(cfg.Target.Subscribers, math.MaxInt32))),
		grpc.MaxHeaderListSize(16 << 10), grpc.ConnectionTimeout(10 * time.Second), grpc.WaitForHandlers(false),
		// Who reads answers when it reads on, and its bus may keep it waiting.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 2 * time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	var listener credentials.TransportCredentials
	if tc != nil {
		listener = credentials.NewTLS(tc)
	}
	a.server = grpc.NewServer(append(options, grpc.Creds(newDoors(listener)))...)
	gpb.RegisterGNMIServer(a.server, s)
	a.status = newStatus(a.tree, a.journal)
	a.status.tell()
	boot, reads := kernel.BootID(cfg.Kernel.BootIDFile), func() bool { return false }
	if !cfg.Kernel.Disabled {
		k := kernel.New(kernel.Config{Path: cfg.Kernel.Path, Boot: cfg.Kernel.BootIDFile, Poll: cfg.Kernel.PollInterval}, a.journal, a.tree, log)
		a.readers, reads = append(a.readers, reader{"kernel log", k.Run}), k.Reads
	}
	dated := func(line string) (time.Time, bool) { // the logs of both services are written alike
		_, at, _ := new(kernlog.Parser).FabricManager(line, time.Local)
		return at, !at.IsZero()
	}
	for _, s := range []struct {
		Service
		name, kind, tree string
	}{
		{cfg.Fabric, "fabric manager's log", journal.KindFabric, "/host/fabric-manager-log"},
		{cfg.IMEX, "the IMEX daemon's log", journal.KindIMEX, "/host/imex-log"},
	} {
		if s.Log != "" {
			of := logfile.Config{Path: s.Log, Poll: s.PollInterval, Kind: s.kind, Tree: s.tree, Boot: boot, Dated: dated}
			l := logfile.New(of, a.journal, a.tree, log)
			a.readers = append(a.readers, reader{s.name, l.Run})
		}
	}
	var pod func(string) string
	if !cfg.Pods.Disabled {
		p := jobs.NewReader(cfg.Pods, a.tree, a.called, log)
		a.readers, pod = append(a.readers, reader{"pods", p.Run}), p.Pod
	}
	if !cfg.NVML.Disabled {
		a.gpus = m.GPUs(nvml.Needs{
			Journal: a.journal, Tree: a.tree, Log: log, State: filepath.Join(cfg.Data, "gpus.json"), Boot: boot, Kernel: reads, Pod: pod,
			Renew: func() {
				select {
				case a.renew <- struct{}{}:
				default:
				}
			},
		})
		a.readers = append(a.readers, reader{"GPUs", a.gpus.Run})
	}
	if !cfg.DCGM.Disabled {
		n := dcgm.Needs{
			Journal: a.journal, Tree: a.tree, Log: log, State: filepath.Join(cfg.Data, "dcgm.json"), Boot: boot,
			XIDs: func() bool { return reads() || cfg.NVML.XIDEvents != nvml.XIDOff }, Users: a.users,
		}
		if g, ok := a.gpus.(numbered); ok {
			n.Boards = g.Boards
		}
		a.dcgm = dcgm.New(cfg.DCGM, n)
		a.readers = append(a.readers, reader{"DCGM", a.dcgm.Run})
	}
	if !cfg.Host.Disabled {
		h := host.New(cfg.Host, a.tree, log)
		if h.Tell(a.journal, boot, filepath.Join(cfg.Data, "disks.json")); m.Files != nil {
			h.On(m.Files, m.Units)
		}
		a.readers = append(a.readers, reader{"host", h.Run})
	}
	a.readers = append(a.readers, reader{"journal", a.settle})
	a.dials(m.About)
	a.hand(m, access, boot)
	return a, nil
}

// called returns the numbers of GPUs by what they, and parts of them, are called.
func (a *Agent) called() map[string]uint32 {
	if g, ok := a.gpus.(interface{ Called() map[string]uint32 }); ok {
		return g.Called()
	}
	return nil
}

// users returns who has a GPU open.
func (a *Agent) users(gpu uint32) (out []string) {
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	group, _ := a.gpus.Group(ctx, []uint32{gpu})
	for _, g := range group {
		if g.Number == gpu {
			out = g.Processes
		}
	}
	return out
}

// hand serves what control asks for. Where nobody knows what was done before, nothing is
// done: readings go on.
func (a *Agent) hand(m Machine, access target.Access, boot string) {
	ledger, err := acts.OpenLedger(filepath.Join(a.cfg.Data, "acts.json"), boot)
	if err != nil {
		a.log.Error("what control asks for is not done", "error", err)
		return
	}
	var gpus acts.GPUs
	if a.gpus != nil {
		gpus = a.gpus
	}
	if m.Computer == nil && a.gpus != nil {
		m.Computer = cuda.Process{}
	}
	reports, err := acts.OpenReports(filepath.Join(a.cfg.Data, "validations.json"), a.tree)
	if err != nil {
		a.log.Warn("validations", "error", err)
	}
	needs := acts.Needs{Tools: m.Tools, Ledger: ledger, GPUs: gpus, Reports: reports, Computer: m.Computer, Boot: boot, Log: a.log}
	if a.dcgm != nil {
		needs.Diagnostics = a.dcgm
	}
	hand := acts.New(a.cfg.Acts, needs)
	a.readers = append(a.readers, reader{"driver", hand.Run})
	s := &acts.Service{Hand: hand, Admit: access.Admit, May: map[string][]string{
		acts.KindReset: a.cfg.Allow.Reset, acts.KindReboot: a.cfg.Allow.Reboot, acts.KindReload: a.cfg.Allow.Reload, acts.KindValidate: a.cfg.Allow.Validate,
	}}
	system.RegisterSystemServer(a.server, s)
	healthz.RegisterHealthzServer(a.server, &acts.Health{Service: s})
}

// Run serves until ctx is done, or with an error until whoever started it starts it anew. It calls ready with the address on which it listens,
// or with those that it dials. Whatever a reader does, it returns within two seconds of the end.
func (a *Agent) Run(ctx context.Context, ready func(addr string)) error {
	if a.cfg.Listen == "" {
		return a.Serve(ctx, nil, ready)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.cfg.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), a.journal.Close())
	}
	return a.Serve(ctx, l, ready)
}

// Serve is Run on a listener, which it closes; nil is none.
func (a *Agent) Serve(ctx context.Context, l net.Listener, ready func(addr string)) (err error) {
	defer func() { _ = a.journal.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served, serving := make(chan error, 2), 0
	serve := func(l net.Listener) {
		serving++
		go func() { served <- a.server.Serve(l) }()
	}
	addr := ""
	if l != nil {
		addr = l.Addr().String()
		serve(limit(l, a.cfg.Target.Connections))
	}
	if a.sessions != nil {
		serve(a.sessions)
	}
	if l == nil {
		var to []string
		for _, d := range a.cfg.Dial {
			to = append(to, "dial "+d.Address)
		}
		addr = strings.Join(to, ", ")
	}

	done := make(chan string, len(a.readers))
	running := map[string]bool{}
	for _, r := range a.readers {
		running[r.name] = true
		go func() {
			defer func() {
				if p := recover(); p != nil { // it harms itself alone
					a.log.Error("a reader ended", "reader", r.name, "panic", p, "stack", string(debug.Stack()))
				}
				done <- r.name
			}()
			r.run(ctx)
		}()
	}
	if ready != nil {
		ready(addr)
	}
	for ending := false; !ending; {
		select {
		case <-ctx.Done():
			ending = true
		case err = <-served:
			serving, ending = serving-1, true
			err = fmt.Errorf("serve: %w", err)
		case <-a.renew:
			ending, err = true, errRenew
		case name := <-done:
			delete(running, name)
		}
	}
	cancel()
	a.server.Stop()
	for range serving {
		<-served
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for len(running) > 0 {
		select {
		case name := <-done:
			delete(running, name)
		case <-timer.C:
			for name := range running {
				a.log.Warn("a reader did not end in time", "reader", name)
			}
			return err
		}
	}
	return err
}

// settle brings the journal to the disk and tells how it stands.
func (a *Agent) settle(ctx context.Context) {
	for {
		news := a.journal.Changed()
		a.status.tell()
		if err := a.journal.Sync(); err != nil {
			a.log.Error("journal is not on the disk", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-a.acked:
		}
		if run.Sleep(ctx, settle) != nil {
			return
		}
	}
}

// journalStatus writes how the journal stands.
type journalStatus struct {
	tree    *target.Tree
	journal *journal.Journal
	told    journal.Status

	id, first, last, acked, dropped, size, set target.Ref
}

func newStatus(t *target.Tree, j *journal.Journal) *journalStatus {
	leaf := func(name string) target.Ref { return t.Leaf("/journal/state/" + name) }
	return &journalStatus{
		tree: t, journal: j, id: leaf("id"), first: leaf("first"), last: leaf("last"), acked: leaf("acknowledged"),
		dropped: leaf("dropped"), size: leaf("bytes"), set: t.Leaf(acknowledged),
	}
}

func (j *journalStatus) tell() {
	s := j.journal.Status()
	if s == j.told {
		return
	}
	j.told = s
	w := j.tree.Write(time.Now())
	defer w.Close()
	w.Text(j.id, s.ID)
	w.Uint(j.first, s.First)
	w.Uint(j.last, s.Last)
	w.Uint(j.acked, s.Acknowledged)
	w.Uint(j.set, s.Acknowledged)
	w.Uint(j.dropped, s.Dropped)
	w.Uint(j.size, uint64(max(0, s.Bytes)))
}

// limited is a listener with at most so many connections; more wait to be taken.
type limited struct {
	net.Listener
	slots chan struct{}
	ended chan struct{}
	once  sync.Once
}

func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, n), ended: make(chan struct{})}
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.ended:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &conn{Conn: c, leave: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close implements [net.Listener].
func (l *limited) Close() error {
	l.once.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

type conn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
