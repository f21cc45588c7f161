//go:build cgo

package nvml

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"

	"auspex/agent/journal"
	"auspex/agent/nvml/stub"
	"auspex/internal/target"
	"auspex/internal/waittest"
	"auspex/schemas"
	"auspex/schemas/yang"
)

// server is a server with a reader of its GPUs.
type server struct {
	t       *testing.T
	cfg     Config
	machine *stub.Machine
	tree    *target.Tree
	state   string
	kernel  atomic.Bool

	mu     sync.Mutex
	events []schemas.Event
	full   bool // the journal takes nothing
	mark   journal.Mark
}

func newServer(t *testing.T, gpus int) *server {
	t.Helper()
	machine := stub.New(filepath.Join(t.TempDir(), "machine"), gpus)
	t.Setenv(stub.Env, machine.Path())
	s := &server{t: t, machine: machine, tree: target.NewTree(), state: filepath.Join(t.TempDir(), "gpus.json")}
	s.kernel.Store(true)
	s.cfg = Default()
	s.cfg.Library, s.cfg.Interval, s.cfg.Deadline = library(t), 20*time.Millisecond, time.Second // a busy machine stands still for less
	s.cfg.Sys = t.TempDir()
	return s
}

// folder outlives each test: a process binds the functions of the first library that it loads.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "auspex-nvml"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var compiled = sync.OnceValues(func() (string, error) { return stub.Compile(folder, false) })

func library(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is missing, which compiles a library in NVML's place")
	}
	path, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Append implements [Journal].
func (s *server) Append(r target.Record, from string, mark journal.Mark) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return 0, fmt.Errorf("no space left on device")
	}
	var ev schemas.Event
	if err := json.Unmarshal([]byte(r.Data), &ev); err != nil || r.Kind != journal.KindEvent || r.Boot != "boot" || from != source {
		s.t.Errorf("record %+v: %v", r, err)
	}
	s.events, s.mark = append(s.events, ev), mark
	return uint64(len(s.events)), nil
}

// Mark implements [Journal].
func (s *server) Mark(string) journal.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

// told are the events so far, in short.
func (s *server) told() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ev := range s.events {
		out = append(out, strings.Join(strings.Fields(fmt.Sprint(ev.Type, " ", ev.Code, " ", ev.State, " ", ev.Attr("part"))), " "))
	}
	return out
}

func (s *server) tells(event string) {
	s.t.Helper()
	waittest.For(s.t, event+" is not told", func() bool { return slices.Contains(s.told(), event) })
}

// run runs a reader until the returned function is called.
func (s *server) run() (stop func()) {
	s.t.Helper()
	_, stop = s.start()
	return stop
}

func (s *server) start() (r *Reader, stop func()) {
	s.t.Helper()
	r = New(s.cfg, Needs{
		Journal: s, Tree: s.tree, Log: slog.New(slog.DiscardHandler), State: s.state, Boot: "boot", Kernel: s.kernel.Load,
	})
	r.anew, r.slowly, r.watch.Patience = 50*time.Millisecond, 3*s.cfg.Interval, 2*s.cfg.Interval
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		s.t.Helper()
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			s.t.Error("the reader does not end")
		}
	})
	s.t.Cleanup(stop) // before the machine is no more
	return r, stop
}

// leaves are what the tree tells.
func (s *server) leaves() map[string]any {
	s.t.Helper()
	cfg := target.DefaultConfig()
	cfg.Access.Anonymous = true
	srv, err := target.NewServer(s.tree, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := srv.Get(s.t.Context(), &gpb.GetRequest{Encoding: gpb.Encoding_PROTO})
	if err != nil {
		return nil
	}
	out := map[string]any{}
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			var at strings.Builder
			for _, e := range u.GetPath().GetElem() {
				at.WriteString("/" + e.GetName())
				for _, v := range e.GetKey() {
					at.WriteString("[" + v + "]")
				}
			}
			path := at.String()
			switch v := u.GetVal().GetValue().(type) {
			case *gpb.TypedValue_UintVal:
				out[path] = v.UintVal
			case *gpb.TypedValue_DoubleVal:
				out[path] = v.DoubleVal
			case *gpb.TypedValue_BoolVal:
				out[path] = v.BoolVal
			case *gpb.TypedValue_StringVal:
				out[path] = v.StringVal
			}
		}
	}
	return out
}

