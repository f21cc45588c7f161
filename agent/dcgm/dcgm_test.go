package dcgm

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"

	"auspex/agent/journal"
	"auspex/internal/decode/gpuwatch"
	"auspex/internal/target"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// folder outlives each test.
var folder string

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Verb { // this binary is its own child
		os.Exit(Main(os.Stdin, os.Stdout))
	}
	var err error
	if folder, err = os.MkdirTemp("", "auspex-dcgm"); err != nil {
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

// server is a server with a reader of what DCGM tells, whose GPUs are numbered.
type server struct {
	t      *testing.T
	cfg    Config
	tree   *target.Tree
	state  string
	boards map[uint32]gpuwatch.Board
	log    *strings.Builder
	xids   bool // somebody else tells XIDs
	users  map[uint32][]string

	mu     sync.Mutex
	events []schemas.Event
	mark   journal.Mark
}

func newServer(t *testing.T, gpus int) *server {
	t.Helper()
	s := &server{
		t: t, cfg: Default(), tree: target.NewTree(), state: filepath.Join(t.TempDir(), "dcgm.json"), boards: map[uint32]gpuwatch.Board{},
		xids: true, log: &strings.Builder{},
	}
	for i := range uint32(gpus) { // those of the stub
		s.boards[i] = gpuwatch.Board{UUID: fmt.Sprintf("GPU-5f1c6d1e-0000-4a3b-8c11-%012x", i), PCI: fmt.Sprintf("0000:%02x:00.0", 0x1b+0x11*i)}
	}
	s.cfg.Interval, s.cfg.Deadline = 50*time.Millisecond, 5*time.Second
	return s
}

func (s *server) reader() *Reader {
	r := New(s.cfg, Needs{
		Journal: s, Tree: s.tree, Log: slog.New(slog.NewTextHandler(s, nil)), State: s.state, Boot: "boot",
		Boards: func() map[uint32]gpuwatch.Board { return s.boards },
		XIDs:   func() bool { return s.xids }, Users: func(n uint32) []string { return s.users[n] },
	})
	r.first, r.look = 50*time.Millisecond, 0
	return r
}

// Write takes lines of the log.
func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

func (s *server) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// Append implements [Journal].
func (s *server) Append(r target.Record, from string, mark journal.Mark) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ev schemas.Event
	err := json.Unmarshal([]byte(r.Data), &ev)
	if err != nil || r.Kind != journal.KindEvent || r.Boot != "boot" || from != "dcgm" || ev.Source != schemas.SourceDCGM {
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
		words := fmt.Sprint(ev.Type, " ", ev.Code, " ", ev.State, " ", ev.Severity, " ", ev.Attr("part"))
		out = append(out, strings.Join(strings.Fields(words), " "))
	}
	return out
}

// leaves are what the tree tells.
func (s *server) leaves() map[string]string {
	cfg := target.DefaultConfig()
	cfg.Access.Anonymous = true
	srv, err := target.NewServer(s.tree, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	res, err := srv.Get(s.t.Context(), &gpb.GetRequest{Encoding: gpb.Encoding_ASCII})
	if err != nil {
		return out
	}
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			e := u.GetPath().GetElem()
			name := e[len(e)-1].GetName()
			if gpu := e[1].GetKey()["name"]; gpu != "" {
				name = gpu + " " + name
			}
			out[name] = u.GetVal().GetAsciiVal()
		}
	}
	return out
}

func (s *server) shows(leaf, want string) {
	s.t.Helper()
	waittest.Until(s.t, func() error {
		if got := s.leaves()[leaf]; !strings.Contains(got, want) || want == "" && got != "" {
			return fmt.Errorf("%s is %q, want %q; %s", leaf, got, want, s.logged())
		}
		return nil
	})
}

