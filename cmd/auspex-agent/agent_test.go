package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openconfig/gnmic/pkg/api"
	gnmic "github.com/openconfig/gnmic/pkg/api/target"
	"github.com/openconfig/gnoi/healthz"
	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	dcgm "auspex/agent/dcgm/stub"
	"auspex/agent/nvml/stub"
	"auspex/collectors"
	"auspex/collectors/agent"
	"auspex/collectors/collectortest"
	"auspex/internal/certtest"
	"auspex/internal/target"
	"auspex/internal/trust"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// folder holds the binaries.
var folder string

// own is the address of loopback at which agents listen. One that was killed listens at its port
// again: at 127.0.0.1 any connection of any process may have been given that port meanwhile.
const own = "127.0.0.2"

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "auspex-agent"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(folder)
		os.Exit(code)
	}))
}

// plain and full are the binary without cgo, and with it.
var plain, full = sync.OnceValues(built("0")), sync.OnceValues(built("1"))

// given names a binary that is tried instead, where there is no compiler.
const given = "AUSPEX_HARDWARE_AGENT"

func built(cgo string) func() (string, error) {
	return func() (string, error) {
		if path := os.Getenv(given); path != "" {
			return path, nil
		}
		out := filepath.Join(folder, "auspex-agent-"+cgo)
		cmd := exec.Command("go", "build", "-tags", "dcgm", "-o", out, ".") // without cgo the tag has nothing
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		if msg, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, msg)
		}
		return out, nil
	}
}

// server is a machine with an agent of the real binary: its kernel log is a file.
type server struct {
	t      *testing.T
	binary string
	env    []string // of the agent, beside the test's own
	dir    string
	auth   *certtest.Authority
	cert   certtest.Leaf
	addr   string
	cmd    *exec.Cmd
	seq    int
	found  *findings // what control keeps
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), auth: certtest.New(t)}
	s.use(plain)
	s.cert = s.auth.Issue(t, time.Now().Add(time.Hour), "127.0.0.1", own)
	s.write("kmsg", "")
	s.write("boot", "3f0c1a52-6f1e-4a1a-9d2b-0123456789ab\n")
	s.write("agent.yaml", fmt.Sprintf(`
data: %[1]s/data
listen: %[5]s:0
tls: {cert_file: %[2]s, key_file: %[3]s, client_ca_file: %[4]s}
kernel: {path: %[1]s/kmsg, boot_id_file: %[1]s/boot, poll_interval: 5ms}
target: {min_sample: 100ms}
`, s.dir, s.cert.CertFile, s.cert.KeyFile, s.auth.File, own))
	t.Cleanup(s.kill)
	return s
}

func (s *server) use(build func() (string, error)) {
	s.t.Helper()
	var err error
	if s.binary, err = build(); err != nil {
		s.t.Fatal(err)
	}
}

// configure adds to the agent's configuration.
func (s *server) configure(format string, args ...any) {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "agent.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("agent.yaml", string(b)+fmt.Sprintf(format, args...))
}

// script writes a program.
func (s *server) script(name, text string) {
	s.t.Helper()
	s.write(name, "#!/bin/sh\n"+text)
	if err := os.Chmod(filepath.Join(s.dir, name), 0o700); err != nil { //nolint:gosec // to be run
		s.t.Fatal(err)
	}
}

// gpus gives the server GPUs, and a driver of now or of 2018.
func (s *server) gpus(n int, old bool) *stub.Machine {
	s.t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		s.t.Skip("gcc is missing, which compiles a library in NVML's place")
	}
	s.use(full)
	library, err := stub.Compile(s.dir, old)
	if err != nil {
		s.t.Fatal(err)
	}
	s.configure("nvml: {library: %s, interval: 100ms, deadline: 500ms}\n", library)
	s.env = append(s.env, stub.Env+"="+filepath.Join(s.dir, "machine"))
	return stub.New(filepath.Join(s.dir, "machine"), n)
}

