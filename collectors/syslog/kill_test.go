package syslog

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"auspex/collectors/collectortest"
	"auspex/internal/waittest"
	"auspex/schemas/auspexv1"
)

// childDir tells the test binary that it is a receiver, whose files are in a folder.
const childDir = "AUSPEX_TEST_RECEIVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		receive(dir, os.Getenv(childDir+"_ADDRESS"))
		return
	}
	goleak.VerifyTestMain(m)
}

// files keeps events and the position as a process does that may be killed at any time.
type files struct {
	dir  string
	left int // events to take before it stands still for ever; 0 takes all
}

func (f *files) Emit(_ context.Context, b *auspexv1.Batch) error {
	out, err := os.OpenFile(filepath.Join(f.dir, "events"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, ev := range b.Events {
		if _, err := fmt.Fprintln(out, ev.Id, ev.Attrs["channel"]); err != nil {
			return err
		}
		if f.left--; f.left == 0 {
			fmt.Println("full")
			select {}
		}
	}
	return out.Close()
}

func (f *files) Cursor(context.Context, string, string) (string, error) {
	b, err := os.ReadFile(filepath.Join(f.dir, "cursor"))
	if os.IsNotExist(err) {
		err = nil
	}
	return string(b), err
}

func (f *files) SetCursor(_ context.Context, _, _, position string) error {
	name := filepath.Join(f.dir, "cursor")
	if err := os.WriteFile(name+".new", []byte(position), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func receive(dir, addr string) {
	f := &files{dir: dir}
	f.left, _ = strconv.Atoi(os.Getenv(childDir + "_LEFT"))
	s := collectortest.Settings()
	s.Cursors = f
	c, err := only("journal", addr).New(server("gpu-1", "gpu-1"), s)
	if err == nil {
		err = c.Run(context.Background(), f)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// child starts a receiver in a process of its own, and returns how to wait for it to stand still
// and how to kill it.
func child(t *testing.T, dir, addr string, left int) (full, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childDir+"_ADDRESS="+addr, childDir+"_LEFT="+strconv.Itoa(left))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := false
	kill = func() {
		if !dead {
			dead = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	return func() {
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "full\n" {
			t.Fatalf("%q %v", line, err)
		}
	}, kill
}

// countsOnce uploads a journal of n events with a kill -9 in the middle, and again.
func countsOnce(t *testing.T, addr string, n int, upload func() error) {
	t.Helper()
	dir := t.TempDir()
	full, kill := child(t, dir, addr, n/2)
	broke := make(chan error, 1)
	go func() {
		for {
			err := upload()
			if _, there := os.Stat(filepath.Join(dir, "events")); err == nil || there == nil {
				broke <- err
				return
			}
		}
	}()
	full()
	kill()
	if err := <-broke; err == nil {
		t.Error("an upload was acknowledged that was not durable")
	}
	_, kill = child(t, dir, addr, 0)
	waittest.Until(t, upload)
	told := read(t, dir)
	waittest.Until(t, upload)
	kill()
	if again := read(t, dir); len(again) != len(told) {
		t.Errorf("%d events were told once more", len(again)-len(told))
	}
	ids, channels := map[string]bool{}, map[string]bool{}
	for _, line := range told {
		id, channel, _ := strings.Cut(line, " ")
		ids[id], channels[channel] = true, true
	}
	if len(ids) != n || len(channels) != n {
		t.Errorf("%d ids of %d records, want %d", len(ids), len(channels), n)
	}
}

func read(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "events"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func TestAnUploadCountsOnceAfterKill9(t *testing.T) {
	const n = 600
	var b strings.Builder
	for i := range n {
		b.WriteString(kernelEntry(i, fmt.Sprintf("NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=x, Ch %08x, intr 0", i)))
	}
	addr := free(t, "tcp")
	countsOnce(t, addr, n, func() error {
		if got := post(t.Context(), addr, strings.NewReader(b.String())); got != http.StatusAccepted {
			return fmt.Errorf("status %d", got)
		}
		return nil
	})
}
