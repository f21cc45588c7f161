//go:build cgo && dcgm

package dcgm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"auspex/agent/acts"
	"auspex/agent/dcgm/stub"
	nvml "auspex/agent/nvml/stub"
	"auspex/internal/waittest"
)

var compiled = sync.OnceValues(func() (string, error) { return stub.Compile(folder) })

// engine gives a server the library, and a hostengine behind it.
func engine(t *testing.T, gpus int) (*server, *nvml.Machine) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is missing, which compiles a library in DCGM's place")
	}
	library, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, gpus)
	s.cfg.Library = library
	m := stub.New(filepath.Join(t.TempDir(), "machine"), gpus)
	t.Setenv(stub.Env, m.Path())
	t.Cleanup(func() {
		if log := s.logged(); strings.Contains(log, "DATA RACE") { // of the child
			t.Error(log)
		}
	})
	return s, m
}

func (s *server) tells(event string) {
	s.t.Helper()
	waittest.Until(s.t, func() error {
		if told := s.told(); !slices.Contains(told, event) {
			return fmt.Errorf("%q is not told, but %q; %s", event, told, s.logged())
		}
		return nil
	})
}

// calls are those that the library was asked for.
func calls(m *nvml.Machine) []string {
	b, _ := os.ReadFile(m.Path() + ".calls")
	return strings.Split(string(b), "\n")
}

func TestProfilingFieldsAreRead(t *testing.T) {
	s, m := engine(t, 2)
	m.Say("field 1 1002 0.5")       // our gpu0
	m.Say("field 1 1004 0.1234567") // rounded
	m.Say("field 1 1009 123456789")
	m.Say("field 1 1003 blank")
	m.Say("field 1 1006 status -15")
	m.Say("field 0 1002 0")
	stop := read(t, s.reader())
	s.shows("gpu0 sm-active", "0.5")
	s.shows("version", "4.5.2")
	got := s.leaves()
	for leaf, want := range map[string]string{
		"gpu0 tensor-active": "0.123457", "gpu0 pcie-sent-rate": "123456789", "gpu0 sm-occupancy": "", "gpu0 fp64-active": "",
		"gpu0 health": "0", "gpu1 sm-active": "0", "gpu1 dram-active": "", "gpu1 nvlink-sent-rate": "", "error": "", "no-profiling": "",
		"no-health": "", "no-policy": "", "failures": "0", "health": "0",
	} {
		if got[leaf] != want {
			t.Errorf("%s is %q, want %q", leaf, got[leaf], want)
		}
	}
	m.Unsay("field 1 1002 0.5")
	m.Say("field 1 1002 stale")
	s.shows("gpu0 sm-active", "") // the hostengine has ceased to take it
	stop()
	if got := s.leaves(); got["gpu1 sm-active"] != "0" {
		t.Error("an agent that ends takes its readings away")
	}
	if n := len(slices.DeleteFunc(calls(m), func(c string) bool { return c != "dcgmWatchFields" })); n != 1 {
		t.Errorf("the fields were watched %d times", n)
	}
}

// The hostengine watches what is in the group and no more: NVSwitches, CPUs and network cards are put into it.
func TestTheHealthOfOtherPartsIsWatched(t *testing.T) {
	s, m := engine(t, 1)
	m.Say("part 3 4")
	m.Say("part 7 0")
	m.Say("incident 3 4 0x800 20 15 Detected a fatal error")
	m.Say("incident 7 0 0x80 10 42 It is hot")
	m.Say("incident 1 0 0x1 10 3 Detected 40 replays")
	defer read(t, s.reader())()
	s.tells("gpu.health NVSWITCH_FATAL_ERROR raised error")
	s.tells("gpu.pcie_replay PCI_REPLAY_RATE raised warning gpu0")
	s.shows("health", "2")
	s.shows("incidents", "NVSwitch 4: Detected a fatal error (DCGM NVSWITCH_FATAL_ERROR); CPU 0: It is hot (DCGM TEMP_VIOLATION)")
}