func (s *server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// start starts the agent, at the address that it had before.
func (s *server) start() {
	s.t.Helper()
	args := []string{"--config", filepath.Join(s.dir, "agent.yaml")}
	if s.addr != "" && s.addr != schemas.AgentDialsIn {
		args = append(args, "--listen", s.addr)
	}
	s.cmd = exec.Command(s.binary, args...) //nolint:gosec // its own path
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ok {
		s.t.Fatalf("agent said %q: %v", line, err)
	}
	if s.addr != schemas.AgentDialsIn {
		s.addr = addr
	}
}

func (s *server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

const fallen = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

// log writes lines as the kernel does.
func (s *server) log(n int) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, "kmsg"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for range n {
		if _, err := fmt.Fprintf(f, "3,%d,%d,-;%s\n", s.seq, s.seq*1000, fallen); err != nil {
			s.t.Fatal(err)
		}
		s.seq++
	}
}

// collect runs the collector until the returned function is called.
func (s *server) collect(settings collectors.Settings, rec *collectortest.Recorder) (stop func()) {
	s.t.Helper()
	cfg := agent.Default()
	cfg.SampleInterval = 100 * time.Millisecond
	cfg.TLS.CAFile, cfg.TLS.CertFile, cfg.TLS.KeyFile = s.auth.File, s.cert.CertFile, s.cert.KeyFile
	c, err := cfg.New(schemas.Resource{
		ID: "gpu-r01-01", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrAgentAddress: s.addr}),
	}, settings)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := c.Run(ctx, rec); err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

func numbers(rec *collectortest.Recorder) map[string]int {
	out := map[string]int{}
	for _, ev := range rec.Events() {
		out[ev.Attr("sequence")+" "+ev.ID]++
	}
	return out
}

func TestALineOfTheKernelBecomesAnEvent(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	rec, settings := collectortest.NewRecorder(), collectortest.Settings()
	settings.Now = time.Now
	stop := s.collect(settings, rec)
	defer stop()
	s.log(1)
	waittest.For(t, "no event", func() bool { return len(rec.Events()) == 1 })
	ev := rec.Events()[0]
	if ev.Type != schemas.EventGPUXID || ev.Code != "79" || ev.Resource != "gpu-r01-01" || ev.Source != schemas.SourceKmsg {
		t.Errorf("event %+v", ev)
	}
	if want := schemas.EventID("gpu-r01-01", "3f0c1a52-6f1e-4a1a-9d2b-0123456789ab", "0", fallen); ev.ID != want {
		t.Errorf("id %s is not that of the same line read without an agent, %s", ev.ID, want)
	}
	// The end is clean, and in time, with a client connected.
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second { // 2 s on a machine with nothing else to do
		t.Errorf("it took %s to end", took)
	}
	s.cmd = nil
}

func TestEveryLineComesOnceOverAKill(t *testing.T) {
	t.Parallel()
	const lines = 1000
	s := newServer(t)
	s.start()
	rec, settings := collectortest.NewRecorder(), collectortest.Settings()
	settings.Now = time.Now
	stop := s.collect(settings, rec)
	defer stop()
	for s.seq < lines {
		s.log(10)
		if s.seq == 300 || s.seq == 700 {
			s.kill()
			s.log(50)
			s.start()
		}
	}
	waittest.Until(t, func() error {
		if n := len(numbers(rec)); n < lines {
			return fmt.Errorf("%d of %d lines", n, lines)
		}
		return nil
	})
	stop()
	seen := map[string]bool{}
	for key, n := range numbers(rec) {
		number, _, _ := strings.Cut(key, " ")
		if n != 1 || seen[number] {
			t.Errorf("line %s came more than once", number)
		}
		seen[number] = true
	}
	if len(seen) != lines {
		t.Errorf("%d lines, want %d", len(seen), lines)
	}
}

