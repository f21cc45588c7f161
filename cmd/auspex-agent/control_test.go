package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/gnmic/pkg/api"

	cuda "auspex/agent/cuda/stub"
	"auspex/control"
	driver "auspex/control/agent"
	"auspex/control/controltest"
	"auspex/control/messages"
	"auspex/internal/tunnel/tunneltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// Control acts through the real agent; its GPUs are those of libraries in the places of NVML and
// CUDA, nvidia-smi and what reboots and loads the driver are programs that write down that they were called.
func TestControlThroughTheAgent(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"configure_gpu", "reset_gpu", "reload_driver", "validate", "reboot"}, Apart: true,
		World: func(t *testing.T, m controltest.Manner) controltest.World { return world(t, m, false) },
	})
}

// So it does where the agent has dialled in.
func TestControlThroughATunnel(t *testing.T) {
	controltest.Run(t, controltest.Harness{
		Kinds: []string{"reset_gpu", "reboot"}, Some: true, Apart: true,
		World: func(t *testing.T, m controltest.Manner) controltest.World { return world(t, m, true) },
	})
}

const part = "gpu-r01-01/gpu1"

func world(t *testing.T, m controltest.Manner, dialled bool) controltest.World {
	t.Helper()
	s := newServer(t)
	machine := s.gpus(2, false)
	// Nobody reads the GPUs after a reset until the test lets them.
	s.script("nvidia-smi", fmt.Sprintf("echo \"$@\" >>%[1]s/did\necho hang nvmlInit_v2 >>%[2]s\n%[3]s", s.dir, machine.Path(), lost(s.dir, m)))
	s.driverWith(fmt.Sprintf("echo unloads >>%[1]s/did\necho hang nvmlInit_v2 >>%[2]s\n%[3]s", s.dir, machine.Path(), lost(s.dir, m)))
	s.computes("hang cuMemGetInfo_v2")
	machine.Say(unread)
	s.script("reboot", fmt.Sprintf("echo reboot >>%[1]s/did\n%[2]s", s.dir, lost(s.dir, m)))
	if m != controltest.Refusing {
		s.configure("allow: {%s}\n", strings.ReplaceAll(everything, "certificate CN=test", "certificate CN=test, dialled collector.example"))
	}
	s.acts("")
	var hub *tunneltest.Server
	if dialled {
		hub = tunneltest.Start(t, tunneltest.NewTokens(map[string]string{"secret-1": "gpu-r01-01"}), slog.New(slog.DiscardHandler))
		s.write("token", "secret-1\n")
		s.configure("%s", s.dialSection(hub))
	}
	s.start()
	s.reads()
	of := settings(s.addr)
	if dialled {
		waittest.For(t, "it has not dialled in", func() bool { return len(hub.Machines()) == 1 })
		of = settings(schemas.AgentDialsIn)
		of.Tunnels = hub
	}
	switch m {
	case controltest.Gone:
		s.kill()
	case controltest.Mute:
		pause(t, s)
	case controltest.Lossy:
		machine.Say("gpu 1 hang-when-set nvmlDeviceGetPowerManagementLimit") // so that there is time to lose the answer
		if of.Tunnels = (lossyTunnel{hub, s}); !dialled {
			of = settings(s.lossy())
		}
	}
	reads := func() { machine.Unsay("nothing"); s.reads() }
	back := map[string][]func(){
		"configure_gpu": {func() { machine.Unsay(unread); s.shows("/gpus/gpu[name=gpu1]/state/power-limit-set", "500") }},
		"reset_gpu":     {reads},
		"reload_driver": {reads},
		"validate":      {func() { s.write("manner", ""); s.shows("/gpus/gpu[name=gpu1]/validation/state/id", "act-validate") }},
		"reboot": {func() {
			s.kill()
			s.write("boot", "b2d1c8a4-1111-4a1a-9d2b-0123456789ab\n")
			s.start()
		}},
	}
	return controltest.World{Driver: s.driver(), Settings: of, Server: "gpu-r01-01", Target: part, Asked: s.asked, Effects: back, With: map[string]map[string]string{
		"configure_gpu": {"power_limit": "500"},
	}}
}

// unread has the agent not read a GPU any more once it was set.
const unread = "gpu 1 hang-when-set nvmlDeviceGetPersistenceMode"