func TestWhatDCGMRefusesIsSaidAndTheRestIsRead(t *testing.T) {
	for name, c := range map[string]struct{ line, leaf, says string }{
		"somebody profiles": {
			"return dcgmWatchFields -34", "no-profiling",
			"somebody else may profile the GPUs: error watching fields: the resource is in use",
		},
		"no module": {
			"return dcgmProfGetSupportedMetricGroups -33", "no-profiling",
			"its module is not loaded",
		},
		"values": {
			"return dcgmEntitiesGetLatestValues -6", "error",
			"it is not supported",
		},
		"a board without": {
			"noprof 0", "no-profiling",
			"no GPU has any",
		},
		"not root": {
			"return dcgmHealthSet -29", "no-health",
			"health is not watched: error setting health watches: the hostengine has to run as root",
		},
		"health": {
			"return dcgmHealthCheck -3", "no-health",
			"health is not read: an error of the stub",
		},
		"no policy": {
			"return dcgmPolicySet -6", "no-policy",
			"it is not supported",
		},
		"no callback": {
			"return dcgmPolicyRegister_v2 -6", "no-policy",
			"it is not supported",
		},
		"a DCGM of another version": {
			"return dcgmConnect_v2 -12", "error",
			"no hostengine of DCGM answers at localhost:5555: error connecting to nv-hostengine: the version",
		},
		"no hostengine": {
			"down", "error",
			"no hostengine of DCGM answers at localhost:5555",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, 1)
			library, err := compiled()
			if err != nil {
				t.Skip(err)
			}
			s.cfg.Library = library
			m := stub.New(filepath.Join(t.TempDir(), "machine"), 1)
			m.Say("field 0 1002 0.5")
			m.Say("%s", c.line)
			r := s.reader()
			r.env = []string{stub.Env + "=" + m.Path()}
			defer read(t, r)()
			s.shows(c.leaf, c.says)
			if c.leaf != "error" && c.leaf != "no-profiling" {
				s.shows("gpu0 sm-active", "0.5")
			}
			if c.leaf == "no-profiling" {
				s.shows("gpu0 health", "0")
			}
		})
	}
}

func TestALibraryThatIsNotThere(t *testing.T) {
	s := newServer(t, 1)
	s.cfg.Library = "libdcgm-of-nobody.so.4"
	stop := read(t, s.reader())
	s.shows("error", "libdcgm-of-nobody.so.4 is not there: DCGM is not installed")
	stop()
	s.cfg.Library = "libm.so.6" // some other
	stop = read(t, s.reader())
	s.shows("error", "libm.so.6 has no errorString: DCGM 4 is needed")
	stop()
}

// A call that does not return is said, its process is ended, and the next one reads when it does return.
func TestACallThatDoesNotReturn(t *testing.T) {
	for _, call := range []string{"dcgmConnect_v2", "dcgmHealthCheck", "dcgmPolicyRegister_v2"} {
		s, m := engine(t, 1)
		s.cfg.Deadline = 400 * time.Millisecond
		m.Say("field 0 1002 0.5")
		stop := read(t, s.reader())
		s.shows("gpu0 sm-active", "0.5")
		m.Say("hang %s", call)
		if call != "dcgmHealthCheck" {
			m.Say("epoch 2") // a hostengine that was started anew, and hangs
		}
		s.shows("error", "has not returned for 400ms")
		s.shows("gpu0 sm-active", "")
		s.shows("gpu0 health", "")
		m.Unsay("hang %s", call)
		s.shows("gpu0 sm-active", "0.5")
		s.shows("error", "")
		m.Say("hang %s", call)
		m.Say("epoch 3")
		s.shows("error", "has not returned")
		begun := time.Now()
		stop() // while it hangs
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("it ended after %s", took)
		}
		if got := s.leaves()["stalls"]; got == "" || got == "0" {
			t.Errorf("%s stalls", got)
		}
	}
}

