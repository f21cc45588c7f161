//go:build cgo

package nvml

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// wishes reads "2 power-limit 500" and the like.
func wishes(t *testing.T, lines ...string) (out []Wish) {
	t.Helper()
	for _, l := range lines {
		f := strings.Fields(l)
		out = append(out, Wish{GPU: uint32(f[0][0] - '0'), Leaf: f[1], Value: f[2]})
	}
	return out
}

// sets asks for settings and returns what was answered.
func (s *server) sets(r *Reader, by string, lines ...string) error {
	s.t.Helper()
	ctx, done := context.WithTimeout(s.t.Context(), time.Minute)
	defer done()
	return r.Set(ctx, by, wishes(s.t, lines...))
}

// fresh waits until all of the GPUs was read again: what stayed as it was shows nothing else.
func (s *server) fresh(lanes uint64, gpus ...int) {
	s.t.Helper()
	for _, n := range gpus {
		s.machine.Say("gpu %d set pcie-width %d", n, lanes)
	}
	for _, n := range gpus {
		s.shows(fmt.Sprintf("/gpus/gpu[gpu%d]/state/pcie-width", n), lanes)
	}
}

func TestSettingsAreSetReadBackAndSetAgain(t *testing.T) {
	s := newServer(t, 4)
	r, stop := s.start()
	s.shows("/gpus/gpu[gpu3]/state/temperature", uint64(36))
	err := s.sets(r, "a", "1 power-limit 500", "1 application-clocks 1980,1500", "2 persistence false", "2 ecc-enabled false", "2 mig-enabled true")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]any{
		"/gpus/gpu[gpu1]/config/power-limit": 500.0, "/gpus/gpu[gpu1]/config/application-clocks": "1980,1500", "/gpus/gpu[gpu2]/config/ecc-enabled": false,
		"/gpus/gpu[gpu1]/state/power-limit-set": 500.0, "/gpus/gpu[gpu1]/state/application-sm-clock": uint64(1500), "/gpus/gpu[gpu2]/state/persistence": false,
		"/gpus/gpu[gpu2]/state/ecc-pending": false, "/gpus/gpu[gpu2]/state/ecc-enabled": true,
	} {
		s.shows(path, want)
	}
	// The driver is loaded anew, under the agent and before it starts. So that it is seen, setting fails for a while.
	s.machine.Say("gpu 1 return nvmlDeviceSetPowerManagementLimit 4")
	s.machine.Say("reload 1")
	s.shows("/gpus/gpu[gpu1]/state/power-limit-set", 700.0)
	s.machine.Unsay("gpu 1 return nvmlDeviceSetPowerManagementLimit 4")
	s.shows("/gpus/gpu[gpu1]/state/power-limit-set", 500.0)
	stop()
	s.machine.Say("gpu 2 return nvmlDeviceSetPersistenceMode 4")
	s.machine.Say("reload 2")
	_, stop = s.start()
	s.shows("/gpus/gpu[gpu2]/state/persistence", true)
	s.machine.Unsay("gpu 2 return nvmlDeviceSetPersistenceMode 4")
	s.shows("/gpus/gpu[gpu2]/state/persistence", false)
	s.shows("/gpus/gpu[gpu1]/config/application-clocks", "1980,1500")
	stop()
	if got := s.told(); len(got) > 0 {
		t.Error(got)
	}
}