const everything = "settings: [certificate CN=test], reset: [certificate CN=test], reload: [certificate CN=test], " +
	"validate: [certificate CN=test], reboot: [certificate CN=test]"

// acts configures the programs of acts, and more.
func (s *server) acts(more string) {
	s.configure(`acts:
  nvidia_smi: %[1]s/nvidia-smi
  reboot: [%[1]s/reboot]
  driver: {systemctl: %[1]s/systemctl, unload: %[1]s/rmmod, load: "true", proc: %[1]s/proc}
  validation: {cuda: %[1]s/libcuda.so.1, memory: 60s, burst: 100ms}
%[2]s`, s.dir, more)
}

// driverWith gives the server a driver of one module, and says what its unloading does.
func (s *server) driverWith(script string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Join(s.dir, "proc"), 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.write("proc/modules", "nvidia 1 0 - Live 0x0\n")
	s.script("rmmod", script)
	s.script("systemctl", "exit 3\n") // no unit runs
}

// computes gives the GPUs a library in CUDA's place, which behaves as the lines say.
func (s *server) computes(lines string) {
	s.t.Helper()
	if _, err := cuda.Compile(s.dir); err != nil {
		s.t.Fatal(err)
	}
	s.write("manner", lines+"\n")
	s.env = append(s.env, cuda.Env+"="+filepath.Join(s.dir, "manner"))
}

func (s *server) driver() control.Driver {
	cfg := driver.Default()
	cfg.Timeout = 5 * time.Second
	cfg.TLS.CAFile, cfg.TLS.CertFile, cfg.TLS.KeyFile = s.auth.File, s.cert.CertFile, s.cert.KeyFile
	return cfg
}

// settings know one server.
func settings(addr string) control.Settings {
	return control.Settings{Resource: func(id string) (schemas.Resource, bool) {
		return schemas.Resource{ID: "gpu-r01-01", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrAgentAddress: addr})}, id == "gpu-r01-01"
	}}
}

// asked counts what was done.
func (s *server) asked() int {
	n := 0
	for _, name := range []string{"did", "manner.used"} {
		b, _ := os.ReadFile(filepath.Join(s.dir, name))
		n += strings.Count(string(b), "\n")
	}
	b, _ := os.ReadFile(filepath.Join(s.dir, "machine.set"))
	set := strings.Fields(strings.ReplaceAll(string(b), " ", "-"))
	slices.Sort(set)
	return n + len(slices.Compact(set)) // what was set is set again after a restart, and that nobody asked for
}

// shows waits until a leaf of the agent is as wanted.
func (s *server) shows(path, want string) {
	s.t.Helper()
	c := s.gnmic()
	req, err := api.NewGetRequest(api.Path(path), api.EncodingASCII())
	if err != nil {
		s.t.Fatal(err)
	}
	waittest.Until(s.t, func() error {
		res, err := c.Get(s.t.Context(), req)
		if err != nil {
			return err
		}
		if n := res.GetNotification(); len(n) == 0 || len(n[0].GetUpdate()) == 0 || n[0].GetUpdate()[0].GetVal().GetAsciiVal() != want {
			return fmt.Errorf("%s is %v, want %s", path, n, want)
		}
		return nil
	})
}

// reads waits until the GPU is read that was not read before.
func (s *server) reads() {
	s.t.Helper()
	c := s.gnmic()
	req, err := api.NewGetRequest(api.Path("/gpus/gpu[name=gpu1]/state/missing"), api.EncodingPROTO())
	if err != nil {
		s.t.Fatal(err)
	}
	begun := time.Now().UnixNano()
	waittest.Until(s.t, func() error {
		res, err := c.Get(s.t.Context(), req)
		if err == nil && res.GetNotification()[0].GetTimestamp() < begun {
			err = fmt.Errorf("the GPU is not read")
		}
		return err
	})
}

// pause stops the agent's process as it stands.
func pause(t *testing.T, s *server) {
	t.Helper()
	p := s.cmd.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Signal(syscall.SIGCONT) })
	waittest.For(t, "the agent does not stop", func() bool { // its threads do so one by one, on a busy machine late
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		return !slices.ContainsFunc(threads, func(file string) bool {
			b, err := os.ReadFile(file)
			_, state, _ := strings.Cut(string(b), ") ")
			return err == nil && !strings.HasPrefix(state, "T")
		})
	})
}

