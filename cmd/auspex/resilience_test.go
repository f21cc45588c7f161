package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/config"
	"auspex/internal/run"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func TestAWrongClockIsToldInOneSentence(t *testing.T) {
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	type step struct {
		wall   time.Time
		report string // "" is nothing new
		wrong  bool
	}
	for _, tc := range []struct {
		name   string
		latest time.Time
		steps  []step // 5 s apart
	}{
		{"right", noon, []step{{noon, "", false}, {noon.Add(5 * time.Second), "", false}, {noon.Add(11 * time.Second), "", false}}},
		{"never set", time.Time{}, []step{{time.Unix(100, 0), "shows 1970-01-01", true}, {time.Unix(105, 0), "", true}, {noon, "ahead", false}}},
		{"behind what was stored", noon.Add(time.Hour), []step{
			{noon, "1h0m0s behind", true}, {noon.Add(5 * time.Second), "", true}, {noon.Add(time.Hour), "ahead", false},
		}},
		{"jumps ahead and back", noon, []step{
			{noon, "", false},
			{noon.Add(time.Hour), "59m55s ahead", false},
			{noon.Add(10 * time.Second), "59m50s behind", true},
			{noon.Add(15 * time.Second), "", true},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var wall time.Time
			var passed time.Duration
			c := &clock{wall: func() time.Time { return wall }, mono: func() time.Duration { return passed }, latest: tc.latest}
			for i, s := range tc.steps {
				wall, passed = s.wall, time.Duration(i)*clockInterval
				report, err := c.check()
				if (report == "") != (s.report == "") || !strings.Contains(report, s.report) || (err != nil) != s.wrong {
					t.Errorf("step %d: %q, %v; want %q, wrong %v", i, report, err, s.report, s.wrong)
				}
			}
		})
	}
}

func TestAComponentWhoseStoreFailsIsBuiltAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStack(DefaultConfig(), io.Discard, io.Discard)
		var built atomic.Int64
		c := s.lasting("judge", func(reg prometheus.Registerer) (run.Component, error) {
			n := built.Add(1)
			reg.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_judge_total", Help: "Once at a time."}))
			return run.Func("judge", func(ctx context.Context, ready func()) error {
				ready()
				if n < 3 {
					return errors.New("database is locked")
				}
				<-ctx.Done()
				return nil
			}), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx, func() {}) }()
		time.Sleep(500 * time.Millisecond)
		if got := s.health.Degraded()["judge"]; !strings.Contains(got, "locked") {
			t.Errorf("health says %q while it stands still", got)
		}
		time.Sleep(time.Minute)
		if n := built.Load(); n != 3 {
			t.Errorf("built %d times, want 3", n)
		}
		if got := s.health.Degraded()["judge"]; got != "" {
			t.Errorf("health says %q when it works again", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestPatienceWithAComponentThatFailsIsBounded(t *testing.T) {
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name string
		runs []time.Duration // how long each life lasts; the last one stands for all that follow
		ends time.Duration   // 0: never
	}{
		{"each life is short", []time.Duration{time.Second}, giveUpAfter},
		{"it starts, works for less than a minute and fails, again and again", []time.Duration{50 * time.Second}, giveUpAfter},
		{"four minutes of failures, then it works", []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24 * time.Hour}, 0},
		{"failures far apart are no row", []time.Duration{2 * time.Minute}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStack(DefaultConfig(), io.Discard, io.Discard)
				life := 0
				c := s.lasting("judge", func(prometheus.Registerer) (run.Component, error) {
					lasts := tc.runs[min(life, len(tc.runs)-1)]
					life++
					return run.Func("judge", func(ctx context.Context, ready func()) error {
						ready()
						return errors.Join(run.Sleep(ctx, lasts), broken)
					}), nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				err := run.Group(ctx, s.log, time.Second, c)
				took := time.Since(began)
				if tc.ends == 0 {
					if took < time.Hour {
						t.Errorf("given up after %s: %v", took, err)
					}
					return
				}
				if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "judge: given up after ") {
					t.Errorf("the process ends with %v, want the component's name and its reason", err)
				}
				if took < tc.ends || took > tc.ends+2*time.Minute {
					t.Errorf("given up after %s, want about %s", took, tc.ends)
				}
			})
		})
	}
}

func TestAComponentThatCannotStartEndsTheProcess(t *testing.T) {
	s := newStack(DefaultConfig(), io.Discard, io.Discard)
	bad := errors.New("propagation file is not there")
	c := s.lasting("judge", func(prometheus.Registerer) (run.Component, error) {
		return run.Func("judge", func(context.Context, func()) error { return bad }), nil
	})
	if err := c.Run(t.Context(), func() {}); !errors.Is(err, bad) {
		t.Errorf("Run: %v, want %v", err, bad)
	}
}