func TestWhatCannotBeSetChangesNothing(t *testing.T) {
	s := newServer(t, 4)
	s.machine.Say("gpu 3 stuck power-limit-set")
	s.machine.Say("gpu 2 return nvmlDeviceSetEccMode 4")
	r, stop := s.start()
	defer stop()
	s.shows("/gpus/gpu[gpu3]/state/temperature", uint64(36))
	if err := s.sets(r, "a", "0 power-limit 450"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		by, want string
		wishes   []string
	}{
		{"a", "power-limit: 900 W is outside of 200 to 700 W", []string{"1 power-limit 600", "2 power-limit 900"}},
		{"a", `"warm" is no number of watts`, []string{"1 power-limit warm"}},
		{"a", "a SM clock of 9000 MHz is above 1980 MHz", []string{"1 application-clocks 1900,9000"}},
		{"a", "a memory clock of 2001 MHz is above 1980 MHz", []string{"1 application-clocks 2001,1000"}},
		{"a", `"yes" is neither true nor false`, []string{"1 persistence yes"}},
		{"a", "fan-speed of gpu1 cannot be set", []string{"1 fan-speed 100"}},
		{"a", "power-limit of gpu1 is set twice", []string{"1 power-limit 600", "1 power-limit 500"}},
		{"a", "gpu7 is not read now", []string{"7 power-limit 600"}},
		{"b", "power-limit of gpu0 was set to 450 by a, who alone may change it", []string{"1 power-limit 600", "0 power-limit 600"}},
		{"a", "gpu3: power-limit is 700 after it was set to 600", []string{"1 power-limit 600", "2 persistence false", "3 power-limit 600"}},
		{"a", "gpu2: ecc-enabled: no permission", []string{"1 power-limit 600", "2 persistence false", "2 ecc-enabled false"}},
	} {
		if err := s.sets(r, c.by, c.wishes...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.wishes, err, c.want)
		}
	}
	if err := s.sets(r, "b", "0 power-limit 450"); err != nil { // what it is already
		t.Error(err)
	}
	s.fresh(8, 0, 1, 2, 3)
	for path, want := range map[string]any{
		"/gpus/gpu[gpu0]/state/power-limit-set": 450.0, "/gpus/gpu[gpu1]/state/power-limit-set": 700.0, "/gpus/gpu[gpu2]/state/persistence": true,
		"/gpus/gpu[gpu1]/config/power-limit": nil, "/gpus/gpu[gpu3]/config/power-limit": nil,
	} {
		s.shows(path, want)
	}
}

func TestASettingThatHangsIsGivenUpAndTakenBack(t *testing.T) {
	s := newServer(t, 3)
	r, stop := s.start()
	defer stop()
	s.shows("/gpus/gpu[gpu2]/state/temperature", uint64(36))
	s.machine.Say("gpu 1 hang nvmlDeviceSetPowerManagementLimit")
	err := s.sets(r, "a", "0 power-limit 500", "1 power-limit 500", "2 power-limit 500")
	if err == nil || !strings.Contains(err.Error(), "gpu1: nvmlDeviceSetPowerManagementLimit has not returned") {
		t.Fatal(err)
	}
	s.tells("gpu.stalled CALL raised gpu1")
	s.fresh(8, 0, 2)
	s.shows("/gpus/gpu[gpu0]/state/power-limit-set", 700.0)
	s.shows("/gpus/gpu[gpu2]/state/power-limit-set", 700.0)
	s.machine.Unsay("gpu 1 hang nvmlDeviceSetPowerManagementLimit")
	s.tells("gpu.stalled CALL cleared gpu1")
	s.fresh(4, 1)
	s.shows("/gpus/gpu[gpu1]/state/power-limit-set", 700.0)
	if err := s.sets(r, "a", "1 power-limit 400"); err != nil {
		t.Error(err)
	}
	s.shows("/gpus/gpu[gpu1]/state/power-limit-set", 400.0)
}

func TestASettingThatCannotBeSetAgainIsTold(t *testing.T) {
	s := newServer(t, 1)
	r, stop := s.start()
	defer stop()
	s.shows("/gpus/gpu[gpu0]/state/temperature", uint64(36))
	if err := s.sets(r, "a", "0 power-limit 500"); err != nil {
		t.Fatal(err)
	}
	s.machine.Say("gpu 0 return nvmlDeviceSetPowerManagementLimit 4")
	s.machine.Say("reload 1")
	s.shows("/gpus/gpu[gpu0]/state/unset", "power-limit: no permission")
	s.machine.Unsay("gpu 0 return nvmlDeviceSetPowerManagementLimit 4")
	s.shows("/gpus/gpu[gpu0]/state/unset", nil)
	s.shows("/gpus/gpu[gpu0]/state/power-limit-set", 500.0)
}