// lost makes a program wait until its answer will be lost.
func lost(dir string, m controltest.Manner) string {
	if m != controltest.Lossy {
		return ""
	}
	return "while [ -d " + dir + " ] && [ ! -e " + dir + "/lost ]; do sleep .01; done\n"
}

// lossy is an address of the agent whose connections break off as soon as something is done.
func (s *server) lossy() string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	var all sync.WaitGroup
	s.t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", s.addr)
			if err != nil {
				_ = c.Close()
				return
			}
			end := sync.OnceFunc(func() { _, _ = c.Close(), to.Close() })
			for _, pipe := range [][2]net.Conn{{c, to}, {to, c}} {
				all.Go(func() { defer end(); _, _ = io.Copy(pipe[0], pipe[1]) })
			}
			all.Go(func() { s.lose(end) })
		}
	})
	return l.Addr().String()
}

// lose ends a connection when something was done.
func (s *server) lose(end func()) {
	for i := 0; s.asked() == 0 && i < 3000; i++ {
		time.Sleep(10 * time.Millisecond) // between looks
	}
	end()
	s.write("lost", "")
}

// lossyTunnel loses connections as soon as something was done.
type lossyTunnel struct {
	*tunneltest.Server
	s *server
}

// Dial implements [control.Tunnels].
func (l lossyTunnel) Dial(ctx context.Context, server string) (net.Conn, error) {
	c, err := l.Server.Dial(ctx, server)
	if err == nil {
		go l.s.lose(func() { _ = c.Close() })
	}
	return c, err
}

