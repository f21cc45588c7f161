package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygot/ygot"
	"github.com/openconfig/ygot/ytypes"
	"go.uber.org/goleak"

	"auspex/internal/target"
	"auspex/schemas/yang"
	"auspex/schemas/yang/agentmodel"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
} // of ytypes

// server is a recorded server below a folder, and its reader.
type server struct {
	t    testing.TB
	root string
	log  *sayings
	tree *target.Tree
	host *Host
}

// sayings are the lines of a log.
type sayings struct {
	mu    sync.Mutex
	lines []string
}

func (s *sayings) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(b))
	return len(b), nil
}

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, root: t.TempDir(), log: &sayings{}, tree: target.NewTree()}
	cfg := Default()
	cfg.Sys, cfg.Proc, cfg.Run, cfg.Dev = s.path("sys"), s.path("proc"), s.path("run"), s.path("dev")
	s.host = New(cfg, s.tree, slog.New(slog.NewTextHandler(s.log, nil)))
	t.Cleanup(func() {
		for _, r := range s.host.runners {
			r.machine.close()
			if n := len(r.machine.open); n > 0 {
				t.Errorf("%s leaves %d files open", r.name, n)
			}
		}
	})
	return s
}

func (s *server) path(name string) string { return filepath.Join(s.root, name) }

// put writes files by their paths below the root.
func (s *server) put(files map[string]string) {
	s.t.Helper()
	for name, content := range files {
		path := s.path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(to, path); err != nil {
				s.t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *server) remove(name string) {
	s.t.Helper()
	if err := os.RemoveAll(s.path(name)); err != nil {
		s.t.Fatal(err)
	}
}

// read reads all sources once.
func (s *server) read() {
	for _, r := range s.host.runners {
		s.host.reading(r)
	}
}

// source returns the source of a name.
func (s *server) source(name string) source {
	for _, r := range s.host.runners {
		if r.name == name {
			return r.source
		}
	}
	s.t.Fatalf("no source %s", name)
	return nil
}

// told returns every leaf by its path, and fails where the modules do not have it so.
func (s *server) told() map[string]string {
	s.t.Helper()
	cfg := target.DefaultConfig()
	cfg.Access.Anonymous = true
	srv, err := target.NewServer(s.tree, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := srv.Get(context.Background(), &gpb.GetRequest{Encoding: gpb.Encoding_PROTO})
	if err != nil {
		s.t.Fatal(err)
	}
	schema, err := agentmodel.Schema()
	if err != nil {
		s.t.Fatal(err)
	}
	root := schema.Root.(*agentmodel.Device)
	out := map[string]string{}
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			path, err := ygot.PathToString(u.GetPath())
			if err != nil {
				s.t.Fatal(err)
			}
			out[path] = plainValue(u.GetVal())
			if err := ytypes.SetNode(schema.RootSchema(), root, u.GetPath(), u.GetVal(), &ytypes.InitMissingElements{}); err != nil {
				s.t.Errorf("%s = %s: %v", path, u.GetVal(), err)
			}
		}
	}
	if err := root.ΛValidate(); err != nil {
		s.t.Error(err)
	}
	return out
}

func plainValue(v *gpb.TypedValue) string {
	switch x := v.GetValue().(type) {
	case *gpb.TypedValue_UintVal:
		return strconv.FormatUint(x.UintVal, 10)
	case *gpb.TypedValue_DoubleVal:
		return fmt.Sprint(x.DoubleVal)
	case *gpb.TypedValue_BoolVal:
		return strconv.FormatBool(x.BoolVal)
	case *gpb.TypedValue_StringVal:
		return x.StringVal
	}
	return v.String()
}

// below keeps what is told below a path, without it.
func below(told map[string]string, path string) map[string]string {
	out := map[string]string{}
	for name, v := range told {
		if rest, ok := strings.CutPrefix(name, path); ok {
			out[rest] = v
		}
	}
	return out
}

func (s *server) unreadable() string { return s.told()["/host/state/unreadable"] }

// calm is a server that has nothing but what every Linux has.
func (s *server) calm() {
	s.put(map[string]string{
		"proc/pressure/cpu":    "some avg10=1.50 avg60=0.20 avg300=0.10 total=6421478927\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"proc/pressure/memory": "some avg10=12.34 avg60=0.00 avg300=0.01 total=216838160\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=139374932\n",
		"proc/pressure/io":     "some avg10=100.00 avg60=7.00 avg300=0.00 total=5\nfull avg10=99.99 avg60=0.00 avg300=0.00 total=4\n",

		"proc/sys/kernel/random/boot_id": "3b54ba4f-0c6e-44ce-a7a8-0b3a3c5f8e11\n",
		"proc/sys/kernel/osrelease":      "5.15.0-1053-nvidia\n",
		"proc/uptime":                    "350735.47 234388.90\n",
	})
	s.source("services").(*services).ask = func(context.Context, []string) ([]unit, error) { return nil, nil }
}

func TestPressureAndSystemAreTold(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.put(map[string]string{
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs-builder@U22)\nGCC version:  gcc version 12.3.0\n",
	})
	s.read()
	want := map[string]string{
		"pressure/cpu/state/some":    "0.015",
		"pressure/memory/state/some": "0.1234", "pressure/memory/state/full": "0.03",
		"pressure/io/state/some": "1", "pressure/io/state/full": "0.9998999999999999",
		"state/boot-id": "3b54ba4f-0c6e-44ce-a7a8-0b3a3c5f8e11", "state/kernel-version": "5.15.0-1053-nvidia",
		"state/nvidia-driver-version": "580.82.07", "state/uptime": "350735", "state/malformed": "0",
		"services/state/failed": "0",
	}
	if diff := cmp.Diff(want, below(s.told(), "/host/")); diff != "" {
		t.Error(diff)
	}
	if len(s.log.lines) > 0 {
		t.Error(s.log.lines)
	}
}