func TestGPUsComeThroughTheAgent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		old  bool
	}{{"a driver of now", false}, {"a driver of 2018", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			machine := s.gpus(8, c.old)
			machine.Say("gpu 5 set temperature-0 77")
			s.start()
			rec, settings := collectortest.NewRecorder(), collectortest.Settings()
			settings.Now = time.Now
			stop := s.collect(settings, rec)
			defer stop()
			has := func(words ...string) func() bool {
				return func() bool {
					return slices.ContainsFunc(rec.Lines(), func(line string) bool {
						return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
					})
				}
			}
			waittest.For(t, "no temperature", has(`"gpu_temp_celsius"`, `"part":"5"`, `"GPU-5f1c6d1e-0000-4a3b-8c11-000000000005"`, `"value":77`))
			waittest.For(t, "no ECC counter", has(`"ecc_dbe_volatile_total"`, `"part":"7"`, `"value":0`))
			waittest.For(t, "no free memory", has(`"fb_free_mib"`, `"part":"0"`))
			if got := has(`"total_energy_millijoules"`)(); got == c.old {
				t.Errorf("energy: %t", got)
			}
			machine.Say("gpu 3 gone")
			machine.Say("gpu 6 hang nvmlDeviceGetPowerUsage")
			waittest.For(t, "no missing GPU", has(`"gpu.missing"`, `"resource":"gpu-r01-01"`, `"source":"nvml"`, `"part":"gpu3"`, `"pci":"0000:4e:00.0"`))
			waittest.For(t, "no stalled GPU", has(`"gpu.stalled"`, `"part":"gpu6"`))
			if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil { // with a call under way
				t.Fatal(err)
			}
			if err := s.cmd.Wait(); err != nil {
				t.Errorf("after SIGTERM: %v", err)
			}
			s.cmd = nil
		})
	}
}

