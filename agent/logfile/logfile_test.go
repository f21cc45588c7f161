package logfile

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"

	"auspex/agent/journal"
	"auspex/internal/target"
	"auspex/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a server with a log, whose agent starts again and again.
type world struct {
	t       *testing.T
	dir     string
	path    string
	journal *journal.Journal
	tree    *target.Tree
	said    said
	end     func()
}

type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *said) lines() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), "\n")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), tree: target.NewTree(), end: func() {}}
	w.path = filepath.Join(w.dir, "service.log")
	t.Cleanup(func() { w.end() })
	return w
}

// start starts the agent anew.
func (w *world) start() {
	w.t.Helper()
	w.end()
	j, err := journal.Open(filepath.Join(w.dir, "journal"), 1<<20, "one")
	if err != nil {
		w.t.Fatal(err)
	}
	w.journal = j
	r := New(Config{
		Path: w.path, Poll: time.Millisecond, Kind: journal.KindFabric, Tree: "/host/fabric-manager-log", Boot: "one",
		Dated: func(line string) (time.Time, bool) {
			first, _, _ := strings.Cut(line, " ")
			at, err := time.Parse(time.RFC3339, first)
			return at, err == nil
		},
	}, j, w.tree, slog.New(slog.NewTextHandler(&w.said, nil)))
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	w.end = func() {
		cancel()
		<-done
		_ = j.Close()
		w.end = func() {}
	}
}

// append adds lines to the log, or what of them is said.
func (w *world) append(text string) {
	w.t.Helper()
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// holds waits until the journal holds these lines and no others.
func (w *world) holds(want ...string) {
	w.t.Helper()
	waittest.Until(w.t, func() error {
		list, err := w.journal.Read(0, 1000)
		if err != nil {
			return err
		}
		var got []string
		for _, r := range list {
			zone, line, _ := strings.Cut(r.Data, " ")
			if _, err := time.Parse("-0700", zone); err != nil || r.Kind != journal.KindFabric || r.Boot != "one" {
				return fmt.Errorf("%+v", r)
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("%s", diff)
		}
		return nil
	})
}

// state returns what a leaf says.
func (w *world) state(leaf string) string {
	w.t.Helper()
	cfg := target.DefaultConfig()
	cfg.Access.Anonymous, cfg.Log = true, w.journal
	s, err := target.NewServer(w.tree, cfg)
	w.do(err)
	path, err := target.ParsePath("/host/fabric-manager-log/state/" + leaf)
	w.do(err)
	res, err := s.Get(w.t.Context(), &gpb.GetRequest{Path: []*gpb.Path{path}, Encoding: gpb.Encoding_ASCII})
	if err != nil || len(res.GetNotification()) == 0 {
		return ""
	}
	return res.GetNotification()[0].GetUpdate()[0].GetVal().GetAsciiVal()
}

func now(text string) string {
	return time.Now().UTC().Truncate(time.Second).Format(time.RFC3339) + " " + text
}

// Whatever becomes of the file while the agent reads or is away, no line is lost, and none
// comes twice.
func TestALogIsReadOnceAndWhole(t *testing.T) {
	one, two, three, four := now("one"), now("two"), now("three"), now("four")
	copied := func(w *world) {
		b, err := os.ReadFile(w.path)
		w.do(err)
		w.do(os.WriteFile(w.path+".1", b, 0o600))
		w.do(os.Truncate(w.path, 0))
	}
	for what, move := range map[string]func(w *world){
		"nothing happens":        func(*world) {},
		"it is renamed":          func(w *world) { w.do(os.Rename(w.path, w.path+".1")) },
		"it is renamed by day":   func(w *world) { w.do(os.Rename(w.path, w.path+"-20260101")) },
		"it is copied and cut":   copied,
		"it is gone and another": func(w *world) { w.holds(one, two); w.do(os.Remove(w.path)) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.start()
			w.append(one + "\n")
			w.holds(one)
			w.append(two + "\n")
			move(w)
			w.append(three + "\n")
			w.holds(one, two, three)
			w.start()
			w.append(four + "\n")
			w.holds(one, two, three, four)
		})
		t.Run(what+", and the agent is away", func(t *testing.T) {
			w := newWorld(t)
			w.start()
			w.append(one + "\n")
			w.holds(one)
			if what != "it is gone and another" { // nobody has what was in it then
				w.end()
			}
			w.append(two + "\n")
			move(w)
			w.append(three + "\n")
			w.start()
			w.append(four + "\n")
			w.holds(one, two, three, four)
		})
	}
}

// A line is read when it is whole; one that is none is counted and harms itself alone.
func TestLinesThatAreNone(t *testing.T) {
	w := newWorld(t)
	w.start()
	one, two := now("one"), now("two")
	w.append(one[:10])
	w.append(one[10:] + "\r\n\n" + strings.Repeat("x", 5*maxLine) + "\n\x00\x00" + two + "\n")
	w.holds(one, two)
	waittest.For(t, "what is no line is not counted", func() bool { return w.state("malformed") != "0" && w.state("malformed") != "" })
	if n := w.said.lines(); n != 0 {
		t.Errorf("%d sentences: %s", n, &w.said.b)
	}
}

// What a log holds from before the boot is old news where it was never followed.
func TestAnOldLogIsNoNews(t *testing.T) {
	w := newWorld(t)
	w.append("2020-01-01T00:00:00Z long ago\nand more of it\n")
	fresh := now("fresh")
	w.append(fresh + "\nand more\n")
	w.start()
	w.holds(fresh, "and more")
}

// A server that has no such log is none with a fault; a log that cannot be read is one, in
// a sentence.
func TestALogThatIsNotThereIsToldInTheStateAlone(t *testing.T) {
	w := newWorld(t)
	w.start()
	waittest.For(t, "it is not told", func() bool { return strings.Contains(w.state("error"), "is not there") })
	if n := w.said.lines(); n != 0 {
		t.Errorf("%d sentences: %s", n, &w.said.b)
	}
	if err := syscall.Mkfifo(w.path, 0o600); err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "a pipe is not told", func() bool { return strings.Contains(w.state("error"), "is no file") && w.said.lines() == 1 })
	w.do(os.Remove(w.path))
	line := now("one")
	w.append(line + "\n")
	w.holds(line)
	waittest.For(t, "the error stays", func() bool { return w.state("error") == "" })
}