func TestDriverVersionOfEitherModule(t *testing.T) {
	for line, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024": "550.54.15",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build":       "580.82.07",
		"NVRM version: NVIDIA UNIX aarch64 Kernel Module  470.57.02  Tue Jul 13 16:06:24 2021":    "470.57.02",
		"nothing of that kind": "",
		"":                     "",
	} {
		var v value
		err := driver(&v, []byte(line))
		if (err == nil) != (want != "") || v.s != want {
			t.Errorf("%q: %q, %v", line, v.s, err)
		}
	}
}

func TestGarbageIsCountedNamedAndSaidOnce(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.put(map[string]string{"proc/pressure/io": "some avg10=lots\n", "proc/pressure/memory": "\x00\xff\xfe", "proc/uptime": strings.Repeat("9", 1<<20)})
	for range 3 {
		s.read()
	}
	told := s.told()
	text := told["/host/state/unreadable"]
	for _, part := range []string{"pressure: ", "proc/pressure/memory", "(and 1 more)", "; ", "system: ", "proc/uptime", "longer than 4096 bytes"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
	if told["/host/state/malformed"] != "9" {
		t.Errorf("malformed %s", told["/host/state/malformed"])
	}
	if len(s.log.lines) != 2 {
		t.Errorf("logged %q", s.log.lines)
	}
	if told["/host/pressure/cpu/state/some"] != "0.015" {
		t.Error("what is whole is not told")
	}
	if _, ok := told["/host/pressure/io/state/some"]; ok {
		t.Error("garbage is told")
	}
	s.calm()
	s.read()
	if text := s.unreadable(); text != "" {
		t.Errorf("still told: %s", text)
	}
}

func TestAKernelWithoutPressureIsSaid(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.remove("proc/pressure")
	s.read()
	if text := s.unreadable(); !strings.Contains(text, "no pressure stall information") {
		t.Error(text)
	}
}

func TestFilesWithoutRightsAreSaid(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	s := newServer(t)
	s.calm()
	if err := os.Chmod(s.path("proc/pressure/io"), 0); err != nil {
		t.Fatal(err)
	}
	s.read()
	if text := s.unreadable(); !strings.Contains(text, "permission denied") || !strings.Contains(text, "proc/pressure/io") {
		t.Error(text)
	}
}

func TestRefusalsOfTheKernelAreTold(t *testing.T) {
	for _, err := range []error{fs.ErrPermission, errors.New("input/output error")} {
		if absent(err) {
			t.Errorf("%v is taken for nothing there", err)
		}
	}
}

// stubborn is a source that fails, or does not return.
type stubborn struct{ do func() }

func (s *stubborn) read(time.Time) { s.do() }

func TestASourceThatDoesNotReturnIsToldAndCostsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.calm()
		release := make(chan struct{})
		for _, r := range s.host.runners {
			switch r.name {
			case "disks":
				r.source = &stubborn{func() { <-release }}
			case "infiniband":
				r.source = &stubborn{func() { panic("a bug") }}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.host.Run(ctx); close(done) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		text := s.unreadable()
		if !strings.Contains(text, "disks: a reading does not return") || !strings.Contains(text, "infiniband: it failed") {
			t.Errorf("told %q", text)
		}
		s.put(map[string]string{"proc/uptime": "360000.01 1.00\n"})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if up := s.told()["/host/state/uptime"]; up != "360000" {
			t.Errorf("uptime %s: other sources are not read", up)
		}
		close(release)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if text := s.unreadable(); strings.Contains(text, "disks") {
			t.Errorf("still told: %s", text)
		}
		cancel()
		<-done
	})
}