// What DCGM tells comes under the numbers that NVML's GPUs have, over a kill of the agent and of the hostengine; without
// a library the agent says so.
func TestDCGMComesThroughTheAgent(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.gpus(4, false)
	library, err := dcgm.Compile(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	s.configure("dcgm: {library: %s, interval: 100ms}\nallow: {validate: [certificate CN=test]}\n", library)
	machine := dcgm.New(filepath.Join(s.dir, "dcgm"), 4)
	s.env = append(s.env, dcgm.Env+"="+machine.Path())
	machine.Say("field 3 1002 0.75") // gpu0
	machine.Say("field 3 1003 0.5")
	machine.Say("incident 1 3 2 20 14 an NVLink is down")
	s.start()
	rec, settings := collectortest.NewRecorder(), collectortest.Settings()
	settings.Now = time.Now
	stop := s.collect(settings, rec)
	defer stop()
	has := func(words ...string) {
		t.Helper()
		waittest.For(t, fmt.Sprintf("no %q", words), func() bool {
			return slices.ContainsFunc(rec.Lines(), func(line string) bool {
				return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
			})
		})
	}
	has(`"sm_active_ratio"`, `"part":"0"`, `"value":0.75`)
	has(`"DCGM_FI_PROF_SM_OCCUPANCY"`, `"part":"gpu0"`, `"value":0.5`)
	has(`"gpu.nvlink_errors"`, `"source":"dcgm"`, `"part":"gpu0"`, `"state":"raised"`, `"pci":"0000:1b:00.0"`)
	s.kill()
	machine.Say("epoch 2")
	s.start()
	machine.Say("field 3 1006 0.25")
	has(`"DCGM_FI_PROF_PIPE_FP64_ACTIVE"`, `"part":"gpu0"`, `"value":0.25`)
	machine.Say("violate 1 0 0x2 41 0") // it may have been so before
	s.shows("/gpus/dcgm/state/violations", "1")
	machine.Say("violate 2 0 0x2 42 0")
	has(`"gpu.pcie_replay"`, `"part":"gpu3"`, `41 to 42`)
	raised := slices.DeleteFunc(rec.Events(), func(ev schemas.Event) bool { return ev.Type != schemas.EventGPUNVLinkErrors })
	if len(raised) != 1 {
		t.Errorf("it was raised %d times", len(raised))
	}
	machine.Say("test Memory_Bandwidth 1 0 3 it is too low")
	got, err := s.check("a", "2", &types.PathElem{Name: "gpus"}, &types.PathElem{Name: "gpu", Key: map[string]string{"name": "gpu3"}})
	if err != nil || got.GetStatus().GetStatus() != healthz.Status_STATUS_UNHEALTHY {
		t.Error(got, err)
	}
	s.shows("/gpus/gpu[name=gpu3]/validation/test[name=dcgm.memory-bandwidth]/state/message", "it is too low")
	machine.Say("hang dcgmHealthCheck")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil { // with a call under way
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	s.cmd = nil
}

// gnmic is gnmic's client, with the certificate.
func (s *server) gnmic() *gnmic.Target {
	s.t.Helper()
	c, err := api.NewTarget(api.Name("node"), api.Address(s.addr), api.TLSCA(s.auth.File), api.TLSCert(s.cert.CertFile), api.TLSKey(s.cert.KeyFile))
	if err != nil {
		s.t.Fatal(err)
	}
	c.Config.CipherSuites = []string{"TLS_AES_128_GCM_SHA256"} // without any it writes to a list that all clients share
	if err := c.CreateGNMIClient(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// A peer that is named may change settings; they outlive a kill and a driver.
func TestSettingsThroughTheAgent(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	s.start()
	limit := "/gpus/gpu[name=gpu1]/config/power-limit"
	set := func(c *gnmic.Target, opts ...api.GNMIOption) error {
		req, err := api.NewSetRequest(opts...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Set(t.Context(), req)
		return err
	}
	shows := func(c *gnmic.Target, path, want string) {
		t.Helper()
		req, err := api.NewGetRequest(api.Path(path), api.EncodingASCII())
		if err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, func() error {
			res, err := c.Get(t.Context(), req)
			if err != nil {
				return err
			}
			if got := res.GetNotification()[0].GetUpdate()[0].GetVal().GetAsciiVal(); got != want {
				return fmt.Errorf("%s is %s, want %s", path, got, want)
			}
			return nil
		})
	}
	c := s.gnmic()
	shows(c, "/gpus/gpu[name=gpu1]/state/power-limit-set", "700")
	err := set(c, api.Update(api.Path(limit), api.Value(500, "json_ietf")))
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "certificate CN=test may not change settings") {
		t.Fatal(err)
	}
	s.kill()
	s.configure("allow: {settings: [certificate CN=test]}\n")
	s.start()
	c = s.gnmic()
	shows(c, "/gpus/gpu[name=gpu1]/state/power-limit-set", "700")
	for value, want := range map[int]string{900: "900 W is outside of 200 to 700 W", 100: "100 W is outside"} {
		if err := set(c, api.Update(api.Path(limit), api.Value(value, "json_ietf"))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %s", value, err, want)
		}
	}
	if err := set(c, api.Update(api.Path(limit), api.Value(500, "json_ietf")), api.Update(api.Path("/gpus/gpu[name=gpu0]/config/persistence"), api.Value(false, "json"))); err != nil {
		t.Fatal(err)
	}
	s.kill()
	machine.Say("reload 1")
	s.start()
	c = s.gnmic()
	shows(c, limit, "500")
	shows(c, "/gpus/gpu[name=gpu1]/state/power-limit-set", "500")
	shows(c, "/gpus/gpu[name=gpu0]/state/persistence", "false")
}

// dial connects with the certificate.
func (s *server) dial() *grpc.ClientConn {
	s.t.Helper()
	files := trust.TLS{CAFile: s.auth.File, CertFile: s.cert.CertFile, KeyFile: s.cert.KeyFile}
	tc, err := files.Client()
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(credentials.NewTLS(tc)))
	if err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// A reset is done once, whatever happens to the agent; while it runs nobody has the GPUs open.
func TestAResetIsDoneOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(4, false)
	machine.Say("gpu 3 process 1 100")
	log := filepath.Join(s.dir, "resets")
	s.script("nvidia-smi", fmt.Sprintf("[ -e %[1]s.open ] && { echo GPU is in use by another client; exit 3; }\necho \"$@\" >>%[2]s\n[ -e %[1]s.fails ] && { echo Unable to reset; exit 1; }\nwhile [ -e %[1]s.slow ]; do sleep .01; done\necho All done.\n", machine.Path(), log))
	s.configure("allow: {reset: [certificate CN=test]}\nacts: {nvidia_smi: %s/nvidia-smi}\n", s.dir)
	s.start()
	reset := func(id string, gpus ...int) error {
		t.Helper()
		conn := s.dial()
		defer func() { _ = conn.Close() }()
		req := &system.RebootRequest{Method: system.RebootMethod_COLD, Message: id}
		for _, n := range gpus {
			req.Subcomponents = append(req.Subcomponents, &types.Path{Elem: []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": fmt.Sprintf("gpu%d", n)}}}})
		}
		_, err := system.NewSystemClient(conn).Reboot(t.Context(), req)
		return err
	}
	resets := func() string {
		b, _ := os.ReadFile(log)
		return string(b)
	}
	waittest.For(t, "no GPU is read", func() bool {
		return status.Code(reset("a", 3)) == codes.FailedPrecondition && strings.Contains(fmt.Sprint(reset("a", 3)), "gpu3 is in use by")
	})
	for want, err := range map[string]error{"may not do that": reset("b"), "needs an id": reset("", 1), "gpu9 is not there": reset("c", 9)} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := reset("d", 1); err != nil {
		t.Fatal(err)
	}
	if err := reset("d", 1); err != nil { // again
		t.Fatal(err)
	}
	if err := reset("d", 2); status.Code(err) != codes.AlreadyExists {
		t.Error(err)
	}
	if got := resets(); got != "--gpu-reset -i 0000:2c:00.0\n" {
		t.Fatalf("resets: %q", got)
	}
	s.write("machine.slow", "")
	go func() { _ = reset("e", 0, 2) }()
	waittest.For(t, "no second reset", func() bool { return strings.Count(resets(), "\n") == 2 })
	s.kill()
	if err := os.Remove(machine.Path() + ".slow"); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(machine.Path() + ".open")
	s.start()
	if err := reset("e", 0, 2); status.Code(err) != codes.Unknown || strings.Count(resets(), "\n") != 2 {
		t.Errorf("%v; resets: %q", err, resets())
	}
	waittest.For(t, "no third reset", func() bool { return reset("f", 0, 2) == nil })
	s.write("machine.fails", "")
	if err := reset("g", 1); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "Unable to reset") {
		t.Error(err)
	}
	if got := strings.Count(resets(), "\n"); got != 4 {
		t.Errorf("resets: %q", resets())
	}
}

// A driver is loaded anew once, whatever happens to the agent; where that is killed meanwhile, the
// next one brings back what was taken away.
func TestADriverIsLoadedAnewOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	machine.Say("gpu 1 process 1 100")
	s.driverWith(fmt.Sprintf(`[ -e %[1]s.open ] && { echo Module nvidia is in use; exit 1; }
echo unloads >>%[2]s/did
: >%[2]s/proc/modules
while [ -e %[2]s/slow ]; do sleep .01; done
`, machine.Path(), s.dir))
	s.script("systemctl", fmt.Sprintf("echo $1 $2 >>%[1]s/units\n[ $1 = is-active ] && [ $3 != nvidia-fabricmanager ] && exit 3\nexit 0\n", s.dir))
	s.script("modprobe", fmt.Sprintf("echo loads >>%[1]s/did\necho 'nvidia 1 0 - Live 0x0' >%[1]s/proc/modules\n", s.dir))
	s.configure(`allow: {reload: [certificate CN=test]}
acts: {driver: {systemctl: %[1]s/systemctl, unload: %[1]s/rmmod, load: %[1]s/modprobe, proc: %[1]s/proc, units: [dcgm, nvidia-fabricmanager]}}
`, s.dir)
	s.start()
	reload := func(id string) error {
		t.Helper()
		conn := s.dial()
		defer func() { _ = conn.Close() }()
		_, err := system.NewSystemClient(conn).Reboot(t.Context(), &system.RebootRequest{
			Method: system.RebootMethod_COLD, Message: id, Subcomponents: []*types.Path{{Elem: []*types.PathElem{{Name: "gpus"}}}},
		})
		return err
	}
	did := func() string {
		b, _ := os.ReadFile(filepath.Join(s.dir, "did"))
		return strings.ReplaceAll(string(b), "\n", " ")
	}
	waittest.For(t, "no GPU is read", func() bool { return strings.Contains(fmt.Sprint(reload("a")), "gpu1 is in use by") })
	machine.Unsay("gpu 1 process 1 100")
	waittest.Until(t, func() error { return reload("b") })
	if err := reload("b"); err != nil { // again
		t.Error(err)
	}
	if got := did(); got != "unloads loads " {
		t.Errorf("did %q", got)
	}
	s.reads()
	s.write("slow", "")
	go func() { _ = reload("c") }()
	waittest.For(t, "it is not unloaded", func() bool { return did() == "unloads loads unloads " })
	s.kill()
	if err := os.Remove(filepath.Join(s.dir, "slow")); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(machine.Path() + ".open")
	s.start()
	waittest.For(t, "it is not loaded", func() bool { return did() == "unloads loads unloads loads " })
	if err := reload("c"); status.Code(err) != codes.Unknown {
		t.Error(err)
	}
	waittest.For(t, "the unit is not started", func() bool {
		b, _ := os.ReadFile(filepath.Join(s.dir, "units"))
		return strings.Count(string(b), "stop nvidia-fabricmanager") == 2 && strings.Count(string(b), "start nvidia-fabricmanager") == 2
	})
	waittest.Until(t, func() error { return reload("d") })
}

// A validation is done once, whatever happens to the agent: its child ends with it. What it found any client
// of gNMI reads, after a restart too.
func TestAValidationIsDoneOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	s.computes("wrong 1000 8")
	s.configure("allow: {validate: [certificate CN=test]}\ndcgm: {disabled: true}\n")
	s.acts("")
	s.start()
	s.reads()
	check := s.check
	one := []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": "gpu1"}}}
	used := func() int {
		b, _ := os.ReadFile(filepath.Join(s.dir, "manner.used"))
		return strings.Count(string(b), "\n")
	}
	for range 2 {
		got, err := check("a", "2", one...)
		if err != nil || got.GetStatus().GetStatus() != healthz.Status_STATUS_UNHEALTHY {
			t.Fatal(got, err)
		}
	}
	if used() != 1 {
		t.Errorf("it was done %d times", used())
	}
	s.write("manner", "hang cuMemGetInfo_v2\n")
	go func() { _, _ = check("b", "2", one...) }()
	waittest.For(t, "no second validation", func() bool { return used() == 2 })
	child := childOf(t, s.cmd.Process.Pid)
	s.kill()
	waittest.For(t, "the child of a killed agent goes on", func() bool { return syscall.Kill(child, 0) != nil })
	_ = os.Remove(machine.Path() + ".open")
	s.start()
	s.reads()
	if _, err := check("b", "2", one...); status.Code(err) != codes.Unknown || used() != 2 {
		t.Errorf("%v; %d", err, used())
	}
	for leaf, want := range map[string]string{
		"state/id": "a", "state/passed": "false", "test[name=memory]/state/result": "failed", "test[name=compute]/state/result": "passed", "test[name=nvlink]/state/result": "passed",
	} {
		s.shows("/gpus/gpu[name=gpu1]/validation/"+leaf, want)
	}
	// Level 1 disturbs nobody, and finds what the driver tells.
	machine.Say("gpu 0 process 1 100")
	machine.Say("gpu 0 set inforom 14")
	got, err := check("c", "1", one[0])
	if err != nil || got.GetStatus().GetStatus() != healthz.Status_STATUS_UNHEALTHY || used() != 2 {
		t.Error(got, err)
	}
	s.shows("/gpus/gpu[name=gpu0]/validation/test[name=inforom]/state/result", "failed")
	s.shows("/gpus/gpu[name=gpu1]/validation/state/passed", "true")
	if _, err := check("d", "2", one[0]); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "gpu0 is in use by") {
		t.Error(err)
	}
}