func TestAStoreThatStartsLateIsWaitedForAndToldOnce(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer := &pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"}
			if n >= 2 {
				answer = &pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "wrong password"}
			}
			b := pgproto3.NewBackend(c, c)
			if _, err := b.ReceiveStartupMessage(); err == nil {
				b.Send(answer)
				_ = b.Flush()
			}
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-served }()
	var output strings.Builder
	cfg := DefaultConfig()
	cfg.Store.SQL = fmt.Sprintf("host=127.0.0.1 port=%d user=auspex password=hunter2 sslmode=disable", l.Addr().(*net.TCPAddr).Port)
	s := newStack(cfg, io.Discard, &output)
	_, err = s.openSQL(t.Context(), time.Hour)
	if err == nil || !strings.Contains(err.Error(), "wrong password") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a store that refuses: %v", err)
	}
	if out := output.String(); strings.Count(out, "does not answer yet") != 1 || !strings.Contains(out, "starting up") ||
		strings.Contains(out, "hunter2") {
		t.Errorf("said %q", out)
	}
	if _, err := s.openSQL(t.Context(), 0); err == nil {
		t.Error("opened a store that refuses")
	}
}

func TestADeviceThatCannotBeReadStopsNoOther(t *testing.T) {
	var cfg Collectors
	if _, err := cfg.Section("redfish"); err != nil {
		t.Fatal(err)
	}
	r := collectors.NewRunner(collectors.DefaultRunnerConfig(), cfg.m, nil, collectors.Settings{})
	var output strings.Builder
	s := newStack(DefaultConfig(), io.Discard, &output)
	s.reconcile(r, []schemas.Resource{
		{ID: "good", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrRedfishURL: "https://192.0.2.1"})},
		{ID: "bad", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrRedfishURL: "not an address"})},
	})
	if n := r.Targets()["redfish"]; n != 1 {
		t.Errorf("%d devices are read, want 1", n)
	}
	if out := output.String(); !strings.Contains(out, "bad") || strings.Contains(out, "good") {
		t.Errorf("said %q, want the bad device alone", out)
	}
}

// lines hands out what is written to it, a line at a time.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestHostileDevicesHarmNeitherTheOthersNorTheEnd(t *testing.T) {
	dir := t.TempDir()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	pipe, healthy := filepath.Join(dir, "pipe"), filepath.Join(dir, "kmsg")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(
		healthy, []byte("3,1,1000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	addr := mute.Addr().String()
	inventory := filepath.Join(dir, "topology.json")
	doc, err := json.Marshal(schemas.Topology{Version: 1, Resources: []schemas.Resource{
		{ID: "mute", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
			schemas.AttrRedfishURL: "https://" + addr, schemas.AttrIPMIIP: addr, schemas.AttrExporterURL: "http://" + addr,
			schemas.AttrKmsgPath: pipe,
		})},
		{ID: "bad", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrRedfishURL: "no address"})},
		{ID: "leaf", Kind: schemas.KindSwitch, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrGNMIAddress: addr})},
		{ID: "good", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrKmsgPath: healthy})},
	}})
	if err == nil {
		err = os.WriteFile(inventory, doc, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if took := readAndEnd(t, inventory); took > 5*time.Second {
		t.Errorf("the end took %s, want at most 5 s", took)
	}
}

// readAndEnd runs Auspex on an inventory until the healthy host is heard, and
// returns how long its end took.
func readAndEnd(t *testing.T, inventory string) time.Duration {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Data = t.TempDir()
	set := []string{"inventory.file=" + inventory, "store.clickhouse=off", "api.listen=127.0.0.1:0", "collect.start_spread=0s"}
	for _, name := range collectors.Names() {
		set = append(set, "collectors."+name+"={}")
	}
	if err := config.Load(config.Source{Set: set}, &cfg); err != nil {
		t.Fatal(err)
	}
	cfg.Complete()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, output := &lines{}, &lines{}
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg, RunOptions{Out: out, Err: output, Grace: time.Minute}) }()
	until := func(what string, ok func() bool) {
		t.Helper()
		waittest.Until(t, func() error {
			select {
			case err := <-done:
				t.Fatalf("it ended before %s: %v\n%s", what, err, output)
			default:
			}
			if !ok() {
				return fmt.Errorf("%s\n%s", what, output)
			}
			return nil
		})
	}
	var at *neturl.URL
	until("the address", func() bool {
		_, rest, _ := strings.Cut(out.String(), "ready ")
		line, _, whole := strings.Cut(rest, "\n")
		var err error
		at, err = neturl.Parse(line)
		return whole && err == nil
	})
	until("the event of the healthy host", func() bool {
		res, err := http.Get("http://" + at.Host + "/metrics")
		if err != nil {
			return false
		}
		defer func() { _ = res.Body.Close() }()
		body, _ := io.ReadAll(res.Body)
		return strings.Contains(string(body), `auspex_detect_alerts_total{severity="critical",status="firing"} 1`)
	})
	began := time.Now()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	took := time.Since(began)
	if !strings.Contains(output.String(), "collector redfish of bad") {
		t.Errorf("the device with a bad address is not named:\n%s", output)
	}
	return took
}