func (s *server) shows(path string, want any) {
	s.t.Helper()
	var got any
	defer func() {
		if s.t.Failed() {
			s.t.Logf("%s is %v, want %v; events %q", path, got, want, s.told())
		}
	}()
	waittest.For(s.t, path+" is not shown", func() bool { got = s.leaves()[path]; return got == want })
}

func TestWhatAGPUTellsIsInTheTree(t *testing.T) {
	s := newServer(t, 2)
	s.machine.Say("gpu 1 set temperature-0 71")
	s.machine.Say("gpu 1 set power 412345")
	s.machine.Say("gpu 1 set ecc-0-0 3")
	s.machine.Say("gpu 1 set ecc-1-1-7 2")
	s.machine.Say("gpu 1 set nvlink-3-0 5")
	s.machine.Say("gpu 1 set nvlink-4-0 7")
	s.machine.Say("gpu 1 set field-214-2 1")
	s.machine.Say("gpu 1 set field-221-2 9")
	s.machine.Say("gpu 1 set retired-1 3")
	s.machine.Say("gpu 0 set nvlinks 0")
	s.machine.Say("gpu 0 return nvmlDeviceGetEncoderUtilization 3")
	s.machine.Say("gpu 1 process %d 2048", 1)
	stop := s.run()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(71))
	stop()
	got := s.leaves()
	for path, want := range map[string]any{
		"/gpus/state/driver-version": "570.124.06", "/gpus/state/failures": uint64(0), "/gpus/gpu[gpu0]/state/temperature": uint64(36),
		"/gpus/gpu[gpu1]/state/name": "gpu1", "/gpus/gpu[gpu1]/state/pci": "0000:2c:00.0", "/gpus/gpu[gpu1]/state/uuid": "GPU-5f1c6d1e-0000-4a3b-8c11-000000000001",
		"/gpus/gpu[gpu1]/state/product": "NVIDIA H100 80GB HBM3", "/gpus/gpu[gpu1]/state/serial": "1650223000001", "/gpus/gpu[gpu1]/state/missing": false,
		"/gpus/gpu[gpu1]/state/power": 412.345, "/gpus/gpu[gpu1]/state/power-limit-min": 200.0, "/gpus/gpu[gpu1]/state/memory-temperature": uint64(40),
		"/gpus/gpu[gpu1]/state/temperature-slowdown": uint64(88), "/gpus/gpu[gpu1]/state/ecc-corrected": uint64(3),
		"/gpus/gpu[gpu1]/ecc[sram]/state/uncorrected-lifetime": uint64(2), "/gpus/gpu[gpu1]/ecc[sram]/state/location": "sram",
		"/gpus/gpu[gpu1]/nvlink[3]/state/replay-errors": uint64(5), "/gpus/gpu[gpu1]/nvlink[3]/state/link": uint64(3), "/gpus/gpu[gpu1]/nvlink[17]/state/active": true,
		"/gpus/gpu[gpu1]/nvlink[5]/state/remote": "0000:06:00.0", "/gpus/gpu[gpu1]/state/nvlink-replay-errors": uint64(12),
		"/gpus/gpu[gpu1]/nvlink[2]/state/recoveries-failed": uint64(1), "/gpus/gpu[gpu1]/nvlink[2]/state/symbol-errors": uint64(9),
		"/gpus/gpu[gpu1]/nvlink[2]/state/effective-errors": nil, "/gpus/gpu[gpu1]/nvlink[1]/state/symbol-errors": nil,
		"/gpus/gpu[gpu1]/state/retired-pages-uncorrected": uint64(3), "/gpus/gpu[gpu1]/state/memory-free": uint64(80<<10 - 1<<10 - 600), "/gpus/gpu[gpu1]/state/remap-banks-max": uint64(640),
		"/gpus/gpu[gpu1]/state/processes": uint64(1), "/gpus/gpu[gpu1]/process[1]/state/memory": uint64(2048), "/gpus/gpu[gpu1]/process[1]/state/user": uint64(0),
		"/gpus/gpu[gpu0]/state/encoder-utilization": nil, "/gpus/gpu[gpu0]/nvlink[0]/state/active": true, "/gpus/gpu[gpu0]/nvlink[0]/state/replay-errors": nil, "/gpus/gpu[gpu0]/ecc[l1]/state/corrected": nil,
	} {
		if got[path] != want {
			t.Errorf("%s is %v, want %v", path, got[path], want)
		}
	}
	if len(got) < 150 {
		t.Errorf("%d leaves", len(got))
	}
	for path := range got {
		pattern := path
		for strings.Contains(pattern, "[") {
			a, rest, _ := strings.Cut(pattern, "[")
			_, b, _ := strings.Cut(rest, "]")
			pattern = a + b
		}
		if _, ok := yang.Leaves[pattern]; !ok {
			t.Errorf("%s is in no module", path)
		}
	}
	if got := s.told(); len(got) > 0 {
		t.Error(got)
	}
}

