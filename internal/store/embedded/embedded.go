// Package embedded runs the ClickHouse engine without a server: a child process
// of this binary loads libchdb and speaks ClickHouse's HTTP interface on a Unix
// socket that only the user may open. The child ends with its parent and is
// started again when it dies; clients dial with [Engine.Dial].
package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrUnavailable is wrapped when the engine cannot run here: the library is not
// there or does not load. The text is one sentence for a person.
var ErrUnavailable = errors.New("history is off")

// errClosed is returned by Dial after Close.
var errClosed = errors.New("the engine is closed")

// Config is how the engine runs.
type Config struct {
	// Library is the path of libchdb.so; empty means the one in the user's cache.
	Library string `yaml:"library"`
	// MemoryBytes bounds the engine's memory.
	MemoryBytes int64 `yaml:"memory_bytes"`
	// Connections bounds the statements that run at a time.
	Connections int `yaml:"connections"`
	// StartTimeout bounds how long Start waits for the first answer.
	StartTimeout time.Duration `yaml:"start_timeout"`

	// Dir holds the data; it belongs to one engine at a time.
	Dir string `yaml:"-"`
	// Command starts a process that calls Main with what follows; empty means this
	// executable and the argument "engine".
	Command []string              `yaml:"-"`
	Log     *slog.Logger          `yaml:"-"`
	Metrics prometheus.Registerer `yaml:"-"`
}

// DefaultConfig fits a machine that also runs everything else.
func DefaultConfig() Config {
	return Config{MemoryBytes: 768 << 20, Connections: 6, StartTimeout: 30 * time.Second}
}

// Validate checks the configuration.
func (c *Config) Validate() error {
	switch {
	case c.MemoryBytes < 256<<20:
		return fmt.Errorf("memory_bytes: want at least %d, got %d", 256<<20, c.MemoryBytes)
	case c.Connections < 1 || c.Connections > 64:
		return fmt.Errorf("connections: want 1 to 64, got %d", c.Connections)
	case c.StartTimeout <= 0:
		return fmt.Errorf("start_timeout: want more than 0, got %s", c.StartTimeout)
	}
	return nil
}

// Engine is the child process and its keeper.
type Engine struct {
	cfg    Config
	log    *slog.Logger
	socket string // directory of the sockets

	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	path    string // socket of the child that answers; "" while there is none
	last    error  // why the last child ended
	changed chan struct{}

	restarts prometheus.Counter
	up       prometheus.Gauge
}