// A hostengine that goes and comes is found again, with its watches and its policies, and so is one under which the
// process died that called it.
func TestAHostengineThatGoesAndComes(t *testing.T) {
	s, m := engine(t, 2)
	m.Say("field 0 1002 0.5")
	defer read(t, s.reader())()
	s.shows("gpu1 sm-active", "0.5")
	m.Say("down")
	s.shows("error", "the connection is not valid")
	s.shows("gpu1 sm-active", "")
	m.Unsay("down")
	m.Say("epoch 2")
	s.shows("gpu1 sm-active", "0.5")
	m.Say("violate 1 0 0x2 41 0")
	s.tells("gpu.pcie_replay replay info gpu1")
	m.Say("crash dcgmHealthCheck")
	s.shows("error", "the process that calls DCGM has died in dcgmHealthCheck")
	m.Unsay("crash dcgmHealthCheck")
	s.shows("gpu1 sm-active", "0.5")
	m.Say("violate 2 0 0x2 42 0")
	waittest.For(t, "the policies are not heard any more", func() bool { return len(s.told()) == 2 })
}

func TestPoliciesTellOfEachViolation(t *testing.T) {
	s, m := engine(t, 2)
	s.xids = false
	s.cfg.Policy.Power = 700
	defer read(t, s.reader())()
	s.shows("gpu1 health", "0")
	for i, v := range []string{"0x1 3 2", "0x2 41 0", "0x4 10 2", "0x8 101 0", "0x10 720 0", "0x20 5 409", "0x40 79 0"} {
		m.Say("violate %d 0 %s", i+1, v)
	}
	for _, want := range []string{
		"gpu.ecc_ue DRAM critical gpu1", "gpu.pcie_replay replay info gpu1", "gpu.row_remap RETIRED_PAGES warning gpu1",
		"gpu.thermal POLICY raised warning gpu1",
		"gpu.power POLICY raised warning gpu1", "gpu.nvlink_errors FIELD_409 info gpu1", "gpu.xid 79 critical gpu1",
	} {
		s.tells(want)
	}
	s.shows("violations", "7")
	s.shows("violations-dropped", "0")
	if got := calls(m); !slices.Contains(got, "policy 0x7f action 0 pages 10 temperature 100 power 700") {
		t.Errorf("%q", got)
	}
}

// What somebody else has set in the hostengine stays: its limits, and what it does at a violation.
func TestPoliciesOfOthersStay(t *testing.T) {
	s, m := engine(t, 1)
	m.Say("policy 0x0c") // pages and heat, with limits of 77
	defer read(t, s.reader())()
	s.shows("gpu0 health", "0")
	if got := calls(m); !slices.Contains(got, "policy 0x6f action 1 pages 77 temperature 77 power 0") {
		t.Errorf("%q", got)
	}
}

func TestADiagnosticTellsWhatItFinds(t *testing.T) {
	s, m := engine(t, 3)
	m.Say("test software 0 0 0") // DCGM's GPU 0 is our gpu2
	m.Say("test pcie 1 0 0 12.5 GB/s")
	m.Say("test Memory_Bandwidth 1 0 3 it is too low")
	m.Say("test Memory_Bandwidth 1 2 2 it is low")
	m.Say("test pulse_test 1 2 1")
	r := s.reader()
	got, err := r.Diagnose(t.Context(), 2, []uint32{2, 0})
	if err != nil {
		t.Fatal(err)
	}
	want := acts.Report{Level: 2, GPUs: []uint32{2, 0}, Tests: []acts.Test{
		{Name: "dcgm.software", GPU: acts.AllGPUs, Result: acts.Passed, Message: "nothing was found"},
		{Name: "dcgm.pcie", GPU: 2, Result: acts.Passed, Message: "12.5 GB/s"},
		{Name: "dcgm.memory-bandwidth", GPU: 2, Result: acts.Broken, Message: "it is too low"},
		{Name: "dcgm.memory-bandwidth", GPU: 0, Result: acts.Warned, Message: "it is low"},
		{Name: "dcgm.pulse-test", GPU: 0, Result: acts.Skipped, Message: "it was not run"},
	}}
	if d := cmp.Diff(want, got, cmpopts.IgnoreFields(acts.Report{}, "Began", "Ended")); d != "" || got.Sound() {
		t.Error(d)
	}
	if got := calls(m); !slices.Contains(got, "diagnostic of level 20 on 2 GPUs, the first is 0") {
		t.Errorf("%q", got)
	}
}

