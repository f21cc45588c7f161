package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
	"auspex/internal/sim/slurm"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type stage struct {
	fleet   *fleet.Fleet
	slurm   *slurm.Controller
	in      *Injector
	at      time.Time
	entries []ledger.Entry
}

func play(t *testing.T, script string, seed uint64) *stage {
	t.Helper()
	s := &stage{at: start}
	led := ledger.Discard(func(e ledger.Entry) { s.entries = append(s.entries, e) })
	s.fleet = fleet.New(fleet.DefaultConfig(), seed, t.TempDir(), led, start)
	s.slurm = slurm.New(s.fleet, seed, "t", 0, led, start)
	s.fleet.OnChange(s.slurm.Changed)
	if err := s.fleet.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.fleet.Close() })
	s.slurm.Start()
	s.fleet.Settle()
	parsed, err := Parse([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	if s.in, err = NewInjector(s.fleet, s.slurm, parsed, seed, start); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) pass(t *testing.T, d time.Duration) {
	t.Helper()
	for end := s.at.Add(d); s.at.Before(end); {
		s.at = s.at.Add(250 * time.Millisecond)
		if _, err := s.fleet.Step(s.at); err != nil {
			t.Fatal(err)
		}
		if err := s.in.Step(s.at); err != nil {
			t.Fatal(err)
		}
		s.slurm.Step(s.at)
	}
}

func (s *stage) count(protocol, typ string) int {
	n := 0
	for _, e := range s.entries {
		if e.Kind == ledger.KindRecord && e.Protocol == protocol && e.Type == typ {
			n++
		}
	}
	return n
}

func (s *stage) plan() []string {
	var out []string
	for _, p := range s.in.Plan() {
		out = append(out, p.Kind+" "+p.Resource)
	}
	return out
}

func TestTheDemoIsHealthyAndThenTellsItsStory(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			s := play(t, string(Demo), seed)
			s.pass(t, 19*time.Second)
			for _, e := range s.entries {
				if e.Kind == ledger.KindRecord {
					t.Errorf("a healthy fleet says %+v", e)
				}
			}
			s.pass(t, 11*time.Second)
			storm := 0
			for _, e := range s.entries {
				if e.Kind == ledger.KindRecord {
					storm++
				}
			}
			if storm < 60 {
				t.Errorf("%d records of the feed, want at least 60", storm)
			}
			s.pass(t, time.Minute)
			xids := map[string]int{}
			pids := map[string]bool{}
			for _, e := range s.entries {
				if e.Type == "gpu.xid" {
					xids[e.Code]++
					if e.Code == "45" {
						pids[e.Device] = true
					}
				}
			}
			if xids["79"] != 1 || xids["154"] != 1 || xids["45"] < 60 || xids["13"]+xids["31"] < 8 || len(pids) != 8 {
				t.Errorf("xids %v, 45 on %d servers", xids, len(pids))
			}
			plan := s.in.Plan()
			feed, gpu, job := plan[1].Resource, plan[2].Resource, plan[3].Resource
			failed := map[string]bool{}
			for _, e := range s.entries {
				if e.Kind == ledger.KindJob && e.Code == slurm.Failed {
					failed[e.Device] = true
				}
			}
			if len(failed) != 2 || !failed[job] {
				t.Errorf("failed jobs %v, want %s and the one on %s", failed, job, gpu)
			}
			if strings.HasPrefix(gpu, "gpu-"+feed[4:7]) {
				t.Errorf("%s and %s hit one rack", feed, gpu)
			}
		})
	}
}

func TestTheSameSeedChoosesTheSameTargets(t *testing.T) {
	a, b := play(t, string(Demo), 7).plan(), play(t, string(Demo), 7).plan()
	if d := cmp.Diff(a, b); d != "" {
		t.Error(d)
	}
	different := false
	for seed := range uint64(4) {
		different = different || !cmp.Equal(a, play(t, string(Demo), 100+seed).plan())
	}
	if !different {
		t.Error("every seed chooses the same targets")
	}
}

func TestTargetsCanBeNamedOrDescribed(t *testing.T) {
	s := play(t, `
name: other
faults:
  - {at: 5s, kind: gpu_fallen_off, target: gpu-r07-02/gpu3}
  - {at: 6s, kind: feed_loss, target: {rack: 2, feed: B}, for: 10s}
  - {at: 7s, kind: psu_failure, target: {rack: 5, server: 4, psu: 1}}
  - {at: 8s, kind: link_flap, target: {switch: leaf-r04, port: Ethernet3}}
  - {at: 9s, kind: job_crash, target: job-142}
`, 3)
	want := []string{
		"gpu_fallen_off gpu-r07-02/gpu3", "feed_loss pdu-r02-b", "psu_failure gpu-r05-04/psu1", "link_flap leaf-r04/Ethernet3",
		"job_crash job-142",
	}
	if d := cmp.Diff(want, s.plan()); d != "" {
		t.Error(d)
	}
	s.pass(t, 40*time.Second)
	if n := s.count("ipmi", "psu.input_lost"); n != 48 {
		t.Errorf("%d records of inputs, want 24 lost and 24 back", n)
	}
	if n := s.count("ipmi", "psu.failure"); n != 1 {
		t.Errorf("%d power supplies failed", n)
	}
	if n := s.count("kmsg", "nic.down"); n != 12 {
		t.Errorf("%d changes of the link in the kernel log, want 6 down and 6 up", n)
	}
	if _, left := s.in.Next(); left {
		t.Error("something is left to do")
	}
}

