package spool_test

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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/internal/bus"
	"auspex/internal/bus/spool"
	"auspex/internal/waittest"
)

// fake is a bus that takes messages, or is away.
type fake struct {
	mu    sync.Mutex
	away  bool
	hangs chan struct{} // when not nil, told of each message that it holds
	got   []string
}

var errAway = errors.New("no broker answers")

func (f *fake) Publish(ctx context.Context, msgs ...bus.Message) error {
	f.mu.Lock()
	hangs := f.hangs
	f.mu.Unlock()
	if hangs != nil {
		hangs <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return errAway
	}
	for _, m := range msgs {
		f.got = append(f.got, m.Topic+" "+m.Key+" "+string(m.Value))
	}
	return nil
}

func (f *fake) set(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

func (f *fake) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.got...)
}

func event(key string, n int) bus.Message {
	return bus.Message{Topic: "events", Key: key, Value: []byte(strconv.Itoa(n))}
}

// start opens a spool and runs it; the returned function stops it.
func start(t *testing.T, file string, cfg spool.Config, pub bus.Publisher, reg prometheus.Registerer) (s *spool.Spool, stop func()) {
	t.Helper()
	s, err := spool.Open(t.Context(), file, "events", cfg, pub, nil, reg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func() {}) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

func TestEventsWaitForTheBusInOrderAlsoOverARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spool.db")
	pub := &fake{}
	s, stop := start(t, file, spool.DefaultConfig(), pub, nil)
	var want []string
	publish := func(n int) {
		t.Helper()
		for _, key := range []string{"a", "b"} {
			if err := s.Publish(t.Context(), event(key, n)); err != nil {
				t.Fatal(err)
			}
			want = append(want, "events "+key+" "+strconv.Itoa(n))
		}
	}
	publish(0)
	if n, _ := s.Waiting(); n != 0 {
		t.Errorf("%d messages wait while the bus takes them", n)
	}
	pub.set(true)
	publish(1)
	publish(2)
	stop()
	s, _ = start(t, file, spool.DefaultConfig(), pub, nil)
	if n, bytes := s.Waiting(); n != 4 || bytes != 4 {
		t.Errorf("%d messages of %d bytes wait after the restart, want 4 of 4", n, bytes)
	}
	publish(3)
	if err := s.Publish(t.Context(), bus.Message{Topic: "telemetry", Key: "a"}); !errors.Is(err, spool.ErrAway) {
		t.Errorf("samples while events wait: %v, want ErrAway", err)
	}
	pub.set(false)
	waittest.For(t, "the spool to be empty", func() bool { n, _ := s.Waiting(); return n == 0 })
	publish(4)
	if d := cmp.Diff(want, pub.taken()); d != "" {
		t.Errorf("messages on the bus (-want +got):\n%s", d)
	}
}

func TestAFullSpoolMakesCollectorsWaitAndLosesNothing(t *testing.T) {
	pub := &fake{away: true}
	reg := prometheus.NewRegistry()
	s, _ := start(t, filepath.Join(t.TempDir(), "spool.db"), spool.Config{Patience: time.Minute, MaxBytes: 1 << 20}, pub, reg)
	big := func(n int) bus.Message {
		return bus.Message{Topic: "events", Key: "k", Value: fmt.Appendf(make([]byte, 0, 600<<10), "%d %600000d", n, n)}
	}
	if err := s.Publish(t.Context(), big(1)); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() { second <- s.Publish(t.Context(), big(2)) }()
	refused := func() bool {
		n, err := testutil.GatherAndCount(reg, "auspex_bus_spool_refused_total")
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		mfs, _ := reg.Gather()
		for _, f := range mfs {
			if f.GetName() == "auspex_bus_spool_refused_total" {
				return f.GetMetric()[0].GetCounter().GetValue() > 0
			}
		}
		return false
	}
	waittest.For(t, "the spool to refuse", refused)
	select {
	case err := <-second:
		t.Fatalf("Publish to a full spool returned %v, want it to wait", err)
	default:
	}
	pub.set(false)
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "both messages", func() bool { return len(pub.taken()) == 2 })
	for i, m := range pub.taken() {
		if want := "events k " + strconv.Itoa(i+1) + " "; !strings.HasPrefix(m, want) {
			t.Errorf("message %d begins %q, want %q", i, m[:20], want)
		}
	}
}

func TestAnEventThatWaitsForTheBusWhenTheProcessStopsIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spool.db")
	pub := &fake{hangs: make(chan struct{}, 8)}
	s, stop := start(t, file, spool.Config{Patience: time.Hour, MaxBytes: 1 << 20}, pub, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Publish(ctx, event("k", 7)) }()
	<-pub.hangs
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("Publish at the stop: %v, want it to be on the disk", err)
	}
	stop()
	s, _ = start(t, file, spool.DefaultConfig(), &fake{away: true}, nil)
	if n, _ := s.Waiting(); n != 1 {
		t.Errorf("%d messages wait, want 1", n)
	}
}

func TestADamagedFileIsPutAside(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "spool.db")
	if err := os.WriteFile(file, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	pub := &fake{away: true}
	s, _ := start(t, file, spool.DefaultConfig(), pub, nil)
	if err := s.Publish(t.Context(), event("k", 1)); err != nil {
		t.Error(err)
	}
	if aside, _ := filepath.Glob(file + ".damaged-*"); len(aside) != 1 {
		t.Errorf("files put aside: %q, want one", aside)
	}
}

// crasher is the child process of the test below: it publishes numbers to a bus
// that is away and prints each one that is durable.
func crasher(file string) {
	s, err := spool.Open(context.Background(), file, "events", spool.DefaultConfig(), &fake{away: true}, nil, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() { _ = s.Run(context.Background(), func() {}) }()
	from, _ := strconv.Atoi(os.Getenv("SPOOL_CRASH_FROM"))
	for i := from; ; i++ {
		if err := s.Publish(context.Background(), event("k", i)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
	}
}

func TestWhatWasAcknowledgedSurvivesKill(t *testing.T) {
	if file := os.Getenv("SPOOL_CRASH_FILE"); file != "" {
		crasher(file)
	}
	file := filepath.Join(t.TempDir(), "spool.db")
	next := 0
	for range 4 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWhatWasAcknowledgedSurvivesKill$")
		cmd.Env = append(os.Environ(), "SPOOL_CRASH_FILE="+file, "SPOOL_CRASH_FROM="+strconv.Itoa(next))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			last, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("child said %q", lines.Text())
			}
			next = last + 1
			if n == 50 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
	}
	pub := &fake{}
	s, _ := start(t, file, spool.DefaultConfig(), pub, nil)
	waittest.For(t, "the spool to be empty", func() bool { n, _ := s.Waiting(); return n == 0 })
	want := 0
	for _, m := range pub.taken() {
		// One that was on its way when the process died may be there twice.
		if n, err := strconv.Atoi(strings.TrimPrefix(m, "events k ")); err != nil || n != want && n != want-1 {
			t.Fatalf("got %q, want %d", m, want)
		} else {
			want = n + 1
		}
	}
	if want < next {
		t.Errorf("%d events are back, %d were acknowledged", want, next)
	}
}
