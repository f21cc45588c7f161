package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"

	"auspex/agent/journal"
	"auspex/internal/target"
	"auspex/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// device is a ring as the kernel serves it: a read returns a record or an error, and waits
// until there is one or its deadline has come.
type device struct {
	next     chan any // a string or an error
	deadline time.Time
}

func (d *device) SetReadDeadline(t time.Time) error {
	d.deadline = t
	return nil
}

func (d *device) Read(b []byte) (int, error) {
	late := time.NewTimer(time.Until(d.deadline))
	defer late.Stop()
	select {
	case x := <-d.next:
		if err, ok := x.(error); ok {
			return 0, err
		}
		return copy(b, x.(string)), nil
	case <-late.C:
		return 0, os.ErrDeadlineExceeded
	}
}

// world is a server whose agent starts again and again.
type world struct {
	t       *testing.T
	dir     string
	journal *journal.Journal
	tree    *target.Tree
	log     bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), tree: target.NewTree()}
	w.boot("one")
	w.open()
	t.Cleanup(func() { _ = w.journal.Close() })
	return w
}

func (w *world) boot(id string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "boot"), []byte(id+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open() {
	w.t.Helper()
	if w.journal != nil {
		if err := w.journal.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	if w.journal, err = journal.Open(filepath.Join(w.dir, "journal"), 1<<20, "one"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) reader(path string) *Reader {
	return New(Config{Path: path, Boot: filepath.Join(w.dir, "boot"), Poll: time.Millisecond}, w.journal, w.tree, slog.New(slog.NewTextHandler(&w.log, nil)))
}

// reads lets a reader of the device read what comes, and ends it with an error that the
// device has otherwise.
func (w *world) reads(change func(*Reader), what ...any) {
	w.t.Helper()
	r := w.reader(Device)
	r.begin()
	if r.bootTime = Booted(time.Now()).UnixNano(); change != nil {
		change(r)
	}
	d := &device{next: make(chan any, len(what)+1)}
	for _, x := range append(what, syscall.EIO) {
		d.next <- x
	}
	if err := r.device(w.t.Context(), d); !errors.Is(err, syscall.EIO) {
		w.t.Fatalf("it ends with %v", err)
	}
	r.tell(nil)
}

// kept returns the records of the journal, as boot and line.
func (w *world) kept() (out []string) {
	w.t.Helper()
	list, err := w.journal.Read(0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list {
		out = append(out, r.Boot+" "+r.Data)
	}
	return out
}

func (w *world) holds(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.kept()); diff != "" {
		w.t.Error(diff)
	}
}

// state returns what a leaf of the log says.
func (w *world) state(leaf string) string {
	w.t.Helper()
	cfg := target.DefaultConfig()
	cfg.Access.Anonymous, cfg.Log = true, w.journal
	s, err := target.NewServer(w.tree, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	path, err := target.ParsePath("/host/kernel-log/state/" + leaf)
	if err != nil {
		w.t.Fatal(err)
	}
	res, err := s.Get(w.t.Context(), &gpb.GetRequest{Path: []*gpb.Path{path}, Encoding: gpb.Encoding_PROTO})
	if err != nil || len(res.GetNotification()) == 0 {
		return ""
	}
	v := res.GetNotification()[0].GetUpdate()[0].GetVal()
	if s := v.GetStringVal(); s != "" {
		return s
	}
	return strconv.FormatUint(v.GetUintVal(), 10)
}

func line(sequence int) string {
	return fmt.Sprintf("6,%d,%d,-;line %d", sequence, sequence*1000, sequence)
}

// What the kernel overwrites is counted, and what is left of its log is read.
func TestOverwrittenLinesAreCounted(t *testing.T) {
	w := newWorld(t)
	w.reads(nil, line(5)+"\n SUBSYSTEM=pci\n", line(6), syscall.EPIPE, line(9), syscall.EINVAL, line(11), "no record", line(12))
	w.holds("one "+line(5), "one "+line(6), "one "+line(9), "one "+line(11), "one "+line(12))
	for leaf, want := range map[string]string{"lost": "3", "malformed": "1", "records": "5", "error": "", "boot-id": "one"} {
		if got := w.state(leaf); got != want {
			t.Errorf("%s is %q, want %q", leaf, got, want)
		}
	}
	if n := strings.Count(w.log.String(), "overwritten"); n != 2 {
		t.Errorf("%d sentences: %s", n, &w.log)
	}
}

// A new reader gets the whole ring from the device, and keeps what the one before it had
// not: also what came while there was none, and the count of what was lost then.
func TestARestartGoesOnWhereTheJournalEnds(t *testing.T) {
	w := newWorld(t)
	w.reads(nil, line(1), line(2))
	w.open()
	w.reads(nil, line(1), line(2), line(3))
	w.holds("one "+line(1), "one "+line(2), "one "+line(3))
	w.open()
	w.reads(nil, line(7), line(8))
	w.holds("one "+line(1), "one "+line(2), "one "+line(3), "one "+line(7), "one "+line(8))
	if got := w.state("lost"); got != "3" {
		t.Errorf("%s lines are lost, want 3", got)
	}
}

// Another boot counts from the start again, and nothing of it is taken for known or lost.
func TestAnotherBootIsReadFromItsStart(t *testing.T) {
	w := newWorld(t)
	w.reads(nil, line(1), line(2), line(3))
	w.boot("two")
	w.reads(nil, line(1), line(2), line(4))
	w.holds("one "+line(1), "one "+line(2), "one "+line(3), "two "+line(1), "two "+line(2), "two "+line(4))
	if got := w.state("lost"); got != "1" {
		t.Errorf("%s lines are lost, want 1", got)
	}
}

// Whatever the clock does, lines are kept once and in order, and the boot stays where it
// was when the log was opened.
func TestAClockThatJumpsCostsNoLine(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	jumps := []time.Duration{0, -50 * 365 * 24 * time.Hour, time.Hour}
	w.reads(func(r *Reader) {
		r.now = func() time.Time {
			at := now.Add(jumps[0])
			if len(jumps) > 1 {
				jumps = jumps[1:]
			}
			return at
		}
	}, line(1), line(2), line(3))
	w.holds("one "+line(1), "one "+line(2), "one "+line(3))
	list, err := w.journal.Read(0, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.BootTime != list[0].BootTime {
			t.Errorf("line %d has another boot: %s, %s", r.Sequence, time.Unix(0, r.BootTime), time.Unix(0, list[0].BootTime))
		}
	}
	if w.reads(nil, line(1), line(2), line(3), line(4)); len(w.kept()) != 4 {
		t.Errorf("%q", w.kept())
	}
}

// How reading stands is told every ten seconds, whether lines come or not.
func TestTheStateIsToldWhileLinesCome(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		r := w.reader(Device)
		r.begin()
		d := &device{next: make(chan any)}
		done := make(chan error, 1)
		go func() { done <- r.device(t.Context(), d) }()
		for i := range 31 {
			time.Sleep(time.Second)
			d.next <- line(i + 1)
			synctest.Wait()
		}
		if n := r.read; n != 31 {
			t.Errorf("%d lines", n)
		}
		d.next <- syscall.EIO
		<-done
	})
	if got, err := strconv.Atoi(w.state("records")); err != nil || got < 25 {
		t.Errorf("%d lines are told", got)
	}
}

// A log that may not be read is one sentence, which says what it needs; once it may be
// read, it is.
func TestALogWithoutRightsIsOneSentence(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.dir, "kmsg")
	if err := os.WriteFile(path, []byte(line(1)+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	r := w.reader(path)
	runtime.LockOSThread() // nobody's rights are those of this thread alone
	defer runtime.UnlockOSThread()
	if os.Geteuid() == 0 {
		if err := syscall.Setfsuid(65534); err != nil {
			t.Skip(err)
		}
	}
	for range 3 {
		r.tell(r.follow(t.Context()))
	}
	if os.Geteuid() == 0 {
		if err := syscall.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.state("error"); !strings.Contains(got, path) || !strings.Contains(got, "CAP_SYSLOG") || r.Reads() {
		t.Errorf("%q", got)
	}
	if n := strings.Count(w.log.String(), "\n"); n != 1 {
		t.Errorf("%d lines of log: %s", n, &w.log)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	waittest.For(t, "it is not read", func() bool { return len(w.kept()) == 1 && w.state("error") == "" && r.Reads() })
	cancel()
	<-done
}

// A file in the place of the device is followed over a rename and a truncation, and what
// is in neither twice.
func TestAFileIsFollowed(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(w.dir, "kmsg")
	write := func(lines ...string) {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	write(line(1), line(2))
	r := w.reader(path)
	go func() { defer close(done); r.Run(ctx) }()
	waittest.For(t, "the file is not read", func() bool { return len(w.kept()) == 2 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(line(2), line(3))
	waittest.For(t, "the file in its place is not read", func() bool { return len(w.kept()) == 3 })
	write(line(4))
	waittest.For(t, "the file that was cut is not read", func() bool { return len(w.kept()) == 4 })
	cancel()
	<-done
	w.holds("one "+line(1), "one "+line(2), "one "+line(3), "one "+line(4))
}