// read runs a reader until the returned function is called.
func read(t *testing.T, r *Reader) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		t.Helper()
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Error("the reader does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// What health watches find is a condition of the type that means the same fault, and is shown either way.
func TestIncidentsAreConditionsOfTheTypesInUse(t *testing.T) {
	for name, c := range map[string]struct {
		incident incident
		event    string // that is raised; empty is none
		shown    string
	}{
		"an error of PCIe": {
			incident{Group: 1, Entity: 0, Code: 3},
			"gpu.pcie_replay PCI_REPLAY_RATE raised warning gpu1", "PCI_REPLAY_RATE",
		},
		"a link that is down": {
			incident{Group: 1, Entity: 1, Code: 14, Failed: true},
			"gpu.nvlink_errors NVLINK_DOWN raised error gpu0", "NVLINK_DOWN",
		},
		"a link is its GPU's": {
			incident{Group: 6, Entity: 1 | 7<<8 | 1<<24, Code: 71, Failed: true},
			"gpu.nvlink_errors NVLINK_ERROR_CRITICAL raised error gpu0", "link 7: ",
		},
		"heat": {
			incident{Group: 1, Entity: 0, Code: 10},
			"gpu.thermal CLOCKS_EVENT_THERMAL raised warning gpu1", "THERMAL",
		},
		"power that load draws is no fault": {
			incident{Group: 1, Entity: 0, Code: 12},
			"gpu.power CLOCKS_EVENT_POWER raised info gpu1", "POWER",
		},
		"a row that is not remapped": {
			incident{Group: 1, Entity: 0, Code: 80, Failed: true},
			"gpu.row_remap ROW_REMAP_FAILURE raised error gpu1", "ROW_REMAP",
		},
		"NVML has uncorrected errors": {
			incident{Group: 1, Entity: 0, Code: 4, Failed: true},
			"", "VOLATILE_DBE_DETECTED",
		},
		"the kernel has XIDs": {
			incident{Group: 1, Entity: 0, Code: 101, Failed: true},
			"", "XID_ERROR",
		},
		"what is none of the types has its code": {
			incident{Group: 1, Entity: 0, Code: 9, Failed: true},
			"gpu.health CORRUPT_INFOROM raised error gpu1", "INFOROM",
		},
		"a code of a newer DCGM": {
			incident{Group: 1, Entity: 0, Code: 4711},
			"gpu.health 4711 raised warning gpu1", "4711",
		},
		"a switch": {
			incident{Group: 3, Entity: 2, Code: 15, Failed: true},
			"gpu.health NVSWITCH_FATAL_ERROR raised error", "",
		},
		"a part that nobody has heard of": {
			incident{Group: 77, Entity: 2, Code: 2},
			"gpu.health 2 raised warning", "",
		},
		"a GPU that has no number is not guessed": {
			incident{Group: 1, Entity: 9, Code: 3},
			"", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 2)
			r := s.reader()
			r.Load(0)
			r.boards = []board{{0, s.boards[1].UUID, ""}, {1, "", "00000000:1B:00.0"}, {9, "GPU-x", ""}} // by UUID, and by address
			now := time.Now()
			c.incident.Message = "Said\nso."
			r.tell(&reading{Checked: true}, now)
			for range 3 {
				r.tell(&reading{Checked: true, Incidents: []incident{c.incident}}, now)
			}
			shown := s.leaves()
			if got := shown["no-number"]; got != "GPU 9 of DCGM (GPU-x, ) is none that NVML tells" {
				t.Errorf("no-number is %q", got)
			}
			all := shown["gpu0 incidents"] + shown["gpu1 incidents"] + shown["incidents"]
			if !strings.Contains(all, c.shown) || c.shown != "" && !strings.Contains(all, "Said so.") {
				t.Errorf("shown: %q", all)
			}
			r.tell(&reading{NoHealth: "it is not told"}, now.Add(2*hold)) // nobody knows
			r.Settled()
			var want []string
			if c.event != "" {
				want = []string{c.event}
			}
			if got := s.told(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			r = s.reader() // what was raised is cleared by the next run
			r.Load(0)
			r.remember()
			r.boards = []board{{0, s.boards[1].UUID, ""}, {1, "", "00000000:1B:00.0"}}
			r.tell(&reading{Checked: true}, time.Now())
			r.tell(&reading{Checked: true}, time.Now().Add(2*hold))
			r.Settled()
			if c.event != "" {
				f := strings.Fields(c.event)
				part := strings.Join(append([]string{""}, f[4:]...), " ")
				want = append(want, f[0]+" cleared info"+part)
			}
			if got := s.told(); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// One type has one condition on a GPU: its end is told when all of its causes have ended, and a worse one is told anew.
func TestConditionsOfATypeAreOne(t *testing.T) {
	s := newServer(t, 1)
	r := s.reader()
	r.Load(0)
	r.boards = []board{{0, s.boards[0].UUID, ""}}
	now := time.Now()
	slow, down := incident{Group: 1, Code: 13}, incident{Group: 1, Code: 14, Failed: true}
	for _, step := range []struct {
		after time.Duration
		found []incident
		level string
	}{
		{0, []incident{slow}, "1"},
		{time.Second, []incident{slow, down}, "2"},
		{hold, []incident{slow}, "1"},
		{2 * hold, []incident{slow}, "1"},
		{2*hold + time.Second, nil, "0"}, // for less than the hold
		{2*hold + 2*time.Second, []incident{slow}, "1"},
		{4 * hold, nil, "0"},
	} {
		r.tell(&reading{Checked: true, Incidents: step.found}, now.Add(step.after))
		if got := s.leaves()["gpu0 health"]; got != step.level {
			t.Errorf("after %s: level %s, want %s", step.after, got, step.level)
		}
	}
	r.Settled()
	want := []string{
		"gpu.nvlink_errors NVLINK_ERROR_THRESHOLD raised warning gpu0", "gpu.nvlink_errors NVLINK_ERROR_THRESHOLD cleared info gpu0",
		"gpu.nvlink_errors NVLINK_DOWN raised error gpu0", "gpu.nvlink_errors NVLINK_ERROR_THRESHOLD cleared info gpu0",
	}
	if got := s.told(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestViolationsAreEvents(t *testing.T) {
	for name, c := range map[string]struct {
		v     violation
		alone bool // nobody else tells XIDs
		want  string
		says  string
	}{
		"uncorrected errors": {
			violation{Condition: onDBE, Location: "Device", Value: 3},
			false, "gpu.ecc_ue DRAM critical gpu0", "uncorrected errors of memory: 0 to 3",
		},
		"in a cache": {
			violation{Condition: onDBE, Location: "L2", Value: 1},
			false, "gpu.ecc_ue L2 critical gpu0", "0 to 1",
		},
		"PCIe": {
			violation{Condition: onPCIe, Value: 41},
			false, "gpu.pcie_replay replay info gpu0", "replays on PCIe: 0 to 41",
		},
		"retired pages": {
			violation{Condition: onRetired, Value: 12, Other: 2},
			false, "gpu.row_remap RETIRED_PAGES warning gpu0", "2 of them for uncorrected errors: 0 to 12",
		},
		"a link that had to recover": {
			violation{Condition: onNVLink, Value: 1, Other: 439},
			false, "gpu.nvlink_errors FIELD_439 warning gpu0", "0 to 1",
		},
		"NVLink": {
			violation{Condition: onNVLink, Value: 5, Other: 409},
			false, "gpu.nvlink_errors FIELD_409 info gpu0", "errors of NVLinks: 0 to 5",
		},
		"heat": {
			violation{Condition: onThermal, Value: 101},
			false, "gpu.thermal POLICY raised warning gpu0", "101 °C",
		},
		"power": {
			violation{Condition: onPower, Value: 720},
			false, "gpu.power POLICY raised warning gpu0", "720 W",
		},
		"an XID alone": {
			violation{Condition: onXID, Value: 79},
			true, "gpu.xid 79 critical gpu0", "XID 79",
		},
		"an XID that is told": {
			violation{Condition: onXID, Value: 79},
			false, "", "",
		},
		"a GPU without number": {
			violation{GPU: 5, Condition: onPCIe, Value: 1},
			false, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, 1)
			s.xids = !c.alone
			r := s.reader()
			r.Load(0)
			r.boards = []board{{0, s.boards[0].UUID, ""}}
			c.v.Time, r.since = time.Now().Add(-time.Second), time.Now().Add(-time.Second)
			for range 3 { // the hostengine tells it again and again
				r.violated(&c.v, time.Now())
			}
			r.Settled()
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			if got := s.told(); !slices.Equal(got, want) || c.want != "" && !strings.Contains(s.events[0].Message, c.says) {
				t.Errorf("%q, want %q; %+v", got, want, s.events)
			}
			if got := s.leaves()["violations"]; got != "3" {
				t.Errorf("%s violations", got)
			}
		})
	}
}

// What a counter was before anybody looked is no event of now, and what it was at a restart is known.
func TestViolationsOfBeforeAreNoEvents(t *testing.T) {
	s := newServer(t, 1)
	again := func() *Reader {
		r := s.reader()
		r.look = look
		r.Load(0)
		r.boards, r.since = []board{{0, s.boards[0].UUID, ""}}, time.Now()
		return r
	}
	violate := func(r *Reader, value uint, after time.Duration) {
		r.violated(&violation{Condition: onPCIe, Value: value}, r.since.Add(after))
		r.violated(&violation{Condition: onNVLink, Value: value, Other: 439}, r.since.Add(after+2*look)) // there was none for long
		r.Settled()
	}
	r := again()
	violate(r, 4, time.Second)
	violate(r, 5, 2*time.Second)
	r = again()
	violate(r, 5, time.Second)
	violate(r, 2, time.Second) // the driver was loaded anew
	violate(r, 3, time.Second)
	pcie, link := "gpu.pcie_replay replay info gpu0", "gpu.nvlink_errors FIELD_439 warning gpu0"
	if got, want := s.told(), []string{link, pcie, link, pcie, link}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMistakesOfConfigurationAreNamed(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                        func(*Config) {},
		"library":                 func(c *Config) { c.Library = "" },
		"address":                 func(c *Config) { c.Address = "nowhere" },
		"interval":                func(c *Config) { c.Interval = 0 },
		"deadline":                func(c *Config) { c.Deadline = time.Millisecond },
		"a disabled one has none": func(c *Config) { *c = Config{Disabled: true} },
	} {
		c := Default()
		change(&c)
		err := c.Validate()
		if !strings.Contains(fmt.Sprint(err), want) && !(err == nil && strings.Contains(want, "none")) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, address := range []string{"localhost:5555", "/tmp/nv-hostengine", "unix:///run/nv-hostengine"} {
		c := Default()
		c.Address = address
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// A build that cannot call the library says so, and nothing else.
func TestABuildWithoutTheLibrarySaysSo(t *testing.T) {
	s := newServer(t, 1)
	r := s.reader()
	if built == "" {
		r.needs.Boards = nil
	}
	read(t, r)
	want := built
	if want == "" {
		want = "nvml is disabled"
	}
	s.shows("error", want)
	if _, err := r.Diagnose(t.Context(), 1, []uint32{0}); err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
}
