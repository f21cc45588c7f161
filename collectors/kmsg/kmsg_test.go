package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type host struct {
	t    *testing.T
	path string
	seq  int
}

func newHost(t *testing.T) *host { return &host{t: t, path: filepath.Join(t.TempDir(), "kmsg")} }

func (h *host) boot(id string) {
	h.t.Helper()
	h.seq = 0
	for p, s := range map[string]string{h.path + bootIDSuffix: id + "\n", h.path: ""} {
		_ = os.Remove(p)
		if err := os.WriteFile(p, []byte(s), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *host) log(text string) {
	h.t.Helper()
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "3,%d,%d,-;%s\n", h.seq, h.seq*1000, text)
	h.seq++
}

const fallen = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

// start runs a collector. The first returned function stops it, the second waits
// until it has ended by itself.
func (h *host) start(s collectors.Settings, out collectors.Emitter) (stop, end func() error) {
	h.t.Helper()
	c, err := Default().New(schemas.Resource{ID: "gpu-1", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrKmsgPath: h.path})}, s)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, out) }()
	return func() error { cancel(); return <-done }, func() error { defer cancel(); return <-done }
}

func waitEvents(t *testing.T, rec *collectortest.Recorder, n int) []schemas.Event {
	t.Helper()
	var ev []schemas.Event
	waittest.Until(t, func() error {
		if ev = rec.Events(); len(ev) < n {
			return fmt.Errorf("only %d of %d events", len(ev), n)
		}
		return nil
	})
	return ev
}