func TestACallThatDoesNotReturnHarmsItsGPUAlone(t *testing.T) {
	s := newServer(t, 4)
	stop := s.run()
	s.shows("/gpus/gpu[gpu2]/state/temperature", uint64(36))
	s.machine.Say("gpu 2 hang nvmlDeviceGetPowerUsage")
	s.tells("gpu.stalled CALL raised gpu2")
	s.shows("/gpus/gpu[gpu2]/state/stalled", "nvmlDeviceGetPowerUsage")
	s.shows("/gpus/gpu[gpu2]/state/temperature", nil)
	s.machine.Say("gpu 1 set temperature-0 66")
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(66))
	begun := time.Now()
	stop() // while it hangs
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it ended after %s", took)
	}
	stop = s.run() // and whoever comes next has one that does not even say who it is
	s.machine.Say("gpu 1 set temperature-0 67")
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(67))
	s.machine.Unsay("gpu 2 hang nvmlDeviceGetPowerUsage")
	s.tells("gpu.stalled CALL cleared gpu2")
	s.shows("/gpus/gpu[gpu2]/state/stalled", nil)
	s.shows("/gpus/gpu[gpu2]/state/temperature", uint64(36))
	stop()
	if got := s.told(); !slices.Equal(got, []string{"gpu.stalled CALL raised gpu2", "gpu.stalled CALL cleared gpu2"}) {
		t.Error(got)
	}
}

func TestAGPUThatIsLostIsMissingAndKeepsItsNumber(t *testing.T) {
	s := newServer(t, 4)
	stop := s.run()
	s.shows("/gpus/gpu[gpu3]/state/temperature", uint64(36))
	s.machine.Say("gpu 1 gone")
	s.tells("gpu.missing GPU_IS_LOST raised gpu1")
	s.shows("/gpus/gpu[gpu1]/state/missing", true)
	s.shows("/gpus/gpu[gpu1]/state/power", nil)
	s.shows("/gpus/gpu[gpu1]/state/serial", "1650223000001")
	stop()
	// The next run sees three, and misses the fourth.
	s.machine.Say("gpu 2 set temperature-0 52")
	s.machine.Say("gpu 3 set temperature-0 53")
	stop = s.run()
	s.shows("/gpus/gpu[gpu2]/state/temperature", uint64(52))
	s.shows("/gpus/gpu[gpu3]/state/temperature", uint64(53))
	s.machine.Unsay("gpu 1 gone") // it is looked for anew
	s.tells("gpu.missing GPU_IS_LOST cleared gpu1")
	s.shows("/gpus/gpu[gpu1]/state/missing", false)
	stop()
	if got := s.told(); !slices.Equal(got, []string{"gpu.missing GPU_IS_LOST raised gpu1", "gpu.missing GPU_IS_LOST cleared gpu1"}) {
		t.Error(got)
	}
}

func TestAGPUWhoseEveryCallFailsIsMissing(t *testing.T) {
	s := newServer(t, 2)
	stop := s.run()
	defer stop()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	s.machine.Say("gpu 1 return * 999")
	s.tells("gpu.missing STALE raised gpu1")
	s.machine.Unsay("gpu 1 return * 999")
	s.tells("gpu.missing STALE cleared gpu1")
}

func TestADriverThatGoesAndComes(t *testing.T) {
	s := newServer(t, 2)
	stop := s.run()
	defer stop()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	s.machine.Say("return nvmlInit_v2 9")
	for gpu := range 2 {
		s.machine.Say("gpu %d return * 9", gpu)
	}
	s.tells("service.failed nvidia-driver raised")
	s.shows("/gpus/state/error", "nvmlInit: the NVIDIA driver is not loaded")
	s.shows("/gpus/gpu[gpu1]/state/temperature", nil)
	s.machine.Unsay("return nvmlInit_v2 9")
	for gpu := range 2 {
		s.machine.Unsay("gpu %d return * 9", gpu)
	}
	s.tells("service.failed nvidia-driver cleared")
	s.shows("/gpus/state/error", nil)
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	s.machine.Say("return nvmlInit_v2 9")
	if got := s.told(); len(got) != 2 {
		t.Error(got)
	}
}

