// Package child runs the simulated fleet as a process of its own, from the binary
// of the caller.
package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"auspex/internal/sim"
)

// Fleet is the process that plays the fleet. It outlives a kill of its parent and
// is found again.
type Fleet struct {
	Dir     string // of its files
	PID     int
	Started time.Time
	Found   bool  // it ran before us
	Ledger  int64 // where its ledger begins for us
}

// Path returns the path of one of its files.
func (f *Fleet) Path(name string) string { return filepath.Join(f.Dir, name) }

// Start finds the simulator of a folder, or starts one with these arguments (of
// auspex simulate), and waits until its endpoints answer.
func Start(ctx context.Context, dir string, args ...string) (*Fleet, error) {
	f := &Fleet{Dir: dir}
	if st, err := os.Stat(f.Path(sim.LedgerFile)); err == nil {
		f.Ledger = st.Size()
	}
	if e, err := readEndpoints(dir); err == nil && alive(e.PID) {
		f.PID, f.Started, f.Found = e.PID, e.Started, true
		return f, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("start simulator: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start simulator: %w", err)
	}
	log, err := os.OpenFile(f.Path("sim.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start simulator: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(self, append([]string{"simulate", "--dir", dir}, args...)...) // it must live on when ctx ends: no CommandContext
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
			f.PID, f.Started = e.PID, e.Started
			return f, nil
		}
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return nil, ctx.Err()
		case err := <-exited:
			return nil, fmt.Errorf("start simulator: it ended (%w); see %s", errors.Join(err, fs.ErrClosed), f.Path("sim.log"))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(began) > 30*time.Second {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			return nil, fmt.Errorf("start simulator: no answer within 30s; see %s", f.Path("sim.log"))
		}
	}
}

// Stop ends the simulator and waits up to a bound.
func (f *Fleet) Stop(within time.Duration) error {
	if err := syscall.Kill(f.PID, syscall.SIGTERM); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !alive(f.PID) {
			return nil
		}
	}
	return syscall.Kill(f.PID, syscall.SIGKILL)
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