// check asks for a validation of a level.
func (s *server) check(id, level string, path ...*types.PathElem) (*healthz.CheckResponse, error) {
	s.t.Helper()
	conn := s.dial()
	defer func() { _ = conn.Close() }()
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), target.MetaAction, id, target.MetaLevel, level)
	return healthz.NewHealthzClient(conn).Check(ctx, &healthz.CheckRequest{Path: &types.Path{Elem: path}})
}

// childOf returns a child of a process.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		if more, err := os.ReadFile(task); err == nil {
			b = append(append(b, ' '), more...)
		}
	}
	child := 0
	if n, _ := fmt.Sscan(string(b), &child); n != 1 {
		t.Fatalf("no child of %d: %q %v", pid, b, err)
	}
	return child
}

// An agent under which another driver was loaded ends, for its unit to start it anew; one that
// was started with a library that does not fit tells so, and reads the rest.
func TestAnotherDriverWasLoaded(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	s.start()
	s.reads()
	machine.Say("return nvmlInit_v2 18")
	for gpu := range 2 {
		machine.Say("gpu %d return * 18", gpu)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		s.cmd = nil
		if err == nil {
			t.Error("it ended as if all were well")
		}
	case <-time.After(waittest.Patience):
		t.Fatal("it does not end")
	}
	s.start()
	c := s.gnmic()
	req, err := api.NewGetRequest(api.Path("/gpus/state/error"), api.EncodingASCII())
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		res, err := c.Get(t.Context(), req)
		if err == nil && !strings.Contains(res.String(), "different versions") {
			err = fmt.Errorf("error is %s", res)
		}
		return err
	})
	time.Sleep(500 * time.Millisecond) // five tries more
	if err := s.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}

func TestTheCommandSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--check"}, 0, "ok"},
		{[]string{"--check", "--config", file("")}, 0, "ok"},
		{[]string{"--check", "--config", file("lisen: x")}, 2, "listen"},
		{[]string{"--check", "--listen", "0.0.0.0:1"}, 2, "tls.cert_file"},
		{[]string{"--check", "--config", file("credential: {user: a, password_file: /nowhere}")}, 2, "credential.password_file"},
		{[]string{"--config", "/nowhere.yaml"}, 2, "nowhere"},
		{[]string{"--nonsense"}, 2, "nonsense"},
		{[]string{"more"}, 2, "more"},
	} {
		// A case's file is read before the next is written over it.
		if c.args[len(c.args)-1] == filepath.Join(dir, "c.yaml") {
			text := map[string]string{"ok": "", "listen": "lisen: x", "credential.password_file": "credential: {user: a, password_file: /nowhere}"}[c.says]
			file(text)
		}
		var out bytes.Buffer
		if code := command(t.Context(), c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v: %d %s", c.args, code, out.String())
		}
	}
}

// TestTheAgentIsSmall: it runs on machines that have other things to do, and must not
// bring along what only the centre needs.
func TestTheAgentIsSmall(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	unwanted := regexp.MustCompile(`^(auspex/(internal/(store|bus)|api|ui|pipeline|correlator|control|collectors)(/|$)|.*/(sqlite|clickhouse-go|ch-go|nats-server|nats\.go|fiber|fasthttp|ygot|cobra|prometheus)(/|$))`)
	for line := range strings.Lines(string(out)) {
		if p := strings.TrimSpace(line); unwanted.MatchString(p) {
			t.Errorf("it links %s", p)
		}
	}
}
