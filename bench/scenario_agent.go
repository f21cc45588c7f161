package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	kernlog "auspex/agent/kernel"
	"auspex/agent/nvml/stub"
	"auspex/collectors"
	collector "auspex/collectors/agent"
	"auspex/internal/gnmiclient"
	"auspex/internal/run"
	"auspex/internal/target"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

const (
	agentServer = "gpu-1"
	agentLines  = 100
	// agentServers have an agent each, in a process of its own, where lines are followed
	// through the whole product.
	agentServers = 25
)

// agentCost starts the node agent on a server with eight GPUs, whose library is a stub, and
// measures what it takes of the server in n seconds with its default settings and a collector that
// reads it as in production, the stub's own work included; then how long a line of the kernel's log
// takes to be an event; then what many agents cost that have dialled in.
func (b *bencher) agentCost(ctx context.Context) (Result, error) {
	library, err := stub.Compile(b.dir, false)
	if err != nil {
		return Result{}, fmt.Errorf("compile a library in NVML's place: %w", err)
	}
	machine := stub.New(b.path("machine"), GPUsPerServer)
	idle, err := b.startAgent(ctx, machine, "idle", fmt.Sprintf("nvml: {library: %s}\nkernel: {path: %s}\n", library, b.kernelLog()))
	if err != nil {
		return Result{}, err
	}
	first, err := idle.sampled(ctx)
	if err == nil {
		stop := idle.collect(ctx, 10*time.Second, discard{})
		_ = run.Sleep(ctx, 2*time.Second) // the first reading of all is over
		meter := StartMeter()
		before, began := threads(idle.pid())
		children := childrenCPU(idle.pid())
		_ = run.Sleep(ctx, time.Duration(b.n)*time.Second)
		cpu, turns := threads(idle.pid())
		cpu, turns = cpu-before, turns-began
		r := meter.Stop(b.name, "seconds of an agent", int64(b.n))
		r.CPUSeconds, r.MaxRSS = round(cpu.Seconds()), peakRSS(strconv.Itoa(idle.pid()))
		r.PerCPUSecond = round(float64(b.n) / max(cpu.Seconds(), 1e-9))
		r.Detail = map[string]any{
			"gpus": GPUsPerServer, "first_sample_ms": *ms(first), "core_percent": round(100 * cpu.Seconds() / float64(b.n)), "rss_anon_bytes": anonymous(idle.pid()),
			"children_cpu_seconds": (childrenCPU(idle.pid()) - children).Seconds(),
			"kernel_log":           b.kernelLog(), "turns_per_second": round(float64(turns) / float64(b.n)), "settings": "default",
		}
		stop()
		if err = idle.stop(); err == nil {
			err = b.agentLatency(ctx, machine, library, &r)
		}
		if err == nil {
			err = b.dialIn(ctx, &r)
		}
		return r, err
	}
	return Result{}, errors.Join(err, idle.stop())
}

// kernelLog is the machine's own, where it can be read; else a file that nobody writes.
func (b *bencher) kernelLog() string {
	if f, err := os.Open(kernlog.Device); err == nil {
		_ = f.Close()
		return kernlog.Device
	}
	path := b.path("kmsg")
	_ = os.WriteFile(path, nil, 0o600)
	return path
}

// agentLatency writes lines of a kernel's log and waits for their events.
func (b *bencher) agentLatency(ctx context.Context, machine *stub.Machine, library string, r *Result) (err error) {
	log, boot := b.path("lines"), b.path("boot")
	if err := errors.Join(os.WriteFile(log, nil, 0o600), os.WriteFile(boot, []byte("b1\n"), 0o600)); err != nil {
		return err
	}
	a, err := b.startAgent(ctx, machine, "busy", fmt.Sprintf("nvml: {library: %s}\nkernel: {path: %s, boot_id_file: %s}\n", library, log, boot))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.stop()) }()
	seen := &eventTimes{at: map[string]time.Time{}}
	defer a.collect(ctx, 10*time.Second, seen)()
	f, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	written := map[string]time.Time{}
	for i := range agentLines {
		n := strconv.Itoa(i)
		written[n] = time.Now()
		if _, err := fmt.Fprintf(f, "3,%s,%d,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=%d, name=python, GPU has fallen off the bus.\n", n, i*1000, i); err != nil {
			return err
		}
		if err := run.Sleep(ctx, spacing); err != nil {
			return err
		}
	}
	for end := time.Now().Add(patience); seen.len() < agentLines; {
		if err := run.Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d lines became events", seen.len(), agentLines)
		}
	}
	var took []time.Duration
	for n, at := range seen.at {
		took = append(took, at.Sub(written[n]))
	}
	r.Latencies("a line of a file in the place of the kernel's log, which an agent of default settings follows, to its event in the collector", took)
	return nil
}

