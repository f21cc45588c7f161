package gpuwatch

import (
	"slices"
	"testing"
	"time"
)

// in is a GPU that is in its fabric, with a health mask and summary.
func in(mask uint32, summary uint8) *Fabric {
	return &Fabric{State: FabricRegistered, Mask: mask, Summary: summary}
}

const well = 0x1aa // each field of two bits is false, nothing is wrong with the configuration

func TestAGPUThatLeavesItsFabricIsToldAfterAWhile(t *testing.T) {
	s := newStory(t)
	s.watch.Name(1, "GPU-a", "")
	now := time.Unix(1e9, 0)
	tell := func(after time.Duration, f *Fabric) {
		t.Helper()
		now = now.Add(after)
		s.watch.Fabric(now, 1, f)
	}
	told := func(want ...string) {
		t.Helper()
		if !slices.Equal(s.told, want) {
			t.Errorf("%q, want %q", s.told, want)
		}
		s.told = nil
	}
	tell(0, &Fabric{State: FabricInProgress})
	tell(time.Hour, &Fabric{State: FabricInProgress})
	told() // never was in it
	tell(0, in(well, 1))
	tell(time.Minute, &Fabric{State: FabricInProgress})
	tell(4*time.Minute, &Fabric{State: FabricInProgress})
	tell(0, in(well, 1))
	tell(time.Minute, &Fabric{State: FabricNotStarted})
	tell(4*time.Minute, &Fabric{State: FabricNotStarted})
	told() // a fabric manager that starts
	s = s.again(t)
	tell(time.Minute, &Fabric{State: FabricNotStarted})
	told("gpu.fabric NOT_REGISTERED raised gpu1")
	tell(time.Hour, &Fabric{State: FabricNone})
	told()
	tell(time.Minute, &Fabric{State: FabricFailed, Error: 999})
	told("gpu.fabric REGISTRATION_FAILED raised gpu1")
	tell(time.Minute, &Fabric{State: FabricInProgress})
	tell(time.Minute, &Fabric{State: 7})
	told() // nothing is decided
	s = s.again(t)
	tell(time.Minute, in(well, 1))
	tell(time.Minute, in(0, 0))
	told("gpu.fabric REGISTERED cleared gpu1")
	s.watch.Name(1, "GPU-b", "") // another board was never in it
	tell(0, &Fabric{State: FabricNotStarted})
	tell(time.Hour, &Fabric{State: FabricNotStarted})
	told()
}

func TestWhatIsWorstOfTheHealthInTheFabricIsTold(t *testing.T) {
	for _, c := range []struct {
		f    *Fabric
		code string
		sev  string
	}{
		{in(0, 0), "", ""},
		{in(well, 1), "", ""},
		{in(1<<RouteRecovery|1<<AccessTimeoutRecovery, 1), "", ""}, // they pass
		{in(1<<BandwidthDegraded, 1), "DEGRADED_BANDWIDTH", "warning"},
		{in(1<<BandwidthDegraded, 3), "DEGRADED_BANDWIDTH", "warning"},
		{in(well, 3), "LIMITED_CAPACITY", "warning"},
		{in(well, 2), "UNHEALTHY", "error"},
		{in(1<<BandwidthDegraded|1<<RouteUnhealthy, 2), "ROUTE_UNHEALTHY", "error"},
		{in(4<<configuration|1<<RouteUnhealthy, 2), "ROUTE_UNHEALTHY", "error"},
		{in(4<<configuration|1<<BandwidthDegraded, 0), "INCORRECT_CONFIGURATION", "warning"},
		{in(5<<configuration, 0), "INCORRECT_CONFIGURATION", "error"},
		{in(15<<configuration, 0), "INCORRECT_CONFIGURATION", "error"},
		{&Fabric{State: FabricFailed, Error: 10, Mask: 1}, "REGISTRATION_FAILED", "error"},
	} {
		code, s, _, message := c.f.trouble()
		if code != c.code || string(s) != c.sev || (message == "") != (code == "") {
			t.Errorf("%+v: %s %s %q, want %s %s", *c.f, code, s, message, c.code, c.sev)
		}
	}
}