// Start starts the engine and returns when it answers. The engine lives until
// Close, or until the process dies. The error wraps [ErrUnavailable] where this
// machine cannot run the engine.
func Start(ctx context.Context, cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	lib, err := Locate(cfg.Library)
	if err != nil {
		return nil, err
	}
	cfg.Library = lib
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if len(cfg.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
		cfg.Command = []string{self, "engine"}
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{
		cfg: cfg, log: cfg.Log, done: make(chan struct{}), changed: make(chan struct{}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "auspex_store_engine_restarts_total", Help: "Restarts of the embedded engine after its process died.",
		}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "auspex_store_engine_up", Help: "1 while the embedded engine answers."}),
	}
	if e.socket, err = socketDir(cfg.Dir); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if cfg.Metrics != nil {
		for _, c := range []prometheus.Collector{e.restarts, e.up} {
			if err := cfg.Metrics.Register(c); err != nil {
				return nil, fmt.Errorf("engine: %w", err)
			}
		}
	}
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel = cancel
	go e.keep(own)

	ctx, stop := context.WithTimeout(ctx, cfg.StartTimeout)
	defer stop()
	if err := e.wait(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// socketDir returns an empty directory of mode 0700 whose sockets have a path
// that fits into sun_path (108 bytes).
func socketDir(data string) (string, error) {
	dir := filepath.Join(data, "sockets")
	if len(dir) > 80 {
		return os.MkdirTemp("", "auspex-engine-")
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o700)
}

// wait returns nil once a child answers, or why none will.
func (e *Engine) wait(ctx context.Context) error {
	for {
		e.mu.Lock()
		path, last, changed := e.path, e.last, e.changed
		e.mu.Unlock()
		if path != "" {
			return nil
		}
		if errors.Is(last, ErrUnavailable) {
			return last
		}
		select {
		case <-changed:
		case <-e.done:
			return errClosed
		case <-ctx.Done():
			if last == nil {
				last = ctx.Err()
			}
			return fmt.Errorf("start the embedded engine: %w", last)
		}
	}
}

func (e *Engine) set(path string, last error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.path = path
	if last != nil {
		e.last = last
	}
	e.up.Set(map[bool]float64{true: 1}[path != ""])
	close(e.changed)
	e.changed = make(chan struct{})
}

// keep runs one child after another until ctx is done.
func (e *Engine) keep(ctx context.Context) {
	defer close(e.done)
	const shortest, longest = 200 * time.Millisecond, 15 * time.Second
	pause := shortest
	for n := 0; ; n++ {
		if n > 0 {
			e.restarts.Inc()
		}
		began := time.Now()
		err := e.child(ctx, filepath.Join(e.socket, strconv.Itoa(n)))
		if ctx.Err() != nil {
			e.set("", nil)
			return
		}
		e.set("", err)
		if errors.Is(err, ErrUnavailable) {
			return
		}
		e.log.Warn("the embedded engine ended; restarting it", "error", err)
		if time.Since(began) > time.Minute {
			pause = shortest
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longest)
	}
}

// child runs one process to its end.
func (e *Engine) child(ctx context.Context, socket string) error {
	_ = os.Remove(socket)
	args := append(e.cfg.Command[1:len(e.cfg.Command):len(e.cfg.Command)],
		"--dir", e.cfg.Dir, "--socket", socket, "--library", e.cfg.Library,
		"--memory", strconv.FormatInt(e.cfg.MemoryBytes, 10), "--connections", strconv.Itoa(e.cfg.Connections))
	cmd := exec.Command(e.cfg.Command[0], args...)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=256MiB", "GOGC=50")
	// A group of its own keeps a Ctrl-C from it; the pipe on its standard input
	// ends when this process ends, however it does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the embedded engine: %w", err)
	}
	reason := make(chan string, 1)
	go func() { reason <- lastLine(stderr) }()
	ended := make(chan error, 1)
	go func() {
		text := <-reason // Wait closes the pipe: all must have been read before
		err := cmd.Wait()
		if text != "" {
			err = fmt.Errorf("%s (%w)", strings.TrimPrefix(text, "engine: "), errOr(err, "exit status 0"))
		}
		ended <- errOr(err, "exit status 0")
	}()

	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-ended:
			if cmd.ProcessState.ExitCode() == exitRefused {
				return fmt.Errorf("%w: the engine's library does not load: %w", ErrUnavailable, err)
			}
			return err
		case <-poll.C:
			if c, err := net.Dial("unix", socket); err == nil {
				_ = c.Close()
				poll.Stop()
				e.set(socket, nil)
			}
		case <-ctx.Done():
			_ = stdin.Close()
			select {
			case <-ended:
			case <-time.After(3 * time.Second):
				_ = cmd.Process.Kill()
				<-ended
			}
			return ctx.Err()
		}
	}
}

func errOr(err error, text string) error {
	if err == nil {
		return errors.New(text)
	}
	return err
}

// lastLine reads r to its end and returns the last line that says something. The
// library writes traces of its own; they are not kept.
func lastLine(r io.Reader) string {
	var last []byte
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			last = append(last[:0], line[:min(len(line), 500)]...)
		}
	}
	_, _ = io.Copy(io.Discard, r)
	return string(last)
}

// Dial connects to the engine that runs now. It waits for one until ctx is done.
func (e *Engine) Dial(ctx context.Context) (net.Conn, error) {
	if err := e.wait(ctx); err != nil {
		return nil, err
	}
	e.mu.Lock()
	path := e.path
	e.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}

// Health returns nil while the engine answers, or why it does not.
func (e *Engine) Health() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.path != "" {
		return nil
	}
	if e.last != nil {
		return e.last
	}
	return errors.New("the embedded engine is starting")
}

// Close stops the engine and waits for its end, at most a few seconds.
func (e *Engine) Close() {
	e.cancel()
	<-e.done
	_ = os.RemoveAll(e.socket)
	if e.cfg.Metrics != nil {
		e.cfg.Metrics.Unregister(e.restarts)
		e.cfg.Metrics.Unregister(e.up)
	}
}
