package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/slurm/slurmtest"
)

// command is an scontrol of a few lines of shell, and the file with what it was asked.
func command(t *testing.T, script string) (s *Scontrol, asked func() string) {
	t.Helper()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "scontrol"), filepath.Join(dir, "asked")
	if err := os.WriteFile(file, []byte("#!/bin/sh\nprintf '%s;' \"$*\" >>"+log+"\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Scontrol{Command: []string{file}, Timeout: time.Minute}, func() string {
		b, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(b)
	}
}

// What Debian's 22.05 writes, whose scontrol has no plug-in for JSON, and where a field of a node is what people wrote.
const (
	oldNode = `NodeName=gpu1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.52 AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:8 NodeAddr=127.0.0.1 NodeHostName=gpu1 Port=6820 Version=22.05.8 OS=Linux 6.1.0 #1 SMP Debian RealMemory=1000 AllocMem=0 FreeMem=1 Sockets=8 Boards=1 State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=all BootTime=2026-11-01T10:00:00 SlurmdStartTime=2026-11-26T17:00:00 LastBusyTime=2026-11-26T17:00:01 CfgTRES=cpu=8,mem=1000M,billing=8 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s Reason=auspex: act-1 State=IDLE is a lie [root@2026-11-26T17:01:02]`
	oldJobs = `JobId=7 JobName=a JobState=COMPLETED NodeList=none UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A JobState=RUNNING Reason=None NodeList=gpu[1-2] BatchHost=gpu1
JobId=8 JobName=b UserId=bob(1001) GroupId=bob(1001) JobState=PENDING Reason=Resources ReqNodeList=gpu1 ExcNodeList=(null) NodeList= NumNodes=1
JobId=9 JobName=c UserId=bob(1001) GroupId=bob(1001) JobState=RUNNING NodeList=gpu3 NumNodes=1
JobId=10 JobName=d UserId=bob(1001) GroupId=bob(1001) JobState=PENDING NodeList=(null) NumNodes=1
`
	old = `case "$1" in --json) echo "scontrol: unrecognized option '--json'" >&2; exit 1;; esac
case "$*" in
"-o show node gpu1") cat <<'X'
` + oldNode + `
X
;;
"-o show jobs") cat <<'X'
` + oldJobs + `X
;;
"-o show node "*) echo "Node $4 not found"; exit 1;;
update*) exit 0;;
esac
`
	newer = `case "$*" in
"--json show node gpu1") echo '{"nodes":[{"name":"gpu1","state":["MIXED","DRAIN"],"reason":"ann: x"}],"errors":[]}';;
"--json show jobs") echo '{"jobs":[{"job_id":7,"user_name":"ann","job_state":["RUNNING"],"nodes":"gpu[1-2]"},{"job_id":9,"user_name":"bob","job_state":["RUNNING"],"nodes":"gpu3"}],"errors":[]}';;
*"show node "*) echo "Node $4 not found"; exit 1;;
update*) exit 0;;
esac
`
)

func TestScontrolIsReadInTheWordsOfItsVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		node   Node
	}{
		"a line": {old, Node{Name: "gpu1", State: Names{"IDLE+DRAIN"}, Reason: "auspex: act-1 State=IDLE is a lie", User: "root"}},
		"JSON":   {newer, Node{Name: "gpu1", State: Names{"MIXED", "DRAIN"}, Reason: "ann: x"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := command(t, tc.script)
			n, err := s.Node(t.Context(), "gpu1")
			if d := cmp.Diff(tc.node, n); err != nil || d != "" {
				t.Errorf("%v %s", err, d)
			}
			jobs, err := s.Running(t.Context(), "gpu1")
			if err != nil || len(jobs) != 1 || jobs[0].ID.N != 7 || jobs[0].User != "ann" {
				t.Errorf("%+v %v", jobs, err)
			}
			if _, err := s.Node(t.Context(), "gpu2"); !errors.Is(err, ErrUnknownNode) {
				t.Error(err)
			}
			if err := s.SetNode(t.Context(), "gpu2", "DRAIN", "x"); !errors.Is(err, ErrRefused) {
				t.Error(err)
			}
			if err := s.SetNode(t.Context(), "gpu1", "DRAIN", "auspex: act-1 it's `x`\n$(y) on gpu1/gpu2"); err != nil {
				t.Error(err)
			}
			if got := asked(); !strings.HasSuffix(got, ";update NodeName=gpu1 State=DRAIN Reason=auspex: act-1 it_s _x____y_ on gpu1/gpu2;") || strings.Count(got, "update") != 1 {
				t.Error(got)
			}
		})
	}
}