// What an agent's log says begins is under load on the GPUs: where nothing could begin, nothing did.
func TestADiagnosticThatCannotBeginIsNotSaidToBegin(t *testing.T) {
	const begins, ended = "a diagnostic of DCGM begins", "a diagnostic of DCGM has ended"
	for name, c := range map[string]struct {
		change func(s *server, m *nvml.Machine)
		want   string // of the error; empty is none
	}{
		"no library":    {func(s *server, _ *nvml.Machine) { s.cfg.Library = "libdcgm-none.so.4" }, "DCGM is not installed"},
		"no hostengine": {func(_ *server, m *nvml.Machine) { m.Say("return dcgmConnect_v2 -21") }, "no hostengine of DCGM answers"},
		"all is there":  {func(_ *server, m *nvml.Machine) { m.Say("test software 0 0 0") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := engine(t, 1)
			c.change(s, m)
			_, err := s.reader().Diagnose(t.Context(), 1, []uint32{0})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			for _, words := range []string{begins, ended} {
				if got := strings.Contains(s.logged(), words); got != (c.want == "") {
					t.Errorf("%q is logged: %t", words, got)
				}
			}
		})
	}
}

func TestADiagnosticIsStoppedAndRefused(t *testing.T) {
	s, m := engine(t, 2)
	s.users = map[uint32][]string{1: {"python (4711)"}}
	r := s.reader()
	for want, c := range map[string]struct {
		level int
		gpus  []uint32
	}{
		"gpu1 is in use by python (4711)": {1, []uint32{0, 1}}, "levels 1 to 3": {4, []uint32{0}},
		"no GPU is named": {1, nil}, "gpu7 is not there": {1, []uint32{7}},
	} {
		if _, err := r.Diagnose(t.Context(), c.level, c.gpus); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := r.Diagnose(t.Context(), 1, []uint32{0}); err == nil || !strings.Contains(err.Error(), "nothing was tested") {
		t.Error(err)
	}
	m.Say("test software 0 0 0")
	r.cfg.DiagnoseInUse = true
	if _, err := r.Diagnose(t.Context(), 1, []uint32{1}); err != nil {
		t.Error(err)
	}
	m.Say("return dcgmRunDiagnostic -39")
	if _, err := r.Diagnose(t.Context(), 1, []uint32{0}); err == nil || !strings.Contains(err.Error(), "a diagnostic runs already") {
		t.Error(err)
	}
	m.Unsay("return dcgmRunDiagnostic -39")

	m.Say("slow 600000")
	p, err := r.start(order{Level: 2, UUIDs: []string{s.boards[0].UUID}}) // of an agent that is killed
	if err != nil {
		t.Fatal(err)
	}
	for w := range p.words {
		if w.Call == "dcgmRunDiagnostic" {
			break
		}
	}
	_ = p.in.Close()
	waittest.For(t, "a diagnostic goes on without an agent", func() bool { return slices.Contains(calls(m), "dcgmStopDiagnostic") })
	p.end()
	if err := os.Remove(m.Path() + ".calls"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := r.Diagnose(ctx, 3, []uint32{0}); ended <- err }()
	waittest.For(t, "it does not begin", func() bool {
		return slices.Contains(calls(m), "diagnostic of level 30 on 1 GPUs, the first is 1")
	})
	if _, err := r.Diagnose(t.Context(), 1, []uint32{0}); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Error(err)
	}
	cancel(errors.New("enough"))
	if err := <-ended; err == nil || err.Error() != "the diagnostic was stopped: enough" {
		t.Error(err)
	}
	if !slices.Contains(calls(m), "dcgmStopDiagnostic") {
		t.Error("the hostengine was not told to stop it")
	}
}