func TestEveryKindOfFaultCanBePlayedAndUndone(t *testing.T) {
	var b strings.Builder
	b.WriteString("faults:\n")
	i := 0
	for k := range Kinds() {
		extra := ""
		if k == "xid" {
			extra = ", code: 119, text: Timeout waiting for RPC from GSP0!"
		}
		fmt.Fprintf(&b, "  - {at: %dms, for: 15s, kind: %s, target: random%s}\n", 100*i, k, extra)
		i++
	}
	s := play(t, b.String(), 11)
	s.pass(t, 30*time.Second)
	begun, ended := map[string]bool{}, map[string]bool{}
	for _, e := range s.entries {
		if e.Kind == ledger.KindFault {
			if e.Type == "begin" {
				begun[e.Code] = true
			} else {
				ended[e.Code] = true
			}
		}
	}
	for k := range Kinds() {
		if !begun[k] || (!ended[k] && k != "job_crash") {
			t.Errorf("%s: begun %t, ended %t", k, begun[k], ended[k])
		}
	}
	if s.count("kmsg", "gpu.xid") < 10 {
		t.Error("hardly any XID")
	}
}

func TestBadScriptsSayWhereAndWhy(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"unknown kind", "faults:\n  - {at: 1s, kind: gremlin, target: random}", `line 2: unknown kind of fault "gremlin"; known are bmc_clock,`},
		{"unknown key", "faults:\n  - at: 1s\n    kind: feed_loss\n    when: now", "line 4: field when not found"},
		{"parameter of another kind", "faults:\n  - {at: 1s, kind: feed_loss, crossing: 3m}", `line 2: feed_loss takes no "crossing"`},
		{"unknown key of a target", "faults:\n  - {at: 1s, kind: feed_loss, target: {row: 3}}", `line 2: a target has no key "row"`},
		{"no code", "faults:\n  - {at: 1s, kind: xid, target: random}", "xid wants a code"},
		{"negative time", "faults:\n  - {at: -1s, kind: feed_loss}", "a time is negative"},
		{"no YAML", "faults: [", "read script"},
		{"a duration that is none", "faults:\n  - {at: soon, kind: feed_loss}", "line 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.script))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}

func TestTargetsThatAreNotThereAreRefused(t *testing.T) {
	s := play(t, "faults: []", 1)
	for _, tc := range []struct{ fault, want string }{
		{"kind: gpu_fallen_off, target: gpu-r99-01/gpu0", `"gpu-r99-01/gpu0" is no gpu`},
		{"kind: gpu_fallen_off, target: gpu-r01-01/fan1", "is no gpu"},
		{"kind: feed_loss, target: {rack: 9}", "there is no rack 9; there are 1 to 8"},
		{"kind: gpu_fallen_off, target: {rack: 1, server: 9}", "there is no server 9"},
		{"kind: gpu_fallen_off, target: {gpu: 8}", "there is no gpu 8"},
		{"kind: feed_loss, target: {rack: 1, feed: c}", "it must be a or b"},
		{"kind: link_flap, target: {switch: leaf-r44}", "no port with a cable"},
	} {
		script, err := Parse([]byte("faults:\n  - {at: 1s, " + tc.fault + "}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewInjector(s.fleet, s.slurm, script, 1, start); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q in it", tc.fault, err, tc.want)
		}
	}
}

func TestChosenTargetsStayClearOfOneAnother(t *testing.T) {
	for seed := range uint64(20) {
		s := play(t, string(Demo), seed)
		plan := s.in.Plan()
		fan, feed, gpu, job := plan[0].Resource, plan[1].Resource, plan[2].Resource, plan[3].Resource
		i := slices.IndexFunc(s.slurm.Running(), func(j slurm.Job) bool { return j.Key() == job })
		if i < 0 {
			t.Fatalf("seed %d: no job %s", seed, job)
		}
		crash := s.slurm.Running()[i]
		rack := "gpu-" + feed[4:7]
		host := func(id string) string { h, _, _ := strings.Cut(id, "/"); return h }
		if strings.HasPrefix(fan, rack) || strings.HasPrefix(gpu, rack) || host(fan) == host(gpu) ||
			slices.Contains(crash.Nodes, host(gpu)) || slices.Contains(crash.Nodes, host(fan)) {
			t.Errorf("seed %d: %v, job on %v", seed, s.plan(), crash.Nodes)
		}
		if len(crash.Nodes) != 8 {
			t.Errorf("seed %d: the job has %d nodes", seed, len(crash.Nodes))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Demo)
	f.Add([]byte("faults:\n  - {at: 6s, kind: feed_loss, target: {rack: 2, feed: B}, for: 10s}"))
	f.Add([]byte("faults: [{kind: xid, target: [1]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			return
		}
		for _, x := range s.Faults {
			if _, ok := Kinds()[x.Kind]; !ok {
				t.Errorf("accepted kind %q", x.Kind)
			}
		}
	})
}

func TestTheExamplesPlay(t *testing.T) {
	for name, want := range map[string][]string{
		"gpu-first.yaml":        {"gpu.xid", "psu.input_lost"},
		"memory-and-cable.yaml": {"gpu.xid", "psu.failure", "nic.down"},
		"switch-and-crash.yaml": {"nic.down", "host.panic", "host.mce", "psu.input_lost", "host.reboot"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			s := play(t, string(data), 42)
			s.pass(t, 70*time.Second)
			for _, typ := range want {
				if s.count("kmsg", typ)+s.count("ipmi", typ) == 0 {
					t.Errorf("no %s of %v", typ, s.plan())
				}
			}
		})
	}
}

func TestTheReferenceListsEveryKind(t *testing.T) {
	data, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range Kinds() {
		if !strings.Contains(string(data), "`"+name+"`") {
			t.Errorf("%s is not in README.md", name)
		}
		for _, p := range k.Takes {
			if !strings.Contains(string(data), "`"+p+"`") {
				t.Errorf("parameter %s of %s is not in README.md", p, name)
			}
		}
	}
}
