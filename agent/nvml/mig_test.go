//go:build cgo

package nvml

import (
	"strings"
	"testing"

	"auspex/agent/jobs"
	"auspex/internal/waittest"
)

// The instances of a GPU that is divided are told one by one, with their memory and
// processes, and are no more when it is divided otherwise.
func TestMIGInstancesAreTold(t *testing.T) {
	s := newServer(t, 2)
	s.machine.Say("gpu 1 set mig 1")
	for _, line := range []string{
		"gpu 1 mig 0 1 3g.40gb", "gpu 1 mig 1 5 1c.2g.20gb", "gpu 1 mig 2 5 1c.2g.20gb",
		"gpu 1016 set uuid MIG-aa", "gpu 1017 set uuid MIG-bb", "gpu 1018 set uuid MIG-cc",
		"gpu 1016 set memory-used 2147483648", "gpu 1 process 41 2048 1", "gpu 1 process 42 12 5", "gpu 1 process 43 12 5",
	} {
		s.machine.Say("%s", line)
	}
	r, _ := s.start()
	const one, two = "/gpus/gpu[gpu1]/mig[1][3g.40gb]/state/", "/gpus/gpu[gpu1]/mig[5][2g.20gb]/state/"
	at := func(path string) string { // in whatever order the keys come
		if _, ok := s.leaves()[path]; ok {
			return path
		}
		return strings.NewReplacer("[1][3g.40gb]", "[3g.40gb][1]", "[5][2g.20gb]", "[2g.20gb][5]").Replace(path)
	}
	for path, want := range map[string]any{
		one + "uuid": "MIG-aa", one + "profile": "3g.40gb", one + "id": uint64(1), one + "devices": uint64(1), one + "memory-used": uint64(2048),
		one + "memory-free": uint64(80<<10 - 2048 - 600), one + "memory-reserved": uint64(600), one + "processes": uint64(1),
		two + "uuid": "MIG-bb MIG-cc", two + "devices": uint64(2), two + "processes": uint64(2),
		"/gpus/gpu[gpu1]/process[42]/state/mig": uint64(5), "/gpus/gpu[gpu1]/state/processes": uint64(3),
	} {
		waittest.For(t, path+" is not shown", func() bool { return s.leaves()[at(path)] == want })
	}
	if _, ok := s.leaves()["/gpus/gpu[gpu0]/process[42]/state/mig"]; ok {
		t.Error("the other GPU has an instance")
	}
	s.machine.Say("gpu 1017 return nvmlDeviceGetMemoryInfo_v2 3")
	waittest.For(t, "memory that is not told stays", func() bool {
		_, ok := s.leaves()[at(two+"memory-used")]
		return !ok
	})
	called := r.Called()
	for name, want := range map[string]uint32{"MIG-aa": 1, "MIG-bb": 1, "MIG-cc": 1, jobs.Minor(0): 0, jobs.Minor(1): 1} {
		if n, ok := called[name]; !ok || n != want {
			t.Errorf("%s is GPU %d %v, want %d, of %v", name, n, ok, want, called)
		}
	}
	s.machine.Unsay("gpu 1 mig 0 1 3g.40gb")
	waittest.For(t, "an instance that is no more stays", func() bool {
		l := s.leaves()
		_, gone := l[at(one+"uuid")]
		return !gone && l[at(two+"uuid")] == "MIG-bb MIG-cc"
	})
	waittest.For(t, "an instance that is no more is still called by its name", func() bool { _, ok := r.Called()["MIG-aa"]; return !ok })
	s.machine.Say("gpu 1 set mig 0")
	waittest.For(t, "a GPU that is whole again is divided", func() bool {
		_, ok := s.leaves()[at(two+"uuid")]
		return !ok
	})
}

// A process is of the pod that alone has its GPU, or its MIG device.
func TestTheKubeletSaysInWhichPodAProcessIs(t *testing.T) {
	pods := map[string]string{"GPU-1": "ml/a", "MIG-a": "ml/b", "MIG-b": "ml/c"}
	w := &worker{uuid: "GPU-1", owners: &owners{pod: func(id string) string { return pods[id] }}, instances: []instance{
		{id: 1, devices: []string{"MIG-a"}}, {id: 2, devices: []string{"MIG-b", "MIG-c"}},
	}}
	for number, want := range map[int]string{-1: "ml/a", 1: "ml/b", 2: ""} {
		if got := w.podOf(number); got != want {
			t.Errorf("in instance %d it is of %q, want %q", number, got, want)
		}
	}
}

// A call for an instance that does not return costs its GPU alone.
func TestAMIGInstanceThatHangs(t *testing.T) {
	s := newServer(t, 2)
	s.machine.Say("gpu 1 set mig 1")
	s.machine.Say("gpu 1 mig 0 1 3g.40gb")
	s.machine.Say("gpu 1016 hang nvmlDeviceGetMemoryInfo_v2")
	s.run()
	s.tells("gpu.stalled CALL raised gpu1")
	s.shows("/gpus/gpu[gpu0]/state/missing", false)
	s.machine.Unsay("gpu 1016 hang nvmlDeviceGetMemoryInfo_v2")
	s.tells("gpu.stalled CALL cleared gpu1")
}

func TestProfilesOfInstances(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA A100-SXM4-40GB MIG 1g.5gb": "1g.5gb", "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb": "3g.40gb", "NVIDIA H100 80GB HBM3 MIG 1g.10gb+me": "1g.10gb+me",
		"NVIDIA H100 80GB HBM3": "unknown", "": "unknown",
	} {
		if got := profile(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
