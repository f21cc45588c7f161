//go:build cgo

package nvml

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"auspex/internal/waittest"
)

func TestGPUsAreGivenOutOfHand(t *testing.T) {
	s := newServer(t, 2)
	r, stop := s.start()
	defer stop()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	used := func() bool {
		_, err := os.Stat(s.machine.Path() + ".open")
		return err == nil
	}
	resume, err := r.Release(t.Context())
	if err != nil || used() {
		t.Fatalf("released: %v, in use %t", err, used())
	}
	s.machine.Say("gpu 1 set temperature-0 50")
	resume()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(50))
	if !used() {
		t.Error("it is read and not in use")
	}
	s.machine.Say("gpu 0 hang nvmlDeviceGetPowerUsage")
	s.tells("gpu.stalled CALL raised gpu0")
	if _, err := r.Release(t.Context()); err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetPowerUsage has not returned") {
		t.Error(err)
	}
	s.machine.Unsay("gpu 0 hang nvmlDeviceGetPowerUsage")
	waittest.For(t, "not released", func() bool {
		resume, err := r.Release(t.Context())
		if err == nil {
			resume()
		}
		return err == nil
	})
	if got := s.told(); len(got) != 2 {
		t.Errorf("events %q", got)
	}
}

func TestWhichGPUsAreResetTogether(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"Hopper, behind switches", nil, "[1]"},
		{"Ampere, behind switches", []string{"set architecture 7"}, "[0 1 2]"},
		{"Ampere, joined to each other", []string{"set architecture 7", "set remote-type-%d 1"}, "[1]"},
	} {
		s := newServer(t, 3)
		for gpu := range 3 {
			for _, l := range c.lines {
				if strings.Contains(l, "%d") {
					for link := range 18 {
						s.machine.Say("gpu %d "+l, gpu, link)
					}
					continue
				}
				s.machine.Say("gpu %d "+l, gpu)
			}
		}
		s.machine.Say("gpu 1 process 1 10")
		r, stop := s.start()
		s.shows("/gpus/gpu[gpu1]/process[1]/state/pid", uint64(1))
		got, err := r.Group(t.Context(), []uint32{1})
		var numbers []uint32
		for _, g := range got {
			numbers = append(numbers, g.Number)
			if (g.Number == 1) != (len(g.Processes) == 1) || g.PCI == "" {
				t.Errorf("%s: %+v", c.name, g)
			}
		}
		if fmt.Sprint(numbers) != c.want || err != nil {
			t.Errorf("%s: %v %v, want %s", c.name, numbers, err, c.want)
		}
		if _, err := r.Group(t.Context(), []uint32{1, 7}); err == nil || !strings.Contains(err.Error(), "gpu7 is not there") {
			t.Errorf("%s: %v", c.name, err)
		}
		stop()
	}
}

// A look at a GPU is of now, also where its turn is later; what is not there, and what hangs, is said.
func TestAGPUIsReadWhenSomebodyAsks(t *testing.T) {
	s := newServer(t, 2)
	s.cfg.Interval = time.Hour
	r, stop := s.start()
	defer stop()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
	if known, err := r.Known(t.Context()); err != nil || fmt.Sprint(known) != "[0 1]" {
		t.Error(known, err)
	}
	s.machine.Say("gpu 1 set temperature-0 71")
	s.machine.Say("gpu 1 set inforom 14")
	s.machine.Say("gpu 1 process 1 10")
	v, err := r.Read(t.Context(), 1, true)
	if err != nil || v["state/temperature"] != 71 || v["state/inforom-corrupted"] != 1 || v["state/pcie-width-max"] != 16 || v["nvlink[link=3]/state/active"] != 1 {
		t.Error(v, err)
	}
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(71))
	if got, err := r.Group(t.Context(), nil); err != nil || len(got) != 2 || len(got[1].Processes) != 1 { // who had it open was seen by the look
		t.Error(got, err)
	}
	if v, err := r.Read(t.Context(), 0, true); err != nil || v["state/inforom-corrupted"] != 0 {
		t.Error(v, err)
	}
	if _, err := r.Read(t.Context(), 7, true); err == nil || !strings.Contains(err.Error(), "gpu7 is not there") {
		t.Error(err)
	}
	s.machine.Say("gpu 0 gone")
	if _, err := r.Read(t.Context(), 0, false); err == nil || !strings.Contains(err.Error(), "it is not read: ") {
		t.Error(err)
	}
	s.machine.Say("gpu 1 hang nvmlDeviceGetPowerUsage")
	if _, err := r.Read(t.Context(), 1, false); err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetPowerUsage has not returned") {
		t.Error(err)
	}
	s.machine.Unsay("gpu 1 hang nvmlDeviceGetPowerUsage")
}

// Where no driver answers nobody of ours holds one: it is given out of hand at once.
func TestADriverThatDoesNotAnswerIsGivenOutOfHand(t *testing.T) {
	s := newServer(t, 2)
	s.machine.Say("return nvmlInit_v2 9")
	r, stop := s.start()
	defer stop()
	s.shows("/gpus/state/error", "nvmlInit: the NVIDIA driver is not loaded")
	waittest.For(t, "somebody reads", func() bool {
		_, err := r.Group(t.Context(), nil)
		return err != nil && strings.Contains(err.Error(), "no GPU is read now: nvmlInit: the NVIDIA driver is not loaded")
	})
	if _, err := r.Read(t.Context(), 0, true); err == nil {
		t.Error("it was read")
	}
	resume, err := r.Release(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.machine.Unsay("return nvmlInit_v2 9")
	time.Sleep(5 * s.cfg.Interval) // it is not touched meanwhile
	if _, err := os.Stat(s.machine.Path() + ".open"); err == nil {
		t.Error("the driver is in use")
	}
	resume()
	s.shows("/gpus/gpu[gpu1]/state/temperature", uint64(36))
}
