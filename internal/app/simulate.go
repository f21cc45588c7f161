package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"auspex/internal/sim"
)

// SimulateOptions says what `auspex simulate` simulates.
type SimulateOptions struct {
	Dir     string
	Script  string // a file; empty plays the demo's script, "none" nothing
	Seed    uint64
	Racks   int // 0 is the demo's
	Servers int // a rack
}

// Simulate runs the simulated fleet until ctx is done.
func Simulate(ctx context.Context, o SimulateOptions, out io.Writer) error {
	cfg := sim.DefaultConfig()
	cfg.Dir, cfg.Seed = o.Dir, o.Seed
	cfg.Log = newLog(os.Stderr)
	if o.Racks > 0 {
		cfg.Fleet.Racks = o.Racks
	}
	if o.Servers > 0 {
		cfg.Fleet.ServersPerRack = o.Servers
	}
	switch o.Script {
	case "":
	case "none":
		cfg.Script = nil
	default:
		b, err := os.ReadFile(o.Script)
		if err != nil {
			return fmt.Errorf("read script: %w", err)
		}
		cfg.Script = b
	}
	cfg.Ready = func(e sim.Endpoints) {
		fmt.Fprintf(out, "simulated fleet is ready; %s lists its devices\n", filepath.Join(o.Dir, "topology.json"))
	}
	return sim.Run(ctx, cfg)
}

// simulator is the child process that plays the fleet for the demo. It outlives a
// kill of its parent and is found again.
type simulator struct {
	dir     string
	pid     int
	started time.Time
	found   bool  // it ran before us
	ledger  int64 // where its ledger begins for us
}

func (s *simulator) path(name string) string { return filepath.Join(s.dir, name) }

// startSimulator finds the simulator of a folder, or starts one, and waits until
// its endpoints answer.
func startSimulator(ctx context.Context, dir, script string, seed uint64) (*simulator, error) {
	s := &simulator{dir: dir}
	if st, err := os.Stat(s.path(sim.LedgerFile)); err == nil {
		s.ledger = st.Size()
	}
	if e, err := readEndpoints(dir); err == nil && alive(e.PID) {
		s.pid, s.started, s.found = e.PID, e.Started, true
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start simulator: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start simulator: %w", err)
	}
	log, err := os.OpenFile(s.path("sim.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start simulator: %w", err)
	}
	defer func() { _ = log.Close() }()
	args := []string{"simulate", "--dir", dir, "--seed", strconv.FormatUint(seed, 10)}
	if script != "" {
		args = append(args, "--script", script)
	}
	cmd := exec.Command(self, args...) // it must live on when ctx ends: no CommandContext
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: a Ctrl-C in the terminal is ours to pass on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start simulator: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }() // ends with the child
	for {
		if e, err := readEndpoints(dir); err == nil && e.PID == cmd.Process.Pid && e.Started.After(began.Add(-time.Second)) {
			s.pid, s.started = e.PID, e.Started
			return s, nil
		}
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return nil, ctx.Err()
		case err := <-exited:
			return nil, fmt.Errorf("start simulator: it ended (%w); see %s", errors.Join(err, fs.ErrClosed), s.path("sim.log"))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(began) > 30*time.Second {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return nil, fmt.Errorf("start simulator: no answer within 30s; see %s", s.path("sim.log"))
		}
	}
}

// stop ends the simulator and waits up to a bound.
func (s *simulator) stop(within time.Duration) error {
	if err := syscall.Kill(s.pid, syscall.SIGTERM); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !alive(s.pid) {
			return nil
		}
	}
	return syscall.Kill(s.pid, syscall.SIGKILL)
}

func readEndpoints(dir string) (e sim.Endpoints, err error) {
	b, err := os.ReadFile(filepath.Join(dir, sim.EndpointsFile))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	return e, err
}

// alive reports whether a process runs (a zombie does not).
func alive(pid int) bool {
	if pid <= 0 || syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // no /proc: the signal has answered
	}
	for i := len(b) - 1; i > 0; i-- {
		if b[i] == ')' {
			return i+2 < len(b) && b[i+2] != 'Z'
		}
	}
	return true
}