// agent is a node agent in a process of its own.
type agent struct {
	cmd   *exec.Cmd
	addr  string
	began time.Time
}

// startAgent starts the binary that stands beside ours, or in the path, on a machine of the
// stub where there is one.
func (b *bencher) startAgent(ctx context.Context, machine *stub.Machine, name, config string) (*agent, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(filepath.Dir(self), "auspex-agent")
	if _, err := os.Stat(binary); err != nil {
		if binary, err = exec.LookPath("auspex-agent"); err != nil {
			return nil, errors.New("auspex-agent stands neither beside auspex nor in the path: make agent")
		}
	}
	file := b.path(name + ".yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "data: %s\nlisten: 127.0.0.1:0\n%s", b.path(name), config), 0o600); err != nil {
		return nil, err
	}
	a := &agent{cmd: exec.CommandContext(ctx, binary, "--config", file), began: time.Now()}
	if a.cmd.Env, a.cmd.Stderr = os.Environ(), b.err; machine != nil {
		a.cmd.Env = append(a.cmd.Env, stub.Env+"="+machine.Path())
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if a.addr = strings.TrimSpace(strings.TrimPrefix(line, "ready ")); err != nil {
		return nil, errors.Join(fmt.Errorf("the agent did not start: %w", err), a.stop())
	}
	return a, nil
}

func (a *agent) pid() int { return a.cmd.Process.Pid }

func (a *agent) stop() error {
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return a.cmd.Wait()
}

// sampled waits until every GPU has a temperature, and returns how long that took from the
// agent's start.
func (a *agent) sampled(ctx context.Context) (time.Duration, error) {
	conn, err := gnmiclient.Dial(a.addr, nil, 4<<20, patience)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	path, err := target.ParsePath("/gpus/gpu[name=*]/state/temperature")
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(30 * time.Second); ; {
		res, err := gpb.NewGNMIClient(conn).Get(ctx, &gpb.GetRequest{Path: []*gpb.Path{path}, Encoding: gpb.Encoding_PROTO})
		found := 0
		for _, n := range res.GetNotification() {
			found += len(n.GetUpdate())
		}
		if err == nil && found == GPUsPerServer {
			return time.Since(a.began), nil
		}
		if err := run.Sleep(ctx, time.Millisecond); err != nil {
			return 0, err
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("%d of %d GPUs were sampled; is the agent built without cgo? %w", found, GPUsPerServer, err)
		}
	}
}

// collect reads the agent as Auspex does.
func (a *agent) collect(ctx context.Context, every time.Duration, out collectors.Emitter) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	cfg := collector.Default()
	cfg.TLS.Disabled, cfg.SampleInterval = true, every
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := cfg.New(schemas.Resource{ID: agentServer, Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrAgentAddress: a.addr})}, collectors.Settings{})
		for err == nil && ctx.Err() == nil {
			if c.Run(ctx, out) != nil {
				_ = run.Sleep(ctx, 100*time.Millisecond)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// discard takes what the collector emits.
type discard struct{}

func (discard) Emit(context.Context, *auspexv1.Batch) error { return nil }

// eventTimes notes when events came, by the number of their line.
type eventTimes struct {
	mu sync.Mutex
	at map[string]time.Time
}

// Emit implements [collectors.Emitter].
func (s *eventTimes) Emit(_ context.Context, batch *auspexv1.Batch) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range batch.GetEvents() {
		ev := schemas.EventFromWire(w)
		if _, again := s.at[ev.Attr("sequence")]; !again && ev.Type == schemas.EventGPUXID {
			s.at[ev.Attr("sequence")] = now
		}
	}
	return nil
}

func (s *eventTimes) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// threads is the processor time of all threads of a process (proc(5), schedstat), finer than
// clock ticks, and how often they had their turn.
func threads(pid int) (sum time.Duration, turns int64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		var ns, waited, n int64
		_, _ = fmt.Sscan(string(b), &ns, &waited, &n)
		sum, turns = sum+time.Duration(ns), turns+n
	}
	if sum == 0 {
		sum = processCPU(pid)
	}
	return sum, turns
}

// anonymous is the memory of a process that is no file's (proc(5), RssAnon), in bytes.
func anonymous(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}