func TestThisMachineIsRead(t *testing.T) {
	tree, log := target.NewTree(), &sayings{}
	s := &server{t: t, tree: tree, log: log, host: New(Default(), tree, slog.New(slog.NewTextHandler(log, nil)))}
	s.read()
	s.read()
	told := s.told()
	if told["/host/state/kernel-version"] == "" || told["/host/state/uptime"] == "" || told["/host/state/malformed"] != "0" {
		t.Errorf("told %v", below(told, "/host/state/"))
	}
	for _, r := range s.host.runners {
		r.machine.close()
	}
	t.Logf("%d leaves; unreadable: %q", len(told), told["/host/state/unreadable"])
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"interval":    func(c *Config) { c.Interval = time.Millisecond },
		"sys":         func(c *Config) { c.Sys = "" },
		"services[1]": func(c *Config) { c.Services = []string{"slurmd", "../etc"} },
		"at most":     func(c *Config) { c.Services = make([]string, maxServices+1) },
	} {
		c := Default()
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEveryLeafOfTheModuleIsWritten reads a server that has everything.
func TestEveryLeafOfTheModuleIsWritten(t *testing.T) {
	s := newServer(t)
	s.calm()
	s.fleetServer()
	s.put(map[string]string{"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar\n"})
	s.lldpd("cat " + recordedLLDP(t) + "\n")
	s.source("services").(*services).ask = func(context.Context, []string) ([]unit, error) {
		return []unit{{Name: "slurmd.service", Active: "active", Sub: "running", Result: "success", known: true}}, nil
	}
	s.host.runners = append(s.host.runners, &runner{name: "broken", machine: newMachine(&s.host.cfg, s.tree), source: &stubborn{func() {}}})
	s.host.runners[len(s.host.runners)-1].fault = "on purpose"
	s.read()
	s.host.runners[len(s.host.runners)-1].fault = "on purpose"
	s.host.tell()
	written := map[string]bool{}
	for path := range s.told() {
		p, err := target.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := ygot.PathToSchemaPath(p)
		if err != nil {
			t.Fatal(err)
		}
		written[name] = true
		if _, ok := yang.Leaves[name]; !ok {
			t.Errorf("%s is in no module", name)
		}
	}
	for name := range yang.Leaves {
		if strings.HasPrefix(name, "/host/") && !strings.HasPrefix(name, "/host/kernel-log/") && !strings.HasPrefix(name, "/host/fabric-manager-log/") && !strings.HasPrefix(name, "/host/imex-log/") && !written[name] {
			t.Errorf("%s is in the module and never written", name)
		}
	}
}