func TestFollowsLinesAndReboot(t *testing.T) {
	h, rec := newHost(t), collectortest.NewRecorder()
	h.boot("boot-a")
	h.log("Linux version 6.8.0")
	stop, _ := h.start(collectortest.Settings(), rec)
	waitEvents(t, rec, 1)
	h.log(fallen)
	ev := waitEvents(t, rec, 2)
	if ev[0].Type != "host.reboot" || ev[0].Code != "boot" || ev[1].Code != "79" || ev[1].Resource != "gpu-1" ||
		ev[1].Attr("boot_id") != "boot-a" {
		t.Errorf("%+v", ev)
	}
	h.boot("boot-b")
	h.log("Linux version 6.8.0")
	ev = waitEvents(t, rec, 3)
	if ev[2].Code != "unclean" || ev[2].Attr("boot_id") != "boot-b" {
		t.Errorf("%+v", ev[2])
	}
	// The machine may stand still at one line, not at each.
	best := time.Hour
	for n := 4; n < 14 && best > 500*time.Millisecond; n++ {
		began := time.Now()
		h.log(fallen)
		waitEvents(t, rec, n)
		best = min(best, time.Since(began))
	}
	if best > 500*time.Millisecond {
		t.Errorf("a line took at least %v", best)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestARecordOfSeveralLinesAndWhatAProgramWrites(t *testing.T) {
	h, rec := newHost(t), collectortest.NewRecorder()
	h.boot("boot-a")
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// Facility 1 is what a process writes to /dev/kmsg, whatever it calls itself.
	fmt.Fprint(f, "12,0,1000,-;"+fallen+"\n12,1,2000,-;kernel: "+fallen+"\n12,2,2000,-;a trainer saw "+fallen+"\n",
		`3,3,3000,-;NVRM: The NVIDIA GPU 0000:b1:00.0 (PCI ID: 10de:2330) installed in this system has\x0aNVRM: fallen off the bus and is not responding to commands.`, "\n",
		`3,4,4000,-;`+fallen+`\x0aNVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.`, "\n")
	stop, _ := h.start(collectortest.Settings(), rec)
	var got []string
	ids := map[string]bool{}
	for _, ev := range waitEvents(t, rec, 3) {
		got = append(got, ev.Type+" "+ev.Attr("pci")+" "+ev.Attr("sequence"))
		ids[ev.ID] = true
	}
	if d := cmp.Diff([]string{"gpu.missing 0000:b1:00.0 3", "gpu.xid 0000:1b:00 4", "gpu.missing 0000:1b:00.0 4"}, got); d != "" ||
		len(ids) != 3 {
		t.Errorf("%d ids: %s", len(ids), d)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestRestartTellsNothingTwice(t *testing.T) {
	h, s := newHost(t), collectortest.Settings()
	h.boot("boot-a")
	h.log(fallen)
	first := collectortest.NewRecorder()
	stop, _ := h.start(s, first)
	a := waitEvents(t, first, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	h.log("systemd-shutdown[1]: Rebooting.")
	h.log(fallen)

	second := collectortest.NewRecorder()
	stop, _ = h.start(s, second)
	b := waitEvents(t, second, 1)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if len(b) != 1 || b[0].ID == a[0].ID {
		t.Fatalf("second run: %+v", b)
	}
	// Without its cursor it reads all again, as the same events.
	third := collectortest.NewRecorder()
	stop, _ = h.start(collectortest.Settings(), third)
	c := waitEvents(t, third, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if c[0].ID != a[0].ID || c[1].ID != b[0].ID {
		t.Errorf("ids changed: %s %s, %s %s", a[0].ID, c[0].ID, b[0].ID, c[1].ID)
	}
}

func TestEventsThatWereNotTakenAreToldAgain(t *testing.T) {
	h, s, rec := newHost(t), collectortest.Settings(), collectortest.NewRecorder()
	h.boot("boot-a")
	h.log(fallen)
	rec.Fail(errors.New("bus is gone"))
	_, end := h.start(s, rec)
	if err := end(); err == nil {
		t.Fatal("the error is hidden")
	}
	rec.Fail(nil)
	stop, _ := h.start(s, rec)
	if ev := waitEvents(t, rec, 1); ev[0].Code != "79" {
		t.Errorf("%+v", ev)
	}
	_ = stop()
}

func TestLostRecordsAreCounted(t *testing.T) {
	h, s, rec := newHost(t), collectortest.Settings(), collectortest.NewRecorder()
	reg := prometheus.NewRegistry()
	s.Metrics = reg
	h.boot("boot-a")
	h.log("one")
	h.seq = 5
	h.log(fallen)
	f, _ := os.OpenFile(h.path, os.O_APPEND|os.O_WRONLY, 0)
	_, _ = f.WriteString("garbage\n SUBSYSTEM=pci\n")
	_ = f.Close()
	h.log(fallen)
	stop, _ := h.start(s, rec)
	waitEvents(t, rec, 2)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	m := newMetrics(reg)
	if lost, bad := testutil.ToFloat64(m.lost), testutil.ToFloat64(m.malformed); lost != 4 || bad != 1 {
		t.Errorf("lost %v, malformed %v", lost, bad)
	}
}

func TestHostThatIsDownIsAMiss(t *testing.T) {
	h, rec := newHost(t), collectortest.NewRecorder()
	_, end := h.start(collectortest.Settings(), rec)
	if err := end(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no log: %v", err)
	}
	h.boot("boot-a")
	h.log(fallen)
	_, end = h.start(collectortest.Settings(), rec)
	waitEvents(t, rec, 1)
	_ = os.Remove(h.path)
	if err := end(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("log removed: %v", err)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	c := Default()
	if _, err := c.New(schemas.Resource{ID: "x"}, collectors.Settings{}); err == nil {
		t.Error("a target without a path is accepted")
	}
	c.PollInterval = 0
	if err := c.Validate(); err == nil {
		t.Error("poll_interval 0 is accepted")
	}
	got := Default().Targets([]schemas.Resource{
		{ID: "a", Kind: "server", Attrs: schemas.AttrsOf(map[string]string{"kmsg_path": "/x"})}, {ID: "b", Kind: "server"},
	})
	if len(got) != 1 || got[0].ID != "a" {
		t.Errorf("targets %v", got)
	}
}

func TestConformance(t *testing.T) {
	serve := func(t testing.TB, log, id []byte) schemas.Resource {
		path := filepath.Join(t.TempDir(), "kmsg")
		for p, b := range map[string][]byte{path + bootIDSuffix: id, path: log} {
			if err := os.WriteFile(p, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return schemas.Resource{ID: "gpu-1", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrKmsgPath: path})}
	}
	collectortest.Run(t, collectortest.Harness{
		Name: Name,
		Serve: func(t testing.TB, input string) schemas.Resource {
			log, err := os.ReadFile(filepath.Join(input, "kmsg"))
			if err != nil {
				t.Fatal(err)
			}
			id, err := os.ReadFile(filepath.Join(input, "boot_id"))
			if err != nil {
				t.Fatal(err)
			}
			return serve(t, log, id)
		},
		Garbage: func(t testing.TB) schemas.Resource {
			return serve(t, []byte("\x00\xff;;;\n9,9,9\n-1,x,y,z;\n"), []byte("3f0c1a52-6f1e-4a1a-9d2b-0123456789ab\n"))
		},
	})
}

func TestALogThatBeganAnewWithinABootIsRead(t *testing.T) {
	for _, tc := range []struct {
		name    string
		replace func(path string, text []byte) error
	}{
		{"truncated", func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }},
		{"replaced", func(path string, text []byte) error {
			if err := os.WriteFile(path+".new", text, 0o600); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, rec, s := newHost(t), collectortest.NewRecorder(), collectortest.Settings()
			h.boot("boot-a")
			for range 3 {
				h.log(fallen)
			}
			stop, _ := h.start(s, rec)
			waitEvents(t, rec, 3)
			if err := tc.replace(h.path, []byte("3,0,9000,-;"+fallen+"\n")); err != nil {
				t.Fatal(err)
			}
			ids := map[string]bool{}
			for _, ev := range waitEvents(t, rec, 4) {
				ids[ev.ID] = true
			}
			if len(ids) != 4 {
				t.Errorf("%d different events, want 4", len(ids))
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			again := collectortest.NewRecorder()
			stop, _ = h.start(s, again)
			h.log("NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=x, Ch 00000008") // comes after all that was read before
			if evs := waitEvents(t, again, 1); evs[0].Code != "31" {
				t.Errorf("after a restart %+v is told again", evs[0])
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestWhatIsNoLogEndsNothingAndHoldsNobody(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"a pipe": pipe, "a folder": dir, "a device without end": "/dev/zero"} {
		t.Run(name, func(t *testing.T) {
			h := &host{t: t, path: path}
			stop, _ := h.start(collectortest.Settings(), collectortest.NewRecorder())
			time.Sleep(50 * time.Millisecond) // long enough to be in the middle of it
			ended := make(chan error, 1)
			go func() { ended <- stop() }()
			select {
			case err := <-ended:
				t.Logf("Run: %v", err)
			case <-time.After(time.Minute):
				t.Error("Run did not return after its end")
			}
		})
	}
}

func TestAWriterThatIsFasterThanTheReaderDoesNotHoldItsEnd(t *testing.T) {
	h := newHost(t)
	h.boot("boot-a")
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := Default().New(
		schemas.Resource{ID: "gpu-1", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrKmsgPath: h.path})},
		collectortest.Settings(),
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &reader{f: c.(*follower), file: f}
	if n, err := r.drain(ctx, collectortest.NewRecorder()); n != 0 || err != nil {
		t.Errorf("read %d bytes after its end: %v", n, err)
	}
}
