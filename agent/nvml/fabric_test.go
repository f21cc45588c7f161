//go:build cgo

package nvml

import (
	"math"
	"slices"
	"testing"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/internal/waittest"
)

// Where a GPU is in its NVLink fabric and how well is told, of drivers that know less, less; and once it
// was in it, that it is not.
func TestAGPUInItsNVLinkFabric(t *testing.T) {
	s := newServer(t, 4)
	const gpu = "/gpus/gpu[gpu1]/state/fabric-"
	for _, line := range []string{
		"gpu 1 set fabric-cluster dc6e40c4d72243579ba65291dd461278", "gpu 1 set fabric-clique 32766", "gpu 1 set fabric-summary 1", "gpu 1 set fabric-health 426",
		"gpu 2 set fabric-version 2", "gpu 2 set fabric-health 426", "gpu 2 set fabric-summary 1",
		"gpu 3 return nvmlDeviceGetGpuFabricInfoV 3", // as a board that is in none
	} {
		s.machine.Say("%s", line)
	}
	stop := s.run()
	for path, want := range map[string]any{
		gpu + "state": uint64(3), gpu + "error": uint64(0), gpu + "cluster": "dc6e40c4-d722-4357-9ba6-5291dd461278", gpu + "clique": uint64(32766),
		gpu + "health": uint64(1), gpu + "health-mask": uint64(426), gpu + "bandwidth-degraded": false, gpu + "configuration-wrong": false,
		"/gpus/gpu[gpu0]/state/fabric-state": uint64(3), "/gpus/gpu[gpu0]/state/fabric-cluster": nil, "/gpus/gpu[gpu0]/state/fabric-health": nil,
		"/gpus/gpu[gpu0]/state/fabric-bandwidth-degraded": nil,
		"/gpus/gpu[gpu2]/state/fabric-health-mask":        uint64(426), "/gpus/gpu[gpu2]/state/fabric-health": nil,
		"/gpus/gpu[gpu3]/state/temperature": uint64(36), "/gpus/gpu[gpu3]/state/fabric-state": nil,
	} {
		s.shows(path, want)
	}
	s.machine.Say("gpu 1 set fabric-health 425")
	s.tells("gpu.fabric DEGRADED_BANDWIDTH raised gpu1")
	s.shows(gpu+"bandwidth-degraded", true)
	s.machine.Unsay("gpu 1 set fabric-health 425")
	s.tells("gpu.fabric REGISTERED cleared gpu1")
	s.machine.Say("gpu 1 set fabric-state 2")
	s.tells("gpu.fabric NOT_REGISTERED raised gpu1")
	s.shows(gpu+"cluster", nil)
	s.shows(gpu+"clique", nil)
	s.machine.Say("gpu 2 set fabric-status 999")
	s.tells("gpu.fabric REGISTRATION_FAILED raised gpu2")
	s.shows("/gpus/gpu[gpu2]/state/fabric-state", uint64(4))
	s.shows("/gpus/gpu[gpu2]/state/fabric-error", uint64(999))
	s.machine.Unsay("gpu 1 set fabric-state 2")
	waittest.For(t, "gpu1 is not registered again", func() bool {
		told := s.told()
		return told[len(told)-1] == "gpu.fabric REGISTERED cleared gpu1"
	})
	s.machine.Say("gpu 0 hang nvmlDeviceGetGpuFabricInfoV")
	s.tells("gpu.stalled CALL raised gpu0")
	s.shows("/gpus/gpu[gpu0]/state/stalled", "nvmlDeviceGetGpuFabricInfoV")
	s.machine.Unsay("gpu 0 hang nvmlDeviceGetGpuFabricInfoV")
	s.tells("gpu.stalled CALL cleared gpu0")
	stop()
}

// A driver of before the structures had versions tells no health.
func TestThePlainReadingOfTheFabric(t *testing.T) {
	s := newServer(t, 1)
	s.machine.Say("gpu 0 set fabric-clique 7")
	s.machine.Say("gpu 0 set fabric-health 425")
	n := lib.New(lib.WithLibraryPath(s.cfg.Library))
	if ret := n.Init(); ret != lib.SUCCESS {
		t.Fatal(text(ret))
	}
	defer n.Shutdown() //nolint:errcheck // a test
	d, ret := n.DeviceGetHandleByIndex(0)
	if ret != lib.SUCCESS {
		t.Fatal(text(ret))
	}
	i := slices.IndexFunc(readings, func(r reading) bool { return r.symbol == "nvmlDeviceGetGpuFabricInfo" })
	v := make([]float64, len(readings[i].leaves))
	if ret := readings[i].read(d, v); ret != lib.SUCCESS || v[0] != 3 || v[1] != 0 || v[2] != 7 || !math.IsNaN(v[3]) || !math.IsNaN(v[4]) || !math.IsNaN(v[6]) {
		t.Errorf("%v %v", text(ret), v)
	}
}