func TestNothingButOneNodeIsAskedFor(t *testing.T) {
	s, asked := command(t, newer)
	for _, name := range []string{"ALL", "all", "DEFAULT", "gpu[1-4]", "gpu1,gpu2", "-d", "", "gpu1 State=DOWN", "gpu1;reboot", "$(reboot)"} {
		if _, err := s.Node(t.Context(), name); !errors.Is(err, ErrUnknownNode) {
			t.Errorf("%q: %v", name, err)
		}
		if err := s.SetNode(t.Context(), name, "DRAIN", "x"); !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := s.Running(t.Context(), name); !errors.Is(err, ErrUnknownNode) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := asked(); got != "" {
		t.Error(got)
	}
}

func TestWhatScontrolDoesNotSayClearlyIsAnError(t *testing.T) {
	for name, script := range map[string]string{
		"nothing":             `exit 0`,
		"another node":        `[ "$1" = --json ] && exit 1; echo "NodeName=gpu2 State=IDLE"`,
		"no state":            `[ "$1" = --json ] && exit 1; echo "NodeName=gpu1 Arch=x86_64"`,
		"two states":          `[ "$1" = --json ] && exit 1; echo "NodeName=gpu1 State=IDLE OS=x State=DOWN Reason=y [root@2026-11-26T17:01:02]"`,
		"two lines":           `[ "$1" = --json ] && exit 1; printf 'NodeName=gpu1 State=IDLE\nNodeName=gpu1 State=DOWN\n'`,
		"a controller away":   `echo "slurm_load_node error: Unable to contact slurm controller (connect failure)" >&2; exit 1`,
		"errors beside nodes": `echo '{"nodes":[{"name":"gpu1","state":["IDLE"]}],"errors":[{"error":"x"}]}'`,
		"a flood":             `head -c 2000000 /dev/zero`,
		"a signal":            `kill -9 $$`,
	} {
		s, asked := command(t, script)
		s.MaxOut = 1 << 20
		if n, err := s.Node(t.Context(), "gpu1"); err == nil || errors.Is(err, ErrUnknownNode) {
			t.Errorf("%s: %+v %v", name, n, err)
		}
		if err := s.SetNode(t.Context(), "gpu1", "DRAIN", "x"); !errors.Is(err, ErrRefused) || strings.Contains(asked(), "update") {
			t.Errorf("%s: %v", name, err)
		}
		if jobs, err := s.Running(t.Context(), "gpu1"); err == nil {
			t.Errorf("%s: %+v", name, jobs)
		}
	}
}

func TestACommandThatHangsIsEnded(t *testing.T) {
	s, _ := command(t, "sleep 600")
	s.Timeout = 50 * time.Millisecond
	if _, err := s.Node(t.Context(), "gpu1"); !errors.Is(err, ErrCommand) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestWhatIsRefusedIsToldFromWhatMayHaveHappened(t *testing.T) {
	for says, refused := range map[string]bool{
		"slurm_update error: Invalid node name specified": true, "slurm_update error: Access/permission denied": true,
		"slurm_update error: Socket timed out on send/recv operation": false, "ssh: connection closed": false,
	} {
		s, _ := command(t, `case "$1" in update) echo "`+says+`" >&2; exit 1;; esac
echo '{"nodes":[{"name":"gpu1","state":["IDLE"]}],"errors":[]}'`)
		if err := s.SetNode(t.Context(), "gpu1", "DRAIN", "x"); err == nil || errors.Is(err, ErrRefused) != refused {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// An ssh joins what it is given for a shell at its other end.
func TestAReasonIsOneWordForAShellBehindSSH(t *testing.T) {
	s, _ := command(t, newer)
	ssh := filepath.Join(t.TempDir(), "ssh")
	if err := os.WriteFile(ssh, []byte("#!/bin/sh\nshift\nexec sh -c \"$*\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "args")
	script := "#!/bin/sh\ncase \"$1\" in update) printf '%s|' \"$@\" >" + out + ";; *) exec " + s.Command[0] + " \"$@\";; esac\n"
	remote := filepath.Join(t.TempDir(), "scontrol")
	if err := os.WriteFile(remote, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.Command = []string{ssh, "slurmctl", remote}
	if err := s.SetNode(t.Context(), "gpu1", "DRAIN", "auspex: act-1 a b"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "update|NodeName=gpu1|State=DRAIN|Reason=auspex: act-1 a b|" {
		t.Errorf("%q %v", b, err)
	}
}

func TestTheRealControllerIsDrainedAndResumedThroughScontrol(t *testing.T) {
	for _, c := range slurmtest.Clusters(t) {
		t.Run(c.Release, func(t *testing.T) { testReal(t, c) })
	}
}

func testReal(t *testing.T, c slurmtest.Cluster) {
	s := &Scontrol{Command: c.Command("scontrol"), Timeout: time.Minute}
	const node, reason = "gpu4", "auspex: act-1 gpu.fallen_off_bus on gpu4/gpu2"
	t.Cleanup(func() { _ = s.update(context.WithoutCancel(t.Context()), node, "RESUME", "") })
	is := func(drained bool) {
		t.Helper()
		n, err := s.Node(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		states := strings.Join(n.States(), "+")
		if strings.Contains(states, "DRAIN") != drained || drained && n.Reason != reason {
			t.Fatalf("%s %q", states, n.Reason)
		}
	}
	is(false)
	if err := s.SetNode(t.Context(), node, "DRAIN", reason); err != nil {
		t.Fatal(err)
	}
	is(true)
	if _, err := s.Node(t.Context(), "gpu5"); !errors.Is(err, ErrUnknownNode) {
		t.Error(err)
	}
	if err := s.SetNode(t.Context(), node, "RESUME", ""); err != nil {
		t.Fatal(err)
	}
	is(false)
	id := c.Run(t, "sbatch", "--parsable", "-D", "/tmp", "-o", "/dev/null", "-w", node, "--job-name=x JobState=COMPLETED NodeList=none", "--wrap=sleep 600")
	t.Cleanup(func() { c.Run(t, "scancel", id) })
	deadline := time.Now().Add(2 * time.Minute)
	for {
		jobs, err := s.Running(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) == 1 && strconv.FormatInt(jobs[0].ID.N, 10) == id && jobs[0].User == "root" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", jobs)
		}
		time.Sleep(100 * time.Millisecond) // of a cluster that others ask too
	}
	if jobs, err := s.Running(t.Context(), "gpu3"); err != nil || len(jobs) != 0 {
		t.Errorf("%+v %v", jobs, err)
	}
}