// What control says of resets: what it would do and who stands against it, what failed, and
// what a server without an agent cannot.
func TestWhatControlSaysOfResets(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	s.script("nvidia-smi", "echo "+`"$@" >>`+s.dir+"/did; echo Unable to reset; exit 1\n")
	s.configure("allow: {reset: [certificate CN=test]}\nacts: {nvidia_smi: %s/nvidia-smi}\n", s.dir)
	s.start()
	s.reads()
	r, err := s.driver().Remediators(settings(s.addr))
	if err != nil {
		t.Fatal(err)
	}
	step := control.Step{ID: "act-1", Kind: "reset_gpu", Server: "gpu-r01-01", Target: part + "/nvlink3"}
	plans := func(kind, want string) {
		t.Helper()
		waittest.Until(t, func() error {
			sentence, err := r[kind].Plan(t.Context(), step)
			if got := fmt.Sprint(messages.Text(sentence), err); !strings.Contains(got, want) {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	plans("reset_gpu", "would reset gpu1 of gpu-r01-01 through its agent; no process")
	plans("reboot", "allow.reboot of the agent does not name it")
	machine.Say("gpu 1 process 1 100")
	plans("reset_gpu", "now gpu1 is in use by")
	machine.Unsay("gpu 1 process 1 100")
	plans("reset_gpu", "no process")
	if err := r["reset_gpu"].Apply(t.Context(), step); err != nil {
		t.Errorf("it was asked: %v", err)
	}
	v, said, err := r["reset_gpu"].Verify(t.Context(), step)
	if v != control.Failed || err != nil || !strings.Contains(messages.Text(said), "Unable to reset") {
		t.Errorf("%v %s %v", v, messages.Text(said), err)
	}
	if s.asked() != 1 {
		t.Errorf("asked %d times", s.asked())
	}
	// A reset after which the driver still wants one has not helped; what it wanted before counts for nothing.
	machine.Say("gpu 1 set field-230 1")
	s.shows("/gpus/gpu[name=gpu1]/state/recovery-action", "1")
	for i, c := range []struct {
		after string
		want  control.Verdict
		says  string
	}{
		{"gpu 1 set field-230 1", control.Failed, "still asks for more: gpu1: a reset of the GPU"}, // as before
		{"gpu 1 set field-230 2", control.Failed, "still asks for more: gpu1: a reboot"},
		{"gpu 1 set field-230 0", control.Verified, "and the agent reads it again"},
	} {
		step.ID = fmt.Sprintf("act-%d", i+2)
		s.script("nvidia-smi", fmt.Sprintf("echo %s >>%s\n", c.after, machine.Path()))
		if err := r["reset_gpu"].Apply(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		becomes(t, r["reset_gpu"], step, c.want, c.says)
	}
	for target, want := range map[string]string{"gpu-r01-01/psu1": "is no GPU of", "gpu-r01-01": "is no GPU of", "gpu-r01-011/gpu1": "is no GPU of"} {
		step.Target = target
		plans("reset_gpu", want)
	}
	if r, err = s.driver().Remediators(settings("")); err != nil {
		t.Fatal(err)
	}
	step.Target = part
	plans("reset_gpu", "cannot: gpu-r01-01 has no node agent: set its attribute agent_address")
}

// remediators are control's, for a server whose agent is this one.
func (s *server) remediators() map[string]control.Remediator {
	s.t.Helper()
	to := settings(s.addr)
	s.found = &findings{}
	to.Validations = s.found
	r, err := s.driver().Remediators(to)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// findings are what control keeps of validations.
type findings struct{ kept []schemas.Validation }

// Keep implements control.Validations.
func (f *findings) Keep(_ context.Context, v schemas.Validation) error {
	f.kept = append(f.kept, v)
	return nil
}

// becomes waits until control sees an end of a step, and holds it against what is wanted.
func becomes(t *testing.T, r control.Remediator, step control.Step, want control.Verdict, says string) {
	t.Helper()
	waittest.Until(t, func() error {
		v, said, err := r.Verify(t.Context(), step)
		if text := messages.Text(said); err == nil && (v != want || !strings.Contains(text, says)) {
			err = fmt.Errorf("%d %s, want %d %s", v, text, want, says)
		}
		return err
	})
}

// What control says of validations: what would be tested, what was found, and what nobody knows.
func TestWhatControlSaysOfValidations(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	s.computes("miscompute 2")
	s.configure("allow: {%s}\n", everything)
	s.acts("")
	s.start()
	s.reads()
	r := s.remediators()["validate"]
	step := control.Step{ID: "act-1", Kind: "validate", Server: "gpu-r01-01", Target: part}
	machine.Say("gpu 1 process 1 100")
	waittest.Until(t, func() error {
		if _, err := r.Plan(t.Context(), step); !strings.Contains(fmt.Sprint(err), "gpu1 is in use by") {
			return errors.New("it would: " + fmt.Sprint(err))
		}
		return nil
	})
	said, err := r.Plan(t.Context(), control.Step{Server: "gpu-r01-01", Target: "gpu-r01-01", With: map[string]string{"level": "1"}})
	if got := messages.Text(said); got != "would test gpu0, gpu1 of gpu-r01-01 at level 1 through its agent" {
		t.Error(got, err)
	}
	machine.Unsay("gpu 1 process 1 100")
	waittest.Until(t, func() error { return r.Apply(t.Context(), step) })
	becomes(t, r, step, control.Failed, "the validation of gpu1 of gpu-r01-01 found: gpu1 compute: ")
	// All of it is kept, also what the board does not tell.
	v := s.found.kept[len(s.found.kept)-1]
	is := map[string]schemas.ValidationCheck{}
	for _, c := range v.Checks {
		is[c.Name] = c
	}
	if v.ID != "act-1" || v.Server != "gpu-r01-01" || v.Part != part || v.Level != 2 || v.Ended.Before(v.Began) || v.Began.IsZero() {
		t.Errorf("%+v", v)
	}
	if c := is["compute"]; c.Verdict != schemas.CheckFailed || c.Part != part || c.Seen == "" || c.Source != schemas.SeenByAgent {
		t.Errorf("%+v", c)
	}
	if c := is["dcgm"]; c.Verdict != schemas.CheckNotSeen || c.Seen != "" || c.Detail == "" {
		t.Errorf("%+v", c)
	}
	if c := is["driver"]; c.Verdict != schemas.CheckPassed {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"ecc-uncorrected", "nvlink", "pcie-width", "pcie-generation"} {
		if c, ok := is[name]; !ok || c.Part != part {
			t.Errorf("%s: %+v", name, c)
		}
	}
	s.write("manner", "")
	step.ID = "act-2"
	if err := r.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	becomes(t, r, step, control.Verified, "gpu1 of gpu-r01-01 passed")
	s.write("manner", "hang cuMemGetInfo_v2\n")
	step.ID = "act-3"
	if err := r.Apply(t.Context(), step); err != nil { // it takes longer than a call
		t.Fatal(err)
	}
	becomes(t, r, step, control.Pending, "the agent of gpu-r01-01 is at it")
	s.kill()
	_ = os.Remove(machine.Path() + ".open")
	s.start()
	becomes(t, r, step, control.Pending, "the agent ended while it ran")
	if err := r.Apply(t.Context(), step); err == nil || s.asked() != 3 {
		t.Errorf("it was done again: %v, %d", err, s.asked())
	}
}

// What control says of settings: what would change, what the agent refuses, and what does not stick.
func TestWhatControlSaysOfSettings(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	s.configure("allow: {settings: [certificate CN=test]}\n")
	s.start()
	s.reads()
	r := s.remediators()["configure_gpu"]
	step := control.Step{ID: "act-1", Server: "gpu-r01-01", Target: "gpu-r01-01", With: map[string]string{"power_limit": "500", "persistence": "false"}}
	plans := func(want string) {
		t.Helper()
		said, err := r.Plan(t.Context(), step)
		if got := fmt.Sprint(messages.Text(said), err); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	plans("would set on gpu-r01-01 through its agent: gpu0 persistence true → false, gpu0 power_limit 700 → 500, gpu1 persistence true → false, gpu1 power_limit 700 → 500")
	if err := r.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	becomes(t, r, step, control.Verified, "reads gpu0, gpu1 as they should be: persistence false, power_limit 500")
	plans("gpu0, gpu1 of gpu-r01-01 are set so already: persistence false, power_limit 500")
	reader, ok := r.(control.Reader)
	if !ok {
		t.Fatal("what sets GPUs cannot tell how they are set")
	}
	got, err := reader.Read(t.Context(), step)
	has := control.Reading{Has: map[string]string{"power_limit": "500", "persistence": "false"}}
	if d := cmp.Diff(map[string]control.Reading{"gpu-r01-01/gpu0": has, "gpu-r01-01/gpu1": has}, got); err != nil || d != "" {
		t.Error(err, d)
	}
	step.Target, step.With = part, map[string]string{"power_limit": "900"}
	if err := r.Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "900 W is outside of 200 to 700 W") {
		t.Error(err)
	}
	machine.Say("gpu 1 stuck power-limit-set")
	step.With = map[string]string{"power_limit": "600"}
	if err := r.Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "after it was set to 600") {
		t.Error(err)
	}
	if v, said, err := r.Verify(t.Context(), step); v != control.Pending || err != nil || !strings.Contains(messages.Text(said), "gpu1 power_limit 500 → 600") {
		t.Error(v, messages.Text(said), err)
	}
	step.With = map[string]string{"fan": "100"}
	plans("fan cannot be set through an agent")
	step.With = nil
	plans("the step has no settings")
	step.With, step.Target = map[string]string{"mig": "true", "ecc": "false", "application_clocks": "1980,1500"}, part
	if err := r.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	becomes(t, r, step, control.Verified, "gpu1 as they should be: application_clocks 1980,1500, ecc false, mig true")
}

// What control says of a driver that is loaded anew: who stands against it, why it failed, and that it answers.
func TestWhatControlSaysOfReloads(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	machine := s.gpus(2, false)
	s.driverWith("[ -e " + s.dir + "/fails ] && { echo Module nvidia is in use; exit 1; }\nexit 0\n")
	s.configure("allow: {%s}\n", everything)
	s.acts("")
	s.start()
	s.reads()
	r := s.remediators()["reload_driver"]
	step := control.Step{ID: "act-1", Server: "gpu-r01-01", Target: "gpu-r01-01"}
	plans := func(want string) {
		t.Helper()
		waittest.Until(t, func() error {
			said, err := r.Plan(t.Context(), step)
			if got := fmt.Sprint(messages.Text(said), err); !strings.Contains(got, want) {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
	}
	plans("would load the driver of gpu-r01-01 anew through its agent; no process has gpu0, gpu1 open now")
	machine.Say("gpu 0 process 1 100")
	plans("now gpu0 is in use by")
	machine.Unsay("gpu 0 process 1 100")
	plans("no process")
	s.write("fails", "")
	if err := r.Apply(t.Context(), step); err != nil {
		t.Errorf("it was asked: %v", err)
	}
	becomes(t, r, step, control.Failed, "Module nvidia is in use")
	if err := os.Remove(filepath.Join(s.dir, "fails")); err != nil {
		t.Fatal(err)
	}
	step.ID = "act-2"
	if err := r.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	becomes(t, r, step, control.Verified, "the driver of gpu-r01-01 was loaded anew, and the agent reads gpu0, gpu1")
	machine.Say("gpu 1 gone") // one that did not come back keeps the step open
	step.ID = "act-3"
	if err := r.Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	becomes(t, r, step, control.Pending, "the agent has not read gpu1 since")
}

// supply is a board controller that tells what its server draws, and cannot limit it. It keeps what was set before, too.
type supply struct {
	draw float64
	kept map[string]schemas.PowerCap
}

func (*supply) Remediators(control.Settings) (map[string]control.Remediator, error) {
	return map[string]control.Remediator{}, nil
}
func (p *supply) Capper(control.Settings) (control.Capper, error) { return p, nil }
func (*supply) Whole() bool                                       { return true }
func (p *supply) Use(context.Context, string, string) (control.Use, error) {
	return control.Use{Draw: p.draw}, nil
}
func (*supply) To(control.Use, float64) (string, error) { return "", nil }
func (*supply) Set(context.Context, string, string, string, string) error {
	return control.ErrCannot
}

func (p *supply) Put(_ context.Context, c schemas.PowerCap) error { p.kept[c.Server] = c; return nil }
func (p *supply) Of(_ context.Context, server string) (c schemas.PowerCap, found bool, err error) {
	c, found = p.kept[server]
	return c, found, nil
}
func (*supply) OfFeed(context.Context, string) ([]schemas.PowerCap, error) { return nil, nil }

// A server whose board controller takes no limit draws less by its GPUs, and they have back what was set before.
func TestControlLimitsAServerByItsGPUs(t *testing.T) {
	s := newServer(t)
	machine := s.gpus(2, false)
	s.configure("allow: {settings: [certificate CN=test]}\n")
	s.start()
	s.reads()
	to, board := settings(s.addr), &supply{draw: 2600, kept: map[string]schemas.PowerCap{}}
	to.Caps = board
	all, err := control.Drivers{"agent": s.driver(), "board": board}.Remediators(to)
	if err != nil {
		t.Fatal(err)
	}
	step := control.Step{ID: "act-1", Kind: "cap_power", Server: "gpu-r01-01", Target: "gpu-r01-01", With: map[string]string{"watts": "3200"}}
	said, err := all[step.Kind].Plan(t.Context(), step)
	if got := messages.Text(said); err != nil || !strings.Contains(got, "to 3200 W through GPU power limits; it draws 2600 W now, and its limit is none") {
		t.Error(got, err)
	}
	if err := all[step.Kind].Apply(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	c := board.kept["gpu-r01-01"]
	if c.Before != "gpu0=700 gpu1=700" || c.To == c.Before || c.Way != "GPU power limits" {
		t.Errorf("%+v", c)
	}
	board.draw = 3300
	waittest.Until(t, func() error { // the agent has read its GPUs anew
		if v, said, err := all[step.Kind].Verify(t.Context(), step); v != control.Pending || err != nil || !strings.Contains(messages.Text(said), "still draws 3300 W") {
			return fmt.Errorf("%v %s %w", v, messages.Text(said), err)
		}
		return nil
	})
	board.draw = 2600
	if v, said, err := all[step.Kind].Verify(t.Context(), step); v != control.Verified || err != nil {
		t.Error(v, messages.Text(said), err)
	}
	free := control.Step{ID: "act-2", Kind: "uncap_power", Server: "gpu-r01-01", Target: "gpu-r01-01"}
	if err := all[free.Kind].Apply(t.Context(), free); err != nil {
		t.Fatal(err)
	}
	s.shows("/gpus/gpu[name=gpu1]/state/power-limit-set", "700")
	if v, said, err := all[free.Kind].Verify(t.Context(), free); v != control.Verified || err != nil {
		t.Error(v, messages.Text(said), err)
	}
	step.ID, step.With = "act-3", map[string]string{"watts": "500"}
	if err := all[step.Kind].Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) || !strings.Contains(err.Error(), "takes no limit below") {
		t.Error(err)
	}
	machine.Say("gpu 1 stuck power-limit-set")
	step.ID, step.With = "act-4", map[string]string{"watts": "3100"}
	if err := all[step.Kind].Apply(t.Context(), step); !errors.Is(err, control.ErrRejected) {
		t.Error(err)
	}
}
