package correlator

import (
	"slices"
	"testing"
	"time"

	"auspex/internal/racetest"
)

// Coolant runs through the servers themselves: where it stops, their GPUs get hot and no air does, and often nothing
// else tells of it. GPUs of one server that get hot have nothing in common with the unit but that server.
func TestCoolantThatStopsHeatsNoAir(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, sh := range []shape{small, demo, hall, four, unfed} {
		sh.Liquid, sh.RowAir = true, false
		w := sh.Build()
		hot := func(s *scene, sec float64, state string) {
			i := 0
			for r := range min(w.Row, w.Racks) {
				for h := range w.Servers {
					for k := range w.GPUs {
						if i++; i%3 == 0 || i%(2*w.GPUs) < 3 { // the load is not the same everywhere
							s.at(sec+float64(i*37%240), "dcgm", w.ID("s%d.%d/gpu%d", r, h, k), "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", warned, state)
						}
					}
				}
			}
		}
		unit := w.ID("air0") + " cooling.air_supply"
		for name, c := range map[string]struct {
			play func(s *scene)
			want []string
		}{
			"no alarm": {func(s *scene) { hot(s, 120, up) }, []string{unit}},
			"an alarm": {func(s *scene) {
				s.at(0, "snmp", w.ID("air0"), "crac.failure", critical, up)
				hot(s, 120, up)
			}, []string{unit}},
			"no alarm, and again": {func(s *scene) {
				hot(s, 120, up)
				hot(s, 900, down)
				hot(s, 1300, up)
			}, []string{unit}},
			"one GPU": {func(s *scene) {
				for i := range 4 {
					s.at(200*float64(i), "dcgm", w.ID("s0.1/gpu2"), "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", warned, up)
				}
			}, []string{w.ID("s0.1/gpu2") + " gpu.overheating"}},
			"GPUs of one server": {func(s *scene) {
				for k := range 3 {
					s.at(60*float64(k), "dcgm", w.ID("s0.1/gpu%d", k), "gpu.clocks_throttled/HW_THERMAL_SLOWDOWN", warned, up)
				}
			}, []string{w.ID("s0.1/gpu0") + " gpu.overheating", w.ID("s0.1/gpu1") + " gpu.overheating", w.ID("s0.1/gpu2") + " gpu.overheating"}},
		} {
			t.Run(w.Name+"/"+name, func(t *testing.T) {
				s := &scene{}
				c.play(s)
				got := final(w.Topology, s.sorted(), 15*time.Minute)
				if !sameSet(causes(got), c.want) {
					t.Fatalf("want %q\n%s", c.want, verdict(got))
				}
				n := 0
				for _, inc := range got {
					n += len(inc.Events)
				}
				if slices.Contains(c.want, unit) && n != len(s.events) {
					t.Errorf("%d of %d events\n%s", n, len(s.events), verdict(got))
				}
			})
		}
	}
}
