package fleet

import (
	"errors"
	"testing"
	"time"
)

// What a kernel counts of memory it counts from its boot on.
func TestTheKernelForgetsTheErrorsOfMemoryWithItsBoot(t *testing.T) {
	w := newWorld(t, 3)
	var m Machine
	counts := func(dimm int) MachineDIMM {
		if !w.Machine("gpu-r01-02", &m) {
			t.Fatal("no such server")
		}
		return m.DIMMs[dimm]
	}
	if err := w.WearMemory("gpu-r01-02", 5); err != nil {
		t.Fatal(err)
	}
	if d := counts(5); d.Corrected == 0 || d.Uncorrected != 0 || counts(4) != (MachineDIMM{}) {
		t.Errorf("%+v", m.DIMMs)
	}
	if err := w.CrashHost("gpu-r01-02", 5); err != nil {
		t.Fatal(err)
	}
	if counts(5).Uncorrected != 1 {
		t.Errorf("%+v", m.DIMMs)
	}
	w.pass(10 * time.Minute)
	if counts(5) != (MachineDIMM{}) {
		t.Errorf("after the boot %+v", m.DIMMs)
	}
	if err := w.WearMemory("gpu-r01-02", dimmCount); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if w.Machine("nobody", &m) {
		t.Error("a server that is not there")
	}
}