func TestALibraryThatDoesNotReturn(t *testing.T) {
	s := newServer(t, 2)
	s.machine.Say("hang nvmlInit_v2")
	stop := s.run()
	s.shows("/gpus/state/error", "nvmlInit has not returned for 1s")
	s.machine.Unsay("hang nvmlInit_v2")
	s.shows("/gpus/state/error", nil)
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	stop()
	if got := s.told(); len(got) > 0 {
		t.Error(got) // nothing was known of GPUs
	}
}

func TestXIDsOfTheLibraryAreToldWhereTheKernelsLogIsNot(t *testing.T) {
	for _, c := range []struct {
		mode   string
		kernel bool
		want   []string
	}{
		{xidAuto, true, nil}, {XIDOff, false, nil}, {xidAuto, false, []string{"gpu.xid 79 gpu1"}}, {xidOn, true, []string{"gpu.xid 79 gpu1"}},
	} {
		s := newServer(t, 2)
		s.cfg.XIDEvents = c.mode
		s.kernel.Store(c.kernel)
		stop := s.run()
		s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
		s.machine.XID(1, 79)
		if len(c.want) > 0 {
			waittest.For(t, "no XID", func() bool {
				s.machine.XID(1, 79) // the listener begins beside the readings, and is told what happens from then on
				return len(s.told()) > 0
			})
		} else {
			time.Sleep(200 * time.Millisecond) // what is not to come has time to come
		}
		stop()
		if got := slices.Compact(s.told()); !slices.Equal(got, c.want) {
			t.Errorf("%s, kernel's log read %t: %q, want %q", c.mode, c.kernel, got, c.want)
		}
	}
}

func TestXIDsOfTheLibraryAreToldOnceTheKernelsLogCannotBeReadAnyMore(t *testing.T) {
	s := newServer(t, 2)
	stop := s.run()
	defer stop()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	s.machine.XID(1, 48)
	s.kernel.Store(false)
	waittest.For(t, "no XID", func() bool {
		s.machine.XID(1, 79)
		return len(s.told()) > 0
	})
	if got := s.told(); got[0] != "gpu.xid 79 gpu1" { // what the kernel's log had told is not told again
		t.Errorf("%q", got)
	}
}

// What waits for the journal outlives the process, and is told once wherever that is killed.
func TestEventsWaitForAJournalThatIsFull(t *testing.T) {
	const lost = "gpu.missing GPU_IS_LOST raised gpu1"
	s := newServer(t, 2)
	s.full = true
	stop := s.run()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	s.machine.Say("gpu 1 gone")
	var killed []byte
	waittest.For(t, "it is not kept that it is to be told", func() (kept bool) {
		killed, _ = os.ReadFile(s.state)
		return strings.Contains(string(killed), schemas.EventGPUMissing+`"`)
	})
	stop()
	s.mu.Lock()
	s.full = false
	s.mu.Unlock()
	for range 3 {
		stop = s.run()
		s.tells(lost)
		s.machine.Say("gpu 0 set temperature-0 55")
		s.shows("/gpus/gpu[gpu0]/state/temperature", uint64(55))
		stop()
		s.machine.Unsay("gpu 0 set temperature-0 55")
		if got := s.told(); len(got) != 1 {
			t.Fatalf("told: %q", got)
		}
		// Killed before the journal's answer was kept.
		if err := os.WriteFile(s.state, killed, 0o600); err != nil {
			t.Fatal(err)
		}
		s.tree = target.NewTree()
	}
	if err := os.Remove(s.state); err != nil {
		t.Fatal(err)
	}
	s.cfg.GPUs = 2 // nothing is known but that they should be there
	stop = s.run()
	defer stop()
	waittest.For(t, "it is not told anew", func() bool { return len(s.told()) == 2 })
}

func TestProcessesComeAndGo(t *testing.T) {
	s := newServer(t, 1)
	s.machine.Say("gpu 0 process 1 100")
	s.machine.Say("gpu 0 process 4000000 200")
	stop := s.run()
	defer stop()
	s.shows("/gpus/gpu[gpu0]/process[1]/state/memory", uint64(100))
	s.shows("/gpus/gpu[gpu0]/process[4000000]/state/memory", uint64(200))
	s.machine.Unsay("gpu 0 process 1 100")
	s.shows("/gpus/gpu[gpu0]/process[1]/state/memory", nil)
	s.shows("/gpus/gpu[gpu0]/state/processes", uint64(1))
}
